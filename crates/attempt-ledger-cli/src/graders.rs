//! What `--grader` and `--check` name: read from the command line, and made into what judges.
//!
//! A grader's version says all that shapes its grades: its setting, the content of its file, and the
//! expected answers. With others it is another grader, and a run with it another run.

use std::{
    collections::HashMap,
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use attempt_ledger::{
    BoxError, BoxGrader, ChatTemplate, CommandGrader, Contains, Exact, GradeInput, Graded, Grader,
    NumberGrader, RegexGrader, RuleError, SchemaGrader,
};
use attempt_ledger_core::{CaseId, Digest, GraderInfo};
use attempt_ledger_store::Ledger;
use bytes::Bytes;
use http::{HeaderValue, Request, Response, Uri};
use http_body::Body;
use http_body_util::Full;
use tower::Service;

use crate::{
    failure::Failure,
    judge::{self, Question},
    missed::Missed,
    run::{cases::Case, target::is_name},
};

/// One `--grader`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum GraderArg {
    /// The same text as expected.
    Exact,
    /// Text that contains what is expected.
    Contains,
    /// Text in which a pattern is found: this one, or the case's own.
    Regex(Option<String>),
    /// The expected number, so far off at most.
    Number(f64),
    /// JSON of the schema in this file.
    Schema(PathBuf),
    /// What a line of the shell prints.
    Command(String),
    /// What this model says, at the server of the run.
    Model(String),
}

/// What `--help` says of each.
pub(crate) const HELP: &str = "\
Grades answers; the first attempt's grade is the score. GRADER is
one of
  exact             1 when the answer is the case's \"expected\", but
                    for white space at its ends
  contains          1 when the answer contains the case's \"expected\"
  regex             1 when the case's \"expected\" is a pattern that is
                    found in the answer
  regex:PATTERN     1 when this pattern is found in the answer; ^ and
                    $ are the ends of the text
  number            1 when the last number of the answer is that of
                    the case's \"expected\"
  number:TOLERANCE  the same, when it is so far off at most
  json-schema:FILE  1 when the answer is JSON of the schema in FILE;
                    nothing else is fetched
  command:LINE      the number, from 0 to 1, that this line of the
                    shell prints; it is given one JSON object on its
                    standard input: run, case, epoch, step, ordinal,
                    verdict, text, tool_calls, refusal, finish_reason,
                    and expected where the case has it; another exit
                    code than 0 leaves the attempt without a grade
  model:NAME        the last number that this model says, asked at the
                    same server with the same key; see --grader-prompt
                    and --grader-range. Its calls are rows of role
                    grader
and else 0. Where \"expected\" is compared with, every case needs it.";

const NAMES: &str = "they are exact, contains, regex, number, json-schema:FILE, command:LINE, model:NAME; see --help";

impl FromStr for GraderArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, setting) = split(text);
        let needs = |what: &str| format!("{name} needs a setting: {name}:{what}");
        match (name, setting) {
            ("exact", None) => Ok(GraderArg::Exact),
            ("contains", None) => Ok(GraderArg::Contains),
            ("exact" | "contains", Some(_)) => {
                Err(format!("{name} has no setting; it compares with each case's \"expected\""))
            }
            ("regex", None) => Ok(GraderArg::Regex(None)),
            ("regex", Some("")) => Err("regex: has no pattern behind the colon".to_owned()),
            ("regex", Some(pattern)) => {
                RegexGrader::new(pattern).map_err(|error| told(&error))?;
                Ok(GraderArg::Regex(Some(pattern.to_owned())))
            }
            ("number", None) => Ok(GraderArg::Number(0.0)),
            ("number", Some(tolerance)) => tolerance
                .parse()
                .ok()
                .filter(|wide: &f64| wide.is_finite() && *wide >= 0.0)
                .map(GraderArg::Number)
                .ok_or_else(|| "the tolerance is no number, 0 or more".to_owned()),
            ("json-schema", Some(file)) if !file.is_empty() => Ok(GraderArg::Schema(file.into())),
            ("json-schema", _) => Err(needs("FILE")),
            ("command", Some(line)) if !line.trim().is_empty() => {
                Ok(GraderArg::Command(line.to_owned()))
            }
            ("command", _) => Err(needs("LINE")),
            ("model", Some(model)) if is_name(model) => Ok(GraderArg::Model(model.to_owned())),
            ("model", Some(model)) if !model.is_empty() => {
                Err("the model's name has more than 256 bytes, or a control character".to_owned())
            }
            ("model", _) => Err(needs("NAME")),
            _ => Err(format!("is no grader; {NAMES}")),
        }
    }
}

