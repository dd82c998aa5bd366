//! The wire `bedrock-converse`: one JSON document, or binary frames whose type names what they hold.
//!
//! Proxies send the same events as JSON objects of one member that has the type's name.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::{Value, value::RawValue};

use crate::{
    error::{self, ReportedError, aws},
    event::{Event, Kind},
    gather::{CallKey, Gather, id_hash},
    json::{self, Body, Few, Index, Obj, Text},
    wire::{self, Spec},
    wires::invoke,
};

mod request;

pub(crate) use request::read as read_request;

pub(crate) const CONVERSE: Spec = Spec {
    name: "bedrock-converse",
    // The name of a model may hold a slash.
    paths: &[
        "/model/*/converse",
        "/model/*/converse-stream",
        "/model/*/*/converse",
        "/model/*/*/converse-stream",
    ],
    usage: ("inputTokens", "outputTokens"),
    lists: false,
    statuses: &[],
    request: request::read,
};

/// Whether a frame is one that Bedrock sends: other services of AWS stream in frames too.
pub(crate) fn is_of_bedrock(event: &Event<'_>) -> bool {
    match event.name {
        _ if event.kind == Kind::Exception => true,
        "chunk" => invoke::is_known(event.data),
        name => is_event(name),
    }
}

fn is_event(name: &str) -> bool {
    matches!(
        name,
        "messageStart"
            | "contentBlockStart"
            | "contentBlockDelta"
            | "contentBlockStop"
            | "messageStop"
            | "metadata"
    )
}

/// Reads the wire, and frames of InvokeModel that come where it was expected.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    blocks: Blocks,
    chunks: Option<Box<invoke::Reader>>,
}

impl wire::Reader for Reader {
    fn event(&mut self, event: &Event<'_>, gather: &mut Gather) -> bool {
        if event.name == "chunk" {
            self.chunks.get_or_insert_default().event(event, gather)
        } else {
            self.blocks.event(event, gather)
        }
    }

    fn document(&mut self, body: &[u8], cut: bool, gather: &mut Gather) {
        self.blocks.document(body, cut, gather);
    }

    fn held(&self) -> usize {
        self.chunks.as_ref().map_or(0, |chunks| size_of::<invoke::Reader>() + chunks.held())
    }
}

/// Reads events and documents of Converse, whoever sends them.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    /// A bit for each block below 128 that is a call which the server itself runs.
    served: u128,
}

impl wire::Reader for Blocks {
    fn event(&mut self, event: &Event<'_>, gather: &mut Gather) -> bool {
        if event.is_done() {
            gather.done();
            return false;
        }
        if !gather.is_open() {
            return true;
        }
        if event.kind == Kind::Data && aws::is_exception(event.name) {
            error::event(&Event { kind: Kind::Exception, ..*event }, gather);
            return true;
        }
        if event.kind != Kind::Data {
            error::event(event, gather);
            return true;
        }
        match json::parse::<Payload<'_>>(event.data, &mut None) {
            Ok(mut payload) => match payload.reported_error() {
                Some(reported) => gather.reported(reported),
                None => {
                    self.merge(payload, true, gather);
                    gather.progress += 1;
                }
            },
            Err(error) if event.complete => gather.unread(&error),
            Err(_) => {}
        }
        true
    }

    fn document(&mut self, body: &[u8], cut: bool, gather: &mut Gather) {
        match json::parse::<Payload<'_>>(json::without_bom(body), &mut None) {
            Ok(mut payload) => {
                let reported = payload.reported_error();
                self.merge(payload, false, gather);
                if let Some(reported) = reported {
                    gather.error(reported);
                }
            }
            Err(_) if cut => {}
            Err(error) => gather.unread(&error),
        }
    }
}

impl Blocks {
    fn merge(&mut self, payload: Payload<'_>, streamed: bool, gather: &mut Gather) {
        if let Some(inner) = payload.inner {
            self.merge(*inner, streamed, gather);
        }
        let index = payload.index.map(|Index(index)| index);
        if let Some(call) = payload.start.and_then(|Obj(start)| start.tool_use) {
            self.start(call, index, gather);
        }
        if let Some(Obj(delta)) = payload.delta {
            self.delta(&delta, index, gather);
        }
        let message = payload.output.and_then(|Obj(output)| output.message);
        // A final object repeats what the deltas said.
        let repeated = streamed && (gather.facts.usable() || gather.facts.text_chars > 0);
        if let (Some(Obj(message)), false) = (message, repeated) {
            merge_content(message.content, gather);
        }
        if let Some(Text(word)) = &payload.stop_reason {
            gather.stop_word(word);
        }
        if let Some(Ok(Obj(usage))) =
            payload.usage.map(|raw| serde_json::from_str::<Obj<Usage>>(raw.get()))
        {
            gather.usage(json::count(&usage.input), json::count(&usage.output));
        }
    }

