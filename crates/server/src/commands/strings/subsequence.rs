//! The longest common subsequence of two byte strings; if there are several, the one that Redis
//! finds.
//!
//! The classic table of lengths is stored as bits, 64 cells a word: a row records where the length
//! grows from one column to the next, and a row is computed from the previous one by a few
//! operations on whole words (Hyyrö, "Bit-parallel LCS-length computation revisited", 2004). The
//! path back through the table needs no more than these bits: where two bytes differ it goes up if
//! the length grows there, because the value then came from above, and left otherwise.
//!
//! **The words run along the longer string**, so that they are full. If that is the first string,
//! the table is transposed, and the relevant growth is that from one row to the next. That is the
//! carry of the addition, which moves a 0, meaning growth, down to the first match of its stretch,
//! and carries through the bits in between.

/// The common subsequence of two strings.
pub(super) struct Subsequence<'a> {
    a: &'a [u8],
    b: &'a [u8],
    /// Whether the table is transposed: a row belongs to a byte of `b`, and its bits to `a`.
    on_its_side: bool,
    /// The number of words in a row.
    width: usize,
    /// A row for each byte of the shorter string, with a bit for each of the longer. A bit is set
    /// if the subsequence including these two bytes is longer than without that of `b`.
    rows: Vec<u64>,
    len: usize,
}

/// Consecutive bytes that match in both strings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Match {
    /// Where they begin.
    pub in_a: usize,
    pub in_b: usize,
    pub len: usize,
}

impl<'a> Subsequence<'a> {
    /// The number of bytes of memory that this needs for strings of these lengths.
    pub fn bytes_for(a: usize, b: usize) -> usize {
        (a.min(b))
            .saturating_mul(a.max(b).div_ceil(64))
            .saturating_mul(size_of::<u64>())
    }

    /// Finds it, in steps of 64 pairs of bytes, with a bit of memory for a pair; at least a step
    /// and a word for each byte of the shorter one.
    pub fn find(a: &'a [u8], b: &'a [u8]) -> Self {
        let on_its_side = a.len() > b.len();
        let (short, long) = if on_its_side { (b, a) } else { (a, b) };
        let width = long.len().div_ceil(64);
        let places = places_of(short, long);
        let mut rows = Vec::with_capacity(short.len() * width);
        let mut above = vec![u64::MAX; width];
        for &byte in short {
            let mut carry = false;
            for (above, places) in above.iter_mut().zip(&places[usize::from(byte)]) {
                let both = *above & *places;
                let (sum, first) = above.overflowing_add(both);
                let (sum, second) = sum.overflowing_add(u64::from(carry));
                carry = first || second;
                let carries = both | (*above & !sum);
                *above = sum | (*above & !*places);
                rows.push(if on_its_side { carries } else { !*above });
            }
        }
        let len = above.iter().map(|word| word.count_zeros() as usize).sum();
        Self {
            a,
            b,
            on_its_side,
            width,
            rows,
            len,
        }
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Its bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len);
        let mut pairs = self.matches().collect::<Vec<_>>();
        pairs.reverse();
        for found in pairs {
            bytes.extend_from_slice(&self.a[found.in_a..][..found.len]);
        }
        bytes
    }

    /// Its parts that are contiguous in both strings, last one first.
    pub fn matches(&self) -> impl Iterator<Item = Match> {
        let (mut i, mut j) = (self.a.len(), self.b.len());
        std::iter::from_fn(move || {
            let mut len = 0;
            while i > 0 && j > 0 {
                if self.a[i - 1] == self.b[j - 1] {
                    (i, j, len) = (i - 1, j - 1, len + 1);
                    continue;
                }
                let is_end = len > 0;
                let found = Match {
                    in_a: i,
                    in_b: j,
                    len,
                };
                if self.grows(i - 1, j - 1) {
                    i -= 1;
                } else {
                    j -= 1;
                }
                if is_end {
                    return Some(found);
                }
            }
            (len > 0).then_some(Match {
                in_a: i,
                in_b: j,
                len,
            })
        })
    }

    fn grows(&self, i: usize, j: usize) -> bool {
        let (row, at) = if self.on_its_side { (j, i) } else { (i, j) };
        self.rows[row * self.width + at / 64] >> (at % 64) & 1 != 0
    }
}

/// For each byte that `short` contains, a bit for each position of `long`: whether the byte is
/// there.
fn places_of(short: &[u8], long: &[u8]) -> [Vec<u64>; 256] {
    let mut places = [const { Vec::new() }; 256];
    for &byte in short {
        places[usize::from(byte)].resize(long.len().div_ceil(64), 0);
    }
    for (at, &byte) in long.iter().enumerate() {
        if let Some(word) = places[usize::from(byte)].get_mut(at / 64) {
            *word |= 1 << (at % 64);
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// The usual way to build and follow the table.
    fn by_table(a: &[u8], b: &[u8]) -> Vec<u8> {
        let mut lengths = vec![vec![0; b.len() + 1]; a.len() + 1];
        for i in 1..=a.len() {
            for j in 1..=b.len() {
                lengths[i][j] = if a[i - 1] == b[j - 1] {
                    lengths[i - 1][j - 1] + 1
                } else {
                    lengths[i - 1][j].max(lengths[i][j - 1])
                };
            }
        }
        let (mut i, mut j, mut found) = (a.len(), b.len(), Vec::new());
        while i > 0 && j > 0 {
            if a[i - 1] == b[j - 1] {
                (i, j) = (i - 1, j - 1);
                found.push(a[i]);
            } else if lengths[i - 1][j] > lengths[i][j - 1] {
                i -= 1;
            } else {
                j -= 1;
            }
        }
        found.reverse();
        found
    }

    proptest! {
        #[test]
        fn the_subsequence_equals_that_of_a_table_of_lengths(
            a in vec(0..4u8, 0..200),
            b in vec(0..4u8, 0..200),
        ) {
            let (found, expected) = (Subsequence::find(&a, &b), by_table(&a, &b));
            prop_assert_eq!(found.len(), expected.len());
            prop_assert_eq!(found.bytes(), expected);
        }
    }

    /// A long value and a short one need the same memory in either order: 30 MB with two bytes once
    /// took a word for each byte.
    #[test]
    fn the_order_of_the_values_does_not_matter() {
        for (a, b) in [(2, 30 << 20), (30 << 20, 2)] {
            assert_eq!(Subsequence::bytes_for(a, b), 2 * (30 << 20) / 8);
        }
        let long = b"x".repeat(1000);
        for (a, b) in [(&long[..], &b"yx"[..]), (b"yx", &long)] {
            assert_eq!(
                Subsequence::find(a, b).rows.len(),
                2 * 1000_usize.div_ceil(64)
            );
        }
    }
}