impl GraderArg {
    /// Whether every case needs an expected answer for it.
    pub(crate) fn needs_expected(&self) -> bool {
        matches!(
            self,
            GraderArg::Exact | GraderArg::Contains | GraderArg::Regex(None) | GraderArg::Number(_)
        )
    }

    /// The grader, with what each case has.
    pub(crate) fn build(&self, known: &Known<'_>) -> Result<AnyGrader, Failure> {
        let wrong = |error: RuleError| Failure::usage("--grader").because(error);
        let expected = known.expected;
        let all = || expected.clone();
        let grader = match self {
            GraderArg::Exact => BoxGrader::new(Exact::new(all())),
            GraderArg::Contains => BoxGrader::new(Contains::new(all())),
            GraderArg::Regex(None) => BoxGrader::new(RegexGrader::by_case(all()).map_err(wrong)?),
            GraderArg::Regex(Some(pattern)) => {
                BoxGrader::new(RegexGrader::new(pattern).map_err(wrong)?)
            }
            GraderArg::Number(tolerance) => {
                let grader = NumberGrader::from_text(all()).map_err(wrong)?;
                BoxGrader::new(grader.tolerance(*tolerance).map_err(wrong)?)
            }
            GraderArg::Schema(path) => {
                let schema = schema(path)?;
                BoxGrader::new(SchemaGrader::new(&schema).map_err(|error| in_file(path, error))?)
            }
            GraderArg::Command(line) => BoxGrader::new(CommandGrader::shell(line).expected(all())),
            GraderArg::Model(model) => return known.model(model),
        };
        let compares = self.needs_expected()
            || (matches!(self, GraderArg::Command(_)) && !expected.is_empty());
        Ok(AnyGrader {
            info: grader.info(),
            by: By::Rule(grader),
            compares,
            missed: Missed::default(),
        })
    }
}

/// What a run knows of its cases, for its graders.
pub(crate) struct Known<'a> {
    pub(crate) cases: &'a [Case],
    pub(crate) expected: &'a HashMap<CaseId, String>,
    pub(crate) question: Option<&'a Question>,
    /// Where a grading model is asked.
    pub(crate) uri: Option<&'a Uri>,
}

impl Known<'_> {
    /// All graders, of which the first is published. Rows tell them by their names.
    pub(crate) fn graders(&self, args: &[GraderArg]) -> Result<Vec<AnyGrader>, Failure> {
        let mut all: Vec<AnyGrader> = Vec::new();
        for arg in args {
            let grader = arg.build(self)?;
            let name = &grader.info.name;
            if all.iter().any(|other| other.info.name == *name) {
                return Err(Failure::usage(format_args!(
                    "--grader {arg}: there is a grader named {name:?} already"
                ))
                .hint("rows tell graders by their names: grade with the other one in a run of its own"));
            }
            all.push(grader);
        }
        Ok(all)
    }

    fn model(&self, model: &str) -> Result<AnyGrader, Failure> {
        let (Some(question), Some(uri)) = (self.question, self.uri) else {
            return Err(not_here(&format!("model:{model}")));
        };
        let prompts = self.cases.iter().map(|case| (case.id.clone(), case.prompt()));
        let template = question.template(model, uri, prompts, self.expected)?;
        let compares = question.needs_expected();
        let missed = Missed::default();
        let by = By::Model(Box::new(template));
        Ok(AnyGrader { info: question.info(model), by, compares, missed })
    }
}

