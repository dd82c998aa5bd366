//! What `--grader` names: read from the command line, and made into what grades.
//!
//! A grader's version says all that shapes its grades, the expected answers among it: with others it
//! is another grader, and a run with it another run.

use std::{collections::HashMap, fmt, str::FromStr};

use attempt_ledger::{BoxError, Contains, Exact, GradeInput, Graded, Grader};
use attempt_ledger_core::{CaseId, Digest, GraderInfo};
use attempt_ledger_store::Ledger;

/// One `--grader`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum GraderArg {
    /// The same text as expected.
    Exact,
    /// Text that contains what is expected.
    Contains,
}

/// What `--help` says of each.
pub(crate) const HELP: &str = "\
Grades answers. GRADER is one of
  exact     1 when the answer is the case's \"expected\", but for white space at its ends; else 0
  contains  1 when the answer contains the case's \"expected\"; else 0";

impl FromStr for GraderArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, setting) = match text.split_once(':') {
            Some((name, setting)) => (name, Some(setting)),
            None => (text, None),
        };
        match (name, setting) {
            ("exact", None) => Ok(GraderArg::Exact),
            ("contains", None) => Ok(GraderArg::Contains),
            ("exact" | "contains", Some(_)) => Err(format!("{name} has no setting; leave it bare")),
            _ => Err("is no grader; they are exact, contains".to_owned()),
        }
    }
}

impl fmt::Display for GraderArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GraderArg::Exact => f.write_str("exact"),
            GraderArg::Contains => f.write_str("contains"),
        }
    }
}

impl GraderArg {
    /// Whether every case needs an expected answer for it.
    pub(crate) fn needs_expected(&self) -> bool {
        match self {
            GraderArg::Exact | GraderArg::Contains => true,
        }
    }

    /// The grader, without anything to compare with yet.
    pub(crate) fn build(&self) -> AnyGrader {
        let kind = match self {
            GraderArg::Exact => Kind::Exact(Exact::default()),
            GraderArg::Contains => Kind::Contains(Contains::default()),
        };
        let info = match &kind {
            Kind::Exact(grader) => grader.info(),
            Kind::Contains(grader) => grader.info(),
        };
        AnyGrader { info, kind, compares: self.needs_expected() }
    }
}

/// Any grader of the command line.
#[derive(Clone, Debug)]
pub(crate) struct AnyGrader {
    info: GraderInfo,
    kind: Kind,
    compares: bool,
}

#[derive(Clone, Debug)]
enum Kind {
    Exact(Exact),
    Contains(Contains),
}

impl AnyGrader {
    /// With the expected answer of each case, which its version then says the digest of.
    pub(crate) fn expecting(self, expected: &HashMap<CaseId, String>, ledger: &Ledger) -> Self {
        if !self.compares {
            return self;
        }
        let pairs = expected.iter().map(|(case, text)| (case, Some(&**text)));
        let info = pinned(self.info, pairs, ledger);
        let kind = match self.kind {
            Kind::Exact(_) => Kind::Exact(Exact::new(expected.clone())),
            Kind::Contains(_) => Kind::Contains(Contains::new(expected.clone())),
        };
        AnyGrader { info, kind, ..self }
    }
}

impl Grader for AnyGrader {
    fn info(&self) -> GraderInfo {
        self.info.clone()
    }

    async fn grade(&self, input: GradeInput) -> Result<Graded, BoxError> {
        match &self.kind {
            Kind::Exact(grader) => grader.grade(input).await,
            Kind::Contains(grader) => grader.grade(input).await,
        }
    }
}

/// The grader with eight hexadecimal digits of the expected answers' digest in its version.
pub(crate) fn pinned<'a>(
    info: GraderInfo,
    expected: impl IntoIterator<Item = (&'a CaseId, Option<&'a str>)>,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graders_are_read_by_name() {
        for text in ["exact", "contains"] {
            assert_eq!(text.parse::<GraderArg>().map(|arg| arg.to_string()).as_deref(), Ok(text));
        }
        for bad in ["", "best", "exact:", "contains:x", "Exact"] {
            assert!(bad.parse::<GraderArg>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_version_says_what_is_compared_with() {
        let with = |text: &str| {
            let expected = HashMap::from([(CaseId::new("a").expect("an id"), text.to_owned())]);
            GraderArg::Exact.build().expecting(&expected, &Ledger::memory()).info()
        };
        assert_eq!(with("x"), with("x"));
        assert_ne!(with("x"), with("y"));
        assert_eq!(plain(&with("x")), GraderArg::Exact.build().info());
    }
}
