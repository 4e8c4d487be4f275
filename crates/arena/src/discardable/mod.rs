//! [`Discardable`]: a cache in memory that its owner lends and may take back at any moment.
//!
//! # How
//!
//! Readers hold no pins and no locks. They copy a record out of its frame, check that the frame is
//! still lent as it was before, and then verify the record's checksum. So no reader, however slow,
//! delays a claim. Writers append to one frame for each node, which no claim takes until it is
//! sealed. A put that finds another writer at work is dropped.
//!
//! It is the DMEM of Park's dissertation (§2.4.2) without its locks. There a claim discards page by
//! page; here it raises the frame's generation, which discards the whole frame.

use crate::arena::Arena;
use crate::lending::{Lending, LendingHeader, LendingOptions};
use mneme_sync::Slot;
use mneme_sys::{NodeId, RegionError};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

mod admission;
mod fill;
pub(crate) mod index;
mod policy;
mod private;
mod record;
mod stats;

use admission::RecentMisses;
use fill::DraftRecord;
use index::{CacheBucket, bucket_of, tag_of};
pub use private::PrivateError;
pub use record::MAX_RECORD;
use record::{RecordArea, RecordPlace};
use stats::StripedCounters;
pub use stats::{ClaimTimes, DiscardableStats};

/// Why an arena's cache could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum LendingError {
    /// The arena was created without [`ArenaOptions::lending`](crate::ArenaOptions::lending).
    #[error("the arena lends nothing; this is decided when it is created")]
    LendsNothing,
    /// The region's memory could not be reached.
    #[error("the arena's tables cannot be reached")]
    Region(#[from] RegionError),
}

/// Why a record could not be put. The cache's previous value of the key is removed even so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PutError {
    /// It does not fit in a frame.
    #[error("a key and a value of {bytes} bytes; at most {most} fit in a frame")]
    TooLarge {
        /// The length of key and value in bytes.
        bytes: usize,
        /// [`MAX_RECORD`].
        most: usize,
    },
    /// The region's memory could not be reached, or is mapped read-only.
    #[error("the arena's memory cannot be written")]
    Region(#[from] RegionError),
}

/// The fate of a record that was offered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a cache may not have taken it"]
pub enum Stored {
    /// The cache has it, until it is evicted or discarded.
    Kept,
    /// The cache does not have it.
    Dropped(Dropped),
}

/// Why a record was not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dropped {
    /// Another participant was filling the node's frame.
    Busy,
    /// No frame is idle and no rented one can be evicted; or a claim was in progress.
    NoFrame,
    /// The key was put or removed since the ticket was issued, or another record of its bucket was
    /// entered at the same moment.
    Superseded,
}

/// The result of a lookup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CacheLookup {
    /// The value is in the caller's buffer.
    Hit,
    /// The cache does not have it. A value that is read from the source *now* may be offered with
    /// this ticket.
    Miss(Ticket),
}

/// Records when a lookup of a key missed: see [`Discardable::fill`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket {
    hash: u64,
    version: u64,
}

