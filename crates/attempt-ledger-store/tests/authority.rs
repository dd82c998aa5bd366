//! What the store decides itself, whatever the events say that reach it.
#![allow(clippy::expect_used, clippy::panic, reason = "a test")]

mod common;

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

use attempt_ledger_core::{
    AttemptId, Digest, Durability, Event, GateKind, Gates, GraderInfo, Limits, Ordinal, Record,
    RefusedWhy, RetrySettings, RunEvent, RunId, SessionId, Slot, Verdict,
};
use attempt_ledger_store::{
    Ack, Appended, Capacity, Ledger, Memory, OpenRequest, Place, SlotState, Store, StoreError,
    file::FileOptions,
    testing::{Op, TestIo},
};
use common::*;

type Change = Box<dyn Fn(&mut Event) + Send>;

/// A store in memory that is given other events than the ledger sent: what stands between the two
/// may do that, and the rows must still be a ledger.
struct Altered {
    memory: Memory,
    change: Mutex<Change>,
}

impl fmt::Debug for Altered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Altered")
    }
}

impl Store for Altered {
    fn session(&self) -> SessionId {
        self.memory.session()
    }

    fn durability(&self) -> Durability {
        self.memory.durability()
    }

    fn append(&self, mut event: Event, place: Place) -> Ack<Appended> {
        (self.change.lock().expect("not poisoned"))(&mut event);
        self.memory.append(event, place)
    }

    fn flush(&self, place: Place) -> Ack<()> {
        self.memory.flush(place)
    }

    fn slot(&self, slot: &Slot) -> Option<SlotState> {
        self.memory.slot(slot)
    }

    fn records(&self) -> Result<Vec<Record>, StoreError> {
        self.memory.records()
    }
}

fn altered(change: impl Fn(&mut Event) + Send + 'static) -> Ledger {
    let (memory, change) = (Memory::new(Capacity::default()), Mutex::new(Box::new(change) as _));
    Ledger::new(Arc::new(Altered { memory, change }))
}

fn count(ledger: &Ledger, kind: &str) -> usize {
    kinds(&ledger.records().expect("reads")).into_iter().filter(|&k| k == kind).count()
}

fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test]
async fn a_closed_or_unknown_attempt_is_not_closed() {
    let target = Arc::new(Mutex::new(None));
    let to = Arc::clone(&target);
    let ledger = altered(move |event| {
        if let (Event::Closed(closed), Some(id)) = (event, *to.lock().expect("not poisoned")) {
            closed.attempt = id;
        }
    });
    let first = attempt(&ledger, "a", Verdict::Ok).await.attempt();
    let unknown = AttemptId::from_u128(77);
    for id in [first, unknown] {
        *target.lock().expect("not poisoned") = Some(id);
        let (mut right, _) = ledger.open(request("b")).await.expect("opened");
        let error = right.close(closed(id, Verdict::Refused)).await.expect_err("refused");
        match error {
            StoreError::AlreadyClosed(of) => assert_eq!((of, id), (first, first)),
            StoreError::UnknownAttempt(of) => assert_eq!((of, id), (unknown, unknown)),
            other => panic!("{other}"),
        }
    }
    assert_eq!(count(&ledger, "closed"), 1);
    assert_eq!(ledger.slot(&slot("a")).expect("known").first_verdict, Some(Verdict::Ok));
}

#[tokio::test]
async fn an_attempt_is_opened_once() {
    let id = AttemptId::from_u128(5);
    let ledger = altered(move |event| {
        if let Event::Opened(opened) = event {
            opened.attempt = id;
        }
    });
    let _right = ledger.open(request("a")).await.expect("opened");
    for case in ["a", "b"] {
        let error = ledger.open(request(case)).await.expect_err("the id is taken");
        assert!(matches!(error, StoreError::DuplicateAttempt(of) if of == id), "{error}");
    }
    assert_eq!(count(&ledger, "opened"), 1);
    assert_eq!(ledger.slot(&slot("a")).expect("known").last, Ordinal::FIRST);
    assert_eq!(ledger.slot(&slot("b")), None, "nothing was spent");
}

