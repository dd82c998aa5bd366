//! What Ollama and llama.cpp send on wires of their own, beyond the recorded responses.

#![allow(clippy::expect_used, reason = "a test may panic, its helpers too")]

mod support;

use attempt_ledger_core::{
    BodyEnd, Effect, ErrorCause, Fault, TransportKind, Uninspected, Verdict, decide,
};
use attempt_ledger_wire::{Evidence, RequestFacts, Tap, TapOptions, Wire, read_request};
use http::Method;
use support::{Random, Response, headers, read, response, seed};

const LINES: &str = "application/x-ndjson";
const JSON: &str = "application/json; charset=utf-8";
const SSE: &str = "text/event-stream";

/// What is asked of an answer, read in any chunking.
#[derive(Debug, PartialEq)]
struct Got {
    verdict: Verdict,
    finish: Option<String>,
    text: String,
    calls: Vec<String>,
    usage: (Option<u64>, Option<u64>),
    events: Option<u64>,
    reasoning: u64,
    code: Option<String>,
    cause: Option<ErrorCause>,
    done: bool,
}

fn got(wire: Wire, response: &Response) -> Got {
    let options = TapOptions { keep_content: true, ..TapOptions::default() };
    let whole = read(wire, response, &options, &[]);
    let bytewise: Vec<_> = (0..response.body.len()).collect();
    assert_eq!(read(wire, response, &options, &bytewise), whole, "byte by byte");
    let mut random = Random(seed());
    for _ in 0..50 {
        let cuts: Vec<_> = (0..5).map(|_| random.below(response.body.len() + 1)).collect();
        assert_eq!(read(wire, response, &options, &cuts), whole, "cut at {cuts:?}");
    }
    let (facts, evidence): (_, Evidence) = whole;
    let decision = decide(response.status, &facts, &response.end);
    let content = evidence.content.expect("kept");
    Got {
        verdict: decision.verdict,
        finish: evidence.finish_reason.map(|word| word.as_str().to_owned()),
        text: content.text,
        calls: content.tool_calls.iter().map(|c| format!("{}{}", c.name, c.arguments)).collect(),
        usage: (evidence.usage.input, evidence.usage.output),
        events: evidence.events,
        reasoning: evidence.reasoning_chars,
        code: decision.detail.code.map(|code| code.as_str().to_owned()),
        cause: decision.detail.cause,
        done: matches!(facts.fault, None | Some(Fault::Error(_))) && facts.done,
    }
}

fn on(wire: Wire, media: &'static str, body: impl Into<Vec<u8>>) -> Got {
    got(wire, &response(media, body))
}

fn verdict(wire: Wire, media: &'static str, body: &str) -> (Verdict, Option<String>) {
    let got = on(wire, media, body);
    (got.verdict, got.finish)
}

fn said(verdict: Verdict, finish: Option<&str>) -> (Verdict, Option<String>) {
    (verdict, finish.map(str::to_owned))
}

mod ollama {
    use super::*;

    const FIRST: &str =
        r#"{"model":"m","message":{"role":"assistant","content":"Oil "},"done":false}"#;
    const SECOND: &str =
        r#"{"model":"m","message":{"role":"assistant","content":"it."},"done":false}"#;
    const END: &str = r#"{"model":"m","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","prompt_eval_count":11,"eval_count":5}"#;

    fn lines(lines: &[&str]) -> String {
        lines.iter().flat_map(|line| [line, "\n"]).collect()
    }

    fn ollama(media: &'static str, body: impl Into<Vec<u8>>) -> Got {
        on(Wire::Ollama, media, body)
    }

