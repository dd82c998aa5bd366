//! `run`: the cases of a file against a server.

pub(crate) mod cases;
pub(crate) mod drive;
mod plan;
mod progress;
pub(crate) mod settings;
pub(crate) mod target;

use std::{collections::HashMap, io, path::Path, time::Duration};

use attempt_ledger::{
    Check, ClientBuilder, ClientError, Error, LedgerRetry, Pacer, ScoreLayer, Stack, Transport,
    client,
};
use attempt_ledger_core::{CaseId, CheckInfo, GraderInfo, Ordinal, RunId, Verdict};
use attempt_ledger_report::Running;
use attempt_ledger_store::{Archive, Ledger, file::FileOptions};
use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use http_body::Body;
use http_body_util::Full;
use tower::{Layer, Service, ServiceBuilder};
use tower_http::sensitive_headers::SetSensitiveRequestHeadersLayer;

use crate::{
    archive, args, checks,
    duration::shown,
    failure::{Exit, Failure},
    graders::{AnyGrader, GraderArg, Known},
    judge::Question,
    ledger, logging,
    out::{Out, Style, complain},
    report,
    threads::Threads,
};
use cases::{Case, Common, Params};
use drive::{Calls, Driven, Interrupts, Unsent};
use plan::Sample;
use progress::Progress;

