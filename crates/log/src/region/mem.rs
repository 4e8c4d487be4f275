//! Turns offsets of a region into memory, and refuses those that lie outside it.
//!
//! Everything the store keeps in a region is named by a [`Loc`]: an offset in 8-byte units that is
//! valid in every process at whatever address the region is mapped. This module is the only place
//! where such an offset becomes a reference, and it checks every one against the mapping first, so
//! that a damaged region yields [`Corrupt`] and never a wild access.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use mneme_sync::Word;
use mneme_sys::Region;

use crate::error::Corrupt;
use crate::region::record::{Header, Record};

/// Bits of a [`Loc`]: 42 bits of 8-byte units address 32 TiB.
pub(crate) const LOC_BITS: u32 = 42;
const LOC_MASK: u64 = (1 << LOC_BITS) - 1;

/// A place in the region, in 8-byte units from its base. Zero names nothing: the region begins
/// with its header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub(crate) struct Loc(u64);

impl Loc {
    /// The location in the low 42 bits of `word`.
    #[inline]
    pub fn of_word(word: u64) -> Loc {
        Loc(word & LOC_MASK)
    }

    /// The location of a byte offset, which is a multiple of 8 below 32 TiB. A larger offset, which
    /// comes only from a damaged region, becomes a location outside of every region.
    #[inline]
    pub fn of_byte(offset: u64) -> Loc {
        debug_assert!(offset.is_multiple_of(8));
        Loc((offset >> 3).min(LOC_MASK))
    }

    /// The place of word number `word`.
    #[cfg(test)]
    pub const fn at_word(word: u64) -> Loc {
        Loc(word)
    }

    /// As the low 42 bits of a word.
    #[inline]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Bytes from the region's base.
    #[inline]
    pub fn byte(self) -> u64 {
        self.0 << 3
    }

    /// The location `words` words further on.
    #[inline]
    pub fn add_words(self, words: u64) -> Loc {
        Loc(self.0 + words)
    }
}

/// The memory that locations refer to: a region's bytes, or an interleaving model's words. All
/// concurrent code of the index is generic over it, and runs on both.
pub(crate) trait Memory {
    /// The words there.
    type Word: Word;
    /// The records there.
    type Record<'m>: Keyed
    where
        Self: 'm;

    /// `N` words at `loc`.
    fn words<const N: usize>(&self, loc: Loc) -> Result<&[Self::Word; N], Corrupt>;

    /// The record at `loc`, which the caller found published.
    fn record(&self, loc: Loc) -> Result<Self::Record<'_>, Corrupt>;

    /// As [`record`](Memory::record), if nothing about the record is unusual and it has no slack.
    #[inline(always)]
    fn plain_record(&self, loc: Loc) -> Option<Self::Record<'_>> {
        self.record(loc).ok()
    }

    /// One word at `loc`.
    #[inline(always)]
    fn word(&self, loc: Loc) -> Result<&Self::Word, Corrupt> {
        Ok(&self.words::<1>(loc)?[0])
    }

    /// The header of the record at `loc`, which the caller found published or below the `used` mark
    /// of a log segment.
    #[inline(always)]
    fn header(&self, loc: Loc) -> Result<Header, Corrupt> {
        // SYNC: the code that returned `loc` acquired it from its publication, which orders the
        // header.
        let header = Header(self.word(loc)?.load(Relaxed));
        if header.is_record() {
            Ok(header)
        } else {
            Err(no_header(loc, header))
        }
    }
}

#[cold]
fn no_header(loc: Loc, header: Header) -> Corrupt {
    Corrupt::at(loc.byte(), format!("no record header: {:#018x}", header.0))
}

/// The part of a record that an index compares.
pub(crate) trait Keyed {
    /// Whether this is the record's key.
    fn has_key(&self, key: &[u8]) -> bool;
}

impl Memory for Mem {
    type Word = AtomicU64;
    type Record<'m> = Record<'m>;

    #[inline(always)]
    fn words<const N: usize>(&self, loc: Loc) -> Result<&[AtomicU64; N], Corrupt> {
        Mem::words(self, loc)
    }

    #[inline(always)]
    fn record(&self, loc: Loc) -> Result<Record<'_>, Corrupt> {
        Mem::record(self, loc)
    }
}

impl Keyed for Record<'_> {
    #[inline(always)]
    fn has_key(&self, key: &[u8]) -> bool {
        same_key(self.key(), key)
    }
}

/// Whether two keys are equal. Most are short, and not worth a call. The words of a key that was
/// just written load faster one by one than in a wide load.
#[inline(always)]
fn same_key(a: &[u8], b: &[u8]) -> bool {
    let len = a.len();
    if len != b.len() {
        return false;
    }
    match len {
        8..=16 => !(differ(a, b, 0) | differ(a, b, len - 8)),
        17..=32 => {
            let (front, back) = (differ(a, b, 0) | differ(a, b, 8), len - 16);
            !(front | differ(a, b, back) | differ(a, b, back + 8))
        }
        _ => a == b,
    }
}

