//! Heap allocations that a unary request costs beyond the bare service, and that a chunk of a
//! streamed body costs: the second must be none, and this fails if it is not.
//!
//! ```text
//! cargo bench -p attempt-ledger --bench allocations
//! ```
//!
//! A count, not a time: it is the same on every machine. It stands in a benchmark of its own since
//! the counting allocator would be in the others' times.
#![allow(missing_docs, clippy::expect_used, reason = "a benchmark may stop")]
#![allow(dead_code, reason = "each benchmark uses its part of the support")]

mod support;

use std::{alloc::System, pin::pin};

use attempt_ledger::{Ledger, Wire};
use bytes::Bytes;
use http::Response;
use http_body::Body;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use support::{
    Origin, Plan, Reply, Req, Rig, case, chat_answer, chat_events, chat_request, install_json,
    ours, request, streaming, timed, traced, usual,
};
use tower::Service;

#[global_allocator]
static COUNTED: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() {
    let rig = Rig::new();
    let _entered = rig.enter();
    let json = chat_request();
    let plan = Plan { pending: true, media: "application/json", chunks: 1 };
    let origin = Origin::new(plan, &chat_answer());
    let bare = unary(&rig, origin.clone(), &json, false);
    println!("\nallocations of one unary request of 1 KB, beyond the bare service's {bare:.1}");
    let row = |name: &str, count: f64| println!("  {name:36} {:6.1}", count - bare);
    row("TraceLayer, no subscriber", unary(&rig, traced(origin.clone()), &json, false));
    row("Timeout + TimeoutBody", unary(&rig, timed(origin.clone()), &json, false));
    let empty = unary(&rig, ours(origin.clone(), Ledger::memory()), &Bytes::new(), true);
    row("ours, empty request", empty);
    row("ours, 1 KB request", unary(&rig, ours(origin.clone(), Ledger::memory()), &json, true));
    let ledger = streaming(origin.clone(), Wire::OpenAiChat);
    row("LedgerLayer alone, empty request", unary(&rig, ledger, &Bytes::new(), true));
    let naming = Region::new(COUNTED);
    let mut named = request(&json);
    let without = naming.change().allocations;
    named.extensions_mut().insert(case(0));
    let naming = naming.change().allocations - without;
    println!("  naming the case (the caller's)       {naming:4}");

    println!("\nbytes on the stack or in a task");
    println!(
        "  future of the ledger                 {:5}",
        future_size(&streaming(origin.clone(), Wire::OpenAiChat))
    );
    println!(
        "  future of the whole stack            {:5}",
        future_size(&ours(origin.clone(), Ledger::memory()))
    );
    println!(
        "  response body                        {:5}",
        size_of::<attempt_ledger::ResponseBody<Reply>>()
    );

    println!("\nallocations in 10,000 chunks of 1.5 KB");
    for pending in [false, true] {
        let how = if pending { "pending first" } else { "ready at once" };
        let make = |media| Origin::new(Plan { pending, media, chunks: 20_000 }, &chat_events());
        let binary = make("application/octet-stream");
        let stream = make("text/event-stream");
        let row = |name: &str, count: usize| println!("  {name:24} {how:14} {count:6}");
        row("TimeoutBody", chunks(&rig, timed(binary.clone())));
        let clocks = chunks(&rig, streaming(binary, Wire::Plain));
        row("ours, not decoded", clocks);
        let chat = chunks(&rig, streaming(stream, Wire::OpenAiChat));
        row("ours, chat stream", chat);
        assert_eq!((clocks, chat), (0, 0), "a chunk allocates");
    }

    install_json();
    println!("\nwith a JSON subscriber, one unary request");
    row("TraceLayer, JSON", unary(&rig, traced(origin.clone()), &json, false));
    row("usual stack", unary(&rig, usual(origin.clone()), &json, false));
}

fn future_size<S: Service<Req>>(_: &S) -> usize {
    size_of::<S::Future>()
}

/// The mean over requests, since rows and their index grow now and then.
fn unary<S, B>(rig: &Rig, mut service: S, body: &Bytes, named: bool) -> f64
where
    S: Service<Req, Response = Response<B>>,
    S::Error: std::fmt::Debug,
    B: Body<Data = Bytes>,
    B::Error: std::fmt::Debug,
{
    const WARM: usize = 10;
    const COUNT: usize = 500;
    let requests: Vec<Req> = (0..WARM + COUNT)
        .map(|n| {
            let mut request = request(body);
            if named {
                request.extensions_mut().insert(case(n));
            }
            request
        })
        .collect();
    let mut requests = requests.into_iter();
    for request in requests.by_ref().take(WARM) {
        rig.exchange(&mut service, request);
    }
    let region = Region::new(COUNTED);
    for request in requests {
        rig.exchange(&mut service, request);
    }
    let change = region.change();
    (change.allocations + change.reallocations) as f64 / COUNT as f64
}

/// In so many chunks from the middle of a body.
fn chunks<S, B>(rig: &Rig, mut service: S) -> usize
where
    S: Service<Req, Response = Response<B>>,
    S::Error: std::fmt::Debug,
    B: Body<Data = Bytes>,
    B::Error: std::fmt::Debug,
{
    let mut request = request(&Bytes::new());
    request.extensions_mut().insert(case(0));
    let mut body = pin!(rig.call(&mut service, request).into_body());
    rig.read(body.as_mut(), 10);
    let region = Region::new(COUNTED);
    let bytes = rig.read(body.as_mut(), 10_000);
    let change = region.change();
    assert_eq!(bytes, 10_000 * chat_events().len());
    change.allocations + change.reallocations
}
