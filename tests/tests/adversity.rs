//! The middleware under bad company: stores that fail or are silent, policies that retry everything,
//! graders that block, servers without end, readers that hold on, attempts at once.
use attempt_ledger::{
    core::{Cause, Holder},
    *,
};
use attempt_ledger_tests::*;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use std::{
    future::Future,
    io,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::{Instant, sleep, timeout};
use tower::{Service, ServiceBuilder, ServiceExt};

const D1: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hello\"}}]}\n\n";
const FINISH: &str =
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
const DONE: &str = "data: [DONE]\n\n";

fn gates(g: GateKind) -> Gates {
    let mut x = attempt_ledger::core::Gates { plain: g, stream: g };
    x.plain = g;
    x
}

/// An opening that failed, a call that goes on, and an error body that stalls: on a thread of its
/// own, since the fault would be a poll that never returns.
#[test]
fn an_unrecorded_error_body_that_stalls_ends() {
    let (tx, rx) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let rt = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        rt.block_on(async {
            let ledger = slow_ledger(ms(1), FailAt::Kind("opened", 1));
            let layer = LedgerLayer::new(ledger.clone()).on_ledger_error(OnLedgerError::GoOn);
            let inner = Frames::new([document("", "").status(500).body(vec![
                "{".into(),
                Step::Wait(s(8)),
                "}".into(),
            ])]);
            let svc = stack(
                CallLayer::new().attempts(1),
                LedgerRetry::new(),
                ScoreLayer::none(),
                layer,
                inner,
            );
            let r = svc.oneshot(chat("c")).await.unwrap();
            let t = text(r.into_body()).await;
            tx.send(format!("{t:?}")).unwrap();
        });
    });
    let got = rx.recv_timeout(Duration::from_secs(10));
    assert!(got.is_ok(), "SPIN: one poll never returned");
}

/// GoOn: cap on attempts is not enforced when nothing can be opened.
#[tokio::test(start_paused = true)]
async fn the_cap_on_attempts_holds_when_nothing_can_be_recorded() {
    let ledger = slow_ledger(ms(1), FailAt::Kind("opened", 1));
    let layer = LedgerLayer::new(ledger.clone()).on_ledger_error(OnLedgerError::GoOn);
    let inner = Frames::new([document("", "").status(500)]);
    let svc = ServiceBuilder::new()
        .layer(CallLayer::new().attempts(3))
        .layer(tower::retry::RetryLayer::new(Always(50)))
        .layer(layer)
        .service(inner.clone());
    let r = svc.oneshot(chat("c")).await;
    assert!(
        inner.calls() <= 3,
        "sent {} under attempts(3): {:?}",
        inner.calls(),
        r.map(|r| r.status())
    );
}

/// Per-attempt timeout shorter than the ack: cap on attempts never reached, ordinals spent
#[tokio::test(start_paused = true)]
async fn the_cap_counts_attempts_dropped_while_opening() {
    let ledger = slow_ledger(ms(7), FailAt::Never);
    let layer = LedgerLayer::new(ledger.clone());
    let inner = Frames::new([document("hello", "stop")]);
    #[derive(Clone)]
    struct P(usize);
    impl<Req: Clone, R> tower::retry::Policy<Req, R, BoxError> for P {
        type Future = std::future::Ready<()>;
        fn retry(&mut self, _: &mut Req, r: &mut Result<R, BoxError>) -> Option<Self::Future> {
            if self.0 == 0 {
                return None;
            }
            self.0 -= 1;
            r.is_err().then(|| std::future::ready(()))
        }
        fn clone_request(&mut self, r: &Req) -> Option<Req> {
            Some(r.clone())
        }
    }
    let svc = ServiceBuilder::new()
        .layer(CallLayer::new().attempts(3))
        .layer(tower::retry::RetryLayer::new(P(40)))
        .layer(tower::timeout::TimeoutLayer::new(ms(2)))
        .layer(layer)
        .service(inner.clone());
    let _ = timeout(s(100), svc.oneshot(chat("c"))).await;
    let n = rows(&ledger, "c").len();
    assert!(n <= 3, "{n} ordinals spent under attempts(3)");
}

