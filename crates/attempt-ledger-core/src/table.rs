use std::{fmt::Write as _, time::Duration};

use crate::{Detail, Effect, ErrorCause, Remote, Verdict};

/// The longest wait that a server may ask for and be waited for; above it the result is handed up.
pub const HINT_CAP: Duration = Duration::from_secs(60);
/// The long pause of the first retry; it doubles with each further one.
pub const LONG_BASE: Duration = Duration::from_secs(5);
/// What the long pause grows to at most.
pub const LONG_CAP: Duration = Duration::from_secs(60);
/// The short pause of the first retry; it doubles with each further one.
pub const SHORT_BASE: Duration = Duration::from_millis(500);
/// What the short pause grows to at most.
pub const SHORT_CAP: Duration = Duration::from_secs(8);

/// How an attempt ended, as far as the decision to repeat it depends on that.
#[derive(Clone, Copy, Debug)]
pub struct Outcome<'a> {
    /// Its verdict.
    pub verdict: Verdict,
    /// What is known of the remote side.
    pub remote: Remote,
    /// What a repeat would do.
    pub effect: Effect,
    /// Particulars; [`Detail::cause`] tells a throttle inside a 2xx.
    pub detail: &'a Detail,
    /// The wait that the server asked for, in milliseconds.
    pub retry_after_ms: Option<u64>,
    /// The response's status decided the verdict, so that nothing of the request was done where it
    /// says `throttled`.
    pub by_status: bool,
    /// What is left of the call's budget; `None` without a budget.
    pub budget_left: Option<Duration>,
}

/// What is done about an attempt that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The result goes to the caller.
    HandUp {
        /// The rule that says so.
        rule: &'static Rule,
    },
    /// Another attempt is made after a pause.
    Retry {
        /// How long to wait before it.
        pause: Pause,
        /// The rule that says so.
        rule: &'static Rule,
    },
}

impl Action {
    /// The rule that decided.
    pub fn rule(&self) -> &'static Rule {
        match self {
            Action::HandUp { rule } | Action::Retry { rule, .. } => rule,
        }
    }
}

/// How long to wait before the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// As long as the server asked for, exactly.
    Hint(Duration),
    /// Uniformly random between zero and `max`, for a server that wants to be called less.
    Long {
        /// The upper bound: min(60 s, 5 s x 2^k).
        max: Duration,
    },
    /// Uniformly random between zero and `max`, for a fault that may be gone at once.
    Short {
        /// The upper bound: min(8 s, 0.5 s x 2^k).
        max: Duration,
    },
}

impl Pause {
    /// The short pause before retry `retry_index`, from 0: up to min(8 s, 0.5 s x 2^k).
    pub fn short(retry_index: u32) -> Self {
        Pause::Short { max: doubled(SHORT_BASE, retry_index, SHORT_CAP) }
    }

    /// The wait itself, with full jitter where this pause has one.
    ///
    /// `unit_random` is uniform in 0 to 1, and clamped to that; not a number counts as 1.
    pub fn with_jitter(self, unit_random: f64) -> Duration {
        match self {
            Pause::Hint(wait) => wait,
            Pause::Long { max } | Pause::Short { max } => {
                let unit = if unit_random.is_nan() { 1.0 } else { unit_random.clamp(0.0, 1.0) };
                max.mul_f64(unit)
            }
        }
    }

    /// The longest that this pause can be.
    pub fn longest(self) -> Duration {
        self.with_jitter(1.0)
    }
}

/// One row of the decision table. A row applies when all that it names holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its name, for logs and for the printed table.
    pub name: &'static str,
    /// What kind of outcome it is about.
    pub about: About,
    /// The remote state; `None` for any.
    pub remote: Option<Remote>,
    /// `Some(true)`: only with the effect `writes`; `Some(false)`: only with another.
    pub writes: Option<bool>,
    /// What the server asked for.
    pub hint: HintIs,
    /// What an error status said of another try (`x-should-retry`); `None` for anything.
    pub should_retry: Option<bool>,
    /// What is done.
    pub then: Then,
}

