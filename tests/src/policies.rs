use std::{future::Ready, future::ready, time::Duration};

use attempt_ledger::Error;
use http::{Request, Response};
use tokio::time::{Sleep, sleep};
use tower::retry::Policy;

use crate::Body;

/// A policy that knows nothing of verdicts: repeats what is no success, so many times, at once.
#[derive(Clone, Debug)]
pub struct Always(pub usize);

impl<Req: Clone, B> Policy<Req, Response<B>, Error> for Always {
    type Future = Ready<()>;

    fn retry(&mut self, _: &mut Req, result: &mut Result<Response<B>, Error>) -> Option<Ready<()>> {
        let good = result.as_ref().is_ok_and(|response| response.status().is_success());
        self.0 = self.0.checked_sub(1)?;
        (!good).then(|| ready(()))
    }

    fn clone_request(&mut self, request: &Req) -> Option<Req> {
        Some(request.clone())
    }
}

/// Repeats whatever happened, after a pause, without end.
#[derive(Clone, Debug)]
pub struct Forever(pub Duration);

impl<B, E> Policy<Request<Body>, Response<B>, E> for Forever {
    type Future = Sleep;

    fn retry(&mut self, _: &mut Request<Body>, _: &mut Result<Response<B>, E>) -> Option<Sleep> {
        Some(sleep(self.0))
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        Some(request.clone())
    }
}
