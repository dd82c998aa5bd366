use crate::{
    AfterStop, Clock, Detail, ErrorCause, Holder, Label, Limits, Phase, Remote, Staller,
    TransportKind, Uninspected, Verdict,
};

/// What a provider's stop word means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stop {
    /// Finished by itself; the content decides between `ok` and `empty`.
    Plain,
    /// A token cap was hit.
    Cap,
    /// A policy stopped it.
    Policy,
    /// The provider failed.
    Failure,
}

/// An error that a provider reported inside a response body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InBandError {
    /// Its code or type.
    pub code: Option<Label>,
    /// What that means, where the code is a known one.
    pub cause: Option<ErrorCause>,
}

/// The first thing in a body that makes it no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The provider reported an error.
    Error(InBandError),
    /// A complete event, line, frame or document did not parse.
    Malformed,
}

/// What a wire's decoder found in a response, as far as it has arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Decoded as a stream of events (by the response's media type), so that a stop reason is due.
    pub streamed: bool,
    /// The meaning of the last stop word.
    pub stop: Option<Stop>,
    /// The wire's done marker came.
    pub done: bool,
    /// The first fault in the body. For a status of 400 and up: the error body's error.
    pub fault: Option<Fault>,
    /// An error that came after a stop reason and usable content; only noted.
    pub late_error: Option<InBandError>,
    /// A refusal part or field came.
    pub refusal: bool,
    /// Unicode code points of answer text.
    pub text_chars: u64,
    /// The text holds something other than white space.
    pub has_text: bool,
    /// Distinct tool calls.
    pub tool_calls: u32,
    /// A router reports that its upstream failed, beside a benign stop word.
    pub native_failure: bool,
    /// A background run was accepted and is not finished.
    pub pending: bool,
    /// The body could not be read.
    pub uninspected: Option<Uninspected>,
    /// What this wire says a status means where it differs from the common rule.
    pub status_says: Option<Verdict>,
    /// The wait the server asked for.
    pub retry_after_ms: Option<u64>,
    /// The answer goes on in another call.
    pub continues: bool,
    /// The stop word is not a known one.
    pub unknown_stop: bool,
    /// Request and response differ in whether the answer is a stream.
    pub other_media: bool,
    /// How many choices were seen.
    pub choices: u32,
}

impl Facts {
    /// Whether what came is an answer that someone can use.
    pub fn usable(&self) -> bool {
        self.has_text || self.tool_calls > 0 || self.refusal
    }

    /// Whether the answer is complete, so that what follows cannot change its verdict.
    pub fn stop_seen(&self) -> bool {
        self.stop.is_some()
    }

    fn policy(&self) -> bool {
        matches!(&self.fault, Some(Fault::Error(e)) if e.cause == Some(ErrorCause::Policy))
    }
}

/// How reading a response body came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodyEnd {
    /// The body ended as its framing says, or the wire's done marker came.
    Complete,
    /// The transfer broke.
    Broken(TransportKind),
    /// A local clock expired.
    Clock(Clock, std::time::Duration),
    /// The total clock, or the call's budget, passed while the reader held the body unpolled.
    Held(Clock, std::time::Duration),
    /// The body was dropped by its reader (or the call by its caller, within a gate).
    Dropped(Holder),
}

/// A verdict, what is known of the remote side, and the particulars.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The verdict.
    pub verdict: Verdict,
    /// The remote side.
    pub remote: Remote,
    /// Particulars.
    pub detail: Detail,
}

