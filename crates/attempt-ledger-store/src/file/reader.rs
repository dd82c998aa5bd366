use std::{
    fs::File,
    ops::Range,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use attempt_ledger_core::{Digest, Event, FORMAT_VERSION, Record, Segment, SessionId};

use super::{
    Damage, DamageKind, Holder, Io, IoRead, OpenError, RealIo,
    io::{careful, read_full, regular, try_lock_shared},
    layout::{FORMAT, Format, LOCK, Listing, segment_name},
    line::{Chain, Fault, MAX_ROW, Sound},
    tail::{self, Tail, TailKind},
};

/// Reads a ledger's rows in order and checks each: shape, checksum, chain, number.
///
/// Needs no lock and disturbs no writer. It reads what was there when it was opened; at the end,
/// [`tail`](Self::tail) says whether bytes followed that are no row. After [`Damage`] it ends.
/// Memory does not grow with the ledger.
#[derive(Debug)]
pub struct FileReader {
    io: Arc<dyn Io>,
    dir: PathBuf,
    ledger: String,
    segments: Vec<u64>,
    /// The next segment to begin with.
    next: usize,
    /// Past the page cache in the last segment: after a failed sync it tells what is on disk.
    direct: bool,
    current: Option<Open>,
    chain: Chain,
    window: Window,
    scratch: Vec<u8>,
    ignored: Vec<Ignored>,
    tail: Option<Tail>,
    ended: bool,
}

/// Bytes that a later segment's header declares to be no rows of the ledger.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Ignored {
    /// The segment they are in.
    pub file: Arc<Path>,
    /// Their offset.
    pub offset: u64,
    /// How many they are; 0 when only what the disk held was kept, after a failed sync.
    pub len: u64,
    /// What they are.
    pub kind: IgnoredKind,
}

/// What bytes that were set aside are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IgnoredKind {
    /// The beginning of a row, whose writer was killed. Never acknowledged.
    Torn,
    /// A hole of zeros, and more after it, as a power cut leaves them.
    Hole,
    /// What followed a failed write or sync. Its bytes are not vouched for: the cache may show others
    /// than the disk.
    AfterFailure,
}

impl IgnoredKind {
    /// The word in JSON and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            IgnoredKind::Torn => "torn",
            IgnoredKind::Hole => "hole",
            IgnoredKind::AfterFailure => "after_failure",
        }
    }
}

/// The segment that is being read.
#[derive(Debug)]
struct Open {
    file: Box<dyn IoRead>,
    path: Arc<Path>,
    first: u64,
    /// Length of its rows, or of the file if it is the last.
    len: u64,
    size: u64,
    /// What its successor's header says; `None` in the last.
    successor: Option<Segment>,
    at_header: bool,
}

/// The bytes at hand.
#[derive(Debug, Default)]
struct Window {
    bytes: Vec<u8>,
    /// What of them is not yet consumed.
    start: usize,
    end: usize,
    /// The offset in the file of `start`.
    offset: u64,
}

const READ: usize = 256 * 1024;

impl FileReader {
    /// Opens the ledger in `dir` for reading.
    ///
    /// # Errors
    /// [`OpenError`] when there is none, or its `FORMAT` can not be read.
    pub fn open(dir: impl Into<PathBuf>) -> Result<Self, OpenError> {
        Self::open_with(Arc::new(RealIo), dir)
    }

