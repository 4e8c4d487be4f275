//! Growing, splitting, shrinking and merging index pages, one at a time.
//!
//! A change of shape holds its shard's lock and every bucket lock of the pages that it replaces:
//!
//! 1. blocks are allocated (journal: `PREPARE`, undone by the lock's next holder if this one dies);
//! 2. the old buckets are locked, so that their entries do not change; readers continue to read
//!    them;
//! 3. the new pages are filled from position and tag alone; no other thread sees them yet;
//! 4. the words that name the old pages are changed to name the new ones (journal: `PUBLISH`,
//!    finished by the lock's next holder). Each word is one store, and a key is reached by one
//!    word, so a reader or writer finds either the frozen old page or the new one that equals it;
//! 5. the old buckets are marked retired, so that waiting writers look the page up again, and the
//!    old blocks wait in limbo until their readers have unpinned.
//!
//! A directory that is too short for a split is doubled in the same step: the new directory already
//! names the new pages, and is published by the one store of the partition word.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use mneme_sync::{Holding, Slot, SlotId, Word};

use super::bucket::{BUCKET_WORDS, Entry, SLOTS, TAG_BITS, TryLock};
use super::journal::{ShapeChange, WordChanges};
use super::lookup::Lookup;
use super::pool::{Block, HeldShard, UNIT};
use super::root::Root;
use super::shape::{MAX_DEPTH, Partition, Place, SIZES, SegmentRef};
use crate::error::{Corrupt, WriteError};
use crate::index::Index;
use crate::region::mem::Loc;

/// A page fuller than this grows. Tuned by `cargo run --release -p mneme-log --example index_fill`:
/// 85 costs 12.3 bytes a record and 1.021 buckets a hit, 90 costs 11.7 and 1.029. Above that, pages
/// run full before they reach it.
const GROW_PERCENT: u64 = 90;
/// The maximum fill of a page that has just grown or shrunk.
const TARGET_PERCENT: u64 = 75;
/// A page emptier than this shrinks, or merges with its buddy.
const SHRINK_PERCENT: u64 = 25;
/// Attempts at one bucket's lock before a change of shape is postponed.
const LOCK_TRIES: u32 = 4000;
/// Unusual page sizes, tried when so many entries share a few homes that they do not fit the usual
/// sizes.
const LAST_RESORT: [u64; 2] = [56, 63];

/// The reason for a change of a page's shape.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Why {
    /// An entry found no slot, or there is no page yet: the change must happen.
    Full,
    /// This number of entries will be added: the change happens unless they fit already.
    Ahead(u64),
    /// Entries lie behind their homes: the change happens if the page is full enough.
    Crowded,
    /// A bucket is nearly empty: the change happens if the page is empty enough.
    Sparse,
}

/// The result of an attempt to change the shape.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Resized {
    /// The index has another shape now, or needs none: look again.
    Done,
    /// A thread holds something that blocks the change: wait for it, then try again.
    Busy(SlotId, Holding),
    /// The arena has no frame for the new blocks.
    NoSpace,
    /// Limbo has no place for the blocks that the change would retire until some pins are released.
    /// The caller's own pin may be among them, so the caller must unpin before it waits.
    LimboFull,
}

impl Index {
    /// Changes the shape of the index around `place`, whose page the caller saw as `seen`.
    ///
    /// The caller holds no bucket. It may be pinned: nothing here waits for a grace period. If
    /// another thread holds the shard now, an optional change is left to the next thread that sees
    /// the need.
    pub(crate) fn resize(
        &self,
        slot: &Slot<'_>,
        root: Root,
        place: Place,
        seen: Option<SegmentRef>,
        why: Why,
    ) -> Result<Resized, WriteError> {
        let shard = root.shard(place.partition, self.session().tables.geometry.shards);
        let change = |held: &HeldShard<'_>| {
            if self.session().mem.index_segment(root, place)? != seen {
                return Ok(Resized::Done);
            }
            held.collect(false)?;
            let Some(segment) = seen else {
                return held.first_segment(slot, root, place);
            };
            if held.limbo_is_full() {
                held.collect(true)?;
                if held.limbo_is_full() {
                    return Ok(Resized::LimboFull);
                }
            }
            let used = self.segment_used(segment)?;
            let slots = segment.buckets() * SLOTS as u64;
            match why {
                Why::Ahead(more) if (used + more) * 100 <= slots * GROW_PERCENT => {
                    Ok(Resized::Done)
                }
                Why::Ahead(more) => held.grow(slot, root, place, segment, used + more),
                Why::Crowded if used * 100 < slots * GROW_PERCENT => Ok(Resized::Done),
                Why::Full | Why::Crowded => held.grow(slot, root, place, segment, used),
                Why::Sparse if used * 100 > slots * SHRINK_PERCENT => Ok(Resized::Done),
                // A page that has grown for a transaction is empty until the transaction commits.
                Why::Sparse if self.grown_ahead.keeps(segment) => Ok(Resized::Done),
                Why::Sparse => held.shrink(slot, root, place, segment, used),
            }
        };
        if matches!(why, Why::Full | Why::Ahead(_)) {
            self.with_shard(slot, shard, change)
        } else {
            let changed = self.try_with_shard(slot, shard, change)?;
            Ok(changed.unwrap_or(Resized::Done))
        }
    }
}

