//! The operating system as the file store sees it: few calls, so that tests can record or fail each.

use std::{
    fmt,
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::Path,
};

use rustix::fs::OFlags;

/// What the file store asks of a file system.
pub trait Io: fmt::Debug + Send + Sync + 'static {
    /// Makes a directory, and those above it, for its owner alone.
    ///
    /// # Errors
    /// The operating system's.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;
    /// The names in a directory, in no order.
    ///
    /// # Errors
    /// The operating system's.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Opens a lock file, and makes it if need be.
    ///
    /// # Errors
    /// The operating system's; a symbolic link is one.
    fn open_lock(&self, file: &Path) -> io::Result<File>;
    /// Whether `path` is still the name of the open file.
    ///
    /// # Errors
    /// The operating system's; that nothing has the name is none.
    fn is_at(&self, open: &File, path: &Path) -> io::Result<bool>;
    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// The operating system's; a symbolic link is one.
    fn open_read(&self, file: &Path) -> io::Result<Box<dyn IoRead>>;
    /// Opens a regular file for reading past the page cache, where that can be done.
    ///
    /// # Errors
    /// As [`open_read`](Self::open_read).
    fn open_read_direct(&self, file: &Path) -> io::Result<Box<dyn IoRead>>;
    /// Makes a file that must not exist, for appending, for its owner alone.
    ///
    /// # Errors
    /// The operating system's.
    fn create_new(&self, file: &Path) -> io::Result<Box<dyn IoFile>>;
    /// Opens a file that exists, for appending.
    ///
    /// # Errors
    /// The operating system's; a symbolic link is one.
    fn open_append(&self, file: &Path) -> io::Result<Box<dyn IoFile>>;
    /// Renames a file unless the new name is taken.
    ///
    /// # Errors
    /// The operating system's; a name that is taken is one.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a name.
    ///
    /// # Errors
    /// The operating system's.
    fn remove(&self, file: &Path) -> io::Result<()>;
    /// Syncs a directory, and with it the names in it.
    ///
    /// # Errors
    /// The operating system's.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// The name of the network file system a directory is on, if it is on one.
    ///
    /// # Errors
    /// The operating system's.
    fn network_fs(&self, dir: &Path) -> io::Result<Option<&'static str>>;
}

/// A file that is appended to.
pub trait IoFile: fmt::Debug + Send {
    /// Appends some of `bytes`, and says how many.
    ///
    /// # Errors
    /// The operating system's.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;
    /// Syncs contents and length.
    ///
    /// # Errors
    /// The operating system's.
    fn sync_data(&mut self) -> io::Result<()>;
    /// Its length now.
    ///
    /// # Errors
    /// The operating system's.
    fn size(&self) -> io::Result<u64>;
}

/// A file that is read at any offset.
pub trait IoRead: fmt::Debug + Send {
    /// Its length now.
    ///
    /// # Errors
    /// The operating system's.
    fn size(&self) -> io::Result<u64>;
    /// Reads some bytes from `offset` on; 0 at the end.
    ///
    /// # Errors
    /// The operating system's.
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Who may do what with it: the nine bits of its mode.
    ///
    /// # Errors
    /// The operating system's.
    fn mode(&self) -> io::Result<u32>;
}

/// The operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealIo;

/// No symbolic link is followed, and no pipe is waited for.
pub(crate) fn careful() -> i32 {
    (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC).bits() as i32
}

pub(crate) fn regular(file: File) -> io::Result<File> {
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "is not a regular file"))
    }
}