    /// As [`open`](Self::open), on another file system.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(io: Arc<dyn Io>, dir: impl Into<PathBuf>) -> Result<Self, OpenError> {
        let dir = dir.into();
        let listing = Listing::read(&*io, &dir)?;
        if !listing.has_format {
            if listing.segments.is_empty() {
                return Err(OpenError::Missing(dir.into()));
            }
            return Err(OpenError::Damaged(no_format(&dir)));
        }
        let format = Format::read(&*io, &dir)?;
        Ok(Self::new(io, dir, &format, listing.segments, false))
    }

    pub(crate) fn new(
        io: Arc<dyn Io>,
        dir: PathBuf,
        format: &Format,
        segments: Vec<u64>,
        direct: bool,
    ) -> Self {
        FileReader {
            io,
            dir,
            ledger: format.ledger.clone(),
            segments,
            next: 0,
            direct,
            current: None,
            chain: Chain::start(&format.bytes),
            window: Window::default(),
            scratch: Vec::new(),
            ignored: Vec::new(),
            tail: None,
            ended: false,
        }
    }

    /// The ledger's id.
    pub fn ledger(&self) -> &str {
        &self.ledger
    }

    /// The number of the next row, and the hash of the one before: the head, once all is read.
    pub fn head(&self) -> (u64, Digest) {
        (self.chain.seq, Digest::from_bytes(self.chain.hash))
    }

    pub(crate) fn place_in_chain(&self) -> Chain {
        self.chain
    }

    /// What follows the last row; `None` before the end was reached, or when it was damage.
    pub fn tail(&self) -> Option<&Tail> {
        self.tail.as_ref()
    }

    /// The bytes that were set aside, in the segments read so far.
    pub fn ignored(&self) -> &[Ignored] {
        &self.ignored
    }

    /// The writer that has the ledger open, if one has and has said so: `None`, too, while the newest
    /// `session` row is of a process of this machine that is gone, since its writer is still
    /// starting.
    ///
    /// # Errors
    /// The lock can not be opened, or no segment be read.
    pub fn writer(&self) -> Result<Option<Holder>, OpenError> {
        let lock = self.dir.join(LOCK);
        let failed = |cause| OpenError::io("lock", &lock, cause);
        // Taken shared and let go at once; a writer that starts in this instant tries again.
        let mut options = File::options();
        let file = options.read(true).custom_flags(careful()).open(&lock);
        let file = match file.and_then(regular) {
            Ok(file) => file,
            // A copy of a ledger need not have one.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        if try_lock_shared(&file).map_err(failed)? {
            return Ok(None);
        }
        holder(&*self.io, &self.dir)
    }

    /// The session of that [`writer`](Self::writer): the one whose attempts may still close.
    ///
    /// # Errors
    /// As [`writer`](Self::writer).
    pub fn live_session(&self) -> Result<Option<SessionId>, OpenError> {
        Ok(self.writer()?.map(|holder| holder.session))
    }

    /// The next row's line as it is stored, without its newline, checked but not decoded.
    pub fn next_line(&mut self) -> Option<Result<&[u8], Damage>> {
        match self.advance()? {
            Ok(range) => Some(Ok(self.window.bytes.get(range).unwrap_or_default())),
            Err(damage) => Some(Err(damage)),
        }
    }

    fn next_record(&mut self) -> Option<Result<Record, Damage>> {
        let range = match self.advance()? {
            Ok(range) => range,
            Err(damage) => return Some(Err(damage)),
        };
        let line = self.window.bytes.get(range.clone()).unwrap_or_default();
        let decoded = Sound::new(line).and_then(|row| row.record(&mut self.scratch));
        Some(decoded.map_err(|fault| {
            let offset = self.window.offset.saturating_sub(range.len() as u64 + 1);
            let seq = self.chain.seq.saturating_sub(1);
            self.damage(offset, seq, fault.into())
        }))
    }

    /// Moves past the next row; its place in the window.
    fn advance(&mut self) -> Option<Result<Range<usize>, Damage>> {
        if self.ended {
            return None;
        }
        let moved = self.try_advance();
        if !matches!(moved, Ok(Some(_))) {
            self.ended = true;
        }
        moved.transpose()
    }

    fn try_advance(&mut self) -> Result<Option<Range<usize>>, Damage> {
        loop {
            if self.current.is_none() && !self.begin_segment()? {
                self.tail.get_or_insert_with(Tail::clean);
                return Ok(None);
            }
            let Some(open) = &mut self.current else { continue };
            let (from, to) = (self.window.start, self.window.end);
            let held = self.window.bytes.get(from..to).unwrap_or_default();
            match memchr::memchr(b'\n', held) {
                Some(len) => {
                    let line = held.get(..len).unwrap_or_default();
                    let fault = match Sound::new(line).and_then(|row| {
                        row.follow(&mut self.chain)?;
                        if open.at_header {
                            row.record(&mut self.scratch).map(Some)
                        } else {
                            Ok(None)
                        }
                    }) {
                        Ok(header) => {
                            if let Some(header) = header {
                                check_header(open, &header, &self.ledger)?;
                                open.at_header = false;
                            }
                            self.window.start += len + 1;
                            self.window.offset += len as u64 + 1;
                            return Ok(Some(from..from + len));
                        }
                        Err(fault) => fault,
                    };
                    return self.end_of_rows(Some(fault));
                }
                None if held.len() >= MAX_ROW => return self.end_of_rows(Some(Fault::Shape)),
                None if self.window.offset + (held.len() as u64) < open.len => self.fill()?,
                None if held.is_empty() => {
                    if open.successor.is_none() {
                        return self.end_of_rows(None);
                    }
                    self.end_segment()?;
                }
                None => return self.end_of_rows(Some(Fault::Shape)),
            }
        }
    }

    /// Reads more of the current segment's rows.
    fn fill(&mut self) -> Result<(), Damage> {
        let Some(open) = &self.current else { return Ok(()) };
        let window = &mut self.window;
        window.bytes.copy_within(window.start..window.end, 0);
        window.end -= window.start;
        window.start = 0;
        let room = READ + MAX_ROW;
        if window.bytes.is_empty() {
            window.bytes = vec![0; room];
        }
        let offset = window.offset + window.end as u64;
        let want = usize::try_from(open.len - offset).unwrap_or(usize::MAX).min(room - window.end);
        let into = window.bytes.get_mut(window.end..window.end + want).unwrap_or_default();
        let read = read_full(&*open.file, into, offset);
        match read {
            Ok(read) if read == want => {
                window.end += read;
                Ok(())
            }
            Ok(_) => Err(self.damage(offset, self.chain.seq, DamageKind::Length)),
            Err(cause) => Err(self.damage(offset, self.chain.seq, DamageKind::Io(Arc::new(cause)))),
        }
    }

    /// Opens the next segment; `false` when there is none.
    fn begin_segment(&mut self) -> Result<bool, Damage> {
        let Some(&first) = self.segments.get(self.next) else { return Ok(false) };
        let successor = self.segments.get(self.next + 1).copied();
        self.next += 1;
        let path: Arc<Path> = self.dir.join(segment_name(first)).into();
        let seq = self.chain.seq;
        let failed = |cause| Damage {
            file: Arc::clone(&path),
            offset: 0,
            seq,
            kind: DamageKind::Io(Arc::new(cause)),
        };
        let direct = self.direct && successor.is_none();
        let file = if direct { self.io.open_read_direct(&path) } else { self.io.open_read(&path) };
        let file = file.map_err(failed)?;
        let size = file.size().map_err(failed)?;
        let successor = match successor {
            Some(next) => Some(self.peek_header(next)?),
            None => None,
        };
        let len = successor.as_ref().map_or(size, |header| header.previous_len);
        let open = Open { file, path, first, len, size, successor, at_header: true };
        if len > size {
            let damage = Damage {
                file: Arc::clone(&open.path),
                offset: size,
                seq: self.chain.seq,
                kind: DamageKind::Length,
            };
            return Err(damage);
        }
        if first != self.chain.seq {
            let damage = Damage {
                file: Arc::clone(&open.path),
                offset: 0,
                seq: self.chain.seq,
                kind: DamageKind::Sequence,
            };
            return Err(damage);
        }
        self.current = Some(open);
        self.window.start = 0;
        self.window.end = 0;
        self.window.offset = 0;
        Ok(true)
    }

    /// Reads the header of a segment before its turn. It is checked against the chain in its turn.
    fn peek_header(&mut self, first: u64) -> Result<Segment, Damage> {
        let path: Arc<Path> = self.dir.join(segment_name(first)).into();
        let damage = |kind| Damage { file: Arc::clone(&path), offset: 0, seq: first, kind };
        let mut bytes = vec![0; MAX_ROW];
        let read = self.io.open_read(&path).and_then(|file| read_full(&*file, &mut bytes, 0));
        let read = read.map_err(|cause| damage(DamageKind::Io(Arc::new(cause))))?;
        let bytes = bytes.get(..read).unwrap_or_default();
        let end = memchr::memchr(b'\n', bytes).ok_or_else(|| damage(DamageKind::Shape))?;
        let line = bytes.get(..end).unwrap_or_default();
        let record = Sound::new(line).and_then(|row| row.record(&mut self.scratch));
        match record.map_err(|fault| damage(fault.into()))?.event {
            Event::Segment(header) if header.version > FORMAT_VERSION => {
                Err(damage(DamageKind::Version(u64::from(header.version))))
            }
            Event::Segment(header) => Ok(header),
            _ => Err(damage(DamageKind::Header)),
        }
    }

    /// Checks what follows the rows of a finished segment.
    fn end_segment(&mut self) -> Result<(), Damage> {
        let Some(open) = self.current.take() else { return Ok(()) };
        let Some(header) = &open.successor else { return Ok(()) };
        let damage = |kind| Damage {
            file: Arc::clone(&open.path),
            offset: open.len,
            seq: self.chain.seq,
            kind,
        };
        let there = open.size - open.len;
        let mut kind = IgnoredKind::AfterFailure;
        match header.ignored_sha256 {
            // After a failed sync the cache shows other bytes than the disk, until the next boot.
            None if header.ignored_len > 0 => {}
            _ if there != header.ignored_len => return Err(damage(DamageKind::Length)),
            None => {}
            Some(digest) => {
                let aside = tail::aside(&*open.file, open.len, open.size);
                let (found, hole) =
                    aside.map_err(|cause| damage(DamageKind::Io(Arc::new(cause))))?;
                if found != digest {
                    return Err(damage(DamageKind::Ignored));
                }
                kind = if hole { IgnoredKind::Hole } else { IgnoredKind::Torn };
            }
        }
        if there > 0 || header.ignored_len > 0 {
            let file = Arc::clone(&open.path);
            self.ignored.push(Ignored { file, offset: open.len, len: there, kind });
        }
        Ok(())
    }

    /// No further row follows in the current segment: in the last one that may be its tail, in an
    /// earlier one it is damage.
    fn end_of_rows(&mut self, fault: Option<Fault>) -> Result<Option<Range<usize>>, Damage> {
        let Some(open) = &self.current else { return Ok(None) };
        let offset = self.window.offset;
        let seq = self.chain.seq;
        let damage = |kind| Damage { file: Arc::clone(&open.path), offset, seq, kind };
        if open.successor.is_some() || open.at_header {
            // A segment gets its name only with its header in it, so the header is never torn.
            let fault = fault.unwrap_or(Fault::Shape);
            return Err(damage(fault.into()));
        }
        let mut tail = tail::classify(&*open.file, &open.path, offset, open.size, &self.chain)
            .map_err(|cause| damage(DamageKind::Io(Arc::new(cause))))?
            .map_err(|after_row| {
                let fault = fault.map_or(DamageKind::Shape, DamageKind::from);
                damage(if after_row { DamageKind::AfterRow } else { fault })
            })?;
        let mut row = None;
        if tail.kind == TailKind::Unterminated {
            let (from, to) = (self.window.start, self.window.end);
            let line = self.window.bytes.get(from..to).unwrap_or_default();
            let sound = Sound::new(line).and_then(|row| row.follow(&mut self.chain));
            sound.map_err(|fault| damage(fault.into()))?;
            tail.valid_len = open.size;
            row = Some(from..to);
            self.window.start = to;
            self.window.offset = open.size;
            self.current = None;
        }
        self.tail = Some(tail);
        self.ended = true;
        Ok(row)
    }

    fn damage(&self, offset: u64, seq: u64, kind: DamageKind) -> Damage {
        let file = match &self.current {
            Some(open) => Arc::clone(&open.path),
            None => self.dir.as_path().into(),
        };
        Damage { file, offset, seq, kind }
    }
}

