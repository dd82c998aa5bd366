//! On real sockets: redirects, and rows on disk before a byte is sent.

use std::sync::Arc;

use attempt_ledger::{Attempt, Case, Clocks, Effect, ErrorKind, Ledger, Verdict};
use attempt_ledger_core::{AttemptRow, Remote};
use attempt_ledger_mock::{MockServer, Script, Step};
use attempt_ledger_store::{
    file::{FileOptions, FileReader},
    testing::{Op, TestIo},
};
use attempt_ledger_tests::*;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use tower::ServiceExt;

fn request(url: &str) -> Request<Full<Bytes>> {
    let body = r#"{"model":"m","messages":[{"role":"user","content":"ping"}]}"#;
    let mut request = Request::post(url).body(Full::from(body)).expect("request");
    request.extensions_mut().insert(Case::new(slot("c")));
    request
}

async fn attempt_at(url: &str) -> AttemptRow {
    let ledger = Ledger::memory();
    let clocks = Clocks::default().idle(s(5)).total(s(20));
    let client =
        attempt_ledger::client(ledger.clone()).clocks(clocks).attempts(1).build().expect("client");
    if let Ok(response) = client.oneshot(request(url)).await {
        let _ = response.into_body().collect().await;
    }
    rows(&ledger, "c").remove(0)
}

#[tokio::test]
async fn redirects_that_keep_the_method_stay_within_one_attempt() {
    let server = MockServer::start(Script::new([
        Step::Redirect { status: 307, location: "/v1/other/chat/completions?key=SECRET".into() },
        Step::Redirect { status: 308, location: "/v1/third/chat/completions".into() },
        Step::Good,
    ]))
    .await
    .expect("server");
    let ledger = FileOptions::new(tempfile::tempdir().expect("dir").keep().join("l"))
        .open()
        .expect("ledger");
    let client = attempt_ledger::client(ledger.clone()).build().expect("client");
    let url = format!("{}/chat/completions", server.url());
    client.oneshot(request(&url)).await.expect("answer");
    let row = rows(&ledger, "c").remove(0);
    assert_eq!((rows(&ledger, "c").len(), server.requests()), (1, 3));
    assert_eq!(row.verdict, Some(Verdict::Ok));
    let origin = format!("http://{}", server.addr());
    assert_eq!(
        row.redirects,
        [
            format!("{origin}/v1/other/chat/completions"),
            format!("{origin}/v1/third/chat/completions")
        ]
    );
    let bodies: Vec<_> = server.received().iter().map(|r| r.body.clone()).collect();
    assert!(bodies.iter().all(|b| b == &bodies[0] && !b.is_empty()), "the body goes along");
}

#[tokio::test]
async fn every_other_redirect_is_handed_up() {
    let other = MockServer::start(Script::new([Step::Good])).await.expect("server");
    for (status, location) in [
        (301, "/v1/elsewhere".to_owned()),
        (302, "/v1/elsewhere".to_owned()),
        (303, "/v1/elsewhere".to_owned()),
        (307, format!("{}/chat/completions", other.url())),
    ] {
        let server = MockServer::start(Script::new([Step::Redirect { status, location }]))
            .await
            .expect("server");
        let row = attempt_at(&format!("{}/chat/completions", server.url())).await;
        assert_eq!((row.verdict, server.requests()), (Some(Verdict::Redirected), 1), "{status}");
    }
    assert_eq!(other.requests(), 0, "another origin never gets the request");
    // A loop ends after five hops.
    let turning =
        MockServer::start(Script::new([Step::Redirect { status: 307, location: "/v1/x".into() }]))
            .await
            .expect("server");
    let row = attempt_at(&format!("{}/chat/completions", turning.url())).await;
    assert_eq!((row.verdict, turning.requests()), (Some(Verdict::Redirected), 6));
}

