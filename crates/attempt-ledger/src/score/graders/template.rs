use std::{collections::HashMap, fmt};

use attempt_ledger_core::CaseId;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Uri, header};
use http_body_util::Full;
use serde_json::{Map, Value};

use super::nothing_expected;
use crate::{BoxError, GradeInput, RuleError, rule::invalid};

/// Makes the requests of a [`ModelGrader`](crate::ModelGrader) for servers that speak OpenAI's chat
/// completions: one message of the user, made from a template.
///
/// In the template `{answer}` is the answer's text, `{case}` the case's id, `{prompt}` what was asked
/// and `{expected}` what was expected; all else is taken as it is, braces too, and so is what is put in.
///
/// ```
/// use attempt_ledger::ChatTemplate;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let template = ChatTemplate::new(
///     "https://api.example.com/v1/chat/completions",
///     "judge-model",
///     "From 0 to 1, how good is this answer? Say a number only.\n\n{answer}",
/// )?
/// .param("temperature", 0);
/// # let _ = template;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ChatTemplate {
    uri: Uri,
    template: String,
    headers: Vec<(HeaderName, HeaderValue)>,
    prompts: HashMap<CaseId, String>,
    expected: HashMap<CaseId, String>,
    fields: Map<String, Value>,
}

impl ChatTemplate {
    /// To this URL, for this model.
    ///
    /// # Errors
    /// When the URL is none, or the template holds no `{answer}`.
    pub fn new(
        url: &str,
        model: impl Into<String>,
        template: impl Into<String>,
    ) -> Result<Self, RuleError> {
        // Not repeated: a URL may hold what must not be shown.
        let uri = url.parse::<Uri>().ok().filter(|uri| uri.host().is_some());
        let uri = uri.ok_or_else(|| invalid("the grading model's URL is none", None))?;
        let template = template.into();
        if !template.contains("{answer}") {
            return Err(invalid(
                "the template holds no {answer}: the model would grade nothing",
                None,
            ));
        }
        let fields = Map::from_iter([("model".to_owned(), Value::String(model.into()))]);
        let (prompts, expected) = (HashMap::new(), HashMap::new());
        Ok(ChatTemplate { uri, template, headers: Vec::new(), prompts, expected, fields })
    }

    /// With another header, for credentials for instance, marked sensitive.
    #[must_use]
    pub fn header(mut self, name: HeaderName, mut value: HeaderValue) -> Self {
        value.set_sensitive(true);
        self.headers.push((name, value));
        self
    }

    /// With another field of the request's JSON.
    #[must_use]
    pub fn param(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.fields.insert(name.into(), value.into());
        self
    }

    /// With what was asked in each case, for `{prompt}`.
    #[must_use]
    pub fn prompts(self, prompts: HashMap<CaseId, String>) -> Self {
        ChatTemplate { prompts, ..self }
    }

    /// With the expected answer of each case, for `{expected}`.
    #[must_use]
    pub fn expected(self, expected: HashMap<CaseId, String>) -> Self {
        ChatTemplate { expected, ..self }
    }

    /// The request that asks for the grade of this answer.
    ///
    /// # Errors
    /// When the template says `{prompt}` or `{expected}`, and the case has none.
    pub fn request(&self, input: &GradeInput) -> Result<Request<Full<Bytes>>, BoxError> {
        let message = serde_json::json!([{"role": "user", "content": self.fill(input)?}]);
        let mut fields = self.fields.clone();
        fields.insert("messages".into(), message);
        let mut request = Request::new(Full::from(serde_json::to_vec(&fields)?));
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = self.uri.clone();
        let headers = request.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.extend(self.headers.iter().cloned());
        Ok(request)
    }

    /// In one pass, so that an answer with `{expected}` in it is not told what was.
    fn fill(&self, input: &GradeInput) -> Result<String, BoxError> {
        let mut filled = String::new();
        let mut rest = &*self.template;
        while let Some(at) = rest.find('{') {
            let (before, from) = rest.split_at(at);
            filled.push_str(before);
            let case = &input.slot.case;
            let named = [
                ("{answer}", Some(&*input.content.text)),
                ("{case}", Some(case.as_str())),
                ("{prompt}", self.prompts.get(case).map(String::as_str)),
                ("{expected}", self.expected.get(case).map(String::as_str)),
            ];
            match named.into_iter().find(|(name, _)| from.starts_with(name)) {
                Some((name, value)) => {
                    let what = match name {
                        "{prompt}" => "prompt",
                        _ => "expected answer",
                    };
                    filled.push_str(value.ok_or_else(|| nothing_expected(input, what))?);
                    rest = from.get(name.len()..).unwrap_or_default();
                }
                None => {
                    filled.push('{');
                    rest = from.get(1..).unwrap_or_default();
                }
            }
        }
        filled.push_str(rest);
        Ok(filled)
    }
}

impl fmt::Debug for ChatTemplate {
    /// Without the URL, headers and expected answers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatTemplate").finish_non_exhaustive()
    }
}
