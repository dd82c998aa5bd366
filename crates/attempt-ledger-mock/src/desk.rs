//! What all connections of one mock share: the place in the script, and the book of what came.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use bytes::Bytes;
use http::{HeaderMap, Method};
use serde_json::Value;
use tokio::{sync::watch, time::Instant};

use crate::{
    Script, Step,
    request::Raw,
    script::{Cursor, Pick, Traits},
};

/// A request that was read whole, and the step it plays.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Received {
    /// 1 for the first request, in the order in which they were read.
    pub number: usize,
    /// The connection it came on, 1 for the first.
    pub connection: usize,
    /// The method.
    pub method: Method,
    /// The path and query as sent.
    pub path: String,
    /// The headers as sent.
    pub headers: HeaderMap,
    /// The body, without its framing.
    pub body: Bytes,
    /// The key under which [`Script::by_case`] found it.
    pub case: Option<String>,
    /// The step it plays.
    pub step: Step,
    /// When it was read whole.
    pub at: Instant,
}

type RequestHook = Arc<dyn Fn(&Received) + Send + Sync>;
type ByteHook = Arc<dyn Fn(usize) + Send + Sync>;

pub(crate) struct Desk {
    state: Mutex<State>,
    open: watch::Sender<usize>,
    born: Instant,
    date: SystemTime,
}

struct State {
    cursor: Cursor,
    received: Vec<Received>,
    kept_bytes: usize,
    requests: usize,
    refused: usize,
    connections: usize,
    on_request: Option<RequestHook>,
    on_first_byte: Option<ByteHook>,
}

/// An exchange is open as long as this lives.
#[derive(Debug)]
pub(crate) struct Open {
    desk: Arc<Desk>,
}

/// Requests kept at most, and bytes of their bodies; later ones are only counted.
const KEEP_REQUESTS: usize = 65_536;
const KEEP_BYTES: usize = 256 * 1024 * 1024;

// === impl Received ===

impl Received {
    /// The body as JSON, if it is.
    pub fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }

    /// Whether the JSON body asks for a stream.
    pub fn stream(&self) -> bool {
        self.json().and_then(|json| json.get("stream")?.as_bool()).unwrap_or(false)
    }

    /// The JSON body's `model`.
    pub fn model(&self) -> Option<String> {
        self.json().and_then(|json| Some(json.get("model")?.as_str()?.to_owned()))
    }
}

// === impl Desk ===

impl Desk {
    pub(crate) fn new(script: Script) -> Arc<Self> {
        let date = script.date();
        let state = State {
            cursor: script.into_cursor(),
            received: Vec::new(),
            kept_bytes: 0,
            requests: 0,
            refused: 0,
            connections: 0,
            on_request: None,
            on_first_byte: None,
        };
        Arc::new(Desk {
            state: Mutex::new(state),
            open: watch::Sender::new(0),
            born: Instant::now(),
            date,
        })
    }

    /// Now on the mock's calendar, which goes on with tokio's clock.
    pub(crate) fn date(&self) -> SystemTime {
        self.date.checked_add(self.born.elapsed()).unwrap_or(self.date)
    }

    pub(crate) fn connect(&self) -> usize {
        let mut state = self.state();
        state.connections = state.connections.saturating_add(1);
        state.connections
    }

    pub(crate) fn enter(self: &Arc<Self>) -> Open {
        self.open.send_modify(|open| *open = open.saturating_add(1));
        Open { desk: Arc::clone(self) }
    }

    /// The next step, where the script does not need the request to tell it.
    pub(crate) fn pick_unread(&self) -> Option<Pick> {
        let mut state = self.state();
        if state.cursor.is_keyed() {
            return None;
        }
        Some(Pick { play: state.cursor.take(), case: None })
    }

    /// Takes the next step if it is a refusal that needs no request.
    pub(crate) fn take_refusal(&self) -> bool {
        let mut state = self.state();
        let refuses = state.cursor.peek().is_some_and(|play| play.step == Step::Refuse);
        if refuses {
            state.cursor.take();
            state.refused = state.refused.saturating_add(1);
        }
        refuses
    }

    pub(crate) fn count_refusal(&self) {
        let mut state = self.state();
        state.refused = state.refused.saturating_add(1);
    }

    pub(crate) fn first_byte(&self, connection: usize) {
        let hook = self.state().on_first_byte.clone();
        if let Some(hook) = hook {
            hook(connection);
        }
    }

    /// Books a request, unless it is refused, and tells its step.
    pub(crate) fn receive(
        &self,
        connection: usize,
        raw: Raw,
        pick: Option<Pick>,
    ) -> (Received, Pick) {
        let json = serde_json::from_slice(&raw.body).ok();
        let (received, pick, hook) = {
            let mut state = self.state();
            let pick = pick.unwrap_or_else(|| {
                state.cursor.take_for(&Traits {
                    path: &raw.path,
                    headers: &raw.headers,
                    body: &raw.body,
                    json: json.as_ref(),
                })
            });
            let refused = pick.play.step == Step::Refuse;
            if refused {
                state.refused = state.refused.saturating_add(1);
            } else {
                state.requests = state.requests.saturating_add(1);
            }
            let received = Received {
                number: state.requests,
                connection,
                method: raw.method,
                path: raw.path,
                headers: raw.headers,
                body: raw.body,
                case: pick.case.clone(),
                step: pick.play.step.clone(),
                at: Instant::now(),
            };
            if !refused {
                state.keep(&received);
            }
            (received, pick, state.on_request.clone().filter(|_| !refused))
        };
        if let Some(hook) = hook {
            hook(&received);
        }
        (received, pick)
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.state().received.clone()
    }

    pub(crate) fn requests(&self) -> usize {
        self.state().requests
    }

    pub(crate) fn refused(&self) -> usize {
        self.state().refused
    }

    pub(crate) fn connections(&self) -> usize {
        self.state().connections
    }

    pub(crate) fn open(&self) -> usize {
        *self.open.borrow()
    }

    pub(crate) async fn idle(&self) {
        // The sender lives in `self`, so the wait cannot fail.
        let _ = self.open.subscribe().wait_for(|open| *open == 0).await;
    }

    pub(crate) fn on_request(&self, hook: RequestHook) {
        self.state().on_request = Some(hook);
    }

    pub(crate) fn on_first_byte(&self, hook: ByteHook) {
        self.state().on_first_byte = Some(hook);
    }

    /// A hook that panicked did not hold the lock, so what it guards is whole.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Desk")
            .field("requests", &state.requests)
            .field("refused", &state.refused)
            .field("connections", &state.connections)
            .finish_non_exhaustive()
    }
}

// === impl State ===

impl State {
    fn keep(&mut self, received: &Received) {
        let bytes = self.kept_bytes.saturating_add(received.body.len());
        if self.received.len() < KEEP_REQUESTS && bytes <= KEEP_BYTES {
            self.kept_bytes = bytes;
            self.received.push(received.clone());
        }
    }
}

// === impl Open ===

impl Drop for Open {
    fn drop(&mut self) {
        self.desk.open.send_modify(|open| *open = open.saturating_sub(1));
    }
}
