//! From a step to what is written, when, and how it ends.

use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use http::StatusCode;

use crate::{
    Play, RetryHint, Step,
    answer::{self, Answer, Asked, DONE, Says},
};

/// What the connection does for one request.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) acts: Vec<Act>,
    pub(crate) end: End,
}

#[derive(Debug)]
pub(crate) enum Act {
    Write(Bytes),
    /// One byte at a time, the first at once.
    Drip(Bytes, Duration),
    Wait(Duration),
    /// The same bytes for ever, the first at once.
    Repeat(Bytes, Duration),
    Stall,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    KeepAlive,
    Close,
    Reset,
    Refuse,
}

/// Nothing repeats faster than tokio's timer ticks.
const TICK: Duration = Duration::from_millis(1);

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream; charset=utf-8";
const HTML: &[u8] =
    b"<!doctype html><title>Sign in</title><p>Please sign in to go on to this network.</p>\n";

impl Plan {
    pub(crate) fn of(play: &Play, asked: &Asked, date: SystemTime) -> Self {
        let out = Out { asked, date, acts: Vec::new() };
        let good = || Answer::of(play, "stop");
        match &play.step {
            Step::Refuse => out.ends(End::Refuse),
            Step::Reset => out.ends(End::Reset),
            Step::CloseBeforeHead => out.ends(End::Close),
            Step::StallBeforeHead => out.stalls(),
            Step::StallMidBody => out.stall_mid_body(&good()),
            Step::TrickleKeepAlives { every } => out.trickle(*every),
            Step::SlowBody { every } => out.slow_body(&good(), *every),
            Step::CutInChunk => out.cut_in_chunk(&good()),
            Step::EndWithoutStop => out.whole(&Answer { finish: None, ..good() }, None),
            Step::CapHit => out.answer(&Answer::of(play, "length")),
            Step::Empty => out.answer(&Answer::saying(play, "", "stop")),
            Step::WhiteSpace => out.answer(&Answer::saying(play, " \n\t ", "stop")),
            Step::ErrorIn200 => out.status(200, &[], &wrapped(&overloaded())),
            Step::ErrorEventMidStream => out.error_mid_stream(good()),
            Step::Throttled(hint) => out.throttled(hint),
            Step::Unavailable => out.status(503, &[], &wrapped(&overloaded())),
            Step::ServerError => out.status(
                500,
                &[],
                &wrapped(&answer::error("the server had an error", "server_error", None)),
            ),
            Step::Html200 => out.plain(200, &[("content-type", "text/html")], HTML),
            Step::BadJson => out.bad_json(&good()),
            Step::SlowFirstByte(wait) => {
                Out { date: later(date, *wait), ..out.wait(*wait) }.answer(&good())
            }
            Step::Refusal => {
                let text = play.text.as_deref().unwrap_or("I cannot help with that.");
                let says = Says::Refusal(text.to_owned());
                out.answer(&Answer { says, ..good() })
            }
            Step::ContentFilter => out.answer(&Answer::of(play, "content_filter")),
            Step::ToolCall => {
                out.answer(&Answer { says: Says::ToolCall, ..Answer::of(play, "tool_calls") })
            }
            Step::Redirect { status, location } => {
                out.plain(*status, &[("location", location)], b"")
            }
            Step::Status { status, headers, body } => {
                let headers: Vec<_> =
                    headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
                out.plain(*status, &headers, body)
            }
            Step::Raw(bytes) => out.write(bytes.clone()).ends(End::Close),
            Step::Good => out.answer(&good()),
        }
    }

    /// The answer to what is no request: it is said, and the connection closed.
    pub(crate) fn bad_request(status: u16, why: &str, asked: &Asked, date: SystemTime) -> Self {
        let error = answer::error(why, "invalid_request_error", None);
        let plan = Out { asked, date, acts: Vec::new() }.status(
            status,
            &[("connection", "close")],
            &wrapped(&error),
        );
        Plan { end: End::Close, ..plan }
    }
}

/// A plan while it is made.
#[derive(Debug)]
struct Out<'a> {
    asked: &'a Asked,
    date: SystemTime,
    acts: Vec<Act>,
}

#[derive(Clone, Copy, Debug)]
enum Framing {
    Length(usize),
    Chunked,
    /// Until the connection closes: for clients that do not know chunks.
    UntilClose,
}

// === impl Out ===

