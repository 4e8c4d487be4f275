//! The words that processes with an open store share in their control region.

use std::convert::Infallible;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use mneme_sync::{ControlOptions, Feed, HeldVersions, Participants};
use mneme_sys::medium::MediumError;
use mneme_sys::{InRegion, RegionError};

use crate::StoreError;
use crate::layout::LeafId;

/// The most numbers of dead versions.
const DEAD: usize = 120;

/// The most threads that may read a store at a time, in all processes together.
const THREADS: u16 = 1024;
/// The most processes that may have a store open at a time.
const PROCESSES: u32 = 256;

#[repr(C, align(128))]
struct Lines {
    /// The version that readers see.
    durable: AtomicU64,
    /// Bytes of the file that this version may use.
    file_len: AtomicU64,
    /// The number of valid words in `dead`, which never decreases.
    dead_count: AtomicU64,
    /// A sync has failed.
    poisoned: AtomicU64,
    /// The process that writes, or wrote last; 0 before the first.
    writer_pid: AtomicU64,
    /// The newest commit that a writer of this region has begun; 0: unknown.
    begun: AtomicU64,
    _rest: [AtomicU64; 2],
    /// Numbers of versions that were never committed and left traces.
    dead: [AtomicU64; DEAD],
}

const _: () = assert!(size_of::<Lines>() == 8 * (8 + DEAD) && DEAD > crate::layout::MAX_DEAD);

// SAFETY: `repr(C)`, atomics only, no padding (the assertion above counts), no drop.
unsafe impl InRegion for Lines {}

/// The state shared by the processes that have a store open.
#[derive(Debug)]
pub(crate) struct SharedControl {
    lines: NonNull<Lines>,
    pub(crate) held: HeldVersions,
    feed: Feed,
    pub(crate) participants: Participants,
}

// SAFETY: the pointer leads into the control region, which the participants keep, and to atomics
// only.
unsafe impl Send for SharedControl {}
// SAFETY: as above.
unsafe impl Sync for SharedControl {}

/// An announcement about a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnnouncedVersion {
    /// The version has this new leaf.
    Birth(LeafId),
    /// From this version on the tree with this number has no leaf.
    End(u32),
}

impl AnnouncedVersion {
    /// Set in the words of `End`.
    const END: u64 = 1 << 32;

    fn word(self) -> u64 {
        match self {
            Self::Birth(leaf) => u64::from(leaf.0),
            Self::End(tree) => u64::from(tree) | Self::END,
        }
    }

    /// Decodes a word of the feed.
    pub(crate) fn of(word: u64) -> Self {
        match word & Self::END {
            0 => Self::Birth(LeafId(word as u32)),
            _ => Self::End(word as u32),
        }
    }
}

/// The offset of the writing process' id after the participants' part of the region.
pub(crate) const WRITER_PID: u64 = std::mem::offset_of!(Lines, writer_pid) as u64;

/// The bytes of a control region after the participants' part.
pub(crate) const OWN_BYTES: usize = size_of::<Lines>() + HeldVersions::BYTES + Feed::BYTES;

/// The sizes of a store's control region.
pub(crate) fn control_options(uuid: [u8; 16]) -> ControlOptions {
    ControlOptions {
        max_processes: PROCESSES,
        max_threads: THREADS,
        undo_bytes: 8,
        ..ControlOptions::new(uuid)
    }
}

impl SharedControl {
    /// A control region for this process alone.
    pub(crate) fn private(uuid: [u8; 16]) -> Result<Self, StoreError> {
        let options = ControlOptions {
            max_processes: 1,
            ..control_options(uuid)
        };
        let participants = Participants::private_with(options, OWN_BYTES)?;
        Ok(Self::of(participants).map_err(MediumError::Region)?)
    }

    /// The state in a control region that several processes share.
    pub(crate) fn of(participants: Participants) -> Result<Self, RegionError> {
        let at = participants.end();
        let lines = participants.region().at::<Lines>(at)?;
        let held_at = at + size_of::<Lines>() as u64;
        let feed_at = held_at + HeldVersions::BYTES as u64;
        Ok(Self {
            lines: NonNull::from(lines),
            held: HeldVersions::at(&participants, held_at)?,
            feed: Feed::at(&participants, feed_at)?,
            participants,
        })
    }

