use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fmt,
};

use attempt_ledger_core::{
    AttemptRow, CaseId, CheckInfo, Durability, Escaped, Folded, GraderInfo, Ordinal, Remote, Role,
    RunId, RunSeen, Slot, SlotView, Verdict,
};
use serde::Serialize;

use crate::{
    Availability, BadCitation, First, Floor, MeanOf, Naive, OtherRun, Percentiles, Quality,
    RefusedPromotions, UnknownRemote, UnknownStopWord, UpstreamRetries, citation::citations,
    running::Three, stats, words::Words,
};

/// What shapes a report beside the ledger.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The coverage below which a report is marked as failed; 0.95 unless set.
    pub coverage_floor: f64,
}

impl Default for Options {
    fn default() -> Self {
        Options { coverage_floor: 0.95 }
    }
}

/// The published numbers of one run, for the model under test.
///
/// Serialises to the JSON of `report --json`. Prints as text of 80 columns.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The run.
    pub run: RunId,
    /// What its first attempts were graded.
    pub quality: Quality,
    /// Its faults of availability.
    pub availability: Availability,
    /// Content that was not let stand for its case.
    pub refused_promotions: RefusedPromotions,
    /// What a scorecard of survivors would have claimed.
    pub naive: Naive,
    /// Mean of the frozen scores by the verdict of their attempts.
    pub mean_by_verdict: BTreeMap<Verdict, MeanOf>,
    /// Calls that ended in content after a fault of availability. Attempts that no call was above
    /// count as one call a slot.
    pub recovered: u64,
    /// Attempts that may have run though no answer came.
    pub unknown_remote: UnknownRemote,
    /// Attempts whose fingerprint is not that of their slot's first.
    pub drift: u64,
    /// Attempts of no run and no case, in the whole ledger.
    pub unlinked: u64,
    /// Attempts that could not be recorded, of this run or of no known one.
    pub unrecorded: u64,
    /// Attempts that have not ended.
    pub open: u64,
    /// Attempts whose writer is gone.
    pub lost: u64,
    /// Attempts that were let go of.
    pub abandoned: u64,
    /// Attempts that were the caller's mistake.
    pub rejected: u64,
    /// Time to first content, of attempts in either series that had any.
    pub first_content_us: Percentiles,
    /// Time to the end, of attempts in either series.
    pub total_us: Percentiles,
    /// Other runs of the same cases in this ledger.
    pub other_runs: Vec<OtherRun>,
    /// What a reader has to know before believing the numbers.
    pub warnings: Vec<String>,
    /// Which verdicts are graded, where the run says so.
    pub graded: Option<Vec<Verdict>>,
    /// The grader whose grades are published, where the run names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grader: Option<GraderInfo>,
    /// What other graders than the published one gave ordinal ones, by grader; never mixed with
    /// the published mean.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub graders: BTreeMap<String, MeanOf>,
    /// The checks that make content `off_target`, where the run says so.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<CheckInfo>,
    /// Whether the coverage is high enough.
    pub coverage_floor: Floor,
    /// Attempts beneath which a gateway says that it retried.
    pub upstream_retries: UpstreamRetries,
    /// Stop words that are not known ones, with the attempts they ended: the most frequent first,
    /// equals by name, 16 at most.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unknown_stop_words: Vec<UnknownStopWord>,
    /// What the text says of numbers that are missing.
    #[serde(skip)]
    pub(crate) missing: Missing,
}

/// Why numbers of a report may be missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Missing {
    /// The run's settings name no grader.
    pub(crate) no_grader: bool,
    /// Content that came as a document, of whose first content no time is taken.
    pub(crate) documents: u64,
    /// Unknown stop words beyond those that are listed.
    pub(crate) words: usize,
}

/// Why there is no report.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// The ledger has no run.
    #[error("this ledger has no run yet; record an attempt, or name another ledger")]
    NoRun,
    /// The ledger does not have the run that was asked for.
    #[error("this ledger has no run {}{}", Escaped(run.as_str()), Known(known))]
    UnknownRun {
        /// The run.
        run: RunId,
        /// The runs that it has.
        known: Vec<RunId>,
    },
    /// A grade says that it rests on a grader's attempt that is not one.
    #[error(transparent)]
    Citation(Box<BadCitation>),
}

struct Known<'a>(&'a [RunId]);

