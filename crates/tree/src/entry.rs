//! An entry as it lies in its leaf.

use crate::layout::{ENTRY_HEADER, EntryHeader, Extent, Kind, LeafId};
use crate::pages::Pages;

/// An entry, where it lies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry<'p> {
    pub(crate) start: u64,
    pub(crate) key: &'p [u8],
    /// `None`: the key was removed.
    pub(crate) value: Option<&'p [u8]>,
    /// Where the value lies, if not in the leaf.
    pub(crate) extent: Option<Extent>,
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
    let (value, extent) = match header.kind() {
        Kind::Value => (Some(&rest[..header.value_len as usize]), None),
        Kind::Removal => (None, None),
        Kind::Extent => {
            let extent = header.extent(rest);
            // SAFETY: it lies inside the medium: the leaf made sure when it was loaded. It is not
            // reused while a version is read that the entry belongs to.
            (Some(unsafe { pages.in_extent(extent) }), Some(extent))
        }
    };
    Entry {
        start: header.version(),
        key,
        value,
        extent,
        bytes,
    }
}
