use attempt_ledger_core::{ErrorCause, InBandError, Label};
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use crate::{
    event::{Event, Kind},
    gather::Gather,
    json,
};

pub(crate) mod aws;

/// An error object of an OpenAI-shaped server, in any of its dialects.
#[derive(Debug, Default)]
pub(crate) struct ReportedError {
    /// Its code and cause.
    pub(crate) error: InBandError,
    /// `google.rpc.RetryInfo.retryDelay` of its details, in milliseconds.
    pub(crate) retry_after_ms: Option<u64>,
}

impl ReportedError {
    /// This, or where it has no code what `beside` reads from the object around it.
    pub(crate) fn or_stated_beside(self, beside: impl FnOnce() -> ReportedError) -> Self {
        if self.error == InBandError::default() { beside() } else { self }
    }
}

/// An event that its framing calls an error, on any wire whose errors are JSON.
pub(crate) fn event(event: &Event<'_>, gather: &mut Gather) {
    let value = match json::tree::<Value>(event.data) {
        Some(value) => value,
        None if event.complete || serde_json::from_slice::<IgnoredAny>(event.data).is_ok() => {
            Value::Null
        }
        None => return,
    };
    let reported = match (event.kind, value.get("error")) {
        (Kind::Exception, _) => aws::of_exception(event.name, &value),
        (Kind::NamedError, Some(error)) if !error.is_null() => from_value(error),
        _ => from_value(&value),
    };
    gather.reported(reported);
}

/// Reads the value of an `error` field (object, string, or anything else that is not null).
pub(crate) fn from_value(error: &Value) -> ReportedError {
    match error {
        Value::Object(object) => {
            let read = from_object(object);
            // A gateway may wrap the error object of its upstream once more.
            read.or_stated_beside(|| match object.get("error") {
                Some(Value::Object(inner)) => from_object(inner),
                _ => ReportedError::default(),
            })
        }
        Value::Array(list) if matches!(list.first(), Some(Value::Object(_))) => {
            from_value(list.first().unwrap_or_default())
        }
        _ => ReportedError { error: InBandError::default(), retry_after_ms: None },
    }
}

/// Reads the whole body of a response whose status is an error; `None` if it names no error.
pub(crate) fn from_body(body: &Value) -> Option<ReportedError> {
    let object = match body {
        Value::Object(object) => object,
        // Gemini's stream endpoint wraps its error object in a list.
        Value::Array(list) => list.first()?.as_object()?,
        _ => return None,
    };
    let read = match object.get("error") {
        Some(Value::Object(error)) => from_object(error),
        _ => from_object(object),
    };
    let found =
        read.error.code.is_some() || read.error.cause.is_some() || read.retry_after_ms.is_some();
    found.then_some(read)
}

/// The error that MiniMax reports beside a status of 200; the numbers are those of its reference
/// of error codes.
pub(crate) fn from_base_resp(status_code: i64) -> ReportedError {
    let cause = match status_code {
        1001 => Some(ErrorCause::Timeout),
        1002 | 1039 | 1041 => Some(ErrorCause::Throttled),
        1004 => Some(ErrorCause::Auth),
        1008 => Some(ErrorCause::Billing),
        1026 | 1027 => Some(ErrorCause::Policy),
        1000 | 1024 | 1033 => Some(ErrorCause::Server),
        2013 => Some(ErrorCause::Request),
        _ => None,
    };
    let code = Some(Label::new(&status_code.to_string()));
    ReportedError { error: InBandError { code, cause }, retry_after_ms: None }
}

fn from_object(object: &Map<String, Value>) -> ReportedError {
    let inner = object.get("innererror").and_then(|inner| inner.get("code"));
    // In order of how much they say: a word before a number.
    let stated = ["code", "type", "error_type", "status"].map(|name| object.get(name));
    let stated = stated.into_iter().chain([inner]);
    let named = object.get("__type").and_then(Value::as_str).map(aws::bare);
    let words: Vec<&str> = named
        .into_iter()
        .chain(stated.filter_map(|value| value.and_then(Value::as_str)))
        .filter(|word| !word.is_empty() && *word != "error")
        .collect();
    let is_number = |word: &str| word.bytes().all(|b| b.is_ascii_digit());
    let number = ["code", "status_code", "raw_status_code", "status"].iter().find_map(|name| {
        match object.get(*name)? {
            Value::Number(number) => number.as_i64().or_else(|| {
                let whole = crate::json::count(&Value::Number(number.clone()));
                whole.and_then(|whole| i64::try_from(whole).ok())
            }),
            Value::String(word) => word.parse().ok(),
            _ => None,
        }
    });
    let code = words
        .iter()
        .find(|word| !is_number(word))
        .map(|word| Label::new(word))
        .or_else(|| number.map(|number| Label::new(&number.to_string())));
    let flagged = object.get("metadata").and_then(|metadata| metadata.get("flagged_input"));
    let policy = words.iter().any(|word| is_policy(word))
        || flagged.is_some_and(|flagged| !flagged.is_null());
    let details = || object.get("details").and_then(Value::as_array).into_iter().flatten();
    let cause = if policy {
        Some(ErrorCause::Policy)
    } else {
        details()
            .find_map(error_info)
            .or_else(|| words.iter().find_map(|word| cause_of_word(word)))
            .or_else(|| words.iter().find_map(|word| aws::cause_of_exception(word)))
            .or_else(|| named.and_then(aws::cause))
            .or_else(|| number.and_then(cause_of_number))
    };
    let retry_after_ms = details().find_map(retry_info);
    ReportedError { error: InBandError { code, cause }, retry_after_ms }
}