impl fmt::Display for Known<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        for (i, run) in self.0.iter().take(SHOWN).enumerate() {
            let before = if i == 0 { "; it has " } else { ", " };
            write!(f, "{before}{}", Escaped(run.as_str()))?;
        }
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

impl Report {
    /// The report of `run`, or of the run whose event is newest.
    ///
    /// # Errors
    /// When the ledger does not have that run, or has none.
    pub fn of(
        folded: &Folded,
        run: Option<&RunId>,
        options: &Options,
    ) -> Result<Report, ReportError> {
        let run = choose(folded, run)?;
        let slots: Vec<&SlotView> = folded
            .slots
            .iter()
            .filter(|view| view.slot.role == Role::Subject && view.slot.run == run)
            .collect();
        let planned: HashSet<&Slot> = folded
            .planned
            .iter()
            .filter(|slot| slot.run == run)
            .chain(slots.iter().map(|view| &view.slot))
            .collect();
        let settings: Vec<&RunSeen> =
            folded.runs.iter().filter(|seen| seen.event.run == run).collect();
        let newest = folded.run(&run).map(|seen| &seen.event);
        let grader = newest.and_then(|event| event.graders.first());
        let range = grader.map_or([0.0, 1.0], |grader| [grader.low, grader.high]);

        let uncertain = citations(folded, &run).map_err(ReportError::Citation)?;
        let mut tally = Tally::default();
        for view in &slots {
            tally.slot(&folded.attempts(view).collect::<Vec<_>>());
        }
        let quality = Quality::new(&tally.by_case(&slots), planned.len() as u64, range);
        let first_mean = quality.estimate().map(|e| e.mean);
        let count = |verdict| tally.by_verdict.get(&verdict).copied().unwrap_or_default();
        let floor = options.coverage_floor;
        let tally_unchecked = tally.unchecked;
        let (unknown_stop_words, unlisted) = tally.words.listed();
        let mut report = Report {
            naive: Naive::new(&tally.last_grades, first_mean),
            refused_promotions: tally.three.refused(),
            mean_by_verdict: tally.mean_by_verdict(),
            recovered: tally.recovered,
            unknown_remote: tally.unknown,
            upstream_retries: tally.upstream,
            unknown_stop_words,
            drift: tally.drift,
            unlinked: folded.rows.iter().filter(|row| row.run.is_none()).count() as u64,
            unrecorded: [Some(run.clone()), None]
                .iter()
                .filter_map(|key| folded.unrecorded.get(key))
                .fold(0, |sum, count| sum.saturating_add(*count)),
            open: tally.open,
            lost: count(Verdict::Lost),
            abandoned: count(Verdict::Abandoned),
            rejected: count(Verdict::Rejected),
            first_content_us: Percentiles::of(std::mem::take(&mut tally.first_content_us)),
            total_us: Percentiles::of(std::mem::take(&mut tally.total_us)),
            other_runs: other_runs(folded, &run, &planned),
            warnings: Vec::new(),
            graded: newest.map(|event| event.graded.clone()),
            grader: grader.cloned(),
            graders: tally.graders(),
            checks: newest.map(|event| event.checks.clone()).unwrap_or_default(),
            coverage_floor: Floor {
                least: floor,
                met: quality.coverage().is_some_and(|coverage| coverage >= floor),
            },
            missing: Missing {
                no_grader: newest.is_some_and(|event| event.graders.is_empty()),
                documents: tally.documents,
                words: unlisted,
            },
            availability: tally.availability(),
            quality,
            run,
        };
        report.warnings = report.warn(&settings);
        report.warnings.extend(report.quality.doubts(range, grader.is_some()));
        if tally_unchecked > 0 {
            let unchecked = attempts(tally_unchecked);
            report.warnings.push(format!("{unchecked} could not be checked, and counted as ok"));
        }
        if uncertain > 0 {
            let cited = attempts(uncertain);
            report.warnings.push(format!("grades rest on {cited} of a grader without an end"));
        }
        Ok(report)
    }

