use std::{sync::Arc, time::Duration};

use bytes::Bytes;

/// One thing that a model API can do to one request.
///
/// Where the request asks for a stream (`"stream": true` in its JSON body) the answer is a stream
/// of `chat.completion.chunk` events, else one `chat.completion` document. A path that ends in
/// `/completions`, but not in `/chat/completions`, gets the legacy shape (`choices[].text`).
///
/// Times are tokio's, so a test with a paused clock plays every step without waiting.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Step {
    /// The connection is refused: no byte of the request is read.
    ///
    /// As a service the error is [`ConnectRefused`](crate::ConnectRefused). A listening socket
    /// cannot refuse one connection, so the server resets it at once, unread; for an address that
    /// truly refuses see [`RefusedAddr`](crate::RefusedAddr). Where a
    /// [`by_case`](crate::Script::by_case) script has to know the case, the request is read for
    /// that, and forgotten.
    Refuse,
    /// The connection is reset after the request was read, before a byte of the head.
    Reset,
    /// The connection is closed after the request was read, before a byte of the head.
    CloseBeforeHead,
    /// The request is read, and then nothing comes for ever.
    StallBeforeHead,
    /// The head and the first part of the answer come, and then nothing for ever.
    StallMidBody,
    /// A whole head, and then comments (`: keep-alive`) for ever; blank lines where a document was
    /// asked for. The first at once, then one each `every`, at least a millisecond apart.
    TrickleKeepAlives {
        /// Time between two comments.
        every: Duration,
    },
    /// A whole good answer, one event (stream) or one byte (document) at a time. The head and the
    /// first piece come at once.
    SlowBody {
        /// Time between two pieces.
        every: Duration,
    },
    /// The connection is closed inside a chunk of the body.
    CutInChunk,
    /// The transfer ends cleanly, but the answer has no stop reason (and a stream no `[DONE]`).
    EndWithoutStop,
    /// A whole answer whose finish reason is `length`.
    CapHit,
    /// A whole answer without text.
    Empty,
    /// A whole answer of white space.
    WhiteSpace,
    /// Status 200, and the body is an error document, also where a stream was asked for.
    ErrorIn200,
    /// Status 200, some text, then an error object. A document carries both.
    ErrorEventMidStream,
    /// Status 429 with the wait that the server asks for.
    Throttled(RetryHint),
    /// Status 503.
    Unavailable,
    /// Status 500.
    ServerError,
    /// Status 200 with a page of HTML.
    Html200,
    /// Status 200 with JSON that does not parse: a complete event, or the whole document.
    BadJson,
    /// Nothing for so long, head included, then a good answer.
    SlowFirstByte(Duration),
    /// A whole answer with `refusal` instead of text.
    Refusal,
    /// A whole answer whose finish reason is `content_filter`.
    ContentFilter,
    /// A whole answer that is a call of the function `lookup`.
    ToolCall,
    /// A redirect.
    Redirect {
        /// The status, 3xx.
        status: u16,
        /// The `location` header.
        location: String,
    },
    /// Any status, headers and body. `content-length` is added unless the headers frame the body
    /// themselves, rightly or not.
    Status {
        /// The status, 200 to 999.
        status: u16,
        /// The headers, in order.
        headers: Vec<(String, String)>,
        /// The body.
        body: Bytes,
    },
    /// These bytes as they are, then the connection is closed.
    Raw(Bytes),
    /// A whole good answer.
    Good,
}

/// How a throttling server says how long to wait.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum RetryHint {
    /// It does not.
    None,
    /// `retry-after`, whole seconds.
    Seconds(u32),
    /// `retry-after`, seconds with a fraction.
    Fraction(f64),
    /// `retry-after-ms`, milliseconds.
    Millis(u32),
    /// `retry-after` as an HTTP date, so many seconds after the response's `date`.
    HttpDate(u32),
    /// `google.rpc.RetryInfo.retryDelay` in the body.
    RetryInfo(Duration),
    /// `retry-after-ms` and `retry-after`, which disagree as servers' do; the first counts.
    Both {
        /// `retry-after-ms`, milliseconds.
        millis: u32,
        /// `retry-after`, seconds.
        seconds: u32,
    },
}

/// A step with the answer it gives: what a [`Script`](crate::Script) is a sequence of.
///
/// ```
/// use attempt_ledger_mock::{Play, Step};
///
/// let play: Play = Step::Good.text("42").finish("end_turn");
/// assert_eq!(play.text.as_deref(), Some("42"));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Play {
    /// What happens.
    pub step: Step,
    /// The answer's text where the step has one; `None` for the step's own ("pong").
    pub text: Option<Arc<str>>,
    /// The finish reason where the step has one; `None` for the step's own ("stop").
    pub finish: Option<Arc<str>>,
}

// === impl Step ===

