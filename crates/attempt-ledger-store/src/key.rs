use std::fmt;

use attempt_ledger_core::Digest;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// The secret of a ledger whose fingerprints are keyed: 32 bytes, which nothing here prints.
///
/// A plain SHA-256 gives a short prompt away to whoever can guess it. Keyed, the same digest says
/// nothing without the key, and is still equal where what was sent is equal.
#[derive(Clone)]
pub struct FingerprintKey(Hmac<Sha256>);

/// What the key is known again by. It is no digest's length, so that no fingerprint equals it.
const CHECK: &[u8] = b"attempt-ledger fingerprint key 1\n";

impl FingerprintKey {
    /// Takes the key's bytes. They must come from a source of randomness.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        // HMAC fills a key up with zeros to a block of 64 bytes; the block is what it asks for here.
        let mut block = [0; 64];
        for (byte, given) in block.iter_mut().zip(bytes) {
            *byte = given;
        }
        FingerprintKey(Hmac::new(&block.into()))
    }

    /// HMAC-SHA256 of the digest's 32 bytes.
    pub fn digest(&self, plain: &Digest) -> Digest {
        self.of(plain.as_bytes())
    }

    /// A value by which the key is known again, and which tells nothing of it.
    pub(crate) fn check(&self) -> Digest {
        self.of(CHECK)
    }

    fn of(&self, bytes: &[u8]) -> Digest {
        let mut mac = self.0.clone();
        mac.update(bytes);
        Digest::from_bytes(mac.finalize().into_bytes().into())
    }
}

impl fmt::Debug for FingerprintKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FingerprintKey(..)")
    }
}
