//! The rules of the notebook, one test each, through the whole stack under paused time.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use attempt_ledger::{
    Attempt, AttemptState, CallLayer, Case, Clocks, Effect, ErrorKind, GateKind, Gates, GradeInput,
    GraderFn, Ledger, LedgerLayer, LedgerRetry, OnLedgerError, Role, ScoreLayer, Verdict,
};
use attempt_ledger_core::{Cause, Clock, Durability, Event, GraderAttempts, RefusedWhy, Remote};
use attempt_ledger_tests::*;
use http::Response;
use tower::{Service, ServiceExt};

fn clocks() -> Clocks {
    Clocks::default().idle(s(5))
}

fn default_stack(ledger: &Ledger, inner: Frames) -> Stack<Frames> {
    let layer = LedgerLayer::new(ledger.clone()).clocks(clocks());
    stack(CallLayer::new(), LedgerRetry::new(), score(), layer, inner)
}

/// Sees the ledger from where a user's policy stands.
#[derive(Clone)]
struct Looking {
    ledger: Ledger,
    seen: Arc<AtomicUsize>,
}

impl<B> tower::retry::Policy<http::Request<Body>, Response<B>, attempt_ledger::Error> for Looking {
    type Future = std::future::Ready<()>;

    fn retry(
        &mut self,
        _: &mut http::Request<Body>,
        result: &mut Result<Response<B>, attempt_ledger::Error>,
    ) -> Option<Self::Future> {
        let attempt = match result {
            Ok(response) => Attempt::of(response).expect("an attempt"),
            Err(error) => error.attempt().expect("an attempt"),
        };
        let rows = rows(&self.ledger, "c");
        let row = rows.iter().find(|row| row.attempt == attempt.id()).expect("its row");
        let AttemptState::Closed { verdict, grade, .. } = attempt.state() else {
            panic!("the policy sees the outcome")
        };
        assert_eq!(row.verdict, Some(verdict), "the row is closed before the decision");
        assert!(attempt.is_recorded());
        if row.ordinal.is_some_and(|o| o.is_first()) && verdict.is_content() {
            assert_eq!(row.score, grade, "and frozen");
            assert!(row.frozen);
        }
        self.seen.fetch_add(1, Ordering::SeqCst);
        (self.seen.load(Ordering::SeqCst) < 4).then(|| std::future::ready(()))
    }

    fn clone_request(&mut self, request: &http::Request<Body>) -> Option<http::Request<Body>> {
        Some(request.clone())
    }
}

