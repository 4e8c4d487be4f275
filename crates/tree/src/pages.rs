//! Access to the medium: reads, stores, and the barrier between stores.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

use mneme_sys::medium::{LINE, Medium, MediumError};
use mneme_sys::racy;

use crate::Durability;
use crate::layout::{FRAME, LEAF, LeafId, TreeExtent};

/// A medium, and the durability for which stores are ordered.
#[derive(Debug)]
pub(crate) struct TreePages {
    medium: Box<dyn Medium>,
    base: NonNull<u8>,
    durability: Durability,
    /// With [`Durability::Flush`]: the lines stored to since the last barrier.
    stored: Mutex<Vec<Range<u64>>>,
}

// SAFETY: `base` points into the medium, which is `Send` and `Sync` and which `Pages` owns.
unsafe impl Send for TreePages {}
// SAFETY: as above.
unsafe impl Sync for TreePages {}

impl TreePages {
    pub(crate) fn new(medium: Box<dyn Medium>, durability: Durability) -> Self {
        Self {
            base: medium.base(),
            medium,
            durability,
            stored: Mutex::default(),
        }
    }

    pub(crate) fn durability(&self) -> Durability {
        self.durability
    }

    pub(crate) fn len(&self) -> u64 {
        self.medium.len()
    }

    /// Starts reading a range from the medium.
    pub(crate) fn read_ahead(&self, range: Range<u64>) {
        self.medium.read_ahead(range);
    }

    /// Copies bytes; those outside of the medium read as zeros.
    pub(crate) fn copy(&self, at: u64, to: &mut [u8]) {
        if at
            .checked_add(to.len() as u64)
            .is_none_or(|end| end > self.medium.len())
        {
            to.fill(0);
            return;
        }
        // SAFETY: inside the medium, whose length never shrinks.
        unsafe { racy::load(self.base.as_ptr().add(at as usize), to) }
    }

    /// `len` bytes at offset `from` of a leaf.
    ///
    /// # Safety
    /// The leaf lies inside the medium and the range inside the leaf. Nobody stores to the range
    /// while the result lives: it holds published entries, and the leaf is not reused.
    #[inline]
    pub(crate) unsafe fn in_leaf(&self, id: LeafId, from: usize, len: usize) -> &[u8] {
        debug_assert!(from + len <= LEAF);
        // SAFETY: the caller's promise.
        unsafe {
            let at = self.base.as_ptr().add(id.at() as usize + from);
            std::slice::from_raw_parts(at, len)
        }
    }

    /// The content of an extent.
    ///
    /// # Safety
    /// The extent lies inside the medium, and nobody stores to it while the result lives: an entry
    /// that the caller may read names it, and it is not reused.
    #[inline]
    pub(crate) unsafe fn in_extent(&self, extent: TreeExtent) -> &[u8] {
        // SAFETY: the caller's promise.
        unsafe {
            let at = self.base.as_ptr().add(extent.at() as usize);
            std::slice::from_raw_parts(at, extent.len as usize)
        }
    }

    /// The offset of bytes that lie in the medium.
    pub(crate) fn place(&self, bytes: &[u8]) -> u64 {
        (bytes.as_ptr() as usize - self.base.as_ptr() as usize) as u64
    }

    /// Whether the extent lies inside the medium and outside of tables.
    pub(crate) fn has(&self, extent: TreeExtent) -> bool {
        extent.frame > 0
            && extent.is_inside()
            && extent.at() + u64::from(extent.len) <= self.medium.len()
    }

    /// Prefetches the two lines at offset `from` of a leaf.
    #[inline]
    pub(crate) fn prefetch(&self, id: LeafId, from: usize) {
        let at = self.base.as_ptr().wrapping_add(id.at() as usize + from);
        mneme_sys::prefetch(at);
        mneme_sys::prefetch(at.wrapping_add(64));
    }

    /// Prefetches all lines of a range of a leaf.
    #[inline]
    pub(crate) fn prefetch_all(&self, id: LeafId, range: Range<usize>) {
        let base = self.base.as_ptr().wrapping_add(id.at() as usize);
        for at in range.step_by(64) {
            mneme_sys::prefetch(base.wrapping_add(at));
        }
    }

    /// Stores bytes, which are durable after the next [`barrier`](Self::barrier).
    pub(crate) fn store(&self, at: u64, bytes: &[u8]) {
        self.medium.store(at, bytes);
        self.note(at, bytes.len() as u64);
    }

    /// Stores a word, which is durable after the next [`barrier`](Self::barrier), and never torn.
    pub(crate) fn store_word(&self, at: u64, word: u64) {
        self.medium.store_word(at, word);
        self.note(at, 8);
    }

    /// Notes lines for the next barrier: each is flushed once, however often it was stored to.
    #[inline]
    fn note(&self, at: u64, bytes: u64) {
        if self.durability == Durability::Flush {
            let lines = at / LINE * LINE..(at + bytes).next_multiple_of(LINE);
            self.stored().push(lines);
        }
    }

    fn stored(&self) -> MutexGuard<'_, Vec<Range<u64>>> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Flushes the lines stored to since the last flush, in runs.
    fn flush(&self) {
        let mut stored = self.stored();
        stored.sort_unstable_by_key(|lines| lines.start);
        let mut lines = stored.drain(..);
        let Some(mut row) = lines.next() else {
            return;
        };
        for next in lines {
            if next.start <= row.end {
                row.end = row.end.max(next.end);
            } else {
                self.medium.flush(std::mem::replace(&mut row, next));
            }
        }
        self.medium.flush(row);
    }

    /// Makes all earlier stores durable against the failures that the store must survive.
    pub(crate) fn barrier(&self) -> Result<(), MediumError> {
        match self.durability {
            // The kernel preserves the order of a killed process' stores.
            Durability::Process => {
                std::sync::atomic::fence(Ordering::Release);
                Ok(())
            }
            Durability::Flush => {
                self.flush();
                self.medium.fence();
                Ok(())
            }
            Durability::File => self.medium.sync(),
        }
    }

    /// Makes all earlier stores survive a power loss.
    pub(crate) fn sync(&self) -> Result<(), MediumError> {
        self.medium.sync()
    }

    /// Makes durable what an interrupted process left in the page cache, or in lines that it did
    /// not flush, against the failures that the store must survive.
    pub(crate) fn adopt(&self) -> Result<(), MediumError> {
        match self.durability {
            Durability::Process => self.barrier(),
            // The lines are unknown: the kernel finds all pages that were stored to.
            Durability::Flush | Durability::File => self.sync(),
        }
    }

    /// Follows growth of the file by another process.
    pub(crate) fn follow(&self) -> Result<(), MediumError> {
        self.medium.follow()
    }

    /// Prepares a frame for use.
    pub(crate) fn settle(&self, frame: u32) {
        let at = u64::from(frame) * FRAME;
        self.medium.settle(at..at + FRAME);
    }

    /// Grows the medium and allocates the space.
    pub(crate) fn grow(&self, to: u64) -> Result<(), MediumError> {
        self.medium.grow(to)?;
        // Flushes make stores durable, but not the file's length.
        match self.durability {
            Durability::Flush => self.medium.sync(),
            _ => Ok(()),
        }
    }
}
