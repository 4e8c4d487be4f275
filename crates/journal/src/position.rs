//! Positions in the stream.

use std::fmt;

/// A position in a journal's endless stream of bytes: the number of bytes before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position(u64);

impl Position {
    /// The position after `bytes` bytes.
    #[must_use]
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// The number of bytes before it.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The position `bytes` bytes later; saturates at the maximum.
    #[must_use]
    pub const fn plus(self, bytes: u64) -> Self {
        Self(self.0.saturating_add(bytes))
    }

    /// The number of bytes between an earlier position and this one; 0 if it is not earlier.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
