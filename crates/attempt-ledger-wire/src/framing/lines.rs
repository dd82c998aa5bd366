use memchr::memchr;

use crate::{
    event::{Event, Kind, Sink},
    json,
};

/// How much the buffer grows at once, at least.
const STEP: usize = 1024;

/// Splits a byte stream of any chunking into lines; blank ones are none.
///
/// A line ends in LF, and white space around it, a CR above all, is no part of it: between the
/// tokens of JSON a lone CR is white space. One byte-order mark at the start is skipped. A line
/// that lies in one chunk is lent from it; only the unfinished tail is copied.
#[derive(Debug)]
pub(crate) struct Lines {
    /// The unfinished line as it came.
    tail: Vec<u8>,
    max: usize,
    is_first: bool,
    closed: bool,
}

impl Lines {
    pub(crate) fn new(max: usize) -> Self {
        Lines { tail: Vec::new(), max, is_first: true, closed: false }
    }

    /// Bytes allocated for what has not been handed on.
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
                let mut line = std::mem::take(&mut self.tail);
                self.hand_on(&line, true, sink);
                if !self.closed {
                    line.clear();
                    self.tail = line;
                }
            }
        }
        if !self.closed {
            self.keep(bytes, sink);
        }
    }

    /// The input has ended: hands on the last line although nothing ends it.
    pub(crate) fn finish(&mut self, sink: &mut impl Sink) {
        let line = std::mem::take(&mut self.tail);
        if !self.closed {
            self.hand_on(&line, false, sink);
        }
        self.close();
    }

    /// Reads no more, and frees what is held.
    pub(crate) fn close(&mut self) {
        self.closed = true;
        self.tail = Vec::new();
    }

    fn hand_on(&mut self, line: &[u8], complete: bool, sink: &mut impl Sink) {
        let is_first = std::mem::replace(&mut self.is_first, false);
        let data = if is_first { json::without_bom(line) } else { line }.trim_ascii();
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
        if self.tail.capacity() - self.tail.len() < bytes.len() {
            // A fraction more than is needed: no line is copied again and again, and little is
            // held beyond the longest.
            self.tail.reserve_exact(bytes.len().max(self.tail.len() / 8).max(STEP));
        }
        self.tail.extend_from_slice(bytes);
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What came, in the order in which it did.
    #[derive(Debug, Default, PartialEq, Eq)]
    struct Seen {
        lines: Vec<(Vec<u8>, bool)>,
        over: bool,
        /// After how many lines it wants no more.
        enough: Option<usize>,
    }

    impl Sink for Seen {
        fn event(&mut self, event: Event<'_>) -> bool {
            assert_eq!((event.kind, event.name), (Kind::Data, ""));
            self.lines.push((event.data.to_vec(), event.complete));
            self.enough != Some(self.lines.len())
        }

        fn broken(&mut self) {
            panic!("a line cannot be broken");
        }

        fn over_bound(&mut self) {
            assert!(!self.over, "said once");
            self.over = true;
        }
    }

    fn split<'a>(
        pieces: impl IntoIterator<Item = &'a [u8]>,
        max: usize,
        enough: Option<usize>,
    ) -> Seen {
        let (mut lines, mut seen) = (Lines::new(max), Seen { enough, ..Seen::default() });
        for piece in pieces {
            lines.feed(piece, &mut seen);
            assert!(lines.held() <= max + max / 8 + STEP, "{} held", lines.held());
        }
        lines.finish(&mut seen);
        assert_eq!(lines.held(), 0, "nothing is held at the end");
        seen
    }

    fn whole(input: &str) -> Vec<(String, bool)> {
        let seen = split([input.as_bytes()], 100, None);
        assert!(!seen.over);
        let text = |(line, complete)| (String::from_utf8(line).expect("text"), complete);
        seen.lines.into_iter().map(text).collect()
    }

    #[test]
    fn a_line_ends_in_lf_and_a_blank_one_is_none() {
        let done = |text: &str| (text.to_owned(), true);
        assert_eq!(whole("{}\n[]\n"), [done("{}"), done("[]")]);
        assert_eq!(whole("{}\r\n\r\n \t\n\n 1 \r\n"), [done("{}"), done("1")]);
        assert_eq!(whole("{\r}\r{}\n"), [done("{\r}\r{}")], "a lone CR ends none");
        assert_eq!(whole("{}\n{\"a\""), [done("{}"), ("{\"a\"".to_owned(), false)]);
        assert_eq!(whole("\n\r\n  "), []);
        assert_eq!(whole(""), []);
    }

    #[test]
    fn one_mark_at_the_start_is_skipped() {
        let bom = "\u{feff}";
        assert_eq!(
            whole(&format!("{bom}1\n{bom}2\n")),
            [("1".to_owned(), true), (format!("{bom}2"), true)]
        );
        assert_eq!(whole(&format!("{bom}\n1\n")), [("1".to_owned(), true)]);
        assert_eq!(whole(&format!("{bom}{bom}1")), [(format!("{bom}1"), false)]);
        assert_eq!(whole(&format!("\n{bom}1\n")), [(format!("{bom}1"), true)]);
    }

    #[test]
    fn a_line_over_the_bound_ends_the_reading() {
        for (input, lines, over) in [
            ("12345\n1\n", 2, false),
            ("1\n123456\n1\n", 1, true),
            ("1\n123456", 1, true),
            ("1\n     \r\n1\n", 1, true),
        ] {
            let seen = split([input.as_bytes()], 5, None);
            assert_eq!((seen.lines.len(), seen.over), (lines, over), "{input:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: ProptestConfig::default().cases.max(2000),
            ..ProptestConfig::default()
        })]

        /// The lines are those of the whole input, wherever it was cut.
        #[test]
        fn chunking_changes_nothing(
            parts in prop::collection::vec(prop::sample::select(vec![
                "{}", "[1,\r2]", "\n", "\r\n", "\r", "\n\n", " ", "\u{feff}", "naïve", "\0", "12345678",
            ]), 0..16),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
            max in 4..40usize,
            enough in prop::option::of(1..4usize),
        ) {
            let input = parts.concat().into_bytes();
            let want = split([&*input], max, enough);
            prop_assert_eq!(&split(input.chunks(1), max, enough), &want);
            let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(input.len() + 1)).collect();
            cuts.sort_unstable();
            let starts = [0].into_iter().chain(cuts.iter().copied());
            let ends = cuts.iter().copied().chain([input.len()]);
            let pieces = starts.zip(ends).map(|(from, to)| &input[from..to]);
            prop_assert_eq!(&split(pieces, max, enough), &want);
            // What a plain reading finds, as long as nothing ends it early.
            if !want.over && enough.is_none() {
                let text = input.strip_prefix(json::BOM).unwrap_or(&input);
                let lines: Vec<_> = text
                    .split(|b| *b == b'\n')
                    .map(<[u8]>::trim_ascii)
                    .filter(|line| !line.is_empty())
                    .collect();
                let found: Vec<_> = want.lines.iter().map(|(line, _)| &**line).collect();
                prop_assert_eq!(found, lines);
            }
        }
    }
}
