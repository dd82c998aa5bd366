//! Zstandard (RFC 8878), for the coding `zstd`.

use mzstd::{
    DecodeError, DecodeLimits, DecodeOperation, DecoderConfig, DecoderSessionOwned, DecoderStatus,
    Decompressor,
};

use attempt_ledger_core::Uninspected;

use super::{Failed, PIECE, Sink, too_large};

/// The largest window as a power of two, 8 MiB: what RFC 9659 lets a sender of this coding ask for.
const MAX_WINDOW_LOG: u8 = 23;

/// The largest block, by the format.
const MAX_BLOCK: u64 = 128 * 1024;

/// Unpacks frames, one behind the other, and skips those that say so.
#[derive(Debug)]
pub(super) struct Zstd {
    session: DecoderSessionOwned,
    /// The largest window that a frame asked for.
    window: u64,
}

impl Zstd {
    pub(super) fn new() -> Self {
        let limits = DecodeLimits::default();
        let limits = limits.with_max_window_log(MAX_WINDOW_LOG).unwrap_or(limits);
        let decoder = Decompressor::new(DecoderConfig::default().with_limits(limits));
        Zstd { session: decoder.into_session(), window: 0 }
    }

    pub(super) fn unpack(&mut self, mut bytes: &[u8], sink: &mut Sink<'_>) -> Result<(), Failed> {
        loop {
            let mut out = [0; PIECE];
            let progress = self.session.process(bytes, &mut out, DecodeOperation::Process);
            let (consumed, produced) = match &progress {
                Ok(progress) => (progress.consumed, progress.produced),
                Err(failure) => (failure.consumed, failure.produced),
            };
            sink(out.get(..produced).unwrap_or_default())?;
            let status = progress.map_err(|failure| failed(&failure.error))?.status;
            bytes = bytes.get(consumed..).unwrap_or_default();
            if status != DecoderStatus::NeedsOutput || consumed + produced == 0 {
                self.window = self.window.max(self.session.window_size().unwrap_or(0));
                return Ok(());
            }
        }
    }

    pub(super) fn finish(&mut self) -> Result<(), Failed> {
        match self.session.finish(&mut []) {
            Ok(_) => Ok(()),
            Err(failure) => Err(failed(&failure.error)),
        }
    }

    /// Bytes of memory, about: the decoder does not tell. Its history grows with what comes, up to
    /// two windows, and is kept for the next frame.
    pub(super) fn held(&self) -> usize {
        let history = self.session.total_out().min(2 * self.window.max(MAX_BLOCK));
        let held = match self.window {
            0 => 0,
            window => history + 2 * window.min(MAX_BLOCK),
        };
        usize::try_from(held).unwrap_or(usize::MAX) + size_of::<Self>()
    }
}

fn failed(error: &DecodeError) -> Failed {
    match error {
        DecodeError::UnexpectedEndOfInput => Failed::Short,
        DecodeError::WindowLimitExceeded { .. } | DecodeError::AllocationFailed => too_large(),
        // Which dictionary is a thing between the two ends.
        DecodeError::DictionaryUnsupported { .. } => Failed::Unread(Uninspected::Encoding),
        _ => Failed::Corrupt,
    }
}
