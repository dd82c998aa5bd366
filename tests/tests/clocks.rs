//! Each clock ends an attempt at its limit, to the millisecond of paused time.

use std::time::Duration;

use attempt_ledger::{
    Attempt, CallLayer, Clocks, ErrorKind, GateKind, Gates, Ledger, LedgerLayer, LedgerRetry,
    ScoreLayer, Verdict,
};
use attempt_ledger_core::{Clock, Holder, Phase, Remote};
use attempt_ledger_tests::*;
use http_body_util::BodyExt;
use tokio::time::{Instant, sleep, timeout};
use tower::ServiceExt;

const DELTA: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}\n\n";
const FINISH: &str =
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
const DONE: &str = "data: [DONE]\n\n";

fn clocks() -> Clocks {
    Clocks::default().head(s(7)).idle(s(5)).total(s(30))
}

fn gates(gate: GateKind) -> Gates {
    Gates { plain: gate, stream: gate }
}

fn once(ledger: &Ledger, gate: GateKind, clocks: Clocks, head: Head) -> Stack<Frames> {
    let layer = LedgerLayer::new(ledger.clone()).clocks(clocks).gates(gates(gate));
    stack(
        CallLayer::new().attempts(1),
        LedgerRetry::new(),
        ScoreLayer::none(),
        layer,
        Frames::new([head]),
    )
}

/// Runs one attempt to its end, reading greedily; how long that took, and its error.
async fn run(
    gate: GateKind,
    clocks: Clocks,
    head: Head,
) -> (Duration, Option<ErrorKind>, attempt_ledger_core::AttemptRow) {
    let ledger = Ledger::memory();
    let started = Instant::now();
    let error = match once(&ledger, gate, clocks, head).oneshot(chat("c")).await {
        Err(error) => Some(error),
        Ok(response) => response.into_body().collect().await.err(),
    };
    let row = rows(&ledger, "c").remove(0);
    (started.elapsed(), error.map(|e| e.kind().clone()), row)
}

fn repeat(every: Duration, what: &str, times: usize) -> Vec<Step> {
    (0..times).flat_map(|_| [Step::Wait(every), what.into()]).collect()
}

