//! The wires `openai-chat` and `openai-completions`: one JSON document, or a stream of chunks of
//! the same shape that ends in `data: [DONE]`.

use std::borrow::Cow;

use attempt_ledger_core::Stop;
use serde::{
    Deserialize, Deserializer,
    de::{self, SeqAccess, Visitor},
};
use serde_json::{Value, value::RawValue};

use crate::{
    error::{self, ReportedError},
    gather::{CallKey, Gather},
    object::Obj,
    sse::Kind,
    template::Template,
};

/// What ends a stream.
const DONE: &[u8] = b"[DONE]";

/// One event of a stream. False when nothing after it is to be read.
pub(crate) fn event(
    data: &[u8],
    kind: Kind,
    complete: bool,
    gather: &mut Gather,
    template: &mut Template,
) -> bool {
    if kind == Kind::Data {
        if gather.is_open() && template.text_of(data, |text| gather.text(text)) {
            gather.progress += 1;
            return true;
        }
        if data.trim_ascii() == DONE {
            gather.done();
            return false;
        }
    }
    if !gather.is_open() {
        return true;
    }
    if kind != Kind::Data {
        let value = serde_json::from_slice::<Value>(data);
        if value.is_err() && !complete {
            return true;
        }
        let reported = value.map(|value| named_error(&value, kind)).unwrap_or_default();
        if gather.answered() {
            gather.late_error(reported.error);
        } else {
            gather.error(reported);
        }
        return true;
    }
    match serde_json::from_slice::<Obj<Chunk<'_>>>(data) {
        Ok(Obj(chunk)) => {
            template.learn(data, chunk.only_text());
            stream_chunk(chunk, gather);
        }
        Err(_) if complete => gather.malformed(),
        Err(_) => {}
    }
    true
}

/// The whole body of a response that is one document. `cut` says that its transfer broke, so that
/// a document that does not parse proves nothing.
pub(crate) fn document(body: &[u8], cut: bool, gather: &mut Gather) {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    match serde_json::from_slice::<Obj<Chunk<'_>>>(body) {
        Ok(Obj(mut chunk)) => {
            let reported = chunk.reported_error();
            merge(&mut chunk, false, gather);
            if let Some(reported) = reported {
                gather.error(reported);
            }
        }
        Err(_) if cut => {}
        Err(_) => gather.malformed(),
    }
}

fn named_error(value: &Value, kind: Kind) -> ReportedError {
    match (kind, value.get("error")) {
        (Kind::NamedError, Some(error)) if !error.is_null() => error::from_value(error),
        _ => error::from_value(value),
    }
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
    for index in 0..128 {
        if choices.seen >> index & 1 == 1 {
            gather.choice(index);
        }
    }
    if let Some(choice) = choices.first {
        let (mut first, mut second) = (choice.delta, choice.message);
        if !streamed {
            std::mem::swap(&mut first, &mut second);
        } else if gather.facts.usable() || gather.facts.text_chars > 0 {
            // A final object that repeats what the deltas said.
            second = None;
        }
        if let Some(Obj(message)) = first.or(second) {
            merge_message(message, streamed, gather);
        }
        if let Some(Text(text)) = &choice.text {
            gather.text(text);
        }
        if let Some(Text(word)) = &choice.finish_reason {
            gather.stop_word(word);
        }
        if let Some(word) = choice.native_finish_reason {
            let word = serde_json::from_str::<Cow<'_, str>>(word.get()).unwrap_or_default();
            gather.facts.native_failure = crate::stop::meaning(&word) == Some(Stop::Failure);
        }
    }
    chunk.report_usage(gather);
}

fn merge_message(message: Message<'_>, streamed: bool, gather: &mut Gather) {
    match message.content {
        Some(Body::Text(Text(text))) => gather.text(&text),
        Some(Body::Parts(parts)) => {
            for Obj(part) in &parts {
                part.merge(gather);
            }
        }
        None => {}
    }
    if let Some(Text(refusal)) = &message.refusal {
        gather.refusal(refusal);
    }
    if let Some(Obj(call)) = message.function_call {
        call.merge(CallKey::Legacy, gather);
    }
    for (position, call) in message.tool_calls.into_iter().flat_map(Calls::into_iter).enumerate() {
        let key = if streamed { call.key() } else { CallKey::Index(position as u64) };
        match (call.function, call.custom) {
            (Some(Obj(function)), _) | (None, Some(Obj(function))) => function.merge(key, gather),
            (None, None) => gather.call(key, "", ""),
        }
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
    object: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow, default)]
    code: Option<&'a RawValue>,
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
}

