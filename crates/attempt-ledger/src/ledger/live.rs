use std::{fmt, sync::Arc, time::Duration};

use attempt_ledger_core::{
    BodyEnd, Closed, Content, Decision, Digest, Holder, Label, Limits, Ordinal, RateLimit, Role,
    Staller, Verdict, decide, decide_dropped_before_head,
};
use attempt_ledger_store::{Ack, CloseRight, StoreError};
use attempt_ledger_wire::{Tap, TapOptions, Wire, hints};
use tokio::{runtime::Handle, task::JoinHandle, time::Instant};

use super::{gate::ERROR_BODY_BOUND, keep::Keep, layer::Config, secrets::Secrets, settle::Settle};
use crate::{
    Attempt, Call, CheckInput, Hops, SentHash,
    clock::{Late, Timers},
    score::GradingScope,
};

/// What the score layer hands down in a request: how to grade the content of its attempt.
pub(crate) trait GradeHook: Send + Sync {
    /// Whether content of this verdict, at ordinal one or a later one, is graded.
    fn wants(&self, verdict: Verdict, first: bool) -> bool;

    /// Whether any attempt of this sort may be graded, so that its content is to be kept.
    fn may_want(&self, first: bool) -> bool;

    /// How long a grade may take.
    fn limit(&self) -> Duration;

    /// Starts the grade in a task of its own, which first awaits `ack`.
    fn start(&self, job: GradeJob, ack: Option<Ack<()>>) -> JoinHandle<()>;
}

#[derive(Clone)]
pub(crate) struct Hook(pub(crate) Arc<dyn GradeHook>);

/// A grade to be made.
pub(crate) struct GradeJob {
    pub(crate) attempt: Attempt,
    pub(crate) right: CloseRight,
    pub(crate) content: Content,
    pub(crate) verdict: Verdict,
    pub(crate) answer: Digest,
    pub(crate) runtime: Handle,
    /// How long an acknowledgement is awaited.
    pub(crate) ack_limit: Duration,
}

/// An admitted attempt: counts as unsettled within its call until it is dropped, and gives its
/// place back if it was never asked to open.
pub(crate) struct Unsettled(Option<Call>, bool);

impl Unsettled {
    /// Of an attempt that `call` let through.
    pub(crate) fn admitted(call: Option<Call>) -> Self {
        Unsettled(call, false)
    }

    /// Its opening was asked for.
    pub(crate) fn asked(&mut self) {
        self.1 = true;
    }
}

impl Drop for Unsettled {
    fn drop(&mut self) {
        if let Some(call) = &self.0 {
            call.settled_attempt(self.1);
        }
    }
}

/// An opened attempt that is not closed yet. Dropping it closes it, by what is known by then.
pub(super) struct Live {
    right: Option<CloseRight>,
    attempt: Attempt,
    unsettled: Option<Unsettled>,
    watch: Watch,
    started: Option<Instant>,
    head: Option<Head>,
    first_content: Option<Instant>,
    last_progress: Option<Instant>,
    progress_events: u64,
    bytes: u64,
    gate_overflow: bool,
    /// By its head it was a stream.
    taken_for_stream: bool,
    with_reader: bool,
    stalled: Option<(Staller, Duration)>,
    config: Arc<Config>,
}

/// What is kept of a request while its attempt runs.
pub(super) struct Watch {
    pub(super) hook: Option<Hook>,
    /// For the grade's task.
    pub(super) runtime: Option<Handle>,
    pub(super) hops: Option<Hops>,
    pub(super) sent: Option<SentHash>,
    pub(super) secrets: Secrets,
    /// Whose grade rests on it.
    pub(super) scope: Option<GradingScope>,
}

struct Head {
    at: Instant,
    status: u16,
    tap: Tap,
    upstream_retries: Option<u32>,
    request_id: Option<Label>,
    should_retry: Option<bool>,
    rate_limit: Option<Box<RateLimit>>,
}

impl Live {
    pub(super) fn new(
        right: CloseRight,
        attempt: Attempt,
        unsettled: Unsettled,
        watch: Watch,
        config: Arc<Config>,
    ) -> Self {
        Live {
            right: Some(right),
            attempt,
            unsettled: Some(unsettled),
            watch,
            started: None,
            head: None,
            first_content: None,
            last_progress: None,
            progress_events: 0,
            bytes: 0,
            gate_overflow: false,
            taken_for_stream: false,
            with_reader: false,
            stalled: None,
            config,
        }
    }

    /// The inner service is called now.
    pub(super) fn sent(&mut self, at: Instant) {
        self.started = Some(at);
    }

