use std::time::{Duration, SystemTime};

use attempt_ledger_core::{Quota, RateLimit, Timestamp};
use http::{HeaderMap, HeaderValue, header};

use super::decimal_ms;

/// What the headers say of the server's rate limits; `None` when they say nothing.
///
/// Read are `x-ratelimit-{limit,remaining,reset}`, each bare or with `-requests` or `-tokens`
/// behind it; `anthropic-ratelimit-{requests,tokens,input-tokens,output-tokens}-{limit,remaining,reset}`;
/// and `ratelimit-{limit,remaining,reset}` and `ratelimit`, in the forms of the drafts of the IETF.
///
/// A reset is a duration (`6m0s`, `7.66s`, `120ms`), seconds, or a moment: seconds or milliseconds
/// since 1970, RFC 3339, or an HTTP date. A moment is measured from the response's own `Date`, so
/// that no local clock enters; without one it is left out. What cannot be read is left out too.
pub fn rate_limit(headers: &HeaderMap) -> Option<Box<RateLimit>> {
    // Most responses have none of these: their names are passed over, and nothing is made.
    let mut found: Option<Box<RateLimit>> = None;
    for (name, value) in headers {
        let Some(name) = Name::of(name.as_str()) else { continue };
        let Ok(value) = value.to_str() else { continue };
        let mut read = RateLimit::default();
        read.take(name, value.trim(), headers);
        if !read.is_empty() {
            found.get_or_insert_default().fill(&read);
        }
    }
    found
}

/// A header that tells of a rate limit.
#[derive(Clone, Copy)]
enum Name<'a> {
    /// One field of one limit.
    Field { of: &'a str, field: &'a str },
    /// A whole limit.
    Whole,
}

impl<'a> Name<'a> {
    fn of(name: &'a str) -> Option<Self> {
        match name.as_bytes().first()? {
            b'x' => {
                let rest = name.strip_prefix("x-ratelimit-")?;
                let (field, of) = rest.split_once('-').unwrap_or((rest, ""));
                Some(Name::Field { of, field })
            }
            b'a' => {
                let (of, field) = name.strip_prefix("anthropic-ratelimit-")?.rsplit_once('-')?;
                Some(Name::Field { of, field })
            }
            b'r' => match name.strip_prefix("ratelimit")? {
                "" => Some(Name::Whole),
                rest => Some(Name::Field { of: "", field: rest.strip_prefix('-')? }),
            },
            _ => None,
        }
    }
}

/// Headers name few limits; of a list that is longer the rest is not read.
const MAX_MEMBERS: usize = 16;

trait Read {
    fn take(&mut self, name: Name<'_>, value: &str, headers: &HeaderMap);
    fn fill(&mut self, read: &RateLimit);
}

impl Read for RateLimit {
    fn take(&mut self, name: Name<'_>, value: &str, headers: &HeaderMap) {
        let Name::Field { of, field } = name else {
            self.unnamed = whole(value);
            return;
        };
        let quota = match of {
            "" => &mut self.unnamed,
            "requests" => &mut self.requests,
            "tokens" => &mut self.tokens,
            "input-tokens" => &mut self.input_tokens,
            "output-tokens" => &mut self.output_tokens,
            _ => return,
        };
        match field {
            "limit" => quota.limit = count(value),
            "remaining" => quota.remaining = count(value),
            "reset" => quota.reset_ms = reset_ms(value, headers),
            _ => {}
        }
    }

