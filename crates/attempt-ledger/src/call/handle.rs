use std::{
    fmt,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Waker},
    time::Duration,
};

use attempt_ledger_core::{AttemptId, CallId, Cause, Label, Ordinal, Remote, Slot, Verdict};
use http::HeaderMap;
use tokio::time::Instant;

use crate::{
    Attempt, AttemptState, Case, Error, ErrorKind,
    attempt::{AttemptInner, Outcome},
    config::deadline,
    link,
    pace::Seat,
    sync::{Mutex, lock},
};

/// One logical call, shared by the layers: what the caller of the retry layer awaits.
///
/// Also the summary of its attempts: found through [`Attempt::call`] on the final response or error,
/// and final when the response's body has ended.
#[derive(Clone)]
pub struct Call(Arc<Shared>);

pub(crate) struct Shared {
    id: CallId,
    case: Case,
    max_attempts: u32,
    budget: Duration,
    deadline: Instant,
    /// What it was let through by, where its host is paced.
    seat: OnceLock<Seat>,
    /// A header may name it.
    named: AtomicBool,
    state: Mutex<State>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        if *self.named.get_mut() {
            link::unlist(self.id);
        }
    }
}

#[derive(Default)]
struct State {
    first: Option<Arc<AttemptInner>>,
    later: Vec<Arc<AttemptInner>>,
    /// Attempts whose end, close and grade are not all over.
    unsettled: u32,
    /// Attempts that were let through, whether or not the ledger could record them.
    admitted: u32,
    /// After a close that failed no further attempt is opened.
    sealed: bool,
    ended: Option<Error>,
    is_ended: bool,
    /// The future of the layer above is gone: nobody is left to be told of an end.
    orphaned: bool,
    waker: Option<Waker>,
}

/// Which cap ended a call. No ordinal was spent on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cap {
    /// So many attempts had been opened.
    Attempts(u32),
    /// So much wall time had passed.
    Budget(Duration),
    /// The host asked to wait so long, which is more than was left of the budget.
    Wait(Duration),
    /// The host has done nothing but throttle for so long, which is longer than the budget.
    Throttling(Duration),
}

impl fmt::Display for Cap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cap::Attempts(n) => write!(f, "the call reached its cap of {n} attempts"),
            Cap::Budget(d) => write!(f, "the call used up its budget of {d:?}"),
            Cap::Throttling(d) => write!(
                f,
                "the host has done nothing but throttle for {d:.0?}, longer than the call's budget"
            ),
            Cap::Wait(d) => {
                write!(
                    f,
                    "the host asked to wait {d:.0?}, which is more than is left of the call's budget"
                )
            }
        }
    }
}

/// One attempt of a call's summary.
#[derive(Clone, Debug, PartialEq)]
pub struct AttemptSummary {
    /// The attempt.
    pub attempt: AttemptId,
    /// Its number within the slot.
    pub ordinal: Option<Ordinal>,
    /// What is known of it.
    pub state: AttemptState,
    /// The stop word of its answer, where that is no known one.
    pub unknown_stop: Option<Label>,
}

/// Whether a call lets another attempt open.
pub(crate) enum Admission {
    /// It does, for this cause (`Initial` stands for the first of the call).
    Open(Cause),
    /// The call is over; the layer above has been told and will end it.
    Wait,
    /// The call is over, and nobody waits for it any more.
    Over,
}

impl Call {
    pub(crate) fn start(id: CallId, case: Case, max_attempts: u32, budget: Duration) -> Self {
        let deadline = deadline(Instant::now(), budget);
        Call(Arc::new(Shared {
            id,
            case,
            max_attempts,
            budget,
            deadline,
            seat: OnceLock::new(),
            named: AtomicBool::new(false),
            state: Mutex::default(),
        }))
    }

    /// Its id, as in the rows of its attempts.
    pub fn id(&self) -> CallId {
        self.0.id
    }

    /// The slot its attempts count in.
    pub fn slot(&self) -> &Slot {
        &self.0.case.slot
    }

    /// At most so many attempts are opened.
    pub fn max_attempts(&self) -> u32 {
        let state = lock(&self.0.state);
        if state.sealed { state.admitted.min(self.0.max_attempts) } else { self.0.max_attempts }
    }