#[tokio::test]
async fn the_first_byte_of_a_request_finds_its_row_on_disk() {
    let dir = tempfile::tempdir().expect("dir");
    let path = dir.path().join("ledger");
    let ledger = FileOptions::new(&path).open().expect("ledger");
    let server =
        MockServer::start(Script::new([Step::ServerError, Step::Good])).await.expect("server");
    let opened = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (count, at) = (opened.clone(), path.clone());
    server.on_first_byte(move |_| {
        // Another reader, from the files alone.
        let reader = FileReader::open(&at).expect("readable");
        let kinds = reader.map(|r| r.expect("row").event.kind()).filter(|&k| k == "opened").count();
        count.lock().expect("lock").push(kinds);
    });
    let client = attempt_ledger::client(ledger.clone()).build().expect("client");
    client.oneshot(request(&format!("{}/chat/completions", server.url()))).await.expect("answer");
    assert_eq!(*opened.lock().expect("lock"), [1, 2]);
}

#[tokio::test]
async fn the_opened_rows_sync_comes_before_the_connect() {
    let dir = tempfile::tempdir().expect("dir");
    let io = TestIo::new();
    let ledger =
        FileOptions::new(dir.path().join("l")).io(Arc::new(io.clone())).open().expect("ledger");
    let server = MockServer::start(Script::new([Step::Good])).await.expect("server");
    let marks = io.clone();
    // Noted when the request is handed to the client, which connects only then.
    let note = tower::layer::layer_fn(move |inner| {
        let marks = marks.clone();
        tower::util::MapRequest::new(inner, move |request: Request<Full<Bytes>>| {
            marks.mark("connect");
            request
        })
    });
    let client = attempt_ledger::client(ledger).build_through(&note).expect("client");
    client.oneshot(request(&format!("{}/chat/completions", server.url()))).await.expect("answer");
    let ops = io.ops();
    let find = |what: &dyn Fn(&Op) -> bool| ops.iter().position(what).expect("in the list");
    let written = find(&|op| op.writes("\"kind\":\"opened\""));
    let connect = find(&|op| *op == Op::Mark("connect".into()));
    let synced = ops[written..connect].iter().any(|op| matches!(op, Op::Sync(_)));
    assert!(written < connect && synced, "{ops:?}");
}

#[tokio::test]
async fn writes_and_a_stall_is_one_request_and_read_only_two() {
    for (effect, requests) in [(Effect::Writes, 1), (Effect::ReadOnly, 2)] {
        let server =
            MockServer::start(Script::new([Step::StallMidBody, Step::Good])).await.expect("server");
        let ledger = Ledger::memory();
        let clocks = Clocks::default().idle(ms(150));
        let client = attempt_ledger::client(ledger.clone()).clocks(clocks).build().expect("client");
        let mut request = request(&format!("{}/chat/completions", server.url()));
        request.extensions_mut().insert(Case::new(slot("c")).effect(effect));
        let result = client.oneshot(request).await;
        assert_eq!(server.requests(), requests, "{effect}");
        assert_eq!(result.is_ok(), requests == 2);
        if let Err(error) = result {
            assert!(matches!(error.kind(), ErrorKind::Deadline { .. }));
            assert_eq!(error.attempt().and_then(Attempt::remote), Some(Remote::Unknown));
        }
    }
}

#[tokio::test]
async fn the_idempotency_key_is_the_same_on_every_attempt_and_nowhere_in_the_ledger() {
    let server = MockServer::start(Script::new([Step::ServerError, Step::Reset, Step::Good]))
        .await
        .expect("server");
    let dir = tempfile::tempdir().expect("dir");
    let ledger = FileOptions::new(dir.path().join("l")).open().expect("ledger");
    let client = attempt_ledger::client(ledger.clone()).build().expect("client");
    let mut request = request(&format!("{}/chat/completions", server.url()));
    let case = Case::new(slot("c")).idempotency_key("key-4711").expect("header value");
    request.extensions_mut().insert(case);
    client.oneshot(request).await.expect("answer");
    let keys: Vec<_> =
        server.received().iter().map(|r| r.headers["idempotency-key"].clone()).collect();
    assert_eq!(keys, ["key-4711"; 3]);
    assert_eq!(rows(&ledger, "c")[0].effect, Effect::idempotent("key-4711"));
    ledger.flush().await.expect("flushed");
    for entry in std::fs::read_dir(dir.path().join("l")).expect("dir") {
        let bytes = std::fs::read(entry.expect("entry").path()).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&bytes).contains("key-4711"));
    }
}
