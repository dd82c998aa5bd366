//! A test of a retry policy of one's own: what does it do to a server that throttles, cuts and
//! stalls, and what does the notebook say of it?
//!
//! Run it with `cargo run -p attempt-ledger-examples --bin mock_service`; the same code is a test
//! below. Time is paused, so that an hour of stalls takes no time.

use std::{error::Error, future::Ready, time::Duration};

use attempt_ledger::{
    Attempt, CallLayer, Case, CaseId, Clocks, Ledger, LedgerLayer, RunId, Slot, Verdict,
};
use attempt_ledger_mock::{MockService, RetryHint, Script, Step};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tower::{ServiceBuilder, ServiceExt, retry::Policy, retry::RetryLayer};

/// Repeats whatever is not an answer, at once, and never asks what the server wanted.
#[derive(Clone)]
struct Eager;

impl<B> Policy<Request<Full<Bytes>>, Response<B>, attempt_ledger::Error> for Eager {
    type Future = Ready<()>;

    fn retry(
        &mut self,
        _: &mut Request<Full<Bytes>>,
        result: &mut Result<Response<B>, attempt_ledger::Error>,
    ) -> Option<Ready<()>> {
        let attempt = match result {
            Ok(response) => Attempt::of(response),
            Err(error) => error.attempt(),
        };
        let answered = attempt?.verdict().is_some_and(Verdict::is_content);
        if answered { None } else { Some(std::future::ready(())) }
    }

    fn clone_request(&mut self, request: &Request<Full<Bytes>>) -> Option<Request<Full<Bytes>>> {
        Some(request.clone())
    }
}

/// The verdicts of one call under [`Eager`], and how long it took.
async fn play(steps: Vec<Step>) -> Result<(Vec<Verdict>, Duration), Box<dyn Error + Send + Sync>> {
    let server = MockService::new(Script::new(steps));
    let stack = ServiceBuilder::new()
        .layer(CallLayer::new().attempts(8))
        .layer(RetryLayer::new(Eager))
        .layer(LedgerLayer::new(Ledger::memory()).clocks(Clocks::default()))
        .service(server.clone());
    let mut request = Request::post("http://mock/v1/chat/completions")
        .body(Full::from(r#"{"model":"m","messages":[]}"#))?;
    let slot = Slot::new(RunId::new("policy")?, CaseId::new("one")?);
    request.extensions_mut().insert(Case::new(slot));

    let started = tokio::time::Instant::now();
    let response = stack.oneshot(request).await?;
    let call = Attempt::of(&response).and_then(Attempt::call).ok_or("no call")?;
    let state = |a: attempt_ledger::AttemptSummary| match a.state {
        attempt_ledger::AttemptState::Closed { verdict, .. } => Some(verdict),
        attempt_ledger::AttemptState::Streaming => None,
    };
    Ok((call.attempts().into_iter().filter_map(state).collect(), started.elapsed()))
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let steps = vec![
        Step::Throttled(RetryHint::Seconds(20)),
        Step::CutInChunk,
        Step::StallMidBody,
        Step::Good,
    ];
    let (verdicts, took) = play(steps).await?;
    let words: Vec<_> = verdicts.iter().map(|v| v.as_str()).collect();
    println!("{} in {took:?} of paused time", words.join(", "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn eager_ignores_what_the_server_asked_for() {
        let steps = vec![Step::Throttled(RetryHint::Seconds(20)), Step::Good];
        let (verdicts, took) = play(steps).await.expect("answer");
        assert_eq!(verdicts, [Verdict::Throttled, Verdict::Ok]);
        assert!(took < Duration::from_secs(1), "twenty seconds were asked for");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stall_costs_the_idle_clock() {
        let (verdicts, took) = play(vec![Step::StallMidBody, Step::Good]).await.expect("answer");
        assert_eq!(verdicts, [Verdict::Deadline, Verdict::Ok]);
        assert_eq!(took, Duration::from_secs(60));
    }
}
