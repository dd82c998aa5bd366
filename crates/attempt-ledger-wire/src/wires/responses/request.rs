//! What a request of the wire `openai-responses` asks for.

use attempt_ledger_core::Effect;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    json::{Obj, Text},
    request::{Asked, Messages, RequestFacts, Tools, bounded, text_chars},
};

pub(super) fn read(asked: &Asked<'_>) -> Option<RequestFacts> {
    let Obj(request): Obj<Request<'_>> = serde_json::from_slice(asked.body).ok()?;
    let tools = request.tools.unwrap_or_default();
    let harmless = tools.remote == 0
        && request.web_search_options.is_none()
        && request.background != Some(true)
        // What is said is added to it.
        && request.conversation.is_none()
        // A template on the server may bring tools of its own.
        && request.prompt.is_none();
    let input = match request.input {
        Some(items) if items.get().starts_with('[') => {
            serde_json::from_str::<Messages>(items.get()).ok()?.0
        }
        Some(input) => text_chars(input, 0),
        None => 0,
    };
    Some(RequestFacts {
        model: request.model.map(|Text(model)| bounded(&model)),
        stream: Some(request.stream.unwrap_or(false)),
        tools: u32::try_from(tools.count).unwrap_or(u32::MAX),
        cap: request.max_output_tokens,
        prompt_chars: input + request.instructions.map_or(0, |text| text_chars(text, 0)),
        understood: true,
        effect: if harmless { Effect::ReadOnly } else { Effect::Writes },
    })
}

/// `store` and `previous_response_id` are not here: keeping an answer, or going on from one, does
/// nothing that a repeat would do twice.
#[derive(Deserialize)]
struct Request<'a> {
    #[serde(borrow, default)]
    model: Option<Text<'a>>,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    tools: Option<Tools>,
    #[serde(default)]
    max_output_tokens: Option<u64>,
    #[serde(default)]
    background: Option<bool>,
    #[serde(borrow, default)]
    conversation: Option<&'a RawValue>,
    #[serde(borrow, default)]
    prompt: Option<&'a RawValue>,
    #[serde(borrow, default)]
    web_search_options: Option<&'a RawValue>,
    #[serde(borrow, default)]
    instructions: Option<&'a RawValue>,
    #[serde(borrow, default)]
    input: Option<&'a RawValue>,
}
