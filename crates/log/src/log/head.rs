//! Heads: where records are appended. There is one for each CPU: "write local, read global" (Nibble
//! §3.2).
//!
//! Under the head's one-word lock a writer writes the headers of its records and moves `used` past
//! them; the bodies are copied after the lock is released. So a log segment can always be walked
//! from header to header. A holder that dies has either moved `used` or left bytes that the next
//! writer overwrites. A writer never waits for a busy head while another head is free.

use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use mneme_arena::{Class, Extent, FRAME_BYTES, Frame};
use mneme_sync::{Acquired, Guard, Slot, Word};
use mneme_sys::NodeId;

use crate::error::{Corrupt, WriteError};
use crate::log::Log;
use crate::log::segment::{SegmentKind, State, StateWord, frame_byte};
use crate::region::layout::{GapOf, Head, LogSegmentInfo, SegmentInfoOf};
use crate::region::mem::{Loc, Memory};
use crate::region::record::Header;

/// A store that uses this many times the length of an ordinary log segment has segments of that
/// length.
const MANY: u64 = 64;
/// A log segment has space for this many records like its first one.
const SEVERAL: u64 = 16;

/// Records above this share of an ordinary log segment are *bulk* records, which have heads and log
/// segments of their own, so that the unused end of a segment is a small part of it.
const BULK_SHARE: u64 = 32;
/// An unused end of a log segment counts as a gain only above this share of an ordinary one.
pub(crate) const END_SHARE: u64 = 4;
/// A segment of bulk records gets so many frames that records like its first one leave at most this
/// share of it unused, if its maximum length allows that.
const WASTE_SHARE: u64 = 16;

/// A shorter rest of a large record's extent is left unused: it would be one more log segment to
/// manage, for a few records.
const MIN_TAIL: u64 = 64 << 10;

/// The log segment of a head counts as very stale above this share of its live bytes, and this
/// number of bytes.
const STALE_SHARE: u64 = 8;
const STALE_BYTES: u64 = 64 << 10;

impl<W: Word> SegmentInfoOf<W> {
    /// Reserves space in the log segment at `frame` for as many of `headers`, in order, as fit, and
    /// writes them there; `locs` receives their locations. `written` is called before the space is
    /// taken.
    ///
    /// The caller holds the head that appends to the segment.
    #[inline]
    pub(crate) fn append<M: Memory<Word = W>>(
        &self,
        mem: &M,
        frame: Frame,
        headers: &[Header],
        locs: &mut [Loc],
        written: impl FnOnce(),
    ) -> Result<usize, Corrupt> {
        let (mut used, capacity) = (self.written_at(frame)?, self.capacity());
        let mut done = 0;
        for (header, loc) in headers.iter().zip(locs) {
            if used + header.size() > capacity {
                break;
            }
            *loc = Loc::of_byte(frame_byte(frame) + used);
            mem.word(*loc)?.store(header.0, Relaxed);
            used += header.size();
            done += 1;
        }
        written();
        self.set_used(used);
        Ok(done)
    }

    /// As [`append`](Self::append), for one record, which occupies `size` bytes. `None`: it does
    /// not fit, or the lengths are damaged; nothing was done.
    #[inline(always)]
    fn append_one<M: Memory<Word = W>>(
        &self,
        mem: &M,
        frame: Frame,
        header: Header,
        size: u64,
    ) -> Option<Loc> {
        let (used, capacity) = self.written_of()?;
        let behind = used + size;
        if behind > capacity {
            return None;
        }
        let loc = Loc::of_byte(frame_byte(frame) + used);
        mem.word(loc).ok()?.store(header.0, Relaxed);
        mneme_sys::fault!("log.reserve.header");
        self.set_used(behind);
        Some(loc)
    }
}

impl<W: Word> GapOf<W> {
    /// Where the gap begins and ends. `None`: there is none.
    fn range(&self) -> Option<Range<u64>> {
        // Relaxed, here and below: changed and read under the head's lock alone.
        let (at, end) = (self.at.load(Relaxed), self.end.load(Relaxed));
        (end != 0).then_some(at..end)
    }

