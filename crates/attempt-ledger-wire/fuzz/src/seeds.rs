//! Writes the first inputs of every target, and the words they are made of, from what is recorded:
//! always the same.

#![forbid(unsafe_code)]

#[path = "../../tests/support/mod.rs"]
mod support;

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use attempt_ledger_wire::Wire;
use attempt_ledger_wire_fuzz::{CODINGS, Choice, MEDIA, STATUSES, request_choice};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use support::{Response, parse};

/// Requests of every wire; each is given to all.
const REQUESTS: &[&str] = &[
    r#"{"model":"m","stream":true,"max_tokens":5,"max_completion_tokens":9,"n":2,"background":true,"tools":[{"type":"function","function":{"name":"f"}},{"type":"custom"},{"type":"web_search"}],"messages":[{"role":"user","content":"h\u00e9y\ud83d\ude00"},{"role":"user","content":[{"type":"text","text":"ab"},{"type":"image_url"}]}]}"#,
    r#"{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"hi"}]}],"instructions":"be","max_output_tokens":7,"stream":true,"store":true,"previous_response_id":"r","tools":[{"type":"mcp"}]}"#,
    r#"{"model":"m","system":[{"type":"text","text":"be"}],"max_tokens":9,"stream":true,"anthropic_version":"v","tools":[{"name":"f","input_schema":{}},{"type":"web_search_20250305"}],"mcp_servers":[{}],"messages":[{"role":"user","content":[{"type":"text","text":"hi"},{"type":"tool_result","content":[{"type":"text","text":"x"}]}]}]}"#,
    r#"{"contents":[{"role":"user","parts":[{"text":"hi"},{"inlineData":{}}]}],"systemInstruction":{"parts":[{"text":"be"}]},"generationConfig":{"maxOutputTokens":9},"tools":[{"functionDeclarations":[{"name":"f"},{"name":"g"}]},{"googleSearch":{}},{"codeExecution":{}}]}"#,
    r#"{"model":"m","stream":false,"prompt":"hi","system":"be","options":{"num_predict":9},"messages":[{"role":"user","content":"hi"}],"tools":[{"type":"function"}],"n_predict":9}"#,
    r#"{"messages":[{"role":"user","content":[{"text":"hi"}]}],"system":[{"text":"be"}],"inferenceConfig":{"maxTokens":9},"toolConfig":{"tools":[{"toolSpec":{"name":"f"}}]}}"#,
    r#"{"prompt":["a","b"],"max_tokens":5,"stream":null}"#,
];

fn main() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR"));
    let corpus = fuzz.join("corpus");
    let mut words = BTreeSet::new();
    let mut count = 0;
    let mut write = |target: &str, name: &str, head: &[u8], body: &[u8]| {
        let folder = corpus.join(target);
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join(format!("seed-{name}")), [head, body].concat()).expect("a file");
        count += 1;
    };
    for (n, body) in REQUESTS.iter().enumerate() {
        add_words(body.as_bytes(), &mut words);
        for (at, wire) in Wire::ALL.iter().enumerate() {
            let path = (at * 5 + n) as u8;
            write("request", &format!("{wire}-{n}"), &request_choice(*wire, path), body.as_bytes());
        }
    }
    for wire in Wire::ALL {
        write(wire.as_str(), "empty", &choice("", 200, "").bytes(), b"");
        for (name, response) in recorded(&fuzz.join("../../../tests/fixtures/wire"), *wire) {
            let header = |name| response.headers.get(name).and_then(|value| value.to_str().ok());
            let media =
                header(CONTENT_TYPE).unwrap_or_default().split(';').next().unwrap_or_default();
            let coding = header(CONTENT_ENCODING).unwrap_or_default();
            let mut choice = choice(media, response.status, coding);
            if coding.is_empty() {
                add_words(&response.body, &mut words);
            } else {
                write("encoding", &name, &choice.bytes(), &response.body);
            }
            // The same options each time, but not for all.
            let mix = name.bytes().fold(0u8, |mix, byte| mix.wrapping_mul(31).wrapping_add(byte));
            (choice.options, choice.cuts) = (mix & 3, mix);
            write(wire.as_str(), &name, &choice.bytes(), &response.body);
            if let Some(lines) = lines_of_frames(media, &response.body) {
                choice.media = MEDIA.len() as u8 - 1;
                write(wire.as_str(), &format!("{name}-lines"), &choice.bytes(), &lines);
            }
        }
    }
    let mut text = String::new();
    for word in &words {
        let _ = writeln!(text, "\"{word}\"");
    }
    fs::write(corpus.join("words.dict"), text).expect("a file");
    println!("{count} inputs, {} words", words.len());
}

fn recorded(root: &Path, wire: Wire) -> Vec<(String, Response)> {
    let Ok(folder) = fs::read_dir(root.join(wire.as_str())) else { return Vec::new() };
    let paths: BTreeSet<PathBuf> = folder.map(|entry| entry.expect("a file").path()).collect();
    let cases = paths.iter().filter(|path| path.extension().is_some_and(|end| end == "http"));
    let read = |path: &PathBuf| {
        let name = path.file_stem()?.to_str()?.to_owned();
        Some((name, parse(&fs::read(path).expect("a file"))?))
    };
    cases.filter_map(read).collect()
}

/// The place of each in its list, or of the last.
fn choice(media: &str, status: u16, coding: &str) -> Choice {
    let at = |place: Option<usize>| place.unwrap_or(0) as u8;
    Choice {
        media: at(MEDIA.iter().position(|known| *known == media)),
        status: at(STATUSES.iter().position(|known| *known == status)),
        coding: at(CODINGS.iter().position(|known| *known == coding)),
        options: 0,
        cuts: 0,
    }
}

/// Frames as lines that are framed again, so that a change of their payload keeps them sound.
fn lines_of_frames(media: &str, mut body: &[u8]) -> Option<Vec<u8>> {
    if !media.ends_with("eventstream") || !media.starts_with("application") {
        return None;
    }
    let mut lines = Vec::new();
    while let Some(prelude) = body.first_chunk::<12>() {
        let word = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|n| prelude[at + n])) as usize;
        let (len, headers_len) = (word(0), word(4));
        let Some(frame) = body.get(..len) else { break };
        body = &body[len..];
        let Some(mut headers) = frame.get(12..12 + headers_len) else { break };
        let payload = frame.get(12 + headers_len..len.saturating_sub(4)).unwrap_or_default();
        let mut line = Vec::new();
        while let [name_len, rest @ ..] = headers {
            let Some((name, rest)) = rest.split_at_checked((*name_len).into()) else { break };
            let [7, high, low, rest @ ..] = rest else { break };
            let value_len = u16::from_be_bytes([*high, *low]).into();
            let Some((value, rest)) = rest.split_at_checked(value_len) else { break };
            match name {
                b":event-type" => line = value.to_vec(),
                b":exception-type" => line = [b"!", value].concat(),
                _ => {}
            }
            headers = rest;
        }
        line.push(b'\t');
        line.extend(payload.iter().map(|byte| if *byte == b'\n' { b' ' } else { *byte }));
        line.push(b'\n');
        lines.extend(line);
    }
    Some(lines)
}

/// The strings of a body that may be names or words of a protocol.
fn add_words(body: &[u8], words: &mut BTreeSet<String>) {
    for piece in body.split(|byte| *byte == b'"') {
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-.:/".contains(byte);
        if (2..32).contains(&piece.len()) && piece.iter().all(plain) {
            words.extend(std::str::from_utf8(piece).map(str::to_owned));
        }
    }
}
