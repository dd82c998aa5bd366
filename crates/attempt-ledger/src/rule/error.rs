use std::{error::Error as StdError, fmt};

use attempt_ledger_core::{CaseId, Escaped};

use crate::BoxError;

/// A pattern, a schema, a pointer or a number of a check or grader that cannot be used.
#[derive(Debug)]
pub struct RuleError {
    what: String,
    case: Option<CaseId>,
    source: Option<BoxError>,
}

impl RuleError {
    /// The case it is of, where each case has its own.
    pub fn case(&self) -> Option<&CaseId> {
        self.case.as_ref()
    }

    pub(crate) fn of_case(self, case: &CaseId) -> Self {
        RuleError { case: Some(case.clone()), ..self }
    }
}

/// `what` is wrong, and perhaps why.
pub(crate) fn invalid(what: impl Into<String>, source: Option<BoxError>) -> RuleError {
    RuleError { what: what.into(), case: None, source }
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        match &self.case {
            Some(case) => write!(f, ", for case {}", Escaped(case.as_str())),
            None => Ok(()),
        }
    }
}

impl StdError for RuleError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
