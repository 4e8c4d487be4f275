//! The options of a new store.

use std::path::PathBuf;

use mneme_log::{Evict, LogStore};
use mneme_shared::StoreOptions;
use mneme_space::Registry;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arguments::{backing, evict, mode, policy, registry, size};
use crate::errors::Failure;
use crate::handle::{Handle, Kind};

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

    /// Of a store in a segment: where it is named, and its options.
    pub(crate) fn shared(self) -> Result<(Registry, StoreOptions), Failure> {
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

    /// Opens a store in this process.
    pub(crate) fn private(self) -> Result<Handle, Failure> {
        let mut builder = LogStore::builder()
            .capacity(self.capacity)
            .evict(self.evict)
            .update_policy(policy(self.in_place))
            .maintainer(self.maintainer);
        if let Some(max) = self.max_capacity {
            builder = builder.max_capacity(max);
        }
        let store = Kind::Private(Box::new(builder.open_private()?));
        Ok(Handle::new(store, None))
    }
}
