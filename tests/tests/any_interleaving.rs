//! The real stack under paused time: whatever the server, the grader, the store, the retry policy and
//! the readers do, and whoever lets go at whichever moment, what is published of a slot is ordinal
//! one's grade or nothing.
//!
//! `PROPTEST_CASES` and `PROPTEST_RNG_SEED` are heard.

use std::{
    collections::HashMap,
    future::Future,
    io::ErrorKind,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use attempt_ledger::{
    Attempt, BoxError, CallLayer, Clocks, GateKind, Gates, GradeInput, GraderFn, Ledger,
    LedgerLayer, LedgerRetry, RunId, ScoreLayer, Verdict,
};
use attempt_ledger_core::{AttemptRow, Digest, Event, Folded, SlotState};
use attempt_ledger_report::{Options, Report};
use attempt_ledger_tests::*;
use http::Request;
use http_body_util::BodyExt;
use proptest::prelude::*;
use tokio::time::{sleep, timeout};
use tower::{ServiceBuilder, ServiceExt, retry::RetryLayer, util::BoxCloneService};

/// Everything that happens in one case.
#[derive(Clone, Debug)]
struct Script {
    store: Keeper,
    gate: GateKind,
    /// What the server says, in the order in which it is asked; the text of each is its number.
    answers: Vec<Says>,
    grades: Vec<Grades>,
    diagnostics: bool,
    calls: Vec<Caller>,
}

#[derive(Clone, Copy, Debug)]
enum Keeper {
    Memory,
    Slow(u64),
    /// Fails once at the n-th event of a kind.
    Failing(&'static str, usize),
    /// Never answers a kind.
    Silent(&'static str),
}

#[derive(Clone, Copy, Debug)]
enum Says {
    Whole,
    Cap,
    Filtered,
    Nothing,
    Stream {
        pause: u64,
    },
    /// Stops after its first words: for ever, with a reset, with an error event, or with a clean end.
    Broken(Break),
    Status(u16),
    Garbage,
    Reset,
    Silence,
}

#[derive(Clone, Copy, Debug)]
enum Break {
    Stall,
    Reset,
    Event,
    End,
}

#[derive(Clone, Copy, Debug)]
enum Grades {
    After(u64),
    Fails(u64),
    Panics,
    Nan,
    OutOfRange,
    Never,
}

/// One call of a slot; several of a slot at once are hedges, one after another recalls.
#[derive(Clone, Debug)]
struct Caller {
    slot: usize,
    starts: u64,
    policy: Policy,
    attempts: u32,
    leaves: Leaves,
}

#[derive(Clone, Copy, Debug)]
enum Policy {
    Table,
    BelowGrade,
    BadContent,
    Always,
}

/// When a caller lets go.
#[derive(Clone, Copy, Debug)]
enum Leaves {
    Never,
    /// Of the future or the body, whichever it has by then.
    After(u64),
    /// After so many polls of the future.
    Polls(u32),
    /// After so many frames of the body.
    Frames(u32),
}

const SLOTS: [&str; 2] = ["a", "b"];

/// As many as all callers together may ask for.
const ANSWERS: usize = 12;

fn script() -> impl Strategy<Value = Script> {
    let kind = || prop::sample::select(vec!["opened", "closed", "scored", "diagnostic"]);
    let store = prop_oneof![
        3 => Just(Keeper::Memory),
        4 => (1..30_u64).prop_map(Keeper::Slow),
        2 => (kind(), 1..4_usize).prop_map(|(kind, n)| Keeper::Failing(kind, n)),
        1 => kind().prop_map(Keeper::Silent),
    ];
    let gate = prop::sample::select(vec![GateKind::Whole, GateKind::FirstContent, GateKind::Head]);
    let broken = prop::sample::select(vec![Break::Stall, Break::Reset, Break::Event, Break::End]);
    let says = prop_oneof![
        6 => Just(Says::Whole),
        2 => Just(Says::Cap),
        1 => Just(Says::Filtered),
        1 => Just(Says::Nothing),
        6 => (0..400_u64).prop_map(|pause| Says::Stream { pause }),
        4 => broken.prop_map(Says::Broken),
        3 => prop::sample::select(vec![429, 500, 503, 400]).prop_map(Says::Status),
        1 => Just(Says::Garbage),
        1 => Just(Says::Reset),
        1 => Just(Says::Silence),
    ];
    let grades = prop_oneof![
        8 => (0..1500_u64).prop_map(Grades::After),
        1 => (0..1500_u64).prop_map(Grades::Fails),
        1 => Just(Grades::Panics),
        1 => Just(Grades::Nan),
        1 => Just(Grades::OutOfRange),
        1 => Just(Grades::Never),
    ];
    let policy = prop::sample::select(vec![
        Policy::Table,
        Policy::BelowGrade,
        Policy::BadContent,
        Policy::Always,
    ]);
    let leaves = prop_oneof![
        4 => Just(Leaves::Never),
        3 => (0..2500_u64).prop_map(Leaves::After),
        2 => (0..60_u64).prop_map(Leaves::After),
        3 => (0..12_u32).prop_map(Leaves::Polls),
        2 => (0..6_u32).prop_map(Leaves::Frames),
    ];
    let starts = prop_oneof![1 => Just(0), 1 => 0..60_u64, 1 => 0..4000_u64];
    let caller = (0..SLOTS.len(), starts, policy, 1..4_u32, leaves).prop_map(
        |(slot, starts, policy, attempts, leaves)| Caller {
            slot,
            starts,
            policy,
            attempts,
            leaves,
        },
    );
    (
        store,
        gate,
        prop::collection::vec(says, ANSWERS),
        prop::collection::vec(grades, ANSWERS),
        any::<bool>(),
        prop::collection::vec(caller, 1..5),
    )
        .prop_map(|(store, gate, answers, grades, diagnostics, calls)| Script {
            store,
            gate,
            answers,
            grades,
            diagnostics,
            calls,
        })
}

/// Every text has a grade of its own, so that a grade tells which answer it is of.
fn grade_of(number: usize) -> f64 {
    (number * 7 % ANSWERS) as f64 / ANSWERS as f64
}

fn head(number: usize, says: Says) -> Head {
    let text = number.to_string();
    let delta =
        format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n");
    let finish = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
    let done = "data: [DONE]\n\n";
    let first = || Step::from(delta.as_str());
    match says {
        Says::Whole => document(&text, "stop"),
        Says::Cap => document(&text, "length"),
        Says::Filtered => document(&text, "content_filter"),
        Says::Nothing => document("", "stop"),
        Says::Stream { pause } => {
            sse(vec![first(), Step::Wait(ms(pause)), finish.into(), Step::Wait(ms(9)), done.into()])
        }
        Says::Broken(Break::Stall) => sse(vec![first(), Step::Stall]),
        Says::Broken(Break::Reset) => sse(vec![first(), Step::Fail(ErrorKind::ConnectionReset)]),
        Says::Broken(Break::Event) => sse(vec![
            first(),
            "data: {\"error\":{\"code\":\"overloaded\"}}\n\n".into(),
            done.into(),
        ]),
        Says::Broken(Break::End) => sse(vec![first()]),
        Says::Status(status) => document("", "").status(status),
        Says::Garbage => document("", "").body(vec!["<html>".into()]),
        Says::Reset => error_after(ms(15), ErrorKind::ConnectionReset),
        Says::Silence => document("", "").after(s(10_000)),
    }
}

type Client = BoxCloneService<
    Request<Body>,
    http::Response<attempt_ledger::ResponseBody<FramesBody>>,
    BoxError,
>;

impl Script {
    fn ledger(&self) -> Ledger {
        match self.store {
            Keeper::Memory => Ledger::memory(),
            Keeper::Slow(delay) => slow_ledger(ms(delay), FailAt::Never),
            Keeper::Failing(kind, n) => slow_ledger(ms(3), FailAt::Once(kind, n)),
            Keeper::Silent(kind) => slow_ledger(ms(3), FailAt::Silent(kind)),
        }
    }

    fn is_sound(&self) -> bool {
        matches!(self.store, Keeper::Memory | Keeper::Slow(_))
    }

    fn score(&self) -> ScoreLayer {
        let grades: Arc<[Grades]> = self.grades.clone().into();
        let grader = GraderFn::new("by-number", "1", move |input: GradeInput| {
            let number: Option<usize> = input.content.text.parse().ok();
            let how = number.and_then(|n| grades.get(n).copied()).unwrap_or(Grades::After(0));
            async move {
                match how {
                    Grades::After(delay) => sleep(ms(delay)).await,
                    Grades::Fails(delay) => {
                        sleep(ms(delay)).await;
                        return Err(BoxError::from("no grade"));
                    }
                    Grades::Panics => std::panic::resume_unwind(Box::new("a grader")),
                    Grades::Nan => return Ok(f64::NAN),
                    Grades::OutOfRange => return Ok(7.0),
                    Grades::Never => std::future::pending().await,
                }
                Ok(number.map_or(0.5, grade_of))
            }
        });
        ScoreLayer::configure(grader).diagnostics(self.diagnostics).limit(s(5)).build()
    }

    fn client(&self, caller: &Caller, ledger: &Ledger, inner: &Frames) -> Client {
        let layer = LedgerLayer::new(ledger.clone())
            .gates(Gates { plain: self.gate, stream: self.gate })
            .clocks(Clocks::default().head(s(8)).idle(s(2)).total(s(30)));
        let call = CallLayer::new().attempts(caller.attempts).budget(s(60));
        let table = match caller.policy {
            Policy::BelowGrade => LedgerRetry::new().grade_below(0.5),
            Policy::BadContent => LedgerRetry::new().retry_on([Verdict::Empty, Verdict::Truncated]),
            Policy::Table => LedgerRetry::new(),
            Policy::Always => {
                let stack = ServiceBuilder::new()
                    .layer(call)
                    .layer(RetryLayer::new(Forever(ms(1))))
                    .layer(self.score())
                    .layer(layer)
                    .service(inner.clone());
                return BoxCloneService::new(stack.map_err(BoxError::from));
            }
        };
        let stack = stack(call, table, self.score(), layer, inner.clone());
        BoxCloneService::new(stack.map_err(BoxError::from))
    }

    /// Plays it; what the callers got to hold, and the ledger once all has settled.
    async fn play(&self) -> (Ledger, Vec<Attempt>) {
        let ledger = self.ledger();
        let answers = self.answers.iter().enumerate().map(|(n, &says)| head(n, says));
        let inner = Frames::new(answers);
        let mut callers = tokio::task::JoinSet::new();
        for caller in self.calls.clone() {
            let client = self.client(&caller, &ledger, &inner);
            callers.spawn(async move {
                sleep(ms(caller.starts)).await;
                ask(client, &caller).await
            });
        }
        let mut attempts = Vec::new();
        while let Some(done) = callers.join_next().await {
            attempts.extend(done.expect("no caller panics"));
        }
        // Graders and acknowledgements outlive whoever let go.
        sleep(s(60)).await;
        (ledger, attempts)
    }
}

async fn ask(client: Client, caller: &Caller) -> Option<Attempt> {
    let call = client.oneshot(chat(SLOTS[caller.slot]));
    let limit = match caller.leaves {
        Leaves::After(millis) => ms(millis),
        _ => Duration::MAX,
    };
    let reading = async {
        let call = pin!(call);
        let left = match caller.leaves {
            Leaves::Polls(polls) => polls,
            _ => u32::MAX,
        };
        let response = match (Polls { call, left }).await? {
            Ok(response) => response,
            Err(error) => {
                let error = error.downcast_ref::<attempt_ledger::Error>();
                return error.and_then(attempt_ledger::Error::attempt).cloned();
            }
        };
        let attempt = Attempt::of(&response).cloned();
        let mut body = response.into_body();
        let mut frames = 0;
        while let Some(Ok(_)) = body.frame().await {
            frames += 1;
            if matches!(caller.leaves, Leaves::Frames(n) if frames > n) {
                break;
            }
        }
        attempt
    };
    timeout(limit, reading).await.ok().flatten()
}

/// Lets go of a future after so many polls.
struct Polls<F> {
    call: F,
    left: u32,
}

impl<F: Future + Unpin> Future for Polls<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        match Pin::new(&mut self.call).poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => {
                if self.left == 0 {
                    cx.waker().wake_by_ref();
                }
                Poll::Pending
            }
        }
    }
}

