//! What the caller sees through the stack is what the server sent.

use attempt_ledger::{CallLayer, GateKind, Gates, Ledger, LedgerLayer, LedgerRetry, ScoreLayer};
use attempt_ledger_tests::*;
use bytes::Bytes;
use http_body::{Body as _, Frame};
use http_body_util::BodyExt;
use tower::ServiceExt;

fn through(gate: GateKind, head: Head, score: ScoreLayer) -> Stack<Frames> {
    let layer = LedgerLayer::new(Ledger::memory()).gates(Gates { plain: gate, stream: gate });
    stack(CallLayer::new().attempts(1), LedgerRetry::new(), score, layer, Frames::new([head]))
}

/// Each frame with the size hint and the end flag before it.
async fn observe<B>(mut body: B) -> Vec<String>
where
    B: http_body::Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Debug,
{
    let state = |body: &B| format!("{:?} end {}", body.size_hint(), body.is_end_stream());
    let mut frames = Vec::new();
    loop {
        let before = state(&body);
        match body.frame().await {
            Some(Ok(frame)) => frames.push(format!("{before} {}", show(&frame))),
            Some(Err(_)) => frames.push("error".into()),
            None => break,
        }
    }
    frames
}

fn show(frame: &Frame<Bytes>) -> String {
    match (frame.data_ref(), frame.trailers_ref()) {
        (Some(data), _) => format!("data {data:?}"),
        (_, Some(map)) => format!("trailers {map:?}"),
        _ => "neither".into(),
    }
}

fn random_head(random: &mut fastrand::Rng) -> Head {
    let content_type = random
        .choice(["application/json", "text/event-stream", "text/plain", "image/png"])
        .expect("one");
    let status = *random.choice(&[200, 200, 200, 201, 204, 301, 400, 429, 500, 503]).expect("one");
    let mut body = Vec::new();
    for _ in 0..random.usize(0..8) {
        body.push(match random.u32(0..5) {
            0 => Step::Wait(ms(random.u64(0..50))),
            1 => "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}\n\n".into(),
            2 => "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
                .into(),
            3 => "data: [DONE]\n\n".into(),
            _ => Step::Data((0..random.usize(0..3000)).map(|_| random.u8(..)).collect()),
        });
    }
    if random.bool() {
        let mut map = http::HeaderMap::new();
        map.insert("x-checksum", http::HeaderValue::from_static("1"));
        body.push(Step::Trailers(map));
    }
    let head = Head {
        after: ms(5),
        status: Ok(status),
        headers: vec![("content-type", content_type.into())],
        body,
    };
    head.header("x-request-id", "abc").header("set-cookie", "a=b").header("set-cookie", "c=d")
}

#[tokio::test(start_paused = true)]
async fn a_thousand_generated_responses_pass_unchanged() {
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    for round in 0..1_000 {
        let head = random_head(&mut random);
        let plain = Frames::new([head.clone()]).oneshot(chat("c")).await.expect("response");
        let (parts, body) = plain.into_parts();
        let frames = observe(body).await;
        let graded = if random.bool() { score() } else { ScoreLayer::none() };
        for gate in [GateKind::Whole, GateKind::Head] {
            let response = through(gate, head.clone(), graded.clone())
                .oneshot(chat("c"))
                .await
                .expect("response");
            let (seen, body) = response.into_parts();
            assert_eq!(
                (seen.status, &seen.headers, seen.version),
                (parts.status, &parts.headers, parts.version)
            );
            let through = observe(body).await;
            assert_eq!(through, frames, "SEED={seed} round {round} {gate:?}: {head:?}");
        }
    }
}

/// `size_hint` counts what is held, and the end is not claimed while it is.
#[tokio::test(start_paused = true)]
async fn what_is_held_is_counted() {
    let head = document("hello", "stop");
    let response = through(GateKind::Whole, head, ScoreLayer::none())
        .oneshot(chat("c"))
        .await
        .expect("response");
    let body = response.into_body();
    assert!(!body.is_end_stream());
    let exact = body.size_hint().exact().expect("exact");
    assert_eq!(body.collect().await.expect("body").to_bytes().len() as u64, exact);
}