fn not_here(name: &str) -> Failure {
    Failure::usage(format_args!("--grader {name} asks the server of a run, while that goes on"))
        .hint("give it to `attempt-ledger run` or `rerun`")
}

/// Any grader of the command line.
#[derive(Clone, Debug)]
pub(crate) struct AnyGrader {
    info: GraderInfo,
    by: By,
    compares: bool,
    missed: Missed,
}

#[derive(Clone, Debug)]
enum By {
    Rule(BoxGrader),
    Model(Box<ChatTemplate>),
}

impl AnyGrader {
    /// The same, with the digest of the expected answers in its version, as the ledger records it.
    pub(crate) fn pinned(self, expected: &HashMap<CaseId, String>, ledger: &Ledger) -> Self {
        if !self.compares {
            return self;
        }
        let pairs = expected.iter().map(|(case, text)| (case, &**text));
        AnyGrader { info: pinned(self.info, pairs, ledger), ..self }
    }

    pub(crate) fn info(&self) -> GraderInfo {
        self.info.clone()
    }

    /// What it will not have graded.
    pub(crate) fn missed(&self) -> Missed {
        self.missed.clone()
    }

    /// Whether it asks a model.
    pub(crate) fn asks(&self) -> bool {
        matches!(self.by, By::Model(_))
    }

    /// What grades, where it asks no model.
    pub(crate) fn by_rule(self) -> Result<ReadyGrader, Failure> {
        match self.by {
            By::Rule(grader) => Ok(ReadyGrader { info: self.info, grader, missed: self.missed }),
            By::Model(_) => Err(not_here(&self.info.name)),
        }
    }

    /// What grades; a model is asked through `client`.
    pub(crate) fn through<S, B>(self, client: S, key: Option<&HeaderValue>) -> ReadyGrader
    where
        S: Service<Request<Full<Bytes>>, Response = Response<B>> + Clone + Send + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send,
        B: Body<Error: Into<BoxError>, Data: Send> + Send + 'static,
    {
        let grader = match self.by {
            By::Rule(grader) => grader,
            By::Model(template) => judge::grader(&self.info, *template, client, key),
        };
        ReadyGrader { info: self.info, grader, missed: self.missed }
    }
}

/// A grader that can grade, under the name and version that the ledger records.
#[derive(Clone, Debug)]
pub(crate) struct ReadyGrader {
    info: GraderInfo,
    grader: BoxGrader,
    missed: Missed,
}

impl Grader for ReadyGrader {
    fn info(&self) -> GraderInfo {
        self.info.clone()
    }

    async fn grade(&self, input: GradeInput) -> Result<Graded, BoxError> {
        self.missed.watch(&self.info, self.grader.grade(input)).await
    }
}

/// The grader with eight hexadecimal digits of the expected answers' digest in its version.
pub(crate) fn pinned<'a>(
    info: GraderInfo,
    expected: impl IntoIterator<Item = (&'a CaseId, &'a str)>,
    ledger: &Ledger,
) -> GraderInfo {
    let all = expected.into_iter().map(|(case, text)| serde_json::json!([case, text]).to_string());
    let mut all: Vec<String> = all.collect();
    // The order of the cases shapes nothing.
    all.sort_unstable();
    // Short answers can be guessed as short prompts can.
    let digest = ledger.recorded(Digest::of(all.join("\n").as_bytes())).hex();
    let version = format!("{}+{}", info.version, digest.get(..8).unwrap_or_default());
    GraderInfo { version, ..info }
}

/// The same grader, whatever it compares with.
pub(crate) fn plain(info: &GraderInfo) -> GraderInfo {
    let version = info.version.split_once('+').map_or(&*info.version, |(version, _)| version);
    GraderInfo { version: version.to_owned(), ..info.clone() }
}

/// A name, and what stands behind its colon.
pub(crate) fn split(text: &str) -> (&str, Option<&str>) {
    match text.split_once(':') {
        Some((name, setting)) => (name, Some(setting)),
        None => (text, None),
    }
}

