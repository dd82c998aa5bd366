use std::collections::HashMap;

use attempt_ledger_core::{CaseId, CheckInfo};

use super::{Check, CheckInput, Checked};
use crate::rule::{Json, PerCase, Pointer, RuleError, version_of, version_of_each};

pub(super) fn info(name: &str, version: &str) -> CheckInfo {
    CheckInfo { name: name.into(), version: version.into() }
}

/// Passes an answer with text that is more than white space.
///
/// An answer without any content is `empty` already; this fails those that are `ok` for a tool call
/// alone.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct NonEmpty;

impl NonEmpty {
    /// The check.
    pub fn new() -> Self {
        NonEmpty
    }
}

impl Check for NonEmpty {
    fn info(&self) -> CheckInfo {
        info("non-empty", "1")
    }

    fn check(&self, input: &CheckInput<'_>) -> Checked {
        (!input.content.text.trim().is_empty()).into()
    }
}

/// Passes an answer whose text is one JSON value, but for white space at its ends; a fence of
/// Markdown around it is none of it.
///
/// Text over 1 MiB is not evaluated.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct IsJson;

impl IsJson {
    /// The check.
    pub fn new() -> Self {
        IsJson
    }
}

impl Check for IsJson {
    fn info(&self) -> CheckInfo {
        info("is-json", "1")
    }

    fn check(&self, input: &CheckInput<'_>) -> Checked {
        Json::is(&input.content.text).into()
    }
}

/// Passes an answer whose text is JSON with a value, `null` among them, at a JSON pointer.
///
/// Not evaluated are text over 1 MiB, a number that no 64-bit float can hold, and values nested deeper
/// than 127 levels.
///
/// ```
/// use attempt_ledger::HasField;
///
/// assert!(HasField::new("/user/name").is_ok());
/// assert!(HasField::new("user").is_err(), "a pointer begins with a slash");
/// ```
#[derive(Clone, Debug)]
pub struct HasField {
    pointers: PerCase<Pointer>,
    version: String,
}

impl HasField {
    /// With a pointer (RFC 6901) for all cases, such as `/user/name` or `/items/0`.
    ///
    /// # Errors
    /// When it is no JSON pointer.
    pub fn new(pointer: impl Into<String>) -> Result<Self, RuleError> {
        let pointer = pointer.into();
        let version = version_of(&pointer);
        Ok(HasField { pointers: PerCase::Every(Pointer::new(pointer)?), version })
    }

    /// With a pointer for each case; a case without one is not evaluated.
    ///
    /// # Errors
    /// When one is no JSON pointer.
    pub fn by_case(pointers: HashMap<CaseId, String>) -> Result<Self, RuleError> {
        let version = version_of_each(&pointers);
        Ok(HasField { pointers: PerCase::each(pointers, Pointer::new)?, version })
    }
}

impl Check for HasField {
    fn info(&self) -> CheckInfo {
        info("has-field", &self.version)
    }

    fn check(&self, input: &CheckInput<'_>) -> Checked {
        let Some(Pointer(pointer)) = self.pointers.get(&input.slot.case) else {
            return Checked::NotEvaluated;
        };
        match Json::read(&input.content.text) {
            Json::Value(value) => value.pointer(pointer).is_some().into(),
            Json::Not => Checked::Failed,
            Json::Unread => Checked::NotEvaluated,
        }
    }
}

/// Passes an answer whose text contains another, letter by letter.
#[derive(Clone, Debug)]
pub struct ContainsText {
    texts: PerCase<String>,
    version: String,
}

impl ContainsText {
    /// With a text for all cases.
    pub fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        let version = version_of(&text);
        ContainsText { texts: PerCase::Every(text), version }
    }

    /// With a text for each case; a case without one is not evaluated.
    pub fn by_case(texts: HashMap<CaseId, String>) -> Self {
        let version = version_of_each(&texts);
        ContainsText { texts: PerCase::Each(texts), version }
    }
}

impl Check for ContainsText {
    fn info(&self) -> CheckInfo {
        info("contains-text", &self.version)
    }

    fn check(&self, input: &CheckInput<'_>) -> Checked {
        let wanted = self.texts.get(&input.slot.case);
        wanted.map(|text| input.content.text.contains(text)).into()
    }
}
