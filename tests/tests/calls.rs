//! Calls, their policies and their requests, through the whole stack under paused time.

use attempt_ledger::{
    Attempt, CallLayer, Case, Effect, ErrorKind, Ledger, LedgerLayer, LedgerRetry, ScoreLayer,
    Verdict,
};
use attempt_ledger_core::{ErrorCause, Remote};
use attempt_ledger_tests::*;
use http::Response;
use tower::{Service, ServiceExt};

const ANSWER: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hello\"},\"finish_reason\":\"stop\"}]}\n\n";
const DONE: &str = "data: [DONE]\n\n";

#[tokio::test(start_paused = true)]
async fn a_call_has_three_attempts_and_nine_hundred_seconds_unless_told() {
    let ledger = Ledger::memory();
    let inner = Frames::new([document("hello", "stop")]);
    let mut ids = Vec::new();
    for call in [CallLayer::new(), CallLayer::default(), CallLayer::new().attempts(0)] {
        let layer = LedgerLayer::new(ledger.clone());
        let service = stack(call, LedgerRetry::new(), ScoreLayer::none(), layer, inner.clone());
        let response = service.oneshot(chat("c")).await.expect("answer");
        let call = call_of(&response);
        ids.push((call.max_attempts(), call.budget(), Some(call.id())));
    }
    let limits: Vec<_> = ids.iter().map(|(n, budget, _)| (*n, budget.as_secs())).collect();
    assert_eq!(limits, [(3, 900), (3, 900), (1, 900)]);
    let recorded: Vec<_> = rows(&ledger, "c").iter().map(|row| row.call).collect();
    assert_eq!(recorded, ids.iter().map(|(_, _, id)| *id).collect::<Vec<_>>());
    assert!(ids[0].2 != ids[1].2 && ids[1].2 != ids[2].2, "each call has an id of its own");
    assert_eq!(rows(&ledger, "c")[0].limits.budget_us, Some(900_000_000));
    assert_eq!(score().limit(), s(30));
}

