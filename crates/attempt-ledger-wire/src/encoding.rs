//! Undoes `Content-Encoding`, byte by byte as the body comes.
//!
//! `gzip`, `deflate`, and by their features `br` and `zstd`; up to three of them, one upon the
//! other. In every chunking the same bytes come out, also where a bound is passed or a byte is
//! wrong: what was unpacked before it counts.

#[cfg(feature = "br")]
mod brotli;
#[cfg(feature = "zstd")]
mod zstd;

use std::io::{ErrorKind, Write};

use attempt_ledger_core::Uninspected;
use flate2::write::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use http::{HeaderMap, header};

/// Encoded bytes that are unpacked before the ratio is looked at; blocks of this length by their
/// place in the body, so that the chunking of the transfer changes nothing.
const BLOCK: u64 = 512;

/// A ratio says nothing before this much was unpacked.
const RATIO_FROM: u64 = 256 * 1024;

/// Codings of one body, at most.
const MAX_STACKED: usize = 3;

/// Unpacked bytes that are handed on at once, at most, by the newer codings.
#[cfg(any(feature = "br", feature = "zstd"))]
const PIECE: usize = 4096;

/// How a body is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    Identity,
    /// In the order in which they were applied.
    Packed([Option<Format>; MAX_STACKED]),
    /// One that is not known here, or too many.
    Unknown,
}

/// A coding that is undone here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Gzip,
    Deflate,
    #[cfg(feature = "br")]
    Brotli,
    #[cfg(feature = "zstd")]
    Zstd,
}

impl Coding {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut found = [None; MAX_STACKED];
        let mut free = found.iter_mut();
        for value in headers.get_all(header::CONTENT_ENCODING) {
            let Ok(list) = value.to_str() else { return Coding::Unknown };
            for name in list.split(',').map(str::trim) {
                if name.is_empty() || name.eq_ignore_ascii_case("identity") {
                    continue;
                }
                match (free.next(), Format::named(name)) {
                    (Some(free), Some(format)) => *free = Some(format),
                    _ => return Coding::Unknown,
                }
            }
        }
        if found == [None; MAX_STACKED] { Coding::Identity } else { Coding::Packed(found) }
    }
}

impl Format {
    fn named(name: &str) -> Option<Self> {
        let is = |word: &str| name.eq_ignore_ascii_case(word);
        match () {
            () if is("gzip") || is("x-gzip") => Some(Format::Gzip),
            () if is("deflate") => Some(Format::Deflate),
            #[cfg(feature = "br")]
            () if is("br") => Some(Format::Brotli),
            #[cfg(feature = "zstd")]
            () if is("zstd") => Some(Format::Zstd),
            () => None,
        }
    }
}

/// Why unpacking ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    /// The bytes are not what the encoding says.
    Corrupt,
    /// They end before the encoding says so.
    Short,
    /// They may be sound, and are over a bound or need what is not here.
    Unread(Uninspected),
}

/// A window over the bound.
#[cfg(any(feature = "br", feature = "zstd"))]
const fn too_large() -> Failed {
    Failed::Unread(Uninspected::Size)
}

/// Takes what was unpacked; its failure ends the unpacking.
type Sink<'a> = dyn FnMut(&[u8]) -> Result<(), Failed> + 'a;

/// Unpacks a body as it arrives, with every byte that can be had from what has arrived.
#[derive(Debug)]
pub(crate) struct Inflate {
    /// In the order in which they are undone.
    stages: Vec<Stage>,
    input: u64,
    max_ratio: u32,
}

/// One coding's part.
#[derive(Debug)]
struct Stage {
    unpacker: Unpacker,
    begun: bool,
    output: u64,
}

#[derive(Debug)]
enum Unpacker {
    Gzip(MultiGzDecoder<Vec<u8>>),
    Zlib(ZlibDecoder<Vec<u8>>),
    /// Some servers call this deflate, too.
    Raw(DeflateDecoder<Vec<u8>>),
    /// The first byte will tell which.
    Deflate,
    #[cfg(feature = "br")]
    Brotli(brotli::Brotli),
    #[cfg(feature = "zstd")]
    Zstd(Box<zstd::Zstd>),
}

impl Inflate {
    /// `None` for a coding that is not unpacked here.
    pub(crate) fn new(coding: Coding, max_ratio: u32) -> Option<Self> {
        let Coding::Packed(formats) = coding else { return None };
        let stage = |format| Stage { unpacker: Unpacker::new(format), begun: false, output: 0 };
        let stages = formats.into_iter().rev().flatten().map(stage).collect();
        Some(Inflate { stages, input: 0, max_ratio })
    }

    pub(crate) fn feed(
        &mut self,
        mut bytes: &[u8],
        mut take: impl FnMut(&[u8]),
    ) -> Result<(), Failed> {
        while !bytes.is_empty() {
            let left = usize::try_from(BLOCK - self.input % BLOCK).unwrap_or(usize::MAX);
            let (block, rest) = bytes.split_at(left.min(bytes.len()));
            bytes = rest;
            // What the whole block allows is allowed from its first byte on.
            let allowed = self.allowed((self.input / BLOCK + 1) * BLOCK);
            self.input += block.len() as u64;
            unpack(&mut self.stages, block, allowed, &mut take)?;
        }
        Ok(())
    }

