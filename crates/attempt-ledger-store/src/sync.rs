//! The locks, counters and threads that the tests of interleavings put under a scheduler of their
//! own (`--cfg shuttle`, see CONTRIBUTING.md); else the standard library's.

#[cfg(not(all(test, shuttle)))]
mod imp {
    pub(crate) use std::{
        sync::{
            Mutex, MutexGuard,
            atomic::{AtomicU64, Ordering},
        },
        thread,
    };

    use tokio::sync::mpsc::UnboundedReceiver;

    /// Waits on this thread for what is queued; 0 when nothing will come.
    pub(crate) fn take_many<T>(
        queue: &mut UnboundedReceiver<T>,
        items: &mut Vec<T>,
        limit: usize,
    ) -> usize {
        queue.blocking_recv_many(items, limit)
    }
}

#[cfg(all(test, shuttle))]
mod imp {
    pub(crate) use shuttle::{
        sync::{
            Mutex, MutexGuard,
            atomic::{AtomicU64, Ordering},
        },
        thread,
    };
    use tokio::sync::mpsc::UnboundedReceiver;

    pub(crate) fn take_many<T>(
        queue: &mut UnboundedReceiver<T>,
        items: &mut Vec<T>,
        limit: usize,
    ) -> usize {
        shuttle::future::block_on(queue.recv_many(items, limit))
    }
}

pub(crate) use imp::*;
