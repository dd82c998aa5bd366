use std::time::{Duration, SystemTime};

use http::HeaderMap;
use serde_json::Value;

use crate::Play;

/// What happens to which request: a sequence of steps, or one sequence for each case.
///
/// The first request plays the first step, and so on; past the end the last step repeats, unless
/// the script [`cycle`](Self::cycle)s. An empty script is [`Good`](crate::Step::Good) for ever.
///
/// ```
/// use attempt_ledger_mock::{RetryHint, Script, Step};
///
/// // Two faults, then answers.
/// let flaky = Script::new([Step::Reset, Step::Throttled(RetryHint::Seconds(2))])
///     .then(Step::Good.text("42"));
///
/// // Each case has its own sequence; a request belongs to the case whose key it carries.
/// let suite = Script::by_case([("case-7", flaky), ("case-8", Script::new([Step::StallMidBody]))])
///     .otherwise(Script::new([Step::Good]));
/// # let _ = suite;
/// ```
#[derive(Clone, Debug)]
pub struct Script {
    plays: Vec<Play>,
    cycle: bool,
    cases: Vec<(CaseKey, Script)>,
    date: SystemTime,
}

/// How [`Script::by_case`] tells which case a request is of.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CaseKey {
    /// The request's path, a header's value or the body holds this text. `&str` and `String` turn
    /// into this.
    Contains(String),
    /// The JSON body's `model` is this.
    Model(String),
    /// The request has this header with this value.
    Header(String, String),
}

/// The place in a script: which step the next request plays.
#[derive(Debug)]
pub(crate) struct Cursor {
    plays: Vec<Play>,
    cycle: bool,
    next: usize,
    cases: Vec<(CaseKey, Cursor)>,
}

/// What a request is told apart by.
#[derive(Debug)]
pub(crate) struct Traits<'a> {
    pub(crate) path: &'a str,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a [u8],
    pub(crate) json: Option<&'a Value>,
}

/// The step that a request plays, and the case it was found under.
#[derive(Clone, Debug)]
pub(crate) struct Pick {
    pub(crate) play: Play,
    pub(crate) case: Option<String>,
}

/// 2026-01-01T00:00:00Z, in seconds since 1970.
const DEFAULT_DATE: u64 = 1_767_225_600;

// === impl Script ===

impl Script {
    /// A script of these steps.
    pub fn new<I>(plays: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<Play>,
    {
        Script {
            plays: plays.into_iter().map(Into::into).collect(),
            cycle: false,
            cases: Vec::new(),
            date: SystemTime::UNIX_EPOCH + Duration::from_secs(DEFAULT_DATE),
        }
    }

    /// A sequence of its own for each case.
    ///
    /// Where several keys match, the longest wins (so that `case-12` is not `case-1`), then the
    /// first. A request without a case plays the script of [`otherwise`](Self::otherwise).
    pub fn by_case<K, I>(cases: I) -> Self
    where
        K: Into<CaseKey>,
        I: IntoIterator<Item = (K, Script)>,
    {
        let mut script = Script::new([] as [Play; 0]);
        script.cases = cases.into_iter().map(|(key, script)| (key.into(), script)).collect();
        script
    }

    /// With one more step, which repeats if nothing follows it.
    #[must_use]
    pub fn then(mut self, play: impl Into<Play>) -> Self {
        self.plays.push(play.into());
        self
    }

    /// The last step repeats for ever. This is so without saying it.
    #[must_use]
    pub fn then_repeat_last(mut self) -> Self {
        self.cycle = false;
        self
    }

    /// After the last step the first comes again.
    #[must_use]
    pub fn cycle(mut self) -> Self {
        self.cycle = true;
        self
    }

    /// The steps in another order, the same for the same seed. Steps added later stay behind.
    #[must_use]
    pub fn shuffled(mut self, seed: u64) -> Self {
        fastrand::Rng::with_seed(seed).shuffle(&mut self.plays);
        self
    }

    /// The sequence of requests that belong to no case.
    #[must_use]
    pub fn otherwise(mut self, script: Script) -> Self {
        self.plays = script.plays;
        self.cycle = script.cycle;
        self.cases.extend(script.cases);
        self
    }

    /// The `date` header's value at the start; from there it goes on with tokio's clock.
    ///
    /// 1 January 2026 unless set, so that answers are the same in every run. A client that
    /// measures an HTTP date from its own clock, and not from the response's `date`, needs the
    /// real time here.
    #[must_use]
    pub fn starting_at(mut self, date: SystemTime) -> Self {
        self.date = date;
        self
    }

    pub(crate) fn date(&self) -> SystemTime {
        self.date
    }

    pub(crate) fn into_cursor(self) -> Cursor {
        Cursor {
            plays: self.plays,
            cycle: self.cycle,
            next: 0,
            cases: self
                .cases
                .into_iter()
                .map(|(key, script)| (key, script.into_cursor()))
                .collect(),
        }
    }
}

// === impl Cursor ===

impl Cursor {
    /// Whether the request itself has to be known before its step is.
    pub(crate) fn is_keyed(&self) -> bool {
        !self.cases.is_empty()
    }

