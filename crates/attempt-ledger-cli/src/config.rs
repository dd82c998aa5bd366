//! `run --config FILE`: options from a TOML file, under the names that they have on the command
//! line, which wins.
//!
//! What the file says is put among the arguments, so that clap reads and checks both in one way.

use std::{
    any::TypeId,
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

use attempt_ledger_core::Escaped;
use clap::{
    Arg, ArgAction, ArgMatches, Command, CommandFactory as _, FromArgMatches as _, Parser as _,
    error::{ContextKind, ContextValue},
    parser::ValueSource,
};
use toml::de::{DeTable, DeValue};

use crate::{
    args::Args,
    checks::CheckArg,
    failure::{self, Exit, Failure},
    graders::{GraderArg, whole},
};

/// Where options that were given come from.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    file: PathBuf,
    /// Each option by its name, with its line in the file; `None` for the command line.
    options: BTreeMap<String, Option<usize>>,
}

impl Sources {
    /// Logs them; never the values.
    pub(crate) fn log(&self) {
        for (option, line) in &self.options {
            let from = match line {
                Some(line) => format!("{}, line {line}", self.file.display()),
                None => "the command line".to_owned(),
            };
            tracing::info!(target: "attempt_ledger", %option, from = %Escaped(&from), "given");
        }
    }
}

/// Reads the arguments, with those of the file that `--config` names.
pub(crate) fn parse(argv: &[OsString]) -> Result<(Args, Sources), Exit> {
    let plain = || match Args::try_parse_from(argv) {
        Ok(args) => Ok((args, Sources::default())),
        Err(error) => Err(failure::of_arguments(&error)),
    };
    // What the file is to give must not be missed before it is read.
    let lenient = Args::command().mut_subcommand("run", |run| {
        run.mut_args(|arg| match arg.get_id().as_str() {
            "help" => arg,
            _ => arg.required(false),
        })
    });
    let Ok(matches) = lenient.try_get_matches_from(argv) else { return plain() };
    let Some(given) = matches.subcommand_matches("run") else { return plain() };
    let Some(path) = given.get_one::<PathBuf>("config") else { return plain() };
    let mut command = Args::command();
    command.build();
    let Some(run) = command.find_subcommand("run") else { return plain() };
    let file = File::read(path, run, given).map_err(|failure| failure.report_or(Exit::Usage))?;
    // The first word is the program, whatever its name is.
    let (before, after) = match argv.iter().skip(1).position(|word| word == "run") {
        Some(at) => argv.split_at(at + 2),
        None => return plain(),
    };
    // Before the command line's own, so that of two that undo each other the latter holds.
    let all = before.iter().cloned().chain(file.words()).chain(after.iter().cloned());
    let parsed = Args::command().try_get_matches_from(all);
    let args = parsed.and_then(|matches| Args::from_arg_matches(&matches));
    match args {
        Ok(args) => Ok((args, file.sources(run, given))),
        Err(error) => match file.blame(&error) {
            Some(failure) => Err(failure.report_or(Exit::Usage)),
            None => Err(failure::of_arguments(&error)),
        },
    }
}

/// No file of options is longer, in bytes.
const MOST: u64 = 1 << 20;

/// The options of a file that hold.
struct File {
    path: PathBuf,
    options: Vec<Given>,
}

struct Given {
    name: String,
    line: usize,
    /// As arguments; none for a flag that is off.
    words: Vec<OsString>,
}

