//! What the demonstration compares, so that it fails where the ledger does.

use std::fmt;

/// The comparisons that were made.
#[derive(Debug, Default)]
pub(super) struct Checks {
    pub(super) made: u32,
    pub(super) failed: Vec<String>,
}

impl Checks {
    /// Compares what was found with what is due; says whether they are the same.
    #[allow(
        clippy::needless_pass_by_value,
        reason = "so that callers write values, not references"
    )]
    pub(super) fn same<T: PartialEq + fmt::Debug>(
        &mut self,
        what: impl fmt::Display,
        found: T,
        due: T,
    ) -> bool {
        self.made += 1;
        let same = found == due;
        if !same {
            self.failed.push(format!("{what}: {found:?}, and it must be {due:?}"));
        }
        same
    }
}
