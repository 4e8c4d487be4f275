//! How a program opens or makes a store.

use std::path::PathBuf;

use mneme_shared::StoreOptions;
use mneme_space::{Access, Registry};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arguments::registry;
use crate::errors::Failure;
use crate::handle::{Handle, Home, Kind};
use crate::options::Wanted;
use crate::store::Store;

fn access(writable: bool) -> Access {
    match writable {
        true => Access::ReadWrite,
        false => Access::ReadOnly,
    }
}

/// The directory in which names are looked up by default.
#[pyfunction]
pub(crate) fn default_registry() -> PathBuf {
    Registry::default_root()
}

/// Attach the store with that name, which a server or another program has made.
///
/// Read-only unless `writable`. `registry` is the directory of names, by default `$MNEME_DIR` or
/// the user's own. Raises `NotFound`, `NotPermitted`, `Damaged`.
#[pyfunction]
#[pyo3(signature = (name, *, writable=false, registry=None, maintainer=true))]
pub(crate) fn attach(
    py: Python<'_>,
    name: &str,
    writable: bool,
    registry: Option<PathBuf>,
    maintainer: bool,
) -> Result<Store, Failure> {
    py.detach(|| {
        let registry = self::registry(registry)?;
        let options = StoreOptions::new().maintainer(maintainer);
        let store = options.attach(&registry, name, access(writable))?;
        let home = Home {
            registry: registry.root().to_owned(),
            name: name.to_owned(),
            writable,
        };
        let store = Kind::Shared(Box::new(store));
        Ok(Store(Handle::new(store, Some(home))))
    })
}

fn make(name: &str, wanted: Wanted, open: bool) -> Result<Store, Failure> {
    let (registry, options) = wanted.shared()?;
    let store = match open {
        true => options.open_or_create(&registry, name)?,
        false => options.create(&registry, name)?,
    };
    let home = Home {
        registry: registry.root().to_owned(),
        name: name.to_owned(),
        writable: true,
    };
    let store = Kind::Shared(Box::new(store));
    Ok(Store(Handle::new(store, Some(home))))
}

/// Make a store in a new segment, and attach it for writing.
///
/// Options: `max_capacity`, `evict` ("none", "lru", "lfu", "random", "expiring-lru"...),
/// `in_place`, `mode` (the files' permissions), `backing` ("memory", "huge", or "file" with
/// `directory`), `registry`, `maintainer`. Raises `Exists`, `InvalidArgument`, `Full`.
#[pyfunction]
#[pyo3(
    signature = (name, capacity=None, **options),
    text_signature = "(name, capacity='1GiB', *, max_capacity=None, evict='none', in_place=False, \
                      mode=0o600, backing=None, directory=None, registry=None, maintainer=True)"
)]
pub(crate) fn create(
    py: Python<'_>,
    name: &str,
    capacity: Option<&Bound<'_, PyAny>>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Store> {
    let wanted = Wanted::read(capacity, options, true)?;
    Ok(py.detach(|| make(name, wanted, false))?)
}

/// Attach the store with that name for writing; if there is none, make it as `create` does.
///
/// If several processes do so at once, one makes the store and all of them get it.
#[pyfunction]
#[pyo3(
    signature = (name, capacity=None, **options),
    text_signature = "(name, capacity='1GiB', *, max_capacity=None, evict='none', in_place=False, \
                      mode=0o600, backing=None, directory=None, registry=None, maintainer=True)"
)]
pub(crate) fn open_or_create(
    py: Python<'_>,
    name: &str,
    capacity: Option<&Bound<'_, PyAny>>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Store> {
    let wanted = Wanted::read(capacity, options, true)?;
    Ok(py.detach(|| make(name, wanted, true))?)
}
