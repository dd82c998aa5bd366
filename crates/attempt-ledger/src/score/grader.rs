use std::{fmt, future::Future};

use attempt_ledger_core::{
    AttemptId, Content, GraderAttempts, GraderInfo, Ordinal, Role, Slot, Verdict,
};

use super::GradingScope;
use crate::{BoxError, Case};

/// Grades an answer: a finite number within the grader's range.
///
/// Runs in a task of its own with a time limit. A failure, a panic or the limit leaves the attempt
/// without a grade, which is not the lowest grade. Its error is told nowhere else: a grader that is to
/// be watched counts or logs its own.
pub trait Grader: Send + Sync + 'static {
    /// Its name, its version, and the range of its grades.
    fn info(&self) -> GraderInfo;

    /// The grade of one answer.
    ///
    /// # Errors
    /// When there is none to give: the attempt stays without a grade.
    fn grade(&self, input: GradeInput) -> impl Future<Output = Result<Graded, BoxError>> + Send;
}

/// What a grader is given, by value.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GradeInput {
    /// What the model said.
    pub content: Content,
    /// The attempt's verdict: one of content.
    pub verdict: Verdict,
    /// The slot.
    pub slot: Slot,
    /// The attempt.
    pub attempt: AttemptId,
    /// Its number within the slot.
    pub ordinal: Option<Ordinal>,
    scope: Option<GradingScope>,
}

impl GradeInput {
    /// What the attempt of this ordinal in this slot said.
    pub fn new(
        content: Content,
        verdict: Verdict,
        slot: Slot,
        attempt: AttemptId,
        ordinal: Option<Ordinal>,
    ) -> Self {
        GradeInput { content, verdict, slot, attempt, ordinal, scope: None }
    }

    /// The case of the grader's own model calls: the answer's, for the role `grader`.
    ///
    /// A request that is sent from the grader's task through a
    /// [`CallLayer`](crate::CallLayer) or [`LedgerLayer`](crate::LedgerLayer) belongs to it by itself. Put
    /// it into the extensions of one that is sent from another task, so that the grade cites its
    /// attempts all the same.
    pub fn case(&self) -> Case {
        match &self.scope {
            Some(scope) => scope.clone().case(),
            None => Case::new(self.slot.clone().role(Role::Grader)),
        }
    }

    pub(super) fn within(self, scope: GradingScope) -> Self {
        GradeInput { scope: Some(scope), ..self }
    }
}

/// A grade, with the grader's own model calls that it rests on.
#[derive(Clone, Debug, PartialEq)]
pub struct Graded {
    /// The grade.
    pub score: f64,
    /// What it rests on. With [`GraderAttempts::None`] the grade cites the attempts that the grader
    /// made through the layers of this crate over the same ledger, or says `unknown` where one went
    /// by another ledger or run.
    pub attempts: GraderAttempts,
}

impl From<f64> for Graded {
    /// A grade that rests on no model call.
    fn from(score: f64) -> Self {
        Graded { score, attempts: GraderAttempts::None }
    }
}

/// A grader made of a closure.
///
/// ```
/// use attempt_ledger::{GradeInput, GraderFn};
///
/// // Graded 0 to 1: how much of a hundred characters the answer fills.
/// let grader = GraderFn::new("length", "1", |input: GradeInput| async move {
///     Ok((input.content.text.chars().count() as f64 / 100.0).min(1.0))
/// });
/// # let _ = grader;
/// ```
pub struct GraderFn<F> {
    info: GraderInfo,
    grade: F,
}

impl<F> GraderFn<F> {
    /// A grader of this name and version, with grades from 0 to 1.
    pub fn new<Fut, G>(name: impl Into<String>, version: impl Into<String>, grade: F) -> Self
    where
        F: Fn(GradeInput) -> Fut,
        Fut: Future<Output = Result<G, BoxError>>,
        G: Into<Graded>,
    {
        let info = GraderInfo { name: name.into(), version: version.into(), low: 0.0, high: 1.0 };
        GraderFn { info, grade }
    }

    /// The same with another range of grades.
    #[must_use]
    pub fn range(mut self, low: f64, high: f64) -> Self {
        (self.info.low, self.info.high) = (low, high);
        self
    }
}

impl<F, Fut, G> Grader for GraderFn<F>
where
    F: Fn(GradeInput) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<G, BoxError>> + Send,
    G: Into<Graded>,
{
    fn info(&self) -> GraderInfo {
        self.info.clone()
    }

    async fn grade(&self, input: GradeInput) -> Result<Graded, BoxError> {
        (self.grade)(input).await.map(Into::into)
    }
}

impl<F> fmt::Debug for GraderFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GraderFn").field("info", &self.info).finish_non_exhaustive()
    }
}
