use std::{
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
    str::FromStr,
    sync::Arc,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest as _, Sha256};

/// A SHA-256 digest; 64 lower-case hexadecimal digits in JSON.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Digest(Sha256::digest(bytes).into())
    }

    /// Takes a finished digest.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Digest(bytes)
    }

    /// The 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The first 16 hexadecimal digits: the short form shown to people.
    pub fn short(&self) -> String {
        let mut digits = self.hex();
        digits.truncate(16);
        digits
    }

    /// All 64 hexadecimal digits.
    pub fn hex(&self) -> String {
        str::from_utf8(&self.digits()).unwrap_or_default().to_owned()
    }

    /// All 64 hexadecimal digits in ASCII, without an allocation: digests are most of a row's text.
    pub fn digits(&self) -> [u8; 64] {
        let mut digits = [0; 64];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(self.0) {
            for (digit, value) in pair.iter_mut().zip([byte >> 4, byte & 0xf]) {
                *digit = if value < 10 { b'0' + value } else { b'a' + value - 10 };
            }
        }
        digits
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(str::from_utf8(&self.digits()).unwrap_or_default())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(str::from_utf8(&self.digits()).unwrap_or_default())
    }
}

impl FromStr for Digest {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str = "is not 64 lower-case hexadecimal digits";
        if text.len() != 64 {
            return Err(WRONG);
        }
        let mut out = [0; 32];
        for (byte, pair) in out.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            for &c in pair {
                let digit = match c {
                    b'0'..=b'9' => c - b'0',
                    b'a'..=b'f' => c - b'a' + 10,
                    _ => return Err(WRONG),
                };
                *byte = *byte << 4 | digit;
            }
        }
        Ok(Digest(out))
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(str::from_utf8(&self.digits()).unwrap_or_default())
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        text.parse().map_err(|e| de::Error::custom(format_args!("digest {e}")))
    }
}

/// A short word taken from a remote side, safe to store and to print.
///
/// A word is kept as sent only when it matches `[A-Za-z0-9_.:-]{1,64}`; any other becomes `other:`
/// and the first 16 hexadecimal digits of its SHA-256, so that equal words stay equal and no text
/// of a model or a user gets into a ledger.
///
/// Words of up to 22 bytes, as nearly all are, are held without an allocation.
#[derive(Clone)]
pub struct Label(Word);

/// The length of `other:` with its digits.
const MAX_INLINE: usize = 22;

#[derive(Clone)]
enum Word {
    Inline { len: u8, bytes: [u8; MAX_INLINE] },
    Shared(Arc<str>),
}

impl Label {
    /// Takes `word`, or its hashed form when it is not a plain word.
    pub fn new(word: &str) -> Self {
        if Self::is_plain(word) {
            Label(Word::new(word))
        } else {
            Label(Word::new(&format!("other:{}", Digest::of(word.as_bytes()).short())))
        }
    }

    /// The word.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Word::Inline { len, bytes } => {
                let word = bytes.get(..usize::from(*len)).unwrap_or_default();
                str::from_utf8(word).unwrap_or_default()
            }
            Word::Shared(word) => word,
        }
    }

    fn is_plain(word: &str) -> bool {
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b':' | b'-');
        (1..=64).contains(&word.len()) && word.bytes().all(plain)
    }
}

impl Word {
    fn new(word: &str) -> Self {
        let mut bytes = [0; MAX_INLINE];
        match (bytes.get_mut(..word.len()), u8::try_from(word.len())) {
            (Some(room), Ok(len)) => {
                room.copy_from_slice(word.as_bytes());
                Word::Inline { len, bytes }
            }
            _ => Word::Shared(word.into()),
        }
    }
}

// One word has one form, but what counts is the word.

impl PartialEq for Label {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Label {}

impl PartialOrd for Label {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Label {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl Hash for Label {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

impl Serialize for Label {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Label {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Ok(Label::new(&String::deserialize(d)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_round_trips_and_has_one_spelling() {
        let d = Digest::of(b"");
        let hex = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(d.hex(), hex);
        assert_eq!(d.short(), "e3b0c44298fc1c14");
        assert_eq!(hex.parse(), Ok(d));
        assert!(hex.to_uppercase().parse::<Digest>().is_err());
    }

    #[test]
    fn labels_keep_plain_words_and_hash_the_rest() {
        assert_eq!(Label::new("rate_limit_exceeded").as_str(), "rate_limit_exceeded");
        assert_eq!(Label::new("a.b:c-D9").as_str(), "a.b:c-D9");
        let hashed = Label::new("You said: secret");
        assert_eq!(hashed.as_str(), format!("other:{}", Digest::of(b"You said: secret").short()));
        assert_eq!(Label::new(hashed.as_str()), hashed, "reading a row back changes nothing");
        assert!(Label::new("").as_str().starts_with("other:"));
        assert!(Label::new(&"x".repeat(65)).as_str().starts_with("other:"));
    }
    /// Words on both sides of the longest that is held in place.
    #[test]
    fn a_label_is_its_word_however_it_is_held() {
        use std::hash::{BuildHasher, RandomState};
        let words: Vec<String> = (1..=64).map(|len| "w".repeat(len)).collect();
        let labels: Vec<Label> = words.iter().map(|word| Label::new(word)).collect();
        let state = RandomState::new();
        for (word, label) in words.iter().zip(&labels) {
            assert_eq!((label.as_str(), &label.to_string()), (&**word, word));
            assert_eq!(format!("{label:?}"), format!("{word:?}"));
            assert_eq!(state.hash_one(label), state.hash_one(&**word));
            assert_eq!(label.clone(), Label::new(word));
        }
        assert!(labels.is_sorted() && labels.windows(2).all(|pair| pair[0] != pair[1]));
        assert_eq!(size_of::<Option<Label>>(), 24);
    }
}
