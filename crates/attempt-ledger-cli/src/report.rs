//! `report`: the published numbers.

use attempt_ledger_core::{Folded, RunId};
use attempt_ledger_report::{Options, Report};

use crate::{
    args,
    failure::{Exit, Failure},
    ledger,
    out::Out,
};

pub(crate) fn report(args: &args::Report, out: &mut Out) -> Result<Exit, Failure> {
    let folded = ledger::read(&args.dir)?;
    let report = of(&folded, args.run.as_ref())?;
    if args.json {
        writeln!(out, "{}", json(&report)?)?;
    } else {
        out.report(&report)?;
    }
    Ok(Exit::Fine)
}

/// The report of a run; the newest when none is named.
pub(crate) fn of(folded: &Folded, run: Option<&RunId>) -> Result<Report, Failure> {
    Report::of(folded, run, &Options::default()).map_err(Failure::usage)
}

/// One value as a line of JSON.
pub(crate) fn json(value: &impl serde::Serialize) -> Result<String, Failure> {
    serde_json::to_string(value)
        .map_err(|error| Failure::ledger("what was read has no JSON form").because(error))
}
