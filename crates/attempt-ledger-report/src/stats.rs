//! The few statistics that a report needs.

use std::{collections::HashMap, hash::Hash};

/// The normal distribution's 97.5% point.
const Z: f64 = 1.959_963_984_540_054;

/// Student's t's 97.5% point for `freedom` degrees of freedom; `None` for 0. Right to six digits.
pub(crate) fn t_975(freedom: u64) -> Option<f64> {
    const FEW: u64 = 100;
    let nu = as_f64(freedom);
    match freedom {
        0 => None,
        1..FEW => {
            // t = sqrt(nu) tan(angle), and the share within +-t grows with the angle.
            let (mut low, mut high) = (0.0, std::f64::consts::FRAC_PI_2);
            for _ in 0..60 {
                let middle = f64::midpoint(low, high);
                let below = share_within(middle, freedom) < 0.95;
                *(if below { &mut low } else { &mut high }) = middle;
            }
            Some(nu.sqrt() * low.tan())
        }
        // Abramowitz and Stegun, 26.7.5: what is left out is below 2e-8 here.
        _ => {
            let z2 = Z * Z;
            let first = (z2 + 1.0) / 4.0;
            let second = ((5.0 * z2 + 16.0) * z2 + 3.0) / 96.0;
            let third = (((3.0 * z2 + 19.0) * z2 + 17.0) * z2 - 15.0) / 384.0;
            Some(Z * (1.0 + (first + (second + third / nu) / nu) / nu))
        }
    }
}

/// The share of Student's t within +-sqrt(freedom) tan(angle): Abramowitz and Stegun, 26.7.3 and
/// 26.7.4.
fn share_within(angle: f64, freedom: u64) -> f64 {
    let (sin, cos) = angle.sin_cos();
    let odd = freedom % 2 == 1;
    let (mut term, mut k) = if odd { (cos, 1) } else { (1.0, 0) };
    let mut series = 0.0;
    while k + 2 <= freedom {
        series += term;
        k += 2;
        term *= cos * cos * as_f64(k - 1) / as_f64(k);
    }
    if odd { (angle + sin * series) / std::f64::consts::FRAC_PI_2 } else { sin * series }
}

/// Wilson's 95% interval of a share; `None` for 0 of 0.
pub(crate) fn wilson(hits: u64, n: u64) -> Option<[f64; 2]> {
    if n == 0 {
        return None;
    }
    let (hits, n) = (as_f64(hits), as_f64(n));
    let share = hits / n;
    let z2 = Z * Z;
    let middle = (share + z2 / (2.0 * n)) / (1.0 + z2 / n);
    let half = Z / (1.0 + z2 / n) * (share * (1.0 - share) / n + z2 / (4.0 * n * n)).sqrt();
    // Rounding must not leave a hair outside the range of a share.
    let low = if hits == 0.0 { 0.0 } else { (middle - half).clamp(0.0, 1.0) };
    let high = if hits >= n { 1.0 } else { (middle + half).clamp(0.0, 1.0) };
    Some([low, high])
}

/// A mean with its standard error and 95% interval, where there are any.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MeanWithError {
    pub(crate) mean: f64,
    pub(crate) n: u64,
    pub(crate) se: Option<f64>,
    pub(crate) interval: Option<[f64; 2]>,
    /// How many cases the scores are of.
    pub(crate) cases: u64,
    /// Why the interval has no width, where it has none.
    pub(crate) flat: Option<Flat>,
}

/// Why an interval has no width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flat {
    /// All scores are equal.
    Scores,
    /// The scores of all cases have one mean, though they differ within a case.
    Cases,
}

/// The mean of scores, each with its case; `None` without any.
///
/// With one score a case the standard error is the usual one (n - 1). As soon as a case has more,
/// its scores are not independent, and the error is clustered: the square root of the sum over
/// cases of the squared sum of residuals, over n, with t of cases - 1.
///
/// The order of scores does not matter, not even in the last digit.
pub(crate) fn mean_by_case<K: Hash + Eq>(scores: &[(K, f64)]) -> Option<MeanWithError> {
    let (mean, n) = mean(scores.iter().map(|(_, score)| *score).collect())?;
    let mut cases: HashMap<&K, usize> = HashMap::with_capacity(scores.len());
    let mut residuals: Vec<(usize, f64)> = Vec::with_capacity(scores.len());
    for (case, score) in scores {
        let next = cases.len();
        residuals.push((*cases.entry(case).or_insert(next), score - mean));
    }
    residuals.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let by_case = residuals.chunk_by(|a, b| a.0 == b.0);
    let sums: Vec<f64> =
        by_case.map(|case| case.iter().map(|(_, residual)| residual).sum::<f64>()).collect();
    let flat = flat(scores, &sums).filter(|_| cases.len() > 1);
    let sums = sums.into_iter();
    let squares = sum(sums.map(|sum| sum * sum));
    let freedom = cases.len() as u64 - 1;
    let clustered = cases.len() < scores.len();
    let variance = squares / as_f64(if clustered { n } else { freedom }) / as_f64(n);
    let se = (freedom > 0).then(|| variance.sqrt());
    let interval =
        se.zip(t_975(freedom)).map(|(se, t)| [t.mul_add(-se, mean), t.mul_add(se, mean)]);
    Some(MeanWithError { mean, n, se, interval, cases: cases.len() as u64, flat })
}

