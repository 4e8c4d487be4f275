//! Identities: 16 random bytes, written as 32 hexadecimal digits.

use std::fmt;
use std::io;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The identity of a segment, a space or a registry: random, never reused. Locks are taken in the
/// order of identities.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid([u8; 16]);

impl Uuid {
    /// The identity of this machine's current boot.
    pub(crate) fn of_this_boot() -> Self {
        Self::from_bytes(mneme_sys::boot_id())
    }

    /// Creates a new identity.
    ///
    /// # Errors
    /// The kernel's error if it has no randomness.
    pub fn random() -> io::Result<Self> {
        let mut bytes = [0; 16];
        mneme_sys::random_bytes(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// The identity with these bytes, as stored in a region's header.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The identity's bytes, as stored in a region's header.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// The inverse of `Display`: 32 hexadecimal digits, lower case. `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let lower = |b: &u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
        if text.len() != 32 || !text.as_bytes().iter().all(lower) {
            return None;
        }
        let number = u128::from_str_radix(text, 16).ok()?;
        Some(Self(number.to_be_bytes()))
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Uuid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Uuid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| de::Error::custom("not 32 hexadecimal digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_parsed_from_its_own_text() {
        let id = Uuid::random().unwrap();
        assert_eq!(Uuid::parse(&id.to_string()), Some(id));
        assert_eq!(Uuid::from_bytes([0; 16]).to_string(), "0".repeat(32));
        let text = "0123456789abcdef0123456789abcdef";
        assert_eq!(Uuid::parse(text).unwrap().to_bytes()[..2], [0x01, 0x23]);
        for bad in [
            "",
            "0",
            &"+".repeat(32),
            &"G".repeat(32),
            &"A".repeat(32),
            &"0".repeat(33),
        ] {
            assert_eq!(Uuid::parse(bad), None, "{bad}");
        }
    }
}
