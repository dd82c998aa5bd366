//! Vendors that answer with plain text under names of their own.

use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use crate::{
    error,
    event::{Event, Kind},
    gather::Gather,
    json::{self, Few, Obj, Text},
    wire,
};

/// Reads the answers of Llama, Titan, Mistral's text models, the older Claude and Jurassic: an
/// event of a stream has the fields of a document.
#[derive(Debug, Default)]
pub(crate) struct Reader;

impl wire::Reader for Reader {
    fn event(&mut self, event: &Event<'_>, gather: &mut Gather) -> bool {
        if !gather.is_open() {
            return true;
        }
        if event.kind != Kind::Data {
            error::event(event, gather);
            return true;
        }
        match json::parse::<Obj<Piece<'_>>>(event.data, &mut None) {
            Ok(Obj(piece)) => match piece.error {
                Some(error) => gather.reported(error::from_value(&json::value(error))),
                None => {
                    piece.merge(gather);
                    gather.progress += 1;
                }
            },
            Err(error) if event.complete => gather.unread(&error),
            Err(_) => {}
        }
        true
    }

    fn document(&mut self, body: &[u8], cut: bool, gather: &mut Gather) {
        match json::parse::<Obj<Piece<'_>>>(body, &mut None) {
            Ok(Obj(piece)) => {
                piece.merge(gather);
                if let Some(error) = piece.error {
                    gather.error(error::from_value(&json::value(error)));
                }
            }
            Err(_) if cut => {}
            Err(error) => gather.unread(&error),
        }
    }
}

#[derive(Deserialize)]
struct Piece<'a> {
    /// Llama's.
    #[serde(borrow, default)]
    generation: Option<Text<'a>>,
    #[serde(default)]
    prompt_token_count: Value,
    #[serde(default)]
    generation_token_count: Value,
    /// Titan's, whose documents have it in `results`.
    #[serde(borrow, default, rename = "outputText")]
    output_text: Option<Text<'a>>,
    #[serde(borrow, default, rename = "completionReason")]
    completion_reason: Option<Text<'a>>,
    #[serde(default, rename = "inputTextTokenCount")]
    input_count: Value,
    #[serde(default, rename = "totalOutputTextTokenCount")]
    output_count: Value,
    #[serde(borrow, default)]
    results: Option<Few<Obj<Part<'a>>>>,
    /// The older Claude's.
    #[serde(borrow, default)]
    completion: Option<Text<'a>>,
    #[serde(borrow, default)]
    stop_reason: Option<Text<'a>>,
    /// Mistral's.
    #[serde(borrow, default)]
    outputs: Option<Few<Obj<Part<'a>>>>,
    /// Jurassic's.
    #[serde(borrow, default)]
    completions: Option<Few<Obj<Part<'a>>>>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

impl Piece<'_> {
    fn merge(&self, gather: &mut Gather) {
        let lists = [&self.results, &self.outputs, &self.completions];
        let parts = lists.into_iter().find_map(|list| list.as_ref());
        for index in 0..parts.map_or(0, |parts| parts.iter().count()) {
            gather.choice(index as u64);
        }
        let part = parts.and_then(Few::first).map(|Obj(part)| part);
        let texts = [&self.generation, &self.output_text, &self.completion];
        let of_part = part.and_then(|part| {
            let data = part.data.as_ref().and_then(|Obj(data)| data.text.as_ref());
            part.text.as_ref().or(part.output_text.as_ref()).or(data)
        });
        for Text(text) in texts.into_iter().flatten().chain(of_part) {
            gather.text(text);
        }
        let of_part = part.and_then(|part| {
            let finish = part.finish_reason.as_ref().and_then(|Obj(finish)| finish.reason.as_ref());
            part.stop_reason.as_ref().or(part.completion_reason.as_ref()).or(finish)
        });
        let words = [&self.stop_reason, &self.completion_reason];
        for Text(word) in words.into_iter().flatten().chain(of_part) {
            gather.stop_word(word);
        }
        let of_part = part.and_then(|part| json::count(&part.token_count));
        gather.usage(
            json::count(&self.prompt_token_count),
            json::count(&self.generation_token_count),
        );
        gather.usage(json::count(&self.input_count), json::count(&self.output_count).or(of_part));
    }
}

/// One of several answers.
#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow, default)]
    text: Option<Text<'a>>,
    #[serde(borrow, default, rename = "outputText")]
    output_text: Option<Text<'a>>,
    #[serde(borrow, default)]
    data: Option<Obj<Data<'a>>>,
    #[serde(borrow, default)]
    stop_reason: Option<Text<'a>>,
    #[serde(borrow, default, rename = "completionReason")]
    completion_reason: Option<Text<'a>>,
    #[serde(borrow, default, rename = "finishReason")]
    finish_reason: Option<Obj<Finish<'a>>>,
    #[serde(default, rename = "tokenCount")]
    token_count: Value,
}

#[derive(Deserialize)]
struct Data<'a> {
    #[serde(borrow, default)]
    text: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct Finish<'a> {
    #[serde(borrow, default)]
    reason: Option<Text<'a>>,
}