/// The number of the answer that a row holds, if it says.
fn number_of(row: &AttemptRow) -> Option<usize> {
    let digest = row.content_sha256?;
    (0..ANSWERS).find(|n| Digest::of(n.to_string().as_bytes()) == digest)
}

fn check(script: &Script, ledger: &Ledger, held: &[Attempt]) -> Result<Folded, TestCaseError> {
    let mut scored = HashMap::new();
    for record in ledger.records().expect("readable") {
        if let Event::Scored(grade) = record.event {
            let twice = scored.insert(grade.attempt, grade.score);
            prop_assert_eq!(twice, None, "scored once");
        }
    }
    let folded = folded(ledger);
    for view in &folded.slots {
        let rows: Vec<&AttemptRow> = folded.attempts(view).collect();
        let ordinals: Vec<_> = rows.iter().filter_map(|row| row.ordinal.map(|o| o.get())).collect();
        prop_assert_eq!(
            &ordinals,
            &(1..=rows.len() as u32).collect::<Vec<_>>(),
            "no gap, no double"
        );
        for row in &rows {
            if script.is_sound() {
                prop_assert!(row.verdict.is_some(), "nobody holds it, so it is closed: {row:?}");
            }
            prop_assert!(row.ordinal.is_some_and(|o| o.is_first()) || row.score.is_none());
            prop_assert!(row.score.is_none() || scored.contains_key(&row.attempt));
        }
        let first = rows[0];
        let content = first.verdict.is_some_and(Verdict::is_content);
        let number = number_of(first);
        let how = number.and_then(|n| script.grades.get(n).copied()).unwrap_or(Grades::After(0));
        let expected = match how {
            Grades::After(_) if content => Some(number.map_or(0.5, grade_of)),
            _ => None,
        };
        let published = view.state.score();
        if script.is_sound() {
            prop_assert_eq!(published, expected, "ordinal one's grade: {:?}", first);
        } else if published.is_some() {
            prop_assert_eq!(published, expected, "or nothing: {:?}", first);
        }
        if let (SlotState::Frozen(score), Some(state)) = (view.state, ledger.slot(&view.slot)) {
            prop_assert_eq!(state.frozen, Some(score), "the store says the same");
        }
    }
    // What callers hold says nothing else than the rows do.
    for attempt in held {
        let Some(row) = folded.rows.iter().find(|row| row.attempt == attempt.id()) else {
            continue;
        };
        prop_assert!(attempt.ordinal().is_none_or(|ordinal| row.ordinal == Some(ordinal)));
        if let (Some(told), true) = (attempt.verdict(), attempt.is_recorded()) {
            prop_assert_eq!(Some(told), row.verdict);
        }
        if let Some(grade) = attempt.grade() {
            prop_assert_eq!(Some(grade), row.score.or(row.diagnostic));
        }
    }
    Ok(folded)
}

