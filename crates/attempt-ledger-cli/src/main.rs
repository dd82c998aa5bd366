//! The command `attempt-ledger`: see its `--help`.

mod archive;
mod args;
mod classify;
mod demo;
mod duration;
mod failure;
mod graders;
mod ledger;
mod log;
mod logging;
mod lookup;
mod note;
mod out;
mod policy;
mod report;
mod request;
mod run;

use std::process::ExitCode;

use clap::Parser as _;

use args::{Args, Command};
use failure::{Exit, Failure};
use out::Out;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return failure::of_arguments(&error).into(),
    };
    logging::start(args.global.level());
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
        Command::Report(args) => report::report(&args, out),
        Command::Log(args) => log::log(&args, out),
        Command::Note(args) => note::note(args, out),
        Command::Classify(args) => classify::classify(&args, out),
        Command::Policy => policy::policy(out),
    }
}
