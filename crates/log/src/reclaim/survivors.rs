//! Moving a victim's live records, a chunk at a time, with the cache misses of a chunk in flight
//! together.
//!
//! **A record that the index names is never lost**: its copy is whole, and below the `used` mark of
//! the survivors' segment, before the index names it. The old bytes stay. A thread that dies leaves
//! copies that the index does not name, or an index that names some copies and some originals.
//!
//! The steps of a chunk, each a fault point: the headers are stepped through and the keys hashed,
//! while the processor fetches the words that lead to the buckets of the last few, and the buckets
//! of those before; then the buckets are searched for exactly these places. Live records are
//! copied, neighbours together, after the `used` mark of the survivors' head, where no walk looks.
//! One store moves the mark past all of them. Then bucket after bucket is locked, compared again
//! and changed. The bytes that died in the victim are counted once for the whole chunk.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use mneme_arena::{Class, FRAME_BYTES, Frame};
use mneme_sync::{Slot, Word};

use crate::error::{Corrupt, WriteError};
use crate::index::bucket::Entry;
use crate::index::lookup::Lookup;
use crate::index::root::Root;
use crate::index::shape::{Place, SegmentRef};
use crate::log::segment::{SegmentKind, State, frame_byte};
use crate::reclaim::Reclaim;
use crate::reclaim::compact::CompactionTarget;
use crate::reclaim::evict::Cull;
use crate::records::publish::{Expect, KeyChange};
use crate::region::layout::SegmentInfoOf;
use crate::region::mem::Loc;
use crate::region::record::Record;

/// Records moved under one pin. Enough to keep every miss buffer of a core busy.
const CHUNK: usize = 32;
/// How many records ahead headers and keys are prefetched, assuming the length of the present one.
const AHEAD: u64 = 16;
/// How many records after being stepped over their buckets are prefetched: by then the words that
/// lead to them have arrived.
const BEHIND: usize = 8;

/// The number of gaps that are looked for while one victim's records are moved.
const GAPS: u32 = 64;

/// How many times a compactor spins while a thread is patching a record to be moved.
const SPINS: u32 = 1000;

/// A record of a victim that was live when it was looked up.
struct Survivor<'m> {
    loc: Loc,
    record: Record<'m>,
    root: Root,
    place: Place,
    segment: Option<SegmentRef>,
}

impl Survivor<'_> {
    fn size(&self) -> u64 {
        self.record.header().size()
    }

    /// Seals the record before it is copied: a value that no thread can change need not be copied
    /// again under its bucket's lock. Returns false if a thread is patching it, for longer than a
    /// patch takes.
    fn seal(&self) -> bool {
        (0..SPINS).any(|_| {
            let sealed = self.record.seals(false);
            if !sealed {
                std::hint::spin_loop();
            }
            sealed
        })
    }
}

/// How a walk over a victim's records ended.
pub(crate) enum Walk {
    /// All its live records were moved.
    Empty,
    /// There is no free space for the survivors, the first of which has this number of bytes.
    NoSpace(u64),
    /// Some live records stay where they are.
    Stays,
    /// The caller's time ran out; the walk can be continued.
    Paused,
}

impl<W: Word> SegmentInfoOf<W> {
    /// Notes that everything between the `used` mark and `used` has the age of `born`. The
    /// segment's age is the mean over its bytes.
    fn note_birth(&self, born: u64, used: u64) {
        let (mean, before) = (self.age.load(Relaxed), self.used());
        let added = used.saturating_sub(before);
        let sum = u128::from(mean) * u128::from(before) + u128::from(born) * u128::from(added);
        let mean = sum / u128::from(used.max(1));
        // Relaxed: for the choice of victims; only the head's holder stores it.
        self.age.store((mean as u64).max(1), Relaxed);
    }
}

