//! `Set`: byte strings, each once, under one key of a database.

use mneme_collections::{Lot, Set as StoredSet};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyIterator, PyList, PyTuple};

use crate::collections::CollectionKey;
use crate::copies::{listed, object, scanned};
use crate::errors::missing;

/// The set under a key: byte strings, each once. `store.set(key)` returns one.
///
/// It refers to the key and holds no copy: each call reads the current contents. If the key does
/// not exist, the set is empty; when its last member is removed, the key is removed too.
#[pyclass(module = "mneme", frozen, name = "Set")]
pub(crate) struct Set(pub(crate) CollectionKey<StoredSet<'static, 'static>>);

#[pymethods]
impl Set {
    /// The set's key.
    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        self.0.key(py)
    }

    /// Add a member; returns whether it is new.
    fn add(&self, member: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.0.with_one(member, |set, member| set.add(member))
    }

    /// Add several members atomically; returns how many are new.
    fn add_many(&self, members: &Bound<'_, PyAny>) -> PyResult<usize> {
        self.0
            .with_many(members, |set, members| set.add_many(members))
    }

    /// Remove a member; raises `KeyError` if it is none.
    fn remove(&self, member: &Bound<'_, PyAny>) -> PyResult<()> {
        match self.discard(member)? {
            true => Ok(()),
            false => Err(missing(member)),
        }
    }

    /// Remove a member if it is one; returns whether it was.
    fn discard(&self, member: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.0.with_one(member, |set, member| set.remove(member))
    }

    /// Remove several members atomically; returns how many there were.
    fn discard_many(&self, members: &Bound<'_, PyAny>) -> PyResult<usize> {
        self.0
            .with_many(members, |set, members| set.remove_many(members))
    }

    /// For each of several members, whether it is one, at one instant.
    fn contains_many(&self, members: &Bound<'_, PyAny>) -> PyResult<Vec<bool>> {
        self.0
            .with_many(members, |set, members| set.contains_many(members))
    }

    /// Remove a random member and return it; raises `KeyError` if the set is empty.
    fn pop<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        match self.0.with(py, |set| set.pop())? {
            Some(member) => object(py, &member),
            None => Err(PyKeyError::new_err("pop from an empty set")),
        }
    }

    /// Remove up to `count` random members atomically and return them.
    fn pop_many<'py>(&self, py: Python<'py>, count: usize) -> PyResult<Bound<'py, PyList>> {
        let mut lot = Lot::new();
        let members = (self.0).with(py, |set| set.change(|set| set.pop_many(count, &mut lot)))?;
        listed(py, members)
    }

    /// A random member, which stays, or None if the set is empty.
    fn random<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let member = self.0.with(py, |set| set.random())?;
        member.map(|member| object(py, &member)).transpose()
    }

    /// A step of a walk through the members: the next cursor, which is 0 at the end, and some
    /// `count` members. Each member that exists during the whole walk is visited.
    #[pyo3(signature = (cursor=0, count=100))]
    fn scan<'py>(
        &self,
        py: Python<'py>,
        cursor: u64,
        count: usize,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let (members, next) = self.0.with(py, |set| set.scan(cursor, count))?;
        scanned(py, next, listed(py, members)?)
    }

    /// An iterator over the members at one instant.
    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        listed(py, self.0.with(py, |set| set.members())?)?.try_iter()
    }

    fn __contains__(&self, member: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.0.with_one(member, |set, member| set.contains(member))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.0.with(py, |set| set.len())
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __repr__(&self) -> String {
        self.0.shown("Set")
    }
}