    fn clear(&self) {
        self.end.store(0, Relaxed);
    }

    /// Makes the gap the bytes of `range`, in the log segment that the head names.
    fn set(&self, range: Range<u64>) {
        self.at.store(range.start, Relaxed);
        self.end.store(range.end, Relaxed);
    }

    /// Reserves space in the gap for the record of `header`, and writes the header there. Before
    /// that it writes a filler's header after the record's end, for the rest. So the segment can be
    /// walked at any time. `None`: it does not fit.
    ///
    /// The caller holds the head. `within` is the written part of its log segment.
    pub(crate) fn append<M: Memory<Word = W>>(
        &self,
        mem: &M,
        within: Range<u64>,
        header: Header,
    ) -> Result<Option<Loc>, Corrupt> {
        let Some(Range { mut start, end }) = self.range() else {
            return Ok(None);
        };
        if start < within.start || end > within.end || start >= end || (start | end) % 8 != 0 {
            return Err(misplaced(start));
        }
        // A holder that died may have written a header without moving on. Its record is dead.
        loop {
            let there = mem.header(Loc::of_byte(start))?.size();
            if start + there >= end {
                if start + there > end {
                    return Err(misplaced(start));
                }
                break;
            }
            start += there;
        }
        let behind = start + header.size();
        if behind > end {
            self.set(start..end);
            return Ok(None);
        }
        if behind < end {
            let filler = Header::filler(end - behind);
            mem.word(Loc::of_byte(behind))?.store(filler.0, Relaxed);
        }
        let loc = Loc::of_byte(start);
        // SYNC: pairs with the Acquire loads of those that walk: the filler behind is written.
        mem.word(loc)?.store(header.0, Release);
        mneme_sys::fault!("log.gap.header");
        match behind == end {
            true => self.clear(),
            false => self.at.store(behind, Relaxed),
        }
        Ok(Some(loc))
    }
}

#[cold]
fn misplaced(at: u64) -> Corrupt {
    Corrupt::at(at, "a head's gap that is none of its log segment")
}

/// The lock of a head, or of all heads of a worker. If a thread unwinds while it holds it, the next
/// owner makes a repair: a head may name a log segment whose state does not say so yet.
pub(crate) struct HeldHeads<'h>(Guard<'h>);

impl Drop for HeldHeads<'_> {
    #[inline]
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.needs_repair();
        }
    }
}

/// The purpose for which frames are claimed, and where they should lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub class: Class,
    pub node: NodeId,
}

impl Log {
    /// The claim of the calling thread for records of its own: "write local".
    fn ordinary_claim(&self) -> Claim {
        Claim {
            class: Class::Ordinary,
            node: self.session().topology.current_node(),
        }
    }

    /// Whether a record of `bytes` bytes is too long for an ordinary log segment.
    #[inline]
    pub(crate) fn is_bulk(&self, bytes: u64) -> bool {
        bytes > self.segment_bytes() / BULK_SHARE
    }

    /// Whether a record of `bytes` bytes gets an extent of its own.
    #[inline]
    pub(crate) fn is_large(&self, bytes: u64) -> bool {
        bytes > self.session().tables.geometry.bulk_frames * FRAME_BYTES / 2
    }

    /// Bytes of an ordinary log segment.
    #[inline]
    pub(crate) fn segment_bytes(&self) -> u64 {
        self.session().tables.geometry.segment_frames * FRAME_BYTES
    }

    /// Reserves space for one record of `size` bytes and writes its header, if the head of this CPU
    /// is free and the record fits its log segment. `None` does not mean that the store is full:
    /// call [`Log::reserve`], which tries other heads and opens log segments.
    #[inline(always)]
    pub(crate) fn try_reserve_one(
        &self,
        slot: &Slot<'_>,
        header: Header,
        size: u64,
    ) -> Option<Loc> {
        let head = self.session().tables.head(self.number_of_head());
        // Relaxed: loaded again under the lock.
        if self.is_bulk(size) || head.segment.load(Relaxed) == 0 {
            return None;
        }
        let held = head.lock.try_lock_clean(slot)?;
        mneme_sys::fault!("log.head.locked");
        let (frame, info) = self.head_segment(head).ok()??;
        let loc = info.append_one(&self.session().mem, frame, header, size)?;
        mneme_sys::fault!("log.reserve.bump");
        held.unlock();
        Some(loc)
    }

