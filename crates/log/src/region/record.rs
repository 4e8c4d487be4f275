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
//! A record with *slack* (see [`crate::records::in_place`]) has its value at a multiple of 8 bytes,
//! so that no word holds bytes of both key and value. The rest of the slack lies behind the value.
//! A *patchable* record (see [`crate::records::patch`]) has one more word, before the value, with
//! the value's length.
//!
//! The key never changes once the record is published. The value changes only in a record with
//! slack, or in a patchable one that is not sealed. The expiry may change, by one store under the
//! bucket's lock.
//!
//! Nibble §4.1 keeps the key with the object for the same reason: compaction finds the index entry
//! from the record alone.

use std::marker::PhantomData;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::region::kind::{KINDS, ValueKind};
use crate::region::patch_word::PatchWord;
use crate::region::space::KeyspaceId;

/// The longest key, in bytes.
pub const MAX_KEY: usize = u16::MAX as usize;
/// The longest value, in bytes: 1 GiB.
pub const MAX_VALUE: usize = 1 << 30;
/// The longest value that is overwritten in place.
pub(crate) const MAX_IN_PLACE: usize = 4096;
/// Bytes from a record's start to its expiry, if it has a word for one.
pub(crate) const EXPIRY_AT: usize = 8;
/// Values longer than this always carry an expiry word, so that setting one never copies them.
const ALWAYS_EXPIRY: usize = 64 << 10;

/// The header word: key length 16 bits, value length 31, kind 5, marks 3 (see
/// [`crate::records::access`]), expiry 1, state 2, space 6.
///
/// In state [`STATE_SLACK`] the 31 bits are length 15 and capacity 16, in state [`STATE_PATCHABLE`]
/// they are the capacity: the value's length may change, but not the size of the record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header(pub u64);

const VALUE_SHIFT: u32 = 16;
const KIND_SHIFT: u32 = 47;
/// The bits of the kind.
const KIND_MASK: u64 = 0x1f << KIND_SHIFT;
/// Those bits that are set in no kind of this format.
const NO_KIND: u64 = KIND_MASK & !((KINDS as u64 - 1) << KIND_SHIFT);
const MARKS_SHIFT: u32 = 52;
const MARKS_MASK: u64 = 7 << MARKS_SHIFT;
const EXPIRY_SHIFT: u32 = 55;
const STATE_SHIFT: u32 = 56;
const SPACE_SHIFT: u32 = 58;
const SPACE_MASK: u8 = 63;
const STATE_RECORD: u64 = 1;
const STATE_SLACK: u64 = 2;
const STATE_PATCHABLE: u64 = 3;
const PLAIN: u64 = STATE_RECORD << STATE_SHIFT;
const SLACK: u64 = STATE_SLACK << STATE_SHIFT;
const PATCHABLE: u64 = STATE_PATCHABLE << STATE_SHIFT;
const CAPACITY_SHIFT: u32 = VALUE_SHIFT + 15;
const LENGTH_MASK: u64 = (1 << 15) - 1;
const CAPACITY_MASK: u64 = (1 << 16) - 1;

impl Header {
    /// A record's header. The lengths are within [`MAX_KEY`] and [`MAX_VALUE`].
    pub fn record(key_len: usize, value_len: usize, space: KeyspaceId) -> Header {
        debug_assert!(key_len <= MAX_KEY && value_len <= MAX_VALUE);
        let expiry = u64::from(value_len > ALWAYS_EXPIRY);
        Header(
            key_len as u64
                | (value_len as u64) << VALUE_SHIFT
                | expiry << EXPIRY_SHIFT
                | STATE_RECORD << STATE_SHIFT
                // A hidden keyspace is marked by the kind.
                | u64::from(space.number() & SPACE_MASK) << SPACE_SHIFT,
        )
    }

    /// The header of a record that no key leads to, and that occupies `bytes` bytes: a multiple of
    /// 8, and at most the length of the longest log segment.
    pub fn filler(bytes: u64) -> Header {
        Header((bytes.saturating_sub(8)) << VALUE_SHIFT | PLAIN)
    }

    /// The header of a record whose value may be overwritten by one of up to `capacity` bytes, at
    /// most [`MAX_IN_PLACE`], or up to the end of the record's last word.
    pub fn with_slack(
        key_len: usize,
        value_len: usize,
        capacity: usize,
        space: KeyspaceId,
    ) -> Header {
        debug_assert!(value_len <= capacity && capacity <= MAX_IN_PLACE);
        let plain = Header::record(key_len, 0, space).0 & !(3 << STATE_SHIFT);
        let capacity = capacity.next_multiple_of(8) as u64;
        Header(plain | STATE_SLACK << STATE_SHIFT | capacity << CAPACITY_SHIFT)
            .with_length(value_len)
    }

