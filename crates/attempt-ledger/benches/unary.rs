//! CPU that one unary request costs beyond the bare service: a chat answer of 1 KB, decoded to a
//! verdict and kept in the memory store, beside what services put there today.
//!
//! ```text
//! cargo bench -p attempt-ledger --bench unary          # ROUNDS=200: more than the default 60
//! ```
//!
//! All contenders alternate in one process on one thread, and its CPU time is taken; ratios of
//! medians are what can be compared between machines. `usual stack` is tower-http's tracing into a
//! JSON subscriber that writes to nowhere, tower's retry, and tower-http's timeouts of head and
//! body. The ledger is made anew each round, so that its rows do not pile up. Requests are made
//! before the clock starts; naming a case is counted apart. Allocations: `--bench allocations`.
#![allow(missing_docs, clippy::expect_used, reason = "a benchmark may stop")]
#![allow(dead_code, reason = "each benchmark uses its part of the support")]

mod support;

use std::{hint::black_box, sync::Arc};

use attempt_ledger::{
    Ledger, Wire,
    core::{Durability, Event, Ordinal, Record, RequestParts, SessionId, fingerprint},
    store::{Ack, Appended, Place, SlotState, Store, StoreError},
    wire::{Tap, TapOptions},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, header};
use http_body::Body;
use support::{
    Contender, Medians, Origin, Plan, Req, Rig, case, chat_answer, chat_request, cpu, install_json,
    measure, ours, request, rounds, timed, traced, usual,
};
use tower::Service;

const REQUESTS: usize = 500;

fn main() {
    let rounds = rounds(60);
    // Before a subscriber exists, then after.
    let untraced = [false, true].map(|pending| without_subscriber(pending, rounds));
    install_json();
    for (pending, mut medians) in [false, true].into_iter().zip(untraced) {
        medians.extend(with_subscriber(pending, rounds));
        print(pending, &medians);
    }
}

fn plan(pending: bool) -> Plan {
    Plan { pending, media: "application/json", chunks: 1 }
}

fn without_subscriber(pending: bool, rounds: usize) -> Medians {
    let rig = Rig::new();
    let answer = chat_answer();
    let origin = Origin::new(plan(pending), &answer);
    let (empty, json) = (Bytes::new(), chat_request());
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let plain = |_: usize, body: &Bytes| request(body);
    let named = |n: usize, body: &Bytes| {
        let mut request = request(body);
        request.extensions_mut().insert(case(n));
        request
    };
    let null = || Ledger::new(Arc::new(Null));
    measure(
        &mut [
            stack("bare", &rig, &json, plain, || origin.clone()),
            stack("TraceLayer, no subscriber", &rig, &json, plain, || traced(origin.clone())),
            stack("Timeout + TimeoutBody", &rig, &json, plain, || timed(origin.clone())),
            stack("ours, empty request", &rig, &empty, named, || {
                ours(origin.clone(), Ledger::memory())
            }),
            stack("ours, 1 KB request", &rig, &json, named, || {
                ours(origin.clone(), Ledger::memory())
            }),
            stack("ours, empty request, rows not kept", &rig, &empty, named, || {
                ours(origin.clone(), null())
            }),
            alone("fingerprint alone", || {
                black_box(fingerprint(&RequestParts {
                    method: "POST",
                    scheme: "http",
                    host: "127.0.0.1",
                    port: Some(8080),
                    path: "/v1/chat/completions",
                    query: None,
                    headers: &[],
                    body: Some(black_box(&json)),
                    epoch: 1,
                }));
            }),
            alone("decoding alone", || {
                let mut tap = Tap::new(Wire::OpenAiChat, 200, &headers, &TapOptions::default());
                tap.feed(&answer);
                tap.finish();
                black_box(tap.evidence());
            }),
            alone("naming the case", || {
                black_box(named(7, &empty));
            }),
            alone("a request without one", || {
                black_box(plain(7, &empty));
            }),
        ],
        rounds,
        REQUESTS,
    )
}

