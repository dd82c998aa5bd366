//! Clocks, gates, grades and the project's own policy beneath a reqwest-middleware client.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail as its assertions do")]

mod common;

use std::error::Error as _;

use attempt_ledger::{
    Attempt, Clocks, GateKind, Gates, GradeInput, GraderFn, Ledger, LedgerLayer, LedgerRetry,
    ScoreLayer, Verdict, redirect_layer,
};
use attempt_ledger_mock::{Script, Step};
use attempt_ledger_reqwest::{
    CallMiddleware, LedgerMiddleware, ReqwestService, RetryMiddleware, client_builder,
};
use common::*;
use http_body_util::{BodyExt, Full};
use reqwest_middleware::{ClientBuilder, Middleware, Next};
use tower::{ServiceBuilder, ServiceExt};

fn client() -> ClientBuilder {
    ClientBuilder::new(client_builder().no_proxy().build().unwrap())
}

/// The ledger's error in what reqwest hands up, which names the attempt.
fn ledgers<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a attempt_ledger::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(ours) = error.downcast_ref() {
            return Some(ours);
        }
        next = error.source();
    }
    None
}

#[tokio::test]
async fn a_clock_before_the_head_is_a_timeout_that_reqwest_retry_repeats() {
    let server = serve(Script::new([Step::StallBeforeHead, Step::Good])).await;
    let ledger = Ledger::memory();
    let clocks = LedgerLayer::new(ledger.clone()).clocks(Clocks::default().head(ms(100)));
    let bare = client().with(LedgerMiddleware::from(clocks.clone())).build();
    let error = chat(&bare, &server, false).with_extension(case("c")).send().await.unwrap_err();
    assert!(error.is_timeout() && !error.is_connect(), "{error:?}");
    let ours = ledgers(error.source().unwrap()).unwrap();
    assert_eq!(ours.attempt().and_then(Attempt::verdict), Some(Verdict::Deadline));

    let server = serve(Script::new([Step::StallBeforeHead, Step::Good])).await;
    let retried = client().with(retry()).with(LedgerMiddleware::from(clocks)).build();
    let response = chat(&retried, &server, false).with_extension(case("c")).send().await.unwrap();
    assert_eq!(response.status(), 200);
    let verdicts: Vec<_> = rows(&ledger).iter().filter_map(|row| row.verdict).collect();
    assert_eq!(verdicts, [Verdict::Deadline, Verdict::Deadline, Verdict::Ok]);
}

#[tokio::test]
async fn a_clock_within_the_body_is_a_timeout_of_the_body() {
    for (gates, as_error) in [
        (None, false),
        (None, true),
        (Some(Gates { plain: GateKind::Head, stream: GateKind::Head }), false),
    ] {
        let server = serve(Script::new([Step::StallMidBody])).await;
        let ledger = Ledger::memory();
        let mut layer = LedgerLayer::new(ledger.clone()).clocks(Clocks::default().idle(ms(100)));
        if let Some(gates) = gates {
            layer = layer.gates(gates);
        }
        let watched = LedgerMiddleware::from(layer).faults_as_errors(as_error);
        let client = client().with(watched).build();
        let result = chat(&client, &server, false).with_extension(case("c")).send().await;
        if as_error {
            let error = result.unwrap_err();
            assert!(error.is_timeout(), "{error:?}");
        } else {
            let response = result.unwrap();
            assert_eq!(response.status(), 200);
            let error = response.bytes().await.unwrap_err();
            assert!(error.is_timeout() && error.is_decode(), "{error:?}");
            assert!(ledgers(&error).is_some_and(|ours| ours.attempt().is_some()));
        }
        assert_eq!(rows(&ledger)[0].verdict, Some(Verdict::Deadline));
    }
}

#[tokio::test]
async fn our_policy_repeats_by_verdict_what_a_status_does_not_tell() {
    for (fault, verdict) in
        [(Step::CutInChunk, Verdict::Transport), (Step::BadJson, Verdict::Malformed)]
    {
        let server = serve(Script::new([fault, Step::Good])).await;
        let ledger = Ledger::memory();
        let client = client()
            .with(CallMiddleware::new())
            .with(RetryMiddleware::new(LedgerRetry::new()))
            .with(LedgerMiddleware::new(ledger.clone()))
            .build();
        let request = chat(&client, &server, false).with_extension(case("c"));
        let response = request.send().await.unwrap();
        let attempt = response.extensions().get::<Attempt>().unwrap().clone();
        assert!(response.text().await.unwrap().contains("pong"));
        assert_eq!(attempt.ordinal().map(attempt_ledger::Ordinal::get), Some(2));
        assert!(attempt.call().is_some_and(attempt_ledger::Call::recovered));
        let verdicts: Vec<_> = rows(&ledger).iter().filter_map(|row| row.verdict).collect();
        assert_eq!(verdicts, [verdict, Verdict::Ok]);
    }
}

