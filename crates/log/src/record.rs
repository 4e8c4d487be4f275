//! A record is one 8-byte header, an optional expiry, the key and the value, padded to 8 bytes.
//!
//! The header says how long everything is, so that a log segment can be walked from header to
//! header without the index. Bytes, from the record's start:
//!
//! | offset | what |
//! |---|---|
//! | 0 | header word, see [`Header`] |
//! | 8 | expiry in wall-clock milliseconds (0: none), only if the header's expiry flag is set |
//! | then | key, value, zero to seven bytes of padding |
//!
//! Key and value never change once the record is published; the expiry and the marks of the header
//! do, each by one store under the bucket's lock or one exchange.
//!
//! Nibble §4.1 keeps the key with the object for the same reason: compaction finds the index entry
//! from the record alone.

use std::marker::PhantomData;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

use crate::mem::Mem;

/// The longest key, in bytes.
pub const MAX_KEY: usize = u16::MAX as usize;
/// The longest value, in bytes: 1 GiB.
pub const MAX_VALUE: usize = 1 << 30;
/// Values longer than this always carry an expiry word, so that setting one never copies them.
const ALWAYS_EXPIRY: usize = 64 << 10;

/// The header word: key length 16 bits, value length 31, kind 8, expiry 1, state 2, database 6.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header(pub u64);

const VALUE_SHIFT: u32 = 16;
const KIND_SHIFT: u32 = 47;
const EXPIRY_SHIFT: u32 = 55;
const STATE_SHIFT: u32 = 56;
const DATABASE_SHIFT: u32 = 58;
const STATE_RECORD: u64 = 1;

impl Header {
    /// A record's header. The lengths are within [`MAX_KEY`] and [`MAX_VALUE`].
    pub fn record(key_len: usize, value_len: usize, database: u8) -> Header {
        debug_assert!(key_len <= MAX_KEY && value_len <= MAX_VALUE && database < 64);
        let expiry = u64::from(value_len > ALWAYS_EXPIRY);
        Header(
            key_len as u64
                | (value_len as u64) << VALUE_SHIFT
                | expiry << EXPIRY_SHIFT
                | STATE_RECORD << STATE_SHIFT
                | u64::from(database) << DATABASE_SHIFT,
        )
    }

    /// The same with an expiry word.
    pub fn with_expiry(self) -> Header {
        Header(self.0 | 1 << EXPIRY_SHIFT)
    }

    #[inline]
    pub fn key_len(self) -> usize {
        (self.0 & 0xffff) as usize
    }

    #[inline]
    pub fn value_len(self) -> usize {
        (self.0 >> VALUE_SHIFT & 0x7fff_ffff) as usize
    }

    #[inline]
    pub fn has_expiry(self) -> bool {
        self.0 >> EXPIRY_SHIFT & 1 == 1
    }

    #[inline]
    pub fn database(self) -> u8 {
        (self.0 >> DATABASE_SHIFT) as u8
    }

    /// Whether this is the header of a record, with lengths in range and no kind of a later format.
    #[inline]
    pub fn is_record(self) -> bool {
        self.0 >> STATE_SHIFT & 3 == STATE_RECORD
            && self.value_len() <= MAX_VALUE
            && self.0 >> KIND_SHIFT & 0xff == 0
    }

    /// Bytes from the record's start to its key.
    #[inline]
    pub fn key_offset(self) -> usize {
        8 + 8 * usize::from(self.has_expiry())
    }

    /// Bytes the record occupies, padding included.
    #[inline]
    pub fn size(self) -> u64 {
        ((self.key_offset() + self.key_len() + self.value_len()) as u64).next_multiple_of(8)
    }
}

/// A published record's bytes.
#[derive(Clone, Copy)]
pub(crate) struct Record<'m> {
    header: Header,
    address: *const u8,
    region: PhantomData<&'m Mem>,
}

impl<'m> Record<'m> {
    /// A record of `header.size()` mapped bytes at `address` (see [`Mem::record`]).
    #[inline]
    pub fn new(header: Header, address: *const u8) -> Record<'m> {
        Record {
            header,
            address,
            region: PhantomData,
        }
    }

    #[inline]
    pub fn header(&self) -> Header {
        self.header
    }

    #[inline]
    pub fn key(&self) -> &'m [u8] {
        // SAFETY: `Mem::record` checked that the whole record is mapped; its bytes were written
        // before it was published and do not change while the caller is pinned.
        unsafe {
            std::slice::from_raw_parts(
                self.address.add(self.header.key_offset()),
                self.header.key_len(),
            )
        }
    }

    #[inline]
    pub fn value(&self) -> &'m [u8] {
        let start = self.header.key_offset() + self.header.key_len();
        // SAFETY: as in `key`.
        unsafe { std::slice::from_raw_parts(self.address.add(start), self.header.value_len()) }
    }

    /// The word that holds the expiry, if there is one.
    #[inline]
    pub fn expiry_word(&self) -> Option<&'m AtomicU64> {
        // SAFETY: as in `key`; the word behind the header is aligned as the record is, and is only
        // accessed as an atomic once the record is published.
        self.header
            .has_expiry()
            .then(|| unsafe { &*self.address.add(8).cast::<AtomicU64>() })
    }

    /// When the record expires, in wall-clock milliseconds; 0: never.
    #[inline]
    pub fn expires(&self) -> u64 {
        // SYNC: pairs with the Release store in `set_expires`.
        self.expiry_word().map_or(0, |word| word.load(Acquire))
    }

    /// Sets the expiry; false if the record has no word for it. The caller holds the bucket.
    pub fn set_expires(&self, at: u64) -> bool {
        let Some(word) = self.expiry_word() else {
            return false;
        };
        // SYNC: pairs with the Acquire load in `expires`.
        word.store(at, Release);
        true
    }
}

/// Writes key and value behind the header word at `address`, and `expires` if there is a word for it.
///
/// # Safety
/// `address` has room for `header.size()` bytes that the caller has reserved and nobody reads yet;
/// the lengths in `header` are those of `key` and `value`.
pub(crate) unsafe fn write_body(
    address: *mut u8,
    header: Header,
    expires: u64,
    key: &[u8],
    value: &[u8],
) {
    debug_assert!(expires == 0 || header.has_expiry());
    debug_assert_eq!(
        (header.key_len(), header.value_len()),
        (key.len(), value.len())
    );
    // SAFETY: the caller reserved these bytes; the ranges follow one another without overlap.
    unsafe {
        if header.has_expiry() {
            address.add(8).cast::<u64>().write(expires);
        }
        let at = address.add(header.key_offset());
        at.copy_from_nonoverlapping(key.as_ptr(), key.len());
        at.add(key.len())
            .copy_from_nonoverlapping(value.as_ptr(), value.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_round_trips_at_the_limits() {
        for (k, v) in [
            (0, 0),
            (1, 0),
            (MAX_KEY, MAX_VALUE),
            (16, ALWAYS_EXPIRY),
            (16, ALWAYS_EXPIRY + 1),
        ] {
            let h = Header::record(k, v, 63);
            assert_eq!((h.key_len(), h.value_len(), h.database()), (k, v, 63));
            assert!(h.is_record());
            assert_eq!(h.has_expiry(), v > ALWAYS_EXPIRY);
            assert!(h.size() >= (8 + k + v) as u64 && h.size() <= (8 + 8 + k + v + 7) as u64);
            assert_eq!(h.size() % 8, 0);
        }
    }

    #[test]
    fn garbage_is_no_record() {
        assert!(!Header(0).is_record());
        assert!(!Header(u64::MAX).is_record());
    }
}