/// A cache of clean copies in the idle frames of an arena.
///
/// `Send` and `Sync`, cheap to open, and shared: all openings in all processes see one cache. A
/// lookup takes no lock, makes no system call, and writes nothing but counters.
///
/// # Contract
///
/// * **A lookup may miss at any time.** A claim of the first class discards the content of the
///   frames that it takes, at once and without notice.
/// * **A lookup returns a verified copy** of a value that was put under this key, and since then
///   the key was neither put nor removed, nor the cache cleared. Precisely: a
///   [`get`](Discardable::get) that begins after a `put`, `remove` or `clear` has returned does not
///   find an earlier value, even if a process was killed in between or the index is damaged.
/// * **The cache is never the only copy.** It does not promise to keep anything for any time.
///
/// So change the source of the data first, then [`put`](Discardable::put) the new value or
/// [`remove`](Discardable::remove) the old one. Offer a value that was read from the source after a
/// miss with [`fill`](Discardable::fill) and the miss's [`Ticket`]: if the key was put or removed
/// in between, the cache does not accept a value that may be old.
///
/// # Example
///
/// ```
/// # use mneme_arena::{Arena, ArenaOptions, Class, LendingOptions};
/// # use mneme_sync::{ControlOptions, Participants};
/// # use mneme_sys::{NodeId, PagePolicy, Region, ScriptedLiveness, SyntheticTopology};
/// # use std::sync::Arc;
/// use mneme_arena::{Discardable, CacheLookup, Stored};
/// # let mut uuid = [0; 16];
/// # mneme_sys::random_bytes(&mut uuid)?;
/// # let control = ControlOptions::new(uuid);
/// # let memory = Region::private(control.region_len(), control.region_len(), PagePolicy::Small)?;
/// # let liveness = Arc::new(ScriptedLiveness::new().process(1));
/// # let participants = Participants::create(memory, control, liveness)?;
/// # let region = Arc::new(Region::private(64 << 20, 64 << 20, PagePolicy::Huge)?);
///
/// let arena = Arc::new(Arena::create(region, participants.clone(), ArenaOptions {
///     uuid,
///     client_bytes: 4096,
///     nodes: 1,
///     topology: Arc::new(SyntheticTopology::new(1, 2)),
///     reserve_frames: 2,
///     lending: Some(LendingOptions { records: 100_000, max_frames: u32::MAX }),
/// })?);
/// let slot = participants.slot()?;
/// // Only memory that the first class had before is lent: it is populated.
/// let extent = arena.claim(&slot, 16, 1, NodeId(0), Class::Ordinary, 0)?;
/// arena.release(&slot, extent)?;
///
/// let cache = Discardable::open(Arc::clone(&arena))?;
/// let mut value = Vec::new();
/// if let CacheLookup::Miss(ticket) = cache.get(b"key", &mut value) {
///     let fetched = b"what the database says";
///     assert_eq!(cache.fill(&slot, NodeId(0), ticket, b"key", fetched)?, Stored::Kept);
/// }
/// assert_eq!(cache.get(b"key", &mut value), CacheLookup::Hit);
/// assert_eq!(value, b"what the database says");
///
/// // The database says otherwise now.
/// cache.remove(b"key")?;
/// assert_ne!(cache.get(b"key", &mut value), CacheLookup::Hit);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Discardable {
    arena: Arc<Arena>,
    records: RecordArea,
    counters: StripedCounters,
    admission: RecentMisses,
    /// The number of puts that found a fill lock held.
    found_busy: AtomicU64,
    /// The bucket with which [`sweep_part`](Discardable::sweep_part) continues.
    swept: AtomicU64,
}

impl std::fmt::Debug for Discardable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Discardable")
            .field("arena", &self.arena)
            .finish_non_exhaustive()
    }
}

impl Discardable {
    /// Opens the cache of an arena. If the arena is mapped read-only, the cache only allows
    /// lookups.
    ///
    /// # Errors
    /// The arena lends nothing.
    pub fn open(arena: Arc<Arena>) -> Result<Discardable, LendingError> {
        let seed = match arena.lending()? {
            Some(lending) => lending.header().seed.load(Relaxed),
            None => return Err(LendingError::LendsNothing),
        };
        Ok(Discardable {
            arena,
            records: RecordArea::new(seed),
            counters: StripedCounters::default(),
            admission: RecentMisses::default(),
            found_busy: AtomicU64::new(0),
            swept: AtomicU64::new(0),
        })
    }

    /// The arena's settings for lending: the number of records that the index was made for, and the
    /// maximum number of frames lent.
    ///
    /// # Errors
    /// The tables cannot be reached.
    pub fn options(&self) -> Result<LendingOptions, RegionError> {
        let lending = self.lending()?;
        Ok(LendingOptions {
            records: lending.index().len() as u64 * (index::ENTRIES as u64 - 1),
            max_frames: lending.header().max_frames.load(Relaxed),
        })
    }

