//! What the recorded responses of Cohere do not hold: its status of its own, an error behind the
//! answer, and what its requests ask for.

#![allow(clippy::expect_used, reason = "a test may panic, its helpers too")]

mod support;

use attempt_ledger_core::{Effect, Verdict, decide};
use attempt_ledger_wire::{TapOptions, Wire, read_request};
use http::Method;
use support::{read, response};

#[test]
fn an_error_behind_the_stop_word_is_only_noted() {
    let stream = |text: &str| {
        format!(
            "data: {{\"type\":\"content-delta\",\"index\":0,\"delta\":{{\"message\":{{\"content\":{{\"text\":\"{text}\"}}}}}}}}\n\n\
             data: {{\"type\":\"message-end\",\"delta\":{{\"finish_reason\":\"COMPLETE\"}}}}\n\n\
             event: error\ndata: {{\"message\":\"late\"}}\n\n"
        )
    };
    for (text, want) in [("Aye.", Verdict::Ok), ("", Verdict::ProviderError)] {
        let response = response("text/event-stream", stream(text));
        let (facts, _) = read(Wire::Cohere, &response, &TapOptions::default(), &[]);
        assert_eq!(decide(200, &facts, &response.end).verdict, want, "{text:?}");
    }
}

/// No answer stood before it.
#[test]
fn an_error_beside_the_stop_word_counts() {
    let body = "data: {\"type\":\"content-delta\",\"delta\":{\"message\":{\"content\":{\"text\":\"Aye.\"}}}}\n\n\
         data: {\"type\":\"message-end\",\"delta\":{\"finish_reason\":\"COMPLETE\",\"error\":\"x\"}}\n\n";
    let response = response("text/event-stream", body);
    let (facts, _) = read(Wire::Cohere, &response, &TapOptions::default(), &[]);
    assert_eq!(decide(200, &facts, &response.end).verdict, Verdict::ProviderError);
}

#[test]
fn a_request_is_read() {
    let ask =
        |body: &str| read_request(Wire::Cohere, &Method::POST, "/v2/chat", Some(body.as_bytes()));
    let facts = ask(
        r#"{"model":"command","stream":true,"max_tokens":9,"tools":[{"type":"function","function":{}}],
            "messages":[{"role":"user","content":"ab"},{"role":"user","content":[{"type":"text","text":"c"}]}],
            "documents":["de",{"data":{"title":"f","text":"gh"}},{"data":"i"}]}"#,
    );
    assert_eq!(facts.model.as_deref(), Some("command"));
    assert_eq!((facts.stream, facts.tools, facts.cap), (Some(true), 1, Some(9)));
    assert_eq!((facts.prompt_chars, facts.understood, facts.effect), (9, true, Effect::ReadOnly));
    for body in [
        r#"{"tools":[{"type":"web"}]}"#,
        r#"{"message":"m","connectors":[{"id":"web-search"}]}"#,
        r#"{"message":"m","conversation_id":"c"}"#,
    ] {
        assert_eq!(ask(body).effect, Effect::Writes, "{body}");
    }
    assert!(!ask(r#"{"model":1}"#).understood);
}
