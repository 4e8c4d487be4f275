//! `Store.update`: an atomic read-modify-write with a function.
//!
//! **The program's function runs without any lock**, on a copy of the record. Its result is applied
//! if the record, value and expiry, is unchanged by then; otherwise it is called again. It may take
//! long, use the store or raise an exception without making others wait.

use mneme_log::{Decision, Expiry, Stored};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::arguments;
use crate::copies::{copied, object};
use crate::errors::Failure;
use crate::handle::Handle;

/// The value and expiry of a key; `None` if it does not exist.
type Seen = Option<(Vec<u8>, Expiry)>;

fn is_as_seen(seen: &Seen, stored: Option<Stored<'_>>) -> bool {
    match (seen, stored) {
        (None, None) => true,
        (Some((value, expiry)), Some(now)) => now.value == value && now.expiry == *expiry,
        _ => false,
    }
}

pub(crate) fn update<'py>(
    handle: &Handle,
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
        let mut seen: Result<Seen, Failure> = Ok(None);
        handle.with(|database| {
            Ok(database.update_stored(key, |stored| {
                let copy = |stored: Stored<'_>| Ok((copied(stored.value)?, stored.expiry));
                seen = stored.map(copy).transpose();
                Decision::Keep
            })?)
        })?;
        let seen = seen?;
        let old = seen.as_ref().map(|(value, _)| object(py, value));
        let old = old.transpose()?;
        let wanted = function.call1((old,))?;
        let wanted = match wanted.is_none() {
            true => None,
            false => Some(arguments::value(&wanted)?),
        };
        let expiry = seen.as_ref().map_or(Expiry::Never, |(_, expiry)| *expiry);
        let mut same = true;
        let mut refused = Ok(());
        handle.with(|database| {
            Ok(database.update_stored(key, |stored| {
                (same, refused) = (is_as_seen(&seen, stored), Ok(()));
                match wanted.as_ref().map(|value| copied(value.as_bytes())) {
                    _ if !same => Decision::Keep,
                    None => Decision::Remove,
                    Some(Ok(value)) => Decision::ReplaceUntil(value, expiry),
                    Some(Err(failure)) => {
                        refused = Err(failure);
                        Decision::Keep
                    }
                }
            })?)
        })?;
        refused?;
        if same {
            return Ok(wanted);
        }
    }
}
