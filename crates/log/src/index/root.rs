//! The indexes of spaces: one for each, all over one log. Dropping one costs the same whatever it
//! holds.
//!
//! One word of the store's header names a space's index. Clearing a database moves its space's root
//! to the list of dropped ones and stores zero there: the space is empty from that store on. A
//! sweep frees the blocks and the records' bytes, piece by piece, once no thread can still be
//! writing to the old index. Until the sweep is over, no log segment that was condemned since the
//! drop is freed, so that every location in the dropped index still leads to the record that it
//! named.

use std::num::NonZeroU64;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use mneme_sync::{Epoch, Slot};

use super::bucket::SLOTS;
use super::journal::{ShapeChange, WordChanges};
use super::lookup::Lookup;
use super::pace::Pace;
use super::pool::{Block, HeldShard, UNIT};
use super::resize::{Resized, block_of};
use super::shape::{Partition, SegmentRef};
use crate::error::{Corrupt, WriteError};
use crate::feed::area::Binds;
use crate::feed::item::{Item, binding};
use crate::index::Index;
use crate::region::layout::LogHeader;
use crate::region::mem::{LOC_BITS, Loc, Memory};
use crate::region::space::DATABASES;
use crate::region::space::KeyspaceId;

/// Words before the first partition word: id, space, mean time of expiry and its samples.
const ROOT_WORDS: u64 = 8;
/// How often a root is read before damage is reported.
const RETRY_LIMIT: u32 = 3;
/// How long a sweep waits for threads that may still be writing to what it is about to sweep.
const MOMENT: Duration = Duration::from_millis(1);
/// The shard whose lock guards the roots.
pub(crate) const ROOT_SHARD: u64 = 0;

/// An index, as one operation sees it: the location of its root, and its space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Root(NonZeroU64);

impl Root {
    /// The root of `space` at `loc`, which is not the region's first byte.
    #[inline]
    fn new(loc: Loc, space: KeyspaceId) -> Option<Root> {
        NonZeroU64::new(loc.bits() | u64::from(space.number()) << LOC_BITS).map(Root)
    }

    /// The root at `loc`, without any check.
    #[cfg(test)]
    pub fn at(loc: Loc) -> Root {
        Root::new(loc, KeyspaceId::new(0)).unwrap()
    }

    /// The root of `space`, if there is one and nothing is unusual. `None` does not mean that there
    /// is none: look again by [`Index::root`].
    #[inline(always)]
    pub fn try_fast(
        header: &LogHeader,
        mem: &impl Memory<Word = AtomicU64>,
        space: KeyspaceId,
    ) -> Option<Root> {
        // SYNC: as in `Index::root`.
        let loc = Loc::of_word(header.roots[space.index()].load(Acquire));
        // At location zero is the region's magic and no root; the word behind it is not a space.
        let of = mem.words::<2>(loc).ok()?[1].load(Relaxed);
        match of == u64::from(space.number()) {
            true => Root::new(loc, space),
            false => None,
        }
    }

    #[inline]
    fn loc(self) -> Loc {
        Loc::of_word(self.0.get())
    }

    /// The location of its records' mean time of expiry. The number of samples follows.
    pub fn expiries(self) -> Loc {
        self.loc().add_words(2)
    }

    /// The space that the index belongs to.
    #[inline]
    pub fn space(self) -> KeyspaceId {
        // Roots are always made with a valid keyspace.
        KeyspaceId::of_number(self.0.get() >> LOC_BITS).unwrap_or(KeyspaceId::new(0))
    }

    /// The location of a partition's word.
    #[inline]
    pub fn partition(self, i: u32) -> Loc {
        self.loc().add_words(ROOT_WORDS + u64::from(i))
    }

    /// The shard that a partition belongs to.
    pub fn shard(self, partition: u32, shards: u64) -> u64 {
        u64::from(partition) % shards
    }
}

#[cold]
fn no_root(loc: Loc) -> Corrupt {
    Corrupt::at(
        loc.byte(),
        "not the root of the index that is said to be there",
    )
}