impl Io for RealIo {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            // A name that is not UTF-8 is none of ours, and does not become one.
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        Ok(names)
    }

    fn open_lock(&self, file: &Path) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        regular(options.custom_flags(careful()).open(file)?)
    }

    fn is_at(&self, open: &File, path: &Path) -> io::Result<bool> {
        let open = open.metadata()?;
        match fs::symlink_metadata(path) {
            Ok(named) => Ok((named.dev(), named.ino()) == (open.dev(), open.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn open_read(&self, file: &Path) -> io::Result<Box<dyn IoRead>> {
        let file = OpenOptions::new().read(true).custom_flags(careful()).open(file)?;
        Ok(Box::new(RealRead(regular(file)?)))
    }

    fn open_read_direct(&self, file: &Path) -> io::Result<Box<dyn IoRead>> {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        {
            let flags = careful() | OFlags::DIRECT.bits() as i32;
            if let Ok(file) = OpenOptions::new().read(true).custom_flags(flags).open(file) {
                return Ok(Box::new(DirectRead(regular(file)?)));
            }
        }
        // A file system without direct reads (tmpfs) has no disk to differ from its cache.
        self.open_read(file)
    }

    fn create_new(&self, file: &Path) -> io::Result<Box<dyn IoFile>> {
        let mut options = OpenOptions::new();
        options.append(true).create_new(true).mode(0o600).custom_flags(careful());
        Ok(Box::new(RealFile(options.open(file)?)))
    }

    fn open_append(&self, file: &Path) -> io::Result<Box<dyn IoFile>> {
        let file = OpenOptions::new().append(true).custom_flags(careful()).open(file)?;
        Ok(Box::new(RealFile(regular(file)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        {
            use rustix::{fs, io::Errno};
            match fs::renameat_with(fs::CWD, from, fs::CWD, to, fs::RenameFlags::NOREPLACE) {
                // Not every file system knows the flag.
                Err(Errno::INVAL | Errno::NOSYS) => {}
                done => return done.map_err(Into::into),
            }
        }
        fs::hard_link(from, to)?;
        fs::remove_file(from)
    }

    fn remove(&self, file: &Path) -> io::Result<()> {
        fs::remove_file(file)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn network_fs(&self, dir: &Path) -> io::Result<Option<&'static str>> {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        {
            // The magic numbers of statfs(2).
            #[allow(clippy::unnecessary_cast, reason = "the field's type differs between machines")]
            let kind = rustix::fs::statfs(dir)?.f_type as u64 as u32;
            Ok(match kind {
                0x6969 => Some("NFS"),
                0xFF53_4D42 | 0xFE53_4D42 | 0x517B => Some("CIFS"),
                0x6573_5546 => Some("FUSE"),
                0x0102_1997 => Some("9P"),
                0x00C3_6400 => Some("Ceph"),
                0x0BD0_0BD0 => Some("Lustre"),
                0x5346_414F | 0x6B41_4653 => Some("AFS"),
                _ => None,
            })
        }
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        {
            let _ = dir;
            Ok(None)
        }
    }
}

#[derive(Debug)]
struct RealFile(File);

impl IoFile for RealFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn sync_data(&mut self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }
}

#[derive(Debug)]
struct RealRead(File);

impl IoRead for RealRead {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn mode(&self) -> io::Result<u32> {
        Ok(self.0.metadata()?.mode() & 0o777)
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(into, offset)
    }
}

/// Reads past the page cache: offset, length and address must be multiples of the block size.
#[derive(Debug)]
struct DirectRead(File);

const BLOCK: usize = 4096;

impl IoRead for DirectRead {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn mode(&self) -> io::Result<u32> {
        Ok(self.0.metadata()?.mode() & 0o777)
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let before = (offset % BLOCK as u64) as usize;
        let want = (before + into.len()).next_multiple_of(BLOCK);
        let mut room = vec![0_u8; want + BLOCK];
        let aligned = room.as_ptr().align_offset(BLOCK);
        let Some(blocks) = room.get_mut(aligned..).and_then(|room| room.get_mut(..want)) else {
            return Err(io::ErrorKind::OutOfMemory.into());
        };
        let read = self.0.read_at(blocks, offset - before as u64)?;
        let found = blocks.get(before..read).unwrap_or_default();
        let found = found.get(..into.len().min(found.len())).unwrap_or_default();
        if let Some(into) = into.get_mut(..found.len()) {
            into.copy_from_slice(found);
        }
        Ok(found.len())
    }
}

/// Appends all of `bytes`. An interrupted call is repeated; a short one goes on where it stopped.
pub(crate) fn write_all(file: &mut dyn IoFile, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => bytes = bytes.get(n..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads until `into` is full or the file ends.
pub(crate) fn read_full(file: &dyn IoRead, into: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut have = 0;
    while let Some(rest) = into.get_mut(have..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset + have as u64) {
            Ok(0) => break,
            Ok(n) => have += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(have)
}

/// Takes a lock without waiting: `false` when another holds it.
pub(crate) fn try_lock(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// As [`try_lock`], with others who only look.
pub(crate) fn try_lock_shared(file: &File) -> io::Result<bool> {
    match file.try_lock_shared() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}