/// The kind of outcome that a [`Rule`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// Any outcome, once the call's budget is gone.
    BudgetGone,
    /// `throttled`, decided by the response's status.
    ThrottledByStatus,
    /// A throttle that came later: `throttled` by the transport, or a `provider_error` whose typed
    /// cause is `throttled` or `overloaded`.
    ThrottledInBand,
    /// One of these verdicts.
    Verdicts(&'static [Verdict]),
    /// Any outcome.
    Any,
}

/// The wait that a server asked for, as a [`Rule`] tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HintIs {
    /// With or without one.
    Any,
    /// One of at most [`HINT_CAP`].
    Within,
    /// One above [`HINT_CAP`].
    Above,
}

/// What a [`Rule`] says is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Hand the result to the caller.
    HandUp,
    /// Wait as long as the server asked, then repeat.
    Hint,
    /// Wait up to min(60 s, 5 s x 2^k), then repeat.
    Long,
    /// Wait up to min(8 s, 0.5 s x 2^k), then repeat.
    Short,
}

const FAULTS: &[Verdict] = &[
    Verdict::Transport,
    Verdict::Deadline,
    Verdict::Unterminated,
    Verdict::Malformed,
    Verdict::ProviderError,
    Verdict::ServerError,
];

const ROW: Rule = Rule {
    name: "other",
    about: About::Any,
    remote: None,
    writes: None,
    hint: HintIs::Any,
    should_retry: None,
    then: Then::HandUp,
};

/// An error status that the table hands up, but whose server asks for another try. What the effect
/// forbids stays forbidden: nobody but the caller knows what its request would do twice.
const ASKED: Rule = Rule {
    about: About::Verdicts(&[Verdict::Rejected]),
    remote: Some(Remote::Answered),
    writes: Some(false),
    should_retry: Some(true),
    ..ROW
};

/// The decision table; the first row that applies decides, and the last one always applies.
///
/// With the effect `writes` an attempt is repeated only when it did not reach the remote side, or
/// when the status said `throttled`. `x-should-retry: false` beside an error status ends the call with
/// it; `true` gives a `rejected` request another try where its effect allows. What the model answered is repeated only where a user adds
/// that, which is no row of this table.
///
#[doc = include_str!("../docs/decision-table.md")]
pub const RULES: &[Rule] = &[
    Rule { name: "budget_gone", about: About::BudgetGone, ..ROW },
    Rule { name: "told_not_to", should_retry: Some(false), ..ROW },
    Rule {
        name: "throttled_hint_too_long",
        about: About::ThrottledByStatus,
        hint: HintIs::Above,
        ..ROW
    },
    Rule {
        name: "throttled_hint",
        about: About::ThrottledByStatus,
        hint: HintIs::Within,
        then: Then::Hint,
        ..ROW
    },
    Rule { name: "throttled", about: About::ThrottledByStatus, then: Then::Long, ..ROW },
    Rule {
        name: "in_band_throttle_hint_too_long",
        about: About::ThrottledInBand,
        writes: Some(false),
        hint: HintIs::Above,
        ..ROW
    },
    Rule {
        name: "in_band_throttle_hint",
        about: About::ThrottledInBand,
        writes: Some(false),
        hint: HintIs::Within,
        then: Then::Hint,
        ..ROW
    },
    Rule {
        name: "in_band_throttle",
        about: About::ThrottledInBand,
        writes: Some(false),
        then: Then::Long,
        ..ROW
    },
    Rule {
        name: "not_reached",
        about: About::Verdicts(&[Verdict::Transport]),
        remote: Some(Remote::NotReached),
        then: Then::Short,
        ..ROW
    },
    Rule { name: "fault_writes", about: About::Verdicts(FAULTS), writes: Some(true), ..ROW },
    Rule {
        name: "fault",
        about: About::Verdicts(FAULTS),
        writes: Some(false),
        then: Then::Short,
        ..ROW
    },
    Rule { name: "asked_to_hint_too_long", hint: HintIs::Above, ..ASKED },
    Rule { name: "asked_to_hint", hint: HintIs::Within, then: Then::Hint, ..ASKED },
    Rule { name: "asked_to", then: Then::Short, ..ASKED },
    ROW,
];