pub(crate) fn run(args: &args::Run, out: &mut Out) -> Result<Exit, Failure> {
    // Everything that can be wrong is looked at before the ledger is touched or a byte is sent.
    let uri = target::endpoint(&args.base_url)?;
    target::model(&args.model)?;
    // A plan needs no key.
    let key = args.api_key_env.as_deref().filter(|_| !args.planned).map(target::key).transpose()?;
    let params = match &args.params {
        Some(json) => {
            Params::read(json).map_err(|why| Failure::usage(format_args!("--params {why}")))?
        }
        None => Params::default(),
    };
    let question = Question::read(&args.graders)?;
    let common = Common {
        model: &args.model,
        params: &params,
        stream: args.stream,
        graded: args.graders.grader.iter().any(GraderArg::needs_expected)
            || question.as_ref().is_some_and(Question::needs_expected),
    };
    let cases = cases::read(&args.cases, &common)?;
    let part = plan::part(args, &cases)?;
    let expected = expected(&cases);
    let known =
        Known { cases: &cases, expected: &expected, question: question.as_ref(), uri: Some(&uri) };
    let graders = known.graders(&args.graders.grader)?;
    let checks = checks::build(&args.check)?;
    let check_infos: Vec<CheckInfo> = checks.iter().map(Check::info).collect();
    let infos: Vec<GraderInfo> = graders.iter().map(AnyGrader::info).collect();

    // Outlives the ledger, so that Ctrl-C is heard while that is closed.
    let threads = Threads::start()?;
    let ledger = ledger::open_with(FileOptions::new(&args.ledger).keyed(args.keyed))?;
    let name = target::run_name(&uri, &args.model, &infos, &check_infos, &cases, &ledger);
    let folded = ledger::read(&args.ledger)?.told();
    let run = settings::choose(args, &folded, &name)?;
    let pinned = graders.into_iter().map(|grader| grader.pinned(&expected, &ledger));
    let graders: Vec<AnyGrader> = pinned.collect();
    let infos: Vec<GraderInfo> = graders.iter().map(AnyGrader::info).collect();
    let range = infos.first().map_or([0.0, 1.0], |info| [info.low, info.high]);
    let event = settings::event(args, run.clone(), &ledger, (infos, check_infos), &uri, &params)?;
    settings::same_target(&folded, &event, &cases, &ledger)?;
    settings::same_fixtures(&folded, &run, &cases, &ledger)?;
    if let Some(earlier) = &args.repeats {
        settings::same_as(&folded, earlier, &event, &cases, &ledger)?;
        if_read(writeln!(out, "repeats run {earlier}"))?;
    }

    let archive = args.archive.then(|| archive::begin(&args.ledger)).transpose()?;
    let layers = ServiceBuilder::new()
        .layer(SetSensitiveRequestHeadersLayer::new([header::AUTHORIZATION]))
        .layer(logging::layer())
        .into_inner();
    let pacer = (!args.no_pacing).then(|| Pacer::slow_start(FIRST_AT_ONCE));
    let missed: Vec<_> = graders.iter().map(|grader| (grader.info(), grader.missed())).collect();
    let score = score(args, &ledger, graders, pacer.as_ref(), (&layers, key.as_ref()))?;
    let mut builder = checks
        .into_iter()
        .fold(calls(args, &ledger, pacer.as_ref()), ClientBuilder::check)
        .score(score)
        .skip_finished(ledger.clone());
    if let Some(archive) = &archive {
        builder = builder.archive(archive.clone());
    }
    let calls = Calls {
        run: run.clone(),
        uri,
        key,
        effect: args.effect.map(Into::into),
        concurrency: usize::try_from(args.concurrency).unwrap_or(usize::MAX),
        worst_case: builder.worst_case(),
    };
    warn_of_no_grader(args, &cases);
    archive.iter().for_each(archive::announce);
    let work = Work {
        run: &run,
        all: cases.len(),
        part: part.len(),
        samples: plan::samples(part, args.epochs).collect(),
    };
    if !args.planned {
        // What an attempt was made of is gone on with; a run that is only planned begins.
        let begun = folded.slots.iter().any(|view| view.slot.run == run);
        let finished = begun.then(|| calls.finished(&ledger, &work.samples));
        if_read(announce(args, &work, finished, (&ledger, archive.as_ref()), &builder, out))?;
    }
    let driven = threads.run(async {
        let mut interrupts = Interrupts::listen()?;
        let whole = plan::samples(cases.iter().collect(), args.epochs);
        let recorded = tokio::select! {
            recorded = settings::record(&ledger, &folded, event, whole) => Some(recorded?),
            () = interrupts.next() => None,
        };
        let mut running = Running::of(&folded, &run, range);
        let whole = plan::samples(cases.iter().collect(), args.epochs);
        whole.for_each(|sample| running.plan(sample.slot(&run)));
        drop(folded);
        let driven = match recorded {
            Some(new) if args.planned => Driven { planned: Some(new), ..Driven::default() },
            Some(_) => {
                let client = builder.build_through(&layers).map_err(no_client)?;
                let progress = Progress::start(args.progress, &run, work.samples.len(), running);
                drive::drive(&client, &calls, work.samples.clone(), progress, &mut interrupts).await
            }
            None => {
                complain("stopped: nothing was sent\n");
                Driven { not_started: work.samples.len(), ..Driven::default() }
            }
        };
        tokio::spawn(interrupts.end_at_the_second("the calls"));
        // Where the ledger has failed the reason is told already.
        if driven.ledger.is_none() {
            flush(&ledger, &args.ledger).await?;
        }
        Ok::<_, Failure>(driven)
    })?;
    if let Some(new) = driven.planned {
        if_read(tell_plan(args, &work, new, out))?;
        return Ok(Exit::Fine);
    }
    missed.iter().for_each(|(info, missed)| missed.conclude(&info.name));
    archive.iter().for_each(archive::conclude);
    conclude(args, &run, driven, out)
}

/// What a command runs of what its run is.
struct Work<'a> {
    run: &'a RunId,
    /// Cases of the file.
    all: usize,
    /// Those of them that are run now.
    part: usize,
    samples: Vec<Sample<'a>>,
}

pub(crate) fn expected(cases: &[Case]) -> HashMap<CaseId, String> {
    let pairs = cases.iter().map(|case| Some((case.id.clone(), case.expected.clone()?)));
    pairs.flatten().collect()
}

/// Calls at once before the first answer: a server whose limit nobody knows yet costs no more first
/// attempts than these.
const FIRST_AT_ONCE: u32 = 4;

/// How calls are made, those of the cases and those of a grading model.
fn calls(args: &args::Run, ledger: &Ledger, pacer: Option<&Pacer>) -> ClientBuilder {
    let client = match pacer {
        Some(pacer) => client(ledger.clone()).pacing(pacer.clone()),
        None => client(ledger.clone()).no_pacing(),
    };
    client
        .clocks(settings::clocks(args))
        .gates(settings::GATES)
        .attempts(args.attempts)
        .budget(args.budget)
        .retry(LedgerRetry::new())
}