    fn lines(&self) -> &Lines {
        // SAFETY: checked in `of`; regions never shrink, and this one is kept.
        unsafe { self.lines.as_ref() }
    }

    /// The version that readers see.
    #[inline]
    pub(crate) fn durable(&self) -> u64 {
        // SYNC: pairs with the maximum in `publish`: the version implies all that it holds, the
        // feed and the other words here included.
        self.lines().durable.load(Ordering::Acquire)
    }

    /// Makes a version visible to readers in all processes, unless it is already.
    #[inline]
    pub(crate) fn publish(&self, version: u64) {
        let durable = &self.lines().durable;
        if durable.load(Ordering::Relaxed) < version {
            // SYNC: pairs with the Acquire load in `durable`.
            durable.fetch_max(version, Ordering::AcqRel);
        }
    }

    /// Announces the content of a version. Called before the version's record is written: if the
    /// writer is killed in between and the version exists, so does the announcement.
    pub(crate) fn announce(&self, version: u64, announced: &[AnnouncedVersion], file_len: u64) {
        self.lines().file_len.store(file_len, Ordering::Relaxed);
        let entries = announced
            .iter()
            .map(|announced| [version, announced.word()]);
        self.feed.append(entries);
    }

    /// The number of births so far.
    pub(crate) fn births(&self) -> u64 {
        self.feed.head()
    }

    /// Versions and their announcements since birth number `from`; `None` if they are no longer all
    /// available.
    pub(crate) fn births_since(&self, from: u64) -> Option<Vec<[u64; 2]>> {
        self.feed.read(from).ok()
    }

    pub(crate) fn file_len(&self) -> u64 {
        self.lines().file_len.load(Ordering::Relaxed)
    }

    /// The numbers of dead versions.
    pub(crate) fn dead(&self) -> Vec<u64> {
        let lines = self.lines();
        // SYNC: pairs with the Release store in `add_dead`.
        let count = lines.dead_count.load(Ordering::Acquire) as usize;
        let dead = lines.dead[..count.min(DEAD)].iter();
        dead.map(|number| number.load(Ordering::Relaxed)).collect()
    }

    /// Adds numbers of dead versions. Returns whether there was space for them. Only the caller
    /// opens the store at this time.
    pub(crate) fn add_dead(&self, numbers: &[u64]) -> bool {
        let known = self.dead();
        let new: Vec<_> = numbers.iter().filter(|n| !known.contains(n)).collect();
        let lines = self.lines();
        let count = known.len() + new.len();
        if count > DEAD {
            return false;
        }
        for (place, number) in lines.dead[known.len()..].iter().zip(new) {
            place.store(*number, Ordering::Relaxed);
        }
        // SYNC: pairs with the Acquire load in `dead`.
        lines.dead_count.store(count as u64, Ordering::Release);
        true
    }

    /// Releases the pins and held versions of dead processes.
    pub(crate) fn reap(&self) {
        // What fails is retried the next time.
        let _ = self.participants.reap(|_| Ok::<(), Infallible>(()));
        self.held.reap();
    }

    /// Notes that the commit with this number is about to store; all earlier ones have finished.
    pub(crate) fn begin(&self, version: u64) {
        self.lines().begun.store(version, Ordering::Relaxed);
        // The fence keeps this before those stores in the compiled code; a killed process has
        // performed all stores before its last one.
        std::sync::atomic::fence(Ordering::Release);
    }

    /// Whether a commit may have stored something newer than `last`.
    pub(crate) fn may_have_begun(&self, last: u64) -> bool {
        let begun = self.lines().begun.load(Ordering::Relaxed);
        begun == 0 || begun > last
    }

    /// Notes that a sync has failed.
    pub(crate) fn poison(&self) {
        self.lines().poisoned.store(1, Ordering::Release);
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.lines().poisoned.load(Ordering::Acquire) != 0
    }

    /// Notes that this process is the writer from now on.
    pub(crate) fn set_writer(&self) {
        let pid = u64::from(std::process::id());
        self.lines().writer_pid.store(pid, Ordering::Relaxed);
    }
}
