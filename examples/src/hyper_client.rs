//! A hyper client with the whole stack on it, in a few lines.
//!
//! `cargo run -p attempt-ledger-examples --bin hyper_client` starts a server of its own that stalls
//! once and then answers. Give it a base URL and a model to ask a real one:
//! `... --bin hyper_client http://127.0.0.1:8080/v1 my-model`.

use std::{error::Error, time::Duration};

use attempt_ledger::{Attempt, Case, CaseId, Clocks, Ledger, RunId, Slot, client};
use attempt_ledger_mock::{MockServer, Script, Step};
use http_body_util::{BodyExt, Full};
use tower::ServiceExt;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut args = std::env::args().skip(1);
    let server = MockServer::start(Script::new([Step::StallMidBody, Step::Good])).await?;
    let url = args.next().unwrap_or_else(|| server.url());
    let model = args.next().unwrap_or_else(|| "demo".into());

    // Rows go to memory here; `store::file::FileOptions::new("ledger").open()?` keeps them.
    let ledger = Ledger::memory();
    let client = client(ledger.clone())
        .clocks(Clocks::default().idle(Duration::from_secs(2)).total(Duration::from_secs(60)))
        .build()?;

    let prompt = "What is the capital of France?";
    let body = format!(
        r#"{{"model":"{model}","max_tokens":32,"messages":[{{"role":"user","content":"{prompt}"}}]}}"#
    );
    let mut request = http::Request::post(format!("{url}/chat/completions"))
        .header("content-type", "application/json")
        .body(Full::from(body))?;
    let slot = Slot::new(RunId::new("example")?, CaseId::new("capital")?);
    request.extensions_mut().insert(Case::new(slot));

    let response = client.oneshot(request).await?;
    let call = Attempt::of(&response).and_then(Attempt::call).cloned();
    println!("{}", response.status());
    println!("{}", String::from_utf8_lossy(&response.into_body().collect().await?.to_bytes()));

    // What a retry hides: every attempt, in order.
    for attempt in call.iter().flat_map(attempt_ledger::Call::attempts) {
        let ordinal = attempt.ordinal.map_or(0, attempt_ledger::Ordinal::get);
        println!("attempt {ordinal}: {:?}", attempt.state);
    }
    println!("recovered: {}", call.is_some_and(|call| call.recovered()));
    Ok(())
}
