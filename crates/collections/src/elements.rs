//! Values as elements, the form in which the change feed reports them: what replaying a feed needs
//! to know about types.
//!
//! **A change of an element is absolute**: it may be applied to a value that has it already.

use std::collections::HashMap;

use mneme_log::{LogStore, ValueKind};

use crate::error::{CollectionError, Damage, EditError};
use crate::large_list::LargeList;
use crate::large_sorted_set::LargeSortedSet;
use crate::leaves::Leaves;
use crate::packed::Packed;
use crate::packed_edit::{HashEdit, SetEdit};
use crate::packed_list::replay_item;
use crate::records::StoreRecords;
use crate::score::score_in;
use crate::sorted_set_edit::SortedSetEdit;
use crate::{HASH, LIST, SET, SORTED_SET};

/// Applies a change to this image of a value of this kind: `element` gets `value`, or is removed if
/// that is `None`. Returns the new image. O(bytes).
///
/// # Errors
/// The image is damaged or would be too long, or values of the kind have no elements.
pub fn apply(
    kind: ValueKind,
    image: &[u8],
    element: &[u8],
    value: Option<&[u8]>,
) -> Result<Vec<u8>, EditError> {
    match kind {
        HASH => {
            let mut hash = HashEdit::of(image)?;
            match value {
                Some(value) => hash.put(element, value)?,
                None => hash.remove(element)?,
            };
            Ok(hash.into_image())
        }
        SET => {
            let mut set = SetEdit::of(image)?;
            match value {
                Some(_) => set.replay(element)?,
                None => set.remove(element)?,
            };
            Ok(set.into_image())
        }
        LIST => replay_item(image, element, value),
        SORTED_SET => {
            let mut set = SortedSetEdit::of(image)?;
            match value {
                Some(score) => set.set(element, score_in(score)?)?,
                None => set.remove(element)?,
            };
            Ok(set.into_image())
        }
        _ => Err(no_elements().into()),
    }
}

/// Gives `element` of collection `id`, in a store that is being rebuilt, this value; `None`:
/// removes it. A collection that does not exist yet is created, of the kind that the value has.
///
/// # Errors
/// The collection is damaged, or of a kind that has no elements; the store cannot be read, or there
/// is no space.
pub fn replay(
    store: &LogStore,
    id: u64,
    element: &[u8],
    value: Option<(ValueKind, &[u8])>,
) -> Result<(), CollectionError> {
    store.transaction(|t| {
        let kind = match (t.anchor(id)?, value) {
            (Some(anchor), _) => anchor.kind,
            (None, Some((kind, _))) => kind,
            (None, None) => return Ok(()),
        };
        let value = value.map(|(_, value)| value);
        match kind {
            HASH => change::<2>(t, (id, kind), element, value),
            SET => change::<1>(t, (id, kind), element, value),
            SORTED_SET => {
                let mut set = LargeSortedSet::replay(t, id)?;
                match value {
                    Some(score) => set.set(element, score_in(score)?)?,
                    None => set.remove(element)?,
                };
                set.finish()
            }
            LIST => {
                let mut list = LargeList::replay(t, id)?;
                list.replay_item(element, value)?;
                list.finish().map(drop)
            }
            _ => Err(no_elements().into()),
        }
    })
}

fn change<const ENTRIES: usize>(
    records: &mut dyn StoreRecords,
    (id, kind): (u64, ValueKind),
    element: &[u8],
    value: Option<&[u8]>,
) -> Result<(), CollectionError> {
    let mut leaves = Leaves::<ENTRIES>::replay(records, id, kind)?;
    match value {
        Some(value) => leaves.set(element, value)?,
        None => leaves.remove(element)?,
    };
    leaves.finish()
}

/// Visits about `count` elements of collection `id` from `cursor` on, which is 0 at first, with
/// their values. Returns the next cursor; 0: that was all, or the collection no longer exists. An
/// element that exists throughout the scan is visited at least once.
///
/// # Errors
/// The collection is damaged, or the store cannot be read.
pub fn scan_collection(
    store: &LogStore,
    id: u64,
    cursor: u64,
    count: usize,
    mut visit: impl FnMut(ValueKind, &[u8], &[u8]),
) -> Result<u64, CollectionError> {
    let (kind, pairs, next) = store.transaction(|t| {
        let kind = t.anchor(id)?.map_or(HASH, |anchor| anchor.kind);
        let (pairs, next) = match (t.anchor(id)?, kind) {
            (None, _) => (Vec::new(), 0),
            (_, HASH | SORTED_SET) => Leaves::<2>::open_kind(t, id, kind)?.scan(cursor, count)?,
            (_, SET) => Leaves::<1>::open_kind(t, id, kind)?.scan(cursor, count)?,
            (_, LIST) => LargeList::open(t, id)?.scan(cursor, count)?,
            _ => return Err(CollectionError::from(no_elements())),
        };
        Ok((kind, pairs, next))
    })?;
    (pairs.iter()).for_each(|(element, value)| visit(kind, element, value));
    Ok(next)
}

/// The value of an element of collection `id`. `None`: there is no such element or collection.
///
/// # Errors
/// The collection is damaged, or the store cannot be read.
pub fn element_of_collection(
    store: &LogStore,
    id: u64,
    element: &[u8],
) -> Result<Option<Vec<u8>>, CollectionError> {
    store.transaction(|t| match t.anchor(id)?.map(|anchor| anchor.kind) {
        Some(kind @ (HASH | SORTED_SET)) => Leaves::<2>::open_kind(t, id, kind)?.get(element),
        Some(kind @ SET) => Leaves::<1>::open_kind(t, id, kind)?.get(element),
        Some(LIST) => LargeList::open(t, id)?.element(element),
        Some(_) => Err(no_elements().into()),
        None => Ok(None),
    })
}

