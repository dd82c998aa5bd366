use std::{
    fmt,
    task::{Context, Poll},
    time::Duration,
};

use attempt_ledger_core::{CallId, CaseId, Digest, Role, RunId, Slot};
use attempt_ledger_store::Ledger;
use tower_layer::Layer;
use tower_service::Service;

use super::{Call, CallFuture, Cap};
use crate::{BoxError, CarryCase, Case, Error, ErrorKind, Pacer, link, score::GradingScope};

/// Stands above a retry layer: makes one [`Call`] of each request that carries a [`Case`], and holds
/// the call's caps, whatever the retry policy does.
///
/// The service beneath is to be `Clone`, as tower's retry needs it too: a call that waits for its host
/// takes an instance with it. One that is not (tower's hedge) goes beneath a buffer.
///
/// A background run (OpenAI's Responses) takes several calls: the one that starts it is `pending`, and
/// so is each request for its state until it is done. Made within the slot of the first, as they should
/// be, these are later ordinals, all with the same `response_id`; the report counts them as drift, since
/// they send another request. The answer that the last one brings is not ordinal one's: it can be
/// graded as a diagnostic, and is counted as a refused promotion, never published.
///
/// ```
/// use attempt_ledger::CallLayer;
/// use std::time::Duration;
///
/// let layer = CallLayer::new().attempts(4).budget(Duration::from_secs(120));
/// # let _ = layer;
/// ```
#[derive(Clone, Debug)]
pub struct CallLayer {
    attempts: u32,
    budget: Duration,
    skip: Option<Ledger>,
    automatic: Option<RunId>,
    pacer: Option<Pacer>,
    by_header: bool,
    allow_unlinked: bool,
}

impl Default for CallLayer {
    fn default() -> Self {
        CallLayer {
            attempts: 3,
            budget: Duration::from_secs(900),
            skip: None,
            automatic: None,
            pacer: Some(Pacer::new()),
            by_header: false,
            allow_unlinked: false,
        }
    }
}

impl CallLayer {
    /// At most 3 attempts and 900 seconds a call; nothing is skipped; hosts that throttle are waited
    /// for.
    pub fn new() -> Self {
        Self::default()
    }

    /// Attempts of one call, at most. 0 counts as 1.
    #[must_use]
    pub fn attempts(self, attempts: u32) -> Self {
        CallLayer { attempts: attempts.max(1), ..self }
    }

    /// Wall time of one call: attempts and pauses. It always runs; it cuts an attempt short, but no
    /// acknowledgement of the ledger and no grade.
    #[must_use]
    pub fn budget(self, budget: Duration) -> Self {
        CallLayer { budget, ..self }
    }

    /// Does not repeat finished work: a call whose slot is finished in `ledger`, with the same
    /// fingerprint as its newest closed row, ends with [`ErrorKind::Finished`] and sends nothing.
    #[must_use]
    pub fn skip_finished(self, ledger: Ledger) -> Self {
        CallLayer { skip: Some(ledger), ..self }
    }

    /// Waits for hosts by this pacer, which several stacks may share. Each layer has one of its own
    /// unless set. Waits count in the budget; a host that asks for more time than is left of it ends
    /// the call at once, and no ordinal is spent on it.
    #[must_use]
    pub fn pacing(self, pacer: Pacer) -> Self {
        CallLayer { pacer: Some(pacer), ..self }
    }

    /// Waits for no host before a call.
    #[must_use]
    pub fn no_pacing(self) -> Self {
        CallLayer { pacer: None, ..self }
    }

    /// Names each call in a private header too, so that a [`LedgerLayer`](crate::LedgerLayer) of this
    /// process finds it where a request's extensions are lost: beneath a policy that rebuilds
    /// requests, or a layer that spawns them. The ledger layer takes the header off; without one
    /// beneath, it would be sent.
    #[must_use]
    pub fn by_header(self, by_header: bool) -> Self {
        CallLayer { by_header, ..self }
    }

    /// Lets requests without a case pass, for a
    /// [`LedgerLayer::allow_unlinked`](crate::LedgerLayer::allow_unlinked) beneath. They are no calls:
    /// no cap and no pacing holds for them.
    #[must_use]
    pub fn allow_unlinked(self, allow: bool) -> Self {
        CallLayer { allow_unlinked: allow, ..self }
    }

    #[cfg(feature = "client")]
    pub(crate) fn automatic_cases(self, run: RunId) -> Self {
        CallLayer { automatic: Some(run), ..self }
    }

    #[cfg(feature = "client")]
    pub(crate) fn limit_of_budget(&self) -> Duration {
        self.budget
    }