/// Decides whether an attempt is repeated, by the first row of [`RULES`] that applies.
///
/// `retry_index` is k: 0 before the first retry of the call. The caps on attempts and on the wall
/// time of a call hold beside this and are the caller's to keep; so is comparing the pause with
/// what is left of the budget.
///
/// ```
/// use std::time::Duration;
/// use attempt_ledger_core::{decide_retry, Action, Detail, Effect, Outcome, Pause, Remote, Verdict};
///
/// let cut_short = Outcome {
///     verdict: Verdict::Deadline,
///     remote: Remote::Unknown,
///     effect: Effect::ReadOnly,
///     detail: &Detail::default(),
///     retry_after_ms: None,
///     by_status: false,
///     budget_left: Some(Duration::from_secs(600)),
/// };
/// let Action::Retry { pause, .. } = decide_retry(&cut_short, 1) else { panic!() };
/// assert_eq!(pause, Pause::Short { max: Duration::from_secs(1) });
///
/// // It may have been done, so a write is not repeated.
/// let write = Outcome { effect: Effect::Writes, ..cut_short };
/// assert!(matches!(decide_retry(&write, 0), Action::HandUp { rule } if rule.name == "fault_writes"));
/// ```
pub fn decide_retry(outcome: &Outcome<'_>, retry_index: u32) -> Action {
    const LAST: &Rule = &ROW;
    let rule = RULES.iter().find(|rule| rule.applies(outcome)).unwrap_or(LAST);
    let pause = match rule.then {
        Then::HandUp => return Action::HandUp { rule },
        Then::Hint => match outcome.hint() {
            Some(wait) => Pause::Hint(wait),
            None => return Action::HandUp { rule },
        },
        Then::Long => Pause::Long { max: doubled(LONG_BASE, retry_index, LONG_CAP) },
        Then::Short => Pause::short(retry_index),
    };
    Action::Retry { pause, rule }
}

fn doubled(base: Duration, times: u32, cap: Duration) -> Duration {
    let factor = 2_u32.checked_pow(times).unwrap_or(u32::MAX);
    base.checked_mul(factor).map_or(cap, |pause| pause.min(cap))
}

impl Outcome<'_> {
    fn hint(&self) -> Option<Duration> {
        self.retry_after_ms.map(Duration::from_millis)
    }

    /// What an error status said of another try; of a 2xx, whose body decides, nothing is taken.
    fn should_retry(&self) -> Option<bool> {
        self.detail.should_retry.filter(|_| self.by_status)
    }

    fn throttled_in_band(&self) -> bool {
        match self.verdict {
            Verdict::Throttled => !self.by_status,
            Verdict::ProviderError => {
                matches!(self.detail.cause, Some(ErrorCause::Throttled | ErrorCause::Overloaded))
            }
            _ => false,
        }
    }
}

impl Rule {
    /// Whether this row applies to `outcome`.
    pub fn applies(&self, outcome: &Outcome<'_>) -> bool {
        let about = match self.about {
            About::BudgetGone => outcome.budget_left.is_some_and(|left| left.is_zero()),
            About::ThrottledByStatus => outcome.verdict == Verdict::Throttled && outcome.by_status,
            About::ThrottledInBand => outcome.throttled_in_band(),
            About::Verdicts(verdicts) => verdicts.contains(&outcome.verdict),
            About::Any => true,
        };
        let hint = match self.hint {
            HintIs::Any => true,
            HintIs::Within => outcome.hint().is_some_and(|wait| wait <= HINT_CAP),
            HintIs::Above => outcome.hint().is_some_and(|wait| wait > HINT_CAP),
        };
        about
            && hint
            && self.should_retry.is_none_or(|said| outcome.should_retry() == Some(said))
            && self.remote.is_none_or(|remote| remote == outcome.remote)
            && self.writes.is_none_or(|writes| writes == outcome.effect.is_writes())
    }
}

/// The decision table as a Markdown table, from the same rows that decide.
pub fn render_table() -> String {
    const HEAD: [&str; 6] = ["#", "outcome", "remote", "effect", "server asks for", "then"];
    let mut rows: Vec<[String; 6]> = vec![HEAD.map(str::to_owned)];
    for (i, rule) in RULES.iter().enumerate() {
        rows.push([
            (i + 1).to_string(),
            rule.about.words(),
            rule.remote.map_or("any", Remote::as_str).to_owned(),
            match rule.writes {
                None => "any",
                Some(true) => "writes",
                Some(false) => "read_only, idempotent",
            }
            .to_owned(),
            rule.asks(),
            rule.then.words(),
        ]);
    }
    let mut widths = [0; 6];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut out = String::new();
    for (i, row) in rows.iter().enumerate() {
        for (cell, width) in row.iter().zip(widths) {
            let _ = write!(out, "| {cell:width$} ");
        }
        out.push_str("|\n");
        if i == 0 {
            for width in widths {
                let _ = write!(out, "| {} ", "-".repeat(width));
            }
            out.push_str("|\n");
        }
    }
    let _ = write!(
        out,
        "\nThe first row that applies decides; k is 0 before the first retry; \"up to\" is uniformly random from 0.\n"
    );
    out
}

