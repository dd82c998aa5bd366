use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use attempt_ledger_core::{Cause, CheckInfo, Gates, Role, RunId, Unrecorded};
use attempt_ledger_store::{Ack, Archive, Ledger, OpenRequest};
use attempt_ledger_wire::{TapOptions, Wire};
use http::Response;
use http_body::Body;
use tokio::{runtime::Handle, time::Instant};
use tower_layer::Layer;
use tower_service::Service;

use super::{
    DEFAULT_GATES, ResponseBody, ResponseFuture, WHOLE_BOUND,
    future::{Outgoing, Start},
    live::{Hook, Unsettled, Watch},
    prepare::prepare,
};
use crate::{
    Attempt, BoxError, Call, Check, Clocks, Error, ErrorKind, Hops, LedgerRequest, OnLedgerError,
    call::Admission,
    check::Checks,
    link::{Link, To},
};

/// Stands beneath a retry layer: every request that passes is an attempt, opened in the ledger
/// before it is sent, watched under its clocks, and closed with a verdict before the retry policy
/// or the reader of its body learns how it ended.
#[derive(Clone)]
pub struct LedgerLayer {
    ledger: Ledger,
    pub(super) config: Arc<Config>,
}

#[derive(Clone)]
pub(super) struct Config {
    pub(super) clocks: Clocks,
    pub(super) gates: Gates,
    pub(super) whole_bound: usize,
    pub(super) ack_limit: Duration,
    pub(super) on_error: OnLedgerError,
    pub(super) wire: Option<Wire>,
    pub(super) tap: TapOptions,
    pub(super) list_hops: bool,
    pub(super) checks: Checks,
    pub(super) allow_unlinked: bool,
    pub(super) unrecorded: UnrecordedCount,
    pub(super) archive: Option<Archive>,
    pub(super) hand_up_broken: bool,
}

impl LedgerLayer {
    /// Default clocks; plain responses are held until they are whole, streams until their first content.
    pub fn new(ledger: Ledger) -> Self {
        let config = Config {
            clocks: Clocks::default(),
            gates: DEFAULT_GATES,
            whole_bound: WHOLE_BOUND,
            ack_limit: Duration::from_secs(10),
            on_error: OnLedgerError::Fail,
            wire: None,
            tap: TapOptions::default(),
            list_hops: false,
            checks: Checks::default(),
            allow_unlinked: false,
            unrecorded: UnrecordedCount::default(),
            archive: None,
            hand_up_broken: false,
        };
        LedgerLayer { ledger, config: Arc::new(config) }
    }

    fn with(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(Arc::make_mut(&mut self.config));
        self
    }

    /// The clocks of each attempt.
    #[must_use]
    pub fn clocks(self, clocks: Clocks) -> Self {
        self.with(|c| c.clocks = clocks)
    }

    /// How much of a response is held back before the retry policy sees it.
    #[must_use]
    pub fn gates(self, gates: Gates) -> Self {
        self.with(|c| c.gates = gates)
    }

    /// What a `Whole` gate holds back at most, in bytes; beyond it the gate opens and the row says so.
    #[must_use]
    pub fn whole_bound(self, bytes: usize) -> Self {
        self.with(|c| c.whole_bound = bytes)
    }

    /// How long an acknowledgement of the ledger is awaited.
    #[must_use]
    pub fn ack_limit(self, limit: Duration) -> Self {
        self.with(|c| c.ack_limit = limit)
    }

    /// What happens when the ledger cannot record.
    #[must_use]
    pub fn on_ledger_error(self, choice: OnLedgerError) -> Self {
        self.with(|c| c.on_error = choice)
    }

    /// The wire that decodes every answer, instead of the one that the request's path tells.
    #[must_use]
    pub fn wire(self, wire: Wire) -> Self {
        self.with(|c| c.wire = Some(wire))
    }

    /// Takes the wire's done marker for a stop reason, for servers that never state one.
    #[must_use]
    pub fn accept_done(self, accept: bool) -> Self {
        self.with(|c| c.tap.accept_done = accept)
    }

