//! What a request of the wire `anthropic-messages` asks for.

use std::borrow::Cow;

use attempt_ledger_core::Effect;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    json::{Obj, Text},
    request::{Asked, RequestFacts, Sum, bounded, model_in_path, path_ends_with, sums, text_chars},
};

/// How deep blocks lie within blocks: a message's list, a tool result, its list, a text.
const MAX_DEPTH: u8 = 4;

pub(crate) fn read(asked: &Asked<'_>) -> Option<RequestFacts> {
    let Obj(request): Obj<Request<'_>> = serde_json::from_slice(asked.body).ok()?;
    let tools = request.tools.unwrap_or_default();
    let harmless =
        tools.remote == 0 && is_empty(request.mcp_servers) && is_empty(request.container);
    let messages = request.messages.map_or(0, |Messages(chars)| chars);
    let by_path = by_path(asked.path);
    let model = by_path.or(request.model.map(|Text(model)| model));
    let streams = [":streamRawPredict", "/invoke-with-response-stream"];
    Some(RequestFacts {
        model: model.as_deref().map(bounded),
        stream: Some(
            request.stream.unwrap_or(false)
                || streams.iter().any(|end| path_ends_with(asked.path, end)),
        ),
        tools: u32::try_from(tools.count).unwrap_or(u32::MAX),
        cap: request.max_tokens,
        prompt_chars: messages + request.system.map_or(0, |system| chars(system, 0)),
        understood: true,
        effect: if harmless { Effect::ReadOnly } else { Effect::Writes },
    })
}

/// The model, where the path decides it: at Vertex AI and at Bedrock.
fn by_path(path: &str) -> Option<Cow<'_, str>> {
    [
        ("/models/", ":rawPredict"),
        ("/models/", ":streamRawPredict"),
        ("/model/", "/invoke-with-response-stream"),
        ("/model/", "/invoke"),
    ]
    .into_iter()
    .find_map(|(before, after)| model_in_path(path, before, after))
}

/// Whether a list, an object or a string holds nothing.
fn is_empty(raw: Option<&RawValue>) -> bool {
    let Some(raw) = raw else { return true };
    let start: String = raw.get().chars().filter(|c| !c.is_whitespace()).take(3).collect();
    matches!(&*start, "[]" | "{}" | "\"\"")
}

/// Code points of a text, of a list of blocks, or of one block's text or result.
fn chars(raw: &RawValue, depth: u8) -> u64 {
    match raw.get().as_bytes().first() {
        Some(b'"') => text_chars(raw, 0),
        Some(b'[') if depth < MAX_DEPTH => serde_json::from_str(raw.get())
            .map_or(0, |list: Vec<&RawValue>| list.iter().map(|item| chars(item, depth + 1)).sum()),
        Some(b'{') => serde_json::from_str(raw.get()).map_or(0, |Obj(block): Obj<Block<'_>>| {
            let of = |raw: Option<&RawValue>| raw.map_or(0, |raw| chars(raw, depth + 1));
            match block.kind.map(RawValue::get) {
                Some("\"tool_result\"") => of(block.content),
                None | Some("\"text\"") => of(block.text),
                Some(_) => 0,
            }
        }),
        _ => 0,
    }
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
    max_tokens: Option<u64>,
    #[serde(borrow, default)]
    mcp_servers: Option<&'a RawValue>,
    #[serde(borrow, default)]
    container: Option<&'a RawValue>,
    #[serde(borrow, default)]
    system: Option<&'a RawValue>,
    #[serde(default)]
    messages: Option<Messages>,
}

sums! { Tools Messages }

#[derive(Default)]
struct Tools {
    count: usize,
    /// Those that the server may run, or whose use does more than to answer.
    remote: usize,
}

impl<'de> Sum<'de> for Tools {
    type Item = Obj<Tool<'de>>;
    fn add(&mut self, Obj(tool): Self::Item) {
        self.count += 1;
        let local = matches!(tool.kind.map(RawValue::get), None | Some("\"custom\""));
        self.remote += usize::from(!local);
    }
}

/// Code points of the messages' texts.
#[derive(Default)]
struct Messages(u64);

impl<'de> Sum<'de> for Messages {
    type Item = Obj<Message<'de>>;
    fn add(&mut self, Obj(message): Self::Item) {
        self.0 += message.content.map_or(0, |content| chars(content, 0));
    }
}

#[derive(Deserialize)]
struct Tool<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Block<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow, default)]
    text: Option<&'a RawValue>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
}