#[tokio::test(start_paused = true)]
async fn a_whole_gate_opens_at_its_bound_and_says_so() {
    let ledger = Ledger::memory();
    let big = "x".repeat(1_000);
    let head = document("", "").body(vec![big.as_str().into(); 50]);
    let layer = LedgerLayer::new(ledger.clone()).whole_bound(10_000);
    let service =
        stack(CallLayer::new(), LedgerRetry::new(), ScoreLayer::none(), layer, Frames::new([head]));
    let response = service.oneshot(chat("c")).await.expect("response");
    assert_eq!(verdicts(&ledger, "c"), ["-"], "the gate opened before the end");
    assert_eq!(text(response.into_body()).await.expect("body").len(), 50_000);
    let row = &rows(&ledger, "c")[0];
    assert!(row.detail.gate_overflow);
}

/// A body that says with its last frame that it has ended may never be polled again, so that frame
/// waits for the row and its grade.
#[tokio::test(start_paused = true)]
async fn the_frame_after_which_a_body_says_it_has_ended_is_held() {
    let json = r#"{"choices":[{"message":{"content":"hello"},"finish_reason":"stop"}]}"#;
    for (length, frames) in [(json.len(), 1), (0, 0)] {
        let ledger = slow_ledger(ms(7), FailAt::Never);
        let inner = tower::service_fn(move |_: http::Request<Body>| async move {
            let body = Body::from(&json.as_bytes()[..length]);
            Ok::<_, std::io::Error>(http::Response::new(body))
        });
        let layer = LedgerLayer::new(ledger.clone())
            .gates(Gates { plain: GateKind::Head, stream: GateKind::Head });
        let service = stack(CallLayer::new(), LedgerRetry::new(), score(), layer, inner);
        let response = service.oneshot(chat("c")).await.expect("response");
        let mut body = response.into_body();
        assert_eq!(body.size_hint().exact(), Some(length as u64));
        assert_eq!(body.is_end_stream(), length == 0, "an end is not claimed before the row");
        for _ in 0..frames {
            body.frame().await.expect("frame").expect("data");
        }
        let row = &rows(&ledger, "c")[0];
        assert!(row.verdict.is_some(), "closed before its end is known");
        assert_eq!(row.score.is_some(), length > 0, "and graded");
        assert!(body.is_end_stream());
        assert!(body.frame().await.is_none());
    }
}

/// While a frame is held and while a fault is to come, more is to come.
#[tokio::test(start_paused = true)]
async fn an_end_is_not_claimed_while_a_row_or_a_fault_is_to_come() {
    let done = "data: [DONE]\n\n";
    let ledger = slow_ledger(ms(50), FailAt::Never);
    let gates = Gates { plain: GateKind::Head, stream: GateKind::Head };
    let layer = LedgerLayer::new(ledger.clone()).gates(gates);
    let head = sse(vec![done.into()]);
    let service = stack(CallLayer::new(), LedgerRetry::new(), score(), layer, Frames::new([head]));
    let mut body = service.oneshot(chat("c")).await.expect("head").into_body();
    assert!(tokio::time::timeout(ms(1), body.frame()).await.is_err(), "it waits for its row");
    assert!(!body.is_end_stream());
    assert_eq!(body.size_hint().exact(), Some(done.len() as u64), "what is held is counted");
    assert_eq!(body.frame().await.expect("frame").expect("data").into_data().expect("data"), done);

    let broken = Step::Fail(std::io::ErrorKind::ConnectionReset);
    let head = document("", "").status(500).body(vec!["x".into(), broken]);
    let response =
        through(GateKind::Whole, head, ScoreLayer::none()).oneshot(chat("c")).await.expect("500");
    let mut body = response.into_body();
    body.frame().await.expect("frame").expect("data");
    assert!(!body.is_end_stream(), "its error is to come");
    body.frame().await.expect("an end").expect_err("the fault");
    assert!(body.is_end_stream());
}
