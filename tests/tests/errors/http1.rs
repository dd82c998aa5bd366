//! Connecting, and HTTP/1.1 over a plain socket.

use attempt_ledger::{Ledger, Verdict};
use attempt_ledger_core::AttemptRow;
use attempt_ledger_mock::RefusedAddr;
use attempt_ledger_tests::{ms, rows};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper_util::{
    client::legacy::{
        Client,
        connect::{HttpConnector, dns::Name},
    },
    rt::TokioExecutor,
};
use tower::ServiceExt as _;

use crate::{
    rig::*,
    servers::{Then, answers, connections, url},
};

async fn row_at(url: &str) -> AttemptRow {
    row_of(http1(), request(url)).await
}

/// The row of an answer in these bytes, after which the server closes.
async fn row_for(answer: &'static [&'static [u8]]) -> AttemptRow {
    row_at(&answers(answer, Then::Close).await).await
}

#[tokio::test]
async fn connection_refused() {
    let refused = RefusedAddr::new().expect("address");
    let row = row_at(&format!("{}/chat/completions", refused.url())).await;
    assert_transport(&row, K::Connect, Connect, NotReached);
}

/// Connects through the project's own client, whose resolver tells its failures by type.
#[tokio::test]
async fn name_without_an_address() {
    let ledger = Ledger::memory();
    let client = attempt_ledger::client(ledger.clone()).attempts(1).build().expect("client");
    let _ = client.oneshot(request("http://no-such-host.invalid/v1/chat/completions")).await;
    assert_transport(&rows(&ledger, "c")[0], K::Dns, Connect, NotReached);
}

#[tokio::test]
async fn resolver_of_another_kind_fails() {
    let failing = tower::service_fn(|_: Name| async {
        Err::<std::vec::IntoIter<std::net::SocketAddr>, _>(std::io::Error::other("no"))
    });
    let client = Client::builder(TokioExecutor::new())
        .build::<_, Full<Bytes>>(HttpConnector::new_with_resolver(failing));
    let row = row_of(client, request("http://model.test/v1/chat/completions")).await;
    assert_transport(&row, K::Connect, Connect, NotReached);
}

/// A listener whose queue is full drops what else asks for a connection.
#[tokio::test]
async fn connect_timeout() {
    let socket = tokio::net::TcpSocket::new_v4().expect("socket");
    socket.bind("127.0.0.1:0".parse().expect("address")).expect("port");
    let listener = socket.listen(1).expect("listening");
    let addr = listener.local_addr().expect("address");
    let mut waiting = Vec::new();
    while let Ok(Ok(stream)) =
        tokio::time::timeout(ms(100), tokio::net::TcpStream::connect(addr)).await
    {
        waiting.push(stream);
        assert!(waiting.len() < 64, "the queue has a bound");
    }
    let mut connector = HttpConnector::new();
    connector.set_connect_timeout(Some(ms(50)));
    let client = Client::builder(TokioExecutor::new()).build::<_, Full<Bytes>>(connector);
    let row = row_of(client, request(&url(addr))).await;
    assert_transport(&row, K::Timeout, Connect, NotReached);
}

/// tower's timeout around a connector is no clock of the attempt's.
#[tokio::test(start_paused = true)]
async fn timeout_layer_around_the_connector() {
    let never = tower::service_fn(|_: http::Uri| {
        std::future::pending::<Result<hyper_util::rt::TokioIo<tokio::net::TcpStream>, std::io::Error>>(
        )
    });
    let connector = tower::timeout::Timeout::new(never, ms(50)).map_future(Box::pin);
    let client = Client::builder(TokioExecutor::new()).build::<_, Full<Bytes>>(connector);
    let row = row_of(client, request("http://model.test/v1/chat/completions")).await;
    assert_transport(&row, K::Timeout, Connect, NotReached);
}

#[tokio::test]
async fn reset_before_the_head() {
    let row = row_at(&answers(&[b""], Then::Reset).await).await;
    assert_transport(&row, K::Reset, Head, Unknown);
}

#[tokio::test]
async fn closed_before_the_head() {
    assert_transport(&row_for(&[b""]).await, K::Closed, Head, Unknown);
}

