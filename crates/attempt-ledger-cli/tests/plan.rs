//! What is planned, and what of it is run: epochs, order, parts.
#![allow(clippy::expect_used, reason = "helpers of tests")]

mod common;

use attempt_ledger_mock::{MockServer, Script, Step};
use common::{Room, cli, run_args};
use serde_json::Value;

const FOUR: [&str; 4] = ["a", "b", "c", "d"];

fn cases(room: &Room, ids: &[&str]) -> String {
    let line = |id: &&str| {
        serde_json::json!({ "id": id, "prompt": format!("<{id}>"), "expected": "pong" }).to_string()
    };
    room.write("cases.jsonl", ids.iter().map(line).collect::<Vec<_>>().join("\n"))
}

async fn good() -> MockServer {
    MockServer::start(Script::new([Step::Good])).await.expect("a port")
}

/// Case and epoch of each attempt, in the order in which they were opened.
async fn opened(dir: &str) -> Vec<String> {
    let rows = cli(&["log", dir, "--json"]).await.exits(0).json();
    let text = |row: &Value| {
        format!("{}{}#{}", row["case"].as_str().expect("a case"), row["epoch"], row["ordinal"])
    };
    rows.iter().map(text).collect()
}

async fn report(dir: &str) -> Value {
    cli(&["report", dir, "--json"]).await.exits(0).json().remove(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_case_is_sampled_so_often_and_more_goes_on_with_the_run() {
    let room = Room::new();
    let (file, dir) = (cases(&room, &FOUR), room.arg("ledger"));
    let server = good().await;
    let url = server.url();
    let run = |epochs| run_args(&file, &url, &dir, &["--concurrency", "1", "--epochs", epochs]);
    let first = cli(&run("2")).await.exits(0).says(": 4 cases, 2 epochs, 1 at once");
    assert!(first.out.contains("(8 x "), "each sample counts in the worst case: {}", first.out);
    assert!(first.err.contains("[5/8] a epoch 2: ok at ordinal 1"), "{}", first.err);
    // All cases once before any a second time, and every sample a first attempt of its own.
    let mut want = ["a1#1", "b1#1", "c1#1", "d1#1", "a2#1", "b2#1", "c2#1", "d2#1"].to_vec();
    assert_eq!(opened(&dir).await, want);
    assert_eq!(report(&dir).await["quality"]["planned"], 8);

    // More epochs are the same run, which lacks the others only.
    let name = first.out.split([' ', ':']).nth(1).expect("a name").to_owned();
    cli(&run("3"))
        .await
        .exits(0)
        .says(&format!("going on with run {name}: 8 finished, 4 left"))
        .says("skipped, finished before: 8");
    want.extend(["a3#1", "b3#1", "c3#1", "d3#1"]);
    assert_eq!(opened(&dir).await, want);
    assert_eq!(report(&dir).await["quality"]["planned"], 12);
    // Fewer leave the plan as it is.
    cli(&run("1")).await.exits(0).says("skipped, finished before: 4");
    assert_eq!(report(&dir).await["quality"]["planned"], 12);
    assert_eq!(server.requests(), 12);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seed_shuffles_the_order_and_nothing_else() {
    let ids: Vec<String> = (0..12).map(|n| format!("case-{n}")).collect();
    let mut ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let room = Room::new();
    let server = good().await;
    let url = server.url();
    let order = async |dir: &str, ids: &[&str], more: &[&str]| {
        let (file, dir) = (cases(&room, ids), room.arg(dir));
        let all = [&["--concurrency", "1"], more].concat();
        let ran = cli(&run_args(&file, &url, &dir, &all)).await.exits(0);
        let name = ran.out.split([' ', ':']).nth(1).expect("a name").to_owned();
        (opened(&dir).await, name)
    };
    let (plain, name) = order("plain", &ids, &[]).await;
    assert_eq!(plain, ids.iter().map(|id| format!("{id}1#1")).collect::<Vec<_>>());
    let (first, same) = order("first", &ids, &["--seed", "1"]).await;
    assert_eq!(name, same, "the order names no other run");
    assert_ne!(first, plain);
    assert_ne!(order("other", &ids, &["--seed", "2"]).await.0, first);
    ids.reverse();
    assert_eq!(order("again", &ids, &["--seed", "1"]).await.0, first, "whatever the file's order");
    // The settings that are recorded are the same ones.
    let settings = async |dir: &str| {
        let events = cli(&["log", &room.arg(dir), "--events"]).await.exits(0).json();
        let mut run = events.into_iter().find(|event| event["kind"] == "run").expect("a run");
        let run = run.as_object_mut().expect("an object");
        // What the store adds to each row: its time, checksum and chain.
        run.retain(|name, _| !["t", "c", "h", "seq", "time"].contains(&&**name));
        Value::from(run.clone())
    };
    assert_eq!(settings("plain").await, settings("first").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_recorded_and_nothing_is_sent() {
    let room = Room::new();
    let (file, dir) = (cases(&room, &FOUR), room.arg("ledger"));
    let server = good().await;
    let url = server.url();
    let more = ["--epochs", "2", "--grader", "exact", "--api-key-env", "NO_SUCH_VARIABLE"];
    let planned = run_args(&file, &url, &dir, &[&more[..], &["--planned"]].concat());
    let ran = cli(&planned)
        .await
        .exits(0)
        .says(": 4 cases, 2 epochs planned, 8 of 8 samples new\n")
        .says("nothing was sent");
    assert_eq!(server.connections(), 0);
    let name = ran.out.split([' ', ':']).nth(1).expect("a name").to_owned();
    let numbers = report(&dir).await;
    assert_eq!((&numbers["quality"]["planned"], &numbers["quality"]["n"]), (&8.into(), &0.into()));
    assert_eq!(numbers["run"], *name);
    cli(&planned).await.exits(0).says("0 of 8 samples new");
    // Without --planned, the same command is that run, and a part of it leaves the rest planned.
    let part = ["--epochs", "2", "--grader", "exact", "--case", "c", "--case", "a"];
    cli(&run_args(&file, &url, &dir, &part))
        .await
        .exits(0)
        .says(&format!("run {name}: 2 of 4 cases, 2 epochs, "))
        .says("coverage 50.0%");
    assert_eq!(server.requests(), 4);
    let numbers = report(&dir).await;
    assert_eq!((&numbers["quality"]["planned"], &numbers["quality"]["n"]), (&8.into(), &4.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_counts_against_the_whole_plan() {
    let room = Room::new();
    let (file, dir) = (cases(&room, &FOUR), room.arg("ledger"));
    let server = good().await;
    let url = server.url();
    let run = |more: &[&'static str]| {
        let more = [&["--grader", "exact", "--concurrency", "1"], more].concat();
        let args = run_args(&file, &url, &dir, &more);
        let args: Vec<String> = args.into_iter().map(str::to_owned).collect();
        async move { cli(&args.iter().map(String::as_str).collect::<Vec<_>>()).await }
    };
    run(&["--limit", "1"]).await.exits(0).says(": 1 of 4 cases, ").says("coverage 25.0%");
    // The same part again is finished; a larger one goes on with the same run.
    run(&["--limit", "1"]).await.exits(0).says("skipped, finished before: 1");
    run(&["--limit", "3"]).await.exits(0).says("1 finished, 2 left");
    // The order of --case is the file's, and naming a case twice is naming it.
    run(&["--case", "d", "--case", "b", "--case", "d"]).await.exits(0).says("1 finished, 1 left");
    assert_eq!(opened(&dir).await, ["a1#1", "b1#1", "c1#1", "d1#1"]);
    assert_eq!(report(&dir).await["quality"]["coverage"], 1.0);
    run(&["--case", "e"]).await.exits(2).complains("has no case e, which --case names");
    for (more, said) in [
        (&["--limit", "1", "--case", "a"][..], "--case"),
        (&["--planned", "--limit", "1"], "--limit"),
        (&["--planned", "--case", "a"], "--case"),
        (&["--limit", "0"], "--limit"),
        (&["--epochs", "0"], "--epochs"),
        (&["--seed=-1"], "--seed"),
    ] {
        run(more).await.exits(2).complains(said);
    }
    assert_eq!(server.requests(), 4);
}
