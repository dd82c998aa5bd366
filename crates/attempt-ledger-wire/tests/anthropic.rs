//! Anthropic's Messages beyond the recorded responses: what relays and compatible servers send,
//! what the model's newer blocks look like, and what its requests ask for.

#![allow(clippy::expect_used, clippy::panic, reason = "a test may panic, its helpers too")]

mod support;

use attempt_ledger_core::{
    BodyEnd, ErrorCause, Facts, Fault, InBandError, Label, TransportKind, Verdict, decide,
};
use attempt_ledger_wire::{Evidence, Tap, TapOptions, Wire};
use support::{Random, Response, headers, read, response, seed};

const SSE: &str = "text/event-stream";
const JSON: &str = "application/json";

fn options() -> TapOptions {
    TapOptions { keep_content: true, ..TapOptions::default() }
}

/// What came of a response; the same in any chunking.
struct Got {
    verdict: Verdict,
    facts: Facts,
    evidence: Evidence,
}

impl Got {
    fn of(response: &Response, options: &TapOptions) -> Got {
        let wire = Wire::AnthropicMessages;
        let whole = read(wire, response, options, &[]);
        let bytewise: Vec<_> = (0..response.body.len()).collect();
        assert_eq!(read(wire, response, options, &bytewise), whole, "byte by byte");
        let mut random = Random(seed());
        for _ in 0..20 {
            let cuts: Vec<_> = (0..6).map(|_| random.below(response.body.len() + 1)).collect();
            assert_eq!(read(wire, response, options, &cuts), whole, "cut at {cuts:?}");
        }
        let verdict = decide(response.status, &whole.0, &response.end).verdict;
        Got { verdict, facts: whole.0, evidence: whole.1 }
    }

    fn text(&self) -> &str {
        &self.evidence.content.as_ref().expect("kept").text
    }

    fn finish(&self) -> Option<&str> {
        self.evidence.finish_reason.as_ref().map(Label::as_str)
    }

    fn usage(&self) -> (Option<u64>, Option<u64>) {
        (self.evidence.usage.input, self.evidence.usage.output)
    }

    fn events(&self) -> u64 {
        self.evidence.events.expect("a stream")
    }

    /// Names and arguments.
    fn calls(&self) -> Vec<(&str, &str)> {
        let calls = &self.evidence.content.as_ref().expect("kept").tool_calls;
        assert_eq!(calls.len(), self.evidence.tool_calls as usize);
        calls.iter().map(|call| (&*call.name, &*call.arguments)).collect()
    }

    fn error(&self) -> (Option<&str>, Option<ErrorCause>) {
        match &self.facts.fault {
            Some(Fault::Error(InBandError { code, cause })) => {
                (code.as_ref().map(Label::as_str), *cause)
            }
            other => panic!("{other:?} is no error"),
        }
    }
}

fn raw(body: impl Into<Vec<u8>>) -> Got {
    Got::of(&response(SSE, body), &options())
}

/// A stream of events that have no names.
fn stream(events: &[&str]) -> Got {
    raw(events.iter().map(|event| format!("data: {event}\n\n")).collect::<String>())
}

fn document(body: &str) -> Got {
    Got::of(&response(JSON, body), &options())
}

const START: &str = r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","content":[],"stop_reason":null,"usage":{"input_tokens":9,"output_tokens":1}}}"#;
const TEXT: &str =
    r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Fog"}}"#;
const END: &str = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":7}}"#;
const STOP: &str = r#"{"type":"message_stop"}"#;
const OVERLOADED: &str =
    r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;

mod events {
    use super::*;

