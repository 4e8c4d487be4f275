//! Spaces: the 64 keyspaces of a store, each with an index, records and counters of its own, and
//! two hidden ones.
//!
//! [`crate::index::databases`] maps databases to spaces. The hidden keyspaces hold what collections
//! are made of (see [`crate::inner`]). They belong to no database: nothing counts their records,
//! and no scan, watch, notification or entry of the change feed names them.

/// Databases of a store: the record header has six bits for a space.
pub const DATABASES: usize = 64;

/// The bits of a number that hold the space.
const SPACE: u8 = DATABASES as u8 - 1;

/// Keyspaces of a store, the hidden ones included.
pub(crate) const KEYSPACES: usize = DATABASES + 2;

/// A keyspace to which an index, its records and its counters belong, whichever database has it
/// now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) struct KeyspaceId(u8);

impl KeyspaceId {
    /// The space with `number`, of which only the lowest six bits count.
    #[inline]
    pub const fn new(number: u8) -> KeyspaceId {
        KeyspaceId(number & SPACE)
    }

    /// The anchors of collections.
    pub const ANCHORS: KeyspaceId = KeyspaceId(DATABASES as u8);
    /// The inner records of collections.
    pub const INNER: KeyspaceId = KeyspaceId(DATABASES as u8 + 1);

    /// The keyspaces of databases.
    pub fn all() -> impl Iterator<Item = KeyspaceId> {
        (0..DATABASES as u8).map(KeyspaceId)
    }

    /// The keyspaces of databases, and the hidden ones.
    pub fn with_hidden() -> impl Iterator<Item = KeyspaceId> {
        (0..KEYSPACES as u8).map(KeyspaceId)
    }

    /// The keyspace with this number, also a hidden one. `None`: there is none.
    #[inline]
    pub const fn of_number(number: u64) -> Option<KeyspaceId> {
        match number < KEYSPACES as u64 {
            true => Some(KeyspaceId(number as u8)),
            false => None,
        }
    }

    /// Whether it belongs to no database.
    #[inline]
    pub const fn is_hidden(self) -> bool {
        self.0 > SPACE
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
