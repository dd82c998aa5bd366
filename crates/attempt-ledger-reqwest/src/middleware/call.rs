use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use attempt_ledger::{Call, CallLayer, CarryCase, core::Digest};
use bytes::Bytes;
use http::{Extensions, HeaderMap, Request};
use reqwest_middleware::{Middleware, Next};
use tower_layer::Layer;
use tower_service::Service;

use super::{
    error::{Inner, give_back},
    rest::{Borrowed, Shared},
};

/// Above the retry of a reqwest-middleware client: makes one [`Call`] of each request that carries a
/// [`Case`](attempt_ledger::Case), so that rows tell a retry from a call made again, and holds the call's
/// caps and pacing. Register it **before** the retry middleware. Without it the attempts have their
/// ordinals all the same; their cause is `unknown`, and nothing caps them.
///
/// The settings are those of a [`CallLayer`], its 3 attempts among them: give it as many as the retry
/// policy makes, else the call ends at the cap with an error, and not with the last response.
///
/// The [`Call`] is in the extensions of whoever called `execute_with_extensions`.
#[derive(Clone, Debug, Default)]
pub struct CallMiddleware {
    layer: CallLayer,
}

impl CallMiddleware {
    /// At most 3 attempts and 900 seconds a call; nothing is skipped; hosts that throttle are waited
    /// for.
    pub fn new() -> Self {
        Self::default()
    }
}

impl From<CallLayer> for CallMiddleware {
    fn from(layer: CallLayer) -> Self {
        CallMiddleware { layer }
    }
}

#[async_trait::async_trait]
impl Middleware for CallMiddleware {
    async fn handle(
        &self,
        request: reqwest::Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<reqwest::Response> {
        extensions.remove::<Call>();
        let result = {
            let borrowed = Borrowed::new(extensions);
            let outgoing = Outgoing { request, extensions: borrowed.shared.clone() };
            self.layer.layer(Run { next }).call(outgoing).await
        };
        match result {
            Ok(response) => Ok(response),
            Err(error) => Err(give_back(error).await),
        }
    }
}

/// A request with the extensions of its caller.
struct Outgoing {
    request: reqwest::Request,
    extensions: Shared,
}

impl CarryCase for Outgoing {
    fn carried<T: Clone + Send + Sync + 'static>(&self) -> Option<T> {
        self.extensions.lock().get().cloned()
    }

    fn carry<T: Clone + Send + Sync + 'static>(&mut self, value: T) {
        self.extensions.lock().insert(value);
    }

    fn headers_mut(&mut self) -> Option<&mut HeaderMap> {
        Some(self.request.headers_mut())
    }

    fn host(&self) -> Option<&str> {
        // Userinfo is a credential, and no part of a host's name.
        let authority = self.request.url().authority();
        Some(authority.rsplit_once('@').map_or(authority, |(_, host)| host))
    }

    fn fingerprint(&self, epoch: u32) -> Option<Digest> {
        let mut request = Request::new(match self.request.body() {
            Some(body) => Bytes::copy_from_slice(body.as_bytes()?),
            None => Bytes::new(),
        });
        *request.method_mut() = self.request.method().clone();
        *request.uri_mut() = self.request.url().as_str().parse().ok()?;
        *request.headers_mut() = self.request.headers().clone();
        CarryCase::fingerprint(&request, epoch)
    }
}

/// The retry and what is beneath it.
#[derive(Clone)]
struct Run<'a> {
    next: Next<'a>,
}

impl<'a> Service<Outgoing> for Run<'a> {
    type Response = reqwest::Response;
    type Error = Inner;
    type Future = Pin<Box<dyn Future<Output = Result<reqwest::Response, Inner>> + Send + 'a>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Inner>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, outgoing: Outgoing) -> Self::Future {
        let next = self.next.clone();
        let Outgoing { request, extensions } = outgoing;
        Box::pin(async move {
            let mut lent = extensions.lend();
            next.run(request, &mut lent.extensions).await.map_err(Inner)
        })
    }
}
