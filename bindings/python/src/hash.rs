//! `Hash`: maps fields to values, under one key of a database.

use mneme_collections::Hash as StoredHash;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyIterator, PyList, PyTuple};

use crate::arguments;
use crate::batches::{bytes_of, items_of};
use crate::collections::CollectionKey;
use crate::copies::{object, scanned};
use crate::errors::missing;
use crate::iterate::{Found, shown};

/// The hash under a key: a mapping from fields to values. `store.hash(key)` returns one.
///
/// It refers to the key and holds no copy: each call reads the current contents. If the key does
/// not exist, the hash is empty; when its last field is removed, the key is removed too.
#[pyclass(module = "mneme", frozen, name = "Hash")]
pub(crate) struct Hash(pub(crate) CollectionKey<StoredHash<'static, 'static>>);

impl Hash {
    fn found<'py>(&self, py: Python<'py>, values: bool) -> PyResult<Bound<'py, PyList>> {
        let found = self.0.with(py, |hash| {
            let mut found = Vec::new();
            hash.for_each(|field, value| {
                found.push((field.to_vec(), values.then(|| value.to_vec())));
            })?;
            Ok(found)
        })?;
        listed(py, found)
    }
}

/// A list of fields, or of pairs of field and value.
fn listed(py: Python<'_>, found: Vec<Found>) -> PyResult<Bound<'_, PyList>> {
    let found = found.into_iter().map(|found| shown(py, found));
    PyList::new(py, found.collect::<PyResult<Vec<_>>>()?)
}

#[pymethods]
impl Hash {
    /// The hash's key.
    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        self.0.key(py)
    }

    /// The value of a field, or `default`.
    #[pyo3(signature = (field, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        field: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let value = self.0.with_one(field, |hash, field| hash.get(field))?;
        Ok(match value {
            Some(value) => Some(object(py, &value)?.into_any()),
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
        self.0.with(py, |hash| hash.set(field, value))
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
        self.0.with(py, |hash| hash.insert_new(field, value))
    }

    /// Remove a field; returns whether it existed.
    fn delete(&self, field: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.0.with_one(field, |hash, field| hash.remove(field))
    }

    fn __delitem__(&self, field: &Bound<'_, PyAny>) -> PyResult<()> {
        match self.delete(field)? {
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
        let values = (self.0).with_many(fields, |hash, fields| hash.get_many(fields))?;
        let values = values.into_iter();
        let values = values.map(|value| value.map(|value| object(py, &value)).transpose());
        PyList::new(py, values.collect::<PyResult<Vec<_>>>()?)
    }

    /// Set several fields atomically, from a dictionary or pairs; returns how many are new.
    fn put_many(&self, py: Python<'_>, pairs: &Bound<'_, PyAny>) -> PyResult<usize> {
        let (fields, values) = items_of(pairs)?;
        let pairs: Vec<_> = (bytes_of(&fields).into_iter())
            .zip(bytes_of(&values))
            .collect();
        self.0.with(py, |hash| hash.set_many(&pairs))
    }

    /// Remove several fields atomically; returns how many existed.
    fn delete_many(&self, fields: &Bound<'_, PyAny>) -> PyResult<usize> {
        self.0
            .with_many(fields, |hash, fields| hash.remove_many(fields))
    }

    /// Add to the integer in a field; a field that does not exist counts as 0. Returns the sum.
    #[pyo3(signature = (field, by=1))]
    fn increment(&self, field: &Bound<'_, PyAny>, by: i64) -> PyResult<i64> {
        self.0
            .with_one(field, |hash, field| hash.increment(field, by))
    }

    /// An iterator over the fields at one instant.
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.found(py, false)?.try_iter()
    }

    /// An iterator over pairs of field and value at one instant.
    fn items<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.found(py, true)?.try_iter()
    }

    /// A step of a walk through the fields: the next cursor, which is 0 at the end, and some
    /// `count` pairs of field and value. Each field that exists during the whole walk is visited.
    #[pyo3(signature = (cursor=0, count=100))]
    fn scan<'py>(
        &self,
        py: Python<'py>,
        cursor: u64,
        count: usize,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let (pairs, next) = self.0.with(py, |hash| hash.scan(cursor, count))?;
        let pairs = pairs.into_iter();
        let pairs = pairs.map(|(field, value)| (field, Some(value))).collect();
        scanned(py, next, listed(py, pairs)?)
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.keys(py)
    }

    fn __contains__(&self, field: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.0.with_one(field, |hash, field| hash.contains(field))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.0.with(py, |hash| hash.len())
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __repr__(&self) -> String {
        self.0.shown("Hash")
    }
}
