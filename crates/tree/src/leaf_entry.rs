//! An entry in its leaf.

use std::cmp::Ordering;

use crate::StoreError;
use crate::checksum::crc32c;
use crate::layout::{
    ENTRY_HEADER, EXTENT_HEADER, EntryHeader, EntryKind, ExtentHeader, LeafId, TreeExtent,
};
use crate::layout::{KEY_PREFIX, MAX_INLINE_KEY, long_key_sum};
use crate::pages::TreePages;

/// An entry in place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeafEntry<'p> {
    header: &'p EntryHeader,
    /// The whole entry with its padding.
    pub(crate) bytes: &'p [u8],
}

/// The entry at `offset` of a leaf.
///
/// Offsets come from the [`Leaf`](crate::leaf::Leaf), whose entries were verified when it was
/// loaded, or were written by this process. The leaf's place is not reused while the leaf is
/// borrowed, and the result borrows it.
#[inline]
pub(crate) fn entry(pages: &TreePages, id: LeafId, offset: u16) -> LeafEntry<'_> {
    let at = usize::from(offset);
    // SAFETY: see above: the entry lies in the leaf, and entries are never stored to again. Leaves
    // and entries begin at multiples of 8.
    let header: &EntryHeader = unsafe { &*pages.in_leaf(id, at, ENTRY_HEADER).as_ptr().cast() };
    // SAFETY: as above.
    let bytes = unsafe { pages.in_leaf(id, at, header.size()) };
    LeafEntry { header, bytes }
}

/// The first 8 bytes as a number with the same order.
#[inline]
pub(crate) fn head(bytes: &[u8]) -> u64 {
    if let Some(first) = bytes.first_chunk() {
        return u64::from_be_bytes(*first);
    }
    match (bytes.first_chunk(), bytes.last_chunk()) {
        // They overlap and agree.
        (Some(first), Some(last)) => {
            let last = u64::from(u32::from_be_bytes(*last)) << (64 - 8 * bytes.len());
            u64::from(u32::from_be_bytes(*first)) << 32 | last
        }
        _ => {
            let shifted = bytes.iter().zip([56, 48, 40]);
            shifted.fold(0, |head, (byte, by)| head | u64::from(*byte) << by)
        }
    }
}

/// One byte of a key's hash.
#[inline]
pub(crate) fn fingerprint(key: &[u8]) -> u8 {
    const K: u64 = 0x9e37_79b9_7f4a_7c15;
    if key.len() > MAX_INLINE_KEY {
        return (long_key_sum(key) >> 24) as u8;
    }
    let add = |hash: u64, word: u64| (hash.rotate_left(23) ^ word).wrapping_mul(K);
    let len = key.len() as u64;
    let hash = match key.last_chunk() {
        // The last word overlaps the previous one.
        Some(last) => {
            let (words, _) = key[..key.len() - 1].as_chunks();
            let words = words.iter().chain(std::iter::once(last));
            words.fold(len, |hash, word| add(hash, u64::from_le_bytes(*word)))
        }
        None => add(len, head(key)),
    };
    (hash >> 56) as u8
}

/// The [`fingerprint`] of an entry's key, from its header and the bytes after it.
#[inline]
pub(crate) fn fingerprint_of(header: &EntryHeader, body: &[u8]) -> u8 {
    match header.has_long_key() {
        true => (EntryHeader::long_key_sum(body) >> 24) as u8,
        false => fingerprint(&body[..header.inline_key()]),
    }
}

impl<'p> LeafEntry<'p> {
    /// The key. The caller must be reading a version that shows the entry: otherwise the extent of
    /// a long key may have been reused.
    #[inline]
    pub(crate) fn key(&self, pages: &'p TreePages) -> &'p [u8] {
        match self.has_long_key() {
            true => self.long_key(pages),
            false => self.inline_key(),
        }
    }

    /// The version that wrote it.
    #[inline]
    pub(crate) fn start(&self) -> u64 {
        self.header.version()
    }

    /// The part of the key that the entry holds: the whole key, or the first bytes of a long one.
    #[inline]
    fn inline_key(&self) -> &'p [u8] {
        &self.bytes[ENTRY_HEADER..ENTRY_HEADER + self.header.inline_key()]
    }

