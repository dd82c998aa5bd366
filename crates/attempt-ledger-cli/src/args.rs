//! The arguments, and the help that documents them.
#![allow(rustdoc::bare_urls, reason = "help is plain text")]

use std::{path::PathBuf, time::Duration};

use attempt_ledger::Wire;
use attempt_ledger_core::{CaseId, RunId};
use clap::{
    ArgAction, Parser, Subcommand, ValueEnum,
    builder::{NonEmptyStringValueParser, PossibleValue, PossibleValuesParser},
};
use tracing::level_filters::LevelFilter;

use crate::{
    checks::{self, CheckArg},
    duration,
    graders::{self, GraderArg},
    judge::{self, RangeArg},
    out::Color,
};

const EXIT_CODES: &str = "\
Exit codes:
  0  done, whatever the verdicts and the numbers are
  1  the demo found something else than expected, a kept answer could not be
     graded, a run left calls unsent since its server throttles, or a run or
     grading was stopped before its end
  2  an argument or an input is wrong and nothing was sent, or the output could
     not be written
  3  the ledger could not be opened, read or written";

const PROGRESS: &str = "\
How progress is told on standard error, with the three numbers as they
stand. `json` writes one object a line, among which warnings and
errors stay plain text; its field \"event\" is
  begun  with run, samples (how many are to be run)
  ended  with done, samples, case, epoch, outcome (text)
  said   with text: what Ctrl-C did
  over   with done, samples
All but `said` have the numbers in the words of `report --json`:
  quality{mean,n,planned,coverage,bounds}
  availability{faults,attempts}
  refused_promotions{attempts,slots}
They count what the ledger holds of the run, and each call when it has
ended; in the end they are those of the report.";

