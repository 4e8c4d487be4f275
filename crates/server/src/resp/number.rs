//! Integers as Redis reads them: an optional minus sign and digits, no leading zero, no plus, no
//! space.

/// The signed 64-bit integer that `text` spells exactly, or `None`.
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    match text {
        [b'-', digits @ ..] => match parse_u64(digits)? {
            0 => None,
            magnitude => 0i64.checked_sub_unsigned(magnitude),
        },
        digits => i64::try_from(parse_u64(digits)?).ok(),
    }
}

/// The unsigned 64-bit integer that `text` spells exactly, or `None`.
pub fn parse_u64(text: &[u8]) -> Option<u64> {
    match text {
        [] => None,
        [b'0'] => Some(0),
        [b'0', ..] => None,
        digits => digits.iter().try_fold(0u64, |value, digit| {
            let digit = digit.wrapping_sub(b'0');
            (digit < 10).then_some(())?;
            value.checked_mul(10)?.checked_add(u64::from(digit))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_redis_reads_and_nothing_else() {
        for value in [0, 1, -1, 10, i64::MAX, i64::MIN, 1_000_000_007] {
            assert_eq!(parse_i64(value.to_string().as_bytes()), Some(value));
        }
        for text in [
            "",
            "-",
            "-0",
            "00",
            "01",
            "+1",
            " 1",
            "1 ",
            "1a",
            "9223372036854775808",
            "-9223372036854775809",
        ] {
            assert_eq!(parse_i64(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(parse_u64(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(parse_u64(b"18446744073709551616"), None);
    }
}
