use std::{future::Future, sync::Arc};

use attempt_ledger_core::{AttemptId, GraderAttempts, Role, RunId, SessionId, Slot};

use crate::{
    Case,
    sync::{Mutex, lock},
};

/// Attempts that one grade cites, at most; beyond them it says `unknown`.
const CITED: usize = 1000;

tokio::task_local! {
    static SCOPE: GradingScope;
}

/// One grader at work on one answer: its model calls belong to the role `grader`, whoever makes them,
/// and the grade cites them.
///
/// Found through the task that the grader runs in, and through the [`Case`] of its
/// [`GradeInput`](crate::GradeInput) where it spawns others.
#[derive(Clone, Debug)]
pub(crate) struct GradingScope(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The slot of the calls.
    slot: Slot,
    /// The ledger that the grade is written to.
    session: SessionId,
    called: Mutex<Called>,
}

#[derive(Debug, Default)]
struct Called {
    attempts: Vec<AttemptId>,
    /// Some call cannot be cited.
    uncited: bool,
}

impl GradingScope {
    /// Of a grade of an answer of `graded`, in the ledger of that session.
    pub(crate) fn new(graded: Slot, session: SessionId) -> Self {
        let inner = Inner { slot: graded.role(Role::Grader), session, called: Mutex::default() };
        GradingScope(Arc::new(inner))
    }

    /// Runs a grader within it.
    pub(super) fn run<F: Future>(self, grading: F) -> impl Future<Output = F::Output> {
        SCOPE.scope(self, grading)
    }

    /// The case of a request: within a grader always one of role `grader`.
    pub(crate) fn adopt(case: Option<Case>) -> Option<Case> {
        let known = case.as_ref().and_then(|case| case.scope.clone());
        let Some(scope) = known.or_else(|| SCOPE.try_with(Clone::clone).ok()) else { return case };
        let case = case.unwrap_or_else(|| Case::new(scope.0.slot.clone()));
        Some(Case { slot: case.slot.role(Role::Grader), scope: Some(scope), ..case })
    }

    /// A case for its calls.
    pub(super) fn case(self) -> Case {
        Case { scope: Some(self.clone()), ..Case::new(self.0.slot.clone()) }
    }

    /// An attempt was opened in the ledger of this session.
    pub(crate) fn opened(&self, attempt: AttemptId, run: &RunId, session: SessionId) {
        let mut called = lock(&self.0.called);
        let citable = session == self.0.session && *run == self.0.slot.run;
        if citable && called.attempts.len() < CITED {
            called.attempts.push(attempt);
        } else {
            called.uncited = true;
        }
    }

    /// An attempt went on without a row.
    pub(crate) fn unrecorded(&self) {
        lock(&self.0.called).uncited = true;
    }

    /// What the grade rests on, given what the grader says: `None` is made what was called.
    pub(super) fn rests_on(&self, said: GraderAttempts) -> GraderAttempts {
        if said != GraderAttempts::None {
            return said;
        }
        let mut called = lock(&self.0.called);
        match (called.uncited, called.attempts.is_empty()) {
            (true, _) => GraderAttempts::Unknown,
            (false, true) => GraderAttempts::None,
            (false, false) => GraderAttempts::Cited(std::mem::take(&mut called.attempts)),
        }
    }
}