    /// Reserves space for as many of `headers`, in order, as the present log segment holds, but at
    /// least for one, and writes them; `locs` receives their locations. `Ok(0)`: the store has no
    /// free space now.
    ///
    /// The caller is pinned, and stays so until the records are published or abandoned.
    pub(crate) fn reserve(
        &self,
        slot: &Slot<'_>,
        headers: &[Header],
        locs: &mut [Loc],
    ) -> Result<usize, WriteError> {
        let heads = self.session().tables.geometry.heads;
        let first = self.number_of_head();
        for round in 0..64 {
            for i in 0..heads {
                let index = first + i;
                let index = if index < heads { index } else { index - heads };
                let head = self.session().tables.head(index);
                if let Some(held) = head.lock.try_lock_free(slot) {
                    return self.append(slot, head, held, headers, locs);
                }
            }
            if round > 4 {
                std::thread::yield_now();
            }
        }
        // All heads stayed busy. From now on the loop checks whether the owner is alive.
        let head = self.session().tables.head(first);
        let held = head.lock.lock(slot)?;
        self.append(slot, head, held, headers, locs)
    }

    /// As [`Log::reserve`], in the head that the caller holds.
    fn append(
        &self,
        slot: &Slot<'_>,
        head: &Head,
        held: Acquired<Guard<'_>>,
        headers: &[Header],
        locs: &mut [Loc],
    ) -> Result<usize, WriteError> {
        mneme_sys::fault!("log.head.locked");
        let _guard = self.inherit_head(head, held);
        if let Some(loc) = self.append_in_gap(head, headers[0])? {
            locs[0] = loc;
            return Ok(1);
        }
        let claim = || self.ordinary_claim();
        let Some((frame, info)) = self.segment_for(slot, head, headers[0].size(), claim)? else {
            return Ok(0);
        };
        let done = info.append(&self.session().mem, frame, headers, locs, || {
            mneme_sys::fault!("log.reserve.header")
        })?;
        mneme_sys::fault!("log.reserve.bump");
        Ok(done)
    }

    /// Reserves space for a bulk record and writes its header. `None`: no free space. It opens a
    /// log segment in frames of `class` only.
    ///
    /// The caller is pinned, and stays so until the record is published or abandoned.
    pub(crate) fn reserve_bulk(
        &self,
        slot: &Slot<'_>,
        header: Header,
        class: Class,
    ) -> Result<Option<Loc>, WriteError> {
        let node = self.session().topology.current_node();
        let head = self.bulk_head(node);
        let held = head.lock.lock(slot)?;
        mneme_sys::fault!("log.bulk.locked");
        let _guard = self.inherit_head(head, held);
        if let Some(loc) = self.append_in_gap(head, header)? {
            return Ok(Some(loc));
        }
        let claim = || Claim { class, node };
        let Some((frame, info)) = self.segment_for(slot, head, header.size(), claim)? else {
            return Ok(None);
        };
        let mut loc = Loc::of_byte(0);
        let locs = std::slice::from_mut(&mut loc);
        info.append(&self.session().mem, frame, &[header], locs, || {
            mneme_sys::fault!("log.bulk.header")
        })?;
        mneme_sys::fault!("log.bulk.bump");
        Ok(Some(loc))
    }

    /// The head to which threads on `node` append bulk records.
    pub(crate) fn bulk_head(&self, node: NodeId) -> &Head {
        let geometry = &self.session().tables.geometry;
        let number = u64::from(node.0) % geometry.bulk_heads;
        self.session()
            .tables
            .head(geometry.heads + geometry.survivors + number)
    }

