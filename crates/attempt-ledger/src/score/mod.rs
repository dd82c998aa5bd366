//! Grading: what an answer is worth, attached to ordinal one alone.

mod grader;
mod graders;
mod layer;

pub use grader::{GradeInput, Graded, Grader, GraderFn};
pub use graders::{Contains, Exact, normalize};
pub use layer::{ScoreLayer, ScoreLayerBuilder, ScoreService};
