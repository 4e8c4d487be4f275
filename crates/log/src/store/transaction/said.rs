//! What a transaction notes about collections that it changes.

use crate::feed::item::{COLLECTIONS, Item, RemovalCause};
use crate::index::root::Root;
use crate::index::shape::Place;
use crate::records::expiry::Expiry;

use super::few::OwnedKey;

/// A transaction's notes about elements, in order: each one's [key](crate::inner::element_key),
/// followed by its value.
#[derive(Default)]
pub(super) struct Said {
    pub bytes: Vec<u8>,
    /// Bytes of each key, and the collection's kind with the bytes of the value; `None`: the
    /// element is removed.
    pub lengths: Vec<(usize, Option<(u8, usize)>)>,
    /// Collections whose sweep begins.
    pub swept: Vec<[u8; 8]>,
}

impl Said {
    /// An upper bound for the bytes of its items.
    pub fn most_bytes(&self) -> u64 {
        (self.bytes.len() + 32 * (self.lengths.len() + self.swept.len())) as u64
    }

    pub fn items(&self) -> impl Iterator<Item = Item<'_>> {
        let mut rest = self.bytes.as_slice();
        let elements = self.lengths.iter().map(move |&(key, value)| {
            let (key, behind) = rest.split_at(key);
            let (bytes, behind) = behind.split_at(value.map_or(0, |(_, bytes)| bytes));
            rest = behind;
            match value {
                Some((kind, _)) => Item::Put {
                    root: COLLECTIONS,
                    key,
                    kind,
                    expiry: Expiry::Never,
                    bytes,
                },
                None => Item::Remove {
                    root: COLLECTIONS,
                    key,
                    cause: RemovalCause::Asked,
                },
            }
        });
        let swept = self.swept.iter().map(|id| Item::Drop {
            root: COLLECTIONS,
            prefix: id,
        });
        elements.chain(swept)
    }
}

/// A key whose collection, but not record, a transaction changes.
pub(super) struct Touched {
    pub database: u8,
    pub root: Root,
    pub place: Place,
    pub key: OwnedKey,
}
