//! The attempt beneath the retry: opened before it is sent, watched, decided, closed.

mod body;
mod future;
mod gate;
mod keep;
mod layer;
mod live;
mod prepare;
mod secrets;
mod settle;

pub use body::ResponseBody;
pub use future::ResponseFuture;
pub(crate) use gate::{DEFAULT_GATES, WHOLE_BOUND};
pub use layer::{LedgerLayer, LedgerService};
pub(crate) use live::{GradeHook, GradeJob, Hook};
pub(crate) use prepare::{fingerprint_of, host_of};
