//! What the recorded responses of `openai-responses` do not hold: every mix of the forms a text is
//! sent in, odd shapes, ids, reasoning, bounds, and what a request asks for.

#![allow(clippy::expect_used, reason = "a test may panic, its helpers too")]

mod support;

use attempt_ledger_core::{Effect, ErrorCause, Facts, Fault, Uninspected, Verdict, decide};
use attempt_ledger_wire::{Evidence, RequestFacts, Tap, TapOptions, Wire, read_request};
use http::Method;
use serde_json::{Value, json};
use support::{Random, headers, read, response, seed};

const WIRE: Wire = Wire::OpenAiResponses;

/// Reads `body` in any chunking and gives its verdict too.
fn on(media: &'static str, body: &str) -> (Verdict, Facts, Evidence) {
    let response = response(media, body);
    let options = TapOptions { keep_content: true, ..TapOptions::default() };
    let whole = read(WIRE, &response, &options, &[]);
    let mut random = Random(seed());
    for _ in 0..5 {
        let cuts: Vec<_> = (0..6).map(|_| random.below(response.body.len() + 1)).collect();
        assert_eq!(read(WIRE, &response, &options, &cuts), whole, "cut at {cuts:?}");
    }
    (decide(200, &whole.0, &response.end).verdict, whole.0, whole.1)
}

fn stream(events: &[Value]) -> (Verdict, Facts, Evidence) {
    let body: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    on("text/event-stream", &body)
}

fn document(body: &Value) -> (Verdict, Facts, Evidence) {
    on("application/json", &body.to_string())
}

fn text(evidence: &Evidence) -> &str {
    &evidence.content.as_ref().expect("kept").text
}

fn calls(evidence: &Evidence) -> Vec<(&str, &str)> {
    let content = evidence.content.as_ref().expect("kept");
    content.tool_calls.iter().map(|call| (&*call.name, &*call.arguments)).collect()
}

fn finish(evidence: &Evidence) -> Option<&str> {
    evidence.finish_reason.as_ref().map(attempt_ledger_core::Label::as_str)
}

fn cause(facts: &Facts) -> Option<ErrorCause> {
    match &facts.fault {
        Some(Fault::Error(error)) => error.cause,
        _ => None,
    }
}

fn completed(output: &Value) -> Value {
    json!({"type": "response.completed", "response": {"status": "completed", "output": output}})
}

fn message(texts: &[&str]) -> Value {
    let parts: Vec<_> =
        texts.iter().map(|text| json!({"type": "output_text", "text": text})).collect();
    json!({"type": "message", "role": "assistant", "content": parts})
}

mod a_text_counts_once {
    use super::*;

    /// An item with the events that may tell of it, and what it adds to the answer.
    struct Told {
        text: String,
        call: Option<(String, String)>,
        refusal: String,
        reasoning: u64,
        events: Vec<Value>,
        item: Value,
    }

