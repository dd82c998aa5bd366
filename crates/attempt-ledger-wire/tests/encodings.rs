//! Encoded bodies are read as they come, in any chunking, within their bounds.

#![cfg(all(feature = "br", feature = "zstd"))]
#![allow(clippy::expect_used, reason = "a test may panic, its helpers too")]

mod pack;
mod support;

use std::io::Write as _;

use attempt_ledger_core::{Facts, Uninspected, Verdict, decide};
use attempt_ledger_wire::{Evidence, Tap, TapOptions, Wire};
use http::{HeaderValue, header::CONTENT_ENCODING};
use pack::{flushed, gzip, pack, raw_deflate, zstd};
use support::{Random, Response, read, response, seed};

const SSE: &str = "text/event-stream";
const JSON: &str = "application/json";

const DOCUMENT: &str = r#"{"choices":[{"index":0,"message":{"content":"Paris"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1}}"#;

const STOP: &str =
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
const DONE: &str = "data: [DONE]\n\n";

const LISTS: [&str; 14] = [
    "gzip",
    "X-GZIP, identity",
    "deflate",
    "br",
    "BR",
    "zstd",
    "ZStd",
    "identity, br",
    "gzip, br",
    "br,gzip",
    "zstd , br",
    "gzip, gzip",
    "deflate, zstd, gzip",
    "br, br, br",
];

fn delta(text: &str) -> String {
    format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
}

fn encoded(media: &'static str, codings: &'static str, body: Vec<u8>) -> Response {
    let mut response = response(media, body);
    response.headers.insert(CONTENT_ENCODING, HeaderValue::from_static(codings));
    response
}

fn options() -> TapOptions {
    TapOptions { keep_content: true, ..TapOptions::default() }
}

fn tap(media: &'static str, codings: &'static str) -> Tap {
    let head = encoded(media, codings, Vec::new());
    Tap::new(Wire::OpenAiChat, 200, &head.headers, &options())
}

type Read = (Verdict, Facts, Evidence);

/// Reads `response` whole; byte by byte and at random cuts it must be the same.
fn on(wire: Wire, response: &Response) -> Read {
    let whole = read(wire, response, &options(), &[]);
    let bytewise: Vec<_> = (0..response.body.len().min(20_000)).collect();
    assert_eq!(read(wire, response, &options(), &bytewise), whole, "byte by byte");
    let mut random = Random(seed());
    for _ in 0..20 {
        let cuts: Vec<_> = (0..6).map(|_| random.below(response.body.len() + 1)).collect();
        assert_eq!(read(wire, response, &options(), &cuts), whole, "cut at {cuts:?}");
    }
    (decide(response.status, &whole.0, &response.end).verdict, whole.0, whole.1)
}

fn chat(media: &'static str, codings: &'static str, body: Vec<u8>) -> Read {
    on(Wire::OpenAiChat, &encoded(media, codings, body))
}

fn text(evidence: &Evidence) -> &str {
    &evidence.content.as_ref().expect("kept").text
}

fn uninspected(read: &Read) -> Option<Uninspected> {
    assert_eq!(read.0 == Verdict::Uninspected, read.1.uninspected.is_some(), "{:?}", read.0);
    read.1.uninspected
}

/// Text that packs badly, of the length that was asked for.
fn noise(len: usize) -> String {
    let mut random = Random(seed());
    (0..len).map(|_| char::from(b'a' + random.below(26) as u8)).collect()
}

mod sound {
    use super::*;

    #[test]
    fn documents_and_streams_are_unpacked() {
        let stream = [delta("Par"), delta("is"), STOP.to_owned(), DONE.to_owned()].concat();
        for (media, body) in [(JSON, DOCUMENT), (SSE, &stream)] {
            let plain = on(Wire::OpenAiChat, &response(media, body));
            assert_eq!((plain.0, text(&plain.2)), (Verdict::Ok, "Paris"));
            for codings in LISTS {
                let got = chat(media, codings, pack(codings, body.as_bytes()));
                assert_eq!(got, plain, "{media} {codings}");
            }
            assert_eq!(chat(media, "deflate", raw_deflate(body.as_bytes())), plain);
        }
    }

    #[test]
    fn codings_of_several_headers_are_one_list() {
        let body = pack("gzip, br, zstd", DOCUMENT.as_bytes());
        let mut response = encoded(JSON, "gzip", body);
        response.headers.append(CONTENT_ENCODING, HeaderValue::from_static("br, zstd"));
        assert_eq!(on(Wire::OpenAiChat, &response).0, Verdict::Ok);
    }

