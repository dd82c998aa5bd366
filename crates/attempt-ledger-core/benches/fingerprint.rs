//! What a fingerprint costs over hashing the bytes as they are: a chat request of 4 KB.
//!
//! Ratios of the medians that criterion prints are what counts; a shared machine's times are not.

#![allow(clippy::expect_used, reason = "a benchmark may stop")]

use std::hint::black_box;

use attempt_ledger_core::{Digest, RequestParts, canonical_json, fingerprint};
use criterion::{Criterion, criterion_group, criterion_main};

fn request() -> String {
    let talk = "The quick brown fox, \\\"jumps\\\" over the lazy dog;\\nand a second line of some length follows. ";
    let turn =
        |role: &str, n: usize| format!(r#"{{"role":"{role}","content":"{}"}}"#, talk.repeat(n));
    format!(
        r#"{{"model":"some-model-4","messages":[{},{},{},{}],"temperature":0.7,"max_tokens":512,"top_p":0.95,"stop":["\n\n"],"tools":[{{"type":"function","function":{{"name":"look_up","description":"Looks a word up","parameters":{{"type":"object","properties":{{"word":{{"type":"string"}},"limit":{{"type":"integer","minimum":1}}}},"required":["word"]}}}}}}],"stream":true}}"#,
        turn("system", 8),
        turn("user", 10),
        turn("assistant", 10),
        turn("user", 8),
    )
}

fn costs(c: &mut Criterion) {
    let body = request();
    let body = body.as_bytes();
    let mut group = c.benchmark_group(format!("fingerprint of {} bytes", body.len()));
    group.bench_function("sha256 of the bytes", |b| b.iter(|| Digest::of(black_box(body))));
    group.bench_function("fingerprint", |b| {
        b.iter(|| {
            fingerprint(&RequestParts {
                method: "POST",
                scheme: "https",
                host: "api.example.com",
                port: None,
                path: "/v1/chat/completions",
                query: None,
                headers: &[],
                body: Some(black_box(body)),
                epoch: 1,
            })
        });
    });
    group.bench_function("canonical form alone", |b| b.iter(|| canonical_json(black_box(body))));
    group.bench_function("serde_json::Value and sha256", |b| {
        b.iter(|| {
            let value: serde_json::Value = serde_json::from_slice(black_box(body)).expect("JSON");
            Digest::of(&serde_json::to_vec(&value).expect("JSON"))
        });
    });
    group.bench_function("serde_json_canonicalizer and sha256", |b| {
        b.iter(|| {
            let value: serde_json::Value = serde_json::from_slice(black_box(body)).expect("JSON");
            Digest::of(&serde_json_canonicalizer::to_vec(&value).expect("JSON"))
        });
    });
    group.finish();
}

criterion_group!(benches, costs);
criterion_main!(benches);
