use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use attempt_ledger_core::{Action, Outcome, Pause, Verdict, decide_retry};
use http::Response;
use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep};
use tower::retry::Policy;

use crate::{Attempt, Error, attempt};

/// The project's retry policy for tower's `RetryLayer`: decides by verdict, remote state, effect and
/// the server's hints, from the same table that `attempt-ledger policy` prints.
///
/// What may have written is repeated only where it was not reached or was turned away at the door;
/// an answer of the model is repeated only when the user asks for it.
///
/// ```
/// use attempt_ledger::{LedgerRetry, Verdict};
///
/// let policy = LedgerRetry::new().retry_on([Verdict::Empty, Verdict::Truncated]).grade_below(0.5);
/// # let _ = policy;
/// ```
#[derive(Clone, Debug)]
pub struct LedgerRetry {
    retry_on: Vec<Verdict>,
    grade_below: Option<f64>,
    attempts: u32,
    made: u32,
}

impl Default for LedgerRetry {
    fn default() -> Self {
        LedgerRetry { retry_on: Vec::new(), grade_below: None, attempts: 3, made: 0 }
    }
}

impl LedgerRetry {
    /// The table as it is. Beneath a [`CallLayer`](crate::CallLayer) its caps hold; without one, 3
    /// attempts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Repeats content of these verdicts too. Verdicts that are not content are left to the table.
    #[must_use]
    pub fn retry_on(mut self, verdicts: impl IntoIterator<Item = Verdict>) -> Self {
        self.retry_on = verdicts.into_iter().filter(|v| v.is_content()).collect();
        self
    }

    /// Repeats content whose grade is below `grade` too. Content without a grade never is.
    #[must_use]
    pub fn grade_below(self, grade: f64) -> Self {
        LedgerRetry { grade_below: Some(grade), ..self }
    }

    /// At most so many attempts, where no call above says so. 0 counts as 1.
    #[must_use]
    pub fn attempts(self, attempts: u32) -> Self {
        LedgerRetry { attempts: attempts.max(1), ..self }
    }

    /// The verdicts of content that are repeated too.
    pub fn retried_verdicts(&self) -> &[Verdict] {
        &self.retry_on
    }

    /// The grade below which content is repeated too.
    pub fn retried_below(&self) -> Option<f64> {
        self.grade_below
    }

    /// The pause before the next attempt of the call whose last attempt this was; `None` hands its
    /// result up. For retry loops that are not tower's: one policy serves one call, and is told of each
    /// attempt once, when its result came. An error of the ledger or of a cap is never to be repeated.
    pub fn pause(&mut self, attempt: &Attempt) -> Option<Duration> {
        // Still being read: what it is worth is not known, and its bytes are with the caller.
        let closed = attempt.outcome()?;
        self.made += 1;
        let call = attempt.call();
        let (opened, most) = match call {
            Some(call) => (call.opened(), call.max_attempts()),
            None => (self.made, self.attempts),
        };
        if opened >= most {
            return None;
        }
        let budget_left = call.map(crate::Call::budget_left);
        let retry_index = opened.saturating_sub(1);
        let again = self.wants_content(&closed, attempt.grade());
        let outcome = Outcome {
            verdict: closed.verdict,
            remote: closed.remote,
            effect: attempt.effect(),
            detail: &closed.detail,
            retry_after_ms: closed.retry_after.and_then(|d| u64::try_from(d.as_millis()).ok()),
            by_status: closed.status.is_some_and(|s| !(200..300).contains(&s)),
            budget_left,
        };
        let pause = match decide_retry(&outcome, retry_index) {
            Action::Retry { pause, .. } => pause,
            // What may have written is not repeated because its answer was not liked.
            // Nor what the server says is not to be tried again.
            Action::HandUp { rule }
                if again && !attempt.effect().is_writes() && rule.should_retry.is_none() =>
            {
                Pause::short(retry_index)
            }
            Action::HandUp { .. } => return None,
        };
        // Never before the host wants to be asked again, which another call may have been told.
        let host = call.map(crate::Call::host_wait).unwrap_or_default();
        let wait = pause.with_jitter(fastrand::f64()).max(host);
        // The call would end at its budget within the pause: its caller gets this result instead.
        if budget_left.is_some_and(|left| wait >= left) { None } else { Some(wait) }
    }

    fn wants_content(&self, closed: &attempt::Outcome, grade: Option<f64>) -> bool {
        closed.verdict.is_content()
            && (self.retry_on.contains(&closed.verdict)
                || matches!((self.grade_below, grade), (Some(least), Some(grade)) if grade < least))
    }
}

impl<Req: Clone, B> Policy<Req, Response<B>, Error> for LedgerRetry {
    type Future = RetryPause;

    fn retry(
        &mut self,
        _: &mut Req,
        result: &mut Result<Response<B>, Error>,
    ) -> Option<RetryPause> {
        let attempt = match result {
            Ok(response) => Attempt::of(response)?,
            Err(error) if error.is_ledger() || error.is_capped() => return None,
            Err(error) => error.attempt()?,
        };
        self.pause(attempt).map(RetryPause::new)
    }

    fn clone_request(&mut self, request: &Req) -> Option<Req> {
        Some(request.clone())
    }
}

pin_project! {
    /// The wait of a [`LedgerRetry`].
    pub struct RetryPause {
        #[pin]
        sleep: Sleep,
    }
}

impl RetryPause {
    fn new(wait: Duration) -> Self {
        RetryPause { sleep: sleep(wait) }
    }
}

impl Future for RetryPause {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.project().sleep.poll(cx)
    }
}

impl fmt::Debug for RetryPause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryPause").finish_non_exhaustive()
    }
}
