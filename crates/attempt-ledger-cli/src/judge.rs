//! `--grader model:NAME`: a model that is asked for the grade, at the server of the run.

use std::{collections::HashMap, fmt, path::Path, str::FromStr};

use attempt_ledger::{BoxError, BoxGrader, ChatTemplate, GradeInput, ModelGrader, NumberGrader};
use attempt_ledger_core::{CaseId, Digest, GraderInfo};
use bytes::Bytes;
use http::{HeaderValue, Request, Response, Uri, header};
use http_body::Body;
use http_body_util::Full;
use tower::Service;

use crate::{args::Graders, failure::Failure, graders::GraderArg};

/// What is asked where no file says it.
macro_rules! own_text {
    () => {
        "\
Grade an answer.

The question:
{prompt}

The expected answer:
{expected}

The answer to grade:
{answer}

How good is it, from LOW (wrong) to HIGH (right)? End with that number."
    };
}

/// What `--help` says of it.
pub(crate) const HELP: &str = concat!(
    "\
What --grader model:NAME asks, one message, in place of its own text.
In FILE
  {prompt}    is the case's prompt; its messages as JSON, where they
              are not one of the user's
  {expected}  is its \"expected\", which every case has to have then
  {answer}    is the answer; FILE has to hold it
and all else is sent as it is. The last number of what the model says
is the grade. Its own text, with the ends of --grader-range for LOW
and HIGH:

",
    own_text!()
);

/// The most that the file may have, in bytes.
const MOST: u64 = 1 << 20;

/// The grades that a model may give.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RangeArg {
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Default for RangeArg {
    fn default() -> Self {
        RangeArg { low: 0.0, high: 1.0 }
    }
}

impl FromStr for RangeArg {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let end = |text: &str| text.trim().parse().ok().filter(|n: &f64| n.is_finite());
        let ends = text.split_once("..").and_then(|(low, high)| end(low).zip(end(high)));
        let (low, high) = ends.ok_or("write two numbers as LOW..HIGH, such as 0..10")?;
        if low < high {
            return Ok(RangeArg { low, high });
        }
        Err("the first number has to be the lower one")
    }
}

impl fmt::Display for RangeArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.low, self.high)
    }
}

/// What a grading model is asked.
#[derive(Debug)]
pub(crate) struct Question {
    text: String,
    range: RangeArg,
}

impl Question {
    /// That of `--grader-prompt` and `--grader-range`, which only a grading model has.
    pub(crate) fn read(graders: &Graders) -> Result<Option<Question>, Failure> {
        if !graders.grader.iter().any(|grader| matches!(grader, GraderArg::Model(_))) {
            let given = [
                ("--grader-prompt", graders.grader_prompt.is_some()),
                ("--grader-range", graders.grader_range.is_some()),
            ];
            return match given.iter().find(|(_, given)| *given) {
                Some((name, _)) => {
                    Err(Failure::usage(format_args!("{name} is of --grader model:NAME alone")))
                }
                None => Ok(None),
            };
        }
        let range = graders.grader_range.unwrap_or_default();
        let text = match &graders.grader_prompt {
            Some(path) => read(path)?,
            None => of_its_own(range),
        };
        Ok(Some(Question { text, range }))
    }

    /// Whether every case has to have an expected answer for it.
    pub(crate) fn needs_expected(&self) -> bool {
        self.text.contains("{expected}")
    }

    /// The grader of this model. What shapes its grades is in its version.
    pub(crate) fn info(&self, model: &str) -> GraderInfo {
        let RangeArg { low, high } = self.range;
        let shape = serde_json::json!([self.text, model, low, high]).to_string();
        let version = format!("1-{}", Digest::of(shape.as_bytes()).short());
        GraderInfo { name: GraderArg::Model(model.to_owned()).to_string(), version, low, high }
    }

    /// The requests that ask this model.
    pub(crate) fn template(
        &self,
        model: &str,
        uri: &Uri,
        prompts: impl IntoIterator<Item = (CaseId, String)>,
        expected: &HashMap<CaseId, String>,
    ) -> Result<ChatTemplate, Failure> {
        let template = ChatTemplate::new(&uri.to_string(), model, &*self.text);
        let template = template.map_err(|error| {
            Failure::usage("--grader-prompt")
                .because(error)
                .hint("write {answer} where the answer is to stand; {prompt} and {expected} too")
        })?;
        let prompts = match self.text.contains("{prompt}") {
            true => prompts.into_iter().collect(),
            false => HashMap::new(),
        };
        let expected = if self.needs_expected() { expected.clone() } else { HashMap::new() };
        Ok(template.prompts(prompts).expected(expected))
    }
}

fn of_its_own(range: RangeArg) -> String {
    let text = own_text!().replace("LOW", &range.low.to_string());
    text.replace("HIGH", &range.high.to_string())
}

fn read(path: &Path) -> Result<String, Failure> {
    let unreadable =
        |error| Failure::usage(format_args!("{} could not be read", path.display())).because(error);
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(unreadable)?;
    std::io::Read::read_to_string(&mut std::io::Read::take(file, MOST + 1), &mut text)
        .map_err(unreadable)?;
    if text.len() as u64 > MOST {
        return Err(Failure::usage(format_args!("{} has more than 1 MiB", path.display())));
    }
    Ok(text)
}

/// The grader that asks through `client`, a stack over the same ledger.
pub(crate) fn grader<S, B>(
    info: &GraderInfo,
    template: ChatTemplate,
    client: S,
    key: Option<&HeaderValue>,
) -> BoxGrader
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + 'static,
    B: Body<Error: Into<BoxError>, Data: Send> + Send + 'static,
{
    let template = match key {
        Some(key) => template.header(header::AUTHORIZATION, key.clone()),
        None => template,
    };
    let ask = move |input: &GradeInput| template.request(input);
    let grader = ModelGrader::new(&*info.name, &*info.version, client, ask, |answer: &str| {
        NumberGrader::last_number(answer)
    });
    BoxGrader::new(grader.range(info.low, info.high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_two_numbers() {
        for text in ["0..1", "-1..1", "0.5..10"] {
            assert_eq!(
                text.parse::<RangeArg>().map(|range| range.to_string()).as_deref(),
                Ok(text)
            );
        }
        for bad in ["", "1", "1..0", "0..0", "0..", "..1", "0..inf", "NaN..1", "0-1", "0..1..2"] {
            assert!(bad.parse::<RangeArg>().is_err(), "{bad}");
        }
    }

    #[test]
    fn its_own_text_names_the_range() {
        let text = of_its_own(RangeArg { low: -1.0, high: 2.5 });
        assert!(text.starts_with("Grade an answer.\n\nThe question:\n{prompt}\n\n"), "{text}");
        let end =
            "{answer}\n\nHow good is it, from -1 (wrong) to 2.5 (right)? End with that number.";
        assert!(text.ends_with(end), "{text}");
        assert!(text.contains("{expected}"));
    }

    #[test]
    fn the_version_says_what_shapes_the_grades() {
        let version = |text: &str, model, high| {
            let question = Question { text: text.to_owned(), range: RangeArg { low: 0.0, high } };
            question.info(model).version
        };
        let one = version("a", "m", 1.0);
        assert_eq!(one, version("a", "m", 1.0));
        for other in [version("b", "m", 1.0), version("a", "n", 1.0), version("a", "m", 2.0)] {
            assert_ne!(one, other);
        }
    }
}
