//! `run --archive`: where answers are kept, and what is told of it.
#![allow(clippy::expect_used, reason = "helpers of tests")]

mod common;

use std::os::unix::fs::PermissionsExt as _;

use attempt_ledger_mock::{MockServer, Script, Step};
use common::{Room, all_bytes, cli, run_args};

const CASES: &str = "{\"id\":\"a\",\"prompt\":\"yes\",\"expected\":\"pong\"}\n";

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_kept_where_that_is_asked_for_and_nowhere_else() {
    let room = Room::new();
    let (cases, kept, not) = (room.write("cases.jsonl", CASES), room.arg("kept"), room.arg("not"));
    let server = MockServer::start(Script::new([Step::Good])).await.expect("a port");
    let url = server.url();
    cli(&run_args(&cases, &url, &not, &[])).await.exits(0).complains("nothing will be graded");
    assert!(!String::from_utf8_lossy(&all_bytes(&room.path("not"))).contains("pong"));

    let ran = cli(&run_args(&cases, &url, &kept, &["--archive"])).await.exits(0);
    let ran = ran.complains("note: answers are stored in ").complains("that only you may read");
    assert!(!ran.err.contains("nothing will be graded"), "{}", ran.err);
    let row = cli(&["log", &kept, "--json"]).await.exits(0).json().remove(0);
    let name = row["answer_sha256"].as_str().expect("a digest");
    let folder = room.path("kept").join("archive");
    let mode = |path: &std::path::Path| {
        std::fs::metadata(path).expect("there").permissions().mode() & 0o777
    };
    assert_eq!((mode(&folder), mode(&folder.join(name))), (0o700, 0o600));
    let text = std::fs::read_to_string(folder.join(name)).expect("an answer");
    assert!(text.contains(r#""text":"pong""#), "{text}");

    // The folder is in nobody's way.
    cli(&run_args(&cases, &url, &kept, &[])).await.exits(0).says("skipped, finished before: 1");
    cli(&["report", &kept]).await.exits(0);
    assert_eq!(server.requests(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_that_cannot_be_had_is_told_before_anything_is_sent() {
    let room = Room::new();
    let (cases, dir) = (room.write("cases.jsonl", CASES), room.arg("ledger"));
    let server = MockServer::start(Script::new([Step::Good])).await.expect("a port");
    let url = server.url();
    std::fs::create_dir(room.path("ledger")).expect("made");
    std::fs::create_dir(room.path("elsewhere")).expect("made");
    // A ledger first: it is made in no folder with other files.
    cli(&run_args(&cases, &url, &dir, &[])).await.exits(0);
    let folder = room.path("ledger").join("archive");
    std::os::unix::fs::symlink(room.path("elsewhere"), &folder).expect("linked");
    let more = ["--archive", "--fresh"];
    cli(&run_args(&cases, &url, &dir, &more)).await.exits(3).complains("is no folder");
    assert_eq!(server.requests(), 1);
}
