//! What a request of the wire `cohere` asks for.

use attempt_ledger_core::Effect;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    json::{Obj, Text},
    request::{Asked, RequestFacts, Sum, Tools, bounded, sums, text_chars},
};

pub(crate) fn read(asked: &Asked<'_>) -> Option<RequestFacts> {
    let Obj(request): Obj<Request<'_>> = serde_json::from_slice(asked.body).ok()?;
    let tools = request.tools.unwrap_or_default();
    // Connectors of version 1 search on the server, and its conversations are kept there.
    let harmless =
        tools.remote == 0 && request.connectors.is_none() && request.conversation_id.is_none();
    let chars = |texts: Option<Texts>| texts.map_or(0, |Texts(chars)| chars);
    let own = [request.message, request.preamble];
    Some(RequestFacts {
        model: request.model.map(|Text(model)| bounded(&model)),
        stream: Some(request.stream.unwrap_or(false)),
        tools: u32::try_from(tools.count).unwrap_or(u32::MAX),
        cap: request.max_tokens,
        prompt_chars: chars(request.messages)
            + chars(request.history)
            + request.documents.map_or(0, |Documents(chars)| chars)
            + own.iter().flatten().map(|raw| text_chars(raw, 0)).sum::<u64>(),
        understood: true,
        effect: if harmless { Effect::ReadOnly } else { Effect::Writes },
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
    max_tokens: Option<u64>,
    #[serde(default)]
    messages: Option<Texts>,
    #[serde(default)]
    documents: Option<Documents>,
    /// Of version 1.
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
    #[serde(borrow, default)]
    preamble: Option<&'a RawValue>,
    #[serde(default, rename = "chat_history")]
    history: Option<Texts>,
    #[serde(borrow, default)]
    connectors: Option<&'a RawValue>,
    #[serde(borrow, default)]
    conversation_id: Option<&'a RawValue>,
}

sums! { Texts Documents }

/// Code points of the messages' texts.
#[derive(Default)]
struct Texts(u64);

impl<'de> Sum<'de> for Texts {
    type Item = Obj<Message<'de>>;
    fn add(&mut self, Obj(message): Self::Item) {
        let texts = [message.content, message.message];
        self.0 += texts.iter().flatten().map(|raw| text_chars(raw, 0)).sum::<u64>();
    }
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
}

/// Code points of the documents: strings, or objects whose data has strings.
#[derive(Default)]
struct Documents(u64);

impl<'de> Sum<'de> for Documents {
    type Item = &'de RawValue;
    fn add(&mut self, document: Self::Item) {
        self.0 += match document.get().starts_with('"') {
            true => text_chars(document, 0),
            false => {
                serde_json::from_str(document.get()).map_or(0, |Obj(document)| chars(&document))
            }
        };
    }
}

fn chars(document: &Document<'_>) -> u64 {
    let Some(data) = document.data else { return 0 };
    if data.get().starts_with('"') {
        return text_chars(data, 0);
    }
    type Fields<'a> = std::collections::BTreeMap<&'a str, &'a RawValue>;
    let fields: Fields<'_> = serde_json::from_str(data.get()).unwrap_or_default();
    fields.values().filter(|raw| raw.get().starts_with('"')).map(|raw| text_chars(raw, 0)).sum()
}

#[derive(Deserialize)]
struct Document<'a> {
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
}
