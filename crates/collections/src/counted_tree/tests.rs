//! A tree holds what a vector or a set holds, and damage is an error.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;
use crate::model::Model;

const LIST: ElementShape = ElementShape {
    stride: 1,
    key: 0,
    has_positions: false,
};
const ORDERED: ElementShape = ElementShape {
    stride: 2,
    key: 2,
    has_positions: false,
};
/// As in large lists.
const PLACED: ElementShape = ElementShape {
    stride: 2,
    key: 1,
    has_positions: true,
};

type Pair = (i64, Vec<u8>);

fn order(one: &[Element<'_>], other: (i64, &[u8])) -> Result<Ordering, Damage> {
    let Element::Integer(number) = one[1] else {
        return Err(damage("no number"));
    };
    let of_bytes = one[0].with_bytes(|bytes| bytes.cmp(other.1));
    Ok(number.cmp(&other.0).then(of_bytes))
}

fn of_two(one: &[Element<'_>], other: &[Element<'_>]) -> Result<Ordering, Damage> {
    let Element::Integer(number) = other[1] else {
        return Err(damage("no number"));
    };
    other[0].with_bytes(|bytes| order(one, (number, bytes)))
}

fn all(tree: &mut CountedTree<'_>, skipped: u64, is_backwards: bool) -> Vec<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    tree.walk(skipped, is_backwards, &mut |element| {
        found.push(element.iter().map(Element::to_vec).collect());
        Ok(true)
    })
    .unwrap();
    found
}

#[derive(Clone, Debug)]
enum Op {
    Insert(u16, usize),
    Append(usize, u16),
    Prepend(usize, u16),
    Extend(bool, usize, u16),
    Remove(u16),
    RemoveRange(u16, u16),
    Replace(u16, usize),
}

fn op() -> impl Strategy<Value = Op> {
    let len = prop_oneof![20 => 0..60usize, 2 => 60..700usize, 1 => Just(5000usize)];
    prop_oneof![
        20 => (any::<u16>(), len.clone()).prop_map(|(at, len)| Op::Insert(at, len)),
        2 => (0..60usize, 1..120u16).prop_map(|(len, times)| Op::Append(len, times)),
        2 => (0..60usize, 1..120u16).prop_map(|(len, times)| Op::Prepend(len, times)),
        2 => (any::<bool>(), 0..60usize, 0..400u16).prop_map(|(f, l, n)| Op::Extend(f, l, n)),
        12 => any::<u16>().prop_map(Op::Remove),
        1 => (any::<u16>(), any::<u16>()).prop_map(|(a, b)| Op::RemoveRange(a, b)),
        4 => (any::<u16>(), len).prop_map(|(at, len)| Op::Replace(at, len)),
    ]
}

fn inserted(element: &[&[u8]]) -> PlaceChange {
    PlaceChange::Insert(NewElements::one(element))
}

