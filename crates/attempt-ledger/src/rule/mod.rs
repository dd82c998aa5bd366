//! What checks and graders share: what they compare with, for all cases or for each, and how the
//! text of an answer is read.

mod error;
mod json;
#[cfg(feature = "regex")]
mod pattern;
mod per_case;
#[cfg(feature = "schema")]
mod schema;

pub use error::RuleError;
pub(crate) use error::invalid;
pub(crate) use json::{Json, Pointer};
#[cfg(feature = "regex")]
pub(crate) use pattern::Pattern;
pub(crate) use per_case::{PerCase, version_of, version_of_each};
#[cfg(feature = "schema")]
pub(crate) use schema::JsonSchema;

/// Bytes of an answer's text that are parsed or searched by a pattern, at most: this is done while
/// the response is polled, and nobody else runs on its thread meanwhile.
pub(crate) const READ_BYTES: usize = 1 << 20;
