//! The wire `plain`: no protocol that is known here; the body itself is the content.

use serde::de::IgnoredAny;

use crate::{
    event::Event,
    gather::Gather,
    json,
    wire::{self, Spec},
};

pub(crate) const PLAIN: Spec = Spec {
    name: "plain",
    paths: &[],
    usage: ("", ""),
    lists: false,
    statuses: &[],
    request: |_| None,
};

#[derive(Debug, Default)]
pub(crate) struct Reader;

impl wire::Reader for Reader {
    /// Its data is content, joined to the data before it by LF.
    fn event(&mut self, event: &Event<'_>, gather: &mut Gather) -> bool {
        if gather.is_open() {
            text(event, gather);
        }
        true
    }

    /// It must parse; all of it is content. An empty one is an empty answer.
    fn document(&mut self, body: &[u8], cut: bool, gather: &mut Gather) {
        let value = json::without_bom(body);
        let blank = value.iter().all(u8::is_ascii_whitespace);
        let parses = blank || serde_json::from_slice::<IgnoredAny>(value).is_ok();
        match std::str::from_utf8(body) {
            Ok(text) if parses => gather.text(text),
            Ok(_) | Err(_) if cut => {}
            Ok(_) | Err(_) => gather.malformed(),
        }
    }
}

fn text(event: &Event<'_>, gather: &mut Gather) {
    match std::str::from_utf8(event.data) {
        Ok(text) => {
            if gather.progress > 0 {
                gather.text("\n");
            }
            gather.text(text);
            gather.progress += 1;
        }
        Err(_) if event.complete => gather.malformed(),
        Err(_) => {}
    }
}

/// Text of any chunking; a character that a chunk cuts waits for its rest.
#[derive(Debug, Default)]
pub(crate) struct Utf8 {
    tail: Vec<u8>,
}

impl Utf8 {
    pub(crate) fn feed(&mut self, mut bytes: &[u8], gather: &mut Gather) {
        while let (false, Some((first, rest))) = (self.tail.is_empty(), bytes.split_first()) {
            self.tail.push(*first);
            bytes = rest;
            match std::str::from_utf8(&self.tail) {
                Ok(text) => gather.text(text),
                Err(error) if error.error_len().is_none() => continue,
                Err(_) => gather.malformed(),
            }
            self.tail.clear();
        }
        if !gather.is_open() {
            return;
        }
        match std::str::from_utf8(bytes) {
            Ok(text) => gather.text(text),
            Err(error) => {
                let (valid, rest) = bytes.split_at(error.valid_up_to());
                gather.text(std::str::from_utf8(valid).unwrap_or_default());
                match error.error_len() {
                    None => self.tail.extend_from_slice(rest),
                    Some(_) => gather.malformed(),
                }
            }
        }
    }

    /// The input has ended as its framing says.
    pub(crate) fn finish(&mut self, gather: &mut Gather) {
        if !std::mem::take(&mut self.tail).is_empty() && gather.is_open() {
            gather.malformed();
        }
    }
}