    /// The step that comes next when no request has to be known, without taking it.
    pub(crate) fn peek(&self) -> Option<&Play> {
        if self.is_keyed() { None } else { self.plays.get(self.place()) }
    }

    /// Takes the next step of the requests without a case.
    pub(crate) fn take(&mut self) -> Play {
        let play = self.plays.get(self.place()).cloned();
        self.next = self.next.saturating_add(1);
        play.unwrap_or_else(|| crate::Step::Good.into())
    }

    /// Takes the next step of the case that this request is of.
    pub(crate) fn take_for(&mut self, request: &Traits<'_>) -> Pick {
        let mut found: Option<(usize, usize)> = None;
        for (place, (key, _)) in self.cases.iter().enumerate() {
            let longer = found.is_none_or(|(_, len)| key.len() > len);
            if longer && key.matches(request) {
                found = Some((place, key.len()));
            }
        }
        match found.and_then(|(place, _)| self.cases.get_mut(place)) {
            Some((key, cursor)) => {
                let inner = cursor.take_for(request);
                Pick { case: inner.case.or_else(|| Some(key.name().to_owned())), ..inner }
            }
            None => Pick { play: self.take(), case: None },
        }
    }

    fn place(&self) -> usize {
        let last = self.plays.len().saturating_sub(1);
        if self.cycle {
            self.next.checked_rem(self.plays.len()).unwrap_or(0)
        } else {
            self.next.min(last)
        }
    }
}

// === impl CaseKey ===

impl CaseKey {
    fn name(&self) -> &str {
        match self {
            CaseKey::Contains(text) | CaseKey::Model(text) | CaseKey::Header(_, text) => text,
        }
    }

    fn len(&self) -> usize {
        self.name().len()
    }

    fn matches(&self, request: &Traits<'_>) -> bool {
        match self {
            CaseKey::Contains(text) => {
                request.path.contains(text.as_str())
                    || request.headers.values().any(|v| contains(v.as_bytes(), text.as_bytes()))
                    || contains(request.body, text.as_bytes())
            }
            CaseKey::Model(model) => {
                request.json.and_then(|json| json.get("model")).and_then(Value::as_str)
                    == Some(model)
            }
            CaseKey::Header(name, value) => request
                .headers
                .get_all(name.as_str())
                .iter()
                .any(|v| v.as_bytes() == value.as_bytes()),
        }
    }
}

impl From<&str> for CaseKey {
    fn from(text: &str) -> Self {
        CaseKey::Contains(text.to_owned())
    }
}

impl From<String> for CaseKey {
    fn from(text: String) -> Self {
        CaseKey::Contains(text)
    }
}

fn contains(hay: &[u8], needle: &[u8]) -> bool {
    memchr::memmem::find(hay, needle).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Step;

    fn steps(script: Script, body: &[u8], n: usize) -> Vec<&'static str> {
        let mut cursor = script.into_cursor();
        let json = serde_json::from_slice(body).ok();
        let headers = HeaderMap::new();
        (0..n)
            .map(|_| {
                let request = Traits { path: "/v1", headers: &headers, body, json: json.as_ref() };
                cursor.take_for(&request).play.step.name()
            })
            .collect()
    }

    #[test]
    fn the_last_step_repeats_and_a_cycle_starts_over() {
        let script = || Script::new([Step::Reset, Step::Empty]);
        assert_eq!(steps(script(), b"", 4), ["reset", "empty", "empty", "empty"]);
        assert_eq!(steps(script().cycle(), b"", 3), ["reset", "empty", "reset"]);
        assert_eq!(steps(script().then(Step::Good), b"", 4), ["reset", "empty", "good", "good"]);
        assert_eq!(steps(Script::new([] as [Step; 0]).cycle(), b"", 2), ["good", "good"]);
    }

    #[test]
    fn the_longest_key_decides() {
        let script = || {
            Script::by_case([
                ("case-1", Script::new([Step::Reset])),
                ("case-12", Script::new([Step::Empty, Step::CapHit])),
            ])
            .otherwise(Script::new([Step::BadJson]))
        };
        assert_eq!(steps(script(), b"is case-12", 2), ["empty", "cap_hit"]);
        assert_eq!(steps(script(), b"is case-1", 2), ["reset", "reset"]);
        assert_eq!(steps(script(), b"neither", 1), ["bad_json"]);
    }

    #[test]
    fn a_model_is_told_by_the_field_and_not_by_the_text() {
        let script =
            || Script::by_case([(CaseKey::Model("m-1".into()), Script::new([Step::Reset]))]);
        assert_eq!(steps(script(), br#"{"model":"m-1"}"#, 1), ["reset"]);
        assert_eq!(steps(script(), br#"{"model":"x","note":"m-1"}"#, 1), ["good"]);
    }

    #[test]
    fn a_seed_gives_one_order() {
        let all = || Script::new(Step::all().into_iter().map(|(_, step)| step));
        let order = |seed| steps(all().shuffled(seed), b"", 33);
        assert_eq!(order(7), order(7));
        assert_ne!(order(7), order(8));
    }
}
