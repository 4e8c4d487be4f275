//! How a store is laid out as entries of a tree.
//!
//! Each index is a named tree of its own, named by its root's id. It holds the records: each key
//! maps to the kind (1 byte), the expiry (8 bytes, 0: never), and the value. Elements of
//! collections are the records of root 0, which is no index: collection id and element map to the
//! value. Outside of all named trees are the store's UUID, the roots of the databases, and entries
//! of the feed that have not taken effect yet.

use mneme_log::feed::binding;
use mneme_log::{DATABASES, Expiry};

/// The name of the file.
pub(crate) const FILE: &str = "store.tree";
/// The name of the file while it is being made.
pub(crate) const NEW: &str = "store.tree.new";

/// The key of the store's UUID.
pub(super) const UUID: &[u8] = b"uuid";
/// The key of the roots of all databases, and of the highest root ever seen.
pub(super) const BINDINGS: &[u8] = b"bindings";
/// The prefix of the keys of entries that have not taken effect yet.
pub(super) const PENDING: &[u8] = b"pending";

/// The size in bytes of a record's header, before its value.
pub(super) const HEAD: usize = 9;

/// The format, in the last word of a [`CommitStamp`]. A tree of format 1 has no collections; the
/// next commit makes it one of format 2.
const FORMAT: u64 = 2;
const OLDEST: u64 = 1;

/// What each commit records about itself, in the bytes that a tree keeps for its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CommitStamp {
    /// The run that made the commit.
    pub run: u64,
    /// The commit contains every change before this position.
    pub position: u64,
    /// When the commit was made.
    pub wall_ms: u64,
}

impl CommitStamp {
    pub fn encode(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        let words = [self.run, self.position, self.wall_ms, FORMAT];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// `None`: the tree holds no store, or one of another format.
    pub fn decode(bytes: [u8; 32]) -> Option<Self> {
        let mut words = bytes.chunks_exact(8).map(word);
        let (run, position, wall_ms) = (words.next()?, words.next()?, words.next()?);
        let format = words.next()?;
        (OLDEST..=FORMAT).contains(&format).then_some(Self {
            run,
            position,
            wall_ms,
        })
    }
}

/// Reads a word of up to eight bytes.
fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    let len = bytes.len().min(8);
    word[..len].copy_from_slice(&bytes[..len]);
    u64::from_le_bytes(word)
}

/// The root of each database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bindings {
    /// 0: none.
    pub roots: [u64; DATABASES],
    /// The highest root id so far.
    pub highest: u64,
}

impl Default for Bindings {
    fn default() -> Self {
        Self {
            roots: [0; DATABASES],
            highest: 0,
        }
    }
}

impl Bindings {
    pub fn encode(&self) -> Vec<u8> {
        let words = self.roots.iter().chain([&self.highest]);
        words.flat_map(|word| word.to_le_bytes()).collect()
    }

    pub fn decode(bytes: &[u8]) -> Self {
        let mut words = bytes.chunks_exact(8).map(word);
        Self {
            roots: std::array::from_fn(|_| words.next().unwrap_or(0)),
            highest: words.next().unwrap_or(0),
        }
    }

    /// In the form of an entry of the feed.
    pub fn words(&self) -> Vec<[u8; 8]> {
        let each = self.roots.iter().enumerate();
        each.map(|(database, root)| binding(database as u8, *root))
            .collect()
    }

    /// The roots that databases have.
    pub fn bound(&self) -> impl Iterator<Item = u64> {
        self.roots.into_iter().filter(|root| *root != 0)
    }
}

/// The name of the tree that holds the records of a root.
pub(super) fn name(root: u64) -> String {
    format!("root {root}")
}

/// The root of the tree with that name.
pub(super) fn root_of(name: &str) -> Option<u64> {
    name.strip_prefix("root ")?.parse().ok()
}

/// The key for an entry at `position` that has not taken effect yet.
pub(super) fn pending_key(position: u64) -> Vec<u8> {
    [PENDING, &position.to_be_bytes()].concat()
}

/// The position of the entry with this key.
pub(super) fn pending_position(key: &[u8]) -> Option<u64> {
    let bytes = key.strip_prefix(PENDING)?.try_into().ok()?;
    Some(u64::from_be_bytes(bytes))
}

/// Encodes a record for a tree.
pub(super) fn encode(kind: u8, expiry: Expiry, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD + value.len());
    bytes.push(kind);
    bytes.extend_from_slice(&expiry_word(expiry));
    bytes.extend_from_slice(value);
    bytes
}

/// Replaces the expiry of a record.
pub(super) fn set_expiry(record: &mut [u8], expiry: Expiry) {
    if let Some(place) = record.get_mut(1..HEAD) {
        place.copy_from_slice(&expiry_word(expiry));
    }
}

fn expiry_word(expiry: Expiry) -> [u8; 8] {
    let word = match expiry {
        Expiry::Never => 0,
        // Zero means never; an expiry in 1970 has passed in any case.
        Expiry::At(ms) => ms.max(1),
    };
    word.to_le_bytes()
}

/// Kind, expiry and value of a record; `None`: the bytes are not a record.
pub(super) fn decode(record: &[u8]) -> Option<(u8, Expiry, &[u8])> {
    let (head, value) = record.split_at_checked(HEAD)?;
    let expiry = match word(&head[1..]) {
        0 => Expiry::Never,
        ms => Expiry::At(ms),
    };
    Some((head[0], expiry, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_decoded_as_they_were_encoded() {
        let stamp = CommitStamp {
            run: 7,
            position: u64::MAX,
            wall_ms: 9,
        };
        assert_eq!(CommitStamp::decode(stamp.encode()), Some(stamp));
        assert_eq!(CommitStamp::decode([0; 32]), None);
        for (format, known) in [(OLDEST, Some(stamp)), (FORMAT + 1, None)] {
            let mut bytes = stamp.encode();
            bytes[24..].copy_from_slice(&format.to_le_bytes());
            assert_eq!(CommitStamp::decode(bytes), known);
        }
        let mut bindings = Bindings::default();
        (bindings.roots[3], bindings.roots[DATABASES - 1]) = (5, u64::MAX >> 8);
        bindings.highest = 11;
        assert_eq!(Bindings::decode(&bindings.encode()), bindings);
        for expiry in [Expiry::Never, Expiry::At(1), Expiry::At(u64::MAX)] {
            let mut record = encode(3, Expiry::At(2), b"value");
            set_expiry(&mut record, expiry);
            assert_eq!(decode(&record), Some((3, expiry, &b"value"[..])));
        }
        assert_eq!(decode(&[0; 8]), None);
        assert_eq!(pending_position(&pending_key(77)), Some(77));
        assert_eq!(root_of(&name(12)), Some(12));
    }
}
