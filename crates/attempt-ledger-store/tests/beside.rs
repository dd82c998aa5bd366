//! Grades beside the published one's: what a store accepts of them, and that the fold agrees.
#![allow(clippy::expect_used, clippy::panic, reason = "a test")]

mod common;

use attempt_ledger_core::{
    AttemptId, Digest, Durability, Event, Fold, FoldFault, GateKind, Gates, Grade, GraderInfo,
    Limits, Liveness, Record, RefusedWhy, RetrySettings, RunEvent, Timestamp, Verdict,
};
use attempt_ledger_store::{Ledger, StoreError};
use common::*;

fn settings(graders: &[&str]) -> RunEvent {
    let grader =
        |name: &&str| GraderInfo { name: (*name).into(), version: "1".into(), low: 0.0, high: 1.0 };
    RunEvent {
        run: slot("c").run,
        tool_version: "0".into(),
        durability: Durability::Memory,
        limits: Limits::default(),
        gates: Gates { plain: GateKind::Whole, stream: GateKind::Head },
        graded: vec![Verdict::Ok],
        retry: RetrySettings {
            attempts: 3,
            budget_us: 1,
            retry_on: vec![],
            grade_below: None,
            policy: None,
            effect: None,
        },
        graders: graders.iter().map(grader).collect(),
        checks: vec![],
        target: None,
    }
}

fn by(grader: &str, attempt: AttemptId, score: f64) -> Grade {
    Grade { grader: grader.into(), ..grade(attempt, score) }
}

async fn refused(ledger: &Ledger, grade: Grade) -> RefusedWhy {
    match ledger.also_graded(grade).await {
        Err(StoreError::Refused(why)) => why,
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn only_content_of_a_subject_is_graded_beside_once_a_grader() {
    let room = Room::new();
    for file in [false, true] {
        let mut ledger = if file { open_file(&room.dir()) } else { Ledger::memory() };
        ledger.run(settings(&["exact", "other"])).await.expect("run");
        let first = attempt(&ledger, "c", Verdict::Ok).await.attempt();
        let later = attempt(&ledger, "c", Verdict::OffTarget).await.attempt();
        let fault = attempt(&ledger, "c", Verdict::Deadline).await.attempt();
        let (grader, _) = ledger.open(grader_request("c")).await.expect("opened");
        let (open, _) = ledger.open(request("d")).await.expect("opened");

        ledger.also_graded(by("other", first, 1.0)).await.expect("ordinal one");
        ledger.also_graded(by("other", later, 0.5)).await.expect("any ordinal");
        assert_eq!(refused(&ledger, by("other", first, 0.0)).await, RefusedWhy::GradedAlready);
        assert_eq!(refused(&ledger, by("exact", first, 1.0)).await, RefusedWhy::PublishedGrader);
        assert_eq!(refused(&ledger, by("other", fault, 1.0)).await, RefusedWhy::NotContent);
        let id = grader.attempt();
        assert_eq!(refused(&ledger, by("other", id, 1.0)).await, RefusedWhy::GraderRole);
        assert_eq!(refused(&ledger, by("other", open.attempt(), 1.0)).await, RefusedWhy::NotClosed);
        let nobody = AttemptId::from_u128(1);
        assert_eq!(refused(&ledger, by("other", nobody, 1.0)).await, RefusedWhy::UnknownAttempt);
        let another = Grade { answer_sha256: Digest::of(b"x"), ..by("third", first, 1.0) };
        assert_eq!(refused(&ledger, another).await, RefusedWhy::OtherAnswer);
        assert_eq!(refused(&ledger, by("third", first, f64::NAN)).await, RefusedWhy::NotFinite);
        assert_eq!(
            ledger.slot(&slot("c")).and_then(|state| state.frozen),
            None,
            "it freezes nothing"
        );

        drop((grader, open));
        if file {
            // The next process keeps the same rules.
            drop(ledger);
            ledger = open_file(&room.dir());
            assert_eq!(refused(&ledger, by("other", first, 0.0)).await, RefusedWhy::GradedAlready);
            assert_eq!(
                refused(&ledger, by("exact", first, 1.0)).await,
                RefusedWhy::PublishedGrader
            );
        }
        ledger.score(grade(first, 0.25)).await.expect("the score is still to come");
        let mut fold = Fold::new();
        for record in ledger.records().expect("records") {
            fold.push(&record).expect("the fold takes what the store took");
        }
        let mut broken = fold.clone();
        let rows = fold.finish(Timestamp::default(), &Liveness::All).rows;
        let seen = |n: usize| -> Vec<_> {
            rows[n].other_grades.iter().map(|other| (&*other.grader, other.score)).collect()
        };
        assert_eq!((rows[0].score, seen(0)), (Some(0.25), vec![("other", 1.0)]));
        assert_eq!((rows[1].diagnostic, seen(1)), (None, vec![("other", 0.5)]));

        for (grade, fault) in [
            (by("other", first, 0.0), FoldFault::GradedTwice { grader: "other".into() }),
            (by("exact", first, 0.0), FoldFault::PublishedBeside { grader: "exact".into() }),
            (by("third", fault, 0.0), FoldFault::GradedNoContent { verdict: Verdict::Deadline }),
            (by("third", id, 0.0), FoldFault::GradedGrader),
        ] {
            let record =
                Record { seq: 99, time: Timestamp::default(), event: Event::AlsoGraded(grade) };
            assert_eq!(broken.push(&record).map_err(|error| error.fault), Err(fault));
        }
    }
}

/// Of a run's settings the newest say which grader is published.
#[tokio::test]
async fn the_newest_settings_name_the_published_grader() {
    let ledger = Ledger::memory();
    let first = attempt(&ledger, "c", Verdict::Ok).await.attempt();
    ledger.run(settings(&["exact"])).await.expect("run");
    assert_eq!(refused(&ledger, by("exact", first, 1.0)).await, RefusedWhy::PublishedGrader);
    ledger.run(settings(&["other", "exact"])).await.expect("run");
    assert_eq!(refused(&ledger, by("other", first, 1.0)).await, RefusedWhy::PublishedGrader);
    ledger.also_graded(by("exact", first, 1.0)).await.expect("beside now");
}
