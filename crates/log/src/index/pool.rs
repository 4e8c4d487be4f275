//! Blocks for index segments, directories and roots, cut from 2 MiB frames.
//!
//! A block is a run of 256-byte units in a frame that belongs to one shard. The frame begins with a
//! bitmap of its 8192 units, which alone defines what is in use. The shard's pool table names the
//! frames and caches the bitmap's counts. All of it is guarded by the shard's lock, and every
//! change is written to the shard's [journal](ShardJournal) first: the thread that inherits the
//! lock from a dead holder finishes or undoes the change before anything else happens, so that no
//! block is ever lost or given out twice.
//!
//! A block that readers may still look at waits in the shard's limbo for a grace period.

mod limbo;

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use mneme_arena::{Class, Extent, ExtentState, FRAME_BYTES, Frame};
use mneme_sync::{Acquired, Guard, Slot, SlotId};

use crate::error::{Corrupt, WriteError};
use crate::index::Index;
use crate::index::intent::{INDEX_LANE, IndexIntent};
use crate::index::journal::{MovingFrame, ShapeChange, ShardJournal};
use crate::index::root::ROOT_SHARD;
use crate::log::segment::{TAG_INDEX, frame_byte};
use crate::region::layout::Shard;
use crate::region::mem::{LOC_BITS, Loc};

/// Bytes of a unit: two buckets.
pub(crate) const UNIT: u64 = 256;
/// Units of a frame.
pub(crate) const UNITS: u64 = FRAME_BYTES / UNIT;
/// Words of a frame's bitmap.
pub(crate) const MAP_WORDS: usize = (UNITS / 64) as usize;
/// Units that the bitmap itself takes.
const MAP_UNITS: u64 = MAP_WORDS as u64 * 8 / UNIT;
/// A run of units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Block {
    pub loc: Loc,
    pub units: u64,
}

impl Block {
    pub fn of_word(word: u64) -> Option<Block> {
        (word != 0).then(|| Block {
            loc: Loc::of_word(word),
            units: word >> LOC_BITS & 0xfff,
        })
    }

    pub fn word(self) -> u64 {
        self.loc.bits() | self.units << LOC_BITS
    }

    fn frame(self) -> Frame {
        Frame((self.loc.byte() / FRAME_BYTES) as u32)
    }

    fn first_unit(self) -> u64 {
        self.loc.byte() % FRAME_BYTES / UNIT
    }
}

/// A pool table entry: frame plus one 32 bits, free units 16, length that was last not found 16.
#[derive(Clone, Copy)]
struct PoolEntry(u64);

impl PoolEntry {
    fn new(frame: Frame, free: u64, missing: u64) -> PoolEntry {
        PoolEntry((u64::from(frame.0) + 1) | free << 32 | missing << 48)
    }

    fn frame(self) -> Option<Frame> {
        ((self.0 as u32) != 0).then(|| Frame(self.0 as u32 - 1))
    }

    fn free(self) -> u64 {
        self.0 >> 32 & 0xffff
    }

    fn missing(self) -> u64 {
        self.0 >> 48
    }
}

/// A shard whose lock is held.
pub(crate) struct HeldShard<'c> {
    pub index: &'c Index,
    pub number: u64,
    pub shard: &'c Shard,
    slot: SlotId,
    guard: Guard<'c>,
}

impl Drop for HeldShard<'_> {
    fn drop(&mut self) {
        // Apart from the kind in the journal, its other words and the cached numbers of the pool
        // table may belong to a change that was not finished.
        if std::thread::panicking() {
            self.guard.needs_repair();
        }
    }
}

