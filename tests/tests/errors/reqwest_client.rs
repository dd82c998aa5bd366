//! reqwest as the client beneath the ledger.

use std::sync::Arc;

use attempt_ledger::{BoxError, Verdict};
use attempt_ledger_core::AttemptRow;
use attempt_ledger_mock::{MockServer, RefusedAddr, Script, Step};
use attempt_ledger_tests::ms;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use reqwest::{
    Client, ClientBuilder,
    dns::{Name, Resolve, Resolving},
    redirect, retry,
};
use tower::service_fn;

use crate::{
    rig::*,
    servers::{Count, Then, answers, connections, frames::*, greet, read_stream, says, url},
};

const HALF: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";

/// A client that sends a request once.
fn once() -> ClientBuilder {
    Client::builder().retry(retry::never()).redirect(redirect::Policy::none()).no_proxy()
}

async fn row_with(client: ClientBuilder, url: &str) -> AttemptRow {
    let client = client.build().expect("client");
    let inner = service_fn(move |request: Request<Full<Bytes>>| {
        let client = client.clone();
        async move {
            let (parts, body) = request.into_parts();
            let Ok(body) = body.collect().await;
            let request = Request::from_parts(parts, body.to_bytes());
            let request = reqwest::Request::try_from(request)?;
            let response = client.execute(request).await?;
            Ok::<_, reqwest::Error>(Response::from(response))
        }
    });
    row_of(inner, request(url)).await
}

#[tokio::test]
async fn connection_refused() {
    let refused = RefusedAddr::new().expect("address");
    let row = row_with(once(), &format!("{}/chat/completions", refused.url())).await;
    assert_transport(&row, K::Connect, Connect, NotReached);
}

struct NoNames;

impl Resolve for NoNames {
    fn resolve(&self, _: Name) -> Resolving {
        Box::pin(std::future::ready(Err("of no known type".into())))
    }
}

#[tokio::test]
async fn name_without_an_address() {
    let client = once().dns_resolver(Arc::new(NoNames));
    let row = row_with(client, "http://model.test/v1/chat/completions").await;
    assert_transport(&row, K::Dns, Connect, NotReached);
}

struct SlowNames;

impl Resolve for SlowNames {
    fn resolve(&self, _: Name) -> Resolving {
        Box::pin(std::future::pending())
    }
}

#[tokio::test(start_paused = true)]
async fn connect_timeout() {
    let client = once().dns_resolver(Arc::new(SlowNames)).connect_timeout(ms(50));
    let row = row_with(client, "http://model.test/v1/chat/completions").await;
    assert_transport(&row, K::Timeout, Connect, NotReached);
}

#[tokio::test]
async fn timeout_before_the_head() {
    let url = answers(&[b""], Then::Hold).await;
    let row = row_with(once().timeout(ms(50)), &url).await;
    assert_row(&row, Verdict::Deadline, K::Elapsed, Head, Unknown);
    let row = row_with(once().read_timeout(ms(50)), &url).await;
    assert_row(&row, Verdict::Deadline, K::Elapsed, Head, Unknown);
}

#[tokio::test]
async fn timeout_within_the_body() {
    let url = answers(&[HALF], Then::Hold).await;
    for client in [once().timeout(ms(200)), once().read_timeout(ms(200))] {
        let row = row_with(client, &url).await;
        assert_row(&row, Verdict::Deadline, K::Elapsed, Body, Unknown);
    }
}

#[tokio::test]
async fn reset_before_the_head() {
    let url = answers(&[b""], Then::Reset).await;
    assert_transport(&row_with(once(), &url).await, K::Reset, Head, Unknown);
}

#[tokio::test]
async fn closed_before_the_head() {
    let url = answers(&[b""], Then::Close).await;
    assert_transport(&row_with(once(), &url).await, K::Closed, Head, Unknown);
}

#[tokio::test]
async fn body_cut() {
    let url = answers(&[HALF], Then::Close).await;
    assert_transport(&row_with(once(), &url).await, K::Cut, Body, Unknown);
}

