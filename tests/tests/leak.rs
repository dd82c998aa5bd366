//! Nothing of a call stays when it is over, however it ended.
use attempt_ledger::{
    core::{Durability, Event, Record, SessionId},
    store::{Ack, Appended, Place, SlotState, Store, StoreError},
    *,
};
use attempt_ledger_tests::*;
use http::Request;
use http_body_util::BodyExt;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::{alloc::System, sync::Arc, time::Duration};
use tokio::time::{sleep, timeout};
use tower::{ServiceBuilder, ServiceExt};
#[global_allocator]
static A: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

#[derive(Debug)]
struct Null(bool);
impl Store for Null {
    fn session(&self) -> SessionId {
        SessionId::from_u128(1)
    }
    fn durability(&self) -> Durability {
        Durability::Memory
    }
    fn append(&self, e: Event, _: Place) -> Ack<Appended> {
        if self.0 && e.kind() == "closed" {
            return Ack::ready(Err(StoreError::Gone));
        }
        Ack::ready(Ok(Appended {
            seq: 1,
            ordinal: (e.kind() == "opened").then_some(Ordinal::FIRST),
        }))
    }
    fn flush(&self, _: Place) -> Ack<()> {
        Ack::ready(Ok(Appended { seq: 1, ordinal: None }))
    }
    fn slot(&self, _: &Slot) -> Option<SlotState> {
        None
    }
    fn records(&self) -> Result<Vec<Record>, StoreError> {
        Ok(vec![])
    }
}
fn live() -> isize {
    let s = A.stats();
    s.bytes_allocated as isize - s.bytes_deallocated as isize
}
async fn measure<F: Future<Output = ()>>(name: &str, mut f: impl FnMut() -> F) -> bool {
    for _ in 0..200 {
        f().await;
    }
    sleep(Duration::from_secs(100)).await;
    let a = live();
    for _ in 0..1000 {
        f().await;
    }
    sleep(Duration::from_secs(100)).await;
    let per = (live() - a) / 1000;
    println!("{name}: {per} bytes kept a call");
    per > 50
}
#[tokio::test(start_paused = true)]
async fn leaks() {
    let ledger = Ledger::new(Arc::new(Null(false)));
    let broken = Ledger::new(Arc::new(Null(true)));
    let doc = || document("hello", "stop");
    let e500 = || document("", "").status(500);
    let stream = || {
        sse(vec![
            "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hel\"}}]}\n\n".into(),
            Step::Stall,
        ])
    };
    let mut bad = vec![];
    macro_rules! m {
        ($n:expr, $f:expr) => {
            if measure($n, $f).await {
                bad.push($n)
            }
        };
    }
    let full = stack(
        CallLayer::new(),
        LedgerRetry::new(),
        score(),
        LedgerLayer::new(ledger.clone()),
        Frames::new([doc()]),
    );
    m!("ok graded", || {
        let s = full.clone();
        async move {
            s.oneshot(chat("c")).await.unwrap().into_body().collect().await.unwrap();
        }
    });
    m!("dropped in grade", || {
        let s = full.clone();
        async move {
            let _ = timeout(ms(100), s.oneshot(chat("c"))).await;
        }
    });
    let cap = ServiceBuilder::new()
        .layer(CallLayer::new())
        .layer(tower::retry::RetryLayer::new(Always(usize::MAX)))
        .layer(score())
        .layer(LedgerLayer::new(ledger.clone()))
        .service(Frames::new([e500()]));
    m!("capped", || {
        let s = cap.clone();
        async move {
            let _ = s.oneshot(chat("c")).await.unwrap_err();
        }
    });
    let br = stack(
        CallLayer::new(),
        LedgerRetry::new(),
        score(),
        LedgerLayer::new(broken.clone()),
        Frames::new([doc()]),
    );
    m!("ledger error", || {
        let s = br.clone();
        async move {
            let _ = s.oneshot(chat("c")).await.unwrap_err();
        }
    });
    let st = stack(
        CallLayer::new(),
        LedgerRetry::new(),
        score(),
        LedgerLayer::new(ledger.clone()),
        Frames::new([stream()]),
    );
    m!("body dropped", || {
        let s = st.clone();
        async move {
            let mut b = s.oneshot(chat("c")).await.unwrap().into_body();
            b.frame().await;
        }
    });
    m!("idle fired", || {
        let s = st.clone();
        async move {
            let _ = s.oneshot(chat("c")).await.unwrap().into_body().collect().await;
        }
    });
    let bud = stack(
        CallLayer::new().budget(s(2)),
        LedgerRetry::new(),
        score(),
        LedgerLayer::new(ledger.clone()),
        Frames::new([doc().after(s(9))]),
    );
    m!("budget", || {
        let s = bud.clone();
        async move {
            let _ = s.oneshot(chat("c")).await.unwrap_err();
        }
    });
    // a retry that runs in a task of its own and outlives its call; the policy stops by itself after 10
    let below = ServiceBuilder::new()
        .layer(tower::retry::RetryLayer::new(Always(10)))
        .layer(LedgerLayer::new(ledger.clone()))
        .service(Frames::new([e500()]));
    let sp = ServiceBuilder::new().layer(CallLayer::new()).service(tower::service_fn(
        move |r: Request<Body>| {
            let b = below.clone();
            async move { tokio::spawn(b.oneshot(r)).await.unwrap() }
        },
    ));
    m!("orphaned at cap", || {
        let s = sp.clone();
        async move {
            let _ = timeout(ms(15), s.oneshot(chat("c"))).await;
            sleep(ms(200)).await;
        }
    });
    assert!(bad.is_empty(), "leaks: {bad:?}");
}
