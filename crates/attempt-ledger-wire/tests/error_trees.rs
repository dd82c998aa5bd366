//! An error of many small values takes no tree many times its size, on any wire.

#![allow(clippy::expect_used, reason = "a test may panic, its helpers too")]

mod support;

use std::alloc::System;

use attempt_ledger_core::{Verdict, decide};
use attempt_ledger_wire::{TapOptions, Wire};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use support::{read, response};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

#[test]
fn an_error_over_a_mebibyte_is_one_without_a_code() {
    let error = format!("{{\"error\":[{}0]}}", "{},".repeat(1 << 20));
    let body = response("application/json", error);
    for &wire in Wire::ALL.iter().filter(|wire| **wire != Wire::Plain) {
        let region = Region::new(ALLOCATOR);
        let (facts, _) = read(wire, &body, &TapOptions::default(), &[]);
        let allocated = region.change().bytes_allocated;
        assert_eq!(decide(200, &facts, &body.end).verdict, Verdict::ProviderError, "{wire}");
        assert!(allocated < 8 * body.body.len(), "{wire}: {allocated} bytes");
    }
}
