use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use attempt_ledger_core::{GateKind, decide_clock, decide_dropped_before_head, decide_transport};
use attempt_ledger_store::{Ledger, Opening, StoreError};
use attempt_ledger_wire::{TapOptions, Wire};
use http::Response;
use http_body::Body;
use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower_service::Service;

use super::{
    body::ResponseBody,
    gate::ERROR_BODY_TIME,
    layer::{Config, LedgerLayer},
    live::{Live, Unsettled, Watch, is_success},
    settle::Settle,
};
use crate::{
    Attempt, BoxError, Call, Error, ErrorKind, LedgerRequest, OnLedgerError,
    clock::{LazyTimer, Timers},
    evidence::classify,
    link::{self, Link},
};

/// Everything about an attempt that is not opened yet.
pub(super) struct Start<S, Req> {
    pub(super) opening: Opening,
    pub(super) unsettled: Unsettled,
    pub(super) watch: Watch,
    pub(super) outgoing: Outgoing<S, Req>,
}

/// A request, and the service that is ready for it.
pub(super) struct Outgoing<S, Req> {
    pub(super) attempt: Attempt,
    pub(super) service: S,
    pub(super) request: Req,
    pub(super) wire: Wire,
    pub(super) stream_asked: Option<bool>,
}

pin_project! {
    /// The future of a [`LedgerService`](super::LedgerService).
    ///
    /// Dropping it closes the attempt, if one was opened.
    pub struct ResponseFuture<S, Req, ResB>
    where
        S: Service<Req>,
    {
        #[pin]
        state: State<S, Req, S::Future, ResB>,
        config: Arc<Config>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, Req, F, ResB> {
        // Nothing says yet what it belongs to.
        Late {
            start: Option<(LedgerLayer, S, Req)>,
        },
        Opening {
            start: Option<Start<S, Req>>,
            ledger: Ledger,
            timer: LazyTimer,
            since: Option<Instant>,
        },
        Calling {
            // Dropped before the guard, so that the upstream is let go before the row is closed.
            #[pin]
            future: F,
            live: Option<Live>,
            attempt: Option<Attempt>,
            // Of an attempt without a row; one with a row holds it there.
            unsettled: Option<Unsettled>,
            timers: Option<Timers>,
            wire: Wire,
            stream_asked: Option<bool>,
        },
        Gating {
            response: Option<Response<ResponseBody<ResB>>>,
            gate: GateKind,
        },
        Failing {
            settle: Settle,
            error: Option<Error>,
        },
        Refused {
            error: Option<Error>,
        },
        // Not at once: a policy that retries every error must not spin within one poll.
        RefusedSoon {
            error: Option<Error>,
            timer: LazyTimer,
            since: Option<Instant>,
        },
        // The call is over and the layer above has been told; it drops this future.
        Stuck,
    }
}

impl<S, Req, ResB> ResponseFuture<S, Req, ResB>
where
    S: Service<Req>,
{
    pub(super) fn start(start: Start<S, Req>, ledger: Ledger, config: &Arc<Config>) -> Self {
        let state =
            State::Opening { start: Some(start), ledger, timer: LazyTimer::default(), since: None };
        ResponseFuture { state, config: config.clone() }
    }

    /// Looks once more what it belongs to when it is polled.
    pub(super) fn late(layer: LedgerLayer, service: S, request: Req) -> Self {
        let config = layer.config.clone();
        ResponseFuture { state: State::Late { start: Some((layer, service, request)) }, config }
    }

    pub(super) fn refused(error: Error, config: &Arc<Config>) -> Self {
        let state =
            State::RefusedSoon { error: Some(error), timer: LazyTimer::default(), since: None };
        ResponseFuture { state, config: config.clone() }
    }

    fn unlinked() -> State<S, Req, S::Future, ResB> {
        let error = Some(Error::new(ErrorKind::Unlinked, None, None));
        State::RefusedSoon { error, timer: LazyTimer::default(), since: None }
    }

    pub(super) fn stuck(config: &Arc<Config>) -> Self {
        ResponseFuture { state: State::Stuck, config: config.clone() }
    }
}

impl<S, Req, ResB> Future for ResponseFuture<S, Req, ResB>
where
    S: Service<Req, Response = Response<ResB>>,
    S::Error: Into<BoxError>,
    Req: LedgerRequest,
    ResB: Body + Unpin,
    ResB::Error: Into<BoxError>,
{
    type Output = Result<Response<ResponseBody<ResB>>, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let config = &*this.config;
        loop {
            let next = match this.state.as_mut().project() {
                StateProj::Late { start } => {
                    let Some((layer, service, request)) = start.take() else {
                        return Poll::Pending;
                    };
                    match Link::of_task().or_else(|| layer.without_link()) {
                        Some(link) => layer.begin(service, request, link).state,
                        None => Self::unlinked(),
                    }
                }
                StateProj::Opening { start, ledger, timer, since } => {
                    let Some(waiting) = start.as_mut() else { return Poll::Pending };
                    waiting.unsettled.asked();
                    let opened = match Pin::new(&mut waiting.opening).poll(cx) {
                        Poll::Ready(opened) => opened,
                        Poll::Pending => {
                            let limit = config.ack_limit;
                            ready!(timer.poll_limit(since, limit, cx));
                            // Dropping the opening closes its row, if it was written.
                            Err(StoreError::TimedOut { limit })
                        }
                    };
                    let Some(start) = start.take() else { return Poll::Pending };
                    let Start { mut opening, unsettled, watch, outgoing } = start;
                    let attempt = outgoing.attempt.clone();
                    match opened {
                        Ok((right, ordinal)) => {
                            if let Some(ordinal) = ordinal {
                                let _ = attempt.inner.ordinal.set(ordinal);
                            }
                            config.unrecorded.append(ledger, attempt.slot().map(|slot| &slot.run));
                            if let (Some(scope), Some(slot)) = (&watch.scope, attempt.slot()) {
                                scope.opened(attempt.id(), &slot.run, ledger.session());
                            }
                            if let Some(call) = attempt.call() {
                                call.opened_attempt(&attempt);
                            }
                            let live = Live::new(right, attempt, unsettled, watch, config.clone());
                            send(outgoing, Watched::Row(live), config)
                        }
                        Err(error)
                            if config.on_error == OnLedgerError::GoOn && is_outage(&error) =>
                        {
                            config.unrecorded.add(1);
                            if let Some(scope) = &watch.scope {
                                scope.unrecorded();
                            }
                            opening.will_be_sent();
                            send(outgoing, Watched::Nothing(unsettled), config)
                        }
                        Err(error) => over(Error::ledger(error, Some(attempt))),
                    }
                }
                StateProj::Calling {
                    future, live, attempt, timers, wire, stream_asked, ..
                } => {
                    let Some(clocks) = timers.as_mut() else { return Poll::Pending };
                    // The inner future first and the clocks second.
                    match link::apart(|| future.poll(cx)) {
                        Poll::Ready(Ok(response)) => {
                            let now = Instant::now();
                            if let Some(expired) = clocks.head_arrived(now) {
                                let error =
                                    Error::deadline(expired.clock, expired.limit, attempt.clone());
                                fail(live.take(), decide_clock(expired.clock, expired.limit), error)
                            } else {
                                let live = live.take();
                                let Some(timers) = timers.take() else { return Poll::Pending };
                                gate(
                                    response,
                                    now,
                                    live,
                                    attempt.take(),
                                    timers,
                                    *wire,
                                    *stream_asked,
                                    this.config,
                                )
                            }
                        }
                        Poll::Ready(Err(source)) => {
                            let source: BoxError = source.into();
                            let found = classify(&*source);
                            let decision = decide_transport(found.kind, found.phase, found.remote);
                            let error =
                                Error::new(ErrorKind::Transport, attempt.clone(), Some(source));
                            fail(live.take(), decision, error)
                        }
                        Poll::Pending => {
                            let expired = ready!(clocks.poll_head(cx));
                            let error =
                                Error::deadline(expired.clock, expired.limit, attempt.clone());
                            fail(live.take(), decide_clock(expired.clock, expired.limit), error)
                        }
                    }
                }
                StateProj::Gating { response, gate } => {
                    let Some(held) = response.as_mut() else { return Poll::Pending };
                    match ready!(held.body_mut().poll_gate(cx, *gate)) {
                        Ok(()) => {
                            let Some(response) = response.take() else { return Poll::Pending };
                            this.state.set(State::Stuck);
                            return Poll::Ready(Ok(response));
                        }
                        Err(error) => over(error),
                    }
                }
                StateProj::Failing { settle, error } => {
                    let recorded = ready!(settle.poll(cx, config.ack_limit));
                    let Some(error) = error.take() else { return Poll::Pending };
                    match recorded {
                        Ok(()) => over(error),
                        Err(_) if config.on_error == OnLedgerError::GoOn => {
                            config.unrecorded.add(1);
                            if let Some(call) = error.call() {
                                call.seal();
                            }
                            over(error)
                        }
                        Err(store) => over(Error::ledger(store, error.attempt().cloned())),
                    }
                }
                StateProj::RefusedSoon { error, timer, since } => {
                    ready!(timer.poll_limit(since, Duration::from_millis(1), cx));
                    State::Refused { error: error.take() }
                }
                StateProj::Refused { error } => {
                    let Some(error) = error.take() else { return Poll::Pending };
                    this.state.set(State::Stuck);
                    return Poll::Ready(Err(error));
                }
                StateProj::Stuck => return Poll::Pending,
            };
            this.state.set(next);
        }
    }
}

