//! What hashes, sets, sorted sets and lists share: the key that they lie under, and how calls
//! reach what lies there.

use std::marker::PhantomData;

use mneme_collections::{CollectionError, Hash, List, Set, SortedSet};
use mneme_log::Database;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::arguments;
use crate::batches::{all, bytes_of};
use crate::handle::Handle;

/// A type of collection, such as [`Set`].
pub(crate) trait Collection {
    type At<'s, 'k>;

    /// The collection under a key.
    fn at<'s, 'k>(database: Database<'s>, key: &'k [u8]) -> Self::At<'s, 'k>;
}

macro_rules! collections {
    ($($name:ident)*) => {$(
        impl Collection for $name<'static, 'static> {
            type At<'s, 'k> = $name<'s, 'k>;

            fn at<'s, 'k>(database: Database<'s>, key: &'k [u8]) -> $name<'s, 'k> {
                $name::new(database, key)
            }
        }
    )*};
}

collections!(Hash List Set SortedSet);

/// A key of a database of an open store, under which a `C` is expected.
pub(crate) struct CollectionKey<C> {
    handle: Handle,
    key: Vec<u8>,
    collection: PhantomData<fn() -> C>,
}

impl<C: Collection> CollectionKey<C> {
    pub(crate) fn new(handle: &Handle, key: &Bound<'_, PyAny>) -> PyResult<Self> {
        let key = arguments::key(key)?.as_bytes().to_vec();
        handle.opened()?;
        Ok(Self {
            handle: handle.clone(),
            key,
            collection: PhantomData,
        })
    }

    pub(crate) fn key<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.key)
    }

    /// Calls `run` with the collection, without the GIL: it may be long, and other threads may
    /// change it.
    pub(crate) fn with<R: Send>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(C::At<'_, '_>) -> Result<R, CollectionError> + Send,
    ) -> PyResult<R> {
        let run = |database: Database<'_>| Ok(run(C::at(database, &self.key))?);
        Ok(py.detach(|| self.handle.with(run))?)
    }

    /// As [`with`](Self::with), with a field or member that the program names.
    pub(crate) fn with_one<R: Send>(
        &self,
        element: &Bound<'_, PyAny>,
        run: impl FnOnce(C::At<'_, '_>, &[u8]) -> Result<R, CollectionError> + Send,
    ) -> PyResult<R> {
        let bytes = arguments::key(element)?;
        let bytes = bytes.as_bytes();
        self.with(element.py(), |collection| run(collection, bytes))
    }

    /// As [`with`](Self::with), with fields or members that the program names.
    pub(crate) fn with_many<R: Send>(
        &self,
        elements: &Bound<'_, PyAny>,
        run: impl FnOnce(C::At<'_, '_>, &[&[u8]]) -> Result<R, CollectionError> + Send,
    ) -> PyResult<R> {
        let objects = all(elements)?;
        let bytes = bytes_of(&objects);
        self.with(elements.py(), |collection| run(collection, &bytes))
    }

    pub(crate) fn shown(&self, class: &str) -> String {
        format!("<mneme.{class} b\"{}\">", self.key.escape_ascii())
    }
}
