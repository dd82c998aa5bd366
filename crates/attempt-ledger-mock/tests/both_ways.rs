//! Every step shows a client the same thing as a service and as a TCP server, and the right thing.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail as its assertions do")]

mod common;

use std::{io, time::Duration};

use attempt_ledger_mock::{MockServer, MockService, RefusedAddr, Script, Step};
use common::{Ended, Seen, call, call_tcp, chat, post};
use tokio::runtime::{Builder, Runtime};

/// The steps with pauses short enough for a real clock.
fn steps() -> Vec<(&'static str, Step)> {
    let tick = Duration::from_millis(1);
    let mut steps = Step::all();
    for (_, step) in &mut steps {
        match step {
            Step::TrickleKeepAlives { every } | Step::SlowBody { every } => *every = tick,
            Step::SlowFirstByte(wait) => *wait = tick,
            _ => {}
        }
    }
    steps
}

fn paused() -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

fn real() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// What is enough of a step that goes on for ever.
fn enough(step: &Step) -> Option<usize> {
    matches!(step, Step::TrickleKeepAlives { .. }).then_some(40)
}

fn by_service(step: &Step, stream: bool) -> Seen {
    paused().block_on(async {
        let service = MockService::new(Script::new([step.clone()]));
        let seen = call(&service, chat(stream), enough(step)).await;
        service.idle().await;
        let refused = usize::from(*step == Step::Refuse);
        assert_eq!((service.requests(), service.refused()), (1 - refused, refused), "{step:?}");
        assert_eq!(service.received().len(), 1 - refused);
        seen
    })
}

/// `like` tells how many bytes come before a stall, which a real clock cannot.
fn by_tcp(step: &Step, stream: bool, like: &Seen) -> Seen {
    real().block_on(async {
        let server = MockServer::start(Script::new([step.clone()])).await.unwrap();
        if like.status.is_none() && like.end == Ended::Stalled {
            let read = std::sync::Arc::new(tokio::sync::Notify::new());
            let reader = std::sync::Arc::clone(&read);
            server.on_request(move |_| reader.notify_one());
            tokio::select! {
                seen = call_tcp(server.addr(), chat(stream), None) => return seen,
                () = read.notified() => {}
            }
            server.idle().await;
            return Seen::nothing(Ended::Stalled);
        }
        let enough = (like.end == Ended::Stalled).then_some(like.body.len());
        let seen = call_tcp(server.addr(), chat(stream), enough).await;
        server.idle().await;
        let refused = usize::from(*step == Step::Refuse);
        assert_eq!((server.requests(), server.refused()), (1 - refused, refused), "{step:?}");
        assert_eq!(server.connections(), 1);
        seen
    })
}

#[test]
fn both_show_the_same() {
    for stream in [false, true] {
        for (name, step) in steps() {
            let service = by_service(&step, stream);
            let tcp = by_tcp(&step, stream, &service);
            if step == Step::Refuse {
                // A listening socket can only break what it took.
                assert_eq!(service.end, Ended::Refused);
                assert!(matches!(tcp.end, Ended::Io(_) | Ended::Incomplete), "{tcp:?}");
            } else {
                assert_eq!(service, tcp, "{name}, stream: {stream}");
            }
        }
    }
}

#[test]
fn an_address_that_refuses_does_so() {
    real().block_on(async {
        let refused = RefusedAddr::new().unwrap();
        for _ in 0..3 {
            let seen = call_tcp(refused.addr(), chat(true), None).await;
            assert_eq!(seen.end, Ended::Io(io::ErrorKind::ConnectionRefused));
        }
    });
}