// two attempts at once
#[derive(Clone)]
struct Twice<S>(S, usize);
impl<S> Service<Request<Body>> for Twice<S>
where
    S: Service<Request<Body>> + Clone + Send + 'static,
    S::Future: Send,
    S::Response: Send,
    S::Error: Send,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }
    fn call(&mut self, r: Request<Body>) -> Self::Future {
        let mut futs = Vec::new();
        for i in 0..self.1 {
            let mut s = self.0.clone();
            let r = r.clone();
            futs.push(Box::pin(async move {
                sleep(ms(i as u64)).await;
                s.call(r).await
            }));
        }
        Box::pin(async move {
            let mut futs = futs;
            std::future::poll_fn(move |cx| {
                for f in futs.iter_mut() {
                    if let Poll::Ready(x) = f.as_mut().poll(cx) {
                        return Poll::Ready(x);
                    }
                }
                Poll::Pending
            })
            .await
        })
    }
}

#[tokio::test(start_paused = true)]
async fn attempts_at_once_share_the_cap_and_are_hedges() {
    let ledger = slow_ledger(ms(7), FailAt::Never);
    let inner = Frames::new([document("hello", "stop")]);
    let svc = CallLayerSvc(ledger.clone(), inner.clone(), 2, 5);
    let r = svc.oneshot(chat("c")).await;
    let rs = rows(&ledger, "c");
    println!(
        "causes {:?} {:?}",
        rs.iter().map(|r| (r.ordinal, r.cause)).collect::<Vec<_>>(),
        r.map(|r| r.status())
    );
    assert!(rs.len() <= 2, "{} opened under attempts(2)", rs.len());
    assert_eq!(rs[1].cause, Cause::Hedge);
}
#[allow(non_snake_case)]
fn CallLayerSvc(
    ledger: Ledger,
    inner: Frames,
    cap: u32,
    n: usize,
) -> CallService<Twice<LedgerService<Frames>>> {
    use tower::Layer;
    CallLayer::new().attempts(cap).layer(Twice(LedgerLayer::new(ledger).layer(inner), n))
}

/// Grader longer than total: trailing bytes after done
#[tokio::test(start_paused = true)]
async fn a_slow_grade_does_not_end_the_readers_body() {
    for gate in [GateKind::Whole, GateKind::Head] {
        let ledger = Ledger::memory();
        let slow = ScoreLayer::new(GraderFn::new("slow", "1", |_: GradeInput| async {
            sleep(s(10)).await;
            Ok::<f64, BoxError>(1.0)
        }));
        let layer = LedgerLayer::new(ledger.clone())
            .clocks(Clocks::default().total(s(5)))
            .gates(gates(gate));
        let inner = Frames::new([sse(vec![
            D1.into(),
            FINISH.into(),
            DONE.into(),
            Step::Wait(ms(20)),
            ": bye\n\n".into(),
        ])]);
        let svc = stack(CallLayer::new().attempts(1), LedgerRetry::new(), slow, layer, inner);
        let r = svc.oneshot(chat("c")).await.unwrap();
        let t = text(r.into_body()).await;
        println!("{gate:?}: {:?}", t);
        assert!(t.is_ok(), "{gate:?} {t:?} row {:?}", verdicts(&ledger, "c"));
    }
}
/// Same with only a pending before the clean end (the final chunk of a chunked body)
#[tokio::test(start_paused = true)]
async fn the_last_chunk_may_come_after_the_grade() {
    for gate in [GateKind::Whole, GateKind::Head] {
        let ledger = Ledger::memory();
        let slow = ScoreLayer::new(GraderFn::new("slow", "1", |_: GradeInput| async {
            sleep(s(10)).await;
            Ok::<f64, BoxError>(1.0)
        }));
        let layer = LedgerLayer::new(ledger.clone())
            .clocks(Clocks::default().total(s(5)))
            .gates(gates(gate));
        let inner =
            Frames::new([sse(vec![D1.into(), FINISH.into(), DONE.into(), Step::Wait(ms(20))])]);
        let svc = stack(CallLayer::new().attempts(1), LedgerRetry::new(), slow, layer, inner);
        let r = svc.oneshot(chat("c")).await.unwrap();
        let t = text(r.into_body()).await;
        assert!(t.is_ok(), "{gate:?} {t:?} row {:?}", verdicts(&ledger, "c"));
    }
}

