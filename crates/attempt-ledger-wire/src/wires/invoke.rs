//! The wire `bedrock-invoke`: answers of each vendor's own shape, which the first event or the
//! document tells. Where the vendor has a wire of its own, that one's decoder reads them.

use std::fmt;

use attempt_ledger_core::Stop;
use memchr::memmem;
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::{Value, value::RawValue};

use crate::{
    error::{self, ReportedError},
    event::{Event, Kind},
    gather::Gather,
    json::{self, Few, Obj, Text, Word},
    wire::{self, Spec},
    wires::{anthropic, cohere, converse, openai},
};

mod request;
mod text;

pub(crate) const INVOKE: Spec = Spec {
    name: "bedrock-invoke",
    // The name of a model may hold a slash.
    paths: &[
        "/model/*/invoke",
        "/model/*/invoke-with-response-stream",
        "/model/*/*/invoke",
        "/model/*/*/invoke-with-response-stream",
        // What these answer is no text.
        "!/model/*embed*/invoke",
        "!/model/*rerank*/invoke",
        "!/model/*image*/invoke",
        "!/model/*canvas*/invoke",
        "!/model/*stability.*/invoke",
    ],
    usage: ("input_tokens", "output_tokens"),
    lists: false,
    statuses: &[],
    request: request::read,
};

/// How the fields begin that Bedrock adds to a vendor's own.
const ADDED: &[u8] = b"\"amazon-bedrock-";

#[derive(Debug, Default)]
pub(crate) struct Reader {
    shape: Option<Shape>,
    /// A guardrail put its own text in the answer's place.
    intervened: bool,
}

/// Whose answers they are.
#[derive(Debug)]
enum Shape {
    Anthropic(Box<anthropic::Reader>),
    OpenAi(Box<openai::Reader>),
    Converse(converse::Blocks),
    Cohere(cohere::V1),
    Text(text::Reader),
}

macro_rules! each {
    ($shape:expr, $reader:ident => $do:expr) => {
        match $shape {
            Shape::Anthropic($reader) => $do,
            Shape::OpenAi($reader) => $do,
            Shape::Converse($reader) => $do,
            Shape::Cohere($reader) => $do,
            Shape::Text($reader) => $do,
        }
    };
}

impl wire::Reader for Reader {
    fn event(&mut self, event: &Event<'_>, gather: &mut Gather) -> bool {
        if event.kind != Kind::Data {
            if gather.is_open() {
                error::event(event, gather);
            }
            return true;
        }
        // Of no shape, but relays say so in the events that they make of frames.
        if event.is_done() {
            gather.done();
            return false;
        }
        // The name of the frame says nothing of the event in it.
        let name = if event.name == "chunk" { "" } else { event.name };
        let event = Event { name, ..*event };
        if self.shape.is_none() {
            self.shape = Shape::of(event.data);
        }
        let go_on = match &mut self.shape {
            Some(shape) => each!(shape, reader => reader.event(&event, gather)),
            None => {
                bare(event.data, event.complete, true, gather);
                true
            }
        };
        self.added(event.data, gather);
        go_on
    }

    fn document(&mut self, body: &[u8], cut: bool, gather: &mut Gather) {
        let body = json::without_bom(body);
        self.shape = Shape::of(body);
        match &mut self.shape {
            Some(shape) => each!(shape, reader => reader.document(body, cut, gather)),
            None => bare(body, !cut, false, gather),
        }
        self.added(body, gather);
    }

    fn held(&self) -> usize {
        self.shape.as_ref().map_or(0, |shape| each!(shape, reader => reader.held()))
    }
}

impl Reader {
    /// What Bedrock adds to the vendor's own fields, and what vendors call otherwise there.
    fn added(&mut self, data: &[u8], gather: &mut Gather) {
        let has = |name: &[u8]| memmem::find(data, name).is_some();
        if matches!(self.shape, Some(Shape::OpenAi(_))) && has(b"\"stop_reason\"") {
            stop_reason(data, gather);
        }
        if has(ADDED)
            && let Ok(Obj(added)) = json::parse::<Obj<Added<'_>>>(data, &mut None)
        {
            let action = added.guardrail.as_ref().and_then(|Word(word)| word.as_deref());
            self.intervened |= action == Some("INTERVENED");
            if let Some(Ok(Obj(metrics))) =
                added.metrics.map(|raw| serde_json::from_str::<Obj<Metrics>>(raw.get()))
            {
                gather.usage_beside(json::count(&metrics.input), json::count(&metrics.output));
            }
        }
        // It may say so in the event that ends the stream.
        let is_read = gather.facts.fault.is_none() && gather.facts.uninspected.is_none();
        if self.intervened && is_read {
            gather.facts.stop = Some(Stop::Policy);
        }
    }
}

