//! The wire `openai-responses`: one response object, or a stream of events that ends with the
//! response in its final state.
//!
//! A text counts once, however often it is said: in deltas, in the events that close a part or an
//! item, in the final object. Should these differ, what came first stands, since it is what a
//! reader of the stream was shown.
//!
//! A background run that is not finished is `pending`, by the status of a document, or by
//! `background: true` in a stream that ends before the run does. Its answer comes to another
//! request, which asks for it by id.

use std::borrow::Cow;

use attempt_ledger_core::Stop;
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use crate::{
    error,
    event::{Event, Kind as Framed},
    gather::Gather,
    json::{self, Obj},
    surrogate,
    wire::{self, Spec},
};

mod failure;
mod once;
mod request;
mod shape;

use once::{Once, Piece};
use shape::{Item, Part, Response, Said, object, string_or_json, word};

pub(crate) const RESPONSES: Spec = Spec {
    name: "openai-responses",
    paths: &["/responses", "/responses/*"],
    usage: ("input_tokens", "output_tokens"),
    lists: false,
    statuses: &[],
    request: request::read,
};

#[derive(Debug, Default)]
pub(crate) struct Reader {
    once: Once,
}

impl wire::Reader for Reader {
    fn event(&mut self, event: &Event<'_>, gather: &mut Gather) -> bool {
        if event.is_done() {
            gather.done();
        } else if gather.is_open() {
            match event.kind {
                Framed::Data | Framed::NamedError => self.read(event, gather),
                Framed::ErrorField | Framed::Exception => error::event(event, gather),
            }
        }
        !gather.facts.done
    }

    fn document(&mut self, body: &[u8], cut: bool, gather: &mut Gather) {
        let body = json::without_bom(body);
        let mended = surrogate::mend(body);
        let body = mended.as_deref().unwrap_or(body);
        let said = serde_json::from_slice::<Obj<Said<'_>>>(body);
        match (said, std::str::from_utf8(body)) {
            (Ok(Obj(said)), Ok(json)) => self.read_document(&said, json, gather),
            _ if cut => {}
            _ => gather.malformed(),
        }
    }

    fn held(&self) -> usize {
        self.once.held()
    }
}

impl Reader {
    fn read(&mut self, event: &Event<'_>, gather: &mut Gather) {
        let mended = surrogate::mend(event.data);
        let data = mended.as_deref().unwrap_or(event.data);
        let said = serde_json::from_slice::<Obj<Said<'_>>>(data);
        match (said, std::str::from_utf8(data)) {
            (Ok(Obj(said)), Ok(json)) => {
                let named = event.kind == Framed::NamedError;
                let name = if named { "error" } else { event.name };
                self.said(&said, name, json, gather);
            }
            _ if event.kind == Framed::NamedError => error::event(event, gather),
            _ if event.complete => gather.malformed(),
            _ => {}
        }
    }

    /// An event; `name` is what its framing calls it, which servers leave out, as they do the type
    /// within.
    fn said(&mut self, said: &Said<'_>, name: &str, json: &str, gather: &mut Gather) {
        let kind = match word(&said.kind) {
            "" => name,
            // An error's own type.
            other if name == "error" && !other.starts_with("response.") => name,
            kind => kind,
        };
        match kind {
            "keepalive" | "ping" | "heartbeat" => return,
            "error" | "response.error" => return gather.reported(failure::flat_or_nested(json)),
            "response.created" | "response.queued" | "response.in_progress" => {
                return self.goes_on(said, json, gather);
            }
            "response.completed"
            | "response.incomplete"
            | "response.failed"
            | "response.cancelled"
            | "response.canceled"
            | "response.done" => {
                let state = kind.trim_start_matches("response.");
                let state = if state == "done" { "" } else { state };
                return self.ends(said, state, json, gather);
            }
            _ => {}
        }
        let flat = !kind.starts_with("response.") && said.is_flat_error();
        if said.error.is_some() || flat {
            return gather.reported(failure::flat_or_nested(json));
        }
        if kind.is_empty() && said.is_response() {
            return match word(&said.status) {
                "queued" | "in_progress" => self.goes_on(said, json, gather),
                _ => self.ends(said, "", json, gather),
            };
        }
        gather.progress += 1;
        self.piece(said, kind, gather);
    }

    /// The response begins, or waits, or is worked on.
    fn goes_on(&mut self, said: &Said<'_>, json: &str, gather: &mut Gather) {
        let response = Response::read(said.response.map_or(json, RawValue::get));
        gather.response_id(word(&response.id));
        if let Some(error) = response.error.or(said.error) {
            return gather.reported(failure::of_response(error, json));
        }
        gather.facts.pending = response.is_background();
        gather.progress += 1;
    }