impl Index {
    /// The index of `space`; `None` if it is empty and was never written to.
    #[inline(always)]
    pub(crate) fn root(&self, space: KeyspaceId) -> Result<Option<Root>, Corrupt> {
        // SYNC: pairs with the Release store in `publish` that links a new root.
        let word = self
            .session()
            .tables
            .header()
            .root_word(space)
            .load(Acquire);
        if word == 0 {
            Ok(None)
        } else {
            let root = self.root_at(Loc::of_word(word))?;
            if root.space() == space {
                Ok(Some(root))
            } else {
                Err(no_root(root.loc()))
            }
        }
    }

    #[inline(always)]
    fn root_at(&self, loc: Loc) -> Result<Root, Corrupt> {
        let words = self.session().mem.words::<2>(loc)?;
        let (id, space) = (words[0].load(Relaxed), words[1].load(Relaxed));
        // Memory that was never written is not an index, though it looks like an empty one.
        if id != 0
            && let Some(space) = KeyspaceId::of_number(space)
            && let Some(root) = Root::new(loc, space)
        {
            Ok(root)
        } else {
            Err(no_root(loc))
        }
    }

    /// A number that no other index of this store has or had. The caller has been pinned since it
    /// saw `root`.
    #[inline(always)]
    pub(crate) fn root_id(&self, root: Root) -> Result<u64, Corrupt> {
        match self.session().mem.word(root.loc())?.load(Relaxed) {
            0 => Err(no_root(root.loc())),
            id => Ok(id),
        }
    }

    fn root_units(&self) -> u64 {
        ((ROOT_WORDS + self.partitions()) * 8).div_ceil(UNIT)
    }

    /// The block that holds a root.
    pub(crate) fn root_block(&self, root: Root) -> Block {
        Block {
            loc: root.loc(),
            units: self.root_units(),
        }
    }

    /// Checks that there is an index wherever the header names one, and that every database has a
    /// space of its own: a damaged store must not open as one that holds less. Runs beside writers.
    /// Costs a cache line for each index, and needs no thread slot.
    pub(crate) fn look_at_roots(&self) -> Result<(), Corrupt> {
        let header = self.session().tables.header();
        for space in KeyspaceId::with_hidden() {
            let word = header.root_word(space);
            let mut looks = 0;
            loop {
                let before = word.load(Acquire);
                let Err(corrupt) = self.root(space) else {
                    break;
                };
                looks += 1;
                // Without a pin the root may have been dropped and freed in between, or another
                // root may be there.
                if word.load(Acquire) == before && looks >= RETRY_LIMIT {
                    return Err(corrupt);
                }
            }
        }
        let mut shared = (0..RETRY_LIMIT).map_while(|_| self.settled_shared_space());
        match shared.nth(RETRY_LIMIT as usize - 1) {
            Some(what) => Err(Corrupt::at(self.session().tables.spaces_at(), what)),
            None => Ok(()),
        }
    }

    /// The roots in use and those that wait for their sweep.
    pub(crate) fn all_roots(&self) -> Result<Vec<Root>, Corrupt> {
        let header = self.session().tables.header();
        let mut words: Vec<u64> = KeyspaceId::with_hidden()
            .map(|space| header.root_word(space).load(Acquire))
            .collect();
        words.extend((0..DATABASES).map(|i| header.dropped[2 * i].load(Acquire)));
        words.sort_unstable();
        words.dedup();
        words
            .into_iter()
            .filter(|&w| w != 0)
            .map(|w| self.root_at(Loc::of_word(w)))
            .collect()
    }

    /// Partitions of every index of this store.
    pub(crate) fn partitions(&self) -> u64 {
        1 << self.session().tables.geometry.partition_bits
    }

    /// The index of `space`, created if necessary. `None`: no free space.
    #[inline(always)]
    pub(crate) fn root_or_create(
        &self,
        slot: &Slot<'_>,
        space: KeyspaceId,
    ) -> Result<Option<Root>, WriteError> {
        match self.root(space)? {
            Some(root) => Ok(Some(root)),
            None => self.create_root_of(slot, space, None),
        }
    }