impl Reclaim {
    /// Moves the live records in the bytes `within` of the claimed victim at `frame` to a head that
    /// the caller holds, except those that `evict` evicts.
    pub(crate) fn move_records(
        &self,
        slot: &Slot<'_>,
        to: &CompactionTarget<'_>,
        frame: Frame,
        mut within: Range<u64>,
        evict: Option<&mut Cull>,
    ) -> Result<Walk, WriteError> {
        self.move_records_from(slot, to, frame, &mut within, evict, &|| true)
    }

    /// As [`move_records`](Self::move_records), for as long as `goes_on`, which is called before
    /// each chunk. The beginning of `within` moves past the moved records.
    pub(crate) fn move_records_from(
        &self,
        slot: &Slot<'_>,
        to: &CompactionTarget<'_>,
        frame: Frame,
        within: &mut Range<u64>,
        mut evict: Option<&mut Cull>,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Walk, WriteError> {
        let info = self.session().tables.info(frame);
        // Bulk records that are not evicted stay: their neighbours' space is reused.
        let stay = evict.is_some() && info.state().bulk();
        let born = info.born();
        let end = info.written_at(frame)?.min(within.end);
        let (mut stays, mut gaps) = (false, 0);
        while within.start < end {
            if !goes_on() {
                return Ok(Walk::Paused);
            }
            let from = within.start;
            // One pin a chunk, so that a long walk delays no grace period.
            let pin = slot.pin();
            let mut chunk = self.survivors(slot, frame, &mut within.start, end)?;
            if let Some(cull) = &mut evict {
                self.let_go(slot, &mut chunk, cull)?;
                if stay {
                    stays |= !chunk.is_empty();
                    if cull.bytes >= cull.enough {
                        return Ok(Walk::Stays);
                    }
                    continue;
                }
            }
            let mut left = 0;
            let walk = self.move_chunk(slot, to, &chunk, born, &mut left);
            if left > 0 {
                info.dead.fetch_add(left, Relaxed);
                self.session()
                    .tables
                    .header()
                    .moved
                    .fetch_add(left, Relaxed);
                mneme_sys::fault!("compact.counted");
            }
            if let Walk::NoSpace(bytes) = walk? {
                drop(pin);
                gaps += 1;
                if gaps > GAPS || !self.make_way_for_copy(slot, bytes)? {
                    return Ok(Walk::NoSpace(bytes));
                }
                // The index leads to the copies of the moved records.
                within.start = from;
            }
        }
        if stays {
            info.rejuvenate(self.session().clock.now_ns());
            return Ok(Walk::Stays);
        }
        Ok(Walk::Empty)
    }

    /// Counts again what is stale in the claimed victim at `frame`, which is suspect, and closes it
    /// again.
    pub(crate) fn count_again(&self, slot: &Slot<'_>, frame: Frame) -> Result<(), WriteError> {
        let info = self.session().tables.info(frame);
        let counted = self.visit_live(slot, frame, |_| ());
        if matches!(counted, Err(WriteError::Corrupt(_))) {
            info.trust();
        }
        info.step(|state| (state == State::Compacting).then_some(State::Closed));
        counted
    }

    /// Calls `live` with the place of each live record in the claimed victim at `frame`, in order.
    /// If the victim is suspect, its stale bytes are counted again.
    pub(crate) fn visit_live(
        &self,
        slot: &Slot<'_>,
        frame: Frame,
        mut live: impl FnMut(Range<u64>),
    ) -> Result<(), WriteError> {
        let info = self.session().tables.info(frame);
        let (known, end) = (info.dead(), info.written_at(frame)?);
        let (mut at, mut sum) = (0, 0);
        while at < end {
            let _pin = slot.pin();
            for survivor in self.survivors(slot, frame, &mut at, end)? {
                let start = survivor.loc.byte() - frame_byte(frame);
                live(start..start + survivor.size());
                sum += survivor.size();
            }
        }
        if info.is_suspect() {
            // Records that die meanwhile are counted by their writer, too.
            info.dead
                .fetch_add((end - sum).saturating_sub(known), Relaxed);
            info.trust();
        }
        Ok(())
    }

    /// Moves `chunk`. `left` counts the bytes of records that the index no longer names here.
    fn move_chunk(
        &self,
        slot: &Slot<'_>,
        to: &CompactionTarget<'_>,
        chunk: &[Survivor<'_>],
        born: u64,
        left: &mut u64,
    ) -> Result<Walk, WriteError> {
        let mut rest = chunk;
        while let Some(next) = rest.first() {
            if self.log().is_large(next.size()) {
                if !self.move_large(slot, to, next, left)? {
                    return Ok(Walk::NoSpace(next.size()));
                }
                rest = &rest[1..];
                continue;
            }
            if self.log().is_bulk(next.size()) {
                if !self.move_bulk(slot, next, left)? {
                    return Ok(Walk::NoSpace(next.size()));
                }
                rest = &rest[1..];
                continue;
            }
            let mut copies = [Loc::of_byte(0); CHUNK];
            let n = self.append_copies(slot, to, rest, born, &mut copies)?;
            if n == 0 {
                return Ok(Walk::NoSpace(next.size()));
            }
            mneme_sys::fault!("compact.copied");
            let target = (self.session().tables).info(self.log().segment_of(copies[0])?);
            for (survivor, copy) in rest.iter().zip(&copies[..n]) {
                if self.lead_to(slot, survivor, *copy)? {
                    target.dead.fetch_sub(survivor.size(), Relaxed);
                    *left += survivor.size();
                }
                mneme_sys::fault!("compact.swapped");
            }
            rest = &rest[n..];
        }
        Ok(Walk::Empty)
    }

    /// Makes the index name `copy`, which is whole. Returns false if another thread changed the key
    /// first, which makes the copy dead.
    fn lead_to(
        &self,
        slot: &Slot<'_>,
        survivor: &Survivor<'_>,
        copy: Loc,
    ) -> Result<bool, WriteError> {
        let Survivor {
            root,
            place,
            segment,
            loc,
            ..
        } = *survivor;
        self.records()
            .relocate(slot, root, place, segment, loc, copy)
    }

    /// Moves a bulk record to where a writer would append it: the reserve is for short records, and
    /// large enough only for them. Returns false if there is no free space.
    fn move_bulk(
        &self,
        slot: &Slot<'_>,
        survivor: &Survivor<'_>,
        left: &mut u64,
    ) -> Result<bool, WriteError> {
        let (header, bytes) = (survivor.record.header(), survivor.size());
        let Some(copy) = self.log().reserve_bulk(slot, header, Class::Ordinary)? else {
            return Ok(false);
        };
        // Dead until the index leads to it, like all copies.
        let target = self.session().tables.info(self.log().segment_of(copy)?);
        target.dead.fetch_add(bytes, Relaxed);
        let sealed = survivor.seal();
        self.copy_run(survivor.loc, copy, bytes)?;
        if !sealed {
            self.session().mem.record(copy)?.unseal();
        }
        mneme_sys::fault!("compact.bulk.copied");
        if self.lead_to(slot, survivor, copy)? {
            target.revive(bytes);
            *left += bytes;
        }
        mneme_sys::fault!("compact.bulk.swapped");
        Ok(true)
    }

    /// Moves a large record to an extent of its own, whose rest is used for small records. Returns
    /// false if there is no such extent.
    fn move_large(
        &self,
        slot: &Slot<'_>,
        to: &CompactionTarget<'_>,
        survivor: &Survivor<'_>,
        left: &mut u64,
    ) -> Result<bool, WriteError> {
        let bytes = survivor.size();
        let frames = bytes.div_ceil(FRAME_BYTES) as u32;
        let Some(extent) = (self.log()).open_extent(slot, frames, to.claim, SegmentKind::Large)?
        else {
            return Ok(false);
        };
        let copy = Loc::of_byte(frame_byte(extent.start));
        let sealed = survivor.seal();
        self.copy_run(survivor.loc, copy, bytes)?;
        if !sealed {
            self.session().mem.record(copy)?.unseal();
        }
        mneme_sys::fault!("compact.large.copied");
        self.log().close_large(slot, extent.start, bytes)?;
        mneme_sys::fault!("compact.large.closed");
        match self.lead_to(slot, survivor, copy) {
            Ok(true) => *left += bytes,
            Ok(false) => self.log().mark_dead(copy, bytes)?,
            Err(error) => {
                self.log().suspect_lost();
                return Err(error);
            }
        }
        mneme_sys::fault!("compact.large.swapped");
        Ok(true)
    }

    /// Keeps the records of `chunk` that the policy spares, and removes the others. Once it has
    /// removed enough, it keeps those that lead to collections, which may be much larger than this
    /// chunk.
    fn let_go(
        &self,
        slot: &Slot<'_>,
        chunk: &mut Vec<Survivor<'_>>,
        cull: &mut Cull,
    ) -> Result<(), WriteError> {
        let mut error = None;
        chunk.retain(|s| {
            let is_more = cull.bytes >= cull.enough && s.record.header().kind().is_large();
            let stays = is_more || self.spares(&s.record, cull.policy);
            if !stays && error.is_none() {
                match self.forget(slot, s.root, s.place, Expect::At(s.loc), &s.record) {
                    Ok(bytes) => cull.bytes += bytes,
                    Err(e) => error = Some(e),
                }
                mneme_sys::fault!("evict.forgotten");
            }
            stays
        });
        error.map_or(Ok(()), Err)
    }

    /// The live ones among the next records from offset `at` on. Moves `at` past them.
    fn survivors(
        &self,
        slot: &Slot<'_>,
        frame: Frame,
        at: &mut u64,
        end: u64,
    ) -> Result<Vec<Survivor<'_>>, WriteError> {
        let mut chunk: Vec<Survivor<'_>> = Vec::with_capacity(CHUNK);
        let mut last: Option<Root> = None;
        for _ in 0..CHUNK {
            if *at >= end {
                break;
            }
            let loc = Loc::of_byte(frame_byte(frame) + *at);
            let record = self.session().mem.record(loc)?;
            let (header, size) = (record.header(), record.header().size());
            let later = Loc::of_byte(loc.byte() + size.min(1 << 20) * AHEAD);
            self.session().mem.prefetch_lines(later, 0..2);
            *at += size;
            if *at > end {
                return Err(
                    Corrupt::at(loc.byte(), "a record that goes beyond its log segment").into(),
                );
            }
            // Neighbours of the same space need only one lookup of the root: under one pin the root
            // stays readable.
            let root = match last {
                Some(root) if root.space() == header.space() => Some(root),
                _ => self.index().root(header.space())?,
            };
            // A space that was cleared since then has no entries for its old records.
            if let Some(root) = root {
                last = Some(root);
                let place = self.index().place(record.key());
                self.session().mem.prefetch(root.partition(place.partition));
                chunk.push(Survivor {
                    loc,
                    record,
                    root,
                    place,
                    segment: None,
                });
                if let Some(i) = (chunk.len() - 1).checked_sub(BEHIND) {
                    self.prefetch_home(&mut chunk[i])?;
                }
            }
        }
        let fetched = chunk.len().saturating_sub(BEHIND);
        for survivor in &mut chunk[fetched..] {
            self.prefetch_home(survivor)?;
        }
        mneme_sys::fault!("compact.walked");
        let mut error = None;
        chunk.retain(|s| {
            let live = s.segment.map_or(Ok(None), |segment| {
                self.session()
                    .mem
                    .find_entry(segment, Entry::new(s.place.tag, s.loc))
            });
            live.map(|found| found.is_some()).unwrap_or_else(|e| {
                error = Some(e);
                false
            })
        });
        if let Some(e) = error {
            return Err(e.into());
        }
        mneme_sys::fault!("compact.looked");
        for i in (0..chunk.len()).rev() {
            if self.records().is_expired(&chunk[i].record) {
                mneme_sys::fault!("compact.expired");
                let expired = &chunk[i];
                let change = KeyChange::removal(expired.root, expired.place, expired.record.key());
                // If it was not removed, its expiry may have been changed in place: it is moved.
                if self.remove_expired(slot, change, expired.loc)? {
                    chunk.remove(i);
                }
            }
        }
        Ok(chunk)
    }

    /// Prefetches the bucket that names a record, if there is one.
    #[inline(always)]
    fn prefetch_home(&self, survivor: &mut Survivor<'_>) -> Result<(), Corrupt> {
        let home = (self.index()).prefetch_bucket(survivor.root, survivor.place)?;
        survivor.segment = home.map(|(segment, _)| segment);
        Ok(())
    }

    /// Appends copies of as many of `survivors`, in order, as the head's present log segment holds,
    /// but at least of one; `copies` receives their places. `Ok(0)`: there is no free space. The
    /// copies count as dead until the index names them. If it never does, because another change
    /// comes first or the caller dies, that count is right.
    fn append_copies(
        &self,
        slot: &Slot<'_>,
        lane: &CompactionTarget<'_>,
        survivors: &[Survivor<'_>],
        born: u64,
        copies: &mut [Loc; CHUNK],
    ) -> Result<usize, WriteError> {
        let Some((frame, info)) =
            self.log()
                .segment_for(slot, lane.head, survivors[0].size(), || lane.claim)?
        else {
            return Ok(0);
        };
        let (mut used, capacity) = (info.written_at(frame)?, info.capacity());
        let (mut n, mut unsealed) = (0, Vec::new());
        for (survivor, copy) in survivors.iter().zip(&mut *copies) {
            if used + survivor.size() > capacity || self.log().is_bulk(survivor.size()) {
                break;
            }
            *copy = Loc::of_byte(frame_byte(frame) + used);
            if !survivor.seal() {
                unsealed.push(*copy);
            }
            used += survivor.size();
            n += 1;
        }
        let mut done = 0;
        while done < n {
            let from = survivors[done].loc;
            let mut bytes = 0;
            let to = copies[done];
            while done < n && survivors[done].loc.byte() == from.byte() + bytes {
                bytes += survivors[done].size();
                done += 1;
            }
            self.copy_run(from, to, bytes)?;
        }
        for copy in unsealed {
            self.session().mem.record(copy)?.unseal();
        }
        mneme_sys::fault!("compact.written");
        info.dead
            .fetch_add(survivors[..n].iter().map(Survivor::size).sum(), Relaxed);
        info.note_birth(born, used);
        info.set_used(used);
        Ok(n)
    }

    /// Copies `bytes` bytes of records, headers included, to a place where only this thread looks.
    /// If others change them meanwhile (an expiry), `relocate` copies the change again.
    fn copy_run(&self, from: Loc, to: Loc, bytes: u64) -> Result<(), Corrupt> {
        let source = self.session().mem.address(from, bytes)?;
        let target = self.session().mem.address(to, bytes)?;
        if from.byte().abs_diff(to.byte()) < bytes {
            return Err(Corrupt::at(
                to.byte(),
                "a log segment that overlaps another",
            ));
        }
        // SAFETY: both ranges are mapped, do not overlap, and consist of whole records, which are
        // whole words. The target lies behind the `used` mark of a segment whose head this thread
        // holds, or was reserved by it, so that only readers that have lost their pins read it, by
        // racing copies. What others change in the source meanwhile are words of records, by atomic
        // stores.
        unsafe { mneme_sys::racy::transfer(source.cast(), target.cast(), bytes as usize / 8) };
        Ok(())
    }
}
