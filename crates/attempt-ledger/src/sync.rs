use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks even after a panic elsewhere: what these mutexes guard is replaced whole, never left half
/// changed, and a notebook must not go blind because a grader panicked.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
