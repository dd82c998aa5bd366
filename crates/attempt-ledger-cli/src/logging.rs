//! What is logged to standard error, when asked for.
//!
//! Only this program's own events get out, at every level: they name case, method, host, path and
//! status, and the verdict of each attempt, and never a header, a body or a query. What libraries beneath would say is left out, since it may
//! hold any of these.

use std::io;

use attempt_ledger::{AttemptState, Call, Case};
use attempt_ledger_core::Escaped;
use http::{Request, Response};
use tower_http::{
    classify::{ServerErrorsAsFailures, SharedClassifier},
    trace::{MakeSpan, OnRequest, OnResponse, TraceLayer},
};
use tracing::{Level, Span, level_filters::LevelFilter};
use tracing_subscriber::{
    filter::Targets, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

/// The target of every event here.
const TARGET: &str = "attempt_ledger";

/// Begins to log at `level`.
pub(crate) fn start(level: LevelFilter) {
    if level == LevelFilter::OFF {
        return;
    }
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr).with_ansi(false);
    let ours = Targets::new().with_target(TARGET, level);
    // Only a second start could fail.
    let _ = tracing_subscriber::registry().with(lines).with(ours).try_init();
}

/// The layer that logs what is sent, for one attempt each.
pub(crate) type Tracing =
    TraceLayer<SharedClassifier<ServerErrorsAsFailures>, Sent, Sent, Sent, (), (), ()>;

/// Logs each request that is sent, and the head of what came back.
pub(crate) fn layer() -> Tracing {
    TraceLayer::new_for_http()
        .make_span_with(Sent)
        .on_request(Sent)
        .on_response(Sent)
        .on_body_chunk(())
        .on_eos(())
        .on_failure(())
}

/// What is told of a request and its response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent;

impl<B> MakeSpan<B> for Sent {
    fn make_span(&mut self, request: &Request<B>) -> Span {
        let uri = request.uri();
        // The port stands behind the host; userinfo before it was refused long before.
        let port = uri.port_u16().map(|port| format!(":{port}")).unwrap_or_default();
        let case = request.extensions().get::<Case>().map(|case| case.slot().to_string());
        tracing::span!(
            target: TARGET,
            Level::INFO,
            "attempt",
            case = case.as_deref().map(|case| tracing::field::display(Escaped(case))),
            method = %request.method(),
            host = format_args!("{}{port}", uri.host().unwrap_or_default()),
            path = uri.path(),
        )
    }
}

impl<B> OnRequest<B> for Sent {
    fn on_request(&mut self, _: &Request<B>, span: &Span) {
        tracing::event!(target: TARGET, parent: span, Level::DEBUG, "sent");
    }
}

impl<B> OnResponse<B> for Sent {
    fn on_response(self, response: &Response<B>, latency: std::time::Duration, span: &Span) {
        let status = response.status().as_u16();
        let head_ms = latency.as_millis();
        tracing::event!(target: TARGET, parent: span, Level::INFO, status, head_ms, "answered");
    }
}

/// Logs how each attempt of a call ended.
pub(crate) fn ended(call: &Call) {
    let case = call.slot().to_string();
    for attempt in call.attempts() {
        let AttemptState::Closed { verdict, remote, .. } = attempt.state else { continue };
        tracing::event!(
            target: TARGET,
            Level::INFO,
            case = %Escaped(&case),
            ordinal = attempt.ordinal.map(tracing::field::display),
            verdict = verdict.as_str(),
            remote = remote.as_str(),
            "ended"
        );
    }
}
