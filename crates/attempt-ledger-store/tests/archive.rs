//! What holds of a folder of answers.
#![allow(clippy::expect_used, clippy::panic, reason = "a test")]

mod common;

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
    sync::Arc,
};

use attempt_ledger_core::{Content, Digest, Label, ToolCall, answer_sha256, canonical_json};
use attempt_ledger_store::{
    Archive, ArchiveError,
    testing::{Call, Fault, Op, TestIo},
};
use common::Room;
use proptest::prelude::*;

fn content(text: &str) -> Content {
    Content {
        text: text.to_owned(),
        tool_calls: vec![
            ToolCall { name: "f".to_owned(), arguments: "{\"a\":1}\u{1}".to_owned() },
            ToolCall::default(),
        ],
        refusal: Some("no \"way\"".to_owned()),
        finish_reason: Some(Label::new("stop")),
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("there").permissions().mode() & 0o777
}

fn names(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).expect("lists");
    names.map(|entry| entry.expect("entry").file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn an_answer_is_a_file_of_its_owner_named_by_its_digest() {
    let room = Room::new();
    let dir = room.path("archive");
    let archive = Archive::open(&dir).expect("opens");
    let content = content("h\u{e9}llo\u{7f}\n");
    let answer = answer_sha256(&content);
    assert!(archive.put(&answer, &content).expect("kept"));
    assert!(!archive.put(&answer, &content).expect("kept"), "it is kept already");
    assert_eq!(names(&dir), [answer.hex()]);
    assert_eq!((mode(&dir), mode(&dir.join(answer.hex()))), (0o700, 0o600));
    let bytes = fs::read(dir.join(answer.hex())).expect("read");
    assert_eq!(bytes, canonical_json(&bytes).expect("JSON"), "canonical");
    let text = r#"{"finish_reason":"stop","refusal":"no \"way\"","text":"héllo"#;
    assert!(String::from_utf8_lossy(&bytes).starts_with(text));

    let again = Archive::existing(&dir).expect("opens").expect("there");
    assert_eq!(again.get(&answer).expect("read"), Some(content));
    assert_eq!(again.get(&Digest::of(b"other")).expect("read"), None);
    assert!(archive.failures().is_none());
    assert!(Archive::existing(room.path("none")).expect("looked").is_none());
}

#[test]
fn what_is_not_the_answer_of_its_name_is_refused_and_named() {
    let room = Room::new();
    let archive = Archive::open(room.path("archive")).expect("opens");
    let answer = answer_sha256(&content("hello"));
    archive.put(&answer, &content("hello")).expect("kept");
    let path = archive.dir().join(answer.hex());
    let good = fs::read_to_string(&path).expect("read");
    let other = good.replace("hello", "jello");
    let more = good.replacen('{', "{\"more\":1,", 1);
    for bad in [&*other, &*more, "", "null", "[]", &good[..9], &format!("{good}x"), "{}"] {
        fs::write(&path, bad).expect("written");
        match archive.get(&answer) {
            Err(error @ ArchiveError::Other { .. }) => {
                assert!(error.to_string().contains(&answer.hex()), "{error}");
            }
            other => panic!("{bad}: {other:?}"),
        }
    }
    // Nor is it put right in silence.
    assert!(matches!(archive.put(&answer, &content("hello")), Err(ArchiveError::Other { .. })));
    let wrong = archive.put(&answer, &content("jello"));
    assert!(matches!(wrong, Err(ArchiveError::Other { .. })), "under another's name");
    assert_eq!(archive.failures().expect("counted").count, 2);
}

#[test]
fn neither_links_nor_others_folders_are_taken() {
    let room = Room::new();
    let (dir, answer) = (room.path("archive"), answer_sha256(&content("a")));
    let archive = Archive::open(&dir).expect("opens");
    // The right bytes at the end of a link are refused as well.
    let elsewhere = Archive::open(room.path("elsewhere")).expect("opens");
    elsewhere.put(&answer, &content("a")).expect("kept");
    symlink(elsewhere.dir().join(answer.hex()), dir.join(answer.hex())).expect("linked");
    assert!(matches!(archive.get(&answer), Err(ArchiveError::Io { .. })));
    assert!(matches!(archive.put(&answer, &content("a")), Err(ArchiveError::Other { .. })));

    let link = room.path("link");
    symlink(&dir, &link).expect("linked");
    assert!(matches!(Archive::open(&link), Err(ArchiveError::NoFolder(_))));
    assert!(matches!(Archive::existing(&link), Err(ArchiveError::NoFolder(_))));
    for bits in [0o770, 0o707, 0o722] {
        fs::set_permissions(&dir, fs::Permissions::from_mode(bits)).expect("set");
        let opened = Archive::open(&dir);
        assert!(matches!(opened, Err(ArchiveError::Writable { mode, .. }) if mode & 0o777 == bits));
    }
    fs::write(room.path("file"), "").expect("written");
    assert!(matches!(Archive::existing(room.path("file")), Err(ArchiveError::NoFolder(_))));
}

/// Whatever call fails, the answer is whole, or there is none; and the next one is tried.
#[test]
fn a_failed_call_keeps_nothing_that_is_not_whole_and_is_counted() {
    let answer = answer_sha256(&content("a"));
    for (call, fault) in [
        (Call::Create, Fault::Errno(28)),
        (Call::Write, Fault::Errno(28)),
        (Call::Write, Fault::Torn(5)),
        (Call::Sync, Fault::Errno(5)),
        (Call::Rename, Fault::Errno(1)),
    ] {
        let room = Room::new();
        let io = TestIo::new();
        let dir = room.path("archive");
        let archive = Archive::open_with(Arc::new(io.clone()), &dir).expect("opens");
        io.fail(Some(call), 0, fault, true);
        let failed = archive.put(&answer, &content("a"));
        assert!(matches!(failed, Err(ArchiveError::Io { .. })), "{call:?} {fault:?} {failed:?}");
        assert_eq!(archive.failures().expect("counted").count, 1);
        assert!(names(&dir).is_empty(), "{:?}", names(&dir));
        io.heal();
        assert_eq!(archive.get(&answer).expect("read"), None);
        assert!(archive.put(&answer, &content("a")).expect("kept"));
    }
}

#[test]
fn an_answer_is_on_disk_before_it_has_its_name() {
    let room = Room::new();
    let io = TestIo::new();
    let archive = Archive::open_with(Arc::new(io.clone()), room.path("archive")).expect("opens");
    archive.put(&answer_sha256(&content("a")), &content("a")).expect("kept");
    let ops = io.ops();
    let at = |wanted: &dyn Fn(&Op) -> bool| ops.iter().position(wanted).expect("it was done");
    let synced = at(&|op| matches!(op, Op::Sync(_)));
    assert!(synced < at(&|op| matches!(op, Op::Rename { .. })), "{ops:?}");
}

#[test]
fn what_a_killed_writer_left_is_taken_away_and_a_living_ones_is_not() {
    let room = Room::new();
    let dir = room.path("archive");
    drop(Archive::open(&dir).expect("opens"));
    // No process has such an id: the kernel's are below 2^22.
    let dead = format!("tmp-4194305-{:032x}", 1);
    let alive = format!("tmp-{}-{:032x}", std::process::id(), 2);
    for name in [&*dead, &*alive, "notes"] {
        fs::write(dir.join(name), "half an answer").expect("written");
    }
    drop(Archive::open(&dir).expect("opens"));
    let mut left = names(&dir);
    left.sort();
    assert_eq!(left, ["notes", &*alive]);
}

#[test]
fn answers_that_wait_are_bounded_and_what_is_dropped_is_counted() {
    let room = Room::new();
    let archive = Archive::open(room.path("archive")).expect("opens");
    let large = Content { text: "x".repeat(100 << 20), ..Content::default() };
    let digest = Digest::of(b"never looked at");
    let first = archive.pending(digest, large.clone()).expect("room");
    let second = archive.pending(digest, large.clone()).expect("room");
    assert!(archive.pending(digest, large.clone()).is_none(), "256 MiB at most");
    assert_eq!(archive.failures().expect("counted").count, 1);
    first.let_go();
    assert_eq!(archive.failures().expect("counted").count, 1);
    drop(second);
    let failures = archive.failures().expect("counted");
    assert!(matches!(failures.last, ArchiveError::NotWritten { answer } if answer == digest));
    assert_eq!(failures.count, 2);
    let small = archive.pending(answer_sha256(&content("a")), content("a")).expect("room again");
    assert!(small.put().expect("kept"));
    // Longer than a file may be.
    let failed = archive.put(&answer_sha256(&large), &large);
    assert!(matches!(failed, Err(ArchiveError::TooLong { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_answer_comes_back_as_it_was(
        text: String,
        calls in prop::collection::vec((any::<String>(), any::<String>()), 0..3),
        refusal: Option<String>,
        finish: Option<String>,
    ) {
        let room = Room::new();
        let archive = Archive::open(room.path("archive")).expect("opens");
        let call = |(name, arguments)| ToolCall { name, arguments };
        let content = Content {
            text,
            tool_calls: calls.into_iter().map(call).collect(),
            refusal,
            finish_reason: finish.map(|word| Label::new(&word)),
        };
        let answer = answer_sha256(&content);
        archive.put(&answer, &content).expect("kept");
        prop_assert_eq!(archive.get(&answer).expect("read"), Some(content));
    }
}
