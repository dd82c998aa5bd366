//! What a request of the wire `bedrock-invoke` asks for: each vendor's own body, with the model and
//! the stream in the path.

use attempt_ledger_core::Effect;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    json::Obj,
    request::{Asked, RequestFacts, bounded, model_in_path, path_ends_with},
    wires::{anthropic, converse, openai},
};

const STREAM: &str = "/invoke-with-response-stream";

/// A body of no wire that is known here may do anything: of it, only what the path says is known.
pub(crate) fn read(asked: &Asked<'_>) -> Option<RequestFacts> {
    let Obj(vendor): Obj<Vendor<'_>> = serde_json::from_slice(asked.body).ok()?;
    let read = if vendor.anthropic_version.is_some() {
        (anthropic::MESSAGES.request)(asked)?
    } else if vendor.schema_version.is_some() || vendor.inference_config.is_some() {
        let read = converse::read_request(asked)?;
        // They are no field of this vendor's: another's server may run them.
        let effect = if vendor.tools.is_some() { Effect::Writes } else { read.effect };
        RequestFacts { effect, ..read }
    } else if vendor.messages.is_some() {
        (openai::CHAT.request)(asked)?
    } else {
        RequestFacts::default()
    };
    let in_path = [STREAM, "/invoke"]
        .into_iter()
        .find_map(|after| model_in_path(asked.path, "/model/", after));
    Some(RequestFacts {
        model: in_path.as_deref().map(bounded).or(read.model),
        stream: Some(path_ends_with(asked.path, STREAM)),
        ..read
    })
}

#[derive(Deserialize)]
struct Vendor<'a> {
    #[serde(borrow, default)]
    anthropic_version: Option<&'a RawValue>,
    /// Nova's.
    #[serde(borrow, default, rename = "schemaVersion")]
    schema_version: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "inferenceConfig")]
    inference_config: Option<&'a RawValue>,
    #[serde(borrow, default)]
    messages: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tools: Option<&'a RawValue>,
}
