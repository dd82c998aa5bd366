//! The wire `gemini`: one JSON document, or a stream of objects of the same shape, as server-sent
//! events or as one JSON list that is delivered piecewise. `finishReason` is the only end mark.
//!
//! Text is what the `text` of the parts says; parts with `thought: true` are reasoning. Images,
//! code that the server ran and its output are no text: an answer of nothing else is `empty`. Each
//! `functionCall` is a tool call, unless it goes on with one that said `willContinue`; the arguments
//! of such a call are its lists of `partialArgs` as they came, one behind the other.

use std::borrow::Cow;

use attempt_ledger_core::Stop;
use serde::{
    Deserialize, Deserializer,
    de::{SeqAccess, Visitor},
};
use serde_json::{Value, json, value::RawValue};

use crate::{
    error::{self, ReportedError},
    event::{Event, Kind},
    gather::{CallKey, Gather, id_hash},
    json::{self, Few, Index, Obj, Text, Word},
    wire::{self, Spec},
};

mod request;

pub(crate) const GEMINI: Spec = Spec {
    name: "gemini",
    paths: &[":generateContent", ":streamGenerateContent"],
    usage: ("promptTokenCount", "candidatesTokenCount"),
    lists: true,
    statuses: &[],
    request: request::read,
};

#[derive(Debug, Default)]
pub(crate) struct Reader {
    /// Tool calls so far.
    calls: u64,
    /// Those of them that go on.
    open: Vec<OpenCall>,
    /// The prompt was blocked: no stop word of a candidate says more.
    blocked: bool,
}

#[derive(Debug)]
struct OpenCall {
    number: u64,
    id: Option<u64>,
    name: u64,
}

impl wire::Reader for Reader {
    fn event(&mut self, event: &Event<'_>, gather: &mut Gather) -> bool {
        if event.kind == Kind::Data && event.is_done() {
            gather.done();
            return false;
        }
        if !gather.is_open() {
            return true;
        }
        match event.kind {
            Kind::Data => self.data(event, gather),
            _ => error::event(event, gather),
        }
        true
    }

    fn document(&mut self, body: &[u8], cut: bool, gather: &mut Gather) {
        match json::parse::<Obj<Chunk<'_>>>(json::without_bom(body), &mut None) {
            Ok(Obj(chunk)) => {
                let chunk = chunk.unwrapped();
                let reported = chunk.reported_error();
                self.merge(chunk, gather);
                if let Some(reported) = reported {
                    gather.error(reported);
                }
            }
            Err(_) if cut => {}
            Err(error) => gather.unread(&error),
        }
    }

    fn held(&self) -> usize {
        self.open.capacity() * size_of::<OpenCall>()
    }
}

impl Reader {
    fn data(&mut self, event: &Event<'_>, gather: &mut Gather) {
        let mut mended = None;
        // A relay that turns the list into events may leave an error in its list.
        let read = match event.data.trim_ascii_start().first() {
            Some(b'[') => {
                let chunks = json::parse::<Few<Obj<Chunk<'_>>>>(event.data, &mut mended);
                chunks.map(|chunks| {
                    chunks.into_iter().fold(None, |is_error, Obj(chunk)| {
                        let is_another = self.chunk(chunk.unwrapped(), gather);
                        Some(is_another || is_error == Some(true))
                    })
                })
            }
            _ => {
                let chunk = json::parse::<Obj<Chunk<'_>>>(event.data, &mut mended);
                chunk.map(|Obj(chunk)| Some(self.chunk(chunk.unwrapped(), gather)))
            }
        };
        match read {
            Ok(Some(is_error)) => gather.progress += u64::from(!is_error),
            _ if !event.complete => {}
            Ok(None) => gather.malformed(),
            Err(error) => gather.unread(&error),
        }
    }

    /// True if it reports an error.
    fn chunk(&mut self, chunk: Chunk<'_>, gather: &mut Gather) -> bool {
        let reported = chunk.reported_error();
        let is_error = reported.is_some();
        match reported {
            // What comes with it does not touch the answer that stands.
            Some(reported) if gather.answered() => {
                chunk.report_usage(gather);
                gather.late_error(reported.error);
            }
            Some(reported) => {
                self.merge(chunk, gather);
                gather.error(reported);
            }
            None => self.merge(chunk, gather),
        }
        is_error
    }