    /// One item at this place of the output, told in a random mix of forms.
    fn item(at: usize, by_index: bool, new_ids: bool, random: &mut Random) -> Told {
        let mut ids = 0;
        let mut place = |mut event: Value| {
            ids += 1;
            let id = if new_ids { format!("{at}-{ids}") } else { format!("{at}") };
            let fields = event.as_object_mut().expect("an object");
            if by_index {
                fields.insert("output_index".into(), at.into());
            }
            if let Some(item) = fields.get_mut("item").and_then(Value::as_object_mut) {
                item.insert("id".into(), id.into());
            } else {
                fields.insert("item_id".into(), id.into());
            }
            event
        };
        let mut told = Told {
            text: String::new(),
            call: None,
            refusal: String::new(),
            reasoning: 0,
            events: Vec::new(),
            item: Value::Null,
        };
        let kind = random.below(4);
        // What the kind calls its pieces: event, delta's place, field of the whole, part's type.
        let (name, field, part, index) = [
            ("output_text", "text", "output_text", "content_index"),
            ("refusal", "refusal", "refusal", "content_index"),
            ("reasoning_summary_text", "text", "summary_text", "summary_index"),
            ("function_call_arguments", "arguments", "", "content_index"),
        ][kind];
        let count = if kind == 3 { 1 } else { 1 + random.below(3) };
        let wholes: Vec<String> =
            (0..count).map(|_| format!("<{}>", random.below(100_000))).collect();
        let parts: Vec<_> = wholes.iter().map(|w| json!({"type": part, field: w})).collect();
        told.item = match kind {
            0 | 1 => json!({"type": "message", "role": "assistant", "content": parts}),
            2 => json!({"type": "reasoning", "summary": parts}),
            _ => json!({"type": "function_call", "name": "f", "arguments": wholes[0]}),
        };
        if random.below(2) == 0 {
            let begun = match kind {
                0 | 1 => json!({"type": "message", "role": "assistant", "content": []}),
                2 => json!({"type": "reasoning", "summary": []}),
                _ => json!({"type": "function_call", "name": "f", "arguments": ""}),
            };
            let begins = json!({"type": "response.output_item.added", "item": begun});
            told.events.push(place(begins));
        }
        for (n, (whole, part)) in wholes.iter().zip(&parts).enumerate() {
            if random.below(2) == 0 {
                let cut = 1 + random.below(whole.len() - 1);
                for delta in [&whole[..cut], "", &whole[cut..]] {
                    let kind = format!("response.{name}.delta");
                    told.events.push(place(json!({"type": kind, index: n, "delta": delta})));
                }
            }
            if random.below(2) == 0 {
                let kind = format!("response.{name}.done");
                told.events.push(place(json!({"type": kind, index: n, field: whole})));
            }
            if kind < 2 && random.below(2) == 0 {
                let kind = "response.content_part.done";
                told.events.push(place(json!({"type": kind, index: n, "part": part})));
            }
        }
        if random.below(2) == 0 {
            let item = told.item.clone();
            told.events.push(place(json!({"type": "response.output_item.done", "item": item})));
        }
        told.item.as_object_mut().expect("an object").insert("id".into(), format!("{at}").into());
        match kind {
            0 => told.text = wholes.concat(),
            1 => told.refusal = wholes.concat(),
            2 => told.reasoning = wholes.concat().len() as u64,
            _ => told.call = Some(("f".into(), wholes[0].clone())),
        }
        told
    }

    /// Whichever forms a server sends, the answer is that of the final object.
    #[test]
    fn in_any_mix_of_its_forms() {
        let seed = seed();
        let mut random = Random(seed);
        for round in 0..2000 {
            let (by_index, new_ids) = [(true, false), (true, true), (false, false)][round % 3];
            let count = 1 + random.below(4);
            let told: Vec<_> =
                (0..count).map(|at| item(at, by_index, new_ids, &mut random)).collect();
            let output: Vec<_> = told.iter().map(|told| told.item.clone()).collect();
            let mut events: Vec<_> = told.iter().flat_map(|told| told.events.clone()).collect();
            events.push(completed(&output.into()));
            let (_, facts, evidence) = stream(&events);
            let at = format!("seed {seed}, round {round}: {events:#?}");
            let sorted = |mut parts: Vec<String>| {
                parts.sort();
                parts
            };
            // Parts that only the final object has come last; the text is the same but for that.
            let pieces = |text: &str| sorted(text.split_inclusive('>').map(Into::into).collect());
            let want: String = told.iter().map(|told| &*told.text).collect();
            assert_eq!(pieces(text(&evidence)), pieces(&want), "{at}");
            let refusal = evidence.content.as_ref().expect("kept").refusal.clone();
            let want: String = told.iter().map(|told| &*told.refusal).collect();
            assert_eq!(pieces(&refusal.unwrap_or_default()), pieces(&want), "{at}");
            let reasoning: u64 = told.iter().map(|told| told.reasoning).sum();
            assert_eq!(evidence.reasoning_chars, reasoning, "{at}");
            let called = |list: Vec<(&str, &str)>| {
                sorted(list.into_iter().map(|(name, given)| format!("{name}{given}")).collect())
            };
            let want = told.iter().filter_map(|told| told.call.as_ref());
            let want: Vec<_> = want.map(|(name, given)| (&**name, &**given)).collect();
            assert_eq!(facts.tool_calls as usize, want.len(), "{at}");
            assert_eq!(called(calls(&evidence)), called(want), "{at}");
        }
    }

