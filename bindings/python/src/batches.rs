//! Calls that handle several records. **Other Python threads run during a batch**: keys and values
//! are immutable objects or copies, and the GIL is released.

use mneme_log::{BatchError, Database, Expiry};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::arguments;
use crate::copies::{append, object};
use crate::errors::Failure;
use crate::handle::Handle;

/// The keys as immutable objects.
pub(crate) fn all<'py>(keys: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyBytes>>> {
    keys.try_iter()?.map(|key| arguments::key(&key?)).collect()
}

/// The values as immutable objects.
pub(crate) fn values<'py>(values: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyBytes>>> {
    let values = values.try_iter()?;
    values.map(|value| arguments::value(&value?)).collect()
}

pub(crate) fn bytes_of<'a>(objects: &'a [Bound<'_, PyBytes>]) -> Vec<&'a [u8]> {
    objects.iter().map(|object| object.as_bytes()).collect()
}

/// Keys and a value for each.
type Items<'py, V> = (Vec<Bound<'py, PyBytes>>, Vec<V>);

/// The keys and values of a dictionary or of a sequence of pairs, as immutable objects.
pub(crate) fn items_of<'py>(
    pairs: &Bound<'py, PyAny>,
) -> PyResult<Items<'py, Bound<'py, PyBytes>>> {
    items_with(pairs, arguments::value)
}

/// As [`items_of`], with values that `read` converts.
pub(crate) fn items_with<'py, V>(
    pairs: &Bound<'py, PyAny>,
    read: impl Fn(&Bound<'py, PyAny>) -> PyResult<V>,
) -> PyResult<Items<'py, V>> {
    let items = match pairs.cast::<PyDict>() {
        Ok(dictionary) => dictionary.items().into_any(),
        Err(_) => pairs.clone(),
    };
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    for pair in items.try_iter()? {
        let (key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair?.extract()?;
        keys.push(arguments::key(&key)?);
        values.push(read(&value)?);
    }
    Ok((keys, values))
}

pub(crate) fn get<'py>(
    py: Python<'py>,
    handle: &Handle,
    keys: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyList>> {
    let keys = all(keys)?;
    let keys = bytes_of(&keys);
    let (bytes, places) = py.detach(|| {
        let mut bytes: Vec<u8> = Vec::new();
        let mut places = vec![None; keys.len()];
        let mut copied = Ok(());
        handle.with(|database| {
            Ok(database.get_many(&keys, |i, value| {
                if let (Some(value), Ok(())) = (value, &copied) {
                    let start = bytes.len();
                    copied = append(&mut bytes, value);
                    places[i] = Some(start..bytes.len());
                }
            })?)
        })?;
        copied?;
        Ok::<_, Failure>((bytes, places))
    })?;
    let value = |place| object(py, &bytes[place]);
    let values = places.into_iter().map(|place| place.map(value).transpose());
    PyList::new(py, values.collect::<PyResult<Vec<_>>>()?)
}

pub(crate) fn put(
    py: Python<'_>,
    handle: &Handle,
    pairs: &Bound<'_, PyAny>,
    expiry: Expiry,
) -> PyResult<usize> {
    let (keys, values) = items_of(pairs)?;
    let (keys, values) = (bytes_of(&keys), bytes_of(&values));
    let pairs: Vec<_> = keys.into_iter().zip(values).collect();
    let put = |database: Database<'_>| {
        let put = match expiry {
            Expiry::Never => database.put_many(&pairs),
            // The batch call has no argument for an expiry.
            expiry => pairs
                .iter()
                .enumerate()
                .try_for_each(|(done, (key, value))| {
                    let put = database.put_until(key, value, expiry);
                    put.map_err(|source| BatchError {
                        done,
                        removed: 0,
                        source,
                    })
                }),
        };
        put.map_err(|error| Failure::of_batch(&error))
    };
    py.detach(|| handle.with(put))?;
    Ok(pairs.len())
}

pub(crate) fn delete(py: Python<'_>, handle: &Handle, keys: &Bound<'_, PyAny>) -> PyResult<usize> {
    let keys = all(keys)?;
    let keys = bytes_of(&keys);
    let remove = |database: Database<'_>| {
        let removed = database.remove_many(&keys);
        removed.map_err(|error| Failure::of_batch(&error))
    };
    Ok(py.detach(|| handle.with(remove))?)
}
