//! An in-memory connection that can be reset, which tokio's own cannot.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, duplex};

use crate::exchange::Peer;

/// As much as a socket's buffer, so that a large body is written in turns here too.
const BUFFER: usize = 64 * 1024;

/// How the server's side ended, if badly.
#[derive(Debug, Default)]
struct Fate {
    reset: AtomicBool,
    refused: AtomicBool,
}

/// The client's side.
#[derive(Debug)]
pub(crate) struct ClientEnd {
    inner: DuplexStream,
    fate: Arc<Fate>,
}

/// The server's side.
#[derive(Debug)]
pub(crate) struct ServerEnd {
    inner: DuplexStream,
    fate: Arc<Fate>,
}

/// Tells whether the server refused the connection, after it is gone.
#[derive(Debug)]
pub(crate) struct Refused(Arc<Fate>);

pub(crate) fn pipe() -> (ClientEnd, ServerEnd, Refused) {
    let (client, server) = duplex(BUFFER);
    let fate = Arc::new(Fate::default());
    let refused = Refused(Arc::clone(&fate));
    (
        ClientEnd { inner: client, fate: Arc::clone(&fate) },
        ServerEnd { inner: server, fate },
        refused,
    )
}

// === impl Refused ===

impl Refused {
    pub(crate) fn get(&self) -> bool {
        self.0.refused.load(Ordering::Acquire)
    }
}

// === impl ServerEnd ===

impl Peer for ServerEnd {
    fn reset(&mut self) {
        self.fate.reset.store(true, Ordering::Release);
    }

    fn refuse(&mut self) {
        self.fate.refused.store(true, Ordering::Release);
        self.reset();
    }
}

impl AsyncRead for ServerEnd {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl AsyncWrite for ServerEnd {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

// === impl ClientEnd ===

impl ClientEnd {
    fn reset(&self) -> Option<io::Error> {
        self.fate.reset.load(Ordering::Acquire).then(|| io::ErrorKind::ConnectionReset.into())
    }
}

impl AsyncRead for ClientEnd {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, buf);
        if let Poll::Ready(Ok(())) = read
            && buf.filled().len() == before
            && let Some(reset) = self.reset()
        {
            return Poll::Ready(Err(reset));
        }
        read
    }
}

impl AsyncWrite for ClientEnd {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, buf);
        match written {
            Poll::Ready(Err(error)) => Poll::Ready(Err(self.reset().unwrap_or(error))),
            written => written,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
