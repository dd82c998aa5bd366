//! `run`: the cases of a file against a server.

use std::io;

use attempt_ledger::ClientError;

use crate::{
    args,
    failure::{Exit, Failure},
    out::Out,
};

pub(crate) fn run(_args: &args::Run, _out: &mut Out) -> Result<Exit, Failure> {
    Err(Failure::usage("not there yet"))
}

/// The process has no room for what runs the calls.
pub(crate) fn no_runtime(error: io::Error) -> Failure {
    Failure::usage("no threads for the calls could be started").because(error)
}

/// The client could not be made.
pub(crate) fn no_client(error: ClientError) -> Failure {
    Failure::usage("the client could not be set up").because(error)
}
