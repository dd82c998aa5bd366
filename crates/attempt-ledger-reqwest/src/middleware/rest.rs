use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Poll},
};

use http::{Extensions, Request, Response};
use reqwest_middleware::Next;
use tower_service::Service;

use super::{body::Body, error::Inner};
use crate::convert::{to_http, to_reqwest};

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What stands beneath a middleware, as a service that lives no longer than the call it serves.
#[derive(Clone)]
pub(super) struct Rest<'a> {
    pub(super) next: Next<'a>,
    pub(super) extensions: Shared,
    pub(super) copies: Copies,
}

impl<'a> Service<Request<Body>> for Rest<'a> {
    type Response = Response<reqwest::Body>;
    type Error = Inner;
    type Future = BoxFuture<'a, Result<Response<reqwest::Body>, Inner>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Inner>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Rest { next, extensions, copies } = self.clone();
        Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            parts.extensions.insert(copies.mark());
            let body = body.into_reqwest();
            let is_absent = body.is_none();
            let request = Request::from_parts(parts, body.unwrap_or_default());
            let (mut request, sent) = to_reqwest(request).map_err(|e| Inner(e.into()))?;
            if is_absent {
                *request.body_mut() = None;
            }
            let mut lent = extensions.lend();
            let mut run = pin!(next.run(request, &mut lent.extensions));
            let ended = poll_fn(|cx| match run.as_mut().poll(cx) {
                // What came is not the answer to one request: whoever watches the copies ends this.
                _ if copies.are_many() => Poll::Pending,
                polled => polled,
            });
            match ended.await {
                Ok(response) => Ok(to_http(response, &sent)),
                Err(error) => Err(Inner(error)),
            }
        })
    }
}

/// A caller's extensions, for whichever request is being made in its name.
#[derive(Clone, Default)]
pub(super) struct Shared(Arc<Mutex<Extensions>>);

impl Shared {
    pub(super) fn lend(&self) -> Lent {
        Lent { extensions: std::mem::take(&mut *self.lock()), of: self.clone() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Extensions> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives the extensions back however it ends.
pub(super) struct Lent {
    pub(super) extensions: Extensions,
    of: Shared,
}

impl Drop for Lent {
    fn drop(&mut self) {
        *self.of.lock() = std::mem::take(&mut self.extensions);
    }
}

/// Takes the caller's extensions for as long as a service needs to own them.
pub(super) struct Borrowed<'a> {
    pub(super) shared: Shared,
    of: &'a mut Extensions,
}

impl<'a> Borrowed<'a> {
    pub(super) fn new(of: &'a mut Extensions) -> Self {
        let shared = Shared::default();
        *shared.lock() = std::mem::take(of);
        Borrowed { shared, of }
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        *self.of = std::mem::take(&mut *self.shared.lock());
    }
}

/// How often a request was copied beneath: whatever sends it again makes a copy for each time.
#[derive(Clone, Default)]
pub(super) struct Copies(Arc<AtomicU32>);

impl Copies {
    /// A mark for one request, from which copies are counted anew.
    fn mark(&self) -> Mark {
        self.0.store(0, Ordering::Relaxed);
        Mark(self.0.clone())
    }

    pub(super) fn are_many(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 1
    }
}

struct Mark(Arc<AtomicU32>);

impl Clone for Mark {
    fn clone(&self) -> Self {
        self.0.fetch_add(1, Ordering::Relaxed);
        Mark(self.0.clone())
    }
}