    /// The header of a record whose value may be patched, and may grow to `capacity` bytes, at most
    /// [`MAX_VALUE`], or up to the end of the record's last word.
    pub fn patchable(key_len: usize, capacity: usize, space: KeyspaceId) -> Header {
        let capacity = capacity.next_multiple_of(8);
        Header(Header::record(key_len, capacity, space).0 | PATCHABLE).with_expiry()
    }

    /// Whether the value may be patched, unless it is sealed.
    #[inline(always)]
    pub fn is_patchable(self) -> bool {
        self.0 & PATCHABLE == PATCHABLE
    }

    /// The maximum length of the value of a patchable record.
    pub fn patch_capacity(self) -> usize {
        debug_assert!(self.is_patchable());
        self.plain_len()
    }

    /// This header with a value of `len` bytes, which must fit the record.
    pub fn with_length(self, len: usize) -> Header {
        debug_assert!(self.capacity().is_some_and(|capacity| len <= capacity));
        Header(self.0 & !(LENGTH_MASK << VALUE_SHIFT) | (len as u64) << VALUE_SHIFT)
    }

    /// The maximum length of a value that overwrites this one; `None`: it is never overwritten.
    #[inline(always)]
    pub fn capacity(self) -> Option<usize> {
        (self.0 >> STATE_SHIFT & 3 == STATE_SLACK)
            .then_some((self.0 >> CAPACITY_SHIFT & CAPACITY_MASK) as usize)
    }

    /// The bits that never change once a record is published: all but the marks, and the length of
    /// a value with slack.
    pub fn shape(self) -> u64 {
        let changing = match self.capacity() {
            Some(_) => MARKS_MASK | LENGTH_MASK << VALUE_SHIFT,
            None => MARKS_MASK,
        };
        self.0 & !changing
    }

    /// The value's kind.
    #[inline]
    pub fn kind(self) -> ValueKind {
        // Records never have kinds that this format does not have (see `is_record`).
        ValueKind::of_header(((self.0 & KIND_MASK) >> KIND_SHIFT) as u8)
    }

    /// This header with a value of this kind.
    pub fn with_kind(self, kind: ValueKind) -> Header {
        Header(self.0 & !KIND_MASK | u64::from(kind.number()) << KIND_SHIFT)
    }

    /// This header with an expiry word.
    pub fn with_expiry(self) -> Header {
        Header(self.0 | 1 << EXPIRY_SHIFT)
    }

    #[inline]
    pub fn key_len(self) -> usize {
        (self.0 & 0xffff) as usize
    }

    /// Not for a patchable record, which has the length in a word of its own.
    #[inline(always)]
    pub fn value_len(self) -> usize {
        debug_assert!(!self.is_patchable());
        if self.capacity().is_some() {
            self.plain_len() & LENGTH_MASK as usize
        } else {
            self.plain_len()
        }
    }

    #[inline]
    pub fn has_expiry(self) -> bool {
        self.0 >> EXPIRY_SHIFT & 1 == 1
    }

    #[inline]
    pub fn space(self) -> KeyspaceId {
        match self.kind() {
            ValueKind::ANCHOR => KeyspaceId::ANCHORS,
            ValueKind::INNER => KeyspaceId::INNER,
            _ => KeyspaceId::new((self.0 >> SPACE_SHIFT) as u8),
        }
    }

    /// Whether this is the header of a record, with lengths in range and no kind of a later format.
    #[inline(always)]
    pub fn is_record(self) -> bool {
        match self.0 & (3 << STATE_SHIFT | NO_KIND) {
            PLAIN => self.value_len() <= MAX_VALUE,
            SLACK => self
                .capacity()
                .is_some_and(|capacity| self.value_len() <= capacity && capacity <= MAX_IN_PLACE),
            PATCHABLE => {
                let capacity = self.patch_capacity();
                capacity <= MAX_VALUE && capacity.is_multiple_of(8) && self.has_expiry()
            }
            _ => false,
        }
    }

    /// Bytes from the record's start to its value's end, if this is the header of a string without
    /// slack. The length may still exceed the maximum for values.
    #[inline(always)]
    pub fn plain_end(self) -> Option<usize> {
        let plain = self.0 & (3 << STATE_SHIFT | KIND_MASK) == PLAIN;
        plain.then_some(self.key_offset() + self.key_len() + self.plain_len())
    }

    /// The value's length, if this is the header of a record without slack.
    #[inline(always)]
    pub fn plain_len(self) -> usize {
        (self.0 >> VALUE_SHIFT & 0x7fff_ffff) as usize
    }

    /// How often the record was read recently.
    pub fn marks(self) -> u64 {
        (self.0 & MARKS_MASK) >> MARKS_SHIFT
    }

