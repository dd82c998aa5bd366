//! The wire `anthropic-messages`: one JSON document, or a stream of events that build the same
//! message block by block and end in `message_stop`.
//!
//! An event is known by the `type` in its data, else by its name, else by its fields: relays and
//! compatible servers leave out one or the other, and Bedrock's frames have no names.

use serde::Deserialize;
use serde_json::{Result, Value, json, value::RawValue};

use crate::{
    error::{self, ReportedError},
    event::{Event, Kind},
    gather::Gather,
    json::{self, Index, Maybe, Obj, Word, value},
    surrogate,
    wire::{self, Spec},
};

mod blocks;
mod request;

use blocks::{Block, Blocks};

pub(crate) const MESSAGES: Spec = Spec {
    name: "anthropic-messages",
    paths: &[
        "/v1/messages",
        "/publishers/anthropic/models/*:rawPredict",
        // Vertex AI counts tokens under a model's name.
        "!/publishers/anthropic/models/count-tokens:rawPredict",
        "/publishers/anthropic/models/*:streamRawPredict",
        "/model/*anthropic.*/invoke",
        "/model/*anthropic.*/invoke-with-response-stream",
    ],
    usage: ("input_tokens", "output_tokens"),
    lists: false,
    statuses: &[],
    request: request::read,
};

#[derive(Debug, Default)]
pub(crate) struct Reader {
    blocks: Blocks,
    /// A message began; a relay may say so twice.
    started: bool,
}

impl wire::Reader for Reader {
    fn event(&mut self, event: &Event<'_>, gather: &mut Gather) -> bool {
        if event.kind != Kind::Data {
            if gather.is_open() {
                error::event(event, gather);
            }
            return true;
        }
        if event.is_done() {
            gather.done();
            return false;
        }
        match json::parse::<Obj<Data<'_>>>(event.data, &mut None) {
            Ok(Obj(data)) => self.data(&data, event.name, gather),
            Err(_) if event.complete && event.name != "ping" && gather.is_open() => {
                gather.malformed();
                true
            }
            Err(_) => true,
        }
    }

    fn document(&mut self, body: &[u8], cut: bool, gather: &mut Gather) {
        // The blocks are read from their raw text, where it is too late to mend it.
        let mended = surrogate::mend(body);
        let body = json::without_bom(mended.as_deref().unwrap_or(body));
        let read = serde_json::from_slice::<Obj<Data<'_>>>(body).and_then(|Obj(data)| {
            self.blocks.list(data.content, gather)?;
            data.ending().report(gather);
            if let Some(reported) = data.reported_error(data.part("")) {
                gather.error(reported);
            }
            Ok(())
        });
        if read.is_err() && !cut {
            gather.malformed();
        }
    }

    fn held(&self) -> usize {
        self.blocks.held()
    }
}

impl Reader {
    /// False at the end of the message.
    fn data(&mut self, data: &Data<'_>, name: &str, gather: &mut Gather) -> bool {
        let part = data.part(name);
        if gather.is_open() && part != Part::Ping {
            self.counted(data, part, gather);
        }
        if part == Part::MessageStop {
            gather.done();
        }
        part != Part::MessageStop
    }

    fn counted(&mut self, data: &Data<'_>, part: Part, gather: &mut Gather) {
        let reported = data.reported_error(part);
        if let (Some(_), true) = (&reported, gather.answered()) {
            // What comes with it, a stop word above all, does not touch the answer that stands.
            report_usage(data.usage, gather);
        } else if self.merge(data, part, gather).is_err() {
            return gather.malformed();
        }
        match reported {
            Some(reported) => gather.reported(reported),
            None => gather.progress += 1,
        }
    }

    fn merge(&mut self, data: &Data<'_>, part: Part, gather: &mut Gather) -> Result<()> {
        let index = data.index.map(|Index(index)| index);
        match part {
            Part::MessageStart => {
                if let Some(Maybe(Some(message))) = &data.message {
                    let content = message.content.filter(|_| !self.started);
                    self.blocks.list(content, gather)?;
                    message.ending().report(gather);
                }
                self.started = true;
            }
            Part::BlockStart => {
                if let Some(Maybe(Some(block))) = &data.content_block {
                    self.blocks.start(index, block, gather);
                }
            }
            Part::BlockDelta => {
                if let Some(Maybe(Some(delta))) = &data.delta {
                    self.blocks.delta(index, delta, gather);
                }
            }
            Part::MessageDelta => {
                self.blocks.settle(gather);
                if let Some(Maybe(Some(delta))) = &data.delta {
                    delta.ending().report(gather);
                }
                data.ending().report(gather);
            }
            Part::Message => {
                // All of it at once, from a relay that does not stream itself.
                if !gather.facts.usable() {
                    self.blocks.list(data.content, gather)?;
                }
                data.ending().report(gather);
            }
            Part::BlockStop => self.blocks.settle(gather),
            Part::MessageStop => {
                self.blocks.settle(gather);
                data.ending().report(gather);
            }
            Part::Ping | Part::Error | Part::Other => {}
        }
        Ok(())
    }
}

/// What an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    MessageStart,
    BlockStart,
    BlockDelta,
    BlockStop,
    MessageDelta,
    MessageStop,
    /// A whole message.
    Message,
    Ping,
    Error,
    /// One that is not known here: newer than this decoder, or a server's own.
    Other,
}

