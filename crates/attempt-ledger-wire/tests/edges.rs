//! What the recorded responses do not hold: bounds, line ends, odd JSON, several
//! choices, and errors at odd places.

#![allow(clippy::expect_used, reason = "a test may panic, its helpers too")]

mod support;

use attempt_ledger_core::{
    BodyEnd, Digest, ErrorCause, Facts, Fault, TransportKind, Uninspected, Verdict, decide,
};
use attempt_ledger_wire::{Evidence, Tap, TapOptions, Wire, answer_sha256};
use http::HeaderValue;
use support::{Random, Response, headers, read, response, seed};

const SSE: &str = "text/event-stream";
const JSON: &str = "application/json";

fn options() -> TapOptions {
    TapOptions { keep_content: true, ..TapOptions::default() }
}

/// Reads `body` in any chunking (one is shown; the others must agree) and gives its verdict too.
fn chat(media: &'static str, body: impl Into<Vec<u8>>) -> (Verdict, Facts, Evidence) {
    on(Wire::OpenAiChat, &response(media, body))
}

fn on(wire: Wire, response: &Response) -> (Verdict, Facts, Evidence) {
    let whole = read(wire, response, &options(), &[]);
    let bytewise: Vec<_> = (0..response.body.len().min(20_000)).collect();
    assert_eq!(read(wire, response, &options(), &bytewise), whole, "byte by byte");
    let mut random = Random(seed());
    for _ in 0..20 {
        let cuts: Vec<_> = (0..6).map(|_| random.below(response.body.len() + 1)).collect();
        assert_eq!(read(wire, response, &options(), &cuts), whole, "cut at {cuts:?}");
    }
    let verdict = decide(response.status, &whole.0, &response.end).verdict;
    (verdict, whole.0, whole.1)
}

fn delta(text: &str) -> String {
    format!(
        "data: {{\"id\":\"c\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}},\
         \"finish_reason\":null}}]}}\n\n"
    )
}

const STOP: &str =
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
const DONE: &str = "data: [DONE]\n\n";

fn text(evidence: &Evidence) -> &str {
    &evidence.content.as_ref().expect("kept").text
}

fn code(fault: Option<&Fault>) -> (Option<&str>, Option<ErrorCause>) {
    match fault {
        Some(Fault::Error(error)) => {
            (error.code.as_ref().map(attempt_ledger_core::Label::as_str), error.cause)
        }
        _ => (None, None),
    }
}

/// A body wrapper holds a tap by value, whatever the body's own bounds.
#[test]
fn a_tap_goes_wherever_a_body_goes() {
    fn goes<T: Send + Sync + Unpin + std::fmt::Debug + 'static>() {}
    goes::<Tap>();
    let mut tap = Tap::new(Wire::OpenAiChat, 200, &headers(SSE), &options());
    tap.feed(delta("secret").as_bytes());
    assert!(!format!("{tap:?}").contains("secret"), "what was said is not printed");
}

mod lines {
    use super::*;

    #[test]
    fn every_line_end_and_every_mix_is_read() {
        let lf = [delta("Par"), delta("is"), STOP.to_owned(), DONE.to_owned()].concat();
        let want = chat(SSE, lf.clone());
        assert_eq!((want.0, text(&want.2)), (Verdict::Ok, "Paris"));
        assert_eq!(chat(SSE, lf.replace('\n', "\r")), want, "lone CR");
        assert_eq!(chat(SSE, lf.replace('\n', "\r\n")), want, "CRLF");
        assert_eq!(chat(SSE, lf.replace("\n\n", "\r\n\r")), want, "mixed");
        assert_eq!(chat(SSE, lf.replace("\n\n", "\n\r\n")), want, "mixed");
        assert_eq!(chat(SSE, lf.replace("data: ", "data:")), want, "no space");
        assert_eq!(chat(SSE, format!("\u{feff}{lf}")), want, "byte-order mark");
        assert_eq!(chat(SSE, format!("\u{feff}: ping\n\n{lf}")), want, "mark and comment");
        let named = lf.replace("data: {", "id: 7\nevent: x\nretry: 3\ndata: {");
        assert_eq!(chat(SSE, named), want, "other fields");
    }

