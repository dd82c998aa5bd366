//! HTTP/2: streams that are refused, reset or left behind.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use attempt_ledger::{Case, Effect, Http2, Ledger, Verdict};
use attempt_ledger_core::AttemptRow;
use attempt_ledger_tests::{rows, slot};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tokio::{io::AsyncWriteExt, net::TcpStream};
use tower::ServiceExt;

use crate::{
    rig::*,
    servers::{Then, connections, frames::*, greet, read_stream, says, url},
};

fn http2<B>() -> Client<HttpConnector, B>
where
    B: http_body::Body + Send,
    B::Data: Send,
{
    Client::builder(TokioExecutor::new())
        .retry_canceled_requests(false)
        .http2_only(true)
        .build_http()
}

/// The row of a request to a server that says these frames, and then holds the connection.
async fn row_for(said: Vec<Vec<u8>>) -> AttemptRow {
    let url = says(said, Then::Hold).await;
    row_of(http2(), request(&url)).await
}

#[tokio::test]
async fn reset_refused_stream() {
    let row = row_for(vec![rst(1, REFUSED_STREAM)]).await;
    assert_transport(&row, K::RefusedStream, Head, NotReached);
}

#[tokio::test]
async fn reset_enhance_your_calm() {
    let row = row_for(vec![rst(1, ENHANCE_YOUR_CALM)]).await;
    assert_row(&row, Verdict::Throttled, K::EnhanceYourCalm, Head, Answered);
}

#[tokio::test]
async fn reset_internal_error() {
    assert_transport(&row_for(vec![rst(1, INTERNAL_ERROR)]).await, K::Reset, Head, Unknown);
}

#[tokio::test]
async fn reset_cancel() {
    assert_transport(&row_for(vec![rst(1, CANCEL)]).await, K::Reset, Head, Unknown);
}

/// Early ends are for after the answer: as the whole of one it says nothing.
#[tokio::test]
async fn reset_no_error() {
    assert_transport(&row_for(vec![rst(1, NO_ERROR)]).await, K::Reset, Head, Unknown);
}

#[tokio::test]
async fn reset_protocol_error() {
    assert_transport(&row_for(vec![rst(1, PROTOCOL_ERROR)]).await, K::Protocol, Head, Unknown);
    assert_transport(&row_for(vec![rst(1, HTTP_1_1_REQUIRED)]).await, K::Protocol, Head, Unknown);
}

#[tokio::test]
async fn goaway_that_does_not_cover_the_stream() {
    let row = row_for(vec![goaway(0, NO_ERROR)]).await;
    assert_transport(&row, K::RefusedStream, Head, NotReached);
}

/// A first goodbye that covers everything and a second that does not, as graceful servers send them.
#[tokio::test]
async fn goaway_in_two_steps() {
    let row = row_for(vec![goaway(0x7fff_ffff, NO_ERROR), goaway(0, NO_ERROR)]).await;
    assert_transport(&row, K::RefusedStream, Head, NotReached);
}

/// The stream may have been processed: what ends it is the connection's end.
#[tokio::test]
async fn goaway_that_covers_the_stream() {
    for then in [Then::Close, Then::Reset] {
        let url = says(vec![goaway(1, NO_ERROR)], then).await;
        let row = row_of(http2(), request(&url)).await;
        assert_transport(&row, K::Reset, Head, Unknown);
    }
    let url = says(vec![goaway(1, ENHANCE_YOUR_CALM)], Then::Close).await;
    assert_transport(&row_of(http2(), request(&url)).await, K::Reset, Head, Unknown);
}

#[tokio::test]
async fn goaway_enhance_your_calm() {
    let row = row_for(vec![goaway(0, ENHANCE_YOUR_CALM)]).await;
    assert_row(&row, Verdict::Throttled, K::EnhanceYourCalm, Head, Answered);
}

/// A server in trouble is not believed about the streams that it says it never saw.
#[tokio::test]
async fn goaway_with_an_error() {
    assert_transport(&row_for(vec![goaway(0, INTERNAL_ERROR)]).await, K::Reset, Head, Unknown);
    assert_transport(&row_for(vec![goaway(0, PROTOCOL_ERROR)]).await, K::Protocol, Head, Unknown);
}

#[tokio::test]
async fn connection_ends_before_the_head() {
    for then in [Then::Close, Then::Reset] {
        let url = says(Vec::new(), then).await;
        assert_transport(&row_of(http2(), request(&url)).await, K::Reset, Head, Unknown);
    }
}

