//! The wire `llama-completion`: llama.cpp's own completions and infills, one object, a list of them
//! for several prompts, or server-sent events of which the last says `stop: true`.
//!
//! Its older servers say why with one of three flags, whose name is then the stop word. Either way
//! `truncated` does not count: it says that the context was full, be it of the prompt or of what
//! was shifted out of it, and the answer may still have ended by itself.

use attempt_ledger_core::Effect;
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use crate::{
    error,
    event::{Event, Kind},
    gather::Gather,
    json::{self, Few, Obj, Text, Word},
    request::{Asked, RequestFacts, bounded, text_chars},
    wire::{self, Spec},
};

pub(crate) const COMPLETION: Spec = Spec {
    name: "llama-completion",
    paths: &["/completion", "/infill"],
    usage: ("tokens_evaluated", "tokens_predicted"),
    lists: false,
    statuses: &[],
    request,
};

#[derive(Debug, Default)]
pub(crate) struct Reader;

impl wire::Reader for Reader {
    fn event(&mut self, event: &Event<'_>, gather: &mut Gather) -> bool {
        if event.kind == Kind::Data {
            // Some versions end this form too with it.
            if event.is_done() {
                gather.done();
                return false;
            }
            return record(event.data, event.complete, gather);
        }
        if gather.is_open() {
            error::event(event, gather);
        }
        true
    }

    fn document(&mut self, body: &[u8], cut: bool, gather: &mut Gather) {
        match json::parse::<Obj<Record<'_>>>(json::without_bom(body), &mut None) {
            Ok(Obj(record)) => record.read(false, gather),
            Err(_) => list(body, cut, gather),
        }
    }
}

/// One event of a stream. False when nothing after it is to be read.
pub(crate) fn record(data: &[u8], complete: bool, gather: &mut Gather) -> bool {
    match json::parse::<Obj<Record<'_>>>(data, &mut None) {
        Ok(Obj(record)) => {
            let done = record.is_first() && record.stop == Some(true);
            if gather.is_open() {
                record.read(true, gather);
            }
            if done {
                gather.done();
            }
            !done
        }
        Err(error) => {
            if complete && gather.is_open() {
                gather.unread(&error);
            }
            true
        }
    }
}

/// The whole body of a 2xx that is no object: the answers to several prompts, of which the first
/// decides.
pub(crate) fn list(body: &[u8], cut: bool, gather: &mut Gather) {
    match json::parse::<Few<Obj<Record<'_>>>>(json::without_bom(body), &mut None) {
        Ok(list) if list.iter().any(|Obj(record)| record.stop.is_some()) => {
            for (position, Obj(mut record)) in list.into_iter().enumerate() {
                record.index.get_or_insert(Value::from(position));
                record.read(false, gather);
            }
        }
        _ if cut => {}
        Err(error) => gather.unread(&error),
        Ok(_) => gather.malformed(),
    }
}

/// An event or a document: the fields that say something.
#[derive(Deserialize)]
#[serde(expecting = "an object of llama.cpp's completions")]
struct Record<'a> {
    /// Of the prompt, where there are several.
    #[serde(default)]
    index: Option<Value>,
    #[serde(borrow, default)]
    content: Option<Text<'a>>,
    #[serde(default)]
    stop: Option<bool>,
    #[serde(borrow, default)]
    stop_type: Option<Word<'a>>,
    #[serde(default)]
    stopped_eos: Option<bool>,
    #[serde(default)]
    stopped_word: Option<bool>,
    #[serde(default)]
    stopped_limit: Option<bool>,
    #[serde(borrow, default)]
    tokens_evaluated: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tokens_predicted: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

impl Record<'_> {
    fn index(&self) -> u64 {
        self.index.as_ref().map_or(0, |index| json::count(index).unwrap_or(u64::MAX))
    }

    fn is_first(&self) -> bool {
        self.index() == 0
    }

    fn read(self, streamed: bool, gather: &mut Gather) {
        if let Some(error) = self.error {
            let reported = error::from_value(&json::value(error));
            return if streamed { gather.reported(reported) } else { gather.error(reported) };
        }
        gather.choice(self.index());
        if self.is_first() {
            self.merge(gather);
        }
        if streamed {
            gather.progress += 1;
        }
    }

    fn merge(self, gather: &mut Gather) {
        let count = |raw: Option<&RawValue>| json::count(&json::value(raw?));
        gather.usage(count(self.tokens_evaluated), count(self.tokens_predicted));
        if let Some(Text(text)) = &self.content {
            gather.text(text);
        }
        if self.stop == Some(true) {
            match self.why() {
                Some(word) => gather.stop_word(word),
                None => gather.stop(),
            }
        }
    }

    /// The stop word; an empty one if the server says that it has none.
    fn why(&self) -> Option<&str> {
        if let Some(Word(Some(word))) = &self.stop_type {
            return Some(if word == "none" { "" } else { word });
        }
        // In the order in which the server itself takes them.
        let flags = [
            ("stopped_eos", self.stopped_eos),
            ("stopped_word", self.stopped_word),
            ("stopped_limit", self.stopped_limit),
        ];
        flags.into_iter().find(|(_, flag)| *flag == Some(true)).map(|(name, _)| name)
    }
}

fn request(asked: &Asked<'_>) -> Option<RequestFacts> {
    let Obj(request): Obj<Request<'_>> = serde_json::from_slice(asked.body).ok()?;
    let text = [request.prompt, request.input_prefix, request.input_suffix];
    // Less than zero means that there is none.
    let cap = request.n_predict.or(request.max_tokens);
    Some(RequestFacts {
        model: request.model.map(|Text(model)| bounded(&model)),
        stream: Some(request.stream.unwrap_or(false)),
        tools: 0,
        cap: cap.and_then(|cap| json::count(&cap)),
        prompt_chars: text.into_iter().flatten().map(|text| text_chars(text, 0)).sum(),
        understood: true,
        effect: Effect::ReadOnly,
    })
}

#[derive(Deserialize)]
struct Request<'a> {
    #[serde(borrow, default)]
    model: Option<Text<'a>>,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    n_predict: Option<Value>,
    #[serde(default)]
    max_tokens: Option<Value>,
    /// A string, tokens, or several of either, also mixed.
    #[serde(borrow, default)]
    prompt: Option<&'a RawValue>,
    #[serde(borrow, default)]
    input_prefix: Option<&'a RawValue>,
    #[serde(borrow, default)]
    input_suffix: Option<&'a RawValue>,
}
