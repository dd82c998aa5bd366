//! `grade`: answers that were kept, graded after their run.

use std::{error::Error, sync::Arc, time::Duration};

use attempt_ledger::{GradeInput, Grader as _, LateGradeError, grade_late};
use attempt_ledger_core::{
    AttemptId, Digest, Escaped, Folded, GraderInfo, Ordinal, Role, RunEvent, RunId, Slot, Verdict,
};
use attempt_ledger_report::ReportError;
use attempt_ledger_store::{Archive, ArchiveError, Ledger};
use tokio::task::JoinSet;

use crate::{
    archive, args,
    failure::{Exit, Failure},
    graders::{Known, ReadyGrader},
    ledger, lookup,
    out::{Out, complain},
    run::{
        cases::{self, Case, Common, Params},
        drive::Interrupts,
        expected, flush, settings,
    },
    threads::Threads,
};

/// How long a grade may take: as long as while a run goes on.
const LIMIT: Duration = Duration::from_secs(30);
/// How long a row is awaited.
const ACK: Duration = Duration::from_secs(10);
/// Grades at once.
const AT_ONCE: usize = 8;

pub(crate) fn grade(args: &args::Grade, out: &mut Out) -> Result<Exit, Failure> {
    let cases = read_cases(args)?;
    let known = cases.as_deref().map(expected).unwrap_or_default();
    let listed = cases.as_deref().unwrap_or_default();
    let of_cases = Known { cases: listed, expected: &known, question: None, uri: None };
    let grader = args.grader.build(&of_cases)?;
    // Read first: where there is nothing to do, nothing is written, not even that it was opened.
    let folded = ledger::read(&args.dir)?.told();
    let run = chosen(args, &folded)?;
    let event = settings_of(&folded, &run)?;
    if targets(&folded, event).is_empty() {
        writeln!(
            out,
            "run {run}: nothing to grade, every first attempt that is content has its grade"
        )?;
        return Ok(Exit::Fine);
    }
    // Outlives the ledger, so that Ctrl-C is heard while that is closed.
    let threads = Threads::start()?;
    let ledger = ledger::open(&args.dir, false)?;
    // Once more, now that nobody else writes.
    let folded = ledger::read(&args.dir)?.folded;
    let event = settings_of(&folded, &run)?;
    let grader = match &cases {
        Some(cases) => {
            settings::same_fixtures(&folded, &run, cases, &ledger)?;
            grader.pinned(&known, &ledger)
        }
        None => grader,
    };
    same_grader(&folded, event, &grader.info())?;
    let work = Work {
        ledger: &ledger,
        archive: archive::existing(&args.dir)?,
        event: RunEvent { durability: ledger.durability(), ..event.clone() },
        grader: Arc::new(grader.by_rule()?),
    };
    let done = threads.run(async {
        let mut interrupts = Interrupts::listen()?;
        let done = work.all(targets(&folded, event), &mut interrupts).await?;
        tokio::spawn(interrupts.end_at_the_second("the grades"));
        flush(&ledger, &args.dir).await?;
        Ok::<_, Failure>(done)
    })?;
    tell(args, &run, &done, out)
}

/// The cases, which graders compare with, and whose fixtures must be the run's.
fn read_cases(args: &args::Grade) -> Result<Option<Vec<Case>>, Failure> {
    let Some(path) = &args.cases else {
        if args.grader.needs_expected() {
            return Err(Failure::usage(format_args!(
                "--grader {} compares with \"expected\", and there are no --cases",
                args.grader
            ))
            .hint("give --cases CASES.jsonl, the file that the run was made of"));
        }
        return Ok(None);
    };
    let params = Params::default();
    let graded = args.grader.needs_expected();
    cases::read(path, &Common { model: "", params: &params, stream: false, graded }).map(Some)
}

fn chosen(args: &args::Grade, folded: &Folded) -> Result<RunId, Failure> {
    match &args.run {
        Some(run) => {
            lookup::known_run(folded, run)?;
            Ok(run.clone())
        }
        None => match lookup::newest_run(folded) {
            Some(run) => Ok(run.clone()),
            None => Err(Failure::usage(ReportError::NoRun)),
        },
    }
}

fn settings_of<'a>(folded: &'a Folded, run: &RunId) -> Result<&'a RunEvent, Failure> {
    match folded.run(run) {
        Some(seen) => Ok(&seen.event),
        None => Err(Failure::usage(format_args!(
            "run {run} has no settings in this ledger, which say what grades it"
        ))
        .hint("append its `run` event first, as `attempt-ledger run` does")),
    }
}

/// Refuses a grader beside the one that is published: a run's grades are of one kind. One that gave no
/// grade publishes none, so that another may take its place.
fn same_grader(folded: &Folded, event: &RunEvent, info: &GraderInfo) -> Result<(), Failure> {
    let Some(before) = event.graders.first().filter(|before| *before != info) else {
        return Ok(());
    };
    let of_run = folded.rows.iter().filter(|row| row.run.as_ref() == Some(&event.run));
    if of_run.into_iter().all(|row| row.grade.is_none()) {
        return Ok(());
    }
    let name = |info: &GraderInfo| format!("{} {}", Escaped(&info.name), Escaped(&info.version));
    Err(Failure::usage(format_args!(
        "run {} is graded by {}, not by {}",
        event.run,
        name(before),
        name(info)
    ))
    .hint("give the grader and the expected answers that the run was begun with"))
}

