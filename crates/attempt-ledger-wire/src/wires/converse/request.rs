//! What a request of the wire `bedrock-converse` asks for.

use attempt_ledger_core::Effect;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    json::{Obj, Text},
    request::{Asked, RequestFacts, Sum, bounded, model_in_path, path_ends_with, sums, text_chars},
};

pub(crate) fn read(asked: &Asked<'_>) -> Option<RequestFacts> {
    let Obj(request): Obj<Request<'_>> = serde_json::from_slice(asked.body).ok()?;
    let tools = request.tool_config.and_then(|Obj(config)| config.tools).unwrap_or_default();
    let more = request.more.map(|Obj(more)| more).unwrap_or_default();
    // The vendor's own tools pass through unread.
    let harmless = tools.remote == 0 && more.tools.is_none() && more.mcp_servers.is_none();
    let chars = |texts: Option<Texts>| texts.map_or(0, |Texts(chars)| chars);
    let in_path = ["/converse-stream", "/converse"]
        .into_iter()
        .find_map(|after| model_in_path(asked.path, "/model/", after));
    let model = in_path.or(request.model.map(|Text(model)| model));
    Some(RequestFacts {
        model: model.as_deref().map(bounded),
        stream: Some(path_ends_with(asked.path, "/converse-stream")),
        tools: u32::try_from(tools.count).unwrap_or(u32::MAX),
        cap: request.config.and_then(|Obj(config)| config.max_tokens.or(config.max_new_tokens)),
        prompt_chars: chars(request.system) + chars(request.messages),
        understood: true,
        effect: if harmless { Effect::ReadOnly } else { Effect::Writes },
    })
}

#[derive(Deserialize)]
struct Request<'a> {
    #[serde(borrow, default, rename = "modelId")]
    model: Option<Text<'a>>,
    #[serde(default)]
    system: Option<Texts>,
    #[serde(default)]
    messages: Option<Texts>,
    #[serde(default, rename = "inferenceConfig")]
    config: Option<Obj<Config>>,
    #[serde(default, rename = "toolConfig")]
    tool_config: Option<Obj<ToolConfig>>,
    #[serde(borrow, default, rename = "additionalModelRequestFields")]
    more: Option<Obj<More<'a>>>,
}

#[derive(Deserialize)]
struct Config {
    #[serde(default, rename = "maxTokens")]
    max_tokens: Option<u64>,
    /// As Nova has it in InvokeModel.
    #[serde(default)]
    max_new_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct ToolConfig {
    #[serde(default)]
    tools: Option<Tools>,
}

#[derive(Default, Deserialize)]
struct More<'a> {
    #[serde(borrow, default)]
    tools: Option<&'a RawValue>,
    #[serde(borrow, default)]
    mcp_servers: Option<&'a RawValue>,
}

sums! { Tools Texts }

#[derive(Default)]
struct Tools {
    count: usize,
    /// Those that the server itself runs.
    remote: usize,
}

impl<'de> Sum<'de> for Tools {
    type Item = Obj<Tool<'de>>;
    fn add(&mut self, Obj(tool): Self::Item) {
        let is_served =
            tool.system.is_some() || (tool.spec.is_none() && tool.cache_point.is_none());
        self.count += usize::from(is_served || tool.spec.is_some());
        self.remote += usize::from(is_served);
    }
}

#[derive(Deserialize)]
struct Tool<'a> {
    #[serde(borrow, default, rename = "toolSpec")]
    spec: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "systemTool")]
    system: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "cachePoint")]
    cache_point: Option<&'a RawValue>,
}

/// Code points of the texts of blocks, of what is in them, and of messages' blocks.
#[derive(Default)]
struct Texts(u64);

impl<'de> Sum<'de> for Texts {
    type Item = Obj<Block<'de>>;
    fn add(&mut self, Obj(block): Self::Item) {
        let Block { text, content, result, guarded } = block;
        let guarded = guarded.and_then(|Obj(guarded)| guarded.text?.0.text);
        let inner = [content, result.and_then(|Obj(result)| result.content)];
        self.0 += [text, guarded].iter().flatten().map(|raw| text_chars(raw, 0)).sum::<u64>();
        self.0 += inner.iter().flatten().map(|Texts(chars)| chars).sum::<u64>();
    }
}

/// A message, or a block of one.
#[derive(Deserialize)]
struct Block<'a> {
    #[serde(borrow, default)]
    text: Option<&'a RawValue>,
    #[serde(default)]
    content: Option<Texts>,
    #[serde(default, rename = "toolResult")]
    result: Option<Obj<ToolResult>>,
    #[serde(borrow, default, rename = "guardContent")]
    guarded: Option<Obj<Guarded<'a>>>,
}

#[derive(Deserialize)]
struct ToolResult {
    #[serde(default)]
    content: Option<Texts>,
}

#[derive(Deserialize)]
struct Guarded<'a> {
    #[serde(borrow, default)]
    text: Option<Obj<GuardedText<'a>>>,
}

#[derive(Deserialize)]
struct GuardedText<'a> {
    #[serde(borrow, default)]
    text: Option<&'a RawValue>,
}
