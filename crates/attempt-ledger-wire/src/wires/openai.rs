//! The wires `openai-chat` and `openai-completions`: one JSON document, or a stream of chunks of
//! the same shape that ends in `data: [DONE]`.

use std::borrow::Cow;

use attempt_ledger_core::{Stop, Verdict};
use serde::{
    Deserialize, Deserializer,
    de::{self, IgnoredAny, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::{Value, value::RawValue};

use crate::{
    error::{self, ReportedError},
    event::{Event, Kind},
    gather::{CallKey, Gather, MAX_CALLS, id_hash},
    json::{self, Index, Maybe, Obj, Text, Word},
    request::text_chars,
    wire::{self, Spec},
    wires::llama,
};

pub(crate) mod request;
mod scan;

use scan::Scan;

pub(crate) const CHAT: Spec = Spec {
    name: "openai-chat",
    paths: &["/chat/completions"],
    usage: ("prompt_tokens", "completion_tokens"),
    lists: false,
    // Groq's flexible tier is out of capacity.
    statuses: &[(498, Verdict::Throttled)],
    request: request::read,
};

pub(crate) const COMPLETIONS: Spec =
    Spec { name: "openai-completions", paths: &["/completions"], ..CHAT };

/// Reads both wires: they differ in where the text of a choice lies.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    scan: Scan,
}

impl wire::Reader for Reader {
    fn event(&mut self, event: &Event<'_>, gather: &mut Gather) -> bool {
        if event.kind == Kind::Data {
            if gather.is_open()
                && self.scan.text_of(event.data, |text, thought| {
                    gather.choice(0);
                    gather.text(text);
                    gather.reasoning(thought);
                })
            {
                gather.progress += 1;
                return true;
            }
            if event.is_done() {
                gather.done();
                return false;
            }
        }
        if !gather.is_open() {
            return true;
        }
        match event.kind {
            Kind::Data => return full_parse(event.data, event.complete, gather),
            _ => error::event(event, gather),
        }
        true
    }

    fn document(&mut self, body: &[u8], cut: bool, gather: &mut Gather) {
        match json::parse::<Obj<Chunk<'_>>>(json::without_bom(body), &mut None) {
            Ok(Obj(chunk)) if chunk.is_llamas_own() => {
                llama::Reader.document(body, cut, gather);
            }
            Ok(Obj(mut chunk)) => {
                let reported = chunk.reported_error();
                merge(&mut chunk, false, gather);
                if let Some(reported) = reported {
                    gather.error(reported);
                }
            }
            Err(error) if json::is_over(&error) => gather.unread(&error),
            Err(_) => match reported_in_list(body) {
                Some(reported) => gather.error(reported),
                // Of several prompts llama.cpp answers with a list.
                None => llama::list(body, cut, gather),
            },
        }
    }

    fn held(&self) -> usize {
        self.scan.held()
    }
}

/// False when nothing after it is to be read.
fn full_parse(data: &[u8], complete: bool, gather: &mut Gather) -> bool {
    match json::parse::<Obj<Chunk<'_>>>(data, &mut None) {
        Ok(Obj(chunk)) if chunk.is_llamas_own() => return llama::record(data, complete, gather),
        Ok(Obj(chunk)) => stream_chunk(chunk, gather),
        Err(error) => match reported_in_list(data) {
            Some(reported) => gather.reported(reported),
            None if complete => gather.unread(&error),
            None => {}
        },
    }
    true
}

/// The error of a list that holds only that, as Gemini's servers wrap it.
fn reported_in_list(data: &[u8]) -> Option<ReportedError> {
    if !data.trim_ascii_start().starts_with(b"[") {
        return None;
    }
    let list = json::tree::<Vec<Value>>(data)?;
    let error = list.first()?.get("error").filter(|error| !error.is_null())?;
    Some(error::from_value(error))
}

