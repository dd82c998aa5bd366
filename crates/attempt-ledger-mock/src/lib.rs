//! What can go wrong with a model API, as a script that is played to a client.
//!
//! A [`Script`] is a sequence of [`Step`]s: resets, stalls, cuts, throttles, half answers, whole
//! answers. [`MockService`] plays it as a tower service under paused time, with a real hyper
//! client inside; [`MockServer`] plays it on a TCP port. Both count and keep what they received,
//! so that a test asks how often the server was called and not only what the caller got.
//!
//! A test of a retry policy:
//!
//! ```
//! use std::time::Duration;
//!
//! use attempt_ledger_mock::{MockError, MockService, Script, Step};
//! use http_body_util::{BodyExt, Full};
//! use tower::{Service, ServiceBuilder, ServiceExt, retry::Policy};
//!
//! type Request = http::Request<Full<bytes::Bytes>>;
//! type Response = http::Response<hyper::body::Incoming>;
//!
//! /// Two more tries, a second apart.
//! #[derive(Clone)]
//! struct Twice(u32);
//!
//! impl Policy<Request, Response, MockError> for Twice {
//!     type Future = tokio::time::Sleep;
//!     fn retry(
//!         &mut self,
//!         _request: &mut Request,
//!         result: &mut Result<Response, MockError>,
//!     ) -> Option<Self::Future> {
//!         let good = result.as_ref().is_ok_and(|response| response.status().is_success());
//!         self.0 = self.0.checked_sub(u32::from(!good))?;
//!         (!good).then(|| tokio::time::sleep(Duration::from_secs(1)))
//!     }
//!     fn clone_request(&mut self, request: &Request) -> Option<Request> {
//!         Some(request.clone())
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mock = MockService::new(Script::new([Step::Reset, Step::Unavailable, Step::Good]));
//! let client = ServiceBuilder::new()
//!     .layer(tower::retry::RetryLayer::new(Twice(2)))
//!     .service(mock.clone());
//!
//! let started = tokio::time::Instant::now();
//! let request = http::Request::post("http://model.test/v1/chat/completions")
//!     .body(Full::from(r#"{"model":"m","messages":[]}"#))?;
//! let answer = client.oneshot(request).await?.into_body().collect().await?.to_bytes();
//!
//! assert!(std::str::from_utf8(&answer)?.contains("pong"));
//! assert_eq!(mock.requests(), 3);
//! // Two pauses, in no time at all.
//! assert_eq!(started.elapsed(), Duration::from_secs(2));
//! # Ok(())
//! # }
//! ```
//!
//! # What a client meets
//!
//! | steps | seen by a hyper client |
//! | --- | --- |
//! | [`Refuse`](Step::Refuse) | [`ConnectRefused`], or a reset over TCP; not received |
//! | [`Reset`](Step::Reset), [`CloseBeforeHead`](Step::CloseBeforeHead) | an I/O error of kind `ConnectionReset`, `is_incomplete_message()` |
//! | [`StallBeforeHead`](Step::StallBeforeHead), [`StallMidBody`](Step::StallMidBody), [`TrickleKeepAlives`](Step::TrickleKeepAlives) | nothing, half an answer, comments: until it goes away |
//! | [`CutInChunk`](Step::CutInChunk) | status 200, a body error with `UnexpectedEof` inside |
//! | [`EndWithoutStop`](Step::EndWithoutStop), [`CapHit`](Step::CapHit), [`Empty`](Step::Empty), [`WhiteSpace`](Step::WhiteSpace), [`ErrorIn200`](Step::ErrorIn200), [`ErrorEventMidStream`](Step::ErrorEventMidStream), [`Html200`](Step::Html200), [`BadJson`](Step::BadJson), [`Refusal`](Step::Refusal), [`ContentFilter`](Step::ContentFilter), [`ToolCall`](Step::ToolCall) | status 200 and a body that ends well: only the content tells |
//! | [`Throttled`](Step::Throttled), [`Unavailable`](Step::Unavailable), [`ServerError`](Step::ServerError), [`Redirect`](Step::Redirect), [`Status`](Step::Status) | that status |
//! | [`SlowBody`](Step::SlowBody), [`SlowFirstByte`](Step::SlowFirstByte), [`Good`](Step::Good) | a whole answer, late or at once |
//!
//! [`Step::all`] lists one of each kind, for tests that go through them all.
//!
//! # Bounds
//!
//! A request's head is at most 64 KiB and its body 16 MiB; more is answered with 431 and 413, and
//! what is not HTTP/1 with 400, uncounted. The server holds at most 1,024 connections at a time.

mod answer;
mod desk;
mod error;
mod exchange;
mod pipe;
mod plan;
mod request;
mod script;
mod server;
mod service;
mod step;

pub use desk::Received;
pub use error::{ConnectRefused, MockError};
pub use script::{CaseKey, Script};
pub use server::{MockServer, RefusedAddr};
pub use service::{MockFuture, MockService};
pub use step::{Play, RetryHint, Step};
