use std::borrow::Cow;

use sha2::{Digest as _, Sha256};

use crate::{
    Digest,
    json::{JsonError, Python, Rfc8785, write_canonical},
};

/// Members of a JSON request body that do not shape the output, and so do not count; at the top
/// level only. Everything else in a body counts, nested members of these names too.
pub const TRANSPORT_SWITCHES: &[&str] = &[
    "metadata",
    "prompt_cache_key",
    "request_id",
    "safety_identifier",
    "store",
    "stream",
    "stream_options",
    "user",
];

/// Parameters of a query that do not shape the output, and so do not count.
pub const UNCOUNTED_QUERY: &[&str] = &["access_token", "alt", "api_key", "key", "sig"];

/// The headers that count, in lower case. No other header does.
pub const COUNTED_HEADERS: &[&str] = &[
    "anthropic-beta",
    "anthropic-version",
    "api-version",
    "openai-beta",
    "openai-organization",
    "openai-project",
];

/// Before everything that is hashed: no other use of SHA-256 gives the same digests, and a change
/// of the form changes the number.
const PREFIX: &[u8] = b"attempt-ledger fingerprint 1\n";

/// What a request is made of, as far as it shapes the output.
#[derive(Clone, Copy, Debug)]
pub struct RequestParts<'a> {
    /// The method, as sent.
    pub method: &'a str,
    /// `http` or `https`, in any case.
    pub scheme: &'a str,
    /// The host, in any case.
    pub host: &'a str,
    /// The port; `None` is the scheme's own.
    pub port: Option<u16>,
    /// The path, as sent; the empty path is `/`.
    pub path: &'a str,
    /// The query without its question mark; `None` is the empty one.
    pub query: Option<&'a str>,
    /// Headers in their order, at least those of [`COUNTED_HEADERS`]; names in any case.
    pub headers: &'a [(&'a str, &'a [u8])],
    /// The whole body; `None` is the empty one. For a body that is streamed, see
    /// [`FingerprintBuilder`].
    pub body: Option<&'a [u8]>,
    /// Which sample of the case, from 1.
    pub epoch: u32,
}

/// The fingerprint of a request: equal when everything that shapes the output is equal.
///
/// SHA-256 over a version prefix, method, scheme, host, port, path, query without
/// [`UNCOUNTED_QUERY`], the [`COUNTED_HEADERS`], the epoch and the body. A body that is a JSON
/// object or array counts by its canonical form ([`canonical_json`](crate::canonical_json)),
/// without the [`TRANSPORT_SWITCHES`]. Any other body counts by its bytes; so does JSON that has
/// no canonical form: with two members of one name, nested more than 128 deep, with a number
/// beyond a double or with half of a surrogate pair.
///
/// ```
/// use attempt_ledger_core::{fingerprint, RequestParts};
///
/// let parts = RequestParts {
///     method: "POST",
///     scheme: "https",
///     host: "api.example.com",
///     port: None,
///     path: "/v1/chat/completions",
///     query: None,
///     headers: &[],
///     body: Some(br#"{"model":"m","temperature":0,"stream":true}"#),
///     epoch: 1,
/// };
/// let same = RequestParts { body: Some(br#"{ "temperature": 0.0, "model": "m" }"#), ..parts };
/// assert_eq!(fingerprint(&parts), fingerprint(&same));
/// let warmer = RequestParts { body: Some(br#"{"model":"m","temperature":1}"#), ..parts };
/// assert_ne!(fingerprint(&parts), fingerprint(&warmer));
/// ```
pub fn fingerprint(parts: &RequestParts<'_>) -> Digest {
    let body = parts.body.unwrap_or_default();
    let mut text = prelude(parts, body.len());
    let before = text.len();
    text.push(BodyForm::Json.tag());
    if !is_container(body)
        || write_canonical::<Rfc8785>(body, TRANSPORT_SWITCHES, &mut text).is_err()
    {
        text.truncate(before);
        if !body.is_empty() {
            text.push(BodyForm::Bytes.tag());
            text.extend_from_slice(body);
        }
    }
    Digest::of(&text)
}

/// Whether the text, if it is JSON, is an object or an array. A bare word or number is more often
/// plain text, whose white space may mean something.
fn is_container(body: &[u8]) -> bool {
    let first = body.iter().find(|b| !matches!(b, b' ' | b'\n' | b'\r' | b'\t'));
    matches!(first, Some(b'{' | b'['))
}

