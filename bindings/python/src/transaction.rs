//! `Store.transaction`: reads and changes several keys, of any databases, atomically.
//!
//! **The program's block runs without any lock.** Its reads are recorded and its writes are
//! buffered. At its end, one transaction of the store checks that all records that were read,
//! values and expiries, are unchanged, and then makes the changes. If the check fails, the block
//! has no effect.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mneme_log::{Expiry, Transaction as Attempt};
use mneme_sys::{Clock, SystemClock};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::arguments::{self, expiry, seconds_left};
use crate::copies::{copied, object};
use crate::errors::{Failure, Reason, failure, missing};
use crate::handle::Handle;
use crate::process::Origin;

/// A key and the number of its database.
type Place = (usize, Vec<u8>);

/// A value and its expiry; `None` if the record does not exist.
type Record = Option<(Py<PyBytes>, Expiry)>;

/// The state of a key in a transaction.
#[derive(Default)]
struct Known {
    /// The record that the store had, if it was read.
    seen: Option<Record>,
    /// The record that the block wants, if it has changed it.
    wanted: Option<Record>,
}

impl Known {
    /// The record as the block sees it.
    fn now(&self, py: Python<'_>) -> Option<Record> {
        let record = self.wanted.as_ref().or(self.seen.as_ref())?.as_ref();
        let live = record.filter(|(_, expiry)| match expiry {
            Expiry::Never => true,
            Expiry::At(ms) => *ms > SystemClock.wall_ms(),
        });
        Some(live.map(|(value, expiry)| (value.clone_ref(py), *expiry)))
    }
}

type Keys = BTreeMap<Place, Known>;

/// The state shared by the handles to a transaction's databases.
struct Shared {
    store: Handle,
    origin: Origin,
    /// `Some` while the block runs. Python is not called while this is locked.
    keys: Mutex<Option<Keys>>,
}

impl Shared {
    fn lock(&self) -> Result<MutexGuard<'_, Option<Keys>>, Failure> {
        self.origin.check()?;
        Ok(self.keys.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs `f` with the keys of the running block.
    fn keys<R>(&self, f: impl FnOnce(&mut Keys) -> R) -> Result<R, Failure> {
        let ended = || failure(Reason::Closed, "a transaction is used in its `with` block");
        self.lock()?.as_mut().map(f).ok_or_else(ended)
    }

    fn begin(&self) -> Result<(), Failure> {
        self.store.opened()?;
        let mut keys = self.lock()?;
        if keys.is_some() {
            let text = "the transaction runs already: make another one";
            return Err(failure(Reason::Nested, text));
        }
        *keys = Some(Keys::new());
        Ok(())
    }

    fn end(&self) -> Result<Keys, Failure> {
        Ok(self.lock()?.take().unwrap_or_default())
    }

    /// Makes the changes if all that was read is unchanged.
    fn commit(&self, py: Python<'_>, keys: &Keys) -> Result<(), Failure> {
        let opened = self.store.opened()?;
        let steps: Vec<_> = keys.iter().map(|(at, known)| step(py, at, known)).collect();
        py.detach(|| {
            opened.store.transaction(|attempt| {
                steps.iter().try_for_each(|step| step.check(attempt))?;
                steps.iter().try_for_each(|step| step.take(attempt))
            })
        })
    }
}

/// A value's bytes and expiry, usable without the GIL.
type Bytes<'a> = Option<(&'a [u8], Expiry)>;

/// A key in the commit.
struct Step<'a> {
    database: usize,
    key: &'a [u8],
    seen: Option<Bytes<'a>>,
    wanted: Option<Bytes<'a>>,
}

fn step<'a>(py: Python<'a>, (database, key): &'a Place, known: &'a Known) -> Step<'a> {
    let bytes = |record: &'a Record| -> Bytes<'a> {
        let (value, expiry) = record.as_ref()?;
        Some((value.as_bytes(py), *expiry))
    };
    Step {
        database: *database,
        key,
        seen: known.seen.as_ref().map(bytes),
        wanted: known.wanted.as_ref().map(bytes),
    }
}

fn conflict() -> Failure {
    let text = "something that the transaction read was changed meanwhile: nothing was done; run \
                it again, or let store.transact(function) do so";
    failure(Reason::Conflict, text)
}

impl Step<'_> {
    fn check(&self, attempt: &mut Attempt<'_>) -> Result<(), Failure> {
        let Some(seen) = self.seen else {
            return Ok(());
        };
        let mut database = attempt.database(self.database)?;
        let same = database.read(self.key, |stored| {
            stored.map(|stored| (stored.value, stored.expiry)) == seen
        })?;
        same.then_some(()).ok_or_else(conflict)
    }

    fn take(&self, attempt: &mut Attempt<'_>) -> Result<(), Failure> {
        let mut database = attempt.database(self.database)?;
        match self.wanted {
            None => {}
            Some(None) => drop(database.remove(self.key)?),
            Some(Some((value, expiry))) => database.put_until(self.key, value, expiry)?,
        }
        Ok(())
    }
}

/// Reads and changes several keys atomically: `with store.transaction() as t:`.
///
/// The block sees its own changes; others see none of them until the block has ended, and then all.
/// A record that was read once stays the same in the block. Nothing is locked while the block runs.
/// If something that it read was changed meanwhile, its end raises `Conflict`. If an exception
/// leaves the block, the transaction ends. In both cases nothing is changed.
#[pyclass(module = "mneme", frozen)]
pub(crate) struct Transaction {
    shared: Arc<Shared>,
    number: usize,
}

