//! Spaces: the 64 keyspaces of a store, each with an index, records and counters of its own.
//!
//! Which database has which space is said by [`crate::index::databases`].

/// Databases of a store: the record header has six bits for a space.
pub const DATABASES: usize = 64;

/// The bits of a number that say which space.
const SPACE: u8 = DATABASES as u8 - 1;

/// A keyspace that an index, its records and its counters belong to, whichever database has it now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) struct KeyspaceId(u8);

impl KeyspaceId {
    /// Space `number`, of which the lowest six bits count.
    #[inline]
    pub const fn new(number: u8) -> KeyspaceId {
        KeyspaceId(number & SPACE)
    }

    pub fn all() -> impl Iterator<Item = KeyspaceId> {
        (0..DATABASES as u8).map(KeyspaceId)
    }

    #[inline]
    pub fn number(self) -> u8 {
        self.0
    }

    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl std::fmt::Display for KeyspaceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
