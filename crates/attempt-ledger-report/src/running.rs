use std::{collections::HashMap, fmt};

use attempt_ledger_core::{Folded, Label, Ordinal, Role, RunId, Slot, Verdict};
use serde::{Serialize, Serializer, ser::SerializeStruct as _};

use crate::{
    RefusedPromotions,
    numbers::{bounds, coverage},
    stats,
    words::Words,
};

/// The three numbers of a run while it goes on, kept by counting each attempt once, as it ends.
///
/// They are counted as a [`Report`](crate::Report) counts them, so that after the last attempt they
/// are the report's own. The mean has no accessor: it is shown, by [`Display`](fmt::Display) and in
/// JSON, with its n, and in JSON with the coverage and the bounds too. What it may be published with,
/// the interval above all, is the report's.
///
/// ```
/// use attempt_ledger_core::{CaseId, Ordinal, RunId, Slot, Verdict};
/// use attempt_ledger_report::Running;
///
/// let slot = Slot::new(RunId::new("nightly")?, CaseId::new("case-7")?);
/// let mut running = Running::new([0.0, 1.0]);
/// running.plan(slot.clone());
/// running.ended(&slot, Ordinal::FIRST, Verdict::Throttled, None);
/// let second = Ordinal::FIRST.next().expect("2");
/// running.ended(&slot, second, Verdict::Ok, Some(1.0));
/// assert_eq!(running.to_string(), "quality - (n 0)  faults 1/2  refused promotions 1");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Running {
    three: Three,
    /// The slots that were to be graded, each with whether a promotion was refused in it.
    slots: HashMap<Slot, bool>,
    range: [f64; 2],
    words: Words,
}

impl Running {
    /// Nothing counted yet, with the range of the published grader; 0 to 1 without one.
    pub fn new(range: [f64; 2]) -> Self {
        Running { three: Three::default(), slots: HashMap::new(), range, words: Words::default() }
    }

    /// What a ledger holds of `run` already.
    pub fn of(folded: &Folded, run: &RunId, range: [f64; 2]) -> Self {
        let mut running = Running::new(range);
        let planned = folded.planned.iter().filter(|slot| slot.run == *run);
        planned.for_each(|slot| running.plan(slot.clone()));
        let views = folded.slots.iter().filter(|view| view.slot.run == *run);
        for view in views.filter(|view| view.slot.role == Role::Subject) {
            let promoted = running.slots.entry(view.slot.clone()).or_default();
            for row in folded.attempts(view) {
                let first = row.ordinal.is_some_and(Ordinal::is_first);
                running.three.count(first, row.verdict, row.score, promoted);
                if let Some(word) = row.finish_reason.as_ref().filter(|_| row.detail.unknown_stop) {
                    running.words.count(word, &row.wire);
                }
            }
        }
        running
    }

    /// A slot that is to be graded; again, nothing.
    pub fn plan(&mut self, slot: Slot) {
        if slot.role == Role::Subject {
            self.slots.entry(slot).or_default();
        }
    }

    /// An attempt has ended, with the grade that it was given: ordinal one's score; of a later one
    /// it is a diagnostic, and in no number. Each attempt is told once.
    pub fn ended(&mut self, slot: &Slot, ordinal: Ordinal, verdict: Verdict, grade: Option<f64>) {
        if slot.role != Role::Subject {
            return;
        }
        let first = ordinal.is_first();
        let score = grade.filter(|_| first);
        // The slot of an attempt that nobody planned was to be graded all the same.
        if !self.slots.contains_key(slot) {
            self.slots.insert(slot.clone(), false);
        }
        if let Some(promoted) = self.slots.get_mut(slot) {
            self.three.count(first, Some(verdict), score, promoted);
        }
    }

    /// The answer of an attempt that has ended had a stop word that is not known on its wire. Told
    /// beside [`ended`](Running::ended), once.
    pub fn unknown_stop(&mut self, slot: &Slot, word: &Label, wire: &Label) {
        if slot.role == Role::Subject {
            self.words.count(word, wire);
        }
    }
}

impl fmt::Display for Running {
    /// `quality 0.62 (n 11)  faults 3/15  refused promotions 2`; in short (`{:#}`)
    /// `q 0.62 (n 11)  f 3/15  p 2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [quality, fault, refused] = match f.alternate() {
            true => ["q", "f", "p"],
            false => ["quality", "faults", "refused promotions"],
        };
        write!(f, "{quality} ")?;
        match self.three.mean() {
            Some(mean) => write!(f, "{mean:.2}")?,
            None => f.write_str("-")?,
        }
        let (faults, attempts) = self.three.faults();
        let Three { scored, refused: RefusedPromotions { attempts: promotions, .. }, .. } =
            &self.three;
        write!(f, " (n {scored})  {fault} {faults}/{attempts}  {refused} {promotions}")
    }
}

impl Serialize for Running {
    /// `quality{mean,n,planned,coverage,bounds}`, `availability{faults,attempts}`,
    /// `refused_promotions{attempts,slots}`, and `unknown_stop_words[{word,wire,attempts}]` when any
    /// came: the fields of a report's JSON of the same names.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Quality {
            mean: Option<f64>,
            n: u64,
            planned: u64,
            coverage: Option<f64>,
            bounds: Option<[f64; 2]>,
        }
        #[derive(Serialize)]
        struct Availability {
            faults: u64,
            attempts: u64,
        }
        let (n, planned) = (self.three.scored, self.slots.len() as u64);
        let quality = Quality {
            mean: self.three.mean(),
            n,
            planned,
            coverage: coverage(n, planned),
            bounds: bounds(self.three.scores.rounded(), n, planned, self.range),
        };
        let (faults, attempts) = self.three.faults();
        let (words, _) = self.words.listed();
        let fields = if words.is_empty() { 3 } else { 4 };
        let mut running = serializer.serialize_struct("Running", fields)?;
        running.serialize_field("quality", &quality)?;
        running.serialize_field("availability", &Availability { faults, attempts })?;
        running.serialize_field("refused_promotions", &self.three.refused)?;
        if !words.is_empty() {
            running.serialize_field("unknown_stop_words", &words)?;
        }
        running.end()
    }
}

/// What each attempt adds to the three numbers: the one place that says so.
#[derive(Clone, Debug, Default)]
pub(crate) struct Three {
    scores: stats::Sum,
    scored: u64,
    faults: u64,
    contents: u64,
    refused: RefusedPromotions,
}

impl Three {
    /// Counts an attempt; `promoted` says of its slot whether one of its attempts was refused a
    /// promotion before.
    pub(crate) fn count(
        &mut self,
        first: bool,
        verdict: Option<Verdict>,
        score: Option<f64>,
        promoted: &mut bool,
    ) {
        let Some(verdict) = verdict else { return };
        self.faults += u64::from(verdict.is_fault());
        self.contents += u64::from(verdict.is_content());
        if let Some(score) = score.filter(|_| first) {
            self.scores.add(score);
            self.scored += 1;
        }
        if verdict.is_content() && !first {
            self.refused.attempts += 1;
            self.refused.slots += u64::from(!std::mem::replace(promoted, true));
        }
    }

    /// Faults, of attempts in either series.
    pub(crate) fn faults(&self) -> (u64, u64) {
        (self.faults, self.faults + self.contents)
    }

    pub(crate) fn refused(&self) -> RefusedPromotions {
        self.refused
    }

    fn mean(&self) -> Option<f64> {
        (self.scored > 0).then(|| self.scores.rounded() / stats::as_f64(self.scored))
    }
}
