//! Bytes in a ledger that are no rows: told by every reader, and no reason to stop.
#![allow(clippy::expect_used, reason = "helpers of tests")]

mod common;

use std::io::Write as _;

use attempt_ledger_mock::{MockServer, Script, Step};
use common::{Room, cli, run_args};

const SEGMENT: &str = "ledger/000000000000.jsonl";

/// A ledger of one run, and the server that it was made with.
async fn ledger(room: &Room) -> (MockServer, String) {
    let server = MockServer::start(Script::new([Step::Good])).await.expect("a port");
    let dir = room.arg("ledger");
    run(room, &server, &dir).await;
    (server, dir)
}

async fn run(room: &Room, server: &MockServer, dir: &str) -> common::Ran {
    let cases: String = (0..6).map(|n| format!("{{\"id\":\"{n}\",\"prompt\":\"p\"}}\n")).collect();
    let cases = room.write("cases.jsonl", cases);
    cli(&run_args(&cases, &server.url(), dir, &["--run", "r"])).await.exits(0)
}

fn bytes(room: &Room) -> Vec<u8> {
    std::fs::read(room.path(SEGMENT)).expect("read")
}

/// Every reader says `what` of the bytes from `offset` on, and ends well.
async fn all_say(dir: &str, offset: usize, len: usize, what: &str) {
    let place = format!("000000000000.jsonl, offset {offset}: {len} bytes not counted as rows: ");
    let report = cli(&["report", dir, "--json"]).await.exits(0).complains(&place).complains(what);
    let warnings = report.json().remove(0)["warnings"].to_string();
    assert!(warnings.contains(&place) && warnings.contains(what), "{warnings}");
    let report = cli(&["report", dir]).await.exits(0).complains(&place);
    let text = report.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains(what), "{text}");
    for form in ["--json", "--events"] {
        cli(&["log", dir, form]).await.exits(0).complains(&place).complains(what);
    }
    cli(&["log", dir]).await.exits(0).complains(&place);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_torn_tail_is_told_and_told_again_when_it_is_set_aside() {
    let room = Room::new();
    let (server, dir) = ledger(&room).await;
    let whole = bytes(&room);
    let sound = cli(&["report", &dir]).await.exits(0);
    assert_eq!(sound.err, "", "a sound ledger is nothing to warn of");

    let line = whole.split(|&b| b == b'\n').next().expect("a line");
    let half = line.get(..line.len() / 2).expect("half of it");
    let mut file = std::fs::File::options().append(true).open(room.path(SEGMENT)).expect("open");
    file.write_all(half).expect("written");
    let torn = "torn, an unfinished last write";
    all_say(&dir, whole.len(), half.len(), torn).await;

    // The next writer sets it aside, and says so itself.
    run(&room, &server, &dir).await.complains(torn).says("warning:");
    all_say(&dir, whole.len(), half.len(), torn).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hole_is_told() {
    let room = Room::new();
    let (server, dir) = ledger(&room).await;
    let mut cut = bytes(&room);
    let from = (cut.len() / 512 - 1) * 512;
    cut.get_mut(from..from + 512).expect("a sector").fill(0);
    std::fs::write(room.path(SEGMENT), &cut).expect("written");
    let rows = cut.get(..from).expect("rows").iter().rposition(|&b| b == b'\n').expect("one") + 1;
    let hole = "a hole, bytes are missing";
    all_say(&dir, rows, cut.len() - rows, hole).await;
    run(&room, &server, &dir).await.complains(hole).says("warning:");
    all_say(&dir, rows, cut.len() - rows, hole).await;
}