    /// The arena.
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// Looks up a key; the value replaces the content of `value`, which is empty after a miss.
    /// Costs a hash of the key, one cache line of the index, one of descriptors, and copying the
    /// record and its checksum.
    pub fn get(&self, key: &[u8], value: &mut Vec<u8>) -> CacheLookup {
        value.clear();
        let hash = self.records.hash(key);
        let (mut version, mut all) = (0, None);
        if let Ok(lending) = self.lending()
            && let Some(bucket) = self.bucket(&lending, hash)
        {
            version = bucket.version();
            if self.find(&lending, bucket, hash, key, value) {
                return CacheLookup::Hit;
            }
            all = self.shared(&lending).map(|header| &header.misses);
        }
        StripedCounters::count(&self.counters.mine().misses, all);
        CacheLookup::Miss(Ticket { hash, version })
    }

    fn find(
        &self,
        lending: &Lending<'_>,
        bucket: &CacheBucket,
        hash: u64,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> bool {
        let Ok(table) = self.arena.table() else {
            return false;
        };
        for entry in bucket.find(tag_of(hash)) {
            let (Some(generation), Some(descriptor)) =
                (self.lent_as(entry), table.get(entry.frame))
            else {
                continue;
            };
            let place = RecordPlace {
                frame: crate::Frame(entry.frame),
                generation,
                offset: entry.offset,
            };
            let is_still_lent = || descriptor.is_still_lent(generation);
            let region = self.arena.region();
            if self
                .records
                .read(region, place, hash, key, value, is_still_lent)
            {
                let shared = self.shared(lending);
                let all = shared.map(|header| &header.hits);
                let hits = StripedCounters::count(&self.counters.mine().hits, all);
                if policy::is_sampled(hits)
                    && shared.is_some()
                    && let Some(uses) = lending.uses(entry.frame)
                {
                    uses.hits.fetch_add(1, Relaxed);
                }
                return true;
            }
        }
        false
    }

    /// Whether a record that was missed is worth a copy: always while nothing need be evicted for
    /// it, and in a full cache if it was also missed recently. Calling this counts as a miss. Most
    /// keys that are read once are never read again, so a tenant that calls this first, and offers
    /// nothing if the result is false, has more hits and fewer copies to make.
    #[must_use]
    pub fn is_wanted(&self, ticket: &Ticket) -> bool {
        let entries = self.lending().map_or(0, |lending| lending.index().len());
        self.admission
            .admits(ticket.hash, entries as u64 * index::ENTRIES as u64)
    }

    /// Puts a value that is current. Whatever the result, an older value of the key is not found
    /// any more. `node` is the preferred node for the memory.
    ///
    /// # Errors
    /// It does not fit in a frame, or the memory cannot be written.
    pub fn put(
        &self,
        slot: &Slot<'_>,
        node: NodeId,
        key: &[u8],
        value: &[u8],
    ) -> Result<Stored, PutError> {
        let hash = self.records.hash(key);
        let version = self.invalidate(hash)?;
        self.offer(
            slot,
            node,
            &DraftRecord {
                hash,
                key,
                value,
                version,
            },
        )
    }

    /// Offers a value that was read from the source after the miss that issued the ticket. The
    /// cache does not accept it if the key was put or removed since the miss, or the ticket belongs
    /// to another key.
    ///
    /// # Errors
    /// As [`put`](Self::put). The cache keeps its previous value of the key.
    pub fn fill(
        &self,
        slot: &Slot<'_>,
        node: NodeId,
        ticket: Ticket,
        key: &[u8],
        value: &[u8],
    ) -> Result<Stored, PutError> {
        let hash = self.records.hash(key);
        let version = ticket.version;
        let current = {
            let lending = self.lending()?;
            self.bucket(&lending, hash).map(CacheBucket::version)
        };
        if ticket.hash != hash || current != Some(version) {
            self.counters.mine().dropped.fetch_add(1, Relaxed);
            return Ok(Stored::Dropped(Dropped::Superseded));
        }
        self.offer(
            slot,
            node,
            &DraftRecord {
                hash,
                key,
                value,
                version,
            },
        )
    }

    fn offer(
        &self,
        slot: &Slot<'_>,
        node: NodeId,
        record: &DraftRecord<'_>,
    ) -> Result<Stored, PutError> {
        let stored = self.store(slot, node, record);
        let mine = self.counters.mine();
        match stored {
            Ok(Stored::Kept) => mine.kept.fetch_add(1, Relaxed),
            _ => mine.dropped.fetch_add(1, Relaxed),
        };
        stored
    }

    /// Removes the key's record, and prevents pending older ones from being entered.
    ///
    /// # Errors
    /// The memory cannot be written. The key may then still be found.
    pub fn remove(&self, key: &[u8]) -> Result<(), RegionError> {
        self.invalidate(self.records.hash(key)).map(|_| ())
    }

    fn invalidate(&self, hash: u64) -> Result<u64, RegionError> {
        self.arena.may_write()?;
        let lending = self.lending()?;
        let version = self
            .bucket(&lending, hash)
            .map(|bucket| bucket.invalidate(tag_of(hash)));
        mneme_sys::fault!("arena.lend.invalidated");
        Ok(version.unwrap_or(0))
    }

    /// Removes everything, and gives the frames back. O(records + frames).
    ///
    /// # Errors
    /// The memory cannot be written.
    pub fn clear(&self) -> Result<(), RegionError> {
        self.arena.may_write()?;
        let lending = self.lending()?;
        lending.index().iter().for_each(CacheBucket::clear);
        self.give_back_rented(&lending)
    }

    /// Removes entries whose frames were discarded, so that they do not survive until generation
    /// numbers repeat (2^32 claims) or occupy space of others; and counts the lent frames again.
    /// One participant should call this every minute or so. O(records + frames).
    ///
    /// Returns how many entries are left, and how many were removed.
    ///
    /// # Errors
    /// The memory cannot be written.
    pub fn sweep(&self) -> Result<(u64, u64), RegionError> {
        self.arena.may_write()?;
        let lending = self.lending()?;
        let sums = self.sweep_buckets(lending.index());
        self.arena.recount_lent(&lending)?;
        Ok(sums)
    }

    /// Performs one of that many parts of a [`sweep`](Self::sweep), the next one at each call: for
    /// callers that must not be busy for long.
    ///
    /// # Errors
    /// The memory cannot be written.
    pub fn sweep_part(&self, parts: u64) -> Result<(), RegionError> {
        self.arena.may_write()?;
        let lending = self.lending()?;
        let buckets = lending.index();
        let long = (buckets.len() as u64).div_ceil(parts.max(1));
        // Relaxed: two threads that sweep at once only do superfluous work.
        let from = self.swept.load(Relaxed).min(buckets.len() as u64);
        let to = (from + long).min(buckets.len() as u64);
        self.sweep_buckets(&buckets[from as usize..to as usize]);
        let is_over = to == buckets.len() as u64;
        self.swept.store(if is_over { 0 } else { to }, Relaxed);
        if is_over {
            self.arena.recount_lent(&lending)?;
        }
        Ok(())
    }

    /// The number of entries that are left, and of those removed.
    fn sweep_buckets(&self, buckets: &[CacheBucket]) -> (u64, u64) {
        let is_stale = |entry| self.lent_as(entry).is_none();
        buckets.iter().fold((0, 0), |sums, bucket| {
            let (left, removed) = bucket.sweep(is_stale);
            (sums.0 + left, sums.1 + removed)
        })
    }

    /// Fails in a forked child, which may not have the memory mapped.
    fn lending(&self) -> Result<Lending<'_>, RegionError> {
        let lending = match self.arena.participants.is_forked() {
            true => None,
            false => self.arena.lending()?,
        };
        // Otherwise there is one: that is fixed at the arena's creation, and `open` has checked it.
        lending.ok_or(RegionError::OutOfBounds {
            offset: 0,
            bytes: 0,
            len: 0,
        })
    }

    /// The header that all openings share, if this one may write.
    fn shared<'a>(&self, lending: &Lending<'a>) -> Option<&'a LendingHeader> {
        self.arena.may_write().ok().map(|()| lending.header())
    }

    fn bucket<'a>(&self, lending: &Lending<'a>, hash: u64) -> Option<&'a CacheBucket> {
        let index = lending.index();
        index.get(bucket_of(hash, index.len()))
    }
}

#[cfg(test)]
mod tests;