    #[test]
    fn an_empty_body_is_no_fault_of_its_encoding() {
        for codings in LISTS {
            assert_eq!(chat(SSE, codings, Vec::new()).0, Verdict::Unterminated, "{codings}");
            let packed = pack(codings, b"");
            assert_eq!(chat(SSE, codings, packed).0, Verdict::Unterminated, "{codings}");
        }
    }

    /// More than a window, so that old text is let go while it is still repeated.
    #[test]
    fn long_texts_are_unpacked_at_every_window() {
        let text = noise(300_000);
        let long = [&text[..], &text[..200_000], &text[50_000..]].concat();
        for window in [10, 16, 24] {
            let mut encoder = brotli::CompressorWriter::new(Vec::new(), 0, 5, window);
            encoder.write_all(long.as_bytes()).expect("memory");
            reads_as(&long, "br", encoder.into_inner());
        }
        for (level, window) in [(1, 10), (3, 17), (19, 23)] {
            let mut encoder = zstd::Encoder::new(Vec::new(), level).expect("an encoder");
            encoder.window_log(window).expect("a parameter");
            encoder.write_all(long.as_bytes()).expect("memory");
            reads_as(&long, "zstd", encoder.finish().expect("memory"));
        }
    }

    fn reads_as(text: &str, codings: &'static str, packed: Vec<u8>) {
        let response = encoded("text/plain", codings, packed);
        for cuts in [vec![], (0..response.body.len()).collect()] {
            let got = read(Wire::Plain, &response, &options(), &cuts);
            assert!(super::text(&got.1) == text, "{codings}");
        }
    }

    #[test]
    fn frames_follow_each_other_and_some_are_skipped() {
        let (first, second) = DOCUMENT.split_at(40);
        let skipped = [b"\x53\x2a\x4d\x18\x05\0\0\0" as &[u8], b"12345"].concat();
        let frames = [
            skipped.clone(),
            zstd(first.as_bytes()),
            skipped.clone(),
            zstd(b""),
            zstd(second.as_bytes()),
            skipped,
        ];
        assert_eq!(chat(JSON, "zstd", frames.concat()).0, Verdict::Ok);
        let members = [gzip(first.as_bytes()), gzip(second.as_bytes())].concat();
        assert_eq!(chat(JSON, "gzip", members).0, Verdict::Ok);
    }

    /// A stream is decoded as it comes, also when it is packed.
    #[test]
    fn a_packed_event_is_seen_when_its_bytes_came() {
        let events: Vec<_> = (0..40).map(|n| delta(&noise(n * 10))).collect();
        let events: Vec<_> = events.iter().map(String::as_str).collect();
        for coding in ["gzip", "br", "zstd"] {
            let mut tap = tap(SSE, coding);
            for (n, piece) in flushed(coding, &events).iter().enumerate() {
                tap.feed(piece);
                assert_eq!(tap.progress_events(), (n + 1).min(events.len()) as u64, "{coding}");
            }
        }
    }

    /// What was flushed within what was flushed.
    #[test]
    fn a_stacked_event_is_seen_when_its_bytes_came() {
        let event = delta("x");
        let mut outer = zstd::Encoder::new(Vec::new(), 3).expect("an encoder");
        let mut tap = tap(SSE, "br, zstd");
        for (n, inner) in flushed("br", &[event.as_str(); 5]).iter().enumerate() {
            outer.write_all(inner).expect("memory");
            outer.flush().expect("memory");
            tap.feed(&std::mem::take(outer.get_mut()));
            assert_eq!(tap.progress_events(), (n as u64 + 1).min(5));
        }
    }
}

mod unread {
    use super::*;

    #[test]
    fn an_unknown_encoding_is_not_inspected() {
        for codings in ["aes", "compress", "dcb", "dcz", "br, aes", "gzip, gzip, gzip, gzip"] {
            let got = chat(JSON, codings, DOCUMENT.into());
            assert_eq!(uninspected(&got), Some(Uninspected::Encoding), "{codings}");
            assert_eq!(got.2.content_sha256, None);
        }
        let mut refused = encoded(JSON, "aes", DOCUMENT.into());
        refused.status = 429;
        assert_eq!(on(Wire::OpenAiChat, &refused).0, Verdict::Throttled, "the status decides");
    }

