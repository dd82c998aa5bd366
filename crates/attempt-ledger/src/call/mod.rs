//! The logical call above a retry layer: its case, its caps, its summary.

mod future;
mod handle;
#[cfg(all(test, shuttle))]
mod interleavings;
mod layer;

pub use future::CallFuture;
pub(crate) use handle::{Admission, Shared};
pub use handle::{AttemptSummary, Call, Cap};
pub use layer::{CallLayer, CallService, Finished};
