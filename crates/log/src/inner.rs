//! What collections are made of: **an anchor for each, and inner records, in two hidden
//! keyspaces.**
//!
//! A value that is too large for one record is a *collection*. Its key has a *main*: a record of a
//! [large kind](ValueKind::large) whose value is the collection's id. The anchor, stored under the
//! id, describes the collection and its inner records, which are stored under the id and a number.
//! Ids are never reused.
//!
//! **The index decides which collections are alive.** A collection whose main is gone is garbage,
//! like a record without an entry. The anchor says where its main is, so that a sweep can check it
//! (see `crate::store::sweep`). So removing a main costs the same however large its collection is.
//!
//! Elements are distributed over *leaves* by the hashes of their names. The anchor has the number
//! of leaves, and they are split and joined one at a time, in order (linear hashing, Litwin, VLDB
//! 1980). A leaf's number is its level and the first bits of the hashes that belong there. So
//! leaves are in the order of hashes, and a leaf without elements needs no record.
//!
//! A collection whose elements have an order keeps it in a *tree* of inner records. The anchor has
//! the number of the root. A record of the tree that leads to others is a *branch*: it begins with
//! their numbers. So a sweep finds all records of a tree without knowing its purpose.

use std::ops::Range;

use crate::index::shape::Place;
use crate::region::kind::ValueKind;

/// The bits of a hash by which elements are distributed over leaves.
pub const HASH_BITS: u32 = 48;
/// The maximum number of leaves of a collection.
pub const MAX_LEAVES: u64 = 1 << 40;

/// The minimum average number of bytes in leaves that were all filled at some time. If a store is
/// too small for an anchor's leaves by this, the anchor is damaged. A value's type splits no leaf
/// below a KiB.
const LEAF_BYTES: u64 = 512;

/// The lowest number of a record of a tree. Those of leaves are lower.
pub const TREE_NUMBERS: u64 = 1 << HASH_BITS;
/// The first byte of a branch. After it: a byte that describes its further content, the number of
/// records that it leads to (two bytes), and their numbers (eight bytes each), little-endian.
pub const BRANCH: u8 = 3;
/// Bytes of a branch before the numbers.
pub const BRANCH_HEAD: usize = 4;

/// A collection may have lost its main.
pub(crate) const MAINS_LOST: u64 = 1;
/// As [`MAINS_LOST`], and a thread is looking for those that had lost it when it began.
pub(crate) const SWEPT: u64 = 2;

/// Bytes of an anchor.
const ANCHOR_BYTES: usize = 72;
/// The maximum number of tree records that a walk has still to visit, in case a tree leads to
/// itself.
const MOST_PENDING: usize = 1 << 16;

/// The content of a collection's anchor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Anchor {
    /// The collection's type, as its packed kind.
    pub kind: ValueKind,
    /// Elements.
    pub count: u64,
    /// Bytes of the leaves' images.
    pub bytes: u64,
    /// Leaves.
    pub leaves: u64,
    /// The tree that keeps the elements in order.
    pub tree: OrderTree,
    pub(crate) owner: MainPlace,
}

/// The tree of a collection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OrderTree {
    /// The number of the root; 0: the tree has no record.
    pub root: u64,
    /// How many numbers, from [`TREE_NUMBERS`] on, its records have been given. No number is given
    /// twice.
    pub numbers: u64,
    /// Bytes of its records' images.
    pub bytes: u64,
}

/// Where the main of a collection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct MainPlace {
    /// The id of the index; 0: there is no main yet.
    pub root: u64,
    pub partition: u32,
    pub tag: u32,
}

impl MainPlace {
    pub fn new(root: u64, place: Place) -> MainPlace {
        MainPlace {
            root,
            partition: place.partition,
            tag: place.tag,
        }
    }

    pub fn place(self) -> Place {
        Place {
            partition: self.partition,
            tag: self.tag,
        }
    }
}

impl Anchor {
    /// The anchor of a collection that has no element yet.
    #[must_use]
    pub fn new(kind: ValueKind) -> Anchor {
        Anchor {
            kind: kind.packed(),
            count: 0,
            bytes: 0,
            leaves: 1,
            tree: OrderTree::default(),
            owner: MainPlace::default(),
        }
    }

