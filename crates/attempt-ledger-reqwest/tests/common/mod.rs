//! What the tests of this crate share: short ways to clients, requests and rows, and what a caller sees.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers fail as assertions do"
)]

use std::time::Duration;

use attempt_ledger::{
    Case, CaseId, Ledger, RunId, Slot,
    core::{AttemptRow, Fold, Liveness, Timestamp},
};
use attempt_ledger_mock::{MockServer, Script};
use bytes::Bytes;
use reqwest_middleware::{ClientWithMiddleware, RequestBuilder};
use reqwest_retry::{RetryError, RetryTransientMiddleware, policies::ExponentialBackoff};

pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub async fn serve(script: Script) -> MockServer {
    MockServer::start(script).await.unwrap()
}

pub fn slot(case: &str) -> Slot {
    Slot::new(RunId::new("r").unwrap(), CaseId::new(case).unwrap())
}

pub fn case(name: &str) -> Case {
    Case::new(slot(name))
}

/// reqwest-retry with its default strategy, three times at most, and short pauses.
pub fn retry() -> RetryTransientMiddleware<ExponentialBackoff> {
    let policy = ExponentialBackoff::builder().retry_bounds(ms(1), ms(2)).build_with_max_retries(3);
    RetryTransientMiddleware::new_with_policy(policy)
}

pub fn chat(client: &ClientWithMiddleware, server: &MockServer, stream: bool) -> RequestBuilder {
    let body = format!(
        r#"{{"model":"m","stream":{stream},"messages":[{{"role":"user","content":"ping"}}]}}"#
    );
    client
        .post(format!("{}/chat/completions", server.url()))
        .header("content-type", "application/json")
        .body(body)
}

pub fn rows(ledger: &Ledger) -> Vec<AttemptRow> {
    let mut fold = Fold::new();
    for record in ledger.records().unwrap() {
        fold.push(&record).unwrap();
    }
    let mut rows = fold.finish(Timestamp::default(), &Liveness::All).rows;
    rows.sort_by_key(|row| row.ordinal);
    rows
}

/// What there is to see of one call.
#[derive(Debug, PartialEq)]
pub struct Seen {
    pub response: Option<Head>,
    pub bytes: Bytes,
    pub error: Option<Failure>,
}

#[derive(Debug, PartialEq)]
pub struct Head {
    pub status: u16,
    pub version: http::Version,
    pub headers: Vec<(String, Vec<u8>)>,
    /// Path and the rest: the servers' ports differ.
    pub url: String,
    pub content_length: Option<u64>,
    pub from_server: bool,
}

/// Everything that reqwest tells of an error.
#[derive(Debug, PartialEq)]
pub struct Failure {
    pub retries: Option<u32>,
    pub kind: &'static str,
    pub is_timeout: bool,
    pub is_connect: bool,
    pub is_dns: bool,
    pub status: Option<u16>,
    pub url: Option<String>,
}

pub fn tail(url: &reqwest::Url) -> String {
    let fragment = url.fragment().unwrap_or_default();
    format!("{}?{}#{fragment}", url.path(), url.query().unwrap_or_default())
}

pub fn failure(error: &reqwest::Error) -> Failure {
    let kinds = [
        (error.is_builder(), "builder"),
        (error.is_request(), "request"),
        (error.is_redirect(), "redirect"),
        (error.is_status(), "status"),
        (error.is_body(), "body"),
        (error.is_decode(), "decode"),
    ];
    Failure {
        retries: None,
        kind: kinds.iter().find(|(is, _)| *is).map_or("none", |(_, name)| name),
        is_timeout: error.is_timeout(),
        is_connect: error.is_connect(),
        is_dns: error.is_dns(),
        status: error.status().map(|s| s.as_u16()),
        url: error.url().map(tail),
    }
}

/// Through what reqwest-retry wraps around it.
pub fn failed(error: &reqwest_middleware::Error) -> Failure {
    match error {
        reqwest_middleware::Error::Reqwest(error) => failure(error),
        reqwest_middleware::Error::Middleware(error) => match error.downcast_ref::<RetryError>() {
            Some(RetryError::Error(error)) => Failure { retries: Some(0), ..failed(error) },
            Some(RetryError::WithRetries { retries, err }) => {
                Failure { retries: Some(*retries), ..failed(err) }
            }
            None => panic!("of another middleware: {error:?}"),
        },
    }
}

pub async fn see(request: RequestBuilder, server: &MockServer) -> Seen {
    let mut response = match request.send().await {
        Ok(response) => response,
        Err(error) => {
            return Seen { response: None, bytes: Bytes::new(), error: Some(failed(&error)) };
        }
    };
    let headers = response.headers().iter().filter(|(name, _)| *name != "date");
    let head = Head {
        status: response.status().as_u16(),
        version: response.version(),
        headers: headers.map(|(n, v)| (n.to_string(), v.as_bytes().to_vec())).collect(),
        url: tail(response.url()),
        content_length: response.content_length(),
        from_server: response.remote_addr() == Some(server.addr()),
    };
    let mut bytes = Vec::new();
    let error = loop {
        match response.chunk().await {
            Ok(Some(chunk)) => bytes.extend_from_slice(&chunk),
            Ok(None) => break None,
            Err(error) => break Some(failure(&error)),
        }
    };
    Seen { response: Some(head), bytes: bytes.into(), error }
}
