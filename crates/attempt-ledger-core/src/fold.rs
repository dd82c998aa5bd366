//! From events to rows and slots: the one place that does it.

mod row;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::{
    AttemptId, Closed, Event, Grade, GradeRefused, Opened, Ordinal, Record, Remote, Role, RunEvent,
    RunId, Session, SessionId, Slot, Timestamp, Verdict,
};

pub use row::{AttemptRow, OtherGrade, RowGrade};

/// How long past its own total an attempt may stay open before it counts as lost, where nothing
/// else tells whether its writer lives: 60 s, for a close that is late and clocks that differ.
pub const LOST_AFTER_TOTAL_US: i64 = 60_000_000;

/// Turns a ledger's events, in their order, into rows.
///
/// Memory grows with the number of attempts: the fold holds every row.
///
/// ```
/// use attempt_ledger_core::{
///     AttemptId, CaseId, Cause, Effect, Event, Fold, Label, Limits, Liveness, Opened, Ordinal, Record,
///     Role, RunId, SessionId, Timestamp, Verdict,
/// };
///
/// let opened = Opened {
///     attempt: AttemptId::from_u128(1),
///     run: Some(RunId::new("nightly")?),
///     case: Some(CaseId::new("case-7")?),
///     epoch: 1,
///     step: 1,
///     role: Role::Subject,
///     ordinal: Some(Ordinal::FIRST),
///     cause: Cause::Initial,
///     call: None,
///     fixture: None,
///     fingerprint: None,
///     model: None,
///     wire: Label::new("openai-chat"),
///     effect: Effect::ReadOnly,
///     host: None,
///     carrier: Label::new("extension"),
///     limits: Limits::default(),
///     session: SessionId::from_u128(9),
/// };
/// let mut fold = Fold::new();
/// fold.push(&Record { seq: 0, time: Timestamp::default(), event: Event::Opened(opened) })?;
///
/// // Nobody closed it. While its writer lives it is open, and afterwards lost.
/// let now = Timestamp::default();
/// assert_eq!(fold.clone().finish(now, &Liveness::All).rows[0].verdict, None);
/// let gone = Liveness::Sessions(Default::default());
/// assert_eq!(fold.finish(now, &gone).rows[0].verdict, Some(Verdict::Lost));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Fold {
    rows: Vec<AttemptRow>,
    by_attempt: HashMap<AttemptId, usize>,
    slots: Vec<SlotFold>,
    by_slot: HashMap<Slot, usize>,
    runs: Vec<RunSeen>,
    planned: BTreeSet<Slot>,
    sessions: Vec<Session>,
    unrecorded: BTreeMap<Option<RunId>, u64>,
    refused: Vec<GradeRefused>,
}

#[derive(Clone, Debug)]
struct SlotFold {
    slot: Slot,
    fixture: Option<crate::Digest>,
    /// Indices of rows, by ordinal.
    rows: Vec<usize>,
}

/// An event that breaks a ledger's rules. A store that wrote it has a fault, or was altered.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("event {seq} breaks the ledger's rules: {fault}")]
pub struct FoldError {
    /// The event's number in the ledger.
    pub seq: u64,
    /// The attempt it is about.
    pub attempt: AttemptId,
    /// What is wrong with it.
    pub fault: FoldFault,
}

/// What is wrong with an event.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FoldFault {
    /// The attempt was opened before.
    #[error("the attempt was opened before")]
    OpenedTwice,
    /// The slot has that ordinal already.
    #[error("{slot} of run {} has ordinal {ordinal} already", slot.run)]
    OrdinalTwice {
        /// The slot.
        slot: Slot,
        /// The ordinal.
        ordinal: Ordinal,
    },
    /// It has a slot without an ordinal, or an ordinal without a slot.
    #[error("an attempt has run, case and ordinal, or none of them")]
    HalfLinked,
    /// An earlier attempt of the slot was made with another fixture.
    #[error("{slot} of run {} was opened with another fixture before", slot.run)]
    FixtureChanged {
        /// The slot.
        slot: Slot,
    },
    /// No event opened the attempt.
    #[error("`{kind}` names an attempt that no earlier event opened")]
    UnknownAttempt {
        /// The kind of event.
        kind: &'static str,
    },
    /// The attempt was closed before.
    #[error("the attempt was closed before")]
    ClosedTwice,
    /// The attempt has its score already.
    #[error("the attempt has its score already")]
    ScoredTwice,
    /// A grade of a grader's own attempt.
    #[error("a grade of a grader's own attempt")]
    GradedGrader,
    /// A grade of an attempt that no slot counts.
    #[error("a grade of an unlinked attempt")]
    GradedUnlinked,
    /// A grade of an attempt that is not closed.
    #[error("a grade came before the attempt was closed")]
    GradedOpen,
    /// A grade of an attempt that is not content.
    #[error("a grade of an attempt that is {verdict}, which is not content")]
    GradedNoContent {
        /// The attempt's verdict.
        verdict: Verdict,
    },
    /// A grade of another answer than the attempt's.
    #[error("the grade is of another answer than the attempt's")]
    GradedOtherAnswer,
    /// A grade that is no finite number.
    #[error("the grade is no finite number")]
    GradeNotFinite,
    /// A score of an attempt at ordinal 2 or later.
    #[error("a score of an attempt that is not its slot's first: a promotion")]
    Promotion,
    /// A diagnostic of ordinal one, whose grade is its score.
    #[error("a diagnostic of a first attempt, whose grade is its score")]
    DiagnosticOfFirst,
    /// A grade beside the published one's, by the published grader.
    #[error("a grade beside the score, by the run's published grader {grader:?}")]
    PublishedBeside {
        /// The grader's name.
        grader: String,
    },
    /// A second grade by the same grader.
    #[error("the grader {grader:?} has graded the attempt already")]
    GradedTwice {
        /// The grader's name.
        grader: String,
    },
}

