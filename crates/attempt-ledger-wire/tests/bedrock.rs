//! What the recorded responses of Bedrock do not hold: the causes of its errors, whoever reads the
//! frames, and what its requests ask for.

#![allow(clippy::expect_used, reason = "a test may panic, its helpers too")]

#[path = "support/frames.rs"]
mod frames;
mod support;

use attempt_ledger_core::{Effect, ErrorCause, Fault, Label, Uninspected, Verdict, decide};
use attempt_ledger_wire::{Tap, TapOptions, Wire, read_request};
use frames::{chunk, event, exception};
use http::Method;
use support::{Response, read, response};

const FRAMES: &str = "application/vnd.amazon.eventstream";

fn verdict(wire: Wire, response: &Response) -> (Verdict, Option<String>, Option<ErrorCause>) {
    let (facts, _) = read(wire, response, &TapOptions::default(), &[]);
    let (code, cause) = match &facts.fault {
        Some(Fault::Error(error)) => (error.code.clone(), error.cause),
        _ => (None, None),
    };
    let code = code.as_ref().map(Label::as_str).map(str::to_owned);
    (decide(response.status, &facts, &response.end).verdict, code, cause)
}

/// The decision table waits on a throttle that came inside a 200.
#[test]
fn an_exception_frame_has_a_cause_on_every_wire() {
    let stream = exception("throttlingException", "{\"message\":\"m\"}");
    for &wire in Wire::ALL {
        let got = verdict(wire, &response(FRAMES, stream.clone()));
        let code = Some("throttlingException".to_owned());
        assert_eq!(got, (Verdict::ProviderError, code, Some(ErrorCause::Throttled)), "{wire}");
    }
}

#[test]
fn the_header_names_the_error_where_the_body_does_not() {
    for (wire, body, code, cause) in [
        (
            Wire::BedrockConverse,
            "{\"message\":\"m\"}",
            "ModelNotReadyException",
            ErrorCause::Overloaded,
        ),
        (Wire::OpenAiChat, "", "ModelNotReadyException", ErrorCause::Overloaded),
        (
            Wire::BedrockInvoke,
            "{\"__type\":\"a.b#ThrottlingException\"}",
            "ThrottlingException",
            ErrorCause::Throttled,
        ),
    ] {
        let mut response = response("application/json", body);
        response.status = 429;
        let name = "ModelNotReadyException:http://internal.example/".parse().expect("a value");
        response.headers.insert("x-amzn-errortype", name);
        let want = (Verdict::Throttled, Some(code.to_owned()), Some(cause));
        assert_eq!(verdict(wire, &response), want, "{wire} {body}");
        // On an answer it says nothing.
        response.status = 200;
        assert_ne!(verdict(wire, &response).1.as_deref(), Some("ModelNotReadyException"));
    }
}

#[test]
fn frames_under_a_path_that_says_nothing_are_bedrocks() {
    let stream = [
        event("contentBlockDelta", "{\"contentBlockIndex\":0,\"delta\":{\"text\":\"x\"}}"),
        event("messageStop", "{\"stopReason\":\"end_turn\"}"),
    ];
    let response = response(FRAMES, stream.concat());
    let tap = Tap::new(Wire::Plain, 200, &response.headers, &TapOptions::default());
    assert_eq!(tap.wire(), Wire::BedrockConverse);
    assert_eq!(verdict(Wire::Plain, &response).0, Verdict::Ok);
}

#[test]
fn counts_of_bedrock_stand_only_where_the_vendor_gave_none() {
    let metrics =
        "\"amazon-bedrock-invocationMetrics\":{\"inputTokenCount\":90,\"outputTokenCount\":91}";
    for (own, want) in
        [("\"prompt_token_count\":1,", (Some(1), Some(91))), ("", (Some(90), Some(91)))]
    {
        let last = format!("{{\"generation\":\"x\",{own}\"stop_reason\":\"stop\",{metrics}}}");
        let response = response(FRAMES, chunk(&last));
        let (_, evidence) = read(Wire::BedrockInvoke, &response, &TapOptions::default(), &[]);
        assert_eq!((evidence.usage.input, evidence.usage.output), want, "{own}");
    }
}

