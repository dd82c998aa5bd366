//! The mutex of this crate: the standard library's, or, where the tests of interleavings ask for it
//! (`--cfg shuttle`, see CONTRIBUTING.md), one under their scheduler.

use std::sync::PoisonError;

#[cfg(all(test, shuttle))]
pub(crate) use shuttle::sync::{Mutex, MutexGuard};
#[cfg(not(all(test, shuttle)))]
pub(crate) use std::sync::{Mutex, MutexGuard};

/// Locks even after a panic elsewhere: what these mutexes guard is replaced whole, never left half
/// changed, and a notebook must not go blind because a grader panicked.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