    /// No further attempt is opened: one could not be recorded, and its answer stands.
    pub(crate) fn seal(&self) {
        lock(&self.0.state).sealed = true;
    }

    /// Attempts that were let through so far, those still opening among them.
    pub fn opened(&self) -> u32 {
        lock(&self.0.state).admitted
    }

    /// The call's wall time in all.
    pub fn budget(&self) -> Duration {
        self.0.budget
    }

    /// What is left of the call's wall time.
    pub fn budget_left(&self) -> Duration {
        self.budget_left_at(Instant::now())
    }

    /// What was left of it at `now`.
    pub(crate) fn budget_left_at(&self, now: Instant) -> Duration {
        self.0.deadline.saturating_duration_since(now)
    }

    /// Its attempts in order.
    pub fn attempts(&self) -> Vec<AttemptSummary> {
        let all: Vec<_> = {
            let state = lock(&self.0.state);
            state.first.iter().chain(&state.later).cloned().collect()
        };
        let summary = |inner: Arc<AttemptInner>| {
            let attempt = Attempt { inner, call: None };
            AttemptSummary {
                attempt: attempt.id(),
                ordinal: attempt.ordinal(),
                state: attempt.state(),
                unknown_stop: attempt.unknown_stop(),
            }
        };
        all.into_iter().map(summary).collect()
    }

    /// The ordinal of the newest attempt that is content, or is still being read.
    pub fn survivor(&self) -> Option<Ordinal> {
        let alive = |a: &AttemptSummary| match a.state {
            AttemptState::Streaming => true,
            AttemptState::Closed { verdict, .. } => verdict.is_content(),
        };
        self.attempts().into_iter().rev().find(alive).and_then(|a| a.ordinal)
    }

    /// Whether it ended in content after at least one fault of availability.
    pub fn recovered(&self) -> bool {
        let verdict = |a: &AttemptSummary| match a.state {
            AttemptState::Closed { verdict, .. } => Some(verdict),
            AttemptState::Streaming => None,
        };
        let attempts = self.attempts();
        let ended_well = attempts.last().and_then(verdict).is_some_and(Verdict::is_content);
        ended_well && attempts.iter().filter_map(verdict).any(Verdict::is_fault)
    }

    /// Whether the remote side may have done the work of some attempt whose answer nobody has.
    pub fn remote_unknown(&self) -> bool {
        let unknown = |a: &AttemptSummary| {
            matches!(a.state, AttemptState::Closed { remote: Remote::Unknown, .. })
        };
        self.attempts().iter().any(unknown)
    }

    pub(crate) fn case(&self) -> &Case {
        &self.0.case
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.0.deadline
    }

    /// Asks, at `now`, for the right to open another attempt, and counts it: two that ask at once
    /// never share the last place.
    pub(crate) fn admit(&self, now: Instant) -> Admission {
        let mut state = lock(&self.0.state);
        let cap = if state.sealed || state.admitted >= self.0.max_attempts {
            // While another attempt is open its result is still to come: only this one waits.
            if state.unsettled > 0 {
                return if state.orphaned { Admission::Over } else { Admission::Wait };
            }
            Some(Cap::Attempts(state.admitted))
        } else if now >= self.0.deadline {
            Some(Cap::Budget(self.0.budget))
        } else {
            None
        };
        match cap {
            Some(cap) if !state.is_ended => {
                // An end that nobody takes would hold this call, which holds it.
                if state.orphaned {
                    state.is_ended = true;
                } else {
                    let error = self.capped(&state, cap);
                    state.end(error);
                }
            }
            _ => {}
        }
        if state.is_ended {
            return if state.orphaned { Admission::Over } else { Admission::Wait };
        }
        let cause = match (state.admitted, state.unsettled) {
            (0, _) => Cause::Initial,
            (_, 0) => Cause::Retry,
            _ => Cause::Hedge,
        };
        state.admitted += 1;
        state.unsettled += 1;
        Admission::Open(cause)
    }

