//! CRC-32C, by the CPU's instruction where it has one, and version words that check themselves.

/// The checksum of `bytes`, continued from `seed`.
#[inline]
pub(crate) fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the CPU has the instruction.
        return unsafe { by_instruction(seed, bytes) };
    }
    by_table(seed, bytes)
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "sse4.2")]
fn by_instruction(seed: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u64};
    let (words, rest) = bytes.as_chunks::<8>();
    let mut crc = u64::from(!seed);
    for word in words {
        crc = _mm_crc32_u64(crc, u64::from_le_bytes(*word));
    }
    let mut crc = crc as u32;
    for byte in rest {
        crc = _mm_crc32_u8(crc, *byte);
    }
    !crc
}

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let mut value = i as u32;
        let mut bit = 0;
        while bit < 8 {
            let low = value & 1;
            value = (value >> 1) ^ (0x82f6_3b78 * low);
            bit += 1;
        }
        table[i] = value;
        i += 1;
    }
    table
};

fn by_table(seed: u32, bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| TABLE[((crc ^ u32::from(*byte)) & 0xff) as usize] ^ (crc >> 8);
    !bytes.iter().fold(!seed, step)
}

/// The bits of a version number.
pub(crate) const VERSION_BITS: u32 = 48;

/// What a stamped word says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stamp {
    /// Nothing was ever stored.
    Zero,
    /// A version.
    Version(u64),
    /// No version: the word is damaged.
    Bad,
}

fn check(version: u64, salt: u64) -> u64 {
    let mixed = (version ^ salt.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> VERSION_BITS
}

/// A version with 16 bits that say that it is one, and for this place.
#[inline]
pub(crate) fn stamp(version: u64, salt: u64) -> u64 {
    version | check(version, salt) << VERSION_BITS
}

/// The reverse of [`stamp`].
#[inline]
pub(crate) fn unstamp(word: u64, salt: u64) -> Stamp {
    let version = word & ((1 << VERSION_BITS) - 1);
    if word == 0 {
        Stamp::Zero
    } else if version != 0 && stamp(version, salt) == word {
        Stamp::Version(version)
    } else {
        Stamp::Bad
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_give_the_published_checksum() {
        assert_eq!(by_table(0, b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(0, b"123456789"), 0xe306_9283);
        let bytes: Vec<u8> = (0..=255).collect();
        for end in 0..bytes.len() {
            assert_eq!(crc32c(7, &bytes[..end]), by_table(7, &bytes[..end]));
        }
    }

    #[test]
    fn a_stamp_belongs_to_its_place_and_notices_a_flipped_bit() {
        let word = stamp(77, 5);
        assert_eq!(unstamp(word, 5), Stamp::Version(77));
        assert_eq!(unstamp(0, 5), Stamp::Zero);
        assert_eq!(unstamp(word, 6), Stamp::Bad);
        for bit in 0..64 {
            assert_eq!(unstamp(word ^ 1 << bit, 5), Stamp::Bad, "bit {bit}");
        }
    }
}
