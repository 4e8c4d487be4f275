//! **A claimed extent has disk space**, even in a file whose space is allocated only on use: a lack
//! of it is an error of the claim, and never a signal in the middle of a store.
//!
//! A frame that has been claimed before has its space; its generation shows that. Space is
//! allocated only for frames that were never claimed, and for those whose space was given back (see
//! `spare`). The file system takes as long for it as for clearing the memory (0.2 ms a frame of
//! small pages on tmpfs), once for each frame. A caller that does not want to wait allocates ahead,
//! with [`Arena::back`].
//!
//! A frame for which there is no space does not count as free. So the last of the space is handed
//! out as the last free frames are. An ordinary claim leaves the reserve alone, as far as space was
//! allocated ahead for it ([`SPACE_AHEAD`]). The claim that first fails to get space determines
//! which frames lack it; these are *withheld* from the count of free frames until there is space
//! again.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::arena::Arena;
use crate::claim::Class;
use crate::descriptor::{DescriptorTable, State, Status};
use crate::error::ClaimError;
use crate::frame::{FRAME_BYTES, Frame};
use crate::zone::Zone;
use mneme_sys::{Clock, Region, RegionError, SystemClock};

/// The maximum number of frames of the reserve that get their space before they are claimed: the
/// frames with which compaction begins. A caller that allocates space ahead of claims does so for
/// as many frames after theirs.
pub const SPACE_AHEAD: u32 = 4;

/// How long claims wait before they ask again for space that was refused: a refusal takes a
/// millisecond.
const AGAIN_NS: u64 = 100_000_000;

/// What this opening knows about the frames' space; empty if all frames have it anyway.
#[derive(Debug, Default)]
pub(crate) struct Backed {
    /// The frames that have space, one bit each.
    frames: Vec<AtomicU64>,
    /// The number of free frames by node for which space was refused.
    withheld: Vec<AtomicU32>,
    /// The number of the first such frame plus one, by node; 0 if none is withheld.
    first: Vec<AtomicU32>,
    /// When a claim last asked for space, in nanoseconds.
    asked_ns: AtomicU64,
}

impl Backed {
    /// For a region with `frames` claimable frames, on that many nodes.
    pub(crate) fn new(region: &Region, frames: u32, nodes: u16) -> Backed {
        if !region.is_lazy() {
            return Backed::default();
        }
        let zeros = || (0..nodes).map(|_| AtomicU32::new(0)).collect();
        Backed {
            frames: (0..frames.div_ceil(64))
                .map(|_| AtomicU64::new(0))
                .collect(),
            withheld: zeros(),
            first: zeros(),
            asked_ns: AtomicU64::new(0),
        }
    }

    /// The number of a node's free frames that are withheld.
    // Relaxed here and below: these describe the file, not this process's memory, and may change at
    // any moment.
    pub(crate) fn withheld(&self, node: u16) -> u32 {
        self.withheld
            .get(usize::from(node))
            .map_or(0, |frames| frames.load(Relaxed))
    }

    /// The part of a zone's frames before the first withheld one. Later frames may have space, and
    /// are the last ones that anybody took.
    pub(crate) fn below_withheld(&self, zone: &Zone) -> Range<u32> {
        let first = self.first.get(usize::from(zone.node));
        let first = first.map_or(0, |first| first.load(Relaxed)).checked_sub(1);
        match first.filter(|first| zone.range().contains(first)) {
            Some(first) => zone.start..first,
            None => zone.range(),
        }
    }

    fn has(&self, frame: u32) -> bool {
        let word = self.frames.get(frame as usize / 64);
        word.is_none_or(|word| word.load(Relaxed) & 1 << (frame % 64) != 0)
    }
}

impl Arena {
    /// Allocates the space of a frame, claimed or not, in a file whose space is allocated on use;
    /// does nothing for other regions. Claims do this for the frames that they hand out; this call
    /// is for callers that want it done ahead.
    ///
    /// # Errors
    /// [`RegionError::NoSpace`] if there is none; [`RegionError::OutOfBounds`] beyond the region's
    /// end.
    pub fn back(&self, frame: Frame) -> Result<(), RegionError> {
        let table = self.table()?;
        let descriptor = table.get(frame.0);
        let bare = descriptor.and_then(|descriptor| {
            let status = descriptor.status().filter(|status| status.is_bare())?;
            Some((descriptor, status))
        });
        if bare.is_none() && self.backed.has(frame.0) {
            return Ok(());
        }
        let start = frame.offset() as usize;
        self.region.reserve(start..start + FRAME_BYTES as usize)?;
        match bare {
            Some((descriptor, seen)) => descriptor.regain(seen),
            // For a frame that has been claimed before this means nothing: see `lacks_space`.
            None => {
                let word = &self.backed.frames[frame.0 as usize / 64];
                word.fetch_or(1 << (frame.0 % 64), Relaxed);
            }
        }
        // There is space again: the next claim determines how much.
        for number in self.backed.first.iter().chain(&self.backed.withheld) {
            number.store(0, Relaxed);
        }
        Ok(())
    }

    /// The number of free frames that are withheld because the file system has no space for them.
    pub fn withheld(&self) -> u32 {
        let by_node = self.backed.withheld.iter();
        by_node.map(|frames| frames.load(Relaxed)).sum()
    }

