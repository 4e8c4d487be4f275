//! CRC-32C, and version words that check themselves.

pub(crate) use mneme_sys::crc32c;

/// The bits of a version number.
pub(crate) const VERSION_BITS: u32 = 48;

/// The meaning of a stamped word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WordStamp {
    /// Nothing has been stored.
    Zero,
    /// A version.
    Version(u64),
    /// Not a version: the word is damaged.
    Bad,
}

fn check(version: u64, salt: u64) -> u64 {
    let mixed = (version ^ salt.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> VERSION_BITS
}

/// A version number with 16 check bits that depend on its place.
#[inline]
pub(crate) fn stamp(version: u64, salt: u64) -> u64 {
    version | check(version, salt) << VERSION_BITS
}

/// The reverse of [`stamp`].
#[inline]
pub(crate) fn unstamp(word: u64, salt: u64) -> WordStamp {
    let version = word & ((1 << VERSION_BITS) - 1);
    if word == 0 {
        WordStamp::Zero
    } else if version != 0 && stamp(version, salt) == word {
        WordStamp::Version(version)
    } else {
        WordStamp::Bad
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_belongs_to_its_place_and_notices_a_flipped_bit() {
        let word = stamp(77, 5);
        assert_eq!(unstamp(word, 5), WordStamp::Version(77));
        assert_eq!(unstamp(0, 5), WordStamp::Zero);
        assert_eq!(unstamp(word, 6), WordStamp::Bad);
        for bit in 0..64 {
            assert_eq!(unstamp(word ^ 1 << bit, 5), WordStamp::Bad, "bit {bit}");
        }
    }
}
