//! What the tests that cross crates share: an inner service whose every frame is scripted, a store
//! that takes its time, and short ways to rows.

mod frames;
mod policies;
mod slow;

use std::time::Duration;

use attempt_ledger::{
    BoxError, Call, CallLayer, Case, CaseId, GradeInput, GraderFn, Ledger, LedgerLayer,
    LedgerRetry, LedgerService, RunId, ScoreLayer, ScoreService, Slot,
};
use attempt_ledger_core::{AttemptRow, Fold, Folded, Liveness};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use tower::ServiceBuilder;

pub use frames::{Frames, FramesBody, Head, Step, document, error_after, sse};
pub use policies::{Always, Forever};
pub use slow::{FailAt, SlowStore, slow_ledger};

/// The stack of the tests.
pub type Stack<S> =
    attempt_ledger::CallService<tower::retry::Retry<LedgerRetry, ScoreService<LedgerService<S>>>>;

/// A request body as most clients have it.
pub type Body = Full<Bytes>;

/// Seconds.
pub const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Milliseconds.
pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The subject's slot of `case` in run `r`.
pub fn slot(case: &str) -> Slot {
    Slot::new(RunId::new("r").expect("id"), CaseId::new(case).expect("id"))
}

/// A chat request, read-only by its content, that carries `case`.
pub fn chat(case: &str) -> Request<Body> {
    with_case(Case::new(slot(case)))
}

/// A chat request that carries `case`.
pub fn with_case(case: Case) -> Request<Body> {
    let mut request = bare();
    request.extensions_mut().insert(case);
    request
}

/// A chat request without a case.
pub fn bare() -> Request<Body> {
    Request::post("http://model.test/v1/chat/completions")
        .header("content-type", "application/json")
        .body(Full::from(r#"{"model":"m","messages":[{"role":"user","content":"ping"}]}"#))
        .expect("request")
}

/// Grades by text: `hello` 1.0, `hel` 0.25, anything else 0.0; after 700 ms.
pub fn grader() -> impl attempt_ledger::Grader {
    GraderFn::new("by-text", "1", |input: GradeInput| async move {
        tokio::time::sleep(ms(700)).await;
        Ok::<f64, BoxError>(match input.content.text.as_str() {
            "hello" => 1.0,
            "hel" => 0.25,
            _ => 0.0,
        })
    })
}

/// A score layer with [`grader`] and diagnostics.
pub fn score() -> ScoreLayer {
    ScoreLayer::configure(grader()).diagnostics(true).build()
}

/// The whole stack over `inner`.
pub fn stack<S>(
    call: CallLayer,
    retry: LedgerRetry,
    score: ScoreLayer,
    ledger: LedgerLayer,
    inner: S,
) -> Stack<S> {
    ServiceBuilder::new()
        .layer(call)
        .layer(tower::retry::RetryLayer::new(retry))
        .layer(score)
        .layer(ledger)
        .service(inner)
}

/// The rows of a ledger.
pub fn folded(ledger: &Ledger) -> Folded {
    let mut fold = Fold::new();
    for record in ledger.records().expect("readable") {
        fold.push(&record).expect("a store keeps the rules");
    }
    fold.finish(attempt_ledger_store::now(), &Liveness::All)
}

/// The rows of one case, by ordinal.
pub fn rows(ledger: &Ledger, case: &str) -> Vec<AttemptRow> {
    let mut rows: Vec<_> = folded(ledger)
        .rows
        .into_iter()
        .filter(|row| row.case.as_ref().is_some_and(|c| c.as_str() == case))
        .collect();
    rows.sort_by_key(|row| row.ordinal);
    rows
}

/// The verdicts of one case in words, by ordinal; `-` while open.
pub fn verdicts(ledger: &Ledger, case: &str) -> Vec<&'static str> {
    rows(ledger, case).iter().map(|row| row.verdict.map_or("-", |v| v.as_str())).collect()
}

/// The whole body as text.
pub async fn text<B>(body: B) -> Result<String, B::Error>
where
    B: http_body::Body<Data = Bytes>,
{
    let bytes = body.collect().await?.to_bytes();
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The summary of a response's call.
pub fn call_of<B>(response: &http::Response<B>) -> Call {
    attempt_ledger::Attempt::of(response).and_then(|a| a.call()).expect("a call").clone()
}

/// The seed of a random test: of the environment's `SEED`, else random; print it on failure.
pub fn seed() -> u64 {
    std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(|| fastrand::u64(..))
}
