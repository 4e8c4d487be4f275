//! Sizes as people write them.

/// Why a text is not a number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SizeError {
    /// Not a whole number, or followed by something other than a unit.
    #[error("a size is a whole number of bytes, or one with a unit, such as 512mb or 4gb")]
    NotASize,
    /// 2^64 or more.
    #[error("that is more than 64 bits can count")]
    TooLarge,
}

/// Parses a number of bytes with Redis' units: `k`, `m`, `g`, `t` count by 1000, `kb`, `mb`, `gb`,
/// `tb` by 1024, and so do `KiB`, `MiB`, `GiB` and `TiB`.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1000,
        "kb" | "kib" => 1 << 10,
        "m" => 1_000_000,
        "mb" | "mib" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" | "gib" => 1 << 30,
        "t" => 1_000_000_000_000,
        "tb" | "tib" => 1 << 40,
        _ => return Err(SizeError::NotASize),
    };
    let number: u64 = number.parse().map_err(|_| match digits {
        0 => SizeError::NotASize,
        _ => SizeError::TooLarge,
    })?;
    number.checked_mul(factor).ok_or(SizeError::TooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_redis_reads_them() {
        let cases = [
            ("0", 0),
            ("1024", 1024),
            ("1k", 1000),
            ("1kb", 1024),
            ("512mb", 512 << 20),
            ("4GB", 4 << 30),
            ("4 GiB", 4 << 30),
            ("8G", 8_000_000_000),
            ("1tb", 1 << 40),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for nonsense in [
            "",
            "gb",
            "-1",
            "1.5gb",
            "4 elephants",
            "99999999999999999999",
            "99999999999gb",
        ] {
            assert!(parse_size(nonsense).is_err(), "{nonsense}");
        }
    }
}
