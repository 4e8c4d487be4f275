//! How a program opens or makes a store.

use std::path::PathBuf;

use mneme_log::{Evict, LogStore};
use mneme_shared::StoreOptions;
use mneme_space::{Access, Registry};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arguments::{backing, evict, mode, policy, registry, size};
use crate::errors::Failure;
use crate::store::{Home, Kind, Store};

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
        Ok(Store::new(Kind::Shared(Box::new(store)), Some(home)))
    })
}

/// The options of a new store.
pub(crate) struct Wanted {
    registry: Option<PathBuf>,
    capacity: u64,
    max_capacity: Option<u64>,
    evict: Evict,
    in_place: bool,
    mode: u32,
    backing: Option<String>,
    directory: Option<PathBuf>,
    maintainer: bool,
}

impl Wanted {
    /// Parses keyword arguments; a store in this process has fewer.
    pub(crate) fn read(
        capacity: Option<&Bound<'_, PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
        named: bool,
    ) -> PyResult<Self> {
        let mut wanted = Self {
            registry: None,
            capacity: capacity.map_or(Ok(1 << 30), size)?,
            max_capacity: None,
            evict: Evict::None,
            in_place: false,
            mode: 0o600,
            backing: None,
            directory: None,
            maintainer: true,
        };
        for (option, value) in options.into_iter().flatten() {
            let option: String = option.extract()?;
            match option.as_str() {
                "max_capacity" if value.is_none() => {}
                "max_capacity" => wanted.max_capacity = Some(size(&value)?),
                "evict" => wanted.evict = evict(&value.extract::<String>()?)?,
                "in_place" => wanted.in_place = value.extract()?,
                "maintainer" => wanted.maintainer = value.extract()?,
                "mode" if named => wanted.mode = mode(value.extract()?)?,
                "backing" if named => wanted.backing = value.extract()?,
                "directory" if named => wanted.directory = value.extract()?,
                "registry" if named => wanted.registry = value.extract()?,
                _ => {
                    let text = format!("a new store has no option {option:?}");
                    return Err(PyTypeError::new_err(text));
                }
            }
        }
        Ok(wanted)
    }

    fn options(self) -> Result<(Registry, StoreOptions), Failure> {
        let mut options = StoreOptions::new()
            .capacity(self.capacity)
            .evict(self.evict)
            .update_policy(policy(self.in_place))
            .mode(self.mode)
            .maintainer(self.maintainer)
            .backing(backing(self.backing.as_deref(), self.directory)?);
        if let Some(max) = self.max_capacity {
            options = options.max_capacity(max);
        }
        Ok((registry(self.registry)?, options))
    }

    pub(crate) fn private(self) -> Result<Store, Failure> {
        let mut builder = LogStore::builder()
            .capacity(self.capacity)
            .evict(self.evict)
            .update_policy(policy(self.in_place))
            .maintainer(self.maintainer);
        if let Some(max) = self.max_capacity {
            builder = builder.max_capacity(max);
        }
        Ok(Store::new(
            Kind::Private(Box::new(builder.open_private()?)),
            None,
        ))
    }
}

fn make(name: &str, wanted: Wanted, open: bool) -> Result<Store, Failure> {
    let (registry, options) = wanted.options()?;
    let store = match open {
        true => options.open_or_create(&registry, name)?,
        false => options.create(&registry, name)?,
    };
    let home = Home {
        registry: registry.root().to_owned(),
        name: name.to_owned(),
        writable: true,
    };
    Ok(Store::new(Kind::Shared(Box::new(store)), Some(home)))
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
