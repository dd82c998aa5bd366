//! A stream in its steady state allocates nothing, and holds little.

#![allow(clippy::expect_used, reason = "a test may panic, its helpers too")]

#[path = "support/frames.rs"]
mod frames;
#[path = "support/steady.rs"]
mod steady;
mod support;

use std::alloc::System;

use attempt_ledger_wire::{Tap, TapOptions, Wire};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use steady::{Steady, steady};
use support::headers;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The only test here: others in this process would be counted too.
#[test]
fn a_steady_stream_allocates_nothing() {
    chat();
    let wrong: Vec<_> = steady().iter().filter_map(allocates).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What a plain stream of the wire allocates although it should not.
fn allocates(stream: &Steady) -> Option<String> {
    let Steady { wire, media, .. } = stream;
    let events = |from: u64| -> Vec<u8> {
        (from..from + 64).flat_map(|n| (stream.event)(n, steady::WORDS[n as usize % 8])).collect()
    };
    for size in [7, 323, 1500, 16 * 1024] {
        let mut tap = Tap::new(*wire, 200, &headers(media), &TapOptions::default());
        stream.head.chunks(size).for_each(|chunk| tap.feed(chunk));
        let mut from = 0;
        let rounds: Vec<_> = (0..10)
            .map(|_| {
                let body = events(from);
                from += 64;
                let region = Region::new(ALLOCATOR);
                body.chunks(size).for_each(|chunk| tap.feed(chunk));
                let change = region.change();
                change.allocations + change.reallocations
            })
            .collect();
        let held = tap.held();
        // Each of its events counts tokens, by modality: where serde_json passes over what is
        // nested, it notes on the heap how deep.
        let nested = if *wire == Wire::Gemini { 2 * 64 } else { 0 };
        if rounds[2..].iter().min() > Some(&nested) || held > 4096 {
            return Some(format!("{wire} {media}, chunks of {size}: {rounds:?}, {held} held"));
        }
        if stream.media != "text/plain" {
            assert!(tap.progress_events() >= 640, "{wire} {media}: {tap:?}");
        }
    }
    None
}

fn chat() {
    let event = |text: &str, padding: &str| {
        format!(
            "data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\
             \"model\":\"demo\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}},\
             \"logprobs\":null,\"finish_reason\":null}}],\"usage\":null,\
             \"obfuscation\":\"{padding}\"}}\n\n"
        )
    };
    let body: String =
        (0..200).map(|n| event([" the", "é", ", and"][n % 3], &"x".repeat(n % 9))).collect();
    for size in [7, 323, 1500, 16 * 1024] {
        let options = TapOptions::default();
        let mut tap = Tap::new(Wire::OpenAiChat, 200, &headers("text/event-stream"), &options);
        for _ in 0..2 {
            body.as_bytes().chunks(size).for_each(|chunk| tap.feed(chunk));
        }
        // The least of several rounds: the harness's own thread is counted, too, and allocates now
        // and then; the tap would in every round.
        let round = |_| {
            let region = Region::new(ALLOCATOR);
            for _ in 0..4 {
                body.as_bytes().chunks(size).for_each(|chunk| tap.feed(chunk));
            }
            let change = region.change();
            change.allocations + change.reallocations + change.deallocations
        };
        assert_eq!((0..8).map(round).min(), Some(0), "chunks of {size}");
        assert_eq!(tap.progress_events(), (2 + 8 * 4) * 200);
        assert!(tap.held() <= 4096, "{} held", tap.held());
    }
    // From the head to the verdict: what is taken once.
    let options = TapOptions::default();
    let headers = headers("text/event-stream");
    let once = |_| {
        let region = Region::new(ALLOCATOR);
        let mut tap = Tap::new(Wire::OpenAiChat, 200, &headers, &options);
        let new = region.change().allocations;
        body.as_bytes().chunks(1500).for_each(|chunk| tap.feed(chunk));
        (new, region.change().allocations)
    };
    let (new, fed) = (0..8).map(once).min().expect("a round");
    assert!(new <= 1 && fed <= 8, "{new} for the tap, {fed} with its stream");
}
