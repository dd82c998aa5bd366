//! Answers, kept by choice.

use std::{
    error::Error,
    fmt, fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use attempt_ledger_core::{Content, Digest, Label, ToolCall, answer_sha256};
use serde::{Deserialize, Serialize};

use crate::file::{
    Io, RealIo,
    io::{read_full, write_all},
    layout::{is_temporary, temporary_name},
    reader::is_running,
};

/// The longest file, in bytes. An answer is kept up to 16 MiB by default, and JSON's escapes make it
/// longer.
const MAX_FILE: u64 = 64 << 20;

/// A folder of answers, for grading them later: a file an answer, named by its `answer_sha256`.
/// Cloning is cheap, and all clones are the same archive.
///
/// A file is the canonical JSON of `{"finish_reason", "refusal", "text", "tool_calls":
/// [{"arguments", "name"}]}`, its owner's alone (mode 0600), and synced before it gets its name. What
/// is read is checked against its name, so that an answer that was changed is never taken for the one
/// that was given. Equal answers are one file; nothing is ever removed or overwritten.
///
/// Answers can hold what nobody else should read, and nothing here encrypts them.
#[derive(Clone, Debug)]
pub struct Archive(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    dir: PathBuf,
    io: Arc<dyn Io>,
    failures: Mutex<Option<ArchiveFailures>>,
    /// Bytes of answers that wait to be written.
    waiting: AtomicUsize,
}

/// Bytes of answers that may wait to be written.
const MAX_WAITING: usize = 256 << 20;

impl Archive {
    /// The archive in the folder `dir`, which is made if need be, for its owner alone.
    ///
    /// # Errors
    /// [`ArchiveError`] when it cannot be made, is no folder, or may be written to by others.
    pub fn open(dir: impl Into<PathBuf>) -> Result<Self, ArchiveError> {
        Self::open_with(Arc::new(RealIo), dir)
    }

    /// As [`open`](Self::open), on another file system, for tests.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(io: Arc<dyn Io>, dir: impl Into<PathBuf>) -> Result<Self, ArchiveError> {
        let dir = dir.into();
        io.create_dir(&dir).map_err(|cause| ArchiveError::io("create", &dir, cause))?;
        Self::at(io, dir)
    }

    /// The archive in the folder `dir`, or `None` where there is no such folder.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn existing(dir: impl Into<PathBuf>) -> Result<Option<Self>, ArchiveError> {
        let dir = dir.into();
        match fs::symlink_metadata(&dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            _ => Self::at(Arc::new(RealIo), dir).map(Some),
        }
    }

    fn at(io: Arc<dyn Io>, dir: PathBuf) -> Result<Self, ArchiveError> {
        let look = fs::symlink_metadata(&dir);
        let look = look.map_err(|cause| ArchiveError::io("look at", &dir, cause))?;
        if !look.is_dir() {
            return Err(ArchiveError::NoFolder(dir.into()));
        }
        if look.mode() & 0o022 != 0 {
            return Err(ArchiveError::Writable { dir: dir.into(), mode: look.mode() });
        }
        // What a writer left that was killed meanwhile. A name that cannot be removed does no harm.
        let names = io.list(&dir).map_err(|cause| ArchiveError::io("list", &dir, cause))?;
        for name in names.iter().filter(|name| is_temporary(name)) {
            let pid = name.split('-').nth(1).and_then(|pid| pid.parse().ok());
            if pid.is_some_and(|pid| !is_running(pid)) {
                let _ = io.remove(&dir.join(name));
            }
        }
        let (failures, waiting) = (Mutex::new(None), AtomicUsize::new(0));
        Ok(Archive(Arc::new(Inner { dir, io, failures, waiting })))
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.0.dir
    }

    /// Keeps an answer under its digest. `false` where it was kept before. Blocks until it is on disk;
    /// after a power cut its name may be gone all the same, and the answer then reads as never kept.
    ///
    /// # Errors
    /// [`ArchiveError`], which [`failures`](Self::failures) counts as well.
    pub fn put(&self, answer: &Digest, content: &Content) -> Result<bool, ArchiveError> {
        self.try_put(answer, content).inspect_err(|error| self.failed(error.clone()))
    }

    /// Takes an answer over that is to be written by and by; `None`, and counted as a failure, while
    /// 256 MiB of such answers wait already, as on a disk that hangs.
    pub fn pending(&self, answer: Digest, content: Content) -> Option<PendingAnswer> {
        let bytes = size_of(&content);
        let before = self.0.waiting.fetch_add(bytes, Ordering::Relaxed);
        let pending = PendingAnswer { archive: self.clone(), answer, content, bytes, told: false };
        // One that is alone may be larger.
        let fits = before == 0 || before.saturating_add(bytes) <= MAX_WAITING;
        fits.then_some(pending)
    }

    /// Counts an answer that never came to be written.
    pub fn missed(&self, answer: Digest) {
        self.failed(ArchiveError::NotWritten { answer });
    }

    fn failed(&self, error: ArchiveError) {
        let Ok(mut failures) = self.0.failures.lock() else { return };
        let before = failures.as_ref().map_or(0, |failures| failures.count);
        *failures = Some(ArchiveFailures { count: before.saturating_add(1), last: error });
    }

    /// What could not be kept, since this archive was opened; `None` when all was.
    pub fn failures(&self) -> Option<ArchiveFailures> {
        self.0.failures.lock().ok()?.clone()
    }

    fn try_put(&self, answer: &Digest, content: &Content) -> Result<bool, ArchiveError> {
        let path = self.path(answer);
        if answer_sha256(content) != *answer {
            return Err(ArchiveError::Other { file: path.into() });
        }
        let bytes = Stored::of(content).bytes();
        let bytes = bytes.map_err(|cause| ArchiveError::io("write", &path, cause.into()))?;
        if bytes.len() as u64 > MAX_FILE {
            return Err(ArchiveError::TooLong { file: path.into(), limit: MAX_FILE });
        }
        match fs::symlink_metadata(&path) {
            Ok(look) if look.is_file() && look.len() == bytes.len() as u64 => return Ok(false),
            Ok(_) => return Err(ArchiveError::Other { file: path.into() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(cause) => return Err(ArchiveError::io("look at", &path, cause)),
        }
        let temporary = self.0.dir.join(temporary_name());
        let named = self.write(&temporary, &path, &bytes);
        if named.is_err() {
            let _ = self.0.io.remove(&temporary);
        }
        match named {
            // Another call had the same answer meanwhile.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(cause) => Err(ArchiveError::io("write", &path, cause)),
            Ok(()) => Ok(true),
        }
    }

    fn write(&self, temporary: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.0.io.create_new(temporary)?;
        write_all(&mut *file, bytes)?;
        file.sync_data()?;
        self.0.io.rename(temporary, path)
    }

    /// The answer of this digest; `None` where it was not kept. Blocks meanwhile.
    ///
    /// # Errors
    /// [`ArchiveError::Other`] where the file holds anything but that answer, and what else kept it
    /// from being read.
    pub fn get(&self, answer: &Digest) -> Result<Option<Content>, ArchiveError> {
        let path = self.path(answer);
        let failed = |cause| ArchiveError::io("read", &path, cause);
        let file = match self.0.io.open_read(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(cause) => return Err(failed(cause)),
        };
        let size = file.size().map_err(failed)?;
        let room = usize::try_from(size).ok().filter(|_| size <= MAX_FILE);
        let room = room.ok_or_else(|| ArchiveError::TooLong {
            file: path.as_path().into(),
            limit: MAX_FILE,
        })?;
        let mut bytes = vec![0; room];
        let len = read_full(&*file, &mut bytes, 0).map_err(failed)?;
        bytes.truncate(len);
        let content = serde_json::from_slice::<Stored>(&bytes).ok().map(Content::from);
        match content.filter(|content| answer_sha256(content) == *answer) {
            Some(content) => Ok(Some(content)),
            None => Err(ArchiveError::Other { file: path.into() }),
        }
    }

    fn path(&self, answer: &Digest) -> PathBuf {
        self.0.dir.join(answer.hex())
    }
}

/// An answer on its way to its [`Archive`]. Dropped before it was written, it counts as a failure.
#[derive(Debug)]
#[must_use = "an answer that is dropped is not kept"]
pub struct PendingAnswer {
    archive: Archive,
    answer: Digest,
    content: Content,
    bytes: usize,
    told: bool,
}

impl PendingAnswer {
    /// Writes it, as [`Archive::put`] does.
    ///
    /// # Errors
    /// As [`Archive::put`].
    pub fn put(mut self) -> Result<bool, ArchiveError> {
        self.told = true;
        self.archive.put(&self.answer, &self.content)
    }

    /// Lets go of it: it is not to be kept, and that is no failure.
    pub fn let_go(mut self) {
        self.told = true;
    }
}

impl Drop for PendingAnswer {
    fn drop(&mut self) {
        self.archive.0.waiting.fetch_sub(self.bytes, Ordering::Relaxed);
        if !self.told {
            self.archive.missed(self.answer);
        }
    }
}

fn size_of(content: &Content) -> usize {
    let calls = content.tool_calls.iter().map(|call| call.name.len() + call.arguments.len());
    let refusal = content.refusal.as_ref().map_or(0, String::len);
    content.text.len() + refusal + calls.sum::<usize>()
}

/// How a file spells an answer: the fields in the order of canonical JSON.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    finish_reason: Option<Label>,
    refusal: Option<String>,
    text: String,
    tool_calls: Vec<StoredCall>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredCall {
    arguments: String,
    name: String,
}

impl Stored {
    fn of(content: &Content) -> Self {
        let Content { text, tool_calls, refusal, finish_reason } = content.clone();
        let call = |ToolCall { name, arguments }| StoredCall { arguments, name };
        let tool_calls = tool_calls.into_iter().map(call).collect();
        Stored { finish_reason, refusal, text, tool_calls }
    }

    fn bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }
}

