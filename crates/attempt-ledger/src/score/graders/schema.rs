use std::collections::HashMap;

use attempt_ledger_core::{CaseId, GraderInfo};
use serde_json::Value;

use super::{info, nothing_expected, right};
use crate::{
    BoxError, GradeInput, Graded, Grader, RuleError,
    rule::{JsonSchema, PerCase, version_of},
};

/// 1 when the answer text is JSON of a JSON Schema, else 0; see
/// [`MatchesSchema`](crate::MatchesSchema) for which. What that does not evaluate gets no grade.
#[derive(Clone, Debug)]
pub struct SchemaGrader {
    schemas: PerCase<JsonSchema>,
    version: String,
}

impl SchemaGrader {
    /// With a schema for all cases.
    ///
    /// # Errors
    /// When it is no JSON Schema, or refers to another document.
    pub fn new(schema: &Value) -> Result<Self, RuleError> {
        let schemas = PerCase::Every(JsonSchema::new(schema)?);
        Ok(SchemaGrader { schemas, version: version_of(&schema.to_string()) })
    }

    /// With the schema of each case; a case without one gets no grade.
    ///
    /// # Errors
    /// As [`new`](Self::new), with the case.
    pub fn by_case(schemas: HashMap<CaseId, Value>) -> Result<Self, RuleError> {
        let schemas = PerCase::each(schemas, |schema| JsonSchema::new(&schema))?;
        Ok(SchemaGrader { schemas, version: "1".into() })
    }
}

impl Grader for SchemaGrader {
    fn info(&self) -> GraderInfo {
        info("schema", &self.version)
    }

    async fn grade(&self, input: GradeInput) -> Result<Graded, BoxError> {
        let schema = self.schemas.get(&input.slot.case);
        let schema = schema.ok_or_else(|| nothing_expected(&input, "schema"))?;
        let met = schema.is_met(&input.content.text);
        Ok(right(met.ok_or("the answer's JSON is too large to be looked at")?))
    }
}
