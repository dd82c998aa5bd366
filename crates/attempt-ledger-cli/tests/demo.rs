//! `demo` shows the known answers, whatever the order of the faults.

mod common;

use common::{Room, cli};

#[tokio::test(flavor = "multi_thread")]
async fn the_known_answers_hold_for_every_seed() {
    let (zero, one, two) =
        tokio::join!(cli(&["demo"]), cli(&["demo", "--seed", "1"]), cli(&["demo", "--seed", "2"]));
    for ran in [zero, one, two] {
        let ran = ran
            .exits(0)
            .says("case-7  ok             0.25    1.0")
            .says("case-8  deadline       none    1.0")
            .says("bounds 0.125 to 0.625")
            .says("1 of 4 attempts")
            .says("in 2 slots")
            .says("95%: 9.5% to 90.5%")
            .says("+0.750")
            .says("the same request: skipped, it is finished; requests at the server: 0")
            .says("another model: a miss, so it was sent; requests at the server: 1")
            .says("All as it must be")
            .says("counts the other model's attempt too: 5 attempts of run demo, so its numbers");
        let named = ran.out.lines().find_map(|line| line.strip_prefix("Ledger in "));
        let report = cli(&["report", named.expect("named"), "--json"]).await.exits(0).json();
        assert_eq!(report[0]["availability"]["attempts"], 5);
        let dir = std::path::PathBuf::from(named.expect("a ledger is named"));
        assert!(dir.join("FORMAT").exists());
        std::fs::remove_dir_all(dir).expect("removed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_plays_into_a_ledger_that_has_a_demonstration_already() {
    let room = Room::new();
    let dir = room.arg("ledger");
    let args = ["demo", "--ledger", &*dir, "--seed", "1"];
    cli(&args).await.exits(0);
    cli(&args).await.exits(0).says("demo-2");
    cli(&["report", &*dir]).await.exits(0).says("run demo-2");
    cli(&["report", &*dir, "--run", "demo-steps-2", "--json"]).await.exits(0);
}