/// The outcome of each step, in short: status, end, and what the answer holds.
#[test]
fn each_step_is_what_it_says() {
    let done = "data: [DONE]";
    let stop = r#""finish_reason":"stop""#;
    let eof = || Ended::Io(io::ErrorKind::UnexpectedEof);
    for stream in [false, true] {
        for (name, step) in steps() {
            let seen = by_service(&step, stream);
            let has = |text: &str| seen.text().contains(text);
            let stopped = has(stop);
            let what = (seen.status, seen.end.clone());
            let whole = |status| (Some(status), Ended::Whole);
            match &step {
                Step::Refuse => assert_eq!(what, (None, Ended::Refused)),
                Step::Reset => {
                    assert_eq!(what, (None, Ended::Io(io::ErrorKind::ConnectionReset)));
                }
                Step::CloseBeforeHead | Step::Raw(_) => {
                    assert_eq!(what, (None, Ended::Incomplete), "{name}");
                }
                Step::StallBeforeHead => assert_eq!(what, (None, Ended::Stalled)),
                Step::StallMidBody | Step::TrickleKeepAlives { .. } => {
                    assert_eq!(what, (Some(200), Ended::Stalled), "{name}");
                    assert!(!seen.body.is_empty() && !stopped && !has(done));
                }
                Step::CutInChunk => {
                    assert_eq!(what, (Some(200), eof()));
                    assert!(!seen.body.is_empty() && !stopped && !has(done));
                }
                Step::EndWithoutStop => {
                    assert_eq!(what, whole(200));
                    assert!(!stopped && !has(done) && has(r#""content":"po"#));
                }
                Step::Good | Step::SlowBody { .. } | Step::SlowFirstByte(_) => {
                    assert_eq!(what, whole(200), "{name}");
                    assert!(stopped && has(done) == stream, "{name}");
                }
                Step::CapHit => {
                    assert!(what == whole(200) && has(r#""finish_reason":"length""#));
                }
                Step::ContentFilter => {
                    assert!(what == whole(200) && has(r#""finish_reason":"content_filter""#));
                }
                Step::ToolCall => {
                    assert!(what == whole(200) && has(r#""finish_reason":"tool_calls""#));
                    assert!(has(r#""name":"lookup""#));
                }
                Step::Empty => assert!(what == whole(200) && stopped && !has("po")),
                Step::WhiteSpace => assert!(what == whole(200) && stopped && !has("po")),
                Step::Refusal => {
                    assert!(what == whole(200) && stopped && has(r#""refusal":"I cannot"#));
                }
                Step::ErrorIn200 => {
                    assert!(what == whole(200) && seen.text().starts_with(r#"{"error":"#));
                    assert_eq!(seen.header("content-type"), Some("application/json"));
                }
                Step::ErrorEventMidStream => {
                    assert!(what == whole(200) && !stopped && has(r#""error":{"#) && has("po"));
                }
                Step::BadJson => {
                    assert_eq!(what, whole(200));
                    let last = seen.text().lines().find(|line| line.contains("[{]"));
                    assert!(last.is_some() == stream && has(done) == stream);
                    let parses = serde_json::from_slice::<serde_json::Value>(&seen.body).is_ok();
                    assert!(!parses);
                }
                Step::Html200 => {
                    assert_eq!(what, whole(200));
                    assert_eq!(seen.header("content-type"), Some("text/html"));
                }
                Step::Throttled(hint) => {
                    use attempt_ledger_mock::RetryHint as H;
                    assert_eq!(what, whole(429));
                    let after = seen.header("retry-after");
                    let millis = seen.header("retry-after-ms");
                    match hint {
                        H::None => assert_eq!((after, millis), (None, None)),
                        H::Seconds(_) => assert_eq!((after, millis), (Some("2"), None)),
                        H::Fraction(_) => assert_eq!((after, millis), (Some("1.5"), None)),
                        H::Millis(_) => assert_eq!((after, millis), (None, Some("1200"))),
                        H::HttpDate(_) => assert_eq!((after, millis), (Some("3s ahead"), None)),
                        H::RetryInfo(_) => assert!(has(r#""retryDelay":"2.5s""#)),
                        H::Both { .. } => assert_eq!((after, millis), (Some("2"), Some("1100"))),
                        other => panic!("no rule for {other:?}"),
                    }
                }
                Step::Unavailable => assert_eq!(what, whole(503)),
                Step::ServerError => assert_eq!(what, whole(500)),
                Step::Redirect { status, .. } => {
                    assert_eq!(what, whole(*status));
                    assert_eq!(seen.header("location"), Some("/v1/elsewhere"));
                }
                Step::Status { status, body, .. } => {
                    assert_eq!(what, whole(*status));
                    assert_eq!(seen.body, body.as_ref());
                }
                other => panic!("no rule for {other:?}"),
            }
            if !matches!(step, Step::BadJson | Step::Html200 | Step::Redirect { .. }) {
                assert_parses(&seen);
            }
        }
    }
}

/// Whatever came whole is JSON, each event and each document.
fn assert_parses(seen: &Seen) {
    let parses = |text: &str| serde_json::from_str::<serde_json::Value>(text).is_ok();
    if seen.header("content-type").is_some_and(|media| media.starts_with("text/event-stream")) {
        let (whole, _cut) = seen.text().rsplit_once("\n\n").unwrap();
        for event in whole.split("\n\n").filter(|event| !event.starts_with(':')) {
            let data = event.strip_prefix("data: ").unwrap();
            assert!(data == "[DONE]" || parses(data), "{data}");
        }
    } else if seen.end == Ended::Whole {
        assert!(parses(seen.text()), "{}", seen.text());
    }
}

#[test]
fn the_answer_follows_the_request() {
    paused().block_on(async {
        let script = Script::new([Step::Good.text("naïve 你好").finish("eos")]);
        let service = MockService::new(script);
        let usage = r#"{"model":"x/y","stream":true,"stream_options":{"include_usage":true}}"#;

        let seen = call(&service, post("/v1/chat/completions", usage), None).await;
        let events: Vec<&str> = seen.text().split_terminator("\n\n").collect();
        assert_eq!(events.len(), 6, "role, two texts, finish, usage, done: {events:#?}");
        assert!(events[0].contains(r#""role":"assistant""#));
        assert!(events[3].contains(r#""finish_reason":"eos""#));
        assert!(events[4].contains(r#""choices":[]"#) && events[4].contains("prompt_tokens"));
        assert_eq!(events[5], "data: [DONE]");
        assert!(events[..5].iter().all(|event| event.contains(r#""model":"x/y""#)));

        let seen = call(&service, post("/v1/completions?v=1", usage), None).await;
        assert!(seen.text().contains(r#""object":"text_completion""#));
        assert!(seen.text().contains(r#""text":"naïv"#) && !seen.text().contains("delta"));

        let seen = call(&service, post("/v1/completions", r#"{"model":"x"}"#), None).await;
        assert!(seen.text().contains(r#""text":"naïve 你好""#));

        let seen = call(&service, post("/v1/chat/completions", "not json"), None).await;
        let document: serde_json::Value = serde_json::from_slice(&seen.body).unwrap();
        assert_eq!(document["choices"][0]["message"]["content"], "naïve 你好");
    });
}
