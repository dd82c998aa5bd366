use base64::{
    Engine as _,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use serde::Deserialize;

use crate::{
    event::{Event, Kind, Sink},
    json::{self, Obj, Text},
};

/// Bytes of the two lengths that a frame begins with, and of their checksum.
const PRELUDE: usize = 12;

/// Bytes of the checksum that a frame ends with.
const CHECKSUM: usize = 4;

/// Bytes of a frame's headers, at most, as AWS has it.
const MAX_HEADERS: usize = 128 * 1024;

/// Bytes of an event's name that are kept.
const MAX_NAME: usize = 64;

/// How much a buffer grows at once, at least.
const STEP: usize = 512;

/// What a frame says that wraps an event of the model's vendor, as JSON in base64.
const CHUNK: &str = "chunk";

/// Splits a byte stream of any chunking into binary frames, and checks both checksums of each.
///
/// A frame that lies in one chunk is lent from it; only the unfinished tail is copied. The lengths
/// are checked as soon as they are there, so that a damaged one is never waited for. A frame
/// without a payload is no event, unless it reports an error.
#[derive(Debug)]
pub(crate) struct Frames {
    /// The unfinished frame.
    tail: Vec<u8>,
    /// How long the tail must be: the prelude's length, or once that is there the frame's.
    want: usize,
    /// The event that the last frame wrapped.
    inner: Vec<u8>,
    max: usize,
    closed: bool,
}

/// Why the reading ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Broken,
    OverBound,
}

impl Frames {
    pub(crate) fn new(max: usize) -> Self {
        Frames { tail: Vec::new(), want: PRELUDE, inner: Vec::new(), max, closed: false }
    }

    pub(crate) fn held(&self) -> usize {
        self.tail.capacity() + self.inner.capacity()
    }

    pub(crate) fn feed(&mut self, mut bytes: &[u8], sink: &mut impl Sink) {
        while !self.closed && !bytes.is_empty() {
            let read = if self.tail.is_empty() && bytes.len() >= PRELUDE {
                self.lent(&mut bytes, sink)
            } else {
                self.kept(&mut bytes, sink)
            };
            if let Err(wrong) = read {
                self.close();
                match wrong {
                    Wrong::Broken => sink.broken(),
                    Wrong::OverBound => sink.over_bound(),
                }
            }
        }
    }

    /// The input has ended: a frame without its checksum is not known to be sound, and dropped.
    pub(crate) fn finish(&mut self, _sink: &mut impl Sink) {
        self.close();
    }

    pub(crate) fn close(&mut self) {
        self.closed = true;
        self.tail = Vec::new();
        self.inner = Vec::new();
    }

    /// A frame begins here: hands it on if it lies whole in the chunk.
    fn lent(&mut self, bytes: &mut &[u8], sink: &mut impl Sink) -> Result<(), Wrong> {
        let len = frame_len(bytes, self.max)?;
        match bytes.split_at_checked(len) {
            Some((frame, rest)) => {
                *bytes = rest;
                self.hand_on(frame, sink)
            }
            None => {
                self.want = len;
                self.keep(bytes);
                *bytes = &[];
                Ok(())
            }
        }
    }

    /// A frame goes on that an earlier chunk began, or one whose lengths are not whole yet.
    fn kept(&mut self, bytes: &mut &[u8], sink: &mut impl Sink) -> Result<(), Wrong> {
        let missing = self.want.saturating_sub(self.tail.len());
        let (taken, rest) = bytes.split_at(missing.min(bytes.len()));
        *bytes = rest;
        self.keep(taken);
        if self.tail.len() < self.want {
            return Ok(());
        }
        if self.want == PRELUDE {
            self.want = frame_len(&self.tail, self.max)?;
            return Ok(());
        }
        let mut frame = std::mem::take(&mut self.tail);
        self.hand_on(&frame, sink)?;
        self.want = PRELUDE;
        if !self.closed {
            frame.clear();
            self.tail = frame;
        }
        Ok(())
    }

    /// Holds little beyond what came: a length that is only stated reserves nothing.
    fn keep(&mut self, bytes: &[u8]) {
        if self.tail.capacity() - self.tail.len() < bytes.len() {
            let missing = self.want.saturating_sub(self.tail.len());
            let more = bytes.len().max(self.tail.len().min(missing)).max(STEP);
            self.tail.reserve_exact(more);
        }
        self.tail.extend_from_slice(bytes);
    }

