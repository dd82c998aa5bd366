use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use attempt_ledger_core::{
    AttemptId, Closed, Event, Grade, GradeRefused, Ordinal, decide_dropped_before_head,
};

use crate::{Ack, Appended, Ledger, OpenRequest, StoreError, capacity::Reserved};

/// An attempt on its way to being opened. Ready when its row is as durable as the store promises;
/// gives the right to close it, and its ordinal (`None` for an unlinked attempt).
///
/// While the ledger has as many open attempts as it may, this waits for a place; limit that wait.
///
/// Dropped before it was polled, or while it waited for a place, it leaves no row. Dropped later,
/// before it was ready, it closes its row as `abandoned` and `not_reached`.
#[must_use = "an attempt is opened when this future is ready"]
pub struct Opening {
    ledger: Ledger,
    attempt: AttemptId,
    state: State,
    sent: bool,
}

#[allow(clippy::large_enum_variant, reason = "a box would be an allocation per attempt")]
enum State {
    Asked(OpenRequest),
    Waiting(OpenRequest, Pin<Box<dyn Future<Output = Option<Reserved>> + Send + Sync>>),
    Queued(Ack<Appended>, Reserved),
    Done,
}

impl Opening {
    pub(crate) fn new(ledger: Ledger, attempt: AttemptId, request: OpenRequest) -> Self {
        Opening { ledger, attempt, state: State::Asked(request), sent: false }
    }

    /// The attempt that is being opened.
    pub fn attempt(&self) -> AttemptId {
        self.attempt
    }

    /// Its request is sent although the row is not acknowledged: dropped, it no longer says
    /// `not_reached`.
    pub fn will_be_sent(&mut self) {
        self.sent = true;
    }

    fn queue(&mut self, request: OpenRequest, places: Reserved) {
        let store = self.ledger.store();
        let event = request.into_event(self.attempt, store.session());
        self.state = State::Queued(store.append(event, places.opened()), places);
    }
}

impl Future for Opening {
    type Output = Result<(CloseRight, Option<Ordinal>), StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            match std::mem::replace(&mut this.state, State::Done) {
                State::Asked(request) => match this.ledger.places().try_attempt() {
                    Some(places) => this.queue(request, places),
                    None => {
                        let wait = Box::pin(this.ledger.places().attempt());
                        this.state = State::Waiting(request, wait);
                    }
                },
                State::Waiting(request, mut wait) => match wait.as_mut().poll(cx) {
                    Poll::Pending => {
                        this.state = State::Waiting(request, wait);
                        return Poll::Pending;
                    }
                    Poll::Ready(None) => return Poll::Ready(Err(StoreError::Gone)),
                    Poll::Ready(Some(places)) => this.queue(request, places),
                },
                State::Queued(mut ack, places) => match Pin::new(&mut ack).poll(cx) {
                    Poll::Pending => {
                        this.state = State::Queued(ack, places);
                        return Poll::Pending;
                    }
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Ready(Ok(Appended { ordinal, .. })) => {
                        let right =
                            CloseRight::new(this.ledger.clone(), this.attempt, ordinal, places);
                        return Poll::Ready(Ok((right, ordinal)));
                    }
                },
                State::Done => return Poll::Ready(Err(StoreError::Gone)),
            }
        }
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        if let State::Queued(_, places) = std::mem::replace(&mut self.state, State::Done) {
            // The row may be written already. Its close follows it through the same queue; where the
            // opening is refused, so is this.
            let dropped = decide_dropped_before_head(self.sent);
            let mut right = CloseRight::new(self.ledger.clone(), self.attempt, None, places);
            drop(right.close(Closed::bare(self.attempt, dropped)));
        }
    }
}

impl fmt::Debug for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Asked(_) => "asked",
            State::Waiting(..) => "waiting for a place",
            State::Queued(..) => "queued",
            State::Done => "done",
        };
        f.debug_struct("Opening").field("attempt", &self.attempt).field("state", &state).finish()
    }
}

/// The right to close one attempt. Holds the places of the attempt's rows until it is dropped, so
/// that a close never fails to be queued.
///
/// Dropped without a close, it leaves the attempt open: whoever holds it decides how it ended.
#[must_use = "an attempt that is not closed stays open while this session lives"]
pub struct CloseRight {
    ledger: Ledger,
    attempt: AttemptId,
    ordinal: Option<Ordinal>,
    places: Reserved,
    closed: bool,
}

impl CloseRight {
    fn new(ledger: Ledger, attempt: AttemptId, ordinal: Option<Ordinal>, places: Reserved) -> Self {
        CloseRight { ledger, attempt, ordinal, places, closed: false }
    }

    /// The attempt.
    pub fn attempt(&self) -> AttemptId {
        self.attempt
    }

    /// Its ordinal; `None` for an unlinked attempt.
    pub fn ordinal(&self) -> Option<Ordinal> {
        self.ordinal
    }

    /// Whether [`close`](Self::close) was called.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// The ledger it is of.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Closes the attempt, once; the acknowledgement comes when that is written. A second close is
    /// answered with [`StoreError::AlreadyClosed`]. The row is of this attempt, whatever
    /// `closed.attempt` says.
    pub fn close(&mut self, mut closed: Closed) -> Ack<()> {
        if std::mem::replace(&mut self.closed, true) {
            return Ack::ready(Err(StoreError::AlreadyClosed(self.attempt)));
        }
        closed.attempt = self.attempt;
        closed.fingerprint = closed.fingerprint.map(|plain| self.ledger.recorded(plain));
        match self.places.later() {
            Some(place) => self.ledger.append_at(Event::Closed(closed), place),
            None => Ack::ready(Err(StoreError::Gone)),
        }
    }

    /// Appends the attempt's grade as its score, at the reserved place; see [`Ledger::score`].
    /// Refused as not closed before [`close`](Self::close).
    pub fn score(&mut self, grade: Grade) -> Ack<()> {
        self.grade(grade, Event::Scored)
    }

    /// Appends the attempt's grade as a diagnostic, at the reserved place; see
    /// [`Ledger::diagnostic`].
    pub fn diagnostic(&mut self, grade: Grade) -> Ack<()> {
        self.grade(grade, Event::Diagnostic)
    }

    /// Records, at the reserved place, that the attempt's grade was not accepted by whoever made it.
    pub fn refuse_grade(&mut self, refused: GradeRefused) -> Ack<()> {
        self.grade(refused, Event::GradeRefused)
    }

    fn grade<G>(&mut self, grade: G, event: fn(G) -> Event) -> Ack<()> {
        // Before the close, the place that is left over may be the close's own.
        let reserved = if self.closed { self.places.later() } else { None };
        match reserved.or_else(|| self.ledger.places().try_other()) {
            Some(place) => self.ledger.append_at(event(grade), place),
            None => Ack::ready(Err(StoreError::Full { bound: self.ledger.capacity().other })),
        }
    }
}

impl fmt::Debug for CloseRight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CloseRight")
            .field("attempt", &self.attempt)
            .field("ordinal", &self.ordinal)
            .field("closed", &self.closed)
            .finish()
    }
}
