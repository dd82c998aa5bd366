use std::{
    fmt,
    task::{Context, Poll},
    time::Duration,
};

use attempt_ledger_core::{CallId, CaseId, Digest, RunId, Slot};
use attempt_ledger_store::Ledger;
use tower_layer::Layer;
use tower_service::Service;

use super::{Call, CallFuture};
use crate::{BoxError, CarryCase, Case, Error, ErrorKind};

/// Stands above a retry layer: makes one [`Call`] of each request that carries a [`Case`], and holds
/// the call's caps, whatever the retry policy does.
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
}

impl Default for CallLayer {
    fn default() -> Self {
        CallLayer { attempts: 3, budget: Duration::from_secs(900), skip: None, automatic: None }
    }
}

impl CallLayer {
    /// At most 3 attempts and 900 seconds a call; nothing is skipped.
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
    S: Service<Req>,
    S::Error: Into<BoxError>,
    Req: CarryCase,
{
    type Response = S::Response;
    type Error = Error;
    type Future = CallFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx).map_err(|e| Error::from_inner(e.into(), ErrorKind::NotReady))
    }

    fn call(&mut self, mut request: Req) -> CallFuture<S::Future> {
        let Some(case) = request.carried::<Case>().or_else(|| self.config.automatic_case()) else {
            return CallFuture::refused(Error::new(ErrorKind::Unlinked, None, None));
        };
        if let Some(ledger) = &self.config.skip
            && let Some(finished) =
                Finished::look(ledger, &case.slot, || request.fingerprint(case.slot.epoch))
        {
            return CallFuture::refused(Error::new(ErrorKind::Finished(finished), None, None));
        }
        let call = Call::start(new_id(), case, self.config.attempts, self.config.budget);
        request.carry(call.clone());
        CallFuture::new(self.inner.call(request), call)
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