/// Whether nothing varies by which an error could be told; `sums` are of each case's residuals.
fn flat<K>(scores: &[(K, f64)], sums: &[f64]) -> Option<Flat> {
    // What rounding leaves of a difference that is none.
    const HAIR: f64 = 1e-12;
    let largest = scores.iter().map(|(_, score)| score.abs()).fold(0.0, f64::max);
    if scores.windows(2).all(|pair| matches!(pair, [a, b] if a.1 == b.1)) {
        return Some(Flat::Scores);
    }
    let least = HAIR * largest * as_f64(scores.len() as u64);
    (sums.len() < scores.len() && sums.iter().all(|sum| sum.abs() <= least)).then_some(Flat::Cases)
}

/// The mean and the number of scores; `None` without any.
pub(crate) fn mean(scores: Vec<f64>) -> Option<(f64, u64)> {
    let n = scores.len() as u64;
    (n > 0).then(|| (sum(scores) / as_f64(n), n))
}

/// The sum, rounded once.
pub(crate) fn sum(numbers: impl IntoIterator<Item = f64>) -> f64 {
    let mut sum = Sum::default();
    numbers.into_iter().for_each(|number| sum.add(number));
    sum.rounded()
}

/// A sum without rounding errors, to which numbers can be added as they come: Shewchuk's
/// nonoverlapping parts, smallest first. Neither the order nor the moment of an addition shows in it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sum {
    parts: Vec<f64>,
}

impl Sum {
    pub(crate) fn add(&mut self, number: f64) {
        let mut carried = number;
        let mut kept = 0;
        for i in 0..self.parts.len() {
            let Some(&part) = self.parts.get(i) else { break };
            let (large, small) =
                if carried.abs() >= part.abs() { (carried, part) } else { (part, carried) };
            carried = large + small;
            let lost = small - (carried - large);
            if lost != 0.0 {
                if let Some(place) = self.parts.get_mut(kept) {
                    *place = lost;
                }
                kept += 1;
            }
        }
        self.parts.truncate(kept);
        if carried != 0.0 {
            self.parts.push(carried);
        }
    }

    /// The number nearest to the sum.
    pub(crate) fn rounded(&self) -> f64 {
        let mut rest = self.parts.iter().rev().copied();
        let (mut sum, mut lost) = (rest.next().unwrap_or_default(), 0.0);
        for part in rest.by_ref() {
            let next = sum + part;
            lost = part - (next - sum);
            sum = next;
            if lost != 0.0 {
                break;
            }
        }
        // Half a unit was lost, and what is smaller says to which side it goes.
        if let Some(below) = rest.next()
            && ((lost < 0.0 && below < 0.0) || (lost > 0.0 && below > 0.0))
        {
            let twice = lost * 2.0;
            let next = sum + twice;
            if next - sum == twice {
                sum = next;
            }
        }
        sum
    }
}

/// The value that `percent` of them are at or below, by nearest rank; `None` without any.
pub(crate) fn percentile(sorted: &[u64], percent: u64) -> Option<u64> {
    let rank = (percent * sorted.len() as u64).div_ceil(100).max(1);
    sorted.get(usize::try_from(rank - 1).ok()?).copied()
}

