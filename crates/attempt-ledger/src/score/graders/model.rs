use std::{fmt, future::poll_fn, pin::pin};

use attempt_ledger_core::{BodyEnd, GraderAttempts, GraderInfo, Verdict, decide};
use attempt_ledger_wire::{Tap, TapOptions, Wire};
use bytes::{Buf, Bytes};
use http::{Request, Response};
use http_body::Body;
use http_body_util::Full;
use tower::ServiceExt;
use tower_service::Service;

use super::info;
use crate::{
    Attempt, BoxError, GradeInput, Graded, Grader,
    sync::{Mutex, lock},
};

/// What an answer may have, in bytes of its body.
const ANSWER: usize = 4 << 20;

/// A grader that asks a model.
///
/// Give it a stack over the same ledger as the one whose answers are graded, without a grader of its
/// own, over a clone of the same client. Its attempts are then rows of role `grader` in the graded
/// case's slot, never ordinals of the subject, and the grade cites them. Over a service that records
/// nothing the grade says that what it rests on is unknown.
///
/// The model's answer counts only when it is `ok`: one that is cut, refused or broken is no grade.
/// `ask` makes the request, [`ChatTemplate`](crate::ChatTemplate) for instance, and `read` finds the
/// grade in the answer's text.
///
/// ```
/// use attempt_ledger::{
///     CallLayer, Case, CaseId, ChatTemplate, GradeInput, Ledger, LedgerLayer, LedgerRetry, ModelGrader,
///     Role, RunId, ScoreLayer, Slot,
/// };
/// use attempt_ledger_mock::{MockService, Script, Step};
/// use bytes::Bytes;
/// use http_body_util::Full;
/// use tower::{ServiceBuilder, ServiceExt, retry::RetryLayer};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// let ledger = Ledger::memory();
/// let client = MockService::new(Script::new([Step::Good, Step::Good]));
/// let stack = |score: ScoreLayer| {
///     ServiceBuilder::new()
///         .layer(CallLayer::new())
///         .layer(RetryLayer::new(LedgerRetry::new()))
///         .layer(score)
///         .layer(LedgerLayer::new(ledger.clone()))
///         .service(client.clone())
/// };
///
/// let template = ChatTemplate::new(
///     "http://mock/v1/chat/completions",
///     "judge-model",
///     "Is this answer polite? Answer with yes or no.\n\n{answer}",
/// )?;
/// let judge = ModelGrader::new(
///     "polite",
///     "1",
///     stack(ScoreLayer::none()),
///     move |input: &GradeInput| template.request(input),
///     |text: &str| match text.trim() {
///         "" => None,
///         other => Some(if other == "no" { 0.0 } else { 1.0 }),
///     },
/// );
/// let subject = stack(ScoreLayer::new(judge));
///
/// let mut request = http::Request::post("http://mock/v1/chat/completions")
///     .header("content-type", "application/json")
///     .body(Full::<Bytes>::from(r#"{"model":"m","messages":[]}"#))?;
/// let slot = Slot::new(RunId::new("nightly")?, CaseId::new("case-7")?);
/// request.extensions_mut().insert(Case::new(slot.clone()));
/// subject.oneshot(request).await?;
///
/// assert_eq!(ledger.slot(&slot).and_then(|state| state.frozen), Some(1.0));
/// assert!(ledger.slot(&slot.role(Role::Grader)).is_some(), "the judge's call has a slot of its own");
/// # Ok(())
/// # }
/// ```
pub struct ModelGrader<S, A, R> {
    info: GraderInfo,
    /// Cloned for each grade; a lock, since a grader is shared and a service need not be.
    service: Mutex<S>,
    ask: A,
    read: R,
    wire: Option<Wire>,
}

impl<S, A, R> ModelGrader<S, A, R> {
    /// A grader of this name and version, with grades from 0 to 1. Change the version with the
    /// model and the question.
    pub fn new(
        name: impl Into<String>,
        version: impl Into<String>,
        service: S,
        ask: A,
        read: R,
    ) -> Self
    where
        A: Fn(&GradeInput) -> Result<Request<Full<Bytes>>, BoxError>,
        R: Fn(&str) -> Option<f64>,
    {
        let info = info(&name.into(), &version.into());
        ModelGrader { info, service: Mutex::new(service), ask, read, wire: None }
    }

    /// The same with another range of grades.
    #[must_use]
    pub fn range(mut self, low: f64, high: f64) -> Self {
        (self.info.low, self.info.high) = (low, high);
        self
    }

    /// The wire that decodes the model's answers, instead of the one that the request's path tells.
    #[must_use]
    pub fn wire(self, wire: Wire) -> Self {
        ModelGrader { wire: Some(wire), ..self }
    }
}

impl<S, B, A, R> Grader for ModelGrader<S, A, R>
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: Body + Send,
    B::Data: Send,
    B::Error: Into<BoxError>,
    A: Fn(&GradeInput) -> Result<Request<Full<Bytes>>, BoxError> + Send + Sync + 'static,
    R: Fn(&str) -> Option<f64> + Send + Sync + 'static,
{
    fn info(&self) -> GraderInfo {
        self.info.clone()
    }

    async fn grade(&self, input: GradeInput) -> Result<Graded, BoxError> {
        let mut request = (self.ask)(&input)?;
        let wire = self.wire.unwrap_or_else(|| Wire::detect(request.uri().path()));
        // Where a layer in between spawns, the case tells whose call it is.
        request.extensions_mut().insert(input.case());
        let service = lock(&self.service).clone();
        let response = service.oneshot(request).await.map_err(Into::<BoxError>::into)?;
        let recorded = Attempt::of(&response).is_some();
        let text = answer(response, wire).await?;
        let score = (self.read)(&text).ok_or(NoAnswer::NoGrade)?;
        let attempts = if recorded { GraderAttempts::None } else { GraderAttempts::Unknown };
        Ok(Graded { score, attempts })
    }
}

/// The text of a whole answer.
async fn answer<B>(response: Response<B>, wire: Wire) -> Result<String, BoxError>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    let status = response.status().as_u16();
    let options = TapOptions { keep_content: true, max_body: ANSWER, ..TapOptions::default() };
    let mut tap = Tap::new(wire, status, response.headers(), &options);
    let mut body = pin!(response.into_body());
    let mut room = ANSWER;
    while let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        let Ok(mut data) = frame.map_err(Into::<BoxError>::into)?.into_data() else { continue };
        room = room.checked_sub(data.remaining()).ok_or(NoAnswer::TooLong)?;
        while data.has_remaining() {
            let chunk = data.chunk();
            tap.feed(chunk);
            let fed = chunk.len();
            data.advance(fed);
        }
    }
    tap.finish();
    let verdict = decide(status, tap.facts(), &BodyEnd::Complete).verdict;
    match (verdict, tap.evidence().content) {
        (Verdict::Ok, Some(content)) => Ok(content.text),
        (verdict, _) => Err(NoAnswer::Ended(verdict).into()),
    }
}

/// Why a model gave no grade. What it said is in none.
#[derive(Debug, thiserror::Error)]
enum NoAnswer {
    #[error("the grading model's answer has more than 4 MiB")]
    TooLong,
    #[error("the grading model's attempt ended as {0}")]
    Ended(Verdict),
    #[error("no grade was found in the grading model's answer")]
    NoGrade,
}

impl<S, A, R> fmt::Debug for ModelGrader<S, A, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelGrader").field("info", &self.info).finish_non_exhaustive()
    }
}
