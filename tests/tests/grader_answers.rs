//! Known answers of the graders that come with the crate.

use std::collections::HashMap;

use attempt_ledger::{
    CaseId, CommandGrader, Contains, Content, Exact, GradeInput, Graded, Grader, NumberGrader,
    RegexGrader, SchemaGrader, Verdict,
    core::{AttemptId, GraderAttempts, Label, Ordinal, ToolCall},
};
use attempt_ledger_tests::slot;
use serde_json::{Value, json};

fn case_id(case: &str) -> CaseId {
    CaseId::new(case).expect("id")
}

fn each<T>(value: T) -> HashMap<CaseId, T> {
    HashMap::from([(case_id("c"), value)])
}

fn input(case: &str, text: &str) -> GradeInput {
    let content = Content { text: text.into(), ..Content::default() };
    of_content(case, content)
}

fn of_content(case: &str, content: Content) -> GradeInput {
    let attempt = AttemptId::from_u128(1);
    GradeInput::new(content, Verdict::Ok, slot(case), attempt, Some(Ordinal::FIRST))
}

/// The grade of an answer of case `c`; `None` without one.
async fn grade(grader: &impl Grader, text: &str) -> Option<f64> {
    grader.grade(input("c", text)).await.ok().map(|graded| graded.score)
}

#[tokio::test]
async fn exact_and_contains_forgive_white_space_at_the_ends() {
    let exact = Exact::new(each(" Paris\n".into()));
    let contains = Contains::new(each(" Paris\n".into()));
    for (text, same, within) in [
        ("Paris", 1.0, 1.0),
        ("\u{3000}Paris\t", 1.0, 1.0),
        ("It is Paris.", 0.0, 1.0),
        ("paris", 0.0, 0.0),
        ("", 0.0, 0.0),
    ] {
        assert_eq!(grade(&exact, text).await, Some(same), "{text:?}");
        assert_eq!(grade(&contains, text).await, Some(within), "{text:?}");
    }
    assert!(exact.grade(input("other", "Paris")).await.is_err(), "nothing to compare with");
}

#[test]
fn the_last_number_counts() {
    for (text, want) in [
        ("42", Some(42.0)),
        ("12 + 30 makes 42.", Some(42.0)),
        ("1,234,567.5 in all", Some(1_234_567.5)),
        ("1,2", Some(2.0)),
        ("1234,567", Some(567.0)),
        ("1,234,56", Some(56.0)),
        ("between 3-4", Some(4.0)),
        ("-4", Some(-4.0)),
        ("is −4 °C", Some(-4.0)),
        ("= -.5", Some(-0.5)),
        ("(1)-2", Some(2.0)),
        ("+7", Some(7.0)),
        ("6.02e23", Some(6.02e23)),
        ("6.02E+23 mol", Some(6.02e23)),
        ("1e-3", Some(1e-3)),
        ("2e", Some(2.0)),
        ("5e-", Some(5.0)),
        ("5.", Some(5.0)),
        ("1.2.3", Some(3.0)),
        ("-0", Some(0.0)),
        ("$3.50", Some(3.5)),
        ("50%", Some(50.0)),
        ("7kg", Some(7.0)),
        ("42 (see case_3)", Some(42.0)),
        ("H2", None),
        ("x_1", None),
        ("NaN", None),
        ("inf", None),
        ("-", None),
        ("", None),
        ("४२", None),
        ("é5", None),
        ("答案是42。", None),
        ("答案是 42。", Some(42.0)),
        ("1e999", Some(f64::INFINITY)),
        ("-1e999", Some(f64::NEG_INFINITY)),
        ("1e-999", Some(0.0)),
    ] {
        assert_eq!(NumberGrader::last_number(text), want, "{text:?}");
    }
    let huge = "9".repeat(1 << 20);
    assert_eq!(NumberGrader::last_number(&huge), Some(f64::INFINITY));
    assert_eq!(NumberGrader::last_number(&"-".repeat(1 << 20)), None);
}

