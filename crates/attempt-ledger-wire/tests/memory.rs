//! What a tap holds is bounded, by the allocator's count, whatever comes.

#[path = "support/streams.rs"]
mod streams;
mod support;

use std::alloc::System;

use attempt_ledger_wire::{Tap, TapOptions, Wire};
use http::{
    HeaderValue,
    header::{CONTENT_ENCODING, CONTENT_TYPE},
};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use streams::{RECORDED, Recorded};
use support::{Random, seed};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Bytes of an event, and of a document.
const MAX: usize = 64 * 1024;

/// Bytes beyond that: what a reader remembers of an answer, its calls above all.
const BESIDES: usize = 512 * 1024;

const MEDIA: [&str; 5] = [
    "text/event-stream",
    "application/x-ndjson",
    "application/vnd.amazon.eventstream",
    "application/json",
    "text/plain",
];

/// The only test here: others in this process would be counted too.
#[test]
fn no_stream_makes_a_tap_hold_more_than_its_bounds() {
    let seed = seed();
    let mut random = Random(seed);
    // What decoders of encodings hold beside it has a suite of its own.
    let plain = |recorded: &&Recorded| !recorded.response.headers.contains_key(CONTENT_ENCODING);
    for recorded in RECORDED.iter().filter(plain) {
        for (keep_content, endless) in [(false, false), (false, true), (true, false)] {
            // Over and over, as it is or without what ends a line.
            let mut round = recorded.response.body.clone();
            if endless {
                round.retain(|byte| !matches!(byte, b'\n' | b'\r'));
            }
            let len = 4 * MAX.max(round.len());
            let mut body = round.repeat(len / round.len().max(1) + 1);
            // At a few places something else.
            for _ in 0..random.below(4) {
                let (at, with) = (random.below(body.len()), random.below(256) as u8);
                if let Some(byte) = body.get_mut(at) {
                    *byte = with;
                }
            }
            let wire = match random.below(3) {
                0 => Wire::ALL[random.below(Wire::ALL.len())],
                _ => recorded.wire,
            };
            let mut headers = recorded.response.headers.clone();
            if random.below(3) == 0 {
                let media = MEDIA[random.below(MEDIA.len())];
                headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
            }
            let options =
                TapOptions { keep_content, max_body: MAX, max_event: MAX, ..TapOptions::default() };
            let size = 1 + random.below(4096);
            let bound = (MAX * if keep_content { 2 } else { 1 } + BESIDES) as isize;

            let region = Region::new(ALLOCATOR);
            let mut tap = Tap::new(wire, recorded.response.status, &headers, &options);
            for chunk in body.chunks(size) {
                tap.feed(chunk);
                let change = region.change();
                let held = change.bytes_allocated as isize - change.bytes_deallocated as isize;
                assert!(
                    held <= bound && tap.held() <= MAX.max(256 * 1024) + 4096,
                    "seed {seed}: {held} bytes on {wire}, of which {} said, after {headers:?}",
                    tap.held(),
                );
            }
            tap.finish();
        }
    }
}
