//! Items: what an entry of the change feed says. Only this module knows their bytes.
//!
//! The body of an entry is one or more items, one after the other. All of them take effect at one
//! instant. Every item is *absolute*: it gives the state after the change, so that it may be
//! applied to a state that has the change already. Numbers are little-endian.
//!
//! | byte of an item | what |
//! |---|---|
//! | 0 | kind |
//! | 1 | of a `Put`, `Edit`, `Unedit`: the value's kind in bits 0..5; bit 7 of a `Put`: an expiry follows. Of a `Remove`: why. Else 0 |
//! | 2..4 | bytes of the key; of a `Bind`: databases |
//! | 4..6 | bytes of the value or part, or of an element and its value together; 0 if bit 7 of the kind is set; of a `Bind`: dead roots |
//! | 6..12 | root id; of `Piece` and `Pieces`: their id |
//! | 12.. | if bit 7 of the kind is set: bytes of the value or part (8); the fields of the kind, then the key, then the bytes |
//!
//! | kind | fields |
//! |---|---|
//! | 1 `Put` | expiry (8), if flagged |
//! | 2 `Patch` | offset (4), length of the value afterwards (4) |
//! | 3 `Expire` | expiry (8); 0: never |
//! | 4 `Remove`, 5 `Drop` | |
//! | 6 `Bind` | for each database a word: the root id in bits 0..48, the database in 48..56. For each dead root a word |
//! | 7 `Open`, 8 `Close` | |
//! | 9 `Piece` | offset (8) |
//! | 10 `Pieces` | length (8) |
//! | 11 `Edit` | bytes of the element (8), which stands before its value |
//! | 12 `Unedit` | |
//! | 13 `Touch` | |
//! | 14 | none yet |
//! | 15 | kept for a command: a root and bytes |

use mneme_sync::SlotId;
use thiserror::Error;

use super::ring::{Author, FeedHeader, HEADER_BYTES, State};
use crate::region::expiry::Expiry;
use crate::region::layout::MAX_ENTRY;
use crate::region::space::DATABASES;

const HEAD: usize = 12;
const CUT: &str = "an item goes beyond its entry";
const ROOT_BITS: u32 = 48;
const HAS_EXPIRY: u8 = 1 << 7;
const VALUE_KINDS: u8 = 1 << 5;
/// A flag in the kind: the length of the value or part has a word of its own.
const LONG: u8 = 1 << 7;

/// The root in items about elements of [collections](crate::Anchor): `Put` and `Remove` of an
/// [element's key](crate::element_key), and `Drop` of a collection whose sweep begins. No index has
/// this id.
pub const COLLECTIONS: u64 = 0;

