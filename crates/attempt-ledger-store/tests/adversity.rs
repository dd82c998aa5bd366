//! What holds when the world is unkind: cuts at awkward bytes, files of others, pipes, failing syncs.
#![allow(clippy::expect_used, clippy::panic, reason = "a test")]

mod common;

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::Command,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use attempt_ledger_core::{AttemptId, Note, Ordinal, Verdict};
use attempt_ledger_store::{
    Ledger, StoreError,
    file::{FileOptions, FileReader, OpenError},
    testing::{Call, Fault, Op, TestIo},
};
use common::*;

/// A cut takes the newline of a `sealed` row, and the segment after it: the next writer gives the
/// newline back before it begins another segment.
#[tokio::test]
async fn a_sealed_row_without_its_newline_is_gone_on_from() {
    let room = Room::new();
    let ledger = FileOptions::new(room.dir()).segment_bytes(2_000).open().expect("opens");
    for _ in 0..4 {
        drop(attempt(&ledger, "a", Verdict::Ok).await);
    }
    drop(ledger);
    fs::remove_file(segments(&room.dir()).pop().expect("a segment")).expect("removed");
    let sealed = segments(&room.dir()).pop().expect("a segment");
    let bytes = fs::read(&sealed).expect("reads");
    assert!(String::from_utf8_lossy(&bytes).lines().last().is_some_and(|l| l.contains("sealed")));
    fs::write(&sealed, &bytes[..bytes.len() - 1]).expect("written");
    let ledger = open_file(&room.dir());
    drop(attempt(&ledger, "z", Verdict::Ok).await);
    drop(ledger);
    read_clean(&room.dir());
}

/// A sync that fails while a ledger is opened leaves its mark as any other: the next writer does not
/// trust the page cache, and begins a new segment.
#[tokio::test]
async fn a_sync_that_fails_while_opening_leaves_a_mark() {
    let room = Room::new();
    let io = TestIo::new();
    let options = FileOptions::new(room.dir()).io(Arc::new(io.clone()));
    let ledger = options.clone().open().expect("opens");
    drop(attempt(&ledger, "a", Verdict::Ok).await);
    drop(ledger);
    io.fail(Some(Call::Sync), 1, Fault::Errno(5), false);
    options.clone().open().expect_err("the sync failed");
    let before = segments(&room.dir()).len();
    drop(options.open().expect("opens"));
    assert!(segments(&room.dir()).len() > before, "in another segment than the one that failed");
}

/// Names that an earlier writer made and did not sync are synced before anything is acknowledged.
#[tokio::test]
async fn names_of_a_killed_writer_are_synced_before_use() {
    let room = Room::new();
    let io = TestIo::new();
    let options = FileOptions::new(room.dir()).io(Arc::new(io.clone()));
    // The segment has its name; the sync of the directory that was to follow never came.
    io.fail(Some(Call::SyncDir), 4, Fault::Errno(5), true);
    options.clone().open().expect_err("the sync failed");
    assert_eq!(segments(&room.dir()).len(), 1);
    io.heal();
    io.mark("second");
    let ledger = options.open().expect("opens");
    drop(attempt(&ledger, "a", Verdict::Ok).await);
    let ops = io.ops();
    let second = ops.iter().skip_while(|op| **op != Op::Mark("second".into()));
    let before: Vec<_> = second.take_while(|op| !op.writes("\"kind\":\"opened\"")).collect();
    assert!(before.contains(&&Op::SyncDir("ledger".into())), "{before:?}");
}

async fn note(ledger: &Ledger, attempt: AttemptId, text: String) {
    ledger.note(Note { attempt, text }).await.expect("noted");
}

fn len(path: &Path) -> u64 {
    fs::metadata(path).expect("there").len()
}

/// A row that begins with a page's last byte, of a page that was never written: one zero is a hole.
#[tokio::test]
async fn a_hole_of_one_byte_at_a_pages_end_is_a_hole() {
    let room = Room::new();
    let ledger = open_file(&room.dir());
    let path = segments(&room.dir()).pop().expect("a segment");
    let right = attempt(&ledger, "a", Verdict::Ok).await;
    let id = right.attempt();
    // Notes up to less than two rows before the page's end, and one that fills all but a byte.
    let mut row = 400;
    let page = 4_096 * (len(&path) / 4_096 + 1);
    while len(&path) + 2 * row < page {
        let before = len(&path);
        note(&ledger, id, String::new()).await;
        row = len(&path) - before;
    }
    let rows = fs::read_to_string(&path).expect("reads").lines().count();
    let digits = rows.to_string().len() - (rows - 1).to_string().len();
    let pad = usize::try_from(page - 1 - len(&path) - row).expect("small") - digits;
    note(&ledger, id, "x".repeat(pad)).await;
    assert_eq!(len(&path), page - 1);
    note(&ledger, id, "y".repeat(50)).await;
    drop((right, ledger));
    let mut bytes = fs::read(&path).expect("reads");
    bytes[usize::try_from(page - 1).expect("small")] = 0;
    fs::write(&path, bytes).expect("written");
    drop(open_file(&room.dir()));
    read_clean(&room.dir());
}

