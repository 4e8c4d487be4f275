//! What a copy of the store that is kept elsewhere needs: the ids of the databases' indexes, and a
//! way to restore them.

use std::time::Duration;

use mneme_sys::NodeId;

use crate::error::{GrowError, ReadError, WriteError};
use crate::log::prefault::Populated;
use crate::records::expiry::Stored;
use crate::records::scan::Cursor;
use crate::region::space::DATABASES;
use crate::store::LogStore;
use crate::store::feed::SalvagedFeed;

/// The time between two looks while a store is loaded: at 1 GiB a second that is half a frame.
const LOADING: Duration = Duration::from_millis(1);

impl LogStore {
    /// The id of each database's index at one instant, as the [change feed](crate::feed) names it;
    /// 0: the database was never written to since it was made or cleared.
    ///
    /// # Errors
    /// This thread cannot take part, the region is damaged, or a swap of databases stalls.
    pub fn roots(&self) -> Result<[u64; DATABASES], ReadError> {
        self.store.records().root_ids()
    }

    /// Visits copies of about `count` records of the index with this id from `cursor` on, of every
    /// kind, and returns where to continue. `None`: the database was cleared, and the index no
    /// longer exists. Which database has the index may change meanwhile.
    ///
    /// From [`Cursor::START`] to [`Cursor::END`] every record that is present throughout is visited
    /// at least once, also one that has expired and was not removed. `visit` does not run pinned.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn scan_root(
        &self,
        id: u64,
        cursor: Cursor,
        count: usize,
        visit: impl FnMut(&[u8], Stored<'_>),
    ) -> Result<Option<Cursor>, ReadError> {
        self.store.records().scan_root(id, cursor, count, visit)
    }

    /// The part of the change feed that was not kept elsewhere, of a store that is damaged and no
    /// longer used; `None`: it has no feed. It reads only the feed, repairs nothing, and ends where
    /// the feed is damaged too.
    #[must_use]
    pub fn salvage_feed(&self) -> Option<SalvagedFeed> {
        self.store.session().mapped_feed().map(SalvagedFeed::of)
    }

    /// Gives an empty database that was never written to an index with this id. New indexes get ids
    /// above it. It does nothing if the database has an index.
    ///
    /// For a store that is being rebuilt from a copy: the ids of the copy must come back, because
    /// later entries of the change feed still name them.
    ///
    /// # Errors
    /// As for [`put`](Self::put).
    pub fn restore_root(&self, database: usize, id: u64) -> Result<(), WriteError> {
        let database = self.database(database)?;
        let store = &self.store;
        let slot = store.session().writer()?;
        let (_pin, space) = store.index().enter(&slot, database.number)?;
        match store.index().create_root_of(&slot, space, Some(id))? {
            Some(_) => Ok(()),
            None => Err(store.reclaim().out_of_memory(0)),
        }
    }

    /// Lets a store that is being rebuilt take at least `bytes` bytes more than its
    /// [capacity](Self::capacity), which does not change: during the rebuilding the store may need
    /// more than it has at the end. It must [return](Self::return_to_capacity) afterwards. No other
    /// opening has it.
    ///
    /// # Errors
    /// As for [`grow`](Self::grow).
    pub fn extend(&self, bytes: u64) -> Result<(), GrowError> {
        if self.store.session().read_only {
            return Err(GrowError::ReadOnly);
        }
        let slot = self.store.session().participants.slot()?;
        self.store.log().extend(&slot, bytes)
    }

    /// Populates fresh frames ahead of the claims as the maintainer does, until `stopped`. For a
    /// thread beside those that load a store that does not have a maintainer yet. Does nothing if
    /// it has one.
    pub fn populate_ahead(&self, stopped: &dyn Fn() -> bool) {
        if self.maintainer.is_some() || self.store.session().participants.is_forked() {
            return;
        }
        let nodes = (0..self.store.log().arena.nodes()).map(NodeId);
        let mut populated: Vec<_> = nodes.map(Populated::new).collect();
        while !stopped() {
            for node in &mut populated {
                self.store.log().populate(node, stopped);
            }
            std::thread::sleep(LOADING);
        }
    }

    /// Compacts, and evicts as the store may, until a store that was [extended](Self::extend) is
    /// within its capacity again. Does nothing to another.
    ///
    /// # Errors
    /// [`WriteError::OutOfMemory`]: it holds more than that, and may not evict. Otherwise as for
    /// [`put`](Self::put).
    pub fn return_to_capacity(&self) -> Result<(), WriteError> {
        let slot = self.store.session().writer()?;
        let returned = || self.store.reclaim().return_to_capacity(&slot);
        self.store.session().with_feed(returned)
    }

    /// New indexes get ids above this one. For a store that is being rebuilt from a copy, which
    /// names indexes that no longer exist.
    ///
    /// # Errors
    /// [`WriteError::ReadOnly`]; this is a forked child.
    pub fn reserve_roots(&self, highest: u64) -> Result<(), WriteError> {
        self.store.session().writer()?;
        let next = &self.store.session().tables.header().next_root;
        // Relaxed: no other thread makes an index meanwhile.
        next.fetch_max(highest, std::sync::atomic::Ordering::Relaxed);
        Ok(())
    }
}
