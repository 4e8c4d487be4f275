//! What hashes, sets, sorted sets and lists share: the key that they lie under, and how copies of
//! their contents become Python objects.

use std::sync::Arc;

use mneme_collections::CollectionError;
use mneme_log::Database;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::copies::object;
use crate::errors::Failure;
use crate::store::Handle;

/// A key of a database of an open store.
pub(crate) struct CollectionKey {
    handle: Arc<Handle>,
    number: usize,
    key: Vec<u8>,
}

impl CollectionKey {
    pub(crate) fn new(handle: Arc<Handle>, number: usize, key: Vec<u8>) -> Self {
        Self {
            handle,
            number,
            key,
        }
    }

    pub(crate) fn key<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.key)
    }

    /// Calls `run` with the database and the key, without the GIL: a collection may be long, and
    /// other threads may change it.
    pub(crate) fn with<R: Send>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(Database<'_>, &[u8]) -> Result<R, CollectionError> + Send,
    ) -> Result<R, Failure> {
        let opened = self.handle.opened()?;
        py.detach(|| Ok(run(opened.database(self.number)?, &self.key)?))
    }

    pub(crate) fn shown(&self, class: &str) -> String {
        format!("<mneme.{class} b\"{}\">", self.key.escape_ascii())
    }
}

/// A list of copies.
pub(crate) fn listed(py: Python<'_>, items: Vec<Vec<u8>>) -> PyResult<Bound<'_, PyList>> {
    let items = items.into_iter().map(|item| object(py, &item));
    PyList::new(py, items.collect::<PyResult<Vec<_>>>()?)
}

/// What a call of `scan` returns: the cursor to continue at, and what was found.
pub(crate) fn scanned<'py>(
    py: Python<'py>,
    next: u64,
    found: Bound<'py, PyList>,
) -> PyResult<Bound<'py, PyTuple>> {
    let next = next.into_pyobject(py).map_err(PyErr::from)?;
    PyTuple::new(py, [next.into_any(), found.into_any()])
}