    #[test]
    fn only_the_first_mark_is_skipped() {
        let twice = format!("\u{feff}\u{feff}{}{STOP}", delta("lost"));
        assert_eq!(chat(SSE, twice).2.content_chars, 0);
    }

    #[test]
    fn keepalives_are_no_progress() {
        let body = format!(
            ": ping\n\n:\n\n\n\ndata:\n\ndata: \n\nevent: ping\n\n{}: ping\n\n{STOP}: late\n\n",
            delta("x")
        );
        let (verdict, _, evidence) = chat(SSE, body);
        assert_eq!((verdict, evidence.events), (Verdict::Ok, Some(2)));
        let mut tap = Tap::new(Wire::OpenAiChat, 200, &headers(SSE), &options());
        for _ in 0..1000 {
            tap.feed(b": keep-alive\n\n");
        }
        assert_eq!((tap.progress_events(), tap.has_first_content()), (0, false));
        tap.finish();
        let verdict = decide(200, tap.facts(), &BodyEnd::Complete).verdict;
        assert_eq!(verdict, Verdict::Unterminated);
    }

    #[test]
    fn an_unterminated_last_event_counts_if_it_parses() {
        let stop = STOP.trim_end();
        assert_eq!(chat(SSE, format!("{}{stop}", delta("x"))).0, Verdict::Ok);
        assert_eq!(chat(SSE, format!("{}{stop}\n", delta("x"))).0, Verdict::Ok);
        let half = &stop[..stop.len() - 3];
        let got = chat(SSE, format!("{}{half}", delta("x")));
        assert_eq!((got.0, got.2.events), (Verdict::Unterminated, Some(1)));
        let done = format!("{}data: [DONE]", delta("x"));
        assert!(chat(SSE, done).1.done);
    }

    #[test]
    fn nothing_after_the_done_marker_is_recorded() {
        let end = format!("{}{STOP}{DONE}", delta("x"));
        let want = chat(SSE, end.clone());
        let after = format!("{end}{}data: {{\"error\":{{}}}}\n\ndata: x\n\n", delta("y"));
        assert_eq!(chat(SSE, after), want);
        let mut tap = Tap::new(Wire::OpenAiChat, 200, &headers(SSE), &options());
        tap.feed(b"data: {\"error\":{\"code\":500}}\n\n");
        assert!(!tap.terminal());
        tap.feed(DONE.as_bytes());
        assert!(tap.terminal(), "also behind an error");
    }

    #[test]
    fn an_event_over_the_bound_is_not_inspected() {
        let options = TapOptions { max_event: 1000, ..options() };
        let long = format!("{}{}{STOP}", delta("ok"), delta(&"y".repeat(2000)));
        let many = format!("{}\n{STOP}", "data: \"......\"\n".repeat(200));
        let comment = format!(":{}\n\n{STOP}", "y".repeat(2000));
        for body in [long, many, comment] {
            let response = response(SSE, body);
            let whole = read(Wire::OpenAiChat, &response, &options, &[]);
            assert_eq!(whole.0.uninspected, Some(Uninspected::Size));
            let bytewise: Vec<_> = (0..response.body.len()).collect();
            assert_eq!(read(Wire::OpenAiChat, &response, &options, &bytewise), whole);
        }
        let fits = response(SSE, format!("{}{STOP}", delta(&"y".repeat(800))));
        assert_eq!(read(Wire::OpenAiChat, &fits, &options, &[]).0.uninspected, None);
    }

    #[test]
    fn little_is_held_beyond_the_longest_event() {
        let longest = delta(&"z".repeat(20_000));
        let mut tap = Tap::new(Wire::OpenAiChat, 200, &headers(SSE), &TapOptions::default());
        let body = [delta("a"), longest.clone(), delta("b").repeat(200)].concat();
        for piece in body.as_bytes().chunks(7) {
            tap.feed(piece);
            assert!(tap.held() <= longest.len() + 4096, "{} held", tap.held());
        }
    }
}

mod json {
    use super::*;

