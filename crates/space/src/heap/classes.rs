//! Size classes: steps of 8 bytes to 64, then four to a doubling up to 32 KiB.
//!
//! A block of more than 64 bytes wastes at most a fifth, and a tenth on average. The blocks of a
//! class lie in **slabs** of one, four or eight pages: few enough that a rarely used class costs
//! little, and enough that the end of a slab wastes at most an eighth. Sizes that are powers of two
//! from 256 on fill their slab completely and are aligned to themselves (up to a page).

use super::layout::PAGE;

/// The number of classes.
pub(super) const CLASSES: usize = 44;
/// The largest size that is taken from a slab; larger blocks are runs of pages.
pub(super) const LARGEST: usize = 32 << 10;

/// One size class.
#[derive(Clone, Copy, Debug)]
pub(super) struct SizeClass {
    /// Bytes per block.
    pub(super) size: u32,
    /// Pages per slab.
    pub(super) pages: u32,
    /// Blocks per slab.
    pub(super) blocks: u32,
    /// The offset of the first block in the slab; the bitmap lies before it.
    pub(super) first: u32,
    /// 2^32 / size, rounded up, to compute a block's number without a division.
    reciprocal: u32,
}

impl SizeClass {
    const fn new(size: usize) -> Self {
        let pages = if size <= 2048 {
            1
        } else if size <= 8192 {
            4
        } else {
            8
        };
        let bytes = pages * PAGE;
        let align = natural(size);
        let mut blocks = bytes / size;
        let mut first = 0;
        if blocks > 64 {
            loop {
                first = (blocks.div_ceil(64) * 8).next_multiple_of(align);
                if first + blocks * size <= bytes {
                    break;
                }
                blocks -= 1;
            }
        }
        Self {
            size: size as u32,
            pages: pages as u32,
            blocks: blocks as u32,
            first: first as u32,
            reciprocal: (1_u64 << 32).div_ceil(size as u64) as u32,
        }
    }

    /// Whether the bitmap lies in the slab, and the entry's `map` is a summary of it.
    #[inline]
    pub(super) const fn has_bitmap(&self) -> bool {
        self.first != 0
    }

    /// The number of words in the bitmap.
    pub(super) const fn words(&self) -> u32 {
        self.blocks.div_ceil(64)
    }

    /// The bits of word `index` of a bitmap that represent blocks.
    pub(super) const fn mask(&self, index: u32) -> u64 {
        let rest = self.blocks - index * 64;
        if rest >= 64 {
            u64::MAX
        } else {
            (1 << rest) - 1
        }
    }

    /// The `map` of a slab all of whose blocks are free.
    pub(super) const fn full_map(&self) -> u64 {
        let bits = if self.has_bitmap() {
            self.words()
        } else {
            self.blocks
        };
        if bits >= 64 {
            u64::MAX
        } else {
            (1 << bits) - 1
        }
    }

    /// The number of the block that begins `offset` bytes into the slab, if there is one.
    #[inline]
    pub(super) fn block_at(&self, offset: u32) -> Option<u32> {
        let within = offset.checked_sub(self.first)?;
        let block = ((u64::from(within) * u64::from(self.reciprocal)) >> 32) as u32;
        (block < self.blocks && block * self.size == within).then_some(block)
    }
}

/// The alignment that every block of this size has.
const fn natural(size: usize) -> usize {
    let low = 1 << size.trailing_zeros();
    if low > PAGE { PAGE } else { low }
}

/// All classes, by size.
pub(super) const TABLE: [SizeClass; CLASSES] = {
    let mut table = [SizeClass::new(8); CLASSES];
    let mut class = 1;
    while class < CLASSES {
        table[class] = SizeClass::new(if class < 8 {
            (class + 1) * 8
        } else {
            let step = class - 8;
            (5 + step % 4) << (step / 4 + 4)
        });
        class += 1;
    }
    table
};

const _: () = assert!(TABLE[CLASSES - 1].size as usize == LARGEST);

/// The class of a size in units of 8 bytes, for sizes up to 1 KiB: a table for the common ones.
const SMALL: [u8; 129] = {
    let mut small = [0; 129];
    let mut units = 1;
    while units <= 128 {
        let mut class = 0;
        while (TABLE[class].size as usize) < units * 8 {
            class += 1;
        }
        small[units] = class as u8;
        units += 1;
    }
    small
};

/// The class for `size` bytes, from 1 to [`LARGEST`].
#[inline]
fn of_size(size: usize) -> u8 {
    if size <= 1024 {
        SMALL[size.div_ceil(8)]
    } else {
        let log = (size - 1).ilog2();
        let quarter = ((size - 1) >> (log - 2)) & 3;
        (8 + (log as usize - 6) * 4 + quarter) as u8
    }
}

/// The class whose blocks have at least `size` bytes and this alignment; `None`: use a run of
/// pages.
#[inline]
pub(super) fn of(size: usize, align: usize) -> Option<u8> {
    if size > LARGEST || align > PAGE {
        return None;
    }
    let class = of_size(size);
    if align <= 8 || natural(TABLE[class as usize].size as usize) >= align {
        return Some(class);
    }
    // A power of two is aligned to itself.
    let size = size.max(align).next_power_of_two();
    (size <= LARGEST).then(|| of_size(size))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each size gets the smallest class that holds it, at any alignment.
    #[test]
    #[cfg_attr(miri, ignore = "millions of steps of plain arithmetic")]
    fn every_size_gets_the_class_that_fits() {
        for size in 1..=LARGEST {
            let class = of(size, 1).unwrap() as usize;
            assert!(TABLE[class].size as usize >= size, "{size}");
            assert!(
                class == 0 || (TABLE[class - 1].size as usize) < size,
                "{size}"
            );
        }
        for align in (0..15).map(|log| 1 << log) {
            for size in [1, 8, 24, 100, 129, 700, 1025, 5000, 16385, LARGEST] {
                let class = &TABLE[of(size, align).unwrap() as usize];
                assert!(class.size as usize >= size);
                assert_eq!(class.first as usize % align, 0, "{size} {align}");
                assert_eq!(class.size as usize % align, 0, "{size} {align}");
            }
        }
        assert!(of(LARGEST + 1, 1).is_none() && of(1, PAGE * 2).is_none());
    }

    /// Blocks lie within their slab, after the bitmap. The offset of a block leads to its number,
    /// and no other offset does.
    #[test]
    #[cfg_attr(miri, ignore = "millions of steps of plain arithmetic")]
    fn blocks_lie_within_their_slab_and_are_found_by_their_offset() {
        for class in TABLE {
            let bytes = class.pages * PAGE as u32;
            assert!(class.first + class.blocks * class.size <= bytes);
            assert!(class.words() * 8 <= class.first || class.blocks <= 64);
            assert!(
                class.words() <= 64 && class.blocks * class.size * 8 >= bytes * 7 - class.size * 8
            );
            let mut found = 0;
            for offset in 0..bytes {
                if let Some(block) = class.block_at(offset) {
                    assert_eq!(class.first + block * class.size, offset);
                    found += 1;
                }
            }
            assert_eq!(found, class.blocks);
        }
    }
}
