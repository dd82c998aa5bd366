//! A server that throttles is waited for before a first attempt is spent.
#![allow(clippy::expect_used, reason = "helpers of tests")]

mod common;

use std::time::Duration;

use attempt_ledger_mock::{MockServer, Play, RetryHint, Script, Step};
use common::{Room, cli, run_args};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::Instant,
};

/// So many throttles with this hint, and then answers.
async fn server(throttles: usize, seconds: u32) -> MockServer {
    let throttle = Play::from(Step::Throttled(RetryHint::Seconds(seconds)));
    let plays = std::iter::repeat_n(throttle, throttles).chain([Step::Good.into()]);
    MockServer::start(Script::new(plays)).await.expect("a port")
}

fn cases(room: &Room, n: usize) -> String {
    let line = |n| format!(r#"{{"id":"c{n}","prompt":"p","expected":"pong"}}"#);
    room.write("cases.jsonl", (0..n).map(line).collect::<Vec<_>>().join("\n"))
}

async fn rows(dir: &str) -> Vec<Value> {
    cli(&["log", dir, "--json"]).await.exits(0).json()
}

fn throttled_first(rows: &[Value]) -> usize {
    rows.iter().filter(|row| row["ordinal"] == 1 && row["verdict"] == "throttled").count()
}

/// A server that throttles for a second from its first request on, and then answers.
async fn busy_for_a_second() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/v1", listener.local_addr().expect("an address"));
    tokio::spawn(async move {
        let mut first = None;
        while let Ok((stream, _)) = listener.accept().await {
            let busy = first.get_or_insert_with(Instant::now).elapsed() < Duration::from_secs(1);
            tokio::spawn(answer(stream, busy));
        }
    });
    url
}

async fn answer(mut stream: TcpStream, busy: bool) -> std::io::Result<()> {
    let mut request = Vec::new();
    // The last field of a request says that it asks for no stream.
    while !request.ends_with(b"false}") {
        if stream.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    let (head, body) = match busy {
        true => ("429 Too Many Requests\r\nretry-after: 1", "{}"),
        false => {
            ("200 OK", r#"{"choices":[{"message":{"content":"pong"},"finish_reason":"stop"}]}"#)
        }
    };
    let head = format!("HTTP/1.1 {head}\r\ncontent-type: application/json\r\nconnection: close");
    let all = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(all.as_bytes()).await?;
    stream.shutdown().await
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_first_attempts_than_the_first_window_are_spent_on_throttles() {
    let room = Room::new();
    let file = cases(&room, 20);
    let many = ["--concurrency", "16", "--attempts", "8", "--grader", "exact"];
    let (url, dir) = (busy_for_a_second().await, room.arg("paced"));
    cli(&run_args(&file, &url, &dir, &many)).await.exits(0);
    let of = rows(&dir).await;
    assert!((1..=4).contains(&throttled_first(&of)), "{} were throttled", throttled_first(&of));
    assert_eq!(of.iter().filter(|row| row["verdict"] == "ok").count(), 20);

    // Without it they are, which is what the switch is for.
    let (url, dir) = (busy_for_a_second().await, room.arg("unpaced"));
    cli(&run_args(&file, &url, &dir, &[&many[..], &["--no-pacing"]].concat())).await.exits(0);
    assert!(throttled_first(&rows(&dir).await) > 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_asks_for_more_time_than_a_call_has_ends_the_run_which_goes_on_later() {
    let room = Room::new();
    let file = cases(&room, 10);
    // As many as are sent before the first of them has told.
    let server = server(4, 86_400).await;
    let (url, dir) = (server.url(), room.arg("ledger"));
    let args = run_args(&file, &url, &dir, &["--concurrency", "10", "--grader", "exact"]);
    let began = Instant::now();
    let ran = cli(&args).await.exits(1);
    assert!(began.elapsed() < Duration::from_secs(30), "a call's budget was not waited out");
    let sent = rows(&dir).await.len();
    assert!((1..=4).contains(&sent), "{sent} were sent");
    let unsent = 10 - sent;
    let why = "the host asked to wait 86400s, which is more than is left of the call's budget";
    assert_eq!(ran.err.matches(&format!(": not sent: {why}  |")).count(), unsent, "{}", ran.err);
    let end = format!("not sent: {unsent}, since {why}; the same command goes on with them");
    ran.says(&end);

    // Throttles that are left over end the run once more, and are all of them in the end.
    let mut code = 1;
    for _ in 0..4 {
        code = cli(&args).await.code;
        if code == 0 {
            break;
        }
    }
    assert_eq!(code, 0);
    let rows = rows(&dir).await;
    let ok_first = rows.iter().filter(|row| row["ordinal"] == 1 && row["verdict"] == "ok").count();
    assert!(ok_first >= 6, "what was not sent kept its first attempt: {ok_first}");
    assert_eq!(throttled_first(&rows) + ok_first, 10);
}