    fn document(message: &str) -> String {
        format!(r#"{{"choices":[{{"index":0,"message":{message},"finish_reason":"stop"}}]}}"#)
    }

    #[test]
    fn escapes_are_text_and_white_space_is_unicodes() {
        let got = chat(JSON, document(r#"{"content":"\ud83d\ude00\u00e9\n\"\\"}"#));
        assert_eq!((got.0, text(&got.2)), (Verdict::Ok, "\u{1f600}é\n\"\\"));
        assert_eq!(got.2.content_chars, 5);
        let blank = chat(JSON, document(r#"{"content":" \u3000\u2028\u00a0\u0085"}"#));
        assert_eq!((blank.0, blank.2.content_chars), (Verdict::Empty, 5));
        let joiner = chat(JSON, document(r#"{"content":"\u200b"}"#));
        assert_eq!(joiner.0, Verdict::Ok, "a zero-width space is no white space in Unicode");
    }

    /// The same text, written with escapes and without, and in whatever pieces.
    #[test]
    fn a_stream_of_escapes_is_the_same_text() {
        let want = chat(SSE, format!("{}{STOP}", delta("a\u{1f600}b\u{e9}")));
        let pieces = ["a", "\\ud83d\\ude00", "", "b", "\\u00e9"].map(delta).concat();
        let got = chat(SSE, format!("{pieces}{STOP}"));
        assert_eq!(text(&got.2), text(&want.2));
        assert_eq!(got.2.answer_sha256, want.2.answer_sha256);
        assert_eq!(got.2.events, Some(6));
    }

    /// A server that cuts its text between UTF-16 units: the answer stands, the halves are
    /// replacement characters.
    #[test]
    fn half_a_surrogate_pair_does_not_spoil_an_answer() {
        let pieces = ["a", "\\ud83d", "\\ude00", "b"].map(delta).concat();
        let got = chat(SSE, format!("{pieces}{STOP}"));
        assert_eq!((got.0, text(&got.2)), (Verdict::Ok, "a\u{fffd}\u{fffd}b"));
        let got = chat(JSON, document(r#"{"content":"a\ud83d"}"#));
        assert_eq!((got.0, text(&got.2)), (Verdict::Ok, "a\u{fffd}"));
    }

    #[test]
    fn depth_is_no_danger() {
        let deep = "[".repeat(100_000);
        let closed = format!("{deep}{}", "]".repeat(100_000));
        for body in [
            deep.clone(),
            closed.clone(),
            document(&format!(r#"{{"content":{closed}}}"#)),
            format!(r#"{{"error":{closed}}}"#),
            format!(r#"{{"choices":{closed}}}"#),
        ] {
            let (verdict, ..) = chat(JSON, body);
            assert!(matches!(verdict, Verdict::Malformed | Verdict::ProviderError), "{verdict}");
        }
        let mut refused = response(JSON, format!(r#"{{"error":{closed}}}"#));
        refused.status = 400;
        assert_eq!(on(Wire::OpenAiChat, &refused).0, Verdict::Rejected);
        assert_eq!(on(Wire::Plain, &response(JSON, deep)).0, Verdict::Malformed);
        let ignored = format!(r#"{{"choices":[],"logprobs":{closed}}}"#);
        assert_eq!(chat(JSON, ignored).0, Verdict::Empty, "skipped without recursion");
    }

    /// Readers differ in which of two fields of one name they take, so neither is the answer.
    #[test]
    fn a_field_twice_is_malformed() {
        let twice = document(r#"{"content":"a","content":"b"}"#);
        assert_eq!(chat(JSON, twice).0, Verdict::Malformed);
        let elsewhere = r#"{"id":1,"id":2,"choices":[]}"#;
        assert_eq!(chat(JSON, elsewhere).0, Verdict::Empty, "a field that is not read");
    }

    #[test]
    fn numbers_beyond_reason_are_no_usage() {
        for (usage, input, output) in [
            (r#"{"prompt_tokens":7,"completion_tokens":99999999999999999999}"#, Some(7), None),
            (r#"{"prompt_tokens":-1,"completion_tokens":2.5}"#, None, None),
            (
                r#"{"prompt_tokens":3.0,"completion_tokens":18446744073709551615}"#,
                Some(3),
                Some(u64::MAX),
            ),
            (r#"{"prompt_tokens":1e400,"completion_tokens":1}"#, None, None),
            (r#""many""#, None, None),
            ("null", None, None),
        ] {
            let body = format!(
                r#"{{"choices":[{{"message":{{"content":"x"}},"finish_reason":"stop"}}],"usage":{usage}}}"#
            );
            let (verdict, _, evidence) = chat(JSON, body);
            let got = (evidence.usage.input, evidence.usage.output);
            assert_eq!((verdict, got), (Verdict::Ok, (input, output)), "{usage}");
        }
    }

    #[test]
    fn what_is_no_object_of_the_protocol_is_malformed() {
        for body in
            ["[]", "null", "7", "\"x\"", "", "  ", "{}{}", r#"{"choices":7}"#, "{\"a\":\x01}"]
        {
            assert_eq!(chat(JSON, body).0, Verdict::Malformed, "{body}");
        }
        for body in ["data: []\n\n", "data: null\n\n", "data: 7\n\n", "data: {}{}\n\n"] {
            assert_eq!(chat(SSE, body).0, Verdict::Malformed, "{body}");
        }
        assert_eq!(chat(JSON, "{}").0, Verdict::Empty);
        let invalid = b"{\"choices\":[{\"message\":{\"content\":\"\xff\"}}]}";
        assert_eq!(chat(JSON, &invalid[..]).0, Verdict::Malformed, "no UTF-8");
    }

    /// A broken transfer says nothing of what the rest of the document was.
    #[test]
    fn half_a_document_of_a_cut_transfer_is_a_transport_fault() {
        let whole = document(r#"{"content":"Paris"}"#);
        let mut cut = response(JSON, &whole[..whole.len() - 1]);
        cut.end = BodyEnd::Broken(TransportKind::Cut);
        assert_eq!(on(Wire::OpenAiChat, &cut).0, Verdict::Transport);
        cut.body = whole.into();
        assert_eq!(on(Wire::OpenAiChat, &cut).0, Verdict::Ok, "only the framing's end is missing");
    }
}

mod content {
    use super::*;

    #[test]
    fn choice_zero_decides() {
        let body = concat!(
            r#"data: {"choices":[{"index":1,"delta":{"content":"other"},"finish_reason":"length"}]}"#,
            "\n\n",
            r#"data: {"choices":[{"index":0,"delta":{"content":"mine"}},{"index":2,"delta":{"content":"x"}}]}"#,
            "\n\n",
            r#"data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
            "\n\n",
        );
        let (verdict, facts, evidence) = chat(SSE, body);
        assert_eq!((verdict, facts.choices, text(&evidence)), (Verdict::Ok, 3, "mine"));
        let document = r#"{"choices":[
            {"index":1,"message":{"content":"other"},"finish_reason":"length"},
            {"index":0,"message":{"content":"mine"},"finish_reason":"stop"}]}"#;
        let (verdict, facts, evidence) = chat(JSON, document);
        assert_eq!((verdict, facts.choices, text(&evidence)), (Verdict::Ok, 2, "mine"));
        assert_eq!(decide(200, &facts, &BodyEnd::Complete).detail.choices, Some(2));
    }

    #[test]
    fn an_error_after_stop_and_content_is_only_noted() {
        let error = "data: {\"error\":{\"code\":\"server_error\"},\"choices\":[{\"index\":0,\
                     \"delta\":{},\"finish_reason\":\"error\"}]}\n\n";
        let (verdict, facts, evidence) =
            chat(SSE, format!("{}{STOP}{error}{DONE}", delta("Paris")));
        assert_eq!((verdict, facts.fault.as_ref()), (Verdict::Ok, None));
        let late = facts.late_error.expect("noted");
        assert_eq!(late.code.expect("a code").as_str(), "server_error");
        assert_eq!(evidence.finish_reason.expect("a word").as_str(), "stop");
        assert_eq!(evidence.events, Some(2));
        // Without usable content there is nothing that stands.
        let (verdict, ..) = chat(SSE, format!("{}{STOP}{error}", delta(" ")));
        assert_eq!(verdict, Verdict::ProviderError);
        // A document reports both at once: nothing came earlier.
        let document =
            r#"{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}],"error":"x"}"#;
        assert_eq!(chat(JSON, document).0, Verdict::ProviderError);
    }

    #[test]
    fn the_first_of_error_and_malformed_wins() {
        let error = "data: {\"error\":{\"type\":\"overloaded_error\"}}\n\n";
        let noise = "data: <html>\n\n";
        let (verdict, facts, _) = chat(SSE, format!("{error}{noise}"));
        assert_eq!(verdict, Verdict::ProviderError);
        let want = (Some("overloaded_error"), Some(ErrorCause::Overloaded));
        assert_eq!(code(facts.fault.as_ref()), want);
        assert_eq!(chat(SSE, format!("{noise}{error}")).0, Verdict::Malformed);
        assert_eq!(chat(SSE, format!("{}{STOP}{noise}", delta("x"))).0, Verdict::Malformed);
    }

    /// The decision table waits on a throttle that came inside a 200, so its cause is kept.
    #[test]
    fn the_cause_of_an_error_in_a_200_is_kept() {
        for (error, want) in [
            (r#"{"error":{"code":429}}"#, (Some("429"), Some(ErrorCause::Throttled))),
            (
                r#"{"error":{"code":"rate_limit_exceeded"}}"#,
                (Some("rate_limit_exceeded"), Some(ErrorCause::Throttled)),
            ),
            (r#"{"base_resp":{"status_code":1008}}"#, (Some("1008"), Some(ErrorCause::Billing))),
            (r#"{"base_resp":{"status_code":1039}}"#, (Some("1039"), Some(ErrorCause::Throttled))),
            (r#"{"error":"text","code":"503"}"#, (Some("503"), Some(ErrorCause::Overloaded))),
            (r#"{"choices":[{"error":{"code":502}}]}"#, (Some("502"), Some(ErrorCause::Server))),
            (r#"{"object":"error","code":40003}"#, (Some("40003"), None)),
            (r#"{"code":"Throttling","message":"x"}"#, (Some("Throttling"), None)),
            (r#"{"error":[]}"#, (None, None)),
        ] {
            for (media, body) in [(JSON, error.to_owned()), (SSE, format!("data: {error}\n\n"))] {
                let (verdict, facts, _) = chat(media, body);
                assert_eq!(verdict, Verdict::ProviderError, "{error}");
                assert_eq!(code(facts.fault.as_ref()), want, "{error}");
            }
        }
        let flagged = r#"{"base_resp":{"status_code":1027},"choices":null}"#;
        assert_eq!(chat(JSON, flagged).0, Verdict::Refused);
        let fine = r#"{"base_resp":{"status_code":0},"error":null,"choices":[]}"#;
        assert_eq!(chat(JSON, fine).0, Verdict::Empty);
    }

    #[test]
    fn a_named_error_event_is_an_error_whatever_it_holds() {
        for body in [
            "event: error\ndata: {\"code\":429}\n\n",
            "event: error\ndata: {\"error\":{\"code\":429}}\n\n",
            "data: {\"code\":429}\nevent: error\n\n",
            "error: {\"code\":429}\n\n",
        ] {
            let (verdict, facts, evidence) = chat(SSE, format!("{}{body}", delta("x")));
            assert_eq!((verdict, evidence.events), (Verdict::ProviderError, Some(1)), "{body}");
            assert_eq!(code(facts.fault.as_ref()).1, Some(ErrorCause::Throttled), "{body}");
        }
        assert_eq!(chat(SSE, "event: error\ndata: oops\n\n").0, Verdict::ProviderError);
    }

    #[test]
    fn error_bodies_are_read_for_code_and_wait() {
        let google = r#"[{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[
            {"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"7.5s"}]}}]"#;
        let mut refused = response(JSON, google);
        refused.status = 429;
        let (verdict, facts, evidence) = on(Wire::OpenAiChat, &refused);
        assert_eq!((verdict, facts.retry_after_ms), (Verdict::Throttled, Some(7500)));
        assert_eq!(evidence.events, None);
        refused.headers.insert("retry-after", HeaderValue::from_static("2"));
        assert_eq!(on(Wire::OpenAiChat, &refused).1.retry_after_ms, Some(2000), "headers first");
        let mut framed =
            response(SSE, "event: error\ndata: {\"error\":{\"code\":\"content_filter\"}}\n\n");
        framed.status = 400;
        assert_eq!(on(Wire::OpenAiChat, &framed).0, Verdict::Refused);
        let mut long = response(JSON, format!("{{\"x\":\"{}\"}}", "y".repeat(300_000)));
        long.status = 500;
        assert_eq!(on(Wire::OpenAiChat, &long).0, Verdict::ServerError);
        let mut busy = response(JSON, "{}");
        busy.status = 498;
        assert_eq!(on(Wire::OpenAiChat, &busy).0, Verdict::Throttled);
        assert_eq!(on(Wire::Plain, &busy).0, Verdict::Rejected);
    }

    #[test]
    fn stop_words_are_kept_as_they_came() {
        let stop = |word: &str| {
            let end = STOP.replace("\"stop\"", &format!("\"{word}\""));
            chat(SSE, format!("{}{end}", delta("x")))
        };
        let (verdict, facts, evidence) = stop("repetition");
        assert_eq!((verdict, facts.unknown_stop), (Verdict::Ok, true));
        assert_eq!(evidence.finish_reason.expect("a word").as_str(), "repetition");
        assert_eq!(stop("").0, Verdict::Unterminated);
        assert_eq!(stop("length").0, Verdict::Truncated);
        assert_eq!(stop("sensitive").0, Verdict::Refused);
        // The last one that is not empty wins.
        let twice = format!("{}{STOP}{}", delta("x"), STOP.replace("stop", "length"));
        assert_eq!(chat(SSE, twice).0, Verdict::Truncated);
    }

    #[test]
    fn a_done_marker_can_be_taken_for_a_stop_reason() {
        let body = response(SSE, format!("{}{DONE}", delta("x")));
        for (accept_done, want) in [(false, Verdict::Unterminated), (true, Verdict::Ok)] {
            let options = TapOptions { accept_done, ..options() };
            let (facts, evidence) = read(Wire::OpenAiChat, &body, &options, &[]);
            assert_eq!(decide(200, &facts, &BodyEnd::Complete).verdict, want);
            assert_eq!(evidence.finish_reason, None);
        }
    }

    #[test]
    fn a_stop_beside_an_upstream_failure_without_text_is_a_failure() {
        let body = |text: &str| {
            format!(
                r#"{{"choices":[{{"message":{{"content":"{text}"}},"finish_reason":"stop","native_finish_reason":"network_error"}}]}}"#
            )
        };
        assert_eq!(chat(JSON, body("")).0, Verdict::ProviderError);
        assert_eq!(chat(JSON, body("x")).0, Verdict::Ok);
    }

    #[test]
    fn refusals_are_not_text() {
        let body = concat!(
            r#"data: {"choices":[{"delta":{"refusal":"I can"}}]}"#,
            "\n\n",
            r#"data: {"choices":[{"delta":{"refusal":"not."},"finish_reason":"stop"}]}"#,
            "\n\n"
        );
        let (verdict, _, evidence) = chat(SSE, body);
        assert_eq!((verdict, evidence.content_sha256), (Verdict::Refused, None));
        let content = evidence.content.expect("kept");
        assert_eq!(content.refusal.as_deref(), Some("I cannot."));
        let parts = r#"{"choices":[{"message":{"content":[{"type":"refusal","refusal":"no"},
            {"type":"text","text":"a"},{"text":"b"},{"type":"image_url"}]},"finish_reason":"stop"}]}"#;
        let (verdict, _, evidence) = chat(JSON, parts);
        assert_eq!((verdict, text(&evidence)), (Verdict::Refused, "ab"));
    }

    #[test]
    fn tool_calls_are_told_apart() {
        let call = |json: &str| {
            format!("data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{json}]}}}}]}}\n\n")
        };
        let names = |body: String| {
            let (_, _, evidence) = chat(SSE, body);
            let content = evidence.content.expect("kept");
            assert_eq!(content.tool_calls.len(), evidence.tool_calls as usize);
            let join = |c: &attempt_ledger_core::ToolCall| format!("{}({})", c.name, c.arguments);
            content.tool_calls.iter().map(join).collect::<Vec<_>>().join(" ")
        };
        let by_index = [
            call(r#"{"index":0,"id":"a","function":{"name":"f","arguments":""}}"#),
            call(r#"{"index":1,"id":"b","function":{"name":"g","arguments":"{}"}}"#),
            call(r#"{"index":0,"function":{"arguments":"{\"x\":1}"}}"#),
        ];
        assert_eq!(names(by_index.concat()), r#"f({"x":1}) g({})"#);
        let by_id = [
            call(r#"{"id":"a","function":{"name":"f","arguments":"1"}}"#),
            call(r#"{"function":{"arguments":"2"}}"#),
            call(r#"{"id":"b","function":{"name":"g","arguments":{"y":2}}}"#),
        ];
        assert_eq!(names(by_id.concat()), r#"f(12) g({"y":2})"#);
        let custom = call(r#"{"index":0,"type":"custom","custom":{"name":"c","input":"text"}}"#);
        assert_eq!(names(custom), "c(text)");
        let many: String =
            (0..2000).map(|n| call(&format!(r#"{{"index":{n},"function":{{}}}}"#))).collect();
        let whole = read(Wire::OpenAiChat, &response(SSE, many), &options(), &[]);
        assert_eq!(whole.0.uninspected, Some(Uninspected::Size), "bounded");
    }

    #[test]
    fn a_final_object_does_not_repeat_the_deltas() {
        let full = r#"data: {"choices":[{"message":{"content":"Paris"},"finish_reason":"stop"}]}"#;
        let (_, _, evidence) = chat(SSE, format!("{}{}{full}\n\n", delta("Par"), delta("is")));
        assert_eq!(text(&evidence), "Paris");
        let (verdict, _, evidence) = chat(SSE, format!("{full}\n\n"));
        assert_eq!((verdict, text(&evidence)), (Verdict::Ok, "Paris"), "it may come alone");
    }

    #[test]
    fn an_answer_of_the_other_kind_is_noted() {
        for (asked, media, want) in [
            (Some(true), JSON, true),
            (Some(false), SSE, true),
            (Some(true), SSE, false),
            (None, JSON, false),
        ] {
            let options = TapOptions { stream_asked: asked, ..options() };
            let tap = Tap::new(Wire::OpenAiChat, 200, &headers(media), &options);
            assert_eq!(tap.facts().other_media, want, "{asked:?} {media}");
        }
        let asked = TapOptions { stream_asked: Some(true), ..options() };
        let tap = Tap::new(Wire::OpenAiChat, 400, &headers(JSON), &asked);
        assert!(!tap.facts().other_media, "an error has no stream to be");
    }

    #[test]
    fn kept_content_is_what_was_hashed_and_is_bounded() {
        let body = format!("{}{}{STOP}", delta("Par"), delta("is"));
        let (_, _, evidence) = chat(SSE, body.clone());
        let content = evidence.content.expect("kept");
        assert_eq!(Some(Digest::of(content.text.as_bytes())), evidence.content_sha256);
        assert_eq!(answer_sha256(&content), evidence.answer_sha256);
        let unkept =
            read(Wire::OpenAiChat, &response(SSE, body.clone()), &TapOptions::default(), &[]);
        assert_eq!(unkept.1.content, None);
        assert_eq!(unkept.1.answer_sha256, evidence.answer_sha256);
        let small = TapOptions { max_body: 4, ..options() };
        let over = read(Wire::OpenAiChat, &response(SSE, body), &small, &[]);
        assert_eq!((over.0.uninspected, over.1.content), (Some(Uninspected::Size), None));
        let document = response(JSON, "{\"choices\":[]}");
        let over = read(Wire::OpenAiChat, &document, &small, &[]);
        assert_eq!(over.0.uninspected, Some(Uninspected::Size));
    }
}

mod plain {
    use super::*;

    fn plain(media: &'static str, body: impl Into<Vec<u8>>) -> (Verdict, Facts, Evidence) {
        on(Wire::Plain, &response(media, body))
    }

    #[test]
    fn the_body_is_the_content() {
        let (verdict, _, evidence) = plain("text/plain; charset=utf-8", "naïve 😀");
        assert_eq!((verdict, text(&evidence)), (Verdict::Ok, "naïve 😀"));
        assert_eq!(evidence.events, None);
        let (verdict, _, evidence) = plain(JSON, " {\"a\":1}\n");
        assert_eq!((verdict, text(&evidence)), (Verdict::Ok, " {\"a\":1}\n"));
        for (media, body, want) in [
            (JSON, "{\"a\":", Verdict::Malformed),
            (JSON, "", Verdict::Empty),
            ("application/problem+json", " \n", Verdict::Empty),
            ("text/plain", "\u{3000}\n", Verdict::Empty),
            ("text/html", "<p>", Verdict::Ok),
            ("image/png", "x", Verdict::Uninspected),
            ("text/plain; charset=iso-8859-1", "x", Verdict::Uninspected),
        ] {
            assert_eq!(plain(media, body).0, want, "{media} {body:?}");
        }
        assert_eq!(plain("text/plain", &b"a\xffb"[..]).0, Verdict::Malformed);
        assert_eq!(
            plain("text/plain", &b"a\xe2\x82"[..]).0,
            Verdict::Malformed,
            "half a character"
        );
    }

    #[test]
    fn a_stream_is_its_data_and_needs_no_stop_reason() {
        let (verdict, facts, evidence) =
            plain(SSE, ": hi\n\ndata: one\n\ndata: two\ndata: three\n\ndata: [DONE]\n\n");
        assert_eq!((verdict, text(&evidence)), (Verdict::Ok, "one\ntwo\nthree\n[DONE]"));
        assert_eq!((evidence.events, facts.streamed), (Some(3), false));
        assert_eq!(plain(SSE, ": hi\n\n").0, Verdict::Empty);
    }

    #[test]
    fn a_body_over_the_bound_is_not_inspected() {
        let small = TapOptions { max_body: 4, ..options() };
        let long = response("text/plain", "too long");
        let whole = read(Wire::Plain, &long, &small, &[]);
        assert_eq!(whole.0.uninspected, Some(Uninspected::Size));
        assert_eq!(read(Wire::Plain, &long, &small, &[1, 2, 3, 4, 5, 6]), whole);
    }
}

/// What Hugging Face's TGI sent before it had lists: the call itself under `tool_calls`.
#[test]
fn a_call_without_its_list_is_a_call() {
    let body = concat!(
        r#"data: {"choices":[{"index":0,"delta":{"tool_calls":{"index":0,"id":"","type":"function","#,
        r#""function":{"name":"f","arguments":"{"}}},"finish_reason":null}]}"#,
        "\n\n",
        r#"data: {"choices":[{"index":0,"delta":{"tool_calls":{"index":0,"function":{"arguments":"#,
        r#""}"}}},"finish_reason":"eos_token"}]}"#,
        "\n\n",
    );
    let (facts, evidence) =
        read(Wire::OpenAiChat, &response("text/event-stream", body), &TapOptions::default(), &[]);
    assert_eq!((evidence.tool_calls, evidence.events), (1, Some(2)));
    assert_eq!(decide(200, &facts, &BodyEnd::Complete).verdict, Verdict::Ok);
    let none = r#"{"choices":[{"message":{"content":"","tool_calls":{}},"finish_reason":"stop"}]}"#;
    let (facts, _) =
        read(Wire::OpenAiChat, &response("application/json", none), &TapOptions::default(), &[]);
    assert_eq!(decide(200, &facts, &BodyEnd::Complete).verdict, Verdict::Empty);
}

#[test]
fn a_choice_numbered_by_a_float_is_that_choice() {
    let body = r#"{"choices":[{"index":1.0,"message":{"content":"b"},"finish_reason":"length"},
        {"index":0.0,"message":{"content":"a"},"finish_reason":"stop"}]}"#;
    let (_, evidence) =
        read(Wire::OpenAiChat, &response("application/json", body), &TapOptions::default(), &[]);
    assert_eq!(evidence.finish_reason.expect("a word").as_str(), "stop");
}

/// Each of these is short as text and long as values in memory.
#[test]
fn a_document_of_very_many_values_is_bounded() {
    let many = |unit: &str| format!("{}{{}}", unit.repeat(200_000));
    for (body, want) in [
        (
            format!(r#"{{"choices":[{{"message":{{"tool_calls":[{}]}}}}]}}"#, many("{},")),
            Verdict::Uninspected,
        ),
        (
            format!(r#"{{"choices":[{{"message":{{"content":[{}]}}}}]}}"#, many("{},")),
            Verdict::Uninspected,
        ),
        (format!(r#"{{"error":[{}]}}"#, many("[[],[]],")), Verdict::ProviderError),
    ] {
        let (facts, _) = read(
            Wire::OpenAiChat,
            &response("application/json", body),
            &TapOptions::default(),
            &[],
        );
        assert_eq!(decide(200, &facts, &BodyEnd::Complete).verdict, want);
    }
}