    #[test]
    fn without_an_index_or_an_id_anywhere() {
        let (verdict, _, evidence) = stream(&[
            json!({"type": "response.output_text.delta", "delta": "Slack "}),
            json!({"type": "response.output_text.delta", "delta": "tide."}),
            json!({"type": "response.output_text.done", "text": "Slack tide."}),
            json!({"type": "response.output_item.done", "item": message(&["Slack tide."])}),
            json!({"type": "response.output_item.done", "item": message(&[" Weigh anchor."])}),
            completed(&json!([message(&["Slack tide."]), message(&[" Weigh anchor."])])),
        ]);
        assert_eq!((verdict, text(&evidence)), (Verdict::Ok, "Slack tide. Weigh anchor."));
    }

    /// Two messages under one index, told apart by their ids.
    #[test]
    fn where_every_item_has_the_same_index() {
        let done = |id: &str, text: &str| {
            let mut item = message(&[text]);
            item["id"] = id.into();
            json!({"type": "response.output_item.done", "output_index": 0, "item": item})
        };
        let events = [done("a", "one "), done("b", "two")];
        let output: Vec<_> = events.iter().map(|event| event["item"].clone()).collect();
        let [first, second] = events;
        let (_, _, evidence) = stream(&[first, second, completed(&output.into())]);
        assert_eq!(text(&evidence), "one two");
    }

    /// A reader of the stream was shown it.
    #[test]
    fn and_what_came_first_stands() {
        let delta = json!({"type": "response.output_text.delta", "output_index": 0,
                           "content_index": 0, "delta": "Hold"});
        let done = json!({"type": "response.output_text.done", "output_index": 0,
                          "content_index": 0, "text": "Hold fast"});
        let last = completed(&json!([message(&["Let go"])]));
        assert_eq!(text(&stream(&[delta.clone(), last.clone()]).2), "Hold");
        assert_eq!(text(&stream(&[done.clone(), delta, last.clone()]).2), "Hold fast");
        assert_eq!(text(&stream(&[done, last]).2), "Hold fast");
    }

    #[test]
    fn also_where_the_event_is_the_response_itself() {
        let whole = json!({"id": "r", "object": "response", "status": "completed",
                           "output": [message(&["Slack tide."])]});
        let (verdict, _, evidence) = stream(std::slice::from_ref(&whole));
        assert_eq!((verdict, text(&evidence)), (Verdict::Ok, "Slack tide."));
        let mut flat = whole;
        flat["type"] = "response.completed".into();
        assert_eq!(text(&stream(&[flat.clone()]).2), "Slack tide.");
        let wrapped = json!({"type": "response.completed", "response": flat});
        assert_eq!(text(&document(&wrapped).2), "Slack tide.");
    }
}

/// Several messages are one answer; there is no choice among them.
#[test]
fn every_message_is_of_the_one_answer() {
    let output = json!([message(&["one ", "two "]), message(&["three"])]);
    let (verdict, facts, evidence) = document(&json!({"status": "completed", "output": output}));
    assert_eq!((verdict, text(&evidence), facts.choices), (Verdict::Ok, "one two three", 0));
}

#[test]
fn a_call_has_a_name_and_arguments_in_whichever_event_they_come() {
    let added = json!({"type": "response.output_item.added", "output_index": 0,
        "item": {"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": ""}});
    let bare = json!({"type": "response.function_call_arguments.done", "output_index": 0,
        "item_id": "fc", "name": "f", "arguments": "{}"});
    let item = json!({"type": "response.output_item.done", "output_index": 0,
        "item": {"type": "function_call", "call_id": "c", "name": "f", "arguments": {}}});
    let end = completed(&json!([]));
    for events in [
        vec![bare.clone(), end.clone()],
        vec![item.clone(), end.clone()],
        vec![added.clone(), bare.clone(), end.clone()],
        vec![bare, added, item, end],
    ] {
        let (verdict, _, evidence) = stream(&events);
        assert_eq!((verdict, calls(&evidence)), (Verdict::Ok, vec![("f", "{}")]), "{events:?}");
    }
    let searched = |execution: &str| {
        let call = json!({"type": "tool_search_call", "execution": execution, "arguments": {}});
        document(&json!({"status": "completed", "output": [call]})).1.tool_calls
    };
    assert_eq!((searched("client"), searched("server")), (1, 0));
}

