use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use attempt_ledger_core::{Digest, Effect, FingerprintBuilder, Slot};
use bytes::{Buf, Bytes};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{Empty, Full};
use pin_project_lite::pin_project;

use crate::{
    score::GradingScope,
    sync::{Mutex, lock},
};

/// Names what is being measured: put one into a request's extensions above the stack.
///
/// ```
/// use attempt_ledger::{Case, CaseId, RunId, Slot};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let slot = Slot::new(RunId::new("nightly-7")?, CaseId::new("case-7")?);
/// let mut request = http::Request::post("http://127.0.0.1:8080/v1/chat/completions").body("{}")?;
/// request.extensions_mut().insert(Case::new(slot));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Case {
    pub(crate) slot: Slot,
    pub(crate) fixture: Option<Digest>,
    pub(crate) effect: Option<Effect>,
    pub(crate) key: Option<(HeaderName, HeaderValue)>,
    /// The grading that makes the request, where a grader does.
    pub(crate) scope: Option<GradingScope>,
}

impl Case {
    /// The case of this slot.
    pub fn new(slot: Slot) -> Self {
        Case { slot, fixture: None, effect: None, key: None, scope: None }
    }

    /// The slot its attempts count in.
    pub fn slot(&self) -> &Slot {
        &self.slot
    }

    /// Pins the fixture by its SHA-256: another one in the same slot is an error.
    #[must_use]
    pub fn fixture(self, fixture: Digest) -> Self {
        Case { fixture: Some(fixture), ..self }
    }

    /// States what a repeat would do, instead of what the request tells.
    #[must_use]
    pub fn effect(self, effect: Effect) -> Self {
        Case { effect: Some(effect), ..self }
    }

    /// Sends `key` as the header `idempotency-key` on every attempt, marked sensitive, and makes the
    /// effect [`Effect::Idempotent`]: for servers that promise to do the work once for a key. The
    /// ledger keeps its hash only.
    ///
    /// # Errors
    /// When the key is no header value.
    pub fn idempotency_key(self, key: &str) -> Result<Self, http::header::InvalidHeaderValue> {
        self.idempotency_key_in(HeaderName::from_static("idempotency-key"), key)
    }

    /// As [`Case::idempotency_key`], in another header.
    ///
    /// # Errors
    /// When the key is no header value.
    pub fn idempotency_key_in(
        self,
        header: HeaderName,
        key: &str,
    ) -> Result<Self, http::header::InvalidHeaderValue> {
        let mut value = HeaderValue::from_str(key)?;
        value.set_sensitive(true);
        Ok(Case { effect: Some(Effect::idempotent(key)), key: Some((header, value)), ..self })
    }
}

/// How a request carries what the layers hand down to each other.
///
/// Implemented for [`http::Request`] by its extensions. A client whose requests are opaque
/// implements it for its own type, and [`LedgerRequest`] with it.
pub trait CarryCase {
    /// A copy of the value of this type, if there is one.
    fn carried<T: Clone + Send + Sync + 'static>(&self) -> Option<T>;

    /// Sets the value of this type.
    fn carry<T: Clone + Send + Sync + 'static>(&mut self, value: T);

    /// Takes the value of this type out, where that can be done; else copies it.
    fn take<T: Clone + Send + Sync + 'static>(&mut self) -> Option<T> {
        self.carried()
    }

    /// The headers it is sent with; `None` where they are not at hand, so that neither a call's name
    /// nor an idempotency key can be put there.
    fn headers_mut(&mut self) -> Option<&mut HeaderMap> {
        None
    }

    /// Host and port it is sent to, without userinfo; `None` is not paced.
    fn host(&self) -> Option<&str> {
        None
    }

    /// The fingerprint of what would be sent; `None` where it is not known, which is never a hit
    /// when finished work is skipped.
    fn fingerprint(&self, epoch: u32) -> Option<Digest> {
        let _ = epoch;
        None
    }
}

/// A request that a [`LedgerLayer`](crate::LedgerLayer) can open an attempt for.
///
/// An opaque one, of which nothing is known before it is sent, needs no more than an empty
/// implementation. It counts as one that writes, and has no fingerprint, no model and no host; its
/// answers are decoded by the wire that the layer is given.
///
/// ```
/// use attempt_ledger::{CarryCase, LedgerRequest};
///
/// /// Makes the request anew each time that it is sent.
/// #[derive(Clone)]
/// struct Factory {
///     make: fn() -> http::Request<String>,
///     extensions: http::Extensions,
/// }
///
/// impl CarryCase for Factory {
///     fn carried<T: Clone + Send + Sync + 'static>(&self) -> Option<T> {
///         self.extensions.get().cloned()
///     }
///     fn carry<T: Clone + Send + Sync + 'static>(&mut self, value: T) {
///         self.extensions.insert(value);
///     }
/// }
/// impl LedgerRequest for Factory {}
/// ```
pub trait LedgerRequest: CarryCase {
    /// What is known of it before it is sent; `None` for an opaque request.
    fn view(&self) -> Option<RequestView<'_>> {
        None
    }
}

/// What is known of a request before it is sent.
#[derive(Clone, Debug)]
pub struct RequestView<'a> {
    /// Its method.
    pub method: &'a Method,
    /// Where it goes.
    pub uri: &'a Uri,
    /// Its headers.
    pub headers: &'a HeaderMap,
    /// All of its body, if that is at hand.
    pub body: Option<Bytes>,
    /// The digest that will be known when its body has been sent.
    pub sent: Option<SentHash>,
}

