//! How a request beneath other layers finds its call: one row a stack, on tower's own layers.
//!
//! What is lost on the way is found by the next carrier, or the request is refused with nothing sent.
//! No stack makes an attempt without its ordinal, or a second first one.

use std::{
    future::{Future, Ready, ready},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use attempt_ledger::{
    BoxError, CallLayer, CarryCase, Case, Cause, Error, ErrorKind, GateKind, Gates, Ledger,
    LedgerLayer, LedgerRequest, LedgerRetry, ResponseBody, ScoreLayer, Wire,
};
use attempt_ledger_core::AttemptRow;
use attempt_ledger_report::{Options, Report};
use attempt_ledger_tests::*;
use http::{Extensions, Request, Response};
use tower::{
    Layer, Service, ServiceBuilder, ServiceExt,
    buffer::BufferLayer,
    layer::layer_fn,
    retry::{Policy, RetryLayer},
    util::{BoxCloneService, MapRequestLayer},
};
use tower_http::follow_redirect::{
    FollowRedirectLayer,
    policy::{Limited, PolicyExt, clone_body_fn},
};

type Answer = Response<ResponseBody<FramesBody>>;
type Any = BoxCloneService<Request<Body>, Answer, BoxError>;

fn any<S>(service: S) -> Any
where
    S: Service<Request<Body>, Response = Answer> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
{
    BoxCloneService::new(service.map_err(Into::into))
}

/// Drops the extensions, as code does that makes a new request of a request's parts.
fn strip(mut request: Request<Body>) -> Request<Body> {
    request.extensions_mut().clear();
    request
}

/// Drops the headers too.
fn rebuild(request: Request<Body>) -> Request<Body> {
    let (parts, body) = request.into_parts();
    Request::builder().method(parts.method).uri(parts.uri).body(body).expect("request")
}

/// Repeats what is no success, and makes the repeated request with `with`.
#[derive(Clone)]
struct Rebuilding(fn(Request<Body>) -> Request<Body>);

impl<B, E> Policy<Request<Body>, Response<B>, E> for Rebuilding {
    type Future = Ready<()>;

    fn retry(
        &mut self,
        request: &mut Request<Body>,
        result: &mut Result<Response<B>, E>,
    ) -> Option<Ready<()>> {
        let good = result.as_ref().is_ok_and(|response| response.status().is_success());
        *request = self.0(request.clone());
        (!good).then(|| ready(()))
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        Some(request.clone())
    }
}

/// Calls what is beneath it in a task of its own.
#[derive(Clone)]
struct Spawning<S>(S);

impl<S> Service<Request<Body>> for Spawning<S>
where
    S: Service<Request<Body>, Response = Answer, Error = Error> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Answer;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let service = self.0.clone();
        let task = tokio::spawn(async move { service.oneshot(request).await });
        Box::pin(async move { task.await.expect("no panic") })
    }
}

/// Repeats a request that takes longer than the ones before.
#[derive(Clone)]
struct Hedging;

impl tower::hedge::Policy<Request<Body>> for Hedging {
    fn clone_request(&self, request: &Request<Body>) -> Option<Request<Body>> {
        Some(request.clone())
    }

    fn can_retry(&self, _: &Request<Body>) -> bool {
        true
    }
}

fn hedge<S>(service: S) -> tower::hedge::Hedge<S, Hedging>
where
    S: Service<Request<Body>> + Clone,
    S::Error: Into<BoxError>,
{
    let latencies = [100; 10];
    tower::hedge::Hedge::new_with_mock_latencies(service, Hedging, 1, 0.9, s(10), &latencies)
}

fn fails_then_answers() -> Frames {
    Frames::new([document("", "").status(500), document("hello", "stop")])
}

fn beneath(ledger: &Ledger) -> LedgerLayer {
    LedgerLayer::new(ledger.clone())
}