#[test]
fn reasoning_is_counted_once_and_is_no_answer() {
    let at = |kind: &str, field: &str, text: &str| {
        json!({"type": format!("response.{kind}"), "output_index": 0, "content_index": 0,
               "summary_index": 0, field: text})
    };
    let item = json!({"type": "reasoning", "id": "rs",
        "summary": [{"type": "summary_text", "text": "why"}],
        "content": [{"type": "reasoning_text", "text": "at length"}]});
    let (verdict, facts, evidence) = stream(&[
        at("reasoning_text.delta", "delta", "at "),
        at("reasoning_text.delta", "delta", "length"),
        at("reasoning_text.done", "text", "at length"),
        at("reasoning_summary_text.delta", "delta", "why"),
        json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
        completed(&json!([item])),
    ]);
    assert_eq!(verdict, Verdict::Empty);
    assert_eq!((facts.text_chars, evidence.reasoning_chars), (0, 3 + 9));
}

#[test]
fn an_answer_names_its_response() {
    let id = |evidence: &Evidence| evidence.response_id.as_ref().map(|id| id.as_str().to_owned());
    for status in ["queued", "in_progress", "completed", "failed"] {
        let (.., evidence) = document(&json!({"id": "resp_1", "status": status}));
        assert_eq!(id(&evidence).as_deref(), Some("resp_1"), "{status}");
    }
    let created = json!({"type": "response.created", "response": {"id": "resp_1"}});
    assert_eq!(id(&stream(&[created]).2).as_deref(), Some("resp_1"));
    let deleted = json!({"id": "resp_1", "object": "response.deleted", "deleted": true});
    assert_eq!(id(&document(&deleted).2).as_deref(), Some("resp_1"));
    assert_eq!(id(&document(&json!({"id": 7})).2), None);
}

#[test]
fn a_run_that_is_not_finished_is_pending_and_a_fault_in_it_is_told() {
    for status in ["queued", "in_progress"] {
        let (verdict, facts, evidence) =
            document(&json!({"status": status, "output": [message(&["half"])]}));
        assert_eq!((verdict, finish(&evidence)), (Verdict::Pending, Some(status)));
        assert!(!facts.unknown_stop && !facts.stop_seen(), "it is no stop word");
    }
    let failed = json!({"status": "in_progress", "error": {"code": "server_error"}});
    assert_eq!(document(&failed).0, Verdict::ProviderError);
    // Resumed and read to its end, it is an answer like any other.
    let going = json!({"type": "response.queued", "response": {"background": true}});
    let (verdict, ..) = stream(&[going.clone(), completed(&json!([message(&["whole"])]))]);
    assert_eq!(verdict, Verdict::Ok);
    let delta = json!({"type": "response.output_text.delta", "delta": "half"});
    assert_eq!(stream(&[going, delta]).0, Verdict::Pending);
}

#[test]
fn a_final_state_is_said_by_status_reason_or_the_events_name() {
    let ends = |kind: &str, response: Value| {
        let (verdict, _, evidence) = stream(&[
            json!({"type": "response.output_text.delta", "delta": "x"}),
            json!({"type": format!("response.{kind}"), "response": response}),
        ]);
        (verdict, finish(&evidence).map(str::to_owned))
    };
    let said = |verdict, word: &str| (verdict, Some(word.to_owned()));
    assert_eq!(ends("completed", json!({})), said(Verdict::Ok, "completed"));
    assert_eq!(ends("completed", json!({"status": "in_progress"})), said(Verdict::Ok, "completed"));
    assert_eq!(ends("failed", json!({"error": null})), said(Verdict::ProviderError, "failed"));
    assert_eq!(ends("cancelled", json!({})), said(Verdict::ProviderError, "cancelled"));
    assert_eq!(ends("done", json!({})), (Verdict::Ok, None));
    assert_eq!(ends("done", json!({"status": "failed"})), said(Verdict::ProviderError, "failed"));
    let capped = json!({"incomplete_details": {"reason": "max_output_tokens"}});
    assert_eq!(ends("incomplete", capped), said(Verdict::Truncated, "max_output_tokens"));
    // Not every reason is a known one.
    let odd = json!({"status": "incomplete", "incomplete_details": null});
    assert_eq!(ends("incomplete", odd), said(Verdict::Ok, "incomplete"));
}

