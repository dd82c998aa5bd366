//! What is kept: an append-only sequence of events, in memory or in files.
//!
//! A [`Ledger`] is a cheap handle on a [`Store`]. [`Ledger::open`] allocates an attempt's ordinal and
//! reserves the places of everything the attempt will still write, so that its close, sent from a
//! `Drop` if need be, never fails to be queued. Rows are appended, never altered or removed.
//!
//! ```
//! use attempt_ledger_core::{CaseId, Closed, RunId, Slot, decide_dropped_before_head};
//! use attempt_ledger_store::{Ledger, OpenRequest};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let ledger = Ledger::memory();
//! let slot = Slot::new(RunId::new("run-1")?, CaseId::new("case-7")?);
//!
//! let (mut right, ordinal) = ledger.open(OpenRequest::new(&slot)).await?;
//! assert_eq!(ordinal.map(|o| o.get()), Some(1));
//!
//! // ... the request is sent only now, and however it ends, that is recorded.
//! let ended = decide_dropped_before_head(true);
//! right.close(Closed::bare(right.attempt(), ended)).await?;
//!
//! let (_right, ordinal) = ledger.open(OpenRequest::new(&slot)).await?;
//! assert_eq!(ordinal.map(|o| o.get()), Some(2), "ordinals go on, whoever asks");
//! assert_eq!(ledger.records()?.len(), 4, "a session, and three events");
//! # Ok(()) }
//! ```
//!
//! For a ledger on disk see [`file`](mod@file).

mod ack;
#[cfg(unix)]
mod archive;
mod capacity;
mod clock;
mod error;
#[cfg(unix)]
pub mod file;
mod index;
#[cfg(all(test, shuttle))]
mod interleavings;
mod key;
mod ledger;
mod memory;
mod opening;
mod store;
mod sync;
#[cfg(unix)]
pub mod testing;

pub use ack::{Ack, Answer, Appended};
#[cfg(unix)]
pub use archive::{Archive, ArchiveError, ArchiveFailures, PendingAnswer};
pub use capacity::{Capacity, Place};
pub use clock::now;
pub use error::StoreError;
pub use index::SlotState;
pub use key::FingerprintKey;
pub use ledger::{Ledger, OpenRequest};
pub use memory::Memory;
pub use opening::{CloseRight, Opening};
pub use store::Store;

/// This machine's name, as the operating system has it.
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
