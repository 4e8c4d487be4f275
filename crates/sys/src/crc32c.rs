//! CRC-32C (Castagnoli), using the CPU's instructions if it has them.

/// The checksum of `bytes`, continued from `seed`.
#[inline]
#[must_use]
pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if std::arch::is_x86_feature_detected!("sse4.2")
        && std::arch::is_x86_feature_detected!("pclmulqdq")
    {
        // SAFETY: the CPU has the instructions.
        return unsafe { by_instructions(seed, bytes) };
    }
    by_table(seed, bytes)
}

/// The instruction's result is available after three cycles, but another one can begin each cycle.
/// So three adjacent rows of words are summed at the same time, and their sums are then combined.
/// Summing the rows one after the other takes three times as long for a KiB.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "sse4.2,pclmulqdq")]
fn by_instructions(seed: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u16, _mm_crc32_u32, _mm_crc32_u64};
    let word = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
    let mut crc = u64::from(!seed);
    let (words, rest) = bytes.as_chunks::<8>();
    for words in words.chunks(3 * MOST_WORDS) {
        let count = match words.len() / 3 {
            // Less than what combining the sums costs.
            ..FEWEST_WORDS => 0,
            count => count,
        };
        let (a, words) = words.split_at(count);
        let (b, words) = words.split_at(count);
        let (c, words) = words.split_at(count);
        if count > 0 {
            let (mut second, mut third) = (0, 0);
            for ((a, b), c) in a.iter().zip(b).zip(c) {
                crc = _mm_crc32_u64(crc, word(a));
                second = _mm_crc32_u64(second, word(b));
                third = _mm_crc32_u64(third, word(c));
            }
            let before = product(crc, POWERS[2 * count]) ^ product(second, POWERS[count]);
            crc = _mm_crc32_u64(0, before) ^ third;
        }
        for bytes in words {
            crc = _mm_crc32_u64(crc, word(bytes));
        }
    }
    let mut crc = crc as u32;
    let (four, rest) = rest.as_chunks();
    for four in four {
        crc = _mm_crc32_u32(crc, u32::from_le_bytes(*four));
    }
    let (two, rest) = rest.as_chunks();
    for two in two {
        crc = _mm_crc32_u16(crc, u16::from_le_bytes(*two));
    }
    for byte in rest {
        crc = _mm_crc32_u8(crc, *byte);
    }
    !crc
}

/// The product of two 32-bit polynomials.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "sse4.2,pclmulqdq")]
fn product(a: u64, b: u32) -> u64 {
    use std::arch::x86_64::{_mm_clmulepi64_si128, _mm_cvtsi64_si128, _mm_cvtsi128_si64};
    let (a, b) = (_mm_cvtsi64_si128(a as i64), _mm_cvtsi64_si128(i64::from(b)));
    _mm_cvtsi128_si64(_mm_clmulepi64_si128::<0>(a, b)) as u64
}

/// The polynomial, with the lowest power in the highest bit.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// The number of words of a row, of which three are summed at the same time: maximum and minimum.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const MOST_WORDS: usize = 64;
#[cfg(all(target_arch = "x86_64", not(miri)))]
const FEWEST_WORDS: usize = 4;

/// The factor for a sum that is followed by *n* words: the power 64 *n* - 33 of *x*. The
/// instruction that reduces the product multiplies by the power 32, and a product of two numbers in
/// this bit order by one more.
#[cfg(all(target_arch = "x86_64", not(miri)))]
static POWERS: [u32; 2 * MOST_WORDS + 1] = {
    let mut powers = [0; 2 * MOST_WORDS + 1];
    // The power 31.
    let mut value = 1;
    let mut n = 1;
    while n < powers.len() {
        powers[n] = value;
        let mut power = 0;
        while power < 64 {
            value = times_x(value);
            power += 1;
        }
        n += 1;
    }
    powers
};

const fn times_x(value: u32) -> u32 {
    (value >> 1) ^ (POLYNOMIAL * (value & 1))
}

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let mut value = i as u32;
        let mut bit = 0;
        while bit < 8 {
            value = times_x(value);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "safe code that takes a minute")]
    fn both_ways_give_the_published_checksum() {
        assert_eq!(by_table(0, b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(0, b"123456789"), 0xe306_9283);
        let bytes: Vec<u8> = (0..4000_u32)
            .map(|n| (n.wrapping_mul(n).wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        for end in (0..700).chain(1500..1600).chain(3990..bytes.len()) {
            let bytes = &bytes[end % 7..end.max(end % 7)];
            assert_eq!(crc32c(7, bytes), by_table(7, bytes), "{end}");
        }
    }
}
