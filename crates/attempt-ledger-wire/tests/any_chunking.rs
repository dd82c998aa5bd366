//! No chunking of any input, sound or damaged, changes what is found, or panics, or holds more than
//! the bounds: on its own wire and on every other.

#![allow(clippy::expect_used, reason = "a test may panic, its helpers too")]

mod pack;
#[path = "support/streams.rs"]
mod streams;
mod support;

use attempt_ledger_wire::{Tap, TapOptions, Wire, read_request};
use http::{
    HeaderValue, Method,
    header::{CONTENT_ENCODING, CONTENT_TYPE},
};
use pack::pack;
use proptest::{prelude::*, sample::Index};
use streams::{damage, damaged};
use support::{Response, read, response};

/// Bytes that a tap may hold beyond its longest event or the bound of a document.
const BESIDES: usize = 4096;

/// Bytes that two decoders of encodings may hold: each has a window of 16 MiB at most.
const DECODERS: usize = 40 << 20;

/// Bytes of an error's body that are held, at most.
const MAX_ERROR_BODY: usize = 256 * 1024;

/// Pieces of streams, sound and not, from which odd ones are put together.
const PIECES: &[&str] = &[
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"naïve 😀\"}}]}",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\"}}]}",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\\ud83d\\ude00 \\\"q\\\"\"}}]}",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}],\"usage\":{\"prompt_tokens\":3}}",
    "data: {\"choices\":[{\"index\":1,\"delta\":{\"content\":\"y\"}}]}",
    "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"name\":\"f\",\"arguments\":\"{\"}}]}}]}",
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"refusal\":\"no\"},\"finish_reason\":\"\"}]}",
    "data: {\"error\":{\"code\":429}}",
    "data: {\"choices\":",
    "data:[{\"text\":\"z\"}]}",
    "data: [DONE]",
    "event: error",
    "error: {\"code\":1}",
    "{\"message\":{\"content\":\"naïve\",\"tool_calls\":[{\"function\":{}}]},\"done\":false}",
    "{\"response\":\"x\",\"done\":true,\"done_reason\":\"stop\",\"eval_count\":3}",
    "{\"index\":0,\"content\":\"y\",\"stop\":true,\"stop_type\":\"eos\"}",
    "data: {\"index\":1,\"content\":\"y\",\"stop\":false}",
    "event: message_start",
    "data: {\"type\":\"message_start\",\"message\":{\"content\":[],\"usage\":{\"input_tokens\":3}}}",
    "data: {\"index\":0,\"content_block\":{\"type\":\"tool_use\",\"name\":\"f\",\"input\":{\"a\":1}}}",
    "data: {\"index\":0,\"content_block\":{\"type\":\"server_tool_use\"}}",
    "data: {\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{}\"}}",
    "data: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"naïve\"}}",
    "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}",
    "event: ping",
    "event: message_stop",
    "data: {}",
    "[",
    ": comment",
    "data:",
    "id: 1",
    "\n",
    "\n\n",
    "\r\n",
    "\r\n\r\n",
    "\r",
    "\r\r",
    "\u{feff}",
    " ",
    "\0",
];

/// Pieces, put together at random.
fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let picked = prop::collection::vec((0..PIECES.len(), 0..3usize), 0..14).prop_map(|picked| {
        let end = ["\n\n", "\r\n\r\n", ""];
        picked.iter().flat_map(|(piece, e)| [PIECES[*piece], end[*e]]).collect::<String>()
    });
    let damage = prop::collection::vec((any::<Index>(), damage()), 0..3);
    (picked, damage).prop_map(|(picked, damage)| {
        let mut body = picked.into_bytes();
        for (at, damage) in damage {
            damage.to(&mut body, at);
        }
        body
    })
}

const MEDIA: &[&str] = &[
    "text/event-stream",
    "text/event-stream; charset=utf-8",
    "application/x-ndjson",
    "application/vnd.amazon.eventstream",
    "application/json",
    "application/json",
    "application/problem+json",
    "text/plain",
    "text/html",
    "application/octet-stream",
    "",
];

const CODINGS: &[&str] = &["gzip", "deflate", "br", "zstd", "gzip, br", "br, zstd"];

