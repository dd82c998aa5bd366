//! Ctrl-C, once and twice, and a ledger that is in use meanwhile.
#![allow(clippy::expect_used, reason = "helpers of tests")]

mod common;

use std::{sync::Arc, time::Duration};

use attempt_ledger_mock::{MockServer, Play, Script, Step};
use common::{Room, await_line, cli, command, finish, interrupt, run_args, stderr_lines};
use tokio::sync::Notify;

const CASES: &str = "{\"id\":\"a\",\"prompt\":\"<a>\"}\n{\"id\":\"b\",\"prompt\":\"<b>\"}\n{\"id\":\"c\",\"prompt\":\"<c>\"}\n";

/// A server whose first answer to `<a>` is this step, and a sign of its first request.
async fn server(step: impl Into<Play>) -> (MockServer, Arc<Notify>) {
    let script = Script::by_case([("<a>", Script::new([step.into(), Play::from(Step::Good)]))]);
    let server = MockServer::start(script).await.expect("a port");
    let first = Arc::new(Notify::new());
    let sign = Arc::clone(&first);
    server.on_request(move |_| sign.notify_one());
    (server, first)
}

#[tokio::test(flavor = "multi_thread")]
async fn once_finishes_what_is_open_and_the_same_command_goes_on() {
    let room = Room::new();
    let (cases, dir) = (room.write("cases.jsonl", CASES), room.arg("ledger"));
    // Long enough for the signal to come first, by far.
    let (server, first) = server(Step::SlowFirstByte(Duration::from_secs(2))).await;
    let url = server.url();
    let args = run_args(&cases, &url, &dir, &["--concurrency", "1"]);
    let child = command(&args).spawn().expect("spawned");
    first.notified().await;
    interrupt(&child);
    finish(child)
        .await
        .exits(1)
        .complains(
            "stopping: 1 call goes on to its end (at most 15m 30s); Ctrl-C again abandons it",
        )
        .complains("[1/3] a: ok at ordinal 1")
        .says("not started: 2");
    assert_eq!(server.requests(), 1);
    cli(&args).await.exits(0).says("skipped, finished before: 1");
    assert_eq!(server.requests(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn twice_lets_go_and_names_the_cases_that_lost_their_first_attempt() {
    let room = Room::new();
    let (cases, dir) = (room.write("cases.jsonl", CASES), room.arg("ledger"));
    let (server, first) = server(Step::StallBeforeHead).await;
    let url = server.url();
    let args = run_args(&cases, &url, &dir, &["--concurrency", "1"]);
    let mut child = command(&args).spawn().expect("spawned");
    let mut lines = stderr_lines(&mut child);
    first.notified().await;

    // Its ledger is in use: others may read it, and not write.
    let pid = child.id().expect("it runs");
    cli(&args).await.exits(3).complains(&format!("is held by process {pid} on "));
    let row = cli(&["log", &dir, "--json"]).await.exits(0).json().remove(0);
    assert_eq!(row["verdict"], serde_json::Value::Null, "open while its writer lives");
    let attempt = row["attempt"].as_str().expect("an id").to_owned();
    cli(&["note", &dir, &attempt, "x"]).await.exits(3).complains("is held by process");

    interrupt(&child);
    await_line(&mut lines, "stopping:").await;
    interrupt(&child);
    finish(child)
        .await
        .exits(1)
        .says("abandoned: case a lost its first attempt")
        .says("not started: 2");
    assert_eq!(server.requests(), 1);
    let row = cli(&["log", &dir, "--json"]).await.exits(0).json().remove(0);
    assert_eq!(row["verdict"], "abandoned");
    assert_eq!(row["remote"], "unknown");

    // It goes on with the next ordinal; the first is never had again.
    cli(&args).await.exits(0);
    let rows = cli(&["log", &dir, "--json", "--case", "a"]).await.exits(0).json();
    assert_eq!(rows.len(), 2);
    assert_eq!((&rows[1]["ordinal"], &rows[1]["cause"]), (&2.into(), &"recall".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_run_is_gone_on_with_by_its_name() {
    let room = Room::new();
    let (cases, dir) = (room.write("cases.jsonl", CASES), room.arg("ledger"));
    let (server, first) = server(Step::SlowFirstByte(Duration::from_secs(2))).await;
    let url = server.url();
    let more = ["--concurrency", "1"];
    let child = command(&run_args(&cases, &url, &dir, &["--concurrency", "1", "--fresh"])).spawn();
    let child = child.expect("spawned");
    first.notified().await;
    interrupt(&child);
    let ran = finish(child).await.exits(1);
    let run = ran.out.strip_prefix("run ").and_then(|rest| rest.split(':').next());
    let run = run.expect("its name").to_owned();
    let ran = ran.says(&format!("not started: 2; `--run {run}` in place of --fresh goes on"));
    assert!(!ran.out.contains("the same command"), "{}", ran.out);
    let mut args = run_args(&cases, &url, &dir, &more);
    args.extend(["--run", &*run]);
    cli(&args).await.exits(0).says("skipped, finished before: 1");
}

/// A pipe of one page, with so little room left that the announcement fits and the report does not.
fn narrow_pipe() -> (std::io::PipeReader, std::io::PipeWriter) {
    const PAGE: usize = 4096;
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    rustix::pipe::fcntl_setpipe_size(&writer, PAGE).expect("set");
    std::io::Write::write_all(&mut writer, &[b'.'; PAGE - 600]).expect("written");
    (reader, writer)
}

/// The calls are over, and nobody reads the report.
#[tokio::test(flavor = "multi_thread")]
async fn a_report_that_hangs_is_ended_by_the_second_signal_after_the_calls() {
    let room = Room::new();
    let cases = room.write("cases.jsonl", "{\"id\":\"a\",\"prompt\":\"<a>\"}\n");
    let dir = room.arg("ledger");
    let (server, _) = server(Step::Good).await;
    let url = server.url();
    let (reader, writer) = narrow_pipe();
    let mut command = command(&run_args(&cases, &url, &dir, &[]));
    command.stdout(writer);
    let mut child = command.spawn().expect("spawned");
    let mut lines = stderr_lines(&mut child);
    await_line(&mut lines, "[1/1] a: ok").await;
    interrupt(&child);
    await_line(&mut lines, "the calls are over: the report follows").await;
    interrupt(&child);
    await_line(&mut lines, "stopped: what was recorded stands").await;
    finish(child).await.exits(1);
    drop(reader);
    cli(&["report", &dir]).await.exits(0).says("1 attempt");
}

/// A plan that takes its time: the signal is heard while it is being written.
#[tokio::test(flavor = "multi_thread")]
async fn a_signal_before_the_calls_stops_before_anything_is_sent() {
    let room = Room::new();
    let (cases, dir) = (room.write("cases.jsonl", CASES), room.arg("ledger"));
    let (server, _) = server(Step::Good).await;
    let url = server.url();
    let args = run_args(&cases, &url, &dir, &["--epochs", "100000", "--concurrency", "1"]);
    let child = command(&args).spawn().expect("spawned");
    let rows = room.path("ledger/000000000000.jsonl");
    let begun = async {
        while !std::fs::read_to_string(&rows).is_ok_and(|text| text.contains("\"planned\"")) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), begun).await.expect("planned in time");
    interrupt(&child);
    finish(child)
        .await
        .exits(1)
        .complains("stopped: nothing was sent")
        .says("not started: 300000; the same command goes on with them");
    assert_eq!(server.connections(), 0);
}

/// Rules that double at each of 40 steps: no answer is ever done with.
fn endless_schema() -> String {
    let step = |n: usize| {
        let next = format!("{{\"$ref\":\"#/$defs/s{}\"}}", n + 1);
        format!("\"s{n}\":{{\"allOf\":[{next},{next}]}}")
    };
    let steps: Vec<String> = (0..40).map(step).collect();
    format!("{{\"$ref\":\"#/$defs/s0\",\"$defs\":{{{},\"s40\":true}}}}", steps.join(","))
}

#[tokio::test(flavor = "multi_thread")]
async fn twice_ends_a_run_whose_grader_blocks() {
    let room = Room::new();
    let cases = room.write("cases.jsonl", "{\"id\":\"a\",\"prompt\":\"<a>\"}\n");
    let dir = room.arg("ledger");
    let (server, first) = server(Step::Good.text("[1]")).await;
    let url = server.url();
    let grader = format!("json-schema:{}", room.write("schema.json", endless_schema()));
    let args = run_args(&cases, &url, &dir, &["--grader", &grader]);
    let mut child = command(&args).spawn().expect("spawned");
    let mut lines = stderr_lines(&mut child);
    first.notified().await;
    interrupt(&child);
    await_line(&mut lines, "stopping: 1 call goes on").await;
    interrupt(&child);
    finish(child).await.exits(1).says("abandoned");
}
