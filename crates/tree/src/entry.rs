//! An entry as it lies in its leaf.

use crate::StoreError;
use crate::checksum::crc32c;
use crate::layout::{
    ENTRY_HEADER, EXTENT_HEADER, EntryHeader, Extent, ExtentHeader, Kind, LeafId, Stored,
};
use crate::pages::Pages;

/// An entry, where it lies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry<'p> {
    pub(crate) start: u64,
    pub(crate) key: &'p [u8],
    /// `None`: the key was removed.
    pub(crate) stored: Option<Stored<'p>>,
    /// All of it, padding included.
    pub(crate) bytes: &'p [u8],
}

/// The entry at `offset` of a leaf.
///
/// Offsets come from the [`Leaf`](crate::leaf::Leaf), whose entries were verified when it was
/// loaded, or were written by this process. Its place is not reused while it lives: what is handed
/// on borrows the leaf, too.
#[inline]
pub(crate) fn entry(pages: &Pages, id: LeafId, offset: u16) -> Entry<'_> {
    let at = usize::from(offset);
    // SAFETY: see above: the entry lies in the leaf, and entries are never stored to again.
    let header = EntryHeader::read(unsafe { pages.in_leaf(id, at, ENTRY_HEADER) });
    let key = usize::from(header.key_len);
    // SAFETY: as above.
    let bytes = unsafe { pages.in_leaf(id, at, header.size()) };
    let (key, rest) = bytes[ENTRY_HEADER..].split_at(key);
    let stored = match header.kind() {
        Kind::Value => Some(Stored::Bytes(&rest[..header.value_len as usize])),
        Kind::Removal => None,
        Kind::Extent => Some(Stored::Extent(header.extent(rest))),
    };
    Entry {
        start: header.version(),
        key,
        stored,
        bytes,
    }
}

impl<'p> Entry<'p> {
    /// The value, of an entry that a version shows that the caller reads. The extent of any other
    /// entry may be another value's by now.
    #[inline]
    pub(crate) fn value(&self, pages: &'p Pages) -> Option<&'p [u8]> {
        self.stored.map(|stored| match stored {
            Stored::Bytes(bytes) => bytes,
            // SAFETY: it lies inside the medium: the leaf made sure when it was loaded. It is not
            // reused while a version is read that shows the entry.
            Stored::Extent(extent) => unsafe { pages.in_extent(extent) },
        })
    }

    /// Where the value lies, if not in the leaf.
    pub(crate) fn extent(&self) -> Option<Extent> {
        match self.stored {
            Some(Stored::Extent(extent)) => Some(extent),
            _ => None,
        }
    }

    /// Compares the checksums of the entry and of its value. A value that is stored again gets a
    /// checksum of its own, which would sign damage. As for [`value`](Self::value), the caller
    /// reads a version that shows the entry.
    pub(crate) fn verify(&self, pages: &'p Pages) -> Result<(), StoreError> {
        if !EntryHeader::read(self.bytes).is_whole(self.bytes) {
            return Err(StoreError::Damaged {
                at: pages.place(self.bytes),
                what: "an entry of a leaf",
            });
        }
        match self.extent() {
            Some(extent) => self.verify_extent(pages, extent),
            None => Ok(()),
        }
    }

    /// Compares the checksums of the value, which lies in this extent.
    pub(crate) fn verify_extent(&self, pages: &'p Pages, extent: Extent) -> Result<(), StoreError> {
        let mut bytes = [0; EXTENT_HEADER];
        pages.copy(extent.header_at(), &mut bytes);
        let header = ExtentHeader::read(&bytes);
        let expected = (extent.len, self.start);
        if !header.is_valid(extent.place()) || (header.len, header.birth()) != expected {
            return Err(StoreError::Damaged {
                at: extent.header_at(),
                what: "the header of an extent that an entry names",
            });
        }
        if header.data_crc != crc32c(0, self.value(pages).unwrap_or_default()) {
            return Err(StoreError::Damaged {
                at: extent.at(),
                what: "a long value",
            });
        }
        Ok(())
    }
}