/// Budget passing while reader holds
#[tokio::test(start_paused = true)]
async fn a_budget_that_passes_in_the_readers_hands_is_the_readers() {
    let ledger = Ledger::memory();
    let layer = LedgerLayer::new(ledger.clone()).clocks(Clocks::default().total(s(30)));
    let inner = Frames::new([sse(vec![D1.into(), D1.into(), FINISH.into(), DONE.into()])]);
    let svc = stack(
        CallLayer::new().attempts(1).budget(s(10)),
        LedgerRetry::new(),
        ScoreLayer::none(),
        layer,
        inner,
    );
    let mut b = svc.oneshot(chat("c")).await.unwrap().into_body();
    b.frame().await.unwrap().unwrap();
    sleep(s(20)).await;
    let e = b.collect().await.err();
    let row = &rows(&ledger, "c")[0];
    assert_eq!(
        (row.verdict, row.detail.by),
        (Some(Verdict::Abandoned), Some(Holder::Reader)),
        "{e:?}"
    );
}

/// Whole gate: broken after a complete but unterminated last event / a complete document
#[tokio::test(start_paused = true)]
async fn a_cut_after_a_complete_answer_is_the_bodys_and_not_the_attempts() {
    let fin = FINISH.trim_end();
    let doc = r#"{"choices":[{"index":0,"message":{"content":"hello"},"finish_reason":"stop"}]}"#;
    let mut bad = vec![];
    for (name, head) in [
        ("sse cut", sse(vec![D1.into(), fin.into(), Step::Fail(io::ErrorKind::ConnectionReset)])),
        ("sse stall", sse(vec![D1.into(), fin.into(), Step::Stall])),
        (
            "doc cut",
            document("", "").body(vec![doc.into(), Step::Fail(io::ErrorKind::UnexpectedEof)]),
        ),
        ("doc stall", document("", "").body(vec![doc.into(), Step::Stall])),
    ] {
        let ledger = Ledger::memory();
        let layer = LedgerLayer::new(ledger.clone())
            .clocks(Clocks::default().idle(s(5)))
            .gates(gates(GateKind::Whole));
        let svc = stack(
            CallLayer::new().attempts(1),
            LedgerRetry::new(),
            score(),
            layer,
            Frames::new([head]),
        );
        let r = svc.oneshot(chat("c")).await;
        let row = &rows(&ledger, "c")[0];
        println!(
            "{name}: row {:?} score {:?}; caller {:?}",
            row.verdict,
            row.score,
            r.as_ref().map(|r| r.status()).map_err(|e| e.to_string())
        );
        if row.verdict == Some(Verdict::Ok) && r.is_err() {
            bad.push(name);
        }
    }
    assert!(bad.is_empty(), "row is content, caller got Err: {bad:?}");
}

/// Blocking grader's score after the limit
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grader_that_blocks_its_thread_gives_no_late_score() {
    let ledger = Ledger::memory();
    let g = GraderFn::new("block", "1", |_: GradeInput| async {
        #[allow(
            clippy::disallowed_methods,
            reason = "a grader that blocks its thread is the point"
        )]
        std::thread::sleep(Duration::from_millis(900));
        Ok::<f64, BoxError>(1.0)
    });
    let sc = ScoreLayer::configure(g).limit(ms(100)).build();
    let layer = LedgerLayer::new(ledger.clone()).ack_limit(ms(100));
    let svc = stack(
        CallLayer::new().attempts(1),
        LedgerRetry::new(),
        sc,
        layer,
        Frames::new([document("hello", "stop")]),
    );
    #[allow(clippy::disallowed_methods, reason = "the runtime's own clock may be stuck")]
    let t = std::time::Instant::now();
    let r = svc.oneshot(chat("c")).await.unwrap();
    let seen = Attempt::of(&r).unwrap().grade();
    let took = t.elapsed();
    tokio::time::sleep(ms(1500)).await;
    let row = &rows(&ledger, "c")[0];
    assert!(
        seen.is_some() || row.score.is_none(),
        "handed up ungraded after {took:?}, then frozen at {:?}",
        row.score
    );
}

