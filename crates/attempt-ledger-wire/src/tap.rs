use std::fmt;

use attempt_ledger_core::{Content, Digest, Facts, Label, Uninspected, Usage};
use http::HeaderMap;
use memchr::memchr;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::{
    Wire,
    encoding::{Coding, Failed, Inflate},
    error::{self, ReportedError},
    event::{Event, Sink},
    framing::{Framing, frames::Frames, lines::Lines, list::List, sse::Sse},
    gather::Gather,
    hints,
    json::{self, Obj},
    media::Media,
    wire::AnyReader,
    wires::{converse, plain::Utf8},
};

/// Bytes of an error response's body that are read for its code.
const MAX_ERROR_BODY: usize = 256 * 1024;

/// How a [`Tap`] decodes.
#[derive(Clone, Debug)]
pub struct TapOptions {
    /// Keep the content itself, for graders. Otherwise only hashes of it are held.
    pub keep_content: bool,
    /// Take the wire's done marker as a stop reason, for servers that never state one.
    pub accept_done: bool,
    /// Decoded bytes of a document, or of content that is kept, at most. Default 16 MiB.
    pub max_body: usize,
    /// Decoded bytes to one encoded byte, at most. Default 100.
    pub max_ratio: u32,
    /// Bytes of one event, at most. Default 16 MiB.
    pub max_event: usize,
    /// Whether the request asked for a stream, where that is known; the answer that differs is
    /// noted.
    pub stream_asked: Option<bool>,
}

impl Default for TapOptions {
    fn default() -> Self {
        TapOptions {
            keep_content: false,
            accept_done: false,
            max_body: 16 * 1024 * 1024,
            max_ratio: 100,
            max_event: 16 * 1024 * 1024,
            stream_asked: None,
        }
    }
}

/// What a response held, beyond the facts that decide its verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// The provider's stop word: the last one that was not empty.
    pub finish_reason: Option<Label>,
    /// SHA-256 of the answer text in UTF-8, as far as it came; `None` without text.
    pub content_sha256: Option<Digest>,
    /// SHA-256 of text, tool calls, refusal and stop word together: see
    /// [`answer_sha256`](crate::answer_sha256).
    pub answer_sha256: Digest,
    /// Unicode code points of the answer text.
    pub content_chars: u64,
    /// Unicode code points of the reasoning that was shown beside it, where any was.
    pub reasoning_chars: u64,
    /// The provider's id of the response, on wires whose answers may be fetched by it later.
    pub response_id: Option<Label>,
    /// Distinct tool calls.
    pub tool_calls: u32,
    /// Token counts, the last ones that were reported.
    pub usage: Usage,
    /// Progress events, when the body was decoded as a stream.
    pub events: Option<u64>,
    /// The content, when [`TapOptions::keep_content`] is set.
    pub content: Option<Content>,
}

/// Reads a response's body beside its reader, as it passes.
///
/// Fed with the raw bytes in any chunking; the result does not depend on where they were cut.
/// A stream is decoded as it comes, and no more is held than its longest event; a document is
/// held, up to a bound, and decoded at its end.
///
/// At the end of the body call [`finish`](Tap::finish) if it ended as its framing says, or
/// [`cut`](Tap::cut) if it broke, or its reader left.
pub struct Tap {
    wire: Wire,
    is_stream: bool,
    inflate: Option<Inflate>,
    mode: Mode,
    state: State,
    /// The error that the head names, which counts if the body names none.
    named: Option<ReportedError>,
    finished: bool,
}

/// What a decoder writes to.
struct State {
    reader: AnyReader,
    gather: Gather,
    stream_asked: Option<bool>,
    /// Nothing but the media type says what wire it is, until the first event does.
    guessed: bool,
}

enum Mode {
    /// Nothing is read.
    Skip,
    /// Events.
    Events(Framing),
    /// A list of events or one document: the first byte that is no space will tell.
    ListOrDocument { max_event: usize, max_body: usize },
    /// A JSON value a line or one document: what comes behind the first line will tell.
    LinesOrDocument { first: FirstLine, max_event: usize },
    /// One JSON document of a 2xx.
    Document(Held),
    /// Text that is itself the content.
    Text(Utf8, usize),
    /// The body of a 4xx or 5xx.
    ErrorBody(Held),
}

struct Held {
    bytes: Vec<u8>,
    max: usize,
}

