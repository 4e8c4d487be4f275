//! **An extent that is handed out has its space**, also in a file that gets it only as it is used: a lack of it is an
//! error of the claim, and never a signal in the middle of a store.
//!
//! Space is never given back while the region lives, so a frame that anybody ever had has it: its generation says so, and
//! only frames that nobody had are asked for. Asking takes the file system as long as clearing the memory does (0.2 ms a
//! frame of small pages on tmpfs), once for each; whoever would not wait for it asks ahead, by [`Arena::back`].
//!
//! A frame that has no space and can get none is no free frame. So what is left of the space is handed out as the last free
//! frames are: an ordinary claim leaves the reserve alone, as far as that was asked for ahead of it ([`AHEAD`]), and what
//! frames lack their space is found out by the claim that first meets it, and *withheld* from the count of the free ones
//! until there is space again.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::arena::Arena;
use crate::claim::Class;
use crate::descriptor::Table;
use crate::error::ClaimError;
use crate::frame::{FRAME_BYTES, Frame};
use mneme_sys::{Region, RegionError};

/// Frames of the reserve that have their space before they are claimed, at most: what compaction begins with.
const AHEAD: usize = 16;

/// What this opening knows of the frames' space; nothing where all have it anyway.
#[derive(Debug, Default)]
pub(crate) struct Backed {
    /// The frames that have it, a bit each.
    frames: Vec<AtomicU64>,
    /// Free frames that have none and got none, by node.
    withheld: Vec<AtomicU32>,
}

impl Backed {
    /// Of a region of which `frames` frames may be claimed, on so many nodes.
    pub(crate) fn new(region: &Region, frames: u32, nodes: u16) -> Backed {
        if !region.is_lazy() {
            return Backed::default();
        }
        Backed {
            frames: (0..frames.div_ceil(64))
                .map(|_| AtomicU64::new(0))
                .collect(),
            withheld: (0..nodes).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// Free frames of a node that are withheld.
    // Relaxed here and below: what is said of the file, not of this process' memory; a moment later it may be otherwise.
    pub(crate) fn withheld(&self, node: u16) -> u32 {
        self.withheld
            .get(usize::from(node))
            .map_or(0, |frames| frames.load(Relaxed))
    }

    fn all_withheld(&self) -> u32 {
        self.withheld
            .iter()
            .map(|frames| frames.load(Relaxed))
            .sum()
    }

    fn has(&self, frame: u32) -> bool {
        let word = self.frames.get(frame as usize / 64);
        word.is_none_or(|word| word.load(Relaxed) & 1 << (frame % 64) != 0)
    }
}

impl Arena {
    /// Takes the space of a frame in a file that gets it as it is used, whoever may have the frame; nothing elsewhere.
    /// Claims do this for what they hand out: it is for those who would rather do it ahead.
    ///
    /// # Errors
    /// [`RegionError::NoSpace`]: there is none; [`RegionError::OutOfBounds`] beyond the region's end.
    pub fn back(&self, frame: Frame) -> Result<(), RegionError> {
        if self.backed.has(frame.0) {
            return Ok(());
        }
        let start = frame.offset() as usize;
        self.region.reserve(start..start + FRAME_BYTES as usize)?;
        self.backed.frames[frame.0 as usize / 64].fetch_or(1 << (frame.0 % 64), Relaxed);
        // There is space again: the next claim finds out how much.
        for frames in &self.backed.withheld {
            frames.store(0, Relaxed);
        }
        Ok(())
    }

    /// Whether free frames are withheld, for the file system has no space for them.
    pub fn lacks_space(&self) -> bool {
        self.backed.all_withheld() > 0
    }

    /// Free frames of all nodes that are not withheld, of so many free ones.
    pub(crate) fn not_withheld(&self, free: u32) -> u32 {
        free.saturating_sub(self.backed.all_withheld())
    }

    /// Takes the space of what is about to be claimed, and for an ordinary claim that of a part of the reserve: before
    /// anything says that somebody had these frames, for who finds it said believes that they have their space.
    pub(crate) fn back_claim(
        &self,
        table: &Table<'_, AtomicU64>,
        extent: std::ops::Range<u32>,
        class: Class,
    ) -> Result<(), ClaimError> {
        let mut fresh = table.never_claimed(extent.clone()).peekable();
        if self.backed.frames.is_empty() || fresh.peek().is_none() {
            return Ok(());
        }
        let ahead = match class {
            // Relaxed: the number stands for itself.
            Class::Ordinary => self.header()?.reserve_frames.load(Relaxed) as usize,
            Class::Reserved => 0,
        };
        let behind = table.never_claimed(extent.end..self.end_frame());
        let backed = fresh
            .chain(behind.take(ahead.min(AHEAD)))
            .try_for_each(|frame| self.back(Frame(frame)));
        if let Err(RegionError::NoSpace { .. } | RegionError::NoMemory { .. }) = backed {
            self.withhold(table)?;
        }
        Ok(backed?)
    }

    /// Counts anew which free frames have no space. The caller has the lock, and has just been refused space.
    pub(crate) fn withhold(&self, table: &Table<'_, AtomicU64>) -> Result<(), ClaimError> {
        let mut withheld = vec![0; self.backed.withheld.len()];
        for zone in self.zones()? {
            let bare = table
                .never_claimed(zone.range())
                .filter(|frame| !self.backed.has(*frame));
            if let Some(on_node) = withheld.get_mut(usize::from(zone.node)) {
                *on_node += bare.count() as u32;
            }
        }
        for (word, frames) in self.backed.withheld.iter().zip(withheld) {
            word.store(frames, Relaxed);
        }
        Ok(())
    }
}