fn with_subscriber(pending: bool, rounds: usize) -> Medians {
    let rig = Rig::new();
    let origin = Origin::new(plan(pending), &chat_answer());
    let json = chat_request();
    let plain = |_: usize, body: &Bytes| request(body);
    measure(
        &mut [
            stack("bare, beside JSON", &rig, &json, plain, || origin.clone()),
            stack("TraceLayer, JSON", &rig, &json, plain, || traced(origin.clone())),
            stack("usual stack", &rig, &json, plain, || usual(origin.clone())),
        ],
        rounds,
        REQUESTS,
    )
}

/// A stack that is made anew each round, with requests that are made before the clock starts.
fn stack<'a, S, B>(
    name: &'static str,
    rig: &'a Rig,
    body: &'a Bytes,
    request: impl Fn(usize, &Bytes) -> Req + 'a,
    make: impl Fn() -> S + 'a,
) -> Contender<'a>
where
    S: Service<Req, Response = Response<B>>,
    S::Error: std::fmt::Debug,
    B: Body<Data = Bytes>,
    B::Error: std::fmt::Debug,
{
    Contender::new(name, move |count| {
        let _entered = rig.enter();
        let mut service = make();
        let requests: Vec<Req> = (0..count).map(|n| request(n, body)).collect();
        let start = cpu();
        let mut bytes = 0;
        for request in requests {
            bytes += rig.exchange(&mut service, request);
        }
        let spent = cpu() - start;
        assert_eq!(bytes, count * chat_answer().len());
        spent
    })
}

/// Work without any stack; the bare service is taken off all alike, so it is put on here.
fn alone<'a>(name: &'static str, work: impl Fn() + 'a) -> Contender<'a> {
    Contender::new(name, move |count| {
        let start = cpu();
        for _ in 0..count {
            work();
        }
        cpu() - start
    })
}

/// Acknowledges every row and keeps none: what the layers cost by themselves.
#[derive(Debug)]
struct Null;

impl Store for Null {
    fn session(&self) -> SessionId {
        SessionId::from_u128(7)
    }
    fn durability(&self) -> Durability {
        Durability::Memory
    }
    fn append(&self, event: Event, _: Place) -> Ack<Appended> {
        let ordinal = matches!(event, Event::Opened(_)).then_some(Ordinal::FIRST);
        Ack::ready(Ok(Appended { seq: 0, ordinal }))
    }
    fn flush(&self, _: Place) -> Ack<()> {
        Ack::ready(Ok(Appended { seq: 0, ordinal: None }))
    }
    fn slot(&self, _: &attempt_ledger::Slot) -> Option<SlotState> {
        None
    }
    fn records(&self) -> Result<Vec<Record>, StoreError> {
        Ok(Vec::new())
    }
}

fn print(pending: bool, medians: &Medians) {
    let how = if pending { "pending first" } else { "ready at once" };
    let us = |name| medians.of(name) / 1e3;
    // These run without the service, which `measure` took off.
    let alone = |name| (medians.of(name) + medians.of("bare")) / 1e3;
    let usual = us("usual stack");
    println!("\none unary request, {how}: us of CPU added to the bare service's {:.2}", us("bare"));
    for name in [
        "TraceLayer, no subscriber",
        "Timeout + TimeoutBody",
        "TraceLayer, JSON",
        "usual stack",
        "ours, empty request",
        "ours, 1 KB request",
        "ours, empty request, rows not kept",
    ] {
        println!("  {name:36} {:7.2}   {:5.2} x the usual stack", us(name), us(name) / usual);
    }
    let print = alone("fingerprint alone");
    println!("  of which (measured alone):");
    println!("    decoding and hashing the answer    {:7.2}", alone("decoding alone"));
    println!("    fingerprint of the request         {print:7.2}");
    let rest = us("ours, 1 KB request") - print;
    println!("  ours but for the fingerprint         {rest:7.2}   {:5.2} x", rest / usual);
    let naming = alone("naming the case") - alone("a request without one");
    println!("  naming the case (the caller's)       {naming:7.2}");
}
