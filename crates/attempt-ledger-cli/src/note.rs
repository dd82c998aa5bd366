//! `note`: a person's remark on an attempt.

use attempt_ledger_core::Note;
use attempt_ledger_store::StoreError;

use crate::{
    args,
    failure::{Exit, Failure},
    ledger, lookup,
    out::Out,
};

pub(crate) fn note(args: args::Note, out: &mut Out) -> Result<Exit, Failure> {
    let args::Note { dir, attempt, text, run } = args;
    let attempt = lookup::attempt(&ledger::read(&dir)?.told(), run.as_ref(), &attempt)?;
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