    /// Lists an attempt whose row was acknowledged.
    pub(crate) fn opened_attempt(&self, attempt: &Attempt) {
        let mut state = lock(&self.0.state);
        let inner = attempt.inner.clone();
        if state.first.is_none() {
            state.first = Some(inner);
        } else {
            state.later.push(inner);
        }
    }

    /// An attempt's end, close and grade are over. One that was never `asked` to open gives its place
    /// back.
    pub(crate) fn settled_attempt(&self, asked: bool) {
        let waker = {
            let mut state = lock(&self.0.state);
            state.unsettled = state.unsettled.saturating_sub(1);
            if !asked {
                state.admitted = state.admitted.saturating_sub(1);
            }
            if Instant::now() >= self.0.deadline { state.waker.take() } else { None }
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Ends the call; the layer above returns `error`. Says whether somebody is there to do so.
    pub(crate) fn end(&self, error: Error) -> Result<(), Error> {
        let mut state = lock(&self.0.state);
        if state.orphaned {
            return Err(error);
        }
        state.end(error);
        Ok(())
    }

    /// For the layer above: the end, or a place in line for it.
    pub(crate) fn take_end(&self, cx: &mut Context<'_>) -> Option<Error> {
        let mut state = lock(&self.0.state);
        if let Some(error) = state.ended.take() {
            return Some(error);
        }
        match &mut state.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        None
    }

    /// For the layer above, when the budget's time has come: the end, unless an attempt is not over.
    pub(crate) fn end_by_budget(&self) -> Option<Error> {
        let mut state = lock(&self.0.state);
        if state.unsettled > 0 {
            return None;
        }
        state.is_ended = true;
        let error = self.capped(&state, Cap::Budget(self.0.budget));
        Some(error)
    }

    /// Lets a header name it, until it is dropped.
    pub(crate) fn name_in(&self, headers: &mut HeaderMap) {
        self.0.named.store(true, Ordering::Relaxed);
        link::name_in(headers, self);
    }

    pub(crate) fn downgrade(&self) -> Weak<Shared> {
        Arc::downgrade(&self.0)
    }

    pub(crate) fn from_shared(shared: Arc<Shared>) -> Self {
        Call(shared)
    }

    /// Its host lets it through.
    pub(crate) fn seated(&self, seat: Seat) {
        let _ = self.0.seat.set(seat);
    }

    /// For the pacer: how an attempt that was sent at `sent` ended.
    pub(crate) fn attempt_ended(&self, sent: Instant, outcome: &Outcome) {
        if let Some(seat) = self.0.seat.get() {
            seat.ended(sent, outcome);
        }
    }

    /// For the pacer: the first content of an attempt that was sent at `sent` came.
    pub(crate) fn shows_content(&self, sent: Instant) {
        if let Some(seat) = self.0.seat.get() {
            seat.shows_content(sent);
        }
    }

    /// How long its host is to be left alone from now on.
    pub(crate) fn host_wait(&self) -> Duration {
        self.0.seat.get().map(Seat::wait).unwrap_or_default()
    }

    /// The error of a call that does not wait for its host.
    pub(crate) fn cannot_wait(&self, cap: Cap) -> Error {
        let mut state = lock(&self.0.state);
        state.is_ended = true;
        self.capped(&state, cap)
    }

    /// The layer above is done with this call, or was dropped.
    pub(crate) fn orphan(&self) {
        if let Some(seat) = self.0.seat.get() {
            seat.leave();
        }
        let mut state = lock(&self.0.state);
        state.orphaned = true;
        state.waker = None;
        // It holds an attempt, which holds this call.
        state.ended = None;
    }

    /// The error of a capped call, with its last attempt.
    fn capped(&self, state: &State, cap: Cap) -> Error {
        let last = state.later.last().or(state.first.as_ref());
        let last = last.map(|inner| Attempt { inner: inner.clone(), call: Some(self.clone()) });
        Error::new(ErrorKind::Capped(cap), last, None)
    }
}

impl State {
    fn end(&mut self, error: Error) {
        self.is_ended = true;
        if self.ended.is_none() {
            self.ended = Some(error);
        }
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("id", &self.0.id)
            .field("slot", &self.0.case.slot)
            .field("attempts", &self.attempts())
            .finish_non_exhaustive()
    }
}
