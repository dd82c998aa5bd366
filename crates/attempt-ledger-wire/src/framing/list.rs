use memchr::memchr2;

use crate::event::{Event, Kind, Sink};

/// How much the buffer grows at once, at least.
const STEP: usize = 1024;

/// Splits a JSON list that is delivered piecewise into its elements, each as soon as it is whole.
///
/// An element that lies in one chunk is lent from it; only the unfinished one is copied. Brackets
/// are counted, not matched: whoever parses the element sees what does not fit. A list that ends
/// without its bracket is not broken by that alone.
#[derive(Debug)]
pub(crate) struct List {
    place: Place,
    /// The unfinished element, as far as earlier chunks had it.
    tail: Vec<u8>,
    max: usize,
    closed: bool,
}

/// Where in the list the next byte stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Before its bracket.
    Before,
    /// Behind its bracket: an element or the end.
    Opened,
    /// In an element.
    Element(Inside),
    /// Behind an element: a comma or the end.
    Between,
    /// Behind a comma: an element.
    AfterComma,
    /// Behind the end.
    After,
}

/// Where in an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inside {
    /// A number, a word, or what should be one.
    Bare,
    /// Between the tokens of an object or list, so many brackets deep.
    Brackets(usize),
    /// In a string, so many brackets deep.
    String(usize),
    /// In a string, behind a backslash.
    Escaped(usize),
}

impl List {
    pub(crate) fn new(max: usize) -> Self {
        List { place: Place::Before, tail: Vec::new(), max, closed: false }
    }

    pub(crate) fn held(&self) -> usize {
        self.tail.capacity()
    }

    pub(crate) fn feed(&mut self, mut bytes: &[u8], sink: &mut impl Sink) {
        while !self.closed {
            if let Place::Element(inside) = self.place {
                bytes = self.element(inside, bytes, sink);
                if bytes.is_empty() {
                    return;
                }
                continue;
            }
            let [byte, rest @ ..] = bytes else { return };
            self.place = match (self.place, byte) {
                (place, b' ' | b'\t' | b'\n' | b'\r') => place,
                (Place::Before, b'[') => Place::Opened,
                (Place::Opened | Place::Between, b']') => Place::After,
                (Place::Between, b',') => Place::AfterComma,
                (Place::Opened | Place::AfterComma, byte) if starts_element(*byte) => {
                    // It begins with this byte.
                    self.place = Place::Element(Inside::Brackets(0));
                    continue;
                }
                _ => {
                    self.close();
                    return sink.broken();
                }
            };
            bytes = rest;
        }
    }

    /// The input has ended: hands on the last element although it is not whole.
    pub(crate) fn finish(&mut self, sink: &mut impl Sink) {
        if !self.closed && matches!(self.place, Place::Element(_)) {
            let tail = std::mem::take(&mut self.tail);
            self.hand_on(&tail, false, sink);
        }
        self.close();
    }

    /// Reads no more, and frees what is held.
    pub(crate) fn close(&mut self) {
        self.closed = true;
        self.tail = Vec::new();
    }

    /// Takes what of `bytes` belongs to the element, and leaves the rest.
    fn element<'a>(&mut self, inside: Inside, bytes: &'a [u8], sink: &mut impl Sink) -> &'a [u8] {
        let (len, inside) = scan(inside, bytes);
        let (own, rest) = bytes.split_at(len.min(bytes.len()));
        if self.tail.len() + own.len() > self.max {
            self.close();
            sink.over_bound();
            return &[];
        }
        match inside {
            Some(inside) => {
                self.place = Place::Element(inside);
                self.keep(own);
            }
            None => {
                self.place = Place::Between;
                if self.tail.is_empty() {
                    self.hand_on(own, true, sink);
                } else {
                    self.keep(own);
                    let mut tail = std::mem::take(&mut self.tail);
                    self.hand_on(&tail, true, sink);
                    if !self.closed {
                        tail.clear();
                        self.tail = tail;
                    }
                }
            }
        }
        rest
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.tail.capacity() - self.tail.len() < bytes.len() {
            // A fraction more than is needed: no element is copied again and again, and little is
            // held beyond the longest.
            self.tail.reserve_exact(bytes.len().max(self.tail.len() / 8).max(STEP));
        }
        self.tail.extend_from_slice(bytes);
    }

    fn hand_on(&mut self, data: &[u8], complete: bool, sink: &mut impl Sink) {
        if !sink.event(Event { data, name: "", kind: Kind::Data, complete }) {
            self.close();
        }
    }
}

/// Whether an element may begin so; what else is wrong with it is its reader's to see.
fn starts_element(byte: u8) -> bool {
    !matches!(byte, b',' | b':' | b']' | b'}')
}