impl Iterator for FileReader {
    type Item = Result<Record, Damage>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.next_record();
        self.ended |= matches!(next, Some(Err(_)));
        next
    }
}

fn check_header(open: &Open, header: &Record, ledger: &str) -> Result<(), Damage> {
    let kind = match &header.event {
        Event::Segment(segment) if segment.version > FORMAT_VERSION => {
            DamageKind::Version(u64::from(segment.version))
        }
        Event::Segment(segment) if segment.ledger == ledger && header.seq == open.first => {
            return Ok(());
        }
        _ => DamageKind::Header,
    };
    Err(Damage { file: Arc::clone(&open.path), offset: 0, seq: open.first, kind })
}

pub(crate) fn no_format(dir: &Path) -> Damage {
    Damage { file: dir.join(FORMAT).into(), offset: 0, seq: 0, kind: DamageKind::Format }
}

/// Who holds the lock, where that can be told: the newest session, unless its process was of this
/// machine and is gone. Another holds it then, and has not written its row yet.
pub(crate) fn holder(io: &dyn Io, dir: &Path) -> Result<Option<Holder>, OpenError> {
    let newest = newest_session(io, dir)?;
    Ok(newest.filter(|holder| holder.host != crate::host() || is_running(holder.pid)))
}

/// Whether this machine has a process with that id; `true` where it does not tell.
pub(crate) fn is_running(pid: u32) -> bool {
    let processes = Path::new("/proc");
    !processes.join("self").exists() || processes.join(pid.to_string()).exists()
}

