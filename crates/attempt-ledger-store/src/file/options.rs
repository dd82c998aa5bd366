use std::{
    fs::{self, File},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
    thread,
    time::Duration,
};

use attempt_ledger_core::{Digest, Durability, Event, Session, SessionId};

use super::{
    FileReader, Io, OpenError, RealIo, TailKind,
    io::try_lock,
    key,
    layout::{Format, LOCK, Listing, segment_name},
    line,
    reader::{holder, no_format},
    store::FileStore,
    tail::each_sound_row,
    writer::{Appender, Batch, OpenSegment, Shared, create_segment, first_header},
};
use crate::{Capacity, FingerprintKey, Ledger, index::Index, ledger::random_u128, now};

/// Where the file store's writer runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Writer {
    /// On a thread of its own: no pool starves it, and it outlives the runtime. Dropping the last
    /// handle waits for it.
    #[default]
    Thread,
    /// On the tokio runtime in which the ledger is opened, each batch as a blocking task. tokio's
    /// paused clock stands still meanwhile, which tests need; flush before the runtime ends.
    Runtime,
}

/// How to open a ledger in files for writing.
#[derive(Clone, Debug)]
pub struct FileOptions {
    dir: PathBuf,
    durability: Durability,
    writer: Writer,
    create: bool,
    tool_version: String,
    allow_network_fs: bool,
    capacity: Capacity,
    segment_bytes: u64,
    keyed: bool,
    io: Arc<dyn Io>,
}