/// Decides an attempt whose response head arrived.
///
/// The one place where a response becomes a verdict. The first rule that applies decides: the
/// status; an error or an unreadable event in the body, whichever came first; a transfer that
/// broke, a clock or a drop before the stop reason; policy; failure; the cap; a missing stop
/// reason; and last the content itself.
pub fn decide(status: u16, facts: &Facts, end: &BodyEnd) -> Decision {
    let mut detail = Detail {
        uninspected: facts.uninspected,
        continues: facts.continues,
        unknown_stop: facts.unknown_stop,
        other_media: facts.other_media,
        choices: (facts.choices > 1).then_some(facts.choices),
        ..Detail::default()
    };
    let error = match &facts.fault {
        Some(Fault::Error(e)) => Some(e),
        _ => facts.late_error.as_ref(),
    };
    if let Some(e) = error {
        detail.code = e.code.clone();
        detail.cause = e.cause;
    }
    let (verdict, remote) = match decide_at_head(status, facts) {
        Some(by_status) => {
            note_end(&mut detail, end);
            by_status
        }
        None => decide_body(facts, end, &mut detail),
    };
    Decision { verdict, remote, detail }
}

/// What the status alone decides; `None` for a 2xx, whose body decides.
pub fn decide_at_head(status: u16, facts: &Facts) -> Option<(Verdict, Remote)> {
    use Remote::{Answered, Unknown};
    let by_number = match status {
        200..=299 => return None,
        // An interim or unknown class is no answer of any wire.
        0..=199 => return Some((Verdict::Malformed, Unknown)),
        300..=399 => return Some((Verdict::Redirected, Answered)),
        _ if facts.policy() => Verdict::Refused,
        429 | 503 | 529 => Verdict::Throttled,
        402 if facts.retry_after_ms.is_some() => Verdict::Throttled,
        408 | 424 | 500.. => Verdict::ServerError,
        _ => Verdict::Rejected,
    };
    let verdict = match facts.status_says {
        Some(says) if by_number != Verdict::Refused => says,
        _ => by_number,
    };
    // A gateway's own timeout or failure says nothing of what its upstream did.
    let unknown =
        verdict == Verdict::ServerError && matches!(status, 408 | 500 | 502 | 504 | 520..=528);
    Some((verdict, if unknown { Unknown } else { Answered }))
}

fn decide_body(facts: &Facts, end: &BodyEnd, detail: &mut Detail) -> (Verdict, Remote) {
    use Remote::{Answered, Unknown};
    match &facts.fault {
        Some(Fault::Error(_)) => {
            note_end(detail, end);
            let verdict = if facts.policy() { Verdict::Refused } else { Verdict::ProviderError };
            return (verdict, Answered);
        }
        Some(Fault::Malformed) => {
            note_end(detail, end);
            return (Verdict::Malformed, Unknown);
        }
        None => {}
    }
    if facts.late_error.is_some() {
        detail.after_stop = Some(AfterStop::Error);
    }
    let complete = facts.stop_seen() || facts.done;
    match end {
        BodyEnd::Complete => {}
        _ if complete => note_end(detail, end),
        BodyEnd::Broken(kind) => {
            detail.kind = Some(*kind);
            detail.phase = Some(Phase::Body);
            return match kind {
                // A local clock too, though not one of the ledger's.
                TransportKind::Elapsed => (Verdict::Deadline, Unknown),
                TransportKind::EnhanceYourCalm => (Verdict::Throttled, Answered),
                _ => (Verdict::Transport, Unknown),
            };
        }
        BodyEnd::Clock(clock, limit) => {
            detail.clock = Some(*clock);
            detail.limit_us = Some(Limits::micros(*limit));
            detail.phase = Some(Phase::Body);
            return (Verdict::Deadline, Unknown);
        }
        BodyEnd::Held(clock, limit) => {
            detail.clock = Some(*clock);
            detail.limit_us = Some(Limits::micros(*limit));
            detail.by = Some(Holder::Reader);
            detail.phase = Some(Phase::Body);
            return (Verdict::Abandoned, Unknown);
        }
        BodyEnd::Dropped(by) => {
            detail.by = Some(*by);
            detail.phase = Some(Phase::Body);
            return (Verdict::Abandoned, Unknown);
        }
    }
    if facts.uninspected.is_some() {
        return (Verdict::Uninspected, Answered);
    }
    if facts.pending {
        return (Verdict::Pending, Answered);
    }
    if facts.refusal {
        return (Verdict::Refused, Answered);
    }
    match facts.stop {
        Some(Stop::Policy) => return (Verdict::Refused, Answered),
        Some(Stop::Failure) => return (Verdict::ProviderError, Answered),
        Some(Stop::Cap) => return (Verdict::Truncated, Answered),
        None if facts.streamed => return (Verdict::Unterminated, Unknown),
        Some(Stop::Plain) | None => {}
    }
    if facts.usable() {
        (Verdict::Ok, Answered)
    } else if facts.native_failure {
        (Verdict::ProviderError, Answered)
    } else {
        (Verdict::Empty, Answered)
    }
}

