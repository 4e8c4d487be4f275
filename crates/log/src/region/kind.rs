//! Kinds of values: **the store keeps a number with each record, and knows nothing else about it.**

use thiserror::Error;

/// The number of kinds that this format has. A power of two: the header's test of a record is one
/// mask ([`crate::region::record::Header::is_record`]).
pub(crate) const KINDS: u8 = 16;
/// The number of types: each has a packed kind and, with [`LARGE`], a large one.
const TYPES: u8 = 6;
/// The bit of the kinds whose values lead to a collection.
const LARGE: u8 = 8;

/// The kind of a value. [`ValueKind::STRING`] is what `put` stores; the other kinds belong to the
/// crates that build types of values on records, such as `mneme-collections`. A type has two kinds:
/// a *packed* value is all in one record, a [*large*](Self::large) one is the id of a
/// [collection](crate::Anchor).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct ValueKind(u8);

impl ValueKind {
    /// Bytes without a structure that the store or a type of values knows.
    pub const STRING: ValueKind = ValueKind(0);

    /// The kind of records in the keyspace of anchors.
    pub(crate) const ANCHOR: ValueKind = ValueKind(TYPES);
    /// The kind of a collection's inner records.
    pub(crate) const INNER: ValueKind = ValueKind(TYPES + 1);

    /// The kind with this number. `None`: no value of this version has it.
    #[must_use]
    pub const fn new(number: u8) -> Option<ValueKind> {
        match number & !LARGE {
            0 if number == LARGE => None,
            of if number < KINDS && of < TYPES => Some(ValueKind(number)),
            _ => None,
        }
    }

    /// The kind in the header of a record.
    #[inline]
    pub(crate) const fn of_header(number: u8) -> ValueKind {
        ValueKind(number & (KINDS - 1))
    }

    /// Whether a value of this kind has elements, all in one record. Such a value is overwritten in
    /// place under either policy, and is never lent.
    #[inline]
    pub(crate) const fn is_packed(self) -> bool {
        self.0 != 0 && self.0 < TYPES
    }

    /// Whether a value of this kind leads to a collection.
    #[inline]
    #[must_use]
    pub const fn is_large(self) -> bool {
        self.0 & LARGE != 0
    }

    /// The kind of a large value of this type. A string is never large.
    #[must_use]
    pub const fn large(self) -> ValueKind {
        match self.0 {
            0 => self,
            of => ValueKind(of | LARGE),
        }
    }

    /// The kind of a packed value of this type.
    #[must_use]
    pub const fn packed(self) -> ValueKind {
        ValueKind(self.0 & !LARGE)
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

impl WrongKind {
    /// The error of an operation that has found a value of kind `found`.
    #[must_use]
    pub const fn of(found: ValueKind) -> WrongKind {
        WrongKind { found }
    }
}

/// The key holds a value of another kind than the operation works on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the key holds a value of another kind (number {})", .found.number())]
#[non_exhaustive]
pub struct WrongKind {
    /// The value's kind.
    pub found: ValueKind,
}
