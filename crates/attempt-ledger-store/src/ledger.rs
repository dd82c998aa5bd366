use std::sync::Arc;

use attempt_ledger_core::{
    AttemptId, CallId, CaseId, Cause, Digest, Durability, Effect, Event, Grade, GradeRefused,
    Label, Limits, Note, Opened, Planned, Record, Role, RunEvent, RunId, SessionId, Slot,
    Unrecorded,
};

use crate::{
    Ack, Capacity, FingerprintKey, Opening, Place, SlotState, Store, StoreError,
    capacity::Places,
    memory::Memory,
    sync::{AtomicU64, Ordering},
};

/// A handle on a ledger; cloning is cheap, and all clones are the same ledger.
///
/// The store of a ledger is shut when its last handle, and every [`Opening`] and
/// [`CloseRight`](crate::CloseRight) taken from it, is dropped: what was queued is still written.
#[derive(Clone, Debug)]
pub struct Ledger(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Arc<dyn Store>,
    places: Places,
    ids: Ids,
    key: Option<FingerprintKey>,
}

impl Ledger {
    /// A new ledger in memory: fast, and gone with the process.
    pub fn memory() -> Self {
        Self::new(Arc::new(Memory::new(Capacity::default())))
    }

    /// A new ledger in memory with other bounds.
    pub fn memory_with(capacity: Capacity) -> Self {
        Self::new(Arc::new(Memory::new(capacity)))
    }

