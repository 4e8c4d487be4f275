//! Copies of values.
//!
//! **If there is no memory for a copy, the result is the error `Full`; the process is never
//! aborted.** A value can have up to a GiB.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::errors::{Failure, Reason, failure};

fn no_memory(bytes: usize) -> Failure {
    let text = format!("this process has no memory for {bytes} bytes more");
    failure(Reason::Full, text)
}

/// Appends the bytes.
pub(crate) fn append(to: &mut Vec<u8>, bytes: &[u8]) -> Result<(), Failure> {
    to.try_reserve(bytes.len())
        .map_err(|_| no_memory(bytes.len()))?;
    to.extend_from_slice(bytes);
    Ok(())
}

/// A copy.
pub(crate) fn copied(bytes: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut copy = Vec::new();
    append(&mut copy, bytes)?;
    Ok(copy)
}

/// A copy as a Python `bytes` object.
pub(crate) fn object<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    // No slice is longer than that.
    let length = bytes.len() as ffi::Py_ssize_t;
    // SAFETY: the length is that of the slice; the result is a new reference, or null with an
    // exception.
    let made = unsafe { ffi::PyBytes_FromStringAndSize(bytes.as_ptr().cast(), length) };
    // SAFETY: as above.
    let made = unsafe { Bound::from_owned_ptr_or_err(py, made) };
    let made = made.map_err(|_| no_memory(bytes.len()))?;
    Ok(made.cast_into()?)
}

/// A list of copies.
pub(crate) fn listed(py: Python<'_>, items: Vec<Vec<u8>>) -> PyResult<Bound<'_, PyList>> {
    let items = items.into_iter().map(|item| object(py, &item));
    PyList::new(py, items.collect::<PyResult<Vec<_>>>()?)
}

/// The result of a step of a scan: the cursor to continue at, and what was found.
pub(crate) fn scanned<'py>(
    py: Python<'py>,
    next: u64,
    found: Bound<'py, PyList>,
) -> PyResult<Bound<'py, PyTuple>> {
    let next = next.into_pyobject(py).map_err(PyErr::from)?;
    PyTuple::new(py, [next.into_any(), found.into_any()])
}
