//! Responses of every sort a server may send, from a seed.

use std::io::Write;

use bytes::Bytes;
use fastrand::Rng;

/// What a server sends for one request, whatever carries it.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    pub(crate) status: u16,
    /// Of HTTP/1; `None` is the usual one.
    pub(crate) reason: Option<&'static [u8]>,
    pub(crate) headers: Vec<(&'static str, Vec<u8>)>,
    pub(crate) framing: Framing,
    /// The body, as it is handed to the transport: chunks of HTTP/1, data frames of HTTP/2.
    pub(crate) pieces: Vec<Bytes>,
    pub(crate) trailers: Vec<(&'static str, Vec<u8>)>,
    /// The transfer ends so many bytes too early.
    pub(crate) cut: Option<usize>,
    /// Seed of the borders at which the bytes arrive.
    pub(crate) borders: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    Length,
    Chunked {
        extensions: bool,
    },
    /// Until the connection closes; with HTTP/1.0 or 1.1.
    Close {
        old: bool,
    },
    /// Without a body by its status, or by the request's method; maybe with a length all the same.
    None {
        says: Option<usize>,
    },
}

impl Answer {
    /// Of its body.
    pub(crate) fn length(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum()
    }
}

/// More than a `Whole` gate holds.
const HUGE: usize = (8 << 20) + 70_001;

/// The answer number `round` of a series: three of a thousand are longer than any gate holds.
pub(crate) fn answer(random: &mut Rng, round: usize) -> Answer {
    let status = *random.choice(STATUSES).expect("one");
    let method = *random.choice(&["POST", "POST", "POST", "POST", "GET", "HEAD"]).expect("one");
    let path = *random
        .choice(&["/v1/chat/completions", "/v1/chat/completions", "/v1/other"])
        .expect("one");
    let bodyless = method == "HEAD" || matches!(status, 204 | 304);
    let (media, mut body) = if matches!(round, 211 | 499 | 823) {
        ("application/octet-stream", noise(random, HUGE))
    } else {
        body(random)
    };
    let mut headers = headers(random);
    if random.u32(0..12) > 0 {
        headers.push(("content-type", media.into()));
    }
    if let Some(coding) = encode(random, &mut body) {
        headers.push(("content-encoding", coding.into()));
    }
    random.shuffle(&mut headers);
    let framing = match random.u32(0..6) {
        _ if bodyless => {
            let says = (method == "HEAD" && random.bool()).then_some(body.len());
            Framing::None { says }
        }
        0 | 1 => Framing::Length,
        2 => Framing::Close { old: random.bool() },
        n => Framing::Chunked { extensions: n == 5 },
    };
    let trailers = match framing {
        Framing::Chunked { .. } if random.u32(0..3) == 0 => trailers(random),
        _ => Vec::new(),
    };
    Answer {
        method,
        path,
        status,
        reason: random.choice(REASONS).copied().flatten(),
        headers,
        framing,
        pieces: if bodyless { Vec::new() } else { pieces(random, &body) },
        trailers,
        cut: (!bodyless && random.u32(0..20) == 0).then(|| random.usize(1..40)),
        borders: random.u64(..),
    }
}

#[rustfmt::skip]
const STATUSES: &[u16] = &[
    200, 200, 200, 200, 200, 200, 201, 202, 203, 204, 205, 206, 207, 226, 299, 300, 301, 302, 303, 304, 307,
    308, 399, 400, 401, 403, 404, 408, 409, 413, 418, 422, 424, 425, 429, 451, 498, 500, 502, 503, 504, 520,
    529, 599,
];

#[rustfmt::skip]
const REASONS: &[Option<&[u8]>] = &[
    None, None, None, Some(b""), Some(b"Fine"), Some(b"It is   what\tit is"), Some(b"caf\xe9 \xff"),
];

fn headers(random: &mut Rng) -> Vec<(&'static str, Vec<u8>)> {
    const NAMES: &[&str] = &[
        "x-request-id",
        "set-cookie",
        "set-cookie",
        "vary",
        "x-empty",
        "server",
        "date",
        "retry-after",
        "x-ratelimit-remaining",
        "openai-processing-ms",
        "cache-control",
        "x-odd",
        "etag",
        "location",
        "alt-svc",
        "www-authenticate",
    ];
    let count = if random.u32(0..20) == 0 { random.usize(40..90) } else { random.usize(0..12) };
    (0..count).map(|_| (*random.choice(NAMES).expect("one"), value(random))).collect()
}

fn value(random: &mut Rng) -> Vec<u8> {
    match random.u32(0..6) {
        0 => Vec::new(),
        1 => (0..random.usize(1..30)).map(|_| random.u8(0x80..)).collect(),
        2 => b"a=b; Path=/; Expires=Wed, 21 Oct 2037 07:28:00 GMT".to_vec(),
        3 => format!("{}", random.u32(0..4000)).into_bytes(),
        4 => b"tab\tand  spaces, \"quotes\"; q=0.5".to_vec(),
        _ => (0..random.usize(1..200)).map(|_| random.u8(b'!'..=b'~')).collect(),
    }
}

fn trailers(random: &mut Rng) -> Vec<(&'static str, Vec<u8>)> {
    const NAMES: &[&str] = &["x-checksum", "x-checksum", "server-timing", "grpc-status", "x-odd"];
    (0..random.usize(1..6)).map(|_| (*random.choice(NAMES).expect("one"), value(random))).collect()
}

/// A media type and a body that is of it, or is not.
fn body(random: &mut Rng) -> (&'static str, Vec<u8>) {
    let media = *random
        .choice(&[
            "application/json",
            "text/event-stream",
            "text/event-stream; charset=utf-8",
            "application/x-ndjson",
            "text/plain",
            "text/html",
            "application/octet-stream",
        ])
        .expect("one");
    let body = match random.u32(0..10) {
        0 => Vec::new(),
        1 => {
            let length = random.usize(1..2000);
            noise(random, length)
        }
        2 if random.u32(0..4) == 0 => {
            let length = random.usize(60_000..400_000);
            noise(random, length)
        }
        _ if media.starts_with("text/event-stream") => sse(random),
        3 => b"{\"error\":{\"code\":\"overloaded\",\"message\":\"later\"}}".to_vec(),
        4 => b"<!doctype html><title>502</title>".to_vec(),
        5 => b"{\"choices\":[{\"index\":0,\"message\":{\"content\":\"cut".to_vec(),
        _ => document(random),
    };
    (media, body)
}

fn noise(random: &mut Rng, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    random.fill(&mut bytes);
    bytes
}

fn words(random: &mut Rng) -> String {
    let word =
        |random: &mut Rng| *random.choice(&["hello", "naïve", "你好", "", " ", "x"]).expect("one");
    let count =
        if random.u32(0..30) == 0 { random.usize(5_000..30_000) } else { random.usize(0..20) };
    (0..count).map(|_| word(random)).collect()
}

fn document(random: &mut Rng) -> Vec<u8> {
    let finish = *random.choice(&["stop", "length", "content_filter", "tool_calls"]).expect("one");
    let text = words(random);
    format!(
        r#"{{"id":"c","choices":[{{"index":0,"message":{{"role":"assistant","content":"{text}"}},"finish_reason":"{finish}"}}],"usage":{{"prompt_tokens":3,"completion_tokens":5}}}}"#
    )
    .into_bytes()
}

/// An event stream: comments, deltas, faults, ends with and without stop words and markers, and what
/// comes after them; sometimes longer than a gate waits for its first content.
fn sse(random: &mut Rng) -> Vec<u8> {
    let mut body = String::new();
    if random.u32(0..25) == 0 {
        for _ in 0..random.usize(9_000..14_000) {
            body.push_str(": keep-alive, nothing to say yet\n\n");
        }
    }
    let end = *random.choice(&["\n\n", "\n\n", "\r\n\r\n", "\r\r"]).expect("one");
    for _ in 0..random.usize(0..40) {
        let text = words(random);
        let event = match random.u32(0..12) {
            0 => ": keep-alive".to_owned(),
            1 => "event: ping\ndata: {}".to_owned(),
            2 => {
                "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\"}}]}".to_owned()
            }
            3 if random.u32(0..8) == 0 => "data: {\"error\":{\"code\":\"overloaded\"}}".to_owned(),
            4 if random.u32(0..8) == 0 => "data: {\"choices\":[}".to_owned(),
            5 if random.u32(0..4) == 0 => "data: [DONE]".to_owned(),
            6 => "id: 7\nretry: 10\ndata:".to_owned(),
            _ => format!(
                "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}}}}]}}"
            ),
        };
        body.push_str(&event);
        body.push_str(end);
    }
    if random.u32(0..4) > 0 {
        body.push_str(
            "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
        );
    }
    if random.u32(0..4) > 0 {
        body.push_str("data: [DONE]\n\n");
    }
    if random.u32(0..6) == 0 {
        body.push_str(": trailing\n\ndata: more\n\n");
    }
    body.into_bytes()
}

/// Maybe encodes the body, or only says so.
fn encode(random: &mut Rng, body: &mut Vec<u8>) -> Option<&'static str> {
    use flate2::{Compression, write};
    Some(match random.u32(0..24) {
        0 | 1 => {
            let mut coder = write::GzEncoder::new(Vec::new(), Compression::fast());
            coder.write_all(body).expect("memory");
            *body = coder.finish().expect("memory");
            "gzip"
        }
        2 => {
            let mut coder = write::ZlibEncoder::new(Vec::new(), Compression::fast());
            coder.write_all(body).expect("memory");
            *body = coder.finish().expect("memory");
            "deflate"
        }
        3 => "gzip",
        4 => "br",
        5 => "zstd",
        6 => "identity",
        7 => "x-unheard-of",
        8 => "gzip, br",
        _ => return None,
    })
}

/// Chunks of all sorts of lengths, some of them empty (which only HTTP/2 can send).
fn pieces(random: &mut Rng, body: &[u8]) -> Vec<Bytes> {
    let longest = if body.len() > 300_000 {
        200_000
    } else {
        *random.choice(&[1, 7, 100, 3_000, 40_000, 1 << 20]).expect("one")
    };
    // At most some hundred pieces.
    let longest = longest.max(body.len() / 300 + 1);
    let mut rest = body;
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        if random.u32(0..20) == 0 {
            pieces.push(Bytes::new());
        }
        let (piece, more) = rest.split_at(random.usize(1..=longest).min(rest.len()));
        pieces.push(Bytes::copy_from_slice(piece));
        rest = more;
    }
    if random.u32(0..10) == 0 {
        pieces.push(Bytes::new());
    }
    pieces
}