/// The three numbers stand side by side, and none takes from another.
fn check_report(folded: &Folded) -> Result<(), TestCaseError> {
    if folded.rows.is_empty() {
        return Ok(());
    }
    let run = RunId::new("r").expect("id");
    let report = Report::of(folded, Some(&run), &Options::default()).expect("a report");
    let scores: Vec<f64> = folded.slots.iter().filter_map(|view| view.state.score()).collect();
    prop_assert_eq!(report.quality.n(), scores.len() as u64);
    if let Some(estimate) = report.quality.estimate() {
        let mean = scores.iter().sum::<f64>() / scores.len() as f64;
        prop_assert!((estimate.mean - mean).abs() < 1e-12);
    }
    let count =
        |is: &dyn Fn(&AttemptRow) -> bool| folded.rows.iter().filter(|row| is(row)).count() as u64;
    let content = |row: &AttemptRow| row.verdict.is_some_and(Verdict::is_content);
    let fault = |row: &AttemptRow| row.verdict.is_some_and(Verdict::is_fault);
    let later = |row: &AttemptRow| row.ordinal.is_some_and(|o| !o.is_first());
    prop_assert_eq!(report.availability.faults, count(&fault));
    prop_assert_eq!(report.availability.attempts, count(&|row| fault(row) || content(row)));
    prop_assert_eq!(report.refused_promotions.attempts, count(&|row| later(row) && content(row)));
    prop_assert_eq!(report.open, count(&|row| row.verdict.is_none()));
    Ok(())
}