impl Index {
    /// Runs `work` with the lock of shard `number`, after repairing what a dead holder left.
    pub(crate) fn with_shard<T>(
        &self,
        slot: &Slot<'_>,
        number: u64,
        work: impl FnOnce(&HeldShard<'_>) -> Result<T, WriteError>,
    ) -> Result<T, WriteError> {
        IndexIntent::Reshape { shard: number }.announce(slot);
        mneme_sys::fault!("index.shard.intent");
        let result = match self.session().tables.shard(number).lock.lock(slot) {
            Ok(acquired) => self.in_shard(slot, number, acquired, work),
            Err(stalled) => Err(stalled.into()),
        };
        slot.intent(INDEX_LANE).clear();
        result
    }

    /// As [`with_shard`](Self::with_shard), unless another live thread has the lock: then `None`.
    pub(crate) fn try_with_shard<T>(
        &self,
        slot: &Slot<'_>,
        number: u64,
        work: impl FnOnce(&HeldShard<'_>) -> Result<T, WriteError>,
    ) -> Result<Option<T>, WriteError> {
        IndexIntent::Reshape { shard: number }.announce(slot);
        mneme_sys::fault!("index.shard.intent");
        let acquired = self.session().tables.shard(number).lock.try_lock(slot);
        let result = acquired.map(|acquired| self.in_shard(slot, number, acquired, work));
        slot.intent(INDEX_LANE).clear();
        result.transpose()
    }

    fn in_shard<'c, T>(
        &'c self,
        slot: &Slot<'c>,
        number: u64,
        acquired: Acquired<Guard<'c>>,
        work: impl FnOnce(&HeldShard<'_>) -> Result<T, WriteError>,
    ) -> Result<T, WriteError> {
        let died = acquired.owner_died();
        let held = HeldShard {
            index: self,
            number,
            shard: self.session().tables.shard(number),
            slot: slot.id(),
            guard: acquired.into_inner(),
        };
        if died {
            held.repair(slot)?;
            if number == ROOT_SHARD {
                self.settle_drop();
            }
            held.guard.repaired();
        }
        let result = work(&held);
        if result.is_err() && held.journal().is_preparing() {
            // Another thread blocks the change, or the region is damaged: the buckets that were
            // locked for the change must not stay locked.
            held.undo()?;
        }
        result
    }

    /// Frees what the index no longer needs. Returns the number of frames.
    pub(crate) fn trim_index(&self, slot: &Slot<'_>) -> Result<usize, WriteError> {
        let mut trimmed = 0;
        for shard in 0..self.session().tables.geometry.shards {
            trimmed += self.with_shard(slot, shard, |held| {
                held.collect(true)?;
                held.trim(slot)
            })?;
        }
        Ok(trimmed)
    }

    /// The use of a pool frame as its bitmap has it: units in use, without the bitmap's own.
    pub(crate) fn pool_frame_used(&self, frame: Frame) -> Result<u64, Corrupt> {
        Ok(self
            .bitmap(frame)?
            .iter()
            .map(|w| u64::from(w.load(Relaxed).count_ones()))
            .sum::<u64>()
            .saturating_sub(MAP_UNITS))
    }

    /// The frames in shard `number`'s pool table.
    pub(crate) fn pool_frames(&self, number: u64) -> impl Iterator<Item = Frame> {
        self.session()
            .tables
            .pool(number)
            .iter()
            .filter_map(|w| PoolEntry(w.load(Acquire)).frame())
    }

    /// The frames in the table of shard `number`, whose lock the caller holds, for which the cached
    /// number of free units is not what the bitmap says.
    pub(crate) fn miscounted(&self, number: u64) -> impl Iterator<Item = Frame> {
        let table = self.session().tables.pool(number).iter();
        table.filter_map(|word| {
            let entry = PoolEntry(word.load(Relaxed));
            let frame = entry.frame()?;
            let used = self.pool_frame_used(frame).ok()?;
            (entry.free() + used != UNITS - MAP_UNITS).then_some(frame)
        })
    }

    pub(crate) fn bitmap(
        &self,
        frame: Frame,
    ) -> Result<&[std::sync::atomic::AtomicU64; MAP_WORDS], Corrupt> {
        let loc = Loc::of_byte(frame_byte(frame));
        if !self.is_index(loc) {
            return Err(Corrupt::at(
                loc.byte(),
                "a pool's frame that is not the index'",
            ));
        }
        self.session().mem.words(loc)
    }

    /// Whether `loc` lies in a frame of the index.
    pub(crate) fn is_index(&self, loc: Loc) -> bool {
        u32::try_from(loc.byte() / FRAME_BYTES)
            .ok()
            .and_then(|frame| self.log().arena.extent_of(Frame(frame)))
            .is_some_and(|info| info.tag == TAG_INDEX)
    }
}

impl HeldShard<'_> {
    pub fn journal(&self) -> ShardJournal<'_> {
        ShardJournal::of(self.shard)
    }

