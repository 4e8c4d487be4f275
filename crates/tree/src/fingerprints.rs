//! Finds a fingerprint among those of a leaf.

/// Fingerprints compared at once.
const BLOCK: usize = 16;

/// The positions of a fingerprint among others, from last to first.
#[derive(Debug)]
pub(crate) struct Places<'m> {
    mark: u8,
    marks: &'m [u8],
    /// The number of fingerprints, counted from the first, that have not been compared yet.
    left: usize,
    /// Bit *i* is set if position `base + i` matches.
    found: u32,
    base: usize,
}

/// The positions of `mark` in `marks`, from last to first.
#[inline]
pub(crate) fn places(mark: u8, marks: &[u8]) -> Places<'_> {
    Places {
        mark,
        marks,
        left: marks.len(),
        found: 0,
        base: 0,
    }
}

impl Iterator for Places<'_> {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        while self.found == 0 {
            let before = &self.marks[..self.left];
            if let Some((rest, block)) = before.split_last_chunk() {
                self.left = rest.len();
                self.found = equal(block, self.mark);
            } else if before.is_empty() {
                return None;
            } else {
                let bits = (1 << self.left) - 1;
                self.left = 0;
                self.found = bits
                    & match self.marks.first_chunk() {
                        Some(block) => equal(block, self.mark),
                        None => equal_among(before, self.mark),
                    };
            }
            self.base = self.left;
        }
        let last = self.found.ilog2();
        self.found ^= 1 << last;
        Some(self.base + last as usize)
    }
}

/// Bit *i* is set if byte *i* equals `mark`.
#[inline]
fn equal(block: &[u8; BLOCK], mark: u8) -> u32 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE2 is part of x86-64, and the block has as many bytes as are loaded.
    unsafe {
        use std::arch::x86_64::{
            _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8,
        };
        let marks = _mm_loadu_si128(block.as_ptr().cast());
        _mm_movemask_epi8(_mm_cmpeq_epi8(marks, _mm_set1_epi8(mark as i8))) as u32
    }
    #[cfg(not(target_arch = "x86_64"))]
    equal_among(block, mark)
}

/// As [`equal`], for at most 16 bytes.
fn equal_among(marks: &[u8], mark: u8) -> u32 {
    let bits = marks.iter().rev().map(|other| u32::from(*other == mark));
    bits.fold(0, |found, bit| found << 1 | bit)
}

#[cfg(test)]
mod tests {
    use super::places;

    #[test]
    fn all_places_are_found_from_the_last_on() {
        for len in 0..70_usize {
            for values in [1, 2, 5, 300] {
                let marks: Vec<u8> = (0..len).map(|i| (i * 7 % values) as u8).collect();
                for mark in [0, 1, 4, 9] {
                    let expected = (0..len).rev().filter(|i| marks[*i] == mark);
                    assert!(places(mark, &marks).eq(expected), "{mark} in {marks:?}");
                }
            }
        }
    }
}
