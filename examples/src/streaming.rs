//! A stream of events under the clocks: frames are printed as they come, and three streams end three
//! ways.
//!
//! Run it with `cargo run -p attempt-ledger-examples --bin streaming`. Time is paused, so that a
//! minute of silence takes no time.

use std::{error::Error, time::Duration};

use attempt_ledger::{
    Attempt, BoxError, CallLayer, Case, CaseId, Clocks, Ledger, LedgerLayer, LedgerRetry, RunId,
    Slot, Verdict,
};
use attempt_ledger_mock::{MockService, Play, Script, Step};
use http::Request;
use http_body_util::{BodyExt, Full};
use tokio::time::Instant;
use tower::{ServiceBuilder, ServiceExt, retry::RetryLayer};

/// How one stream went.
#[derive(Debug)]
struct Told {
    /// Each frame, and when it came.
    frames: Vec<(Duration, String)>,
    /// The error at the end, if it did not end well.
    error: Option<String>,
    /// What its row says.
    verdict: Option<Verdict>,
    took: Duration,
}

/// Reads one stream with ten seconds of silence allowed, and a minute in all.
async fn read(play: impl Into<Play>) -> Result<Told, Box<dyn Error + Send + Sync>> {
    let clocks = Clocks::default().idle(Duration::from_secs(10)).total(Duration::from_secs(60));
    let stack = ServiceBuilder::new()
        .layer(CallLayer::new().attempts(1))
        .layer(RetryLayer::new(LedgerRetry::new()))
        .layer(LedgerLayer::new(Ledger::memory()).clocks(clocks))
        .service(MockService::new(Script::new([play.into()])));
    let mut request = Request::post("http://mock/v1/chat/completions")
        .body(Full::from(r#"{"model":"m","stream":true,"messages":[]}"#))?;
    let slot = Slot::new(RunId::new("streaming")?, CaseId::new("one")?);
    request.extensions_mut().insert(Case::new(slot));

    let started = Instant::now();
    let mut told = Told { frames: Vec::new(), error: None, verdict: None, took: Duration::ZERO };
    match stack.oneshot(request).await {
        // The stream has begun: a fault from here on is the body's, and cannot be retried unseen.
        Ok(response) => {
            let attempt = Attempt::of(&response).cloned();
            let mut body = response.into_body();
            while let Some(frame) = body.frame().await {
                match frame {
                    Ok(frame) => {
                        let data = frame.into_data().unwrap_or_default();
                        let text = String::from_utf8_lossy(&data).trim_end().to_owned();
                        told.frames.push((started.elapsed(), text));
                    }
                    Err(error) => told.error = Some(chain(&error)),
                }
            }
            told.verdict = attempt.and_then(|attempt| attempt.verdict());
        }
        // It never began: a policy would have been asked whether to try again.
        Err(error) => {
            told.verdict = error.attempt().and_then(Attempt::verdict);
            told.error = Some(chain(&error));
        }
    }
    told.took = started.elapsed();
    Ok(told)
}

fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), BoxError> {
    let slow = Step::SlowBody { every: Duration::from_secs(3) };
    let comments = Step::TrickleKeepAlives { every: Duration::from_secs(5) };
    for (name, play) in [
        ("slow, but never silent for long", slow.text("an answer of some words")),
        ("stalls after its first words", Step::StallMidBody.into()),
        ("nothing but keep-alives", comments.into()),
    ] {
        let told = read(play).await?;
        println!("-- {name}");
        for (at, text) in &told.frames {
            // The envelope is the same in each.
            let said = text.split_once("\"choices\":").map_or(&**text, |(_, said)| said);
            println!("{:>3} s {said}", at.as_secs());
        }
        let verdict = told.verdict.map_or("still open", Verdict::as_str);
        println!("{verdict} after {:.0?}: {}", told.took, told.error.as_deref().unwrap_or("whole"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_slow_stream_is_read_to_its_end() {
        let slow = Step::SlowBody { every: Duration::from_secs(3) };
        let told = read(slow.text("an answer of some words")).await.expect("stack");
        assert_eq!((told.verdict, told.error), (Some(Verdict::Ok), None));
        assert!(told.frames.len() > 3, "it came in pieces");
        let (first, last) = (told.frames[0].0, told.frames[told.frames.len() - 1].0);
        assert!(last - first >= Duration::from_secs(3), "each as it came");
        assert!(told.frames[told.frames.len() - 1].1.contains("[DONE]"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stall_ends_at_the_idle_clock_after_what_was_read() {
        let told = read(Step::StallMidBody).await.expect("stack");
        assert_eq!(told.verdict, Some(Verdict::Deadline));
        assert!(!told.frames.is_empty());
        assert_eq!(told.took.as_secs(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn keep_alives_feed_the_idle_clock_and_not_the_total() {
        let comments = Step::TrickleKeepAlives { every: Duration::from_secs(5) };
        let told = read(comments).await.expect("stack");
        assert_eq!(told.verdict, Some(Verdict::Deadline));
        assert!(told.frames.is_empty(), "it never began");
        assert_eq!(told.took.as_secs(), 60);
    }
}
