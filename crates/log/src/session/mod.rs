//! The session: the threads of one opening of a store. Their slots and pins, the region that they
//! work in, and how they wait for each other.
//!
//! [`Session`] is the lowest component. What it and others need from components above them they
//! request through [`Callbacks`].

mod wait;

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use mneme_sync::{Epoch, Holding, Lane, Participants, Slot, SlotId};
use mneme_sys::{Access, Clock, Topology};

use crate::error::{OpenError, WriteError};
use crate::feed::area::FeedArea;
use crate::region::layout::Tables;
use crate::region::mem::{Loc, Mem};
pub(crate) use wait::{Wait, back_off};

/// The lease of the opening that maintains a store.
pub(crate) const MAINTAINER_LEASE: usize = 0;
/// The lease of the opening that serves a store.
pub(crate) const SERVER_LEASE: usize = 1;
/// The lease of the opening that drains the change feed.
pub(crate) const FEED_LEASE: usize = 2;

/// Requests of a component to the store, which it does not know.
pub(crate) trait Callbacks: Send + Sync {
    /// Repairs what dead threads left and frees their slots. Returns the number of slots.
    fn reap(&self, slot: &Slot<'_>) -> Result<usize, WriteError>;

    /// Frees collections whose mains are gone: those that this process knows of, or all. Returns
    /// whether it has freed any.
    fn sweep_collections(&self, slot: &Slot<'_>, is_thorough: bool) -> Result<bool, WriteError>;

    /// Called when a log segment is opened for the calling thread, so once for each segment's worth
    /// of written bytes.
    fn opens_segment(&self, slot: &Slot<'_>);
}

/// An opening of a store, as far as its threads and their waits are concerned.
pub(crate) struct Session {
    pub mem: Mem,
    pub tables: Tables,
    pub feed: FeedArea,
    pub participants: Participants,
    pub topology: Arc<dyn Topology>,
    pub clock: Arc<dyn Clock>,
    /// Whether this opening may only read. It then stores nothing to the data region, which may be
    /// mapped read-only.
    pub read_only: bool,
    /// Whether no collection is freed: the store is being loaded, and a main may be loaded after
    /// its collection.
    pub spares_collections: AtomicBool,
    /// The copying reader whose pin blocks something, and when its pin was first seen to do so.
    still: Mutex<Option<(SlotId, Epoch, u64)>>,
    /// The callbacks of the store, once there is one. The store owns this session.
    callbacks: OnceLock<Weak<dyn Callbacks>>,
}

impl Session {
    pub fn new(
        mem: Mem,
        tables: Tables,
        participants: Participants,
        topology: Arc<dyn Topology>,
        clock: Arc<dyn Clock>,
    ) -> Result<Session, OpenError> {
        Ok(Session {
            read_only: mem.region().access() == Access::ReadOnly,
            feed: FeedArea::of(&mem, &tables, &participants)?,
            mem,
            tables,
            participants,
            topology,
            clock,
            spares_collections: AtomicBool::new(false),
            still: Mutex::default(),
            callbacks: OnceLock::new(),
        })
    }

    /// Sets the store to which this session belongs.
    pub fn set_callbacks(&self, callbacks: Weak<dyn Callbacks>) {
        // It is set once, by the store itself.
        let _ = self.callbacks.set(callbacks);
    }

    /// The store's callbacks. `None`: there is no store yet, or it is being closed.
    pub fn callbacks(&self) -> Option<Arc<dyn Callbacks>> {
        self.callbacks.get()?.upgrade()
    }

    /// The calling thread's slot, for an operation that changes something.
    #[inline(always)]
    pub fn writer(&self) -> Result<Slot<'_>, WriteError> {
        self.may_write()?;
        Ok(self.participants.slot()?)
    }

    /// The change feed, if it is kept; `None` in a forked child, which may lack the memory.
    pub fn mapped_feed(&self) -> Option<&FeedArea> {
        let feed = self.feed.kept();
        feed.filter(|_| !self.participants.is_forked())
    }

    /// Fails with `ReadOnly` if this opening may only read.
    #[inline(always)]
    pub fn may_write(&self) -> Result<(), WriteError> {
        if self.read_only {
            Err(WriteError::ReadOnly)
        } else {
            Ok(())
        }
    }

    /// Fails if an operation on `slot` in the caller's closure was ended by a panic that the
    /// closure has caught: what the operation has announced stands until the caller returns.
    #[inline]
    pub fn may_go_on(&self, slot: &Slot<'_>) -> Result<(), WriteError> {
        match slot.was_left_in(&[Lane::Arena, Lane::Log, Lane::Index]) {
            true => Err(self.stalled_by_itself(slot, Holding::OwnLock)),
            false => Ok(()),
        }
    }

    /// The offset in the region of a word of the tables.
    pub fn loc_of(&self, word: &AtomicU64) -> Loc {
        let base = self.mem.base() as usize;
        Loc::of_byte((std::ptr::from_ref(word) as usize - base) as u64)
    }
}
