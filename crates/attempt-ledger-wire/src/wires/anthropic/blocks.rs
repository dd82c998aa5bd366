//! The blocks of a message's content: text, thinking, calls of tools, and much else that is no
//! answer.

use std::borrow::Cow;

use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Result, value::RawValue};

use super::{Ending, StopDetails, word};
use crate::{
    gather::{CallKey, Gather, id_hash},
    json::{Maybe, Text, Word},
};

/// What is remembered of the blocks that came.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    /// The calls that blocks hold. A message has at most as many as [`Gather`] takes.
    calls: Vec<Call>,
    /// The key of the next call.
    next: u64,
    /// The newest block is a call: its index, if it has one, and its key.
    newest: Option<(Option<u64>, u64)>,
    /// The input that the newest call began with: it counts if nothing of it is streamed.
    input: Option<(u64, String)>,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    index: Option<u64>,
    /// Its id, shortened.
    id: Option<u64>,
    key: u64,
}

impl Blocks {
    /// Bytes allocated for what is remembered.
    pub(crate) fn held(&self) -> usize {
        let input = self.input.as_ref().map_or(0, |(_, input)| input.capacity());
        self.calls.capacity() * size_of::<Call>() + input
    }

    /// A whole content: a list of blocks, or from some relays the text itself.
    pub(crate) fn list(&mut self, content: Option<&RawValue>, gather: &mut Gather) -> Result<()> {
        let Some(content) = content else { return Ok(()) };
        let mut json = serde_json::Deserializer::from_str(content.get());
        List { blocks: self, gather }.deserialize(&mut json)
    }

    /// A block begins, and may hold some or all of it already.
    pub(crate) fn start(&mut self, index: Option<u64>, block: &Block<'_>, gather: &mut Gather) {
        self.settle(gather);
        self.newest = None;
        let kind = word(&block.kind);
        if kind == "tool_use" {
            return self.start_call(index, block, gather);
        }
        // What is streamed into this block is none of a call's that had its index before.
        self.calls.retain(|call| call.index != index);
        block.say(kind, gather);
    }

    fn start_call(&mut self, index: Option<u64>, block: &Block<'_>, gather: &mut Gather) {
        let id = Some(word(&block.id)).filter(|id| !id.is_empty()).map(id_hash);
        let again = |call: &&Call| call.index == index && id.is_some() && call.id == id;
        if let Some(known) = self.calls.iter().rev().find(again) {
            self.newest = Some((index, known.key));
            return;
        }
        self.calls.retain(|call| call.index != index);
        let key = self.call(block, gather);
        if !gather.is_open() {
            return;
        }
        self.calls.push(Call { index, id, key });
        self.newest = Some((index, key));
        self.input = Some((key, block.input().into_owned()));
    }

    /// A call of its own, without its input.
    fn call(&mut self, block: &Block<'_>, gather: &mut Gather) -> u64 {
        let key = self.next;
        self.next += 1;
        gather.call(CallKey::Index(key), word(&block.name), "");
        key
    }

    /// More of a block.
    pub(crate) fn delta(&mut self, index: Option<u64>, delta: &Block<'_>, gather: &mut Gather) {
        match word(&delta.kind) {
            "text_delta" => delta.say("text", gather),
            "thinking_delta" => delta.say("thinking", gather),
            "input_json_delta" | "" if delta.partial_json.is_some() => {
                let piece = word(&delta.partial_json);
                // That of a server's own tool finds no call.
                if let (Some(key), false) = (self.key_of(index), piece.is_empty()) {
                    if self.input.as_ref().is_some_and(|(of, _)| *of == key) {
                        self.input = None;
                    }
                    gather.call(CallKey::Index(key), "", piece);
                }
            }
            kind => delta.say(kind, gather),
        }
    }

    fn key_of(&self, index: Option<u64>) -> Option<u64> {
        let newest = self.newest.filter(|(at, _)| at.is_none() || index.is_none());
        let indexed = || self.calls.iter().rev().find(|call| call.index == index);
        newest.map(|(_, key)| key).or_else(|| Some(indexed().filter(|_| index.is_some())?.key))
    }

