//! Checks: which answers they turn from `ok` into `off_target`, and what they leave alone.

use std::{
    collections::HashMap,
    error::Error as _,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use attempt_ledger::{
    CallLayer, Case, CaseId, Check, CheckFn, CheckInput, Checked, ContainsText, Content, GateKind,
    Gates, GradeInput, GraderFn, HasField, IsJson, Ledger, LedgerLayer, LedgerRetry, MatchesRegex,
    MatchesSchema, NonEmpty, Role, RuleError, ScoreLayer, Verdict,
};
use attempt_ledger_tests::*;
use serde_json::{Value, json};
use tower::{Service, ServiceExt};

use Checked::{Failed, NotEvaluated, Passed};

fn content(text: &str) -> Content {
    Content { text: text.into(), ..Content::default() }
}

/// What `check` says of an answer of case `c`.
fn says(check: &impl Check, text: &str) -> Checked {
    check.check(&CheckInput::new(&content(text), &slot("c")))
}

fn case_id(case: &str) -> CaseId {
    CaseId::new(case).expect("id")
}

#[test]
fn non_empty_asks_for_text() {
    let of_tool = Content { tool_calls: vec![Default::default()], ..Content::default() };
    assert_eq!(NonEmpty::new().check(&CheckInput::new(&of_tool, &slot("c"))), Failed);
    for (text, want) in [
        ("", Failed),
        (" \n\t\u{a0}\u{3000}", Failed),
        ("\u{200b}", Passed),
        ("x", Passed),
        ("0", Passed),
    ] {
        assert_eq!(says(&NonEmpty::new(), text), want, "{text:?}");
    }
}

#[test]
fn is_json_takes_one_value() {
    let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
    for (text, want) in [
        ("{}", Passed),
        (" \n[1, \"ü\", null]\t", Passed),
        ("-0", Passed),
        ("1e999", Passed),
        ("\"\\ud83d\\ude00\"", Passed),
        (&deep(100_000), Passed),
        ("", Failed),
        ("NaN", Failed),
        ("01", Failed),
        ("{} {}", Failed),
        ("{\"a\":1,}", Failed),
        ("```json\n{}\n```", Failed),
        ("\u{feff}{}", Failed),
        (&deep(100_000)[1..], Failed),
    ] {
        assert_eq!(says(&IsJson::new(), text), want, "{text:?}");
    }
    assert_eq!(says(&IsJson::new(), &format!("{}1", " ".repeat(1 << 20))), NotEvaluated);
    assert_eq!(says(&IsJson::new(), &format!("{}1", " ".repeat((1 << 20) - 1))), Passed);
}

#[test]
fn has_field_follows_its_pointer() {
    let nested = r#"{"a":{"b":[0,{"c/d":null}],"ü":1},"e~f":false}"#;
    for (pointer, text, want) in [
        ("/a/b/1/c~1d", nested, Passed),
        ("/e~0f", nested, Passed),
        ("/a/ü", nested, Passed),
        ("", "3", Passed),
        ("/a/b/2", nested, Failed),
        ("/a/b/01", nested, Failed),
        ("/A", nested, Failed),
        ("/a", "[]", Failed),
        ("/a", "a", Failed),
        ("/a", r#"{"a":1e999}"#, NotEvaluated),
        ("/0", &format!("{}{}", "[".repeat(127), "]".repeat(127)), Passed),
        ("/0", &format!("{}{}", "[".repeat(128), "]".repeat(128)), NotEvaluated),
    ] {
        assert_eq!(says(&HasField::new(pointer).expect("pointer"), text), want, "{pointer} {text}");
    }
    for bad in ["a", "#/a", "/a~", "/a~2b", "~0"] {
        assert!(HasField::new(bad).is_err(), "{bad}");
    }
    let big = format!("{{\"a\":\"{}\"}}", "x".repeat(1 << 20));
    assert_eq!(says(&HasField::new("/a").expect("pointer"), &big), NotEvaluated);
}

#[test]
fn contains_text_compares_letter_by_letter() {
    for (wanted, text, want) in [
        ("Paris", "It is Paris.", Passed),
        ("paris", "It is Paris.", Failed),
        ("é", "cafe\u{301}", Failed),
        ("", "", Passed),
        ("你好", "说：你好", Passed),
    ] {
        assert_eq!(says(&ContainsText::new(wanted), text), want, "{wanted} {text}");
    }
}

#[test]
fn matches_regex_searches_in_linear_time() {
    for (pattern, text, want) in [
        (r"^\d+$", "42", Passed),
        (r"^\d+$", "42 ", Failed),
        (r"^\d+$", "४२", Passed),
        (r"(?i)straße", "STRAßE", Passed),
        (r"^(a+)+$", &format!("{}b", "a".repeat(100_000)), Failed),
        ("x", &"y".repeat((1 << 20) + 1), NotEvaluated),
    ] {
        let check = MatchesRegex::new(pattern).expect("pattern");
        assert_eq!(says(&check, text), want, "{pattern}");
    }
    for bad in ["(", "(?=a)", r"\1", "a{9999}{9999}"] {
        let error = MatchesRegex::new(bad).expect_err(bad);
        assert!(error.to_string().contains("no regular expression") && error.source().is_some());
    }
}

#[test]
fn matches_schema_is_ready_or_an_error_at_once() {
    let schema = json!({
        "type": "object",
        "required": ["name", "tags"],
        "properties": {
            "name": {"type": "string", "pattern": "^[a-z]+$"},
            "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}, "maxItems": 2},
        },
        "$defs": {"tag": {"enum": ["x", "ü"]}},
    });
    let check = MatchesSchema::new(&schema).expect("schema");
    for (text, want) in [
        (r#"{"name":"a","tags":["x","ü"]}"#, Passed),
        (r#"{"name":"a","tags":["y"]}"#, Failed),
        (r#"{"name":"A","tags":[]}"#, Failed),
        (r#"{"name":"a"}"#, Failed),
        ("[]", Failed),
        ("no JSON", Failed),
        ("", Failed),
        (r#"{"name":"a","tags":[],"n":1e999}"#, NotEvaluated),
    ] {
        assert_eq!(says(&check, text), want, "{text}");
    }
    for bad in [
        json!({"type": "no such type"}),
        json!({"pattern": "("}),
        json!({"pattern": "(?=a)b"}),
        json!({"$ref": "http://127.0.0.1:1/schema.json"}),
        json!({"$ref": "file:///etc/passwd"}),
        json!({"$ref": "#/$defs/none"}),
        json!(3),
    ] {
        assert!(MatchesSchema::new(&bad).is_err(), "{bad}");
    }
}

#[test]
fn each_case_may_have_its_own_value() {
    let each = |value: &str| HashMap::from([(case_id("c"), value.to_owned())]);
    let of_other = |check: &dyn Check| {
        check.check(&CheckInput::new(&content("x"), &slot("other"))) == NotEvaluated
    };
    assert_eq!(says(&ContainsText::by_case(each("x")), "x"), Passed);
    assert!(of_other(&ContainsText::by_case(each("x"))));
    assert_eq!(says(&MatchesRegex::by_case(each("^x$")).expect("pattern"), "y"), Failed);
    assert!(of_other(&MatchesRegex::by_case(each("x")).expect("pattern")));
    assert_eq!(says(&HasField::by_case(each("/x")).expect("pointer"), r#"{"x":1}"#), Passed);
    let schemas: HashMap<CaseId, Value> =
        HashMap::from([(case_id("c"), json!({"type": "number"}))]);
    assert_eq!(says(&MatchesSchema::by_case(schemas).expect("schema"), "-0"), Passed);
    let wrong: Vec<RuleError> = vec![
        MatchesRegex::by_case(each("(")).expect_err("pattern"),
        HasField::by_case(each("x")).expect_err("pointer"),
        MatchesSchema::by_case(HashMap::from([(case_id("c"), json!({"type": 1}))]))
            .expect_err("schema"),
    ];
    for error in wrong {
        assert_eq!(error.case(), Some(&case_id("c")), "{error}");
    }
}

/// With something else to compare with a check is another one.
#[test]
fn the_version_tells_what_is_compared_with() {
    let version = |check: &dyn Check| check.info().version;
    assert_eq!(version(&IsJson::new()), "1");
    assert_eq!(version(&ContainsText::new("a")), version(&ContainsText::new("a")));
    assert_ne!(version(&ContainsText::new("a")), version(&ContainsText::new("b")));
    let pairs = |a: &str, b: &str| {
        let all = [(case_id("1"), a.to_owned()), (case_id("2"), b.to_owned())];
        version(&ContainsText::by_case(all.into_iter().collect()))
    };
    assert_eq!(pairs("a", "b"), pairs("a", "b"));
    assert_ne!(pairs("a", "b"), pairs("b", "a"));
}

fn layer(ledger: &Ledger) -> LedgerLayer {
    LedgerLayer::new(ledger.clone())
}

fn bare_stack(layer: LedgerLayer, inner: Frames) -> Stack<Frames> {
    stack(CallLayer::new(), LedgerRetry::new(), ScoreLayer::none(), layer, inner)
}

fn named(name: &'static str, says: Checked) -> impl Check {
    CheckFn::new(name, "1", move |_: &CheckInput<'_>| says)
}

#[tokio::test(start_paused = true)]
async fn the_first_check_that_fails_decides() {
    let ledger = Ledger::memory();
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let last = CheckFn::new("last", "1", move |_: &CheckInput<'_>| {
        counted.fetch_add(1, Ordering::SeqCst);
        false
    });
    let layer = layer(&ledger)
        .check(named("fine", Passed))
        .check(named("unsure", NotEvaluated))
        .check(named("first", Failed))
        .check(last);
    bare_stack(layer, Frames::new([document("hello", "stop")]))
        .oneshot(chat("c"))
        .await
        .expect("answer");
    let row = rows(&ledger, "c").remove(0);
    assert_eq!(row.verdict, Some(Verdict::OffTarget));
    assert_eq!(row.detail.check.as_ref().map(|l| l.as_str()), Some("first"));
    assert_eq!(row.detail.unchecked.as_ref().map(|l| l.as_str()), Some("unsure"));
    assert_eq!(asked.load(Ordering::SeqCst), 0, "what comes after is not asked");
    assert_eq!(row.remote, Some(attempt_ledger::Remote::Answered));
}

/// It is not repeated unless asked for, and is graded and frozen as content is.
#[tokio::test(start_paused = true)]
async fn an_answer_off_target_is_content() {
    let ledger = Ledger::memory();
    let inner = Frames::new([document("hel", "stop"), document("hello", "stop")]);
    let check = ContainsText::new("hello");
    let mut service = stack(
        CallLayer::new(),
        LedgerRetry::new(),
        score(),
        layer(&ledger).check(check.clone()),
        inner.clone(),
    );
    let response = service.ready().await.expect("ready").call(chat("c")).await.expect("answer");
    assert_eq!(inner.calls(), 1);
    let attempt = attempt_ledger::Attempt::of(&response).expect("attempt");
    assert_eq!((attempt.verdict(), attempt.grade()), (Some(Verdict::OffTarget), Some(0.25)));
    let row = rows(&ledger, "c").remove(0);
    assert_eq!((row.verdict, row.score, row.frozen), (Some(Verdict::OffTarget), Some(0.25), true));
    assert!(row.answer_sha256.is_some());

    let inner = Frames::new([document("hel", "stop"), document("hello", "stop")]);
    let retry = LedgerRetry::new().retry_on([Verdict::OffTarget]);
    let service =
        stack(CallLayer::new(), retry, score(), layer(&ledger).check(check), inner.clone());
    service.oneshot(chat("d")).await.expect("answer");
    assert_eq!(verdicts(&ledger, "d"), ["off_target", "ok"]);
}

/// Only `ok` is looked at: what is refused, cut or empty is so whatever a check says, and what is
/// no content is never content.
#[tokio::test(start_paused = true)]
async fn only_what_is_ok_is_checked() {
    let ledger = Ledger::memory();
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let check = CheckFn::new("never", "1", move |_: &CheckInput<'_>| {
        counted.fetch_add(1, Ordering::SeqCst);
        false
    });
    let inner = Frames::new([
        document("x", "length"),
        document("x", "content_filter"),
        document(" ", "stop"),
        document("x", "stop").status(400),
    ]);
    let mut service = bare_stack(layer(&ledger).check(check), inner);
    for case in ["a", "b", "c", "d"] {
        let _ = service.ready().await.expect("ready").call(chat(case)).await.expect("answer");
    }
    let all: Vec<_> = ["a", "b", "c", "d"].iter().flat_map(|c| verdicts(&ledger, c)).collect();
    assert_eq!(all, ["truncated", "refused", "empty", "rejected"]);
    assert_eq!(asked.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_graders_own_calls_are_not_checked() {
    let ledger = Ledger::memory();
    let layer = layer(&ledger).check(named("no", Failed));
    let case = Case::new(slot("c").role(Role::Grader));
    bare_stack(layer, Frames::new([document("hello", "stop")]))
        .oneshot(with_case(case))
        .await
        .expect("answer");
    assert_eq!(verdicts(&ledger, "c"), ["ok"]);
}

#[tokio::test(start_paused = true)]
async fn a_check_that_panics_has_not_failed() {
    let ledger = Ledger::memory();
    let panics = CheckFn::new("broken", "1", |input: &CheckInput<'_>| -> bool {
        panic!("on {} bytes", input.content.text.len())
    });
    let layer = layer(&ledger).check(panics).check(NonEmpty::new());
    let response = bare_stack(layer, Frames::new([document("hello", "stop")]))
        .oneshot(chat("c"))
        .await
        .expect("answer");
    assert!(text(response.into_body()).await.expect("whole").contains("hello"));
    let row = rows(&ledger, "c").remove(0);
    assert_eq!(row.verdict, Some(Verdict::Ok));
    assert_eq!(row.detail.unchecked.as_ref().map(|l| l.as_str()), Some("broken"));
    assert_eq!(row.detail.check, None);
}

/// The content of a stream is kept for a check though no grader wants it, and a reader that leaves
/// after the stop reason leaves a row that was checked.
#[tokio::test(start_paused = true)]
async fn streams_are_checked_where_they_end() {
    let chunk = |text: &str, stop: &str| -> Step {
        let json = format!(
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}},\"finish_reason\":{stop}}}]}}\n\n"
        );
        json.as_str().into()
    };
    let answer =
        || sse(vec![chunk("hel", "null"), chunk("lo", "\"stop\""), "data: [DONE]\n\n".into()]);
    for (stays, gate) in [(true, GateKind::Head), (false, GateKind::Head), (true, GateKind::Whole)]
    {
        let ledger = Ledger::memory();
        let gates = Gates { plain: GateKind::Whole, stream: gate };
        let layer = layer(&ledger)
            .gates(gates)
            .check(ContainsText::new("hello"))
            .check(ContainsText::new("bye"));
        let response =
            bare_stack(layer, Frames::new([answer()])).oneshot(chat("c")).await.expect("answer");
        let mut body = response.into_body();
        if stays {
            text(body).await.expect("whole");
        } else {
            for _ in 0..2 {
                let _ =
                    http_body_util::BodyExt::frame(&mut body).await.expect("frame").expect("data");
            }
            drop(body);
        }
        let row = rows(&ledger, "c").remove(0);
        assert_eq!(row.verdict, Some(Verdict::OffTarget), "{stays} {gate:?}");
        assert_eq!(row.detail.check.as_ref().map(|l| l.as_str()), Some("contains-text"));
    }
}

/// A stream that breaks is no answer, whatever came before passes.
#[tokio::test(start_paused = true)]
async fn half_an_answer_is_not_checked() {
    let ledger = Ledger::memory();
    let half =
        sse(vec!["data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hel\"}}]}\n\n".into()]);
    let layer = layer(&ledger).check(named("no", Failed));
    let response = bare_stack(layer, Frames::new([half])).oneshot(chat("c")).await.expect("answer");
    let _ = text(response.into_body()).await;
    assert_eq!(verdicts(&ledger, "c"), ["unterminated"]);
}

/// What a grader sees is what the check decided.
#[tokio::test(start_paused = true)]
async fn a_grader_is_told_of_it() {
    let ledger = Ledger::memory();
    let grader = GraderFn::new("verdict", "1", |input: GradeInput| async move {
        Ok(f64::from(u8::from(input.verdict == Verdict::OffTarget)))
    });
    let service = stack(
        CallLayer::new(),
        LedgerRetry::new(),
        ScoreLayer::new(grader),
        layer(&ledger).check(IsJson::new()),
        Frames::new([document("no JSON", "stop")]),
    );
    service.oneshot(chat("c")).await.expect("answer");
    assert_eq!(rows(&ledger, "c").remove(0).score, Some(1.0));
}
