//! The lock that keeps a file to one opening.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;

use crate::StoreError;
use crate::error::os;

/// An open file that is locked until this is dropped or the process ends.
///
/// The drop unlocks the file rather than closing it. A child process that another thread is just
/// starting has a copy of every descriptor until it executes its program; closing ours would leave
/// the file locked until then, and whoever opened the store next would be refused.
#[derive(Debug)]
pub(crate) struct FileLock {
    pub(crate) file: File,
    pid: u32,
}

impl FileLock {
    /// Opens and locks a file.
    pub(crate) fn take(path: &Path) -> Result<Self, StoreError> {
        let opened = OpenOptions::new().read(true).write(true).open(path);
        let file = opened.map_err(os("open the store's file"))?;
        match file.try_lock() {
            Ok(()) => Ok(Self {
                file,
                pid: std::process::id(),
            }),
            Err(TryLockError::WouldBlock) => Err(StoreError::Locked {
                path: path.to_owned(),
            }),
            Err(TryLockError::Error(error)) => Err(os("lock the store's file")(error)),
        }
    }

    /// Another descriptor of the file.
    pub(crate) fn file(&self) -> Result<File, StoreError> {
        let duplicate = self.file.try_clone();
        duplicate.map_err(os("duplicate the file's descriptor"))
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // In a forked child the lock is its parent's.
        if self.pid == std::process::id() {
            // Unlocking an open file cannot fail; if it did, closing it would still unlock it.
            let _ = self.file.unlock();
        }
    }
}
