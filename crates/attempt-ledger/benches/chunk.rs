//! CPU that one chunk of a streamed body costs beyond the bare body: 1.5 KB a chunk, ready at once
//! and pending first, with the idle and the total clock on.
//!
//! ```text
//! cargo bench -p attempt-ledger --bench chunk          # ROUNDS=200: more than the default 60
//! ```
//!
//! All contenders alternate in one process on one thread, and its CPU time is taken; ratios of
//! medians are what can be compared between machines. The clocks are measured on a media type that
//! is not decoded; decoding a chat stream is measured as a whole, and its decoder alone is counted
//! apart. Allocations per chunk: `--bench allocations`.
#![allow(missing_docs, clippy::expect_used, reason = "a benchmark may stop")]
#![allow(dead_code, reason = "each benchmark uses its part of the support")]

mod support;

use std::{hint::black_box, pin::pin};

use attempt_ledger::{
    Wire,
    wire::{Tap, TapOptions},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, header};
use http_body::Body;
use support::{
    Contender, Medians, Origin, Plan, Req, Rig, case, chat_events, cpu, install_json, measure,
    request, rounds, streaming, timed, traced, usual,
};
use tower::Service;

const CHUNKS: usize = 4_000;

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

fn origin(pending: bool, media: &'static str) -> Origin {
    // More than are read, so that no end is among what is measured.
    Origin::new(Plan { pending, media, chunks: CHUNKS + 1 }, &chat_events())
}

const BINARY: &str = "application/octet-stream";
const STREAM: &str = "text/event-stream";

fn without_subscriber(pending: bool, rounds: usize) -> Medians {
    let rig = Rig::new();
    let binary = origin(pending, BINARY);
    let stream = origin(pending, STREAM);
    let chunk = chat_events();
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(STREAM));
    measure(
        &mut [
            stack("bare", &rig, || binary.clone()),
            stack("TraceLayer's body, no subscriber", &rig, || traced(binary.clone())),
            stack("TimeoutBody", &rig, || timed(binary.clone())),
            stack("ours, not decoded", &rig, || streaming(binary.clone(), Wire::Plain)),
            stack("ours, chat stream", &rig, || streaming(stream.clone(), Wire::OpenAiChat)),
            Contender::new("decoder alone", |count| {
                let mut tap = Tap::new(Wire::OpenAiChat, 200, &headers, &TapOptions::default());
                let start = cpu();
                for _ in 0..count {
                    tap.feed(black_box(&chunk));
                }
                let spent = cpu() - start;
                black_box(tap.evidence());
                spent
            }),
        ],
        rounds,
        CHUNKS,
    )
}

fn with_subscriber(pending: bool, rounds: usize) -> Medians {
    let rig = Rig::new();
    let binary = origin(pending, BINARY);
    measure(
        &mut [
            stack("bare, beside JSON", &rig, || binary.clone()),
            stack("usual stack", &rig, || usual(binary.clone())),
        ],
        rounds,
        CHUNKS,
    )
}

/// The body of one response, from its first chunk on.
fn stack<'a, S, B>(name: &'static str, rig: &'a Rig, make: impl Fn() -> S + 'a) -> Contender<'a>
where
    S: Service<Req, Response = Response<B>>,
    S::Error: std::fmt::Debug,
    B: Body<Data = Bytes>,
    B::Error: std::fmt::Debug,
{
    Contender::new(name, move |count| {
        let _entered = rig.enter();
        let mut request = request(&Bytes::new());
        request.extensions_mut().insert(case(0));
        let mut body = pin!(rig.call(&mut make(), request).into_body());
        let start = cpu();
        let bytes = rig.read(body.as_mut(), count);
        let spent = cpu() - start;
        assert_eq!(bytes, count * chat_events().len());
        spent
    })
}

fn print(pending: bool, medians: &Medians) {
    let how = if pending { "pending first" } else { "ready at once" };
    let bare = medians.of("bare");
    let limit = medians.of("TimeoutBody");
    println!("\none chunk of 1.5 KB, {how}: ns of CPU added to the bare body's {bare:.0}");
    for name in [
        "TraceLayer's body, no subscriber",
        "TimeoutBody",
        "usual stack",
        "ours, not decoded",
        "ours, chat stream",
    ] {
        let ns = medians.of(name);
        println!("  {name:36} {ns:7.0}   {:5.2} x TimeoutBody", ns / limit);
    }
    // It runs without a body, which `measure` took off.
    let decoder = medians.of("decoder alone") + bare;
    let rest = medians.of("ours, chat stream") - decoder;
    println!("  decoder of the chat stream alone     {decoder:7.0}");
    println!("  ours but for the decoder             {rest:7.0}   {:5.2} x", rest / limit);
}
