use attempt_ledger_core::{Digest, Label};
use http::{HeaderMap, HeaderName, HeaderValue, Uri, header};

/// The credentials of one request, so that a server that echoes one does not get it into a row.
///
/// Rows keep a provider's code and stop word as they are, and a server may put anything there.
#[derive(Clone, Debug, Default)]
pub(super) struct Secrets {
    headers: Vec<HeaderValue>,
    uri: Option<Uri>,
}

/// Headers that hold credentials, whether or not they are marked sensitive.
const CREDENTIALS: [HeaderName; 3] =
    [header::AUTHORIZATION, header::PROXY_AUTHORIZATION, header::COOKIE];
const CREDENTIALS_BY_NAME: [&str; 3] = ["api-key", "x-api-key", "x-goog-api-key"];

/// Words of a credential that are no secret.
const SCHEMES: [&[u8]; 5] = [b"Bearer", b"bearer", b"Basic", b"Digest", b"Negotiate"];

/// Shorter words are not told apart from a provider's own.
const SHORTEST: usize = 6;

impl Secrets {
    pub(super) fn of(uri: &Uri, headers: &HeaderMap) -> Self {
        let is_credential = |(name, value): &(&HeaderName, &HeaderValue)| {
            value.is_sensitive()
                || CREDENTIALS.contains(name)
                || CREDENTIALS_BY_NAME.contains(&name.as_str())
        };
        let headers =
            headers.iter().filter(is_credential).map(|(_, value)| value.clone()).collect();
        let has_userinfo = uri.authority().is_some_and(|a| a.as_str().contains('@'));
        let uri = (uri.query().is_some() || has_userinfo).then(|| uri.clone());
        Secrets { headers, uri }
    }

    /// The label, hashed when it is, holds, or is part of one of the credentials.
    pub(super) fn mask(&self, label: Label) -> Label {
        if self.echoed(label.as_str()) {
            Label::new(&format!("other:{}", Digest::of(label.as_str().as_bytes()).short()))
        } else {
            label
        }
    }

    fn echoed(&self, word: &str) -> bool {
        if word.len() < SHORTEST || (self.headers.is_empty() && self.uri.is_none()) {
            return false;
        }
        let query = self.uri.iter().filter_map(|uri| uri.query()).flat_map(|q| q.split('&'));
        let values = query.map(|pair| pair.split_once('=').map_or(pair, |(_, value)| value));
        let userinfo = self.uri.iter().filter_map(|uri| uri.authority()?.as_str().rsplit_once('@'));
        let userinfo = userinfo.flat_map(|(info, _)| info.split(':'));
        // `Bearer KEY`, `a=KEY; b=KEY`
        let headers = self
            .headers
            .iter()
            .flat_map(|value| value.as_bytes().split(|b| matches!(b, b' ' | b';' | b',' | b'=')));
        headers.chain(values.chain(userinfo).map(str::as_bytes)).any(|secret| {
            secret.len() >= SHORTEST
                && !SCHEMES.contains(&secret)
                && (holds(secret, word.as_bytes()) || holds(word.as_bytes(), secret))
        })
    }
}

fn holds(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echoed_credential_is_hashed_and_a_code_is_kept() {
        let request = http::Request::post("http://user:canary-pass@h/v1?key=canary-query")
            .header("authorization", "Bearer sk-CANARY-12345")
            .header("x-api-key", "other-key-777")
            .body(())
            .expect("request");
        let secrets = Secrets::of(request.uri(), request.headers());
        for echoed in [
            "sk-CANARY-12345",
            "sk-CANARY",
            "bad:sk-CANARY-12345",
            "other-key-777",
            "canary-query",
            "canary-pass",
        ] {
            let masked = secrets.mask(Label::new(echoed));
            assert!(masked.as_str().starts_with("other:"), "{echoed}");
        }
        for code in ["invalid_api_key", "rate_limit_exceeded", "stop", "Bearer", "1300"] {
            assert_eq!(secrets.mask(Label::new(code)).as_str(), code);
        }
    }
}
