use std::{
    fmt,
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
};

use attempt_ledger::{
    Attempt, BoxError, Call, Case, Cause, Error, Ledger, LedgerLayer, ResponseBody, ScoreLayer,
};
use http::{Extensions, Request, Response};
use reqwest_middleware::{Middleware, Next};
use tower_http::follow_redirect::FollowRedirect;
use tower_layer::Layer;
use tower_service::Service;

use super::{
    body::Body,
    error::{Misplaced, give_back},
    redirects::Redirects,
    rest::{Borrowed, Copies, Rest},
};
use crate::convert::Asked;

/// Beneath the retry of a reqwest-middleware client: every request that passes is an attempt with a row
/// of its own, opened before it is sent and closed before the retry learns how it ended. Register it
/// **after** the retry middleware.
///
/// The case is the [`Case`] in the request's extensions (`with_extension`), or that of the call which a
/// [`CallMiddleware`](crate::CallMiddleware) above the retry made of it; a request without one is
/// refused with [`NoCase`](crate::NoCase), and nothing is sent. The [`Attempt`] is in the extensions of
/// the response, and of whoever called `execute_with_extensions`.
///
/// What goes up is what goes up without it. The response is reqwest's, with its URL, remote address,
/// version, headers, content length and streaming body; an error of the transport is the same error. A
/// response that breaks while it is held stays a response whose body ends in the fault: its row tells
/// the verdict, and [`RetryMiddleware`](crate::RetryMiddleware) retries by it. A clock that expires
/// before that is an error of reqwest's which answers `is_timeout()`, and so does the body of one that
/// expires later.
///
/// A retry beneath it is found by the second copy that is made of a request: its call fails with
/// [`Misplaced`](crate::Misplaced), and its row is `abandoned`. What the client beneath does by itself
/// has no row: make it by [`client_builder`](crate::client_builder). Where one follows redirects all the
/// same, the row lists where it ended among its hops.
///
/// ```no_run
/// use attempt_ledger_reqwest::{CallMiddleware, LedgerMiddleware, RetryMiddleware, client_builder};
/// use attempt_ledger_reqwest::attempt_ledger::{Case, CaseId, Ledger, LedgerRetry, RunId, Slot};
/// use reqwest_middleware::ClientBuilder;
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let client = ClientBuilder::new(client_builder().build()?)
///     .with(CallMiddleware::new())
///     .with(RetryMiddleware::new(LedgerRetry::new())) // or reqwest-retry's
///     .with(LedgerMiddleware::new(Ledger::memory()))
///     .build();
/// let case = Case::new(Slot::new(RunId::new("nightly-7")?, CaseId::new("case-7")?));
/// let response = client.post("http://127.0.0.1:8080/v1/chat/completions").with_extension(case).send().await?;
/// # let _ = response;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct LedgerMiddleware {
    ledger: LedgerLayer,
    score: ScoreLayer,
    follow: bool,
}

impl LedgerMiddleware {
    /// With the settings of a new [`LedgerLayer`], and nothing graded.
    pub fn new(ledger: Ledger) -> Self {
        LedgerLayer::new(ledger).into()
    }

    /// Grades ordinal one.
    #[must_use]
    pub fn score(self, score: ScoreLayer) -> Self {
        LedgerMiddleware { score, ..self }
    }

    /// Follows redirects within the attempt, by the rules of
    /// [`RedirectPolicy`](attempt_ledger::RedirectPolicy): 307 and 308, within the same origin, at most
    /// 5, and only bodies that are at hand. Off unless set; for clients that follow none by themselves.
    #[must_use]
    pub fn follow_redirects(self, follow: bool) -> Self {
        LedgerMiddleware { follow, ..self }
    }

    /// Hands up a fault that came while a response was held as an error of the request, and not as one
    /// of the response's body: for retry strategies that look at errors alone.
    #[must_use]
    pub fn faults_as_errors(self, as_errors: bool) -> Self {
        LedgerMiddleware { ledger: self.ledger.hand_up_broken(!as_errors), ..self }
    }
}

impl From<LedgerLayer> for LedgerMiddleware {
    /// With the clocks, gates, checks and the rest of this layer.
    fn from(ledger: LedgerLayer) -> Self {
        let ledger = ledger.list_redirects(true).hand_up_broken(true);
        LedgerMiddleware { ledger, score: ScoreLayer::none(), follow: false }
    }
}

impl fmt::Debug for LedgerMiddleware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LedgerMiddleware")
            .field("ledger", &self.ledger)
            .field("follow_redirects", &self.follow)
            .finish_non_exhaustive()
    }
}

#[async_trait::async_trait]
impl Middleware for LedgerMiddleware {
    async fn handle(
        &self,
        mut request: reqwest::Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<reqwest::Response> {
        extensions.remove::<Attempt>();
        let url = request.url().clone();
        let body = Body::of(request.body_mut().take());
        let mut request = Request::<reqwest::Body>::try_from(request)?.map(|_| body);
        let asked = Asked::new(url, request.uri().clone());
        request.extensions_mut().insert(asked);
        carry::<Call>(extensions, &mut request);
        carry::<Case>(extensions, &mut request);
        carry::<Cause>(extensions, &mut request);

        let result = {
            let borrowed = Borrowed::new(extensions);
            let copies = Copies::default();
            let rest = Rest { next, extensions: borrowed.shared.clone(), copies: copies.clone() };
            if self.follow {
                self.send(FollowRedirect::with_policy(rest, Redirects::default()), request, &copies)
                    .await
            } else {
                self.send(rest, request, &copies).await
            }
        };
        match result {
            None => Err(reqwest_middleware::Error::middleware(Misplaced)),
            Some(Ok(response)) => {
                if let Some(attempt) = Attempt::of(&response) {
                    extensions.insert(attempt.clone());
                }
                Ok(response.map(reqwest::Body::wrap).into())
            }
            Some(Err(error)) => {
                if let Some(attempt) = error.attempt() {
                    extensions.insert(attempt.clone());
                }
                Err(give_back(error).await)
            }
        }
    }
}

type Answer = Result<Response<ResponseBody<reqwest::Body>>, Error>;

impl LedgerMiddleware {
    /// One attempt; `None` when it became more than one request, and was dropped.
    async fn send<S>(&self, rest: S, request: Request<Body>, copies: &Copies) -> Option<Answer>
    where
        S: Service<Request<Body>, Response = Response<reqwest::Body>> + Clone,
        S::Error: Into<BoxError>,
    {
        let mut service = self.score.layer(self.ledger.layer(rest));
        if let Err(error) = poll_fn(|cx| service.poll_ready(cx)).await {
            return Some(Err(error));
        }
        let mut future = pin!(service.call(request));
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending if copies.are_many() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
        .await
    }
}

/// What the caller said goes with each request that is made for it.
fn carry<T: Clone + Send + Sync + 'static>(from: &Extensions, to: &mut Request<Body>) {
    if let Some(value) = from.get::<T>() {
        to.extensions_mut().insert(value.clone());
    }
}
