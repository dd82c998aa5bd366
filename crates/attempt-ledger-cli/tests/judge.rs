//! Several graders of one answer, and a model among them.
#![allow(clippy::expect_used, reason = "helpers of tests")]

mod common;

use attempt_ledger_mock::{MockServer, Script, Step};
use common::{Room, cli, command, ran, run_args};
use serde_json::Value;

const CASES: &str = r#"{"id":"a","prompt":"ask <a>","expected":"pong"}
{"id":"b","messages":[{"role":"system","content":"s"},{"role":"user","content":"ask <b>"}],"expected":"ping"}
"#;

/// The case a answers `pong` at once, b after a fault; a judge says 1 of a and 0 of b.
async fn server() -> MockServer {
    let script = Script::by_case([
        ("<a>", Script::new([Step::Good])),
        ("<b>", Script::new([Step::ServerError, Step::Good])),
        // Of the keys that are in a request the longest counts.
        ("JUDGE ask <a>", Script::new([Step::Unavailable]).then(Step::Good.text("of 10, I say 1"))),
        ("JUDGE [{", Script::new([Step::Good.text("Score: 0.0")])),
    ]);
    MockServer::start(script).await.expect("a port")
}

async fn rows(dir: &str) -> Vec<Value> {
    cli(&["log", dir, "--json"]).await.exits(0).json()
}

async fn events(dir: &str, kind: &str) -> Vec<Value> {
    let events = cli(&["log", dir, "--events"]).await.exits(0).json();
    events.into_iter().filter(|event| event["kind"] == kind).collect()
}

async fn report(dir: &str, run: &str) -> Value {
    cli(&["report", dir, "--run", run, "--json"]).await.exits(0).json().remove(0)
}

fn of_role<'a>(rows: &'a [Value], role: &'a str) -> impl Iterator<Item = &'a Value> {
    rows.iter().filter(move |row| row["role"] == role)
}

