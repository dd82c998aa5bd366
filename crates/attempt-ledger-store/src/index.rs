use std::collections::{HashMap, hash_map::Entry};

use attempt_ledger_core::{
    AttemptId, CallId, Cause, Closed, Digest, Event, Grade, GradeRefused, Opened, Ordinal,
    RefusedWhy, Role, RunId, Slot, Verdict,
};

use crate::{StoreError, error::OtherFixture};

/// What is known of a slot, as far as it was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct SlotState {
    /// The highest ordinal.
    pub last: Ordinal,
    /// The attempt with ordinal one.
    pub first: AttemptId,
    /// How that attempt ended; `None` while it is open, or when it is lost.
    pub first_verdict: Option<Verdict>,
    /// Ordinal one's grade: with it the slot is frozen.
    pub frozen: Option<f64>,
    /// The closed attempt with the highest ordinal: its verdict, and its fingerprint where known.
    pub newest_closed: Option<(Ordinal, Verdict, Option<Digest>)>,
    /// Whether the newest call ended in content: of that call's attempts that closed as content, the
    /// fingerprint of the one with the highest ordinal, where known. `None` when none of them did.
    ///
    /// The newest call is that of the attempt with the highest ordinal; an attempt without a call is
    /// one of its own. A hedge that lost closes later, as `abandoned`, and does not hide the answer.
    pub newest_call_content: Option<Option<Digest>>,
    /// The fixture of the slot.
    pub fixture: Option<Digest>,
    /// Attempts that are open and may still close.
    pub open: u32,
}

/// Slots and attempts: allocates ordinals, and decides on grades. The one place that does either.
///
/// Three steps for each event: [`check`](Index::check) decides and fills in the ordinal,
/// [`apply`](Index::apply) counts the event once its row is certain to be written, and
/// [`publish`](Index::publish) makes it visible once it is acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Index {
    numbers: HashMap<Slot, u32>,
    slots: Vec<SlotEntry>,
    attempts: HashMap<AttemptId, Attempt>,
    /// Content of calls that are not their slot's newest, and may become it by another attempt.
    contents: HashMap<(u32, CallKey), Content>,
    /// The published grader of each run, by its newest settings.
    published: HashMap<RunId, Option<String>>,
    /// Who graded an attempt beside the published one.
    also_graded: HashMap<AttemptId, Vec<String>>,
}

#[derive(Debug, Default)]
struct SlotEntry {
    run: Option<RunId>,
    last: Option<Ordinal>,
    frozen: bool,
    fixture: Option<Digest>,
    visible: Option<SlotState>,
    /// The call of the highest visible ordinal, and its content.
    newest_call: Option<CallKey>,
    content: Option<Content>,
}

/// A call; an attempt without one is its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CallKey {
    Call(CallId),
    Attempt(AttemptId),
}

/// The attempt of a call that closed as content, and its fingerprint.
type Content = (Ordinal, Option<Digest>);

#[derive(Debug)]
struct Attempt {
    /// Number of its slot and its ordinal; `None` for an unlinked attempt.
    place: Option<(u32, Ordinal)>,
    role: Role,
    call: CallKey,
    state: AttemptState,
}

#[derive(Debug)]
enum AttemptState {
    Open { fingerprint: Option<Digest> },
    Closed { verdict: Verdict, answer: Option<Digest> },
}

/// What an applied event changes in what is visible.
#[derive(Debug)]
pub(crate) enum Change {
    Nothing,
    Opened {
        slot: u32,
        ordinal: Ordinal,
        attempt: AttemptId,
        /// `None` for a row that only spends an ordinal.
        call: Option<CallKey>,
        fixture: Option<Digest>,
    },
    Closed {
        slot: u32,
        ordinal: Ordinal,
        call: CallKey,
        verdict: Verdict,
        fingerprint: Option<Digest>,
    },
    Scored {
        slot: u32,
        score: f64,
    },
}

