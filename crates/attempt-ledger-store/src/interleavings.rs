//! Threads that open, close, grade and read one slot, under a scheduler that tries interleavings:
//! ordinals without gap or double, one close, one score, and views that never shrink.
//!
//! `RUSTFLAGS='--cfg shuttle' cargo test -p attempt-ledger-store --lib interleavings`; the number of
//! schedules is `SCHEDULES`, their seed `SEED`.

#![allow(clippy::expect_used, clippy::panic, reason = "a test")]

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use attempt_ledger_core::{
    AttemptId, CaseId, Closed, Decision, Detail, Digest, Event, Fold, Grade, GraderAttempts,
    Liveness, Ordinal, Record, RefusedWhy, Remote, RunId, Slot, Timestamp, Verdict,
};
use shuttle::{
    Config, Runner,
    future::block_on,
    scheduler::{PctScheduler, RandomScheduler, Scheduler},
    thread,
};

use crate::{Ledger, OpenRequest, SlotState, StoreError, file::FileOptions};

/// Threads that each make one attempt.
const WRITERS: u32 = 3;

fn slot() -> Slot {
    Slot::new(RunId::new("r").expect("id"), CaseId::new("c").expect("id"))
}

fn closed(attempt: AttemptId, n: u32) -> Closed {
    let (verdict, remote) = (Verdict::Ok, Remote::Answered);
    let mut closed = Closed::bare(attempt, Decision { verdict, remote, detail: Detail::default() });
    closed.answer_sha256 = Some(answer(n));
    closed
}

fn answer(n: u32) -> Digest {
    Digest::of(&n.to_le_bytes())
}

fn grade(attempt: AttemptId, n: u32, score: f64) -> Grade {
    Grade {
        attempt,
        score,
        grader: "g".into(),
        grader_version: "1".into(),
        answer_sha256: answer(n),
        grader_attempts: GraderAttempts::None,
    }
}

/// What the threads learnt: which attempt got which ordinal, by whom, and which scores were accepted.
#[derive(Debug, Default)]
struct Learnt {
    ordinals: BTreeMap<Ordinal, (AttemptId, u32)>,
    accepted: Vec<(AttemptId, f64)>,
}

/// One attempt of thread `n`, with everything that must be refused on its way.
fn attempt(ledger: &Ledger, n: u32, learnt: &Mutex<Learnt>) {
    let (mut right, ordinal) = block_on(ledger.open(OpenRequest::new(&slot()))).expect("opened");
    let (id, ordinal) = (right.attempt(), ordinal.expect("linked"));
    let before = learnt.lock().expect("whole").ordinals.insert(ordinal, (id, n));
    assert_eq!(before, None, "ordinal {ordinal} twice");

    let early = block_on(ledger.score(grade(id, n, 0.1)));
    let first = ordinal.is_first();
    let why = if first { RefusedWhy::NotClosed } else { RefusedWhy::LaterOrdinal };
    assert!(matches!(early, Err(StoreError::Refused(got)) if got == why), "{early:?}");

    block_on(right.close(closed(id, n))).expect("closed");
    let again = block_on(right.close(closed(id, n)));
    assert!(matches!(again, Err(StoreError::AlreadyClosed(_))), "{again:?}");

    let other = block_on(ledger.score(grade(id, n + 100, 0.2)));
    assert!(matches!(other, Err(StoreError::Refused(_))), "of another answer: {other:?}");

    // Its own grade, and then whatever the first one is by now: who comes first is accepted.
    let score = f64::from(n) / 8.0;
    let own = block_on(right.score(grade(id, n, score)));
    match own {
        Ok(()) => learnt.lock().expect("whole").accepted.push((id, score)),
        Err(StoreError::Refused(RefusedWhy::Frozen)) => assert!(first),
        Err(StoreError::Refused(RefusedWhy::LaterOrdinal)) => assert!(!first),
        other => panic!("{other:?}"),
    }
    let leader = learnt.lock().expect("whole").ordinals.get(&Ordinal::FIRST).copied();
    if let Some((leader, who)) = leader {
        let score = f64::from(n) / 8.0 + 0.01;
        match block_on(ledger.score(grade(leader, who, score))) {
            Ok(()) => learnt.lock().expect("whole").accepted.push((leader, score)),
            Err(StoreError::Refused(RefusedWhy::Frozen | RefusedWhy::NotClosed)) => {}
            other => panic!("{other:?}"),
        }
    }
    let told = block_on(ledger.diagnostic(grade(id, n, 0.9)));
    match told {
        Ok(()) => assert!(!first),
        Err(StoreError::Refused(RefusedWhy::FirstOrdinal)) => assert!(first),
        other => panic!("{other:?}"),
    }
}

