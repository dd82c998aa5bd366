//! Kept-alive connections that die, and requests that a dispatcher hands back.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::rt::Executor;
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioIo},
};
use tokio::{io::AsyncWriteExt, net::TcpStream, sync::Notify};
use tower::Service;

use crate::{
    rig::*,
    servers::{Count, Then, answers, connections, read_request, url},
};

const GOOD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\nhi";

/// The connection dies as the next request is on its way: it may have been read.
#[tokio::test]
async fn kept_alive_connection_closed_at_its_next_request() {
    let client = http1();
    let url = answers(&[GOOD, b""], Then::Close).await;
    let first = row_of(client.clone(), request(&url)).await;
    assert_eq!(first.status, Some(200));
    assert_transport(&row_of(client, request(&url)).await, K::Closed, Head, Unknown);
}

#[tokio::test]
async fn kept_alive_connection_reset_at_its_next_request() {
    let client = http1();
    let url = answers(&[GOOD, b""], Then::Reset).await;
    row_of(client.clone(), request(&url)).await;
    assert_transport(&row_of(client, request(&url)).await, K::Reset, Head, Unknown);
}

/// Drops what it runs, at its next turn, once told so.
#[derive(Clone, Debug, Default)]
struct Dropping(Arc<AtomicBool>);

impl<F> Executor<F> for Dropping
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, future: F) {
        let told = self.0.clone();
        let mut future = Box::pin(future);
        TokioExecutor::new().execute(std::future::poll_fn(move |cx| {
            if told.load(Ordering::SeqCst) {
                return Poll::Ready(());
            }
            future.as_mut().poll(cx)
        }));
    }
}

/// The pooled connection goes away with the request in its queue: the message comes back unwritten.
#[tokio::test]
async fn pooled_connection_gone_before_the_request_is_written() {
    let (seen, executor) = (Count::default(), Dropping::default());
    let count = seen.clone();
    let addr = connections(move |mut stream| {
        let count = count.clone();
        async move {
            loop {
                read_request(&mut stream).await;
                count.add();
                if stream.write_all(GOOD).await.is_err() {
                    return;
                }
            }
        }
    })
    .await;
    let client = Client::builder(executor.clone())
        .retry_canceled_requests(false)
        .build_http::<Full<Bytes>>();
    row_of(client.clone(), request(&url(addr))).await;
    assert_eq!(seen.get(), 1);
    executor.0.store(true, Ordering::SeqCst);
    let row = row_of(client, request(&url(addr))).await;
    assert_eq!(seen.get(), 1, "the server never saw it");
    assert_transport(&row, K::Canceled, Open, NotReached);
}

type Sender = hyper::client::conn::http1::SendRequest<Full<Bytes>>;

/// One connection of hyper's own, without a pool; tells when a request is in its queue.
#[derive(Clone)]
struct Direct(Arc<Mutex<Sender>>, Arc<Notify>);

impl Direct {
    fn new(sender: Sender) -> Self {
        Direct(Arc::new(Mutex::new(sender)), Arc::default())
    }
}

impl Service<http::Request<Full<Bytes>>> for Direct {
    type Response = http::Response<hyper::body::Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, hyper::Error>>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Full<Bytes>>) -> Self::Future {
        let sent = self.0.lock().expect("lock").send_request(request);
        self.1.notify_one();
        Box::pin(sent)
    }
}

async fn direct() -> (Direct, impl Future, String) {
    let addr = connections(|stream| Then::Hold.end(stream)).await;
    let io = TokioIo::new(TcpStream::connect(addr).await.expect("connected"));
    let (sender, connection) = hyper::client::conn::http1::handshake(io).await.expect("handshake");
    (Direct::new(sender), connection, url(addr))
}

#[tokio::test]
async fn dispatcher_dropped_with_the_request_in_its_queue() {
    let (direct, connection, url) = direct().await;
    let queued = direct.1.clone();
    let (row, ()) = tokio::join!(row_of(direct, request(&url)), async {
        queued.notified().await;
        drop(connection);
    });
    assert_transport(&row, K::Canceled, Open, NotReached);
}

#[tokio::test]
async fn dispatcher_gone_before_the_request() {
    let (direct, connection, url) = direct().await;
    drop(connection);
    assert_transport(&row_of(direct, request(&url)).await, K::Canceled, Open, NotReached);
}
