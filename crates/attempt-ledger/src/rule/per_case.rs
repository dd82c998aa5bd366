use std::collections::{BTreeMap, HashMap};

use attempt_ledger_core::{CaseId, Digest};

use super::RuleError;

/// A value for every case, or one for each.
#[derive(Clone, Debug)]
pub(crate) enum PerCase<T> {
    Every(T),
    Each(HashMap<CaseId, T>),
}

impl<T> PerCase<T> {
    /// The value for `case`; `None` where each case has its own, and this one has none.
    pub(crate) fn get(&self, case: &CaseId) -> Option<&T> {
        match self {
            PerCase::Every(value) => Some(value),
            PerCase::Each(values) => values.get(case),
        }
    }

    /// Of each case's value, what `make` makes of it; of several that fail, the first by name is told.
    pub(crate) fn each<U>(
        values: HashMap<CaseId, U>,
        make: impl Fn(U) -> Result<T, RuleError>,
    ) -> Result<Self, RuleError> {
        let sorted: BTreeMap<CaseId, U> = values.into_iter().collect();
        let made = sorted.into_iter().map(|(case, value)| match make(value) {
            Ok(value) => Ok((case, value)),
            Err(error) => Err(error.of_case(&case)),
        });
        made.collect::<Result<_, _>>().map(PerCase::Each)
    }
}

/// The version of a check or grader that compares with this: with something else it is another.
pub(crate) fn version_of(compared: &str) -> String {
    let digest = Digest::of(compared.as_bytes()).hex();
    format!("1-{}", digest.get(..8).unwrap_or_default())
}

/// As [`version_of`], of each case's value; the order shapes nothing.
pub(crate) fn version_of_each<V: AsRef<str>>(values: &HashMap<CaseId, V>) -> String {
    let sorted: BTreeMap<&str, &str> =
        values.iter().map(|(case, value)| (case.as_str(), value.as_ref())).collect();
    version_of(&serde_json::json!(sorted).to_string())
}
