//! YCSB-like keys and stamped values, made from a record's number in a few nanoseconds.
//!
//! A key is `user` and 20 letters, 24 bytes. Making one must not dominate a measurement, so there is no formatting and
//! no division: the number is spread by a bijection and its nibbles become letters, eight at a time.

use super::random::mix;

/// The length of a key.
pub const KEY_BYTES: usize = 24;

/// The key of record `id`. Different records have different keys.
#[inline]
pub fn key(id: u32) -> [u8; KEY_BYTES] {
    let spread = mix(u64::from(id));
    let mut key = [0; KEY_BYTES];
    key[..4].copy_from_slice(b"user");
    key[4..12].copy_from_slice(&letters(spread as u32).to_le_bytes());
    key[12..20].copy_from_slice(&letters((spread >> 32) as u32).to_le_bytes());
    key[20..].copy_from_slice(&(letters(id) as u32).to_le_bytes());
    key
}

/// Each nibble of `x` as a letter from `a` to `p`.
#[inline]
fn letters(x: u32) -> u64 {
    let mut x = u64::from(x);
    x = (x | x << 16) & 0x0000_FFFF_0000_FFFF;
    x = (x | x << 8) & 0x00FF_00FF_00FF_00FF;
    x = (x | x << 4) & 0x0F0F_0F0F_0F0F_0F0F;
    x + 0x6161_6161_6161_6161
}

/// Marks `value` (8 bytes or more) as record `id`'s.
#[inline]
pub fn stamp(value: &mut [u8], id: u32) {
    value[..8].copy_from_slice(&u64::from(id).to_le_bytes());
}

/// Whose the value is.
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
                .all(|key| key.starts_with(b"user") && key.iter().all(u8::is_ascii_lowercase))
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