/// GoOn with an open that times out but was written
#[tokio::test(start_paused = true)]
async fn a_row_of_a_request_that_was_sent_never_says_not_reached() {
    let ledger = slow_ledger(s(30), FailAt::Never);
    let layer = LedgerLayer::new(ledger.clone()).on_ledger_error(OnLedgerError::GoOn);
    let inner = Frames::new([document("hello", "stop")]);
    let svc = stack(
        CallLayer::new().attempts(1),
        LedgerRetry::new(),
        ScoreLayer::none(),
        layer,
        inner.clone(),
    );
    let r = svc.oneshot(chat("c")).await.map(|r| r.status());
    sleep(s(60)).await;
    for row in rows(&ledger, "c") {
        assert_ne!(
            row.remote,
            Some(Remote::NotReached),
            "sent {} and answered {r:?}, row {:?}",
            inner.calls(),
            row.verdict
        );
    }
}

/// GoOn: close fails; no further attempt
#[tokio::test(start_paused = true)]
async fn no_attempt_follows_one_that_could_not_be_recorded() {
    let ledger = slow_ledger(ms(1), FailAt::Once("closed", 1));
    let layer = LedgerLayer::new(ledger.clone()).on_ledger_error(OnLedgerError::GoOn);
    let inner = Frames::new([document("", "").status(500)]);
    let svc = stack(
        CallLayer::new().attempts(3),
        LedgerRetry::new(),
        ScoreLayer::none(),
        layer,
        inner.clone(),
    );
    let r = svc.oneshot(chat("c")).await.map(|r| r.status());
    assert_eq!(inner.calls(), 1, "{r:?}");
}

/// HEAD, 204, 304, 101 and empty bodies
#[tokio::test(start_paused = true)]
async fn responses_without_a_body() {
    let mut bad = vec![];
    for (name, method, path, status, ct) in [
        ("HEAD json plain", "HEAD", "/x", 200u16, Some("application/json")),
        ("HEAD json chat", "HEAD", "/v1/chat/completions", 200, Some("application/json")),
        ("204 plain", "POST", "/x", 204, None),
        ("204 chat", "POST", "/v1/chat/completions", 204, None),
        ("205", "GET", "/x", 205, None),
        ("304", "GET", "/x", 304, Some("application/json")),
        //("101", "GET", "/x", 101, None),
        ("HEAD sse chat", "HEAD", "/v1/chat/completions", 200, Some("text/event-stream")),
        ("HEAD gzip", "HEAD", "/x", 200, Some("text/plain")),
    ] {
        let ledger = Ledger::memory();
        let mut h = Head { after: ms(1), status: Ok(status), headers: vec![], body: vec![] };
        if let Some(ct) = ct {
            h = h.header("content-type", ct);
        }
        if name == "HEAD gzip" {
            h = h.header("content-encoding", "gzip");
        }
        let inner = Frames::new([h]);
        let svc = stack(
            CallLayer::new().attempts(3),
            LedgerRetry::new(),
            ScoreLayer::none(),
            LedgerLayer::new(ledger.clone()),
            inner.clone(),
        );
        let mut req = Request::builder()
            .method(method)
            .uri(format!("http://m.test{path}"))
            .body(Full::<Bytes>::default())
            .unwrap();
        req.extensions_mut().insert(Case::new(slot("c")));
        let r = svc.oneshot(req).await.map(|r| r.status().as_u16()).map_err(|e| e.to_string());
        println!("{name}: {:?} sent {} -> {r:?}", verdicts(&ledger, "c"), inner.calls());
        if inner.calls() != 1 {
            bad.push(name);
        }
    }
    assert!(bad.is_empty(), "a correct bodyless answer was repeated: {bad:?}");
}