/// One statement of an entry.
///
/// A *root* is the id of an index, which belongs to one database at a time and is never reused.
/// Records belong to roots; `Bind` says which root a database has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Item<'e> {
    /// `key` has this value, whatever it had before.
    Put {
        /// The index that has the key.
        root: u64,
        /// The key.
        key: &'e [u8],
        /// What kind of value it is, 0 to 31; 0: a string.
        kind: u8,
        /// When it expires.
        expiry: Expiry,
        /// The value.
        bytes: &'e [u8],
    },
    /// If `key` has a value, that is `length` bytes long and has these bytes from `offset` on.
    /// Bytes between its former end and `offset` are zero.
    Patch {
        /// The index that has the key.
        root: u64,
        /// The key.
        key: &'e [u8],
        /// Where the bytes go.
        offset: u32,
        /// How long the value is afterwards.
        length: u32,
        /// The bytes.
        bytes: &'e [u8],
    },
    /// The record of `key`, if there is one, expires then.
    Expire {
        /// The index that has the key.
        root: u64,
        /// The key.
        key: &'e [u8],
        /// When.
        expiry: Expiry,
    },
    /// `key` has no value.
    Remove {
        /// The index that has the key.
        root: u64,
        /// The key.
        key: &'e [u8],
        /// Why.
        cause: RemovalCause,
    },
    /// No key that begins with `prefix` has a value.
    Drop {
        /// The index that has the keys.
        root: u64,
        /// The prefix.
        prefix: &'e [u8],
    },
    /// Assigns roots to databases, see [`binding`], and names roots that are dropped for ever:
    /// later items about those have no effect.
    Bind {
        /// Words of [`binding`].
        databases: &'e [[u8; 8]],
        /// Root ids.
        dead: &'e [[u8; 8]],
    },
    /// All entries up to the next `Close` belong together.
    Open,
    /// The end of such a group.
    Close,
    /// A part of the items of a change, which takes effect with the later [`Pieces`](Item::Pieces)
    /// of the same id, if there is one. See [`Assembly`](super::Assembly).
    Piece {
        /// The id of the change.
        id: u64,
        /// The part's offset in the change. The pieces of an id come in order, the first one with
        /// offset 0.
        offset: u64,
        /// The part.
        bytes: &'e [u8],
    },
    /// The items that the pieces of this id contain take effect.
    Pieces {
        /// The id.
        id: u64,
        /// Bytes of all its pieces. 0: they are no longer needed, and nothing takes effect.
        length: u64,
    },
    /// If `key` has a value of this kind, that has this element with this value. The kind defines
    /// what an element is.
    Edit {
        /// The index that has the key.
        root: u64,
        /// The key.
        key: &'e [u8],
        /// The value's kind.
        kind: u8,
        /// The element.
        element: &'e [u8],
        /// The element's value.
        value: &'e [u8],
    },
    /// If `key` has a value of this kind, that does not have this element.
    Unedit {
        /// The index that has the key.
        root: u64,
        /// The key.
        key: &'e [u8],
        /// The value's kind.
        kind: u8,
        /// The element.
        element: &'e [u8],
    },
    /// The collection of `key` has changed, as other items of the entry say. A replay ignores this
    /// item: it names the key for listeners, and is entered only if there are any.
    Touch {
        /// The index that has the key.
        root: u64,
        /// The key.
        key: &'e [u8],
    },
}

/// Why a key was removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum RemovalCause {
    /// A caller requested it.
    Asked = 0,
    /// The key had expired.
    Expired = 1,
    /// The store needed space.
    Evicted = 2,
}

impl RemovalCause {
    fn of_flags(flags: u8) -> Option<RemovalCause> {
        let all = [Self::Asked, Self::Expired, Self::Evicted];
        all.into_iter().find(|cause| *cause as u8 == flags)
    }
}

/// The bytes of a feed contradict themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the change feed is damaged at position {position}: {what}")]
pub struct FeedDamage {
    /// The position of the entry in which it was found.
    pub position: u64,
    /// What was found.
    pub what: &'static str,
}

/// The word by which a `Bind` says that `database` has `root`; 0: it is empty.
#[must_use]
pub fn binding(database: u8, root: u64) -> [u8; 8] {
    (root | u64::from(database) << ROOT_BITS).to_le_bytes()
}

/// Database and root of a [`binding`].
#[must_use]
pub fn bound(word: [u8; 8]) -> (u8, u64) {
    let word = u64::from_le_bytes(word);
    ((word >> ROOT_BITS) as u8, word & root_mask())
}

const fn root_mask() -> u64 {
    (1 << ROOT_BITS) - 1
}

/// The parts of an item's bytes, in order.
struct Parts<'e> {
    kind: u8,
    flags: u8,
    root: u64,
    lengths: [usize; 2],
    fields: [u8; 8],
    field_bytes: usize,
    key: &'e [u8],
    bytes: &'e [u8],
    /// Further bytes, after those.
    tail: &'e [u8],
}

impl Parts<'_> {
    fn is_long(&self) -> bool {
        self.lengths[1] > usize::from(u16::MAX)
    }
}

