//! When a host asked to wait, calls wait before they spend an ordinal.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use attempt_ledger_core::{ErrorCause, LONG_BASE, LONG_CAP, SHORT_BASE, Verdict};
use tokio::time::Instant;

use crate::{
    attempt::Outcome,
    clock::LazyTimer,
    config::deadline,
    sync::{Mutex, lock},
};

/// Paces the calls to each host, by what the host's answers say: shared by a
/// [`CallLayer`](crate::CallLayer) and the retry policy beneath it.
///
/// A host that throttles is left alone for as long as it asked, and longer each time that it throttles
/// again at once: 1 s, 2 s, 4 s up to 60 s, or 5 s, 10 s, 20 s up to 60 s where it asks for nothing.
/// Meanwhile no new call is let through, so that no first attempt is spent: the calls that were
/// throttled find out, by their retries, when the host answers again. After that half as many calls
/// are let through at once as before, and not faster than 0.7 of the rate at which the host last
/// answered; both grow while it answers. These are the terms on which senders share a network: half
/// the window on a loss (TCP), 0.7 of the rate (CUBIC), a slow way up.
///
/// A host that has done nothing but throttle for longer than a call's budget is not waited for any
/// more: the call ends at once, unless it is the one that tries whether the host answers again.
///
/// Until a host throttles for the first time nothing is held back, unless
/// [`slow_start`](Self::slow_start) says so; and again once a host was left alone for ten minutes after
/// its last throttle. Calls of graders are not counted, and wait for a host's own hint only: the call
/// that they grade waits for them.
#[derive(Clone)]
pub struct Pacer(Arc<Inner>);

struct Inner {
    first_window: f64,
    hosts: Mutex<HashMap<Box<str>, Arc<Host>>>,
}

impl Default for Pacer {
    fn default() -> Self {
        Self::new()
    }
}

/// What a throttle told is of no use after that.
const SETTLED: Duration = Duration::from_secs(600);

/// Hosts that are remembered before those with nothing to remember are let go of.
const REMEMBERED: usize = 1024;

impl Pacer {
    /// Holds nothing back before the first throttle.
    pub fn new() -> Self {
        Self::with_window(f64::INFINITY)
    }

    /// Starts with so many calls at once to a host, and half as many more with each round of answers: a
    /// burst of first attempts would meet a limit that nobody has seen yet. 0 counts as 1.
    pub fn slow_start(at_once: u32) -> Self {
        Self::with_window(f64::from(at_once.max(1)))
    }

    fn with_window(first_window: f64) -> Self {
        Pacer(Arc::new(Inner { first_window, hosts: Mutex::default() }))
    }

    pub(crate) fn host(&self, name: &str) -> Arc<Host> {
        let mut hosts = lock(&self.0.hosts);
        if let Some(host) = hosts.get(name) {
            return host.clone();
        }
        if hosts.len() >= REMEMBERED {
            let now = Instant::now();
            hosts.retain(|_, host| Arc::strong_count(host) > 1 || !lock(&host.0).is_idle(now));
        }
        let host = Arc::new(Host(Mutex::new(State::new(self.0.first_window))));
        // More hosts than that, all of them throttling: the newest are not remembered.
        if hosts.len() < 2 * REMEMBERED {
            hosts.insert(name.into(), host.clone());
        }
        host
    }
}

impl fmt::Debug for Pacer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pacer").field("hosts", &lock(&self.0.hosts).len()).finish_non_exhaustive()
    }
}

/// What is known of one host.
pub(crate) struct Host(Mutex<State>);

struct State {
    first_window: f64,
    /// Calls that were let through and have not ended.
    in_flight: u32,
    /// So many at once.
    window: f64,
    /// Below it the window grows by half with each window of answers, above it by two.
    threshold: f64,
    /// How long calls that were answered had a place, in seconds, averaged over the last few.
    latency: Option<f64>,
    /// What the host itself asked for.
    hint_until: Option<Instant>,
    /// No new call before it.
    not_before: Option<Instant>,
    last_throttle: Option<Instant>,
    /// Throttles without an answer between them, and since when.
    streak: u32,
    streak_since: Option<Instant>,
    /// Calls a second at the last throttle, once the host answered before one.
    rate: Option<f64>,
    next_start: Option<Instant>,
    answered: Answered,
    /// Calls that were throttled and may retry.
    retrying: u32,
    /// A new call tries whether the host answers again, since nobody retries.
    probing: bool,
    queue: BTreeMap<u64, Option<Waker>>,
    next_ticket: u64,
}

