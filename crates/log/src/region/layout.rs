//! What the store keeps in its region, besides records and index blocks: a header and four tables.
//!
//! They lie in the client area of the arena, in this order. Each entry has cache lines of its own,
//! except in the pool tables and the counters:
//!
//! | table | one entry | entries |
//! |---|---|---|
//! | [`LogHeader`] | 2 KiB | 1 |
//! | [`Head`] | 64 B | one a CPU, then the compactors', then those for bulk records |
//! | [`LogSegmentInfo`] | 64 B | one a frame of the arena's maximum, used by an extent's first frame |
//! | [`Shard`] | 65,728 B | see [`crate::index`] |
//! | pool table | 8 B | shards x frames that a shard may own |
//! | change counters | 8 B | see [`crate::store::watch`] |
//!
//! `docs/design/log.md` has every byte of them.
//!
//! [`Geometry`] is computed once from the capacity and stored in the header; every opening checks
//! that the stored one is whole and fits, and then works with its own copy.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicU64};

use mneme_arena::{FRAME_BYTES, Frame};
use mneme_sync::{RobustLock, UndoArea};

use crate::error::{Corrupt, OpenError};
use crate::region::mem::{Loc, Mem};
use crate::region::policy::UpdatePolicy;
use crate::region::space::{DATABASES, KEYSPACES, KeyspaceId};

/// Raised whenever a byte of any structure in the region changes its meaning.
pub const FORMAT: u64 = 21;
const MAGIC: u64 = u64::from_le_bytes(*b"MNEMELOG");

/// The minimum capacity of a store, in bytes.
pub const MIN_CAPACITY: u64 = 64 << 20;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// The longest entry of a change feed, in bytes.
pub(crate) const MAX_ENTRY: usize = 64 << 10;
/// The largest ring of a change feed: what a fast device writes in about 50 ms.
const MAX_RING: u64 = 64 * MIB;
/// The ring of a change feed that is not kept: several thousand changes of short keys.
const LISTENED_RING: u64 = MIB / 4;
/// Bytes of the words that govern a change feed, before its ring.
pub(crate) const FEED_HEADER: u64 = 512 + 32 * FEED_GROUPS as u64 + 8 * FEED_OPENINGS as u64;
/// The number of openings for which a change feed has a word: the maximum of a store.
pub(crate) const FEED_OPENINGS: usize = 64;
/// The number of threads that may have sent pieces of a change ahead: the maximum of a store.
pub(crate) const FEED_GROUPS: usize = 1024;
/// Bytes of the ring that are reserved for entries that end something: two for each thread, of 32
/// bytes and of 24.
pub(crate) const FEED_SPARE: u64 = 64 << 10;

/// The ring of a change feed: its bytes, and whether a journal or a tree keeps the entries (bit 0).
/// Fixed at creation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FeedKind(u64);

impl FeedKind {
    /// The feed of a store of `capacity` bytes. A kept one takes a sixteenth, rounded down to a
    /// power of two.
    pub fn new(capacity: u64, kept: bool) -> FeedKind {
        FeedKind(match kept {
            true => 1 << (capacity / 16).clamp(MIB, MAX_RING).ilog2() | 1,
            false => LISTENED_RING,
        })
    }

    pub fn bytes(self) -> u64 {
        self.0 & !1
    }

    pub fn is_kept(self) -> bool {
        self.0 & 1 != 0
    }

    fn is_plausible(self) -> bool {
        let least = if self.is_kept() { MIB } else { LISTENED_RING };
        self.bytes().is_power_of_two() && (least..=MAX_RING).contains(&self.bytes())
    }
}

/// Bytes at the end of a thread's undo area, for the ring of [`crate::records::access`].
pub(crate) const RING_BYTES: usize = 2048;

