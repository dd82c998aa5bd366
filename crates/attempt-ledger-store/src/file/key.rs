//! The file that holds the key of a ledger's fingerprints.

use std::{io, path::Path};

use attempt_ledger_core::Digest;

use super::{
    Io, KeyFault, OpenError,
    io::{read_full, write_all},
    layout::{KEY, temporary_name},
};
use crate::FingerprintKey;

/// 64 digits and a newline, and one more by which a longer file is told.
const READ: usize = 66;

/// Reads the key.
pub(crate) fn read(io: &dyn Io, dir: &Path) -> Result<FingerprintKey, OpenError> {
    let path = dir.join(KEY);
    let failed = |cause| OpenError::io("read", &path, cause);
    let file = io.open_read(&path).map_err(failed)?;
    let mode = file.mode().map_err(failed)?;
    if mode & 0o077 != 0 {
        return Err(fault(dir, KeyFault::Exposed { mode }));
    }
    let mut bytes = [0; READ];
    let len = read_full(&*file, &mut bytes, 0).map_err(failed)?;
    let text = bytes.get(..len).and_then(|bytes| str::from_utf8(bytes).ok());
    let digits = text.and_then(|text| text.strip_suffix('\n'));
    // A key is spelt as a digest is.
    let key = digits.and_then(|digits| digits.parse::<Digest>().ok());
    let key = key.ok_or_else(|| fault(dir, KeyFault::Malformed))?;
    Ok(FingerprintKey::from_bytes(*key.as_bytes()))
}

/// Makes a key that is on disk, with its name, when this returns.
pub(crate) fn create(io: &dyn Io, dir: &Path) -> Result<FingerprintKey, OpenError> {
    let (temporary, path) = (dir.join(temporary_name()), dir.join(KEY));
    let failed = |cause| OpenError::io("create", &path, cause);
    let mut bytes = [0; 32];
    // Without randomness there is no key; what else would do for an id would not do for this.
    getrandom::fill(&mut bytes).map_err(|error| failed(io::Error::other(error.to_string())))?;
    let mut line = Digest::from_bytes(bytes).digits().to_vec();
    line.push(b'\n');
    let mut file = io.create_new(&temporary).map_err(failed)?;
    write_all(&mut *file, &line).map_err(failed)?;
    file.sync_data().map_err(failed)?;
    io.rename(&temporary, &path).map_err(failed)?;
    io.sync_dir(dir).map_err(failed)?;
    Ok(FingerprintKey::from_bytes(bytes))
}

/// Refuses a key that is not the one with which the ledger was begun, or that it was not begun with.
pub(crate) fn agree(
    dir: &Path,
    begun_with: Option<Digest>,
    key: Option<&FingerprintKey>,
    asked: bool,
) -> Result<(), OpenError> {
    match (begun_with, key.map(FingerprintKey::check)) {
        (Some(begun), Some(check)) if begun == check => Ok(()),
        (Some(_), Some(_)) => Err(fault(dir, KeyFault::Other)),
        (Some(_), None) => Err(fault(dir, KeyFault::Missing)),
        (None, Some(_)) => Err(fault(dir, KeyFault::Unexpected)),
        (None, None) if asked => Err(fault(dir, KeyFault::Late)),
        (None, None) => Ok(()),
    }
}

fn fault(dir: &Path, fault: KeyFault) -> OpenError {
    OpenError::Key { file: dir.join(KEY).into(), fault }
}
