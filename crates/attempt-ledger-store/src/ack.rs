use std::{
    fmt,
    future::Future,
    marker::PhantomData,
    pin::Pin,
    task::{Context, Poll},
};

use attempt_ledger_core::Ordinal;
use tokio::sync::oneshot;

use crate::StoreError;

/// What became of an appended event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The row's number in the ledger.
    pub seq: u64,
    /// The ordinal that was allocated, where the event was an opening of a linked attempt.
    pub ordinal: Option<Ordinal>,
}

impl From<Appended> for () {
    fn from(_: Appended) {}
}

/// An acknowledgement to come: of the durability that the event's kind asks for.
///
/// Either ready at once or answered by the store's writer. Dropping it retracts nothing. Polled
/// again after its answer was taken, it says [`StoreError::Gone`].
#[must_use = "an event counts as recorded only when its acknowledgement has come"]
pub struct Ack<T> {
    state: State,
    answer: PhantomData<fn() -> T>,
}

enum State {
    Ready(Option<Result<Appended, StoreError>>),
    Wait(oneshot::Receiver<Result<Appended, StoreError>>),
}

impl<T> Ack<T> {
    /// An answer that is known already.
    pub fn ready(answer: Result<Appended, StoreError>) -> Self {
        Ack { state: State::Ready(Some(answer)), answer: PhantomData }
    }

    /// An answer that the holder of the [`Answer`] will give.
    pub fn pending() -> (Answer, Self) {
        let (sender, receiver) = oneshot::channel();
        (Answer(sender), Ack { state: State::Wait(receiver), answer: PhantomData })
    }

    /// The same acknowledgement, with another view of its answer.
    pub(crate) fn cast<U>(self) -> Ack<U> {
        Ack { state: self.state, answer: PhantomData }
    }
}

impl<T: From<Appended>> Future for Ack<T> {
    type Output = Result<T, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = match &mut self.state {
            State::Ready(answer) => answer.take().unwrap_or(Err(StoreError::Gone)),
            State::Wait(receiver) => match Pin::new(receiver).poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(answer) => answer.unwrap_or(Err(StoreError::Gone)),
            },
        };
        // A oneshot may not be polled past its end.
        self.state = State::Ready(None);
        Poll::Ready(answer.map(T::from))
    }
}

impl<T> fmt::Debug for Ack<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Ready(Some(_)) => "ready",
            State::Ready(None) => "taken",
            State::Wait(_) => "waiting",
        };
        f.debug_tuple("Ack").field(&state).finish()
    }
}

/// The writer's side of an [`Ack`]. Dropped without an answer, it answers [`StoreError::Gone`].
#[derive(Debug)]
pub struct Answer(oneshot::Sender<Result<Appended, StoreError>>);

impl Answer {
    /// Answers. Nobody may be waiting any more; the row stands all the same.
    pub fn give(self, answer: Result<Appended, StoreError>) {
        let _ = self.0.send(answer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn answers_once_and_never_panics() {
        fn check<T: Send + Sync + Unpin>(_: &T) {}
        let (answer, mut ack) = Ack::<()>::pending();
        check(&ack);
        answer.give(Ok(Appended { seq: 3, ordinal: None }));
        assert!((&mut ack).await.is_ok());
        assert!(matches!((&mut ack).await, Err(StoreError::Gone)));

        let (answer, ack) = Ack::<()>::pending();
        drop(answer);
        assert!(matches!(ack.await, Err(StoreError::Gone)));
    }
}
