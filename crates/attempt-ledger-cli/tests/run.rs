//! `run` against a server: what is sent, skipped, gone on with, and told.
#![allow(clippy::expect_used, reason = "helpers of tests")]

mod common;

use attempt_ledger_mock::{MockServer, RefusedAddr, Script, Step};
use common::{Ran, Room, cli, run_args, server};
use serde_json::json;

const THREE: &str = r#"{"id":"good","prompt":"say <good>","expected":"pong"}
{"id":"flaky","messages":[{"role":"user","content":"say <flaky>"}],"expected":"pong","params":{"seed":7}}

{"id":"down","prompt":"say <down>","expected":"ping","fixture":{"set":[1,2]}}
"#;

/// Case, ordinal, cause, verdict, score and diagnostic of each attempt, by case and ordinal.
async fn rows(dir: &str) -> Vec<String> {
    let ran = cli(&["log", dir, "--json"]).await.exits(0);
    let mut rows: Vec<String> = ran
        .json()
        .iter()
        .map(|row| {
            let words = ["case", "ordinal", "cause", "verdict", "score", "diagnostic"];
            words.map(|word| row[word].to_string().replace('"', "")).join(" ")
        })
        .collect();
    rows.sort();
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_goes_on_where_it_stopped() {
    let room = Room::new();
    let (cases, dir) = (room.write("cases.jsonl", THREE), room.arg("ledger"));
    let server = server().await;
    let url = server.url();
    let more = ["--attempts", "2", "--grader", "exact", "--params", r#"{"temperature":0}"#];
    let args = run_args(&cases, &url, &dir, &more);

    let first = cli(&args)
        .await
        .exits(0)
        .says(": 3 cases, 4 at once")
        .says("worst case: 16m a call, 16m for all (1 x 16m)")
        .says("  16m a call: budget 15m, ledger 30s, grader 30s")
        .says("coverage 33.3% of at least 95.0%: FAIL")
        .complains("[3/3] ");
    // Progress is on standard error alone.
    assert!(!first.out.contains("[3/3]"), "{}", first.out);
    assert_eq!(server.requests(), 5);
    let mut want = vec![
        "down 1 initial server_error null null",
        "down 2 retry server_error null null",
        "flaky 1 initial server_error null null",
        "flaky 2 retry ok null 1.0",
        "good 1 initial ok 1.0 null",
    ];
    assert_eq!(rows(&dir).await, want);
    let body = server.received().into_iter().find_map(|r| r.json()).expect("a body");
    assert_eq!(
        (&body["model"], &body["temperature"], &body["stream"]),
        (&json!("m"), &json!(0), &json!(false))
    );

    // Finished cases are skipped; the other goes on with its next ordinal.
    let name = first.out.split([' ', ':']).nth(1).expect("a name").to_owned();
    assert!(!first.out.contains("going on"), "{}", first.out);
    cli(&args)
        .await
        .exits(0)
        .says(&format!("going on with run {name}: 2 finished, 1 left"))
        .says("skipped, finished before: 2");
    assert_eq!(server.requests(), 6);
    want.insert(2, "down 3 recall ok null 0.0");
    assert_eq!(rows(&dir).await, want);
    cli(&args).await.exits(0).says("skipped, finished before: 3");
    assert_eq!(server.requests(), 6);

    // The order of the lines, and streaming, make no other run.
    let mut lines: Vec<&str> = THREE.lines().collect();
    lines.reverse();
    room.write("cases.jsonl", lines.join("\n"));
    let streamed = [&args[..], &["--stream"]].concat();
    cli(&streamed)
        .await
        .exits(0)
        .says("skipped, finished before: 3")
        .says("settings changed at row");

    // Another grader, another model, or --fresh does.
    let contains = run_args(&cases, &url, &dir, &["--grader", "contains"]);
    cli(&contains).await.exits(0).says("other runs of these cases in this ledger");
    assert_eq!(server.requests(), 9);
    let other = run_args(&cases, &url, &dir, &["--grader", "contains", "--model", "n"]);
    assert_eq!(cli(&other).await.code, 2, "--model is given twice");
    let fresh = run_args(&cases, &url, &dir, &["--grader", "contains", "--fresh"]);
    cli(&fresh).await.exits(0).says("-2: 3 cases");
    assert_eq!(server.requests(), 12);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_explicit_run_is_of_one_thing() {
    let room = Room::new();
    let (cases, dir) = (room.write("cases.jsonl", THREE), room.arg("ledger"));
    let server = server().await;
    let url = server.url();
    let run = |more: &[&'static str], url: &str, model: &'static str| {
        let mut args = vec!["run", &*cases, "--base-url", url, "--model", model, "--ledger", &*dir];
        args.extend(["--run", "mine", "--attempts", "3"]);
        args.extend(more);
        let args: Vec<String> = args.into_iter().map(str::to_owned).collect();
        async move { cli(&args.iter().map(String::as_str).collect::<Vec<_>>()).await }
    };
    run(&["--grader", "exact"], &url, "m").await.exits(0).says("run mine");
    let sent = server.requests();
    let conflicts: [(Ran, &[&str]); 5] = [
        (run(&["--grader", "exact"], &format!("{url}/other"), "m").await, &["another URL"]),
        (run(&["--grader", "exact"], &url, "n").await, &["another model", "\"m\", not \"n\""]),
        (
            run(&["--grader", "exact", "--params", r#"{"top_p":1}"#], &url, "m").await,
            &["another params"],
        ),
        (run(&[], &url, "m").await, &["another grader (exact 1+", ", not none)"]),
        (
            run(&["--grader", "contains"], &format!("{url}/x"), "n").await,
            &["URL", "model", "grader"],
        ),
    ];
    for (ran, named) in conflicts {
        let ran = ran.exits(2).complains("run mine is of another").complains("hint: ");
        for name in named {
            assert!(ran.err.contains(name), "{name} in {}", ran.err);
        }
    }
    assert_eq!(server.requests(), sent, "nothing was sent");

    // Other clocks are another event of the same run, which the report lists.
    run(&["--grader", "exact", "--idle", "5s", "--total", "2m"], &url, "m")
        .await
        .exits(0)
        .says("idle 1m to 5s, total 10m to 2m");
    cli(&["report", &dir]).await.exits(0).says("idle 1m to 5s");

    // A case that was changed is another fixture.
    room.write("cases.jsonl", THREE.replace("say <good>", "say <better>"));
    let sent = server.requests();
    run(&["--grader", "exact"], &url, "m")
        .await
        .exits(2)
        .complains("1 case of run mine had another fixture before: good");
    assert_eq!(server.requests(), sent);
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_are_held_whole_and_graded_before_the_retry() {
    let room = Room::new();
    let cases = room.write("cases.jsonl", r#"{"id":"a","prompt":"x","expected":"pong"}"#);
    let dir = room.arg("ledger");
    let script = Script::new([Step::EndWithoutStop, Step::CutInChunk, Step::Good]);
    let server = MockServer::start(script).await.expect("a port");
    let url = server.url();
    cli(&run_args(&cases, &url, &dir, &["--stream", "--grader", "contains"])).await.exits(0);
    assert_eq!(
        rows(&dir).await,
        [
            "a 1 initial unterminated null null",
            "a 2 retry transport null null",
            "a 3 retry ok null 1.0"
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_reached_is_told_by_its_kind() {
    let room = Room::new();
    let cases = room.write("cases.jsonl", r#"{"id":"a","prompt":"x"}"#);
    let server = server().await;
    let refused = RefusedAddr::new().expect("a port");
    let plain = server.url().replace("http://", "https://");
    for (url, kind) in
        [("http://no-such-host.invalid/v1", "dns"), (&refused.url(), "connect"), (&plain, "tls")]
    {
        let dir = room.arg(kind);
        cli(&run_args(&cases, url, &dir, &["--attempts", "1"]))
            .await
            .exits(0)
            .says("1 transport")
            .complains(&format!("transport ({kind}) at ordinal 1"));
        let row = cli(&["log", &dir, "--json"]).await.exits(0).json().remove(0);
        assert_eq!((&row["detail"]["kind"], &row["remote"]), (&json!(kind), &json!("not_reached")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_have_written_is_not_repeated() {
    let room = Room::new();
    let cases = room.write("cases.jsonl", r#"{"id":"a","prompt":"x"}"#);
    let dir = room.arg("ledger");
    let server = MockServer::start(Script::new([Step::Reset, Step::Good])).await.expect("a port");
    let url = server.url();
    cli(&run_args(&cases, &url, &dir, &["--effect", "writes"])).await.exits(0);
    assert_eq!(rows(&dir).await, ["a 1 initial transport null null"]);
    assert_eq!(server.requests(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_larger_than_a_row_is_written_in_batches() {
    let room = Room::new();
    let long = "\\\"".repeat(120);
    let lines = |n| format!("{{\"id\":\"{long}{n}\",\"prompt\":\"x\"}}\n");
    let cases = room.write("cases.jsonl", (0..300).map(lines).collect::<String>());
    let dir = room.arg("ledger");
    let server = server().await;
    let url = server.url();
    cli(&run_args(&cases, &url, &dir, &["--concurrency", "32"])).await.exits(0);
    assert_eq!(server.requests(), 300);
    let events = cli(&["log", &dir, "--events"]).await.exits(0);
    let planned = events.json().iter().filter(|e| e["kind"] == "planned").count();
    assert!(planned > 1, "{planned}");
    let report = cli(&["report", &dir, "--json"]).await.exits(0).json().remove(0);
    assert_eq!(report["quality"]["planned"], 300);
}

/// Nothing that must not be kept is in any output or file, however much is logged.
#[tokio::test(flavor = "multi_thread")]
async fn no_key_prompt_or_answer_is_kept_or_logged() {
    let room = Room::new();
    let cases = room.write(
        "cases.jsonl",
        r#"{"id":"a","prompt":"PROMPT-CANARY <good>","expected":"EXPECTED-CANARY","params":{"stop":"PARAM-CANARY"},"fixture":"FIXTURE-CANARY"}
{"id":"b","prompt":"PROMPT-CANARY <bad>","expected":"EXPECTED-CANARY"}"#,
    );
    let dir = room.arg("ledger");
    let echo = Step::Status {
        status: 401,
        headers: vec![("set-cookie".into(), "COOKIE-CANARY".into())],
        body: r#"{"error":{"message":"bad key KEY-CANARY","code":"no such key: KEY-CANARY"}}"#
            .into(),
    };
    let script = Script::by_case([
        ("<good>", Script::new([Step::Good.text("ANSWER-CANARY").finish("FINISH CANARY")])),
        ("<bad>", Script::new([echo])),
    ]);
    let server = MockServer::start(script).await.expect("a port");
    let url = server.url();
    let more = ["--api-key-env", "A_KEY", "--grader", "exact", "-vvv"];
    let mut command = common::command(&run_args(&cases, &url, &dir, &more));
    command.env("A_KEY", "KEY-CANARY");
    let ran = common::ran(command)
        .await
        .exits(0)
        .complains("/v1/chat/completions")
        .complains("status=401");
    let sent = server.received();
    assert!(sent.iter().all(|r| r.headers["authorization"] == "Bearer KEY-CANARY"));
    let mut all = common::all_bytes(&room.path("ledger"));
    all.extend(ran.out.bytes());
    all.extend(ran.err.bytes());
    for args in [&["log", &*dir][..], &["log", &*dir, "--json"], &["report", &*dir]] {
        all.extend(cli(args).await.exits(0).out.bytes());
    }
    assert!(!String::from_utf8_lossy(&all).contains("CANARY"));
}

#[tokio::test(flavor = "multi_thread")]
async fn expected_answers_without_a_grader_are_warned_of_before_anything_is_sent() {
    let room = Room::new();
    let (cases, dir) = (room.write("cases.jsonl", THREE), room.arg("ledger"));
    let server = server().await;
    let url = server.url();
    let ran = cli(&run_args(&cases, &url, &dir, &[]))
        .await
        .exits(0)
        .complains("warning: the cases have \"expected\", but no --grader is set")
        .complains("answers are not kept to be graded later")
        .says("  15m 30s a call: budget 15m, ledger 30s\n")
        .says("not graded: no grader is set")
        .says("time to first content: not measured: the answers came as documents");
    let (warned, sent) = (ran.err.find("warning:"), ran.err.find("[1/3]"));
    assert!(warned < sent, "{}", ran.err);
    let graded = run_args(&cases, &url, &dir, &["--grader", "exact"]);
    let ran = cli(&graded).await.exits(0);
    assert!(!ran.err.contains("warning:"), "{}", ran.err);
    let some =
        "{\"id\":\"x\",\"prompt\":\"x\",\"expected\":\"y\"}\n{\"id\":\"y\",\"prompt\":\"y\"}\n";
    let some = room.write("some.jsonl", some);
    cli(&run_args(&some, &url, &dir, &[])).await.exits(0).complains("1 of 2 cases have");
    let none = room.write("none.jsonl", r#"{"id":"z","prompt":"x"}"#);
    let ran = cli(&run_args(&none, &url, &dir, &[])).await.exits(0);
    assert!(!ran.err.contains("warning:"), "{}", ran.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_says_why_and_the_log_which_case_and_verdict() {
    let room = Room::new();
    let status = |status: u16, code: &str| Step::Status {
        status,
        headers: vec![],
        body: format!(r#"{{"error":{{"message":"no","code":"{code}","type":"{code}"}}}}"#).into(),
    };
    let script = Script::by_case([
        ("<key>", Script::new([status(401, "invalid_api_key")])),
        ("<flaky>", Script::new([Step::ServerError, Step::Good])),
    ]);
    let server = MockServer::start(script).await.expect("a port");
    let url = server.url();
    let line = |case| format!("{{\"id\":\"{case}\",\"prompt\":\"<{case}>\"}}\n");
    let cases = room.write("cases.jsonl", ["key", "flaky"].map(line).concat());
    let dir = room.arg("ledger");
    let ran = cli(&run_args(&cases, &url, &dir, &["-v"]))
        .await
        .exits(0)
        .complains("key: rejected (401) at ordinal 1  |  quality - (n 0)  faults ")
        .complains("flaky: ok at ordinal 2")
        .says("1 of 2 attempts");
    for words in [
        &["attempt{case=flaky ", "status=500"][..],
        &["ended case=flaky ordinal=1 verdict=\"server_error\""],
        &["ended case=flaky ordinal=2 verdict=\"ok\""],
        &["ended case=key ordinal=1 verdict=\"rejected\""],
    ] {
        let has = |line: &str| words.iter().all(|word| line.contains(word));
        assert!(ran.err.lines().any(has), "{words:?} in {}", ran.err);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_takes_too_long_is_its_own_deadline() {
    let room = Room::new();
    let cases = room.write("cases.jsonl", r#"{"id":"a","prompt":"x"}"#);
    let dir = room.arg("ledger");
    let server = MockServer::start(Script::new([Step::StallBeforeHead])).await.expect("a port");
    let url = server.url();
    let more = ["--head", "200ms", "--attempts", "1", "--run", "r"];
    cli(&run_args(&cases, &url, &dir, &more))
        .await
        .exits(0)
        .complains("a: deadline (head) at ordinal 1");
    let events = cli(&["log", &dir, "--events"]).await.exits(0).json();
    let run = events.iter().find(|event| event["kind"] == "run").expect("a run");
    assert_eq!(run["limits"]["head_us"], 200_000);
    // Off unless given, and a change is listed.
    let server = MockServer::start(Script::new([Step::Good])).await.expect("a port");
    let url = server.url();
    let off = room.arg("off");
    cli(&run_args(&cases, &url, &off, &["--run", "r"])).await.exits(0);
    cli(&run_args(&cases, &url, &off, &["--run", "r", "--head", "5s"]))
        .await
        .exits(0)
        .says("head off to 5s");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_effect_that_changes_is_listed() {
    let room = Room::new();
    let cases = room.write("cases.jsonl", r#"{"id":"a","prompt":"x"}"#);
    let (server, dir) = (server().await, room.arg("ledger"));
    let url = server.url();
    cli(&run_args(&cases, &url, &dir, &["--run", "r", "--effect", "writes"])).await.exits(0);
    cli(&run_args(&cases, &url, &dir, &["--run", "r", "--effect", "read_only"]))
        .await
        .exits(0)
        .says("effect writes to read_only");
    let events = cli(&["log", &dir, "--events"]).await.exits(0).json();
    let runs = events.iter().filter(|event| event["kind"] == "run");
    let effects: Vec<_> = runs.map(|event| event["retry"]["effect"].clone()).collect();
    assert_eq!(effects, ["writes", "read_only"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_explicit_run_keeps_its_expected_answers() {
    let room = Room::new();
    let (server, dir) = (server().await, room.arg("ledger"));
    let url = server.url();
    let run = async |cases: &[(&str, &str)]| {
        let lines = cases.iter().map(|(id, expected)| {
            json!({ "id": id, "prompt": "<down>", "expected": expected, "fixture": 1 }).to_string()
        });
        let cases = room.write("cases.jsonl", lines.collect::<Vec<_>>().join("\n"));
        let more = ["--run", "r", "--grader", "exact", "--attempts", "1"];
        cli(&run_args(&cases, &url, &dir, &more)).await
    };
    run(&[("a", "pong"), ("b", "x")]).await.exits(0);
    let sent = server.requests();
    run(&[("a", "ping"), ("b", "x")])
        .await
        .exits(2)
        .complains("run r is of another set of expected answers (exact 1+");
    assert_eq!(server.requests(), sent, "nothing was sent");
    // The order shapes nothing, and neither do cases that come new, or come alone at first.
    run(&[("b", "x"), ("a", "pong")]).await.exits(0);
    run(&[("b", "x"), ("a", "pong"), ("c", "y")]).await.exits(0).says("grader exact 1+");
    run(&[("d", "z")]).await.exits(0);
    run(&[("a", "pong"), ("b", "x"), ("c", "y")]).await.exits(0);
    run(&[("a", "pong"), ("b", "x"), ("c", "z")]).await.exits(2);
    run(&[("d", "y")]).await.exits(2).complains("another set of expected answers");
    // Grades say what they are against.
    let events = cli(&["log", &dir, "--events"]).await.exits(0).out;
    assert!(!events.contains(r#""version":"1""#), "{events}");
}
