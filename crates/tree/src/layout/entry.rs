//! Entries of a leaf: a header of 24 bytes, the key, the value, padding to 8. A long key stands in
//! its entry by its first bytes and by the place of an extent that has all of it.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::{LeafId, MAX_INLINE, MAX_INLINE_KEY, MAX_KEY, MAX_VALUE, TreeExtent, align8};
use crate::checksum::{WordStamp, crc32c, stamp, unstamp};

/// Bytes of an entry's header.
pub(crate) const ENTRY_HEADER: usize = 24;
/// Bytes of an extent's place.
const PLACE: usize = 8;
/// What its checksum covers begins here; the version before it counts too.
const CHECKED: usize = 12;
/// What an entry has of a long key: most comparisons end within it.
pub(crate) const KEY_PREFIX: usize = 64;
/// Bytes of an entry that stand for a long key: its prefix, the extent's place, the key's checksum
/// and its length.
const LONG_KEY: usize = KEY_PREFIX + PLACE + 8;
/// Set in an entry's kind: the key is long.
const KEY_OUTSIDE: u16 = 4;

/// What an entry says of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryKind {
    /// It has this value from `start` on.
    Value,
    /// It has none from `start` on.
    Removal,
    /// It has a value from `start` on, which lies in an extent; the entry has the extent's place.
    Extent,
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
    /// Bytes of the entry that stand for the key.
    key_part: u16,
    kind: u16,
    reserved: u32,
}

const _: () = assert!(size_of::<EntryHeader>() == ENTRY_HEADER);

/// Bytes that an entry takes in its leaf.
pub(crate) const fn entry_size(key: usize, value: usize) -> usize {
    let (key, place) = match key > MAX_INLINE_KEY {
        // The extent of the key has the value too.
        true => (LONG_KEY, 0),
        false => (key, PLACE),
    };
    let stored = if value > MAX_INLINE { place } else { value };
    align8(ENTRY_HEADER + key + stored)
}

/// What of a key and its value lies in their extent, one behind the other; nothing if they have
/// none.
#[inline]
pub(crate) fn outside<'b>(key: &'b [u8], value: &'b [u8]) -> [&'b [u8]; 2] {
    let key = if key.len() > MAX_INLINE_KEY { key } else { &[] };
    let value = if value.len() > MAX_INLINE { value } else { &[] };
    [key, value]
}

/// The checksum of a long key that its entry has.
pub(crate) fn long_key_sum(key: &[u8]) -> u32 {
    crc32c(0, key)
}

/// Appends an entry for the leaf `id`, where it will lie at `at`, to `out`. What is
/// [`outside`] lies in `extent`.
pub(crate) fn write_entry(
    out: &mut Vec<u8>,
    (id, at): (LeafId, usize),
    version: u64,
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
    // The padding is shorter than that.
    out.extend_from_slice(&[0; 8]);
    out.truncate(from + align8(end - from));
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
    pub(crate) fn start(&self, id: LeafId, at: usize) -> WordStamp {
        unstamp(self.start, salt(id, at))
    }

    /// As [`start`](Self::start), of the entry that `bytes` begin with, of which there may be no
    /// more than that.
    pub(crate) fn start_of(bytes: &[u8], id: LeafId, at: usize) -> WordStamp {
        let start = bytes.first_chunk();
        start.map_or(WordStamp::Zero, |start| {
            unstamp(u64::from_le_bytes(*start), salt(id, at))
        })
    }

    /// The version, of an entry that is known to be whole.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.start & ((1 << crate::checksum::VERSION_BITS) - 1)
    }

    #[inline]
    pub(crate) fn kind(&self) -> EntryKind {
        match self.kind & !KEY_OUTSIDE {
            0 => EntryKind::Value,
            1 => EntryKind::Removal,
            _ => EntryKind::Extent,
        }
    }

    /// Whether the key lies in an extent.
    #[inline]
    pub(crate) fn has_long_key(&self) -> bool {
        self.kind & KEY_OUTSIDE != 0
    }

    /// Bytes of the entry that stand for its key.
    #[inline]
    pub(crate) fn key_part(&self) -> usize {
        usize::from(self.key_part)
    }

    /// Bytes of the key that the entry has.
    #[inline]
    pub(crate) fn inline_key(&self) -> usize {
        match self.has_long_key() {
            true => KEY_PREFIX,
            false => self.key_part(),
        }
    }

    /// Bytes of the entry behind what stands for its key.
    #[inline]
    pub(crate) fn stored_len(&self) -> usize {
        const PLACE_OF_VALUE: u16 = EntryKind::Extent as u16;
        const BOTH_OUTSIDE: u16 = EntryKind::Extent as u16 | KEY_OUTSIDE;
        match self.kind {
            PLACE_OF_VALUE => PLACE,
            BOTH_OUTSIDE => 0,
            _ => self.value_len as usize,
        }
    }

    /// Where the key or the value lies, or both, if one of them is long; `body` is what follows the
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

    /// The checksum of the long key, given what follows the header.
    pub(crate) fn long_key_sum(body: &[u8]) -> u32 {
        Self::word(body, KEY_PREFIX + PLACE)
    }

    /// The length of the long key, given what follows the header.
    pub(crate) fn long_key_len(body: &[u8]) -> u32 {
        Self::word(body, KEY_PREFIX + PLACE + 4)
    }

    fn word(body: &[u8], at: usize) -> u32 {
        let word = body.get(at..).and_then(|rest| rest.first_chunk());
        word.map_or(0, |word| u32::from_le_bytes(*word))
    }

    /// Bytes that the entry takes.
    #[inline]
    pub(crate) fn size(&self) -> usize {
        align8(self.len())
    }

    /// Bytes that it takes without the padding.
    #[inline]
    fn len(&self) -> usize {
        ENTRY_HEADER + self.key_part() + self.stored_len()
    }

    /// Whether the entry is whole that has this header and begins with `bytes`, which end with its
    /// leaf or before.
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
            && self.kind & !KEY_OUTSIDE <= EntryKind::Extent as u16
            && self.len() <= bytes.len()
            && self.crc == sum(self.version(), &bytes[CHECKED..self.len()])
    }
}
