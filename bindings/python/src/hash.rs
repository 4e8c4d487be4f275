//! `Hash`: maps fields to values, under one key of a database.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use mneme_collections::Hash as StoredHash;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::arguments;
use crate::batches::{all, bytes_of, items_of};
use crate::errors::Failure;
use crate::iterate::{Found, shown};
use crate::store::{Handle, missing};

/// The hash under a key: a mapping from fields to values. `store.hash(key)` returns one.
///
/// It refers to the key and holds no copy: each call reads the current contents. If the key does
/// not exist, the hash is empty; when its last field is removed, the key is removed too.
#[pyclass(module = "mneme", frozen, name = "Hash")]
pub(crate) struct Hash {
    handle: Arc<Handle>,
    number: usize,
    key: Vec<u8>,
}

impl Hash {
    pub(crate) fn new(handle: Arc<Handle>, number: usize, key: Vec<u8>) -> Self {
        Self {
            handle,
            number,
            key,
        }
    }

    /// Runs `f` without the GIL, since a hash may be long and other threads may change it.
    fn with<R: Send>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(StoredHash<'_, '_>) -> Result<R, mneme_collections::CollectionError> + Send,
    ) -> Result<R, Failure> {
        let opened = self.handle.opened()?;
        py.detach(|| {
            let database = opened.store.database(self.number)?;
            Ok(run(StoredHash::new(database, &self.key))?)
        })
    }

    fn found(&self, py: Python<'_>, values: bool) -> Result<Vec<Found>, Failure> {
        self.with(py, |hash| {
            let mut found = Vec::new();
            hash.for_each(|field, value| {
                found.push((field.to_vec(), values.then(|| value.to_vec())));
            })?;
            Ok(found)
        })
    }
}

#[pymethods]
impl Hash {
    /// The hash's key.
    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.key)
    }

    /// The value of a field, or `default`.
    #[pyo3(signature = (field, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        field: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let field = arguments::key(field)?;
        let field = field.as_bytes();
        let value = self.with(py, |hash| hash.get(field))?;
        Ok(match value {
            Some(value) => Some(PyBytes::new(py, &value).into_any()),
            None => default,
        })
    }

    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        field: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.get(py, field, None)?.ok_or_else(|| missing(field))
    }

    /// Set a field; returns whether it is new.
    fn put(
        &self,
        py: Python<'_>,
        field: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let (field, value) = (arguments::key(field)?, arguments::value(value)?);
        let (field, value) = (field.as_bytes(), value.as_bytes());
        Ok(self.with(py, |hash| hash.set(field, value))?)
    }

    fn __setitem__(
        &self,
        py: Python<'_>,
        field: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.put(py, field, value).map(drop)
    }

    /// Set a field unless it exists; returns whether it was set.
    fn put_new(
        &self,
        py: Python<'_>,
        field: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let (field, value) = (arguments::key(field)?, arguments::value(value)?);
        let (field, value) = (field.as_bytes(), value.as_bytes());
        Ok(self.with(py, |hash| hash.insert_new(field, value))?)
    }

    /// Remove a field; returns whether it existed.
    fn delete(&self, py: Python<'_>, field: &Bound<'_, PyAny>) -> PyResult<bool> {
        let field = arguments::key(field)?;
        let field = field.as_bytes();
        Ok(self.with(py, |hash| hash.remove(field))?)
    }

    fn __delitem__(&self, py: Python<'_>, field: &Bound<'_, PyAny>) -> PyResult<()> {
        match self.delete(py, field)? {
            true => Ok(()),
            false => Err(missing(field)),
        }
    }

    /// The values of several fields at one instant; None for fields that do not exist.
    fn get_many<'py>(
        &self,
        py: Python<'py>,
        fields: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let fields = all(fields)?;
        let fields = bytes_of(&fields);
        let values = self.with(py, |hash| hash.get_many(&fields))?;
        let values = values.into_iter();
        let values = values.map(|value| value.map(|value| PyBytes::new(py, &value)));
        PyList::new(py, values.collect::<Vec<_>>())
    }

    /// Set several fields atomically, from a dictionary or pairs; returns how many are new.
    fn put_many(&self, py: Python<'_>, pairs: &Bound<'_, PyAny>) -> PyResult<usize> {
        let (fields, values) = items_of(pairs)?;
        let pairs: Vec<_> = (bytes_of(&fields).into_iter())
            .zip(bytes_of(&values))
            .collect();
        Ok(self.with(py, |hash| hash.set_many(&pairs))?)
    }

    /// Remove several fields atomically; returns how many existed.
    fn delete_many(&self, py: Python<'_>, fields: &Bound<'_, PyAny>) -> PyResult<usize> {
        let fields = all(fields)?;
        let fields = bytes_of(&fields);
        Ok(self.with(py, |hash| hash.remove_many(&fields))?)
    }

    /// Add to the integer in a field; a field that does not exist counts as 0. Returns the sum.
    #[pyo3(signature = (field, by=1))]
    fn increment(&self, py: Python<'_>, field: &Bound<'_, PyAny>, by: i64) -> PyResult<i64> {
        let field = arguments::key(field)?;
        let field = field.as_bytes();
        Ok(self.with(py, |hash| hash.increment(field, by))?)
    }

    /// An iterator over the fields at one instant.
    fn keys(&self, py: Python<'_>) -> PyResult<Fields> {
        Ok(Fields::new(self.found(py, false)?))
    }

    /// An iterator over pairs of field and value at one instant.
    fn items(&self, py: Python<'_>) -> PyResult<Fields> {
        Ok(Fields::new(self.found(py, true)?))
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<Fields> {
        self.keys(py)
    }

    fn __contains__(&self, py: Python<'_>, field: &Bound<'_, PyAny>) -> PyResult<bool> {
        let field = arguments::key(field)?;
        let field = field.as_bytes();
        Ok(self.with(py, |hash| hash.contains(field))?)
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.with(py, |hash| hash.len())?)
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __repr__(&self) -> String {
        format!("<mneme.Hash b\"{}\">", self.key.escape_ascii())
    }
}

/// An iterator over copies of a hash's fields, or of its pairs of field and value.
#[pyclass(module = "mneme", frozen)]
pub(crate) struct Fields(Mutex<VecDeque<Found>>);

impl Fields {
    fn new(found: Vec<Found>) -> Self {
        Self(Mutex::new(found.into()))
    }
}

#[pymethods]
impl Fields {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        // The lock is released before Python is called.
        let found = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop_front();
        found.map(|found| shown(py, found)).transpose()
    }
}