    fn start(&mut self, Obj(call): Obj<ToolUse<'_>>, index: Option<u64>, gather: &mut Gather) {
        let bit = index.and_then(bit).unwrap_or(0);
        if call.is_served() {
            self.served |= bit;
            return;
        }
        self.served &= !bit;
        let key = match (index, &call.id) {
            (Some(index), _) => CallKey::Index(index),
            (None, Some(Text(id))) => CallKey::Id(id_hash(id)),
            (None, None) => CallKey::Newest,
        };
        gather.call(key, call.name(), "");
    }

    fn delta(&mut self, delta: &Delta<'_>, index: Option<u64>, gather: &mut Gather) {
        if let Some(Text(text)) = &delta.text {
            gather.text(text);
        }
        if let Some(Obj(thought)) = &delta.reasoning {
            thought.merge(gather);
        }
        let served = index.and_then(bit).is_some_and(|bit| self.served & bit != 0);
        if let (Some(Obj(call)), false) = (&delta.tool_use, served) {
            let key = index.map_or(CallKey::Newest, CallKey::Index);
            gather.call(key, "", &call.input());
        }
    }
}

fn bit(index: u64) -> Option<u128> {
    1u128.checked_shl(u32::try_from(index).ok()?)
}

/// The content of a message: a list of blocks, or in some proxies a string.
fn merge_content(content: Option<Content<'_>>, gather: &mut Gather) {
    let blocks = match content {
        Some(Body::Parts(blocks)) => blocks,
        Some(Body::Text(Text(text))) => return gather.text(&text),
        None => return,
    };
    for (position, Obj(block)) in blocks.iter().enumerate() {
        if let Some(Text(text)) = &block.text {
            gather.text(text);
        }
        for Obj(cited) in
            block.cited.iter().flat_map(|Obj(cited)| cited.content.iter().flat_map(Few::iter))
        {
            if let Some(Text(text)) = &cited.text {
                gather.text(text);
            }
        }
        if let Some(Obj(thought)) = &block.reasoning {
            thought.merge(gather);
        }
        if let Some(Obj(call)) = block.tool_use.as_ref().filter(|Obj(call)| !call.is_served()) {
            gather.call(CallKey::Index(position as u64), call.name(), &call.input());
        }
    }
}

/// What a frame, a proxy's event or a document holds. The names of its members tell them apart.
#[derive(Default)]
struct Payload<'a> {
    index: Option<Index>,
    start: Option<Obj<Start<'a>>>,
    delta: Option<Obj<Delta<'a>>>,
    stop_reason: Option<Text<'a>>,
    usage: Option<&'a RawValue>,
    output: Option<Obj<Output<'a>>>,
    /// The event within one that is an object of one member.
    inner: Option<Box<Payload<'a>>>,
    reported: Option<ReportedError>,
    /// A name of an error.
    kind: Option<&'a RawValue>,
    /// Says something only where nothing else does.
    message: Option<&'a RawValue>,
}

