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
    layer::Config,
    live::{GradeJob, Hook, Unsettled},
};
use crate::{Attempt, OnLedgerError, clock::LazyTimer};

/// What follows an attempt's end: the acknowledgement of its closing row, then its grade.
///
/// Whoever waits for it may leave at any moment: the row was handed over before, and a grade that
/// has not started is started from the drop.
pub(super) struct Settle {
    attempt: Attempt,
    step: Step,
    job: Option<(Hook, GradeJob)>,
    timer: LazyTimer,
    since: Option<Instant>,
    config: Arc<Config>,
    _unsettled: Option<Unsettled>,
}

enum Step {
    Close(Ack<()>),
    Grade(JoinHandle<()>, Duration),
    Done,
}

impl Settle {
    pub(super) fn new(
        attempt: Attempt,
        unsettled: Option<Unsettled>,
        ack: Ack<()>,
        job: Option<(Hook, GradeJob)>,
        config: Arc<Config>,
    ) -> Self {
        Settle {
            attempt,
            step: Step::Close(ack),
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
                        // What is not recorded is not graded.
                        self.job = None;
                        self.step = Step::Done;
                        return Poll::Ready(Err(error));
                    }
                    self.step = match self.job.take() {
                        Some((hook, job)) => Step::Grade(hook.0.start(job, None), hook.0.limit()),
                        None => Step::Done,
                    };
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
}

impl Drop for Settle {
    fn drop(&mut self) {
        let Step::Close(ack) = std::mem::replace(&mut self.step, Step::Done) else { return };
        self.attempt.tell(false);
        match self.job.take() {
            Some((hook, job)) => {
                hook.0.start(job, Some(ack));
            }
            // Nobody awaits it any more; where the caller chose to go on, it is counted all the same.
            None if self.config.on_error == OnLedgerError::GoOn => {
                self.config.unrecorded.watch(ack, 1);
            }
            None => {}
        }
    }
}

impl fmt::Debug for Settle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settle").field("attempt", &self.attempt).finish_non_exhaustive()
    }
}
