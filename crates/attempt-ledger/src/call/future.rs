use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep_until};

use super::Call;
use crate::{BoxError, Error, ErrorKind};

pin_project! {
    /// The future of a [`CallService`](super::CallService).
    pub struct CallFuture<F> {
        #[pin]
        state: State<F>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F> {
        Running {
            #[pin]
            inner: F,
            #[pin]
            budget: Option<Sleep>,
            guard: Guard,
        },
        Refused { error: Option<Error> },
        Done,
    }
}

/// Tells the call that nobody waits for it any more, however the future ends.
struct Guard(Call);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.orphan();
    }
}

impl<F> CallFuture<F> {
    pub(super) fn new(inner: F, call: Call) -> Self {
        CallFuture { state: State::Running { inner, budget: None, guard: Guard(call) } }
    }

    pub(super) fn refused(error: Error) -> Self {
        CallFuture { state: State::Refused { error: Some(error) } }
    }
}

impl<F, R, E> Future for CallFuture<F>
where
    F: Future<Output = Result<R, E>>,
    E: Into<BoxError>,
{
    type Output = Result<R, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let result = match this.state.as_mut().project() {
            StateProj::Running { inner, mut budget, guard } => {
                let call = &guard.0;
                match inner.poll(cx) {
                    Poll::Ready(result) => {
                        result.map_err(|e| Error::from_inner(e.into(), ErrorKind::Transport))
                    }
                    Poll::Pending => {
                        if let Some(error) = call.take_end(cx) {
                            Err(error)
                        } else {
                            if budget.is_none() {
                                budget.set(Some(sleep_until(call.deadline())));
                            }
                            let passed = budget
                                .as_pin_mut()
                                .is_none_or(|b| b.is_elapsed() || b.poll(cx).is_ready());
                            if !passed {
                                return Poll::Pending;
                            }
                            // While an attempt is open its own clock ends it; the call wakes this
                            // task when it has settled.
                            match call.end_by_budget() {
                                Some(error) => Err(error),
                                None => return Poll::Pending,
                            }
                        }
                    }
                }
            }
            StateProj::Refused { error } => match error.take() {
                Some(error) => Err(error),
                None => return Poll::Pending,
            },
            StateProj::Done => return Poll::Pending,
        };
        // Dropping the inner future closes what is open, before the caller learns the result.
        this.state.set(State::Done);
        Poll::Ready(result)
    }
}

impl<F> fmt::Debug for CallFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallFuture").finish_non_exhaustive()
    }
}