/// Runs evaluations of language models and keeps the notebook: every attempt beneath the retries is
/// a row of its own, the first graded outcome is frozen, and what is published is read from it alone.
#[derive(Debug, Parser)]
#[command(
    name = "attempt-ledger",
    version,
    after_help = EXIT_CODES,
    // Piped, too, where no terminal tells how wide it is.
    max_term_width = 80,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every subcommand.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct Global {
    /// When to use colours; `auto` obeys NO_COLOR.
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN")]
    pub(crate) color: Color,
    /// What to log to standard error: case, method, host, path and status of what is sent, and the
    /// verdict of each attempt; never a header, a prompt or an answer.
    #[arg(long, global = true, value_enum, value_name = "LEVEL")]
    log: Option<LogLevel>,
    /// Logs more: -v is `--log info`, -vv `debug`, -vvv `trace`.
    #[arg(short, long, global = true, action = ArgAction::Count, conflicts_with = "log")]
    verbose: u8,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogLevel {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl Global {
    /// How much is logged.
    pub(crate) fn level(&self) -> LevelFilter {
        match (self.log, self.verbose) {
            (None, 0) | (Some(LogLevel::Off), _) => LevelFilter::OFF,
            (Some(LogLevel::Error), _) => LevelFilter::ERROR,
            (Some(LogLevel::Warn), _) => LevelFilter::WARN,
            (Some(LogLevel::Info), _) | (None, 1) => LevelFilter::INFO,
            (Some(LogLevel::Debug), _) | (None, 2) => LevelFilter::DEBUG,
            (Some(LogLevel::Trace), _) | (None, _) => LevelFilter::TRACE,
        }
    }
}

// The help of each is that of its arguments; a comment here would hide it.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Demo(Demo),
    Run(Box<Run>),
    Grade(Grade),
    Rerun(Rerun),
    Report(Report),
    Log(Log),
    Note(Note),
    Classify(Classify),
    /// Prints the table by which attempts are repeated.
    Policy,
    Completions(Completions),
    Man(Man),
}

/// Plays scripted faults on a loopback port and shows what the ledger makes of them.
///
/// A real client under the whole stack, retries included, calls a server on this machine. case-7 is
/// repeated since its first answer was graded too low, case-8 since its first attempt stalled; what
/// is published is shown beside what a scorecard of survivors would have claimed. Then every kind
/// of fault is played once. Ends with 1 when a verdict, a number, or the server's own count of
/// requests is not as it must be. Takes under 15 seconds and needs no network.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  attempt-ledger demo
  attempt-ledger demo --seed 7 --ledger ./notebook
  attempt-ledger report ./notebook --run demo")]
pub(crate) struct Demo {
    /// Changes the order in which the faults are played.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) seed: u64,
    /// The directory of the ledger; a fresh one among the system's temporary files unless set.
    #[arg(long, value_name = "DIR")]
    pub(crate) ledger: Option<PathBuf>,
}

/// Runs the cases of a file against an OpenAI-shaped server.
///
/// Run again with the same arguments it goes on where it stopped: finished cases are skipped, the
/// others go on with their next ordinal. The first Ctrl-C starts nothing new and finishes what is
/// open; a second one lets go of it.
///
/// Answers are always read whole before a retry is decided, and later attempts are graded too, as
/// diagnostics, so that the naive number can be shown. Neither prompts nor answers are stored, so
/// that nothing can be graded later, unless --archive is given.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
CASES.jsonl has one JSON object a line:
  {\"id\": \"case-7\", \"prompt\": \"...\", \"expected\": \"...\"}
  id        the name of the case, once in a file
  prompt    the user's message; or else
  messages  the list of messages of a conversation
  expected  what --grader compares with (optional)
  params    fields of the request, such as {\"temperature\": 0} (optional)
  fixture   any JSON that the case is pinned to (optional; the line
            without its id unless given)

A DURATION is a number with its unit, such as 500ms, 90s, 2m.

A --config FILE has options by their long names; none is read unless it
is named:
  cases = \"cases.jsonl\"            paths are relative to the file
  base-url = \"https://api.example.com/v1\"
  stream = true                    flags are true or false
  total = \"2m\"
  params = { temperature = 0 }     a table, or JSON as text
  case = [\"a\", \"b\"]                a list, where an option can be given again
An option on the command line takes the place of the file's, lists and
all; so does one that cannot stand beside it. A key that is no option is
an error. -v logs which came from where.

A coverage below the floor is marked FAIL in the report, and does not change the exit code.

Examples:
  attempt-ledger run --config nightly.toml --epochs 3
  attempt-ledger run cases.jsonl --base-url http://127.0.0.1:8080/v1 \\
      --model m --ledger ./notebook
  attempt-ledger run cases.jsonl --base-url http://127.0.0.1:8080/v1 \\
      --model m --ledger ./notebook --epochs 5 --seed 7 --limit 100
  attempt-ledger run cases.jsonl --base-url https://api.example.com/v1 \\
      --model m --ledger ./notebook --api-key-env API_KEY --grader exact \\
      --attempts 4 --total 2m --params '{\"temperature\":0}'")]
pub(crate) struct Run {
    /// The cases, JSON Lines.
    #[arg(value_name = "CASES.jsonl")]
    pub(crate) cases: PathBuf,
    /// A TOML file with options of this command by their long names, such as `concurrency = 8`, and
    /// `cases`; the command line wins. See below.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The server: scheme, host, port and path, such as https://api.example.com/v1.
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: String,
    /// The model's name, as the server knows it.
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) model: String,
    /// The directory of the ledger; made if it is not there.
    #[arg(long, value_name = "DIR")]
    pub(crate) ledger: PathBuf,
    /// Begins a new ledger with keyed fingerprints, for prompts so short that they could be guessed
    /// from a plain hash. The key stays in DIR/fingerprint.key; a ledger that has one is always
    /// opened with it, and one that was begun without stays plain.
    #[arg(long)]
    pub(crate) keyed: bool,
    /// Keeps the answers, in DIR/archive, for `grade` to grade them later. They are stored as they
    /// came, in files that only you may read.
    #[arg(long)]
    pub(crate) archive: bool,
    /// The run; a hash of cases, URL, model and whatever else shapes the output unless set. Epochs,
    /// order and the part that is run do not shape it.
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<RunId>,
    /// Starts another run of the same cases, instead of going on with the last.
    #[arg(long, conflicts_with = "run")]
    pub(crate) fresh: bool,
    /// How often each case is sampled. With a larger number the same run goes on with the samples
    /// that it lacks; with a smaller one those beyond it stay planned.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) epochs: u32,
    /// Shuffles the order of the cases, the same way for the same seed; the file's order unless
    /// given. All cases are sampled once before any is again. Shapes nothing else: neither the
    /// requests, nor the run's name, nor the pauses between attempts, which stay random.
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Records the plan and sends nothing: coverage counts against all samples of the file, however
    /// few of them are run later. No API key is read.
    #[arg(long, conflicts_with_all = ["case", "limit"])]
    pub(crate) planned: bool,
    /// Runs only this case of the file; give it again for more. The others stay planned.
    #[arg(long, value_name = "ID", conflicts_with = "limit")]
    pub(crate) case: Vec<CaseId>,
    /// Runs only the first N cases of the file, or of the seed's order, whether they are finished
    /// or not. The others stay planned.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
    /// Fields of every request, as a JSON object; a case's own params come on top.
    #[arg(long, value_name = "JSON")]
    pub(crate) params: Option<String>,
    /// Attempts of one call, at most.
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) attempts: u32,
    /// The longest that the head of a response may take, from the request on; off unless given.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) head: Option<Duration>,
    /// The longest that one attempt may take, from the request to the end of its answer.
    #[arg(long, default_value = "600s", value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) total: Duration,
    /// The longest that an answer may go on without a byte, once the response has begun; before the
    /// first byte of the response only --total counts, and --head where it is given.
    #[arg(long, default_value = "60s", value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) idle: Duration,
    /// The longest that one call may take, its attempts and pauses together.
    #[arg(long, default_value = "900s", value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) budget: Duration,
    /// At most so many calls at once. A server that throttles is asked less, and is waited for before
    /// a first attempt is spent.
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) concurrency: u32,
    /// Waits for no server before a call: first attempts are spent on one that throttles.
    #[arg(long)]
    pub(crate) no_pacing: bool,
    /// How progress is told on standard error, with the three numbers as they stand.
    #[arg(long, value_enum, default_value_t, value_name = "HOW", long_help = PROGRESS)]
    pub(crate) progress: ProgressArg,
    /// Asks for answers as streams.
    #[arg(long, overrides_with = "no_stream")]
    pub(crate) stream: bool,
    /// Asks for answers as documents (the default).
    #[arg(long)]
    no_stream: bool,
    #[command(flatten)]
    pub(crate) graders: Graders,
    /// Makes an answer that fails it `off_target`; see --help for the checks.
    #[arg(long, value_name = "CHECK", long_help = checks::HELP)]
    pub(crate) check: Vec<CheckArg>,
    /// The environment variable that holds the API key, sent as a bearer token.
    #[arg(long, value_name = "VARIABLE")]
    pub(crate) api_key_env: Option<String>,
    /// What sending a request again would do, instead of what the request tells.
    #[arg(long, value_enum, value_name = "EFFECT")]
    pub(crate) effect: Option<EffectArg>,
    /// The run that this one repeats: its settings must be the same.
    #[arg(skip)]
    pub(crate) repeats: Option<RunId>,
}

// A comment of the other kind would be the command's.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Graders {
    /// Grades answers; see --help for the graders. Given again, the first is the one that is
    /// published, and the grades of the others stand beside.
    #[arg(long, value_name = "GRADER", long_help = graders::HELP)]
    pub(crate) grader: Vec<GraderArg>,
    /// What --grader model:NAME asks, instead of its own text; see --help for that.
    #[arg(long, value_name = "FILE", long_help = judge::HELP)]
    pub(crate) grader_prompt: Option<PathBuf>,
    /// The grades that --grader model:NAME may give, 0..1 unless set. A grade outside is refused, and
    /// leaves the attempt without one.
    #[arg(long, value_name = "LOW..HIGH", allow_hyphen_values = true)]
    pub(crate) grader_range: Option<RangeArg>,
}