    fn merge(&mut self, chunk: Chunk<'_>, gather: &mut Gather) {
        chunk.report_usage(gather);
        let candidates = chunk.candidates.unwrap_or_default();
        gather.choices(candidates.seen);
        if let Some(candidate) = candidates.first {
            let parts = candidate.content.and_then(|Obj(content)| content.parts);
            for Obj(part) in parts.into_iter().flat_map(Few::into_iter).flatten() {
                self.part(part, gather);
            }
            if let Some(reason) = candidate.finish_reason.filter(|_| !self.blocked) {
                gather.stop_word(&enum_word(reason, &FINISH));
            }
        }
        let feedback = chunk.prompt_feedback.map(|raw| serde_json::from_str(raw.get()));
        if let Some(Ok(Obj(Feedback { block_reason: Some(reason) }))) = feedback {
            let word = enum_word(reason, &BLOCK);
            if !word.is_empty() {
                gather.stop_word(&word);
                // Whatever the word: a prompt is blocked by a policy.
                gather.facts.stop = Some(Stop::Policy);
                self.blocked = true;
            }
        }
    }

    fn part(&mut self, part: Part<'_>, gather: &mut Gather) {
        match (part.text, part.thought.map(RawValue::get)) {
            (Some(Text(text)), Some("true")) => gather.reasoning(&text),
            (Some(Text(text)), _) => gather.text(&text),
            (None, _) => {}
        }
        if let Some(Obj(call)) = part.function_call {
            self.call(&call, gather);
        }
    }

    fn call(&mut self, call: &Call<'_>, gather: &mut Gather) {
        let name = string(&call.name);
        let id = Some(string(&call.id)).filter(|id| !id.is_empty()).map(id_hash);
        let goes_on = call.will_continue.map(RawValue::get) == Some("true");
        let known = self.open.iter().rposition(|open| match id {
            Some(id) if open.id.is_some() => open.id == Some(id),
            _ if name.is_empty() => true,
            _ => call.partial_args.is_some() && open.name == id_hash(name),
        });
        let arguments = call.arguments();
        if let Some(at) = known {
            let Some(number) = self.open.get(at).map(|open| open.number) else { return };
            gather.call(CallKey::Index(number), "", &arguments);
            if !goes_on {
                self.open.remove(at);
            }
            return;
        }
        gather.call(CallKey::Index(self.calls), name, &arguments);
        if goes_on && gather.is_open() {
            self.open.push(OpenCall { number: self.calls, id, name: id_hash(name) });
        }
        self.calls += 1;
    }
}

/// An object of a stream or a document: the fields that say something, in both ways of writing
/// them. All others are skipped unread.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object of the Gemini API")]
struct Chunk<'a> {
    #[serde(borrow, default)]
    candidates: Option<Candidates<'a>>,
    #[serde(borrow, default, alias = "prompt_feedback")]
    prompt_feedback: Option<&'a RawValue>,
    #[serde(borrow, default, alias = "usage_metadata")]
    usage_metadata: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    response: Option<&'a RawValue>,
    #[serde(borrow, default)]
    code: Option<&'a RawValue>,
    #[serde(borrow, default)]
    status: Option<&'a RawValue>,
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
}

impl<'a> Chunk<'a> {
    /// What Google's assistant for code wraps in a field `response`.
    fn unwrapped(self) -> Self {
        match self.response {
            Some(raw) if self.candidates.is_none() && self.error.is_none() => {
                serde_json::from_str(raw.get()).map_or(self, |Obj(within)| within)
            }
            _ => self,
        }
    }

    fn reported_error(&self) -> Option<ReportedError> {
        if let Some(error) = self.error {
            return Some(error::from_value(&json::value(error)));
        }
        // An error whose fields are the object's own.
        let (code, _) = self.code.zip(self.message).filter(|_| self.candidates.is_none())?;
        let status = self.status.map(json::value);
        Some(error::from_value(&json!({"code": json::value(code), "status": status})))
    }

