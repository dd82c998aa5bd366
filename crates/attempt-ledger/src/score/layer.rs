use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use attempt_ledger_core::{GraderInfo, Ordinal, Verdict};
use attempt_ledger_store::Ack;
use tokio::{task::JoinHandle, time::timeout};
use tower_layer::Layer;
use tower_service::Service;

use super::{
    GradeInput, Grader,
    judge::{Judged, judge},
};
use crate::{
    CarryCase,
    ledger::{GradeHook, GradeJob, Hook},
};

/// Stands between a retry layer and a [`LedgerLayer`](crate::LedgerLayer): hands its grader down, so
/// that ordinal one, if it is content, is graded and frozen before the retry policy looks.
///
/// Without a grader it passes requests on as they are.
#[derive(Clone)]
pub struct ScoreLayer {
    hook: Option<Hook>,
    info: Option<GraderInfo>,
}

impl fmt::Debug for ScoreLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScoreLayer").field("grader", &self.info).finish_non_exhaustive()
    }
}

impl ScoreLayer {
    /// Grades ordinal one of every slot with `grader`; 30 seconds at most a grade, all verdicts of
    /// content.
    pub fn new(grader: impl Grader) -> Self {
        Self::configure(grader).build()
    }

    /// As [`ScoreLayer::new`], with other settings.
    pub fn configure<G: Grader>(grader: G) -> ScoreLayerBuilder<G> {
        ScoreLayerBuilder {
            grader,
            limit: Duration::from_secs(30),
            diagnostics: false,
            verdicts: None,
        }
    }

    /// No grader: rows only.
    pub fn none() -> Self {
        ScoreLayer { hook: None, info: None }
    }

    /// The grader's name, version and range.
    pub fn info(&self) -> Option<&GraderInfo> {
        self.info.as_ref()
    }

    /// How long a grade may take; zero without a grader.
    pub fn limit(&self) -> Duration {
        self.hook.as_ref().map(|h| h.0.limit()).unwrap_or_default()
    }
}

/// Settings of a [`ScoreLayer`].
#[derive(Debug)]
pub struct ScoreLayerBuilder<G> {
    grader: G,
    limit: Duration,
    diagnostics: bool,
    verdicts: Option<Vec<Verdict>>,
}

impl<G: Grader> ScoreLayerBuilder<G> {
    /// How long a grade may take.
    #[must_use]
    pub fn limit(self, limit: Duration) -> Self {
        ScoreLayerBuilder { limit, ..self }
    }

    /// Grades the content of later ordinals too, as diagnostics: what a survivor-only score would
    /// have claimed. They never become the score.
    #[must_use]
    pub fn diagnostics(self, diagnostics: bool) -> Self {
        ScoreLayerBuilder { diagnostics, ..self }
    }

    /// Grades only these verdicts. Verdicts that are not content are never graded.
    #[must_use]
    pub fn verdicts(self, verdicts: impl IntoIterator<Item = Verdict>) -> Self {
        ScoreLayerBuilder { verdicts: Some(verdicts.into_iter().collect()), ..self }
    }

    /// The layer.
    pub fn build(self) -> ScoreLayer {
        let info = self.grader.info();
        let job = Job {
            grader: Arc::new(self.grader),
            info: info.clone(),
            limit: self.limit,
            diagnostics: self.diagnostics,
            verdicts: self.verdicts,
        };
        ScoreLayer { hook: Some(Hook(Arc::new(job))), info: Some(info) }
    }
}

struct Job<G> {
    grader: Arc<G>,
    info: GraderInfo,
    limit: Duration,
    diagnostics: bool,
    verdicts: Option<Vec<Verdict>>,
}

impl<G: Grader> GradeHook for Job<G> {
    fn wants(&self, verdict: Verdict, first: bool) -> bool {
        self.may_want(first) && self.verdicts.as_ref().is_none_or(|v| v.contains(&verdict))
    }

    fn may_want(&self, first: bool) -> bool {
        first || self.diagnostics
    }

    fn limit(&self) -> Duration {
        self.limit
    }

    fn start(&self, job: GradeJob, ack: Option<Ack<()>>) -> JoinHandle<()> {
        let (grader, info, limit) = (self.grader.clone(), self.info.clone(), self.limit);
        let runtime = job.runtime.clone();
        runtime.spawn(grade(grader, info, limit, job, ack))
    }
}

async fn grade<G: Grader>(
    grader: Arc<G>,
    info: GraderInfo,
    limit: Duration,
    job: GradeJob,
    ack: Option<Ack<()>>,
) {
    if let Some(ack) = ack {
        if !matches!(timeout(job.ack_limit, ack).await, Ok(Ok(()))) {
            return;
        }
        job.attempt.tell(true);
    }
    let GradeJob { attempt, mut right, content, verdict, answer, ack_limit, .. } = job;
    // Of no slot, it would be refused.
    let Some(slot) = attempt.slot().cloned() else { return };
    let input = GradeInput::new(content, verdict, slot, attempt.id(), attempt.ordinal());
    let grade = match judge(&*grader, info, limit, input, answer).await {
        Judged::Grade(grade) => grade,
        Judged::Refused(refused) => {
            let _ = timeout(ack_limit, right.refuse_grade(refused)).await;
            return;
        }
        Judged::Failed(_) | Judged::TimedOut => return,
    };
    let score = grade.score;
    let first = attempt.ordinal().is_none_or(Ordinal::is_first);
    let accepted = if first { right.score(grade) } else { right.diagnostic(grade) };
    if matches!(timeout(ack_limit, accepted).await, Ok(Ok(()))) {
        attempt.set_grade(score);
    }
}

impl<S> Layer<S> for ScoreLayer {
    type Service = ScoreService<S>;

    fn layer(&self, inner: S) -> ScoreService<S> {
        ScoreService { inner, hook: self.hook.clone() }
    }
}

/// The service of a [`ScoreLayer`].
#[derive(Clone)]
pub struct ScoreService<S> {
    inner: S,
    hook: Option<Hook>,
}

impl<S> ScoreService<S> {
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

impl<S: fmt::Debug> fmt::Debug for ScoreService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScoreService").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<S, Req> Service<Req> for ScoreService<S>
where
    S: Service<Req>,
    Req: CarryCase,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Req) -> S::Future {
        if let Some(hook) = &self.hook {
            request.carry(hook.clone());
        }
        self.inner.call(request)
    }
}