impl<'e> Item<'e> {
    fn parts(&self) -> Parts<'e> {
        let plain = |kind, root, key: &'e [u8], bytes: &'e [u8]| Parts {
            kind,
            flags: 0,
            root,
            lengths: [key.len(), bytes.len()],
            fields: [0; 8],
            field_bytes: 0,
            key,
            bytes,
            tail: &[],
        };
        let with = |parts: Parts<'e>, fields: u64| Parts {
            fields: fields.to_le_bytes(),
            field_bytes: 8,
            ..parts
        };
        match *self {
            Item::Put {
                root,
                key,
                kind,
                expiry,
                bytes,
            } => {
                let parts = plain(1, root, key, bytes);
                match expiry {
                    Expiry::Never => Parts {
                        flags: kind,
                        ..parts
                    },
                    Expiry::At(_) => Parts {
                        flags: kind | HAS_EXPIRY,
                        ..with(parts, expiry.word())
                    },
                }
            }
            Item::Patch {
                root,
                key,
                offset,
                length,
                bytes,
            } => with(
                plain(2, root, key, bytes),
                u64::from(offset) | u64::from(length) << 32,
            ),
            Item::Expire { root, key, expiry } => with(plain(3, root, key, &[]), expiry.word()),
            Item::Remove { root, key, cause } => Parts {
                flags: cause as u8,
                ..plain(4, root, key, &[])
            },
            Item::Drop { root, prefix } => plain(5, root, prefix, &[]),
            Item::Bind { databases, dead } => Parts {
                lengths: [databases.len(), dead.len()],
                ..plain(6, 0, databases.as_flattened(), dead.as_flattened())
            },
            Item::Open => plain(7, 0, &[], &[]),
            Item::Close => plain(8, 0, &[], &[]),
            Item::Piece { id, offset, bytes } => with(plain(9, id, &[], bytes), offset),
            Item::Pieces { id, length } => with(plain(10, id, &[], &[]), length),
            Item::Edit {
                root,
                key,
                kind,
                element,
                value,
            } => Parts {
                flags: kind,
                lengths: [key.len(), element.len() + value.len()],
                tail: value,
                ..with(plain(11, root, key, element), element.len() as u64)
            },
            Item::Unedit {
                root,
                key,
                kind,
                element,
            } => Parts {
                flags: kind,
                ..plain(12, root, key, element)
            },
            Item::Touch { root, key } => plain(13, root, key, &[]),
        }
    }

    /// The item without its value, for followers that only learn which key has changed.
    pub(super) fn abridged(self) -> Item<'e> {
        match self {
            Item::Put {
                root, key, kind, ..
            } => Item::Put {
                root,
                key,
                kind,
                expiry: Expiry::Never,
                bytes: &[],
            },
            Item::Patch { root, key, .. } => Item::Put {
                root,
                key,
                kind: 0,
                expiry: Expiry::Never,
                bytes: &[],
            },
            other => other,
        }
    }

    /// Bytes that it takes in an entry.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        let parts = self.parts();
        let length = if parts.is_long() { 8 } else { 0 };
        HEAD + length + parts.field_bytes + parts.key.len() + parts.bytes.len() + parts.tail.len()
    }

    /// Hands out its bytes, part by part.
    pub(crate) fn encode(&self, mut to: impl FnMut(&[u8])) {
        let parts = self.parts();
        let mut head = [0; HEAD];
        (head[0], head[1]) = (parts.kind, parts.flags);
        head[2..4].copy_from_slice(&(parts.lengths[0] as u16).to_le_bytes());
        head[6..].copy_from_slice(&parts.root.to_le_bytes()[..6]);
        if parts.is_long() {
            head[0] |= LONG;
            to(&head);
            to(&(parts.lengths[1] as u64).to_le_bytes());
        } else {
            head[4..6].copy_from_slice(&(parts.lengths[1] as u16).to_le_bytes());
            to(&head);
        }
        to(&parts.fields[..parts.field_bytes]);
        to(parts.key);
        to(parts.bytes);
        if !parts.tail.is_empty() {
            to(parts.tail);
        }
    }

    /// The item at the beginning of `body`, and what lies behind it.
    fn decode(body: &'e [u8]) -> Result<(Item<'e>, &'e [u8]), &'static str> {
        let (parts, behind) = Item::decode_head(body)?;
        let [kind, flags] = [parts.kind, parts.flags];
        let (bytes, behind) = behind.split_at_checked(parts.lengths[1]).ok_or(CUT)?;
        let field = u64::from_le_bytes(parts.fields);
        let item = Item::of_parts(kind, flags, parts.root, field, parts.key, bytes)?;
        Ok((item, behind))
    }

    /// The parts of the item at the beginning of `body` before its bytes, which may be cut, and
    /// what lies behind them.
    fn decode_head(body: &'e [u8]) -> Result<(Parts<'e>, &'e [u8]), &'static str> {
        let (head, mut rest) = body.split_first_chunk::<HEAD>().ok_or(CUT)?;
        let [kind, flags, k0, k1, b0, b1, root @ ..] = *head;
        let (key_len, bytes_len) = (u16::from_le_bytes([k0, k1]), u16::from_le_bytes([b0, b1]));
        let (mut key_len, mut bytes_len) = (usize::from(key_len), usize::from(bytes_len));
        let mut word = [0; 8];
        word[..6].copy_from_slice(&root);
        let root = u64::from_le_bytes(word);
        if !matches!(kind & !LONG, 1 | 4 | 11 | 12) && flags != 0 {
            return Err("an item has unknown flags");
        }
        let is_long = kind >= LONG && matches!(kind & !LONG, 0..=2 | 11 | 12);
        let kind = if is_long { kind & !LONG } else { kind };
        if is_long {
            let (word, behind) = rest.split_first_chunk::<8>().ok_or(CUT)?;
            bytes_len = usize::try_from(u64::from_le_bytes(*word)).map_err(|_| CUT)?;
            rest = behind;
            if bytes_len <= usize::from(u16::MAX) {
                return Err("an item has the long form of a short length");
            }
        }
        if kind == 6 {
            (key_len, bytes_len) = (key_len * 8, bytes_len * 8);
        }
        let (mut fields, mut field_bytes) = ([0; 8], 0);
        if matches!(kind, 2 | 3 | 9..=11) || flags & HAS_EXPIRY != 0 {
            let (word, behind) = rest.split_first_chunk().ok_or(CUT)?;
            (fields, field_bytes, rest) = (*word, 8, behind);
        }
        let (key, behind) = rest.split_at_checked(key_len).ok_or(CUT)?;
        let parts = Parts {
            kind,
            flags,
            root,
            lengths: [key_len, bytes_len],
            fields,
            field_bytes,
            key,
            bytes: &[],
            tail: &[],
        };
        Ok((parts, behind))
    }

    /// The root, the key and the total length of the item with these first bytes, if it stores a
    /// value.
    pub(crate) fn stored_at(first: &'e [u8]) -> Option<(u64, &'e [u8], u64)> {
        let (parts, behind) = Item::decode_head(first).ok()?;
        let length = (first.len() - behind.len()).checked_add(parts.lengths[1])?;
        matches!(parts.kind, 1 | 2 | 11).then_some((parts.root, parts.key, length as u64))
    }

    /// The item with these parts, each in its encoded form; a `field` that the kind lacks is zero.
    fn of_parts(
        kind: u8,
        flags: u8,
        root: u64,
        field: u64,
        key: &'e [u8],
        bytes: &'e [u8],
    ) -> Result<Item<'e>, &'static str> {
        Ok(match kind {
            1 => {
                let value_kind = flags & !HAS_EXPIRY;
                if value_kind >= VALUE_KINDS || (flags != value_kind && field == 0) {
                    return Err("a put has unknown flags");
                }
                Item::Put {
                    root,
                    key,
                    kind: value_kind,
                    expiry: Expiry::of_word(field),
                    bytes,
                }
            }
            2 => {
                let (offset, length) = (field as u32, (field >> 32) as u32);
                if u64::from(offset) + bytes.len() as u64 > u64::from(length) {
                    return Err("a patch goes beyond the value's end");
                }
                Item::Patch {
                    root,
                    key,
                    offset,
                    length,
                    bytes,
                }
            }
            3..=5 | 7 | 8 | 10 | 13 if !bytes.is_empty() => {
                return Err("an item has bytes that mean nothing");
            }
            7..=10 if !key.is_empty() => return Err("an item has a key that means nothing"),
            3 => Item::Expire {
                root,
                key,
                expiry: Expiry::of_word(field),
            },
            4 => Item::Remove {
                root,
                key,
                cause: RemovalCause::of_flags(flags).ok_or("a removal has an unknown cause")?,
            },
            5 => Item::Drop { root, prefix: key },
            6 => {
                let (databases, dead) = (key.as_chunks().0, bytes.as_chunks().0);
                if databases.iter().any(|word| !is_binding(*word)) {
                    return Err("a binding names no database");
                }
                if dead
                    .iter()
                    .any(|word| u64::from_le_bytes(*word) > root_mask())
                {
                    return Err("a dead root has an id that no root has");
                }
                Item::Bind { databases, dead }
            }
            7 => Item::Open,
            8 => Item::Close,
            9 => Item::Piece {
                id: root,
                offset: field,
                bytes,
            },
            10 => Item::Pieces {
                id: root,
                length: field,
            },
            11 | 12 if flags >= VALUE_KINDS => return Err("an edit has unknown flags"),
            11 => {
                let split = usize::try_from(field).ok();
                let (element, value) = split
                    .and_then(|split| bytes.split_at_checked(split))
                    .ok_or("an element goes beyond its item")?;
                Item::Edit {
                    root,
                    key,
                    kind: flags,
                    element,
                    value,
                }
            }
            12 => Item::Unedit {
                root,
                key,
                kind: flags,
                element: bytes,
            },
            13 => Item::Touch { root, key },
            _ => return Err("an item is of an unknown kind"),
        })
    }
}

/// The bytes of a `Piece` before its part, which has `bytes` bytes.
pub(super) fn encode_piece_head(id: u64, offset: u64, bytes: usize) -> [u8; HEAD + 8] {
    let mut head = [0; HEAD + 8];
    head[0] = 9;
    head[4..6].copy_from_slice(&(bytes as u16).to_le_bytes());
    head[6..HEAD].copy_from_slice(&id.to_le_bytes()[..6]);
    head[HEAD..].copy_from_slice(&offset.to_le_bytes());
    head
}

fn is_binding(word: [u8; 8]) -> bool {
    usize::from(bound(word).0) < DATABASES && word[7] == 0
}

/// An entry of a feed: changes that take effect at one instant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'e> {
    /// Its position in the stream.
    pub position: u64,
    /// Its items; none if it is void.
    body: &'e [u8],
    stride: usize,
}

