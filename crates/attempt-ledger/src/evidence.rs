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
pub fn classify(error: &(dyn StdError + 'static)) -> TransportEvidence {
    let mut found = Found::default();
    walk(error, &mut |e| found.look(e));
    found.evidence()
}

/// Classifies the error of a response body.
pub(crate) fn classify_body(error: &(dyn StdError + 'static)) -> TransportKind {
    let mut found = Found { in_body: true, ..Found::default() };
    walk(error, &mut |e| found.look(e));
    found.evidence().kind
}

/// Longer chains than this do not occur; a cyclic one must not hang the caller.
const MAX_CHAIN: usize = 64;

fn walk(error: &(dyn StdError + 'static), look: &mut dyn FnMut(&(dyn StdError + 'static))) {
    let mut left = MAX_CHAIN;
    let mut next = Some(error);
    while let Some(error) = next {
        if left == 0 {
            return;
        }
        left -= 1;
        look(error);
        next = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(wrapped) => Some(wrapped),
            None => error.source(),
        };
    }
}

#[derive(Default)]
struct Found {
    in_body: bool,
    connecting: bool,
    dns: bool,
    tls: bool,
    limit: bool,
    canceled: bool,
    closed: bool,
    protocol: bool,
    request_body: bool,
    elapsed: bool,
    local_clock: bool,
    io: Option<io::ErrorKind>,
}

impl Found {
    fn look(&mut self, error: &(dyn StdError + 'static)) {
        if let Some(e) = error.downcast_ref::<hyper_util::client::legacy::Error>() {
            self.connecting |= e.is_connect();
        }
        if let Some(e) = error.downcast_ref::<hyper::Error>() {
            self.canceled |= e.is_canceled();
            self.closed |= e.is_incomplete_message() || e.is_closed();
            self.protocol |= e.is_parse();
            self.elapsed |= e.is_timeout();
            self.request_body |= e.is_user();
        }
        if let Some(e) = error.downcast_ref::<io::Error>() {
            // The innermost says most: a TLS error sits within an i/o error of kind `InvalidData`.
            self.io = Some(e.kind());
        }
        self.local_clock |= error.is::<tower::timeout::error::Elapsed>();
        self.limit |= error.is::<tower::load_shed::error::Overloaded>();
        #[cfg(feature = "client")]
        {
            self.dns |= error.is::<crate::client::DnsError>();
            self.tls |= error.is::<rustls::Error>();
        }
    }

    fn evidence(&self) -> TransportEvidence {
        use TransportKind as K;
        use io::ErrorKind as Io;
        let before =
            |kind| TransportEvidence { kind, phase: Phase::Connect, remote: Remote::NotReached };
        let after = |kind| {
            let phase = if self.in_body { Phase::Body } else { Phase::Head };
            TransportEvidence { kind, phase, remote: Remote::Unknown }
        };
        if self.limit {
            return TransportEvidence {
                kind: K::Limit,
                phase: Phase::Open,
                remote: Remote::NotReached,
            };
        }
        if self.dns {
            return before(K::Dns);
        }
        if self.local_clock {
            return after(K::Elapsed);
        }
        if self.connecting || self.io == Some(Io::ConnectionRefused) {
            let kind = match self.io {
                _ if self.tls => K::Tls,
                Some(Io::TimedOut) => K::Timeout,
                _ => K::Connect,
            };
            return before(kind);
        }
        if self.canceled {
            // hyper hands the message back unwritten.
            let canceled = before(K::Canceled);
            return TransportEvidence { phase: Phase::Open, ..canceled };
        }
        if self.tls {
            return after(K::Tls);
        }
        match self.io {
            Some(
                Io::ConnectionReset | Io::ConnectionAborted | Io::BrokenPipe | Io::NotConnected,
            ) => after(K::Reset),
            Some(Io::UnexpectedEof) => after(K::Cut),
            Some(Io::TimedOut) => after(K::Timeout),
            _ if self.elapsed => after(K::Timeout),
            _ if self.closed => after(if self.in_body { K::Cut } else { K::Closed }),
            _ if self.protocol => after(K::Protocol),
            // An illegal chunk size reaches the reader as invalid data.
            Some(Io::InvalidInput | Io::InvalidData) => after(K::Protocol),
            _ if self.request_body => after(K::RequestBody),
            _ => after(K::Unclassified),
        }
    }
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