/// What is of no shape that is known: an error, or nothing that can be read.
fn bare(data: &[u8], whole: bool, streamed: bool, gather: &mut Gather) {
    if !gather.is_open() {
        return;
    }
    match json::parse::<Obj<Bare<'_>>>(data, &mut None) {
        Ok(Obj(bare)) => match bare.reported_error() {
            Some(reported) => gather.reported(reported),
            None if streamed => gather.progress += 1,
            None => {}
        },
        Err(error) if whole => gather.unread(&error),
        Err(_) => {}
    }
}

/// Some vendors' choices have `stop_reason` where the chat wire has `finish_reason`.
fn stop_reason(data: &[u8], gather: &mut Gather) {
    let mut mended = None;
    let Ok(Obj(answer)) = json::parse::<Obj<Choices<'_>>>(data, &mut mended) else { return };
    let Some(Obj(choice)) = answer.choices.and_then(|choices| choices.into_iter().next()) else {
        return;
    };
    let word =
        |word: Option<Word<'_>>| word.and_then(|Word(word)| word).unwrap_or_default().into_owned();
    if word(choice.finish_reason).is_empty() {
        gather.stop_word(&word(choice.stop_reason));
    }
}

/// Whether an event or a document is of a vendor whose shape is known.
pub(crate) fn is_known(data: &[u8]) -> bool {
    Shape::of(data).is_some()
}

impl Shape {
    /// Whose shape an event or a document has, by the names of its fields.
    fn of(data: &[u8]) -> Option<Self> {
        let mut mended = None;
        let Names(told) = json::parse::<Names>(data, &mut mended).ok()?;
        Some(match told? {
            Told::Anthropic => Shape::Anthropic(Box::default()),
            Told::OpenAi => Shape::OpenAi(Box::default()),
            Told::Converse => Shape::Converse(converse::Blocks::default()),
            Told::Cohere => Shape::Cohere(cohere::V1),
            Told::Text => Shape::Text(text::Reader),
        })
    }
}

/// What a field's name tells; the one that tells more is behind.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Told {
    Text,
    Cohere,
    Converse,
    Anthropic,
    OpenAi,
}

struct Names(Option<Told>);

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Of;
        impl<'de> Visitor<'de> for Of {
            type Value = Names;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut told = None;
                while let Some(Text(name)) = map.next_key()? {
                    let by_name = match &*name {
                        "choices" => Some(Told::OpenAi),
                        "type" => {
                            let Word(kind) = map.next_value()?;
                            told = told.max(kind.and_then(|kind| by_type(&kind)));
                            continue;
                        }
                        "output" => {
                            let output: &RawValue = map.next_value()?;
                            let is_object = output.get().starts_with('{');
                            told = told.max(is_object.then_some(Told::Converse));
                            continue;
                        }
                        "messageStart" | "contentBlockStart" | "contentBlockDelta"
                        | "contentBlockStop" | "messageStop" | "metadata" => Some(Told::Converse),
                        "text" | "generations" | "event_type" | "is_finished" => Some(Told::Cohere),
                        "generation" | "outputText" | "results" | "outputs" | "completion"
                        | "completions" => Some(Told::Text),
                        _ => None,
                    };
                    told = told.max(by_name);
                    map.next_value::<IgnoredAny>()?;
                }
                Ok(Names(told))
            }
        }
        deserializer.deserialize_map(Of)
    }
}

fn by_type(kind: &str) -> Option<Told> {
    match kind {
        "message"
        | "message_start"
        | "message_delta"
        | "message_stop"
        | "content_block_start"
        | "content_block_delta"
        | "content_block_stop"
        | "ping"
        | "error" => Some(Told::Anthropic),
        _ => None,
    }
}

#[derive(Deserialize)]
struct Added<'a> {
    #[serde(borrow, default, rename = "amazon-bedrock-invocationMetrics")]
    metrics: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "amazon-bedrock-guardrailAction")]
    guardrail: Option<Word<'a>>,
}

#[derive(Deserialize)]
struct Metrics {
    #[serde(default, rename = "inputTokenCount")]
    input: Value,
    #[serde(default, rename = "outputTokenCount")]
    output: Value,
}

#[derive(Deserialize)]
struct Choices<'a> {
    #[serde(borrow, default)]
    choices: Option<Few<Obj<Choice<'a>>>>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow, default)]
    stop_reason: Option<Word<'a>>,
    #[serde(borrow, default)]
    finish_reason: Option<Word<'a>>,
}

/// An error that is all an object says.
#[derive(Deserialize)]
struct Bare<'a> {
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "__type")]
    kind: Option<Word<'a>>,
}

impl Bare<'_> {
    fn reported_error(&self) -> Option<ReportedError> {
        if let Some(error) = self.error {
            return Some(error::from_value(&json::value(error)));
        }
        let kind = self.kind.as_ref().and_then(|Word(word)| word.as_deref());
        let says = self.message.is_some_and(|message| message.get().starts_with('"'));
        (says || kind.is_some()).then(|| error::from_value(&serde_json::json!({ "__type": kind })))
    }
}
