use http::{HeaderMap, header};

/// What a response's `Content-Type` says, as far as decoding depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Media {
    /// Server-sent events.
    EventStream,
    /// A JSON value a line.
    Lines,
    /// Binary frames, as AWS sends them.
    Frames,
    Json,
    /// Text in UTF-8.
    Text,
    /// A type that holds no text, or text in another character set.
    Binary,
    /// No type, or none that can be read.
    Unknown,
}

impl Media {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let Some(value) = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()) else {
            return Media::Unknown;
        };
        // Proxies that state it once more join both by a comma.
        let value = value.split(',').map(str::trim).find(|value| !value.is_empty());
        let mut parts = value.unwrap_or_default().split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let charset = parts.find_map(|part| {
            let (name, value) = part.split_once('=')?;
            name.trim().eq_ignore_ascii_case("charset").then(|| value.trim().trim_matches('"'))
        });
        let utf8 = charset.is_none_or(|charset| {
            ["utf-8", "utf8", "us-ascii"].iter().any(|name| charset.eq_ignore_ascii_case(name))
        });
        let (kind, sub) = name.split_once('/').unwrap_or((name, ""));
        let is_text = kind.eq_ignore_ascii_case("text");
        let is = |word: &str| sub.eq_ignore_ascii_case(word);
        let ends = |word: &str| {
            let start = sub.len().checked_sub(word.len());
            start
                .and_then(|start| sub.get(start..))
                .is_some_and(|end| end.eq_ignore_ascii_case(word))
        };
        if kind.is_empty() {
            Media::Unknown
        } else if is_text && is("event-stream") {
            Media::EventStream
        } else if LINES.iter().any(|lines| is(lines)) {
            Media::Lines
        } else if is("vnd.amazon.eventstream") {
            Media::Frames
        } else if is("json") || ends("+json") {
            Media::Json
        } else if !utf8 {
            Media::Binary
        } else if is_text
            || (kind.eq_ignore_ascii_case("application") && TEXTS.iter().any(|text| is(text)))
            || ends("+xml")
            || ends("+yaml")
        {
            Media::Text
        } else {
            Media::Binary
        }
    }
}

/// Names of JSON by the line.
const LINES: [&str; 6] =
    ["x-ndjson", "ndjson", "jsonl", "x-jsonlines", "json-lines", "stream+json"];

/// Kinds of `application` that are text.
const TEXTS: [&str; 4] = ["xml", "yaml", "javascript", "graphql"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_known_in_any_case() {
        for (value, want) in [
            ("text/event-stream; charset=utf-8", Media::EventStream),
            ("Text/Event-Stream", Media::EventStream),
            ("application/json", Media::Json),
            ("APPLICATION/Problem+JSON;charset=latin1", Media::Json),
            ("text/plain", Media::Text),
            ("text/event-stream, text/event-stream", Media::EventStream),
            ("application/json;charset=utf-8,application/json", Media::Json),
            ("TEXT/plain; Charset=\"UTF-8\"", Media::Text),
            ("text/plain; charset=latin1", Media::Binary),
            ("application/X-NDJSON", Media::Lines),
            ("application/jsonl; charset=utf-8", Media::Lines),
            ("application/vnd.amazon.eventstream", Media::Frames),
            ("image/svg+XML", Media::Text),
            ("audio/xml", Media::Binary),
            ("application/octet-stream", Media::Binary),
            ("json", Media::Binary),
            ("/json", Media::Unknown),
            ("", Media::Unknown),
        ] {
            let headers = HeaderMap::from_iter([(
                header::CONTENT_TYPE,
                value.parse().expect("a header's value"),
            )]);
            assert_eq!(Media::of(&headers), want, "{value}");
        }
        assert_eq!(Media::of(&HeaderMap::new()), Media::Unknown);
    }
}