    /// A ledger over a store. Make one per store and clone it: the bounds are counted here.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self::with(store, None)
    }

    /// As [`new`](Self::new), with keyed fingerprints: of every fingerprint and fixture only its
    /// HMAC-SHA256 under `key` is recorded. A ledger must be opened with one key for all its life,
    /// else nothing in it equals what comes later; [`file`](mod@crate::file) sees to that by itself.
    ///
    /// `content_sha256` and `answer_sha256`, the digests of answers, stay plain: grades are bound to
    /// them, and archives are sorted by them. Whoever can guess an answer finds it confirmed there.
    pub fn new_keyed(store: Arc<dyn Store>, key: FingerprintKey) -> Self {
        Self::with(store, Some(key))
    }

    fn with(store: Arc<dyn Store>, key: Option<FingerprintKey>) -> Self {
        let places = Places::new(store.capacity());
        Ledger(Arc::new(Inner { store, places, ids: Ids::new(), key }))
    }

    /// Whether its fingerprints are keyed.
    pub fn is_keyed(&self) -> bool {
        self.0.key.is_some()
    }

    /// A fingerprint, or a fixture's digest, as this ledger records it: itself, or keyed. What is
    /// compared with a row, or is to be shown beside one, passes here first.
    pub fn recorded(&self, fingerprint: Digest) -> Digest {
        match &self.0.key {
            Some(key) => key.digest(&fingerprint),
            None => fingerprint,
        }
    }

    /// This opening of the store; a session is live while its writer is.
    pub fn session(&self) -> SessionId {
        self.0.store.session()
    }

    /// What an acknowledgement of `opened` and `scored` stands for.
    pub fn durability(&self) -> Durability {
        self.0.store.durability()
    }

    /// The bounds on what may be on its way at once.
    pub fn capacity(&self) -> Capacity {
        self.0.places.capacity()
    }

    /// Opens an attempt: nothing happens before the returned future is polled, and nothing may be
    /// sent before it is ready.
    pub fn open(&self, mut request: OpenRequest) -> Opening {
        request.fixture = request.fixture.map(|plain| self.recorded(plain));
        request.fingerprint = request.fingerprint.map(|plain| self.recorded(plain));
        Opening::new(self.clone(), self.0.ids.attempt(), request)
    }

    /// Appends ordinal one's grade, which freezes its slot.
    ///
    /// Accepted once, for ordinal one of role `subject` that closed as content, when
    /// `answer_sha256` is the row's. Else answered with [`StoreError::Refused`], after a
    /// `grade_refused` was appended.
    pub fn score(&self, grade: Grade) -> Ack<()> {
        self.append(Event::Scored(grade))
    }

    /// Appends the grade of a later ordinal's content, which never becomes the score. Refused as
    /// [`score`](Self::score) is.
    pub fn diagnostic(&self, grade: Grade) -> Ack<()> {
        self.append(Event::Diagnostic(grade))
    }

    /// Appends what another grader than the run's published one gave content of any ordinal: never a
    /// score. Refused as [`score`](Self::score) is, and for the name of the published grader, as the
    /// run's settings tell it, and for a second grade of an attempt under one name.
    pub fn also_graded(&self, grade: Grade) -> Ack<()> {
        self.append(Event::AlsoGraded(grade))
    }

    /// Records that a grade was not accepted by someone else than the store.
    pub fn refuse_grade(&self, refused: GradeRefused) -> Ack<()> {
        self.append(Event::GradeRefused(refused))
    }

    /// Appends a person's remark.
    pub fn note(&self, note: Note) -> Ack<()> {
        self.append(Event::Note(note))
    }

    /// Appends a run and its settings.
    pub fn run(&self, run: RunEvent) -> Ack<()> {
        self.append(Event::Run(run))
    }

    /// Appends slots that are to be graded. One row holds 64 KiB: some two hundred slots with the
    /// longest ids; give larger plans in batches.
    pub fn planned(&self, planned: Planned) -> Ack<()> {
        self.append(Event::Planned(planned))
    }

    /// Appends a count of attempts that could not be recorded.
    pub fn unrecorded(&self, unrecorded: Unrecorded) -> Ack<()> {
        self.append(Event::Unrecorded(unrecorded))
    }

    /// What is known of a slot, as far as it was acknowledged; `None` before its first opening was.
    pub fn slot(&self, slot: &Slot) -> Option<SlotState> {
        self.0.store.slot(slot)
    }

    /// Everything that is written so far, in order.
    ///
    /// # Errors
    /// [`StoreError::Unreadable`] with its cause.
    pub fn records(&self) -> Result<Vec<Record>, StoreError> {
        self.0.store.records()
    }

    /// Whether an attempt of that session, opened and not closed, may still close.
    pub fn is_live(&self, session: SessionId) -> bool {
        self.0.store.live_sessions().contains(&session)
    }

    /// The sessions whose open attempts may still close.
    pub fn live_sessions(&self) -> Vec<SessionId> {
        self.0.store.live_sessions()
    }

    /// Waits until all that was appended before is written and synced.
    ///
    /// # Errors
    /// Whatever stopped the store.
    pub async fn flush(&self) -> Result<(), StoreError> {
        let place = self.0.places.other().await.ok_or(StoreError::Gone)?;
        self.0.store.flush(place).await
    }

    /// Appends an event that belongs to no open attempt.
    fn append(&self, event: Event) -> Ack<()> {
        match self.0.places.try_other() {
            Some(place) => self.append_at(event, place),
            None => Ack::ready(Err(StoreError::Full { bound: self.capacity().other })),
        }
    }

    pub(crate) fn append_at(&self, event: Event, place: Place) -> Ack<()> {
        self.0.store.append(event, place).cast()
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.0.store
    }

    pub(crate) fn places(&self) -> &Places {
        &self.0.places
    }
}

