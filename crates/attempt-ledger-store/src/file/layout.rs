//! Names and the `FORMAT` file of a ledger's directory.

use std::path::Path;

use attempt_ledger_core::{Digest, FORMAT_VERSION, Timestamp};

use super::{
    Damage, DamageKind, Io, OpenError,
    io::{read_full, write_all},
    line::MAX_ROW,
};

pub(crate) const FORMAT: &str = "FORMAT";
pub(crate) const LOCK: &str = "lock";
pub(crate) const KEY: &str = "fingerprint.key";
const NAME: &str = "attempt-ledger";

/// A segment's name: the number of its first row.
pub(crate) fn segment_name(first: u64) -> String {
    format!("{first:012}.jsonl")
}

/// The number of a segment's first row, if `name` is a segment's.
pub(crate) fn segment_first(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".jsonl")?;
    let first = digits.parse().ok()?;
    (segment_name(first) == name).then_some(first)
}

/// The name that says that a writer stopped before this row because of a failed write or sync.
pub(crate) fn failed_name(seq: u64) -> String {
    format!("failed-{seq:012}")
}

pub(crate) fn is_failed(name: &str) -> bool {
    let digits = name.strip_prefix("failed-").unwrap_or_default();
    digits.len() >= 12 && digits.bytes().all(|b| b.is_ascii_digit())
}

/// A name under which a file is made before it gets its own.
pub(crate) fn temporary_name() -> String {
    format!("tmp-{}-{:032x}", std::process::id(), crate::ledger::random_u128())
}

pub(crate) fn is_temporary(name: &str) -> bool {
    let made = name.strip_prefix("tmp-").and_then(|rest| rest.split_once('-'));
    made.is_some_and(|(pid, random)| {
        !pid.is_empty()
            && pid.bytes().all(|b| b.is_ascii_digit())
            && random.len() == 32
            && random.bytes().all(|b| b.is_ascii_hexdigit())
    })
}

/// The `FORMAT` file: name, version, ledger id and moment of creation, in one line. The first row is
/// chained to its bytes.
#[derive(Clone, Debug)]
pub(crate) struct Format {
    pub(crate) ledger: String,
    pub(crate) bytes: Vec<u8>,
}

impl Format {
    pub(crate) fn new(created: Timestamp) -> Self {
        let ledger = format!("{:032x}", crate::ledger::random_u128());
        let line = format!("{NAME} {FORMAT_VERSION} {ledger} {created}\n");
        Format { ledger, bytes: line.into_bytes() }
    }

    pub(crate) fn read(io: &dyn Io, dir: &Path) -> Result<Self, OpenError> {
        let file = dir.join(FORMAT);
        let failed = |cause| OpenError::io("read", &file, cause);
        let mut bytes = vec![0; MAX_ROW];
        let read = io.open_read(&file).and_then(|open| read_full(&*open, &mut bytes, 0));
        bytes.truncate(read.map_err(failed)?);
        let damaged = || {
            OpenError::Damaged(Damage {
                file: file.as_path().into(),
                offset: 0,
                seq: 0,
                kind: DamageKind::Format,
            })
        };
        let text = str::from_utf8(&bytes).map_err(|_| damaged())?;
        let line = text.strip_suffix('\n').ok_or_else(damaged)?;
        let mut words = line.split(' ');
        let (name, version) = (words.next(), words.next().and_then(|v| v.parse::<u64>().ok()));
        let (Some(NAME), Some(version)) = (name, version) else { return Err(damaged()) };
        if version > u64::from(FORMAT_VERSION) {
            return Err(OpenError::NewerFormat {
                file: file.as_path().into(),
                found: version,
                known: FORMAT_VERSION,
            });
        }
        let (Some(ledger), Some(_created), None) = (words.next(), words.next(), words.next())
        else {
            return Err(damaged());
        };
        Ok(Format { ledger: ledger.to_owned(), bytes })
    }

    /// Writes the file once and for all.
    pub(crate) fn create(&self, io: &dyn Io, dir: &Path) -> Result<(), OpenError> {
        let (temporary, file) = (dir.join(temporary_name()), dir.join(FORMAT));
        let failed = |cause| OpenError::io("create", &file, cause);
        let mut open = io.create_new(&temporary).map_err(failed)?;
        write_all(&mut *open, &self.bytes).map_err(failed)?;
        open.sync_data().map_err(failed)?;
        io.rename(&temporary, &file).map_err(failed)?;
        io.sync_dir(dir).map_err(failed)
    }

    /// What the first segment's header says of the row before it.
    pub(crate) fn digest(&self) -> Digest {
        Digest::of(&self.bytes)
    }
}

/// What a directory holds.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// Segments, by the number of their first row, in order.
    pub(crate) segments: Vec<u64>,
    pub(crate) failed: Vec<String>,
    pub(crate) temporary: Vec<String>,
    pub(crate) has_format: bool,
    pub(crate) has_key: bool,
    /// The first name, in their order, that is none of the store's own.
    pub(crate) foreign: Option<String>,
}

impl Listing {
    pub(crate) fn read(io: &dyn Io, dir: &Path) -> Result<Self, OpenError> {
        let names = io.list(dir).map_err(|cause| OpenError::io("list", dir, cause))?;
        let mut listing = Listing::default();
        for name in names {
            if let Some(first) = segment_first(&name) {
                listing.segments.push(first);
            } else if name == FORMAT {
                listing.has_format = true;
            } else if name == KEY {
                listing.has_key = true;
            } else if is_failed(&name) {
                listing.failed.push(name);
            } else if is_temporary(&name) {
                listing.temporary.push(name);
            } else if name != LOCK && listing.foreign.as_ref().is_none_or(|first| name < *first) {
                listing.foreign = Some(name);
            }
        }
        listing.segments.sort_unstable();
        Ok(listing)
    }
}
