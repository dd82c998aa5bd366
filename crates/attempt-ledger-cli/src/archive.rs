//! The answers that a ledger keeps beside its rows, where that was asked for.

use std::path::Path;

use attempt_ledger_store::{Archive, ArchiveError};

use crate::{failure::Failure, out::complain};

/// The folder's name, in the ledger's directory.
const NAME: &str = "archive";

/// Begins the archive of the ledger in `dir`, or goes on with it.
pub(crate) fn begin(dir: &Path) -> Result<Archive, Failure> {
    Ok(Archive::open(dir.join(NAME))?)
}

/// The archive of the ledger in `dir`, if it has one.
pub(crate) fn existing(dir: &Path) -> Result<Option<Archive>, Failure> {
    Ok(Archive::existing(dir.join(NAME))?)
}

/// Says that answers are stored, while there is still time to stop.
pub(crate) fn announce(archive: &Archive) {
    let dir = archive.dir().display();
    complain(&format!(
        "note: answers are stored in {dir}, as they come, in files that only you may read\n"
    ));
}

/// Says what could not be kept.
pub(crate) fn conclude(archive: &Archive) {
    let Some(failures) = archive.failures() else { return };
    let (answers, were) = if failures.count == 1 { ("answer", "was") } else { ("answers", "were") };
    let mut text = format!(
        "warning: {} {answers} {were} not kept, and cannot be graded later; the last: {}\n",
        failures.count, failures.last
    );
    let mut next = std::error::Error::source(&failures.last);
    while let Some(error) = next {
        text.push_str(&format!("  caused by: {error}\n"));
        next = error.source();
    }
    complain(&text);
}

impl From<ArchiveError> for Failure {
    fn from(error: ArchiveError) -> Self {
        Failure::of_ledger(&error)
    }
}
