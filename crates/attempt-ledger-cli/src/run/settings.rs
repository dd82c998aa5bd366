//! What a run is: its name, its settings, and what the ledger knows of it already.

use std::collections::HashSet;

use attempt_ledger::{Clocks, GateKind, Gates};
use attempt_ledger_core::{
    CaseId, CheckInfo, Folded, GraderInfo, Limits, Planned, PlannedSlot, RetrySettings, RunEvent,
    RunId, RunTarget, Slot, Verdict,
};
use attempt_ledger_store::Ledger;
use http::Uri;

use super::{
    cases::{Case, Params},
    plan::Sample,
};
use crate::{
    args,
    failure::Failure,
    graders::{pinned, plain},
};

/// Responses are always held whole, so that what is retried was graded.
pub(super) const GATES: Gates = Gates { plain: GateKind::Whole, stream: GateKind::Whole };

/// Bytes of ids in one row of planned slots; a row may have 64 KiB.
const BATCH: usize = 32 << 10;

pub(super) fn clocks(args: &args::Run) -> Clocks {
    let clocks = Clocks::default().idle(args.idle).total(args.total);
    match args.head {
        Some(head) => clocks.head(head),
        None => clocks,
    }
}

/// The settings as the ledger holds them.
pub(super) fn event(
    args: &args::Run,
    run: RunId,
    ledger: &Ledger,
    (graders, checks): (Vec<GraderInfo>, Vec<CheckInfo>),
    uri: &Uri,
    params: &Params,
) -> Result<RunEvent, Failure> {
    Ok(RunEvent {
        run,
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        durability: ledger.durability(),
        limits: clocks(args).limits(None),
        gates: GATES,
        graded: Verdict::ALL.iter().copied().filter(|v| v.is_content()).collect(),
        retry: RetrySettings {
            attempts: args.attempts,
            budget_us: Limits::micros(args.budget),
            retry_on: Vec::new(),
            grade_below: None,
            policy: None,
            effect: args.effect.map(Into::into),
        },
        graders,
        checks,
        target: Some(RunTarget {
            url: uri.to_string(),
            model: args.model.clone(),
            params: ledger.recorded(params.digest()?),
            stream: args.stream,
        }),
    })
}

/// Whether the ledger knows the run.
fn is_known(folded: &Folded, run: &RunId) -> bool {
    folded.run(run).is_some()
        || folded.planned.iter().any(|slot| slot.run == *run)
        || folded.slots.iter().any(|view| view.slot.run == *run)
}

/// The run that was asked for: by name, by what it is made of, or another one of that.
pub(super) fn choose(args: &args::Run, folded: &Folded, name: &str) -> Result<RunId, Failure> {
    if let Some(run) = &args.run {
        return Ok(run.clone());
    }
    let mut number = 1_u32;
    loop {
        let name = if number == 1 { name.to_owned() } else { format!("{name}-{number}") };
        let run = RunId::new(name).map_err(Failure::usage)?;
        if !args.fresh || !is_known(folded, &run) {
            return Ok(run);
        }
        number = number.saturating_add(1);
    }
}

/// Refuses to go on with a run that is of something else.
pub(super) fn same_target(
    folded: &Folded,
    event: &RunEvent,
    cases: &[Case],
    ledger: &Ledger,
) -> Result<(), Failure> {
    let run = &event.run;
    let Some(before) = folded.run(run).map(|seen| &seen.event) else {
        return Ok(());
    };
    let mut others = Vec::new();
    match (&before.target, &event.target) {
        (Some(before), Some(now)) => {
            if before.url != now.url {
                others.push(format!("URL ({}, not {})", before.url, now.url));
            }
            if before.model != now.model {
                others.push(format!("model ({:?}, not {:?})", before.model, now.model));
            }
            if before.params != now.params {
                others.push("params".to_owned());
            }
        }
        _ => others.push("kind: it was not made by `run`".to_owned()),
    }
    if !same_answers(folded, event, cases, ledger) {
        let names = |graders: &[GraderInfo]| match graders {
            [] => "none".to_owned(),
            all => all
                .iter()
                .map(|g| format!("{} {}", g.name, g.version))
                .collect::<Vec<_>>()
                .join(", "),
        };
        let plain = |graders: &[GraderInfo]| graders.iter().map(plain).collect::<Vec<_>>();
        let what = match plain(&before.graders) == plain(&event.graders) {
            true => "set of expected answers",
            false => "grader",
        };
        others.push(format!("{what} ({}, not {})", names(&before.graders), names(&event.graders)));
    }
    if before.checks != event.checks {
        let names = |checks: &[CheckInfo]| match checks {
            [] => "none".to_owned(),
            all => all.iter().map(|check| &*check.name).collect::<Vec<_>>().join(", "),
        };
        let (before, now) = (names(&before.checks), names(&event.checks));
        others.push(format!("set of checks ({before}, not {now})"));
    }
    if others.is_empty() {
        return Ok(());
    }
    let failure =
        Failure::usage(format_args!("run {run} is of another {}", others.join(", another ")));
    let mut of_run = folded.runs.iter().filter(|seen| seen.event.run == *run);
    // Given as it was begun, and graded since.
    let graded_since = before.graders != event.graders
        && others.len() == 1
        && of_run.any(|seen| seen.event.graders == event.graders);
    Err(match graded_since {
        true => failure.hint(format_args!(
            "it has its grader by `grade`: to go on, give --run {run} and --grader as there"
        )),
        false => failure.hint("give what it was begun with, or another --run"),
    })
}

