//! Grades that were asked for and not given while a run went on, which its rows do not tell.

use std::sync::{Arc, Mutex};

use attempt_ledger::{BoxError, Graded};
use attempt_ledger_core::{Escaped, GraderInfo};

use crate::{graders::told, out::complain};

/// What a grader did not grade. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Missed(Arc<Mutex<Told>>);

#[derive(Debug, Default)]
struct Told {
    count: u64,
    last: String,
}

impl Missed {
    /// Awaits a grade, and counts it when there is none or it is beyond the grader's range. Dropped
    /// before its end, as at the limit, it counts too.
    pub(crate) async fn watch(
        &self,
        info: &GraderInfo,
        grade: impl Future<Output = Result<Graded, BoxError>>,
    ) -> Result<Graded, BoxError> {
        let mut one = One { of: self, why: Some("it took longer than it may".to_owned()) };
        let graded = grade.await;
        one.why = match &graded {
            Err(error) => Some(told(&**error)),
            Ok(Graded { score, .. }) if !(info.low..=info.high).contains(score) => {
                Some(format!("{score} is beyond its range, {} to {}", info.low, info.high))
            }
            Ok(_) => None,
        };
        graded
    }

    /// Says on standard error what has no grade, and why.
    pub(crate) fn conclude(&self, name: &str) {
        let Ok(told) = self.0.lock() else { return };
        if told.count == 0 {
            return;
        }
        let answers = if told.count == 1 { "answer" } else { "answers" };
        complain(&format!(
            "warning: the grader {} gave no grade to {} {answers}; the last time: {}\n",
            Escaped(name),
            told.count,
            Escaped(&told.last)
        ));
    }
}

/// One answer that is being graded.
struct One<'a> {
    of: &'a Missed,
    /// Why it has no grade, if it ended now.
    why: Option<String>,
}

impl Drop for One<'_> {
    fn drop(&mut self) {
        let (Some(why), Ok(mut told)) = (self.why.take(), self.of.0.lock()) else { return };
        *told = Told { count: told.count.saturating_add(1), last: why };
    }
}