/// How progress is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressArg {
    /// A bar on a terminal, lines elsewhere.
    #[default]
    Auto,
    /// One line that is written over, as wide as the terminal; lines where there is no terminal.
    Bar,
    /// One line for each call that ended.
    Lines,
    /// One JSON object for each call that ended.
    Json,
    /// Nothing but what is said beside.
    None,
}

/// What a repeat would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum EffectArg {
    /// Nothing but another answer.
    ReadOnly,
    /// Possibly the same work a second time: repeated only when it was not reached or turned away.
    Writes,
}

impl From<EffectArg> for attempt_ledger_core::Effect {
    fn from(arg: EffectArg) -> Self {
        match arg {
            EffectArg::ReadOnly => Self::ReadOnly,
            EffectArg::Writes => Self::Writes,
        }
    }
}

/// Grades the answers that `run --archive` kept, after their run.
///
/// First attempts that are content and have no grade get theirs, bound to the very answer; what has a
/// grade keeps it. The run must have been graded by the same grader, with the same expected answers,
/// or by none: then its settings name this one from now on. Tells how many were graded, had no kept
/// answer, or failed; ends with 1 when one failed or Ctrl-C came first.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
An answer that was changed since it was kept is named, is not graded, and counts as failed.

Examples:
  attempt-ledger run cases.jsonl --base-url http://127.0.0.1:8080/v1 --model m --ledger ./notebook \\
      --archive
  attempt-ledger grade ./notebook --grader contains --cases cases.jsonl")]
