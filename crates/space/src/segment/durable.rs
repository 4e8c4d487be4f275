//! Segments on a medium that outlives the machine, and how changes that are not yet on the medium
//! are recorded.
//!
//! **If the machine goes down, a segment with changes that were not written through is not
//! considered consistent**: the kernel writes a file's pages in any order, and a mixture of old and
//! new ones cannot be distinguished from other content. Before the first change, the header on the
//! medium records the boot in which it happens; when everything has been written, the record is
//! cleared.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, Release};

use mneme_sys::{HEADER_LEN, Region, RegionError, RegionHeader};

use super::data::word;
use super::meta::SegmentMeta;

/// A nonzero word that identifies this machine's current boot.
pub(super) fn this_boot() -> u64 {
    static BOOT: OnceLock<u64> = OnceLock::new();
    *BOOT.get_or_init(|| {
        let id = u128::from_le_bytes(mneme_sys::boot_id());
        ((id >> 64) as u64 ^ id as u64).max(1)
    })
}

/// Whether the segment's bytes outlive the machine.
pub(crate) fn is_durable(meta: &SegmentMeta) -> bool {
    !meta.backing.is_memory()
}

/// Whether, by the header's word, the machine has not gone down with changes that had not been
/// written through.
pub(crate) fn is_of_this_boot(unsynced: u64, meta: &SegmentMeta) -> bool {
    !is_durable(meta) || unsynced == 0 || unsynced == this_boot()
}

/// Extends a durable segment's file to the length in its header, which may be on the medium
/// although the file's length is not. The lock must be held exclusively.
pub(crate) fn complete(region: &Region) -> Result<(), RegionError> {
    let committed = RegionHeader::committed(region)?;
    if committed > region.refresh()? as u64 {
        region.grow(usize::try_from(committed).unwrap_or(usize::MAX))?;
    }
    Ok(())
}

/// Records on the medium that a durable segment is about to be changed. The lock must be held
/// exclusively.
pub(crate) fn note_change(region: &Region) -> Result<(), RegionError> {
    note_change_by(region, || region.sync_range(0..HEADER_LEN))
}

fn note_change_by(
    region: &Region,
    sync_header: impl FnOnce() -> Result<(), RegionError>,
) -> Result<(), RegionError> {
    let words = RegionHeader::client(region)?;
    // Relaxed: written under the segment's lock. Both words are compared: a build that does not
    // know `NOTED` clears only the other one.
    if [word::NOTED, word::UNSYNCED].map(|at| words[at].load(Relaxed)) != [this_boot(); 2] {
        words[word::UNSYNCED].store(this_boot(), Relaxed);
        mneme_sys::fault!("space.sync.stored");
        poisoned_by_failure(words, sync_header())?;
        words[word::NOTED].store(this_boot(), Relaxed);
    }
    Ok(())
}

/// Writes a durable segment through, and records that on the medium. The lock must be held, so that
/// nobody changes it.
pub(crate) fn write_through(region: &Region) -> Result<(), RegionError> {
    write_through_by(region, |range| region.sync_range(range))
}

fn write_through_by(
    region: &Region,
    sync: impl Fn(Range<usize>) -> Result<(), RegionError>,
) -> Result<(), RegionError> {
    let words = RegionHeader::client(region)?;
    poisoned_by_failure(words, sync(0..region.len()))?;
    mneme_sys::fault!("space.sync.written");
    // Relaxed: as above. Processes that only read also store here, and all store the same value.
    words[word::NOTED].store(0, Relaxed);
    words[word::UNSYNCED].store(0, Relaxed);
    poisoned_by_failure(words, sync(0..HEADER_LEN))
}

/// Poisons a segment whose medium did not store what was written. The kernel reports that once and
/// afterwards considers the pages written: a second attempt would succeed, and prove nothing.
fn poisoned_by_failure(
    words: &[AtomicU64; 8],
    synced: Result<(), RegionError>,
) -> Result<(), RegionError> {
    synced.inspect_err(|_| {
        // SYNC: pairs with the Acquire loads of the next holder of the segment's lock.
        words[word::POISON].store(word::state::DIED, Release);
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use mneme_sys::{Access, PagePolicy};

    fn segment() -> Region {
        let region = Region::private(1, 1 << 21, PagePolicy::Small).unwrap();
        assert_eq!(region.access(), Access::ReadWrite);
        super::super::data::write_header(&region, crate::Uuid::random().unwrap(), [0; 8]).unwrap();
        region
    }

    fn fails() -> RegionError {
        RegionError::Parked
    }

    fn state(region: &Region) -> u64 {
        RegionHeader::client(region).unwrap()[word::POISON].load(Relaxed)
    }

    /// A process that dies between the store and the sync leaves a word that is only in memory: the
    /// next process must not mistake it for a record on the medium.
    #[test]
    fn a_record_that_was_not_synced_is_synced_by_the_next_process() {
        let region = segment();
        let words = RegionHeader::client(&region).unwrap();
        words[word::UNSYNCED].store(this_boot(), Relaxed);
        let mut synced = 0;
        for expected in [1, 1] {
            note_change_by(&region, || {
                synced += 1;
                Ok(())
            })
            .unwrap();
            assert_eq!(synced, expected);
        }
    }

    #[test]
    fn a_record_that_fails_poisons_the_segment_for_good() {
        let region = segment();
        note_change_by(&region, || Err(fails())).unwrap_err();
        assert_eq!(state(&region), word::state::DIED);
        let mut synced = false;
        note_change_by(&region, || {
            synced = true;
            Ok(())
        })
        .unwrap();
        assert!(synced);
    }

    #[test]
    fn a_failed_sync_poisons_the_segment_although_the_next_one_succeeds() {
        for failing in [0, 1] {
            let region = segment();
            note_change_by(&region, || Ok(())).unwrap();
            let calls = std::cell::Cell::new(0);
            let sync = |_| match calls.replace(calls.get() + 1) {
                call if call == failing => Err(fails()),
                _ => Ok(()),
            };
            write_through_by(&region, sync).unwrap_err();
            write_through_by(&region, sync).unwrap();
            assert_eq!(state(&region), word::state::DIED);
        }
    }
}