/// What a call has to wait for.
enum Blocked {
    Until(Instant),
    /// Some other call's answer or end.
    Event,
}

impl State {
    fn new(window: f64) -> Self {
        State {
            first_window: window,
            in_flight: 0,
            window,
            threshold: f64::INFINITY,
            latency: None,
            hint_until: None,
            not_before: None,
            last_throttle: None,
            streak: 0,
            streak_since: None,
            rate: None,
            next_start: None,
            answered: Answered::default(),
            retrying: 0,
            probing: false,
            queue: BTreeMap::new(),
            next_ticket: 0,
        }
    }

    /// Nobody is under way to it or waits for it.
    fn is_free(&self) -> bool {
        self.in_flight == 0 && self.queue.is_empty()
    }

    /// Whether nothing is lost when it is let go of.
    fn is_idle(&self, now: Instant) -> bool {
        self.is_free() && (self.last_throttle.is_none() || self.is_settled(now))
    }

    /// What a throttle told is forgotten once the host was left alone for long after it.
    fn forget(&mut self, now: Instant) {
        if self.is_free() && self.is_settled(now) {
            *self = State::new(self.first_window);
        }
    }

    /// Whether its last throttle, and what that made it wait, are long over.
    fn is_settled(&self, now: Instant) -> bool {
        let latest = self.last_throttle.max(self.not_before);
        latest.is_some_and(|at| now > deadline(at, SETTLED))
    }

    fn hint_left(&self, now: Instant) -> Option<Instant> {
        self.hint_until.filter(|at| *at > now)
    }

    fn blocked(&self, now: Instant) -> Option<Blocked> {
        if let Some(at) = self.not_before.filter(|at| *at > now) {
            return Some(Blocked::Until(at));
        }
        if self.streak > 0 && (self.retrying > 0 || self.probing) {
            return Some(Blocked::Event);
        }
        if f64::from(self.in_flight) >= self.window {
            return Some(Blocked::Event);
        }
        self.next_start.filter(|at| *at > now).map(Blocked::Until)
    }

    /// Between two starts, while anything is bounded. A window is spread over the time that an answer
    /// takes, so that its calls do not meet a limit all at once. The rate at the last throttle holds for
    /// ten seconds, and then grows faster and faster, to double within another fifteen.
    fn spacing(&self, now: Instant) -> Option<Duration> {
        let spread = self.latency.map_or(0.0, |latency| 0.8 * latency / self.window);
        let by_rate = self.rate.zip(self.last_throttle).map_or(0.0, |(rate, since)| {
            let past = now.saturating_duration_since(since).as_secs_f64() - 10.0;
            let growth = if past > 0.0 { (0.03 * past + 0.001 * past * past).exp() } else { 1.0 };
            1.0 / (rate * growth)
        });
        let spacing = f64::max(spread, by_rate);
        (spacing > 0.001).then(|| Duration::from_secs_f64(spacing.min(60.0)))
    }

    fn admit(&mut self, now: Instant) -> bool {
        self.in_flight = self.in_flight.saturating_add(1);
        self.next_start = self
            .spacing(now)
            .map(|spacing| deadline(self.next_start.unwrap_or(now).max(now), spacing));
        let probes = self.streak > 0;
        self.probing |= probes;
        probes
    }

    fn throttled(&mut self, sent: Instant, hint: Option<Duration>, now: Instant) {
        if self.is_settled(now) {
            self.answers();
        }
        // What was sent before the last throttle was seen tells nothing new.
        if self.last_throttle.is_none_or(|last| sent > last) {
            self.streak = self.streak.saturating_add(1);
            self.streak_since.get_or_insert(now);
            let at_once = self.window.min(f64::from(self.in_flight.max(1)));
            self.window = (at_once / 2.0).max(1.0);
            self.threshold = self.window;
            if let Some(rate) = self.answered.per_second(now) {
                self.rate = Some((0.7 * rate).max(0.1));
            }
        }
        self.last_throttle = Some(now);
        let doubled = |base: Duration, cap: Duration| {
            base.saturating_mul(1 << self.streak.saturating_sub(1).min(16)).min(cap)
        };
        let wait = match hint {
            Some(hint) => hint.max(doubled(2 * SHORT_BASE, LONG_CAP)),
            None => doubled(LONG_BASE, LONG_CAP),
        };
        let later = |before: Option<Instant>, wait| {
            let at = deadline(now, wait);
            Some(before.map_or(at, |before| before.max(at)))
        };
        self.not_before = later(self.not_before, wait);
        if let Some(hint) = hint {
            self.hint_until = later(self.hint_until, hint);
        }
    }