fn ordinals(rows: &[Value], role: &str) -> Vec<String> {
    let said = |row: &Value| format!("{} {}", row["case"].as_str().unwrap_or(""), row["ordinal"]);
    let mut all: Vec<String> = of_role(rows, role).map(said).collect();
    all.sort();
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_grades_by_calls_of_its_own_and_the_report_is_as_without() {
    let room = Room::new();
    let (cases, dir) = (room.write("cases.jsonl", CASES), room.arg("ledger"));
    let prompt = room.write("judge.txt", "JUDGE {prompt} | {expected} | {answer} | {other}");
    let server = server().await;
    let url = server.url();
    let judged = ["--grader", "model:judge", "--grader-prompt", &prompt, "--run", "judged"];
    let key = ["--api-key-env", "JUDGE_KEY", "--attempts", "2"];
    let args = run_args(&cases, &url, &dir, &[&judged[..], &key].concat());
    let mut command = command(&args);
    command.env("JUDGE_KEY", "SECRET");
    ran(command).await.exits(0);

    let all = rows(&dir).await;
    assert_eq!(ordinals(&all, "subject"), ["a 1", "b 1", "b 2"]);
    // Its fault was repeated, and it graded the diagnostic of b too.
    assert_eq!(ordinals(&all, "grader"), ["a 1", "a 2", "b 1"]);
    let scored = events(&dir, "scored").await;
    assert_eq!(scored.len(), 1);
    assert_eq!((&scored[0]["grader"], &scored[0]["score"]), (&"model:judge".into(), &1.0.into()));
    let of_a: Vec<&Value> = of_role(&all, "grader")
        .filter(|row| row["case"] == "a")
        .map(|row| &row["attempt"])
        .collect();
    let cited: Vec<&Value> =
        scored[0]["grader_attempts"]["cited"].as_array().expect("cited").iter().collect();
    assert_eq!(cited, of_a);

    // What it is asked: the text with all that it names, by the same server and key.
    let asked = server.received().into_iter().filter(|r| r.model().as_deref() == Some("judge"));
    let mut said: Vec<String> = Vec::new();
    for request in asked {
        let key = request.headers.get("authorization").expect("a key").to_str().expect("text");
        assert_eq!(key, "Bearer SECRET");
        let body = request.json().expect("JSON");
        said.push(body["messages"][0]["content"].as_str().expect("text").to_owned());
    }
    said.sort();
    said.dedup();
    let system = r#"[{"role":"system","content":"s"},{"role":"user","content":"ask <b>"}]"#;
    let want = [
        format!("JUDGE {system} | ping | pong | {{other}}"),
        "JUDGE ask <a> | pong | pong | {other}".to_owned(),
    ];
    assert_eq!(said, want);

    // The numbers are those of a rule that grades the same.
    let other = self::server().await;
    let more = ["--grader", "contains", "--run", "ruled", "--attempts", "2"];
    cli(&run_args(&cases, &other.url(), &dir, &more)).await.exits(0);
    let (judged, ruled) = (report(&dir, "judged").await, report(&dir, "ruled").await);
    for part in
        ["quality", "availability", "refused_promotions", "naive", "recovered", "by_verdict"]
    {
        assert_eq!(judged[part], ruled[part], "{part}");
    }
    // Nothing of it is kept.
    let bytes = common::all_bytes(&room.path("ledger"));
    for text in ["SECRET", "JUDGE", "of 10"] {
        assert!(
            !bytes.windows(text.len()).any(|some| some == text.as_bytes()),
            "{text} was stored"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grade_outside_the_range_is_refused_and_its_text_range_and_model_make_another_run() {
    let room = Room::new();
    let line = r#"{"id":"a","prompt":"<a>","expected":"pong"}"#;
    let (cases, dir) = (room.write("cases.jsonl", line), room.arg("ledger"));
    let script = Script::by_case([
        ("How good is it, from 0 (wrong) to 1 (right)?", Script::new([Step::Good.text("7")])),
        ("How good is it, from -10 (wrong) to 10 (right)?", Script::new([Step::Good.text("7")])),
        ("MINE", Script::new([Step::Good.text("none")])),
    ]);
    let script = script.otherwise(Script::new([Step::Good]));
    let server = MockServer::start(script).await.expect("a port");
    let url = server.url();
    let mine = room.write("mine.txt", "MINE {answer}");
    let score = |run: &'static str, more: Vec<String>| {
        let (cases, url, dir) = (cases.clone(), url.clone(), dir.clone());
        async move {
            let more: Vec<&str> = more.iter().map(String::as_str).collect();
            let run = ["--run", run, "--grader", "model:judge"];
            cli(&run_args(&cases, &url, &dir, &[&run[..], &more].concat())).await.exits(0);
            rows(&dir).await.into_iter().rfind(|row| row["role"] == "subject").expect("a row")["score"]
                .clone()
        }
    };
    assert_eq!(score("one", vec![]).await, Value::Null);
    let refused = events(&dir, "grade_refused").await;
    assert_eq!((refused.len(), &refused[0]["why"]), (1, &"out_of_range".into()));
    assert_eq!(score("two", vec!["--grader-range=-10..10".into()]).await, 7.0);
    // No number is no grade, and not the lowest.
    assert_eq!(score("three", vec!["--grader-prompt".into(), mine.clone()]).await, Value::Null);
    assert_eq!(events(&dir, "grade_refused").await.len(), 1);
    let runs = events(&dir, "run").await;
    let mut versions: Vec<String> =
        runs.iter().map(|run| run["graders"][0]["version"].to_string()).collect();
    versions.dedup();
    assert_eq!(versions.len(), 3);
    assert_eq!(
        (&runs[1]["graders"][0]["low"], &runs[1]["graders"][0]["high"]),
        (&(-10.0).into(), &10.0.into())
    );
    // A run is of one of them, and is repeated with it.
    let args = run_args(&cases, &url, &dir, &["--run", "two", "--grader", "model:judge"]);
    cli(&args).await.exits(2).complains("run two is of another grader (model:judge 1-");
    cli(&["rerun", &dir, "--run", "two", "--cases", &cases]).await.exits(0).says("repeats run two");
    let rerun = events(&dir, "run").await.pop().expect("a run");
    assert_eq!(rerun["graders"], runs[1]["graders"]);
    let args = ["rerun", &*dir, "--run", "three", "--cases", &*cases];
    cli(&args).await.exits(2).complains("another grader");
    cli(&[&args[..], &["--grader-prompt", &mine]].concat()).await.exits(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_graders_the_first_is_published_and_another_list_is_another_run() {
    let room = Room::new();
    let (cases, dir) = (room.write("cases.jsonl", CASES), room.arg("ledger"));
    let script = Script::new([Step::Good.text("so: pong")]);
    let server = MockServer::start(script).await.expect("a port");
    let url = server.url();
    let all =
        ["--grader", "exact", "--grader", "contains", "--grader", "command:echo 0.5", "--run", "r"];
    let ran = cli(&run_args(&cases, &url, &dir, &all)).await.exits(0);
    let ran = ran.says("\ngrader: exact 1+").says(
        "other graders of first attempts (not published): command 0.500 (2), contains 0.500 (2)",
    );
    drop(ran);
    let run = events(&dir, "run").await.remove(0);
    let names: Vec<&Value> =
        run["graders"].as_array().expect("a list").iter().map(|grader| &grader["name"]).collect();
    assert_eq!(names, ["exact", "contains", "command"]);
    let rows = rows(&dir).await;
    assert!(rows.iter().all(|row| row["score"] == 0.0), "the published one's: {rows:?}");
    let report = report(&dir, "r").await;
    assert_eq!(
        (&report["quality"]["mean"], &report["graders"]["contains"]["mean"]),
        (&0.0.into(), &0.5.into())
    );

    let sent = server.requests();
    for other in [
        &["--grader", "contains", "--grader", "exact", "--grader", "command:echo 0.5"][..],
        &["--grader", "exact", "--grader", "contains"],
        &["--grader", "exact"],
    ] {
        let args = run_args(&cases, &url, &dir, &[other, &["--run", "r"]].concat());
        cli(&args).await.exits(2).complains("run r is of another grader (exact 1+");
    }
    assert_eq!(server.requests(), sent);
    // It goes on with its own list, and is repeated by the names in the ledger where they say all.
    cli(&run_args(&cases, &url, &dir, &all)).await.exits(0).says("skipped, finished before: 2");
    let two = ["--grader", "exact", "--grader", "contains", "--run", "two"];
    cli(&run_args(&cases, &url, &dir, &two)).await.exits(0);
    cli(&["rerun", &dir, "--run", "two", "--cases", &cases]).await.exits(0);
    let runs = events(&dir, "run").await;
    assert_eq!(runs[runs.len() - 1]["graders"], runs[runs.len() - 2]["graders"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_graders_is_told_before_anything_is_sent() {
    let room = Room::new();
    let (cases, dir) = (room.write("cases.jsonl", CASES), room.arg("ledger"));
    let bare = room.write("bare.jsonl", r#"{"id":"a","prompt":"p"}"#);
    let none = room.write("none.txt", "how good is it?");
    let answer = room.write("answer.txt", "{answer}");
    let server = server().await;
    let url = server.url();
    for (file, more, said) in [
        (
            &cases,
            &["--grader", "exact", "--grader", "exact"][..],
            "a grader named \"exact\" already",
        ),
        (
            &cases,
            &["--grader", "regex:a", "--grader", "regex:b"],
            "a grader named \"regex\" already",
        ),
        (&cases, &["--grader", "model:"], "model needs a setting: model:NAME"),
        (&cases, &["--grader", "model:j", "--grader-range", "1..0"], "has to be the lower one"),
        (&cases, &["--grader", "model:j", "--grader-prompt", &none], "write {answer} where"),
        (&cases, &["--grader", "model:j", "--grader-prompt", "no.txt"], "no.txt could not be read"),
        (&cases, &["--grader-prompt", &answer], "--grader-prompt is of --grader model:NAME alone"),
        (&cases, &["--grader", "exact", "--grader-range", "0..2"], "--grader-range is of --grader"),
        (&bare, &["--grader", "model:j"], "case a has no \"expected\", and a grader is set"),
    ] {
        cli(&run_args(file, &url, &dir, more)).await.exits(2).complains(said);
    }
    assert_eq!(server.connections(), 0);
    assert!(!room.path("ledger").exists());
    // A text without {expected} needs none.
    let more = ["--grader", "model:j", "--grader-prompt", &answer];
    cli(&run_args(&bare, &url, &dir, &more)).await.exits(0);
}
