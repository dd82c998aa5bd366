use proptest::prelude::*;

use super::*;

#[path = "../../../tests/support/frames.rs"]
mod support;

use support::{checked, chunk, event, exception, frame};

const MAX: usize = 1 << 20;

/// What came, and how the reading ended.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    events: Vec<(Kind, String, Vec<u8>)>,
    broken: bool,
    over_bound: bool,
    /// Events that are taken; none are behind them.
    most: Option<usize>,
}

impl Sink for Seen {
    fn event(&mut self, event: Event<'_>) -> bool {
        assert!(event.complete);
        self.events.push((event.kind, event.name.to_owned(), event.data.to_owned()));
        self.most.is_none_or(|most| self.events.len() < most)
    }

    fn broken(&mut self) {
        assert!(!self.broken && !self.over_bound, "the reading ends once");
        self.broken = true;
    }

    fn over_bound(&mut self) {
        assert!(!self.broken && !self.over_bound, "the reading ends once");
        self.over_bound = true;
    }
}

fn read(bytes: &[u8], cuts: &[usize]) -> Seen {
    read_within(MAX, bytes, cuts)
}

fn read_within(max: usize, bytes: &[u8], cuts: &[usize]) -> Seen {
    let (mut frames, mut seen) = (Frames::new(max), Seen::default());
    let mut cuts: Vec<_> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    cuts.sort_unstable();
    let mut from = 0;
    for to in cuts.into_iter().chain([bytes.len()]) {
        frames.feed(&bytes[from..to], &mut seen);
        from = to;
    }
    frames.finish(&mut seen);
    assert_eq!(frames.held(), 0, "nothing is held behind the end");
    seen
}

fn names(seen: &Seen) -> Vec<&str> {
    seen.events.iter().map(|(_, name, _)| &**name).collect()
}

#[test]
fn each_flipped_bit_of_a_frame_is_found() {
    let sound = exception("throttlingException", "{\"message\":\"slow\"}");
    assert_eq!(names(&read(&sound, &[])), ["throttlingException"]);
    for bit in 0..sound.len() * 8 {
        let mut damaged = sound.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let seen = read(&damaged, &[]);
        assert!(seen.broken && seen.events.is_empty(), "bit {bit}: {seen:?}");
    }
}

#[test]
fn a_damaged_length_is_found_before_its_bytes_come() {
    for at in 0..8 {
        let mut damaged = event("messageStop", "{}");
        damaged[at] ^= 0x40;
        let (mut frames, mut seen) = (Frames::new(usize::MAX), Seen::default());
        for (fed, byte) in damaged[..PRELUDE].iter().enumerate() {
            assert!(!seen.broken, "byte {at}: broken after {fed}");
            frames.feed(&[*byte], &mut seen);
        }
        assert!(seen.broken, "byte {at}");
    }
}

#[test]
fn values_of_all_types_are_skipped() {
    let headers = [
        ("true", 0, &[][..]),
        ("false", 1, &[]),
        ("byte", 2, &[1]),
        ("short", 3, &[1, 2]),
        ("int", 4, &[1, 2, 3, 4]),
        ("long", 5, &[0; 8]),
        ("bytes", 6, b"\xff\0"),
        (":message-type", 7, b"event"),
        ("time", 8, &[0; 8]),
        ("uuid", 9, &[0; 16]),
        ("", 7, b""),
        (":event-type", 7, b"metadata"),
    ];
    assert_eq!(names(&read(&frame(&headers, b"{}"), &[])), ["metadata"]);
    // A type that is not known has no known length.
    let unknown = [("new", 10, &b"1"[..]), (":event-type", 7, b"metadata")];
    assert!(read(&frame(&unknown, b"{}"), &[]).broken);
}

#[test]
fn a_header_must_lie_within_the_headers() {
    let whole = event("metadata", "{}");
    let headers_len = u32::from_be_bytes(*whole[4..].first_chunk().expect("a length"));
    for less in 1..headers_len {
        let mut cut = whole[..4].to_vec();
        cut.extend_from_slice(&(headers_len - less).to_be_bytes());
        checked(&mut cut);
        cut.extend_from_slice(&whole[PRELUDE..whole.len() - CHECKSUM]);
        checked(&mut cut);
        let seen = read(&cut, &[]);
        // Cut between two headers, it is a frame whose payload begins early.
        assert!(seen.broken || !seen.events.is_empty(), "{less} less: {seen:?}");
        assert!(!seen.over_bound);
    }
    let mut beyond = 16u32.to_be_bytes().to_vec();
    beyond.extend_from_slice(&1u32.to_be_bytes());
    checked(&mut beyond);
    assert!(read(&beyond, &[]).broken, "headers longer than the frame");
    let mut short = 15u32.to_be_bytes().to_vec();
    short.extend_from_slice(&0u32.to_be_bytes());
    checked(&mut short);
    assert!(read(&short, &[]).broken, "shorter than what each frame has");
}

#[test]
fn lengths_are_bounded() {
    let payload = " ".repeat(2000);
    let long = event("metadata", &payload);
    assert_eq!(read_within(long.len(), &long, &[]), read(&long, &[]));
    let over = read_within(long.len() - 1, &long, &[5, 200]);
    assert!(over.over_bound && !over.broken && over.events.is_empty());
    // The stated length alone tells; nothing is reserved for it.
    let mut stated = u32::MAX.to_be_bytes().to_vec();
    stated.extend_from_slice(&0u32.to_be_bytes());
    checked(&mut stated);
    assert!(read(&stated, &[]).over_bound);
    let (mut frames, mut seen) = (Frames::new(usize::MAX), Seen::default());
    frames.feed(&stated, &mut seen);
    assert!(frames.held() <= STEP && seen == Seen::default(), "{} held", frames.held());
    let mut headers = u32::MAX.to_be_bytes().to_vec();
    headers.extend_from_slice(&(MAX_HEADERS as u32 + 1).to_be_bytes());
    checked(&mut headers);
    assert!(read(&headers, &[]).broken, "headers over what AWS allows");
}