    /// The host does not do nothing but throttle.
    fn answers(&mut self) {
        self.streak = 0;
        self.streak_since = None;
    }

    /// `took` of its time it had a place.
    fn answered(&mut self, took: Duration, now: Instant) {
        self.answers();
        self.answered.count(now);
        let took = took.as_secs_f64();
        self.latency = Some(self.latency.map_or(took, |before| 0.8 * before + 0.2 * took));
        self.window += if self.window < self.threshold { 0.5 } else { 2.0 / self.window };
    }

    /// Whoever waits is to look again, the longest first. All of them, since one that was dropped or is
    /// not polled must not hold up the others.
    fn take_wakers(&mut self) -> Vec<Waker> {
        self.queue.values_mut().filter_map(Option::take).collect()
    }
}

/// Answers of the last seconds, for the rate at which the host gives them.
#[derive(Default)]
struct Answered {
    since: Option<Instant>,
    /// By the second since then: which, and how many.
    seconds: [(u64, u32); SECONDS],
}

const SECONDS: usize = 10;

/// Fewer answers than that are a chance, and would bind for many seconds.
const ENOUGH: u32 = 5;

impl Answered {
    fn count(&mut self, now: Instant) {
        let since = *self.since.get_or_insert(now);
        let second = now.saturating_duration_since(since).as_secs();
        let place = usize::try_from(second).unwrap_or(0) % SECONDS;
        if let Some(slot) = self.seconds.get_mut(place) {
            if slot.0 == second { slot.1 += 1 } else { *slot = (second, 1) }
        }
    }

    /// `None` with too few answers in the last ten seconds to tell a rate from.
    fn per_second(&self, now: Instant) -> Option<f64> {
        let elapsed = now.saturating_duration_since(self.since?);
        let oldest = (elapsed.as_secs() + 1).saturating_sub(SECONDS as u64);
        let recent = self.seconds.iter().filter(|(second, _)| *second >= oldest);
        let count: u32 = recent.map(|(_, n)| *n).sum();
        let span = elapsed.as_secs_f64().clamp(1.0, SECONDS as f64);
        (count >= ENOUGH).then(|| f64::from(count) / span)
    }
}

impl Host {
    /// A seat at once, or a place in line.
    pub(crate) fn enter(self: &Arc<Self>, is_grader: bool) -> Result<Seat, Waiting> {
        let now = Instant::now();
        let mut state = lock(&self.0);
        state.forget(now);
        if is_grader {
            if state.hint_left(now).is_none() {
                return Ok(Seat::new(self, false, false));
            }
        } else if state.queue.is_empty() && state.blocked(now).is_none() {
            let probes = state.admit(now);
            return Ok(Seat::new(self, true, probes));
        }
        let ticket = (!is_grader).then(|| {
            let ticket = state.next_ticket;
            state.next_ticket += 1;
            state.queue.insert(ticket, None);
            ticket
        });
        drop(state);
        Err(Waiting { host: self.clone(), ticket, timer: LazyTimer::default() })
    }
}

/// A call that waits to be let through.
pub(crate) struct Waiting {
    host: Arc<Host>,
    /// None for a grader's, which is not counted.
    ticket: Option<u64>,
    timer: LazyTimer,
}

impl Waiting {
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Seat> {
        loop {
            let now = Instant::now();
            let mut state = lock(&self.host.0);
            let blocked = match self.ticket {
                None => state.hint_left(now).map(Blocked::Until),
                Some(_) => state.blocked(now),
            };
            match blocked {
                None => {
                    let Some(ticket) = self.ticket.take() else {
                        return Poll::Ready(Seat::new(&self.host, false, false));
                    };
                    state.queue.remove(&ticket);
                    let probes = state.admit(now);
                    return Poll::Ready(Seat::new(&self.host, true, probes));
                }
                Some(blocked) => {
                    // Also while a moment is awaited: the host may open before.
                    if let Some(place) = self.ticket.and_then(|t| state.queue.get_mut(&t)) {
                        *place = Some(cx.waker().clone());
                    }
                    drop(state);
                    match blocked {
                        Blocked::Event => return Poll::Pending,
                        Blocked::Until(at) if self.timer.poll_until(at, now, cx).is_pending() => {
                            return Poll::Pending;
                        }
                        Blocked::Until(_) => {}
                    }
                }
            }
        }
    }

