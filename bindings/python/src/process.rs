//! The stores and segments that this process has open, and a check for forked children.

use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

use mneme_sys::fork::{self, PerProcess};
use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;

use crate::errors::{Failure, Reason, failure};

/// The process that opened something, to distinguish it from forked children.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Origin(u32);

impl Origin {
    pub(crate) fn here() -> Self {
        fork::watch();
        Self(fork::generation())
    }

    /// Returns an error in a forked child. Called before anything is locked, since threads of the
    /// parent, which the child does not have, may hold the locks.
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

/// Something open that can be closed, shared by the calls that are using it.
pub(crate) struct UntilClosed<T> {
    pub(crate) origin: Origin,
    open: RwLock<Option<Arc<T>>>,
    /// The error text for use after closing.
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

    /// As [`close`](Self::close), but does nothing in a forked child.
    pub(crate) fn close_at_exit(&self) {
        if self.origin.check().is_ok() {
            drop(self.close());
        }
    }
}

impl<T> Drop for UntilClosed<T> {
    fn drop(&mut self) {
        // A forked child releases nothing of its parent's and takes no lock, since a thread of the
        // parent, which the child does not have, may hold it.
        if self.origin.check().is_err() {
            let open = self.open.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(open.take());
        }
    }
}

/// Something that must be closed before the interpreter ends.
pub(crate) trait Close: Send + Sync {
    fn close_at_exit(&self);
}

/// All that this process has open. A forked child has a new empty list.
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

/// Returns an error in every interpreter of the process but the first that imports the module.
/// Objects of one interpreter, such as exceptions, must not be used in another; also, another
/// interpreter would wait forever at its end. Since version 3.12 Python itself refuses this.
pub(crate) fn check_interpreter(_py: Python<'_>) -> PyResult<()> {
    const NONE: i64 = -1;
    static FIRST: AtomicI64 = AtomicI64::new(NONE);
    // SAFETY: the calling thread is attached to an interpreter.
    let this = unsafe { pyo3::ffi::PyInterpreterState_GetID(pyo3::ffi::PyInterpreterState_Get()) };
    // Relaxed: only the number itself matters.
    match FIRST.compare_exchange(NONE, this, Relaxed, Relaxed) {
        Err(first) if first != this => Err(PyImportError::new_err(
            "mneme works in the first interpreter of a process that imports it, and not in another \
             one: use threads, or processes that share a store",
        )),
        _ => Ok(()),
    }
}

/// Closes everything that is open, when the interpreter ends. Otherwise another process would
/// repair what this one left, and a store on a disk that no other process has open would count as
/// not closed cleanly.
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
