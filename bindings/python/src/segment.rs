//! `Segment` and `Section`: named arrays in memory that outlives every process.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use mneme_space::{AttachError, Attachment, MapError, Segment as Named};
use mneme_sync::Life;
use mneme_sys::Access;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

use crate::arguments::{self, registry, size};
use crate::buffer::{Memory, view_of};
use crate::directory::Array;
use crate::errors::{Failure, Reason, failure, invalid};
use crate::mapped::{Mapped, views_of};
use crate::process::{Close, Origin, note_open};
use crate::section::{self, Views};

/// A segment is no smaller.
const LEAST: usize = 2 << 20;

/// An open segment. Views keep it, and so do threads that are inside.
pub(crate) struct Open {
    mapped: Mapped,
    pub(crate) attachment: Attachment,
    pub(crate) segment: Named,
    access: Access,
    views: Arc<Views>,
}

/// An open segment until it is closed.
struct Handle {
    origin: Origin,
    open: RwLock<Option<Arc<Open>>>,
    name: String,
    registry: PathBuf,
    timeout: Duration,
}

impl Handle {
    fn open(&self) -> Result<Arc<Open>, Failure> {
        self.origin.check()?;
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let open = open.as_ref().map(Arc::clone);
        open.ok_or_else(|| failure(Reason::Closed, "the segment was closed"))
    }

    fn close(&self) -> Option<Arc<Open>> {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        open.take()
    }
}

impl Close for Handle {
    fn close_at_exit(&self) {
        if self.origin.check().is_ok() {
            drop(self.close());
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // A forked child gives nothing of its parent's back.
        if self.origin.check().is_err() {
            std::mem::forget(self.close());
        }
    }
}

/// What a view of an array keeps.
struct Lease {
    open: Arc<Open>,
    name: String,
    /// Of the section, if the view is for writing.
    writing: Option<Arc<Views>>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.open.views.remove(&self.name);
        if let Some(writing) = &self.writing {
            writing.remove(&self.name);
        }
    }
}

impl Open {
    fn new(segment: Named, writable: Option<bool>, timeout: Duration) -> Result<Self, Failure> {
        let attach = |access| Attachment::new([(&segment, access)]);
        let (attachment, access) = match writable {
            Some(false) => (attach(Access::ReadOnly)?, Access::ReadOnly),
            Some(true) => (attach(Access::ReadWrite)?, Access::ReadWrite),
            // For writing, if its permissions let this process.
            None => match attach(Access::ReadWrite) {
                Err(AttachError::Map(MapError::NotWritable { .. } | MapError::File(_))) => {
                    (attach(Access::ReadOnly)?, Access::ReadOnly)
                }
                attached => (attached?, Access::ReadWrite),
            },
        };
        Ok(Self {
            mapped: Mapped::new(&segment, access)?,
            attachment: attachment.timeout(timeout),
            access,
            views: views_of(segment.uuid()),
            segment,
        })
    }

    /// A view of an array's bytes.
    fn view<'py>(
        self: &Arc<Self>,
        py: Python<'py>,
        array: &Array,
        writing: Option<Arc<Views>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let access = match writing {
            Some(_) => Access::ReadWrite,
            None => Access::ReadOnly,
        };
        let at = self.mapped.at(array.offset, array.bytes, access)?;
        self.views.add(&array.name);
        if let Some(writing) = &writing {
            writing.add(&array.name);
        }
        let memory = Memory {
            at,
            len: array.bytes,
            writable: access == Access::ReadWrite,
            origin: Origin::here(),
            owner: Box::new(Lease {
                open: Arc::clone(self),
                name: array.name.clone(),
                writing,
            }),
        };
        // SAFETY: mapped for as long as `open` lives; no Rust reference leads to an array's bytes.
        unsafe { view_of(py, memory) }
    }

    /// Refuses while other processes have it open, or views are alive here: for what makes the
    /// memory of arrays others' memory.
    fn check_sole(&self, what: &str, of: Option<&str>) -> Result<(), Failure> {
        let mut names = self.views.names();
        names.retain(|name| of.is_none_or(|of| of == name));
        if !names.is_empty() {
            return Err(in_use(&names, what));
        }
        let mapping = self.segment.map(Access::ReadOnly)?;
        // SAFETY: only asked who is there.
        let attached = unsafe { mapping.participants() }.attached();
        let others = attached
            .iter()
            .filter(|one| !one.is_asker && one.life == Life::Alive);
        let pids: Vec<_> = others.map(|one| one.pid.to_string()).collect();
        if pids.is_empty() {
            return Ok(());
        }
        let text = format!(
            "{what} waits until no other process has the segment open, because they may have views \
             of it: process {} has",
            pids.join(", ")
        );
        Err(failure(Reason::InUse, text))
    }

    /// Runs `f` in a section: the one that the thread is inside of, or one for this.
    fn within<R>(
        self: &Arc<Self>,
        access: Access,
        f: impl FnOnce(u64) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        if let Some(id) = section::current(self) {
            return f(id);
        }
        let id = section::enter(self, access)?;
        // Nothing is half done by an error: each step of the directory is whole.
        let done = f(id);
        section::leave(id, true)?;
        done
    }
}

