//! `Segment`: named arrays in memory that outlives the processes using it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mneme_space::{Attachment, Segment as Named};
use mneme_sys::Access;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

use crate::arguments::{self, registry, size};
use crate::current;
use crate::directory::{Array, Directory};
use crate::errors::{Failure, Reason, failure, invalid};
use crate::opened::{
    Described, Handle, Lease, Open, as_array, check_writable, in_use, missing, put, remove,
};
use crate::section::Section;

/// The minimum size of a segment.
const LEAST: usize = 2 << 20;

/// A named memory segment that holds named arrays and belongs to no process.
///
/// `Segment.create(name, size)` makes one, `Segment.open(name)` opens one.
#[pyclass(module = "mneme", frozen, weakref)]
pub(crate) struct Segment {
    handle: Arc<Handle>,
}

impl Segment {
    fn new(segment: Named, writable: Option<bool>, timeout: Duration) -> Result<Self, Failure> {
        let handle = Handle::new(segment, writable, timeout)?;
        Ok(Self { handle })
    }

    /// Runs `f` with the arrays, for reading.
    fn read<R: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&Arc<Open>, &Directory<'_>) -> Result<R, Failure> + Send,
    ) -> Result<R, Failure> {
        let open = self.handle.open()?;
        py.detach(|| {
            open.within(Access::ReadOnly, |id| {
                current::within(id, |arrays, _| f(&open, arrays))
            })
        })
    }

    fn found(&self, py: Python<'_>, name: &str) -> Result<(Array, Lease), Failure> {
        let found = self.read(py, |open, arrays| {
            let found = arrays.find(name)?;
            Ok(found.map(|found| (found, Lease::new(open, name, None))))
        })?;
        found.ok_or_else(|| missing(&self.handle.name, name))
    }

    /// Runs `f`, which must not call Python, in a section for writing, with the GIL released.
    fn change<R>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&Open, u64) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let open = self.handle.open()?;
        check_writable(&open)?;
        if let Some(id) = current::current(&open) {
            return f(&open, id);
        }
        let id = py.detach(|| current::enter(&open, Access::ReadWrite))?;
        let done = f(&open, id);
        current::leave(id, true)?;
        done
    }
}

