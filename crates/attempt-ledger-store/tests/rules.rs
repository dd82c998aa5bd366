//! What holds of every store, tried on each.
#![allow(clippy::expect_used, clippy::panic, reason = "a test")]

mod common;

use std::{
    pin::Pin,
    task::{Context, Poll, Waker},
};

use attempt_ledger_core::{
    AttemptId, CallId, Digest, Event, Fold, Note, Ordinal, Planned, RefusedWhy, Remote, RunId,
    Unrecorded, Verdict,
};
use attempt_ledger_store::{
    Capacity, CloseRight, Ledger, OpenRequest, StoreError,
    file::{FileOptions, Writer},
};
use common::*;

/// Memory and file, small enough to fill.
fn stores(capacity: Capacity) -> Vec<(Ledger, Room)> {
    let (memory, file, runtime) = (Room::new(), Room::new(), Room::new());
    let options = |room: &Room| FileOptions::new(room.dir()).capacity(capacity);
    vec![
        (Ledger::memory_with(capacity), memory),
        (options(&file).open().expect("opens"), file),
        (options(&runtime).writer(Writer::Runtime).open().expect("opens"), runtime),
    ]
}

fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_two_attempts_of_a_slot_share_an_ordinal() {
    for (ledger, _room) in stores(Capacity::default()) {
        let tasks: Vec<_> = (0..64)
            .map(|_| {
                let ledger = ledger.clone();
                tokio::spawn(async move {
                    let mut mine = Vec::new();
                    for _ in 0..100 {
                        let (mut right, ordinal) =
                            ledger.open(request("one")).await.expect("opened");
                        mine.push(ordinal.expect("linked").get());
                        let ended = closed(right.attempt(), Verdict::Deadline);
                        right.close(ended).await.expect("closed");
                    }
                    mine
                })
            })
            .collect();
        let mut all = Vec::new();
        for task in tasks {
            let mine = task.await.expect("runs");
            assert!(mine.is_sorted(), "a task sees its own in order");
            all.extend(mine);
        }
        all.sort_unstable();
        assert_eq!(all, (1..=6_400).collect::<Vec<_>>());
        ledger.flush().await.expect("flushed");
        assert_eq!(ordinals(&ledger.records().expect("reads"), "one"), all, "rows are in order");
        let state = ledger.slot(&slot("one")).expect("known");
        assert_eq!((state.last.get(), state.open), (6_400, 0));
    }
}

#[tokio::test]
async fn slots_count_apart_and_unlinked_attempts_do_not_count() {
    for (ledger, _room) in stores(Capacity::default()) {
        let mut ordinals = Vec::new();
        for request in [
            request("a"),
            request("a"),
            request("b"),
            grader_request("a"),
            OpenRequest::new(&slot("a").epoch(2)),
            OpenRequest::new(&slot("a").step(2)),
            OpenRequest::unlinked(),
        ] {
            let (right, ordinal) = ledger.open(request).await.expect("opened");
            assert_eq!(right.ordinal(), ordinal);
            ordinals.push(ordinal.map_or(0, Ordinal::get));
        }
        assert_eq!(ordinals, [1, 2, 1, 1, 1, 1, 0]);
    }
}