/// Redirect hops over the row's bound
#[tokio::test]
async fn long_redirects_do_not_fill_a_row() {
    #[derive(Clone)]
    struct R(Arc<AtomicUsize>);
    impl Service<Request<Body>> for R {
        type Response = Response<Body>;
        type Error = io::Error;
        type Future = std::future::Ready<Result<Response<Body>, io::Error>>;
        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
            Poll::Ready(Ok(()))
        }
        fn call(&mut self, _: Request<Body>) -> Self::Future {
            let n = self.0.fetch_add(1, Ordering::SeqCst);
            std::future::ready(Ok(if n < 5 {
                Response::builder()
                    .status(307)
                    .header("location", format!("/{n}{}", "a".repeat(20_000)))
                    .body(Body::default())
                    .unwrap()
            } else {
                Response::builder().header("content-type", "application/json").body(Full::from(r#"{"choices":[{"index":0,"message":{"content":"hello"},"finish_reason":"stop"}]}"#)).unwrap()
            }))
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let ledger = open_file(dir.path()).await;
    let calls = Arc::new(AtomicUsize::new(0));
    let inner = ServiceBuilder::new().layer(redirect_layer()).service(R(calls.clone()));
    let svc = stack(
        CallLayer::new().attempts(3),
        LedgerRetry::new(),
        ScoreLayer::none(),
        LedgerLayer::new(ledger.clone()).list_redirects(true),
        inner,
    );
    let r = svc
        .oneshot(chat("c"))
        .await
        .map(|r| r.status())
        .map_err(|e| format!("{e} / {:?}", e.kind()));
    ledger.flush().await.ok();
    assert!(r.is_ok(), "the server made the ledger fail: {r:?}, row {:?}", verdicts(&ledger, "c"));
}
async fn open_file(p: &std::path::Path) -> Ledger {
    attempt_ledger_store::file::FileOptions::new(p).open().unwrap()
}

/// Dropped within the gate: by caller
#[tokio::test(start_paused = true)]
async fn dropped_within_the_gate_it_was_the_caller() {
    let ledger = Ledger::memory();
    let inner = Frames::new([document("", "").body(vec!["{".into(), Step::Stall])]);
    let svc = stack(
        CallLayer::new().attempts(1),
        LedgerRetry::new(),
        ScoreLayer::none(),
        LedgerLayer::new(ledger.clone()),
        inner,
    );
    let _ = timeout(ms(100), svc.oneshot(chat("c"))).await;
    assert_eq!(rows(&ledger, "c")[0].detail.by, Some(Holder::Caller));
}

/// Small whole_bound and a non-2xx
#[tokio::test(start_paused = true)]
async fn an_error_body_has_a_bound_of_its_own() {
    let ledger = Ledger::memory();
    let big = "x".repeat(3000);
    let inner = Frames::new([
        document("", "").status(503).body(vec![big.as_str().into(), Step::Wait(ms(5)), "y".into()]),
        document("hello", "stop"),
    ]);
    let svc = stack(
        CallLayer::new().attempts(3),
        LedgerRetry::new(),
        ScoreLayer::none(),
        LedgerLayer::new(ledger.clone()).whole_bound(1000),
        inner.clone(),
    );
    let r = svc.oneshot(chat("c")).await.unwrap();
    assert_eq!(
        inner.calls(),
        2,
        "not retried: {:?} {:?}",
        r.status(),
        Attempt::of(&r).unwrap().state()
    );
}

/// An orphaned call under a spawned retry
#[test]
fn a_retry_whose_call_is_gone_does_not_spin() {
    let (tx, rx) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let rt = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        rt.block_on(async {
            let ledger = slow_ledger(ms(1), FailAt::Never);
            let inner = Frames::new([document("", "").status(500)]);
            let below = ServiceBuilder::new()
                .layer(tower::retry::RetryLayer::new(Always(usize::MAX)))
                .layer(LedgerLayer::new(ledger.clone()))
                .service(inner.clone());
            let spawned = tower::service_fn(move |r: Request<Body>| {
                let b = below.clone();
                async move { tokio::spawn(b.oneshot(r)).await.unwrap() }
            });
            let svc = ServiceBuilder::new().layer(CallLayer::new().attempts(3)).service(spawned);
            let _ = timeout(ms(15), svc.oneshot(chat("c"))).await;
            sleep(s(5)).await;
            tx.send(inner.calls()).unwrap();
        });
    });
    let got = rx.recv_timeout(Duration::from_secs(10));
    assert!(got.is_ok(), "SPIN: the spawned retry never yields");
}

/// Policy that rebuilds the request without extensions and retries every error
#[test]
fn a_policy_that_loses_the_case_does_not_spin() {
    let (tx, rx) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let rt = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        rt.block_on(async {
            #[derive(Clone)]
            struct P;
            impl<B> tower::retry::Policy<Request<Body>, Response<B>, Error> for P {
                type Future = std::future::Ready<()>;
                fn retry(
                    &mut self,
                    _: &mut Request<Body>,
                    r: &mut Result<Response<B>, Error>,
                ) -> Option<Self::Future> {
                    match r {
                        Ok(x) if x.status().is_success() => None,
                        _ => Some(std::future::ready(())),
                    }
                }
                fn clone_request(&mut self, r: &Request<Body>) -> Option<Request<Body>> {
                    let mut n = Request::new(r.body().clone());
                    *n.uri_mut() = r.uri().clone();
                    Some(n)
                }
            }
            let ledger = Ledger::memory();
            let inner = Frames::new([document("", "").status(500)]);
            let svc = ServiceBuilder::new()
                .layer(CallLayer::new().attempts(3).budget(s(5)))
                .layer(tower::retry::RetryLayer::new(P))
                .layer(LedgerLayer::new(ledger.clone()))
                .service(inner.clone());
            let r = timeout(s(10), svc.oneshot(chat("c"))).await;
            tx.send(format!("{:?}", r.map(|r| r.map(|r| r.status())))).unwrap();
        });
    });
    let got = rx.recv_timeout(Duration::from_secs(10));
    assert!(got.is_ok(), "SPIN");
    println!("{got:?}");
}

