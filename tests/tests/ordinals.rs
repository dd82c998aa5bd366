//! Two attempts of a slot never share an ordinal.

use attempt_ledger::{CallLayer, Ledger, LedgerLayer, LedgerRetry, ScoreLayer};
use attempt_ledger_store::file::FileOptions;
use attempt_ledger_tests::*;
use tower::ServiceExt;

async fn hammer(ledger: &Ledger, tasks: usize, each: usize) {
    let inner = Frames::new([document("hello", "stop").after(ms(0))]);
    let layer = LedgerLayer::new(ledger.clone());
    let service = stack(CallLayer::new(), LedgerRetry::new(), ScoreLayer::none(), layer, inner);
    let mut set = tokio::task::JoinSet::new();
    for _ in 0..tasks {
        let service = service.clone();
        set.spawn(async move {
            for _ in 0..each {
                service.clone().oneshot(chat("c")).await.expect("answer");
            }
        });
    }
    while let Some(done) = set.join_next().await {
        done.expect("task");
    }
}

fn check(ledger: &Ledger, count: u32) {
    let ordinals: Vec<_> =
        rows(ledger, "c").iter().map(|r| r.ordinal.expect("linked").get()).collect();
    assert_eq!(ordinals, (1..=count).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_tasks_on_one_slot_in_memory() {
    let ledger = Ledger::memory();
    hammer(&ledger, 64, 100).await;
    check(&ledger, 6_400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_tasks_on_one_slot_in_files_and_on_after_reopening() {
    let dir = tempfile::tempdir().expect("dir");
    let path = dir.path().join("ledger");
    let ledger = FileOptions::new(&path).open().expect("ledger");
    hammer(&ledger, 64, 100).await;
    check(&ledger, 6_400);
    drop(ledger);
    let ledger = FileOptions::new(&path).open().expect("reopened");
    hammer(&ledger, 1, 1).await;
    check(&ledger, 6_401);
}
