//! The wire `cohere`: one JSON document, or server-sent events that end with `message-end`.
//!
//! Where an event's data has no `type`, its name is the event's; the fields tell what it says.

use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use attempt_ledger_core::{Stop, Verdict};

use crate::{
    error::{self, ReportedError},
    event::{Event, Kind},
    gather::{CallKey, Gather, id_hash},
    json::{self, Body, Index, Obj, Text, Word},
    stop,
    wire::{self, Spec},
};

mod request;
mod v1;

pub(crate) use v1::V1;

pub(crate) const CHAT: Spec = Spec {
    name: "cohere",
    paths: &["/v2/chat"],
    usage: ("usage.tokens.input_tokens", "usage.tokens.output_tokens"),
    lists: false,
    // A policy blocked the request.
    statuses: &[(498, Verdict::Refused)],
    request: request::read,
};

/// Reads version 2, and version 1 where its shape comes.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    older: V1,
}

impl wire::Reader for Reader {
    fn event(&mut self, event: &Event<'_>, gather: &mut Gather) -> bool {
        if event.is_done() {
            gather.done();
            return false;
        }
        if !gather.is_open() {
            return true;
        }
        if event.kind != Kind::Data {
            error::event(event, gather);
            return true;
        }
        match json::parse::<Obj<Chunk<'_>>>(event.data, &mut None) {
            Ok(Obj(chunk)) if chunk.is_older() => return self.older.event(event, gather),
            Ok(Obj(chunk)) => stream_chunk(&chunk, gather),
            Err(error) if event.complete => gather.unread(&error),
            Err(_) => {}
        }
        true
    }

    fn document(&mut self, body: &[u8], cut: bool, gather: &mut Gather) {
        let body = json::without_bom(body);
        match json::parse::<Obj<Chunk<'_>>>(body, &mut None) {
            Ok(Obj(chunk)) if chunk.is_older() => self.older.document(body, cut, gather),
            Ok(Obj(chunk)) => {
                chunk.merge(false, gather);
                if let Some(reported) = chunk.reported_error() {
                    gather.error(reported);
                }
            }
            Err(_) if cut => {}
            Err(error) => gather.unread(&error),
        }
    }
}

fn stream_chunk(chunk: &Chunk<'_>, gather: &mut Gather) {
    match chunk.reported_error() {
        Some(reported) if gather.answered() => gather.late_error(reported.error),
        Some(reported) => {
            chunk.merge(true, gather);
            gather.error(reported);
        }
        None => {
            chunk.merge(true, gather);
            gather.progress += 1;
        }
    }
}

/// An event or a document.
#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Option<Word<'a>>,
    #[serde(default)]
    index: Option<Index>,
    #[serde(borrow, default)]
    delta: Option<Obj<Delta<'a>>>,
    /// A document's, which has an event's fields without `delta`. Of an error it is the text.
    #[serde(borrow, default)]
    message: Option<Body<'a, Obj<Message<'a>>>>,
    #[serde(borrow, default)]
    finish_reason: Option<Text<'a>>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    /// Of version 1.
    #[serde(borrow, default)]
    event_type: Option<&'a RawValue>,
    #[serde(borrow, default)]
    text: Option<&'a RawValue>,
    #[serde(borrow, default)]
    generations: Option<&'a RawValue>,
}