fn stream_chunk(mut chunk: Chunk<'_>, gather: &mut Gather) {
    match chunk.reported_error() {
        // What comes with it, a stop word above all, does not touch the answer that stands.
        Some(reported) if gather.answered() => {
            chunk.report_usage(gather);
            gather.late_error(reported.error);
        }
        Some(reported) => {
            merge(&mut chunk, true, gather);
            gather.error(reported);
        }
        None => {
            merge(&mut chunk, true, gather);
            gather.progress += 1;
        }
    }
}

fn merge(chunk: &mut Chunk<'_>, streamed: bool, gather: &mut Gather) {
    let choices = chunk.choices.take().unwrap_or_default();
    gather.choices(choices.seen);
    // A document whose only choice has another number is read all the same.
    let choice = choices.first.or(if streamed { None } else { choices.listed });
    if let Some(choice) = choice {
        let mut first = choice.delta.and_then(|Maybe(message)| message);
        let mut second = choice.message.and_then(|Maybe(message)| message);
        if !streamed {
            std::mem::swap(&mut first, &mut second);
        } else if gather.facts.usable() || gather.facts.text_chars > 0 {
            // A final object that repeats what the deltas said.
            second = None;
        }
        if let Some(message) =
            first.filter(|first| second.is_none() || !first.is_blank()).or(second)
        {
            merge_message(message, streamed, gather);
        }
        if let Some(Text(text)) = &choice.text {
            gather.text(text);
        }
        if let Some(Word(Some(word))) = &choice.finish_reason {
            gather.stop_word(word);
        }
        if let Some(word) = choice.native_finish_reason {
            let word = serde_json::from_str::<Cow<'_, str>>(word.get()).unwrap_or_default();
            gather.facts.native_failure = crate::stop::meaning(&word) == Some(Stop::Failure);
        }
        // Moonshot's streams have it in the choice.
        if let Some(raw) = choice.usage {
            report_usage(raw, gather);
        }
    }
    chunk.report_usage(gather);
}

fn merge_message(message: Message<'_>, streamed: bool, gather: &mut Gather) {
    match message.content {
        Some(Body::Text(Text(text))) => gather.text(&text),
        Some(Body::Parts(parts)) => {
            for part in &parts {
                part.merge(gather);
            }
        }
        None => {}
    }
    let thoughts = [message.reasoning_content, message.reasoning];
    let mut thoughts = thoughts.iter().flatten().filter_map(|Word(text)| text.as_deref());
    // Some servers send it under both names.
    if let Some(thought) = thoughts.find(|thought| !thought.is_empty()) {
        gather.reasoning(thought);
    }
    if let Some(Word(Some(refusal))) = &message.refusal {
        gather.refusal(refusal);
    }
    if let Some(Maybe(Some(call))) = message.function_call
        && !call.is_blank()
    {
        call.merge(CallKey::Legacy, gather);
    }
    for (position, call) in message.tool_calls.into_iter().flat_map(Calls::into_iter).enumerate() {
        call.merge(if streamed { None } else { Some(position as u64) }, gather);
    }
}

/// A chunk or a document: the fields that say something. All others are skipped unread.
#[derive(Deserialize)]
#[serde(expecting = "an object of the chat completions API")]
struct Chunk<'a> {
    #[serde(borrow, default)]
    choices: Option<Choices<'a>>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    x_groq: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    base_resp: Option<&'a RawValue>,
    #[serde(borrow, default)]
    object: Option<Word<'a>>,
    #[serde(borrow, default, rename = "type")]
    kind: Option<Word<'a>>,
    #[serde(borrow, default)]
    code: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error_type: Option<Word<'a>>,
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    stop: Option<&'a RawValue>,
}

impl<'a> Chunk<'a> {
    /// Whether it is of llama.cpp's own form, which older ones and some paths answer in.
    fn is_llamas_own(&self) -> bool {
        let is =
            |raw: Option<&RawValue>, of: fn(&str) -> bool| raw.is_some_and(|raw| of(raw.get()));
        self.choices.is_none()
            && is(self.stop, |stop| matches!(stop, "true" | "false"))
            && is(self.content, |content| content.starts_with('"'))
    }

