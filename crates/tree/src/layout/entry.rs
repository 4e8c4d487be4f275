//! Entries of a leaf: a header of 24 bytes, the key, the value, padding to 8. An entry with a long
//! key holds the first bytes of the key and the place of the extent that holds the whole key.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::{LeafId, MAX_INLINE, MAX_INLINE_KEY, MAX_KEY, MAX_VALUE, TreeExtent, align8};
use crate::checksum::{WordStamp, crc32c, stamp, unstamp};

/// Bytes of an entry's header.
pub(crate) const ENTRY_HEADER: usize = 24;
/// Bytes of an extent's place.
const PLACE: usize = 8;
/// The part covered by the checksum begins here; the checksum also covers the version before it.
const CHECKED: usize = 12;
/// The bytes of a long key that its entry holds: they decide most comparisons.
pub(crate) const KEY_PREFIX: usize = 64;
/// The bytes that represent a long key in an entry: its prefix, the extent's place, the key's
/// checksum and its length.
const LONG_KEY: usize = KEY_PREFIX + PLACE + 8;
/// Set in an entry's kind: the key is long.
const KEY_OUTSIDE: u16 = 4;
/// Set in an entry's kind: the entry is all that its commit has stored, and makes it durable.
const ALONE: u16 = 8;

/// What an entry states about its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryKind {
    /// From version `start` on the key has this value.
    Value,
    /// From version `start` on the key has no value.
    Removal,
    /// From version `start` on the key has a value that lies in an extent; the entry holds the
    /// extent's place.
    Extent,
}

/// The header of an entry.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct EntryHeader {
    /// The stamped version that wrote the entry; 0 after the last entry.
    start: u64,
    /// Covers the version and everything else, except the place, because it moves with the entry.
    crc: u32,
    pub(crate) value_len: u32,
    /// Bytes of the entry that represent the key.
    key_part: u16,
    kind: u16,
    reserved: u32,
}

const _: () = assert!(size_of::<EntryHeader>() == ENTRY_HEADER);

/// Bytes that an entry takes in its leaf.
pub(crate) const fn entry_size(key: usize, value: usize) -> usize {
    let (key, place) = match key > MAX_INLINE_KEY {
        // The extent of the key also holds the value.
        true => (LONG_KEY, 0),
        false => (key, PLACE),
    };
    let stored = if value > MAX_INLINE { place } else { value };
    align8(ENTRY_HEADER + key + stored)
}

/// The parts of a key and its value that lie in their extent, one after the other; empty if they
/// have none.
#[inline]
pub(crate) fn outside<'b>(key: &'b [u8], value: &'b [u8]) -> [&'b [u8]; 2] {
    let key = if key.len() > MAX_INLINE_KEY { key } else { &[] };
    let value = if value.len() > MAX_INLINE { value } else { &[] };
    [key, value]
}

/// The checksum of a long key that its entry stores.
pub(crate) fn long_key_sum(key: &[u8]) -> u32 {
    crc32c(0, key)
}

