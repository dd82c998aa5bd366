use serde::de::IgnoredAny;
use serde_json::Value;

use super::{READ_BYTES, RuleError, invalid};

/// The text of an answer as JSON.
pub(crate) enum Json {
    /// Its value.
    Value(Value),
    /// It is none.
    Not,
    /// It cannot be said, or the value cannot be held: too long, too deep, or a number no float can hold.
    Unread,
}

impl Json {
    pub(crate) fn read(text: &str) -> Json {
        if text.len() > READ_BYTES {
            return Json::Unread;
        }
        match serde_json::from_str(text) {
            Ok(value) => Json::Value(value),
            Err(_) if Json::is(text) == Some(true) => Json::Unread,
            Err(_) => Json::Not,
        }
    }

    /// Whether `text` is JSON; `None` when it is too long to be read.
    pub(crate) fn is(text: &str) -> Option<bool> {
        (text.len() <= READ_BYTES).then(|| serde_json::from_str::<IgnoredAny>(text).is_ok())
    }
}

/// A JSON pointer (RFC 6901).
#[derive(Clone, Debug)]
pub(crate) struct Pointer(pub(crate) String);

impl Pointer {
    pub(crate) fn new(pointer: String) -> Result<Self, RuleError> {
        let refuse =
            |why: &str| Err(invalid(format!("{pointer:?} is no JSON pointer: {why}"), None));
        if !pointer.is_empty() && !pointer.starts_with('/') {
            return refuse("it begins with no `/`");
        }
        if pointer.split('~').skip(1).any(|after| !after.starts_with(['0', '1'])) {
            return refuse("a `~` is followed by neither 0 nor 1");
        }
        Ok(Pointer(pointer))
    }
}
