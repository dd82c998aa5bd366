use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::{
    AttemptId, CallId, CaseId, Cause, Closed, Detail, Digest, Effect, Grade, GraderAttempts, Label,
    Limits, Opened, Ordinal, Remote, Role, RunId, SessionId, Slot, Timestamp, Usage, Verdict,
};

/// One attempt, as `log --json` prints it: these names, in this order, absent values `null`.
///
/// What follows `upstream_retries` is not printed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct AttemptRow {
    /// Sequence number of its opening.
    pub seq: u64,
    /// Its grade when it is not ordinal one; never the score.
    pub diagnostic: Option<f64>,
    /// Its fingerprint; the first 16 hexadecimal digits in JSON.
    #[serde(serialize_with = "short")]
    pub fingerprint: Option<Digest>,
    /// The model's name as sent.
    pub model: Option<Arc<str>>,
    /// What a repeat would do.
    pub effect: Effect,
    /// The attempt.
    pub attempt: AttemptId,
    /// Its run; `None` when it is unlinked.
    pub run: Option<RunId>,
    /// Its case; `None` when it is unlinked.
    pub case: Option<CaseId>,
    /// The sample of the case.
    pub epoch: u32,
    /// The model call within the case.
    pub step: u32,
    /// Whose attempt it is.
    pub role: Role,
    /// Its number within the slot; `None` when it is unlinked.
    pub ordinal: Option<Ordinal>,
    /// Why it was made.
    pub cause: Cause,
    /// The call it belongs to.
    pub call: Option<CallId>,
    /// Its verdict; `None` while it is open.
    pub verdict: Option<Verdict>,
    /// Particulars.
    pub detail: Detail,
    /// What is known of the remote side; `None` while it is open.
    pub remote: Option<Remote>,
    /// The response's status.
    pub status: Option<u16>,
    /// The provider's stop word.
    pub finish_reason: Option<Label>,
    /// Ordinal one's grade.
    pub score: Option<f64>,
    /// Whether this is an ordinal one that carries its grade, so that its slot is frozen.
    pub frozen: bool,
    /// SHA-256 of the answer text.
    pub content_sha256: Option<Digest>,
    /// SHA-256 of text, tool calls, refusal and finish reason.
    pub answer_sha256: Option<Digest>,
    /// Unicode code points of the answer text; `None` unless it was closed.
    pub content_chars: Option<u64>,
    /// Distinct tool calls; `None` unless it was closed.
    pub tool_calls: Option<u32>,
    /// Token counts.
    pub usage: Usage,
    /// The wait the server asked for, in milliseconds.
    pub retry_after_ms: Option<u64>,
    /// Progress events of a stream.
    pub events: Option<u64>,
    /// Bytes of the response body; `None` unless it was closed.
    pub bytes: Option<u64>,
    /// Microseconds until the response head.
    pub head_us: Option<u64>,
    /// Microseconds until the first content.
    pub first_content_us: Option<u64>,
    /// Microseconds until the end; `None` unless it was closed.
    pub end_us: Option<u64>,
    /// Remarks.
    pub notes: Vec<String>,
    /// What other graders than the published one gave it.
    pub other_grades: Vec<OtherGrade>,
    /// The wire that decodes the answer.
    pub wire: Label,
    /// Unicode code points of the reasoning shown beside the answer; `None` unless it was closed.
    pub reasoning_chars: Option<u64>,
    /// The provider's id of the response, on wires whose answers may be fetched by it later.
    pub response_id: Option<Label>,
    /// The id that the server, or a gateway, gave the request in a header.
    pub request_id: Option<Label>,
    /// Retries that a gateway in front says it made.
    pub upstream_retries: Option<u32>,

    /// When it was opened, by its writer's clock.
    #[serde(skip)]
    pub time: Timestamp,
    /// SHA-256 of the pinned fixture.
    #[serde(skip)]
    pub fixture: Option<Digest>,
    /// Host and port it was sent to.
    #[serde(skip)]
    pub host: Option<Arc<str>>,
    /// How the case reached the request.
    #[serde(skip)]
    pub carrier: Label,
    /// The clocks it ran under.
    #[serde(skip)]
    pub limits: Limits,
    /// The session that wrote it.
    #[serde(skip)]
    pub session: SessionId,
    /// Microseconds until the last progress event.
    #[serde(skip)]
    pub last_progress_us: Option<u64>,
    /// Hosts and paths of redirects that were followed.
    #[serde(skip)]
    pub redirects: Vec<String>,
    /// Who gave the score or the diagnostic.
    #[serde(skip)]
    pub grade: Option<RowGrade>,
}

