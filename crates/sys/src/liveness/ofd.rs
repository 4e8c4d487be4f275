//! Liveness by open-file-description locks: the kernel releases them when the last reference to the
//! description is gone, as happens when a process dies.
//!
//! Four traps, and how each is avoided:
//! 1. *A forked child, or a mapping, keeps the description and thus the lock.* Each opening has a
//!    description of its own, reopened through `/proc/self/fd`, which is never mapped, never
//!    duplicated and `O_CLOEXEC`. A `fork` handler closes it in the child, where every call then
//!    returns [`LivenessError::Forked`].
//! 2. *Closing releases it, but only when the last of several references is closed.* The descriptor
//!    belongs to this type alone; dropping it first unlocks and then closes.
//! 3. *Two threads that use one description both get the lock.* A table in the process records
//!    which indices this opening holds, and is checked before the kernel is asked. Two openings of
//!    one file have two descriptions, which the kernel makes exclude one another.
//! 4. *A write lock needs a writable descriptor.* Opening, and not the first claim, returns
//!    [`LivenessError::NotWritable`].
//!
//! The lock of index `i` is on byte `base + i` of the file. Locks do not affect the content and may
//! lie beyond the end of the file.

mod shared;

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use shared::{ChildrensByte, SharedByte};

use super::{Liveness, LivenessError, Taken};
use crate::{files, fork};

/// One process's liveness in a control file. Dropping it releases everything that it holds.
///
/// May be shared between threads; useless in a forked child, which must open for itself.
#[derive(Debug)]
pub struct OfdLiveness {
    fd: Arc<Descriptor>,
    base: u64,
    pid: libc::pid_t,
    generation: u32,
    /// The indices that this opening holds.
    held: Mutex<BTreeSet<u32>>,
}

/// The descriptor, where the `fork` handler finds it; `-1` once closed.
#[derive(Debug)]
struct Descriptor(AtomicI32);

impl OfdLiveness {
    /// Opens the control file at `path` for liveness locks at bytes `base..`.
    ///
    /// # Errors
    /// [`LivenessError::NotWritable`] if it may not be opened for writing, `Os` if it cannot be
    /// opened at all.
    pub fn open(path: &Path, base: u64) -> Result<Self, LivenessError> {
        Self::open_by(base, |options| {
            options.custom_flags(libc::O_CLOEXEC).open(path)
        })
    }

    /// As [`open`](Self::open), for paths at which others may have created something else: only a
    /// regular file is opened, no link is followed, and a pipe does not make this wait.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_plain(path: &Path, base: u64) -> Result<Self, LivenessError> {
        Self::open_by(base, |options| files::open_plain(path, options))
    }

    fn open_by(
        base: u64,
        open: impl FnOnce(&mut OpenOptions) -> io::Result<File>,
    ) -> Result<Self, LivenessError> {
        fork::watch();
        let mut registry = Registry::lock();
        let file =
            open(OpenOptions::new().read(true).write(true)).map_err(|source| {
                match source.raw_os_error() {
                    Some(libc::EACCES | libc::EPERM | libc::EROFS) => {
                        LivenessError::NotWritable(source)
                    }
                    _ => LivenessError::Os {
                        what: "open the file of",
                        source,
                    },
                }
            })?;
        let fd = registry.add(file);
        drop(registry);
        Ok(Self {
            fd,
            base,
            pid: pid(),
            generation: fork::generation(),
            held: Mutex::new(BTreeSet::new()),
        })
    }

    /// Reopens the file of a descriptor, for instance a memfd, through `/proc/self/fd`. The given
    /// descriptor and its description are not affected.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn reopen(fd: BorrowedFd<'_>, base: u64) -> Result<Self, LivenessError> {
        Self::open(
            Path::new(&format!("/proc/self/fd/{}", fd.as_raw_fd())),
            base,
        )
    }

    /// Fails in a child of the process that opened.
    fn check_process(&self) -> Result<(), LivenessError> {
        if self.generation != fork::generation() || self.pid != pid() {
            return Err(LivenessError::Forked);
        }
        Ok(())
    }

    /// A poisoned mutex is used as it is: each change is one step.
    fn held(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn control(
        &self,
        command: libc::c_int,
        kind: libc::c_int,
        index: u32,
    ) -> io::Result<libc::flock> {
        self.control_all(command, kind, index..=index)
    }

    /// Applies one command to all the indices.
    fn control_all(
        &self,
        command: libc::c_int,
        kind: libc::c_int,
        indices: RangeInclusive<u32>,
    ) -> io::Result<libc::flock> {
        // SYNC: pairs with the Release store in `Registry::add`.
        let fd = self.fd.0.load(Ordering::Acquire);
        let first = self.base + u64::from(*indices.start());
        let len = u64::from(*indices.end()) - u64::from(*indices.start()) + 1;
        lock_bytes(fd, command, kind, first, len)
    }

    /// Takes the index if it is free; returns whether it was.
    fn take(&self, index: u32) -> Result<bool, LivenessError> {
        self.check_process()?;
        let mut held = self.held();
        if held.contains(&index) {
            return Ok(false);
        }
        match self.control(libc::F_OFD_SETLK, libc::F_WRLCK, index) {
            Ok(_) => {
                held.insert(index);
                Ok(true)
            }
            Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
            Err(source) => Err(LivenessError::Os {
                what: "take",
                source,
            }),
        }
    }
}

