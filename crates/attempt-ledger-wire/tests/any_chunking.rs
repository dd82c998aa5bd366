//! No chunking of any input, sound or damaged, changes what is found, or panics.

#![allow(clippy::expect_used, reason = "a test may panic, its helpers too")]

mod support;

use std::io::Write as _;

use attempt_ledger_wire::{Tap, TapOptions, Wire, read_request};
use flate2::{Compression, write::GzEncoder};
use http::{HeaderValue, Method, header::CONTENT_ENCODING};
use proptest::prelude::*;
use support::{Response, read, response};

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

fn body() -> impl Strategy<Value = Vec<u8>> {
    let sound = prop::collection::vec((0..PIECES.len(), 0..3usize), 0..14).prop_map(|picked| {
        let end = ["\n\n", "\r\n\r\n", ""];
        picked.iter().flat_map(|(piece, e)| [PIECES[*piece], end[*e]]).collect::<String>()
    });
    let damage = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3);
    (sound, damage).prop_map(|(sound, damage)| {
        let mut bytes = sound.into_bytes();
        for (at, byte) in damage {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
        }
        bytes
    })
}

fn any_response() -> impl Strategy<Value = Response> {
    let media = prop::sample::select(vec![
        "text/event-stream",
        "text/event-stream",
        "text/event-stream",
        "application/json",
        "application/x-ndjson",
        "text/plain",
    ]);
    let status = prop::sample::select(vec![200u16, 200, 200, 204, 302, 400, 429, 503]);
    (media, status, body(), any::<bool>(), prop::option::of(any::<prop::sample::Index>())).prop_map(
        |(media, status, body, packed, damage)| {
            let mut response = response(media, body);
            response.status = status;
            if packed {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
                encoder.write_all(&response.body).expect("memory");
                response.body = encoder.finish().expect("memory");
                let gzip = HeaderValue::from_static("gzip");
                response.headers.insert(CONTENT_ENCODING, gzip);
                if let Some(at) = damage {
                    let at = at.index(response.body.len());
                    response.body[at] ^= 0x10;
                }
            }
            response
        },
    )
}

fn options() -> impl Strategy<Value = TapOptions> {
    (any::<bool>(), any::<bool>(), 20usize..400, 20usize..400).prop_map(
        |(keep_content, accept_done, max_body, max_event)| TapOptions {
            keep_content,
            accept_done,
            max_body,
            max_event,
            ..TapOptions::default()
        },
    )
}

/// At least 2,000 cases each; more by `PROPTEST_CASES`.
fn config() -> ProptestConfig {
    let base = ProptestConfig::default();
    ProptestConfig { cases: base.cases.max(2000), ..base }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn chunking_changes_nothing(
        response in any_response(),
        options in options(),
        wire in prop::sample::select(Wire::ALL),
        cuts in prop::collection::vec(any::<u16>(), 0..10),
    ) {
        let whole = read(wire, &response, &options, &[]);
        let cuts: Vec<_> = cuts.into_iter().map(usize::from).collect();
        prop_assert_eq!(&read(wire, &response, &options, &cuts), &whole);
        let every: Vec<_> = (0..response.body.len()).collect();
        prop_assert_eq!(&read(wire, &response, &options, &every), &whole);
    }

    /// What is known grows with the bytes: never less progress, and a fault stays.
    #[test]
    fn what_is_known_only_grows(response in any_response(), size in 1..40usize) {
        let mut tap =
            Tap::new(Wire::OpenAiChat, response.status, &response.headers, &TapOptions::default());
        let (mut progress, mut chars, mut fault, mut done) = (0, 0, None, false);
        for chunk in response.body.chunks(size) {
            tap.feed(chunk);
            prop_assert!(tap.progress_events() >= progress && tap.facts().text_chars >= chars);
            prop_assert!(fault.is_none() || tap.facts().fault == fault);
            prop_assert!(!done || tap.terminal());
            (progress, chars) = (tap.progress_events(), tap.facts().text_chars);
            (fault, done) = (tap.facts().fault.clone(), tap.terminal());
        }
    }

    #[test]
    fn no_request_panics(body in body(), wire in prop::sample::select(Wire::ALL)) {
        let facts = read_request(wire, &Method::POST, "/v1/chat/completions", Some(&body));
        prop_assert!(facts.understood || facts.effect.is_writes());
    }
}