/// Makes a new collection a copy of collection `id`, and returns its id. The caller must store a
/// main record for it.
///
/// # Errors
/// The collection is damaged, the store cannot be read, or there is no space.
pub fn copy_collection(records: &mut dyn StoreRecords, id: u64) -> Result<u64, CollectionError> {
    let to = records.new_collection();
    match records.anchor(id)?.map(|anchor| anchor.kind) {
        Some(kind @ HASH) => Leaves::<2>::open_kind(records, id, kind)?.copy_to(to)?,
        Some(kind @ SET) => Leaves::<1>::open_kind(records, id, kind)?.copy_to(to)?,
        Some(SORTED_SET) => LargeSortedSet::open(records, id)?.copy_to(to)?,
        Some(LIST) => LargeList::open(records, id)?.copy_to(to)?,
        _ => return Err(no_elements().into()),
    }
    Ok(to)
}

#[cold]
fn no_elements() -> Damage {
    Damage {
        at: 0,
        what: "an element of a value that has none",
    }
}

/// Whether two images of values of this kind have the same elements. A replay may have changed the
/// order of the elements. O(bytes).
///
/// # Errors
/// One of two images that differ is damaged.
pub fn is_same(kind: ValueKind, one: &[u8], other: &[u8]) -> Result<bool, Damage> {
    if one == other {
        return Ok(true);
    }
    match kind {
        HASH => has_same::<2>(one, other),
        SET => has_same::<1>(one, other),
        _ => Ok(false),
    }
}

fn has_same<const ENTRIES: usize>(one: &[u8], other: &[u8]) -> Result<bool, Damage> {
    let one = Packed::<ENTRIES>::read(one)?;
    let other = Packed::<ENTRIES>::read(other)?;
    if one.is_table() != other.is_table() || one.len()? != other.len()? {
        return Ok(false);
    }
    let mut values = HashMap::new();
    for pair in one.pairs() {
        let pair = pair?;
        values.insert(pair.field.to_vec(), pair.value);
    }
    for pair in other.pairs() {
        let pair = pair?;
        if pair
            .field
            .with_bytes(|field| values.get(field) != Some(&pair.value))
        {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::{End, ListEdit, PackedList};

    fn image(pairs: &[(&[u8], &[u8])]) -> Vec<u8> {
        let mut hash = HashEdit::new();
        hash.set_many(pairs).unwrap();
        hash.into_image()
    }

    #[test]
    fn an_item_is_set_where_its_position_says() {
        let mut list = ListEdit::new();
        list.push(End::Back, b"a").unwrap();
        list.push(End::Back, b"b").unwrap();
        let image = list.into_image();
        let at = |offset: u64| ((1 << 63) + offset).to_be_bytes();
        let with_gap = apply(LIST, &image, &at(5), Some(b"c")).unwrap();
        assert!(PackedList::read(&with_gap).is_err());
        assert_eq!(apply(LIST, &with_gap, &at(5), None).unwrap(), image);
        assert!(apply(LIST, &image, b"short", Some(b"c")).is_err());
    }

    #[test]
    fn an_element_is_set_and_removed_and_may_be_so_already() {
        let one = image(&[(b"a", b"1")]);
        let two = image(&[(b"a", b"1"), (b"b", b"2")]);
        for from in [&one, &two] {
            assert_eq!(apply(HASH, from, b"b", Some(b"2")).unwrap(), two);
            assert_eq!(apply(HASH, from, b"b", None).unwrap(), one);
        }
        assert!(apply(ValueKind::STRING, b"text", b"b", None).is_err());
        assert!(apply(HASH, b"text", b"b", None).is_err());
    }

    #[test]
    fn a_member_has_a_score_or_is_none_and_may_be_so_already() {
        let image = |members: &[(&[u8], f64)]| {
            let mut set = SortedSetEdit::new();
            for (member, score) in members {
                set.set(member, *score).unwrap();
            }
            set.into_image()
        };
        let one = image(&[(b"a", 2.5)]);
        let two = image(&[(b"a", 2.5), (b"b", 1.0)]);
        for from in [&one, &two] {
            assert_eq!(apply(SORTED_SET, from, b"b", Some(b"1")).unwrap(), two);
            assert_eq!(apply(SORTED_SET, from, b"b", None).unwrap(), one);
        }
        assert!(apply(SORTED_SET, &one, b"b", Some(b"no number")).is_err());
        assert!(is_same(SORTED_SET, &one, &one).unwrap());
        assert!(!is_same(SORTED_SET, &one, &two).unwrap());
    }

    #[test]
    fn hashes_are_the_same_in_another_order_alone() {
        let of = image(&[(b"a", b"1"), (b"b", b"text")]);
        assert!(is_same(HASH, &of, &image(&[(b"b", b"text"), (b"a", b"1")])).unwrap());
        for other in [
            image(&[(b"a", b"1")]),
            image(&[(b"a", b"1"), (b"b", b"2")]),
            image(&[(b"a", b"1"), (b"c", b"text")]),
        ] {
            assert!(!is_same(HASH, &of, &other).unwrap());
        }
        assert!(!is_same(ValueKind::STRING, b"a", b"b").unwrap());
    }
}