/// A first attempt that is content, and has no grade.
struct Target {
    slot: Slot,
    attempt: AttemptId,
    verdict: Verdict,
    answer: Digest,
}

fn targets(folded: &Folded, event: &RunEvent) -> Vec<Target> {
    let of_run = |slot: &Slot| slot.run == event.run && slot.role == Role::Subject;
    let views = folded.slots.iter().filter(|view| of_run(&view.slot));
    let target = |view| {
        let view: &attempt_ledger_core::SlotView = view;
        let is_first = |row: &&_| {
            let row: &attempt_ledger_core::AttemptRow = row;
            row.ordinal.is_some_and(Ordinal::is_first)
        };
        let row = folded.attempts(view).find(is_first)?;
        let verdict = row.verdict.filter(|verdict| verdict.is_content())?;
        let wanted = !row.frozen && event.graded.contains(&verdict);
        let answer = row.answer_sha256.filter(|_| wanted)?;
        Some(Target { slot: view.slot.clone(), attempt: row.attempt, verdict, answer })
    };
    views.filter_map(target).collect()
}

/// What came of it.
#[derive(Debug, Default)]
struct Done {
    graded: usize,
    missing: usize,
    failed: usize,
    /// What was not looked at, or let go of, since Ctrl-C came first.
    left: usize,
}

struct Work<'a> {
    ledger: &'a Ledger,
    archive: Option<Archive>,
    event: RunEvent,
    grader: Arc<ReadyGrader>,
}

impl Work<'_> {
    async fn all(self, targets: Vec<Target>, interrupts: &mut Interrupts) -> Result<Done, Failure> {
        let mut done = Done::default();
        let mut open: JoinSet<(Slot, Result<f64, LateGradeError>)> = JoinSet::new();
        let mut waiting = targets.into_iter();
        let mut named = self.event.graders.first() == Some(&self.grader.info());
        let mut stopping = false;
        loop {
            while !stopping && open.len() < AT_ONCE {
                let Some(target) = waiting.next() else { break };
                let Target { slot, attempt, verdict, answer } = target;
                let content = match self.kept(answer).await {
                    Ok(Some(content)) => content,
                    Ok(None) => {
                        done.missing += 1;
                        continue;
                    }
                    Err(error) => {
                        done.failed += 1;
                        complain(&format!(
                            "case {}: {}\n",
                            Escaped(slot.case.as_str()),
                            said(&error)
                        ));
                        continue;
                    }
                };
                // The grader is on record before its first grade is.
                if !std::mem::replace(&mut named, true) {
                    self.ledger.run(self.named()).await?;
                }
                let (ledger, grader) = (self.ledger.clone(), Arc::clone(&self.grader));
                let first = Some(Ordinal::FIRST);
                let input = GradeInput::new(content, verdict, slot.clone(), attempt, first);
                open.spawn(
                    async move { (slot, grade_late(&ledger, grader, input, LIMIT, ACK).await) },
                );
            }
            tokio::select! {
                ended = open.join_next() => match ended {
                    None => break,
                    Some(Err(_)) => done.failed += 1,
                    Some(Ok((_, Ok(_)))) => done.graded += 1,
                    Some(Ok((_, Err(LateGradeError::Ledger(error))))) => return Err(error.into()),
                    Some(Ok((slot, Err(error)))) => {
                        done.failed += 1;
                        complain(&format!("case {}: {}\n", Escaped(slot.case.as_str()), said(&error)));
                    }
                },
                () = interrupts.next() => {
                    if stopping {
                        // What is graded is recorded; a grade that is not has not been given.
                        done.left = open.len();
                        break;
                    }
                    stopping = true;
                    complain("stopping: what is being graded goes on to its end; Ctrl-C again lets go of it\n");
                }
            }
        }
        done.left += waiting.count();
        open.shutdown().await;
        Ok(done)
    }

    async fn kept(&self, answer: Digest) -> Result<Option<attempt_ledger::Content>, ArchiveError> {
        let Some(archive) = self.archive.clone() else { return Ok(None) };
        let read = tokio::task::spawn_blocking(move || archive.get(&answer)).await;
        read.unwrap_or(Ok(None))
    }

    /// The run's settings, with the grader that is published from now on.
    fn named(&self) -> RunEvent {
        let tool_version = env!("CARGO_PKG_VERSION").to_owned();
        let beside = self.event.graders.iter().skip(1).cloned();
        let graders = std::iter::once(self.grader.info()).chain(beside).collect();
        RunEvent { graders, tool_version, ..self.event.clone() }
    }
}

/// An error with all that it comes from, in a line.
fn said(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        text.push_str(&format!(": {error}"));
        next = error.source();
    }
    Escaped(&text).to_string()
}

fn tell(args: &args::Grade, run: &RunId, done: &Done, out: &mut Out) -> Result<Exit, Failure> {
    let Done { graded, missing, failed, left } = *done;
    writeln!(out, "run {run}: {graded} graded, {missing} without a kept answer, {failed} failed")?;
    if missing > 0 {
        writeln!(out, "answers are kept by `run --archive`; what was not kept cannot be graded")?;
    }
    if left > 0 {
        writeln!(out, "not graded: {left}; the same command goes on with them")?;
    }
    let report = "attempt-ledger report";
    writeln!(out, "`{report} {} --run {run}` prints the numbers", args.dir.display())?;
    Ok(if left == 0 && failed == 0 { Exit::Fine } else { Exit::Failed })
}
