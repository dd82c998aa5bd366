use std::collections::HashMap;

use attempt_ledger_core::{CaseId, GraderInfo};

use super::{info, nothing_expected, right};
use crate::{BoxError, GradeInput, Graded, Grader};

/// Text as the built-in graders compare it: without white space at its ends.
pub fn normalize(text: &str) -> &str {
    text.trim()
}

fn expected<'a>(all: &'a HashMap<CaseId, String>, input: &GradeInput) -> Result<&'a str, BoxError> {
    match all.get(&input.slot.case) {
        Some(expected) => Ok(normalize(expected)),
        None => Err(nothing_expected(input, "expected answer")),
    }
}

/// 1 when the answer text is what was expected, but for white space at its ends; else 0.
///
/// A case of which nothing is expected stays without a grade; the default expects nothing of any.
#[derive(Clone, Debug, Default)]
pub struct Exact(HashMap<CaseId, String>);

impl Exact {
    /// With the expected answer of each case.
    pub fn new(expected: HashMap<CaseId, String>) -> Self {
        Exact(expected)
    }
}

impl Grader for Exact {
    fn info(&self) -> GraderInfo {
        info("exact", "1")
    }

    async fn grade(&self, input: GradeInput) -> Result<Graded, BoxError> {
        let same = normalize(&input.content.text) == expected(&self.0, &input)?;
        Ok(right(same))
    }
}

/// 1 when the answer text contains what was expected, but for white space at its ends; else 0.
///
/// A case of which nothing is expected stays without a grade; the default expects nothing of any.
#[derive(Clone, Debug, Default)]
pub struct Contains(HashMap<CaseId, String>);

impl Contains {
    /// With the expected text of each case.
    pub fn new(expected: HashMap<CaseId, String>) -> Self {
        Contains(expected)
    }
}

impl Grader for Contains {
    fn info(&self) -> GraderInfo {
        info("contains", "1")
    }

    async fn grade(&self, input: GradeInput) -> Result<Graded, BoxError> {
        let found = input.content.text.contains(expected(&self.0, &input)?);
        Ok(right(found))
    }
}
