//! An agent that calls the model twice for one case: it asks for a tool, then answers.
//!
//! Each model call of a case is a step with attempts of its own, so that a fault in the second call
//! says nothing of the first. Run it with `cargo run -p attempt-ledger-examples --bin agent_steps`.

use std::error::Error;

use attempt_ledger::{
    BoxError, CallLayer, CallService, Case, CaseId, Ledger, LedgerLayer, LedgerRetry,
    LedgerService, RunId, Slot, Verdict,
    core::{AttemptRow, Fold, Liveness, Timestamp},
};
use attempt_ledger_mock::{MockService, Script, Step};
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::{
    ServiceBuilder, ServiceExt,
    retry::{Retry, RetryLayer},
};

type Stack = CallService<Retry<LedgerRetry, LedgerService<MockService>>>;

/// The steps of an agent, at most.
const STEPS: u32 = 4;

/// Works on one case until the model answers in words.
async fn work(stack: &Stack, case: &Slot) -> Result<String, Box<dyn Error + Send + Sync>> {
    let mut messages = vec![json!({"role": "user", "content": "What is the value of pong?"})];
    for step in 1..=STEPS {
        let body = json!({"model": "m", "messages": messages}).to_string();
        let mut request =
            Request::post("http://mock/v1/chat/completions").body(Full::from(body))?;
        request.extensions_mut().insert(Case::new(case.clone().step(step)));
        let response = stack.clone().oneshot(request).await?;
        let answer = response.into_body().collect().await?.to_bytes();
        let mut answer: Value = serde_json::from_slice(&answer)?;
        let message = answer["choices"][0]["message"].take();
        let calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
        if calls.is_empty() {
            return Ok(message["content"].as_str().unwrap_or_default().to_owned());
        }
        messages.push(message);
        for call in calls {
            let id = &call["id"];
            messages.push(json!({"role": "tool", "tool_call_id": id, "content": lookup(&call)}));
        }
    }
    Err(format!("no answer after {STEPS} steps").into())
}

/// The agent's only tool.
fn lookup(call: &Value) -> &'static str {
    match call["function"]["name"].as_str() {
        Some("lookup") => "42",
        _ => "no such tool",
    }
}

/// Plays both steps; the second one meets a fault first.
async fn play() -> Result<(String, Vec<AttemptRow>), Box<dyn Error + Send + Sync>> {
    let script =
        Script::new([Step::ToolCall.into(), Step::Unavailable.into(), Step::Good.text("42")]);
    let ledger = Ledger::memory();
    let stack = ServiceBuilder::new()
        .layer(CallLayer::new())
        .layer(RetryLayer::new(LedgerRetry::new()))
        .layer(LedgerLayer::new(ledger.clone()))
        .service(MockService::new(script));
    let case = Slot::new(RunId::new("agent")?, CaseId::new("pong")?);
    let answer = work(&stack, &case).await?;
    let mut fold = Fold::new();
    for record in ledger.records()? {
        fold.push(&record)?;
    }
    Ok((answer, fold.finish(Timestamp::default(), &Liveness::All).rows))
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), BoxError> {
    let (answer, rows) = play().await?;
    for row in rows {
        let ordinal = row.ordinal.map_or(0, attempt_ledger::Ordinal::get);
        let verdict = row.verdict.map_or("open", Verdict::as_str);
        let tools = row.tool_calls.unwrap_or_default();
        println!("step {} attempt {ordinal}: {verdict}, {tools} tool calls", row.step);
    }
    println!("the answer: {answer}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_step_counts_its_own_attempts() {
        let (answer, rows) = play().await.expect("an answer");
        assert_eq!(answer, "42");
        let told: Vec<_> = rows
            .iter()
            .map(|r| (r.step, r.ordinal.map(attempt_ledger::Ordinal::get), r.verdict, r.tool_calls))
            .collect();
        assert_eq!(
            told,
            [
                (1, Some(1), Some(Verdict::Ok), Some(1)),
                (2, Some(1), Some(Verdict::Throttled), Some(0)),
                (2, Some(2), Some(Verdict::Ok), Some(0)),
            ]
        );
    }
}
