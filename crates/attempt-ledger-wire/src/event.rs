/// One event of a stream, whatever framed it: a server-sent event, a line, an element of a list,
/// a binary frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event<'a> {
    /// What it says: JSON on most wires.
    pub(crate) data: &'a [u8],
    /// Its name beside the data: the field `event` of a server-sent event, the type of a binary
    /// frame, the code of an error frame. Empty without one; cut to 64 bytes.
    pub(crate) name: &'a str,
    pub(crate) kind: Kind,
    /// False for the last one if what ends it never came: then it counts only if it parses.
    pub(crate) complete: bool,
}

impl Event<'_> {
    /// Whether it is the mark that ends a stream on OpenAI's wires, and on others at some servers.
    pub(crate) fn is_done(&self) -> bool {
        self.data.trim_ascii() == b"[DONE]"
    }
}

/// What the framing says of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Data, under no name or one that means nothing to the framing.
    #[default]
    Data,
    /// A server-sent event whose name is `error`.
    NamedError,
    /// Its data came in a field named `error`, as llama.cpp wrote it.
    ErrorField,
    /// A binary frame that reports an exception, whose type is the event's name.
    Exception,
}

/// Who takes the events.
pub(crate) trait Sink {
    /// An event with data. False ends the reading.
    fn event(&mut self, event: Event<'_>) -> bool;

    /// An event whose framing is broken; the reading has ended.
    fn broken(&mut self);

    /// An event over the bound; the reading has ended.
    fn over_bound(&mut self);
}