    /// Asks for the space of one withheld frame, if there is any; if that succeeds, no frame is
    /// withheld any more.
    ///
    /// # Errors
    /// As for [`Arena::back`].
    pub fn seek_space(&self) -> Result<(), RegionError> {
        let mut first = self.backed.first.iter().map(|first| first.load(Relaxed));
        match first.find(|first| *first != 0) {
            Some(first) => self.back(Frame(first - 1)),
            None => Ok(()),
        }
    }

    /// Determines again which frames are withheld, because a claim was refused for that reason, and
    /// asks for space, unless somebody has just done so.
    pub(crate) fn withhold_less(
        &self,
        table: &DescriptorTable<'_, AtomicU64>,
    ) -> Result<(), ClaimError> {
        let (now, asked) = (SystemClock.now_ns(), &self.backed.asked_ns);
        if now.saturating_sub(asked.load(Relaxed)) >= AGAIN_NS {
            asked.store(now, Relaxed);
            if self.seek_space().is_ok() {
                return Ok(());
            }
        }
        // Others may have taken some of the space.
        self.withhold(table)
    }

    /// The number of frames that ordinary claims leave alone: if there is little space, at most an
    /// eighth of it.
    pub(crate) fn reserve_now(&self) -> Result<u32, RegionError> {
        // Relaxed: nothing else depends on the number.
        let reserve = self.header()?.reserve_frames.load(Relaxed);
        Ok(match self.withheld() {
            0 => reserve,
            withheld => {
                let frames = self.end_frame() - self.geometry.first_frame;
                reserve.min((frames.saturating_sub(withheld) / 8).max(1))
            }
        })
    }

    /// Allocates the space of the frames about to be claimed and, for an ordinary claim, of a part
    /// of the reserve. This must precede any record that somebody had these frames, because readers
    /// of that record assume that the frames have their space.
    pub(crate) fn back_claim(
        &self,
        table: &DescriptorTable<'_, AtomicU64>,
        extent: Range<u32>,
        class: Class,
    ) -> Result<(), ClaimError> {
        let fresh = |(_, status): &(u32, Status)| status.generation == 0 || status.is_bare();
        let mut fresh = table.statuses(extent.clone()).filter(fresh).peekable();
        if self.backed.frames.is_empty() || fresh.peek().is_none() {
            return Ok(());
        }
        let mut backed = fresh.try_for_each(|(frame, _)| self.back(Frame(frame)));
        if backed.is_ok() && class == Class::Ordinary {
            backed = self.back_ahead(table, extent);
        }
        if let Err(RegionError::NoSpace { .. } | RegionError::NoMemory { .. }) = backed {
            self.withhold(table)?;
        }
        Ok(backed?)
    }

    /// Allocates the space of some frames after an extent that lack it, a few at a time.
    fn back_ahead(
        &self,
        table: &DescriptorTable<'_, AtomicU64>,
        extent: Range<u32>,
    ) -> Result<(), RegionError> {
        // As far as this opening has mapped the region; another may have grown it.
        let mapped = (self.region.len() as u64 / FRAME_BYTES) as u32;
        let ahead = SPACE_AHEAD.min(self.reserve_now()?);
        table
            .statuses(extent.end..self.end_frame().min(mapped).max(extent.end))
            .filter(|(_, status)| status.state == State::Free)
            .take(ahead as usize)
            .filter(|(frame, status)| self.lacks_space(*frame, *status))
            .take(extent.len().max(2))
            .try_for_each(|(frame, _)| self.back(Frame(frame)))
    }

    /// Whether a free frame has no space, as far as this opening knows.
    pub(crate) fn lacks_space(&self, frame: u32, status: Status) -> bool {
        status.is_bare()
            || (status.state == State::Free && status.generation == 0 && !self.backed.has(frame))
    }

    /// The lowest run of claimable frames in `range` that all have their space. Examines each
    /// frame; needed when some are withheld, and the tree finds nothing sufficient before the first
    /// of them.
    pub(crate) fn find_backed(
        &self,
        range: Range<u32>,
        frames: u32,
        align: u32,
    ) -> Result<Option<u32>, RegionError> {
        let summary = self.summary()?;
        let mut start = range.start;
        for (frame, status) in self.table()?.statuses(range) {
            if !summary.is_free(frame) || self.lacks_space(frame, status) {
                start = frame + 1;
            }
            let aligned = start.next_multiple_of(align);
            if frame + 1 >= aligned.saturating_add(frames) {
                return Ok(Some(aligned));
            }
        }
        Ok(None)
    }

    /// Determines again which free frames have no space. The caller must hold the lock, and has
    /// just been refused space.
    fn withhold(&self, table: &DescriptorTable<'_, AtomicU64>) -> Result<(), ClaimError> {
        let mut withheld = vec![(0, 0); self.backed.withheld.len()];
        for zone in self.zones()? {
            let mut bare = table
                .statuses(zone.range())
                .filter(|(frame, status)| self.lacks_space(*frame, *status))
                .peekable();
            if let Some((first, frames)) = withheld.get_mut(usize::from(zone.node)) {
                if let (0, Some((frame, _))) = (*first, bare.peek()) {
                    *first = frame + 1;
                }
                *frames += bare.count() as u32;
            }
        }
        for (node, (first, frames)) in withheld.into_iter().enumerate() {
            self.backed.first[node].store(first, Relaxed);
            self.backed.withheld[node].store(frames, Relaxed);
        }
        Ok(())
    }
}
