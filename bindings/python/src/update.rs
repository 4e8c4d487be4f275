//! `Store.update`: read, decide, change, as one step.
//!
//! **The program's function runs with nothing held**: it is given a copy of what is there, and what
//! it decides takes place if the same is still there, value and expiry; else it is asked again. It
//! may take its time, use the store and raise, and nobody waits for it.

use mneme_log::{Decision, Expiry, Stored};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::arguments;
use crate::store::Store;

/// What stands under a key: value and expiry.
type Seen = Option<(Vec<u8>, Expiry)>;

fn is_as_seen(seen: &Seen, stored: Option<Stored<'_>>) -> bool {
    match (seen, stored) {
        (None, None) => true,
        (Some((value, expiry)), Some(now)) => now.value == value && now.expiry == *expiry,
        _ => false,
    }
}

pub(crate) fn update<'py>(
    store: &Store,
    py: Python<'py>,
    key: &Bound<'py, PyAny>,
    function: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let key = arguments::key(key)?;
    let key = key.as_bytes();
    if !function.is_callable() {
        let text = "the function is called with the value, or None";
        return Err(PyTypeError::new_err(text));
    }
    loop {
        let mut seen: Seen = None;
        store.with(|database| {
            Ok(database.update_stored(key, |stored| {
                seen = stored.map(|stored| (stored.value.to_vec(), stored.expiry));
                Decision::Keep
            })?)
        })?;
        let old = seen.as_ref().map(|(value, _)| PyBytes::new(py, value));
        let wanted = function.call1((old,))?;
        let wanted = match wanted.is_none() {
            true => None,
            false => Some(arguments::value(&wanted)?),
        };
        let expiry = seen.as_ref().map_or(Expiry::Never, |(_, expiry)| *expiry);
        let mut same = true;
        store.with(|database| {
            Ok(database.update_stored(key, |stored| {
                same = is_as_seen(&seen, stored);
                match &wanted {
                    _ if !same => Decision::Keep,
                    None => Decision::Remove,
                    Some(value) => Decision::ReplaceUntil(value.as_bytes().to_vec(), expiry),
                }
            })?)
        })?;
        if same {
            return Ok(wanted);
        }
    }
}
