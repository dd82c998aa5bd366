//! Reading one request from a connection, bounded.

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The head at most, and the line of a chunk's size or a trailer too.
const MAX_HEAD: usize = 64 * 1024;
const MAX_HEADERS: usize = 256;
/// The body at most, without its framing.
const MAX_BODY: usize = 16 * 1024 * 1024;

/// A request as it was read.
#[derive(Debug)]
pub(crate) struct Raw {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// HTTP/1.1, so that chunks are understood.
    pub(crate) chunked: bool,
    pub(crate) keep_alive: bool,
}

/// Why there is no request.
#[derive(Debug)]
pub(crate) enum NoRequest {
    /// The peer went away, between two requests or within one.
    Gone,
    /// What came is no request that is read here; the status says which mistake it is.
    Bad(u16, &'static str),
}

/// Reads the next request; `first_byte` is called once a byte of it is there.
pub(crate) async fn read<T>(
    peer: &mut T,
    buf: &mut BytesMut,
    first_byte: impl FnOnce(),
) -> Result<Raw, NoRequest>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    if buf.is_empty() {
        more(peer, buf).await?;
    }
    first_byte();
    let mut head = read_head(peer, buf).await?;
    if expects_continue(&head.headers) && buf.is_empty() {
        peer.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.map_err(|_| NoRequest::Gone)?;
        peer.flush().await.map_err(|_| NoRequest::Gone)?;
    }
    head.body = match body_length(&head.headers)? {
        Length::Known(length) => read_exactly(peer, buf, length).await?,
        Length::Chunked => read_chunks(peer, buf).await?,
    };
    Ok(head)
}

async fn read_head<T: AsyncRead + Unpin>(
    peer: &mut T,
    buf: &mut BytesMut,
) -> Result<Raw, NoRequest> {
    loop {
        let (parsed, used) = parse_head(buf)?;
        if let Some(head) = parsed {
            buf.advance(used);
            return Ok(head);
        }
        if buf.len() >= MAX_HEAD {
            return Err(NoRequest::Bad(431, "the head is larger than 64 KiB"));
        }
        more(peer, buf).await?;
    }
}

fn parse_head(buf: &[u8]) -> Result<(Option<Raw>, usize), NoRequest> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut fields);
    let used = match request.parse(buf) {
        Ok(httparse::Status::Complete(used)) => used,
        Ok(httparse::Status::Partial) => return Ok((None, 0)),
        Err(httparse::Error::TooManyHeaders) => {
            return Err(NoRequest::Bad(431, "the head has more than 256 fields"));
        }
        Err(_) => return Err(NoRequest::Bad(400, "the head is not HTTP/1")),
    };
    let bad = |_| NoRequest::Bad(400, "the head has a name or value that is not HTTP/1");
    let mut headers = HeaderMap::new();
    for field in request.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|e| bad(e.into()))?;
        let value = HeaderValue::from_bytes(field.value).map_err(|e| bad(http::Error::from(e)))?;
        headers.append(name, value);
    }
    let method = Method::from_bytes(request.method.unwrap_or_default().as_bytes())
        .map_err(|e| bad(e.into()))?;
    let newer = request.version == Some(1);
    let keep_alive = if newer { !says(&headers, "close") } else { says(&headers, "keep-alive") };
    let path = request.path.unwrap_or_default().to_owned();
    let raw = Raw { method, path, headers, body: Bytes::new(), chunked: newer, keep_alive };
    Ok((Some(raw), used))
}

fn says(headers: &HeaderMap, word: &str) -> bool {
    headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|token| token.trim().eq_ignore_ascii_case(word))
}

