use std::{error::Error, fmt, io, path::Path, sync::Arc, time::Duration};

use attempt_ledger_core::{AttemptId, Digest, RefusedWhy, Slot};

/// Why an event was not recorded, or a ledger could not be read.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// No place was free for another row.
    Full {
        /// How many rows of this sort may be on their way at once.
        bound: usize,
    },
    /// The store's writer has ended.
    Gone,
    /// An acknowledgement did not come within the time that its waiter gave it.
    TimedOut {
        /// That time.
        limit: Duration,
    },
    /// A write or sync failed. Nothing is acknowledged any more: a failed sync can not be retried,
    /// since the kernel forgets what it could not write. Open the ledger anew.
    Failed {
        /// What was being done.
        action: &'static str,
        /// The file it was done to.
        file: Arc<Path>,
        /// What the operating system said.
        cause: Arc<io::Error>,
    },
    /// The ledger was changed by someone else while this writer had it open. Nothing more is
    /// written, and nothing is acknowledged.
    NotAlone {
        /// The file that is not as the writer left it.
        file: Arc<Path>,
    },
    /// A thread panicked while it held the store.
    Poisoned,
    /// A grade was not accepted. That is recorded as `grade_refused`.
    Refused(RefusedWhy),
    /// A slot was opened with another fixture than before. Measure another fixture in another run,
    /// or as another case.
    OtherFixture(Box<OtherFixture>),
    /// A row would be longer than a row may be.
    RowTooLong {
        /// Its length in bytes.
        bytes: usize,
        /// The most that is allowed.
        limit: usize,
    },
    /// An attempt was to be opened with a run and without a case, or the reverse: give both, which
    /// link it to a slot, or neither.
    HalfLinked {
        /// What it had.
        has: &'static str,
        /// What it lacked.
        lacks: &'static str,
    },
    /// The attempt is closed already.
    AlreadyClosed(AttemptId),
    /// The attempt was never opened here.
    UnknownAttempt(AttemptId),
    /// The attempt's id is in this ledger already.
    DuplicateAttempt(AttemptId),
    /// A slot has no ordinal left.
    OrdinalsSpent(Box<Slot>),
    /// The event holds a number that is not finite, which would not be read back as written.
    NotFinite {
        /// Which number.
        what: &'static str,
    },
    /// What is stored can not be read.
    Unreadable(Arc<dyn Error + Send + Sync>),
}

/// The particulars of [`StoreError::OtherFixture`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OtherFixture {
    /// The slot.
    pub slot: Slot,
    /// The fixture it was opened with before.
    pub before: Digest,
    /// The fixture it was to be opened with.
    pub given: Digest,
}

impl StoreError {
    pub(crate) fn failed(action: &'static str, file: &Path, cause: io::Error) -> Self {
        StoreError::Failed { action, file: file.into(), cause: Arc::new(cause) }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Full { bound } => write!(
                f,
                "the ledger's queue is full ({bound} rows): await acknowledgements before appending more"
            ),
            StoreError::Gone => f.write_str("the ledger's writer has ended: open the ledger anew"),
            StoreError::TimedOut { limit } => {
                write!(f, "the ledger did not acknowledge a row within {limit:?}")
            }
            StoreError::Failed { action, file, .. } => write!(
                f,
                "the ledger could not {action} {}; it takes no more rows until it is opened anew",
                file.display()
            ),
            StoreError::NotAlone { file } => write!(
                f,
                "{} was replaced or changed by another process while this one had the ledger open; it takes no more rows until it is opened anew",
                file.display()
            ),
            StoreError::Poisoned => {
                f.write_str("the ledger is poisoned: a thread panicked while it held it")
            }
            StoreError::Refused(why) => {
                write!(f, "the grade was refused ({}) and that was recorded", why.as_str())
            }
            StoreError::OtherFixture(other) => write!(
                f,
                "{} of run {} was opened with fixture {} before and now with {}: give another fixture another case or run",
                other.slot,
                other.slot.run,
                other.before.short(),
                other.given.short()
            ),
            StoreError::RowTooLong { bytes, limit } => {
                write!(f, "the row has {bytes} bytes; at most {limit} are allowed")
            }
            StoreError::HalfLinked { has, lacks } => write!(
                f,
                "an attempt was to be opened with a {has} and without a {lacks}: give both, or neither"
            ),
            StoreError::AlreadyClosed(attempt) => {
                write!(f, "attempt {attempt} is closed already")
            }
            StoreError::UnknownAttempt(attempt) => {
                write!(f, "attempt {attempt} was never opened in this ledger")
            }
            StoreError::DuplicateAttempt(attempt) => {
                write!(f, "attempt {attempt} is in this ledger already")
            }
            StoreError::OrdinalsSpent(slot) => write!(f, "{slot} has no ordinal left"),
            StoreError::NotFinite { what } => write!(f, "{what} is not a finite number"),
            StoreError::Unreadable(_) => f.write_str("the ledger could not be read"),
        }
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            StoreError::Failed { cause, .. } => Some(&**cause),
            StoreError::Unreadable(cause) => Some(&**cause),
            _ => None,
        }
    }
}
