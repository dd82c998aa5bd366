//! `grade`: answers that were kept, graded after their run.
#![allow(clippy::expect_used, reason = "helpers of tests")]

mod common;

use std::path::PathBuf;

use attempt_ledger_mock::{MockServer, Script, Step};
use common::{
    BOUND, Ran, Room, all_bytes, await_line, cli, command, finish, interrupt, run_args,
    stderr_lines,
};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};

const CASES: &str = r#"{"id":"a","prompt":"<a>","expected":"pong"}
{"id":"b","prompt":"<b>","expected":"ping"}
{"id":"c","prompt":"<c>","expected":"pong"}
"#;

struct Kept {
    room: Room,
    cases: String,
    dir: String,
}

/// A ledger of three cases without grades: a and b are content at ordinal one, c is a fault first.
async fn kept(more: &[&str]) -> Kept {
    let room = Room::new();
    let (cases, dir) = (room.write("cases.jsonl", CASES), room.arg("ledger"));
    let down = Script::new([Step::ServerError, Step::Good]);
    let script = Script::by_case([("<c>", down)]).otherwise(Script::new([Step::Good]));
    let server = MockServer::start(script).await.expect("a port");
    cli(&run_args(&cases, &server.url(), &dir, more)).await.exits(0);
    Kept { room, cases, dir }
}

impl Kept {
    async fn grade(&self, grader: &str) -> Ran {
        cli(&["grade", &self.dir, "--grader", grader, "--cases", &self.cases]).await
    }

    /// The rows of one kind.
    async fn events(&self, kind: &str) -> Vec<Value> {
        let events = cli(&["log", &self.dir, "--events"]).await.exits(0).json();
        events.into_iter().filter(|event| event["kind"] == kind).collect()
    }

    async fn row(&self, case: &str) -> Value {
        let ran = cli(&["log", &self.dir, "--json", "--case", case]).await.exits(0);
        ran.json().remove(0)
    }

