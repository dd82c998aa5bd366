//! Every recorded response gives every field right through the stack, read from a TCP server.

use std::path::{Path, PathBuf};

use attempt_ledger::{Ledger, Wire};
use attempt_ledger_mock::{MockServer, Script, Step};
use attempt_ledger_tests::*;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use tower::ServiceExt;

/// How many there are, so that a folder that is not found is noticed.
const AT_LEAST: usize = 200;

fn fixtures() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/wire");
    let mut cases = Vec::new();
    for wire in std::fs::read_dir(root).expect("fixtures") {
        let files = std::fs::read_dir(wire.expect("a folder").path()).expect("fixtures");
        let files = files.map(|entry| entry.expect("entry").path());
        cases.extend(files.filter(|path| path.extension().is_some_and(|e| e == "http")));
    }
    cases.sort();
    cases
}

#[tokio::test]
async fn every_recorded_response_read_from_a_socket() {
    let cases = fixtures();
    assert!(cases.len() >= AT_LEAST, "{} cases", cases.len());
    for case in cases {
        let raw = std::fs::read(&case).expect("bytes");
        let want: Value =
            serde_json::from_slice(&std::fs::read(case.with_extension("json")).expect("json"))
                .expect("json");
        let ledger = Ledger::memory();
        let server = MockServer::start(Script::new([Step::Raw(raw.into())])).await.expect("server");
        let client = attempt_ledger::client(ledger.clone()).attempts(1).build().expect("client");
        let wire: Wire = want["wire"].as_str().expect("a name").parse().expect("a wire");
        let path = wire.paths().first().expect("a path").replace('*', "m");
        let path = if path.starts_with('/') { path } else { format!("/models/m{path}") };
        assert_eq!(Wire::detect(&path), wire, "{path}");
        let body = format!(r#"{{"model":"m","stream":{}}}"#, want["stream"]);
        let mut request = Request::post(format!("{}{path}", server.url()))
            .body(Full::from(body))
            .expect("request");
        request.extensions_mut().insert(attempt_ledger::Case::new(slot("c")));
        if let Ok(response) = client.oneshot(request).await {
            let _ = response.into_body().collect().await;
        }
        let row = serde_json::to_value(&rows(&ledger, "c")[0]).expect("json");
        let name = case.file_stem().expect("name").to_string_lossy().into_owned();
        for field in [
            "verdict",
            "finish_reason",
            "content_sha256",
            "content_chars",
            "tool_calls",
            "usage",
            "retry_after_ms",
            "events",
        ] {
            let got = match field {
                // Where no head came nothing was decoded.
                "content_chars" | "tool_calls" if row[field].is_null() => &Value::from(0),
                _ => &row[field],
            };
            assert_eq!(got, &want[field], "{name}: {field}");
        }
    }
}
