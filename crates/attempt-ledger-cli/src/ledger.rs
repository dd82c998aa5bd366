//! Ledgers in directories, as the subcommands open them.

use std::{collections::HashSet, fmt, path::Path};

use attempt_ledger_core::{Fold, Folded, Liveness};
use attempt_ledger_store::{
    Ledger,
    file::{FileOptions, FileReader, Ignored, IgnoredKind, OpenError, Tail, TailKind},
};

use crate::{failure::Failure, out::complain};

/// Opens the ledger in `dir` for writing; makes it if `create`.
pub(crate) fn open(dir: &Path, create: bool) -> Result<Ledger, Failure> {
    open_with(FileOptions::new(dir).create(create))
}

/// As [`open`], with settings.
pub(crate) fn open_with(options: FileOptions) -> Result<Ledger, Failure> {
    let options = options.tool_version(env!("CARGO_PKG_VERSION")).open()?;
    tracing::debug!(target: "attempt_ledger", session = %options.session(), "the ledger is open");
    Ok(options)
}

/// What a ledger holds, and what of its files is no row.
pub(crate) struct Contents {
    pub(crate) folded: Folded,
    /// A sentence on each stretch of bytes that is no row.
    pub(crate) gaps: Vec<String>,
}

impl Contents {
    /// The events, with the gaps said on standard error.
    pub(crate) fn told(self) -> Folded {
        tell(&self.gaps);
        self.folded
    }
}

/// Reads the ledger in `dir` and folds its events. Disturbs no writer.
pub(crate) fn read(dir: &Path) -> Result<Contents, Failure> {
    let mut reader = reader(dir)?;
    // Asked first: a writer that ends meanwhile has closed what it had open, or lost it; asked
    // last, an attempt that it closed in between would look lost.
    let live: HashSet<_> =
        reader.live_session().map_err(Failure::of_reading)?.into_iter().collect();
    let mut fold = Fold::new();
    for record in reader.by_ref() {
        fold.push(&record?)?;
    }
    let gaps = gaps(&reader, !live.is_empty());
    let folded = fold.finish(attempt_ledger_store::now(), &Liveness::Sessions(live));
    Ok(Contents { folded, gaps })
}

/// What a reader passed over, once it has read all. The unfinished row of a writer that is alive is
/// being written, and so none of it.
pub(crate) fn gaps(reader: &FileReader, live: bool) -> Vec<String> {
    let aside = reader.ignored().iter().map(|ignored| {
        let Ignored { file, offset, len, kind, .. } = ignored;
        gap(file, *offset, *len, meaning(*kind))
    });
    let tail = reader.tail().and_then(|tail| {
        let Tail { kind, file, valid_len, ignored_len, .. } = tail;
        let kind = match kind {
            TailKind::Torn if !live => IgnoredKind::Torn,
            TailKind::Hole => IgnoredKind::Hole,
            _ => return None,
        };
        Some(gap(file.as_deref()?, *valid_len, *ignored_len, meaning(kind)))
    });
    aside.chain(tail).collect()
}

fn gap(file: &Path, offset: u64, len: u64, meaning: impl fmt::Display) -> String {
    let plural = if len == 1 { "" } else { "s" };
    format!(
        "{}, offset {offset}: {len} byte{plural} not counted as rows: {meaning}",
        file.display()
    )
}

fn meaning(kind: IgnoredKind) -> &'static str {
    match kind {
        IgnoredKind::Torn => {
            "torn, an unfinished last write; nothing that was acknowledged as synced was in it"
        }
        IgnoredKind::Hole => {
            "a hole, bytes are missing by a power cut, a failing disk or a hand; rows beyond it are unproven"
        }
        IgnoredKind::AfterFailure => {
            "what followed a failed write or sync; nothing in it was acknowledged as synced"
        }
        _ => "of a kind that this version does not know",
    }
}

/// Says the gaps on standard error.
pub(crate) fn tell(gaps: &[String]) {
    for gap in gaps {
        complain(&format!("warning: {gap}\n"));
    }
}

/// Reads the events of the ledger in `dir`.
pub(crate) fn reader(dir: &Path) -> Result<FileReader, Failure> {
    // Where it cannot be told whether it is there, opening it says why.
    if let Ok(false) = dir.try_exists() {
        return Err(OpenError::Missing(dir.into()).into());
    }
    FileReader::open(dir).map_err(Failure::of_reading)
}