/// The unrecorded count is lost when its own append fails; and a dropped body's failed close is not counted
#[tokio::test(start_paused = true)]
async fn a_close_that_fails_after_a_drop_is_counted() {
    let ledger = slow_ledger(ms(1), FailAt::Once("closed", 1));
    let layer = LedgerLayer::new(ledger.clone()).on_ledger_error(OnLedgerError::GoOn);
    let inner = Frames::new([sse(vec![D1.into(), Step::Stall]), document("hello", "stop")]);
    let svc =
        stack(CallLayer::new().attempts(1), LedgerRetry::new(), ScoreLayer::none(), layer, inner);
    let mut b = svc.clone().oneshot(chat("c")).await.unwrap().into_body();
    b.frame().await.unwrap().unwrap();
    drop(b);
    sleep(s(1)).await;
    svc.oneshot(chat("d")).await.unwrap();
    let n = ledger.records().unwrap().iter().filter(|r| r.event.kind() == "unrecorded").count();
    assert_eq!(n, 1, "a close that failed after a drop is counted nowhere");
}

/// Budget passing while opening is awaited
#[tokio::test(start_paused = true)]
async fn the_budget_cancels_no_acknowledgement() {
    let ledger = slow_ledger(s(5), FailAt::Never);
    let inner = Frames::new([document("hello", "stop")]);
    let svc = stack(
        CallLayer::new().attempts(1).budget(s(2)),
        LedgerRetry::new(),
        ScoreLayer::none(),
        LedgerLayer::new(ledger.clone()),
        inner.clone(),
    );
    let t = Instant::now();
    let e = svc.oneshot(chat("c")).await.unwrap_err();
    println!("{:?} {e:?}", t.elapsed());
    sleep(s(20)).await;
    println!("{:?}", verdicts(&ledger, "c"));
    assert_eq!(t.elapsed().as_secs() / 20, 1);
}

