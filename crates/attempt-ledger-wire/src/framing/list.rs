use crate::event::Sink;

/// Splits a JSON list that is delivered piecewise into its elements.
#[derive(Debug)]
pub(crate) struct List {
    closed: bool,
}

impl List {
    pub(crate) fn new(_max: usize) -> Self {
        List { closed: false }
    }

    pub(crate) fn held(&self) -> usize {
        0
    }

    pub(crate) fn feed(&mut self, bytes: &[u8], sink: &mut impl Sink) {
        if !self.closed && !bytes.is_empty() {
            self.close();
            sink.broken();
        }
    }

    pub(crate) fn finish(&mut self, _sink: &mut impl Sink) {}

    pub(crate) fn close(&mut self) {
        self.closed = true;
    }
}
