//! How a stream's events lie in its bytes.

use crate::event::Sink;

pub(crate) mod frames;
pub(crate) mod lines;
pub(crate) mod list;
pub(crate) mod sse;

use frames::Frames;
use lines::Lines;
use list::List;
use sse::Sse;

/// Takes a stream apart into events, in any chunking.
#[derive(Debug)]
pub(crate) enum Framing {
    /// Server-sent events.
    Sse(Sse),
    /// A JSON value a line.
    Lines(Lines),
    /// The elements of one JSON list.
    List(List),
    /// Binary frames with checksums.
    Frames(Frames),
}

macro_rules! each {
    ($framing:expr, $name:ident => $do:expr) => {
        match $framing {
            Framing::Sse($name) => $do,
            Framing::Lines($name) => $do,
            Framing::List($name) => $do,
            Framing::Frames($name) => $do,
        }
    };
}

impl Framing {
    pub(crate) fn feed(&mut self, bytes: &[u8], sink: &mut impl Sink) {
        each!(self, framing => framing.feed(bytes, sink));
    }

    /// The input has ended: hands on the last event although what ends it is missing.
    pub(crate) fn finish(&mut self, sink: &mut impl Sink) {
        each!(self, framing => framing.finish(sink));
    }

    /// Reads no more, and frees what is held.
    pub(crate) fn close(&mut self) {
        each!(self, framing => framing.close());
    }

    /// Bytes allocated for what has not been handed on.
    pub(crate) fn held(&self) -> usize {
        each!(self, framing => framing.held())
    }
}
