//! What the model says: the documents and events of the OpenAI-shaped wires.

use bytes::Bytes;
use serde_json::Value;

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
    pub(crate) error: Option<String>,
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

    /// The whole answer as one document, its fields in the order in which servers write them: a
    /// document that is cut has its text before its finish reason.
    pub(crate) fn document(&self, answer: &Answer) -> Vec<u8> {
        let finish = quoted(answer.finish.as_deref());
        let choice = if self.legacy {
            let text = quoted(Some(answer.text()));
            format!(r#""text":{text},"logprobs":null,"finish_reason":{finish}"#)
        } else {
            let says = match &answer.says {
                Says::Text(text) => format!(r#""content":{},"refusal":null"#, quoted(Some(text))),
                Says::Refusal(text) => {
                    format!(r#""content":null,"refusal":{}"#, quoted(Some(text)))
                }
                Says::ToolCall => {
                    format!(r#""content":null,"refusal":null,"tool_calls":[{{{TOOL_CALL}}}]"#)
                }
            };
            let message = format!(r#"{{"role":"assistant",{says}}}"#);
            format!(r#""message":{message},"logprobs":null,"finish_reason":{finish}"#)
        };
        let envelope = self.envelope("chat.completion");
        let usage = self.usage(answer);
        let error = answer.error.as_ref().map(|e| format!(r#","error":{e}"#)).unwrap_or_default();
        format!(r#"{{{envelope},"choices":[{{"index":0,{choice}}}],{usage}{error}}}"#).into_bytes()
    }

    /// The events of the answer, one each, without `[DONE]`; the first of a chat has no text yet.
    pub(crate) fn events(&self, answer: &Answer) -> Vec<Bytes> {
        let mut events = Vec::new();
        if !self.legacy {
            events.push(self.chunk(r#""role":"assistant","content":"""#, "", None));
        }
        match &answer.says {
            Says::Text(text) => {
                for piece in pieces(text) {
                    let delta = format!(r#""content":{}"#, quoted(Some(&piece)));
                    events.push(self.chunk(&delta, &piece, None));
                }
            }
            Says::Refusal(text) => {
                for piece in pieces(text) {
                    let delta = format!(r#""refusal":{}"#, quoted(Some(&piece)));
                    events.push(self.chunk(&delta, &piece, None));
                }
            }
            Says::ToolCall => {
                let delta = format!(r#""tool_calls":[{{"index":0,{TOOL_CALL}}}]"#);
                events.push(self.chunk(&delta, "", None));
            }
        }
        if let Some(finish) = &answer.finish {
            events.push(self.chunk("", "", Some(finish)));
        }
        if self.usage && answer.finish.is_some() {
            let envelope = self.envelope("chat.completion.chunk");
            events.push(event(&format!(r#"{{{envelope},"choices":[],{}}}"#, self.usage(answer))));
        }
        events
    }

    fn chunk(&self, delta: &str, text: &str, finish: Option<&str>) -> Bytes {
        let envelope = self.envelope("chat.completion.chunk");
        let says = if self.legacy {
            format!(r#""text":{}"#, quoted(Some(text)))
        } else {
            format!(r#""delta":{{{delta}}}"#)
        };
        let finish = quoted(finish);
        event(&format!(
            r#"{{{envelope},"choices":[{{"index":0,{says},"finish_reason":{finish}}}]}}"#
        ))
    }

    fn envelope(&self, chat: &str) -> String {
        let number = self.number;
        let object = if self.legacy { "text_completion" } else { chat };
        let model = quoted(Some(&self.model));
        format!(
            r#""id":"chatcmpl-mock-{number}","object":"{object}","created":1767225600,"model":{model}"#
        )
    }

    fn usage(&self, answer: &Answer) -> String {
        let prompt = self.prompt_tokens;
        let completion = answer.text().len().div_ceil(4);
        let total = prompt.saturating_add(completion);
        format!(
            r#""usage":{{"prompt_tokens":{prompt},"completion_tokens":{completion},"total_tokens":{total}}}"#
        )
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

const TOOL_CALL: &str = concat!(
    r#""id":"call_mock_1","type":"function","function":"#,
    r#"{"name":"lookup","arguments":"{\"key\":\"pong\"}"}"#,
);

/// One event of a stream.
pub(crate) fn event(json: &str) -> Bytes {
    Bytes::from(format!("data: {json}\n\n"))
}

/// An error object as OpenAI-shaped servers write it, without its wrapper.
pub(crate) fn error(message: &str, kind: &str, code: Option<&str>) -> String {
    let (message, kind, code) = (quoted(Some(message)), quoted(Some(kind)), quoted(code));
    format!(r#"{{"message":{message},"type":{kind},"param":null,"code":{code}}}"#)
}

fn quoted(text: Option<&str>) -> String {
    text.map_or_else(|| "null".to_owned(), |text| Value::from(text).to_string())
}

/// At least two pieces where the text allows it, each of at most 256 characters.
fn pieces(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let size = chars.len().div_ceil(2).clamp(1, 256);
    chars.chunks(size).map(|piece| piece.iter().collect()).collect()
}