    /// Reserves space for a record in the gap of the held `head`, if the head has one and the
    /// record fits.
    fn append_in_gap(&self, head: &Head, header: Header) -> Result<Option<Loc>, Corrupt> {
        if head.gap.range().is_none() {
            return Ok(None);
        }
        let Some((frame, info)) = self.head_segment(head)? else {
            return Ok(None);
        };
        let first = frame_byte(frame);
        let within = first..first + info.written_at(frame)?;
        let loc = head.gap.append(&self.session().mem, within, header)?;
        if loc.is_some() {
            // The bytes of a gap count as dead.
            info.revive(header.size());
            // Relaxed: a statistic.
            self.session()
                .tables
                .header()
                .freed
                .fetch_add(header.size(), Relaxed);
            mneme_sys::fault!("log.gap.counted");
        }
        Ok(loc)
    }

    /// Makes `head` append to `gap`, a filler in the closed segment at `frame`, which the caller
    /// has claimed as a victim in state `claimed`. Returns false if the head is busy, or the caller
    /// no longer has the segment.
    pub(crate) fn adopt_gap(
        &self,
        slot: &Slot<'_>,
        head: &Head,
        (frame, claimed): (Frame, StateWord),
        gap: Range<u64>,
    ) -> Result<bool, WriteError> {
        let Some(held) = head.lock.try_lock_free(slot) else {
            return Ok(false);
        };
        let _guard = self.inherit_head(head, held);
        let old = self.head_segment(head)?;
        if !self.session().tables.info(frame).reopen(claimed, slot.id()) {
            return Ok(false);
        }
        mneme_sys::fault!("log.gap.reopened");
        self.link_segment(head, frame, old);
        head.gap.set(gap);
        mneme_sys::fault!("log.gap.set");
        Ok(true)
    }

    /// The log segment that the locked `head` appends to; `None`: it has none yet.
    #[inline(always)]
    fn head_segment(&self, head: &Head) -> Result<Option<(Frame, &LogSegmentInfo)>, Corrupt> {
        let word = head.segment.load(Relaxed);
        if word == 0 {
            return Ok(None);
        }
        match self.session().tables.named(word) {
            Some((frame, info))
                if info.state().state() == Some(State::Head)
                    && info.first.load(Relaxed) == word =>
            {
                Ok(Some((frame, info)))
            }
            _ => Err(no_head(self.session().loc_of(&head.segment))),
        }
    }

    /// The log segment of the held `head`, with space for a record of `bytes` bytes: the present
    /// one, or a fresh one that is claimed according to `claim`. `None`: no free space.
    #[inline]
    pub(crate) fn segment_for(
        &self,
        slot: &Slot<'_>,
        head: &Head,
        bytes: u64,
        claim: impl FnOnce() -> Claim,
    ) -> Result<Option<(Frame, &LogSegmentInfo)>, WriteError> {
        let old = self.head_segment(head)?;
        if self.has_space(head, bytes)? {
            return Ok(old);
        }
        if !self.open_segment(slot, head, old, bytes, claim())? {
            return Ok(None);
        }
        Ok(self.head_segment(head)?)
    }

    /// Whether the segment of the locked `head` has space for a record of `bytes` bytes.
    pub(crate) fn has_space(&self, head: &Head, bytes: u64) -> Result<bool, Corrupt> {
        Ok(match self.head_segment(head)? {
            Some((frame, info)) => info.written_at(frame)? + bytes <= info.capacity(),
            None => false,
        })
    }

    /// Gives the locked `head` a fresh segment, for a record of `bytes` bytes, and closes the `old`
    /// one. Returns false if there is no free space.
    fn open_segment(
        &self,
        slot: &Slot<'_>,
        head: &Head,
        old: Option<(Frame, &LogSegmentInfo)>,
        bytes: u64,
        claim: Claim,
    ) -> Result<bool, WriteError> {
        let extent = match self.is_bulk(bytes) {
            true => self.bulk_extent(slot, bytes, claim)?,
            false => self.ordinary_extent(slot, bytes, claim)?,
        };
        let Some(extent) = extent else {
            return Ok(false);
        };
        self.link_segment(head, extent.start, old);
        Ok(true)
    }

