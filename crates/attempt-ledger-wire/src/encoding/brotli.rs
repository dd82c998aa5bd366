//! Brotli (RFC 7932), for the coding `br`.

use std::fmt;

use brotli_decompressor::{
    Allocator, BrotliDecoderErrorCode, BrotliDecompressStream, BrotliResult, BrotliState,
    SliceWrapper, SliceWrapperMut,
};

use super::{Failed, PIECE, Sink, too_large};

/// Packed bytes that are kept so that a fault among them can be looked at again.
const KEPT: usize = 64 * 1024;

/// Unpacks one brotli stream. Its window is 16 MiB at most: the large windows that the format's
/// tools know are not part of the coding.
///
/// The decoder finds some faults late, so that how much of what is wrong it hands out depends on
/// how much it is fed at once. What counts here is what it hands out when fed byte by byte. That
/// is slow: the first part of a body is fed as it comes, and again if there is a fault in it.
pub(super) struct Brotli {
    state: Box<BrotliState<Heap, Heap, Heap>>,
    handed_on: usize,
    ended: bool,
    /// All that came; `None` when that is more than is kept.
    seen: Option<Vec<u8>>,
}

/// What the decoder says of the bytes that it was fed.
enum Said {
    Fine,
    Wrong(Failed),
}

impl Brotli {
    pub(super) fn new() -> Self {
        let state = BrotliState::new_strict(Heap::default(), Heap::default(), Heap::default());
        Brotli { state: Box::new(state), handed_on: 0, ended: false, seen: Some(Vec::new()) }
    }

    pub(super) fn unpack(&mut self, bytes: &[u8], sink: &mut Sink<'_>) -> Result<(), Failed> {
        let before = match &mut self.seen {
            Some(seen) if seen.len() + bytes.len() <= KEPT => {
                let before = seen.len();
                seen.extend_from_slice(bytes);
                before
            }
            _ => {
                self.seen = None;
                return self.unpack_bytewise(bytes, sink);
            }
        };
        match self.step(bytes, sink)? {
            Said::Fine => Ok(()),
            Said::Wrong(failed) => self.look_again(before, sink).and(Err(failed)),
        }
    }

    pub(super) fn finish(&self) -> Result<(), Failed> {
        if self.ended { Ok(()) } else { Err(Failed::Short) }
    }

    /// Bytes of memory.
    pub(super) fn held(&self) -> usize {
        let state = &self.state;
        let heap = state.alloc_u8.held + state.alloc_u32.held + state.alloc_hc.held;
        size_of_val(&**state) + heap + self.seen.as_ref().map_or(0, Vec::capacity)
    }

    fn unpack_bytewise(&mut self, bytes: &[u8], sink: &mut Sink<'_>) -> Result<(), Failed> {
        for byte in bytes.chunks(1) {
            if let Said::Wrong(failed) = self.step(byte, sink)? {
                return Err(failed);
            }
        }
        Ok(())
    }

    /// There is a fault behind the first `before` bytes: hands on what can still be had.
    fn look_again(&self, before: usize, sink: &mut Sink<'_>) -> Result<(), Failed> {
        let Some((sound, wrong)) =
            self.seen.as_ref().and_then(|seen| seen.split_at_checked(before))
        else {
            return Ok(());
        };
        let mut skip = self.handed_on;
        let mut rest = |unpacked: &[u8]| {
            let (_, new) = unpacked.split_at(skip.min(unpacked.len()));
            skip -= unpacked.len() - new.len();
            if new.is_empty() { Ok(()) } else { sink(new) }
        };
        let mut again = Brotli::new();
        again.step(sound, &mut rest)?;
        again.unpack_bytewise(wrong, &mut rest)
    }

    fn step(&mut self, bytes: &[u8], sink: &mut Sink<'_>) -> Result<Said, Failed> {
        let (mut left, mut at) = (bytes.len(), 0);
        let mut out = [0; PIECE];
        if self.ended && left > 0 {
            return Ok(Said::Wrong(Failed::Corrupt));
        }
        loop {
            let (mut room, mut len) = (out.len(), 0);
            let result = BrotliDecompressStream(
                &mut left,
                &mut at,
                bytes,
                &mut room,
                &mut len,
                &mut out,
                &mut self.handed_on,
                &mut self.state,
            );
            sink(out.get(..len).unwrap_or_default())?;
            match result {
                BrotliResult::NeedsMoreOutput if len > 0 => {}
                // It says so too when there is no room for what it has.
                BrotliResult::NeedsMoreInput if room == 0 => {}
                BrotliResult::NeedsMoreInput => return Ok(Said::Fine),
                BrotliResult::ResultSuccess if left == 0 => {
                    self.ended = true;
                    return Ok(Said::Fine);
                }
                _ => return Ok(Said::Wrong(self.fault())),
            }
        }
    }

    fn fault(&self) -> Failed {
        match self.state.error_code {
            BrotliDecoderErrorCode::BROTLI_DECODER_ERROR_FORMAT_WINDOW_BITS => too_large(),
            _ => Failed::Corrupt,
        }
    }
}

impl fmt::Debug for Brotli {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Brotli").field("ended", &self.ended).finish_non_exhaustive()
    }
}

/// The heap, with a count of what was taken from it.
#[derive(Default)]
struct Heap {
    held: usize,
}

struct Cells<T>(Vec<T>);

impl<T: Clone + Default> Allocator<T> for Heap {
    type AllocatedMemory = Cells<T>;

    fn alloc_cell(&mut self, len: usize) -> Cells<T> {
        self.held += len * size_of::<T>();
        Cells(vec![T::default(); len])
    }

    fn free_cell(&mut self, cells: Cells<T>) {
        self.held = self.held.saturating_sub(cells.0.len() * size_of::<T>());
    }
}

impl<T> Default for Cells<T> {
    fn default() -> Self {
        Cells(Vec::new())
    }
}

impl<T> SliceWrapper<T> for Cells<T> {
    fn slice(&self) -> &[T] {
        &self.0
    }
}

impl<T> SliceWrapperMut<T> for Cells<T> {
    fn slice_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}
