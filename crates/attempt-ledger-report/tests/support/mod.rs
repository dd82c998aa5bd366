//! Events of a small ledger, without the noise.

#![allow(dead_code, reason = "each test uses some of it")]

use attempt_ledger_core::{
    AttemptId, CallId, CaseId, Cause, Closed, Decision, Detail, Digest, Durability, Effect, Event,
    Fold, Folded, GateKind, Gates, Grade, GraderAttempts, GraderInfo, Label, Limits, Liveness,
    Opened, Ordinal, Planned, PlannedSlot, Record, Remote, RetrySettings, Role, RunEvent, RunId,
    SessionId, Timestamp, Verdict,
};

pub(crate) fn run_id(run: &str) -> RunId {
    RunId::new(run).expect("id")
}

pub(crate) fn case_id(case: &str) -> CaseId {
    CaseId::new(case).expect("id")
}

pub(crate) fn run(name: &str) -> RunEvent {
    RunEvent {
        run: run_id(name),
        tool_version: "0".into(),
        durability: Durability::Synced,
        limits: Limits::default(),
        gates: Gates { plain: GateKind::Whole, stream: GateKind::Head },
        graded: Verdict::ALL.iter().copied().filter(|v| v.is_content()).collect(),
        retry: RetrySettings {
            attempts: 3,
            budget_us: 900_000_000,
            retry_on: vec![],
            grade_below: None,
            policy: None,
            effect: None,
        },
        graders: vec![GraderInfo { name: "g".into(), version: "1".into(), low: 0.0, high: 1.0 }],
        checks: Vec::new(),
        target: None,
    }
}

pub(crate) fn planned(run: &str, slots: &[(&str, u32)]) -> Event {
    let slot = |&(case, epoch): &(&str, u32)| PlannedSlot { case: case_id(case), epoch, step: 1 };
    Event::Planned(Planned { run: run_id(run), slots: slots.iter().map(slot).collect() })
}

pub(crate) fn opened(n: u32, run: &str, case: &str, ordinal: u32) -> Opened {
    Opened {
        attempt: AttemptId::from_u128(n.into()),
        run: Some(run_id(run)),
        case: Some(case_id(case)),
        epoch: 1,
        step: 1,
        role: Role::Subject,
        ordinal: Ordinal::new(ordinal),
        cause: if ordinal == 1 { Cause::Initial } else { Cause::Retry },
        call: Some(CallId::from_u128(1)),
        fixture: None,
        fingerprint: Some(Digest::of(b"request")),
        model: None,
        wire: Label::new("plain"),
        effect: Effect::ReadOnly,
        host: None,
        carrier: Label::new("extension"),
        limits: Limits::default(),
        session: SessionId::from_u128(1),
    }
}

pub(crate) fn closed(n: u32, verdict: Verdict, remote: Remote) -> Closed {
    let decision = Decision { verdict, remote, detail: Detail::default() };
    let bare = Closed::bare(AttemptId::from_u128(n.into()), decision);
    Closed {
        answer_sha256: verdict.is_content().then(|| Digest::of(&n.to_le_bytes())),
        first_content_us: verdict.is_content().then_some(u64::from(n) * 100),
        end_us: u64::from(n) * 1000,
        ..bare
    }
}

pub(crate) fn grade(n: u32, score: f64) -> Grade {
    Grade {
        attempt: AttemptId::from_u128(n.into()),
        score,
        grader: "g".into(),
        grader_version: "1".into(),
        answer_sha256: Digest::of(&n.to_le_bytes()),
        grader_attempts: GraderAttempts::None,
    }
}

/// An attempt that was opened, ended with `verdict`, and was graded if `score` says so.
pub(crate) fn attempt(
    n: u32,
    run: &str,
    case: &str,
    ordinal: u32,
    verdict: Verdict,
    score: Option<f64>,
) -> Vec<Event> {
    of(opened(n, run, case, ordinal), verdict, score)
}

pub(crate) fn of(opened: Opened, verdict: Verdict, score: Option<f64>) -> Vec<Event> {
    let n = u32::try_from(opened.attempt.as_u128()).expect("small");
    let first = opened.ordinal.is_some_and(Ordinal::is_first);
    let remote = if verdict.is_content() { Remote::Answered } else { Remote::Unknown };
    let mut events = vec![Event::Opened(opened), Event::Closed(closed(n, verdict, remote))];
    if let Some(score) = score {
        let grade = grade(n, score);
        events.push(if first { Event::Scored(grade) } else { Event::Diagnostic(grade) });
    }
    events
}

pub(crate) fn fold(events: impl IntoIterator<Item = Event>) -> Folded {
    let mut fold = Fold::new();
    for (seq, event) in (0..).zip(events) {
        fold.push(&Record { seq, time: Timestamp::default(), event }).expect("a ledger");
    }
    fold.finish(Timestamp::default(), &Liveness::All)
}