impl Part {
    fn of(word: &str) -> Part {
        match word {
            "message_start" => Part::MessageStart,
            "content_block_start" => Part::BlockStart,
            "content_block_delta" => Part::BlockDelta,
            "content_block_stop" => Part::BlockStop,
            "message_delta" => Part::MessageDelta,
            "message_stop" => Part::MessageStop,
            "message" => Part::Message,
            "ping" => Part::Ping,
            "error" => Part::Error,
            // An error that is not wrapped: its type is its cause.
            _ if word.ends_with("_error") => Part::Error,
            _ => Part::Other,
        }
    }
}

/// An event's data or a document: the fields that say something. All others are skipped unread.
///
/// One struct reads all events, since a server may leave out what tells them apart. A field that
/// is of another type than expected is one that is not there.
#[derive(Deserialize)]
#[serde(expecting = "an object of the Messages API")]
struct Data<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Option<Word<'a>>,
    #[serde(default)]
    index: Option<Index>,
    #[serde(borrow, default)]
    delta: Option<Maybe<Block<'a>>>,
    #[serde(borrow, default)]
    content_block: Option<Maybe<Block<'a>>>,
    #[serde(borrow, default)]
    message: Option<Maybe<Message<'a>>>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    base_resp: Option<&'a RawValue>,
    #[serde(borrow, default)]
    object: Option<Word<'a>>,
    #[serde(borrow, default)]
    code: Option<&'a RawValue>,
    #[serde(borrow, default)]
    msg: Option<&'a RawValue>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    stop_reason: Option<Word<'a>>,
    #[serde(borrow, default)]
    stop_details: Option<Maybe<StopDetails<'a>>>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
}

impl<'a> Data<'a> {
    fn part(&self, name: &str) -> Part {
        match word(&self.kind) {
            "" => match Part::of(name) {
                Part::Message | Part::Other => self.by_its_fields(),
                part => part,
            },
            kind => Part::of(kind),
        }
    }

    fn by_its_fields(&self) -> Part {
        match (&self.message, &self.content_block, &self.delta) {
            (Some(Maybe(Some(_))), _, _) => Part::MessageStart,
            (_, Some(Maybe(Some(_))), _) => Part::BlockStart,
            (_, _, Some(Maybe(Some(delta)))) if delta.is_end() => Part::MessageDelta,
            (_, _, Some(Maybe(Some(_)))) => Part::BlockDelta,
            _ if self.content.is_some() => Part::Message,
            _ => Part::Other,
        }
    }

    fn reported_error(&self, part: Part) -> Option<ReportedError> {
        if let Some(error) = self.error {
            return Some(error::from_value(&value(error)).or_stated_beside(|| self.flat()));
        }
        if let Some(base) = self.base_resp {
            let status = value(base).get("status_code").and_then(Value::as_i64);
            if let Some(status) = status.filter(|status| *status != 0) {
                return Some(error::from_base_resp(status));
            }
        }
        let is_error = part == Part::Error || word(&self.object) == "error";
        (is_error || (part == Part::Other && self.is_only_an_error())).then(|| self.flat())
    }

    /// A code other than one of success, a message, and nothing of an answer.
    fn is_only_an_error(&self) -> bool {
        let failed = |code: &RawValue| !matches!(code.get(), "0" | "200" | "\"0\"" | "\"200\"");
        let has_message = matches!(self.message, Some(Maybe(None))) || self.msg.is_some();
        self.code.is_some_and(failed)
            && has_message
            && self.content.is_none()
            && self.stop_reason.is_none()
    }

    /// An error whose fields are the data's own.
    fn flat(&self) -> ReportedError {
        let code = self.code.map(value);
        error::from_value(&json!({"code": code, "type": word(&self.kind)}))
    }

    fn ending(&self) -> Ending<'_> {
        Ending { reason: &self.stop_reason, details: &self.stop_details, usage: self.usage }
    }
}

/// The message that a stream begins with.
#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    stop_reason: Option<Word<'a>>,
    #[serde(borrow, default)]
    stop_details: Option<Maybe<StopDetails<'a>>>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
}

impl Message<'_> {
    fn ending(&self) -> Ending<'_> {
        Ending { reason: &self.stop_reason, details: &self.stop_details, usage: self.usage }
    }
}

/// How a message ended, if it did, and what it took.
struct Ending<'e> {
    reason: &'e Option<Word<'e>>,
    details: &'e Option<Maybe<StopDetails<'e>>>,
    usage: Option<&'e RawValue>,
}

impl Ending<'_> {
    fn report(&self, gather: &mut Gather) {
        let reason = word(self.reason);
        if !reason.is_empty() {
            gather.stop_word(reason);
            gather.facts.continues = matches!(reason, "pause_turn" | "compaction");
        }
        if let ("refusal", Some(Maybe(Some(details)))) = (reason, self.details) {
            gather.refusal(word(&details.explanation));
        }
        report_usage(self.usage, gather);
    }
}

/// Why a message was stopped, in words for people.
#[derive(Deserialize)]
struct StopDetails<'a> {
    #[serde(borrow, default)]
    explanation: Option<Word<'a>>,
}

/// A count that is null or missing leaves the one before it.
fn report_usage(usage: Option<&RawValue>, gather: &mut Gather) {
    let Some(usage) = usage.map(value) else { return };
    let count = |name| usage.get(name).and_then(json::count);
    gather.usage(count("input_tokens"), count("output_tokens"));
}

fn word<'w>(word: &'w Option<Word<'_>>) -> &'w str {
    match word {
        Some(Word(Some(word))) => word,
        _ => "",
    }
}
