//! Appends rows: frames a batch, writes it at once, answers, syncs, answers.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use attempt_ledger_core::{Digest, Event, FORMAT_VERSION, Sealed, Segment};

use super::{
    Io, IoFile, OpenError,
    io::write_all,
    layout::{Format, LOCK, failed_name, segment_name, temporary_name},
    line::{self, Chain, FrameError, MAX_ROW},
};
use crate::{
    Answer, Appended, Place, StoreError,
    index::{Change, Index, refusal},
    now,
    sync::{AtomicU64, Mutex, Ordering},
};

/// What the writer shares with the handles.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) index: Mutex<Index>,
    /// Why nothing is taken any more.
    pub(crate) failed: OnceLock<StoreError>,
    /// The number of the next row: all before it are written.
    pub(crate) written: AtomicU64,
}

/// What is in the queue.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "nearly all are rows")]
pub(crate) enum Item {
    Row { event: Event, place: Place, answer: Answer },
    Flush { place: Place, answer: Answer },
}

/// A batch is written when it has this many bytes.
const BATCH_BYTES: usize = 1024 * 1024;

/// Appends to the last segment.
#[derive(Debug)]
pub(crate) struct Appender {
    pub(crate) io: Arc<dyn Io>,
    pub(crate) dir: PathBuf,
    pub(crate) ledger: String,
    /// What every segment says of the fingerprints' key.
    pub(crate) key_check: Option<Digest>,
    pub(crate) shared: Arc<Shared>,
    /// Held for its lock.
    pub(crate) lock: File,
    pub(crate) chain: Chain,
    pub(crate) segment: OpenSegment,
    pub(crate) segment_bytes: u64,
    /// Whether each batch is synced, and what waits for that is answered then.
    pub(crate) synced: bool,
    /// Written bytes that are not synced yet.
    pub(crate) dirty: bool,
    pub(crate) batch: Batch,
}

/// The segment that rows are appended to.
#[derive(Debug)]
pub(crate) struct OpenSegment {
    pub(crate) file: Box<dyn IoFile>,
    pub(crate) path: Arc<Path>,
    pub(crate) first: u64,
    pub(crate) len: u64,
    /// The last row lacks its newline; the next batch begins with it.
    pub(crate) unterminated: bool,
}

/// Rows that are framed and not yet written, and what to answer for them.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    rows: Vec<Row>,
    flushes: Vec<(Place, Answer)>,
}

#[derive(Debug)]
struct Row {
    answer: Answer,
    reply: Result<Appended, StoreError>,
    durable: bool,
    change: Change,
    place: Place,
}

impl Appender {
    /// Records what was queued, and answers all of it.
    pub(crate) fn process(&mut self, items: &mut Vec<Item>) {
        let mut items = items.drain(..).peekable();
        while items.peek().is_some() {
            if let Some(failed) = self.shared.failed.get() {
                let Some(Item::Row { answer, .. } | Item::Flush { answer, .. }) = items.next()
                else {
                    return;
                };
                answer.give(Err(failed.clone()));
                continue;
            }
            if let Err(error) = self.check_alone().and_then(|()| self.rotate_if_full()) {
                self.fail(error);
                continue;
            }
            let time = now().to_string();
            while self.batch.bytes.len() < BATCH_BYTES {
                match items.next() {
                    Some(Item::Row { event, place, answer }) => {
                        self.frame(&time, event, place, answer);
                    }
                    Some(Item::Flush { place, answer }) => {
                        self.batch.flushes.push((place, answer));
                    }
                    None => break,
                }
            }
            self.commit();
        }
    }

    /// Decides on an event and makes its line.
    fn frame(&mut self, time: &str, mut event: Event, place: Place, answer: Answer) {
        let Ok(mut index) = self.shared.index.lock() else {
            answer.give(Err(StoreError::Poisoned));
            return;
        };
        let checked = index.check(&mut event);
        let mut refused = None;
        match (&checked, &event) {
            (Ok(()), _) => {}
            (
                Err(StoreError::Refused(why)),
                Event::Scored(grade) | Event::Diagnostic(grade) | Event::AlsoGraded(grade),
            ) => {
                refused = Some(StoreError::Refused(*why));
                event = refusal(grade, *why);
            }
            (Err(error), _) => {
                answer.give(Err(error.clone()));
                return;
            }
        }
        let seq = self.chain.seq;
        match line::write(&mut self.batch.bytes, &mut self.chain, time, &event) {
            Ok(()) => {
                let ordinal = if let Event::Opened(o) = &event { o.ordinal } else { None };
                let reply = refused.map_or(Ok(Appended { seq, ordinal }), Err);
                let durable = self.synced && event.waits_for_durability();
                let change = index.apply(&event);
                self.batch.rows.push(Row { answer, reply, durable, change, place });
            }
            Err(error) => answer.give(Err(error.into())),
        }
    }