impl From<Stored> for Content {
    fn from(stored: Stored) -> Self {
        let Stored { finish_reason, refusal, text, tool_calls } = stored;
        let call = |StoredCall { arguments, name }| ToolCall { name, arguments };
        let tool_calls = tool_calls.into_iter().map(call).collect();
        Content { text, tool_calls, refusal, finish_reason }
    }
}

/// What could not be kept.
#[derive(Clone, Debug)]
pub struct ArchiveFailures {
    /// How many answers.
    pub count: u64,
    /// Why the last of them was not.
    pub last: ArchiveError,
}

/// Why an answer could not be kept or read.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ArchiveError {
    /// There is something else than a folder; a symbolic link to one is none.
    NoFolder(Arc<Path>),
    /// Others than its owner may write to the folder.
    Writable {
        /// The folder.
        dir: Arc<Path>,
        /// Its mode.
        mode: u32,
    },
    /// A file holds something else than the answer whose digest is its name.
    Other {
        /// The file.
        file: Arc<Path>,
    },
    /// The answer is longer than a file may be.
    TooLong {
        /// The file.
        file: Arc<Path>,
        /// The most that is allowed, in bytes.
        limit: u64,
    },
    /// The answer never came to be written: too many waited already, or the program was ending.
    NotWritten {
        /// Which answer.
        answer: Digest,
    },
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

