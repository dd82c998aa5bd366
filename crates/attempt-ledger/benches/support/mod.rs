//! What the benchmarks share: an origin, the contenders' stacks, a hand-run executor, and a table.

use std::{
    convert::Infallible,
    future::Future,
    hint::black_box,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use attempt_ledger::{
    CallLayer, Case, CaseId, GateKind, Gates, Ledger, LedgerLayer, LedgerRetry, RunId, ScoreLayer,
    Slot, Wire,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, header};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use tokio::runtime::Runtime;
use tower::{Layer, Service, ServiceBuilder, retry::RetryLayer};
use tower_http::{
    classify::{ServerErrorsAsFailures, SharedClassifier},
    timeout::{ResponseBodyTimeoutLayer, TimeoutLayer},
    trace::TraceLayer,
};

pub(crate) type Req = Request<Full<Bytes>>;

/// All stacks have the ledger's default limits, so that their timers are equally far away.
const IDLE: Duration = Duration::from_secs(60);
const TOTAL: Duration = Duration::from_secs(600);

/// What the origin answers, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Head and each chunk are pending once before they are ready, as on a socket.
    pub(crate) pending: bool,
    pub(crate) media: &'static str,
    pub(crate) chunks: usize,
}

/// An inner service that answers at once, or after one wake.
#[derive(Clone, Debug)]
pub(crate) struct Origin(Arc<Answer>);

#[derive(Debug)]
struct Answer {
    plan: Plan,
    headers: HeaderMap,
    chunk: Bytes,
}

impl Origin {
    pub(crate) fn new(plan: Plan, chunk: &Bytes) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(plan.media));
        headers.insert(header::DATE, HeaderValue::from_static("Tue, 14 Apr 2026 09:30:00 GMT"));
        headers.insert("x-request-id", HeaderValue::from_static("req_0123456789abcdef"));
        Origin(Arc::new(Answer { plan, headers, chunk: chunk.clone() }))
    }
}

impl Service<Req> for Origin {
    type Response = Response<Reply>;
    type Error = Infallible;
    type Future = Head;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Head {
        black_box(&request);
        Head { answer: self.0.clone(), wait: self.0.plan.pending }
    }
}

/// The future of an [`Origin`].
#[derive(Debug)]
pub(crate) struct Head {
    answer: Arc<Answer>,
    wait: bool,
}

impl Future for Head {
    type Output = Result<Response<Reply>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if std::mem::take(&mut self.wait) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let Plan { pending, chunks, .. } = self.answer.plan;
        let body = Reply { chunk: self.answer.chunk.clone(), left: chunks, pending, wait: pending };
        let mut response = Response::new(body);
        *response.headers_mut() = self.answer.headers.clone();
        Poll::Ready(Ok(response))
    }
}

/// The body of an [`Origin`]'s answer; says that it is over with its last chunk, as hyper's does.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    chunk: Bytes,
    left: usize,
    pending: bool,
    wait: bool,
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if std::mem::take(&mut self.wait) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let Some(left) = self.left.checked_sub(1) else { return Poll::Ready(None) };
        self.left = left;
        self.wait = self.pending;
        Poll::Ready(Some(Ok(Frame::data(self.chunk.clone()))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact((self.chunk.len() * self.left) as u64)
    }
}

// === stacks ===

pub(crate) type Traced<S> = tower_http::trace::Trace<S, SharedClassifier<ServerErrorsAsFailures>>;

/// tower-http's tracing, with its default events and their default level.
pub(crate) fn traced<S>(inner: S) -> Traced<S> {
    TraceLayer::new_for_http().layer(inner)
}

/// A limit on the head and one on each wait for a piece of the body.
pub(crate) fn timed<S>(
    inner: S,
) -> tower_http::timeout::ResponseBodyTimeout<tower_http::timeout::Timeout<S>> {
    ServiceBuilder::new()
        .layer(ResponseBodyTimeoutLayer::new(IDLE))
        .layer(TimeoutLayer::with_status_code(http::StatusCode::GATEWAY_TIMEOUT, TOTAL))
        .service(inner)
}

/// What services use today: tracing, retry and timeouts.
pub(crate) fn usual<S: Clone>(
    inner: S,
) -> Traced<
    tower::retry::Retry<
        UsualRetry,
        tower_http::timeout::ResponseBodyTimeout<tower_http::timeout::Timeout<S>>,
    >,
> {
    traced(RetryLayer::new(UsualRetry { left: 2 }).layer(timed(inner)))
}

/// Server errors are tried again, twice.
#[derive(Clone, Debug)]
pub(crate) struct UsualRetry {
    left: u32,
}

impl<B, E> tower::retry::Policy<Req, Response<B>, E> for UsualRetry {
    type Future = std::future::Ready<()>;

