//! `completions` and `man`: what shells and readers of manuals are given, made from the arguments.

use std::{fs, io, path::Path};

use clap::{Command, CommandFactory as _};
use clap_complete::Shell;

use crate::{
    args::{self, Args},
    failure::{Exit, Failure},
    out::Out,
};

const NAME: &str = "attempt-ledger";

pub(crate) fn completions(args: &args::Completions, out: &mut Out) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), NAME, &mut script);
    if args.shell != Shell::Bash {
        out.bytes(&script)?;
        return Ok(Exit::Fine);
    }
    // clap_complete spells a name with a hyphen in two ways, and so finds no subcommand:
    // https://github.com/clap-rs/clap/issues/6421
    let script = String::from_utf8_lossy(&script);
    out.bytes(script.replace("attempt__subcmd__ledger", "attempt__ledger").as_bytes())?;
    Ok(Exit::Fine)
}

pub(crate) fn man(args: &args::Man, out: &mut Out) -> Result<Exit, Failure> {
    let mut command = Args::command();
    command.build();
    let Some(dir) = &args.dir else {
        out.bytes(&page(&command, NAME)?)?;
        return Ok(Exit::Fine);
    };
    fs::create_dir_all(dir).map_err(|error| unwritten(dir, error))?;
    write(dir, NAME, &command, out)?;
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
        write(dir, &format!("{NAME}-{}", sub.get_name()), sub, out)?;
    }
    Ok(Exit::Fine)
}

fn write(dir: &Path, name: &str, command: &Command, out: &mut Out) -> Result<(), Failure> {
    let path = dir.join(format!("{name}.1"));
    fs::write(&path, page(command, name)?).map_err(|error| unwritten(&path, error))?;
    writeln!(out, "{}", path.display())
}

fn page(command: &Command, name: &str) -> Result<Vec<u8>, Failure> {
    let mut page = Vec::new();
    let man = clap_mangen::Man::new(command.clone().version(env!("CARGO_PKG_VERSION")));
    man.title(name.to_uppercase()).render(&mut page)?;
    Ok(page)
}

fn unwritten(path: &Path, error: io::Error) -> Failure {
    Failure::usage(format_args!("{} could not be written", path.display())).because(error)
}