#[tokio::test]
async fn a_grade_goes_to_ordinal_one_once_and_only_to_content() {
    for (ledger, _room) in stores(Capacity::default()) {
        let (mut first, _) = ledger.open(request("a")).await.expect("opened");
        let id = first.attempt();
        let why = |result: Result<(), StoreError>| match result {
            Err(StoreError::Refused(why)) => Some(why),
            Ok(()) => None,
            Err(other) => panic!("{other}"),
        };
        let unknown = AttemptId::from_u128(7);
        assert_eq!(why(ledger.score(grade(unknown, 1.0)).await), Some(RefusedWhy::UnknownAttempt));
        assert_eq!(why(first.score(grade(id, 1.0)).await), Some(RefusedWhy::NotClosed));
        first.close(closed(id, Verdict::Ok)).await.expect("closed");
        let mut other = grade(id, 1.0);
        other.answer_sha256 = Digest::of(b"another answer");
        assert_eq!(why(first.score(other).await), Some(RefusedWhy::OtherAnswer));
        for bad in [f64::NAN, f64::INFINITY] {
            assert_eq!(why(ledger.score(grade(id, bad)).await), Some(RefusedWhy::NotFinite));
        }
        assert_eq!(why(ledger.diagnostic(grade(id, 1.0)).await), Some(RefusedWhy::FirstOrdinal));

        let second = attempt(&ledger, "a", Verdict::Ok).await.attempt();
        assert_eq!(why(ledger.score(grade(second, 1.0)).await), Some(RefusedWhy::LaterOrdinal));
        assert_eq!(why(ledger.diagnostic(grade(second, 1.0)).await), None);

        assert_eq!(why(first.score(grade(id, 0.25)).await), None);
        assert_eq!(why(ledger.score(grade(id, 1.0)).await), Some(RefusedWhy::Frozen));
        assert_eq!(ledger.slot(&slot("a")).expect("known").frozen, Some(0.25));

        let fault = attempt(&ledger, "b", Verdict::Deadline).await.attempt();
        assert_eq!(why(ledger.score(grade(fault, 0.0)).await), Some(RefusedWhy::NotContent));
        let (mut grader, _) = ledger.open(grader_request("c")).await.expect("opened");
        grader.close(closed(grader.attempt(), Verdict::Ok)).await.expect("closed");
        let grader = grader.attempt();
        assert_eq!(why(ledger.score(grade(grader, 1.0)).await), Some(RefusedWhy::GraderRole));
        assert_eq!(why(ledger.diagnostic(grade(grader, 1.0)).await), Some(RefusedWhy::GraderRole));
        let (mut unlinked, _) = ledger.open(OpenRequest::unlinked()).await.expect("opened");
        unlinked.close(closed(unlinked.attempt(), Verdict::Ok)).await.expect("closed");
        let unlinked = unlinked.attempt();
        assert_eq!(why(ledger.score(grade(unlinked, 1.0)).await), Some(RefusedWhy::Unlinked));

        ledger.flush().await.expect("flushed");
        let records = ledger.records().expect("reads");
        let count = |kind| kinds(&records).into_iter().filter(|&k| k == kind).count();
        assert_eq!((count("scored"), count("diagnostic"), count("grade_refused")), (1, 1, 12));
        for record in &records {
            if let Event::GradeRefused(refused) = &record.event {
                assert_eq!(refused.score.is_none(), refused.why == RefusedWhy::NotFinite);
            }
        }
    }
}

#[tokio::test]
async fn a_grade_and_its_refusal_do_not_interleave() {
    for (ledger, _room) in stores(Capacity::default()) {
        let first = attempt(&ledger, "a", Verdict::Ok).await.attempt();
        let grades: Vec<_> = (0..50).map(|n| ledger.score(grade(first, f64::from(n)))).collect();
        let mut accepted = Vec::new();
        for (n, ack) in grades.into_iter().enumerate() {
            match ack.await {
                Ok(()) => accepted.push(n),
                Err(error) => assert!(matches!(error, StoreError::Refused(RefusedWhy::Frozen))),
            }
        }
        assert_eq!(accepted, [0], "the first one asked");
    }
}

#[tokio::test]
async fn another_fixture_is_an_error_and_another_fingerprint_is_not() {
    for (ledger, _room) in stores(Capacity::default()) {
        let with = |fixture: &[u8], print: &[u8]| OpenRequest {
            fixture: Some(Digest::of(fixture)),
            fingerprint: Some(Digest::of(print)),
            ..request("a")
        };
        drop(ledger.open(with(b"f", b"1")).await.expect("opened"));
        let error = ledger.open(with(b"g", b"1")).await.expect_err("another fixture");
        assert!(matches!(&error, StoreError::OtherFixture(o) if o.given == Digest::of(b"g")));
        let (mut right, ordinal) = ledger.open(with(b"f", b"2")).await.expect("drift is recorded");
        assert_eq!(ordinal.map(Ordinal::get), Some(2), "the refused one spent no ordinal");
        right.close(closed(right.attempt(), Verdict::Empty)).await.expect("closed");
        drop(ledger.open(request("a")).await.expect("none is not compared"));
        ledger.flush().await.expect("flushed");
        let state = ledger.slot(&slot("a")).expect("known");
        assert_eq!(state.fixture, Some(Digest::of(b"f")));
        let newest = (Ordinal::new(2).expect("2"), Verdict::Empty, Some(Digest::of(b"2")));
        assert_eq!(state.newest_closed, Some(newest));
    }
}

/// Opens an attempt of a call, with a fingerprint.
async fn open_of(ledger: &Ledger, call: Option<u128>, print: &[u8]) -> CloseRight {
    let call = call.map(CallId::from_u128);
    let fingerprint = Some(Digest::of(print));
    let opening = ledger.open(OpenRequest { call, fingerprint, ..request("a") });
    opening.await.expect("opened").0
}