    fn retry(&mut self, _: &mut Req, result: &mut Result<Response<B>, E>) -> Option<Self::Future> {
        let failed = result.as_ref().map_or(true, |r| r.status().is_server_error());
        self.left = self.left.checked_sub(u32::from(failed))?;
        failed.then(|| std::future::ready(()))
    }

    fn clone_request(&mut self, request: &Req) -> Option<Req> {
        Some(request.clone())
    }
}

pub(crate) type Ours<S> = attempt_ledger::CallService<
    tower::retry::Retry<
        LedgerRetry,
        attempt_ledger::ScoreService<attempt_ledger::LedgerService<S>>,
    >,
>;

/// Call, retry, score without a grader, and ledger; default clocks, both of them on.
pub(crate) fn ours<S: Clone>(inner: S, ledger: Ledger) -> Ours<S> {
    ServiceBuilder::new()
        .layer(CallLayer::new())
        .layer(RetryLayer::new(LedgerRetry::new()))
        .layer(ScoreLayer::none())
        .layer(LedgerLayer::new(ledger))
        .service(inner)
}

/// The ledger alone, with nothing held back.
pub(crate) fn streaming<S>(inner: S, wire: Wire) -> attempt_ledger::LedgerService<S> {
    let gates = Gates { plain: GateKind::Head, stream: GateKind::Head };
    LedgerLayer::new(Ledger::memory()).wire(wire).gates(gates).layer(inner)
}

// === requests and answers ===

/// A case of its own for each request.
pub(crate) fn case(n: usize) -> Case {
    let run = RunId::new("nightly-7").expect("an id");
    let case = CaseId::new(format!("case-{n}")).expect("an id");
    Case::new(Slot::new(run, case))
}

pub(crate) fn request(body: &Bytes) -> Req {
    Request::post("http://127.0.0.1:8080/v1/chat/completions")
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::AUTHORIZATION, "Bearer none")
        .body(Full::new(body.clone()))
        .expect("a request")
}

const TALK: &str =
    "The quick brown fox jumps over the lazy dog; a second line of it follows here. ";

/// A chat request of 1 KB.
pub(crate) fn chat_request() -> Bytes {
    let text = TALK.repeat(11);
    format!(
        r#"{{"model":"some-model-4","messages":[{{"role":"system","content":"Answer briefly."}},{{"role":"user","content":"{text}"}}],"temperature":0.7,"max_tokens":64}}"#
    )
    .into()
}

/// A chat answer of 1 KB.
pub(crate) fn chat_answer() -> Bytes {
    let text = TALK.repeat(8);
    format!(
        r#"{{"id":"chatcmpl-CkYtq3Vx0f","object":"chat.completion","created":1776159000,"model":"some-model-4","choices":[{{"index":0,"message":{{"role":"assistant","content":"{text}","refusal":null}},"logprobs":null,"finish_reason":"stop"}}],"usage":{{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29,"prompt_tokens_details":{{"cached_tokens":0}}}},"service_tier":"default","system_fingerprint":"fp_44709d6fcb"}}"#
    )
    .into()
}

/// 1.5 KB of a chat stream: five whole events.
pub(crate) fn chat_events() -> Bytes {
    [" the", " harbour", " was", " quiet", ","]
        .map(|word| {
            format!(
                "data: {{\"id\":\"chatcmpl-CkYtq3Vx0f\",\"object\":\"chat.completion.chunk\",\
                 \"created\":1776159000,\"model\":\"demo-large-2026-04-14\",\"service_tier\":\
                 \"default\",\"system_fingerprint\":\"fp_44709d6fcb\",\"choices\":[{{\"index\":0,\
                 \"delta\":{{\"content\":\"{word}\"}},\"logprobs\":null,\"finish_reason\":null}}],\
                 \"usage\":null,\"obfuscation\":\"aQ3xZrmmW8pLkaQ3xZrmmW8pLkaQ3xZr\"}}\n\n"
            )
        })
        .concat()
        .into()
}

// === executor ===

/// Polls futures by hand within a runtime that never turns: what is measured is the contenders' work
/// and no scheduler's.
///
/// A timer that is earlier than all of theirs is registered, as in any busy process; without one
/// each of their timers would interrupt the driver.
pub(crate) struct Rig {
    runtime: Runtime,
    waker: Waker,
}

struct Woken(std::sync::atomic::AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, std::sync::atomic::Ordering::Release);
    }
}

