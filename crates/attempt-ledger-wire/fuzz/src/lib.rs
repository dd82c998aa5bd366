//! What is tried with any input: it panics nowhere, its chunking changes nothing, and no more is
//! held than the bounds.
//!
//! An input is a few bytes that choose (see [`Choice`]) and, behind them, the body.

#![forbid(unsafe_code)]

use std::path::Path;

use attempt_ledger_core::Facts;
use attempt_ledger_wire::{Evidence, Tap, TapOptions, Wire, read_request};
use http::{
    HeaderMap, HeaderValue, Method,
    header::{CONTENT_ENCODING, CONTENT_TYPE},
};

#[path = "../../tests/support/frames.rs"]
mod frames;

/// A target: under `cargo fuzz` one that it feeds, else a program over files and folders.
#[macro_export]
macro_rules! target {
    ($run:expr) => {
        #[cfg(fuzzing)]
        libfuzzer_sys::fuzz_target!(|input: &[u8]| ($run)(input));

        #[cfg(not(fuzzing))]
        fn main() {
            $crate::over_files($run);
        }
    };
}

/// Media types of a response; the last one means frames that are yet to be made of the body's lines.
pub const MEDIA: &[&str] = &[
    "text/event-stream",
    "application/json",
    "application/x-ndjson",
    "application/vnd.amazon.eventstream",
    "text/plain",
    "text/html",
    "",
    LINES,
];

const LINES: &str = "lines of frames";

pub const STATUSES: &[u16] = &[200, 200, 200, 200, 201, 302, 400, 402, 429, 498, 503, 529];

pub const CODINGS: &[&str] = &["", "gzip", "deflate", "br", "zstd"];

/// Bytes of an input that choose.
pub const CHOICE: usize = 5;

/// Bytes that may be held beyond the longest event or a document's bound.
const BESIDES: usize = 4096;

/// Bytes of memory that the decoders of encodings hold, at most.
const DECODERS: usize = 40 << 20;

/// Bytes of an error's body that are held, at most.
const MAX_ERROR_BODY: usize = 256 * 1024;

/// What the first bytes of an input choose, each by its remainder.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    pub media: u8,
    pub status: u8,
    pub coding: u8,
    /// Bits: content is kept; a done marker is taken for a stop; the bounds are small.
    pub options: u8,
    /// Where the body is cut.
    pub cuts: u8,
}

impl Choice {
    pub fn bytes(self) -> [u8; CHOICE] {
        [self.media, self.status, self.coding, self.options, self.cuts]
    }

    fn of(input: &[u8]) -> Option<(Choice, &[u8])> {
        let (&[media, status, coding, options, cuts], body) = input.split_first_chunk()?;
        Some((Choice { media, status, coding, options, cuts }, body))
    }
}

/// A response on the wire of this name.
pub fn response(wire: &str, input: &[u8]) {
    let Some((choice, body)) = Choice::of(input) else { return };
    let wire = wire.parse().expect("the name of a wire");
    Given::new(wire, Choice { coding: 0, ..choice }, body).check();
}

/// A response that is encoded, or says it is.
pub fn encoding(input: &[u8]) {
    let Some((choice, body)) = Choice::of(input) else { return };
    let wires = [Wire::Plain, Wire::OpenAiChat];
    Given::new(wires[usize::from(choice.options >> 7)], choice, body).check();
}

/// A request on any wire.
pub fn request(input: &[u8]) {
    const PATHS: &[&str] = &[
        "/v1/chat/completions",
        "/openai/deployments/d/chat/completions",
        "/v1/messages",
        "/v1beta/models/m:streamGenerateContent",
        "/v1/projects/p/publishers/google/models/m:generateContent",
        "/model/eu.vendor.m-v1%3A0/converse-stream",
        "/model/anthropic.m/invoke",
        "/api/chat",
        "",
    ];
    let Some((&[wire, path], body)) = input.split_first_chunk() else { return };
    let wire = pick(Wire::ALL, wire);
    let facts = read_request(wire, &Method::POST, pick(PATHS, path), Some(body));
    assert!(facts.understood || facts.effect.is_writes(), "an unread request that does not write");
    assert!(facts.model.is_none_or(|model| model.len() <= 256), "a long name");
    assert!(facts.prompt_chars <= body.len() as u64, "more characters than bytes");
}

