//! The components of an open store, in layers: each knows those below it, and none above.
//!
//! Each owns the one below. A call names the component that has the method:
//! `self.index().place(key)`, `self.session().mem`. For that, each component has an accessor for
//! every component below it, which compiles to nothing.
//!
//! | component | has | requests from those above |
//! |---|---|---|
//! | [`Session`] | the region, the threads' slots, pins and waits | the repair of what a dead thread left |
//! | [`Log`] | frames, log segments, heads | the folding of read marks when a segment is opened |
//! | [`Index`](crate::index::Index) | roots, pages, lookup, change of shape, databases | |
//! | [`Records`](crate::records::Records) | reading, publishing, changing in place | |
//! | [`Reclaim`] | compaction, eviction, expiry, free space | |
//! | [`Store`] | operations, batches, transactions, watches, repair, checks | |
//!
//! [`Session`]: crate::session::Session [`Log`]: crate::log::Log

use std::sync::{Arc, Mutex, Weak};

use mneme_sync::Slot;

use crate::error::WriteError;
use crate::index::Index;
use crate::log::Log;
use crate::reclaim::Reclaim;
use crate::records::Records;
use crate::session::{Callbacks, Session};
use crate::store::sweep_state::{SLICES_OF_A_SEARCH, SweepLimit, SweepState};

/// An open store, without its maintainer thread.
pub(crate) struct Store {
    reclaim: Reclaim,
    /// Held by the thread of this process that frees collections.
    pub sweeping: Mutex<SweepState>,
}

impl Store {
    pub fn new(reclaim: Reclaim) -> Arc<Store> {
        let store = Arc::new(Store {
            reclaim,
            sweeping: Mutex::default(),
        });
        let weak: Weak<Store> = Arc::downgrade(&store);
        store.session().set_callbacks(weak.clone());
        store.session().participants.set_reaper(move || {
            if let Some(store) = weak.upgrade()
                && let Ok(slot) = store.session().participants.slot()
            {
                // What cannot be repaired now is reported to the operations that find it.
                let _ = store.reap(&slot);
            }
        });
        store
    }

    #[inline(always)]
    pub fn reclaim(&self) -> &Reclaim {
        &self.reclaim
    }

    #[inline(always)]
    pub fn records(&self) -> &Records {
        self.reclaim.records()
    }

    #[inline(always)]
    pub fn index(&self) -> &Index {
        self.reclaim.index()
    }

    #[inline(always)]
    pub fn log(&self) -> &Log {
        self.reclaim.log()
    }

    #[inline(always)]
    pub fn session(&self) -> &Session {
        self.reclaim.session()
    }
}

impl Callbacks for Store {
    fn reap(&self, slot: &Slot<'_>) -> Result<usize, WriteError> {
        Store::reap(self, slot)
    }

    fn sweep_collections(&self, slot: &Slot<'_>, is_thorough: bool) -> Result<bool, WriteError> {
        let limit = SweepLimit {
            slices: SLICES_OF_A_SEARCH,
            stopped: &|| false,
        };
        Store::sweep_collections(self, slot, is_thorough, limit)
    }

    fn opens_segment(&self, slot: &Slot<'_>) {
        // An error is ignored: it recurs in the calls that it concerns.
        let _ = self.reclaim().fold_own_accesses(slot);
    }
}
