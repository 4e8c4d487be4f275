//! `Store`: one database of an open store.

use mneme_log::{Cursor, Database, Expiry};
use mneme_space::Access;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyMemoryView, PyTuple};

use crate::arguments::{self, evict_name, expiry, seconds_left};
use crate::batches;
use crate::buffer::view_of;
use crate::collections::CollectionKey;
use crate::copies::{object, scanned};
use crate::errors::{Failure, missing};
use crate::handle::{Handle, Kind};
use crate::hash::Hash;
use crate::iterate::{Records, shown, step};
use crate::list::List;
use crate::options::Wanted;
use crate::set::Set;
use crate::sorted_set::SortedSet;
use crate::transaction::{self, Transaction};
use crate::update;

/// The length in bytes from which values are copied with the GIL released.
const LONG: usize = 32 << 10;

/// One database of a store: a mapping from keys to values.
///
/// `Store(capacity)` is a store in this process alone. `attach`, `create` and `open_or_create`
/// return those that processes share.
#[pyclass(module = "mneme", frozen, weakref, name = "Store")]
pub(crate) struct Store(pub(crate) Handle);

impl Store {
    fn put_bytes(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyBytes>,
        value: &[u8],
        expiry: Expiry,
    ) -> Result<(), Failure> {
        let key = key.as_bytes();
        let put = || {
            self.0
                .with(|database| Ok(database.put_until(key, value, expiry)?))
        };
        if value.len() < LONG {
            put()
        } else {
            py.detach(put)
        }
    }

    fn remove(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let key = arguments::key(key)?;
        Ok((self.0).with(|database| Ok(database.remove(key.as_bytes())?))?)
    }
}

