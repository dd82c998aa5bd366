//! Errors of no known type, and chains of any shape.

use std::{error::Error as StdError, fmt, io};

use attempt_ledger::{BoxError, Verdict, classify};
use attempt_ledger_mock::RefusedAddr;
use attempt_ledger_tests::seed;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use tower::service_fn;

use crate::rig::*;

const URL: &str = "http://model.test/v1/chat/completions";

/// An error of a type that nobody knows, with words that prove nothing.
#[derive(Debug)]
struct Alien(Option<BoxError>);

impl fmt::Display for Alien {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("connection refused, canceled, REFUSED_STREAM")
    }
}

impl StdError for Alien {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.as_deref().map(|source| source as _)
    }
}

/// Its own source.
#[derive(Debug)]
struct Cycle;

impl fmt::Display for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("again")
    }
}

impl StdError for Cycle {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(self)
    }
}

async fn head_fails(error: impl FnOnce() -> BoxError) -> attempt_ledger_core::AttemptRow {
    let error = std::sync::Mutex::new(Some(error()));
    let error = std::sync::Arc::new(error);
    let inner = service_fn(move |_: Request<Full<Bytes>>| {
        let error = error.lock().expect("lock").take().expect("called once");
        std::future::ready(Err::<Response<Full<Bytes>>, _>(error))
    });
    row_of(inner, request(URL)).await
}

async fn body_fails(error: impl FnOnce() -> BoxError) -> attempt_ledger_core::AttemptRow {
    let error = std::sync::Arc::new(std::sync::Mutex::new(Some(error())));
    let inner = service_fn(move |_: Request<Full<Bytes>>| {
        let error = error.lock().expect("lock").take().expect("called once");
        let half = Frame::data(Bytes::from_static(b"{"));
        let frames = futures_util::stream::iter([Ok(half), Err(error)]);
        let response = Response::builder().header("content-type", "application/json");
        std::future::ready(response.body(StreamBody::new(frames).boxed_unsync()))
    });
    row_of(inner, request(URL)).await
}

#[tokio::test]
async fn unknown_type_before_the_head() {
    let row = head_fails(|| Alien(None).into()).await;
    assert_transport(&row, K::Unclassified, Head, Unknown);
    assert!(row.verdict.is_some_and(|v| v.is_fault() && !v.is_content()));
}

#[tokio::test]
async fn unknown_type_within_the_body() {
    let row = body_fails(|| Alien(None).into()).await;
    assert_eq!(row.status, Some(200));
    assert_transport(&row, K::Unclassified, Body, Unknown);
}

#[tokio::test]
async fn cycle() {
    assert_transport(&head_fails(|| Cycle.into()).await, K::Unclassified, Head, Unknown);
    assert_transport(&body_fails(|| Cycle.into()).await, K::Unclassified, Body, Unknown);
    // hyper itself walks a chain to its end.
    let row = head_fails(|| Box::new(io::Error::other(Cycle))).await;
    assert_transport(&row, K::Unclassified, Head, Unknown);
}

/// A real error of hyper whose cause is `inner`: a connection whose request body failed so.
async fn hyper_around(inner: BoxError) -> hyper::Error {
    let (client, server) = tokio::io::duplex(4096);
    let io = hyper_util::rt::TokioIo::new(client);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.expect("made");
    let frames = futures_util::stream::iter([Err::<Frame<Bytes>, _>(inner)]);
    let request = Request::post("/").body(StreamBody::new(frames)).expect("request");
    let (error, _) = tokio::join!(sender.send_request(request), connection);
    drop(server);
    error.expect_err("its body fails")
}

/// A real error of hyper-util: a connection refused.
async fn refused() -> BoxError {
    let address = RefusedAddr::new().expect("address");
    http1().request(request(&address.url())).await.expect_err("refused").into()
}

async fn leaf(random: &mut fastrand::Rng) -> BoxError {
    use tower::{load_shed, timeout};
    match random.u8(..9) {
        0 => Alien(None).into(),
        1 => Cycle.into(),
        2 => refused().await,
        3 => load_shed::error::Overloaded::new().into(),
        4 => timeout::error::Elapsed::new().into(),
        5 => h2::Error::from(h2::Reason::from(random.u32(..16))).into(),
        6 => rustls::Error::DecryptError.into(),
        7 => reqwest::Client::new().get("no address").build().expect_err("refused").into(),
        _ => io::Error::from(kind(random)).into(),
    }
}

fn kind(random: &mut fastrand::Rng) -> io::ErrorKind {
    use io::ErrorKind as Io;
    let kinds = [
        Io::ConnectionRefused,
        Io::ConnectionReset,
        Io::BrokenPipe,
        Io::UnexpectedEof,
        Io::TimedOut,
        Io::InvalidData,
        Io::Other,
    ];
    kinds[random.usize(..kinds.len())]
}

/// No chain makes the classification panic or hang, or find an answer in it.
#[tokio::test]
async fn no_chain_panics_or_hangs() {
    let seed = seed();
    println!("SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for round in 0..400 {
        let mut error = leaf(&mut random).await;
        let depth = random.usize(..=100);
        for _ in 0..depth {
            error = match random.u8(..8) {
                0 => hyper_around(error).await.into(),
                1..=3 => io::Error::new(kind(&mut random), error).into(),
                _ => Alien(Some(error)).into(),
            };
        }
        let found = classify(&*error);
        let verdict =
            attempt_ledger_core::decide_transport(found.kind, found.phase, found.remote).verdict;
        assert!(!verdict.is_content(), "SEED={seed} round {round}: {verdict}");
        if round % 8 == 0 {
            let row = body_fails(|| error).await;
            assert!(row.verdict.is_some_and(|v| !v.is_content()), "SEED={seed} round {round}");
            assert!(row.verdict != Some(Verdict::Shed), "SEED={seed} round {round}");
        }
    }
}
