//! Version 1 of Cohere's chat and of its older generation, as Bedrock serves them too: lines of
//! JSON that end with one that `is_finished`, or one document.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::Tokens;
use crate::{
    error::{self, ReportedError},
    event::{Event, Kind},
    gather::{CallKey, Gather},
    json::{self, Few, Index, Obj, Text, Word},
    wire,
};

#[derive(Debug, Default)]
pub(crate) struct V1;

impl wire::Reader for V1 {
    fn event(&mut self, event: &Event<'_>, gather: &mut Gather) -> bool {
        if !gather.is_open() {
            return true;
        }
        if event.kind != Kind::Data {
            error::event(event, gather);
            return true;
        }
        match json::parse::<Obj<Piece<'_>>>(event.data, &mut None) {
            Ok(Obj(piece)) => match piece.reported_error() {
                Some(reported) => gather.reported(reported),
                None => {
                    piece.merge(gather);
                    gather.progress += 1;
                }
            },
            Err(error) if event.complete => gather.unread(&error),
            Err(_) => {}
        }
        true
    }

    fn document(&mut self, body: &[u8], cut: bool, gather: &mut Gather) {
        match json::parse::<Obj<Piece<'_>>>(body, &mut None) {
            Ok(Obj(piece)) => {
                piece.merge(gather);
                if let Some(reported) = piece.reported_error() {
                    gather.error(reported);
                }
            }
            Err(_) if cut => {}
            Err(error) => gather.unread(&error),
        }
    }
}

/// A line, a document, or the whole answer within the last line.
#[derive(Deserialize)]
struct Piece<'a> {
    #[serde(borrow, default)]
    event_type: Option<Word<'a>>,
    #[serde(borrow, default)]
    text: Option<Text<'a>>,
    #[serde(borrow, default)]
    finish_reason: Option<Text<'a>>,
    #[serde(borrow, default)]
    generations: Option<Few<Obj<Generation<'a>>>>,
    #[serde(borrow, default)]
    tool_calls: Option<Few<Obj<Call<'a>>>>,
    #[serde(borrow, default)]
    tool_call_delta: Option<Obj<Call<'a>>>,
    #[serde(default)]
    meta: Option<Obj<Meta>>,
    #[serde(borrow, default)]
    response: Option<Box<Obj<Piece<'a>>>>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    message: Option<Word<'a>>,
}

impl Piece<'_> {
    fn reported_error(&self) -> Option<ReportedError> {
        if let Some(error) = self.error {
            return Some(error::from_value(&json::value(error)));
        }
        let says_nothing = self.event_type.is_none()
            && self.text.is_none()
            && self.finish_reason.is_none()
            && self.generations.is_none();
        let is_text = matches!(self.message, Some(Word(Some(_))));
        (says_nothing && is_text).then(ReportedError::default)
    }

    fn merge(&self, gather: &mut Gather) {
        self.merge_text(gather);
        self.merge_calls(gather);
        if let Some(Obj(response)) = self.response.as_deref() {
            // Of the whole answer counts what no line before it said.
            if gather.facts.text_chars == 0 {
                response.merge_text(gather);
            }
            response.merge_calls(gather);
            response.merge_end(gather);
        }
        self.merge_end(gather);
    }

    fn merge_text(&self, gather: &mut Gather) {
        if let Some(Text(text)) = &self.text {
            // Beside the calls stands what it means to do with them.
            match self.event_type.as_ref().and_then(|Word(kind)| kind.as_deref()) {
                Some("tool-calls-chunk" | "tool-calls-generation") => gather.reasoning(text),
                _ => gather.text(text),
            }
        }
        for index in 0..self.generations.iter().flat_map(Few::iter).count() {
            gather.choice(index as u64);
        }
        if let Some(Text(text)) = self.first().and_then(|first| first.text.as_ref()) {
            gather.text(text);
        }
    }

    fn merge_end(&self, gather: &mut Gather) {
        let of_first = self.first().and_then(|first| first.finish_reason.as_ref());
        if let Some(Text(word)) = self.finish_reason.as_ref().or(of_first) {
            gather.stop_word(word);
        }
        if let Some(Obj(Meta { tokens: Some(Obj(tokens)) })) = &self.meta {
            gather.usage(json::count(&tokens.input), json::count(&tokens.output));
        }
    }

    fn first(&self) -> Option<&Generation<'_>> {
        self.generations.as_ref()?.first().map(|Obj(first)| first)
    }

    /// The list of calls comes whole, and again in the whole answer, and may have come in pieces.
    fn merge_calls(&self, gather: &mut Gather) {
        if let Some(Obj(call)) = &self.tool_call_delta {
            let key = call.index.map_or(CallKey::Newest, |Index(index)| CallKey::Index(index));
            return call.merge(key, gather);
        }
        if gather.facts.tool_calls > 0 {
            return;
        }
        for (position, Obj(call)) in self.tool_calls.iter().flat_map(Few::iter).enumerate() {
            call.merge(CallKey::Index(position as u64), gather);
        }
    }
}

#[derive(Deserialize)]
struct Generation<'a> {
    #[serde(borrow, default)]
    text: Option<Text<'a>>,
    #[serde(borrow, default)]
    finish_reason: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct Call<'a> {
    #[serde(default)]
    index: Option<Index>,
    #[serde(borrow, default)]
    name: Option<Text<'a>>,
    #[serde(borrow, default)]
    parameters: Option<&'a RawValue>,
}

impl Call<'_> {
    fn merge(&self, key: CallKey, gather: &mut Gather) {
        let name = self.name.as_ref().map_or("", |Text(name)| name);
        gather.call(key, name, &json::string_or_json(self.parameters));
    }
}

#[derive(Deserialize)]
struct Meta {
    #[serde(default)]
    tokens: Option<Obj<Tokens>>,
}
