//! Entries of a leaf: a header of 24 bytes, the key, the value, padding to 8.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::{Extent, LeafId, MAX_INLINE, MAX_KEY, MAX_VALUE, align8};
use crate::checksum::{Stamp, crc32c, stamp, unstamp};

/// Bytes of an entry's header.
pub(crate) const ENTRY_HEADER: usize = 24;
/// Bytes of an extent's place.
const PLACE: usize = 8;
/// What its checksum covers begins here; the version before it counts too.
const CHECKED: usize = 12;

/// What an entry says of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It has this value from `start` on.
    Value,
    /// It has none from `start` on.
    Removal,
    /// It has a value from `start` on, which lies in an extent; the entry has the extent's place.
    Extent,
}

/// What an entry holds of its value.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stored<'b> {
    /// All of it.
    Bytes(&'b [u8]),
    /// Where it lies.
    Extent(Extent),
}

/// The header of an entry.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct EntryHeader {
    /// The stamped version that wrote it; 0 behind the last entry.
    start: u64,
    /// Of the version and everything else, not of the place: it moves with the entry.
    crc: u32,
    pub(crate) value_len: u32,
    pub(crate) key_len: u16,
    kind: u16,
    reserved: u32,
}

const _: () = assert!(size_of::<EntryHeader>() == ENTRY_HEADER);

/// Bytes that an entry takes in its leaf.
pub(crate) const fn entry_size(key: usize, value: usize) -> usize {
    let stored = if value > MAX_INLINE { PLACE } else { value };
    align8(ENTRY_HEADER + key + stored)
}

/// Appends an entry for the leaf `id`, where it will lie at `at`, to `out`.
pub(crate) fn write_entry(
    out: &mut Vec<u8>,
    id: LeafId,
    at: usize,
    version: u64,
    key: &[u8],
    value: Option<Stored<'_>>,
) {
    let from = out.len();
    let (kind, len) = match value {
        None => (Kind::Removal, 0),
        Some(Stored::Bytes(bytes)) => (Kind::Value, bytes.len() as u32),
        Some(Stored::Extent(extent)) => (Kind::Extent, extent.len),
    };
    let header = EntryHeader {
        start: stamp(version, salt(id, at)),
        crc: 0,
        value_len: len,
        key_len: key.len() as u16,
        kind: kind as u16,
        reserved: 0,
    };
    out.extend_from_slice(header.as_bytes());
    out.extend_from_slice(key);
    match value {
        None => {}
        Some(Stored::Bytes(bytes)) => out.extend_from_slice(bytes),
        Some(Stored::Extent(extent)) => out.extend_from_slice(&extent.word().to_le_bytes()),
    }
    let end = out.len();
    let crc = sum(version, &out[from + CHECKED..end]);
    out[from + 8..from + 12].copy_from_slice(&crc.to_le_bytes());
    out.resize(from + align8(end - from), 0);
}

/// Appends an entry that lies in another leaf, given with its padding. Its checksum comes with it,
/// so that damage stays visible.
pub(crate) fn move_entry(out: &mut Vec<u8>, id: LeafId, at: usize, entry: &[u8]) {
    let version = EntryHeader::read(entry).version();
    out.extend_from_slice(&stamp(version, salt(id, at)).to_le_bytes());
    out.extend_from_slice(&entry[8..]);
}

fn salt(id: LeafId, at: usize) -> u64 {
    u64::from(id.0) << 16 | at as u64
}

/// The checksum of an entry, given the bytes from [`CHECKED`] on without the padding.
fn sum(version: u64, rest: &[u8]) -> u32 {
    crc32c((version ^ version >> 32) as u32, rest)
}

impl EntryHeader {
    /// The header at the beginning of `bytes`; zeros where there are too few.
    #[inline]
    pub(crate) fn read(bytes: &[u8]) -> Self {
        Self::read_from_prefix(bytes).map_or_else(|_| Self::new_zeroed(), |(header, _)| header)
    }

    /// The version that wrote the entry, which lies at `at` of the leaf `id`.
    pub(crate) fn start(&self, id: LeafId, at: usize) -> Stamp {
        unstamp(self.start, salt(id, at))
    }

    /// The version, of an entry that is known to be whole.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.start & ((1 << crate::checksum::VERSION_BITS) - 1)
    }

    #[inline]
    pub(crate) fn kind(&self) -> Kind {
        match self.kind {
            0 => Kind::Value,
            1 => Kind::Removal,
            _ => Kind::Extent,
        }
    }

    /// Bytes of the entry behind its key.
    #[inline]
    pub(crate) fn stored_len(&self) -> usize {
        match self.kind() {
            Kind::Extent => PLACE,
            _ => self.value_len as usize,
        }
    }

    /// Where the value lies, of an entry of that kind with `stored` behind its key.
    #[inline]
    pub(crate) fn extent(&self, stored: &[u8]) -> Extent {
        let word = stored.first_chunk();
        Extent::at_word(word.map_or(0, |w| u64::from_le_bytes(*w)), self.value_len)
    }

    /// Bytes that the entry takes.
    #[inline]
    pub(crate) fn size(&self) -> usize {
        entry_size(usize::from(self.key_len), self.stored_len())
    }

    /// Whether the entry is whole that has this header and begins with `bytes`, which end with its
    /// leaf or before.
    pub(crate) fn is_whole(&self, bytes: &[u8]) -> bool {
        let len = ENTRY_HEADER + usize::from(self.key_len) + self.stored_len();
        usize::from(self.key_len) <= MAX_KEY
            && self.stored_len() <= MAX_INLINE
            && self.value_len as usize <= MAX_VALUE
            && self.kind <= Kind::Extent as u16
            && len <= bytes.len()
            && self.crc == sum(self.version(), &bytes[CHECKED..len])
    }
}
