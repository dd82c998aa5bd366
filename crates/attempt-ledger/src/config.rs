use std::time::Duration;

use attempt_ledger_core::Limits;
use tokio::time::Instant;

/// The clocks of one attempt. They start when the inner service is called, and none of them runs
/// while the ledger or a grader is awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Clocks {
    /// Until the response head is complete; `None`: only `total` limits it.
    pub head: Option<Duration>,
    /// From the request to the first content of a stream: text, a tool call or a refusal. Of a
    /// document, to the first byte of its body. `None`: only `total` limits it.
    pub first_content: Option<Duration>,
    /// Without a byte of the response body while it is polled. Keep-alives count as bytes.
    pub idle: Duration,
    /// Without an event of the protocol while a stream is polled: keep-alives, comments and pings
    /// are none. `None`: off.
    pub progress: Option<Duration>,
    /// From the request to the end of the answer, whatever arrives meanwhile.
    pub total: Duration,
}

impl Default for Clocks {
    /// Head and first content within the total, 60 seconds idle, no progress clock, 600 seconds in
    /// total.
    fn default() -> Self {
        Clocks {
            head: None,
            first_content: None,
            idle: Duration::from_secs(60),
            progress: None,
            total: Duration::from_secs(600),
        }
    }
}

impl Clocks {
    /// The same with another head clock.
    #[must_use]
    pub fn head(self, head: Duration) -> Self {
        Clocks { head: Some(head), ..self }
    }

    /// The same with a clock until the first content.
    #[must_use]
    pub fn first_content(self, first_content: Duration) -> Self {
        Clocks { first_content: Some(first_content), ..self }
    }

    /// The same with a progress clock.
    #[must_use]
    pub fn progress(self, progress: Duration) -> Self {
        Clocks { progress: Some(progress), ..self }
    }

    /// The same with another idle clock.
    #[must_use]
    pub fn idle(self, idle: Duration) -> Self {
        Clocks { idle, ..self }
    }

    /// The same with another total clock.
    #[must_use]
    pub fn total(self, total: Duration) -> Self {
        Clocks { total, ..self }
    }

    /// The limits as stored with a row; `budget` is what is left of the call's.
    pub fn limits(&self, budget: Option<Duration>) -> Limits {
        Limits {
            head_us: self.head.map(Limits::micros),
            first_content_us: self.first_content.map(Limits::micros),
            idle_us: Some(Limits::micros(self.idle)),
            progress_us: self.progress.map(Limits::micros),
            total_us: Some(Limits::micros(self.total)),
            budget_us: budget.map(Limits::micros),
        }
    }
}

/// What happens to a call when the ledger cannot record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnLedgerError {
    /// The call fails with a ledger error, is not sent, and is never retried.
    #[default]
    Fail,
    /// The call goes on unrecorded; the number of such attempts is appended when the store next
    /// accepts a row.
    GoOn,
}

/// `start + limit`, or a moment far away where that cannot be represented.
pub(crate) fn deadline(start: Instant, limit: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(60 * 60 * 24 * 365 * 30);
    start.checked_add(limit.min(FAR)).unwrap_or(start)
}