/// Notes an end that no longer changes the verdict.
fn note_end(detail: &mut Detail, end: &BodyEnd) {
    let what = match end {
        BodyEnd::Complete => return,
        BodyEnd::Broken(kind) => {
            detail.kind = Some(*kind);
            AfterStop::Cut
        }
        BodyEnd::Clock(clock, limit) => {
            detail.clock = Some(*clock);
            detail.limit_us = Some(Limits::micros(*limit));
            AfterStop::Clock
        }
        BodyEnd::Held(clock, limit) => {
            detail.clock = Some(*clock);
            detail.limit_us = Some(Limits::micros(*limit));
            AfterStop::Clock
        }
        BodyEnd::Dropped(by) => {
            detail.by = Some(*by);
            AfterStop::Dropped
        }
    };
    detail.after_stop = Some(what);
}

/// Decides an attempt that failed before its response head.
pub fn decide_transport(kind: TransportKind, phase: Phase, remote: Remote) -> Decision {
    let verdict = match kind {
        TransportKind::Limit => Verdict::Shed,
        // A local clock too, though not one of the ledger's.
        TransportKind::Elapsed => Verdict::Deadline,
        TransportKind::EnhanceYourCalm => Verdict::Throttled,
        TransportKind::Redirect => Verdict::Redirected,
        _ => Verdict::Transport,
    };
    let detail = Detail { kind: Some(kind), phase: Some(phase), ..Detail::default() };
    Decision { verdict, remote, detail }
}

/// Decides an attempt whose clock expired before its response head.
pub fn decide_clock(clock: Clock, limit: std::time::Duration) -> Decision {
    let detail = Detail {
        clock: Some(clock),
        limit_us: Some(Limits::micros(limit)),
        // Nobody reads before the head: all the time is the other side's.
        stalled: Some(Staller::Upstream),
        phase: Some(Phase::Head),
        ..Detail::default()
    };
    Decision { verdict: Verdict::Deadline, remote: Remote::Unknown, detail }
}

