use serde::{Deserialize, Serialize};

/// What a server's headers say of its limits on how often, and how much, it may be asked.
///
/// Evidence only: no verdict, no pause and no number is made of it. A limit that is used up is
/// no error of the answer that says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RateLimit {
    /// Of requests.
    #[serde(skip_serializing_if = "Quota::is_empty")]
    pub requests: Quota,
    /// Of tokens, whichever the server counts.
    #[serde(skip_serializing_if = "Quota::is_empty")]
    pub tokens: Quota,
    /// Of the prompts' tokens, where they are limited apart.
    #[serde(skip_serializing_if = "Quota::is_empty")]
    pub input_tokens: Quota,
    /// Of the answers' tokens, where they are limited apart.
    #[serde(skip_serializing_if = "Quota::is_empty")]
    pub output_tokens: Quota,
    /// Of something that the header does not name.
    #[serde(skip_serializing_if = "Quota::is_empty")]
    pub unnamed: Quota,
}

impl RateLimit {
    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        *self == RateLimit::default()
    }
}

/// One of the limits of a [`RateLimit`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Quota {
    /// How much there is in all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// How much of it is left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remaining: Option<u64>,
    /// When it is full again, in milliseconds after the response; rounded up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset_ms: Option<u64>,
}

impl Quota {
    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        *self == Quota::default()
    }
}
