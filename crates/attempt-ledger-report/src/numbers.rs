//! The numbers of a report, each with what is needed to read it.

use std::{collections::BTreeMap, hash::Hash};

use attempt_ledger_core::{RunId, Verdict};
use serde::Serialize;

use crate::stats::{self, Flat, MeanWithError, as_f64};

/// First-attempt quality: what the first attempts were graded, of those that were to be graded.
///
/// The mean is reached through [`Quality::estimate`] only, together with all that qualifies it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Quality {
    mean: Option<f64>,
    n: u64,
    planned: u64,
    coverage: Option<f64>,
    se: Option<f64>,
    interval: Option<[f64; 2]>,
    bounds: Option<[f64; 2]>,
    /// How many cases the scores are of.
    #[serde(skip)]
    cases: u64,
    #[serde(skip)]
    flat: Option<Flat>,
}

/// A mean with everything that qualifies it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Mean of the frozen scores.
    pub mean: f64,
    /// How many scores that is of.
    pub n: u64,
    /// How many slots were to be graded.
    pub planned: u64,
    /// `n` over `planned`.
    pub coverage: f64,
    /// Standard error, clustered by case where a case has more than one score; `None` with fewer
    /// than two scores, or two cases when clustered.
    pub se: Option<f64>,
    /// 95% interval by Student's t; `None` as the error is.
    pub interval: Option<[f64; 2]>,
    /// What the mean could be at least and at most, whatever the slots without a score hold.
    pub bounds: [f64; 2],
}

impl Quality {
    pub(crate) fn new<K: Hash + Eq>(scores: &[(K, f64)], planned: u64, range: [f64; 2]) -> Self {
        let found = stats::mean_by_case(scores);
        let n = found.map_or(0, |m| m.n);
        let scored = stats::sum(scores.iter().map(|(_, score)| *score));
        Quality {
            mean: found.map(|m| m.mean),
            n,
            planned,
            coverage: coverage(n, planned),
            se: found.and_then(|m| m.se),
            interval: found.and_then(|m: MeanWithError| m.interval),
            bounds: bounds(scored, n, planned, range),
            cases: found.map_or(0, |m| m.cases),
            flat: found.and_then(|m| m.flat),
        }
    }

    /// Why the interval says less than it seems to, given the range of scores; `named` when that is
    /// the grader's own, and not assumed.
    pub(crate) fn doubts(&self, range: [f64; 2], named: bool) -> Vec<String> {
        let (Some([low, high]), [least, most]) = (self.interval, range) else {
            return Vec::new();
        };
        let mut doubts = Vec::new();
        let equal = match self.flat {
            Some(Flat::Scores) => Some(format!("all {} scores are equal", self.n)),
            Some(Flat::Cases) => Some(format!("the means of all {} cases are equal", self.cases)),
            None => None,
        };
        if let Some(equal) = equal {
            doubts.push(format!(
                "{equal}: the interval has no width and says nothing of how sure this is"
            ));
        }
        // A hair is left by rounding.
        let hair = 1e-12 * (most - least);
        if low < least - hair || high > most + hair {
            let range = if named { "the grader's range" } else { "the range that is assumed" };
            let few = if self.cases < self.n {
                format!("{} cases are few for it", self.cases)
            } else {
                format!("n = {} is small for it", self.n)
            };
            doubts.push(format!("the interval goes beyond {range} ({least} to {most}): {few}"));
        }
        doubts
    }

    /// The mean with all that qualifies it; `None` when no attempt is graded.
    pub fn estimate(&self) -> Option<Estimate> {
        Some(Estimate {
            mean: self.mean?,
            n: self.n,
            planned: self.planned,
            coverage: self.coverage?,
            se: self.se,
            interval: self.interval,
            bounds: self.bounds?,
        })
    }

    /// How many slots have a score.
    pub fn n(&self) -> u64 {
        self.n
    }

    /// How many slots were to be graded: those planned, and those that an attempt was opened in.
    pub fn planned(&self) -> u64 {
        self.planned
    }

    /// The share of slots that have a score; `None` when none was to be graded.
    pub fn coverage(&self) -> Option<f64> {
        self.coverage
    }

    /// What the mean could be at least and at most; `None` when no slot was to be graded.
    pub fn bounds(&self) -> Option<[f64; 2]> {
        self.bounds
    }
}

/// The share of slots that have a score.
pub(crate) fn coverage(n: u64, planned: u64) -> Option<f64> {
    (planned > 0).then(|| as_f64(n) / as_f64(planned))
}

