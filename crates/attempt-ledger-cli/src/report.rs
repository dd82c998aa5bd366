//! `report`: the published numbers.

use std::time::Duration;

use attempt_ledger_core::{Escaped, Folded, RunEvent, RunId, RunSeen};
use attempt_ledger_report::{Options, Report, ReportError};

use crate::{
    args,
    duration::shown,
    failure::{Exit, Failure},
    ledger::{self, Contents},
    out::Out,
};

pub(crate) fn report(args: &args::Report, out: &mut Out) -> Result<Exit, Failure> {
    let contents = ledger::read(&args.dir)?;
    ledger::tell(&contents.gaps);
    if args.json {
        writeln!(out, "{}", json(&of_contents(&contents, args.run.as_ref())?)?)?;
    } else {
        print(&contents, args.run.as_ref(), out)?;
    }
    Ok(Exit::Fine)
}

/// Prints the report of a run as text, with the settings that were changed on its way.
pub(crate) fn print(
    contents: &Contents,
    run: Option<&RunId>,
    out: &mut Out,
) -> Result<(), Failure> {
    let report = of_contents(contents, run)?;
    let folded = &contents.folded;
    out.report(&report)?;
    let events: Vec<&RunSeen> =
        folded.runs.iter().filter(|seen| seen.event.run == report.run).collect();
    for (before, after) in events.iter().zip(events.iter().skip(1)) {
        let changed = changes(&before.event, &after.event);
        if !changed.is_empty() {
            writeln!(out, "settings changed at row {}: {}", after.seq, changed.join(", "))?;
        }
    }
    Ok(())
}

/// What differs between two events of a run.
fn changes(before: &RunEvent, after: &RunEvent) -> Vec<String> {
    let clock = |us: Option<u64>| us.map_or("off".into(), |us| shown(Duration::from_micros(us)));
    let stream = |event: &RunEvent| event.target.as_ref().map(|target| target.stream);
    let effect = |event: &RunEvent| match event.retry.effect {
        Some(effect) => effect.to_string(),
        None => "what the request tells".to_owned(),
    };
    let graders = |event: &RunEvent| {
        let names = event.graders.iter().map(|info| format!("{} {}", info.name, info.version));
        names.collect::<Vec<_>>().join(", ")
    };
    let pairs = [
        ("head", clock(before.limits.head_us), clock(after.limits.head_us)),
        ("idle", clock(before.limits.idle_us), clock(after.limits.idle_us)),
        ("total", clock(before.limits.total_us), clock(after.limits.total_us)),
        ("attempts", before.retry.attempts.to_string(), after.retry.attempts.to_string()),
        ("budget", clock(Some(before.retry.budget_us)), clock(Some(after.retry.budget_us))),
        ("effect", effect(before), effect(after)),
        ("grader", graders(before), graders(after)),
        ("gates", format!("{:?}", before.gates), format!("{:?}", after.gates)),
        ("stream", format!("{:?}", stream(before)), format!("{:?}", stream(after))),
        ("durability", before.durability.as_str().into(), after.durability.as_str().into()),
        ("version", before.tool_version.clone(), after.tool_version.clone()),
    ];
    let changed = pairs.into_iter().filter(|(_, before, after)| before != after);
    changed
        .map(|(name, before, after)| format!("{name} {} to {}", Escaped(&before), Escaped(&after)))
        .collect()
}

/// The report of a run, with what of the ledger's files is no row among its warnings.
fn of_contents(contents: &Contents, run: Option<&RunId>) -> Result<Report, Failure> {
    let mut report = of(&contents.folded, run)?;
    report.warnings.extend(contents.gaps.iter().cloned());
    Ok(report)
}

/// The report of a run; the newest when none is named.
pub(crate) fn of(folded: &Folded, run: Option<&RunId>) -> Result<Report, Failure> {
    Report::of(folded, run, &Options::default()).map_err(|error| match error {
        ReportError::Citation(_) => Failure::ledger(error)
            .hint("it was altered, or written by a faulty program; `attempt-ledger log --events` shows the grade"),
        _ => Failure::usage(error),
    })
}

/// One value as a line of JSON.
pub(crate) fn json(value: &impl serde::Serialize) -> Result<String, Failure> {
    serde_json::to_string(value)
        .map_err(|error| Failure::ledger("what was read has no JSON form").because(error))
}
