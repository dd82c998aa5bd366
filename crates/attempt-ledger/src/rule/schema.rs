use std::{fmt, sync::Arc};

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

use super::{Json, RuleError, invalid};

/// Bytes that one compiled pattern of a schema takes, at most.
const PATTERN_SIZE: usize = 1 << 20;

/// A compiled JSON Schema. References to other documents are errors: nothing is fetched.
#[derive(Clone)]
pub(crate) struct JsonSchema(Arc<Validator>);

impl JsonSchema {
    pub(crate) fn new(schema: &Value) -> Result<Self, RuleError> {
        // Of the engine that never backtracks: answers are written by somebody else.
        let patterns =
            PatternOptions::regex().size_limit(PATTERN_SIZE).dfa_size_limit(PATTERN_SIZE);
        let built = jsonschema::options().with_pattern_options(patterns).build(schema);
        built.map(|validator| JsonSchema(Arc::new(validator))).map_err(|error| {
            invalid("this is no JSON Schema that can be used", Some(error.to_string().into()))
        })
    }

    /// Whether `text` is JSON of this schema; `None` when it cannot be read.
    pub(crate) fn is_met(&self, text: &str) -> Option<bool> {
        match Json::read(text) {
            Json::Value(value) => Some(self.0.is_valid(&value)),
            Json::Not => Some(false),
            Json::Unread => None,
        }
    }
}

impl fmt::Debug for JsonSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JsonSchema").finish_non_exhaustive()
    }
}