    /// Notes that a frame of the index, in its present generation, is being moved into the pool
    /// table or out of it.
    fn note_frame(&self, frame: Frame) -> Result<(), Corrupt> {
        let Some(info) = self.index.log().arena.extent_of(frame) else {
            let why = "a frame of the index that nobody has claimed";
            return Err(Corrupt::at(frame_byte(frame), why));
        };
        self.journal().note_frame(Some(MovingFrame {
            frame,
            generation: info.generation,
        }));
        Ok(())
    }

    /// Allocates a block and notes it as the `n`th of the change under way; `None`: the arena has
    /// no free frame. The bytes are left from an earlier use.
    pub fn allocate(
        &self,
        slot: &Slot<'_>,
        units: u64,
        n: usize,
    ) -> Result<Option<Block>, WriteError> {
        debug_assert!((1..UNITS - MAP_UNITS).contains(&units));
        let table = self.index.session().tables.pool(self.number);
        let frames = (self.shard.frames.load(Relaxed) as usize).min(table.len());
        let hint = self.shard.hint.load(Relaxed) as usize % frames.max(1);
        for at in (0..frames).map(|i| (hint + i) % frames) {
            let entry = PoolEntry(table[at].load(Relaxed));
            let Some(frame) = entry.frame() else { continue };
            if entry.free() < units || (entry.missing() != 0 && units >= entry.missing()) {
                continue;
            }
            if let Some(block) = self.allocate_in(frame, units, n)? {
                self.recount(at, frame, entry.missing())?;
                self.shard.hint.store(at as u64, Relaxed);
                return Ok(Some(block));
            }
            table[at].store(PoolEntry::new(frame, entry.free(), units).0, Relaxed);
        }
        let Some((at, frame)) = self.add_frame(slot)? else {
            return Ok(None);
        };
        let block = self.allocate_in(frame, units, n)?;
        self.recount(at, frame, 0)?;
        self.shard.hint.store(at as u64, Relaxed);
        Ok(block)
    }

    fn allocate_in(&self, frame: Frame, units: u64, n: usize) -> Result<Option<Block>, Corrupt> {
        let map = self.index.bitmap(frame)?;
        let Some(first) = find_run(|i| map[i].load(Relaxed), units) else {
            return Ok(None);
        };
        if first < MAP_UNITS {
            return Err(Corrupt::at(
                frame_byte(frame),
                "a bitmap that does not count itself",
            ));
        }
        let block = Block {
            loc: Loc::of_byte(frame_byte(frame) + first * UNIT),
            units,
        };
        self.journal().note_new(n, Some(block));
        mneme_sys::fault!("index.pool.noted");
        for_range(first, units, |word, mask| {
            map[word].store(map[word].load(Relaxed) | mask, Relaxed)
        });
        mneme_sys::fault!("index.pool.taken");
        Ok(Some(block))
    }

    /// Frees a block at once. Idempotent while the lock is held.
    pub fn free(&self, block: Block) -> Result<(), Corrupt> {
        let (frame, first) = (block.frame(), block.first_unit());
        let table = self.index.session().tables.pool(self.number);
        let at = table
            .iter()
            .position(|w| PoolEntry(w.load(Relaxed)).frame() == Some(frame));
        let (Some(at), true) = (at, first >= MAP_UNITS && first + block.units <= UNITS) else {
            return Err(Corrupt::at(
                block.loc.byte(),
                "not a block of this shard's pool",
            ));
        };
        let map = self.index.bitmap(frame)?;
        for_range(first, block.units, |word, mask| {
            map[word].store(map[word].load(Relaxed) & !mask, Relaxed)
        });
        self.recount(at, frame, 0)
    }

