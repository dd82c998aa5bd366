use std::{
    error::Error as StdError,
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use attempt_ledger::{BoxError, Error, ErrorKind};
use bytes::Bytes;
use http_body::Frame;
use http_body_util::BodyExt;

/// One attempt was about to become several requests: whatever stands beneath
/// [`LedgerMiddleware`](crate::LedgerMiddleware) sent its request a second time. The answer is withheld, since it would
/// count as the first attempt's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the request was sent a second time beneath LedgerMiddleware, within one attempt: register \
     LedgerMiddleware after the retry middleware, so that each of its attempts is a row"
)]
#[non_exhaustive]
pub struct Misplaced;

/// A request carried no case, and nothing was sent.
#[derive(Debug, thiserror::Error)]
#[error(
    "the request carries no case: give it one by `with_extension(Case::new(slot))`, or register \
     CallMiddleware with `by_header` where a middleware between makes requests anew; or allow unlinked \
     attempts"
)]
#[non_exhaustive]
pub struct NoCase {
    source: Error,
}

/// What a middleware beneath failed with, as the source of another error, to be taken out again as it was.
pub(super) struct Inner(pub(super) reqwest_middleware::Error);

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl StdError for Inner {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        // The error itself, and not its source: its type is evidence.
        match &self.0 {
            reqwest_middleware::Error::Reqwest(error) => Some(error),
            reqwest_middleware::Error::Middleware(error) => Some(&**error),
        }
    }
}

/// As reqwest-middleware hands errors up: of the transport as it was, a clock's as one of reqwest's that
/// answers `is_timeout()`, and ours for the rest.
pub(super) async fn give_back(error: Error) -> reqwest_middleware::Error {
    match error.kind() {
        ErrorKind::Transport | ErrorKind::NotReady => match error.into_source() {
            Some(source) => unwrap(source),
            None => reqwest_middleware::Error::middleware(NoCause),
        },
        ErrorKind::Deadline { .. } | ErrorKind::HeldTooLong { .. } => as_reqwest(error).await,
        ErrorKind::Unlinked => reqwest_middleware::Error::middleware(NoCase { source: error }),
        _ => reqwest_middleware::Error::middleware(error),
    }
}

fn unwrap(source: BoxError) -> reqwest_middleware::Error {
    match source.downcast::<Inner>() {
        Ok(inner) => inner.0,
        Err(source) => match source.downcast::<reqwest::Error>() {
            Ok(error) => (*error).into(),
            Err(other) => reqwest_middleware::Error::middleware(Other(other)),
        },
    }
}

/// reqwest's error around ours. It has no constructor for others: one comes out of a body that fails.
async fn as_reqwest(error: Error) -> reqwest_middleware::Error {
    match reqwest::Body::wrap(Failing(Some(error))).frame().await {
        Some(Err(error)) => error.into(),
        _ => reqwest_middleware::Error::middleware(NoCause),
    }
}

struct Failing(Option<Error>);

impl http_body::Body for Failing {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        Poll::Ready(self.0.take().map(Err))
    }
}

#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct Other(BoxError);

#[derive(Debug, thiserror::Error)]
#[error("the request failed, and nothing says why")]
struct NoCause;