    /// What was said first stands.
    fn fill(&mut self, read: &RateLimit) {
        for (known, read) in [
            (&mut self.requests, read.requests),
            (&mut self.tokens, read.tokens),
            (&mut self.input_tokens, read.input_tokens),
            (&mut self.output_tokens, read.output_tokens),
            (&mut self.unnamed, read.unnamed),
        ] {
            known.limit = known.limit.or(read.limit);
            known.remaining = known.remaining.or(read.remaining);
            known.reset_ms = known.reset_ms.or(read.reset_ms);
        }
    }
}

/// `limit=100, remaining=50, reset=5`, or `"a";r=50;t=5, "b";r=9;t=60`, of which the limit with the
/// least left counts.
fn whole(value: &str) -> Quota {
    let mut flat = Quota::default();
    let mut least: Option<Quota> = None;
    for member in value.split(',').take(MAX_MEMBERS) {
        let mut quota = Quota::default();
        for pair in member.split(';').take(MAX_MEMBERS) {
            let Some((key, number)) = pair.split_once('=') else { continue };
            let number = count(number.trim());
            match key.trim() {
                "limit" => flat.limit = number,
                "remaining" => flat.remaining = number,
                "reset" => flat.reset_ms = number.and_then(|s| s.checked_mul(1000)),
                "q" => quota.limit = number,
                "r" => quota.remaining = number,
                "t" => quota.reset_ms = number.and_then(|s| s.checked_mul(1000)),
                _ => {}
            }
        }
        let left = quota.remaining;
        if left.is_some() && least.is_none_or(|known| left < known.remaining) {
            least = Some(quota);
        }
    }
    least.unwrap_or(flat)
}

/// A whole number; of a list, or of one with parameters, the first. A fraction is dropped.
fn count(value: &str) -> Option<u64> {
    let first = value.split([',', ';']).next()?.trim();
    let (whole, fraction) = first.split_once('.').unwrap_or((first, ""));
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    (digits(whole) && digits(fraction)).then(|| whole.parse().ok())?
}

/// A plain number beyond this, a day in 2001, is a moment in seconds and no wait.
const EPOCH_S: u64 = 1_000_000_000;
/// And one beyond this, in 1973 if it were milliseconds and in 5138 in seconds, is in milliseconds.
const EPOCH_MS: u64 = 100_000_000_000;

fn reset_ms(value: &str, headers: &HeaderMap) -> Option<u64> {
    let date = || moment(headers.get(header::DATE)?);
    let until = |ms: u64| Some(ms.saturating_sub(date()?));
    if let Some(seconds) = count(value) {
        return match seconds {
            EPOCH_MS.. => until(seconds),
            EPOCH_S.. => until(decimal_ms(value, 1000)?),
            _ => decimal_ms(value.split([',', ';']).next()?.trim(), 1000),
        };
    }
    if let Some(ms) = duration_ms(value) {
        return Some(ms);
    }
    if let Ok(at) = value.parse::<Timestamp>() {
        return until(u64::try_from(at.as_micros()).ok()?.div_ceil(1000));
    }
    until(millis(httpdate::parse_http_date(value).ok()?)?)
}

fn moment(date: &HeaderValue) -> Option<u64> {
    millis(httpdate::parse_http_date(date.to_str().ok()?.trim()).ok()?)
}

fn millis(at: SystemTime) -> Option<u64> {
    u64::try_from(at.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_millis()).ok()
}

/// A duration as Go prints it: numbers with units, the largest first (`1h2m3.5s`); days too.
fn duration_ms(value: &str) -> Option<u64> {
    let mut rest = value;
    let mut nanos = 0_u128;
    let mut parts = 0;
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(number);
        let unit = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit);
        let unit: u64 = match unit.trim() {
            "d" => 86_400_000_000_000,
            "h" => 3_600_000_000_000,
            "m" => 60_000_000_000,
            "s" => 1_000_000_000,
            "ms" => 1_000_000,
            "us" => 1_000,
            "ns" => 1,
            _ => return None,
        };
        nanos = nanos.checked_add(scaled(number, unit)?)?;
        rest = after;
        parts += 1;
        if parts > MAX_MEMBERS {
            return None;
        }
    }
    if parts == 0 {
        return None;
    }
    u64::try_from(nanos.div_ceil(Duration::from_millis(1).as_nanos())).ok()
}

