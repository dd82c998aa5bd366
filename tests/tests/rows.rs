//! What a row holds of an answer and of the settings it was made under, through the stack.

use attempt_ledger::{
    CallLayer, Case, GraderFn, Ledger, LedgerLayer, LedgerRetry, ScoreLayer, Verdict, client,
};
use attempt_ledger_core::{AttemptRow, Digest, Usage};
use attempt_ledger_tests::*;
use attempt_ledger_wire::Wire;
use http::Request;
use tower::{ServiceBuilder, ServiceExt};

fn request(path: &str, stream: Option<bool>) -> Request<Body> {
    let stream = stream.map(|asked| format!(r#","stream":{asked}"#)).unwrap_or_default();
    let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"p"}}]{stream}}}"#);
    let mut request = Request::post(format!("http://model.test{path}"))
        .header("content-type", "application/json")
        .body(Body::from(body))
        .expect("request");
    request.extensions_mut().insert(Case::new(slot("c")));
    request
}

const CHAT: &str = "/v1/chat/completions";

/// The row of one attempt, whose answer is read to its end.
async fn row(
    layer: impl Fn(Ledger) -> LedgerLayer,
    request: Request<Body>,
    head: Head,
) -> AttemptRow {
    let ledger = Ledger::memory();
    let call = CallLayer::new().attempts(1);
    let (retry, layer) = (LedgerRetry::new(), layer(ledger.clone()));
    let service = stack(call, retry, ScoreLayer::none(), layer, Frames::new([head]));
    if let Ok(response) = service.oneshot(request).await {
        let _ = text(response.into_body()).await;
    }
    rows(&ledger, "c").remove(0)
}

/// Two events of text, one with the stop reason if there is one, and the marker.
fn stream(finish: Option<&str>) -> Head {
    let event = |text: &str| {
        Step::from(
            format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
                .as_str(),
        )
    };
    let mut steps = vec![event("hé"), event("llo")];
    if let Some(finish) = finish {
        let end = format!(
            "data: {{\"choices\":[{{\"delta\":{{}},\"finish_reason\":\"{finish}\"}}],\
             \"usage\":{{\"prompt_tokens\":7,\"completion_tokens\":3}}}}\n\n"
        );
        steps.push(end.as_str().into());
    }
    steps.push("data: [DONE]\n\n".into());
    sse(steps)
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_the_other_kind_than_was_asked_for_is_noted() {
    for (asked, answer, noted) in [
        (Some(true), document("hello", "stop"), true),
        (Some(true), stream(Some("stop")), false),
        (Some(false), stream(Some("stop")), true),
        (Some(false), document("hello", "stop"), false),
    ] {
        let row = row(LedgerLayer::new, request(CHAT, asked), answer).await;
        assert_eq!((row.verdict, row.detail.other_media), (Some(Verdict::Ok), noted), "{asked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_done_marker_is_a_stop_reason_only_where_it_is_accepted() {
    for (accept, verdict) in [(true, Verdict::Ok), (false, Verdict::Unterminated)] {
        let layer = |ledger| LedgerLayer::new(ledger).accept_done(accept);
        let row = row(layer, request(CHAT, Some(true)), stream(None)).await;
        assert_eq!(row.verdict, Some(verdict));
    }
}

#[tokio::test(start_paused = true)]
async fn the_wire_is_the_paths_unless_one_is_given() {
    for (given, path, wire, chars) in [
        (None, CHAT, Wire::OpenAiChat, 5),
        (Some(Wire::OpenAiChat), "/gateway", Wire::OpenAiChat, 5),
        // Without a protocol the whole document is the text.
        (None, "/gateway", Wire::Plain, 78),
        (Some(Wire::Plain), CHAT, Wire::Plain, 78),
    ] {
        let layer = |ledger| match given {
            Some(wire) => LedgerLayer::new(ledger).wire(wire),
            None => LedgerLayer::new(ledger),
        };
        let row = row(layer, request(path, None), document("hello", "stop")).await;
        assert_eq!((&row.wire, row.content_chars), (&wire.label(), Some(chars)), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_row_holds_what_the_answer_told_of_itself() {
    let json = r#"{"choices":[{"index":0,"message":{"content":"héllo"},"finish_reason":"length"}],"usage":{"prompt_tokens":7,"completion_tokens":3}}"#;
    let whole = document("", "").body(vec![json.into()]);
    // A document has no events, and the marker is none.
    for (answer, asked, events) in [(whole, false, None), (stream(Some("length")), true, Some(3))] {
        let row = row(LedgerLayer::new, request(CHAT, Some(asked)), answer).await;
        assert_eq!(row.verdict, Some(Verdict::Truncated));
        assert_eq!(row.finish_reason.as_ref().map(|reason| reason.as_str()), Some("length"));
        assert_eq!(row.content_sha256, Some(Digest::of("héllo".as_bytes())));
        assert_eq!(row.content_chars, Some(5), "code points, not bytes");
        assert_eq!(row.usage, Usage { input: Some(7), output: Some(3) });
        assert_eq!(row.events, events);
    }
}

#[tokio::test(start_paused = true)]
async fn a_row_holds_the_reasoning_s_length_and_the_request_s_id() {
    let json =
        r#"{"message":{"thinking":"thöught","content":"hi"},"done":true,"done_reason":"stop"}"#;
    let answer = || document("", "").body(vec![json.into()]).header("x-request-id", "req_41b7");
    let path = "/api/chat";
    let told = row(LedgerLayer::new, request(path, Some(false)), answer()).await;
    assert_eq!((told.reasoning_chars, told.content_chars), (Some(7), Some(2)));
    assert_eq!(told.request_id.as_ref().map(|id| id.as_str()), Some("req_41b7"));
    assert_eq!(told.response_id, None);

    // One that is what the request was let in with does not get into the row.
    let mut keyed = request(path, Some(false));
    keyed.headers_mut().insert("authorization", "Bearer req_41b7".parse().expect("a value"));
    let id = row(LedgerLayer::new, keyed, answer()).await.request_id.expect("an id");
    assert!(id.as_str().starts_with("other:"), "{id}");
}

#[test]
fn the_worst_case_is_the_budget_three_acknowledgements_and_the_graders_limit() {
    let grader = GraderFn::new("g", "1", |_| async { Ok::<f64, attempt_ledger::BoxError>(1.0) });
    let builder = client(Ledger::memory()).budget(s(100)).ack_limit(s(7));
    assert_eq!(builder.worst_case(), s(100 + 3 * 7), "nothing is graded");
    let builder = builder.score(ScoreLayer::configure(grader).limit(s(1_000)).build());
    assert_eq!(builder.worst_case(), s(100 + 3 * 7 + 1_000));
}

/// Without a call layer the policy's own bound holds.
#[tokio::test(start_paused = true)]
async fn a_policy_without_a_call_stops_at_its_own_bound() {
    for (retry, made) in [
        (LedgerRetry::new(), 3),
        (LedgerRetry::new().attempts(5), 5),
        (LedgerRetry::new().attempts(1), 1),
        (LedgerRetry::new().attempts(0), 1),
    ] {
        let ledger = Ledger::memory();
        let inner = Frames::new([document("", "").status(503)]);
        let service = ServiceBuilder::new()
            .layer(tower::retry::RetryLayer::new(retry))
            .layer(LedgerLayer::new(ledger.clone()))
            .service(inner.clone());
        let response = service.oneshot(chat("c")).await.expect("the last one is handed up");
        assert_eq!(response.status(), 503);
        assert_eq!((inner.calls(), verdicts(&ledger, "c")), (made, vec!["throttled"; made]));
    }
}