    fn warn(&self, settings: &[&RunSeen]) -> Vec<String> {
        let mut warnings = Vec::new();
        let mut warn_if = |condition: bool, text: String| {
            if condition {
                warnings.push(text);
            }
        };
        warn_if(
            settings.is_empty(),
            "no event of this run states its settings; durability, what is graded and the grader's range are not known".into(),
        );
        for durability in [Durability::Written, Durability::Memory] {
            warn_if(
                settings.iter().any(|seen| seen.event.durability == durability),
                format!(
                    "recorded with durability `{}`: a power cut may have removed attempts",
                    durability.as_str()
                ),
            );
        }
        let least = self.coverage_floor.least * 100.0;
        warn_if(
            !self.coverage_floor.met && self.quality.planned() > 0,
            format!("coverage is below the floor of {least:.1}%"),
        );
        warn_if(self.open > 0, format!("not final: {} not ended", attempts(self.open)));
        warn_if(
            self.unlinked > 0,
            format!("{} without a case in this ledger", attempts(self.unlinked)),
        );
        warn_if(
            self.unrecorded > 0,
            format!("{} could not be recorded", attempts(self.unrecorded)),
        );
        warn_if(
            self.drift > 0,
            format!("{} sent another request than the first of the slot", attempts(self.drift)),
        );
        let repeated = self.unknown_remote.repeated_with_writes;
        warn_if(
            repeated > 0,
            format!("{} with effect `writes` may have run and was repeated", attempts(repeated)),
        );
        warnings
    }
}

/// `1 attempt`, `2 attempts`.
pub(crate) fn attempts(n: u64) -> String {
    format!("{n} attempt{}", if n == 1 { "" } else { "s" })
}

fn choose(folded: &Folded, run: Option<&RunId>) -> Result<RunId, ReportError> {
    let Some(run) = run else {
        let newest = folded.newest_run().map(|seen| seen.event.run.clone());
        // Without any run event, the run of the newest attempt, or one that was only planned.
        return newest
            .or_else(|| folded.rows.iter().rev().find_map(|row| row.run.clone()))
            .or_else(|| folded.planned.first().map(|slot| slot.run.clone()))
            .ok_or(ReportError::NoRun);
    };
    let known: BTreeSet<&RunId> = (folded.runs.iter().map(|seen| &seen.event.run))
        .chain(folded.planned.iter().map(|slot| &slot.run))
        .chain(folded.slots.iter().map(|view| &view.slot.run))
        .collect();
    if known.contains(run) {
        return Ok(run.clone());
    }
    Err(ReportError::UnknownRun { run: run.clone(), known: known.into_iter().cloned().collect() })
}

fn other_runs(folded: &Folded, run: &RunId, planned: &HashSet<&Slot>) -> Vec<OtherRun> {
    let cases: HashSet<&CaseId> = planned.iter().map(|slot| &slot.case).collect();
    let mut shared: BTreeMap<&RunId, HashSet<&CaseId>> = BTreeMap::new();
    let opened = folded.slots.iter().map(|view| &view.slot);
    for slot in folded.planned.iter().chain(opened) {
        if slot.role == Role::Subject && slot.run != *run && cases.contains(&slot.case) {
            shared.entry(&slot.run).or_default().insert(&slot.case);
        }
    }
    shared
        .into_iter()
        .map(|(run, cases)| OtherRun { run: run.clone(), cases: cases.len() as u64 })
        .collect()
}

/// What is counted while passing over a run's slots.
#[derive(Default)]
struct Tally {
    three: Three,
    by_verdict: BTreeMap<Verdict, u64>,
    open: u64,
    first_available: u64,
    first_n: u64,
    /// The frozen score of each slot, with its attempt's verdict, in the order of slots.
    scores: Vec<Option<(f64, Verdict)>>,
    /// Grades of ordinal ones beside their scores, by grader.
    others: BTreeMap<String, Vec<f64>>,
    unchecked: u64,
    last_grades: Vec<Option<f64>>,
    recovered: u64,
    unknown: UnknownRemote,
    upstream: UpstreamRetries,
    words: Words,
    drift: u64,
    first_content_us: Vec<u64>,
    total_us: Vec<u64>,
    documents: u64,
}

