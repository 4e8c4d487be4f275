//! Records in lent frames: written while the frame is being filled, copied by readers who may lose
//! it at any time.
//!
//! | bytes | what |
//! |---|---|
//! | 0..8 | checksum of the rest, keyed by the arena's secret, the frame, its generation and the place |
//! | 8..12 | bytes of the key |
//! | 12..16 | bytes of the value |
//! | 16.. | the value, then the key |
//!
//! A record begins at a multiple of 16 bytes. **A copy is accepted only if its checksum, computed
//! with the place where it was found, agrees.** Bytes that look like a record, embedded in a value
//! by an attacker, have no matching checksum, and neither has a record of an earlier generation of
//! the same frame.

use super::index::UNIT;
use crate::frame::{FRAME_BYTES, Frame};
use mneme_sys::{Region, RegionError, racy};
use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};

/// The number of bytes before the value.
pub(crate) const HEADER: usize = 16;

/// The maximum length of key and value together, in bytes: what fits in a frame.
pub const MAX_RECORD: usize = FRAME_BYTES as usize - HEADER;

/// Where a record is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RecordPlace {
    pub frame: Frame,
    pub generation: u32,
    /// The offset in the frame, in bytes.
    pub offset: u32,
}

/// Reads and writes records.
pub(crate) struct RecordArea {
    secrets: RapidSecrets,
}

/// The number of bytes that a record takes in its frame.
pub(crate) fn bytes_of(key: usize, value: usize) -> usize {
    (HEADER + key + value).next_multiple_of(UNIT)
}

impl RecordArea {
    pub fn new(seed: u64) -> RecordArea {
        RecordArea {
            secrets: RapidSecrets::seed(seed),
        }
    }

    /// The hash of a key.
    pub fn hash(&self, bytes: &[u8]) -> u64 {
        rapidhash_v3_seeded(bytes, &self.secrets)
    }

    fn checksum(&self, place: RecordPlace, key_hash: u64, key_len: usize, value: &[u8]) -> u64 {
        let words = [
            u64::from(place.frame.0) << 32 | u64::from(place.generation),
            u64::from(place.offset) << 32 | key_len as u64,
            value.len() as u64,
            key_hash,
            self.hash(value),
        ];
        let mut bytes = [0; 40];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        self.hash(&bytes)
    }

    /// Writes a record, which must fit, at `place`. The frame must be being filled, and the caller
    /// must hold its fill lock.
    pub fn write(
        &self,
        region: &Region,
        place: RecordPlace,
        key_hash: u64,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), RegionError> {
        let start = reach(region, place, HEADER + key.len() + value.len())?;
        let mut header = [0; HEADER];
        let checksum = self.checksum(place, key_hash, key.len(), value);
        header[..8].copy_from_slice(&checksum.to_le_bytes());
        header[8..12].copy_from_slice(&(key.len() as u32).to_le_bytes());
        header[12..].copy_from_slice(&(value.len() as u32).to_le_bytes());
        // SAFETY: `reach` has checked that all the bytes are committed memory of the region, whose
        // end is a multiple of 8; nobody else writes them while the frame is being filled, and
        // readers use `racy::load`.
        unsafe {
            racy::store(&header, start);
            racy::store(value, start.wrapping_add(HEADER));
            racy::store(key, start.wrapping_add(HEADER + value.len()));
        }
        Ok(())
    }

    /// Copies the value of the record at `place` to `out`, if it belongs to this key. Between the
    /// copy and the check it calls `is_still_lent`, which contains the fence.
    pub fn read(
        &self,
        region: &Region,
        place: RecordPlace,
        key_hash: u64,
        key: &[u8],
        out: &mut Vec<u8>,
        is_still_lent: impl FnOnce() -> bool,
    ) -> bool {
        out.clear();
        let mut header = [0; HEADER];
        if load(region, place, 0, &mut header).is_none() {
            return false;
        }
        let number = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
                as usize
        };
        let (key_len, value_len) = (number(8), number(12));
        let space = FRAME_BYTES as usize - place.offset as usize;
        if key_len != key.len()
            || key_len
                .checked_add(value_len)
                .is_none_or(|bytes| bytes > space.saturating_sub(HEADER))
        {
            return false;
        }
        out.resize(value_len + key_len, 0);
        if load(region, place, HEADER, out).is_none() || !is_still_lent() {
            out.clear();
            return false;
        }
        let same_key = &out[value_len..] == key;
        out.truncate(value_len);
        let checksum = self.checksum(place, key_hash, key_len, out).to_le_bytes();
        if !same_key || header[..8] != checksum {
            out.clear();
            return false;
        }
        true
    }
}

/// Copies the bytes that begin `from` bytes after the place.
fn load(region: &Region, place: RecordPlace, from: usize, dst: &mut [u8]) -> Option<()> {
    let start = reach(region, place, from + dst.len()).ok()?;
    // SAFETY: `reach` has checked that all the bytes are committed memory of the region, which
    // begins and ends on a page. All writers of frames that are or were lent use `racy::store` or
    // 8-byte atomics, as `Arena::claim` demands.
    unsafe { racy::load(start.wrapping_add(from), dst) };
    Some(())
}

/// The address of a place that is followed by that many bytes of the same frame.
fn reach(region: &Region, place: RecordPlace, bytes: usize) -> Result<*mut u8, RegionError> {
    let offset = place.frame.offset() + u64::from(place.offset);
    let outside = place.offset as usize + bytes > FRAME_BYTES as usize;
    // The region refuses an impossible length.
    let bytes = if outside { usize::MAX } else { bytes };
    region.bytes_at(offset, bytes).or_else(|_| {
        // Another process may have grown the region.
        region.refresh()?;
        region.bytes_at(offset, bytes)
    })
}
