//! What the client beneath would send by itself: nothing that a server sees goes without a row.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail as its assertions do")]

mod common;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use attempt_ledger::{Ledger, Remote, Verdict};
use attempt_ledger_reqwest::{LedgerMiddleware, client_builder};
use common::*;
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// A server of its own kind, and how many requests reached it.
async fn server<F>(
    serve: impl Fn(TcpStream, Arc<AtomicUsize>) -> F + Send + 'static,
) -> (String, Arc<AtomicUsize>)
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1/chat/completions", listener.local_addr().unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, counted.clone()));
        }
    });
    (url, count)
}

fn watched(client: reqwest::ClientBuilder, ledger: &Ledger) -> ClientWithMiddleware {
    ClientBuilder::new(client.no_proxy().build().unwrap())
        .with(retry())
        .with(LedgerMiddleware::new(ledger.clone()))
        .build()
}

#[tokio::test]
async fn a_refused_stream_is_sent_again_by_nobody_but_the_retry() {
    let (url, count) = server(|stream, count| async move {
        let Ok(mut connection) = h2::server::handshake(stream).await else { return };
        while let Some(Ok((_, mut respond))) = connection.accept().await {
            count.fetch_add(1, Ordering::SeqCst);
            respond.send_reset(h2::Reason::REFUSED_STREAM);
        }
    })
    .await;
    let ledger = Ledger::memory();
    let client = watched(client_builder().http2_prior_knowledge(), &ledger);
    let request = client.post(&url).body("{}").with_extension(case("c"));
    assert!(request.send().await.is_err());
    let rows = rows(&ledger);
    assert_eq!(rows.len(), count.load(Ordering::SeqCst), "as many rows as requests");
    assert!(rows.iter().all(|row| row.remote == Some(Remote::NotReached)));
}

/// The client may find a pooled connection closed before or after it writes: either way each request
/// that the server reads has a row that says so.
#[tokio::test]
async fn a_pooled_connection_that_dies_hides_no_request() {
    const ANSWER: &str = r#"{"choices":[{"message":{"content":"pong"},"finish_reason":"stop"}]}"#;
    let (url, count) = server(|mut stream, count| async move {
        let mut read = Vec::new();
        while !read.ends_with(b"{}") {
            let mut piece = [0; 1024];
            match stream.read(&mut piece).await {
                Ok(n) if n > 0 => read.extend_from_slice(&piece[..n]),
                _ => return,
            }
        }
        count.fetch_add(1, Ordering::SeqCst);
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length";
        let answer = format!("{head}: {}\r\n\r\n{ANSWER}", ANSWER.len());
        let _ = stream.write_all(answer.as_bytes()).await;
    })
    .await;
    let ledger = Ledger::memory();
    let client = watched(client_builder(), &ledger);
    for _ in 0..50 {
        let request = client.post(&url).body("{}").with_extension(case("c"));
        if let Ok(response) = request.send().await {
            assert_eq!(response.bytes().await.unwrap(), ANSWER);
        }
    }
    let answered = rows(&ledger).iter().filter(|row| row.verdict == Some(Verdict::Ok)).count();
    assert_eq!(answered, count.load(Ordering::SeqCst));
}
