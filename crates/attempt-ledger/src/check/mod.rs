//! Checks: what turns an `ok` answer into one that is `off_target`.

mod builtin;
mod checked;
#[cfg(feature = "regex")]
mod pattern;
mod run;
#[cfg(feature = "schema")]
mod schema;

pub use builtin::{ContainsText, HasField, IsJson, NonEmpty};
pub use checked::{Check, CheckFn, CheckInput, Checked};
#[cfg(feature = "regex")]
pub use pattern::MatchesRegex;
pub(crate) use run::Checks;
#[cfg(feature = "schema")]
pub use schema::MatchesSchema;