impl Tap {
    /// A tap for a response on `wire` with this head.
    pub fn new(wire: Wire, status: u16, headers: &HeaderMap, options: &TapOptions) -> Tap {
        let media = Media::of(headers);
        // Frames are AWS's: the first of them says whether they are Bedrock's.
        let guessed = wire == Wire::Plain && media == Media::Frames;
        let wire = match (wire, media) {
            (Wire::Plain, Media::Frames) => Wire::BedrockConverse,
            _ => wire,
        };
        let is_plain = wire == Wire::Plain;
        let is_stream = match media {
            Media::EventStream => true,
            Media::Lines | Media::Frames => !is_plain,
            _ => false,
        };
        let is_answer = (200..300).contains(&status);
        let said = wire.spec().statuses.iter().find(|(number, _)| *number == status);
        let mut facts = Facts {
            // A plain stream has no stop reason that could be missing.
            streamed: is_answer && is_stream && !is_plain,
            retry_after_ms: hints::retry_after_ms(headers),
            status_says: said.map(|(_, verdict)| *verdict),
            other_media: is_answer && options.stream_asked.is_some_and(|asked| asked != is_stream),
            ..Facts::default()
        };
        let reader = AnyReader::of(wire);
        let mut mode = match media {
            _ if status >= 400 && is_plain => Mode::Skip,
            _ if status >= 400 => Mode::ErrorBody(Held::new(MAX_ERROR_BODY)),
            _ if !is_answer => Mode::Skip,
            Media::EventStream => Mode::Events(Framing::Sse(Sse::new(options.max_event))),
            Media::Lines if !is_plain => {
                Mode::Events(Framing::Lines(Lines::new(options.max_event)))
            }
            Media::Frames if !is_plain => {
                Mode::Events(Framing::Frames(Frames::new(options.max_event)))
            }
            _ if wire.spec().lists => {
                Mode::ListOrDocument { max_event: options.max_event, max_body: options.max_body }
            }
            _ if reader.may_be_lines() => Mode::LinesOrDocument {
                first: FirstLine { held: Held::new(options.max_body), from: 0, is_object: false },
                max_event: options.max_event,
            },
            _ if !is_plain => Mode::Document(Held::new(options.max_body)),
            Media::Json => Mode::Document(Held::new(options.max_body)),
            Media::Text | Media::Lines | Media::Unknown => {
                Mode::Text(Utf8::default(), options.max_body)
            }
            Media::Binary | Media::Frames => {
                facts.uninspected = Some(Uninspected::MediaType);
                Mode::Skip
            }
        };
        let coding = Coding::of(headers);
        if coding == Coding::Unknown && !matches!(mode, Mode::Skip) {
            facts.uninspected = Some(Uninspected::Encoding);
            mode = Mode::Skip;
        }
        let inflate = match mode {
            Mode::Skip => None,
            _ => Inflate::new(coding, options.max_ratio),
        };
        let gather =
            Gather::new(facts, options.keep_content, options.max_body, options.accept_done);
        let state = State { reader, gather, stream_asked: options.stream_asked, guessed };
        let named = (status >= 400).then(|| error::aws::from_headers(headers)).flatten();
        Tap { wire, is_stream, inflate, mode, state, named, finished: false }
    }

    /// The wire it reads.
    pub fn wire(&self) -> Wire {
        self.wire
    }

    /// Whether the response is a stream of events, by its media type.
    ///
    /// JSON may be either on a wire that also streams it as one list: until the first byte tells, it
    /// is a stream if one was asked for.
    pub fn is_stream(&self) -> bool {
        match &self.mode {
            Mode::ListOrDocument { .. } => self.state.stream_asked == Some(true),
            Mode::Events(_) => true,
            _ => self.is_stream,
        }
    }

