//! An open segment: the state shared by its handles, its views and the threads in its sections.
//!
//! **Memory that a view can access is not reused.** A segment cannot be closed, and an array cannot
//! be removed, while this process has views of it. An array also cannot be removed while another
//! process has the segment open, or a forked child has its parent's views, because this process
//! does not know their views.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mneme_space::{Attachment, EnterError, MapError, Segment as Named};
use mneme_sync::Life;
use mneme_sys::Access;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::arguments;
use crate::buffer::{Memory, Source, SourceBytes, view_of};
use crate::current::{self, Views};
use crate::directory::Array;
use crate::errors::{Failure, Reason, failure, invalid};
use crate::forks;
use crate::mapped::{Mapped, views_of};
use crate::process::{Close, Origin, UntilClosed, note_open};

/// An open segment. Views and threads in a section keep it alive.
pub(crate) struct Open {
    mapped: Mapped,
    pub(crate) attachment: Attachment,
    pub(crate) segment: Named,
    pub(crate) access: Access,
    pub(crate) views: Arc<Views>,
}

/// An open segment until it is closed.
pub(crate) struct Handle {
    pub(crate) open: UntilClosed<Open>,
    pub(crate) name: String,
    pub(crate) registry: PathBuf,
    pub(crate) timeout: Duration,
}

impl Handle {
    pub(crate) fn new(
        segment: Named,
        writable: Option<bool>,
        timeout: Duration,
    ) -> Result<Arc<Self>, Failure> {
        let (name, registry) = (
            segment.name().to_string(),
            segment.registry().root().to_owned(),
        );
        let handle = Arc::new(Self {
            open: UntilClosed::new(
                Open::new(segment, writable, timeout)?,
                "the segment was closed: open it again",
            ),
            name,
            registry,
            timeout,
        });
        note_open(&handle);
        Ok(handle)
    }

    pub(crate) fn open(&self) -> Result<Arc<Open>, Failure> {
        self.open.get()
    }
}

impl Close for Handle {
    fn close_at_exit(&self) {
        self.open.close_at_exit();
    }
}

/// The owner of an array's view. It is made inside a section, where the array was found; from then
/// on nobody reuses the array's memory.
pub(crate) struct Lease {
    open: Arc<Open>,
    name: String,
    /// The count of the section's views, if the view is for writing.
    writing: Option<Arc<Views>>,
}

impl Lease {
    pub(crate) fn new(open: &Arc<Open>, name: &str, writing: Option<Arc<Views>>) -> Self {
        open.views.add(name);
        if let Some(writing) = &writing {
            writing.add(name);
        }
        Self {
            open: Arc::clone(open),
            name: name.to_owned(),
            writing,
        }
    }

    /// A view of the array's bytes.
    pub(crate) fn view<'py>(self, py: Python<'py>, array: &Array) -> PyResult<Bound<'py, PyAny>> {
        let access = match self.writing {
            Some(_) => Access::ReadWrite,
            None => Access::ReadOnly,
        };
        let memory = Memory {
            at: self.open.mapped.at(array.offset, array.bytes, access)?,
            len: array.bytes,
            writable: access == Access::ReadWrite,
            origin: Origin::here(),
            owner: Box::new(self),
        };
        // SAFETY: mapped as long as `open` lives; no Rust reference to an array's bytes exists.
        unsafe { view_of(py, memory) }
    }
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
            // Writable, if the permissions allow this process to write.
            None => match attach(Access::ReadWrite) {
                Err(EnterError::Map(MapError::NotWritable { .. } | MapError::File(_))) => {
                    (attach(Access::ReadOnly)?, Access::ReadOnly)
                }
                attached => (attached?, Access::ReadWrite),
            },
        };
        Ok(Self {
            mapped: Mapped::new(segment.clone(), access),
            attachment: attachment.timeout(timeout),
            access,
            views: views_of(segment.uuid()),
            segment,
        })
    }

    /// Returns an error while other processes have the segment open, or while there are views in
    /// this process or in forked children. Called before an array's memory is reused, with the
    /// segment locked, so that no views are made meanwhile.
    pub(crate) fn check_sole(&self, what: &str, of: Option<&str>) -> Result<(), Failure> {
        let mut names = self.views.names();
        names.retain(|name| of.is_none_or(|of| of == name));
        if !names.is_empty() {
            return Err(in_use(&names, what));
        }
        let mapping = self.segment.map(Access::ReadOnly)?;
        // SAFETY: only the list of participants is read.
        let attached = unsafe { mapping.participants() }.attached();
        let others = attached
            .iter()
            .filter(|one| !one.is_asker && one.life == Life::Alive);
        let pids: Vec<_> = others.map(|one| one.pid.to_string()).collect();
        if pids.is_empty() {
            return forks::check(&self.segment.info()?.data, what);
        }
        let text = format!(
            "{what} waits until no other process has the segment open, because they may have views \
             of it: process {} has",
            pids.join(", ")
        );
        Err(failure(Reason::InUse, text))
    }

    /// Runs `f` in the section that the thread is in, or else in a new one.
    pub(crate) fn within<R>(
        self: &Arc<Self>,
        access: Access,
        f: impl FnOnce(u64) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        if let Some(id) = current::current(self) {
            return f(id);
        }
        let id = current::enter(self, access)?;
        // After an error nothing is half changed, since each step of the directory is atomic, so
        // the segment is not poisoned.
        let done = f(id);
        current::leave(id, true)?;
        done
    }
}

