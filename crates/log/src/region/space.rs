//! Spaces: the 64 keyspaces of a store, each with an index, records and counters of its own, and
//! two hidden ones.
//!
//! Which database has which space is said by [`crate::index::databases`]. The hidden keyspaces hold
//! what collections are made of (see [`crate::inner`]). They belong to no database: nothing counts
//! their records, and no scan, watch, notification or entry of the change feed names them.

/// Databases of a store: the record header has six bits for a space.
pub const DATABASES: usize = 64;

/// The bits of a number that say which space.
const SPACE: u8 = DATABASES as u8 - 1;

/// Keyspaces of a store, the hidden ones included.
pub(crate) const KEYSPACES: usize = DATABASES + 2;

/// A keyspace that an index, its records and its counters belong to, whichever database has it now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) struct KeyspaceId(u8);

impl KeyspaceId {
    /// Space `number`, of which the lowest six bits count.
    #[inline]
    pub const fn new(number: u8) -> KeyspaceId {
        KeyspaceId(number & SPACE)
    }

    /// The anchors of collections.
    pub const ANCHORS: KeyspaceId = KeyspaceId(DATABASES as u8);
    /// The inner records of collections.
    pub const INNER: KeyspaceId = KeyspaceId(DATABASES as u8 + 1);

    /// Those that databases have.
    pub fn all() -> impl Iterator<Item = KeyspaceId> {
        (0..DATABASES as u8).map(KeyspaceId)
    }

    /// Those that databases have, and the hidden ones.
    pub fn with_hidden() -> impl Iterator<Item = KeyspaceId> {
        (0..KEYSPACES as u8).map(KeyspaceId)
    }

    /// The keyspace with this number, of the hidden ones too. `None`: there is none.
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
