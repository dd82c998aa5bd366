//! `rerun`: an earlier run once more.
#![allow(clippy::expect_used, reason = "helpers of tests")]

mod common;

use attempt_ledger_mock::{MockServer, Script, Step};
use common::{Room, cli, run_args};
use serde_json::Value;

const CASES: &str = r#"{"id":"a","prompt":"<a>","expected":"pong"}
{"id":"b","prompt":"<b>","expected":"ping"}
"#;

async fn runs(dir: &str) -> Vec<Value> {
    let events = cli(&["log", dir, "--events"]).await.exits(0).json();
    events.into_iter().filter(|event| event["kind"] == "run").collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_repeated_with_its_settings_as_another_run() {
    let room = Room::new();
    let (cases, dir) = (room.write("cases.jsonl", CASES), room.arg("ledger"));
    let server = MockServer::start(Script::new([Step::Good])).await.expect("a port");
    let url = server.url();
    let params = r#"{"temperature":0}"#;
    let settings = [
        "--params",
        params,
        "--grader",
        "contains",
        "--attempts",
        "2",
        "--total",
        "90s",
        "--head",
        "1500ms",
        "--budget",
        "4m",
        "--effect",
        "writes",
        "--stream",
        "--epochs",
        "2",
        "--keyed",
    ];
    cli(&run_args(&cases, &url, &dir, &settings)).await.exits(0);
    assert_eq!(server.requests(), 4);
    let before = runs(&dir).await.remove(0);
    let name = before["run"].as_str().expect("a name").to_owned();

    let args = ["rerun", &*dir, "--cases", &*cases, "--params", params];
    cli(&args)
        .await
        .exits(0)
        .says(&format!("repeats run {name}\n"))
        .says(&format!("run {name}-2: "));
    assert_eq!(server.requests(), 8, "nothing is finished in a new run");
    let mut after = runs(&dir).await.remove(1);
    assert_eq!(after["run"], format!("{name}-2"));
    after["run"] = before["run"].clone();
    for field in ["seq", "time", "h", "c"] {
        after[field] = before[field].clone();
    }
    assert_eq!(after, before, "every setting is the same");
    let report = cli(&["report", &dir, "--json"]).await.exits(0).json().remove(0);
    assert!(report["other_runs"].to_string().contains(&name), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_what_the_run_was_made_of_is_refused_before_anything_is_sent() {
    let room = Room::new();
    let (cases, dir) = (room.write("cases.jsonl", CASES), room.arg("ledger"));
    let server = MockServer::start(Script::new([Step::Good])).await.expect("a port");
    let url = server.url();
    let settings = ["--params", r#"{"seed":7}"#, "--grader", "exact", "--run", "nightly"];
    cli(&run_args(&cases, &url, &dir, &settings)).await.exits(0);
    let sent = server.requests();
    let less = room.write("less.jsonl", CASES.lines().next().expect("a line"));
    let changed = room.write("changed.jsonl", CASES.replace("<b>", "<x>"));
    let params = ["--params", r#"{"seed":7}"#];
    for (cases, more, says) in [
        (&cases, &[][..], "run nightly is of another params"),
        (&cases, &["--params", r#"{"seed":8}"#], "run nightly is of another params"),
        (&less, &params, "1 of its cases are not in the file"),
        (&changed, &params, "had another fixture before: b"),
        (&cases, &["--params", r#"{"seed":7}"#, "--grader", "contains"], "another grader"),
        (&cases, &["--params", r#"{"seed":7}"#, "--run", "weekly"], "weekly"),
    ] {
        let mut args = vec!["rerun", &*dir, "--cases", &**cases];
        args.extend(more);
        cli(&args).await.exits(2).complains(says);
    }
    assert_eq!(server.requests(), sent);
    assert_eq!(runs(&dir).await.len(), 1);
    let mut args = vec!["rerun", &*dir, "--run", "nightly", "--cases", &*cases];
    args.extend(params);
    cli(&args).await.exits(0).says("repeats run nightly");
}