/// What may have written is not sent again, where reqwest-retry would.
#[tokio::test]
async fn our_policy_does_not_repeat_what_may_have_written() {
    let server = serve(Script::new([Step::ServerError, Step::Good])).await;
    let ledger = Ledger::memory();
    let client = client()
        .with(RetryMiddleware::default())
        .with(LedgerMiddleware::new(ledger.clone()))
        .build();
    let writes = case("c").effect(attempt_ledger::Effect::Writes);
    let response = chat(&client, &server, false).with_extension(writes).send().await.unwrap();
    assert_eq!((response.status().as_u16(), server.requests()), (500, 1));
}

#[tokio::test]
async fn ordinal_one_is_graded_and_frozen() {
    let server = serve(Script::new([Step::Empty, Step::Good])).await;
    let ledger = Ledger::memory();
    let grader = GraderFn::new("any-text", "1", |input: GradeInput| async move {
        Ok(f64::from(u8::from(!input.content.text.is_empty())))
    });
    let policy = LedgerRetry::new().retry_on([Verdict::Empty]);
    let client = client()
        .with(RetryMiddleware::new(policy))
        .with(LedgerMiddleware::new(ledger.clone()).score(ScoreLayer::new(grader)))
        .build();
    chat(&client, &server, false).with_extension(case("c")).send().await.unwrap();
    let rows = rows(&ledger);
    let graded: Vec<_> = rows.iter().map(|row| (row.verdict.unwrap(), row.score)).collect();
    assert_eq!(graded, [(Verdict::Empty, Some(0.0)), (Verdict::Ok, None)]);
}

#[derive(Clone, PartialEq, Debug)]
struct Mine(u8);

/// Counts what passes in the caller's extensions.
struct Counting;

#[async_trait::async_trait]
impl Middleware for Counting {
    async fn handle(
        &self,
        request: reqwest::Request,
        extensions: &mut http::Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<reqwest::Response> {
        let mine = extensions.get::<Mine>().map_or(0, |mine| mine.0);
        extensions.insert(Mine(mine + 1));
        next.run(request, extensions).await
    }
}

/// The caller's extensions are a way in and out, and survive a call that is dropped.
#[tokio::test]
async fn extensions_go_down_and_come_back() {
    let server = serve(Script::new([Step::Good, Step::StallBeforeHead])).await;
    let ledger = Ledger::memory();
    let client = client()
        .with(CallMiddleware::new())
        .with(LedgerMiddleware::new(ledger.clone()))
        .with(Counting)
        .build();
    let mut extensions = http::Extensions::new();
    extensions.insert(Mine(1));
    extensions.insert(case("c"));
    for after in [2, 3] {
        let request = chat(&client, &server, false).build().unwrap();
        let call = client.execute_with_extensions(request, &mut extensions);
        let done = tokio::time::timeout(ms(300), call).await.is_ok();
        assert_eq!(done, after == 2);
        assert_eq!(extensions.get(), Some(&Mine(after)));
        assert!(extensions.get::<attempt_ledger::Call>().is_some());
    }
    let verdicts: Vec<_> = rows(&ledger).iter().filter_map(|row| row.verdict).collect();
    assert_eq!(verdicts, [Verdict::Ok, Verdict::Abandoned]);
}

#[tokio::test]
async fn the_service_keeps_what_reqwest_knows_of_a_response() {
    let redirect = Step::Redirect { status: 307, location: "/v1/there".into() };
    let server = serve(Script::new([redirect, Step::Good])).await;
    let ledger = Ledger::memory();
    let service = ServiceBuilder::new()
        .layer(LedgerLayer::new(ledger.clone()).list_redirects(true))
        .layer(redirect_layer())
        .service(ReqwestService::new(client_builder().no_proxy().build().unwrap()));
    let mut request = http::Request::post(format!("{}/chat/completions", server.url()))
        .body(Full::<bytes::Bytes>::from(r#"{"model":"m","messages":[]}"#))
        .unwrap();
    request.extensions_mut().insert(case("c"));
    let response = service.oneshot(request).await.unwrap();
    let response = reqwest::Response::from(response.map(reqwest::Body::wrap));
    assert_eq!(response.url().path(), "/v1/there");
    assert_eq!(response.remote_addr(), Some(server.addr()));
    let length = response.content_length().unwrap();
    assert!(response.extensions().get::<Attempt>().is_some());
    assert_eq!(response.bytes().await.unwrap().len() as u64, length);
    assert_eq!((rows(&ledger).len(), rows(&ledger)[0].redirects.len()), (1, 1));
    let body = server.received()[1].body.clone();
    assert_eq!(
        body,
        Full::<bytes::Bytes>::from(r#"{"model":"m","messages":[]}"#)
            .collect()
            .await
            .unwrap()
            .to_bytes()
    );
}
