//! [`RangeMap`]: a concurrent map of address ranges to values.
//!
//! **Lookups take no locks and never wait; updates of different ranges go on beside each other.**
//! One lock for all, as around an address space, makes a lookup wait for each update, and each
//! update for all others. Here a lookup pins and reads; an update locks the ranges that it touches
//! and their neighbours, by an [`Rcx`].
//!
//! All addresses from 0 to `u64::MAX - 1` are covered at any time: what nothing is mapped to is a
//! range too. Ranges with equal values that touch are one.
//!
//! # Usage
//!
//! ```
//! use mneme_rcx::{RangeError, RangeMap};
//! use mneme_sync::{ControlOptions, Participants};
//! use mneme_sys::SyntheticTopology;
//! use std::sync::Arc;
//!
//! let participants = Participants::private(ControlOptions::new([7; 16]))?;
//! let map: RangeMap<u8> = RangeMap::new(&participants, Arc::new(SyntheticTopology::new(1, 1)));
//! map.map(0x1000..0x9000, 1)?;
//! map.protect(0x1000..0x3000, 2)?;
//! assert_eq!(map.get(0x2fff)?, Some(2));
//! let found = map.read()?.find(0x5000);
//! assert_eq!((found.start, found.end, found.value), (0x3000, 0x9000, Some(1)));
//!
//! // The boundary between the two moves: one store.
//! map.shift(0x3000, 0x4000)?;
//! assert_eq!(map.get(0x3fff)?, Some(2));
//!
//! // What is taken is said, and nothing has changed.
//! let taken = map.map(0..0x2000, 1);
//! assert_eq!(taken, Err(RangeError::Mapped { start: 0x1000, end: 0x4000 }));
//! map.unmap(0..0x10000)?;
//! assert_eq!(map.get(0x5000)?, None);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Guarantees
//!
//! - *A lookup* gets a range that stood in the map, whole, at some moment of the call. It is never
//!   made to wait, not by an update that is stopped either: it looks again only after another
//!   update has made progress.
//! - *An update* is all or nothing, and happens at one moment for all other updates: its ranges are
//!   locked together. Readers see it range by range, in ascending order, each address with its
//!   value before or after. [`RangeReader::iter`] is several lookups in turn.
//! - *Waiting*: updates wait for each other where they change, or begin or end next to, one and the
//!   same range; a gap is a range too. A quarter of all insertions and removals also locks, after
//!   it has taken effect, some range further down, for a link. An owner that does not let go is
//!   named by [`RangeError::Lock`] after a second; nothing has changed then.
//! - *An update that unwinds or dies* leaves ranges of which each address has its value before or
//!   after. The next update there tidies up; no repair is needed.
//!
//! # Cost
//!
//! A range costs 96 bytes, and one in four 32 more. A search passes about `2 log2(n)` of `n`
//! boundaries. An update that touches `k` ranges takes up to `k + 2` locks; more than
//! [`LANE_ITEMS`](crate::LANE_ITEMS) are taken without lanes. `mneme-bench rangemap` measures.
//!
//! After Park's dissertation (an HTM-based NUMA-aware RCU extension), §3.3.3, which so parallelised
//! a kernel's `mprotect`. `docs/design/range-map.md` has the proof, `docs/guides/range-map.md` is
//! the guide.

mod node;
pub(crate) mod partition;
mod shortcuts;
mod update;

use crate::{ItemSet, Rcx, RcxError, RcxGuard, RcxStats};
use mneme_sync::{Acquired, Participants, Pin, Retired, SlotError};
use mneme_sys::Topology;
use node::{LEVELS, Node};
use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// What a range of a [`RangeMap`] may be mapped to: anything that fits a word and is not zero
/// there. A larger value is kept elsewhere, and this is its number.
pub trait RangeValue: Copy {
    /// The value as a word. Equal values are equal words.
    fn to_word(self) -> NonZeroU64;
    /// The value of this word, which [`to_word`](Self::to_word) has made.
    fn from_word(word: NonZeroU64) -> Self;
}

impl RangeValue for NonZeroU64 {
    fn to_word(self) -> NonZeroU64 {
        self
    }

    fn from_word(word: NonZeroU64) -> Self {
        word
    }
}

/// One more than the value, so that zero is a value too.
macro_rules! small_value {
    ($($small:ty),*) => {$(
        impl RangeValue for $small {
            fn to_word(self) -> NonZeroU64 {
                NonZeroU64::MIN.saturating_add(u64::from(self))
            }

            fn from_word(word: NonZeroU64) -> Self {
                (word.get() - 1) as $small
            }
        }
    )*};
}

small_value!(u8, u16, u32);

/// Nothing is mapped there.
const GAP: u64 = 0;

/// Removed boundaries that are gathered before they are freed, in each bag: some 27 KiB.
const BATCH: usize = 256;

