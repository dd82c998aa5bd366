//! Beside two crates that read the same, and where this one differs on purpose.

use std::convert::Infallible;

use bytes::Bytes;
use eventsource_stream::Eventsource;
use futures_util::{FutureExt, Stream, StreamExt, stream};
use proptest::prelude::*;
use sse_stream::SseStream;

use super::*;

/// An event's name, `message` where it has none, and its data.
type Named = (String, Vec<u8>);

/// What came of a stream.
#[derive(Debug, Default, PartialEq)]
struct Found {
    events: Vec<Named>,
    /// The last one, if what ends it never came.
    unfinished: Option<Named>,
    error_fields: Vec<Vec<u8>>,
    over: bool,
}

impl Sink for Found {
    fn event(&mut self, event: Event<'_>) -> bool {
        let name = if event.name.is_empty() { "message" } else { event.name };
        assert_eq!(
            event.kind == Kind::NamedError,
            event.name == "error" && !is_error_field(&event)
        );
        if is_error_field(&event) {
            self.error_fields.push(event.data.to_vec());
        } else if event.complete {
            self.events.push((name.to_owned(), event.data.to_vec()));
        } else {
            self.unfinished = Some((name.to_owned(), event.data.to_vec()));
        }
        event.data != b"[STOP]"
    }

    fn broken(&mut self) {
        unreachable!("no server-sent event is broken");
    }

    fn over_bound(&mut self) {
        self.over = true;
    }
}

fn is_error_field(event: &Event<'_>) -> bool {
    event.kind == Kind::ErrorField
}

fn ours_within(max_event: usize, chunks: &[Bytes]) -> Found {
    let (mut sse, mut found) = (Sse::new(max_event), Found::default());
    for chunk in chunks {
        sse.feed(chunk, &mut found);
    }
    sse.finish(&mut found);
    found
}

fn ours(chunks: &[Bytes]) -> Found {
    ours_within(1 << 20, chunks)
}

fn whole(body: &str) -> [Bytes; 1] {
    [Bytes::copy_from_slice(body.as_bytes())]
}

fn named(events: &[(&str, &str)]) -> Vec<Named> {
    events.iter().map(|(name, data)| ((*name).to_owned(), data.as_bytes().to_vec())).collect()
}

/// A peer's events, and whether it gave up on the stream.
#[derive(Debug, PartialEq)]
struct Peer {
    events: Vec<Named>,
    failed: bool,
}

fn bytes(chunks: &[Bytes]) -> impl Stream<Item = Result<Bytes, Infallible>> + Unpin {
    stream::iter(chunks.to_vec()).map(Ok)
}

/// It hands on blocks without data, too, which are no events.
fn sse_stream(chunks: &[Bytes]) -> Peer {
    let mut stream = SseStream::from_bytes_stream(bytes(chunks));
    let mut peer = Peer { events: Vec::new(), failed: false };
    while let Some(block) = stream.next().now_or_never().expect("all is there") {
        let Ok(block) = block else {
            peer.failed = true;
            break;
        };
        let name = block.event.filter(|name| !name.is_empty()).unwrap_or("message".to_owned());
        peer.events.extend(block.data.map(|data| (name, data.into_bytes())));
    }
    peer
}

fn eventsource_stream(chunks: &[Bytes]) -> Peer {
    let mut stream = bytes(chunks).eventsource();
    let mut peer = Peer { events: Vec::new(), failed: false };
    while let Some(event) = stream.next().now_or_never().expect("all is there") {
        let Ok(event) = event else {
            peer.failed = true;
            break;
        };
        peer.events.push((event.event, event.data.into_bytes()));
    }
    peer
}

const LINES: &[&str] = &[
    "data: {\"a\":1}",
    "data:x",
    "data:  two",
    "data",
    "data:",
    "data: ",
    "data:\t",
    "data: a: b",
    "data: 😀é",
    "data : x",
    " data: x",
    "dat: x",
    "datax: x",
    "DATA: x",
    ":",
    ": comment",
    "::data: x",
    "event: delta",
    "event:x",
    "event",
    "event: ",
    "event: error",
    "event: message",
    "events: x",
    "id: 7",
    "id: \0",
    "retry: 10",
    "retry: x",
    "é: x",
    "\u{feff}",
    "\0",
    "x",
    "",
];

const ENDS: &[&str] = &["\n", "\r\n", "\r", "\n\n", "\r\n\r\n", "\r\r", "\n\r", "\r\n\n", ""];

/// Bytes that mean something, and any others.
fn byte() -> impl Strategy<Value = u8> {
    prop_oneof![prop::sample::select(&b":\n\r dataevent\0"[..]), any::<u8>()]
}