impl Payload<'_> {
    fn reported_error(&mut self) -> Option<ReportedError> {
        let inner = self.inner.as_mut().and_then(|inner| inner.reported.take());
        let reported = self.reported.take().or(inner);
        let stated = || {
            let kind = self.kind.map(json::value);
            error::from_value(&serde_json::json!({"__type": kind}))
        };
        let is_text = self.message.is_some_and(|raw| raw.get().starts_with('"'));
        let says_nothing = self.inner.is_none()
            && self.delta.is_none()
            && self.output.is_none()
            && self.stop_reason.is_none()
            && self.usage.is_none();
        reported.or_else(|| (self.kind.is_some() || (is_text && says_nothing)).then(stated))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Payload<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Of;
        impl<'de> Visitor<'de> for Of {
            type Value = Payload<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of the Converse API")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut payload = Payload::default();
                while let Some(Text(name)) = map.next_key()? {
                    match &*name {
                        "contentBlockIndex" => payload.index = map.next_value()?,
                        "start" => payload.start = map.next_value()?,
                        "delta" => payload.delta = map.next_value()?,
                        "stopReason" => payload.stop_reason = map.next_value()?,
                        "usage" => payload.usage = map.next_value()?,
                        "output" => payload.output = map.next_value()?,
                        "__type" => payload.kind = map.next_value()?,
                        "message" => payload.message = map.next_value()?,
                        name if is_event(name) => {
                            payload.inner = map.next_value()?;
                        }
                        "error" => {
                            let error: Option<&RawValue> = map.next_value()?;
                            let read = |raw: &RawValue| error::from_value(&json::value(raw));
                            payload.reported = error.map(read).or(payload.reported);
                        }
                        name if aws::is_exception(name) => {
                            let said: Option<&RawValue> = map.next_value()?;
                            let read = |raw: &RawValue| aws::of_exception(name, &json::value(raw));
                            payload.reported = said.map(read).or(payload.reported);
                        }
                        _ => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(payload)
            }
        }
        deserializer.deserialize_map(Of)
    }
}

#[derive(Deserialize)]
struct Start<'a> {
    #[serde(borrow, default, rename = "toolUse")]
    tool_use: Option<Obj<ToolUse<'a>>>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow, default)]
    text: Option<Text<'a>>,
    #[serde(borrow, default, rename = "toolUse")]
    tool_use: Option<Obj<ToolUse<'a>>>,
    #[serde(borrow, default, rename = "reasoningContent")]
    reasoning: Option<Obj<Reasoning<'a>>>,
}

#[derive(Deserialize)]
struct Output<'a> {
    #[serde(borrow, default)]
    message: Option<Obj<Message<'a>>>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    content: Option<Content<'a>>,
}

type Content<'a> = Body<'a, Obj<Block<'a>>>;

/// One block of a message. What is quoted, shown or guarded is not answer text.
#[derive(Deserialize)]
struct Block<'a> {
    #[serde(borrow, default)]
    text: Option<Text<'a>>,
    #[serde(borrow, default, rename = "toolUse")]
    tool_use: Option<Obj<ToolUse<'a>>>,
    #[serde(borrow, default, rename = "reasoningContent")]
    reasoning: Option<Obj<Reasoning<'a>>>,
    /// Answer text that was written with its sources.
    #[serde(borrow, default, rename = "citationsContent")]
    cited: Option<Obj<Cited<'a>>>,
}

#[derive(Deserialize)]
struct Cited<'a> {
    #[serde(borrow, default)]
    content: Option<Few<Obj<CitedText<'a>>>>,
}

#[derive(Deserialize)]
struct CitedText<'a> {
    #[serde(borrow, default)]
    text: Option<Text<'a>>,
}

/// A tool call: whole in a document, its beginning or a piece of its input in a stream.
#[derive(Deserialize)]
struct ToolUse<'a> {
    #[serde(borrow, default, rename = "toolUseId")]
    id: Option<Text<'a>>,
    #[serde(borrow, default)]
    name: Option<Text<'a>>,
    #[serde(borrow, default)]
    input: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "type")]
    kind: Option<&'a RawValue>,
}

impl ToolUse<'_> {
    /// Whether the server itself runs it.
    fn is_served(&self) -> bool {
        self.kind.is_some_and(|kind| kind.get() == "\"server_tool_use\"")
    }

    fn name(&self) -> &str {
        self.name.as_ref().map_or("", |Text(name)| name)
    }

    fn input(&self) -> std::borrow::Cow<'_, str> {
        json::string_or_json(self.input)
    }
}

#[derive(Deserialize)]
struct Reasoning<'a> {
    #[serde(borrow, default)]
    text: Option<Text<'a>>,
    #[serde(borrow, default, rename = "reasoningText")]
    whole: Option<Obj<CitedText<'a>>>,
}

impl Reasoning<'_> {
    fn merge(&self, gather: &mut Gather) {
        let whole = self.whole.as_ref().and_then(|Obj(whole)| whole.text.as_ref());
        if let Some(Text(text)) = self.text.as_ref().or(whole) {
            gather.reasoning(text);
        }
    }
}

#[derive(Deserialize)]
struct Usage {
    #[serde(default, rename = "inputTokens")]
    input: Value,
    #[serde(default, rename = "outputTokens")]
    output: Value,
}
