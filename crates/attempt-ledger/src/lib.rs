#![doc = include_str!("../docs/front.md")]

mod attempt;
mod call;
mod carrier;
mod check;
#[cfg(feature = "client")]
mod client;
mod clock;
mod config;
mod error;
mod evidence;
mod ledger;
mod link;
mod pace;
mod policy;
mod redirect;
mod rule;
mod score;
mod sync;

pub use attempt::{Attempt, AttemptState};
pub use call::{AttemptSummary, Call, CallFuture, CallLayer, CallService, Cap, Finished};
pub use carrier::{
    CarryCase, Case, HashWhileSent, LedgerRequest, RequestBody, RequestView, SentHash,
};
#[cfg(feature = "regex")]
pub use check::MatchesRegex;
#[cfg(feature = "schema")]
pub use check::MatchesSchema;
pub use check::{Check, CheckFn, CheckInput, Checked, ContainsText, HasField, IsJson, NonEmpty};
#[cfg(all(feature = "client", feature = "http2"))]
pub use client::Http2;
#[cfg(feature = "client")]
pub use client::{
    ClientBuilder, ClientError, DnsError, HttpClient, Resolver, Resolving, Stack, Transport, client,
};
pub use config::{Clocks, OnLedgerError};
pub use error::{BoxError, Error, ErrorKind};
pub use evidence::{TransportEvidence, classify};
pub use ledger::{LedgerLayer, LedgerService, ResponseBody, ResponseFuture};
pub use pace::Pacer;
pub use policy::{LedgerRetry, RetryPause};
pub use redirect::{Hops, RedirectPolicy, redirect_layer};
pub use rule::RuleError;
#[cfg(feature = "command")]
pub use score::CommandGrader;
#[cfg(feature = "regex")]
pub use score::RegexGrader;
#[cfg(feature = "schema")]
pub use score::SchemaGrader;
pub use score::{
    BoxGrader, ChatTemplate, Contains, Exact, GradeInput, Graded, Grader, GraderFn, ModelGrader,
    NumberGrader, SameName, ScoreLayer, ScoreLayerBuilder, ScoreService, normalize,
};
pub use score::{LateGradeError, grade_late};

pub use attempt_ledger_core as core;
pub use attempt_ledger_core::{
    CaseId, Cause, CheckInfo, Content, Effect, GateKind, Gates, GraderInfo, Ordinal, Remote, Role,
    RunId, Slot, Verdict,
};
pub use attempt_ledger_store::{self as store, Ledger};
pub use attempt_ledger_wire::{self as wire, Wire};