/// Who graded an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowGrade {
    /// The grader's name.
    pub grader: String,
    /// The grader's version.
    pub version: String,
    /// What the grade rests on.
    pub grader_attempts: GraderAttempts,
}

/// A grade beside the score or the diagnostic; never either.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct OtherGrade {
    /// The grader's name.
    pub grader: String,
    /// The grader's version.
    pub version: String,
    /// The grade.
    pub score: f64,
    /// What the grade rests on.
    #[serde(skip)]
    pub grader_attempts: GraderAttempts,
}

impl AttemptRow {
    pub(super) fn opened(seq: u64, time: Timestamp, opened: &Opened) -> Self {
        AttemptRow {
            seq,
            diagnostic: None,
            fingerprint: opened.fingerprint,
            model: opened.model.clone(),
            effect: opened.effect,
            attempt: opened.attempt,
            run: opened.run.clone(),
            case: opened.case.clone(),
            epoch: opened.epoch,
            step: opened.step,
            role: opened.role,
            ordinal: opened.ordinal,
            cause: opened.cause,
            call: opened.call,
            verdict: None,
            detail: Detail::default(),
            remote: None,
            status: None,
            finish_reason: None,
            score: None,
            frozen: false,
            content_sha256: None,
            answer_sha256: None,
            content_chars: None,
            tool_calls: None,
            usage: Usage::default(),
            retry_after_ms: None,
            events: None,
            bytes: None,
            head_us: None,
            first_content_us: None,
            end_us: None,
            notes: Vec::new(),
            other_grades: Vec::new(),
            wire: opened.wire.clone(),
            reasoning_chars: None,
            response_id: None,
            request_id: None,
            upstream_retries: None,
            time,
            fixture: opened.fixture,
            host: opened.host.clone(),
            carrier: opened.carrier.clone(),
            limits: opened.limits,
            session: opened.session,
            last_progress_us: None,
            redirects: Vec::new(),
            grade: None,
        }
    }

    pub(super) fn close(&mut self, closed: &Closed) {
        self.verdict = Some(closed.verdict);
        self.detail = closed.detail.clone();
        self.remote = Some(closed.remote);
        self.status = closed.status;
        self.finish_reason = closed.finish_reason.clone();
        self.content_sha256 = closed.content_sha256;
        self.answer_sha256 = closed.answer_sha256;
        self.content_chars = Some(closed.content_chars);
        self.tool_calls = Some(closed.tool_calls);
        self.usage = closed.usage;
        self.retry_after_ms = closed.retry_after_ms;
        self.events = closed.events;
        self.bytes = Some(closed.bytes);
        self.head_us = closed.head_us;
        self.first_content_us = closed.first_content_us;
        self.end_us = Some(closed.end_us);
        self.last_progress_us = closed.last_progress_us;
        self.redirects = closed.redirects.clone();
        self.upstream_retries = closed.upstream_retries;
        self.reasoning_chars = Some(closed.reasoning_chars);
        self.response_id = closed.response_id.clone();
        self.request_id = closed.request_id.clone();
        self.fingerprint = closed.fingerprint.or(self.fingerprint);
    }

    pub(super) fn graded(&mut self, grade: &Grade, is_score: bool) {
        if is_score {
            self.score = Some(grade.score);
            self.frozen = true;
        } else {
            self.diagnostic = Some(grade.score);
        }
        self.grade = Some(RowGrade {
            grader: grade.grader.clone(),
            version: grade.grader_version.clone(),
            grader_attempts: grade.grader_attempts.clone(),
        });
    }

    pub(super) fn also_graded(&mut self, grade: &Grade) {
        self.other_grades.push(OtherGrade {
            grader: grade.grader.clone(),
            version: grade.grader_version.clone(),
            score: grade.score,
            grader_attempts: grade.grader_attempts.clone(),
        });
    }

    /// The slot it counts in; `None` when it is unlinked.
    pub fn slot(&self) -> Option<Slot> {
        Some(Slot {
            run: self.run.clone()?,
            case: self.case.clone()?,
            epoch: self.epoch,
            step: self.step,
            role: self.role,
        })
    }

    /// Its grade, score or diagnostic.
    pub fn any_grade(&self) -> Option<f64> {
        self.score.or(self.diagnostic)
    }
}

fn short<S: Serializer>(digest: &Option<Digest>, s: S) -> Result<S::Ok, S::Error> {
    match digest {
        Some(digest) => s.serialize_str(&digest.short()),
        None => s.serialize_none(),
    }
}
