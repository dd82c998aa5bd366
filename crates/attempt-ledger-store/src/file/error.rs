use std::{error::Error, fmt, io, path::Path, sync::Arc};

use attempt_ledger_core::{SessionId, Timestamp};

use super::line::VERSION;

/// Who holds a ledger's lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// Its session.
    pub session: SessionId,
    /// Its process id.
    pub pid: u32,
    /// The machine it runs on.
    pub host: String,
    /// When it opened the ledger.
    pub since: Timestamp,
}

/// Why a ledger could not be opened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// Another writer has it open.
    Held {
        /// The directory.
        dir: Arc<Path>,
        /// The writer, as the newest `session` row has it; `None` when that row is of a process of
        /// this machine that is gone, since its writer is still starting.
        holder: Option<Holder>,
    },
    /// There is no ledger, and none was to be made.
    Missing(Arc<Path>),
    /// There is no ledger, but there are files that are not a ledger's. Nothing was changed.
    Foreign {
        /// The directory.
        dir: Arc<Path>,
        /// One of the names in it.
        name: String,
    },
    /// Others than its owner may write to the directory.
    Writable {
        /// The directory.
        dir: Arc<Path>,
        /// Its mode.
        mode: u32,
    },
    /// It is on a network file system, where appending and locking are not what they are locally.
    NetworkFs {
        /// The directory.
        dir: Arc<Path>,
        /// The file system's name.
        kind: &'static str,
    },
    /// It was written in a format that is newer than this program.
    NewerFormat {
        /// The file that says so.
        file: Arc<Path>,
        /// Its version.
        found: u64,
        /// The newest that is known here.
        known: u32,
    },
    /// It has a row that a newer version of this program wrote.
    NewerRow(Damage),
    /// Stored bytes are not what was written.
    Damaged(Damage),
    /// The key of the ledger's fingerprints is not as it must be.
    Key {
        /// Where it is, or would be.
        file: Arc<Path>,
        /// What is wrong.
        fault: KeyFault,
    },
    /// The durability can not be had from files.
    Durability,
    /// [`Writer::Runtime`](super::Writer::Runtime) was asked for outside a tokio runtime.
    NoRuntime,
    /// The operating system refused something.
    Io {
        /// What was being done.
        action: &'static str,
        /// The file it was done to.
        file: Arc<Path>,
        /// What it said.
        cause: Arc<io::Error>,
    },
}

impl OpenError {
    pub(crate) fn io(action: &'static str, file: &Path, cause: io::Error) -> Self {
        OpenError::Io { action, file: file.into(), cause: Arc::new(cause) }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Held { dir, holder: Some(holder) } => write!(
                f,
                "ledger {} is held by process {} on {} since {}: wait for it to end, or write to another directory",
                dir.display(),
                holder.pid,
                holder.host,
                holder.since
            ),
            OpenError::Held { dir, holder: None } => {
                write!(f, "ledger {} is held by another process", dir.display())
            }
            OpenError::Missing(dir) => write!(f, "there is no ledger in {}", dir.display()),
            OpenError::Foreign { dir, name } => write!(
                f,
                "{} is no ledger and holds {name:?}: name a directory that is new, empty or a ledger",
                dir.display()
            ),
            OpenError::Writable { dir, mode } => write!(
                f,
                "{} may be written by others than its owner (mode {:o}): take that right away (chmod go-w)",
                dir.display(),
                mode & 0o7777
            ),
            OpenError::NetworkFs { dir, kind } => write!(
                f,
                "{} is on {kind}, where rows can be lost or mixed: use a local disk, or a database for several machines",
                dir.display()
            ),
            OpenError::NewerFormat { file, found, known } => write!(
                f,
                "{} is of format {found}; this program knows formats up to {known}: use a newer one",
                file.display()
            ),
            OpenError::NewerRow(damage) | OpenError::Damaged(damage) => damage.fmt(f),
            OpenError::Key { file, fault } => {
                let file = file.display();
                match fault {
                    KeyFault::Exposed { mode } => write!(
                        f,
                        "{file} may be used by others than its owner (mode {mode:o}): take that right away (chmod 600)"
                    ),
                    KeyFault::Malformed => write!(
                        f,
                        "{file} is no key of 64 lower-case hexadecimal digits and a newline: bring back the one that the ledger was begun with"
                    ),
                    KeyFault::Missing => write!(
                        f,
                        "{file} is missing, and the ledger's fingerprints are keyed: bring it back from a copy, or begin another ledger"
                    ),
                    KeyFault::Other => write!(
                        f,
                        "{file} is not the key that the ledger was begun with: bring that one back, or begin another ledger"
                    ),
                    KeyFault::Unexpected => write!(
                        f,
                        "{file} belongs to another ledger, since this one was begun without a key: take it away"
                    ),
                    KeyFault::Late => write!(
                        f,
                        "the ledger was begun without {file}, and what it holds stays plain: begin another ledger with keyed fingerprints"
                    ),
                }
            }
            OpenError::Durability => {
                f.write_str("files are synced or written; durability memory is a ledger in memory")
            }
            OpenError::NoRuntime => {
                f.write_str("a writer on the runtime needs one: open the ledger within tokio")
            }
            OpenError::Io { action, file, .. } => {
                write!(f, "could not {action} {}", file.display())
            }
        }
    }
}