impl FileOptions {
    /// The ledger in `dir`, which is made if need be; synced; written by a thread.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        FileOptions {
            dir: dir.into(),
            durability: Durability::Synced,
            writer: Writer::Thread,
            create: true,
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            allow_network_fs: false,
            capacity: Capacity::default(),
            segment_bytes: 64 << 20,
            keyed: false,
            io: Arc::new(RealIo),
        }
    }

    /// What acknowledgements of openings and scores stand for: [`Durability::Synced`] (default) or
    /// [`Durability::Written`], which a power cut can undo.
    #[must_use]
    pub fn durability(self, durability: Durability) -> Self {
        FileOptions { durability, ..self }
    }

    /// Where the writer runs. Default [`Writer::Thread`].
    #[must_use]
    pub fn writer(self, writer: Writer) -> Self {
        FileOptions { writer, ..self }
    }

    /// Whether a ledger is made where there is none. Default true.
    #[must_use]
    pub fn create(self, create: bool) -> Self {
        FileOptions { create, ..self }
    }

    /// The version of the tool that opens it, for the `session` row. Default: this crate's.
    #[must_use]
    pub fn tool_version(self, version: impl Into<String>) -> Self {
        FileOptions { tool_version: version.into(), ..self }
    }

    /// Whether a network file system is accepted, where locks and appends may not hold. Default
    /// false.
    #[must_use]
    pub fn allow_network_fs(self, allow: bool) -> Self {
        FileOptions { allow_network_fs: allow, ..self }
    }

    /// How much may be on its way at once.
    #[must_use]
    pub fn capacity(self, capacity: Capacity) -> Self {
        FileOptions { capacity, ..self }
    }

    /// The size in bytes beyond which a segment is finished and the next one begun. Default 64 MiB;
    /// a segment is longer by up to one batch.
    #[must_use]
    pub fn segment_bytes(self, bytes: u64) -> Self {
        FileOptions { segment_bytes: bytes, ..self }
    }

    /// Begins the ledger with keyed fingerprints: see [`Ledger::new_keyed`]. Its key is made, and kept
    /// in the directory, in `fingerprint.key`. Default false; a ledger that was begun so is opened so
    /// whatever is said here, and one that was not cannot become it.
    ///
    /// The key protects rows that leave the directory, as in a copy or an export without it, and not
    /// from whoever may read the directory. Without the key a ledger can be read, but not gone on with.
    #[must_use]
    pub fn keyed(self, keyed: bool) -> Self {
        FileOptions { keyed, ..self }
    }

    /// Another file system than the operating system's, for tests.
    #[must_use]
    pub fn io(self, io: Arc<dyn Io>) -> Self {
        FileOptions { io, ..self }
    }

    /// Opens the ledger, reads and checks all of it, and starts its writer. Blocks meanwhile.
    ///
    /// # Errors
    /// [`OpenError`] says what is in the way. A damaged ledger is not opened for writing.
    pub fn open(self) -> Result<Ledger, OpenError> {
        if !matches!(self.durability, Durability::Synced | Durability::Written) {
            return Err(OpenError::Durability);
        }
        if self.writer == Writer::Runtime && tokio::runtime::Handle::try_current().is_err() {
            return Err(OpenError::NoRuntime);
        }
        self.prepare_dir()?;
        let lock = self.lock()?;
        let session = SessionId::from_u128(random_u128());
        let (mut appender, key) = self.recover(lock)?;
        self.begin_session(&mut appender, session)?;
        let store =
            FileStore::start(appender, session, self.durability, self.capacity, self.writer)?;
        let store = Arc::new(store);
        Ok(match key {
            Some(key) => Ledger::new_keyed(store, key),
            None => Ledger::new(store),
        })
    }

    fn prepare_dir(&self) -> Result<(), OpenError> {
        let dir = &*self.dir;
        let failed = |action| move |cause| OpenError::io(action, dir, cause);
        if !dir.exists() {
            if !self.create {
                return Err(OpenError::Missing(dir.into()));
            }
            // Each directory that is made is a name in the one above it.
            let mut above = Vec::new();
            for parent in dir.ancestors().skip(1) {
                let here = parent.as_os_str().is_empty();
                above.push(if here { Path::new(".") } else { parent });
                if here || parent.exists() {
                    break;
                }
            }
            self.io.create_dir(dir).map_err(failed("create"))?;
            for parent in above {
                self.io.sync_dir(parent).map_err(failed("sync a directory above"))?;
            }
        }
        let mode = fs::metadata(dir).map_err(failed("look at"))?.mode();
        if mode & 0o022 != 0 {
            return Err(OpenError::Writable { dir: dir.into(), mode });
        }
        match self.io.network_fs(dir).map_err(failed("look at"))? {
            Some(kind) if !self.allow_network_fs => {
                Err(OpenError::NetworkFs { dir: dir.into(), kind })
            }
            _ => Ok(()),
        }
    }

    fn lock(&self) -> Result<File, OpenError> {
        let path = self.dir.join(LOCK);
        let failed = |cause| OpenError::io("lock", &path, cause);
        let dir: Arc<Path> = self.dir.as_path().into();
        let listing = Listing::read(&*self.io, &dir)?;
        match listing.foreign {
            _ if listing.has_format => {}
            _ if !self.create => return Err(OpenError::Missing(dir)),
            Some(name) if listing.segments.is_empty() => {
                return Err(OpenError::Foreign { dir, name });
            }
            _ => {}
        }
        // A reader that asks whether there is a writer holds the lock for an instant.
        for _ in 0..20 {
            let lock = self.io.open_lock(&path).map_err(failed)?;
            if !try_lock(&lock).map_err(failed)? {
                thread::park_timeout(Duration::from_millis(1));
            } else if self.io.is_at(&lock, &path).map_err(failed)? {
                return Ok(lock);
            }
        }
        let holder = holder(&*self.io, &self.dir)?;
        Err(OpenError::Held { dir, holder })
    }

    /// Reads the whole ledger and finds the place to go on at. The lock is held.
    fn recover(&self, lock: File) -> Result<(Appender, Option<FingerprintKey>), OpenError> {
        let (io, dir) = (&*self.io, &*self.dir);
        let listing = Listing::read(io, dir)?;
        for name in &listing.temporary {
            let path = dir.join(name);
            io.remove(&path).map_err(|cause| OpenError::io("remove", &path, cause))?;
        }
        let begun = !listing.segments.is_empty();
        let mut key = listing.has_key.then(|| key::read(io, dir)).transpose()?;
        if self.keyed && key.is_none() && !begun {
            // Before there is a ledger, so that none is ever begun whose key may be lost.
            key = Some(key::create(io, dir)?);
        }
        let format = if listing.has_format {
            Format::read(io, dir)?
        } else if listing.segments.is_empty() {
            let format = Format::new(now());
            format.create(io, dir)?;
            format
        } else {
            return Err(no_format(dir).into());
        };
        // Names that a writer made and did not live to sync, before anything rests on them.
        io.sync_dir(dir).map_err(|cause| OpenError::io("sync", dir, cause))?;
        let after_failure = !listing.failed.is_empty();
        let last = listing.segments.last().copied();
        let mut reader = FileReader::new(
            Arc::clone(&self.io),
            self.dir.clone(),
            &format,
            listing.segments,
            after_failure,
        );
        let mut index = Index::default();
        let mut sealed = false;
        let mut key_check = None;
        for record in reader.by_ref() {
            let record = record.map_err(OpenError::from)?;
            sealed = matches!(record.event, Event::Sealed(_));
            if let (0, Event::Segment(first)) = (record.seq, &record.event) {
                key_check = first.key_check;
            }
            index.recall(&record.event);
        }
        for ignored in reader.ignored() {
            count_unproven(io, &ignored.file, ignored.offset, &mut index)?;
        }
        if begun {
            key::agree(dir, key_check, key.as_ref(), self.keyed)?;
        }
        let key_check = key.as_ref().map(FingerprintKey::check);
        let mut chain = reader.place_in_chain();
        let shared = Arc::new(Shared::default());
        let Some(last) = last else {
            let segment = create_segment(io, dir, &mut chain, first_header(&format, key_check))?;
            return Ok((
                self.appender(lock, format, shared, index, chain, segment, key_check),
                key,
            ));
        };
        let tail = reader.tail().cloned().unwrap_or_else(super::Tail::clean);
        let path: Arc<Path> = dir.join(segment_name(last)).into();
        let size = io.open_read(&path).and_then(|file| file.size());
        let size = size.map_err(|cause| OpenError::io("read", &path, cause))?;
        let clean = matches!(tail.kind, TailKind::Clean | TailKind::Unterminated);
        // What a failed sync left in the cache only is beyond the rows that are on disk.
        if !clean || after_failure {
            count_unproven(io, &path, tail.valid_len, &mut index)?;
        }
        index.forget_open();
        let unterminated = tail.kind == TailKind::Unterminated;
        let file = io.open_append(&path).map_err(|cause| OpenError::io("open", &path, cause))?;
        let len = if tail.file.is_some() { tail.valid_len } else { size };
        let segment = OpenSegment { file, path, first: last, len, unterminated };
        let mut appender = self.appender(lock, format, shared, index, chain, segment, key_check);
        if after_failure && clean {
            // The cut took a newline, or rows: in either case what follows is not this row's.
            appender.write_newline()?;
            let ignored = size.saturating_sub(appender.segment.len);
            appender.begin_after(ignored, None)?;
        } else if !clean {
            appender.begin_after(
                tail.ignored_len,
                if after_failure { None } else { tail.ignored_sha256 },
            )?;
        } else if sealed {
            appender.begin_after(0, None)?;
        }
        for name in &listing.failed {
            let path = dir.join(name);
            io.remove(&path).map_err(|cause| OpenError::io("remove", &path, cause))?;
        }
        Ok((appender, key))
    }

    #[allow(clippy::too_many_arguments, reason = "the appender's parts, put together in one place")]
    fn appender(
        &self,
        lock: File,
        format: Format,
        shared: Arc<Shared>,
        index: Index,
        chain: line::Chain,
        segment: OpenSegment,
        key_check: Option<Digest>,
    ) -> Appender {
        if let Ok(mut shared) = shared.index.lock() {
            *shared = index;
        }
        shared.written.store(chain.seq, Ordering::Release);
        Appender {
            io: Arc::clone(&self.io),
            dir: self.dir.clone(),
            ledger: format.ledger,
            key_check,
            shared,
            lock,
            chain,
            segment,
            segment_bytes: self.segment_bytes,
            synced: self.durability == Durability::Synced,
            // What an earlier writer only wrote is synced with the first batch.
            dirty: true,
            batch: Batch::default(),
        }
    }

    fn begin_session(&self, appender: &mut Appender, id: SessionId) -> Result<(), OpenError> {
        let session = Event::Session(Session {
            session: id,
            pid: std::process::id(),
            host: crate::host(),
            tool_version: self.tool_version.clone(),
        });
        appender.append_now(&session)?;
        Ok(())
    }
}

/// Counts the ordinals of whole rows among bytes that are set aside, so that none is used twice.
fn count_unproven(io: &dyn Io, file: &Path, from: u64, index: &mut Index) -> Result<(), OpenError> {
    each_sound_row(io, file, from, b",\"kind\":\"opened\",", |record| {
        if matches!(record.event, Event::Opened(_)) {
            index.recall_unproven(&record.event);
        }
    })
    .map_err(|cause| OpenError::io("read", file, cause))
}
