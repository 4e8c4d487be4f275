//! Changes of a list: made in a copy of its image, which then replaces it.

use std::ops::Range;

use mneme_log::{Decision, Elements, MAX_VALUE};

use crate::error::{CollectionError, Damage, EditError};
use crate::listpack::{self, EMPTY, Encoded, HEAD, splice};
use crate::packed_list::{End, LIST_HEAD, MIDDLE, PackedList, another_len, head, no_position};

/// A packed list that is being changed. A change that fails leaves it as it was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListEdit {
    image: Vec<u8>,
    is_changed: bool,
    /// The recorded changes; `None`: they are not recorded.
    changes: Option<Moves>,
}

/// The changes of items, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Moves {
    /// The values of the items that were set.
    bytes: Vec<u8>,
    /// The position of each item, and its value's length in bytes; `None`: it was removed.
    each: Vec<(u64, Option<usize>)>,
}

impl Default for ListEdit {
    fn default() -> Self {
        Self::new()
    }
}

impl ListEdit {
    /// A list without items. O(1).
    #[must_use]
    pub fn new() -> ListEdit {
        ListEdit {
            image: [&head(MIDDLE)[..], &EMPTY].concat(),
            is_changed: false,
            changes: None,
        }
    }

    /// A list with one item, at this position.
    pub(crate) fn beginning_at(position: u64, value: &[u8]) -> Result<ListEdit, EditError> {
        let mut list = ListEdit::new();
        list.image[..LIST_HEAD].copy_from_slice(&head(position));
        list.push(End::Back, value)?;
        Ok(list)
    }

    /// A copy of the list in `image`. O(bytes).
    ///
    /// # Errors
    /// The image is not of this type, by its head or its end.
    pub fn of(image: &[u8]) -> Result<ListEdit, Damage> {
        PackedList::read(image)?;
        // Usually one more item fits without another copy.
        let mut copy = Vec::with_capacity(image.len() + 64);
        copy.extend_from_slice(image);
        Ok(ListEdit {
            image: copy,
            is_changed: false,
            changes: None,
        })
    }

    /// Returns what to do with the key of a changed list, for an update of the store: an empty list
    /// is removed. The changes are appended to `elements`, for an update that takes them
    /// ([`LogStore::update_elements`](mneme_log::LogStore::update_elements)).
    ///
    /// # Errors
    /// The image is damaged.
    pub(crate) fn into_decision(
        self,
        elements: Option<&mut Elements>,
    ) -> Result<Decision, CollectionError> {
        if self.is_empty()? {
            return Ok(Decision::Remove);
        }
        elements
            .into_iter()
            .for_each(|elements| self.say_in(elements));
        Ok(Decision::Replace(self.image))
    }

    /// Reports the changed elements.
    fn say_in(&self, elements: &mut Elements) {
        let Some(moves) = &self.changes else {
            return;
        };
        let mut rest = moves.bytes.as_slice();
        for (position, value) in &moves.each {
            let element = position.to_be_bytes();
            match value {
                Some(len) => {
                    let (value, behind) = rest.split_at(*len);
                    rest = behind;
                    elements.set(&element, value);
                }
                None => elements.remove(&element),
            }
        }
    }

    /// Starts recording the changes, for [`take_changes`](Self::take_changes).
    pub fn keep_changes(&mut self) {
        self.changes = Some(Moves::default());
    }

    /// Stops recording. Returns the positions of the items that were set, with their values, and of
    /// those that were removed (`None`), in order.
    pub fn take_changes(&mut self) -> Vec<(u64, Option<Vec<u8>>)> {
        let moves = self.changes.take().unwrap_or_default();
        let mut rest = moves.bytes.as_slice();
        let each = moves.each.iter().map(|(position, len)| {
            let (value, behind) = rest.split_at(len.unwrap_or_default());
            rest = behind;
            (*position, len.map(|_| value.to_vec()))
        });
        each.collect()
    }

