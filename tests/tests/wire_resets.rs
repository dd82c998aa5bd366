//! Streams of several wires that HTTP/2 ends before their time, or seems to: what arrived decides,
//! and a reset counts only where no stop reason came before it.

#[allow(dead_code, reason = "the tests of errors use the rest")]
#[path = "errors/servers.rs"]
mod servers;

use std::sync::Arc;

use attempt_ledger::{Case, Clocks, Effect, Http2, HttpClient, Ledger, Verdict};
use attempt_ledger_core::{AfterStop, AttemptRow, Digest, Phase, Remote, TransportKind, Usage};
use attempt_ledger_tests::{rows, s, slot};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use servers::{Then, connections, frames::*, greet, read_stream};
use tokio::{io::AsyncWriteExt, sync::Notify};
use tower::ServiceExt;

/// A stream of one wire, in the pieces between which it can break.
struct Streamed {
    wire: &'static str,
    path: &'static str,
    request: &'static str,
    /// Its beginning, with the text `hello`.
    text: &'static str,
    /// The event with the stop reason.
    stop: &'static str,
    /// What follows it; nothing where the stop reason is in the last event.
    rest: &'static str,
    finish: &'static str,
    /// The row closes with the stop reason: nothing can come behind it.
    ends_at_stop: bool,
}

const ANTHROPIC: Streamed = Streamed {
    wire: "anthropic-messages",
    path: "/v1/messages",
    request: r#"{"model":"m","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"ping"}]}"#,
    text: concat!(
        "event: message_start\n",
        r#"data: {"type":"message_start","message":{"id":"msg_1","content":[],"stop_reason":null,"usage":{"input_tokens":3,"output_tokens":1}}}"#,
        "\n\nevent: content_block_start\n",
        r#"data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
        "\n\nevent: content_block_delta\n",
        r#"data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hello"}}"#,
        "\n\n",
    ),
    stop: concat!(
        "event: content_block_stop\n",
        r#"data: {"type":"content_block_stop","index":0}"#,
        "\n\nevent: message_delta\n",
        r#"data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}"#,
        "\n\n",
    ),
    rest: "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    finish: "end_turn",
    ends_at_stop: false,
};

const GEMINI: Streamed = Streamed {
    wire: "gemini",
    path: "/v1beta/models/m:streamGenerateContent?alt=sse",
    request: r#"{"contents":[{"role":"user","parts":[{"text":"ping"}]}]}"#,
    text: concat!(
        r#"data: {"candidates":[{"content":{"role":"model","parts":[{"text":"hello"}]},"index":0}]}"#,
        "\r\n\r\n",
    ),
    stop: concat!(
        r#"data: {"candidates":[{"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":2}}"#,
        "\r\n\r\n",
    ),
    rest: "",
    finish: "STOP",
    ends_at_stop: false,
};

const RESPONSES: Streamed = Streamed {
    wire: "openai-responses",
    path: "/v1/responses",
    request: r#"{"model":"m","stream":true,"input":"ping"}"#,
    text: concat!(
        "event: response.created\n",
        r#"data: {"type":"response.created","sequence_number":0,"response":{"id":"resp_1","status":"in_progress","output":[]}}"#,
        "\n\nevent: response.output_text.delta\n",
        r#"data: {"type":"response.output_text.delta","sequence_number":1,"output_index":0,"content_index":0,"delta":"hello"}"#,
        "\n\n",
    ),
    stop: concat!(
        "event: response.completed\n",
        r#"data: {"type":"response.completed","sequence_number":2,"response":{"id":"resp_1","status":"completed","error":null,"output":[{"type":"message","content":[{"type":"output_text","text":"hello"}]}],"usage":{"input_tokens":3,"output_tokens":2}}}"#,
        "\n\n",
    ),
    rest: "",
    finish: "completed",
    ends_at_stop: true,
};

const STREAMS: [Streamed; 3] = [ANTHROPIC, GEMINI, RESPONSES];

impl Streamed {
    fn request(&self, origin: &str) -> Request<Full<Bytes>> {
        let mut request = Request::post(format!("{origin}{}", self.path))
            .header("content-type", "application/json")
            .body(Full::from(self.request))
            .expect("request");
        request.extensions_mut().insert(Case::new(slot("c")));
        request
    }
}

