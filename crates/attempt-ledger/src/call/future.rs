use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep_until};
use tower_service::Service;

use super::{Call, Cap};
use crate::{BoxError, Error, ErrorKind, link, pace::Waiting};

pin_project! {
    /// The future of a [`CallService`](super::CallService).
    pub struct CallFuture<S, Req>
    where
        S: Service<Req>,
    {
        #[pin]
        state: State<S, Req, S::Future>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, Req, F> {
        // Its host is not to be called yet.
        Waiting {
            waiting: Waiting,
            start: Option<(S, Req)>,
            #[pin]
            budget: Option<Sleep>,
            guard: Option<Guard>,
        },
        // Another instance of the service than the one that was ready when it began to wait.
        Readying {
            start: Option<(S, Req)>,
            #[pin]
            budget: Option<Sleep>,
            guard: Option<Guard>,
        },
        Running {
            #[pin]
            inner: F,
            #[pin]
            budget: Option<Sleep>,
            guard: Guard,
        },
        // Without a call: recorded as unlinked attempts, with no cap.
        Unlinked {
            #[pin]
            inner: F,
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

impl<S: Service<Req>, Req> CallFuture<S, Req> {
    pub(super) fn running(inner: S::Future, call: Call) -> Self {
        CallFuture { state: State::Running { inner, budget: None, guard: Guard(call) } }
    }

    /// Starts when its host lets it.
    pub(super) fn waiting(service: S, request: Req, call: Call, waiting: Waiting) -> Self {
        let (start, guard) = (Some((service, request)), Some(Guard(call)));
        CallFuture { state: State::Waiting { waiting, start, budget: None, guard } }
    }

    pub(super) fn unlinked(inner: S::Future) -> Self {
        CallFuture { state: State::Unlinked { inner } }
    }

    pub(super) fn refused(error: Error) -> Self {
        CallFuture { state: State::Refused { error: Some(error) } }
    }
}

impl<S, Req, R, E> Future for CallFuture<S, Req>
where
    S: Service<Req, Response = R, Error = E>,
    E: Into<BoxError>,
{
    type Output = Result<R, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let result = loop {
            let next = match this.state.as_mut().project() {
                StateProj::Waiting { waiting, start, budget, guard } => {
                    let Some(Guard(call)) = guard.as_ref() else { return Poll::Pending };
                    let call = call.clone();
                    match waiting.poll(cx) {
                        Poll::Ready(seat) => {
                            call.seated(seat);
                            let (start, guard) = (start.take(), guard.take());
                            State::Readying { start, budget: None, guard }
                        }
                        Poll::Pending => {
                            // What it asks for may be more than there is: better to say so at once.
                            let hint = waiting.hint();
                            if hint > call.budget_left() {
                                break Err(call.cannot_wait(Cap::Wait(hint)));
                            }
                            ready!(poll_budget(budget, &call, cx));
                            match call.end_by_budget() {
                                Some(error) => break Err(error),
                                None => return Poll::Pending,
                            }
                        }
                    }
                }
                StateProj::Readying { start, budget, guard } => {
                    let (Some((service, _)), Some(Guard(call))) = (start.as_mut(), guard.as_ref())
                    else {
                        return Poll::Pending;
                    };
                    match service.poll_ready(cx) {
                        Poll::Ready(Ok(())) => {}
                        Poll::Ready(Err(error)) => {
                            break Err(Error::from_inner(error.into(), ErrorKind::NotReady));
                        }
                        Poll::Pending => {
                            ready!(poll_budget(budget, call, cx));
                            match call.end_by_budget() {
                                Some(error) => break Err(error),
                                None => return Poll::Pending,
                            }
                        }
                    }
                    let (Some((mut service, request)), Some(guard)) = (start.take(), guard.take())
                    else {
                        return Poll::Pending;
                    };
                    let inner = link::within(&guard.0, || service.call(request));
                    State::Running { inner, budget: None, guard }
                }
                StateProj::Running { inner, budget, guard } => {
                    let call = &guard.0;
                    match link::within(call, || inner.poll(cx)) {
                        Poll::Ready(result) => {
                            break result
                                .map_err(|e| Error::from_inner(e.into(), ErrorKind::Transport));
                        }
                        Poll::Pending => {
                            if let Some(error) = call.take_end(cx) {
                                break Err(error);
                            }
                            ready!(poll_budget(budget, call, cx));
                            // While an attempt is open its own clock ends it; the call wakes this
                            // task when it has settled.
                            match call.end_by_budget() {
                                Some(error) => break Err(error),
                                None => return Poll::Pending,
                            }
                        }
                    }
                }
                StateProj::Unlinked { inner } => {
                    let result = ready!(link::apart(|| inner.poll(cx)));
                    break result.map_err(|e| Error::from_inner(e.into(), ErrorKind::Transport));
                }
                StateProj::Refused { error } => match error.take() {
                    Some(error) => break Err(error),
                    None => return Poll::Pending,
                },
                StateProj::Done => return Poll::Pending,
            };
            this.state.set(next);
        };
        // Dropping the inner future closes what is open, before the caller learns the result.
        this.state.set(State::Done);
        Poll::Ready(result)
    }
}

/// Ready when the call's budget is used up. The timer is made here: a future may be made where there
/// is no runtime.
fn poll_budget(mut budget: Pin<&mut Option<Sleep>>, call: &Call, cx: &mut Context<'_>) -> Poll<()> {
    if budget.is_none() {
        budget.set(Some(sleep_until(call.deadline())));
    }
    match budget.as_pin_mut() {
        Some(sleep) if !sleep.is_elapsed() => sleep.poll(cx),
        _ => Poll::Ready(()),
    }
}

impl<S: Service<Req>, Req> fmt::Debug for CallFuture<S, Req> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallFuture").finish_non_exhaustive()
    }
}