    /// As [`root_or_create`](Self::root_or_create). A new index gets this id, which no other index
    /// has or had, or the next unused one if it is `None`.
    #[cold]
    pub(crate) fn create_root_of(
        &self,
        slot: &Slot<'_>,
        space: KeyspaceId,
        id: Option<u64>,
    ) -> Result<Option<Root>, WriteError> {
        let resized = self.with_shard(slot, ROOT_SHARD, |held| {
            if self.root(space)?.is_some() {
                return Ok(Resized::Done);
            }
            held.create_root(slot, space, id)
        })?;
        if resized == Resized::NoSpace {
            Ok(None)
        } else {
            Ok(self.root(space)?)
        }
    }

    /// Empties `space` at once; the sweep follows. Returns false if too many sweeps are due.
    pub(crate) fn drop_root(&self, slot: &Slot<'_>, space: KeyspaceId) -> Result<bool, WriteError> {
        self.with_shard(slot, ROOT_SHARD, |_| {
            let header = self.session().tables.header();
            let word = &header.roots[space.index()];
            let old = word.load(Acquire);
            if old == 0 {
                return Ok(true);
            }
            let pair = |i| (&header.dropped[2 * i], &header.dropped[2 * i + 1]);
            // A dropper that died after it had listed this root left it in the list. A second
            // listing would cause a second sweep.
            let find = |wanted: u64| {
                (0..DATABASES)
                    .map(pair)
                    .find(|p| p.0.load(Relaxed) == wanted)
            };
            let Some((place, stamp)) = find(old).or_else(|| find(0)) else {
                return Ok(false);
            };
            let fed = self.enter_drop(slot, space, old)?;
            stamp.store(0, Relaxed);
            // Listed before it is unlinked: a root that is both listed and linked was not dropped,
            // see `due_sweep`. SYNC: pairs with the Acquire load in `sweeps_due`.
            place.store(old, Release);
            mneme_sys::fault!("index.root.listed");
            // SYNC: pairs with the Acquire load in `root`.
            word.store(0, Release);
            mneme_sys::fault!("index.root.dropped");
            if fed {
                self.settle_drop();
            }
            Ok(true)
        })
    }

    /// Enters into the change feed, if there is one, that the database of `space` loses the root at
    /// this location. The caller holds the root shard.
    fn enter_drop(
        &self,
        slot: &Slot<'_>,
        space: KeyspaceId,
        root: u64,
    ) -> Result<bool, WriteError> {
        if !self.session().feed.is_followed() {
            return Ok(false);
        }
        let id = self.root_id(self.root_at(Loc::of_word(root))?)?;
        let bind = Item::Bind {
            databases: &[binding(self.database_of(space), 0)],
            dead: &[id.to_le_bytes()],
        };
        let entry = self.session().feed.enter(slot, &[bind])?;
        if let Some(entry) = entry {
            self.session()
                .feed
                .note_binding(Binds::Dropping, entry, root);
        }
        Ok(entry.is_some())
    }

    /// Completes the entry of a drop, as whole or void, depending on whether the drop has taken
    /// place. The caller holds the root shard, whose last owner may have died.
    pub(crate) fn settle_drop(&self) {
        let roots = &self.session().tables.header().roots;
        let is_linked = |root| roots.iter().any(|word| word.load(Acquire) == root);
        (self.session().feed).settle_binding(Binds::Dropping, |root| !is_linked(root));
    }

    /// The ids of the dropped roots whose sweep is not over.
    pub(crate) fn dropped_ids(&self, slot: &Slot<'_>) -> Result<Vec<u64>, WriteError> {
        // No root is removed from the list while the lock is held.
        self.with_shard(slot, ROOT_SHARD, |_| {
            let header = self.session().tables.header();
            let places = (0..DATABASES).map(|i| header.dropped[2 * i].load(Acquire));
            let id = |word| self.root_id(self.root_at(Loc::of_word(word))?);
            // A damaged root has none, and stays on the list.
            Ok(places
                .filter(|word| *word != 0)
                .map(|word| id(word).unwrap_or(0))
                .collect())
        })
    }

