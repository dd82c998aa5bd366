//! What the model says: the documents and events of the OpenAI-shaped wires.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::{Play, Received};

/// The answer's text unless a play sets one.
const PONG: &str = "pong";

/// What of a request shapes its answer.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) stream: bool,
    pub(crate) head_only: bool,
    pub(crate) chunked: bool,
    pub(crate) number: usize,
    usage: bool,
    legacy: bool,
    model: String,
    prompt_tokens: usize,
}

/// The parts of one answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) says: Says,
    pub(crate) finish: Option<String>,
    /// Stands beside the choices, as some routers put it.
    pub(crate) error: Option<Value>,
}

#[derive(Clone, Debug)]
pub(crate) enum Says {
    Text(String),
    Refusal(String),
    ToolCall,
}

// === impl Asked ===

impl Asked {
    pub(crate) fn of(request: &Received, chunked: bool) -> Self {
        let json = request.json();
        let field = |name| json.as_ref().and_then(|json| json.get(name));
        let path = request.path.split('?').next().unwrap_or_default();
        Asked {
            stream: request.stream(),
            head_only: request.method == http::Method::HEAD,
            chunked,
            number: request.number,
            usage: field("stream_options")
                .and_then(|options| options.get("include_usage"))
                .and_then(Value::as_bool)
                .unwrap_or(false),
            legacy: path.ends_with("/completions") && !path.ends_with("/chat/completions"),
            model: request.model().unwrap_or_else(|| "mock".to_owned()),
            // About four bytes a token, as rules of thumb have it.
            prompt_tokens: request.body.len().div_ceil(4),
        }
    }

    /// The whole answer as one document.
    pub(crate) fn document(&self, answer: &Answer) -> Vec<u8> {
        let mut document = self.envelope("chat.completion", "text_completion");
        let choice = if self.legacy {
            json!({"index": 0, "text": answer.text(), "logprobs": null, "finish_reason": answer.finish})
        } else {
            let mut message = json!({"role": "assistant", "content": null, "refusal": null});
            match &answer.says {
                Says::Text(text) => set(&mut message, "content", json!(text)),
                Says::Refusal(text) => set(&mut message, "refusal", json!(text)),
                Says::ToolCall => set(&mut message, "tool_calls", json!([tool_call()])),
            }
            json!({"index": 0, "message": message, "logprobs": null, "finish_reason": answer.finish})
        };
        set(&mut document, "choices", json!([choice]));
        set(&mut document, "usage", self.usage(answer));
        if let Some(error) = &answer.error {
            set(&mut document, "error", error.clone());
        }
        document.to_string().into_bytes()
    }

    /// The events of the answer, one each, without `[DONE]`; the first says nothing yet.
    pub(crate) fn events(&self, answer: &Answer) -> Vec<Bytes> {
        let mut events = Vec::new();
        if !self.legacy {
            events.push(self.delta(&json!({"role": "assistant", "content": ""}), None));
        }
        match &answer.says {
            Says::Text(text) => {
                for piece in pieces(text) {
                    events.push(self.delta(&json!({"content": piece}), None));
                }
            }
            Says::Refusal(text) => {
                for piece in pieces(text) {
                    events.push(self.delta(&json!({"refusal": piece}), None));
                }
            }
            Says::ToolCall => {
                let mut call = tool_call();
                set(&mut call, "index", json!(0));
                events.push(self.delta(&json!({"tool_calls": [call]}), None));
            }
        }
        if let Some(finish) = &answer.finish {
            events.push(self.delta(&json!({}), Some(finish)));
        }
        if self.usage && answer.finish.is_some() {
            let mut chunk = self.envelope("chat.completion.chunk", "text_completion");
            set(&mut chunk, "choices", json!([]));
            set(&mut chunk, "usage", self.usage(answer));
            events.push(event(&chunk));
        }
        events
    }

    fn delta(&self, delta: &Value, finish: Option<&str>) -> Bytes {
        let mut chunk = self.envelope("chat.completion.chunk", "text_completion");
        let choice = if self.legacy {
            let text = delta.get("content").cloned().unwrap_or_else(|| json!(""));
            json!({"index": 0, "text": text, "finish_reason": finish})
        } else {
            json!({"index": 0, "delta": delta, "finish_reason": finish})
        };
        set(&mut chunk, "choices", json!([choice]));
        event(&chunk)
    }

    fn envelope(&self, chat: &str, legacy: &str) -> Value {
        json!({
            "id": format!("chatcmpl-mock-{}", self.number),
            "object": if self.legacy { legacy } else { chat },
            "created": 1_767_225_600,
            "model": self.model,
        })
    }

    fn usage(&self, answer: &Answer) -> Value {
        let completion = answer.text().len().div_ceil(4);
        json!({
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": completion,
            "total_tokens": self.prompt_tokens.saturating_add(completion),
        })
    }
}

// === impl Answer ===

impl Answer {
    /// The play's text and finish reason, or `finish`.
    pub(crate) fn of(play: &Play, finish: &str) -> Self {
        Answer::saying(play, play.text.as_deref().unwrap_or(PONG), finish)
    }

    pub(crate) fn saying(play: &Play, text: &str, finish: &str) -> Self {
        Answer {
            says: Says::Text(text.to_owned()),
            finish: Some(play.finish.as_deref().unwrap_or(finish).to_owned()),
            error: None,
        }
    }

    fn text(&self) -> &str {
        match &self.says {
            Says::Text(text) | Says::Refusal(text) => text,
            Says::ToolCall => "",
        }
    }
}

/// The sentinel after the last event.
pub(crate) const DONE: &[u8] = b"data: [DONE]\n\n";

/// One event of a stream.
pub(crate) fn event(value: &Value) -> Bytes {
    Bytes::from(format!("data: {value}\n\n"))
}

/// An error object as OpenAI-shaped servers write it, without its wrapper.
pub(crate) fn error(message: &str, kind: &str, code: Option<&str>) -> Value {
    json!({"message": message, "type": kind, "param": null, "code": code})
}

fn tool_call() -> Value {
    json!({
        "id": "call_mock_1",
        "type": "function",
        "function": {"name": "lookup", "arguments": "{\"key\":\"pong\"}"},
    })
}

/// At least two pieces where the text allows it, each of at most 256 characters.
fn pieces(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let size = chars.len().div_ceil(2).clamp(1, 256);
    chars.chunks(size).map(|piece| piece.iter().collect()).collect()
}

fn set(object: &mut Value, name: &str, value: Value) {
    if let Some(map) = object.as_object_mut() {
        map.insert(name.to_owned(), value);
    }
}