#[tokio::test(start_paused = true)]
async fn each_clock_fires_at_its_limit() {
    let silent = |after| document("hello", "stop").after(after);
    let stalled = |steps: Vec<Step>| sse(steps).after(s(1));
    let mut half = vec![DELTA.into(), Step::Wait(s(2)), DELTA.into(), Step::Stall];
    let cases: Vec<(&str, Clocks, Head, Clock, Duration, Phase)> = vec![
        ("silent before the head", clocks(), silent(s(100)), Clock::Head, s(7), Phase::Head),
        (
            "head clock off",
            Clocks::default().total(s(30)),
            silent(s(100)),
            Clock::Total,
            s(30),
            Phase::Head,
        ),
        ("silent body", clocks(), stalled(vec![Step::Stall]), Clock::Idle, s(6), Phase::Body),
        (
            "stops half way",
            clocks(),
            stalled(std::mem::take(&mut half)),
            Clock::Idle,
            s(1 + 2 + 5),
            Phase::Body,
        ),
        (
            "trickles",
            clocks(),
            stalled(repeat(ms(4_999), DELTA, 100)),
            Clock::Total,
            s(30),
            Phase::Body,
        ),
        (
            "keep-alives only",
            clocks(),
            stalled(repeat(s(1), ": ping\n\n", 500)),
            Clock::Total,
            s(30),
            Phase::Body,
        ),
        (
            "one byte at a time",
            clocks(),
            stalled(repeat(ms(100), "d", 5000)),
            Clock::Total,
            s(30),
            Phase::Body,
        ),
    ];
    for (name, clocks, head, clock, at, phase) in cases {
        for gate in [GateKind::Whole, GateKind::Head] {
            let (took, error, row) = run(gate, clocks, head.clone()).await;
            assert_eq!(took, at, "{name} under {gate:?}");
            assert!(
                matches!(error, Some(ErrorKind::Deadline { clock: c, .. }) if c == clock),
                "{name}: {error:?}"
            );
            assert_eq!(row.verdict, Some(Verdict::Deadline), "{name}");
            assert_eq!(row.remote, Some(Remote::Unknown), "{name}");
            assert_eq!((row.detail.clock, row.detail.phase), (Some(clock), Some(phase)), "{name}");
            let limit = match clock {
                Clock::Head => s(7),
                Clock::Idle => s(5),
                _ => s(30),
            };
            assert_eq!(
                row.detail.limit_us,
                Some(u64::try_from(limit.as_micros()).expect("fits")),
                "{name}"
            );
            assert_eq!(row.end_us, Some(u64::try_from(at.as_micros()).expect("fits")), "{name}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_frame_that_is_ready_after_the_deadline_loses_all_the_same() {
    // Both are due at the same instant: the total wins.
    let head = sse(vec![Step::Wait(s(29)), FINISH.into(), DONE.into()]).after(s(1));
    let (took, error, row) = run(GateKind::Head, clocks().idle(s(60)), head).await;
    assert_eq!(took, s(30));
    assert!(matches!(error, Some(ErrorKind::Deadline { clock: Clock::Total, .. })), "{error:?}");
    assert_eq!(row.verdict, Some(Verdict::Deadline));
    let head = document("hello", "stop").after(s(30));
    let (_, error, _) = run(GateKind::Head, Clocks::default().total(s(30)), head).await;
    assert!(matches!(error, Some(ErrorKind::Deadline { clock: Clock::Total, .. })), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_does_not_poll_is_not_blamed_on_the_upstream() {
    let ledger = Ledger::memory();
    let head = sse(vec![
        DELTA.into(),
        Step::Wait(s(1)),
        DELTA.into(),
        Step::Wait(s(1)),
        FINISH.into(),
        DONE.into(),
    ]);
    let service = once(&ledger, GateKind::Head, clocks().total(s(600)), head);
    let mut body = service.oneshot(chat("c")).await.expect("head").into_body();
    body.frame().await.expect("frame").expect("data");
    // Far past the idle clock, but nobody asked the upstream for anything.
    sleep(s(60)).await;
    let rest = text(body).await.expect("no clock fired");
    assert!(rest.ends_with(DONE), "{rest}");
    assert_eq!(verdicts(&ledger, "c"), ["ok"]);
}

#[tokio::test(start_paused = true)]
async fn the_total_passing_while_the_reader_held_the_body_is_the_readers() {
    for drop_it in [false, true] {
        let ledger = Ledger::memory();
        let head = sse(vec![DELTA.into(), DELTA.into(), FINISH.into(), DONE.into()]);
        let service = once(&ledger, GateKind::Head, clocks(), head);
        let mut body = service.oneshot(chat("c")).await.expect("head").into_body();
        body.frame().await.expect("frame").expect("data");
        sleep(s(40)).await;
        if drop_it {
            drop(body);
        } else {
            let error = body.collect().await.expect_err("held too long");
            assert!(
                matches!(error.kind(), ErrorKind::HeldTooLong { limit } if *limit == s(30)),
                "{error}"
            );
            assert!(error.is_deadline());
        }
        let row = &rows(&ledger, "c")[0];
        assert_eq!((row.verdict, row.detail.by), (Some(Verdict::Abandoned), Some(Holder::Reader)));
        assert_eq!(row.remote, Some(Remote::Unknown));
    }
}

#[tokio::test(start_paused = true)]
async fn a_clock_after_the_stop_reason_changes_nothing_but_the_readers_end() {
    let head = sse(vec![DELTA.into(), FINISH.into(), Step::Stall]);
    for gate in [GateKind::Whole, GateKind::Head] {
        let (took, error, row) = run(gate, clocks(), head.clone()).await;
        assert_eq!(took, s(5) + ms(10));
        assert!(matches!(error, Some(ErrorKind::Deadline { clock: Clock::Idle, .. })), "{error:?}");
        assert_eq!((row.verdict, row.remote), (Some(Verdict::Ok), Some(Remote::Answered)));
        assert_eq!(row.detail.clock, Some(Clock::Idle), "noted");
    }
}

#[tokio::test(start_paused = true)]
async fn after_the_done_marker_the_row_is_closed_and_the_same_clocks_run() {
    let head =
        sse(vec![DELTA.into(), FINISH.into(), DONE.into(), ": more\n\n".into(), Step::Stall]);
    for gate in [GateKind::Whole, GateKind::Head] {
        let (took, error, row) = run(gate, clocks(), head.clone()).await;
        assert_eq!(took, s(5) + ms(10));
        assert!(matches!(error, Some(ErrorKind::Deadline { clock: Clock::Idle, .. })), "{error:?}");
        assert_eq!((row.verdict, row.end_us), (Some(Verdict::Ok), Some(10_000)));
        assert_eq!(row.detail.clock, None, "what follows is no longer recorded");
        assert_eq!(row.bytes, Some((DELTA.len() + FINISH.len() + DONE.len()) as u64));
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_body_is_read_for_five_seconds_and_its_status_stands() {
    let head = document("", "").status(500).body(vec!["{\"error\":".into(), Step::Stall]);
    for gate in [GateKind::Whole, GateKind::Head] {
        let ledger = Ledger::memory();
        let started = Instant::now();
        let clocks = clocks().idle(s(60));
        let response =
            once(&ledger, gate, clocks, head.clone()).oneshot(chat("c")).await.expect("a response");
        assert_eq!(started.elapsed(), s(5) + ms(10));
        assert_eq!(response.status(), 500);
        assert_eq!(Attempt::of(&response).and_then(Attempt::verdict), Some(Verdict::ServerError));
        assert_eq!(verdicts(&ledger, "c"), ["server_error"]);
        let error = response.into_body().collect().await.expect_err("it never ends");
        assert!(error.is_deadline());
    }
    // A shorter clock of the attempt ends it earlier; the verdict is the status's, the body's end the clock's.
    let (took, error, row) = run(GateKind::Whole, clocks().idle(s(2)), head).await;
    assert_eq!(took, s(2) + ms(10));
    assert!(matches!(error, Some(ErrorKind::Deadline { clock: Clock::Idle, .. })));
    assert_eq!((row.verdict, row.detail.clock), (Some(Verdict::ServerError), Some(Clock::Idle)));
}

#[tokio::test(start_paused = true)]
async fn an_error_body_is_read_up_to_its_bound() {
    let big = "x".repeat(40 << 10);
    let head = document("", "").status(400).body(vec![
        big.as_str().into(),
        big.as_str().into(),
        big.as_str().into(),
    ]);
    let ledger = Ledger::memory();
    let response =
        once(&ledger, GateKind::Head, clocks(), head).oneshot(chat("c")).await.expect("a response");
    assert_eq!(verdicts(&ledger, "c"), ["rejected"]);
    assert_eq!(text(response.into_body()).await.expect("whole").len(), 3 * big.len());
    assert_eq!(rows(&ledger, "c")[0].bytes, Some(2 * big.len() as u64));
}

#[tokio::test(start_paused = true)]
async fn the_smaller_of_total_and_budget_ends_an_attempt() {
    let ledger = Ledger::memory();
    let layer = LedgerLayer::new(ledger.clone()).clocks(clocks());
    let inner = Frames::new([document("hello", "stop").after(s(100))]);
    let call = CallLayer::new().attempts(1).budget(s(3));
    let service = stack(call, LedgerRetry::new(), ScoreLayer::none(), layer, inner);
    let started = Instant::now();
    let error =
        timeout(s(60), service.oneshot(chat("c"))).await.expect("ends").expect_err("budget");
    assert_eq!(started.elapsed(), s(3));
    assert!(matches!(error.kind(), ErrorKind::Deadline { clock: Clock::Budget, .. }), "{error:?}");
    assert_eq!(rows(&ledger, "c")[0].detail.clock, Some(Clock::Budget));
}

#[tokio::test(start_paused = true)]
async fn a_pause_longer_than_the_budget_hands_the_last_result_up() {
    let ledger = Ledger::memory();
    let inner = Frames::new([document("", "").status(429).header("retry-after", "50")]);
    let call = CallLayer::new().attempts(5).budget(s(40));
    let service = stack(
        call,
        LedgerRetry::new(),
        ScoreLayer::none(),
        LedgerLayer::new(ledger.clone()),
        inner,
    );
    let started = Instant::now();
    let response = service.oneshot(chat("c")).await.expect("the result, not a cap");
    assert_eq!((response.status().as_u16(), started.elapsed()), (429, ms(10)));
}

#[tokio::test(start_paused = true)]
async fn what_has_arrived_is_taken_before_a_clock_is_asked() {
    let ledger = Ledger::memory();
    let head = sse(vec![DELTA.into(), Step::Wait(s(1)), FINISH.into(), DONE.into()]);
    let service = once(&ledger, GateKind::Head, clocks().total(s(600)), head);
    let mut body = service.oneshot(chat("c")).await.expect("head").into_body();
    body.frame().await.expect("frame").expect("data");
    // It asked, left, and came back long after both the frame and the idle clock were due.
    assert!(timeout(ms(1), body.frame()).await.is_err());
    sleep(s(60)).await;
    assert_eq!(text(body).await.expect("no clock fired"), [FINISH, DONE].concat());
    assert_eq!(verdicts(&ledger, "c"), ["ok"]);
}

#[tokio::test(start_paused = true)]
async fn asking_again_and_again_does_not_feed_the_idle_clock() {
    let ledger = Ledger::memory();
    let head = sse(vec![DELTA.into(), Step::Stall]);
    let service = once(&ledger, GateKind::Head, clocks(), head);
    let mut body = service.oneshot(chat("c")).await.expect("head").into_body();
    body.frame().await.expect("frame").expect("data");
    let started = Instant::now();
    let error = loop {
        if let Ok(frame) = timeout(ms(700), body.frame()).await {
            break frame.expect("an end").expect_err("idle");
        }
    };
    assert_eq!(started.elapsed(), s(5));
    assert!(matches!(error.kind(), ErrorKind::Deadline { clock: Clock::Idle, .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_head_that_is_ready_after_its_clock_loses_all_the_same() {
    // Both are due at the same instant, and the inner service is asked first.
    let (took, error, row) =
        run(GateKind::Whole, clocks(), document("x", "stop").after(s(7))).await;
    assert_eq!(took, s(7));
    assert!(matches!(error, Some(ErrorKind::Deadline { clock: Clock::Head, .. })), "{error:?}");
    assert_eq!((row.verdict, row.detail.clock), (Some(Verdict::Deadline), Some(Clock::Head)));
}

#[tokio::test(start_paused = true)]
async fn the_total_fires_when_it_is_before_the_head_clock_and_before_idle() {
    let total = Clocks::default().head(s(50)).idle(s(50)).total(s(3));
    for head in [document("x", "stop").after(s(100)), sse(vec![Step::Stall])] {
        let (took, error, _) = run(GateKind::Head, total, head).await;
        assert_eq!(took, s(3));
        assert!(
            matches!(error, Some(ErrorKind::Deadline { clock: Clock::Total, .. })),
            "{error:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn what_held_the_body_past_the_total_is_told_in_the_row() {
    for ready in [true, false] {
        let ledger = Ledger::memory();
        let next = if ready { FINISH.into() } else { Step::Wait(s(100)) };
        let head = sse(vec![DELTA.into(), next, FINISH.into()]);
        let service = once(&ledger, GateKind::Head, clocks(), head);
        let mut body = service.oneshot(chat("c")).await.expect("head").into_body();
        body.frame().await.expect("frame").expect("data");
        sleep(s(40)).await;
        let error = body.collect().await.expect_err("held too long");
        assert!(matches!(error.kind(), ErrorKind::HeldTooLong { .. }), "ready {ready}: {error}");
        let detail = &rows(&ledger, "c")[0].detail;
        assert_eq!(
            (detail.clock, detail.limit_us, detail.by, detail.phase),
            (Some(Clock::Total), Some(30_000_000), Some(Holder::Reader), Some(Phase::Body))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_body_is_closed_at_its_very_bound() {
    let head = document("", "").status(400).body(vec![
        Step::Data(vec![b'x'; 64 << 10].into()),
        Step::Wait(s(1)),
        "rest".into(),
    ]);
    let ledger = Ledger::memory();
    let started = Instant::now();
    let response =
        once(&ledger, GateKind::Head, clocks(), head).oneshot(chat("c")).await.expect("a response");
    assert_eq!((started.elapsed(), verdicts(&ledger, "c")), (ms(10), vec!["rejected"]));
    assert_eq!(text(response.into_body()).await.expect("whole").len(), (64 << 10) + 4);
}

#[tokio::test(start_paused = true)]
async fn a_broken_error_body_is_a_response_whose_body_breaks() {
    let kind = std::io::ErrorKind::ConnectionReset;
    let head = document("", "").status(500).body(vec!["{".into(), Step::Fail(kind)]);
    for gate in [GateKind::Whole, GateKind::Head] {
        let ledger = Ledger::memory();
        let response = once(&ledger, gate, clocks(), head.clone())
            .oneshot(chat("c"))
            .await
            .expect("a response");
        assert_eq!(Attempt::of(&response).and_then(Attempt::verdict), Some(Verdict::ServerError));
        let error = response.into_body().collect().await.expect_err("cut");
        assert!(matches!(error.kind(), ErrorKind::Transport), "{error}");
        let row = &rows(&ledger, "c")[0];
        assert_eq!(row.detail.kind, Some(attempt_ledger_core::TransportKind::Reset), "noted");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_breaks_after_its_stop_reason_is_whole_and_its_end_is_the_fault() {
    let kind = std::io::ErrorKind::ConnectionReset;
    for (steps, answered) in [
        (vec![DELTA.into(), FINISH.into(), Step::Fail(kind)], true),
        (vec![DELTA.into(), Step::Fail(kind)], false),
    ] {
        for gate in [GateKind::Whole, GateKind::Head] {
            let ledger = Ledger::memory();
            let service = once(&ledger, gate, clocks(), sse(steps.clone()));
            let result = service.oneshot(chat("c")).await;
            assert_eq!(result.is_ok(), answered || gate == GateKind::Head, "{gate:?}");
            if let Ok(response) = result {
                let error = response.into_body().collect().await.expect_err("the fault");
                assert!(matches!(error.kind(), ErrorKind::Transport), "{error}");
            }
            let want = if answered { "ok" } else { "transport" };
            assert_eq!(verdicts(&ledger, "c"), [want]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_times_of_a_stream_are_in_its_row() {
    let head = sse(vec![
        Step::Wait(s(1)),
        ": ping\n\n".into(),
        Step::Wait(s(1)),
        DELTA.into(),
        Step::Wait(s(1)),
        DELTA.into(),
        Step::Wait(s(1)),
        ": ping\n\n".into(),
        Step::Stall,
    ]);
    for gate in [GateKind::Whole, GateKind::Head] {
        let (_, _, row) = run(gate, clocks(), head.clone()).await;
        let times = [row.head_us, row.first_content_us, row.last_progress_us, row.end_us];
        assert_eq!(times, [10_000, 2_010_000, 3_010_000, 9_010_000].map(Some), "{gate:?}");
        assert_eq!(row.bytes, Some((2 * DELTA.len() + 2 * ": ping\n\n".len()) as u64));
    }
}

#[tokio::test(start_paused = true)]
async fn each_kind_of_answer_has_its_gate_and_any_2xx_is_one() {
    for (status, whole) in [(200, false), (201, false), (299, false), (500, true)] {
        let ledger = Ledger::memory();
        let layer = LedgerLayer::new(ledger.clone()).clocks(clocks());
        let head = sse(vec![DELTA.into(), Step::Wait(s(1)), FINISH.into()]).status(status);
        let call = CallLayer::new().attempts(1);
        let inner = Frames::new([head]);
        let service = stack(call, LedgerRetry::new(), ScoreLayer::none(), layer, inner);
        let started = Instant::now();
        service.oneshot(chat("c")).await.expect("a response");
        let after = if whole { s(1) } else { s(0) };
        assert_eq!(started.elapsed(), after + ms(10), "a stream passes: {status}");
    }
}