#[tokio::test(start_paused = true)]
async fn a_row_is_closed_and_frozen_before_a_users_policy_looks() {
    for ledger in [Ledger::memory(), slow_ledger(ms(7), FailAt::Never)] {
        let inner = Frames::new([
            document("hel", "stop"),
            error_after(ms(20), std::io::ErrorKind::ConnectionReset),
            sse(vec!["data: {\"error\":{\"code\":\"x\"}}\n\n".into()]).status(429),
            document("hello", "stop"),
        ]);
        let looking = Looking { ledger: ledger.clone(), seen: Arc::default() };
        let service = tower::ServiceBuilder::new()
            .layer(CallLayer::new().attempts(9))
            .layer(tower::retry::RetryLayer::new(looking.clone()))
            .layer(score())
            .layer(LedgerLayer::new(ledger.clone()).clocks(clocks()))
            .service(inner);
        service.oneshot(chat("c")).await.expect("the last one is handed up");
        assert_eq!(looking.seen.load(Ordering::SeqCst), 4);
        assert_eq!(verdicts(&ledger, "c"), ["ok", "transport", "throttled", "ok"]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_is_opened_before_it_is_sent() {
    let ledger = slow_ledger(ms(50), FailAt::Never);
    let inner = Frames::new([document("hello", "stop")]);
    let seen = inner.clone();
    let mut future = Box::pin(default_stack(&ledger, inner).oneshot(chat("c")));
    assert!(tokio::time::timeout(ms(49), &mut future).await.is_err());
    assert_eq!(seen.calls(), 0, "nothing is sent before the acknowledgement");
    assert_eq!(verdicts(&ledger, "c"), ["-"]);
    future.await.expect("answer");
    assert_eq!(seen.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_recovered_retry_is_not_the_first_attempt() {
    for ledger in [Ledger::memory(), slow_ledger(ms(7), FailAt::Never)] {
        let stalled = document("hello", "stop").body(vec!["{".into(), Step::Stall]);
        let inner = Frames::new([
            document("hel", "stop"),
            document("hello", "stop"),
            stalled,
            document("hello", "stop"),
        ]);
        let retry = LedgerRetry::new().grade_below(0.5);
        let layer = LedgerLayer::new(ledger.clone()).clocks(clocks());
        let mut service = stack(CallLayer::new(), retry, score(), layer, inner);
        let response =
            service.ready().await.expect("ready").call(chat("case-7")).await.expect("answer");
        assert!(!call_of(&response).recovered(), "a low grade is no fault of availability");
        let response =
            service.ready().await.expect("ready").call(chat("case-8")).await.expect("answer");
        let call = call_of(&response);
        assert!(call.recovered());
        assert_eq!(call.survivor().map(|o| o.get()), Some(2));
        let summary = |case| {
            let line = |r: &attempt_ledger_core::AttemptRow| {
                (r.ordinal.map(|o| o.get()), r.cause, r.verdict, r.score, r.diagnostic)
            };
            rows(&ledger, case).iter().map(line).collect::<Vec<_>>()
        };
        assert_eq!(
            summary("case-7"),
            [
                (Some(1), Cause::Initial, Some(Verdict::Ok), Some(0.25), None),
                (Some(2), Cause::Retry, Some(Verdict::Ok), None, Some(1.0)),
            ]
        );
        assert_eq!(
            summary("case-8"),
            [
                (Some(1), Cause::Initial, Some(Verdict::Deadline), None, None),
                (Some(2), Cause::Retry, Some(Verdict::Ok), None, Some(1.0)),
            ]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn ordinals_go_on_when_a_harness_calls_again() {
    let ledger = Ledger::memory();
    let inner = Frames::new([document("hello", "stop")]);
    let mut service = default_stack(&ledger, inner);
    for _ in 0..3 {
        service.ready().await.expect("ready").call(chat("c")).await.expect("answer");
    }
    let rows = rows(&ledger, "c");
    let seen: Vec<_> = rows.iter().map(|r| (r.ordinal.map(|o| o.get()), r.cause)).collect();
    assert_eq!(
        seen,
        [(Some(1), Cause::Initial), (Some(2), Cause::Recall), (Some(3), Cause::Recall)]
    );
}

#[tokio::test(start_paused = true)]
async fn a_grade_goes_to_ordinal_one_once() {
    let ledger = Ledger::memory();
    let inner = Frames::new([document("hel", "stop"), document("hello", "stop")]);
    let retry = LedgerRetry::new().grade_below(0.5);
    let service = stack(CallLayer::new(), retry, score(), LedgerLayer::new(ledger.clone()), inner);
    service.oneshot(chat("c")).await.expect("answer");
    let rows = rows(&ledger, "c");
    let grade = |row: &attempt_ledger_core::AttemptRow, answer| attempt_ledger_core::Grade {
        attempt: row.attempt,
        score: 1.0,
        grader: "late".into(),
        grader_version: "1".into(),
        answer_sha256: answer,
        grader_attempts: GraderAttempts::None,
    };
    let answers: Vec<_> = rows.iter().map(|r| r.answer_sha256.expect("content")).collect();
    for (row, answer, why) in
        [(0, answers[0], RefusedWhy::Frozen), (1, answers[1], RefusedWhy::LaterOrdinal)]
    {
        let refused = ledger.score(grade(&rows[row], answer)).await.expect_err("refused");
        assert!(matches!(refused, attempt_ledger::store::StoreError::Refused(w) if w == why));
    }
    let folded = folded(&ledger);
    assert_eq!(folded.refused.len(), 2, "and counted");
    assert_eq!(folded.slots[0].state.score(), Some(0.25), "what was frozen stays");
}

#[tokio::test(start_paused = true)]
async fn a_local_deadline_is_never_the_models_failure() {
    let ledger = Ledger::memory();
    let inner = Frames::new([document("hello", "stop").after(s(700))]);
    let layer = LedgerLayer::new(ledger.clone());
    let service = stack(CallLayer::new().attempts(1), LedgerRetry::new(), score(), layer, inner);
    let error = service.oneshot(chat("c")).await.expect_err("late");
    assert!(
        matches!(error.kind(), ErrorKind::Deadline { clock: Clock::Total, limit } if *limit == s(600))
    );
    let source = std::error::Error::source(&error).expect("source");
    let io = source.downcast_ref::<std::io::Error>().expect("an i/o error");
    assert_eq!(io.kind(), std::io::ErrorKind::TimedOut);
    let row = &rows(&ledger, "c")[0];
    assert_eq!((row.verdict, row.remote), (Some(Verdict::Deadline), Some(Remote::Unknown)));
    assert_eq!(row.score, None);
}

#[tokio::test(start_paused = true)]
async fn what_may_have_written_is_not_sent_twice() {
    for (effect, calls) in
        [(Effect::Writes, 1), (Effect::ReadOnly, 2), (Effect::idempotent("k"), 2)]
    {
        let ledger = Ledger::memory();
        let stalled = document("hello", "stop").body(vec!["{".into(), Step::Stall]);
        let inner = Frames::new([stalled, document("hello", "stop")]);
        let seen = inner.clone();
        let request = with_case(Case::new(slot("c")).effect(effect));
        let result = default_stack(&ledger, inner).oneshot(request).await;
        assert_eq!(seen.calls(), calls, "{effect}");
        assert_eq!(result.is_ok(), calls == 2, "{effect}");
    }
    // Turned away at the door, nothing was written.
    let ledger = Ledger::memory();
    let inner = Frames::new([document("", "").status(503), document("hello", "stop")]);
    let request = with_case(Case::new(slot("c")).effect(Effect::Writes));
    default_stack(&ledger, inner).oneshot(request).await.expect("repeated");
    assert_eq!(verdicts(&ledger, "c"), ["throttled", "ok"]);
}

#[tokio::test(start_paused = true)]
async fn a_writes_answer_is_not_repeated_because_it_was_not_liked() {
    let ledger = Ledger::memory();
    let inner = Frames::new([document("hel", "stop")]);
    let seen = inner.clone();
    let retry = LedgerRetry::new().grade_below(0.5).retry_on([Verdict::Ok]);
    let service = stack(CallLayer::new(), retry, score(), LedgerLayer::new(ledger), inner);
    service.oneshot(with_case(Case::new(slot("c")).effect(Effect::Writes))).await.expect("answer");
    assert_eq!(seen.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_failing_grader_leaves_the_row_ungraded() {
    type Boxed = attempt_ledger::BoxError;
    let grade_with = |what: &'static str| {
        GraderFn::new(what, "1", move |_: GradeInput| async move {
            match what {
                "fails" => Err::<f64, Boxed>("no opinion".into()),
                "panics" => panic!("a grader may do that"),
                "hangs" => std::future::pending().await,
                "nan" => Ok(f64::NAN),
                "infinite" => Ok(f64::INFINITY),
                "below" => Ok(-0.5),
                _ => Ok(1.5),
            }
        })
    };
    for (what, refused) in [
        ("fails", None),
        ("panics", None),
        ("hangs", None),
        ("nan", Some(RefusedWhy::NotFinite)),
        ("infinite", Some(RefusedWhy::NotFinite)),
        ("range", Some(RefusedWhy::OutOfRange)),
        ("below", Some(RefusedWhy::OutOfRange)),
    ] {
        let ledger = Ledger::memory();
        let inner = Frames::new([document("hello", "stop")]);
        let score = ScoreLayer::new(grade_with(what));
        let layer = LedgerLayer::new(ledger.clone());
        let started = tokio::time::Instant::now();
        let service = stack(CallLayer::new(), LedgerRetry::new(), score, layer, inner);
        let response = service.oneshot(chat("c")).await.expect("the answer is the caller's");
        assert!(response.status().is_success());
        assert!(started.elapsed() <= s(30) + ms(20), "{what}");
        let folded = folded(&ledger);
        assert_eq!(folded.rows[0].verdict, Some(Verdict::Ok), "{what}");
        assert_eq!(folded.rows[0].score, None, "{what}: a missing grade is not the lowest");
        assert_eq!(folded.refused.first().map(|r| r.why), refused, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_graders_own_calls_are_grader_rows_and_not_graded() {
    let ledger = Ledger::memory();
    let inner = Frames::new([document("hello", "stop"), document("5", "stop")]);
    let through = tower::ServiceBuilder::new()
        .layer(CallLayer::new())
        .layer(LedgerLayer::new(ledger.clone()))
        .service(inner.clone());
    let grader = GraderFn::new("judge", "1", move |input: GradeInput| {
        let client = through.clone();
        async move {
            let request = with_case(Case::new(input.slot.role(Role::Grader)));
            let response = client.oneshot(request).await?;
            let attempt = Attempt::of(&response).expect("attempt").id();
            let attempts = GraderAttempts::Cited(vec![attempt]);
            Ok::<_, attempt_ledger::BoxError>(attempt_ledger::Graded { score: 0.5, attempts })
        }
    });
    let layer = LedgerLayer::new(ledger.clone());
    let service =
        stack(CallLayer::new(), LedgerRetry::new(), ScoreLayer::new(grader), layer, inner);
    service.oneshot(chat("c")).await.expect("answer");
    let rows = folded(&ledger).rows;
    let seen: Vec<_> = rows.iter().map(|r| (r.role, r.ordinal.map(|o| o.get()), r.score)).collect();
    assert_eq!(seen, [(Role::Subject, Some(1), Some(0.5)), (Role::Grader, Some(1), None)]);
    let cited = rows[0].grade.as_ref().expect("a grade").grader_attempts.clone();
    assert_eq!(cited, GraderAttempts::Cited(vec![rows[1].attempt]));
}

#[tokio::test(start_paused = true)]
async fn without_a_case_nothing_is_sent() {
    let ledger = Ledger::memory();
    let inner = Frames::new([document("hello", "stop")]);
    let seen = inner.clone();
    let error = default_stack(&ledger, inner).oneshot(bare()).await.expect_err("unlinked");
    assert!(matches!(error.kind(), ErrorKind::Unlinked));
    assert!(error.to_string().contains("CallLayer"), "{error}");
    assert_eq!(seen.calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_layer_beneath_the_retry_keeps_the_users_slot() {
    let ledger = Ledger::memory();
    let inner = Frames::new([document("", "").status(500), document("hello", "stop")]);
    let service = tower::ServiceBuilder::new()
        .layer(tower::retry::RetryLayer::new(LedgerRetry::new()))
        .layer(CallLayer::new())
        .layer(LedgerLayer::new(ledger.clone()))
        .service(inner);
    service.oneshot(chat("c")).await.expect("answer");
    let rows = rows(&ledger, "c");
    let seen: Vec<_> = rows.iter().map(|r| (r.ordinal.map(|o| o.get()), r.cause)).collect();
    assert_eq!(seen, [(Some(1), Cause::Initial), (Some(2), Cause::Recall)]);
}

#[tokio::test(start_paused = true)]
async fn without_a_call_the_cause_is_unknown() {
    let ledger = Ledger::memory();
    let inner = Frames::new([document("", "").status(500), document("hello", "stop")]);
    let service = tower::ServiceBuilder::new()
        .layer(tower::retry::RetryLayer::new(LedgerRetry::new()))
        .layer(LedgerLayer::new(ledger.clone()))
        .service(inner);
    service.oneshot(chat("c")).await.expect("answer");
    assert!(rows(&ledger, "c").iter().all(|r| r.cause == Cause::Unknown && r.call.is_none()));
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_retries_everything_ends_at_the_cap() {
    let run = async |call: CallLayer, inner: Frames| {
        let ledger = Ledger::memory();
        let service = tower::ServiceBuilder::new()
            .layer(call)
            .layer(tower::retry::RetryLayer::new(Forever(ms(0))))
            .layer(LedgerLayer::new(ledger.clone()))
            .service(inner);
        (service.oneshot(chat("c")).await.expect_err("capped"), ledger)
    };
    let (error, ledger) =
        run(CallLayer::new().attempts(5), Frames::new([document("hello", "stop")])).await;
    assert!(matches!(error.kind(), ErrorKind::Capped(attempt_ledger::Cap::Attempts(5))), "{error}");
    assert_eq!(rows(&ledger, "c").len(), 5, "no ordinal is spent at the cap");
    assert_eq!(
        error.attempt().and_then(Attempt::ordinal).map(|o| o.get()),
        Some(5),
        "with the last one"
    );

    let slow = document("hello", "stop").after(s(4));
    let (error, ledger) =
        run(CallLayer::new().attempts(99).budget(s(10)), Frames::new([slow])).await;
    assert!(matches!(error.kind(), ErrorKind::Capped(attempt_ledger::Cap::Budget(_))), "{error}");
    // 4 s, 4 s, and 2 s that the budget cut short.
    assert_eq!(verdicts(&ledger, "c"), ["ok", "ok", "deadline"]);
    assert_eq!(rows(&ledger, "c")[2].detail.clock, Some(Clock::Budget));
    assert_eq!(rows(&ledger, "c")[2].end_us, Some(2_000_000));
}

#[tokio::test(start_paused = true)]
async fn finished_work_is_skipped_only_for_the_same_request() {
    let ledger = Ledger::memory();
    let inner = Frames::new([document("hello", "stop")]);
    let seen = inner.clone();
    let call = CallLayer::new().skip_finished(ledger.clone());
    let mut service =
        stack(call, LedgerRetry::new(), score(), LedgerLayer::new(ledger.clone()), inner);
    service.ready().await.expect("ready").call(chat("c")).await.expect("answer");
    let again = service.ready().await.expect("ready").call(chat("c")).await.expect_err("finished");
    let ErrorKind::Finished(finished) = again.kind() else { panic!("{again}") };
    assert_eq!((finished.score, seen.calls()), (Some(1.0), 1));
    let mut other = chat("c");
    *other.body_mut() = r#"{"model":"other","messages":[{"role":"user","content":"ping"}]}"#.into();
    service.ready().await.expect("ready").call(other).await.expect("another model is never a hit");
    assert_eq!(seen.calls(), 2);
}

#[tokio::test(start_paused = true)]
async fn when_the_ledger_cannot_open_nothing_is_sent_and_nothing_retried() {
    let ledger = slow_ledger(ms(1), FailAt::Kind("opened", 1));
    let inner = Frames::new([document("hello", "stop")]);
    let seen = inner.clone();
    let error = default_stack(&ledger, inner).oneshot(chat("c")).await.expect_err("no ledger");
    assert!(error.is_ledger(), "{error}");
    assert_eq!(seen.calls(), 0);
    let cause = std::error::Error::source(&error).expect("cause").to_string();
    assert!(cause.contains("/ledger/000000000000.jsonl"), "{cause}");
}

#[tokio::test(start_paused = true)]
async fn when_the_ledger_cannot_close_the_call_fails_and_opens_no_more() {
    for head in [
        document("hello", "stop"),
        document("", "").status(500),
        error_after(ms(1), std::io::ErrorKind::ConnectionReset),
    ] {
        let ledger = slow_ledger(ms(1), FailAt::Kind("closed", 1));
        let inner = Frames::new([head]);
        let seen = inner.clone();
        let error = default_stack(&ledger, inner).oneshot(chat("c")).await.expect_err("no ledger");
        assert!(error.is_ledger(), "{error}");
        assert_eq!(seen.calls(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn by_choice_a_call_goes_on_unrecorded_and_is_counted() {
    for (at, sent) in [("opened", 1), ("closed", 1)] {
        let ledger = slow_ledger(ms(1), FailAt::Once(at, 1));
        let inner = Frames::new([document("hello", "stop")]);
        let seen = inner.clone();
        let layer = LedgerLayer::new(ledger.clone()).on_ledger_error(OnLedgerError::GoOn);
        let mut service = stack(CallLayer::new(), LedgerRetry::new(), score(), layer, inner);
        let response =
            service.ready().await.expect("ready").call(chat("c")).await.expect("goes on");
        assert!(!Attempt::of(&response).expect("attempt").is_recorded(), "marked");
        assert!(text(response.into_body()).await.expect("body").contains("hello"));
        assert_eq!(seen.calls(), sent);
        service.ready().await.expect("ready").call(chat("d")).await.expect("answer");
        let counted: u64 = folded(&ledger).unrecorded.values().sum();
        assert_eq!(counted, 1, "{at}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_acknowledgement_is_awaited_for_ten_seconds() {
    let ledger = slow_ledger(ms(1), FailAt::Silent("opened"));
    let inner = Frames::new([document("hello", "stop")]);
    let seen = inner.clone();
    let started = tokio::time::Instant::now();
    let error = default_stack(&ledger, inner).oneshot(chat("c")).await.expect_err("no answer");
    assert!(error.is_ledger());
    assert_eq!((started.elapsed(), seen.calls()), (s(10), 0));
    let row = &rows(&ledger, "c")[0];
    assert_eq!((row.verdict, row.remote), (Some(Verdict::Abandoned), Some(Remote::NotReached)));
}

#[tokio::test(start_paused = true)]
async fn no_clock_runs_while_the_ledger_or_a_grader_is_awaited() {
    // Each acknowledgement takes 4 s, the grade 0.7 s, and the attempt's total is 3 s.
    let ledger = slow_ledger(s(4), FailAt::Never);
    let inner = Frames::new([document("hello", "stop").after(s(2))]);
    let layer = LedgerLayer::new(ledger.clone()).clocks(Clocks::default().idle(s(1)).total(s(3)));
    let started = tokio::time::Instant::now();
    let service = stack(CallLayer::new(), LedgerRetry::new(), score(), layer, inner);
    service.oneshot(chat("c")).await.expect("answer");
    assert_eq!(started.elapsed(), s(4 + 2 + 4 + 4) + ms(700));
    assert_eq!(rows(&ledger, "c")[0].end_us, Some(2_000_000));
    assert_eq!(ledger.durability(), Durability::Memory);
}

#[tokio::test(start_paused = true)]
async fn no_call_exceeds_its_worst_case() {
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    for round in 0..300 {
        let steps: Vec<Head> = (0..6)
            .map(|_| {
                let head = match random.u32(0..7) {
                    0 => document("hel", "stop"),
                    1 => document("hello", "stop").body(vec!["{".into(), Step::Stall]),
                    2 => document("", "").status(429).header("retry-after", "40"),
                    3 => document("", "").status(500).body(vec!["x".into(), Step::Stall]),
                    4 => error_after(ms(5), std::io::ErrorKind::ConnectionReset),
                    5 => sse(vec![
                        ": ping\n\n".into(),
                        Step::Wait(s(3)),
                        ": ping\n\n".into(),
                        Step::Stall,
                    ]),
                    _ => document("hello", "stop")
                        .body(vec![Step::Wait(s(random.u64(0..200))), "{}".into()]),
                };
                head.after(ms(random.u64(0..90_000)))
            })
            .collect();
        let ledger = slow_ledger(ms(random.u64(0..9_000)), FailAt::Never);
        let builder = attempt_ledger::client(ledger)
            .clocks(Clocks::default().idle(s(20)).total(s(100)))
            .gates(Gates { plain: GateKind::Whole, stream: GateKind::Whole })
            .attempts(random.u32(1..6))
            .budget(s(random.u64(1..200)))
            .score(score())
            .retry(LedgerRetry::new().grade_below(0.5));
        let worst = builder.worst_case();
        let started = tokio::time::Instant::now();
        let _ = builder.build_on(Frames::new(steps)).oneshot(chat("c")).await;
        assert!(
            started.elapsed() <= worst + ms(1),
            "SEED={seed} round {round}: {:?} of {worst:?}",
            started.elapsed()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_open_event_comes_first_and_every_attempt_has_both() {
    let ledger = Ledger::memory();
    let inner = Frames::new([document("", "").status(500), document("hello", "stop")]);
    default_stack(&ledger, inner).oneshot(chat("c")).await.expect("answer");
    let kinds: Vec<_> = ledger.records().expect("records").iter().map(|r| r.event.kind()).collect();
    assert_eq!(kinds, ["session", "opened", "closed", "opened", "closed", "diagnostic"]);
    let opened = ledger.records().expect("records").into_iter().find_map(|r| match r.event {
        Event::Opened(opened) => Some(opened),
        _ => None,
    });
    let opened = opened.expect("opened");
    assert_eq!(opened.model.as_deref(), Some("m"));
    assert_eq!(opened.host.as_deref(), Some("model.test"));
    assert_eq!(opened.effect, Effect::ReadOnly);
    assert_eq!(opened.wire.as_str(), "openai-chat");
    assert_eq!(opened.limits.idle_us, Some(5_000_000));
}

#[tokio::test(start_paused = true)]
async fn a_ledger_error_ends_the_call_whatever_the_policy() {
    for (fail, calls) in [
        (FailAt::Kind("opened", 1), 0),
        (FailAt::Kind("closed", 1), 1),
        (FailAt::Once("closed", 1), 1),
    ] {
        for head in [
            document("hello", "stop"),
            document("", "").status(500),
            error_after(ms(1), std::io::ErrorKind::ConnectionReset),
        ] {
            let ledger = slow_ledger(ms(1), fail);
            let inner = Frames::new([head]);
            let service = tower::ServiceBuilder::new()
                .layer(CallLayer::new().attempts(9))
                .layer(tower::retry::RetryLayer::new(Forever(ms(0))))
                .layer(LedgerLayer::new(ledger))
                .service(inner.clone());
            let error = service.oneshot(chat("c")).await.expect_err("no ledger");
            assert!(error.is_ledger(), "{fail:?}: {error}");
            assert_eq!(inner.calls(), calls, "{fail:?}");
        }
    }
    // Without a call it is the policy that stops.
    let inner = Frames::new([document("", "").status(500)]);
    let service = tower::ServiceBuilder::new()
        .layer(tower::retry::RetryLayer::new(LedgerRetry::new()))
        .layer(LedgerLayer::new(slow_ledger(ms(1), FailAt::Once("closed", 1))))
        .service(inner.clone());
    let error = service.oneshot(chat("c")).await.expect_err("no ledger");
    assert!(error.is_ledger(), "{error}");
    assert_eq!(inner.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn another_fixture_is_refused_even_where_outages_are_not() {
    let ledger = Ledger::memory();
    let inner = Frames::new([document("hello", "stop")]);
    let layer = LedgerLayer::new(ledger.clone()).on_ledger_error(OnLedgerError::GoOn);
    let mut service = stack(CallLayer::new(), LedgerRetry::new(), score(), layer, inner.clone());
    let with = |fixture: &[u8]| {
        with_case(Case::new(slot("c")).fixture(attempt_ledger_core::Digest::of(fixture)))
    };
    service.ready().await.expect("ready").call(with(b"one")).await.expect("answer");
    let error = service.ready().await.expect("ready").call(with(b"two")).await.expect_err("other");
    assert!(error.is_ledger(), "{error}");
    assert_eq!(inner.calls(), 1, "the request is wrong, not the ledger out of order");
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_goes_by_while_opening_sends_nothing() {
    let ledger = slow_ledger(s(4), FailAt::Never);
    let inner = Frames::new([document("hello", "stop")]);
    let call = CallLayer::new().budget(s(3));
    let layer = LedgerLayer::new(ledger.clone());
    let service = stack(call, LedgerRetry::new(), ScoreLayer::none(), layer, inner.clone());
    let error = service.oneshot(chat("c")).await.expect_err("capped");
    assert!(matches!(error.kind(), ErrorKind::Capped(attempt_ledger::Cap::Budget(_))), "{error}");
    assert_eq!(inner.calls(), 0);
    let row = &rows(&ledger, "c")[0];
    assert_eq!((row.verdict, row.remote), (Some(Verdict::Abandoned), Some(Remote::NotReached)));
}

#[tokio::test(start_paused = true)]
async fn the_budget_cancels_no_acknowledgement_and_no_grade() {
    for (ledger, budget) in
        [(Ledger::memory(), ms(400)), (slow_ledger(ms(300), FailAt::Never), ms(400))]
    {
        let layer = LedgerLayer::new(ledger.clone());
        let inner = Frames::new([document("hello", "stop")]);
        let call = CallLayer::new().budget(budget);
        let service = stack(call, LedgerRetry::new(), score(), layer, inner);
        let response = service.oneshot(chat("c")).await.expect("the answer came within the budget");
        assert!(Attempt::of(&response).expect("attempt").is_recorded());
        assert_eq!(rows(&ledger, "c")[0].score, Some(1.0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_ends_within_a_pause_ends_the_call_then() {
    let ledger = Ledger::memory();
    let service = tower::ServiceBuilder::new()
        .layer(CallLayer::new().budget(s(10)))
        .layer(tower::retry::RetryLayer::new(Forever(s(1_000))))
        .layer(LedgerLayer::new(ledger.clone()))
        .service(Frames::new([document("hello", "stop")]));
    let started = tokio::time::Instant::now();
    let error = service.oneshot(chat("c")).await.expect_err("capped");
    assert!(matches!(error.kind(), ErrorKind::Capped(attempt_ledger::Cap::Budget(_))), "{error}");
    assert_eq!(started.elapsed(), s(10));
    assert_eq!(rows(&ledger, "c").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn every_acknowledgement_is_awaited_for_ten_seconds() {
    for (kind, took) in [("closed", s(10)), ("scored", ms(700) + s(10))] {
        for head in [document("hello", "stop"), sse(vec![ANSWER.into(), DONE.into()])] {
            let ledger = slow_ledger(ms(0), FailAt::Silent(kind));
            let layer = LedgerLayer::new(ledger.clone()).gates(WHOLE);
            let service =
                stack(CallLayer::new(), LedgerRetry::new(), score(), layer, Frames::new([head]));
            let started = tokio::time::Instant::now();
            let result = service.oneshot(chat("c")).await;
            let elapsed = started.elapsed();
            assert!(elapsed >= took && elapsed <= took + ms(30), "{kind}: {elapsed:?}");
            match result {
                Ok(response) => {
                    assert_eq!(kind, "scored");
                    assert_eq!(Attempt::of(&response).and_then(Attempt::grade), None);
                }
                Err(error) => assert!(kind == "closed" && error.is_ledger(), "{error}"),
            }
        }
    }
}

const ANSWER: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hello\"},\"finish_reason\":\"stop\"}]}\n\n";
const DONE: &str = "data: [DONE]\n\n";
const WHOLE: Gates = Gates { plain: GateKind::Whole, stream: GateKind::Whole };

#[tokio::test(start_paused = true)]
async fn a_streams_end_is_not_given_when_its_row_was_not_recorded() {
    for choice in [OnLedgerError::Fail, OnLedgerError::GoOn] {
        let ledger = slow_ledger(ms(1), FailAt::Once("closed", 1));
        let layer = LedgerLayer::new(ledger.clone()).on_ledger_error(choice);
        let inner = Frames::new([sse(vec![ANSWER.into(), DONE.into()])]);
        let mut service = stack(CallLayer::new(), LedgerRetry::new(), score(), layer, inner);
        let response = service.ready().await.expect("ready").call(chat("c")).await.expect("head");
        let attempt = Attempt::of(&response).expect("attempt").clone();
        let mut body = response.into_body();
        let mut seen = String::new();
        let error = loop {
            match http_body_util::BodyExt::frame(&mut body).await {
                Some(Ok(frame)) => {
                    seen.push_str(&String::from_utf8_lossy(frame.data_ref().expect("data")));
                }
                Some(Err(error)) => break Some(error),
                None => break None,
            }
        };
        match choice {
            OnLedgerError::Fail => {
                assert!(error.expect("the reader is told").is_ledger());
                assert_eq!(seen, ANSWER, "and the end is not given");
            }
            _ => {
                assert!(error.is_none());
                assert_eq!(seen, [ANSWER, DONE].concat());
            }
        }
        assert!(!attempt.is_recorded());
        assert_eq!(attempt.grade(), None);
        service.ready().await.expect("ready").call(chat("d")).await.expect("answer");
        let counted: u64 = folded(&ledger).unrecorded.values().sum();
        assert_eq!(counted, u64::from(choice == OnLedgerError::GoOn));
    }
}

#[tokio::test(start_paused = true)]
async fn the_unrecorded_are_counted_once_and_under_their_run() {
    for head in [document("hello", "stop"), error_after(ms(1), std::io::ErrorKind::ConnectionReset)]
    {
        let ledger = slow_ledger(ms(1), FailAt::Once("closed", 1));
        let layer = LedgerLayer::new(ledger.clone()).on_ledger_error(OnLedgerError::GoOn);
        let call = CallLayer::new().attempts(1);
        let mut service =
            stack(call, LedgerRetry::new(), ScoreLayer::none(), layer, Frames::new([head]));
        for case in ["a", "b", "c"] {
            let _ = service.ready().await.expect("ready").call(chat(case)).await;
        }
        let unrecorded: Vec<_> = folded(&ledger).unrecorded.into_iter().collect();
        assert_eq!(unrecorded, [(Some(slot("a").run), 1)]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_not_recorded_is_not_graded() {
    let graded = Arc::new(AtomicUsize::new(0));
    let counting = || {
        let graded = graded.clone();
        ScoreLayer::new(GraderFn::new("counts", "1", move |_: GradeInput| {
            graded.fetch_add(1, Ordering::SeqCst);
            async { Ok::<f64, attempt_ledger::BoxError>(1.0) }
        }))
    };
    // Waited for, and with a reader who leaves before the acknowledgement.
    for patience in [s(60), ms(20)] {
        let ledger = slow_ledger(ms(1), FailAt::Silent("closed"));
        let layer = LedgerLayer::new(ledger.clone()).on_ledger_error(OnLedgerError::GoOn);
        let inner = Frames::new([document("hello", "stop")]);
        let service = stack(CallLayer::new(), LedgerRetry::new(), counting(), layer, inner);
        let _ = tokio::time::timeout(patience, service.oneshot(chat("c"))).await;
        tokio::time::sleep(s(60)).await;
        assert_eq!(graded.load(Ordering::SeqCst), 0, "{patience:?}");
    }
    let ledger = slow_ledger(ms(1), FailAt::Once("closed", 1));
    let inner = Frames::new([sse(vec![ANSWER.into(), Step::Stall])]);
    let service =
        stack(CallLayer::new(), LedgerRetry::new(), counting(), LedgerLayer::new(ledger), inner);
    let mut body = service.oneshot(chat("c")).await.expect("head").into_body();
    http_body_util::BodyExt::frame(&mut body).await.expect("frame").expect("data");
    drop(body);
    tokio::time::sleep(s(60)).await;
    assert_eq!(graded.load(Ordering::SeqCst), 0, "its close failed");
}

#[tokio::test(start_paused = true)]
async fn a_grade_that_was_not_recorded_is_not_shown() {
    let ledger = slow_ledger(ms(1), FailAt::Kind("scored", 1));
    let inner = Frames::new([document("hello", "stop")]);
    let response = default_stack(&ledger, inner).oneshot(chat("c")).await.expect("answer");
    assert_eq!(Attempt::of(&response).and_then(Attempt::grade), None);
    assert_eq!(rows(&ledger, "c")[0].score, None);
}

#[tokio::test(start_paused = true)]
async fn what_is_graded_is_ordinal_one_and_what_was_asked_for() {
    let graded = Arc::new(AtomicUsize::new(0));
    let grader = || {
        let graded = graded.clone();
        GraderFn::new("counts", "7", move |_: GradeInput| {
            graded.fetch_add(1, Ordering::SeqCst);
            async { Ok::<f64, attempt_ledger::BoxError>(0.25) }
        })
    };
    let run = async |score: ScoreLayer| {
        let ledger = Ledger::memory();
        let inner = Frames::new([document("hel", "stop"), document("hello", "length")]);
        let retry = LedgerRetry::new().retry_on([Verdict::Ok]);
        let layer = LedgerLayer::new(ledger.clone());
        stack(CallLayer::new(), retry, score, layer, inner)
            .oneshot(chat("c"))
            .await
            .expect("answer");
        let folded = folded(&ledger);
        assert!(folded.refused.is_empty(), "nothing was tried that the ledger refuses");
        let grades: Vec<_> = folded.rows.iter().map(|r| (r.score, r.diagnostic)).collect();
        (grades, folded.rows[0].grade.clone(), graded.swap(0, Ordering::SeqCst))
    };
    let (grades, by, count) = run(ScoreLayer::new(grader())).await;
    assert_eq!((grades, count), (vec![(Some(0.25), None), (None, None)], 1));
    let by = by.expect("a grade");
    assert_eq!((by.grader.as_str(), by.version.as_str()), ("counts", "7"));
    let (grades, _, count) = run(ScoreLayer::configure(grader()).diagnostics(true).build()).await;
    assert_eq!((grades, count), (vec![(Some(0.25), None), (None, Some(0.25))], 2));
    let narrowed = ScoreLayer::configure(grader()).diagnostics(true).verdicts([Verdict::Truncated]);
    let (grades, _, count) = run(narrowed.build()).await;
    assert_eq!((grades, count), (vec![(None, None), (None, Some(0.25))], 1));
}

#[tokio::test(start_paused = true)]
async fn a_grader_that_calls_through_the_whole_stack_does_not_grade_itself() {
    let ledger = Ledger::memory();
    let inner = Frames::new([document("hello", "stop")]);
    type Whole = Stack<Frames>;
    let client: Arc<std::sync::OnceLock<Whole>> = Arc::default();
    let (through, graded) = (client.clone(), Arc::new(AtomicUsize::new(0)));
    let count = graded.clone();
    let grader = GraderFn::new("judge", "1", move |input: GradeInput| {
        let client = through.get().expect("set").clone();
        let nth = count.fetch_add(1, Ordering::SeqCst);
        let call: std::pin::Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(async move {
            if nth < 3 {
                let request = with_case(Case::new(input.slot.role(Role::Grader)));
                client.oneshot(request).await?;
            }
            Ok::<f64, attempt_ledger::BoxError>(0.5)
        });
        call
    });
    let score = ScoreLayer::configure(grader).diagnostics(true).build();
    let layer = LedgerLayer::new(ledger.clone());
    let service = stack(CallLayer::new(), LedgerRetry::new(), score, layer, inner);
    assert!(client.set(service.clone()).is_ok());
    service.oneshot(chat("c")).await.expect("answer");
    let folded = folded(&ledger);
    let seen: Vec<_> = folded.rows.iter().map(|r| (r.role, r.score)).collect();
    assert_eq!(seen, [(Role::Subject, Some(0.5)), (Role::Grader, None)]);
    assert_eq!((graded.load(Ordering::SeqCst), folded.refused.len()), (1, 0));
}
