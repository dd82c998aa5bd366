#![allow(dead_code, clippy::expect_used, reason = "for tests, of which each file uses its part")]

use std::path::Path;

use attempt_ledger_core::{
    AttemptId, CaseId, Closed, Decision, Detail, Digest, Event, Grade, GraderAttempts, Ordinal,
    Record, Remote, Role, RunId, Slot, Verdict,
};
use attempt_ledger_store::{
    CloseRight, Ledger, OpenRequest,
    file::{Damage, FileOptions, FileReader, Tail, TailKind},
};

pub(crate) fn slot(case: &str) -> Slot {
    Slot::new(RunId::new("run-1").expect("id"), CaseId::new(case).expect("id"))
}

pub(crate) fn request(case: &str) -> OpenRequest {
    OpenRequest::new(&slot(case))
}

pub(crate) fn grader_request(case: &str) -> OpenRequest {
    OpenRequest::new(&slot(case).role(Role::Grader))
}

pub(crate) fn answer() -> Digest {
    Digest::of(b"the answer")
}

pub(crate) fn closed(attempt: AttemptId, verdict: Verdict) -> Closed {
    let remote = Remote::Answered;
    let mut closed = Closed::bare(attempt, Decision { verdict, remote, detail: Detail::default() });
    closed.answer_sha256 = verdict.is_content().then(answer);
    closed
}

pub(crate) fn grade(attempt: AttemptId, score: f64) -> Grade {
    Grade {
        attempt,
        score,
        grader: "exact".into(),
        grader_version: "1".into(),
        answer_sha256: answer(),
        grader_attempts: GraderAttempts::None,
    }
}

/// Opens an attempt and closes it.
pub(crate) async fn attempt(ledger: &Ledger, case: &str, verdict: Verdict) -> CloseRight {
    let (mut right, _) = ledger.open(request(case)).await.expect("opened");
    right.close(closed(right.attempt(), verdict)).await.expect("closed");
    right
}

pub(crate) fn open_file(dir: &Path) -> Ledger {
    FileOptions::new(dir).open().expect("opens")
}

pub(crate) fn read(dir: &Path) -> (Vec<Record>, Result<Tail, Damage>) {
    let mut reader = FileReader::open(dir).expect("a ledger");
    let mut records = Vec::new();
    for record in reader.by_ref() {
        match record {
            Ok(record) => records.push(record),
            Err(damage) => return (records, Err(damage)),
        }
    }
    (records, Ok(reader.tail().expect("read to the end").clone()))
}

pub(crate) fn read_clean(dir: &Path) -> Vec<Record> {
    let (records, tail) = read(dir);
    assert_eq!(tail.expect("whole").kind, TailKind::Clean);
    records
}

pub(crate) fn kinds(records: &[Record]) -> Vec<&'static str> {
    records.iter().map(|record| record.event.kind()).collect()
}

/// The ordinals of a slot, in the order of their rows.
pub(crate) fn ordinals(records: &[Record], case: &str) -> Vec<u32> {
    let of = |record: &Record| match &record.event {
        Event::Opened(o) if o.slot() == Some(slot(case)) => o.ordinal.map(Ordinal::get),
        _ => None,
    };
    records.iter().filter_map(of).collect()
}

/// A directory that is gone after the test.
pub(crate) struct Room(tempfile::TempDir);

impl Room {
    pub(crate) fn new() -> Self {
        Room(tempfile::tempdir().expect("a directory"))
    }

    pub(crate) fn dir(&self) -> std::path::PathBuf {
        self.path("ledger")
    }

    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }
}

/// The ledger's segments, in order.
pub(crate) fn segments(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut paths: Vec<_> = std::fs::read_dir(dir)
        .expect("lists")
        .map(|entry| entry.expect("entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "jsonl"))
        .collect();
    paths.sort();
    paths
}
