//! Plain text streams of every wire, as long as wanted: what most of their events look like.
#![allow(dead_code, reason = "each binary uses a part")]

use attempt_ledger_wire::Wire;

use crate::frames;

/// A stream of text in its steady state.
pub(crate) struct Steady {
    pub(crate) wire: Wire,
    pub(crate) media: &'static str,
    /// What comes before the first text.
    pub(crate) head: Vec<u8>,
    /// One event with this text; the number is its place in the stream.
    pub(crate) event: fn(u64, &str) -> Vec<u8>,
    /// What ends it.
    pub(crate) tail: Vec<u8>,
}

pub(crate) const WORDS: [&str; 8] =
    [" the", " harbour", " was", " quiet", ",", " and", " boats", " slept"];

const SSE: &str = "text/event-stream";

impl Steady {
    /// The stream with so many events of text.
    pub(crate) fn body(&self, events: u64) -> Vec<u8> {
        let text = (0..events).map(|n| (self.event)(n, WORDS[n as usize % 8]));
        let mut body = self.head.clone();
        text.for_each(|event| body.extend(event));
        body.extend_from_slice(&self.tail);
        body
    }
}

/// One of each wire and framing.
pub(crate) fn steady() -> Vec<Steady> {
    let bytes = |text: &str| text.as_bytes().to_vec();
    vec![
        Steady {
            wire: Wire::OpenAiChat,
            media: SSE,
            head: Vec::new(),
            event: |_, text| {
                format!(
                    "data: {{\"id\":\"chatcmpl-CkYtq3Vx0f\",\"object\":\"chat.completion.chunk\",\
                     \"created\":1776159000,\"model\":\"demo-large\",\"choices\":[{{\"index\":0,\
                     \"delta\":{{\"content\":\"{text}\"}},\"logprobs\":null,\"finish_reason\":null\
                     }}],\"usage\":null}}\n\n"
                )
                .into()
            },
            tail: bytes(
                "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n\
                 data: [DONE]\n\n",
            ),
        },
        Steady {
            wire: Wire::OpenAiCompletions,
            media: SSE,
            head: Vec::new(),
            event: |_, text| {
                format!(
                    "data: {{\"id\":\"cmpl-1\",\"object\":\"text_completion\",\"created\":1776159000,\
                     \"model\":\"demo\",\"choices\":[{{\"text\":\"{text}\",\"index\":0,\
                     \"logprobs\":null,\"finish_reason\":null}}]}}\n\n"
                )
                .into()
            },
            tail: bytes("data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"stop\"}]}\n\n"),
        },
        Steady {
            wire: Wire::OpenAiResponses,
            media: SSE,
            head: bytes(
                "event: response.created\ndata: {\"type\":\"response.created\",\
                 \"sequence_number\":0,\"response\":{\"id\":\"resp_1\",\"status\":\"in_progress\",\
                 \"error\":null,\"output\":[]}}\n\n",
            ),
            event: |n, text| {
                format!(
                    "event: response.output_text.delta\ndata: {{\"type\":\
                     \"response.output_text.delta\",\"sequence_number\":{},\"item_id\":\
                     \"msg_68ee3f0a2b6c8193\",\"output_index\":0,\"content_index\":0,\"delta\":\
                     \"{text}\",\"logprobs\":[],\"obfuscation\":\"{}\"}}\n\n",
                    n + 1,
                    &"aQ3xZrmmW8pLkTy"[..n as usize % 12],
                )
                .into()
            },
            tail: bytes(
                "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\
                 \"id\":\"resp_1\",\"status\":\"completed\",\"error\":null,\"output\":[],\
                 \"usage\":{\"input_tokens\":9,\"output_tokens\":9}}}\n\n",
            ),
        },
        Steady {
            wire: Wire::AnthropicMessages,
            media: SSE,
            head: bytes(
                "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\
                 \"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"demo\",\
                 \"content\":[],\"stop_reason\":null,\"usage\":{\"input_tokens\":9,\
                 \"output_tokens\":1}}}\n\nevent: content_block_start\ndata: {\"type\":\
                 \"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\
                 \"text\":\"\"}}\n\n",
            ),
            event: |_, text| {
                format!(
                    "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\
                     \"index\":0,\"delta\":{{\"type\":\"text_delta\",\"text\":\"{text}\"}}}}\n\n"
                )
                .into()
            },
            tail: bytes(
                "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n\
                 event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\"\
                 :\"end_turn\"},\"usage\":{\"output_tokens\":9}}\n\n\
                 event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
            ),
        },
        Steady {
            wire: Wire::Gemini,
            media: SSE,
            head: Vec::new(),
            event: |_, text| format!("data: {}\r\n\r\n", gemini(text)).into(),
            tail: bytes(
                "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"\"}]},\
                 \"finishReason\":\"STOP\"}]}\r\n\r\n",
            ),
        },
        Steady {
            wire: Wire::Gemini,
            media: "application/json",
            head: bytes("[{\"candidates\":[]}"),
            event: |_, text| format!("\n,\n{}", gemini(text)).into(),
            tail: bytes(",{\"candidates\":[{\"finishReason\":\"STOP\"}]}]"),
        },
        Steady {
            wire: Wire::Ollama,
            media: "application/x-ndjson",
            head: Vec::new(),
            event: |n, text| {
                format!(
                    "{{\"model\":\"demo\",\"created_at\":\"2026-04-14T09:30:00.{:06}Z\",\
                     \"message\":{{\"role\":\"assistant\",\"content\":\"{text}\"}},\
                     \"done\":false}}\n",
                    n % 1_000_000
                )
                .into()
            },
            tail: bytes(
                "{\"message\":{\"content\":\"\"},\"done\":true,\"done_reason\":\"stop\"}\n",
            ),
        },
        Steady {
            wire: Wire::LlamaCompletion,
            media: SSE,
            head: Vec::new(),
            event: |n, text| {
                format!(
                    "data: {{\"index\":0,\"content\":\"{text}\",\"tokens\":[{}],\"stop\":false,\
                     \"id_slot\":-1,\"tokens_predicted\":{n},\"tokens_evaluated\":9}}\n\n",
                    n % 32_000
                )
                .into()
            },
            tail: bytes("data: {\"content\":\"\",\"stop\":true,\"stop_type\":\"eos\"}\n\n"),
        },
        Steady {
            wire: Wire::Cohere,
            media: SSE,
            head: bytes(
                "event: message-start\ndata: {\"type\":\"message-start\",\"id\":\"c\",\"delta\":{\
                 \"message\":{\"role\":\"assistant\",\"content\":[]}}}\n\nevent: content-start\n\
                 data: {\"type\":\"content-start\",\"index\":0,\"delta\":{\"message\":{\"content\":\
                 {\"type\":\"text\",\"text\":\"\"}}}}\n\n",
            ),
            event: |_, text| {
                format!(
                    "event: content-delta\ndata: {{\"type\":\"content-delta\",\"index\":0,\
                     \"delta\":{{\"message\":{{\"content\":{{\"text\":\"{text}\"}}}}}}}}\n\n"
                )
                .into()
            },
            tail: bytes(
                "event: message-end\ndata: {\"type\":\"message-end\",\"delta\":{\"finish_reason\":\
                 \"COMPLETE\",\"usage\":{\"tokens\":{\"input_tokens\":9,\"output_tokens\":9}}}}\n\n",
            ),
        },
        Steady {
            wire: Wire::BedrockConverse,
            media: "application/vnd.amazon.eventstream",
            head: frames::event("messageStart", "{\"role\":\"assistant\"}"),
            event: |n, text| {
                let padding = &"abcdefghijklmnopqrstuvwxyzABCDEFGHIJ"[..n as usize % 36];
                let delta = format!(
                    "{{\"contentBlockIndex\":0,\"delta\":{{\"text\":\"{text}\"}},\"p\":\"{padding}\"}}"
                );
                frames::event("contentBlockDelta", &delta)
            },
            tail: frames::event("messageStop", "{\"stopReason\":\"end_turn\"}"),
        },
        Steady {
            wire: Wire::BedrockInvoke,
            media: "application/vnd.amazon.eventstream",
            head: Vec::new(),
            event: |_, text| {
                frames::chunk(&format!("{{\"generation\":\"{text}\",\"stop_reason\":null}}"))
            },
            tail: frames::chunk("{\"generation\":\"\",\"stop_reason\":\"stop\"}"),
        },
        Steady {
            wire: Wire::Plain,
            media: SSE,
            head: Vec::new(),
            event: |_, text| format!("data: {text}\n\n").into(),
            tail: Vec::new(),
        },
        Steady {
            wire: Wire::Plain,
            media: "text/plain",
            head: Vec::new(),
            event: |_, text| text.into(),
            tail: Vec::new(),
        },
    ]
}

fn gemini(text: &str) -> String {
    format!(
        "{{\"candidates\":[{{\"content\":{{\"parts\":[{{\"text\":\"{text}\"}}],\"role\":\
         \"model\"}},\"index\":0}}],\"usageMetadata\":{{\"promptTokenCount\":9,\
         \"candidatesTokenCount\":4,\"totalTokenCount\":13,\"promptTokensDetails\":[{{\
         \"modality\":\"TEXT\",\"tokenCount\":9}}]}},\"modelVersion\":\"demo-flash\",\
         \"responseId\":\"r-17\"}}"
    )
}
