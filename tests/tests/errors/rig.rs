//! One attempt through a real ledger, and what its row has to say.

use attempt_ledger::{BoxError, Case, Clocks, Effect, Ledger, LedgerLayer, RequestBody, Verdict};
use attempt_ledger_core::{Action, AttemptRow, Outcome, Phase, Remote, decide_retry};
use attempt_ledger_tests::{rows, s, slot};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tower::{Layer, Service, ServiceExt};

pub(crate) use attempt_ledger_core::{
    Phase::{Body, Connect, Head, Open},
    Remote::{Answered, NotReached, Unknown},
    TransportKind as K,
};

/// A chat request with the effect `writes`.
pub(crate) fn request(url: &str) -> Request<Full<Bytes>> {
    let body = r#"{"model":"m","messages":[{"role":"user","content":"ping"}]}"#;
    request_of(url, Full::from(body))
}

pub(crate) fn request_of<B>(url: &str, body: B) -> Request<B> {
    let mut request = Request::post(url).body(body).expect("request");
    request.extensions_mut().insert(Case::new(slot("c")).effect(Effect::Writes));
    request
}

/// The row of one attempt through the ledger over `inner`, its body read to its end.
pub(crate) async fn row_of<S, Q, B>(inner: S, request: Request<Q>) -> AttemptRow
where
    S: Service<Request<Q>, Response = Response<B>> + Clone,
    S::Error: Into<BoxError>,
    Q: RequestBody,
    B: http_body::Body + Unpin,
    B::Error: Into<BoxError>,
{
    let ledger = Ledger::memory();
    let layer = LedgerLayer::new(ledger.clone()).clocks(clocks());
    if let Ok(response) = layer.layer(inner).oneshot(request).await {
        let _ = response.into_body().collect().await;
    }
    rows(&ledger, "c").remove(0)
}

/// Clocks that no row here is to meet.
pub(crate) fn clocks() -> Clocks {
    Clocks::default().idle(s(20)).total(s(30))
}

/// hyper-util's client over HTTP/1.1, without hidden resends.
pub(crate) fn http1() -> Client<HttpConnector, Full<Bytes>> {
    Client::builder(TokioExecutor::new()).retry_canceled_requests(false).build_http()
}

/// Asserts a row to the letter, and that a write is repeated just where it was not reached.
#[track_caller]
pub(crate) fn assert_row(
    row: &AttemptRow,
    verdict: Verdict,
    kind: K,
    phase: Phase,
    remote: Remote,
) {
    assert_eq!(
        (row.verdict, row.detail.kind, row.detail.phase, row.remote),
        (Some(verdict), Some(kind), Some(phase), Some(remote)),
    );
    assert_eq!(row.effect, Effect::Writes);
    let repeated = verdict == Verdict::Transport && remote == NotReached;
    assert_eq!(repeats(row), repeated, "the decision table");
}

/// [`assert_row`] of a `transport` verdict.
#[track_caller]
pub(crate) fn assert_transport(row: &AttemptRow, kind: K, phase: Phase, remote: Remote) {
    assert_row(row, Verdict::Transport, kind, phase, remote);
}

/// Whether the decision table repeats the attempt of `row`.
pub(crate) fn repeats(row: &AttemptRow) -> bool {
    let outcome = Outcome {
        verdict: row.verdict.expect("closed"),
        remote: row.remote.expect("closed"),
        effect: row.effect,
        detail: &row.detail,
        retry_after_ms: None,
        by_status: row.status.is_some_and(|status| !(200..300).contains(&status)),
        budget_left: None,
    };
    matches!(decide_retry(&outcome, 0), Action::Retry { .. })
}
