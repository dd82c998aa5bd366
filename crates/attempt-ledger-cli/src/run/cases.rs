//! The file of cases: read, checked, and turned into requests.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    fs::File,
    io::{BufRead, BufReader, Read as _},
    path::Path,
};

use attempt_ledger_core::{CaseId, Digest, canonical_json};
use bytes::Bytes;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::failure::Failure;

/// A case that is to be run.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) id: CaseId,
    /// What it is pinned to.
    pub(crate) fixture: Digest,
    /// The answer that a grader compares with.
    pub(crate) expected: Option<String>,
    /// The request's body.
    pub(crate) body: Bytes,
    /// Digest of that body, but for whether it asks for a stream.
    pub(crate) asks: Digest,
}

impl Case {
    /// What is asked, for who grades the answer: the user's message, or all messages as JSON.
    pub(crate) fn prompt(&self) -> String {
        #[derive(Deserialize)]
        struct Asked<'a> {
            #[serde(borrow)]
            messages: &'a RawValue,
        }
        #[derive(Deserialize)]
        struct Message {
            role: String,
            content: String,
        }
        let asked: Result<Asked<'_>, _> = serde_json::from_slice(&self.body);
        let all = asked.map(|asked| asked.messages.get()).unwrap_or_default();
        match serde_json::from_str::<[Message; 1]>(all) {
            Ok([Message { role, content }]) if role == "user" => content,
            _ => all.to_owned(),
        }
    }
}

/// What every request has in common.
#[derive(Debug)]
pub(crate) struct Common<'a> {
    pub(crate) model: &'a str,
    pub(crate) params: &'a Params,
    pub(crate) stream: bool,
    /// Whether a grader needs an expected answer.
    pub(crate) graded: bool,
}

/// Fields of a request beside model, messages and stream.
#[derive(Debug, Default)]
pub(crate) struct Params(BTreeMap<String, Box<RawValue>>);

/// The longest line that is read, in bytes.
const MAX_LINE: u64 = 16 << 20;

/// What a case cannot set, and who does.
const TAKEN: [(&str, &str); 4] = [
    ("model", "--model"),
    ("messages", "the case's own field"),
    ("prompt", "the case's own field"),
    ("stream", "--stream"),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    id: String,
    #[serde(default)]
    prompt: Option<String>,
    #[serde(borrow, default)]
    messages: Option<&'a RawValue>,
    #[serde(default)]
    expected: Option<String>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    fixture: Option<&'a RawValue>,
}

/// `null` is a fixture like any other.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

/// Reads all cases of a file.
pub(crate) fn read(path: &Path, common: &Common<'_>) -> Result<Vec<Case>, Failure> {
    let unreadable =
        |error| Failure::usage(format_args!("{} could not be read", path.display())).because(error);
    let mut file = BufReader::new(File::open(path).map_err(unreadable)?);
    let mut cases = Vec::new();
    let mut lines_of: HashMap<CaseId, usize> = HashMap::new();
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let read = (&mut file).take(MAX_LINE + 1).read_until(b'\n', &mut line);
        if read.map_err(unreadable)? == 0 {
            break;
        }
        let place = Place { path, number };
        if line.len() as u64 > MAX_LINE {
            return Err(place.failure("the line has more than 16 MiB"));
        }
        let text = place.text(&line)?;
        if text.trim().is_empty() {
            continue;
        }
        let case = place.case(text, common)?;
        if let Some(before) = lines_of.insert(case.id.clone(), number) {
            return Err(place
                .failure(format_args!("the id {:?} is that of line {before} already", case.id))
                .hint("give every case an id of its own"));
        }
        cases.push(case);
    }
    if cases.is_empty() {
        return Err(Failure::usage(format_args!("{} holds no case", path.display()))
            .hint(r#"write one object a line, such as {"id": "case-1", "prompt": "..."}"#));
    }
    Ok(cases)
}

/// Where a case stands.
#[derive(Clone, Copy)]
struct Place<'a> {
    path: &'a Path,
    number: usize,
}