/// All graders, of which the first is published. A grading model is asked as the cases are, by calls of
/// its own, which are given their time.
fn score<L, B>(
    args: &args::Run,
    ledger: &Ledger,
    graders: Vec<AnyGrader>,
    pacer: Option<&Pacer>,
    (layers, key): (&L, Option<&HeaderValue>),
) -> Result<ScoreLayer, Failure>
where
    L: Layer<Transport>,
    Stack<L::Service>: Service<Request<Full<Bytes>>, Response = Response<B>, Error = Error, Future: Send>
        + Clone
        + Send
        + 'static,
    B: Body<Error = Error, Data: Send> + Send + 'static,
{
    let calls = calls(args, ledger, pacer);
    let asks = graders.iter().any(AnyGrader::asks);
    let limit = asks.then(|| calls.worst_case());
    let client = asks.then(|| calls.build_through(layers)).transpose().map_err(no_client)?;
    let mut ready = graders.into_iter().map(|grader| match &client {
        Some(client) => Ok(grader.through(client.clone(), key)),
        None => grader.by_rule(),
    });
    let Some(published) = ready.next().transpose()? else { return Ok(ScoreLayer::none()) };
    let mut score = ScoreLayer::configure(published).diagnostics(true);
    if let Some(limit) = limit {
        score = score.limit(limit);
    }
    for other in ready {
        score = score.also(other?).map_err(|error| Failure::usage("--grader").because(error))?;
    }
    Ok(score.build())
}

/// The longest that is waited for the last rows.
const FLUSH: Duration = Duration::from_secs(10);

pub(crate) async fn flush(ledger: &Ledger, dir: &Path) -> Result<(), Failure> {
    if let Ok(flushed) = tokio::time::timeout(FLUSH, ledger.flush()).await {
        return Ok(flushed?);
    }
    // Letting go of the last handle would wait for the writer, and without a limit.
    std::mem::forget(ledger.clone());
    Err(Failure::ledger(format_args!(
        "the last rows of ledger {} were not stored within {}",
        dir.display(),
        shown(FLUSH)
    ))
    .hint("look after its disk; `attempt-ledger report` tells what is there"))
}

/// The work goes on, though nobody reads what is told of it.
fn if_read(told: Result<(), Failure>) -> Result<(), Failure> {
    match told {
        Err(Failure::Closed) => Ok(()),
        told => told,
    }
}

/// Says that expected answers serve nothing, while there is still time to stop.
fn warn_of_no_grader(args: &args::Run, cases: &[Case]) {
    let expected = cases.iter().filter(|case| case.expected.is_some()).count();
    if !args.graders.grader.is_empty() || args.archive || expected == 0 {
        return;
    }
    let which = if expected == cases.len() {
        "the cases have".to_owned()
    } else {
        format!("{expected} of {} cases have", cases.len())
    };
    complain(&format!(
        "warning: {which} \"expected\", but no --grader is set: nothing will be graded, and answers are not kept to be graded later\n\
         hint: stop with Ctrl-C, and give --grader exact or --grader contains, or --archive\n"
    ));
}

/// What is about to happen, and how long it can take; `finished` where the run goes on.
fn announce(
    args: &args::Run,
    work: &Work<'_>,
    finished: Option<usize>,
    (ledger, archive): (&Ledger, Option<&Archive>),
    builder: &ClientBuilder,
    out: &mut Out,
) -> Result<(), Failure> {
    let a_call = builder.worst_case();
    // The same sum without a grader tells what each adds.
    let mut bare = client(ledger.clone()).budget(args.budget).score(ScoreLayer::none());
    if let Some(archive) = archive {
        bare = bare.archive(archive.clone());
    }
    let bare = bare.worst_case();
    let parts = [
        ("budget", args.budget),
        ("ledger", bare.saturating_sub(args.budget)),
        ("grader", a_call.saturating_sub(bare)),
    ];
    let parts = parts.iter().filter(|(_, part)| !part.is_zero());
    let parts: Vec<_> = parts.map(|(name, part)| format!("{name} {}", shown(*part))).collect();
    let at_once = u32::max(1, args.concurrency);
    let rounds = u32::try_from(work.samples.len()).unwrap_or(u32::MAX).div_ceil(at_once);
    let all = a_call.saturating_mul(rounds);
    let run = work.run;
    writeln!(out, "run {run}: {}, {at_once} at once", shape(args, work))?;
    writeln!(
        out,
        "worst case: {} a call, {} for all ({rounds} x {})",
        shown(a_call),
        shown(all),
        shown(a_call)
    )?;
    writeln!(out, "  {} a call: {}", shown(a_call), parts.join(", "))?;
    if let Some(finished) = finished {
        let left = work.samples.len().saturating_sub(finished);
        writeln!(out, "going on with run {run}: {finished} finished, {left} left")?;
    }
    writeln!(out)?;
    out.flush()
}

