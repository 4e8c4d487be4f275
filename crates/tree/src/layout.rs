//! The format of a store, byte for byte. `docs/design/tree.md` draws it.
//!
//! A store is a sequence of frames of 2 MiB. Frame 0 holds the [`FileHeader`] and the ring of
//! [`CommitRecord`]s; every other frame holds a table of [`LeafHeader`]s and 127 leaves of 16 KiB,
//! or a table of [`ExtentHeader`]s and 508 units of 4 KiB.

mod entry;
mod extent;
mod header;
mod leaf_header;
mod name;
mod record;

pub(crate) use entry::{
    ENTRY_HEADER, EntryHeader, EntryKind, KEY_PREFIX, entry_size, long_key_sum, move_entry,
    outside, write_entry,
};
pub(crate) use extent::{EXTENT_HEADER, ExtentHeader, TreeExtent, UNIT, UNITS};
pub(crate) use header::{FORMAT, FileHeader, FrameHeader, FrameKind, HeaderProblem};
pub(crate) use leaf_header::{FencesIn, LeafHeader};
pub use name::MAX_NAME;
pub(crate) use name::{NAME_SLOTS, NameSlot};
pub(crate) use record::{
    CommitRecord, Listed, MAX_DEAD, MAX_LISTED, NUMBERS, STATE_ALONE, STATE_CLEAN, STATE_UNCOUNTED,
};

/// Bytes of a frame.
pub(crate) const FRAME: u64 = 2 << 20;
/// Bytes of a leaf.
pub(crate) const LEAF: usize = 16 << 10;
/// Bytes at the beginning of a frame that describe its content.
pub(crate) const TABLE: usize = 16 << 10;
/// Leaves per frame. The first 16 KiB of the frame hold their headers.
pub(crate) const LEAVES: u32 = 127;
/// Bytes of a leaf's header, and of a frame's.
pub(crate) const LEAF_HEADER: usize = 128;
/// Where the ring of commit records begins.
pub(crate) const RING_AT: u64 = 4096;
/// Slots of the ring.
pub(crate) const RING_SLOTS: u64 = 256;
/// Bytes of a commit record: a sector.
pub(crate) const RECORD: usize = 512;

/// The longest key in bytes.
pub const MAX_KEY: usize = 65_536;
/// Longer keys lie in extents. A leaf with keys of this length holds about ten of them, and two
/// fences as long; see `docs/decisions/017-long-keys-begin-at-1024-bytes.md`.
pub(crate) const MAX_INLINE_KEY: usize = 1024;
/// The number of the tree that lists the other trees.
pub(crate) const CATALOGUE: u32 = 0;
/// The number of the tree with the store's keys outside of all named trees.
pub(crate) const MAIN: u32 = 1;
/// The longest value in bytes: 1 GiB, and some words that a layer above may add.
pub const MAX_VALUE: usize = (1 << 30) + 64;
/// Longer values lie in extents. Above this length, in units of 4 KiB, they take no more of the
/// file than in leaves, half of which is free or belongs to older versions, and they are not copied
/// when a leaf is rewritten; see `docs/decisions/016-long-values-begin-at-1920-bytes.md`.
pub(crate) const MAX_INLINE: usize = 1920;

/// The table and the leaves of a frame, counted in units of a leaf.
const PLACES: u64 = LEAVES as u64 + 1;

const _: () = {
    assert!((LEAVES as usize + 1) * LEAF_HEADER == TABLE && LEAF == TABLE);
    assert!(PLACES * LEAF as u64 == FRAME);
    assert!(RING_AT + RING_SLOTS * RECORD as u64 <= FRAME);
};

/// The number of a leaf in its store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LeafId(pub(crate) u32);

impl LeafId {
    /// The `slot`-th leaf of a frame; frame 0 has none.
    pub(crate) fn new(frame: u32, slot: u32) -> Self {
        Self((frame - 1) * LEAVES + slot)
    }

    /// The frame that holds it.
    #[inline]
    pub(crate) fn frame(self) -> u32 {
        self.0 / LEAVES + 1
    }

    #[inline]
    fn slot(self) -> u64 {
        u64::from(self.0 % LEAVES) + 1
    }

    /// The offset of its entries.
    #[inline]
    pub(crate) fn at(self) -> u64 {
        // Before it lie frame 0, the leaves with smaller numbers, and the tables of their frames
        // and its own.
        (PLACES + u64::from(self.0) + u64::from(self.frame())) * LEAF as u64
    }

    /// The offset of its header.
    #[inline]
    pub(crate) fn header_at(self) -> u64 {
        u64::from(self.frame()) * FRAME + self.slot() * LEAF_HEADER as u64
    }
}

