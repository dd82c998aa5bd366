use std::{
    collections::VecDeque,
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use attempt_ledger_core::{BodyEnd, GateKind, Verdict};
use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use super::{gate::FIRST_CONTENT_BOUND, layer::Config, live::Live, settle::Settle};
use crate::{
    Attempt, BoxError, Error, ErrorKind, OnLedgerError,
    clock::{Expired, Late, Passed, Timers},
    evidence::classify_body,
    link,
};

/// The body of a response that passed a [`LedgerService`](super::LedgerService): the server's bytes,
/// trailers and sizes, unchanged.
///
/// The frame with the answer's end, or the end itself, is held back until the attempt is recorded
/// and, where it is ordinal one's, graded. Its errors are [`Error`]s: of the transport, of a clock,
/// or of the ledger. Dropping it closes the attempt.
pub struct ResponseBody<B> {
    inner: B,
    timers: Timers,
    config: Arc<Config>,
    attempt: Option<Attempt>,
    live: Option<Live>,
    settle: Option<Settle>,
    held: Held,
    end: Option<End>,
    /// A fault came before the answer was complete, so that a gate hands up an error.
    broke_answer: bool,
    /// No clock runs while the ledger or a grader is awaited.
    settling_since: Option<Instant>,
}

enum End {
    Clean,
    Fault(Error),
    Over,
}

// Only the inner body is polled in place, and it is `Unpin`.
impl<B: Unpin> Unpin for ResponseBody<B> {}

impl<B> ResponseBody<B>
where
    B: Body + Unpin,
    B::Error: Into<BoxError>,
{
    pub(super) fn new(
        inner: B,
        timers: Timers,
        config: Arc<Config>,
        attempt: Option<Attempt>,
        live: Option<Live>,
    ) -> Self {
        ResponseBody {
            inner,
            timers,
            config,
            attempt,
            live,
            settle: None,
            held: Held::default(),
            end: None,
            broke_answer: false,
            settling_since: None,
        }
    }

    /// Ready when the gate is open; an error when what it held is no response.
    pub(super) fn poll_gate(
        &mut self,
        cx: &mut Context<'_>,
        gate: GateKind,
    ) -> Poll<Result<(), Error>> {
        if self.inner.is_end_stream() && self.end.is_none() {
            self.end = Some(End::Clean);
            self.close(&BodyEnd::Complete);
        }
        loop {
            ready!(self.poll_settle(cx));
            let gate = match &self.live {
                Some(live) if live.is_document_after_all() => self.config.gates.plain,
                _ => gate,
            };
            let holds = match (&self.live, &self.end) {
                (Some(live), None) => match gate {
                    GateKind::Whole => true,
                    GateKind::FirstContent => !live.shows_content(),
                    _ => false,
                },
                _ => false,
            };
            if !holds {
                self.hand_up();
                return Poll::Ready(self.take_broken());
            }
            if gate == GateKind::FirstContent && self.live.as_ref().is_some_and(Live::is_faulty) {
                // Nothing that follows can make it an answer: the policy is to see that.
                self.close(&BodyEnd::Complete);
                continue;
            }
            let bound = match gate {
                GateKind::FirstContent => FIRST_CONTENT_BOUND,
                _ => self.config.whole_bound,
            };
            // An error body has a bound of its own, at which its row closes.
            if !self.timers.reads_error_body() && self.held.weight > bound {
                if let Some(live) = &mut self.live {
                    live.overflow();
                }
                self.hand_up();
                return Poll::Ready(Ok(()));
            }
            if let Some(frame) = ready!(self.poll_upstream(cx)) {
                self.held.push(frame);
            }
        }
    }

    /// The response goes to whoever reads it.
    fn hand_up(&mut self) {
        self.timers.handed_up();
        if let Some(live) = &mut self.live {
            live.handed_up();
        }
    }

    fn take_broken(&mut self) -> Result<(), Error> {
        match self.end.take() {
            Some(End::Fault(fault))
                if fault.is_ledger() || (self.broke_answer && !self.config.hand_up_broken) =>
            {
                Err(fault)
            }
            end => {
                self.end = end;
                Ok(())
            }
        }
    }

    /// One step upstream: a frame, or `None` when something else happened.
    fn poll_upstream(&mut self, cx: &mut Context<'_>) -> Poll<Option<Frame<Bytes>>> {
        // The body first and the clocks second: what is there is taken.
        match link::apart(|| Pin::new(&mut self.inner).poll_frame(cx)) {
            Poll::Ready(Some(Ok(frame))) => {
                let now = Instant::now();
                if let Some(late) = self.timers.arrived(now) {
                    self.expire(&late);
                    return Poll::Ready(None);
                }
                let frame = frame.map_data(|mut data| data.copy_to_bytes(data.remaining()));
                let ended = self.inner.is_end_stream();
                if ended {
                    // hyper may never poll again.
                    self.end = Some(End::Clean);
                }
                if let Some(live) = &mut self.live {
                    if let Some(data) = frame.data_ref() {
                        live.feed(data, now, &mut self.timers);
                    }
                    if ended || live.is_decided() {
                        self.close(&BodyEnd::Complete);
                    }
                }
                Poll::Ready(Some(frame))
            }
            Poll::Ready(None) => {
                self.end = Some(End::Clean);
                self.close(&BodyEnd::Complete);
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(error))) => {
                let error: BoxError = error.into();
                let kind = classify_body(&*error);
                let fault = Error::new(ErrorKind::Transport, self.attempt.clone(), Some(error));
                self.fail(&BodyEnd::Broken(kind), fault);
                Poll::Ready(None)
            }
            Poll::Pending => {
                match ready!(self.timers.poll_body(cx)) {
                    Passed::Clock(late) => self.expire(&late),
                    Passed::ErrorBody => self.close(&BodyEnd::Complete),
                }
                Poll::Ready(None)
            }
        }
    }

    fn expire(&mut self, late: &Late) {
        let Expired { clock, limit } = late.expired;
        if let Some(live) = &mut self.live {
            live.stalled(late);
        }
        if late.by_reader {
            let fault = Error::new(ErrorKind::HeldTooLong { limit }, self.attempt.clone(), None);
            self.fail(&BodyEnd::Held(clock, limit), fault);
        } else {
            let fault = Error::deadline(clock, limit, self.attempt.clone());
            self.fail(&BodyEnd::Clock(clock, limit), fault);
        }
    }

    fn fail(&mut self, end: &BodyEnd, fault: Error) {
        let broke = self.live.as_ref().is_some_and(|live| !live.is_answer());
        self.end = Some(End::Fault(fault));
        self.close(end);
        // What was unfinished may have been the stop reason: the row decides.
        let content =
            self.attempt.as_ref().and_then(Attempt::decided).is_some_and(Verdict::is_content);
        self.broke_answer = broke && !content;
    }

    fn close(&mut self, end: &BodyEnd) {
        // Also where nothing is recorded: a limit that has passed and stays would be met for ever.
        self.timers.release_recorded();
        if let Some(live) = self.live.take() {
            self.settling_since = Some(Instant::now());
            self.settle = Some(live.close_body(end));
        }
    }

    fn poll_settle(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(settle) = &mut self.settle else { return Poll::Ready(()) };
        let recorded = ready!(settle.poll(cx, self.config.ack_limit));
        self.settle = None;
        if let Some(since) = self.settling_since.take() {
            self.timers.stood_still(since.elapsed());
        }
        if let Err(error) = recorded {
            match self.config.on_error {
                OnLedgerError::GoOn => {
                    self.config.unrecorded.add(1);
                    if let Some(call) = self.attempt.as_ref().and_then(Attempt::call) {
                        call.seal();
                    }
                }
                OnLedgerError::Fail => {
                    let error = Error::ledger(error, self.attempt.clone());
                    self.held.clear();
                    self.end = Some(End::Fault(error));
                }
            }
        }
        Poll::Ready(())
    }
}