#[test]
fn a_frame_in_one_piece_is_not_copied() {
    let (mut frames, mut seen) = (Frames::new(MAX), Seen::default());
    let two = [event("messageStart", "{}"), event("metadata", "{}")].concat();
    frames.feed(&two, &mut seen);
    assert_eq!((names(&seen), frames.held()), (vec!["messageStart", "metadata"], 0));
    frames.feed(&two[..two.len() - 1], &mut seen);
    assert!(frames.held() <= two.len() + STEP);
}

#[test]
fn what_reports_an_error_is_told_by_its_type() {
    let thrown = exception("validationException", "{\"message\":\"m\"}");
    let error = frame(
        &[
            (":error-code", 7, b"InternalFailure"),
            (":error-message", 7, b"it broke"),
            (":message-type", 7, b"error"),
        ],
        b"ignored",
    );
    let seen = read(&[thrown, error].concat(), &[]);
    let kinds: Vec<_> = seen.events.iter().map(|(kind, ..)| *kind).collect();
    assert_eq!(kinds, [Kind::Exception; 2]);
    assert_eq!(names(&seen), ["validationException", "InternalFailure"]);
    assert_eq!(seen.events[1].2, b"");
}

#[test]
fn an_event_without_data_is_none() {
    let stream = [event("ping", ""), event("ping", " \n"), event("chunk", "")].concat();
    assert_eq!(read(&stream, &[]), Seen::default());
}

#[test]
fn what_a_chunk_wraps_is_handed_on() {
    let inner = "{\"type\":\"message_stop\",\"t\":\"é😀\"}";
    let plain = event("chunk", "{\"generation\":\"a\"}");
    let seen = read(&[chunk(inner), chunk("{}"), plain].concat(), &[]);
    let data: Vec<_> = seen.events.iter().map(|(_, _, data)| &**data).collect();
    assert_eq!(data, [inner.as_bytes(), b"{}", b"{\"generation\":\"a\"}"]);
    assert_eq!(names(&seen), ["chunk"; 3]);
    for payload in ["{\"bytes\":\"e30\"}", "{\"p\":\"x\",\"bytes\":\"e3\\u0030=\"}"] {
        assert_eq!(read(&event("chunk", payload), &[]).events[0].2, b"{}", "{payload}");
    }
    for payload in ["{\"bytes\":\"e3?=\"}", "{\"bytes\":7}", "{\"bytes\":\"e30=\"", "[]"] {
        assert!(read(&event("chunk", payload), &[]).broken, "{payload}");
    }
}

#[test]
fn a_name_is_bounded() {
    let name = format!("{}é", "x".repeat(MAX_NAME - 1));
    assert_eq!(names(&read(&event(&name, "{}"), &[])), ["x".repeat(MAX_NAME - 1)]);
}

#[test]
fn nothing_is_read_once_the_sink_has_enough() {
    let three = [event("a", "{}"), event("b", "{}"), event("c", "{}")].concat();
    for cuts in [&[][..], &[1, 70, 100]] {
        let (mut frames, mut seen) = (Frames::new(MAX), Seen { most: Some(2), ..Seen::default() });
        let mut from = 0;
        for to in cuts.iter().copied().chain([three.len()]) {
            frames.feed(&three[from..to], &mut seen);
            from = to;
        }
        assert_eq!((names(&seen), frames.held()), (vec!["a", "b"], 0));
    }
}

#[test]
fn an_unfinished_frame_is_dropped() {
    let whole = event("messageStop", "{}");
    for len in 0..whole.len() {
        assert_eq!(read(&whole[..len], &[]), Seen::default(), "{len}");
    }
}

fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let payload = prop::collection::vec(any::<u8>(), 0..600);
    prop_oneof![
        ("[a-zA-Z]{0,12}", "[ -~]{0,400}").prop_map(|(name, text)| event(&name, &text)),
        "[ -~]{0,200}".prop_map(|inner| chunk(&inner)),
        payload.prop_map(|payload| frame(&[(":message-type", 7, b"event")], &payload)),
    ]
}

proptest! {
    #[test]
    fn chunking_changes_nothing(
        frames in prop::collection::vec(any_frame(), 0..6),
        cuts in prop::collection::vec(any::<usize>(), 0..12),
        damage in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
    ) {
        let mut stream = frames.concat();
        if let (Some((at, byte)), false) = (damage, stream.is_empty()) {
            let at = at.index(stream.len());
            stream[at] = byte;
        }
        let whole = read_within(400, &stream, &[]);
        prop_assert_eq!(&read_within(400, &stream, &cuts), &whole);
        let bytewise: Vec<_> = (0..stream.len()).collect();
        prop_assert_eq!(&read_within(400, &stream, &bytewise), &whole);
    }

    #[test]
    fn no_bytes_do_harm(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        read(&bytes, &[3, 11, 12, 13]);
        let mut sealed = (bytes.len() as u32 + 16).to_be_bytes().to_vec();
        sealed.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
        checked(&mut sealed);
        sealed.extend_from_slice(&bytes);
        checked(&mut sealed);
        let seen = read(&sealed, &[]);
        prop_assert!(!seen.over_bound && seen.events.is_empty());
    }
}