/// The part of an undo area that is for the notes of a transaction, or for the redo of a
/// [change set](crate::records::change_set).
#[inline]
pub(crate) fn notes_area(area: UndoArea<'_>) -> UndoArea<'_> {
    area.split_at(area.len().saturating_sub(RING_BYTES)).0
}

/// Structures that may be laid over a region's bytes.
///
/// # Safety
/// `repr(C)`, built of atomics alone (any bits are valid), at most 8-byte alignment.
pub(crate) unsafe trait Layout {}

/// The store's header. Written at creation, then only roots and counters change.
#[repr(C)]
pub(crate) struct LogHeader {
    magic: AtomicU64,
    format: AtomicU64,
    geometry: [AtomicU64; 8],
    /// Over geometry, seed, policy and feed, see [`Geometry::checksum`].
    checksum: AtomicU64,
    /// The geometry's last word.
    bulk: AtomicU64,
    /// Seed of the keyed hash.
    seed: AtomicU64,
    /// The last index root id given out; ids are never reused.
    pub next_root: AtomicU64,
    /// Set last at creation: a header without it was abandoned half-way.
    complete: AtomicU64,
    /// Held by the thread that sweeps dropped roots.
    pub sweep: RobustLock,
    /// Not zero: the log may have a large record that the index does not name, see
    /// `crate::reclaim::lost_records`.
    pub lost: AtomicU64,
    /// Not zero: records with an expiry may be in the store, see `crate::records::expiry`.
    pub expiring: AtomicU64,
    /// The update policy; fixed at creation.
    policy: AtomicU64,
    /// Bytes of records that compaction has moved since the store was created.
    pub moved: AtomicU64,
    /// Which records may be evicted when the store is full, see `crate::reclaim::evict`.
    pub evict: AtomicU64,
    /// Not zero: reads are sampled for eviction.
    pub samples: AtomicU64,
    /// Records that were evicted, and their bytes.
    pub evicted: AtomicU64,
    pub evicted_bytes: AtomicU64,
    /// State of the generator for unpredictable choices.
    pub dice: AtomicU64,
    /// Held by the thread that swaps two databases, see `crate::index::databases`.
    pub swap: RobustLock,
    /// What the lock's holder is doing; 0: nothing.
    pub swapping: AtomicU64,
    /// How often two databases were swapped.
    pub swaps: AtomicU64,
    /// Records that were removed because they had expired.
    pub expired: AtomicU64,
    /// The [`FeedKind`] of the change feed, which lies behind the tables.
    feed: AtomicU64,
    /// Frames of the region that are not part of the store's capacity: it has grown by them while
    /// it was loaded.
    pub extra: AtomicU64,
    /// Bytes that were written to log segments that have since been freed, and to gaps of others.
    pub freed: AtomicU64,
    /// What the server lets local programs do, see [`LocalPrograms`](crate::LocalPrograms).
    pub local_programs: AtomicU64,
    spare: [AtomicU64; 19],
    /// The last id of a collection given out; ids are never reused.
    pub next_collection: AtomicU64,
    /// [`MAINS_LOST`](crate::inner::MAINS_LOST), [`SWEPT`](crate::inner::SWEPT) or 0.
    pub lost_mains: AtomicU64,
    /// The locations of the index roots of the hidden keyspaces; 0: none yet.
    pub hidden_roots: [AtomicU64; KEYSPACES - DATABASES],
    /// The space of each database.
    pub spaces: [AtomicU8; DATABASES],
    /// The location of each space's index root; 0: no record was ever stored there.
    pub roots: [AtomicU64; DATABASES],
    /// Roots that were dropped and wait for their sweep, see `index::root`.
    pub dropped: [AtomicU64; 2 * DATABASES],
}
const _: () = assert!(size_of::<LogHeader>() == 2048);
// SAFETY: repr(C), atomics alone.
unsafe impl Layout for LogHeader {}

impl LogHeader {
    /// The word for the location of a keyspace's index root.
    #[inline(always)]
    pub fn root_word(&self, space: KeyspaceId) -> &AtomicU64 {
        match space.index().checked_sub(DATABASES) {
            None => &self.roots[space.index()],
            Some(hidden) => &self.hidden_roots[hidden],
        }
    }

    /// Whether a dropped index still waits for its sweep.
    pub fn sweeps_due(&self) -> bool {
        // SYNC: pairs with the Release store in `drop_root`.
        (0..DATABASES).any(|i| self.dropped[2 * i].load(Acquire) != 0)
    }
}

/// The place at which one CPU appends.
#[repr(C)]
pub(crate) struct Head {
    /// Held while space is reserved and a record's header written.
    pub lock: RobustLock,
    /// First frame of the open log segment, plus one; 0: none.
    pub segment: AtomicU64,
    /// The place in that log segment at which it appends, if that is not the end.
    pub gap: GapOf<AtomicU64>,
    spare: [AtomicU64; 4],
}
const _: () = assert!(size_of::<Head>() == 64);
// SAFETY: repr(C), atomics alone (a RobustLock is one).
unsafe impl Layout for Head {}

/// The rest of a gap in a head's log segment, as bytes of the region: a filler lies there. If it is
/// empty, `end` is 0.
#[repr(C)]
#[derive(Default)]
pub(crate) struct GapOf<W> {
    pub at: W,
    pub end: W,
}

/// The information about one log segment; see [`crate::log::segment`] for the states.
#[repr(C)]
#[derive(Default)]
pub(crate) struct SegmentInfoOf<W> {
    /// State, flags and owner.
    pub state: W,
    /// Bytes reserved from the segment's start, as a length word (see `segment::length_word`):
    /// headers can be stepped through up to here.
    pub used: W,
    /// Bytes of records that are known to be stale; an estimate that compaction does not rely on.
    pub dead: W,
    /// The grace period of a closed or condemned segment, see `LogSegmentInfo::stamp`.
    pub stamp: W,
    /// Grace periods that were ever due here.
    pub periods: W,
    /// Of an open segment of survivors: the mean of the times at which they were written, in
    /// monotonic nanoseconds. Of a closed segment: when it was closed, and how much older its
    /// records were, see `LogSegmentInfo::close`.
    pub age: W,
    /// Length in frames, as a length word.
    pub frames: W,
    /// The first frame, plus one, of the log segment to which this frame belongs.
    pub first: W,
}

/// The information about a log segment, as it lies in a region.
pub(crate) type LogSegmentInfo = SegmentInfoOf<AtomicU64>;
const _: () = assert!(size_of::<LogSegmentInfo>() == 64);
// SAFETY: repr(C), atomics alone.
unsafe impl Layout for LogSegmentInfo {}

/// Blocks that may wait for readers to unpin, per shard.
pub(crate) const LIMBO: usize = 4096;

/// A share of the index: its lock, its journal and its blocks in limbo.
#[repr(C)]
pub(crate) struct Shard {
    /// Held while blocks are allocated or freed and while the shape of the index changes.
    pub lock: RobustLock,
    /// Pool table entries in use.
    pub frames: AtomicU64,
    /// The pool table entry that the last allocation came from.
    pub hint: AtomicU64,
    /// How many blocks have left limbo, for how many a grace period has begun, and how many were
    /// put there, since the shard was created. None of these exceeds the next.
    pub freed: AtomicU64,
    pub begun: AtomicU64,
    pub retired: AtomicU64,
    spare: [AtomicU64; 2],
    /// What the lock's holder is doing, for the thread that inherits the lock.
    pub journal: [AtomicU64; 16],
    /// A ring of retired blocks, the `n`th at `n % LIMBO`: block word, and the epoch of its grace
    /// period.
    pub limbo: [[AtomicU64; 2]; LIMBO],
}
const _: () = assert!(size_of::<Shard>() == 64 + 128 + LIMBO * 16);
// SAFETY: repr(C), atomics alone.
unsafe impl Layout for Shard {}

/// Heads of a compaction worker in a large enough store: one for young records, one for old.
const AGES: u64 = 2;

/// Frames of the longest log segment that a geometry may ask for.
pub(crate) const MAX_ORDINARY_FRAMES: u64 = 512;
/// Frames of the longest log segment of bulk records, in a store of 256 MiB and more.
const MAX_BULK_FRAMES: u64 = 16;
/// The most heads for bulk records.
const MAX_BULK_HEADS: u64 = 16;

/// The sizes of everything; fixed when the store is created.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Geometry {
    /// Frames of the arena at its maximum.
    pub max_frames: u64,
    /// Frames of an ordinary log segment.
    pub segment_frames: u64,
    /// Heads of the CPUs.
    pub heads: u64,
    /// Heads of the compaction workers, behind the others: from four on each worker has one for
    /// young records and one for old ones.
    pub survivors: u64,
    /// Shards of the index.
    pub shards: u64,
    /// Frames that one shard may own.
    pub shard_frames: u64,
    /// The binary logarithm of the number of partitions of an index.
    pub partition_bits: u64,
    /// Frames that only compaction may claim.
    pub reserve_frames: u64,
    /// Frames of the longest log segment of bulk records.
    pub bulk_frames: u64,
    /// Heads for bulk records, behind all others.
    pub bulk_heads: u64,
}

