//! **An extent that is handed out has its space**, also in a file that gets it only as it is used: a lack of it is an
//! error of the claim, and never a signal in the middle of a store.
//!
//! Space is never given back while the region lives, so a frame that anybody ever had has it: its generation says so, and
//! only frames that nobody had are asked for. Asking takes the file system as long as clearing the memory does (0.2 ms a
//! frame of small pages on tmpfs), once for each; whoever would not wait for it asks ahead, by [`Arena::back`].

use crate::arena::Arena;
use crate::frame::{FRAME_BYTES, Frame};
use mneme_sys::{Region, RegionError};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The frames that this opening knows to have their space, a bit each; none where all have it anyway.
#[derive(Debug, Default)]
pub(crate) struct Backed(Vec<AtomicU64>);

impl Backed {
    /// Of a region of which `frames` frames may be claimed.
    pub(crate) fn new(region: &Region, frames: u32) -> Backed {
        let words = if region.is_lazy() {
            frames.div_ceil(64)
        } else {
            0
        };
        Backed((0..words).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Arena {
    /// Takes the space of a frame in a file that gets it as it is used, whoever may have the frame; nothing elsewhere.
    /// Claims do this for what they hand out: it is for those who would rather do it ahead.
    ///
    /// # Errors
    /// [`RegionError::NoSpace`]: there is none; [`RegionError::OutOfBounds`] beyond the region's end.
    pub fn back(&self, frame: Frame) -> Result<(), RegionError> {
        let Some(word) = self.backed.0.get(frame.0 as usize / 64) else {
            return Ok(());
        };
        let bit = 1 << (frame.0 % 64);
        // Relaxed: says something of the file, not of this process' memory.
        if word.load(Relaxed) & bit == 0 {
            let start = frame.offset() as usize;
            self.region.reserve(start..start + FRAME_BYTES as usize)?;
            word.fetch_or(bit, Relaxed);
        }
        Ok(())
    }
}
