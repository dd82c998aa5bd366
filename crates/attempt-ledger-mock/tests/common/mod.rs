//! A client of either mock that tells what it met.

#![allow(dead_code, unreachable_pub)]

use std::{error::Error, io, net::SocketAddr, time::Duration};

use attempt_ledger_mock::{MockError, MockService};
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, time::timeout};
use tower::ServiceExt;

/// What a client of one exchange met, but for the date.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    pub status: Option<u16>,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub end: Ended,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Ended {
    Whole,
    /// Nothing more came, or enough was seen.
    Stalled,
    Refused,
    /// hyper: closed before the message was complete.
    Incomplete,
    Io(io::ErrorKind),
    Other(String),
}

impl Seen {
    pub fn nothing(end: Ended) -> Self {
        Seen { status: None, headers: vec![], body: vec![], end }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

pub fn chat(stream: bool) -> Request<Full<Bytes>> {
    post("/v1/chat/completions", format!(r#"{{"model":"m","stream":{stream},"messages":[]}}"#))
}

pub fn post(path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    Request::post(format!("http://model.test{path}")).body(Full::new(body.into())).unwrap()
}

/// Longer than any step's pause.
const PATIENCE: Duration = Duration::from_secs(100);

/// One call of the service, to its end or until nothing comes (or `enough` bytes came).
pub async fn call(
    service: &MockService,
    request: Request<Full<Bytes>>,
    enough: Option<usize>,
) -> Seen {
    match timeout(PATIENCE, service.clone().oneshot(request)).await {
        Err(_) => Seen::nothing(Ended::Stalled),
        Ok(Err(error)) => Seen::nothing(ended(&error)),
        Ok(Ok(response)) => read(response, enough, Some(PATIENCE)).await,
    }
}

/// One request over TCP on a connection of its own, to its end or until `enough` bytes came.
pub async fn call_tcp(
    addr: SocketAddr,
    mut request: Request<Full<Bytes>>,
    enough: Option<usize>,
) -> Seen {
    let stream = match TcpStream::connect(addr).await {
        Ok(stream) => stream,
        Err(error) => return Seen::nothing(Ended::Io(error.kind())),
    };
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    *request.uri_mut() = request.uri().path().parse().unwrap();
    let seen = match sender.send_request(request).await {
        Err(error) => Seen::nothing(ended(&error)),
        Ok(response) => read(response, enough, None).await,
    };
    connection.abort();
    seen
}

async fn read(
    response: Response<Incoming>,
    enough: Option<usize>,
    patience: Option<Duration>,
) -> Seen {
    let (parts, mut body) = response.into_parts();
    let mut seen = Seen {
        status: Some(parts.status.as_u16()),
        headers: headers(&parts.headers),
        body: vec![],
        end: Ended::Whole,
    };
    loop {
        if enough.is_some_and(|enough| seen.body.len() >= enough) {
            seen.body.truncate(enough.unwrap_or(0));
            seen.end = Ended::Stalled;
            return seen;
        }
        let frame = match patience {
            Some(patience) => match timeout(patience, body.frame()).await {
                Ok(frame) => frame,
                Err(_) => {
                    seen.end = Ended::Stalled;
                    return seen;
                }
            },
            None => body.frame().await,
        };
        match frame {
            None => return seen,
            Some(Err(error)) => {
                seen.end = ended(&error);
                return seen;
            }
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    seen.body.extend_from_slice(data);
                }
            }
        }
    }
}

/// A wait given as a date is told as seconds from the response's own date.
fn headers(map: &HeaderMap) -> Vec<(String, String)> {
    let date = map.get("date").and_then(|v| httpdate::parse_http_date(v.to_str().unwrap()).ok());
    map.iter()
        .filter(|(name, _)| *name != "date")
        .map(|(name, value)| {
            let value = value.to_str().unwrap();
            let ahead = httpdate::parse_http_date(value)
                .ok()
                .map(|then| format!("{:?} ahead", then.duration_since(date.unwrap()).unwrap()));
            (name.to_string(), ahead.unwrap_or_else(|| value.to_owned()))
        })
        .collect()
}

pub fn ended(error: &(dyn Error + 'static)) -> Ended {
    let mut chain = Some(error);
    while let Some(error) = chain {
        if error.downcast_ref::<MockError>().is_some_and(MockError::is_refused) {
            return Ended::Refused;
        }
        if error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_incomplete_message) {
            return Ended::Incomplete;
        }
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return Ended::Io(error.kind());
        }
        chain = error.source();
    }
    Ended::Other(error.to_string())
}