impl File {
    fn read(path: &Path, run: &Command, given: &ArgMatches) -> Result<File, Failure> {
        let text = whole(path, MOST)?;
        let text = String::from_utf8(text).map_err(|error| {
            Failure::usage(format_args!("{} is no text", path.display())).because(error)
        })?;
        let place = Place { path, text: &text };
        let table = DeTable::parse(&text).map_err(|error| {
            // Its own text would show the line, which may hold anything.
            place.failure(error.span().map_or(0, |span| span.start), None, error.message())
        })?;
        let mut entries: Vec<_> = table.into_inner().into_iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        let mut options = Vec::new();
        for (key, value) in entries {
            let (at, name) = (key.span().start, key.get_ref().to_string());
            let refuse = |what: &str| place.failure(at, Some(&name), what);
            let Some(arg) = option(run, &name) else { return Err(unknown(run, &name, &refuse)) };
            let words = words(arg, value.get_ref(), path).map_err(|what| refuse(&what))?;
            if !is_overruled(run, arg, given) {
                options.push(Given { name, line: place.line(at), words });
            }
        }
        Ok(File { path: path.to_owned(), options })
    }

    fn words(&self) -> impl Iterator<Item = OsString> {
        self.options.iter().flat_map(|option| option.words.iter().cloned())
    }

    fn sources(self, run: &Command, given: &ArgMatches) -> Sources {
        let on_line = run.get_arguments().filter(|arg| is_given(arg, given));
        let on_line = on_line.map(|arg| (name(arg).to_owned(), None));
        let in_file = self.options.into_iter().map(|option| (option.name, Some(option.line)));
        Sources { file: self.path, options: on_line.chain(in_file).collect() }
    }

    /// The error, where an option of the file is at its bottom.
    fn blame(&self, error: &clap::Error) -> Option<Failure> {
        let Some(ContextValue::String(arg)) = error.get(ContextKind::InvalidArg) else {
            return None;
        };
        let name = arg.split([' ', '=']).next()?.trim_start_matches('-');
        let option = self.options.iter().find(|option| option.name == name)?;
        let text = error.render().to_string();
        let what = text.lines().next()?.trim_start_matches("error: ");
        let (path, line) = (self.path.display(), option.line);
        Some(Failure::usage(format_args!("{path}, line {line}, key `{name}`: {what}")))
    }
}

#[derive(Clone, Copy)]
struct Place<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Place<'_> {
    fn line(self, at: usize) -> usize {
        self.text.bytes().take(at).filter(|&byte| byte == b'\n').count() + 1
    }

    fn failure(self, at: usize, key: Option<&str>, what: &str) -> Failure {
        let key = key.map(|key| format!(", key `{key}`")).unwrap_or_default();
        let (path, line) = (self.path.display(), self.line(at));
        Failure::usage(format_args!("{path}, line {line}{key}: {what}"))
    }
}

/// The name of an option in a file: its long name, or that of the argument.
fn name(arg: &Arg) -> &str {
    arg.get_long().unwrap_or(arg.get_id().as_str())
}

/// The options of `run` itself: those of every command say how to tell, and stay outside.
fn option<'a>(run: &'a Command, wanted: &str) -> Option<&'a Arg> {
    let own =
        |arg: &&Arg| !arg.is_global_set() && !matches!(name(arg), "config" | "help" | "version");
    run.get_arguments().filter(own).find(|arg| name(arg) == wanted)
}

fn unknown(run: &Command, name: &str, refuse: &dyn Fn(&str) -> Failure) -> Failure {
    let failure = refuse("is no option of `run`");
    let dashed = name.replace('_', "-");
    if option(run, &dashed).is_some() {
        return failure.hint(format_args!("write `{dashed}`"));
    }
    if name.contains("key") {
        return failure
            .hint("a key never stands in a file: `api-key-env` names the variable that holds it");
    }
    failure.hint("the keys are the long names in `attempt-ledger run --help`, and `cases`")
}

fn is_given(arg: &Arg, given: &ArgMatches) -> bool {
    let id = arg.get_id().as_str();
    matches!(given.try_contains_id(id), Ok(true))
        && given.value_source(id) == Some(ValueSource::CommandLine)
}

