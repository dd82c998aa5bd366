//! `run --keyed`: what a ledger tells of prompts that can be guessed.
#![allow(clippy::expect_used, reason = "helpers of tests")]

mod common;

use std::collections::BTreeSet;

use attempt_ledger_mock::{MockServer, Script, Step};
use common::{Room, all_bytes, cli, run_args};
use serde_json::Value;

const CASES: &str = "{\"id\":\"a\",\"prompt\":\"yes\",\"expected\":\"pong\"}\n";

/// What a run stores that is made of what it was given: digests, the run's name, the grader's
/// version; not the digests of answers, which stay plain.
async fn made_of_inputs(dir: &str) -> BTreeSet<String> {
    let events = cli(&["log", dir, "--events"]).await.exits(0).json();
    let mut found = BTreeSet::new();
    for event in events {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let pairs = match event["kind"].as_str() {
            Some("run") => vec![
                text(&event["run"]),
                text(&event["target"]["params"]),
                text(&event["graders"][0]["version"]),
            ],
            Some("opened") => vec![text(&event["fingerprint"]), text(&event["fixture"])],
            _ => Vec::new(),
        };
        found.extend(pairs.into_iter().flatten());
    }
    assert_eq!(found.len(), 5, "{found:?}");
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_is_made_of_the_inputs_is_stored_plain_and_the_run_goes_on() {
    let room = Room::new();
    let cases = room.write("cases.jsonl", CASES);
    let (plain, keyed) = (room.arg("plain"), room.arg("keyed"));
    let server = MockServer::start(Script::new([Step::Good])).await.expect("a port");
    let url = server.url();
    let grader = ["--grader", "exact", "--params", r#"{"seed":7}"#];
    let with_key = ["--grader", "exact", "--params", r#"{"seed":7}"#, "--keyed"];
    cli(&run_args(&cases, &url, &plain, &grader)).await.exits(0);
    cli(&run_args(&cases, &url, &keyed, &with_key)).await.exits(0);
    assert_eq!(server.requests(), 2);

    let (plain_ones, keyed_ones) = (made_of_inputs(&plain).await, made_of_inputs(&keyed).await);
    let text = String::from_utf8(all_bytes(&room.path("keyed"))).expect("text");
    for plain in &plain_ones {
        // The whole, and whatever follows a prefix that says nothing.
        let bare = plain.rsplit(['-', '+']).next().expect("a part");
        assert!(bare.len() >= 8 && !text.contains(bare), "{plain} is in the keyed ledger");
    }
    assert!(plain_ones.is_disjoint(&keyed_ones));

    // The same run, with the flag or without it.
    for more in [&grader[..], &with_key[..]] {
        let ran = cli(&run_args(&cases, &url, &keyed, more)).await.exits(0);
        ran.says("1 finished, 0 left").says("skipped, finished before: 1");
    }
    assert_eq!(server.requests(), 2);
    assert_eq!(made_of_inputs(&keyed).await, keyed_ones);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_without_its_key_is_read_and_not_gone_on_with() {
    let room = Room::new();
    let (cases, dir) = (room.write("cases.jsonl", CASES), room.arg("ledger"));
    let server = MockServer::start(Script::new([Step::Good])).await.expect("a port");
    let url = server.url();
    cli(&run_args(&cases, &url, &dir, &["--keyed"])).await.exits(0);
    std::fs::remove_file(room.path("ledger").join("fingerprint.key")).expect("removed");
    for more in [&["--keyed"][..], &[]] {
        cli(&run_args(&cases, &url, &dir, more))
            .await
            .exits(3)
            .complains("fingerprint.key is missing")
            .complains("bring it back from a copy");
    }
    cli(&["report", &dir]).await.exits(0);
    assert_eq!(server.requests(), 1);

    let plain = room.arg("plain");
    cli(&run_args(&cases, &url, &plain, &[])).await.exits(0);
    let late = cli(&run_args(&cases, &url, &plain, &["--keyed"])).await.exits(3);
    late.complains("was begun without").complains("begin another ledger with keyed fingerprints");
}