#[tokio::test]
async fn no_caller_gives_an_ordinal() {
    let ledger = altered(|event| {
        if let Event::Opened(opened) = event {
            opened.ordinal = Ordinal::new(9);
        }
    });
    let (_one, first) = ledger.open(request("a")).await.expect("opened");
    let (_two, second) = ledger.open(request("a")).await.expect("opened");
    let (_unlinked, none) = ledger.open(OpenRequest::unlinked()).await.expect("opened");
    assert_eq!([first, second, none], [Ordinal::new(1), Ordinal::new(2), None]);
    let records = ledger.records().expect("reads");
    let of = |record: &Record| match &record.event {
        Event::Opened(opened) => Some(opened.ordinal),
        _ => None,
    };
    let rows: Vec<_> = records.iter().filter_map(of).collect();
    assert_eq!(rows, [Ordinal::new(1), Ordinal::new(2), None]);
}

/// Both stores, small enough to fill.
fn stores(capacity: Capacity) -> [(Ledger, Room); 2] {
    let (memory, file) = (Room::new(), Room::new());
    let opened = FileOptions::new(file.dir()).capacity(capacity).open().expect("opens");
    [(Ledger::memory_with(capacity), memory), (opened, file)]
}

#[tokio::test]
async fn a_right_closes_its_own_attempt() {
    for (ledger, _room) in stores(Capacity::default()) {
        let (mut one, _) = ledger.open(request("a")).await.expect("opened");
        let (two, _) = ledger.open(request("b")).await.expect("opened");
        one.close(closed(two.attempt(), Verdict::Refused)).await.expect("closed");
        let state = |case| ledger.slot(&slot(case)).expect("known");
        assert_eq!((state("a").first_verdict, state("a").open), (Some(Verdict::Refused), 0));
        assert_eq!((state("b").first_verdict, state("b").open), (None, 1));
    }
}

#[tokio::test]
async fn a_grade_before_the_close_leaves_the_close_its_place() {
    for (ledger, _room) in stores(Capacity { open: 1, other: 4 }) {
        let (mut right, _) = ledger.open(request("a")).await.expect("opened");
        let id = right.attempt();
        for _ in 0..3 {
            let early = right.score(grade(id, 1.0)).await;
            assert!(matches!(early, Err(StoreError::Refused(RefusedWhy::NotClosed))), "{early:?}");
        }
        right.close(closed(id, Verdict::Ok)).await.expect("a close has its place");
        right.score(grade(id, 0.5)).await.expect("and so has the grade");
        assert_eq!(ledger.slot(&slot("a")).expect("known").frozen, Some(0.5));
    }
}

/// The bound counts attempts whose rights are held, whatever they have written.
#[tokio::test]
async fn a_place_stays_held_until_the_rights_drop() {
    for (ledger, _room) in stores(Capacity { open: 1, other: 4 }) {
        let mut right = attempt(&ledger, "a", Verdict::Ok).await;
        let mut next = ledger.open(request("a"));
        assert!(poll_once(&mut next).is_pending());
        right.score(grade(right.attempt(), 0.5)).await.expect("scored");
        for _ in 0..3 {
            let again = right.score(grade(right.attempt(), 1.0)).await;
            assert!(matches!(again, Err(StoreError::Refused(RefusedWhy::Frozen))), "{again:?}");
            ledger.flush().await.expect("flushed");
            assert!(poll_once(&mut next).is_pending(), "its right is still there");
        }
        drop(right);
        next.await
            .expect("a place is free")
            .0
            .close(closed(AttemptId::from_u128(0), Verdict::Ok))
            .await
            .expect("closed");
    }
}

/// A hedge that lost closes last and is still the older one.
#[tokio::test]
async fn the_newest_closed_attempt_is_the_one_with_the_highest_ordinal() {
    for (ledger, _room) in stores(Capacity::default()) {
        let (mut one, _) = ledger.open(request("a")).await.expect("opened");
        let (mut two, second) = ledger.open(request("a")).await.expect("opened");
        two.close(closed(two.attempt(), Verdict::Ok)).await.expect("closed");
        one.close(closed(one.attempt(), Verdict::Deadline)).await.expect("closed");
        let state = ledger.slot(&slot("a")).expect("known");
        assert_eq!(state.newest_closed, second.map(|ordinal| (ordinal, Verdict::Ok, None)));
        assert_eq!(state.first_verdict, Some(Verdict::Deadline));
    }
}

