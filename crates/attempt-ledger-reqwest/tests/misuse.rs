//! What is put together wrongly is found, and said.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail as its assertions do")]

mod common;

use attempt_ledger::{CallLayer, Ledger, LedgerLayer, Verdict};
use attempt_ledger_mock::{Script, Step};
use attempt_ledger_reqwest::{
    CallMiddleware, LedgerMiddleware, Misplaced, NoCase, RetryMiddleware, client_builder,
};
use bytes::Bytes;
use common::*;
use futures_util::stream;
use reqwest_middleware::{ClientBuilder, Error};

fn client() -> ClientBuilder {
    ClientBuilder::new(client_builder().no_proxy().build().unwrap())
}

/// What a middleware said, past a retry's wrapping.
fn said<E: std::error::Error + Send + Sync + 'static>(error: &Error) -> bool {
    match error {
        Error::Reqwest(_) => false,
        Error::Middleware(error) => match error.downcast_ref::<reqwest_retry::RetryError>() {
            Some(reqwest_retry::RetryError::Error(error)) => said::<E>(error),
            Some(reqwest_retry::RetryError::WithRetries { .. }) => false,
            None => error.is::<E>(),
        },
    }
}

#[tokio::test]
async fn a_ledger_above_the_retry_is_found_by_the_second_send() {
    let ledger = Ledger::memory();
    for ours in [false, true] {
        let server = serve(Script::new([Step::ServerError, Step::Good])).await;
        let client = client().with(LedgerMiddleware::new(ledger.clone()));
        let client = if ours {
            // Beneath it there is no attempt to decide by, so that this one never sends again.
            client.with(RetryMiddleware::default()).build()
        } else {
            client.with(retry()).build()
        };
        let name = if ours { "ours" } else { "theirs" };
        let result = chat(&client, &server, false).with_extension(case(name)).send().await;
        match ours {
            true => assert_eq!((result.unwrap().status().as_u16(), server.requests()), (500, 1)),
            false => {
                let error = result.unwrap_err();
                assert!(said::<Misplaced>(&error), "{error:?}");
                assert!(error.to_string().contains("after the retry"), "{error}");
            }
        }
    }
    let verdicts: Vec<_> = rows(&ledger).iter().filter_map(|row| row.verdict).collect();
    assert_eq!(verdicts, [Verdict::Abandoned, Verdict::ServerError], "no answer is claimed");
}

/// A retry beneath the ledger that is never needed does no harm, and is left alone.
#[tokio::test]
async fn one_send_beneath_is_no_second() {
    let server = serve(Script::new([Step::Good])).await;
    let ledger = Ledger::memory();
    let client = client().with(LedgerMiddleware::new(ledger.clone())).with(retry()).build();
    let response = chat(&client, &server, false).with_extension(case("c")).send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(rows(&ledger)[0].verdict, Some(Verdict::Ok));
}

#[tokio::test]
async fn a_missing_case_is_refused_and_nothing_is_sent() {
    let server = serve(Script::new([Step::Good])).await;
    let ledger = Ledger::memory();
    for call in [false, true] {
        let mut client = client();
        if call {
            client = client.with(CallMiddleware::new());
        }
        let client = client.with(retry()).with(LedgerMiddleware::new(ledger.clone())).build();
        let error = chat(&client, &server, false).send().await.unwrap_err();
        assert!(said::<NoCase>(&error), "{error:?}");
        assert!(error.to_string().contains("with_extension"), "{error}");
    }
    assert_eq!((server.requests(), rows(&ledger).len()), (0, 0));

    let allowed = LedgerLayer::new(ledger.clone()).allow_unlinked(true);
    let client = client().with(LedgerMiddleware::from(allowed)).build();
    assert_eq!(chat(&client, &server, false).send().await.unwrap().status(), 200);
    let row = rows(&ledger).remove(0);
    assert_eq!((row.ordinal, row.verdict), (None, Some(Verdict::Ok)));
}

#[tokio::test]
async fn a_streamed_request_body_is_hashed_while_it_is_sent() {
    let server = serve(Script::new([Step::Good])).await;
    let ledger = Ledger::memory();
    let client = client()
        .with(CallMiddleware::new())
        .with(RetryMiddleware::default())
        .with(LedgerMiddleware::new(ledger.clone()))
        .build();
    let url = format!("{}/chat/completions", server.url());
    // No JSON, whose fingerprint would be of its values where it is at hand.
    let whole = "reply with: ok";
    let pieces =
        [&whole[..7], &whole[7..]].map(|piece| Ok::<_, std::io::Error>(Bytes::from(piece)));
    let body = reqwest::Body::wrap_stream(stream::iter(pieces));
    client.post(&url).body(body).with_extension(case("streamed")).send().await.unwrap();
    client.post(&url).body(whole).with_extension(case("whole")).send().await.unwrap();
    let rows = rows(&ledger);
    let of = |name: &str| {
        rows.iter().find(|r| r.case.as_ref().is_some_and(|c| c.as_str() == name)).unwrap()
    };
    assert!(of("streamed").fingerprint.is_some());
    assert_eq!(of("streamed").fingerprint, of("whole").fingerprint, "of the same bytes");
    assert!(of("streamed").effect.is_writes());
    let received = server.received();
    assert!(received.iter().all(|r| r.body == whole), "as they were");
}