    fn reported_error(&self) -> Option<ReportedError> {
        let value = json::value;
        if let Some(error) = self.error {
            return Some(error::from_value(&value(error)).or_stated_beside(|| self.flat()));
        }
        let in_choice = self.choices.as_ref().and_then(|choices| choices.first.as_ref()?.error);
        if let Some(error) = in_choice {
            return Some(error::from_value(&value(error)));
        }
        // Groq's, which says why a stream ends early.
        if let Some(Value::Object(object)) = self.x_groq.map(value)
            && let Some(error) = object.get("error").filter(|error| !error.is_null())
        {
            return Some(error::from_value(error));
        }
        if let Some(base) = self.base_resp {
            let status = value(base).get("status_code").and_then(Value::as_i64);
            if let Some(status) = status.filter(|status| *status != 0) {
                return Some(error::from_base_resp(status));
            }
        }
        let is_error = |word: &Option<Word<'_>>| {
            word.as_ref().and_then(|Word(word)| word.as_deref()) == Some("error")
        };
        // Zero is how some say that all is well.
        let code = self.code.map(RawValue::get);
        let fails = code.is_some_and(|code| !matches!(code, "0" | "\"0\"" | "\"\"" | "200"));
        let only_an_error = self.choices.is_none() && fails && self.message.is_some();
        (is_error(&self.object) || is_error(&self.kind) || only_an_error).then(|| self.flat())
    }

    /// An error whose fields are the chunk's own.
    fn flat(&self) -> ReportedError {
        let field = |raw: Option<&RawValue>| raw.map(json::value).unwrap_or_default();
        let word = |word: &Option<Word<'_>>| match word {
            Some(Word(Some(word))) => Value::from(&**word),
            _ => Value::Null,
        };
        error::from_value(&serde_json::json!({
            "code": field(self.code),
            "type": word(&self.kind),
            "error_type": word(&self.error_type),
        }))
    }

    fn report_usage(&self, gather: &mut Gather) {
        // Groq's streams have it in a field of their own.
        for raw in [self.x_groq, self.usage].into_iter().flatten() {
            report_usage(raw, gather);
        }
    }
}

fn report_usage(raw: &RawValue, gather: &mut Gather) {
    let Ok(Obj(counts)) = serde_json::from_str::<Obj<Counts<'_>>>(raw.get()) else { return };
    let within = counts.usage.and_then(|raw| serde_json::from_str(raw.get()).ok());
    let counts = within.map_or(counts, |Obj(within)| within);
    gather.usage(json::count(&counts.input), json::count(&counts.output));
}

/// Token counts, or the object that has them in a field `usage`. Of a field that comes twice the
/// last one counts.
#[derive(Default)]
struct Counts<'a> {
    /// A value that is a number is held without an allocation.
    input: Value,
    output: Value,
    usage: Option<&'a RawValue>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Counts<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Of;
        impl<'de> Visitor<'de> for Of {
            type Value = Counts<'de>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("token counts")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut counts = Counts::default();
                while let Some(Text(name)) = map.next_key()? {
                    match &*name {
                        "prompt_tokens" => counts.input = map.next_value()?,
                        "completion_tokens" => counts.output = map.next_value()?,
                        "usage" => counts.usage = Some(map.next_value()?),
                        _ => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(counts)
            }
        }
        deserializer.deserialize_map(Of)
    }
}

/// The first choice; of the others only that they were there.
#[derive(Default)]
struct Choices<'a> {
    first: Option<Choice<'a>>,
    /// The first in the list, if it has another number.
    listed: Option<Choice<'a>>,
    /// A bit for each index below 128.
    seen: u128,
}