    /// Sweeps the dropped roots that can be swept now, unless another thread does. The caller is
    /// not pinned.
    pub(crate) fn sweep(&self, slot: &Slot<'_>) -> Result<(), WriteError> {
        let session = self.session();
        // One sweeper at a time: a second one would follow words of a root that the first has
        // freed.
        let Some(sweeping) = session.tables.header().sweep.try_lock(slot) else {
            return Ok(());
        };
        // The next holder of the shard's lock finished a dead sweeper's last step. The later steps
        // are still due.
        let _sweeping = sweeping.into_inner();
        let is_due = |i: usize| session.tables.header().dropped[2 * i].load(Acquire) != 0;
        // Roots dropped after this are left to the next sweep; otherwise this one might never end.
        let due: Vec<usize> = (0..DATABASES).filter(|i| is_due(*i)).collect();
        if let Some(epoch) = self.with_shard(slot, ROOT_SHARD, |_| self.begin_graces())? {
            // Most operations are over in a moment. Pins that last longer are not waited for.
            let _ = session.participants.wait_quiescent(epoch, MOMENT);
        }
        for i in due {
            let Some(root) = self.with_shard(slot, ROOT_SHARD, |_| self.due_sweep(i))? else {
                continue;
            };
            let mut pace = Pace::new(&*session.clock);
            for partition in 0..self.partitions() as u32 {
                let shard = root.shard(partition, session.tables.geometry.shards);
                self.with_shard(slot, shard, |held| held.sweep_partition(root, partition))?;
                mneme_sys::fault!("index.sweep.partition");
                pace.step();
            }
            self.with_shard(slot, ROOT_SHARD, |held| {
                let place = &session.tables.header().dropped[2 * i];
                if place.load(Acquire) == root.loc().bits() {
                    held.strike(self.root_block(root), session.loc_of(place), 1)?;
                }
                Ok(())
            })?;
            for shard in 0..self.session().tables.geometry.shards {
                self.with_shard(slot, shard, |held| held.trim(slot))?;
            }
        }
        Ok(())
    }

    /// Begins the grace periods that the sweeps of dropped roots wait for. `None`: all have begun.
    /// The caller holds the root shard.
    fn begin_graces(&self) -> Result<Option<Epoch>, WriteError> {
        let header = self.session().tables.header();
        let pairs = (0..DATABASES).map(|i| (&header.dropped[2 * i], &header.dropped[2 * i + 1]));
        let waiting =
            pairs.filter(|(place, stamp)| place.load(Relaxed) != 0 && stamp.load(Relaxed) == 0);
        let waiting: Vec<_> = waiting.collect();
        if waiting.is_empty() {
            return Ok(None);
        }
        let epoch = self.session().participants.advance()?;
        for (_, stamp) in waiting {
            stamp.store(epoch.to_u64(), Relaxed);
        }
        Ok(Some(epoch))
    }

    /// The root in dropped place `i`, once no writer can reach it. The caller holds the root shard.
    fn due_sweep(&self, i: usize) -> Result<Option<Root>, WriteError> {
        let header = self.session().tables.header();
        let (place, stamp) = (&header.dropped[2 * i], &header.dropped[2 * i + 1]);
        let word = place.load(Acquire);
        if word == 0 {
            return Ok(None);
        }
        if header.roots.iter().any(|r| r.load(Acquire) == word) {
            // Its dropper died before the drop took place.
            place.store(0, Release);
            return Ok(None);
        }
        let epoch = stamp.load(Relaxed);
        if epoch == 0 || !(self.session().participants).quiescent(Epoch::from_u64(epoch)) {
            self.session().revoke_stalled_pins();
            return Ok(None);
        }
        Ok(Some(self.root_at(Loc::of_word(word))?))
    }
}

