use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use attempt_ledger_store::{Ack, StoreError};
use tokio::{task::JoinHandle, time::Instant};

use super::{
    keep::Keep,
    layer::Config,
    live::{GradeJob, Hook, Unsettled},
};
use crate::{Attempt, OnLedgerError, clock::LazyTimer};

/// What follows an attempt's end: the acknowledgement of its closing row, then the archive's copy of
/// its answer, where there is an archive, then its grade.
///
/// Whoever waits for it may leave at any moment: the row was handed over before, and what has not
/// started is started from the drop.
pub(super) struct Settle {
    attempt: Attempt,
    step: Step,
    keep: Option<Keep>,
    job: Option<(Hook, GradeJob)>,
    timer: LazyTimer,
    since: Option<Instant>,
    config: Arc<Config>,
    _unsettled: Option<Unsettled>,
}

enum Step {
    Close(Ack<()>),
    Keep(JoinHandle<()>),
    Grade(JoinHandle<()>, Duration),
    Done,
}

impl Settle {
    pub(super) fn new(
        attempt: Attempt,
        unsettled: Option<Unsettled>,
        ack: Ack<()>,
        keep: Option<Keep>,
        job: Option<(Hook, GradeJob)>,
        config: Arc<Config>,
    ) -> Self {
        Settle {
            attempt,
            step: Step::Close(ack),
            keep,
            job,
            timer: LazyTimer::default(),
            since: None,
            config,
            _unsettled: unsettled,
        }
    }

    /// Ready when the row is recorded and its grade, if it gets one, appended.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        ack_limit: Duration,
    ) -> Poll<Result<(), StoreError>> {
        loop {
            match &mut self.step {
                Step::Close(ack) => {
                    let recorded = match Pin::new(ack).poll(cx) {
                        Poll::Ready(recorded) => recorded,
                        Poll::Pending => {
                            ready!(self.timer.poll_limit(&mut self.since, ack_limit, cx));
                            Err(StoreError::TimedOut { limit: ack_limit })
                        }
                    };
                    self.since = None;
                    self.attempt.tell(recorded.is_ok());
                    if let Err(error) = recorded {
                        // What is not recorded is not kept, and not graded.
                        self.keep.take().into_iter().for_each(Keep::let_go);
                        self.job = None;
                        self.step = Step::Done;
                        return Poll::Ready(Err(error));
                    }
                    self.step = match self.keep.take() {
                        Some(keep) => Step::Keep(keep.start()),
                        None => self.grade(),
                    };
                }
                Step::Keep(task) => {
                    // Its failure is the archive's, which counts it; a slow one goes on by itself.
                    if Pin::new(task).poll(cx).is_pending() {
                        ready!(self.timer.poll_limit(&mut self.since, ack_limit, cx));
                    }
                    self.since = None;
                    self.step = self.grade();
                }
                Step::Grade(task, limit) => {
                    // A panic is a missing grade, and so is a grader that blocks its thread.
                    let limit = *limit;
                    if Pin::new(&mut *task).poll(cx).is_pending() {
                        // The limit is the grader's own; beyond it only the appending of its grade is awaited.
                        ready!(self.timer.poll_limit(
                            &mut self.since,
                            limit.saturating_add(ack_limit),
                            cx
                        ));
                        task.abort();
                    }
                    self.step = Step::Done;
                }
                Step::Done => return Poll::Ready(Ok(())),
            }
        }
    }

    fn grade(&mut self) -> Step {
        match self.job.take() {
            Some((hook, job)) => Step::Grade(hook.0.start(job, None), hook.0.limit()),
            None => Step::Done,
        }
    }
}

impl Drop for Settle {
    fn drop(&mut self) {
        let ack = match std::mem::replace(&mut self.step, Step::Done) {
            Step::Close(ack) => ack,
            Step::Keep(_) => {
                drop(self.grade());
                return;
            }
            Step::Grade(..) | Step::Done => return,
        };
        self.attempt.tell(false);
        match (self.keep.take(), self.job.take()) {
            (Some(keep), job) => {
                let (attempt, config) = (self.attempt.clone(), self.config.clone());
                keep.start_after(ack, self.config.ack_limit, move |recorded| {
                    if recorded {
                        attempt.tell(true);
                        job.into_iter().for_each(|(hook, job)| drop(hook.0.start(job, None)));
                    } else if config.on_error == OnLedgerError::GoOn {
                        config.unrecorded.add(1);
                    }
                });
            }
            (None, Some((hook, job))) => {
                hook.0.start(job, Some(ack));
            }
            // Nobody awaits it any more; where the caller chose to go on, it is counted all the same.
            (None, None) if self.config.on_error == OnLedgerError::GoOn => {
                self.config.unrecorded.watch(ack, 1);
            }
            (None, None) => {}
        }
    }
}

impl fmt::Debug for Settle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settle").field("attempt", &self.attempt).finish_non_exhaustive()
    }
}
