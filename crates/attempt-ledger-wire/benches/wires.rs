//! A plain text stream of each wire to its content hash, beside an SSE crate and a typed decode of
//! every event, and what an open stream holds.
//!
//! Both alternate within one run; the ratios are what can be compared between machines. A round is
//! short, and what counts is the fastest quarter of them, since others use the machine, too.
//! `DECODE_ROUNDS` sets the rounds (default 301), an argument the wires: those whose names hold it.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used, reason = "a bench may panic")]
#![allow(clippy::disallowed_methods, reason = "the work is measured in real time")]

#[path = "../tests/support/frames.rs"]
mod frames;
#[path = "../tests/support/steady.rs"]
mod steady;

use std::{borrow::Cow, convert::Infallible, hint::black_box, time::Instant};

use attempt_ledger_wire::{Tap, TapOptions, Wire};
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};
use http::{HeaderMap, HeaderValue, header::CONTENT_TYPE};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use sse_stream::SseStream;
use steady::{Steady, steady};

const EVENTS: u64 = 400;

type Text<'a> = Cow<'a, str>;

/// What an event's text is read by: the fields that are needed, and no others.
type Typed = for<'a> fn(&'a [u8]) -> Option<Text<'a>>;

#[derive(Deserialize)]
struct Chat<'a> {
    #[serde(borrow)]
    choices: Vec<ChatChoice<'a>>,
}

#[derive(Deserialize)]
struct ChatChoice<'a> {
    #[serde(borrow)]
    delta: Option<Content<'a>>,
    #[serde(borrow)]
    text: Option<Text<'a>>,
    #[allow(dead_code, reason = "decoded as a client would")]
    #[serde(borrow)]
    finish_reason: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(borrow)]
    content: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow)]
    delta: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct TextDelta<'a> {
    #[serde(borrow)]
    delta: Option<TextOf<'a>>,
}

#[derive(Deserialize)]
struct TextOf<'a> {
    #[serde(borrow)]
    text: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct Gemini<'a> {
    #[serde(borrow)]
    candidates: Vec<Candidate<'a>>,
}

#[derive(Deserialize)]
struct Candidate<'a> {
    #[serde(borrow)]
    content: Option<Parts<'a>>,
}

#[derive(Deserialize)]
struct Parts<'a> {
    #[serde(borrow)]
    parts: Vec<TextOf<'a>>,
}

#[derive(Deserialize)]
struct Ollama<'a> {
    #[serde(borrow)]
    message: Content<'a>,
}

#[derive(Deserialize)]
struct Cohere<'a> {
    #[serde(borrow)]
    delta: Option<CohereDelta<'a>>,
}

#[derive(Deserialize)]
struct CohereDelta<'a> {
    #[serde(borrow)]
    message: Option<CohereMessage<'a>>,
}

#[derive(Deserialize)]
struct CohereMessage<'a> {
    #[serde(borrow)]
    content: TextOrNone<'a>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum TextOrNone<'a> {
    Text {
        #[serde(borrow)]
        text: Text<'a>,
    },
    Other(serde::de::IgnoredAny),
}

fn read<'a, T: Deserialize<'a>>(data: &'a [u8]) -> Option<T> {
    serde_json::from_slice(data).ok()
}

fn typed(wire: Wire) -> Option<Typed> {
    Some(match wire {
        Wire::OpenAiChat => |data| read::<Chat<'_>>(data)?.choices.pop()?.delta?.content,
        Wire::OpenAiCompletions => |data| read::<Chat<'_>>(data)?.choices.pop()?.text,
        Wire::OpenAiResponses => |data| {
            let event = read::<Delta<'_>>(data)?;
            event.delta.filter(|_| event.kind == "response.output_text.delta")
        },
        Wire::AnthropicMessages | Wire::BedrockConverse => {
            |data| read::<TextDelta<'_>>(data)?.delta?.text
        }
        Wire::Gemini => {
            |data| read::<Gemini<'_>>(data)?.candidates.pop()?.content?.parts.pop()?.text
        }
        Wire::Ollama => |data| read::<Ollama<'_>>(data)?.message.content,
        Wire::LlamaCompletion => |data| read::<Content<'_>>(data)?.content,
        Wire::Cohere => |data| match read::<Cohere<'_>>(data)?.delta?.message?.content {
            TextOrNone::Text { text } => Some(text),
            TextOrNone::Other(_) => None,
        },
        _ => return None,
    })
}

#[derive(Default)]
struct Found {
    hash: Sha256,
    chars: u64,
}

impl Found {
    fn take(&mut self, text: Option<Text<'_>>) {
        if let Some(text) = text {
            self.hash.update(text.as_bytes());
            self.chars += text.chars().count() as u64;
        }
    }
}