/// The number of threads that usually retire boundaries without meeting.
const BAGS: usize = 8;

/// A concurrent map of address ranges; see the [module](self).
pub struct RangeMap<V> {
    participants: Participants,
    rcx: Rcx,
    /// The boundary at address 0, which is never removed, followed by all others.
    head: Box<Node>,
    /// Nodes that nobody finds any more.
    retired: Retired<Node>,
    ids: AtomicU64,
    /// The levels on which there may be a node.
    height: AtomicUsize,
    /// It gives them out, and keeps words.
    _values: PhantomData<fn() -> V>,
}

/// A range that a lookup has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundRange<V> {
    /// Its first address.
    pub start: u64,
    /// The first address behind it.
    pub end: u64,
    /// What it is mapped to; `None`: nothing is mapped from `start` to `end`.
    pub value: Option<V>,
}

/// Why an update was refused. Nothing has changed then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// The range's end is not behind its start.
    #[error("no addresses lie from {start:#x} to {end:#x}")]
    Empty {
        /// The first address.
        start: u64,
        /// The first address behind.
        end: u64,
    },
    /// Something is mapped there already.
    #[error("{start:#x} to {end:#x} is mapped already")]
    Mapped {
        /// Where that range begins.
        start: u64,
        /// Where it ends.
        end: u64,
    },
    /// Nothing is mapped there.
    #[error("nothing is mapped from {start:#x} to {end:#x}")]
    Unmapped {
        /// Where the gap begins.
        start: u64,
        /// Where it ends.
        end: u64,
    },
    /// No range begins at that address, or the one that does is the first.
    #[error("no boundary lies at {0:#x}")]
    NoBoundary(u64),
    /// A boundary moves between its neighbours only: a range is not removed by it.
    #[error("the boundary may move to addresses above {after:#x} and below {before:#x}")]
    BeyondNeighbours {
        /// The boundary before.
        after: u64,
        /// The boundary behind.
        before: u64,
    },
    /// The ranges could not be locked.
    #[error(transparent)]
    Lock(#[from] RcxError),
    /// The thread has no slot.
    #[error(transparent)]
    Slot(#[from] SlotError),
}

impl<V: RangeValue> RangeMap<V> {
    /// An empty map for the threads that pin these participants.
    #[must_use]
    pub fn new(participants: &Participants, topology: Arc<dyn Topology>) -> RangeMap<V> {
        RangeMap::with_rcx(participants, Rcx::new(participants, topology))
    }

    /// As [`new`](Self::new), with locks that the caller has made for these participants.
    #[must_use]
    pub fn with_rcx(participants: &Participants, rcx: Rcx) -> RangeMap<V> {
        let last = Node::new(1, u64::MAX, GAP, 0, std::ptr::null_mut()).boxed();
        let head = Box::new(Node::new(0, 0, GAP, LEVELS, last));
        head.set_levels(LEVELS);
        RangeMap {
            participants: participants.clone(),
            rcx,
            head,
            retired: Retired::new(participants).batch(BATCH).bags(BAGS),
            ids: AtomicU64::new(2),
            height: AtomicUsize::new(1),
            _values: PhantomData,
        }
    }

    /// What is mapped to an address.
    ///
    /// # Errors
    /// The thread has no slot.
    #[inline]
    pub fn get(&self, address: u64) -> Result<Option<V>, SlotError> {
        Ok(self.read()?.find(address).value)
    }

    /// Pins, to look up. One pin for many lookups costs one; it keeps all memory that is given up
    /// meanwhile, so it should not be kept for long.
    ///
    /// # Errors
    /// The thread has no slot.
    #[inline]
    pub fn read(&self) -> Result<RangeReader<'_, V>, SlotError> {
        let _pin = self.participants.pin()?;
        Ok(RangeReader { map: self, _pin })
    }

    /// Maps addresses to which nothing is mapped.
    ///
    /// # Errors
    /// [`RangeError::Mapped`] names the first range in the way.
    pub fn map(&self, range: Range<u64>, value: V) -> Result<(), RangeError> {
        self.assign(range, value.to_word().get(), |found| match found.value {
            GAP => Ok(()),
            _ => Err(RangeError::Mapped {
                start: found.start,
                end: found.end,
            }),
        })
    }

    /// Unmaps all addresses of a range, where something is mapped to them.
    ///
    /// # Errors
    /// See [`RangeError`].
    pub fn unmap(&self, range: Range<u64>) -> Result<(), RangeError> {
        self.assign(range, GAP, |_| Ok(()))
    }

    /// Changes what mapped addresses are mapped to.
    ///
    /// # Errors
    /// [`RangeError::Unmapped`] names the first gap in the range.
    pub fn protect(&self, range: Range<u64>, value: V) -> Result<(), RangeError> {
        self.assign(range, value.to_word().get(), |found| match found.value {
            GAP => Err(RangeError::Unmapped {
                start: found.start,
                end: found.end,
            }),
            _ => Ok(()),
        })
    }

    /// What this process' threads have come to when they locked ranges.
    #[must_use]
    pub fn stats(&self) -> RcxStats {
        self.rcx.stats()
    }

    /// Frees what no reader can see any more, without waiting. Returns how many boundaries are
    /// left that nobody finds.
    pub fn flush(&self) -> usize {
        self.retired.flush()
    }

    /// What is wrong with the map, in words: nothing, unless memory was damaged.
    #[must_use]
    pub fn check(&mut self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut live = BTreeSet::new();
        let mut node = &*self.head;
        while !node.is_last() {
            live.insert(std::ptr::from_ref(node));
            let next = node.following_on(0);
            if next.start() <= node.start() {
                wrong.push(format!("{:#x} follows {:#x}", next.start(), node.start()));
            }
            if next.value() == node.value() && !next.is_last() {
                wrong.push(format!("equal values meet at {:#x}", next.start()));
            }
            node = next;
        }
        for level in 1..LEVELS {
            let mut node = &*self.head;
            while !node.is_last() {
                if !live.contains(&std::ptr::from_ref(node)) || node.levels() <= level {
                    wrong.push(format!("{:#x} is linked on level {level}", node.start()));
                }
                let next = node.following_on(level);
                if next.start() <= node.start() {
                    wrong.push(format!("level {level} is not in order"));
                    break;
                }
                node = next;
            }
        }
        wrong
    }
}