    /// The response head arrived.
    pub(super) fn head(
        &mut self,
        at: Instant,
        wire: Wire,
        status: u16,
        headers: &http::HeaderMap,
        mut options: TapOptions,
    ) {
        let first = self.is_first();
        let graded = self.watch.hook.as_ref().is_some_and(|h| h.0.may_want(first));
        let kept = self.watch.runtime.is_some() && (graded || self.is_archived());
        options.keep_content = kept || self.is_checked();
        let tap = Tap::new(wire, status, headers, &options);
        self.taken_for_stream = tap.is_stream();
        self.head = Some(Head {
            at,
            status,
            tap,
            upstream_retries: hints::upstream_retries(headers),
            request_id: hints::request_id(headers),
            should_retry: hints::should_retry(headers),
            rate_limit: hints::rate_limit(headers),
        });
    }

    fn is_checked(&self) -> bool {
        !self.config.checks.is_empty() && self.is_subject()
    }

    fn is_subject(&self) -> bool {
        self.attempt.slot().is_some_and(|slot| slot.role == Role::Subject)
    }

    fn is_first(&self) -> bool {
        self.attempt.ordinal().is_none_or(Ordinal::is_first)
    }

    pub(super) fn is_stream(&self) -> bool {
        self.head.as_ref().is_some_and(|h| h.tap.is_stream())
    }

    /// Whether what was taken for a stream by its head is a document after all.
    pub(super) fn is_document_after_all(&self) -> bool {
        self.taken_for_stream && !self.is_stream()
    }

    /// Bytes of the body arrived; tells the clocks what they hold.
    pub(super) fn feed(&mut self, data: &[u8], now: Instant, timers: &mut Timers) {
        self.bytes += data.len() as u64;
        let Some(head) = &mut self.head else { return };
        head.tap.feed(data);
        let events = head.tap.progress_events();
        if events != self.progress_events {
            self.progress_events = events;
            self.last_progress = Some(now);
            timers.progressed(now);
        }
        if self.first_content.is_none() && head.tap.has_first_content() {
            self.first_content = Some(now);
            timers.content_came();
            if let (Some(call), Some(sent)) = (self.attempt.call(), self.started) {
                call.shows_content(sent);
            }
        }
        let facts = head.tap.facts();
        if facts.fault.is_some() || facts.uninspected.is_some() {
            timers.release_decoded();
        }
        // A document shows its content at its end only, and has no events.
        if !head.tap.is_stream() && !data.is_empty() {
            timers.release_decoded();
        }
    }

    /// Whether the body is decoded as events, and whether it can show a first content.
    pub(super) fn decodes(&self) -> (bool, bool) {
        self.head.as_ref().map_or((false, false), |head| {
            let read = is_success(head.status) && head.tap.facts().uninspected.is_none();
            (read && head.tap.is_stream(), read)
        })
    }

    /// Whether a gate that waits for the first content has something to show, or waits in vain.
    pub(super) fn shows_content(&self) -> bool {
        let unread = |h: &Head| h.tap.facts().uninspected.is_some();
        self.first_content.is_some() || self.head.as_ref().is_some_and(unread)
    }

    /// Whether something in the body made it no answer.
    pub(super) fn is_faulty(&self) -> bool {
        self.head.as_ref().is_some_and(|h| h.tap.facts().fault.is_some())
    }

    /// A clock passed: whose doing that was.
    pub(super) fn stalled(&mut self, late: &Late) {
        self.stalled = Some((late.staller, late.held));
    }

    /// Whether the row is to be closed although the body goes on: its done marker came, or enough
    /// of an error body was read.
    pub(super) fn is_decided(&self) -> bool {
        self.head.as_ref().is_some_and(|h| {
            h.tap.terminal() || (!is_success(h.status) && self.bytes >= ERROR_BODY_BOUND)
        })
    }

    /// Whether what has arrived is a complete message, so that a fault after it is the body's and
    /// not the attempt's.
    pub(super) fn is_answer(&self) -> bool {
        self.head.as_ref().is_some_and(|h| !is_success(h.status) || h.tap.facts().stop_seen())
    }

    pub(super) fn overflow(&mut self) {
        self.gate_overflow = true;
    }

    /// The response goes to whoever reads it.
    pub(super) fn handed_up(&mut self) {
        self.with_reader = true;
    }

    /// Closes by how the body ended.
    pub(super) fn close_body(self, end: &BodyEnd) -> Settle {
        self.close(|live| live.decide(end))
    }

    /// Closes an attempt that got no head.
    pub(super) fn close_headless(self, decision: Decision) -> Settle {
        self.close(|_| decision)
    }

    fn close(mut self, decide: impl FnOnce(&mut Live) -> Decision) -> Settle {
        let decision = decide(&mut self);
        self.settle(decision)
    }

    fn settle(&mut self, decision: Decision) -> Settle {
        let (ack, keep, job) = self.submit(decision);
        let (attempt, unsettled) = (self.attempt.clone(), self.unsettled.take());
        Settle::new(attempt, unsettled, ack, keep, job, self.config.clone())
    }

    /// Whether its answer is to be kept: a grader's own calls are not.
    fn is_archived(&self) -> bool {
        self.config.archive.is_some() && self.is_subject()
    }