/// Decides an attempt that was dropped before its response head; `sent` says whether the request
/// had been handed to the inner service.
pub fn decide_dropped_before_head(sent: bool) -> Decision {
    let (phase, remote) =
        if sent { (Phase::Head, Remote::Unknown) } else { (Phase::Open, Remote::NotReached) };
    let detail = Detail { by: Some(Holder::Caller), phase: Some(phase), ..Detail::default() };
    Decision { verdict: Verdict::Abandoned, remote, detail }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn verdict(status: u16, facts: &Facts, end: &BodyEnd) -> (Verdict, Remote) {
        let d = decide(status, facts, end);
        (d.verdict, d.remote)
    }

    fn answer() -> Facts {
        Facts {
            streamed: true,
            stop: Some(Stop::Plain),
            has_text: true,
            text_chars: 2,
            ..Facts::default()
        }
    }

    #[test]
    fn the_status_decides_whatever_happens_to_the_body() {
        let broken = BodyEnd::Broken(TransportKind::Cut);
        for (status, want) in [
            (301, (Verdict::Redirected, Remote::Answered)),
            (400, (Verdict::Rejected, Remote::Answered)),
            (402, (Verdict::Rejected, Remote::Answered)),
            (408, (Verdict::ServerError, Remote::Unknown)),
            (424, (Verdict::ServerError, Remote::Answered)),
            (429, (Verdict::Throttled, Remote::Answered)),
            (500, (Verdict::ServerError, Remote::Unknown)),
            (501, (Verdict::ServerError, Remote::Answered)),
            (502, (Verdict::ServerError, Remote::Unknown)),
            (503, (Verdict::Throttled, Remote::Answered)),
            (504, (Verdict::ServerError, Remote::Unknown)),
            (524, (Verdict::ServerError, Remote::Unknown)),
            (529, (Verdict::Throttled, Remote::Answered)),
        ] {
            assert_eq!(verdict(status, &Facts::default(), &BodyEnd::Complete), want, "{status}");
            assert_eq!(verdict(status, &answer(), &broken), want, "{status} cut");
        }
        let paid_later = Facts { retry_after_ms: Some(8000), ..Facts::default() };
        assert_eq!(verdict(402, &paid_later, &BodyEnd::Complete).0, Verdict::Throttled);
        let policy = InBandError { code: None, cause: Some(ErrorCause::Policy) };
        let policy = Facts { fault: Some(Fault::Error(policy)), ..Facts::default() };
        assert_eq!(verdict(400, &policy, &BodyEnd::Complete).0, Verdict::Refused);
        let wire = Facts { status_says: Some(Verdict::Throttled), ..Facts::default() };
        assert_eq!(verdict(498, &wire, &BodyEnd::Complete).0, Verdict::Throttled);
    }

    /// A local clock that expires is never a failure of the model.
    #[test]
    fn a_clock_before_the_stop_reason_is_a_deadline_and_after_it_a_note() {
        let end = BodyEnd::Clock(Clock::Idle, Duration::from_secs(5));
        let half = Facts { stop: None, ..answer() };
        assert_eq!(verdict(200, &half, &end), (Verdict::Deadline, Remote::Unknown));
        let whole = decide(200, &answer(), &end);
        assert_eq!((whole.verdict, whole.remote), (Verdict::Ok, Remote::Answered));
        assert_eq!(
            (whole.detail.after_stop, whole.detail.clock),
            (Some(AfterStop::Clock), Some(Clock::Idle))
        );
        let held = decide(200, &half, &BodyEnd::Held(Clock::Total, Duration::from_secs(9)));
        assert_eq!((held.verdict, held.detail.by), (Verdict::Abandoned, Some(Holder::Reader)));
    }

    /// Local limits and clocks, and what the server asked for, are told from a broken transfer.
    #[test]
    fn the_kind_of_failure_decides_its_verdict() {
        use TransportKind as K;
        for &kind in K::ALL {
            let (head, body) = match kind {
                K::Limit => (Verdict::Shed, Verdict::Transport),
                K::Elapsed => (Verdict::Deadline, Verdict::Deadline),
                K::EnhanceYourCalm => (Verdict::Throttled, Verdict::Throttled),
                K::Redirect => (Verdict::Redirected, Verdict::Transport),
                _ => (Verdict::Transport, Verdict::Transport),
            };
            let decision = decide_transport(kind, Phase::Head, Remote::Unknown);
            assert_eq!((decision.verdict, decision.detail.kind), (head, Some(kind)), "{kind}");
            let half = Facts { stop: None, ..answer() };
            let answered = kind == K::EnhanceYourCalm;
            let remote = if answered { Remote::Answered } else { Remote::Unknown };
            let decision = verdict(200, &half, &BodyEnd::Broken(kind));
            assert_eq!(decision, (body, remote), "{kind}");
            assert_eq!(verdict(200, &answer(), &BodyEnd::Broken(kind)).0, Verdict::Ok, "{kind}");
        }
    }

    #[test]
    fn a_drop_is_decided_by_decisive_evidence_else_abandoned() {
        let end = BodyEnd::Dropped(Holder::Reader);
        assert_eq!(verdict(200, &answer(), &end).0, Verdict::Ok);
        let half = Facts { stop: None, ..answer() };
        assert_eq!(verdict(200, &half, &end), (Verdict::Abandoned, Remote::Unknown));
        let bad = Facts { fault: Some(Fault::Malformed), ..half.clone() };
        assert_eq!(verdict(200, &bad, &end).0, Verdict::Malformed);
        let error = Facts { fault: Some(Fault::Error(InBandError::default())), ..half };
        assert_eq!(verdict(200, &error, &end), (Verdict::ProviderError, Remote::Answered));
        assert_eq!(verdict(500, &Facts::default(), &end).0, Verdict::ServerError);
    }

    #[test]
    fn content_is_judged_in_the_documented_order() {
        let done = &BodyEnd::Complete;
        assert_eq!(verdict(200, &Facts { refusal: true, ..answer() }, done).0, Verdict::Refused);
        for (stop, want) in [
            (Some(Stop::Policy), Verdict::Refused),
            (Some(Stop::Failure), Verdict::ProviderError),
            (Some(Stop::Cap), Verdict::Truncated),
            (None, Verdict::Unterminated),
            (Some(Stop::Plain), Verdict::Ok),
        ] {
            assert_eq!(verdict(200, &Facts { stop, ..answer() }, done).0, want);
        }
        let blank = Facts { has_text: false, ..answer() };
        assert_eq!(verdict(200, &blank, done).0, Verdict::Empty);
        assert_eq!(verdict(200, &Facts { tool_calls: 1, ..blank.clone() }, done).0, Verdict::Ok);
        assert_eq!(
            verdict(200, &Facts { native_failure: true, ..blank }, done).0,
            Verdict::ProviderError
        );
        let document = Facts { streamed: false, stop: None, ..answer() };
        assert_eq!(verdict(200, &document, done).0, Verdict::Ok);
        // The done marker alone completes the transfer but is no stop reason.
        let marker = Facts { stop: None, done: true, ..answer() };
        let cut = BodyEnd::Broken(TransportKind::Cut);
        assert_eq!(verdict(200, &marker, &cut).0, Verdict::Unterminated);
        assert_eq!(verdict(200, &Facts { stop: None, ..answer() }, &cut).0, Verdict::Transport);
    }

    fn error(code: &str, cause: Option<ErrorCause>) -> InBandError {
        InBandError { code: Some(Label::new(code)), cause }
    }

    fn policy() -> Facts {
        let error = error("content_filter", Some(ErrorCause::Policy));
        Facts { fault: Some(Fault::Error(error)), ..Facts::default() }
    }

    #[test]
    fn an_interim_or_unknown_class_is_no_answer() {
        for status in [0, 100, 101, 199] {
            let decision = verdict(status, &answer(), &BodyEnd::Complete);
            assert_eq!(decision, (Verdict::Malformed, Remote::Unknown), "{status}");
        }
    }

    #[test]
    fn a_policys_refusal_is_one_wherever_it_is_said() {
        let refused = (Verdict::Refused, Remote::Answered);
        for status in [200, 400, 403, 429, 500] {
            let facts = Facts { streamed: true, ..policy() };
            assert_eq!(verdict(status, &facts, &BodyEnd::Complete), refused, "{status}");
            let cut = BodyEnd::Broken(TransportKind::Cut);
            assert_eq!(verdict(status, &facts, &cut), refused, "{status} cut");
        }
    }

    #[test]
    fn what_a_wire_says_of_a_status_holds_but_against_a_policys_refusal() {
        let says = |says, facts| Facts { status_says: Some(says), ..facts };
        for (status, wire, want) in [
            (498, Verdict::Throttled, (Verdict::Throttled, Remote::Answered)),
            (503, Verdict::ServerError, (Verdict::ServerError, Remote::Answered)),
            (500, Verdict::Throttled, (Verdict::Throttled, Remote::Answered)),
            (400, Verdict::ServerError, (Verdict::ServerError, Remote::Answered)),
        ] {
            let facts = says(wire, Facts::default());
            assert_eq!(verdict(status, &facts, &BodyEnd::Complete), want, "{status}");
            let facts = says(wire, policy());
            let refused = (Verdict::Refused, Remote::Answered);
            assert_eq!(verdict(status, &facts, &BodyEnd::Complete), refused, "{status} by policy");
        }
    }

    #[test]
    fn what_was_not_read_or_is_not_finished_is_not_judged_by_its_content() {
        let done = &BodyEnd::Complete;
        for stop in [None, Some(Stop::Plain), Some(Stop::Cap), Some(Stop::Policy)] {
            for refusal in [false, true] {
                let facts = Facts { stop, refusal, ..answer() };
                let pending = Facts { pending: true, ..facts };
                let decision = verdict(200, &pending, done);
                assert_eq!(decision, (Verdict::Pending, Remote::Answered), "{stop:?}");
                let unread =
                    Facts { uninspected: Some(Uninspected::ALL[0]), pending: true, ..pending };
                let decision = verdict(200, &unread, done);
                assert_eq!(decision, (Verdict::Uninspected, Remote::Answered), "{stop:?}");
            }
        }
    }

    /// It may still be writing: nothing said that it was done.
    #[test]
    fn of_an_unterminated_answer_the_remote_side_is_unknown() {
        let half = Facts { stop: None, ..answer() };
        let unterminated = (Verdict::Unterminated, Remote::Unknown);
        assert_eq!(verdict(200, &half, &BodyEnd::Complete), unterminated);
        assert_eq!(verdict(200, &Facts { done: true, ..half }, &BodyEnd::Complete), unterminated);
    }

    #[test]
    fn the_detail_names_the_error_and_more_choices_than_one() {
        let throttled = error("rate_limit", Some(ErrorCause::Throttled));
        let fault = Facts { fault: Some(Fault::Error(throttled.clone())), ..Facts::default() };
        for status in [200, 429] {
            let detail = decide(status, &fault, &BodyEnd::Complete).detail;
            assert_eq!((detail.code, detail.cause), (throttled.code.clone(), throttled.cause));
            assert_eq!(detail.after_stop, None);
        }
        let late = Facts { late_error: Some(throttled.clone()), ..answer() };
        let decision = decide(200, &late, &BodyEnd::Complete);
        assert_eq!(decision.verdict, Verdict::Ok);
        assert_eq!(
            (decision.detail.code, decision.detail.cause, decision.detail.after_stop),
            (throttled.code, throttled.cause, Some(AfterStop::Error))
        );
        for (choices, told) in [(0, None), (1, None), (2, Some(2))] {
            let facts = Facts { choices, ..answer() };
            assert_eq!(decide(200, &facts, &BodyEnd::Complete).detail.choices, told);
        }
    }

    /// The verdict stands already; how the body ended is told beside it.
    #[test]
    fn an_end_that_decides_nothing_is_noted() {
        let limit = Duration::from_secs(9);
        let noted = |after, detail| Detail { after_stop: Some(after), ..detail };
        let clock =
            |clock| Detail { clock: Some(clock), limit_us: Some(9_000_000), ..Detail::default() };
        let kind = Detail { kind: Some(TransportKind::Cut), ..Detail::default() };
        let by = Detail { by: Some(Holder::Reader), ..Detail::default() };
        for (end, want) in [
            (BodyEnd::Complete, Detail::default()),
            (BodyEnd::Broken(TransportKind::Cut), noted(AfterStop::Cut, kind)),
            (BodyEnd::Clock(Clock::Idle, limit), noted(AfterStop::Clock, clock(Clock::Idle))),
            (BodyEnd::Held(Clock::Budget, limit), noted(AfterStop::Clock, clock(Clock::Budget))),
            (BodyEnd::Dropped(Holder::Reader), noted(AfterStop::Dropped, by)),
        ] {
            let fault = |fault| Facts { streamed: true, fault: Some(fault), ..Facts::default() };
            for (status, facts, verdict) in [
                (200, answer(), Verdict::Ok),
                (200, fault(Fault::Malformed), Verdict::Malformed),
                (200, fault(Fault::Error(InBandError::default())), Verdict::ProviderError),
                (500, Facts::default(), Verdict::ServerError),
            ] {
                let decision = decide(status, &facts, &end);
                assert_eq!((decision.verdict, decision.detail), (verdict, want.clone()), "{end:?}");
            }
        }
    }
}