impl Error for OpenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            OpenError::Io { cause, .. } => Some(&**cause),
            OpenError::Damaged(damage) => damage.source(),
            _ => None,
        }
    }
}

/// What is wrong with a ledger's key of fingerprints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyFault {
    /// Others than its owner may read or write it.
    Exposed {
        /// Its mode.
        mode: u32,
    },
    /// It is not 64 lower-case hexadecimal digits and a newline.
    Malformed,
    /// The ledger was begun with one, and there is none.
    Missing,
    /// The ledger was begun with another.
    Other,
    /// The ledger was begun without one.
    Unexpected,
    /// A ledger that was begun without one was to be opened as keyed.
    Late,
}

impl From<Damage> for OpenError {
    fn from(damage: Damage) -> Self {
        if damage.is_newer() { OpenError::NewerRow(damage) } else { OpenError::Damaged(damage) }
    }
}

/// Stored bytes that are not what was written, or can not be read: where
/// [`is_newer`](Self::is_newer), by this version only. Nothing is appended after them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Damage {
    /// The file.
    pub file: Arc<Path>,
    /// The offset of the first byte that is not accounted for.
    pub offset: u64,
    /// The number of the row that was due there.
    pub seq: u64,
    /// What is wrong.
    pub kind: DamageKind,
}

impl Damage {
    /// Whether the bytes are whole, and of a newer version than this program.
    pub fn is_newer(&self) -> bool {
        matches!(self.kind, DamageKind::Version(_) | DamageKind::UnknownKind(_))
    }
}

/// What is wrong with stored bytes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum DamageKind {
    /// A line has not the shape of a row.
    Shape,
    /// A row's checksum is of other bytes.
    Checksum,
    /// A row's hash does not follow from the row before: a row was changed, removed or moved.
    Chain,
    /// A row has another number than the one that is due.
    Sequence,
    /// A row is of a version this program does not know.
    Version(u64),
    /// A row is of a kind of event that this program does not know, which a later version wrote.
    UnknownKind(String),
    /// A row's event can not be read.
    Content(String),
    /// A row is followed by something else than a newline.
    AfterRow,
    /// A segment's first row is not its header, or says otherwise than what is there.
    Header,
    /// A finished segment has another length than its successor says.
    Length,
    /// Bytes that were set aside are not what they were.
    Ignored,
    /// `FORMAT` is not what this program writes, or is missing.
    Format,
    /// The file can not be read.
    Io(Arc<io::Error>),
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, offset, seq) = (self.file.display(), self.offset, self.seq);
        if self.is_newer() {
            write!(f, "{file} was written by a newer version: row {seq}, at byte {offset}, ")?;
        } else {
            write!(f, "{file} is damaged at byte {offset}, where row {seq} was due: ")?;
        }
        match &self.kind {
            DamageKind::Shape => f.write_str("the line is no row"),
            DamageKind::Checksum => f.write_str("the row's checksum is of other bytes"),
            DamageKind::Chain => f.write_str("the row does not follow from the one before"),
            DamageKind::Sequence => f.write_str("the row has another number"),
            DamageKind::Version(found) => {
                write!(
                    f,
                    "is of version {found}, and this program knows {VERSION}: use a newer one"
                )
            }
            DamageKind::UnknownKind(kind) => {
                write!(f, "is of the unknown kind {kind:?}: use a newer program")
            }
            DamageKind::Content(why) => write!(f, "the row is no event ({why})"),
            DamageKind::AfterRow => f.write_str("a row is followed by something else"),
            DamageKind::Header => f.write_str("the segment's first row is not its header"),
            DamageKind::Length => {
                f.write_str("the segment has another length than its successor says")
            }
            DamageKind::Ignored => f.write_str("bytes that were set aside have changed"),
            DamageKind::Format => f.write_str("it does not say what the directory is"),
            DamageKind::Io(_) => f.write_str("it can not be read"),
        }
    }
}

impl Error for Damage {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.kind {
            DamageKind::Io(cause) => Some(&**cause),
            _ => None,
        }
    }
}
