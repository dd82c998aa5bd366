//! What a response's headers say about waiting, and who handled the request.

use attempt_ledger_core::Label;
use http::{HeaderMap, HeaderName, header};

mod rate;

pub use rate::rate_limit;

// Names that are made once: a look-up by text reads and folds the name each time.
static RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
static SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
static REQUEST_IDS: [HeaderName; 9] = [
    HeaderName::from_static("x-request-id"),
    HeaderName::from_static("request-id"),
    HeaderName::from_static("apim-request-id"),
    HeaderName::from_static("x-generation-id"),
    HeaderName::from_static("x-amzn-requestid"),
    HeaderName::from_static("mistral-correlation-id"),
    HeaderName::from_static("x-debug-trace-id"),
    HeaderName::from_static("x-ds-trace-id"),
    HeaderName::from_static("trace-id"),
];
static LITELLM_RETRIES: HeaderName = HeaderName::from_static("x-litellm-attempted-retries");
static PORTKEY_RETRIES: HeaderName = HeaderName::from_static("x-portkey-retry-attempt-count");
static ENVOY_ATTEMPTS: HeaderName = HeaderName::from_static("x-envoy-attempt-count");

/// The wait the server asked for, in milliseconds, rounded up; never negative.
///
/// `retry-after-ms` where it can be read, else `Retry-After` as seconds (fractions are sent in
/// practice) or as an HTTP date, measured from the response's own `Date` so that no local clock
/// enters. A date without a readable `Date` beside it gives nothing.
pub fn retry_after_ms(headers: &HeaderMap) -> Option<u64> {
    let text = |name: &HeaderName| headers.get(name).and_then(|v| v.to_str().ok()).map(str::trim);
    if let Some(ms) = text(&RETRY_AFTER_MS).and_then(|value| decimal_ms(value, 1)) {
        return Some(ms);
    }
    let value = text(&header::RETRY_AFTER)?;
    if let Some(ms) = decimal_ms(value, 1000) {
        return Some(ms);
    }
    let until = httpdate::parse_http_date(value).ok()?;
    let now = httpdate::parse_http_date(text(&header::DATE)?).ok()?;
    let wait = until.duration_since(now).unwrap_or_default();
    u64::try_from(wait.as_millis()).ok()
}

/// What the server says of another try (`x-should-retry: true` or `false`), as providers' own
/// clients obey it.
pub fn should_retry(headers: &HeaderMap) -> Option<bool> {
    let word = headers.get(&SHOULD_RETRY)?.to_str().ok()?.trim();
    match word {
        _ if word.eq_ignore_ascii_case("true") => Some(true),
        _ if word.eq_ignore_ascii_case("false") => Some(false),
        _ => None,
    }
}

/// The id that the server gave the request, under the names that providers use.
pub fn request_id(headers: &HeaderMap) -> Option<Label> {
    REQUEST_IDS.iter().find_map(|name| {
        let id = headers.get(name)?.to_str().ok()?.trim();
        (!id.is_empty()).then(|| Label::new(id))
    })
}

/// Retries that a gateway in front says it made before it answered.
///
/// Read from `x-envoy-attempt-count` (attempts, so one less), `x-litellm-attempted-retries` and
/// `x-portkey-retry-attempt-count`.
pub fn upstream_retries(headers: &HeaderMap) -> Option<u32> {
    let number = |name: &HeaderName| headers.get(name)?.to_str().ok()?.trim().parse::<i64>().ok();
    let retries = number(&LITELLM_RETRIES)
        .or_else(|| number(&PORTKEY_RETRIES))
        .or_else(|| number(&ENVOY_ATTEMPTS).map(|attempts| attempts - 1))?;
    u32::try_from(retries.max(0)).ok()
}

/// A decimal number times `scale` (1 or 1000), rounded up; `None` for anything else.
///
/// Digits are counted, not converted to a float, so that the ninth decimal still rounds up. A
/// negative number is 0; one beyond u64 is the largest.
pub(crate) fn decimal_ms(text: &str, scale: u64) -> Option<u64> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if whole.len() + fraction.len() == 0 || !digits(whole) || !digits(fraction) {
        return None;
    }
    if negative {
        return Some(0);
    }
    let number = |part: &str| {
        part.bytes()
            .fold(0u64, |n, b| n.saturating_mul(10).saturating_add(u64::from(b.wrapping_sub(b'0'))))
    };
    let places = if scale == 1000 { 3 } else { 0 };
    let (kept, dropped) = fraction.split_at(places.min(fraction.len()));
    let mut part = number(kept);
    for _ in kept.len()..places {
        part = part.saturating_mul(10);
    }
    let up = u64::from(dropped.bytes().any(|b| b != b'0'));
    Some(number(whole).saturating_mul(scale).saturating_add(part).saturating_add(up))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(n, v)| (n.parse().expect("name"), v.parse().expect("value"))).collect()
    }

    #[test]
    fn the_finer_header_wins_and_every_wait_is_rounded_up() {
        for (pairs, want) in [
            (&[("retry-after", "23"), ("retry-after-ms", "22547")][..], Some(22_547)),
            (&[("retry-after-ms", "742.1")], Some(743)),
            (&[("retry-after-ms", "soon"), ("retry-after", "2")], Some(2000)),
            (&[("retry-after", "0.0001")], Some(1)),
            (&[("retry-after", "1.5")], Some(1500)),
            (&[("retry-after", ".25")], Some(250)),
            (&[("retry-after", "-3")], Some(0)),
            (&[("retry-after", "")], None),
            (&[("retry-after", "1e3")], None),
            (&[("retry-after", "99999999999999999999999")], Some(u64::MAX)),
        ] {
            assert_eq!(retry_after_ms(&headers(pairs)), want, "{pairs:?}");
        }
    }

    #[test]
    fn a_date_is_measured_from_the_response() {
        let at = "Tue, 14 Apr 2026 09:31:30 GMT";
        let date = ("date", "Tue, 14 Apr 2026 09:30:00 GMT");
        assert_eq!(retry_after_ms(&headers(&[("retry-after", at), date])), Some(90_000));
        assert_eq!(retry_after_ms(&headers(&[("retry-after", at)])), None);
        let past = ("retry-after", "Tue, 14 Apr 2026 09:29:00 GMT");
        assert_eq!(retry_after_ms(&headers(&[past, date])), Some(0));
    }

    #[test]
    fn ids_are_labels() {
        assert_eq!(request_id(&headers(&[("request-id", "req_1")])), Some(Label::new("req_1")));
        let mut odd = HeaderMap::new();
        odd.insert("x-request-id", HeaderValue::from_static("a b"));
        assert!(request_id(&odd).expect("an id").as_str().starts_with("other:"));
        assert_eq!(request_id(&HeaderMap::new()), None);
    }

    #[test]
    fn only_true_and_false_say_something_of_another_try() {
        for (word, want) in [
            ("true", Some(true)),
            (" False ", Some(false)),
            ("1", None),
            ("", None),
            ("truely", None),
        ] {
            assert_eq!(should_retry(&headers(&[("x-should-retry", word)])), want, "{word}");
        }
        assert_eq!(should_retry(&HeaderMap::new()), None);
    }

    #[test]
    fn a_gateway_states_its_retries() {
        assert_eq!(upstream_retries(&headers(&[("x-envoy-attempt-count", "3")])), Some(2));
        assert_eq!(upstream_retries(&headers(&[("x-litellm-attempted-retries", "1")])), Some(1));
        assert_eq!(upstream_retries(&HeaderMap::new()), None);
    }
}
