use std::time::SystemTime;

use attempt_ledger_core::Timestamp;

/// The wall clock's moment. For people and for joins with other logs only: order within a ledger is
/// its sequence, and durations come from tokio's clock.
#[allow(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
pub fn now() -> Timestamp {
    let micros = match SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_micros()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_micros()).map_or(i64::MIN, |us| -us),
    };
    Timestamp::from_micros(micros)
}

#[cfg(test)]
mod tests {
    #[test]
    fn is_after_this_was_written() {
        assert!(super::now() > attempt_ledger_core::Timestamp::from_micros(1_700_000_000_000_000));
    }
}
