use std::sync::Arc;

use attempt_ledger_core::{Digest, Effect};
use http::Method;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{Wire, object::Obj, wire::Family};

/// Bytes of a model's name that are kept.
const MAX_MODEL: usize = 256;

/// What a request asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestFacts {
    /// The model's name; one over 256 bytes, or with control characters, as `other:` and the
    /// first 16 hexadecimal digits of its SHA-256.
    pub model: Option<Arc<str>>,
    /// Whether a stream is asked for; `None` when the body could not be read.
    pub stream: Option<bool>,
    /// Tools that are offered.
    pub tools: u32,
    /// The cap on tokens of the answer.
    pub cap: Option<u64>,
    /// Unicode code points of the prompt's text.
    pub prompt_chars: u64,
    /// Whether the wire's reader understood the request. One that was not may do anything.
    pub understood: bool,
    /// What a repeat would do.
    pub effect: Effect,
}

/// Reads what a request asks for.
///
/// `body` is `None` when it is streamed. A request that is not understood (streamed, no JSON
/// object, a field twice, a field of another type) counts as one that writes.
pub fn read_request(wire: Wire, method: &Method, path: &str, body: Option<&[u8]>) -> RequestFacts {
    if matches!(*method, Method::GET | Method::HEAD) {
        return RequestFacts { effect: Effect::ReadOnly, ..RequestFacts::default() };
    }
    let read = match (wire.family(), body) {
        (Family::OpenAi, Some(body)) if *method == Method::POST => openai(path, body),
        _ => None,
    };
    read.unwrap_or_default()
}

#[derive(Deserialize)]
struct OpenAiRequest<'a> {
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(borrow, default)]
    tools: Option<Vec<Obj<Tool<'a>>>>,
    #[serde(borrow, default)]
    functions: Option<Vec<&'a RawValue>>,
    #[serde(default)]
    max_completion_tokens: Option<u64>,
    #[serde(default)]
    max_tokens: Option<u64>,
    #[serde(default)]
    background: Option<bool>,
    #[serde(borrow, default)]
    web_search_options: Option<&'a RawValue>,
    #[serde(borrow, default)]
    messages: Option<Vec<Obj<Message<'a>>>>,
    #[serde(borrow, default)]
    prompt: Option<&'a RawValue>,
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

fn openai(path: &str, body: &[u8]) -> Option<RequestFacts> {
    let Obj(request): Obj<OpenAiRequest<'_>> = serde_json::from_slice(body).ok()?;
    let tools = request.tools.unwrap_or_default();
    let local = |Obj(tool): &Obj<Tool<'_>>| {
        matches!(tool.kind.map(RawValue::get), Some("\"function\"" | "\"custom\""))
    };
    let harmless = tools.iter().all(local)
        && request.web_search_options.is_none()
        && request.background != Some(true);
    let texts = request.messages.iter().flatten().filter_map(|Obj(message)| message.content);
    let count = tools.len() + request.functions.map_or(0, |functions| functions.len());
    Some(RequestFacts {
        model: request.model.as_deref().or_else(|| deployment(path)).map(bounded),
        stream: Some(request.stream.unwrap_or(false)),
        tools: u32::try_from(count).unwrap_or(u32::MAX),
        cap: request.max_completion_tokens.or(request.max_tokens),
        prompt_chars: texts.chain(request.prompt).map(|text| text_chars(text, 0)).sum(),
        understood: true,
        effect: if harmless { Effect::ReadOnly } else { Effect::Writes },
    })
}

/// The model of an older Azure path: `/openai/deployments/{name}/...`.
fn deployment(path: &str) -> Option<&str> {
    let (_, rest) = path.split_once("/deployments/")?;
    rest.split('/').next().filter(|name| !name.is_empty())
}

fn bounded(model: &str) -> Arc<str> {
    if model.len() <= MAX_MODEL && !model.chars().any(char::is_control) {
        model.into()
    } else {
        format!("other:{}", Digest::of(model.as_bytes()).short()).into()
    }
}

