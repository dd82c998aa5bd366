//! What came back: the bytes that a model API sent, in any chunking, turned into evidence.
//!
//! A [`Tap`] is fed with a response's head and body as they pass and yields the
//! [`Facts`](attempt_ledger_core::Facts) from which [`decide()`](attempt_ledger_core::decide())
//! makes the verdict, and the [`Evidence`] that a row holds. [`read_request`]
//! does the same for what is sent; [`hints`] reads headers.
//!
//! A tap unpacks the body itself, on its own copy, by its `Content-Encoding`: `gzip`, `deflate` (with
//! its wrapper or bare), `br` (feature `br`) and `zstd` (feature `zstd`; both by default), and up to
//! three of them one upon the other. What was flushed is seen at once. Any other encoding, and one
//! whose feature is off, is `uninspected`; so is a body that unpacks to more than
//! [`TapOptions::max_ratio`] times its length, and a frame that asks for a window of more than 8 MiB
//! (`zstd`; brotli's own is 16 MiB at most) or for a dictionary. Bytes that are not what the encoding
//! says are `malformed`. The decoders need memory beside the body's: some 80 KiB for the deflate
//! family; for the others what was unpacked so far and 200 KiB, until two windows are full.
//!
//! ```
//! use attempt_ledger_core::{BodyEnd, Verdict, decide};
//! use attempt_ledger_wire::{Tap, TapOptions, Wire};
//! use http::{HeaderMap, HeaderValue, header::CONTENT_TYPE};
//!
//! let mut headers = HeaderMap::new();
//! headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
//! let mut tap = Tap::new(Wire::OpenAiChat, 200, &headers, &TapOptions::default());
//!
//! tap.feed(b"data: {\"choices\":[{\"delta\":{\"content\":\"Par");
//! tap.feed(b"is\"},\"finish_reason\":null}]}\n\n");
//! assert!(tap.has_first_content());
//! // Half an answer, and the body ends as if all were well.
//! tap.finish();
//! assert_eq!(decide(200, tap.facts(), &BodyEnd::Complete).verdict, Verdict::Unterminated);
//! assert_eq!(tap.evidence().content_chars, 5);
//! ```
//!
//! # Server-sent events
//!
//! They are split as the rules of WHATWG say (line ends LF, CRLF and CR, one space behind the colon
//! or none, several lines of data joined, one byte-order mark skipped, comments and unknown fields
//! dropped), except that
//!
//! - the last event counts, if it parses, although the blank line behind it is missing;
//! - an event whose data is empty or white space is none: it keeps a connection alive;
//! - a field named `error` is an error that is reported: llama.cpp wrote its failures so;
//! - the fields `id` and `retry` are not read, since nothing here connects again;
//! - bytes that are no UTF-8 are not replaced: an event that holds them does not parse;
//! - of an event's name no more than 64 bytes are kept, and a name that is no UTF-8 is none;
//! - an event longer than [`TapOptions::max_event`] ends the reading, as a done marker does.
//!
#![doc = include_str!("../docs/wires.md")]

mod encoding;
mod error;
mod event;
mod framing;
mod gather;
pub mod hints;
mod json;
mod media;
mod request;
mod stop;
mod surrogate;
mod tap;
mod wire;
mod wires;

pub use attempt_ledger_core::answer_sha256;
pub use request::{RequestFacts, read_request};
pub use tap::{Evidence, Tap, TapOptions};
pub use wire::Wire;
