//! `classify`: the verdict of recorded responses.
//!
//! The bytes are played through the real client's parser, over a pipe in memory, beneath the same
//! layer that watches live requests, so that one mechanism decides.

use std::{
    fs,
    io::Read as _,
    path::{Path, PathBuf},
};

use attempt_ledger::{BoxError, Case, LedgerLayer, Wire};
use attempt_ledger_core::{
    AttemptRow, CaseId, Digest, Fold, GateKind, Gates, Label, Liveness, RunId, Slot, Usage, Verdict,
};
use attempt_ledger_store::Ledger;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tower::ServiceBuilder;

use crate::{
    args,
    failure::{Exit, Failure},
    out::Out,
    report::json,
};

/// The fields that are printed of a file, in this order.
#[derive(Debug, Serialize)]
struct Classified {
    file: String,
    wire: &'static str,
    stream: bool,
    verdict: Option<Verdict>,
    finish_reason: Option<Label>,
    content_sha256: Option<Digest>,
    content_chars: u64,
    tool_calls: u32,
    usage: Usage,
    retry_after_ms: Option<u64>,
    events: Option<u64>,
}

/// A recorded response, and the wire it is read as.
struct Recorded {
    file: PathBuf,
    wire: Wire,
    bytes: Bytes,
}

/// The largest file that is read.
const MAX_FILE: u64 = 64 << 20;
/// What the pipe holds at once.
const PIPE: usize = 64 << 10;

pub(crate) fn classify(args: &args::Classify, out: &mut Out) -> Result<Exit, Failure> {
    let wire = args.wire.as_deref().map(str::parse::<Wire>).transpose().map_err(Failure::usage)?;
    // All are read first, so that a wrong argument is told before anything is printed; and read again
    // in their turn, so that one is held at a time.
    args.files.iter().try_for_each(|file| read(file, wire).map(drop))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(crate::run::no_runtime)?;
    for file in &args.files {
        let recorded = read(file, wire)?;
        let row = runtime.block_on(watch(&recorded, args.stream))?;
        writeln!(out, "{}", json(&shown(&recorded, args.stream, &row))?)?;
    }
    Ok(Exit::Fine)
}

fn read(file: &Path, wire: Option<Wire>) -> Result<Recorded, Failure> {
    let shown = file.display();
    let unreadable =
        |error| Failure::usage(format_args!("{shown} could not be read")).because(error);
    // Looked at before it is opened: a pipe would be waited for, and a device has no end.
    if !fs::metadata(file).map_err(unreadable)?.is_file() {
        return Err(Failure::usage(format_args!("{shown} is no regular file"))
            .hint("record the response to a file first"));
    }
    let wire = match wire {
        Some(wire) => wire,
        None => wire_of_folder(file).ok_or_else(|| {
            let names: Vec<_> = Wire::ALL.iter().map(|wire| wire.as_str()).collect();
            Failure::usage(format_args!("{shown}: the name of its folder is no wire"))
                .hint(format_args!("give --wire: {}", names.join(", ")))
        })?,
    };
    let mut bytes = Vec::new();
    let opened = fs::File::open(file).map_err(unreadable)?;
    opened.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(Failure::usage(format_args!(
            "{shown} has more than the {MAX_FILE} bytes that are read"
        )));
    }
    recorded(&bytes)
        .map_err(|(what, hint)| Failure::usage(format_args!("{shown} {what}")).hint(hint))?;
    Ok(Recorded { file: file.to_owned(), wire, bytes: bytes.into() })
}

/// Refuses what cannot have come from a connection: a verdict on it would be of something else.
/// Nothing at all, and a head that was cut, can have.
fn recorded(bytes: &[u8]) -> Result<(), (&'static str, &'static str)> {
    const HTTP: &[u8] = b"HTTP/";
    const HINT: &str = "record one with `curl -si --raw --http1.1`: status line, headers and body";
    if !bytes.starts_with(HTTP) && !HTTP.starts_with(bytes) {
        return Err(("is no recorded HTTP response", HINT));
    }
    // curl writes such a line for what was never text on the connection.
    if [b"HTTP/2 ", b"HTTP/3 "].iter().any(|head| bytes.starts_with(*head)) {
        return Err(("is a response of HTTP/2 or 3, which is not read", HINT));
    }
    Ok(())
}

/// The wire that the file's folder is named after.
fn wire_of_folder(file: &Path) -> Option<Wire> {
    // A bare name is in the folder that we are in.
    let file = std::path::absolute(file).ok()?;
    file.parent()?.file_name()?.to_str()?.parse().ok()
}

/// Plays the bytes to a client that records, and gives the row.
async fn watch(recorded: &Recorded, stream: bool) -> Result<AttemptRow, Failure> {
    let ledger = Ledger::memory();
    let bytes = recorded.bytes.clone();
    let client = ServiceBuilder::new()
        .layer(
            LedgerLayer::new(ledger.clone())
                .wire(recorded.wire)
                .gates(Gates { plain: GateKind::Head, stream: GateKind::Head }),
        )
        .service_fn(move |request| play(request, bytes.clone()));
    let run = RunId::new("classify").map_err(Failure::usage)?;
    let case = CaseId::new("response").map_err(Failure::usage)?;
    let uri = http::Uri::from_static("http://recorded.invalid/");
    let body = serde_json::json!({ "model": "recorded", "stream": stream }).to_string();
    let request = crate::request::chat(&uri, Case::new(Slot::new(run, case)), body.into());
    // How it ended is in its row.
    let _ = crate::request::call(client, request).await;

    let mut fold = Fold::new();
    for record in ledger.records()? {
        fold.push(&record)?;
    }
    let folded = fold.finish(attempt_ledger_store::now(), &Liveness::All);
    let row = folded.rows.into_iter().next();
    row.ok_or_else(|| Failure::ledger("the response left no row"))
}

/// One connection over a pipe, whose other end reads the request and answers with `bytes`.
async fn play(request: Request<Full<Bytes>>, bytes: Bytes) -> Result<Response<Incoming>, BoxError> {
    let (near, far) = tokio::io::duplex(PIPE);
    tokio::spawn(answer(far, bytes));
    let (mut sender, connection) = http1::handshake(TokioIo::new(near)).await?;
    tokio::spawn(connection);
    Ok(sender.send_request(request).await?)
}

/// Reads the request's beginning, writes the bytes, and closes; what the client still writes then is
/// let go.
async fn answer(mut far: DuplexStream, bytes: Bytes) {
    let mut request = vec![0; PIPE];
    if far.read(&mut request).await.is_ok() && far.write_all(&bytes).await.is_ok() {
        let _ = far.shutdown().await;
        while far.read(&mut request).await.is_ok_and(|n| n > 0) {}
    }
}

fn shown(recorded: &Recorded, stream: bool, row: &AttemptRow) -> Classified {
    Classified {
        file: recorded.file.to_string_lossy().into_owned(),
        wire: recorded.wire.as_str(),
        stream,
        verdict: row.verdict,
        finish_reason: row.finish_reason.clone(),
        content_sha256: row.content_sha256,
        content_chars: row.content_chars.unwrap_or_default(),
        tool_calls: row.tool_calls.unwrap_or_default(),
        usage: row.usage,
        retry_after_ms: row.retry_after_ms,
        events: row.events,
    }
}
