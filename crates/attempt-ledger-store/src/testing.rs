//! For tests of what rests on a store: a file system that notes every call, and fails the ones it is
//! told to.
//!
//! ```
//! use std::sync::Arc;
//! use attempt_ledger_core::{CaseId, RunId, Slot};
//! use attempt_ledger_store::{OpenRequest, file::FileOptions, testing::{Op, TestIo}};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let room = tempfile::tempdir()?; let dir = room.path().join("ledger");
//! let io = TestIo::new();
//! let ledger = FileOptions::new(dir).io(Arc::new(io.clone())).open()?;
//! let slot = Slot::new(RunId::new("r")?, CaseId::new("c")?);
//! let right = ledger.open(OpenRequest::new(&slot)).await?;
//! io.mark("connect");
//!
//! // The attempt's row was synced before anything else happened.
//! let ops = io.ops();
//! let opened = ops.iter().position(|op| op.writes("\"kind\":\"opened\"")).unwrap();
//! assert!(matches!(ops[opened + 1..], [Op::Sync(_), Op::Mark(_)]));
//! # Ok(()) }
//! ```

use std::{
    fs::File,
    io,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::file::{Io, IoFile, IoRead, RealIo};

/// A change that was asked of the file system, whether or not it was made. Names are without their
/// directory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Op {
    /// A directory was made.
    CreateDir(String),
    /// A file was made.
    Create(String),
    /// Bytes were appended.
    Write {
        /// The name the file was opened under.
        file: String,
        /// The bytes that were written.
        bytes: Vec<u8>,
    },
    /// A file was synced.
    Sync(String),
    /// A directory was synced.
    SyncDir(String),
    /// A file was renamed.
    Rename {
        /// Its name before.
        from: String,
        /// Its name since.
        to: String,
    },
    /// A name was removed.
    Remove(String),
    /// A test said so.
    Mark(String),
}

impl Op {
    /// Whether it appended bytes that hold `text`.
    pub fn writes(&self, text: &str) -> bool {
        match self {
            Op::Write { bytes, .. } => String::from_utf8_lossy(bytes).contains(text),
            _ => false,
        }
    }
}

/// A sort of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Call {
    /// [`Io::create_dir`]
    CreateDir,
    /// [`Io::list`]
    List,
    /// [`Io::open_lock`]
    OpenLock,
    /// [`Io::is_at`]
    IsAt,
    /// [`Io::open_read`] and [`Io::open_read_direct`]
    OpenRead,
    /// [`Io::create_new`]
    Create,
    /// [`Io::open_append`]
    OpenAppend,
    /// [`Io::rename`]
    Rename,
    /// [`Io::remove`]
    Remove,
    /// [`Io::sync_dir`]
    SyncDir,
    /// [`Io::network_fs`]
    NetworkFs,
    /// [`IoFile::write`]
    Write,
    /// [`IoFile::sync_data`]
    Sync,
    /// [`IoRead::size`] and [`IoFile::size`]
    Size,
    /// [`IoRead::read_at`]
    Read,
}

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// With this error number (28 is ENOSPC, 5 is EIO, 4 is EINTR), and does nothing.
    Errno(i32),
    /// A write takes at most this many bytes and says so; any other call succeeds.
    Short(usize),
    /// A write takes half of its bytes; all later writes fail with this error number.
    Torn(i32),
}

/// The operating system's file system, with every call noted, and some failing. Clones are the same.
#[derive(Clone, Debug)]
pub struct TestIo {
    inner: Arc<dyn Io>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    ops: Vec<Op>,
    calls: u64,
    plan: Option<Plan>,
    network: Option<&'static str>,
    skip_syncs: bool,
}

#[derive(Debug)]
struct Plan {
    call: Option<Call>,
    /// Matching calls still to let through.
    wait: u64,
    fault: Fault,
    sticky: bool,
}

impl Default for TestIo {
    fn default() -> Self {
        Self::new()
    }
}