    /// By type, by name, by neither.
    #[test]
    fn an_event_is_known_however_it_is_called() {
        let typed = stream(&[START, TEXT, END, STOP]);
        let named: String = [
            ("message_start", r#"{"message":{"usage":{"input_tokens":9,"output_tokens":1}}}"#),
            ("ping", "{}"),
            ("ping", "alive"),
            ("content_block_delta", r#"{"delta":{"text":"Fog"}}"#),
            (
                "message_delta",
                r#"{"delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":7}}"#,
            ),
            ("message_stop", "{}"),
        ]
        .iter()
        .map(|(name, data)| format!("event: {name}\ndata: {data}\n\n"))
        .collect();
        let named = raw(named);
        let bare = stream(&[
            r#"{"message":{"usage":{"input_tokens":9,"output_tokens":1}}}"#,
            r#"{"type":"","delta":{"text":"Fog"}}"#,
            r#"{"delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":7}}"#,
            STOP,
        ]);
        for got in [&typed, &named, &bare] {
            assert_eq!((got.verdict, got.text()), (Verdict::Ok, "Fog"));
            assert_eq!((got.finish(), got.usage()), (Some("end_turn"), (Some(9), Some(7))));
            assert_eq!(got.events(), 4);
            assert!(got.facts.done);
        }
    }

    #[test]
    fn only_pings_and_errors_are_no_progress() {
        let got = stream(&[
            START,
            r#"{"type":"ping"}"#,
            r#"{"type":"ping","elapsed":3}"#,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"citations_delta","citation":{"type":"char_location","cited_text":"unread"}}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"compaction_delta","content":"unread"}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":null}}"#,
            r#"{"type":"content_block_stop","index":0}"#,
            r#"{"type":"vendor_event","delta":"unread","message":"unread","index":"x"}"#,
            "[DONE]",
        ]);
        assert_eq!((got.events(), got.text()), (7, ""));
        assert_eq!(got.verdict, Verdict::Unterminated);
    }

    #[test]
    fn what_does_not_parse_is_malformed_unless_it_is_cut_off() {
        for bad in [r#"{"type":"content_block_delta""#, "<html>", "[]", "7", "null"] {
            assert_eq!(stream(&[START, bad, END, STOP]).verdict, Verdict::Malformed, "{bad}");
        }
        let cut = raw(format!("data: {START}\n\ndata: {END}\n\ndata: {{\"type\":\"mess"));
        assert_eq!((cut.verdict, cut.events()), (Verdict::Empty, 2));
        let flushed = raw(format!("data: {START}\n\ndata: {TEXT}\n\ndata: {END}"));
        assert_eq!((flushed.verdict, flushed.events()), (Verdict::Ok, 3));
    }

    /// A relay that stands between two protocols puts OpenAI's end behind this one's.
    #[test]
    fn the_end_is_the_end() {
        let after = stream(&[START, TEXT, END, STOP, "[DONE]", OVERLOADED, TEXT]);
        assert_eq!((after.verdict, after.text(), after.events()), (Verdict::Ok, "Fog", 4));
        assert_eq!(after.facts.late_error, None);

        let metrics = r#"{"type":"message_stop","amazon-bedrock-invocationMetrics":{"inputTokenCount":90,"outputTokenCount":70}}"#;
        let bedrock = stream(&[START, TEXT, END, metrics]);
        assert_eq!((bedrock.verdict, bedrock.usage()), (Verdict::Ok, (Some(9), Some(7))));
        assert!(bedrock.facts.done);

        let broken = stream(&["{", STOP, TEXT]);
        assert!(broken.facts.done, "also where nothing counts any more");
        assert_eq!((broken.verdict, broken.text()), (Verdict::Malformed, ""));
    }

    /// The end of a stream is no stop reason, unless someone says it is.
    #[test]
    fn the_end_alone_is_a_stop_reason_by_choice() {
        for end in [STOP, "[DONE]"] {
            let body = format!("data: {START}\n\ndata: {TEXT}\n\ndata: {end}\n\n");
            assert_eq!(raw(body.as_str()).verdict, Verdict::Unterminated, "{end}");
            let accept = TapOptions { accept_done: true, ..options() };
            let got = Got::of(&response(SSE, body.as_str()), &accept);
            assert_eq!((got.verdict, got.finish()), (Verdict::Ok, None), "{end}");
        }
    }

    #[test]
    fn a_cut_behind_the_stop_reason_takes_nothing_away() {
        for (events, verdict) in [
            (&[START, TEXT, END][..], Verdict::Ok),
            (&[START, TEXT, STOP], Verdict::Unterminated),
            (&[START, TEXT], Verdict::Transport),
        ] {
            let body: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
            let mut response = response(SSE, body);
            response.end = BodyEnd::Broken(TransportKind::Cut);
            assert_eq!(Got::of(&response, &options()).verdict, verdict);
        }
    }

    #[test]
    fn first_content_is_text_or_a_call_but_not_thinking() {
        let mut tap = Tap::new(Wire::AnthropicMessages, 200, &headers(SSE), &options());
        let mut feed = |event: &str| {
            tap.feed(format!("data: {event}\n\n").as_bytes());
            tap.has_first_content()
        };
        assert!(!feed(START));
        assert!(!feed(
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}"#
        ));
        assert!(feed(
            r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","name":"f"}}"#
        ));
    }

    /// Some say the whole message in one event.
    #[test]
    fn a_message_in_one_event_is_a_message() {
        let message = r#"{"type":"message","content":[{"type":"text","text":"Fog"}],"stop_reason":"end_turn","usage":{"input_tokens":9,"output_tokens":7}}"#;
        let got = stream(&[message]);
        assert_eq!((got.verdict, got.text(), got.events()), (Verdict::Ok, "Fog", 1));
        assert_eq!(got.usage(), (Some(9), Some(7)));
        let again = stream(&[START, TEXT, message]);
        assert_eq!((again.verdict, again.text()), (Verdict::Ok, "Fog"), "not twice");
    }

    #[test]
    fn a_message_that_begins_twice_is_one() {
        let full = r#"{"type":"message_start","message":{"content":[{"type":"text","text":"Fog"}],"stop_reason":"max_tokens"}}"#;
        let got = stream(&[full, full]);
        assert_eq!((got.verdict, got.text()), (Verdict::Truncated, "Fog"));
    }
}

mod content {
    use super::*;

