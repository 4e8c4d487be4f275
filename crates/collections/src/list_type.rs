//! Implements [`CollectionType`](crate::CollectionType) for a list.

use std::ops::Range;

use mneme_log::{Decision, Elements, ValueKind};

use crate::LIST;
use crate::collection_type::{CollectionType, LargeEdit, finished};
use crate::error::{CollectionError, Damage};
use crate::large_list::LargeList;
use crate::list_edit::ListEdit;
use crate::packed_list::{End, PackedList};
use crate::records::StoreRecords;

/// The longest image of a packed list, in bytes: pushing at the front moves all of it.
const MAX_PACKED_LIST: usize = 2048;

/// Lists. A list whose image would be longer than 2 KiB is large.
pub enum ListType {}

impl CollectionType for ListType {
    const KIND: ValueKind = LIST;
    type Packed<'b> = PackedList<'b>;
    type Large<'r> = LargeList<'r>;
    type Edit<'r> = ListChange<'r>;
    /// Nothing: a change may access any element.
    type Wanted<'w> = ();

    fn read(image: &[u8]) -> Result<PackedList<'_>, Damage> {
        PackedList::read(image)
    }

    fn outgrows(image: &[u8]) -> Result<bool, Damage> {
        Ok(image.len() > MAX_PACKED_LIST)
    }

    fn decide<R, E: From<CollectionError>>(
        old: Option<&[u8]>,
        elements: Option<&mut Elements>,
        change: impl FnOnce(&mut ListChange<'_>) -> Result<(R, bool), E>,
    ) -> Result<(R, Decision), E> {
        let elements = elements.filter(|elements| elements.are_wanted());
        let list = old.map_or_else(|| Ok(ListEdit::new()), ListEdit::of);
        let mut list = list.map_err(CollectionError::from)?;
        if elements.is_some() {
            list.keep_changes();
        }
        let mut list = ListChange(Form::Packed(list));
        let (result, is_changed) = change(&mut list)?;
        let decision = match list.0 {
            Form::Packed(list) if is_changed => list.into_decision(elements)?,
            _ => Decision::Keep,
        };
        Ok((result, decision))
    }

    fn open(records: &mut dyn StoreRecords, id: u64) -> Result<LargeList<'_>, CollectionError> {
        LargeList::open(records, id)
    }

    fn build(records: &mut dyn StoreRecords, id: u64, image: &[u8]) -> Result<(), CollectionError> {
        LargeList::build(records, id, image)
    }

    fn edit<R, E: From<CollectionError>>(
        large: LargeList<'_>,
        (): (),
        change: impl FnOnce(&mut ListChange<'_>) -> Result<(R, bool), E>,
    ) -> Result<(R, LargeEdit), E> {
        let mut list = ListChange(Form::Large(large));
        let changed = change(&mut list);
        match list.0 {
            Form::Large(large) => finished(large, changed),
            Form::Packed(_) => changed.map(|(result, _)| (result, LargeEdit::Kept)),
        }
    }
}

/// A list that is being changed, small or large. A change that fails leaves a small list as it was;
/// its changes of a large list are undone with the transaction, unless the transaction continues.
pub struct ListChange<'r>(Form<'r>);

enum Form<'r> {
    Packed(ListEdit),
    Large(LargeList<'r>),
}

impl ListChange<'_> {
    /// The number of items. O(1).
    ///
    /// # Errors
    /// The list is damaged.
    pub fn len(&self) -> Result<usize, CollectionError> {
        match &self.0 {
            Form::Packed(list) => Ok(list.len()?),
            Form::Large(list) => Ok(list.len() as usize),
        }
    }

    /// Whether there is no item: then its key is removed, or does not exist. O(1).
    ///
    /// # Errors
    /// The list is damaged.
    pub fn is_empty(&self) -> Result<bool, CollectionError> {
        match &self.0 {
            Form::Packed(list) => Ok(list.is_empty()?),
            Form::Large(list) => Ok(list.is_empty()),
        }
    }

    /// Whether something was changed.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        match &self.0 {
            Form::Packed(list) => list.is_changed(),
            Form::Large(list) => list.is_changed(),
        }
    }

    /// The item at this index, counted from 0.
    ///
    /// # Errors
    /// The list is damaged, or cannot be read.
    pub fn get(&mut self, index: usize) -> Result<Option<Vec<u8>>, CollectionError> {
        match &mut self.0 {
            Form::Packed(list) => Ok(list.get(index)?),
            Form::Large(list) => list.get(index),
        }
    }

    /// Adds an item at an end.
    ///
    /// # Errors
    /// The list is damaged, or there is no space.
    pub fn push(&mut self, end: End, item: &[u8]) -> Result<(), CollectionError> {
        match &mut self.0 {
            Form::Packed(list) => Ok(list.push(end, item)?),
            Form::Large(list) => list.push(end, item),
        }
    }

    /// Adds items at an end, one after the other.
    ///
    /// # Errors
    /// The list is damaged, or there is no space. Then none is added.
    pub fn push_many(&mut self, end: End, items: &[&[u8]]) -> Result<(), CollectionError> {
        match &mut self.0 {
            Form::Packed(list) => Ok(list.push_many(end, items)?),
            Form::Large(list) => list.push_many(end, items),
        }
    }

    /// Removes up to `count` items from an end and calls `visit` with each, in the order of
    /// removal. Returns how many were removed.
    ///
    /// # Errors
    /// The list is damaged, or cannot be read; then `visit` may have been called.
    pub fn pop(
        &mut self,
        end: End,
        count: usize,
        visit: impl FnMut(&[u8]),
    ) -> Result<usize, CollectionError> {
        match &mut self.0 {
            Form::Packed(list) => Ok(list.pop(end, count, visit)?),
            Form::Large(list) => list.pop(end, count, visit),
        }
    }

    /// Replaces the item at `index`. Returns whether there is such an item.
    ///
    /// # Errors
    /// The list is damaged, or there is no space.
    pub fn set(&mut self, index: usize, item: &[u8]) -> Result<bool, CollectionError> {
        match &mut self.0 {
            Form::Packed(list) => Ok(list.set(index, item)?),
            Form::Large(list) => list.set(index, item),
        }
    }

    /// Inserts an item before or after the first one that equals `pivot`, and returns its index;
    /// `None`: there is no such item.
    ///
    /// # Errors
    /// The list is damaged, or there is no space.
    pub fn insert(
        &mut self,
        pivot: &[u8],
        is_before: bool,
        item: &[u8],
    ) -> Result<Option<usize>, CollectionError> {
        match &mut self.0 {
            Form::Packed(list) => Ok(list.insert(pivot, is_before, item)?),
            Form::Large(list) => list.insert(pivot, is_before, item),
        }
    }

    /// Removes items that equal `value`: the first `count` of them from that end; 0: all. Returns
    /// how many were removed.
    ///
    /// # Errors
    /// The list is damaged, or cannot be read.
    pub fn remove(
        &mut self,
        from: End,
        count: usize,
        value: &[u8],
    ) -> Result<usize, CollectionError> {
        match &mut self.0 {
            Form::Packed(list) => Ok(list.remove(from, count, value)?),
            Form::Large(list) => list.remove(from, count, value),
        }
    }

    /// Removes all items but those at these indices.
    ///
    /// # Errors
    /// The list is damaged, or cannot be read.
    pub fn trim(&mut self, range: Range<usize>) -> Result<(), CollectionError> {
        match &mut self.0 {
            Form::Packed(list) => Ok(list.trim(range)?),
            Form::Large(list) => list.trim(range),
        }
    }
}
