//! The calls of a run: so many at once, until they have ended or Ctrl-C stopped them.

use std::time::Duration;

use attempt_ledger::{
    Attempt, AttemptState, AttemptSummary, Call, CarryCase as _, Error, Finished, Stack,
};
use attempt_ledger_core::{Clock, Effect, ErrorCause, RunId, Slot, TransportKind};
use attempt_ledger_store::Ledger;
use bytes::Bytes;
use http::{HeaderValue, Request, Response, Uri, header};
use http_body::Body;
use http_body_util::Full;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    task::JoinSet,
};
use tower::Service;

use super::{plan::Sample, progress::Progress};
use crate::{
    duration::shown,
    failure::{Exit, Failure},
    logging,
    out::complain,
};

/// What every call of a run has in common.
pub(super) struct Calls {
    pub(super) run: RunId,
    pub(super) uri: Uri,
    pub(super) key: Option<HeaderValue>,
    pub(super) effect: Option<Effect>,
    pub(super) concurrency: usize,
    /// The longest that one call can take.
    pub(super) worst_case: Duration,
}

impl Calls {
    fn request(&self, sample: Sample<'_>) -> Request<Full<Bytes>> {
        let slot = sample.slot(&self.run);
        let mut carried = attempt_ledger::Case::new(slot).fixture(sample.case.fixture);
        if let Some(effect) = self.effect {
            carried = carried.effect(effect);
        }
        let mut request = crate::request::chat(&self.uri, carried, sample.case.body.clone());
        if let Some(key) = &self.key {
            request.headers_mut().insert(header::AUTHORIZATION, key.clone());
        }
        request
    }

    /// How many of the samples will be skipped, since they are finished for the same request: told
    /// before, by what the call layer goes by.
    pub(super) fn finished(&self, ledger: &Ledger, samples: &[Sample<'_>]) -> usize {
        let finished = |sample: &&Sample<'_>| {
            let fingerprint = || self.request(**sample).fingerprint(sample.epoch);
            Finished::look(ledger, &sample.slot(&self.run), fingerprint).is_some()
        };
        samples.iter().filter(finished).count()
    }
}

/// How the driving ended.
#[derive(Debug, Default)]
pub(super) struct Driven {
    /// Slots that were planned anew, where nothing was to be sent.
    pub(super) planned: Option<usize>,
    /// Samples that were finished before.
    pub(super) skipped: usize,
    /// Samples whose call ended before an attempt, since their host was not to be called.
    pub(super) unsent: Option<Unsent>,
    /// Samples that nothing was started of.
    pub(super) not_started: usize,
    /// Samples whose call was let go of.
    pub(super) abandoned: Vec<Slot>,
    /// The ledger did not record: nothing more was started.
    pub(super) ledger: Option<Error>,
}

/// Calls that no ordinal was spent on.
#[derive(Debug)]
pub(super) struct Unsent {
    pub(super) calls: usize,
    /// What the first of them ended with.
    pub(super) why: String,
}

/// How one call ended.
enum Ended {
    Skipped(String),
    Unsent(String),
    Called(String),
    Ledger(Error),
}

/// Ctrl-C, and what a service manager sends.
pub(crate) struct Interrupts {
    int: Signal,
    term: Signal,
    /// How many came.
    seen: u32,
}

impl Interrupts {
    pub(crate) fn listen() -> Result<Self, Failure> {
        let listen = |kind| {
            signal(kind).map_err(|error| Failure::usage("no signals can be had").because(error))
        };
        let (int, term) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
        Ok(Interrupts { int, term, seen: 0 })
    }

    /// The next signal.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.int.recv() => {}
            _ = self.term.recv() => {}
        }
        self.seen = self.seen.saturating_add(1);
    }

    /// After these nothing is left but storing the last rows and telling, which a full pipe or a
    /// disk can hold up: the second of all signals, or whichever comes later, ends the process.
    pub(crate) async fn end_at_the_second(mut self, what: &str) {
        loop {
            self.next().await;
            if self.seen >= 2 {
                complain("stopped: what was recorded stands; `attempt-ledger report` prints it\n");
                std::process::exit(i32::from(Exit::Failed as u8));
            }
            complain(&format!(
                "{what} are over: the report follows; Ctrl-C again ends without it\n"
            ));
        }
    }
}