    #[test]
    fn the_media_type_may_say_nothing_of_lines() {
        let body = lines(&[FIRST, SECOND, END]);
        let want = ollama(LINES, body.clone());
        assert_eq!((want.verdict, &*want.text, want.events), (Verdict::Ok, "Oil it.", Some(3)));
        assert_eq!((want.usage, want.done), ((Some(11), Some(5)), true));
        let framed = body.lines().map(|line| format!("data: {line}\n\n")).collect::<String>();
        for (media, body) in [
            ("application/json", body.clone()),
            (JSON, format!("\n \r\n{body}")),
            ("text/plain; charset=utf-8", body.clone()),
            ("application/octet-stream", body.replace('\n', "\r\n\r\n")),
            ("text/html", format!("\u{feff}{body}")),
            (LINES, body.trim_end().to_owned()),
            (LINES, format!("\u{feff}{}\n\n", body.replace('\n', "\n\n \n"))),
            (LINES, body.replace(':', ":\r\t ")),
            (SSE, framed.clone()),
            (SSE, format!("{framed}data: [DONE]\n\n")),
        ] {
            assert_eq!(ollama(media, body.clone()), want, "{media}: {body}");
        }
    }

    /// One object is a document, whatever lies around it and however many lines it takes.
    #[test]
    fn one_object_is_a_document() {
        let pretty = END.replace(",", ",\n  ");
        for body in [END.to_owned(), format!("{END}\n"), format!("\u{feff}\n{END}\r\n\n "), pretty]
        {
            let got = ollama(JSON, body.clone());
            assert_eq!((got.verdict, got.events), (Verdict::Empty, None), "{body}");
            assert_eq!((got.finish.as_deref(), got.usage), (Some("stop"), (Some(11), Some(5))));
        }
        let half = ollama(JSON, format!("{FIRST}\n"));
        assert_eq!((half.verdict, half.events), (Verdict::Ok, None), "a document needs no reason");
        for body in ["<html>\n<body>\n", "[]\n[]\n", "7\n8\n", "", "{}{}\n", "{\n", "null"] {
            assert_eq!(ollama(JSON, body).verdict, Verdict::Malformed, "{body:?}");
        }
        let spoilt = ollama(JSON, format!("{FIRST}\nupstream gone\n"));
        assert_eq!((spoilt.verdict, spoilt.events), (Verdict::Malformed, Some(1)));
    }

    /// As soon as the second line begins: nothing waits for the end.
    #[test]
    fn lines_under_json_are_read_as_they_come() {
        let asked = |asked| TapOptions { stream_asked: Some(asked), ..TapOptions::default() };
        let mut tap = Tap::new(Wire::Ollama, 200, &headers(JSON), &asked(true));
        assert!(tap.facts().other_media);
        tap.feed(FIRST.as_bytes());
        tap.feed(b"\n");
        assert!(!tap.has_first_content());
        assert!(tap.held() > 0);
        tap.feed(b"{");
        assert!(tap.has_first_content());
        assert_eq!((tap.progress_events(), tap.facts().other_media), (1, false));
        assert!(tap.held() <= 1024);
        tap.feed(&END.as_bytes()[1..]);
        assert!(!tap.terminal());
        tap.feed(b"\n");
        assert!(tap.terminal());
        let mut tap = Tap::new(Wire::Ollama, 200, &headers(JSON), &asked(false));
        tap.feed(lines(&[FIRST, END]).as_bytes());
        assert!(tap.facts().other_media);
    }

    #[test]
    fn every_bound_holds() {
        let body = lines(&[FIRST, SECOND, END]);
        for (max_body, max_event, over) in
            [(90, 400, false), (60, 400, true), (400, 60, true), (400, 100, true)]
        {
            let options = TapOptions { max_body, max_event, ..TapOptions::default() };
            let response = response(JSON, &*body);
            let whole = read(Wire::Ollama, &response, &options, &[]);
            assert_eq!(
                whole.0.uninspected == Some(Uninspected::Size),
                over,
                "{max_body} {max_event}"
            );
            let bytewise: Vec<_> = (0..response.body.len()).collect();
            assert_eq!(read(Wire::Ollama, &response, &options, &bytewise), whole);
        }
    }

