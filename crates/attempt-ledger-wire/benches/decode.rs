//! A chat stream to verdict, content hash and usage, beside what others would do for the same.
//!
//! Criterion measures the tap alone. The table behind it alternates all peers within one run and
//! gives MB/s, time an event and ratios, which are what can be compared between machines. A round is
//! short, and what counts is the fastest quarter of them, since others use the machine, too.
//! `DECODE_ROUNDS` sets the rounds of the table (default 301).
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used, reason = "a bench may panic")]
#![allow(clippy::disallowed_methods, reason = "the work is measured in real time")]

use std::{convert::Infallible, hint::black_box, time::Instant};

use attempt_ledger_core::{BodyEnd, Verdict, decide};
use attempt_ledger_wire::{Tap, TapOptions, Wire};
use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput};
use eventsource_stream::Eventsource;
use futures_util::{FutureExt, StreamExt, stream};
use http::{HeaderMap, HeaderValue, header::CONTENT_TYPE};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use sse_stream::SseStream;

const EVENTS: usize = 400;
const EVENT: usize = 323;

/// What differs between the events of a stream, besides the text.
#[derive(Clone, Copy)]
enum Shape {
    /// Nothing: most servers.
    Same,
    /// Padding of another content and length each time, as OpenAI adds it.
    Padded,
    /// Every third text holds an escape.
    Escaped,
}

fn chat_stream(shape: Shape) -> Vec<u8> {
    const WORDS: [&str; 8] =
        [" the", " harbour", " was", " quiet", ",", " and", " boats", " slept"];
    let mut body = Vec::new();
    for n in 0..EVENTS {
        let word = match shape {
            Shape::Escaped if n % 3 == 0 => "\\n\\n",
            _ => WORDS[n % 8],
        };
        let frame = |padding: &str| {
            let padding = match shape {
                Shape::Padded => format!(",\"obfuscation\":\"{padding}\""),
                _ => String::new(),
            };
            let pad = match shape {
                Shape::Padded => "default".to_owned(),
                _ => "d".repeat(EVENT - 285),
            };
            format!(
                "data: {{\"id\":\"chatcmpl-CkYtq3Vx0f\",\"object\":\"chat.completion.chunk\",\
                 \"created\":1776159000,\"model\":\"demo-large-2026-04-14\",\"service_tier\":\
                 \"{pad}\",\"system_fingerprint\":\"fp_44709d6fcb\",\"choices\":[{{\"index\":0,\
                 \"delta\":{{\"content\":\"{word}\"}},\"logprobs\":null,\"finish_reason\":null}}],\
                 \"usage\":null{padding}}}\n\n"
            )
        };
        let letters = ["aQ3x", "Zr", "mmW8pL", "k"];
        let mut padding = letters[n % 4].to_owned();
        while frame(&padding).len() < EVENT && matches!(shape, Shape::Padded) {
            padding.push(char::from(b'a' + (n % 26) as u8));
        }
        body.extend_from_slice(frame(&padding).as_bytes());
    }
    body.extend_from_slice(
        b"data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n\
          data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":400}}\n\n\
          data: [DONE]\n\n",
    );
    body
}

/// What each peer finds: code points, tokens, and whether it stopped.
type Found = (u64, u64, bool);

fn tap(chunks: &[Bytes], headers: &HeaderMap, options: &TapOptions) -> Found {
    let mut tap = Tap::new(Wire::OpenAiChat, 200, headers, options);
    for chunk in chunks {
        tap.feed(chunk);
    }
    tap.finish();
    let verdict = decide(200, tap.facts(), &BodyEnd::Complete).verdict;
    let evidence = tap.evidence();
    black_box(evidence.content_sha256);
    (evidence.content_chars, evidence.usage.output.unwrap_or(0), verdict == Verdict::Ok)
}

fn bytes(chunks: &[Bytes]) -> impl futures_util::Stream<Item = Result<Bytes, Infallible>> + Unpin {
    stream::iter(chunks.to_vec()).map(Ok)
}

