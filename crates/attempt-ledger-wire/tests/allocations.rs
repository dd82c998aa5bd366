//! A stream in its steady state allocates nothing, and holds little.

mod support;

use std::alloc::System;

use attempt_ledger_wire::{Tap, TapOptions, Wire};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use support::headers;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The only test here: others in this process would be counted too.
#[test]
fn a_steady_stream_allocates_nothing() {
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