/// `3 cases`, `2 of 3 cases, 5 epochs`.
fn shape(args: &args::Run, work: &Work<'_>) -> String {
    let Work { all, part, .. } = work;
    let of = if part == all { String::new() } else { format!("{part} of ") };
    let plural = if *all == 1 { "" } else { "s" };
    match args.epochs {
        1 => format!("{of}{all} case{plural}"),
        epochs => format!("{of}{all} case{plural}, {epochs} epochs"),
    }
}

fn tell_plan(args: &args::Run, work: &Work<'_>, new: usize, out: &mut Out) -> Result<(), Failure> {
    let (run, all) = (work.run, work.samples.len());
    writeln!(out, "run {run}: {} planned, {new} of {all} samples new", shape(args, work))?;
    writeln!(
        out,
        "nothing was sent; {} without --planned runs them, with --case or --limit a part",
        same_run(args, run)
    )?;
    out.flush()
}

/// The report, and what was left undone.
fn conclude(args: &args::Run, run: &RunId, driven: Driven, out: &mut Out) -> Result<Exit, Failure> {
    let told = if_read(tell(args, run, &driven, out));
    // What the ledger did not record comes first, whether the rest could be told or not.
    if let Some(error) = driven.ledger {
        return Err(Failure::of_ledger(&error).hint(format_args!(
            "what was recorded stands; when the ledger is in order, {} goes on",
            same_run(args, run)
        )));
    }
    told?;
    let complete =
        driven.abandoned.is_empty() && driven.not_started == 0 && driven.unsent.is_none();
    Ok(if complete { Exit::Fine } else { Exit::Failed })
}

/// What goes on with the run: with --fresh the same command would begin another.
fn same_run(args: &args::Run, run: &RunId) -> String {
    match args.fresh {
        true => format!("`--run {run}` in place of --fresh"),
        false => "the same command".to_owned(),
    }
}

fn tell(args: &args::Run, run: &RunId, driven: &Driven, out: &mut Out) -> Result<(), Failure> {
    let contents = ledger::read(&args.ledger)?;
    report::print(&contents, Some(run), out)?;
    let folded = contents.folded;
    let Driven { skipped, unsent, not_started, abandoned, .. } = driven;
    if *skipped > 0 {
        writeln!(out, "skipped, finished before: {skipped}")?;
    }
    for slot in abandoned {
        let first = folded
            .slots
            .iter()
            .filter(|view| view.slot == *slot)
            .find_map(|view| folded.attempts(view).next())
            .filter(|row| row.ordinal.is_some_and(Ordinal::is_first));
        let lost = first.is_some_and(|row| row.verdict == Some(Verdict::Abandoned));
        let what = if lost { "lost its first attempt" } else { "was let go of" };
        out.painted(Style::Bad, "abandoned")?;
        writeln!(out, ": case {slot} {what}")?;
    }
    if let Some(Unsent { calls, why }) = unsent {
        let again = same_run(args, run);
        writeln!(
            out,
            "not sent: {calls}, since {why}; {again} goes on with them when the host answers again"
        )?;
    }
    if *not_started > 0 {
        writeln!(out, "not started: {not_started}; {} goes on with them", same_run(args, run))?;
    }
    out.flush()
}

/// The process has no room for what runs the calls.
pub(crate) fn no_runtime(error: io::Error) -> Failure {
    Failure::usage("no threads for the calls could be started").because(error)
}

/// The client could not be made.
pub(crate) fn no_client(error: ClientError) -> Failure {
    Failure::usage("the client could not be set up").because(error)
}
