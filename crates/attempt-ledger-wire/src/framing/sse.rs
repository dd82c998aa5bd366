use memchr::{memchr, memchr2};

use crate::event::{Event, Kind, Sink};

/// Bytes of an event's name that are kept.
const MAX_NAME: usize = 64;

/// How much a buffer grows at once: exact, so that little is held beyond the longest event.
const STEP: usize = 1024;

/// Splits a byte stream of any chunking into server-sent events.
///
/// An event whose lines lie in one chunk is lent from that chunk; only the unfinished tail is
/// copied. Line ends are LF, CRLF or CR, also mixed; one byte-order mark at the start is skipped;
/// comments and unknown fields are dropped, and an event without data is none. The crate's page
/// lists what differs from the rules of WHATWG; each difference has its test.
#[derive(Debug)]
pub(crate) struct Sse {
    /// The data of the event so far, joined by LF, and behind it the unfinished line as it came.
    buf: Vec<u8>,
    /// Where the unfinished line starts.
    data_len: usize,
    event: Pending,
    /// The event's name, cut to a bound.
    name: Vec<u8>,
    first_line: bool,
    /// The last line ended in CR at the end of a chunk: a LF that follows belongs to it.
    skip_lf: bool,
    over: bool,
    closed: bool,
    max_event: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Pending {
    has_data: bool,
    kind: Kind,
}

enum Field {
    Blank,
    Data(usize),
    ErrorData(usize),
    Name(usize),
    Ignored,
}

impl Sse {
    pub(crate) fn new(max_event: usize) -> Self {
        Sse {
            buf: Vec::new(),
            data_len: 0,
            event: Pending::default(),
            name: Vec::new(),
            first_line: true,
            skip_lf: false,
            over: false,
            closed: false,
            max_event,
        }
    }

    /// Bytes allocated for what has not been handed on.
    pub(crate) fn held(&self) -> usize {
        self.buf.capacity() + self.name.capacity()
    }

    pub(crate) fn feed(&mut self, mut bytes: &[u8], sink: &mut impl Sink) {
        if self.closed || bytes.is_empty() {
            return;
        }
        if self.skip_lf {
            self.skip_lf = false;
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        // The data of an event that began in this chunk, as long as it is one line.
        let mut lent: Option<&[u8]> = None;
        while let Some(at) = memchr2(b'\n', b'\r', bytes) {
            let (line, rest) = bytes.split_at(at);
            bytes = self.after_line_end(rest);
            if self.buf.len() > self.data_len {
                self.append(line);
                self.end_buffered_line(true, sink);
            } else {
                self.lent_line(line, &mut lent, sink);
            }
            if self.closed {
                return;
            }
            if self.over {
                return self.end_over(sink);
            }
        }
        if let Some(data) = lent {
            self.keep(data);
        }
        self.append(bytes);
        if self.over {
            self.end_over(sink);
        }
    }

    /// The input has ended: hands on the last event although its blank line is missing.
    pub(crate) fn finish(&mut self, sink: &mut impl Sink) {
        if self.closed {
            return;
        }
        if self.buf.len() > self.data_len {
            self.end_buffered_line(false, sink);
        }
        if !self.closed {
            self.dispatch(None, false, sink);
        }
        self.close();
    }

    fn after_line_end<'a>(&mut self, rest: &'a [u8]) -> &'a [u8] {
        match rest {
            [b'\r', b'\n', rest @ ..] => rest,
            [b'\r'] => {
                self.skip_lf = true;
                &[]
            }
            [_, rest @ ..] => rest,
            [] => rest,
        }
    }