    /// This header with other marks, below 8.
    pub fn with_marks(self, marks: u64) -> Header {
        Header(self.0 & !MARKS_MASK | marks << MARKS_SHIFT & MARKS_MASK)
    }

    /// Bytes from the record's start to its key.
    #[inline(always)]
    pub fn key_offset(self) -> usize {
        8 + 8 * usize::from(self.has_expiry())
    }

    /// Bytes from the record's start to its value.
    #[inline(always)]
    pub fn value_offset(self) -> usize {
        let key_end = self.key_offset() + self.key_len();
        match self.0 & PATCHABLE {
            SLACK => whole_words(key_end),
            PATCHABLE => whole_words(key_end) + 8,
            _ => key_end,
        }
    }

    /// Bytes that the record occupies, including padding and slack.
    #[inline(always)]
    pub fn size(self) -> u64 {
        let end = if self.0 & PATCHABLE == PLAIN {
            self.key_offset() + self.key_len() + self.plain_len()
        } else {
            self.value_offset() + self.capacity().unwrap_or_else(|| self.plain_len())
        };
        whole_words(end) as u64
    }
}

/// `bytes` rounded up to whole words. (This cannot overflow.)
#[inline(always)]
const fn whole_words(bytes: usize) -> usize {
    (bytes + 7) & !7
}