    fn hand_on(&mut self, frame: &[u8], sink: &mut impl Sink) -> Result<(), Wrong> {
        let (body, checksum) = frame.split_at(frame.len().saturating_sub(CHECKSUM));
        if word(checksum, 0) != Some(crc32fast::hash(body)) {
            return Err(Wrong::Broken);
        }
        let headers_len = length(frame, 4).ok_or(Wrong::Broken)?;
        let rest = body.get(PRELUDE..).ok_or(Wrong::Broken)?;
        let (headers, payload) = rest.split_at_checked(headers_len).ok_or(Wrong::Broken)?;
        let Headers { message_type, event_type, exception_type, error_code } =
            Headers::read(headers).ok_or(Wrong::Broken)?;
        let (kind, name, mut data) = match message_type {
            "exception" => (Kind::Exception, exception_type, payload),
            "error" => (Kind::Exception, error_code, &[][..]),
            _ => (Kind::Data, event_type, payload),
        };
        if kind == Kind::Data && name == CHUNK {
            self.inner.clear();
            data = unwrapped(data, &mut self.inner)?;
        }
        let is_event = kind == Kind::Exception || !data.trim_ascii().is_empty();
        let event = Event { data, name: cut(name), kind, complete: true };
        if is_event && !sink.event(event) {
            self.close();
        }
        Ok(())
    }
}

/// The length of the frame that begins with `bytes`, which hold its prelude.
fn frame_len(bytes: &[u8], max: usize) -> Result<usize, Wrong> {
    let broken = Wrong::Broken;
    let lengths = bytes.get(..PRELUDE - CHECKSUM).ok_or(broken)?;
    if word(bytes, PRELUDE - CHECKSUM) != Some(crc32fast::hash(lengths)) {
        return Err(broken);
    }
    let len = length(bytes, 0).ok_or(broken)?;
    let headers = length(bytes, 4).ok_or(broken)?;
    let room = len.checked_sub(PRELUDE + CHECKSUM).ok_or(broken)?;
    if headers > room.min(MAX_HEADERS) {
        return Err(broken);
    }
    if len > max { Err(Wrong::OverBound) } else { Ok(len) }
}

/// The headers that say what a frame is; empty where they are missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Headers<'a> {
    message_type: &'a str,
    event_type: &'a str,
    exception_type: &'a str,
    error_code: &'a str,
}

impl<'a> Headers<'a> {
    /// `None` if one is cut, or has a type whose length is not known.
    fn read(mut bytes: &'a [u8]) -> Option<Self> {
        let mut headers = Headers::default();
        while let Some((&len, rest)) = bytes.split_first() {
            let (name, rest) = rest.split_at_checked(usize::from(len))?;
            let (&kind, rest) = rest.split_first()?;
            let (len, rest) = match kind {
                // True and false.
                0 | 1 => (0, rest),
                2 => (1, rest),
                3 => (2, rest),
                4 => (4, rest),
                // A long and a time.
                5 | 8 => (8, rest),
                // Bytes and a string.
                6 | 7 => {
                    let (len, rest) = rest.split_first_chunk::<2>()?;
                    (usize::from(u16::from_be_bytes(*len)), rest)
                }
                // A UUID.
                9 => (16, rest),
                _ => return None,
            };
            let (value, rest) = rest.split_at_checked(len)?;
            bytes = rest;
            let slot = match name {
                b":message-type" => &mut headers.message_type,
                b":event-type" => &mut headers.event_type,
                b":exception-type" => &mut headers.exception_type,
                b":error-code" => &mut headers.error_code,
                _ => continue,
            };
            if kind == 7 {
                *slot = std::str::from_utf8(value).unwrap_or_default();
            }
        }
        Some(headers)
    }
}

/// The event within a payload `{"bytes": ...}`; any other object is the event itself.
fn unwrapped<'a>(payload: &'a [u8], inner: &'a mut Vec<u8>) -> Result<&'a [u8], Wrong> {
    #[derive(Deserialize)]
    struct Part<'a> {
        #[serde(borrow, default)]
        bytes: Option<Text<'a>>,
    }
    if payload.trim_ascii().is_empty() {
        return Ok(payload);
    }
    let mut mended = None;
    let Ok(Obj(part)) = json::parse::<Obj<Part<'_>>>(payload, &mut mended) else {
        return Err(Wrong::Broken);
    };
    match part.bytes {
        Some(Text(bytes)) => {
            BASE64.decode_vec(bytes.as_bytes(), inner).map_err(|_| Wrong::Broken)?;
            Ok(inner)
        }
        None => Ok(payload),
    }
}

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Its beginning, at most so long as a name may be.
fn cut(name: &str) -> &str {
    let within = (0..=MAX_NAME.min(name.len())).rev().find_map(|len| name.get(..len));
    within.unwrap_or_default()
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn length(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(word(bytes, at)?).ok()
}

#[cfg(test)]
mod tests;
