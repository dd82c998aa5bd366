//! A bomb costs little memory, whatever it would unpack to.

#![cfg(all(feature = "br", feature = "zstd"))]
#![allow(clippy::expect_used, reason = "a test may panic, its helpers too")]

mod support;

use std::{alloc::System, io::Write as _};

use attempt_ledger_core::Uninspected;
use attempt_ledger_wire::{Tap, TapOptions, Wire};
use brotli::CompressorWriter;
use http::{HeaderValue, header::CONTENT_ENCODING};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use support::headers;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const MIB: usize = 1 << 20;

/// One gibibyte of zeros, packed.
fn br() -> Vec<u8> {
    let mut encoder = CompressorWriter::new(Vec::new(), MIB, 1, 24);
    let zeros = vec![0; MIB];
    for _ in 0..1024 {
        encoder.write_all(&zeros).expect("memory");
    }
    encoder.into_inner()
}

/// The same, in blocks that repeat one byte.
fn zstd(window_log: u8) -> Vec<u8> {
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0, (window_log - 10) << 3];
    for n in 1..=8192 {
        let header = ((128 * 1024) << 3) | (1 << 1) | u32::from(n == 8192);
        frame.extend_from_slice(&header.to_le_bytes()[..3]);
        frame.push(0);
    }
    frame
}

/// The only test here: others in this process would be counted too.
#[test]
fn a_bomb_costs_little_memory() {
    let (br, zstd_8_mib, zstd_2_gib) = (br(), zstd(23), zstd(31));
    assert!(br.len() < MIB && zstd_8_mib.len() < MIB);
    for (coding, bomb, why, most) in [
        // All that is allocated, freed or not: a ring that grows to its window of 16 MiB.
        ("br", &br, Uninspected::Ratio, 40 * MIB),
        ("zstd", &zstd_8_mib, Uninspected::Ratio, 4 * MIB),
        ("zstd", &zstd_2_gib, Uninspected::Size, MIB / 4),
    ] {
        for media in ["text/event-stream", "application/json", "text/plain"] {
            for size in [1, 1500, 1 << 16] {
                let mut headers = headers(media);
                headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding));
                let region = Region::new(ALLOCATOR);
                let mut tap = Tap::new(Wire::OpenAiChat, 200, &headers, &TapOptions::default());
                let mut held = 0;
                for chunk in bomb.chunks(size) {
                    tap.feed(chunk);
                    held = held.max(tap.held());
                }
                tap.finish();
                assert_eq!(tap.facts().uninspected, Some(why), "{coding} {media}");
                let allocated = region.change().bytes_allocated;
                assert!(allocated <= most, "{coding} {media} {size}: {allocated} allocated");
                assert!(held <= allocated + MIB, "{coding} {media} {size}: {held} held");
                assert!(tap.held() <= MIB, "{coding} {media}: {} held", tap.held());
            }
        }
    }
}