/// The fingerprint of a request whose body is streamed: hashed piece by piece while it is sent.
///
/// The bytes count as they are, since nobody holds the whole. A body that is not JSON has the same
/// fingerprint as by [`fingerprint()`]; one that is JSON has another. How a body is cut into pieces
/// does not matter.
#[derive(Clone, Debug)]
pub struct FingerprintBuilder {
    hash: Sha256,
    begun: bool,
}

impl FingerprintBuilder {
    /// Begins with all but the body; [`RequestParts::body`] is not looked at.
    pub fn new(parts: &RequestParts<'_>) -> Self {
        FingerprintBuilder { hash: Sha256::new_with_prefix(prelude(parts, 0)), begun: false }
    }

    /// Goes on with the next piece of the body.
    pub fn update(&mut self, piece: &[u8]) {
        if !self.begun && !piece.is_empty() {
            self.begun = true;
            self.hash.update([BodyForm::Bytes.tag()]);
        }
        self.hash.update(piece);
    }

    /// The fingerprint, once the whole body was given.
    pub fn finish(self) -> Digest {
        Digest::from_bytes(self.hash.finalize().into())
    }
}

enum BodyForm {
    Json,
    Bytes,
}

impl BodyForm {
    fn tag(self) -> u8 {
        match self {
            BodyForm::Json => b'j',
            BodyForm::Bytes => b'b',
        }
    }
}

/// All but the body, each part behind its length so that no two lists of parts read the same.
fn prelude(parts: &RequestParts<'_>, room: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(PREFIX.len() + 256 + parts.path.len() + room);
    out.extend_from_slice(PREFIX);
    put(&mut out, parts.method.as_bytes());
    put_lower(&mut out, parts.scheme);
    put_lower(&mut out, parts.host);
    let own = if parts.scheme.eq_ignore_ascii_case("http") { 80 } else { 443 };
    out.extend_from_slice(&parts.port.unwrap_or(own).to_le_bytes());
    put(&mut out, if parts.path.is_empty() { b"/" } else { parts.path.as_bytes() });
    put(&mut out, counted_query(parts.query.unwrap_or_default()).as_bytes());
    for name in COUNTED_HEADERS {
        let values = parts.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name));
        for (_, value) in values {
            out.push(b'h');
            put(&mut out, name.as_bytes());
            put(&mut out, value);
        }
    }
    out.push(b'e');
    out.extend_from_slice(&parts.epoch.to_le_bytes());
    out
}

fn put(out: &mut Vec<u8>, part: &[u8]) {
    out.extend_from_slice(&(part.len() as u64).to_le_bytes());
    out.extend_from_slice(part);
}

fn put_lower(out: &mut Vec<u8>, part: &str) {
    out.extend_from_slice(&(part.len() as u64).to_le_bytes());
    out.extend(part.bytes().map(|b| b.to_ascii_lowercase()));
}

fn counted_query(query: &str) -> Cow<'_, str> {
    let counted = |pair: &&str| {
        let name = pair.split_once('=').map_or(*pair, |(name, _)| name);
        !UNCOUNTED_QUERY.iter().any(|uncounted| percent_decodes_to(name, uncounted))
    };
    if query.split('&').all(|pair| counted(&pair)) {
        return Cow::Borrowed(query);
    }
    Cow::Owned(query.split('&').filter(counted).collect::<Vec<_>>().join("&"))
}

fn percent_decodes_to(text: &str, plain: &str) -> bool {
    let mut rest = text.bytes();
    let mut next = || {
        let byte = rest.next()?;
        if byte != b'%' {
            return Some(byte);
        }
        let ahead = rest.clone().take(2).map(|b| char::from(b).to_digit(16));
        let decoded = ahead.collect::<Option<Vec<_>>>().filter(|digits| digits.len() == 2);
        let Some(&[high, low]) = decoded.as_deref() else { return Some(b'%') };
        rest.nth(1);
        u8::try_from(high << 4 | low).ok()
    };
    plain.bytes().all(|b| next() == Some(b)) && next().is_none()
}