/// There is no second body to send, and ours does not pretend.
#[tokio::test]
async fn a_streamed_request_body_is_sent_once() {
    let server = serve(Script::new([Step::Unavailable]).then_repeat_last()).await;
    let ledger = Ledger::memory();
    let client = client()
        .with(RetryMiddleware::default())
        .with(LedgerMiddleware::new(ledger.clone()))
        .build();
    let body = reqwest::Body::wrap_stream(stream::iter([Ok::<_, std::io::Error>("{}")]));
    let request = client.post(server.url()).body(body).with_extension(case("c"));
    assert_eq!(request.send().await.unwrap().status(), 503);
    assert_eq!((server.requests(), rows(&ledger).len()), (1, 1));
}

#[tokio::test]
async fn a_client_that_follows_redirects_shows_where_it_ended() {
    let redirect = |n: u8| Step::Redirect { status: 307, location: format!("/v1/{n}?key=SECRET") };
    let server = serve(Script::new([redirect(1), redirect(2), Step::Good])).await;
    let ledger = Ledger::memory();
    let following = reqwest::Client::builder().no_proxy().build().unwrap();
    let client = ClientBuilder::new(following).with(LedgerMiddleware::new(ledger.clone())).build();
    let response = chat(&client, &server, false).with_extension(case("c")).send().await.unwrap();
    assert_eq!((response.url().path(), server.requests()), ("/v1/2", 3));
    let row = rows(&ledger).remove(0);
    assert_eq!(row.redirects, [format!("{}/2", server.url())], "once, and no query");
}

#[tokio::test]
async fn redirects_are_followed_within_an_attempt_by_the_ledgers_rules() {
    let redirect = |status, n: u8| Step::Redirect { status, location: format!("/v1/{n}") };
    let script = [redirect(307, 1), redirect(308, 2), Step::Good, redirect(302, 3)];
    let server = serve(Script::new(script)).await;
    let ledger = Ledger::memory();
    let following = LedgerMiddleware::new(ledger.clone()).follow_redirects(true);
    let client = client().with(following).build();
    let response = chat(&client, &server, false).with_extension(case("c")).send().await.unwrap();
    assert_eq!((response.status().as_u16(), response.url().path()), (200, "/v1/2"));
    let bodies: Vec<_> = server.received().into_iter().map(|r| r.body).collect();
    assert!(bodies.len() == 3 && bodies.iter().all(|b| *b == bodies[0] && !b.is_empty()));
    let other = chat(&client, &server, false).with_extension(case("c")).send().await.unwrap();
    assert_eq!((other.status().as_u16(), other.url().path()), (302, "/v1/chat/completions"));
    let rows = rows(&ledger);
    let hops: Vec<_> = rows.iter().map(|row| row.redirects.len()).collect();
    assert_eq!(hops, [2, 0]);
    assert_eq!(rows[1].verdict, Some(Verdict::Redirected));

    // A streamed body cannot be sent again: its redirect is handed up.
    let server = serve(Script::new([redirect(307, 1), Step::Good])).await;
    let body = reqwest::Body::wrap_stream(stream::iter([Ok::<_, std::io::Error>("{}")]));
    let request = client.post(server.url()).body(body).with_extension(case("s"));
    assert_eq!(request.send().await.unwrap().status(), 307);
    assert_eq!(server.requests(), 1);
}

#[tokio::test]
async fn a_cap_ends_the_call_and_is_not_retried() {
    let server = serve(Script::new([Step::ServerError]).then_repeat_last()).await;
    let ledger = Ledger::memory();
    let client = client()
        .with(CallMiddleware::from(CallLayer::new().attempts(2)))
        .with(retry())
        .with(LedgerMiddleware::new(ledger.clone()))
        .build();
    let error = chat(&client, &server, false).with_extension(case("c")).send().await.unwrap_err();
    let Error::Middleware(error) = error else { panic!("{error:?}") };
    let error = error.downcast_ref::<attempt_ledger::Error>().unwrap();
    assert!(error.is_capped() && error.call().is_some_and(|call| call.opened() == 2));
    assert_eq!((server.requests(), rows(&ledger).len()), (2, 2));
}
