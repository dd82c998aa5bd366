//! What is published: three numbers that are never combined.
//!
//! First-attempt quality is the mean of what ordinal one of each slot was graded, and nothing else.
//! Beside it stand the availability faults, and the promotions that were refused: content of later
//! attempts that a naive scorecard would have taken. A [`Report`] holds them with
//! everything that is needed to read them: how many, of how many, and how far it may be off.
//!
//! ```
//! use attempt_ledger_core::{Event, Fold, Liveness, Record, Timestamp};
//! use attempt_ledger_report::{Options, Report};
//!
//! let ledger = r#"[
//!   {"kind": "planned", "run": "nightly", "slots": [{"case": "case-7"}, {"case": "case-8"}]},
//!   {"kind": "opened", "attempt": "00000000000000000000000000000001", "run": "nightly",
//!    "case": "case-7", "epoch": 1, "step": 1, "role": "subject", "ordinal": 1, "cause": "initial",
//!    "call": null, "fingerprint": null, "model": "m", "wire": "openai-chat", "effect": "read_only",
//!    "host": null, "carrier": "extension", "limits": {}, "session": "00000000000000000000000000000009"}
//! ]"#;
//! let mut fold = Fold::new();
//! for (seq, event) in (0..).zip(serde_json::from_str::<Vec<Event>>(ledger)?) {
//!     fold.push(&Record { seq, time: Timestamp::default(), event })?;
//! }
//! let folded = fold.finish(Timestamp::default(), &Liveness::All);
//!
//! let report = Report::of(&folded, None, &Options::default())?;
//! assert_eq!((report.quality.n(), report.quality.planned()), (0, 2));
//! assert_eq!(report.quality.estimate(), None, "nothing is graded, so there is no mean");
//! assert!(report.to_text(80, false).contains("no attempt is graded yet"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod citation;
mod numbers;
mod report;
mod running;
mod stats;
mod text;
mod words;

pub use attempt_ledger_core::Escaped;
pub use citation::{BadCitation, CitationFault};
pub use numbers::{
    Availability, Estimate, First, Floor, MeanOf, Naive, OtherRun, Percentiles, Quality,
    RefusedPromotions, UnknownRemote, UpstreamRetries,
};
pub use report::{Options, Report, ReportError};
pub use running::Running;
pub use words::UnknownStopWord;