#[tokio::test]
async fn the_newest_call_tells_whether_it_had_content() {
    for (ledger, _room) in stores(Capacity::default()) {
        let content = || ledger.slot(&slot("a")).expect("known").newest_call_content;
        let of = |print: &[u8]| Some(Some(Digest::of(print)));
        let end = async |right: &mut CloseRight, verdict| {
            right.close(closed(right.attempt(), verdict)).await.expect("closed");
        };
        // A hedge: the later attempt lost, and closes after the answer.
        let mut one = open_of(&ledger, Some(1), b"1").await;
        let mut hedge = open_of(&ledger, Some(1), b"2").await;
        assert_eq!(content(), None);
        end(&mut one, Verdict::Ok).await;
        end(&mut hedge, Verdict::Abandoned).await;
        assert_eq!(content(), of(b"1"));
        assert_eq!(
            ledger.slot(&slot("a")).expect("known").newest_closed.map(|c| c.0.get()),
            Some(2)
        );
        // Another call: what the one before had no longer counts.
        let mut two = open_of(&ledger, Some(2), b"3").await;
        assert_eq!(content(), None);
        end(&mut two, Verdict::Deadline).await;
        assert_eq!(content(), None);
        // The first goes on beside it.
        let mut again = open_of(&ledger, Some(1), b"4").await;
        assert_eq!(content(), of(b"1"));
        end(&mut again, Verdict::Refused).await;
        assert_eq!(content(), of(b"4"), "the highest ordinal with content");
        // One without a call is a call of its own, as is the next.
        let mut alone = open_of(&ledger, None, b"5").await;
        assert_eq!(content(), None);
        let late = open_of(&ledger, None, b"6").await;
        end(&mut alone, Verdict::Ok).await;
        assert_eq!(content(), None);
        // Content of a call that is not the newest counts once the call is.
        let mut three = open_of(&ledger, Some(3), b"7").await;
        let mut four = open_of(&ledger, Some(4), b"8").await;
        end(&mut three, Verdict::Empty).await;
        end(&mut four, Verdict::Transport).await;
        assert_eq!(content(), None);
        drop((open_of(&ledger, Some(3), b"9").await, late));
        assert_eq!(content(), of(b"7"));
    }
}

#[tokio::test]
async fn a_half_linked_attempt_is_refused() {
    for (ledger, _room) in stores(Capacity::default()) {
        for (half, says) in [
            (OpenRequest { case: None, ..request("a") }, "with a run and without a case"),
            (OpenRequest { run: None, ..request("a") }, "with a case and without a run"),
        ] {
            let error = ledger.open(half).await.expect_err("half");
            assert!(matches!(error, StoreError::HalfLinked { .. }), "{error}");
            assert!(error.to_string().contains(says), "{error}");
        }
        assert!(ledger.records().expect("reads").iter().all(|r| r.event.kind() != "opened"));
    }
}

#[tokio::test]
async fn an_attempt_closes_once() {
    for (ledger, _room) in stores(Capacity::default()) {
        let mut right = attempt(&ledger, "a", Verdict::Ok).await;
        let again = right.close(closed(right.attempt(), Verdict::Refused)).await;
        assert!(matches!(again, Err(StoreError::AlreadyClosed(id)) if id == right.attempt()));
        ledger.flush().await.expect("flushed");
        let records = ledger.records().expect("reads");
        assert_eq!(kinds(&records).into_iter().filter(|&k| k == "closed").count(), 1);
        assert_eq!(ledger.slot(&slot("a")).expect("known").first_verdict, Some(Verdict::Ok));
    }
}

#[tokio::test]
async fn a_close_that_was_acknowledged_is_seen() {
    for (ledger, _room) in stores(Capacity::default()) {
        for n in 1..=50 {
            let right = attempt(&ledger, "a", Verdict::Ok).await;
            let state = ledger.slot(&slot("a")).expect("known");
            assert_eq!((state.last.get(), state.open), (n, 0));
            assert_eq!(state.newest_closed.map(|c| Some(c.0)), Some(right.ordinal()));
        }
    }
}