impl Index {
    /// Decides whether `event` may be recorded, and fills in an opening's ordinal.
    pub(crate) fn check(&self, event: &mut Event) -> Result<(), StoreError> {
        match event {
            Event::Opened(opened) => self.check_opened(opened),
            Event::Closed(closed) => match self.attempts.get(&closed.attempt).map(|a| &a.state) {
                Some(AttemptState::Open { .. }) => Ok(()),
                Some(AttemptState::Closed { .. }) => Err(StoreError::AlreadyClosed(closed.attempt)),
                None => Err(StoreError::UnknownAttempt(closed.attempt)),
            },
            Event::Scored(grade) => self.check_grade(grade, false).map_err(StoreError::Refused),
            Event::Diagnostic(grade) => self.check_grade(grade, true).map_err(StoreError::Refused),
            Event::AlsoGraded(grade) => self.check_other(grade).map_err(StoreError::Refused),
            Event::Run(run) => {
                // JSON has no such numbers: they would be written as null and not be read back.
                if run.graders.iter().any(|g| !g.low.is_finite() || !g.high.is_finite()) {
                    return Err(StoreError::NotFinite { what: "a grader's range" });
                }
                if run.retry.grade_below.is_some_and(|g| !g.is_finite()) {
                    return Err(StoreError::NotFinite { what: "the grade to retry below" });
                }
                Ok(())
            }
            // The fold has no place for a remark on nothing: every later report would fail.
            Event::Note(note) if !self.attempts.contains_key(&note.attempt) => {
                Err(StoreError::UnknownAttempt(note.attempt))
            }
            Event::GradeRefused(refused) => {
                refused.score = refused.score.filter(|score| score.is_finite());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn check_opened(&self, opened: &mut Opened) -> Result<(), StoreError> {
        if self.attempts.contains_key(&opened.attempt) {
            return Err(StoreError::DuplicateAttempt(opened.attempt));
        }
        let half = |has, lacks| Err(StoreError::HalfLinked { has, lacks });
        match (&opened.run, &opened.case) {
            (Some(_), None) => return half("run", "case"),
            (None, Some(_)) => return half("case", "run"),
            _ => {}
        }
        opened.ordinal = None;
        let Some(slot) = opened.slot() else { return Ok(()) };
        let Some(entry) = self.numbers.get(&slot).and_then(|&n| self.slots.get(n as usize)) else {
            opened.ordinal = Some(Ordinal::FIRST);
            return Ok(());
        };
        if let (Some(before), Some(given)) = (entry.fixture, opened.fixture)
            && before != given
        {
            return Err(StoreError::OtherFixture(Box::new(OtherFixture { slot, before, given })));
        }
        match entry.last.map_or(Some(Ordinal::FIRST), Ordinal::next) {
            Some(next) => {
                opened.ordinal = Some(next);
                // Its call has no attempt before it, but its slot does.
                if opened.cause == Cause::Initial {
                    opened.cause = Cause::Recall;
                }
            }
            None => return Err(StoreError::OrdinalsSpent(Box::new(slot))),
        }
        Ok(())
    }

    /// Where the attempt stands, if a grade of this answer of it may be recorded at all.
    fn check_answer(&self, grade: &Grade) -> Result<(u32, Ordinal), RefusedWhy> {
        let attempt = self.attempts.get(&grade.attempt).ok_or(RefusedWhy::UnknownAttempt)?;
        if attempt.role != Role::Subject {
            return Err(RefusedWhy::GraderRole);
        }
        let place = attempt.place.ok_or(RefusedWhy::Unlinked)?;
        let AttemptState::Closed { verdict, answer } = attempt.state else {
            return Err(RefusedWhy::NotClosed);
        };
        if !verdict.is_content() {
            return Err(RefusedWhy::NotContent);
        }
        if answer != Some(grade.answer_sha256) {
            return Err(RefusedWhy::OtherAnswer);
        }
        if !grade.score.is_finite() {
            return Err(RefusedWhy::NotFinite);
        }
        Ok(place)
    }

    fn check_other(&self, grade: &Grade) -> Result<(), RefusedWhy> {
        let (slot, _) = self.check_answer(grade)?;
        let run = self.slots.get(slot as usize).and_then(|entry| entry.run.as_ref());
        let published = run.and_then(|run| self.published.get(run)?.as_ref());
        if published == Some(&grade.grader) {
            return Err(RefusedWhy::PublishedGrader);
        }
        let before = self.also_graded.get(&grade.attempt);
        if before.is_some_and(|names| names.contains(&grade.grader)) {
            return Err(RefusedWhy::GradedAlready);
        }
        Ok(())
    }

    fn check_grade(&self, grade: &Grade, diagnostic: bool) -> Result<(), RefusedWhy> {
        let attempt = self.attempts.get(&grade.attempt).ok_or(RefusedWhy::UnknownAttempt)?;
        if attempt.role != Role::Subject {
            return Err(RefusedWhy::GraderRole);
        }
        let (slot, ordinal) = attempt.place.ok_or(RefusedWhy::Unlinked)?;
        match (ordinal.is_first(), diagnostic) {
            (false, false) => return Err(RefusedWhy::LaterOrdinal),
            (true, true) => return Err(RefusedWhy::FirstOrdinal),
            _ => {}
        }
        let AttemptState::Closed { verdict, answer } = attempt.state else {
            return Err(RefusedWhy::NotClosed);
        };
        if !verdict.is_content() {
            return Err(RefusedWhy::NotContent);
        }
        if !diagnostic && self.slots.get(slot as usize).is_some_and(|entry| entry.frozen) {
            return Err(RefusedWhy::Frozen);
        }
        if answer != Some(grade.answer_sha256) {
            return Err(RefusedWhy::OtherAnswer);
        }
        if !grade.score.is_finite() {
            return Err(RefusedWhy::NotFinite);
        }
        Ok(())
    }

    /// Counts an event whose row will be written, or was read.
    pub(crate) fn apply(&mut self, event: &Event) -> Change {
        match event {
            Event::Opened(opened) => self.apply_opened(opened),
            Event::Closed(closed) => self.apply_closed(closed),
            Event::Scored(grade) => {
                let place = self.attempts.get(&grade.attempt).and_then(|attempt| attempt.place);
                let Some((slot, _)) = place else { return Change::Nothing };
                match self.slots.get_mut(slot as usize) {
                    Some(entry) if !entry.frozen => {
                        entry.frozen = true;
                        Change::Scored { slot, score: grade.score }
                    }
                    _ => Change::Nothing,
                }
            }
            Event::AlsoGraded(grade) => {
                self.also_graded.entry(grade.attempt).or_default().push(grade.grader.clone());
                Change::Nothing
            }
            Event::Run(run) => {
                let published = run.graders.first().map(|info| info.name.clone());
                self.published.insert(run.run.clone(), published);
                Change::Nothing
            }
            _ => Change::Nothing,
        }
    }

    fn apply_opened(&mut self, opened: &Opened) -> Change {
        let Opened { attempt, role, fingerprint, fixture, .. } = *opened;
        let call = opened.call.map_or(CallKey::Attempt(attempt), CallKey::Call);
        let place = match (opened.slot(), opened.ordinal) {
            (Some(slot), Some(ordinal)) => {
                let number = self.number(slot);
                if let Some(entry) = self.slots.get_mut(number as usize) {
                    entry.last = entry.last.max(Some(ordinal));
                    entry.fixture = entry.fixture.or(fixture);
                }
                Some((number, ordinal))
            }
            _ => None,
        };
        if let Entry::Vacant(vacant) = self.attempts.entry(attempt) {
            vacant.insert(Attempt { place, role, call, state: AttemptState::Open { fingerprint } });
        }
        match place {
            Some((slot, ordinal)) => {
                Change::Opened { slot, ordinal, attempt, call: Some(call), fixture }
            }
            None => Change::Nothing,
        }
    }

    fn apply_closed(&mut self, closed: &Closed) -> Change {
        let Some(attempt) = self.attempts.get_mut(&closed.attempt) else { return Change::Nothing };
        let AttemptState::Open { fingerprint } = attempt.state else { return Change::Nothing };
        let verdict = closed.verdict;
        attempt.state = AttemptState::Closed { verdict, answer: closed.answer_sha256 };
        match attempt.place {
            Some((slot, ordinal)) => {
                let fingerprint = fingerprint.or(closed.fingerprint);
                Change::Closed { slot, ordinal, call: attempt.call, verdict, fingerprint }
            }
            None => Change::Nothing,
        }
    }

    fn number(&mut self, slot: Slot) -> u32 {
        let Index { numbers, slots, .. } = self;
        let run = Some(slot.run.clone());
        *numbers.entry(slot).or_insert_with(|| {
            slots.push(SlotEntry { run, ..SlotEntry::default() });
            // 2^32 slots are some terabytes of rows; beyond them the last one is shared.
            u32::try_from(slots.len() - 1).unwrap_or(u32::MAX)
        })
    }

    /// Whether `change` is of an attempt whose opening is not visible yet. It waits for that.
    pub(crate) fn is_early(&self, change: &Change) -> bool {
        let &Change::Closed { slot, ordinal, .. } = change else { return false };
        let visible = self.slots.get(slot as usize).and_then(|entry| entry.visible);
        visible.is_none_or(|state| state.last < ordinal)
    }

    /// Makes an acknowledged change visible.
    pub(crate) fn publish(&mut self, change: &Change) {
        let (&Change::Opened { slot, .. }
        | &Change::Closed { slot, .. }
        | &Change::Scored { slot, .. }) = change
        else {
            return;
        };
        let Index { slots, contents, .. } = self;
        let Some(entry) = slots.get_mut(slot as usize) else { return };
        match *change {
            Change::Opened { ordinal, attempt, call, fixture, .. } => {
                let newest = entry.visible.is_none_or(|state| state.last < ordinal);
                let call = call.filter(|_| newest);
                if call.is_some() && call != entry.newest_call {
                    entry.turn_to(slot, call, contents);
                }
                let content = entry.content;
                let state = entry.visible.get_or_insert(SlotState {
                    last: ordinal,
                    first: attempt,
                    first_verdict: None,
                    frozen: None,
                    newest_closed: None,
                    newest_call_content: None,
                    fixture: None,
                    open: 0,
                });
                state.newest_call_content = content.map(|(_, fingerprint)| fingerprint);
                state.last = state.last.max(ordinal);
                state.fixture = state.fixture.or(fixture);
                state.open = state.open.saturating_add(1);
            }
            Change::Closed { ordinal, call, verdict, fingerprint, .. } => {
                if verdict.is_content() {
                    let content = Some((ordinal, fingerprint));
                    if entry.newest_call == Some(call) {
                        // By the ordinals: no two are equal.
                        entry.content = newer(entry.content, content);
                    } else if matches!(call, CallKey::Call(_)) {
                        let earlier = contents.remove(&(slot, call));
                        contents.extend(newer(earlier, content).map(|c| ((slot, call), c)));
                    }
                }
                let content = entry.content;
                let Some(state) = &mut entry.visible else { return };
                state.newest_call_content = content.map(|(_, fingerprint)| fingerprint);
                state.open = state.open.saturating_sub(1);
                if ordinal.is_first() {
                    state.first_verdict = Some(verdict);
                }
                if state.newest_closed.is_none_or(|(newest, ..)| newest < ordinal) {
                    state.newest_closed = Some((ordinal, verdict, fingerprint));
                }
            }
            Change::Scored { score, .. } => {
                if let Some(state) = &mut entry.visible {
                    state.frozen = Some(score);
                }
            }
            Change::Nothing => {}
        }
    }

    /// Counts an event that an earlier writer acknowledged.
    pub(crate) fn recall(&mut self, event: &Event) {
        let change = self.apply(event);
        self.publish(&change);
    }

    /// Counts the ordinal of an opening that may not have been acknowledged, and is not in the ledger.
    pub(crate) fn recall_unproven(&mut self, event: &Event) {
        let mut change = self.apply(event);
        if let Change::Opened { call, .. } = &mut change {
            *call = None;
        }
        self.publish(&change);
    }

    /// The writer of all attempts so far is gone: what is open stays so, and is lost.
    pub(crate) fn forget_open(&mut self) {
        for state in self.slots.iter_mut().filter_map(|entry| entry.visible.as_mut()) {
            state.open = 0;
        }
    }

    /// What is visible of a slot.
    pub(crate) fn slot(&self, slot: &Slot) -> Option<SlotState> {
        let number = *self.numbers.get(slot)?;
        self.slots.get(number as usize)?.visible
    }
}

impl SlotEntry {
    /// Makes `call` the newest. An attempt's own call never comes back, so what it had is dropped.
    fn turn_to(
        &mut self,
        slot: u32,
        call: Option<CallKey>,
        contents: &mut HashMap<(u32, CallKey), Content>,
    ) {
        let before = std::mem::replace(&mut self.newest_call, call);
        if let (Some(before @ CallKey::Call(_)), Some(content)) = (before, self.content.take()) {
            contents.insert((slot, before), content);
        }
        self.content = call.and_then(|call| contents.remove(&(slot, call)));
    }
}

fn newer(one: Option<Content>, other: Option<Content>) -> Option<Content> {
    one.into_iter().chain(other).max_by_key(|(ordinal, _)| *ordinal)
}

/// The event that records a grade that was not accepted.
pub(crate) fn refusal(grade: &Grade, why: RefusedWhy) -> Event {
    Event::GradeRefused(GradeRefused {
        attempt: grade.attempt,
        why,
        score: Some(grade.score).filter(|score| score.is_finite()),
        grader: grade.grader.clone(),
    })
}
