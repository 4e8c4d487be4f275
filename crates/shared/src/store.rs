//! [`SharedStore`]: a log store in a segment, as one process has it.

use std::ops::Deref;
use std::sync::Arc;

use mneme_log::LogStore;
use mneme_space::{Access, Contents, Presence, Registry, Segment};

use crate::StoreOptions;
use crate::error::AttachError;

/// What a segment of a store says that it holds.
pub const CONTENTS: Contents = Contents {
    kind: "log store",
    magic: LogStore::REGION.magic,
    format: LogStore::REGION.format,
    layout_hash: LogStore::REGION.layout_hash,
};

/// What a segment of a store says that [lends](StoreOptions::lend_idle).
pub const CONTENTS_LENDING: Contents = Contents {
    format: LogStore::REGION_LENDING.format,
    layout_hash: LogStore::REGION_LENDING.layout_hash,
    ..CONTENTS
};

/// A log store in a named segment, attached by this process. Dropping it detaches.
///
/// `Send + Sync`; all that [`LogStore`] can do. Values that it returns are copies, unless
/// [lending](StoreOptions::lending) was asked for: a reader that is stopped holds up nobody.
pub struct SharedStore {
    // Dropped in this order: the regions go before it is said that nobody uses them.
    store: LogStore,
    _presence: Arc<Presence>,
    segment: Segment,
    access: Access,
}

impl SharedStore {
    /// Attaches the store of that name for reading. 0.3 ms for the first one of a process, 0.06 for
    /// others, whatever their size.
    ///
    /// # Errors
    /// One variant of [`AttachError`] for each thing that may be missing, other than expected, or
    /// damaged.
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

    pub(crate) fn new(
        store: LogStore,
        presence: Presence,
        segment: Segment,
        access: Access,
    ) -> Self {
        let presence = Arc::new(presence);
        if let Some(lent) = store.discardable() {
            // A tenant may go on when the store is dropped.
            lent.arena().keep_alive(presence.clone());
        }
        Self {
            store,
            _presence: presence,
            segment,
            access,
        }
    }

    /// The segment that it lies in.
    #[must_use]
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Whether it ends with the machine's boot, as memory does.
    #[must_use]
    pub fn is_volatile(&self) -> bool {
        self.segment.is_volatile()
    }

    /// Whether it was attached for writing.
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