fn is_policy(word: &str) -> bool {
    matches!(
        word,
        "content_filter"
            | "content_policy"
            | "content_policy_violation"
            | "data_inspection_failed"
            | "DataInspectionFailed"
            | "ResponsibleAIPolicyViolation"
            | "image_content_policy_violation"
            | "misalignment_policy_violation"
            | "bio_policy"
            | "moderation_blocked"
            | "sensitive_words_detected"
            | "prompt_blocked"
    ) || word.contains("SensitiveContentDetected")
}

fn cause_of_word(word: &str) -> Option<ErrorCause> {
    Some(match word {
        "rate_limit_exceeded"
        | "rate_limit_error"
        | "rate_limit_reached_error"
        | "rate_limited"
        | "rate_limit"
        | "RateLimitReached"
        | "too_many_requests"
        | "tokens"
        | "requests"
        | "RESOURCE_EXHAUSTED"
        | "throttling" => ErrorCause::Throttled,
        "overloaded_error"
        | "engine_overloaded_error"
        | "overloaded"
        | "unavailable_error"
        | "service_unavailable"
        | "UNAVAILABLE"
        | "capacity_exceeded"
        | "flex_capacity_exceeded" => ErrorCause::Overloaded,
        "insufficient_quota"
        | "billing_error"
        | "exceeded_current_quota_error"
        | "insufficient_balance_error"
        | "billing_hard_limit_reached"
        | "insufficient_balance"
        | "insufficient_credits"
        | "payment_required" => ErrorCause::Billing,
        "invalid_api_key"
        | "authentication_error"
        | "invalid_authentication_error"
        | "permission_denied_error"
        | "permission_error"
        | "permission_denied"
        | "UNAUTHENTICATED"
        | "PERMISSION_DENIED"
        | "insufficient_permissions" => ErrorCause::Auth,
        "invalid_request_error"
        | "invalid_request"
        | "context_length_exceeded"
        | "model_not_found"
        | "not_found_error"
        | "conflict_error"
        | "request_too_large"
        | "resource_not_found_error"
        | "NotFoundError"
        | "BadRequestError"
        | "invalid_request_message_error"
        | "INVALID_ARGUMENT"
        | "FAILED_PRECONDITION"
        | "OUT_OF_RANGE"
        | "UNIMPLEMENTED"
        | "NOT_FOUND"
        | "tool_use_failed" => ErrorCause::Request,
        "server_error"
        | "api_error"
        | "new_api_error"
        | "upstream_error"
        | "internal_error"
        | "internal_server_error"
        | "INTERNAL"
        | "UNKNOWN"
        | "DATA_LOSS"
        | "InternalServerError"
        | "generation" => ErrorCause::Server,
        "timeout_error" | "timeout" | "DEADLINE_EXCEEDED" => ErrorCause::Timeout,
        _ => return None,
    })
}

fn cause_of_number(number: i64) -> Option<ErrorCause> {
    Some(match number {
        429 => ErrorCause::Throttled,
        503 | 529 | 498 => ErrorCause::Overloaded,
        402 => ErrorCause::Billing,
        401 | 403 => ErrorCause::Auth,
        408 | 504 => ErrorCause::Timeout,
        400..=499 => ErrorCause::Request,
        500..=599 => ErrorCause::Server,
        _ => return None,
    })
}

/// Whether an entry of Google's details is of this type.
fn is_detail(detail: &Value, name: &str) -> bool {
    let kind = detail.get("@type").and_then(Value::as_str).unwrap_or_default();
    kind.rsplit('/').next() == Some(name)
}

/// What Google's `ErrorInfo` says beyond the status, where that is too wide: a key that is not
/// valid is an `INVALID_ARGUMENT`.
fn error_info(detail: &Value) -> Option<ErrorCause> {
    if !is_detail(detail, "google.rpc.ErrorInfo") {
        return None;
    }
    Some(match detail.get("reason")?.as_str()? {
        "API_KEY_INVALID" | "API_KEY_SERVICE_BLOCKED" | "SERVICE_DISABLED" => ErrorCause::Auth,
        "BILLING_DISABLED" => ErrorCause::Billing,
        "RATE_LIMIT_EXCEEDED" => ErrorCause::Throttled,
        _ => return None,
    })
}

