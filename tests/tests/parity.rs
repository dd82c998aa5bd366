//! The mock's script gives the same rows over an in-memory connection in paused time as over TCP,
//! but for times.

use std::time::Duration;

use attempt_ledger::{Clocks, HttpClient, Ledger, redirect_layer};
use attempt_ledger_core::AttemptRow;
use attempt_ledger_mock::{MockServer, MockService, RefusedAddr, Script, Step};
use attempt_ledger_tests::*;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use tower::{Layer, Service, ServiceExt};

/// Short, since the TCP side runs in real time; the idle clock is above the steps' own pauses.
fn builder(ledger: &Ledger, step: &Step) -> attempt_ledger::ClientBuilder {
    // A slow body ends by itself; how long that takes depends on the machine.
    let total = if matches!(step, Step::SlowBody { .. }) { s(60) } else { ms(2_500) };
    let clocks = Clocks::default().idle(ms(1_200)).total(total);
    attempt_ledger::client(ledger.clone()).clocks(clocks).attempts(1)
}

fn request(url: &str, stream: bool) -> Request<Full<bytes::Bytes>> {
    let body = format!(
        r#"{{"model":"m","stream":{stream},"messages":[{{"role":"user","content":"ping"}}]}}"#
    );
    let mut request =
        Request::post(format!("{url}/chat/completions")).body(Full::from(body)).expect("request");
    request.extensions_mut().insert(attempt_ledger::Case::new(slot("c")));
    request
}

/// The caller's bytes and how its read ended, beside the row.
async fn row<S, B>(service: S, ledger: &Ledger, url: &str, stream: bool) -> (Value, Vec<u8>, bool)
where
    S: Service<Request<Full<bytes::Bytes>>, Response = http::Response<B>>,
    B: http_body::Body<Data = bytes::Bytes> + Unpin,
{
    let mut seen = Vec::new();
    let mut failed = true;
    if let Ok(response) = service.oneshot(request(url, stream)).await {
        let mut body = response.into_body();
        failed = loop {
            match body.frame().await {
                Some(Ok(frame)) => seen.extend_from_slice(&frame.into_data().unwrap_or_default()),
                Some(Err(_)) => break true,
                None => break false,
            }
        };
        drop(body);
    }
    let row = rows(ledger, "c").remove(0);
    (without_times(&row), seen, failed)
}

fn without_times(row: &AttemptRow) -> Value {
    let mut row = serde_json::to_value(row).expect("json");
    let object = row.as_object_mut().expect("object");
    for name in ["attempt", "call", "head_us", "first_content_us", "end_us", "fingerprint"] {
        object.remove(name);
    }
    if let Some(detail) = object.get_mut("detail").and_then(Value::as_object_mut) {
        detail.remove("reader_us");
    }
    row
}

#[tokio::test]
async fn every_step_gives_the_same_row_both_ways() {
    let mut runs = tokio::task::JoinSet::new();
    for (name, step) in Step::all() {
        for stream in [false, true] {
            let step = match &step {
                Step::SlowBody { .. } => Step::SlowBody { every: ms(1) },
                other => other.clone(),
            };
            runs.spawn_blocking(move || {
                let paused = in_paused_time(step.clone(), stream);
                let real = over_tcp(step, stream);
                assert_eq!(real, paused, "{name}, stream {stream}");
            });
        }
    }
    while let Some(done) = runs.join_next().await {
        if let Err(failed) = done {
            std::panic::resume_unwind(failed.into_panic());
        }
    }
}

fn runtime() -> tokio::runtime::Builder {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all();
    builder
}

fn in_paused_time(step: Step, stream: bool) -> (Value, Vec<u8>, bool) {
    runtime().start_paused(true).build().expect("runtime").block_on(async {
        let ledger = Ledger::memory();
        let service = redirect_layer().layer(MockService::new(Script::new([step.clone()])));
        row(builder(&ledger, &step).build_on(service), &ledger, "http://127.0.0.1/v1", stream).await
    })
}

fn over_tcp(step: Step, stream: bool) -> (Value, Vec<u8>, bool) {
    runtime().build().expect("runtime").block_on(async {
        let ledger = Ledger::memory();
        let client: HttpClient = builder(&ledger, &step).build().expect("client");
        if step == Step::Refuse {
            let refused = RefusedAddr::new().expect("address");
            return row(client, &ledger, &refused.url(), stream).await;
        }
        let server = MockServer::start(Script::new([step])).await.expect("server");
        row(client, &ledger, &server.url(), stream).await
    })
}

/// The rows equal the requests that the server counted, whatever the step.
#[tokio::test(start_paused = true)]
async fn rows_equal_the_requests_that_were_received() {
    for (name, step) in Step::all() {
        if matches!(step, Step::Refuse | Step::Redirect { .. }) {
            continue;
        }
        let ledger = Ledger::memory();
        let mock = MockService::new(Script::new([step]));
        let clocks = Clocks::default().idle(s(5)).total(s(20));
        let builder = attempt_ledger::client(ledger.clone())
            .clocks(clocks)
            .attempts(3)
            .budget(Duration::from_secs(600));
        let result =
            builder.build_on(mock.clone()).oneshot(request("http://127.0.0.1/v1", false)).await;
        if let Ok(response) = result {
            let _ = response.into_body().collect().await;
        }
        assert_eq!(rows(&ledger, "c").len(), mock.requests(), "{name}");
    }
}
