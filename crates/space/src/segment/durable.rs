//! Segments on a medium that outlives the machine, between two moments at which all of them was on it.
//!
//! **What was changed since it was last written through is not taken for whole after the machine went down**: the kernel
//! writes a file's pages in any order, and a mixture of old and new ones looks like any other content. Before the first
//! change the header says, on the medium, in which boot it happens; it says so no more when all is written.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

use mneme_sys::{HEADER_LEN, Region, RegionError, RegionHeader};

use super::data::word;
use super::meta::Meta;

/// A word that no other boot of this machine has, and that is not 0.
pub(super) fn this_boot() -> u64 {
    static BOOT: OnceLock<u64> = OnceLock::new();
    *BOOT.get_or_init(|| {
        let id = u128::from_le_bytes(mneme_sys::boot_id());
        ((id >> 64) as u64 ^ id as u64).max(1)
    })
}

/// Whether the segment's bytes outlive the machine.
pub(crate) fn is_durable(meta: &Meta) -> bool {
    !meta.backing.is_memory()
}

/// Whether the machine has not gone down since with changes that nobody had written through, by the header's word.
pub(crate) fn is_of_this_boot(unsynced: u64, meta: &Meta) -> bool {
    !is_durable(meta) || unsynced == 0 || unsynced == this_boot()
}

/// Gives a durable segment's file the length that its header says, which a machine that went down may have written before
/// it. With its lock held, for it alone.
pub(crate) fn complete(region: &Region) -> Result<(), RegionError> {
    let committed = RegionHeader::committed(region)?;
    if committed > region.refresh()? as u64 {
        region.grow(usize::try_from(committed).unwrap_or(usize::MAX))?;
    }
    Ok(())
}

/// Notes on the medium that a durable segment will be changed. With its lock held, for it alone.
pub(crate) fn note_change(region: &Region) -> Result<(), RegionError> {
    let word = &RegionHeader::client(region)?[word::UNSYNCED];
    // Relaxed: written under the segment's lock.
    if word.load(Relaxed) != this_boot() {
        word.store(this_boot(), Relaxed);
        region.sync_range(0..HEADER_LEN)?;
    }
    Ok(())
}

/// Writes all of a durable segment through, and notes that on the medium. With its lock held, so that nobody changes it.
pub(crate) fn write_through(region: &Region) -> Result<(), RegionError> {
    region.sync()?;
    mneme_sys::fault!("space.sync.written");
    // Relaxed: as above, by those who only read too: all write the same.
    RegionHeader::client(region)?[word::UNSYNCED].store(0, Relaxed);
    region.sync_range(0..HEADER_LEN)
}