/// The newest `session` row, read from the last segment backwards. Checksums are checked, the chain
/// is not: it is only for an error's text and for telling who is alive.
fn newest_session(io: &dyn Io, dir: &Path) -> Result<Option<Holder>, OpenError> {
    let listing = Listing::read(io, dir)?;
    for first in listing.segments.into_iter().rev() {
        let path = dir.join(segment_name(first));
        let mut newest = None;
        tail::each_sound_row(io, &path, 0, b",\"kind\":\"session\",", |record| {
            if let Event::Session(session) = record.event {
                newest = Some(Holder {
                    session: session.session,
                    pid: session.pid,
                    host: session.host,
                    since: record.time,
                });
            }
        })
        .map_err(|cause| OpenError::io("read", &path, cause))?;
        if newest.is_some() {
            return Ok(newest);
        }
    }
    Ok(None)
}

impl From<Fault> for DamageKind {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Shape => DamageKind::Shape,
            Fault::Checksum => DamageKind::Checksum,
            Fault::Chain => DamageKind::Chain,
            Fault::Sequence => DamageKind::Sequence,
            Fault::Version(found) => DamageKind::Version(found),
            Fault::Kind(kind) => DamageKind::UnknownKind(kind),
            Fault::Content(why) => DamageKind::Content(why),
        }
    }
}