impl<'a> Chunk<'a> {
    fn reported_error(&self) -> Option<ReportedError> {
        let value = |raw: &RawValue| serde_json::from_str::<Value>(raw.get()).unwrap_or_default();
        if let Some(error) = self.error {
            return Some(error::from_value(&value(error)).or_stated_beside(|| self.flat()));
        }
        let in_choice = self.choices.as_ref().and_then(|choices| choices.first.as_ref()?.error);
        if let Some(error) = in_choice {
            return Some(error::from_value(&value(error)));
        }
        if let Some(base) = self.base_resp {
            let status = value(base).get("status_code").and_then(Value::as_i64);
            if let Some(status) = status.filter(|status| *status != 0) {
                return Some(error::from_base_resp(status));
            }
        }
        let is_error = |raw: Option<&RawValue>| raw.is_some_and(|raw| raw.get() == "\"error\"");
        let only_an_error = self.choices.is_none() && self.code.is_some() && self.message.is_some();
        (is_error(self.object) || is_error(self.kind) || only_an_error).then(|| self.flat())
    }

    /// An error whose fields are the chunk's own.
    fn flat(&self) -> ReportedError {
        let field = |raw: Option<&RawValue>| {
            raw.and_then(|raw| serde_json::from_str::<Value>(raw.get()).ok()).unwrap_or_default()
        };
        error::from_value(&serde_json::json!({
            "code": field(self.code), "type": field(self.kind)
        }))
    }

    fn report_usage(&self, gather: &mut Gather) {
        // Groq's streams have it in a field of their own.
        for raw in [self.x_groq, self.usage].into_iter().flatten() {
            let Ok(Value::Object(object)) = serde_json::from_str(raw.get()) else { continue };
            let object = object.get("usage").and_then(Value::as_object).unwrap_or(&object);
            let count = |name: &str| object.get(name).and_then(whole_number);
            gather.usage(count("prompt_tokens"), count("completion_tokens"));
        }
    }

    /// The text of choice 0, if this chunk says nothing else.
    fn only_text(&self) -> Option<&'a str> {
        let nothing_else = self.usage.is_none()
            && self.x_groq.is_none()
            && self.error.is_none()
            && self.base_resp.is_none()
            && self.object.is_none_or(|object| object.get() != "\"error\"")
            && self.kind.is_none_or(|kind| kind.get() != "\"error\"");
        let choices = self.choices.as_ref().filter(|_| nothing_else)?;
        if choices.seen != 1 || choices.count != 1 {
            return None;
        }
        choices.first.as_ref()?.only_text()
    }
}

/// A token count; a fraction or a number beyond u64 is none.
fn whole_number(value: &Value) -> Option<u64> {
    let float = |n: f64| (n >= 0.0 && n.fract() == 0.0 && n < 2f64.powi(53)).then_some(n as u64);
    value.as_u64().or_else(|| value.as_f64().and_then(float))
}

/// The first choice; of the others only that they were there.
#[derive(Default)]
struct Choices<'a> {
    first: Option<Choice<'a>>,
    /// A bit for each index below 128.
    seen: u128,
    count: usize,
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
                let mut choices = Choices::default();
                while let Some(Obj(choice)) = list.next_element::<Obj<Choice<'de>>>()? {
                    let index = choice.index.map_or(choices.count as u64, |index| {
                        index.get().parse().unwrap_or(u64::MAX)
                    });
                    choices.count += 1;
                    if let Ok(bit) = u32::try_from(index) {
                        choices.seen |= 1u128.checked_shl(bit).unwrap_or(0);
                    }
                    if index == 0 && choices.first.is_none() {
                        choices.first = Some(choice);
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
    #[serde(borrow, default)]
    index: Option<&'a RawValue>,
    #[serde(borrow, default)]
    delta: Option<Obj<Message<'a>>>,
    #[serde(borrow, default)]
    message: Option<Obj<Message<'a>>>,
    #[serde(borrow, default)]
    text: Option<Text<'a>>,
    #[serde(borrow, default)]
    finish_reason: Option<Text<'a>>,
    #[serde(borrow, default)]
    native_finish_reason: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

impl<'a> Choice<'a> {
    fn only_text(&self) -> Option<&'a str> {
        let nothing_else = self.message.is_none()
            && self.finish_reason.as_ref().is_none_or(|Text(word)| word.is_empty())
            && self.native_finish_reason.is_none()
            && self.error.is_none();
        if !nothing_else {
            return None;
        }
        match (&self.delta, &self.text) {
            (None, Some(text)) => text.borrowed(),
            (Some(Obj(delta)), None) => delta.only_text(),
            _ => None,
        }
    }
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    content: Option<Body<'a>>,
    #[serde(borrow, default)]
    refusal: Option<Text<'a>>,
    #[serde(borrow, default)]
    tool_calls: Option<Calls<'a>>,
    #[serde(borrow, default)]
    function_call: Option<Obj<Function<'a>>>,
}

