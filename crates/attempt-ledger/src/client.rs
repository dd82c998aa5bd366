use std::{
    error::Error as StdError,
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use attempt_ledger_core::{Gates, RunId};
use attempt_ledger_store::{Archive, Ledger};
use attempt_ledger_wire::Wire;
use bytes::Bytes;
use http::{HeaderName, header};
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{
        Client,
        connect::{
            HttpConnector,
            dns::{GaiAddrs, GaiFuture, GaiResolver, Name},
        },
    },
    rt::{TokioExecutor, TokioTimer},
};
use tower::{
    ServiceBuilder,
    layer::{Layer, util::Identity},
    retry::RetryLayer,
};
use tower_http::{
    follow_redirect::FollowRedirect,
    sensitive_headers::{SetSensitiveRequestHeaders, SetSensitiveRequestHeadersLayer},
};
use tower_service::Service;

use crate::{
    BoxError, CallLayer, CallService, Check, Clocks, LedgerLayer, LedgerRetry, LedgerService,
    OnLedgerError, Pacer, RedirectPolicy, ScoreLayer, ScoreService, redirect_layer,
};

/// The layers in their order over any inner service.
pub type Stack<S> = CallService<tower::retry::Retry<LedgerRetry, ScoreService<LedgerService<S>>>>;

/// hyper-util's client with rustls, redirects followed within an attempt, and credentials marked
/// sensitive.
pub type Transport = SetSensitiveRequestHeaders<
    FollowRedirect<Client<HttpsConnector<HttpConnector<Resolver>>, Full<Bytes>>, RedirectPolicy>,
>;

/// The whole stack that [`ClientBuilder::build`] makes.
pub type HttpClient = Stack<Transport>;

/// Starts a client: the whole stack in the right order, over hyper-util with rustls.
///
/// ```no_run
/// use attempt_ledger::{client, Case, CaseId, Clocks, Ledger, RunId, Slot};
/// use http_body_util::{BodyExt, Full};
/// use std::time::Duration;
/// use tower::ServiceExt;
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// let ledger = Ledger::memory();
/// let client = client(ledger.clone())
///     .clocks(Clocks::default().idle(Duration::from_secs(20)))
///     .attempts(3)
///     .build()?;
/// let mut request = http::Request::post("http://127.0.0.1:8080/v1/chat/completions")
///     .header("content-type", "application/json")
///     .body(Full::from(r#"{"model":"m","messages":[{"role":"user","content":"ping"}]}"#))?;
/// request.extensions_mut().insert(Case::new(Slot::new(RunId::new("r")?, CaseId::new("c")?)));
/// let response = client.oneshot(request).await?;
/// let answer = response.into_body().collect().await?.to_bytes();
/// # let _ = answer;
/// # Ok(())
/// # }
/// ```
pub fn client(ledger: Ledger) -> ClientBuilder {
    ClientBuilder {
        call: CallLayer::new(),
        retry: LedgerRetry::new(),
        score: ScoreLayer::none(),
        ledger: LedgerLayer::new(ledger),
        connect: Duration::from_secs(10),
        roots: None,
        #[cfg(feature = "http2")]
        http2: Http2::Off,
    }
}

/// Whether a client speaks HTTP/2: see [`ClientBuilder::http2`].
#[cfg(feature = "http2")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Http2 {
    /// HTTP/1.1 only.
    #[default]
    Off,
    /// Where the server takes it in the TLS handshake (ALPN), else HTTP/1.1.
    Negotiated,
    /// Always, over `http` too, as it is known that the server speaks it.
    PriorKnowledge,
}

/// Settings of the whole stack. Made by [`client`].
#[derive(Debug)]
pub struct ClientBuilder {
    call: CallLayer,
    retry: LedgerRetry,
    score: ScoreLayer,
    ledger: LedgerLayer,
    connect: Duration,
    roots: Option<rustls::RootCertStore>,
    #[cfg(feature = "http2")]
    http2: Http2,
}

impl ClientBuilder {
    /// The clocks of each attempt.
    #[must_use]
    pub fn clocks(self, clocks: Clocks) -> Self {
        ClientBuilder { ledger: self.ledger.clocks(clocks), ..self }
    }

    /// How much of a response the retry policy sees.
    #[must_use]
    pub fn gates(self, gates: Gates) -> Self {
        ClientBuilder { ledger: self.ledger.gates(gates), ..self }
    }

    /// Attempts of one call, at most; 3 unless set.
    #[must_use]
    pub fn attempts(self, attempts: u32) -> Self {
        ClientBuilder { call: self.call.attempts(attempts), ..self }
    }

