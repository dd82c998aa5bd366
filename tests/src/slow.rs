use std::{
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use attempt_ledger_core::{Durability, Event, Record, SessionId, Slot};
use attempt_ledger_store::{
    Ack, Appended, Capacity, Ledger, Memory, Place, SlotState, Store, StoreError,
};

/// When a [`SlowStore`] fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailAt {
    /// Never.
    Never,
    /// At every event of this kind from the n-th on, counted from 1.
    Kind(&'static str, usize),
    /// At the n-th event of this kind alone.
    Once(&'static str, usize),
    /// Never answers events of this kind.
    Silent(&'static str),
}

/// A store in memory whose acknowledgements take their time, and that fails on demand.
#[derive(Debug)]
pub struct SlowStore {
    inner: Arc<Memory>,
    delay: Duration,
    fail: FailAt,
    seen: AtomicUsize,
}

/// A ledger whose acknowledgements come after `delay`.
pub fn slow_ledger(delay: Duration, fail: FailAt) -> Ledger {
    let inner = Arc::new(Memory::new(Capacity::default()));
    Ledger::new(Arc::new(SlowStore { inner, delay, fail, seen: AtomicUsize::new(0) }))
}

impl SlowStore {
    fn fails(&self, kind: &str) -> bool {
        let count =
            |wanted: &str| (wanted == kind).then(|| self.seen.fetch_add(1, Ordering::SeqCst) + 1);
        match self.fail {
            FailAt::Never | FailAt::Silent(_) => false,
            FailAt::Kind(wanted, from) => count(wanted).is_some_and(|n| n >= from),
            FailAt::Once(wanted, at) => count(wanted) == Some(at),
        }
    }
}

impl Store for SlowStore {
    fn session(&self) -> SessionId {
        self.inner.session()
    }

    fn durability(&self) -> Durability {
        self.inner.durability()
    }

    fn append(&self, event: Event, place: Place) -> Ack<Appended> {
        if self.fails(event.kind()) {
            let cause = Arc::new(io::Error::from(io::ErrorKind::StorageFull));
            let file: Arc<Path> = Path::new("/ledger/000000000000.jsonl").into();
            return Ack::ready(Err(StoreError::Failed { action: "write", file, cause }));
        }
        let (answer, ack) = Ack::pending();
        let silent = self.fail == FailAt::Silent(event.kind());
        let (inner, delay) = (self.inner.clone(), self.delay);
        // Recorded at once, acknowledged later: what a crash in between would leave.
        let recorded = inner.append(event, place);
        tokio::spawn(async move {
            if silent {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(delay).await;
            answer.give(recorded.await);
        });
        ack
    }

    fn flush(&self, place: Place) -> Ack<()> {
        self.inner.flush(place)
    }

    fn slot(&self, slot: &Slot) -> Option<SlotState> {
        self.inner.slot(slot)
    }

    fn records(&self) -> Result<Vec<Record>, StoreError> {
        self.inner.records()
    }
}
