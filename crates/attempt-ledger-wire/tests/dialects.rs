//! What servers and relays that speak like OpenAI send, beyond the recorded responses.

#![allow(clippy::expect_used, reason = "a test may panic, its helpers too")]

mod support;

use attempt_ledger_core::{ErrorCause, Facts, Verdict, decide};
use attempt_ledger_wire::{Evidence, TapOptions, Wire};
use support::{Random, read, response, seed};

const SSE: &str = "text/event-stream; charset=utf-8";
const JSON: &str = "application/json";

/// The same in any chunking, and on both wires.
fn on(media: &'static str, body: &str) -> (Verdict, Facts, Evidence) {
    let options = TapOptions { keep_content: true, ..TapOptions::default() };
    let response = response(media, body);
    let whole = read(Wire::OpenAiChat, &response, &options, &[]);
    assert_eq!(read(Wire::OpenAiCompletions, &response, &options, &[]), whole);
    let bytewise: Vec<_> = (0..body.len()).collect();
    assert_eq!(read(Wire::OpenAiChat, &response, &options, &bytewise), whole, "byte by byte");
    let mut random = Random(seed());
    for _ in 0..20 {
        let cuts: Vec<_> = (0..4).map(|_| random.below(body.len() + 1)).collect();
        assert_eq!(read(Wire::OpenAiChat, &response, &options, &cuts), whole, "cut at {cuts:?}");
    }
    (decide(200, &whole.0, &response.end).verdict, whole.0, whole.1)
}

/// A stream of these chunks and the done marker.
fn stream(chunks: &[&str]) -> (Verdict, Facts, Evidence) {
    let events: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
    on(SSE, &format!("{events}data: [DONE]\n\n"))
}

fn document(json: &str) -> (Verdict, Facts, Evidence) {
    on(JSON, json)
}

