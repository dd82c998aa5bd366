//! The fields of events, responses and items that say something. All others are skipped unread,
//! and one of these with a value of an odd type counts as absent.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::once::{Kind, Name, Piece, Whole};
use crate::{
    gather::id_hash,
    json::{Index, Obj, Word},
};

/// An event, or a response that came in place of one.
#[derive(Deserialize)]
#[serde(expecting = "an object of the responses API")]
pub(super) struct Said<'a> {
    #[serde(borrow, default, rename = "type")]
    pub(super) kind: Option<Word<'a>>,
    #[serde(borrow, default)]
    pub(super) response: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) item: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) part: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) delta: Option<Word<'a>>,
    #[serde(borrow, default)]
    pub(super) text: Option<Word<'a>>,
    #[serde(borrow, default)]
    pub(super) refusal: Option<Word<'a>>,
    #[serde(borrow, default)]
    pub(super) arguments: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) input: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) name: Option<Word<'a>>,
    #[serde(borrow, default)]
    item_id: Option<Word<'a>>,
    #[serde(default)]
    output_index: Option<Index>,
    #[serde(default)]
    content_index: Option<Index>,
    #[serde(default)]
    summary_index: Option<Index>,
    #[serde(borrow, default)]
    pub(super) error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) code: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) message: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) object: Option<Word<'a>>,
    #[serde(borrow, default)]
    pub(super) status: Option<Word<'a>>,
    #[serde(borrow, default)]
    pub(super) output: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) output_text: Option<&'a RawValue>,
}

impl Said<'_> {
    /// The item it is of.
    pub(super) fn of(&self) -> Name {
        Name { index: number(self.output_index), ids: [id(word(&self.item_id)), None] }
    }

    /// The part it is of.
    pub(super) fn part_index(&self) -> Option<u64> {
        number(self.content_index).or(number(self.summary_index))
    }

    /// Whether it is a response itself.
    pub(super) fn is_response(&self) -> bool {
        word(&self.object) == "response"
            || self.output.is_some()
            || self.output_text.is_some()
            || (self.status.is_some() && self.code.is_none() && self.message.is_none())
    }

    /// Whether its own fields are those of an error.
    pub(super) fn is_flat_error(&self) -> bool {
        word(&self.object) == "error" || (self.code.is_some() && self.message.is_some())
    }
}

/// A response, at whatever state.
#[derive(Default, Deserialize)]
pub(super) struct Response<'a> {
    #[serde(borrow, default)]
    pub(super) id: Option<Word<'a>>,
    #[serde(borrow, default)]
    pub(super) status: Option<Word<'a>>,
    #[serde(borrow, default)]
    incomplete_details: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    output: Option<&'a RawValue>,
    #[serde(borrow, default)]
    output_text: Option<Word<'a>>,
    #[serde(borrow, default)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    background: Option<&'a RawValue>,
}

impl<'a> Response<'a> {
    pub(super) fn read(raw: &'a str) -> Self {
        object(raw).unwrap_or_default()
    }

    /// Why it is not complete, where it says so.
    pub(super) fn reason(&self) -> Cow<'a, str> {
        #[derive(Deserialize)]
        struct Details<'a> {
            #[serde(borrow, default)]
            reason: Option<Word<'a>>,
        }
        let details = self.incomplete_details.and_then(|raw| object::<Details<'_>>(raw.get()));
        details.and_then(|details| details.reason?.0).unwrap_or_default()
    }

    /// Whether it runs on when nobody listens.
    pub(super) fn is_background(&self) -> bool {
        self.background.is_some_and(|raw| raw.get() == "true")
    }

    /// Its output that is read, item by item.
    pub(super) fn items(&self) -> Vec<Whole> {
        let raw = self.output.map_or("null", RawValue::get);
        if let Some(text) = string(raw) {
            return vec![Whole::text(text.into_owned())];
        }
        let items: Vec<_> = list(raw)
            .into_iter()
            .enumerate()
            .filter_map(|(index, raw)| {
                let index = Some(index as u64);
                object::<Item<'_>>(raw.get())?.whole(raw.get(), index)
            })
            .collect();
        // What some servers give beside the items, or in their place.
        let says = |whole: &Whole| whole.kind == Kind::Message && !whole.pieces.is_empty();
        match word(&self.output_text) {
            text if !text.is_empty() && !items.iter().any(says) => {
                items.into_iter().chain([Whole::text(text.to_owned())]).collect()
            }
            _ => items,
        }
    }
}