/// An error with all that it comes from, on one line.
pub(crate) fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        text.push_str(&format!(": {error}"));
        next = error.source();
    }
    text
}

/// Reads a file of no more than so many bytes, which are whole MiB.
pub(crate) fn whole(path: &Path, most: u64) -> Result<Vec<u8>, Failure> {
    let unreadable =
        |error| Failure::usage(format_args!("{} could not be read", path.display())).because(error);
    let mut text = Vec::new();
    let file = std::fs::File::open(path).map_err(unreadable)?;
    std::io::Read::read_to_end(&mut std::io::Read::take(file, most.saturating_add(1)), &mut text)
        .map_err(unreadable)?;
    if text.len() as u64 > most {
        let (path, most) = (path.display(), most >> 20);
        return Err(Failure::usage(format_args!("{path} has more than {most} MiB")));
    }
    Ok(text)
}

/// Reads a JSON Schema.
pub(crate) fn schema(path: &Path) -> Result<serde_json::Value, Failure> {
    /// No schema is larger.
    const MOST: u64 = 16 << 20;
    let text = whole(path, MOST)?;
    serde_json::from_slice(&text).map_err(|error| {
        Failure::usage(format_args!("{} is no JSON", path.display())).because(error)
    })
}

/// A schema of a file that is none.
pub(crate) fn in_file(path: &Path, error: impl std::error::Error) -> Failure {
    Failure::usage(format_args!("{} is no JSON Schema that can be used", path.display()))
        .because(error)
}

impl fmt::Display for GraderArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GraderArg::Exact => f.write_str("exact"),
            GraderArg::Contains => f.write_str("contains"),
            GraderArg::Regex(None) => f.write_str("regex"),
            GraderArg::Regex(Some(pattern)) => write!(f, "regex:{pattern}"),
            GraderArg::Number(tolerance) => write!(f, "number:{tolerance}"),
            GraderArg::Schema(path) => write!(f, "json-schema:{}", path.display()),
            GraderArg::Command(line) => write!(f, "command:{line}"),
            GraderArg::Model(model) => write!(f, "model:{model}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graders_are_read_by_name_and_setting() {
        for text in [
            "exact",
            "contains",
            "regex",
            "regex:^a:b$",
            "number:0.5",
            "json-schema:a:b",
            "command:a | b",
            "model:a:b",
        ] {
            assert_eq!(text.parse::<GraderArg>().map(|arg| arg.to_string()).as_deref(), Ok(text));
        }
        assert_eq!("number".parse(), Ok(GraderArg::Number(0.0)));
        for bad in [
            "",
            "best",
            "exact:",
            "contains:x",
            "Exact",
            "regex:",
            "regex:(",
            "number:",
            "number:-1",
            "number:NaN",
            "number:inf",
            "json-schema",
            "json-schema:",
            "command",
            "command: ",
            "model",
            "model:",
            "model:a\n",
        ] {
            assert!(bad.parse::<GraderArg>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_version_says_what_shapes_the_grades() {
        let version = |arg: &str, text: &str| {
            let expected = HashMap::from([(CaseId::new("a").expect("an id"), text.to_owned())]);
            let arg: GraderArg = arg.parse().expect("a grader");
            let known = Known { cases: &[], expected: &expected, question: None, uri: None };
            let grader = arg.build(&known).unwrap_or_else(|failure| panic!("{failure:?}"));
            grader.pinned(&expected, &Ledger::memory()).info().version
        };
        for arg in ["exact", "contains", "regex", "number", "command:x"] {
            assert_eq!(version(arg, "1"), version(arg, "1"), "{arg}");
            assert_ne!(version(arg, "1"), version(arg, "2"), "{arg}");
        }
        assert_eq!(version("regex:x", "1"), version("regex:x", "2"));
        for (one, other) in
            [("regex:x", "regex:y"), ("number:1", "number:2"), ("command:x", "command:y")]
        {
            assert_ne!(version(one, "1"), version(other, "1"));
        }
    }
}
