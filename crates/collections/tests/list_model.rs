//! Lists beside a deque: **after any changes an image has the items of the deque**, the change feed
//! has its changes, and damage of it is an error.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that panics fails"
)]

use std::collections::VecDeque;

use mneme_collections::{End, LIST, ListEdit, PackedList, apply};
use proptest::collection::vec;
use proptest::prelude::*;

type Bytes = Vec<u8>;

#[derive(Clone, Debug)]
enum Change {
    Push(End, Vec<Bytes>),
    Pop(End, usize),
    Set(usize, Bytes),
    Insert(Bytes, bool, Bytes),
    Remove(End, usize, Bytes),
    Trim(usize, usize),
}

/// Only a few, so that changes concern the same ones: strings, integers of all classes, lengths of
/// all classes.
fn value() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        6 => "[a-c]".prop_map(String::into_bytes),
        2 => any::<i8>().prop_map(|number| number.to_string().into_bytes()),
        1 => any::<i64>().prop_map(|number| number.to_string().into_bytes()),
        1 => (62usize..66).prop_map(|len| vec![b'x'; len]),
        1 => (125usize..130).prop_map(|len| vec![b'x'; len]),
        1 => (4094usize..4098).prop_map(|len| vec![b'y'; len]),
        1 => vec(any::<u8>(), 0..4),
    ]
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![Just(End::Front), Just(End::Back)]
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        12 => (end(), vec(value(), 1..4)).prop_map(|(end, values)| Change::Push(end, values)),
        3 => (end(), 0..4usize).prop_map(|(end, count)| Change::Pop(end, count)),
        3 => (0..40usize, value()).prop_map(|(index, value)| Change::Set(index, value)),
        4 => (value(), any::<bool>(), value()).prop_map(|(p, b, v)| Change::Insert(p, b, v)),
        2 => (end(), 0..4usize, value()).prop_map(|(end, n, value)| Change::Remove(end, n, value)),
        1 => (0..4usize, 4..60usize).prop_map(|(start, end)| Change::Trim(start, end)),
    ]
}

fn make(change: &Change, list: &mut ListEdit, model: &mut VecDeque<Bytes>) {
    match change {
        Change::Push(end, values) => {
            for value in values {
                match end {
                    End::Front => model.push_front(value.clone()),
                    End::Back => model.push_back(value.clone()),
                }
            }
            let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
            list.push_many(*end, &values).unwrap();
        }
        Change::Pop(end, count) => {
            let pop = || match end {
                End::Front => model.pop_front(),
                End::Back => model.pop_back(),
            };
            let expected: Vec<_> = std::iter::from_fn(pop).take(*count).collect();
            let mut popped = Vec::new();
            let count = list.pop(*end, *count, |item| popped.push(item.to_vec()));
            assert_eq!((count, &popped), (Ok(expected.len()), &expected));
        }
        Change::Set(index, value) => {
            let is_there = *index < model.len();
            if is_there {
                model[*index] = value.clone();
            }
            assert_eq!(list.set(*index, value), Ok(is_there));
        }
        Change::Insert(pivot, is_before, value) => {
            let at = model.iter().position(|item| item == pivot);
            let at = at.map(|at| at + usize::from(!is_before));
            if let Some(at) = at {
                model.insert(at, value.clone());
            }
            assert_eq!(list.insert(pivot, *is_before, value), Ok(at));
        }
        Change::Remove(from, count, value) => {
            let all = (0..model.len()).filter(|at| model[*at] == *value);
            let mut gone: Vec<_> = all.collect();
            if *from == End::Back {
                gone.reverse();
            }
            if *count > 0 {
                gone.truncate(*count);
            }
            assert_eq!(list.remove(*from, *count, value), Ok(gone.len()));
            gone.sort_unstable();
            gone.iter().rev().for_each(|at| drop(model.remove(*at)));
        }
        Change::Trim(start, end) => {
            list.trim(*start..*end).unwrap();
            model.truncate(*end);
            model.drain(..*start.min(&model.len()));
        }
    }
}