impl<V> RangeMap<V> {
    /// The last node that begins at `address` or before, of those linked on `level` or above. The
    /// caller is pinned.
    fn before(&self, address: u64, level: usize) -> &Node {
        let mut node = &*self.head;
        let height = self.height.load(Relaxed);
        for level in (level..height.max(level + 1)).rev() {
            loop {
                let next = node.following_on(level);
                if next.start() > address {
                    break;
                }
                node = next;
            }
        }
        node
    }

    /// The range that holds `address`, which is not the greatest. The caller is pinned.
    fn find(&self, address: u64) -> partition::Seen {
        loop {
            let node = self.before(address, 0);
            // Else the range was changed after the search had passed it.
            if let Some(seen) = partition::read(node)
                && seen.start <= address
                && address < seen.end
            {
                return seen;
            }
        }
    }
}

/// What an update got. One that died or unwound with these nodes has left whole ranges.
fn whole<'a, I: ItemSet<'a>>(got: Acquired<RcxGuard<'a, I>>) -> RcxGuard<'a, I> {
    let died = got.owner_died();
    let guard = got.into_inner();
    if died {
        guard.repaired();
    }
    guard
}

/// Pins a [`RangeMap`] to look up.
pub struct RangeReader<'a, V> {
    map: &'a RangeMap<V>,
    _pin: Pin<'a>,
}

impl<V: RangeValue> RangeReader<'_, V> {
    /// The range that holds `address`. `u64::MAX` lies behind all ranges, and counts to the last.
    #[inline]
    #[must_use]
    pub fn find(&self, address: u64) -> FoundRange<V> {
        let seen = self.map.find(address.min(u64::MAX - 1));
        FoundRange {
            start: seen.start,
            end: seen.end,
            value: NonZeroU64::new(seen.value).map(V::from_word),
        }
    }

    /// The ranges to which something is mapped, ascending. Each is a lookup of its own; where one
    /// was changed between two lookups, the later begins where the earlier ended.
    pub fn iter(&self) -> impl Iterator<Item = FoundRange<V>> {
        let mut next = 0;
        let ranges = std::iter::from_fn(move || {
            let from = Some(next).filter(|next| *next < u64::MAX)?;
            let mut found = self.find(from);
            found.start = from;
            next = found.end;
            Some(found)
        });
        ranges.filter(|found| found.value.is_some())
    }
}

impl<V> Drop for RangeMap<V> {
    fn drop(&mut self) {
        // An update that unwound may have left a removed node on a level and not on those below.
        let mut nodes = BTreeSet::new();
        for level in 0..LEVELS {
            let mut next = self.head.link(level);
            while !next.is_null() {
                nodes.insert(next);
                // SAFETY: linked, and nobody else is here.
                let node = unsafe { &*next };
                next = match node.links() > level {
                    true => node.link(level),
                    false => std::ptr::null_mut(),
                };
            }
        }
        for node in nodes {
            // SAFETY: from a box, and once: what is linked anywhere is not retired.
            drop(unsafe { Box::from_raw(node) });
        }
    }
}

impl<V> std::fmt::Debug for RangeMap<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RangeMap")
            .field("stats", &self.rcx.stats())
            .field("retired", &self.retired)
            .finish_non_exhaustive()
    }
}
