//! What all handles of an open store share: the pages, what readers see, and the one writer.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use mneme_sync::SlotError;
use mneme_sys::medium::MediumError;

use crate::attach::TreeAttachment;
use crate::batch::Batch;
use crate::catalogue::Catalogue;
use crate::commit::Writer;
use crate::committed::Committed;
use crate::control_region::SharedControl;
use crate::follow::Follower;
use crate::group::CommitGroup;
use crate::layout::CATALOGUE;
use crate::names::Names;
use crate::pages::TreePages;
use crate::record_cache::Copies;
use crate::registered::Registered;
use crate::roots::Roots;
use crate::{Durability, StoreError, Version};

/// What readers use: a version, and the leaves that hold it.
#[derive(Debug)]
pub(crate) struct PublishedVersion {
    /// Advances while commits only append to the leaves of the roots.
    pub(crate) version: AtomicU64,
    pub(crate) roots: Roots,
}

impl PublishedVersion {
    pub(crate) fn new(version: u64, roots: Roots) -> Box<Self> {
        Box::new(Self {
            version: version.into(),
            roots,
        })
    }
}

/// A version that is no longer published. Readers may still use it, so it is held by a pointer and
/// not by a box, which would claim to be the only reference. It is dropped once no pin is old
/// enough to have seen it.
#[derive(Debug)]
pub(crate) struct Replaced(NonNull<PublishedVersion>);

// SAFETY: it is the only pointer that frees what it points to, and that may go to another thread.
unsafe impl Send for Replaced {}

impl Drop for Replaced {
    fn drop(&mut self) {
        // SAFETY: it came from a box, nobody else frees it, and no reader is left that has it.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// The state that all handles and snapshots of a store share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) pages: TreePages,
    pub(crate) seed: u32,
    pub(crate) committed: Committed,
    /// In a process that only reads.
    pub(crate) follower: Option<Mutex<Follower>>,
    pub(crate) poisoned: AtomicBool,
    /// The file lies on a file system that copies data when it is written.
    pub(crate) copies_on_write: AtomicBool,
    pub(crate) registered: Registered,
    pub(crate) names: Names,
    /// Copies of records, if the store was opened with a cache.
    pub(crate) copies: Option<Copies>,
    pub(crate) group: CommitGroup<Batch, Result<Version, StoreError>>,
    /// What readers see, taken out of a box. The writer replaces it.
    pub(crate) published: AtomicPtr<PublishedVersion>,
    pub(crate) writer: Mutex<Writer>,
    /// Declared after everything that touches the file when it is dropped.
    pub(crate) _lock: Option<TreeAttachment>,
    /// Declared after the locks: while they are held, other processes find this one in the region.
    pub(crate) shared: SharedControl,
}

impl Core {
    /// The catalogue of trees in a version.
    pub(crate) fn catalogue<'c>(&'c self, roots: &'c Roots, version: u64) -> Catalogue<'c> {
        Catalogue {
            pages: &self.pages,
            committed: &self.committed,
            root: roots.of(CATALOGUE),
            version,
        }
    }

    /// Locks the writer.
    pub(crate) fn writer(&self) -> MutexGuard<'_, Writer> {
        // A panic in a commit leaves `storing` set, which refuses the next one.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails in a process that only reads, and in a forked child.
    pub(crate) fn may_write(&self) -> Result<(), StoreError> {
        match self.follower {
            Some(_) => Err(StoreError::ReadOnly),
            // A forked child's copy is not the writer.
            None if self.shared.participants.is_forked() => Err(SlotError::Forked.into()),
            None => Ok(()),
        }
    }

    pub(crate) fn try_writer(&self) -> Option<MutexGuard<'_, Writer>> {
        match self.writer.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// What is published, for the writer: nobody else replaces it.
    pub(crate) fn published<'w>(&'w self, _: &'w Writer) -> &'w PublishedVersion {
        // SAFETY: only the writer replaces and frees it, and the caller has the writer borrowed.
        unsafe { &*self.published.load(Ordering::Relaxed) }
    }

    /// Publishes `new` and gives what it replaces, which readers may still use: to be dropped once
    /// none is left.
    pub(crate) fn replace_published(&self, _: &mut Writer, new: Box<PublishedVersion>) -> Replaced {
        // SYNC: pairs with the Acquire load in `read`: the pointer implies the nodes behind it.
        let old = self.published.swap(Box::into_raw(new), Ordering::AcqRel);
        // SAFETY: it came from a box, so it is not null.
        Replaced(unsafe { NonNull::new_unchecked(old) })
    }

    /// Calls `f` with roots and the version to read in them, under a pin.
    pub(crate) fn read<R>(&self, f: impl FnOnce(&Roots, u64) -> R) -> Result<R, StoreError> {
        let _pin = self.shared.participants.pin()?;
        self.follow()?;
        // SYNC: pairs with the AcqRel swap in `replace_published`.
        let published = self.published.load(Ordering::Acquire);
        // SAFETY: the pin precedes the load, and what was replaced is freed after the pins of the
        // epoch in which it was.
        let published = unsafe { &*published };
        // SYNC: pairs with the Release store in `Writer::publish`.
        let version = published.version.load(Ordering::Acquire);
        // Publishes the version that this reader has seen to all other processes.
        self.shared.publish(version);
        Ok(f(&published.roots, version))
    }

    /// What was stored is durable, or the store is poisoned.
    pub(crate) fn barrier(&self) -> Result<(), StoreError> {
        self.known(self.pages.barrier())
    }

    /// Makes all earlier stores survive a loss of power, whatever the store's durability. This is
    /// needed for the note that the store is open, before anything else is stored; and for the
    /// whole store, before the note that it was closed.
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        match self.pages.durability() {
            Durability::Process => self.known(self.pages.sync()),
            // Each barrier has already made the stores durable.
            Durability::File | Durability::Flush => Ok(()),
        }
    }

    fn known(&self, synced: Result<(), MediumError>) -> Result<(), StoreError> {
        synced.map_err(|error| {
            // SYNC: pairs with the Acquire loads of those who want to write.
            self.poisoned.store(true, Ordering::Release);
            self.shared.poison();
            StoreError::OutcomeUnknown(error)
        })
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        let mut writer = self.writer();
        let writes = self.may_write().is_ok();
        // Nothing can be said of a failure here; the next opening recovers.
        let _ = writes.then(|| writer.close(self));
        drop(writer);
        // SAFETY: it came from a box, and no reader outlives the core.
        drop(unsafe { Box::from_raw(*self.published.get_mut()) });
    }
}
