//! Errors that are reported within an answer: flat in an event, nested under `error`, or some
//! fields here and some there.

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value, value::RawValue};

use crate::{
    error::{self, ReportedError},
    hints, json,
};

/// Objects within objects that are looked into.
const MAX_NESTED: u8 = 3;

/// The error of a response object, or where it says nothing the one that `beside` states.
pub(super) fn of_response(error: &RawValue, beside: &str) -> ReportedError {
    let error = json::value(error);
    let Value::Object(error) = error else { return flat_or_nested(beside) };
    read(error)
}

/// The error of an event, each field taken from the inner object where that has it.
pub(super) fn flat_or_nested(event: &str) -> ReportedError {
    let Some(Value::Object(mut object)) = json::tree::<Value>(event.as_bytes()) else {
        return ReportedError::default();
    };
    // What the event or the response is called is not what the error is.
    let is_own = |name: &str| name == "error" || name.starts_with("response");
    object.retain(|name, value| match name.as_str() {
        "type" => !value.as_str().is_some_and(is_own),
        // Of a response; an error's is a number.
        "status" => value.is_number(),
        _ => true,
    });
    read(object)
}

fn read(mut object: Map<String, Value>) -> ReportedError {
    for _ in 0..MAX_NESTED {
        let Some(Value::Object(inner)) = object.remove("error") else { break };
        object.extend(inner.into_iter().filter(|(_, value)| !value.is_null()));
    }
    let wait = object.get("headers").and_then(Value::as_object).and_then(wait);
    let mut reported = error::from_value(&Value::Object(object));
    reported.retry_after_ms = wait.or(reported.retry_after_ms);
    reported
}

/// The wait that headers within an error ask for. What is left of a limit, and when it is filled
/// up again, is no such thing.
fn wait(headers: &Map<String, Value>) -> Option<u64> {
    let mut found = HeaderMap::new();
    for name in ["retry-after-ms", "retry-after", "date"] {
        let given = headers.iter().find(|(given, _)| given.eq_ignore_ascii_case(name));
        let value = match given {
            Some((_, Value::String(value))) => HeaderValue::from_str(value).ok(),
            Some((_, Value::Number(value))) => HeaderValue::from_str(&value.to_string()).ok(),
            _ => None,
        };
        if let Some(value) = value {
            found.insert(HeaderName::from_static(name), value);
        }
    }
    hints::retry_after_ms(&found)
}
