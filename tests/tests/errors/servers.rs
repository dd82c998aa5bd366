//! Servers that misbehave on loopback, to the byte.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// Gives each connection to `serve`.
pub(crate) async fn connections<F, Fut>(serve: F) -> SocketAddr
where
    F: Fn(TcpStream) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("port");
    let addr = listener.local_addr().expect("address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    addr
}

pub(crate) fn url(addr: SocketAddr) -> String {
    format!("http://{addr}/v1/chat/completions")
}

/// What a server does with a connection when it has said everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// Closes it, as a server does that is done.
    Close,
    /// Resets it.
    Reset,
    /// Leaves it open.
    Hold,
}

impl Then {
    pub(crate) async fn end(self, mut stream: TcpStream) {
        match self {
            Then::Close => {
                let _ = stream.shutdown().await;
            }
            Then::Reset => {
                let _ = stream.set_zero_linger();
            }
            Then::Hold => {
                let mut rest = Vec::new();
                let _ = stream.read_to_end(&mut rest).await;
            }
        }
    }
}

/// Answers every request of a connection with these bytes, one answer a request, then ends.
pub(crate) async fn answers(answers: &'static [&'static [u8]], then: Then) -> String {
    let addr = connections(move |mut stream| async move {
        for answer in answers {
            read_request(&mut stream).await;
            let _ = stream.write_all(answer).await;
        }
        then.end(stream).await;
    })
    .await;
    url(addr)
}

/// Reads a request of [`crate::rig::request`]: a head, and a body that ends in a brace.
pub(crate) async fn read_request<R: AsyncRead + Unpin>(stream: &mut R) {
    let mut got = Vec::new();
    while !got.ends_with(b"]}") {
        match stream.read_buf(&mut got).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
}

/// Counts what reaches a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Count(Arc<AtomicUsize>);

impl Count {
    pub(crate) fn add(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// HTTP/2 frames, written by hand: nothing of h2 decides what a server says.
pub(crate) mod frames {
    pub(crate) const NO_ERROR: u32 = 0;
    pub(crate) const PROTOCOL_ERROR: u32 = 1;
    pub(crate) const INTERNAL_ERROR: u32 = 2;
    pub(crate) const REFUSED_STREAM: u32 = 7;
    pub(crate) const CANCEL: u32 = 8;
    pub(crate) const ENHANCE_YOUR_CALM: u32 = 11;
    pub(crate) const HTTP_1_1_REQUIRED: u32 = 13;

    const END_STREAM: u8 = 1;
    const END_HEADERS: u8 = 4;

    pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let len = u32::try_from(payload.len()).expect("short").to_be_bytes();
        let mut frame = vec![len[1], len[2], len[3], kind, flags];
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        frame
    }

    pub(crate) fn settings(max_streams: Option<u32>) -> Vec<u8> {
        let mut payload = Vec::new();
        if let Some(max) = max_streams {
            payload.extend([0, 3]);
            payload.extend(max.to_be_bytes());
        }
        frame(4, 0, 0, &payload)
    }

    pub(crate) fn rst(stream: u32, code: u32) -> Vec<u8> {
        frame(3, 0, stream, &code.to_be_bytes())
    }

    pub(crate) fn goaway(last: u32, code: u32) -> Vec<u8> {
        frame(7, 0, 0, &[last.to_be_bytes(), code.to_be_bytes()].concat())
    }

    /// A head with status 200 and the media type of JSON.
    pub(crate) fn head(stream: u32) -> Vec<u8> {
        head_of(stream, "application/json")
    }

    /// A head with status 200 and this media type.
    pub(crate) fn head_of(stream: u32, media: &str) -> Vec<u8> {
        let mut block = vec![0x88, 0x0f, 0x10, u8::try_from(media.len()).expect("short")];
        block.extend(media.as_bytes());
        frame(1, END_HEADERS, stream, &block)
    }

    pub(crate) fn data(stream: u32, data: &str, last: bool) -> Vec<u8> {
        frame(0, if last { END_STREAM } else { 0 }, stream, data.as_bytes())
    }
}

/// Reads frames until a request is whole; `None` when the peer has gone.
pub(crate) async fn read_stream<R: AsyncRead + Unpin>(stream: &mut R) -> Option<u32> {
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.ok()?;
        let len = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; len as usize];
        stream.read_exact(&mut payload).await.ok()?;
        let of_request = matches!(head[3], 0 | 1);
        if of_request && head[4] & 1 == 1 {
            return Some(u32::from_be_bytes([head[5], head[6], head[7], head[8]]));
        }
    }
}

/// Reads the client's preface and greets it.
pub(crate) async fn greet(stream: &mut TcpStream, max_streams: Option<u32>) {
    let mut preface = [0; 24];
    let _ = stream.read_exact(&mut preface).await;
    assert_eq!(&preface, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    let _ = stream.write_all(&frames::settings(max_streams)).await;
}

/// Says these frames over HTTP/2 when the first request is whole, then ends.
pub(crate) async fn says(said: Vec<Vec<u8>>, then: Then) -> String {
    let said = said.concat();
    let addr = connections(move |mut stream| {
        let said = said.clone();
        async move {
            greet(&mut stream, None).await;
            if read_stream(&mut stream).await.is_some() {
                let _ = stream.write_all(&said).await;
                then.end(stream).await;
            }
        }
    })
    .await;
    url(addr)
}