impl Rig {
    pub(crate) fn new() -> Self {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            tokio::spawn(tokio::time::sleep(Duration::from_secs(5)));
            tokio::time::sleep(Duration::from_millis(3)).await;
        });
        Rig { runtime, waker: Waker::from(Arc::new(Woken(false.into()))) }
    }

    pub(crate) fn enter(&self) -> tokio::runtime::EnterGuard<'_> {
        self.runtime.enter()
    }

    pub(crate) fn drive<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        let mut cx = Context::from_waker(&self.waker);
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
                return output;
            }
        }
    }

    /// Calls the service once.
    pub(crate) fn call<S, B>(&self, service: &mut S, request: Req) -> Response<B>
    where
        S: Service<Req, Response = Response<B>>,
        S::Error: std::fmt::Debug,
    {
        let mut cx = Context::from_waker(&self.waker);
        assert!(service.poll_ready(&mut cx).is_ready(), "ready");
        self.drive(service.call(request)).expect("an answer")
    }

    /// Reads at most `frames` frames; says how many bytes they had.
    pub(crate) fn read<B>(&self, mut body: Pin<&mut B>, frames: usize) -> usize
    where
        B: Body<Data = Bytes>,
        B::Error: std::fmt::Debug,
    {
        let mut cx = Context::from_waker(&self.waker);
        let mut bytes = 0;
        for _ in 0..frames {
            let frame = loop {
                if let Poll::Ready(frame) = body.as_mut().poll_frame(&mut cx) {
                    break frame;
                }
            };
            let Some(frame) = frame else { break };
            bytes += frame.expect("a frame").into_data().map_or(0, |data| black_box(data).len());
        }
        bytes
    }

    /// One request, read to the end.
    pub(crate) fn exchange<S, B>(&self, service: &mut S, request: Req) -> usize
    where
        S: Service<Req, Response = Response<B>>,
        S::Error: std::fmt::Debug,
        B: Body<Data = Bytes>,
        B::Error: std::fmt::Debug,
    {
        let body = pin!(self.call(service, request).into_body());
        self.read(body, usize::MAX)
    }
}

/// A JSON subscriber for the whole process that writes everything to nowhere.
pub(crate) fn install_json() {
    tracing_subscriber::fmt()
        .json()
        .with_max_level(tracing::Level::DEBUG)
        .with_writer(std::io::sink)
        .init();
}

// === measuring ===

/// CPU time of this thread: other processes on the machine do not count.
pub(crate) fn cpu() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// One contender: does its work so many times, and says how much CPU the measured part took.
pub(crate) struct Contender<'a> {
    pub(crate) name: &'static str,
    pub(crate) run: Box<dyn FnMut(usize) -> Duration + 'a>,
}

impl<'a> Contender<'a> {
    pub(crate) fn new(name: &'static str, run: impl FnMut(usize) -> Duration + 'a) -> Self {
        Contender { name, run: Box::new(run) }
    }
}

/// Nanoseconds for one piece of work, by name.
#[derive(Debug, Default)]
pub(crate) struct Medians(Vec<(&'static str, f64)>);

impl Medians {
    pub(crate) fn of(&self, name: &str) -> f64 {
        self.0.iter().find(|(n, _)| *n == name).map_or(f64::NAN, |(_, ns)| *ns)
    }

    pub(crate) fn extend(&mut self, other: Medians) {
        self.0.extend(other.0);
    }
}

/// Whether a contender is asked for: all are, or those that `ONLY` names a part of, for a profiler.
fn is_asked(name: &str) -> bool {
    std::env::var("ONLY").map_or(true, |only| name.contains(&only))
}

/// Alternates the contenders round by round, after one round to warm up. The first is what the
/// others are added to: each round's difference to it is what counts, so that a slow minute of the
/// machine is in both. Medians of `rounds` rounds of `count` pieces of work each.
pub(crate) fn measure(contenders: &mut [Contender<'_>], rounds: usize, count: usize) -> Medians {
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); contenders.len()];
    for round in 0..=rounds {
        let mut base = 0.0;
        for (n, (contender, times)) in contenders.iter_mut().zip(&mut times).enumerate() {
            if n > 0 && !is_asked(contender.name) {
                continue;
            }
            let ns = (contender.run)(count).as_secs_f64() * 1e9 / count as f64;
            if n == 0 {
                base = ns;
            }
            if round > 0 {
                times.push(if n == 0 { ns } else { ns - base });
            }
        }
    }
    let median = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
    };
    Medians(contenders.iter().zip(times).map(|(c, t)| (c.name, median(t))).collect())
}

/// Rounds, from `ROUNDS` or this default; 2 when this is run as a test.
pub(crate) fn rounds(default: usize) -> usize {
    if !std::env::args().any(|arg| arg == "--bench") {
        return 2;
    }
    std::env::var("ROUNDS").ok().and_then(|r| r.parse().ok()).unwrap_or(default)
}