#[tokio::test]
async fn server_does_not_speak_it() {
    let addr = connections(|mut stream| async move {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        Then::Hold.end(stream).await;
    })
    .await;
    assert_transport(&row_of(http2(), request(&url(addr))).await, K::Protocol, Head, Unknown);
}

/// h2 finds that the server breaks the rules: here by a frame for a stream that nobody opened.
#[tokio::test]
async fn server_breaks_the_protocol() {
    assert_transport(&row_for(vec![rst(9, CANCEL)]).await, K::Protocol, Head, Unknown);
}

const HALF: &str = r#"{"choices":[{"index":0,"#;

#[tokio::test]
async fn body_reset() {
    for (code, kind) in
        [(INTERNAL_ERROR, K::Reset), (CANCEL, K::Reset), (PROTOCOL_ERROR, K::Protocol)]
    {
        let row = row_for(vec![head(1), data(1, HALF, false), rst(1, code)]).await;
        assert_eq!(row.status, Some(200));
        assert_transport(&row, kind, Body, Unknown);
    }
}

#[tokio::test]
async fn body_reset_enhance_your_calm() {
    let row = row_for(vec![head(1), data(1, HALF, false), rst(1, ENHANCE_YOUR_CALM)]).await;
    assert_row(&row, Verdict::Throttled, K::EnhanceYourCalm, Body, Answered);
}

/// A server that has answered cannot take back that it was reached.
#[tokio::test]
async fn body_reset_refused_stream() {
    let row = row_for(vec![head(1), data(1, HALF, false), rst(1, REFUSED_STREAM)]).await;
    assert_transport(&row, K::Reset, Body, Unknown);
}

/// hyper ends such a body as if it were whole: only what was decoded tells.
#[tokio::test]
async fn body_reset_no_error() {
    let row = row_for(vec![head(1), data(1, HALF, false), rst(1, NO_ERROR)]).await;
    assert_eq!((row.verdict, row.detail.kind), (Some(Verdict::Malformed), None));
}

#[tokio::test]
async fn body_cut_by_the_connections_end() {
    for then in [Then::Close, Then::Reset] {
        let url = says(vec![head(1), data(1, HALF, false)], then).await;
        assert_transport(&row_of(http2(), request(&url)).await, K::Reset, Body, Unknown);
    }
}

#[tokio::test]
async fn request_body_fails() {
    let frames = futures_util::stream::once(async {
        Err::<http_body::Frame<Bytes>, _>(std::io::Error::other("gone"))
    });
    let url = says(Vec::new(), Then::Hold).await;
    let body = StreamBody::new(Box::pin(frames)).boxed_unsync();
    let row = row_of(http2(), request_of(&url, body)).await;
    assert_transport(&row, K::RequestBody, Head, Unknown);
}

/// The second stream of a connection is above the last one that its server takes.
#[tokio::test]
async fn goaway_between_two_streams() {
    let addr = connections(|mut stream| async move {
        greet(&mut stream, None).await;
        read_stream(&mut stream).await;
        let answer =
            r#"{"choices":[{"index":0,"message":{"content":"hi"},"finish_reason":"stop"}]}"#;
        let first = [head(1), data(1, answer, true)].concat();
        let _ = stream.write_all(&first).await;
        read_stream(&mut stream).await;
        let _ = stream.write_all(&goaway(1, NO_ERROR)).await;
        Then::Close.end(stream).await;
    })
    .await;
    let client = http2();
    let row = row_of(client.clone(), request(&url(addr))).await;
    assert_eq!(row.verdict, Some(Verdict::Ok));
    let row = row_of(client, request(&url(addr))).await;
    assert_transport(&row, K::RefusedStream, Head, NotReached);
}

/// A request that waits for a free stream when its connection says goodbye was never written. hyper
/// drops it with an error that does not say so, and whose type is that of a failing request body.
#[tokio::test]
async fn request_that_waits_for_a_stream_is_lost() {
    let arrived = Arc::new(tokio::sync::Notify::new());
    let (there, go) = (arrived.clone(), Arc::new(tokio::sync::Notify::new()));
    let told = go.clone();
    let addr = connections(move |mut stream| {
        let (there, told) = (there.clone(), told.clone());
        async move {
            greet(&mut stream, Some(1)).await;
            read_stream(&mut stream).await;
            there.notify_one();
            told.notified().await;
            let _ = stream.write_all(&goaway(1, NO_ERROR)).await;
            Then::Hold.end(stream).await;
        }
    })
    .await;
    let client = http2();
    let first = tokio::spawn(client.request(request(&url(addr))));
    arrived.notified().await;
    let (row, ()) = tokio::join!(row_of(client, request(&url(addr))), async {
        for _ in 0..64 {
            tokio::task::yield_now().await;
        }
        go.notify_one();
    });
    first.abort();
    assert_transport(&row, K::RequestBody, Head, Unknown);
}