/// The next multiple of 8.
pub(crate) const fn align8(n: usize) -> usize {
    n.next_multiple_of(8)
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::*;
    use crate::checksum::crc32c;

    const UUID: [u8; 16] = *b"sixteen bytes...";
    const INSTANCE: [u8; 16] = *b"another sixteen.";

    fn record(seed: u32) -> CommitRecord {
        let mut record = CommitRecord::empty();
        (record.state, record.sequence, record.version) = (0x101, 3, 9);
        (record.last, record.file_len, record.entries) = (10, 3 * FRAME, 4);
        (record.live_bytes, record.boot, record.caller) = (500, [1; 16], [2; 32]);
        (record.extents, record.extent_units, record.names) = (5, 6, 1);
        (record.leaves, record.next_tree) = (7, 3);
        record.set_dead(&[4, 8]);
        record.seal(seed);
        record
    }

    /// One entry of each kind, one after the other in a leaf.
    fn entries(id: LeafId, extent: TreeExtent) -> Vec<u8> {
        let mut leaf = Vec::new();
        let (long, large) = (vec![b'k'; 1025], vec![b'v'; 1921]);
        type Row<'b> = (&'b [u8], Option<&'b [u8]>, Option<TreeExtent>);
        let all: [Row<'_>; 5] = [
            (b"key", Some(b"value"), None),
            (b"gone", None, None),
            (b"large", Some(&large), Some(extent)),
            (&long, Some(b"value"), Some(extent)),
            (&long, Some(&large), Some(extent)),
        ];
        for (key, value, extent) in all {
            let at = leaf.len();
            write_entry(&mut leaf, (id, at), (9, false), key, value, extent);
        }
        let at = leaf.len();
        write_entry(
            &mut leaf,
            (id, at),
            (10, true),
            b"key",
            Some(b"alone"),
            None,
        );
        leaf
    }

    /// A store of another format is refused, so what this compares may change only together with
    /// [`FORMAT`].
    #[test]
    fn the_format_is_what_it_was() {
        let header = FileHeader::new(UUID, INSTANCE);
        let seed = header.seed();
        let (id, extent) = (
            LeafId::new(1, 2),
            TreeExtent::at_word((2 * 512 + 5) | (1 << 48), 1025),
        );
        let kinds = [FrameKind::Leaves, FrameKind::Extents { run: 3 }];
        let fences = [8, 200, 3000].map(|len| {
            let (low, high) = (vec![b'l'; len], vec![b'm'; len]);
            let outside = (len == 3000).then_some(extent);
            LeafHeader::new((5, id), 9, (&low, Some(&high)), outside)
        });
        let parts: [(&str, Vec<u8>); 7] = [
            ("file header", header.as_bytes().to_vec()),
            ("commit record", record(seed).as_bytes().to_vec()),
            ("name", NameSlot::new(3, 9, 7, "before").as_bytes().to_vec()),
            (
                "frame headers",
                kinds
                    .map(|kind| FrameHeader::new(4, kind, seed).as_bytes().to_vec())
                    .concat(),
            ),
            (
                "leaf headers",
                fences.map(|header| header.as_bytes().to_vec()).concat(),
            ),
            (
                "extent header",
                ExtentHeader::new(extent, 9, [b"k", b"v"])
                    .as_bytes()
                    .to_vec(),
            ),
            ("entries", entries(id, extent)),
        ];
        let found = parts.map(|(part, bytes)| {
            let (len, digest) = (bytes.len(), crc32c(0, &bytes));
            format!("{part}: {len} bytes, {digest:08x}")
        });
        assert_eq!(FORMAT, 9);
        assert_eq!(found, EXPECTED);
    }

    const EXPECTED: [&str; 7] = [
        "file header: 56 bytes, 0156bc73",
        "commit record: 512 bytes, 43269b61",
        "name: 512 bytes, 0962114f",
        "frame headers: 48 bytes, 139243f4",
        "leaf headers: 384 bytes, a7fd1a35",
        "extent header: 32 bytes, b7169716",
        "entries: 352 bytes, 554c26d9",
    ];

    /// What was written can be read, and every changed bit is detected.
    #[test]
    fn entries_of_each_kind_are_read_as_they_were_written() {
        let (id, extent) = (
            LeafId::new(1, 2),
            TreeExtent::at_word((2 * 512 + 5) | (1 << 48), 1025),
        );
        let leaf = entries(id, extent);
        let mut at = 0;
        let mut found = Vec::new();
        while at < leaf.len() {
            let header = EntryHeader::read(&leaf[at..]);
            assert!(header.is_whole(&leaf[at..]), "at {at}");
            let body = &leaf[at + ENTRY_HEADER..];
            let len = header.extent(body).map(|extent| extent.len);
            found.push((header.kind(), header.has_long_key(), len));
            // The start has check bits of its own, and the padding is not checked.
            let end = ENTRY_HEADER + header.key_part() + header.stored_len();
            for byte in (8..end).step_by(7) {
                let mut changed = leaf[at..].to_vec();
                changed[byte] ^= 1;
                let header = EntryHeader::read(&changed);
                assert!(!header.is_whole(&changed), "byte {byte} of {at}");
            }
            at += header.size();
        }
        let expected = [
            (EntryKind::Value, false, None),
            (EntryKind::Removal, false, None),
            (EntryKind::Extent, false, Some(1921)),
            (EntryKind::Value, true, Some(1025)),
            (EntryKind::Extent, true, Some(1025 + 1921)),
            (EntryKind::Value, false, None),
        ];
        assert_eq!(found, expected);
    }
}
