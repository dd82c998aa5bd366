//! `report`, `log`, `note`, `policy`, and output in general.
#![allow(clippy::expect_used, reason = "helpers of tests")]

mod common;

use attempt_ledger_mock::{MockServer, Script, Step};
use common::{Room, cli, command, finish, run_args};

/// A ledger with two cases of a run, one of them repeated.
async fn ledger(room: &Room) -> String {
    let cases = room.write(
        "cases.jsonl",
        "{\"id\":\"a\",\"prompt\":\"<a>\",\"expected\":\"pong\"}\n{\"id\":\"b\",\"prompt\":\"<b>\",\"expected\":\"pong\"}\n",
    );
    let script = Script::by_case([("<b>", Script::new([Step::ServerError, Step::Good]))]);
    let server = MockServer::start(script).await.expect("a port");
    let url = server.url();
    let dir = room.arg("ledger");
    cli(&run_args(&cases, &url, &dir, &["--grader", "exact", "--run", "r"])).await.exits(0);
    dir
}

fn keys(value: &serde_json::Value) -> Vec<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn report_and_log_have_the_names_that_programs_read() {
    let room = Room::new();
    let dir = ledger(&room).await;
    let report = cli(&["report", &dir, "--json"]).await.exits(0).json().remove(0);
    assert_eq!(report["quality"]["mean"], 1.0);
    assert_eq!(report["quality"]["n"], 1);
    assert_eq!(report["quality"]["planned"], 2);
    assert_eq!(report["availability"]["by_verdict"]["server_error"], 1);
    for (part, names) in [
        ("quality", &["mean", "n", "planned", "coverage", "se", "interval", "bounds"][..]),
        ("availability", &["faults", "attempts", "rate", "by_verdict", "first"]),
        ("refused_promotions", &["attempts", "slots"]),
        ("naive", &["mean", "n", "distance"]),
        ("unknown_remote", &["attempts", "repeated_with_writes"]),
        ("first_content_us", &["p50", "p95", "p99"]),
        ("total_us", &["p50", "p95", "p99"]),
    ] {
        let found = keys(&report[part]);
        assert!(names.iter().all(|name| found.contains(name)), "{part}: {found:?}");
    }
    for name in [
        "mean_by_verdict",
        "recovered",
        "drift",
        "unlinked",
        "unrecorded",
        "open",
        "lost",
        "abandoned",
        "rejected",
        "other_runs",
        "warnings",
    ] {
        assert!(report.get(name).is_some(), "{name}");
    }

    let log = cli(&["log", &dir, "--json"]).await.exits(0);
    assert_eq!(log.out.lines().count(), 3);
    let order = "seq, diagnostic, fingerprint, model, effect, attempt, run, case, epoch, step, role, ordinal, cause, call, verdict, detail, remote, status, finish_reason, score, frozen, content_sha256, answer_sha256, content_chars, tool_calls, usage, retry_after_ms, events, bytes, head_us, first_content_us, end_us, notes, other_grades, wire, reasoning_chars, response_id, request_id, upstream_retries";
    for line in log.out.lines() {
        let mut rest = line;
        for name in order.split(", ") {
            let at =
                rest.find(&format!("\"{name}\":")).unwrap_or_else(|| panic!("{name} in {line}"));
            rest = &rest[at..];
        }
    }
    let one = cli(&["log", &dir, "--json", "--case", "b"]).await.exits(0).json();
    assert_eq!(one.len(), 2);
    assert!(one.iter().all(|row| row["case"] == "b"));
    let events = cli(&["log", &dir, "--events"]).await.exits(0);
    let stored = std::fs::read_to_string(room.path("ledger/000000000000.jsonl")).expect("read");
    assert_eq!(events.out, stored, "the raw lines");
    for form in [&[][..], &["--json"]] {
        let log = |more: &[&'static str]| {
            let mut args = vec!["log", &*dir];
            args.extend(more);
            args.extend(form);
            let args: Vec<String> = args.into_iter().map(str::to_owned).collect();
            async move { cli(&args.iter().map(String::as_str).collect::<Vec<_>>()).await }
        };
        log(&["--case", "c"]).await.exits(2).complains("this ledger has no case c; it has a, b");
        log(&["--run", "r", "--case", "c"]).await.exits(2).complains("run r has no case c; it has");
        log(&["--run", "q"]).await.exits(2).complains("this ledger has no run q; it has r");
        log(&["--run", "r", "--case", "a"]).await.exits(0);
    }
    cli(&["log", &dir]).await.exits(0).says("server_error").says("1 frozen");
    cli(&["report", &dir, "--run", "other"]).await.exits(2).complains("it has r");
    cli(&["policy"]).await.exits(0).says("| # ").says("hand up");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_note_is_kept_shown_and_in_no_number() {
    let room = Room::new();
    let dir = ledger(&room).await;
    let before = cli(&["report", &dir, "--json"]).await.exits(0).out;
    let row = cli(&["log", &dir, "--json", "--case", "a"]).await.exits(0).json().remove(0);
    let attempt = row["attempt"].as_str().expect("an id");
    let text = "a\u{1b}[31mred\u{7}\r\nline \u{202e}txt \u{9b}31m";
    cli(&["note", &dir, attempt, text]).await.exits(0).says(attempt);
    // Enough of the id's beginning does, if only one attempt has it.
    cli(&["note", &dir, attempt, "second"]).await.exits(0);
    let row = cli(&["log", &dir, "--json", "--case", "a"]).await.exits(0).json().remove(0);
    assert_eq!(row["notes"], serde_json::json!([text, "second"]));
    assert_eq!(cli(&["report", &dir, "--json"]).await.exits(0).out, before);

    let unknown = "f".repeat(32);
    cli(&["note", &dir, &unknown, "x"]).await.exits(2).complains("no attempt of this ledger");
    cli(&["note", &dir, "XYZ", "x"]).await.exits(2).complains("is no attempt's seq");
    cli(&["note", &dir, &attempt[..4], "x"]).await.exits(2).complains("several attempts");
    cli(&["note", &dir, attempt, ""]).await.exits(2);
    cli(&["note", &dir, attempt, &"x".repeat(70_000)]).await.exits(2).complains("too long");

    // By its number in the ledger, or in its case.
    let rows = cli(&["log", &dir, "--json", "--case", "b"]).await.exits(0).json();
    let (id, seq) = (rows[1]["attempt"].as_str().expect("an id"), rows[1]["seq"].to_string());
    cli(&["note", &dir, &seq, "third"]).await.exits(0).says(id);
    cli(&["note", &dir, "b#2", "fourth"]).await.exits(0).says(id);
    cli(&["note", &dir, "b#2", "fifth", "--run", "r"]).await.exits(0).says(id);
    let rows = cli(&["log", &dir, "--json", "--case", "b"]).await.exits(0).json();
    assert_eq!(rows[0]["notes"], serde_json::json!([]));
    assert_eq!(rows[1]["notes"], serde_json::json!(["third", "fourth", "fifth"]));
    for (given, said) in [
        ("999", "no attempt of this ledger has the seq 999"),
        ("0", "no attempt of this ledger has the seq 0"),
        ("c#1", "run r has no case c; it has a, b"),
        ("b#3", "case b of run r has no ordinal 3; it has 1, 2"),
        ("b#0", "ordinals are 1, 2, 3"),
        ("b#", "ordinals are 1, 2, 3"),
        ("#1", "the id is empty"),
    ] {
        cli(&["note", &dir, given, "x"]).await.exits(2).complains(said);
    }
    cli(&["note", &dir, "b#1", "x", "--run", "q"]).await.exits(2).complains("no run q; it has r");

    // Nothing that a terminal obeys gets out, in whatever form.
    for args in [
        &["log", &*dir][..],
        &["log", &*dir, "--json"],
        &["log", &*dir, "--events"],
        &["report", &*dir],
        &["note", &*dir, "a\u{1b}[2J", "x"],
        &["classify", "a\u{1b}[2J.http"],
        &["report", "a\u{1b}[2J"],
        &["report", &*dir, "--run", "a\u{1b}[2J"],
        &["nothing\u{1b}[2J"],
    ] {
        let ran = cli(args).await;
        for text in [&ran.out, &ran.err] {
            let bad =
                |c: char| (c.is_control() && c != '\n') || matches!(c, '\u{202a}'..='\u{202e}');
            assert!(!text.contains(bad), "{args:?}: {text:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn colours_come_when_they_are_asked_for() {
    let room = Room::new();
    let dir = ledger(&room).await;
    let colored = |ran: &common::Ran| ran.out.contains("\u{1b}[");
    for name in ["log", "report"] {
        assert!(!colored(&cli(&[name, &dir]).await.exits(0)), "a pipe is no terminal");
        assert!(colored(&cli(&[name, &dir, "--color", "always"]).await.exits(0)));
        assert!(!colored(&cli(&[name, &dir, "--color", "never"]).await.exits(0)));
    }
}

/// As with `| head`: the other end of the pipe is closed before a byte is written.
#[tokio::test(flavor = "multi_thread")]
async fn a_closed_pipe_ends_it_quietly() {
    let room = Room::new();
    let dir = ledger(&room).await;
    let fixture = format!(
        "{}/../../tests/fixtures/wire/openai-chat/openai-nonstream-ok.http",
        env!("CARGO_MANIFEST_DIR")
    );
    for args in [
        &["log", &*dir][..],
        &["log", &*dir, "--json"],
        &["log", &*dir, "--events"],
        &["report", &*dir],
        &["policy"],
        &["classify", &*fixture],
        &["--help"],
        &["demo", "--ledger", &*room.arg("demo")],
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = command(args);
        command.stdout(writer);
        let child = command.spawn().expect("spawned");
        drop(command);
        let ran = finish(child).await.exits(0);
        assert_eq!(ran.err, "", "{args:?}");
    }
}

/// What nobody can read was not said: a full disk is no closed pipe.
#[tokio::test(flavor = "multi_thread")]
async fn output_that_cannot_be_written_is_told() {
    let room = Room::new();
    let dir = ledger(&room).await;
    let cases = room.write("one.jsonl", r#"{"id":"a","prompt":"x"}"#);
    let server = MockServer::start(Script::new([Step::Good])).await.expect("a port");
    let (url, other) = (server.url(), room.arg("other"));
    for args in [
        &["log", &*dir][..],
        &["log", &*dir, "--json"],
        &["log", &*dir, "--events"],
        &["report", &*dir],
        &["policy"],
        &["--help"],
        &["--version"],
        &run_args(&cases, &url, &other, &[]),
    ] {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("it is there");
        let mut command = command(args);
        command.stdout(full);
        let child = command.spawn().expect("spawned");
        finish(child).await.exits(2).complains("the output could not be written");
    }
    assert_eq!(server.requests(), 0, "what cannot be told is not begun");
}

/// What was asked for is done all the same, and its outcome told by the code.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_goes_on_when_nobody_reads() {
    let room = Room::new();
    let cases = room.write("cases.jsonl", r#"{"id":"a","prompt":"x"}"#);
    let server = MockServer::start(Script::new([Step::Good])).await.expect("a port");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let (url, dir) = (server.url(), room.arg("ledger"));
    let mut command = command(&run_args(&cases, &url, &dir, &[]));
    command.stdout(writer);
    let child = command.spawn().expect("spawned");
    drop(command);
    finish(child).await.exits(0);
    assert_eq!(server.requests(), 1);
}