impl Geometry {
    /// The geometry of a store of `capacity` bytes that may grow to `max` bytes, written by `cpus`
    /// CPUs on `nodes` nodes.
    pub fn new(capacity: u64, max: u64, cpus: usize, nodes: usize) -> Geometry {
        let max_frames = max / FRAME_BYTES;
        let segment_frames = if capacity >= 4 * GIB {
            4
        } else if capacity >= GIB {
            2
        } else {
            1
        };
        let segment = segment_frames * FRAME_BYTES;
        // One worker for each node, and at least two: with one, writers wait while a processor
        // idles (at 0.90 live that cost a quarter of the throughput). Young and old records are
        // kept apart if two heads for each worker and its share of the reserve take at most a 24th
        // of the capacity.
        let wanted = (nodes as u64).max(2);
        let (workers, ages) = match capacity / (24 * (AGES + 2) * segment) {
            0 => (1, 1),
            1 => (2, 1),
            most => (most.min(wanted), AGES),
        };
        // Each shard takes a frame with its first block, so the number of shards decides what a
        // small index costs: one for 2 GiB, and at most a 64th of the present capacity for all of
        // them, however large the store may become.
        let few = (capacity / FRAME_BYTES / 64).max(1);
        let shards = (max_frames / 1024).next_power_of_two();
        let shards = shards.min(1 << few.ilog2()).clamp(1, 64);
        // One head for each node. What a record leaves of the end of a segment is a small part of
        // it, and an open segment is at most an eighth of the store.
        let bulk_heads = (nodes as u64).clamp(1, MAX_BULK_HEADS);
        let bulk_frames = capacity / FRAME_BYTES / 8 / bulk_heads;
        Geometry {
            max_frames,
            segment_frames,
            // All heads together take at most 2 % of the capacity.
            heads: (capacity / 50 / segment).clamp(1, cpus.max(1) as u64),
            survivors: workers * ages,
            shards,
            // Shards fill evenly (they share a keyed hash): twice the mean, if the whole region
            // were index.
            shard_frames: (2 * max_frames / shards).max(16),
            // One partition for each MiB: then a full store of small records splits a partition's
            // pages only a few times, and enough bits of the tags still differ within a page.
            partition_bits: u64::from(
                (max / MIB)
                    .next_power_of_two()
                    .clamp(16, 1 << 16)
                    .trailing_zeros(),
            ),
            reserve_frames: (capacity / 50 / FRAME_BYTES).max(2 * workers * segment_frames),
            bulk_frames: bulk_frames.clamp(segment_frames, MAX_BULK_FRAMES),
            bulk_heads,
        }
    }