impl Out<'_> {
    fn answer(self, answer: &Answer) -> Plan {
        self.whole(answer, Some(DONE))
    }

    fn whole(self, answer: &Answer, sentinel: Option<&[u8]>) -> Plan {
        if !self.asked.stream {
            let document = self.asked.document(answer);
            return self.plain(200, &[("content-type", JSON)], &document);
        }
        let mut out = self.stream_head();
        for event in out.asked.events(answer) {
            out = out.data(&event);
        }
        if let Some(sentinel) = sentinel {
            out = out.data(sentinel);
        }
        out.finish_stream()
    }

    fn stall_mid_body(self, answer: &Answer) -> Plan {
        if self.asked.stream {
            return self.half_stream(answer).stalls();
        }
        let document = self.asked.document(answer);
        let half = document.get(..document.len() / 2).unwrap_or_default().to_vec();
        self.head(200, &[("content-type", JSON)], Framing::Length(document.len()))
            .write(half)
            .stalls()
    }

    fn trickle(self, every: Duration) -> Plan {
        let comment: &[u8] = if self.asked.stream { b": keep-alive\n\n" } else { b"\n" };
        let mut out = if self.asked.stream { self.stream_head() } else { self.chunked_head(JSON) };
        let bytes = out.framed(comment);
        out.acts.push(Act::Repeat(bytes, every.max(TICK)));
        out.stalls()
    }

    fn slow_body(self, answer: &Answer, every: Duration) -> Plan {
        if !self.asked.stream {
            let document = self.asked.document(answer);
            let mut out =
                self.head(200, &[("content-type", JSON)], Framing::Length(document.len()));
            out.acts.push(Act::Drip(document.into(), every));
            return out.ends(End::KeepAlive);
        }
        let mut out = self.stream_head();
        for event in out.asked.events(answer) {
            out = out.data(&event).wait(every);
        }
        out.data(DONE).finish_stream()
    }

    fn cut_in_chunk(self, answer: &Answer) -> Plan {
        if self.asked.stream {
            let mut out = self.half_stream(answer);
            if out.asked.chunked {
                out = out.write("40\r\ndata: {\"id\":");
            }
            return out.ends(End::Close);
        }
        let document = self.asked.document(answer);
        let half = document.get(..document.len() / 2).unwrap_or_default();
        let mut out = self.chunked_head(JSON);
        if out.asked.chunked {
            out = out.write(format!("{:x}\r\n", document.len()));
        }
        out.write(half.to_vec()).ends(End::Close)
    }

    fn error_mid_stream(self, answer: Answer) -> Plan {
        if !self.asked.stream {
            return self.whole(&Answer { finish: None, error: Some(overloaded()), ..answer }, None);
        }
        self.half_stream(&answer).data(&answer::event(&wrapped(&overloaded()))).finish_stream()
    }

    fn bad_json(self, answer: &Answer) -> Plan {
        if !self.asked.stream {
            let document = self.asked.document(answer);
            let half = document.get(..document.len() / 2).unwrap_or_default();
            return self.plain(200, &[("content-type", JSON)], half);
        }
        self.half_stream(answer)
            .data(b"data: {\"id\": \"chatcmpl\", \"choices\": [{]\n\n")
            .data(DONE)
            .finish_stream()
    }

    fn throttled(self, hint: &RetryHint) -> Plan {
        let error = answer::error("too many requests", "requests", Some("rate_limit_exceeded"));
        let mut body = wrapped(&error);
        let headers = match hint {
            RetryHint::None => vec![],
            RetryHint::Seconds(seconds) => vec![("retry-after", seconds.to_string())],
            RetryHint::Fraction(seconds) => vec![("retry-after", seconds.to_string())],
            RetryHint::Millis(millis) => vec![("retry-after-ms", millis.to_string())],
            RetryHint::HttpDate(seconds) => {
                let date = later(self.date, Duration::from_secs((*seconds).into()));
                vec![("retry-after", http_date(date))]
            }
            RetryHint::RetryInfo(delay) => {
                body = wrapped(&format!(
                    concat!(
                        r#"{{"code":429,"message":"too many requests","#,
                        r#""status":"RESOURCE_EXHAUSTED","details":[{{"#,
                        r#""@type":"type.googleapis.com/google.rpc.RetryInfo","#,
                        r#""retryDelay":"{}s"}}]}}"#
                    ),
                    delay.as_secs_f64()
                ));
                vec![]
            }
            RetryHint::Both { millis, seconds } => {
                vec![("retry-after-ms", millis.to_string()), ("retry-after", seconds.to_string())]
            }
        };
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.status(429, &headers, &body)
    }

    fn status(self, status: u16, headers: &[(&str, &str)], body: &str) -> Plan {
        let mut all = vec![("content-type", JSON)];
        all.extend_from_slice(headers);
        self.plain(status, &all, body.as_bytes())
    }

    /// A response whose length is known. The connection goes on.
    fn plain(self, status: u16, headers: &[(&str, &str)], body: &[u8]) -> Plan {
        let out = self.head(status, headers, Framing::Length(body.len()));
        // These have no body, whatever the script says.
        let bodiless = status < 200 || status == 204 || status == 304;
        let out = if bodiless { out } else { out.write(body.to_vec()) };
        out.ends(End::KeepAlive)
    }

    /// The head and the events but the last half, at least the first that says something.
    fn half_stream(self, answer: &Answer) -> Self {
        let mut out = self.stream_head();
        let events = out.asked.events(&Answer { finish: None, ..answer.clone() });
        let half = events.len().div_ceil(2).max(2);
        for event in events.iter().take(half) {
            out = out.data(event);
        }
        out
    }

    fn stream_head(self) -> Self {
        self.chunked_head(EVENTS)
    }

    fn chunked_head(self, media: &str) -> Self {
        let framing = if self.asked.chunked { Framing::Chunked } else { Framing::UntilClose };
        self.head(200, &[("content-type", media)], framing)
    }

    fn head(self, status: u16, headers: &[(&str, &str)], framing: Framing) -> Self {
        let reason =
            StatusCode::from_u16(status).ok().and_then(|s| s.canonical_reason()).unwrap_or("");
        let mut head = format!("HTTP/1.1 {status} {reason}\r\ndate: {}\r\n", http_date(self.date));
        head.push_str(&format!("x-request-id: req-mock-{}\r\n", self.asked.number));
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        let told = headers.iter().any(|(name, _)| {
            ["content-length", "transfer-encoding"].iter().any(|n| n.eq_ignore_ascii_case(name))
        });
        match framing {
            Framing::Length(_) if told || status < 200 || status == 204 => {}
            Framing::Length(n) => head.push_str(&format!("content-length: {n}\r\n")),
            Framing::Chunked => head.push_str("transfer-encoding: chunked\r\n"),
            Framing::UntilClose => head.push_str("connection: close\r\n"),
        }
        head.push_str("\r\n");
        self.write(head)
    }

    fn data(mut self, data: &[u8]) -> Self {
        let bytes = self.framed(data);
        self.acts.push(Act::Write(bytes));
        self
    }

    fn framed(&mut self, data: &[u8]) -> Bytes {
        if !self.asked.chunked {
            return Bytes::copy_from_slice(data);
        }
        let mut chunk = BytesMut::from(format!("{:x}\r\n", data.len()).as_bytes());
        chunk.extend_from_slice(data);
        chunk.extend_from_slice(b"\r\n");
        chunk.freeze()
    }

    fn finish_stream(self) -> Plan {
        if self.asked.chunked {
            self.write("0\r\n\r\n").ends(End::KeepAlive)
        } else {
            self.ends(End::Close)
        }
    }

    fn write(mut self, bytes: impl Into<Bytes>) -> Self {
        self.acts.push(Act::Write(bytes.into()));
        self
    }

    fn wait(mut self, wait: Duration) -> Self {
        self.acts.push(Act::Wait(wait));
        self
    }

    fn stalls(mut self) -> Plan {
        self.acts.push(Act::Stall);
        self.ends(End::Close)
    }

    fn ends(mut self, end: End) -> Plan {
        if self.asked.head_only {
            self.keep_head_only();
        }
        Plan { acts: self.acts, end }
    }

    /// An answer to HEAD is the head alone; waits before it and stalls after it stay.
    fn keep_head_only(&mut self) {
        let mut head_seen = false;
        self.acts.retain(|act| match act {
            Act::Write(_) => !std::mem::replace(&mut head_seen, true),
            Act::Wait(_) => !head_seen,
            Act::Drip(..) | Act::Repeat(..) => false,
            Act::Stall => true,
        });
    }
}

fn wrapped(error: &str) -> String {
    format!(r#"{{"error":{error}}}"#)
}

fn overloaded() -> String {
    answer::error("the model is overloaded", "server_error", Some("overloaded"))
}

/// The date, or `base` where the sum or the date's format cannot hold it.
fn later(base: SystemTime, by: Duration) -> SystemTime {
    base.checked_add(by).unwrap_or(base)
}

/// `fmt_http_date` panics outside of the years 1970 to 9999, so the date is brought within.
fn http_date(date: SystemTime) -> String {
    let last = Duration::from_secs(253_402_300_799);
    let since = date.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().min(last);
    httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + since)
}
