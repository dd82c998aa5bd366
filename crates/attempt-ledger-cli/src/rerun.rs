//! `rerun`: a run once more, with the settings of an earlier one.

use std::ffi::OsString;

use attempt_ledger_core::{Effect, Escaped, Folded, GraderInfo, Role, RunEvent, RunId};
use attempt_ledger_report::ReportError;
use clap::Parser as _;

use crate::{
    args::{self, Args, Command},
    failure::{Exit, Failure},
    graders::GraderArg,
    judge::RangeArg,
    ledger, lookup,
    out::Out,
    run,
};

pub(crate) fn rerun(args: &args::Rerun, out: &mut Out) -> Result<Exit, Failure> {
    let folded = ledger::read(&args.dir)?.told();
    let run = match &args.run {
        Some(run) => {
            lookup::known_run(&folded, run)?;
            run
        }
        None => lookup::newest_run(&folded).ok_or_else(|| Failure::usage(ReportError::NoRun))?,
    };
    let Some(event) = folded.run(run).map(|seen| &seen.event) else {
        return Err(not_by_run(run));
    };
    let mut again = parsed(arguments(args, &folded, event)?)?;
    again.repeats = Some(run.clone());
    run::run(&again, out)
}

fn not_by_run(run: &RunId) -> Failure {
    Failure::usage(format_args!(
        "run {run} was not made by `run`: there is nothing to repeat it by"
    ))
    .hint("`attempt-ledger run` begins a run that can be repeated")
}

/// The arguments of `run` that the ledger has, and those that were given now.
fn arguments(
    args: &args::Rerun,
    folded: &Folded,
    event: &RunEvent,
) -> Result<Vec<OsString>, Failure> {
    let target = event.target.as_ref().ok_or_else(|| not_by_run(&event.run))?;
    let mut all: Vec<OsString> = vec!["attempt-ledger".into(), "run".into()];
    let mut add = |name: &str, value: OsString| {
        // With the sign between them no value is taken for another option.
        let mut text = OsString::from(format!("--{name}="));
        text.push(value);
        all.push(text);
    };
    add("base-url", target.url.clone().into());
    add("model", target.model.clone().into());
    add("ledger", args.dir.clone().into());
    add("attempts", event.retry.attempts.to_string().into());
    add("budget", format!("{}us", event.retry.budget_us).into());
    let clocks = [
        ("head", event.limits.head_us),
        ("total", event.limits.total_us),
        ("idle", event.limits.idle_us),
    ];
    for (name, us) in clocks {
        if let Some(us) = us {
            add(name, format!("{us}us").into());
        }
    }
    match &event.retry.effect {
        None => {}
        Some(Effect::ReadOnly) => add("effect", "read_only".into()),
        Some(Effect::Writes) => add("effect", "writes".into()),
        Some(Effect::Idempotent(_)) => return Err(not_by_run(&event.run)),
    }
    if !event.checks.is_empty() {
        return Err(Failure::usage(format_args!(
            "run {} has checks, whose settings are not in the ledger",
            event.run
        ))
        .hint("give them again: `attempt-ledger run --fresh --check ...`"));
    }
    let of_run = folded.planned.iter().filter(|slot| slot.run == event.run);
    let epochs = of_run.filter(|slot| slot.role == Role::Subject).map(|slot| slot.epoch).max();
    add("epochs", epochs.unwrap_or(1).to_string().into());
    let graders = graders(args, event)?;
    for grader in &graders {
        add("grader", grader.to_string().into());
    }
    if let Some(path) = &args.graders.grader_prompt {
        add("grader-prompt", path.into());
    }
    let asks = |grader: &&GraderArg| matches!(grader, GraderArg::Model(_));
    let asked = graders.iter().find(asks).map(GraderArg::to_string);
    let before = event.graders.iter().find(|info| Some(&info.name) == asked.as_ref());
    let before = before.map(|info| RangeArg { low: info.low, high: info.high });
    if let Some(range) = args.graders.grader_range.or(before) {
        add("grader-range", range.to_string().into());
    }
    for (name, given) in [("params", &args.params), ("api-key-env", &args.api_key_env)] {
        if let Some(given) = given {
            add(name, given.into());
        }
    }
    add("concurrency", args.concurrency.to_string().into());
    let flags = [
        ("--stream", target.stream),
        ("--archive", args.archive),
        ("--no-pacing", args.no_pacing),
        ("--fresh", true),
    ];
    all.extend(flags.iter().filter(|(_, set)| *set).map(|(name, _)| OsString::from(name)));
    all.push("--".into());
    all.push(args.cases.clone().into());
    Ok(all)
}

/// The graders of the run, by their names where these say all of them; whether they are the same in all
/// that shapes their grades is compared with the ledger when they are made.
fn graders(args: &args::Rerun, event: &RunEvent) -> Result<Vec<GraderArg>, Failure> {
    if !args.graders.grader.is_empty() {
        return Ok(args.graders.grader.clone());
    }
    let by_name = |before: &GraderInfo| {
        before.name.parse().map_err(|_| {
            Failure::usage(format_args!(
                "run {} was graded by {}, whose settings are not in the ledger",
                event.run,
                Escaped(&before.name)
            ))
            .hint("give each --grader as the run was begun with it, in the same order")
        })
    };
    event.graders.iter().map(by_name).collect()
}

fn parsed(arguments: Vec<OsString>) -> Result<args::Run, Failure> {
    let unusable = "the settings of that run are none that this version knows";
    let args =
        Args::try_parse_from(arguments).map_err(|error| Failure::usage(unusable).because(error))?;
    match args.command {
        Command::Run(run) => Ok(*run),
        _ => Err(Failure::usage(unusable)),
    }
}