    /// The checksum of what never changes in the header: finds accidents, not malice.
    fn checksum(&self, seed: u64, policy: u64, feed: u64) -> u64 {
        let fold = |sum: u64, word: u64| {
            (sum ^ word)
                .wrapping_mul(0x0000_0100_0000_01b3)
                .rotate_left(29)
        };
        let words = self.words().into_iter().chain([seed, policy, feed]);
        words.fold(0xcbf2_9ce4_8422_2325, fold)
    }

    /// Heads of one compaction worker, by the age of what is written there.
    pub fn ages(&self) -> u64 {
        if self.survivors >= 2 * AGES { AGES } else { 1 }
    }

    /// Compaction workers that can work at the same time.
    pub fn workers(&self) -> u64 {
        self.survivors / self.ages()
    }

    /// All heads: the CPUs', the compaction workers', and those for bulk records.
    pub fn all_heads(&self) -> u64 {
        self.heads + self.survivors + self.bulk_heads
    }

    fn words(&self) -> [u64; 9] {
        [
            self.max_frames,
            self.segment_frames,
            self.heads,
            self.survivors,
            self.shards,
            self.shard_frames,
            self.partition_bits,
            self.reserve_frames,
            self.bulk_frames | self.bulk_heads << 32,
        ]
    }

    fn of_words(w: [u64; 9]) -> Geometry {
        Geometry {
            max_frames: w[0],
            segment_frames: w[1],
            heads: w[2],
            survivors: w[3],
            shards: w[4],
            shard_frames: w[5],
            partition_bits: w[6],
            reserve_frames: w[7],
            bulk_frames: w[8] & u64::from(u32::MAX),
            bulk_heads: w[8] >> 32,
        }
    }

