//! Plays an answer to a client: as scripted reads, as HTTP/2 over a pipe, or over TCP.

use std::{
    collections::VecDeque,
    io,
    pin::Pin,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use bytes::Bytes;
use fastrand::Rng;
use http::{HeaderMap, HeaderName, HeaderValue};
use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf},
    time::{Sleep, sleep},
};

use crate::responses::{Answer, Framing};

impl Answer {
    /// The bytes of the whole response, as HTTP/1.
    fn raw(&self) -> Vec<u8> {
        let old = matches!(self.framing, Framing::Close { old: true });
        let mut raw = format!("HTTP/1.{} {} ", u8::from(!old), self.status).into_bytes();
        let usual = http::StatusCode::from_u16(self.status).expect("status").canonical_reason();
        raw.extend_from_slice(self.reason.unwrap_or(usual.unwrap_or_default().as_bytes()));
        raw.extend_from_slice(b"\r\n");
        let line = |raw: &mut Vec<u8>, name: &str, value: &[u8]| {
            raw.extend_from_slice(name.as_bytes());
            raw.extend_from_slice(b": ");
            raw.extend_from_slice(value);
            raw.extend_from_slice(b"\r\n");
        };
        for (name, value) in &self.headers {
            line(&mut raw, name, value);
        }
        let length = self.length();
        match self.framing {
            Framing::Length => line(&mut raw, "Content-Length", length.to_string().as_bytes()),
            Framing::Chunked { .. } => line(&mut raw, "transfer-encoding", b"chunked"),
            Framing::Close { .. } => line(&mut raw, "connection", b"close"),
            Framing::None { says: Some(length) } => {
                line(&mut raw, "content-length", length.to_string().as_bytes());
            }
            Framing::None { says: None } => {}
        }
        raw.extend_from_slice(b"\r\n");
        for piece in &self.pieces {
            match self.framing {
                // An empty chunk would be the last one.
                Framing::Chunked { .. } if piece.is_empty() => {}
                Framing::Chunked { extensions } => {
                    let extension = if extensions { ";name=\"va lue\";x" } else { "" };
                    raw.extend_from_slice(format!("{:x}{extension}\r\n", piece.len()).as_bytes());
                    raw.extend_from_slice(piece);
                    raw.extend_from_slice(b"\r\n");
                }
                _ => raw.extend_from_slice(piece),
            }
        }
        if let Framing::Chunked { extensions } = self.framing {
            raw.extend_from_slice(if extensions { b"0;last\r\n" } else { b"0\r\n" });
            for (name, value) in &self.trailers {
                line(&mut raw, name, value);
            }
            raw.extend_from_slice(b"\r\n");
        }
        let head = raw.len() - self.pieces_on_the_wire();
        // The head itself stays whole: without one there is no response.
        if let Some(cut) = self.cut {
            raw.truncate(raw.len().saturating_sub(cut).max(head));
        }
        raw
    }

    fn pieces_on_the_wire(&self) -> usize {
        match self.framing {
            Framing::Length | Framing::Close { .. } => self.length(),
            // At least so many.
            Framing::Chunked { .. } => self.length() + 5,
            Framing::None { .. } => 0,
        }
    }

    /// The same bytes in the pieces in which they arrive, some of them late.
    fn reads(&self) -> VecDeque<(Duration, Bytes)> {
        let mut random = Rng::with_seed(self.borders);
        let mut raw = Bytes::from(self.raw());
        let longest = *random.choice(&[20, 400, 1_460, 16_384, 1 << 20]).expect("one");
        let longest = longest.max(raw.len() / 300 + 1);
        let mut reads = VecDeque::new();
        while !raw.is_empty() {
            let late = if random.u32(0..4) == 0 { random.u64(1..40) } else { 0 };
            let piece = raw.split_to(random.usize(1..=longest).min(raw.len()));
            reads.push_back((Duration::from_millis(late), piece));
        }
        reads
    }

    fn ends_by_close(&self) -> bool {
        self.cut.is_some() || matches!(self.framing, Framing::Close { .. })
    }
}

/// A connection on which each read gives one scripted piece: equal reads for every client, however
/// it is scheduled.
pub(crate) struct Played {
    reads: VecDeque<(Duration, Bytes)>,
    closes: bool,
    request: Vec<u8>,
    sleep: Option<Pin<Box<Sleep>>>,
    waker: Option<Waker>,
}

impl Played {
    pub(crate) fn new(answer: &Answer) -> TokioIo<Self> {
        TokioIo::new(Played {
            reads: answer.reads(),
            closes: answer.ends_by_close(),
            request: Vec::new(),
            sleep: None,
            waker: None,
        })
    }
}

