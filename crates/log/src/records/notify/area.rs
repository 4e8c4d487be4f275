//! Where the notifications' ring lies: in the control region, behind what `mneme-sync` has laid out
//! there.
//!
//! ```text
//! 0      word   number of the present listener; 0: nobody listens
//! 8      word   the last number given out; numbers are never used again
//! 128    word   head: the first position that may be free
//! 256    word   losses
//! 384    word   position up to which the last listener has drained
//! 512    slots x 4,096, of 128 bytes: the state, and 15 words of content
//! ```
//!
//! All zero is an empty ring without a listener.

use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use mneme_sync::Participants;
use mneme_sys::{InRegion, RegionError};

use super::ring::NotifyRing;

/// Notifications that the ring holds.
pub(crate) const SLOTS: usize = 4096;
/// Words of a notification, at most.
pub(crate) const CONTENT: usize = 15;
/// Words of a slot: two cache lines.
const STRIDE: usize = CONTENT + 1;

/// Bytes of the control region that notifications take.
pub(crate) const BYTES: usize = size_of::<Layout>();

/// A word with two cache lines of its own.
#[repr(C)]
struct Lone {
    word: AtomicU64,
    spare: [AtomicU64; 15],
}

#[repr(C)]
struct Layout {
    listener: AtomicU64,
    number: AtomicU64,
    spare: [AtomicU64; 14],
    head: Lone,
    losses: Lone,
    drained: Lone,
    slots: [AtomicU64; SLOTS * STRIDE],
}

const _: () = {
    assert!(std::mem::offset_of!(Layout, slots) == 512);
    assert!(BYTES == 512 + SLOTS * 128);
};
// SAFETY: repr(C), atomics alone, no padding (the assertions above count the words), no drop.
unsafe impl InRegion for Layout {}

/// The notifications' part of an opening's control region.
pub(crate) struct Area {
    layout: NonNull<Layout>,
    /// The number with which this opening itself listens; 0: it does not.
    pub own: AtomicU64,
    /// The id of this process, as notifications carry it.
    pub pid: u32,
    /// Keeps the memory.
    _participants: Participants,
}

// SAFETY: the pointer leads into the control region, which the participants own, and to atomics
// only.
unsafe impl Send for Area {}
// SAFETY: as above.
unsafe impl Sync for Area {}

impl Area {
    /// # Errors
    /// The control region is too small for it.
    pub fn of(participants: &Participants) -> Result<Area, RegionError> {
        let layout = participants.region().at::<Layout>(participants.end())?;
        Ok(Area {
            layout: NonNull::from(layout),
            own: AtomicU64::new(0),
            pid: std::process::id(),
            _participants: participants.clone(),
        })
    }

    #[inline(always)]
    fn layout(&self) -> &Layout {
        // SAFETY: checked in `of`; regions never shrink, and this one is kept.
        unsafe { self.layout.as_ref() }
    }

    /// The number of the present listener.
    #[inline(always)]
    pub fn listener(&self) -> &AtomicU64 {
        &self.layout().listener
    }

    /// The last number given out.
    pub fn number(&self) -> &AtomicU64 {
        &self.layout().number
    }

    /// The position up to which the last listener has drained the ring.
    pub fn drained(&self) -> &AtomicU64 {
        &self.layout().drained.word
    }

    pub fn ring(&self) -> NotifyRing<'_, AtomicU64> {
        let layout = self.layout();
        NotifyRing {
            head: &layout.head.word,
            losses: &layout.losses.word,
            words: &layout.slots,
            stride: STRIDE,
        }
    }

    /// Resets the area to that of a store without a listener. No other opening uses the store.
    pub fn clear(&self) {
        self.ring().clear();
        for word in [self.listener(), self.number(), self.drained()] {
            word.store(0, Relaxed);
        }
    }
}
