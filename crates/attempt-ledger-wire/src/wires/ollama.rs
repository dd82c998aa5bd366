//! The wire `ollama`: `/api/chat` and `/api/generate`, a JSON object a line, of which the last says
//! `done: true`; or one such object.
//!
//! `done` is both the end and, on servers that give no `done_reason`, the reason: older ones had
//! only it. An empty `done_reason` is none: the server lost its runner and closes the stream.

use attempt_ledger_core::Effect;
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use crate::{
    error::{self, ReportedError},
    event::{Event, Kind},
    gather::{CallKey, Gather, id_hash},
    json::{self, Few, Obj, Text, Word},
    request::{Asked, Messages, RequestFacts, Tools, bounded, text_chars},
    wire::{self, Spec},
    wires::openai::Function,
};

pub(crate) const OLLAMA: Spec = Spec {
    name: "ollama",
    paths: &["/api/chat", "/api/generate"],
    usage: ("prompt_eval_count", "eval_count"),
    lists: false,
    statuses: &[],
    request,
};

#[derive(Debug, Default)]
pub(crate) struct Reader;

impl wire::Reader for Reader {
    const MAY_BE_LINES: bool = true;

    fn event(&mut self, event: &Event<'_>, gather: &mut Gather) -> bool {
        if event.kind != Kind::Data {
            if gather.is_open() {
                error::event(event, gather);
            }
            return true;
        }
        // No server says so, but gateways that make server-sent events of the lines do.
        if event.is_done() {
            gather.done();
            return false;
        }
        match json::parse::<Obj<Record<'_>>>(event.data, &mut None) {
            Ok(Obj(record)) => {
                let done = record.done == Some(true);
                if gather.is_open() {
                    record.read(event.data, true, gather);
                }
                if done {
                    gather.done();
                }
                !done
            }
            Err(error) => {
                if event.complete && gather.is_open() {
                    gather.unread(&error);
                }
                true
            }
        }
    }

    fn document(&mut self, body: &[u8], cut: bool, gather: &mut Gather) {
        let body = json::without_bom(body);
        match json::parse::<Obj<Record<'_>>>(body, &mut None) {
            Ok(Obj(record)) => record.read(body, false, gather),
            Err(_) if cut => {}
            Err(error) => gather.unread(&error),
        }
    }
}

/// A line or a document: the fields that say something.
#[derive(Deserialize)]
#[serde(expecting = "an object of Ollama's API")]
struct Record<'a> {
    #[serde(borrow, default)]
    message: Option<Obj<Message<'a>>>,
    /// The text, and beside it the thinking, of a generation.
    #[serde(borrow, default)]
    response: Option<Text<'a>>,
    #[serde(borrow, default)]
    thinking: Option<Word<'a>>,
    /// Of a generation; a chat has them in its message.
    #[serde(borrow, default)]
    tool_calls: Option<Few<Obj<Call<'a>>>>,
    #[serde(default)]
    done: Option<bool>,
    #[serde(borrow, default)]
    done_reason: Option<Text<'a>>,
    #[serde(borrow, default)]
    prompt_eval_count: Option<&'a RawValue>,
    #[serde(borrow, default)]
    eval_count: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    content: Option<Text<'a>>,
    #[serde(borrow, default)]
    thinking: Option<Word<'a>>,
    #[serde(borrow, default)]
    tool_calls: Option<Few<Obj<Call<'a>>>>,
}

/// A call, which comes whole.
#[derive(Deserialize)]
struct Call<'a> {
    #[serde(borrow, default)]
    id: Option<Word<'a>>,
    #[serde(borrow, default)]
    function: Option<Obj<Function<'a>>>,
}

impl Record<'_> {
    fn read(self, json: &[u8], streamed: bool, gather: &mut Gather) {
        let reported = self.reported_error(json);
        // An error takes away what comes with it, not what stood before.
        let stood = streamed && gather.answered();
        self.merge(gather);
        match reported {
            Some(reported) if stood => gather.late_error(reported.error),
            Some(reported) => gather.error(reported),
            None if streamed => gather.progress += 1,
            None => {}
        }
    }

    fn reported_error(&self, json: &[u8]) -> Option<ReportedError> {
        let error = json::value(self.error?);
        let beside = || error::from_value(&json::tree(json).unwrap_or_default());
        // A plain string as a rule; a gateway may put a status beside it.
        Some(error::from_value(&error).or_stated_beside(beside))
    }

    fn merge(self, gather: &mut Gather) {
        let Obj(message) = self.message.unwrap_or_else(|| Obj(Message::default()));
        for Word(thinking) in [message.thinking, self.thinking].into_iter().flatten() {
            gather.reasoning(&thinking.unwrap_or_default());
        }
        if let Some(Text(text)) = message.content.or(self.response) {
            gather.text(&text);
        }
        let calls = message.tool_calls.or(self.tool_calls);
        for Obj(call) in calls.into_iter().flat_map(Few::into_iter) {
            call.merge(gather);
        }
        let count = |raw: Option<&RawValue>| json::count(&json::value(raw?));
        gather.usage(count(self.prompt_eval_count), count(self.eval_count));
        match self.done_reason {
            Some(Text(word)) => gather.stop_word(&word),
            None if self.done == Some(true) => gather.stop(),
            None => {}
        }
    }
}

impl Call<'_> {
    /// Each is a call of its own, but for one that an id says came before.
    fn merge(self, gather: &mut Gather) {
        let id = self.id.and_then(|Word(id)| id).filter(|id| !id.is_empty());
        let key = match id {
            Some(id) => CallKey::Id(id_hash(&id)),
            None => CallKey::Index(gather.facts.tool_calls.into()),
        };
        match self.function {
            _ if gather.has_call(key) => {}
            Some(Obj(function)) => function.merge(key, gather),
            None => gather.call(key, "", ""),
        }
    }
}

fn request(asked: &Asked<'_>) -> Option<RequestFacts> {
    let Obj(request): Obj<Request<'_>> = serde_json::from_slice(asked.body).ok()?;
    let tools = request.tools.unwrap_or_default();
    let messages = request.messages.map_or(0, |Messages(chars)| chars);
    let text = [request.prompt, request.system, request.suffix];
    let text: u64 = text.into_iter().flatten().map(|text| text_chars(text, 0)).sum();
    // Zero and less mean that there is none.
    let cap = request.options.and_then(|Obj(options)| options.num_predict);
    let cap = cap.and_then(|cap| json::count(&cap)).filter(|cap| *cap > 0);
    Some(RequestFacts {
        model: request.model.map(|Text(model)| bounded(&model)),
        stream: Some(request.stream.unwrap_or(true)),
        tools: u32::try_from(tools.count).unwrap_or(u32::MAX),
        cap,
        prompt_chars: messages + text,
        understood: true,
        effect: if tools.remote == 0 { Effect::ReadOnly } else { Effect::Writes },
    })
}

#[derive(Deserialize)]
struct Request<'a> {
    #[serde(borrow, default)]
    model: Option<Text<'a>>,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    tools: Option<Tools>,
    #[serde(default)]
    messages: Option<Messages>,
    #[serde(borrow, default)]
    prompt: Option<&'a RawValue>,
    #[serde(borrow, default)]
    system: Option<&'a RawValue>,
    #[serde(borrow, default)]
    suffix: Option<&'a RawValue>,
    #[serde(default)]
    options: Option<Obj<Options>>,
}

#[derive(Deserialize)]
struct Options {
    #[serde(default)]
    num_predict: Option<Value>,
}