fn sse_stream_and_value(chunks: &[Bytes]) -> Found {
    let mut events = SseStream::from_bytes_stream(bytes(chunks));
    let (mut hash, mut chars, mut tokens, mut stopped) = (Sha256::new(), 0, 0, false);
    while let Some(event) = events.next().now_or_never().expect("ready") {
        let data = event.expect("an event").data.unwrap_or_default();
        let Ok(value) = serde_json::from_str::<serde_json::Value>(&data) else { continue };
        if let Some(text) = value["choices"][0]["delta"]["content"].as_str() {
            hash.update(text);
            chars += text.chars().count() as u64;
        }
        stopped |= value["choices"][0]["finish_reason"].is_string();
        tokens = value["usage"]["completion_tokens"].as_u64().unwrap_or(tokens);
    }
    black_box(hash.finalize());
    (chars, tokens, stopped)
}

fn sse_stream_and_typed(chunks: &[Bytes]) -> Found {
    let mut events = SseStream::from_bytes_stream(bytes(chunks));
    let (mut hash, mut chars, mut tokens, mut stopped) = (Sha256::new(), 0, 0, false);
    while let Some(event) = events.next().now_or_never().expect("ready") {
        let data = event.expect("an event").data.unwrap_or_default();
        let Ok(chunk) = serde_json::from_str::<Chunk<'_>>(&data) else { continue };
        if let Some(choice) = chunk.choices.first() {
            if let Some(text) = &choice.delta.content {
                hash.update(text.as_bytes());
                chars += text.chars().count() as u64;
            }
            stopped |= choice.finish_reason.is_some();
        }
        tokens = chunk.usage.map_or(tokens, |usage| usage.completion_tokens);
    }
    black_box(hash.finalize());
    (chars, tokens, stopped)
}

fn eventsource_alone(chunks: &[Bytes]) -> usize {
    let mut events = bytes(chunks).eventsource();
    let mut count = 0;
    while let Some(event) = events.next().now_or_never().expect("ready") {
        black_box(event.expect("an event").data);
        count += 1;
    }
    count
}

fn sse_stream_alone(chunks: &[Bytes]) -> usize {
    let mut events = SseStream::from_bytes_stream(bytes(chunks));
    let mut count = 0;
    while let Some(event) = events.next().now_or_never().expect("ready") {
        black_box(event.expect("an event").data);
        count += 1;
    }
    count
}

/// The fields that are needed, and no others.
#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow, default)]
    choices: Vec<Choice<'a>>,
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow)]
    delta: Delta<'a>,
    finish_reason: Option<&'a str>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow, default)]
    content: Option<std::borrow::Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Usage {
    completion_tokens: u64,
}

/// Splits by hand and reads only the needed fields; `parse` is the JSON library.
fn split_and_partial(
    chunks: &[Bytes],
    parse: impl for<'a> Fn(&'a [u8]) -> Option<Chunk<'a>>,
) -> Found {
    let (mut hash, mut chars, mut tokens, mut stopped) = (Sha256::new(), 0, 0, false);
    let mut held: Vec<u8> = Vec::new();
    let mut take = |line: &[u8]| {
        let Some(chunk) = line.strip_prefix(b"data: ").and_then(&parse) else { return };
        if let Some(choice) = chunk.choices.first() {
            if let Some(text) = &choice.delta.content {
                hash.update(text.as_bytes());
                chars += text.chars().count() as u64;
            }
            stopped |= choice.finish_reason.is_some();
        }
        tokens = chunk.usage.map_or(tokens, |usage| usage.completion_tokens);
    };
    for chunk in chunks {
        let mut rest: &[u8] = chunk;
        while let Some(at) = memchr::memchr(b'\n', rest) {
            if held.is_empty() {
                take(&rest[..at]);
            } else {
                held.extend_from_slice(&rest[..at]);
                take(&held);
                held.clear();
            }
            rest = &rest[at + 1..];
        }
        held.extend_from_slice(rest);
    }
    black_box(hash.finalize());
    (chars, tokens, stopped)
}

