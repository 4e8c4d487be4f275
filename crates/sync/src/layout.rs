//! The control region's format, version 2: the offsets of its parts. The modules named below
//! describe what the parts mean.
//!
//! ```text
//! 0      RegionHeader (mneme-sys)       magic, version, layout hash, identity of the control region itself
//! 128    ControlHeader                  geometry, identities, leases, then each hot word on lines of its own
//! ...    ProcessEntry x max_processes   64 B each: the attached processes
//! ...    SlotLines    x max_threads     2,432 B each: one thread's pin, owner, intents, counters
//! ...    undo area    x max_threads     undo_bytes each
//! ```
//! Every part begins at a multiple of 128 bytes (the unit of x86 prefetching), so that no two
//! threads share one. All words are 64-bit atomics in the machine's byte order; unused parts are
//! zero.

use crate::counter_fold::{self, CounterWords, JournalWords};
use crate::slot_owner::SlotWords;
use crate::{RobustLock, intent};
use mneme_sys::{HEADER_LEN, InRegion};
use std::mem::MaybeUninit;
use std::sync::atomic::AtomicU64;

/// The magic number of a control region.
pub(crate) const MAGIC: [u8; 8] = *b"MnemeCtl";
/// The version of the format that this file describes.
pub(crate) const FORMAT: u32 = 2;
/// Changes whenever a size or a constant of this file changes.
pub(crate) const LAYOUT_HASH: u64 = fnv(&[
    size_of::<ControlHeader>() as u64,
    size_of::<ProcessEntry>() as u64,
    size_of::<SlotLines>() as u64,
    LANES as u64,
    INTENT_WORDS as u64,
    COUNTERS as u64,
    GATES as u64,
]);

/// The number of intent lines in a slot.
pub(crate) const LANES: usize = 4;
/// The number of operand words of an intent.
pub const INTENT_WORDS: usize = 7;
/// The number of counters in a slot: two for each of 64 databases.
pub const COUNTERS: usize = 128;
/// The number of gates in a control region.
pub const GATES: usize = 16;
/// The number of leases of a control region: roles that one process has at a time.
pub const LEASES: usize = 4;
/// The number of interests of watchers.
pub(crate) const INTERESTS: usize = 2;
/// The unit of placement: two cache lines.
pub(crate) const UNIT: usize = 128;

const fn fnv(numbers: &[u64]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut i = 0;
    while i < numbers.len() {
        hash = (hash ^ numbers[i]).wrapping_mul(0x0000_0100_0000_01b3);
        i += 1;
    }
    hash
}

/// A word that has 128 bytes to itself.
#[repr(C, align(128))]
pub(crate) struct Lone {
    pub(crate) word: AtomicU64,
    _rest: [AtomicU64; 15],
}

/// A number of records in a database, as one thread or the base sees it.
#[repr(C, align(16))]
pub(crate) struct Counter {
    /// The identity of the index that is counted; 0 for none.
    pub(crate) root: AtomicU64,
    /// The count, an `i64`.
    pub(crate) value: AtomicU64,
}

/// The move of a counter that is in progress; protected by the region's own lock.
#[repr(C, align(128))]
pub(crate) struct FoldJournal {
    /// Sequence, open flag, slot and counter, see `counter_fold::FoldEntry`.
    pub(crate) entry: AtomicU64,
    pub(crate) root: AtomicU64,
    pub(crate) target: AtomicU64,
    _rest: [AtomicU64; 13],
}

/// A [`FencedGate`](crate::FencedGate), which is closed while its lock is held.
#[repr(C, align(128))]
pub(crate) struct GateWords {
    pub(crate) lock: RobustLock,
    _rest: [AtomicU64; 15],
}

