use std::{fmt, sync::Arc};

use attempt_ledger_core::{CheckInfo, Content, Slot};

/// Says whether an answer is what was asked for. One that is not is `off_target` in place of `ok`:
/// still content, and still graded.
///
/// Evaluated once, where an attempt of role `subject` is closed as `ok`, and while its response is
/// polled: it must not block. A check that panics, or that cannot be evaluated, has not failed: the
/// verdict stays `ok`, and the row names the check.
///
/// ```
/// use attempt_ledger::{CheckFn, CheckInput, IsJson, Ledger, LedgerLayer};
///
/// let polite = CheckFn::new("polite", "1", |input: &CheckInput<'_>| {
///     input.content.text.contains("please")
/// });
/// let layer = LedgerLayer::new(Ledger::memory()).check(IsJson::new()).check(polite);
/// assert_eq!(layer.checks().map(|check| check.name).collect::<Vec<_>>(), ["is-json", "polite"]);
/// ```
pub trait Check: Send + Sync + 'static {
    /// Its name and version. Give the checks of one stack different names: a row names the one that
    /// failed.
    fn info(&self) -> CheckInfo;

    /// What it says of one answer.
    fn check(&self, input: &CheckInput<'_>) -> Checked;
}

/// What a check is given.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CheckInput<'a> {
    /// What the model said.
    pub content: &'a Content,
    /// The slot.
    pub slot: &'a Slot,
}

impl<'a> CheckInput<'a> {
    /// This content as the answer of this slot.
    pub fn new(content: &'a Content, slot: &'a Slot) -> Self {
        CheckInput { content, slot }
    }
}

/// What a check says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    /// The answer is what was asked for.
    Passed,
    /// It is not.
    Failed,
    /// It cannot be said, for instance since this case has nothing to compare with.
    NotEvaluated,
}

impl From<bool> for Checked {
    fn from(passed: bool) -> Self {
        if passed { Checked::Passed } else { Checked::Failed }
    }
}

impl From<Option<bool>> for Checked {
    /// `None` is not evaluated.
    fn from(passed: Option<bool>) -> Self {
        passed.map_or(Checked::NotEvaluated, Checked::from)
    }
}

impl<C: Check + ?Sized> Check for Arc<C> {
    fn info(&self) -> CheckInfo {
        (**self).info()
    }

    fn check(&self, input: &CheckInput<'_>) -> Checked {
        (**self).check(input)
    }
}

impl<C: Check + ?Sized> Check for Box<C> {
    fn info(&self) -> CheckInfo {
        (**self).info()
    }

    fn check(&self, input: &CheckInput<'_>) -> Checked {
        (**self).check(input)
    }
}

/// A check made of a closure, which says `bool`, `Option<bool>` or [`Checked`].
pub struct CheckFn<F> {
    info: CheckInfo,
    check: F,
}

impl<F> CheckFn<F> {
    /// A check of this name and version.
    pub fn new<C>(name: impl Into<String>, version: impl Into<String>, check: F) -> Self
    where
        F: Fn(&CheckInput<'_>) -> C,
        C: Into<Checked>,
    {
        CheckFn { info: CheckInfo { name: name.into(), version: version.into() }, check }
    }
}

impl<F, C> Check for CheckFn<F>
where
    F: Fn(&CheckInput<'_>) -> C + Send + Sync + 'static,
    C: Into<Checked>,
{
    fn info(&self) -> CheckInfo {
        self.info.clone()
    }

    fn check(&self, input: &CheckInput<'_>) -> Checked {
        (self.check)(input).into()
    }
}

impl<F> fmt::Debug for CheckFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckFn").field("info", &self.info).finish_non_exhaustive()
    }
}
