//! A reqwest client with reqwest-retry as it is, and a ledger beneath: what the caller is told, and what
//! the notebook says.
//!
//! Two cases are asked. One is throttled and then answered. The other is cut short, in which
//! reqwest-retry sees no fault, since the status was 200: its caller asks once more.
//!
//! Run it with `cargo run -p attempt-ledger-examples --bin reqwest_retry`.

use std::time::Duration;

use attempt_ledger::{
    BoxError, CallLayer, Case, CaseId, GradeInput, GraderFn, Ledger, RunId, ScoreLayer, Slot,
    Verdict,
    core::{AttemptRow, Fold, Liveness, Timestamp},
};
use attempt_ledger_mock::{MockServer, RetryHint, Script, Step};
use attempt_ledger_report::{Options, Report};
use attempt_ledger_reqwest::{CallMiddleware, LedgerMiddleware, client_builder};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use reqwest_retry::{RetryTransientMiddleware, policies::ExponentialBackoff};

/// The order is what matters: the call, its retry, and the ledger beneath.
fn client(ledger: &Ledger) -> Result<ClientWithMiddleware, BoxError> {
    let policy = ExponentialBackoff::builder()
        .retry_bounds(Duration::from_millis(10), Duration::from_millis(100))
        .build_with_max_retries(3);
    let grader = GraderFn::new("any-text", "1", |input: GradeInput| async move {
        Ok(f64::from(u8::from(!input.content.text.is_empty())))
    });
    let score = ScoreLayer::configure(grader).diagnostics(true).build();
    Ok(ClientBuilder::new(client_builder().no_proxy().build()?)
        .with(CallMiddleware::from(CallLayer::new().attempts(4).no_pacing()))
        .with(RetryTransientMiddleware::new_with_policy(policy))
        .with(LedgerMiddleware::new(ledger.clone()).score(score))
        .build())
}

/// What the caller is told of one call.
async fn ask(
    client: &ClientWithMiddleware,
    server: &MockServer,
    case: &str,
) -> Result<String, BoxError> {
    let slot = Slot::new(RunId::new("reqwest-retry")?, CaseId::new(case)?);
    let response = client
        .post(format!("{}/chat/completions", server.url()))
        .header("content-type", "application/json")
        .body(r#"{"model":"m","messages":[{"role":"user","content":"ping"}]}"#)
        .with_extension(Case::new(slot))
        .send()
        .await?;
    let status = response.status();
    Ok(match response.bytes().await {
        Ok(bytes) => format!("{status}, {} bytes", bytes.len()),
        Err(error) => format!("{status}, then {error}"),
    })
}

/// Asks a server that fails twice; what the caller is told, the rows, and what is published of them.
async fn run() -> Result<(Vec<String>, Vec<AttemptRow>, Report), BoxError> {
    let throttled = Step::Throttled(RetryHint::None);
    let server =
        MockServer::start(Script::new([throttled, Step::Good, Step::CutInChunk, Step::Good]))
            .await?;
    let ledger = Ledger::memory();
    let client = client(&ledger)?;
    let mut told = Vec::new();
    for case in ["case-1", "case-2", "case-2"] {
        told.push(format!("{case}: {}", ask(&client, &server, case).await?));
    }
    let mut fold = Fold::new();
    for record in ledger.records()? {
        fold.push(&record)?;
    }
    let folded = fold.finish(Timestamp::default(), &Liveness::All);
    let report = Report::of(&folded, None, &Options::default())?;
    Ok((told, folded.rows, report))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let (told, rows, report) = run().await?;
    println!("What the caller is told:");
    for line in told {
        println!("  {line}");
    }
    println!("What the notebook says:");
    for row in &rows {
        let case = row.case.as_ref().map_or("", |case| case.as_str());
        let ordinal = row.ordinal.map_or(0, attempt_ledger::Ordinal::get);
        let verdict = row.verdict.map_or("open", Verdict::as_str);
        println!("  {case}, attempt {ordinal} ({}): {verdict}", row.cause.as_str());
    }
    print!("{}", report.to_text(80, false));
    Ok(())
}

#[cfg(test)]
mod tests {
    use attempt_ledger::Cause;

    use super::*;

    #[tokio::test]
    async fn what_a_retry_hides_is_told_and_published() {
        let (told, rows, report) = run().await.expect("calls");
        assert!(told[0].starts_with("case-1: 200 OK, "), "nothing says that it was throttled");
        let of: Vec<_> = rows.iter().map(|r| (r.verdict, r.cause)).collect();
        assert_eq!(
            of,
            [
                (Some(Verdict::Throttled), Cause::Initial),
                (Some(Verdict::Ok), Cause::Retry),
                (Some(Verdict::Transport), Cause::Initial),
                (Some(Verdict::Ok), Cause::Recall),
            ]
        );
        assert_eq!(report.quality.estimate().map(|quality| quality.n), None, "no first answer");
        assert_eq!(report.naive.claimed(), Some((1.0, 2)), "what survivors would have claimed");
    }
}