#[test]
fn an_error_is_read_field_by_field_wherever_it_lies() {
    for (event, want) in [
        (json!({"type": "error", "code": "rate_limit_exceeded"}), Some(ErrorCause::Throttled)),
        (
            json!({"type": "error", "code": null, "error": {"code": "insufficient_quota"}}),
            Some(ErrorCause::Billing),
        ),
        (
            json!({"type": "error", "code": "rate_limit_exceeded", "error": {"code": null}}),
            Some(ErrorCause::Throttled),
        ),
        (
            json!({"type": "error", "error": {"type": "error", "error": {"type": "api_error"}}}),
            Some(ErrorCause::Server),
        ),
        (json!({"type": "error", "status": 429, "error": "boom"}), Some(ErrorCause::Throttled)),
        (json!({"error": {"code": 503}}), Some(ErrorCause::Overloaded)),
        (
            json!({"type": "invalid_request_error", "code": "x", "message": "m"}),
            Some(ErrorCause::Request),
        ),
        (
            json!({"type": "response.failed", "response": {"error": {"code": "server_error"}}}),
            Some(ErrorCause::Server),
        ),
        (
            json!({"type": "response.failed", "error": {"code": "server_error"}, "response": {}}),
            Some(ErrorCause::Server),
        ),
        (json!({"type": "error"}), None),
        (json!({"type": "response.completed", "response": {"error": {"x": 1}}}), None),
    ] {
        let (verdict, facts, evidence) = stream(std::slice::from_ref(&event));
        assert_eq!((verdict, cause(&facts)), (Verdict::ProviderError, want), "{event}");
        assert_eq!(evidence.events, Some(0), "{event}");
    }
    let named = "event: error\ndata: {\"message\":\"m\",\"code\":\"rate_limit_exceeded\"}\n\n";
    assert_eq!(cause(&on("text/event-stream", named).1), Some(ErrorCause::Throttled));
    let (verdict, ..) = on("text/event-stream", "event: error\ndata: boom\n\n");
    assert_eq!(verdict, Verdict::ProviderError);
    let odd = on("text/event-stream", "event: error\ndata: {\"type\":\"response.created\"}\n\n");
    assert_eq!((odd.0, odd.2.events), (Verdict::Unterminated, Some(1)));
    let policy = json!({"status": "failed", "error": {"code": "misalignment_policy_violation"}});
    assert_eq!(document(&policy).0, Verdict::Refused);
    let flat = json!({"object": "error", "message": "m", "type": "BadRequestError", "code": 400});
    assert_eq!(cause(&document(&flat).1), Some(ErrorCause::Request));
}

#[test]
fn a_wait_within_an_error_is_one_and_a_reset_is_none() {
    let wait = |headers: Value| {
        let error = json!({"type": "error", "error": {"code": "x", "headers": headers}});
        stream(&[error]).1.retry_after_ms
    };
    assert_eq!(wait(json!({"Retry-After": "3"})), Some(3000));
    assert_eq!(wait(json!({"retry-after-ms": 250, "retry-after": 3})), Some(250));
    assert_eq!(wait(json!({"x-ratelimit-reset-tokens": "5s", "retry-after": null})), None);
}

#[test]
fn odd_values_where_nobody_looks_break_nothing() {
    let (verdict, _, evidence) = document(&json!({
        "id": 4, "status": "completed", "incomplete_details": "none", "error": null,
        "usage": {"input_tokens": "9", "output_tokens": 4.0},
        "output": [7, null, {"type": 3}, {"type": "message", "content": null},
            {"type": "message", "content": [null, 5, "bare ", {"type": "output_text"},
             {"type": "output_text", "text": {}}, {"text": "untyped"}, {"type": "output_audio"}]}],
    }));
    assert_eq!((verdict, text(&evidence)), (Verdict::Ok, "bare untyped"));
    assert_eq!((evidence.usage.input, evidence.usage.output), (None, Some(4)));
    let (verdict, ..) = stream(&[
        json!({"type": "response.reasoning.delta", "delta": {"text": "x"}, "output_index": -1}),
        json!({"type": "response.output_text.delta", "delta": null, "item_id": 5}),
        json!({"type": "response.output_item.added", "item": "?"}),
        json!({"type": "response.new_thing", "item": [1]}),
        completed(&json!("all of it")),
    ]);
    assert_eq!(verdict, Verdict::Ok);
    // Half a surrogate pair, however deep.
    let half = r#"{"status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"\ud83d"}]}]}"#;
    assert_eq!(text(&on("application/json", half).2), "\u{fffd}");
    for broken in ["[]", "7", "", "{\"status\":", "<html>"] {
        assert_eq!(on("application/json", broken).0, Verdict::Malformed, "{broken}");
    }
    assert_eq!(on("text/event-stream", "data: 5\n\n").0, Verdict::Malformed);
}

