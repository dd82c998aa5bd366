//! What a request of the wires `openai-chat` and `openai-completions` asks for.

use attempt_ledger_core::Effect;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    json::{Obj, Text},
    request::{Asked, Messages, RequestFacts, Sum, Tools, bounded, sums, text_chars},
};

pub(crate) fn read(asked: &Asked<'_>) -> Option<RequestFacts> {
    let Obj(request): Obj<OpenAiRequest<'_>> = serde_json::from_slice(asked.body).ok()?;
    let tools = request.tools.unwrap_or_default();
    let harmless = tools.remote == 0
        && request.web_search_options.is_none()
        && request.background != Some(true);
    let count = tools.count + request.functions.map_or(0, |Functions(count)| count);
    let messages = request.messages.map_or(0, |Messages(chars)| chars);
    let model = request.model.as_ref().map(|Text(model)| &**model);
    Some(RequestFacts {
        model: model.or_else(|| deployment(asked.path)).map(bounded),
        stream: Some(request.stream.unwrap_or(false)),
        tools: u32::try_from(count).unwrap_or(u32::MAX),
        cap: request.max_completion_tokens.or(request.max_tokens),
        prompt_chars: messages + request.prompt.map_or(0, |prompt| text_chars(prompt, 0)),
        understood: true,
        effect: if harmless { Effect::ReadOnly } else { Effect::Writes },
    })
}

/// The model of an older Azure path: `/openai/deployments/{name}/...`.
fn deployment(path: &str) -> Option<&str> {
    let (_, rest) = path.split_once("/deployments/")?;
    rest.split('/').next().filter(|name| !name.is_empty())
}

#[derive(Deserialize)]
struct OpenAiRequest<'a> {
    #[serde(borrow, default)]
    model: Option<Text<'a>>,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    tools: Option<Tools>,
    #[serde(default)]
    functions: Option<Functions>,
    #[serde(default)]
    max_completion_tokens: Option<u64>,
    #[serde(default)]
    max_tokens: Option<u64>,
    #[serde(default)]
    background: Option<bool>,
    #[serde(borrow, default)]
    web_search_options: Option<&'a RawValue>,
    #[serde(default)]
    messages: Option<Messages>,
    #[serde(borrow, default)]
    prompt: Option<&'a RawValue>,
}

sums! { Functions }

#[derive(Default)]
struct Functions(usize);

impl<'de> Sum<'de> for Functions {
    type Item = &'de RawValue;
    fn add(&mut self, _: Self::Item) {
        self.0 += 1;
    }
}