impl<'de: 'a, 'a> Deserialize<'de> for Choices<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Of;
        impl<'de> Visitor<'de> for Of {
            type Value = Choices<'de>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a list of choices")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let (mut choices, mut position) = (Choices::default(), 0u64);
                while let Some(choice) = list.next_element::<Option<Obj<Choice<'de>>>>()? {
                    let Some(Obj(choice)) = choice else { continue };
                    let index = choice.index.map_or(position, |Index(index)| index);
                    position += 1;
                    if let Ok(bit) = u32::try_from(index) {
                        choices.seen |= 1u128.checked_shl(bit).unwrap_or(0);
                    }
                    if index == 0 && choices.first.is_none() {
                        choices.first = Some(choice);
                    } else if position == 1 {
                        choices.listed = Some(choice);
                    }
                }
                Ok(choices)
            }
        }
        deserializer.deserialize_seq(Of)
    }
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(default)]
    index: Option<Index>,
    #[serde(borrow, default)]
    delta: Option<Maybe<Message<'a>>>,
    #[serde(borrow, default)]
    message: Option<Maybe<Message<'a>>>,
    #[serde(borrow, default)]
    text: Option<Text<'a>>,
    #[serde(borrow, default)]
    finish_reason: Option<Word<'a>>,
    #[serde(borrow, default)]
    native_finish_reason: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    content: Option<Body<'a>>,
    #[serde(borrow, default)]
    reasoning_content: Option<Word<'a>>,
    #[serde(borrow, default)]
    reasoning: Option<Word<'a>>,
    #[serde(borrow, default)]
    refusal: Option<Word<'a>>,
    #[serde(borrow, default)]
    tool_calls: Option<Calls<'a>>,
    #[serde(borrow, default)]
    function_call: Option<Maybe<Function<'a>>>,
}

impl Message<'_> {
    /// Whether nothing in it is an answer.
    fn is_blank(&self) -> bool {
        let text = match &self.content {
            Some(Body::Text(Text(text))) => !text.is_empty(),
            Some(Body::Parts(parts)) => !parts.is_empty(),
            None => false,
        };
        let calls = self.tool_calls.as_ref().is_some_and(|calls| calls.first.is_some());
        !text && !calls && self.function_call.is_none() && self.refusal.is_none()
    }
}

/// A message's content: a string, or parts.
enum Body<'a> {
    Text(Text<'a>),
    Parts(Vec<Part<'a>>),
}

impl<'de: 'a, 'a> Deserialize<'de> for Body<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Of;
        impl<'de> Visitor<'de> for Of {
            type Value = Body<'de>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a string or parts")
            }
            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Body::Text(Text(Cow::Borrowed(text))))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Body::Text(Text(Cow::Owned(text.to_owned()))))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                let object = Object::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Body::Parts(vec![Part::Object(object)]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut parts = Vec::new();
                while let Some(part) = list.next_element()? {
                    parts.extend(part_of(part).map_err(de::Error::custom)?);
                    if parts.len() > json::MAX_ITEMS {
                        return Err(de::Error::custom(json::OVER));
                    }
                }
                Ok(Body::Parts(parts))
            }
        }
        deserializer.deserialize_any(Of)
    }
}

/// One part of a message's content.
enum Part<'a> {
    /// Mistral mixes strings with objects.
    Text(Cow<'a, str>),
    Object(Object<'a>),
}

fn part_of(raw: &RawValue) -> serde_json::Result<Option<Part<'_>>> {
    match raw.get().as_bytes().first() {
        Some(b'"') => Ok(json::string(raw).map(Part::Text)),
        Some(b'n') => Ok(None),
        _ => serde_json::from_str(raw.get()).map(|Obj(object)| Some(Part::Object(object))),
    }
}

/// References and images are not answer text, nor is thinking.
#[derive(Deserialize)]
struct Object<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow, default)]
    text: Option<&'a RawValue>,
    #[serde(borrow, default)]
    refusal: Option<&'a RawValue>,
    #[serde(borrow, default)]
    thinking: Option<&'a RawValue>,
}

impl Part<'_> {
    fn merge(&self, gather: &mut Gather) {
        let object = match self {
            Part::Text(text) => return gather.text(text),
            Part::Object(object) => object,
        };
        let string = |raw: Option<&RawValue>| match raw.and_then(json::string) {
            Some(text) => text.into_owned(),
            None => String::new(),
        };
        match object.kind.map(RawValue::get) {
            None | Some("\"text\"" | "\"output_text\"") => gather.text(&string(object.text)),
            Some("\"refusal\"") => gather.refusal(&string(object.refusal)),
            Some("\"thinking\"") => {
                gather.reasoning_chars(object.thinking.map_or(0, |raw| text_chars(raw, 0)));
            }
            Some(_) => {}
        }
    }
}

