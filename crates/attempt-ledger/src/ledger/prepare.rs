use std::sync::Arc;

use attempt_ledger_core::{Digest, FingerprintBuilder, RequestParts, fingerprint};
use attempt_ledger_wire::{RequestFacts, Wire, read_request};
use http::{Request, Uri};

use super::secrets::Secrets;
use crate::{RequestBody, SentHash};

/// What is known of a request before it is sent.
pub(super) struct Prepared {
    pub(super) wire: Wire,
    pub(super) facts: RequestFacts,
    pub(super) fingerprint: Option<Digest>,
    pub(super) host: Option<Arc<str>>,
    pub(super) sent: Option<SentHash>,
    pub(super) secrets: Secrets,
}

pub(super) fn prepare<B: RequestBody>(
    request: &Request<B>,
    wire: Option<Wire>,
    epoch: u32,
) -> Prepared {
    let path = request.uri().path();
    // The answer to a HEAD has no body on any wire.
    let wire = if request.method() == http::Method::HEAD {
        Wire::Plain
    } else {
        wire.unwrap_or_else(|| Wire::detect(path))
    };
    let body = request.body().bytes();
    let facts = read_request(wire, request.method(), path, body.as_deref());
    let sent = if body.is_none() { request.body().sent() } else { None };
    let fingerprint = with_parts(request, body.as_deref(), epoch, |parts| match &sent {
        None if parts.body.is_some() => Some(fingerprint(parts)),
        None => None,
        Some(sent) => {
            sent.start(FingerprintBuilder::new(parts));
            None
        }
    });
    let secrets = Secrets::of(request);
    Prepared { wire, facts, fingerprint, host: host(request), sent, secrets }
}

/// The fingerprint of what would be sent; `None` for a streamed body.
pub(crate) fn fingerprint_of<B: RequestBody>(request: &Request<B>, epoch: u32) -> Option<Digest> {
    let body = request.body().bytes()?;
    Some(with_parts(request, Some(&body), epoch, fingerprint))
}

fn with_parts<B, R>(
    request: &Request<B>,
    body: Option<&[u8]>,
    epoch: u32,
    then: impl FnOnce(&RequestParts<'_>) -> R,
) -> R {
    let uri = request.uri();
    // One pass over the few that are there: looking each counted one up would hash its name.
    let counted = |name: &str| attempt_ledger_core::COUNTED_HEADERS.contains(&name);
    let headers: Vec<_> = request
        .headers()
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_bytes()))
        .filter(|(name, _)| counted(name))
        .collect();
    then(&RequestParts {
        method: request.method().as_str(),
        scheme: uri.scheme_str().unwrap_or("http"),
        host: uri.host().or_else(|| host_header(request)).unwrap_or(""),
        port: uri.port_u16(),
        path: uri.path(),
        query: uri.query(),
        headers: &headers,
        body,
        epoch,
    })
}

fn host_header<B>(request: &Request<B>) -> Option<&str> {
    request.headers().get(http::header::HOST)?.to_str().ok()
}

/// Host and port, never userinfo.
fn host<B>(request: &Request<B>) -> Option<Arc<str>> {
    let uri: &Uri = request.uri();
    match (uri.host(), uri.authority()) {
        (Some(host), Some(authority)) => {
            let text = authority.as_str();
            let bare = text.rsplit_once('@').map_or(text, |(_, bare)| bare);
            Some(if bare.is_empty() { host.into() } else { bare.into() })
        }
        _ => host_header(request).map(Into::into),
    }
}
