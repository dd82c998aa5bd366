use std::time::Duration;

use attempt_ledger_core::{GateKind, Gates};

/// What a [`GateKind::Whole`] gate holds back at most.
pub(crate) const WHOLE_BOUND: usize = 8 << 20;

/// What a [`GateKind::FirstContent`] gate holds back at most.
pub(crate) const FIRST_CONTENT_BOUND: usize = 256 << 10;

/// What is read of the body of a non-2xx response before its row is closed, at most.
pub(crate) const ERROR_BODY_BOUND: u64 = 64 << 10;

/// How long the body of a non-2xx response is read before its row is closed, at most.
pub(crate) const ERROR_BODY_TIME: Duration = Duration::from_secs(5);

/// Plain responses are held whole, streams until their first content.
pub(crate) const DEFAULT_GATES: Gates =
    Gates { plain: GateKind::Whole, stream: GateKind::FirstContent };
