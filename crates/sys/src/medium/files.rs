//! A directory of a file system, which one opening at a time holds.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::file::{full_or, sync};
use super::{Directory, FileMedium, MediumError, Storage};
use crate::Caution;
use crate::files::open_plain;
use crate::liveness::lock_bytes;
use crate::syncs::Syncs;

/// The name of the file whose first byte is locked.
const LOCK: &str = "lock";

/// Mode bits that let other users read a directory.
const READERS: u32 = 0o044;

/// Why a directory cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// Another process, or another opening in this one, holds it.
    #[error("{} is in use by another process", path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// It lies on a network file system.
    #[error(
        "{} lies on a network file system, whose locks and syncs cannot be relied upon: use a \
         local one",
        path.display()
    )]
    Network {
        /// The directory.
        path: PathBuf,
    },
    /// The kernel refuses.
    #[error("cannot {what} {}", path.display())]
    Os {
        /// The operation.
        what: &'static str,
        /// The directory or the file.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}

/// A directory of a local file system.
///
/// Names refer to the directory that was opened, even if it is moved or something else gets its
/// path. A sync of a file that was removed meanwhile fails ([`MediumError::Removed`]).
///
/// The opening holds two locks, which belong to open files and not to the process: an OFD lock on
/// the file `lock` and, because that file may be removed, `flock` on the directory itself. The
/// second is omitted if other users may read the directory, because a reader could hold it for
/// ever. A process that receives the descriptor of the first ([`lock`](FileDirectory::lock),
/// [`crate::descriptors`]) holds it too, until the last descriptor is closed, and takes the second
/// when its predecessor has closed the directory. A child made by `fork` inherits both until it
/// calls `exec`.
#[derive(Debug)]
pub struct FileDirectory {
    path: PathBuf,
    directory: File,
    lock: Option<OwnedFd>,
}

impl FileDirectory {
    /// Opens and locks a directory; creates it, for its owner only, if there is none.
    ///
    /// # Errors
    /// [`DirectoryError`].
    pub fn open(path: &Path) -> Result<Self, DirectoryError> {
        let parents = path.parent().map_or(Ok(()), fs::create_dir_all);
        parents
            .and_then(|()| DirBuilder::new().recursive(true).mode(0o700).create(path))
            .map_err(failed("make the directory", path))?;
        let mut opened = Self::open_unlocked(path)?;
        opened.lock_itself()?;
        let lock = path.join(LOCK);
        let file = open_plain(
            &lock,
            OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .mode(0o600),
        )
        .map_err(failed("open the lock file", &lock))?;
        opened.lock = Some(take_lock(file, path)?);
        Ok(opened)
    }

    /// Opens a directory whose lock another process has held and passed on.
    ///
    /// # Errors
    /// [`DirectoryError`].
    pub fn open_with(path: &Path, lock: OwnedFd) -> Result<Self, DirectoryError> {
        let mut opened = Self::open_unlocked(path)?;
        let named = path.join(LOCK);
        let file = File::from(lock);
        let identity = |file: fs::Metadata| (file.dev(), file.ino());
        let handed = file.metadata().map(identity);
        let own = fs::metadata(&named).map(identity);
        let own = own.map_err(failed("look at the lock file", &named))?;
        if handed.map_err(failed("look at the lock of", path))? != own {
            let other = io::Error::new(io::ErrorKind::InvalidInput, "it is another file");
            return Err(failed("use what was handed over as", &named)(other));
        }
        // Does nothing if this open file holds the lock, as it should.
        opened.lock = Some(take_lock(file, path)?);
        opened.lock_itself()?;
        Ok(opened)
    }

    /// Locks the directory itself as long as it is open, unless other users could lock it as well.
    fn lock_itself(&self) -> Result<(), DirectoryError> {
        let found = self.directory.metadata();
        let mode = found.map_err(failed("look at", &self.path))?.mode();
        if mode & READERS != 0 {
            return Ok(());
        }
        self.directory.try_lock().map_err(|refused| match refused {
            TryLockError::WouldBlock => DirectoryError::Locked {
                path: self.path.clone(),
            },
            TryLockError::Error(source) => failed("lock", &self.path)(source),
        })
    }

    /// Opens a directory without its lock, to read what a living process writes.
    ///
    /// # Errors
    /// [`DirectoryError`].
    pub fn open_unlocked(path: &Path) -> Result<Self, DirectoryError> {
        if Caution::of_directory(path) == Some(Caution::Network) {
            let path = path.to_owned();
            return Err(DirectoryError::Network { path });
        }
        Ok(Self {
            path: path.to_owned(),
            directory: File::open(path).map_err(failed("open the directory", path))?,
            lock: None,
        })
    }

    /// The descriptor that holds the lock, for a process that takes over the directory.
    #[must_use]
    pub fn lock(&self) -> Option<BorrowedFd<'_>> {
        self.lock.as_ref().map(AsFd::as_fd)
    }

    /// The path of a file in the open directory, through its descriptor.
    fn at(&self, name: &str) -> PathBuf {
        let directory = self.directory.as_raw_fd();
        PathBuf::from(format!("/proc/self/fd/{directory}/{name}"))
    }

    /// The path at which it was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Locks the first byte of the lock file of `path`.
fn take_lock(file: File, path: &Path) -> Result<OwnedFd, DirectoryError> {
    match lock_bytes(file.as_raw_fd(), libc::F_OFD_SETLK, libc::F_WRLCK, 0, 1) {
        Ok(_) => Ok(file.into()),
        Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
            let path = path.to_owned();
            Err(DirectoryError::Locked { path })
        }
        Err(source) => Err(failed("lock", path)(source)),
    }
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DirectoryError {
    let path = path.to_owned();
    move |source| DirectoryError::Os { what, path, source }
}

fn os(what: &'static str) -> impl FnOnce(io::Error) -> MediumError {
    move |source| MediumError::Os { what, source }
}

impl Directory for FileDirectory {
    fn names(&self) -> Result<Vec<String>, MediumError> {
        let entries = fs::read_dir(self.at("")).map_err(os("list the directory"))?;
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(os("list the directory"))?;
            // Files whose names have other encodings do not belong to this directory's users.
            names.extend(entry.file_name().into_string());
        }
        Ok(names)
    }

    fn create(&self, name: &str) -> Result<Box<dyn Storage>, MediumError> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        let file = options.open(self.at(name));
        Ok(Box::new(FileStorage::of(
            file.map_err(full_or("make a file", 0))?,
        )))
    }

    fn open(&self, name: &str) -> Result<Box<dyn Storage>, MediumError> {
        let path = self.at(name);
        // Nothing is written without the lock.
        let file = open_plain(
            &path,
            OpenOptions::new().read(true).write(self.lock.is_some()),
        );
        Ok(Box::new(FileStorage::of(file.map_err(os("open a file"))?)))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), MediumError> {
        fs::rename(self.at(from), self.at(to)).map_err(full_or("rename a file", 0))
    }

    fn remove(&self, name: &str) -> Result<(), MediumError> {
        fs::remove_file(self.at(name)).map_err(os("remove a file"))
    }

    fn sync(&self) -> Result<(), MediumError> {
        self.directory.sync_all().map_err(MediumError::Sync)
    }
}