impl<B> Body for ResponseBody<B>
where
    B: Body + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = &mut *self;
        loop {
            ready!(this.poll_settle(cx));
            if let Some(frame) = this.held.pop() {
                return Poll::Ready(Some(Ok(frame)));
            }
            if let Some(end) = &mut this.end {
                return Poll::Ready(match std::mem::replace(end, End::Over) {
                    End::Fault(fault) => Some(Err(fault)),
                    End::Clean | End::Over => None,
                });
            }
            if let Some(frame) = ready!(this.poll_upstream(cx)) {
                if this.settle.is_none() {
                    return Poll::Ready(Some(Ok(frame)));
                }
                // The frame after which the answer is complete waits for its row.
                this.held.push(frame);
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let nothing_more = self.held.is_empty() && self.settle.is_none();
        nothing_more
            && match &self.end {
                Some(End::Fault(_)) => false,
                Some(End::Clean | End::Over) => true,
                None => self.live.is_none() && self.inner.is_end_stream(),
            }
    }

    fn size_hint(&self) -> SizeHint {
        let inner = self.inner.size_hint();
        let held = self.held.bytes as u64;
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower().saturating_add(held));
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper.saturating_add(held));
        }
        hint
    }
}

impl<B> fmt::Debug for ResponseBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody")
            .field("attempt", &self.attempt)
            .field("held_bytes", &self.held.bytes)
            .finish_non_exhaustive()
    }
}

/// Frames that are held back. One is kept in place: most responses have no more, and a stream never
/// holds more, so neither allocates for it.
#[derive(Default)]
struct Held {
    first: Option<Frame<Bytes>>,
    later: VecDeque<Frame<Bytes>>,
    bytes: usize,
    /// What holding them takes: a body in tiny chunks costs its frames, not its bytes.
    weight: usize,
}

impl Held {
    fn push(&mut self, frame: Frame<Bytes>) {
        self.bytes += len(&frame);
        self.weight += len(&frame) + if self.is_empty() { 0 } else { FRAME };
        if self.first.is_none() && self.later.is_empty() {
            self.first = Some(frame);
        } else {
            self.later.push_back(frame);
        }
    }

    fn pop(&mut self) -> Option<Frame<Bytes>> {
        let frame = self.first.take().or_else(|| self.later.pop_front())?;
        self.bytes -= len(&frame);
        if self.is_empty() {
            self.weight = 0;
        }
        Some(frame)
    }

    fn clear(&mut self) {
        *self = Held::default();
    }

    fn is_empty(&self) -> bool {
        self.first.is_none() && self.later.is_empty()
    }
}

const FRAME: usize = size_of::<Frame<Bytes>>();

fn len(frame: &Frame<Bytes>) -> usize {
    frame.data_ref().map_or(0, Bytes::len)
}