/// The compatibility form of the fingerprint: SHA-256 over `{"m": model, "p": prompt, "params":
/// params}` as Python's `json.dumps(..., sort_keys=True)` writes it.
///
/// `params` is JSON text, and its numbers count as Python reads them from that text: an integer of
/// any size keeps its digits, anything with a fraction or an exponent is a float.
///
/// ```
/// let digest = attempt_ledger_core::compat_fingerprint("unset", "reply with: ok", "{}")?;
/// assert_eq!(digest.short(), "0547fe88edfba265");
/// # Ok::<(), attempt_ledger_core::JsonError>(())
/// ```
///
/// # Errors
/// [`JsonError`] when `params` is not JSON.
pub fn compat_fingerprint(model: &str, prompt: &str, params: &str) -> Result<Digest, JsonError> {
    let mut out = Vec::with_capacity(model.len() + prompt.len() + params.len() + 32);
    for (name, text) in [("{\"m\": ", model), (", \"p\": ", prompt)] {
        out.extend_from_slice(name.as_bytes());
        let quoted = serde_json::Value::from(text).to_string();
        write_canonical::<Python>(quoted.as_bytes(), &[], &mut out)?;
    }
    out.extend_from_slice(b", \"params\": ");
    write_canonical::<Python>(params.as_bytes(), &[], &mut out)?;
    out.push(b'}');
    Ok(Digest::of(&out))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const BODY: &str = r#"{"model":"m","messages":[{"role":"user","content":"hi","user":"u"}],
        "temperature":0.7,"max_tokens":16,"seed":1,"tools":[{"type":"function"}],"n":1}"#;

    const PARTS: RequestParts<'static> = RequestParts {
        method: "POST",
        scheme: "https",
        host: "api.example.com",
        port: None,
        path: "/v1/chat",
        query: Some("api-version=2&x=1"),
        headers: &[("openai-beta", b"a"), ("authorization", b"Bearer 1")],
        body: Some(BODY.as_bytes()),
        epoch: 1,
    };

    fn of_body(body: &str) -> Digest {
        fingerprint(&RequestParts { body: Some(body.as_bytes()), ..PARTS })
    }

    /// Kept for ever: ledgers hold these.
    #[test]
    fn the_form_is_pinned() {
        assert_eq!(fingerprint(&PARTS).short(), "d87c388346e95b66");
        assert_eq!(
            fingerprint(&RequestParts { body: Some(b"text"), ..PARTS }).short(),
            "0a167b0ad010ad7e"
        );
        assert_eq!(fingerprint(&RequestParts { body: None, ..PARTS }).short(), "505e7e9ce454d3e9");
    }

    #[test]
    fn every_part_counts() {
        let all = [
            PARTS,
            RequestParts { method: "PUT", ..PARTS },
            RequestParts { scheme: "http", ..PARTS },
            RequestParts { host: "api.example.org", ..PARTS },
            RequestParts { port: Some(8443), ..PARTS },
            RequestParts { path: "/v1/Chat", ..PARTS },
            RequestParts { query: Some("api-version=3&x=1"), ..PARTS },
            RequestParts { query: None, ..PARTS },
            RequestParts { headers: &[("openai-beta", b"b")], ..PARTS },
            RequestParts { headers: &[("openai-beta", b"a"), ("openai-beta", b"b")], ..PARTS },
            RequestParts { headers: &[("openai-project", b"a")], ..PARTS },
            RequestParts { headers: &[], ..PARTS },
            RequestParts { body: None, ..PARTS },
            RequestParts { body: Some(b"{}"), ..PARTS },
            RequestParts { body: Some(b"hi"), ..PARTS },
            RequestParts { epoch: 2, ..PARTS },
        ];
        let distinct: BTreeSet<_> = all.iter().map(fingerprint).collect();
        assert_eq!(distinct.len(), all.len());
        for name in COUNTED_HEADERS {
            let upper = name.to_uppercase();
            let with = RequestParts { headers: &[(&upper, b"x")], ..PARTS };
            let other = RequestParts { headers: &[(name, b"y")], ..PARTS };
            assert_ne!(fingerprint(&with), fingerprint(&other), "{name}");
        }
    }

    #[test]
    fn what_does_not_shape_the_output_does_not_count() {
        let same = |parts: RequestParts<'_>| assert_eq!(fingerprint(&parts), fingerprint(&PARTS));
        same(RequestParts { scheme: "HTTPS", host: "API.Example.com", port: Some(443), ..PARTS });
        same(RequestParts {
            headers: &[("x-request-id", b"1"), ("OpenAI-Beta", b"a"), ("user-agent", b"z")],
            ..PARTS
        });
        for query in [
            "api-version=2&x=1&key=s",
            "key=s&api-version=2&x=1",
            "api_key=s&api-version=2&access_token&x=1&sig=&alt=sse",
            "api%5Fkey=s&%6b%65%79=t&api-version=2&x=1",
        ] {
            same(RequestParts { query: Some(query), ..PARTS });
        }
        for query in
            ["api-version=2&x=1&keys=s", "api-version=2&x=1&KEY=s", "api-version=2&x=1&k=key"]
        {
            assert_ne!(
                fingerprint(&RequestParts { query: Some(query), ..PARTS }),
                fingerprint(&PARTS),
                "{query}"
            );
        }
        let empty = RequestParts { query: None, body: None, ..PARTS };
        let same_empty = RequestParts { query: Some("key=s"), body: Some(b""), ..PARTS };
        assert_eq!(fingerprint(&empty), fingerprint(&same_empty));
        assert_eq!(
            fingerprint(&RequestParts { path: "", ..PARTS }),
            fingerprint(&RequestParts { path: "/", ..PARTS })
        );
    }

    /// Every field of a body, changed one at a time.
    #[test]
    fn every_field_of_a_body_counts_but_the_switches() {
        let whole = of_body(BODY);
        for (field, other) in [
            (r#""model":"m""#, r#""model":"M""#),
            (r#""role":"user""#, r#""role":"system""#),
            (r#""content":"hi""#, r#""content":"hi ""#),
            (r#""user":"u""#, r#""user":"v""#),
            (r#""temperature":0.7"#, r#""temperature":0.70000001"#),
            (r#""temperature":0.7"#, r#""temperature":null"#),
            (r#""max_tokens":16"#, r#""max_tokens":"16""#),
            (r#""seed":1"#, r#""Seed":1"#),
            (r#""function""#, r#""custom""#),
            (r#","n":1"#, ""),
        ] {
            let changed = BODY.replace(field, other);
            assert_ne!(changed, BODY);
            assert_ne!(of_body(&changed), whole, "{other}");
        }
        for switch in TRANSPORT_SWITCHES {
            let with = BODY.replacen('{', &format!(r#"{{"{switch}":{{"a":[1]}},"#), 1);
            assert_eq!(of_body(&with), whole, "{switch}");
            let nested = BODY.replace(r#""role""#, &format!(r#""{switch}2":1,"role""#));
            assert_ne!(of_body(&nested), whole, "nested {switch}");
        }
    }

    #[test]
    fn order_space_escapes_and_number_spelling_do_not_count() {
        let other = r#"{ "n" : 1.0, "tools": [ {"type":"func\u0074ion"} ], "seed": 1e0,
            "max_tokens": 16, "temperature": 7e-1, "stream": true,
            "messages": [{"user":"u","content":"hi","role":"user"}], "model": "m" }"#;
        assert_eq!(of_body(other), of_body(BODY));
        // The order of elements does.
        assert_ne!(of_body("[1,2]"), of_body("[2,1]"));
    }

    #[test]
    fn json_without_a_canonical_form_counts_by_its_bytes() {
        for body in ["{\"a\":1,\"a\":1}", "[1e999]", "[\"\\ud800\"]", &"[".repeat(200), "1.0", "{"]
        {
            assert_ne!(of_body(body), of_body(&format!("{body} ")), "{body:?}");
        }
    }

    #[test]
    fn a_streamed_body_counts_by_its_bytes_however_it_is_cut() {
        let streamed = |pieces: &[&[u8]]| {
            let mut builder = FingerprintBuilder::new(&PARTS);
            pieces.iter().for_each(|piece| builder.update(piece));
            builder.finish()
        };
        assert_eq!(streamed(&[b"some ", b"", b"text"]), of_body("some text"));
        assert_eq!(streamed(&[]), of_body(""));
        assert_eq!(streamed(&[b""]), of_body(""));
        assert_ne!(streamed(&[b"{}"]), of_body("{}"));
    }

    #[test]
    fn the_compatibility_form_equals_pythons() {
        for (model, prompt, params, want) in [
            ("unset", "reply with: ok", "{}", "0547fe88edfba265"),
            (
                "m",
                "naïve 你好 \u{1}",
                r#"{"temperature":0.7,"max_tokens":16,"nested":{"b":[1,2.0,null,true],"a":"x"}}"#,
                "f182e10a78c6921b",
            ),
            (
                "m",
                "x",
                "{\"a\":1e16,\"b\":1e-7,\"c\":123456789012345678901234567890,\"d\":-0.0,\"e\":\"😀\u{7f}\u{2028}/\"}",
                "31274cfd714e305a",
            ),
        ] {
            assert_eq!(compat_fingerprint(model, prompt, params).expect("JSON").short(), want);
        }
        assert!(compat_fingerprint("m", "p", "{").is_err());
    }
}