impl<'a> Message<'a> {
    fn only_text(&self) -> Option<&'a str> {
        let no_refusal = self.refusal.as_ref().is_none_or(|Text(text)| text.is_empty());
        let no_calls = self.tool_calls.as_ref().is_none_or(|calls| calls.first.is_none());
        match &self.content {
            Some(Body::Text(text)) if no_refusal && no_calls && self.function_call.is_none() => {
                text.borrowed()
            }
            _ => None,
        }
    }
}

/// A string, borrowed from the input where it has no escapes.
struct Text<'a>(Cow<'a, str>);

impl<'a> Text<'a> {
    fn borrowed(&self) -> Option<&'a str> {
        match self.0 {
            Cow::Borrowed(text) => Some(text),
            Cow::Owned(_) => None,
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Of;
        impl<'de> Visitor<'de> for Of {
            type Value = Text<'de>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Of)
    }
}

/// A message's content: a string, or a list of parts.
enum Body<'a> {
    Text(Text<'a>),
    Parts(Vec<Obj<Part<'a>>>),
}

impl<'de: 'a, 'a> Deserialize<'de> for Body<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Of;
        impl<'de> Visitor<'de> for Of {
            type Value = Body<'de>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a string or a list of parts")
            }
            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Body::Text(Text(Cow::Borrowed(text))))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Body::Text(Text(Cow::Owned(text.to_owned()))))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut parts = Vec::new();
                while let Some(part) = list.next_element()? {
                    parts.push(part);
                }
                Ok(Body::Parts(parts))
            }
        }
        deserializer.deserialize_any(Of)
    }
}

/// One part of a message's content. Thinking, references and images are not answer text.
#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow, default)]
    text: Option<&'a RawValue>,
    #[serde(borrow, default)]
    refusal: Option<&'a RawValue>,
}

impl Part<'_> {
    fn merge(&self, gather: &mut Gather) {
        let string = |raw: Option<&RawValue>| match raw {
            Some(raw) => serde_json::from_str::<String>(raw.get()).unwrap_or_default(),
            None => String::new(),
        };
        match self.kind.map(RawValue::get) {
            None | Some("\"text\"" | "\"output_text\"") => gather.text(&string(self.text)),
            Some("\"refusal\"") => gather.refusal(&string(self.refusal)),
            Some(_) => {}
        }
    }
}

/// The tool calls of a message; a chunk of a stream has one, which needs no list.
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
                let first = list.next_element()?.map(|Obj(call)| call);
                let mut calls = Calls { first, rest: Vec::new() };
                while let Some(Obj(call)) = list.next_element()? {
                    calls.rest.push(call);
                }
                Ok(calls)
            }
        }
        deserializer.deserialize_seq(Of)
    }
}

#[derive(Deserialize)]
struct Call<'a> {
    #[serde(borrow, default)]
    index: Option<&'a RawValue>,
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    function: Option<Obj<Function<'a>>>,
    #[serde(borrow, default)]
    custom: Option<Obj<Function<'a>>>,
}

impl Call<'_> {
    fn key(&self) -> CallKey {
        if let Some(Ok(index)) = self.index.map(|index| index.get().parse()) {
            return CallKey::Index(index);
        }
        match self.id.map(RawValue::get) {
            None | Some("\"\"") => CallKey::Newest,
            Some(id) => CallKey::Id(crate::gather::id_hash(id)),
        }
    }
}

/// A function's name and arguments, or a custom tool's name and input.
#[derive(Deserialize)]
struct Function<'a> {
    #[serde(borrow, default)]
    name: Option<Text<'a>>,
    #[serde(borrow, default, alias = "input")]
    arguments: Option<&'a RawValue>,
}

impl Function<'_> {
    fn merge(&self, key: CallKey, gather: &mut Gather) {
        let name = self.name.as_ref().map_or("", |Text(name)| name);
        // A string of JSON as a rule; some servers send the JSON itself.
        let raw = self.arguments.map_or("\"\"", RawValue::get);
        let arguments = match raw.starts_with('"') {
            true => match serde_json::from_str::<Text<'_>>(raw) {
                Ok(Text(arguments)) => arguments,
                Err(_) => Cow::Borrowed(raw),
            },
            false => Cow::Borrowed(raw),
        };
        gather.call(key, name, &arguments);
    }
}
