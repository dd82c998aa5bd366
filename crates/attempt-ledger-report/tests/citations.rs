//! A grade that says what it rests on is followed there, and grades beside are never mixed in.
#![allow(clippy::expect_used, clippy::panic, reason = "a test")]

mod support;

use attempt_ledger_core::{
    AttemptId, CheckInfo, Detail, Event, Grade, GraderAttempts, Label, Remote, Role, RunEvent,
    Verdict,
};
use attempt_ledger_report::{CitationFault, Options, Report, ReportError};
use support::*;

fn id(n: u32) -> AttemptId {
    AttemptId::from_u128(n.into())
}

fn graders(n: u32, run: &str, ordinal: u32) -> Vec<Event> {
    let mut opened = opened(n, run, "a", ordinal);
    opened.role = Role::Grader;
    vec![Event::Opened(opened), Event::Closed(closed(n, Verdict::Ok, Remote::Answered))]
}

fn citing(n: u32, cited: &[u32]) -> Grade {
    let cited = cited.iter().copied().map(id).collect();
    Grade { grader_attempts: GraderAttempts::Cited(cited), ..grade(n, 1.0) }
}

/// A graded subject of run `r`, graders' attempts 11 (of `r`) and 12 (of `s`), and 13 without an end.
fn report(grades: Vec<Event>) -> Result<Report, ReportError> {
    let mut events = vec![Event::Run(run("r"))];
    events.extend(graders(11, "r", 1));
    events.extend(graders(12, "s", 1));
    events.extend(graders(13, "r", 2).into_iter().take(1));
    events.extend(attempt(1, "r", "a", 1, Verdict::Ok, None));
    events.extend(attempt(2, "r", "a", 2, Verdict::Ok, None));
    events.extend(grades);
    Report::of(&fold(events), Some(&run_id("r")), &Options::default())
}

#[test]
fn a_citation_that_is_none_fails_the_report() {
    type Kind = fn(Grade) -> Event;
    let other = |grade: Grade| Event::AlsoGraded(Grade { grader: "other".into(), ..grade });
    let kinds: [(u32, Kind); 3] = [(1, Event::Scored), (2, Event::Diagnostic), (1, other)];
    for (graded, kind) in kinds {
        for (cited, fault) in [
            (99, CitationFault::Missing),
            (2, CitationFault::NoGrader),
            (12, CitationFault::OtherRun),
        ] {
            let found = report(vec![kind(citing(graded, &[11, cited]))]);
            let Err(ReportError::Citation(bad)) = found else { panic!("{found:?}") };
            assert_eq!((bad.attempt, bad.cited, bad.fault), (id(graded), id(cited), fault));
            assert_eq!(bad.slot.case, case_id("a"));
            let text = bad.to_string();
            assert!(text.contains(&id(cited).to_string()) && text.contains("case a"), "{text}");
        }
        assert!(report(vec![kind(citing(graded, &[11]))]).is_ok());
        let doubtful = report(vec![kind(citing(graded, &[11, 13]))]).expect("a report");
        let warned = |warning: &String| warning.contains("1 attempt of a grader without an end");
        assert!(doubtful.warnings.iter().any(warned), "{:?}", doubtful.warnings);
    }
    for fine in [GraderAttempts::None, GraderAttempts::Unknown] {
        let grade = Grade { grader_attempts: fine, ..grade(1, 1.0) };
        assert!(report(vec![Event::Scored(grade)]).is_ok());
    }
}

#[test]
fn other_graders_stand_beside() {
    let other = |n: u32, score: f64| {
        Event::AlsoGraded(Grade { grader: "strict".into(), ..grade(n, score) })
    };
    let found = report(vec![Event::Scored(grade(1, 1.0)), other(1, 0.25), other(2, 0.75)])
        .expect("a report");
    assert_eq!(found.quality.estimate().map(|e| (e.mean, e.n)), Some((1.0, 1)));
    let beside: Vec<_> = found.graders.iter().map(|(name, m)| (&**name, m.mean, m.n)).collect();
    assert_eq!(beside, [("strict", 0.25, 1)], "of ordinal ones alone");
    assert!(found.to_text(80, false).contains("(not published): strict 0.250 (1)"));
    // Without the published grade there is no mean, whatever the other says.
    let alone = report(vec![other(1, 0.25)]).expect("a report");
    assert_eq!(alone.quality.estimate(), None);
}

#[test]
fn checks_are_named_and_what_they_could_not_say_is_told() {
    let checks = vec![CheckInfo { name: "is-json".into(), version: "1".into() }];
    let mut unsure = closed(1, Verdict::Ok, Remote::Answered);
    unsure.detail = Detail { unchecked: Some(Label::new("is-json")), ..Detail::default() };
    let events = [
        Event::Run(RunEvent { checks: checks.clone(), ..run("r") }),
        Event::Opened(opened(1, "r", "a", 1)),
        Event::Closed(unsure),
    ];
    let report = Report::of(&fold(events), None, &Options::default()).expect("a report");
    assert_eq!(report.checks, checks);
    assert!(report.to_text(80, false).contains("checks: is-json 1"));
    assert!(report.warnings.iter().any(|w| w.contains("1 attempt could not be checked")));
}