/// What is said next.
#[derive(Clone)]
enum Say {
    Frames(Vec<u8>),
    /// Waits until the reader has had all the text so far.
    WhenRead,
}

fn head() -> Say {
    Say::Frames(head_of(1, "text/event-stream"))
}

fn event(text: &str) -> Say {
    Say::Frames(data(1, text, false))
}

fn end(text: &str) -> Say {
    Say::Frames(data(1, text, true))
}

fn reset(code: u32) -> Say {
    Say::Frames(rst(1, code))
}

fn bye(last: u32, code: u32) -> Say {
    Say::Frames(goaway(last, code))
}

/// Says this to the first request of each connection; gives the origin, and what tells the server
/// that the text was read.
async fn says(said: Vec<Say>, then: Then) -> (String, Arc<Notify>) {
    let read = Arc::new(Notify::new());
    let told = read.clone();
    let addr = connections(move |mut stream| {
        let (said, told) = (said.clone(), told.clone());
        async move {
            greet(&mut stream, None).await;
            if read_stream(&mut stream).await.is_none() {
                return;
            }
            for say in said {
                match say {
                    Say::Frames(bytes) => drop(stream.write_all(&bytes).await),
                    Say::WhenRead => told.notified().await,
                }
            }
            then.end(stream).await;
        }
    })
    .await;
    (format!("http://{addr}"), read)
}

fn client(ledger: &Ledger) -> HttpClient {
    attempt_ledger::client(ledger.clone())
        .http2(Http2::PriorKnowledge)
        .clocks(Clocks::default().idle(s(20)).total(s(30)))
        .attempts(1)
        .build()
        .expect("client")
}

/// What became of a stream: its row, the bytes that its reader had, and whether an error ended them.
struct Seen {
    row: AttemptRow,
    bytes: String,
    broke: bool,
}

/// Plays `said` to a reader of `streamed`.
async fn seen(streamed: &Streamed, said: Vec<Say>, then: Then) -> Seen {
    let (origin, read) = says(said, then).await;
    let ledger = Ledger::memory();
    let (mut bytes, mut broke) = (Vec::new(), false);
    match client(&ledger).oneshot(streamed.request(&origin)).await {
        Ok(response) => {
            let mut body = response.into_body();
            while let Some(frame) = body.frame().await {
                match frame {
                    Ok(frame) => bytes.extend_from_slice(frame.data_ref().expect("data")),
                    Err(_) => broke = true,
                }
                if bytes.len() >= streamed.text.len() {
                    read.notify_one();
                }
            }
        }
        // All came at once, so that the gate met the reset.
        Err(_) => broke = true,
    }
    let row = rows(&ledger, "c").remove(0);
    assert_eq!(row.wire.as_str(), streamed.wire);
    assert_eq!(row.effect, Effect::ReadOnly, "{}", streamed.wire);
    Seen { row, bytes: String::from_utf8(bytes).expect("text"), broke }
}

/// The text is whole in every test: only how it ended differs.
#[track_caller]
fn assert_text(row: &AttemptRow) {
    assert_eq!(row.status, Some(200));
    assert_eq!(row.content_sha256, Some(Digest::of(b"hello")), "{}", row.wire);
}

/// An answer whose stop reason came: the reset is noted where the row was still open.
#[track_caller]
fn assert_answered(seen: &Seen, streamed: &Streamed) {
    let Seen { row, .. } = seen;
    assert_text(row);
    assert_eq!((row.verdict, row.remote), (Some(Verdict::Ok), Some(Remote::Answered)));
    assert_eq!(row.finish_reason.as_ref().map(|word| word.as_str()), Some(streamed.finish));
    assert_eq!(row.usage, Usage { input: Some(3), output: Some(2) }, "{}", streamed.wire);
}

