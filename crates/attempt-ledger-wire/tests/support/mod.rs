//! A raw HTTP/1.1 response, taken apart far enough to feed a tap.
#![allow(dead_code, reason = "each test binary uses a part")]
#![allow(clippy::expect_used, reason = "a test may panic, its helpers too")]

use attempt_ledger_core::{BodyEnd, Facts, TransportKind};
use attempt_ledger_wire::{Evidence, Tap, TapOptions, Wire};
use http::{HeaderMap, HeaderName, HeaderValue, header::CONTENT_TYPE};

#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) end: BodyEnd,
}

/// `None` when the head is not complete.
pub(crate) fn parse(raw: &[u8]) -> Option<Response> {
    let head_end = raw.windows(4).position(|w| w == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&raw[..head_end]).expect("an ASCII head");
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().expect("a status");
    let mut headers = HeaderMap::new();
    for line in lines {
        let (name, value) = line.split_once(':').expect("a header");
        let name: HeaderName = name.parse().expect("a name");
        headers.append(name, HeaderValue::from_str(value.trim()).expect("a value"));
    }
    let rest = &raw[head_end + 4..];
    let length = headers.get("content-length").and_then(|v| v.to_str().ok()?.parse().ok());
    let (body, whole) = if headers.contains_key("transfer-encoding") {
        dechunk(rest)
    } else if let Some(length) = length {
        (rest[..rest.len().min(length)].to_vec(), rest.len() >= length)
    } else {
        (rest.to_vec(), true)
    };
    let end = if whole { BodyEnd::Complete } else { BodyEnd::Broken(TransportKind::Cut) };
    Some(Response { status, headers, body, end })
}

fn dechunk(mut raw: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    loop {
        let Some(eol) = raw.windows(2).position(|w| w == b"\r\n") else { return (body, false) };
        let line = std::str::from_utf8(&raw[..eol]).unwrap_or_default();
        let size = line.split(';').next().unwrap_or_default().trim();
        let Ok(size) = usize::from_str_radix(size, 16) else { return (body, false) };
        raw = &raw[eol + 2..];
        if size == 0 {
            // Trailers, and the blank line behind them.
            return (body, raw.starts_with(b"\r\n") || raw.windows(4).any(|w| w == b"\r\n\r\n"));
        }
        body.extend_from_slice(&raw[..raw.len().min(size)]);
        if raw.len() < size + 2 {
            return (body, false);
        }
        raw = &raw[size + 2..];
    }
}

/// Feeds `body` cut at `cuts` (any order) and ends the tap as `end` says.
pub(crate) fn read(
    wire: Wire,
    response: &Response,
    options: &TapOptions,
    cuts: &[usize],
) -> (Facts, Evidence) {
    let mut tap = Tap::new(wire, response.status, &response.headers, options);
    let mut cuts: Vec<_> = cuts.iter().map(|cut| cut % (response.body.len() + 1)).collect();
    cuts.sort_unstable();
    let mut from = 0;
    for to in cuts.into_iter().chain([response.body.len()]) {
        tap.feed(&response.body[from..to]);
        from = to;
    }
    if response.end == BodyEnd::Complete {
        tap.finish();
    } else {
        tap.cut();
    }
    let evidence = tap.evidence();
    (tap.facts().clone(), evidence)
}

pub(crate) fn headers(media: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(media))])
}

pub(crate) fn response(media: &'static str, body: impl Into<Vec<u8>>) -> Response {
    Response { status: 200, headers: headers(media), body: body.into(), end: BodyEnd::Complete }
}

/// A small generator; the seed is all its state.
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n.max(1) as u64) as usize
    }
}

/// The seed of the random suites, from `SEED`.
pub(crate) fn seed() -> u64 {
    std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1)
}