    pub(crate) fn encode(&self) -> [u8; ANCHOR_BYTES] {
        let mut bytes = [0; ANCHOR_BYTES];
        let words = [
            u64::from(self.kind.number()),
            self.count,
            self.bytes,
            self.leaves,
            self.owner.root,
            u64::from(self.owner.partition) | u64::from(self.owner.tag) << 32,
            self.tree.root,
            self.tree.numbers,
            self.tree.bytes,
        ];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// `None`: these are not the bytes of an anchor, or the anchor is impossible in a store of
    /// `capacity` bytes.
    pub(crate) fn decode(bytes: &[u8], capacity: u64) -> Option<Anchor> {
        let bytes: &[u8; ANCHOR_BYTES] = bytes.try_into().ok()?;
        let (words, _) = bytes.as_chunks::<8>();
        let words: &[[u8; 8]; ANCHOR_BYTES / 8] = words.try_into().ok()?;
        let [kind, count, bytes, leaves, root, place, tree @ ..] = words.map(u64::from_le_bytes);
        let kind = ValueKind::new(u8::try_from(kind).ok()?)?;
        let [tree, numbers, bytes_of_tree] = tree;
        let is_sound = !kind.is_large()
            && kind != ValueKind::STRING
            && (1..=MAX_LEAVES.min(capacity / LEAF_BYTES + 1)).contains(&leaves)
            && count <= capacity
            && numbers < TREE_NUMBERS
            && (tree == 0 || tree.checked_sub(TREE_NUMBERS)? < numbers);
        is_sound.then_some(Anchor {
            kind,
            count,
            bytes,
            leaves,
            tree: OrderTree {
                root: tree,
                numbers,
                bytes: bytes_of_tree,
            },
            owner: MainPlace {
                root,
                partition: place as u32,
                tag: (place >> 32) as u32,
            },
        })
    }

    /// Whether the anchor leads to an inner record with this number. For a tree it is enough that
    /// the tree has given out the number.
    pub(crate) fn leads_to(&self, number: u64) -> bool {
        match number.checked_sub(TREE_NUMBERS) {
            Some(nth) => self.tree.root != 0 && nth < self.tree.numbers,
            None => leaf_of(hashes_of(number).start, self.leaves) == number,
        }
    }
}

/// The numbers of the records that a branch leads to; none if `image` is not a branch.
pub fn numbers_of(image: &[u8]) -> impl DoubleEndedIterator<Item = u64> {
    let numbers = match image {
        [BRANCH, _, low, high, numbers @ ..] => {
            let (numbers, _) = numbers.as_chunks::<8>();
            let count = usize::from(u16::from_le_bytes([*low, *high]));
            &numbers[..count.min(numbers.len())]
        }
        _ => &[],
    };
    numbers.iter().map(|number| u64::from_le_bytes(*number))
}

/// The numbers of all inner records that an anchor leads to, each before those that lead to it: if
/// they are removed in this order, the remaining ones can still be reached.
#[derive(Clone)]
pub(crate) struct InnerNumbers {
    leaves: u64,
    /// The hash at which the remaining leaves begin.
    hash: u64,
    /// The remaining records of the tree, the next one last, each with whether the records that it
    /// leads to have been visited.
    pending: Vec<(u64, bool)>,
}

impl InnerNumbers {
    pub fn of(anchor: &Anchor) -> InnerNumbers {
        let root = anchor.tree.root;
        InnerNumbers {
            leaves: anchor.leaves,
            hash: 0,
            pending: (root != 0).then_some((root, false)).into_iter().collect(),
        }
    }

