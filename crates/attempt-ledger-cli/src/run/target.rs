//! Where requests go, and what opens the door there.

use attempt_ledger_core::Digest;
use attempt_ledger_store::Ledger;
use http::{HeaderValue, Uri};

use crate::failure::Failure;

/// What the base URL is completed with.
const CHAT: &str = "/chat/completions";

/// Reads the base URL. It is not repeated in errors, since it may hold what must not be shown.
pub(super) fn endpoint(base: &str) -> Result<Uri, Failure> {
    let refuse = |what: &str| {
        Failure::usage(format_args!("--base-url {what}"))
            .hint("give scheme, host, port and path only, such as https://api.example.com/v1")
    };
    if base.contains(['?', '#']) {
        return Err(refuse("has a query or a fragment, which may hold a key"));
    }
    if !base.contains("://") {
        return Err(refuse("has no scheme"));
    }
    let parsed: Uri = base.parse().map_err(|_| refuse("is no URL"))?;
    let (Some(scheme), Some(authority)) = (parsed.scheme_str(), parsed.authority()) else {
        return Err(refuse("is no URL"));
    };
    if !matches!(scheme, "http" | "https") {
        return Err(refuse("is neither http nor https"));
    }
    if authority.as_str().contains('@') {
        return Err(refuse("holds a user or a password; keys come from --api-key-env"));
    }
    if authority.host().is_empty() {
        return Err(refuse("has no host"));
    }
    let path = parsed.path().trim_end_matches('/');
    let end = if path.ends_with(CHAT) { "" } else { CHAT };
    format!("{scheme}://{authority}{path}{end}").parse().map_err(|_| refuse("is no URL"))
}

/// Reads the API key of an environment variable, as the header that carries it.
pub(super) fn key(variable: &str) -> Result<HeaderValue, Failure> {
    let refuse = |what: &str| {
        // Who gives the key itself by mistake does not read it in a log.
        let name = match is_variable(variable) {
            true => format!("{variable:?}"),
            false => "that --api-key-env names".to_owned(),
        };
        Failure::usage(format_args!("the environment variable {name} {what}"))
            .hint("set it to the API key alone, without quotes or a line break; the key itself is never an argument")
    };
    // The system has no variables of such names, and would panic on some.
    if variable.is_empty() || variable.contains(['=', '\0']) {
        return Err(Failure::usage("--api-key-env is no name of a variable")
            .hint("name the variable that holds the key; the key itself is never an argument"));
    }
    let key = match std::env::var(variable) {
        Ok(key) => key,
        Err(std::env::VarError::NotPresent) => return Err(refuse("is not set")),
        Err(std::env::VarError::NotUnicode(_)) => return Err(refuse("is not text")),
    };
    if key.is_empty() {
        return Err(refuse("is empty"));
    }
    if key.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(refuse("holds white space or a control character"));
    }
    let mut value = HeaderValue::from_str(&format!("Bearer {key}"))
        .map_err(|_| refuse("holds what no header can carry"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Whether it looks like the name of a variable, and not like a key.
fn is_variable(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    text.len() <= 64 && text.contains(|c: char| c.is_ascii_uppercase()) && text.chars().all(plain)
}

/// Refuses a model's name that would not be recorded as it is sent.
pub(super) fn model(name: &str) -> Result<(), Failure> {
    if !is_name(name) {
        return Err(Failure::usage("--model has more than 256 bytes, or a control character"));
    }
    Ok(())
}

/// Whether it can be a model's name.
pub(crate) fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 256 && !name.chars().any(char::is_control)
}

/// A name for a run made of all that shapes its answers and grades.
pub(super) fn run_name(
    uri: &Uri,
    model: &str,
    graders: &[attempt_ledger_core::GraderInfo],
    checks: &[attempt_ledger_core::CheckInfo],
    cases: &[super::cases::Case],
    ledger: &Ledger,
) -> String {
    let mut all: Vec<String> = cases
        .iter()
        .map(|case| {
            let expected = case.expected.as_ref().filter(|_| !graders.is_empty());
            let expected = expected.map(|text| Digest::of(text.as_bytes()).hex());
            serde_json::json!([case.id, case.fixture, case.asks, expected]).to_string()
        })
        .collect();
    // The order of the lines shapes nothing.
    all.sort_unstable();
    let graders = match graders {
        [] => serde_json::Value::Null,
        [one] => serde_json::json!(one),
        all => serde_json::json!(all),
    };
    let head = match checks {
        [] => serde_json::json!([uri.to_string(), model, graders]),
        checks => serde_json::json!([uri.to_string(), model, graders, checks]),
    };
    let text = format!("attempt-ledger run 1\n{head}\n{}", all.join("\n"));
    format!("run-{}", ledger.recorded(Digest::of(text.as_bytes())).short())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_url_is_completed() {
        for (base, want) in [
            ("http://127.0.0.1:80/v1", "http://127.0.0.1:80/v1/chat/completions"),
            ("https://a.example/v1/", "https://a.example/v1/chat/completions"),
            ("https://a.example", "https://a.example/chat/completions"),
            ("http://a/v1/chat/completions", "http://a/v1/chat/completions"),
        ] {
            assert_eq!(endpoint(base).map(|uri| uri.to_string()).ok().as_deref(), Some(want));
        }
    }

    #[test]
    fn a_base_url_that_may_hold_a_key_is_refused_and_not_repeated() {
        for bad in [
            "a.example/v1",
            "127.0.0.1:8080",
            "ftp://a/v1",
            "http://user:SECRET@a/v1",
            "http://SECRET@a/v1",
            "http://a/v1?key=SECRET",
            "http://a/v1#SECRET",
            "http://",
            "http:///v1",
            "http://a b/",
            "",
        ] {
            match endpoint(bad) {
                Ok(uri) => panic!("{bad} was taken: {uri}"),
                Err(failure) => assert!(!format!("{failure:?}").contains("SECRET"), "{bad}"),
            }
        }
    }
}