/// Poll n times then drop, for every n, gates, with hedges
#[tokio::test(start_paused = true)]
async fn polled_n_times_and_dropped_no_row_stays_open() {
    for gate in [GateKind::Whole, GateKind::Head] {
        for ack in [0u64, 7] {
            for hedge in [1usize, 2, 3] {
                for n in 0..40usize {
                    let ledger = slow_ledger(ms(ack), FailAt::Never);
                    let inner = Frames::new([sse(vec![
                        D1.into(),
                        Step::Wait(ms(9)),
                        FINISH.into(),
                        Step::Wait(ms(9)),
                        DONE.into(),
                        Step::Wait(ms(3)),
                    ])]);
                    use tower::Layer;
                    let svc = CallLayer::new().attempts(3).layer(Twice(
                        score().layer(
                            LedgerLayer::new(ledger.clone()).gates(gates(gate)).layer(inner),
                        ),
                        hedge,
                    ));
                    let polls = Arc::new(AtomicUsize::new(0));
                    let p2 = polls.clone();
                    let mut work = Box::pin(async move {
                        if let Ok(r) = svc.oneshot(chat("c")).await {
                            let mut b = r.into_body();
                            while let Some(Ok(_)) = b.frame().await {}
                        }
                    });
                    let done = std::future::poll_fn(move |cx| {
                        if p2.fetch_add(1, Ordering::SeqCst) >= n {
                            return Poll::Ready(());
                        }
                        work.as_mut().poll(cx)
                    });
                    timeout(s(2000), done).await.expect("hung");
                    sleep(s(100)).await;
                    for row in rows(&ledger, "c") {
                        let v = row.verdict.unwrap_or_else(|| {
                            panic!("open: gate {gate:?} ack {ack} hedge {hedge} n {n}")
                        });
                        let first = row.ordinal.map(|o| o.is_first()).unwrap_or(false);
                        assert_eq!(
                            row.score.is_some(),
                            v.is_content() && first,
                            "{gate:?} {ack} {hedge} {n} {v:?} {:?}",
                            row.ordinal
                        );
                    }
                }
            }
        }
    }
}

/// A body moved between tasks, another waker each poll
#[tokio::test(start_paused = true)]
async fn a_body_moved_between_tasks_is_woken_where_it_is() {
    let ledger = Ledger::memory();
    let layer = LedgerLayer::new(ledger.clone()).clocks(Clocks::default().idle(s(5)).total(s(60)));
    let inner = Frames::new([sse(vec![D1.into(), Step::Stall])]);
    let svc =
        stack(CallLayer::new().attempts(1), LedgerRetry::new(), ScoreLayer::none(), layer, inner);
    let mut body = svc.oneshot(chat("c")).await.unwrap().into_body();
    body.frame().await.unwrap().unwrap();
    let b = Arc::new(Mutex::new(body));
    let t = Instant::now();
    // several tasks poll once, then the last must be woken
    for _ in 0..5 {
        let b = b.clone();
        tokio::spawn(async move {
            std::future::poll_fn(|cx| {
                let mut b = b.lock().unwrap();
                let _ = http_body::Body::poll_frame(Pin::new(&mut *b), cx);
                Poll::Ready(())
            })
            .await;
        })
        .await
        .unwrap();
        sleep(ms(100)).await;
    }
    let b2 = b.clone();
    let e = timeout(
        s(100),
        tokio::spawn(async move {
            std::future::poll_fn(|cx| {
                http_body::Body::poll_frame(Pin::new(&mut *b2.lock().unwrap()), cx)
            })
            .await
        }),
    )
    .await
    .expect("woken")
    .unwrap();
    assert!(e.unwrap().unwrap_err().is_deadline());
    assert_eq!(t.elapsed(), s(5));
}

/// Many one-byte frames: memory held
#[tokio::test]
async fn tiny_frames_count_against_the_gates_bound() {
    println!("size of a held frame: {}", std::mem::size_of::<http_body::Frame<Bytes>>());
    struct Ones(usize);
    impl http_body::Body for Ones {
        type Data = Bytes;
        type Error = io::Error;
        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<http_body::Frame<Bytes>, io::Error>>> {
            if self.0 == 0 {
                return Poll::Ready(None);
            }
            self.0 -= 1;
            Poll::Ready(Some(Ok(http_body::Frame::data(Bytes::from_static(b" ")))))
        }
    }
    let rss = || {
        std::fs::read_to_string("/proc/self/status")
            .unwrap()
            .lines()
            .find(|l| l.starts_with("VmRSS"))
            .unwrap()
            .split_whitespace()
            .nth(1)
            .unwrap()
            .parse::<usize>()
            .unwrap()
    };
    let before = rss();
    let ledger = Ledger::memory();
    let svc = ServiceBuilder::new()
        .layer(CallLayer::new())
        .layer(LedgerLayer::new(ledger.clone()))
        .service(tower::service_fn(|_: Request<Body>| async {
            Ok::<_, io::Error>(
                Response::builder()
                    .header("content-type", "application/json")
                    .body(Ones(8 << 20))
                    .unwrap(),
            )
        }));
    let r = svc.oneshot(chat("c")).await.unwrap();
    let after = rss();
    println!("held 8 MiB in one-byte frames: RSS +{} MiB", (after - before) / 1024);
    drop(r);
    assert!(
        (after - before) / 1024 < 64,
        "RSS +{} MiB for a bound of 8 MiB",
        (after - before) / 1024
    );
}