/// The first part of a seed for [`request`].
pub fn request_choice(wire: Wire, path: u8) -> [u8; 2] {
    let place = Wire::ALL.iter().position(|other| *other == wire).unwrap_or(0);
    [place as u8, path]
}

fn pick<T: Copy>(list: &[T], by: u8) -> T {
    list[usize::from(by) % list.len()]
}

struct Given {
    wire: Wire,
    status: u16,
    headers: HeaderMap,
    options: TapOptions,
    cuts: u64,
    body: Vec<u8>,
}

impl Given {
    fn new(wire: Wire, choice: Choice, body: &[u8]) -> Self {
        let (mut media, mut body) = (pick(MEDIA, choice.media), body.to_vec());
        if media == LINES {
            media = "application/vnd.amazon.eventstream";
            body = framed(&body);
        }
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
        match pick(CODINGS, choice.coding) {
            "" => {}
            coding => drop(headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding))),
        }
        let bound = if choice.options & 4 == 0 { 1 << 20 } else { 300 };
        let options = TapOptions {
            keep_content: choice.options & 1 == 1,
            accept_done: choice.options & 2 == 2,
            max_body: bound,
            max_event: bound,
            ..TapOptions::default()
        };
        let status = pick(STATUSES, choice.status);
        Given { wire, status, headers, options, cuts: choice.cuts.into(), body }
    }

    fn check(&self) {
        let len = self.body.len().max(1);
        let whole = self.read(|_| len);
        let mut random = self.cuts;
        let some = self.read(|_| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            1 + (random >> 33) as usize % [7, 61, 700][(self.cuts % 3) as usize]
        });
        assert_eq!(whole, some, "cut at random");
        if self.body.len() < 4096 {
            assert_eq!(whole, self.read(|_| 1), "byte by byte");
        }
    }

    fn read(&self, mut size: impl FnMut(usize) -> usize) -> (Facts, Evidence) {
        let decoders = if self.headers.contains_key(CONTENT_ENCODING) { DECODERS } else { 0 };
        // Beside a frame the event that it wraps.
        let bound = 2 * self.options.max_event.max(MAX_ERROR_BODY) + decoders;
        let mut tap = Tap::new(self.wire, self.status, &self.headers, &self.options);
        let (mut progress, mut chars) = (0, 0);
        let mut rest = &self.body[..];
        while !rest.is_empty() {
            let (chunk, after) = rest.split_at(size(rest.len()).min(rest.len()));
            rest = after;
            tap.feed(chunk);
            assert!(tap.held() <= bound + BESIDES, "{} held", tap.held());
            assert!(tap.progress_events() >= progress && tap.facts().text_chars >= chars, "less");
            (progress, chars) = (tap.progress_events(), tap.facts().text_chars);
        }
        tap.finish();
        let evidence = tap.evidence();
        (tap.facts().clone(), evidence)
    }
}

/// Frames with sound checksums, of lines that each hold a name, a tab and a payload. A `!` before
/// the name is an exception, a `*` wraps the payload as InvokeModel does; a line without a tab
/// stands for itself, as bytes of no frame.
fn framed(lines: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    for line in lines.split(|byte| *byte == b'\n') {
        let Some(at) = line.iter().position(|byte| *byte == b'\t') else {
            body.extend_from_slice(line);
            continue;
        };
        let name: String = String::from_utf8_lossy(&line[..at.min(100)]).into_owned();
        let payload = String::from_utf8_lossy(&line[at + 1..]);
        body.extend(match name.as_bytes().first() {
            Some(b'!') => frames::exception(&name[1..], &payload),
            Some(b'*') => frames::chunk(&payload),
            _ => frames::event(&name, &payload),
        });
    }
    body
}

/// Runs a target over the files that are named, and those of the folders.
pub fn over_files(run: impl Fn(&[u8])) {
    let mut paths: Vec<_> = std::env::args_os().skip(1).map(std::path::PathBuf::from).collect();
    let mut count = 0;
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            let folder = std::fs::read_dir(&path).expect("a readable folder");
            paths.extend(folder.map(|entry| entry.expect("a readable folder").path()));
        } else {
            run(&read_file(&path));
            count += 1;
        }
    }
    println!("{count} inputs");
}

fn read_file(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