/// A decimal number times `unit`, rounded down to the unit's own parts; nine decimals are read.
fn scaled(number: &str, unit: u64) -> Option<u128> {
    const DECIMALS: usize = 9;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.len() + fraction.len() == 0 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let kept = fraction.get(..fraction.len().min(DECIMALS)).unwrap_or_default();
    let part: u64 = if kept.is_empty() { 0 } else { kept.parse().ok()? };
    let places = u32::try_from(kept.len()).ok()?;
    let part = u128::from(part) * u128::from(unit) / 10_u128.pow(places);
    (u128::from(whole) * u128::from(unit)).checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATE: (&str, &str) = ("date", "Tue, 14 Apr 2026 09:30:00 GMT");

    fn read(pairs: &[(&'static str, &str)]) -> Option<RateLimit> {
        let headers: HeaderMap = pairs
            .iter()
            .map(|(n, v)| (n.parse().expect("name"), v.parse().expect("value")))
            .collect();
        rate_limit(&headers).map(|limit| *limit)
    }

    fn quota(limit: u64, remaining: u64, reset_ms: u64) -> Quota {
        Quota { limit: Some(limit), remaining: Some(remaining), reset_ms: Some(reset_ms) }
    }

    #[test]
    fn every_family_of_names_is_read() {
        let openai = read(&[
            ("x-ratelimit-limit-requests", "60"),
            ("x-ratelimit-remaining-requests", "59"),
            ("x-ratelimit-reset-requests", "1s"),
            ("x-ratelimit-limit-tokens", "150000"),
            ("x-ratelimit-remaining-tokens", "0"),
            ("x-ratelimit-reset-tokens", "6m0s"),
        ]);
        let (requests, tokens) = (quota(60, 59, 1_000), quota(150_000, 0, 360_000));
        assert_eq!(openai, Some(RateLimit { requests, tokens, ..RateLimit::default() }));

        let anthropic = read(&[
            DATE,
            ("anthropic-ratelimit-requests-limit", "50"),
            ("anthropic-ratelimit-requests-remaining", "49"),
            ("anthropic-ratelimit-requests-reset", "2026-04-14T09:30:01Z"),
            ("anthropic-ratelimit-input-tokens-limit", "40000"),
            ("anthropic-ratelimit-input-tokens-remaining", "39000"),
            ("anthropic-ratelimit-input-tokens-reset", "2026-04-14T11:30:02.5+02:00"),
            ("anthropic-ratelimit-output-tokens-remaining", "8000"),
            ("anthropic-ratelimit-unified-status", "allowed"),
        ]);
        let output_tokens = Quota { remaining: Some(8000), ..Quota::default() };
        let (requests, input_tokens) = (quota(50, 49, 1_000), quota(40_000, 39_000, 2_500));
        let want = RateLimit { requests, input_tokens, output_tokens, ..RateLimit::default() };
        assert_eq!(anthropic, Some(want));

        for unnamed in [
            &[
                ("x-ratelimit-limit", "20"),
                ("x-ratelimit-remaining", "7"),
                ("x-ratelimit-reset", "9"),
            ][..],
            &[
                ("ratelimit-limit", "20, 20;w=60"),
                ("ratelimit-remaining", "7"),
                ("ratelimit-reset", "9"),
            ],
            &[("ratelimit", "limit=20, remaining=7, reset=9")],
            &[("ratelimit", "\"day\";q=900;r=70;t=3600, \"minute\";q=20;r=7;t=9")],
        ] {
            let want = RateLimit { unnamed: quota(20, 7, 9_000), ..RateLimit::default() };
            assert_eq!(read(unnamed), Some(want), "{unnamed:?}");
        }
    }

    #[test]
    fn a_reset_is_a_duration_or_a_moment_after_the_response() {
        let reset = |value: &str, date: bool| {
            let date = if date { DATE } else { ("x-other", "1") };
            read(&[("x-ratelimit-reset", value), date]).and_then(|limit| limit.unnamed.reset_ms)
        };
        for (value, want) in [
            ("7.66s", Some(7_660)),
            ("120ms", Some(120)),
            ("6m0s", Some(360_000)),
            ("1h0m0.5s", Some(3_600_500)),
            ("1d", Some(86_400_000)),
            ("22us", Some(1)),
            ("0s", Some(0)),
            ("0.0015", Some(2)),
            ("60", Some(60_000)),
            ("1776159005", Some(5_000)),
            ("1776159005.25", Some(5_250)),
            ("1776159005250", Some(5_250)),
            ("1776158000", Some(0)),
            ("2026-04-14T09:30:07.0001Z", Some(7_001)),
            ("Tue, 14 Apr 2026 09:31:30 GMT", Some(90_000)),
            ("-1", None),
            ("s", None),
            ("1x", None),
            ("1.2.3s", None),
            ("5s then", None),
            ("99999999999999999999999999", None),
            ("99999999999999999999999999s", None),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(reset(value, true), want, "{value}");
            let is_moment = ["17", "20", "Tu"].iter().any(|start| value.starts_with(start));
            assert_eq!(reset(value, false), want.filter(|_| !is_moment), "{value} without a date");
        }
    }

    #[test]
    fn what_says_nothing_that_can_be_read_makes_nothing() {
        for pairs in [
            &[][..],
            &[("x-ratelimit-limit-requests", "many")],
            &[("x-ratelimit-remaining-tokens", "-1")],
            &[("x-ratelimit-limit-images", "5")],
            &[("x-ratelimit-type", "5")],
            &[("ratelimit-policy", "\"a\";q=5;w=60")],
            &[("ratelimit", "5")],
            &[("ratelimits", "limit=5")],
            &[("retry-after", "5")],
        ] {
            assert_eq!(read(pairs), None, "{pairs:?}");
        }
        // One beside it that can be read still counts, and the first of two stands.
        let limit = read(&[
            ("x-ratelimit-limit", "many"),
            ("x-ratelimit-remaining", "3"),
            ("ratelimit-remaining", "4"),
        ]);
        assert_eq!(limit.map(|limit| limit.unnamed.remaining), Some(Some(3)));
    }
}