/// Whether the run's grades are against these expected answers: all of them, as they were begun with
/// once, or those of the cases that the run has already, where others come new to it.
fn same_answers(folded: &Folded, event: &RunEvent, cases: &[Case], ledger: &Ledger) -> bool {
    let of_run = || folded.runs.iter().filter(|seen| seen.event.run == event.run);
    let Some(before) = folded.run(&event.run).map(|seen| &seen.event) else { return true };
    let plain_of = |graders: &[GraderInfo]| graders.iter().map(plain).collect::<Vec<_>>();
    if plain_of(&before.graders) != plain_of(&event.graders) {
        return false;
    }
    let is_known =
        |case: &&Case| folded.planned.contains(&Slot::new(event.run.clone(), case.id.clone()));
    let known: Vec<&Case> = cases.iter().filter(is_known).collect();
    let pairs = || known.iter().filter_map(|case| Some((&case.id, case.expected.as_deref()?)));
    let of_known = event.graders.iter().map(|info| match info.version.contains('+') {
        true => pinned(plain(info), pairs(), ledger),
        false => info.clone(),
    });
    let of_known: Vec<GraderInfo> = of_known.collect();
    known.is_empty()
        || of_run()
            .any(|seen| seen.event.graders == event.graders || seen.event.graders == of_known)
}

/// Refuses cases that were run with another fixture; nothing would be comparable.
pub(crate) fn same_fixtures(
    folded: &Folded,
    run: &RunId,
    cases: &[Case],
    ledger: &Ledger,
) -> Result<(), Failure> {
    let before: std::collections::HashMap<&CaseId, _> = folded
        .rows
        .iter()
        .filter(|row| row.run.as_ref() == Some(run))
        .filter_map(|row| Some((row.case.as_ref()?, row.fixture?)))
        .collect();
    let changed: Vec<&str> = cases
        .iter()
        .filter(|case| {
            let now = ledger.recorded(case.fixture);
            before.get(&case.id).is_some_and(|before| *before != now)
        })
        .map(|case| case.id.as_str())
        .collect();
    let shown: Vec<&str> = changed.iter().copied().take(5).collect();
    match changed.len() {
        0 => Ok(()),
        n => Err(Failure::usage(format_args!(
            "{n} case{} of run {run} had another fixture before: {}{}",
            if n == 1 { "" } else { "s" },
            shown.join(", "),
            if n > shown.len() { ", ..." } else { "" },
        ))
        .hint("give changed cases other ids, or run them under another --run")),
    }
}

/// Refuses to repeat an earlier run with anything that it was not: nothing would be comparable.
pub(super) fn same_as(
    folded: &Folded,
    earlier: &RunId,
    event: &RunEvent,
    cases: &[Case],
    ledger: &Ledger,
) -> Result<(), Failure> {
    let of_run = folded.planned.iter().filter(|slot| slot.run == *earlier);
    let before: HashSet<&CaseId> = of_run.map(|slot| &slot.case).collect();
    let now: HashSet<&CaseId> = cases.iter().map(|case| &case.id).collect();
    let (lacks, has) = (before.difference(&now).count(), now.difference(&before).count());
    if (lacks, has) == (0, 0) {
        same_fixtures(folded, earlier, cases, ledger)?;
        let event = RunEvent { run: earlier.clone(), ..event.clone() };
        return same_target(folded, &event, cases, ledger);
    }
    Err(Failure::usage(format_args!(
        "run {earlier} was made of other cases: {lacks} of its cases are not in the file, and {has} in the file are not its own"
    ))
    .hint("give the file that it was made of, or begin another run with `attempt-ledger run`"))
}

/// Appends the run's settings, unless they are what holds already, and the slots that are new; says
/// how many these are.
pub(super) async fn record(
    ledger: &Ledger,
    folded: &Folded,
    event: RunEvent,
    samples: impl Iterator<Item = Sample<'_>>,
) -> Result<usize, Failure> {
    let run = event.run.clone();
    if folded.run(&run).is_none_or(|seen| seen.event != event) {
        ledger.run(event).await?;
    }
    let (mut batch, mut bytes, mut new) = (Vec::new(), 0, 0);
    for sample in samples {
        let slot = sample.slot(&run);
        if folded.planned.contains(&slot) {
            continue;
        }
        new += 1;
        // Quotes and backslashes count twice in JSON, and no id is longer than 256 bytes.
        bytes += 2 * slot.case.as_str().len() + 32;
        batch.push(PlannedSlot { case: slot.case, epoch: slot.epoch, step: slot.step });
        if bytes >= BATCH {
            plan(ledger, &run, std::mem::take(&mut batch)).await?;
            bytes = 0;
        }
    }
    if !batch.is_empty() {
        plan(ledger, &run, batch).await?;
    }
    Ok(new)
}

async fn plan(ledger: &Ledger, run: &RunId, slots: Vec<PlannedSlot>) -> Result<(), Failure> {
    Ok(ledger.planned(Planned { run: run.clone(), slots }).await?)
}
