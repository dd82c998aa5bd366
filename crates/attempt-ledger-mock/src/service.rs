use std::{
    error::Error,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response, Uri, Version, header, uri::PathAndQuery};
use http_body::Body;
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::{runtime::Handle, task::JoinHandle};
use tower_service::Service;

use crate::{MockError, Received, Script, Step, desk::Desk, error::Kind, exchange, pipe::pipe};

/// A script as a tower service: a real hyper client, on a connection in memory.
///
/// Errors, framing and bodies are hyper's own. No socket is used and no time but tokio's, so a
/// test with a paused clock plays stalls of hours at once. Every call has a connection of its own,
/// and dropping the response future, or the response's body, ends it; dropping the service does
/// not, so that a body outlives the service it came from.
///
/// Clones share the script and the counters. A call takes its step when its future is first
/// polled, or when its request was read if the script is [`by_case`](Script::by_case). Calls need
/// a tokio runtime with its time enabled.
///
/// ```
/// use attempt_ledger_mock::{MockService, Script, Step};
/// use http_body_util::{BodyExt, Empty};
/// use tower::{Service, ServiceExt};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut service = MockService::new(Script::new([Step::Reset]).then(Step::Good.text("42")));
/// let request = || http::Request::post("http://model.test/v1/chat/completions")
///     .body(Empty::<bytes::Bytes>::new());
///
/// let error = service.call(request()?).await.unwrap_err();
/// assert!(error.hyper().is_some());
///
/// let answer = service.call(request()?).await?.into_body().collect().await?.to_bytes();
/// assert!(std::str::from_utf8(&answer)?.contains("42"));
/// assert_eq!(service.requests(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct MockService {
    desk: Arc<Desk>,
}

/// What a call of the [`MockService`] awaits.
pub type MockFuture =
    Pin<Box<dyn Future<Output = Result<Response<Incoming>, MockError>> + Send + 'static>>;

impl MockService {
    /// A service that plays this script.
    pub fn new(script: Script) -> Self {
        MockService { desk: Desk::new(script) }
    }

    /// The requests that were read whole, in that order (the first 65,536 and 256 MiB of them).
    pub fn received(&self) -> Vec<Received> {
        self.desk.received()
    }

    /// How many requests were read whole.
    pub fn requests(&self) -> usize {
        self.desk.requests()
    }

    /// How many connections were refused; their requests were not received.
    pub fn refused(&self) -> usize {
        self.desk.refused()
    }

    /// How many connections were made.
    pub fn connections(&self) -> usize {
        self.desk.connections()
    }

    /// How many exchanges are going on, from the first byte of a request to its answer's end.
    pub fn open(&self) -> usize {
        self.desk.open()
    }

    /// Waits until no exchange is going on.
    pub async fn idle(&self) {
        self.desk.idle().await;
    }

    /// Calls `hook` with every request when it was read whole, before a byte of its answer.
    ///
    /// This is the place to look at what must be on disk before a request is sent. One hook at a
    /// time; a later one takes its place. It runs on the connection's task, and a panic in it only
    /// breaks the connection: keep what it saw, and assert in the test.
    pub fn on_request(&self, hook: impl Fn(&Received) + Send + Sync + 'static) {
        self.desk.on_request(Arc::new(hook));
    }

    /// Calls `hook` with the connection's number when the first byte of a request was read.
    pub fn on_first_byte(&self, hook: impl Fn(usize) + Send + Sync + 'static) {
        self.desk.on_first_byte(Arc::new(hook));
    }
}

impl<B> Service<Request<B>> for MockService
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Response = Response<Incoming>;
    type Error = MockError;
    type Future = MockFuture;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), MockError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> MockFuture {
        Box::pin(exchange_one(Arc::clone(&self.desk), request))
    }
}

async fn exchange_one<B>(
    desk: Arc<Desk>,
    request: Request<B>,
) -> Result<Response<Incoming>, MockError>
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let runtime = Handle::try_current().map_err(Kind::NoRuntime)?;
    let pick = desk.pick_unread();
    if pick.as_ref().is_some_and(|pick| pick.play.step == Step::Refuse) {
        desk.count_refusal();
        return Err(MockError::refused());
    }
    let (client, server, refused) = pipe();
    let number = desk.connect();
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(client)).await.map_err(Kind::Hyper)?;
    // Both sides in one task: when the client's ends, its end of the pipe is dropped, and the
    // server's sees it and ends too.
    let serve = exchange::serve(desk, server, number, pick);
    let task = runtime.spawn(async move { tokio::join!(connection, serve) });
    let guard = AbortOnDrop(Some(task));
    match sender.send_request(origin_form(request)).await {
        Ok(response) => {
            // From here on hyper ends the connection when the body is read or dropped.
            guard.release();
            Ok(response)
        }
        Err(_) if refused.get() => Err(MockError::refused()),
        Err(error) => Err(Kind::Hyper(error).into()),
    }
}

/// A connection carries the path and the host apart; a client's request has them in its URI.
fn origin_form<B>(mut request: Request<B>) -> Request<B> {
    *request.version_mut() = Version::HTTP_11;
    let uri = std::mem::take(request.uri_mut());
    if let Some(authority) = uri.authority()
        && !request.headers().contains_key(header::HOST)
        && let Ok(host) = authority.as_str().parse()
    {
        request.headers_mut().insert(header::HOST, host);
    }
    *request.uri_mut() =
        Uri::from(uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/")));
    request
}

/// Ends the task of a call whose future was dropped before its response.
struct AbortOnDrop<T>(Option<JoinHandle<T>>);

impl<T> AbortOnDrop<T> {
    fn release(mut self) {
        self.0 = None;
    }
}

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}
