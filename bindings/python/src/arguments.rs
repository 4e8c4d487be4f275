//! Conversion of arguments from Python: bytes, sizes, times, and where data is kept.

use std::path::PathBuf;
use std::time::Duration;

use mneme_log::Expiry;
use mneme_shared::{Evict, Registry, UpdatePolicy};
use mneme_space::Backing;
use mneme_sys::{Clock, SystemClock};
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::errors::{Failure, invalid};

/// The bytes of a bytes-like object: the object itself if it is `bytes`, otherwise a copy, since
/// the program could change its contents meanwhile.
///
/// `None` if the object is not bytes-like. Other failures are errors: a buffer that was released,
/// or an interrupt from the keyboard.
fn bytes_like<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyBytes>>> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(Some(bytes.clone()));
    }
    let py = object.py();
    // SAFETY: a live object, which is held; the function returns a new reference, or null with an
    // exception.
    let view = unsafe { ffi::PyMemoryView_FromObject(object.as_ptr()) };
    // SAFETY: as above.
    let view = unsafe { Bound::from_owned_ptr_or_err(py, view) };
    let Some(view) = unless_wrong_type(py, view)? else {
        return Ok(None);
    };
    // SAFETY: as above.
    let copy = unsafe { ffi::PyBytes_FromObject(view.as_ptr()) };
    // SAFETY: as above.
    let copy = unsafe { Bound::from_owned_ptr_or_err(py, copy) }?;
    Ok(Some(copy.cast_into()?))
}

/// Turns a `TypeError` into `None`; other errors are returned.
fn unless_wrong_type<T>(py: Python<'_>, result: PyResult<T>) -> PyResult<Option<T>> {
    match result {
        Err(error) if error.is_instance_of::<PyTypeError>(py) => Ok(None),
        other => other.map(Some),
    }
}

/// A key: a bytes-like object, or a string, which stands for its UTF-8 bytes.
#[inline]
pub(crate) fn key<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    if let Ok(text) = object.cast::<PyString>() {
        return text.encode_utf8();
    }
    bytes_like(object)?
        .ok_or_else(|| wrong_type("a key is bytes, another bytes-like object, or str", object))
}

/// A value: a bytes-like object. A string is refused, because it would come back as bytes.
#[inline]
pub(crate) fn value<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    bytes_like(object)?.ok_or_else(|| {
        let text = "a value is bytes or another bytes-like object (encode a str: it would come \
                    back as bytes)";
        wrong_type(text, object)
    })
}

fn wrong_type(text: &str, object: &Bound<'_, PyAny>) -> PyErr {
    let found = object.get_type().name();
    let found = found.map_or_else(|_| "something else".to_owned(), |name| name.to_string());
    PyTypeError::new_err(format!("{text}; this is {found}"))
}

/// A size in bytes: a number, or text like "64MiB" (binary units; "64MB" is decimal).
pub(crate) fn size(object: &Bound<'_, PyAny>) -> PyResult<u64> {
    match object.extract::<u64>() {
        Ok(number) => return Ok(number),
        // Text, or an invalid number: the error is made below.
        Err(error)
            if error.is_instance_of::<PyTypeError>(object.py())
                || error.is_instance_of::<PyOverflowError>(object.py()) => {}
        Err(error) => return Err(error),
    }
    let wrong = || {
        let text = format!("a size is a number of bytes or text like \"64MiB\", not {object}");
        PyErr::from(invalid(text))
    };
    let text = object.cast::<PyString>().map_err(|_| wrong())?.to_string();
    let text = text.trim();
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kib" | "k" => 1 << 10,
        "mib" | "m" => 1 << 20,
        "gib" | "g" => 1 << 30,
        "tib" | "t" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return Err(wrong()),
    };
    let number = number.parse::<u64>().map_err(|_| wrong())?;
    number.checked_mul(unit).ok_or_else(wrong)
}