#[tokio::test]
async fn a_number_is_right_within_its_tolerance() {
    let of = |n: f64| NumberGrader::new(each(n)).expect("finite");
    let plain = of(1.0);
    let near = of(1.0).tolerance(0.1).expect("tolerance");
    let share = of(200.0).relative_tolerance(0.01).expect("tolerance");
    for (grader, text, want) in [
        (&plain, "1.0", 1.0),
        (&plain, "1.0000001", 0.0),
        (&plain, "none", 0.0),
        (&plain, "1e999", 0.0),
        (&of(0.0), "-0", 1.0),
        (&near, "1.1", 1.0),
        (&near, "0.9", 1.0),
        (&near, "1.11", 0.0),
        (&near, "NaN", 0.0),
        (&share, "198", 1.0),
        (&share, "202", 1.0),
        (&share, "203", 0.0),
        (&of(f64::MAX).tolerance(f64::MAX).expect("tolerance"), "1e999", 0.0),
    ] {
        assert_eq!(grade(grader, text).await, Some(want), "{text}");
    }
    assert!(plain.grade(input("other", "1")).await.is_err());
    for bad in [-1.0, f64::NAN, f64::INFINITY] {
        assert!(of(1.0).tolerance(bad).is_err() && of(1.0).relative_tolerance(bad).is_err());
    }
    assert!(NumberGrader::new(each(f64::NAN)).is_err());
    let wrong = NumberGrader::from_text(each("none".into())).expect_err("no number");
    assert_eq!(wrong.case(), Some(&case_id("c")));
    let told = NumberGrader::from_text(each("about 1,000".into())).expect("number");
    assert_eq!(grade(&told, "1000").await, Some(1.0));
    assert_ne!(near.info().version, plain.info().version);
}

#[tokio::test]
async fn a_pattern_is_found_or_not() {
    let grader = RegexGrader::new(r"(?m)^answer: \p{Lu}$").expect("pattern");
    assert_eq!(grade(&grader, "so\nanswer: Ü\n").await, Some(1.0));
    assert_eq!(grade(&grader, "answer: ü").await, Some(0.0));
    assert_eq!(grade(&grader, &"x".repeat((1 << 20) + 1)).await, None);
    assert!(RegexGrader::new("(").is_err());
    let by_case = RegexGrader::by_case(each("^x$".into())).expect("pattern");
    assert_eq!(grade(&by_case, "x").await, Some(1.0));
    assert!(by_case.grade(input("other", "x")).await.is_err());
    assert!(RegexGrader::by_case(each("[".into())).expect_err("pattern").case().is_some());
}

#[tokio::test]
async fn a_schema_is_met_or_not() {
    let grader = SchemaGrader::new(&json!({"items": {"type": "integer"}})).expect("schema");
    assert_eq!(grade(&grader, "[[1]]").await, Some(0.0));
    assert_eq!(grade(&grader, "[1, -0, 1e3]").await, Some(1.0));
    assert_eq!(grade(&grader, "no JSON").await, Some(0.0));
    assert_eq!(grade(&grader, "[1e999]").await, None);
    assert!(SchemaGrader::new(&json!({"items": 3})).is_err());
    let by_case = SchemaGrader::by_case(each(json!({"const": "ü"}))).expect("schema");
    assert_eq!(grade(&by_case, "\"\\u00fc\"").await, Some(1.0));
    assert!(by_case.grade(input("other", "1")).await.is_err());
}

#[cfg(unix)]
mod command {
    use super::*;

    async fn run(line: &str) -> Result<Graded, String> {
        CommandGrader::shell(line).grade(input("c", "hello")).await.map_err(|e| e.to_string())
    }

    #[tokio::test]
    async fn a_command_prints_a_number() {
        for (line, want) in [
            ("echo 0.5", Some(0.5)),
            ("printf '\\n 1e-3\\t'", Some(1e-3)),
            // Whether it is one that may be a grade is for the ledger's side to say.
            ("echo nan", None),
            ("echo 7", Some(7.0)),
        ] {
            let graded = run(line).await.expect(line);
            assert_eq!(Some(graded.score).filter(|s| !s.is_nan()), want, "{line}");
            assert_eq!(graded.attempts, GraderAttempts::Unknown);
        }
    }

    #[tokio::test]
    async fn a_command_that_fails_gives_no_grade() {
        for (line, why) in [
            ("echo 1; exit 3", "failed: exit status: 3"),
            ("echo 1; kill -9 $$", "failed: signal: 9"),
            ("echo one", "did not print a number"),
            ("echo 1 2", "did not print a number"),
            ("printf '\\377'", "did not print a number"),
            ("true", "did not print a number"),
            ("head -c 65537 /dev/zero", "more than 64 KiB"),
            ("cat /dev/zero", "more than 64 KiB"),
        ] {
            let error = run(line).await.expect_err(line);
            assert!(error.contains(why), "{line}: {error}");
            assert!(!error.contains("hello"), "no answer in an error");
        }
        let missing = CommandGrader::new("/no/such/program").grade(input("c", "x")).await;
        assert!(missing.expect_err("missing").to_string().contains("could not be started"));
    }