proptest! {
    #[test]
    fn a_list_holds_what_a_deque_holds(changes in vec(change(), 1..80)) {
        let (mut list, mut model) = (ListEdit::new(), VecDeque::new());
        for change in &changes {
            make(change, &mut list, &mut model);
            let read = list.read().unwrap();
            prop_assert_eq!(read.check(), Ok(()));
            prop_assert_eq!(read.len(), Ok(model.len()));
            prop_assert_eq!(read.is_empty(), model.is_empty());
        }
        let read = list.read().unwrap();
        let items: Vec<_> = read.items().map(|item| item.unwrap().to_vec()).collect();
        prop_assert!(items.iter().eq(&model));
        for index in 0..model.len() + 2 {
            let item = read.get(index).unwrap().map(|item| item.to_vec());
            prop_assert_eq!(item.as_ref(), model.get(index));
            let range = read.range(index..index + 3).unwrap();
            let range: Vec<_> = range.map(|item| item.unwrap().to_vec()).collect();
            prop_assert!(range.iter().eq(model.iter().skip(index).take(3)));
        }
        for value in model.iter().take(5) {
            let expected: Vec<_> = (0..model.len()).filter(|at| model[*at] == *value).collect();
            let mut found = Vec::new();
            let mut visit = |at| { found.push(at); true };
            read.positions(value, End::Front, usize::MAX, &mut visit).unwrap();
            prop_assert_eq!(&found, &expected);
            found.clear();
            read.positions(value, End::Back, usize::MAX, |at| { found.push(at); true }).unwrap();
            prop_assert!(found.iter().rev().eq(&expected));
        }
    }

    /// The feed's items from some point on, applied to the list as it is at the end, or at any time
    /// between, give the list as it is at the end.
    #[test]
    fn a_suffix_of_changes_may_be_applied_to_any_newer_list(
        changes in vec(change(), 1..40), from in 0..40usize, newer in 0..40usize,
    ) {
        let (mut list, mut model) = (ListEdit::new(), VecDeque::new());
        let (mut said, mut images) = (Vec::new(), Vec::new());
        for change in &changes {
            images.push(list.clone().into_image());
            list.keep_changes();
            make(change, &mut list, &mut model);
            said.push(list.take_changes());
        }
        let end = list.into_image();
        let from = from % changes.len();
        let newer = (from + newer).min(changes.len() - 1);
        for begin in [&images[newer], &end] {
            let mut image = begin.clone();
            for (position, value) in said[from..].iter().flatten() {
                let element = position.to_be_bytes();
                image = apply(LIST, &image, &element, value.as_deref()).unwrap();
            }
            // An empty list has no position.
            let is_empty = model.is_empty();
            prop_assert!(image == end || is_empty && PackedList::read(&image).unwrap().is_empty());
        }
    }

    #[test]
    fn a_damaged_image_is_an_error_or_another_list(
        changes in vec(change(), 1..30),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
        is_cut in any::<bool>(),
        with in change(),
    ) {
        let (mut list, mut model) = (ListEdit::new(), VecDeque::new());
        changes.iter().for_each(|change| make(change, &mut list, &mut model));
        let mut image = list.into_image();
        for (at, byte) in damage {
            let at = at.index(image.len());
            image[at] = byte;
        }
        if is_cut {
            image.truncate(cut.index(image.len()));
        }
        let position = (1u64 << 63).to_be_bytes();
        let _ = apply(LIST, &image, &position, Some(b"v"));
        let _ = apply(LIST, &image, &position, None);
        let Ok(mut list) = ListEdit::of(&image) else { return Ok(()) };
        let before = list.clone();
        let read = before.read().unwrap();
        let _ = (read.check(), read.len(), read.get(3), read.items().count());
        let _ = read.positions(b"a", End::Back, 9, |_| true);
        let failed = match &with {
            Change::Push(end, values) => {
                let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
                list.push_many(*end, &values).is_err()
            }
            Change::Pop(end, count) => list.pop(*end, *count, |_| ()).is_err(),
            Change::Set(index, value) => list.set(*index, value).is_err(),
            Change::Insert(pivot, is_before, value) => {
                list.insert(pivot, *is_before, value).is_err()
            }
            Change::Remove(from, count, value) => list.remove(*from, *count, value).is_err(),
            Change::Trim(start, end) => list.trim(*start..*end).is_err(),
        };
        prop_assert!(!failed || list == before);
    }
}

/// The head says how many items there are, which a change may not believe.
#[test]
fn a_list_that_says_fewer_items_than_it_has_is_not_changed_by_a_removal() {
    let mut list = ListEdit::new();
    list.push_many(End::Back, &[b"a", b"b", b"c", b"d"])
        .unwrap();
    let sound = list.into_image();
    for said in 0..4 {
        let mut image = sound.clone();
        // Behind the list's head and the length of the listpack.
        image[9 + 4] = said;
        for (value, count) in [(b"d", 0), (b"d", 1), (b"a", 1)] {
            let mut list = ListEdit::of(&image).unwrap();
            assert!(list.remove(End::Front, count, value).is_err(), "{said}");
            assert_eq!(list.into_image(), image);
        }
    }
}
