use std::{borrow::Cow, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{
        self, IgnoredAny, MapAccess, SeqAccess, Visitor,
        value::{MapAccessDeserializer, SeqAccessDeserializer},
    },
};
use serde_json::{Value, value::RawValue};

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

/// A string, or any other value, which is skipped.
pub(crate) struct Word<'a>(pub(crate) Option<Cow<'a, str>>);

impl<'de: 'a, 'a> Deserialize<'de> for Word<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Of;
        impl<'de> Visitor<'de> for Of {
            type Value = Word<'de>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("any value")
            }
            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Word(Some(Cow::Borrowed(text))))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Word(Some(Cow::Owned(text.to_owned()))))
            }
            fn visit_bool<E: de::Error>(self, _: bool) -> Result<Self::Value, E> {
                Ok(Word(None))
            }
            fn visit_u64<E: de::Error>(self, _: u64) -> Result<Self::Value, E> {
                Ok(Word(None))
            }
            fn visit_i64<E: de::Error>(self, _: i64) -> Result<Self::Value, E> {
                Ok(Word(None))
            }
            fn visit_f64<E: de::Error>(self, _: f64) -> Result<Self::Value, E> {
                Ok(Word(None))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Word(None))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Word(None))
            }
        }
        deserializer.deserialize_any(Of)
    }
}

/// An object that is read, or any other value, which is skipped.
pub(crate) struct Maybe<T>(pub(crate) Option<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Maybe<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Of<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Of<T> {
            type Value = Maybe<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("any value")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(|read| Maybe(Some(read)))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Maybe(None))
            }
            fn visit_str<E: de::Error>(self, _: &str) -> Result<Self::Value, E> {
                Ok(Maybe(None))
            }
            fn visit_bool<E: de::Error>(self, _: bool) -> Result<Self::Value, E> {
                Ok(Maybe(None))
            }
            fn visit_u64<E: de::Error>(self, _: u64) -> Result<Self::Value, E> {
                Ok(Maybe(None))
            }
            fn visit_i64<E: de::Error>(self, _: i64) -> Result<Self::Value, E> {
                Ok(Maybe(None))
            }
            fn visit_f64<E: de::Error>(self, _: f64) -> Result<Self::Value, E> {
                Ok(Maybe(None))
            }
            fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
                Ok(Maybe(None))
            }
        }
        deserializer.deserialize_any(Of(PhantomData))
    }
}

/// Content of a message: a string, a list of parts, or one part without its list.
pub(crate) enum Body<'a, P> {
    Text(Text<'a>),
    Parts(Few<P>),
}

/// Items behind the first that a list may hold: one of empty items takes a hundred bytes of memory
/// for each of its own.
pub(crate) const MAX_ITEMS: usize = 4096;

/// What the parser says of a list that holds more.
pub(crate) const OVER: &str = "a list holds more items than are read";

/// Whether JSON was not parsed for a bound alone.
pub(crate) fn is_over(error: &serde_json::Error) -> bool {
    error.is_data() && error.to_string().starts_with(OVER)
}

/// A list that seldom holds more than one: the first of it needs no allocation.
pub(crate) struct Few<T> {
    first: Option<T>,
    more: Vec<T>,
}

impl<T> Few<T> {
    fn one(first: T) -> Self {
        Few { first: Some(first), more: Vec::new() }
    }

    pub(crate) fn first(&self) -> Option<&T> {
        self.first.as_ref()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(&self.more)
    }

    pub(crate) fn into_iter(self) -> impl Iterator<Item = T> {
        self.first.into_iter().chain(self.more)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Few<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Of<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Of<T> {
            type Value = Few<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut few = Few { first: list.next_element()?, more: Vec::new() };
                while let Some(item) = list.next_element()? {
                    if few.more.len() == MAX_ITEMS {
                        return Err(de::Error::custom(OVER));
                    }
                    few.more.push(item);
                }
                Ok(few)
            }
        }
        deserializer.deserialize_seq(Of(PhantomData))
    }
}

