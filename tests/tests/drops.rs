//! A future or a body that is dropped early leaves the row that its evidence says, at every await
//! point, with a store that answers at once and with one that takes its time.

use attempt_ledger::{
    CallLayer, Clocks, GateKind, Gates, Ledger, LedgerLayer, LedgerRetry, Verdict,
};
use attempt_ledger_core::{AttemptRow, Remote};
use attempt_ledger_tests::*;
use http_body_util::BodyExt;
use tokio::time::{sleep, timeout};
use tower::ServiceExt;

const D1: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hel\"}}]}\n\n";
const D2: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"lo\"}}]}\n\n";
const FINISH: &str =
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
const DONE: &str = "data: [DONE]\n\n";
const ERROR: &str = "data: {\"error\":{\"code\":\"overloaded\"}}\n\n";
const BROKEN: &str = "data: {\"choices\":[}\n\n";

/// How long the slow store takes.
const ACK: u64 = 7;

fn ledgers() -> [(u64, Ledger); 2] {
    [(0, Ledger::memory()), (ACK, slow_ledger(ms(ACK), FailAt::Never))]
}

fn service(ledger: &Ledger, gate: GateKind, head: Head) -> (Frames, Stack<Frames>) {
    let inner = Frames::new([head]);
    let layer = LedgerLayer::new(ledger.clone())
        .clocks(Clocks::default().idle(s(5)))
        .gates(Gates { plain: gate, stream: gate });
    (inner.clone(), stack(CallLayer::new().attempts(1), LedgerRetry::new(), score(), layer, inner))
}

/// Drops the call's future after so many milliseconds; what is recorded once all has settled.
async fn drop_future(
    ledger: &Ledger,
    gate: GateKind,
    head: Head,
    after: u64,
) -> (usize, Vec<AttemptRow>) {
    let (inner, service) = service(ledger, gate, head);
    assert!(
        timeout(ms(after), service.oneshot(chat("c"))).await.is_err(),
        "still running at {after} ms"
    );
    sleep(s(5)).await;
    (inner.calls(), rows(ledger, "c"))
}

/// Drops the body after so many frames.
async fn drop_body(ledger: &Ledger, head: Head, frames: usize) -> AttemptRow {
    let (_, service) = service(ledger, GateKind::Head, head);
    let mut body = service.oneshot(chat("c")).await.expect("head").into_body();
    for _ in 0..frames {
        body.frame().await.expect("frame").expect("data");
    }
    drop(body);
    sleep(s(5)).await;
    rows(ledger, "c").remove(0)
}

