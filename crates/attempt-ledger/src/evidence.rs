use std::{error::Error as StdError, io};

use attempt_ledger_core::{Phase, Remote, TransportKind};

/// What the types in an error's chain tell of a request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransportEvidence {
    /// What failed.
    pub kind: TransportKind,
    /// Where the attempt was.
    pub phase: Phase,
    /// What is known of the remote side.
    pub remote: Remote,
}

/// Classifies the error of a request that got no response head.
///
/// Walks the chain of sources, and at each [`io::Error`] what it wraps as well, since `source()`
/// skips that. Reads types and their predicates only, never a message. What no type explains is
/// [`TransportKind::Unclassified`] with the remote side unknown.
///
/// | type | kind | remote |
/// | --- | --- | --- |
/// | hyper-util's `is_connect()`, i/o `ConnectionRefused` | `connect`; `dns`, `tls`, `timeout` by what it wraps | `not_reached` |
/// | hyper's `is_canceled()`: it handed the message back | `canceled` | `not_reached` |
/// | h2: a received reset `REFUSED_STREAM`; a received `GOAWAY` with `NO_ERROR`, which h2 gives only to streams above its last id (feature `http2`) | `refused_stream` | `not_reached` |
/// | h2: a received `ENHANCE_YOUR_CALM` | `enhance_your_calm` | `answered` |
/// | h2: a broken rule of the protocol, found by either side; any other received reset | `protocol`; `reset` | `unknown` |
/// | tower's `Overloaded`; `Closed` of a buffer | `limit` | `not_reached` |
/// | tower's `ServiceError` of a buffer: the service behind it never got ready | by what it wraps | `not_reached` |
/// | tower's `Elapsed`, tower-http's `TimeoutError` | `elapsed` | `unknown` |
/// | hyper's `is_user()`: the request's body failed | `request_body` | `unknown` |
/// | http-body-util's `LengthLimitError` | `body_limit` | `unknown` |
/// | rustls after the handshake | `tls` | `unknown` |
/// | i/o errors, hyper's `is_incomplete_message()`, `is_parse()`, `is_timeout()` | `reset`, `closed`, `cut`, `protocol`, `timeout` | `unknown` |
/// | reqwest's predicates, where its chain says nothing (feature `reqwest`) | `elapsed`, `redirect`, `dns`, `request_body`, `protocol` | `unknown`, but `answered` for a redirect, `not_reached` for a name |
///
/// tower's concurrency and rate limits never fail, they wait; its `SpawnReady` fails only in
/// `poll_ready`, before an attempt is opened. tower-http's `Timeout` makes no error but a response
/// with status 408, which nothing tells from the server's own: the row is `server_error` with the
/// remote side unknown, as for any 408. An error that a caller's `error_for_status` made of a
/// response carries no head: check the status above the ledger instead.
pub fn classify(error: &(dyn StdError + 'static)) -> TransportEvidence {
    Found::of(error, false).evidence()
}

/// Classifies the error of a response body.
pub(crate) fn classify_body(error: &(dyn StdError + 'static)) -> TransportKind {
    Found::of(error, true).evidence().kind
}

/// Longer chains than this do not occur; a cyclic one must not hang the caller.
const MAX_CHAIN: usize = 64;

fn next_of<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a (dyn StdError + 'static)> {
    #[cfg(feature = "http2")]
    if let Some(io) = error.downcast_ref::<h2::Error>().and_then(h2::Error::get_io) {
        // h2 names no source.
        return Some(io);
    }
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(wrapped) => Some(wrapped),
        None => error.source(),
    }
}

/// Whether the chain of sources has an end, and few clients' errors within one another: predicates
/// that walk it themselves have no bound of their own.
fn ends(error: &(dyn StdError + 'static)) -> bool {
    let mut next = Some(error);
    let mut clients = 0;
    for _ in 0..MAX_CHAIN {
        let Some(error) = next else { return true };
        #[cfg(feature = "reqwest")]
        {
            clients += u32::from(error.is::<reqwest::Error>());
        }
        clients += u32::from(error.is::<hyper::Error>());
        if clients > MAX_CLIENTS {
            return false;
        }
        next = error.source();
    }
    false
}

/// reqwest's `is_timeout` asks each error of its own kind beneath again, twice as often a level.
const MAX_CLIENTS: u32 = 8;

#[derive(Default)]
struct Found {
    in_body: bool,
    connecting: bool,
    unsent: bool,
    dns: bool,
    tls: bool,
    limit: bool,
    body_limit: bool,
    canceled: bool,
    closed: bool,
    protocol: bool,
    request_body: bool,
    elapsed: bool,
    local_clock: bool,
    io: Option<io::ErrorKind>,
    /// What an h2 error says, but the i/o error within one.
    stream: Option<(TransportKind, Remote)>,
    /// reqwest finds a name without an address somewhere beneath: in the connector, or else in what a
    /// request's body failed with.
    client_dns: bool,
    /// What reqwest says of its error, for want of anything better.
    client: Option<(TransportKind, Remote)>,
}

impl Found {
    fn of(error: &(dyn StdError + 'static), in_body: bool) -> Self {
        let mut found = Found { in_body, ..Found::default() };
        let mut next = Some(error);
        for _ in 0..MAX_CHAIN {
            let Some(error) = next else { break };
            found.look(error);
            if found.request_body {
                // What lies beneath is of the caller's own body: it may well be another request's
                // error, and proves nothing of this one.
                break;
            }
            next = next_of(error);
        }
        found
    }

    fn look(&mut self, error: &(dyn StdError + 'static)) {
        if let Some(e) = error.downcast_ref::<hyper_util::client::legacy::Error>() {
            self.connecting |= e.is_connect();
        }
        if let Some(e) = error.downcast_ref::<hyper::Error>() {
            self.canceled |= e.is_canceled();
            self.closed |= e.is_incomplete_message() || e.is_closed();
            self.protocol |= e.is_parse();
            self.request_body |= e.is_user();
            // hyper walks the whole chain for this.
            self.elapsed |= ends(error) && e.is_timeout();
        }
        if let Some(e) = error.downcast_ref::<io::Error>() {
            // The innermost says most: a TLS error sits within an i/o error of kind `InvalidData`.
            self.io = Some(e.kind());
        }
        self.local_clock |= error.is::<tower::timeout::error::Elapsed>()
            || error.is::<tower_http::timeout::TimeoutError>();
        self.limit |= error.is::<tower::load_shed::error::Overloaded>()
            || error.is::<tower::buffer::error::Closed>();
        self.unsent |= error.is::<tower::buffer::error::ServiceError>();
        self.body_limit |= error.is::<http_body_util::LengthLimitError>();
        #[cfg(feature = "client")]
        {
            self.dns |= error.is::<crate::client::DnsError>();
            self.tls |= error.is::<rustls::Error>();
        }
        #[cfg(feature = "http2")]
        if let Some(e) = error.downcast_ref::<h2::Error>() {
            self.stream = self.stream.or_else(|| stream_of(e, self.in_body));
        }
        #[cfg(feature = "reqwest")]
        if let Some(e) = error.downcast_ref::<reqwest::Error>().filter(|_| ends(error)) {
            self.client_dns |= e.is_dns();
            self.client = self.client.or_else(|| client_of(e, self.in_body));
        }
    }

    fn evidence(&self) -> TransportEvidence {
        let found = self.as_if_sent();
        if self.unsent {
            // The service behind a buffer failed before it was called.
            return TransportEvidence { phase: Phase::Open, remote: Remote::NotReached, ..found };
        }
        found
    }

    fn as_if_sent(&self) -> TransportEvidence {
        use TransportKind as K;
        use io::ErrorKind as Io;
        let open =
            |kind| TransportEvidence { kind, phase: Phase::Open, remote: Remote::NotReached };
        let before =
            |kind| TransportEvidence { kind, phase: Phase::Connect, remote: Remote::NotReached };
        let after = |kind| {
            let phase = if self.in_body { Phase::Body } else { Phase::Head };
            TransportEvidence { kind, phase, remote: Remote::Unknown }
        };
        if self.limit {
            return open(K::Limit);
        }
        if self.dns {
            return before(K::Dns);
        }
        if self.connecting || self.io == Some(Io::ConnectionRefused) {
            let clock = self.local_clock || self.client.is_some_and(|(kind, _)| kind == K::Elapsed);
            let kind = match self.io {
                _ if self.client_dns => K::Dns,
                _ if self.tls => K::Tls,
                _ if clock => K::Timeout,
                Some(Io::TimedOut) => K::Timeout,
                _ => K::Connect,
            };
            return before(kind);
        }
        if self.local_clock {
            return after(K::Elapsed);
        }
        if self.canceled {
            // hyper hands the message back unwritten.
            return open(K::Canceled);
        }
        if let Some((kind, remote)) = self.stream {
            return TransportEvidence { remote, ..after(kind) };
        }
        if self.request_body {
            return after(K::RequestBody);
        }
        if self.tls {
            return after(K::Tls);
        }
        match self.io {
            Some(
                Io::ConnectionReset
                | Io::ConnectionAborted
                | Io::BrokenPipe
                | Io::NotConnected
                | Io::HostUnreachable
                | Io::NetworkUnreachable
                | Io::NetworkDown,
            ) => after(K::Reset),
            Some(Io::UnexpectedEof) => after(if self.in_body { K::Cut } else { K::Closed }),
            Some(Io::TimedOut) => after(K::Timeout),
            _ if self.elapsed => after(K::Timeout),
            _ if self.closed => after(if self.in_body { K::Cut } else { K::Closed }),
            _ if self.protocol => after(K::Protocol),
            _ if self.body_limit => after(K::BodyLimit),
            // An illegal chunk size reaches the reader as invalid data.
            Some(Io::InvalidInput | Io::InvalidData) => after(K::Protocol),
            _ => match self.client {
                Some((kind, remote)) => TransportEvidence { remote, ..after(kind) },
                None => after(K::Unclassified),
            },
        }
    }
}

/// What h2 says. A reset counts by its reason only where the peer sent it: h2 uses the same reasons
/// for what it finds itself, and hyper copies them from a failing request body.
#[cfg(feature = "http2")]
fn stream_of(error: &h2::Error, in_body: bool) -> Option<(TransportKind, Remote)> {
    use TransportKind as K;
    use h2::Reason;
    let reason = error.reason()?;
    let ended = (error.is_reset(), error.is_go_away());
    if !error.is_remote() {
        let kind = match reason {
            // Neither the peer nor h2 did it: the request's body failed.
            _ if ended != (false, false) && !error.is_library() => K::RequestBody,
            Reason::NO_ERROR | Reason::CANCEL => K::Reset,
            _ => K::Protocol,
        };
        return Some((kind, Remote::Unknown));
    }
    Some(match (reason, ended) {
        // Once a head has come the stream was processed, whatever the peer says.
        (Reason::REFUSED_STREAM, (true, _)) | (Reason::NO_ERROR, (_, true)) if !in_body => {
            (K::RefusedStream, Remote::NotReached)
        }
        (Reason::ENHANCE_YOUR_CALM, _) => (K::EnhanceYourCalm, Remote::Answered),
        (
            Reason::NO_ERROR
            | Reason::INTERNAL_ERROR
            | Reason::REFUSED_STREAM
            | Reason::CANCEL
            | Reason::CONNECT_ERROR,
            _,
        ) => (K::Reset, Remote::Unknown),
        // Every other reason is a breach of the protocol.
        _ => (K::Protocol, Remote::Unknown),
    })
}

/// What reqwest says of its own error. Its `is_connect` is hyper-util's, which the chain holds.
#[cfg(feature = "reqwest")]
fn client_of(error: &reqwest::Error, in_body: bool) -> Option<(TransportKind, Remote)> {
    use TransportKind as K;
    if error.is_redirect() {
        return Some((K::Redirect, Remote::Answered));
    }
    let kind = if error.is_timeout() {
        K::Elapsed
    } else if error.is_body() && !in_body {
        K::RequestBody
    } else if error.is_decode() {
        K::Protocol
    } else {
        return None;
    };
    Some((kind, Remote::Unknown))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Outer(BoxedSource);
    type BoxedSource = Box<dyn StdError + Send + Sync>;
    impl std::fmt::Display for Outer {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("connection refused, timed out, reset by peer")
        }
    }
    impl StdError for Outer {
        fn source(&self) -> Option<&(dyn StdError + 'static)> {
            Some(&*self.0)
        }
    }

    #[test]
    fn types_decide_and_messages_never() {
        let refused = Outer(io::Error::from(io::ErrorKind::ConnectionRefused).into());
        let e = classify(&refused);
        assert_eq!((e.kind, e.remote), (TransportKind::Connect, Remote::NotReached));
        // The same words in a message, with no type behind them, prove nothing.
        let words = Outer("connection refused".into());
        let e = classify(&words);
        assert_eq!((e.kind, e.remote), (TransportKind::Unclassified, Remote::Unknown));
    }

    #[test]
    fn what_an_io_error_wraps_is_seen() {
        let inner = io::Error::other(Outer(io::Error::from(io::ErrorKind::ConnectionReset).into()));
        assert_eq!(classify(&inner).kind, TransportKind::Reset);
        let shed = Outer(Box::new(tower::load_shed::error::Overloaded::new()));
        let e = classify(&shed);
        assert_eq!(
            (e.kind, e.phase, e.remote),
            (TransportKind::Limit, Phase::Open, Remote::NotReached)
        );
    }

    #[test]
    fn a_body_error_is_of_the_body() {
        let cut = io::Error::from(io::ErrorKind::UnexpectedEof);
        assert_eq!(classify_body(&cut), TransportKind::Cut);
        assert_eq!(classify_body(&Outer("x".into())), TransportKind::Unclassified);
    }
}
