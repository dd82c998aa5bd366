//! Packs bodies as servers do.
#![allow(dead_code, reason = "each test binary uses a part")]
#![allow(clippy::expect_used, reason = "a test may panic, its helpers too")]

use std::io::Write;

use brotli::CompressorWriter;
use flate2::{
    Compression,
    write::{DeflateEncoder, GzEncoder, ZlibEncoder},
};

/// `body`, packed by each coding of the list in turn.
pub(crate) fn pack(codings: &str, body: &[u8]) -> Vec<u8> {
    let coding = |body: Vec<u8>, coding: &str| match &*coding.trim().to_ascii_lowercase() {
        "gzip" | "x-gzip" => gzip(&body),
        "deflate" => zlib(&body),
        "br" => br(&body),
        "zstd" => zstd(&body),
        "identity" | "" => body,
        other => unreachable!("{other}"),
    };
    codings.split(',').fold(body.to_vec(), coding)
}

pub(crate) fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body).expect("memory");
    encoder.finish().expect("memory")
}

pub(crate) fn zlib(body: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body).expect("memory");
    encoder.finish().expect("memory")
}

pub(crate) fn raw_deflate(body: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body).expect("memory");
    encoder.finish().expect("memory")
}

pub(crate) fn br(body: &[u8]) -> Vec<u8> {
    let mut encoder = CompressorWriter::new(Vec::new(), 0, 5, 22);
    encoder.write_all(body).expect("memory");
    encoder.into_inner()
}

/// One frame with its checksum, and without its length, as a streaming server sends it.
pub(crate) fn zstd(body: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 3).expect("an encoder");
    encoder.include_checksum(true).expect("a parameter");
    encoder.write_all(body).expect("memory");
    encoder.finish().expect("memory")
}

/// Each of `events` packed and flushed, as they would be sent; the last piece ends the body.
pub(crate) fn flushed(coding: &str, events: &[&str]) -> Vec<Vec<u8>> {
    let mut pieces = Vec::new();
    match coding {
        "gzip" => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            for event in events {
                encoder.write_all(event.as_bytes()).expect("memory");
                encoder.flush().expect("memory");
                pieces.push(std::mem::take(encoder.get_mut()));
            }
            pieces.push(encoder.finish().expect("memory"));
        }
        "br" => {
            let mut encoder = CompressorWriter::new(Vec::new(), 0, 5, 22);
            for event in events {
                encoder.write_all(event.as_bytes()).expect("memory");
                encoder.flush().expect("memory");
                pieces.push(std::mem::take(encoder.get_mut()));
            }
            pieces.push(encoder.into_inner());
        }
        "zstd" => {
            let mut encoder = zstd::Encoder::new(Vec::new(), 3).expect("an encoder");
            for event in events {
                encoder.write_all(event.as_bytes()).expect("memory");
                encoder.flush().expect("memory");
                pieces.push(std::mem::take(encoder.get_mut()));
            }
            pieces.push(encoder.finish().expect("memory"));
        }
        other => unreachable!("{other}"),
    }
    pieces
}