fn main() {
    let headers =
        HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"))]);
    let options = TapOptions::default();
    let chunked = |shape: Shape, size: usize| -> Vec<Bytes> {
        let body = Bytes::from(chat_stream(shape));
        (0..body.len()).step_by(size).map(|at| body.slice(at..body.len().min(at + size))).collect()
    };
    let sizes = [("one event", EVENT), ("1.5 KB", 1500), ("16 KB", 16 * 1024)];

    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("tap");
    for (name, size) in sizes {
        let chunks = chunked(Shape::Same, size);
        group.throughput(Throughput::Bytes(chunks.iter().map(|c| c.len() as u64).sum()));
        group.bench_with_input(BenchmarkId::from_parameter(name), &chunks, |b, chunks| {
            b.iter(|| tap(chunks, &headers, &options));
        });
    }
    group.finish();
    criterion.final_summary();
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }

    let rounds = std::env::var("DECODE_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(301);
    for (shape_name, shape) in
        [("same", Shape::Same), ("padded", Shape::Padded), ("escaped", Shape::Escaped)]
    {
        for (size_name, size) in sizes {
            let chunks = chunked(shape, size);
            type Peer<'a> = (&'a str, Box<dyn Fn() + 'a>);
            let want = sse_stream_and_value(&chunks);
            assert_eq!(tap(&chunks, &headers, &options), want);
            assert_eq!(sse_stream_and_typed(&chunks), want);
            assert_eq!(split_and_partial(&chunks, |l| sonic_rs::from_slice(l).ok()), want);
            let peers: [Peer<'_>; 7] = [
                (
                    "tap",
                    Box::new(|| {
                        black_box(tap(&chunks, &headers, &options));
                    }),
                ),
                (
                    "sse-stream + Value",
                    Box::new(|| {
                        black_box(sse_stream_and_value(&chunks));
                    }),
                ),
                (
                    "sse-stream + typed serde_json",
                    Box::new(|| {
                        black_box(sse_stream_and_typed(&chunks));
                    }),
                ),
                (
                    "split + partial serde_json",
                    Box::new(|| {
                        black_box(split_and_partial(&chunks, |l| serde_json::from_slice(l).ok()));
                    }),
                ),
                (
                    "split + partial sonic-rs",
                    Box::new(|| {
                        black_box(split_and_partial(&chunks, |l| sonic_rs::from_slice(l).ok()));
                    }),
                ),
                (
                    "eventsource-stream alone",
                    Box::new(|| {
                        black_box(eventsource_alone(&chunks));
                    }),
                ),
                (
                    "sse-stream alone",
                    Box::new(|| {
                        black_box(sse_stream_alone(&chunks));
                    }),
                ),
            ];
            let mut times = vec![Vec::new(); peers.len()];
            for _ in 0..rounds {
                for (peer, times) in peers.iter().zip(&mut times) {
                    let start = Instant::now();
                    (peer.1)();
                    times.push(start.elapsed().as_secs_f64());
                }
            }
            let total: usize = chunks.iter().map(Bytes::len).sum();
            let quarter = |times: &mut Vec<f64>| {
                times.sort_by(f64::total_cmp);
                times[times.len() / 4]
            };
            let quarters: Vec<_> = times.iter_mut().map(quarter).collect();
            println!("\n{shape_name}, chunks of {size_name}:");
            for ((name, _), seconds) in peers.iter().zip(&quarters) {
                println!(
                    "  {name:30} {:8.0} MB/s {:8.0} ns/event   tap is {:5.2} x",
                    total as f64 / seconds / 1e6,
                    seconds * 1e9 / EVENTS as f64,
                    seconds / quarters[0],
                );
            }
        }
    }
}