fn retry_info(detail: &Value) -> Option<u64> {
    if !is_detail(detail, "google.rpc.RetryInfo") {
        return None;
    }
    // A protobuf duration in JSON: decimal seconds with up to nine decimals, and an `s`.
    let delay = detail.get("retryDelay")?.as_str()?.strip_suffix('s')?;
    crate::hints::decimal_ms(delay, 1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(error: &Value) -> (Option<String>, Option<ErrorCause>, Option<u64>) {
        let read = from_value(error);
        (
            read.error.code.map(|code| code.as_str().to_owned()),
            read.error.cause,
            read.retry_after_ms,
        )
    }

    #[test]
    fn a_word_says_more_than_a_number_and_policy_more_than_either() {
        let (code, cause, _) = read(&json!({"code": "1300", "type": "rate_limited"}));
        assert_eq!((code.as_deref(), cause), (Some("rate_limited"), Some(ErrorCause::Throttled)));
        let (code, cause, _) = read(&json!({"code": 429, "message": "slow down"}));
        assert_eq!((code.as_deref(), cause), (Some("429"), Some(ErrorCause::Throttled)));
        let (code, cause, _) = read(&json!({
            "code": null, "type": "invalid_request_error",
            "innererror": {"code": "ResponsibleAIPolicyViolation"},
        }));
        let want = (Some("invalid_request_error"), Some(ErrorCause::Policy));
        assert_eq!((code.as_deref(), cause), want);
        let flagged = json!({"code": 403, "metadata": {"flagged_input": "x"}});
        assert_eq!(read(&flagged).1, Some(ErrorCause::Policy));
        assert_eq!(read(&json!("Content blocked by policy")), (None, None, None));
    }

    #[test]
    fn a_quota_that_is_used_up_is_not_a_rate() {
        let quota = json!({"type": "insufficient_quota", "code": "insufficient_quota"});
        assert_eq!(read(&quota).1, Some(ErrorCause::Billing));
    }

    /// The words of Anthropic's API, and of servers that speak its protocol.
    #[test]
    fn each_type_of_the_messages_api_has_its_cause() {
        for (word, cause) in [
            ("invalid_request_error", ErrorCause::Request),
            ("authentication_error", ErrorCause::Auth),
            ("billing_error", ErrorCause::Billing),
            ("permission_error", ErrorCause::Auth),
            ("not_found_error", ErrorCause::Request),
            ("conflict_error", ErrorCause::Request),
            ("request_too_large", ErrorCause::Request),
            ("rate_limit_error", ErrorCause::Throttled),
            ("timeout_error", ErrorCause::Timeout),
            ("api_error", ErrorCause::Server),
            ("overloaded_error", ErrorCause::Overloaded),
            ("engine_overloaded_error", ErrorCause::Overloaded),
            ("exceeded_current_quota_error", ErrorCause::Billing),
            ("sensitive_words_detected", ErrorCause::Policy),
        ] {
            let body = json!({"type": "error", "request_id": "req_429",
                "error": {"type": word, "message": "m", "details": null}});
            let error = from_body(&body).expect("an error").error;
            assert_eq!(error.code.expect("a code").as_str(), word);
            assert_eq!(error.cause, Some(cause), "{word}");
        }
    }

    #[test]
    fn google_says_in_the_details_what_its_status_leaves_open() {
        let error = |status: &str, reason: &str| {
            read(&json!({"code": 400, "status": status, "details": [
                {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [
                    {"quotaId": "GenerateRequestsPerDayPerProjectPerModel"}]},
                {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason},
            ]}))
        };
        for (status, reason, want) in [
            ("INVALID_ARGUMENT", "API_KEY_INVALID", ErrorCause::Auth),
            ("INVALID_ARGUMENT", "SOMETHING_ELSE", ErrorCause::Request),
            ("PERMISSION_DENIED", "BILLING_DISABLED", ErrorCause::Billing),
            ("RESOURCE_EXHAUSTED", "RATE_LIMIT_EXCEEDED", ErrorCause::Throttled),
            ("FAILED_PRECONDITION", "", ErrorCause::Request),
            ("UNKNOWN", "", ErrorCause::Server),
        ] {
            let (code, cause, wait) = error(status, reason);
            assert_eq!((code.as_deref(), cause, wait), (Some(status), Some(want), None));
        }
    }

    #[test]
    fn retry_info_is_rounded_up_to_a_millisecond() {
        let body = json!([{"error": {"code": 429, "details": [
            {"@type": "type.googleapis.com/google.rpc.Help"},
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "53.000000001s"},
        ]}}]);
        assert_eq!(from_body(&body).expect("an error").retry_after_ms, Some(53_001));
    }
}
