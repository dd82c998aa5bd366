//! The logical call above a retry layer: its case, its caps, its summary.

mod future;
mod handle;
mod layer;

pub use future::CallFuture;
pub(crate) use handle::Admission;
pub use handle::{AttemptSummary, Call, Cap};
pub use layer::{CallLayer, CallService, Finished};