#[tokio::test(start_paused = true)]
async fn a_future_that_was_never_polled_leaves_no_row() {
    let ledger = Ledger::memory();
    let (inner, mut service) = service(&ledger, GateKind::Whole, document("hello", "stop"));
    drop(tower::Service::call(&mut service, chat("c")));
    assert_eq!((inner.calls(), rows(&ledger, "c").len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn dropped_while_opening_nothing_was_sent() {
    let ledger = slow_ledger(ms(ACK), FailAt::Never);
    let (calls, rows) = drop_future(&ledger, GateKind::Whole, document("hello", "stop"), 3).await;
    assert_eq!(calls, 0);
    assert_eq!(
        (rows[0].verdict, rows[0].remote),
        (Some(Verdict::Abandoned), Some(Remote::NotReached))
    );
}

#[tokio::test(start_paused = true)]
async fn dropped_before_the_head_or_within_the_gate_it_is_abandoned() {
    for (ack, ledger) in ledgers() {
        let (calls, rows) =
            drop_future(&ledger, GateKind::Whole, document("hello", "stop"), ack + 5).await;
        assert_eq!(calls, 1);
        assert_eq!(
            (rows[0].verdict, rows[0].remote),
            (Some(Verdict::Abandoned), Some(Remote::Unknown))
        );
    }
    for (ack, ledger) in ledgers() {
        let head = document("", "").body(vec!["{".into(), Step::Wait(s(3)), "}".into()]);
        let (_, rows) = drop_future(&ledger, GateKind::Whole, head, ack + 50).await;
        assert_eq!(
            (rows[0].verdict, rows[0].remote),
            (Some(Verdict::Abandoned), Some(Remote::Unknown))
        );
        assert_eq!(rows[0].status, Some(200));
    }
}

#[tokio::test(start_paused = true)]
async fn dropped_while_closing_or_grading_the_answer_is_recorded_and_graded() {
    let ledger = slow_ledger(ms(ACK), FailAt::Never);
    let (_, rows) =
        drop_future(&ledger, GateKind::Whole, document("hello", "stop"), ACK + 10 + 3).await;
    assert_eq!((rows[0].verdict, rows[0].score), (Some(Verdict::Ok), Some(1.0)), "while closing");
    for (ack, ledger) in ledgers() {
        let (_, rows) =
            drop_future(&ledger, GateKind::Whole, document("hello", "stop"), 2 * ack + 300).await;
        assert_eq!(
            (rows[0].verdict, rows[0].score),
            (Some(Verdict::Ok), Some(1.0)),
            "while grading"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn dropped_within_an_error_body_the_status_stands() {
    for (ack, ledger) in ledgers() {
        let head =
            document("", "").status(429).body(vec!["{".into(), Step::Wait(s(3)), "}".into()]);
        let (_, rows) = drop_future(&ledger, GateKind::Head, head, ack + 100).await;
        assert_eq!(
            (rows[0].verdict, rows[0].remote),
            (Some(Verdict::Throttled), Some(Remote::Answered))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_dropped_after_n_frames_is_decided_by_what_is_decisive() {
    let stream = || {
        sse(vec![
            D1.into(),
            Step::Wait(ms(9)),
            D2.into(),
            FINISH.into(),
            Step::Wait(ms(9)),
            DONE.into(),
        ])
    };
    let fault = |frame: &str| {
        sse(vec![D1.into(), frame.into(), Step::Wait(s(1)), FINISH.into(), DONE.into()])
    };
    for (name, head, frames, verdict, remote, score) in [
        ("never polled", stream(), 0, Verdict::Abandoned, Remote::Unknown, None),
        ("after content", stream(), 1, Verdict::Abandoned, Remote::Unknown, None),
        ("after more", stream(), 2, Verdict::Abandoned, Remote::Unknown, None),
        ("after the stop reason", stream(), 3, Verdict::Ok, Remote::Answered, Some(1.0)),
        ("at the done marker", stream(), 4, Verdict::Ok, Remote::Answered, Some(1.0)),
        ("after an in-band error", fault(ERROR), 2, Verdict::ProviderError, Remote::Answered, None),
        ("after a broken event", fault(BROKEN), 2, Verdict::Malformed, Remote::Unknown, None),
    ] {
        for (_, ledger) in ledgers() {
            let row = drop_body(&ledger, head.clone(), frames).await;
            assert_eq!(
                (row.verdict, row.remote, row.score),
                (Some(verdict), Some(remote), score),
                "{name}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_reader_of_a_stream_sees_its_end_only_when_ordinal_one_is_frozen() {
    for (_, ledger) in ledgers() {
        let head = sse(vec![
            D1.into(),
            Step::Wait(ms(10)),
            D2.into(),
            FINISH.into(),
            Step::Wait(ms(10)),
            DONE.into(),
        ]);
        let (_, service) = service(&ledger, GateKind::Head, head);
        let mut body = service.oneshot(chat("c")).await.expect("head").into_body();
        for frame in [D1, D2, FINISH] {
            let got = body.frame().await.expect("frame").expect("data").into_data().expect("data");
            assert_eq!(got, frame, "data passes at once");
            assert_eq!(rows(&ledger, "c")[0].verdict, None);
        }
        let got = body.frame().await.expect("frame").expect("data").into_data().expect("data");
        assert_eq!(got, DONE);
        let row = &rows(&ledger, "c")[0];
        assert_eq!((row.verdict, row.score), (Some(Verdict::Ok), Some(1.0)));
    }
}

/// Every millisecond of a call's life, with every gate: no drop leaves a row open, and content at
/// ordinal one is graded whatever the reader does.
#[tokio::test(start_paused = true)]
async fn no_moment_of_a_drop_leaves_a_row_open() {
    for gate in [GateKind::Whole, GateKind::FirstContent, GateKind::Head] {
        for after in (0..60).chain([100, 400, 700, 720, 740, 760]) {
            for head in [
                document("hello", "stop"),
                sse(vec![
                    D1.into(),
                    Step::Wait(ms(9)),
                    D2.into(),
                    FINISH.into(),
                    Step::Wait(ms(9)),
                    DONE.into(),
                ]),
                error_after(ms(15), std::io::ErrorKind::ConnectionReset),
            ] {
                let ledger = slow_ledger(ms(ACK), FailAt::Never);
                let (_, service) = service(&ledger, gate, head);
                let reading = async {
                    if let Ok(response) = service.oneshot(chat("c")).await {
                        let _ = response.into_body().collect().await;
                    }
                };
                let _ = timeout(ms(after), reading).await;
                sleep(s(5)).await;
                for row in rows(&ledger, "c") {
                    let verdict = row.verdict.expect("closed");
                    assert_eq!(
                        row.score.is_some(),
                        verdict.is_content(),
                        "{after} ms under {gate:?}"
                    );
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_row_says_who_let_go_and_where() {
    use attempt_ledger_core::{AfterStop, Holder, Phase};
    let told = |row: &AttemptRow| (row.detail.by, row.detail.phase, row.detail.after_stop);
    let ledger = slow_ledger(ms(ACK), FailAt::Never);
    let (_, rows) = drop_future(&ledger, GateKind::Whole, document("hello", "stop"), 3).await;
    assert_eq!(told(&rows[0]), (Some(Holder::Caller), Some(Phase::Open), None));
    let ledger = Ledger::memory();
    let (_, rows) = drop_future(&ledger, GateKind::Whole, document("hello", "stop"), 5).await;
    assert_eq!(told(&rows[0]), (Some(Holder::Caller), Some(Phase::Head), None));
    let stream = || sse(vec![D1.into(), FINISH.into(), DONE.into()]);
    let row = drop_body(&Ledger::memory(), stream(), 1).await;
    assert_eq!(told(&row), (Some(Holder::Reader), Some(Phase::Body), None));
    let row = drop_body(&Ledger::memory(), stream(), 2).await;
    assert_eq!(told(&row), (Some(Holder::Reader), None, Some(AfterStop::Dropped)));
}
