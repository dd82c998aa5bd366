use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    AttemptId, CallId, CaseId, Cause, Detail, Digest, Effect, Label, Limits, Ordinal, Remote, Role,
    RunId, SessionId, Slot, Timestamp, Verdict,
};

/// One line of a ledger: an event with its place and moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Its number in the ledger, from 0, without gaps.
    pub seq: u64,
    /// When it was recorded, by the writer's wall clock. Order is `seq`, never this.
    pub time: Timestamp,
    /// What happened.
    pub event: Event,
}

/// What a ledger records. Immutable once written; rows, scores and reports are folds over these.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
#[allow(
    clippy::large_enum_variant,
    reason = "one is made and moved a few times per request; a box would be an allocation"
)]
pub enum Event {
    /// A run began, or went on with other settings.
    Run(RunEvent),
    /// Slots that are to be graded; coverage counts against them.
    Planned(Planned),
    /// A process opened the ledger for writing.
    Session(Session),
    /// An attempt was opened, before a byte of it was sent.
    Opened(Opened),
    /// An attempt ended.
    Closed(Closed),
    /// Ordinal one's grade: its slot is frozen.
    Scored(Grade),
    /// A later ordinal's grade; never the score.
    Diagnostic(Grade),
    /// What another grader than the published one gave an attempt of any ordinal: never the score.
    AlsoGraded(Grade),
    /// A grade that was not accepted.
    GradeRefused(GradeRefused),
    /// A person's remark on an attempt; never in a number.
    Note(Note),
    /// Attempts that could not be recorded.
    Unrecorded(Unrecorded),
    /// The file store's own: a segment begins.
    Segment(Segment),
    /// The file store's own: a segment ends.
    Sealed(Sealed),
}

impl Event {
    /// The word in JSON's `kind`.
    pub fn kind(&self) -> &'static str {
        match self {
            Event::Run(_) => "run",
            Event::Planned(_) => "planned",
            Event::Session(_) => "session",
            Event::Opened(_) => "opened",
            Event::Closed(_) => "closed",
            Event::Scored(_) => "scored",
            Event::Diagnostic(_) => "diagnostic",
            Event::AlsoGraded(_) => "also_graded",
            Event::GradeRefused(_) => "grade_refused",
            Event::Note(_) => "note",
            Event::Unrecorded(_) => "unrecorded",
            Event::Segment(_) => "segment",
            Event::Sealed(_) => "sealed",
        }
    }

    /// Whether its acknowledgement waits for the store's durability, and not only for the write.
    pub fn waits_for_durability(&self) -> bool {
        !matches!(self, Event::Closed(_) | Event::Note(_) | Event::GradeRefused(_))
    }
}

/// What an acknowledgement of `opened` and `scored` stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Durability {
    /// Synced to disk: survives a power cut.
    #[default]
    Synced,
    /// Written to the operating system: survives the process.
    Written,
    /// Kept in memory: survives nothing.
    Memory,
}

impl Durability {
    /// The word in JSON and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Durability::Synced => "synced",
            Durability::Written => "written",
            Durability::Memory => "memory",
        }
    }
}

/// How much of a response is held back before the retry policy sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum GateKind {
    /// All of it, up to a bound: the policy sees the verdict and the grade.
    Whole,
    /// Until the first text, tool call or refusal, or a fault, up to a bound: the policy sees the
    /// verdict of what failed before it answered.
    FirstContent,
    /// Only the head: the policy sees the status.
    Head,
}

/// The gates of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gates {
    /// For responses that are no stream.
    pub plain: GateKind,
    /// For streams.
    pub stream: GateKind,
}

/// A run and every setting that shapes its numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunEvent {
    /// The run.
    pub run: RunId,
    /// Version of the tool that wrote it.
    pub tool_version: String,
    /// What acknowledgements stand for.
    pub durability: Durability,
    /// The clocks of each attempt.
    pub limits: Limits,
    /// The gates.
    pub gates: Gates,
    /// Which verdicts are graded; content verdicts only.
    pub graded: Vec<Verdict>,
    /// When attempts are repeated.
    pub retry: RetrySettings,
    /// The graders and their ranges; the first is the published one.
    #[serde(default)]
    pub graders: Vec<GraderInfo>,
    /// The checks that make content `off_target`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<CheckInfo>,
    /// What was called, where one run calls one thing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<RunTarget>,
}

