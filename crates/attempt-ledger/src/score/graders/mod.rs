//! The graders that come with the crate.

#[cfg(feature = "command")]
mod command;
mod model;
mod number;
#[cfg(feature = "regex")]
mod pattern;
#[cfg(feature = "schema")]
mod schema;
mod template;
mod text;

use attempt_ledger_core::GraderInfo;

#[cfg(feature = "command")]
pub use command::CommandGrader;
pub use model::ModelGrader;
pub use number::NumberGrader;
#[cfg(feature = "regex")]
pub use pattern::RegexGrader;
#[cfg(feature = "schema")]
pub use schema::SchemaGrader;
pub use template::ChatTemplate;
pub use text::{Contains, Exact, normalize};

use super::{GradeInput, Graded};
use crate::BoxError;

fn info(name: &str, version: &str) -> GraderInfo {
    GraderInfo { name: name.into(), version: version.into(), low: 0.0, high: 1.0 }
}

/// 1 for what is right, 0 for what is not.
fn right(is: bool) -> Graded {
    f64::from(u8::from(is)).into()
}

/// There is nothing to grade by.
fn nothing_expected(input: &GradeInput, what: &str) -> BoxError {
    format!("case {} has no {what}", input.slot.case).into()
}
