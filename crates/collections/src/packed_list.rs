//! A list that is one image: **its items in a listpack, preceded by a byte and the position of the
//! first item.**
//!
//! | bytes | what |
//! |---|---|
//! | 0 | form: 0, or 1 for a list with gaps |
//! | 1..9 | the first item's position, little-endian |
//! | then | the items, as a listpack |
//!
//! An item has a position, a number that it keeps while other items are pushed or popped: the
//! change feed reports items by their positions, and such a change may be applied to a newer list.
//! The positions of a list's items are consecutive. Only a list that is being replayed may have
//! gaps: then each item in the listpack is preceded by its position. Nothing else reads such a
//! list.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::error::{Damage, EditError};
use crate::list_edit::ListEdit;
use crate::listpack::{self, Element, Encoded, Entries, EntriesBack, Entry, Listpack};

/// Bytes before the listpack.
pub(crate) const LIST_HEAD: usize = 9;
/// The first byte: the positions are consecutive.
const DENSE: u8 = 0;
/// The first byte: each item is preceded by its position.
const GAPS: u8 = 1;
/// The position of the first item of a new list.
pub(crate) const MIDDLE: u64 = 1 << 63;

/// An end of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The end with index 0.
    Front,
    /// The end with the last item.
    Back,
}

/// A packed list, for reading.
#[derive(Clone, Copy, Debug)]
pub struct PackedList<'b> {
    first: u64,
    listpack: Listpack<'b>,
}

/// The form of an image, the position of its first item, and its listpack.
fn parts(image: &[u8]) -> Result<(u8, u64, Listpack<'_>), Damage> {
    let damage = |what| Err(Damage { at: 0, what });
    let Some((head, listpack)) = image.split_at_checked(LIST_HEAD) else {
        return damage("a list that is shorter than its head");
    };
    let (form, first) = (head[0], &head[1..]);
    if form > GAPS {
        return damage("a list of an unknown form");
    }
    let first = first
        .iter()
        .rev()
        .fold(0, |first, byte| first << 8 | u64::from(*byte));
    Ok((form, first, Listpack::read(listpack).map_err(in_image)?))
}

/// The bytes before the listpack.
pub(crate) fn head(first: u64) -> [u8; LIST_HEAD] {
    let mut head = [DENSE; LIST_HEAD];
    head[1..].copy_from_slice(&first.to_le_bytes());
    head
}

impl<'b> PackedList<'b> {
    /// Reads an image, checking only its head and its end. O(1).
    ///
    /// # Errors
    /// The image is not that of a list, by its head or its end.
    pub fn read(image: &'b [u8]) -> Result<PackedList<'b>, Damage> {
        match parts(image)? {
            (DENSE, first, listpack) => Ok(PackedList { first, listpack }),
            _ => Err(Damage {
                at: 0,
                what: "a list with gaps",
            }),
        }
    }

    /// The position of the first item. O(1).
    #[must_use]
    pub fn first(&self) -> u64 {
        self.first
    }

    /// The number of items. O(1) up to 65,534 of them, else O(bytes).
    ///
    /// # Errors
    /// The image is damaged.
    pub fn len(&self) -> Result<usize, Damage> {
        match self.listpack.said_len() {
            Some(said) => Ok(said),
            None => self.entries().try_fold(0, |count, entry| {
                entry?;
                Ok(count + 1)
            }),
        }
    }

    /// Whether there is no item. O(1).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.listpack.bytes().len() == listpack::EMPTY.len()
    }

    /// The item at this index, counted from 0. O(items between it and the nearer end).
    ///
    /// # Errors
    /// The image is damaged.
    pub fn get(&self, index: usize) -> Result<Option<Element<'b>>, Damage> {
        Ok(self.find(index)?.map(|entry| entry.value()))
    }

    /// Its items, in order. Damage ends the iteration. O(1) for each.
    #[must_use]
    pub fn items(&self) -> Items<'b> {
        Items(self.entries())
    }

    /// The items at these indices, as far as they exist. O(items before them), plus O(1) for each.
    ///
    /// # Errors
    /// The image is damaged before them.
    pub fn range(&self, range: Range<usize>) -> Result<std::iter::Take<Items<'b>>, Damage> {
        let mut items = self.items();
        for _ in 0..range.start {
            items.next().transpose()?;
        }
        Ok(items.take(range.len()))
    }

    /// Calls `visit` with the index of each item that equals `value`, starting from the end `from`,
    /// until it returns false or `most` items have been compared. O(bytes).
    ///
    /// # Errors
    /// The image is damaged.
    pub fn positions(
        &self,
        value: &[u8],
        from: End,
        most: usize,
        mut visit: impl FnMut(usize) -> bool,
    ) -> Result<(), Damage> {
        let sought = Encoded::of(value);
        match from {
            End::Front => {
                for (index, entry) in self.entries().take(most).enumerate() {
                    if entry?.is(&sought) && !visit(index) {
                        break;
                    }
                }
            }
            End::Back => {
                let len = self.len()?;
                for (back, entry) in self.entries_back().take(most).enumerate() {
                    let entry = entry?;
                    let Some(index) = len.checked_sub(back + 1) else {
                        return Err(another_len());
                    };
                    if entry.is(&sought) && !visit(index) {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads everything and compares all redundant information. O(bytes).
    ///
    /// # Errors
    /// The image contradicts itself.
    pub fn check(&self) -> Result<(), Damage> {
        self.listpack.check().map_err(in_image)?;
        match self.first.checked_add(self.len()? as u64) {
            Some(_) => Ok(()),
            None => Err(no_position()),
        }
    }

    /// The number of items that the listpack's head gives; `None`: they must be counted.
    pub(crate) fn said_len(&self) -> Option<usize> {
        self.listpack.said_len()
    }

    pub(crate) fn entries(&self) -> InImage<Entries<'b>> {
        InImage(self.listpack.entries())
    }

    pub(crate) fn entries_back(&self) -> InImage<EntriesBack<'b>> {
        InImage(self.listpack.entries_back())
    }

    /// The entry of the item at this index.
    pub(crate) fn find(&self, index: usize) -> Result<Option<Entry<'b>>, Damage> {
        match self.said_len() {
            Some(len) if index >= len => Ok(None),
            Some(len) if index > len / 2 => {
                let found = self.entries_back().nth(len - 1 - index).transpose()?;
                found.ok_or(another_len()).map(Some)
            }
            _ => self.entries().nth(index).transpose(),
        }
    }
}

/// Entries of a listpack, whose damage is reported by its place in the image.
pub(crate) struct InImage<I>(I);

impl<'b, I: Iterator<Item = Result<Entry<'b>, Damage>>> Iterator for InImage<I> {
    type Item = Result<Entry<'b>, Damage>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|entry| entry.map_err(in_image))
    }
}

