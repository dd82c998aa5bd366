//! What may follow a ledger's last row, and what it means.

use std::{io, path::Path, sync::Arc};

use attempt_ledger_core::{Digest, Record};
use sha2::{Digest as _, Sha256};

use super::{
    Io, IoRead,
    io::read_full,
    line::{Chain, MAX_ROW, Sound, has_row_as_prefix},
};

/// What follows the last row.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tail {
    /// What it is.
    pub kind: TailKind,
    /// The segment it is in; `None` in an empty ledger.
    pub file: Option<Arc<Path>>,
    /// Length of that segment's rows, in bytes.
    pub valid_len: u64,
    /// Bytes after them that are no row.
    pub ignored_len: u64,
    /// SHA-256 of those bytes.
    pub ignored_sha256: Option<Digest>,
}

/// What the bytes after the last row are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TailKind {
    /// None.
    Clean,
    /// None; but the last row lacks its newline, which the cut took.
    Unterminated,
    /// The beginning of a row that was being written when its writer was killed, or is being
    /// written now. Never acknowledged.
    Torn,
    /// A hole of zeros, and more after it: a power cut leaves this, and so does a failing disk.
    Hole,
}

impl Tail {
    pub(crate) fn clean() -> Self {
        Tail {
            kind: TailKind::Clean,
            file: None,
            valid_len: 0,
            ignored_len: 0,
            ignored_sha256: None,
        }
    }
}

const READ: usize = 256 * 1024;

/// Zeros that end at a multiple of this were a sector's, or a page's, that was never written.
const SECTOR: u64 = 512;

/// Says what the bytes of a ledger's last segment from `from` to `size` are. The inner error is
/// damage: `true` when a whole row is followed by something else than a newline.
pub(crate) fn classify(
    file: &dyn IoRead,
    path: &Arc<Path>,
    from: u64,
    size: u64,
    chain: &Chain,
) -> io::Result<Result<Tail, bool>> {
    let seen = look(file, from, size)?;
    let tail = |kind| {
        let (ignored_len, ignored_sha256) = match kind {
            TailKind::Clean | TailKind::Unterminated => (0, None),
            TailKind::Torn | TailKind::Hole => (size - from, Some(seen.digest)),
        };
        Tail { kind, file: Some(Arc::clone(path)), valid_len: from, ignored_len, ignored_sha256 }
    };
    if size == from {
        return Ok(Ok(tail(TailKind::Clean)));
    }
    if has_row_as_prefix(&seen.line, chain) {
        return Ok(Err(true));
    }
    Ok(match (seen.newline, seen.hole) {
        (true, true) => Ok(tail(TailKind::Hole)),
        (true, false) => Err(false),
        (false, _) if is_row(&seen.line, size - from, chain) => Ok(tail(TailKind::Unterminated)),
        // Only zeros up to the end are a tear that reached a page's end; anything after them is not.
        (false, _) if seen.after_zeros => Ok(tail(TailKind::Hole)),
        (false, _) => Ok(tail(TailKind::Torn)),
    })
}

fn is_row(line: &[u8], len: u64, chain: &Chain) -> bool {
    line.len() as u64 == len
        && Sound::new(line).is_ok_and(|row| row.follow(&mut chain.clone()).is_ok())
}

/// What one pass over the bytes shows.
#[derive(Debug)]
struct Seen {
    /// The first line, up to the longest a row may be.
    line: Vec<u8>,
    newline: bool,
    /// The first line holds zeros up to a sector's end.
    hole: bool,
    /// Something else follows a zero.
    after_zeros: bool,
    digest: Digest,
}

fn look(file: &dyn IoRead, from: u64, size: u64) -> io::Result<Seen> {
    let mut seen = Seen {
        line: Vec::new(),
        newline: false,
        hole: false,
        after_zeros: false,
        digest: Digest::from_bytes([0; 32]),
    };
    let mut sha = Sha256::new();
    let mut zeros = 0_u64;
    each_chunk(file, from, size - from, |offset, bytes| {
        sha.update(bytes);
        for (&byte, at) in bytes.iter().zip(offset..) {
            if byte == 0 {
                zeros += 1;
            } else {
                seen.after_zeros |= zeros > 0;
                // One zero may be a flipped space, but not where the row's brace was; two that end
                // where a sector does are not either.
                let of_row = zeros >= 2 || at == from + 1;
                seen.hole |= !seen.newline && of_row && at % SECTOR == 0;
                zeros = 0;
            }
            seen.newline |= byte == b'\n';
            if !seen.newline && seen.line.len() < MAX_ROW {
                seen.line.push(byte);
            }
        }
    })?;
    seen.digest = Digest::from_bytes(sha.finalize().into());
    Ok(seen)
}

/// SHA-256 of bytes that were set aside, and whether they have a hole: what is torn has no newline,
/// and nothing but zeros after a zero.
pub(crate) fn aside(file: &dyn IoRead, from: u64, size: u64) -> io::Result<(Digest, bool)> {
    let seen = look(file, from, size)?;
    Ok((seen.digest, seen.newline || seen.after_zeros))
}

fn each_chunk(
    file: &dyn IoRead,
    from: u64,
    len: u64,
    mut take: impl FnMut(u64, &[u8]),
) -> io::Result<()> {
    let mut buffer = vec![0; READ];
    let mut done = 0;
    while done < len {
        let want = usize::try_from(len - done).unwrap_or(READ).min(READ);
        let into = buffer.get_mut(..want).unwrap_or_default();
        let read = read_full(file, into, from + done)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        take(from + done, into.get(..read).unwrap_or_default());
        done += read as u64;
    }
    Ok(())
}

/// Hands on every whole row with the right checksum that lies in a file from `from` on and holds
/// `needle`, wherever it lies: its place in the chain is not checked.
pub(crate) fn each_sound_row(
    io: &dyn Io,
    path: &Path,
    from: u64,
    needle: &[u8],
    mut take: impl FnMut(Record),
) -> io::Result<()> {
    let file = io.open_read(path)?;
    let size = file.size()?;
    let finder = memchr::memmem::Finder::new(needle);
    let mut scratch = Vec::new();
    let mut row = |line: &[u8]| {
        if finder.find(line).is_none() {
            return;
        }
        // What precedes the row in a line, a hole or half a row, is skipped.
        let start = memchr::memmem::rfind(line, b"{\"v\":").unwrap_or(0);
        let line = line.get(start..).unwrap_or_default();
        if let Ok(record) = Sound::new(line).and_then(|row| row.record(&mut scratch)) {
            take(record);
        }
    };
    let mut held: Vec<u8> = Vec::new();
    each_chunk(&*file, from, size.saturating_sub(from), |_, mut bytes| {
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            let (line, rest) = bytes.split_at(end);
            held.extend_from_slice(line);
            row(&held);
            held.clear();
            bytes = rest.get(1..).unwrap_or_default();
        }
        held.extend_from_slice(bytes);
        if held.len() > 2 * MAX_ROW {
            // No row is as long: only its end can still be one's beginning.
            held.drain(..held.len() - MAX_ROW);
        }
    })?;
    row(&held);
    Ok(())
}