    #[test]
    fn a_block_may_begin_with_its_text() {
        let got = stream(&[
            START,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"Thick "}}"#,
            TEXT,
            r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":" \ud83d"}}"#,
            END,
        ]);
        assert_eq!((got.verdict, got.text()), (Verdict::Ok, "Thick Fog \u{fffd}"));
    }

    #[test]
    fn thinking_is_counted_and_is_no_answer() {
        let got = stream(&[
            START,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"a","signature":""}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"b\u00e9"}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"c2ln"}}"#,
            r#"{"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"c2ln"}}"#,
            END,
        ]);
        assert_eq!((got.verdict, got.evidence.reasoning_chars), (Verdict::Empty, 3));
        let whole = document(
            r#"{"type":"message","content":[{"type":"thinking","thinking":"ab\u00e9","signature":"s"},
               {"type":"redacted_thinking","data":"x"}],"stop_reason":"end_turn"}"#,
        );
        assert_eq!((whole.verdict, whole.evidence.reasoning_chars), (Verdict::Empty, 3));
    }

    fn start(index: &str, kind: &str, name: &str, input: &str) -> String {
        format!(
            r#"{{"type":"content_block_start",{index}"content_block":{{"type":"{kind}","id":"{name}_1","name":"{name}","input":{input}}}}}"#
        )
    }

    fn piece(index: &str, json: &str) -> String {
        format!(
            r#"{{"type":"content_block_delta",{index}"delta":{{"type":"input_json_delta","partial_json":"{json}"}}}}"#
        )
    }

    fn calls(events: &[String]) -> Vec<(String, String)> {
        let mut all = vec![START];
        all.extend(events.iter().map(String::as_str));
        all.push(r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"}}"#);
        let got = stream(&all);
        let owned = |(name, arguments): (&str, &str)| (name.to_owned(), arguments.to_owned());
        got.calls().into_iter().map(owned).collect()
    }

    fn want(calls: &[(&str, &str)]) -> Vec<(String, String)> {
        calls.iter().map(|(name, arguments)| ((*name).into(), (*arguments).into())).collect()
    }

    /// What a server runs itself is no call, and none of its input becomes that of another.
    #[test]
    fn only_the_callers_tools_are_called() {
        let got = calls(&[
            start(r#""index":0,"#, "tool_use", "f", "{}"),
            piece(r#""index":0,"#, r#"{\"a\":"#),
            piece(r#""index":0,"#, "1}"),
            r#"{"type":"content_block_stop","index":0}"#.to_owned(),
            start(r#""index":1,"#, "server_tool_use", "web_search", "{}"),
            piece(r#""index":1,"#, r#"{\"query\":1}"#),
            start(r#""index":2,"#, "web_search_tool_result", "r", "null"),
            start(r#""index":3,"#, "mcp_tool_use", "m", "{}"),
            piece("", r#"{\"m\":1}"#),
            piece(r#""index":3,"#, r#"{\"m\":1}"#),
            start(r#""index":4,"#, "tool_use", "g", "{}"),
            piece(r#""index":4,"#, ""),
        ]);
        assert_eq!(got, want(&[("f", r#"{"a":1}"#), ("g", "{}")]));
    }

    #[test]
    fn input_comes_with_the_block_or_behind_it_but_counts_once() {
        for (events, arguments) in [
            (vec![start(r#""index":0,"#, "tool_use", "f", r#"{"a":1}"#)], r#"{"a":1}"#),
            (vec![start(r#""index":0,"#, "tool_use", "f", r#""{\"a\":1}""#)], r#"{"a":1}"#),
            (vec![start("", "tool_use", "f", "null"), piece("", "{}")], "{}"),
            (vec![start("", "tool_use", "f", "{}"), piece(r#""index":5,"#, "[1]")], "[1]"),
            (
                vec![
                    start(r#""index":0,"#, "tool_use", "f", r#"{"a":1}"#),
                    piece(r#""index":0,"#, r#"{\"a\":"#),
                    piece("", "1}"),
                ],
                r#"{"a":1}"#,
            ),
        ] {
            assert_eq!(calls(&events), want(&[("f", arguments)]), "{events:?}");
        }
    }

    /// A block of another id under the same number is another call; the same id is the same.
    #[test]
    fn calls_are_told_apart_where_the_numbers_are_not() {
        let got = calls(&[
            start(r#""index":0,"#, "tool_use", "f", "{}"),
            piece(r#""index":0,"#, "1"),
            start(r#""index":0,"#, "tool_use", "g", "{}"),
            piece(r#""index":0,"#, "2"),
            start(r#""index":0,"#, "tool_use", "g", "{}"),
            piece(r#""index":0,"#, "3"),
            start(r#""index":0,"#, "server_tool_use", "s", "{}"),
            piece(r#""index":0,"#, "4"),
        ]);
        assert_eq!(got, want(&[("f", "1"), ("g", "23")]));
    }

    #[test]
    fn a_document_and_a_stream_of_the_same_are_one_answer() {
        let whole = document(
            r#"{"type":"message","content":[{"type":"text","text":"Fog"},
               {"type":"tool_use","id":"t","name":"f","input":{"a": [1, 2]}},
               {"type":"server_tool_use","id":"s","name":"web_search","input":{"q":1}},
               {"type":"tool_use","id":"u","name":"g","input":{}}],
               "stop_reason":"tool_use","usage":{"input_tokens":1,"output_tokens":2}}"#,
        );
        assert_eq!(whole.calls(), [("f", r#"{"a": [1, 2]}"#), ("g", "{}")]);
        let streamed = stream(&[
            START,
            TEXT,
            &start(r#""index":1,"#, "tool_use", "f", "{}"),
            &piece(r#""index":1,"#, r#"{\"a\": [1"#),
            &piece(r#""index":1,"#, ", 2]}"),
            &start(r#""index":3,"#, "tool_use", "g", "{}"),
            r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"}}"#,
            STOP,
        ]);
        assert_eq!(whole.evidence.answer_sha256, streamed.evidence.answer_sha256);
        assert_eq!((whole.verdict, streamed.verdict), (Verdict::Ok, Verdict::Ok));
    }

    #[test]
    fn blocks_that_are_no_answer_are_passed_over() {
        let got = document(
            r#"{"type":"message","content":[
               {"type":"fallback","from":{"model":"a"},"to":{"model":"b"},"text":"unread"},
               {"type":"compaction","content":"unread"},
               {"type":"web_search_tool_result","content":[{"type":"text","text":"unread"}]},
               {"type":"web_search_tool_result","content":{"error_code":"unavailable"}},
               7, null, "unread",
               {"type":"text","text":"Fog","citations":null},{"type":"text"},
               {"type":"text","text":[1]},{"text":"."}],
               "stop_reason":"end_turn"}"#,
        );
        assert_eq!((got.verdict, got.text()), (Verdict::Ok, "Fog."));
    }

    #[test]
    fn a_message_without_blocks_is_read_as_it_is() {
        for (content, verdict, text) in [
            (r#""Fog""#, Verdict::Ok, "Fog"),
            ("null", Verdict::Empty, ""),
            ("[]", Verdict::Empty, ""),
            ("{}", Verdict::Empty, ""),
            (r#"[{"type":"text","text":" \n"}]"#, Verdict::Empty, " \n"),
            (r#"[{"type":"text","text":"\ud83dFog"}]"#, Verdict::Ok, "\u{fffd}Fog"),
        ] {
            let body = format!(r#"{{"type":"message","content":{content},"stop_reason":null}}"#);
            let got = document(&body);
            assert_eq!((got.verdict, got.text()), (verdict, text), "{content}");
        }
        for body in ["", "<html>", "[]", r#"{"content":[{"type":"text"#] {
            assert_eq!(document(body).verdict, Verdict::Malformed, "{body}");
        }
        let mut cut = response(JSON, r#"{"content":[{"type":"text"#);
        cut.end = BodyEnd::Broken(TransportKind::Cut);
        assert_eq!(Got::of(&cut, &options()).verdict, Verdict::Transport);
    }
}

mod ends {
    use super::*;

    fn ended(word: &str) -> Got {
        let end = format!(r#"{{"type":"message_delta","delta":{{"stop_reason":{word}}}}}"#);
        stream(&[START, TEXT, &end, STOP])
    }

    #[test]
    fn each_stop_reason_means_what_it_says() {
        for (word, verdict) in [
            ("end_turn", Verdict::Ok),
            ("stop_sequence", Verdict::Ok),
            ("tool_use", Verdict::Ok),
            ("max_tokens", Verdict::Truncated),
            ("model_context_window_exceeded", Verdict::Truncated),
            ("refusal", Verdict::Refused),
        ] {
            let got = ended(&format!("\"{word}\""));
            assert_eq!((got.verdict, got.finish()), (verdict, Some(word)));
            assert!(!got.facts.continues && !got.facts.unknown_stop);
        }
        for word in ["pause_turn", "compaction"] {
            let got = ended(&format!("\"{word}\""));
            assert!(got.facts.continues, "{word}: the turn goes on in another call");
            assert_eq!((got.verdict, got.finish()), (Verdict::Ok, Some(word)));
        }
        let unknown = ended("\"new_word\"");
        assert_eq!((unknown.verdict, unknown.facts.unknown_stop), (Verdict::Ok, true));
        for word in ["null", "\"\"", "7", "{}"] {
            let got = ended(word);
            assert_eq!((got.verdict, got.finish()), (Verdict::Unterminated, None), "{word}");
        }
    }

    /// Where a message goes on behind a pause, it does not go on in another call.
    #[test]
    fn the_last_stop_reason_counts() {
        let word = |word| format!(r#"{{"type":"message_delta","delta":{{"stop_reason":{word}}}}}"#);
        let (pause, end, none) = (word("\"pause_turn\""), word("\"max_tokens\""), word("null"));
        let got = stream(&[START, TEXT, &pause, &end, &none, STOP]);
        assert_eq!((got.verdict, got.finish()), (Verdict::Truncated, Some("max_tokens")));
        assert!(!got.facts.continues);
    }

    #[test]
    fn a_refusal_keeps_its_explanation_apart_from_the_answer() {
        let details = r#""stop_reason":"refusal","stop_details":{"type":"refusal","category":"cyber","explanation":"Declined."}"#;
        let streamed = stream(&[
            START,
            TEXT,
            &format!(r#"{{"type":"message_delta","delta":{{{details}}}}}"#),
            STOP,
        ]);
        let whole = document(&format!(
            r#"{{"type":"message","content":[{{"type":"text","text":"Fog"}}],{details}}}"#
        ));
        for got in [streamed, whole] {
            assert_eq!((got.verdict, got.text()), (Verdict::Refused, "Fog"));
            let refusal = got.evidence.content.expect("kept").refusal;
            assert_eq!(refusal.as_deref(), Some("Declined."));
        }
        for details in ["null", r#""cyber""#, r#"{"explanation":null}"#, r#"{"explanation":[]}"#] {
            let got = document(&format!(
                r#"{{"content":[],"stop_reason":"refusal","stop_details":{details}}}"#
            ));
            assert_eq!((got.verdict, got.facts.refusal), (Verdict::Refused, false), "{details}");
        }
        let block = document(
            r#"{"content":[{"type":"refusal","refusal":"No."}],"stop_reason":"end_turn"}"#,
        );
        assert_eq!((block.verdict, block.text()), (Verdict::Refused, ""));
    }

    #[test]
    fn the_last_count_of_tokens_counts_and_none_erases_it() {
        let usage = |usage: &str| {
            let end = format!(
                r#"{{"type":"message_delta","delta":{{"stop_reason":"end_turn"}},"usage":{usage}}}"#
            );
            stream(&[START, TEXT, &end, STOP]).usage()
        };
        for (json, want) in [
            ("null", (9, 1)),
            ("{}", (9, 1)),
            ("[]", (9, 1)),
            (r#"{"input_tokens":null,"output_tokens":5}"#, (9, 5)),
            (r#"{"input_tokens":12,"output_tokens":5.0,"cache_read_input_tokens":7}"#, (12, 5)),
            (r#"{"input_tokens":0,"output_tokens":5.5}"#, (0, 1)),
            (r#"{"input_tokens":-1,"output_tokens":"5"}"#, (9, 1)),
        ] {
            assert_eq!(usage(json), (Some(want.0), Some(want.1)), "{json}");
        }
        let none = stream(&[r#"{"type":"message_start","message":{"id":"m"}}"#, TEXT, END]);
        assert_eq!(none.usage(), (None, Some(7)));
        let late = r#"{"type":"message_stop","usage":{"input_tokens":10,"output_tokens":8}}"#;
        assert_eq!(stream(&[START, TEXT, END, late]).usage(), (Some(10), Some(8)));
    }
}

mod errors {
    use super::*;

    #[test]
    fn an_error_is_one_in_any_shape() {
        let overloaded = (Some("overloaded_error"), Some(ErrorCause::Overloaded));
        for (event, want) in [
            (OVERLOADED, overloaded),
            (r#"{"error":{"type":"overloaded_error","message":"m"}}"#, overloaded),
            (r#"{"type":"overloaded_error","message":"m"}"#, overloaded),
            (r#"{"type":"error","error":"Overloaded"}"#, (None, None)),
            (r#"{"type":"error","error":null,"message":"m"}"#, (None, None)),
            (r#"{"type":"error","code":529,"message":"m"}"#, (Some("529"), overloaded.1)),
            (r#"{"code":500,"msg":"m","success":false}"#, (Some("500"), Some(ErrorCause::Server))),
            (
                r#"{"object":"error","message":"m","code":400}"#,
                (Some("400"), Some(ErrorCause::Request)),
            ),
            (
                r#"{"base_resp":{"status_code":1039,"status_msg":"m"}}"#,
                (Some("1039"), Some(ErrorCause::Throttled)),
            ),
        ] {
            let unnamed = stream(&[START, TEXT, event]);
            assert_eq!(
                (unnamed.verdict, unnamed.error()),
                (Verdict::ProviderError, want),
                "{event}"
            );
            assert_eq!((unnamed.events(), unnamed.text()), (2, "Fog"));
            let whole = document(event);
            assert_eq!((whole.verdict, whole.error()), (Verdict::ProviderError, want), "{event}");
        }
        for named in [OVERLOADED, r#"{"type":"overloaded_error","message":"m"}"#] {
            let got = raw(format!("data: {START}\n\nevent: error\ndata: {named}\n\n"));
            assert_eq!(
                (got.verdict, got.error(), got.events()),
                (Verdict::ProviderError, overloaded, 1)
            );
        }
        let text = raw("event: error\ndata: upstream closed\n\n");
        assert_eq!((text.verdict, text.error()), (Verdict::ProviderError, (None, None)));
    }

    #[test]
    fn what_looks_like_an_error_is_none() {
        for field in [
            r#""error":null"#,
            r#""base_resp":{"status_code":0}"#,
            r#""code":0,"msg":"ok""#,
            r#""code":1,"message":"m""#,
        ] {
            let got = document(&format!(
                r#"{{"type":"message","content":[{{"type":"text","text":"Fog"}}],"stop_reason":"end_turn",{field}}}"#
            ));
            assert_eq!(got.verdict, Verdict::Ok, "{field}");
        }
    }

    #[test]
    fn a_policy_code_is_a_refusal() {
        let got = stream(&[
            r#"{"type":"error","error":{"code":"content_filter","type":"invalid_request_error"}}"#,
        ]);
        assert_eq!(got.verdict, Verdict::Refused);
    }

    /// An error takes away no answer that stands, and makes none of what is not.
    #[test]
    fn an_error_behind_the_stop_reason_is_only_noted() {
        let late = stream(&[START, TEXT, END, OVERLOADED]);
        assert_eq!((late.verdict, late.events()), (Verdict::Ok, 3));
        let code = late.facts.late_error.and_then(|error| error.code);
        assert_eq!(code.as_ref().map(Label::as_str), Some("overloaded_error"));

        let worded = r#"{"type":"message_delta","delta":{"stop_reason":"max_tokens"},"usage":{"output_tokens":8},"error":{"code":500}}"#;
        let late = stream(&[START, TEXT, END, worded]);
        assert_eq!((late.verdict, late.finish()), (Verdict::Ok, Some("end_turn")));
        assert_eq!(late.usage(), (Some(9), Some(8)));

        assert_eq!(stream(&[START, END, OVERLOADED]).verdict, Verdict::ProviderError, "no content");
        assert_eq!(stream(&[START, TEXT, OVERLOADED, END]).verdict, Verdict::ProviderError);
        let both = r#"{"type":"message","content":[{"type":"text","text":"Fog"}],"stop_reason":"end_turn","error":{"type":"api_error"}}"#;
        assert_eq!(document(both).verdict, Verdict::ProviderError);
    }

    /// A request's id holds any number; it says nothing of the error.
    #[test]
    fn a_status_is_refined_by_its_error_alone() {
        for (status, kind, verdict, cause) in [
            (400, "invalid_request_error", Verdict::Rejected, ErrorCause::Request),
            (429, "rate_limit_error", Verdict::Throttled, ErrorCause::Throttled),
            (402, "billing_error", Verdict::Rejected, ErrorCause::Billing),
            (504, "timeout_error", Verdict::ServerError, ErrorCause::Timeout),
            (529, "overloaded_error", Verdict::Throttled, ErrorCause::Overloaded),
        ] {
            let mut response = response(
                JSON,
                format!(
                    r#"{{"type":"error","error":{{"type":"{kind}","message":"content_filter 503"}},"request_id":"req_529"}}"#
                ),
            );
            response.status = status;
            let got = Got::of(&response, &options());
            assert_eq!((got.verdict, got.error()), (verdict, (Some(kind), Some(cause))));
        }
    }
}

#[test]
fn no_answer_is_held_that_nobody_asked_for() {
    let options = TapOptions::default();
    let mut tap = Tap::new(Wire::AnthropicMessages, 200, &headers(SSE), &options);
    for n in 0..2000 {
        for event in [
            format!(
                r#"{{"type":"content_block_start","index":{n},"content_block":{{"type":"tool_use","name":"f","input":{{}}}}}}"#
            ),
            format!(
                r#"{{"type":"content_block_delta","index":{n},"delta":{{"type":"input_json_delta","partial_json":"{}"}}}}"#,
                "x".repeat(500)
            ),
        ] {
            tap.feed(format!("data: {event}\n\n").as_bytes());
        }
    }
    tap.finish();
    assert!(tap.held() < 128 * 1024, "{} held", tap.held());
    assert_eq!(tap.facts().uninspected, Some(attempt_ledger_core::Uninspected::Size));
}

mod requests {
    use attempt_ledger_core::Effect;
    use attempt_ledger_wire::{RequestFacts, Wire, read_request};
    use http::Method;

    fn read(path: &str, body: &str) -> RequestFacts {
        read_request(Wire::AnthropicMessages, &Method::POST, path, Some(body.as_bytes()))
    }

    fn messages(body: &str) -> RequestFacts {
        read("/v1/messages", body)
    }

    #[test]
    fn a_request_is_read() {
        let facts = messages(
            r#"{"model":"m","stream":true,"max_tokens":5,"temperature":1,"metadata":{"user_id":"u"},
               "system":[{"type":"text","text":"h\u00e9y","cache_control":{"type":"ephemeral"}}],
               "tools":[{"name":"f","input_schema":{}},{"type":"custom","name":"g"},
                        {"type":null,"name":"h"}],
               "thinking":{"type":"enabled","budget_tokens":1024},
               "mcp_servers":[ ],"container":null,
               "messages":[{"role":"user","content":"ab"},
               {"role":"assistant","content":[{"type":"thinking","thinking":"unread","text":"no"},
                 {"type":"tool_use","id":"t","name":"f","input":{"text":"unread"}}]},
               {"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"cd"},
                 {"type":"tool_result","tool_use_id":"t",
                  "content":[{"type":"text","text":"ef"},{"type":"image","source":{}}]},
                 {"type":"text","text":"g"}]}]}"#,
        );
        let want = RequestFacts {
            model: Some("m".into()),
            stream: Some(true),
            tools: 3,
            cap: Some(5),
            prompt_chars: 3 + 2 + 2 + 2 + 1,
            understood: true,
            effect: Effect::ReadOnly,
        };
        assert_eq!(facts, want);
        assert_eq!(messages(r#"{"system":"four"}"#).prompt_chars, 4);
        assert_eq!(messages("{}").stream, Some(false));
    }

    /// What the server runs, or may run, is done twice when it is asked twice.
    #[test]
    fn all_that_may_act_writes() {
        for body in [
            r#"{"tools":[{"type":"web_search_20250305","name":"web_search"}]}"#,
            r#"{"tools":[{"name":"f"},{"type":"mcp_toolset","mcp_server_name":"x"}]}"#,
            r#"{"mcp_servers":[{"type":"url","url":"https://x.test","name":"x"}]}"#,
            r#"{"container":"container_1"}"#,
            r#"{"container":{"skills":[{"type":"anthropic"}]}}"#,
        ] {
            let facts = messages(body);
            assert_eq!((facts.understood, facts.effect), (true, Effect::Writes), "{body}");
        }
        for body in [r#"{"container":""}"#, r#"{"container":{ },"mcp_servers":null,"tools":[]}"#] {
            assert_eq!(messages(body).effect, Effect::ReadOnly, "{body}");
        }
        for body in [
            r#"{"model":"m","model":"n"}"#,
            r#"{"tools":[],"tools":[{"type":"bash_20250124"}]}"#,
            r#"{"tools":[{"type":"custom","type":"web_search_20250305"}]}"#,
            r#"{"mcp_servers":[],"mcp_servers":[{"url":"x"}]}"#,
            r#"{"tools":{"name":"f"}}"#,
            r#"{"stream":"yes"}"#,
            r#"{"model":"m""#,
            "[1]",
            "",
        ] {
            assert_eq!(messages(body), RequestFacts::default(), "{body}");
            assert_eq!(messages(body).effect, Effect::Writes, "{body}");
        }
    }

    #[test]
    fn at_vertex_and_bedrock_the_path_says_model_and_stream() {
        let vertex = "/v1/projects/p/locations/l/publishers/anthropic/models/";
        let body = r#"{"anthropic_version":"vertex-2023-10-16","messages":[]}"#;
        for (path, model, stream) in [
            (format!("{vertex}c-4%40v1:rawPredict"), "c-4@v1", false),
            (format!("{vertex}c-4@v1:streamRawPredict?alt=sse"), "c-4@v1", true),
            ("/model/us.anthropic.c-v1%3A0/invoke".to_owned(), "us.anthropic.c-v1:0", false),
            (
                "/model/arn%3Aaws%3Ab%3Ar%3A1%3Ainference-profile%2Fus.anthropic.c\
                 /invoke-with-response-stream"
                    .to_owned(),
                "arn:aws:b:r:1:inference-profile/us.anthropic.c",
                true,
            ),
        ] {
            let facts = read(&path, body);
            assert_eq!(Wire::detect(&path), Wire::AnthropicMessages, "{path}");
            assert_eq!(
                (facts.model.as_deref(), facts.stream),
                (Some(model), Some(stream)),
                "{path}"
            );
            assert_eq!((facts.understood, facts.effect), (true, Effect::ReadOnly));
        }
    }
}
