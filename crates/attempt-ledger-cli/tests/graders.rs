//! What grades and checks an answer.
#![allow(clippy::expect_used, reason = "helpers of tests")]

mod common;

use attempt_ledger_mock::{MockServer, Script, Step};
use common::{Ran, Room, cli, run_args};
use serde_json::{Value, json};

/// A server whose answer to `<case>` is this text.
async fn server(answers: &[(&str, &str)]) -> MockServer {
    let script = answers
        .iter()
        .map(|(case, text)| (format!("<{case}>"), Script::new([Step::Good.text(*text)])));
    MockServer::start(Script::by_case(script)).await.expect("a port")
}

fn cases(room: &Room, expected: &[(&str, Option<&str>)]) -> String {
    let line = |(id, expected): &(&str, Option<&str>)| {
        let mut case = json!({ "id": id, "prompt": format!("<{id}>") });
        if let Some(expected) = expected {
            case["expected"] = (*expected).into();
        }
        case.to_string()
    };
    room.write("cases.jsonl", expected.iter().map(line).collect::<Vec<_>>().join("\n"))
}

/// Verdict and score of each case, and the check that failed.
async fn rows(dir: &str) -> Vec<(String, String, Value)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let rows = cli(&["log", dir, "--json"]).await.exits(0).json();
    let mut rows: Vec<_> = rows
        .iter()
        .map(|row| (text(&row["case"]), text(&row["verdict"]), row["score"].clone()))
        .collect();
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    rows
}

