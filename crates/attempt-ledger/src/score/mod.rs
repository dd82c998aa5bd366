//! Grading: what an answer is worth, attached to ordinal one alone.

mod boxed;
mod grader;
mod graders;
mod judge;
mod layer;

pub use boxed::BoxGrader;
pub use grader::{GradeInput, Graded, Grader, GraderFn};
#[cfg(feature = "command")]
pub use graders::CommandGrader;
#[cfg(feature = "regex")]
pub use graders::RegexGrader;
#[cfg(feature = "schema")]
pub use graders::SchemaGrader;
pub use graders::{Contains, Exact, NumberGrader, normalize};
pub use judge::{LateGradeError, grade_late};
pub use layer::{ScoreLayer, ScoreLayerBuilder, ScoreService};