    /// 65,536 bytes are still heard.
    #[tokio::test]
    async fn the_bound_is_exact() {
        assert_eq!(run("printf '%65536d' 1").await.expect("fits").score, 1.0);
        assert!(run("printf '%65537d' 1").await.is_err());
    }

    #[tokio::test]
    async fn it_is_told_all_of_the_answer() {
        let dir = tempfile::tempdir().expect("directory");
        let file = dir.path().join("asked");
        let line = format!("cat > {}; echo 1", file.display());
        let grader = CommandGrader::shell(line).expected(each("Paris".into()));
        let content = Content {
            text: "Paris \u{1f600}\n\"".into(),
            tool_calls: vec![ToolCall { name: "f".into(), arguments: "{\"a\": 1}".into() }],
            refusal: Some("no".into()),
            finish_reason: Some(Label::new("stop")),
        };
        grader.grade(of_content("c", content)).await.expect("grade");
        let asked = std::fs::read(&file).expect("file");
        assert_eq!(
            serde_json::from_slice::<Value>(&asked).expect("JSON"),
            json!({
                "run": "r", "case": "c", "epoch": 1, "step": 1, "ordinal": 1, "verdict": "ok",
                "text": "Paris \u{1f600}\n\"",
                "tool_calls": [{"name": "f", "arguments": "{\"a\": 1}"}],
                "refusal": "no", "finish_reason": "stop", "expected": "Paris",
            })
        );
        grader.grade(input("other", "")).await.expect("grade");
        let asked: Value =
            serde_json::from_slice(&std::fs::read(&file).expect("file")).expect("JSON");
        assert_eq!(asked.get("expected"), None);
        assert_eq!(asked["refusal"], Value::Null);
    }

    /// More than a pipe holds, both ways and neither.
    #[tokio::test]
    async fn a_command_need_not_read_and_may_print_first() {
        let long = "x".repeat(1 << 20);
        for line in ["echo 1", "exec 0<&-; echo 1", "printf '%60000d' 1; cat > /dev/null"] {
            let graded = CommandGrader::shell(line).grade(input("c", &long)).await;
            assert_eq!(graded.expect(line).score, 1.0);
        }
    }

    /// Whether a process of this id runs, by what the system lists.
    fn runs(pid: &str) -> bool {
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        state.is_ok_and(|stat| !stat.rsplit(") ").next().unwrap_or("Z").starts_with(['Z', 'X']))
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn letting_go_kills_all_that_it_started() {
        let dir = tempfile::tempdir().expect("directory");
        let file = dir.path().join("pids");
        // The sleeper is a child of the shell's, and holds its output.
        let line =
            format!("sleep 1000 & echo $$ $! > {0}.new; mv {0}.new {0}; wait", file.display());
        let grader = CommandGrader::shell(line);
        let mut grading = Box::pin(grader.grade(input("c", "hello")));
        let pids = loop {
            tokio::select! {
                biased;
                _ = &mut grading => panic!("it goes on"),
                () = tokio::task::yield_now() => {}
            }
            if let Ok(pids) = std::fs::read_to_string(&file) {
                break pids;
            }
        };
        let pids: Vec<&str> = pids.split_whitespace().collect();
        assert_eq!(pids.len(), 2);
        assert!(pids.iter().all(|pid| runs(pid)));
        drop(grading);
        while pids.iter().any(|pid| runs(pid)) {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn the_command_is_a_part_of_the_grader() {
        let version = |line: &str| CommandGrader::shell(line).info().version;
        assert_eq!(version("a"), version("a"));
        assert_ne!(version("a"), version("b"));
        assert_ne!(
            CommandGrader::new("a b").info().version,
            CommandGrader::new("a").arg("b").info().version
        );
        let info = CommandGrader::new("a").name("judge").version("7").range(1.0, 5.0).info();
        assert_eq!((&*info.name, &*info.version, info.low, info.high), ("judge", "7", 1.0, 5.0));
    }
}
