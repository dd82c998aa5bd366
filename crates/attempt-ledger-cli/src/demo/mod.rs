//! `demo`: scripted faults through the real client, and what the ledger makes of them.

mod checks;
mod known;
mod steps;

use std::{path::PathBuf, time::Duration};

use attempt_ledger::{
    Clocks, GateKind, Gates, GradeInput, GraderFn, HttpClient, LedgerRetry, ScoreLayer, client,
};
use attempt_ledger_core::{
    Folded, GraderInfo, Limits, Planned, PlannedSlot, RetrySettings, RunEvent, RunId, Verdict,
};
use attempt_ledger_mock::{MockServer, Script};
use attempt_ledger_store::Ledger;
use http::Uri;

use crate::{
    args,
    failure::{Exit, Failure},
    ledger,
    out::{Out, Style},
};
use checks::Checks;

/// The answers hold these words, or some of them.
const WORDS: &str = "alpha beta gamma delta";
/// Answers that hold less than half of the words are asked for again.
const LEAST: f64 = 0.5;
const ATTEMPTS: u32 = 3;
const BUDGET: Duration = Duration::from_secs(12);
const MODEL: &str = "demo-model";

pub(crate) fn demo(args: &args::Demo, out: &mut Out) -> Result<Exit, Failure> {
    let dir = match &args.ledger {
        Some(dir) => dir.clone(),
        None => fresh_dir()?,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(crate::run::no_runtime)?;
    runtime.block_on(play(args.seed, dir, out))
}

fn fresh_dir() -> Result<PathBuf, Failure> {
    let made = tempfile::Builder::new().prefix("attempt-ledger-demo-").tempdir();
    Ok(made
        .map_err(|error| {
            Failure::ledger("no temporary directory could be made")
                .because(error)
                .hint("name one with --ledger DIR")
        })?
        .keep())
}

/// What both parts of the demonstration play on.
struct Stage {
    dir: PathBuf,
    ledger: Ledger,
    server: MockServer,
    uri: Uri,
    client: HttpClient,
    seed: u64,
}

async fn play(seed: u64, dir: PathBuf, out: &mut Out) -> Result<Exit, Failure> {
    let ledger = ledger::open(&dir, true)?;
    let before = ledger::read(&dir)?.told();
    let known = free_run(&before, "demo")?;
    let all = free_run(&before, "demo-steps")?;
    let script = Script::by_case(known::script(seed)).otherwise(Script::by_case(steps::script()));
    let server = MockServer::start(script)
        .await
        .map_err(|error| Failure::usage("no loopback port could be had").because(error))?;
    let uri = format!("{}/chat/completions", server.url()).parse();
    let uri = uri.map_err(|error: http::uri::InvalidUri| {
        Failure::usage("the loopback address is no URL").because(error)
    })?;
    let client = stack(&ledger, false)?;
    let stage = Stage { dir, ledger, server, uri, client, seed };

    writeln!(out, "Fault server on {}, seed {seed}", stage.server.addr())?;
    writeln!(out, "Ledger in {}", attempt_ledger_core::Escaped(&stage.dir.to_string_lossy()))?;
    writeln!(out)?;
    out.flush()?;
    let mut checks = Checks::default();
    // The other run first, so that a later `report` of this ledger is of the known answers.
    plan(&stage, &all, steps::names()).await?;
    plan(&stage, &known, known::CASES.map(str::to_owned).to_vec()).await?;
    known::play(&stage, &known, &mut checks, out).await?;
    steps::play(&stage, &all, &mut checks, out).await?;

    writeln!(out)?;
    if checks.failed.is_empty() {
        out.painted(Style::Good, "All as it must be")?;
        writeln!(out, ": {} verdicts, numbers and counts were compared.", checks.made)?;
    } else {
        out.painted(Style::Bad, "Not as it must be")?;
        writeln!(out, ": {} of {} comparisons failed.", checks.failed.len(), checks.made)?;
        for failed in &checks.failed {
            writeln!(out, "  {failed}")?;
        }
    }
    writeln!(
        out,
        "Look again: attempt-ledger report {0}; attempt-ledger log {0}",
        attempt_ledger_core::Escaped(&stage.dir.to_string_lossy())
    )?;
    let now = crate::report::of(&folded(&stage).await?, Some(&known))?.availability.attempts;
    writeln!(
        out,
        "(the report now counts the other model's attempt too: {now} attempts of run {known}, so \
         its numbers differ from those above)"
    )?;
    Ok(if checks.failed.is_empty() { Exit::Fine } else { Exit::Failed })
}

/// A run of this name that the ledger does not have yet.
fn free_run(folded: &Folded, name: &str) -> Result<RunId, Failure> {
    let taken = |run: &RunId| {
        folded.runs.iter().any(|seen| seen.event.run == *run)
            || folded.slots.iter().any(|view| view.slot.run == *run)
    };
    let mut number = 1_u32;
    loop {
        let name = if number == 1 { name.to_owned() } else { format!("{name}-{number}") };
        let run = RunId::new(name).map_err(Failure::usage)?;
        if !taken(&run) {
            return Ok(run);
        }
        number = number.saturating_add(1);
    }
}

fn clocks() -> Clocks {
    Clocks::default().idle(Duration::from_millis(1_500)).total(Duration::from_secs(3))
}

fn gates() -> Gates {
    Gates { plain: GateKind::Whole, stream: GateKind::Whole }
}

/// The whole stack over the real client.
fn stack(ledger: &Ledger, skip: bool) -> Result<HttpClient, Failure> {
    let grader = GraderFn::new("words", "1", |input: GradeInput| async move {
        Ok(share_of_words(&input.content.text))
    });
    let mut builder = client(ledger.clone())
        .clocks(clocks())
        .gates(gates())
        .attempts(ATTEMPTS)
        .budget(BUDGET)
        // Each scripted fault is played by itself, the throttles too.
        .no_pacing()
        .retry(LedgerRetry::new().grade_below(LEAST))
        .score(ScoreLayer::configure(grader).diagnostics(true).build());
    if skip {
        builder = builder.skip_finished(ledger.clone());
    }
    builder.build().map_err(crate::run::no_client)
}

/// The share of the words that an answer holds.
fn share_of_words(text: &str) -> f64 {
    let words = WORDS.split(' ');
    let (held, all) = words
        .fold((0_u32, 0_u32), |(held, all), word| (held + u32::from(text.contains(word)), all + 1));
    f64::from(held) / f64::from(all)
}

async fn plan(stage: &Stage, run: &RunId, cases: Vec<String>) -> Result<(), Failure> {
    let event = RunEvent {
        run: run.clone(),
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        durability: stage.ledger.durability(),
        limits: clocks().limits(None),
        gates: gates(),
        graded: Verdict::ALL.iter().copied().filter(|v| v.is_content()).collect(),
        retry: RetrySettings {
            attempts: ATTEMPTS,
            budget_us: Limits::micros(BUDGET),
            retry_on: Vec::new(),
            grade_below: Some(LEAST),
            policy: None,
            effect: None,
        },
        graders: vec![GraderInfo {
            name: "words".into(),
            version: "1".into(),
            low: 0.0,
            high: 1.0,
        }],
        checks: Vec::new(),
        target: None,
    };
    stage.ledger.run(event).await?;
    let slots = cases.into_iter().map(|case| {
        let case = attempt_ledger_core::CaseId::new(case).map_err(Failure::usage)?;
        Ok(PlannedSlot { case, epoch: 1, step: 1 })
    });
    let slots = slots.collect::<Result<_, Failure>>()?;
    stage.ledger.planned(Planned { run: run.clone(), slots }).await?;
    Ok(())
}

/// A chat request of `case`, whose id is the prompt's last word.
fn request(
    stage: &Stage,
    run: &RunId,
    case: &str,
    model: &str,
) -> Result<http::Request<http_body_util::Full<bytes::Bytes>>, Failure> {
    let body = serde_json::json!({
        "model": model,
        "messages": [{ "role": "user", "content": format!("say {WORDS}, for {case}") }],
        "stream": true,
    });
    let case = attempt_ledger_core::CaseId::new(case).map_err(Failure::usage)?;
    let case = attempt_ledger::Case::new(attempt_ledger_core::Slot::new(run.clone(), case));
    Ok(crate::request::chat(&stage.uri, case, body.to_string().into()))
}

/// Makes one call to its end. How it ended is in the ledger.
async fn call(
    client: HttpClient,
    request: http::Request<http_body_util::Full<bytes::Bytes>>,
) -> Result<(), attempt_ledger::Error> {
    crate::request::call(client, request).await.map(drop)
}

/// What the ledger on disk says now.
async fn folded(stage: &Stage) -> Result<Folded, Failure> {
    stage.ledger.flush().await?;
    Ok(ledger::read(&stage.dir)?.told())
}