/// The smallest size, above `above` buckets, at which `entries` do not exceed the target fill.
fn size_for(entries: u64, above: u64) -> Option<u64> {
    SIZES
        .into_iter()
        .find(|&n| n > above && entries * 100 <= n * SLOTS as u64 * TARGET_PERCENT)
}

/// Units of a page of `buckets` buckets.
fn segment_units(buckets: u64) -> u64 {
    (buckets * BUCKET_WORDS * 8).div_ceil(UNIT)
}

/// The block in which an index page lies.
pub(crate) fn block_of(segment: SegmentRef) -> Block {
    Block {
        loc: segment.loc(),
        units: segment_units(segment.buckets()),
    }
}

/// The result of locking every bucket of the pages that a change of shape replaces.
enum Frozen {
    /// All are locked; these are their entries.
    Entries(Vec<Entry>),
    /// This thread does not release one of them.
    HeldBy(SlotId),
}

impl HeldShard<'_> {
    fn first_segment(
        &self,
        slot: &Slot<'_>,
        root: Root,
        place: Place,
    ) -> Result<Resized, WriteError> {
        self.prepare(&[]);
        let Some(segment) = self.fresh_segment(slot, SIZES[0], 0, 0)? else {
            return self.give_up(Resized::NoSpace);
        };
        let word = root.partition(place.partition);
        self.commit(&[], WordChanges::words(word, 1, segment.word()))
    }

    fn grow(
        &self,
        slot: &Slot<'_>,
        root: Root,
        place: Place,
        old: SegmentRef,
        used: u64,
    ) -> Result<Resized, WriteError> {
        if let Some(size) = size_for(used, old.buckets()) {
            return self.replace(slot, root, place, &[old], old.depth(), size);
        }
        if old.depth() < MAX_DEPTH {
            return self.split(slot, root, place, old);
        }
        match LAST_RESORT.into_iter().find(|&n| n > old.buckets()) {
            Some(size) => self.replace(slot, root, place, &[old], old.depth(), size),
            None => Ok(Resized::NoSpace),
        }
    }

    fn shrink(
        &self,
        slot: &Slot<'_>,
        root: Root,
        place: Place,
        old: SegmentRef,
        used: u64,
    ) -> Result<Resized, WriteError> {
        let buddy = self.buddy(root, place, old)?;
        if let Some(buddy) = buddy.filter(|buddy| !self.index.grown_ahead.keeps(*buddy)) {
            let both = used + self.index.segment_used(buddy)?;
            if let Some(size) = size_for(both, 0) {
                let low = place.tag >> (TAG_BITS - old.depth()) & 1 == 0;
                let pair = if low { [old, buddy] } else { [buddy, old] };
                return self.replace(slot, root, place, &pair, old.depth() - 1, size);
            }
        }
        match size_for(used, 0) {
            Some(size) if size < old.buckets() => {
                self.replace(slot, root, place, &[old], old.depth(), size)
            }
            _ => Ok(Resized::Done),
        }
    }

    /// The page whose tags differ from `old`'s only in the last bit of the prefix.
    fn buddy(
        &self,
        root: Root,
        place: Place,
        old: SegmentRef,
    ) -> Result<Option<SegmentRef>, Corrupt> {
        if old.depth() == 0 {
            return Ok(None);
        }
        let tag = place.tag ^ 1 << (TAG_BITS - old.depth());
        let buddy = self
            .index
            .session()
            .mem
            .index_segment(root, Place { tag, ..place })?;
        Ok(buddy.filter(|b| b.depth() == old.depth()))
    }

    /// Replaces `old` (one page, or two buddies) by one page.
    fn replace(
        &self,
        slot: &Slot<'_>,
        root: Root,
        place: Place,
        old: &[SegmentRef],
        depth: u32,
        size: u64,
    ) -> Result<Resized, WriteError> {
        if self.holds_one_of(old)? {
            return Ok(Resized::Busy(self.slot(), Holding::Lock));
        }
        let mut size = size;
        loop {
            self.prepare(old);
            let Some(new) = self.fresh_segment(slot, size, depth, 0)? else {
                return self.give_up(Resized::NoSpace);
            };
            let entries = match self.freeze(old)? {
                Frozen::Entries(entries) => entries,
                Frozen::HeldBy(holder) => {
                    return self.give_up(Resized::Busy(holder, Holding::Lock));
                }
            };
            if self.fill(new, &entries)? {
                mneme_sys::fault!("index.resize.filled");
                let (address, count) = self.words_of(root, place, depth)?;
                return self.commit(old, WordChanges::words(address, count, new.word()));
            }
            // The entries share so few homes that they do not fit: try a larger page.
            self.undo()?;
            match SIZES.into_iter().chain(LAST_RESORT).find(|&n| n > size) {
                Some(larger) => size = larger,
                None => return Ok(Resized::NoSpace),
            }
        }
    }

    fn split(
        &self,
        slot: &Slot<'_>,
        root: Root,
        place: Place,
        old: SegmentRef,
    ) -> Result<Resized, WriteError> {
        if self.holds_one_of(&[old])? {
            return Ok(Resized::Busy(self.slot(), Holding::Lock));
        }
        let depth = old.depth() + 1;
        let mut extra = 0;
        loop {
            self.prepare(&[old]);
            let entries = match self.freeze(&[old])? {
                Frozen::Entries(entries) => entries,
                Frozen::HeldBy(holder) => {
                    return self.give_up(Resized::Busy(holder, Holding::Lock));
                }
            };
            let (low, high): (Vec<Entry>, Vec<Entry>) = entries
                .into_iter()
                .partition(|e| e.tag() >> (TAG_BITS - depth) & 1 == 0);
            let mut new = [old; 2];
            for (i, half) in [&low, &high].into_iter().enumerate() {
                let size = SIZES
                    .into_iter()
                    .filter(|&n| half.len() as u64 * 100 <= n * SLOTS as u64 * TARGET_PERCENT)
                    .nth(extra)
                    .unwrap_or(LAST_RESORT[extra.min(1)]);
                match self.fresh_segment(slot, size, depth, i)? {
                    Some(segment) => new[i] = segment,
                    None => return self.give_up(Resized::NoSpace),
                }
            }
            if self.fill(new[0], &low)? && self.fill(new[1], &high)? {
                mneme_sys::fault!("index.resize.filled");
                return match self.split_change(slot, root, place, old, new)? {
                    Some(change) => self.commit(&[old], change),
                    None => self.give_up(Resized::NoSpace),
                };
            }
            self.undo()?;
            extra += 1;
            if extra > SIZES.len() {
                return Ok(Resized::NoSpace);
            }
        }
    }

    /// The words that a split changes: a part of the directory, or a whole longer directory.
    fn split_change(
        &self,
        slot: &Slot<'_>,
        root: Root,
        place: Place,
        old: SegmentRef,
        new: [SegmentRef; 2],
    ) -> Result<Option<WordChanges>, WriteError> {
        let mem = &self.index.session().mem;
        let partition = root.partition(place.partition);
        let (loc, depth) = match Partition::of_word(mem.word(partition)?.load(Acquire), partition)?
        {
            Partition::Directory { depth, .. } if depth > old.depth() => {
                let (address, count) = self.words_of(root, place, old.depth())?;
                return Ok(Some(WordChanges {
                    second: new[1].word(),
                    half: count / 2,
                    ..WordChanges::words(address, count, new[0].word())
                }));
            }
            Partition::Directory { loc, depth } => (Some(loc), depth),
            Partition::One(_) => (None, 0),
            Partition::Empty => {
                return Err(Corrupt::at(partition.byte(), "a partition lost its segment").into());
            }
        };
        let words = 2u64 << depth;
        let Some(block) = self.allocate(slot, (words * 8).div_ceil(UNIT), 2)? else {
            return Ok(None);
        };
        for i in 0..words {
            let word = match loc {
                _ if i >> 1 == u64::from(place.tag) >> (TAG_BITS - depth) => {
                    new[(i & 1) as usize].word()
                }
                Some(loc) => mem.word(loc.add_words(i >> 1))?.load(Acquire),
                None => new[(i & 1) as usize].word(),
            };
            mem.word(block.loc.add_words(i))?.store(word, Relaxed);
        }
        let old_block = loc.map(|loc| Block {
            loc,
            units: (words * 4).div_ceil(UNIT),
        });
        let word = Partition::directory_word(block.loc, depth + 1);
        Ok(Some(WordChanges {
            old_block,
            ..WordChanges::words(partition, 1, word)
        }))
    }

    /// The place and the number of the words that name the page of `place` at `depth`.
    fn words_of(&self, root: Root, place: Place, depth: u32) -> Result<(Loc, u64), Corrupt> {
        let partition = root.partition(place.partition);
        match Partition::of_word(
            self.index.session().mem.word(partition)?.load(Acquire),
            partition,
        )? {
            Partition::Directory { loc, depth: all } if depth <= all => {
                let count = 1u64 << (all - depth);
                let prefix = if depth == 0 {
                    0
                } else {
                    u64::from(place.tag) >> (TAG_BITS - depth)
                };
                Ok((loc.add_words(prefix * count), count))
            }
            _ => Ok((partition, 1)),
        }
    }

    /// Whether this thread holds a bucket already, for a transaction that has locked ahead. Undoing
    /// a change, or carrying one out, would release that lock.
    fn holds_one_of(&self, old: &[SegmentRef]) -> Result<bool, Corrupt> {
        for segment in old {
            for i in 0..segment.buckets() {
                let word = self.index.session().mem.bucket(*segment, i)?.word();
                if word.locked() && word.holder() == self.slot() {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Announces that `old` is to be replaced.
    pub(super) fn prepare(&self, old: &[SegmentRef]) {
        let change = ShapeChange::Prepare {
            old: pair(old),
            new: [None; 3],
        };
        self.journal().announce(self.slot(), change);
        mneme_sys::fault!("index.resize.prepared");
    }

    fn give_up(&self, why: Resized) -> Result<Resized, WriteError> {
        self.undo()?;
        Ok(why)
    }

    /// Allocates and clears a page, noted as the `n`th new block.
    fn fresh_segment(
        &self,
        slot: &Slot<'_>,
        buckets: u64,
        depth: u32,
        n: usize,
    ) -> Result<Option<SegmentRef>, WriteError> {
        let Some(block) = self.allocate(slot, segment_units(buckets), n)? else {
            return Ok(None);
        };
        for word in self
            .index
            .session()
            .mem
            .word_slice(block.loc, (buckets * BUCKET_WORDS) as usize)?
        {
            word.store(0, Relaxed);
        }
        Ok(Some(SegmentRef::new(block.loc, buckets, depth)))
    }

    /// Locks every bucket of `old` and collects the entries. The locks stay with this thread:
    /// `undo` and `publish` find them by the journal.
    fn freeze(&self, old: &[SegmentRef]) -> Result<Frozen, Corrupt> {
        let mem = &self.index.session().mem;
        for segment in old {
            let held_up = freeze(mem, *segment, self.slot(), |tries| {
                if tries % 64 == 0 {
                    std::thread::yield_now()
                } else {
                    std::hint::spin_loop()
                }
                tries < LOCK_TRIES
            })?;
            if let Some(holder) = held_up {
                return Ok(Frozen::HeldBy(holder));
            }
        }
        mneme_sys::fault!("index.resize.frozen");
        let mut entries = Vec::new();
        for segment in old {
            collect(mem, *segment, &mut entries)?;
        }
        Ok(Frozen::Entries(entries))
    }

    /// Places `entries` in a fresh page; returns false if they do not fit near their homes.
    fn fill(&self, segment: SegmentRef, entries: &[Entry]) -> Result<bool, Corrupt> {
        fill(&self.index.session().mem, segment, entries)
    }

    /// Undoes a prepared change: frees its blocks and releases the bucket locks.
    pub(super) fn undo(&self) -> Result<(), WriteError> {
        let journal = self.journal();
        let Some((owner, ShapeChange::Prepare { old, new })) = journal.announced(self.index)?
        else {
            return Ok(());
        };
        for segment in old.into_iter().flatten() {
            for i in 0..segment.buckets() {
                if let Some(held) = self.index.session().mem.bucket(segment, i)?.inherit(owner) {
                    held.unlock();
                }
            }
        }
        for (n, block) in new.into_iter().enumerate() {
            if let Some(block) = block {
                self.free(block)?;
                journal.note_new(n, None);
            }
        }
        journal.clear();
        Ok(())
    }

    /// Carries out a prepared change of the pages `old`.
    pub(super) fn commit(
        &self,
        old: &[SegmentRef],
        words: WordChanges,
    ) -> Result<Resized, WriteError> {
        let old = pair(old);
        let change = ShapeChange::Publish { old, words };
        self.journal().announce(self.slot(), change);
        self.publish(self.slot(), old, words)?;
        Ok(Resized::Done)
    }

    /// Completes a change that `owner` has announced, from any step at which it was left.
    pub(super) fn publish(
        &self,
        owner: SlotId,
        old: [Option<SegmentRef>; 2],
        words: WordChanges,
    ) -> Result<(), WriteError> {
        mneme_sys::fault!("index.resize.noted");
        replace(
            &self.index.session().mem,
            words.iter(),
            || mneme_sys::fault!("index.resize.word"),
            old.into_iter().flatten(),
            owner,
            |segment| {
                mneme_sys::fault!("index.resize.retired");
                self.retire(block_of(segment));
            },
        )?;
        if let Some(block) = words.old_block {
            self.retire(block);
        }
        mneme_sys::fault!("index.resize.limbo");
        self.journal().clear();
        Ok(())
    }
}

/// The pages that a change replaces, at most two, in the journal's form.
fn pair(old: &[SegmentRef]) -> [Option<SegmentRef>; 2] {
    [old.first().copied(), old.get(1).copied()]
}

/// The error for an index word that names a replaced page, which begins or has a bucket at `loc`.
#[cold]
pub(crate) fn retired(loc: Loc) -> Corrupt {
    Corrupt::at(loc.byte(), "a retired index segment is in use")
}

/// Locks every bucket of `segment`, or returns the holder that did not release one in time. `wait`
/// gets the number of the attempt, and returns whether to try again.
pub(crate) fn freeze<M: Lookup>(
    mem: &M,
    segment: SegmentRef,
    slot: SlotId,
    mut wait: impl FnMut(u32) -> bool,
) -> Result<Option<SlotId>, Corrupt> {
    for i in 0..segment.buckets() {
        let bucket = mem.bucket(segment, i)?;
        let mut tries = 0;
        loop {
            match bucket.try_lock(slot) {
                TryLock::Held(_) => break,
                TryLock::Retired => {
                    return Err(retired(segment.loc()));
                }
                TryLock::Busy(word) => {
                    tries += 1;
                    if !wait(tries) {
                        return Ok(Some(word.holder()));
                    }
                }
            }
        }
    }
    Ok(None)
}

/// Adds the entries of a frozen page to `entries`.
pub(crate) fn collect<M: Lookup>(
    mem: &M,
    segment: SegmentRef,
    entries: &mut Vec<Entry>,
) -> Result<(), Corrupt> {
    for i in 0..segment.buckets() {
        let bucket = mem.bucket(segment, i)?;
        entries.extend(
            (0..SLOTS)
                .map(|s| bucket.entry(s))
                .filter(|e| !e.is_empty()),
        );
    }
    Ok(())
}

/// Places `entries` in a page that no other thread sees yet; returns false if they do not fit near
/// their homes.
pub(crate) fn fill<M: Lookup>(
    mem: &M,
    segment: SegmentRef,
    entries: &[Entry],
) -> Result<bool, Corrupt> {
    let mut used = [0u8; 64];
    for &entry in entries {
        let home = segment.home(entry.tag());
        let place = (0..=segment.max_reach())
            .map(|d| (d, segment.behind(home, d)))
            .find(|&(_, i)| usize::from(used[i as usize]) < SLOTS);
        let Some((distance, i)) = place else {
            return Ok(false);
        };
        let slot = &mut used[i as usize];
        mem.bucket(segment, i)?.fill(usize::from(*slot), entry);
        *slot += 1;
        if distance > 0 {
            mem.bucket(segment, home)?.fill_reach(distance);
        }
    }
    Ok(true)
}

/// Makes the new pages visible in place of the old ones, which `owner` has frozen: stores each of
/// `words`, in the order of their tags (see `scan`), then marks every bucket of `old` as retired.
/// `stored` and `retired` are called for each.
pub(crate) fn replace<M: Lookup>(
    mem: &M,
    words: impl Iterator<Item = (Loc, u64)>,
    mut stored: impl FnMut(),
    old: impl Iterator<Item = SegmentRef>,
    owner: SlotId,
    mut retired: impl FnMut(SegmentRef),
) -> Result<(), Corrupt> {
    for (loc, word) in words {
        // SYNC: pairs with the Acquire load in `Lookup::index_segment`: the new segment is filled.
        mem.word(loc)?.store(word, Release);
        stored();
    }
    for segment in old {
        for i in 0..segment.buckets() {
            if let Some(held) = mem.bucket(segment, i)?.inherit(owner) {
                held.retire();
            }
        }
        retired(segment);
    }
    Ok(())
}