#[pymethods]
impl Segment {
    /// Make a segment that may grow to `size` bytes, and open it for writing.
    ///
    /// Memory is allocated as arrays are added. `mode`: the files' permissions. `backing`:
    /// "memory", "huge", or "file" with `directory`, which survives a reboot of the machine. Raises
    /// `Exists`.
    #[classmethod]
    #[pyo3(
        signature = (name, size="1GiB".into(), *, mode=0o600, backing=None, directory=None,
                     registry=None, timeout=1.0),
        text_signature = "($cls, name, size='1GiB', *, mode=0o600, backing=None, directory=None, \
                          registry=None, timeout=1.0)"
    )]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn create(
        _class: &Bound<'_, PyType>,
        py: Python<'_>,
        name: &str,
        size: Size,
        mode: u32,
        backing: Option<&str>,
        directory: Option<PathBuf>,
        registry: Option<PathBuf>,
        timeout: f64,
    ) -> PyResult<Self> {
        let size = usize::try_from(size.0).unwrap_or(usize::MAX);
        if size < LEAST {
            let text = format!("a segment of {size} bytes is too small: 2 MiB at least");
            return Err(invalid(text).into());
        }
        // All arguments are checked before anything is made.
        let (mode, timeout) = (arguments::mode(mode)?, arguments::timeout(timeout)?);
        let backing = arguments::backing(backing, directory)?;
        Ok(py.detach(|| {
            let registry = self::registry(registry)?;
            let new = registry.segment(name).mode(mode).backing(backing);
            let segment = new.size(LEAST).max_size(size).create()?;
            Self::new(segment, Some(true), timeout)
        })?)
    }

    /// Open the segment with that name: for writing if its permissions allow this process to,
    /// unless `writable` says which. `timeout`: seconds that a section waits for others to leave.
    #[classmethod]
    #[pyo3(signature = (name, *, writable=None, registry=None, timeout=1.0))]
    fn open(
        _class: &Bound<'_, PyType>,
        py: Python<'_>,
        name: &str,
        writable: Option<bool>,
        registry: Option<PathBuf>,
        timeout: f64,
    ) -> PyResult<Self> {
        let timeout = arguments::timeout(timeout)?;
        Ok(py.detach(|| {
            let segment = Named::open(&self::registry(registry)?, name)?;
            Self::new(segment, writable, timeout)
        })?)
    }

    /// The names of all segments, including those of stores.
    #[staticmethod]
    #[pyo3(signature = (*, registry=None))]
    fn list(registry: Option<PathBuf>) -> PyResult<Vec<String>> {
        let names = self::registry(registry)?
            .segments()
            .map_err(Failure::from)?;
        Ok(names.iter().map(ToString::to_string).collect())
    }

    /// Remove a segment and its contents. Raises `InUse` while a process has it open.
    #[staticmethod]
    #[pyo3(signature = (name, *, registry=None))]
    fn remove(py: Python<'_>, name: &str, registry: Option<PathBuf>) -> PyResult<()> {
        Ok(py.detach(|| Ok::<_, Failure>(self::registry(registry)?.remove_segment(name)?))?)
    }

    /// A read-only numpy array on the segment's own bytes. Nothing is copied, and changes by other
    /// processes are visible. To prevent changes meanwhile, use `read()`.
    fn array<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let (found, lease) = self.found(py, name)?;
        as_array(&lease.view(py, &found)?, &found)
    }

    /// A read-only memoryview of an array's bytes; does not need numpy.
    fn view<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let (found, lease) = self.found(py, name)?;
        lease.view(py, &found)
    }

    /// Copy an array into the segment under a name. `replace` allows an existing name: an array of
    /// the same type and shape is overwritten in place, another is replaced only while nobody else
    /// has views.
    #[pyo3(signature = (name, array, *, replace=false))]
    fn put_array(
        &self,
        py: Python<'_>,
        name: &str,
        array: &Bound<'_, PyAny>,
        replace: bool,
    ) -> PyResult<()> {
        let array = Described::array(array)?;
        Ok(self.change(py, |open, id| put(py, open, id, name, &array, replace))?)
    }

    /// Copy a bytes-like object into the segment, as an array of bytes; does not need numpy.
    #[pyo3(signature = (name, data, *, replace=false))]
    fn put_bytes(
        &self,
        py: Python<'_>,
        name: &str,
        data: &Bound<'_, PyAny>,
        replace: bool,
    ) -> PyResult<()> {
        let data = Described::bytes(data)?;
        Ok(self.change(py, |open, id| put(py, open, id, name, &data, replace))?)
    }

    /// Remove an array, whose memory will be reused. Raises `InUse` while another process has the
    /// segment open or views of the array are used here.
    fn remove_array(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        Ok(self.change(py, |open, id| remove(open, id, name))?)
    }

    /// The arrays: a dictionary from names to pairs of descr (as in `.npy` files) and shape.
    fn arrays<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all = self.read(py, |_, arrays| arrays.all())?;
        let shown = PyDict::new(py);
        for array in all {
            let shape = PyTuple::new(py, array.shape)?;
            shown.set_item(array.name, (array.descr, shape))?;
        }
        Ok(shown)
    }

    fn __contains__(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        Ok(self.read(py, |_, arrays| arrays.find(name))?.is_some())
    }

    /// A section for writing: `with seg.write() as w:`. No other thread or process is in a section
    /// of the segment meanwhile.
    fn write(&self) -> PyResult<Section> {
        let open = self.handle.open()?;
        check_writable(&open)?;
        Ok(Section::new(&self.handle, Access::ReadWrite))
    }

    /// A section for reading: `with seg.read() as r:`. Nobody changes the segment meanwhile.
    #[pyo3(name = "read")]
    fn read_section(&self) -> PyResult<Section> {
        self.handle.open()?;
        Ok(Section::new(&self.handle, Access::ReadOnly))
    }

    /// Whether a process died, or an exception was raised, in the middle of a change.
    #[getter]
    fn poisoned(&self) -> PyResult<bool> {
        let info = self.handle.open()?.segment.info();
        Ok(info.map_err(Failure::from)?.poisoned)
    }

    /// Declare that a poisoned segment is whole as it is.
    fn accept(&self, py: Python<'_>) -> PyResult<()> {
        let open = self.handle.open()?;
        check_writable(&open)?;
        let name = open.segment.name().as_str();
        // SAFETY: the contents have no type; the directory of arrays is checked whenever it is
        // read, and the heap stays inside the segment whatever it contains.
        Ok(py.detach(|| Ok::<_, Failure>(unsafe { open.attachment.accept(name) }?))?)
    }

    /// Replace the contents by those of a copy that `snapshot` made. The segment is not poisoned
    /// afterwards.
    fn restore(&self, py: Python<'_>, snapshot: &str) -> PyResult<()> {
        let open = self.handle.open()?;
        check_writable(&open)?;
        Ok(py.detach(|| {
            let from = Named::open(open.segment.registry(), snapshot)?;
            // Keeps the copy mapped, so that this process counts as one participant of it.
            let _mapped = Attachment::new([(&from, Access::ReadOnly)])?;
            let may = || open.check_sole("restoring a segment", None);
            open.segment.restore_from_if(&from, may)
        })?)
    }

    /// Remove all contents. The segment is not poisoned afterwards.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        let open = self.handle.open()?;
        check_writable(&open)?;
        Ok(py.detach(|| {
            let may = || open.check_sole("emptying a segment", None);
            open.attachment
                .rebuild_if(open.segment.name().as_str(), may)
        })?)
    }

    /// Copy the segment under another name, as it is at one instant.
    fn snapshot(&self, py: Python<'_>, name: &str) -> PyResult<Self> {
        let open = self.handle.open()?;
        let timeout = self.handle.timeout;
        Ok(py.detach(|| Self::new(open.segment.clone_as(name)?, None, timeout))?)
    }

    /// Write all changes to the medium, if the segment has one.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        let open = self.handle.open()?;
        Ok(py.detach(|| Ok::<_, Failure>(open.attachment.sync()?))?)
    }

    /// Close the segment. Raises `InUse`, with the names of the arrays, while views of its arrays
    /// are used.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.handle.open.origin.check()?;
        if let Ok(open) = self.handle.open() {
            let names = open.views.names();
            if !names.is_empty() {
                return Err(in_use(&names, "the segment cannot be closed").into());
            }
            if current::current(&open).is_some() {
                let text = "this thread is in a section of the segment: leave it first";
                return Err(failure(Reason::Nested, text).into());
            }
        }
        py.detach(|| drop(self.handle.open.close()));
        Ok(())
    }

    /// Whether it was closed, or belongs to the parent of this forked process.
    #[getter]
    fn closed(&self) -> bool {
        self.handle.open().is_err()
    }

    /// Whether it was opened for writing.
    #[getter]
    fn writable(&self) -> PyResult<bool> {
        Ok(self.handle.open()?.access == Access::ReadWrite)
    }

    /// Its name.
    #[getter]
    fn name(&self) -> &str {
        &self.handle.name
    }

    /// The current size in bytes.
    #[getter]
    fn size(&self) -> PyResult<usize> {
        let info = self.handle.open()?.segment.info();
        Ok(info.map_err(Failure::from)?.size)
    }

    /// The maximum size in bytes.
    #[getter]
    fn max_size(&self) -> PyResult<usize> {
        Ok(self.handle.open()?.segment.max_size())
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        match self.close(py) {
            // The frames of an exception in flight may hold views.
            Err(_) if !kind.is_none() => Ok(()),
            closed => closed,
        }
    }

    fn __repr__(&self) -> String {
        let closed = if self.closed() { ", closed" } else { "" };
        format!("<mneme.Segment {:?}{closed}>", self.handle.name)
    }

    /// Pickles the name; unpickling opens the segment.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let again = py.import("mneme")?.getattr("_open_again")?;
        let with = (&self.handle.name, self.writable()?, &self.handle.registry);
        let with = with.into_pyobject(py)?;
        PyTuple::new(py, [again, with.into_any()])
    }
}

/// A size, as a number or in words.
struct Size(u64);

impl From<&str> for Size {
    fn from(_usual: &str) -> Self {
        Self(1 << 30)
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Size {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        Ok(Self(size(&object)?))
    }
}
