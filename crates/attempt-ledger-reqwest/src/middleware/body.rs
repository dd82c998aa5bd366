use std::{
    pin::Pin,
    task::{Context, Poll, Waker},
};

use attempt_ledger::{HashWhileSent, SentHash};
use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};

/// A request body as reqwest had it.
#[derive(Debug, Default)]
pub(super) enum Body {
    #[default]
    Absent,
    Whole(Bytes),
    Streamed(Box<HashWhileSent<reqwest::Body>>),
}

impl Body {
    pub(super) fn of(body: Option<reqwest::Body>) -> Self {
        let Some(mut body) = body else { return Body::Absent };
        if body.as_bytes().is_none() {
            return Body::Streamed(Box::new(HashWhileSent::new(body)));
        }
        // What is at hand comes in one frame at once, and is not copied for it.
        let mut cx = Context::from_waker(Waker::noop());
        match Pin::new(&mut body).poll_frame(&mut cx) {
            Poll::Ready(Some(Ok(frame))) => Body::Whole(frame.into_data().unwrap_or_default()),
            _ => Body::Whole(Bytes::new()),
        }
    }

    pub(super) fn into_reqwest(self) -> Option<reqwest::Body> {
        match self {
            Body::Absent => None,
            Body::Whole(bytes) => Some(bytes.into()),
            Body::Streamed(body) => Some(reqwest::Body::wrap(*body)),
        }
    }

    /// The same body once more; `None` for one that is streamed.
    pub(super) fn again(&self) -> Option<Self> {
        match self {
            Body::Absent => Some(Body::Absent),
            Body::Whole(bytes) => Some(Body::Whole(bytes.clone())),
            Body::Streamed(_) => None,
        }
    }
}

impl attempt_ledger::RequestBody for Body {
    fn bytes(&self) -> Option<Bytes> {
        match self {
            Body::Absent => Some(Bytes::new()),
            Body::Whole(bytes) => Some(bytes.clone()),
            Body::Streamed(_) => None,
        }
    }

    fn sent(&self) -> Option<SentHash> {
        match self {
            Body::Streamed(body) => body.sent(),
            _ => None,
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = reqwest::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, reqwest::Error>>> {
        match &mut *self {
            Body::Absent => Poll::Ready(None),
            Body::Whole(bytes) => {
                let all = std::mem::take(bytes);
                Poll::Ready((!all.is_empty()).then(|| Ok(Frame::data(all))))
            }
            Body::Streamed(body) => Pin::new(&mut **body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Body::Absent => true,
            Body::Whole(bytes) => bytes.is_empty(),
            Body::Streamed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Absent => SizeHint::with_exact(0),
            Body::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Body::Streamed(body) => body.size_hint(),
        }
    }
}