#[tokio::test]
async fn closed_within_the_head() {
    let row = row_for(&[b"HTTP/1.1 200 OK\r\ncontent-le"]).await;
    assert_transport(&row, K::Closed, Head, Unknown);
}

#[tokio::test]
async fn not_http() {
    let row = row_for(&[b"SSH-2.0-OpenSSH_9.2\r\n\r\n\r\n"]).await;
    assert_transport(&row, K::Protocol, Head, Unknown);
}

#[tokio::test]
async fn content_length_that_is_no_number() {
    let row = row_for(&[b"HTTP/1.1 200 OK\r\ncontent-length: ten\r\n\r\n"]).await;
    assert_transport(&row, K::Protocol, Head, Unknown);
}

#[tokio::test]
async fn body_shorter_than_its_content_length() {
    let row = row_for(&[
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{",
    ])
    .await;
    assert_transport(&row, K::Cut, Body, Unknown);
}

#[tokio::test]
async fn body_cut_within_a_chunk() {
    let row = row_for(&[
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nff\r\n{",
    ])
    .await;
    assert_transport(&row, K::Cut, Body, Unknown);
}

#[tokio::test]
async fn body_cut_between_chunks() {
    let row = row_for(&[
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n",
    ])
    .await;
    assert_transport(&row, K::Cut, Body, Unknown);
}

#[tokio::test]
async fn illegal_chunk_size() {
    let row = row_for(&[
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{",
    ])
    .await;
    assert_transport(&row, K::Protocol, Body, Unknown);
}

#[tokio::test]
async fn reset_within_the_body() {
    let addr = connections(|mut stream| async move {
        crate::servers::read_request(&mut stream).await;
        let head =
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{";
        let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, head).await;
        Then::Reset.end(stream).await;
    })
    .await;
    let row = row_at(&url(addr)).await;
    assert_eq!(row.status, Some(200));
    assert_transport(&row, K::Reset, Body, Unknown);
}

/// No type tells the end of a close-delimited body from its cut: the wire's own end does.
#[tokio::test]
async fn close_delimited_body_cut() {
    let row =
        row_for(&[b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{\"choices\":"]).await;
    assert_eq!((row.verdict, row.detail.kind), (Some(Verdict::Malformed), None));
    let row = row_for(&[
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hel\"}}]}\n\n",
    ])
    .await;
    assert_eq!((row.verdict, row.detail.kind), (Some(Verdict::Unterminated), None));
    assert_eq!(row.remote, Some(Unknown));
}

async fn row_of_failing_body<E>(error: E) -> AttemptRow
where
    E: Into<attempt_ledger::BoxError> + Send + 'static,
{
    let url = answers(&[b""], Then::Hold).await;
    let client = Client::builder(TokioExecutor::new()).build_http();
    let frames = futures_util::stream::iter([Err::<http_body::Frame<Bytes>, E>(error)]);
    row_of(client, request_of(&url, StreamBody::new(frames).boxed_unsync())).await
}

#[tokio::test]
async fn request_body_fails() {
    let row = row_of_failing_body(std::io::Error::other("gone")).await;
    assert_transport(&row, K::RequestBody, Head, Unknown);
}

/// What a request body fails with is another request's error: it proves nothing of this one.
#[tokio::test]
async fn request_body_fails_with_an_error_that_was_not_sent() {
    let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
    let row = row_of_failing_body(refused).await;
    assert_transport(&row, K::RequestBody, Head, Unknown);
    let row = row_of_failing_body(tower::load_shed::error::Overloaded::new()).await;
    assert_transport(&row, K::RequestBody, Head, Unknown);
}

#[tokio::test]
async fn request_body_over_its_limit() {
    let url = answers(&[b""], Then::Hold).await;
    let client = Client::builder(TokioExecutor::new()).build_http();
    let long = Limited::new(Full::new(Bytes::from_static(b"too long")), 3);
    let row = row_of(client, request_of(&url, long.boxed_unsync())).await;
    assert_transport(&row, K::RequestBody, Head, Unknown);
}