fn config() -> ProptestConfig {
    let base = ProptestConfig::default();
    ProptestConfig { cases: base.cases.max(3000), max_shrink_iters: 2000, ..base }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_interleaving_publishes_anything_but_ordinal_one(script in script()) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("runtime");
        let (ledger, held) = runtime.block_on(script.play());
        let folded = check(&script, &ledger, &held)?;
        check_report(&folded)?;
    }
}

/// The scripts reach what they are for: what is counted here is not rare among them.
#[test]
fn the_scripts_reach_every_kind_of_end() {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};
    let mut runner = TestRunner::deterministic();
    let mut reached: HashMap<&str, usize> = HashMap::new();
    for _ in 0..400 {
        let script = script().new_tree(&mut runner).expect("script").current();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("runtime");
        let (ledger, _) = runtime.block_on(script.play());
        let folded = folded(&ledger);
        let mut reach = |what, how_often: usize| *reached.entry(what).or_default() += how_often;
        for view in &folded.slots {
            let rows: Vec<_> = folded.attempts(view).collect();
            let later = rows.iter().skip(1).any(|row| row.verdict.is_some_and(Verdict::is_content));
            let first = rows[0].verdict;
            reach("frozen", view.state.score().is_some().into());
            reach("frozen with a later answer", (view.state.score().is_some() && later).into());
            reach(
                "fault first, then an answer",
                (first.is_some_and(Verdict::is_fault) && later).into(),
            );
            reach("abandoned first", (first == Some(Verdict::Abandoned)).into());
            reach("content without a grade", {
                (first.is_some_and(Verdict::is_content) && view.state.score().is_none()).into()
            });
            reach("diagnostic", rows.iter().any(|row| row.diagnostic.is_some()).into());
        }
        let mut open = 0;
        for record in ledger.records().expect("readable") {
            match record.event {
                Event::Opened(_) => open += 1,
                Event::Closed(_) => open -= 1,
                _ => {}
            }
            reach("two at once", (open > 1).into());
        }
        reach("left open", folded.rows.iter().filter(|row| row.verdict.is_none()).count());
        reach("refused grade", folded.refused.len());
    }
    println!("{reached:?}");
    for (what, count) in reached {
        assert!(count >= 5, "{what}: {count} times in 400 scripts");
    }
}