    /// The next number. `read` reads the record with a number, and returns the numbers that it
    /// leads to.
    pub fn next<E>(
        &mut self,
        mut read: impl FnMut(u64) -> Result<Vec<u64>, E>,
    ) -> Result<Option<u64>, E> {
        if self.hash < 1 << HASH_BITS {
            let number = leaf_of(self.hash, self.leaves);
            self.hash = hashes_of(number).end;
            return Ok(Some(number));
        }
        while let Some((number, is_entered)) = self.pending.pop() {
            if is_entered || self.pending.len() >= MOST_PENDING {
                return Ok(Some(number));
            }
            let leads_to = read(number)?;
            if leads_to.is_empty() {
                return Ok(Some(number));
            }
            self.pending.push((number, true));
            let below = leads_to.into_iter().rev().map(|number| (number, false));
            self.pending.extend(below);
        }
        Ok(None)
    }
}

/// The id of the collection that a value of a large kind leads to. `None`: it is not such a value.
#[must_use]
pub fn collection_of(value: &[u8]) -> Option<u64> {
    let id = u64::from_le_bytes(value.try_into().ok()?);
    (id != 0).then_some(id)
}

/// The value of a main that leads to this collection.
#[must_use]
pub fn main_of(id: u64) -> [u8; 8] {
    id.to_le_bytes()
}

/// The key of an anchor.
pub(crate) fn anchor_key(id: u64) -> [u8; 8] {
    id.to_be_bytes()
}

/// The key of an inner record.
pub(crate) fn inner_key(id: u64, number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&id.to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

/// The collection and the number of an [`inner_key`].
pub(crate) fn inner_of(key: &[u8]) -> Option<(u64, u64)> {
    let (id, number) = key.split_first_chunk::<8>()?;
    Some((
        u64::from_be_bytes(*id),
        u64::from_be_bytes(number.try_into().ok()?),
    ))
}

/// The key that stands for an element of a collection in the [change feed](crate::feed).
#[must_use]
pub fn element_key(id: u64, element: &[u8]) -> Vec<u8> {
    [&id.to_be_bytes()[..], element].concat()
}

/// Collection and element of an [`element_key`].
#[must_use]
pub fn element_of(key: &[u8]) -> Option<(u64, &[u8])> {
    let (id, element) = key.split_first_chunk::<8>()?;
    Some((u64::from_be_bytes(*id), element))
}

/// The current level, and the position up to which its leaves are split.
fn level_of(leaves: u64) -> (u32, u64) {
    let leaves = leaves.clamp(1, MAX_LEAVES);
    let level = leaves.ilog2();
    (level, leaves - (1 << level))
}

/// The number of the leaf for elements with this hash, of [`HASH_BITS`], if there are `leaves`
/// leaves.
#[must_use]
pub fn leaf_of(hash: u64, leaves: u64) -> u64 {
    let (level, split) = level_of(leaves);
    let hash = hash & ((1 << HASH_BITS) - 1);
    let prefix = hash >> (HASH_BITS - level);
    match prefix < split {
        true => 1 << (level + 1) | hash >> (HASH_BITS - level - 1),
        false => 1 << level | prefix,
    }
}

/// The numbers of `leaves` leaves, in the order of hashes.
pub fn leaf_numbers(leaves: u64) -> impl Iterator<Item = u64> {
    let (level, split) = level_of(leaves);
    (0..1u64 << level).flat_map(move |prefix| {
        let (first, count) = match prefix < split {
            true => (1 << (level + 1) | prefix << 1, 2),
            false => (1 << level | prefix, 1),
        };
        first..first + count
    })
}

/// The hashes whose elements belong to the leaf of this number.
#[must_use]
pub fn hashes_of(leaf: u64) -> Range<u64> {
    let level = leaf.max(1).ilog2().min(HASH_BITS);
    let prefix = leaf.max(1) - (1 << level);
    let width = HASH_BITS - level;
    prefix << width..(prefix + 1) << width
}

/// The leaf that is split when the number of leaves rises above `leaves`, and the two that it
/// becomes. When the number falls back to `leaves`, those two are joined to it.
#[must_use]
pub fn split_of(leaves: u64) -> (u64, [u64; 2]) {
    let (level, split) = level_of(leaves);
    let old = 1 << level | split;
    (old, [old << 1, old << 1 | 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_anchor_is_what_was_encoded() {
        let anchor = Anchor {
            count: 5,
            bytes: 1 << 40,
            leaves: MAX_LEAVES,
            tree: OrderTree {
                root: TREE_NUMBERS + 8,
                numbers: 9,
                bytes: 1 << 41,
            },
            owner: MainPlace {
                root: 7,
                partition: 0xffff,
                tag: 0x3f_ffff,
            },
            ..Anchor::new(ValueKind::new(1).unwrap())
        };
        let (bytes, most) = (anchor.encode(), u64::MAX);
        assert_eq!(Anchor::decode(&bytes, most), Some(anchor));
        assert_eq!(Anchor::decode(&bytes[..40], most), None);
        let least = (MAX_LEAVES - 1) * LEAF_BYTES;
        assert_eq!(Anchor::decode(&bytes, least), Some(anchor));
        assert_eq!(
            Anchor::decode(&bytes, least - 1),
            None,
            "leaves without space"
        );
        for (at, value) in [(0, 0), (0, 6), (0, 9), (1, 1), (31, 1), (48, 9), (54, 0)] {
            let mut damaged = bytes;
            damaged[at] = value;
            assert_eq!(Anchor::decode(&damaged, most), None, "{value} at {at}");
        }
        assert_eq!(Anchor::decode(&[0; ANCHOR_BYTES], most), None);
        assert_eq!(collection_of(&main_of(3)), Some(3));
        assert_eq!((collection_of(&[0; 8]), collection_of(b"3")), (None, None));
        assert_eq!(inner_of(&inner_key(3, 4)), Some((3, 4)));
        assert_eq!(inner_of(&[0; 15]), None);
        assert_eq!(element_of(&element_key(9, b"f")), Some((9, &b"f"[..])));
    }

    #[test]
    #[cfg_attr(miri, ignore = "safe code that takes minutes")]
    fn each_inner_record_comes_once_and_before_what_leads_to_it() {
        let branch = |numbers: &[u64]| {
            let mut image = vec![BRANCH, 0];
            image.extend_from_slice(&(numbers.len() as u16).to_le_bytes());
            numbers.iter().for_each(|n| image.extend(n.to_le_bytes()));
            image
        };
        let image = |number| match number - TREE_NUMBERS {
            1 => branch(&[TREE_NUMBERS + 2, TREE_NUMBERS + 3]),
            2 => branch(&[TREE_NUMBERS + 4, TREE_NUMBERS + 5]),
            _ => vec![2, 1, 1, 1],
        };
        let mut anchor = Anchor::new(ValueKind::new(1).unwrap());
        anchor.leaves = 3;
        anchor.tree.root = TREE_NUMBERS + 1;
        let mut walk = InnerNumbers::of(&anchor);
        let mut read = |number| Ok::<_, ()>(numbers_of(&image(number)).collect());
        let all: Vec<u64> = std::iter::from_fn(|| walk.next(&mut read).unwrap()).collect();
        let (leaves, tree) = all.split_at(3);
        assert!(leaf_numbers(3).eq(leaves.iter().copied()));
        assert_eq!(*tree, [4, 5, 2, 3, 1].map(|n| TREE_NUMBERS + n));
        // The intact part of a damaged branch.
        let damaged = &branch(&[7, 8])[..15];
        assert!(numbers_of(damaged).eq([7]));
        // The walk of a tree that leads to itself ends if each record is removed as it is visited.
        let (mut walk, mut left) = (InnerNumbers::of(&anchor), true);
        while let Some(number) = walk
            .next(|number| {
                let root = [number; 3];
                Ok::<_, ()>(if left { root.to_vec() } else { Vec::new() })
            })
            .unwrap()
        {
            left &= number < TREE_NUMBERS;
        }
        assert!(!left);
    }

    #[test]
    #[cfg_attr(miri, ignore = "millions of steps of plain arithmetic")]
    fn every_hash_belongs_to_one_leaf_and_a_split_moves_those_of_one_leaf_alone() {
        for leaves in 1..300 {
            let numbers: Vec<u64> = leaf_numbers(leaves).collect();
            assert_eq!(numbers.len() as u64, leaves);
            let mut next = 0;
            for number in &numbers {
                let hashes = hashes_of(*number);
                assert_eq!(hashes.start, next, "in order, and without a gap");
                next = hashes.end;
                for hash in [hashes.start, hashes.end - 1] {
                    assert_eq!(leaf_of(hash, leaves), *number);
                }
            }
            assert_eq!(next, 1 << HASH_BITS);
            let mut anchor = Anchor::new(ValueKind::new(1).unwrap());
            anchor.leaves = leaves;
            assert!((0..2 * leaves).all(|n| anchor.leads_to(n) == numbers.contains(&n)));
            let (old, new) = split_of(leaves);
            let mut after: Vec<u64> = leaf_numbers(leaves + 1).collect();
            assert!(numbers.contains(&old) && new.iter().all(|new| after.contains(new)));
            after.retain(|number| !new.contains(number));
            assert!(after.iter().all(|number| numbers.contains(number)));
        }
        assert_eq!(leaf_of(u64::MAX, MAX_LEAVES), (1 << 41) - 1);
    }
}
