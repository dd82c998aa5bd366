//! Grading: what an answer is worth, attached to ordinal one alone.

mod boxed;
mod grader;
mod graders;
mod job;
mod judge;
mod layer;
mod scope;

pub use boxed::BoxGrader;
pub use grader::{GradeInput, Graded, Grader, GraderFn};
#[cfg(feature = "command")]
pub use graders::CommandGrader;
#[cfg(feature = "regex")]
pub use graders::RegexGrader;
#[cfg(feature = "schema")]
pub use graders::SchemaGrader;
pub use graders::{ChatTemplate, Contains, Exact, ModelGrader, NumberGrader, normalize};
pub use judge::{LateGradeError, grade_late};
pub use layer::{SameName, ScoreLayer, ScoreLayerBuilder, ScoreService};
pub(crate) use scope::GradingScope;
