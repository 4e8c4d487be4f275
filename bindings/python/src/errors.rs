//! The exceptions, defined in one table.

use std::fmt::Display;

use mneme_sys::{Classified, ErrorKind, with_causes};
use pyo3::exceptions::{
    PyException, PyKeyError, PyLookupError, PyMemoryError, PyTimeoutError, PyValueError,
};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};

/// The kinds of errors that a Python program can distinguish. The numbers are indexes into
/// [`TABLE`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reason {
    Invalid,
    NotFound,
    Exists,
    Full,
    NotPermitted,
    ReadOnly,
    InUse,
    Stalled,
    Conflict,
    Poisoned,
    Nested,
    Stale,
    Forked,
    Closed,
    Damaged,
    System,
    Internal,
}

type Base = for<'py> fn(Python<'py>) -> Bound<'py, PyType>;

/// For each [`Reason`] in order: the exception's name, the built-in exception that it also derives
/// from, and its meaning.
const TABLE: [(&str, Option<Base>, &str); 17] = [
    (
        "InvalidArgument",
        Some(|py| py.get_type::<PyValueError>()),
        "An argument is impossible; the text says which and why.",
    ),
    (
        "NotFound",
        Some(|py| py.get_type::<PyLookupError>()),
        "No store, segment or array has that name.",
    ),
    ("Exists", None, "The name is taken."),
    (
        "Full",
        Some(|py| py.get_type::<PyMemoryError>()),
        "The store, the segment or the machine has no memory left for it. Nothing has changed.",
    ),
    ("NotPermitted", None, "The files' permissions forbid it."),
    ("ReadOnly", None, "It was attached or opened for reading."),
    (
        "InUse",
        None,
        "A living process, or a view in this one, still uses it. The text names them.",
    ),
    (
        "Stalled",
        Some(|py| py.get_type::<PyTimeoutError>()),
        "A living process holds a lock and does not go on; it may succeed when tried again.",
    ),
    (
        "Conflict",
        None,
        "Something that a transaction has read was changed meanwhile. Nothing was done: run it again.",
    ),
    (
        "Poisoned",
        None,
        "A process died, or an exception was raised, in the middle of a change: accept() the \
         segment as it is, or restore() it from a copy.",
    ),
    (
        "Nested",
        None,
        "The thread is inside of a section already, or is not in the one that it means to leave.",
    ),
    (
        "Stale",
        None,
        "It was removed, or made anew under its name.",
    ),
    (
        "Forked",
        None,
        "A forked child uses what its parent has opened: open it anew, or start processes with \
         multiprocessing's `spawn` or `forkserver`.",
    ),
    ("Closed", None, "It was closed."),
    (
        "Damaged",
        None,
        "Its bytes contradict themselves, or another version made it.",
    ),
    (
        "Unavailable",
        None,
        "The registry, the kind of memory or the operating system refuses.",
    ),
    ("Internal", None, "A defect of mneme."),
];

static TYPES: PyOnceLock<Vec<Py<PyType>>> = PyOnceLock::new();

/// The exception types: `mneme.Error` first, then those of the table.
fn types(py: Python<'_>) -> PyResult<&'static Vec<Py<PyType>>> {
    // The cell is static.
    TYPES.get_or_try_init(py, || {
        let doc = "What the library refuses; each subclass is one reason.";
        let error = new_type("Error", vec![py.get_type::<PyException>()], doc)?;
        let mut all = vec![error.clone().unbind()];
        for (name, also, doc) in TABLE {
            let bases = std::iter::once(error.clone()).chain(also.map(|base| base(py)));
            all.push(new_type(name, bases.collect(), doc)?.unbind());
        }
        Ok(all)
    })
}

/// Makes an exception type of the module `mneme`, with at least one base.
fn new_type<'py>(
    name: &str,
    bases: Vec<Bound<'py, PyType>>,
    doc: &str,
) -> PyResult<Bound<'py, PyType>> {
    let py = bases[0].py();
    let body = PyDict::new(py);
    body.set_item("__doc__", doc)?;
    body.set_item("__module__", "mneme")?;
    let bases = PyTuple::new(py, bases)?;
    let made = py.get_type::<PyType>().call1((name, bases, body))?;
    Ok(made.cast_into::<PyType>()?)
}

pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let names = std::iter::once("Error").chain(TABLE.iter().map(|row| row.0));
    for (name, made) in names.zip(types(py)?) {
        module.add(name, made.bind(py))?;
    }
    Ok(())
}

/// Why a call failed. It can be made without the GIL, and becomes an exception when the call
/// returns.
#[derive(Debug)]
pub(crate) enum Failure {
    Of(Reason, String),
    /// A batch that failed: how many records were handled before, and why the rest was not.
    Batch(usize, Reason, String),
}

pub(crate) fn failure(reason: Reason, text: impl Display) -> Failure {
    Failure::Of(reason, text.to_string())
}

pub(crate) fn invalid(text: impl Display) -> Failure {
    failure(Reason::Invalid, text)
}

/// The `KeyError` that `dict` raises for a missing key.
pub(crate) fn missing(key: &Bound<'_, PyAny>) -> PyErr {
    PyKeyError::new_err(key.clone().unbind())
}

fn reason(kind: ErrorKind) -> Reason {
    match kind {
        ErrorKind::Invalid | ErrorKind::Name | ErrorKind::Address | ErrorKind::Overlap => {
            Reason::Invalid
        }
        ErrorKind::NotFound => Reason::NotFound,
        ErrorKind::Exists => Reason::Exists,
        ErrorKind::NoMemory => Reason::Full,
        ErrorKind::Permission => Reason::NotPermitted,
        ErrorKind::ReadOnly => Reason::ReadOnly,
        ErrorKind::Busy => Reason::InUse,
        ErrorKind::Stalled => Reason::Stalled,
        ErrorKind::Poisoned => Reason::Poisoned,
        ErrorKind::Outside | ErrorKind::Inside => Reason::Nested,
        ErrorKind::Stale => Reason::Stale,
        ErrorKind::Forked => Reason::Forked,
        ErrorKind::Damaged | ErrorKind::Root => Reason::Damaged,
        ErrorKind::Registry | ErrorKind::Backing | ErrorKind::Io => Reason::System,
        ErrorKind::Internal => Reason::Internal,
    }
}

/// Advice in terms of the Python API, which the errors of the crates cannot give.
fn advice(reason: Reason) -> &'static str {
    match reason {
        Reason::NotFound => {
            " (in Python: Segment.list() names what there is, mneme.create() and Segment.create() \
             make what is not)"
        }
        Reason::Exists => {
            " (in Python: attach() or Segment.open() has what is there; open_or_create() makes a \
             store unless there is one)"
        }
        Reason::InUse => " (in Python: close() it wherever it is open, and let go of its views)",
        Reason::ReadOnly => " (in Python: attach or open it with writable=True)",
        Reason::Poisoned => {
            " (in Python: accept() a segment as it is, restore() it from a snapshot, or clear() it)"
        }
        Reason::Forked => {
            " (in Python: start processes with multiprocessing's `spawn` or `forkserver`)"
        }
        _ => "",
    }
}

impl<E: Classified + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        let reason = reason(error.kind());
        Self::Of(reason, with_causes(&error) + advice(reason))
    }
}

impl Failure {
    /// The failure of a batch that stopped in the middle.
    pub(crate) fn of_batch(error: &mneme_log::BatchError) -> Self {
        Self::Batch(error.done, reason(error.kind()), with_causes(error))
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        Python::attach(|py| {
            let (done, reason, text) = match failure {
                Failure::Of(reason, text) => (None, reason, text),
                Failure::Batch(done, reason, text) => (Some(done), reason, text),
            };
            let made = match types(py) {
                Ok(types) => PyErr::from_type(types[reason as usize + 1].bind(py).clone(), text),
                Err(error) => return error,
            };
            if let Some(done) = done
                && let Err(error) = made.value(py).setattr("done", done)
            {
                return error;
            }
            made
        })
    }
}