    /// Brings the cached numbers of a frame in line with its bitmap.
    fn recount(&self, at: usize, frame: Frame, missing: u64) -> Result<(), Corrupt> {
        let free = UNITS - MAP_UNITS - self.index.pool_frame_used(frame)?;
        self.index.session().tables.pool(self.number)[at]
            .store(PoolEntry::new(frame, free, missing).0, Relaxed);
        Ok(())
    }

    fn add_frame(&self, slot: &Slot<'_>) -> Result<Option<(usize, Frame)>, WriteError> {
        let index = self.index;
        let table = index.session().tables.pool(self.number);
        let Some(at) = table
            .iter()
            .position(|w| PoolEntry(w.load(Relaxed)).frame().is_none())
        else {
            return Ok(None);
        };
        let node = (index.session().topology).node_of(index.session().topology.current_cpu());
        let Some(extent) = (index.log()).claim(slot, 1, node, Class::Ordinary, TAG_INDEX)? else {
            return Ok(None);
        };
        let frame = extent.start;
        self.note_frame(frame)?;
        mneme_sys::fault!("index.pool.frame-noted");
        let map = index.bitmap(frame)?;
        for word in map {
            word.store(0, Relaxed);
        }
        map[0].store((1 << MAP_UNITS) - 1, Relaxed);
        // SYNC: pairs with the Acquire load in `pool_frames`.
        table[at].store(PoolEntry::new(frame, UNITS - MAP_UNITS, 0).0, Release);
        self.shard.frames.fetch_max(at as u64 + 1, Relaxed);
        mneme_sys::fault!("index.pool.frame-linked");
        index.log().adopt(extent)?;
        self.journal().note_frame(None);
        Ok(Some((at, frame)))
    }

    /// Gives wholly unused frames back to the arena, except one that is kept for the next block.
    /// Returns their number.
    pub fn trim(&self, slot: &Slot<'_>) -> Result<usize, WriteError> {
        let table = self.index.session().tables.pool(self.number);
        let mut spare = false;
        let mut trimmed = 0;
        for word in table {
            let entry = PoolEntry(word.load(Relaxed));
            let Some(frame) = entry.frame() else { continue };
            // The bitmap is checked too: a damaged cached number must not free live blocks.
            if entry.free() != UNITS - MAP_UNITS
                || self.index.pool_frame_used(frame)? != 0
                || !std::mem::replace(&mut spare, true)
            {
                continue;
            }
            self.note_frame(frame)?;
            word.store(0, Relaxed);
            mneme_sys::fault!("index.pool.frame-unlinked");
            let extent = Extent {
                start: frame,
                frames: 1,
            };
            let released = self.index.log().release(slot, extent);
            if released.is_err() {
                // The arena's lock is held: a later call gives the frame back.
                word.store(entry.0, Relaxed);
            }
            self.journal().note_frame(None);
            released?;
            trimmed += 1;
        }
        Ok(trimmed)
    }

    /// Finishes or undoes what the lock's dead holder was doing.
    fn repair(&self, slot: &Slot<'_>) -> Result<(), WriteError> {
        if let Some(moving) = self.journal().moving_frame() {
            self.repair_frame(slot, moving)?;
        }
        self.journal().note_frame(None);
        self.finish_free()?;
        match self.journal().announced(self.index)? {
            None => {}
            Some((_, ShapeChange::Prepare { .. })) => self.undo()?,
            Some((owner, ShapeChange::Publish { old, words })) => {
                self.publish(owner, old, words)?;
            }
            Some((
                _,
                ShapeChange::Strike {
                    address,
                    count,
                    block,
                },
            )) => {
                self.finish_strike(address, count, block)?;
            }
        }
        // A bitmap may be half changed without the cached numbers: recount all of them.
        let table = self.index.session().tables.pool(self.number);
        for (at, word) in table.iter().enumerate() {
            if let Some(frame) = PoolEntry(word.load(Relaxed)).frame() {
                self.recount(at, frame, 0)?;
            }
        }
        Ok(())
    }

