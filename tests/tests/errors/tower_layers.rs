//! Layers of the caller's own between the ledger and the client.

use std::{
    convert::Infallible,
    task::{Context, Poll},
};

use attempt_ledger::{BoxError, Verdict};
use attempt_ledger_mock::RefusedAddr;
use attempt_ledger_tests::ms;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use tokio::sync::mpsc;
use tower::{
    Service, ServiceBuilder, ServiceExt, buffer::Buffer, limit::ConcurrencyLimit,
    load_shed::LoadShed, service_fn, timeout::Timeout,
};

use crate::{
    rig::*,
    servers::{Then, answers},
};

type Plain = Full<Bytes>;

const URL: &str = "http://model.test/v1/chat/completions";
const HALF: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";

/// Never answers.
fn silent()
-> impl Service<Request<Plain>, Response = Response<Plain>, Error = Infallible, Future: Send>
+ Clone
+ Send {
    service_fn(|_: Request<Plain>| std::future::pending::<Result<Response<Plain>, Infallible>>())
}

#[tokio::test(start_paused = true)]
async fn timeout() {
    let row = row_of(Timeout::new(silent(), ms(50)), request(URL)).await;
    assert_row(&row, Verdict::Deadline, K::Elapsed, Head, Unknown);
}

/// Never ready.
#[derive(Clone)]
struct Busy;

impl Service<Request<Plain>> for Busy {
    type Response = Response<Plain>;
    type Error = Infallible;
    type Future = std::future::Pending<Result<Response<Plain>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Pending
    }

    fn call(&mut self, _: Request<Plain>) -> Self::Future {
        std::future::pending()
    }
}

#[tokio::test]
async fn load_shed() {
    let row = row_of(LoadShed::new(Busy), request(URL)).await;
    assert_row(&row, Verdict::Shed, K::Limit, Open, NotReached);
}

/// A limit of itself waits, it never fails; behind a load shedder its fullness is shed.
#[tokio::test]
async fn concurrency_limit() {
    let limited = ConcurrencyLimit::new(silent(), 1);
    let stack = ServiceBuilder::new().load_shed().service(limited);
    let mut first = stack.clone();
    let _held = first.ready().await.expect("ready").call(request(URL));
    let row = row_of(stack, request(URL)).await;
    assert_row(&row, Verdict::Shed, K::Limit, Open, NotReached);
}

/// Fails to get ready, as a service does that connects first.
#[derive(Clone)]
struct Unready(fn() -> BoxError);

impl Service<Request<Plain>> for Unready {
    type Response = Response<Plain>;
    type Error = BoxError;
    type Future = std::future::Pending<Result<Response<Plain>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Err((self.0)()))
    }

    fn call(&mut self, _: Request<Plain>) -> Self::Future {
        std::future::pending()
    }
}

/// Behind a buffer a service that fails before it is called has failed for every queued request; none
/// was sent, whatever the error says.
#[tokio::test]
async fn buffer_whose_service_fails() {
    use std::io::{Error, ErrorKind as Io};
    type Case = (fn() -> BoxError, K, Verdict);
    const CASES: [Case; 4] = [
        (|| Error::from(Io::ConnectionRefused).into(), K::Connect, Verdict::Transport),
        (|| Error::from(Io::ConnectionReset).into(), K::Reset, Verdict::Transport),
        (|| "of no known type".into(), K::Unclassified, Verdict::Transport),
        (|| tower::timeout::error::Elapsed::new().into(), K::Elapsed, Verdict::Deadline),
    ];
    for (error, kind, verdict) in CASES {
        let row = row_of(Buffer::new(Unready(error), 1), request(URL)).await;
        assert_row(&row, verdict, kind, Open, NotReached);
    }
}

/// What a call fails with passes through a buffer as it is.
#[tokio::test]
async fn buffer_whose_call_fails() {
    let url = answers(&[b""], Then::Reset).await;
    let row = row_of(Buffer::new(http1(), 1), request(&url)).await;
    assert_transport(&row, K::Reset, Head, Unknown);
    let refused = RefusedAddr::new().expect("address");
    let url = format!("{}/chat/completions", refused.url());
    let row = row_of(Buffer::new(http1(), 1), request(&url)).await;
    assert_transport(&row, K::Connect, Connect, NotReached);
}

#[tokio::test]
async fn buffer_closed_with_the_request_in_its_queue() {
    let (buffer, worker) = Buffer::pair(silent(), 1);
    let (queued, mut told) = mpsc::unbounded_channel();
    // Tells when the buffer has the request.
    let inner = service_fn(move |request: Request<Plain>| {
        let (mut buffer, queued) = (buffer.clone(), queued.clone());
        async move {
            let response = buffer.ready().await?.call(request);
            let _ = queued.send(());
            drop(buffer);
            response.await
        }
    });
    let (row, ()) = tokio::join!(row_of(inner, request(URL)), async move {
        told.recv().await;
        drop(worker);
    });
    assert_row(&row, Verdict::Shed, K::Limit, Open, NotReached);
}

/// tower-http's timeout of a body beneath the ledger is a local clock, as the ledger's own is.
#[tokio::test]
async fn body_timeout() {
    let url = answers(&[HALF], Then::Hold).await;
    let client = http1().map_response(|response: Response<hyper::body::Incoming>| {
        response.map(|body| tower_http::timeout::TimeoutBody::new(ms(50), body).boxed_unsync())
    });
    let row = row_of(client, request(&url)).await;
    assert_row(&row, Verdict::Deadline, K::Elapsed, Body, Unknown);
}

#[tokio::test]
async fn body_over_its_limit() {
    let url = answers(&[HALF], Then::Hold).await;
    let client = http1().map_response(|response: Response<hyper::body::Incoming>| {
        response.map(|body| Limited::new(body, 0))
    });
    assert_transport(&row_of(client, request(&url)).await, K::BodyLimit, Body, Unknown);
}

/// Read whole beneath the ledger, a body over its limit fails the call, and the server was reached.
#[tokio::test]
async fn body_over_its_limit_when_read_beneath_the_ledger() {
    let url = answers(&[HALF], Then::Hold).await;
    let inner = service_fn(move |request: Request<Plain>| async move {
        let response = http1().request(request).await?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, 0).collect().await?.to_bytes();
        Ok::<_, BoxError>(Response::from_parts(parts, Full::new(body)))
    });
    assert_transport(&row_of(inner, request(&url)).await, K::BodyLimit, Head, Unknown);
}

/// tower-http's timeout beneath the ledger forges a response, which nothing tells from a server's: the
/// row says what it says of any 408, that the server may or may not have done the work.
#[tokio::test(start_paused = true)]
async fn forged_408() {
    let layer =
        tower_http::timeout::TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, ms(50));
    let row = row_of(ServiceBuilder::new().layer(layer).service(silent()), request(URL)).await;
    assert_eq!((row.verdict, row.status), (Some(Verdict::ServerError), Some(408)));
    assert_eq!((row.detail.kind, row.remote), (None, Some(Unknown)));
    assert!(!repeats(&row));
}
