//! What Gemini's servers, its clients' relays and Vertex AI send and are sent, beyond the recorded
//! responses.

#![allow(clippy::expect_used, reason = "a test may panic, its helpers too")]

mod support;

use attempt_ledger_core::{
    BodyEnd, Effect, ErrorCause, Facts, Label, TransportKind, Uninspected, Verdict, decide,
};
use attempt_ledger_wire::{Evidence, RequestFacts, Tap, TapOptions, Wire, read_request};
use http::Method;
use support::{Random, Response, headers, read, response, seed};

const SSE: &str = "text/event-stream";
const JSON: &str = "application/json; charset=UTF-8";

/// Reads `body` in many chunkings, which must agree.
fn gemini(media: &'static str, body: impl Into<Vec<u8>>) -> (Verdict, Facts, Evidence) {
    got(&response(media, body))
}

fn got(response: &Response) -> (Verdict, Facts, Evidence) {
    let options = TapOptions { keep_content: true, ..TapOptions::default() };
    let whole = read(Wire::Gemini, response, &options, &[]);
    let bytewise: Vec<_> = (0..response.body.len()).collect();
    assert_eq!(read(Wire::Gemini, response, &options, &bytewise), whole, "byte by byte");
    let mut random = Random(seed());
    for _ in 0..20 {
        let cuts: Vec<_> = (0..6).map(|_| random.below(response.body.len() + 1)).collect();
        assert_eq!(read(Wire::Gemini, response, &options, &cuts), whole, "cut at {cuts:?}");
    }
    (decide(response.status, &whole.0, &response.end).verdict, whole.0, whole.1)
}

/// A document of one candidate with these parts, which stopped.
fn parts(parts: &str) -> String {
    format!(
        r#"{{"candidates":[{{"content":{{"parts":[{parts}],"role":"model"}},"finishReason":"STOP"}}]}}"#
    )
}