#[derive(Clone, Debug)]
enum Damage {
    Set(u8),
    Insert(u8),
    Remove(usize),
    Double(usize),
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        byte().prop_map(Damage::Set),
        byte().prop_map(Damage::Insert),
        (1..6usize).prop_map(Damage::Remove),
        (1..20usize).prop_map(Damage::Double),
    ]
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    let lines = prop::collection::vec(
        (prop::sample::select(LINES), prop::sample::select(ENDS))
            .prop_map(|(l, e)| [l, e].concat()),
        0..20,
    );
    let damage = prop::collection::vec((any::<prop::sample::Index>(), damage()), 0..4);
    (any::<bool>(), lines, damage).prop_map(|(mark, lines, damage)| {
        let mark = if mark { "\u{feff}" } else { "" };
        let mut body = [mark, &lines.concat()].concat().into_bytes();
        for (at, damage) in damage {
            let at = at.index(body.len() + 1);
            let to = |len: usize| body.len().min(at + len);
            match damage {
                Damage::Set(byte) => drop(body.get_mut(at).map(|old| *old = byte)),
                Damage::Insert(byte) => body.insert(at, byte),
                Damage::Remove(len) => drop(body.drain(at..to(len))),
                Damage::Double(len) => drop(body.splice(at..at, body[at..to(len)].to_vec())),
            }
        }
        body
    })
}

fn cut(body: &[u8], cuts: &[prop::sample::Index]) -> Vec<Bytes> {
    let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
    cuts.extend([0, body.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| Bytes::copy_from_slice(&body[pair[0]..pair[1]])).collect()
}

/// Whether ours are the peer's events: all of them, or those before it gave up.
fn agree(ours: &[Named], mut peer: Peer) -> bool {
    // An event without data is none here.
    peer.events.retain(|(_, data)| !data.trim_ascii().is_empty());
    if peer.failed { ours.starts_with(&peer.events) } else { ours == peer.events }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.max(4000),
        ..ProptestConfig::default()
    })]

    /// Apart from the differences below, the same events come out, whatever goes in.
    #[test]
    fn others_find_the_same_events(
        body in body(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let chunks = cut(&body, &cuts);
        let ours = ours(&chunks);
        prop_assume!(ours.error_fields.is_empty());
        let theirs = sse_stream(&chunks);
        prop_assert!(agree(&ours.events, theirs), "{:?} of {:?}", ours, sse_stream(&chunks));

        // This one fails on a byte-order mark at the start, and waits behind a CR for what comes next.
        let mut body = [b":\n", body.strip_prefix(BOM).unwrap_or(&body)].concat();
        if body.ends_with(b"\r") {
            body.push(b'\n');
        }
        let chunks = cut(&body, &cuts);
        let theirs = eventsource_stream(&chunks);
        prop_assert!(agree(&ours.events, theirs), "{:?} of {:?}", ours, eventsource_stream(&chunks));
    }
}

/// The rules drop it; servers leave the chunk that states their stop reason that way.
#[test]
fn an_event_whose_end_is_missing_is_handed_on_as_such() {
    for end in ["", "\n", "\r", "\r\n"] {
        let chunks = whole(&format!("data: a\n\nevent: e\ndata: b{end}"));
        let found = ours(&chunks);
        assert_eq!(found.events, named(&[("message", "a")]));
        assert_eq!(found.unfinished, named(&[("e", "b")]).pop());
        assert_eq!(sse_stream(&chunks).events, named(&[("message", "a")]));
        assert_eq!(eventsource_stream(&chunks).events, named(&[("message", "a")]));
    }
}

/// As the rules say, and only one.
#[test]
fn one_byte_order_mark_is_skipped() {
    let chunks = whole("\u{feff}data: a\n\n\u{feff}data: b\n\n");
    assert_eq!(ours(&chunks).events, named(&[("message", "a")]));
    assert_eq!(sse_stream(&chunks).events, named(&[("message", "a")]));
    assert_eq!(ours(&whole("\u{feff}\u{feff}data: a\n\n")), Found::default());
    // It cuts the first byte off a character of three.
    assert!(std::panic::catch_unwind(|| eventsource_stream(&chunks)).is_err());
}

