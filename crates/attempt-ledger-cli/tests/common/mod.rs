//! Spawning the command and looking at what it said.
#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use std::{
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::Duration,
};

use attempt_ledger_mock::{MockServer, Script, Step};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStderr, Command},
};

/// No command takes longer.
pub(crate) const BOUND: Duration = Duration::from_secs(60);

/// What a command said, and its exit code.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_attempt-ledger"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env_remove("NO_COLOR").kill_on_drop(true);
    command
}

pub(crate) async fn ran(mut command: Command) -> Ran {
    let child = command.spawn().expect("spawned");
    finish(child).await
}

pub(crate) async fn finish(child: Child) -> Ran {
    let output = tokio::time::timeout(BOUND, child.wait_with_output()).await;
    let Output { status, stdout, stderr } = output.expect("ended in time").expect("awaited");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    let code = status.code().unwrap_or(-1);
    Ran { code, out: text(stdout), err: text(stderr) }
}

pub(crate) async fn cli(args: &[&str]) -> Ran {
    ran(command(args)).await
}

impl Ran {
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "out:\n{}\nerr:\n{}", self.out, self.err);
        self
    }

    #[track_caller]
    pub(crate) fn says(self, text: &str) -> Self {
        assert!(self.out.contains(text), "{text:?} is not in:\n{}\nerr:\n{}", self.out, self.err);
        self
    }

    #[track_caller]
    pub(crate) fn complains(self, text: &str) -> Self {
        assert!(self.err.contains(text), "{text:?} is not in:\n{}", self.err);
        self
    }

    pub(crate) fn json(&self) -> Vec<Value> {
        let lines = self.out.lines().filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_str(line).expect(line)).collect()
    }
}

/// A directory for one test.
pub(crate) struct Room(tempfile::TempDir);

impl Room {
    pub(crate) fn new() -> Self {
        Room(tempfile::tempdir().expect("a directory"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The path as an argument.
    pub(crate) fn arg(&self, name: &str) -> String {
        self.path(name).to_str().expect("UTF-8").to_owned()
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> String {
        std::fs::write(self.path(name), text).expect("written");
        self.arg(name)
    }
}

/// Arguments of a `run` in a room: cases in `cases.jsonl`, the ledger in `ledger`.
pub(crate) fn run_args<'a>(
    cases: &'a str,
    url: &'a str,
    ledger: &'a str,
    more: &[&'a str],
) -> Vec<&'a str> {
    let mut args = vec!["run", cases, "--base-url", url, "--model", "m", "--ledger", ledger];
    args.extend(more);
    args
}

pub(crate) fn interrupt(child: &Child) {
    let id = child.id().and_then(|id| i32::try_from(id).ok()).expect("it runs");
    let pid = rustix::process::Pid::from_raw(id).expect("an id");
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("sent");
}

/// Reads lines until one holds `text`.
pub(crate) async fn await_line(lines: &mut Lines<BufReader<ChildStderr>>, text: &str) {
    let found = async {
        while let Some(line) = lines.next_line().await.expect("a line") {
            if line.contains(text) {
                return;
            }
        }
        panic!("standard error ended without {text:?}");
    };
    tokio::time::timeout(BOUND, found).await.expect("said in time");
}

pub(crate) fn stderr_lines(child: &mut Child) -> Lines<BufReader<ChildStderr>> {
    BufReader::new(child.stderr.take().expect("piped")).lines()
}

/// Every byte of every file beneath a directory.
pub(crate) fn all_bytes(dir: &Path) -> Vec<u8> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            all.extend(all_bytes(&path));
        } else {
            all.extend(std::fs::read(path).expect("a file"));
        }
    }
    all
}

/// Answers at once, `<flaky>` after one fault and `<down>` after two.
pub(crate) async fn server() -> MockServer {
    let script = Script::by_case([
        ("<flaky>", Script::new([Step::ServerError, Step::Good])),
        ("<down>", Script::new([Step::ServerError, Step::ServerError, Step::Good])),
    ]);
    MockServer::start(script.otherwise(Script::new([Step::Good]))).await.expect("a port")
}