/// A response on its own wire or on any other, said to be what it is or anything else.
fn any_response() -> impl Strategy<Value = (Wire, Response)> {
    let pieces = (prop::sample::select(Wire::ALL), pieces())
        .prop_map(|(wire, body)| (wire, response("text/event-stream", body)));
    let source = prop_oneof![2 => pieces, 3 => damaged()];
    let wire = prop::option::weighted(0.3, prop::sample::select(Wire::ALL));
    let media = prop::option::weighted(0.3, prop::sample::select(MEDIA));
    let status = prop::option::weighted(
        0.3,
        prop::sample::select(vec![200u16, 200, 204, 302, 400, 402, 429, 498, 503]),
    );
    let codings = prop::sample::select(CODINGS);
    let packed = prop::option::weighted(0.3, (codings, prop::option::of(any::<Index>())));
    (source, wire, media, status, packed).prop_map(|(source, wire, media, status, packed)| {
        let (own, mut response) = source;
        if let Some(media) = media {
            response.headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
        }
        response.status = status.unwrap_or(response.status);
        if let Some((codings, damage)) = packed {
            response.body = pack(codings, &response.body);
            response.headers.insert(CONTENT_ENCODING, HeaderValue::from_static(codings));
            if let Some(at) = damage {
                let at = at.index(response.body.len());
                response.body[at] ^= 0x10;
            }
        }
        (wire.unwrap_or(own), response)
    })
}

/// Small bounds and large ones.
fn options() -> impl Strategy<Value = TapOptions> {
    let bound = || prop_oneof![20usize..400, 400usize..100_000];
    (any::<bool>(), any::<bool>(), bound(), bound(), any::<Option<bool>>()).prop_map(
        |(keep_content, accept_done, max_body, max_event, stream_asked)| TapOptions {
            keep_content,
            accept_done,
            max_body,
            max_event,
            stream_asked,
            ..TapOptions::default()
        },
    )
}

/// At least 2,000 cases each; more by `PROPTEST_CASES`.
fn config() -> ProptestConfig {
    let base = ProptestConfig::default();
    ProptestConfig { cases: base.cases.max(2000), ..base }
}

/// What is known, as far as it may only grow.
fn known(tap: &Tap) -> [u64; 11] {
    let facts = tap.facts();
    [
        tap.progress_events(),
        facts.text_chars,
        facts.tool_calls.into(),
        facts.choices.into(),
        facts.has_text.into(),
        facts.refusal.into(),
        facts.stop.is_some().into(),
        facts.late_error.is_some().into(),
        facts.uninspected.is_some().into(),
        tap.has_first_content().into(),
        tap.terminal().into(),
    ]
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn chunking_changes_nothing(
        (wire, response) in any_response(),
        options in options(),
        cuts in prop::collection::vec(any::<Index>(), 0..10),
    ) {
        let whole = read(wire, &response, &options, &[]);
        let len = response.body.len();
        let cuts: Vec<_> = cuts.into_iter().map(|cut| cut.index(len + 1)).collect();
        prop_assert_eq!(&read(wire, &response, &options, &cuts), &whole);
        let every: Vec<_> = (0..len).collect();
        prop_assert_eq!(&read(wire, &response, &options, &every), &whole);
    }

    /// What is known grows with the bytes, a fault stays, and little is held.
    #[test]
    fn what_is_known_only_grows(
        (wire, response) in any_response(),
        options in options(),
        size in 1..400usize,
    ) {
        let mut tap = Tap::new(wire, response.status, &response.headers, &options);
        let (mut before, mut fault) = (known(&tap), None);
        let packed = response.headers.contains_key(CONTENT_ENCODING);
        let bound = options.max_event.max(options.max_body).max(MAX_ERROR_BODY);
        for (n, chunk) in response.body.chunks(size).enumerate() {
            tap.feed(chunk);
            let now = known(&tap);
            prop_assert!(now.iter().zip(before).all(|(now, before)| *now >= before));
            prop_assert!(fault.is_none() || tap.facts().fault == fault);
            (before, fault) = (now, tap.facts().fault.clone());

            let fed = if packed { bound + DECODERS } else { bound.min((n + 1) * size) };
            prop_assert!(tap.held() <= fed + BESIDES, "{} held of {fed}", tap.held());
        }
    }

    #[test]
    fn no_request_panics(body in pieces(), wire in prop::sample::select(Wire::ALL)) {
        let facts = read_request(wire, &Method::POST, "/v1/chat/completions", Some(&body));
        prop_assert!(facts.understood || facts.effect.is_writes());
    }
}
