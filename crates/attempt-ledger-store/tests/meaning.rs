//! What a ledger's reader is told: of rows that a newer version wrote, of bytes that were set aside,
//! and of who holds the lock.
#![allow(clippy::expect_used, clippy::panic, reason = "a test")]

mod common;

use std::{
    fs::{self, File},
    io::Write as _,
    path::Path,
    process::Command,
};

use attempt_ledger_core::{AttemptId, Digest, Event, Ordinal, Record, Verdict};
use attempt_ledger_store::file::{
    DamageKind, FileOptions, FileReader, Holder, IgnoredKind, OpenError,
};
use common::*;
use sha2::{Digest as _, Sha256};

async fn made(dir: &Path) {
    drop(attempt(&open_file(dir), "a", Verdict::Ok).await);
}

fn append(file: &Path, bytes: &[u8]) {
    let mut file = fs::OpenOptions::new().append(true).create(true).open(file).expect("opens");
    file.write_all(bytes).expect("written");
}

/// The next row's line, of a version and with the event's JSON from `"kind"` on.
fn line(dir: &Path, version: u32, event: &str) -> Vec<u8> {
    let mut reader = FileReader::open(dir).expect("a ledger");
    assert!(reader.by_ref().all(|record| record.is_ok()));
    let (seq, hash) = reader.head();
    let time = "2026-04-14T09:30:00.000000Z";
    let mut line = format!("{{\"v\":{version},\"seq\":{seq},\"time\":\"{time}\",{event}");
    let mut sha = Sha256::new();
    sha.update(b"attempt-ledger/1\n");
    sha.update(hash.as_bytes());
    sha.update(line.as_bytes());
    line += &format!(",\"h\":\"{}\"", Digest::from_bytes(sha.finalize().into()));
    let crc = crc32c::crc32c(line.as_bytes());
    (line + &format!(",\"c\":\"{crc:08x}\"}}\n")).into_bytes()
}

fn last_segment(dir: &Path) -> std::path::PathBuf {
    segments(dir).pop().expect("a segment")
}

fn newer(dir: &Path, kind: impl Fn(&DamageKind) -> bool) {
    let (records, tail) = read(dir);
    let damage = tail.expect_err("it can not be read");
    assert!(kind(&damage.kind) && damage.is_newer(), "{damage}");
    assert!(damage.to_string().contains("written by a newer version"), "{damage}");
    assert!(!damage.to_string().contains("damaged"), "{damage}");
    assert!(records.len() <= 4);
    let error = FileOptions::new(dir).open().expect_err("nothing is appended");
    assert!(matches!(error, OpenError::NewerRow(_)), "{error}");
}

/// A whole row of a later version, or of a kind that only a later one has, is not called damage.
#[tokio::test]
async fn a_row_of_a_newer_version_is_not_damage() {
    let room = Room::new();
    made(&room.dir()).await;
    let row = line(&room.dir(), 2, "\"kind\":\"opened\",\"way\":\"another\"");
    append(&last_segment(&room.dir()), &row);
    newer(&room.dir(), |kind| matches!(kind, DamageKind::Version(2)));

    let room = Room::new();
    made(&room.dir()).await;
    let row = line(&room.dir(), 1, "\"kind\":\"withdrawn\",\"attempt\":\"1\"");
    append(&last_segment(&room.dir()), &row);
    newer(&room.dir(), |kind| matches!(kind, DamageKind::UnknownKind(k) if k == "withdrawn"));
}

/// A segment whose header says that its rows are of a later version is not called damage.
#[tokio::test]
async fn a_segment_of_a_newer_version_is_not_damage() {
    let room = Room::new();
    made(&room.dir()).await;
    let reader = FileReader::open(room.dir()).expect("a ledger");
    let (id, len) =
        (reader.ledger(), fs::metadata(last_segment(&room.dir())).expect("there").len());
    let hash = Digest::of(b"not looked at");
    let header = format!(
        "\"kind\":\"segment\",\"version\":2,\"ledger\":\"{id}\",\"previous\":0,\
         \"previous_len\":{len},\"previous_hash\":\"{hash}\""
    );
    let row = line(&room.dir(), 1, &header);
    let seq = read_clean(&room.dir()).len();
    append(&room.dir().join(format!("{seq:012}.jsonl")), &row);
    newer(&room.dir(), |kind| matches!(kind, DamageKind::Version(2)));
}

