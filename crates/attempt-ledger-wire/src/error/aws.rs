//! Errors as AWS names them: in a header, in a body's `__type`, as the type of a frame.

use attempt_ledger_core::{ErrorCause, InBandError, Label};
use http::{HeaderMap, HeaderName};
use serde_json::Value;

use super::{ReportedError, cause_of_number};

static ERROR_TYPE: HeaderName = HeaderName::from_static("x-amzn-errortype");

/// The error that the headers of a response name: `Name`, and behind a colon where it is from.
pub(crate) fn from_headers(headers: &HeaderMap) -> Option<ReportedError> {
    let name = bare(headers.get(&ERROR_TYPE)?.to_str().ok()?);
    (!name.is_empty()).then(|| of_name(name))
}

/// The error that a frame or a member of this name reports, with what it says of it.
pub(crate) fn of_exception(name: &str, said: &Value) -> ReportedError {
    let mut reported = of_name(name);
    // The number that the model's own server gave says more than that the stream failed.
    let original = said.get("originalStatusCode").and_then(Value::as_i64);
    if reported.error.cause == Some(ErrorCause::Server)
        && let Some(cause) = original.and_then(cause_of_number)
        && cause != ErrorCause::Request
    {
        reported.error.cause = Some(cause);
    }
    reported
}

/// Whether a name is that of an exception.
pub(crate) fn is_exception(name: &str) -> bool {
    name.ends_with("Exception")
}

/// What a name means that says of itself that it is an exception's.
pub(super) fn cause_of_exception(name: &str) -> Option<ErrorCause> {
    if is_exception(name) { cause(name) } else { None }
}

/// The name alone, without its namespace and where it is from.
pub(super) fn bare(name: &str) -> &str {
    let name = name.split(':').next().unwrap_or_default();
    name.rsplit('#').next().unwrap_or_default().trim()
}

fn of_name(name: &str) -> ReportedError {
    let code = (!name.is_empty()).then(|| Label::new(name));
    ReportedError { error: InBandError { code, cause: cause(name) }, retry_after_ms: None }
}

/// What a name means. In a stream its first letter is a small one; older services leave out
/// `Exception`.
pub(super) fn cause(name: &str) -> Option<ErrorCause> {
    let name = name.strip_suffix("Exception").unwrap_or(name);
    let (first, rest) = name.split_at_checked(1)?;
    Some(match (first.to_ascii_uppercase().as_str(), rest) {
        ("T", "hrottling" | "hrottled" | "hrottlingError" | "ooManyRequests")
        | ("R", "equestLimitExceeded" | "equestThrottled")
        | ("P", "rovisionedThroughputExceeded")
        | ("L", "imitExceeded")
        | ("S", "lowDown") => ErrorCause::Throttled,
        ("S", "erviceUnavailable" | "erviceUnavailableError")
        | ("M", "odelNotReady")
        | ("I", "nsufficientCapacity") => ErrorCause::Overloaded,
        ("S", "erviceQuotaExceeded") => ErrorCause::Billing,
        ("A", "ccessDenied" | "uthFailure")
        | ("U", "nrecognizedClient" | "nauthorized")
        | ("I", "nvalidSignature" | "ncompleteSignature" | "nvalidClientTokenId")
        | ("E", "xpiredToken")
        | ("M", "issingAuthenticationToken")
        | ("S", "ignatureDoesNotMatch")
        | ("N", "otAuthorized")
        | ("O", "ptInRequired")
        | ("F", "orbidden") => ErrorCause::Auth,
        ("V", "alidation" | "alidationError")
        | ("R", "esourceNotFound" | "esourceInUse" | "equestEntityTooLarge")
        | ("C", "onflict")
        | ("B", "adRequest")
        | ("I", "nvalidParameterValue" | "nvalidRequest")
        | ("M", "alformedInput" | "issingParameter")
        | ("S", "erialization")
        | ("U", "nknownOperation") => ErrorCause::Request,
        (
            "I",
            "nternalServer" | "nternalFailure" | "nternalServerError" | "nternalService"
            | "nternalError" | "nternal",
        )
        | ("M", "odelError" | "odelStreamError")
        | ("S", "erviceException") => ErrorCause::Server,
        ("M", "odelTimeout") | ("R", "equestTimeout") | ("G", "atewayTimeout") => {
            ErrorCause::Timeout
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_name_is_known_in_each_of_its_spellings() {
        for (name, want) in [
            ("ThrottlingException", Some(ErrorCause::Throttled)),
            ("throttlingException", Some(ErrorCause::Throttled)),
            ("Throttling", Some(ErrorCause::Throttled)),
            ("serviceUnavailableException", Some(ErrorCause::Overloaded)),
            ("ModelNotReadyException", Some(ErrorCause::Overloaded)),
            ("modelTimeoutException", Some(ErrorCause::Timeout)),
            ("validationException", Some(ErrorCause::Request)),
            ("ResourceNotFoundException", Some(ErrorCause::Request)),
            ("internalServerException", Some(ErrorCause::Server)),
            ("InternalFailure", Some(ErrorCause::Server)),
            ("modelStreamErrorException", Some(ErrorCause::Server)),
            ("ModelErrorException", Some(ErrorCause::Server)),
            ("AccessDeniedException", Some(ErrorCause::Auth)),
            ("ExpiredTokenException", Some(ErrorCause::Auth)),
            ("ServiceQuotaExceededException", Some(ErrorCause::Billing)),
            ("THROTTLING", None),
            ("Exception", None),
            ("ébranlé", None),
            ("", None),
        ] {
            assert_eq!(cause(name), want, "{name}");
        }
    }

    #[test]
    fn a_header_names_the_error_before_its_colon() {
        for (value, code) in [
            ("ThrottlingException", Some("ThrottlingException")),
            ("ThrottlingException:http://internal.example/coral/", Some("ThrottlingException")),
            ("com.example.bedrock#ThrottlingException", Some("ThrottlingException")),
            (":", None),
            ("", None),
        ] {
            let headers =
                HeaderMap::from_iter([(ERROR_TYPE.clone(), value.parse().expect("a value"))]);
            let read = from_headers(&headers).and_then(|reported| reported.error.code);
            assert_eq!(read.as_ref().map(Label::as_str), code, "{value}");
        }
        assert!(from_headers(&HeaderMap::new()).is_none());
    }

    #[test]
    fn the_number_of_the_models_server_says_more() {
        let cause = |status: i64| {
            let said = json!({"message": "m", "originalStatusCode": status});
            of_exception("modelStreamErrorException", &said).error.cause
        };
        assert_eq!(cause(429), Some(ErrorCause::Throttled));
        assert_eq!(cause(503), Some(ErrorCause::Overloaded));
        assert_eq!(cause(500), Some(ErrorCause::Server));
        assert_eq!(cause(424), Some(ErrorCause::Server));
    }
}