fn expects_continue(headers: &HeaderMap) -> bool {
    headers
        .get(header::EXPECT)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

enum Length {
    Known(usize),
    Chunked,
}

fn body_length(headers: &HeaderMap) -> Result<Length, NoRequest> {
    let mut lengths = headers.get_all(header::CONTENT_LENGTH).iter();
    let length = match lengths.next() {
        None => None,
        Some(value) => {
            let text = value.to_str().unwrap_or_default();
            let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            if !digits || lengths.any(|other| other != value) {
                return Err(NoRequest::Bad(400, "the content-length is not one number"));
            }
            // A number too large for the type is too large in any case.
            Some(text.parse::<usize>().unwrap_or(usize::MAX))
        }
    };
    match (headers.get(header::TRANSFER_ENCODING), length) {
        (Some(_), Some(_)) => {
            Err(NoRequest::Bad(400, "the head has both content-length and transfer-encoding"))
        }
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => {
            Ok(Length::Chunked)
        }
        (Some(_), None) => Err(NoRequest::Bad(501, "the only transfer-encoding here is chunked")),
        (None, Some(n)) if n > MAX_BODY => Err(TOO_LARGE),
        (None, length) => Ok(Length::Known(length.unwrap_or(0))),
    }
}

const TOO_LARGE: NoRequest = NoRequest::Bad(413, "the body is larger than 16 MiB");
const BAD_CHUNK: NoRequest = NoRequest::Bad(400, "a chunk of the body is not as HTTP/1 has it");

async fn read_exactly<T: AsyncRead + Unpin>(
    peer: &mut T,
    buf: &mut BytesMut,
    length: usize,
) -> Result<Bytes, NoRequest> {
    while buf.len() < length {
        more(peer, buf).await?;
    }
    Ok(buf.split_to(length).freeze())
}

async fn read_chunks<T: AsyncRead + Unpin>(
    peer: &mut T,
    buf: &mut BytesMut,
) -> Result<Bytes, NoRequest> {
    let mut body = BytesMut::new();
    loop {
        let size = read_chunk_size(peer, buf).await?;
        if size == 0 {
            read_trailers(peer, buf).await?;
            return Ok(body.freeze());
        }
        if size > MAX_BODY.saturating_sub(body.len()) {
            return Err(TOO_LARGE);
        }
        body.extend_from_slice(&read_exactly(peer, buf, size).await?);
        if read_exactly(peer, buf, 2).await?.as_ref() != b"\r\n" {
            return Err(BAD_CHUNK);
        }
    }
}

async fn read_chunk_size<T: AsyncRead + Unpin>(
    peer: &mut T,
    buf: &mut BytesMut,
) -> Result<usize, NoRequest> {
    loop {
        match httparse::parse_chunk_size(buf) {
            Ok(httparse::Status::Complete((used, size))) => {
                buf.advance(used);
                return usize::try_from(size).map_err(|_| TOO_LARGE);
            }
            Ok(httparse::Status::Partial) if buf.len() < MAX_HEAD => more(peer, buf).await?,
            _ => return Err(BAD_CHUNK),
        }
    }
}

/// Trailers are read and dropped.
async fn read_trailers<T: AsyncRead + Unpin>(
    peer: &mut T,
    buf: &mut BytesMut,
) -> Result<(), NoRequest> {
    loop {
        let mut fields = [httparse::EMPTY_HEADER; MAX_HEADERS];
        match httparse::parse_headers(buf, &mut fields) {
            Ok(httparse::Status::Complete((used, _))) => {
                buf.advance(used);
                return Ok(());
            }
            Ok(httparse::Status::Partial) if buf.len() < MAX_HEAD => more(peer, buf).await?,
            _ => return Err(BAD_CHUNK),
        }
    }
}

/// One read. The buffer stays bounded since every caller asks only while it lacks something.
pub(crate) async fn more<T: AsyncRead + Unpin>(
    peer: &mut T,
    buf: &mut BytesMut,
) -> Result<(), NoRequest> {
    buf.reserve(8 * 1024);
    match peer.read_buf(buf).await {
        Ok(0) | Err(_) => Err(NoRequest::Gone),
        Ok(_) => Ok(()),
    }
}