/// Bytes that were set aside say why.
#[tokio::test]
async fn bytes_set_aside_have_a_kind() {
    let half = b"{\"v\":1,\"seq\":".to_vec();
    for (kind, word) in [
        (IgnoredKind::Torn, "torn"),
        (IgnoredKind::Hole, "hole"),
        (IgnoredKind::AfterFailure, "after_failure"),
    ] {
        let room = Room::new();
        made(&room.dir()).await;
        let bytes = match kind {
            IgnoredKind::Hole => [zeros(&room.dir()), half.clone(), b"\n".to_vec()].concat(),
            _ => half.clone(),
        };
        append(&last_segment(&room.dir()), &bytes);
        if kind == IgnoredKind::AfterFailure {
            fs::write(room.dir().join("failed-000000000004"), "").expect("written");
        }
        drop(open_file(&room.dir()));
        let mut reader = FileReader::open(room.dir()).expect("a ledger");
        assert!(reader.by_ref().all(|record| record.is_ok()));
        let found: Vec<_> = reader.ignored().iter().map(|i| (i.kind, i.len)).collect();
        assert_eq!(found, [(kind, bytes.len() as u64)]);
        assert_eq!(kind.as_str(), word);
    }
}

fn zeros(dir: &Path) -> Vec<u8> {
    let len = fs::metadata(last_segment(dir)).expect("there").len();
    vec![0; usize::try_from((len + 2).next_multiple_of(512) - len).expect("small")]
}

/// An opening among bytes that were set aside spends its ordinal, and is no newer call: nothing was
/// sent for it that is in the ledger.
#[tokio::test]
async fn an_opening_set_aside_does_not_hide_content() {
    let room = Room::new();
    made(&room.dir()).await;
    let opened = |record: Record| match record.event {
        Event::Opened(opened) => Some(opened),
        _ => None,
    };
    let mut opened = read_clean(&room.dir()).into_iter().find_map(opened).expect("a row");
    opened.attempt = AttemptId::from_u128(7);
    opened.ordinal = opened.ordinal.and_then(Ordinal::next);
    let json = serde_json::to_string(&Event::Opened(opened)).expect("json");
    let row = line(&room.dir(), 1, &json[1..json.len() - 1]);
    append(&last_segment(&room.dir()), &[zeros(&room.dir()), row].concat());
    for _ in 0..2 {
        let state = open_file(&room.dir()).slot(&slot("a")).expect("known");
        assert_eq!((state.last.get(), state.newest_call_content), (2, Some(None)));
    }
}

/// A lock that is held while the newest session's process is gone is another's, whose session is
/// not known yet: that session is not taken for alive.
#[tokio::test]
async fn a_process_that_is_gone_holds_nothing() {
    let room = Room::new();
    made(&room.dir()).await;
    let session = |record: &Record| match &record.event {
        Event::Session(session) => Some(session.clone()),
        _ => None,
    };
    let mine = read_clean(&room.dir()).iter().find_map(session).expect("a session");
    let mut child = Command::new("true").spawn().expect("runs");
    child.wait().expect("ends");
    let lock = File::open(room.dir().join("lock")).expect("opens");
    lock.lock().expect("locked");
    let holder = || -> Option<Holder> {
        let reader = FileReader::open(room.dir()).expect("a ledger");
        let holder = reader.writer().expect("read");
        let live = reader.live_session().expect("read");
        assert_eq!(live, holder.as_ref().map(|holder| holder.session));
        match FileOptions::new(room.dir()).open().expect_err("held") {
            OpenError::Held { holder: told, .. } => assert_eq!(told, holder),
            other => panic!("{other}"),
        }
        holder
    };
    assert_eq!(holder().map(|holder| holder.pid), Some(std::process::id()));
    let of = |pid: u32, host: &str| {
        format!(
            "\"kind\":\"session\",\"session\":\"{}\",\"pid\":{pid},\"host\":\"{host}\",\
             \"tool_version\":\"1\"",
            mine.session
        )
    };
    append(&last_segment(&room.dir()), &line(&room.dir(), 1, &of(child.id(), &mine.host)));
    assert_eq!(holder(), None, "nobody is named");
    // Of another machine nothing can be told.
    append(&last_segment(&room.dir()), &line(&room.dir(), 1, &of(child.id(), "elsewhere")));
    assert_eq!(holder().map(|holder| holder.host), Some("elsewhere".into()));
}
