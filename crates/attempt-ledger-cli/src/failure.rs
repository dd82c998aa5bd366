//! How the command ends: its exit codes, and what it says when something is in the way.

use std::{
    error::Error,
    fmt,
    io::{self, Write as _},
    process::ExitCode,
};

use attempt_ledger_core::FoldError;
use attempt_ledger_store::{
    StoreError,
    file::{Damage, DamageKind, OpenError},
};

use crate::out;

/// The exit codes, as `--help` documents them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// All is as it should be.
    Fine = 0,
    /// The demonstration found something else than expected, or a run was stopped before its end.
    Failed = 1,
    /// What was asked for, or an input, is wrong, and nothing was sent; or the output could not be
    /// written.
    Usage = 2,
    /// The ledger could not be opened, read or written.
    Ledger = 3,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

/// Why the command could not do what it was asked for.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Nobody reads the output any more, as with `| head`: no failure of ours.
    Closed,
    /// What is said, and the code with which it ends.
    Said(Box<Said>),
}

#[derive(Debug)]
pub(crate) struct Said {
    exit: Exit,
    message: String,
    hint: Option<String>,
    /// The errors it comes from, outermost first.
    causes: Vec<String>,
}

impl Failure {
    /// A wrong argument or input.
    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// Something that the ledger did not do.
    pub(crate) fn ledger(message: impl fmt::Display) -> Self {
        Self::new(Exit::Ledger, message)
    }

    fn new(exit: Exit, message: impl fmt::Display) -> Self {
        let said = Said { exit, message: message.to_string(), hint: None, causes: Vec::new() };
        Failure::Said(Box::new(said))
    }

    /// With what the reader can do about it.
    pub(crate) fn hint(mut self, hint: impl fmt::Display) -> Self {
        if let Failure::Said(said) = &mut self {
            said.hint = Some(hint.to_string());
        }
        self
    }

    /// With the error it comes from, and all that it comes from.
    pub(crate) fn because(self, error: impl Error) -> Self {
        let text = error.to_string();
        self.because_of(&error, vec![text])
    }

    /// An error of the ledger as the message, with all that it comes from.
    pub(crate) fn of_ledger(error: &dyn Error) -> Self {
        Self::ledger(error).because_of(error, Vec::new())
    }

    /// A ledger that could not be opened, where it was only to be read.
    pub(crate) fn of_reading(error: OpenError) -> Self {
        let denied = matches!(&error, OpenError::Io { cause, .. } if is_denied(cause));
        let failure = Failure::from(error);
        if denied { failure.hint(UNREADABLE) } else { failure }
    }

    fn because_of(mut self, error: &dyn Error, mut causes: Vec<String>) -> Self {
        let mut next = error.source();
        while let Some(error) = next {
            causes.push(error.to_string());
            next = error.source();
        }
        if let Failure::Said(said) = &mut self {
            said.causes = causes;
        }
        self
    }

    /// Says it on standard error; `closed` is the code where only the reader of the output is gone.
    pub(crate) fn report_or(&self, closed: Exit) -> Exit {
        let Failure::Said(said) = self else { return closed };
        let mut text = format!("error: {}\n", said.message);
        for cause in &said.causes {
            text.push_str(&format!("  caused by: {cause}\n"));
        }
        if let Some(hint) = &said.hint {
            text.push_str(&format!("hint: {hint}\n"));
        }
        out::complain(&text);
        said.exit
    }
}

/// Prints help, the version, or what is wrong with the arguments.
pub(crate) fn of_arguments(error: &clap::Error) -> Exit {
    if error.use_stderr() {
        // It repeats the arguments, and so passes where all text does.
        out::complain(&error.render().to_string());
        return Exit::Usage;
    }
    // A closed pipe is no failure here either.
    match error.print().and_then(|()| io::stdout().flush()) {
        Ok(()) => Exit::Fine,
        Err(error) => Failure::from(error).report_or(Exit::Fine),
    }
}

impl From<io::Error> for Failure {
    /// Of writing to standard output; every other place says what it was doing.
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure::Closed;
        }
        Failure::usage("the output could not be written").because(error)
    }
}

const UNREADABLE: &str = "ask its owner for the right to read the directory and the files in it";

fn is_denied(cause: &io::Error) -> bool {
    cause.kind() == io::ErrorKind::PermissionDenied
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        let hint = match &error {
            OpenError::Missing(_) => {
                Some("name the directory of a ledger; `attempt-ledger run` and `demo` make one")
            }
            OpenError::Damaged(Damage { kind: DamageKind::Io(cause), .. }) if is_denied(cause) => {
                Some(UNREADABLE)
            }
            OpenError::Damaged(_) => Some("keep a copy of the directory before anything else"),
            OpenError::Io { cause, .. } => match cause.kind() {
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                    Some("name a directory that you may write to")
                }
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    Some("make room on that disk, or name a directory on another one")
                }
                io::ErrorKind::NotFound => Some("make its parent directory first"),
                _ => None,
            },
            _ => None,
        };
        let failure = Failure::of_ledger(&error);
        match hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Failure::of_ledger(&error)
    }
}

impl From<Damage> for Failure {
    fn from(error: Damage) -> Self {
        OpenError::Damaged(error).into()
    }
}

impl From<FoldError> for Failure {
    fn from(error: FoldError) -> Self {
        Failure::ledger("the ledger's rows contradict each other")
            .because(error)
            .hint("it was altered, or written by a faulty program; keep a copy of it")
    }
}

#[cfg(test)]
mod tests {
    use std::{path::Path, sync::Arc};

    use super::*;

    #[test]
    fn who_may_not_read_is_not_told_to_write() {
        let denied = || Arc::new(io::Error::from(io::ErrorKind::PermissionDenied));
        let file = || Arc::<Path>::from(Path::new("d"));
        let io = || OpenError::Io { action: "read", file: file(), cause: denied() };
        let hint = |failure: Failure| match failure {
            Failure::Said(said) => said.hint.unwrap_or_default(),
            Failure::Closed => String::new(),
        };
        assert_eq!(hint(Failure::of_reading(io())), UNREADABLE);
        assert!(hint(io().into()).contains("may write to"));
    }
}