async fn scores(dir: &str) -> Vec<Value> {
    rows(dir).await.into_iter().map(|row| row.2).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_grader_grades_and_another_is_another_run() {
    let room = Room::new();
    let server = server(&[("a", "it is 42"), ("b", r#"{"n": 41}"#)]).await;
    let url = server.url();
    let file = cases(&room, &[("a", Some("42")), ("b", Some("42"))]);
    let schema = room.write("schema.json", r#"{"type": "object", "required": ["n"]}"#);
    let schema = format!("json-schema:{schema}");
    let command = r#"command:grep -q '"expected":"42"' && echo 0.25"#;
    let mut names = std::collections::BTreeSet::new();
    let table = [
        ("exact", [json!(0.0), json!(0.0)]),
        ("contains", [json!(1.0), json!(0.0)]),
        ("regex", [json!(1.0), json!(0.0)]),
        ("regex:^\\{", [json!(0.0), json!(1.0)]),
        ("number", [json!(1.0), json!(0.0)]),
        ("number:1", [json!(1.0), json!(1.0)]),
        (&*schema, [json!(0.0), json!(1.0)]),
        (command, [json!(0.25), json!(0.25)]),
        ("command:exit 1", [Value::Null, Value::Null]),
    ];
    for (n, (grader, want)) in table.iter().enumerate() {
        let dir = room.arg(&format!("ledger-{n}"));
        let ran = cli(&run_args(&file, &url, &dir, &["--grader", grader])).await.exits(0);
        assert_eq!(&scores(&dir).await[..], &want[..], "{grader}");
        names.insert(ran.out.split([' ', ':']).nth(1).expect("a name").to_owned());
    }
    assert_eq!(names.len(), table.len(), "each is another run: {names:?}");
    // So is the same file with another content.
    let before = cli(&run_args(&file, &url, &room.arg("one"), &["--grader", &schema])).await;
    room.write("schema.json", r#"{"type": "array"}"#);
    let after = cli(&run_args(&file, &url, &room.arg("two"), &["--grader", &schema])).await;
    let name = |ran: &Ran| ran.out.split([' ', ':']).nth(1).map(str::to_owned);
    assert_ne!(name(&before), name(&after));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_grader_needs_is_there_before_anything_is_sent() {
    let room = Room::new();
    let server = server(&[]).await;
    let (url, dir) = (server.url(), room.arg("ledger"));
    let bad = room.write("bad.json", r#"{"type": "no such type"}"#);
    let broken = room.write("broken.json", "{");
    let some = cases(&room, &[("a", Some("forty")), ("b", None)]);
    for grader in ["exact", "contains", "regex", "number"] {
        let ran = cli(&run_args(&some, &url, &dir, &["--grader", grader])).await.exits(2);
        ran.complains("line 2: case b has no \"expected\", and a grader is set");
    }
    let file = cases(&room, &[("a", Some("(forty"))]);
    let (none, bad_check) = (room.arg("none.json"), format!("json-schema:{bad}"));
    for (more, said) in [
        (["--grader", "number"], &["case a", "no number"][..]),
        (["--grader", "regex"], &["case a"]),
        (["--grader", "regex:("], &["--grader", "regular expression"]),
        (["--grader", "number:-1"], &["tolerance"]),
        (["--grader", "json-schema"], &["json-schema:FILE"]),
        (["--grader", &format!("json-schema:{none}")], &["none.json could not be read"]),
        (["--grader", &format!("json-schema:{broken}")], &["broken.json is no JSON", "line 1"]),
        (["--grader", &bad_check], &["bad.json is no JSON Schema"]),
        (["--grader", "command:"], &["command:LINE"]),
        (["--grader", "best"], &["exact, contains, regex, number"]),
        (["--check", "json:x"], &["has no setting"]),
        (["--check", "field:user"], &["--check"]),
        (["--check", "contains:"], &["contains needs a setting"]),
        (["--check", "regex:["], &["--check"]),
        (["--check", &bad_check], &["bad.json is no JSON Schema"]),
        (["--check", "good"], &["non-empty, json"]),
    ] {
        let ran = cli(&run_args(&file, &url, &dir, &more)).await.exits(2);
        for said in said {
            assert!(ran.err.contains(said), "{said:?} for {more:?}:\n{}", ran.err);
        }
    }
    assert_eq!(server.connections(), 0);
    assert!(!room.path("ledger").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_that_fails_makes_an_answer_off_target_and_another_set_another_run() {
    let room = Room::new();
    let server = server(&[("a", r#"{"n": 1}"#), ("b", "pong")]).await;
    let url = server.url();
    let file = cases(&room, &[("a", Some("pong")), ("b", Some("pong"))]);
    let schema = room.write("schema.json", r#"{"required": ["n"]}"#);
    let schema = format!("json-schema:{schema}");
    for (n, (checks, off)) in [
        (&["json"][..], &["b"][..]),
        (&["non-empty"], &[]),
        (&[&*schema], &["b"]),
        (&["field:/n"], &["b"]),
        (&["field:/m"], &["a", "b"]),
        (&["contains:pong"], &["a"]),
        (&["regex:^p.*g$"], &["a"]),
        (&["contains:n", "contains:g"], &["a"]),
    ]
    .iter()
    .enumerate()
    {
        let dir = room.arg(&format!("ledger-{n}"));
        let mut more = vec!["--grader", "exact", "--run", "r"];
        checks.iter().for_each(|check| more.extend(["--check", check]));
        cli(&run_args(&file, &url, &dir, &more)).await.exits(0);
        let rows = rows(&dir).await;
        let got: Vec<&str> =
            rows.iter().filter(|row| row.1 == "off_target").map(|row| &*row.0).collect();
        assert_eq!(got, *off, "{checks:?}");
        assert_eq!(rows[1].2, 1.0, "graded all the same");
        let events = cli(&["log", &dir, "--events"]).await.exits(0).json();
        let run = events.iter().find(|event| event["kind"] == "run").expect("a run");
        let names: std::collections::BTreeSet<_> = run["checks"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|c| c["name"].to_string())
            .collect();
        assert_eq!(names.len(), checks.len(), "each has a name of its own: {names:?}");
        // Without them it is another run.
        cli(&run_args(&file, &url, &dir, &["--grader", "exact", "--run", "r"]))
            .await
            .exits(2)
            .complains("run r is of another set of checks (")
            .complains(", not none)");
        let sent = server.requests();
        cli(&run_args(&file, &url, &dir, &["--grader", "exact"])).await.exits(0);
        assert_eq!(server.requests(), sent + 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grade_that_is_not_given_is_told_with_its_reason() {
    let room = Room::new();
    let server = server(&[("a", "it is 42"), ("b", "no")]).await;
    let url = server.url();
    let file = cases(&room, &[("a", None), ("b", None)]);
    for (n, (line, said)) in [
        ("exit 3", Some(r#"the grader "sh" failed: exit status: 3"#)),
        ("echo it is 42", Some(r#"the grader "sh" did not print a number"#)),
        ("echo 5", Some("5 is beyond its range, 0 to 1")),
        ("echo NaN", Some("NaN is beyond its range, 0 to 1")),
        ("echo 1", None),
    ]
    .into_iter()
    .enumerate()
    {
        let (dir, grader) = (room.arg(&format!("ledger-{n}")), format!("command:{line}"));
        let ran = cli(&run_args(&file, &url, &dir, &["--grader", &grader])).await.exits(0);
        let warning = "warning: the grader command gave no grade to 2 answers; the last time: ";
        match said {
            Some(said) => drop(ran.complains(&format!("{warning}{said}\n"))),
            None => assert!(!ran.err.contains("gave no grade"), "{}", ran.err),
        }
    }
}
