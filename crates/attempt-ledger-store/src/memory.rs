use attempt_ledger_core::{Durability, Event, Record, Session, SessionId, Slot};

use crate::{
    Ack, Appended, Capacity, Place, SlotState, Store, StoreError,
    index::{Index, refusal},
    ledger::random_u128,
    now,
    sync::{Mutex, MutexGuard},
};

/// Keeps events in a vector: every acknowledgement is ready at once.
#[derive(Debug)]
pub struct Memory {
    session: SessionId,
    capacity: Capacity,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    records: Vec<Record>,
    index: Index,
}

impl Memory {
    /// An empty one, with these bounds.
    pub fn new(capacity: Capacity) -> Self {
        let session = SessionId::from_u128(random_u128());
        let mut kept = Kept::default();
        kept.push(Event::Session(Session {
            session,
            pid: std::process::id(),
            host: crate::host(),
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        }));
        Memory { session, capacity, kept: Mutex::new(kept) }
    }

    fn kept(&self) -> Result<MutexGuard<'_, Kept>, StoreError> {
        self.kept.lock().map_err(|_| StoreError::Poisoned)
    }
}

impl Kept {
    fn append(&mut self, mut event: Event) -> Result<Appended, StoreError> {
        if let Err(error) = self.index.check(&mut event) {
            if let (
                StoreError::Refused(why),
                Event::Scored(grade) | Event::Diagnostic(grade) | Event::AlsoGraded(grade),
            ) = (&error, &event)
            {
                self.push(refusal(grade, *why));
            }
            return Err(error);
        }
        let ordinal = if let Event::Opened(opened) = &event { opened.ordinal } else { None };
        Ok(Appended { seq: self.push(event), ordinal })
    }

    fn push(&mut self, event: Event) -> u64 {
        let change = self.index.apply(&event);
        self.index.publish(&change);
        let seq = self.records.len() as u64;
        self.records.push(Record { seq, time: now(), event });
        seq
    }
}

impl Store for Memory {
    fn session(&self) -> SessionId {
        self.session
    }

    fn durability(&self) -> Durability {
        Durability::Memory
    }

    fn capacity(&self) -> Capacity {
        self.capacity
    }

    fn append(&self, event: Event, _place: Place) -> Ack<Appended> {
        Ack::ready(self.kept().and_then(|mut kept| kept.append(event)))
    }

    fn flush(&self, _place: Place) -> Ack<()> {
        Ack::ready(self.kept().map(|kept| Appended {
            seq: (kept.records.len() as u64).saturating_sub(1),
            ordinal: None,
        }))
    }

    fn slot(&self, slot: &Slot) -> Option<SlotState> {
        self.kept().ok()?.index.slot(slot)
    }

    fn records(&self) -> Result<Vec<Record>, StoreError> {
        Ok(self.kept()?.records.clone())
    }
}