/// How it is known which writers still live, for attempts that are open.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Liveness {
    /// All of them: the ledger is this process's memory.
    All,
    /// Those of these sessions: the file store's holders of the lock.
    Sessions(HashSet<SessionId>),
    /// Nobody can tell: an attempt is open until its total clock plus 60 s has passed since it was
    /// opened, and without such a clock for ever.
    Deadline,
}

/// A ledger's rows, and what else its events say.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Folded {
    /// Every attempt, by the sequence number of its opening.
    pub rows: Vec<AttemptRow>,
    /// Every slot that an attempt was opened in, by the sequence number of the first.
    pub slots: Vec<SlotView>,
    /// The run events, in order; a run may have several, of which the newest holds.
    pub runs: Vec<RunSeen>,
    /// Slots that are to be graded.
    pub planned: BTreeSet<Slot>,
    /// The openings of the ledger for writing, in order.
    pub sessions: Vec<Session>,
    /// Attempts that could not be recorded, by run where it is known.
    pub unrecorded: BTreeMap<Option<RunId>, u64>,
    /// Grades that were not accepted, in order.
    pub refused: Vec<GradeRefused>,
}

/// A run event with its place.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSeen {
    /// Its number in the ledger.
    pub seq: u64,
    /// When it was recorded.
    pub time: Timestamp,
    /// The run and its settings.
    pub event: RunEvent,
}

/// A slot: its attempts, and what is published of it.
#[derive(Clone, Debug, PartialEq)]
pub struct SlotView {
    /// The slot.
    pub slot: Slot,
    /// Its attempts as indices of [`Folded::rows`], by ordinal.
    pub rows: Vec<usize>,
    /// Its state.
    pub state: SlotState,
}

/// The state of a slot: that of its ordinal one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SlotState {
    /// Ordinal one carries its grade. Nothing changes it.
    Frozen(f64),
    /// Ordinal one ended so, and carries no grade.
    Ended(Verdict),
    /// Ordinal one has not ended.
    Open,
    /// Ordinal one is not among the events.
    Missing,
}

impl SlotState {
    /// The published score: ordinal one's grade, or nothing.
    pub fn score(self) -> Option<f64> {
        match self {
            SlotState::Frozen(score) => Some(score),
            _ => None,
        }
    }
}

impl Fold {
    /// A fold that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next event.
    ///
    /// # Errors
    /// [`FoldError`] when the event breaks a rule of the ledger; the fold is then as it was before,
    /// and can go on.
    pub fn push(&mut self, record: &Record) -> Result<(), FoldError> {
        let attempt = match &record.event {
            Event::Opened(opened) => opened.attempt,
            Event::Closed(closed) => closed.attempt,
            Event::Scored(grade) | Event::Diagnostic(grade) | Event::AlsoGraded(grade) => {
                grade.attempt
            }
            Event::Note(note) => note.attempt,
            Event::Run(run) => {
                let Record { seq, time, .. } = *record;
                self.runs.push(RunSeen { seq, time, event: run.clone() });
                return Ok(());
            }
            Event::Planned(planned) => {
                self.planned.extend(planned.slots.iter().map(|slot| Slot {
                    run: planned.run.clone(),
                    case: slot.case.clone(),
                    epoch: slot.epoch,
                    step: slot.step,
                    role: Role::Subject,
                }));
                return Ok(());
            }
            Event::Session(session) => {
                self.sessions.push(session.clone());
                return Ok(());
            }
            Event::GradeRefused(refused) => {
                // Of an attempt that is not in the ledger, too: that may be why.
                self.refused.push(refused.clone());
                return Ok(());
            }
            Event::Unrecorded(unrecorded) => {
                let count = self.unrecorded.entry(unrecorded.run.clone()).or_default();
                *count = count.saturating_add(unrecorded.count);
                return Ok(());
            }
            // The store's own rows.
            Event::Segment(_) | Event::Sealed(_) => return Ok(()),
        };
        let folded = match &record.event {
            Event::Opened(opened) => self.open(record, opened),
            Event::Closed(closed) => self.close(closed),
            Event::Scored(grade) => self.grade(grade, true),
            Event::Diagnostic(grade) => self.grade(grade, false),
            Event::AlsoGraded(grade) => self.also_graded(grade),
            Event::Note(note) => {
                self.row(attempt, "note").map(|row| row.notes.push(note.text.clone()))
            }
            _ => Ok(()),
        };
        folded.map_err(|fault| FoldError { seq: record.seq, attempt, fault })
    }