    /// 16 MiB of blanks in a few bytes, or one ratio upon the other.
    #[test]
    fn a_bomb_is_not_inspected() {
        let blanks = vec![b' '; 16 << 20];
        for codings in ["gzip", "deflate", "br", "zstd", "gzip, br", "br, zstd", "zstd, zstd, gzip"]
        {
            let bomb = pack(codings, &blanks);
            for media in [SSE, JSON, "text/plain"] {
                let got = chat(media, codings, bomb.clone());
                assert_eq!(uninspected(&got), Some(Uninspected::Ratio), "{media} {codings}");
            }
        }
    }

    /// Behind the stop reason of an answer the bomb is only more of the same.
    #[test]
    fn what_came_before_the_bound_counts() {
        let mut body = [delta("x"), STOP.to_owned(), DONE.to_owned()].concat();
        body.push_str(&": filler\n\n".repeat(1 << 20));
        for coding in ["gzip", "br", "zstd"] {
            assert_eq!(chat(SSE, coding, pack(coding, body.as_bytes())).0, Verdict::Ok, "{coding}");
        }
    }

    /// In every chunking the same byte is the last one that is allowed.
    #[test]
    fn the_bound_on_the_ratio_does_not_depend_on_chunks() {
        let noise = noise(20_000);
        let parts = noise.as_bytes().chunks(50).map(|part| [&[b'x'; 2000], part].concat());
        let text: Vec<u8> = parts.flatten().collect();
        for codings in ["br", "zstd", "gzip", "zstd, br"] {
            let body = encoded("text/plain", codings, pack(codings, &text));
            let mut found = Vec::new();
            for max_ratio in 1..100 {
                let options = TapOptions { max_ratio, ..options() };
                let whole = read(Wire::Plain, &body, &options, &[]);
                let every: Vec<_> = (0..body.body.len()).collect();
                assert_eq!(read(Wire::Plain, &body, &options, &every), whole, "{codings}");
                found.push(whole.0.uninspected);
            }
            // It is passed by the smaller ratios, and by those alone.
            let passed = found.iter().take_while(|f| **f == Some(Uninspected::Ratio)).count();
            let (over, within) = found.split_at(passed);
            assert!(over.len() > 5 && within.len() > 5, "{codings}: {passed}");
            assert!(within.iter().all(Option::is_none), "{codings}");
        }
    }

