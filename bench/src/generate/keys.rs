//! YCSB-like keys and stamped values, made from a record's number in a few nanoseconds.
//!
//! A key is `customer` and 16 letters, 24 bytes. Making one must not dominate a measurement, so
//! there is no formatting and no division: the number is spread by a bijection, and its nibbles
//! become letters, eight at a time.

use super::random::mix;

/// The length of a key.
pub const KEY_BYTES: usize = 24;

/// The key of record `id`. Different records have different keys.
///
/// It is made of whole words, as a hash reads it: bytes that a processor has to put together from
/// several stores it awaits until all before them is done, so that no two operations would overlap.
#[inline]
pub fn key(id: u32) -> [u8; KEY_BYTES] {
    let spread = mix(u64::from(id));
    let words = [
        u64::from_le_bytes(*b"customer"),
        letters(spread),
        letters(spread >> 4),
    ];
    let mut key = [0; KEY_BYTES];
    for (bytes, word) in key.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    key
}

/// The lower nibble of each byte of `x` as a letter from `a` to `p`.
#[inline]
fn letters(x: u64) -> u64 {
    (x & 0x0F0F_0F0F_0F0F_0F0F) + 0x6161_6161_6161_6161
}

/// Marks `value` (8 bytes or more) as record `id`'s.
#[inline]
pub fn stamp(value: &mut [u8], id: u32) {
    value[..8].copy_from_slice(&u64::from(id).to_le_bytes());
}

/// The stamp of the key that the value belongs to.
#[inline]
pub fn stamp_of(value: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&value[..8]);
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn keys_are_distinct_and_printable() {
        let keys: HashSet<_> = (0..200_000).map(key).collect();
        assert_eq!(keys.len(), 200_000);
        assert!(
            keys.iter()
                .all(|key| key.starts_with(b"customer") && key.iter().all(u8::is_ascii_lowercase))
        );
    }

    #[test]
    fn a_stamp_says_whose_a_value_is() {
        let mut value = vec![7; 100];
        stamp(&mut value, 123_456);
        assert_eq!(stamp_of(&value), 123_456);
        assert_eq!(value[8..], vec![7; 92]);
    }
}
