//! Every recorded response yields the verdict and the fields written beside it, in any chunking.

#![allow(clippy::expect_used, reason = "a test may panic, its helpers too")]

mod support;

use std::path::{Path, PathBuf};

use attempt_ledger_core::{
    BodyEnd, Digest, Phase, Remote, TransportKind, decide, decide_transport,
};
use attempt_ledger_wire::{TapOptions, Wire, answer_sha256};
use serde::Deserialize;
use support::{Random, parse, read, seed};

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
struct Want {
    wire: String,
    stream: bool,
    verdict: String,
    finish_reason: Option<String>,
    content_sha256: Option<Digest>,
    content_chars: u64,
    tool_calls: u32,
    usage: attempt_ledger_core::Usage,
    retry_after_ms: Option<u64>,
    events: Option<u64>,
}

fn cases() -> Vec<(PathBuf, Want)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/wire");
    let mut cases = Vec::new();
    for wire in Wire::ALL {
        let Ok(folder) = std::fs::read_dir(root.join(wire.as_str())) else { continue };
        for entry in folder {
            let path = entry.expect("a readable folder").path();
            if path.extension().is_some_and(|e| e == "json") {
                let want = std::fs::read(&path).expect("a readable file");
                cases.push((
                    path.with_extension("http"),
                    serde_json::from_slice(&want).expect("the fields of a case"),
                ));
            }
        }
    }
    cases.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(cases.len() >= 80, "only {} cases", cases.len());
    cases
}

fn got(raw: &[u8], want: &Want, cuts: &[usize]) -> Want {
    let base = Want { wire: want.wire.clone(), stream: want.stream, ..Want::default() };
    let Some(response) = parse(raw) else {
        let d = decide_transport(TransportKind::Closed, Phase::Head, Remote::Unknown);
        return Want { verdict: d.verdict.to_string(), ..base };
    };
    let wire = want.wire.parse().expect("a wire");
    let options =
        TapOptions { keep_content: true, stream_asked: Some(want.stream), ..TapOptions::default() };
    let (facts, evidence) = read(wire, &response, &options, cuts);
    let content = evidence.content.expect("kept");
    assert_eq!(answer_sha256(&content), evidence.answer_sha256);
    let text = (!content.text.is_empty()).then(|| Digest::of(content.text.as_bytes()));
    assert_eq!(text, evidence.content_sha256);
    Want {
        verdict: decide(response.status, &facts, &response.end).verdict.to_string(),
        finish_reason: evidence.finish_reason.map(|word| word.as_str().to_owned()),
        content_sha256: evidence.content_sha256,
        content_chars: evidence.content_chars,
        tool_calls: evidence.tool_calls,
        usage: evidence.usage,
        retry_after_ms: facts.retry_after_ms,
        events: evidence.events,
        ..base
    }
}

#[test]
fn whole() {
    let mut wrong = Vec::new();
    for (path, want) in cases() {
        let raw = std::fs::read(&path).expect("a readable file");
        let got = got(&raw, &want, &[]);
        if got != want {
            wrong.push(format!("{}\n  want {want:?}\n  got  {got:?}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn byte_by_byte() {
    for (path, want) in cases() {
        let raw = std::fs::read(&path).expect("a readable file");
        let cuts: Vec<_> = (0..raw.len()).collect();
        assert_eq!(got(&raw, &want, &cuts), want, "{}", path.display());
    }
}

#[test]
fn at_random_splits() {
    let seed = seed();
    let mut random = Random(seed);
    for (path, want) in cases() {
        let raw = std::fs::read(&path).expect("a readable file");
        for _ in 0..200 {
            let count = 1 + random.below(12);
            let cuts: Vec<_> = (0..count).map(|_| random.below(raw.len() + 1)).collect();
            let case = path.display();
            assert_eq!(got(&raw, &want, &cuts), want, "seed {seed}: {case} at {cuts:?}");
        }
    }
}

/// A cut in the transfer at any byte gives a verdict that the evidence so far allows: never
/// `malformed`, since the rest of an event or document is not known.
#[test]
fn a_cut_anywhere_is_never_malformed_where_the_whole_is_not() {
    for (path, want) in cases() {
        let raw = std::fs::read(&path).expect("a readable file");
        let Some(mut response) = parse(&raw) else { continue };
        if want.verdict == "malformed" {
            continue;
        }
        let body = std::mem::take(&mut response.body);
        response.end = BodyEnd::Broken(TransportKind::Cut);
        let wire = want.wire.parse().expect("a wire");
        for len in 0..body.len() {
            response.body = body[..len].to_vec();
            let (facts, _) = read(wire, &response, &TapOptions::default(), &[]);
            let verdict = decide(response.status, &facts, &response.end).verdict.to_string();
            let allowed = [&*want.verdict, "transport", "provider_error", "unterminated", "empty"];
            assert!(
                allowed.contains(&&*verdict) || response.status >= 400,
                "{} cut at {len}: {verdict}",
                path.display()
            );
        }
    }
}
