use std::{path::PathBuf, sync::Arc};

use attempt_ledger_core::{Durability, Event, Record, SessionId, Slot};
use tokio::{
    runtime::Handle,
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
};

use super::{
    FileReader, Io, OpenError, Writer,
    writer::{Appender, Item, Shared},
};
use crate::{
    Ack, Appended, Capacity, Place, SlotState, Store, StoreError,
    sync::{
        Ordering, take_many,
        thread::{self, JoinHandle},
    },
};

/// Rows taken from the queue at once.
const BATCH_ROWS: usize = 2_048;

/// The handles' side of a ledger in files. Its queue has no bound of its own: each item in it holds
/// a [`Place`], or stands for one that its opening holds, and of those there are only so many.
#[derive(Debug)]
pub(crate) struct FileStore {
    io: Arc<dyn Io>,
    dir: PathBuf,
    session: SessionId,
    durability: Durability,
    capacity: Capacity,
    shared: Arc<Shared>,
    queue: Option<UnboundedSender<Item>>,
    thread: Option<JoinHandle<()>>,
}

impl FileStore {
    pub(crate) fn start(
        appender: Appender,
        session: SessionId,
        durability: Durability,
        capacity: Capacity,
        writer: Writer,
    ) -> Result<Self, OpenError> {
        let (sender, receiver) = unbounded_channel();
        let mut store = FileStore {
            io: Arc::clone(&appender.io),
            dir: appender.dir.clone(),
            session,
            durability,
            capacity,
            shared: Arc::clone(&appender.shared),
            queue: Some(sender),
            thread: None,
        };
        match writer {
            Writer::Thread => {
                let builder = thread::Builder::new().name("attempt-ledger".to_owned());
                let thread = builder.spawn(move || on_thread(appender, receiver));
                let started = |cause| OpenError::io("start the writer of", &store.dir, cause);
                store.thread = Some(thread.map_err(started)?);
            }
            Writer::Runtime => {
                let runtime = Handle::try_current().map_err(|_| OpenError::NoRuntime)?;
                drop(runtime.spawn(on_runtime(appender, receiver)));
            }
        }
        Ok(store)
    }

    fn send(&self, item: Item) -> Result<(), StoreError> {
        if let Some(failed) = self.shared.failed.get() {
            return Err(failed.clone());
        }
        let queue = self.queue.as_ref().ok_or(StoreError::Gone)?;
        queue.send(item).map_err(|_| StoreError::Gone)
    }
}

fn on_thread(mut appender: Appender, mut queue: UnboundedReceiver<Item>) {
    let mut items = Vec::with_capacity(64);
    // While one batch is written and synced, the next gathers: no timer delays a lone row.
    while take_many(&mut queue, &mut items, BATCH_ROWS) > 0 {
        appender.process(&mut items);
    }
    appender.finish();
}

async fn on_runtime(mut appender: Appender, mut queue: UnboundedReceiver<Item>) {
    let mut items = Vec::with_capacity(64);
    while queue.recv_many(&mut items, BATCH_ROWS).await > 0 {
        let batch = tokio::task::spawn_blocking(move || {
            appender.process(&mut items);
            (appender, items)
        });
        match batch.await {
            Ok(back) => (appender, items) = back,
            // The runtime is shutting down: what is queued is answered as gone.
            Err(_) => return,
        }
    }
    let _ = tokio::task::spawn_blocking(move || appender.finish()).await;
}

impl Store for FileStore {
    fn session(&self) -> SessionId {
        self.session
    }

    fn durability(&self) -> Durability {
        self.durability
    }

    fn capacity(&self) -> Capacity {
        self.capacity
    }

    fn append(&self, event: Event, place: Place) -> Ack<Appended> {
        let (answer, ack) = Ack::pending();
        match self.send(Item::Row { event, place, answer }) {
            Ok(()) => ack,
            Err(error) => Ack::ready(Err(error)),
        }
    }

    fn flush(&self, place: Place) -> Ack<()> {
        let (answer, ack) = Ack::pending();
        match self.send(Item::Flush { place, answer }) {
            Ok(()) => ack,
            Err(error) => Ack::ready(Err(error)),
        }
    }

    fn slot(&self, slot: &Slot) -> Option<SlotState> {
        self.shared.index.lock().ok()?.slot(slot)
    }

    fn records(&self) -> Result<Vec<Record>, StoreError> {
        let unreadable = |error: OpenError| StoreError::Unreadable(Arc::new(error));
        let written = self.shared.written.load(Ordering::Acquire);
        let reader = FileReader::open_with(Arc::clone(&self.io), &self.dir).map_err(unreadable)?;
        let mut records = Vec::new();
        for record in reader {
            let record = record.map_err(|damage| unreadable(damage.into()))?;
            if record.seq >= written {
                break;
            }
            records.push(record);
        }
        Ok(records)
    }
}

impl Drop for FileStore {
    /// Waits for the writer to write and sync what is queued: a program that ends after its last
    /// handle is dropped has lost nothing.
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != thread::current().id()
        {
            let _ = thread.join();
        }
    }
}