impl Chunk<'_> {
    fn is_older(&self) -> bool {
        let has_shape = self.delta.is_some() || self.message.is_some() || self.kind.is_some();
        self.event_type.is_some()
            || (!has_shape && (self.text.is_some() || self.generations.is_some()))
    }

    fn finish_reason(&self) -> Option<&str> {
        let in_delta = self.delta.as_ref().and_then(|Obj(delta)| delta.finish_reason.as_ref());
        in_delta.or(self.finish_reason.as_ref()).map(|Text(word)| &**word)
    }

    fn reported_error(&self) -> Option<ReportedError> {
        if let Some(error) = self.error {
            return Some(error::from_value(&json::value(error)));
        }
        let word = self.finish_reason();
        // The last event may say why beside a stop word that means a failure.
        let is_told = word.and_then(stop::meaning) == Some(Stop::Failure);
        if let (Some(error), false) =
            (self.delta.as_ref().and_then(|Obj(delta)| delta.error), is_told)
        {
            return Some(error::from_value(&json::value(error)));
        }
        let is_error = self.kind.as_ref().and_then(|Word(kind)| kind.as_deref()) == Some("error");
        let is_text = matches!(self.message, Some(Body::Text(_)));
        let only_an_error = is_text && self.delta.is_none() && word.is_none();
        (is_error || only_an_error).then(ReportedError::default)
    }

    fn merge(&self, streamed: bool, gather: &mut Gather) {
        let delta = self.delta.as_ref().map(|Obj(delta)| delta);
        let index = self.index.map(|Index(index)| index);
        let in_delta = delta.and_then(|delta| delta.message.as_ref());
        let own = match &self.message {
            Some(Body::Parts(messages)) => messages.first(),
            _ => None,
        };
        if let Some(Obj(message)) = in_delta.or(own) {
            message.merge(index, streamed, gather);
        }
        if let Some(word) = self.finish_reason() {
            gather.stop_word(word);
        }
        let usage = delta.and_then(|delta| delta.usage).or(self.usage);
        if let Some(Ok(Obj(Usage { tokens: Some(Obj(tokens)) }))) =
            usage.map(|raw| serde_json::from_str::<Obj<Usage>>(raw.get()))
        {
            gather.usage(json::count(&tokens.input), json::count(&tokens.output));
        }
    }
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow, default)]
    message: Option<Obj<Message<'a>>>,
    #[serde(borrow, default)]
    finish_reason: Option<Text<'a>>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    content: Option<Body<'a, Obj<Part<'a>>>>,
    #[serde(borrow, default)]
    tool_calls: Option<Body<'a, Obj<Call<'a>>>>,
    /// What it means to do with its tools: no answer text.
    #[serde(borrow, default)]
    tool_plan: Option<Text<'a>>,
}

impl Message<'_> {
    /// `index` tells the calls of a stream apart, which come one an event.
    fn merge(&self, index: Option<u64>, streamed: bool, gather: &mut Gather) {
        match &self.content {
            Some(Body::Text(Text(text))) => gather.text(text),
            Some(Body::Parts(parts)) => {
                for Obj(part) in parts.iter() {
                    part.merge(gather);
                }
            }
            None => {}
        }
        if let Some(Text(plan)) = &self.tool_plan {
            gather.reasoning(plan);
        }
        let Some(Body::Parts(calls)) = &self.tool_calls else { return };
        for (position, Obj(call)) in calls.iter().enumerate() {
            let key = match (index, &call.id) {
                _ if !streamed => CallKey::Index(position as u64),
                (Some(index), _) => CallKey::Index(index.saturating_add(position as u64)),
                (None, Some(Text(id))) => CallKey::Id(id_hash(id)),
                (None, None) => CallKey::Newest,
            };
            let function = call.function.as_ref().map(|Obj(function)| function);
            let name = function.and_then(|function| function.name.as_ref());
            let name = name.map_or("", |Text(name)| name);
            let arguments = json::string_or_json(function.and_then(|function| function.arguments));
            gather.call(key, name, &arguments);
        }
    }
}

/// A part of the content, or a piece of one. Its sources are not answer text.
#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow, default)]
    text: Option<Text<'a>>,
    #[serde(borrow, default)]
    thinking: Option<Text<'a>>,
}

impl Part<'_> {
    fn merge(&self, gather: &mut Gather) {
        if let Some(Text(text)) = &self.text {
            gather.text(text);
        }
        if let Some(Text(thought)) = &self.thinking {
            gather.reasoning(thought);
        }
    }
}

#[derive(Deserialize)]
struct Call<'a> {
    #[serde(borrow, default)]
    id: Option<Text<'a>>,
    #[serde(borrow, default)]
    function: Option<Obj<Function<'a>>>,
}

#[derive(Deserialize)]
struct Function<'a> {
    #[serde(borrow, default)]
    name: Option<Text<'a>>,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Usage {
    #[serde(default)]
    tokens: Option<Obj<Tokens>>,
}

/// Those that were counted; those that are billed are others.
#[derive(Deserialize)]
struct Tokens {
    #[serde(default, rename = "input_tokens")]
    input: Value,
    #[serde(default, rename = "output_tokens")]
    output: Value,
}