impl Rule {
    fn asks(&self) -> String {
        let wait = match self.hint {
            HintIs::Any => None,
            HintIs::Within => Some(format!("at most {} s", HINT_CAP.as_secs())),
            HintIs::Above => Some(format!("more than {} s", HINT_CAP.as_secs())),
        };
        let again = self.should_retry.map(|again| if again { "a retry" } else { "no retry" });
        match (again, wait) {
            (None, None) => "any".to_owned(),
            (Some(again), None) => again.to_owned(),
            (None, Some(wait)) => wait,
            (Some(again), Some(wait)) => format!("{again}, {wait}"),
        }
    }
}

impl About {
    fn words(self) -> String {
        match self {
            About::BudgetGone => "any, the call's budget is gone".into(),
            About::ThrottledByStatus => "throttled by status".into(),
            About::ThrottledInBand => "throttled in band".into(),
            About::Verdicts(verdicts) => {
                verdicts.iter().map(|v| v.as_str()).collect::<Vec<_>>().join(", ")
            }
            About::Any => "any other".into(),
        }
    }
}

impl Then {
    fn words(self) -> String {
        let grows = |base: Duration, cap: Duration| {
            format!("retry after up to min({} s, {} s x 2^k)", cap.as_secs(), base.as_secs_f64())
        };
        match self {
            Then::HandUp => "hand up".into(),
            Then::Hint => "retry after what the server asks for".into(),
            Then::Long => grows(LONG_BASE, LONG_CAP),
            Then::Short => grows(SHORT_BASE, SHORT_CAP),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Option<u64> = Some(60_000);

    fn outcome(verdict: Verdict, remote: Remote, effect: Effect) -> Outcome<'static> {
        static PLAIN: std::sync::LazyLock<Detail> = std::sync::LazyLock::new(Detail::default);
        Outcome {
            verdict,
            remote,
            effect,
            detail: &PLAIN,
            retry_after_ms: None,
            by_status: false,
            budget_left: None,
        }
    }

    fn caused(cause: ErrorCause) -> Detail {
        Detail { cause: Some(cause), ..Detail::default() }
    }

    /// Every combination, against the rules said in another way.
    #[test]
    fn the_whole_table() {
        let effects = [Effect::ReadOnly, Effect::Writes, Effect::idempotent("k")];
        let causes =
            std::iter::once(Detail::default()).chain(ErrorCause::ALL.iter().map(|&c| caused(c)));
        let causes: Vec<Detail> = causes
            .flat_map(|detail| {
                [None, Some(true), Some(false)]
                    .map(|should_retry| Detail { should_retry, ..detail.clone() })
            })
            .collect();
        for &verdict in Verdict::ALL {
            for &remote in Remote::ALL {
                for effect in effects {
                    for detail in &causes {
                        for retry_after_ms in [None, Some(0), MINUTE, Some(60_001)] {
                            for by_status in [false, true] {
                                for budget_left in
                                    [None, Some(Duration::ZERO), Some(Duration::from_micros(1))]
                                {
                                    check(&Outcome {
                                        verdict,
                                        remote,
                                        effect,
                                        detail,
                                        retry_after_ms,
                                        by_status,
                                        budget_left,
                                    });
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    fn check(o: &Outcome<'_>) {
        let action = decide_retry(o, 0);
        let retried = matches!(action, Action::Retry { .. });
        let head_throttle = o.verdict == Verdict::Throttled && o.by_status;
        if o.effect.is_writes() && retried {
            assert!(o.remote == Remote::NotReached || head_throttle, "a write repeated: {o:?}");
        }
        let said = o.detail.should_retry.filter(|_| o.by_status);
        let asked = said == Some(true)
            && o.verdict == Verdict::Rejected
            && o.remote == Remote::Answered
            && !o.effect.is_writes();
        if o.budget_left == Some(Duration::ZERO)
            || said == Some(false)
            || !(o.verdict.is_fault() || asked)
        {
            assert!(!retried, "{o:?}");
            return;
        }
        let throttle = head_throttle
            || !o.effect.is_writes()
                && (o.verdict == Verdict::Throttled
                    || o.verdict == Verdict::ProviderError
                        && [Some(ErrorCause::Throttled), Some(ErrorCause::Overloaded)]
                            .contains(&o.detail.cause));
        let want = if asked {
            match o.retry_after_ms {
                Some(ms) if ms > 60_000 => None,
                Some(ms) => Some(Pause::Hint(Duration::from_millis(ms))),
                None => Some(Pause::Short { max: Duration::from_millis(500) }),
            }
        } else if throttle {
            match o.retry_after_ms {
                Some(ms) if ms > 60_000 => None,
                Some(ms) => Some(Pause::Hint(Duration::from_millis(ms))),
                None => Some(Pause::Long { max: Duration::from_secs(5) }),
            }
        } else if o.verdict == Verdict::Throttled
            || o.effect.is_writes()
                && !(o.verdict == Verdict::Transport && o.remote == Remote::NotReached)
        {
            None
        } else {
            Some(Pause::Short { max: Duration::from_millis(500) })
        };
        match action {
            Action::HandUp { .. } => assert_eq!(None, want, "{o:?}"),
            Action::Retry { pause, .. } => assert_eq!(Some(pause), want, "{o:?}"),
        }
    }

    #[test]
    fn pauses_double_up_to_their_caps_and_never_overflow() {
        let short = outcome(Verdict::Deadline, Remote::Unknown, Effect::ReadOnly);
        let long = Outcome {
            by_status: true,
            ..outcome(Verdict::Throttled, Remote::Answered, Effect::Writes)
        };
        for (k, short_ms, long_s) in [
            (0, 500, 5),
            (1, 1000, 10),
            (3, 4000, 40),
            (4, 8000, 60),
            (5, 8000, 60),
            (31, 8000, 60),
            (32, 8000, 60),
            (u32::MAX, 8000, 60),
        ] {
            let pause = |o| match decide_retry(o, k) {
                Action::Retry { pause, .. } => pause.longest(),
                Action::HandUp { rule } => panic!("handed up by {}", rule.name),
            };
            assert_eq!(pause(&short), Duration::from_millis(short_ms), "{k}");
            assert_eq!(pause(&long), Duration::from_secs(long_s), "{k}");
        }
    }

    #[test]
    fn jitter_is_full_and_a_hint_has_none() {
        let max = Duration::from_secs(8);
        let pause = Pause::Short { max };
        assert_eq!(pause.with_jitter(0.0), Duration::ZERO);
        assert_eq!(pause.with_jitter(0.25), Duration::from_secs(2));
        for beyond in [1.0, 7.0, f64::INFINITY, f64::NAN] {
            assert_eq!(pause.with_jitter(beyond), max);
        }
        assert_eq!(pause.with_jitter(-1.0), Duration::ZERO);
        assert_eq!(Pause::Hint(max).with_jitter(0.0), max);
    }

    #[test]
    fn the_table_prints_every_row_and_its_names_are_unique() {
        let text = render_table();
        assert_eq!(text.lines().filter(|l| l.starts_with("| ")).count(), RULES.len() + 2);
        for verdict in FAULTS {
            assert!(text.contains(verdict.as_str()), "{verdict} in\n{text}");
        }
        assert!(text.contains("min(8 s, 0.5 s x 2^k)") && text.contains("min(60 s, 5 s x 2^k)"));
        let names: std::collections::BTreeSet<_> = RULES.iter().map(|r| r.name).collect();
        assert_eq!(names.len(), RULES.len());
        assert_eq!(RULES.last(), Some(&ROW), "the last row takes whatever is left");
    }

    /// Run with `UPDATE_DOCS=1` to write the page anew.
    #[test]
    fn the_documentation_shows_these_rows() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/decision-table.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(page, render_table()).expect("the page is written");
        }
        assert_eq!(std::fs::read_to_string(page).expect("the page"), render_table());
    }
}
