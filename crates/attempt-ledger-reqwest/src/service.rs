use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use attempt_ledger::BoxError;
use bytes::Bytes;
use http::{Request, Response};
use reqwest::{Body, Client};
use tower_service::Service;

use crate::convert::{to_http, to_reqwest};

/// reqwest's client as a tower service of `http` requests, to put beneath a
/// [`LedgerLayer`](attempt_ledger::LedgerLayer).
///
/// Responses keep their version, extensions (the remote address among them), content length and
/// streaming body, and their URL: `reqwest::Response::from` finds all of it again. Errors are reqwest's.
///
/// Give it a client of [`client_builder`](crate::client_builder): any other sends requests again, or
/// elsewhere, by itself. Redirects are followed within an attempt by
/// [`redirect_layer`](attempt_ledger::redirect_layer) above it; where the client follows them all the
/// same, a layer with [`list_redirects`](attempt_ledger::LedgerLayer::list_redirects) lists where it ended.
#[derive(Clone, Debug)]
pub struct ReqwestService {
    client: Client,
}

impl ReqwestService {
    /// A service over `client`.
    pub fn new(client: Client) -> Self {
        ReqwestService { client }
    }

    /// The client.
    pub fn get_ref(&self) -> &Client {
        &self.client
    }

    /// The client.
    pub fn into_inner(self) -> Client {
        self.client
    }
}

impl<B> Service<Request<B>> for ReqwestService
where
    B: http_body::Body + Send + Sync + 'static,
    B::Data: Into<Bytes>,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = reqwest::Error;
    type Future = ReqwestFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), reqwest::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> ReqwestFuture {
        let client = self.client.clone();
        let request = to_reqwest(request.map(Body::wrap));
        ReqwestFuture(Box::pin(async move {
            let (request, sent) = request?;
            let response = client.execute(request).await?;
            Ok(to_http(response, &sent))
        }))
    }
}

/// The future of a [`ReqwestService`].
pub struct ReqwestFuture(
    Pin<Box<dyn Future<Output = Result<Response<Body>, reqwest::Error>> + Send>>,
);

impl Future for ReqwestFuture {
    type Output = Result<Response<Body>, reqwest::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for ReqwestFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReqwestFuture").finish_non_exhaustive()
    }
}