pub(crate) fn in_use(names: &[String], what: &str) -> Failure {
    let text = format!(
        "{what}: views of {} are still used (del the arrays that were made of them)",
        names.join(", ")
    );
    failure(Reason::InUse, text)
}

pub(crate) fn missing(segment: &str, name: &str) -> Failure {
    let text = format!("segment {segment:?} has no array {name:?}; its arrays() lists what it has");
    failure(Reason::NotFound, text)
}

/// A function of `mneme/_arrays.py`, the module that uses numpy.
fn helper<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("mneme._arrays")?.getattr(name)
}

/// A numpy array on a view.
pub(crate) fn as_array<'py>(
    view: &Bound<'py, PyAny>,
    array: &Array,
) -> PyResult<Bound<'py, PyAny>> {
    let shape = PyTuple::new(view.py(), &array.shape)?;
    helper(view.py(), "as_array")?.call1((view, &array.descr, shape))
}

/// The data for an array. Made before the segment is accessed, because that runs Python code.
pub(crate) struct Described<'py> {
    source: Source<'py>,
    descr: String,
    shape: Vec<u64>,
}

impl<'py> Described<'py> {
    pub(crate) fn array(array: &Bound<'py, PyAny>) -> PyResult<Self> {
        let described = helper(array.py(), "describe")?.call1((array,))?;
        let (flat, descr, shape): (Bound<'_, PyAny>, _, _) = described.extract()?;
        Ok(Self {
            source: Source::of(&flat)?,
            descr,
            shape,
        })
    }

    pub(crate) fn bytes(data: &Bound<'py, PyAny>) -> PyResult<Self> {
        let source = Source::of(arguments::value(data)?.as_any())?;
        Ok(Self {
            shape: vec![source.bytes().len() as u64],
            descr: "'|u1'".to_owned(),
            source,
        })
    }
}

/// Puts an array into the segment of the thread's section. It gets its name after all bytes have
/// been copied; if anything fails before, the array that had the name is unchanged.
///
/// **No Python code runs from the check of the existing array to the end.** A signal handler or a
/// trace function could otherwise take a view of memory that is about to be freed.
pub(crate) fn put(
    py: Python<'_>,
    open: &Open,
    id: u64,
    name: &str,
    described: &Described<'_>,
    replace: bool,
) -> Result<(), Failure> {
    let (descr, shape) = (&*described.descr, &*described.shape);
    let bytes = described.source.bytes();
    py.detach(|| place(open, id, name, (descr, shape), bytes, replace))
}

fn place(
    open: &Open,
    id: u64,
    name: &str,
    (descr, shape): (&str, &[u64]),
    source: &SourceBytes,
    replace: bool,
) -> Result<(), Failure> {
    current::within(id, |arrays, _| {
        let fill = |array: &Array| {
            if array.bytes != source.len() {
                let (given, wanted) = (source.len(), array.bytes);
                let text = format!("{given} bytes are no array of {wanted} bytes");
                return Err(invalid(text));
            }
            let to = arrays.bytes_of(array)?;
            // SAFETY: the length is right, and inside the segment; no Rust reference to an array's
            // bytes exists.
            unsafe { source.copy_to(to) };
            Ok(())
        };
        match arrays.find(name)? {
            Some(_) if !replace => return Err(arrays.exists(name)),
            Some(there) if (&*there.descr, &*there.shape) == (descr, shape) => return fill(&there),
            Some(_) => open.check_sole("replacing an array by one of another shape", Some(name))?,
            None => {}
        }
        let made = arrays.make(name, descr, shape, source.len())?;
        fill(&made.array)
            .and_then(|()| arrays.enter(&made))
            .inspect_err(|_| {
                // It has no name.
                let _ = arrays.discard(&made);
            })
    })
}

pub(crate) fn remove(open: &Open, id: u64, name: &str) -> Result<(), Failure> {
    current::within(id, |arrays, _| {
        if arrays.find(name)?.is_none() {
            return Err(missing(open.segment.name().as_str(), name));
        }
        open.check_sole("removing an array", Some(name))?;
        arrays.remove(name).map(|_| ())
    })
}

pub(crate) fn check_writable(open: &Open) -> Result<(), Failure> {
    if open.access == Access::ReadWrite {
        return Ok(());
    }
    let name = open.segment.name();
    let text = format!("segment {name:?} was opened for reading: open it with writable=True");
    Err(failure(Reason::ReadOnly, text))
}