fn in_use(names: &[String], what: &str) -> Failure {
    let text = format!(
        "{what}: views of {} are still used (del the arrays that were made of them)",
        names.join(", ")
    );
    failure(Reason::InUse, text)
}

fn missing(open: &Open, name: &str) -> Failure {
    let text = format!(
        "segment {:?} has no array {name:?}",
        open.segment.name().as_str()
    );
    failure(Reason::NotFound, text)
}

/// A function of `mneme/_arrays.py`, which knows numpy.
fn helper<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("mneme._arrays")?.getattr(name)
}

/// A numpy array on a view.
fn as_array<'py>(view: &Bound<'py, PyAny>, array: &Array) -> PyResult<Bound<'py, PyAny>> {
    let shape = PyTuple::new(view.py(), &array.shape)?;
    helper(view.py(), "as_array")?.call1((view, &array.descr, shape))
}

/// Puts an array into the segment that the thread is inside of: its place under the lock, its bytes
/// by numpy.
fn put<'py>(
    open: &Arc<Open>,
    id: u64,
    name: &str,
    array: &Bound<'py, PyAny>,
    replace: bool,
) -> PyResult<()> {
    let py = array.py();
    let described = helper(py, "describe")?.call1((array,))?;
    let (source, descr, shape, bytes): (Bound<'_, PyAny>, String, Vec<u64>, usize) =
        described.extract()?;
    let (place, views) = section::within(id, |arrays, views| {
        let views = Arc::clone(views);
        if let Some(there) = arrays.find(name)?.filter(|_| replace) {
            if (&there.descr, &there.shape) == (&descr, &shape) {
                return Ok((there, views));
            }
            open.check_sole("replacing an array by one of another shape", Some(name))?;
            arrays.remove(name)?;
        }
        Ok((arrays.insert(name, &descr, &shape, bytes)?, views))
    })?;
    let view = open.view(py, &place, Some(views))?;
    let filled = helper(py, "fill")?.call1((&view, &descr, PyTuple::new(py, shape)?, source));
    drop(view);
    if let Err(error) = filled {
        // As before, but for one that was to be replaced.
        section::within(id, |arrays, _| arrays.remove(name))?;
        return Err(error);
    }
    Ok(())
}

fn put_bytes<'py>(
    open: &Arc<Open>,
    id: u64,
    name: &str,
    data: &Bound<'py, PyAny>,
    replace: bool,
) -> PyResult<()> {
    let py = data.py();
    let data = arguments::value(data)?;
    let bytes = data.as_bytes();
    let array = helper(py, "Raw")?.call1((bytes.len(), &data))?;
    put(open, id, name, &array, replace)
}

fn remove(open: &Arc<Open>, id: u64, name: &str) -> Result<(), Failure> {
    section::within(id, |arrays, _| {
        if arrays.find(name)?.is_none() {
            return Err(missing(open, name));
        }
        open.check_sole("removing an array", Some(name))?;
        arrays.remove(name).map(|_| ())
    })
}

/// A named segment of memory with named arrays in it, which belongs to no process.
///
/// `Segment.create(name, size)` makes one, `Segment.open(name)` opens one.
#[pyclass(module = "mneme", frozen, weakref)]
pub(crate) struct Segment {
    handle: Arc<Handle>,
}

impl Segment {
    fn new(segment: Named, writable: Option<bool>, timeout: f64) -> Result<Self, Failure> {
        let timeout = Duration::try_from_secs_f64(timeout);
        let timeout = timeout.map_err(|_| invalid("a timeout is a number of seconds"))?;
        let (name, registry) = (
            segment.name().to_string(),
            segment.registry().root().to_owned(),
        );
        let handle = Arc::new(Handle {
            origin: Origin::here(),
            open: RwLock::new(Some(Arc::new(Open::new(segment, writable, timeout)?))),
            name,
            registry,
            timeout,
        });
        note_open(&handle);
        Ok(Self { handle })
    }

