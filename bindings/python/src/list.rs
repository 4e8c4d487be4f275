//! `List`: byte strings in an order, under one key of a database.

use mneme_collections::{End, List as StoredList, index_within};
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyIterator, PyList, PySlice};

use crate::arguments;
use crate::batches::{bytes_of, values};
use crate::collections::CollectionKey;
use crate::copies::{listed, object};
use crate::slices::Slice;

/// The list under a key: byte strings in an order, like a `deque`. `store.list(key)` returns one.
///
/// It refers to the key and holds no copy: each call reads the current contents. If the key does
/// not exist, the list is empty; when its last item is removed, the key is removed too.
#[pyclass(module = "mneme", frozen, name = "List")]
pub(crate) struct List(pub(crate) CollectionKey<StoredList<'static, 'static>>);

impl List {
    fn push(&self, py: Python<'_>, end: End, item: &Bound<'_, PyAny>) -> PyResult<usize> {
        let item = arguments::value(item)?;
        let item = item.as_bytes();
        self.0.with(py, |list| list.push(end, &[item]))
    }

    fn push_many(&self, py: Python<'_>, end: End, items: &Bound<'_, PyAny>) -> PyResult<usize> {
        let items = values(items)?;
        let items = bytes_of(&items);
        self.0.with(py, |list| list.push(end, &items))
    }

    fn pop_from<'py>(&self, py: Python<'py>, end: End) -> PyResult<Bound<'py, PyBytes>> {
        match self.0.with(py, |list| list.pop(end))? {
            Some(item) => object(py, &item),
            None => Err(PyIndexError::new_err("pop from an empty list")),
        }
    }

    fn pop_many_from<'py>(
        &self,
        py: Python<'py>,
        end: End,
        count: usize,
    ) -> PyResult<Bound<'py, PyList>> {
        listed(py, self.0.with(py, |list| list.pop_many(end, count))?)
    }

    fn insert(
        &self,
        py: Python<'_>,
        pivot: &Bound<'_, PyAny>,
        is_before: bool,
        item: &Bound<'_, PyAny>,
    ) -> PyResult<usize> {
        let (pivot, item) = (arguments::value(pivot)?, arguments::value(item)?);
        let (pivot, item) = (pivot.as_bytes(), item.as_bytes());
        let insert =
            |list: StoredList<'_, '_>| list.change(|list| list.insert(pivot, is_before, item));
        self.0.with(py, insert)?.ok_or_else(not_there)
    }

    fn positions(
        &self,
        py: Python<'_>,
        item: &Bound<'_, PyAny>,
        count: usize,
    ) -> PyResult<Vec<usize>> {
        let item = arguments::value(item)?;
        let item = item.as_bytes();
        self.0
            .with(py, |list| list.positions(item, End::Front, count))
    }

    fn sliced<'py>(&self, py: Python<'py>, slice: Slice) -> PyResult<Bound<'py, PyList>> {
        let items = (self.0).with(py, |list| list.range_by_len(|len| positions(slice, len)))?;
        listed(py, slice.pick(items))
    }
}

/// The positions of a slice's items in a list of `len`.
fn positions(slice: Slice, len: usize) -> std::ops::Range<usize> {
    let positions = slice.within(len as u64);
    positions.start as usize..positions.end as usize
}

fn not_there() -> PyErr {
    PyValueError::new_err("the item is not in the list")
}

fn out_of_range() -> PyErr {
    PyIndexError::new_err("list index out of range")
}

