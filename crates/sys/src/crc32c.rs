//! CRC-32C (Castagnoli), by the CPU's instruction where it has one.

/// The checksum of `bytes`, continued from `seed`.
#[inline]
#[must_use]
pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
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
}
