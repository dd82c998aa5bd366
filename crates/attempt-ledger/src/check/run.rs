use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use attempt_ledger_core::{CheckInfo, Detail, Label, Verdict};

use super::{Check, CheckInput, Checked};

/// The checks of a stack, in their order.
#[derive(Clone, Default)]
pub(crate) struct Checks(Vec<Arc<dyn Check>>);

impl Checks {
    pub(crate) fn push(&mut self, check: impl Check) {
        self.0.push(Arc::new(check));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn infos(&self) -> impl Iterator<Item = CheckInfo> + '_ {
        self.0.iter().map(Check::info)
    }

    /// The verdict of an answer that is `ok` but for the checks; the first that fails decides.
    pub(crate) fn decide(&self, input: &CheckInput<'_>, detail: &mut Detail) -> Verdict {
        for check in &self.0 {
            // This may run in a drop, where a second panic would end the process.
            let checked = catch_unwind(AssertUnwindSafe(|| check.check(input)));
            let note = match checked {
                Ok(Checked::Passed) => continue,
                Ok(Checked::Failed) => &mut detail.check,
                Ok(Checked::NotEvaluated) | Err(_) => &mut detail.unchecked,
            };
            if note.is_none() {
                let name = catch_unwind(AssertUnwindSafe(|| check.info().name));
                *note = Some(Label::new(&name.unwrap_or_default()));
            }
            if detail.check.is_some() {
                return Verdict::OffTarget;
            }
        }
        Verdict::Ok
    }
}

impl fmt::Debug for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.infos()).finish()
    }
}