    /// Without a reason `done` itself is one, as on old servers; an empty one is none.
    #[test]
    fn done_and_its_reason() {
        let end = |fields: &str| lines(&[FIRST, &format!(r#"{{"message":{{}},{fields}}}"#)]);
        for (fields, verdict, finish) in [
            (r#""done":true"#, Verdict::Ok, None),
            (r#""done":true,"done_reason":null"#, Verdict::Ok, None),
            (r#""done":true,"done_reason":"""#, Verdict::Unterminated, None),
            (r#""done":true,"done_reason":"length""#, Verdict::Truncated, Some("length")),
            (r#""done":true,"done_reason":"load""#, Verdict::Ok, Some("load")),
            (r#""done":true,"done_reason":"novel""#, Verdict::Ok, Some("novel")),
            (r#""done":false"#, Verdict::Unterminated, None),
            (r#""done":null"#, Verdict::Unterminated, None),
            (r#""done":false,"done_reason":"""#, Verdict::Unterminated, None),
        ] {
            assert_eq!(
                super::verdict(Wire::Ollama, LINES, &end(fields)),
                said(verdict, finish),
                "{fields}"
            );
        }
        let unload = r#"{"model":"m","response":"","done":true,"done_reason":"unload"}"#;
        assert_eq!(
            super::verdict(Wire::Ollama, JSON, unload),
            said(Verdict::Empty, Some("unload"))
        );
        assert_eq!(
            super::verdict(Wire::Ollama, LINES, unload),
            said(Verdict::Empty, Some("unload"))
        );
        let lost = r#"{"model":"m","response":"x","done":true,"done_reason":""}"#;
        assert_eq!(super::verdict(Wire::Ollama, JSON, lost), said(Verdict::Ok, None));
    }

    #[test]
    fn nothing_counts_behind_the_end() {
        let end = lines(&[FIRST, END]);
        let want = ollama(LINES, &*end);
        for after in [FIRST, r#"{"error":"late"}"#, "noise", END] {
            assert_eq!(ollama(LINES, format!("{end}{after}\n")), want, "{after}");
        }
        let mut cut = response(LINES, &*end);
        cut.end = BodyEnd::Broken(TransportKind::Cut);
        assert_eq!(got(Wire::Ollama, &cut), want, "the transfer broke behind it");
        cut.body = lines(&[FIRST, SECOND]).into();
        assert_eq!(got(Wire::Ollama, &cut).verdict, Verdict::Transport);
        cut.body = format!("{FIRST}\n{}", &SECOND[..30]).into();
        let half = got(Wire::Ollama, &cut);
        assert_eq!((half.verdict, half.events, &*half.text), (Verdict::Transport, Some(1), "Oil "));
        // The last line's end is missing, and it parses.
        cut.body = format!("{FIRST}\n{END}").into();
        assert_eq!(got(Wire::Ollama, &cut), want);
    }

    #[test]
    fn errors_in_a_200() {
        for (error, code, cause) in [
            (r#"{"error":"model runner stopped: unexpected EOF"}"#, None, None),
            (r#"{"error":""}"#, None, None),
            (r#"{"error":{"message":"m","code":429}}"#, Some("429"), Some(ErrorCause::Throttled)),
            (r#"{"error":"busy","status":503}"#, Some("503"), Some(ErrorCause::Overloaded)),
            (r#"{"StatusCode":401,"error":"unauthorized","signin_url":"u"}"#, None, None),
        ] {
            let stream = ollama(LINES, lines(&[FIRST, error]));
            let want = (Verdict::ProviderError, Some(1), code, cause);
            assert_eq!((stream.verdict, stream.events, stream.code.as_deref(), stream.cause), want);
            let document = ollama(JSON, error);
            assert_eq!((document.verdict, document.events), (Verdict::ProviderError, None));
            assert_eq!((document.code.as_deref(), document.cause), (code, cause), "{error}");
        }
        // Half an answer may come with it.
        let partial = r#"{"error":"x","message":{"content":"Oil"},"eval_count":3,"done":false}"#;
        let got = ollama(JSON, partial);
        assert_eq!(
            (got.verdict, &*got.text, got.usage.1),
            (Verdict::ProviderError, "Oil", Some(3))
        );
        let fine = END.replace("\"done\":true", "\"done\":true,\"error\":null");
        assert_eq!(ollama(LINES, lines(&[FIRST, &fine])).verdict, Verdict::Ok);
        let named = format!("data: {FIRST}\n\nevent: error\ndata: {{\"error\":\"x\"}}\n\n");
        assert_eq!(ollama(SSE, named).verdict, Verdict::ProviderError);
        let noise = ollama(LINES, lines(&[FIRST, "<html>", END]));
        assert_eq!((noise.verdict, noise.events), (Verdict::Malformed, Some(1)));
    }

    #[test]
    fn thinking_is_no_answer() {
        let thought = r#"{"message":{"content":"","thinking":"Hm, "},"done":false}"#;
        let generated = r#"{"response":"","thinking":"naïve","done":false}"#;
        let got = ollama(LINES, lines(&[thought, generated, END]));
        assert_eq!((got.verdict, got.reasoning, got.events), (Verdict::Empty, 9, Some(3)));
        let capped = END.replace("stop", "length");
        let got = ollama(LINES, lines(&[thought, &capped]));
        assert_eq!((got.verdict, got.reasoning), (Verdict::Truncated, 4));
        let odd =
            r#"{"message":{"content":null,"thinking":null},"done":true,"done_reason":"stop"}"#;
        assert_eq!(ollama(JSON, odd).verdict, Verdict::Empty);
    }

    #[test]
    fn a_generation_has_its_calls_beside_its_text() {
        let record = r#"{"response":"","tool_calls":[{"function":{"name":"f","arguments":{}}}]}"#;
        let end = r#"{"response":"","done":true,"done_reason":"stop"}"#;
        let got = ollama(LINES, lines(&[record, end]));
        assert_eq!((got.verdict, got.calls), (Verdict::Ok, vec!["f{}".to_owned()]));
    }

    #[test]
    fn an_error_in_the_record_that_ends_counts() {
        let record = r#"{"message":{"content":"x"},"done":true,"done_reason":"stop","error":"e"}"#;
        assert_eq!(ollama(LINES, lines(&[record])).verdict, Verdict::ProviderError);
    }

    #[test]
    fn each_call_is_one() {
        let call = |call: &str| {
            format!(r#"{{"message":{{"content":"","tool_calls":[{call}]}},"done":false}}"#)
        };
        let f = r#"{"function":{"name":"f","arguments":{"a":1}}}"#;
        let g = r#"{"function":{"index":1,"name":"g","arguments":"{}"}}"#;
        for records in [
            vec![call(&format!("{f},{f},{g}"))],
            vec![call(f), call(f), call(g)],
            vec![call(f), call(&format!("{f},{g}"))],
        ] {
            let mut records: Vec<_> = records.iter().map(|record| &**record).collect();
            records.push(END);
            let got = ollama(LINES, lines(&records));
            assert_eq!((got.verdict, got.finish.as_deref()), (Verdict::Ok, Some("stop")));
            assert_eq!(got.calls, ["f{\"a\":1}", "f{\"a\":1}", "g{}"]);
        }
        let named = |id: &str| {
            call(&format!(r#"{{"id":"{id}","function":{{"name":"f","arguments":{{}}}}}}"#))
        };
        let got = ollama(LINES, lines(&[&named("a"), &named("b"), &named("a"), END]));
        assert_eq!(got.calls, ["f{}", "f{}"], "one that came before by its id");
        let document =
            END.replace("\"content\":\"\"", &format!("\"content\":\"\",\"tool_calls\":[{f}]"));
        assert_eq!(ollama(JSON, document).calls.len(), 1);
        let none = END.replace("\"content\":\"\"", "\"content\":\"\",\"tool_calls\":null");
        assert_eq!(ollama(JSON, none).verdict, Verdict::Empty);
    }

    #[test]
    fn what_is_not_read_may_be_anything() {
        let cloud = r#"{"model":"m","remote_model":"m:cloud","remote_host":7,"created_at":null,"context":[1,2],"logprobs":{"a":[]},"images":["x"],"total_duration":"1s","response":"Blue.","done":true,"done_reason":"stop","prompt_eval_count":0,"eval_count":null}"#;
        let got = ollama(JSON, cloud);
        assert_eq!((got.verdict, &*got.text, got.usage), (Verdict::Ok, "Blue.", (Some(0), None)));
        let odd = END.replace(":11", ":1e400").replace(":5}", ":\"many\"}");
        assert_eq!(ollama(LINES, lines(&[FIRST, &odd])).usage, (None, None));
        let half = FIRST.replace("Oil ", "\\ud83d");
        assert_eq!(ollama(LINES, lines(&[&half, END])).text, "\u{fffd}");
        let empty = ollama(LINES, "");
        assert_eq!((empty.verdict, empty.events), (Verdict::Unterminated, Some(0)));
    }

    #[test]
    fn a_request_streams_unless_it_says_otherwise() {
        let ask = |path: &str, body: &str| {
            read_request(Wire::Ollama, &Method::POST, path, Some(body.as_bytes()))
        };
        let chat = ask(
            "/api/chat",
            r#"{"model":"m:7b","keep_alive":"5m","think":true,"format":{},"options":{"num_predict":64,"num_ctx":4096},
               "messages":[{"role":"user","content":"h\u00e9y","images":["aGk="]}],
               "tools":[{"type":"function","function":{"name":"f"}}]}"#,
        );
        let want = RequestFacts {
            model: Some("m:7b".into()),
            stream: Some(true),
            tools: 1,
            cap: Some(64),
            prompt_chars: 3,
            understood: true,
            effect: Effect::ReadOnly,
        };
        assert_eq!(chat, want);
        let generate = ask(
            "/api/generate",
            r#"{"model":"m","prompt":"abc","system":"de","suffix":"f","stream":false,"raw":true,"options":{"num_predict":-1}}"#,
        );
        assert_eq!((generate.stream, generate.cap, generate.prompt_chars), (Some(false), None, 6));
        for (body, cap) in [
            (r#"{"model":"m"}"#, None),
            (r#"{"model":"m","options":null,"stream":null,"tools":null}"#, None),
            (r#"{"model":"m","options":{"num_predict":-2}}"#, None),
            (r#"{"model":"m","options":{"num_predict":0}}"#, None),
            (r#"{"model":"m","options":{"num_predict":32.0}}"#, Some(32)),
            (r#"{"model":"m","options":{"num_predict":null}}"#, None),
        ] {
            let facts = ask("/api/generate", body);
            assert_eq!(
                (facts.understood, facts.stream, facts.cap),
                (true, Some(true), cap),
                "{body}"
            );
        }
        let remote = ask("/api/chat", r#"{"model":"m","tools":[{"type":"web_search"}]}"#);
        assert_eq!((remote.understood, remote.effect), (true, Effect::Writes));
        for body in [
            r#"{"model":"m","model":"n"}"#,
            r#"{"options":{"num_predict":1,"num_predict":2}}"#,
            r#"{"stream":"no"}"#,
            "[]",
        ] {
            assert_eq!(ask("/api/chat", body), RequestFacts::default(), "{body}");
        }
    }
}

mod llama {
    use super::*;

    const WHOLE: &str = r#"{"index":0,"content":" Paris.","tokens":[],"id_slot":0,"stop":true,"model":"m","tokens_predicted":3,"tokens_evaluated":7,"generation_settings":{"stop":["x"],"n_probs":0},"prompt":"p","truncated":false,"stop_type":"eos","stopping_word":"","timings":{"predicted_n":3}}"#;

    fn piece(text: &str) -> String {
        format!(
            "data: {{\"index\":0,\"content\":\"{text}\",\"tokens\":[1],\"stop\":false,\"id_slot\":0,\
             \"tokens_predicted\":1,\"tokens_evaluated\":7}}\n\n"
        )
    }

    fn end() -> String {
        format!("data: {}\n\n", WHOLE.replace(" Paris.", ""))
    }

    /// The wire for completions reads it too: `/completions` answers so on some versions.
    fn llama(media: &'static str, body: &str) -> Got {
        let got = on(Wire::LlamaCompletion, media, body);
        assert_eq!(on(Wire::OpenAiCompletions, media, body), got, "{body}");
        got
    }

    #[test]
    fn a_document_and_a_stream_say_the_same() {
        let document = llama(JSON, WHOLE);
        assert_eq!((document.verdict, &*document.text), (Verdict::Ok, " Paris."));
        assert_eq!((document.usage, document.events), ((Some(7), Some(3)), None));
        assert_eq!(document.finish.as_deref(), Some("eos"));
        let body = format!("{}{}{}", piece(" Par"), piece("is."), end());
        let stream = llama(SSE, &body);
        assert_eq!((stream.events, stream.done), (Some(3), true));
        assert_eq!(Got { events: None, done: false, ..stream }, document);
        let stream = llama(SSE, &body);
        for after in ["data: [DONE]\n\n", "data: noise\n\n", "error: {\"code\":500}\n\n"] {
            assert_eq!(llama(SSE, &format!("{body}{after}")), stream, "{after}");
        }
        let cut = llama(SSE, &piece(" Par"));
        assert_eq!((cut.verdict, cut.events, cut.done), (Verdict::Unterminated, Some(1), false));
        let done = llama(SSE, &format!("{}data: [DONE]\n\n", piece("x")));
        assert_eq!(done.verdict, Verdict::Unterminated);
    }

    #[test]
    fn why_it_stopped() {
        let why = r#""truncated":false,"stop_type":"eos""#;
        for (fields, verdict, finish) in [
            (r#""stop_type":"word","stopping_word":"x""#, Verdict::Ok, Some("word")),
            (r#""stop_type":"limit""#, Verdict::Truncated, Some("limit")),
            (r#""stop_type":"eos","truncated":true"#, Verdict::Ok, Some("eos")),
            (r#""stop_type":"limit","truncated":true"#, Verdict::Truncated, Some("limit")),
            (
                r#""stopped_eos":true,"stopped_limit":false,"stopped_word":false"#,
                Verdict::Ok,
                Some("stopped_eos"),
            ),
            (
                r#""stopped_eos":false,"stopped_limit":false,"stopped_word":true"#,
                Verdict::Ok,
                Some("stopped_word"),
            ),
            (
                r#""stopped_eos":false,"stopped_limit":true,"stopped_word":false"#,
                Verdict::Truncated,
                Some("stopped_limit"),
            ),
            (r#""stopped_eos":false,"stopped_limit":false"#, Verdict::Ok, None),
            (r#""timings":null"#, Verdict::Ok, None),
        ] {
            let fields = fields.to_owned();
            let document =
                WHOLE.replace(why, &fields).replace(r#""timings":{"predicted_n":3}"#, "\"x\":0");
            let document = document.replace(r#","stopping_word":"","#, ",");
            let got = llama(JSON, &document);
            assert_eq!((got.verdict, got.finish.as_deref()), (verdict, finish), "{document}");
            let got = llama(SSE, &format!("data: {document}\n\n"));
            assert_eq!((got.verdict, got.finish.as_deref()), (verdict, finish), "{document}");
        }
        // It says that it ended, and that nothing stopped it.
        let none = WHOLE.replace("\"eos\"", "\"none\"");
        assert_eq!(llama(SSE, &format!("data: {none}\n\n")).verdict, Verdict::Unterminated);
        assert_eq!(llama(JSON, &none).verdict, Verdict::Ok);
        assert_eq!(llama(JSON, &WHOLE.replace(" Paris.", " \\n")).verdict, Verdict::Empty);
    }

    #[test]
    fn of_several_prompts_the_first_decides() {
        let second = WHOLE.replace("\"index\":0", "\"index\":1").replace("eos", "limit");
        let got = llama(JSON, &format!("[{second},{WHOLE}]"));
        assert_eq!((got.verdict, &*got.text, got.usage.0), (Verdict::Ok, " Paris.", Some(7)));
        let unnumbered =
            |json: &str| json.replace(r#""index":0,"#, "").replace(r#""index":1,"#, "");
        let list = unnumbered(&format!("[{WHOLE},{second}]"));
        assert_eq!(llama(JSON, &list).verdict, Verdict::Ok);
        let body = format!("data: {second}\n\n{}{}", piece(" Paris."), end());
        let got = llama(SSE, &body);
        assert_eq!((got.verdict, &*got.text, got.events), (Verdict::Ok, " Paris.", Some(3)));
        let facts =
            read(Wire::LlamaCompletion, &response(SSE, body), &TapOptions::default(), &[]).0;
        assert_eq!(facts.choices, 2);
        for body in ["[]", "[7]", "[{}]", "7", "null", "", "<html>", "[{\"stop\":true}"] {
            assert_eq!(llama(JSON, body).verdict, Verdict::Malformed, "{body}");
        }
    }

    #[test]
    fn errors_in_a_200() {
        let error = r#"{"code":500,"message":"m","type":"server_error"}"#;
        for body in [
            format!("error: {error}\n\n"),
            format!("data: {{\"error\":{error}}}\n\n"),
            format!("event: error\ndata: {error}\n\n"),
        ] {
            let got = llama(SSE, &format!("{}{body}", piece("x")));
            assert_eq!((got.verdict, got.events), (Verdict::ProviderError, Some(1)), "{body}");
            assert_eq!(got.code.as_deref(), Some("server_error"));
        }
        let got = llama(JSON, &format!("{{\"error\":{error}}}"));
        assert_eq!((got.verdict, got.cause), (Verdict::ProviderError, Some(ErrorCause::Server)));
        assert_eq!(llama(SSE, "data: {\"content\":\n\n").verdict, Verdict::Malformed);
    }

    #[test]
    fn a_request_is_read() {
        let ask = |body: &str| {
            let body = Some(body.as_bytes());
            read_request(Wire::LlamaCompletion, &Method::POST, "/completion", body)
        };
        let want = RequestFacts {
            stream: Some(true),
            cap: Some(128),
            prompt_chars: 5,
            understood: true,
            effect: Effect::ReadOnly,
            ..RequestFacts::default()
        };
        assert_eq!(ask(r#"{"prompt":"hello","n_predict":128,"stream":true,"n_probs":3}"#), want);
        for (body, cap, chars) in [
            (r#"{"prompt":[12,34,"s",56]}"#, None, 1),
            (r#"{"prompt":["ab","c"],"n_predict":-1}"#, None, 3),
            (r#"{"prompt":[["ab"],[1,2]],"max_tokens":4}"#, Some(4), 2),
            (r#"{"input_prefix":"ab","input_suffix":"c","n_predict":null}"#, None, 3),
            (r#"{"model":null}"#, None, 0),
        ] {
            let facts = ask(body);
            assert_eq!((facts.understood, facts.stream), (true, Some(false)), "{body}");
            assert_eq!((facts.cap, facts.prompt_chars), (cap, chars), "{body}");
        }
        assert_eq!(ask(r#"{"prompt":"a","prompt":"b"}"#), RequestFacts::default());
        assert_eq!(ask(r#"{"model":"m"}"#).model.as_deref(), Some("m"));
    }
}