    /// Makes the opened segment at `frame` the locked head's, and closes the `old` one.
    fn link_segment(&self, head: &Head, frame: Frame, old: Option<(Frame, &LogSegmentInfo)>) {
        // Cleared first: a gap lies in the segment that the head names.
        head.gap.clear();
        // SYNC: pairs with the Acquire loads in `repair_segments` and `repair_head`.
        head.segment.store(u64::from(frame.0) + 1, Release);
        mneme_sys::fault!("log.open.linked");
        self.session()
            .tables
            .info(frame)
            .step(|state| (state == State::Opening).then_some(State::Head));
        mneme_sys::fault!("log.open.head");
        if let Some((old, _)) = old {
            self.close_segment(old);
        }
    }

    /// The length, in frames, of the next log segment, which begins with a record of `bytes` bytes.
    /// A store that uses little so far gets shorter segments: otherwise the space that heads have
    /// not written yet would be a good part of the store. The segment is long enough for any
    /// ordinary record, and for several like this one.
    fn next_length(&self, bytes: u64) -> u64 {
        let ordinary = self.session().tables.geometry.segment_frames;
        let in_use = u64::from(self.arena.stats().in_use());
        let least = ordinary.div_ceil(END_SHARE);
        let several = (bytes * SEVERAL).div_ceil(FRAME_BYTES);
        let frames = (in_use / MANY).max(least).max(several);
        frames.next_power_of_two().min(ordinary)
    }

    /// An extent for a log segment that begins with a record of `bytes` bytes. If there are free
    /// frames, but no run of its length because of large records, it is shorter, but long enough
    /// for any ordinary record.
    fn ordinary_extent(
        &self,
        slot: &Slot<'_>,
        bytes: u64,
        claim: Claim,
    ) -> Result<Option<Extent>, WriteError> {
        let ordinary = self.session().tables.geometry.segment_frames;
        let mut frames = self.next_length(bytes);
        loop {
            let extent = self.open_extent(slot, frames as u32, claim, SegmentKind::Ordinary)?;
            if extent.is_some() || frames.div_ceil(2) * END_SHARE < ordinary || frames == 1 {
                return Ok(extent);
            }
            let stats = self.arena.stats();
            let kept = match claim.class {
                Class::Ordinary => stats.reserved,
                Class::Reserved => 0,
            };
            if u64::from(stats.free) < frames + u64::from(kept) {
                return Ok(None);
            }
            frames = frames.div_ceil(2);
        }
    }

    /// An extent for a log segment of bulk records, the first of which has `bytes` bytes: as long
    /// as [`bulk_length`](Self::bulk_length) says, or as long as the longest free run.
    fn bulk_extent(
        &self,
        slot: &Slot<'_>,
        bytes: u64,
        claim: Claim,
    ) -> Result<Option<Extent>, WriteError> {
        let least = bytes.div_ceil(FRAME_BYTES);
        let stats = self.arena.stats();
        let kept = match claim.class {
            Class::Ordinary => stats.reserved,
            Class::Reserved => 0,
        };
        let free = stats.free.saturating_sub(kept).min(stats.longest_run);
        let most = self.bulk_length(bytes).min(free.into());
        for frames in [most, least] {
            if frames >= least
                && let Some(extent) =
                    self.open_extent(slot, frames as u32, claim, SegmentKind::Bulk)?
            {
                return Ok(Some(extent));
            }
        }
        Ok(None)
    }

    /// Frames of a log segment of bulk records like one of `bytes` bytes: the smallest number of
    /// which they leave little unused.
    fn bulk_length(&self, bytes: u64) -> u64 {
        let most = self.session().tables.geometry.bulk_frames;
        let least = bytes.div_ceil(FRAME_BYTES).max(most / 4);
        let left = |frames: &u64| frames * FRAME_BYTES % bytes * (1 << 20) / frames;
        let enough = |frames: &u64| left(frames) <= (FRAME_BYTES << 20) / WASTE_SHARE;
        let fewest = (least..=most).find(enough);
        let best = fewest.or_else(|| (least..=most).min_by_key(left));
        best.unwrap_or(least)
    }

