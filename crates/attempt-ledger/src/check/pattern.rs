use std::collections::HashMap;

use attempt_ledger_core::{CaseId, CheckInfo};

use super::{Check, CheckInput, Checked, builtin::info};
use crate::rule::{Pattern, PerCase, RuleError, version_of, version_of_each};

/// Passes an answer in whose text a regular expression is found, in the syntax of the `regex` crate:
/// anchor it with `^` and `$` for the whole text.
///
/// The time it takes is linear in the text. Text over 1 MiB is not evaluated.
///
/// ```
/// use attempt_ledger::MatchesRegex;
///
/// assert!(MatchesRegex::new(r"^\d{4}-\d{2}-\d{2}$").is_ok());
/// assert!(MatchesRegex::new("(").is_err());
/// ```
#[derive(Clone, Debug)]
pub struct MatchesRegex {
    patterns: PerCase<Pattern>,
    version: String,
}

impl MatchesRegex {
    /// With a pattern for all cases.
    ///
    /// # Errors
    /// When it is no regular expression, or takes more than 1 MiB compiled.
    pub fn new(pattern: &str) -> Result<Self, RuleError> {
        let patterns = PerCase::Every(Pattern::new(pattern)?);
        Ok(MatchesRegex { patterns, version: version_of(pattern) })
    }

    /// With a pattern for each case; a case without one is not evaluated.
    ///
    /// # Errors
    /// As [`new`](Self::new), with the case.
    pub fn by_case(patterns: HashMap<CaseId, String>) -> Result<Self, RuleError> {
        let version = version_of_each(&patterns);
        let patterns = PerCase::each(patterns, |pattern| Pattern::new(&pattern))?;
        Ok(MatchesRegex { patterns, version })
    }
}

impl Check for MatchesRegex {
    fn info(&self) -> CheckInfo {
        info("matches-regex", &self.version)
    }

    fn check(&self, input: &CheckInput<'_>) -> Checked {
        let pattern = self.patterns.get(&input.slot.case);
        pattern.and_then(|pattern| pattern.is_in(&input.content.text)).into()
    }
}