    /// Takes the next raw bytes of the body. Does nothing after the end.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.finished || matches!(self.mode, Mode::Skip) {
            return;
        }
        let Some(inflate) = &mut self.inflate else {
            return self.mode.feed(bytes, &mut self.state);
        };
        let (mode, state) = (&mut self.mode, &mut self.state);
        let failed = inflate.feed(bytes, |decoded| mode.feed(decoded, state)).err();
        if let Some(failed) = failed {
            self.unpack_failed(failed);
        }
    }

    /// The body ended as its framing says. An unterminated last event is used if it parses; a
    /// document that does not parse is malformed. A second call does nothing.
    pub fn finish(&mut self) {
        self.end(false);
    }

    /// The body ended early: its transfer broke, a clock passed, or its reader left. What is
    /// unfinished is used if it parses and proves nothing if it does not. A second call, or one
    /// after [`finish`](Tap::finish), does nothing.
    pub fn cut(&mut self) {
        self.end(true);
    }

    /// What is known so far; complete after [`finish`](Tap::finish) or [`cut`](Tap::cut).
    pub fn facts(&self) -> &Facts {
        &self.state.gather.facts
    }

    /// Events of the protocol so far: no comments, pings, done markers or errors.
    pub fn progress_events(&self) -> u64 {
        self.state.gather.progress
    }

    /// Whether a first non-empty text, tool call or refusal came.
    pub fn has_first_content(&self) -> bool {
        let facts = self.facts();
        facts.text_chars > 0 || facts.tool_calls > 0 || facts.refusal
    }

    /// Whether the wire's done marker came: nothing after it is recorded.
    pub fn terminal(&self) -> bool {
        self.facts().done
    }

    /// What the body held. Ends the tap with [`cut`](Tap::cut) if nobody did; takes the content
    /// that was kept.
    pub fn evidence(&mut self) -> Evidence {
        self.cut();
        let streamed = matches!(self.mode, Mode::Events(_));
        self.state.gather.evidence(streamed)
    }

    /// Bytes that are held now: of the body, and by the decoders of its encoding, these about.
    pub fn held(&self) -> usize {
        let held = match &self.mode {
            Mode::Events(framing) => framing.held(),
            Mode::Document(held) | Mode::ErrorBody(held) => held.bytes.capacity(),
            Mode::LinesOrDocument { first, .. } => first.held.bytes.capacity(),
            Mode::Skip | Mode::Text(..) | Mode::ListOrDocument { .. } => 0,
        };
        held + self.state.reader.held() + self.inflate.as_ref().map_or(0, Inflate::held)
    }

    fn unpack_failed(&mut self, failed: Failed) {
        if self.state.gather.is_open() && !matches!(self.mode, Mode::ErrorBody(_)) {
            match failed {
                Failed::Corrupt | Failed::Short => self.state.gather.malformed(),
                Failed::Unread(why) => self.state.gather.uninspected(why),
            }
        }
        self.inflate = None;
        self.stop_reading();
    }

    /// Keeps what is known and reads no more.
    fn stop_reading(&mut self) {
        match &mut self.mode {
            // Events stay a stream, with their count.
            Mode::Events(framing) => framing.close(),
            mode => *mode = Mode::Skip,
        }
    }

    fn end(&mut self, cut: bool) {
        if std::mem::replace(&mut self.finished, true) {
            return;
        }
        if let Some(Err(failed)) = self.inflate.take().map(|mut inflate| inflate.finish()) {
            let tells = match failed {
                Failed::Unread(_) => true,
                Failed::Corrupt => !cut,
                // A protocol has end marks of its own, which servers keep better than an encoding's.
                Failed::Short => !cut && self.wire == Wire::Plain,
            };
            if tells {
                self.unpack_failed(failed);
            }
        }
        let State { reader, gather, .. } = &mut self.state;
        match &mut self.mode {
            Mode::Skip => {}
            Mode::ListOrDocument { .. } => reader.document(b"", cut, gather),
            Mode::Events(framing) => framing.finish(&mut self.state),
            Mode::Document(held) | Mode::LinesOrDocument { first: FirstLine { held, .. }, .. } => {
                let body = std::mem::take(&mut held.bytes);
                reader.document(&body, cut, gather);
            }
            Mode::Text(utf8, _) if !cut => utf8.finish(gather),
            Mode::Text(..) => {}
            Mode::ErrorBody(held) => {
                let body = std::mem::take(&mut held.bytes);
                error_body(&body, gather);
            }
        }
        if let Some(named) = self.named.take() {
            self.state.gather.error(named);
        }
    }
}

impl fmt::Debug for Tap {
    /// Without the body's bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tap")
            .field("wire", &self.wire)
            .field("is_stream", &self.is_stream)
            .field("facts", self.facts())
            .field("finished", &self.finished)
            .finish_non_exhaustive()
    }
}