#[pymethods]
impl List {
    /// The list's key.
    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        self.0.key(py)
    }

    /// Add an item at the end; returns the list's length then.
    fn append(&self, py: Python<'_>, item: &Bound<'_, PyAny>) -> PyResult<usize> {
        self.push(py, End::Back, item)
    }

    /// Add an item at the beginning; returns the list's length then.
    fn appendleft(&self, py: Python<'_>, item: &Bound<'_, PyAny>) -> PyResult<usize> {
        self.push(py, End::Front, item)
    }

    /// Add several items at the end atomically; returns the list's length then.
    fn extend(&self, py: Python<'_>, items: &Bound<'_, PyAny>) -> PyResult<usize> {
        self.push_many(py, End::Back, items)
    }

    /// Add several items at the beginning atomically, one after the other, so that the last one
    /// becomes the first; returns the list's length then.
    fn extendleft(&self, py: Python<'_>, items: &Bound<'_, PyAny>) -> PyResult<usize> {
        self.push_many(py, End::Front, items)
    }

    /// Remove the last item and return it; raises `IndexError` if the list is empty.
    fn pop<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.pop_from(py, End::Back)
    }

    /// Remove the first item and return it; raises `IndexError` if the list is empty.
    fn popleft<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.pop_from(py, End::Front)
    }

    /// Remove up to `count` items from the end atomically and return them, the last one first.
    fn pop_many<'py>(&self, py: Python<'py>, count: usize) -> PyResult<Bound<'py, PyList>> {
        self.pop_many_from(py, End::Back, count)
    }

    /// Remove up to `count` items from the beginning atomically and return them in order.
    fn popleft_many<'py>(&self, py: Python<'py>, count: usize) -> PyResult<Bound<'py, PyList>> {
        self.pop_many_from(py, End::Front, count)
    }

    /// Add an item before the first one that equals `pivot`; returns its index. Raises `ValueError`
    /// if there is no such item.
    fn insert_before(
        &self,
        py: Python<'_>,
        pivot: &Bound<'_, PyAny>,
        item: &Bound<'_, PyAny>,
    ) -> PyResult<usize> {
        self.insert(py, pivot, true, item)
    }

    /// Add an item after the first one that equals `pivot`; returns its index. Raises `ValueError`
    /// if there is no such item.
    fn insert_after(
        &self,
        py: Python<'_>,
        pivot: &Bound<'_, PyAny>,
        item: &Bound<'_, PyAny>,
    ) -> PyResult<usize> {
        self.insert(py, pivot, false, item)
    }

    /// Remove the first item that equals `item`; raises `ValueError` if there is none.
    fn remove(&self, py: Python<'_>, item: &Bound<'_, PyAny>) -> PyResult<()> {
        match self.discard(py, item, Some(1), false)? {
            0 => Err(not_there()),
            _ => Ok(()),
        }
    }

    /// Remove the items that equal `item` atomically, or the first `count` of them, from the end if
    /// `reverse`; returns how many there were.
    #[pyo3(signature = (item, count=None, *, reverse=false))]
    fn discard(
        &self,
        py: Python<'_>,
        item: &Bound<'_, PyAny>,
        count: Option<usize>,
        reverse: bool,
    ) -> PyResult<usize> {
        let item = arguments::value(item)?;
        let item = item.as_bytes();
        let from = if reverse { End::Back } else { End::Front };
        let count = match count {
            Some(0) => return Ok(0),
            // To the list it means all.
            None => 0,
            Some(count) => count,
        };
        (self.0).with(py, |list| {
            list.change(|list| list.remove(from, count, item))
        })
    }

    /// Remove all items but those that a slice from `start` to `stop` has, atomically.
    #[pyo3(signature = (start=0, stop=None))]
    fn trim(&self, py: Python<'_>, start: i64, stop: Option<i64>) -> PyResult<()> {
        let slice = Slice::new(start, stop);
        let trim = |list: StoredList<'_, '_>| {
            list.change(|list| {
                let kept = positions(slice, list.len()?);
                list.trim(kept)
            })
        };
        self.0.with(py, trim)
    }

    /// The index of the first item that equals `item`; raises `ValueError` if there is none.
    fn index(&self, py: Python<'_>, item: &Bound<'_, PyAny>) -> PyResult<usize> {
        self.positions(py, item, 1)?.pop().ok_or_else(not_there)
    }

    /// How many items equal `item`.
    fn count(&self, py: Python<'_>, item: &Bound<'_, PyAny>) -> PyResult<usize> {
        Ok(self.positions(py, item, usize::MAX)?.len())
    }

    /// An item, or a list of those of a slice at one instant.
    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        index: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if let Ok(slice) = index.cast::<PySlice>() {
            return Ok(self.sliced(py, Slice::read(slice)?)?.into_any());
        }
        let index = index.extract::<i64>()?;
        let found = self.0.with(py, |list| {
            list.range_by_len(|len| match index_within(index, len) {
                Some(index) => index..index + 1,
                None => 0..0,
            })
        });
        let item = found?.pop().ok_or_else(out_of_range)?;
        Ok(object(py, &item)?.into_any())
    }

    fn __setitem__(&self, py: Python<'_>, index: i64, item: &Bound<'_, PyAny>) -> PyResult<()> {
        let item = arguments::value(item)?;
        let item = item.as_bytes();
        let set = |list: StoredList<'_, '_>| {
            list.change(|list| match index_within(index, list.len()?) {
                Some(index) => list.set(index, item),
                None => Ok(false),
            })
        };
        match self.0.with(py, set)? {
            true => Ok(()),
            false => Err(out_of_range()),
        }
    }

    /// An iterator over the items at one instant.
    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.sliced(py, Slice::new(0, None))?.try_iter()
    }

    /// An iterator over the items at one instant, the last one first.
    fn __reversed__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        let items = self.sliced(py, Slice::new(0, None))?;
        items.reverse()?;
        items.try_iter()
    }

    fn __contains__(&self, py: Python<'_>, item: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(!self.positions(py, item, 1)?.is_empty())
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.0.with(py, |list| list.len())
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __repr__(&self) -> String {
        self.0.shown("List")
    }
}
