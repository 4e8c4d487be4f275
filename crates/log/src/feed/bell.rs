//! The bell of a feed's followers: **no follower sleeps through an entry that was completed after
//! it had looked, and a writer makes a system call only if a follower sleeps.**
//!
//! A word of the control region counts up. Its two lowest bits say whether it is armed (1), being
//! rung (2), or neither (0). A follower *arms* it, looks at the feed, and sleeps if nothing is
//! there. A writer completes its entry and then *rings*: it changes an armed word to "being rung",
//! wakes all sleepers, and only then changes the word to "neither". So if a writer stops or dies
//! before it has woken them, the next one does it. Each follower arms the bell again before it
//! sleeps. A follower that armed it before another ring does not sleep, because the word has
//! changed.
//!
//! The model is in `models::bell`.

use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

use mneme_sync::{Participants, Word};
use mneme_sys::{InRegion, RegionError, futex};

/// The size of its part of the control region, after what `mneme-sync` has laid out there.
pub(crate) const BYTES: usize = size_of::<Area>();

#[repr(C)]
struct Area {
    bell: AtomicU64,
    spare: [AtomicU64; 15],
}
// SAFETY: repr(C), atomics alone, no padding, no drop.
unsafe impl InRegion for Area {}

/// The bell of an open store.
pub(crate) struct FeedBell {
    area: NonNull<Area>,
    /// Keeps the memory.
    _participants: Participants,
}

// SAFETY: the pointer leads into the control region, which the participants own, and to atomics
// only.
unsafe impl Send for FeedBell {}
// SAFETY: as above.
unsafe impl Sync for FeedBell {}

const ARMED: u64 = 1;
const RINGING: u64 = 2;

/// The next word with this state.
fn next(now: u64, state: u64) -> u64 {
    now.wrapping_add(state.wrapping_sub(now) & 3)
}

/// Arms the bell and returns its word.
pub(crate) fn arm<W: Word>(bell: &W) -> u64 {
    let mut now = bell.load(Relaxed);
    while now & 3 != ARMED {
        let armed = next(now, ARMED);
        match bell.compare_exchange(now, armed, Relaxed, Relaxed) {
            Ok(_) => now = armed,
            Err(found) => now = found,
        }
    }
    // SYNC: pairs with the fence in `ring`: a follower that does not see an entry has armed the
    // bell for its writer.
    W::fence(SeqCst);
    now
}

/// Rings after an entry was completed: calls `wake` if a follower may be asleep.
pub(crate) fn ring<W: Word>(bell: &W, wake: impl FnOnce()) {
    // SYNC: pairs with the fence in `arm`.
    W::fence(SeqCst);
    let mut now = bell.load(Relaxed);
    while now & 3 == ARMED {
        let ringing = next(now, RINGING);
        match bell.compare_exchange(now, ringing, Relaxed, Relaxed) {
            Ok(_) => now = ringing,
            Err(found) => now = found,
        }
    }
    if now & 3 == RINGING {
        mneme_sys::fault!("log.feed.rung");
        wake();
        // It fails if another follower has armed it.
        let _ = bell.compare_exchange(now, next(now, 0), Relaxed, Relaxed);
    }
}

impl FeedBell {
    /// # Errors
    /// The control region is too small for it.
    pub fn of(participants: &Participants) -> Result<FeedBell, RegionError> {
        let area = participants.region().at::<Area>(participants.end())?;
        Ok(FeedBell {
            area: NonNull::from(area),
            _participants: participants.clone(),
        })
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: checked in `of`; regions never shrink, and this one is kept.
        unsafe { &self.area.as_ref().bell }
    }

    /// The half of the word that changes, in the form that the kernel checks.
    fn half(&self) -> &AtomicU32 {
        let halves = std::ptr::from_ref(self.word()).cast::<AtomicU32>();
        let low = halves.wrapping_add(usize::from(cfg!(target_endian = "big")));
        // SAFETY: within the word, which is aligned for it. Only the kernel loads it.
        unsafe { &*low }
    }

    /// See [`arm`].
    pub fn arm(&self) -> u64 {
        arm(self.word())
    }

    /// Wakes all followers that sleep.
    pub fn ring(&self) {
        ring(self.word(), || futex::wake(self.half(), u32::MAX));
    }

    /// Sleeps until the bell rings, at most for `limit`. Returns at once if its word is no longer
    /// `armed`.
    pub fn wait(&self, armed: u64, limit: Duration) {
        futex::wait(self.half(), armed as u32, limit);
    }
}
