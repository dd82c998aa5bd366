use std::fmt;

use attempt_ledger_core::{Durability, Event, Record, SessionId, Slot};

use crate::{Ack, Appended, Capacity, Place, SlotState, StoreError};

/// What a place to keep events provides. [`Ledger`](crate::Ledger) is the handle to work with.
///
/// A store is the one authority over its rows: it allocates ordinals, refuses grades, and refuses a
/// slot with another fixture. No call blocks or waits.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// This opening of the store.
    fn session(&self) -> SessionId;

    /// What an acknowledgement of `opened` and `scored` stands for.
    fn durability(&self) -> Durability;

    /// How much may be on its way at once; read once, when a [`Ledger`](crate::Ledger) is made.
    fn capacity(&self) -> Capacity {
        Capacity::default()
    }

    /// Takes an event over. Events of one caller are recorded in the order of the calls, and nothing
    /// retracts one. `place` is dropped when the row is written, or will never be.
    ///
    /// The store fills in an opening's ordinal and session. It answers when
    /// [`Event::waits_for_durability`] is met; a grade that it refuses is appended as
    /// `grade_refused` and answered with [`StoreError::Refused`].
    fn append(&self, event: Event, place: Place) -> Ack<Appended>;

    /// Answers when all that was appended before is written and synced.
    fn flush(&self, place: Place) -> Ack<()>;

    /// What is known of a slot, as far as it was acknowledged.
    fn slot(&self, slot: &Slot) -> Option<SlotState>;

    /// Everything that is written so far, in order.
    ///
    /// # Errors
    /// [`StoreError::Unreadable`] with its cause.
    fn records(&self) -> Result<Vec<Record>, StoreError>;

    /// The sessions whose open attempts may still close.
    fn live_sessions(&self) -> Vec<SessionId> {
        vec![self.session()]
    }
}
