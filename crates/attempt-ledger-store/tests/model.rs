//! Random operations on the file store, with reopening among them, against the memory store.
//! `PROPTEST_CASES` and `PROPTEST_RNG_SEED` are heard.
#![allow(clippy::expect_used, clippy::panic, reason = "a test")]

mod common;

use attempt_ledger_core::{AttemptId, CallId, Digest, Event, Slot, Verdict};
use attempt_ledger_store::{
    CloseRight, Ledger, StoreError,
    file::{FileOptions, Writer},
};
use common::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Operation {
    Open { case: u8, fixture: u8, drop: bool },
    Close { attempt: usize, verdict: usize },
    Score { attempt: usize, score: f64, right: bool },
    Diagnostic { attempt: usize, score: f64 },
    Forget { attempt: usize },
    Reopen,
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        6 => (0..3_u8, 0..8_u8, prop::bool::weighted(0.1))
            .prop_map(|(case, fixture, drop)| Operation::Open { case, fixture, drop }),
        6 => (0..12_usize, 0..19_usize)
            .prop_map(|(attempt, verdict)| Operation::Close { attempt, verdict }),
        4 => (0..12_usize, any::<f64>(), prop::bool::weighted(0.8))
            .prop_map(|(attempt, score, right)| Operation::Score { attempt, score, right }),
        2 => (0..12_usize, any::<f64>())
            .prop_map(|(attempt, score)| Operation::Diagnostic { attempt, score }),
        1 => (0..12_usize).prop_map(|attempt| Operation::Forget { attempt }),
        1 => Just(Operation::Reopen),
    ]
}

/// A store under test, and the attempts that were opened in it, by the order of their openings.
struct Side {
    ledger: Option<Ledger>,
    attempts: Vec<(AttemptId, Option<CloseRight>)>,
}

impl Side {
    fn ledger(&self) -> &Ledger {
        self.ledger.as_ref().expect("open")
    }

    /// Does it, and says how it ended in words that hold no attempt id.
    async fn run(&mut self, operation: &Operation) -> String {
        match operation {
            Operation::Open { case, fixture, drop } => {
                let mut request = request(&format!("case-{case}"));
                // Calls of several attempts, side by side, and attempts without one.
                let call = self.attempts.len() * 7 / 3 % 4;
                request.call = (call > 0).then(|| CallId::from_u128(call as u128));
                // Most name the same fixture, some none, few another.
                request.fixture = match fixture {
                    0 => Some(Digest::of(b"other")),
                    1 | 2 => None,
                    _ => Some(Digest::of(b"fixture")),
                };
                match self.ledger().open(request).await {
                    Ok((right, ordinal)) => {
                        self.attempts.push((right.attempt(), (!drop).then_some(right)));
                        format!("{ordinal:?}")
                    }
                    Err(error) => word(&error),
                }
            }
            Operation::Close { attempt, verdict } => {
                let verdict = Verdict::ALL[*verdict];
                let count = self.attempts.len();
                match self.attempts.get_mut(attempt % count.max(1)) {
                    Some((id, Some(right))) => result(right.close(closed(*id, verdict)).await),
                    _ => "nothing to close".into(),
                }
            }
            Operation::Score { attempt, score, right } => {
                let Some(mut grade) = self.grade(*attempt, *score) else { return String::new() };
                if !right {
                    grade.answer_sha256 = Digest::of(b"something else");
                }
                result(self.ledger().score(grade).await)
            }
            Operation::Diagnostic { attempt, score } => {
                let Some(grade) = self.grade(*attempt, *score) else { return String::new() };
                result(self.ledger().diagnostic(grade).await)
            }
            Operation::Forget { attempt } => {
                let count = self.attempts.len();
                if let Some((_, right)) = self.attempts.get_mut(attempt % count.max(1)) {
                    *right = None;
                }
                String::new()
            }
            // The rights of a writer that is gone are gone too.
            Operation::Reopen => {
                self.attempts.iter_mut().for_each(|(_, right)| *right = None);
                String::new()
            }
        }
    }

    fn grade(&self, attempt: usize, score: f64) -> Option<attempt_ledger_core::Grade> {
        let (id, _) = self.attempts.get(attempt % self.attempts.len().max(1))?;
        Some(grade(*id, score))
    }