#[repr(C, align(128))]
pub(crate) struct ControlHeader {
    // The sizes are written under the region's lock while nobody is attached, and are constant
    // otherwise.
    pub(crate) max_processes: AtomicU64,
    pub(crate) max_threads: AtomicU64,
    pub(crate) undo_bytes: AtomicU64,
    pub(crate) data_uuid: [AtomicU64; 2],
    pub(crate) boot_id: [AtomicU64; 2],
    /// How often the region has been built or rebuilt.
    pub(crate) incarnation: AtomicU64,
    /// [`BARRIER_ASYMMETRIC`] or [`BARRIER_FENCE`]: the light side that every participant uses.
    pub(crate) barrier: AtomicU64,
    /// [`TableGeometry::checksum`].
    pub(crate) geometry: AtomicU64,
    /// The holder of each lease; `lease` interprets the words.
    pub(crate) leases: [AtomicU64; LEASES],
    /// The processes that watch for each interest; `watch` interprets the words.
    pub(crate) watched: [AtomicU64; INTERESTS],
    /// The epoch. Written only by reclaimers, read by every pin.
    pub(crate) epoch: Lone,
    /// The result of the last examination of all pins.
    pub(crate) quiesced: Lone,
    /// The highest slot that was ever claimed, where scans of the slots may stop.
    pub(crate) highest_slot: Lone,
    /// The number of the last revocation.
    pub(crate) revocations: Lone,
    pub(crate) journal: FoldJournal,
    pub(crate) gates: [GateWords; GATES],
    /// The counts of threads that have ended.
    pub(crate) base: [Counter; COUNTERS],
}

pub(crate) const BARRIER_ASYMMETRIC: u64 = 1;
pub(crate) const BARRIER_FENCE: u64 = 2;

/// One attached process. `process` interprets the state.
#[repr(C, align(64))]
pub(crate) struct ProcessEntry {
    /// State and incarnation.
    pub(crate) state: AtomicU64,
    pub(crate) pid: AtomicU64,
    /// When it attached, in wall-clock milliseconds.
    pub(crate) attached_ms: AtomicU64,
    _rest: [AtomicU64; 5],
}

#[repr(C, align(64))]
pub(crate) struct IntentWords {
    /// Kind (16 bits, 0: none) and sequence (48 bits).
    pub(crate) head: AtomicU64,
    pub(crate) words: [AtomicU64; INTENT_WORDS],
}

/// One thread's slot.
#[repr(C, align(128))]
pub(crate) struct SlotLines {
    /// The pin; `epoch` interprets the word. Except for a revocation, only the owner writes to the
    /// first line.
    pub(crate) pin: AtomicU64,
    /// A bit for each gate that the thread is inside; `gate` interprets the word.
    pub(crate) inside: AtomicU64,
    _line: [AtomicU64; 6],
    /// The slot's owner; `slot_owner` interprets the word.
    pub(crate) owner: AtomicU64,
    _line2: [AtomicU64; 7],
    pub(crate) intents: [IntentWords; LANES],
    pub(crate) counters: [Counter; COUNTERS],
}

const _: () = {
    assert!(size_of::<Lone>() == 128);
    assert!(size_of::<Counter>() == 16);
    assert!(size_of::<FoldJournal>() == 128);
    assert!(size_of::<ProcessEntry>() == 64);
    assert!(size_of::<IntentWords>() == 64);
    assert!(size_of::<SlotLines>() == 38 * 64);
    assert!(std::mem::offset_of!(SlotLines, owner) == 64);
    assert!(std::mem::offset_of!(SlotLines, intents) == 128);
    assert!(std::mem::offset_of!(ControlHeader, leases) == 10 * 8);
    assert!(std::mem::offset_of!(ControlHeader, epoch) == 128);
    assert!(size_of::<ControlHeader>() == 128 + 4 * 128 + 128 + GATES * 128 + COUNTERS * 16);
    assert!(HEADER_LEN.is_multiple_of(UNIT));
};

// SAFETY: `repr(C)`, atomics only, no padding (the assertions above count the words), no drop.
unsafe impl InRegion for ControlHeader {}
// SAFETY: as above.
unsafe impl InRegion for ProcessEntry {}
// SAFETY: as above.
unsafe impl InRegion for SlotLines {}