/// Ordinal, cause, carrier and verdict of each row.
fn cells(rows: &[AttemptRow]) -> Vec<String> {
    let cell = |row: &AttemptRow| {
        let ordinal = row.ordinal.map_or("-".to_owned(), |o| o.to_string());
        let verdict = row.verdict.map_or("-", |v| v.as_str());
        format!("{ordinal} {} {} {verdict}", row.cause.as_str(), row.carrier.as_str())
    };
    rows.iter().map(cell).collect()
}

async fn run(name: &str, ledger: &Ledger, service: Any, want: &[&str]) {
    let response = service.oneshot(chat("c")).await.unwrap_or_else(|e| panic!("{name}: {e}"));
    assert!(response.status().is_success(), "{name}");
    text(response.into_body()).await.expect("whole");
    assert_eq!(cells(&rows(ledger, "c")), want, "{name}");
    // One call, as its rows say.
    let calls: Vec<_> = rows(ledger, "c").iter().map(|row| row.call).collect();
    assert!(calls.windows(2).all(|pair| pair[0] == pair[1]), "{name}: {calls:?}");
}

const TWICE: [&str; 2] = ["1 initial extensions server_error", "2 retry extensions ok"];

#[tokio::test(start_paused = true)]
async fn a_retry_that_clones_all_keeps_the_case_in_the_extensions() {
    let ledger = Ledger::memory();
    let service = ServiceBuilder::new()
        .layer(CallLayer::new())
        .layer(RetryLayer::new(Always(3)))
        .layer(beneath(&ledger))
        .service(fails_then_answers());
    run("clones", &ledger, any(service), &TWICE).await;
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_rebuilds_the_request_is_found_by_the_next_carrier() {
    for (name, by_header, with, second) in [
        ("task", false, rebuild as fn(_) -> _, "2 retry task_local ok"),
        ("task, with a header that is lost", true, rebuild, "2 retry task_local ok"),
        ("header", true, strip, "2 retry header ok"),
    ] {
        let ledger = Ledger::memory();
        let service = ServiceBuilder::new()
            .layer(CallLayer::new().by_header(by_header))
            .layer(RetryLayer::new(Rebuilding(with)))
            .layer(beneath(&ledger))
            .service(fails_then_answers());
        let want = ["1 initial extensions server_error", second];
        run(name, &ledger, any(service), &want).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_buffer_above_the_ledger_keeps_the_extensions_and_comes_late_to_the_task() {
    for (name, strips, want) in [
        ("kept", false, TWICE),
        ("lost", true, ["1 initial task_local server_error", "2 retry task_local ok"]),
    ] {
        let ledger = Ledger::memory();
        let lose = move |request| if strips { strip(request) } else { request };
        let service = ServiceBuilder::new()
            .layer(CallLayer::new())
            .layer(RetryLayer::new(Errs(3)))
            .layer(MapRequestLayer::new(lose))
            .layer(BufferLayer::new(8))
            .layer(beneath(&ledger))
            .service(fails_then_answers());
        run(name, &ledger, any(service), &want).await;
    }
}

/// As [`Always`], above a layer whose errors are boxed.
#[derive(Clone)]
struct Errs(usize);

impl<B, E> Policy<Request<Body>, Response<B>, E> for Errs {
    type Future = Ready<()>;

    fn retry(
        &mut self,
        _: &mut Request<Body>,
        result: &mut Result<Response<B>, E>,
    ) -> Option<Ready<()>> {
        let good = result.as_ref().is_ok_and(|response| response.status().is_success());
        self.0 = self.0.checked_sub(1)?;
        (!good).then(|| ready(()))
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        Some(request.clone())
    }
}

#[tokio::test(start_paused = true)]
async fn a_buffer_beneath_the_ledger_changes_nothing() {
    let ledger = Ledger::memory();
    let service = ServiceBuilder::new()
        .layer(CallLayer::new())
        .layer(RetryLayer::new(Always(3)))
        .layer(beneath(&ledger))
        .layer(BufferLayer::new(8))
        .service(fails_then_answers());
    run("buffer beneath", &ledger, any(service), &TWICE).await;
}

#[tokio::test(start_paused = true)]
async fn a_spawned_request_has_its_extensions_or_its_header_and_no_task() {
    for (name, by_header, strips, want) in [
        ("kept", false, false, Some(TWICE)),
        ("header", true, true, Some(["1 initial header server_error", "2 retry header ok"])),
        ("lost", false, true, None),
    ] {
        let ledger = Ledger::memory();
        let inner = fails_then_answers();
        let lose = move |request| if strips { strip(request) } else { request };
        let service = ServiceBuilder::new()
            .layer(CallLayer::new().by_header(by_header))
            .layer(RetryLayer::new(Always(2)))
            .layer(MapRequestLayer::new(lose))
            .layer(layer_fn(Spawning))
            .layer(beneath(&ledger))
            .service(inner.clone());
        match want {
            Some(want) => run(name, &ledger, any(service), &want).await,
            None => {
                let error = service.oneshot(chat("c")).await.expect_err("refused");
                assert!(matches!(error.kind(), ErrorKind::Unlinked), "{error}");
                assert!(error.to_string().contains("header"), "says what to do: {error}");
                assert_eq!((inner.calls(), rows(&ledger, "c").len()), (0, 0));
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_hedge_is_another_ordinal_and_says_so() {
    let ledger = Ledger::memory();
    let slow = document("hello", "stop").after(s(5));
    let inner = Frames::new([slow, document("hello", "stop")]);
    let service = ServiceBuilder::new()
        .layer(CallLayer::new())
        // tower's hedge cannot be cloned.
        .layer(BufferLayer::new(8))
        .layer(layer_fn(hedge))
        .layer(beneath(&ledger))
        .service(inner);
    let want = ["1 initial extensions abandoned", "2 hedge extensions ok"];
    run("hedge", &ledger, any(service), &want).await;
}

#[tokio::test(start_paused = true)]
async fn a_follower_above_the_ledger_spends_ordinals() {
    for (name, keeps, second) in
        [("extensions", true, "2 retry extensions ok"), ("task", false, "2 retry task_local ok")]
    {
        let ledger = Ledger::memory();
        let follow =
            clone_body_fn(|body: &Body| Some(body.clone())).and::<_, Body, Error>(Limited::new(3));
        let moved = document("", "").status(307).header("location", "/v1/elsewhere");
        let service = ServiceBuilder::new()
            .layer(CallLayer::new())
            .layer(FollowRedirectLayer::with_policy(follow).preserve_extensions(keeps))
            .layer(beneath(&ledger))
            .service(Frames::new([moved, document("hello", "stop")]));
        let want = ["1 initial extensions redirected", second];
        run(name, &ledger, any(service), &want).await;
    }
}

/// The wrong way round: every attempt is a call. A case that the user named keeps its ordinals all the
/// same.
#[tokio::test(start_paused = true)]
async fn a_call_layer_beneath_the_retry_keeps_the_ordinals_of_a_named_case() {
    let ledger = Ledger::memory();
    let service = ServiceBuilder::new()
        .layer(RetryLayer::new(Always(3)))
        .layer(CallLayer::new())
        .layer(beneath(&ledger))
        .service(fails_then_answers());
    let response = service.oneshot(chat("c")).await.expect("the second");
    text(response.into_body()).await.expect("whole");
    let rows = rows(&ledger, "c");
    assert_eq!(cells(&rows), ["1 initial extensions server_error", "2 recall extensions ok"]);
    assert_ne!(rows[0].call, rows[1].call);
}

/// Nothing but the task tells the two apart, and each poll of it is within one of them.
#[tokio::test(start_paused = true)]
async fn two_calls_in_one_task_are_two() {
    let ledger = Ledger::memory();
    let service = ServiceBuilder::new()
        .layer(CallLayer::new())
        .layer(RetryLayer::new(Always(3)))
        .layer(MapRequestLayer::new(strip))
        .layer(beneath(&ledger))
        .service(Frames::new([
            document("", "").status(500).after(ms(30)),
            document("", "").status(500).after(ms(20)),
            document("hello", "stop"),
        ]));
    let call = |case: &'static str| {
        let service = service.clone();
        async move {
            let response = service.oneshot(chat(case)).await.expect("the second");
            text(response.into_body()).await.expect("whole")
        }
    };
    tokio::join!(call("a"), call("b"));
    for case in ["a", "b"] {
        let want = ["1 initial task_local server_error", "2 retry task_local ok"];
        assert_eq!(cells(&rows(&ledger, case)), want, "{case}");
    }
}

/// Makes its request anew each time that it is sent.
#[derive(Clone)]
struct Factory {
    make: fn() -> Request<Body>,
    extensions: Extensions,
}

impl CarryCase for Factory {
    fn carried<T: Clone + Send + Sync + 'static>(&self) -> Option<T> {
        self.extensions.get().cloned()
    }

    fn carry<T: Clone + Send + Sync + 'static>(&mut self, value: T) {
        self.extensions.insert(value);
    }
}

impl LedgerRequest for Factory {}

/// A client of factories.
#[derive(Clone)]
struct Opaque(Frames);

impl Service<Factory> for Opaque {
    type Response = Response<FramesBody>;
    type Error = std::io::Error;
    type Future = <Frames as Service<Request<Body>>>::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), std::io::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, factory: Factory) -> Self::Future {
        self.0.call((factory.make)())
    }
}

#[tokio::test(start_paused = true)]
async fn an_opaque_request_keeps_its_ordinals_and_counts_as_one_that_writes() {
    let ledger = Ledger::memory();
    let inner = fails_then_answers();
    let service = ServiceBuilder::new()
        .layer(CallLayer::new())
        .layer(RetryLayer::new(Always(3)))
        .layer(ScoreLayer::new(grader()))
        .layer(beneath(&ledger).wire(Wire::OpenAiChat))
        .service(Opaque(inner.clone()));
    let factory = |case: Case| {
        let mut factory = Factory { make: bare, extensions: Extensions::new() };
        factory.carry(case);
        factory
    };
    let response = service.clone().oneshot(factory(Case::new(slot("c")))).await.expect("answer");
    text(response.into_body()).await.expect("whole");
    let found = rows(&ledger, "c");
    assert_eq!(cells(&found), TWICE);
    assert!(found.iter().all(|row| row.effect.is_writes() && row.fingerprint.is_none()));

    // A key that cannot be sent is not promised.
    let case = Case::new(slot("d")).idempotency_key("k").expect("header value");
    let error = service.oneshot(factory(case)).await.expect_err("refused");
    assert!(matches!(error.kind(), ErrorKind::KeyNotSent), "{error}");
    assert_eq!((inner.calls(), rows(&ledger, "d").len()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn without_any_carrier_a_request_is_refused_or_unlinked() {
    let ledger = Ledger::memory();
    let inner = fails_then_answers();
    let refusing = ServiceBuilder::new()
        .layer(RetryLayer::new(Always(3)))
        .layer(beneath(&ledger))
        .service(inner.clone());
    let error = refusing.oneshot(bare()).await.expect_err("refused");
    assert!(matches!(error.kind(), ErrorKind::Unlinked), "{error}");
    assert_eq!(inner.calls(), 0);

    let allowing = ServiceBuilder::new()
        .layer(CallLayer::new().allow_unlinked(true))
        .layer(RetryLayer::new(LedgerRetry::new()))
        .layer(ScoreLayer::new(grader()))
        .layer(beneath(&ledger).allow_unlinked(true))
        .service(inner.clone());
    let response = allowing.clone().oneshot(bare()).await.expect("the second");
    let attempt = attempt_ledger::Attempt::of(&response).expect("attempt").clone();
    assert_eq!((attempt.slot(), attempt.ordinal(), attempt.grade()), (None, None, None));
    text(response.into_body()).await.expect("whole");
    let folded = folded(&ledger);
    let want = ["- unknown none server_error", "- unknown none ok"];
    assert_eq!(cells(&folded.rows), want);
    assert!(folded.rows.iter().all(|row| row.score.is_none() && row.diagnostic.is_none()));

    // A case beside them is linked, and the report counts what is not.
    let response = allowing.oneshot(chat("c")).await.expect("answer");
    text(response.into_body()).await.expect("whole");
    let folded = attempt_ledger_tests::folded(&ledger);
    let report = Report::of(&folded, None, &Options::default()).expect("report");
    assert_eq!((report.unlinked, report.quality.planned()), (2, 1));
    assert!(report.warnings.iter().any(|w| w.contains("without a case")), "{:?}", report.warnings);
}

/// The header is for the ledger alone.
#[tokio::test(start_paused = true)]
async fn the_private_header_is_taken_off_and_a_strange_one_names_nothing() {
    use std::sync::{Arc, Mutex};
    let seen: Arc<Mutex<Vec<http::HeaderMap>>> = Arc::default();
    let (ledger, list) = (Ledger::memory(), seen.clone());
    let note = move |request: Request<Body>| {
        list.lock().expect("list").push(request.headers().clone());
        request
    };
    let service = ServiceBuilder::new()
        .layer(CallLayer::new().by_header(true))
        .layer(RetryLayer::new(Rebuilding(strip)))
        .layer(beneath(&ledger))
        .layer(MapRequestLayer::new(note))
        .service(fails_then_answers());
    text(service.oneshot(chat("c")).await.expect("answer").into_body()).await.expect("whole");
    assert_eq!(cells(&rows(&ledger, "c"))[1], "2 retry header ok");
    let strange = ServiceBuilder::new().layer(beneath(&ledger)).service(fails_then_answers());
    for value in ["", "0123456789abcdef0123456789abcdef", "x", "\u{ff}"] {
        let mut request = bare();
        let value = http::HeaderValue::from_bytes(value.as_bytes()).expect("value");
        request.headers_mut().insert("x-attempt-ledger-call", value);
        let error = strange.clone().oneshot(request).await.expect_err("refused");
        assert!(matches!(error.kind(), ErrorKind::Unlinked), "{error}");
    }
    let seen = seen.lock().expect("list");
    assert_eq!(seen.len(), 2);
    assert!(seen.iter().all(|headers| !headers.contains_key("x-attempt-ledger-call")));
}

/// A policy that makes the request anew and names the case again has lost the call alone.
#[tokio::test(start_paused = true)]
async fn a_case_that_is_named_again_keeps_the_call_that_is_awaited() {
    let ledger = Ledger::memory();
    let named = |request: Request<Body>| {
        let mut request = rebuild(request);
        request.extensions_mut().insert(Case::new(slot("c")));
        request
    };
    let service = ServiceBuilder::new()
        .layer(CallLayer::new())
        .layer(RetryLayer::new(Rebuilding(named)))
        .layer(beneath(&ledger))
        .service(fails_then_answers());
    let want = ["1 initial extensions server_error", "2 retry task_local ok"];
    run("named again", &ledger, any(service), &want).await;

    // Another case than the call's is its own, with no call.
    let other = |request: Request<Body>| {
        let mut request = rebuild(request);
        request.extensions_mut().insert(Case::new(slot("other")));
        request
    };
    let ledger = Ledger::memory();
    let service = ServiceBuilder::new()
        .layer(CallLayer::new())
        .layer(MapRequestLayer::new(other))
        .layer(beneath(&ledger))
        .service(Frames::new([document("hello", "stop")]));
    text(service.oneshot(chat("c")).await.expect("answer").into_body()).await.expect("whole");
    assert_eq!(cells(&rows(&ledger, "other")), ["1 unknown extensions ok"]);
    assert!(rows(&ledger, "c").is_empty());
}

/// Whoever makes the attempt may know better why.
#[tokio::test(start_paused = true)]
async fn a_cause_that_is_stated_stands() {
    let ledger = Ledger::memory();
    let service = ServiceBuilder::new()
        .layer(CallLayer::new())
        .layer(beneath(&ledger))
        .service(Frames::new([document("hello", "stop")]));
    let mut request = chat("c");
    request.extensions_mut().insert(Cause::Hedge);
    text(service.oneshot(request).await.expect("answer").into_body()).await.expect("whole");
    assert_eq!(cells(&rows(&ledger, "c")), ["1 hedge extensions ok"]);
}

/// A call that is let go of while a buffer still holds its request sends nothing more.
#[tokio::test(start_paused = true)]
async fn a_buffered_request_of_a_call_that_is_gone_is_not_sent() {
    for by_header in [false, true] {
        let ledger = Ledger::memory();
        let inner = fails_then_answers();
        let gates = Gates { plain: GateKind::Head, stream: GateKind::Head };
        let service = ServiceBuilder::new()
            .layer(CallLayer::new().by_header(by_header))
            .layer(MapRequestLayer::new(strip))
            .layer(BufferLayer::new(8))
            .layer(beneath(&ledger).gates(gates))
            .service(inner.clone());
        let call = service.oneshot(chat("c"));
        drop(tokio::time::timeout(Duration::ZERO, call).await);
        tokio::time::sleep(s(5)).await;
        assert_eq!(inner.calls(), 0, "by header: {by_header}");
    }
}

/// A client that asks for a token first, by another stack.
#[derive(Clone)]
struct Authenticated<T, S> {
    tokens: T,
    inner: S,
}

impl<T, S> Service<Request<Body>> for Authenticated<T, S>
where
    T: Service<Request<Body>, Error = Error> + Clone + Send + 'static,
    T::Future: Send,
    S: Service<Request<Body>, Response = Response<FramesBody>> + Clone + Send + 'static,
    S::Error: Into<BoxError> + Send,
    S::Future: Send,
{
    type Response = Response<FramesBody>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<FramesBody>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (tokens, inner) = (self.tokens.clone(), self.inner.clone());
        Box::pin(async move {
            tokens.oneshot(bare()).await.map_err(BoxError::from)?;
            inner.oneshot(request).await.map_err(Into::into)
        })
    }
}

/// What a client sends on its own account is no attempt of the call that it serves.
#[tokio::test(start_paused = true)]
async fn a_request_that_the_client_makes_beneath_an_attempt_is_not_of_its_call() {
    let ledger = Ledger::memory();
    let tokens = ServiceBuilder::new()
        .layer(beneath(&ledger).allow_unlinked(true))
        .service(Frames::new([document("token", "stop")]));
    let service = ServiceBuilder::new()
        .layer(CallLayer::new())
        .layer(RetryLayer::new(Always(3)))
        .layer(beneath(&ledger))
        .service(Authenticated { tokens, inner: fails_then_answers() });
    run("beneath", &ledger, any(service), &TWICE).await;
    let unlinked = folded(&ledger).rows.into_iter().filter(|row| row.ordinal.is_none());
    let want = ["- unknown none ok", "- unknown none ok"];
    assert_eq!(cells(&unlinked.collect::<Vec<_>>()), want);
}

#[test]
fn the_layers_names_are_as_documented() {
    // A layer of one's own in between compiles for the generic request types.
    fn carries<T: LedgerRequest>() {}
    carries::<Request<Body>>();
    carries::<Factory>();
    let _ = <LedgerLayer as Layer<Frames>>::layer;
}
