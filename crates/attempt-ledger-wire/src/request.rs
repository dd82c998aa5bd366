use std::{borrow::Cow, fmt, marker::PhantomData, sync::Arc};

use attempt_ledger_core::{Digest, Effect};
use http::Method;
use percent_encoding::percent_decode_str;
use serde::{
    Deserialize, Deserializer,
    de::{SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::{Wire, json::Obj};

/// Bytes of a model's name that are kept.
const MAX_MODEL: usize = 256;

/// What a request asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestFacts {
    /// The model's name; one over 256 bytes, or with control characters, as `other:` and the
    /// first 16 hexadecimal digits of its SHA-256.
    pub model: Option<Arc<str>>,
    /// Whether a stream is asked for; `None` when the body could not be read.
    pub stream: Option<bool>,
    /// Tools that are offered.
    pub tools: u32,
    /// The cap on tokens of the answer.
    pub cap: Option<u64>,
    /// Unicode code points of the prompt's text.
    pub prompt_chars: u64,
    /// Whether the wire's reader understood the request. One that was not may do anything.
    pub understood: bool,
    /// What a repeat would do.
    pub effect: Effect,
}

/// Reads what a request asks for.
///
/// `body` is `None` when it is streamed. A request that is not understood (streamed, no JSON
/// object, a field twice, a field of another type) counts as one that writes.
pub fn read_request(wire: Wire, method: &Method, path: &str, body: Option<&[u8]>) -> RequestFacts {
    if matches!(*method, Method::GET | Method::HEAD) {
        return RequestFacts { effect: Effect::ReadOnly, ..RequestFacts::default() };
    }
    let read = match body {
        Some(body) if *method == Method::POST => (wire.spec().request)(&Asked { path, body }),
        _ => None,
    };
    read.unwrap_or_default()
}

/// What a wire's reader gets of a request that may ask its model something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    /// Without the query.
    pub(crate) path: &'a str,
    pub(crate) body: &'a [u8],
}

/// What a list comes to, item by item; nothing of it is held.
pub(crate) trait Sum<'de>: Default {
    type Item: Deserialize<'de>;
    fn add(&mut self, item: Self::Item);
}

pub(crate) fn sum<'de, S: Sum<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<S, D::Error> {
    struct Of<S>(PhantomData<S>);
    impl<'de, S: Sum<'de>> Visitor<'de> for Of<S> {
        type Value = S;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<S, A::Error> {
            let mut sum = S::default();
            while let Some(item) = list.next_element()? {
                sum.add(item);
            }
            Ok(sum)
        }
    }
    deserializer.deserialize_seq(Of(PhantomData))
}

/// Reads the named sums from JSON lists.
macro_rules! sums {
    ($($name:ident)+) => {
        $(impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(
                deserializer: D,
            ) -> Result<Self, D::Error> {
                crate::request::sum(deserializer)
            }
        })+
    };
}

pub(crate) use sums;

sums! { Tools Messages }

/// Tools that are offered, where each has a `type`.
#[derive(Default)]
pub(crate) struct Tools {
    pub(crate) count: usize,
    /// Those of other types than `function` and `custom`, which the server itself may run.
    pub(crate) remote: usize,
}

impl<'de> Sum<'de> for Tools {
    type Item = Obj<Tool<'de>>;
    fn add(&mut self, Obj(tool): Self::Item) {
        self.count += 1;
        let local = matches!(tool.kind.map(RawValue::get), Some("\"function\"" | "\"custom\""));
        self.remote += usize::from(!local);
    }
}

/// Code points of the texts of messages, or of other items that have a `content`.
#[derive(Default)]
pub(crate) struct Messages(pub(crate) u64);

impl<'de> Sum<'de> for Messages {
    type Item = Obj<Message<'de>>;
    fn add(&mut self, Obj(message): Self::Item) {
        self.0 += message.content.map_or(0, |content| text_chars(content, 0));
    }
}

#[derive(Deserialize)]
pub(crate) struct Tool<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(crate) struct Message<'a> {
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
}

/// A model's name, as rows hold it.
pub(crate) fn bounded(model: &str) -> Arc<str> {
    if model.len() <= MAX_MODEL && !model.chars().any(char::is_control) {
        model.into()
    } else {
        format!("other:{}", Digest::of(model.as_bytes()).short()).into()
    }
}