impl Place<'_> {
    fn failure(self, what: impl fmt::Display) -> Failure {
        Failure::usage(format_args!("{}, line {}: {what}", self.path.display(), self.number))
    }

    /// Of JSON that is not what it must be, with its column.
    fn json(self, error: &serde_json::Error) -> Failure {
        let text = error.to_string();
        // The line is ours, since a case is one line to the parser.
        let what = text.rsplit_once(" at line ").map_or(&*text, |(what, _)| what);
        Failure::usage(format_args!(
            "{}, line {}, column {}: {what}",
            self.path.display(),
            self.number,
            error.column()
        ))
        .hint(r#"a case is one object on one line: {"id", "prompt" or "messages", "expected"?, "params"?, "fixture"?}"#)
    }

    fn text(self, line: &[u8]) -> Result<&str, Failure> {
        let line = match self.number {
            1 => line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line),
            _ => line,
        };
        str::from_utf8(line).map_err(|error| {
            self.failure(format_args!("byte {} is not UTF-8", error.valid_up_to() + 1))
        })
    }

    fn case(self, text: &str, common: &Common<'_>) -> Result<Case, Failure> {
        if !text.trim_start().starts_with('{') {
            // A list would be taken for the fields in their order.
            serde_json::from_str::<&RawValue>(text).map_err(|error| self.json(&error))?;
            return Err(self.failure("the line is no JSON object"));
        }
        let line: Line<'_> = serde_json::from_str(text).map_err(|error| self.json(&error))?;
        let id =
            CaseId::new(line.id).map_err(|error| self.failure(format_args!("the id {error}")))?;
        if common.graded && line.expected.is_none() {
            return Err(self
                .failure(format_args!("case {id} has no \"expected\", and a grader is set"))
                .hint(
                    "add \"expected\" to the line, leave --grader out, or give one that needs none",
                ));
        }
        let messages = match (&line.prompt, line.messages) {
            (Some(prompt), None) => {
                format!(r#"[{{"role":"user","content":{}}}]"#, serde_json::Value::from(&**prompt))
            }
            (None, Some(messages)) => {
                let list: Vec<&RawValue> = serde_json::from_str(messages.get()).map_err(|_| {
                    self.failure(format_args!("case {id}: \"messages\" is no list"))
                })?;
                if list.is_empty() {
                    return Err(self.failure(format_args!("case {id}: \"messages\" is empty")));
                }
                messages.get().to_owned()
            }
            (Some(_), Some(_)) => {
                return Err(self.failure(format_args!(
                    "case {id} has both \"prompt\" and \"messages\"; give one of them"
                )));
            }
            (None, None) => {
                return Err(self.failure(format_args!(
                    "case {id} has neither \"prompt\" nor \"messages\"; give one of them"
                )));
            }
        };
        let own = line.params.map(RawValue::get).map(Params::read).transpose();
        let own = own
            .map_err(|why| self.failure(format_args!("case {id}: \"params\" {why}")))?
            .unwrap_or_default();
        let fixture = match line.fixture {
            Some(fixture) => self.digest(&id, fixture.get())?,
            None => self.digest(&id, &without_id(text).map_err(|error| self.json(&error))?)?,
        };
        let asks = request(common, &own, &messages, None);
        Ok(Case {
            fixture,
            expected: line.expected,
            asks: self.digest(&id, &asks)?,
            body: request(common, &own, &messages, Some(common.stream)).into(),
            id,
        })
    }

    /// Digest of the canonical form.
    fn digest(self, id: &CaseId, json: &str) -> Result<Digest, Failure> {
        let canonical = canonical_json(json.as_bytes()).map_err(|error| {
            self.failure(format_args!("case {id} has no canonical form")).because(error)
        })?;
        Ok(Digest::of(&canonical))
    }
}

