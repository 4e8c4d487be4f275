//! Serialises numbers in descriptions as `0x` and hexadecimal digits, as people read addresses.

/// Parses a number with an optional `0x`.
fn parse(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x")?;
    let plain = digits.bytes().all(|b| b.is_ascii_hexdigit());
    plain.then(|| u64::from_str_radix(digits, 16).ok())?
}

/// Words of 64 bits, such as `"0x00000000075bcd15"`. Some JSON readers would lose digits of a
/// number this large.
pub(crate) mod word {
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(crate) fn serialize<S: Serializer>(word: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{word:#018x}"))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        super::parse(&String::deserialize(from)?)
            .ok_or_else(|| de::Error::custom("a word is 0x and hexadecimal digits"))
    }
}

/// Eight bytes; the first byte becomes the leftmost digits.
pub(crate) mod magic {
    use serde::{Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(magic: &[u8; 8], to: S) -> Result<S::Ok, S::Error> {
        super::word::serialize(&u64::from_be_bytes(*magic), to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[u8; 8], D::Error> {
        super::word::deserialize(from).map(u64::to_be_bytes)
    }
}

/// Addresses, such as `"0x200000000000"`.
pub(crate) mod address {
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(crate) fn serialize<S: Serializer>(address: &usize, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{address:#x}"))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
        address(&String::deserialize(from)?)
            .ok_or_else(|| de::Error::custom("an address is 0x and hexadecimal digits"))
    }

    fn address(text: &str) -> Option<usize> {
        usize::try_from(super::parse(text)?).ok()
    }

    /// An optional address.
    pub(crate) mod option {
        use serde::{Deserialize, Deserializer, Serializer, de};

        #[expect(clippy::ref_option, reason = "the signature that serde calls")]
        pub(crate) fn serialize<S: Serializer>(
            address: &Option<usize>,
            to: S,
        ) -> Result<S::Ok, S::Error> {
            match address {
                Some(address) => super::serialize(address, to),
                None => to.serialize_none(),
            }
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
            from: D,
        ) -> Result<Option<usize>, D::Error> {
            let Some(text) = Option::<String>::deserialize(from)? else {
                return Ok(None);
            };
            super::address(&text)
                .map(Some)
                .ok_or_else(|| de::Error::custom("an address is 0x and hexadecimal digits"))
        }
    }
}
