//! Kinds of values: **the store keeps a number with each record, and knows no more of it.**

use thiserror::Error;

/// The number of kinds that this format has. A power of two: the header's test of a record is one
/// mask ([`crate::region::record::Header::is_record`]).
pub(crate) const KINDS: u8 = 2;

/// The kind of a value. [`ValueKind::STRING`] is what `put` stores; the other kinds belong to the
/// crates that build types of values on records, such as `mneme-collections`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct ValueKind(u8);

impl ValueKind {
    /// Bytes without a structure that the store or a type of values knows.
    pub const STRING: ValueKind = ValueKind(0);

    /// The kind with this number. `None`: no value of this version has it.
    #[must_use]
    pub const fn new(number: u8) -> Option<ValueKind> {
        if number < KINDS {
            Some(ValueKind(number))
        } else {
            None
        }
    }

    /// Its number, as records, the change feed, journals and durable trees store it.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Fails unless this kind is the one that an operation `wants`.
    #[inline]
    pub(crate) fn expect(self, wants: ValueKind) -> Result<(), WrongKind> {
        match self == wants {
            true => Ok(()),
            false => Err(WrongKind { found: self }),
        }
    }
}

/// The key holds a value of another kind than the operation is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the key holds a value of another kind (number {})", .found.number())]
#[non_exhaustive]
pub struct WrongKind {
    /// The value's kind.
    pub found: ValueKind,
}
