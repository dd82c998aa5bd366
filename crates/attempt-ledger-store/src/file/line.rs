//! One row as one line: `{…,"h":"<64 hex>","c":"<8 hex>"}\n`. The only place that writes or reads it.

use attempt_ledger_core::{Digest, Event, Record, Timestamp};
use sha2::{Digest as _, Sha256};

/// A row with its newline has at most this many bytes.
pub(crate) const MAX_ROW: usize = 64 * 1024;

/// Version of a row.
pub(crate) const VERSION: u32 = 1;

/// `,"c":"` 8 digits `"}`.
const CRC_FRAME: usize = 6 + 8 + 2;
/// `,"h":"` 64 digits `"`, and the checksum's.
const FRAME: usize = 6 + 64 + 1 + CRC_FRAME;

/// Where a chain stands: the number of the next row, and the hash of the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chain {
    pub(crate) seq: u64,
    pub(crate) hash: [u8; 32],
}

impl Chain {
    /// Before the first row: the hash of the `FORMAT` file, so that it is chained too.
    pub(crate) fn start(format: &[u8]) -> Self {
        Chain { seq: 0, hash: *Digest::of(format).as_bytes() }
    }

    fn next(&self, body: &[u8]) -> [u8; 32] {
        let mut sha = Sha256::new();
        sha.update(b"attempt-ledger/1\n");
        sha.update(self.hash);
        sha.update(body);
        sha.finalize().into()
    }
}

/// Why an event could not become a line.
#[derive(Debug)]
pub(crate) enum FrameError {
    TooLong { bytes: usize },
    Json,
}

/// Appends an event's line to `out`, and moves the chain. On an error nothing has changed.
pub(crate) fn write(
    out: &mut Vec<u8>,
    chain: &mut Chain,
    time: &str,
    event: &Event,
) -> Result<(), FrameError> {
    let start = out.len();
    let result = write_inner(out, start, chain, time, event);
    match result {
        Ok(hash) => *chain = Chain { seq: chain.seq + 1, hash },
        Err(_) => out.truncate(start),
    }
    result.map(|_| ())
}

fn write_inner(
    out: &mut Vec<u8>,
    start: usize,
    chain: &Chain,
    time: &str,
    event: &Event,
) -> Result<[u8; 32], FrameError> {
    out.extend_from_slice(b"{\"v\":1,\"seq\":");
    push_decimal(out, chain.seq);
    out.extend_from_slice(b",\"time\":\"");
    out.extend_from_slice(time.as_bytes());
    out.push(b'"');
    // The event's own object is spliced into the row's: its opening brace becomes the comma, its
    // closing one goes. Serialising it once is what keeps a row under a microsecond.
    let spliced = out.len();
    serde_json::to_writer(&mut *out, event).map_err(|_| FrameError::Json)?;
    match out.get_mut(spliced) {
        Some(brace) if *brace == b'{' => *brace = b',',
        _ => return Err(FrameError::Json),
    }
    if out.pop() != Some(b'}') {
        return Err(FrameError::Json);
    }
    let bytes = out.len() - start + FRAME + 1;
    if bytes > MAX_ROW {
        return Err(FrameError::TooLong { bytes });
    }
    let hash = chain.next(out.get(start..).unwrap_or_default());
    out.extend_from_slice(b",\"h\":\"");
    push_hex(out, &hash);
    out.push(b'"');
    let crc = crc32c::crc32c(out.get(start..).unwrap_or_default());
    out.extend_from_slice(b",\"c\":\"");
    push_hex(out, &crc.to_be_bytes());
    out.extend_from_slice(b"\"}\n");
    Ok(hash)
}

fn push_decimal(out: &mut Vec<u8>, number: u64) {
    let mut digits = [0; 20];
    let mut rest = number;
    let mut used = 0;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
        used += 1;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(digits.len() - used..).unwrap_or_default());
}

fn push_hex<const N: usize>(out: &mut Vec<u8>, bytes: &[u8; N]) {
    let digit = |d: u8| if d < 10 { b'0' + d } else { b'a' + d - 10 };
    let pairs = bytes.map(|byte| [digit(byte >> 4), digit(byte & 0xf)]);
    out.extend_from_slice(pairs.as_flattened());
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It has not the shape of a row.
    Shape,
    /// Its checksum is of other bytes.
    Checksum,
    /// Its hash does not follow from the row before.
    Chain,
    /// It has another number than the one that is due.
    Sequence,
    /// It is of a later version.
    Version(u64),
    /// It is of an event of a later version.
    Kind(String),
    /// It is a row, but not of an event.
    Content(String),
}

/// A line that has the shape of a row and its checksum.
#[derive(Debug)]
pub(crate) struct Sound<'a> {
    /// The bytes before `,"h"`.
    body: &'a [u8],
    hash: [u8; 32],
}

impl<'a> Sound<'a> {
    /// Takes a line, without its newline.
    pub(crate) fn new(line: &'a [u8]) -> Result<Self, Fault> {
        if line.len() >= MAX_ROW {
            return Err(Fault::Shape);
        }
        let (summed, end) =
            line.split_at_checked(line.len().wrapping_sub(CRC_FRAME)).ok_or(Fault::Shape)?;
        let crc = end.strip_prefix(b",\"c\":\"").and_then(|end| end.strip_suffix(b"\"}"));
        let crc: [u8; 4] = crc.and_then(read_hex).ok_or(Fault::Shape)?;
        let body_len = line.len().wrapping_sub(FRAME);
        let (body, hash) = summed.split_at_checked(body_len).ok_or(Fault::Shape)?;
        let hash = hash.strip_prefix(b",\"h\":\"").and_then(|hash| hash.strip_suffix(b"\""));
        let hash = hash.and_then(read_hex).ok_or(Fault::Shape)?;
        if crc32c::crc32c(summed).to_be_bytes() != crc {
            return Err(Fault::Checksum);
        }
        Ok(Sound { body, hash })
    }