#[tokio::test]
async fn a_dropped_opening_leaves_no_row_or_a_closed_one() {
    for (ledger, _room) in stores(Capacity { open: 1, other: 8 }) {
        // Never polled.
        drop(ledger.open(request("never")));
        // Waiting for a place.
        let (held, _) = ledger.open(request("held")).await.expect("opened");
        let mut waiting = ledger.open(request("waiting"));
        assert!(poll_once(&mut waiting).is_pending());
        drop(waiting);
        drop(held);
        // Queued: polled once, and dropped without its answer being taken.
        let mut queued = ledger.open(request("queued"));
        let attempt = queued.attempt();
        if poll_once(&mut queued).is_ready() {
            // In memory there is no moment between.
            drop(queued);
            continue;
        }
        drop(queued);
        // Its places are free again, once its rows are written.
        drop(ledger.open(request("next")).await.expect("opened"));
        ledger.flush().await.expect("flushed");
        let records = ledger.records().expect("reads");
        assert!(ordinals(&records, "never").is_empty() && ordinals(&records, "waiting").is_empty());
        let closes: Vec<_> = records
            .iter()
            .filter_map(|r| if let Event::Closed(c) = &r.event { Some(c) } else { None })
            .collect();
        assert_eq!(closes.len(), 1);
        assert_eq!((closes[0].attempt, closes[0].verdict), (attempt, Verdict::Abandoned));
        assert_eq!(closes[0].remote, Remote::NotReached);
        let state = ledger.slot(&slot("queued")).expect("known");
        assert_eq!((state.open, state.first_verdict), (0, Some(Verdict::Abandoned)));
    }
}

#[tokio::test]
async fn an_opening_waits_for_a_place_and_a_close_never_does() {
    for (ledger, _room) in stores(Capacity { open: 2, other: 1 }) {
        let (mut one, _) = ledger.open(request("a")).await.expect("opened");
        let (two, _) = ledger.open(request("a")).await.expect("opened");
        let mut three = ledger.open(request("a"));
        assert!(poll_once(&mut three).is_pending(), "two are open");
        one.close(closed(one.attempt(), Verdict::Ok)).await.expect("a close has its place");
        one.score(grade(one.attempt(), 0.5)).await.expect("and so has a grade");
        assert!(poll_once(&mut three).is_pending(), "closed, and its right not yet dropped");
        drop(one);
        let (_three, ordinal) = three.await.expect("a place is free");
        assert_eq!(ordinal.map(Ordinal::get), Some(3));
        drop(two);
    }
}

#[tokio::test]
async fn rows_of_no_attempt_have_a_bound_of_their_own() {
    let room = Room::new();
    let capacity = Capacity { open: 1, other: 2 };
    let ledger = FileOptions::new(room.dir())
        .writer(Writer::Runtime)
        .capacity(capacity)
        .open()
        .expect("opens");
    let attempt = attempt(&ledger, "a", Verdict::Ok).await.attempt();
    let note = || ledger.note(Note { attempt, text: "a\nb\u{2028}\"".into() });
    // The runtime has one thread, so the writer can not run between these.
    let (first, second, third) = (note(), note(), note());
    let third = third.await;
    assert!(matches!(third, Err(StoreError::Full { bound: 2 })), "{third:?}");
    first.await.expect("noted");
    second.await.expect("noted");
    let unrecorded = Unrecorded { run: None, count: 3 };
    ledger.unrecorded(unrecorded).await.expect("places are free again");
    let planned = Planned { run: RunId::new("r").expect("id"), slots: Vec::new() };
    ledger.planned(planned).await.expect("planned");
}

#[tokio::test]
async fn a_note_on_no_attempt_is_refused() {
    for (ledger, _room) in stores(Capacity::default()) {
        let attempt = AttemptId::from_u128(77);
        let refused = ledger.note(Note { attempt, text: "which one?".into() }).await;
        assert!(matches!(refused, Err(StoreError::UnknownAttempt(id)) if id == attempt));
        let mut fold = Fold::new();
        for record in ledger.records().expect("reads") {
            fold.push(&record).expect("folds");
        }
    }
}

#[tokio::test]
async fn only_the_writers_session_is_live() {
    for (ledger, _room) in stores(Capacity::default()) {
        assert!(ledger.is_live(ledger.session()));
        let other = attempt_ledger_core::SessionId::from_u128(1);
        assert!(!ledger.is_live(other));
        assert_eq!(ledger.live_sessions(), [ledger.session()]);
        let first = ledger.records().expect("reads");
        let session = first.iter().find_map(|record| match &record.event {
            Event::Session(session) => Some(session.session),
            _ => None,
        });
        assert_eq!(session, Some(ledger.session()));
    }
}