/// A position derived from a number of 16 bits.
fn position(number: u16, len: usize) -> usize {
    usize::from(number) * len / 65_536
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn a_tree_by_position_holds_what_a_vector_holds(
        built in 0..400usize,
        ops in proptest::collection::vec(op(), 1..250),
    ) {
        let (mut model, mut anchor_tree) = (Model::default(), OrderTree::default());
        let mut list: Vec<Vec<u8>> = (0..built).map(|i| i.to_string().into_bytes()).collect();
        let mut tree = CountedTree::new(&mut model, 1, &mut anchor_tree, LIST);
        tree.build(list.iter().map(|value| [&value[..]])).unwrap();
        for (number, op) in ops.into_iter().enumerate() {
            let value = |len| [number.to_string().as_bytes(), &vec![b'x'; len]].concat();
            match op {
                Op::Insert(at, len) => {
                    let at = position(at, list.len() + 1);
                    tree.put(Seek::At(at as u64), inserted(&[&value(len)])).unwrap();
                    list.insert(at, value(len));
                }
                Op::Append(len, times) => for _ in 0..times {
                    tree.put(Seek::At(list.len() as u64), inserted(&[&value(len)])).unwrap();
                    list.push(value(len));
                },
                Op::Prepend(len, times) => for _ in 0..times {
                    tree.put(Seek::At(0), inserted(&[&value(len)])).unwrap();
                    list.insert(0, value(len));
                },
                Op::Extend(is_front, len, many) => {
                    let values: Vec<_> = (0..usize::from(many))
                        .map(|number| value(if number % 50 == 49 { 3_000 } else { len }))
                        .collect();
                    let mut elements = NewElements::default();
                    values.iter().for_each(|value| elements.push(&entries_of(&[value])));
                    match is_front {
                        true => tree.put(Seek::At(0), PlaceChange::Insert(elements)),
                        false => tree.put(Seek::Last, PlaceChange::Append(elements)),
                    }.unwrap();
                    let at = if is_front { 0 } else { list.len() };
                    drop(list.splice(at..at, values));
                }
                Op::Remove(at) => {
                    let at = position(at, list.len().max(1));
                    tree.remove(at as u64..at as u64 + 1).unwrap();
                    drop(list.drain(at..(at + 1).min(list.len())));
                }
                Op::RemoveRange(one, other) => {
                    let (one, other) = (position(one, list.len()), position(other, list.len()));
                    let range = one.min(other)..one.max(other);
                    tree.remove(range.start as u64..range.end as u64).unwrap();
                    drop(list.drain(range));
                }
                Op::Replace(at, len) => if !list.is_empty() {
                    let at = position(at, list.len());
                    let element = NewElements::one(&[&value(len)]);
                    tree.put(Seek::At(at as u64), PlaceChange::Replace(element)).unwrap();
                    list[at] = value(len);
                },
            }
            let count = tree.check(&mut |_, _| Ok(Ordering::Less)).unwrap();
            prop_assert_eq!(count, list.len() as u64);
            let at = list.len() / 3;
            let found = tree.get(at as u64).unwrap();
            prop_assert_eq!(found.as_ref().map(|f| &f[0]), list.get(at));
        }
        let found = all(&mut tree, 0, false);
        prop_assert!(found.iter().map(|found| &found[0]).eq(&list));
        let skipped = list.len() / 2;
        let found = all(&mut tree, skipped as u64, true);
        prop_assert!(found.iter().map(|found| &found[0]).eq(list.iter().rev().skip(skipped)));
        prop_assert_eq!(tree.get(list.len() as u64).unwrap(), None);
        tree.copy_to(2).unwrap();
        tree.remove(0..u64::MAX).unwrap();
        prop_assert_eq!(tree.check(&mut |_, _| Ok(Ordering::Less)).unwrap(), 0);
        prop_assert_eq!(model.inner.len(), 0);
        prop_assert_eq!(model.copies.is_empty(), list.is_empty());
    }

    #[test]
    fn a_tree_by_comparison_holds_what_a_set_holds(
        built in 0..400i64,
        ops in proptest::collection::vec((0..40u8, -50..50i64, 0..90u16), 1..1000),
    ) {
        let (mut model, mut anchor_tree) = (Model::default(), OrderTree::default());
        let mut set = std::collections::BTreeSet::<Pair>::new();
        let member = |number: u16| match number {
            80.. => vec![b'm'; 100 * usize::from(number)],
            _ => format!("member {number}").into_bytes(),
        };
        set.extend((0..built).map(|number| (number % 50, member(number as u16 % 90))));
        let mut tree = CountedTree::new(&mut model, 1, &mut anchor_tree, ORDERED);
        let numbers: Vec<_> = set.iter().map(|(number, _)| number.to_string()).collect();
        let each = set.iter().zip(&numbers);
        tree.build(each.map(|((_, member), number)| [&member[..], number.as_bytes()])).unwrap();
        for (what, number, name) in ops {
            let name = member(name);
            let pair = (number, name.clone());
            let mut by = |element: &[Element<'_>]| order(element, (number, &name));
            let (before, is_there) = tree.rank(&mut by).unwrap();
            prop_assert_eq!(before, set.range(..pair.clone()).count() as u64);
            prop_assert_eq!(is_there, set.contains(&pair));
            match (is_there, what) {
                (false, _) => {
                    let text = number.to_string();
                    let change = inserted(&[&name, text.as_bytes()]);
                    tree.put(Seek::By(&mut by), change).unwrap();
                    set.insert(pair);
                }
                (true, 1..6) => {
                    tree.remove(before..before + 1).unwrap();
                    set.remove(&pair);
                }
                (true, 6..16) => {
                    tree.put(Seek::By(&mut by), PlaceChange::Remove).unwrap();
                    set.remove(&pair);
                }
                // Another number for this name, close or far.
                (true, 16..) => {
                    let near = number + i64::from(what % 5) - 2;
                    let to = (if what < 28 { near } else { -number }, name.clone());
                    if set.contains(&to) {
                        continue;
                    }
                    let text = to.0.to_string();
                    let mut by_new = |element: &[Element<'_>]| order(element, (to.0, &to.1));
                    let mut edits = [
                        PlaceEdit { seek: Seek::By(&mut by), decide: &mut |_| Ok(PlaceChange::Remove) },
                        PlaceEdit {
                            seek: Seek::By(&mut by_new),
                            decide: &mut |_| Ok(inserted(&[&name, text.as_bytes()])),
                        },
                    ];
                    if to < pair {
                        edits.reverse();
                    }
                    tree.edit(&mut edits).unwrap();
                    set.remove(&pair);
                    set.insert(to);
                }
                (true, 0) => {
                    tree.remove(before..before + 100).unwrap();
                    let gone: Vec<Pair> = set.range(pair..).take(100).cloned().collect();
                    set.retain(|pair| !gone.contains(pair));
                }
            }
            // All elements with a number below; none is `Equal`.
            let mut less = |element: &[Element<'_>]| Ok(match order(element, (number, b""))? {
                Ordering::Less => Ordering::Less,
                _ => Ordering::Greater,
            });
            let before = set.range(..(number, Vec::new())).count() as u64;
            prop_assert_eq!(tree.rank(&mut less).unwrap(), (before, false));
        }
        prop_assert_eq!(tree.check(&mut of_two).unwrap(), set.len() as u64);
        let found = all(&mut tree, 3, false).into_iter();
        let found = found.map(|found| (listpack::integer(&found[1]).unwrap(), found[0].clone()));
        prop_assert!(found.eq(set.iter().skip(3).cloned()));
    }

    #[test]
    fn a_damaged_record_is_an_error_and_never_a_panic(
        at in any::<prop::sample::Index>(),
        byte in any::<prop::sample::Index>(),
        value in any::<u8>(),
        position in 0..700u64,
    ) {
        for shape in [LIST, ORDERED, PLACED] {
            let (mut model, mut anchor_tree) = (Model::default(), OrderTree::default());
            let names: Vec<String> = (0..600).map(|i| format!("member {i:04}")).collect();
            let mut tree = CountedTree::new(&mut model, 1, &mut anchor_tree, shape);
            let each = names.iter().map(|name| name.as_bytes());
            if shape == PLACED {
                let all = NewElements::at(-300, 8, each).unwrap();
                tree.put(Seek::Last, PlaceChange::Append(all)).unwrap();
                // The tree has gaps afterwards.
                tree.remove(10..12).unwrap();
                tree.remove(50..51).unwrap();
            } else if shape.stride == 1 {
                tree.build(each.map(|name| [name])).unwrap();
            } else {
                tree.build(each.map(|name| [name, b"7"])).unwrap();
            }
            let numbers: Vec<u64> = model.inner.keys().copied().collect();
            let record = model.inner.get_mut(&numbers[at.index(numbers.len())]).unwrap();
            let byte = byte.index(record.len());
            record[byte] = value;
            let mut tree = CountedTree::new(&mut model, 1, &mut anchor_tree, shape);
            let mut by = |element: &[Element<'_>]| match (shape == PLACED, element) {
                (true, [Element::Integer(at), ..]) => Ok(at.cmp(&2_001)),
                _ => order(element, (7, b"member 0301")),
            };
            if shape.has_keys() {
                let _ = tree.rank(&mut by);
            }
            let _ = match shape == ORDERED {
                true => tree.check(&mut of_two),
                false => tree.check(&mut |_, _| Ok(Ordering::Less)),
            };
            let _ = tree.get(position);
            let _ = tree.walk(position, true, &mut |_| Ok(true));
            let _ = tree.remove(position..position + 3);
            let item: &[u8] = b"member 0301 and more";
            let new = match shape {
                PLACED => NewElements::at(2_001, 1, std::iter::once(item)).unwrap(),
                ORDERED => NewElements::one(&[item, b"7"]),
                _ => NewElements::one(&[item]),
            };
            let _ = match shape.has_keys() {
                true => tree.put(Seek::By(&mut by), PlaceChange::Insert(new)),
                false => tree.put(Seek::At(position), PlaceChange::Insert(new)),
            };
        }
    }
}

#[test]
fn leaves_of_what_only_grows_at_an_end_are_full_and_the_tree_is_low() {
    for is_front in [false, true] {
        let (mut model, mut anchor_tree) = (Model::default(), OrderTree::default());
        let mut tree = CountedTree::new(&mut model, 1, &mut anchor_tree, LIST);
        for i in 0..50_000u64 {
            let at = if is_front { 0 } else { i };
            tree.put(Seek::At(at), inserted(&[b"0123456789abcdef"]))
                .unwrap();
        }
        let (bytes, records) = (anchor_tree.bytes, model.inner.len() as u64);
        assert!(
            bytes / records > SPLIT as u64 * 9 / 10,
            "{bytes} / {records}"
        );
        let mut tree = CountedTree::new(&mut model, 1, &mut anchor_tree, LIST);
        // Removing elements one by one leaves no record nearly empty.
        for i in 0..49_000u64 {
            let at = (i * 7_919) % (50_000 - i);
            tree.remove(at..at + 1).unwrap();
        }
        let count = tree.check(&mut |_, _| Ok(Ordering::Less)).unwrap();
        assert_eq!(count, 1000);
        let (bytes, records) = (anchor_tree.bytes, model.inner.len() as u64);
        assert!(bytes / records > JOIN as u64, "{bytes} / {records}");
    }
}

/// A tree of several levels in the order of names, and its records.
fn ordered() -> (Model, OrderTree) {
    let (mut model, mut anchor_tree) = (Model::default(), OrderTree::default());
    let names: Vec<String> = (0..20_000).map(|i| format!("member {i:05}")).collect();
    let mut tree = CountedTree::new(&mut model, 1, &mut anchor_tree, ORDERED);
    tree.build(names.iter().map(|name| [name.as_bytes(), b"7"]))
        .unwrap();
    (model, anchor_tree)
}

#[test]
fn nothing_is_stored_if_one_of_two_places_is_not_there() {
    let (mut model, mut anchor_tree) = ordered();
    let (records, stored, before) = (model.inner.clone(), model.stored, anchor_tree);
    let mut tree = CountedTree::new(&mut model, 1, &mut anchor_tree, ORDERED);
    let name: &[u8] = b"member 00100 and more";
    let mut by_new = |element: &[Element<'_>]| order(element, (7, name));
    let mut by_old = |element: &[Element<'_>]| order(element, (7, b"member 15000 and more"));
    let mut edits = [
        PlaceEdit {
            seek: Seek::By(&mut by_new),
            decide: &mut |_| Ok(inserted(&[name, b"7"])),
        },
        PlaceEdit {
            seek: Seek::By(&mut by_old),
            decide: &mut |_| Ok(PlaceChange::Remove),
        },
    ];
    assert!(tree.edit(&mut edits).is_err());
    assert!(model.inner == records && model.stored == stored && anchor_tree == before);
}

#[test]
fn elements_that_cannot_be_counted_are_not_removed() {
    let (mut model, mut anchor_tree) = ordered();
    let root = model.inner.get_mut(&anchor_tree.root).unwrap();
    let children = usize::from(u16::from_le_bytes([root[2], root[3]]));
    for child in 0..2 {
        let at = BRANCH_HEAD + 8 * (children + child);
        root[at..at + 8].copy_from_slice(&(1u64 << 63).to_le_bytes());
    }
    let (records, before) = (model.inner.clone(), anchor_tree);
    let mut tree = CountedTree::new(&mut model, 1, &mut anchor_tree, ORDERED);
    assert!(tree.remove(0..u64::MAX).is_err());
    assert!(model.inner == records && anchor_tree == before);
}

/// The number of the leaf with the element at this position, and the first byte of its listpack's
/// number of entries, in a tree whose leaves have no positions.
fn leaf_at(model: &Model, nth: usize) -> (u64, usize) {
    let leaves = model.inner.iter().filter(|(_, image)| image[0] != BRANCH);
    let leaf = *leaves.map(|(number, _)| number).nth(nth).unwrap();
    (leaf, 1 + 4)
}

#[test]
fn a_leaf_that_says_another_number_than_it_holds_is_an_error_and_is_not_written() {
    for (less, nth) in [(true, 1), (false, 1), (true, 0)] {
        let (mut model, mut anchor_tree) = ordered();
        let (leaf, at) = leaf_at(&model, nth);
        let image = model.inner.get_mut(&leaf).unwrap();
        let said = u16::from_le_bytes([image[at], image[at + 1]]);
        let other = if less { said - 2 } else { said + 2 };
        image[at..at + 2].copy_from_slice(&other.to_le_bytes());
        let (records, before) = (model.inner.clone(), anchor_tree);
        let mut tree = CountedTree::new(&mut model, 1, &mut anchor_tree, ORDERED);
        for is_backwards in [false, true] {
            let mut seen = 0;
            let walk = tree.walk(0, is_backwards, &mut |_| {
                seen += 1;
                Ok(true)
            });
            assert!(walk.is_err(), "{less} {nth} {is_backwards}: {seen}");
        }
        let position = nth as u64 * u64::from(said) / 2 + 3;
        assert!(tree.remove(position..position + 1).is_err());
        assert!(model.inner == records && anchor_tree == before);
    }
}
