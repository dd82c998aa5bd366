//! The HTTP side: keep-alive, pipelining, large and chunked bodies, bad requests, hooks, counters.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail as its assertions do")]

mod common;

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use attempt_ledger_mock::{MockServer, MockService, Script, Step};
use bytes::Bytes;
use common::{Ended, call, call_tcp, chat, post};
use http::Request;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tower::ServiceExt;

async fn server(script: Script) -> MockServer {
    MockServer::start(script).await.unwrap()
}

/// Sends bytes, ends the sending, and reads to the end.
async fn raw(server: &MockServer, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.addr()).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn a_connection_is_kept_where_the_step_leaves_it_whole() {
    let steps = [Step::Good, Step::Unavailable, Step::EndWithoutStop, Step::Good];
    let server = server(Script::new(steps)).await;
    let stream = TcpStream::connect(server.addr()).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    for status in [200, 503, 200, 200] {
        sender.ready().await.unwrap();
        let request = Request::post("/v1/chat/completions")
            .body(Full::<Bytes>::from(r#"{"stream":true}"#))
            .unwrap();
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), status);
        response.into_body().collect().await.unwrap();
    }
    assert_eq!((server.connections(), server.requests()), (1, 4));
    let numbers: Vec<_> = server.received().iter().map(|r| (r.number, r.connection)).collect();
    assert_eq!(numbers, [(1, 1), (2, 1), (3, 1), (4, 1)]);
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let server = server(Script::new([Step::Good.text("one")]).then(Step::Good.text("two"))).await;
    let answer = raw(
        &server,
        b"POST /a HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}POST /b HTTP/1.1\r\n\
          transfer-encoding: chunked\r\n\r\n1;x=y\r\n{\r\n1\r\n}\r\n0\r\nt: u\r\n\r\n\
          GET /c HTTP/1.1\r\nconnection: close\r\n\r\n",
    )
    .await;
    let places: Vec<_> = ["one", "two"].iter().map(|text| answer.find(text).unwrap()).collect();
    assert!(places[0] < places[1]);
    assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 3);
    let seen: Vec<_> =
        server.received().into_iter().map(|r| (r.path, r.body.len(), r.connection)).collect();
    assert_eq!(seen, [("/a".into(), 2, 1), ("/b".into(), 2, 1), ("/c".into(), 0, 1)]);
}

#[tokio::test(start_paused = true)]
async fn large_bodies_pass_both_ways() {
    let long: String = "äbc ".repeat(500_000);
    let service = MockService::new(Script::new([Step::Good.text(long.as_str())]));
    let prompt = format!(r#"{{"stream":true,"p":"{}"}}"#, "x".repeat(15 * 1024 * 1024));
    let seen = call(&service, post("/v1/chat/completions", prompt.clone()), None).await;
    assert_eq!(seen.end, Ended::Whole);
    assert!(seen.body.len() > long.len());
    assert_eq!(service.received()[0].body, prompt);
}

#[tokio::test]
async fn large_bodies_pass_both_ways_over_tcp() {
    let long: String = "äbc ".repeat(500_000);
    let server = server(Script::new([Step::Good.text(long.as_str())])).await;
    let prompt = format!(r#"{{"p":"{}"}}"#, "x".repeat(15 * 1024 * 1024));
    let seen = call_tcp(server.addr(), post("/v1/chat/completions", prompt.clone()), None).await;
    assert!(seen.text().contains(&long));
    assert_eq!(server.received()[0].body, prompt);
}

#[tokio::test(start_paused = true)]
async fn a_streamed_request_body_arrives_whole() {
    let pieces = ["{\"model\":", "\"m-7\",", "\"stream\":true}"];
    let frames = pieces.map(|p| Ok::<_, std::io::Error>(http_body::Frame::data(Bytes::from(p))));
    let body = StreamBody::new(futures_util::stream::iter(frames));
    let service = MockService::new(Script::new([Step::Good]));
    let request = Request::post("http://model.test:81/v1/x?y=z").body(body).unwrap();
    service.clone().oneshot(request).await.unwrap().into_body().collect().await.unwrap();
    let received = &service.received()[0];
    assert_eq!(received.body, pieces.concat());
    assert_eq!((received.model().as_deref(), received.stream()), (Some("m-7"), true));
    assert_eq!(received.path, "/v1/x?y=z");
    assert_eq!(received.headers["host"], "model.test:81");
    assert_eq!(received.headers["transfer-encoding"], "chunked");
}

#[tokio::test(start_paused = true)]
async fn a_request_body_that_fails_is_no_request() {
    let frames = [
        Ok(http_body::Frame::data(Bytes::from("{"))),
        Err(std::io::Error::other("the caller's own")),
    ];
    let body = StreamBody::new(futures_util::stream::iter(frames));
    let service = MockService::new(Script::new([Step::Good]));
    let request = Request::post("http://model.test/v1").body(body).unwrap();
    let error = service.clone().oneshot(request).await.unwrap_err();
    assert!(error.hyper().is_some_and(hyper::Error::is_user));
    service.idle().await;
    assert_eq!(service.requests(), 0);
}

#[tokio::test]
async fn a_length_that_the_script_gives_is_left_alone() {
    let headers = vec![("Content-Length".into(), "9".into())];
    let short = Step::Status { status: 200, headers, body: Bytes::from("half") };
    let server = server(Script::new([short])).await;
    let answer = raw(&server, b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n").await;
    assert_eq!(answer.to_lowercase().matches("content-length").count(), 1);
    assert!(answer.ends_with("\r\n\r\nhalf"));
}

#[tokio::test]
async fn what_is_no_request_is_told_so_and_not_counted() {
    let server = server(Script::new([Step::Good])).await;
    let long = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(70_000));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(300));
    for (status, request) in [
        ("400", "nonsense\r\n\r\n"),
        ("400", "GET / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n"),
        ("400", "GET / HTTP/1.1\r\ncontent-length: +1\r\n\r\n"),
        ("400", "GET / HTTP/1.1\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n"),
        ("400", "GET / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"),
        ("400", "GET / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\r\nabc"),
        ("501", "GET / HTTP/1.1\r\ntransfer-encoding: gzip\r\n\r\n"),
        ("413", "GET / HTTP/1.1\r\ncontent-length: 16777217\r\n\r\n"),
        ("413", "GET / HTTP/1.1\r\ncontent-length: 99999999999999999999999\r\n\r\n"),
        ("413", "GET / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1000001\r\n"),
        ("431", long.as_str()),
        ("431", many.as_str()),
    ] {
        let answer = raw(&server, request.as_bytes()).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request:.60}: {answer}");
    }
    // Cut off, so that there is nobody to tell.
    assert_eq!(raw(&server, b"POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\nabc").await, "");
    assert_eq!(server.requests(), 0);
    assert_eq!(server.connections(), 13);
}