/// Appends to `out` an entry for the leaf `id`, where it will lie at `at`. The parts [`outside`]
/// lie in `extent`. An entry that is `alone` needs no commit record.
pub(crate) fn write_entry(
    out: &mut Vec<u8>,
    (id, at): (LeafId, usize),
    (version, alone): (u64, bool),
    key: &[u8],
    value: Option<&[u8]>,
    extent: Option<TreeExtent>,
) {
    let from = out.len();
    let mut kind = match value {
        None => EntryKind::Removal,
        Some(value) if value.len() > MAX_INLINE => EntryKind::Extent,
        Some(_) => EntryKind::Value,
    } as u16;
    let is_long = key.len() > MAX_INLINE_KEY;
    kind |= if is_long { KEY_OUTSIDE } else { 0 };
    kind |= if alone { ALONE } else { 0 };
    let header = EntryHeader {
        start: stamp(version, salt(id, at)),
        crc: 0,
        value_len: value.map_or(0, |value| value.len() as u32),
        key_part: if is_long { LONG_KEY } else { key.len() } as u16,
        kind,
        reserved: 0,
    };
    out.extend_from_slice(header.as_bytes());
    let place = extent.map_or(0, TreeExtent::word).to_le_bytes();
    if is_long {
        out.extend_from_slice(&key[..KEY_PREFIX]);
        out.extend_from_slice(&place);
        out.extend_from_slice(&long_key_sum(key).to_le_bytes());
        out.extend_from_slice(&(key.len() as u32).to_le_bytes());
    } else {
        out.extend_from_slice(key);
    }
    match value {
        Some(value) if value.len() <= MAX_INLINE => out.extend_from_slice(value),
        Some(_) if !is_long => out.extend_from_slice(&place),
        _ => {}
    }
    let end = out.len();
    let crc = sum(version, &out[from + CHECKED..end]);
    out[from + 8..from + 12].copy_from_slice(&crc.to_le_bytes());
    // The padding is shorter than these bytes.
    out.extend_from_slice(&[0; 8]);
    out.truncate(from + align8(end - from));
}

/// Appends an entry copied from another leaf, given with its padding. It keeps its checksum, so
/// that damage remains detectable.
pub(crate) fn move_entry(out: &mut Vec<u8>, id: LeafId, at: usize, entry: &[u8]) {
    let version = EntryHeader::read(entry).version();
    out.extend_from_slice(&stamp(version, salt(id, at)).to_le_bytes());
    out.extend_from_slice(&entry[8..]);
}

fn salt(id: LeafId, at: usize) -> u64 {
    u64::from(id.0) << 16 | at as u64
}

/// The checksum of an entry; `rest` is its bytes from [`CHECKED`] on, without the padding.
fn sum(version: u64, rest: &[u8]) -> u32 {
    crc32c((version ^ version >> 32) as u32, rest)
}

impl EntryHeader {
    /// The header at the beginning of `bytes`; zeros if there are too few bytes.
    #[inline]
    pub(crate) fn read(bytes: &[u8]) -> Self {
        Self::read_from_prefix(bytes).map_or_else(|_| Self::new_zeroed(), |(header, _)| header)
    }

    /// The version that wrote the entry at `at` of the leaf `id`.
    pub(crate) fn start(&self, id: LeafId, at: usize) -> WordStamp {
        unstamp(self.start, salt(id, at))
    }

    /// As [`start`](Self::start), for the entry at the beginning of `bytes`, which may end right
    /// after that word.
    pub(crate) fn start_of(bytes: &[u8], id: LeafId, at: usize) -> WordStamp {
        let start = bytes.first_chunk();
        start.map_or(WordStamp::Zero, |start| {
            unstamp(u64::from_le_bytes(*start), salt(id, at))
        })
    }

