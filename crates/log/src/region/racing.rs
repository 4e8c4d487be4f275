//! A region as it is read under a pin that may be revoked. The bytes may belong to another record
//! by then, and are nevertheless copied without undefined behaviour.
//!
//! [`Racing`] has the memory of [`Mem`], and the index is searched by code that both share. Nothing
//! of it is lent: words are atomics, keys are compared word by word, values are copied by
//! [`mneme_sys::racy`]. A header is read once, and its lengths are checked against the mapping. So
//! bytes of another kind yield a wrong result or [`Corrupt`], and either counts only if the pin was
//! still valid at the end (see [`crate::records::read::copying`]).
//!
//! Writers that may be at work there meanwhile use atomics too, or `racy` (see
//! [`write_body`](crate::region::record::write_body)).

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::buffer::{NoMemory, reserve};
use crate::error::Corrupt;
use crate::region::mem::{Keyed, Loc, Mem, Memory};
use crate::region::patch_word::PatchWord;
use crate::region::record::Header;

/// Bytes that are copied between two checks of the pin.
pub(crate) const PIECE: usize = 1 << 20;

/// A region whose records other threads may be overwriting.
#[derive(Clone, Copy)]
pub(crate) struct Racing<'m>(pub &'m Mem);

/// What looks like a record.
#[derive(Clone, Copy)]
pub(crate) struct RacingRecord<'m> {
    header: Header,
    address: *const u8,
    region: PhantomData<&'m Mem>,
}

impl Memory for Racing<'_> {
    type Word = AtomicU64;
    type Record<'m>
        = RacingRecord<'m>
    where
        Self: 'm;

    #[inline(always)]
    fn words<const N: usize>(&self, loc: Loc) -> Result<&[AtomicU64; N], Corrupt> {
        self.0.words(loc)
    }

    #[inline(always)]
    fn record(&self, loc: Loc) -> Result<RacingRecord<'_>, Corrupt> {
        let header = Memory::header(self, loc)?;
        Ok(RacingRecord {
            header,
            address: self.0.address(loc, header.size())?,
            region: PhantomData,
        })
    }
}

impl Keyed for RacingRecord<'_> {
    #[inline(always)]
    fn has_key(&self, key: &[u8]) -> bool {
        if self.header.key_len() != key.len() {
            return false;
        }
        let (whole, rest) = key.as_chunks::<8>();
        let words = self.address.wrapping_add(self.header.key_offset());
        // SAFETY: a record's key begins at a multiple of 8 bytes, and the words that it lies in are
        // the record's, which is mapped (`Racing::record` checked that).
        let word = |i: usize| unsafe { &*words.cast::<AtomicU64>().wrapping_add(i) }.load(Relaxed);
        let mut differ = 0;
        for (i, bytes) in whole.iter().enumerate() {
            differ |= word(i) ^ u64::from_le_bytes(*bytes);
        }
        if !rest.is_empty() {
            let unused = 64 - 8 * rest.len();
            let last = match key.last_chunk::<8>() {
                Some(last) => u64::from_le_bytes(*last) >> unused,
                None => rest.iter().rev().fold(0, |w, b| w << 8 | u64::from(*b)),
            };
            // The bytes after the key in its last word are ignored.
            differ |= (word(whole.len()) ^ last) << unused;
        }
        differ == 0
    }
}