    /// Runs `f` with the arrays, to read.
    fn read<R: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&crate::directory::Directory<'_>) -> Result<R, Failure> + Send,
    ) -> Result<(Arc<Open>, R), Failure> {
        let open = self.handle.open()?;
        let read = py.detach(|| {
            open.within(Access::ReadOnly, |id| {
                section::within(id, |arrays, _| f(arrays))
            })
        })?;
        Ok((open, read))
    }

    fn found(&self, py: Python<'_>, name: &str) -> Result<(Arc<Open>, Array), Failure> {
        let (open, found) = self.read(py, |arrays| arrays.find(name))?;
        let found = found.ok_or_else(|| missing(&open, name))?;
        Ok((open, found))
    }

    /// Runs `f` in a section for writing, which other Python threads do not wait for.
    fn change<R>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&Arc<Open>, u64) -> PyResult<R>,
    ) -> PyResult<R> {
        let open = self.handle.open()?;
        check_writable(&open)?;
        if let Some(id) = section::current(&open) {
            return f(&open, id);
        }
        let id = py.detach(|| section::enter(&open, Access::ReadWrite))?;
        let done = f(&open, id);
        section::leave(id, true)?;
        done
    }
}

fn check_writable(open: &Open) -> Result<(), Failure> {
    if open.access == Access::ReadWrite {
        return Ok(());
    }
    let name = open.segment.name();
    let text = format!("segment {name:?} was opened for reading: open it with writable=True");
    Err(failure(Reason::ReadOnly, text))
}