    /// Keeps the answers of role `subject` in `archive`, of every ordinal that is content: a grader's
    /// own calls are not kept. Off unless set.
    ///
    /// An answer is written once its row is acknowledged, and before it is graded. That is awaited as
    /// long as an acknowledgement is, and goes on by itself then. It never fails a call:
    /// [`Archive::failures`] tells what could not be kept. As under a grader, a stream with more than
    /// 16 MiB of content is `uninspected`.
    #[must_use]
    pub fn archive(self, archive: Archive) -> Self {
        self.with(|c| c.archive = Some(archive))
    }

    #[cfg(feature = "client")]
    pub(crate) fn is_archived(&self) -> bool {
        self.config.archive.is_some()
    }

    /// Makes content that would be `ok` `off_target` when `check` fails; several are evaluated in
    /// their order, and the row names the first that fails. The content is held for it until the
    /// attempt is closed.
    #[must_use]
    pub fn check(self, check: impl Check) -> Self {
        self.with(|c| c.checks.push(check))
    }

    /// Its checks in their order, as a run's settings name them.
    pub fn checks(&self) -> impl Iterator<Item = CheckInfo> + '_ {
        self.config.checks.infos()
    }

    /// Records requests that carry no case as unlinked attempts: without a slot and an ordinal, never
    /// graded, and counted in the report. Unless allowed they are refused, since a ledger that guessed
    /// their ordinals would store a lie.
    #[must_use]
    pub fn allow_unlinked(self, allow: bool) -> Self {
        self.with(|c| c.allow_unlinked = allow)
    }

    #[cfg(feature = "client")]
    pub(crate) fn limit_of_ack(&self) -> Duration {
        self.config.ack_limit
    }

    /// Hands up a response that broke while it was held as what it is, a response whose body ends with
    /// the fault, and not as an error. For callers that are to get what they get without a ledger, and
    /// for retry layers that look at a response's status or its [`Attempt`].
    #[must_use]
    pub fn hand_up_broken(self, hand_up: bool) -> Self {
        self.with(|c| c.hand_up_broken = hand_up)
    }

    /// Lists the redirects that a [`redirect_layer`](crate::redirect_layer) beneath follows.
    #[must_use]
    pub fn list_redirects(self, list: bool) -> Self {
        self.with(|c| c.list_hops = list)
    }
}

impl fmt::Debug for LedgerLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LedgerLayer")
            .field("ledger", &self.ledger)
            .field("clocks", &self.config.clocks)
            .field("gates", &self.config.gates)
            .finish_non_exhaustive()
    }
}

impl<S> Layer<S> for LedgerLayer {
    type Service = LedgerService<S>;

    fn layer(&self, inner: S) -> LedgerService<S> {
        LedgerService { inner, layer: self.clone() }
    }
}

/// The service of a [`LedgerLayer`].
#[derive(Clone, Debug)]
pub struct LedgerService<S> {
    inner: S,
    layer: LedgerLayer,
}

impl<S> LedgerService<S> {
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

impl<S, Req, ResB> Service<Req> for LedgerService<S>
where
    S: Service<Req, Response = Response<ResB>> + Clone,
    S::Error: Into<BoxError>,
    Req: LedgerRequest,
    ResB: Body + Unpin,
    ResB::Error: Into<BoxError>,
{
    type Response = Response<ResponseBody<ResB>>;
    type Error = Error;
    type Future = ResponseFuture<S, Req, ResB>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx).map_err(|e| Error::from_inner(e.into(), ErrorKind::NotReady))
    }

    fn call(&mut self, mut request: Req) -> Self::Future {
        let clone = self.inner.clone();
        let service = std::mem::replace(&mut self.inner, clone);
        match Link::of(&mut request).or_else(Link::of_task) {
            Some(link) => self.layer.begin(service, request, link),
            // Whoever polls may be within a call although whoever calls is not: a buffer's worker.
            None => ResponseFuture::late(self.layer.clone(), service, request),
        }
    }
}

impl LedgerLayer {
    /// What becomes of a request for which nothing was found that it belongs to.
    pub(super) fn without_link(&self) -> Option<Link> {
        self.config.allow_unlinked.then(Link::none)
    }