pub(crate) struct Grade {
    /// The directory of the ledger.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// The run; the newest unless set.
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<RunId>,
    /// Grades answers; see --help for the graders.
    #[arg(long, value_name = "GRADER", long_help = graders::HELP)]
    pub(crate) grader: GraderArg,
    /// The cases that the run was made of, for graders that compare with "expected". Their
    /// fixtures must be the run's.
    #[arg(long, value_name = "CASES.jsonl")]
    pub(crate) cases: Option<PathBuf>,
}

/// Makes an earlier run once more, as a run of its own.
///
/// As `run --fresh` with the settings of that run: URL, model, clocks, attempts, budget, effect, epochs,
/// stream, and the graders where their names say all of them. What a ledger does not hold is asked for,
/// and checked against its digests there: the cases, --params, and all graders where one has settings.
/// Cases that are not the earlier run's, and settings that differ, are refused before anything is sent.
/// A run with checks cannot be made again so: give them to `run --fresh`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
`attempt-ledger report DIR` lists the earlier run beside the new one.

Examples:
  attempt-ledger rerun ./notebook --cases cases.jsonl
  attempt-ledger rerun ./notebook --run nightly-7 --cases cases.jsonl \\
    --params '{\"temperature\":0}'")]
pub(crate) struct Rerun {
    /// The directory of the ledger.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// The run to repeat; the newest unless set.
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<RunId>,
    /// The cases that the run was made of.
    #[arg(long, value_name = "CASES.jsonl")]
    pub(crate) cases: PathBuf,
    /// The fields of every request, as the run was begun with them.
    #[arg(long, value_name = "JSON")]
    pub(crate) params: Option<String>,
    #[command(flatten)]
    pub(crate) graders: Graders,
    /// The environment variable that holds the API key, sent as a bearer token.
    #[arg(long, value_name = "VARIABLE")]
    pub(crate) api_key_env: Option<String>,
    /// At most so many calls at once. A server that throttles is asked less, and is waited for before
    /// a first attempt is spent.
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) concurrency: u32,
    /// Waits for no server before a call: first attempts are spent on one that throttles.
    #[arg(long)]
    pub(crate) no_pacing: bool,
    /// Keeps the answers, as `run --archive` does.
    #[arg(long)]
    pub(crate) archive: bool,
}

