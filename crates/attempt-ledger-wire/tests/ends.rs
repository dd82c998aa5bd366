//! What ends a stream, as the page on the wires tells it.

#![allow(clippy::expect_used, reason = "a test may panic, its helpers too")]

use attempt_ledger_wire::{Tap, TapOptions, Wire};
use http::{HeaderMap, HeaderValue, header::CONTENT_TYPE};

/// A tap on a stream of these events.
fn fed(wire: Wire, events: &[&str]) -> Tap {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    let mut tap = Tap::new(wire, 200, &headers, &TapOptions::default());
    for event in events {
        tap.feed(format!("data: {event}\n\n").as_bytes());
    }
    tap
}

/// For each wire with a protocol: what the page says, a stream up to its stop word, and what is next.
const STREAMS: &[(Wire, &str, &[&str], &str)] = &[
    (
        Wire::OpenAiChat,
        "`[DONE]`",
        &[r#"{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}"#],
        "[DONE]",
    ),
    (
        Wire::OpenAiCompletions,
        "`[DONE]`",
        &[r#"{"choices":[{"index":0,"text":"a","finish_reason":"stop"}]}"#],
        "[DONE]",
    ),
    (
        Wire::OpenAiResponses,
        "`response.completed`, `.incomplete`, `.done`, with an answer",
        &[r#"{"type":"response.output_text.delta","delta":"a"}"#],
        r#"{"type":"response.completed","response":{"status":"completed","output":[]}}"#,
    ),
    (
        Wire::OpenAiResponses,
        "`response.completed`, `.incomplete`, `.done`, with an answer",
        &[r#"{"type":"response.output_text.delta","delta":"a"}"#],
        r#"{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"output":[]}}"#,
    ),
    (
        Wire::OpenAiResponses,
        "`response.completed`, `.incomplete`, `.done`, with an answer",
        &[r#"{"type":"response.output_text.delta","delta":"a"}"#],
        r#"{"type":"response.done","response":{"status":"completed","output":[]}}"#,
    ),
    (
        Wire::AnthropicMessages,
        "`message_stop`",
        &[
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#,
        ],
        r#"{"type":"message_stop"}"#,
    ),
    (
        Wire::Gemini,
        "-",
        &[r#"{"candidates":[{"content":{"parts":[{"text":"a"}]}}]}"#],
        r#"{"candidates":[{"finishReason":"STOP"}]}"#,
    ),
    (
        Wire::Ollama,
        "`\"done\": true`",
        &[r#"{"message":{"content":"a"},"done":false}"#],
        r#"{"done":true}"#,
    ),
    (
        Wire::LlamaCompletion,
        "`\"stop\": true`",
        &[r#"{"content":"a","stop":false}"#],
        r#"{"stop":true}"#,
    ),
    (
        Wire::Cohere,
        "-",
        &[r#"{"type":"content-delta","index":0,"delta":{"message":{"content":{"text":"a"}}}}"#],
        r#"{"type":"message-end","delta":{"finish_reason":"COMPLETE"}}"#,
    ),
    (
        Wire::BedrockConverse,
        "-",
        &[r#"{"contentBlockDelta":{"contentBlockIndex":0,"delta":{"text":"a"}}}"#],
        r#"{"messageStop":{"stopReason":"end_turn"}}"#,
    ),
    (
        Wire::BedrockInvoke,
        "Anthropic's `message_stop`",
        &[r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}"#],
        r#"{"type":"message_stop"}"#,
    ),
];

#[test]
fn a_stream_is_ended_by_what_the_page_says() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/wires.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let said = |wire: Wire| {
        let row = page.lines().find(|line| line.starts_with(&format!("| `{wire}` |")));
        row.and_then(|row| row.split(" | ").nth(3)).expect("a cell")
    };
    for &(wire, says, events, last) in STREAMS {
        assert_eq!(said(wire), says, "{wire}");
        let before = fed(wire, events);
        assert!(before.facts().usable() && !before.facts().done, "{wire} goes on");
        let done = fed(wire, &[events, &[last]].concat()).facts().done;
        assert_eq!(done, says != "-", "{wire}: {last}");
    }
}

#[test]
fn a_relays_done_ends_a_stream_of_every_wire() {
    for &(wire, _, events, _) in STREAMS {
        let facts = fed(wire, &[events, &["[DONE]"]].concat()).facts().clone();
        assert_eq!((facts.done, facts.fault), (true, None), "{wire}");
    }
    // Whoever's answers they are.
    for event in [r#"{"outputText":"a"}"#, r#"{"text":"a","is_finished":false}"#, r#"{"other":1}"#]
    {
        let facts = fed(Wire::BedrockInvoke, &[event, "[DONE]"]).facts().clone();
        assert_eq!((facts.done, facts.fault), (true, None), "{event}");
    }
}

/// A failure of Responses may be followed by the error that tells why.
#[test]
fn a_failed_response_does_not_end_its_stream() {
    for state in ["failed", "cancelled"] {
        let last = format!(r#"{{"type":"response.{state}","response":{{"status":"{state}"}}}}"#);
        let text = r#"{"type":"response.output_text.delta","delta":"a"}"#;
        assert!(!fed(Wire::OpenAiResponses, &[text, &last]).facts().done, "{state}");
    }
}