    fn plausible(&self) -> bool {
        self.max_frames <= 1 << 24
            && (1..=MAX_ORDINARY_FRAMES).contains(&self.segment_frames)
            && (1..=1 << 16).contains(&self.heads)
            && (1..=1 << 10).contains(&self.survivors)
            && self.shards.is_power_of_two()
            && self.shards <= 64
            && self.shard_frames <= 1 << 25
            && (4..=16).contains(&self.partition_bits)
            && self.reserve_frames <= self.max_frames
            && (1..=MAX_ORDINARY_FRAMES).contains(&self.bulk_frames)
            && (1..=MAX_BULK_HEADS).contains(&self.bulk_heads)
    }

    const HEADS_AT: u64 = size_of::<LogHeader>() as u64;

    fn infos_at(&self) -> u64 {
        Self::HEADS_AT + self.all_heads() * size_of::<Head>() as u64
    }

    fn shards_at(&self) -> u64 {
        self.infos_at() + self.max_frames * size_of::<LogSegmentInfo>() as u64
    }

    fn pools_at(&self) -> u64 {
        self.shards_at() + self.shards * size_of::<Shard>() as u64
    }

    fn changes_at(&self) -> u64 {
        self.pools_at() + self.shards * self.shard_frames * 8
    }

    /// The number of change counters, which are selected by hash: so many that two keys seldom
    /// share one, and a 2,000th of a store of up to 1 GiB. A power of two.
    pub fn changes(&self) -> u64 {
        (self.max_frames * 128)
            .next_power_of_two()
            .clamp(1 << 12, 1 << 16)
    }

    /// Where in the client area the change feed begins.
    fn feed_at(&self) -> u64 {
        (self.changes_at() + self.changes() * 8).next_multiple_of(128)
    }

    /// Bytes of the client area that the tables and the change feed take.
    pub fn client_bytes(&self, feed: FeedKind) -> u64 {
        self.feed_at() + FEED_HEADER + feed.bytes()
    }
}

/// The tables, checked against the region once.
pub(crate) struct Tables {
    mem: Mem,
    at: u64,
    pub geometry: Geometry,
    pub seed: u64,
    pub policy: UpdatePolicy,
    pub feed: FeedKind,
}

