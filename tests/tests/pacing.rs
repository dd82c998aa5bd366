//! A host that throttles is waited for before an ordinal is spent on it.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use attempt_ledger::{
    CallLayer, Cap, Case, ErrorKind, Ledger, LedgerLayer, LedgerRetry, Pacer, Role, ScoreLayer,
    Verdict,
};
use attempt_ledger_tests::*;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, sleep},
};
use tower::{Service, ServiceExt};

/// How a host limits its callers, for the first minute.
#[derive(Clone, Copy, Debug)]
enum Limit {
    /// Answers nobody.
    All,
    /// So many a second, with as many in a burst.
    Rate(f64),
    /// So many at once.
    AtOnce(usize),
}

/// A host that answers after 100 to 300 ms, or with a 429 after 20 ms.
#[derive(Clone)]
struct Host {
    limit: Limit,
    hint: Option<&'static str>,
    free_at: Instant,
    bucket: Arc<Mutex<(f64, Instant)>>,
    at_once: Arc<AtomicUsize>,
}

impl Host {
    fn new(limit: Limit, hint: Option<&'static str>, storm: Duration) -> Self {
        let burst = if let Limit::Rate(rate) = limit { rate } else { 0.0 };
        Host {
            limit,
            hint,
            free_at: Instant::now() + storm,
            bucket: Arc::new(Mutex::new((burst, Instant::now()))),
            at_once: Arc::default(),
        }
    }

    fn admits(&self) -> bool {
        if Instant::now() >= self.free_at {
            return true;
        }
        match self.limit {
            Limit::All => false,
            Limit::AtOnce(most) => self.at_once.load(Ordering::SeqCst) < most,
            Limit::Rate(rate) => {
                let mut bucket = self.bucket.lock().expect("bucket");
                let (left, at) = *bucket;
                let left = (left + rate * at.elapsed().as_secs_f64()).min(rate);
                *bucket =
                    if left >= 1.0 { (left - 1.0, Instant::now()) } else { (left, Instant::now()) };
                left >= 1.0
            }
        }
    }
}

impl Service<Request<Body>> for Host {
    type Response = Response<Full<Bytes>>;
    type Error = std::io::Error;
    type Future =
        Pin<Box<dyn Future<Output = Result<Response<Full<Bytes>>, std::io::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), std::io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        let host = self.clone();
        Box::pin(async move {
            let json = |status| {
                Response::builder().status(status).header("content-type", "application/json")
            };
            if !host.admits() {
                sleep(ms(20)).await;
                let mut response = json(429);
                if let Some(hint) = host.hint {
                    response = response.header("retry-after", hint);
                }
                return Ok(response.body(Full::from("{}")).expect("response"));
            }
            host.at_once.fetch_add(1, Ordering::SeqCst);
            sleep(ms(fastrand::u64(100..300))).await;
            host.at_once.fetch_sub(1, Ordering::SeqCst);
            let answer =
                r#"{"choices":[{"index":0,"message":{"content":"hello"},"finish_reason":"stop"}]}"#;
            Ok(json(200).body(Full::from(answer)).expect("response"))
        })
    }
}

/// What became of the first attempts.
#[derive(Debug)]
struct Outcome {
    throttled: usize,
    answered: usize,
    without_attempt: usize,
    took: Duration,
}

async fn cases(n: usize, at_once: usize, pacer: Option<Pacer>, host: Host) -> Outcome {
    let ledger = Ledger::memory();
    let call = match pacer {
        Some(pacer) => CallLayer::new().pacing(pacer),
        None => CallLayer::new().no_pacing(),
    };
    let layer = LedgerLayer::new(ledger.clone());
    let service = stack(call, LedgerRetry::new(), ScoreLayer::none(), layer, host);
    let places = Arc::new(Semaphore::new(at_once));
    let started = Instant::now();
    let mut calls = JoinSet::new();
    for i in 0..n {
        let (service, place) =
            (service.clone(), places.clone().acquire_owned().await.expect("open"));
        calls.spawn(async move {
            let response = service.oneshot(chat(&format!("c{i}"))).await;
            drop(place);
            response.map(drop)
        });
    }
    while calls.join_next().await.is_some() {}
    let took = started.elapsed();
    let firsts: BTreeMap<_, _> = folded(&ledger)
        .rows
        .iter()
        .filter(|row| row.ordinal.is_some_and(|o| o.is_first()))
        .map(|row| (row.case.clone(), row.verdict))
        .collect();
    let count = |verdict| firsts.values().filter(|v| **v == Some(verdict)).count();
    Outcome {
        throttled: count(Verdict::Throttled),
        answered: count(Verdict::Ok),
        without_attempt: n - firsts.len(),
        took,
    }
}

