use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Why an id was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdError {
    /// The id was the empty string.
    #[error("is empty; give it 1 to 256 bytes")]
    Empty,
    /// The id was longer than 256 bytes.
    #[error("has {bytes} bytes; at most 256 are allowed")]
    TooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// The id held a control character or a bidirectional override.
    #[error(
        "holds the character U+{code:04X} at byte {at}; control and bidirectional characters are not allowed"
    )]
    Forbidden {
        /// The character's code point.
        code: u32,
        /// Its byte offset within the id.
        at: usize,
    },
    /// A hexadecimal id was not exactly 32 lower-case hexadecimal digits.
    #[error("is not 32 lower-case hexadecimal digits")]
    NotHex,
}

const MAX_BYTES: usize = 256;

fn check(text: &str) -> Result<(), IdError> {
    if text.is_empty() {
        return Err(IdError::Empty);
    }
    if text.len() > MAX_BYTES {
        return Err(IdError::TooLong { bytes: text.len() });
    }
    // C0, DEL and C1 controls, and the characters that reorder or hide text on a terminal.
    let forbidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
    };
    match text.char_indices().find(|&(_, c)| forbidden(c)) {
        Some((at, c)) => Err(IdError::Forbidden { code: c.into(), at }),
        None => Ok(()),
    }
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        ///
        /// 1 to 256 bytes of UTF-8 without control or bidirectional characters. Never used as a
        /// file name. Cloning is cheap.
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks `text` and takes it as an id.
            ///
            /// # Errors
            /// [`IdError`] says what is wrong with it.
            pub fn new(text: impl Into<Arc<str>>) -> Result<Self, IdError> {
                let text = text.into();
                check(&text)?;
                Ok($name(text))
            }

            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let text = String::deserialize(d)?;
                Self::new(text).map_err(|e| de::Error::custom(format_args!("{} {e}", stringify!($name))))
            }
        }
    };
}

text_id! {
    /// Names a run: one execution of an evaluation, or one life of a service.
    RunId
}
text_id! {
    /// Names a case: one thing that is measured.
    CaseId
}

macro_rules! hex_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        ///
        /// Written as 32 lower-case hexadecimal digits.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(u128);

        impl $name {
            /// The id with this number.
            pub const fn from_u128(number: u128) -> Self {
                $name(number)
            }

            /// The id's number.
            pub const fn as_u128(self) -> u128 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", self.0)
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                let lower = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
                if text.len() != 32 || !text.bytes().all(lower) {
                    return Err(IdError::NotHex);
                }
                u128::from_str_radix(text, 16).map($name).map_err(|_| IdError::NotHex)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_str(str::from_utf8(&hex32(self.0)).unwrap_or_default())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let text = String::deserialize(d)?;
                text.parse().map_err(|e| de::Error::custom(format_args!("{} {e}", stringify!($name))))
            }
        }
    };
}

hex_id! {
    /// Names one attempt, unique over all ledgers.
    AttemptId
}
hex_id! {
    /// Names one logical call: what the caller of the retry layer awaits.
    CallId
}
hex_id! {
    /// Names one opening of a ledger for writing.
    SessionId
}

/// 32 lower-case hexadecimal digits without an allocation.
fn hex32(number: u128) -> [u8; 32] {
    let mut out = [0; 32];
    for (i, slot) in out.iter_mut().enumerate() {
        let digit = (number >> (124 - 4 * i)) as u8 & 0xf;
        *slot = if digit < 10 { b'0' + digit } else { b'a' + digit - 10 };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_refuse_what_could_break_a_line_or_a_terminal() {
        assert_eq!(CaseId::new(""), Err(IdError::Empty));
        assert_eq!(CaseId::new("x".repeat(10_000)), Err(IdError::TooLong { bytes: 10_000 }));
        assert_eq!(CaseId::new("a\nb"), Err(IdError::Forbidden { code: 0xA, at: 1 }));
        assert_eq!(CaseId::new("a\u{202E}b"), Err(IdError::Forbidden { code: 0x202E, at: 1 }));
        assert_eq!(CaseId::new("\u{9b}31m"), Err(IdError::Forbidden { code: 0x9B, at: 0 }));
        for fine in ["../../x", "a/b\\c", "CON", "naïve 你好", &"x".repeat(256)] {
            assert_eq!(CaseId::new(fine).expect("accepted").as_str(), fine);
        }
    }

    #[test]
    fn hex_ids_have_one_spelling() {
        let id = AttemptId::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        let text = "0123456789abcdef0123456789abcdef";
        assert_eq!(id.to_string(), text);
        assert_eq!(serde_json::to_string(&id).expect("json"), format!("\"{text}\""));
        assert_eq!(text.parse(), Ok(id));
        for bad in
            ["", "0123", "0123456789ABCDEF0123456789abcdef", "+123456789abcdef0123456789abcdef"]
        {
            assert_eq!(bad.parse::<AttemptId>(), Err(IdError::NotHex), "{bad}");
        }
    }
}