/// Whether all of a request has been read.
fn is_whole(request: &[u8]) -> bool {
    let Some(head) = request.windows(4).position(|w| w == b"\r\n\r\n") else { return false };
    let text = String::from_utf8_lossy(&request[..head]).to_ascii_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.map_or(0, |n| n.parse().expect("length"));
    request.len() >= head + 4 + length
}

impl AsyncRead for Played {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.waker = Some(cx.waker().clone());
        if !is_whole(&self.request) {
            return Poll::Pending;
        }
        loop {
            if let Some(pause) = &mut self.sleep {
                ready!(pause.as_mut().poll(cx));
                self.sleep = None;
            }
            let closes = self.closes;
            let Some((late, piece)) = self.reads.front_mut() else {
                return if closes { Poll::Ready(Ok(())) } else { Poll::Pending };
            };
            if !late.is_zero() {
                let late = std::mem::take(late);
                self.sleep = Some(Box::pin(sleep(late)));
                continue;
            }
            buf.put_slice(&piece.split_to(piece.len().min(buf.remaining())));
            if piece.is_empty() {
                self.reads.pop_front();
            }
            return Poll::Ready(Ok(()));
        }
    }
}

impl AsyncWrite for Played {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.request.extend_from_slice(buf);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Connection for Played {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

/// One end of a pipe in memory.
pub(crate) struct Pipe(DuplexStream);

impl Pipe {
    /// A pipe with an HTTP/2 server at its other end.
    pub(crate) fn h2(answer: &Answer) -> TokioIo<Self> {
        let (near, far) = tokio::io::duplex(1 << 20);
        tokio::spawn(serve_h2(far, answer.clone()));
        TokioIo::new(Pipe(near))
    }
}

impl AsyncRead for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

impl Connection for Pipe {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

fn map(fields: &[(&'static str, Vec<u8>)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in fields {
        let value = HeaderValue::from_bytes(value).expect("value");
        map.append(HeaderName::from_static(name), value);
    }
    map
}

async fn serve_h2<T>(io: T, answer: Answer)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Ok(mut connection) = h2::server::handshake(io).await else { return };
    while let Some(Ok((_request, respond))) = connection.accept().await {
        tokio::spawn(answer_h2(respond, answer.clone()));
    }
}

/// Data frames as the pieces say, some of them late, then trailers, an end, or a reset.
async fn answer_h2(mut respond: h2::server::SendResponse<Bytes>, answer: Answer) {
    let mut random = Rng::with_seed(answer.borders);
    let mut response = http::Response::new(());
    *response.status_mut() = http::StatusCode::from_u16(answer.status).expect("status");
    *response.headers_mut() = map(&answer.headers);
    let says = match answer.framing {
        Framing::Length => Some(answer.length()),
        Framing::None { says } => says,
        _ => None,
    };
    if let Some(says) = says {
        response.headers_mut().append("content-length", says.into());
    }
    let nothing = matches!(answer.framing, Framing::None { .. });
    let Ok(mut stream) = respond.send_response(response, nothing) else { return };
    if nothing {
        return;
    }
    for piece in answer.pieces {
        if random.u32(0..4) == 0 {
            sleep(Duration::from_millis(random.u64(1..40))).await;
        }
        if stream.send_data(piece, false).is_err() {
            return;
        }
    }
    if answer.cut.is_some() {
        sleep(Duration::from_millis(1)).await;
        stream.send_reset(h2::Reason::INTERNAL_ERROR);
    } else if answer.trailers.is_empty() {
        let _ = stream.send_data(Bytes::new(), true);
    } else {
        let _ = stream.send_trailers(map(&answer.trailers));
    }
}

/// A server on a port of its own that gives `answer` to each connection.
pub(crate) async fn over_tcp(answer: &Answer, h2: bool) -> std::net::SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("port");
    let addr = listener.local_addr().expect("address");
    let answer = answer.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let _ = stream.set_nodelay(true);
            if h2 {
                tokio::spawn(serve_h2(stream, answer.clone()));
            } else {
                tokio::spawn(serve_h1(stream, answer.clone()));
            }
        }
    });
    addr
}

async fn serve_h1(mut stream: tokio::net::TcpStream, answer: Answer) -> io::Result<()> {
    let mut request = Vec::new();
    while !is_whole(&request) {
        if stream.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    for (_, piece) in answer.reads() {
        stream.write_all(&piece).await?;
        stream.flush().await?;
        tokio::task::yield_now().await;
    }
    if answer.ends_by_close() {
        stream.shutdown().await?;
    }
    // Held until the client lets go.
    stream.read_buf(&mut request).await?;
    Ok(())
}