/// Code points of a string, of the strings of a list, or of the `text` of a list's parts.
fn text_chars(raw: &RawValue, depth: u8) -> u64 {
    #[derive(Deserialize)]
    struct Part<'a> {
        #[serde(borrow, default)]
        text: Option<&'a RawValue>,
    }
    let json = raw.get();
    match json.as_bytes().first() {
        Some(b'"') => {
            serde_json::from_str::<String>(json).map_or(0, |text| text.chars().count() as u64)
        }
        Some(b'[') if depth < 2 => serde_json::from_str::<Vec<&RawValue>>(json)
            .map_or(0, |list| list.iter().map(|item| text_chars(item, depth + 1)).sum()),
        Some(b'{') => serde_json::from_str::<Part<'_>>(json)
            .ok()
            .and_then(|part| part.text)
            .filter(|text| text.get().starts_with('"'))
            .map_or(0, |text| text_chars(text, depth + 1)),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chat(body: &str) -> RequestFacts {
        read_request(Wire::OpenAiChat, &Method::POST, "/v1/chat/completions", Some(body.as_bytes()))
    }

    #[test]
    fn a_request_is_read() {
        let facts = chat(
            r#"{"model":"m","stream":true,"max_tokens":5,"max_completion_tokens":9,
               "tools":[{"type":"function","function":{"name":"f"}},{"type":"custom"}],
               "messages":[{"role":"user","content":"h\u00e9y"},
               {"role":"user","content":[{"type":"text","text":"ab"},{"type":"image_url"}]}]}"#,
        );
        let want = RequestFacts {
            model: Some("m".into()),
            stream: Some(true),
            tools: 2,
            cap: Some(9),
            prompt_chars: 5,
            understood: true,
            effect: Effect::ReadOnly,
        };
        assert_eq!(facts, want);
    }

    /// What is not known to be harmless writes.
    #[test]
    fn all_that_may_act_writes() {
        for body in [
            r#"{"model":"m","tools":[{"type":"web_search"}]}"#,
            r#"{"model":"m","tools":[{"name":"f"}]}"#,
            r#"{"model":"m","web_search_options":{}}"#,
            r#"{"model":"m","background":true}"#,
        ] {
            assert_eq!(
                (chat(body).understood, chat(body).effect),
                (true, Effect::Writes),
                "{body}"
            );
        }
        for body in [
            r#"{"model":"m","model":"n"}"#,
            r#"{"tools":[],"tools":[{"type":"mcp"}]}"#,
            r#"{"model":"m""#,
            r#"[1]"#,
            r#"["m",true]"#,
            r#"{"tools":[["function"]]}"#,
            r#"{"stream":"yes"}"#,
            "",
        ] {
            assert_eq!(chat(body), RequestFacts::default(), "{body}");
            assert_eq!(chat(body).effect, Effect::Writes, "{body}");
        }
        let plain = read_request(Wire::Plain, &Method::POST, "/x", Some(b"{}"));
        assert_eq!((plain.understood, plain.effect), (false, Effect::Writes));
        let streamed = read_request(Wire::OpenAiChat, &Method::POST, "/chat/completions", None);
        assert_eq!((streamed.understood, streamed.effect), (false, Effect::Writes));
        let get = read_request(Wire::Plain, &Method::GET, "/x", None);
        assert_eq!(get.effect, Effect::ReadOnly);
    }

    #[test]
    fn a_models_name_is_bounded() {
        let name = "x".repeat(257);
        let facts = chat(&format!(r#"{{"model":"{name}"}}"#));
        let want = format!("other:{}", Digest::of(name.as_bytes()).short());
        assert_eq!(facts.model.as_deref(), Some(&*want));
        let azure = read_request(
            Wire::OpenAiChat,
            &Method::POST,
            "/openai/deployments/gpt/chat/completions",
            Some(b"{}"),
        );
        assert_eq!(azure.model.as_deref(), Some("gpt"));
    }
}