impl Tables {
    /// Lays out a fresh store in the zeroed client area that begins at byte `at`.
    pub fn create(
        mem: &Mem,
        at: u64,
        geometry: Geometry,
        seed: u64,
        policy: UpdatePolicy,
        feed: FeedKind,
    ) -> Result<Tables, OpenError> {
        mem.address(Loc::of_byte(at), geometry.client_bytes(feed))?;
        let tables = Tables {
            mem: mem.clone(),
            at,
            geometry,
            seed,
            policy,
            feed,
        };
        let header = tables.header();
        header.feed.store(feed.0, Relaxed);
        header.policy.store(policy as u64, Relaxed);
        header.magic.store(MAGIC, Relaxed);
        header.format.store(FORMAT, Relaxed);
        let words = header.geometry.iter().chain([&header.bulk]);
        for (word, value) in words.zip(geometry.words()) {
            word.store(value, Relaxed);
        }
        header
            .checksum
            .store(geometry.checksum(seed, policy as u64, feed.0), Relaxed);
        header.seed.store(seed, Relaxed);
        // SYNC: pairs with the Acquire load in `Tables::open`.
        header.complete.store(1, Release);
        Ok(tables)
    }

    /// Reads the geometry of the store whose client area is `client`.
    pub fn open(mem: &Mem, client: std::ops::Range<u64>) -> Result<Tables, OpenError> {
        let corrupt = |what: &str| Corrupt::at(client.start, what.to_owned());
        if client.end.saturating_sub(client.start) < size_of::<LogHeader>() as u64 {
            return Err(corrupt("the client area is too small for a log header").into());
        }
        let mut tables = Tables {
            mem: mem.clone(),
            at: client.start,
            geometry: Geometry::of_words([0; 9]),
            seed: 0,
            policy: UpdatePolicy::Append,
            feed: FeedKind(0),
        };
        mem.address(Loc::of_byte(client.start), client.end - client.start)?;
        let header = tables.header();
        if header.magic.load(Relaxed) != MAGIC {
            return Err(corrupt("no log header").into());
        }
        let found = header.format.load(Relaxed);
        if found != FORMAT {
            return Err(OpenError::Format {
                found,
                expected: FORMAT,
            });
        }
        // SYNC: pairs with the Release store at the end of `Tables::create`.
        if header.complete.load(Acquire) != 1 {
            return Err(corrupt("its creation was never completed").into());
        }
        let geometry = Geometry::of_words(std::array::from_fn(|i| {
            header.geometry.get(i).unwrap_or(&header.bulk).load(Relaxed)
        }));
        let feed = FeedKind(header.feed.load(Relaxed));
        let is_plausible = geometry.plausible() && feed.is_plausible();
        if !is_plausible || geometry.client_bytes(feed) > client.end - client.start {
            return Err(corrupt("the geometry in the log header is out of range").into());
        }
        let seed = header.seed.load(Relaxed);
        let policy = header.policy.load(Relaxed);
        if header.checksum.load(Relaxed) != geometry.checksum(seed, policy, feed.0) {
            return Err(corrupt("the checksum of the log header is wrong").into());
        }
        tables.policy = match policy {
            0 => UpdatePolicy::Append,
            1 => UpdatePolicy::InPlace,
            _ => return Err(corrupt("the log header names no update policy").into()),
        };
        tables.seed = seed;
        tables.feed = feed;
        tables.geometry = geometry;
        Ok(tables)
    }

    #[inline(always)]
    fn get<T: Layout>(&self, offset: u64) -> &T {
        let address = self.mem.base().wrapping_add((self.at + offset) as usize);
        // SAFETY: `create`/`open` checked that the client area with all tables of this geometry is
        // mapped, regions never shrink, and `T: Layout` accepts any bits at 8-byte alignment.
        unsafe { &*address.cast::<T>() }
    }

    /// Whether `loc` is one of the header's words that name roots.
    pub fn in_header(&self, loc: Loc) -> bool {
        let roots = self.at + std::mem::offset_of!(LogHeader, hidden_roots) as u64;
        (roots..self.at + Geometry::HEADS_AT).contains(&loc.byte())
    }