/// The tool calls of a message; a chunk of a stream has one, which needs no list. Old servers of
/// Hugging Face leave the list out and send the call itself. Anything else is skipped.
#[derive(Default)]
struct Calls<'a> {
    first: Option<Call<'a>>,
    rest: Vec<Call<'a>>,
}

impl<'a> Calls<'a> {
    fn into_iter(self) -> impl Iterator<Item = Call<'a>> {
        self.first.into_iter().chain(self.rest)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Calls<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Of;
        impl<'de> Visitor<'de> for Of {
            type Value = Calls<'de>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a list of tool calls")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut calls = Calls::default();
                while calls.rest.len() < MAX_CALLS {
                    let Some(Maybe(call)) = list.next_element()? else { return Ok(calls) };
                    if calls.first.is_none() {
                        calls.first = call;
                    } else {
                        calls.rest.extend(call);
                    }
                }
                match list.next_element::<IgnoredAny>()? {
                    Some(_) => Err(de::Error::custom(json::OVER)),
                    None => Ok(calls),
                }
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                let call = Call::deserialize(MapAccessDeserializer::new(map))?;
                let says_nothing = call.function.is_none() && call.custom.is_none();
                Ok(Calls { first: (!says_nothing).then_some(call), ..Calls::default() })
            }
            fn visit_str<E: de::Error>(self, _: &str) -> Result<Self::Value, E> {
                Ok(Calls::default())
            }
            fn visit_bool<E: de::Error>(self, _: bool) -> Result<Self::Value, E> {
                Ok(Calls::default())
            }
        }
        deserializer.deserialize_any(Of)
    }
}

#[derive(Deserialize)]
struct Call<'a> {
    #[serde(default)]
    index: Option<Index>,
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    function: Option<Maybe<Function<'a>>>,
    #[serde(borrow, default)]
    custom: Option<Maybe<Function<'a>>>,
}

impl Call<'_> {
    /// `position` is that in a document, where each is whole.
    fn merge(self, position: Option<u64>, gather: &mut Gather) {
        let called = [self.function, self.custom].into_iter().flatten().find_map(|Maybe(f)| f);
        let called = called.unwrap_or_default();
        let (name, arguments) = (called.name(), called.arguments());
        let id = self.id.map(RawValue::get).filter(|id| !matches!(*id, "\"\""));
        let id = id.map(id_hash);
        match (position, self.index, id) {
            (Some(position), ..) => gather.call(CallKey::Index(position), name, &arguments),
            (None, Some(Index(n)), id) => gather.numbered_call(n, id, name, &arguments),
            (None, None, Some(id)) => gather.call(CallKey::Id(id), name, &arguments),
            (None, None, None) => gather.call(CallKey::Newest, name, &arguments),
        }
    }
}

/// A function's name and arguments, or a custom tool's name and input.
#[derive(Default, Deserialize)]
pub(crate) struct Function<'a> {
    #[serde(borrow, default)]
    name: Option<Word<'a>>,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow, default)]
    input: Option<&'a RawValue>,
}

impl Function<'_> {
    pub(crate) fn merge(&self, key: CallKey, gather: &mut Gather) {
        gather.call(key, self.name(), &self.arguments());
    }

    fn name(&self) -> &str {
        self.name.as_ref().and_then(|Word(name)| name.as_deref()).unwrap_or_default()
    }

    fn arguments(&self) -> Cow<'_, str> {
        json::string_or_json(self.arguments.or(self.input))
    }

    /// Some servers send an empty one with each message.
    fn is_blank(&self) -> bool {
        self.name().is_empty() && self.arguments().is_empty()
    }
}

#[cfg(test)]
mod tests;
