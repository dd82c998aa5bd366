use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use attempt_ledger_core::{Clock, Staller};
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
    /// Until the first content, while that is awaited.
    first_content: Option<(Instant, Duration)>,
    /// Between two events, and since when, where the body is decoded as events.
    progress: Option<(Instant, Duration)>,
    progress_limit: Option<Duration>,
    idle: Duration,
    total: Instant,
    total_expired: Expired,
    pending_since: Option<Instant>,
    /// When the reader was last given something; `None` while a gate reads.
    handed_at: Option<Instant>,
    /// How long the reader left the body unpolled, in all.
    held: Duration,
    /// An error body is read until here at most; passing it is no clock of the attempt.
    error_body: Option<Instant>,
    pub(crate) timer: LazyTimer,
}

/// What [`Timers::poll_body`] found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Passed {
    /// A clock of the attempt.
    Clock(Late),
    /// The time in which an error body is read.
    ErrorBody,
}

/// A clock that expired while the body was read, and whose doing that was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Late {
    pub(crate) expired: Expired,
    /// The reader let the total pass by not polling: no deadline of the upstream.
    pub(crate) by_reader: bool,
    /// Who took the time.
    pub(crate) staller: Staller,
    /// How long the reader left the body unpolled.
    pub(crate) held: Duration,
}

impl Timers {
    /// `budget_left` is what is left of the call's budget at `start`.
    pub(crate) fn start(clocks: &Clocks, budget_left: Option<Duration>, start: Instant) -> Self {
        let (limit, clock) = match budget_left {
            Some(left) if left < clocks.total => (left, Clock::Budget),
            _ => (clocks.total, Clock::Total),
        };
        let at = |limit: Option<Duration>| limit.map(|limit| (deadline(start, limit), limit));
        Timers {
            start,
            head: at(clocks.head),
            first_content: at(clocks.first_content),
            progress: None,
            progress_limit: clocks.progress,
            idle: clocks.idle,
            total: deadline(start, limit),
            total_expired: Expired { clock, limit },
            pending_since: None,
            handed_at: None,
            held: Duration::ZERO,
            error_body: None,
            timer: LazyTimer::default(),
        }
    }

    pub(crate) fn started(&self) -> Instant {
        self.start
    }

    /// The head came. Only a body that is decoded as events has progress; only of an answer that is
    /// awaited a first content.
    pub(crate) fn head_came(&mut self, now: Instant, has_events: bool, has_content: bool) {
        if has_events {
            self.progress = self.progress_limit.map(|limit| (now, limit));
        }
        if !has_content {
            self.first_content = None;
        }
    }

    /// An event of the protocol came.
    pub(crate) fn progressed(&mut self, now: Instant) {
        if let Some((since, _)) = &mut self.progress {
            *since = now;
        }
    }

    /// The first content came.
    pub(crate) fn content_came(&mut self) {
        self.first_content = None;
    }

    /// What follows is no longer decoded, so that nothing tells these clocks.
    pub(crate) fn release_decoded(&mut self) {
        self.first_content = None;
        self.progress = None;
    }

    /// The row is closed.
    pub(crate) fn release_recorded(&mut self) {
        self.release_decoded();
        self.error_body = None;
    }

    pub(crate) fn limit_error_body(&mut self, limit: Duration) {
        self.error_body = Some(deadline(Instant::now(), limit));
    }

    pub(crate) fn reads_error_body(&self) -> bool {
        self.error_body.is_some()
    }

    /// The ledger or a grader was awaited for so long, and no clock of an attempt runs meanwhile.
    pub(crate) fn stood_still(&mut self, waited: Duration) {
        self.pending_since = None;
        // Nor is it the reader's time.
        self.handed_at = self.handed_at.map(|_| Instant::now());
        self.total = deadline(self.total, waited);
        self.decoded_stood_still(waited);
    }

    /// The same for the clocks that what is decoded feeds.
    fn decoded_stood_still(&mut self, waited: Duration) {
        if let Some((at, _)) = &mut self.first_content {
            *at = deadline(*at, waited);
        }
        if let Some((since, _)) = &mut self.progress {
            *since = deadline(*since, waited);
        }
    }