/// Whether the command line has it, or what cannot stand beside it.
fn is_overruled(run: &Command, arg: &Arg, given: &ArgMatches) -> bool {
    let against = |other: &&Arg| {
        run.get_arg_conflicts_with(other).iter().any(|one| one.get_id() == arg.get_id())
            || run.get_arg_conflicts_with(arg).iter().any(|one| one.get_id() == other.get_id())
    };
    is_given(arg, given) || run.get_arguments().filter(against).any(|other| is_given(other, given))
}

/// A value as the command line would have it.
fn words(arg: &Arg, value: &DeValue<'_>, path: &Path) -> Result<Vec<OsString>, String> {
    let word = |text: &OsStr| match arg.get_long() {
        Some(long) => [OsStr::new("--"), OsStr::new(long), OsStr::new("="), text]
            .into_iter()
            .collect::<OsString>(),
        None => text.to_owned(),
    };
    if !arg.get_action().takes_values() {
        let on = value.as_bool().ok_or("is a flag: write true or false")?;
        let flag = arg.get_long().map(|long| OsString::from(format!("--{long}")));
        return Ok(flag.into_iter().filter(|_| on).collect());
    }
    let one = |value: &DeValue<'_>| -> Result<OsString, String> {
        let text = text(value)?;
        let kind = arg.get_value_parser().type_id();
        let rules = [TypeId::of::<GraderArg>(), TypeId::of::<CheckArg>()];
        let names_file = rules.iter().any(|rule| kind == *rule);
        Ok(match text.split_once(':') {
            _ if kind == TypeId::of::<PathBuf>() => word(beside(path, &text).as_os_str()),
            Some((kind @ "json-schema", file)) if names_file => {
                let file = beside(path, file);
                word(
                    &[OsStr::new(kind), OsStr::new(":"), file.as_os_str()]
                        .into_iter()
                        .collect::<OsString>(),
                )
            }
            _ => word(OsStr::new(&text)),
        })
    };
    match (value.as_array(), arg.get_action()) {
        (Some(values), ArgAction::Append) => {
            values.iter().map(|value| one(value.get_ref())).collect()
        }
        (Some(_), _) => Err("is given once: write one value".to_owned()),
        (None, _) => Ok(vec![one(value)?]),
    }
}

/// A path of the file is relative to the file.
fn beside(file: &Path, path: &str) -> PathBuf {
    file.parent().unwrap_or(Path::new("")).join(path)
}

fn text(value: &DeValue<'_>) -> Result<String, String> {
    match value {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) => {
            Ok(json(value)?.to_string())
        }
        // Such as the fields of --params.
        DeValue::Table(_) => Ok(json(value)?.to_string()),
        DeValue::Array(_) => Err("cannot be a list".to_owned()),
        _ => Err(format!("cannot be a {}", value.type_str())),
    }
}

/// The same as JSON.
fn json(value: &DeValue<'_>) -> Result<serde_json::Value, String> {
    Ok(match value {
        DeValue::String(text) => text.to_string().into(),
        DeValue::Boolean(bool) => (*bool).into(),
        DeValue::Integer(number) => {
            let parsed = i128::from_str_radix(number.as_str(), number.radix());
            let number = parsed.ok().and_then(serde_json::Number::from_i128);
            number.ok_or("is a number beyond 64 bits")?.into()
        }
        DeValue::Float(number) => {
            let parsed = number.as_str().parse().ok().and_then(serde_json::Number::from_f64);
            parsed.ok_or("is no finite number")?.into()
        }
        DeValue::Array(all) => {
            all.iter().map(|one| json(one.get_ref())).collect::<Result<Vec<_>, _>>()?.into()
        }
        DeValue::Table(table) => {
            let fields = table.iter().map(|(key, value)| {
                Ok::<_, String>((key.get_ref().to_string(), json(value.get_ref())?))
            });
            fields.collect::<Result<serde_json::Map<_, _>, _>>()?.into()
        }
        DeValue::Datetime(_) => return Err("cannot hold a date or a time; write text".to_owned()),
    })
}
