//! Options from a file: which holds, and what is wrong with it.
#![allow(clippy::expect_used, reason = "helpers of tests")]

mod common;

use attempt_ledger_mock::{MockServer, Script, Step};
use common::{Room, cli, command, ran};
use serde_json::json;

async fn good() -> MockServer {
    MockServer::start(Script::new([Step::Good])).await.expect("a port")
}

const CASES: &str = r#"{"id":"a","prompt":"<a>","expected":"pong"}
{"id":"b","prompt":"<b>","expected":"pong"}
{"id":"c","prompt":"<c>","expected":"pong"}
"#;

/// A file that needs nothing from the command line, with paths beside it.
fn whole(room: &Room, url: &str, more: &str) -> String {
    room.write("cases.jsonl", CASES);
    let text = format!(
        "# nightly\ncases = \"cases.jsonl\"\nbase-url = \"{url}\"\nmodel = \"m\"\nledger = \"./ledger\"\n{more}"
    );
    room.write("run.toml", text)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_holds_a_whole_run_and_its_paths_are_beside_it() {
    let room = Room::new();
    let server = good().await;
    let more = "concurrency = 1\nstream = false\ntotal = \"2m\"\ncase = [\"c\", \"a\"]\ngrader = \"exact\"\nprogress = 'none'\nepochs = 2\n[params]\ntemperature = 0\nstop = [\"x\"]\nnested = { deep = 1.5, yes = true }\n";
    let file = whole(&room, &server.url(), more);
    // From another directory.
    let mut command = command(&["run", "--config", &file, "-v"]);
    command.current_dir("/");
    ran(command)
        .await
        .exits(0)
        .says(": 2 of 3 cases, 2 epochs, 1 at once")
        .complains(&format!("option=concurrency from={file}, line 6"))
        .complains("option=config from=the command line");
    assert_eq!(server.requests(), 4);
    let body = server.received().remove(0).json().expect("JSON");
    let params = (&body["temperature"], &body["stop"], &body["nested"]);
    assert_eq!(params, (&json!(0), &json!(["x"]), &json!({"deep": 1.5, "yes": true})));
    let dir = room.arg("ledger");
    let run = cli(&["log", &dir, "--events"]).await.exits(0).json();
    let run = run.iter().find(|event| event["kind"] == "run").expect("a run");
    assert_eq!(run["limits"]["total_us"], 120_000_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn graders_stand_in_a_list_and_a_prompt_is_beside_the_file() {
    let room = Room::new();
    let server = good().await;
    room.write("judge.txt", "grade {answer}");
    let more = "grader = [\"exact\", \"model:judge\"]\ngrader-prompt = \"judge.txt\"\ngrader-range = \"-1..1\"\nno-pacing = true\n";
    let file = whole(&room, &server.url(), more);
    let mut command = command(&["run", "--config", &file]);
    command.current_dir("/");
    ran(command).await.exits(0);
    let events = cli(&["log", &room.arg("ledger"), "--events"]).await.exits(0).json();
    let run = events.iter().find(|event| event["kind"] == "run").expect("a run");
    let graders = run["graders"].as_array().expect("a list");
    let told: Vec<_> = graders.iter().map(|g| (&g["name"], &g["low"])).collect();
    assert_eq!(told, [(&json!("exact"), &json!(0.0)), (&json!("model:judge"), &json!(-1.0))]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_wins() {
    let room = Room::new();
    let server = good().await;
    let more = "case = [\"a\", \"b\"]\nconcurrency = 1\nstream = true\nrun = \"named\"\n";
    let file = whole(&room, &server.url(), more);
    let run = |more: &[&'static str]| {
        let args = [&["run", "--config", &*file][..], more].concat();
        let args: Vec<String> = args.into_iter().map(str::to_owned).collect();
        async move { cli(&args.iter().map(String::as_str).collect::<Vec<_>>()).await.exits(0) }
    };
    let stream = |n: usize| server.received()[n].json().expect("JSON")["stream"].clone();
    // A list takes the place of the file's list.
    run(&["--case", "c"]).await.says("run named: 1 of 3 cases, 1 at once");
    assert_eq!(stream(0), true);
    // Of two that undo each other, and of two that cannot stand together, the file's gives way.
    let ran = run(&["--no-stream", "--concurrency", "2", "--fresh", "--limit", "1"]).await;
    assert!(ran.out.starts_with("run run-"), "{}", ran.out);
    let ran = ran.says(": 1 of 3 cases, 2 at once");
    assert_eq!(stream(1), false);
    drop(ran);
    // Cases and ledger too; those of the command line are relative to where it is run.
    let (cases, dir) = (room.write("other.jsonl", CASES.replace("<a>", "<z>")), room.arg("other"));
    let args = ["run", &*cases, "--config", &*file, "--ledger", &*dir, "--model", "n"];
    cli(&args).await.exits(0).says("run named: 2 of 3 cases");
    assert!(room.path("other").exists());
    assert_eq!(server.received()[2].json().expect("JSON")["model"], "n");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_named_with_file_line_and_key() {
    let room = Room::new();
    let server = good().await;
    let url = server.url();
    for (more, said) in [
        ("\nsped = 7\n", &["line 7, key `sped`: is no option of `run`", "hint: the keys are"][..]),
        ("api_key_env = \"A\"\n", &["line 6, key `api_key_env`", "hint: write `api-key-env`"]),
        ("api-key = \"SECRET\"\n", &["line 6, key `api-key`", "a key never stands in a file"]),
        ("config = \"x\"\n", &["key `config`: is no option"]),
        ("color = \"never\"\n", &["key `color`: is no option"]),
        ("attempts = 0\n", &["line 6, key `attempts`: invalid value '0'"]),
        ("case = [[\"a\"]]\n", &["line 6, key `case`: cannot be a list"]),
        ("attempts = 1.5\n", &["line 6, key `attempts`: invalid value '1.5'"]),
        ("attempts = [1]\n", &["line 6, key `attempts`: is given once: write one value"]),
        ("total = \"soon\"\n", &["line 6, key `total`: invalid value 'soon'"]),
        ("total = 5\n", &["line 6, key `total`: invalid value '5'"]),
        ("stream = \"yes\"\n", &["line 6, key `stream`: is a flag: write true or false"]),
        ("seed = 2020-01-01\n", &["line 6, key `seed`: cannot be a "]),
        ("effect = \"none\"\n", &["line 6, key `effect`: invalid value 'none'"]),
        ("model = \"n\"\n", &["line 6: duplicate key"]),
        ("run = SECRET\n", &["line 6: "]),
        ("params = { a = 1, a = 2 }\n", &["line 6: duplicate key"]),
        ("[[run]]\nx = 1\n", &["line 6, key `run`: "]),
    ] {
        let file = whole(&room, &url, more);
        let ran = cli(&["run", "--config", &file]).await.exits(2);
        assert!(ran.err.starts_with(&format!("error: {file}, line ")), "{more}: {}", ran.err);
        for said in said {
            assert!(ran.err.contains(said), "{said:?} for {more:?}:\n{}", ran.err);
        }
        assert!(!ran.err.contains("SECRET"), "{}", ran.err);
    }
    let none = room.arg("none.toml");
    cli(&["run", "--config", &none]).await.exits(2).complains("none.toml could not be read");
    cli(&["run", "--config", "/dev/zero"]).await.exits(2).complains("has more than 1 MiB");
    let empty = room.write("empty.toml", "");
    cli(&["run", "--config", &empty]).await.exits(2).complains("--base-url <URL>");
    cli(&["run", "--config", &empty, "--sped", "7"]).await.exits(2).complains("--sped");
    cli(&["run", "--config"]).await.exits(2).complains("--config <FILE>");
    // A file that nobody named is not read.
    let mut command = command(&["run"]);
    room.write("attempt-ledger.toml", "model = \"m\"\n");
    command.current_dir(room.path("."));
    ran(command).await.exits(2).complains("--model <NAME>");
    assert_eq!(server.connections(), 0);
    assert!(!room.path("ledger").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_names_a_file_is_beside_the_file() {
    let room = Room::new();
    let server = good().await;
    // A name may begin as a grader that names a file does.
    let more = "run = \"json-schema:r\"\ncheck = [\"json-schema:any.json\"]\n";
    let file = whole(&room, &server.url(), more);
    room.write("any.json", "true");
    // The program may be called anything.
    let mut command = command(&["run", "--config", &file]);
    command.arg0("run").current_dir("/");
    ran(command).await.exits(0).says("run json-schema:r: 3 cases");
    // Nor does a name that is logged reach the terminal as it is.
    let odd = room.write("\u{1b}]0;x\u{7}.toml", std::fs::read(&file).expect("read"));
    let ran = cli(&["run", "--config", &odd, "-v"]).await.exits(0);
    let ran = ran.complains("u{1b}]0;x");
    assert!(!ran.err.contains(['\u{1b}', '\u{7}']), "{:?}", ran.err);
}