    fn open(&mut self, record: &Record, opened: &Opened) -> Result<(), FoldFault> {
        if self.by_attempt.contains_key(&opened.attempt) {
            return Err(FoldFault::OpenedTwice);
        }
        let index = self.rows.len();
        match (opened.slot(), opened.ordinal) {
            (None, None) => {}
            (Some(slot), Some(ordinal)) => self.place(index, slot, ordinal, opened)?,
            _ => return Err(FoldFault::HalfLinked),
        }
        self.by_attempt.insert(opened.attempt, index);
        self.rows.push(AttemptRow::opened(record.seq, record.time, opened));
        Ok(())
    }

    fn place(
        &mut self,
        index: usize,
        slot: Slot,
        ordinal: Ordinal,
        opened: &Opened,
    ) -> Result<(), FoldFault> {
        let Fold { rows, slots, by_slot, .. } = self;
        let Some(found) = by_slot.get(&slot).and_then(|&i| slots.get_mut(i)) else {
            by_slot.insert(slot.clone(), slots.len());
            slots.push(SlotFold { slot, fixture: opened.fixture, rows: vec![index] });
            return Ok(());
        };
        let ordinal_of = |&i: &usize| rows.get(i).and_then(|row| row.ordinal);
        let Err(place) = found.rows.binary_search_by_key(&Some(ordinal), ordinal_of) else {
            return Err(FoldFault::OrdinalTwice { slot, ordinal });
        };
        match (found.fixture, opened.fixture) {
            (Some(before), Some(now)) if before != now => {
                return Err(FoldFault::FixtureChanged { slot });
            }
            (None, fixture) => found.fixture = fixture,
            _ => {}
        }
        found.rows.insert(place, index);
        Ok(())
    }

    fn row(&mut self, id: AttemptId, kind: &'static str) -> Result<&mut AttemptRow, FoldFault> {
        let index = self.by_attempt.get(&id);
        index.and_then(|&i| self.rows.get_mut(i)).ok_or(FoldFault::UnknownAttempt { kind })
    }

    fn close(&mut self, closed: &Closed) -> Result<(), FoldFault> {
        let row = self.row(closed.attempt, "closed")?;
        if row.verdict.is_some() {
            return Err(FoldFault::ClosedTwice);
        }
        row.close(closed);
        Ok(())
    }

    fn grade(&mut self, grade: &Grade, is_score: bool) -> Result<(), FoldFault> {
        let row = self.row(grade.attempt, if is_score { "scored" } else { "diagnostic" })?;
        if row.role != Role::Subject {
            return Err(FoldFault::GradedGrader);
        }
        let first = row.ordinal.ok_or(FoldFault::GradedUnlinked)?.is_first();
        if is_score && !first {
            return Err(FoldFault::Promotion);
        }
        if !is_score && first {
            return Err(FoldFault::DiagnosticOfFirst);
        }
        match row.verdict {
            None => return Err(FoldFault::GradedOpen),
            Some(verdict) if !verdict.is_content() => {
                return Err(FoldFault::GradedNoContent { verdict });
            }
            Some(_) => {}
        }
        if row.score.is_some() {
            return Err(FoldFault::ScoredTwice);
        }
        if row.answer_sha256 != Some(grade.answer_sha256) {
            return Err(FoldFault::GradedOtherAnswer);
        }
        if !grade.score.is_finite() {
            return Err(FoldFault::GradeNotFinite);
        }
        // Of several diagnostics the first stands: asking again is no way to a better one.
        if row.grade.is_none() {
            row.graded(grade, is_score);
        }
        Ok(())
    }