/// The rules drop a field of that name; a server wrote its failures into one.
#[test]
fn an_error_field_is_data_of_its_own_kind() {
    let chunks = whole("error: {\"code\":500}\n\nerror:\n\nerror\n\ndata: a\n\n");
    let found = ours(&chunks);
    assert_eq!(found.error_fields, [b"{\"code\":500}"]);
    assert_eq!(found.events, named(&[("message", "a")]));
    assert_eq!(sse_stream(&chunks).events, found.events);
    // Whatever else its event holds.
    for body in ["event: e\ndata: a\nerror: b\n\n", "error: a\nevent: e\ndata: b\n\n"] {
        assert_eq!(ours(&whole(body)).error_fields, [b"a\nb"], "{body:?}");
    }
}

/// The rules make an event of `data:`, with no data; servers send it to keep a connection alive.
#[test]
fn an_event_without_data_is_none() {
    let chunks = whole("data:\n\ndata\n\ndata:  \t\n\ndata\ndata\n\nevent: e\n\ndata: a\n\n");
    assert_eq!(ours(&chunks).events, named(&[("message", "a")]));
    let blank = [("message", ""), ("message", ""), ("message", " \t"), ("message", "\n")];
    let all = named(&[&blank[..], &[("message", "a")]].concat());
    assert_eq!(sse_stream(&chunks).events, all);
    assert_eq!(eventsource_stream(&chunks).events, all);
    assert_eq!(ours(&whole("data: a\ndata\n\n")).events, named(&[("message", "a\n")]));
}

/// Nothing here connects again, so that where to go on, and when, is of no use.
#[test]
fn ids_and_times_to_wait_are_not_read() {
    for line in ["id: 7", "id", "id: \0", "retry: 10", "retry: ten"] {
        let found = ours(&whole(&format!("{line}\n\ndata: a\n{line}\ndata: b\n\n")));
        assert_eq!(found.events, named(&[("message", "a\nb")]), "{line}");
    }
}

/// A name is not a place to keep something in.
#[test]
fn a_name_is_cut_to_a_bound() {
    let name = |len: usize| ours(&whole(&format!("event: {}\ndata: a\n\n", "n".repeat(len))));
    assert_eq!(name(64).events, named(&[(&"n".repeat(64), "a")]));
    assert_eq!(name(65).events, named(&[(&"n".repeat(64), "a")]));
}

/// The rules put U+FFFD in its place, which would make sound JSON of what is none. Others give up.
#[test]
fn bytes_that_are_no_utf8_are_handed_on_as_they_came() {
    let chunks = [Bytes::from_static(b"data: a\xff\n\nevent: \xff\ndata: b\n\n")];
    let want = [("message".to_owned(), b"a\xff".to_vec()), ("message".to_owned(), b"b".to_vec())];
    assert_eq!(ours(&chunks).events, want);
    assert_eq!(sse_stream(&chunks), Peer { events: Vec::new(), failed: true });
    assert!(eventsource_stream(&chunks).failed);
}

/// As the rules say: the LF that may follow would belong to it.
#[test]
fn a_cr_ends_a_line_at_once() {
    let chunks =
        ["data: a\r", "\r", "\ndata: b\r\r"].map(|text| Bytes::from_static(text.as_bytes()));
    let want = named(&[("message", "a"), ("message", "b")]);
    assert_eq!(ours(&chunks).events, want);
    assert_eq!(sse_stream(&chunks).events, want);
    // It waits for the LF, and at the end of the input for ever.
    assert_eq!(eventsource_stream(&chunks).events, want[..1]);
}

/// As the rules say: it is a character like any other, but in an id.
#[test]
fn a_nul_is_data() {
    let chunks = whole("data: a\0\n\n\0data: b\n\nevent: \0\ndata: c\n\n");
    let want = named(&[("message", "a\0"), ("\0", "c")]);
    assert_eq!(ours(&chunks).events, want);
    assert_eq!(sse_stream(&chunks).events, want);
    assert_eq!(eventsource_stream(&chunks).events, want);
}

/// The rules know no bound.
#[test]
fn an_event_over_the_bound_ends_the_reading() {
    for body in [
        "data: 0123456789abcdef\n\n",
        ": 0123456789abcdefghij\n\n",
        "data: 01234567\ndata: 89abcdef\n\n",
    ] {
        let chunks = whole(&format!("data: a\n\n{body}data: b\n\n"));
        let found = ours_within(20, &chunks);
        assert_eq!((found.events, found.over), (named(&[("message", "a")]), true), "{body:?}");
        assert!(!ours_within(32, &chunks).over, "{body:?}");
    }
}

/// A done marker is the reader's to know.
#[test]
fn nothing_is_read_behind_the_end_that_the_reader_sees() {
    let found = ours(&whole("data: a\n\ndata: [STOP]\n\ndata: b\n\n"));
    assert_eq!(found.events, named(&[("message", "a"), ("message", "[STOP]")]));
}