#[pymethods]
impl Segment {
    /// Make a segment that may grow to `size` bytes, and open it for writing.
    ///
    /// Memory is taken as arrays come. `mode`: the files' permissions. `backing`: "memory", "huge",
    /// or "file" with `directory`, which outlives the machine's boot. Raises `Exists`.
    #[classmethod]
    #[pyo3(signature = (name, size="1GiB".into(), *, mode=0o600, backing=None, directory=None,
                        registry=None, timeout=1.0))]
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
        let mode = arguments::mode(mode)?;
        let backing = arguments::backing(backing, directory)?;
        Ok(py.detach(|| {
            let registry = self::registry(registry)?;
            let new = registry.segment(name).mode(mode).backing(backing);
            let segment = new.size(LEAST).max_size(size).create()?;
            Self::new(segment, Some(true), timeout)
        })?)
    }

    /// Open the segment of that name: for writing if its permissions let this process, unless
    /// `writable` says which. `timeout`: seconds that a section waits for others to leave.
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
        Ok(py.detach(|| {
            let segment = Named::open(&self::registry(registry)?, name)?;
            Self::new(segment, writable, timeout)
        })?)
    }

    /// The names of the segments there are, those of stores too.
    #[staticmethod]
    #[pyo3(signature = (*, registry=None))]
    fn list(registry: Option<PathBuf>) -> PyResult<Vec<String>> {
        let names = self::registry(registry)?
            .segments()
            .map_err(Failure::from)?;
        Ok(names.iter().map(ToString::to_string).collect())
    }

    /// Remove a segment and what it holds. Raises `InUse` while a process has it open.
    #[staticmethod]
    #[pyo3(signature = (name, *, registry=None))]
    fn remove(py: Python<'_>, name: &str, registry: Option<PathBuf>) -> PyResult<()> {
        Ok(py.detach(|| Ok::<_, Failure>(self::registry(registry)?.remove_segment(name)?))?)
    }

    /// A read-only numpy array on the segment's own bytes. Nothing is copied; a change that another
    /// process makes is seen. To keep writers out meanwhile, use `read()`.
    fn array<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let (open, found) = self.found(py, name)?;
        as_array(&open.view(py, &found, None)?, &found)
    }

    /// A read-only memoryview of an array's bytes; needs no numpy.
    fn view<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let (open, found) = self.found(py, name)?;
        open.view(py, &found, None)
    }

    /// Copy an array into the segment under a name. With `replace`, over one that is there: one of
    /// the same type and shape is written in place, another only while nobody else has views.
    #[pyo3(signature = (name, array, *, replace=false))]
    fn put_array(
        &self,
        py: Python<'_>,
        name: &str,
        array: &Bound<'_, PyAny>,
        replace: bool,
    ) -> PyResult<()> {
        self.change(py, |open, id| put(open, id, name, array, replace))
    }

    /// Copy a bytes-like object into the segment, as an array of bytes; needs no numpy.
    #[pyo3(signature = (name, data, *, replace=false))]
    fn put_bytes(
        &self,
        py: Python<'_>,
        name: &str,
        data: &Bound<'_, PyAny>,
        replace: bool,
    ) -> PyResult<()> {
        self.change(py, |open, id| put_bytes(open, id, name, data, replace))
    }

    /// Remove an array. Raises `InUse` while another process has the segment open or views of the
    /// array are used here, because its memory will be others'.
    fn remove_array(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.change(py, |open, id| Ok(remove(open, id, name)?))
    }

    /// The arrays: a dictionary from names to pairs of descr (as in `.npy` files) and shape.
    fn arrays<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (_, all) = self.read(py, |arrays| arrays.all())?;
        let shown = PyDict::new(py);
        for array in all {
            let shape = PyTuple::new(py, array.shape)?;
            shown.set_item(array.name, (array.descr, shape))?;
        }
        Ok(shown)
    }

    fn __contains__(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        Ok(self.read(py, |arrays| arrays.find(name))?.1.is_some())
    }

    /// A section for writing: `with seg.write() as w:`. Nobody else is in a section of the segment.
    fn write(&self) -> PyResult<Section> {
        let open = self.handle.open()?;
        check_writable(&open)?;
        Ok(Section::new(open, Access::ReadWrite))
    }

    /// A section for reading: `with seg.read() as r:`. Nobody changes the segment meanwhile.
    #[pyo3(name = "read")]
    fn read_section(&self) -> PyResult<Section> {
        Ok(Section::new(self.handle.open()?, Access::ReadOnly))
    }

    /// Whether a process died, or an exception was raised, in the middle of a change.
    #[getter]
    fn poisoned(&self) -> PyResult<bool> {
        let info = self.handle.open()?.segment.info();
        Ok(info.map_err(Failure::from)?.poisoned)
    }

    /// Declare a poisoned segment whole, as it is.
    fn accept(&self, py: Python<'_>) -> PyResult<()> {
        let open = self.handle.open()?;
        check_writable(&open)?;
        let name = open.segment.name().as_str();
        // SAFETY: what lies there has no type; the directory of arrays is checked whenever it is
        // read, and the heap keeps to the segment whatever it holds.
        Ok(py.detach(|| Ok::<_, Failure>(unsafe { open.attachment.accept(name) }?))?)
    }

    /// Take the content of a copy that `snapshot` made; poisoned or not, it is whole afterwards.
    fn restore(&self, py: Python<'_>, snapshot: &str) -> PyResult<()> {
        let open = self.handle.open()?;
        check_writable(&open)?;
        Ok(py.detach(|| {
            open.check_sole("restoring a segment", None)?;
            let from = Named::open(open.segment.registry(), snapshot)?;
            Ok::<_, Failure>(open.segment.restore_from(&from)?)
        })?)
    }

    /// Make it empty; poisoned or not, it is whole afterwards.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        let open = self.handle.open()?;
        check_writable(&open)?;
        Ok(py.detach(|| {
            open.check_sole("emptying a segment", None)?;
            Ok::<_, Failure>(open.attachment.rebuild(open.segment.name().as_str())?)
        })?)
    }

    /// Copy the segment under another name, as of one moment.
    fn snapshot(&self, py: Python<'_>, name: &str) -> PyResult<Self> {
        let open = self.handle.open()?;
        let timeout = self.handle.timeout.as_secs_f64();
        Ok(py.detach(|| Self::new(open.segment.clone_as(name)?, None, timeout))?)
    }

    /// Write what was changed through to the medium, of a segment that has one.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        let open = self.handle.open()?;
        Ok(py.detach(|| Ok::<_, Failure>(open.attachment.sync()?))?)
    }

    /// Give it up. Raises `InUse`, with their names, while views of its arrays are used.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.handle.origin.check()?;
        if let Ok(open) = self.handle.open() {
            let names = open.views.names();
            if !names.is_empty() {
                return Err(in_use(&names, "the segment cannot be closed").into());
            }
            if section::current(&open).is_some() {
                let text = "this thread is in a section of the segment: leave it first";
                return Err(failure(Reason::Nested, text).into());
            }
        }
        py.detach(|| drop(self.handle.close()));
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

    /// Bytes that it has now.
    #[getter]
    fn size(&self) -> PyResult<usize> {
        let info = self.handle.open()?.segment.info();
        Ok(info.map_err(Failure::from)?.size)
    }

    /// Bytes that it may grow to.
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
            // An exception that is on its way has views in its frames.
            Err(_) if !kind.is_none() => Ok(()),
            closed => closed,
        }
    }

    fn __repr__(&self) -> String {
        let closed = if self.closed() { ", closed" } else { "" };
        format!("<mneme.Segment {:?}{closed}>", self.handle.name)
    }

    /// By name: what unpickles it opens the segment.
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