    /// The version, for an entry that is known to be complete.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.start & ((1 << crate::checksum::VERSION_BITS) - 1)
    }

    #[inline]
    pub(crate) fn kind(&self) -> EntryKind {
        match self.kind & !(KEY_OUTSIDE | ALONE) {
            0 => EntryKind::Value,
            1 => EntryKind::Removal,
            _ => EntryKind::Extent,
        }
    }

    /// Whether its commit stored nothing else, and has no record.
    #[inline]
    pub(crate) fn is_alone(&self) -> bool {
        self.kind & ALONE != 0
    }

    /// The word that it begins with.
    pub(crate) fn first_word(&self) -> u64 {
        self.start
    }

    /// Whether the word after the entry is valid: its commit stored a zero word there, which ends
    /// the leaf, or a later commit stored an entry there. `bytes` begin with the entry, which has
    /// this `version` and lies at `at` of the leaf `id`.
    pub(crate) fn is_followed(
        &self,
        bytes: &[u8],
        version: u64,
        (id, at): (LeafId, usize),
    ) -> bool {
        let behind = bytes.get(self.size()..).unwrap_or_default();
        match Self::start_of(behind, id, at + self.size()) {
            WordStamp::Zero => true,
            WordStamp::Version(next) => next > version,
            WordStamp::Bad => false,
        }
    }

    /// Whether the key lies in an extent.
    #[inline]
    pub(crate) fn has_long_key(&self) -> bool {
        self.kind & KEY_OUTSIDE != 0
    }

    /// Bytes of the entry that represent its key.
    #[inline]
    pub(crate) fn key_part(&self) -> usize {
        usize::from(self.key_part)
    }

    /// Bytes of the key that the entry holds.
    #[inline]
    pub(crate) fn inline_key(&self) -> usize {
        match self.has_long_key() {
            true => KEY_PREFIX,
            false => self.key_part(),
        }
    }

    /// Bytes of the entry after those that represent its key.
    #[inline]
    pub(crate) fn stored_len(&self) -> usize {
        const PLACE_OF_VALUE: u16 = EntryKind::Extent as u16;
        const BOTH_OUTSIDE: u16 = EntryKind::Extent as u16 | KEY_OUTSIDE;
        match self.kind & !ALONE {
            PLACE_OF_VALUE => PLACE,
            BOTH_OUTSIDE => 0,
            _ => self.value_len as usize,
        }
    }

    /// The place of the key or value or both, if one of them is long; `body` is the bytes after the
    /// header.
    pub(crate) fn extent(&self, body: &[u8]) -> Option<TreeExtent> {
        let is_value = self.kind() == EntryKind::Extent;
        let (at, key) = match self.has_long_key() {
            true => (KEY_PREFIX, Self::long_key_len(body)),
            false if is_value => (self.key_part(), 0),
            false => return None,
        };
        let word = body.get(at..).and_then(|rest| rest.first_chunk());
        let word = word.map_or(0, |word| u64::from_le_bytes(*word));
        let value = if is_value { self.value_len } else { 0 };
        Some(TreeExtent::at_word(word, key.saturating_add(value)))
    }

    /// The checksum of the long key; `body` is the bytes after the header.
    pub(crate) fn long_key_sum(body: &[u8]) -> u32 {
        Self::word(body, KEY_PREFIX + PLACE)
    }

    /// The length of the long key; `body` is the bytes after the header.
    pub(crate) fn long_key_len(body: &[u8]) -> u32 {
        Self::word(body, KEY_PREFIX + PLACE + 4)
    }

    fn word(body: &[u8], at: usize) -> u32 {
        let word = body.get(at..).and_then(|rest| rest.first_chunk());
        word.map_or(0, |word| u32::from_le_bytes(*word))
    }

    /// The size of the entry.
    #[inline]
    pub(crate) fn size(&self) -> usize {
        align8(self.len())
    }

    /// The size of the entry without the padding.
    #[inline]
    fn len(&self) -> usize {
        ENTRY_HEADER + self.key_part() + self.stored_len()
    }

    /// Whether the entry with this header is complete. `bytes` begin with the entry, and end at the
    /// latest with its leaf.
    pub(crate) fn is_whole(&self, bytes: &[u8]) -> bool {
        let is_key = match self.has_long_key() {
            true => {
                let body = bytes.get(ENTRY_HEADER..).unwrap_or_default();
                let len = Self::long_key_len(body) as usize;
                self.key_part() == LONG_KEY && (MAX_INLINE_KEY + 1..=MAX_KEY).contains(&len)
            }
            false => self.key_part() <= MAX_INLINE_KEY,
        };
        is_key
            && self.stored_len() <= MAX_INLINE
            && self.value_len as usize <= MAX_VALUE
            && self.kind & !(KEY_OUTSIDE | ALONE) <= EntryKind::Extent as u16
            && self.len() <= bytes.len()
            && self.crc == sum(self.version(), &bytes[CHECKED..self.len()])
    }
}