#[derive(Debug)]
struct FileStorage {
    file: File,
    syncs: Syncs,
}

impl FileStorage {
    fn of(file: File) -> Self {
        let syncs = Syncs::default();
        Self { file, syncs }
    }
}

impl Storage for FileStorage {
    fn len(&self) -> Result<u64, MediumError> {
        let found = self.file.metadata().map_err(os("look at the file"))?;
        Ok(found.len())
    }

    fn read(&self, at: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        match self.file.read_exact_at(buffer, at) {
            Ok(()) => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Err(MediumError::Bounds {
                at,
                bytes: buffer.len() as u64,
                len: self.len()?,
            }),
            Err(source) => Err(os("read the file")(source)),
        }
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), MediumError> {
        let wanted = at + bytes.len() as u64;
        self.file
            .write_all_at(bytes, at)
            .map_err(full_or("write to the file", wanted))
    }

    fn sync(&self) -> Result<(), MediumError> {
        sync(&self.syncs, &self.file)?;
        match self.is_named()? {
            true => Ok(()),
            false => Err(MediumError::Removed),
        }
    }

    fn is_named(&self) -> Result<bool, MediumError> {
        let found = self.file.metadata().map_err(os("look at the file"))?;
        Ok(found.nlink() > 0)
    }

    fn drop_cached(&self) -> Result<(), MediumError> {
        FileMedium::drop_cached_pages(&self.file)
    }
}