/// An expiry: `None` (never), seconds from now, a `timedelta` from now, or a `datetime`.
pub(crate) fn expiry(object: Option<&Bound<'_, PyAny>>) -> PyResult<Expiry> {
    let Some(object) = object else {
        return Ok(Expiry::Never);
    };
    let py = object.py();
    let call = |name: &str| match object.hasattr(name)? {
        true => object.call_method0(name)?.extract::<f64>().map(Some),
        false => Ok(None),
    };
    let now = || SystemClock.wall_ms() as f64;
    let ms = if let Some(seconds) = unless_wrong_type(py, object.extract::<f64>())? {
        now() + seconds * 1000.0
    } else if let Some(seconds) = call("total_seconds")? {
        now() + seconds * 1000.0
    } else if let Some(seconds) = call("timestamp")? {
        seconds * 1000.0
    } else {
        let text = "an expiry is seconds, a timedelta, a datetime or None";
        return Err(wrong_type(text, object));
    };
    // 1e14 ms is in the year 5138; a larger number is taken for a mistake.
    if !(0.0..1e14).contains(&ms) {
        let text = format!("{object} is no time at which a record can expire");
        return Err(invalid(text).into());
    }
    // A time in the past makes the record absent at once.
    Ok(Expiry::At((ms.ceil() as u64).max(1)))
}

/// The seconds until an expiry.
pub(crate) fn seconds_left(expiry: Expiry) -> Option<f64> {
    match expiry {
        Expiry::Never => None,
        Expiry::At(ms) => Some(ms.saturating_sub(SystemClock.wall_ms()) as f64 / 1000.0),
    }
}

/// The time limit for entering a section, from seconds.
pub(crate) fn timeout(seconds: f64) -> Result<Duration, Failure> {
    let timeout = Duration::try_from_secs_f64(seconds);
    timeout.map_err(|_| invalid("a timeout is a number of seconds"))
}

/// The registry in a directory, or the process' default one.
pub(crate) fn registry(directory: Option<PathBuf>) -> Result<Registry, Failure> {
    Ok(match directory {
        Some(directory) => Registry::open(directory)?,
        None => Registry::open_default()?,
    })
}

/// The backing of a segment: "memory", "huge", or a directory on a disk's file system.
pub(crate) fn backing(text: Option<&str>, directory: Option<PathBuf>) -> Result<Backing, Failure> {
    match (text, directory) {
        (None | Some("memory"), None) => Ok(Backing::Shared),
        (Some("huge"), None) => Ok(Backing::Huge),
        (None | Some("file"), Some(directory)) => Ok(Backing::File { directory }),
        (Some("dax"), Some(directory)) => Ok(Backing::Dax { directory }),
        _ => Err(invalid(
            "a backing is \"memory\" or \"huge\", or \"file\" or \"dax\" with a directory",
        )),
    }
}

const EVICTIONS: [(&str, Evict); 8] = [
    ("none", Evict::None),
    ("lru", Evict::Lru),
    ("lfu", Evict::Lfu),
    ("random", Evict::Random),
    ("expiring-lru", Evict::ExpiringLru),
    ("expiring-lfu", Evict::ExpiringLfu),
    ("expiring-random", Evict::ExpiringRandom),
    ("expiring-soonest", Evict::ExpiringSoonest),
];

pub(crate) fn evict(text: &str) -> Result<Evict, Failure> {
    let known = EVICTIONS.iter().find(|(name, _)| *name == text);
    known.map(|(_, evict)| *evict).ok_or_else(|| {
        let names: Vec<_> = EVICTIONS.iter().map(|(name, _)| *name).collect();
        invalid(format!(
            "evict is one of {}, not {text:?}",
            names.join(", ")
        ))
    })
}

pub(crate) fn evict_name(evict: Evict) -> &'static str {
    let known = EVICTIONS.iter().find(|(_, known)| *known == evict);
    known.map_or("another", |(name, _)| name)
}

pub(crate) fn policy(in_place: bool) -> UpdatePolicy {
    match in_place {
        true => UpdatePolicy::InPlace,
        false => UpdatePolicy::Append,
    }
}

/// File permissions. Everyone who can write must be able to read, and the owner must be able to
/// read.
pub(crate) fn mode(number: u32) -> Result<u32, Failure> {
    let sensible = |bits: u32| matches!(bits & 7, 0 | 4 | 6);
    let each = [number, number >> 3, number >> 6];
    if (0o400..=0o666).contains(&number) && each.into_iter().all(sensible) {
        return Ok(number);
    }
    let text = format!("a mode is like 0o660, with 0, 4 or 6 for each; this is {number:#o}");
    Err(invalid(text))
}