/// What the mean could be, whatever the slots without a score hold; `sum` is of the `n` scores.
pub(crate) fn bounds(sum: f64, n: u64, planned: u64, range: [f64; 2]) -> Option<[f64; 2]> {
    let missing = as_f64(planned.saturating_sub(n));
    let bound = |end: f64| missing.mul_add(end, sum) / as_f64(planned);
    (planned > 0).then(|| range.map(bound))
}

/// Faults of availability, of the attempts that are content or such a fault.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Availability {
    /// Attempts that are a fault.
    pub faults: u64,
    /// Attempts in either series.
    pub attempts: u64,
    /// Faults over attempts; `None` without attempts.
    pub rate: Option<f64>,
    /// How many attempts ended so, for every verdict.
    pub by_verdict: BTreeMap<Verdict, u64>,
    /// The first attempts among them.
    pub first: First,
}

/// How many first attempts were available.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct First {
    /// Slots whose ordinal one is content.
    pub available: u64,
    /// Slots whose ordinal one is in either series.
    pub n: u64,
    /// The one over the other; `None` for 0 of 0.
    pub share: Option<f64>,
    /// Wilson's 95% interval of the share.
    pub interval: Option<[f64; 2]>,
}

impl First {
    pub(crate) fn new(available: u64, n: u64) -> Self {
        let share = (n > 0).then(|| as_f64(available) / as_f64(n));
        First { available, n, share, interval: stats::wilson(available, n) }
    }
}

/// Content of later attempts, none of which was let stand for its case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RefusedPromotions {
    /// Attempts at ordinal 2 or later that are content.
    pub attempts: u64,
    /// The slots they are of.
    pub slots: u64,
}

/// What a scorecard of survivors would have claimed: the grade of each slot's last content.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Naive {
    mean: Option<f64>,
    n: u64,
    distance: Option<f64>,
}

impl Naive {
    /// From the last grade of each slot with content, `None` where it has none.
    pub(crate) fn new(grades: &[Option<f64>], first_mean: Option<f64>) -> Self {
        let all: Option<Vec<f64>> = grades.iter().copied().collect();
        let mean = all.and_then(stats::mean).map(|(mean, _)| mean);
        let distance = mean.zip(first_mean).map(|(naive, first)| naive - first);
        Naive { mean, n: grades.len() as u64, distance }
    }

    /// The claimed mean and the number of slots it is of; `None` when a grade is missing.
    pub fn claimed(&self) -> Option<(f64, u64)> {
        Some((self.mean?, self.n))
    }

    /// How many slots have content.
    pub fn n(&self) -> u64 {
        self.n
    }

    /// By how much the claim is above the first-attempt mean; `None` when either is missing.
    pub fn distance(&self) -> Option<f64> {
        self.distance
    }
}

/// A mean and what it is of.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MeanOf {
    /// The mean.
    pub mean: f64,
    /// How many numbers it is of.
    pub n: u64,
}

/// Attempts that may have run at the remote side though no answer came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UnknownRemote {
    /// Attempts whose remote state is unknown.
    pub attempts: u64,
    /// Those with the effect `writes` that a later attempt of the slot repeated.
    pub repeated_with_writes: u64,
}

/// Attempts that were more than one beneath: a gateway in front retried, and said so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UpstreamRetries {
    /// Attempts with at least one such retry.
    pub attempts: u64,
    /// The retries in all; of attempts of which no gateway says anything none are known.
    pub retries: u64,
}

/// Percentiles by nearest rank, in microseconds; `None` without attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Percentiles {
    /// Half of them are at or below.
    pub p50: Option<u64>,
    /// 95% are.
    pub p95: Option<u64>,
    /// 99% are.
    pub p99: Option<u64>,
}

impl Percentiles {
    pub(crate) fn of(mut values: Vec<u64>) -> Self {
        values.sort_unstable();
        let at = |percent| stats::percentile(&values, percent);
        Percentiles { p50: at(50), p95: at(95), p99: at(99) }
    }
}

/// Another run in this ledger that has cases of this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OtherRun {
    /// The run.
    pub run: RunId,
    /// How many cases it shares.
    pub cases: u64,
}

/// The coverage that a report is to have.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Floor {
    /// The least coverage.
    pub least: f64,
    /// Whether it is reached; not when no slot was to be graded.
    pub met: bool,
}
