//! Whatever events a fold is given, in whatever order: what is published of a slot is the first grade
//! of its ordinal one that the rules accept, or nothing, and what is refused changes nothing.
//!
//! `PROPTEST_CASES` and `PROPTEST_RNG_SEED` are heard.

#![allow(clippy::expect_used, reason = "a test may stop")]

mod support;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use attempt_ledger_core::{
    Digest, Event, Fold, FoldError, Folded, Grade, GradeRefused, Liveness, Note, Opened, Ordinal,
    Record, RefusedWhy, Remote, Role, Timestamp, Unrecorded, Verdict,
};
use attempt_ledger_report::{Options, Report};
use proptest::prelude::*;
use support::{closed, grade, opened, planned, run, run_id};

/// One event, sound or not; attempts by number.
#[derive(Clone, Debug)]
enum Push {
    Open { n: u32, ordinal: u32, grader: bool, fixture: u8, unlinked: bool, half: bool },
    Close { n: u32, verdict: usize },
    Grade { n: u32, diagnostic: bool, score: Score, other_answer: bool },
    Refused { n: u32 },
    Note { n: u32 },
    Others(u8),
}

#[derive(Clone, Copy, Debug)]
enum Score {
    Eighths(u8),
    Nan,
    Infinite,
}

/// Attempts that may occur: even ones are of case `a`, odd ones of `b`.
const ATTEMPTS: u32 = 8;

fn push() -> impl Strategy<Value = Push> {
    let rarely = || prop::bool::weighted(0.05);
    let score = prop_oneof![
        18 => (0..9_u8).prop_map(Score::Eighths),
        1 => Just(Score::Nan),
        1 => Just(Score::Infinite),
    ];
    // Mostly the ordinal that its number stands for, so that most events fit together.
    let ordinal = prop_oneof![9 => Just(None), 1 => (1..4_u32).prop_map(Some)];
    let content = 0..5_usize;
    let verdict = prop_oneof![3 => content, 1 => 0..Verdict::ALL.len()];
    let n = || 0..ATTEMPTS;
    prop_oneof![
        5 => (n(), ordinal, rarely(), 0..12_u8, rarely(), rarely()).prop_map(
            |(n, ordinal, grader, fixture, unlinked, half)| Push::Open {
                n, ordinal: ordinal.unwrap_or(n / 2 + 1), grader, fixture, unlinked, half,
            }
        ),
        5 => (n(), verdict).prop_map(|(n, verdict)| Push::Close { n, verdict }),
        6 => (n(), prop::bool::weighted(0.3), score, prop::bool::weighted(0.1)).prop_map(
            |(n, diagnostic, score, other_answer)| Push::Grade { n, diagnostic, score, other_answer }
        ),
        1 => n().prop_map(|n| Push::Refused { n }),
        1 => n().prop_map(|n| Push::Note { n }),
        1 => (0..3_u8).prop_map(Push::Others),
    ]
}

fn case(n: u32) -> &'static str {
    if n.is_multiple_of(2) { "a" } else { "b" }
}

fn event(push: &Push) -> Event {
    match *push {
        Push::Open { n, ordinal, grader, fixture, unlinked, half } => {
            let mut opened = Opened {
                role: if grader { Role::Grader } else { Role::Subject },
                fixture: match fixture {
                    0 => Some(Digest::of(b"other")),
                    1..=4 => None,
                    _ => Some(Digest::of(b"fixture")),
                },
                ..opened(n, "r", case(n), ordinal)
            };
            if unlinked {
                (opened.run, opened.case, opened.ordinal) = (None, None, None);
            }
            if half {
                opened.ordinal = opened.ordinal.is_none().then_some(Ordinal::FIRST);
            }
            Event::Opened(opened)
        }
        Push::Close { n, verdict } => {
            Event::Closed(closed(n, Verdict::ALL[verdict], Remote::Answered))
        }
        Push::Grade { n, diagnostic, score, other_answer } => {
            let score = match score {
                Score::Eighths(eighths) => f64::from(eighths) / 8.0,
                Score::Nan => f64::NAN,
                Score::Infinite => f64::INFINITY,
            };
            let mut grade: Grade = grade(n, score);
            if other_answer {
                grade.answer_sha256 = Digest::of(b"another answer");
            }
            if diagnostic { Event::Diagnostic(grade) } else { Event::Scored(grade) }
        }
        Push::Refused { n } => Event::GradeRefused(GradeRefused {
            attempt: grade(n, 0.0).attempt,
            why: RefusedWhy::LaterOrdinal,
            score: Some(1.0),
            grader: "g".into(),
        }),
        Push::Note { n } => {
            Event::Note(Note { attempt: grade(n, 0.0).attempt, text: "ordinal 2 is better".into() })
        }
        Push::Others(0) => planned("r", &[("a", 1), ("c", 1)]),
        Push::Others(1) => Event::Run(run("r")),
        Push::Others(_) => Event::Unrecorded(Unrecorded { run: Some(run_id("r")), count: 2 }),
    }
}