    fn automatic_case(&self) -> Option<Case> {
        let run = self.automatic.clone()?;
        let case = CaseId::new(format!("auto-{:032x}", fastrand::u128(..))).ok()?;
        Some(Case::new(Slot::new(run, case)))
    }
}

impl<S> Layer<S> for CallLayer {
    type Service = CallService<S>;

    fn layer(&self, inner: S) -> CallService<S> {
        CallService { inner, config: self.clone() }
    }
}

/// The service of a [`CallLayer`].
#[derive(Clone, Debug)]
pub struct CallService<S> {
    inner: S,
    config: CallLayer,
}

impl<S> CallService<S> {
    /// The service beneath.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The service beneath.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The service beneath.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, Req> Service<Req> for CallService<S>
where
    S: Service<Req> + Clone,
    S::Error: Into<BoxError>,
    Req: CarryCase,
{
    type Response = S::Response;
    type Error = Error;
    type Future = CallFuture<S, Req>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx).map_err(|e| Error::from_inner(e.into(), ErrorKind::NotReady))
    }

    fn call(&mut self, mut request: Req) -> CallFuture<S, Req> {
        let Some(case) =
            GradingScope::adopt(request.carried::<Case>()).or_else(|| self.config.automatic_case())
        else {
            if self.config.allow_unlinked {
                return CallFuture::unlinked(link::apart(|| self.inner.call(request)));
            }
            return CallFuture::refused(Error::new(ErrorKind::Unlinked, None, None));
        };
        // A grader asks for an answer, not for a row.
        if let Some(ledger) = &self.config.skip
            && case.scope.is_none()
            && let Some(finished) =
                Finished::look(ledger, &case.slot, || request.fingerprint(case.slot.epoch))
        {
            return CallFuture::refused(Error::new(ErrorKind::Finished(finished), None, None));
        }
        let is_grader = case.slot.role == Role::Grader;
        let call = Call::start(new_id(), case, self.config.attempts, self.config.budget);
        request.carry(call.clone());
        if self.config.by_header
            && let Some(headers) = request.headers_mut()
        {
            call.name_in(headers);
        }
        let host = self.config.pacer.as_ref().zip(request.host());
        match host.map(|(pacer, name)| pacer.host(name).enter(is_grader)) {
            Some(Err(waiting)) if !is_grader && waiting.throttled_for() > self.config.budget => {
                // Nobody would learn from its waiting: others find out whether the host answers again.
                let cap = Cap::Throttling(waiting.throttled_for());
                CallFuture::refused(call.cannot_wait(cap))
            }
            Some(Err(waiting)) => {
                // What is ready now may be a place that others need meanwhile: it is given back.
                let (fresh, later) = (self.inner.clone(), self.inner.clone());
                self.inner = fresh;
                CallFuture::waiting(later, request, call, waiting)
            }
            seat => {
                if let Some(Ok(seat)) = seat {
                    call.seated(seat);
                }
                // Some services send on `call`.
                let inner = link::within(&call, || self.inner.call(request));
                CallFuture::running(inner, call)
            }
        }
    }
}

/// Unique over processes: seeded anew in each, and 128 bits wide.
fn new_id() -> CallId {
    CallId::from_u128(fastrand::u128(..))
}

/// The finished work that a call would have repeated.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Finished {
    /// The slot.
    pub slot: Slot,
    /// Its frozen score; `None` when it is finished without a grade.
    pub score: Option<f64>,
    /// The fingerprint that was the same, as the ledger records it.
    pub fingerprint: Digest,
}

impl Finished {
    /// Whether a call of `slot` would repeat finished work: its ordinal one is frozen or its newest
    /// call ended in content, and the request is the one of its newest closed row.
    ///
    /// `fingerprint` is asked only where the slot is finished; `None` is never a hit.
    pub fn look(
        ledger: &Ledger,
        slot: &Slot,
        fingerprint: impl FnOnce() -> Option<Digest>,
    ) -> Option<Self> {
        let state = ledger.slot(slot)?;
        if state.frozen.is_none() && state.newest_call_content.is_none() {
            return None;
        }
        let (_, _, newest) = state.newest_closed?;
        let fingerprint = ledger.recorded(fingerprint()?);
        if Some(fingerprint) != newest {
            return None;
        }
        Some(Finished { slot: slot.clone(), score: state.frozen, fingerprint })
    }
}

impl fmt::Display for Finished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "case {} is finished already for this very request", self.slot)?;
        match self.score {
            Some(score) => write!(f, "; its first attempt is frozen at {score}"),
            None => f.write_str("; its first attempt has no grade"),
        }
    }
}