impl<'m> RacingRecord<'m> {
    /// What looks like a record with this header at `address`.
    ///
    /// # Safety
    /// Its `header.size()` bytes are mapped for `'m`; `address` is aligned to 8.
    #[inline(always)]
    pub(crate) unsafe fn new(header: Header, address: *const u8) -> RacingRecord<'m> {
        RacingRecord {
            header,
            address,
            region: PhantomData,
        }
    }

    #[inline]
    pub fn header(&self) -> Header {
        self.header
    }

    /// When it expires, in wall-clock milliseconds; 0: never.
    #[inline(always)]
    pub fn expires(&self) -> u64 {
        if !self.header.has_expiry() {
            return 0;
        }
        // SAFETY: the word behind the header is the record's, and aligned as that is.
        // SYNC: pairs with the Release store in `Record::set_expires`.
        unsafe { &*self.address.wrapping_add(8).cast::<AtomicU64>() }.load(Acquire)
    }

    /// Appends the key.
    pub fn append_key(&self, to: &mut Vec<u8>) -> Result<(), NoMemory> {
        let key = self.address.wrapping_add(self.header.key_offset());
        // SAFETY: the key is a part of the record.
        unsafe { append(key, self.header.key_len(), to) }
    }

    /// The word of a patchable record, and its present value.
    #[inline]
    pub fn patch(&self) -> Option<(&'m AtomicU64, PatchWord)> {
        if !self.header.is_patchable() {
            return None;
        }
        let value = self.address.wrapping_add(self.header.value_offset());
        // SAFETY: the word before the value is the record's, and aligned as that is.
        let word = unsafe { &*value.cast::<AtomicU64>().wrapping_sub(1) };
        Some((word, PatchWord::load(word)))
    }

    /// Appends at most [`PIECE`] bytes of the value.
    #[inline(always)]
    pub fn append_part(&self, part: Range<usize>, to: &mut Vec<u8>) -> Result<(), NoMemory> {
        debug_assert!(part.len() <= PIECE);
        let value = self.address.wrapping_add(self.header.value_offset());
        // SAFETY: the value is a part of the record.
        unsafe { append(value.wrapping_add(part.start), part.len(), to) }
    }

    /// The value of a record without slack, in place.
    ///
    /// # Safety
    /// The caller has been pinned firmly since before it found the record published, and stays so
    /// for `'m`; the record neither has slack nor is patchable.
    #[inline(always)]
    pub unsafe fn lend_plain_value(&self) -> &'m [u8] {
        debug_assert!(self.header.capacity().is_none() && !self.header.is_patchable());
        // SAFETY: the value is a part of the record, which is mapped; its bytes were written before
        // it was published and do not change while the caller is pinned.
        unsafe { std::slice::from_raw_parts(self.plain_value(), self.header.plain_len()) }
    }

    /// Where the value of a record without slack begins.
    #[inline(always)]
    fn plain_value(&self) -> *const u8 {
        let before = self.header.key_offset() + self.header.key_len();
        self.address.wrapping_add(before)
    }

    /// Appends the value of a record without slack, of at most [`PIECE`] bytes.
    #[inline(always)]
    pub fn append_plain_value(&self, to: &mut Vec<u8>) -> Result<(), NoMemory> {
        debug_assert!(self.header.capacity().is_none() && self.header.plain_len() <= PIECE);
        // SAFETY: the value is a part of the record.
        unsafe { append(self.plain_value(), self.header.plain_len(), to) }
    }

    /// Appends a part of the value, while `holds` returns true. Returns false if `holds` did.
    ///
    /// A long part may take longer to copy than others wait for a pin. Also, the length must be
    /// known to be valid before that much memory is allocated.
    pub fn append_range(
        &self,
        range: Range<usize>,
        to: &mut Vec<u8>,
        holds: impl Fn() -> bool,
    ) -> Result<bool, NoMemory> {
        if range.len() <= PIECE {
            self.append_part(range, to)?;
            return Ok(true);
        }
        if !holds() {
            return Ok(false);
        }
        let begin = to.len();
        reserve(to, range.len())?;
        for at in range.clone().step_by(PIECE) {
            self.append_part(at..range.end.min(at + PIECE), to)?;
            if !holds() {
                to.truncate(begin);
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Appends `len` bytes.
///
/// # Safety
/// The words that they lie in are mapped, and written to by atomics or [`mneme_sys::racy`] alone.
#[inline(always)]
unsafe fn append(from: *const u8, len: usize, to: &mut Vec<u8>) -> Result<(), NoMemory> {
    reserve(to, len)?;
    let end = to.as_mut_ptr().wrapping_add(to.len());
    // SAFETY: reserved just now, and no other thread has it.
    let space = unsafe { std::slice::from_raw_parts_mut(end.cast::<MaybeUninit<u8>>(), len) };
    if mneme_sys::fault::ENABLED {
        // With fault points compiled in, the copy has a middle at which the reader can be stopped.
        let (first, second) = space.split_at_mut(len / 2);
        // SAFETY: as below.
        unsafe { mneme_sys::racy::load_uninit(from, first) };
        mneme_sys::fault!("log.copy.during");
        // SAFETY: as below.
        unsafe { mneme_sys::racy::load_uninit(from.wrapping_add(len / 2), second) };
    } else {
        // SAFETY: the caller's promise.
        unsafe { mneme_sys::racy::load_uninit(from, space) };
    }
    // SAFETY: reserved, and written just now.
    unsafe { to.set_len(to.len() + len) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::space::KeyspaceId;

    /// Every byte of a key counts, and the bytes after it in its last word do not.
    #[test]
    fn a_key_is_compared_to_its_last_byte() {
        for len in 0..40 {
            let header = Header::record(len, 3, KeyspaceId::new(0));
            let key: Vec<u8> = (0..len as u8).map(|i| i ^ 0xa5).collect();
            let mut bytes = vec![0xff; header.size() as usize];
            bytes[8..8 + len].copy_from_slice(&key);
            let words: Vec<u64> = bytes
                .as_chunks::<8>()
                .0
                .iter()
                .map(|word| u64::from_le_bytes(*word))
                .collect();
            let record = RacingRecord {
                header,
                address: words.as_ptr().cast(),
                region: PhantomData,
            };
            assert!(record.has_key(&key), "{len}");
            for i in 0..len {
                let mut other = key.clone();
                other[i] ^= 0x80;
                assert!(!record.has_key(&other), "byte {i} of {len}");
            }
            assert!(!record.has_key(&[&key[..], b"x"].concat()));
            let mut value = b"before".to_vec();
            record.append_part(0..3, &mut value).unwrap();
            assert_eq!(value, b"before\xff\xff\xff");
            value.clear();
            record.append_key(&mut value).unwrap();
            assert_eq!(value, key);
        }
    }
}