/// Looks again and again: a view never shrinks, and what is frozen stays.
fn read(ledger: &Ledger) {
    let mut before: Option<SlotState> = None;
    let mut rows: Vec<Record> = Vec::new();
    for _ in 0..4 {
        let now = ledger.slot(&slot());
        if let Some(before) = before {
            let now = now.expect("still there");
            assert!(now.last >= before.last && now.first == before.first);
            assert!(before.first_verdict.is_none_or(|v| now.first_verdict == Some(v)));
            assert!(before.frozen.is_none_or(|score| now.frozen == Some(score)));
            let newest = |state: SlotState| state.newest_closed.map(|(ordinal, ..)| ordinal);
            assert!(newest(now) >= newest(before));
        }
        before = now.or(before);
        let all = ledger.records().expect("readable");
        assert_eq!(all.get(..rows.len()), Some(&rows[..]), "a reader's rows stay");
        rows = all;
    }
}

fn play(ledger: Ledger) {
    let learnt: Arc<Mutex<Learnt>> = Arc::default();
    let mut threads = Vec::new();
    for n in 1..=WRITERS {
        let (ledger, learnt) = (ledger.clone(), Arc::clone(&learnt));
        threads.push(thread::spawn(move || attempt(&ledger, n, &learnt)));
    }
    let reader = ledger.clone();
    threads.push(thread::spawn(move || read(&reader)));
    for thread in threads {
        thread.join().expect("no thread panics");
    }
    let learnt = learnt.lock().expect("whole");
    let ordinals: Vec<u32> = learnt.ordinals.keys().map(|ordinal| ordinal.get()).collect();
    assert_eq!(ordinals, (1..=WRITERS).collect::<Vec<_>>());
    let [(scored, score)] = learnt.accepted[..] else {
        panic!("one score is accepted: {:?}", learnt.accepted)
    };
    assert_eq!(Some(scored), learnt.ordinals.get(&Ordinal::FIRST).map(|(id, _)| *id));

    let mut fold = Fold::new();
    for record in ledger.records().expect("readable") {
        fold.push(&record).expect("a store keeps the rules");
    }
    let folded = fold.finish(Timestamp::default(), &Liveness::All);
    assert_eq!(folded.slots.len(), 1);
    assert_eq!(folded.slots[0].state.score(), Some(score), "what was accepted is published");
    let state = ledger.slot(&slot()).expect("known");
    assert_eq!((state.frozen, state.open), (Some(score), 0));
    let kinds = ledger.records().expect("readable");
    let count = |is: fn(&Event) -> bool| kinds.iter().filter(|record| is(&record.event)).count();
    assert_eq!(count(|event| matches!(event, Event::Opened(_))), WRITERS as usize);
    assert_eq!(count(|event| matches!(event, Event::Closed(_))), WRITERS as usize);
    assert_eq!(count(|event| matches!(event, Event::Scored(_))), 1);
}

fn from_env(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}

/// Under random schedules, and under those of a depth of three that a priority-based scheduler makes.
fn explore(schedules: usize, scenario: impl Fn() + Send + Sync + Clone + 'static) {
    let schedules = from_env("SCHEDULES").map_or(schedules, |n| n as usize);
    let seed = from_env("SEED").unwrap_or_else(|| crate::ledger::random_u128() as u64);
    println!("SEED={seed}");
    let run = |scheduler: Box<dyn Scheduler + Send>, scenario: Box<dyn Fn() + Send + Sync>| {
        let mut config = Config::new();
        config.stack_size = 1 << 20;
        config.silence_warnings = true;
        Runner::new(scheduler, config).run(scenario);
    };
    run(Box::new(RandomScheduler::new_from_seed(seed, schedules)), Box::new(scenario.clone()));
    run(Box::new(PctScheduler::new_from_seed(seed, 3, schedules)), Box::new(scenario));
}

#[test]
fn in_memory() {
    explore(3_000, || play(Ledger::memory()));
}

#[test]
fn in_files() {
    explore(300, || {
        // Where there is one, a file system without a disk: each schedule syncs.
        let shm = std::path::Path::new("/dev/shm");
        let room = if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() };
        let room = room.expect("a directory");
        play(FileOptions::new(room.path().join("ledger")).open().expect("a ledger"));
    });
}