/// The offsets of the parts of a region of a given geometry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableGeometry {
    pub(crate) max_processes: u32,
    pub(crate) max_threads: u16,
    pub(crate) undo_bytes: usize,
}

/// Limits of the format: they keep every offset far from overflow.
pub(crate) const MAX_PROCESSES: u32 = u16::MAX as u32;
pub(crate) const MAX_UNDO: usize = 16 << 20;

impl TableGeometry {
    pub(crate) fn check(self) -> Result<(), &'static str> {
        if self.max_processes == 0 || self.max_processes > MAX_PROCESSES {
            Err("max_processes must be between 1 and 65,535")
        } else if self.max_threads == 0 {
            Err("max_threads must be between 1 and 65,535")
        } else if self.undo_bytes > MAX_UNDO || !self.undo_bytes.is_multiple_of(8) {
            Err("undo_bytes must be a multiple of 8 and at most 16 MiB")
        } else {
            Ok(())
        }
    }

    /// A checksum that detects accidental damage to the stored sizes.
    pub(crate) const fn checksum(self) -> u64 {
        fnv(&[
            self.max_processes as u64,
            self.max_threads as u64,
            self.undo_bytes as u64,
        ])
    }

    pub(crate) const fn header(self) -> usize {
        HEADER_LEN
    }

    pub(crate) const fn processes(self) -> usize {
        self.header() + size_of::<ControlHeader>()
    }

    pub(crate) const fn slots(self) -> usize {
        (self.processes() + self.max_processes as usize * size_of::<ProcessEntry>())
            .next_multiple_of(UNIT)
    }

    pub(crate) const fn undo(self) -> usize {
        self.slots() + self.max_threads as usize * size_of::<SlotLines>()
    }

    /// The distance in bytes between the undo areas of neighbouring slots.
    pub(crate) const fn undo_stride(self) -> usize {
        self.undo_bytes.next_multiple_of(UNIT)
    }

    pub(crate) const fn end(self) -> usize {
        self.undo() + self.max_threads as usize * self.undo_stride()
    }
}

impl SlotLines {
    pub(crate) fn words(&self) -> SlotWords<'_, AtomicU64> {
        SlotWords {
            owner: &self.owner,
            pin: &self.pin,
            inside: &self.inside,
            intents: self.intents.each_ref().map(|line| &line.head),
        }
    }

    /// Whether there is an intent in any lane.
    pub(crate) fn is_announcing(&self) -> bool {
        let mut heads = self.intents.iter().map(|line| &line.head);
        heads.any(|head| intent::standing(head).is_some())
    }

    /// The slot's count for the index `root` in counter `db`.
    #[inline]
    pub(crate) fn counted(&self, db: usize, root: u64) -> i64 {
        let counter = self.counters.get(db);
        counter
            .and_then(|counter| counter_fold::read(&counter.words(), root))
            .map_or(0, u64::cast_signed)
    }
}

impl Counter {
    pub(crate) fn words(&self) -> CounterWords<'_, AtomicU64> {
        CounterWords {
            root: &self.root,
            value: &self.value,
        }
    }
}

impl FoldJournal {
    pub(crate) fn words(&self) -> JournalWords<'_, AtomicU64> {
        JournalWords {
            entry: &self.entry,
            root: &self.root,
            target: &self.target,
        }
    }
}

/// Lines that belong to no slot, private to the process: the target of writes that must not reach
/// shared memory.
pub(crate) fn nowhere() -> &'static SlotLines {
    // SAFETY: atomics only, for which all zero is a value.
    static NOWHERE: SlotLines = unsafe { MaybeUninit::zeroed().assume_init() };
    &NOWHERE
}

/// A header outside any region.
#[cfg(test)]
pub(crate) fn zeroed_header() -> Box<ControlHeader> {
    // SAFETY: atomics only, for which all zero is a value.
    unsafe { Box::<ControlHeader>::new_zeroed().assume_init() }
}
