use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::Digest;

/// What sending the same request again would do at the remote side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Nothing but another answer.
    ReadOnly,
    /// Possibly the same write a second time. What is not known to be harmless is this.
    #[default]
    Writes,
    /// The remote side promises to do the work once for this key; the key is kept hashed.
    Idempotent(Digest),
}

impl Effect {
    /// The effect of a request that carries the idempotency key `key`.
    pub fn idempotent(key: &str) -> Self {
        Effect::Idempotent(Digest::of(key.as_bytes()))
    }

    /// Whether a repeat may do the work a second time.
    pub fn is_writes(self) -> bool {
        self == Effect::Writes
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Effect::ReadOnly => f.write_str("read_only"),
            Effect::Writes => f.write_str("writes"),
            Effect::Idempotent(key) => write!(f, "idempotent:{key}"),
        }
    }
}

impl FromStr for Effect {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "read_only" => Ok(Effect::ReadOnly),
            "writes" => Ok(Effect::Writes),
            _ => match text.strip_prefix("idempotent:").map(str::parse) {
                Some(Ok(key)) => Ok(Effect::Idempotent(key)),
                _ => Err(format!(
                    "{text:?} is no effect: read_only, writes or idempotent:<sha256 of the key>"
                )),
            },
        }
    }
}

impl Serialize for Effect {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Effect::ReadOnly => s.serialize_str("read_only"),
            Effect::Writes => s.serialize_str("writes"),
            Effect::Idempotent(_) => s.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Effect {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(de::Error::custom)
    }
}
