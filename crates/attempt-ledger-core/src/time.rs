use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A moment in UTC with microseconds, RFC 3339 in JSON (`2026-04-14T09:30:00.000000Z`).
///
/// For people and for joins with other logs; order within a ledger is its sequence, never time.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The moment this many microseconds after 1970-01-01T00:00:00Z.
    pub const fn from_micros(micros: i64) -> Self {
        Timestamp(micros)
    }

    /// Microseconds since 1970-01-01T00:00:00Z.
    pub const fn as_micros(self) -> i64 {
        self.0
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Beyond year 9999 only a broken clock leads; clamped rather than failing to print.
        let moment = jiff::Timestamp::from_microsecond(self.0).unwrap_or(jiff::Timestamp::MAX);
        write!(f, "{moment:.6}")
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(de::Error::custom)
    }
}

impl FromStr for Timestamp {
    type Err = &'static str;

    /// Reads RFC 3339, with any number of decimals and any offset.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let moment: jiff::Timestamp = text.parse().map_err(|_| "time is not RFC 3339")?;
        Ok(Timestamp(moment.as_microsecond()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_with_six_digits_and_read_back() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (1_776_159_000_000_001, "2026-04-14T09:30:00.000001Z"),
        ] {
            let json = format!("\"{text}\"");
            assert_eq!(serde_json::to_string(&Timestamp(micros)).expect("json"), json);
            assert_eq!(serde_json::from_str::<Timestamp>(&json).expect("time"), Timestamp(micros));
        }
    }
}