    /// Writes the batch, answers what waits for that, syncs, and answers the rest.
    fn commit(&mut self) {
        let mut batch = std::mem::take(&mut self.batch);
        if let Err(error) = self.write(&batch.bytes) {
            self.fail(error.clone());
            return batch.refuse(&error);
        }
        self.shared.written.store(self.chain.seq, Ordering::Release);
        let written = batch.answer(&self.shared, |row| !row.durable);
        if (self.synced || !batch.flushes.is_empty())
            && let Err(error) = written.and_then(|()| self.sync())
        {
            self.fail(error.clone());
            return batch.refuse(&error);
        }
        if let Err(error) = batch.answer(&self.shared, |_| true) {
            return batch.refuse(&error);
        }
        let last = Appended { seq: self.chain.seq.saturating_sub(1), ordinal: None };
        for (place, answer) in batch.flushes.drain(..) {
            drop(place);
            answer.give(Ok(last));
        }
        batch.bytes.clear();
        self.batch = batch;
    }

    /// Nobody else writes: the lock that is held is the one that others would ask for, and the
    /// segment has what was written to it. It costs two looks at the file system for each batch.
    fn check_alone(&self) -> Result<(), StoreError> {
        let (lock, file) = (self.dir.join(LOCK), &self.segment.path);
        let there = self.io.is_at(&self.lock, &lock);
        if !there.map_err(|cause| StoreError::failed("look at", &lock, cause))? {
            return Err(StoreError::NotAlone { file: lock.into() });
        }
        let size = self.segment.file.size();
        if size.map_err(|cause| StoreError::failed("look at", file, cause))? != self.segment.len {
            return Err(StoreError::NotAlone { file: Arc::clone(file) });
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.write_newline()?;
        let segment = &mut self.segment;
        self.dirty = true;
        write_all(&mut *segment.file, bytes)
            .map_err(|cause| StoreError::failed("write", &segment.path, cause))?;
        segment.len += bytes.len() as u64;
        Ok(())
    }

    /// Gives the last row the newline that a cut took.
    pub(crate) fn write_newline(&mut self) -> Result<(), StoreError> {
        let segment = &mut self.segment;
        if std::mem::take(&mut segment.unterminated) {
            self.dirty = true;
            write_all(&mut *segment.file, b"\n")
                .map_err(|cause| StoreError::failed("write", &segment.path, cause))?;
            segment.len += 1;
        }
        Ok(())
    }

    /// Syncs what was written. Never repeated after a failure.
    pub(crate) fn sync(&mut self) -> Result<(), StoreError> {
        if std::mem::take(&mut self.dirty)
            && let Err(cause) = self.segment.file.sync_data()
        {
            // While the ledger is being opened, too: the next opening must not trust the cache.
            let error = StoreError::failed("sync", &self.segment.path, cause);
            self.fail(error.clone());
            return Err(error);
        }
        Ok(())
    }

    /// Stops for good, and leaves a mark that tells the next writer to look at what is on disk.
    fn fail(&mut self, error: StoreError) {
        // Where another writes, the mark would be about the other's rows.
        let alone = !matches!(error, StoreError::NotAlone { .. });
        if self.shared.failed.set(error).is_ok() && alone {
            // Best effort: where nothing can be written, neither can this.
            let _ = self.io.create_new(&self.dir.join(failed_name(self.chain.seq)));
        }
    }

    fn rotate_if_full(&mut self) -> Result<(), StoreError> {
        if self.segment.len < self.segment_bytes {
            return Ok(());
        }
        let mut bytes = Vec::new();
        let sealed = Event::Sealed(Sealed { next: self.chain.seq + 1 });
        line::write(&mut bytes, &mut self.chain, &now().to_string(), &sealed)?;
        self.write(&bytes)?;
        self.begin_after(0, None)
    }

    /// Begins a segment after the open one, of which `ignored` bytes past its rows are set aside.
    pub(crate) fn begin_after(
        &mut self,
        ignored: u64,
        digest: Option<Digest>,
    ) -> Result<(), StoreError> {
        // A cut may have taken the newline of the last row, `sealed` too.
        self.write_newline()?;
        // Rows of one segment are on disk before the next one is there.
        self.sync()?;
        let header = Segment {
            version: FORMAT_VERSION,
            ledger: self.ledger.clone(),
            previous: Some(self.segment.first),
            previous_len: self.segment.len,
            ignored_len: ignored,
            ignored_sha256: digest,
            previous_hash: Digest::from_bytes(self.chain.hash),
            key_check: self.key_check,
        };
        self.segment = create_segment(&*self.io, &self.dir, &mut self.chain, header)?;
        self.shared.written.store(self.chain.seq, Ordering::Release);
        Ok(())
    }

    /// Appends and syncs one event of the store's own, before its writer starts.
    pub(crate) fn append_now(&mut self, event: &Event) -> Result<(), StoreError> {
        let mut bytes = Vec::new();
        line::write(&mut bytes, &mut self.chain, &now().to_string(), event)?;
        self.write(&bytes)?;
        self.sync()?;
        self.shared.written.store(self.chain.seq, Ordering::Release);
        Ok(())
    }

    /// The end: what was only written is synced, and the lock let go.
    pub(crate) fn finish(mut self) {
        if self.shared.failed.get().is_none()
            && let Err(error) = self.sync()
        {
            self.fail(error);
        }
        let _ = self.lock.unlock();
    }
}

impl Batch {
    /// Publishes and answers the rows that `ready` picks; one whose opening is not yet visible waits
    /// for that.
    fn answer(&mut self, shared: &Shared, ready: impl Fn(&Row) -> bool) -> Result<(), StoreError> {
        let mut index = shared.index.lock().map_err(|_| StoreError::Poisoned)?;
        let rows = std::mem::take(&mut self.rows);
        let mut answered = Vec::with_capacity(rows.len());
        for row in rows {
            if ready(&row) && !(index.is_early(&row.change)) {
                index.publish(&row.change);
                answered.push(row);
            } else {
                self.rows.push(row);
            }
        }
        // Whoever is woken may ask for a slot at once, and need not find the index locked.
        drop(index);
        for Row { answer, reply, place, .. } in answered {
            drop(place);
            answer.give(reply);
        }
        Ok(())
    }

