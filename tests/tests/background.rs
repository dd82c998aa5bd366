//! A background run: accepted by one request, and asked for by others until it is done.

use attempt_ledger::{CallLayer, Case, Ledger, LedgerLayer, LedgerRetry, Verdict};
use attempt_ledger_core::{Remote, SlotState};
use attempt_ledger_report::{Options, Report};
use attempt_ledger_tests::*;
use http::{Request, Response};
use http_body_util::Full;
use serde_json::{Value, json};
use tower::ServiceExt;

/// A response object at this state.
fn response(status: &str, text: Option<&str>) -> Head {
    let output: Vec<Value> = text
        .into_iter()
        .map(|text| json!({"type": "output_text", "text": text}))
        .map(|part| json!({"type": "message", "role": "assistant", "content": [part]}))
        .collect();
    let body = json!({
        "id": "resp_b1", "object": "response", "status": status, "background": true,
        "error": null, "output": output,
    });
    document("", "").body(vec![body.to_string().as_str().into()])
}

/// The request that starts the run, within the slot of `case`.
fn start(case: &str) -> Request<Body> {
    let body = r#"{"model":"m","input":"ping","background":true}"#;
    of_case(case, Request::post("http://model.test/v1/responses").body(Full::from(body)))
}

/// A request for the run's state, within the same slot.
fn poll(case: &str) -> Request<Body> {
    let path = "http://model.test/v1/responses/resp_b1";
    of_case(case, Request::get(path).body(Full::default()))
}

fn of_case(case: &str, request: http::Result<Request<Body>>) -> Request<Body> {
    let mut request = request.expect("a request");
    request.extensions_mut().insert(Case::new(slot(case)));
    request
}

/// Starts a run and polls it twice; `last` is what the second poll is told.
async fn run(last: Head) -> (Ledger, Frames) {
    let ledger = Ledger::memory();
    let inner = Frames::new([response("queued", None), response("in_progress", None), last]);
    let layer = LedgerLayer::new(ledger.clone());
    let service = stack(CallLayer::new(), LedgerRetry::new(), score(), layer, inner.clone());
    for request in [start("c"), poll("c"), poll("c")] {
        let response: Response<_> = service.clone().oneshot(request).await.expect("answered");
        text(response.into_body()).await.expect("a body");
    }
    (ledger, inner)
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_not_finished_is_no_answer_and_no_fault() {
    let (ledger, inner) = run(response("in_progress", None)).await;
    assert_eq!(inner.calls(), 3, "no state of a run is retried");
    assert_eq!(verdicts(&ledger, "c"), ["pending"; 3]);
    for row in rows(&ledger, "c") {
        assert_eq!(row.remote, Some(Remote::Answered));
        assert_eq!((row.score, row.diagnostic), (None, None), "nothing to grade");
    }
    let report = Report::of(&folded(&ledger), None, &Options::default()).expect("a report");
    assert_eq!((report.quality.n(), report.availability.attempts), (0, 0), "in neither series");
    assert_eq!(report.refused_promotions.attempts, 0);
}

/// Its answer comes at a later ordinal, and the slot's score is ordinal one's or none.
#[tokio::test(start_paused = true)]
async fn the_answer_that_a_poll_brings_is_not_ordinal_ones() {
    let (ledger, _) = run(response("completed", Some("hello"))).await;
    assert_eq!(verdicts(&ledger, "c"), ["pending", "pending", "ok"]);
    let rows = rows(&ledger, "c");
    let finish: Vec<_> = rows.iter().map(|row| row.finish_reason.as_ref()).collect();
    let finish: Vec<_> = finish.into_iter().flatten().map(|word| word.as_str()).collect();
    assert_eq!(finish, ["queued", "in_progress", "completed"]);
    let grades: Vec<_> = rows.iter().map(|row| (row.score, row.diagnostic)).collect();
    assert_eq!(grades, [(None, None), (None, None), (None, Some(1.0))]);
    let all = folded(&ledger);
    assert_eq!(all.slots[0].state, SlotState::Ended(Verdict::Pending));
    let report = Report::of(&all, None, &Options::default()).expect("a report");
    assert!(report.quality.n() == 0 && report.quality.estimate().is_none());
    assert_eq!((report.availability.faults, report.availability.attempts), (0, 1));
    assert_eq!(report.refused_promotions.attempts, 1);
    let naive = serde_json::to_value(&report).expect("json")["naive"]["mean"].clone();
    assert_eq!(naive, 1.0, "what a scorecard of survivors would claim");
}

/// Asking writes nothing; starting a run does, and is never sent twice unasked.
#[tokio::test(start_paused = true)]
async fn a_run_that_may_have_started_is_not_started_again() {
    let ledger = Ledger::memory();
    let inner = Frames::new([document("", "").status(500)]);
    let layer = LedgerLayer::new(ledger.clone());
    let service = stack(CallLayer::new(), LedgerRetry::new(), score(), layer, inner.clone());
    let _ = service.clone().oneshot(start("start")).await;
    assert_eq!(inner.calls(), 1);
    let _ = service.clone().oneshot(poll("poll")).await;
    assert_eq!(inner.calls(), 4, "three attempts");
}

#[tokio::test(start_paused = true)]
async fn all_attempts_at_a_run_name_it() {
    let (ledger, _) = run(response("completed", Some("hello"))).await;
    for row in rows(&ledger, "c") {
        let row = serde_json::to_value(&row).expect("json");
        assert_eq!(row["response_id"], "resp_b1");
    }
}