impl TestIo {
    /// Over the operating system.
    pub fn new() -> Self {
        TestIo { inner: Arc::new(RealIo), state: Arc::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was asked so far, in order.
    pub fn ops(&self) -> Vec<Op> {
        self.state().ops.clone()
    }

    /// Notes something that the test did, between what the store does.
    pub fn mark(&self, what: &str) {
        self.state().ops.push(Op::Mark(what.to_owned()));
    }

    /// How many calls were made so far, of all sorts.
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// Fails the `nth` call from now on (from 1), of the sort `call` or of any; if `sticky` all of
    /// that sort that follow, too. Replaces what was planned before.
    pub fn fail(&self, call: Option<Call>, nth: u64, fault: Fault, sticky: bool) {
        let wait = nth.saturating_sub(1);
        self.state().plan = Some(Plan { call, wait, fault, sticky });
    }

    /// Fails nothing any more.
    pub fn heal(&self) {
        self.state().plan = None;
    }

    /// Says that every directory is on this network file system.
    pub fn pretend_network_fs(&self, kind: Option<&'static str>) {
        self.state().network = kind;
    }

    /// Makes no sync reach the disk: each is counted, noted and failed as before, in less time.
    pub fn skip_syncs(&self) {
        self.state().skip_syncs = true;
    }

    fn note(&self, op: Op) {
        self.state().ops.push(op);
    }

    /// Counts a call, and fails it if that is planned. Gives the bytes a write may take.
    fn call(&self, call: Call) -> io::Result<Option<Fault>> {
        let mut state = self.state();
        state.calls += 1;
        let Some(plan) = &mut state.plan else { return Ok(None) };
        if plan.call.is_some_and(|only| only != call) {
            return Ok(None);
        }
        if plan.wait > 0 {
            plan.wait -= 1;
            return Ok(None);
        }
        let fault = plan.fault;
        match fault {
            Fault::Torn(errno) if call == Call::Write => {
                let (call, fault) = (Some(Call::Write), Fault::Errno(errno));
                state.plan = Some(Plan { call, wait: 0, fault, sticky: true });
            }
            _ if plan.sticky => {}
            _ => state.plan = None,
        }
        match fault {
            Fault::Errno(errno) => Err(io::Error::from_raw_os_error(errno)),
            Fault::Short(_) | Fault::Torn(_) => Ok(Some(fault)),
        }
    }
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

impl Io for TestIo {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.call(Call::CreateDir)?;
        self.note(Op::CreateDir(name(dir)));
        self.inner.create_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.call(Call::List)?;
        self.inner.list(dir)
    }

    fn open_lock(&self, file: &Path) -> io::Result<File> {
        self.call(Call::OpenLock)?;
        self.inner.open_lock(file)
    }

    fn is_at(&self, open: &File, path: &Path) -> io::Result<bool> {
        self.call(Call::IsAt)?;
        self.inner.is_at(open, path)
    }

    fn open_read(&self, file: &Path) -> io::Result<Box<dyn IoRead>> {
        self.call(Call::OpenRead)?;
        Ok(Box::new(TestRead { inner: self.inner.open_read(file)?, io: self.clone() }))
    }

    fn open_read_direct(&self, file: &Path) -> io::Result<Box<dyn IoRead>> {
        self.call(Call::OpenRead)?;
        Ok(Box::new(TestRead { inner: self.inner.open_read_direct(file)?, io: self.clone() }))
    }

    fn create_new(&self, file: &Path) -> io::Result<Box<dyn IoFile>> {
        self.call(Call::Create)?;
        self.note(Op::Create(name(file)));
        let inner = self.inner.create_new(file)?;
        Ok(Box::new(TestFile { inner, name: name(file), io: self.clone() }))
    }

    fn open_append(&self, file: &Path) -> io::Result<Box<dyn IoFile>> {
        self.call(Call::OpenAppend)?;
        let inner = self.inner.open_append(file)?;
        Ok(Box::new(TestFile { inner, name: name(file), io: self.clone() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(Call::Rename)?;
        self.note(Op::Rename { from: name(from), to: name(to) });
        self.inner.rename(from, to)
    }

    fn remove(&self, file: &Path) -> io::Result<()> {
        self.call(Call::Remove)?;
        self.note(Op::Remove(name(file)));
        self.inner.remove(file)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.call(Call::SyncDir)?;
        self.note(Op::SyncDir(name(dir)));
        if self.state().skip_syncs { Ok(()) } else { self.inner.sync_dir(dir) }
    }

    fn network_fs(&self, dir: &Path) -> io::Result<Option<&'static str>> {
        self.call(Call::NetworkFs)?;
        match self.state().network {
            Some(kind) => Ok(Some(kind)),
            None => self.inner.network_fs(dir),
        }
    }
}

#[derive(Debug)]
struct TestFile {
    inner: Box<dyn IoFile>,
    name: String,
    io: TestIo,
}

impl IoFile for TestFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let most = match self.io.call(Call::Write)? {
            Some(Fault::Short(most)) => most,
            Some(Fault::Torn(_)) => bytes.len() / 2,
            _ => bytes.len(),
        };
        let bytes = bytes.get(..most).unwrap_or(bytes);
        self.io.note(Op::Write { file: self.name.clone(), bytes: bytes.to_vec() });
        self.inner.write(bytes)
    }

    fn sync_data(&mut self) -> io::Result<()> {
        self.io.call(Call::Sync)?;
        self.io.note(Op::Sync(self.name.clone()));
        let skip = self.io.state().skip_syncs;
        if skip { Ok(()) } else { self.inner.sync_data() }
    }

    fn size(&self) -> io::Result<u64> {
        self.io.call(Call::Size)?;
        self.inner.size()
    }
}

#[derive(Debug)]
struct TestRead {
    inner: Box<dyn IoRead>,
    io: TestIo,
}

impl IoRead for TestRead {
    fn size(&self) -> io::Result<u64> {
        self.io.call(Call::Size)?;
        self.inner.size()
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.io.call(Call::Read)?;
        self.inner.read_at(into, offset)
    }

    fn mode(&self) -> io::Result<u32> {
        self.inner.mode()
    }
}