/// The items of a list.
pub struct Items<'b>(InImage<Entries<'b>>);

impl std::fmt::Debug for Items<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Items").field(&self.0.0).finish()
    }
}

impl<'b> Iterator for Items<'b> {
    type Item = Result<Element<'b>, Damage>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|entry| Ok(entry?.value()))
    }
}

/// Converts the place of damage in a listpack to its place in the image.
fn in_image(damage: Damage) -> Damage {
    Damage {
        at: damage.at + LIST_HEAD,
        ..damage
    }
}

#[cold]
pub(crate) fn another_len() -> Damage {
    Damage {
        at: LIST_HEAD,
        what: "a list that says another number of items",
    }
}

#[cold]
pub(crate) fn no_position() -> Damage {
    Damage {
        at: 1,
        what: "a list without positions at one of its ends",
    }
}

/// The position in an element of the change feed.
pub(crate) fn position_of(element: &[u8]) -> Result<u64, Damage> {
    element
        .try_into()
        .map(u64::from_be_bytes)
        .map_err(|_| Damage {
            at: 0,
            what: "an item at what is no position",
        })
}

/// Applies a change to this image: the item at the position in `element` gets `value`, or is
/// removed if that is `None`. Returns the new image. O(bytes).
pub(crate) fn replay_item(
    image: &[u8],
    element: &[u8],
    value: Option<&[u8]>,
) -> Result<Vec<u8>, EditError> {
    let position = position_of(element)?;
    let (form, first, listpack) = parts(image)?;
    if form == DENSE {
        let list = PackedList { first, listpack };
        let len = list.len()? as u64;
        let behind = first.checked_add(len).ok_or(no_position())?;
        let mut edit = ListEdit::of(image)?;
        match value {
            Some(value) if len == 0 => {
                return Ok(ListEdit::beginning_at(position, value)?.into_image());
            }
            Some(value) if (first..behind).contains(&position) => {
                edit.set((position - first) as usize, value)?;
                return Ok(edit.into_image());
            }
            Some(value) if position == behind => {
                edit.push(End::Back, value)?;
                return Ok(edit.into_image());
            }
            Some(value) if position.checked_add(1) == Some(first) => {
                edit.push(End::Front, value)?;
                return Ok(edit.into_image());
            }
            None if !(first..behind).contains(&position) => return Ok(edit.into_image()),
            None if position == first => {
                edit.pop(End::Front, 1, |_| ())?;
                return Ok(edit.into_image());
            }
            None if position + 1 == behind => {
                edit.pop(End::Back, 1, |_| ())?;
                return Ok(edit.into_image());
            }
            _ => {}
        }
    }
    let mut items = BTreeMap::new();
    let mut entries = InImage(listpack.entries());
    let mut next = first;
    while let Some(entry) = entries.next() {
        let mut entry = entry?;
        if form == GAPS {
            let Element::Integer(at) = entry.value() else {
                return Err(no_position().into());
            };
            next = at.cast_unsigned();
            entry = entries.next().ok_or(no_position())??;
        }
        items.insert(next, entry.value().to_vec());
        next = next.wrapping_add(1);
    }
    match value {
        Some(value) => items.insert(position, value.to_vec()),
        None => items.remove(&position),
    };
    Ok(of_items(&items))
}

/// The image of a list of these items at their positions.
fn of_items(items: &BTreeMap<u64, Vec<u8>>) -> Vec<u8> {
    let first = items.keys().next().copied().unwrap_or(MIDDLE);
    let last = items.keys().next_back().copied().unwrap_or(MIDDLE);
    let mut image = head(first).to_vec();
    if last - first < items.len() as u64 {
        image.extend(listpack::of(items.values().map(|item| &item[..])));
        return image;
    }
    image[0] = GAPS;
    let positions = items
        .keys()
        .map(|position| position.cast_signed().to_string());
    let positions: Vec<String> = positions.collect();
    let each = positions.iter().zip(items.values());
    image.extend(listpack::of(
        each.flat_map(|(position, item)| [position.as_bytes(), item]),
    ));
    image
}
