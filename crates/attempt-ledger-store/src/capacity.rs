use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How much a ledger lets be on its way at once. This is what bounds every queue of every store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Attempts that are open at once; an opening beyond them waits. Each holds the places of its
    /// three rows (opened, closed, grade). Default 16,384; at least 1.
    pub open: usize,
    /// Rows of all other kinds on their way at once; one beyond them is refused with
    /// [`StoreError::Full`](crate::StoreError::Full). Default 4,096; at least 1.
    pub other: usize,
}

impl Default for Capacity {
    fn default() -> Self {
        Capacity { open: 16_384, other: 4_096 }
    }
}

/// The right to have a row in a store's queue. A store drops it when the row is written or refused.
#[derive(Debug)]
pub struct Place(#[allow(dead_code, reason = "held for its drop")] Option<OwnedSemaphorePermit>);

/// Rows that one open attempt reserves: opened, closed, grade.
const ROWS: u32 = 3;

/// The places of a ledger.
#[derive(Debug)]
pub(crate) struct Places {
    open: Arc<Semaphore>,
    other: Arc<Semaphore>,
    capacity: Capacity,
}

impl Places {
    pub(crate) fn new(capacity: Capacity) -> Self {
        let open = capacity.open.clamp(1, Semaphore::MAX_PERMITS / ROWS as usize);
        let other = capacity.other.clamp(1, Semaphore::MAX_PERMITS);
        Places {
            open: Arc::new(Semaphore::new(open * ROWS as usize)),
            other: Arc::new(Semaphore::new(other)),
            capacity: Capacity { open, other },
        }
    }

    pub(crate) fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// The places of one attempt, if they are free now.
    pub(crate) fn try_attempt(&self) -> Option<Reserved> {
        Arc::clone(&self.open).try_acquire_many_owned(ROWS).ok().map(Reserved)
    }

    /// The places of one attempt, when they are free. `None` never comes: nothing closes the places.
    pub(crate) fn attempt(&self) -> impl Future<Output = Option<Reserved>> + Send + Sync + 'static {
        let open = Arc::clone(&self.open);
        async move { open.acquire_many_owned(ROWS).await.ok().map(Reserved) }
    }

    /// A place for a row that belongs to no open attempt, if one is free now.
    pub(crate) fn try_other(&self) -> Option<Place> {
        Arc::clone(&self.other).try_acquire_owned().ok().map(|permit| Place(Some(permit)))
    }

    /// A place for a row that belongs to no open attempt, when one is free.
    pub(crate) async fn other(&self) -> Option<Place> {
        Arc::clone(&self.other).acquire_owned().await.ok().map(|permit| Place(Some(permit)))
    }
}

/// The places of one attempt that are not yet spent on a row.
#[derive(Debug)]
pub(crate) struct Reserved(OwnedSemaphorePermit);

impl Reserved {
    /// The place of the `opened` row. It stays with this value, which outlives that row's stay in
    /// the queue: freed earlier, the bound would count rows and not open attempts.
    #[allow(clippy::unused_self, reason = "proof that the place is held")]
    pub(crate) fn opened(&self) -> Place {
        Place(None)
    }

    /// The place of a later row of the attempt; `None` when both are spent.
    pub(crate) fn later(&mut self) -> Option<Place> {
        if self.0.num_permits() <= 1 { None } else { self.0.split(1).map(|p| Place(Some(p))) }
    }
}
