use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use attempt_ledger_core::Clock;
use tokio::time::{Instant, Sleep};

use crate::config::{Clocks, deadline};

/// One timer that is moved only when it must be.
///
/// A stream's idle deadline moves with every chunk, always further away. So the timer is left where
/// it is, and when it fires too early it is set again: a chunk costs no timer operation. The waker
/// that is registered is remembered, so that the timer is not even polled while it stays the same.
#[derive(Debug, Default)]
pub(crate) struct LazyTimer {
    sleep: Option<Pin<Box<Sleep>>>,
    registered: Option<(Instant, Waker)>,
}

impl LazyTimer {
    /// Ready when `at` has passed, by `now`; else the task is woken then.
    pub(crate) fn poll_until(
        &mut self,
        at: Instant,
        now: Instant,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        if now >= at {
            return Poll::Ready(());
        }
        if let Some((set, waker)) = &self.registered
            && *set <= at
            && *set > now
            && waker.will_wake(cx.waker())
        {
            return Poll::Pending;
        }
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at)));
        if sleep.deadline() > at || sleep.deadline() <= now {
            sleep.as_mut().reset(at);
        }
        let set = sleep.deadline();
        // A task that has used up its share of a turn is told to come again, and the timer does not
        // take its waker.
        let takes_waker = tokio::task::coop::has_budget_remaining();
        match sleep.as_mut().poll(cx) {
            Poll::Pending => {
                self.registered = takes_waker.then(|| (set, cx.waker().clone()));
                Poll::Pending
            }
            // The runtime's budget for this poll is used up, or the clock moved: ask again at once.
            Poll::Ready(()) => {
                self.registered = None;
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    /// Waits until `limit` has passed since the first call with an empty `since`.
    pub(crate) fn poll_limit(
        &mut self,
        since: &mut Option<Instant>,
        limit: Duration,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let now = Instant::now();
        let start = *since.get_or_insert(now);
        self.poll_until(deadline(start, limit), now, cx)
    }
}

/// A clock that expired, with its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expired {
    pub(crate) clock: Clock,
    pub(crate) limit: Duration,
}

/// The clocks of one attempt, from the moment the inner service is called.
#[derive(Debug)]
pub(crate) struct Timers {
    start: Instant,
    head: Option<(Instant, Duration)>,
    idle: Duration,
    total: Instant,
    total_expired: Expired,
    pending_since: Option<Instant>,
    /// When the reader was last given something; `None` while a gate reads.
    handed_at: Option<Instant>,
    /// An error body is read until here at most; passing it is no clock of the attempt.
    error_body: Option<Instant>,
    pub(crate) timer: LazyTimer,
}

/// What [`Timers::poll_body`] found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Passed {
    /// A clock of the attempt.
    Clock(Expired),
    /// The time in which an error body is read.
    ErrorBody,
}

impl Timers {
    /// `budget_left` is what is left of the call's budget at `start`.
    pub(crate) fn start(clocks: &Clocks, budget_left: Option<Duration>, start: Instant) -> Self {
        let (limit, clock) = match budget_left {
            Some(left) if left < clocks.total => (left, Clock::Budget),
            _ => (clocks.total, Clock::Total),
        };
        Timers {
            start,
            head: clocks.head.map(|limit| (deadline(start, limit), limit)),
            idle: clocks.idle,
            total: deadline(start, limit),
            total_expired: Expired { clock, limit },
            pending_since: None,
            handed_at: None,
            error_body: None,
            timer: LazyTimer::default(),
        }
    }

    pub(crate) fn started(&self) -> Instant {
        self.start
    }

    pub(crate) fn limit_error_body(&mut self, limit: Duration) {
        self.error_body = Some(deadline(Instant::now(), limit));
    }

    /// The error body's time no longer matters: its row is closed.
    pub(crate) fn release_error_body(&mut self) {
        self.error_body = None;
    }

    pub(crate) fn reads_error_body(&self) -> bool {
        self.error_body.is_some()
    }

    /// The ledger or a grader was awaited for so long, and no clock of an attempt runs meanwhile.
    pub(crate) fn stood_still(&mut self, waited: Duration) {
        self.pending_since = None;
        self.total = deadline(self.total, waited);
    }

    /// Called when the inner future is pending.
    pub(crate) fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Expired> {
        let now = Instant::now();
        let (at, expired) = match self.head {
            Some((at, limit)) if at < self.total => (at, Expired { clock: Clock::Head, limit }),
            _ => (self.total, self.total_expired),
        };
        self.timer.poll_until(at, now, cx).map(|()| expired)
    }