    /// Nothing more comes of the newest block.
    pub(crate) fn settle(&mut self, gather: &mut Gather) {
        if let Some((key, input)) = self.input.take() {
            gather.call(CallKey::Index(key), "", &input);
        }
    }
}

/// A block, a piece of one, or how a message ended: what they say.
#[derive(Deserialize)]
pub(crate) struct Block<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Option<Word<'a>>,
    #[serde(borrow, default)]
    text: Option<Word<'a>>,
    #[serde(borrow, default)]
    thinking: Option<Word<'a>>,
    #[serde(borrow, default)]
    partial_json: Option<Word<'a>>,
    #[serde(borrow, default)]
    refusal: Option<Word<'a>>,
    #[serde(borrow, default)]
    id: Option<Word<'a>>,
    #[serde(borrow, default)]
    name: Option<Word<'a>>,
    #[serde(borrow, default)]
    input: Option<&'a RawValue>,
    #[serde(borrow, default)]
    stop_reason: Option<Word<'a>>,
    #[serde(borrow, default)]
    stop_details: Option<Maybe<StopDetails<'a>>>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
}

impl Block<'_> {
    /// Whether it is the end of a message rather than a piece of a block.
    pub(crate) fn is_end(&self) -> bool {
        self.stop_reason.is_some()
    }

    pub(crate) fn ending(&self) -> Ending<'_> {
        Ending { reason: &self.stop_reason, details: &self.stop_details, usage: self.usage }
    }

    /// What a block of this kind shows to a reader. Server tools and their results, citations,
    /// signatures, summaries and all that is not known here show nothing.
    fn say(&self, kind: &str, gather: &mut Gather) {
        match kind {
            "text" => gather.text(word(&self.text)),
            "thinking" => gather.reasoning(word(&self.thinking)),
            "refusal" => {
                gather.refusal(word(&self.refusal));
                gather.refusal(word(&self.text));
            }
            "" => {
                gather.text(word(&self.text));
                gather.reasoning(word(&self.thinking));
            }
            _ => {}
        }
    }

    /// The arguments as JSON; some servers send it within a string.
    fn input(&self) -> Cow<'_, str> {
        let raw = self.input.map_or("", RawValue::get);
        match serde_json::from_str::<Text<'_>>(raw) {
            Ok(Text(input)) => input,
            Err(_) => Cow::Borrowed(raw),
        }
    }
}

/// Reads a list of blocks one by one: as a list of values they would be many times its bytes.
struct List<'g> {
    blocks: &'g mut Blocks,
    gather: &'g mut Gather,
}

impl<'de> DeserializeSeed<'de> for List<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> std::result::Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for List<'_> {
    type Value = ();
    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a list of blocks")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> std::result::Result<(), A::Error> {
        while let Some(Maybe(block)) = list.next_element::<Maybe<Block<'de>>>()? {
            let Some(block) = block.filter(|_| self.gather.is_open()) else { continue };
            match word(&block.kind) {
                "tool_use" => {
                    let key = self.blocks.call(&block, self.gather);
                    self.gather.call(CallKey::Index(key), "", &block.input());
                }
                kind => block.say(kind, self.gather),
            }
        }
        Ok(())
    }
    fn visit_str<E: de::Error>(self, text: &str) -> std::result::Result<(), E> {
        self.gather.text(text);
        Ok(())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<(), A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(())
    }
    fn visit_bool<E: de::Error>(self, _: bool) -> std::result::Result<(), E> {
        Ok(())
    }
    fn visit_u64<E: de::Error>(self, _: u64) -> std::result::Result<(), E> {
        Ok(())
    }
    fn visit_i64<E: de::Error>(self, _: i64) -> std::result::Result<(), E> {
        Ok(())
    }
    fn visit_f64<E: de::Error>(self, _: f64) -> std::result::Result<(), E> {
        Ok(())
    }
}