/// Whether an attempt that is sent has a row.
#[allow(clippy::large_enum_variant, reason = "made and taken apart at once")]
enum Watched {
    Row(Live),
    /// It goes on unrecorded, and counts within its call all the same.
    Nothing(Unsettled),
}

/// Calls the inner service: the row is as durable as it was promised to be.
fn send<S, Req, ResB>(
    outgoing: Outgoing<S, Req>,
    watched: Watched,
    config: &Config,
) -> State<S, Req, S::Future, ResB>
where
    S: Service<Req>,
{
    let Outgoing { attempt, mut service, request, wire, stream_asked } = outgoing;
    let now = Instant::now();
    let budget_left = attempt.call().map(|call| call.budget_left_at(now));
    if budget_left == Some(Duration::ZERO) {
        // The budget went by while the ledger was awaited; the layer above ends the call when
        // this attempt, which was never sent, has settled.
        return match watched {
            Watched::Row(live) => {
                let settle = live.close_headless(decide_dropped_before_head(false));
                State::Failing { settle, error: Some(budget_gone(attempt)) }
            }
            Watched::Nothing(_) => over(budget_gone(attempt)),
        };
    }
    let timers = Timers::start(&config.clocks, budget_left, now);
    let (live, unsettled) = match watched {
        Watched::Row(mut live) => {
            live.sent(timers.started());
            (Some(live), None)
        }
        Watched::Nothing(unsettled) => (None, Some(unsettled)),
    };
    State::Calling {
        future: link::apart(|| service.call(request)),
        live,
        attempt: Some(attempt),
        unsettled,
        timers: Some(timers),
        wire,
        stream_asked,
    }
}

