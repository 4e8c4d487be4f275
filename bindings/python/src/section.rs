//! `Section`: a period in which a thread holds a segment's lock.
//!
//! **If an exception leaves a section after something was changed, the segment is poisoned**, as
//! after a panic in Rust, so that nobody uses a half-finished change.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mneme_sys::Access;
use pyo3::prelude::*;

use crate::current;
use crate::directory::Array;
use crate::errors::{Failure, Reason, failure};
use crate::opened::{Described, Handle, Lease, Open, as_array, missing, put, remove};

/// A period in which a thread holds a segment's lock; for use in a `with` block.
#[pyclass(module = "mneme", frozen)]
pub(crate) struct Section {
    /// The segment's handle; while the thread is inside, it also keeps the segment open.
    handle: Arc<Handle>,
    access: Access,
    /// The number of the section while the thread is inside.
    id: Mutex<Option<u64>>,
    /// Whether something was handed out for writing.
    touched: AtomicBool,
}

impl Section {
    pub(crate) fn new(handle: &Arc<Handle>, access: Access) -> Self {
        Self {
            handle: Arc::clone(handle),
            access,
            id: Mutex::new(None),
            touched: AtomicBool::new(false),
        }
    }

    fn entered(&self) -> MutexGuard<'_, Option<u64>> {
        self.id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Assigns the section `id` to this object, unless the object already has a section of another
    /// thread.
    fn take(&self, id: u64) -> bool {
        let mut entered = self.entered();
        let free = entered.is_none();
        entered.get_or_insert(id);
        free
    }

    fn id(&self) -> Result<u64, Failure> {
        let id = *self.entered();
        id.ok_or_else(|| failure(Reason::Nested, "a section is used in a `with` block"))
    }

    fn writing(&self) -> Result<(u64, Arc<Open>), Failure> {
        if self.access == Access::ReadOnly {
            let text = "this section is for reading: use write()";
            return Err(failure(Reason::ReadOnly, text));
        }
        let id = self.id()?;
        Ok((id, current::open_of(id)?))
    }

    fn put(&self, py: Python<'_>, name: &str, what: &Described<'_>, replace: bool) -> PyResult<()> {
        // Checked again here, because the program has run meanwhile and may have left the section.
        let (id, open) = self.writing()?;
        Ok(put(py, &open, id, name, what, replace).map(|done| self.touched(done))?)
    }

    /// Notes a completed change: an exception would now leave the segment partly changed.
    fn touched<T>(&self, done: T) -> T {
        self.touched.store(true, Relaxed);
        done
    }

    fn found(&self, name: &str) -> Result<(Array, Lease), Failure> {
        let id = self.id()?;
        let open = current::open_of(id)?;
        let found = current::within(id, |arrays, views| {
            let writing = (self.access == Access::ReadWrite).then(|| Arc::clone(views));
            let found = arrays.find(name)?;
            Ok(found.map(|found| (found, Lease::new(&open, name, writing))))
        })?;
        let found = found.ok_or_else(|| missing(&self.handle.name, name))?;
        Ok(match self.access {
            Access::ReadOnly => found,
            Access::ReadWrite => self.touched(found),
        })
    }
}

fn entered() -> Failure {
    failure(Reason::Nested, "the section was entered already")
}

impl Drop for Section {
    fn drop(&mut self) {
        // Dropped without `__exit__`: the change may be incomplete. If this is not the section's
        // thread, nothing can be done here, and the section ends with its own thread.
        if let Ok(id) = self.id() {
            let _ = current::leave(id, !self.touched.load(Relaxed));
        }
    }
}

#[pymethods]
impl Section {
    fn __enter__(this: PyRef<'_, Self>) -> PyResult<PyRef<'_, Self>> {
        let py = this.py();
        {
            let section = &*this;
            let (open, access) = (section.handle.open()?, section.access);
            if section.id().is_ok() {
                return Err(entered().into());
            }
            let id = py.detach(|| current::enter(&open, access))?;
            // Another thread may have entered through this object while this one was waiting for
            // the lock.
            if !section.take(id) {
                current::leave(id, true)?;
                return Err(entered().into());
            }
        }
        Ok(this)
    }

    /// Leaves the section. If an exception is passed and something was handed out for writing, the
    /// segment is poisoned.
    fn __exit__(
        &self,
        kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let id = self.id()?;
        // Another thread gets an error here, and changes nothing.
        current::open_of(id)?;
        let failed = !kind.is_none();
        let whole = !(self.touched.swap(false, Relaxed) && failed);
        // Cleared before the lock is released, since the next owner of the lock may enter through
        // this object.
        *self.entered() = None;
        let names = current::leave(id, whole)?;
        if names.is_empty() || failed {
            return Ok(());
        }
        let text = format!(
            "the section has ended, and arrays for writing are still used, of {}: del them in the \
             `with` block, or use w.array(name)[...] = values",
            names.join(", ")
        );
        Err(failure(Reason::InUse, text).into())
    }

    /// A numpy array on the segment's own bytes. In a section for writing it is writable, and must
    /// be dropped before the section ends.
    fn array<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let (found, lease) = self.found(name)?;
        as_array(&lease.view(py, &found)?, &found)
    }

    /// A memoryview of an array's bytes; does not need numpy.
    fn view<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let (found, lease) = self.found(name)?;
        lease.view(py, &found)
    }

    /// As `Segment.put_array`.
    #[pyo3(signature = (name, array, *, replace=false))]
    fn put_array(&self, name: &str, array: &Bound<'_, PyAny>, replace: bool) -> PyResult<()> {
        self.writing()?;
        self.put(array.py(), name, &Described::array(array)?, replace)
    }

    /// As `Segment.put_bytes`.
    #[pyo3(signature = (name, data, *, replace=false))]
    fn put_bytes(&self, name: &str, data: &Bound<'_, PyAny>, replace: bool) -> PyResult<()> {
        self.writing()?;
        self.put(data.py(), name, &Described::bytes(data)?, replace)
    }

    /// As `Segment.remove_array`.
    fn remove_array(&self, name: &str) -> PyResult<()> {
        let (id, open) = self.writing()?;
        Ok(remove(&open, id, name).map(|done| self.touched(done))?)
    }

    fn __contains__(&self, name: &str) -> PyResult<bool> {
        let found = current::within(self.id()?, |arrays, _| arrays.find(name))?;
        Ok(found.is_some())
    }
}