    fn decide(&mut self, end: &BodyEnd) -> Decision {
        match &mut self.head {
            Some(head) => {
                match end {
                    BodyEnd::Complete => head.tap.finish(),
                    _ => head.tap.cut(),
                }
                decide(head.status, head.tap.facts(), end)
            }
            None => decide_dropped_before_head(self.started.is_some()),
        }
    }

    /// Hands the closing row to the store; nothing here can fail to be queued.
    fn submit(&mut self, decision: Decision) -> (Ack<()>, Option<Keep>, Option<(Hook, GradeJob)>) {
        let Some(mut right) = self.right.take() else {
            return (Ack::ready(Err(StoreError::AlreadyClosed(self.attempt.id()))), None, None);
        };
        let (closed, content) = self.closed(decision);
        self.attempt.set_closed(&closed, self.started);
        let (verdict, answer) = (closed.verdict, closed.answer_sha256);
        let ack = right.close(closed);
        let archive = self.config.archive.as_ref().filter(|_| self.is_archived());
        let keep = match (archive, answer) {
            (Some(archive), Some(answer)) => {
                Keep::new(archive, answer, content.as_ref(), self.watch.runtime.as_ref())
            }
            _ => None,
        };
        let first = self.is_first();
        let job = match (self.watch.hook.take(), self.watch.runtime.take(), content, answer) {
            (Some(hook), Some(runtime), Some(content), Some(answer))
                if verdict.is_content() && hook.0.wants(verdict, first) =>
            {
                let attempt = self.attempt.clone();
                let ack_limit = self.config.ack_limit;
                Some((
                    hook,
                    GradeJob { attempt, right, content, verdict, answer, runtime, ack_limit },
                ))
            }
            _ => None,
        };
        (ack, keep, job)
    }

    fn closed(&mut self, decision: Decision) -> (Closed, Option<Content>) {
        let now = Instant::now();
        let since =
            |start: Instant, at: Instant| Limits::micros(at.saturating_duration_since(start));
        let mut closed = Closed::bare(self.attempt.id(), decision);
        closed.detail.gate_overflow = self.gate_overflow;
        if let Some((staller, held)) = self.stalled {
            closed.detail.stalled = Some(staller);
            closed.detail.reader_us = (!held.is_zero()).then(|| Limits::micros(held));
        }
        closed.detail.code = closed.detail.code.map(|code| self.watch.secrets.mask(code));
        closed.bytes = self.bytes;
        closed.redirects = self.watch.hops.as_ref().map(Hops::list).unwrap_or_default();
        closed.fingerprint = self.watch.sent.as_ref().and_then(SentHash::get);
        if let Some(start) = self.started {
            closed.end_us = since(start, now);
            closed.head_us = self.head.as_ref().map(|h| since(start, h.at));
            closed.first_content_us = self.first_content.map(|at| since(start, at));
            closed.last_progress_us = self.last_progress.map(|at| since(start, at));
        }
        let mut content = None;
        if let Some(head) = &mut self.head {
            let evidence = head.tap.evidence();
            closed.status = Some(head.status);
            closed.finish_reason = evidence.finish_reason.map(|word| self.watch.secrets.mask(word));
            closed.events = evidence.events;
            closed.content_sha256 = evidence.content_sha256;
            closed.answer_sha256 = closed.verdict.is_content().then_some(evidence.answer_sha256);
            closed.content_chars = evidence.content_chars;
            closed.tool_calls = evidence.tool_calls;
            closed.usage = evidence.usage;
            closed.retry_after_ms = head.tap.facts().retry_after_ms;
            closed.detail.should_retry = head.should_retry;
            closed.detail.rate_limit = head.rate_limit.take();
            closed.upstream_retries = head.upstream_retries;
            closed.reasoning_chars = evidence.reasoning_chars;
            // A server may put what it was sent anywhere.
            closed.response_id = evidence.response_id.map(|id| self.watch.secrets.mask(id));
            closed.request_id = head.request_id.take().map(|id| self.watch.secrets.mask(id));
            content = evidence.content;
        }
        if closed.verdict == Verdict::Ok
            && self.is_checked()
            && let (Some(content), Some(slot)) = (&content, self.attempt.slot())
        {
            let input = CheckInput::new(content, slot);
            closed.verdict = self.config.checks.decide(&input, &mut closed.detail);
        }
        (closed, content)
    }
}

pub(super) fn is_success(status: u16) -> bool {
    (200..300).contains(&status)
}

impl Drop for Live {
    fn drop(&mut self) {
        if self.right.is_none() {
            return;
        }
        let holder = if self.with_reader { Holder::Reader } else { Holder::Caller };
        let decision = self.decide(&BodyEnd::Dropped(holder));
        drop(self.settle(decision));
    }
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live").field("attempt", &self.attempt).finish_non_exhaustive()
    }
}