/// When a run repeats attempts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RetrySettings {
    /// Attempts of one call, at most.
    pub attempts: u32,
    /// Wall time of one call, in microseconds.
    pub budget_us: u64,
    /// Content verdicts that are repeated too.
    #[serde(default)]
    pub retry_on: Vec<Verdict>,
    /// A grade below this is repeated too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grade_below: Option<f64>,
    /// The policy's name, where it is not the project's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// What a repeat would do, where the run says so for all its requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<Effect>,
}

/// A grader, its version, and the range of its grades.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GraderInfo {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The lowest grade it gives.
    pub low: f64,
    /// The highest grade it gives.
    pub high: f64,
}

/// A check of content, and its version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckInfo {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// What a run calls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunTarget {
    /// Scheme, host, port and path, without userinfo or query.
    pub url: String,
    /// The model's name as sent.
    pub model: String,
    /// Digest of the parameters that every case shares.
    pub params: Digest,
    /// Whether answers are asked for as streams.
    pub stream: bool,
}

/// A batch of slots that are to be graded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Planned {
    /// Their run.
    pub run: RunId,
    /// The slots, of role `subject`.
    pub slots: Vec<PlannedSlot>,
}

/// One slot of a [`Planned`] batch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PlannedSlot {
    /// The case.
    pub case: CaseId,
    /// Its sample, from 1.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub epoch: u32,
    /// The model call within it, from 1.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub step: u32,
}

fn one() -> u32 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_one(n: &u32) -> bool {
    *n == 1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// One opening of a ledger for writing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// The session.
    pub session: SessionId,
    /// The process id.
    pub pid: u32,
    /// The machine's name.
    pub host: String,
    /// Version of the tool that opened it.
    pub tool_version: String,
}

/// An attempt, before a byte of it is sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Opened {
    /// The attempt.
    pub attempt: AttemptId,
    /// Its run; `None` only for an unlinked attempt.
    pub run: Option<RunId>,
    /// Its case; `None` only for an unlinked attempt.
    pub case: Option<CaseId>,
    /// The sample of the case.
    pub epoch: u32,
    /// The model call within the case.
    pub step: u32,
    /// Whose attempt it is.
    pub role: Role,
    /// Its number within the slot; `None` only for an unlinked attempt.
    pub ordinal: Option<Ordinal>,
    /// Why it was made.
    pub cause: Cause,
    /// The call it belongs to, when one was above it.
    pub call: Option<CallId>,
    /// SHA-256 of the pinned fixture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixture: Option<Digest>,
    /// Fingerprint of what is sent; of a streamed request body it comes with `closed`.
    pub fingerprint: Option<Digest>,
    /// The model's name as sent.
    pub model: Option<Arc<str>>,
    /// The wire that decodes the answer.
    pub wire: Label,
    /// What a repeat would do.
    pub effect: Effect,
    /// Host and port it is sent to.
    pub host: Option<Arc<str>>,
    /// How the case reached the request.
    pub carrier: Label,
    /// The clocks it runs under.
    pub limits: Limits,
    /// The session that wrote it.
    pub session: SessionId,
}

impl Opened {
    /// The slot it counts in; `None` for an unlinked attempt.
    pub fn slot(&self) -> Option<Slot> {
        Some(Slot {
            run: self.run.clone()?,
            case: self.case.clone()?,
            epoch: self.epoch,
            step: self.step,
            role: self.role,
        })
    }
}

/// Token counts as the wire states them: raw, and not comparable between wires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Tokens of the prompt.
    pub input: Option<u64>,
    /// Tokens of the answer.
    pub output: Option<u64>,
}

