use std::{error::Error as StdError, fmt, io, time::Duration};

use attempt_ledger_core::Clock;
use attempt_ledger_store::StoreError;

use crate::{Attempt, Call, Cap, Finished};

/// Any error, as tower's own layers box it.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// Why a call, an attempt or a response body failed.
///
/// One concrete type for the whole stack, whatever the inner service's error is; that error is the
/// [`source`](StdError::source), unchanged. The attempt, where there was one, comes with it.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    attempt: Option<Attempt>,
    source: Option<BoxError>,
}

/// What kind of failure an [`Error`] is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The inner service failed, before the head or while the body was read.
    Transport,
    /// A local clock expired. The remote side may have done the work.
    Deadline {
        /// The clock.
        clock: Clock,
        /// Its limit.
        limit: Duration,
    },
    /// The total clock passed while the reader held the body without polling it.
    HeldTooLong {
        /// The limit of the total clock.
        limit: Duration,
    },
    /// The ledger could not record.
    Ledger(StoreError),
    /// The request carried no case. Nothing was sent.
    Unlinked,
    /// The case has an idempotency key, and the request's type takes no headers. Nothing was sent.
    KeyNotSent,
    /// A cap of the call was reached.
    Capped(Cap),
    /// The slot's work is finished; nothing was sent.
    Finished(Finished),
    /// The inner service failed to become ready; no attempt was made.
    NotReady,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, attempt: Option<Attempt>, source: Option<BoxError>) -> Self {
        Error(Box::new(Inner { kind, attempt, source }))
    }

    pub(crate) fn deadline(clock: Clock, limit: Duration, attempt: Option<Attempt>) -> Self {
        // Code that looks for a timeout finds one by type: the source is an i/o error of that kind.
        let source = io::Error::new(io::ErrorKind::TimedOut, Expired);
        Error::new(ErrorKind::Deadline { clock, limit }, attempt, Some(source.into()))
    }

    pub(crate) fn ledger(error: StoreError, attempt: Option<Attempt>) -> Self {
        Error::new(ErrorKind::Ledger(error.clone()), attempt, Some(error.into()))
    }

    /// Takes an inner service's error: ours as it is, any other as the source of one.
    pub(crate) fn from_inner(error: BoxError, kind: ErrorKind) -> Self {
        match error.downcast::<Error>() {
            Ok(ours) => *ours,
            Err(other) => Error::new(kind, None, Some(other)),
        }
    }

    /// What kind of failure this is.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// What caused it, out of its wrapping: the inner service's error is what it was.
    pub fn into_source(self) -> Option<BoxError> {
        self.0.source
    }

    /// The attempt that failed, where there was one.
    pub fn attempt(&self) -> Option<&Attempt> {
        self.0.attempt.as_ref()
    }

    /// The call that failed, where one was above the attempt.
    pub fn call(&self) -> Option<&Call> {
        self.0.attempt.as_ref().and_then(Attempt::call)
    }

    /// Whether a local clock expired.
    pub fn is_deadline(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Deadline { .. } | ErrorKind::HeldTooLong { .. })
    }

    /// Whether the ledger could not record. Never retried.
    pub fn is_ledger(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Ledger(_))
    }

    /// Whether a cap of the call was reached.
    pub fn is_capped(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Capped(_))
    }

    /// Whether the slot was finished already, so that nothing was sent.
    pub fn is_finished(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Finished(_))
    }
}

#[derive(Debug)]
struct Expired;

impl fmt::Display for Expired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("timed out")
    }
}

impl StdError for Expired {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.kind {
            ErrorKind::Transport => f.write_str("the request failed in transport")?,
            ErrorKind::Deadline { clock, limit } => {
                write!(f, "the {clock} clock expired after {limit:?}; the remote side may have done the work")?;
            }
            ErrorKind::HeldTooLong { limit } => {
                write!(f, "the reader held the body past the total clock of {limit:?}")?;
            }
            ErrorKind::Ledger(_) => f.write_str("the ledger could not record the attempt")?,
            ErrorKind::Unlinked => f.write_str(
                "the request carries no case: put a Case into the request's extensions and CallLayer \
                 above the retry layer; where a policy rebuilds requests, or a layer between spawns \
                 them, let CallLayer name its calls in a header; or allow unlinked attempts",
            )?,
            ErrorKind::KeyNotSent => f.write_str(
                "the case has an idempotency key, and this type of request takes no header: nothing \
                 was sent",
            )?,
            ErrorKind::Capped(cap) => write!(f, "{cap}")?,
            ErrorKind::Finished(finished) => write!(f, "{finished}")?,
            ErrorKind::NotReady => f.write_str("the inner service failed to become ready")?,
        }
        let Some(a) = &self.0.attempt else { return Ok(()) };
        match a.slot() {
            Some(slot) => match a.ordinal() {
                Some(ordinal) => write!(f, " (case {slot}, attempt {ordinal})"),
                None => write!(f, " (case {slot}, not opened)"),
            },
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("attempt", &self.0.attempt)
            .field("source", &self.0.source)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|e| e as &(dyn StdError + 'static))
    }
}
