//! The command `attempt-ledger`: see its `--help`.

mod archive;
mod args;
mod checks;
mod classify;
mod config;
mod demo;
mod duration;
mod failure;
mod grade;
mod graders;
mod judge;
mod ledger;
mod log;
mod logging;
mod lookup;
mod missed;
mod note;
mod out;
mod policy;
mod report;
mod request;
mod rerun;
mod run;
mod shell;
mod threads;

use std::process::ExitCode;

use args::{Args, Command};
use failure::{Exit, Failure};
use out::Out;

fn main() -> ExitCode {
    let (args, sources) = match config::parse(&std::env::args_os().collect::<Vec<_>>()) {
        Ok(parsed) => parsed,
        Err(exit) => return exit.into(),
    };
    logging::start(args.global.level());
    sources.log();
    let mut out = Out::stdout(args.global.color);
    match dispatch(args, &mut out) {
        // What was found stands, whether somebody reads it or not.
        Ok(exit) => out.flush().map_or_else(|failure| failure.report_or(exit), |()| exit).into(),
        Err(failure) => failure.report_or(Exit::Fine).into(),
    }
}

fn dispatch(args: Args, out: &mut Out) -> Result<Exit, Failure> {
    match args.command {
        Command::Demo(args) => demo::demo(&args, out),
        Command::Run(args) => run::run(&args, out),
        Command::Grade(args) => grade::grade(&args, out),
        Command::Rerun(args) => rerun::rerun(&args, out),
        Command::Report(args) => report::report(&args, out),
        Command::Log(args) => log::log(&args, out),
        Command::Note(args) => note::note(args, out),
        Command::Classify(args) => classify::classify(&args, out),
        Command::Policy => policy::policy(out),
        Command::Completions(args) => shell::completions(&args, out),
        Command::Man(args) => shell::man(&args, out),
    }
}
