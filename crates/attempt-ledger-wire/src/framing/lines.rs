use memchr::memchr;

use crate::event::{Event, Kind, Sink};

/// Splits a byte stream of any chunking into lines; blank ones are none.
///
/// A line that lies in one chunk is lent from it; only the unfinished tail is copied.
#[derive(Debug)]
pub(crate) struct Lines {
    tail: Vec<u8>,
    max: usize,
    closed: bool,
}

impl Lines {
    pub(crate) fn new(max: usize) -> Self {
        Lines { tail: Vec::new(), max, closed: false }
    }

    pub(crate) fn held(&self) -> usize {
        self.tail.capacity()
    }

    pub(crate) fn feed(&mut self, mut bytes: &[u8], sink: &mut impl Sink) {
        while let (false, Some(at)) = (self.closed, memchr(b'\n', bytes)) {
            let (line, rest) = bytes.split_at(at);
            bytes = rest.get(1..).unwrap_or_default();
            if self.tail.is_empty() && line.len() <= self.max {
                self.hand_on(line, true, sink);
            } else if self.keep(line, sink) {
                let line = std::mem::take(&mut self.tail);
                self.hand_on(&line, true, sink);
            }
        }
        if !self.closed {
            self.keep(bytes, sink);
        }
    }

    pub(crate) fn finish(&mut self, sink: &mut impl Sink) {
        let line = std::mem::take(&mut self.tail);
        if !self.closed {
            self.hand_on(&line, false, sink);
        }
        self.close();
    }

    pub(crate) fn close(&mut self) {
        self.closed = true;
        self.tail = Vec::new();
    }

    fn hand_on(&mut self, line: &[u8], complete: bool, sink: &mut impl Sink) {
        let data = line.trim_ascii();
        let event = Event { data, name: "", kind: Kind::Data, complete };
        if !data.is_empty() && !sink.event(event) {
            self.close();
        }
    }

    /// False if the line would be over the bound.
    fn keep(&mut self, bytes: &[u8], sink: &mut impl Sink) -> bool {
        if self.tail.len() + bytes.len() > self.max {
            self.close();
            sink.over_bound();
            return false;
        }
        self.tail.extend_from_slice(bytes);
        true
    }
}