    /// The input has ended; an error if the encoding says that more should come.
    pub(crate) fn finish(&mut self) -> Result<(), Failed> {
        let allowed = self.allowed(self.input);
        if self.stages.iter().any(|stage| stage.output > allowed) {
            return Err(Failed::Unread(Uninspected::Ratio));
        }
        self.stages.iter_mut().try_for_each(Stage::finish)
    }

    /// Bytes of memory that the decoders hold, about.
    pub(crate) fn held(&self) -> usize {
        self.stages.iter().map(|stage| stage.unpacker.held()).sum()
    }

    fn allowed(&self, input: u64) -> u64 {
        input.saturating_mul(self.max_ratio.into()).max(RATIO_FROM)
    }
}

/// Hands `bytes` through all `stages`; none of them makes more than `allowed` bytes in all.
fn unpack(
    stages: &mut [Stage],
    bytes: &[u8],
    allowed: u64,
    take: &mut dyn FnMut(&[u8]),
) -> Result<(), Failed> {
    let Some((stage, rest)) = stages.split_first_mut() else {
        take(bytes);
        return Ok(());
    };
    stage.begun |= !bytes.is_empty();
    let output = &mut stage.output;
    stage.unpacker.unpack(bytes, &mut |unpacked| {
        let room = usize::try_from(allowed.saturating_sub(*output)).unwrap_or(usize::MAX);
        let (fits, over) = unpacked.split_at(room.min(unpacked.len()));
        *output += fits.len() as u64;
        if !fits.is_empty() {
            unpack(rest, fits, allowed, take)?;
        }
        if over.is_empty() { Ok(()) } else { Err(Failed::Unread(Uninspected::Ratio)) }
    })
}

impl Stage {
    fn finish(&mut self) -> Result<(), Failed> {
        if self.begun { self.unpacker.finish() } else { Ok(()) }
    }
}

impl Unpacker {
    fn new(format: Format) -> Self {
        match format {
            Format::Gzip => Unpacker::Gzip(MultiGzDecoder::new(Vec::new())),
            Format::Deflate => Unpacker::Deflate,
            #[cfg(feature = "br")]
            Format::Brotli => Unpacker::Brotli(brotli::Brotli::new()),
            #[cfg(feature = "zstd")]
            Format::Zstd => Unpacker::Zstd(Box::new(zstd::Zstd::new())),
        }
    }

    fn unpack(&mut self, bytes: &[u8], sink: &mut Sink<'_>) -> Result<(), Failed> {
        if let (Unpacker::Deflate, Some(first)) = (&self, bytes.first()) {
            *self = match first & 0x0f {
                8 => Unpacker::Zlib(ZlibDecoder::new(Vec::new())),
                _ => Unpacker::Raw(DeflateDecoder::new(Vec::new())),
            };
        }
        match self {
            Unpacker::Gzip(gzip) => inflate(gzip, MultiGzDecoder::get_mut, bytes, sink),
            Unpacker::Zlib(zlib) => inflate(zlib, ZlibDecoder::get_mut, bytes, sink),
            Unpacker::Raw(raw) => inflate(raw, DeflateDecoder::get_mut, bytes, sink),
            Unpacker::Deflate => Ok(()),
            #[cfg(feature = "br")]
            Unpacker::Brotli(brotli) => brotli.unpack(bytes, sink),
            #[cfg(feature = "zstd")]
            Unpacker::Zstd(zstd) => zstd.unpack(bytes, sink),
        }
    }

    fn finish(&mut self) -> Result<(), Failed> {
        let finished = match self {
            Unpacker::Gzip(gzip) => gzip.try_finish(),
            Unpacker::Zlib(zlib) => zlib.try_finish(),
            Unpacker::Raw(raw) => raw.try_finish(),
            Unpacker::Deflate => return Ok(()),
            #[cfg(feature = "br")]
            Unpacker::Brotli(brotli) => return brotli.finish(),
            #[cfg(feature = "zstd")]
            Unpacker::Zstd(zstd) => return zstd.finish(),
        };
        finished.map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => Failed::Short,
            _ => Failed::Corrupt,
        })
    }

    fn held(&self) -> usize {
        match self {
            Unpacker::Gzip(_) | Unpacker::Zlib(_) | Unpacker::Raw(_) => DEFLATE_HELD,
            Unpacker::Deflate => 0,
            #[cfg(feature = "br")]
            Unpacker::Brotli(brotli) => brotli.held(),
            #[cfg(feature = "zstd")]
            Unpacker::Zstd(zstd) => zstd.held(),
        }
    }
}

/// What a decoder of the deflate family holds: its tables and window, and a buffer.
const DEFLATE_HELD: usize = 84 * 1024;

fn inflate<U: Write>(
    unpacker: &mut U,
    unpacked: fn(&mut U) -> &mut Vec<u8>,
    bytes: &[u8],
    sink: &mut Sink<'_>,
) -> Result<(), Failed> {
    for block in bytes.chunks(BLOCK as usize) {
        let written = unpacker.write_all(block);
        // What came before the error counts, in any chunking.
        let flushed = unpacker.flush();
        let unpacked = unpacked(unpacker);
        if !unpacked.is_empty() {
            let taken = sink(unpacked);
            unpacked.clear();
            unpacked.shrink_to(4096);
            taken?;
        }
        written.and(flushed).map_err(|_| Failed::Corrupt)?;
    }
    Ok(())
}
