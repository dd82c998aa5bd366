//! Stalls stall to the millisecond under paused time, and whoever goes away leaves no task behind.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail as its assertions do")]

mod common;

use std::{
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use attempt_ledger_mock::{CaseKey, MockServer, MockService, Script, Step};
use common::{Ended, call, call_tcp, chat, post};
use http_body_util::BodyExt;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    runtime::Handle,
    sync::Notify,
    time::{Instant, timeout},
};
use tower::ServiceExt;

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

/// Lets tasks that were told to end do so.
async fn settle(service: &MockService) {
    service.idle().await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_stall_before_the_head_is_ended_by_the_callers_clock_alone() {
    let service = MockService::new(Script::new([Step::StallBeforeHead]));
    let started = Instant::now();
    let limit = Duration::from_millis(86_400_123);
    assert!(timeout(limit, service.clone().oneshot(chat(true))).await.is_err());
    assert_eq!(started.elapsed(), limit);
    settle(&service).await;
    assert_eq!((service.open(), tasks()), (0, 0));
    assert_eq!(started.elapsed(), limit, "ending takes no time");
}

#[tokio::test(start_paused = true)]
async fn a_stall_in_the_body_is_ended_by_dropping_it() {
    for stream in [true, false] {
        let service = MockService::new(Script::new([Step::StallMidBody]));
        let mut body = service.clone().oneshot(chat(stream)).await.unwrap().into_body();
        let started = Instant::now();
        let limit = Duration::from_millis(3_600_001);
        let stalled = timeout(limit, async { while body.frame().await.is_some() {} }).await;
        assert!(stalled.is_err());
        assert_eq!(started.elapsed(), limit);
        assert_eq!((service.open(), tasks()), (1, 1));
        drop(body);
        settle(&service).await;
        assert_eq!((service.open(), tasks()), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn comments_come_at_their_time_and_end_with_the_reader() {
    let every = Duration::from_secs(15);
    let service = MockService::new(Script::new([Step::TrickleKeepAlives { every }]));
    let mut body = service.clone().oneshot(chat(true)).await.unwrap().into_body();
    let started = Instant::now();
    for n in 0..1_000 {
        let comment = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(comment, ": keep-alive\n\n");
        assert_eq!(started.elapsed(), every * n);
    }
    drop(body);
    settle(&service).await;
    assert_eq!((service.open(), tasks()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn no_time_between_comments_does_not_spin() {
    let step = Step::TrickleKeepAlives { every: Duration::ZERO };
    let service = MockService::new(Script::new([step]));
    let started = Instant::now();
    call(&service, chat(true), Some(14 * 100)).await;
    assert_eq!(started.elapsed(), Duration::from_millis(99));
}

#[tokio::test(start_paused = true)]
async fn a_slow_body_takes_a_pause_between_each_two_pieces() {
    let every = Duration::from_millis(70);
    let service = MockService::new(Script::new([Step::SlowBody { every }]));

    let started = Instant::now();
    let seen = call(&service, chat(true), None).await;
    let events = seen.text().matches("data: ").count();
    assert_eq!(events, 5);
    assert_eq!(started.elapsed(), every * 4);

    let started = Instant::now();
    let seen = call(&service, chat(false), None).await;
    assert_eq!(started.elapsed(), every * (u32::try_from(seen.body.len()).unwrap() - 1));
    assert_eq!(seen.end, Ended::Whole);
}

#[tokio::test(start_paused = true)]
async fn a_slow_first_byte_is_late_by_its_time() {
    let wait = Duration::from_secs(599);
    let service = MockService::new(Script::new([Step::SlowFirstByte(wait)]));
    let started = Instant::now();
    let response = service.clone().oneshot(chat(false)).await.unwrap();
    assert_eq!(started.elapsed(), wait);
    let first = response.headers()["date"].to_str().unwrap().to_owned();
    assert_eq!(first, "Thu, 01 Jan 2026 00:09:59 GMT", "the calendar goes with the clock");
}

#[tokio::test(start_paused = true)]
async fn every_step_leaves_no_task_whenever_it_is_dropped() {
    for stream in [true, false] {
        for (name, step) in Step::all() {
            let service = MockService::new(Script::new([step]));
            // Before the first poll.
            drop(service.clone().oneshot(chat(stream)));
            // After every so many polls of future and body.
            for polls in 0..12 {
                let mut exchange = Box::pin(call(&service, chat(stream), None));
                for _ in 0..polls {
                    let ready = poll_fn(|cx| Poll::Ready(exchange.as_mut().poll(cx).is_ready()));
                    if ready.await {
                        exchange = Box::pin(call(&service, chat(stream), None));
                    }
                    tokio::task::yield_now().await;
                }
                drop(exchange);
                settle(&service).await;
                assert_eq!((service.open(), tasks()), (0, 0), "{name}, {polls} polls");
            }
        }
    }
}

/// Says when it was dropped, and never gives a byte.
struct Endless(Arc<Notify>);

impl http_body::Body for Endless {
    type Data = bytes::Bytes;
    type Error = std::convert::Infallible;
    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<bytes::Bytes>, Self::Error>>> {
        Poll::Pending
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_never_ends_goes_with_its_future() {
    let service = MockService::new(Script::new([Step::Good]));
    let dropped = Arc::new(Notify::new());
    let body = Endless(Arc::clone(&dropped));
    let request = http::Request::post("http://model.test/v1").body(body).unwrap();
    let limit = Duration::from_millis(777);
    let started = Instant::now();
    assert!(timeout(limit, service.clone().oneshot(request)).await.is_err());
    dropped.notified().await;
    settle(&service).await;
    assert_eq!((service.open(), tasks(), service.requests()), (0, 0, 0));
    assert_eq!(started.elapsed(), limit);
}

#[tokio::test(start_paused = true)]
async fn a_body_outlives_its_service() {
    let every = Duration::from_secs(1);
    let service = MockService::new(Script::new([Step::SlowBody { every }]));
    let body = service.oneshot(chat(true)).await.unwrap().into_body();
    let whole = body.collect().await.unwrap().to_bytes();
    assert!(whole.ends_with(b"data: [DONE]\n\n"));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_reads_nothing_unless_a_case_has_to_be_told() {
    struct Untouched;
    impl http_body::Body for Untouched {
        type Data = bytes::Bytes;
        type Error = std::convert::Infallible;
        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<http_body::Frame<bytes::Bytes>, Self::Error>>> {
            panic!("a refused request was read");
        }
    }
    let service = MockService::new(Script::new([Step::Refuse, Step::Good]));
    let request = http::Request::post("http://model.test/v1").body(Untouched).unwrap();
    let error = service.clone().oneshot(request).await.unwrap_err();
    assert!(error.is_refused());
    assert_eq!((service.requests(), service.refused(), service.connections()), (0, 1, 0));
    assert_eq!(call(&service, chat(false), None).await.status, Some(200));

    let key = CaseKey::Model("m".into());
    let service = MockService::new(Script::by_case([(key, Script::new([Step::Refuse]))]));
    assert_eq!(call(&service, chat(false), None).await.end, Ended::Refused);
    assert_eq!((service.requests(), service.refused()), (0, 1));
    assert!(service.received().is_empty());
}

#[tokio::test]
async fn dropping_the_server_ends_what_it_held() {
    let server = MockServer::start(Script::new([Step::StallMidBody])).await.unwrap();
    let mut stalled = TcpStream::connect(server.addr()).await.unwrap();
    stalled.write_all(b"GET /v1/models HTTP/1.1\r\n\r\n").await.unwrap();
    let mut head = [0; 16];
    stalled.read_exact(&mut head).await.unwrap();
    assert_eq!(server.open(), 1);
    let addr = server.addr();
    drop(server);
    // To its end, however that looks: it must not hang.
    let _ = stalled.read_to_end(&mut Vec::new()).await;
    assert!(TcpStream::connect(addr).await.is_err());
    while tasks() > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_client_that_leaves_a_stall_is_noticed() {
    for step in [Step::StallBeforeHead, Step::SlowFirstByte(Duration::from_secs(86_400))] {
        let server = MockServer::start(Script::new([step]).then(Step::Good)).await.unwrap();
        let read = Arc::new(Notify::new());
        let reader = Arc::clone(&read);
        server.on_request(move |_| reader.notify_one());
        tokio::select! {
            seen = call_tcp(server.addr(), post("/v1/x", "y"), None) => panic!("{seen:?}"),
            () = read.notified() => {}
        }
        server.idle().await;
        assert_eq!(call_tcp(server.addr(), chat(true), None).await.status, Some(200));
        assert_eq!(server.requests(), 2);
    }
}
