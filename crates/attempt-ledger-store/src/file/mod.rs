//! A ledger in a directory: JSON Lines, each row chained to the one before.
//!
//! ```text
//! ledger/
//!   FORMAT               format name, version, ledger id, moment of creation; written once
//!   lock                 held by the one writer for as long as it has the ledger open
//!   000000000000.jsonl   a segment, named by the number of its first row; appended to only
//!   fingerprint.key      only where fingerprints are keyed: 64 hexadecimal digits, its owner's alone
//!   failed-…             a writer stopped there: a write or sync failed
//! ```
//!
//! A row is one line, `{"v":1,"seq":…,"time":"…",…event…,"h":"…","c":"…"}`, where `h` is SHA-256 over
//! `attempt-ledger/1\n`, the 32 raw bytes of the previous row's `h` and the line's bytes before
//! `,"h"`; and `c` is CRC-32C over the line's bytes before `,"c"`. The row before the first is the
//! `FORMAT` file: its SHA-256 stands for its `h`. A row has at most 64 KiB.
//!
//! What is kept: a row acknowledged as synced, and all before it, survives a power cut, if drive and
//! file system honour a flush; any other acknowledged row survives the process. Any change to stored
//! bytes is detected. Not detected: that rows at the end were removed, or that all were written anew
//! by someone who knows how. After a failed write or sync nothing more is acknowledged, and nothing
//! is tried again: the kernel drops what it could not write, and says so once.
//!
//! Bytes that a killed writer left half written are set aside, never cut off: the next writer begins
//! a new segment whose first row states how many they are and their SHA-256.
//!
//! ```
//! use attempt_ledger_core::{CaseId, Closed, RunId, Slot, decide_dropped_before_head};
//! use attempt_ledger_store::{OpenRequest, file::{FileOptions, FileReader}};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let room = tempfile::tempdir()?; let dir = room.path().join("ledger");
//! let ledger = FileOptions::new(&dir).open()?;
//! let slot = Slot::new(RunId::new("run-1")?, CaseId::new("case-7")?);
//! let (mut right, _) = ledger.open(OpenRequest::new(&slot)).await?; // synced to disk
//! right.close(Closed::bare(right.attempt(), decide_dropped_before_head(true))).await?;
//! drop((right, ledger)); // the writer ends, and all is synced
//!
//! // A new process goes on where the last one was.
//! let ledger = FileOptions::new(&dir).open()?;
//! let (_right, ordinal) = ledger.open(OpenRequest::new(&slot)).await?;
//! assert_eq!(ordinal.map(|o| o.get()), Some(2));
//!
//! let mut reader = FileReader::open(&dir)?;
//! assert_eq!(reader.by_ref().collect::<Result<Vec<_>, _>>()?.len(), 6);
//! assert_eq!(reader.live_session()?, Some(ledger.session()));
//! # Ok(()) }
//! ```

mod error;
pub(crate) mod io;
mod key;
pub(crate) mod layout;
mod line;
mod options;
pub(crate) mod reader;
mod store;
mod tail;
mod writer;

pub use error::{Damage, DamageKind, Holder, KeyFault, OpenError};
pub use io::{Io, IoFile, IoRead, RealIo};
pub use options::{FileOptions, Writer};
pub use reader::{FileReader, Ignored, IgnoredKind};
pub use tail::{Tail, TailKind};
