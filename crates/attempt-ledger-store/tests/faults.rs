//! Every call to the file system fails once, and then for good, in every way it can.
#![allow(clippy::expect_used, clippy::panic, reason = "a test")]

mod common;

use std::{sync::Arc, time::Duration};

use attempt_ledger_core::{Event, Ordinal, Verdict};
use attempt_ledger_store::{
    Ledger, StoreError,
    file::{FileOptions, OpenError, TailKind},
    testing::{Call, Fault, Op, TestIo},
};
use common::*;

const EIO: i32 = 5;
const ENOSPC: i32 = 28;
const EINTR: i32 = 4;

/// What one script was told is recorded.
#[derive(Debug, Default)]
struct Told {
    opened: Vec<u32>,
    scored: u32,
    error: Option<String>,
}

/// Opens the ledger, records a few attempts over several segments, and notes what was acknowledged
/// before the first error.
async fn script(options: FileOptions) -> Told {
    let mut told = Told::default();
    let ledger = match options.open() {
        Ok(ledger) => ledger,
        Err(error) => {
            assert!(names_its_cause(&error), "{error:?}");
            told.error = Some(error.to_string());
            return told;
        }
    };
    for n in 0..8 {
        let opened = ledger.open(request("a")).await;
        match opened {
            Ok((mut right, ordinal)) => {
                told.opened.push(ordinal.expect("linked").get());
                let closed = right.close(closed(right.attempt(), Verdict::Ok)).await;
                if let Err(error) = closed {
                    return stopped(&ledger, told, error).await;
                }
                if n == 0 {
                    match right.score(grade(right.attempt(), 0.5)).await {
                        Ok(()) => told.scored += 1,
                        // An earlier script's grade.
                        Err(StoreError::Refused(_)) => {}
                        Err(error) => return stopped(&ledger, told, error).await,
                    }
                }
            }
            Err(error) => return stopped(&ledger, told, error).await,
        }
    }
    told
}