impl Step {
    /// One step of each kind, with its name, for tests that go through all of them.
    ///
    /// The times are a second and less; those that never end are
    /// [`never_ends`](Self::never_ends).
    pub fn all() -> Vec<(&'static str, Step)> {
        let second = Duration::from_secs(1);
        let mut steps = vec![
            Step::Refuse,
            Step::Reset,
            Step::CloseBeforeHead,
            Step::StallBeforeHead,
            Step::StallMidBody,
            Step::TrickleKeepAlives { every: second },
            Step::SlowBody { every: Duration::from_millis(10) },
            Step::CutInChunk,
            Step::EndWithoutStop,
            Step::CapHit,
            Step::Empty,
            Step::WhiteSpace,
            Step::ErrorIn200,
            Step::ErrorEventMidStream,
        ];
        steps.extend(RetryHint::all().into_iter().map(Step::Throttled));
        steps.extend([
            Step::Unavailable,
            Step::ServerError,
            Step::Html200,
            Step::BadJson,
            Step::SlowFirstByte(second),
            Step::Refusal,
            Step::ContentFilter,
            Step::ToolCall,
            Step::Redirect { status: 307, location: "/v1/elsewhere".into() },
            Step::Status {
                status: 404,
                headers: vec![("content-type".into(), "application/json".into())],
                body: Bytes::from_static(br#"{"error":{"message":"no such model"}}"#),
            },
            Step::Raw(Bytes::from_static(b"HTTP/1.1 200 OK\r\ncontent-le")),
            Step::Good,
        ]);
        steps.into_iter().map(|step| (step.name(), step)).collect()
    }

    /// The step's name in snake case, such as `stall_mid_body` or `throttled_http_date`.
    pub fn name(&self) -> &'static str {
        match self {
            Step::Refuse => "refuse",
            Step::Reset => "reset",
            Step::CloseBeforeHead => "close_before_head",
            Step::StallBeforeHead => "stall_before_head",
            Step::StallMidBody => "stall_mid_body",
            Step::TrickleKeepAlives { .. } => "trickle_keep_alives",
            Step::SlowBody { .. } => "slow_body",
            Step::CutInChunk => "cut_in_chunk",
            Step::EndWithoutStop => "end_without_stop",
            Step::CapHit => "cap_hit",
            Step::Empty => "empty",
            Step::WhiteSpace => "white_space",
            Step::ErrorIn200 => "error_in_200",
            Step::ErrorEventMidStream => "error_event_mid_stream",
            Step::Throttled(hint) => match hint {
                RetryHint::None => "throttled",
                RetryHint::Seconds(_) => "throttled_seconds",
                RetryHint::Fraction(_) => "throttled_fraction",
                RetryHint::Millis(_) => "throttled_millis",
                RetryHint::HttpDate(_) => "throttled_http_date",
                RetryHint::RetryInfo(_) => "throttled_retry_info",
                RetryHint::Both { .. } => "throttled_both",
            },
            Step::Unavailable => "unavailable",
            Step::ServerError => "server_error",
            Step::Html200 => "html_200",
            Step::BadJson => "bad_json",
            Step::SlowFirstByte(_) => "slow_first_byte",
            Step::Refusal => "refusal",
            Step::ContentFilter => "content_filter",
            Step::ToolCall => "tool_call",
            Step::Redirect { .. } => "redirect",
            Step::Status { .. } => "status",
            Step::Raw(_) => "raw",
            Step::Good => "good",
        }
    }

    /// Whether only the caller's own clock, or its going away, ends this step.
    pub fn never_ends(&self) -> bool {
        matches!(self, Step::StallBeforeHead | Step::StallMidBody | Step::TrickleKeepAlives { .. })
    }

    /// This step with an answer of its own.
    pub fn text(self, text: impl Into<Arc<str>>) -> Play {
        Play::from(self).text(text)
    }

    /// This step with a finish reason of its own.
    pub fn finish(self, finish: impl Into<Arc<str>>) -> Play {
        Play::from(self).finish(finish)
    }
}

// === impl RetryHint ===

impl RetryHint {
    /// One hint of each kind; all but [`None`](Self::None) ask for 1 to 3 seconds.
    pub fn all() -> Vec<RetryHint> {
        vec![
            RetryHint::None,
            RetryHint::Seconds(2),
            RetryHint::Fraction(1.5),
            RetryHint::Millis(1_200),
            RetryHint::HttpDate(3),
            RetryHint::RetryInfo(Duration::from_millis(2_500)),
            RetryHint::Both { millis: 1_100, seconds: 2 },
        ]
    }

    /// The wait that the hint asks for, if any.
    pub fn wait(&self) -> Option<Duration> {
        match *self {
            RetryHint::None => None,
            RetryHint::Seconds(s) | RetryHint::HttpDate(s) => Some(Duration::from_secs(s.into())),
            // Not a number, or out of range, is no wait that anyone could keep.
            RetryHint::Fraction(s) => Duration::try_from_secs_f64(s).ok(),
            RetryHint::Millis(millis) | RetryHint::Both { millis, .. } => {
                Some(Duration::from_millis(millis.into()))
            }
            RetryHint::RetryInfo(delay) => Some(delay),
        }
    }
}

// === impl Play ===

impl Play {
    /// With this answer. Steps without an answer of the model's ignore it.
    #[must_use]
    pub fn text(mut self, text: impl Into<Arc<str>>) -> Self {
        self.text = Some(text.into());
        self
    }

    /// With this finish reason. Steps without a finish reason ignore it.
    #[must_use]
    pub fn finish(mut self, finish: impl Into<Arc<str>>) -> Self {
        self.finish = Some(finish.into());
        self
    }
}

impl From<Step> for Play {
    fn from(step: Step) -> Self {
        Play { step, text: None, finish: None }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_kind_is_listed_once_under_its_own_name() {
        let all = Step::all();
        let names: HashSet<_> = all.iter().map(|(name, _)| *name).collect();
        assert_eq!(names.len(), all.len());
        assert_eq!(all.len(), 33);
    }
}