/// How an attempt ended. Durations are microseconds since the inner service was called.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Closed {
    /// The attempt.
    pub attempt: AttemptId,
    /// Its verdict.
    pub verdict: Verdict,
    /// Particulars.
    #[serde(default)]
    pub detail: Detail,
    /// What is known of the remote side.
    pub remote: Remote,
    /// The response's status.
    pub status: Option<u16>,
    /// The provider's stop word.
    pub finish_reason: Option<Label>,
    /// Until the response head.
    pub head_us: Option<u64>,
    /// Until the first content.
    pub first_content_us: Option<u64>,
    /// Until the last progress event.
    pub last_progress_us: Option<u64>,
    /// Until the end.
    pub end_us: u64,
    /// Bytes of the response body as sent.
    pub bytes: u64,
    /// Progress events of a body that was decoded as a stream.
    pub events: Option<u64>,
    /// SHA-256 of the answer text alone; `None` without text.
    pub content_sha256: Option<Digest>,
    /// SHA-256 of text, tool calls, refusal and finish reason; never `None` for content.
    pub answer_sha256: Option<Digest>,
    /// Unicode code points of the answer text.
    pub content_chars: u64,
    /// Distinct tool calls.
    pub tool_calls: u32,
    /// Token counts.
    pub usage: Usage,
    /// The wait the server asked for, in milliseconds.
    pub retry_after_ms: Option<u64>,
    /// Fingerprint of a request body that was streamed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Digest>,
    /// Hosts and paths of redirects followed within the attempt, without queries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redirects: Vec<String>,
    /// Retries that a gateway in front says it made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream_retries: Option<u32>,
    /// Unicode code points of the reasoning that was shown beside the answer text.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reasoning_chars: u64,
    /// The provider's id of the response, on wires whose answers may be fetched by it later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_id: Option<Label>,
    /// The id that the server, or a gateway, gave the request in a header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<Label>,
}

impl Closed {
    /// A row of `verdict` with nothing else known: no status, no bytes, no content.
    pub fn bare(attempt: AttemptId, decision: crate::Decision) -> Self {
        Closed {
            attempt,
            verdict: decision.verdict,
            detail: decision.detail,
            remote: decision.remote,
            status: None,
            finish_reason: None,
            head_us: None,
            first_content_us: None,
            last_progress_us: None,
            end_us: 0,
            bytes: 0,
            events: None,
            content_sha256: None,
            answer_sha256: None,
            content_chars: 0,
            tool_calls: 0,
            usage: Usage::default(),
            retry_after_ms: None,
            fingerprint: None,
            redirects: Vec::new(),
            upstream_retries: None,
            reasoning_chars: 0,
            response_id: None,
            request_id: None,
        }
    }
}

/// The grader attempts that a grade rests on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GraderAttempts {
    /// None: the grader called no model.
    #[default]
    None,
    /// An outside command that may have called one.
    Unknown,
    /// These, of role `grader`.
    Cited(Vec<AttemptId>),
}

/// A grade of one attempt's content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Grade {
    /// The attempt.
    pub attempt: AttemptId,
    /// The grade: finite, within the grader's range.
    pub score: f64,
    /// The grader's name.
    pub grader: String,
    /// The grader's version.
    pub grader_version: String,
    /// What was graded; refused when it is not the row's.
    pub answer_sha256: Digest,
    /// What the grade rests on.
    #[serde(default)]
    pub grader_attempts: GraderAttempts,
}

/// Why a grade was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RefusedWhy {
    /// The attempt is not in this ledger.
    UnknownAttempt,
    /// The attempt is not closed yet.
    NotClosed,
    /// The attempt is not content.
    NotContent,
    /// The attempt's ordinal is 2 or later: a promotion.
    LaterOrdinal,
    /// The attempt is ordinal one, whose grade is its score, not a diagnostic.
    FirstOrdinal,
    /// The slot is frozen already.
    Frozen,
    /// What was graded is not the row's answer.
    OtherAnswer,
    /// The grade is not a finite number.
    NotFinite,
    /// The grade is outside the grader's range.
    OutOfRange,
    /// The attempt's role is `grader`.
    GraderRole,
    /// The attempt is of no case.
    Unlinked,
    /// The grader is the published one of the run, whose grades are scores and diagnostics.
    PublishedGrader,
    /// The grader has graded the attempt already.
    GradedAlready,
}