impl<'e> Entry<'e> {
    /// The distance to the next entry in bytes.
    #[must_use]
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Its items. After an error the iterator ends.
    pub fn items(&self) -> impl Iterator<Item = Result<Item<'e>, FeedDamage>> + use<'e> {
        items_of(self.position, self.body)
    }
}

/// The items in `rest`, which belong to a change at `position`.
pub(crate) fn items_of(
    position: u64,
    mut rest: &[u8],
) -> impl Iterator<Item = Result<Item<'_>, FeedDamage>> {
    std::iter::from_fn(move || {
        let body = std::mem::take(&mut rest);
        if body.is_empty() {
            return None;
        }
        Some(match Item::decode(body) {
            Ok((item, behind)) => {
                rest = behind;
                Ok(item)
            }
            Err(what) => Err(FeedDamage { position, what }),
        })
    })
}

/// The entries in drained bytes, the first of which has position `position` of the stream. After an
/// error the iterator ends.
///
/// # Errors
/// The bytes are not whole entries.
pub fn entries(
    mut position: u64,
    mut bytes: &[u8],
) -> impl Iterator<Item = Result<Entry<'_>, FeedDamage>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let all = std::mem::take(&mut bytes);
        Some(match split_entry(all) {
            Ok((body, behind)) => {
                let stride = all.len() - behind.len();
                let entry = Entry {
                    position,
                    body,
                    stride,
                };
                position = position.wrapping_add(stride as u64);
                bytes = behind;
                Ok(entry)
            }
            Err(what) => Err(FeedDamage { position, what }),
        })
    })
}

