//! How keys are hashed and how a table is laid out, as text that two programs can compare.
//!
//! SipHash 1-3 is a standard: its results depend neither on the processor nor on a crate's version,
//! and nobody has found a way to make it collide at will under secret keys. Faster hashes promise
//! less. `ahash` and `foldhash` may differ between builds, and so may the streaming hashers of
//! `rapidhash`, whose stable functions only take bytes; for these hashes, collisions are known that
//! work without the key.

use std::alloc::Layout;
use std::cell::Cell;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::ptr::NonNull;

use allocator_api2::alloc::{AllocError, Allocator};
use hashbrown::HashMap;
use siphasher::sip::SipHasher13;

use crate::heap::{Heap, HeapError};

/// The hash that programs must agree on to find each other's entries.
pub(super) const HASH: &str = "SipHash-1-3, two keys";

/// The keys of a map's hash, stored in the map.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct HashKeys {
    of_heap: u64,
    of_map: u64,
}

impl HashKeys {
    /// Combines the heap's seed with a value of the map's own. With equal keys, entries that are
    /// moved from one map to another in hash order would pile up in it.
    pub(super) fn new(heap: Heap<'_>) -> Result<Self, HeapError> {
        Ok(Self {
            of_heap: heap.seed()?,
            of_map: RandomState::new().build_hasher().finish(),
        })
    }
}

impl BuildHasher for HashKeys {
    type Hasher = SipHasher13;

    #[inline]
    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.of_heap, self.of_map)
    }
}

/// The size in bytes of a table with four buckets of 64 bytes: the buckets, a byte for each, and a
/// group of such bytes. Only the group's width differs between processors (16 with SSE2, 8
/// without).
pub(super) fn smallest_table() -> usize {
    /// An allocator that refuses every request and records its size.
    struct Asked(Cell<usize>);
    // SAFETY: it never hands out a block.
    unsafe impl Allocator for &Asked {
        fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
            self.0.set(layout.size());
            Err(AllocError)
        }

        unsafe fn deallocate(&self, _: NonNull<u8>, _: Layout) {}
    }
    let asked = Asked(Cell::new(0));
    let mut table = HashMap::<[u64; 8], (), _, _>::with_hasher_in(HashKeys::default(), &asked);
    let _ = table.try_reserve(1);
    drop(table);
    asked.0.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stored maps must stay readable: if these numbers ever change, the name of the hash must
    /// change too.
    #[test]
    fn the_hash_is_the_standards() {
        // The key of the reference implementation's test vectors and of the paper's example: the
        // bytes 00 to 0f.
        let keys = HashKeys {
            of_heap: 0x0706_0504_0302_0100,
            of_map: 0x0f0e_0d0c_0b0a_0908,
        };
        let of = |bytes: &[u8]| {
            let mut hasher = keys.build_hasher();
            bytes.chunks(3).for_each(|chunk| hasher.write(chunk));
            hasher.finish()
        };
        assert_eq!(of(&[]), 0xabac_0158_050f_c4dc);
        assert_eq!(of(&[0]), 0xc9f4_9bf3_7d57_ca93);
        let fifteen: Vec<u8> = (0..15).collect();
        assert_eq!(of(&fifteen), 0xd320_d86d_2a51_9956);
        // A number is hashed as its bytes, low byte first; a string is followed by a byte that no
        // string contains.
        assert_eq!(
            keys.hash_one(0x0706_0504_0302_0100_u64),
            of(&[0, 1, 2, 3, 4, 5, 6, 7])
        );
        assert_eq!(keys.hash_one("abc"), of(b"abc\xff"));
        assert_eq!(keys.hash_one((1_u16, 2_u8)), of(&[1, 0, 2]));
    }

    #[test]
    fn a_tables_layout_depends_only_on_the_processors_group_width() {
        let group = smallest_table() - 4 * 64 - 4;
        let expected = if cfg!(all(target_arch = "x86_64", not(miri))) {
            16
        } else {
            8
        };
        assert_eq!(group, expected);
    }
}
