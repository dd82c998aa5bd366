use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The clocks an attempt ran under, in microseconds; stored with each row. `null` is "off".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Until the response head is complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head_us: Option<u64>,
    /// Between two reads of the response body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_us: Option<u64>,
    /// Until the answer's first content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_content_us: Option<u64>,
    /// Between two protocol events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress_us: Option<u64>,
    /// From the request to the end of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_us: Option<u64>,
    /// What was left of the call's budget when the attempt was opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_us: Option<u64>,
}

impl Limits {
    /// A duration as stored: whole microseconds, at most 2^64 - 1.
    pub fn micros(duration: Duration) -> u64 {
        u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
    }
}
