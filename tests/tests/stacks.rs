//! Whole stacks with other layers in them: no secret leaks, no grader deadlocks, no bound is passed.
#![allow(clippy::type_complexity, reason = "stacks have long types")]
use attempt_ledger::*;
use attempt_ledger_tests::*;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use std::{
    io,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::time::{Instant, sleep, timeout};
use tower::{Service, ServiceBuilder, ServiceExt};
const D1: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hello\"}}]}\n\n";
const FINISH: &str =
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
const DONE: &str = "data: [DONE]\n\n";

fn secret_req(case: Case) -> Request<Body> {
    let mut r = Request::post(
        "http://CANARYuser:CANARYpw@127.0.0.1:1/v1/chat/completions?key=CANARYq&api_key=CANARYk",
    )
    .header("authorization", "Bearer CANARYh")
    .header("x-api-key", "CANARYx")
    .header("content-type", "application/json")
    .body(Full::from(r#"{"model":"m","messages":[{"role":"user","content":"CANARYprompt"}]}"#))
    .unwrap();
    r.extensions_mut().insert(case);
    r
}
#[tokio::test]
async fn no_secret_is_in_any_debug_or_display() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut said = Vec::new();
    let case = Case::new(slot("c")).idempotency_key("CANARYidem").unwrap();
    said.push(("case", format!("{case:?}")));
    let ledger = Ledger::memory();
    let c =
        client(ledger.clone()).attempts(2).roots(rustls::RootCertStore::empty()).build().unwrap();
    said.push(("client", format!("{c:?}")));
    let fut = c.clone().call(secret_req(case.clone()));
    said.push(("future", format!("{fut:?}")));
    let e = fut.await.unwrap_err();
    said.push(("error", format!("{e:?} {e:#?} {e}")));
    let mut s = std::error::Error::source(&e);
    while let Some(x) = s {
        said.push(("source", format!("{x:?} {x}")));
        s = x.source();
    }
    said.push(("attempt", format!("{:?} {:?}", e.attempt(), e.call())));
    let inner = Frames::new([document("CANARYanswer", "CANARYstop").status(401).body(vec![
        "{\"error\":{\"code\":\"CANARYcode leaked key\",\"message\":\"CANARYmsg\"}}".into(),
    ])]);
    let svc = stack(
        CallLayer::new(),
        LedgerRetry::new(),
        score(),
        LedgerLayer::new(ledger.clone()),
        inner,
    );
    let r = svc.oneshot(secret_req(case)).await.unwrap();
    said.push(("response", format!("{r:?}")));
    said.push(("ext", format!("{:?}", r.extensions())));
    said.push(("records", ledger.records().unwrap().iter().map(|r| format!("{r:?}\n")).collect()));
    let g = HashWhileSent::new(Full::<Bytes>::from("CANARYbody"));
    println!("HashWhileSent debug leaks the body: {}", format!("{g:?}").contains("CANARY"));
    let bad: Vec<_> = said.iter().filter(|(_, s)| s.contains("CANARY")).collect();
    assert!(bad.is_empty(), "{bad:#?}");
}

// recursion of graders under limits, buffers
fn boxed<S>(
    s: S,
) -> tower::util::BoxCloneService<Request<Body>, Response<ResponseBody<FramesBody>>, BoxError>
where
    S: Service<Request<Body>, Response = Response<ResponseBody<FramesBody>>>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
{
    tower::util::BoxCloneService::new(s.map_err(Into::into))
}

#[tokio::test(start_paused = true)]
async fn graders_that_call_the_stack_end_under_any_layer() {
    for gate in [GateKind::Whole, GateKind::Head] {
        for kind in 0..7 {
            let ledger = slow_ledger(ms(3), FailAt::Never);
            let inner =
                Frames::new([sse(vec![D1.into(), Step::Wait(ms(5)), FINISH.into(), DONE.into()])]);
            let again: Arc<
                Mutex<
                    Option<
                        tower::util::BoxCloneService<
                            Request<Body>,
                            Response<ResponseBody<FramesBody>>,
                            BoxError,
                        >,
                    >,
                >,
            > = Arc::default();
            let a2 = again.clone();
            let g = GraderFn::new("rec", "1", move |_: GradeInput| {
                let s = a2.lock().unwrap().clone().unwrap();
                async move {
                    let mut sl = slot("c");
                    sl = sl.role(Role::Grader);
                    let r = s.oneshot(with_case(Case::new(sl))).await?;
                    r.into_body().collect().await?;
                    Ok::<f64, BoxError>(0.5)
                }
            });
            let l = LedgerLayer::new(ledger.clone()).gates(Gates { plain: gate, stream: gate });
            let sc = ScoreLayer::configure(g).limit(s(20)).build();
            let rt = tower::retry::RetryLayer::new(LedgerRetry::new());
            let c = CallLayer::new().budget(s(200));
            let svc = match kind {
                0 => boxed(
                    ServiceBuilder::new()
                        .layer(c)
                        .layer(rt)
                        .layer(sc)
                        .layer(l)
                        .concurrency_limit(1)
                        .service(inner.clone()),
                ),
                1 => boxed(
                    ServiceBuilder::new()
                        .layer(c)
                        .layer(rt)
                        .layer(sc)
                        .layer(l)
                        .layer(tower::buffer::BufferLayer::new(2))
                        .service(inner.clone()),
                ),
                2 => boxed(
                    ServiceBuilder::new()
                        .layer(tower::buffer::BufferLayer::new(8))
                        .layer(c)
                        .layer(rt)
                        .layer(sc)
                        .layer(l)
                        .service(inner.clone()),
                ),
                3 => boxed(
                    ServiceBuilder::new()
                        .layer(c)
                        .layer(tower::buffer::BufferLayer::new(8))
                        .service(
                            ServiceBuilder::new()
                                .layer(rt)
                                .layer(sc)
                                .layer(l)
                                .service(inner.clone()),
                        ),
                ),
                4 => boxed(
                    ServiceBuilder::new()
                        .layer(c)
                        .layer(rt)
                        .layer(sc)
                        .layer(l)
                        .load_shed()
                        .concurrency_limit(1)
                        .service(inner.clone()),
                ),
                5 => boxed(
                    ServiceBuilder::new()
                        .layer(c)
                        .timeout(s(100))
                        .layer(rt)
                        .layer(sc)
                        .layer(l)
                        .timeout(s(50))
                        .service(inner.clone()),
                ),
                _ => {
                    let below =
                        ServiceBuilder::new().layer(rt).layer(sc).layer(l).service(inner.clone());
                    boxed(ServiceBuilder::new().layer(c).service(tower::service_fn(move |r| {
                        let b = below.clone();
                        async move { tokio::spawn(b.oneshot(r)).await.unwrap() }
                    })))
                }
            };
            *again.lock().unwrap() = Some(svc.clone());
            let t = Instant::now();
            let r = timeout(s(400), svc.oneshot(chat("c"))).await.expect("ends");
            let r = match r {
                Ok(r) => text(r.into_body()).await.map_err(|e| e.to_string()),
                Err(e) => Err(e.to_string()),
            };
            let rs = folded(&ledger).rows;
            println!(
                "{gate:?} {kind} {:?}: {:?} rows {:?}",
                t.elapsed(),
                r.map(|x| x.len()),
                rs.iter()
                    .map(|r| (r.role.as_str(), r.verdict, r.score, r.diagnostic))
                    .collect::<Vec<_>>()
            );
            *again.lock().unwrap() = None;
        }
    }
}

// the worst case with random scripts, random slowness of the ledger, silent stores, slow graders, any policy
#[derive(Clone)]
struct P(u32);
impl<Req: Clone, B> tower::retry::Policy<Req, Response<B>, Error> for P {
    type Future = Pin<Box<dyn Future<Output = ()> + Send>>;
    fn retry(&mut self, _: &mut Req, r: &mut Result<Response<B>, Error>) -> Option<Self::Future> {
        let p = self.0;
        match r {
            Ok(x) if x.status().is_success() => None,
            _ => Some(Box::pin(sleep(ms(p as u64)))),
        }
    }
    fn clone_request(&mut self, r: &Req) -> Option<Req> {
        Some(r.clone())
    }
}
#[tokio::test(start_paused = true)]
async fn the_worst_case_holds_for_any_script_store_and_grader() {
    let seed = seed();
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    for n in 0..3000 {
        let budget = ms(rng.u64(0..8000));
        let ack = *rng.choice(&[0u64, 5, 900, 3000]).unwrap();
        let fail = match rng.u32(0..6) {
            0 => FailAt::Silent("opened"),
            1 => FailAt::Silent("closed"),
            2 => FailAt::Silent("scored"),
            3 => FailAt::Once("closed", 2),
            _ => FailAt::Never,
        };
        let ledger = slow_ledger(ms(ack), fail);
        let gl = ms(rng.u64(0..4000));
        let gt = ms(rng.u64(0..6000));
        let g = ScoreLayer::configure(GraderFn::new("s", "1", move |_: GradeInput| async move {
            sleep(gt).await;
            Ok::<f64, BoxError>(1.0)
        }))
        .limit(gl)
        .diagnostics(rng.bool())
        .build();
        let heads: Vec<Head> = (0..rng.usize(1..5))
            .map(|_| {
                let after = ms(rng.u64(0..3000));
                match rng.u32(0..6) {
                    0 => error_after(after, io::ErrorKind::ConnectionReset),
                    1 => document("", "")
                        .status(503)
                        .body(vec!["{".into(), Step::Wait(ms(rng.u64(0..9000))), "}".into()])
                        .after(after),
                    2 => document("", "")
                        .status(500)
                        .body(vec!["x".into(), Step::Stall])
                        .after(after),
                    3 => sse(vec![
                        D1.into(),
                        Step::Wait(ms(rng.u64(0..5000))),
                        FINISH.into(),
                        Step::Wait(ms(rng.u64(0..3000))),
                        DONE.into(),
                    ])
                    .after(after),
                    4 => sse(vec![D1.into(), Step::Stall]).after(after),
                    _ => document("hello", "stop").after(after),
                }
            })
            .collect();
        let go_on = rng.bool();
        let ackl = ms(2000);
        let b = client(ledger.clone())
            .gates(Gates { plain: GateKind::Whole, stream: GateKind::Whole })
            .clocks(Clocks::default().idle(s(4)).total(s(6)))
            .budget(budget)
            .ack_limit(ackl)
            .score(g)
            .attempts(rng.u32(1..5))
            .on_ledger_error(if go_on { OnLedgerError::GoOn } else { OnLedgerError::Fail });
        let worst = b.worst_case();
        let t = Instant::now();
        let inner = Frames::new(heads.clone());
        let r = if rng.bool() {
            timeout(s(10_000), b.build_on(inner).oneshot(chat("c")))
                .await
                .map(|r| r.map(|r| r.status()))
        } else {
            let cap = CallLayer::new().attempts(3).budget(budget);
            let svc = ServiceBuilder::new()
                .layer(cap)
                .layer(tower::retry::RetryLayer::new(P(rng.u32(0..500))))
                .layer(
                    LedgerLayer::new(ledger.clone())
                        .ack_limit(ackl)
                        .clocks(Clocks::default().idle(s(4)).total(s(6)))
                        .gates(Gates { plain: GateKind::Whole, stream: GateKind::Whole }),
                )
                .service(inner);
            timeout(s(10_000), svc.oneshot(chat("c"))).await.map(|r| r.map(|r| r.status()))
        };
        let took = t.elapsed();
        assert!(
            took <= worst + ms(2),
            "n {n} took {took:?} worst {worst:?} budget {budget:?} ack {ack} {fail:?} go_on {go_on} {r:?} {heads:#?}"
        );
        sleep(s(60)).await;
        for row in rows(&ledger, "c") {
            assert!(
                row.verdict.is_some() || matches!(fail, FailAt::Once(..)),
                "n {n} open: {fail:?} {r:?}"
            );
            assert!(row.score.is_none() || row.ordinal.unwrap().is_first());
        }
    }
}

#[derive(Debug)]
struct Flaky(store::Memory, AtomicUsize, AtomicUsize);
impl store::Store for Flaky {
    fn session(&self) -> core::SessionId {
        self.0.session()
    }
    fn durability(&self) -> core::Durability {
        self.0.durability()
    }
    fn append(&self, e: core::Event, p: store::Place) -> store::Ack<store::Appended> {
        if e.kind() == "opened" && self.1.fetch_add(1, Ordering::SeqCst) == 0 {
            return store::Ack::ready(Err(store::StoreError::Gone));
        }
        if e.kind() == "unrecorded" && self.2.fetch_add(1, Ordering::SeqCst) == 0 {
            return store::Ack::ready(Err(store::StoreError::Gone));
        }
        self.0.append(e, p)
    }
    fn flush(&self, p: store::Place) -> store::Ack<()> {
        self.0.flush(p)
    }
    fn slot(&self, s: &Slot) -> Option<store::SlotState> {
        self.0.slot(s)
    }
    fn records(&self) -> Result<Vec<core::Record>, store::StoreError> {
        self.0.records()
    }
}
#[tokio::test(start_paused = true)]
async fn a_count_that_could_not_be_appended_is_kept() {
    let ledger = Ledger::new(Arc::new(Flaky(
        store::Memory::new(store::Capacity::default()),
        AtomicUsize::new(0),
        AtomicUsize::new(0),
    )));
    let svc = stack(
        CallLayer::new(),
        LedgerRetry::new(),
        ScoreLayer::none(),
        LedgerLayer::new(ledger.clone()).on_ledger_error(OnLedgerError::GoOn),
        Frames::new([document("hello", "stop")]),
    );
    for c in ["a", "b", "c", "d"] {
        svc.clone().oneshot(chat(c)).await.unwrap();
    }
    let n = ledger.records().unwrap().iter().filter(|r| r.event.kind() == "unrecorded").count();
    assert_eq!(n, 1, "the count was given up with the append that failed");
}
#[tokio::test(start_paused = true)]
async fn a_handle_tells_nothing_before_the_row_is_acknowledged() {
    let ledger = slow_ledger(ms(100), FailAt::Kind("never", 1));
    let svc = stack(
        CallLayer::new(),
        LedgerRetry::new(),
        ScoreLayer::none(),
        LedgerLayer::new(ledger.clone()),
        Frames::new([sse(vec![D1.into(), FINISH.into(), DONE.into()])]),
    );
    let r = svc.oneshot(chat("c")).await.unwrap();
    let a = Attempt::of(&r).unwrap().clone();
    let t = tokio::spawn(text(r.into_body()));
    sleep(ms(50)).await;
    assert!(a.verdict().is_none() || a.is_recorded(), "{:?} though not acknowledged", a.state());
    t.await.unwrap().unwrap();
}
// per-attempt row of a grade whose close never is acknowledged
#[tokio::test(start_paused = true)]
async fn a_grade_awaits_no_acknowledgement_for_ever() {
    let ledger = slow_ledger(ms(1), FailAt::Silent("closed"));
    let svc = stack(
        CallLayer::new(),
        LedgerRetry::new(),
        score(),
        LedgerLayer::new(ledger.clone()),
        Frames::new([sse(vec![D1.into(), FINISH.into(), DONE.into()])]),
    );
    let before = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let _ = timeout(ms(50), async {
        let r = svc.oneshot(chat("c")).await.unwrap();
        text(r.into_body()).await
    })
    .await;
    sleep(s(100_000)).await;
    let after = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    println!("tasks {before} -> {after} (the store's own silent tasks: 1)");
    assert!(after <= before + 1, "a grade's task waits without a limit");
}