/// reqwest calls a body that it reads itself and that breaks a decoding error: its chain says more.
#[tokio::test]
async fn body_cut_when_read_beneath_the_ledger() {
    let url = answers(&[HALF], Then::Close).await;
    let inner = service_fn(move |request: Request<Full<Bytes>>| async move {
        let client = once().build()?;
        let response = client.post(request.uri().to_string()).body(r#"["?"]}"#).send().await?;
        let error = response.bytes().await.expect_err("cut");
        assert!(error.is_decode());
        Err::<Response<Full<Bytes>>, _>(BoxError::from(error))
    });
    // What is a cut while a body is read is a connection that closed while a head is awaited.
    assert_transport(&row_of(inner, request(&url)).await, K::Closed, Head, Unknown);
}

/// What a request body fails with is another request's error: it proves nothing of this one, though
/// reqwest's predicates look through to it.
#[tokio::test]
async fn request_body_fails_with_an_error_that_was_not_sent() {
    let url = answers(&[b""], Then::Hold).await;
    let inner = service_fn(move |request: Request<Full<Bytes>>| async move {
        let nameless = once().dns_resolver(Arc::new(NoNames)).build()?;
        let error = nameless.get("http://model.test").send().await.expect_err("no address");
        assert!(error.is_dns());
        let frames = futures_util::stream::iter([Err::<Bytes, _>(error)]);
        let body = reqwest::Body::wrap_stream(frames);
        let response = once().build()?.post(request.uri().to_string()).body(body).send().await;
        assert!(response.as_ref().expect_err("its body fails").is_dns());
        response.map(Response::from)
    });
    assert_transport(&row_of(inner, request(&url)).await, K::RequestBody, Head, Unknown);
}

/// The client was told to follow redirects, and there was no end to them.
#[tokio::test]
async fn redirects_without_an_end() {
    let turning =
        MockServer::start(Script::new([Step::Redirect { status: 307, location: "/v1/x".into() }]))
            .await
            .expect("server");
    let client = once().redirect(redirect::Policy::limited(2));
    let row = row_with(client, &format!("{}/chat/completions", turning.url())).await;
    assert_row(&row, Verdict::Redirected, K::Redirect, Head, Answered);
}

#[tokio::test]
async fn http2_reset_refused_stream() {
    let url = says(vec![rst(1, REFUSED_STREAM)], Then::Hold).await;
    let row = row_with(once().http2_prior_knowledge(), &url).await;
    assert_transport(&row, K::RefusedStream, Head, NotReached);
}

#[tokio::test]
async fn http2_reset_enhance_your_calm() {
    let url = says(vec![rst(1, ENHANCE_YOUR_CALM)], Then::Hold).await;
    let row = row_with(once().http2_prior_knowledge(), &url).await;
    assert_row(&row, Verdict::Throttled, K::EnhanceYourCalm, Head, Answered);
}

/// Why a client beneath the ledger is told not to retry: it sends a refused request again by itself,
/// and the ledger has one row for them all.
#[tokio::test]
async fn retries_that_are_left_on_are_hidden() {
    let seen = Count::default();
    let count = seen.clone();
    let addr = connections(move |mut stream| {
        let count = count.clone();
        async move {
            greet(&mut stream, None).await;
            while let Some(id) = read_stream(&mut stream).await {
                count.add();
                let refusal = rst(id, REFUSED_STREAM);
                let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, &refusal).await;
            }
        }
    })
    .await;
    let client = Client::builder().no_proxy().http2_prior_knowledge().build().expect("client");
    let inner = service_fn(move |request: Request<Full<Bytes>>| {
        let client = client.clone();
        async move {
            let request = client.post(request.uri().to_string()).body("{}").build()?;
            client.execute(request).await.map(Response::from)
        }
    });
    let row = row_of(inner, request(&url(addr))).await;
    assert_transport(&row, K::RefusedStream, Head, NotReached);
    assert!(seen.get() > 1, "{} requests for one row", seen.get());
}