fn request(common: &Common<'_>, own: &Params, messages: &str, stream: Option<bool>) -> String {
    let model = serde_json::Value::from(common.model);
    let mut body = format!(r#"{{"model":{model},"messages":{messages}"#);
    let mut params: BTreeMap<&str, &RawValue> = common.params.iter().collect();
    params.extend(own.iter());
    for (name, value) in params {
        body.push_str(&format!(",{}:{value}", serde_json::Value::from(name)));
    }
    if let Some(stream) = stream {
        body.push_str(&format!(r#","stream":{stream}"#));
    }
    body.push('}');
    body
}

/// The line as JSON, but for its id.
fn without_id(text: &str) -> Result<String, serde_json::Error> {
    let mut fields: BTreeMap<String, &RawValue> = serde_json::from_str(text)?;
    fields.remove("id");
    serde_json::to_string(&fields)
}

impl Params {
    /// Reads an object of fields.
    pub(crate) fn read(json: &str) -> Result<Params, String> {
        let fields: BTreeMap<String, Box<RawValue>> =
            serde_json::from_str(json).map_err(|error| format!("is no JSON object: {error}"))?;
        canonical_json(json.as_bytes()).map_err(|error| error.to_string())?;
        match TAKEN.iter().find(|(name, _)| fields.contains_key(*name)) {
            Some((name, by)) => Err(format!("sets {name:?}, which {by} does")),
            None => Ok(Params(fields)),
        }
    }

    /// Digest of the canonical form.
    pub(crate) fn digest(&self) -> Result<Digest, Failure> {
        let no_form = "--params has no canonical form";
        let json = serde_json::to_string(&self.0)
            .map_err(|error| Failure::usage(no_form).because(error))?;
        let canonical = canonical_json(json.as_bytes())
            .map_err(|error| Failure::usage(no_form).because(error))?;
        Ok(Digest::of(&canonical))
    }

    fn iter(&self) -> impl Iterator<Item = (&str, &RawValue)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(line: &str, params: &str) -> Case {
        let params = Params::read(params).expect("params");
        let common = Common { model: "m", params: &params, stream: true, graded: false };
        let place = Place { path: Path::new("cases"), number: 1 };
        match place.case(line, &common) {
            Ok(case) => case,
            Err(failure) => panic!("{failure:?}"),
        }
    }

    #[test]
    fn a_case_becomes_a_request() {
        let line = r#"{"id":"a","prompt":"say \"hi\"","params":{"seed":12345678901234567890123}}"#;
        let body = case(line, r#"{"temperature":0.0,"seed":1}"#).body;
        assert_eq!(
            str::from_utf8(&body).expect("text"),
            r#"{"model":"m","messages":[{"role":"user","content":"say \"hi\""}],"seed":12345678901234567890123,"temperature":0.0,"stream":true}"#
        );
    }

    #[test]
    fn a_case_without_a_fixture_is_pinned_to_its_line_but_for_the_id() {
        let of = |line| case(line, "{}").fixture;
        let first = of(r#"{"id":"a","prompt":"p"}"#);
        assert_eq!(first, of(r#"{ "prompt" : "\u0070", "id" : "b" }"#));
        assert_ne!(first, of(r#"{"id":"a","prompt":"q"}"#));
        assert_ne!(first, of(r#"{"id":"a","prompt":"p","expected":""}"#));
        let pinned = of(r#"{"id":"a","prompt":"p","fixture":null}"#);
        assert_eq!(pinned, of(r#"{"id":"c","prompt":"z","fixture":null}"#));
        assert_eq!(pinned, Digest::of(b"null"));
    }

    #[test]
    fn what_shapes_the_answer_is_asked_for_and_the_stream_is_not() {
        let params = Params::default();
        let asks = |stream| {
            let common = Common { model: "m", params: &params, stream, graded: false };
            let place = Place { path: Path::new("cases"), number: 1 };
            place.case(r#"{"id":"a","prompt":"p"}"#, &common).map(|case| case.asks).ok()
        };
        assert!(asks(true).is_some());
        assert_eq!(asks(true), asks(false));
    }
}