/// Parts that do not end the answer.
fn open(parts: &str) -> String {
    format!(r#"{{"candidates":[{{"content":{{"parts":[{parts}]}}}}]}}"#)
}

fn events(data: &[&str]) -> String {
    data.iter().map(|data| format!("data: {data}\r\n\r\n")).collect()
}

fn text(evidence: &Evidence) -> &str {
    &evidence.content.as_ref().expect("kept").text
}

fn calls(evidence: &Evidence) -> Vec<(&str, &str)> {
    let content = evidence.content.as_ref().expect("kept");
    content.tool_calls.iter().map(|c| (&*c.name, &*c.arguments)).collect()
}

fn finish(evidence: &Evidence) -> Option<&str> {
    evidence.finish_reason.as_ref().map(Label::as_str)
}

mod content {
    use super::*;

    #[test]
    fn only_text_of_the_answer_is_text() {
        let (verdict, _, evidence) = gemini(
            JSON,
            parts(
                r#"{"text":"why","thought":true},{"text":"A","thoughtSignature":"c2ln"},null,
                {"text":"","thoughtSignature":"c2ln"},{"text":null},{},{"text":"B","thought":false},
                {"inlineData":{"mimeType":"image/png","data":"aGk="}},{"fileData":{"fileUri":"x"}},
                {"executableCode":{"language":"PYTHON","code":"1"}},{"toolCall":{"id":"s"}},
                {"codeExecutionResult":{"outcome":"OUTCOME_OK","output":"1"}},
                {"text":"\ud83d"}"#,
            ),
        );
        assert_eq!((verdict, text(&evidence)), (Verdict::Ok, "AB\u{fffd}"));
        assert_eq!((evidence.reasoning_chars, evidence.tool_calls), (3, 0));
    }

    #[test]
    fn an_answer_without_text_or_call_is_empty() {
        for parts_of in [
            "",
            r#"{"text":" \n"}"#,
            r#"{"text":"why","thought":true}"#,
            r#"{"inlineData":{"mimeType":"image/png","data":"aGk="}}"#,
        ] {
            assert_eq!(gemini(JSON, parts(parts_of)).0, Verdict::Empty, "{parts_of}");
        }
        for body in ["{}", r#"{"candidates":[]}"#, r#"{"candidates":null,"error":null}"#] {
            assert_eq!(gemini(JSON, body).0, Verdict::Empty, "{body}");
        }
    }

    #[test]
    fn each_whole_call_is_one_and_keeps_its_arguments_as_they_came() {
        let (verdict, _, evidence) = gemini(
            JSON,
            parts(
                r#"{"functionCall":{"name":"f","args":{"b": 1, "a":[]}}},
                {"functionCall":{"id":"same","name":"f","args":{}}},
                {"functionCall":{"id":"same","name":"f","args":{}}},
                {"functionCall":{"name":"g"}},{"functionCall":null},
                {"functionCall":{"name":"h","args":"{\"q\":1}"},"thought":true}"#,
            ),
        );
        assert_eq!(verdict, Verdict::Ok);
        let want = [
            ("f", r#"{"b": 1, "a":[]}"#),
            ("f", "{}"),
            ("f", "{}"),
            ("g", ""),
            ("h", r#"{"q":1}"#),
        ];
        assert_eq!(calls(&evidence), want);
    }

    #[test]
    fn a_call_that_goes_on_is_one() {
        let piece = |call: &str| open(&format!(r#"{{"functionCall":{call}}}"#));
        let by_place = [
            r#"{"name":"f","willContinue":true}"#,
            r#"{"partialArgs":[1],"willContinue":true}"#,
            r#"{"name":"f","partialArgs":[2],"willContinue":true}"#,
            "{}",
            r#"{"name":"f","partialArgs":[3]}"#,
        ];
        let by_id = [
            r#"{"id":"a","name":"f","willContinue":true}"#,
            r#"{"id":"b","name":"f","partialArgs":[1],"willContinue":true}"#,
            r#"{"id":"a","partialArgs":[2],"willContinue":false}"#,
            r#"{"id":"b","partial_args":[3],"will_continue":true}"#,
            r#"{"id":"b"}"#,
        ];
        for (calls_of, want) in
            [(by_place, [("f", "[1][2]"), ("f", "[3]")]), (by_id, [("f", "[2]"), ("f", "[1][3]")])]
        {
            let stream: Vec<_> = calls_of.iter().map(|call| piece(call)).collect();
            let mut stream: Vec<_> = stream.iter().map(|event| &**event).collect();
            stream.push(r#"{"candidates":[{"finishReason":"STOP"}]}"#);
            let (verdict, _, evidence) = gemini(SSE, events(&stream));
            assert_eq!((verdict, calls(&evidence)), (Verdict::Ok, want.to_vec()));
        }
    }

    #[test]
    fn calls_without_end_are_bounded() {
        let many = r#"{"functionCall":{"name":"f","willContinue":true}},"#.repeat(2000);
        let whole = response(JSON, parts(many.trim_end_matches(',')));
        let (facts, _) = read(Wire::Gemini, &whole, &TapOptions::default(), &[]);
        assert_eq!(facts.uninspected, Some(Uninspected::Size));
    }

    #[test]
    fn candidate_zero_decides_wherever_it_stands() {
        let candidate = |index: &str, text: &str, finish: &str| {
            format!(
                r#"{{{index}"content":{{"parts":[{{"text":"{text}"}}]}},"finishReason":"{finish}"}}"#
            )
        };
        for (first, second, want) in [
            (r#""index":0,"#, r#""index":1,"#, "a"),
            (r#""index":1,"#, r#""index":0,"#, "b"),
            (r#""index":1,"#, "", "b"),
            ("", r#""index":1,"#, "a"),
            ("", "", "a"),
        ] {
            let list = [candidate(first, "a", "STOP"), candidate(second, "b", "STOP")].join(",");
            let (_, facts, evidence) = gemini(JSON, format!(r#"{{"candidates":[{list}]}}"#));
            assert_eq!((text(&evidence), facts.choices), (want, 2), "{first} {second}");
        }
        let alone = candidate(r#""index":1,"#, "a", "SAFETY");
        let (verdict, _, evidence) = gemini(JSON, format!(r#"{{"candidates":[{alone}]}}"#));
        assert_eq!((verdict, finish(&evidence)), (Verdict::Empty, None), "not candidate zero");
    }

    #[test]
    fn the_last_counts_that_were_reported_stand() {
        let usage = |counts: &str| format!(r#"{{"usageMetadata":{counts}}}"#);
        let stream = [
            usage(r#"{"promptTokenCount":3,"candidatesTokenCount":1}"#),
            usage(r#"{"promptTokenCount":"4","candidatesTokenCount":7.0}"#),
            usage(r#"{"promptTokenCount":{},"thoughtsTokenCount":9}"#),
            usage("[]"),
            usage("null"),
        ];
        let stream: Vec<_> = stream.iter().map(|event| &**event).collect();
        let (_, _, evidence) = gemini(SSE, events(&stream));
        assert_eq!((evidence.usage.input, evidence.usage.output), (Some(4), Some(7)));
    }
}

mod stops {
    use super::*;

    #[test]
    fn each_word_has_its_verdict_with_text_and_without() {
        for (word, with_text, without) in [
            ("STOP", Verdict::Ok, Verdict::Empty),
            ("NO_IMAGE", Verdict::Ok, Verdict::Empty),
            ("A_NEW_ONE", Verdict::Ok, Verdict::Empty),
            ("MAX_TOKENS", Verdict::Truncated, Verdict::Truncated),
            ("SAFETY", Verdict::Refused, Verdict::Refused),
            ("RECITATION", Verdict::Refused, Verdict::Refused),
            ("LANGUAGE", Verdict::Refused, Verdict::Refused),
            ("IMAGE_SAFETY", Verdict::Refused, Verdict::Refused),
            ("MODEL_ARMOR", Verdict::Refused, Verdict::Refused),
            ("PUP_LIMITED_DISABLED", Verdict::Refused, Verdict::Refused),
            ("OTHER", Verdict::ProviderError, Verdict::ProviderError),
            ("IMAGE_OTHER", Verdict::ProviderError, Verdict::ProviderError),
            ("MALFORMED_FUNCTION_CALL", Verdict::ProviderError, Verdict::ProviderError),
            ("TOO_MANY_TOOL_CALLS", Verdict::ProviderError, Verdict::ProviderError),
            ("FINISH_REASON_UNSPECIFIED", Verdict::ProviderError, Verdict::ProviderError),
        ] {
            for (parts_of, want) in [(r#"{"text":"x"}"#, with_text), ("", without)] {
                let body = parts(parts_of).replace("STOP", word);
                let (verdict, facts, evidence) = gemini(SSE, events(&[&body]));
                assert_eq!((verdict, finish(&evidence)), (want, Some(word)), "{parts_of}");
                assert_eq!(facts.unknown_stop, word == "A_NEW_ONE");
                assert_eq!(gemini(JSON, body).0, want, "{word} {parts_of}");
            }
        }
    }

    #[test]
    fn the_last_word_that_is_not_empty_wins() {
        let with = |word: &str| {
            let first = r#""candidates":[{"#;
            open(r#"{"text":"x"}"#).replace(first, &format!("{first}\"finishReason\":{word},"))
        };
        for (words, want, verdict) in [
            (
                &["\"STOP\"", "\"STOP\"", "\"MAX_TOKENS\""][..],
                Some("MAX_TOKENS"),
                Verdict::Truncated,
            ),
            (&["\"STOP\"", "\"\"", "null"], Some("STOP"), Verdict::Ok),
            (&["\"\"", "null", "0"], None, Verdict::Unterminated),
            (&["2", "1"], Some("STOP"), Verdict::Ok),
            (&["2"], Some("MAX_TOKENS"), Verdict::Truncated),
            (&["17"], Some("17"), Verdict::Ok),
            (&["{}", "true"], None, Verdict::Unterminated),
        ] {
            let stream: Vec<_> = words.iter().map(|word| with(word)).collect();
            let stream: Vec<_> = stream.iter().map(|event| &**event).collect();
            let (got, _, evidence) = gemini(SSE, events(&stream));
            assert_eq!((got, finish(&evidence)), (verdict, want), "{words:?}");
        }
    }

    #[test]
    fn a_blocked_prompt_is_refused_whatever_the_word_and_wherever_it_is_said() {
        for (reason, want) in [
            ("\"OTHER\"", "OTHER"),
            ("\"BLOCKED_REASON_UNSPECIFIED\"", "BLOCKED_REASON_UNSPECIFIED"),
            ("\"JAILBREAK\"", "JAILBREAK"),
            ("\"STOP\"", "STOP"),
            ("4", "PROHIBITED_CONTENT"),
        ] {
            for field in ["blockReason", "block_reason"] {
                let block = format!(r#"{{"promptFeedback":{{"{field}":{reason}}}}}"#);
                let (verdict, _, evidence) = gemini(JSON, block.clone());
                assert_eq!((verdict, finish(&evidence)), (Verdict::Refused, Some(want)));
                let stream = [&*open(r#"{"text":"x"}"#), &block, &parts("")];
                let (verdict, _, evidence) = gemini(SSE, events(&stream));
                assert_eq!((verdict, finish(&evidence)), (Verdict::Refused, Some(want)));
            }
        }
        for feedback in [
            "null",
            "{}",
            r#"{"safetyRatings":[]}"#,
            r#"{"blockReason":""}"#,
            "[]",
            "{\"blockReason\":null}",
        ] {
            let body = parts(r#"{"text":"x"}"#).replacen(
                '{',
                &format!("{{\"promptFeedback\":{feedback},"),
                1,
            );
            assert_eq!(gemini(JSON, body).0, Verdict::Ok, "{feedback}");
        }
    }
}

mod framing {
    use super::*;

    #[test]
    fn a_list_is_a_stream_and_the_other_kind_is_noted() {
        for (asked, body, want) in [
            (Some(true), " [", (true, false)),
            (Some(false), "\n[", (true, true)),
            (None, "[", (true, false)),
            (Some(true), "\u{feff}{", (false, true)),
            (Some(false), "{", (false, false)),
            (None, "{", (false, false)),
        ] {
            let options = TapOptions { stream_asked: asked, ..TapOptions::default() };
            let mut tap = Tap::new(Wire::Gemini, 200, &headers(JSON), &options);
            assert_eq!(tap.is_stream(), asked == Some(true), "nothing has told yet");
            tap.feed(body.as_bytes());
            let facts = tap.facts();
            assert_eq!((tap.is_stream(), facts.other_media), want, "{asked:?} {body}");
            assert_eq!(facts.streamed, want.0, "{asked:?} {body}");
        }
        let options = TapOptions { stream_asked: Some(true), ..TapOptions::default() };
        let error = Tap::new(Wire::Gemini, 503, &headers(JSON), &options);
        assert!(!error.is_stream(), "an error has no stream to be");
        let chat = Tap::new(Wire::OpenAiChat, 200, &headers(JSON), &options);
        assert!(!chat.is_stream(), "a wire without lists");
    }

    #[test]
    fn content_shows_before_the_list_ends() {
        let mut tap = Tap::new(Wire::Gemini, 200, &headers(JSON), &TapOptions::default());
        let element = open(r#"{"text":"x"}"#);
        let (most, last) = element.split_at(element.len() - 1);
        tap.feed(format!("[{most}").as_bytes());
        assert!(!tap.has_first_content() && tap.held() >= most.len());
        tap.feed(last.as_bytes());
        assert!(tap.has_first_content());
        assert_eq!(tap.progress_events(), 1);
    }

    #[test]
    fn what_is_no_object_of_the_protocol_is_malformed() {
        let sound = parts(r#"{"text":"x"}"#);
        for body in [
            format!("[{sound},7]"),
            format!("[null,{sound}]"),
            format!("[{sound}{sound}]"),
            format!("[{sound},]"),
            format!("[{sound}] x"),
            format!("[[],{sound}]"),
            "\"x\"".to_owned(),
            String::new(),
            sound.replace("\"x\"", "7"),
            sound.replace(":[{", ":7,\"x\":[{"),
        ] {
            assert_eq!(gemini(JSON, body.clone()).0, Verdict::Malformed, "{body}");
        }
        for data in ["7", "null", "[]", "[7]", "{"] {
            assert_eq!(gemini(SSE, events(&[&sound, data])).0, Verdict::Malformed, "{data}");
        }
        // Half an element is none.
        for body in ["[", "[{", "[]", " [ ] "] {
            assert_eq!(gemini(JSON, body).0, Verdict::Unterminated, "{body}");
        }
    }

    #[test]
    fn an_element_over_the_bound_is_not_inspected() {
        let long = response(JSON, format!("[{}]", parts(r#"{"text":"a long one"}"#)));
        let small = TapOptions { max_event: 40, ..TapOptions::default() };
        for cuts in [vec![], (0..long.body.len()).collect()] {
            let (facts, _) = read(Wire::Gemini, &long, &small, &cuts);
            assert_eq!(facts.uninspected, Some(Uninspected::Size));
        }
    }

    /// The marker of other wires, which relays send: it says no more here than there.
    #[test]
    fn a_done_marker_is_no_stop_reason_and_no_event() {
        let (verdict, facts, evidence) =
            gemini(SSE, events(&[&open(r#"{"text":"x"}"#), "[DONE]", "{"]));
        assert_eq!((verdict, facts.done), (Verdict::Unterminated, true));
        assert_eq!(evidence.events, Some(1));
        let mut cut = response(SSE, events(&[&parts(r#"{"text":"x"}"#), "[DONE]"]));
        cut.end = BodyEnd::Broken(TransportKind::Cut);
        assert_eq!(got(&cut).0, Verdict::Ok);
    }
}

mod errors {
    use super::*;

    const ERROR: &str = r#"{"error":{"code":503,"message":"m","status":"UNAVAILABLE"}}"#;

    #[test]
    fn an_error_is_one_in_any_wrapping() {
        for (media, body) in [
            (SSE, events(&[ERROR])),
            (SSE, events(&[&format!("[{ERROR}]")])),
            (SSE, format!("event: error\r\n{}", events(&[ERROR]))),
            (JSON, ERROR.to_owned()),
            (JSON, format!("[{ERROR}\n]")),
            (JSON, format!("[{ERROR}")),
            (JSON, r#"{"code":503,"message":"m","status":"UNAVAILABLE"}"#.to_owned()),
        ] {
            let response = response(media, body.clone());
            let (verdict, facts, evidence) = got(&response);
            assert_eq!(verdict, Verdict::ProviderError, "{body}");
            let detail = decide(200, &facts, &response.end).detail;
            assert_eq!(detail.code.as_ref().map(Label::as_str), Some("UNAVAILABLE"));
            assert_eq!(detail.cause, Some(ErrorCause::Overloaded), "{body}");
            assert!(matches!(evidence.events, None | Some(0)), "an error is no progress");
        }
    }

    #[test]
    fn an_error_after_an_answer_that_stands_is_only_noted() {
        let answer = parts(r#"{"text":"x"}"#);
        for body in [events(&[&answer, ERROR]), events(&[&answer, &format!("[{ERROR}]")])] {
            let (verdict, facts, evidence) = gemini(SSE, body);
            assert_eq!((verdict, facts.late_error.is_some()), (Verdict::Ok, true));
            assert_eq!(evidence.events, Some(1));
        }
        assert_eq!(gemini(JSON, format!("[{answer},{ERROR}]")).0, Verdict::Ok);
        let nothing = parts("");
        assert_eq!(gemini(SSE, events(&[&nothing, ERROR])).0, Verdict::ProviderError);
        let null = answer.replacen('{', "{\"error\":null,", 1);
        assert_eq!(gemini(SSE, events(&[&null])).0, Verdict::Ok);
    }

    #[test]
    fn the_body_of_an_error_status_gives_its_wait() {
        let error = r#"{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[
            {"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{}]},
            {"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"0.5s"}]}}"#;
        for body in [error.to_owned(), format!("[{error}\n]"), events(&[&error.replace('\n', "")])]
        {
            let response = Response { status: 429, ..response(JSON, body.clone()) };
            let (verdict, facts, _) = got(&response);
            assert_eq!((verdict, facts.retry_after_ms), (Verdict::Throttled, Some(500)), "{body}");
            let detail = decide(429, &facts, &response.end).detail;
            assert_eq!(detail.cause, Some(ErrorCause::Throttled));
        }
    }
}

mod requests {
    use super::*;

    fn asked(path: &str, body: &str) -> RequestFacts {
        read_request(Wire::Gemini, &Method::POST, path, Some(body.as_bytes()))
    }

    const ONCE: &str = "/v1beta/models/g-1.5:generateContent";

    #[test]
    fn model_and_stream_are_in_the_path() {
        for (path, model, stream) in [
            (ONCE, "g-1.5", false),
            ("/v1beta/models/g:streamGenerateContent", "g", true),
            (
                "/v1/projects/p/locations/l/publishers/google/models/g%401:generateContent",
                "g@1",
                false,
            ),
            ("/v1beta1/projects/p/locations/l/endpoints/77:streamGenerateContent", "77", true),
            ("/v1beta/tunedModels/t-1:generateContent", "t-1", false),
        ] {
            let facts = asked(path, "{}");
            let want = (Some(model), Some(stream), true, Effect::ReadOnly);
            let got = (facts.model.as_deref(), facts.stream, facts.understood, facts.effect);
            assert_eq!(got, want, "{path}");
        }
        for path in [
            "/v1beta/models/g:countTokens",
            "/v1beta/models/g:embedContent",
            "/v1beta/models/g:batchGenerateContent",
            "/v1beta/models",
        ] {
            assert_eq!(asked(path, "{}"), RequestFacts::default(), "{path}");
        }
        let wrapped = asked(
            "/v1internal:streamGenerateContent",
            r#"{"model":"g","project":"p","request":{"contents":[{"parts":[{"text":"abc"}]}]}}"#,
        );
        let got = (wrapped.model.as_deref(), wrapped.stream, wrapped.prompt_chars);
        assert_eq!(got, (Some("g"), Some(true), 3));
    }

    #[test]
    fn a_request_is_read_in_both_ways_of_writing_it() {
        let camel = r#"{"systemInstruction":{"parts":[{"text":"be"}]},
            "contents":[{"role":"user","parts":[{"text":"h\u00e9y"},{"inlineData":{"data":"aGk="}}]},
            {"parts":{"text":"xy"}}],"toolConfig":{},"safetySettings":[],
            "tools":[{"functionDeclarations":[{"name":"f"},{"name":"g"}],"googleSearch":null},{}],
            "generationConfig":{"maxOutputTokens":64,"temperature":1}}"#;
        let snake = camel
            .replace("systemInstruction", "system_instruction")
            .replace("functionDeclarations", "function_declarations")
            .replace("generationConfig", "generation_config")
            .replace("maxOutputTokens\":64", "max_output_tokens\":\"64\"");
        let want = RequestFacts {
            model: Some("g-1.5".into()),
            stream: Some(false),
            tools: 2,
            cap: Some(64),
            prompt_chars: 7,
            understood: true,
            effect: Effect::ReadOnly,
        };
        assert_eq!(asked(ONCE, camel), want);
        assert_eq!(asked(ONCE, &snake), want);
        let single =
            r#"{"contents":{"parts":{"text":"ab"}},"tools":{"functionDeclarations":[{}]}}"#;
        let facts = asked(ONCE, single);
        assert_eq!((facts.prompt_chars, facts.tools, facts.effect), (2, 1, Effect::ReadOnly));
    }

    /// What is not known to be harmless writes.
    #[test]
    fn all_that_may_act_writes() {
        for tool in [
            "googleSearch",
            "google_search",
            "googleSearchRetrieval",
            "codeExecution",
            "urlContext",
            "computerUse",
            "retrieval",
            "fileSearch",
            "googleMaps",
            "mcpServers",
            "somethingNew",
        ] {
            let body =
                format!(r#"{{"tools":[{{"functionDeclarations":[{{}}]}},{{"{tool}":{{}}}}]}}"#);
            let facts = asked(ONCE, &body);
            let got = (facts.understood, facts.tools, facts.effect);
            assert_eq!(got, (true, 2, Effect::Writes), "{tool}");
        }
        for body in [
            r#"{"contents":[],"contents":[]}"#,
            r#"{"tools":[],"tools":[{"googleSearch":{}}]}"#,
            r#"{"systemInstruction":{},"system_instruction":{}}"#,
            r#"{"tools":[{"functionDeclarations":[],"function_declarations":[]}]}"#,
            r#"{"tools":["googleSearch"]}"#,
            r#"{"contents":"hi"}"#,
            r#"{"contents":["hi"]}"#,
            r#"{"request":7}"#,
            "[{}]",
            "{",
            "",
        ] {
            assert_eq!(asked(ONCE, body), RequestFacts::default(), "{body}");
        }
    }
}

/// A list of empty items takes many times its bytes once it is read.
#[test]
fn a_list_of_too_many_items_is_not_inspected() {
    let items = |item: &str, count: usize| vec![item; count].join(",");
    for count in [4096, 5000] {
        let (parts, chunks) = (items("{}", count), items("{\"candidates\":[]}", count));
        let document = format!("{{\"candidates\":[{{\"content\":{{\"parts\":[{parts}]}}}}]}}");
        for (media, body) in [
            ("application/json", document.clone()),
            ("text/event-stream", format!("data: {document}\n\n")),
            ("text/event-stream", format!("data: [{chunks}]\n\n")),
        ] {
            let response = response(media, body);
            let (facts, _) = read(Wire::Gemini, &response, &TapOptions::default(), &[]);
            let over = (count > 4096).then_some(attempt_ledger_core::Uninspected::Size);
            assert_eq!((facts.fault, facts.uninspected), (None, over), "{count} in {media}");
        }
    }
}

/// What a cache holds is not seen, and may be tools that the server runs.
#[test]
fn tools_out_of_sight_may_write() {
    let effect = |body: &str| {
        let path = "/v1beta/models/g:generateContent";
        let facts = read_request(Wire::Gemini, &http::Method::POST, path, Some(body.as_bytes()));
        (facts.understood, facts.effect)
    };
    assert_eq!(effect("{\"contents\":[]}"), (true, Effect::ReadOnly));
    for body in [
        "{\"cachedContent\":\"cachedContents/c\"}",
        "{\"request\":{\"cached_content\":\"c\"}}",
        "{\"request\":{},\"tools\":[{\"googleSearch\":{}}]}",
    ] {
        assert_eq!(effect(body), (true, Effect::Writes), "{body}");
    }
}