fn names_its_cause(error: &dyn std::error::Error) -> bool {
    let io = |e: &(dyn std::error::Error + 'static)| e.downcast_ref::<std::io::Error>().is_some();
    error.source().is_some_and(io)
}

/// After an error nothing is acknowledged any more, and every call says why.
async fn stopped(ledger: &Ledger, mut told: Told, error: StoreError) -> Told {
    assert!(matches!(error, StoreError::Failed { .. }), "{error:?}");
    assert!(names_its_cause(&error));
    for _ in 0..2 {
        let again = ledger.open(request("a")).await.expect_err("stopped");
        assert_eq!(again.to_string(), error.to_string());
        assert!(ledger.flush().await.is_err());
    }
    told.error = Some(error.to_string());
    told
}

async fn each_fault(call: Option<Call>, fault: Fault, sticky: bool) -> u64 {
    let mut hit = 0;
    for nth in 1.. {
        let room = Room::new();
        let io = TestIo::new();
        io.skip_syncs();
        let options = FileOptions::new(room.dir()).segment_bytes(2_500).io(Arc::new(io.clone()));
        io.fail(call, nth, fault, sticky);
        let mut told = vec![script(options.clone()).await];
        // The second script recovers what the first one left.
        told.push(script(options.clone()).await);
        let reached = told.iter().any(|told| told.error.is_some());
        io.heal();
        let what = format!("{call:?} {nth} {fault:?} sticky {sticky}: {told:?}");
        told.push(script(options).await);
        assert!(told[2].error.is_none(), "works again once the fault is gone: {what}");

        let (records, tail) = read(&room.dir());
        assert_eq!(tail.expect("no damage").kind, TailKind::Clean, "{what}");
        let rows = ordinals(&records, "a");
        assert!(rows.is_sorted_by(|a, b| a < b), "no ordinal twice: {what}");
        let acknowledged: Vec<_> = told.iter().flat_map(|told| told.opened.clone()).collect();
        assert!(acknowledged.is_sorted_by(|a, b| a < b), "{what}");
        assert!(acknowledged.iter().all(|o| rows.contains(o)), "an acknowledged row: {what}");
        let scored = records.iter().filter(|r| matches!(r.event, Event::Scored(_))).count();
        let told_scored: u32 = told.iter().map(|told| told.scored).sum();
        assert!(scored as u32 >= told_scored && scored <= 1, "{what}");
        if !reached {
            break;
        }
        hit += 1;
    }
    hit
}

#[tokio::test]
async fn no_failed_call_is_taken_for_a_success() {
    let mut hit = 0;
    for sticky in [false, true] {
        hit += each_fault(None, Fault::Errno(EIO), sticky).await;
        hit += each_fault(Some(Call::Write), Fault::Errno(ENOSPC), sticky).await;
    }
    hit += each_fault(Some(Call::Write), Fault::Torn(ENOSPC), true).await;
    hit += each_fault(Some(Call::Sync), Fault::Errno(EIO), true).await;
    assert!(hit > 100, "only {hit}");
}

#[tokio::test]
async fn a_short_or_interrupted_write_goes_on_where_it_stopped() {
    for (call, fault) in [
        (Call::Write, Fault::Short(1)),
        (Call::Write, Fault::Short(100)),
        (Call::Write, Fault::Errno(EINTR)),
        (Call::Read, Fault::Errno(EINTR)),
    ] {
        for nth in 1..20 {
            let room = Room::new();
            let io = TestIo::new();
            let options = FileOptions::new(room.dir()).io(Arc::new(io.clone()));
            io.fail(Some(call), nth, fault, false);
            let told = [script(options.clone()).await, script(options).await];
            assert!(told.iter().all(|told| told.error.is_none()), "{told:?}");
            assert_eq!(ordinals(&read_clean(&room.dir()), "a"), (1..=16).collect::<Vec<_>>());
        }
    }
    let room = Room::new();
    let io = TestIo::new();
    io.fail(Some(Call::Write), 1, Fault::Short(0), true);
    let error = FileOptions::new(room.dir()).io(Arc::new(io)).open().expect_err("no progress");
    assert!(matches!(error, OpenError::Io { .. }), "a write of nothing does not spin");
}

#[tokio::test]
async fn a_failed_sync_is_never_repeated_and_leaves_a_mark() {
    let room = Room::new();
    let io = TestIo::new();
    let options = FileOptions::new(room.dir()).io(Arc::new(io.clone()));
    let ledger = options.clone().open().expect("opens");
    let right = ledger.open(request("a")).await.expect("opened").0;
    io.fail(Some(Call::Sync), 1, Fault::Errno(EIO), false);
    let error = ledger.open(request("a")).await.expect_err("not synced");
    let StoreError::Failed { action: "sync", file, cause } = &error else { panic!("{error}") };
    assert!(file.ends_with("000000000000.jsonl"));
    assert_eq!(cause.raw_os_error(), Some(EIO));
    assert_eq!(ledger.slot(&slot("a")).expect("known").last, Ordinal::FIRST, "not acknowledged");
    let before = io.ops();
    assert!(ledger.open(request("a")).await.is_err());
    drop((right, ledger));
    assert_eq!(io.ops(), before, "not even a sync at the end");
    assert!(before.iter().any(|op| matches!(op, Op::Create(name) if name.starts_with("failed-"))));

    let ledger = options.open().expect("opens");
    let (_right, ordinal) = ledger.open(request("a")).await.expect("opened");
    assert_eq!(ordinal.map(Ordinal::get), Some(3), "the row that may be on disk keeps its ordinal");
    assert_eq!(segments(&room.dir()).len(), 2, "and the next rows are in another segment");
    drop((_right, ledger));
    read_clean(&room.dir());
    open_file(&room.dir());
    assert_eq!(segments(&room.dir()).len(), 2, "the mark is gone");
}

#[tokio::test]
async fn rows_are_answered_when_they_are_as_durable_as_promised() {
    let room = Room::new();
    let io = TestIo::new();
    let options = FileOptions::new(room.dir()).io(Arc::new(io.clone()));
    let ledger = options.open().expect("opens");
    let mut right = ledger.open(request("a")).await.expect("opened").0;
    io.mark("opened");
    right.close(closed(right.attempt(), Verdict::Ok)).await.expect("closed");
    io.mark("closed");
    right.score(grade(right.attempt(), 0.5)).await.expect("scored");
    io.mark("scored");
    drop((right, ledger));
    let ops = io.ops();
    let at = |what: &dyn Fn(&Op) -> bool| ops.iter().position(what).expect("there");
    let marked = |word: &str| at(&|op: &Op| *op == Op::Mark(word.to_owned()));
    let written = |kind: &str| at(&|op: &Op| op.writes(&format!("\"kind\":\"{kind}\"")));
    for kind in ["opened", "scored"] {
        let synced = &ops[written(kind)..marked(kind)];
        assert!(synced.iter().any(|op| matches!(op, Op::Sync(_))), "{kind}: {synced:?}");
    }
    assert!(written("closed") < marked("closed"));
}

/// With durability `written` nothing waits for a sync, and the end makes one.
#[tokio::test]
async fn written_is_not_synced_until_the_end() {
    let room = Room::new();
    let io = TestIo::new();
    let options = FileOptions::new(room.dir())
        .durability(attempt_ledger_core::Durability::Written)
        .io(Arc::new(io.clone()));
    let ledger = options.open().expect("opens");
    io.mark("start");
    drop(attempt(&ledger, "a", Verdict::Ok).await);
    io.mark("end");
    let syncs = |ops: &[Op]| ops.iter().filter(|op| matches!(op, Op::Sync(_))).count();
    let start = io.ops().iter().position(|op| *op == Op::Mark("start".into())).expect("marked");
    assert_eq!(syncs(&io.ops()[start..]), 0);
    ledger.flush().await.expect("flushed");
    assert_eq!(syncs(&io.ops()[start..]), 1);
    drop(attempt(&ledger, "a", Verdict::Ok).await);
    drop(ledger);
    assert_eq!(syncs(&io.ops()[start..]), 2);
}

/// tokio's paused clock stands still while a batch is written on the runtime.
#[tokio::test(start_paused = true)]
async fn the_paused_clock_does_not_jump_while_the_runtime_writes() {
    let room = Room::new();
    let writer = attempt_ledger_store::file::Writer::Runtime;
    let ledger = FileOptions::new(room.dir()).writer(writer).open().expect("opens");
    let start = tokio::time::Instant::now();
    for _ in 0..20 {
        let one = attempt(&ledger, "a", Verdict::Ok);
        let limited = tokio::time::timeout(Duration::from_millis(1), one);
        drop(limited.await.expect("no time passes"));
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
}