/// The rules once more, in another way: what has been accepted.
#[derive(Debug, Default)]
struct Model {
    attempts: BTreeMap<u32, Seen>,
    ordinals: BTreeSet<(&'static str, Role, u32)>,
    fixtures: BTreeMap<(&'static str, Role), Digest>,
    /// The published scores.
    scores: BTreeMap<&'static str, f64>,
}

#[derive(Debug)]
struct Seen {
    ordinal: Option<u32>,
    role: Role,
    verdict: Option<Verdict>,
}

impl Model {
    /// Whether the rules let this event in; takes it if so.
    fn accepts(&mut self, push: &Push, event: &Event) -> bool {
        match (push, event) {
            (&Push::Open { n, .. }, Event::Opened(opened)) => {
                let linked = opened.case.is_some();
                if self.attempts.contains_key(&n) || opened.ordinal.is_some() != linked {
                    return false;
                }
                let ordinal = opened.ordinal.map(Ordinal::get);
                if let Some(ordinal) = ordinal {
                    let slot = (case(n), opened.role);
                    let fixture = self.fixtures.get(&slot).copied().or(opened.fixture);
                    if self.ordinals.contains(&(slot.0, slot.1, ordinal))
                        || opened.fixture.is_some_and(|given| Some(given) != fixture)
                    {
                        return false;
                    }
                    self.ordinals.insert((slot.0, slot.1, ordinal));
                    self.fixtures.extend(fixture.map(|fixture| (slot, fixture)));
                }
                self.attempts.insert(n, Seen { ordinal, role: opened.role, verdict: None });
                true
            }
            (&Push::Close { n, verdict }, _) => match self.attempts.get_mut(&n) {
                Some(seen) if seen.verdict.is_none() => {
                    seen.verdict = Some(Verdict::ALL[verdict]);
                    true
                }
                _ => false,
            },
            (
                &Push::Grade { n, diagnostic, other_answer, .. },
                Event::Scored(grade) | Event::Diagnostic(grade),
            ) => {
                let Some(seen) = self.attempts.get(&n) else { return false };
                let sound = seen.role == Role::Subject
                    && seen.verdict.is_some_and(Verdict::is_content)
                    && !other_answer
                    && grade.score.is_finite();
                let place = if diagnostic {
                    seen.ordinal.is_some_and(|ordinal| ordinal > 1)
                } else {
                    seen.ordinal == Some(1) && !self.scores.contains_key(case(n))
                };
                if sound && place && !diagnostic {
                    self.scores.insert(case(n), grade.score);
                }
                sound && place
            }
            (&Push::Note { n }, _) => self.attempts.contains_key(&n),
            _ => true,
        }
    }
}

fn finish(fold: &Fold, liveness: &Liveness) -> Folded {
    fold.clone().finish(Timestamp::default(), liveness)
}

/// The published score of each slot of the subject.
fn published(folded: &Folded) -> BTreeMap<&str, f64> {
    let subject = folded.slots.iter().filter(|view| view.slot.role == Role::Subject);
    subject.filter_map(|view| Some((view.slot.case.as_str(), view.state.score()?))).collect()
}

fn config() -> ProptestConfig {
    let base = ProptestConfig::default();
    ProptestConfig { cases: base.cases.max(3000), ..base }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_order_of_events_publishes_anything_but_ordinal_one(
        pushes in prop::collection::vec(push(), 0..70)
    ) {
        let mut fold = Fold::new();
        let mut model = Model::default();
        let gone = Liveness::Sessions(HashSet::new());
        for (seq, push) in (0..).zip(&pushes) {
            let event = event(push);
            let expected = model.accepts(push, &event);
            let before = finish(&fold, &Liveness::All);
            let record = Record { seq, time: Timestamp::default(), event };
            let got: Result<(), FoldError> = fold.push(&record);
            prop_assert_eq!(got.is_ok(), expected, "{:?}: {:?}", push, got);
            let after = finish(&fold, &Liveness::All);
            if got.is_err() {
                prop_assert_eq!(&after, &before, "what is refused changes nothing");
            }
            let (was, is) = (published(&before), published(&after));
            for (case, score) in &was {
                prop_assert_eq!(is.get(case), Some(score), "what is frozen stays");
            }
            prop_assert_eq!(&is, &model.scores);
            let without_writers = finish(&fold, &gone);
            prop_assert_eq!(&published(&without_writers), &model.scores);
        }
        let folded = finish(&fold, &Liveness::All);
        let Ok(report) = Report::of(&folded, Some(&run_id("r")), &Options::default()) else {
            prop_assert!(model.scores.is_empty());
            return Ok(());
        };
        prop_assert_eq!(report.quality.n(), model.scores.len() as u64);
        let mean = model.scores.values().sum::<f64>() / model.scores.len() as f64;
        match report.quality.estimate() {
            Some(estimate) => prop_assert!((estimate.mean - mean).abs() < 1e-12),
            None => prop_assert!(model.scores.is_empty()),
        }
        // Side by side: each attempt is counted once, in one series.
        let linked = model.attempts.values().filter(|seen| seen.ordinal.is_some());
        let subject: Vec<_> = linked.filter(|seen| seen.role == Role::Subject).collect();
        let of = |is: fn(Verdict) -> bool| {
            subject.iter().filter(|seen| seen.verdict.is_some_and(is)).count() as u64
        };
        prop_assert_eq!(report.availability.faults, of(Verdict::is_fault));
        let later = subject.iter().filter(|seen| {
            seen.ordinal != Some(1) && seen.verdict.is_some_and(Verdict::is_content)
        });
        prop_assert_eq!(report.refused_promotions.attempts, later.count() as u64);
    }
}
