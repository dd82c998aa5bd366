//! The calls of a run: so many at once, until they have ended or Ctrl-C stopped them.

use std::sync::Arc;

use attempt_ledger::{Attempt, AttemptState, Error, Stack};
use attempt_ledger_core::{CaseId, Clock, Effect, ErrorCause, RunId, Slot, TransportKind};
use bytes::Bytes;
use http::{HeaderValue, Request, Response, Uri, header};
use http_body::Body;
use http_body_util::Full;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    task::JoinSet,
};
use tower::Service;

use super::{cases::Case, progress::Progress};
use crate::failure::Failure;

/// What every call of a run has in common.
pub(super) struct Calls {
    pub(super) run: RunId,
    pub(super) uri: Uri,
    pub(super) key: Option<HeaderValue>,
    pub(super) effect: Option<Effect>,
    pub(super) concurrency: usize,
}

/// How the driving ended.
#[derive(Debug, Default)]
pub(super) struct Driven {
    /// Cases that were finished before.
    pub(super) skipped: usize,
    /// Cases that nothing was started of.
    pub(super) not_started: usize,
    /// Cases whose call was let go of.
    pub(super) abandoned: Vec<CaseId>,
    /// The ledger did not record: nothing more was started.
    pub(super) ledger: Option<Error>,
}

/// How one call ended.
enum Ended {
    Skipped(String),
    Called(String),
    Ledger(Error),
}

/// Ctrl-C, and what a service manager sends.
pub(super) struct Interrupts(Signal, Signal);

impl Interrupts {
    pub(super) fn listen() -> Result<Self, Failure> {
        let listen = |kind| {
            signal(kind).map_err(|error| Failure::usage("no signals can be had").because(error))
        };
        Ok(Interrupts(listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?))
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.0.recv() => {}
            _ = self.1.recv() => {}
        }
    }
}

/// Makes the calls of all cases.
pub(super) async fn drive<S, B>(
    client: &Stack<S>,
    calls: Calls,
    cases: Vec<Case>,
    mut interrupts: Interrupts,
) -> Driven
where
    Stack<S>: Service<Request<Full<Bytes>>, Response = Response<B>, Error = Error, Future: Send>
        + Clone
        + Send
        + 'static,
    B: Body<Error = Error> + Send + Unpin + 'static,
{
    let calls = Arc::new(calls);
    let mut progress = Progress::start(cases.len());
    let mut driven = Driven::default();
    let mut open: JoinSet<(CaseId, Ended)> = JoinSet::new();
    let mut waiting = cases.into_iter();
    let mut in_flight: Vec<CaseId> = Vec::new();
    let mut stopping = false;
    loop {
        while !stopping && open.len() < calls.concurrency {
            let Some(case) = waiting.next() else { break };
            in_flight.push(case.id.clone());
            open.spawn(one(client.clone(), Arc::clone(&calls), case));
        }
        tokio::select! {
            ended = open.join_next() => match ended {
                None => break,
                Some(Err(_)) => {}
                Some(Ok((case, ended))) => {
                    in_flight.retain(|id| *id != case);
                    let how = match ended {
                        Ended::Skipped(how) => {
                            driven.skipped += 1;
                            how
                        }
                        Ended::Called(how) => how,
                        Ended::Ledger(error) => {
                            stopping = true;
                            let how = "the ledger did not record it".to_owned();
                            driven.ledger.get_or_insert(error);
                            how
                        }
                    };
                    progress.ended(case.as_str(), &how);
                }
            },
            () = interrupts.next() => {
                if stopping {
                    progress.say("stopped: letting go of what is open");
                    break;
                }
                stopping = true;
                progress.say(&format!(
                    "stopping: nothing new is started, what is open ({}) is finished; once more lets go of it",
                    open.len()
                ));
            }
        }
    }
    // Dropping a call closes its attempt, by what is known of it.
    open.shutdown().await;
    driven.abandoned = in_flight;
    driven.not_started = waiting.count();
    driven
}

async fn one<S, B>(client: Stack<S>, calls: Arc<Calls>, case: Case) -> (CaseId, Ended)
where
    Stack<S>: Service<Request<Full<Bytes>>, Response = Response<B>, Error = Error>,
    B: Body<Error = Error> + Unpin,
{
    let slot = Slot::new(calls.run.clone(), case.id.clone());
    let mut carried = attempt_ledger::Case::new(slot).fixture(case.fixture);
    if let Some(effect) = calls.effect {
        carried = carried.effect(effect);
    }
    let mut request = crate::request::chat(&calls.uri, carried, case.body);
    if let Some(key) = &calls.key {
        request.headers_mut().insert(header::AUTHORIZATION, key.clone());
    }
    let ended = match crate::request::call(client, request).await {
        Ok(response) => Ended::Called(match Attempt::of(&response) {
            Some(attempt) => told(attempt),
            None => "answered".to_owned(),
        }),
        Err(error) if error.is_finished() => Ended::Skipped("skipped, finished before".to_owned()),
        Err(error) if error.is_ledger() => Ended::Ledger(error),
        Err(error) => Ended::Called(match error.attempt() {
            Some(attempt) => told(attempt),
            None => error.to_string(),
        }),
    };
    (case.id, ended)
}

/// The last attempt of a call in a few words: verdict, what failed, ordinal, score.
fn told(attempt: &Attempt) -> String {
    let AttemptState::Closed { verdict, grade, .. } = attempt.state() else {
        return "open".to_owned();
    };
    let mut text = verdict.to_string();
    let detail = attempt.detail().unwrap_or_default();
    let words = [
        detail.kind.map(TransportKind::as_str),
        detail.clock.map(Clock::as_str),
        detail.cause.map(ErrorCause::as_str),
    ];
    for word in words.into_iter().flatten() {
        text.push_str(&format!(" ({word})"));
    }
    let first = attempt.ordinal().is_none_or(attempt_ledger_core::Ordinal::is_first);
    if let Some(ordinal) = attempt.ordinal() {
        text.push_str(&format!(" at ordinal {ordinal}"));
    }
    match grade {
        Some(grade) if first => text.push_str(&format!(", frozen at {grade}")),
        Some(grade) => text.push_str(&format!(", graded {grade} as a diagnostic")),
        None => {}
    }
    text
}
