use std::{error::Error, fmt, io};

/// Why a call of the [`MockService`](crate::MockService) has no response.
///
/// The chain of [`source`](Error::source)s holds hyper's own error, and within it the I/O error,
/// as with a real client; a refused connection holds [`ConnectRefused`].
#[derive(Debug)]
pub struct MockError {
    kind: Kind,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Refused(ConnectRefused),
    Hyper(hyper::Error),
    NoRuntime(tokio::runtime::TryCurrentError),
}

/// The connection was refused: no byte of the request was sent.
///
/// It stands for the connect error of hyper-util's legacy client, which nobody else can make. Its
/// source is an [`io::Error`] of kind [`ConnectionRefused`](io::ErrorKind::ConnectionRefused).
#[derive(Debug)]
pub struct ConnectRefused {
    cause: io::Error,
}

// === impl MockError ===

impl MockError {
    /// Whether the connection was refused, and so nothing sent.
    pub fn is_refused(&self) -> bool {
        matches!(self.kind, Kind::Refused(_))
    }

    /// hyper's error, unless the connection was refused.
    pub fn hyper(&self) -> Option<&hyper::Error> {
        match &self.kind {
            Kind::Hyper(error) => Some(error),
            Kind::Refused(_) | Kind::NoRuntime(_) => None,
        }
    }

    pub(crate) fn refused() -> Self {
        Kind::Refused(ConnectRefused { cause: io::ErrorKind::ConnectionRefused.into() }).into()
    }
}

impl From<Kind> for MockError {
    fn from(kind: Kind) -> Self {
        MockError { kind }
    }
}

impl fmt::Display for MockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.kind {
            Kind::Refused(_) => "the mock did not take the connection",
            Kind::Hyper(_) => "the mock's connection failed",
            Kind::NoRuntime(_) => "the mock service was called outside of a tokio runtime",
        })
    }
}

impl Error for MockError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.kind {
            Kind::Refused(error) => Some(error),
            Kind::Hyper(error) => Some(error),
            Kind::NoRuntime(error) => Some(error),
        }
    }
}

// === impl ConnectRefused ===

impl fmt::Display for ConnectRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("connect refused by the script")
    }
}

impl Error for ConnectRefused {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.cause)
    }
}
