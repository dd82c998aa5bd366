//! What is true about an attempt, and nothing else: no I/O, no async, no clock.
//!
//! An *attempt* is one HTTP request beneath a retry layer. This crate holds the words for it
//! ([`Slot`], [`Ordinal`], [`Cause`], [`Verdict`], [`Remote`], [`Effect`]), the [`Event`]s a ledger
//! is made of, the one function that turns what was observed into a verdict ([`decide()`]), the
//! fold from events to rows, the request fingerprint, and the retry decision table.
//!
//! ```
//! use attempt_ledger_core::{decide, BodyEnd, Facts, Remote, Stop, Verdict};
//!
//! // A stream that ended cleanly after half an answer is no answer.
//! let mut facts = Facts { streamed: true, text_chars: 12, has_text: true, ..Facts::default() };
//! let cut = decide(200, &facts, &BodyEnd::Complete);
//! assert_eq!((cut.verdict, cut.remote), (Verdict::Unterminated, Remote::Unknown));
//!
//! // With its stop reason it is.
//! facts.stop = Some(Stop::Plain);
//! assert_eq!(decide(200, &facts, &BodyEnd::Complete).verdict, Verdict::Ok);
//! ```

mod answer;
mod content;
mod decide;
mod digest;
mod effect;
mod escape;
mod event;
mod fingerprint;
mod fold;
mod id;
mod json;
mod limits;
mod rate_limit;
mod slot;
mod table;
mod time;
mod verdict;

pub use answer::{answer_of_parts, answer_sha256};
pub use content::{Content, ToolCall};
pub use decide::{
    BodyEnd, Decision, Facts, Fault, InBandError, Stop, decide, decide_at_head, decide_clock,
    decide_dropped_before_head, decide_transport,
};
pub use digest::{Digest, Label};
pub use effect::Effect;
pub use escape::Escaped;
pub use event::{
    CheckInfo, Closed, Durability, Event, GateKind, Gates, Grade, GradeRefused, GraderAttempts,
    GraderInfo, Note, Opened, Planned, PlannedSlot, Record, RefusedWhy, RetrySettings, RunEvent,
    RunTarget, Sealed, Segment, Session, Unrecorded, Usage,
};
pub use fingerprint::{
    COUNTED_HEADERS, FingerprintBuilder, RequestParts, TRANSPORT_SWITCHES, UNCOUNTED_QUERY,
    compat_fingerprint, fingerprint,
};
pub use fold::{
    AttemptRow, Fold, FoldError, FoldFault, Folded, LOST_AFTER_TOTAL_US, Liveness, OtherGrade,
    RowGrade, RunSeen, SlotState, SlotView,
};
pub use id::{AttemptId, CallId, CaseId, IdError, RunId, SessionId};
pub use json::{JsonError, canonical_json};
pub use limits::Limits;
pub use rate_limit::{Quota, RateLimit};
pub use slot::{Cause, Ordinal, Role, Slot};
pub use table::{
    About, Action, HINT_CAP, HintIs, LONG_BASE, LONG_CAP, Outcome, Pause, RULES, Rule, SHORT_BASE,
    SHORT_CAP, Then, decide_retry, render_table,
};
pub use time::Timestamp;
pub use verdict::{
    AfterStop, Clock, Detail, ErrorCause, Holder, Phase, Remote, Series, Staller, TransportKind,
    Uninspected, Verdict,
};

/// Version of the event format that this crate writes; readers accept every version up to it.
pub const FORMAT_VERSION: u32 = 1;
