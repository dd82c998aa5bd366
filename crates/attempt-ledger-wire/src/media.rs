use http::{HeaderMap, header};

/// What a response's `Content-Type` says, as far as decoding depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Media {
    EventStream,
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
        let mut parts = value.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default().to_ascii_lowercase();
        let charset = parts.find_map(|part| {
            let (name, value) = part.split_once('=')?;
            name.trim().eq_ignore_ascii_case("charset").then(|| value.trim().trim_matches('"'))
        });
        let utf8 = charset.is_none_or(|charset| {
            ["utf-8", "utf8", "us-ascii"].iter().any(|name| charset.eq_ignore_ascii_case(name))
        });
        let (kind, sub) = name.split_once('/').unwrap_or((&name, ""));
        match (kind, sub) {
            ("", _) => Media::Unknown,
            ("text", "event-stream") => Media::EventStream,
            (_, "json") => Media::Json,
            _ if sub.ends_with("+json") => Media::Json,
            _ if !utf8 => Media::Binary,
            ("text", _) => Media::Text,
            ("application", "xml" | "yaml" | "javascript" | "x-ndjson" | "jsonl" | "graphql") => {
                Media::Text
            }
            _ if sub.ends_with("+xml") || sub.ends_with("+yaml") => Media::Text,
            _ => Media::Binary,
        }
    }
}
