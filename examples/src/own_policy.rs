//! A retry policy of one's own that builds each request anew, and keeps its ordinals.
//!
//! Answers that hit the cap are asked for again with twice the tokens, and every attempt carries its
//! number in a header. What must go along is the request's extensions: they name the case, and a
//! ledger that cannot tell the case refuses the request instead of guessing.
//!
//! Run it with `cargo run -p attempt-ledger-examples --bin own_policy`.

use std::{
    error::Error,
    future::{Ready, ready},
};

use attempt_ledger::{
    Attempt, BoxError, CallLayer, Case, CaseId, GradeInput, GraderFn, Ledger, LedgerLayer, RunId,
    ScoreLayer, Slot, Verdict,
    core::{AttemptRow, Fold, Liveness, Timestamp},
};
use attempt_ledger_mock::{MockService, Script, Step};
use attempt_ledger_report::{Options, Report};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tower::{
    ServiceBuilder, ServiceExt,
    retry::{Policy, RetryLayer},
};

/// Asks again, with twice the tokens, while the answer is cut at the cap.
#[derive(Clone, Debug)]
struct MoreTokens {
    attempt: u32,
    tokens: u32,
}

impl MoreTokens {
    /// A request of its own for the next attempt; of the first one only the extensions are left.
    fn request(&self, first: &Request<Full<Bytes>>) -> Request<Full<Bytes>> {
        let MoreTokens { attempt, tokens } = self;
        let body = format!(r#"{{"model":"m","max_tokens":{tokens},"messages":[]}}"#);
        let mut request = Request::new(Full::from(body));
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = first.uri().clone();
        request.headers_mut().insert("x-attempt", (*attempt).into());
        // Without this line every attempt would be refused as one without a case.
        *request.extensions_mut() = first.extensions().clone();
        request
    }
}

impl<B> Policy<Request<Full<Bytes>>, Response<B>, attempt_ledger::Error> for MoreTokens {
    type Future = Ready<()>;

    fn retry(
        &mut self,
        next: &mut Request<Full<Bytes>>,
        result: &mut Result<Response<B>, attempt_ledger::Error>,
    ) -> Option<Ready<()>> {
        let verdict = result.as_ref().ok().and_then(Attempt::of).and_then(Attempt::verdict);
        if verdict != Some(Verdict::Truncated) || self.attempt >= 4 {
            return None;
        }
        self.attempt += 1;
        self.tokens *= 2;
        *next = self.request(next);
        Some(ready(()))
    }

    fn clone_request(&mut self, request: &Request<Full<Bytes>>) -> Option<Request<Full<Bytes>>> {
        Some(self.request(request))
    }
}

/// Asks a server that cuts two answers short; the rows, and what is published of them.
async fn ask() -> Result<(Vec<AttemptRow>, Report), Box<dyn Error + Send + Sync>> {
    let server = MockService::new(Script::new([Step::CapHit, Step::CapHit, Step::Good]));
    let ledger = Ledger::memory();
    let grader = GraderFn::new("is-whole", "1", |input: GradeInput| async move {
        Ok(f64::from(u8::from(input.verdict == Verdict::Ok)))
    });
    let policy = MoreTokens { attempt: 1, tokens: 16 };
    let stack = ServiceBuilder::new()
        .layer(CallLayer::new().attempts(4))
        .layer(RetryLayer::new(policy.clone()))
        .layer(ScoreLayer::configure(grader).diagnostics(true).build())
        .layer(LedgerLayer::new(ledger.clone()))
        .service(server);
    let mut first = Request::post("http://mock/v1/chat/completions").body(Full::default())?;
    let slot = Slot::new(RunId::new("own-policy")?, CaseId::new("one")?);
    first.extensions_mut().insert(Case::new(slot));
    stack.oneshot(policy.request(&first)).await?;

    let mut fold = Fold::new();
    for record in ledger.records()? {
        fold.push(&record)?;
    }
    let folded = fold.finish(Timestamp::default(), &Liveness::All);
    let report = Report::of(&folded, None, &Options::default())?;
    Ok((folded.rows, report))
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), BoxError> {
    let (rows, report) = ask().await?;
    for row in &rows {
        let ordinal = row.ordinal.map_or(0, attempt_ledger::Ordinal::get);
        let verdict = row.verdict.map_or("open", Verdict::as_str);
        let grade = row.score.or(row.diagnostic);
        println!("attempt {ordinal}: {verdict}, graded {grade:?}, frozen {}", row.frozen);
    }
    // The third attempt was another request: it is told as drift, and its grade is not the score.
    print!("{}", report.to_text(80, false));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn rebuilt_requests_keep_their_slot_and_count_on() {
        let (rows, report) = ask().await.expect("stack");
        let told: Vec<_> = rows
            .iter()
            .map(|r| (r.ordinal.map(attempt_ledger::Ordinal::get), r.verdict, r.score))
            .collect();
        assert_eq!(
            told,
            [
                (Some(1), Some(Verdict::Truncated), Some(0.0)),
                (Some(2), Some(Verdict::Truncated), None),
                (Some(3), Some(Verdict::Ok), None),
            ]
        );
        assert_ne!(rows[0].fingerprint, rows[2].fingerprint, "another request");
        let quality = report.quality.estimate().expect("graded");
        assert_eq!((quality.mean, quality.n), (0.0, 1), "what ordinal one was graded");
        assert_eq!(report.naive.claimed(), Some((1.0, 1)), "and not what came of it");
    }
}
