use std::{borrow::Cow, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, Visitor, value::MapAccessDeserializer},
};

use crate::surrogate;

/// A struct that is read from a JSON object alone: serde also takes a list for one, by position.
pub(crate) struct Obj<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Obj<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Of<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Of<T> {
            type Value = Obj<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Obj)
            }
        }
        deserializer.deserialize_map(Of(PhantomData))
    }
}

/// A string, borrowed from the input where it has no escapes.
pub(crate) struct Text<'a>(pub(crate) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Of;
        impl<'de> Visitor<'de> for Of {
            type Value = Text<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Of)
    }
}

/// Parses JSON, taking half a surrogate pair for a replacement character. `mended` holds the copy
/// that this takes.
pub(crate) fn parse<'a, T: Deserialize<'a>>(
    json: &'a [u8],
    mended: &'a mut Option<Vec<u8>>,
) -> serde_json::Result<T> {
    let parsed = serde_json::from_slice(json);
    if parsed.is_ok() {
        return parsed;
    }
    *mended = surrogate::mend(json);
    match mended {
        Some(mended) => serde_json::from_slice(mended),
        None => parsed,
    }
}

/// Without the byte-order mark that some servers begin a document with.
pub(crate) fn without_bom(body: &[u8]) -> &[u8] {
    body.strip_prefix(BOM).unwrap_or(body)
}

/// What marks UTF-8, and says nothing.
pub(crate) const BOM: &[u8] = b"\xef\xbb\xbf";