    fn note(&mut self, position: u64, value: Option<&[u8]>) {
        self.is_changed = true;
        if let Some(moves) = &mut self.changes {
            moves.bytes.extend_from_slice(value.unwrap_or_default());
            moves.each.push((position, value.map(<[u8]>::len)));
        }
    }

    /// The list as it is now. O(1).
    ///
    /// # Errors
    /// The image is damaged.
    pub fn read(&self) -> Result<PackedList<'_>, Damage> {
        PackedList::read(&self.image)
    }

    /// The number of items. O(1) up to 65,534 of them, else O(bytes).
    ///
    /// # Errors
    /// The image is damaged.
    pub fn len(&self) -> Result<usize, EditError> {
        Ok(self.read()?.len()?)
    }

    /// Whether there is no item. O(1). An empty list is not stored: its key is removed.
    ///
    /// # Errors
    /// The image is damaged.
    pub fn is_empty(&self) -> Result<bool, EditError> {
        Ok(self.read()?.is_empty())
    }

    /// The item at this index, counted from 0. O(bytes).
    ///
    /// # Errors
    /// The image is damaged.
    pub fn get(&self, index: usize) -> Result<Option<Vec<u8>>, EditError> {
        Ok(self.read()?.get(index)?.map(|item| item.to_vec()))
    }

    /// Whether something was changed.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// The image. O(1).
    #[must_use]
    pub fn into_image(self) -> Vec<u8> {
        self.image
    }

    /// Adds an item at an end. O(bytes), most of which are moved by one copy.
    ///
    /// # Errors
    /// The image is damaged, or would be too long.
    pub fn push(&mut self, end: End, value: &[u8]) -> Result<(), EditError> {
        self.push_many(end, &[value])
    }

    /// Adds items at an end, one after the other. O(bytes), most of which are moved by one copy.
    ///
    /// # Errors
    /// As for [`push`](Self::push). Then none is added.
    pub fn push_many(&mut self, end: End, values: &[&[u8]]) -> Result<(), EditError> {
        let longer = (values.iter()).fold(self.image.len(), |sum, value| {
            sum.saturating_add(value.len())
        });
        check_len(longer)?;
        let list = self.read()?;
        let (first, said, number) = (list.first(), list.said_len(), values.len() as u64);
        // The boundary between the old items and the new ones.
        let (edge, new_first) = match end {
            End::Front => (first, first.checked_sub(number).ok_or(no_position())?),
            End::Back => {
                let edge = first.checked_add(list.len()? as u64);
                let fits = edge.filter(|edge| edge.checked_add(number).is_some());
                (fits.ok_or(no_position())?, first)
            }
        };
        let encoded = values.iter().map(|value| Encoded::of(value));
        match end {
            End::Front => {
                let (start, encoded) = (LIST_HEAD + HEAD, encoded.rev().collect::<Vec<_>>());
                splice(&mut self.image, start..start, &encoded);
                self.image[..LIST_HEAD].copy_from_slice(&head(new_first));
            }
            End::Back => {
                self.image.pop();
                encoded.for_each(|entry| entry.append_to(&mut self.image));
                self.image.push(EMPTY[HEAD]);
            }
        }
        self.finish(said.map(|said| said + values.len()));
        for (place, value) in (0..).zip(values) {
            let position = match end {
                End::Front => edge - 1 - place,
                End::Back => edge + place,
            };
            self.note(position, Some(value));
        }
        Ok(())
    }

    /// Removes up to `count` items from an end and calls `visit` with each, in the order of
    /// removal. Returns how many were removed. O(bytes), most of which are moved by one copy; at
    /// the back O(1) for each.
    ///
    /// # Errors
    /// The image is damaged; then `visit` may have been called.
    pub fn pop(
        &mut self,
        end: End,
        count: usize,
        mut visit: impl FnMut(&[u8]),
    ) -> Result<usize, EditError> {
        let list = self.read()?;
        let (first, said, len) = (list.first(), list.said_len(), list.len()?);
        let (mut popped, mut edge) = (0, None);
        let mut entries: (_, _) = (list.entries(), list.entries_back());
        while popped < count {
            let entry = match end {
                End::Front => entries.0.next(),
                End::Back => entries.1.next(),
            };
            let Some(entry) = entry else {
                break;
            };
            let entry = entry?;
            entry.value().with_bytes(&mut visit);
            edge = Some(match end {
                End::Front => entry.end,
                End::Back => entry.begin,
            });
            popped += 1;
        }
        let Some(edge) = edge else {
            return Ok(0);
        };
        let Some(left) = len.checked_sub(popped) else {
            return Err(another_len().into());
        };
        let behind = first.checked_add(len as u64).ok_or(no_position())?;
        let edge = edge + LIST_HEAD;
        match end {
            End::Front => {
                drop(self.image.drain(LIST_HEAD + HEAD..edge));
                let first = first + popped as u64;
                self.image[..LIST_HEAD].copy_from_slice(&head(first));
            }
            End::Back => {
                self.image.truncate(edge);
                self.image.push(EMPTY[HEAD]);
            }
        }
        self.finish(said.map(|_| left));
        for number in 0..popped as u64 {
            let position = match end {
                End::Front => first + number,
                End::Back => behind - 1 - number,
            };
            self.note(position, None);
        }
        Ok(popped)
    }

    /// Replaces the item at `index`. Returns whether there is such an item. O(bytes).
    ///
    /// # Errors
    /// The image is damaged, or would be too long.
    pub fn set(&mut self, index: usize, value: &[u8]) -> Result<bool, EditError> {
        check_len(self.image.len().saturating_add(value.len()))?;
        let list = self.read()?;
        let (first, count) = (list.first(), list.said_len());
        let Some(old) = list.find(index)? else {
            return Ok(false);
        };
        let position = first.checked_add(index as u64).ok_or(no_position())?;
        let place = old.begin + LIST_HEAD..old.end + LIST_HEAD;
        splice(&mut self.image, place, &[Encoded::of(value)]);
        self.finish(count);
        self.note(position, Some(value));
        Ok(true)
    }

    /// Inserts an item before or after the first one that equals `pivot`, and returns its index;
    /// `None`: there is no such item. O(bytes).
    ///
    /// # Errors
    /// The image is damaged, or would be too long.
    pub fn insert(
        &mut self,
        pivot: &[u8],
        is_before: bool,
        value: &[u8],
    ) -> Result<Option<usize>, EditError> {
        check_len(self.image.len().saturating_add(value.len()))?;
        let list = self.read()?;
        let (said, len) = (list.said_len(), list.len()?);
        let sought = Encoded::of(pivot);
        let mut found = None;
        for (index, entry) in list.entries().enumerate() {
            let entry = entry?;
            if entry.is(&sought) {
                found = Some(match is_before {
                    true => (index, entry.begin),
                    false => (index + 1, entry.end),
                });
                break;
            }
        }
        let Some((index, at)) = found else {
            return Ok(None);
        };
        // The side with fewer items gets new positions.
        let moves_front = index < len / 2;
        let first = match moves_front {
            true => list.first().checked_sub(1),
            false => Some(list.first()),
        };
        let fits = first.and_then(|first| first.checked_add(len as u64 + 1));
        let (Some(first), Some(_)) = (first, fits) else {
            return Err(no_position().into());
        };
        let at = at + LIST_HEAD;
        splice(&mut self.image, at..at, &[Encoded::of(value)]);
        self.image[..LIST_HEAD].copy_from_slice(&head(first));
        self.finish(said.map(|said| said + 1));
        let moved = match moves_front {
            true => 0..index + 1,
            false => index..len + 1,
        };
        self.note_values(moved)?;
        Ok(Some(index))
    }

    /// Removes items that equal `value`: the first `count` of them from that end; 0: all. Returns
    /// how many were removed. O(bytes).
    ///
    /// # Errors
    /// The image is damaged.
    pub fn remove(&mut self, from: End, count: usize, value: &[u8]) -> Result<usize, EditError> {
        let list = self.read()?;
        let most = if count == 0 { usize::MAX } else { count };
        let mut gone = Vec::new();
        list.positions(value, from, usize::MAX, |index| {
            gone.push(index);
            gone.len() < most
        })?;
        if from == End::Back {
            gone.reverse();
        }
        let (Some(lowest), Some(highest)) = (gone.first().copied(), gone.last().copied()) else {
            return Ok(0);
        };
        let (first, len) = (list.first(), list.len()?);
        let behind = first.checked_add(len as u64).ok_or(no_position())?;
        let mut image = Vec::with_capacity(self.image.len());
        image.extend_from_slice(&self.image[..LIST_HEAD + HEAD]);
        let (mut next, mut entries) = (gone.iter().peekable(), 0);
        for (index, entry) in list.entries().enumerate() {
            let entry = entry?;
            entries += 1;
            match next.peek() {
                Some(gone) if **gone == index => drop(next.next()),
                _ => image
                    .extend_from_slice(&self.image[entry.begin + LIST_HEAD..entry.end + LIST_HEAD]),
            }
        }
        image.push(EMPTY[HEAD]);
        if entries != len {
            return Err(another_len().into());
        }
        let removed = gone.len();
        let left = len - removed;
        // The side with fewer items moves up.
        let moves_front = highest < len - lowest;
        let new_first = match moves_front {
            true => first + removed as u64,
            false => first,
        };
        image[..LIST_HEAD].copy_from_slice(&head(new_first));
        listpack::finish(&mut image[LIST_HEAD..], Some(left));
        self.image = image;
        let freed = match moves_front {
            true => first..new_first,
            false => behind - removed as u64..behind,
        };
        freed.for_each(|position| self.note(position, None));
        self.note_values(match moves_front {
            true => 0..highest + 1 - removed,
            false => lowest..left,
        })?;
        Ok(removed)
    }

    /// Removes all items but those at these indices. O(bytes).
    ///
    /// # Errors
    /// The image is damaged.
    pub fn trim(&mut self, range: Range<usize>) -> Result<(), EditError> {
        let len = self.read()?.len()?;
        let (start, end) = (range.start.min(len), range.end.min(len));
        if start >= end {
            self.pop(End::Front, len, |_| ())?;
            return Ok(());
        }
        let before = self.clone();
        let popped = self.pop(End::Back, len - end, |_| ());
        let popped = popped.and_then(|_| self.pop(End::Front, start, |_| ()));
        match popped {
            Ok(_) => Ok(()),
            Err(error) => {
                *self = before;
                Err(error)
            }
        }
    }

    /// Records that the items at these indices have new values.
    fn note_values(&mut self, range: Range<usize>) -> Result<(), EditError> {
        self.is_changed = true;
        if self.changes.is_none() {
            return Ok(());
        }
        let (mut moves, list) = (self.changes.take().unwrap_or_default(), self.read()?);
        let positions = list.first() + range.start as u64..;
        for (position, item) in positions.zip(list.range(range)?) {
            let before = moves.bytes.len();
            item?.append_to(&mut moves.bytes);
            moves
                .each
                .push((position, Some(moves.bytes.len() - before)));
        }
        self.changes = Some(moves);
        Ok(())
    }

    fn finish(&mut self, count: Option<usize>) {
        listpack::finish(&mut self.image[LIST_HEAD..], count);
    }
}

/// Refuses an image that is too long for a record. The heads of entries, a few bytes, are not
/// counted: the store itself refuses an image that exceeds the limit by those.
fn check_len(bytes: usize) -> Result<(), EditError> {
    match bytes <= MAX_VALUE {
        true => Ok(()),
        false => Err(EditError::TooLong(bytes)),
    }
}