    /// The response in its final state. `state` is what the event's type says of it.
    fn ends(&mut self, said: &Said<'_>, state: &str, json: &str, gather: &mut Gather) {
        let response = Response::read(said.response.map_or(json, RawValue::get));
        // What comes with an error, a stop word above all, does not touch an answer that stands.
        let stood = gather.answered();
        self.merge(&response, gather);
        let reported = response.error.or(said.error).map(|raw| failure::of_response(raw, json));
        match reported {
            Some(reported) if stood => return gather.late_error(reported.error),
            Some(reported) => {
                stop(&response, state, gather);
                return gather.error(reported);
            }
            None => {
                stop(&response, state, gather);
                gather.stop();
            }
        }
        gather.facts.pending = false;
        gather.progress += 1;
        // The last event, but for an error behind one that brought no answer.
        if gather.answered() && gather.facts.stop != Some(Stop::Failure) {
            gather.done();
        }
    }

    fn merge(&mut self, response: &Response<'_>, gather: &mut Gather) {
        gather.response_id(word(&response.id));
        self.once.output(&response.items(), gather);
        if let Some(usage) = response.usage {
            report_usage(usage, gather);
        }
    }

    /// A piece of the answer, or something that is none.
    fn piece(&mut self, said: &Said<'_>, kind: &str, gather: &mut Gather) {
        let (of, part) = (said.of(), said.part_index());
        let once = &mut self.once;
        let kind = kind.trim_start_matches("response.");
        match kind {
            "output_text.delta" => once.delta(Piece::Text, &of, part, word(&said.delta), gather),
            "output_text.done" => once.whole(Piece::Text, &of, part, word(&said.text), gather),
            "refusal.delta" => once.delta(Piece::Refusal, &of, part, word(&said.delta), gather),
            "refusal.done" => once.whole(Piece::Refusal, &of, part, word(&said.refusal), gather),
            "function_call_arguments.delta" | "custom_tool_call_input.delta" => {
                once.delta(Piece::Arguments, &of, Some(0), word(&said.delta), gather);
            }
            "function_call_arguments.done" | "custom_tool_call_input.done" => {
                once.tool(&of, word(&said.name), gather);
                let given = said.arguments.or(said.input).map_or(Cow::Borrowed(""), string_or_json);
                once.whole(Piece::Arguments, &of, Some(0), &given, gather);
            }
            "reasoning_summary_text.delta" => {
                once.delta(Piece::Summary, &of, part, word(&said.delta), gather);
            }
            "reasoning_summary_text.done" => {
                once.whole(Piece::Summary, &of, part, word(&said.text), gather);
            }
            "reasoning_text.delta" | "reasoning.delta" => {
                once.delta(Piece::Thought, &of, part, word(&said.delta), gather);
            }
            "reasoning_text.done" | "reasoning.done" => {
                once.whole(Piece::Thought, &of, part, word(&said.text), gather);
            }
            "content_part.done" | "reasoning_summary_part.done" | "reasoning_part.done" => {
                let given = said.part.and_then(|raw| object::<Part<'_>>(raw.get()));
                if let Some((piece, _, text)) = given.and_then(|given| given.piece(0)) {
                    once.whole(piece, &of, part, &text, gather);
                }
            }
            "output_item.added" | "output_item.done" => {
                let Some(raw) = said.item.map(RawValue::get) else { return };
                let Some(item) = object::<Item<'_>>(raw) else { return };
                if kind == "output_item.done" {
                    if let Some(whole) = item.whole(raw, of.index) {
                        once.item_done(&whole, gather);
                    }
                } else if let Some(kind) = item.kind() {
                    once.begin(kind, &item.called(of.index), item.tool(), gather);
                }
            }
            _ => {}
        }
    }

    fn read_document(&mut self, said: &Said<'_>, json: &str, gather: &mut Gather) {
        // Some relays answer with the last event of the stream they read.
        let within = said.response.filter(|_| !said.is_response());
        let json = within.map_or(json, RawValue::get);
        let response = Response::read(json);
        self.merge(&response, gather);
        match word(&response.status) {
            state @ ("queued" | "in_progress") => gather.runs_on(state),
            _ => stop(&response, "", gather),
        }
        if let Some(error) = response.error.or(said.error) {
            gather.error(failure::of_response(error, json));
        } else if (said.is_flat_error() && !said.is_response()) || word(&said.kind) == "error" {
            gather.error(failure::flat_or_nested(json));
        }
    }
}

/// The stop word: why it is incomplete, else the status; `state` where there is none that is final.
fn stop(response: &Response<'_>, state: &str, gather: &mut Gather) {
    let status = match word(&response.status) {
        "" | "queued" | "in_progress" => state,
        status => status,
    };
    let reason = response.reason();
    match status {
        "" | "incomplete" if !reason.is_empty() => gather.stop_word(&reason),
        status => gather.stop_word(status),
    }
}

fn report_usage(raw: &RawValue, gather: &mut Gather) {
    #[derive(Deserialize)]
    struct Counts {
        #[serde(default)]
        input_tokens: Value,
        #[serde(default)]
        output_tokens: Value,
    }
    if let Some(counts) = object::<Counts>(raw.get()) {
        gather.usage(json::count(&counts.input_tokens), json::count(&counts.output_tokens));
    }
}
