//! A feed from one writer to any number of followers: **a follower gets every entry, in order, or
//! learns that it fell behind.** Nobody waits, and the writer does not know its followers.
//!
//! The entries lie in a ring. The writer first publishes how far it will overwrite the ring
//! (`reserved`), stores its entries, and then publishes how far they go (`head`). A follower reads
//! up to `head` and then checks whether what it read may have been overwritten meanwhile.
//!
//! A writer that is killed in between leaves entries behind `head`, which the next writer
//! overwrites. `reserved` never decreases, so a follower that needs the entries that were
//! overwritten notices it. At most one process may write at a time; the caller ensures that.

use crate::atomics::Word;
use crate::participants::Participants;
use mneme_sys::{InRegion, RegionError};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The number of entries that a follower may be behind.
pub const FEED_ENTRIES: usize = 1 << 14;

/// Entries that a follower needs were overwritten before it read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the follower of a feed fell behind")]
pub struct Behind;

/// Appends entries of two words.
pub(crate) fn append<W: Word>(
    (reserved, head): (&W, &W),
    ring: &[[W; 2]],
    entries: impl ExactSizeIterator<Item = [u64; 2]>,
) {
    let to = overwrite((reserved, head), ring, entries);
    // SYNC: pairs with the Acquire load in `read`.
    head.store(to, Release);
}

/// Stores entries behind the last one, and returns the number of the next.
pub(crate) fn overwrite<W: Word>(
    (reserved, head): (&W, &W),
    ring: &[[W; 2]],
    entries: impl ExactSizeIterator<Item = [u64; 2]>,
) -> u64 {
    let from = head.load(Relaxed);
    let to = from + entries.len() as u64;
    // Entries that a killed writer has overwritten remain so.
    reserved.store(to.max(reserved.load(Relaxed)), Relaxed);
    // SYNC: pairs with the fence in `read`: a follower that reads one of the stores below also sees
    // `reserved`.
    W::fence(Release);
    for (at, [first, second]) in (from..to).zip(entries) {
        let entry = &ring[at as usize % ring.len()];
        entry[0].store(first, Relaxed);
        entry[1].store(second, Relaxed);
    }
    to
}

/// The entries from number `from` to the last one.
pub(crate) fn read<W: Word>(
    (reserved, head): (&W, &W),
    ring: &[[W; 2]],
    from: u64,
) -> Result<Vec<[u64; 2]>, Behind> {
    let fits = |to: u64| to >= from && to - from <= ring.len() as u64;
    // SYNC: pairs with the Release store in `append`.
    let to = head.load(Acquire);
    if !fits(to) {
        return Err(Behind);
    }
    let entry = |at| {
        let entry = &ring[at as usize % ring.len()];
        [entry[0].load(Relaxed), entry[1].load(Relaxed)]
    };
    let entries = (from..to).map(entry).collect();
    // SYNC: pairs with the fence in `append`.
    W::fence(Acquire);
    match fits(reserved.load(Relaxed)) {
        true => Ok(entries),
        false => Err(Behind),
    }
}

#[repr(C, align(128))]
struct Lines {
    reserved: AtomicU64,
    head: AtomicU64,
    _rest: [AtomicU64; 14],
    ring: [[AtomicU64; 2]; FEED_ENTRIES],
}

const _: () = assert!(size_of::<Lines>() == 128 + FEED_ENTRIES * 16);

// SAFETY: `repr(C)`, atomics only, no padding (the assertion above counts), no drop.
unsafe impl InRegion for Lines {}

/// The feed in a control region, behind the part that belongs to this crate.
pub struct Feed {
    lines: NonNull<Lines>,
    participants: Participants,
}

// SAFETY: the pointer leads into the control region, which the participants keep, and to atomics
// only.
unsafe impl Send for Feed {}
// SAFETY: as above.
unsafe impl Sync for Feed {}

impl Feed {
    /// The size of the feed in bytes.
    pub const BYTES: usize = size_of::<Lines>();

    /// The feed at offset `at` of the control region, a multiple of 128. Zeroed memory is an empty
    /// feed.
    ///
    /// # Errors
    /// The region is too small for it.
    pub fn at(participants: &Participants, at: u64) -> Result<Feed, RegionError> {
        let lines = participants.region().at::<Lines>(at)?;
        Ok(Feed {
            lines: NonNull::from(lines),
            participants: participants.clone(),
        })
    }

    /// None in a forked child, which may not have the region mapped.
    fn lines(&self) -> Option<&Lines> {
        match self.participants.is_forked() {
            true => None,
            // SAFETY: checked in `at`; regions never shrink, and this one is kept.
            false => Some(unsafe { self.lines.as_ref() }),
        }
    }

    /// The number of the next entry.
    #[must_use]
    pub fn head(&self) -> u64 {
        // SYNC: pairs with the Release store in `append`.
        self.lines().map_or(0, |lines| lines.head.load(Acquire))
    }

    /// Appends entries. Only one thread of one process may do so at a time.
    pub fn append(&self, entries: impl ExactSizeIterator<Item = [u64; 2]>) {
        if let Some(lines) = self.lines() {
            append((&lines.reserved, &lines.head), &lines.ring, entries);
        }
    }

    /// The entries from number `from` to the last one.
    ///
    /// # Errors
    /// [`Behind`]; always in a forked child.
    pub fn read(&self, from: u64) -> Result<Vec<[u64; 2]>, Behind> {
        let lines = self.lines().ok_or(Behind)?;
        read((&lines.reserved, &lines.head), &lines.ring, from)
    }
}

impl std::fmt::Debug for Feed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Feed")
            .field("head", &self.head())
            .finish_non_exhaustive()
    }
}