    /// How long the host itself asked to wait from now on.
    pub(crate) fn hint(&self) -> Duration {
        self.host.hint()
    }

    /// For how long the host was seen to do nothing but throttle; zero where this call may try again.
    pub(crate) fn throttled_for(&self) -> Duration {
        let state = lock(&self.host.0);
        match (state.streak_since, state.last_throttle) {
            (Some(since), Some(last)) if state.blocked(Instant::now()).is_some() => {
                last.saturating_duration_since(since)
            }
            _ => Duration::ZERO,
        }
    }
}

impl Host {
    fn hint(&self) -> Duration {
        let now = Instant::now();
        lock(&self.0).hint_left(now).map_or(Duration::ZERO, |at| at.saturating_duration_since(now))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        lock(&self.host.0).queue.remove(&ticket);
    }
}

/// A call that was let through, until it ends.
pub(crate) struct Seat {
    host: Arc<Host>,
    counted: bool,
    probes: AtomicBool,
    retrying: AtomicBool,
    left: OnceLock<Instant>,
}

impl Seat {
    fn new(host: &Arc<Host>, counted: bool, probes: bool) -> Self {
        Seat {
            host: host.clone(),
            counted,
            probes: AtomicBool::new(probes),
            retrying: AtomicBool::new(false),
            left: OnceLock::new(),
        }
    }

    /// An attempt that was sent at `sent` ended.
    pub(crate) fn ended(&self, sent: Instant, outcome: &Outcome) {
        let throttled = outcome.verdict == Verdict::Throttled
            || (outcome.verdict == Verdict::ProviderError
                && matches!(
                    outcome.detail.cause,
                    Some(ErrorCause::Throttled | ErrorCause::Overloaded)
                ));
        // Of these nothing is known of the host.
        let silent = matches!(
            outcome.verdict,
            Verdict::Transport | Verdict::Deadline | Verdict::Shed | Verdict::Abandoned
        );
        let now = Instant::now();
        let wakers = {
            let mut state = lock(&self.host.0);
            if self.probes.swap(false, Ordering::Relaxed) {
                state.probing = false;
            }
            if throttled {
                state.throttled(sent, outcome.retry_after, now);
                if self.counted
                    && self.left.get().is_none()
                    && !self.retrying.swap(true, Ordering::Relaxed)
                {
                    state.retrying = state.retrying.saturating_add(1);
                }
            } else {
                if !silent {
                    // A stream is read after its call has left.
                    let until = self.left.get().copied().unwrap_or(now);
                    state.answered(until.saturating_duration_since(sent), now);
                }
                self.no_longer_retries(&mut state);
            }
            state.take_wakers()
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// The first content of what was sent at `sent` came: whatever becomes of it, its host does not
    /// throttle now.
    pub(crate) fn shows_content(&self, sent: Instant) {
        let wakers = {
            let mut state = lock(&self.host.0);
            if state.streak == 0 || state.last_throttle.is_some_and(|last| sent <= last) {
                return;
            }
            state.answers();
            if self.probes.swap(false, Ordering::Relaxed) {
                state.probing = false;
            }
            self.no_longer_retries(&mut state);
            state.take_wakers()
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    fn no_longer_retries(&self, state: &mut State) {
        if self.retrying.swap(false, Ordering::Relaxed) {
            state.retrying = state.retrying.saturating_sub(1);
        }
    }

    /// How long the host asked to be left alone. A retry finds out whether it answers again, so that it
    /// does not wait for what the pacer adds.
    pub(crate) fn wait(&self) -> Duration {
        self.host.hint()
    }

    /// The call is over. Does nothing a second time.
    pub(crate) fn leave(&self) {
        let wakers = {
            let mut state = lock(&self.host.0);
            if self.left.set(Instant::now()).is_err() {
                return;
            }
            if self.probes.swap(false, Ordering::Relaxed) {
                state.probing = false;
            }
            self.no_longer_retries(&mut state);
            if self.counted {
                state.in_flight = state.in_flight.saturating_sub(1);
            }
            state.take_wakers()
        };
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.leave();
    }
}