    /// A line that lies whole in the chunk.
    fn lent_line<'a>(&mut self, line: &'a [u8], lent: &mut Option<&'a [u8]>, sink: &mut impl Sink) {
        let held = lent.map_or(self.data_len, <[u8]>::len);
        if held + line.len() > self.max_event {
            self.over = true;
            return;
        }
        let line = self.without_bom(line);
        let from = match field(line) {
            Field::Blank => return self.dispatch(lent.take(), true, sink),
            Field::Data(from) => from,
            Field::ErrorData(from) => {
                self.event.kind = Kind::ErrorField;
                from
            }
            Field::Name(from) => {
                self.set_name(line.get(from..).unwrap_or_default());
                return;
            }
            Field::Ignored => return,
        };
        let value = line.get(from..).unwrap_or_default();
        if self.event.has_data {
            if let Some(first) = lent.take() {
                self.keep(first);
            }
            self.keep(b"\n");
            self.keep(value);
        } else {
            *lent = Some(value);
        }
        self.event.has_data = true;
    }

    /// The line that `buf` holds behind the data is complete.
    fn end_buffered_line(&mut self, complete: bool, sink: &mut impl Sink) {
        let start = self.data_len;
        let line = self.buf.get(start..).unwrap_or_default();
        let bom = if self.first_line && line.starts_with(BOM) { BOM.len() } else { 0 };
        self.first_line = false;
        let found = field(line.get(bom..).unwrap_or_default());
        let from = match found {
            Field::Blank => {
                self.buf.truncate(start);
                return self.dispatch(None, complete, sink);
            }
            Field::Data(from) => from,
            Field::ErrorData(from) => {
                self.event.kind = Kind::ErrorField;
                from
            }
            Field::Name(from) => {
                let buf = std::mem::take(&mut self.buf);
                self.set_name(buf.get(start + bom + from..).unwrap_or_default());
                self.buf = buf;
                self.buf.truncate(start);
                return;
            }
            Field::Ignored => {
                self.buf.truncate(start);
                return;
            }
        };
        // The field's name is at least as long as the LF that takes its place.
        let mut to = start;
        if self.event.has_data
            && let Some(byte) = self.buf.get_mut(to)
        {
            *byte = b'\n';
            to += 1;
        }
        let from = start + bom + from;
        let len = self.buf.len() - from;
        self.buf.copy_within(from.., to);
        self.buf.truncate(to + len);
        self.data_len = self.buf.len();
        self.event.has_data = true;
    }

    /// The last name of an event counts.
    fn set_name(&mut self, name: &[u8]) {
        self.name.clear();
        self.name.extend_from_slice(name.get(..MAX_NAME).unwrap_or(name));
        if self.event.kind != Kind::ErrorField {
            self.event.kind = if name == b"error" { Kind::NamedError } else { Kind::Data };
        }
    }

    fn dispatch(&mut self, lent: Option<&[u8]>, complete: bool, sink: &mut impl Sink) {
        let Pending { has_data, kind } = std::mem::take(&mut self.event);
        let data = lent.unwrap_or_else(|| self.buf.get(..self.data_len).unwrap_or_default());
        let is_event = has_data && !data.trim_ascii().is_empty();
        let name = std::str::from_utf8(&self.name).unwrap_or_default();
        let go_on = !is_event || sink.event(Event { data, name, kind, complete });
        self.name.clear();
        self.buf.clear();
        self.data_len = 0;
        if !go_on {
            self.close();
        }
    }

    fn without_bom<'a>(&mut self, line: &'a [u8]) -> &'a [u8] {
        if std::mem::take(&mut self.first_line) {
            line.strip_prefix(BOM).unwrap_or(line)
        } else {
            line
        }
    }

    /// Appends to the event's data; only while no unfinished line is behind it.
    fn keep(&mut self, data: &[u8]) {
        self.append(data);
        self.data_len = self.buf.len();
    }

    /// Appends to the unfinished line.
    fn append(&mut self, bytes: &[u8]) {
        if self.buf.len() + bytes.len() > self.max_event {
            self.over = true;
            return;
        }
        if self.buf.capacity() - self.buf.len() < bytes.len() {
            self.buf.reserve_exact(bytes.len().max(STEP));
        }
        self.buf.extend_from_slice(bytes);
    }

    fn end_over(&mut self, sink: &mut impl Sink) {
        self.close();
        sink.over_bound();
    }

    /// Reads no more, and frees what is held.
    pub(crate) fn close(&mut self) {
        self.closed = true;
        self.buf = Vec::new();
        self.name = Vec::new();
        self.data_len = 0;
        self.event = Pending::default();
    }
}

const BOM: &[u8] = b"\xef\xbb\xbf";

fn field(line: &[u8]) -> Field {
    let (name, value) = match memchr(b':', line.get(..6).unwrap_or(line)) {
        Some(at) => (&line[..at], at + 1),
        None => (line, line.len()),
    };
    let from = if line.get(value) == Some(&b' ') { value + 1 } else { value };
    match name {
        b"" if line.is_empty() => Field::Blank,
        b"data" => Field::Data(from),
        b"error" if from < line.len() => Field::ErrorData(from),
        b"event" => Field::Name(from),
        _ => Field::Ignored,
    }
}

#[cfg(test)]
mod tests;
