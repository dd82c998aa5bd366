//! How a request beneath a retry layer finds its call or its case.

use std::{
    collections::HashMap,
    sync::{LazyLock, Weak},
};

use attempt_ledger_core::{CallId, Label};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::{
    Call, CarryCase, Case,
    call::Shared,
    score::GradingScope,
    sync::{Mutex, lock},
};

/// What a request belongs to, and how that was found.
pub(crate) struct Link {
    pub(crate) to: To,
    /// Interned: a label is shared text, and these are the same in every row.
    pub(crate) carrier: &'static LazyLock<Label>,
}

pub(crate) enum To {
    Call(Call),
    Case(Case),
    /// Nothing: recorded without a slot.
    Nothing,
}

static EXTENSIONS: LazyLock<Label> = LazyLock::new(|| Label::new("extensions"));
static PRIVATE_HEADER: LazyLock<Label> = LazyLock::new(|| Label::new("header"));
static TASK_LOCAL: LazyLock<Label> = LazyLock::new(|| Label::new("task_local"));
static NONE: LazyLock<Label> = LazyLock::new(|| Label::new("none"));

impl Link {
    /// By what the request itself carries, in order of trust; the header is taken off in any case.
    pub(crate) fn of<R: CarryCase>(request: &mut R) -> Option<Self> {
        let named = request.headers_mut().and_then(|headers| headers.remove(&HEADER));
        if let Some(call) = request.take::<Call>() {
            return Some(Link { to: To::Call(call), carrier: &EXTENSIONS });
        }
        if let Some(call) = named.as_ref().and_then(listed) {
            return Some(Link { to: To::Call(call), carrier: &PRIVATE_HEADER });
        }
        // A case that its user named keeps its slot, whatever is lost beside. Its call may be the one
        // that is awaited.
        let case = GradingScope::adopt(request.carried::<Case>())?;
        let of_same_slot = |link: &Self| match &link.to {
            To::Call(call) => call.slot() == case.slot(),
            _ => false,
        };
        let call = Self::of_task().filter(of_same_slot);
        Some(call.unwrap_or(Link { to: To::Case(case), carrier: &EXTENSIONS }))
    }

    /// By the task that polls: the call within which this is awaited.
    pub(crate) fn of_task() -> Option<Self> {
        let call = CURRENT.try_with(Clone::clone).ok()??;
        Some(Link { to: To::Call(call), carrier: &TASK_LOCAL })
    }

    pub(crate) fn none() -> Self {
        Link { to: To::Nothing, carrier: &NONE }
    }
}

tokio::task_local! {
    /// The call within whose future this is polled.
    static CURRENT: Option<Call>;
}

/// What is sent within `poll` is of `call`, unless it says otherwise.
pub(crate) fn within<R>(call: &Call, poll: impl FnOnce() -> R) -> R {
    CURRENT.sync_scope(Some(call.clone()), poll)
}

/// What is sent within `poll` is of no call, unless it says so: a client that asks for a token first
/// makes no attempt of the call that it serves.
pub(crate) fn apart<R>(poll: impl FnOnce() -> R) -> R {
    CURRENT.sync_scope(None, poll)
}

/// Names a call to a ledger layer of the same process. It never leaves: the layer takes it off.
static HEADER: HeaderName = HeaderName::from_static("x-attempt-ledger-call");

/// The calls that a header may name. A name is 128 random bits, so that one from outside names none.
static LISTED: LazyLock<Mutex<HashMap<CallId, Weak<Shared>>>> = LazyLock::new(Mutex::default);

/// Puts the call's name into the headers, and lists it until it is dropped.
pub(crate) fn name_in(headers: &mut HeaderMap, call: &Call) {
    let Ok(mut value) = HeaderValue::from_str(&call.id().to_string()) else { return };
    value.set_sensitive(true);
    headers.insert(HEADER.clone(), value);
    lock(&LISTED).insert(call.id(), call.downgrade());
}

/// A call that was listed is gone.
pub(crate) fn unlist(id: CallId) {
    lock(&LISTED).remove(&id);
}

fn listed(value: &HeaderValue) -> Option<Call> {
    let id = value.to_str().ok()?.parse().ok()?;
    lock(&LISTED).get(&id)?.upgrade().map(Call::from_shared)
}
