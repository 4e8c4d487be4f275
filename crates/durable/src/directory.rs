//! The directory of a durable store: opening it, locking it, and finding its holder.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mneme_journal::JournalError;
use mneme_sys::Clock;
use mneme_sys::medium::{
    Directory, DirectoryError, FileDirectory, MediumError, RecordingDirectory, Storage,
};

use crate::DurableError;
use crate::gate::lock;
use crate::options::{DurableOptions, StorePlace};

/// The lock file; it contains the id of the process that holds it.
const LOCK: &str = "lock";

/// The time between attempts to lock a directory that is in use, and the number of attempts.
const WAIT_NS: u64 = 1_000_000_000;
const TRIES: u32 = 100;

/// A directory that this process may write.
#[derive(Clone)]
pub(crate) struct Opened {
    pub directory: Arc<dyn Directory>,
    pub medium: DirectoryMedium,
}

/// The kind of directory.
#[derive(Clone)]
pub(crate) enum DirectoryMedium {
    Files(Arc<FileDirectory>),
    /// In memory, for tests.
    Recorded(RecordingDirectory),
}

impl Opened {
    /// Opens and locks the directory of these options.
    pub fn of(options: &DurableOptions) -> Result<Self, DurableError> {
        let path = match &options.place {
            StorePlace::Recorded(directory) => {
                return Ok(Self {
                    directory: Arc::new(directory.clone()),
                    medium: DirectoryMedium::Recorded(directory.clone()),
                });
            }
            StorePlace::Path(path) => path,
        };
        let handed = lock(&options.lock).take();
        let files = match open_within(path, handed, &*options.clock) {
            Ok(files) => Arc::new(files),
            Err(DirectoryError::Locked { path }) => {
                let pid = holder(&path);
                return Err(DurableError::InUse { path, pid });
            }
            Err(error) => return Err(DurableError::Directory(error)),
        };
        // For the error message of a second process. If this fails, that message names no process.
        let _ = files
            .open(LOCK)
            .and_then(|file| file.write(0, &name(std::process::id())));
        Ok(Self {
            directory: Arc::clone(&files) as Arc<dyn Directory>,
            medium: DirectoryMedium::Files(files),
        })
    }

    /// The path, for messages.
    pub fn path(&self) -> &Path {
        match &self.medium {
            DirectoryMedium::Files(files) => files.path(),
            DirectoryMedium::Recorded(_) => Path::new("the directory"),
        }
    }

    pub fn lock(&self) -> Option<BorrowedFd<'_>> {
        match &self.medium {
            DirectoryMedium::Files(files) => files.lock(),
            DirectoryMedium::Recorded(_) => None,
        }
    }
}

/// Opens and locks a directory, using the lock that was handed over if it belongs to this
/// directory. A process that has just ended or handed over, or a child that it has just started,
/// may still hold the lock for a moment.
fn open_within(
    path: &Path,
    handed: Option<OwnedFd>,
    clock: &dyn Clock,
) -> Result<FileDirectory, DirectoryError> {
    let open = || {
        let lock = handed.as_ref().and_then(|lock| lock.try_clone().ok());
        match lock.map(|lock| FileDirectory::open_with(path, lock)) {
            None | Some(Err(DirectoryError::Os { .. })) => FileDirectory::open(path),
            Some(opened) => opened,
        }
    };
    let begun = clock.now_ns();
    for _ in 0..TRIES {
        match open() {
            Err(DirectoryError::Locked { .. }) if clock.now_ns() - begun < WAIT_NS => {
                std::thread::sleep(Duration::from_millis(10));
            }
            opened => return opened,
        }
    }
    open()
}

/// The error of a call on a file of the directory.
pub(crate) fn failed<'a>(
    what: &'static str,
    file: &'a str,
) -> impl FnOnce(MediumError) -> DurableError + 'a {
    move |source| {
        let file = file.to_owned();
        JournalError::Medium { what, file, source }.into()
    }
}

/// Formats a process id as ten digits.
fn name(pid: u32) -> Vec<u8> {
    format!("{pid:010}").into_bytes()
}

/// The process that the lock file names; 0 if it names none.
fn holder(path: &Path) -> u32 {
    let mut digits = [0; 10];
    let read = |file: Box<dyn Storage>| -> Result<(), MediumError> { file.read(0, &mut digits) };
    let found = FileDirectory::open_unlocked(path)
        .ok()
        .and_then(|directory| directory.open(LOCK).and_then(read).ok())
        .and_then(|()| std::str::from_utf8(&digits).ok()?.parse().ok());
    found.unwrap_or(0)
}

impl DurableOptions {
    /// The process that has the directory open for writing; 0 if it is unknown, `None` if there is
    /// none. Waits for a process that is about to end.
    #[must_use]
    pub fn holder(&self) -> Option<u32> {
        match &self.place {
            StorePlace::Path(path) if path.is_dir() => {
                match open_within(path, None, &*self.clock) {
                    Err(DirectoryError::Locked { .. }) => Some(holder(path)),
                    _ => None,
                }
            }
            _ => None,
        }
    }
}