/// The model that a path names behind the last `before` and before the last `after`, decoded;
/// `None` without one. A name may hold `after` itself: `/model/arn:...:profile/m/invoke`.
pub(crate) fn model_in_path<'a>(path: &'a str, before: &str, after: &str) -> Option<Cow<'a, str>> {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let (_, rest) = path.rsplit_once(before)?;
    let (model, _) = rest.rsplit_once(after)?;
    let model = percent_decode_str(model).decode_utf8_lossy();
    (!model.is_empty()).then_some(model)
}

/// Whether a path ends in `end`, whatever query or slash is behind it.
pub(crate) fn path_ends_with(path: &str, end: &str) -> bool {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    path.strip_suffix('/').unwrap_or(path).ends_with(end)
}

/// Code points of a string, of the strings of a list, or of the `text` of a list's parts.
pub(crate) fn text_chars(raw: &RawValue, depth: u8) -> u64 {
    #[derive(Deserialize)]
    struct Part<'a> {
        #[serde(borrow, default)]
        text: Option<&'a RawValue>,
    }
    let json = raw.get();
    match json.as_bytes().first() {
        Some(b'"') => string_chars(json),
        Some(b'[') if depth < 2 => serde_json::from_str::<Vec<&RawValue>>(json)
            .map_or(0, |list| list.iter().map(|item| text_chars(item, depth + 1)).sum()),
        Some(b'{') => serde_json::from_str::<Part<'_>>(json)
            .ok()
            .and_then(|part| part.text)
            .filter(|text| text.get().starts_with('"'))
            .map_or(0, |text| text_chars(text, depth + 1)),
        _ => 0,
    }
}

/// Code points of a JSON string in its quotes, counted as they stand: a prompt may be long, and
/// nobody needs its text. Half a surrogate pair is one.
fn string_chars(json: &str) -> u64 {
    let inside = json.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or_default();
    let mut pieces = inside.split('\\');
    let mut count = chars(pieces.next().unwrap_or_default());
    let mut high = false;
    while let Some(piece) = pieces.next() {
        // Behind a backslash stands what it escapes; nothing, where that is a backslash too.
        let Some(kind) = piece.chars().next() else {
            let piece = pieces.next().unwrap_or_default();
            count += 1 + chars(piece);
            high = false;
            continue;
        };
        let digits = if kind == 'u' { piece.get(1..5) } else { None };
        let unit = digits.and_then(|digits| u16::from_str_radix(digits, 16).ok());
        let rest = piece.get(if unit.is_some() { 5 } else { 1 }..).unwrap_or_default();
        // The second half of a pair was counted with the first.
        let second = high && matches!(unit, Some(0xdc00..=0xdfff));
        high = matches!(unit, Some(0xd800..=0xdbff)) && rest.is_empty();
        count += u64::from(!second) + chars(rest);
    }
    count
}