impl RefusedWhy {
    /// The word in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            RefusedWhy::UnknownAttempt => "unknown_attempt",
            RefusedWhy::NotClosed => "not_closed",
            RefusedWhy::NotContent => "not_content",
            RefusedWhy::LaterOrdinal => "later_ordinal",
            RefusedWhy::FirstOrdinal => "first_ordinal",
            RefusedWhy::Frozen => "frozen",
            RefusedWhy::OtherAnswer => "other_answer",
            RefusedWhy::NotFinite => "not_finite",
            RefusedWhy::OutOfRange => "out_of_range",
            RefusedWhy::GraderRole => "grader_role",
            RefusedWhy::Unlinked => "unlinked",
            RefusedWhy::PublishedGrader => "published_grader",
            RefusedWhy::GradedAlready => "graded_already",
        }
    }
}

/// A grade that was not accepted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GradeRefused {
    /// The attempt it was meant for.
    pub attempt: AttemptId,
    /// Why.
    pub why: RefusedWhy,
    /// The grade, unless it was not finite.
    pub score: Option<f64>,
    /// The grader's name.
    pub grader: String,
}

/// A person's remark.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The attempt it is on.
    pub attempt: AttemptId,
    /// The remark.
    pub text: String,
}

/// Attempts that could not be recorded and went on by the user's choice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unrecorded {
    /// Their run, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// How many.
    pub count: u64,
}

/// The first row of a segment file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// Format version of the rows that follow.
    pub version: u32,
    /// The ledger's id.
    pub ledger: String,
    /// The segment before, by its first sequence number; `None` for the first.
    pub previous: Option<u64>,
    /// The valid length of the segment before, in bytes.
    #[serde(default)]
    pub previous_len: u64,
    /// Bytes after that length that are not rows and are ignored.
    #[serde(default)]
    pub ignored_len: u64,
    /// SHA-256 of the ignored bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignored_sha256: Option<Digest>,
    /// The chain's hash before this row.
    pub previous_hash: Digest,
    /// Where the ledger's fingerprints are keyed: a check value by which its key is known again, and
    /// which tells nothing of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_check: Option<Digest>,
}

/// The last row of a finished segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    /// The next segment, by its first sequence number.
    pub next: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a format learned later is left out where there is none, and not asked of older rows.
    #[test]
    fn what_a_response_did_not_tell_is_no_field_of_its_row() {
        let decision = crate::decide_dropped_before_head(false);
        let bare = Closed::bare(AttemptId::from_u128(1), decision);
        let json = serde_json::to_value(&bare).expect("json");
        let later = ["reasoning_chars", "response_id", "request_id", "upstream_retries"];
        assert!(later.iter().all(|name| json.get(name).is_none()), "{json}");
        assert_eq!(serde_json::from_value::<Closed>(json).expect("an older row"), bare);
        let told = Closed {
            reasoning_chars: 7,
            response_id: Some(Label::new("resp_1")),
            request_id: Some(Label::new("req_1")),
            upstream_retries: Some(0),
            ..bare
        };
        let json = serde_json::to_value(&told).expect("json");
        assert_eq!((&json["reasoning_chars"], &json["response_id"]), (&7.into(), &"resp_1".into()));
        assert_eq!((&json["request_id"], &json["upstream_retries"]), (&"req_1".into(), &0.into()));
        assert_eq!(serde_json::from_value::<Closed>(json).expect("a row"), told);
    }

    #[test]
    fn kind_is_the_tag() {
        let note = Event::Note(Note { attempt: AttemptId::from_u128(1), text: "x\ny".into() });
        let json = serde_json::to_string(&note).expect("json");
        assert_eq!(
            json,
            r#"{"kind":"note","attempt":"00000000000000000000000000000001","text":"x\ny"}"#
        );
        assert_eq!(serde_json::from_str::<Event>(&json).expect("event"), note);
        assert!(!note.waits_for_durability());
    }
}