    #[cold]
    fn long_key(&self, pages: &'p TreePages) -> &'p [u8] {
        let len = EntryHeader::long_key_len(&self.bytes[ENTRY_HEADER..]) as usize;
        self.in_extent(pages).get(..len).unwrap_or_default()
    }

    /// The content of the entry's extent.
    fn in_extent(&self, pages: &'p TreePages) -> &'p [u8] {
        match self.extent() {
            // SAFETY: it lies inside the medium: the leaf made sure when it was loaded. It is not
            // reused while a version is read that shows the entry.
            Some(extent) => unsafe { pages.in_extent(extent) },
            None => &[],
        }
    }

    /// Whether `version`, which the caller reads, has the entry, and it is for this key. A damaged
    /// long key with the right checksum matches too.
    #[inline]
    pub(crate) fn is_of(&self, pages: &'p TreePages, key: &[u8], version: u64) -> bool {
        if self.has_long_key() {
            return self.start() <= version && self.is_of_long(pages, key);
        }
        self.inline_key() == key && self.start() <= version
    }

    #[cold]
    fn is_of_long(&self, pages: &'p TreePages, key: &[u8]) -> bool {
        let body = &self.bytes[ENTRY_HEADER..];
        let is_like = EntryHeader::long_key_len(body) as usize == key.len()
            && self.inline_key() == &key[..key.len().min(KEY_PREFIX)];
        is_like
            && (self.long_key(pages) == key
                || EntryHeader::long_key_sum(body) == long_key_sum(key)
                    && self.verify_extent(pages).is_err())
    }

    /// Compares the key with another; the same condition as for [`key`](Self::key). The extent of a
    /// long key is read only if the part in the entry does not decide.
    #[inline]
    pub(crate) fn compare(&self, pages: &'p TreePages, other: &[u8]) -> Ordering {
        if !self.has_long_key() {
            return self.inline_key().cmp(other);
        }
        let begins = self.inline_key().cmp(&other[..other.len().min(KEY_PREFIX)]);
        begins.then_with(|| self.long_key(pages).cmp(other))
    }

    /// Bytes of the key from `from` on, at least eight if it has as many; the same condition as for
    /// [`key`](Self::key).
    #[inline]
    pub(crate) fn key_from(&self, pages: &'p TreePages, from: usize) -> &'p [u8] {
        let key = match self.has_long_key() && from + 8 > KEY_PREFIX {
            true => self.long_key(pages),
            false => self.inline_key(),
        };
        key.get(from..).unwrap_or_default()
    }

    #[inline]
    pub(crate) fn has_long_key(&self) -> bool {
        self.header.has_long_key()
    }

    /// Whether the entry records that the key was removed.
    #[inline]
    pub(crate) fn is_removal(&self) -> bool {
        self.header.kind() == EntryKind::Removal
    }

    /// The value. The caller must be reading a version that shows the entry: otherwise its extent
    /// may have been reused.
    #[inline]
    pub(crate) fn value(&self, pages: &'p TreePages) -> Option<&'p [u8]> {
        match self.header.kind() {
            EntryKind::Value => {
                let from = ENTRY_HEADER + self.header.key_part();
                Some(&self.bytes[from..from + self.header.value_len as usize])
            }
            EntryKind::Removal => None,
            EntryKind::Extent => {
                let len = self.header.value_len as usize;
                let both = self.in_extent(pages);
                both.len().checked_sub(len).map(|key| &both[key..])
            }
        }
    }

    /// Whether the key or the value lies in an extent.
    #[inline]
    pub(crate) fn is_outside(&self) -> bool {
        self.has_long_key() || self.header.kind() == EntryKind::Extent
    }

    /// The place of the key or the value, if it is not in the leaf.
    #[inline]
    pub(crate) fn extent(&self) -> Option<TreeExtent> {
        if !self.is_outside() {
            return None;
        }
        self.header.extent(&self.bytes[ENTRY_HEADER..])
    }

    /// Compares the checksums of the entry and of its extent. A caller that copies the entry must
    /// do so: the copy gets a checksum of its own, which would make damage look valid. As for
    /// [`value`](Self::value), the caller must be reading a version that shows the entry.
    pub(crate) fn verify(&self, pages: &'p TreePages) -> Result<(), StoreError> {
        if !self.header.is_whole(self.bytes) {
            return Err(StoreError::Damaged {
                at: pages.place(self.bytes),
                what: "an entry of a leaf",
            });
        }
        self.verify_extent(pages)
    }

    /// Compares the checksums of its extent, if it has one. The error names the key.
    pub(crate) fn verify_extent(&self, pages: &TreePages) -> Result<(), StoreError> {
        let Some(extent) = self.extent() else {
            return Ok(());
        };
        verify_extent(pages, extent, self.start()).map_err(|error| match error {
            StoreError::Damaged { at, .. } => StoreError::DamagedValue {
                key: self.inline_key().to_vec(),
                at,
            },
            other => other,
        })
    }
}

/// Compares the checksums of an extent that was born at `birth`. The caller must be reading a
/// version that has it.
pub(crate) fn verify_extent(
    pages: &TreePages,
    extent: TreeExtent,
    birth: u64,
) -> Result<(), StoreError> {
    let mut bytes = [0; EXTENT_HEADER];
    pages.copy(extent.header_at(), &mut bytes);
    let header = ExtentHeader::read(&bytes);
    let expected = (extent.len, birth);
    if !header.is_valid(extent.place()) || (header.len, header.birth()) != expected {
        return Err(StoreError::Damaged {
            at: extent.header_at(),
            what: "the header of an extent that is in use",
        });
    }
    // SAFETY: the leaf that names it made sure that it lies inside the medium; a version is read
    // that has it.
    if header.data_crc != crc32c(0, unsafe { pages.in_extent(extent) }) {
        return Err(StoreError::Damaged {
            at: extent.at(),
            what: "a long value or a long key",
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{fingerprint, head};

    #[test]
    fn a_head_compares_as_the_first_bytes_do_and_a_fingerprint_depends_on_all() {
        let bytes: Vec<u8> = (1..=36).map(|n| n * 7).collect();
        for len in 0..=bytes.len() {
            let mut padded = [0; 8];
            padded[..len.min(8)].copy_from_slice(&bytes[..len.min(8)]);
            assert_eq!(
                head(&bytes[..len]),
                u64::from_be_bytes(padded),
                "{len} bytes"
            );
            for changed in 0..len {
                let differs = |by: u8| {
                    let mut other = bytes[..len].to_vec();
                    other[changed] ^= by;
                    fingerprint(&other) != fingerprint(&bytes[..len])
                };
                assert!((1..20).any(differs), "byte {changed} of {len}");
            }
        }
    }
}