fn chars(text: &str) -> u64 {
    text.chars().count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chat(body: &str) -> RequestFacts {
        read_request(Wire::OpenAiChat, &Method::POST, "/v1/chat/completions", Some(body.as_bytes()))
    }

    #[test]
    fn a_request_is_read() {
        let facts = chat(
            r#"{"model":"m","stream":true,"max_tokens":5,"max_completion_tokens":9,
               "tools":[{"type":"function","function":{"name":"f"}},{"type":"custom"}],
               "messages":[{"role":"user","content":"h\u00e9y"},
               {"role":"user","content":[{"type":"text","text":"ab"},{"type":"image_url"}]}]}"#,
        );
        let want = RequestFacts {
            model: Some("m".into()),
            stream: Some(true),
            tools: 2,
            cap: Some(9),
            prompt_chars: 5,
            understood: true,
            effect: Effect::ReadOnly,
        };
        assert_eq!(facts, want);
    }

    /// What is not known to be harmless writes.
    #[test]
    fn all_that_may_act_writes() {
        for body in [
            r#"{"model":"m","tools":[{"type":"web_search"}]}"#,
            r#"{"model":"m","tools":[{"name":"f"}]}"#,
            r#"{"model":"m","web_search_options":{}}"#,
            r#"{"model":"m","background":true}"#,
        ] {
            assert_eq!(
                (chat(body).understood, chat(body).effect),
                (true, Effect::Writes),
                "{body}"
            );
        }
        for body in [
            r#"{"model":"m","model":"n"}"#,
            r#"{"tools":[],"tools":[{"type":"mcp"}]}"#,
            r#"{"model":"m""#,
            r#"[1]"#,
            r#"["m",true]"#,
            r#"{"tools":[["function"]]}"#,
            r#"{"stream":"yes"}"#,
            "",
        ] {
            assert_eq!(chat(body), RequestFacts::default(), "{body}");
            assert_eq!(chat(body).effect, Effect::Writes, "{body}");
        }
        let plain = read_request(Wire::Plain, &Method::POST, "/x", Some(b"{}"));
        assert_eq!((plain.understood, plain.effect), (false, Effect::Writes));
        let streamed = read_request(Wire::OpenAiChat, &Method::POST, "/chat/completions", None);
        assert_eq!((streamed.understood, streamed.effect), (false, Effect::Writes));
        let get = read_request(Wire::Plain, &Method::GET, "/x", None);
        assert_eq!(get.effect, Effect::ReadOnly);
    }

    #[test]
    fn a_models_name_is_bounded() {
        let name = "x".repeat(257);
        let facts = chat(&format!(r#"{{"model":"{name}"}}"#));
        let want = format!("other:{}", Digest::of(name.as_bytes()).short());
        assert_eq!(facts.model.as_deref(), Some(&*want));
        let azure = read_request(
            Wire::OpenAiChat,
            &Method::POST,
            "/openai/deployments/gpt/chat/completions",
            Some(b"{}"),
        );
        assert_eq!(azure.model.as_deref(), Some("gpt"));
    }

    #[test]
    fn a_path_names_its_model() {
        for (path, before, after, model) in [
            ("/v1beta/models/g-1.5:generateContent", "/models/", ":", Some("g-1.5")),
            ("/models/c%40v:rawPredict?alt=sse", "/models/", ":", Some("c@v")),
            ("/publishers/x/models/a:b:rawPredict", "/models/", ":", Some("a:b")),
            ("/model/eu.v.m-v1%3A0/invoke", "/model/", "/", Some("eu.v.m-v1:0")),
            ("/model/arn%3Aaws%3Ab%3A%3Ap%2Fm/invoke", "/model/", "/", Some("arn:aws:b::p/m")),
            ("/model/arn:aws:b::p/m/invoke", "/model/", "/", Some("arn:aws:b::p/m")),
            ("/x/model/m/invoke/", "/model/", "/invoke", Some("m")),
            ("/model/%ff/invoke", "/model/", "/", Some("\u{fffd}")),
            ("/model//invoke", "/model/", "/", None),
            ("/models/m", "/models/", ":", None),
            ("/v1/messages", "/models/", ":", None),
        ] {
            assert_eq!(model_in_path(path, before, after).as_deref(), model, "{path}");
        }
        assert!(path_ends_with("/a:stream/?alt=sse", ":stream"));
        assert!(!path_ends_with("/a:streamed", ":stream"));
    }

    proptest::proptest! {
        /// Counted as they stand, characters are as many as the parsed text has.
        #[test]
        fn characters_are_counted_as_the_parser_would(
            parts in proptest::collection::vec(proptest::sample::select(vec![
                "a", "", "u00", "\u{e9}", "\u{1f600}", r"\\", r"\n", r#"\""#, r"\/", r"\u0041", r"\u00e9",
                r"\ud83d\ude00", r"\uD83D\uDE00", r"\\ud83d", r"\\\u0041",
            ]), 0..12),
        ) {
            let json = format!("\"{}\"", parts.concat());
            let text: String = serde_json::from_str(&json).expect("a string");
            proptest::prop_assert_eq!(string_chars(&json), text.chars().count() as u64, "{}", json);
        }
    }

    #[test]
    fn half_a_pair_is_one_character() {
        for (json, want) in [
            (r#""\ud83d""#, 1),
            (r#""\ude00\ud83d\ude00""#, 2),
            (r#""\ud83d\ud83d\ude00x""#, 3),
            (r#""\ud83d,\ude00""#, 3),
        ] {
            assert_eq!(string_chars(json), want, "{json}");
        }
    }
}
