use std::{
    collections::VecDeque,
    future::Future,
    io,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::{Frame, SizeHint};
use http_body_util::Full;
use tokio::time::{Instant, Sleep, sleep_until};

/// One thing that a [`FramesBody`] does.
#[derive(Clone, Debug)]
pub enum Step {
    /// Gives a data frame.
    Data(Bytes),
    /// Gives a trailers frame.
    Trailers(HeaderMap),
    /// Is pending for so long.
    Wait(Duration),
    /// Fails with this kind of i/o error.
    Fail(io::ErrorKind),
    /// Is pending for ever.
    Stall,
}

impl From<&str> for Step {
    fn from(text: &str) -> Self {
        Step::Data(Bytes::copy_from_slice(text.as_bytes()))
    }
}

/// A response, or a failure before one.
#[derive(Clone, Debug)]
pub struct Head {
    /// Time until it.
    pub after: Duration,
    /// Its status, or how the call fails.
    pub status: Result<u16, io::ErrorKind>,
    /// Its headers.
    pub headers: Vec<(&'static str, String)>,
    /// Its body.
    pub body: Vec<Step>,
}

/// A 200 with a chat answer in one JSON document.
pub fn document(text: &str, finish: &str) -> Head {
    let json = format!(
        r#"{{"choices":[{{"index":0,"message":{{"content":"{text}"}},"finish_reason":"{finish}"}}]}}"#
    );
    Head {
        after: Duration::from_millis(10),
        status: Ok(200),
        headers: vec![("content-type", "application/json".into())],
        body: vec![json.as_str().into()],
    }
}

/// A 200 with an event stream of these steps.
pub fn sse(body: Vec<Step>) -> Head {
    let headers = vec![("content-type", "text/event-stream".into())];
    Head { after: Duration::from_millis(10), status: Ok(200), headers, body }
}

/// A call that fails after a while.
pub fn error_after(after: Duration, kind: io::ErrorKind) -> Head {
    Head { after, status: Err(kind), headers: Vec::new(), body: Vec::new() }
}

impl Head {
    /// The same with another status.
    #[must_use]
    pub fn status(self, status: u16) -> Self {
        Head { status: Ok(status), ..self }
    }

    /// The same with another header.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// The same with another body.
    #[must_use]
    pub fn body(self, body: Vec<Step>) -> Self {
        Head { body, ..self }
    }

    /// The same, later.
    #[must_use]
    pub fn after(self, after: Duration) -> Self {
        Head { after, ..self }
    }
}

/// An inner service that answers with scripted frames; the last one is repeated.
#[derive(Clone, Debug)]
pub struct Frames {
    script: Arc<Mutex<VecDeque<Head>>>,
    calls: Arc<AtomicUsize>,
}

impl Frames {
    /// Answers in this order.
    pub fn new(script: impl IntoIterator<Item = Head>) -> Self {
        Frames { script: Arc::new(Mutex::new(script.into_iter().collect())), calls: Arc::default() }
    }

    /// How often it was called.
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

impl tower::Service<Request<Full<Bytes>>> for Frames {
    type Response = Response<FramesBody>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<FramesBody>, io::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Full<Bytes>>) -> Self::Future {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let head = {
            let mut script = self.script.lock().expect("script");
            if script.len() > 1 { script.pop_front() } else { script.front().cloned() }
        };
        let head = head.expect("a script has a step");
        Box::pin(async move {
            if !head.after.is_zero() {
                tokio::time::sleep(head.after).await;
            }
            let status = head.status.map_err(io::Error::from)?;
            let mut response = Response::builder().status(status);
            for (name, value) in head.headers {
                response = response.header(name, value);
            }
            let body = FramesBody { steps: head.body.into(), sleep: None, done: false };
            Ok(response.body(body).expect("response"))
        })
    }
}

/// A body that does what its steps say.
#[derive(Debug)]
pub struct FramesBody {
    steps: VecDeque<Step>,
    sleep: Option<Pin<Box<Sleep>>>,
    done: bool,
}

impl http_body::Body for FramesBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        assert!(!self.done, "polled again after its end");
        loop {
            if let Some(sleep) = &mut self.sleep {
                ready!(sleep.as_mut().poll(cx));
                self.sleep = None;
            }
            match self.steps.pop_front() {
                None => {
                    self.done = true;
                    return Poll::Ready(None);
                }
                Some(Step::Data(data)) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Some(Step::Trailers(map)) => return Poll::Ready(Some(Ok(Frame::trailers(map)))),
                Some(Step::Wait(wait)) => {
                    self.sleep = Some(Box::pin(sleep_until(Instant::now() + wait)));
                }
                Some(Step::Fail(kind)) => {
                    self.done = true;
                    return Poll::Ready(Some(Err(kind.into())));
                }
                Some(Step::Stall) => {
                    self.steps.push_front(Step::Stall);
                    return Poll::Pending;
                }
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        let exact: usize = self
            .steps
            .iter()
            .map(|step| match step {
                Step::Data(data) => data.len(),
                _ => 0,
            })
            .sum();
        SizeHint::with_exact(exact as u64)
    }
}