    /// Checks that this is the next row of `chain`, and moves it.
    pub(crate) fn follow(&self, chain: &mut Chain) -> Result<(), Fault> {
        let (seq, _) = self.seq()?;
        if chain.next(self.body) != self.hash {
            return Err(Fault::Chain);
        }
        if seq != chain.seq {
            return Err(Fault::Sequence);
        }
        *chain = Chain { seq: seq + 1, hash: self.hash };
        Ok(())
    }

    /// Reads version and number; gives the rest of the body, from `,"time"` on.
    fn seq(&self) -> Result<(u64, &'a [u8]), Fault> {
        let rest = self.body.strip_prefix(b"{\"v\":").ok_or(Fault::Shape)?;
        let (version, rest) = read_decimal(rest).ok_or(Fault::Shape)?;
        if version != u64::from(VERSION) {
            return Err(Fault::Version(version));
        }
        let rest = rest.strip_prefix(b",\"seq\":").ok_or(Fault::Shape)?;
        read_decimal(rest).ok_or(Fault::Shape)
    }

    /// Reads the event. `scratch` is overwritten.
    pub(crate) fn record(&self, scratch: &mut Vec<u8>) -> Result<Record, Fault> {
        let content = |error: serde_json::Error| Fault::Content(error.to_string());
        let (seq, rest) = self.seq()?;
        let rest = rest.strip_prefix(b",\"time\":").ok_or(Fault::Shape)?;
        // `"2026-04-14T09:30:00.000000Z"`: a moment of four-digit years has 29 bytes with quotes.
        let end = memchr::memchr(b',', rest).ok_or(Fault::Shape)?;
        let (time, rest) = rest.split_at_checked(end).ok_or(Fault::Shape)?;
        let time: Timestamp = serde_json::from_slice(time).map_err(content)?;
        let rest = rest.strip_prefix(b",\"kind\":\"").ok_or(Fault::Shape)?;
        let end = memchr::memchr(b'"', rest).ok_or(Fault::Shape)?;
        let (kind, rest) = rest.split_at_checked(end).ok_or(Fault::Shape)?;
        let rest = rest.strip_prefix(b"\",").ok_or(Fault::Shape)?;
        scratch.clear();
        scratch.push(b'{');
        scratch.extend_from_slice(rest);
        scratch.push(b'}');
        // By the word, since a tagged enum would first be read into a tree.
        let json = &scratch[..];
        let event = match kind {
            b"run" => serde_json::from_slice(json).map(Event::Run),
            b"planned" => serde_json::from_slice(json).map(Event::Planned),
            b"session" => serde_json::from_slice(json).map(Event::Session),
            b"opened" => serde_json::from_slice(json).map(Event::Opened),
            b"closed" => serde_json::from_slice(json).map(Event::Closed),
            b"scored" => serde_json::from_slice(json).map(Event::Scored),
            b"also_graded" => serde_json::from_slice(json).map(Event::AlsoGraded),
            b"diagnostic" => serde_json::from_slice(json).map(Event::Diagnostic),
            b"grade_refused" => serde_json::from_slice(json).map(Event::GradeRefused),
            b"note" => serde_json::from_slice(json).map(Event::Note),
            b"unrecorded" => serde_json::from_slice(json).map(Event::Unrecorded),
            b"segment" => serde_json::from_slice(json).map(Event::Segment),
            b"sealed" => serde_json::from_slice(json).map(Event::Sealed),
            other => {
                let kind = String::from_utf8_lossy(other);
                return Err(Fault::Kind(kind.into_owned()));
            }
        };
        Ok(Record { seq, time, event: event.map_err(content)? })
    }
}

/// Whether the line starts with the next row of `chain`, cut off by something else than a newline.
pub(crate) fn has_row_as_prefix(line: &[u8], chain: &Chain) -> bool {
    memchr::memmem::find_iter(line, b"\"}").any(|at| {
        let end = at + 2;
        end < line.len()
            && line
                .get(..end)
                .and_then(|row| Sound::new(row).ok())
                .is_some_and(|row| row.follow(&mut chain.clone()).is_ok())
    })
}

/// A number without leading zeros, and what follows it.
fn read_decimal(text: &[u8]) -> Option<(u64, &[u8])> {
    let end = text.iter().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at_checked(end)?;
    if digits.is_empty() || (digits.len() > 1 && digits.first() == Some(&b'0')) {
        return None;
    }
    let number = digits
        .iter()
        .try_fold(0_u64, |n, d| n.checked_mul(10)?.checked_add(u64::from(d - b'0')))?;
    Some((number, rest))
}

fn read_hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    if text.len() != 2 * N {
        return None;
    }
    let mut out = [0; N];
    for (byte, pair) in out.iter_mut().zip(text.chunks_exact(2)) {
        for &c in pair {
            let digit = match c {
                b'0'..=b'9' => c - b'0',
                b'a'..=b'f' => c - b'a' + 10,
                _ => return None,
            };
            *byte = *byte << 4 | digit;
        }
    }
    Some(out)
}