    /// A frame that asks for more than 8 MiB of memory, or for a dictionary.
    #[test]
    fn what_a_frame_asks_for_is_bounded() {
        let magic = [0x28, 0xb5, 0x2f, 0xfd];
        let block = [0x29, 0, 0, b'h', b'e', b'l', b'l', b'o'];
        let frame = |header: &[u8]| [&magic, header, &block].concat();
        // The window in its own byte: 8 MiB, and an eighth more; 2^41 and 7/8 of it.
        assert_eq!(chat(JSON, "zstd", frame(&[0, 13 << 3])).0, Verdict::Malformed, "hello is read");
        for window in [13 << 3 | 1, 14 << 3, 31 << 3 | 7] {
            let got = chat(JSON, "zstd", frame(&[0, window]));
            assert_eq!(uninspected(&got), Some(Uninspected::Size), "{window}");
        }
        // One segment: the length is the window.
        let got = chat(JSON, "zstd", frame(&[0xe0, 1, 0, 0, 0, 1, 0, 0, 0]));
        assert_eq!(uninspected(&got), Some(Uninspected::Size));
        let got = chat(JSON, "zstd", frame(&[0x21, 7, 5]));
        assert_eq!(uninspected(&got), Some(Uninspected::Encoding), "a dictionary");
        // Brotli's large window, of 2^30.
        let got = chat(JSON, "br", vec![0x11, 0x1e, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(uninspected(&got), Some(Uninspected::Size));
    }

    #[test]
    fn long_documents_are_not_held() {
        let long = format!("{{\"x\":\"{}\"}}", noise(17 << 20));
        for coding in ["br", "zstd"] {
            let response = encoded(JSON, coding, pack(coding, long.as_bytes()));
            let got = read(Wire::OpenAiChat, &response, &options(), &[]);
            assert_eq!(got.0.uninspected, Some(Uninspected::Size), "{coding}");
        }
    }
}

mod wrong {
    use super::*;

    #[test]
    fn packed_bytes_that_are_wrong_are_malformed() {
        for codings in ["gzip", "zstd", "gzip, br", "zstd, gzip"] {
            // The checksum.
            let inner = codings.split(',').next().expect("one");
            let mut body = pack(inner, DOCUMENT.as_bytes());
            let at = body.len() - if inner == "gzip" { 6 } else { 2 };
            body[at] ^= 1;
            let outer = codings.split_once(',').map_or("", |(_, outer)| outer);
            let body = pack(outer, &body);
            assert_eq!(chat(JSON, codings, body).0, Verdict::Malformed, "{codings}");
        }
        for codings in LISTS {
            assert_eq!(chat(JSON, codings, DOCUMENT.into()).0, Verdict::Malformed, "{codings}");
            // Something behind the end.
            let body =
                [pack(codings, DOCUMENT.as_bytes()), b"more than a header's length".to_vec()]
                    .concat();
            assert_eq!(chat(JSON, codings, body).0, Verdict::Malformed, "{codings}");
        }
    }

    /// Behind the done marker nothing counts any more, the checksum either.
    #[test]
    fn what_is_wrong_behind_the_end_of_an_answer_is_no_fault() {
        let stream = [delta("x"), STOP.to_owned(), DONE.to_owned()].concat();
        for coding in ["gzip", "zstd"] {
            let mut body = pack(coding, stream.as_bytes());
            let at = body.len() - if coding == "gzip" { 6 } else { 2 };
            body[at] ^= 1;
            assert_eq!(chat(SSE, coding, body).0, Verdict::Ok, "{coding}");
        }
    }

    /// A protocol's own end marks decide; text has none but its encoding's.
    #[test]
    fn a_body_that_is_shorter_than_its_encoding_says() {
        let stream = [delta("x"), STOP.to_owned(), DONE.to_owned()].concat();
        let lost = [delta("x"), delta("y")].concat();
        for codings in ["gzip", "br", "zstd", "br, zstd"] {
            let short = |body: &str, by: usize| {
                let mut packed = pack(codings, body.as_bytes());
                packed.truncate(packed.len() - by);
                packed
            };
            let text = encoded("text/plain", codings, short("a text that ends too early", 1));
            assert_eq!(on(Wire::Plain, &text).0, Verdict::Malformed, "{codings}");
            if !codings.contains(',') {
                let first = |body: &str| flushed(codings, &[body]).swap_remove(0);
                assert_eq!(chat(SSE, codings, first(&stream)).0, Verdict::Ok, "{codings}");
                assert_eq!(chat(SSE, codings, first(&lost)).0, Verdict::Unterminated, "{codings}");
            }
            let cut = short(DOCUMENT, 8);
            assert_eq!(chat(JSON, codings, cut).0, Verdict::Malformed, "{codings}");
        }
    }

    /// Each byte wrong, missing or doubled: no panic, and the same in every chunking.
    #[test]
    fn no_damage_panics_or_depends_on_chunks() {
        let body = [delta(&noise(200)), delta("é"), STOP.to_owned(), DONE.to_owned()].concat();
        for codings in ["br", "zstd", "gzip", "deflate", "zstd, br", "br, zstd", "gzip, br, gzip"] {
            let sound = pack(codings, body.as_bytes());
            for at in 0..sound.len() {
                for bits in [0x01, 0x10, 0x80, 0xff] {
                    let mut damaged = sound.clone();
                    damaged[at] ^= bits;
                    same_in_any_chunking(codings, damaged);
                }
                let mut missing = sound.clone();
                missing.remove(at);
                same_in_any_chunking(codings, missing);
                same_in_any_chunking(codings, sound[..at].to_vec());
                same_in_any_chunking(codings, [&sound[..=at], &sound[at..]].concat());
            }
        }
    }

    /// Whatever the bytes are.
    #[test]
    fn no_noise_panics_or_depends_on_chunks() {
        let seed = seed();
        let mut random = Random(seed);
        for _ in 0..4000 {
            let codings = LISTS[random.below(LISTS.len())];
            let mut bytes: Vec<_> =
                (0..random.below(400)).map(|_| random.below(256) as u8).collect();
            let magic: &[u8] = match codings {
                "zstd" | "ZStd" => b"\x28\xb5\x2f\xfd",
                "gzip" => b"\x1f\x8b\x08\0",
                _ => b"",
            };
            bytes.splice(..0, magic.iter().copied());
            same_in_any_chunking(codings, bytes);
        }
    }

    fn same_in_any_chunking(codings: &'static str, body: Vec<u8>) {
        let response = encoded(SSE, codings, body);
        let whole = read(Wire::OpenAiChat, &response, &options(), &[]);
        let every: Vec<_> = (0..response.body.len()).collect();
        let bytewise = read(Wire::OpenAiChat, &response, &options(), &every);
        assert_eq!(bytewise, whole, "{codings} {:02x?}", response.body);
    }
}
