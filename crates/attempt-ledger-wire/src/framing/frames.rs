use crate::event::Sink;

/// Splits a byte stream of any chunking into binary frames, and checks both checksums of each.
#[derive(Debug)]
pub(crate) struct Frames {
    closed: bool,
}

impl Frames {
    pub(crate) fn new(_max: usize) -> Self {
        Frames { closed: false }
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