impl Mode {
    fn feed(&mut self, bytes: &[u8], state: &mut State) {
        match self {
            Mode::Skip => {}
            Mode::Events(framing) => framing.feed(bytes, state),
            Mode::Text(utf8, room) => {
                if !state.gather.is_open() {
                    return;
                }
                let (fits, over) = bytes.split_at(bytes.len().min(*room));
                *room -= fits.len();
                utf8.feed(fits, &mut state.gather);
                if !over.is_empty() {
                    state.over_bound();
                }
            }
            Mode::ListOrDocument { max_event, max_body } => {
                let is_filler = |b: &u8| b.is_ascii_whitespace() || json::BOM.contains(b);
                let start = bytes.iter().position(|b| !is_filler(b)).unwrap_or(bytes.len());
                let Some(bytes) = bytes.get(start..).filter(|bytes| !bytes.is_empty()) else {
                    return;
                };
                if bytes.first() == Some(&b'[') {
                    state.is_a_stream();
                    *self = Mode::Events(Framing::List(List::new(*max_event)));
                } else {
                    *self = Mode::Document(Held::new(*max_body));
                }
                self.feed(bytes, state);
            }
            Mode::LinesOrDocument { first, max_event } => {
                let (told, rest) = first.feed(bytes);
                match told {
                    Told::NotYet => {}
                    Told::OverBound => {
                        state.over_bound();
                        *self = Mode::Skip;
                    }
                    Told::Lines => {
                        let held = std::mem::take(&mut first.held.bytes);
                        state.is_a_stream();
                        *self = Mode::Events(Framing::Lines(Lines::new(*max_event)));
                        self.feed(&held, state);
                        self.feed(rest, state);
                    }
                    Told::Document => {
                        let bytes = std::mem::take(&mut first.held.bytes);
                        let held = Held { bytes, max: first.held.max };
                        *self = Mode::Document(held);
                        self.feed(rest, state);
                    }
                }
            }
            Mode::Document(held) => {
                if !held.take(bytes) {
                    state.over_bound();
                    *self = Mode::Skip;
                }
            }
            // The status decides without it.
            Mode::ErrorBody(held) => {
                if !held.take(bytes) {
                    *self = Mode::Skip;
                }
            }
        }
    }
}

/// Tells a JSON value a line from one document where the media type does not: there is more than
/// one line, and the first is a whole object.
struct FirstLine {
    /// All that came.
    held: Held,
    /// Where the first line begins that is not blank.
    from: usize,
    /// That line has ended, and is an object.
    is_object: bool,
}

enum Told {
    NotYet,
    OverBound,
    Lines,
    Document,
}

impl FirstLine {
    /// Takes more of the body, as far as that tells nothing; and what is left.
    fn feed<'a>(&mut self, mut bytes: &'a [u8]) -> (Told, &'a [u8]) {
        while !bytes.is_empty() {
            let (line, rest) = match memchr(b'\n', bytes) {
                Some(at) => bytes.split_at(at + 1),
                None => (bytes, &bytes[..0]),
            };
            if self.is_object && !line.trim_ascii().is_empty() {
                return (Told::Lines, bytes);
            }
            if !self.held.take(line) {
                return (Told::OverBound, rest);
            }
            bytes = rest;
            if line.ends_with(b"\n") && !self.is_object {
                let line = self.held.bytes.get(self.from..).unwrap_or_default();
                let line = json::without_bom(line).trim_ascii();
                if line.is_empty() {
                    self.from = self.held.bytes.len();
                } else if json::parse::<Obj<IgnoredAny>>(line, &mut None).is_ok() {
                    self.is_object = true;
                } else {
                    return (Told::Document, rest);
                }
            }
        }
        (Told::NotYet, bytes)
    }
}

impl State {
    /// What came as JSON turns out to be a stream of events.
    fn is_a_stream(&mut self) {
        self.gather.facts.streamed = true;
        self.gather.facts.other_media = self.stream_asked == Some(false);
    }
}

impl Held {
    fn new(max: usize) -> Self {
        Held { bytes: Vec::new(), max }
    }

    /// False if it would be over the bound.
    fn take(&mut self, bytes: &[u8]) -> bool {
        let fits = self.bytes.len() + bytes.len() <= self.max;
        if fits {
            let len = self.bytes.len();
            if self.bytes.capacity() - len < bytes.len() {
                // Twice as much, but never over the bound.
                self.bytes.reserve_exact(bytes.len().max(len).min(self.max - len));
            }
            self.bytes.extend_from_slice(bytes);
        }
        fits
    }
}

impl Sink for State {
    fn event(&mut self, event: Event<'_>) -> bool {
        if std::mem::take(&mut self.guessed) && !converse::is_of_bedrock(&event) {
            self.gather.uninspected(Uninspected::MediaType);
            return false;
        }
        self.reader.event(&event, &mut self.gather)
    }

    fn broken(&mut self) {
        if self.guessed {
            self.gather.uninspected(Uninspected::MediaType);
        } else if self.gather.is_open() {
            self.gather.malformed();
        }
    }

    fn over_bound(&mut self) {
        if self.gather.is_open() {
            self.gather.uninspected(Uninspected::Size);
        }
    }
}

fn error_body(body: &[u8], gather: &mut Gather) {
    let body = json::without_bom(body);
    let read = |json: &[u8]| error::from_body(&serde_json::from_slice::<Value>(json).ok()?);
    // A stream that was refused may still frame its error as an event.
    let framed = || {
        body.split(|b| matches!(b, b'\n' | b'\r'))
            .find_map(|line| read(line.strip_prefix(b"data:")?))
    };
    if let Some(reported) = read(body).or_else(framed) {
        gather.error(reported);
    }
}
