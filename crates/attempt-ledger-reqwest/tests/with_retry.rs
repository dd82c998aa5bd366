//! Beneath reqwest-retry as it is: rows equal the requests that the server counted, in their order, and
//! what the caller gets is what it gets without the ledger, for every step of the mock's script.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail as its assertions do")]

mod common;

use attempt_ledger::{CallLayer, Cause, Ledger, Remote, Verdict};
use attempt_ledger_mock::{RefusedAddr, Script, Step};
use attempt_ledger_reqwest::{CallMiddleware, LedgerMiddleware, client_builder};
use common::*;
use futures_util::{StreamExt, stream};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};

/// A client that gives up where the server never ends.
fn bare(step: &Step) -> ClientBuilder {
    let patience = if step.never_ends() { ms(400) } else { ms(20_000) };
    ClientBuilder::new(client_builder().no_proxy().timeout(patience).build().unwrap()).with(retry())
}

fn watched(step: &Step, ledger: &Ledger) -> ClientWithMiddleware {
    bare(step).with(LedgerMiddleware::new(ledger.clone())).build()
}

/// The status that a step answers with, where it gets so far.
fn status(step: &Step) -> Option<u16> {
    match step {
        Step::Refuse
        | Step::Reset
        | Step::CloseBeforeHead
        | Step::StallBeforeHead
        | Step::Raw(_) => None,
        Step::Throttled(_) => Some(429),
        Step::Unavailable => Some(503),
        Step::ServerError => Some(500),
        Step::Redirect { status, .. } | Step::Status { status, .. } => Some(*status),
        _ => Some(200),
    }
}

async fn same_with_and_without(name: &str, step: Step, recovers: bool, streamed: bool) {
    let what = format!("{name}, recovers {recovers}, streamed {streamed}");
    let script = || {
        let script = Script::new([step.clone()]);
        if recovers { script.then(Step::Good) } else { script.then_repeat_last() }
    };
    let (plain, seen_by) = (serve(script()).await, serve(script()).await);
    let mut without = see(chat(&bare(&step).build(), &plain, streamed), &plain).await;
    let ledger = Ledger::memory();
    let request = chat(&watched(&step, &ledger), &seen_by, streamed).with_extension(case("c"));
    let mut with = see(request, &seen_by).await;
    if step == Step::Refuse {
        // Whether the reset comes while connecting or right after is up to the system, each time.
        for seen in [&mut with, &mut without] {
            seen.error.iter_mut().for_each(|error| error.is_connect = true);
        }
    }
    assert_eq!(with, without, "{what}");

    let rows = rows(&ledger);
    assert_eq!(rows.len(), seen_by.requests() + seen_by.refused(), "{what}: rows and requests");
    assert_eq!(seen_by.requests(), plain.requests(), "{what}: as many as without");
    let ordinals: Vec<_> =
        rows.iter().filter_map(|r| r.ordinal).map(attempt_ledger::Ordinal::get).collect();
    assert_eq!(ordinals, (1..=rows.len() as u32).collect::<Vec<_>>(), "{what}");
    let recorded: Vec<_> = rows.iter().map(|row| row.status).collect();
    let mut counted: Vec<_> = vec![None; seen_by.refused()];
    counted.extend(seen_by.received().iter().map(|r| status(&r.step)));
    assert_eq!(recorded, counted, "{what}: in their order");
    assert!(rows.iter().all(|row| row.verdict.is_some()), "{what}: all are closed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_step_gives_the_caller_what_it_gives_without_the_ledger() {
    let mut all = Vec::new();
    for (name, step) in Step::all() {
        for (recovers, streamed) in [(true, true), (true, false), (false, true), (false, false)] {
            all.push(same_with_and_without(name, step.clone(), recovers, streamed));
        }
    }
    stream::iter(all).buffer_unordered(16).collect::<()>().await;
}

#[tokio::test]
async fn a_refused_connection_stays_an_error_of_connecting() {
    let refused = RefusedAddr::new().unwrap();
    let ledger = Ledger::memory();
    let url = format!("{}/chat/completions", refused.url());
    let without = bare(&Step::Refuse).build().post(&url).send().await.unwrap_err();
    let client = watched(&Step::Refuse, &ledger);
    let with = client.post(&url).with_extension(case("c")).send().await.unwrap_err();
    assert_eq!(failed(&with), failed(&without));
    assert!(failed(&with).is_connect);
    let remotes: Vec<_> = rows(&ledger).iter().map(|row| row.remote).collect();
    assert_eq!(remotes, [Some(Remote::NotReached); 4]);
}

#[tokio::test]
async fn a_retry_is_a_row_of_its_own_and_with_a_call_above_it_says_so() {
    let server = serve(Script::new([Step::ServerError, Step::Unavailable, Step::Good])).await;
    let ledger = Ledger::memory();
    let client = ClientBuilder::new(client_builder().no_proxy().build().unwrap())
        .with(CallMiddleware::from(CallLayer::new().attempts(4)))
        .with(retry())
        .with(LedgerMiddleware::new(ledger.clone()))
        .build();
    let response = chat(&client, &server, false).with_extension(case("c")).send().await.unwrap();
    assert_eq!(response.status(), 200);
    let rows = rows(&ledger);
    let told: Vec<_> = rows.iter().map(|r| (r.verdict.unwrap(), r.cause)).collect();
    assert_eq!(
        told,
        [
            (Verdict::ServerError, Cause::Initial),
            (Verdict::Throttled, Cause::Retry),
            (Verdict::Ok, Cause::Retry)
        ]
    );
    assert!(rows.iter().all(|r| r.call.is_some() && r.call == rows[0].call), "one call");
}