impl HeldShard<'_> {
    fn create_root(
        &self,
        slot: &Slot<'_>,
        space: KeyspaceId,
        id: Option<u64>,
    ) -> Result<Resized, WriteError> {
        let index = self.index;
        self.prepare(&[]);
        let Some(block) = self.allocate(slot, index.root_units(), 0)? else {
            self.undo()?;
            return Ok(Resized::NoSpace);
        };
        let words = (index.session().mem)
            .word_slice(block.loc, (ROOT_WORDS + index.partitions()) as usize)?;
        for word in words {
            word.store(0, Relaxed);
        }
        let header = index.session().tables.header();
        let id = match id {
            Some(id) => {
                header.next_root.fetch_max(id, Relaxed);
                id
            }
            None => header.next_root.fetch_add(1, Relaxed).wrapping_add(1),
        };
        let id = id.max(1);
        words[0].store(id, Relaxed);
        words[1].store(u64::from(space.number()), Relaxed);
        if index.session().feed.is_followed() && !space.is_hidden() {
            let bind = Item::Bind {
                databases: &[binding(index.database_of(space), id)],
                dead: &[],
            };
            // The entry is true already, whether or not the root is linked: the database is empty.
            if let Some(entry) = index.session().feed.enter(slot, &[bind])? {
                index.session().feed.complete(entry);
            }
        }
        let link = index.session().loc_of(header.root_word(space));
        self.commit(&[], WordChanges::words(link, 1, block.loc.bits()))
    }

    /// Frees the index pages of one partition of a dropped root, and counts their records as dead.
    /// After a death in the middle, finished steps are not repeated.
    fn sweep_partition(&self, root: Root, partition: u32) -> Result<(), WriteError> {
        let mem = &self.index.session().mem;
        let at = root.partition(partition);
        match Partition::of_word(mem.word(at)?.load(Acquire), at)? {
            Partition::Empty => {}
            Partition::One(segment) => self.sweep_segment(segment, root.partition(partition), 1)?,
            Partition::Directory { loc, depth } => {
                let words = mem.word_slice(loc, 1 << depth)?;
                let mut i = 0;
                while i < words.len() {
                    let word = words[i].load(Acquire);
                    if word == 0 {
                        i += 1;
                        continue;
                    }
                    let segment = SegmentRef::of_word(word, loc.add_words(i as u64))?;
                    let count = 1usize << (depth.saturating_sub(segment.depth()));
                    let count = count.min(words.len() - i);
                    self.sweep_segment(segment, loc.add_words(i as u64), count as u64)?;
                    i += count;
                }
                let block = Block {
                    loc,
                    units: (words.len() as u64 * 8).div_ceil(UNIT),
                };
                self.strike(block, root.partition(partition), 1)?;
            }
        }
        Ok(())
    }

    fn sweep_segment(
        &self,
        segment: SegmentRef,
        address: Loc,
        count: u64,
    ) -> Result<(), WriteError> {
        let index = self.index;
        for i in 0..segment.buckets() {
            let bucket = index.session().mem.bucket(segment, i)?;
            for entry in (0..SLOTS)
                .map(|s| bucket.entry(s))
                .filter(|e| !e.is_empty())
            {
                // The record of a damaged entry is not needed, and must not stop the rest from
                // being freed. It is not counted as dead until compaction counts again.
                if let Ok(record) = index.session().mem.record(entry.loc()) {
                    if record.header().kind().is_large() {
                        // There may be many: the sweep checks all anchors.
                        index.lose_main(None);
                    }
                    let _ = index.log().mark_dead(entry.loc(), record.header().size());
                }
            }
        }
        self.strike(block_of(segment), address, count)
    }

    /// Clears the `count` words from `address` on, which name `block`, and frees the block.
    fn strike(&self, block: Block, address: Loc, count: u64) -> Result<(), WriteError> {
        let block = Some(block);
        let change = ShapeChange::Strike {
            address,
            count,
            block,
        };
        self.journal().announce(self.slot(), change);
        mneme_sys::fault!("index.sweep.noted");
        self.finish_strike(address, count, block)
    }

    /// Completes a strike, whatever step it had reached.
    pub(super) fn finish_strike(
        &self,
        address: Loc,
        count: u64,
        block: Option<Block>,
    ) -> Result<(), WriteError> {
        for i in 0..count {
            self.index
                .session()
                .mem
                .word(address.add_words(i))?
                .store(0, Release);
        }
        mneme_sys::fault!("index.sweep.unlinked");
        if let Some(block) = block {
            self.free(block)?;
        }
        self.journal().clear();
        Ok(())
    }
}