/// An attempt that is to be opened: what [`Opened`] records, but for the attempt's id, its ordinal
/// and the session, which the ledger fills in.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenRequest {
    /// Its run; without run and case the attempt is unlinked: it gets no ordinal and no score. With
    /// one of them only it is refused.
    pub run: Option<RunId>,
    /// Its case.
    pub case: Option<CaseId>,
    /// The sample of the case, from 1.
    pub epoch: u32,
    /// The model call within the case, from 1.
    pub step: u32,
    /// Whose attempt it is.
    pub role: Role,
    /// Why it is made.
    pub cause: Cause,
    /// The call it belongs to.
    pub call: Option<CallId>,
    /// SHA-256 of the pinned fixture. Another than the slot's is an error; none is not compared.
    pub fixture: Option<Digest>,
    /// Fingerprint of what is sent; `None` when the body is streamed. Another than before is drift,
    /// and no error.
    pub fingerprint: Option<Digest>,
    /// The model's name as sent.
    pub model: Option<Arc<str>>,
    /// The wire that decodes the answer.
    pub wire: Label,
    /// What a repeat would do.
    pub effect: Effect,
    /// Host and port it is sent to.
    pub host: Option<Arc<str>>,
    /// How the case reached the request.
    pub carrier: Label,
    /// The clocks it runs under.
    pub limits: Limits,
}

impl OpenRequest {
    /// An attempt in `slot`, on the wire `plain`, of which nothing else is known.
    pub fn new(slot: &Slot) -> Self {
        OpenRequest {
            run: Some(slot.run.clone()),
            case: Some(slot.case.clone()),
            epoch: slot.epoch,
            step: slot.step,
            role: slot.role,
            ..Self::unlinked()
        }
    }

    /// An attempt that no case reached.
    pub fn unlinked() -> Self {
        OpenRequest {
            run: None,
            case: None,
            epoch: 1,
            step: 1,
            role: Role::Subject,
            cause: Cause::Unknown,
            call: None,
            fixture: None,
            fingerprint: None,
            model: None,
            wire: Label::new("plain"),
            effect: Effect::Writes,
            host: None,
            carrier: Label::new("none"),
            limits: Limits::default(),
        }
    }

    /// The slot it counts in; `None` for an unlinked attempt.
    pub fn slot(&self) -> Option<Slot> {
        Some(Slot {
            run: self.run.clone()?,
            case: self.case.clone()?,
            epoch: self.epoch,
            step: self.step,
            role: self.role,
        })
    }

    pub(crate) fn into_event(self, attempt: AttemptId, session: SessionId) -> Event {
        Event::Opened(Opened {
            attempt,
            run: self.run,
            case: self.case,
            epoch: self.epoch,
            step: self.step,
            role: self.role,
            ordinal: None,
            cause: self.cause,
            call: self.call,
            fixture: self.fixture,
            fingerprint: self.fingerprint,
            model: self.model,
            wire: self.wire,
            effect: self.effect,
            host: self.host,
            carrier: self.carrier,
            limits: self.limits,
            session,
        })
    }
}

/// Makes attempt ids: 80 random bits for each ledger handle made, and a count of 48 bits, since
/// asking the operating system for each would cost more than the rest of a row.
#[derive(Debug)]
struct Ids {
    base: u128,
    next: AtomicU64,
}

const COUNT_BITS: u32 = 48;

impl Ids {
    fn new() -> Self {
        Ids { base: random_u128() >> COUNT_BITS << COUNT_BITS, next: AtomicU64::new(0) }
    }

    fn attempt(&self) -> AttemptId {
        let count = self.next.fetch_add(1, Ordering::Relaxed) & ((1 << COUNT_BITS) - 1);
        AttemptId::from_u128(self.base | u128::from(count))
    }
}

/// 128 random bits of the operating system.
pub(crate) fn random_u128() -> u128 {
    let mut bytes = [0; 16];
    if getrandom::fill(&mut bytes).is_ok() {
        return u128::from_le_bytes(bytes);
    }
    // No entropy source: what distinguishes this process and moment, through std's keyed hash.
    use std::hash::BuildHasher as _;
    let keyed = std::collections::hash_map::RandomState::new();
    let salt = (crate::now().as_micros(), std::process::id());
    u128::from(keyed.hash_one((salt, 1))) << 64 | u128::from(keyed.hash_one((salt, 2)))
}
