use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    task::{JoinHandle, JoinSet},
};

use crate::{
    Received, Script,
    desk::Desk,
    exchange::{self, Peer},
};

/// A script as a TCP server on the loopback interface, for clients of any language.
///
/// It speaks HTTP/1.1 with keep-alive and pipelining, and keeps what it received. Dropping it ends
/// the listener and every connection. Use it with a running clock: a paused one jumps ahead
/// whenever all tasks wait for a socket. [`MockService`](crate::MockService) is for paused time.
///
/// ```
/// use attempt_ledger_mock::{MockServer, Script, Step};
/// use tokio::{io::{AsyncReadExt, AsyncWriteExt}, net::TcpStream};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let server = MockServer::start(Script::new([Step::Unavailable])).await?;
/// assert!(server.url().ends_with("/v1"));
///
/// let mut client = TcpStream::connect(server.addr()).await?;
/// client.write_all(b"GET /v1/models HTTP/1.1\r\nconnection: close\r\n\r\n").await?;
/// let mut answer = String::new();
/// client.read_to_string(&mut answer).await?;
/// assert!(answer.starts_with("HTTP/1.1 503 "));
/// assert_eq!(server.received()[0].path, "/v1/models");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct MockServer {
    desk: Arc<Desk>,
    addr: SocketAddr,
    task: JoinHandle<()>,
}

/// An address on the loopback interface that refuses every connection as long as this lives.
#[derive(Debug)]
pub struct RefusedAddr {
    addr: SocketAddr,
    // Bound and never listening: nobody else gets the port, and the system refuses for us.
    _socket: TcpSocket,
}

/// Connections at most; others wait to be accepted.
const MAX_CONNECTIONS: usize = 1_024;
/// After an accept that failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(5);

// === impl MockServer ===

impl MockServer {
    /// Starts on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// When the port cannot be had. Must be called within a tokio runtime with I/O and time.
    pub async fn start(script: Script) -> io::Result<MockServer> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let addr = listener.local_addr()?;
        let desk = Desk::new(script);
        let task = tokio::spawn(accept(Arc::clone(&desk), listener));
        Ok(MockServer { desk, addr, task })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The base URL that clients of OpenAI-shaped servers take: `http://127.0.0.1:PORT/v1`.
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.addr)
    }

    /// The requests that were read whole, in that order (the first 65,536 and 256 MiB of them).
    pub fn received(&self) -> Vec<Received> {
        self.desk.received()
    }

    /// How many requests were read whole.
    pub fn requests(&self) -> usize {
        self.desk.requests()
    }

    /// How many connections were refused; their requests were not received.
    pub fn refused(&self) -> usize {
        self.desk.refused()
    }

    /// How many connections were accepted, the refused ones included.
    pub fn connections(&self) -> usize {
        self.desk.connections()
    }

    /// How many exchanges are going on, from the first byte of a request to its answer's end.
    pub fn open(&self) -> usize {
        self.desk.open()
    }

    /// Waits until no exchange is going on.
    pub async fn idle(&self) {
        self.desk.idle().await;
    }

    /// Calls `hook` with every request when it was read whole, before a byte of its answer.
    ///
    /// This is the place to look at what must be on disk before a request is sent. One hook at a
    /// time; a later one takes its place. It runs on the connection's task, and a panic in it only
    /// breaks the connection: keep what it saw, and assert in the test.
    pub fn on_request(&self, hook: impl Fn(&Received) + Send + Sync + 'static) {
        self.desk.on_request(Arc::new(hook));
    }

    /// Calls `hook` with the connection's number when the first byte of a request was read.
    pub fn on_first_byte(&self, hook: impl Fn(usize) + Send + Sync + 'static) {
        self.desk.on_first_byte(Arc::new(hook));
    }
}

impl Drop for MockServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

// === impl RefusedAddr ===

impl RefusedAddr {
    /// Takes a free port of 127.0.0.1 and never listens on it.
    ///
    /// # Errors
    /// When the port cannot be had.
    pub fn new() -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        Ok(RefusedAddr { addr: socket.local_addr()?, _socket: socket })
    }

    /// The address.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// `http://127.0.0.1:PORT/v1`.
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.addr)
    }
}

// The connections are in the set, so they end with this task.
async fn accept(desk: Arc<Desk>, listener: TcpListener) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => {
                // A connection that broke before it was accepted is the peer's affair; when files
                // have run out, asking again at once would spin.
                let Ok((mut stream, _)) = accepted else {
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                };
                let number = desk.connect();
                if desk.take_refusal() {
                    stream.refuse();
                    continue;
                }
                let _ = stream.set_nodelay(true);
                connections.spawn(exchange::serve(Arc::clone(&desk), stream, number, None));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

impl Peer for TcpStream {
    fn reset(&mut self) {
        let _ = self.set_zero_linger();
    }

    fn refuse(&mut self) {
        self.reset();
    }
}