/// Applies a command to the locks on some bytes.
pub(crate) fn lock_bytes(
    fd: RawFd,
    command: libc::c_int,
    kind: libc::c_int,
    first: u64,
    len: u64,
) -> io::Result<libc::flock> {
    let offset =
        |bytes| i64::try_from(bytes).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
    // SAFETY: `flock` consists of integers, for which zeros are valid.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = offset(first)?;
    lock.l_len = offset(len)?;
    loop {
        // SAFETY: `lock` is a valid `flock`; `l_pid` is zero, as these commands demand.
        if unsafe { libc::fcntl(fd, command, &mut lock) } == 0 {
            return Ok(lock);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

fn pid() -> libc::pid_t {
    // SAFETY: no arguments, no preconditions, cannot fail.
    unsafe { libc::getpid() }
}

impl Liveness for OfdLiveness {
    fn claim(&self, index: u32) -> Result<(), LivenessError> {
        if self.take(index)? {
            Ok(())
        } else {
            Err(LivenessError::Held { index })
        }
    }

    fn is_alive(&self, index: u32) -> bool {
        if self.check_process().is_err() || self.held().contains(&index) {
            return true;
        }
        self.control(libc::F_OFD_GETLK, libc::F_WRLCK, index)
            .map_or(true, |lock| lock.l_type != libc::F_UNLCK as libc::c_short)
    }

    fn any_alive(&self, indices: RangeInclusive<u32>) -> bool {
        // A length of 0 would mean all bytes up to the end of the file.
        if indices.is_empty() {
            return false;
        }
        if self.check_process().is_err() || self.held().range(indices.clone()).next().is_some() {
            return true;
        }
        self.control_all(libc::F_OFD_GETLK, libc::F_WRLCK, indices)
            .map_or(true, |lock| lock.l_type != libc::F_UNLCK as libc::c_short)
    }

    fn try_take(&self, index: u32) -> Result<Option<Taken<'_>>, LivenessError> {
        Ok(self.take(index)?.then(|| Taken::new(self, index)))
    }

    fn release(&self, index: u32) {
        if self.check_process().is_err() {
            return;
        }
        let mut held = self.held();
        if held.remove(&index) {
            // Unlocking a byte of an open file cannot fail; if it did, the index would stay taken
            // until this process ends, which does no harm to data.
            let _ = self.control(libc::F_OFD_SETLK, libc::F_UNLCK, index);
        }
    }
}

impl Drop for OfdLiveness {
    fn drop(&mut self) {
        // In a forked child the handler has closed the descriptor, and its number may now belong to
        // another file.
        if self.check_process().is_err() {
            return;
        }
        // Closing alone is not enough: a child that is just being forked has the description too,
        // until its handler runs. Unlocking affects all of them.
        let held = std::mem::take(&mut *self.held());
        for index in held {
            let _ = self.control(libc::F_OFD_SETLK, libc::F_UNLCK, index);
        }
        Registry::lock().remove(&self.fd);
    }
}

/// All descriptors of this process's openings, under a lock that `fork` holds too: when a child is
/// forked, every open descriptor is listed.
struct Registry(());

struct Raw {
    mutex: std::cell::UnsafeCell<libc::pthread_mutex_t>,
    list: std::cell::UnsafeCell<Vec<Arc<Descriptor>>>,
}

// SAFETY: `list` is accessed only with `mutex` held.
unsafe impl Sync for Raw {}

// A pthread mutex and not `std`'s, because the handlers lock in one function and unlock in another.
static RAW: Raw = Raw {
    mutex: std::cell::UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
    list: std::cell::UnsafeCell::new(Vec::new()),
};

impl Registry {
    fn lock() -> Self {
        before_fork();
        Self(())
    }

    fn list(&mut self) -> &mut Vec<Arc<Descriptor>> {
        // SAFETY: `self` proves that the mutex is held, and lends the list to one user at a time.
        unsafe { &mut *RAW.list.get() }
    }

    fn add(&mut self, file: File) -> Arc<Descriptor> {
        use std::os::fd::IntoRawFd;
        let descriptor = Arc::new(Descriptor(AtomicI32::new(file.into_raw_fd())));
        self.list().push(Arc::clone(&descriptor));
        descriptor
    }

    fn remove(&mut self, descriptor: &Arc<Descriptor>) {
        self.list().retain(|other| !Arc::ptr_eq(other, descriptor));
        descriptor.close();
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        after_fork_in_parent();
    }
}

impl Descriptor {
    fn close(&self) {
        // SYNC: pairs with the Acquire load in `OfdLiveness::control`.
        let fd: RawFd = self.0.swap(-1, Ordering::AcqRel);
        if fd >= 0 {
            // SAFETY: this owned the descriptor, and gives it up with this call.
            unsafe { libc::close(fd) };
        }
    }
}

/// Runs before `fork`: nobody opens or closes meanwhile.
pub(crate) extern "C" fn before_fork() {
    // SAFETY: the mutex is static and initialised.
    unsafe { libc::pthread_mutex_lock(RAW.mutex.get()) };
}

/// Runs after `fork` in the parent.
pub(crate) extern "C" fn after_fork_in_parent() {
    // SAFETY: this thread holds the mutex.
    unsafe { libc::pthread_mutex_unlock(RAW.mutex.get()) };
}

/// Runs after `fork` in the child: closes the parent's descriptors. Allocates nothing.
#[cfg(not(miri))]
pub(crate) fn after_fork_in_child() {
    // SAFETY: the forking thread took the mutex in `before_fork`, and it is the only one here.
    let list = unsafe { &*RAW.list.get() };
    for descriptor in list {
        descriptor.close();
    }
    // The entries stay in the list, because freeing them here could need a lock of the allocator.
    // They hold `-1`.
    after_fork_in_parent();
}