    /// Wall time of one call; 900 seconds unless set.
    #[must_use]
    pub fn budget(self, budget: Duration) -> Self {
        ClientBuilder { call: self.call.budget(budget), ..self }
    }

    /// The retry policy.
    #[must_use]
    pub fn retry(self, retry: LedgerRetry) -> Self {
        ClientBuilder { retry, ..self }
    }

    /// The grader of ordinal one.
    #[must_use]
    pub fn score(self, score: ScoreLayer) -> Self {
        ClientBuilder { score, ..self }
    }

    /// Makes content that would be `ok` `off_target` when `check` fails: see [`LedgerLayer::check`].
    #[must_use]
    pub fn check(self, check: impl Check) -> Self {
        ClientBuilder { ledger: self.ledger.check(check), ..self }
    }

    /// Does not repeat finished work: see [`CallLayer::skip_finished`].
    #[must_use]
    pub fn skip_finished(self, ledger: Ledger) -> Self {
        ClientBuilder { call: self.call.skip_finished(ledger), ..self }
    }

    /// Gives a request that carries no case an id of its own within `run`, so that its attempts are
    /// rows all the same. Only this builder offers it, since it cannot put the layers in the wrong
    /// order: an id made beneath a retry would make every attempt a first one.
    #[must_use]
    pub fn automatic_cases(self, run: RunId) -> Self {
        ClientBuilder { call: self.call.automatic_cases(run), ..self }
    }

    /// Waits for hosts by this pacer: see [`CallLayer::pacing`].
    #[must_use]
    pub fn pacing(self, pacer: Pacer) -> Self {
        ClientBuilder { call: self.call.pacing(pacer), ..self }
    }

    /// Waits for no host before a call: see [`CallLayer::no_pacing`].
    #[must_use]
    pub fn no_pacing(self) -> Self {
        ClientBuilder { call: self.call.no_pacing(), ..self }
    }

    /// Records requests without a case as unlinked attempts: see [`LedgerLayer::allow_unlinked`].
    #[must_use]
    pub fn allow_unlinked(self, allow: bool) -> Self {
        ClientBuilder {
            call: self.call.allow_unlinked(allow),
            ledger: self.ledger.allow_unlinked(allow),
            ..self
        }
    }

    /// The wire that decodes every answer, instead of the one that the path tells.
    #[must_use]
    pub fn wire(self, wire: Wire) -> Self {
        ClientBuilder { ledger: self.ledger.wire(wire), ..self }
    }

    /// Takes the wire's done marker for a stop reason.
    #[must_use]
    pub fn accept_done(self, accept: bool) -> Self {
        ClientBuilder { ledger: self.ledger.accept_done(accept), ..self }
    }

    /// What happens when the ledger cannot record.
    #[must_use]
    pub fn on_ledger_error(self, choice: OnLedgerError) -> Self {
        ClientBuilder { ledger: self.ledger.on_ledger_error(choice), ..self }
    }

    /// How long an acknowledgement of the ledger is awaited; 10 seconds unless set.
    #[must_use]
    pub fn ack_limit(self, limit: Duration) -> Self {
        ClientBuilder { ledger: self.ledger.ack_limit(limit), ..self }
    }

    /// Keeps the answers in `archive`: see [`LedgerLayer::archive`].
    #[must_use]
    pub fn archive(self, archive: Archive) -> Self {
        ClientBuilder { ledger: self.ledger.archive(archive), ..self }
    }

    /// How long connecting may take; 10 seconds unless set.
    #[must_use]
    pub fn connect_timeout(self, limit: Duration) -> Self {
        ClientBuilder { connect: limit, ..self }
    }

    /// The certificates that are trusted, instead of the system's.
    #[must_use]
    pub fn roots(self, roots: rustls::RootCertStore) -> Self {
        ClientBuilder { roots: Some(roots), ..self }
    }

    /// Whether HTTP/2 is spoken; off unless set.
    ///
    /// No request is sent twice over it either: one that was refused, or that its connection never
    /// took, is an error with the remote side `not_reached`, for the retry policy above to repeat.
    #[cfg(feature = "http2")]
    #[must_use]
    pub fn http2(self, http2: Http2) -> Self {
        ClientBuilder { http2, ..self }
    }

    /// The longest that a call can take, whatever happens: its budget, the acknowledgements that may
    /// still be awaited then (the opening, the closing, the archive's and the grade's) and the grader's
    /// limit.
    ///
    /// For calls whose responses are held whole; under another gate the reader sets the pace after
    /// the response was handed up.
    pub fn worst_case(&self) -> Duration {
        let acks = if self.ledger.is_archived() { 4 } else { 3 };
        let acks = self.ledger.limit_of_ack().saturating_mul(acks);
        self.call.limit_of_budget().saturating_add(acks).saturating_add(self.score.limit())
    }