#[tokio::test]
async fn a_body_may_wait_for_leave() {
    let server = server(Script::new([Step::Good])).await;
    let mut stream = TcpStream::connect(server.addr()).await.unwrap();
    let head = b"POST / HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n";
    stream.write_all(head).await.unwrap();
    let mut leave = [0; 25];
    stream.read_exact(&mut leave).await.unwrap();
    assert_eq!(&leave, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"{}").await.unwrap();
    let mut head = [0; 15];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200 OK");
}

#[tokio::test]
async fn an_old_client_gets_no_chunks_and_a_close() {
    let server = server(Script::new([Step::Good])).await;
    let body = r#"{"stream":true}"#;
    let request = format!("POST / HTTP/1.0\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let answer = raw(&server, request.as_bytes()).await;
    assert!(answer.contains("connection: close") && !answer.contains("chunked"));
    assert!(answer.ends_with("\n\ndata: [DONE]\n\n"));
}

#[tokio::test]
async fn head_and_204_have_no_body() {
    let none = Step::Status { status: 204, headers: vec![], body: Bytes::from("x") };
    let server = server(Script::new([Step::Good, none, Step::StallMidBody])).await;
    let answer = raw(&server, b"HEAD / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n").await;
    assert_eq!(answer.matches("\r\n\r\n").count(), 2, "{answer}");
    assert!(answer.contains("content-length: ") && !answer.contains("chatcmpl"));
    assert!(answer.ends_with("\r\n\r\n"));
}

#[tokio::test]
async fn hooks_come_before_the_answer_and_in_order() {
    let server = server(Script::new([Step::Good])).await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let (first, whole) = (Arc::clone(&order), Arc::clone(&order));
    server.on_first_byte(move |connection| {
        first.lock().unwrap().push(format!("first byte on {connection}"));
    });
    server.on_request(move |request| {
        whole.lock().unwrap().push(format!("request {} {}", request.number, request.path));
    });

    let mut stream = TcpStream::connect(server.addr()).await.unwrap();
    stream.write_all(b"G").await.unwrap();
    while order.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(*order.lock().unwrap(), ["first byte on 1"]);
    assert_eq!((server.open(), server.requests()), (1, 0));
    stream.write_all(b"ET /v1/a HTTP/1.1\r\n\r\n").await.unwrap();
    stream.read_exact(&mut [0; 1]).await.unwrap();
    assert_eq!(*order.lock().unwrap(), ["first byte on 1", "request 1 /v1/a"]);
}

#[tokio::test(start_paused = true)]
async fn the_services_hook_comes_before_the_answer() {
    let service = MockService::new(Script::new([Step::CloseBeforeHead]));
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&calls);
    service.on_request(move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
    });
    assert_eq!(call(&service, chat(true), None).await.end, Ended::Incomplete);
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counters_equal_requests_and_cases_have_their_own_steps() {
    let flaky = || Script::new([Step::Unavailable, Step::Good]);
    let script = Script::by_case((0..8).map(|n| (format!("case-{n};"), flaky())));
    let server = server(script).await;
    let mut clients = tokio::task::JoinSet::new();
    for n in 0..8 {
        let addr = server.addr();
        clients.spawn(async move {
            let mut statuses = Vec::new();
            for _ in 0..5 {
                let request = post("/v1/chat/completions", format!("case-{n};"));
                statuses.push(call_tcp(addr, request, None).await.status.unwrap());
            }
            statuses
        });
    }
    while let Some(statuses) = clients.join_next().await {
        assert_eq!(statuses.unwrap(), [503, 200, 200, 200, 200]);
    }
    assert_eq!((server.requests(), server.connections()), (40, 40));
    let received = server.received();
    let numbers: Vec<_> = received.iter().map(|r| r.number).collect();
    assert_eq!(numbers, (1..=40).collect::<Vec<_>>());
    assert_eq!(received.iter().filter(|r| r.case.as_deref() == Some("case-3;")).count(), 5);
}