#[tokio::test]
async fn a_reset_before_the_stop_reason_is_a_fault_of_the_transport() {
    for streamed in &STREAMS {
        for code in [INTERNAL_ERROR, CANCEL] {
            let said = vec![head(), event(streamed.text), Say::WhenRead, reset(code)];
            let Seen { row, bytes, broke } = seen(streamed, said, Then::Hold).await;
            assert_text(&row);
            assert_eq!(
                (row.verdict, row.remote, row.detail.kind, row.detail.phase),
                (
                    Some(Verdict::Transport),
                    Some(Remote::Unknown),
                    Some(TransportKind::Reset),
                    Some(Phase::Body)
                ),
                "{} {code}",
                streamed.wire
            );
            assert_eq!((row.finish_reason, row.detail.after_stop), (None, None));
            assert_eq!((bytes.as_str(), broke), (streamed.text, true), "its reader is told");
        }
    }
}

/// The last frames and the reset in one write: the reset takes nothing away that came before it.
#[tokio::test]
async fn a_reset_at_once_behind_the_text_is_the_same() {
    for streamed in &STREAMS {
        let said = [head_of(1, "text/event-stream"), data(1, streamed.text, false), rst(1, CANCEL)];
        let Seen { row, broke, .. } =
            seen(streamed, vec![Say::Frames(said.concat())], Then::Hold).await;
        assert_text(&row);
        assert_eq!((row.verdict, row.remote), (Some(Verdict::Transport), Some(Remote::Unknown)));
        assert!(broke);
    }
}

#[tokio::test]
async fn a_reset_behind_the_stop_reason_is_noted_on_the_answer() {
    for streamed in &STREAMS {
        for code in [INTERNAL_ERROR, CANCEL] {
            let said = vec![
                head(),
                event(streamed.text),
                event(streamed.stop),
                Say::WhenRead,
                reset(code),
            ];
            let seen = seen(streamed, said, Then::Hold).await;
            assert_answered(&seen, streamed);
            let detail = &seen.row.detail;
            let want = match streamed.ends_at_stop {
                true => (None, None),
                false => (Some(AfterStop::Cut), Some(TransportKind::Reset)),
            };
            assert_eq!((detail.after_stop, detail.kind), want, "{} {code}", streamed.wire);
            assert!(seen.broke, "its reader is told all the same");
        }
    }
}

/// A server that says goodbye finishes what it has begun.
#[tokio::test]
async fn a_goodbye_amid_a_stream_that_goes_on_is_nothing() {
    for streamed in &STREAMS {
        for (last, then) in [(1, Then::Close), (1, Then::Hold), (0x7fff_ffff, Then::Close)] {
            let rest = format!("{}{}", streamed.stop, streamed.rest);
            let said =
                vec![head(), event(streamed.text), bye(last, NO_ERROR), Say::WhenRead, end(&rest)];
            let seen = seen(streamed, said, then).await;
            assert_answered(&seen, streamed);
            let detail = &seen.row.detail;
            assert_eq!((detail.after_stop, detail.kind), (None, None), "{}", streamed.wire);
            let whole = format!("{}{rest}", streamed.text);
            assert_eq!((seen.bytes.as_str(), seen.broke), (whole.as_str(), false));
        }
    }
}

/// But one whose connection ends behind the goodbye does not.
#[tokio::test]
async fn a_goodbye_and_then_the_connections_end_is_a_fault() {
    for streamed in &STREAMS {
        let said = vec![head(), event(streamed.text), bye(1, NO_ERROR), Say::WhenRead];
        let Seen { row, broke, .. } = seen(streamed, said, Then::Close).await;
        assert_text(&row);
        assert_eq!((row.verdict, row.remote), (Some(Verdict::Transport), Some(Remote::Unknown)));
        assert_eq!((row.detail.phase, broke), (Some(Phase::Body), true), "{}", streamed.wire);
    }
}

/// An end that says all is well, by the stream's own flag or by a reset without an error: what is
/// missing tells.
#[tokio::test]
async fn a_clean_end_without_a_stop_reason_is_unterminated() {
    for streamed in &STREAMS {
        for ending in [end(""), reset(NO_ERROR)] {
            let said = vec![head(), event(streamed.text), Say::WhenRead, ending];
            let Seen { row, bytes, broke } = seen(streamed, said, Then::Hold).await;
            assert_text(&row);
            assert_eq!(
                (row.verdict, row.remote, row.detail.kind, row.finish_reason),
                (Some(Verdict::Unterminated), Some(Remote::Unknown), None, None),
                "{}",
                streamed.wire
            );
            assert_eq!((bytes.as_str(), broke), (streamed.text, false));
        }
    }
}
