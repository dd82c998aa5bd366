//! The threads that calls and grades run on.

use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use crate::{failure::Failure, run::no_runtime};

/// A runtime that is let go of in time: what still runs on it is dropped, so that commands that grade
/// are killed, and a grader that blocks its thread holds nothing up.
#[derive(Debug)]
pub(crate) struct Threads(Option<Runtime>);

/// The longest that the end of what still runs is waited for.
const END: Duration = Duration::from_secs(2);

impl Threads {
    pub(crate) fn start() -> Result<Self, Failure> {
        let runtime = Builder::new_multi_thread().enable_all().build().map_err(no_runtime)?;
        Ok(Threads(Some(runtime)))
    }

    /// Runs the future to its end.
    pub(crate) fn run<T>(
        &self,
        future: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        match &self.0 {
            Some(runtime) => runtime.block_on(future),
            None => Err(Failure::usage("the threads for the calls have ended")),
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_timeout(END);
        }
    }
}
