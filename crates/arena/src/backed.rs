//! **An extent that is handed out has its space**, also in a file that gets it only as it is used: a lack of it is an
//! error of the claim, and never a signal in the middle of a store.
//!
//! To ask the file system twice does no harm and costs some 50 us a frame, so each opening remembers what it has asked
//! for. Space is never given back while the region is open, so what is remembered stays true.

use crate::frame::{Extent, FRAME_BYTES};
use mneme_sys::{Region, RegionError};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The frames that this opening knows to have their space, a bit each; empty where all have it anyway.
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

    /// Sees to it that all of the extent has its space.
    pub(crate) fn back(&self, region: &Region, extent: Extent) -> Result<(), RegionError> {
        if self.0.is_empty() {
            return Ok(());
        }
        for frame in extent.start.0..extent.start.0 + extent.frames {
            let Some(word) = self.0.get(frame as usize / 64) else {
                continue;
            };
            let bit = 1 << (frame % 64);
            // Relaxed: says something of the file, not of this process' memory.
            if word.load(Relaxed) & bit == 0 {
                let start = (u64::from(frame) * FRAME_BYTES) as usize;
                region.reserve(start..start + FRAME_BYTES as usize)?;
                word.fetch_or(bit, Relaxed);
            }
        }
        Ok(())
    }
}