    /// The byte at which the change feed begins.
    pub fn feed_at(&self) -> u64 {
        self.at + self.geometry.feed_at()
    }

    /// The byte at which the header keeps the space of each database.
    pub fn spaces_at(&self) -> u64 {
        self.at + std::mem::offset_of!(LogHeader, spaces) as u64
    }

    #[inline]
    pub fn header(&self) -> &LogHeader {
        self.get(0)
    }

    /// A head; those from `geometry.heads` on are the compactors', the last ones those for bulk
    /// records.
    #[inline]
    pub fn head(&self, i: u64) -> &Head {
        assert!(i < self.geometry.all_heads());
        self.get(Geometry::HEADS_AT + i * size_of::<Head>() as u64)
    }

    /// The info of the log segment whose first frame is `frame`.
    #[inline(always)]
    pub fn info(&self, frame: Frame) -> &LogSegmentInfo {
        assert!(u64::from(frame.0) < self.geometry.max_frames);
        self.get(self.geometry.infos_at() + u64::from(frame.0) * size_of::<LogSegmentInfo>() as u64)
    }

    /// The log segment that `word`, found in the region, names: its first frame, plus one.
    #[inline]
    pub fn named(&self, word: u64) -> Option<(Frame, &LogSegmentInfo)> {
        let frame = word.checked_sub(1)?;
        if frame >= self.geometry.max_frames {
            return None;
        }
        let frame = Frame(frame as u32);
        Some((frame, self.info(frame)))
    }

    #[inline]
    pub fn shard(&self, i: u64) -> &Shard {
        assert!(i < self.geometry.shards);
        self.get(self.geometry.shards_at() + i * size_of::<Shard>() as u64)
    }

    /// The pool table of shard `i`.
    #[inline]
    pub fn pool(&self, i: u64) -> &[AtomicU64] {
        assert!(i < self.geometry.shards);
        let n = self.geometry.shard_frames;
        let first: &AtomicU64 = self
            .get::<Word>(self.geometry.pools_at() + i * n * 8)
            .as_atomic();
        // SAFETY: the table has `n` words from `first` on, all inside the checked client area.
        unsafe { std::slice::from_raw_parts(first, n as usize) }
    }

    /// The counter of changes for keys with this hash.
    pub fn changes_of(&self, hash: u64) -> &AtomicU64 {
        let i = hash & (self.geometry.changes() - 1);
        self.get::<Word>(self.geometry.changes_at() + i * 8)
            .as_atomic()
    }
}

/// One word, for tables of words.
#[repr(transparent)]
struct Word(AtomicU64);
// SAFETY: one atomic.
unsafe impl Layout for Word {}
impl Word {
    fn as_atomic(&self) -> &AtomicU64 {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn geometry_scales_with_capacity() {
        let small = Geometry::new(64 << 20, 64 << 20, 2, 1);
        assert_eq!(
            (
                small.segment_frames,
                small.heads,
                small.survivors,
                small.shards
            ),
            (1, 1, 1, 1)
        );
        let large = Geometry::new(8 << 30, 8 << 30, 2, 1);
        assert_eq!(
            (
                large.segment_frames,
                large.heads,
                large.shards,
                large.partition_bits
            ),
            (4, 2, 4, 13)
        );
        for g in [small, large, Geometry::new(1 << 40, 1 << 44, 256, 8)] {
            assert!(g.plausible(), "{g:?}");
            assert_eq!(Geometry::of_words(g.words()), g);
            let heads = g.heads * g.segment_frames * FRAME_BYTES;
            assert!(g.heads == 1 || heads * 50 <= g.max_frames * FRAME_BYTES);
            assert!(
                g.client_bytes(FeedKind::new(0, false)) * 50 < g.max_frames * FRAME_BYTES,
                "tables below 2 %: {g:?}"
            );
        }
    }
}
