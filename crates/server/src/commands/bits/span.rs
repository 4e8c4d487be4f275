//! Counts and searches the bits of a range, 64 at a time.

use std::iter;
use std::ops::Range;

use crate::command::*;
use crate::commands::range::Ends;

/// The unit of a range's ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Byte,
    Bit,
}

impl Unit {
    /// The unit that argument `index` names.
    pub fn parse(call: &Call<'_>, index: usize) -> Result<Self, Failure> {
        if call.is(index, "BIT") {
            Ok(Self::Bit)
        } else if call.is(index, "BYTE") {
            Ok(Self::Byte)
        } else {
            Err(Failure::Syntax)
        }
    }

    /// The bits of a value of `len` bytes between `ends`.
    pub fn bits(self, ends: Ends, len: usize) -> Option<Range<usize>> {
        match self {
            Self::Byte => ends.within(len).map(|bytes| bytes.start * 8..bytes.end * 8),
            Self::Bit => ends.within(len * 8),
        }
    }
}

/// The bytes that contain these bits.
pub(super) fn bytes_of(bits: &Range<usize>) -> Range<usize> {
    bits.start / 8..bits.end.div_ceil(8)
}

/// The words for the units.
pub(super) const UNIT: Argument = Argument::one_of(
    "index_unit",
    &[Argument::word("byte", "BYTE"), Argument::word("bit", "BIT")],
)
.since("7.0.0")
.optional();

/// The number of set bits of `value` in `range`, which must not be empty and must lie within it.
pub(super) fn count_ones(value: &[u8], range: Range<usize>) -> u64 {
    let bytes = &value[bytes_of(&range)];
    let (words, rest) = bytes.as_chunks::<8>();
    let in_words = words
        .iter()
        .map(|word| u64::from(u64::from_ne_bytes(*word).count_ones()));
    let in_rest = rest.iter().map(|byte| u64::from(byte.count_ones()));
    // Parts of the first and the last byte may lie outside the range.
    let before = bytes[0] & !(0xff >> (range.start % 8));
    let behind = match range.end % 8 {
        0 => 0,
        used => bytes[bytes.len() - 1] & (0xff >> used),
    };
    let outside = before.count_ones() + behind.count_ones();
    in_words.sum::<u64>() + in_rest.sum::<u64>() - u64::from(outside)
}

/// The position in `range`, which must lie within `value`, of the first bit that equals `bit`.
pub(super) fn find(value: &[u8], range: Range<usize>, bit: bool) -> Option<usize> {
    let bytes = &value[bytes_of(&range)];
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let flip = if bit { 0 } else { u64::MAX };
    // From here on ones are searched. Those before the range are masked; those after it are
    // excluded by the range.
    let mut before = u64::MAX >> (range.start % 8);
    let (index, word) = words
        .iter()
        .chain(iter::once(&last))
        .map(|word| (u64::from_be_bytes(*word) ^ flip) & std::mem::replace(&mut before, u64::MAX))
        .enumerate()
        .find(|(_, word)| *word != 0)?;
    let found = range.start / 8 * 8 + index * 64 + word.leading_zeros() as usize;
    (found < range.end).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_range_is_counted_and_searched_as_bit_by_bit() {
        let patterns: [fn(usize) -> u8; 4] = [
            |_| 0,
            |_| 0xff,
            |i| (i * 37 % 251) as u8,
            |i| if i == 11 { 0x10 } else { 0 },
        ];
        for pattern in patterns {
            let value: Vec<u8> = (0..21).map(pattern).collect();
            let bit_at = |at: usize| value[at / 8] >> (7 - at % 8) & 1 == 1;
            for start in 0..value.len() * 8 {
                for end in start + 1..=value.len() * 8 {
                    let ones = (start..end).filter(|at| bit_at(*at)).count();
                    assert_eq!(count_ones(&value, start..end), ones as u64);
                    for bit in [false, true] {
                        let first = (start..end).find(|at| bit_at(*at) == bit);
                        assert_eq!(find(&value, start..end, bit), first, "{start}..{end}");
                    }
                }
            }
        }
    }
}