/// Fast endless stream, greedy reader: who is blamed
#[tokio::test]
async fn a_reader_that_takes_all_there_is_is_not_blamed() {
    struct Flood;
    impl http_body::Body for Flood {
        type Data = Bytes;
        type Error = io::Error;
        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<http_body::Frame<Bytes>, io::Error>>> {
            Poll::Ready(Some(Ok(http_body::Frame::data(Bytes::from_static(b": ping\n\n")))))
        }
    }
    let ledger = Ledger::memory();
    let svc = ServiceBuilder::new()
        .layer(CallLayer::new())
        .layer(LedgerLayer::new(ledger.clone()).clocks(Clocks::default().total(ms(200))))
        .service(tower::service_fn(|_: Request<Body>| async {
            Ok::<_, io::Error>(
                Response::builder()
                    .header("content-type", "text/event-stream")
                    .body(Flood)
                    .unwrap(),
            )
        }));
    let mut b = svc.oneshot(chat("c")).await.unwrap().into_body();
    let e = loop {
        match b.frame().await {
            Some(Ok(_)) => {}
            Some(Err(e)) => break e,
            None => panic!(),
        }
    };
    let row = &rows(&ledger, "c")[0];
    assert_eq!(row.verdict, Some(Verdict::Deadline), "{e}; blamed on {:?}", row.detail.by);
}

/// Send/sync/unpin
fn send_sync<T: Send + Sync>() {}
fn send<T: Send>() {}
#[test]
fn futures_and_bodies_are_send_and_bodies_sync() {
    send_sync::<ResponseBody<FramesBody>>();
    fn unpin<T: Unpin>() {}
    unpin::<ResponseBody<FramesBody>>();
    type NonSync = http_body_util::combinators::UnsyncBoxBody<Bytes, BoxError>;
    send::<ResponseBody<NonSync>>();
    unpin::<ResponseBody<NonSync>>();
    send_sync::<ResponseBody<http_body_util::combinators::BoxBody<Bytes, BoxError>>>();
    send_sync::<Error>();
    send_sync::<Attempt>();
    send_sync::<Call>();
}

/// Hedge at the cap kills the healthy first
#[tokio::test(start_paused = true)]
async fn a_hedge_refused_at_the_cap_leaves_the_open_attempt_alone() {
    let ledger = Ledger::memory();
    let inner = Frames::new([document("hello", "stop").after(ms(50))]);
    let r = CallLayerSvc(ledger.clone(), inner.clone(), 1, 2).oneshot(chat("c")).await;
    println!("{:?} {:?}", r.map(|r| r.status()), verdicts(&ledger, "c"));
}

/// Skip after a call whose hedge lost
#[tokio::test(start_paused = true)]
async fn work_finished_by_a_hedged_call_is_skipped() {
    use tower::Layer;
    let ledger = Ledger::memory();
    let mk = |inner: Frames, n| {
        CallLayer::new()
            .attempts(3)
            .skip_finished(ledger.clone())
            .layer(Twice(LedgerLayer::new(ledger.clone()).layer(inner), n))
    };
    let inner = Frames::new([document("hello", "stop").after(ms(50))]);
    mk(inner.clone(), 2).oneshot(chat("c")).await.unwrap();
    sleep(s(1)).await;
    println!("{:?}", verdicts(&ledger, "c"));
    let again = mk(inner.clone(), 1).oneshot(chat("c")).await;
    assert!(
        again.is_err_and(|e| e.is_finished()),
        "the last call ended in content, and was repeated"
    );
}
