//! [`SharedStore`]: a log store in a segment, attached by one process.

use std::ops::Deref;
use std::sync::Arc;

use mneme_log::LogStore;
use mneme_space::{Access, Contents, Presence, Registry, Segment};

use crate::StoreOptions;
use crate::error::AttachError;

/// The contents recorded in the description of a store's segment.
pub const CONTENTS: Contents = Contents {
    kind: "log store",
    magic: LogStore::REGION.magic,
    format: LogStore::REGION.format,
    layout_hash: LogStore::REGION.layout_hash,
};

/// The contents recorded for a store that [lends](StoreOptions::lend_idle).
pub const CONTENTS_LENDING: Contents = Contents {
    format: LogStore::REGION_LENDING.format,
    layout_hash: LogStore::REGION_LENDING.layout_hash,
    ..CONTENTS
};

/// A log store in a named segment, attached by this process. Dropping it detaches.
///
/// `Send + Sync`; all operations of [`LogStore`]. Values that it returns are copies, unless
/// [lending](StoreOptions::lending) was requested, so a reader that is stopped delays nobody.
pub struct SharedStore {
    // Dropped in this order: the regions are unmapped before the record that this process uses them
    // is removed.
    store: LogStore,
    _presence: Arc<Presence>,
    segment: Segment,
    access: Access,
}

impl SharedStore {
    /// Attaches the store of that name for reading. The first attachment of a process takes 0.3 ms,
    /// later ones 0.06 ms, for any size.
    ///
    /// # Errors
    /// One variant of [`AttachError`] for each part that may be missing, different than expected,
    /// or damaged.
    pub fn attach(registry: &Registry, name: &str) -> Result<Self, AttachError> {
        StoreOptions::new().attach(registry, name, Access::ReadOnly)
    }

    /// Attaches the store of that name for reading and writing.
    ///
    /// # Errors
    /// As [`attach`](Self::attach); the permissions of the segment forbid it.
    pub fn attach_writable(registry: &Registry, name: &str) -> Result<Self, AttachError> {
        StoreOptions::new().attach(registry, name, Access::ReadWrite)
    }

    /// Attaches the store of that name for reading, to show or check it: even if the server's
    /// setting `local-programs` forbids it.
    ///
    /// # Errors
    /// As [`attach`](Self::attach).
    pub fn administer(registry: &Registry, name: &str) -> Result<Self, AttachError> {
        StoreOptions::new()
            .administers(true)
            .attach(registry, name, Access::ReadOnly)
    }

    pub(crate) fn new(
        store: LogStore,
        presence: Presence,
        segment: Segment,
        access: Access,
    ) -> Self {
        let presence = Arc::new(presence);
        if let Some(lent) = store.discardable() {
            // A tenant of the lent memory may outlive the store.
            lent.arena().keep_alive(presence.clone());
        }
        Self {
            store,
            _presence: presence,
            segment,
            access,
        }
    }

    /// The segment that contains the store.
    #[must_use]
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Whether the store is lost at a reboot, as memory is.
    #[must_use]
    pub fn is_volatile(&self) -> bool {
        self.segment.is_volatile()
    }

    /// The access with which it was attached.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }
}

impl Deref for SharedStore {
    type Target = LogStore;

    fn deref(&self) -> &LogStore {
        &self.store
    }
}

impl std::fmt::Debug for SharedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedStore")
            .field("segment", &self.segment.name())
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}
