use std::io::{ErrorKind, Write};

use flate2::write::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use http::{HeaderMap, header};

/// Encoded bytes after which the ratio is looked at; every block of this length, by its place in
/// the body, so that the chunking of the transfer changes nothing.
const BLOCK: u64 = 512;

/// A ratio says nothing before this much was unpacked.
const RATIO_FROM: u64 = 256 * 1024;

/// How a body is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    Identity,
    Gzip,
    Deflate,
    /// One that is not known here, or more than one.
    Unknown,
}

impl Coding {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut found = Coding::Identity;
        for value in headers.get_all(header::CONTENT_ENCODING) {
            let Ok(list) = value.to_str() else { return Coding::Unknown };
            for name in list.split(',').map(str::trim) {
                let is = |word: &str| name.eq_ignore_ascii_case(word);
                let coding = match () {
                    () if name.is_empty() || is("identity") => continue,
                    () if is("gzip") || is("x-gzip") => Coding::Gzip,
                    () if is("deflate") => Coding::Deflate,
                    () => Coding::Unknown,
                };
                found = if found == Coding::Identity { coding } else { Coding::Unknown };
            }
        }
        found
    }
}

/// Why unpacking ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    /// The bytes are not what the encoding says.
    Corrupt,
    /// They end before the encoding says so.
    Short,
    /// They unpack to more than the allowed ratio.
    Ratio,
}

/// Unpacks a body as it arrives, with every byte that can be had from what has arrived.
#[derive(Debug)]
pub(crate) struct Inflate {
    unpacker: Unpacker,
    input: u64,
    output: u64,
    max_ratio: u32,
}

#[derive(Debug)]
enum Unpacker {
    Gzip(MultiGzDecoder<Vec<u8>>),
    Zlib(ZlibDecoder<Vec<u8>>),
    /// Some servers call this deflate, too.
    Raw(DeflateDecoder<Vec<u8>>),
    /// The first byte will tell which.
    Deflate,
}

impl Inflate {
    /// `None` for a coding that is not unpacked here.
    pub(crate) fn new(coding: Coding, max_ratio: u32) -> Option<Self> {
        let unpacker = match coding {
            Coding::Gzip => Unpacker::Gzip(MultiGzDecoder::new(Vec::new())),
            Coding::Deflate => Unpacker::Deflate,
            Coding::Identity | Coding::Unknown => return None,
        };
        Some(Inflate { unpacker, input: 0, output: 0, max_ratio })
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
            self.input += block.len() as u64;
            let unpacked = self.unpacker.unpack(block);
            self.output += self.unpacker.drain(&mut take) as u64;
            if unpacked.is_err() {
                return Err(Failed::Corrupt);
            }
            if self.input.is_multiple_of(BLOCK) {
                self.check_ratio()?;
            }
        }
        Ok(())
    }

    /// The input has ended; an error if the encoding says that more should come.
    pub(crate) fn finish(&mut self) -> Result<(), Failed> {
        self.check_ratio()?;
        let finished = match &mut self.unpacker {
            _ if self.input == 0 => return Ok(()),
            Unpacker::Gzip(gzip) => gzip.try_finish(),
            Unpacker::Zlib(zlib) => zlib.try_finish(),
            Unpacker::Raw(raw) => raw.try_finish(),
            Unpacker::Deflate => return Ok(()),
        };
        finished.map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => Failed::Short,
            _ => Failed::Corrupt,
        })
    }

    fn check_ratio(&self) -> Result<(), Failed> {
        let allowed = self.input.saturating_mul(self.max_ratio.into()).max(RATIO_FROM);
        if self.output > allowed { Err(Failed::Ratio) } else { Ok(()) }
    }
}

impl Unpacker {
    fn unpack(&mut self, block: &[u8]) -> std::io::Result<()> {
        if let (Unpacker::Deflate, Some(first)) = (&self, block.first()) {
            *self = match first & 0x0f {
                8 => Unpacker::Zlib(ZlibDecoder::new(Vec::new())),
                _ => Unpacker::Raw(DeflateDecoder::new(Vec::new())),
            };
        }
        match self {
            Unpacker::Gzip(gzip) => write(gzip, block),
            Unpacker::Zlib(zlib) => write(zlib, block),
            Unpacker::Raw(raw) => write(raw, block),
            Unpacker::Deflate => Ok(()),
        }
    }

    fn drain(&mut self, take: &mut impl FnMut(&[u8])) -> usize {
        let unpacked = match self {
            Unpacker::Gzip(gzip) => gzip.get_mut(),
            Unpacker::Zlib(zlib) => zlib.get_mut(),
            Unpacker::Raw(raw) => raw.get_mut(),
            Unpacker::Deflate => return 0,
        };
        let len = unpacked.len();
        if len > 0 {
            take(unpacked);
            unpacked.clear();
            unpacked.shrink_to(4096);
        }
        len
    }
}

fn write(unpacker: &mut impl Write, block: &[u8]) -> std::io::Result<()> {
    let written = unpacker.write_all(block);
    // What came before the error counts, in any chunking.
    let flushed = unpacker.flush();
    written.and(flushed)
}
