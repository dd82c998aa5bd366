//! Every step that the mock can play, each as the first attempt of a case.

use std::time::Duration;

use attempt_ledger_core::{RunId, Verdict};
use attempt_ledger_mock::{CaseKey, Script, Step};
use tokio::task::JoinSet;

use super::{Checks, MODEL, Stage, WORDS, call, folded, request};
use crate::{
    failure::Failure,
    out::{Cell, Out, Style},
};

/// What must come of a step played to the first attempt, when every later one gets a good answer.
struct Due {
    verdict: Verdict,
    ordinals: u32,
    /// Requests that the server reads whole.
    requests: usize,
}

/// The steps, with times that fit the demonstration's clocks.
fn steps() -> Vec<(&'static str, Step)> {
    let mut steps = Step::all();
    for (_, step) in &mut steps {
        match step {
            // More often than the idle clock, which keep-alives feed: the total clock ends it.
            Step::TrickleKeepAlives { every } => *every = Duration::from_millis(100),
            Step::SlowFirstByte(wait) => *wait = Duration::from_millis(250),
            _ => {}
        }
    }
    steps
}

/// The id of a step's case. Words in angle brackets, so that none contains another.
fn case(name: &str) -> String {
    format!("<{name}>")
}

/// The cases.
pub(super) fn names() -> Vec<String> {
    steps().into_iter().map(|(name, _)| case(name)).collect()
}

pub(super) fn script() -> Vec<(CaseKey, Script)> {
    let plays = |step: Step| Script::new([step.text(WORDS), Step::Good.text(WORDS)]);
    steps().into_iter().map(|(name, step)| (case(name).into(), plays(step))).collect()
}

fn due(step: &Step) -> Due {
    use Verdict as V;
    let verdict = match step {
        Step::Refuse | Step::Reset | Step::CloseBeforeHead | Step::CutInChunk | Step::Raw(_) => {
            V::Transport
        }
        Step::StallBeforeHead | Step::StallMidBody | Step::TrickleKeepAlives { .. } => V::Deadline,
        Step::EndWithoutStop => V::Unterminated,
        Step::CapHit => V::Truncated,
        Step::Empty | Step::WhiteSpace => V::Empty,
        Step::ErrorIn200 | Step::ErrorEventMidStream => V::ProviderError,
        Step::Throttled(_) | Step::Unavailable => V::Throttled,
        Step::ServerError => V::ServerError,
        Step::Html200 | Step::BadJson => V::Malformed,
        Step::Refusal | Step::ContentFilter => V::Refused,
        Step::Status { .. } => V::Rejected,
        _ => V::Ok,
    };
    let low_grade = matches!(step, Step::Empty | Step::WhiteSpace | Step::Refusal | Step::ToolCall);
    let ordinals = if verdict.is_fault() || low_grade { 2 } else { 1 };
    let requests = match step {
        // Never read.
        Step::Refuse => 1,
        // Followed within the attempt.
        Step::Redirect { .. } => 2,
        _ => ordinals as usize,
    };
    Due { verdict, ordinals, requests }
}

pub(super) async fn play(
    stage: &Stage,
    run: &RunId,
    checks: &mut Checks,
    out: &mut Out,
) -> Result<(), Failure> {
    let mut steps = steps();
    fastrand::Rng::with_seed(stage.seed).shuffle(&mut steps);
    let mut calls = JoinSet::new();
    for (name, _) in &steps {
        calls.spawn(call(stage.client.clone(), request(stage, run, &case(name), MODEL)?));
    }
    while calls.join_next().await.is_some() {}
    let folded = folded(stage).await?;

    out.heading("Every fault the server can play, each at a first attempt")?;
    let mut rows = Vec::new();
    for (name, step) in &steps {
        let due = due(step);
        let id = case(name);
        let view = folded.slots.iter().find(|v| v.slot.run == *run && v.slot.case.as_str() == id);
        let attempts: Vec<_> = view.into_iter().flat_map(|v| folded.attempts(v)).collect();
        let verdict = attempts.first().and_then(|row| row.verdict);
        let ordinals = u32::try_from(attempts.len()).unwrap_or(u32::MAX);
        let requests = super::known::received(stage, &id);
        let mut fine = checks.same(format_args!("verdict of {name}"), verdict, Some(due.verdict));
        fine &= checks.same(format_args!("ordinals of {name}"), ordinals, due.ordinals);
        fine &= checks.same(format_args!("requests of {name}"), requests, due.requests);
        rows.push(vec![
            Cell::new(name),
            Cell::new(due.verdict),
            Cell::maybe(verdict).style(Style::of(verdict)),
            Cell::new(ordinals),
            Cell::new(requests),
            if fine { Cell::new("") } else { Cell::new("not as it must be").style(Style::Bad) },
        ]);
    }
    let refused = stage.server.refused();
    checks.same("connections that the server refused", refused, 1);
    out.table(&["step", "expected", "verdict", "ordinals", "requests", ""], &rows, 0)?;
    writeln!(
        out,
        "(requests as the server counted them: it read none of a connection it refused,"
    )?;
    writeln!(out, "and two of a redirect, which is followed within one attempt)")
}
