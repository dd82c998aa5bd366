//! Completion scripts and manual pages.
#![allow(clippy::expect_used, reason = "helpers of tests")]

mod common;

use std::{io::Write as _, process::Stdio};

use common::{Room, cli};

/// What a program says of a text; `None` where it is not installed.
fn judged(program: &str, args: &[&str], text: &str) -> Option<(bool, String)> {
    let mut child = std::process::Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    let mut stdin = child.stdin.take().expect("piped");
    let text = text.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(text.as_bytes()));
    let output = child.wait_with_output().expect("awaited");
    writer.join().expect("joined").expect("written");
    let said = [output.stdout, output.stderr].concat();
    Some((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_shell_gets_a_script() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = cli(&["completions", shell]).await.exits(0).says("attempt-ledger");
        for option in
            ["base-url", "epochs", "progress", "no-pacing", "grader-prompt", "grader-range"]
        {
            assert!(ran.out.contains(option), "{option} is not in the script for {shell}");
        }
        let parses = match shell {
            "bash" | "zsh" => judged(shell, &["-n"], &ran.out),
            "fish" => judged(shell, &["--no-execute"], &ran.out),
            _ => None,
        };
        if let Some((fine, said)) = parses {
            assert!(fine && said.is_empty(), "{shell}: {said}");
        }
    }
    // It completes, as bash asks it to.
    let script = cli(&["completions", "bash"]).await.exits(0).out;
    let ask = "COMP_WORDS=(attempt-ledger run --epo); COMP_CWORD=2
it=$(complete -p attempt-ledger | sed 's/.*-F \\([^ ]*\\).*/\\1/')
$it attempt-ledger --epo run; echo \"${COMPREPLY[@]}\"";
    if let Some((_, said)) = judged("bash", &["--norc", "-s"], &format!("{script}\n{ask}")) {
        assert_eq!(said.trim(), "--epochs");
    }
    cli(&["completions", "tcsh"]).await.exits(2).complains("bash");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_has_a_page_that_renders() {
    let room = Room::new();
    let dir = room.arg("man1");
    let names = cli(&["man", "--dir", &dir]).await.exits(0).out;
    let commands =
        ["run", "report", "log", "note", "demo", "classify", "policy", "completions", "man"];
    for name in commands {
        assert!(names.contains(&format!("attempt-ledger-{name}.1\n")), "{name} in {names}");
    }
    for path in names.lines() {
        let page = std::fs::read_to_string(path).expect("a page");
        assert!(page.contains(".TH ATTEMPT-LEDGER") && page.contains(".SH NAME"), "{path}: {page}");
        let warned = judged("groff", &["-man", "-Tutf8", "-ww", "-z"], &page);
        if let Some((fine, said)) = warned {
            assert!(fine && said.is_empty(), "{path}: {said}");
        }
    }
    let run = std::fs::read_to_string(room.path("man1/attempt-ledger-run.1")).expect("a page");
    if let Some((fine, said)) = judged("groff", &["-man", "-Tascii", "-P-cbou"], &run) {
        assert!(fine && said.contains("--base-url") && said.contains("CASES.jsonl"), "{said}");
    }
    let one = cli(&["man"]).await.exits(0).says(".TH ATTEMPT-LEDGER 1");
    let first = std::fs::read_to_string(room.path("man1/attempt-ledger.1")).expect("a page");
    assert_eq!(one.out, first);
    let file = room.write("file", "");
    cli(&["man", "--dir", &file]).await.exits(2).complains("could not be written");
}