    fn report_usage(&self, gather: &mut Gather) {
        let Some(raw) = self.usage_metadata else { return };
        let Ok(Obj(counts)) = serde_json::from_str::<Obj<Counts>>(raw.get()) else { return };
        let number = |value: &Value| {
            json::count(value).or_else(|| value.as_str().and_then(|digits| digits.parse().ok()))
        };
        gather.usage(number(&counts.prompt_token_count), number(&counts.candidates_token_count));
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Counts {
    #[serde(default, alias = "prompt_token_count")]
    prompt_token_count: Value,
    #[serde(default, alias = "candidates_token_count")]
    candidates_token_count: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Feedback<'a> {
    #[serde(borrow, default, alias = "block_reason")]
    block_reason: Option<&'a RawValue>,
}

/// The first candidate; of the others only that they were there.
#[derive(Default)]
struct Candidates<'a> {
    first: Option<Candidate<'a>>,
    /// A bit for each index below 128.
    seen: u128,
}

impl<'de: 'a, 'a> Deserialize<'de> for Candidates<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Of;
        impl<'de> Visitor<'de> for Of {
            type Value = Candidates<'de>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a list of candidates")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let (mut candidates, mut position) = (Candidates::default(), 0u64);
                while let Some(candidate) = list.next_element::<Option<Obj<Candidate<'de>>>>()? {
                    let Some(Obj(candidate)) = candidate else { continue };
                    // Google leaves out an index of zero, and relays leave out all.
                    let left_out = if candidates.seen & 1 == 0 { 0 } else { position };
                    let index = candidate.index.map_or(left_out, |Index(index)| index);
                    position += 1;
                    if let Ok(bit) = u32::try_from(index) {
                        candidates.seen |= 1u128.checked_shl(bit).unwrap_or(0);
                    }
                    if index == 0 && candidates.first.is_none() {
                        candidates.first = Some(candidate);
                    }
                }
                Ok(candidates)
            }
        }
        deserializer.deserialize_seq(Of)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate<'a> {
    #[serde(default)]
    index: Option<Index>,
    #[serde(borrow, default)]
    content: Option<Obj<Content<'a>>>,
    #[serde(borrow, default, alias = "finish_reason")]
    finish_reason: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(borrow, default)]
    parts: Option<Few<Option<Obj<Part<'a>>>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part<'a> {
    #[serde(borrow, default)]
    text: Option<Text<'a>>,
    #[serde(borrow, default)]
    thought: Option<&'a RawValue>,
    #[serde(borrow, default, alias = "function_call")]
    function_call: Option<Obj<Call<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Call<'a> {
    #[serde(borrow, default)]
    id: Option<Word<'a>>,
    #[serde(borrow, default)]
    name: Option<Word<'a>>,
    #[serde(borrow, default)]
    args: Option<&'a RawValue>,
    #[serde(borrow, default, alias = "partial_args")]
    partial_args: Option<&'a RawValue>,
    #[serde(borrow, default, alias = "will_continue")]
    will_continue: Option<&'a RawValue>,
}

impl<'a> Call<'a> {
    /// JSON as it came, but for relays that send it in a string.
    fn arguments(&self) -> Cow<'a, str> {
        let raw = self.args.or(self.partial_args).map_or("", RawValue::get);
        let inside = raw.starts_with('"').then(|| serde_json::from_str(raw).ok()).flatten();
        inside.map_or(Cow::Borrowed(raw), |Text(inside)| inside)
    }
}

fn string<'a>(word: &'a Option<Word<'_>>) -> &'a str {
    word.as_ref().and_then(|Word(word)| word.as_deref()).unwrap_or_default()
}

/// The first words of the enumerations by number, as Google's servers send them to clients that
/// ask for numbers. Beyond these the numbers of the Gemini API and of Vertex AI differ.
const FINISH: [&str; 6] = ["", "STOP", "MAX_TOKENS", "SAFETY", "RECITATION", "OTHER"];
const BLOCK: [&str; 5] = ["", "SAFETY", "OTHER", "BLOCKLIST", "PROHIBITED_CONTENT"];

/// The word of an enumeration; a number that is not known stays one.
fn enum_word<'a>(raw: &'a RawValue, words: &[&'static str]) -> Cow<'a, str> {
    let raw = raw.get();
    if raw.starts_with('"') {
        return serde_json::from_str(raw).map(|Text(word)| word).unwrap_or_default();
    }
    match raw.parse::<usize>() {
        Ok(number) => Cow::Borrowed(words.get(number).copied().unwrap_or(raw)),
        Err(_) => Cow::Borrowed(""),
    }
}