impl Tally {
    /// Counts a slot; its attempts by ordinal.
    fn slot(&mut self, attempts: &[&AttemptRow]) {
        let is_first = |row: &&&AttemptRow| row.ordinal.is_some_and(Ordinal::is_first);
        let first = attempts.first().filter(is_first);
        self.scores.push(first.and_then(|row| row.score.zip(row.verdict)));
        if let Some(verdict) = first.and_then(|row| row.verdict) {
            self.first_available += u64::from(verdict.is_content());
            self.first_n += u64::from(verdict.is_content() || verdict.is_fault());
        }

        for other in first.iter().flat_map(|row| &row.other_grades) {
            self.others.entry(other.grader.clone()).or_default().push(other.score);
        }

        let content = |row: &&&AttemptRow| row.verdict.is_some_and(Verdict::is_content);
        let mut promoted = false;
        for row in attempts {
            self.three.count(is_first(&row), row.verdict, row.score, &mut promoted);
        }
        self.last_grades.extend(attempts.iter().rev().find(content).map(|row| row.any_grade()));

        let last = attempts.len().saturating_sub(1);
        let fingerprint = attempts.iter().find_map(|row| row.fingerprint);
        for (i, row) in attempts.iter().enumerate() {
            self.drift += u64::from(row.fingerprint.is_some() && row.fingerprint != fingerprint);
            if row.remote == Some(Remote::Unknown) {
                self.unknown.attempts += 1;
                let repeated = row.effect.is_writes() && i < last;
                self.unknown.repeated_with_writes += u64::from(repeated);
            }
            if let Some(retries) = row.upstream_retries.filter(|retries| *retries > 0) {
                self.upstream.attempts += 1;
                self.upstream.retries += u64::from(retries);
            }
            if let Some(word) = row.finish_reason.as_ref().filter(|_| row.detail.unknown_stop) {
                self.words.count(word, &row.wire);
            }
            let Some(verdict) = row.verdict else {
                self.open += 1;
                continue;
            };
            *self.by_verdict.entry(verdict).or_default() += 1;
            self.unchecked += u64::from(row.detail.unchecked.is_some());
            if verdict.is_content() || verdict.is_fault() {
                self.first_content_us.extend(row.first_content_us);
                self.total_us.extend(row.end_us);
                // Only streams have events.
                let document = verdict.is_content() && row.events.is_none();
                self.documents += u64::from(document && row.first_content_us.is_none());
            }
        }
        self.recovered += recovered(attempts);
    }

    fn by_case<'a>(&self, slots: &[&'a SlotView]) -> Vec<(&'a CaseId, f64)> {
        let scored = slots.iter().zip(&self.scores);
        scored.filter_map(|(view, score)| Some((&view.slot.case, score.as_ref()?.0))).collect()
    }

    fn mean_by_verdict(&self) -> BTreeMap<Verdict, MeanOf> {
        let mut scores: BTreeMap<_, Vec<f64>> = BTreeMap::new();
        for (score, verdict) in self.scores.iter().flatten() {
            scores.entry(*verdict).or_default().push(*score);
        }
        scores
            .into_iter()
            .filter_map(|(verdict, scores)| {
                stats::mean(scores).map(|(mean, n)| (verdict, MeanOf { mean, n }))
            })
            .collect()
    }

    fn graders(&mut self) -> BTreeMap<String, MeanOf> {
        let others = std::mem::take(&mut self.others).into_iter();
        others
            .filter_map(|(name, scores)| {
                stats::mean(scores).map(|(mean, n)| (name, MeanOf { mean, n }))
            })
            .collect()
    }

    fn availability(mut self) -> Availability {
        for &verdict in Verdict::ALL {
            self.by_verdict.entry(verdict).or_default();
        }
        let (faults, attempts) = self.three.faults();
        Availability {
            faults,
            attempts,
            rate: (attempts > 0).then(|| stats::as_f64(faults) / stats::as_f64(attempts)),
            first: First::new(self.first_available, self.first_n),
            by_verdict: self.by_verdict,
        }
    }
}

/// How many calls of a slot ended in content after a fault of availability.
///
/// A call ends with its last attempt that was not abandoned: a hedge that lost is no end.
fn recovered(attempts: &[&AttemptRow]) -> u64 {
    let mut calls = HashMap::new();
    for row in attempts {
        let (faulted, ended_well) = calls.entry(row.call).or_insert((false, false));
        match row.verdict {
            Some(Verdict::Abandoned) => {}
            Some(verdict) if verdict.is_content() => *ended_well = *faulted,
            Some(verdict) => {
                *ended_well = false;
                *faulted |= verdict.is_fault();
            }
            None => *ended_well = false,
        }
    }
    calls.values().filter(|(_, ended_well)| *ended_well).count() as u64
}