impl<'de: 'a, 'a, P: Deserialize<'de>> Deserialize<'de> for Body<'a, P> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Of<P>(PhantomData<P>);
        impl<'de, P: Deserialize<'de>> Visitor<'de> for Of<P> {
            type Value = Body<'de, P>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list of parts")
            }
            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Body::Text(Text(Cow::Borrowed(text))))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Body::Text(Text(Cow::Owned(text.to_owned()))))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
                Few::deserialize(SeqAccessDeserializer::new(list)).map(Body::Parts)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                let part = P::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Body::Parts(Few::one(part)))
            }
        }
        deserializer.deserialize_any(Of(PhantomData))
    }
}

/// The number of a choice, block or call; one that is no whole number is beyond all that are read.
#[derive(Clone, Copy)]
pub(crate) struct Index(pub(crate) u64);

impl<'de> Deserialize<'de> for Index {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Of;
        impl Visitor<'_> for Of {
            type Value = Index;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a whole number")
            }
            fn visit_u64<E: de::Error>(self, index: u64) -> Result<Self::Value, E> {
                Ok(Index(index))
            }
            fn visit_i64<E: de::Error>(self, _: i64) -> Result<Self::Value, E> {
                Ok(Index(u64::MAX))
            }
            fn visit_f64<E: de::Error>(self, index: f64) -> Result<Self::Value, E> {
                Ok(Index(whole(index).unwrap_or(u64::MAX)))
            }
            fn visit_str<E: de::Error>(self, index: &str) -> Result<Self::Value, E> {
                Ok(Index(index.parse().unwrap_or(u64::MAX)))
            }
        }
        deserializer.deserialize_any(Of)
    }
}

/// A token count; a fraction or a number beyond u64 is none.
pub(crate) fn count(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_f64().and_then(whole))
}

/// Some servers write each number as a float.
fn whole(n: f64) -> Option<u64> {
    (n >= 0.0 && n.fract() == 0.0 && n < 2f64.powi(53)).then_some(n as u64)
}

/// A string's text, or other JSON as it stands: a tool's arguments are a string of JSON as a rule,
/// and at some servers the JSON itself.
pub(crate) fn string_or_json(raw: Option<&RawValue>) -> Cow<'_, str> {
    raw.map_or(Cow::Borrowed(""), |raw| string(raw).unwrap_or(Cow::Borrowed(raw.get())))
}

/// Bytes of JSON that are read into a tree, which takes ten times their memory and more.
const MAX_TREE: usize = 1 << 20;

/// JSON that was skipped and is of use now; null if it is too long to be what is looked for.
pub(crate) fn value(raw: &RawValue) -> Value {
    tree(raw.get().as_bytes()).unwrap_or_default()
}

/// JSON as a tree; `None` if it is none, or too long for one.
pub(crate) fn tree<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Option<T> {
    (json.len() <= MAX_TREE).then(|| serde_json::from_slice(json).ok()).flatten()
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

/// The string that a value is, if it is one.
pub(crate) fn string(raw: &RawValue) -> Option<Cow<'_, str>> {
    if !raw.get().starts_with('"') {
        return None;
    }
    match serde_json::from_str::<Text<'_>>(raw.get()) {
        Ok(Text(text)) => Some(text),
        Err(_) => {
            let mended = surrogate::mend(raw.get().as_bytes())?;
            serde_json::from_slice::<String>(&mended).ok().map(Cow::Owned)
        }
    }
}

/// Without the byte-order mark that some servers begin a document with.
pub(crate) fn without_bom(body: &[u8]) -> &[u8] {
    body.strip_prefix(BOM).unwrap_or(body)
}

/// What marks UTF-8, and says nothing.
pub(crate) const BOM: &[u8] = b"\xef\xbb\xbf";