/// Of 1,000 cases, 64 at once, at most 1% of the ordinal ones are lost to a host that limits for a
/// minute; what it would be without pacing is printed beside.
#[tokio::test(start_paused = true)]
async fn a_storm_of_throttles_costs_at_most_one_first_attempt_in_a_hundred() {
    for (limit, hint) in [
        (Limit::All, None),
        (Limit::All, Some("1")),
        (Limit::All, Some("20")),
        (Limit::All, Some("60")),
        (Limit::Rate(5.0), None),
        (Limit::Rate(5.0), Some("1")),
        (Limit::Rate(20.0), None),
        (Limit::Rate(20.0), Some("1")),
        (Limit::Rate(100.0), Some("1")),
        (Limit::AtOnce(8), None),
        (Limit::AtOnce(8), Some("1")),
    ] {
        let seed = seed();
        let host = || {
            fastrand::seed(seed);
            Host::new(limit, hint, s(60))
        };
        let paced = cases(1000, 64, Some(Pacer::slow_start(4)), host()).await;
        let burst = cases(1000, 64, Some(Pacer::new()), host()).await;
        let bare = cases(1000, 64, None, host()).await;
        println!(
            "{limit:?}, hint {hint:?}, SEED={seed}\n  paced   {paced:?}\n  no slow start {burst:?}\n  without {bare:?}"
        );
        assert!(paced.throttled <= 10, "{limit:?} {hint:?}: {paced:?}");
        assert_eq!(paced.without_attempt, 0);
        assert_eq!(paced.throttled + paced.answered, 1000, "{limit:?} {hint:?}: {paced:?}");
        assert!(bare.throttled > 10, "the storm is none: {bare:?}");
        // A host that is free again is used again.
        assert!(paced.took < s(240), "{limit:?} {hint:?}: {paced:?}");
    }
}

fn throttled(hint: &str) -> Head {
    document("", "").status(429).header("retry-after", hint)
}

fn paced(
    ledger: &Ledger,
    call: CallLayer,
    script: impl IntoIterator<Item = Head>,
) -> Stack<Frames> {
    let layer = LedgerLayer::new(ledger.clone());
    stack(call, LedgerRetry::new(), ScoreLayer::none(), layer, Frames::new(script))
}

