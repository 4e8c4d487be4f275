//! Reassembles changes that were entered in pieces.

use std::collections::HashMap;

use super::item::{Entry, FeedDamage, Item, items_of};

/// Reassembles changes that were too long for an entry.
///
/// In the stream, such a change is a number of [`Piece`](Item::Piece)s of its items. They have no
/// effect by themselves, and entries of others may lie between them. One entry with a
/// [`Pieces`](Item::Pieces) makes all of it take effect at that place. If none comes, the pieces
/// were given up, or their thread died. An assembly holds the bytes of the changes whose pieces
/// have begun and not ended: at most one for each thread.
///
/// *A suffix of the stream may begin in the middle of pieces.* So a copy of a store must be
/// continued from a position that is between no change's pieces
/// ([`ChangeFeed::clean_position`](crate::ChangeFeed::clean_position)), or the pieces from before
/// it are passed to [`collect`](Self::collect).
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Assembly {
    groups: HashMap<u64, Vec<u8>>,
}

impl Assembly {
    /// Hands out the items that take effect with the next entry.
    ///
    /// # Errors
    /// Those of `to`; the entry is damaged, or pieces are missing.
    pub fn apply<E: From<FeedDamage>>(
        &mut self,
        entry: &Entry<'_>,
        mut to: impl FnMut(Item<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        for item in entry.items() {
            match item? {
                Item::Pieces { id, length } if length > 0 => {
                    let whole = self.groups.remove(&id).unwrap_or_default();
                    if whole.len() as u64 != length {
                        return Err(damage(entry, "pieces of a change are missing").into());
                    }
                    for item in items_of(entry.position, &whole) {
                        to(item?)?;
                    }
                }
                Item::Pieces { id, .. } => drop(self.groups.remove(&id)),
                Item::Piece { id, offset, bytes } => self.add(entry, id, offset, bytes)?,
                item => to(item)?,
            }
        }
        Ok(())
    }

    /// Collects the pieces of an entry whose items have already taken effect.
    ///
    /// # Errors
    /// The entry is damaged.
    pub fn collect(&mut self, entry: &Entry<'_>) -> Result<(), FeedDamage> {
        for item in entry.items() {
            match item? {
                Item::Pieces { id, .. } => drop(self.groups.remove(&id)),
                Item::Piece { id, offset, bytes } => self.add(entry, id, offset, bytes)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn add(
        &mut self,
        entry: &Entry<'_>,
        id: u64,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), FeedDamage> {
        if offset == 0 {
            self.groups.insert(id, bytes.to_vec());
            return Ok(());
        }
        match self.groups.get_mut(&id) {
            Some(group) if group.len() as u64 == offset => group.extend_from_slice(bytes),
            Some(_) => return Err(damage(entry, "pieces of a change are not in order")),
            // It begins before the first entry that was read.
            None => {}
        }
        Ok(())
    }

    /// Bytes that it holds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.groups.values().map(Vec::len).sum()
    }
}

fn damage(entry: &Entry<'_>, what: &'static str) -> FeedDamage {
    let position = entry.position;
    FeedDamage { position, what }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::item::entries;
    use crate::feed::ring::{State, entry_bytes};
    use crate::region::expiry::Expiry;
    use mneme_sync::SlotId;

    /// The changes that take effect with these entries, as keys and lengths of values, or the
    /// error.
    fn applied(changes: &[Item<'_>]) -> Result<Vec<(u8, usize)>, &'static str> {
        let mut bytes = Vec::new();
        for item in changes {
            let mut body = Vec::new();
            item.encode(|part| body.extend_from_slice(part));
            bytes.extend(entry_bytes(State::Whole, SlotId(1), &body));
        }
        let (mut assembly, mut out) = (Assembly::default(), Vec::new());
        for entry in entries(0, &bytes) {
            let put = |item: Item<'_>| {
                if let Item::Put { key, bytes, .. } = item {
                    out.push((key[0], bytes.len()));
                }
                Ok::<(), FeedDamage>(())
            };
            assembly
                .apply(&entry.unwrap(), put)
                .map_err(|damage| damage.what)?;
        }
        assert_eq!(assembly.bytes(), 0);
        Ok(out)
    }

    fn put(key: &[u8], bytes: &[u8]) -> Vec<u8> {
        let mut body = Vec::new();
        let item = Item::Put {
            root: 1,
            key,
            kind: 0,
            expiry: Expiry::Never,
            bytes,
        };
        item.encode(|part| body.extend_from_slice(part));
        body
    }

    #[test]
    fn pieces_take_place_with_the_entry_that_says_so() {
        let value = vec![7; 100_000];
        let both = [put(b"a", &value), put(b"b", b"short")].concat();
        let (first, second) = both.split_at(60_000);
        let piece = |id, offset, bytes| Item::Piece { id, offset, bytes };
        let all = |id| Item::Pieces {
            id,
            length: both.len() as u64,
        };
        let end = |id| Item::Pieces { id, length: 0 };
        let beside = Item::Put {
            root: 1,
            key: b"c",
            kind: 0,
            expiry: Expiry::Never,
            bytes: b"",
        };
        let out = applied(&[
            piece(3, 0, first),
            beside,
            piece(3, 60_000, second),
            all(3),
            end(3),
        ]);
        assert_eq!(out, Ok(vec![(b'c', 0), (b'a', 100_000), (b'b', 5)]));
        // The pieces of two threads are interleaved.
        let mixed = |other| {
            applied(&[
                piece(3, 0, first),
                piece(other, 0, first),
                piece(3, 60_000, second),
                piece(other, 60_000, second),
                all(3),
                all(other),
            ])
        };
        assert_eq!(mixed(4).map(|out| out.len()), Ok(4));
        assert!(mixed(3).is_err(), "of one id");
        // A thread dies, or gives up, between its pieces.
        let out = applied(&[
            piece(3, 0, first),
            end(3),
            piece(5, 0, first),
            end(5),
            beside,
        ]);
        assert_eq!(out, Ok(vec![(b'c', 0)]));
        // A `Pieces` comes before all pieces are there, or names pieces from before the first entry
        // read.
        for cut in [
            &[piece(3, 0, first), all(3)][..],
            &[all(3), piece(3, 0, first)],
            &[piece(3, 60_000, second), all(3)],
        ] {
            assert_eq!(applied(cut), Err("pieces of a change are missing"));
        }
    }
}