#[tokio::test(start_paused = true)]
async fn a_calls_summary_says_what_became_of_its_attempts() {
    let summary = async |heads: Vec<Head>, retry: LedgerRetry| {
        let layer = LedgerLayer::new(Ledger::memory());
        let service = stack(CallLayer::new(), retry, ScoreLayer::none(), layer, Frames::new(heads));
        let response = service.oneshot(chat("c")).await.expect("a response");
        let call = call_of(&response);
        (call.survivor().map(|o| o.get()), call.recovered(), call.remote_unknown())
    };
    let good = || document("hello", "stop");
    let failed = || document("", "").status(500);
    let streaming = || sse(vec![ANSWER.into(), DONE.into()]);
    let plain = LedgerRetry::new;
    assert_eq!(summary(vec![good()], plain()).await, (Some(1), false, false));
    assert_eq!(summary(vec![failed(), good()], plain()).await, (Some(2), true, true));
    assert_eq!(summary(vec![failed()], plain()).await, (None, false, true));
    assert_eq!(summary(vec![streaming()], plain()).await, (Some(1), false, false));
    let disliked = LedgerRetry::new().retry_on([Verdict::Ok]);
    assert_eq!(summary(vec![good()], disliked.clone()).await, (Some(3), false, false));
    // Content, then a fault: the newest content survives, and the call did not recover.
    assert_eq!(summary(vec![good(), failed()], disliked).await, (Some(1), false, true));
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_finished_by_its_score_or_by_content_and_by_nothing_else() {
    let again = async |score: ScoreLayer, heads: Vec<Head>, calls: usize| {
        let ledger = Ledger::memory();
        let call = CallLayer::new().attempts(1).skip_finished(ledger.clone());
        let layer = LedgerLayer::new(ledger.clone());
        let inner = Frames::new(heads);
        let mut service = stack(call, LedgerRetry::new(), score, layer, inner.clone());
        let plain = stack(
            CallLayer::new().attempts(1),
            LedgerRetry::new(),
            ScoreLayer::none(),
            LedgerLayer::new(ledger),
            inner.clone(),
        );
        let _ = service.ready().await.expect("ready").call(chat("c")).await;
        for _ in 1..calls {
            let _ = plain.clone().oneshot(chat("c")).await;
        }
        match service.ready().await.expect("ready").call(chat("c")).await {
            Err(error) => match error.kind() {
                ErrorKind::Finished(finished) => Some(finished.score),
                other => panic!("{other:?}"),
            },
            Ok(_) => None,
        }
    };
    let good = || document("hello", "stop");
    let failed = || document("", "").status(500);
    assert_eq!(again(ScoreLayer::none(), vec![good()], 1).await, Some(None), "content, no grade");
    assert_eq!(again(score(), vec![good()], 1).await, Some(Some(1.0)), "frozen");
    assert_eq!(again(score(), vec![failed()], 1).await, None, "a fault is no end");
    assert_eq!(again(score(), vec![good(), failed()], 2).await, Some(Some(1.0)), "frozen stays");
    assert_eq!(again(ScoreLayer::none(), vec![good(), failed()], 2).await, None);
    assert_eq!(again(ScoreLayer::none(), vec![failed(), good()], 2).await, Some(None));
}

#[tokio::test(start_paused = true)]
async fn what_shapes_the_output_shapes_the_fingerprint() {
    let ledger = Ledger::memory();
    let inner = Frames::new([document("hello", "stop")]);
    let call = CallLayer::new().skip_finished(ledger.clone());
    let layer = LedgerLayer::new(ledger.clone());
    let mut service = stack(call, LedgerRetry::new(), ScoreLayer::none(), layer, inner);
    let second = || with_case(Case::new(slot("c").epoch(2)));
    let mut header = chat("header");
    header.headers_mut().insert("anthropic-beta", http::HeaderValue::from_static("x"));
    let mut query = chat("query");
    *query.uri_mut() =
        http::Uri::from_static("http://user:pass@model.test/v1/chat/completions?seed=1");
    for request in [chat("c"), second(), header, query] {
        service.ready().await.expect("ready").call(request).await.expect("answer");
    }
    let all = folded(&ledger).rows;
    let prints: std::collections::BTreeSet<_> =
        all.iter().map(|row| row.fingerprint.expect("known").to_string()).collect();
    assert_eq!(prints.len(), 4, "epoch, header and query count");
    assert!(all.iter().all(|row| row.host.as_deref() == Some("model.test")), "never userinfo");
    let error = service.ready().await.expect("ready").call(second()).await.expect_err("finished");
    assert!(error.is_finished(), "the same epoch is the same request");
}

/// A request body in pieces, which does not tell its end before it is polled.
struct Pieces(std::collections::VecDeque<bytes::Bytes>);

impl http_body::Body for Pieces {
    type Data = bytes::Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<bytes::Bytes>, std::io::Error>>> {
        std::task::Poll::Ready(self.0.pop_front().map(|piece| Ok(http_body::Frame::data(piece))))
    }
}

#[tokio::test(start_paused = true)]
async fn a_streamed_body_has_its_fingerprint_once_it_is_sent_and_counts_as_a_write() {
    use attempt_ledger::HashWhileSent;
    use http_body_util::{BodyExt as _, Full};
    let answer = || async {
        let json = r#"{"choices":[{"message":{"content":"hello"},"finish_reason":"stop"}]}"#;
        Ok::<_, std::io::Error>(Response::new(Body::from(json)))
    };
    let text = bare().into_body().collect().await.expect("body").to_bytes();
    let ledger = Ledger::memory();
    // Read to its end, or only to its last byte, after which its sender may not ask again.
    for (case, poll_past_the_end) in [("past", true), ("flag", false)] {
        let service =
            tower::ServiceBuilder::new().layer(LedgerLayer::new(ledger.clone())).service_fn(
                move |request: http::Request<HashWhileSent<Full<bytes::Bytes>>>| async move {
                    let mut body = request.into_body();
                    while let Some(frame) = body.frame().await {
                        frame.expect("sent");
                        if !poll_past_the_end {
                            break;
                        }
                    }
                    answer().await
                },
            );
        let request = chat(case).map(HashWhileSent::new);
        service.oneshot(request).await.expect("answer");
    }
    let service = tower::ServiceBuilder::new().layer(LedgerLayer::new(ledger.clone())).service_fn(
        move |request: http::Request<HashWhileSent<_>>| async move {
            request.into_body().collect().await.expect("sent");
            answer().await
        },
    );
    let halves = [text.slice(..9), text.slice(9..)];
    let other = [text.slice(..9), text.slice(8..)];
    for (case, pieces) in [("halves", halves), ("other", other)] {
        let request = chat(case).map(|_| HashWhileSent::new(Pieces(pieces.into())));
        service.clone().oneshot(request).await.expect("answer");
    }
    let row = |case| rows(&ledger, case).remove(0);
    let print = row("past").fingerprint.expect("sent");
    for case in ["past", "flag", "halves"] {
        assert_eq!(
            (row(case).fingerprint, row(case).effect),
            (Some(print), Effect::Writes),
            "{case}"
        );
    }
    assert!(row("other").fingerprint.is_some_and(|other| other != print), "every byte counts");
}

#[tokio::test(start_paused = true)]
async fn the_idempotency_key_is_marked_sensitive() {
    let service = tower::ServiceBuilder::new()
        .layer(LedgerLayer::new(Ledger::memory()))
        .service_fn(|request: http::Request<Body>| async move {
            let key = &request.headers()["idempotency-key"];
            assert!(key.is_sensitive() && key == "key-1");
            Ok::<_, std::io::Error>(Response::new(Body::default()))
        });
    let case = Case::new(slot("c")).idempotency_key("key-1").expect("header value");
    service.oneshot(with_case(case)).await.expect("sent");
}

#[tokio::test(start_paused = true)]
async fn the_service_that_was_ready_is_the_one_that_is_called() {
    let inner = tower::limit::ConcurrencyLimit::new(Frames::new([document("hello", "stop")]), 1);
    let service =
        tower::ServiceBuilder::new().layer(LedgerLayer::new(Ledger::memory())).service(inner);
    service.oneshot(chat("c")).await.expect("answer");
}

#[tokio::test(start_paused = true)]
async fn a_builders_automatic_cases_are_each_their_own() {
    let ledger = Ledger::memory();
    let client = attempt_ledger::client(ledger.clone())
        .automatic_cases(slot("c").run)
        .build_on(Frames::new([document("hello", "stop")]));
    for request in [bare(), bare(), chat("named")] {
        client.clone().oneshot(request).await.expect("answer");
    }
    let all = folded(&ledger).rows;
    assert!(all.iter().all(|row| row.ordinal.is_some_and(|o| o.is_first())));
    let cases: std::collections::BTreeSet<_> = all.iter().map(|row| row.case.clone()).collect();
    assert_eq!(cases.len(), 3);
    assert_eq!(rows(&ledger, "named").len(), 1, "a named case keeps its slot");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_being_read_is_never_repeated() {
    let inner = Frames::new([sse(vec![ANSWER.into(), Step::Wait(s(1)), DONE.into()])]);
    let layer = LedgerLayer::new(Ledger::memory());
    let retry = LedgerRetry::new().retry_on([Verdict::Ok]).grade_below(2.0);
    let service = stack(CallLayer::new(), retry, score(), layer, inner.clone());
    service.oneshot(chat("c")).await.expect("head");
    assert_eq!(inner.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn content_is_repeated_only_below_the_threshold_and_only_when_it_has_a_grade() {
    for (threshold, score, calls) in
        [(0.25, score(), 1), (0.26, score(), 3), (0.26, ScoreLayer::none(), 1)]
    {
        let inner = Frames::new([document("hel", "stop")]);
        let retry = LedgerRetry::new().grade_below(threshold);
        let layer = LedgerLayer::new(Ledger::memory());
        stack(CallLayer::new(), retry, score, layer, inner.clone())
            .oneshot(chat("c"))
            .await
            .expect("answer");
        assert_eq!(inner.calls(), calls, "{threshold}");
    }
    let retry = LedgerRetry::new().retry_on([Verdict::Empty, Verdict::Rejected, Verdict::Deadline]);
    assert_eq!(retry.retried_verdicts(), [Verdict::Empty], "faults are the table's");
}

/// How long a call of two or three attempts takes, over many calls: the least and the most of its
/// pauses.
async fn pauses(retry: &LedgerRetry, head: &Head, attempts: u32) -> (f64, f64) {
    let mut seen: Vec<f64> = Vec::new();
    for _ in 0..64 {
        let service = stack(
            CallLayer::new().attempts(attempts),
            retry.clone(),
            ScoreLayer::none(),
            LedgerLayer::new(Ledger::memory()),
            Frames::new([head.clone()]),
        );
        let started = tokio::time::Instant::now();
        service.oneshot(chat("c")).await.expect("the last result");
        seen.push(started.elapsed().as_secs_f64());
    }
    (seen.iter().copied().fold(f64::MAX, f64::min), seen.iter().copied().fold(0.0, f64::max))
}

/// The bounds of random pauses: 64 of them stay within a half of their range once in 2^64 runs.
#[tokio::test(start_paused = true)]
async fn the_pauses_are_the_tables() {
    let throttled = document("", "").status(429).after(ms(0));
    let hinted = throttled.clone().header("retry-after", "7");
    let plain = LedgerRetry::new();
    assert_eq!(pauses(&plain, &hinted, 2).await, (7.0, 7.0), "as the server asked");
    let (least, most) = pauses(&plain, &throttled, 2).await;
    assert!(least < 2.5 && (2.5..=5.01).contains(&most), "{least} {most}");
    let failed = document("", "").status(500).after(ms(0));
    let (least, most) = pauses(&plain, &failed, 2).await;
    assert!(least < 0.25 && (0.25..=0.51).contains(&most), "{least} {most}");
    // 0.5 s and 1 s together: above 0.75 s in half of all calls.
    let (_, most) = pauses(&plain, &failed, 4).await;
    assert!((1.1..=3.51).contains(&most), "{most}");
    let disliked = LedgerRetry::new().retry_on([Verdict::Ok]);
    let good = document("hello", "stop").after(ms(0));
    let (_, most) = pauses(&disliked, &good, 5).await;
    assert!((2.1..=7.51).contains(&most), "0.5 + 1 + 2 + 4: {most}");
    let in_band = document("", "")
        .body(vec![r#"{"error":{"code":"rate_limit_exceeded","message":"m"}}"#.into()]);
    let (_, most) = pauses(&plain, &in_band.after(ms(0)), 2).await;
    assert!((0.6..=5.01).contains(&most), "a throttle in band is a throttle: {most}");
}

#[tokio::test(start_paused = true)]
async fn a_later_attempt_shows_its_diagnostic() {
    let inner = Frames::new([document("hel", "stop"), document("hello", "stop")]);
    let retry = LedgerRetry::new().grade_below(0.5);
    let layer = LedgerLayer::new(Ledger::memory());
    let service = stack(CallLayer::new(), retry, score(), layer, inner);
    let response = service.oneshot(chat("c")).await.expect("answer");
    assert_eq!(Attempt::of(&response).and_then(Attempt::grade), Some(1.0));
}

#[tokio::test(start_paused = true)]
async fn what_a_layer_beneath_refused_or_timed_out_is_told_by_its_type() {
    use attempt_ledger_core::{Phase, TransportKind};
    let ledger = Ledger::memory();
    let slow = Frames::new([document("hello", "stop").after(s(60))]);
    let timed = tower::timeout::Timeout::new(slow, s(3));
    let service =
        tower::ServiceBuilder::new().layer(LedgerLayer::new(ledger.clone())).service(timed);
    service.oneshot(chat("slow")).await.expect_err("timed out");
    let row = &rows(&ledger, "slow")[0];
    // A clock of the caller's own is a local clock, wherever it stands.
    assert_eq!((row.verdict, row.remote), (Some(Verdict::Deadline), Some(Remote::Unknown)));
    assert_eq!(row.detail.kind, Some(TransportKind::Elapsed));

    let limited = tower::limit::ConcurrencyLimit::new(Frames::new([document("", "")]), 1);
    let held = limited.clone();
    let shedding = tower::load_shed::LoadShed::new(limited);
    let mut held = std::pin::pin!(held.oneshot(chat("x")));
    assert!(tokio::time::timeout(ms(1), &mut held).await.is_err(), "it holds the only permit");
    let service =
        tower::ServiceBuilder::new().layer(LedgerLayer::new(ledger.clone())).service(shedding);
    service.oneshot(chat("shed")).await.expect_err("shed");
    let row = &rows(&ledger, "shed")[0];
    assert_eq!((row.verdict, row.remote), (Some(Verdict::Shed), Some(Remote::NotReached)));
    assert_eq!(row.detail.phase, Some(Phase::Open));
}

#[tokio::test(start_paused = true)]
async fn the_row_says_what_the_head_said() {
    let ledger = Ledger::memory();
    let head = document("", "")
        .status(429)
        .header("retry-after", "3")
        .header("x-envoy-attempt-count", "3")
        .header("x-should-retry", "false")
        .header("x-ratelimit-remaining-requests", "0")
        .header("x-ratelimit-reset-requests", "6m0s");
    let call = CallLayer::new().attempts(1);
    let layer = LedgerLayer::new(ledger.clone());
    let service = stack(call, LedgerRetry::new(), ScoreLayer::none(), layer, Frames::new([head]));
    let response = service.oneshot(chat("c")).await.expect("a response");
    let row = &rows(&ledger, "c")[0];
    assert_eq!((row.retry_after_ms, row.upstream_retries), (Some(3_000), Some(2)));
    assert_eq!(row.detail.should_retry, Some(false));
    let limit = serde_json::to_value(&row.detail.rate_limit).expect("JSON");
    let want = serde_json::json!({"requests": {"remaining": 0, "reset_ms": 360_000}});
    assert_eq!(limit, want, "what was not said is left out");
    assert_eq!(row.answer_sha256, None, "no answer");
    assert_eq!(Attempt::of(&response).and_then(Attempt::retry_after), Some(s(3)));
}

/// A limit that is used up is no error of the answer that says so.
#[tokio::test(start_paused = true)]
async fn an_answer_with_nothing_left_of_the_limits_is_an_answer() {
    let ledger = Ledger::memory();
    let head = document("hi", "stop")
        .header("x-ratelimit-remaining-tokens", "0")
        .header("x-should-retry", "true");
    let inner = Frames::new([head]);
    let layer = LedgerLayer::new(ledger.clone());
    let service =
        stack(CallLayer::new(), LedgerRetry::new(), ScoreLayer::none(), layer, inner.clone());
    service.oneshot(chat("c")).await.expect("a response");
    let row = &rows(&ledger, "c")[0];
    assert_eq!((row.verdict, row.retry_after_ms, inner.calls()), (Some(Verdict::Ok), None, 1));
    let limit = row.detail.rate_limit.as_ref().expect("kept");
    assert_eq!((limit.tokens.remaining, limit.requests.remaining), (Some(0), None));
}

/// As providers' own clients do; but nobody asks for a second write.
#[tokio::test(start_paused = true)]
async fn the_server_s_word_on_another_try_is_obeyed() {
    for (status, said, effect, made) in [
        (503, None, Effect::ReadOnly, 3),
        (503, Some("false"), Effect::ReadOnly, 1),
        (503, Some("true"), Effect::ReadOnly, 3),
        (500, Some("false"), Effect::ReadOnly, 1),
        (500, Some("true"), Effect::Writes, 1),
        (501, Some("true"), Effect::Writes, 1),
        (409, None, Effect::ReadOnly, 1),
        (409, Some("true"), Effect::ReadOnly, 3),
        (409, Some("true"), Effect::Writes, 1),
        (409, Some("maybe"), Effect::ReadOnly, 1),
    ] {
        let mut head = document("", "").status(status);
        if let Some(said) = said {
            head = head.header("x-should-retry", said);
        }
        let inner = Frames::new([head]);
        let layer = LedgerLayer::new(Ledger::memory());
        let retry = LedgerRetry::new();
        let service = stack(CallLayer::new(), retry, ScoreLayer::none(), layer, inner.clone());
        let request = with_case(Case::new(slot("c")).effect(effect));
        service.oneshot(request).await.expect("the last one is handed up");
        assert_eq!(inner.calls(), made, "{status} {said:?} {effect}");
    }
}

/// A throttle that a stream reports under status 200 is waited for as one by status is, as long as
/// its server asks for in the error or in the head; but nobody writes twice for it.
#[tokio::test(start_paused = true)]
async fn a_throttle_in_the_first_event_is_waited_for_as_long_as_it_says() {
    const ERROR: &str = concat!(
        r#"data: {"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED","details":["#,
        r#"{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"7s"}]}}"#,
        "\r\n\r\n",
    );
    const PLAIN: &str = "data: {\"error\":{\"code\":429,\"message\":\"m\",\"status\":\"RESOURCE_EXHAUSTED\"}}\r\n\r\n";
    const ANSWER: &str = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"hello\"}]},\"finishReason\":\"STOP\"}]}\r\n\r\n";
    let gemini = |effect: Option<Effect>| {
        let case = Case::new(slot("c"));
        let mut request = with_case(match effect {
            Some(effect) => case.effect(effect),
            None => case,
        });
        *request.uri_mut() = http::Uri::from_static(
            "http://model.test/v1beta/models/m:streamGenerateContent?alt=sse",
        );
        *request.body_mut() = r#"{"contents":[{"parts":[{"text":"ping"}]}]}"#.into();
        request
    };
    let said = |error: &'static str| sse(vec![error.into()]);
    for (effect, throttled, asked, attempts, wait) in [
        (None, said(ERROR), 7, 2, s(7)),
        (Some(Effect::idempotent("k")), said(ERROR), 7, 2, s(7)),
        (Some(Effect::Writes), said(ERROR), 7, 1, s(0)),
        (None, said(PLAIN).header("retry-after", "9"), 9, 2, s(9)),
        // The header is the whole response's, and is asked first.
        (None, said(ERROR).header("retry-after", "9"), 9, 2, s(9)),
        (Some(Effect::Writes), said(PLAIN).header("retry-after", "9"), 9, 1, s(0)),
        // More than is waited for.
        (None, said(PLAIN).header("retry-after", "61"), 61, 1, s(0)),
    ] {
        let ledger = Ledger::memory();
        let inner = Frames::new([throttled, sse(vec![ANSWER.into()])]);
        let layer = LedgerLayer::new(ledger.clone());
        let retry = LedgerRetry::new();
        let service = stack(CallLayer::new(), retry, ScoreLayer::none(), layer, inner.clone());
        let begun = tokio::time::Instant::now();
        let response = service.oneshot(gemini(effect)).await.expect("a response");
        let said = format!("{effect:?} {asked}");
        // Each head takes 10 ms, and nothing else takes time.
        assert_eq!(begun.elapsed(), wait + ms(10) * attempts, "{said}");
        let rows = rows(&ledger, "c");
        let row = &rows[0];
        assert_eq!(
            (row.status, row.verdict, row.detail.cause, row.retry_after_ms),
            (
                Some(200),
                Some(Verdict::ProviderError),
                Some(ErrorCause::Throttled),
                Some(asked * 1_000)
            ),
            "{said}"
        );
        assert_eq!((rows.len(), inner.calls()), (attempts as usize, attempts as usize), "{said}");
        let retry_after = Attempt::of(&response).and_then(Attempt::retry_after);
        let body = text(response.into_body()).await.expect("a body");
        // The last one is handed up as it came.
        let last = if attempts == 2 { (None, true) } else { (Some(s(asked)), false) };
        assert_eq!((retry_after, body == ANSWER), last, "{said}");
    }
}
