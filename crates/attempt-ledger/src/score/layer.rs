use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use attempt_ledger_core::{GraderInfo, Verdict};
use tower_layer::Layer;
use tower_service::Service;

use super::{
    BoxGrader, Grader,
    job::{Job, Named},
};
use crate::{CarryCase, ledger::Hook};

/// Stands between a retry layer and a [`LedgerLayer`](crate::LedgerLayer): hands its grader down, so
/// that ordinal one, if it is content, is graded and frozen before the retry policy looks.
///
/// Without a grader it passes requests on as they are.
#[derive(Clone)]
pub struct ScoreLayer {
    hook: Option<Hook>,
    /// The published grader first.
    graders: Arc<[GraderInfo]>,
}

impl fmt::Debug for ScoreLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScoreLayer").field("graders", &self.graders).finish_non_exhaustive()
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
            others: Vec::new(),
            limit: Duration::from_secs(30),
            diagnostics: false,
            verdicts: None,
        }
    }

    /// No grader: rows only.
    pub fn none() -> Self {
        ScoreLayer { hook: None, graders: Arc::default() }
    }

    /// The published grader's name, version and range.
    pub fn info(&self) -> Option<&GraderInfo> {
        self.graders.first()
    }

    /// All its graders as a run's settings name them: the published one first.
    pub fn graders(&self) -> &[GraderInfo] {
        &self.graders
    }

    /// How long a grade may take; zero without a grader. All graders of an answer run at once.
    pub fn limit(&self) -> Duration {
        self.hook.as_ref().map(|h| h.0.limit()).unwrap_or_default()
    }
}

/// Settings of a [`ScoreLayer`].
#[derive(Debug)]
pub struct ScoreLayerBuilder<G> {
    grader: G,
    others: Vec<BoxGrader>,
    limit: Duration,
    diagnostics: bool,
    verdicts: Option<Vec<Verdict>>,
}

impl<G: Grader> ScoreLayerBuilder<G> {
    /// Grades the same answers with another grader too.
    ///
    /// Its grades stand beside the published ones in rows and reports, and are never mixed with them:
    /// they freeze nothing, and no retry policy sees them. All graders of an answer run at once, each
    /// in a task of its own under the limit, and the end of the answer waits for all of them; when one
    /// fails, the others' grades are kept.
    ///
    /// # Errors
    /// When a grader of this name is there already: rows tell graders by their names.
    ///
    /// ```
    /// use attempt_ledger::{Contains, Exact, ScoreLayer};
    ///
    /// # fn main() -> Result<(), attempt_ledger::SameName> {
    /// let score = ScoreLayer::configure(Exact::default()).also(Contains::default())?.build();
    /// let names: Vec<_> = score.graders().iter().map(|info| &*info.name).collect();
    /// assert_eq!(names, ["exact", "contains"], "the published one first");
    /// assert!(ScoreLayer::configure(Exact::default()).also(Exact::default()).is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn also(mut self, grader: impl Grader) -> Result<Self, SameName> {
        let name = grader.info().name;
        let taken = self.grader.info().name == name
            || self.others.iter().any(|other| other.info().name == name);
        if taken {
            return Err(SameName(name));
        }
        self.others.push(BoxGrader::new(grader));
        Ok(self)
    }

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
        let others: Vec<Named<BoxGrader>> = self.others.into_iter().map(Named::new).collect();
        let published = Named::new(self.grader);
        let infos = std::iter::once(&published.info).chain(others.iter().map(|o| &o.info));
        let graders = infos.cloned().collect();
        let job = Job {
            published: Arc::new(published),
            others: others.into(),
            limit: self.limit,
            diagnostics: self.diagnostics,
            verdicts: self.verdicts,
        };
        ScoreLayer { hook: Some(Hook(Arc::new(job))), graders }
    }
}

/// A second grader of one name was given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is a grader named {0:?} already; give this one another name")]
pub struct SameName(String);

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