/// Makes the calls of all samples.
pub(super) async fn drive<S, B>(
    client: &Stack<S>,
    calls: &Calls,
    samples: Vec<Sample<'_>>,
    mut progress: Progress,
    interrupts: &mut Interrupts,
) -> Driven
where
    Stack<S>: Service<Request<Full<Bytes>>, Response = Response<B>, Error = Error, Future: Send>
        + Clone
        + Send
        + 'static,
    B: Body<Error = Error> + Send + Unpin + 'static,
{
    let mut driven = Driven::default();
    let mut open: JoinSet<(Slot, Ended, Vec<AttemptSummary>)> = JoinSet::new();
    let mut waiting = samples.into_iter();
    let mut in_flight: Vec<Slot> = Vec::new();
    let mut stopping = false;
    loop {
        while !stopping && open.len() < calls.concurrency {
            let Some(sample) = waiting.next() else { break };
            let slot = sample.slot(&calls.run);
            in_flight.push(slot.clone());
            open.spawn(one(client.clone(), calls.request(sample), slot));
        }
        // A signal from here on finds no call that it could stop.
        if open.is_empty() {
            break;
        }
        tokio::select! {
            ended = open.join_next() => match ended {
                None => break,
                Some(Err(_)) => {}
                Some(Ok((slot, ended, attempts))) => {
                    in_flight.retain(|other| *other != slot);
                    let how = match ended {
                        Ended::Skipped(how) => {
                            driven.skipped += 1;
                            how
                        }
                        Ended::Unsent(how) => {
                            let why = how.clone();
                            driven.unsent.get_or_insert(Unsent { calls: 0, why }).calls += 1;
                            format!("not sent: {how}")
                        }
                        Ended::Called(how) => how,
                        Ended::Ledger(error) => {
                            stopping = true;
                            let how = "the ledger did not record it".to_owned();
                            driven.ledger.get_or_insert(error);
                            how
                        }
                    };
                    progress.ended(&slot, &how, &attempts);
                }
            },
            () = interrupts.next() => {
                if stopping {
                    progress.say("stopped: letting go of what is open");
                    break;
                }
                stopping = true;
                progress.say(&stopping_after(open.len(), calls.worst_case));
            }
        }
    }
    // Dropping a call closes its attempt, by what is known of it. Where nothing is open, a signal
    // that came just now is the first after the calls, and not one that ends this.
    if !open.is_empty() {
        tokio::select! {
            () = open.shutdown() => {}
            () = interrupts.next() => std::process::exit(i32::from(Exit::Failed as u8)),
        }
    }
    driven.abandoned = in_flight;
    driven.not_started = waiting.count();
    driven
}

/// What the first Ctrl-C does, and what another would do.
fn stopping_after(open: usize, worst_case: Duration) -> String {
    let at_most = shown(worst_case);
    match open {
        1 => format!(
            "stopping: 1 call goes on to its end (at most {at_most}); Ctrl-C again abandons it, and a first attempt stays without a grade"
        ),
        n => format!(
            "stopping: {n} calls go on to their end (at most {at_most}); Ctrl-C again abandons them, and their first attempts stay without a grade"
        ),
    }
}

async fn one<S, B>(
    client: Stack<S>,
    request: Request<Full<Bytes>>,
    slot: Slot,
) -> (Slot, Ended, Vec<AttemptSummary>)
where
    Stack<S>: Service<Request<Full<Bytes>>, Response = Response<B>, Error = Error>,
    B: Body<Error = Error> + Unpin,
{
    let result = crate::request::call(client, request).await;
    let call = match &result {
        Ok(response) => Attempt::of(response).and_then(Attempt::call),
        Err(error) => error.call(),
    };
    call.into_iter().for_each(logging::ended);
    let attempts = call.map(Call::attempts).unwrap_or_default();
    let ended = match result {
        Ok(response) => Ended::Called(match Attempt::of(&response) {
            Some(attempt) => told(attempt),
            None => "answered".to_owned(),
        }),
        Err(error) if error.is_finished() => Ended::Skipped("skipped, finished before".to_owned()),
        Err(error) if error.is_ledger() => Ended::Ledger(error),
        Err(error) if error.is_capped() && error.attempt().is_none() => {
            Ended::Unsent(error.to_string())
        }
        Err(error) => Ended::Called(match error.attempt() {
            Some(attempt) => told(attempt),
            None => error.to_string(),
        }),
    };
    (slot, ended, attempts)
}

/// The last attempt of a call in a few words: verdict, what failed, ordinal, score.
fn told(attempt: &Attempt) -> String {
    let AttemptState::Closed { verdict, grade, .. } = attempt.state() else {
        return "open".to_owned();
    };
    let mut text = verdict.to_string();
    let detail = attempt.detail().unwrap_or_default();
    let status = attempt.status().filter(|status| !(200..300).contains(status));
    let words = [
        status.map(|status| status.to_string()),
        detail.kind.map(|kind| TransportKind::as_str(kind).to_owned()),
        detail.clock.map(|clock| Clock::as_str(clock).to_owned()),
        detail.cause.filter(|cause| !is_plain(status, *cause)).map(|c| c.as_str().to_owned()),
    ];
    let words: Vec<String> = words.into_iter().flatten().collect();
    if !words.is_empty() {
        text.push_str(&format!(" ({})", words.join(", ")));
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

/// Whether the status says the cause already.
fn is_plain(status: Option<u16>, cause: ErrorCause) -> bool {
    match status {
        Some(401 | 403) => cause == ErrorCause::Auth,
        Some(402) => cause == ErrorCause::Billing,
        Some(429) => cause == ErrorCause::Throttled,
        Some(400..=499) => cause == ErrorCause::Request,
        Some(500..=599) => cause == ErrorCause::Server,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_told_where_the_status_leaves_it_open() {
        assert!(is_plain(Some(401), ErrorCause::Auth));
        assert!(!is_plain(Some(429), ErrorCause::Billing));
        assert!(!is_plain(None, ErrorCause::Server));
    }

    #[test]
    fn calls_that_go_on_are_counted_in_words() {
        let said = |n| stopping_after(n, Duration::from_secs(60));
        assert!(said(1).starts_with("stopping: 1 call goes on to its end (at most 1m); Ctrl-C"));
        assert!(said(2).starts_with("stopping: 2 calls go on to their end (at most 1m); Ctrl-C"));
    }
}