    /// The stack over an inner service of one's own. It must not retry by itself.
    pub fn build_on<S>(self, inner: S) -> Stack<S> {
        ServiceBuilder::new()
            .layer(self.call)
            .layer(RetryLayer::new(self.retry))
            .layer(self.score)
            .layer(self.ledger)
            .service(inner)
    }

    /// The stack over hyper-util with rustls: one connection pool, HTTP/1.1 (and HTTP/2 with the
    /// feature of that name, when asked for), no hidden resends.
    ///
    /// What is still tried more than once within an attempt never carries a byte of the request: the
    /// addresses of a name one after another, and a new connection beside the wait for a pooled one.
    ///
    /// Where the system has no certificates `https` fails in its handshake and `http` works; give
    /// [`roots`](Self::roots) then.
    ///
    /// # Errors
    /// When rustls cannot be set up.
    pub fn build(self) -> Result<HttpClient, ClientError> {
        self.build_through(&Identity::new())
    }

    /// As [`build`](Self::build), with a layer of one's own between the ledger and the client, as for
    /// tracing. It sees every attempt, and must not retry.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn build_through<L: Layer<Transport>>(
        mut self,
        layer: &L,
    ) -> Result<Stack<L::Service>, ClientError> {
        self.ledger = self.ledger.list_redirects(true);
        let mut http = HttpConnector::new_with_resolver(Resolver(GaiResolver::new()));
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_connect_timeout(Some(self.connect));
        let https =
            HttpsConnectorBuilder::new().with_tls_config(tls(self.roots.take())?).https_or_http();
        let mut client = Client::builder(TokioExecutor::new());
        #[cfg(feature = "http2")]
        let https = {
            client.http2_only(self.http2 == Http2::PriorKnowledge);
            match self.http2 {
                Http2::Off => https.enable_http1().wrap_connector(http),
                Http2::Negotiated => https.enable_all_versions().wrap_connector(http),
                Http2::PriorKnowledge => https.enable_http2().wrap_connector(http),
            }
        };
        #[cfg(not(feature = "http2"))]
        let https = https.enable_http1().wrap_connector(http);
        // Resending what was never written would be an attempt without a row.
        let client = client
            .retry_canceled_requests(false)
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(60))
            .build(https);
        let transport = ServiceBuilder::new()
            .layer(SetSensitiveRequestHeadersLayer::from_shared(credentials()))
            .layer(redirect_layer())
            .service(client);
        Ok(self.build_on(layer.layer(transport)))
    }
}

/// Headers that hold credentials.
fn credentials() -> Arc<[HeaderName]> {
    [
        header::AUTHORIZATION,
        header::PROXY_AUTHORIZATION,
        header::COOKIE,
        HeaderName::from_static("api-key"),
        HeaderName::from_static("x-api-key"),
        HeaderName::from_static("x-goog-api-key"),
    ]
    .into()
}

fn tls(roots: Option<rustls::RootCertStore>) -> Result<rustls::ClientConfig, ClientError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| ClientError(e.into()))?;
    let roots = roots.unwrap_or_else(|| {
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        roots
    });
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// Why a client could not be built.
#[derive(Debug)]
pub struct ClientError(BoxError);

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TLS could not be set up")
    }
}

impl StdError for ClientError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.0)
    }
}

/// A name could not be resolved. Its type tells it from a connection that was refused, which the
/// resolver's own error does not.
#[derive(Debug)]
pub struct DnsError(BoxError);

impl fmt::Display for DnsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the host's name could not be resolved")
    }
}

impl StdError for DnsError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.0)
    }
}

/// The system's resolver, with errors that can be told by type.
#[derive(Clone, Debug)]
pub struct Resolver(GaiResolver);

impl Service<Name> for Resolver {
    type Response = GaiAddrs;
    type Error = DnsError;
    type Future = Resolving;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), DnsError>> {
        self.0.poll_ready(cx).map_err(|e| DnsError(e.into()))
    }

    fn call(&mut self, name: Name) -> Resolving {
        Resolving(self.0.call(name))
    }
}

/// The future of a [`Resolver`].
pub struct Resolving(GaiFuture);

impl Future for Resolving {
    type Output = Result<GaiAddrs, DnsError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(ready!(Pin::new(&mut self.0).poll(cx)).map_err(|e| DnsError(e.into())))
    }
}

impl fmt::Debug for Resolving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolving").finish_non_exhaustive()
    }
}