// === servers made with h2, and the project's own client ===

/// Serves each request of each connection by number, from 1.
async fn h2_server<F>(serve: F) -> (String, Arc<AtomicUsize>)
where
    F: Fn(usize, h2::server::SendResponse<Bytes>) + Clone + Send + Sync + 'static,
{
    let seen = Arc::new(AtomicUsize::new(0));
    let count = seen.clone();
    let addr = connections(move |stream: TcpStream| {
        let (serve, count) = (serve.clone(), count.clone());
        async move {
            let mut connection = h2::server::handshake(stream).await.expect("handshake");
            while let Some(Ok((_, respond))) = connection.accept().await {
                serve(count.fetch_add(1, Ordering::SeqCst) + 1, respond);
            }
        }
    })
    .await;
    (url(addr), seen)
}

fn good(mut respond: h2::server::SendResponse<Bytes>) {
    let response = http::Response::builder().header("content-type", "application/json");
    let response = response.body(()).expect("response");
    let mut body = respond.send_response(response, false).expect("sent");
    let answer = r#"{"choices":[{"index":0,"message":{"content":"hi"},"finish_reason":"stop"}]}"#;
    body.send_data(answer.into(), true).expect("sent");
}

async fn through_the_client(url: &str, effect: Effect) -> Vec<AttemptRow> {
    let ledger = Ledger::memory();
    let client = attempt_ledger::client(ledger.clone())
        .http2(Http2::PriorKnowledge)
        .attempts(2)
        .build()
        .expect("client");
    let mut request = request(url);
    request.extensions_mut().insert(Case::new(slot("c")).effect(effect));
    if let Ok(response) = client.oneshot(request).await {
        let _ = response.into_body().collect().await;
    }
    rows(&ledger, "c")
}

fn verdicts(rows: &[AttemptRow]) -> Vec<Verdict> {
    rows.iter().map(|row| row.verdict.expect("closed")).collect()
}

/// Each request that a server saw is a row: nothing beneath repeats a refused stream by itself.
#[tokio::test]
async fn a_refused_write_is_repeated_above_the_ledger_and_nowhere_else() {
    let (url, seen) = h2_server(|n, mut respond| match n {
        1 => respond.send_reset(h2::Reason::REFUSED_STREAM),
        _ => good(respond),
    })
    .await;
    let rows = through_the_client(&url, Effect::Writes).await;
    assert_eq!(verdicts(&rows), [Verdict::Transport, Verdict::Ok]);
    assert_transport(&rows[0], K::RefusedStream, Head, NotReached);
    assert_eq!(seen.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_reset_write_is_not_repeated() {
    let (url, seen) =
        h2_server(|_, mut respond| respond.send_reset(h2::Reason::INTERNAL_ERROR)).await;
    let rows = through_the_client(&url, Effect::Writes).await;
    assert_eq!(verdicts(&rows), [Verdict::Transport]);
    assert_transport(&rows[0], K::Reset, Head, Unknown);
    assert_eq!(seen.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_throttled_write_is_not_repeated() {
    let (url, seen) =
        h2_server(|_, mut respond| respond.send_reset(h2::Reason::ENHANCE_YOUR_CALM)).await;
    let rows = through_the_client(&url, Effect::Writes).await;
    assert_eq!(verdicts(&rows), [Verdict::Throttled]);
    assert_eq!(seen.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_connection_given_up_at_once() {
    let addr = connections(|stream| async move {
        let mut connection = h2::server::handshake::<_>(stream).await.expect("handshake");
        let _first = connection.accept().await;
        connection.abrupt_shutdown(h2::Reason::ENHANCE_YOUR_CALM);
        let _ = std::future::poll_fn(|cx| connection.poll_closed(cx)).await;
    })
    .await;
    // Its goodbye covers the stream: all that the client learns is that the connection ended.
    let row = row_of(http2::<Full<Bytes>>(), request(&url(addr))).await;
    assert_transport(&row, K::Reset, Head, Unknown);
}