impl Whole {
    /// Text without an item around it.
    fn text(text: String) -> Self {
        let pieces = vec![(Piece::Text, 0, text)];
        Whole { kind: Kind::Message, name: Name::default(), tool: String::new(), pieces }
    }
}

/// An item of the output.
#[derive(Deserialize)]
pub(super) struct Item<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Option<Word<'a>>,
    #[serde(borrow, default)]
    id: Option<Word<'a>>,
    #[serde(borrow, default)]
    call_id: Option<Word<'a>>,
    #[serde(borrow, default)]
    role: Option<Word<'a>>,
    #[serde(borrow, default)]
    name: Option<Word<'a>>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    summary: Option<&'a RawValue>,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow, default)]
    input: Option<&'a RawValue>,
    #[serde(borrow, default)]
    action: Option<&'a RawValue>,
    #[serde(borrow, default)]
    actions: Option<&'a RawValue>,
    #[serde(borrow, default)]
    operation: Option<&'a RawValue>,
    #[serde(borrow, default)]
    environment: Option<&'a RawValue>,
    #[serde(borrow, default)]
    execution: Option<Word<'a>>,
}

impl Item<'_> {
    /// What it is to the answer; `None` if nothing.
    ///
    /// A call counts when the client must run it. Searches, code, images and remote tools are run
    /// by the server; so is a shell in its container, and a tool search but for one that says that
    /// the client executes it. A request to approve a remote tool is no call.
    pub(super) fn kind(&self) -> Option<Kind> {
        match word(&self.kind) {
            "message" => Some(Kind::Message),
            "" if self.content.is_some() => Some(Kind::Message),
            "output_text" | "text" | "refusal" => Some(Kind::Message),
            "reasoning" => Some(Kind::Reasoning),
            "function_call" | "custom_tool_call" | "computer_call" | "local_shell_call"
            | "apply_patch_call" => Some(Kind::Call),
            "shell_call" => {
                let place = self.environment.map_or("", RawValue::get);
                let within = object::<Part<'_>>(place);
                let within = within.as_ref().map_or("", |within| word(&within.kind));
                (!within.starts_with("container")).then_some(Kind::Call)
            }
            "tool_search_call" => (word(&self.execution) == "client").then_some(Kind::Call),
            _ => None,
        }
        // What the caller said is no answer, though a compacted context holds it.
        .filter(|kind| *kind != Kind::Message || matches!(word(&self.role), "" | "assistant"))
    }

    /// How it is called, at this place of the output.
    pub(super) fn called(&self, index: Option<u64>) -> Name {
        Name { index, ids: [id(word(&self.id)), id(word(&self.call_id))] }
    }

    /// The name of its tool: a function's own, else what kind of tool it is.
    pub(super) fn tool(&self) -> &str {
        match word(&self.kind) {
            "function_call" | "custom_tool_call" => word(&self.name),
            kind => kind,
        }
    }

    /// All of it; `raw` is its own text.
    pub(super) fn whole(&self, raw: &str, index: Option<u64>) -> Option<Whole> {
        let kind = self.kind()?;
        let mut pieces = Vec::new();
        match kind {
            Kind::Message => match self.content.map(RawValue::get) {
                Some(content) => texts(content, &mut pieces),
                // A part that stands where an item should.
                None => pieces.extend(object::<Part<'_>>(raw).and_then(|part| part.piece(0))),
            },
            Kind::Call => {
                let said = [self.arguments, self.input, self.action, self.actions, self.operation];
                let said = said.into_iter().flatten().next();
                let said = said.map(|raw| string_or_json(raw).into_owned());
                pieces.extend(said.map(|said| (Piece::Arguments, 0, said)));
            }
            Kind::Reasoning => {
                for (raw, piece) in [(self.summary, Piece::Summary), (self.content, Piece::Thought)]
                {
                    thoughts(raw.map_or("null", RawValue::get), piece, &mut pieces);
                }
            }
        }
        let tool = if kind == Kind::Call { self.tool().to_owned() } else { String::new() };
        Some(Whole { kind, name: self.called(index), tool, pieces })
    }
}

