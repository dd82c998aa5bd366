use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use attempt_ledger_core::{
    AttemptId, Closed, Detail, Effect, Label, Ordinal, Remote, Slot, Verdict,
};

use tokio::time::Instant;

use crate::{
    Call,
    sync::{Mutex, lock},
};

/// A handle on one attempt: in the extensions of its response, or in its error.
///
/// Where the gate let the retry policy see the whole outcome the state is
/// [`AttemptState::Closed`]; under a gate that opens earlier it is [`AttemptState::Streaming`] until
/// the body ends. The handle may be kept: it says more later.
#[derive(Clone)]
pub struct Attempt {
    pub(crate) inner: Arc<AttemptInner>,
    pub(crate) call: Option<Call>,
}

pub(crate) struct AttemptInner {
    pub(crate) id: AttemptId,
    pub(crate) slot: Option<Slot>,
    pub(crate) effect: Effect,
    pub(crate) ordinal: OnceLock<Ordinal>,
    state: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    closed: Option<Outcome>,
    /// Its closing row was acknowledged, or nobody waits for that: the outcome may be told.
    told: bool,
    recorded: bool,
    grade: Option<f64>,
}

#[derive(Clone)]
pub(crate) struct Outcome {
    pub(crate) verdict: Verdict,
    pub(crate) remote: Remote,
    pub(crate) detail: Detail,
    pub(crate) status: Option<u16>,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) unknown_stop: Option<Label>,
}

/// What is known of an attempt at this moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AttemptState {
    /// Its body is still being read.
    Streaming,
    /// It is over.
    Closed {
        /// Its verdict.
        verdict: Verdict,
        /// What is known of the remote side.
        remote: Remote,
        /// Ordinal one's score, or a later ordinal's diagnostic; `None` without a grade.
        grade: Option<f64>,
    },
}

impl Attempt {
    pub(crate) fn new(
        id: AttemptId,
        slot: Option<Slot>,
        effect: Effect,
        call: Option<Call>,
    ) -> Self {
        let inner =
            AttemptInner { id, slot, effect, ordinal: OnceLock::new(), state: Mutex::default() };
        Attempt { inner: Arc::new(inner), call }
    }

    /// The attempt of a response, when a ledger was beneath it.
    pub fn of<B>(response: &http::Response<B>) -> Option<&Attempt> {
        response.extensions().get()
    }

    /// Its id, as in the ledger.
    pub fn id(&self) -> AttemptId {
        self.inner.id
    }

    /// The slot it counts in; `None` for an unlinked attempt.
    pub fn slot(&self) -> Option<&Slot> {
        self.inner.slot.as_ref()
    }

    /// Its number within the slot; `None` before the ledger allocated it, and for an unlinked attempt.
    pub fn ordinal(&self) -> Option<Ordinal> {
        self.inner.ordinal.get().copied()
    }

    /// What a repeat of its request would do.
    pub fn effect(&self) -> Effect {
        self.inner.effect
    }

    /// The call it belongs to: the summary over all its attempts, final when the body has ended.
    pub fn call(&self) -> Option<&Call> {
        self.call.as_ref()
    }

    /// What is known of it now.
    pub fn state(&self) -> AttemptState {
        let state = lock(&self.inner.state);
        match state.outcome() {
            Some(o) => {
                AttemptState::Closed { verdict: o.verdict, remote: o.remote, grade: state.grade }
            }
            None => AttemptState::Streaming,
        }
    }

    /// Its verdict, once it is over.
    pub fn verdict(&self) -> Option<Verdict> {
        lock(&self.inner.state).outcome().map(|o| o.verdict)
    }

    /// What is known of the remote side, once it is over.
    pub fn remote(&self) -> Option<Remote> {
        lock(&self.inner.state).outcome().map(|o| o.remote)
    }

    /// Particulars of its end, once it is over.
    pub fn detail(&self) -> Option<Detail> {
        lock(&self.inner.state).outcome().map(|o| o.detail.clone())
    }

    /// The response's status, once it is over and had one.
    pub fn status(&self) -> Option<u16> {
        lock(&self.inner.state).outcome().and_then(|o| o.status)
    }

    /// The wait that the server asked for.
    pub fn retry_after(&self) -> Option<Duration> {
        lock(&self.inner.state).outcome().and_then(|o| o.retry_after)
    }

    /// The stop word of its answer, where that is no known one, so that the content alone decided.
    pub fn unknown_stop(&self) -> Option<Label> {
        lock(&self.inner.state).outcome().and_then(|o| o.unknown_stop.clone())
    }

    /// Its grade: the score of ordinal one, a diagnostic of a later ordinal.
    pub fn grade(&self) -> Option<f64> {
        lock(&self.inner.state).grade
    }

    /// Whether the ledger acknowledged its end.
    pub fn is_recorded(&self) -> bool {
        lock(&self.inner.state).recorded
    }

    pub(crate) fn outcome(&self) -> Option<Outcome> {
        lock(&self.inner.state).outcome().cloned()
    }

    /// How it ended, and to the pacer what that says of its host; `sent` is when it was handed to the
    /// inner service.
    pub(crate) fn set_closed(&self, closed: &Closed, sent: Option<Instant>) {
        let outcome = Outcome {
            verdict: closed.verdict,
            remote: closed.remote,
            detail: closed.detail.clone(),
            status: closed.status,
            retry_after: closed.retry_after_ms.map(Duration::from_millis),
            unknown_stop: closed
                .finish_reason
                .as_ref()
                .filter(|_| closed.detail.unknown_stop)
                .cloned(),
        };
        if let (Some(call), Some(sent)) = (&self.call, sent) {
            call.attempt_ended(sent, &outcome);
        }
        lock(&self.inner.state).closed = Some(outcome);
    }

    /// How it ended, before anybody is told.
    pub(crate) fn decided(&self) -> Option<Verdict> {
        lock(&self.inner.state).closed.as_ref().map(|o| o.verdict)
    }

    /// Its closing row was answered for, or nobody waits for it.
    pub(crate) fn tell(&self, recorded: bool) {
        let mut state = lock(&self.inner.state);
        state.told = true;
        state.recorded |= recorded;
    }

    pub(crate) fn set_grade(&self, grade: f64) {
        lock(&self.inner.state).grade = Some(grade);
    }
}

impl Inner {
    fn outcome(&self) -> Option<&Outcome> {
        self.closed.as_ref().filter(|_| self.told)
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt")
            .field("id", &self.inner.id)
            .field("slot", &self.inner.slot)
            .field("ordinal", &self.ordinal())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
