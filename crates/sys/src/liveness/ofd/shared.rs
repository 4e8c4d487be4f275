//! A byte of a file that any number of processes hold together, including those that may only read
//! the file.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Descriptor, LivenessError, Registry, fork, lock_bytes, pid};
use crate::files;

/// A shared lock on one byte of a file, until it is dropped or the process ends. It has a
/// description of its own, which a forked child closes: the child does not hold the byte.
#[derive(Debug)]
pub struct SharedByte {
    fd: Arc<Descriptor>,
    byte: u64,
    pid: libc::pid_t,
    generation: u32,
}

impl SharedByte {
    /// Locks a byte of the file of a descriptor, which is not affected. The byte may lie beyond the
    /// file's end.
    ///
    /// # Errors
    /// [`LivenessError::Held`] if another opening holds the byte exclusively; errors of the kernel.
    pub fn take(file: impl AsFd, byte: u64) -> Result<Self, LivenessError> {
        fork::watch();
        let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
        let mut registry = Registry::lock();
        let opened = File::open(path).map_err(failed("open the file of"))?;
        let taken = Self {
            fd: registry.add(opened),
            byte,
            pid: pid(),
            generation: fork::generation(),
        };
        // Dropping it locks the list, too.
        drop(registry);
        take_shared(taken.fd(), byte).map(|()| taken)
    }

    /// Whether anybody else holds one of these bytes, in this process or another.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn others_hold(&self, bytes: RangeInclusive<u64>) -> Result<bool, LivenessError> {
        is_held(self.fd(), &bytes)
    }

    /// Whether anybody holds one of these bytes of a file.
    ///
    /// # Errors
    /// Errors of the kernel; the path is not a file.
    pub fn is_any_held(path: &Path, bytes: RangeInclusive<u64>) -> Result<bool, LivenessError> {
        let file = files::open_linked(path, OpenOptions::new().read(true))
            .map_err(failed("open the file of"))?;
        is_held(file.as_raw_fd(), &bytes)
    }

    fn fd(&self) -> RawFd {
        // SYNC: pairs with the Release store of the thread that closes it.
        self.fd.0.load(Ordering::Acquire)
    }
}

impl Drop for SharedByte {
    fn drop(&mut self) {
        // As in `OfdLiveness`: in a forked child it is closed; here, unlocking also affects a child
        // that is just being forked.
        if self.generation == fork::generation() && self.pid == pid() {
            let _ = lock_bytes(self.fd(), libc::F_OFD_SETLK, libc::F_UNLCK, self.byte, 1);
            Registry::lock().remove(&self.fd);
        }
    }
}

/// A byte of a file that forked children of this process hold, but not this process.
///
/// Around a fork, [`before_fork`](Self::before_fork) locks it through an open file that the child
/// inherits, and [`in_parent`](Self::in_parent) closes that file. The kernel releases the byte when
/// the child and its own children have ended or executed other programs.
#[derive(Debug)]
pub struct ChildrensByte {
    path: PathBuf,
    byte: u64,
    /// The open file for the next child.
    file: Mutex<File>,
}

impl ChildrensByte {
    /// Prepares a byte of the file at `path`, which must not be a link.
    ///
    /// # Errors
    /// Errors of the kernel; the path is not a regular file.
    pub fn of(path: PathBuf, byte: u64) -> Result<Self, LivenessError> {
        let file = Mutex::new(open(&path)?);
        Ok(Self { path, byte, file })
    }

    /// Locks the byte for the child that the calling thread is about to fork.
    ///
    /// # Errors
    /// Errors of the kernel: it has no memory for a lock, and so none for a child.
    pub fn before_fork(&self) -> Result<(), LivenessError> {
        take_shared(self.file().as_raw_fd(), self.byte)
    }

    /// Leaves the lock to the child.
    ///
    /// # Errors
    /// The file cannot be opened for the next child. This process then holds the byte together with
    /// its children, until this is called again or `self` is dropped.
    pub fn in_parent(&self) -> Result<(), LivenessError> {
        let fresh = open(&self.path)?;
        *self.file() = fresh;
        Ok(())
    }

    fn file(&self) -> MutexGuard<'_, File> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn open(path: &Path) -> Result<File, LivenessError> {
    files::open_plain(path, OpenOptions::new().read(true)).map_err(failed("open the file of"))
}

fn take_shared(fd: RawFd, byte: u64) -> Result<(), LivenessError> {
    match lock_bytes(fd, libc::F_OFD_SETLK, libc::F_RDLCK, byte, 1) {
        Ok(_) => Ok(()),
        Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
            Err(LivenessError::Held { index: 0 })
        }
        Err(source) => Err(failed("take")(source)),
    }
}

fn is_held(fd: RawFd, bytes: &RangeInclusive<u64>) -> Result<bool, LivenessError> {
    // A length of 0 would mean all bytes up to the end of the file.
    if bytes.is_empty() {
        return Ok(false);
    }
    let len = bytes.end() - bytes.start() + 1;
    lock_bytes(fd, libc::F_OFD_GETLK, libc::F_WRLCK, *bytes.start(), len)
        .map(|found| found.l_type != libc::F_UNLCK as libc::c_short)
        .map_err(failed("ask for"))
}

fn failed(what: &'static str) -> impl FnOnce(io::Error) -> LivenessError {
    move |source| LivenessError::Os { what, source }
}