/// Files with names that only look like the store's own are not the store's to remove.
#[tokio::test]
async fn files_of_others_stay() {
    let room = Room::new();
    drop(open_file(&room.dir()));
    let others = ["tmp-thesis.txt", "tmp-1-notes", "failed-cases.txt", "failed-1"];
    for name in others {
        fs::write(room.dir().join(name), "mine").expect("written");
    }
    for _ in 0..2 {
        drop(open_file(&room.dir()));
    }
    for name in others {
        assert!(room.dir().join(name).exists(), "{name}");
    }
    assert_eq!(segments(&room.dir()).len(), 1, "nor do they say that a sync failed");
}

/// Who asks for the writer does not wait for whoever may write to a pipe named `lock`.
#[test]
fn a_pipe_named_lock_is_not_waited_for() {
    let room = Room::new();
    drop(open_file(&room.dir()));
    fs::remove_file(room.dir().join("lock")).expect("removed");
    let made = Command::new("mkfifo").arg(room.dir().join("lock")).status().expect("runs");
    assert!(made.success());
    let (sender, receiver) = mpsc::channel();
    let reader = FileReader::open(room.dir()).expect("a ledger");
    thread::spawn(move || sender.send(reader.writer().is_err()));
    let refused = receiver.recv_timeout(Duration::from_secs(20));
    assert_eq!(refused, Ok(true), "it is no lock");
}

/// A directory with files of others and no ledger in it is not made one, and stays as it was.
#[test]
fn a_directory_of_others_does_not_become_a_ledger() {
    let room = Room::new();
    fs::create_dir(room.dir()).expect("made");
    let own = format!("tmp-1-{:032x}", 2);
    for name in ["lock", &own] {
        fs::write(room.dir().join(name), "").expect("written");
    }
    let thesis = room.dir().join("thesis.txt");
    fs::write(&thesis, "mine").expect("written");
    let names = || {
        let entries = fs::read_dir(room.dir()).expect("lists");
        entries.map(|entry| entry.expect("entry").file_name()).collect::<BTreeSet<_>>()
    };
    let before = names();
    let error = FileOptions::new(room.dir()).open().expect_err("no ledger");
    assert!(matches!(&error, OpenError::Foreign { name, .. } if name == "thesis.txt"));
    assert!(error.to_string().contains("\"thesis.txt\""), "{error}");
    assert_eq!(names(), before);
    fs::remove_file(thesis).expect("removed");
    drop(open_file(&room.dir()));
    read_clean(&room.dir());
}

/// A writer whose lock was taken away stops before it writes among the rows of the next one.
#[tokio::test]
async fn a_writer_that_is_not_alone_stops() {
    let room = Room::new();
    let first = open_file(&room.dir());
    let mut right = attempt(&first, "a", Verdict::Ok).await;
    fs::remove_file(room.dir().join("lock")).expect("removed");
    let second = open_file(&room.dir());
    let error = right.score(grade(right.attempt(), 0.5)).await.expect_err("it is not alone");
    assert!(matches!(&error, StoreError::NotAlone { .. }), "{error}");
    first.open(request("a")).await.expect_err("for good");
    let (_right, ordinal) = second.open(request("a")).await.expect("opened");
    assert_eq!(ordinal.map(Ordinal::get), Some(2));
    drop((right, first, _right, second));
    assert_eq!(ordinals(&read_clean(&room.dir()), "a"), [1, 2]);
    assert_eq!(segments(&room.dir()).len(), 1, "and leaves no mark of a failed write");
}

/// Bytes that someone appended to the segment stop its writer, whoever has the lock.
#[tokio::test]
async fn a_segment_that_grew_stops_its_writer() {
    let room = Room::new();
    let ledger = open_file(&room.dir());
    drop(attempt(&ledger, "a", Verdict::Ok).await);
    ledger.flush().await.expect("flushed");
    let path = segments(&room.dir()).pop().expect("a segment");
    fs::OpenOptions::new()
        .append(true)
        .open(&path)
        .and_then(|mut file| std::io::Write::write_all(&mut file, b"{\"v\":1"))
        .expect("written");
    let error = ledger.open(request("a")).await.expect_err("it is not alone");
    assert!(matches!(&error, StoreError::NotAlone { file } if **file == *path), "{error}");
    drop(ledger);
    drop(open_file(&room.dir()));
    read_clean(&room.dir());
}

/// Every directory that is made has its name synced, in the one above it; in the working directory,
/// too.
#[test]
fn every_directory_that_is_made_is_synced() {
    let room = Room::new();
    let synced = |dir: &Path| {
        let io = TestIo::new();
        drop(FileOptions::new(dir).io(Arc::new(io.clone())).open().expect("opens"));
        let ops = io.ops().into_iter();
        let dirs = ops.take_while(|op| !matches!(op, Op::Create(_)));
        dirs.filter_map(|op| if let Op::SyncDir(name) = op { Some(name) } else { None })
            .collect::<Vec<_>>()
    };
    fs::create_dir(room.dir()).expect("made");
    assert_eq!(synced(&room.dir().join("x/y/z")), ["y", "x", "ledger"]);
    assert_eq!(synced(&room.dir().join("w")), ["ledger"]);
    // All other tests name directories from the root on.
    std::env::set_current_dir(room.dir()).expect("there");
    assert_eq!(synced(Path::new("v")), [""], "the working directory has no name");
    assert_eq!(synced(Path::new("q/r")), ["q", ""]);
}