    /// The file of the first attempt's answer.
    async fn file(&self, case: &str) -> PathBuf {
        let row = self.row(case).await;
        let name = row["answer_sha256"].as_str().expect("a digest");
        self.room.path("ledger").join("archive").join(name)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn first_attempts_that_are_content_get_their_grade_once() {
    let kept = kept(&["--archive"]).await;
    kept.grade("exact").await.exits(0).says("2 graded, 0 without a kept answer, 0 failed");
    let scores = kept.events("scored").await;
    assert_eq!(scores.len(), 2);
    for (case, score) in [("a", 1.0), ("b", 0.0)] {
        let row = kept.row(case).await;
        assert_eq!((&row["score"], &row["frozen"]), (&score.into(), &true.into()));
        let of_row = |event: &&Value| event["attempt"] == row["attempt"];
        let event = scores.iter().find(of_row).expect("its grade");
        assert_eq!(event["answer_sha256"], row["answer_sha256"]);
    }
    // A later ordinal is no first one, whatever was kept of it.
    assert_eq!(kept.row("c").await["score"], Value::Null);
    // The grader is on record, as `run` would have had it.
    let runs = kept.events("run").await;
    assert_eq!((runs.len(), &runs[0]["graders"]), (2, &Value::Array(Vec::new())));
    assert_eq!(runs[1]["graders"][0]["name"], "exact");

    let before = all_bytes(&kept.room.path("ledger"));
    kept.grade("exact").await.exits(0).says("nothing to grade");
    assert_eq!(all_bytes(&kept.room.path("ledger")), before, "a second time nothing is written");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_kept_is_missing_and_what_was_changed_is_named() {
    let kept = kept(&["--archive"]).await;
    // a and b gave the same answer: one file, which is what a process leaves that was killed
    // between the closing and the archive.
    let file = kept.file("a").await;
    assert_eq!(file, kept.file("b").await);
    let good = std::fs::read_to_string(&file).expect("an answer");
    std::fs::remove_file(&file).expect("removed");
    let ran = kept.grade("exact").await.exits(0);
    ran.says("0 graded, 2 without a kept answer, 0 failed");
    assert_eq!(kept.events("run").await.len(), 1, "no grade, no grader");

    std::fs::write(&file, good.replace("pong", "ping")).expect("written");
    let name = file.to_str().expect("UTF-8").to_owned();
    let ran = kept.grade("exact").await.exits(1);
    ran.says("0 graded, 0 without a kept answer, 2 failed").complains(&name);
    assert!(kept.events("scored").await.is_empty());
    std::fs::write(&file, good).expect("written");
    kept.grade("exact").await.exits(0).says("2 graded");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_without_an_archive_has_nothing_to_grade_by() {
    let kept = kept(&[]).await;
    kept.grade("exact").await.exits(0).says("0 graded, 2 without a kept answer").says("--archive");
    cli(&["grade", &kept.dir, "--grader", "exact"]).await.exits(2).complains("give --cases");
    let none = kept.room.arg("none");
    let args = ["grade", &*none, "--grader", "exact", "--cases", &*kept.cases];
    cli(&args).await.exits(3).complains("there is no ledger");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_grader_or_other_cases_are_refused() {
    let kept = kept(&["--archive"]).await;
    let other = kept.room.write("other.jsonl", CASES.replace("<a>", "<x>"));
    let args = ["grade", &*kept.dir, "--grader", "exact", "--cases", &*other];
    cli(&args).await.exits(2).complains("had another fixture before: a");
    kept.grade("exact").await.exits(0).says("2 graded");

    // A run that is graded while it goes on, but for one case that the grader is asked for later.
    let file = kept.file("a").await;
    let more =
        kept.room.write("more.jsonl", "{\"id\":\"a\",\"prompt\":\"<a>\",\"expected\":\"pong\"}\n");
    let server = MockServer::start(Script::new([Step::Good])).await.expect("a port");
    let url = server.url();
    let dir = kept.room.arg("graded");
    cli(&run_args(&more, &url, &dir, &["--archive"])).await.exits(0);
    let wrong = ["grade", &*dir, "--grader", "exact", "--cases", &*more];
    cli(&wrong).await.exits(0).says("1 graded");
    cli(&run_args(&kept.cases, &url, &dir, &["--archive", "--run", "both"])).await.exits(0);
    cli(&["grade", &dir, "--run", "both", "--grader", "exact", "--cases", &kept.cases])
        .await
        .exits(0)
        .says("3 graded");
    assert!(file.exists());
}

/// A run that has its grader already is not graded by another.
/// What was mistyped has graded nothing, and is put right by the same command.
#[tokio::test(flavor = "multi_thread")]
async fn a_grader_that_gave_no_grade_makes_room_for_another() {
    let kept = kept(&["--archive"]).await;
    let ran = kept.grade("command:exit 3").await.exits(1);
    ran.says("0 graded, 0 without a kept answer, 2 failed");
    kept.grade("exact").await.exits(0).says("2 graded");
    let runs = kept.events("run").await;
    assert_eq!(runs.last().expect("settings")["graders"][0]["name"], "exact");
    // From now on there are grades, which are of one kind.
    kept.grade("contains").await.exits(0).says("nothing to grade");
    let report = cli(&["report", &kept.dir, "--json"]).await.exits(0).json().remove(0);
    assert_eq!((&report["quality"]["n"], &report["grader"]["name"]), (&2.into(), &"exact".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_published_grader_is_one() {
    let room = Room::new();
    let (cases, dir) = (room.write("cases.jsonl", CASES), room.arg("ledger"));
    let server = MockServer::start(Script::new([Step::Good])).await.expect("a port");
    let url = server.url();
    // Planned with a grader; the answers come without being graded: a grade's row is what is lost
    // when a process is killed after its closing row.
    let graded = ["--archive", "--grader", "exact", "--run", "r"];
    cli(&run_args(&cases, &url, &dir, &graded)).await.exits(0);
    cut_last_grade(&room.path("ledger"));
    let args = |grader| ["grade", &*dir, "--grader", grader, "--cases", &*cases];
    cli(&args("contains")).await.exits(2).complains("is graded by exact 1+");
    cli(&args("exact")).await.exits(0).says("1 graded, 0 without a kept answer, 0 failed");
    cli(&args("exact")).await.exits(0).says("nothing to grade");
    // Begun without a grader, it goes on with the one that it has now, and says so.
    let begun = [&graded[..1], &["--run", "s"]].concat();
    cli(&run_args(&cases, &url, &dir, &begun)).await.exits(0);
    cli(&args("exact")).await.exits(0).says("3 graded");
    let again = cli(&run_args(&cases, &url, &dir, &begun)).await;
    again.exits(2).complains("give --run s and --grader as there");
}

/// Cuts the last row of the only segment off, which must be a grade.
fn cut_last_grade(dir: &std::path::Path) {
    let path = dir.join("000000000000.jsonl");
    let text = std::fs::read_to_string(&path).expect("rows");
    let rows: Vec<&str> = text.lines().collect();
    let (last, rest) = rows.split_last().expect("a row");
    assert!(last.contains(r#""kind":"scored""#), "{last}");
    std::fs::write(&path, rest.join("\n") + "\n").expect("written");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_in_use_is_not_graded_and_an_interrupted_grade_goes_on() {
    let kept = kept(&["--archive", "--keyed"]).await;
    let holder = attempt_ledger_store::file::FileOptions::new(&kept.dir).open().expect("opens");
    kept.grade("exact").await.exits(3).complains("is held by process");
    drop(holder);
    // Whenever the signal comes, what is graded is recorded, and the same command does the rest.
    let args = ["grade", &*kept.dir, "--grader", "exact", "--cases", &*kept.cases];
    let child = command(&args).spawn().expect("spawned");
    interrupt(&child);
    let _ = finish(child).await;
    let done = kept.events("scored").await.len();
    assert!(done <= 2);
    kept.grade("exact").await.exits(0);
    assert_eq!(kept.events("scored").await.len(), 2);
}

/// A pipe by name: `up` is said through it, and it ends when all are gone who may write to it.
fn fifo(room: &Room) -> (String, String) {
    let path = room.arg("fifo");
    let made = std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo");
    assert!(made.success());
    let line = format!("command:exec 3>{path}; echo up >&3; sleep 300; echo 1");
    (path, line)
}

/// Reads a line of `up` from each of so many commands.
async fn are_up(pipe: &mut BufReader<tokio::fs::File>, commands: usize) {
    for _ in 0..commands {
        let mut line = String::new();
        let read = tokio::time::timeout(BOUND, pipe.read_line(&mut line)).await;
        read.expect("in time").expect("read");
        assert_eq!(line, "up\n");
    }
}

/// Reads on until nobody is left.
async fn all_are_gone(mut pipe: BufReader<tokio::fs::File>) {
    let mut rest = String::new();
    let gone = tokio::time::timeout(BOUND, pipe.read_to_string(&mut rest)).await;
    gone.expect("no command is left behind").expect("read");
}

#[tokio::test(flavor = "multi_thread")]
async fn letting_go_of_grades_leaves_no_command_behind() {
    let kept = kept(&["--archive"]).await;
    let (path, grader) = fifo(&kept.room);
    let mut child = command(&["grade", &kept.dir, "--grader", &grader]).spawn().expect("spawned");
    let mut lines = stderr_lines(&mut child);
    let mut pipe = BufReader::new(tokio::fs::File::open(path).await.expect("open"));
    are_up(&mut pipe, 2).await;
    interrupt(&child);
    await_line(&mut lines, "stopping: what is being graded goes on").await;
    interrupt(&child);
    finish(child).await.exits(1).says("0 graded").says("not graded: 2; the same command goes on");
    all_are_gone(pipe).await;
}
