use std::sync::Arc;

use http::{Request, StatusCode, Uri};
use tower_http::follow_redirect::{
    FollowRedirectLayer,
    policy::{Action, Attempt, Policy},
};

use crate::sync::{Mutex, lock};

/// Redirects followed within one attempt, at most.
pub(crate) const MAX_HOPS: usize = 5;

/// Places listed for one attempt, at most.
const MAX_LISTED: usize = 16;

/// Bytes of one place that are listed.
const MAX_PLACE: usize = 1024;

/// The places that an attempt was redirected to, without queries. A [`RedirectPolicy`] beneath the
/// ledger fills it; the row lists it.
#[derive(Clone, Debug, Default)]
pub struct Hops(Arc<Mutex<Vec<String>>>);

impl Hops {
    pub(crate) fn list(&self) -> Vec<String> {
        lock(&self.0).clone()
    }

    /// Lists a place. For a client that follows redirects by itself, and tells no more than where it
    /// ended: it finds the list in the extensions of its request.
    pub fn push(&self, to: &Uri) {
        let mut hops = lock(&self.0);
        // A row has a bound; whoever follows more has one of its own.
        if hops.len() < MAX_LISTED {
            hops.push(place(to));
        }
    }
}

/// Scheme, host, port and path: a query may hold a key.
fn place(uri: &Uri) -> String {
    let authority = uri.authority().map_or("", |a| a.as_str());
    // Userinfo is a credential too.
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let place = format!("{}://{host}{}", uri.scheme_str().unwrap_or("http"), uri.path());
    // A server chooses its length, and a row has a bound.
    if place.len() <= MAX_PLACE {
        place
    } else {
        format!("other:{}", attempt_ledger_core::Digest::of(place.as_bytes()).short())
    }
}

/// Follows 307 and 308 within the same origin, at most 5 times: the method and the body stay, so
/// that it is the same attempt. Every other redirect is handed up, and is the verdict `redirected`.
#[derive(Clone, Debug, Default)]
pub struct RedirectPolicy {
    hops: Option<Hops>,
    followed: usize,
}

/// A redirect layer to put beneath a [`LedgerLayer`](crate::LedgerLayer): hops stay within the
/// attempt, and are listed in its row.
pub fn redirect_layer() -> FollowRedirectLayer<RedirectPolicy> {
    FollowRedirectLayer::with_policy(RedirectPolicy::default())
}

impl<B: Clone, E> Policy<B, E> for RedirectPolicy {
    fn redirect(&mut self, attempt: &Attempt<'_>) -> Result<Action, E> {
        let keeps_method = matches!(
            attempt.status(),
            StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT
        );
        if !keeps_method
            || self.followed >= MAX_HOPS
            || !same_origin(attempt.previous(), attempt.location())
        {
            return Ok(Action::Stop);
        }
        self.followed += 1;
        if let Some(hops) = &self.hops {
            hops.push(attempt.location());
        }
        Ok(Action::Follow)
    }

    fn on_request(&mut self, request: &mut Request<B>) {
        if self.hops.is_none() {
            self.hops = request.extensions().get().cloned();
        }
    }

    fn clone_body(&self, body: &B) -> Option<B> {
        Some(body.clone())
    }
}

fn same_origin(a: &Uri, b: &Uri) -> bool {
    let port = |uri: &Uri| {
        uri.port_u16().or(match uri.scheme_str() {
            Some("https") => Some(443),
            Some("http") => Some(80),
            _ => None,
        })
    };
    let host = |uri: &Uri| uri.host().map(str::to_ascii_lowercase);
    a.scheme() == b.scheme() && host(a) == host(b) && port(a) == port(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_compare_by_scheme_host_and_port() {
        let uri = |s: &'static str| Uri::from_static(s);
        assert!(same_origin(&uri("http://a/x"), &uri("http://A:80/y?z")));
        for other in ["https://a/", "https://a:80/", "http://b/", "http://a:81/", "http://a.evil/"]
        {
            assert!(!same_origin(&uri("http://a/x"), &uri(other)), "{other}");
        }
    }

    #[test]
    fn hops_hold_neither_query_nor_userinfo() {
        assert_eq!(place(&Uri::from_static("http://u:p@h:1/v1/x?key=K")), "http://h:1/v1/x");
    }
}