    /// An attempt of what `link` says.
    pub(super) fn begin<S, Req, ResB>(
        &self,
        service: S,
        mut request: Req,
        link: Link,
    ) -> ResponseFuture<S, Req, ResB>
    where
        S: Service<Req>,
        Req: LedgerRequest,
    {
        let config = &self.config;
        let refuse = |kind| ResponseFuture::refused(Error::new(kind, None, None), config);
        let (call, named) = match link.to {
            To::Call(call) => (Some(call), None),
            To::Case(case) => (None, Some(case)),
            To::Nothing => (None, None),
        };
        let case = call.as_ref().map(Call::case).or(named.as_ref());
        // It would be promised to the decision table, and not kept.
        let key = case.and_then(|case| case.key.as_ref());
        if key.is_some() && request.headers_mut().is_none() {
            return refuse(ErrorKind::KeyNotSent);
        }
        let now = Instant::now();
        let cause = match call.as_ref().map(|call| call.admit(now)) {
            None => Cause::Unknown,
            Some(Admission::Open(cause)) => cause,
            Some(Admission::Wait) => return ResponseFuture::stuck(config),
            Some(Admission::Over) => {
                // Nobody is above to be told; whoever still retries is.
                let made = call.as_ref().map_or(0, Call::opened);
                return refuse(ErrorKind::Capped(crate::Cap::Attempts(made)));
            }
        };
        let unsettled = Unsettled::admitted(call.clone());
        // A grader's own calls are not graded, else it would grade itself for ever; what has no slot
        // has no score.
        let subject = case.is_some_and(|case| case.slot.role == Role::Subject);
        let hook = request.take::<Hook>().filter(|_| subject);
        // A grade runs in a task of its own, and an answer is kept in one; without a runtime neither is.
        let wanted = hook.is_some() || config.archive.is_some();
        let runtime = wanted.then(|| Handle::try_current().ok()).flatten();
        let epoch = case.map_or(1, |case| case.slot.epoch);
        let prepared = prepare(&request, config.wire, epoch);
        let effect = case.and_then(|case| case.effect).unwrap_or(prepared.facts.effect);
        let budget_left = call.as_ref().map(|call| call.budget_left_at(now));

        let mut open = case.map_or_else(OpenRequest::unlinked, |case| OpenRequest::new(&case.slot));
        open.cause = request.carried::<Cause>().unwrap_or(cause);
        open.call = call.as_ref().map(Call::id);
        open.fixture = case.and_then(|case| case.fixture);
        open.fingerprint = prepared.fingerprint;
        open.model = prepared.facts.model.clone();
        open.wire = prepared.wire.label();
        open.effect = effect;
        open.host = prepared.host;
        open.carrier = (**link.carrier).clone();
        open.limits = config.clocks.limits(budget_left);

        if let (Some((name, value)), Some(headers)) = (key, request.headers_mut()) {
            headers.insert(name, value.clone());
        }
        let hops = config.list_hops.then(Hops::default);
        if let Some(hops) = &hops {
            request.carry(hops.clone());
        }
        let opening = self.ledger.open(open);
        let scope = case.and_then(|case| case.scope.clone());
        let slot = case.map(|case| case.slot.clone());
        let attempt = Attempt::new(opening.attempt(), slot, effect, call);
        let watch =
            Watch { hook, runtime, hops, sent: prepared.sent, secrets: prepared.secrets, scope };
        let wire = prepared.wire;
        let stream_asked = prepared.facts.stream;
        let outgoing = Outgoing { attempt, service, request, wire, stream_asked };
        ResponseFuture::start(
            Start { opening, unsettled, watch, outgoing },
            self.ledger.clone(),
            config,
        )
    }
}

/// Attempts that went on unrecorded and whose number is not appended yet.
#[derive(Clone, Debug, Default)]
pub(super) struct UnrecordedCount(Arc<AtomicU64>);

impl UnrecordedCount {
    pub(super) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Adds `count` if `ack` comes to nothing, in a task of its own.
    pub(super) fn watch(&self, ack: Ack<()>, count: u64) {
        let this = self.clone();
        match Handle::try_current() {
            Ok(runtime) => {
                runtime.spawn(async move {
                    if ack.await.is_err() {
                        this.add(count);
                    }
                });
            }
            Err(_) => this.add(count),
        }
    }

    /// Appends what was counted, now that the store accepts rows again.
    pub(super) fn append(&self, ledger: &Ledger, run: Option<&RunId>) {
        if self.0.load(Ordering::Relaxed) == 0 {
            return;
        }
        let count = self.0.swap(0, Ordering::Relaxed);
        if count > 0 {
            self.watch(ledger.unrecorded(Unrecorded { run: run.cloned(), count }), count);
        }
    }
}
