//! What is told on standard error while a run goes on.
#![allow(clippy::expect_used, reason = "helpers of tests")]

mod common;

use std::{io::Read as _, os::fd::OwnedFd};

use attempt_ledger_mock::{MockServer, Script, Step};
use common::{Ran, Room, cli, command, finish, run_args, server};
use serde_json::{Value, json};

const CASES: &str = r#"{"id":"good","prompt":"<good>","expected":"pong"}
{"id":"wrong","prompt":"<wrong>","expected":"ping"}
{"id":"flaky","prompt":"<flaky>","expected":"pong"}
{"id":"down","prompt":"<down>","expected":"pong"}
"#;

/// The lines of `--progress json`, each an object.
fn lines(ran: &Ran) -> Vec<Value> {
    ran.err.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_numbers_on_the_way_are_the_reports_in_the_end() {
    let room = Room::new();
    let (cases, dir) = (room.write("cases.jsonl", CASES), room.arg("ledger"));
    let server = server().await;
    let url = server.url();
    let more = ["--attempts", "2", "--grader", "exact", "--progress", "json", "--epochs", "2"];
    // One at a time, so that each sample gets its own step of the script.
    let args = run_args(&cases, &url, &dir, &[&more[..], &["--concurrency", "1"]].concat());
    // The second time it goes on with what the ledger holds.
    for time in 1..=2 {
        let ran = cli(&args).await.exits(0);
        let lines = lines(&ran);
        assert_eq!(lines.len(), 10, "{}", ran.err);
        let events: Vec<&str> = lines.iter().filter_map(|line| line["event"].as_str()).collect();
        assert_eq!(events, [&["begun"][..], &["ended"; 8], &["over"]].concat());
        assert_eq!(lines[0]["quality"]["n"], if time == 1 { 0 } else { 6 });
        assert_eq!((&lines[0]["samples"], &lines[0]["quality"]["planned"]), (&json!(8), &json!(8)));
        let report = cli(&["report", &dir, "--json"]).await.exits(0).json().remove(0);
        assert_eq!(lines[0]["run"], report["run"]);
        let over = &lines[9];
        assert_eq!((&over["done"], &over["samples"]), (&json!(8), &json!(8)));
        for (number, fields) in [
            ("quality", &["mean", "n", "planned", "coverage", "bounds"][..]),
            ("availability", &["faults", "attempts"]),
            ("refused_promotions", &["attempts", "slots"]),
        ] {
            for field in fields {
                assert!(!report[number][field].is_null(), "{number} {field}");
                assert_eq!(over[number][field], report[number][field], "{number} {field}");
            }
        }
        assert_eq!(over["availability"]["faults"], 3);
        let ended = lines.iter().find(|line| line["case"] == "wrong").expect("a line");
        assert_eq!(ended["epoch"], 1);
        let outcome = if time == 1 { "ok at ordinal 1, frozen at 0" } else { "skipped" };
        assert!(ended["outcome"].as_str().is_some_and(|o| o.starts_with(outcome)), "{ended}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_stop_words_are_told_on_the_way_as_in_the_report() {
    let room = Room::new();
    let (cases, dir) = (room.write("cases.jsonl", CASES), room.arg("ledger"));
    let script = Script::by_case([("<wrong>", Script::new([Step::Good.finish("halted")]))]);
    let script = script.otherwise(Script::new([Step::Good]));
    let server = MockServer::start(script).await.expect("a port");
    let url = server.url();
    let args = run_args(&cases, &url, &dir, &["--grader", "exact", "--progress", "json"]);
    let words = json!([{"word": "halted", "wire": "openai-chat", "attempts": 1}]);
    let ran = cli(&args).await.exits(0);
    let told = lines(&ran);
    assert_eq!(told[0].get("unknown_stop_words"), None);
    assert_eq!(told[told.len() - 1]["unknown_stop_words"], words);
    let report = cli(&["report", &dir, "--json"]).await.exits(0).json().remove(0);
    assert_eq!(report["unknown_stop_words"], words);
    // What is done is not counted again.
    let again = lines(&cli(&args).await.exits(0));
    assert!(again.iter().all(|line| line["unknown_stop_words"] == words));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipe_gets_lines_and_none_gets_nothing() {
    let room = Room::new();
    let cases = room.write("cases.jsonl", CASES);
    let server = server().await;
    let url = server.url();
    for how in ["auto", "bar", "lines"] {
        let dir = room.arg(how);
        let more = ["--grader", "exact", "--progress", how, "--case", "good"];
        let ran = cli(&run_args(&cases, &url, &dir, &more)).await.exits(0);
        assert_eq!(
            ran.err,
            "[1/1] good: ok at ordinal 1, frozen at 1  |  quality 1.00 (n 1)  faults 0/1  refused promotions 0\n"
        );
    }
    let dir = room.arg("none");
    let more = ["--grader", "exact", "--progress", "none"];
    assert_eq!(cli(&run_args(&cases, &url, &dir, &more)).await.exits(0).err, "");
    cli(&run_args(&cases, &url, &dir, &["--progress", "loud"])).await.exits(2).complains("json");
}

/// A terminal that is so many columns wide: what reads it, and what the command writes to.
fn terminal(columns: u16) -> (std::fs::File, OwnedFd) {
    use rustix::{fs, pty, termios};
    let flags = pty::OpenptFlags::RDWR | pty::OpenptFlags::NOCTTY | pty::OpenptFlags::CLOEXEC;
    let master = pty::openpt(flags).expect("a terminal");
    pty::grantpt(&master).expect("granted");
    pty::unlockpt(&master).expect("unlocked");
    let name = pty::ptsname(&master, Vec::new()).expect("a name");
    let flags = fs::OFlags::RDWR | fs::OFlags::NOCTTY | fs::OFlags::CLOEXEC;
    let slave = fs::open(name, flags, fs::Mode::empty()).expect("opened");
    let size = termios::Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    termios::tcsetwinsize(&master, size).expect("set");
    (master.into(), slave)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_gets_one_line_that_fits() {
    let room = Room::new();
    let cases = room.write("cases.jsonl", CASES);
    let server = server().await;
    let url = server.url();
    for (columns, begins) in [
        (120, "[                ] 0/4  quality - (n 0)  faults 0/0  refused promotions 0  waiting"),
        (62, "0/4  quality - (n 0)  faults 0/0  refused promotions 0"),
        (36, "0/4  q - (n 0)  f 0/0  p 0"),
    ] {
        let dir = room.arg(&format!("{columns}"));
        let (mut master, slave) = terminal(columns);
        let more = ["--grader", "exact", "--concurrency", "1"];
        let mut command = command(&run_args(&cases, &url, &dir, &more));
        command.stderr(slave).env("TERM", "xterm");
        let child = command.spawn().expect("spawned");
        drop(command);
        let told = tokio::task::spawn_blocking(move || {
            // When the last writer is gone, reading fails.
            let mut told = Vec::new();
            let _ = master.read_to_end(&mut told);
            String::from_utf8_lossy(&told).into_owned()
        });
        finish(child).await.exits(0);
        let told = told.await.expect("read");
        assert!(told.contains(begins), "{columns}: {told:?}");
        for line in told.split(['\r', '\n']) {
            // What moves the cursor takes no place.
            let shown: String =
                line.split('\u{1b}').map(|part| part.trim_start_matches("[2K")).collect();
            assert!(shown.chars().count() <= usize::from(columns), "{columns}: {shown:?}");
        }
    }
}
