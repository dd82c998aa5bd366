//! A loaded run to be killed: many calls at once through the whole stack onto a file ledger.
//!
//! `loaded_run LEDGER BASE_URL` calls forever and prints one line after each answer that reached its
//! caller: case, ordinal, verdict, and the grade or `-`.

use std::io::Write as _;

use attempt_ledger::{
    Attempt, Case, CaseId, Clocks, GradeInput, GraderFn, LedgerRetry, RunId, ScoreLayer, Slot,
    store::file::FileOptions,
};
use http_body_util::{BodyExt, Full};
use tower::ServiceExt;

const TASKS: usize = 32;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), attempt_ledger::BoxError> {
    let mut args = std::env::args().skip(1);
    let (dir, url) = (args.next().ok_or("a ledger")?, args.next().ok_or("a base URL")?);
    let ledger = FileOptions::new(dir).open()?;
    let grader = GraderFn::new("length", "1", |input: GradeInput| async move {
        Ok::<f64, attempt_ledger::BoxError>(if input.content.text.len() > 4 { 1.0 } else { 0.25 })
    });
    let client = attempt_ledger::client(ledger)
        .clocks(Clocks::default().idle(std::time::Duration::from_millis(50)))
        .retry(LedgerRetry::new().grade_below(0.5))
        // Plain HTTP: reading the system's certificates would take longer than the run.
        .roots(rustls::RootCertStore::empty())
        .score(ScoreLayer::configure(grader).diagnostics(true).build())
        .build()?;
    let run = RunId::new("killed")?;
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let (client, run, url) = (client.clone(), run.clone(), url.clone());
        tasks.spawn(async move {
            for n in 0_u64.. {
                // Old slots and new ones, so that ordinals go on over restarts.
                let case = CaseId::new(format!("case-{task}-{}", n % 8))?;
                let body = format!(
                    r#"{{"model":"m","messages":[{{"role":"user","content":"{case}."}}]}}"#
                );
                let mut request = http::Request::post(format!("{url}/chat/completions"))
                    .body(Full::from(body))?;
                request.extensions_mut().insert(Case::new(Slot::new(run.clone(), case.clone())));
                let Ok(response) = client.clone().oneshot(request).await else { continue };
                let Some(attempt) = Attempt::of(&response).cloned() else { continue };
                if response.into_body().collect().await.is_err() {
                    continue;
                }
                let (Some(ordinal), Some(verdict)) = (attempt.ordinal(), attempt.verdict()) else {
                    continue;
                };
                let grade = attempt.grade().map_or("-".to_owned(), |g| g.to_string());
                let line = format!("{case} {ordinal} {verdict} {grade}\n");
                // One write a line: a killed process leaves no half of it.
                std::io::stdout().lock().write_all(line.as_bytes())?;
            }
            Ok::<(), attempt_ledger::BoxError>(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}