impl Transaction {
    pub(crate) fn new(store: &Handle) -> Self {
        let shared = Shared {
            store: store.clone(),
            origin: Origin::here(),
            keys: Mutex::new(None),
        };
        Self {
            shared: Arc::new(shared),
            number: store.number(),
        }
    }

    /// The record under a key as the block sees it. The first call for a key reads it from the
    /// store.
    fn record(&self, py: Python<'_>, key: &Bound<'_, PyBytes>) -> PyResult<Record> {
        let place = || (self.number, key.as_bytes().to_vec());
        let known = |keys: &mut Keys| keys.get(&place()).and_then(|known| known.now(py));
        if let Some(record) = self.shared.keys(known)? {
            return Ok(record);
        }
        let opened = self.shared.store.opened()?;
        let looked = opened.store.transaction(|attempt| {
            let mut database = attempt.database(self.number)?;
            database.read(key.as_bytes(), |stored| {
                stored.map(|stored| (copied(stored.value), stored.expiry))
            })
        });
        let found = looked.map_err(Failure::from)?;
        let shown = |(value, expiry): (Result<Vec<u8>, Failure>, Expiry)| {
            PyResult::Ok((object(py, &value?)?.unbind(), expiry))
        };
        let seen: Record = found.map(shown).transpose()?;
        let noted = self.shared.keys(|keys| {
            // Another thread of the block may have been faster; all threads must see the same
            // record.
            let known = match keys.entry(place()) {
                Entry::Occupied(there) => there.into_mut(),
                Entry::Vacant(free) => free.insert(Known::default()),
            };
            if known.now(py).is_none() {
                known.seen = Some(seen);
            }
            known.now(py)
        })?;
        Ok(noted.flatten())
    }

    fn want(&self, key: &Bound<'_, PyBytes>, wanted: Record) -> Result<(), Failure> {
        // Dropped after the lock is released.
        let _before = self.shared.keys(|keys| {
            let known = keys.entry((self.number, key.as_bytes().to_vec()));
            known.or_default().wanted.replace(wanted)
        })?;
        Ok(())
    }
}

#[pymethods]
impl Transaction {
    /// The value of a key, or `default`.
    #[pyo3(signature = (key, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let record = self.record(py, &arguments::key(key)?)?;
        Ok(record.map_or(default, |(value, _)| Some(value.into_bound(py).into_any())))
    }

    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.get(py, key, None)?.ok_or_else(|| missing(key))
    }

    fn __contains__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.record(py, &arguments::key(key)?)?.is_some())
    }

    /// Store a value. `expires`: seconds or a timedelta from now, or a datetime; None is never.
    #[pyo3(signature = (key, value, *, expires=None))]
    fn put(
        &self,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        expires: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let (key, value) = (arguments::key(key)?, arguments::value(value)?);
        Ok(self.want(&key, Some((value.unbind(), expiry(expires)?)))?)
    }

    fn __setitem__(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.put(key, value, None)
    }

    /// Remove a key; returns whether it existed.
    fn delete(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let key = arguments::key(key)?;
        let was_there = self.record(py, &key)?.is_some();
        if was_there {
            self.want(&key, None)?;
        }
        Ok(was_there)
    }

    fn __delitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let was_there = self.delete(py, key)?;
        was_there.then_some(()).ok_or_else(|| missing(key))
    }

    /// Change when a record expires (None: never); returns whether the record exists.
    fn expire(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        expires: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<bool> {
        let (key, expiry) = (arguments::key(key)?, expiry(expires)?);
        let Some((value, _)) = self.record(py, &key)? else {
            return Ok(false);
        };
        self.want(&key, Some((value, expiry)))?;
        Ok(true)
    }

    /// Seconds until the record expires; None if it never does. KeyError if the key does not exist.
    fn ttl(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
        let record = self.record(py, &arguments::key(key)?)?;
        let (_, expiry) = record.ok_or_else(|| missing(key))?;
        Ok(seconds_left(expiry))
    }

    /// Another database of the store, in the same transaction: 0 to 63.
    fn database(&self, number: usize) -> PyResult<Self> {
        self.shared.store.database(number)?;
        Ok(Self {
            shared: Arc::clone(&self.shared),
            number,
        })
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyResult<PyRef<'_, Self>> {
        this.shared.begin()?;
        Ok(this)
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let keys = self.shared.end()?;
        if kind.is_none() {
            self.shared.commit(py, &keys)?;
        }
        Ok(())
    }
}

/// Calls `function` with a transaction until there is no conflict; returns its result.
pub(crate) fn transact<'py>(
    store: &Handle,
    function: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = function.py();
    if !function.is_callable() {
        let text = "the function is called with the transaction";
        return Err(PyTypeError::new_err(text));
    }
    loop {
        let attempt = Bound::new(py, Transaction::new(store))?;
        let shared = Arc::clone(&attempt.get().shared);
        shared.begin()?;
        let result = function.call1((attempt,));
        let keys = shared.end()?;
        let result = result?;
        match shared.commit(py, &keys) {
            Ok(()) => return Ok(result),
            Err(Failure::Of(Reason::Conflict, _)) => py.check_signals()?,
            Err(failed) => return Err(failed.into()),
        }
    }
}