    /// Called when something arrived: the total is absolute, so that a head or a frame that is ready
    /// after it loses all the same. Says whether it was the reader who let it pass.
    pub(crate) fn arrived(&mut self, now: Instant) -> Option<(Expired, bool)> {
        let held = self.held(now);
        self.pending_since = None;
        if self.handed_at.is_some() {
            self.handed_at = Some(now);
        }
        (now >= self.total).then_some((self.total_expired, held))
    }

    /// The response goes to its reader, who from now on decides when the body is polled.
    pub(crate) fn handed_up(&mut self) {
        self.handed_at = Some(Instant::now());
    }

    /// Whether the reader left the body unpolled for so long that the total passed meanwhile. A
    /// reader that takes what is there as it comes is not one that holds it.
    fn held(&self, now: Instant) -> bool {
        // A shorter pause between two polls is the scheduler's, not the reader's.
        const PAUSE: Duration = Duration::from_millis(50);
        let idle = |at: Instant| now.saturating_duration_since(at) > PAUSE;
        self.pending_since.is_none() && now >= self.total && self.handed_at.is_some_and(idle)
    }

    /// The head clock, for a head that is ready at `now`.
    pub(crate) fn head_arrived(&self, now: Instant) -> Option<Expired> {
        match self.head {
            Some((at, limit)) if now >= at && at < self.total => {
                Some(Expired { clock: Clock::Head, limit })
            }
            _ => (now >= self.total).then_some(self.total_expired),
        }
    }

    /// Called when the inner body is pending. Says whether the reader let the total pass by not
    /// polling.
    pub(crate) fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<(Passed, bool)> {
        let now = Instant::now();
        let held = self.held(now);
        let since = *self.pending_since.get_or_insert(now);
        let idle_at = deadline(since, self.idle);
        let (mut at, mut passed) = if idle_at < self.total {
            (idle_at, Passed::Clock(Expired { clock: Clock::Idle, limit: self.idle }))
        } else {
            (self.total, Passed::Clock(self.total_expired))
        };
        if let Some(limit) = self.error_body
            && limit < at
        {
            (at, passed) = (limit, Passed::ErrorBody);
        }
        self.timer.poll_until(at, now, cx).map(|()| (passed, held))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn now() -> Instant {
        Instant::now()
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_that_moves_away_is_kept_to_the_moment() {
        let mut timer = LazyTimer::default();
        let start = now();
        // Four times a byte arrives after 600 ms; the fifth never does.
        for n in 0..4_u32 {
            let at = now() + SECOND;
            let byte = tokio::time::sleep(Duration::from_millis(600));
            tokio::select! {
                biased;
                () = byte => {}
                () = poll_fn(|cx| timer.poll_until(at, now(), cx)) => panic!("too early at {n}"),
            }
        }
        let at = now() + SECOND;
        poll_fn(|cx| timer.poll_until(at, now(), cx)).await;
        assert_eq!(start.elapsed(), Duration::from_millis(4 * 600 + 1000));
    }

    #[tokio::test(start_paused = true)]
    async fn a_nearer_deadline_takes_the_timers_place() {
        let mut timer = LazyTimer::default();
        let start = now();
        let far = start + 10 * SECOND;
        poll_fn(|cx| {
            assert!(timer.poll_until(far, now(), cx).is_pending());
            Poll::Ready(())
        })
        .await;
        poll_fn(|cx| timer.poll_until(start + SECOND, now(), cx)).await;
        assert_eq!(start.elapsed(), SECOND);
    }

    /// A timer that was first asked by a task without budget left still wakes it.
    #[tokio::test(start_paused = true)]
    async fn a_task_that_used_up_its_turn_is_woken_all_the_same() {
        let mut timer = LazyTimer::default();
        let start = now();
        let at = start + SECOND;
        let mut first = true;
        let waiting = tokio::spawn(poll_fn(move |cx| {
            while first && tokio::task::coop::has_budget_remaining() {
                let mut turn = std::pin::pin!(tokio::task::coop::consume_budget());
                let _ = turn.as_mut().poll(cx);
            }
            first = false;
            timer.poll_until(at, now(), cx)
        }));
        let done = tokio::time::timeout(5 * SECOND, waiting).await;
        assert!(done.is_ok(), "the timer was never set");
        assert_eq!(start.elapsed(), SECOND);
    }
}