    /// Called when the inner future is pending.
    pub(crate) fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Expired> {
        let now = Instant::now();
        let (at, expired) = self.until_head();
        self.timer.poll_until(at, now, cx).map(|()| expired)
    }

    /// The clock that passes first while the head is awaited.
    fn until_head(&self) -> (Instant, Expired) {
        let mut first = (self.total, self.total_expired);
        let clocks = [(self.first_content, Clock::FirstContent), (self.head, Clock::Head)];
        for (limit, clock) in clocks {
            if let Some((at, limit)) = limit
                && at < first.0
            {
                first = (at, Expired { clock, limit });
            }
        }
        first
    }

    /// Called when something arrived: the total is absolute, so that a head or a frame that is ready
    /// after it loses all the same, and so is the time to the first content.
    pub(crate) fn arrived(&mut self, now: Instant) -> Option<Late> {
        let by_reader = self.is_held(now);
        self.reader_is_back(now);
        self.pending_since = None;
        if self.handed_at.is_some() {
            self.handed_at = Some(now);
        }
        let expired = if now >= self.total {
            self.total_expired
        } else {
            let (at, limit) = self.first_content?;
            if now < at {
                return None;
            }
            Expired { clock: Clock::FirstContent, limit }
        };
        Some(self.late(expired, by_reader, now))
    }

    /// The response goes to its reader, who from now on decides when the body is polled.
    pub(crate) fn handed_up(&mut self) {
        self.handed_at = Some(Instant::now());
    }

    /// The time that the reader left the body unpolled is nobody else's: the clocks that what is
    /// decoded feeds stood still meanwhile.
    fn reader_is_back(&mut self, now: Instant) {
        if self.pending_since.is_none()
            && let Some(handed_at) = self.handed_at
        {
            let gap = now.saturating_duration_since(handed_at);
            self.held = self.held.saturating_add(gap);
            self.decoded_stood_still(gap);
        }
    }

    /// Whether the reader left the body unpolled for so long that the total passed meanwhile. A
    /// reader that takes what is there as it comes is not one that holds it.
    fn is_held(&self, now: Instant) -> bool {
        // A shorter pause between two polls is the scheduler's, not the reader's.
        const PAUSE: Duration = Duration::from_millis(50);
        let idle = |at: Instant| now.saturating_duration_since(at) > PAUSE;
        self.pending_since.is_none() && now >= self.total && self.handed_at.is_some_and(idle)
    }

    fn late(&self, expired: Expired, by_reader: bool, now: Instant) -> Late {
        // Of the clocks that count all time, whoever took the greater part of it.
        let all = now.saturating_duration_since(self.start);
        let reader_took_most = self.held > all.saturating_sub(self.held);
        let counts_all = matches!(expired.clock, Clock::Total | Clock::Budget);
        let staller = if by_reader || (counts_all && reader_took_most) {
            Staller::Reader
        } else {
            Staller::Upstream
        };
        Late { expired, by_reader, staller, held: self.held }
    }

    /// The clock that has passed when a head is ready at `now`.
    pub(crate) fn head_arrived(&self, now: Instant) -> Option<Expired> {
        let (at, expired) = self.until_head();
        (now >= at).then_some(expired)
    }

    /// Called when the inner body is pending.
    pub(crate) fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Passed> {
        let now = Instant::now();
        let by_reader = self.is_held(now);
        self.reader_is_back(now);
        let since = *self.pending_since.get_or_insert(now);
        let idle = Some((deadline(since, self.idle), self.idle));
        let progress = self.progress.map(|(since, limit)| (deadline(since, limit), limit));
        // The same moment: what says most of the upstream comes first.
        let mut first = (self.total, Some(self.total_expired));
        for (limit, clock) in [
            (self.first_content, Clock::FirstContent),
            (progress, Clock::Progress),
            (idle, Clock::Idle),
        ] {
            if let Some((at, limit)) = limit
                && at < first.0
            {
                first = (at, Some(Expired { clock, limit }));
            }
        }
        if let Some(limit) = self.error_body
            && limit < first.0
        {
            first = (limit, None);
        }
        let (at, expired) = first;
        self.timer.poll_until(at, now, cx).map(|()| match expired {
            Some(expired) => Passed::Clock(self.late(expired, by_reader, now)),
            None => Passed::ErrorBody,
        })
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