    fn refuse(self, error: &StoreError) {
        let rows = self.rows.into_iter().map(|row| (row.place, row.answer));
        for (place, answer) in rows.chain(self.flushes) {
            drop(place);
            answer.give(Err(error.clone()));
        }
    }
}

/// Makes a segment with its header in it, or none: the file gets its name only when it is on disk.
pub(crate) fn create_segment(
    io: &dyn Io,
    dir: &Path,
    chain: &mut Chain,
    header: Segment,
) -> Result<OpenSegment, StoreError> {
    let first = chain.seq;
    let (temporary, path) = (dir.join(temporary_name()), dir.join(segment_name(first)));
    let failed = |cause: io::Error| StoreError::failed("create", &path, cause);
    let mut bytes = Vec::new();
    line::write(&mut bytes, chain, &now().to_string(), &Event::Segment(header))?;
    let mut file = io.create_new(&temporary).map_err(failed)?;
    write_all(&mut *file, &bytes).map_err(failed)?;
    file.sync_data().map_err(failed)?;
    io.rename(&temporary, &path).map_err(failed)?;
    io.sync_dir(dir).map_err(failed)?;
    let (path, len) = (path.into(), bytes.len() as u64);
    Ok(OpenSegment { file, path, first, len, unterminated: false })
}

/// The header of a ledger's first segment.
pub(crate) fn first_header(format: &Format, key_check: Option<Digest>) -> Segment {
    Segment {
        version: FORMAT_VERSION,
        ledger: format.ledger.clone(),
        previous: None,
        previous_len: 0,
        ignored_len: 0,
        ignored_sha256: None,
        previous_hash: format.digest(),
        key_check,
    }
}

impl From<FrameError> for StoreError {
    fn from(error: FrameError) -> Self {
        match error {
            FrameError::TooLong { bytes } => StoreError::RowTooLong { bytes, limit: MAX_ROW },
            FrameError::Json => StoreError::NotFinite { what: "a value of the row" },
        }
    }
}

impl From<StoreError> for OpenError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Failed { action, file, cause } => OpenError::Io { action, file, cause },
            other => OpenError::io("begin", Path::new("the ledger"), io::Error::other(other)),
        }
    }
}