impl<B: RequestBody> CarryCase for Request<B> {
    fn carried<T: Clone + Send + Sync + 'static>(&self) -> Option<T> {
        self.extensions().get().cloned()
    }

    fn carry<T: Clone + Send + Sync + 'static>(&mut self, value: T) {
        self.extensions_mut().insert(value);
    }

    fn take<T: Clone + Send + Sync + 'static>(&mut self) -> Option<T> {
        self.extensions_mut().remove()
    }

    fn headers_mut(&mut self) -> Option<&mut HeaderMap> {
        Some(self.headers_mut())
    }

    fn host(&self) -> Option<&str> {
        crate::ledger::host_of(self.uri(), self.headers())
    }

    fn fingerprint(&self, epoch: u32) -> Option<Digest> {
        crate::ledger::fingerprint_of(&self.view()?, epoch)
    }
}

impl<B: RequestBody> LedgerRequest for Request<B> {
    fn view(&self) -> Option<RequestView<'_>> {
        let body = self.body().bytes();
        let sent = if body.is_none() { self.body().sent() } else { None };
        let (method, uri, headers) = (self.method(), self.uri(), self.headers());
        Some(RequestView { method, uri, headers, body, sent })
    }
}

/// A request body that can be read before it is sent.
///
/// What it says makes the fingerprint, the model's name and the effect of a repeat. A body that is
/// streamed says `None`: its request counts as one that writes, and is never skipped. Wrap it in
/// [`HashWhileSent`] to have its fingerprint all the same.
pub trait RequestBody {
    /// All of the body, if it is at hand.
    fn bytes(&self) -> Option<Bytes>;

    /// The digest that will be known when the body has been sent.
    fn sent(&self) -> Option<SentHash> {
        None
    }
}

impl RequestBody for Bytes {
    fn bytes(&self) -> Option<Bytes> {
        Some(self.clone())
    }
}

impl RequestBody for String {
    fn bytes(&self) -> Option<Bytes> {
        Some(Bytes::copy_from_slice(self.as_bytes()))
    }
}

impl RequestBody for &'static str {
    fn bytes(&self) -> Option<Bytes> {
        Some(Bytes::from_static(self.as_bytes()))
    }
}

impl RequestBody for () {
    fn bytes(&self) -> Option<Bytes> {
        Some(Bytes::new())
    }
}

impl<D: Buf> RequestBody for Empty<D> {
    fn bytes(&self) -> Option<Bytes> {
        Some(Bytes::new())
    }
}

impl RequestBody for Full<Bytes> {
    fn bytes(&self) -> Option<Bytes> {
        Some(self.clone().into_inner().unwrap_or_default())
    }
}

impl RequestBody for hyper::body::Incoming {
    fn bytes(&self) -> Option<Bytes> {
        None
    }
}

impl<D, E> RequestBody for http_body_util::combinators::BoxBody<D, E> {
    fn bytes(&self) -> Option<Bytes> {
        None
    }
}

impl<D, E> RequestBody for http_body_util::combinators::UnsyncBoxBody<D, E> {
    fn bytes(&self) -> Option<Bytes> {
        None
    }
}

/// The fingerprint of a request whose body is streamed: there once all of it has been sent.
#[derive(Clone, Default)]
pub struct SentHash(Arc<Mutex<Sending>>);

impl fmt::Debug for SentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SentHash").field(&self.get()).finish()
    }
}

#[derive(Default)]
enum Sending {
    /// No ledger has seen the request yet.
    #[default]
    Unseen,
    Hashing(FingerprintBuilder),
    Sent(Digest),
}

impl SentHash {
    /// The fingerprint, once the last byte was handed to the transport beneath a ledger.
    pub fn get(&self) -> Option<Digest> {
        match &*lock(&self.0) {
            Sending::Sent(digest) => Some(*digest),
            _ => None,
        }
    }

    pub(crate) fn start(&self, builder: FingerprintBuilder) {
        *lock(&self.0) = Sending::Hashing(builder);
    }

    fn update(&self, piece: &[u8]) {
        if let Sending::Hashing(builder) = &mut *lock(&self.0) {
            builder.update(piece);
        }
    }

    fn finish(&self) {
        let mut state = lock(&self.0);
        *state = match std::mem::take(&mut *state) {
            Sending::Hashing(builder) => Sending::Sent(builder.finish()),
            other => other,
        };
    }
}

pin_project! {
    /// A streamed request body that is hashed while it is sent.
    pub struct HashWhileSent<B> {
        #[pin]
        inner: B,
        sent: SentHash,
    }
}

impl<B> HashWhileSent<B> {
    /// Wraps `inner`.
    pub fn new(inner: B) -> Self {
        HashWhileSent { inner, sent: SentHash::default() }
    }
}

impl<B> fmt::Debug for HashWhileSent<B> {
    /// Without the body: it holds the prompt.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HashWhileSent").field("sent", &self.sent.get()).finish_non_exhaustive()
    }
}

impl<B> RequestBody for HashWhileSent<B> {
    fn bytes(&self) -> Option<Bytes> {
        None
    }

    fn sent(&self) -> Option<SentHash> {
        Some(self.sent.clone())
    }
}

impl<B: Body<Data = Bytes>> Body for HashWhileSent<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.inner.as_mut().poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            this.sent.update(data);
        }
        if frame.is_none() || this.inner.is_end_stream() {
            this.sent.finish();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
