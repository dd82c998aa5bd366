//! The server's side of a connection, the same over a pipe and over TCP.

use std::{io, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::sleep,
};

use crate::{
    Received,
    answer::Asked,
    desk::Desk,
    plan::{Act, End, Plan},
    request::{self, NoRequest},
    script::Pick,
};

/// A connection that can also end badly.
pub(crate) trait Peer: AsyncRead + AsyncWrite + Unpin + Send {
    /// The drop that follows is a reset.
    fn reset(&mut self);
    /// The drop that follows stands for a connection that never was.
    fn refuse(&mut self);
}

/// What a peer may send ahead while its answer is on the way.
const AHEAD: usize = 64 * 1024;
/// What is read and thrown away after the last answer, so that closing does not reset.
const LINGER: usize = 1024 * 1024;

/// The peer went away, or talks too much to be listened to.
struct Gone;

/// Answers every request of a connection until it ends. `pick` is the first request's step where
/// it is already decided.
pub(crate) async fn serve<P: Peer>(
    desk: Arc<Desk>,
    mut peer: P,
    connection: usize,
    mut pick: Option<Pick>,
) {
    let mut buf = BytesMut::new();
    loop {
        let mut open = None;
        let first_byte = || {
            open = Some(desk.enter());
            desk.first_byte(connection);
        };
        let (plan, keep_alive) = match request::read(&mut peer, &mut buf, first_byte).await {
            Ok(raw) => {
                let (chunked, keep_alive) = (raw.chunked, raw.keep_alive);
                let (received, pick) = desk.receive(connection, raw, pick.take());
                let asked = Asked::of(&received, chunked);
                (Plan::of(&pick.play, &asked, desk.date()), keep_alive)
            }
            Err(NoRequest::Gone) => return,
            Err(NoRequest::Bad(status, why)) => (bad_request(&desk, status, why), false),
        };
        if perform(&mut peer, &mut buf, plan.acts).await.is_err() {
            return;
        }
        match plan.end {
            End::KeepAlive if keep_alive => {}
            End::KeepAlive | End::Close => {
                drop(open);
                return close(peer).await;
            }
            End::Reset => return peer.reset(),
            End::Refuse => return peer.refuse(),
        }
    }
}

async fn perform<P: Peer>(peer: &mut P, buf: &mut BytesMut, acts: Vec<Act>) -> Result<(), Gone> {
    for act in acts {
        match act {
            Act::Write(bytes) => write(peer, &bytes).await?,
            Act::Wait(wait) => pause(peer, buf, wait).await?,
            Act::Drip(bytes, every) => drip(peer, buf, &bytes, every).await?,
            Act::Repeat(bytes, every) => loop {
                write(peer, &bytes).await?;
                pause(peer, buf, every).await?;
            },
            Act::Stall => return Err(gone(peer, buf).await),
        }
    }
    Ok(())
}

async fn drip<P: Peer>(
    peer: &mut P,
    buf: &mut BytesMut,
    bytes: &Bytes,
    every: Duration,
) -> Result<(), Gone> {
    for (place, byte) in bytes.chunks(1).enumerate() {
        if place > 0 {
            pause(peer, buf, every).await?;
        }
        write(peer, byte).await?;
    }
    Ok(())
}

async fn write<P: Peer>(peer: &mut P, bytes: &[u8]) -> Result<(), Gone> {
    let written: io::Result<()> = async {
        peer.write_all(bytes).await?;
        peer.flush().await
    }
    .await;
    written.map_err(|_| Gone)
}

/// Waits, unless the peer goes away first.
async fn pause<P: Peer>(peer: &mut P, buf: &mut BytesMut, wait: Duration) -> Result<(), Gone> {
    tokio::select! {
        biased;
        gone = gone(peer, buf) => Err(gone),
        () = sleep(wait) => Ok(()),
    }
}

/// Waits until the peer goes away; what it sends meanwhile is kept for the next request.
///
/// A peer that only ends its own sending is taken to be gone: no HTTP client does that while it
/// still wants the answer.
async fn gone<P: Peer>(peer: &mut P, buf: &mut BytesMut) -> Gone {
    while buf.len() < AHEAD {
        if request::more(peer, buf).await.is_err() {
            break;
        }
    }
    Gone
}

/// Ends the sending, then reads what still comes: closing with unread bytes would be a reset, and
/// could take the answer from a peer that has not read it yet.
async fn close<P: Peer>(mut peer: P) {
    if peer.shutdown().await.is_err() {
        return;
    }
    let mut rest = (&mut peer).take(LINGER as u64);
    let _ = tokio::io::copy(&mut rest, &mut tokio::io::sink()).await;
}

fn bad_request(desk: &Desk, status: u16, why: &str) -> Plan {
    let nobody = Received {
        number: 0,
        connection: 0,
        method: Method::GET,
        path: String::new(),
        headers: HeaderMap::new(),
        body: Bytes::new(),
        case: None,
        step: crate::Step::Good,
        at: tokio::time::Instant::now(),
    };
    Plan::bad_request(status, why, &Asked::of(&nobody, true), desk.date())
}