/// Prints the published numbers of a run.
///
/// They are first-attempt quality, availability faults and refused promotions, and what is needed to
/// read them.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A coverage below the floor is marked FAIL, and does not change the exit code.

Examples:
  attempt-ledger report ./notebook
  attempt-ledger report ./notebook --run nightly-7 --json")]
pub(crate) struct Report {
    /// The directory of the ledger.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// The run; the newest unless set.
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<RunId>,
    /// Prints one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Prints the attempts of a ledger, in the order in which they were opened.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  attempt-ledger log ./notebook --case case-7
  attempt-ledger log ./notebook --json | head -3
  attempt-ledger log ./notebook --events")]
pub(crate) struct Log {
    /// The directory of the ledger.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Only this run.
    #[arg(long, value_name = "RUN", conflicts_with = "events")]
    pub(crate) run: Option<RunId>,
    /// Only this case.
    #[arg(long, value_name = "CASE", conflicts_with = "events")]
    pub(crate) case: Option<CaseId>,
    /// Prints one JSON object an attempt.
    #[arg(long)]
    pub(crate) json: bool,
    /// Prints the events as they are stored, one a line.
    #[arg(long, conflicts_with = "json")]
    pub(crate) events: bool,
}

/// Adds a remark to an attempt.
///
/// It is shown by `log`, and is in no number.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  attempt-ledger note ./notebook 0123456789abcdef0123456789abcdef \\
    'the server was being restarted'
  attempt-ledger note ./notebook 17 'the answer is right, the grader is not'
  attempt-ledger note ./notebook 'case-7#1' 'cut by the proxy' --run nightly-7")]
pub(crate) struct Note {
    /// The directory of the ledger.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// The attempt: its `seq` as `log` shows it, CASE#ORDINAL, or its id as `log --json` prints it,
    /// of which the beginning is enough.
    #[arg(value_name = "ATTEMPT")]
    pub(crate) attempt: String,
    /// The remark.
    #[arg(value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) text: String,
    /// The run that the attempt is of; for CASE#ORDINAL the newest unless set.
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<RunId>,
}

/// Says the verdict of recorded HTTP responses.
///
/// The bytes are played to the same client and ledger that watch live requests. Prints one JSON
/// object a file, and ends with 0 whatever the verdicts are.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  attempt-ledger classify openai-chat/*.http --stream
  attempt-ledger classify response.http --wire openai-chat")]
pub(crate) struct Classify {
    /// The files, each the raw response as `curl -si --raw` writes it: status line, headers, an empty
    /// line, and the body as it was transferred; with --http1.1 where curl would take another.
    #[arg(value_name = "FILE.http", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// The wire that they are read as; the name of each file's folder unless set.
    #[arg(long, value_name = "WIRE", value_parser = wires())]
    pub(crate) wire: Option<String>,
    /// The requests asked for streams.
    #[arg(long)]
    pub(crate) stream: bool,
}

/// The names of all wires, each with what it is.
fn wires() -> PossibleValuesParser {
    let named =
        |wire: &Wire| PossibleValue::new(wire.as_str()).help(wire.about().trim_end_matches('.'));
    PossibleValuesParser::new(Wire::ALL.iter().map(named))
}

/// Prints a script that completes this command in a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  attempt-ledger completions bash \\
    > ~/.local/share/bash-completion/completions/attempt-ledger
  attempt-ledger completions zsh > ~/.zfunc/_attempt-ledger
  attempt-ledger completions fish \\
    > ~/.config/fish/completions/attempt-ledger.fish")]
pub(crate) struct Completions {
    /// The shell.
    #[arg(value_enum, value_name = "SHELL")]
    pub(crate) shell: clap_complete::Shell,
}

/// Prints the manual page, or writes one for each command.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  attempt-ledger man | man -l -
  attempt-ledger man --dir ~/.local/share/man/man1")]
pub(crate) struct Man {
    /// Writes a page for each command to this directory, which is made if it is not there, and
    /// prints their names.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_arguments_are_consistent() {
        super::Args::command().debug_assert();
    }
}