/// How many of `bytes` belong to the element, and where in it they end; `None` behind its last.
fn scan(mut inside: Inside, bytes: &[u8]) -> (usize, Option<Inside>) {
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        inside = match (inside, byte) {
            (Inside::String(depth), _) => {
                let rest = bytes.get(at..).unwrap_or_default();
                let Some(found) = memchr2(b'"', b'\\', rest) else {
                    return (bytes.len(), Some(inside));
                };
                at += found;
                match rest.get(found) {
                    Some(b'\\') => Inside::Escaped(depth),
                    _ if depth == 0 => return (at + 1, None),
                    _ => Inside::Brackets(depth),
                }
            }
            (Inside::Escaped(depth), _) => Inside::String(depth),
            (Inside::Bare, b',' | b']' | b' ' | b'\t' | b'\n' | b'\r') => return (at, None),
            (Inside::Bare, _) => Inside::Bare,
            (Inside::Brackets(depth), b'"') => Inside::String(depth),
            (Inside::Brackets(depth), b'{' | b'[') => Inside::Brackets(depth + 1),
            (Inside::Brackets(1), b'}' | b']') => return (at + 1, None),
            (Inside::Brackets(depth), b'}' | b']') => Inside::Brackets(depth.saturating_sub(1)),
            (Inside::Brackets(0), _) => Inside::Bare,
            (Inside::Brackets(depth), _) => Inside::Brackets(depth),
        };
        at += 1;
    }
    (at, Some(inside))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    /// What a reader gets.
    #[derive(Debug, Default, PartialEq)]
    struct Got {
        events: Vec<(String, bool)>,
        /// An element is no JSON.
        unreadable: bool,
        broken: bool,
        over: bool,
    }

    impl Sink for Got {
        fn event(&mut self, event: Event<'_>) -> bool {
            self.unreadable |= serde_json::from_slice::<Value>(event.data).is_err();
            self.events.push((String::from_utf8_lossy(event.data).into_owned(), event.complete));
            true
        }

        fn broken(&mut self) {
            assert!(!self.broken && !self.over, "the reading had ended");
            self.broken = true;
        }

        fn over_bound(&mut self) {
            assert!(!self.broken && !self.over, "the reading had ended");
            self.over = true;
        }
    }

    fn split(chunks: impl IntoIterator<Item = impl AsRef<[u8]>>, max: usize) -> Got {
        let (mut list, mut got) = (List::new(max), Got::default());
        for chunk in chunks {
            list.feed(chunk.as_ref(), &mut got);
            assert!(list.held() <= max + STEP, "{} held", list.held());
        }
        list.finish(&mut got);
        assert_eq!(list.held(), 0);
        got
    }

    fn whole(list: &str) -> Got {
        split([list], 1 << 20)
    }

    #[test]
    fn an_element_is_handed_on_when_it_is_whole() {
        let (mut list, mut got) = (List::new(64), Got::default());
        for (chunk, events) in [
            ("[", 0),
            ("{\"a\":", 0),
            ("\"}]\\\"", 0),
            ("\"}", 1),
            ("\r\n,\r\n{", 1),
            ("}", 2),
            (",7", 2),
            ("\n", 3),
            (",\"x\"", 4),
            ("]", 4),
        ] {
            list.feed(chunk.as_bytes(), &mut got);
            assert_eq!(got.events.len(), events, "behind {chunk:?}");
        }
        let want = ["{\"a\":\"}]\\\"\"}", "{}", "7", "\"x\""].map(|e| (e.to_owned(), true));
        assert_eq!(got.events, want);
        assert!(!got.broken);
    }

    #[test]
    fn an_unfinished_element_is_handed_on_as_such_and_an_open_list_is_no_fault() {
        for (list, events) in [
            ("", &[][..]),
            ("[", &[]),
            ("[{}", &[("{}", true)]),
            ("[{} ,", &[("{}", true)]),
            ("[{},{\"a\":", &[("{}", true), ("{\"a\":", false)]),
            ("[1", &[("1", false)]),
            ("[]", &[]),
            (" [ ] \n", &[]),
        ] {
            let want: Vec<_> = events.iter().map(|(e, whole)| ((*e).to_owned(), *whole)).collect();
            let got = whole(list);
            assert_eq!((got.events, got.broken), (want, false), "{list}");
        }
    }

    #[test]
    fn what_is_no_list_is_broken() {
        for (list, events) in [
            ("{}", 0),
            ("x[]", 0),
            ("[,{}]", 0),
            ("[}", 0),
            ("[{}{}]", 1),
            ("[{} 1]", 1),
            ("[{},]", 1),
            ("[{},,{}]", 1),
            ("[{}}", 1),
            ("[{}]x", 1),
            ("[{}][{}]", 1),
            ("[{}],", 1),
        ] {
            let got = whole(list);
            assert_eq!((got.broken, got.events.len()), (true, events), "{list}");
        }
    }

    #[test]
    fn an_element_over_the_bound_ends_the_reading() {
        let list = "[{\"a\":1}, {\"abc\":\"def\"}, {}]";
        for (max, events, over) in [(7, 1, true), (13, 3, false), (6, 0, true)] {
            for size in 1..=list.len() {
                let got = split(list.as_bytes().chunks(size), max);
                assert_eq!((got.events.len(), got.over), (events, over), "{max} by {size}");
            }
        }
    }

    /// Depth costs a counter, not a stack.
    #[test]
    fn any_depth_is_one_element() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(whole(&format!("[{deep}]")).events, [(deep, true)]);
    }

    #[test]
    fn little_is_held_beyond_the_longest_element() {
        let (mut list, mut got) = (List::new(1 << 20), Got::default());
        list.feed(b"[{\"a\":1},{\"b\":2},", &mut got);
        assert_eq!(list.held(), 0, "lent");
        list.feed(b"{\"c\":", &mut got);
        assert!((5..=STEP).contains(&list.held()), "{} held", list.held());
        list.feed(b"3},\"", &mut got);
        assert_eq!(list.held(), STEP, "kept for the next one");
        (0..100).for_each(|_| list.feed(&[b'x'; 700], &mut got));
        assert!(list.held() <= 70_001 + 70_001 / 8, "{} held", list.held());
    }

    fn json() -> impl Strategy<Value = Value> {
        let text =
            prop::sample::select(vec!["", "a", "}]", "\"", "\\", "\\\"", ",", "{[", "é😀\n"]);
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            any::<f32>().prop_map(|n| json!(n)),
            text.clone().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::hash_map(text.clone().prop_map(str::to_owned), inner, 0..4)
                    .prop_map(|map| json!(map)),
            ]
        })
    }

    fn cut(bytes: &[u8], cuts: &[prop::sample::Index]) -> Vec<Vec<u8>> {
        let mut at: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        at.extend([0, bytes.len()]);
        at.sort_unstable();
        at.windows(2).map(|w| bytes[w[0]..w[1]].to_vec()).collect()
    }

    fn config() -> ProptestConfig {
        let base = ProptestConfig::default();
        ProptestConfig { cases: base.cases.max(2000), ..base }
    }

    proptest! {
        #![proptest_config(config())]

        /// The elements are those that a parser of the whole list finds.
        #[test]
        fn the_elements_are_those_of_the_whole_list(
            elements in prop::collection::vec(json(), 0..6),
            pretty in any::<bool>(),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let text = match pretty {
                true => serde_json::to_string_pretty(&elements),
                false => serde_json::to_string(&elements),
            }.expect("a list");
            let got = split(cut(text.as_bytes(), &cuts), 1 << 20);
            prop_assert!(!got.broken && !got.over);
            let parsed: Result<Vec<Value>, _> =
                got.events.iter().map(|(event, _)| serde_json::from_str(event)).collect();
            let want: Vec<Value> = serde_json::from_str(&text).expect("a list");
            prop_assert_eq!(parsed.expect("elements"), want);
            prop_assert!(got.events.iter().all(|(_, complete)| *complete));
        }

        /// What no parser takes is broken, or one of its elements is; and never by chunking alone.
        #[test]
        fn what_is_damaged_is_seen_in_any_chunking(
            elements in prop::collection::vec(json(), 0..5),
            damage in (any::<prop::sample::Index>(), prop::sample::select(b"[]{},:\"\\ x1".to_vec())),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
            max in prop::sample::select(vec![9usize, 40, 1 << 20]),
        ) {
            let mut text = serde_json::to_vec(&elements).expect("a list");
            let at = damage.0.index(text.len());
            text[at] = damage.1;
            let got = split([&text], max);
            prop_assert_eq!(&split(cut(&text, &cuts), max), &got);
            prop_assert_eq!(&split(text.chunks(1), max), &got);
            if !got.over {
                let sound = !got.broken
                    && !got.unreadable
                    && got.events.iter().all(|(_, complete)| *complete);
                let parsed = serde_json::from_slice::<Vec<Value>>(&text);
                prop_assert!(sound || parsed.is_err());
                // One that only ends too early is not broken.
                prop_assert!(!sound || parsed.map_or_else(|e| e.is_eof(), |_| true));
            }
        }
    }
}
