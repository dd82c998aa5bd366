//! Ledgers in directories, as the subcommands open them.

use std::{collections::HashSet, path::Path};

use attempt_ledger_core::{Fold, Folded, Liveness};
use attempt_ledger_store::{
    Ledger,
    file::{FileOptions, FileReader, OpenError},
};

use crate::failure::Failure;

/// Opens the ledger in `dir` for writing; makes it if `create`.
pub(crate) fn open(dir: &Path, create: bool) -> Result<Ledger, Failure> {
    let options =
        FileOptions::new(dir).create(create).tool_version(env!("CARGO_PKG_VERSION")).open()?;
    tracing::debug!(target: "attempt_ledger", session = %options.session(), "the ledger is open");
    Ok(options)
}

/// Reads the ledger in `dir` and folds its events. Disturbs no writer.
pub(crate) fn read(dir: &Path) -> Result<Folded, Failure> {
    let mut reader = reader(dir)?;
    // Asked first: a writer that ends meanwhile has closed what it had open, or lost it; asked
    // last, an attempt that it closed in between would look lost.
    let live: HashSet<_> = reader.live_session()?.into_iter().collect();
    let mut fold = Fold::new();
    for record in reader.by_ref() {
        fold.push(&record?)?;
    }
    Ok(fold.finish(attempt_ledger_store::now(), &Liveness::Sessions(live)))
}

/// Reads the events of the ledger in `dir`.
pub(crate) fn reader(dir: &Path) -> Result<FileReader, Failure> {
    if dir.exists() {
        return Ok(FileReader::open(dir)?);
    }
    Err(OpenError::Missing(dir.into()).into())
}