    /// A frame was being moved into the table (adopt it, if it got there) or out of it (release
    /// it).
    fn repair_frame(
        &self,
        slot: &Slot<'_>,
        MovingFrame { frame, generation }: MovingFrame,
    ) -> Result<(), WriteError> {
        let extent = Extent {
            start: frame,
            frames: 1,
        };
        let Some(info) = self.index.log().arena.extent_of(frame) else {
            return Ok(());
        };
        // With another generation the frame belongs to a thread that has claimed it since and may
        // be linking or releasing it right now. With this generation it belongs to this shard, and
        // changes its state only under this shard's lock until the dead thread's slot is freed. The
        // thread that frees the slot takes this lock first.
        if (info.extent, info.tag, info.generation) != (extent, TAG_INDEX, generation) {
            return Ok(());
        }
        let linked = self.index.pool_frames(self.number).any(|f| f == frame);
        // A frame is linked before it is adopted. So one that is adopted but not linked was being
        // moved out. One that is neither was being moved in, and is taken back with everything that
        // the dead thread had claimed.
        match info.state {
            ExtentState::Claimed(_) if linked => self.index.log().adopt(extent)?,
            ExtentState::Held if !linked => self.index.log().release(slot, extent)?,
            _ => {}
        }
        Ok(())
    }

    /// The slot that holds the lock.
    pub fn slot(&self) -> SlotId {
        self.slot
    }
}

/// The first run of `units` zero bits among the words of a bitmap.
fn find_run(word: impl Fn(usize) -> u64, units: u64) -> Option<u64> {
    let mut start = 0;
    let mut at = 0;
    while at < UNITS {
        let bits = word((at / 64) as usize) >> (at % 64);
        let left = 64 - at % 64;
        if bits == 0 {
            at += left;
        } else {
            let zeros = u64::from(bits.trailing_zeros());
            if at + zeros - start >= units {
                return Some(start);
            }
            let ones = u64::from((bits >> zeros).trailing_ones());
            at += zeros + ones;
            start = at;
            continue;
        }
        if at - start >= units {
            return Some(start);
        }
    }
    None
}

/// Calls `change(word, mask)` for each bitmap word that `units` units from `first` on touch.
fn for_range(first: u64, units: u64, mut change: impl FnMut(usize, u64)) {
    let (mut at, end) = (first, first + units);
    while at < end {
        let n = (64 - at % 64).min(end - at);
        let mask = if n == 64 {
            u64::MAX
        } else {
            ((1 << n) - 1) << (at % 64)
        };
        change((at / 64) as usize, mask);
        at += n;
    }
}

#[cfg(feature = "fault")]
pub(crate) mod passage;
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_found_first_fit_across_words() {
        let mut map = [0u64; MAP_WORDS];
        let take =
            |map: &mut [u64; MAP_WORDS], first, units| for_range(first, units, |w, m| map[w] |= m);
        assert_eq!(find_run(|i| map[i], 1), Some(0));
        take(&mut map, 0, 60);
        assert_eq!(find_run(|i| map[i], 3), Some(60));
        assert_eq!(find_run(|i| map[i], 24), Some(60));
        take(&mut map, 70, 1000);
        assert_eq!(find_run(|i| map[i], 10), Some(60));
        assert_eq!(find_run(|i| map[i], 11), Some(1070));
        take(&mut map, 1070, UNITS - 1070 - 5);
        assert_eq!(find_run(|i| map[i], 5), Some(60));
        take(&mut map, 60, 10);
        assert_eq!(find_run(|i| map[i], 5), Some(UNITS - 5));
        assert_eq!(find_run(|i| map[i], 6), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "plain arithmetic that takes a minute")]
    fn ranges_set_exactly_their_bits() {
        for (first, units) in [(0, 1), (63, 2), (5, 59), (5, 60), (64, 64), (1, 300)] {
            let mut map = [0u64; MAP_WORDS];
            for_range(first, units, |w, m| map[w] |= m);
            for bit in 0..UNITS {
                let set = map[(bit / 64) as usize] >> (bit % 64) & 1 == 1;
                assert_eq!(set, (first..first + units).contains(&bit));
            }
        }
    }
}