#[pymethods]
impl Store {
    /// The value of a key, or `default`.
    #[pyo3(signature = (key, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let key = arguments::key(key)?;
        let found = self.0.with(|database| {
            let value = database.get(key.as_bytes())?;
            Ok(value.map(|value| object(py, &value)))
        })?;
        Ok(found.transpose()?.map(Bound::into_any).or(default))
    }

    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.get(py, key, None)?.ok_or_else(|| missing(key))
    }

    /// Store a value. `expires`: seconds or a timedelta from now, or a datetime; None is never.
    #[pyo3(signature = (key, value, *, expires=None))]
    fn put(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        expires: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let (key, value) = (arguments::key(key)?, arguments::value(value)?);
        Ok(self.put_bytes(py, &key, value.as_bytes(), expiry(expires)?)?)
    }

    fn __setitem__(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.put(py, key, value, None)
    }

    /// Remove a key; returns whether it existed.
    fn delete(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.remove(key)
    }

    fn __delitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        self.remove(key)?.then_some(()).ok_or_else(|| missing(key))
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let key = arguments::key(key)?;
        Ok((self.0).with(|database| Ok(database.contains(key.as_bytes())?))?)
    }

    fn __len__(&self) -> PyResult<usize> {
        // No machine has more memory than `usize` can count.
        Ok(self.0.with(|database| Ok(database.try_len()? as usize))?)
    }

    fn __bool__(&self) -> bool {
        true
    }

    /// The values of several keys, looked up in parallel; None for keys that do not exist.
    fn get_many<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        batches::get(py, &self.0, keys)
    }

    /// Store several records, from a dictionary or pairs of key and value; returns how many. A
    /// batch is not atomic: if it fails, the exception's `done` is the number of records stored.
    #[pyo3(signature = (pairs, *, expires=None))]
    fn put_many(
        &self,
        py: Python<'_>,
        pairs: &Bound<'_, PyAny>,
        expires: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<usize> {
        batches::put(py, &self.0, pairs, expiry(expires)?)
    }

    /// Remove keys; returns how many existed.
    fn delete_many(&self, py: Python<'_>, keys: &Bound<'_, PyAny>) -> PyResult<usize> {
        batches::delete(py, &self.0, keys)
    }

    /// Change a record atomically: `function` is called with its value, or None, and returns the
    /// new value, or None to remove the record. Returns the function's result. The record keeps its
    /// expiry.
    ///
    /// The function runs without any lock, on a copy. If the record was changed meanwhile, it is
    /// called again.
    fn update<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        function: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        update::update(&self.0, py, key, function)
    }

    /// Read and change several keys atomically: `with store.transaction() as t:`. Nothing is locked
    /// in the block. If something that it read was changed meanwhile, the end of the block raises
    /// `Conflict`, and nothing is changed.
    fn transaction(&self) -> PyResult<Transaction> {
        self.0.opened()?;
        Ok(Transaction::new(&self.0))
    }

    /// Call a function with a transaction, again after each conflict; returns its result. Other
    /// effects of the function may happen several times. If it raises an exception, nothing is
    /// changed.
    fn transact<'py>(&self, function: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        transaction::transact(&self.0, function)
    }

    /// Change when a record expires (None: never); returns whether the record exists.
    fn expire(&self, key: &Bound<'_, PyAny>, expires: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
        let (key, expiry) = (arguments::key(key)?, expiry(expires)?);
        Ok((self.0).with(|database| Ok(database.set_expiry(key.as_bytes(), expiry)?))?)
    }

    /// Seconds until the record expires; None if it never does. KeyError if the key does not exist.
    fn ttl(&self, key: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
        let bytes = arguments::key(key)?;
        let expiry = (self.0).with(|database| Ok(database.expiry(bytes.as_bytes())?))?;
        Ok(seconds_left(expiry.ok_or_else(|| missing(key))?))
    }

    /// About `count` records from a cursor on. Returns the cursor to continue at, 0 at the end, and
    /// a list of pairs. A record that exists during the whole scan is visited at least once.
    #[pyo3(signature = (cursor=0, count=100))]
    fn scan<'py>(
        &self,
        py: Python<'py>,
        cursor: u64,
        count: usize,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let from = Cursor::from_u64(cursor);
        let read = |database: Database<'_>| step(database, from, count, true);
        let (next, found) = py.detach(|| self.0.with(read))?;
        let found = found.into_iter().map(|found| shown(py, found));
        let found = PyList::new(py, found.collect::<PyResult<Vec<_>>>()?)?;
        let next = if next == Cursor::END {
            0
        } else {
            next.to_u64()
        };
        scanned(py, next, found)
    }

    fn __iter__(&self) -> PyResult<Records> {
        self.keys()
    }

    /// An iterator over the keys.
    fn keys(&self) -> PyResult<Records> {
        Records::new(&self.0, false)
    }

    /// An iterator over pairs of key and value.
    fn items(&self) -> PyResult<Records> {
        Records::new(&self.0, true)
    }

    /// Remove all records of this database.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        Ok(py.detach(|| self.0.with(|database| Ok(database.clear()?)))?)
    }

    /// A read-only memoryview of a value; use it as a context manager. KeyError if it is not there.
    ///
    /// A store in this process lends values of 256 KiB and more in place: nothing is copied, and
    /// memory that is freed meanwhile is reused only after the last view is gone. Other values are
    /// copied.
    fn view<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let bytes = arguments::key(key)?;
        let opened = self.0.opened()?;
        if matches!(&opened.store, Kind::Private(_)) {
            let wanted = bytes.as_bytes().to_vec();
            let lent = py.detach(|| opened.lend_if_long(self.0.number(), wanted))?;
            if let Some(lent) = lent {
                let memory = lent.into_memory(&opened);
                // SAFETY: the lender thread keeps the value unchanged while `Lent` lives.
                return unsafe { view_of(py, memory) };
            }
        }
        let value = self.get(py, key, None)?.ok_or_else(|| missing(key))?;
        py.get_type::<PyMemoryView>().call1((value,))
    }

    /// Another database of the store: 0 to 63. It closes with this one.
    fn database(&self, number: usize) -> PyResult<Self> {
        Ok(Self(self.0.database(number)?))
    }

    /// The hash under a key, which maps fields to values, as for Redis commands. It closes with the
    /// store.
    fn hash(&self, key: &Bound<'_, PyAny>) -> PyResult<Hash> {
        Ok(Hash(CollectionKey::new(&self.0, key)?))
    }

    /// The list under a key, as for Redis commands. It closes with the store.
    fn list(&self, key: &Bound<'_, PyAny>) -> PyResult<List> {
        Ok(List(CollectionKey::new(&self.0, key)?))
    }

    /// The set under a key, as for Redis commands. It closes with the store.
    fn set(&self, key: &Bound<'_, PyAny>) -> PyResult<Set> {
        Ok(Set(CollectionKey::new(&self.0, key)?))
    }

    /// The sorted set under a key, which maps members to scores, as for Redis commands. It closes
    /// with the store.
    fn sorted_set(&self, key: &Bound<'_, PyAny>) -> PyResult<SortedSet> {
        Ok(SortedSet(CollectionKey::new(&self.0, key)?))
    }

    /// The use of the store's bytes: a dictionary from names to numbers.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let opened = self.0.opened()?;
        let stats = py.detach(|| opened.store.stats());
        let all = PyDict::new(py);
        for (name, number) in [
            ("capacity", stats.capacity),
            ("max_capacity", stats.max_capacity),
            ("records", stats.records),
            ("live_bytes", stats.live_bytes),
            ("stale_bytes", stats.stale_bytes),
            ("index_bytes", stats.index_bytes),
            ("head_bytes", stats.head_bytes),
            ("overhead_bytes", stats.overhead_bytes),
            ("free_bytes", stats.free_bytes),
            ("reserve_bytes", stats.reserve_bytes),
            ("moved_bytes", stats.moved_bytes),
            ("evicted", stats.evicted),
            ("evicted_bytes", stats.evicted_bytes),
            ("expired", stats.expired),
        ] {
            all.set_item(name, number)?;
        }
        all.set_item("evict", evict_name(opened.store.eviction()))?;
        all.set_item("maintains", opened.store.maintains())?;
        Ok(all)
    }

    /// The problems found, as texts; empty if the store is sound.
    fn check(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let opened = self.0.opened()?;
        let report = py.detach(|| opened.store.check()).map_err(Failure::from)?;
        Ok(report.problems.iter().map(ToString::to_string).collect())
    }

    /// Detach from the store. Raises `InUse` while views of values are used.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        Ok(py.detach(|| self.0.close())?)
    }

    /// Whether it was closed, or belongs to the parent of this forked process.
    #[getter]
    fn closed(&self) -> bool {
        self.0.opened().is_err()
    }

    /// Whether it was attached for writing.
    #[getter]
    fn writable(&self) -> PyResult<bool> {
        Ok(match &self.0.opened()?.store {
            Kind::Private(_) => true,
            Kind::Shared(store) => store.access() == Access::ReadWrite,
        })
    }

    /// The segment's name; None of a store in this process.
    #[getter]
    fn name(&self) -> Option<String> {
        self.0.home().map(|home| home.name.clone())
    }

    /// The number of the database.
    #[getter]
    fn number(&self) -> usize {
        self.0.number()
    }

    #[new]
    #[pyo3(
        signature = (capacity=None, **options),
        text_signature = "(capacity='1GiB', *, max_capacity=None, evict='none', in_place=False, \
                          maintainer=True)"
    )]
    fn private(
        py: Python<'_>,
        capacity: Option<&Bound<'_, PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let wanted = Wanted::read(capacity, options, false)?;
        Ok(Self(py.detach(|| wanted.private())?))
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        let of = match self.0.home() {
            Some(home) => format!("{:?}", home.name),
            None => "in this process".to_owned(),
        };
        let closed = if self.closed() { ", closed" } else { "" };
        format!("<mneme.Store {of}, database {}{closed}>", self.0.number())
    }

    /// Pickles the name; unpickling attaches the store.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let Some(home) = self.0.home() else {
            let text = "a store in this process cannot be sent to another: make it with \
                        mneme.create(name), and attach it there";
            return Err(PyTypeError::new_err(text));
        };
        let again = py.import("mneme")?.getattr("_attach_again")?;
        let with = (&home.name, home.writable, &home.registry, self.0.number());
        let with = with.into_pyobject(py)?;
        PyTuple::new(py, [again, with.into_any()])
    }
}
