//! What the process has open, and whether it still is the process that opened it.

use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

use mneme_sys::fork::{self, PerProcess};
use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;

use crate::errors::{Failure, Reason, failure};

/// The process that opened something, as opposed to its forked children.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Origin(u32);

impl Origin {
    pub(crate) fn here() -> Self {
        fork::watch();
        Self(fork::generation())
    }

    /// Refuses a forked child, before anything is locked: locks may be held by threads of the
    /// parent, which the child does not have.
    #[inline]
    pub(crate) fn check(self) -> Result<(), Failure> {
        if self.0 == fork::generation() {
            return Ok(());
        }
        let text = "this process was forked from the one that opened it: open it anew here, or \
                    start processes with multiprocessing's `spawn` or `forkserver`";
        Err(failure(Reason::Forked, text))
    }
}

/// Something that is open until it is closed, shared by those that use it at that moment.
pub(crate) struct UntilClosed<T> {
    pub(crate) origin: Origin,
    open: RwLock<Option<Arc<T>>>,
    /// What is said once it is closed.
    closed: &'static str,
}

impl<T> UntilClosed<T> {
    pub(crate) fn new(open: T, closed: &'static str) -> Self {
        Self {
            origin: Origin::here(),
            open: RwLock::new(Some(Arc::new(open))),
            closed,
        }
    }

    #[inline]
    pub(crate) fn get(&self) -> Result<Arc<T>, Failure> {
        self.origin.check()?;
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let open = open.as_ref().map(Arc::clone);
        open.ok_or_else(|| failure(Reason::Closed, self.closed))
    }

    pub(crate) fn close(&self) -> Option<Arc<T>> {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        open.take()
    }

    /// As [`close`](Self::close), but not in a forked child.
    pub(crate) fn close_at_exit(&self) {
        if self.origin.check().is_ok() {
            drop(self.close());
        }
    }
}

impl<T> Drop for UntilClosed<T> {
    fn drop(&mut self) {
        // A forked child gives nothing of its parent's back, and takes no lock: a thread of the
        // parent may have held it, which the child does not have.
        if self.origin.check().is_err() {
            let open = self.open.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(open.take());
        }
    }
}

/// Something that is to be closed before the interpreter ends.
pub(crate) trait Close: Send + Sync {
    fn close_at_exit(&self);
}

/// What this process has open: a forked child begins with an empty list of its own.
static OPEN: PerProcess<Mutex<Vec<Weak<dyn Close>>>> = PerProcess::new();

fn open() -> MutexGuard<'static, Vec<Weak<dyn Close>>> {
    let open = OPEN.get(|_| Mutex::default());
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn note_open<T: Close + 'static>(opened: &Arc<T>) {
    let mut open = open();
    open.retain(|known| known.strong_count() > 0);
    let weak: Weak<T> = Arc::downgrade(opened);
    open.push(weak);
}

/// Refuses every interpreter of the process but the first that imports the module. Objects of one
/// interpreter, such as exceptions, must not be used in another. At its end a later one would also
/// wait for ever for its turn. Python refuses by itself from 3.12 on.
pub(crate) fn check_interpreter(_py: Python<'_>) -> PyResult<()> {
    const NONE: i64 = -1;
    static FIRST: AtomicI64 = AtomicI64::new(NONE);
    // SAFETY: the calling thread is attached to an interpreter.
    let this = unsafe { pyo3::ffi::PyInterpreterState_GetID(pyo3::ffi::PyInterpreterState_Get()) };
    // Relaxed: a number.
    match FIRST.compare_exchange(NONE, this, Relaxed, Relaxed) {
        Err(first) if first != this => Err(PyImportError::new_err(
            "mneme works in the first interpreter of a process that imports it, and not in another \
             one: use threads, or processes that share a store",
        )),
        _ => Ok(()),
    }
}

/// Closes what is open. Run as the interpreter ends: what is left then by processes that end is
/// repaired by others, but a store on a disk that nobody else has open would count as not clean.
#[pyfunction]
#[pyo3(name = "_close_all")]
pub(crate) fn close_all(py: Python<'_>) {
    py.detach(|| {
        let all = std::mem::take(&mut *open());
        for one in all.iter().filter_map(Weak::upgrade) {
            one.close_at_exit();
        }
    });
}
