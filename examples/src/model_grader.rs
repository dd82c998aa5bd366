//! A model that grades another one's answers, through the same client and into the same ledger.
//!
//! What the judge is asked are rows of role `grader`: its faults and retries are its own, never the
//! subject's, and the grade names the attempts that it rests on. Run it with
//! `cargo run -p attempt-ledger-examples --bin model_grader`.

use attempt_ledger::{
    BoxError, CallLayer, CallService, Case, CaseId, ChatTemplate, Ledger, LedgerLayer, LedgerRetry,
    LedgerService, ModelGrader, Ordinal, RunId, ScoreLayer, ScoreService, Slot, Verdict,
    core::{AttemptRow, Fold, Folded, GraderAttempts, Liveness, Timestamp},
};
use attempt_ledger_mock::{MockService, Script, Step};
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use tower::{
    ServiceBuilder, ServiceExt,
    retry::{Retry, RetryLayer},
};

type Stack = CallService<Retry<LedgerRetry, ScoreService<LedgerService<MockService>>>>;

const URL: &str = "http://mock/v1/chat/completions";

/// The layers over the client, for the subject and, without a grader, for the judge.
fn stack(ledger: &Ledger, score: ScoreLayer, client: &MockService) -> Stack {
    ServiceBuilder::new()
        .layer(CallLayer::new())
        .layer(RetryLayer::new(LedgerRetry::new()))
        .layer(score)
        .layer(LedgerLayer::new(ledger.clone()))
        .service(client.clone())
}

/// One case, whose judge is unavailable at first.
async fn play() -> Result<Folded, BoxError> {
    let ledger = Ledger::memory();
    let client = MockService::new(Script::new([
        Step::Good.text("Paris, I think."),
        Step::Unavailable.into(),
        Step::Good.text("0.75"),
    ]));

    let question = "From 0 to 1, how sure is this answer? Say a number only.\n\n{answer}";
    let template = ChatTemplate::new(URL, "judge-model", question)?.param("temperature", 0);
    let judge = ModelGrader::new(
        "how-sure",
        "1",
        stack(&ledger, ScoreLayer::none(), &client),
        move |input: &attempt_ledger::GradeInput| template.request(input),
        |text: &str| text.trim().parse().ok(),
    );

    let subject = stack(&ledger, ScoreLayer::new(judge), &client);
    let body = r#"{"model":"m","messages":[{"role":"user","content":"The capital of France?"}]}"#;
    let mut request = Request::post(URL).body(Full::<Bytes>::from(body))?;
    let slot = Slot::new(RunId::new("nightly")?, CaseId::new("capital-fr")?);
    request.extensions_mut().insert(Case::new(slot));
    subject.oneshot(request).await?;

    let mut fold = Fold::new();
    for record in ledger.records()? {
        fold.push(&record)?;
    }
    Ok(fold.finish(Timestamp::default(), &Liveness::All))
}

fn told(row: &AttemptRow) -> String {
    let ordinal = row.ordinal.map_or(0, Ordinal::get);
    let verdict = row.verdict.map_or("open", Verdict::as_str);
    let mut told = format!("{} attempt {ordinal}: {verdict}", row.role.as_str());
    if let Some(score) = row.score {
        told.push_str(&format!(", frozen at {score}"));
    }
    match row.grade.as_ref().map(|grade| &grade.grader_attempts) {
        Some(GraderAttempts::Cited(attempts)) => {
            told.push_str(&format!(", on {} attempts of the judge", attempts.len()));
        }
        Some(GraderAttempts::Unknown) => told.push_str(", on attempts that are not known"),
        Some(GraderAttempts::None) | None => {}
    }
    told
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), BoxError> {
    for row in play().await?.rows {
        println!("{}", told(&row));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_judges_fault_is_not_the_subjects() {
        let folded = play().await.expect("an answer");
        let told: Vec<_> = folded.rows.iter().map(told).collect();
        assert_eq!(
            told,
            [
                "subject attempt 1: ok, frozen at 0.75, on 2 attempts of the judge",
                "grader attempt 1: throttled",
                "grader attempt 2: ok",
            ]
        );
    }
}