#[tokio::test(start_paused = true)]
async fn a_host_that_asked_to_wait_is_waited_for_before_an_ordinal_is_spent() {
    let ledger = Ledger::memory();
    let call = CallLayer::new().attempts(1).budget(s(100));
    let service = paced(&ledger, call, [throttled("30"), document("hello", "stop")]);
    let started = Instant::now();
    service.clone().oneshot(chat("a")).await.expect("a 429");
    sleep(s(10)).await;
    let waiting = tokio::spawn(service.clone().oneshot(chat("b")));
    sleep(s(19)).await;
    assert!(rows(&ledger, "b").is_empty(), "too early");
    waiting.await.expect("no panic").expect("answer");
    assert_eq!(started.elapsed(), s(30) + ms(20));
    let row = &rows(&ledger, "b")[0];
    assert_eq!(row.verdict, Some(Verdict::Ok));
    // The wait was the call's own time.
    assert!(row.limits.budget_us < Some(81_000_000), "{:?}", row.limits);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_asks_for_more_than_the_budget_ends_the_call_at_once() {
    let ledger = Ledger::memory();
    let call = CallLayer::new().attempts(1).budget(s(100));
    let service = paced(&ledger, call, [throttled("86400"), document("hello", "stop")]);
    service.clone().oneshot(chat("a")).await.expect("a 429");
    let started = Instant::now();
    let error = service.oneshot(chat("b")).await.expect_err("ended");
    assert!(started.elapsed() < ms(10));
    let ErrorKind::Capped(Cap::Wait(wait)) = error.kind() else { panic!("{error}") };
    assert!(*wait > s(86_000), "{wait:?}");
    assert!(rows(&ledger, "b").is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_budget_ends_a_wait_for_others() {
    let ledger = Ledger::memory();
    let pacer = Pacer::slow_start(1);
    let slow = [document("hello", "stop").after(s(200))];
    let long = paced(&ledger, CallLayer::new().pacing(pacer.clone()), slow.clone());
    let running = tokio::spawn(long.oneshot(chat("a")));
    sleep(s(1)).await;
    let started = Instant::now();
    let short = paced(&ledger, CallLayer::new().budget(s(50)).pacing(pacer), slow);
    let error = short.oneshot(chat("b")).await.expect_err("ended");
    assert!(matches!(error.kind(), ErrorKind::Capped(Cap::Budget(_))), "{error}");
    assert_eq!((started.elapsed(), rows(&ledger, "b").len()), (s(50), 0));
    running.await.expect("no panic").expect("answer");
}

#[tokio::test(start_paused = true)]
async fn hosts_are_paced_apart_and_stacks_together() {
    let ledger = Ledger::memory();
    let pacer = Pacer::new();
    let call = || CallLayer::new().attempts(1).pacing(pacer.clone());
    let one = paced(&ledger, call(), [throttled("30"), document("hello", "stop")]);
    let other = paced(&ledger, call(), [document("hello", "stop")]);
    one.clone().oneshot(chat("a")).await.expect("a 429");
    let started = Instant::now();
    let mut elsewhere = chat("b");
    *elsewhere.uri_mut() = "http://other.test/v1/chat/completions".parse().expect("uri");
    one.oneshot(elsewhere).await.expect("answer");
    assert_eq!(started.elapsed(), ms(10));
    other.oneshot(chat("c")).await.expect("answer");
    assert_eq!(started.elapsed(), s(30) + ms(10));
    let apart = paced(&ledger, CallLayer::new().no_pacing(), [document("hello", "stop")]);
    let started = Instant::now();
    apart.oneshot(chat("d")).await.expect("answer");
    assert_eq!(started.elapsed(), ms(10));
}

/// What another call learned holds for a retry too.
#[tokio::test(start_paused = true)]
async fn a_retry_waits_for_its_host() {
    let ledger = Ledger::memory();
    let fails = document("", "").status(500);
    let service = paced(
        &ledger,
        CallLayer::new(),
        [fails.after(s(1)), throttled("40"), document("hello", "stop")],
    );
    let started = Instant::now();
    let first = tokio::spawn(service.clone().oneshot(chat("a")));
    sleep(ms(500)).await;
    // Throttled while the first is in flight.
    let second = tokio::spawn(service.clone().oneshot(chat("b")));
    first.await.expect("no panic").expect("answer");
    assert!(started.elapsed() >= s(40), "{:?}", started.elapsed());
    second.await.expect("no panic").expect("answer");
    assert_eq!(verdicts(&ledger, "a"), ["server_error", "ok"]);
    assert_eq!(verdicts(&ledger, "b"), ["throttled", "ok"]);
}

/// The call that it grades waits for it: a grader's own call must not wait for that call.
#[tokio::test(start_paused = true)]
async fn a_graders_call_takes_no_place_from_its_subject() {
    let ledger = Ledger::memory();
    let call = CallLayer::new().pacing(Pacer::slow_start(1));
    let service = paced(&ledger, call, [document("hello", "stop").after(s(5))]);
    let subject = tokio::spawn(service.clone().oneshot(chat("a")));
    sleep(s(1)).await;
    let started = Instant::now();
    let grading = with_case(Case::new(slot("a").role(Role::Grader)));
    service.clone().oneshot(grading).await.expect("answer");
    assert_eq!(started.elapsed(), s(5));
    subject.await.expect("no panic").expect("answer");
}

/// Calls that wait, and are let go of or never polled again, hold up nobody.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_let_go_of_while_it_waits_frees_the_others() {
    let ledger = Ledger::memory();
    let call = CallLayer::new().attempts(1).pacing(Pacer::slow_start(1));
    let service = paced(&ledger, call, [document("hello", "stop").after(s(5))]);
    let running = tokio::spawn(service.clone().oneshot(chat("a")));
    sleep(s(1)).await;
    let mut unpolled = Box::pin(service.clone().oneshot(chat("b")));
    assert!(tokio::time::timeout(ms(1), &mut unpolled).await.is_err());
    let dropped = service.clone().oneshot(chat("c"));
    assert!(tokio::time::timeout(ms(1), dropped).await.is_err());
    service.oneshot(chat("d")).await.expect("answer");
    assert_eq!(verdicts(&ledger, "d"), ["ok"]);
    assert!(rows(&ledger, "b").is_empty() && rows(&ledger, "c").is_empty());
    running.await.expect("no panic").expect("answer");
    unpolled.await.expect("its turn comes");
}

/// A limit on calls at once, between the layers or beneath them, is no trap for those that retry.
#[tokio::test(start_paused = true)]
async fn a_limit_beneath_does_not_lock_out_those_that_retry() {
    use tower::ServiceBuilder;
    let ledger = Ledger::memory();
    let inner = Frames::new([throttled("3"), throttled("3"), document("hello", "stop")]);
    let service = ServiceBuilder::new()
        .layer(CallLayer::new())
        .layer(tower::retry::RetryLayer::new(LedgerRetry::new()))
        .concurrency_limit(2)
        .layer(LedgerLayer::new(ledger.clone()))
        .concurrency_limit(2)
        .service(inner);
    let mut calls = JoinSet::new();
    for i in 0..20 {
        let service = service.clone();
        calls.spawn(async move { service.oneshot(chat(&format!("c{i}"))).await.map(drop) });
    }
    let started = Instant::now();
    while let Some(call) = calls.join_next().await {
        call.expect("no panic").expect("answer");
    }
    assert!(started.elapsed() < s(60), "{:?}", started.elapsed());
}

/// With a quota that is used up nothing but throttles comes: the calls end without an ordinal, and not
/// each of them after its budget.
#[tokio::test(start_paused = true)]
async fn a_host_that_only_throttles_is_given_up_after_a_budget() {
    let ledger = Ledger::memory();
    let call = CallLayer::new().budget(s(100));
    let service = paced(&ledger, call, [document("", "").status(429)]);
    let places = Arc::new(Semaphore::new(8));
    let started = Instant::now();
    let mut calls = JoinSet::new();
    for i in 0..200 {
        let place = places.clone().acquire_owned().await.expect("open");
        let service = service.clone();
        calls.spawn(async move {
            let ended = service.oneshot(chat(&format!("c{i}"))).await.map(drop);
            drop(place);
            ended
        });
    }
    let mut given_up = 0;
    while let Some(call) = calls.join_next().await {
        let ended = call.expect("no panic");
        given_up += usize::from(matches!(
            ended.map_err(|e| e.kind().clone()),
            Err(ErrorKind::Capped(Cap::Throttling(_)))
        ));
    }
    assert!(given_up > 150, "{given_up}");
    assert!(started.elapsed() < s(300), "{:?}", started.elapsed());
    let firsts = folded(&ledger).slots.len();
    assert!(firsts <= 16, "{firsts} ordinals were spent on a host that only throttles");
}

/// One throttle, long ago, is not a host that throttles ever since.
#[tokio::test(start_paused = true)]
async fn a_host_that_was_left_alone_since_its_throttle_is_not_given_up() {
    for quiet in [s(150), s(86_400)] {
        let ledger = Ledger::memory();
        let call = CallLayer::new().attempts(1).budget(s(100));
        let slow = document("hello", "stop").after(s(5));
        let service = paced(&ledger, call, [document("", "").status(429), slow]);
        service.clone().oneshot(chat("a")).await.expect("a 429");
        sleep(quiet).await;
        let (first, second) =
            tokio::join!(service.clone().oneshot(chat("b")), service.oneshot(chat("c")));
        first.expect("answer");
        second.unwrap_or_else(|error| panic!("after {quiet:?}: {error}"));
    }
}

/// Nobody finds out whether such a host answers again if all are turned away.
#[tokio::test(start_paused = true)]
async fn a_call_that_waits_and_is_not_polled_does_not_have_the_others_turned_away() {
    let ledger = Ledger::memory();
    let call = CallLayer::new().attempts(1).budget(s(100));
    let mut script = vec![document("", "").status(429); 6];
    script.push(document("hello", "stop"));
    let service = paced(&ledger, call, script);
    service.clone().oneshot(chat("a")).await.expect("a 429");
    let mut unpolled = Box::pin(service.clone().oneshot(chat("b")));
    assert!(tokio::time::timeout(ms(1), &mut unpolled).await.is_err());
    for i in 0..5 {
        sleep(s(61)).await;
        service.clone().oneshot(chat(&format!("c{i}"))).await.expect("a 429");
    }
    sleep(s(61)).await;
    service.oneshot(chat("d")).await.expect("answer");
    assert_eq!(verdicts(&ledger, "d"), ["ok"]);
}

/// A stream that shows its content at once, and ends 50 seconds later.
fn long_stream() -> Head {
    let event = |delta: &str, finish: &str| {
        let choice = format!(r#"{{"index":0,"delta":{{{delta}}},"finish_reason":{finish}}}"#);
        format!("data: {{\"choices\":[{choice}]}}\n\n")
    };
    let (delta, finish) = (event(r#""content":"x""#, "null"), event("", r#""stop""#));
    sse(vec![
        delta.as_str().into(),
        Step::Wait(s(50)),
        finish.as_str().into(),
        "data: [DONE]\n\n".into(),
    ])
}

/// A call has its place until its response is handed up, so that a long stream, or a slow reader of
/// one, does not space the calls that follow.
#[tokio::test(start_paused = true)]
async fn the_time_to_read_a_stream_does_not_hold_up_the_next_calls() {
    let ledger = Ledger::memory();
    let call = CallLayer::new().pacing(Pacer::slow_start(1));
    let service = paced(&ledger, call, [long_stream()]);
    for case in ["a", "b"] {
        let response = service.clone().oneshot(chat(case)).await.expect("a head");
        text(response.into_body()).await.expect("whole");
    }
    service.clone().oneshot(chat("c")).await.expect("a head");
    let started = Instant::now();
    service.oneshot(chat("d")).await.expect("a head");
    assert!(started.elapsed() < s(1), "{:?}", started.elapsed());
}

/// A future may be made anywhere; only its polls need a runtime.
#[test]
fn a_call_that_has_to_wait_can_be_made_outside_a_runtime() {
    let ledger = Ledger::memory();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("runtime");
    let call = CallLayer::new().attempts(1).budget(s(100));
    let mut service = paced(&ledger, call, [throttled("30"), document("hello", "stop")]);
    runtime.block_on(service.clone().oneshot(chat("a"))).expect("a 429");
    let waiting = service.call(chat("b"));
    runtime.block_on(waiting).expect("answer");
    assert_eq!(verdicts(&ledger, "b"), ["ok"]);
}

/// After a quiet time a host is one of which nothing is known.
#[tokio::test(start_paused = true)]
async fn a_throttle_is_forgotten_when_the_host_was_left_alone_for_long() {
    for (quiet, took) in [(s(300), s(80)), (s(900), s(40))] {
        let ledger = Ledger::memory();
        let call = CallLayer::new().attempts(1);
        let slow = document("hello", "stop").after(s(40));
        let service = paced(&ledger, call, [slow.clone(), document("", "").status(429), slow]);
        service.clone().oneshot(chat("a")).await.expect("answer");
        service.clone().oneshot(chat("b")).await.expect("a 429");
        sleep(quiet).await;
        let started = Instant::now();
        let (first, second) =
            tokio::join!(service.clone().oneshot(chat("c")), service.oneshot(chat("d")));
        assert!(first.is_ok() && second.is_ok());
        assert_eq!(started.elapsed(), took, "after {quiet:?}");
    }
}

/// An answer's status says nothing of a throttle that comes within it.
#[tokio::test(start_paused = true)]
async fn a_throttle_within_a_stream_is_one() {
    for error in [
        r#"data: {"error":{"message":"x","type":"overloaded_error"}}"#,
        r#"data: {"error":{"message":"x","code":"rate_limit_exceeded"}}"#,
    ] {
        let ledger = Ledger::memory();
        let call = CallLayer::new().attempts(1);
        let stream = sse(vec![format!("{error}\n\n").as_str().into()]);
        let service = paced(&ledger, call, [stream, document("hello", "stop")]);
        service.clone().oneshot(chat("a")).await.expect("a response");
        let started = Instant::now();
        service.oneshot(chat("b")).await.expect("answer");
        assert_eq!(started.elapsed(), s(5) + ms(10), "{error}");
    }
}

/// A host that shows content answers again, long before that answer is whole.
#[tokio::test(start_paused = true)]
async fn the_first_content_of_a_stream_ends_a_streak_of_throttles() {
    let ledger = Ledger::memory();
    let call = CallLayer::new().attempts(1).budget(s(100));
    let mut script = vec![document("", "").status(429); 6];
    script.extend([long_stream(), long_stream().after(s(5))]);
    let service = paced(&ledger, call, script);
    for i in 0..6 {
        service.clone().oneshot(chat(&format!("a{i}"))).await.expect("a 429");
        sleep(s(61)).await;
    }
    let reading = service.clone().oneshot(chat("b")).await.expect("a head");
    let (first, second) =
        tokio::join!(service.clone().oneshot(chat("c")), service.oneshot(chat("d")));
    first.expect("a head");
    second.unwrap_or_else(|error| panic!("{error}"));
    text(reading.into_body()).await.expect("whole");
}

/// While a call that was throttled finds out whether its host answers again, no other spends an
/// ordinal on that, though the time that was asked for is over.
#[tokio::test(start_paused = true)]
async fn a_new_call_waits_for_what_a_retry_finds_out() {
    let ledger = Ledger::memory();
    let pacer = Pacer::new();
    let call = || CallLayer::new().pacing(pacer.clone());
    let slow = document("hello", "stop").after(s(5));
    let service = paced(&ledger, call(), [throttled("1"), slow, document("hello", "stop")]);
    // Others in flight, of which nothing is learned: there is room for more than one call at once.
    let broken = [error_after(ms(50), std::io::ErrorKind::ConnectionReset)];
    let others = paced(&ledger, call().attempts(1), broken);
    let mut broken = JoinSet::new();
    for i in 0..7 {
        broken.spawn(others.clone().oneshot(chat(&format!("broken{i}"))));
    }
    let started = Instant::now();
    let first = tokio::spawn(service.clone().oneshot(chat("a")));
    sleep(s(2)).await;
    service.oneshot(chat("b")).await.expect("answer");
    // 10 ms to the throttle, a second's wait, 5 s to the retry's answer.
    assert_eq!(started.elapsed(), ms(10) + s(1) + s(5) + ms(10));
    first.await.expect("no panic").expect("answer");
}

/// A single answer before a throttle tells no rate.
#[tokio::test(start_paused = true)]
async fn a_host_that_was_busy_for_a_moment_is_not_asked_slowly_for_long() {
    let ledger = Ledger::memory();
    let answer = || document("hello", "stop");
    let service = paced(&ledger, CallLayer::new(), [answer(), throttled("1"), answer()]);
    service.clone().oneshot(chat("a")).await.expect("answer");
    sleep(s(9)).await;
    let started = Instant::now();
    for i in 0..24 {
        service.clone().oneshot(chat(&format!("c{i}"))).await.expect("answer");
    }
    assert!(started.elapsed() < s(5), "{:?}", started.elapsed());
}
