//! Where a durable store keeps its records.

use std::ops::Deref;
use std::sync::Arc;

use mneme_log::LogStore;
use mneme_shared::Served;

/// The store, held for as long as its journal is written.
pub(crate) enum StoreHome {
    /// In the process' own memory.
    Private(LogStore),
    /// In a named segment, served by this process.
    Served(Arc<Served>),
}

impl Deref for StoreHome {
    type Target = LogStore;

    fn deref(&self) -> &LogStore {
        match self {
            StoreHome::Private(store) => store,
            StoreHome::Served(served) => served,
        }
    }
}
