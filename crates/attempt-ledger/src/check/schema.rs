use std::collections::HashMap;

use attempt_ledger_core::{CaseId, CheckInfo};
use serde_json::Value;

use super::{Check, CheckInput, Checked, builtin::info};
use crate::rule::{JsonSchema, PerCase, RuleError, version_of, version_of_each};

/// Passes an answer whose text is JSON of a JSON Schema: draft 2020-12 unless its `$schema` says
/// another.
///
/// References to other documents are errors: nothing is fetched. Patterns are those of the `regex`
/// crate, without look-around. `format` is an annotation where the draft has it so. Not evaluated
/// are text over 1 MiB, a number that no 64-bit float can hold, and values nested deeper than 127
/// levels.
///
/// ```
/// use attempt_ledger::MatchesSchema;
/// use serde_json::json;
///
/// assert!(MatchesSchema::new(&json!({"type": "object", "required": ["name"]})).is_ok());
/// assert!(MatchesSchema::new(&json!({"type": "no such type"})).is_err());
/// ```
#[derive(Clone, Debug)]
pub struct MatchesSchema {
    schemas: PerCase<JsonSchema>,
    version: String,
}

impl MatchesSchema {
    /// With a schema for all cases.
    ///
    /// # Errors
    /// When it is no JSON Schema, or refers to another document.
    pub fn new(schema: &Value) -> Result<Self, RuleError> {
        let schemas = PerCase::Every(JsonSchema::new(schema)?);
        Ok(MatchesSchema { schemas, version: version_of(&schema.to_string()) })
    }

    /// With a schema for each case; a case without one is not evaluated.
    ///
    /// # Errors
    /// As [`new`](Self::new), with the case.
    pub fn by_case(schemas: HashMap<CaseId, Value>) -> Result<Self, RuleError> {
        let texts: HashMap<_, _> =
            schemas.iter().map(|(case, schema)| (case.clone(), schema.to_string())).collect();
        let version = version_of_each(&texts);
        let schemas = PerCase::each(schemas, |schema| JsonSchema::new(&schema))?;
        Ok(MatchesSchema { schemas, version })
    }
}

impl Check for MatchesSchema {
    fn info(&self) -> CheckInfo {
        info("matches-schema", &self.version)
    }

    fn check(&self, input: &CheckInput<'_>) -> Checked {
        let schema = self.schemas.get(&input.slot.case);
        schema.and_then(|schema| schema.is_met(&input.content.text)).into()
    }
}