/// A chunk whose only choice has this delta.
fn delta(delta: &str) -> String {
    format!(r#"{{"id":"c","choices":[{{"index":0,"delta":{delta},"finish_reason":null}}]}}"#)
}

const STOP: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;

fn said(evidence: &Evidence) -> (&str, Vec<String>) {
    let content = evidence.content.as_ref().expect("kept");
    let calls = content.tool_calls.iter().map(|call| format!("{}({})", call.name, call.arguments));
    (&content.text, calls.collect())
}

fn fault(json: &str) -> (Verdict, Option<String>, Option<ErrorCause>) {
    let in_stream = stream(&[&delta(r#"{"content":"x"}"#), json]);
    let whole = document(json);
    let read = |(verdict, facts, _): &(Verdict, Facts, Evidence)| {
        let detail = decide(200, facts, &attempt_ledger_core::BodyEnd::Complete).detail;
        (*verdict, detail.code.map(|code| code.as_str().to_owned()), detail.cause)
    };
    assert_eq!(read(&in_stream), read(&whole), "{json}");
    assert_eq!(in_stream.2.events, Some(1), "an error is no progress: {json}");
    read(&whole)
}

mod errors {
    use super::*;

    #[test]
    fn of_every_form_are_provider_errors() {
        use ErrorCause::{Billing, Overloaded, Server, Throttled};
        for (json, code, cause) in [
            (r#"{"error":{}}"#, None, None),
            (r#"{"error":""}"#, None, None),
            (r#"{"error":["x"]}"#, None, None),
            (r#"{"error":[{"code":429}]}"#, Some("429"), Some(Throttled)),
            (r#"{"error":{"code":429.0}}"#, Some("429"), Some(Throttled)),
            (r#"{"error":{"code":"429","message":"m"}}"#, Some("429"), Some(Throttled)),
            (
                r#"{"error":{"error":{"type":"overloaded_error"}}}"#,
                Some("overloaded_error"),
                Some(Overloaded),
            ),
            (
                r#"{"error":{"code":null,"type":null,"status_code":503}}"#,
                Some("503"),
                Some(Overloaded),
            ),
            (
                r#"{"error":"Request failed","error_type":"generation"}"#,
                Some("generation"),
                Some(Server),
            ),
            (
                r#"{"error":"Model is overloaded","error_type":"overloaded"}"#,
                Some("overloaded"),
                Some(Overloaded),
            ),
            (
                r#"[{"error":{"code":503,"status":"UNAVAILABLE"}}]"#,
                Some("UNAVAILABLE"),
                Some(Overloaded),
            ),
            (
                r#"{"object":"error","message":"m","type":"BadRequestError","code":400}"#,
                Some("BadRequestError"),
                Some(ErrorCause::Request),
            ),
            (
                r#"{"type":"error","error":{"type":"overloaded_error","message":"m"}}"#,
                Some("overloaded_error"),
                Some(Overloaded),
            ),
            (r#"{"code":10013,"message":"m","sid":"s"}"#, Some("10013"), None),
            (
                r#"{"id":"c","choices":null,"base_resp":{"status_code":1008,"status_msg":"m"}}"#,
                Some("1008"),
                Some(Billing),
            ),
            (
                r#"{"id":"c","choices":[{"index":0,"message":null,"error":{"code":502}}]}"#,
                Some("502"),
                Some(Server),
            ),
            (r#"{"choices":[],"x_groq":{"id":"r","error":"over capacity"}}"#, None, None),
            (r#"{"choices":[],"x_groq":{"error":{"code":498}}}"#, Some("498"), Some(Overloaded)),
        ] {
            let want = (Verdict::ProviderError, code.map(str::to_owned), cause);
            assert_eq!(fault(json), want, "{json}");
        }
        let sentence = fault(r#"{"code":"The service is at capacity","error":"try later"}"#);
        assert_eq!(sentence.0, Verdict::ProviderError);
    }

    #[test]
    fn of_policy_are_refusals() {
        for json in [
            r#"{"error":{"code":"content_filter","status":400,"innererror":{"code":"ResponsibleAIPolicyViolation"}}}"#,
            r#"{"error":{"error":{"code":"content_policy_violation"}}}"#,
            r#"{"error":{"code":"InputTextSensitiveContentDetected.PolicyViolation","type":"BadRequest"}}"#,
            r#"{"error":{"code":"sensitive_words_detected","type":"new_api_error"}}"#,
            r#"{"base_resp":{"status_code":1026},"choices":null}"#,
        ] {
            assert_eq!(fault(json).0, Verdict::Refused, "{json}");
        }
    }

    /// What looks like one and is none.
    #[test]
    fn are_not_seen_where_none_is() {
        let fine = delta(r#"{"content":"x"}"#);
        for json in [
            r#"{"error":null,"choices":[]}"#,
            r#"{"code":0,"message":"Success","sid":"s","usage":{"prompt_tokens":1}}"#,
            r#"{"code":"0","message":"ok"}"#,
            r#"{"code":"","message":""}"#,
            r#"{"base_resp":{"status_code":0,"status_msg":""},"choices":[]}"#,
            r#"{"x_groq":{"id":"r","error":null},"choices":[]}"#,
            r#"{"object":"chat.completion.chunk","type":"chunk","choices":null}"#,
        ] {
            let (verdict, facts, evidence) = stream(&[&fine, json, STOP]);
            assert_eq!((verdict, facts.fault), (Verdict::Ok, None), "{json}");
            assert_eq!(evidence.events, Some(3));
        }
    }

    #[test]
    fn named_by_their_event_or_field() {
        for event in [
            "event: error\ndata: {\"error\":{\"message\":\"m\",\"status_code\":429}}\n\n",
            "event: error\ndata: {\"message\":\"m\",\"code\":429}\n\n",
            "error: {\"code\":429,\"message\":\"m\"}\n\n",
            "error:{\"code\":429.0}\r\n\r\n",
        ] {
            let body = format!("data: {}\n\n{event}data: [DONE]\n\n", delta(r#"{"content":"x"}"#));
            let (verdict, facts, evidence) = on(SSE, &body);
            assert_eq!((verdict, evidence.events), (Verdict::ProviderError, Some(1)), "{event}");
            let detail = decide(200, &facts, &attempt_ledger_core::BodyEnd::Complete).detail;
            assert_eq!(detail.cause, Some(ErrorCause::Throttled), "{event}");
        }
    }

    #[test]
    fn of_the_protocol_itself_are_malformed() {
        for event in [
            "null",
            "7",
            "\"x\"",
            "[]",
            "[7]",
            "{}{}",
            ": OPENROUTER PROCESSING",
            "<html>",
            "{\"a\"",
            "[{\"choices\":[]}]",
            r#"{"choices":{}}"#,
            r#"{"choices":[{"delta":{"content":7}}]}"#,
        ] {
            let (verdict, _, evidence) = stream(&[&delta(r#"{"content":"x"}"#), event, STOP]);
            assert_eq!((verdict, evidence.events), (Verdict::Malformed, Some(1)), "{event}");
        }
        for body in ["<!DOCTYPE html><html></html>", "", "[]", "null", "upstream error"] {
            for media in [JSON, "text/html; charset=utf-8", "text/plain"] {
                assert_eq!(on(media, body).0, Verdict::Malformed, "{media} {body}");
            }
        }
        let (verdict, _, evidence) = on(SSE, "");
        assert_eq!((verdict, evidence.events), (Verdict::Unterminated, Some(0)));
    }
}

mod choices {
    use super::*;

    #[test]
    fn the_first_decides_wherever_it_stands() {
        let (verdict, facts, evidence) = stream(&[
            r#"{"choices":[{"index":2,"delta":{"content":"c"}},{"index":0,"delta":{"content":"a"}}]}"#,
            r#"{"choices":[{"index":1,"delta":{"content":"b"},"finish_reason":"length"}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"A"},"finish_reason":"stop"}]}"#,
            r#"{"choices":[{"index":2,"delta":{},"finish_reason":"content_filter"}]}"#,
            r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":9}}"#,
        ]);
        assert_eq!((verdict, facts.choices, said(&evidence).0), (Verdict::Ok, 3, "aA"));
        assert_eq!((evidence.usage.output, evidence.events), (Some(9), Some(5)));
        let (verdict, facts, evidence) = document(
            r#"{"choices":[{"index":1,"message":{"content":"b"},"finish_reason":"length"},
                {"index":0,"message":{"content":"a"},"finish_reason":"stop"}]}"#,
        );
        assert_eq!((verdict, facts.choices, said(&evidence).0), (Verdict::Ok, 2, "a"));
    }

    #[test]
    fn an_odd_number_does_not_lose_a_documents_only_one() {
        for index in ["1", "-1", "null", "\"0\"", "0.0", "1.5"] {
            let (verdict, _, evidence) = document(&format!(
                r#"{{"choices":[{{"index":{index},"message":{{"content":"a"}},"finish_reason":"stop"}}]}}"#
            ));
            assert_eq!((verdict, said(&evidence).0), (Verdict::Ok, "a"), "{index}");
        }
        // A chunk does not know of the others.
        let (verdict, ..) = stream(&[
            r#"{"choices":[{"index":1,"delta":{"content":"b"},"finish_reason":"stop"}]}"#,
        ]);
        assert_eq!(verdict, Verdict::Unterminated);
    }

    #[test]
    fn fields_of_no_use_may_be_anything() {
        let odd = [
            r#"{"choices":[],"prompt_filter_results":[{"prompt_index":0}],"model":"","id":""}"#,
            r#"{"choices":null,"created":"now","system_fingerprint":7}"#,
            r#"{"choices":[{"index":0,"delta":null,"finish_reason":null,"logprobs":{"content":[]}}]}"#,
            r#"{"choices":[{"index":0,"delta":[],"message":"","finish_reason":0}]}"#,
            r#"{"choices":[{"index":0,"delta":{"role":null,"content":null,"refusal":false,"tool_calls":{},"function_call":null}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"","function_call":{"name":"","arguments":""},"tool_calls":[null]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"audio":{"id":"a","data":"AA=="}}},null]}"#,
            r#"{"choices":[{"index":0,"finish_reason":false,"content_filter_offsets":{},"content_filter_results":{}}]}"#,
        ];
        let text = delta(r#"{"content":"nul \u0000"}"#);
        let chunks: Vec<_> = odd.into_iter().chain([&*text, STOP]).collect();
        let (verdict, facts, evidence) = stream(&chunks);
        assert_eq!((verdict, facts.tool_calls), (Verdict::Ok, 0), "{facts:?}");
        assert_eq!((said(&evidence).0, evidence.events), ("nul \0", Some(10)));
        // Behind the end of the answer too.
        let late = r#"{"choices":[{"index":0,"content_filter_results":{},"finish_reason":null}]}"#;
        assert_eq!(stream(&[&text, STOP, late]).0, Verdict::Ok);
        for message in ["null", "[]", "\"\""] {
            let (verdict, ..) = document(&format!(
                r#"{{"choices":[{{"message":{message},"finish_reason":"stop"}}]}}"#
            ));
            assert_eq!(verdict, Verdict::Empty, "{message}");
        }
    }

    /// Perplexity's chunks hold the whole so far beside the piece.
    #[test]
    fn a_message_beside_the_delta_counts_once() {
        let both = |piece: &str, whole: &str, finish: &str| {
            format!(
                r#"{{"choices":[{{"index":0,"finish_reason":{finish},"message":{{"role":"assistant","content":"{whole}"}},"delta":{{"role":"assistant","content":"{piece}"}}}}]}}"#
            )
        };
        let chunks = [
            both("Par", "Par", "null"),
            both("is", "Paris", "null"),
            both("", "Paris", "\"stop\""),
        ];
        let (verdict, _, evidence) = stream(&[&chunks[0], &chunks[1], &chunks[2]]);
        assert_eq!((verdict, said(&evidence).0), (Verdict::Ok, "Paris"));
        // One relay sends the whole alone, and an empty delta beside it.
        let (verdict, _, evidence) = stream(&[&chunks[2]]);
        assert_eq!((verdict, said(&evidence).0), (Verdict::Ok, "Paris"));
    }

    #[test]
    fn usage_lies_in_many_places() {
        let usage = r#"{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}"#;
        for last in [
            format!(r#"{{"choices":[],"usage":{usage}}}"#),
            format!(r#"{{"choices":[{{"index":0,"delta":{{}},"usage":{usage}}}]}}"#),
            format!(r#"{{"choices":[],"x_groq":{{"id":"r","usage":{usage}}}}}"#),
            format!(
                r#"{{"choices":[{{"index":0,"delta":{{}},"finish_reason":"stop"}}],"usage":{usage}}}"#
            ),
        ] {
            let early = r#"{"choices":[{"index":0,"delta":{"content":"x"}}],"usage":{"prompt_tokens":5,"completion_tokens":1}}"#;
            let (_, _, evidence) = stream(&[early, STOP, &last]);
            assert_eq!((evidence.usage.input, evidence.usage.output), (Some(5), Some(2)), "{last}");
        }
        let (_, _, evidence) = document(&format!(
            r#"{{"choices":[{{"message":{{"content":"x"}},"finish_reason":"stop"}}],"usage":{usage}}}"#
        ));
        assert_eq!(evidence.usage.output, Some(2));
    }

    #[test]
    fn stop_words_of_the_dialects() {
        for (word, want) in [
            ("eos", Verdict::Ok),
            ("function_call", Verdict::Ok),
            ("model_length", Verdict::Truncated),
            ("model_context_window_exceeded", Verdict::Truncated),
            ("sensitive", Verdict::Refused),
            ("network_error", Verdict::ProviderError),
            ("insufficient_system_resource", Verdict::ProviderError),
            ("abort", Verdict::ProviderError),
            ("repetition", Verdict::Ok),
        ] {
            let end = STOP.replace("stop", word);
            let (verdict, _, evidence) = stream(&[&delta(r#"{"content":"x"}"#), &end]);
            assert_eq!((verdict, evidence.finish_reason.expect("a word").as_str()), (want, word));
        }
        let native = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop","native_finish_reason":"network_error"}]}"#;
        assert_eq!(stream(&[native]).0, Verdict::ProviderError);
        assert_eq!(stream(&[&delta(r#"{"content":"x"}"#), native]).0, Verdict::Ok);
    }
}

mod messages {
    use super::*;

    #[test]
    fn content_may_be_parts_and_strings_mixed() {
        let thought =
            r#"[{"type":"thinking","thinking":[{"type":"text","text":"Hmm"}],"closed":true}]"#;
        let (verdict, _, evidence) = stream(&[
            &delta(&format!(r#"{{"role":"assistant","content":{thought}}}"#)),
            &delta(
                r#"{"content":[{"type":"text","text":"Par"},{"type":"reference","reference_ids":[1]}]}"#,
            ),
            &delta(r#"{"content":"i"}"#),
            &delta(r#"{"content":["s",null,{"text":"!"}]}"#),
            &delta(r#"{"content":{"type":"text","text":"\ud83d"}}"#),
            &delta(r#"{"content":[]}"#),
            STOP,
        ]);
        assert_eq!((verdict, said(&evidence).0), (Verdict::Ok, "Paris!\u{fffd}"));
        assert_eq!((evidence.reasoning_chars, evidence.events), (3, Some(7)));
        let body = format!(
            r#"{{"choices":[{{"message":{{"content":{thought}}},"finish_reason":"stop"}}]}}"#
        );
        let (verdict, _, evidence) = document(&body);
        assert_eq!((verdict, evidence.reasoning_chars), (Verdict::Empty, 3), "only thought");
    }

    #[test]
    fn reasoning_is_counted_and_is_no_answer() {
        let count = |deltas: &[&str]| {
            let chunks: Vec<_> = deltas.iter().map(|json| delta(json)).collect();
            let mut chunks: Vec<_> = chunks.iter().map(|chunk| &**chunk).collect();
            chunks.push(STOP);
            let (verdict, _, evidence) = stream(&chunks);
            (verdict, evidence.reasoning_chars)
        };
        // The same chunk again and again, as the scan remembers it.
        assert_eq!(count(&[r#"{"reasoning_content":"naïve"}"#; 4]), (Verdict::Empty, 20));
        assert_eq!(count(&[r#"{"content":"","reasoning":"ab"}"#; 3]), (Verdict::Empty, 6));
        assert_eq!(count(&[r#"{"reasoning":"ab","content":"x"}"#; 3]), (Verdict::Ok, 6));
        assert_eq!(count(&[r#"{"content":"x","reasoning":"ab"}"#; 3]), (Verdict::Ok, 6));
        let plain = r#"{"content":"x","reasoning":""}"#;
        assert_eq!(
            count(&[plain, plain, r#"{"content":"x","reasoning":"\n"}"#, plain]),
            (Verdict::Ok, 1)
        );
        assert_eq!(count(&[r#"{"reasoning":"ab","reasoning_content":"ab"}"#]), (Verdict::Empty, 2));
        assert_eq!(count(&[r#"{"reasoning":"ab","reasoning_content":""}"#]), (Verdict::Empty, 2));
        assert_eq!(
            count(&[r#"{"reasoning":"a","reasoning_details":[{"text":"a"}]}"#]),
            (Verdict::Empty, 1)
        );
        assert_eq!(
            count(&[r#"{"reasoning":{"x":1},"reasoning_content":null}"#]),
            (Verdict::Empty, 0)
        );
        assert_eq!(count(&[r#"{"reasoning":"\ud83d\ude00"}"#]), (Verdict::Empty, 1));
        assert_eq!(count(&[r#"{"reasoning":"\ud83d"}"#]), (Verdict::Empty, 1));
        let (verdict, _, evidence) = document(
            r#"{"choices":[{"message":{"content":null,"reasoning":"abc"},"finish_reason":"length"}]}"#,
        );
        assert_eq!((verdict, evidence.reasoning_chars), (Verdict::Truncated, 3));
    }

    #[test]
    fn refusals_come_in_pieces() {
        let (verdict, _, evidence) = stream(&[
            &delta(r#"{"role":"assistant","content":null,"refusal":""}"#),
            &delta(r#"{"refusal":"I can"}"#),
            &delta(r#"{"refusal":"not."}"#),
            STOP,
        ]);
        let content = evidence.content.expect("kept");
        assert_eq!((verdict, content.refusal.as_deref()), (Verdict::Refused, Some("I cannot.")));
        assert_eq!(content.text, "");
    }
}

mod calls {
    use super::*;

    fn calls(deltas: &[&str]) -> Vec<String> {
        let chunks: Vec<_> =
            deltas.iter().map(|calls| delta(&format!(r#"{{"tool_calls":{calls}}}"#))).collect();
        let end = STOP.replace("stop", "tool_calls");
        let mut chunks: Vec<_> = chunks.iter().map(|chunk| &**chunk).collect();
        chunks.push(&end);
        let (verdict, facts, evidence) = stream(&chunks);
        assert_eq!(verdict, Verdict::Ok);
        let calls = said(&evidence).1;
        assert_eq!(calls.len(), facts.tool_calls as usize);
        calls
    }

    #[test]
    fn are_told_apart_by_number_and_id() {
        let want = [r#"f({"x":1})"#, "g({})"];
        for deltas in [
            // As documented.
            [
                r#"[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":""}}]"#,
                r#"[{"index":1,"id":"b","function":{"name":"g","arguments":"{"}},{"index":0,"function":{"arguments":"{\"x\""}}]"#,
                r#"[{"index":0,"function":{"arguments":":1}"}},{"index":1,"function":{"arguments":"}"}}]"#,
            ],
            // Numbers as strings.
            [
                r#"[{"index":"0","function":{"name":"f","arguments":"{\"x\""}}]"#,
                r#"[{"index":"1","function":{"name":"g","arguments":"{}"}}]"#,
                r#"[{"index":"0","function":{"arguments":":1}"}}]"#,
            ],
            // Id and name on every piece.
            [
                r#"[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\""}}]"#,
                r#"[{"index":0,"id":"a","function":{"name":"f","arguments":":1}"}}]"#,
                r#"[{"index":1,"id":"b","function":{"name":"g","arguments":"{}"}}]"#,
            ],
            // An id a piece, made up anew.
            [
                r#"[{"index":0,"id":"a","function":{"name":"f"}}]"#,
                r#"[{"index":0,"id":"z","function":{"arguments":"{\"x\":1}"}}]"#,
                r#"[{"index":1,"id":"b","function":{"name":"g","arguments":"{}"}}]"#,
            ],
            // Each has the number 0.
            [
                r#"[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}}]"#,
                r#"[{"index":0,"id":"b","function":{"name":"g","arguments":"{"}}]"#,
                r#"[{"index":0,"id":"","function":{"name":null,"arguments":"}"}}]"#,
            ],
            // The first piece has no id yet.
            [
                r#"[{"index":0,"function":{"name":"f"}}]"#,
                r#"[{"index":0,"id":"a","function":{"arguments":"{\"x\":1}"}}]"#,
                r#"[{"index":0,"id":"b","function":{"name":"g","arguments":"{}"}}]"#,
            ],
            // None has a number.
            [
                r#"[{"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}}]"#,
                r#"[{"id":"b","index":null,"function":{"name":"g","arguments":"{"}}]"#,
                r#"[{"function":{"arguments":"}"}}]"#,
            ],
            // Arguments as JSON.
            [
                r#"[{"index":0,"function":{"name":"f","arguments":{"x":1}}}]"#,
                r#"[{"index":1,"function":{"name":"g","arguments":{}}}]"#,
                "[]",
            ],
        ] {
            assert_eq!(calls(&deltas), want, "{deltas:?}");
        }
    }

    #[test]
    fn of_a_document_are_one_an_entry() {
        for list in [
            r#"[{"id":"a","function":{"name":"f","arguments":"{}"}},{"id":"b","function":{"name":"g","arguments":"{}"}}]"#,
            r#"[{"index":0,"function":{"name":"f","arguments":{}}},{"index":0,"function":{"name":"g","arguments":"{}"}}]"#,
            r#"[{"id":"","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"","custom":{"name":"g","input":"{}"}}]"#,
        ] {
            let (verdict, _, evidence) = document(&format!(
                r#"{{"choices":[{{"message":{{"content":null,"tool_calls":{list}}},"finish_reason":"stop"}}]}}"#
            ));
            assert_eq!(
                (verdict, said(&evidence).1),
                (Verdict::Ok, vec!["f({})".into(), "g({})".into()])
            );
        }
    }

    #[test]
    fn of_the_older_form_are_one() {
        let (verdict, _, evidence) = stream(&[
            &delta(
                r#"{"role":"assistant","content":null,"function_call":{"name":"f","arguments":""}}"#,
            ),
            &delta(r#"{"function_call":{"arguments":"{\"x\""}}"#),
            &delta(r#"{"function_call":{"arguments":":1}"}}"#),
            &STOP.replace("stop", "function_call"),
        ]);
        assert_eq!((verdict, said(&evidence).1), (Verdict::Ok, vec![r#"f({"x":1})"#.to_owned()]));
    }
}