/// What a server sends without end is not remembered without end.
#[test]
fn what_is_remembered_is_bounded() {
    let mut tap = Tap::new(WIRE, 200, &headers("text/event-stream"), &TapOptions::default());
    for n in 0..20_000 {
        let event = json!({"type": "response.output_text.delta", "item_id": n, "output_index": n,
                           "content_index": n, "delta": "x"});
        tap.feed(format!("data: {event}\n\n").as_bytes());
    }
    assert!(tap.held() < 512 * 1024, "{} held", tap.held());
    assert_eq!(tap.facts().uninspected, Some(Uninspected::Size));
}

mod requests {
    use super::*;

    fn asked(body: &Value) -> RequestFacts {
        raw(&body.to_string())
    }

    fn raw(body: &str) -> RequestFacts {
        read_request(WIRE, &Method::POST, "/v1/responses", Some(body.as_bytes()))
    }

    #[test]
    fn a_request_is_read() {
        let facts = asked(&json!({
            "model": "m", "stream": true, "max_output_tokens": 9, "instructions": "h\u{e9}y",
            "store": true, "previous_response_id": "resp_0", "background": false,
            "tools": [{"type": "function", "name": "f"}, {"type": "custom", "name": "c"}],
            "input": [{"role": "user", "content": "ab"},
                {"role": "assistant", "content": [{"type": "output_text", "text": "cd"}]},
                {"role": "user", "content": [{"type": "input_text", "text": "ef"},
                 {"type": "input_image", "image_url": "data:"}]},
                {"type": "function_call_output", "call_id": "c", "output": "no prompt"}],
        }));
        let want = RequestFacts {
            model: Some("m".into()),
            stream: Some(true),
            tools: 2,
            cap: Some(9),
            prompt_chars: 9,
            understood: true,
            effect: Effect::ReadOnly,
        };
        assert_eq!(facts, want);
        assert_eq!(asked(&json!({"input": "four"})).prompt_chars, 4);
        assert_eq!(asked(&json!({"input": "x"})).stream, Some(false));
    }

    #[test]
    fn all_that_acts_or_is_kept_writes() {
        for body in [
            json!({"background": true}),
            json!({"conversation": "conv_1"}),
            json!({"conversation": {"id": "conv_1"}}),
            json!({"prompt": {"id": "pmpt_1"}}),
            json!({"tools": [{"type": "function"}, {"type": "mcp"}]}),
            json!({"tools": [{"type": "web_search"}]}),
            json!({"tools": [{"name": "f"}]}),
        ] {
            let facts = asked(&body);
            assert_eq!((facts.understood, facts.effect), (true, Effect::Writes), "{body}");
        }
        let absent = json!({"background": null, "conversation": null, "prompt": null, "tools": []});
        assert_eq!(asked(&absent).effect, Effect::ReadOnly);
    }

    #[test]
    fn what_is_not_understood_writes() {
        for body in [
            r#"{"model":"m","model":"n"}"#,
            r#"{"background":false,"background":true}"#,
            r#"{"tools":[],"tools":[{"type":"mcp"}]}"#,
            r#"{"input":[{"content":"a","content":"b"}]}"#,
            r#"{"tools":[["function"]]}"#,
            r#"{"stream":"yes"}"#,
            r#"{"model":"m""#,
            r#"["m"]"#,
            "",
        ] {
            assert_eq!(raw(body), RequestFacts::default(), "{body}");
            assert_eq!(raw(body).effect, Effect::Writes, "{body}");
        }
        let delete = read_request(WIRE, &Method::DELETE, "/v1/responses/r", Some(b"{}"));
        assert_eq!((delete.understood, delete.effect), (false, Effect::Writes));
        let poll = read_request(WIRE, &Method::GET, "/v1/responses/r", None);
        assert_eq!(poll.effect, Effect::ReadOnly);
    }
}