#[test]
fn a_converse_request_is_read() {
    let ask = |path: &str, body: &str| {
        read_request(Wire::BedrockConverse, &Method::POST, path, Some(body.as_bytes()))
    };
    let facts = ask(
        "/model/arn%3Aaws%3Abedrock%3Aeu%3A1%3Ainference-profile%2Fm/converse-stream",
        r#"{"messages":[{"role":"user","content":[{"text":"h\u00e9y"},{"image":{}},{"toolResult":{"content":[{"text":"ab"}]}}]}],
            "system":[{"text":"abc"},{"cachePoint":{"type":"default"}}],"inferenceConfig":{"maxTokens":9},
            "toolConfig":{"tools":[{"toolSpec":{"name":"f"}},{"cachePoint":{"type":"default"}}]}}"#,
    );
    assert_eq!(facts.model.as_deref(), Some("arn:aws:bedrock:eu:1:inference-profile/m"));
    assert_eq!((facts.stream, facts.tools, facts.cap), (Some(true), 1, Some(9)));
    assert_eq!((facts.prompt_chars, facts.understood, facts.effect), (8, true, Effect::ReadOnly));
    for body in [
        r#"{"toolConfig":{"tools":[{"systemTool":{"name":"search"}}]}}"#,
        r#"{"toolConfig":{"tools":[{"systemTool":{},"cachePoint":{}}]}}"#,
        r#"{"toolConfig":{"tools":[{"systemTool":{},"toolSpec":{}}]}}"#,
        r#"{"additionalModelRequestFields":{"tools":[{"type":"computer"}]}}"#,
    ] {
        let facts = ask("/model/m/converse", body);
        assert_eq!((facts.understood, facts.effect), (true, Effect::Writes), "{body}");
        assert_eq!((facts.model.as_deref(), facts.stream), (Some("m"), Some(false)));
    }
    assert!(!ask("/model/m/converse", "[]").understood);
}

#[test]
fn an_invoke_request_is_read_as_its_vendor_means_it() {
    let ask = |body: &str| {
        let path = "/model/us.vendor.m-v1%3A0/invoke-with-response-stream";
        read_request(Wire::BedrockInvoke, &Method::POST, path, Some(body.as_bytes()))
    };
    for (body, understood, cap) in [
        (
            r#"{"anthropic_version":"bedrock-2023-05-31","max_tokens":3,"messages":[]}"#,
            true,
            Some(3),
        ),
        (r#"{"messages":[],"inferenceConfig":{"max_new_tokens":4}}"#, true, Some(4)),
        (r#"{"messages":[],"max_tokens":5}"#, true, Some(5)),
        (r#"{"prompt":"p","max_gen_len":6}"#, false, None),
    ] {
        let facts = ask(body);
        assert_eq!((facts.understood, facts.cap), (understood, cap), "{body}");
        assert_eq!(facts.effect == Effect::ReadOnly, understood, "{body}");
        assert_eq!((facts.model.as_deref(), facts.stream), (Some("us.vendor.m-v1:0"), Some(true)));
    }
    assert_eq!(ask("{").model, None);
}

/// Search results, agents and endpoints stream in frames too, and are no answers of Bedrock's wires.
#[test]
fn frames_of_other_services_are_not_judged() {
    let bytes = frames::frame(
        &[(":event-type", 7, b"PayloadPart"), (":message-type", 7, b"event")],
        b"data: {\"cho",
    );
    for stream in [
        bytes,
        event("Records", "a,b\n"),
        event("trace", "{\"agentId\":\"a\"}"),
        chunk("The answer of an agent."),
        event("chunk", "plain bytes"),
    ] {
        let response = response(FRAMES, stream);
        let (facts, _) = read(Wire::Plain, &response, &TapOptions::default(), &[]);
        assert_eq!((facts.fault, facts.uninspected), (None, Some(Uninspected::MediaType)));
    }
    let known = chunk("{\"generation\":\"x\",\"stop_reason\":\"stop\"}");
    assert_eq!(verdict(Wire::Plain, &response(FRAMES, known)).0, Verdict::Ok);
}

/// Where it does so in the last event, the vendor's own end mark has been read already.
#[test]
fn a_guardrail_may_speak_last() {
    let stream = [
        chunk(
            "{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"x\"}}",
        ),
        chunk("{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}"),
        chunk("{\"type\":\"message_stop\",\"amazon-bedrock-guardrailAction\":\"INTERVENED\"}"),
    ];
    let response = response(FRAMES, stream.concat());
    assert_eq!(verdict(Wire::BedrockInvoke, &response).0, Verdict::Refused);
}

#[test]
fn tools_that_are_not_the_vendors_may_act() {
    let body = r#"{"schemaVersion":"messages-v1","messages":[],"tools":[{"type":"web_search"}]}"#;
    let path = "/model/m/invoke";
    let facts = read_request(Wire::BedrockInvoke, &Method::POST, path, Some(body.as_bytes()));
    assert_eq!((facts.understood, facts.effect), (true, Effect::Writes));
}