impl ArchiveError {
    fn io(action: &'static str, file: &Path, cause: io::Error) -> Self {
        ArchiveError::Io { action, file: file.into(), cause: Arc::new(cause) }
    }
}

impl fmt::Display for ArchiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ArchiveError::NoFolder(dir) => write!(
                f,
                "{} is no folder that answers can be kept in: take it away, a symbolic link too",
                dir.display()
            ),
            ArchiveError::Writable { dir, mode } => write!(
                f,
                "{} may be written by others than its owner (mode {:o}): take that right away (chmod go-w)",
                dir.display(),
                mode & 0o7777
            ),
            ArchiveError::Other { file } => write!(
                f,
                "{} is not the answer whose digest is its name: it was changed or damaged, and counts as none",
                file.display()
            ),
            ArchiveError::TooLong { file, limit } => {
                write!(f, "{} would have more than {} MiB", file.display(), limit >> 20)
            }
            ArchiveError::NotWritten { answer } => write!(
                f,
                "answer {} was not written: too many waited already, or the program was ending",
                answer.short()
            ),
            ArchiveError::Io { action, file, .. } => {
                write!(f, "could not {action} {}", file.display())
            }
        }
    }
}

impl Error for ArchiveError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            ArchiveError::Io { cause, .. } => Some(&**cause),
            _ => None,
        }
    }
}