    fn also_graded(&mut self, grade: &Grade) -> Result<(), FoldFault> {
        let Fold { rows, by_attempt, runs, .. } = self;
        let row = by_attempt.get(&grade.attempt).and_then(|&i| rows.get_mut(i));
        let row = row.ok_or(FoldFault::UnknownAttempt { kind: "also_graded" })?;
        if row.role != Role::Subject {
            return Err(FoldFault::GradedGrader);
        }
        if row.ordinal.is_none() {
            return Err(FoldFault::GradedUnlinked);
        }
        match row.verdict {
            None => return Err(FoldFault::GradedOpen),
            Some(verdict) if !verdict.is_content() => {
                return Err(FoldFault::GradedNoContent { verdict });
            }
            Some(_) => {}
        }
        let settings = runs.iter().rev().find(|seen| Some(&seen.event.run) == row.run.as_ref());
        let published = settings.and_then(|seen| seen.event.graders.first());
        let grader = || grade.grader.clone();
        if published.is_some_and(|info| info.name == grade.grader) {
            return Err(FoldFault::PublishedBeside { grader: grader() });
        }
        if row.other_grades.iter().any(|other| other.grader == grade.grader) {
            return Err(FoldFault::GradedTwice { grader: grader() });
        }
        if row.answer_sha256 != Some(grade.answer_sha256) {
            return Err(FoldFault::GradedOtherAnswer);
        }
        if !grade.score.is_finite() {
            return Err(FoldFault::GradeNotFinite);
        }
        row.also_graded(grade);
        Ok(())
    }

    /// The rows as of `now`. Attempts that were never closed are open or lost, as `liveness` says.
    pub fn finish(self, now: Timestamp, liveness: &Liveness) -> Folded {
        let Fold { mut rows, mut slots, runs, planned, sessions, unrecorded, refused, .. } = self;
        for row in rows.iter_mut().filter(|row| row.verdict.is_none()) {
            if !liveness.is_live(row, now) {
                row.verdict = Some(Verdict::Lost);
                row.remote = Some(Remote::Unknown);
            }
        }
        // Rows came in order of `seq`, unless several sources were merged.
        if !rows.is_sorted_by_key(|row| row.seq) {
            let mut order: Vec<usize> = (0..rows.len()).collect();
            order.sort_by_key(|&i| rows.get(i).map(|row| row.seq));
            let mut place = vec![0; rows.len()];
            for (to, &from) in order.iter().enumerate() {
                if let Some(place) = place.get_mut(from) {
                    *place = to;
                }
            }
            for index in slots.iter_mut().flat_map(|slot| &mut slot.rows) {
                *index = place.get(*index).copied().unwrap_or(*index);
            }
            rows.sort_by_key(|row| row.seq);
        }
        let mut slots: Vec<SlotView> = slots
            .into_iter()
            .map(|SlotFold { slot, rows: indices, .. }| {
                let first = indices.first().and_then(|&i| rows.get(i));
                SlotView { slot, state: SlotState::of(first), rows: indices }
            })
            .collect();
        slots.sort_by_key(|slot| slot.rows.iter().min().copied());
        Folded { rows, slots, runs, planned, sessions, unrecorded, refused }
    }
}

impl SlotState {
    fn of(lowest: Option<&AttemptRow>) -> Self {
        let Some(row) = lowest.filter(|row| row.ordinal.is_some_and(Ordinal::is_first)) else {
            return SlotState::Missing;
        };
        match (row.score, row.verdict) {
            (Some(score), _) => SlotState::Frozen(score),
            (None, Some(verdict)) => SlotState::Ended(verdict),
            (None, None) => SlotState::Open,
        }
    }
}

impl Liveness {
    fn is_live(&self, row: &AttemptRow, now: Timestamp) -> bool {
        match self {
            Liveness::All => true,
            Liveness::Sessions(live) => live.contains(&row.session),
            Liveness::Deadline => {
                let limits = [row.limits.total_us, row.limits.budget_us];
                let Some(total) = limits.into_iter().flatten().min() else { return true };
                let total = i64::try_from(total).unwrap_or(i64::MAX);
                let last = row.time.as_micros().saturating_add(total);
                now.as_micros() <= last.saturating_add(LOST_AFTER_TOTAL_US)
            }
        }
    }
}

impl Folded {
    /// The newest run event: what a report is of when no run is named.
    pub fn newest_run(&self) -> Option<&RunSeen> {
        self.runs.iter().max_by_key(|run| run.seq)
    }

    /// The newest event of `run`: the settings that hold.
    pub fn run(&self, run: &RunId) -> Option<&RunSeen> {
        self.runs.iter().filter(|seen| seen.event.run == *run).max_by_key(|seen| seen.seq)
    }

    /// The attempts of a slot, by ordinal.
    pub fn attempts<'a>(&'a self, slot: &'a SlotView) -> impl Iterator<Item = &'a AttemptRow> {
        slot.rows.iter().filter_map(|&i| self.rows.get(i))
    }
}
