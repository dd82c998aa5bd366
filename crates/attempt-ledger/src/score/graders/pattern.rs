use std::collections::HashMap;

use attempt_ledger_core::{CaseId, GraderInfo};

use super::{info, nothing_expected, right};
use crate::{
    BoxError, GradeInput, Graded, Grader, RuleError,
    rule::{Pattern, PerCase, version_of},
};

/// 1 when a regular expression is found in the answer text, else 0: in the syntax of the `regex`
/// crate, anchored with `^` and `$` for the whole text.
///
/// The time it takes is linear in the text. Text over 1 MiB gets no grade.
#[derive(Clone, Debug)]
pub struct RegexGrader {
    patterns: PerCase<Pattern>,
    version: String,
}

impl RegexGrader {
    /// With a pattern for all cases.
    ///
    /// # Errors
    /// When it is no regular expression, or takes more than 1 MiB compiled.
    pub fn new(pattern: &str) -> Result<Self, RuleError> {
        let patterns = PerCase::Every(Pattern::new(pattern)?);
        Ok(RegexGrader { patterns, version: version_of(pattern) })
    }

    /// With the expected pattern of each case; a case without one gets no grade.
    ///
    /// # Errors
    /// As [`new`](Self::new), with the case.
    pub fn by_case(patterns: HashMap<CaseId, String>) -> Result<Self, RuleError> {
        let patterns = PerCase::each(patterns, |pattern| Pattern::new(&pattern))?;
        Ok(RegexGrader { patterns, version: "1".into() })
    }
}

impl Grader for RegexGrader {
    fn info(&self) -> GraderInfo {
        info("regex", &self.version)
    }

    async fn grade(&self, input: GradeInput) -> Result<Graded, BoxError> {
        let pattern = self.patterns.get(&input.slot.case);
        let pattern = pattern.ok_or_else(|| nothing_expected(&input, "expected pattern"))?;
        let found = pattern.is_in(&input.content.text);
        Ok(right(found.ok_or("the answer is too long to be searched by a pattern")?))
    }
}
