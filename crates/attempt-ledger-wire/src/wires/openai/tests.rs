use attempt_ledger_core::Facts;
use proptest::prelude::*;

use super::*;

fn gather() -> Gather {
    Gather::new(Facts { streamed: true, ..Facts::default() }, true, 1 << 20, false)
}

/// Fields for a chunk, a choice and a delta: common, odd and wrong ones.
const TOP: &[&str] = &[
    r#""id":"c-1""#,
    r#""id":7"#,
    r#""object":"chat.completion.chunk""#,
    r#""object":"error""#,
    r#""object":null"#,
    r#""type":"error""#,
    r#""created":1776159000"#,
    r#""created":01"#,
    r#""created":1.5e3"#,
    r#""model":"a\u00e9\n""#,
    r#""model":"\ud83d""#,
    r#""model":"\x""#,
    r#""usage":null"#,
    r#""usage":{"prompt_tokens":1}"#,
    r#""error":null"#,
    r#""error":"x""#,
    r#""x_groq":null"#,
    r#""base_resp":{"status_code":2}"#,
    r#""obfuscation":"kQ7""#,
    r#""code":1"#,
    r#""message":"m""#,
    r#""service_tier":"default""#,
    r#""p":[1,{"a":2}]"#,
    r#""p":true"#,
    r#""p":fals"#,
    r#""\u0065rror":1"#,
    r#""choices":null"#,
];
const CHOICE: &[&str] = &[
    r#""index":0"#,
    r#""index": 0"#,
    r#""index":1"#,
    r#""index":null"#,
    r#""index":00"#,
    r#""logprobs":null"#,
    r#""logprobs":{}"#,
    r#""finish_reason":null"#,
    r#""finish_reason":"""#,
    r#""finish_reason":"stop""#,
    r#""native_finish_reason":null"#,
    r#""native_finish_reason":"error""#,
    r#""error":{"code":1}"#,
    r#""message":null"#,
    r#""message":{"content":"m"}"#,
    r#""text":"t""#,
    r#""text":null"#,
    r#""delta":{"content":"second"}"#,
    r#""finish_reason" : null"#,
];
const DELTA: &[&str] = &[
    r#""role":"assistant""#,
    r#""content":null"#,
    r#""role":null"#,
    r#""content":"twice""#,
    r#""refusal":null"#,
    r#""refusal":"""#,
    r#""refusal":"no""#,
    r#""tool_calls":null"#,
    r#""tool_calls":[]"#,
    r#""tool_calls":[{"index":0}]"#,
    r#""function_call":{"name":"f"}"#,
    r#""reasoning_content":"why\n""#,
    r#""reasoning":null"#,
    r#""reasoning":"hm""#,
    r#""reasoning":7"#,
    r#""reasoning_content":"""#,
    r#""reasoning_content":"\ud83d""#,
    r#""reasoning":"naïve \"""#,
];
const TEXT: &[&str] = &[
    r#""""#,
    r#"" the""#,
    r#""naïve 😀""#,
    r#""\n\"""#,
    r#""\ud83d\ude00""#,
    r#""\ud83d""#,
    r#""\u12""#,
    "null",
    "7",
    r#"[{"type":"text","text":"part"}]"#,
    "\"tab\t\"",
];

fn fields(of: &'static [&'static str]) -> impl Strategy<Value = Vec<&'static str>> {
    prop::collection::vec(prop::sample::select(of), 0..3)
}

fn chunk() -> impl Strategy<Value = Vec<u8>> {
    let parts = (
        fields(TOP),
        fields(TOP),
        fields(CHOICE),
        fields(CHOICE),
        fields(DELTA),
        fields(DELTA),
        prop::sample::select(TEXT),
        any::<bool>(),
        prop::sample::select(&[",", ", "][..]),
    );
    let chunk = parts.prop_map(|(t1, t2, c1, c2, d1, d2, text, direct, comma)| {
        let list = |before: &[&str], own: String, after: &[&str]| {
            [before, &[&*own], after].concat().join(comma)
        };
        let own = match direct {
            true => format!("\"text\":{text}"),
            false if text == "null" => {
                format!("\"delta\":{{{}}}", [&*d1, &*d2].concat().join(comma))
            }
            false => {
                format!("\"delta\":{{{}}}", list(&d1, format!("\"content\":{text}"), &d2))
            }
        };
        let choices = format!("\"choices\":[{{{}}}]", list(&c1, own, &c2));
        format!("{{{}}}", list(&t1, choices, &t2)).into_bytes()
    });
    let damage = prop::option::weighted(0.3, (any::<prop::sample::Index>(), any::<u8>()));
    (chunk, damage).prop_map(|(mut chunk, damage)| {
        if let Some((at, byte)) = damage {
            let at = at.index(chunk.len());
            chunk[at] = byte;
        }
        chunk
    })
}

fn config() -> ProptestConfig {
    let base = ProptestConfig::default();
    ProptestConfig { cases: base.cases.max(4000), ..base }
}

proptest! {
    #![proptest_config(config())]

    /// The scan takes a chunk only where the full parse finds the same in it.
    #[test]
    fn the_scan_agrees_with_the_full_parse(
        chunks in prop::collection::vec(chunk(), 1..4),
        again in prop::collection::vec(any::<prop::sample::Index>(), 3..8),
    ) {
        let mut reader = Reader::default();
        for pick in again {
            let chunk = pick.get(&chunks);
            let (mut scanned, mut parsed) = (gather(), gather());
            let data = Event { data: chunk, name: "", kind: Kind::Data, complete: true };
            wire::Reader::event(&mut reader, &data, &mut scanned);
            full_parse(chunk, true, &mut parsed);
            let shown = String::from_utf8_lossy(chunk);
            prop_assert_eq!(&scanned.facts, &parsed.facts, "{}", shown);
            prop_assert_eq!(scanned.progress, parsed.progress, "{}", shown);
            prop_assert_eq!(scanned.evidence(true), parsed.evidence(true), "{}", shown);
        }
    }
}

#[test]
fn the_scan_takes_what_servers_send() {
    let mut scan = Scan::default();
    for chunk in [
        r#"{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#,
        r#"{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"a"},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"x"}"#,
        r#"{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"\n"},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"yz"}"#,
        r#"{"id": "c", "choices": [{"delta": {"content": " b"}, "index": 0, "finish_reason": ""}]}"#,
        r#"{"id":"cmpl-3","object":"text_completion","choices":[{"index":0,"text":" one","logprobs":null,"finish_reason":null}]}"#,
    ] {
        let mut taken = None;
        assert!(scan.text_of(chunk.as_bytes(), |text, _| taken = Some(text.to_owned())), "{chunk}");
        assert!(taken.is_some());
    }
    assert!(scan.held() <= 1024, "{} held", scan.held());
}