/// The entries of a copy have no author.
const NOBODY: Author = Author {
    slot: SlotId(0),
    process: 0,
};

/// Appends an entry with these items to `to`, as [`entries`] reads it: for a copy of a store that
/// is kept in the same form as its changes.
///
/// # Errors
/// The items have more than [`MAX_ITEMS`] bytes, which is returned. Nothing was appended.
pub fn append_entry(items: &[Item<'_>], to: &mut Vec<u8>) -> Result<(), usize> {
    let bytes = HEADER_BYTES + items.iter().map(Item::encoded_len).sum::<usize>();
    if bytes > MAX_ENTRY {
        return Err(bytes - HEADER_BYTES);
    }
    to.extend_from_slice(&FeedHeader::new(State::Whole, bytes, NOBODY, 0).word());
    for item in items {
        item.encode(|part| to.extend_from_slice(part));
    }
    let padding = bytes.next_multiple_of(8) - bytes;
    to.extend_from_slice(&[0; 8][..padding]);
    Ok(())
}

/// Appends the entries of one change with these items: a single entry, or [`Piece`](Item::Piece)s
/// with this id and an entry that makes them take effect.
pub fn append_change(items: &[Item<'_>], id: u64, to: &mut Vec<u8>) {
    if append_entry(items, to).is_ok() {
        return;
    }
    let mut bytes = Vec::with_capacity(items.iter().map(Item::encoded_len).sum());
    for item in items {
        item.encode(|part| bytes.extend_from_slice(part));
    }
    let mut append = |item| {
        // Each is short enough.
        let appended = append_entry(&[item], to);
        debug_assert!(appended.is_ok());
    };
    for (i, bytes) in bytes.chunks(PIECE).enumerate() {
        let offset = (i * PIECE) as u64;
        append(Item::Piece { id, offset, bytes });
    }
    let length = bytes.len() as u64;
    append(Item::Pieces { id, length });
}

/// The body of the first entry, and what lies behind the entry.
fn split_entry(bytes: &[u8]) -> Result<(&[u8], &[u8]), &'static str> {
    const CUT: &str = "the bytes end in the middle of an entry";
    let word = bytes.first_chunk::<HEADER_BYTES>().ok_or(CUT)?;
    let header = FeedHeader::of_word(u64::from_le_bytes(*word)).ok_or("no header of an entry")?;
    let stride = header.stride() as usize;
    let (entry, behind) = bytes.split_at_checked(stride).ok_or(CUT)?;
    match header.state() {
        State::Reserved => Err("an entry that was not completed"),
        State::Void => Ok((&[], behind)),
        State::Whole => Ok((&entry[HEADER_BYTES..header.bytes()], behind)),
    }
}

/// Bytes of a piece: as many whole words as fit an entry.
pub(super) const PIECE: usize = (MAX_ITEMS - HEAD - 8) / 8 * 8;

/// The most bytes that the items of an entry may have.
pub const MAX_ITEMS: usize = MAX_ENTRY - HEADER_BYTES;

#[cfg(test)]
mod tests {
    use mneme_sync::SlotId;

    use super::*;
    use crate::feed::ring::entry_bytes;

    fn all() -> Vec<Item<'static>> {
        const DATABASES: &[[u8; 8]] = &[[7, 0, 0, 0, 0, 0, 3, 0], [0, 0, 0, 0, 0, 0, 63, 0]];
        let put = |expiry, bytes| Item::Put {
            root: root_mask(),
            key: b"key",
            kind: 31,
            expiry,
            bytes,
        };
        let (root, key) = (1, b"k".as_slice());
        vec![
            put(Expiry::Never, b"value"),
            put(Expiry::At(1), b""),
            Item::Patch {
                root,
                key,
                offset: 3,
                length: 7,
                bytes: b"part",
            },
            Item::Expire {
                root,
                key,
                expiry: Expiry::Never,
            },
            Item::Remove {
                root,
                key: b"",
                cause: RemovalCause::Evicted,
            },
            Item::Drop { root, prefix: key },
            Item::Bind {
                databases: DATABASES,
                dead: &[[9, 0, 0, 0, 0, 0, 0, 0]],
            },
            Item::Open,
            Item::Close,
            Item::Piece {
                id: 5,
                offset: u64::MAX,
                bytes: b"piece",
            },
            Item::Pieces {
                id: 5,
                length: 70_000,
            },
            Item::Edit {
                root,
                key,
                kind: 31,
                element: b"element",
                value: b"value",
            },
            Item::Edit {
                root,
                key,
                kind: 1,
                element: b"",
                value: b"",
            },
            Item::Unedit {
                root,
                key,
                kind: 1,
                element: b"element",
            },
            Item::Touch { root, key },
        ]
    }

    fn encoded(items: &[Item<'_>], state: State) -> Vec<u8> {
        let mut body = Vec::new();
        for item in items {
            let before = body.len();
            item.encode(|part| body.extend_from_slice(part));
            assert_eq!(body.len() - before, item.encoded_len());
        }
        entry_bytes(state, SlotId(3), &body)
    }

    #[test]
    fn items_are_decoded_as_they_were_encoded() {
        let items = all();
        let mut bytes = encoded(&items, State::Whole);
        let first = bytes.len() as u64;
        bytes.extend(encoded(&items[..1], State::Void));
        let second = bytes.len() as u64;
        bytes.extend(encoded(&items[1..2], State::Whole));
        let found: Vec<_> = entries(800, &bytes).map(Result::unwrap).collect();
        let positions: Vec<_> = found.iter().map(|entry| entry.position - 800).collect();
        assert_eq!(positions, [0, first, second]);
        let of = |i: usize| -> Vec<_> { found[i].items().map(Result::unwrap).collect() };
        assert_eq!(of(0), items);
        assert_eq!(of(1), [], "nothing came of it");
        assert_eq!(of(2), items[1..2]);
    }

    /// An `Edit` that is entered in pieces.
    #[test]
    fn an_edit_longer_than_an_entry_is_decoded() {
        let edit = |element, value| Item::Edit {
            root: 1,
            key: b"k",
            kind: 1,
            element,
            value,
        };
        let unedit = Item::Unedit {
            root: 1,
            key: b"k",
            kind: 1,
            element: &[9; 70_000],
        };
        let (short, long) = (&[7; 40_000], &[8; 40_000]);
        for item in [edit(short, long), edit(b"", &[8; 70_000]), unedit] {
            let mut bytes = Vec::new();
            item.encode(|part| bytes.extend_from_slice(part));
            bytes.push(0);
            assert_eq!(Item::decode(&bytes), Ok((item, &[0][..])));
        }
    }

    #[test]
    fn a_dead_root_with_an_id_that_no_root_has_is_an_error() {
        for (root, errors) in [(root_mask(), 0), (root_mask() + 1, 1), (1 << 63 | 9, 1)] {
            let bind = Item::Bind {
                databases: &[binding(0, 0)],
                dead: &[root.to_le_bytes()],
            };
            assert_eq!(walk(&encoded(&[bind], State::Whole)), errors, "{root:x}");
        }
    }

    #[test]
    fn a_put_of_16_and_100_bytes_takes_136() {
        let item = Item::Put {
            root: 1,
            key: &[7; 16],
            kind: 0,
            expiry: Expiry::Never,
            bytes: &[7; 100],
        };
        assert_eq!(encoded(&[item], State::Whole).len(), 136);
    }

    /// Decodes all that the bytes say; returns the number of errors.
    fn walk(bytes: &[u8]) -> usize {
        let mut errors = 0;
        for entry in entries(0, bytes) {
            match entry {
                Ok(entry) => errors += entry.items().filter(Result::is_err).count(),
                Err(_) => errors += 1,
            }
        }
        errors
    }

    #[test]
    fn damaged_bytes_are_errors() {
        let bytes = encoded(&all(), State::Whole);
        assert_eq!(walk(&bytes), 0);
        for end in 1..bytes.len() {
            assert_eq!(walk(&bytes[..end]), 1, "cut at {end}");
        }
        assert_eq!(walk(&encoded(&all(), State::Reserved)), 1);
        // Any changed byte gives an error or another item; nothing panics.
        for at in 0..bytes.len() {
            for value in 0..=u8::MAX {
                let mut damaged = bytes.clone();
                damaged[at] = value;
                assert!(walk(&damaged) <= 2, "{value} at {at}");
            }
        }
        let mut state = 1u64;
        for _ in 0..20_000 {
            let random: Vec<u8> = (0..64)
                .map(|_| {
                    state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                    (state >> 56) as u8
                })
                .collect();
            walk(&random);
            // As the body of an entry.
            walk(&entry_bytes(State::Whole, SlotId(0), &random));
        }
    }
}