/// A count as a number to divide by; exact below 2^53.
#[allow(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
pub(crate) fn as_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(got: f64, want: f64, within: f64) {
        assert!((got - want).abs() <= within, "{got} is not {want}");
    }

    /// Against printed tables of Student's t.
    #[test]
    fn t_quantiles() {
        assert_eq!(t_975(0), None);
        for (freedom, want) in [
            (1, 12.706_204_736),
            (2, 4.302_652_730),
            (3, 3.182_446_305),
            (4, 2.776_445_105),
            (5, 2.570_581_836),
            (9, 2.262_157_163),
            (10, 2.228_138_852),
            (29, 2.045_229_642),
            (30, 2.042_272_456),
            (98, 1.984_467_455),
            (99, 1.984_216_952),
            (100, 1.983_971_519),
            (101, 1.983_731_003),
            (1000, 1.962_339_081),
            (1_000_000, 1.959_966_357),
            (u64::MAX, 1.959_963_985),
        ] {
            near(t_975(freedom).expect("t"), want, 2e-8);
        }
    }

    #[test]
    fn wilson_intervals() {
        assert_eq!(wilson(0, 0), None);
        for (hits, n, low, high) in [
            (1, 2, 0.0945, 0.9055),
            (0, 1, 0.0, 0.7935),
            (1, 1, 0.2065, 1.0),
            (0, 10, 0.0, 0.2775),
            (7, 10, 0.3968, 0.8922),
            (95, 100, 0.8882, 0.9785),
        ] {
            let [l, h] = wilson(hits, n).expect("an interval");
            near(l, low, 5e-5);
            near(h, high, 5e-5);
        }
        assert_eq!(wilson(5, 5).map(|i| i[1]), Some(1.0));
    }

    /// 1, 2, 3, 4: variance 5/3, error sqrt(5/12), t(3) = 3.182446.
    #[test]
    fn one_score_a_case_has_the_usual_error() {
        let scores: Vec<_> = (1..=4).map(|x| (x, f64::from(x))).collect();
        let m = mean_by_case(&scores).expect("a mean");
        assert_eq!((m.mean, m.n), (2.5, 4));
        near(m.se.expect("an error"), 0.645_497_224, 1e-9);
        let [low, high] = m.interval.expect("an interval");
        near(low, 2.5 - 2.054_260, 1e-5);
        near(high, 2.5 + 2.054_260, 1e-5);
    }

    /// a: 1, 1; b: 0, 0; c: 1, 0. Mean 1/2, sums of residuals 1, -1, 0: error sqrt(2)/6, t(2).
    #[test]
    fn several_scores_a_case_are_clustered() {
        let scores = [("c", 1.0), ("a", 1.0), ("b", 0.0), ("a", 1.0), ("c", 0.0), ("b", 0.0)];
        let m = mean_by_case(&scores).expect("a mean");
        assert_eq!((m.mean, m.n), (0.5, 6));
        near(m.se.expect("an error"), 2_f64.sqrt() / 6.0, 1e-12);
        let [low, high] = m.interval.expect("an interval");
        near(low, 0.5 - 4.302_653 * 0.235_702, 1e-5);
        near(high, 0.5 + 4.302_653 * 0.235_702, 1e-5);
    }

    #[test]
    fn where_there_is_no_error_there_is_none() {
        assert_eq!(mean_by_case::<u8>(&[]), None);
        let one = mean_by_case(&[(1, 0.25)]).expect("a mean");
        assert_eq!((one.mean, one.se, one.interval), (0.25, None, None));
        // Several scores of one case say nothing of other cases.
        let one_case = mean_by_case(&[(1, 0.0), (1, 1.0), (1, 1.0)]).expect("a mean");
        assert_eq!((one_case.n, one_case.se, one_case.interval), (3, None, None));
        let same = mean_by_case(&[(1, 0.5), (2, 0.5)]).expect("a mean");
        assert_eq!((same.se, same.interval), (Some(0.0), Some([0.5, 0.5])));
    }

    #[test]
    fn sums_do_not_depend_on_order() {
        assert_eq!(sum([]), 0.0);
        assert!(sum([-0.0]).is_sign_positive());
        assert_eq!(sum([1e16, 1.0, -1e16]), 1.0);
        assert_eq!(sum([0.1; 10]), 1.0);
        assert_eq!(sum([0.3, 0.1, 0.2]).to_bits(), sum([0.1, 0.2, 0.3]).to_bits());
        // Half a unit of the last digit, and a hair on either side of it.
        let half = f64::EPSILON / 2.0;
        assert_eq!(sum([1.0, half]), 1.0);
        assert_eq!(sum([1.0, half, 1e-40]), 1.0 + f64::EPSILON);
        assert_eq!(sum([1e-40, 1.0, half]), 1.0 + f64::EPSILON);
        assert_eq!(sum([1.0, half, -1e-40]), 1.0);
    }

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let hundred: Vec<u64> = (1..=100).collect();
        assert_eq!([50, 95, 99].map(|p| percentile(&hundred, p)), [Some(50), Some(95), Some(99)]);
        assert_eq!([50, 95, 99].map(|p| percentile(&[7], p)), [Some(7); 3]);
        assert_eq!([50, 95, 99].map(|p| percentile(&[1, 2, 3], p)), [Some(2), Some(3), Some(3)]);
        assert_eq!(percentile(&[], 50), None);
    }
}
