//! Iteration over a database, with copies of a few records at a time.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use mneme_log::{Cursor, Database};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::copies::{copied, object};
use crate::errors::Failure;
use crate::handle::Handle;

/// The number of records copied at a time.
const STEP: usize = 256;

/// A record, or only its key.
pub(crate) type Found = (Vec<u8>, Option<Vec<u8>>);

/// The records found by one step of a scan, and the cursor to continue at.
pub(crate) fn step(
    database: Database<'_>,
    from: Cursor,
    count: usize,
    values: bool,
) -> Result<(Cursor, Vec<Found>), Failure> {
    let mut found = Vec::new();
    let mut refused = Ok(());
    let next = if values {
        database.scan(from, count, |key, value| match copied(value) {
            _ if refused.is_err() => {}
            Ok(value) => found.push((key.to_vec(), Some(value))),
            Err(failure) => refused = Err(failure),
        })?
    } else {
        database.scan_keys(from, count, |key| found.push((key.to_vec(), None)))?
    };
    refused?;
    Ok((next, found))
}

/// The key, or the pair of key and value.
pub(crate) fn shown(py: Python<'_>, (key, value): Found) -> PyResult<Bound<'_, PyAny>> {
    let key = object(py, &key)?;
    match value {
        None => Ok(key.into_any()),
        Some(value) => Ok(PyTuple::new(py, [key, object(py, &value)?])?.into_any()),
    }
}

/// An iterator over keys, or over pairs of key and value.
///
/// A record that exists during the whole iteration is visited at least once.
#[pyclass(module = "mneme", frozen)]
pub(crate) struct Records {
    handle: Handle,
    values: bool,
    at: Mutex<At>,
}

struct At {
    next: Option<Cursor>,
    found: VecDeque<Found>,
}

impl Records {
    /// From the beginning; fails if the store was closed.
    pub(crate) fn new(handle: &Handle, values: bool) -> PyResult<Self> {
        handle.opened()?;
        let at = At {
            next: Some(Cursor::START),
            found: VecDeque::new(),
        };
        Ok(Self {
            handle: handle.clone(),
            values,
            at: Mutex::new(at),
        })
    }

    fn next(&self) -> Result<Option<Found>, Failure> {
        self.handle.opened()?;
        let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(found) = at.found.pop_front() {
                return Ok(Some(found));
            }
            let Some(from) = at.next else { return Ok(None) };
            let read = |database: Database<'_>| step(database, from, STEP, self.values);
            let (next, found) = self.handle.with(read)?;
            at.next = (next != Cursor::END).then_some(next);
            at.found = found.into();
        }
    }
}

#[pymethods]
impl Records {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let found = py.detach(|| self.next())?;
        found.map(|found| shown(py, found)).transpose()
    }
}