#[tokio::test]
async fn a_slots_fixture_is_the_first_that_was_given() {
    for (ledger, _room) in stores(Capacity::default()) {
        let with =
            |fixture: &[u8]| OpenRequest { fixture: Some(Digest::of(fixture)), ..request("a") };
        let _none = ledger.open(request("a")).await.expect("opened");
        let _first = ledger.open(with(b"f")).await.expect("opened");
        let error = ledger.open(with(b"g")).await.expect_err("another fixture");
        assert!(
            matches!(&error, StoreError::OtherFixture(o) if o.before == Digest::of(b"f")),
            "{error}"
        );
        let state = ledger.slot(&slot("a")).expect("known");
        assert_eq!((state.last.get(), state.fixture), (2, Some(Digest::of(b"f"))));
    }
}

/// What was sent is known at the close where the body was streamed.
#[tokio::test]
async fn the_fingerprint_of_a_streamed_body_comes_with_the_close() {
    for (ledger, _room) in stores(Capacity::default()) {
        let sent = Some(Digest::of(b"sent"));
        let (mut right, ordinal) = ledger.open(request("a")).await.expect("opened");
        let mut end = closed(right.attempt(), Verdict::Ok);
        end.fingerprint = sent;
        right.close(end).await.expect("closed");
        let state = ledger.slot(&slot("a")).expect("known");
        assert_eq!(state.newest_closed, ordinal.map(|ordinal| (ordinal, Verdict::Ok, sent)));
    }
}

fn run_event(low: f64, high: f64, grade_below: Option<f64>) -> RunEvent {
    let (name, version) = ("g".into(), "1".into());
    RunEvent {
        run: RunId::new("run-1").expect("id"),
        tool_version: "1".into(),
        durability: Durability::Memory,
        limits: Limits::default(),
        gates: Gates { plain: GateKind::Whole, stream: GateKind::Head },
        graded: vec![Verdict::Ok],
        retry: RetrySettings {
            attempts: 3,
            budget_us: 1,
            retry_on: Vec::new(),
            grade_below,
            policy: None,
            effect: None,
        },
        graders: vec![GraderInfo { name, version, low, high }],
        checks: Vec::new(),
        target: None,
    }
}

/// They would be written as `null`, and the ledger not be read back.
#[tokio::test]
async fn settings_that_are_no_numbers_are_refused() {
    for (ledger, _room) in stores(Capacity::default()) {
        for bad in [
            run_event(f64::NEG_INFINITY, 1.0, None),
            run_event(f64::NAN, 1.0, None),
            run_event(0.0, f64::INFINITY, None),
            run_event(0.0, 1.0, Some(f64::NAN)),
            run_event(0.0, 1.0, Some(f64::INFINITY)),
        ] {
            let result = ledger.run(bad).await;
            assert!(matches!(result, Err(StoreError::NotFinite { .. })), "{result:?}");
        }
        let good = run_event(-1.0, 1.0, Some(0.5));
        ledger.run(good.clone()).await.expect("recorded");
        ledger.flush().await.expect("flushed");
        let records = ledger.records().expect("reads");
        let of = |record: &Record| match &record.event {
            Event::Run(run) => Some(run.clone()),
            _ => None,
        };
        assert_eq!(records.iter().filter_map(of).collect::<Vec<_>>(), [good]);
    }
}

#[tokio::test]
async fn what_is_synced_is_not_synced_again() {
    let room = Room::new();
    let io = TestIo::new();
    let ledger = FileOptions::new(room.dir()).io(Arc::new(io.clone())).open().expect("opens");
    drop(attempt(&ledger, "a", Verdict::Ok).await);
    ledger.flush().await.expect("flushed");
    let before = io.ops();
    ledger.flush().await.expect("flushed");
    drop(ledger);
    let ops = io.ops();
    let syncs = ops[before.len()..].iter().filter(|op| matches!(op, Op::Sync(_))).count();
    assert_eq!(syncs, 0, "nothing was written since");
}

#[test]
fn the_documented_bounds_are_the_defaults() {
    let documented = Capacity { open: 16_384, other: 4_096 };
    assert_eq!(Capacity::default(), documented);
    assert_eq!(Ledger::memory().capacity(), documented);
    let least = Ledger::memory_with(Capacity { open: 0, other: 0 }).capacity();
    assert_eq!(least, Capacity { open: 1, other: 1 });
}
