//! What `--check` names: what turns an `ok` answer into one that is `off_target`.

use std::{collections::HashMap, path::PathBuf, str::FromStr};

use attempt_ledger::{
    Check, CheckInput, Checked, ContainsText, HasField, IsJson, MatchesRegex, MatchesSchema,
    NonEmpty,
};
use attempt_ledger_core::CheckInfo;

use crate::{
    failure::Failure,
    graders::{in_file, schema, split, told},
};

/// One `--check`.
#[derive(Clone, Debug)]
pub(crate) enum CheckArg {
    NonEmpty,
    Json,
    Schema(PathBuf),
    Field(String),
    Contains(String),
    Regex(String),
}

/// What `--help` says of each.
pub(crate) const HELP: &str = "\
Makes an answer `off_target` in place of `ok` when it fails; it is
graded all the same. Give it again for more; the first that fails is
named in the row. CHECK is one of
  non-empty         there is text, and not a tool call alone
  json              the text is one JSON value
  json-schema:FILE  the text is JSON of the schema in FILE; nothing
                    else is fetched
  field:POINTER     the text is JSON with a value at a JSON pointer,
                    such as field:/user/name
  contains:TEXT     the text contains this
  regex:PATTERN     this pattern is found in the text; ^ and $ are the
                    ends of the text";

const NAMES: &str =
    "they are non-empty, json, json-schema:FILE, field:POINTER, contains:TEXT, regex:PATTERN";

impl FromStr for CheckArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, setting) = split(text);
        match (name, setting) {
            ("non-empty", None) => Ok(CheckArg::NonEmpty),
            ("json", None) => Ok(CheckArg::Json),
            ("non-empty" | "json", Some(_)) => Err(format!("{name} has no setting; leave it bare")),
            ("json-schema", Some(file)) if !file.is_empty() => Ok(CheckArg::Schema(file.into())),
            ("field", Some(pointer)) => {
                HasField::new(pointer).map_err(|error| told(&error))?;
                Ok(CheckArg::Field(pointer.to_owned()))
            }
            ("contains", Some(text)) if !text.is_empty() => Ok(CheckArg::Contains(text.to_owned())),
            ("regex", Some(pattern)) if !pattern.is_empty() => {
                MatchesRegex::new(pattern).map_err(|error| told(&error))?;
                Ok(CheckArg::Regex(pattern.to_owned()))
            }
            ("json-schema" | "field" | "contains" | "regex", _) => {
                Err(format!("{name} needs a setting behind a colon; {NAMES}"))
            }
            _ => Err(format!("is no check; {NAMES}")),
        }
    }
}

/// The checks, in their order, each with a name of its own.
pub(crate) fn build(args: &[CheckArg]) -> Result<Vec<AnyCheck>, Failure> {
    let mut seen: HashMap<String, u32> = HashMap::new();
    let mut all = Vec::new();
    for arg in args {
        let check = arg.build()?;
        let mut info = check.info();
        let before = seen.entry(info.name.clone()).or_default();
        *before += 1;
        if *before > 1 {
            info.name = format!("{}-{before}", info.name);
        }
        all.push(AnyCheck { check, info });
    }
    Ok(all)
}

impl CheckArg {
    fn build(&self) -> Result<Box<dyn Check>, Failure> {
        let wrong = |error: attempt_ledger::RuleError| Failure::usage("--check").because(error);
        Ok(match self {
            CheckArg::NonEmpty => Box::new(NonEmpty::new()),
            CheckArg::Json => Box::new(IsJson::new()),
            CheckArg::Schema(path) => {
                let check = MatchesSchema::new(&schema(path)?);
                Box::new(check.map_err(|error| in_file(path, error))?)
            }
            CheckArg::Field(pointer) => Box::new(HasField::new(&**pointer).map_err(wrong)?),
            CheckArg::Contains(text) => Box::new(ContainsText::new(&**text)),
            CheckArg::Regex(pattern) => Box::new(MatchesRegex::new(pattern).map_err(wrong)?),
        })
    }
}

/// Any check of the command line.
pub(crate) struct AnyCheck {
    check: Box<dyn Check>,
    info: CheckInfo,
}

impl Check for AnyCheck {
    fn info(&self) -> CheckInfo {
        self.info.clone()
    }

    fn check(&self, input: &CheckInput<'_>) -> Checked {
        self.check.check(input)
    }
}