    /// Completes what a dead owner of a head may have left unfinished: the state of the segment
    /// that the head names.
    pub(crate) fn inherit_head<'h>(&self, head: &Head, held: Acquired<Guard<'h>>) -> HeldHeads<'h> {
        self.inherit_heads(std::iter::once(head), held)
    }

    /// Does what [`Log::inherit_head`] does for all heads that share one lock.
    pub(crate) fn inherit_heads<'a, 'h>(
        &self,
        heads: impl Iterator<Item = &'a Head>,
        held: Acquired<Guard<'h>>,
    ) -> HeldHeads<'h> {
        let died = held.owner_died();
        let guard = held.into_inner();
        if died {
            heads.for_each(|head| self.repair_head(head));
            guard.repaired();
        }
        HeldHeads(guard)
    }

    /// The numbers of a worker's heads, for all ages. The lock of the first one covers them all.
    pub(crate) fn heads_of_worker(&self, worker: u64) -> Range<u64> {
        let ages = self.session().tables.geometry.ages();
        let first = self.session().tables.geometry.heads + worker * ages;
        first..first + ages
    }

    pub(crate) fn repair_head(&self, head: &Head) {
        if let Some((_, info)) = self.session().tables.named(head.segment.load(Acquire)) {
            info.step(|state| (state == State::Opening).then_some(State::Head));
        }
    }

    /// Reserves an extent of its own for a large record. `None`: no free space.
    pub(crate) fn reserve_large(
        &self,
        slot: &Slot<'_>,
        header: Header,
    ) -> Result<Option<Loc>, WriteError> {
        let frames = header.size().div_ceil(FRAME_BYTES) as u32;
        let claim = self.ordinary_claim();
        let Some(extent) = self.open_extent(slot, frames, claim, SegmentKind::Large)? else {
            return Ok(None);
        };
        let loc = Loc::of_byte(frame_byte(extent.start));
        self.session().mem.word(loc)?.store(header.0, Relaxed);
        mneme_sys::fault!("log.large.header");
        self.close_large(slot, extent.start, header.size())?;
        mneme_sys::fault!("log.large.closed");
        Ok(Some(loc))
    }

    /// Finishes opening a segment whose large record of `bytes` bytes is reserved. A head gets the
    /// rest of the segment, or the rest stays unused.
    pub(crate) fn close_large(
        &self,
        slot: &Slot<'_>,
        frame: Frame,
        bytes: u64,
    ) -> Result<(), WriteError> {
        let info = self.session().tables.info(frame);
        info.set_used(bytes);
        if !self.lend_tail(slot, frame, info)? {
            info.close(self.session().clock.now_ns());
            info.step(|state| (state == State::Opening).then_some(State::Closed));
        }
        Ok(())
    }

    /// The number of the head of the CPU that runs this.
    #[inline]
    fn number_of_head(&self) -> u64 {
        self.heads.of(self.session().topology.current_cpu())
    }

    pub(crate) fn head_of_cpu(&self) -> &Head {
        self.session().tables.head(self.number_of_head())
    }

    /// Free bytes in the log segment of this CPU's head. A moment later there may be fewer.
    pub(crate) fn left_at_head(&self) -> Result<u64, Corrupt> {
        let word = self.head_of_cpu().segment.load(Acquire);
        Ok(match self.session().tables.named(word) {
            Some((frame, info)) => info.capacity().saturating_sub(info.written_at(frame)?),
            None => 0,
        })
    }

    /// Makes the rest of a large record's extent the log segment of this CPU's head, if the head's
    /// present segment has much less free space.
    fn lend_tail(
        &self,
        slot: &Slot<'_>,
        frame: Frame,
        info: &LogSegmentInfo,
    ) -> Result<bool, WriteError> {
        let tail = info.capacity() - info.used();
        let head = self.head_of_cpu();
        if tail < MIN_TAIL {
            return Ok(false);
        }
        let Some(held) = head.lock.try_lock_free(slot) else {
            return Ok(false);
        };
        let _guard = self.inherit_head(head, held);
        let old = self.head_segment(head)?;
        if self.left_at_head()? >= tail / 2 {
            return Ok(false);
        }
        mneme_sys::fault!("log.large.tail");
        self.link_segment(head, frame, old);
        Ok(true)
    }

    /// Closes the segments that `which` selects, of heads that no thread holds. Returns their
    /// number. The next append to such a head opens another segment.
    pub(crate) fn leave_segments(&self, slot: &Slot<'_>, which: Leave) -> u64 {
        let geometry = &self.session().tables.geometry;
        let workers = geometry.heads..geometry.heads + geometry.survivors;
        self.head_groups()
            .filter(|heads| {
                let every = matches!(which, Leave::Every | Leave::Stale);
                every || !workers.contains(&heads.start)
            })
            .map(|heads| self.leave_segments_of(slot, heads, which))
            .sum()
    }

    /// The numbers of the heads that share one lock, which is that of the first one. Each writers'
    /// head has its own, also for bulk records; a worker's heads share one.
    pub(crate) fn head_groups(&self) -> impl Iterator<Item = Range<u64>> {
        let geometry = &self.session().tables.geometry;
        let writers = (0..geometry.heads).map(|head| head..head + 1);
        let workers = (0..geometry.workers()).map(|worker| self.heads_of_worker(worker));
        let bulk = geometry.heads + geometry.survivors..geometry.all_heads();
        let bulk = bulk.map(|head| head..head + 1);
        writers.chain(workers).chain(bulk)
    }

    /// As [`Log::leave_segments`], for heads that share the lock of the first one.
    fn leave_segments_of(&self, slot: &Slot<'_>, heads: Range<u64>, which: Leave) -> u64 {
        let heads = || heads.clone().map(|head| self.session().tables.head(head));
        let is_longer = |info: &LogSegmentInfo| info.capacity() > self.segment_bytes();
        let is_meant = |info: &LogSegmentInfo| match which {
            Leave::BehindTheGone => {
                let word = info.state();
                match word.bulk() {
                    true => info.used() > 0 && info.live() == 0,
                    false => is_longer(info) && !word.large(),
                }
            }
            Leave::BehindLarge => is_longer(info) || info.state().bulk(),
            Leave::Stale => {
                let stale = info.used().saturating_sub(info.live());
                stale >= STALE_BYTES && stale >= info.live() / STALE_SHARE
            }
            Leave::Every => true,
        };
        // The first check takes no lock, and is usually the only one.
        let named = |head: &Head| self.session().tables.named(head.segment.load(Acquire));
        if !heads().any(|head| named(head).is_some_and(|(_, info)| is_meant(info))) {
            return 0;
        }
        // Until the pin ends, no other life of these segments begins: another thread may close
        // them, but none may free them.
        let _pin = slot.pin();
        let first = heads()
            .next()
            .and_then(|head| head.lock.try_lock_free(slot));
        let Some(held) = first else {
            return 0;
        };
        let _guard = self.inherit_heads(heads(), held);
        let mut left = 0;
        for head in heads() {
            // A damaged head does not stop the loop: an append there reports the damage.
            let Ok(Some((frame, info))) = self.head_segment(head) else {
                continue;
            };
            if is_meant(info) {
                // SYNC: pairs with the Acquire loads in `is_some_heads` and `repair_head`.
                head.segment.store(0, Release);
                mneme_sys::fault!("log.large.left");
                self.close_segment(frame);
                left += 1;
            }
        }
        left
    }
}

/// Which of their segments heads give up. A segment is not compacted, evicted, or freed once it is
/// dead, as long as a head appends to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leave {
    /// Segments that are longer than others because of a large record in front that is now dead;
    /// and segments of bulk records without a live record.
    BehindTheGone,
    /// All segments that begin with a large record, and those of bulk records.
    BehindLarge,
    /// Those in which much is stale.
    Stale,
    /// All, including compaction's.
    Every,
}

/// The error for a damaged word at `loc` in which a head names the segment that it appends to.
#[cold]
pub(crate) fn no_head(loc: Loc) -> Corrupt {
    Corrupt::at(loc.byte(), "a head names no log segment of its own")
}

/// How long an operation waits for free space before it fails with `Stalled`.
pub(crate) const SPACE_TIMEOUT: Duration = Duration::from_secs(2);
