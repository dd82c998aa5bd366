use std::sync::Arc;

use attempt_ledger_core::{Digest, FingerprintBuilder, RequestParts, fingerprint};
use attempt_ledger_wire::{RequestFacts, Wire, read_request};
use http::{HeaderMap, Uri};

use super::secrets::Secrets;
use crate::{LedgerRequest, RequestView, SentHash};

/// What is known of a request before it is sent.
pub(super) struct Prepared {
    pub(super) wire: Wire,
    pub(super) facts: RequestFacts,
    pub(super) fingerprint: Option<Digest>,
    pub(super) host: Option<Arc<str>>,
    pub(super) sent: Option<SentHash>,
    pub(super) secrets: Secrets,
}

pub(super) fn prepare<R: LedgerRequest>(request: &R, wire: Option<Wire>, epoch: u32) -> Prepared {
    match request.view() {
        Some(view) => read(&view, wire, epoch),
        // Nothing is known of what it does: it may write.
        None => Prepared {
            wire: wire.unwrap_or(Wire::Plain),
            facts: RequestFacts::default(),
            fingerprint: None,
            host: request.host().map(Into::into),
            sent: None,
            secrets: Secrets::default(),
        },
    }
}

fn read(request: &RequestView<'_>, wire: Option<Wire>, epoch: u32) -> Prepared {
    let path = request.uri.path();
    // The answer to a HEAD has no body on any wire.
    let wire = if *request.method == http::Method::HEAD {
        Wire::Plain
    } else {
        wire.unwrap_or_else(|| Wire::detect(path))
    };
    let facts = read_request(wire, request.method, path, request.body.as_deref());
    let sent = request.sent.clone();
    let fingerprint = with_parts(request, epoch, |parts| match &sent {
        None if parts.body.is_some() => Some(fingerprint(parts)),
        None => None,
        Some(sent) => {
            sent.start(FingerprintBuilder::new(parts));
            None
        }
    });
    let secrets = Secrets::of(request.uri, request.headers);
    let host = host_of(request.uri, request.headers).map(Into::into);
    Prepared { wire, facts, fingerprint, host, sent, secrets }
}

/// The fingerprint of what would be sent; `None` for a streamed body.
pub(crate) fn fingerprint_of(request: &RequestView<'_>, epoch: u32) -> Option<Digest> {
    request.body.is_some().then(|| with_parts(request, epoch, fingerprint))
}

fn with_parts<R>(
    request: &RequestView<'_>,
    epoch: u32,
    then: impl FnOnce(&RequestParts<'_>) -> R,
) -> R {
    let uri = request.uri;
    // One pass over the few that are there: looking each counted one up would hash its name.
    let counted = |name: &str| attempt_ledger_core::COUNTED_HEADERS.contains(&name);
    let headers: Vec<_> = request
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_bytes()))
        .filter(|(name, _)| counted(name))
        .collect();
    then(&RequestParts {
        method: request.method.as_str(),
        scheme: uri.scheme_str().unwrap_or("http"),
        host: uri.host().or_else(|| host_header(request.headers)).unwrap_or(""),
        port: uri.port_u16(),
        path: uri.path(),
        query: uri.query(),
        headers: &headers,
        body: request.body.as_deref(),
        epoch,
    })
}

fn host_header(headers: &HeaderMap) -> Option<&str> {
    headers.get(http::header::HOST)?.to_str().ok()
}

/// Host and port, never userinfo.
pub(crate) fn host_of<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    match (uri.host(), uri.authority()) {
        (Some(host), Some(authority)) => {
            let text = authority.as_str();
            let bare = text.rsplit_once('@').map_or(text, |(_, bare)| bare);
            Some(if bare.is_empty() { host } else { bare })
        }
        _ => host_header(headers),
    }
}
