#![doc = include_str!("../docs/front.md")]

mod attempt;
mod call;
mod carrier;
#[cfg(feature = "client")]
mod client;
mod clock;
mod config;
mod error;
mod evidence;
mod ledger;
mod policy;
mod redirect;
mod score;
mod sync;

pub use attempt::{Attempt, AttemptState};
pub use call::{AttemptSummary, Call, CallFuture, CallLayer, CallService, Cap, Finished};
pub use carrier::{CarryCase, Case, HashWhileSent, RequestBody, SentHash};
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
pub use policy::{LedgerRetry, RetryPause};
pub use redirect::{Hops, RedirectPolicy, redirect_layer};
pub use score::{
    Contains, Exact, GradeInput, Graded, Grader, GraderFn, ScoreLayer, ScoreLayerBuilder,
    ScoreService, normalize,
};

pub use attempt_ledger_core as core;
pub use attempt_ledger_core::{
    CaseId, Content, Effect, GateKind, Gates, GraderInfo, Ordinal, Remote, Role, RunId, Slot,
    Verdict,
};
pub use attempt_ledger_store::{self as store, Ledger};
pub use attempt_ledger_wire::{self as wire, Wire};