/// A part of a message or of reasoning.
#[derive(Deserialize)]
pub(super) struct Part<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Option<Word<'a>>,
    #[serde(borrow, default)]
    text: Option<Word<'a>>,
    #[serde(borrow, default)]
    refusal: Option<Word<'a>>,
}

impl Part<'_> {
    /// What it says, at this place among the parts.
    pub(super) fn piece(&self, index: u64) -> Option<(Piece, u64, String)> {
        let (piece, text) = match word(&self.kind) {
            "output_text" | "text" => (Piece::Text, word(&self.text)),
            "" if self.refusal.is_none() => (Piece::Text, word(&self.text)),
            "refusal" | "" => (Piece::Refusal, word(&self.refusal)),
            "summary_text" => (Piece::Summary, word(&self.text)),
            "reasoning_text" => (Piece::Thought, word(&self.text)),
            _ => return None,
        };
        Some((piece, index, text.to_owned()))
    }
}

/// The texts of a message: a string, or a list of parts.
fn texts(raw: &str, pieces: &mut Vec<(Piece, u64, String)>) {
    if let Some(text) = string(raw) {
        pieces.push((Piece::Text, 0, text.into_owned()));
    }
    for (index, raw) in list(raw).into_iter().enumerate() {
        let index = index as u64;
        let piece = match string(raw.get()) {
            Some(text) => Some((Piece::Text, index, text.into_owned())),
            None => object::<Part<'_>>(raw.get()).and_then(|part| part.piece(index)),
        };
        // Reasoning between the parts of a message is no text of it.
        pieces.extend(piece.filter(|(piece, ..)| matches!(piece, Piece::Text | Piece::Refusal)));
    }
}

/// The texts of reasoning: a string, or a list of strings and parts.
fn thoughts(raw: &str, piece: Piece, pieces: &mut Vec<(Piece, u64, String)>) {
    let text_of = |raw: &str| match string(raw) {
        Some(text) => Some(text.into_owned()),
        None => object::<Part<'_>>(raw).map(|part| word(&part.text).to_owned()),
    };
    if raw.starts_with('[') {
        let texts = list(raw).into_iter().enumerate();
        pieces.extend(texts.filter_map(|(at, raw)| Some((piece, at as u64, text_of(raw.get())?))));
    } else {
        pieces.extend(text_of(raw).map(|text| (piece, 0, text)));
    }
}

/// A string, or "" for anything else.
pub(super) fn word<'b>(word: &'b Option<Word<'_>>) -> &'b str {
    word.as_ref().and_then(|Word(word)| word.as_deref()).unwrap_or_default()
}

/// What a call is to be run with: a string of JSON as a rule, from some servers the JSON itself.
pub(super) fn string_or_json(raw: &RawValue) -> Cow<'_, str> {
    string(raw.get()).unwrap_or(Cow::Borrowed(raw.get()))
}

pub(super) fn object<'a, T: Deserialize<'a>>(raw: &'a str) -> Option<T> {
    serde_json::from_str::<Obj<T>>(raw).ok().map(|Obj(object)| object)
}

fn string(raw: &str) -> Option<Cow<'_, str>> {
    raw.starts_with('"').then(|| serde_json::from_str::<Word<'_>>(raw).ok()?.0).flatten()
}

fn list(raw: &str) -> Vec<&RawValue> {
    serde_json::from_str(raw).unwrap_or_default()
}

fn id(id: &str) -> Option<u64> {
    (!id.is_empty()).then(|| id_hash(id))
}

fn number(index: Option<Index>) -> Option<u64> {
    index.map(|Index(index)| index).filter(|index| *index != u64::MAX)
}