    /// Everything that is recorded, but for ids, sessions, moments and the store's own rows.
    fn story(&self) -> Vec<String> {
        let number = |id: AttemptId| self.attempts.iter().position(|(a, _)| *a == id);
        let tell = |event: &Event| match event {
            Event::Opened(o) => {
                format!(
                    "opened {:?} {:?} {:?} {:?}",
                    number(o.attempt),
                    o.case,
                    o.ordinal,
                    o.fixture
                )
            }
            Event::Closed(c) => format!("closed {:?} {:?}", number(c.attempt), c.verdict),
            Event::Scored(g) => format!("scored {:?} {:?}", number(g.attempt), g.score.to_bits()),
            Event::Diagnostic(g) => {
                format!("diagnostic {:?} {:?}", number(g.attempt), g.score.to_bits())
            }
            Event::GradeRefused(r) => {
                let bits = r.score.map(f64::to_bits);
                format!("refused {:?} {:?} {bits:?}", number(r.attempt), r.why)
            }
            other => other.kind().to_owned(),
        };
        let own = |event: &Event| {
            matches!(event, Event::Segment(_) | Event::Sealed(_) | Event::Session(_))
        };
        let records = self.ledger().records().expect("reads");
        records.iter().filter(|r| !own(&r.event)).map(|r| tell(&r.event)).collect()
    }

    /// What is visible of the slots; whether attempts are open differs by who lives.
    fn slots(&self) -> Vec<String> {
        let tell = |case: u8| {
            let slot: Slot = slot(&format!("case-{case}"));
            let state = self.ledger().slot(&slot)?;
            let first = self.attempts.iter().position(|(a, _)| *a == state.first);
            let frozen = state.frozen.map(f64::to_bits);
            Some(format!(
                "{:?} {first:?} {:?} {frozen:?} {:?} {:?} {:?}",
                state.last,
                state.first_verdict,
                state.newest_closed,
                state.newest_call_content,
                state.fixture
            ))
        };
        (0..3).map(|case| format!("{:?}", tell(case))).collect()
    }
}

fn word(error: &StoreError) -> String {
    match error {
        StoreError::Refused(why) => format!("refused {why:?}"),
        StoreError::OtherFixture(_) => "other fixture".into(),
        StoreError::AlreadyClosed(_) => "already closed".into(),
        other => panic!("{other}"),
    }
}

fn result(result: Result<(), StoreError>) -> String {
    result.map_or_else(|error| word(&error), |()| "done".into())
}

async fn compare(operations: Vec<Operation>, segment_bytes: u64, writer: Writer) {
    let room = Room::new();
    let options = || FileOptions::new(room.dir()).segment_bytes(segment_bytes).writer(writer);
    let mut memory = Side { ledger: Some(Ledger::memory()), attempts: Vec::new() };
    let mut file = Side { ledger: Some(options().open().expect("opens")), attempts: Vec::new() };
    for operation in &operations {
        assert_eq!(file.run(operation).await, memory.run(operation).await, "{operation:?}");
        if matches!(operation, Operation::Reopen) {
            file.ledger().flush().await.expect("flushed");
            file.ledger = None;
            if writer == Writer::Thread {
                file.ledger = Some(options().open().expect("opens"));
            } else {
                // The task lets the lock go once it has seen the last handle go.
                while file.ledger.is_none() {
                    tokio::task::yield_now().await;
                    file.ledger = options().open().ok();
                }
            }
        }
        file.ledger().flush().await.expect("flushed");
        assert_eq!(file.slots(), memory.slots(), "{operation:?}");
    }
    assert_eq!(file.story(), memory.story());
    drop(file);
}

proptest! {
    #[test]
    fn the_file_store_does_what_the_memory_store_does(
        operations in prop::collection::vec(operation(), 1..50),
        segment_bytes in 500..8_000_u64,
        runtime in prop::bool::ANY,
    ) {
        let tokio = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let writer = if runtime { Writer::Runtime } else { Writer::Thread };
        tokio.block_on(compare(operations, segment_bytes, writer));
    }
}