/// Whether the words at byte `at` differ.
#[inline(always)]
fn differ(a: &[u8], b: &[u8], at: usize) -> bool {
    a[at..at + 8] != b[at..at + 8]
}

/// A region as the store sees it.
#[derive(Clone)]
pub(crate) struct Mem {
    region: Arc<Region>,
    /// The region's base, which never changes: one load instead of two that depend on each other.
    base: *mut u8,
}

// SAFETY: the address is that of the region, which is `Send` and which this keeps alive.
unsafe impl Send for Mem {}
// SAFETY: as above; what lies there is only reached by atomics and by racing copies.
unsafe impl Sync for Mem {}

impl Mem {
    pub fn new(region: Arc<Region>) -> Mem {
        Mem {
            base: region.base(),
            region,
        }
    }

    /// The region's first byte.
    #[inline(always)]
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    #[cold]
    fn outside(&self, loc: Loc, bytes: u64) -> Corrupt {
        Corrupt::at(
            loc.byte(),
            format!(
                "{bytes} bytes there lie outside the region of {}",
                self.region.len()
            ),
        )
    }

    /// Another opening may have grown the region: maps the new part, and checks again.
    #[cold]
    fn extend_to(&self, loc: Loc, bytes: u64) -> Result<(), Corrupt> {
        match self.region.refresh() {
            Ok(len) if bytes <= 1 << 45 && loc.byte() + bytes <= len as u64 => Ok(()),
            _ => Err(self.outside(loc, bytes)),
        }
    }

    /// The address of `bytes` bytes at `loc`.
    #[inline(always)]
    pub fn address(&self, loc: Loc, bytes: u64) -> Result<*mut u8, Corrupt> {
        let start = loc.byte();
        // A Loc is below 2^45, so that the sum cannot overflow.
        if bytes > 1 << 45 || start + bytes > self.region.len() as u64 {
            self.extend_to(loc, bytes)?;
        }
        Ok(self.base.wrapping_add(start as usize))
    }

    /// `N` words at `loc`.
    #[inline(always)]
    pub fn words<const N: usize>(&self, loc: Loc) -> Result<&[AtomicU64; N], Corrupt> {
        let address = self.address(loc, N as u64 * 8)?;
        // SAFETY: the range lies inside the mapping (checked), a Loc is a multiple of 8 bytes from
        // a page-aligned base, any bits are valid AtomicU64s, and the mapping lives as long as
        // `self`.
        Ok(unsafe { &*address.cast::<[AtomicU64; N]>() })
    }

    /// `count` words at `loc`.
    #[inline]
    pub fn word_slice(&self, loc: Loc, count: usize) -> Result<&[AtomicU64], Corrupt> {
        let address = self.address(loc, count as u64 * 8)?;
        // SAFETY: as in `words`.
        Ok(unsafe { std::slice::from_raw_parts(address.cast::<AtomicU64>(), count) })
    }

    /// One word at `loc`.
    #[inline(always)]
    pub fn word(&self, loc: Loc) -> Result<&AtomicU64, Corrupt> {
        Ok(&self.words::<1>(loc)?[0])
    }

    /// The record at `loc`, whose header and length have been checked against the region.
    ///
    /// The caller is pinned and found `loc` published (or below the `used` mark of a log segment),
    /// so that the bytes are initialised and do not change.
    #[inline(always)]
    pub fn record(&self, loc: Loc) -> Result<Record<'_>, Corrupt> {
        let header = Memory::header(self, loc)?;
        let address = self.address(loc, header.size())?;
        Ok(Record::new(header, address))
    }

    /// Prefetches the line at `loc`; a location outside the region is ignored.
    #[inline]
    pub fn prefetch(&self, loc: Loc) {
        self.prefetch_lines(loc, 0..1);
    }

    /// Prefetches the header and the key, of `key_len` bytes, of a record that may lie at `loc`:
    /// the lines in which they begin and end.
    #[inline(always)]
    pub fn prefetch_key(&self, loc: Loc, key_len: usize) {
        let start = loc.byte();
        if start + (8 + key_len) as u64 <= self.region.len() as u64 {
            let base = self.base.wrapping_add(start as usize);
            mneme_sys::prefetch(base);
            mneme_sys::prefetch(base.wrapping_add(7 + key_len));
        }
    }

    /// Prefetches some of the lines from `loc` on. Ignored altogether if they leave the region.
    #[inline(always)]
    pub fn prefetch_lines(&self, loc: Loc, lines: Range<u64>) {
        let start = loc.byte();
        if start + 64 * lines.end <= self.region.len() as u64 {
            let base = self.base.wrapping_add(start as usize);
            for line in lines {
                mneme_sys::prefetch(base.wrapping_add(64 * line as usize));
            }
        }
    }
}