/// A stretch in which a thread has a segment's lock: for use in a `with` block.
#[pyclass(module = "mneme", frozen)]
pub(crate) struct Section {
    open: Arc<Open>,
    access: Access,
    /// The number of the section while the thread is inside.
    id: Mutex<Option<u64>>,
    /// Something was handed out for writing.
    touched: AtomicBool,
}

impl Section {
    fn new(open: Arc<Open>, access: Access) -> Self {
        Self {
            open,
            access,
            id: Mutex::new(None),
            touched: AtomicBool::new(false),
        }
    }

    fn id(&self) -> Result<u64, Failure> {
        let id = *self.id.lock().unwrap_or_else(PoisonError::into_inner);
        id.ok_or_else(|| failure(Reason::Nested, "a section is used in a `with` block"))
    }

    fn writing(&self) -> Result<u64, Failure> {
        if self.access == Access::ReadOnly {
            let text = "this section is for reading: use write()";
            return Err(failure(Reason::ReadOnly, text));
        }
        self.id()
    }

    /// What was done stands, and an exception would leave it without the rest.
    fn touched<T>(&self, done: T) -> T {
        self.touched.store(true, Relaxed);
        done
    }

    fn found(&self, name: &str) -> Result<(Array, Option<Arc<Views>>), Failure> {
        let found = section::within(self.id()?, |arrays, views| {
            let found = arrays.find(name)?;
            Ok(found.map(|found| (found, Arc::clone(views))))
        })?;
        let (array, views) = found.ok_or_else(|| missing(&self.open, name))?;
        if self.access == Access::ReadOnly {
            return Ok((array, None));
        }
        Ok(self.touched((array, Some(views))))
    }
}

impl Drop for Section {
    fn drop(&mut self) {
        // Given up without `__exit__`: in the middle. In another thread nothing can be done; the
        // section ends with its own.
        if let Ok(id) = self.id() {
            let _ = section::leave(id, !self.touched.load(Relaxed));
        }
    }
}

#[pymethods]
impl Section {
    fn __enter__(this: PyRef<'_, Self>) -> PyResult<PyRef<'_, Self>> {
        let py = this.py();
        {
            let section = &*this;
            let (open, access) = (&section.open, section.access);
            if section.id().is_ok() {
                let text = "the section was entered already";
                return Err(failure(Reason::Nested, text).into());
            }
            let id = py.detach(|| section::enter(open, access))?;
            *section.id.lock().unwrap_or_else(PoisonError::into_inner) = Some(id);
        }
        Ok(this)
    }

    /// An exception leaves what was handed out for writing half changed: the segment is poisoned.
    fn __exit__(
        &self,
        kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let failed = !kind.is_none();
        let whole = !(failed && self.touched.load(Relaxed));
        let names = section::leave(self.id()?, whole)?;
        *self.id.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.touched.store(false, Relaxed);
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

    /// A numpy array on the segment's own bytes; writable in a section for writing, and to be given
    /// up before it ends.
    fn array<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let (found, views) = self.found(name)?;
        as_array(&self.open.view(py, &found, views)?, &found)
    }

    /// A memoryview of an array's bytes; needs no numpy.
    fn view<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let (found, views) = self.found(name)?;
        self.open.view(py, &found, views)
    }

    /// As `Segment.put_array`.
    #[pyo3(signature = (name, array, *, replace=false))]
    fn put_array(&self, name: &str, array: &Bound<'_, PyAny>, replace: bool) -> PyResult<()> {
        put(&self.open, self.writing()?, name, array, replace).map(|done| self.touched(done))
    }

    /// As `Segment.put_bytes`.
    #[pyo3(signature = (name, data, *, replace=false))]
    fn put_bytes(&self, name: &str, data: &Bound<'_, PyAny>, replace: bool) -> PyResult<()> {
        put_bytes(&self.open, self.writing()?, name, data, replace).map(|done| self.touched(done))
    }

    /// As `Segment.remove_array`.
    fn remove_array(&self, name: &str) -> PyResult<()> {
        Ok(remove(&self.open, self.writing()?, name).map(|done| self.touched(done))?)
    }

    fn __contains__(&self, name: &str) -> PyResult<bool> {
        let found = section::within(self.id()?, |arrays, _| arrays.find(name))?;
        Ok(found.is_some())
    }
}
