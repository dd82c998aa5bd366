//! Runs, cases and attempts by the names that people give them.

use std::{collections::BTreeSet, fmt};

use attempt_ledger_core::{AttemptId, AttemptRow, CaseId, Escaped, Folded, Role, RunId, Slot};
use attempt_ledger_report::ReportError;

use crate::failure::Failure;

/// The least of an id's beginning that is taken for the whole.
const LEAST: usize = 4;

const IDS: &str = "`attempt-ledger log DIR` shows the numbers, in the column `seq`; with --json the ids, in the field `attempt`";

/// Refuses a run that the ledger does not have, naming those it has.
pub(crate) fn known_run(folded: &Folded, run: &RunId) -> Result<(), Failure> {
    let known: BTreeSet<&RunId> = (folded.runs.iter().map(|seen| &seen.event.run))
        .chain(slots(folded).map(|slot| &slot.run))
        .collect();
    if known.contains(run) {
        return Ok(());
    }
    let known = known.into_iter().cloned().collect();
    Err(Failure::usage(ReportError::UnknownRun { run: run.clone(), known }))
}

/// Refuses a case that the ledger, or the run in it, does not have, naming those it has.
pub(crate) fn known_case(
    folded: &Folded,
    run: Option<&RunId>,
    case: &CaseId,
) -> Result<(), Failure> {
    let known: BTreeSet<&CaseId> = slots(folded)
        .filter(|slot| run.is_none_or(|run| slot.run == *run))
        .map(|slot| &slot.case)
        .collect();
    if known.contains(case) {
        return Ok(());
    }
    let place =
        run.map_or("this ledger".to_owned(), |run| format!("run {}", Escaped(run.as_str())));
    Err(Failure::usage(format_args!(
        "{place} has no case {}{}",
        Escaped(case.as_str()),
        Known(known.into_iter().map(CaseId::as_str).collect())
    )))
}

/// What was planned, and what an attempt was opened in.
fn slots(folded: &Folded) -> impl Iterator<Item = &Slot> {
    folded.planned.iter().chain(folded.slots.iter().map(|view| &view.slot))
}

/// The names there are, but not all of many.
struct Known<'a>(Vec<&'a str>);

impl fmt::Display for Known<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        for (i, name) in self.0.iter().take(SHOWN).enumerate() {
            let before = if i == 0 { "; it has " } else { ", " };
            write!(f, "{before}{}", Escaped(name))?;
        }
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// The attempt that `given` stands for: CASE#ORDINAL, a `seq`, or the beginning of an id.
pub(crate) fn attempt(
    folded: &Folded,
    run: Option<&RunId>,
    given: &str,
) -> Result<AttemptId, Failure> {
    if let Some(run) = run {
        known_run(folded, run)?;
    }
    if let Some((case, ordinal)) = given.rsplit_once('#') {
        return by_ordinal(folded, run, given, case, ordinal);
    }
    let seq = given.parse::<u64>().ok().filter(|seq| seq.to_string() == given);
    let hex = given.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    let is_id = hex && (LEAST..=32).contains(&given.len());
    if seq.is_none() && !is_id {
        return Err(Failure::usage(format_args!(
            "{given:?} is no attempt's seq, CASE#ORDINAL or id ({LEAST} to 32 lower-case \
             hexadecimal digits)"
        ))
        .hint(IDS));
    }
    let of_run = |row: &&AttemptRow| run.is_none_or(|run| row.run.as_ref() == Some(run));
    let matches = |row: &&AttemptRow| {
        Some(row.seq) == seq || (is_id && row.attempt.to_string().starts_with(given))
    };
    let mut found = folded.rows.iter().filter(of_run).filter(matches);
    let place =
        || run.map_or("this ledger".to_owned(), |run| format!("run {}", Escaped(run.as_str())));
    match (found.next(), found.next()) {
        (Some(row), None) => Ok(row.attempt),
        (Some(_), Some(_)) => Err(Failure::usage(format_args!(
            "several attempts begin with {given}{}",
            if seq.is_some() { ", or have that seq" } else { "" }
        ))
        .hint("give more of the id, or CASE#ORDINAL")),
        (None, _) if !is_id => {
            Err(Failure::usage(format_args!("no attempt of {} has the seq {given}", place()))
                .hint(IDS))
        }
        (None, _) => Err(Failure::usage(format_args!(
            "no attempt of {} begins with {given}{}",
            place(),
            if seq.is_some() { ", and none has that seq" } else { "" }
        ))
        .hint(IDS)),
    }
}

fn by_ordinal(
    folded: &Folded,
    run: Option<&RunId>,
    given: &str,
    case: &str,
    ordinal: &str,
) -> Result<AttemptId, Failure> {
    let no_such = |what: &dyn fmt::Display| {
        Failure::usage(format_args!("{given:?} is no CASE#ORDINAL: {what}"))
    };
    let number = ordinal.parse::<u32>().ok().filter(|n| *n > 0);
    let number = number.ok_or_else(|| no_such(&"ordinals are 1, 2, 3, ..."))?;
    let case = CaseId::new(case).map_err(|error| no_such(&format_args!("the id {error}")))?;
    let run = match run {
        Some(run) => run,
        None => newest_run(folded).ok_or_else(|| Failure::usage(ReportError::NoRun))?,
    };
    known_case(folded, Some(run), &case)?;
    let of_case: Vec<&AttemptRow> = folded
        .rows
        .iter()
        .filter(|row| row.run.as_ref() == Some(run) && row.case.as_ref() == Some(&case))
        .filter(|row| row.role == Role::Subject)
        .collect();
    let found = of_case.iter().filter(|row| row.ordinal.is_some_and(|o| o.get() == number));
    let found: Vec<&&AttemptRow> = found.collect();
    let place = format!("case {} of run {}", Escaped(case.as_str()), Escaped(run.as_str()));
    match found.as_slice() {
        [row] => Ok(row.attempt),
        [] => {
            let ordinals = of_case.iter().filter_map(|row| row.ordinal);
            let ordinals: BTreeSet<String> = ordinals.map(|o| o.to_string()).collect();
            let known = Known(ordinals.iter().map(String::as_str).collect());
            Err(Failure::usage(format_args!("{place} has no ordinal {number}{known}")).hint(IDS))
        }
        several => {
            let seqs: Vec<String> = several.iter().map(|row| row.seq.to_string()).collect();
            Err(Failure::usage(format_args!(
                "{place} has an ordinal {number} in several epochs or steps"
            ))
            .hint(format_args!("give one of their seq: {}", seqs.join(", "))))
        }
    }
}

/// The run that `report` takes, too.
pub(crate) fn newest_run(folded: &Folded) -> Option<&RunId> {
    let newest = folded.newest_run().map(|seen| &seen.event.run);
    newest
        .or_else(|| folded.rows.iter().rev().find_map(|row| row.run.as_ref()))
        .or_else(|| folded.planned.first().map(|slot| &slot.run))
}
