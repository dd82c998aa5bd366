use std::{sync::Arc, time::Duration};

use attempt_ledger_core::{Digest, GraderInfo, Ordinal, Verdict};
use attempt_ledger_store::{Ack, CloseRight, Ledger, StoreError};
use tokio::{
    task::{JoinHandle, JoinSet},
    time::{sleep, timeout},
};

use super::{
    BoxGrader, GradeInput, Grader,
    judge::{Judged, judge},
};
use crate::{
    Attempt,
    ledger::{GradeHook, GradeJob},
};

/// How the answers that pass a [`ScoreLayer`](super::ScoreLayer) are graded.
pub(super) struct Job<G> {
    pub(super) published: Arc<Named<G>>,
    pub(super) others: Arc<[Named<BoxGrader>]>,
    pub(super) limit: Duration,
    pub(super) diagnostics: bool,
    pub(super) verdicts: Option<Vec<Verdict>>,
}

/// A grader, and what it said of itself when the layer was made.
#[derive(Clone)]
pub(super) struct Named<G> {
    grader: G,
    pub(super) info: GraderInfo,
}

impl<G: Grader> Named<G> {
    pub(super) fn new(grader: G) -> Self {
        Named { info: grader.info(), grader }
    }
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
        let (published, others) = (self.published.clone(), self.others.clone());
        let runtime = job.runtime.clone();
        runtime.spawn(grade_all(published, others, self.limit, job, ack))
    }
}

/// Awaits the close, then all graders at once.
async fn grade_all<G: Grader>(
    published: Arc<Named<G>>,
    others: Arc<[Named<BoxGrader>]>,
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
    let GradeJob { attempt, right, content, verdict, answer, ack_limit, .. } = job;
    // Of no slot, it would be refused.
    let Some(slot) = attempt.slot().cloned() else { return };
    let input = GradeInput::new(content, verdict, slot, attempt.id(), attempt.ordinal());
    let ledger = right.ledger().clone();
    let work = Work { input, answer, limit, ack_limit, ledger };
    if others.is_empty() {
        return grade(&published, work, attempt, right).await;
    }
    // Each in a task of its own, so that one that panics takes no other with it; all of them end
    // with this one.
    let mut all = JoinSet::new();
    for other in others.iter() {
        all.spawn(grade_beside(other.clone(), work.clone()));
    }
    all.spawn(async move { grade(&published, work, attempt, right).await });
    while all.join_next().await.is_some() {}
}

/// The published grader's part: a score, or a later ordinal's diagnostic.
async fn grade<G: Grader>(by: &Named<G>, work: Work, attempt: Attempt, mut right: CloseRight) {
    let ack_limit = work.ack_limit;
    match work.judged(by).await {
        Judged::Grade(grade) => {
            let score = grade.score;
            let first = attempt.ordinal().is_none_or(Ordinal::is_first);
            let accepted = if first { right.score(grade) } else { right.diagnostic(grade) };
            if matches!(timeout(ack_limit, accepted).await, Ok(Ok(()))) {
                attempt.set_grade(score);
            }
        }
        Judged::Refused(refused) => {
            let _ = timeout(ack_limit, right.refuse_grade(refused)).await;
        }
        Judged::Failed(_) | Judged::TimedOut => {}
    }
}

/// Another grader's part, which nobody but the ledger is told of.
async fn grade_beside(by: Named<BoxGrader>, work: Work) {
    let (ledger, ack_limit) = (work.ledger.clone(), work.ack_limit);
    let recorded = match work.judged(&by).await {
        Judged::Grade(grade) => {
            timeout(ack_limit, append(&ledger, |l| l.also_graded(grade.clone()))).await
        }
        Judged::Refused(refused) => {
            timeout(ack_limit, append(&ledger, |l| l.refuse_grade(refused.clone()))).await
        }
        Judged::Failed(_) | Judged::TimedOut => return,
    };
    // One that could not be recorded is missing, as one that was not given.
    drop(recorded);
}

/// Appends when there is room: unlike the published grade's, this row's place is not reserved.
async fn append(ledger: &Ledger, row: impl Fn(&Ledger) -> Ack<()>) -> Result<(), StoreError> {
    loop {
        match row(ledger).await {
            Err(StoreError::Full { .. }) => sleep(Duration::from_millis(10)).await,
            recorded => return recorded,
        }
    }
}

/// One answer that is to be graded.
#[derive(Clone)]
struct Work {
    input: GradeInput,
    answer: Digest,
    limit: Duration,
    ack_limit: Duration,
    ledger: Ledger,
}

impl Work {
    /// What a grader makes of it.
    async fn judged<G: Grader>(self, by: &Named<G>) -> Judged {
        let session = self.ledger.session();
        judge(&by.grader, by.info.clone(), self.limit, self.input, self.answer, session).await
    }
}