/// By an SSE crate, or by hand where the framing is another.
fn peer(chunks: &[Bytes], media: &str, typed: Typed) -> Option<u64> {
    let mut found = Found::default();
    match media {
        "text/event-stream" => {
            let bytes = stream::iter(chunks.to_vec()).map(Ok::<_, Infallible>);
            let mut events = SseStream::from_bytes_stream(bytes);
            while let Some(event) = events.next().now_or_never().expect("ready") {
                found.take(typed(event.expect("an event").data.unwrap_or_default().as_bytes()));
            }
        }
        "application/x-ndjson" => {
            let mut held = Vec::new();
            for chunk in chunks {
                let mut rest: &[u8] = chunk;
                while let Some(at) = memchr::memchr(b'\n', rest) {
                    held.extend_from_slice(&rest[..at]);
                    found.take(typed(&held));
                    held.clear();
                    rest = &rest[at + 1..];
                }
                held.extend_from_slice(rest);
            }
        }
        "application/vnd.amazon.eventstream" => {
            let mut held: Vec<u8> = Vec::new();
            for chunk in chunks {
                held.extend_from_slice(chunk);
                let mut at = 0;
                while let Some(prelude) = held.get(at..).and_then(<[u8]>::first_chunk::<12>) {
                    let [a, b, c, d, e, f, g, h, ..] = *prelude;
                    let len = u32::from_be_bytes([a, b, c, d]) as usize;
                    let headers = u32::from_be_bytes([e, f, g, h]) as usize;
                    let Some(frame) = held.get(at..at + len) else { break };
                    black_box(crc32fast::hash(&frame[..8]));
                    black_box(crc32fast::hash(&frame[..len - 4]));
                    found.take(typed(&frame[12 + headers..len - 4]));
                    at += len;
                }
                held.drain(..at);
            }
        }
        _ => return None,
    }
    black_box(found.hash.finalize());
    Some(found.chars)
}

fn tap(chunks: &[Bytes], wire: Wire, headers: &HeaderMap, options: &TapOptions) -> u64 {
    let mut tap = Tap::new(wire, 200, headers, options);
    for chunk in chunks {
        tap.feed(chunk);
    }
    tap.finish();
    let evidence = tap.evidence();
    black_box(evidence.content_sha256);
    evidence.content_chars
}

/// Bytes of a tap, and the most that it held beside that at the end of a chunk.
fn held(chunks: &[Bytes], wire: Wire, headers: &HeaderMap, options: &TapOptions) -> usize {
    let mut tap = Tap::new(wire, 200, headers, options);
    let held = chunks.iter().map(|chunk| {
        tap.feed(chunk);
        tap.held()
    });
    held.max().unwrap_or(0)
}

fn main() {
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    let rounds = std::env::var("DECODE_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(301);
    let options = TapOptions::default();
    println!("a tap is {} bytes\n", size_of::<Tap>());
    println!("| wire | event, bytes | MB/s | ns/event | x typed decode | held beside, bytes |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: |");
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    for stream in steady().iter().filter(|stream| stream.wire.as_str().contains(&filter)) {
        let Steady { wire, media, .. } = *stream;
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(media))]);
        let body = Bytes::from(stream.body(EVENTS));
        let cut = |size: usize| -> Vec<Bytes> {
            let at = (0..body.len()).step_by(size);
            at.map(|at| body.slice(at..body.len().min(at + size))).collect()
        };
        let chunks = cut(1500);
        let typed = typed(wire);
        let peer = || typed.and_then(|typed| peer(&chunks, media, typed));
        let want = tap(&chunks, wire, &headers, &options);
        assert!(peer().is_none_or(|chars| chars == want), "{wire} {media}: {:?} {want}", peer());
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let start = Instant::now();
            black_box(tap(&chunks, wire, &headers, &options));
            ours.push(start.elapsed().as_secs_f64());
            let start = Instant::now();
            black_box(peer());
            theirs.push(start.elapsed().as_secs_f64());
        }
        let quarter = |times: &mut Vec<f64>| {
            times.sort_by(f64::total_cmp);
            times[times.len() / 4]
        };
        let (ours, theirs) = (quarter(&mut ours), quarter(&mut theirs));
        let ratio = match peer() {
            Some(_) => format!("{:.1}", theirs / ours),
            None => String::new(),
        };
        let most = [7, 323, 1500, 16 * 1024]
            .map(|size| held(&cut(size), wire, &headers, &options))
            .into_iter()
            .max();
        println!(
            "| `{wire}`, {media} | {} | {:.0} | {:.0} | {ratio} | {} |",
            (stream.event)(0, " harbour").len(),
            body.len() as f64 / ours / 1e6,
            ours * 1e9 / EVENTS as f64,
            most.unwrap_or(0),
        );
    }
}
