//! Attempts of one call that ask, open, are dropped and settle on threads of their own, under a
//! scheduler that tries interleavings: the cap holds, and the call ends once.
//!
//! `RUSTFLAGS='--cfg shuttle' cargo test -p attempt-ledger --lib interleavings`; the number of
//! schedules is `SCHEDULES`, their seed `SEED`.

#![allow(clippy::expect_used, reason = "a test")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Waker},
    time::Duration,
};

use attempt_ledger_core::{CallId, CaseId, Cause, RunId, Slot};
use shuttle::{
    Config, Runner,
    scheduler::{PctScheduler, RandomScheduler, Scheduler},
    thread,
};
use tokio::time::Instant;

use super::{Admission, Call};
use crate::Case;

const CAP: u32 = 2;

fn call() -> Call {
    let slot = Slot::new(RunId::new("r").expect("id"), CaseId::new("c").expect("id"));
    Call::start(CallId::from_u128(1), Case::new(slot), CAP, Duration::from_secs(3600))
}

/// What all threads counted. These are no part of what is scheduled.
#[derive(Debug, Default)]
struct Counted {
    /// Attempts that asked the ledger for an ordinal.
    asked: AtomicU32,
    /// Those of them that were the call's first.
    initial: AtomicU32,
    ends: AtomicU32,
}

/// One attempt: `asks` for its opening, or is dropped before.
fn attempt(call: &Call, asks: bool, counted: &Counted) {
    let over = counted.ends.load(Ordering::SeqCst) > 0;
    let Admission::Open(cause) = call.admit(Instant::now()) else { return };
    assert!(!over, "opened after the call's end was taken");
    assert!(call.opened() <= CAP);
    if asks {
        let asked = counted.asked.fetch_add(1, Ordering::SeqCst) + 1;
        assert!(asked <= CAP, "{asked} ordinals asked for under a cap of {CAP}");
        counted.initial.fetch_add(u32::from(cause == Cause::Initial), Ordering::SeqCst);
    }
    thread::yield_now();
    call.settled_attempt(asks);
}

/// The layer above: looks for the end, and goes.
fn above(call: &Call, counted: &Counted) {
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..3 {
        if call.take_end(&mut cx).is_some() {
            counted.ends.fetch_add(1, Ordering::SeqCst);
        }
        thread::yield_now();
    }
}

fn join(threads: Vec<thread::JoinHandle<()>>) {
    for thread in threads {
        thread.join().expect("no thread panics");
    }
}

fn explore(scenario: impl Fn() + Send + Sync + Clone + 'static) {
    let from_env = |name| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let schedules = from_env("SCHEDULES").map_or(5_000, |n| n as usize);
    let seed = from_env("SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("SEED={seed}");
    let run = |scheduler: Box<dyn Scheduler + Send>, scenario: Box<dyn Fn() + Send + Sync>| {
        let mut config = Config::new();
        config.stack_size = 1 << 18;
        config.silence_warnings = true;
        Runner::new(scheduler, config).run(scenario);
    };
    run(Box::new(RandomScheduler::new_from_seed(seed, schedules)), Box::new(scenario.clone()));
    run(Box::new(PctScheduler::new_from_seed(seed, 3, schedules)), Box::new(scenario));
}

/// Four threads of two attempts each, some of which are dropped before they ask.
fn at_once(asking: [bool; 4]) -> Arc<Counted> {
    let (call, counted) = (call(), Arc::new(Counted::default()));
    let mut threads = Vec::new();
    for asks in asking {
        let (call, counted) = (call.clone(), Arc::clone(&counted));
        threads.push(thread::spawn(move || {
            attempt(&call, asks, &counted);
            attempt(&call, asks, &counted);
        }));
    }
    let (upper, seen) = (call.clone(), Arc::clone(&counted));
    threads.push(thread::spawn(move || above(&upper, &seen)));
    join(threads);
    above(&call, &counted);
    assert!(counted.initial.load(Ordering::SeqCst) <= 1, "one attempt is a call's first");
    assert!(counted.ends.load(Ordering::SeqCst) <= 1, "an end is told once");
    counted
}

#[test]
fn attempts_at_once_fill_the_cap_and_never_pass_it() {
    explore(|| {
        let counted = at_once([true; 4]);
        assert_eq!(counted.asked.load(Ordering::SeqCst), CAP, "no place is lost");
    });
}

#[test]
fn attempts_dropped_before_they_ask_give_their_place_back_and_no_more() {
    explore(|| {
        at_once([true, false, true, false]);
    });
}

#[test]
fn a_sealed_call_opens_nothing_more_and_an_orphan_holds_no_end() {
    explore(|| {
        let (call, counted) = (call(), Arc::new(Counted::default()));
        let mut threads = Vec::new();
        for _ in 0..2 {
            let (call, counted) = (call.clone(), Arc::clone(&counted));
            threads.push(thread::spawn(move || attempt(&call, true, &counted)));
        }
        let (sealing, leaving) = (call.clone(), call.clone());
        threads.push(thread::spawn(move || {
            sealing.seal();
            let more = sealing.admit(Instant::now());
            assert!(!matches!(more, Admission::Open(_)), "opened after a close that failed");
        }));
        threads.push(thread::spawn(move || leaving.orphan()));
        join(threads);
        let mut cx = Context::from_waker(Waker::noop());
        assert!(call.take_end(&mut cx).is_none(), "an end that nobody takes would keep the call");
        assert!(call.opened() <= CAP);
    });
}