/// A published record's bytes.
#[derive(Clone, Copy)]
pub(crate) struct Record<'m> {
    header: Header,
    address: *const u8,
    region: PhantomData<&'m [u8]>,
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
        // SAFETY: as in `key`. Values with slack are read so only while no thread can overwrite
        // them, patchable ones once they are sealed.
        unsafe { std::slice::from_raw_parts(self.value_address(), self.value_len()) }
    }

    /// The value's length.
    #[inline]
    pub fn value_len(&self) -> usize {
        match self.patch() {
            None => self.header.value_len(),
            Some((_, word)) => word.len().min(self.header.patch_capacity()),
        }
    }

    /// The word of a patchable record, and its present value.
    #[inline]
    pub fn patch(&self) -> Option<(&'m AtomicU64, PatchWord)> {
        if !self.header.is_patchable() {
            return None;
        }
        // SAFETY: as in `key`; the word before the value is aligned as the record is, and is only
        // accessed as an atomic once the record is published.
        let word = unsafe { &*self.value_address().cast::<AtomicU64>().wrapping_sub(1) };
        Some((word, PatchWord::load(word)))
    }

    /// Where the value begins.
    #[inline]
    pub fn value_address(&self) -> *const u8 {
        self.address.wrapping_add(self.header.value_offset())
    }

    /// Sets the marks, unless the header changes concurrently.
    pub fn set_marks(&self, marks: u64) {
        // SAFETY: the header is the record's first, aligned word, and is only accessed as an atomic
        // once the record is published.
        let word = unsafe { &*self.address.cast::<AtomicU64>() };
        let marked = self.header.with_marks(marks);
        // Relaxed: a hint.
        let _ = word.compare_exchange(self.header.0, marked.0, Relaxed, Relaxed);
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

    /// Stores bytes `offset` bytes behind the record's start. The bucket is held, or the record is
    /// not published yet.
    #[inline(always)]
    pub fn store(&self, offset: usize, bytes: &[u8]) {
        debug_assert!((offset + bytes.len()) as u64 <= self.header.size());
        let to = self.address.cast_mut().wrapping_add(offset);
        // The words of a header and an expiry are read one by one, without a lock.
        if let (words @ ([_] | [_, _]), []) = bytes.as_chunks::<8>()
            && offset.is_multiple_of(8)
        {
            for (i, word) in words.iter().enumerate() {
                // SAFETY: the word is the record's, which is mapped for writing, and aligned as the
                // record is.
                let to = unsafe { &*to.cast::<AtomicU64>().wrapping_add(i) };
                // SYNC: pairs with the Acquire load in `expires`.
                to.store(u64::from_le_bytes(*word), Release);
            }
            return;
        }
        // SAFETY: the bytes are the record's, which is mapped for writing; threads that read them
        // meanwhile do so by `copy_value`, `copy_part` or another racing copy, and no other thread
        // writes to them.
        unsafe { mneme_sys::racy::store(bytes, to) };
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

/// Writes all of a patchable record except its value behind the header word at `address`. `len` is
/// the value's length.
///
/// # Safety
/// As [`write_body`].
pub(crate) unsafe fn write_patchable(
    address: *mut u8,
    header: Header,
    expires: u64,
    key: &[u8],
    len: usize,
) {
    debug_assert!(header.is_patchable() && len <= header.patch_capacity());
    let word = address.wrapping_add(header.value_offset() - 8);
    // SAFETY: the caller reserved these bytes; both words are aligned as the record is.
    unsafe {
        // Relaxed: published with the record.
        (*address.add(8).cast::<AtomicU64>()).store(expires, Relaxed);
        (*word.cast::<AtomicU64>()).store(PatchWord::new(len).0, Relaxed);
        mneme_sys::racy::store(key, address.add(header.key_offset()));
    }
}

/// Writes key and value behind the header word at `address`, and `expires` if there is a word for
/// it.
///
/// # Safety
/// `address` points to `header.size()` bytes that the caller has reserved. No thread reads them yet
/// except copying readers that have lost their pins: these copy by [`mneme_sys::racy`] and discard
/// the copy. The lengths in `header` are those of `key` and `value`.
#[inline(always)]
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
    // SAFETY: the caller reserved these bytes; the ranges follow one another without overlap, and
    // the word behind the header is aligned as the record is.
    unsafe {
        if header.has_expiry() {
            // Relaxed: published with the record.
            (*address.add(8).cast::<AtomicU64>()).store(expires, Relaxed);
        }
        mneme_sys::racy::store(key, address.add(header.key_offset()));
        mneme_sys::racy::store(value, address.add(header.value_offset()));
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
            let last = KeyspaceId::new(63);
            let h = Header::record(k, v, last);
            assert_eq!((h.key_len(), h.value_len(), h.space()), (k, v, last));
            assert!(h.is_record());
            assert_eq!(h.has_expiry(), v > ALWAYS_EXPIRY);
            assert!(h.size() >= (8 + k + v) as u64 && h.size() <= (8 + 8 + k + v + 7) as u64);
            assert_eq!(h.size() % 8, 0);
        }
    }

    #[test]
    fn a_record_with_slack_keeps_its_size_whatever_its_value() {
        for (k, v) in [(0, 0), (1, 1), (9, 100), (16, MAX_IN_PLACE)] {
            let h = Header::with_slack(k, v, v, KeyspaceId::new(63));
            let capacity = h.capacity().unwrap();
            assert!(h.is_record() && capacity >= v && capacity <= v + 7);
            assert_eq!(h.value_offset() % 8, 0);
            for len in [0, v / 2, v, capacity] {
                let now = h.with_length(len);
                assert_eq!((now.value_len(), now.size()), (len, h.size()));
                assert_eq!(
                    (now.key_len(), now.capacity(), now.space()),
                    (k, Some(capacity), KeyspaceId::new(63))
                );
                assert!(now.is_record());
            }
            assert!(h.size() >= h.with_expiry().size() - 8);
        }
        assert_eq!(Header::record(3, 100, KeyspaceId::new(0)).capacity(), None);
    }

    #[test]
    fn a_patchable_record_is_as_long_as_its_capacity() {
        for (k, capacity) in [(0, 0), (1, 1), (9, 5000), (MAX_KEY, MAX_VALUE)] {
            let h = Header::patchable(k, capacity, KeyspaceId::new(63));
            assert!(h.is_record() && h.is_patchable() && h.has_expiry());
            assert_eq!((h.key_len(), h.space()), (k, KeyspaceId::new(63)));
            assert!(h.patch_capacity() >= capacity && h.patch_capacity() < capacity + 8);
            assert_eq!(h.value_offset() % 8, 0);
            assert!(h.value_offset() >= 8 + 8 + k + 8);
            assert_eq!(h.size() as usize, h.value_offset() + h.patch_capacity());
            assert_eq!((h.capacity(), h.plain_end()), (None, None));
        }
        assert!(!Header::record(3, 5000, KeyspaceId::new(0)).is_patchable());
        assert!(!Header::with_slack(3, 50, 50, KeyspaceId::new(0)).is_patchable());
    }

    #[test]
    fn a_kind_changes_nothing_else_and_keeps_the_record_from_optimistic_reads() {
        let kind = ValueKind::new(1).unwrap();
        let space = KeyspaceId::new(63);
        for of in [
            Header::record(9, 100, space).with_expiry(),
            Header::with_slack(9, 100, 120, space),
            Header::patchable(9, 5000, space),
        ] {
            let typed = of.with_kind(kind);
            assert!(typed.is_record());
            assert_eq!((of.kind(), typed.kind()), (ValueKind::STRING, kind));
            assert_eq!((typed.size(), typed.key_len()), (of.size(), of.key_len()));
            assert_eq!(
                (typed.space(), typed.capacity()),
                (of.space(), of.capacity())
            );
            assert_eq!(typed.plain_end(), None);
            assert_eq!(typed.with_kind(ValueKind::STRING), of);
        }
    }

    #[test]
    fn garbage_is_no_record() {
        assert!(!Header(0).is_record());
        assert!(!Header(u64::MAX).is_record());
        let next = Header::record(1, 1, KeyspaceId::new(0)).0 | u64::from(KINDS) << KIND_SHIFT;
        assert!(!Header(next).is_record(), "a kind of a later format");
    }
}
