use std::{fmt, future::Future, pin::Pin, sync::Arc};

use attempt_ledger_core::GraderInfo;

use super::{GradeInput, Graded, Grader};
use crate::BoxError;

/// Any grader, for where it is chosen while the program runs. Cloning is cheap.
///
/// ```
/// use attempt_ledger::{BoxGrader, Contains, Exact, Grader};
///
/// let exact = true;
/// let grader = if exact {
///     BoxGrader::new(Exact::default())
/// } else {
///     BoxGrader::new(Contains::default())
/// };
/// assert_eq!(grader.info().name, "exact");
/// ```
#[derive(Clone)]
pub struct BoxGrader(Arc<dyn AnyGrader>);

impl BoxGrader {
    /// This grader.
    pub fn new(grader: impl Grader) -> Self {
        BoxGrader(Arc::new(grader))
    }
}

impl Grader for BoxGrader {
    fn info(&self) -> GraderInfo {
        self.0.about()
    }

    async fn grade(&self, input: GradeInput) -> Result<Graded, BoxError> {
        self.0.start(input).await
    }
}

impl fmt::Debug for BoxGrader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BoxGrader").field(&self.info()).finish()
    }
}

/// [`Grader`] in a form that has a vtable.
trait AnyGrader: Send + Sync {
    fn about(&self) -> GraderInfo;
    fn start(&self, input: GradeInput) -> Grading<'_>;
}

type Grading<'a> = Pin<Box<dyn Future<Output = Result<Graded, BoxError>> + Send + 'a>>;

impl<G: Grader> AnyGrader for G {
    fn about(&self) -> GraderInfo {
        self.info()
    }

    fn start(&self, input: GradeInput) -> Grading<'_> {
        Box::pin(self.grade(input))
    }
}