fn budget_gone(attempt: Attempt) -> Error {
    let budget = attempt.call().map(Call::budget).unwrap_or_default();
    Error::new(ErrorKind::Capped(crate::Cap::Budget(budget)), Some(attempt), None)
}

/// The head arrived: decides by its status how much is held back.
#[allow(clippy::too_many_arguments, reason = "the parts of one state becoming the next")]
fn gate<S, Req, F, ResB>(
    response: Response<ResB>,
    now: Instant,
    mut live: Option<Live>,
    attempt: Option<Attempt>,
    mut timers: Timers,
    wire: Wire,
    stream_asked: Option<bool>,
    config: &Arc<Config>,
) -> State<S, Req, F, ResB>
where
    ResB: Body + Unpin,
    ResB::Error: Into<BoxError>,
{
    let (mut parts, body) = response.into_parts();
    let status = parts.status.as_u16();
    let mut gate = config.gates.plain;
    if let Some(live) = &mut live {
        let options = TapOptions { stream_asked, ..config.tap.clone() };
        live.head(now, wire, status, &parts.headers, options);
        if live.is_stream() {
            gate = config.gates.stream;
        }
    }
    let (has_events, has_content) = live.as_ref().map_or((false, false), Live::decodes);
    timers.head_came(now, has_events, has_content);
    if !is_success(status) {
        // Read until its row can be closed, whatever the gate.
        gate = GateKind::Whole;
        timers.limit_error_body(ERROR_BODY_TIME);
    }
    if let Some(attempt) = &attempt {
        parts.extensions.insert(attempt.clone());
    }
    let body = ResponseBody::new(body, timers, config.clone(), attempt, live);
    State::Gating { response: Some(Response::from_parts(parts, body)), gate }
}

/// The attempt got no head: closes it, then hands up `error`.
fn fail<S, Req, F, ResB>(
    live: Option<Live>,
    decision: attempt_ledger_core::Decision,
    error: Error,
) -> State<S, Req, F, ResB> {
    match live {
        Some(live) => State::Failing { settle: live.close_headless(decision), error: Some(error) },
        None => State::Refused { error: Some(error) },
    }
}

/// Hands up `error`. One of the ledger, or of a cap, ends the whole call instead, past any policy:
/// it must not be retried.
fn over<S, Req, F, ResB>(error: Error) -> State<S, Req, F, ResB> {
    let error = match error.call().cloned() {
        Some(call) if error.is_ledger() || error.is_capped() => match call.end(error) {
            Ok(()) => return State::Stuck,
            Err(error) => error,
        },
        _ => error,
    };
    State::Refused { error: Some(error) }
}

/// Whether the ledger is out of order, and not the request wrong.
fn is_outage(error: &StoreError) -> bool {
    !matches!(error, StoreError::OtherFixture(_) | StoreError::OrdinalsSpent(_))
}

impl<S, Req, ResB> fmt::Debug for ResponseFuture<S, Req, ResB>
where
    S: Service<Req>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
