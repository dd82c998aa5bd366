//! Wrong input: a clear error, the right exit code, and nothing sent.

mod common;

use attempt_ledger_mock::{MockServer, Script, Step};
use common::{Room, cli, command, ran, run_args};

const GOOD: &str = r#"{"id":"a","prompt":"x","expected":"y"}"#;

#[tokio::test(flavor = "multi_thread")]
async fn cases_that_are_wrong_are_refused_with_their_place() {
    let server = MockServer::start(Script::new([Step::Good])).await.expect("a port");
    let url = server.url();
    let room = Room::new();
    let dir = room.arg("ledger");
    let long = format!(r#"{{"id":"{}","prompt":"x"}}"#, "i".repeat(10_000));
    let deep =
        format!(r#"{{"id":"a","prompt":"x","fixture":{}1{}}}"#, "[".repeat(200), "]".repeat(200));
    let table: &[(&[u8], &[&str])] = &[
        (b"", &["holds no case", "hint: "]),
        (b"\n \n", &["holds no case"]),
        (br#"{"id":"a","prompt":"x""#, &["line 1, column 22: EOF"]),
        (br#"{"id":"a","prompt":}"#, &["line 1, column 20: expected value"]),
        (b"{\"id\":\"a\",\"prompt\":\"x\"}\n\nnonsense\n", &["line 3, column 2: expected ident"]),
        (br#"{"id":"a","prompt":7}"#, &["line 1, column 20: invalid type", "expected a string"]),
        (br#"{"id":"a","promt":"x"}"#, &["unknown field `promt`, expected one of"]),
        (br#"{"prompt":"x"}"#, &["missing field `id`"]),
        (br#"{"id":"a","id":"b","prompt":"x"}"#, &["duplicate field `id`"]),
        (br#"["a","x"]"#, &["line 1: the line is no JSON object"]),
        (br#"{"id":"a"}"#, &["case a has neither \"prompt\" nor \"messages\""]),
        (br#"{"id":"a","prompt":"x","messages":[{}]}"#, &["both \"prompt\" and \"messages\""]),
        (br#"{"id":"a","messages":"x"}"#, &["\"messages\" is no list"]),
        (br#"{"id":"a","messages":[]}"#, &["\"messages\" is empty"]),
        (br#"{"id":"a","prompt":"x","params":[1]}"#, &["\"params\" is no JSON object"]),
        (br#"{"id":"a","prompt":"x","params":{"model":"n"}}"#, &["sets \"model\", which --model does"]),
        (br#"{"id":"a","prompt":"x","params":{"a":1,"a":2}}"#, &["two members of one name"]),
        (b"{\"id\":\"a\",\"prompt\":\"x\"}\n{\"id\":\"b\",\"prompt\":\"x\"}\n{\"id\":\"a\",\"prompt\":\"y\"}\n",
            &["line 3: the id \"a\" is that of line 1 already"]),
        (br#"{"id":"a\u001b[31m","prompt":"x"}"#, &["the id holds the character U+001B at byte 1"]),
        (br#"{"id":"","prompt":"x"}"#, &["the id is empty"]),
        (long.as_bytes(), &["the id has 10000 bytes; at most 256"]),
        (deep.as_bytes(), &["line 1"]),
        (b"{\"id\":\"a\",\"prompt\":\"\xff\"}", &["byte 21 is not UTF-8"]),
    ];
    for (text, said) in table {
        let cases = room.write("cases.jsonl", text);
        let ran = cli(&run_args(&cases, &url, &dir, &[])).await.exits(2);
        assert!(ran.err.starts_with("error: "), "{}", ran.err);
        for said in *said {
            assert!(
                ran.err.contains(said),
                "{said:?} for {:?}:\n{}",
                String::from_utf8_lossy(text),
                ran.err
            );
        }
    }
    let cases = room.write("cases.jsonl", "{\"id\":\"a\",\"prompt\":\"x\"}\n");
    cli(&run_args(&cases, &url, &dir, &["--grader", "exact"]))
        .await
        .exits(2)
        .complains("line 1: case a has no \"expected\", and a grader is set")
        .complains("leave --grader out");
    cli(&run_args("/nowhere/cases.jsonl", &url, &dir, &[]))
        .await
        .exits(2)
        .complains("could not be read");
    assert_eq!(server.connections(), 0);
    assert!(!room.path("ledger").exists(), "no ledger is made for wrong input");
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_that_are_wrong_are_refused() {
    let room = Room::new();
    let cases = room.write("cases.jsonl", GOOD);
    let dir = room.arg("ledger");
    for (url, said) in [
        ("127.0.0.1:80/v1", "has no scheme"),
        ("ftp://a/v1", "neither http nor https"),
        ("http://user:SECRET@a/v1", "holds a user or a password"),
        ("http://a/v1?key=SECRET", "has a query"),
        ("http://", "is no URL"),
        ("", "has no scheme"),
    ] {
        let ran = cli(&run_args(&cases, url, &dir, &[])).await.exits(2).complains(said);
        assert!(!ran.err.contains("SECRET"), "{}", ran.err);
    }
    let url = "http://127.0.0.1:9/v1";
    for (more, said) in [
        (&["--concurrency", "0"][..], "--concurrency"),
        (&["--attempts", "0"], "--attempts"),
        (&["--attempts", "4294967296"], "--attempts"),
        (&["--total", "99999999999999999999s"], "--total"),
        (&["--total", "5"], "such as 90s, 2m or 500ms"),
        (&["--head", "soon"], "is not a duration"),
        (&["--idle", "0s"], "too short"),
        (&["--budget=-1s"], "is negative"),
        (&["--budget", "9000h"], "too long"),
        (&["--run", "a\nb"], "control"),
        (&["--run", "x", "--fresh"], "--fresh"),
        (&["--grader", "best"], "exact, contains"),
        (&["--params", "[]"], "--params is no JSON object"),
        (&["--params", r#"{"stream":true}"#], "--stream does"),
        (&["--api-key", "SECRET"], "--api-key"),
        (&["--api-key-env", "A_KEY=1"], "no name of a variable"),
        (&["--api-key-env", "sk-SECRET"], "variable that --api-key-env names is not set"),
    ] {
        cli(&run_args(&cases, url, &dir, more)).await.exits(2).complains(said);
    }
    for (key, said) in [
        (None, "is not set"),
        (Some(""), "is empty"),
        (Some("SECRET\n"), "white space"),
        (Some("SECRET \u{7f}"), "white space"),
    ] {
        let mut command = command(&run_args(&cases, url, &dir, &["--api-key-env", "A_KEY"]));
        command.env_remove("A_KEY");
        if let Some(key) = key {
            command.env("A_KEY", key);
        }
        let ran = ran(command).await.exits(2).complains("\"A_KEY\"").complains(said);
        assert!(!ran.err.contains("SECRET"), "{}", ran.err);
    }
    assert!(!room.path("ledger").exists());
    cli(&[]).await.exits(2);
    cli(&["--version"]).await.exits(0).says("attempt-ledger ");
    let help = cli(&["--help"]).await.exits(0).says("Exit codes:");
    assert!(help.out.contains("3  the ledger could not be opened"));
    let run = cli(&["run", "--help"]).await.exits(0);
    for said in [
        "once the response has begun",
        "only --total counts",
        "does not change the exit code",
        "such as 500ms, 90s, 2m",
        r#"{"id": "case-7", "prompt": "...", "expected": "..."}"#,
        "(the default)",
    ] {
        // Help is broken between words.
        let text = run.out.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(said), "{said} in {}", run.out);
    }
    for field in ["id", "prompt", "messages", "expected", "params", "fixture"] {
        assert!(run.out.contains(&format!("\n  {field} ")), "{field} in {}", run.out);
    }
    // The whole of a command's own help comes out, and the list of commands stays short.
    cli(&["demo", "--help"]).await.exits(0).says("needs no network");
    cli(&["classify", "--help"]).await.exits(0).says("`curl -si --raw`").says("ends with 0");
    cli(&["note", "--help"]).await.exits(0).says("CASE#ORDINAL").says("in no number");
    let list = cli(&["help"]).await.exits(0).says("Prints the published numbers of a run\n");
    assert!(list.out.contains("the demo found something else than expected"), "{}", list.out);
    cli(&["report", "-h"]).await.exits(0).says("does not change the exit code");
    cli(&["report", "--help"]).await.exits(0).says("does not change the exit code");
    for name in ["demo", "run", "report", "log", "note", "classify"] {
        cli(&[name, "--help"]).await.exits(0).says("Examples:");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ledgers_that_cannot_be_used_are_code_three() {
    let server = MockServer::start(Script::new([Step::Good])).await.expect("a port");
    let url = server.url();
    let room = Room::new();
    let cases = room.write("cases.jsonl", GOOD);
    let none = room.arg("none");
    let attempt = "0".repeat(32);
    for args in [
        &["report", &*none][..],
        &["log", &*none],
        &["log", &*none, "--events"],
        &["note", &*none, &*attempt, "x"],
    ] {
        cli(args).await.exits(3).complains("there is no ledger in").complains("hint: ");
    }
    std::fs::create_dir(room.path("empty")).expect("made");
    cli(&["report", &room.arg("empty")]).await.exits(3).complains("there is no ledger in");

    // Not to be made, not a directory, open to others, of a newer version, altered.
    cli(&run_args(&cases, &url, "/proc/ledger", &[])).await.exits(3).complains("/proc/ledger");
    let file = room.write("file", "x");
    cli(&run_args(&cases, &url, &file, &[])).await.exits(3);
    let open = room.path("open");
    std::fs::create_dir(&open).expect("made");
    std::fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o777))
        .expect("set");
    cli(&run_args(&cases, &url, &room.arg("open"), &[])).await.exits(3).complains("chmod go-w");
    assert_eq!(server.connections(), 0, "nothing is sent that cannot be recorded");

    let newer = room.arg("newer");
    cli(&run_args(&cases, &url, &newer, &[])).await.exits(0);
    let format = room.path("newer/FORMAT");
    let text = std::fs::read_to_string(&format).expect("read");
    std::fs::write(&format, text.replacen(" 1 ", " 99 ", 1)).expect("written");
    for args in [&["report", &*newer][..], &["log", &*newer], &run_args(&cases, &url, &newer, &[])]
    {
        cli(args).await.exits(3).complains("format 99");
    }

    let altered = room.arg("altered");
    cli(&run_args(&cases, &url, &altered, &[])).await.exits(0);
    let rows = room.path("altered/000000000000.jsonl");
    let text = std::fs::read_to_string(&rows).expect("read");
    std::fs::write(&rows, text.replacen("\"verdict\":\"ok\"", "\"verdict\":\"no\"", 1))
        .expect("written");
    for args in [&["report", &*altered][..], &["log", &*altered, "--events"]] {
        cli(args).await.exits(3).complains("is damaged at byte");
    }
}

/// No room for another row: nothing more is sent, and what was recorded stands.
#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_that_is_full_stops_the_run() {
    let server = MockServer::start(Script::new([Step::Good])).await.expect("a port");
    let url = server.url();
    let room = Room::new();
    let line = |n| format!("{{\"id\":\"case-{n}\",\"prompt\":\"x\"}}\n");
    let cases = room.write("cases.jsonl", (0..200).map(line).collect::<String>());
    let dir = room.arg("ledger");
    let args = run_args(&cases, &url, &dir, &["--concurrency", "1"]);
    // Files of this process may have 32 KiB, and to pass that is an error, not a signal.
    let mut limited = tokio::process::Command::new("sh");
    limited.arg("-c").arg("trap '' XFSZ; ulimit -f 64; exec \"$0\" \"$@\"");
    limited.arg(env!("CARGO_BIN_EXE_attempt-ledger")).args(&args);
    limited.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let ran = ran(limited).await.exits(3);
    let ran = ran
        .complains("caused by: File too large")
        .complains("hint: what was recorded stands")
        .says("not started: ");
    let sent = server.requests();
    assert!((1..200).contains(&sent), "{sent}");
    let opened = cli(&["log", &dir, "--json"]).await.exits(0).out.lines().count();
    assert_eq!(opened, sent, "each was recorded before it was sent: {}", ran.err);
    // With room again it goes on.
    cli(&args).await.exits(0);
    let report = cli(&["report", &dir, "--json"]).await.exits(0).json().remove(0);
    assert_eq!(report["quality"]["planned"], 200);
    // Where the room ends decides whether it was a row's beginning or its end that found none.
    let lost = report["lost"].as_u64().expect("a count");
    assert!(lost <= 1, "{lost}");
    assert_eq!(report["availability"]["first"]["n"], 200 - lost);
}

#[tokio::test]
async fn help_is_no_wider_than_eighty_columns() {
    let help = cli(&["--help"]).await.exits(0).out;
    let commands = help.split("Commands:").nth(1).expect("a list").lines().skip(1);
    let commands = commands.take_while(|line| !line.is_empty());
    let names: Vec<_> = commands
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(names.contains(&"classify") && names.contains(&"man"), "{names:?}");
    for name in names.into_iter().filter(|name| *name != "help") {
        for how in ["--help", "-h"] {
            let help = cli(&[name, how]).await.exits(0).out;
            // clap breaks all but this line.
            let mut lines = help.lines().filter(|line| !line.starts_with("Usage: "));
            let wide = lines.find(|line| line.chars().count() > 80);
            assert_eq!(wide, None, "{name} {how}");
        }
    }
    assert_eq!(help.lines().find(|line| line.chars().count() > 80), None);
}
