//! `note`: a person's remark on an attempt.

use attempt_ledger_core::{AttemptId, Folded, Note};
use attempt_ledger_store::StoreError;

use crate::{
    args,
    failure::{Exit, Failure},
    ledger,
    out::Out,
};

/// The least of an id's beginning that is taken for the whole.
const LEAST: usize = 4;

pub(crate) fn note(args: args::Note, out: &mut Out) -> Result<Exit, Failure> {
    let args::Note { dir, attempt, text } = args;
    let attempt = find(&ledger::read(&dir)?, &attempt)?;
    let ledger = ledger::open(&dir, false)?;
    let done = block_on(async {
        ledger.note(Note { attempt, text }).await?;
        ledger.flush().await
    })?;
    done.map_err(|error| match error {
        StoreError::RowTooLong { .. } => {
            Failure::usage("the remark is too long").because(error).hint("write a shorter one")
        }
        error => error.into(),
    })?;
    writeln!(out, "noted on attempt {attempt}")?;
    Ok(Exit::Fine)
}

fn block_on<T>(future: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(crate::run::no_runtime)?;
    Ok(runtime.block_on(future))
}

/// The attempt whose id begins so.
fn find(folded: &Folded, given: &str) -> Result<AttemptId, Failure> {
    let hint = "`attempt-ledger log DIR --json` prints the ids, in the field `attempt`";
    let hex = given.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    if !hex || !(LEAST..=32).contains(&given.len()) {
        return Err(Failure::usage(format_args!(
            "{given:?} is no attempt's id: {LEAST} to 32 lower-case hexadecimal digits"
        ))
        .hint(hint));
    }
    let mut found = folded.rows.iter().filter(|row| row.attempt.to_string().starts_with(given));
    match (found.next(), found.next()) {
        (Some(row), None) => Ok(row.attempt),
        (Some(_), Some(_)) => {
            Err(Failure::usage(format_args!("several attempts begin with {given}"))
                .hint("give more of the id"))
        }
        _ => Err(Failure::usage(format_args!("no attempt of this ledger begins with {given}"))
            .hint(hint)),
    }
}
