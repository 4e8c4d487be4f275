//! Hashes beside a map: **after any changes an image has the fields of the map**, and damage of it
//! is an error.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that panics fails"
)]

use std::collections::BTreeMap;

use mneme_collections::{EditError, HashEdit, Limits, PackedHash, listpack};
use proptest::collection::vec;
use proptest::prelude::*;

type Bytes = Vec<u8>;

#[derive(Clone, Debug)]
enum Change {
    Set(Bytes, Bytes),
    SetMany(Vec<(Bytes, Bytes)>),
    Remove(Bytes),
    RemoveMany(Vec<Bytes>),
    Increment(Bytes, i64),
}

/// Only a few, so that changes concern the same ones: strings, integers of all classes, lengths of
/// all classes.
fn value() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        4 => "[a-c]{0,2}".prop_map(String::into_bytes),
        2 => any::<i8>().prop_map(|number| number.to_string().into_bytes()),
        1 => any::<i64>().prop_map(|number| number.to_string().into_bytes()),
        1 => (62usize..66).prop_map(|len| vec![b'x'; len]),
        1 => (4094usize..4098).prop_map(|len| vec![b'y'; len]),
        1 => vec(any::<u8>(), 0..4),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        4 => (value(), value()).prop_map(|(field, value)| Change::Set(field, value)),
        1 => vec((value(), value()), 0..20).prop_map(Change::SetMany),
        2 => value().prop_map(Change::Remove),
        1 => vec(value(), 0..20).prop_map(Change::RemoveMany),
        1 => (value(), any::<i64>()).prop_map(|(field, by)| Change::Increment(field, by)),
    ]
}

fn apply(change: &Change, edit: &mut HashEdit, model: &mut BTreeMap<Bytes, Bytes>) {
    match change {
        Change::Set(field, value) => {
            let new = model.insert(field.clone(), value.clone()).is_none();
            assert_eq!(edit.set(field, value), Ok(new));
        }
        Change::SetMany(pairs) => {
            let before = model.len();
            model.extend(pairs.iter().cloned());
            let pairs: Vec<_> = pairs.iter().map(|(f, v)| (&f[..], &v[..])).collect();
            assert_eq!(edit.set_many(&pairs), Ok(model.len() - before));
        }
        Change::Remove(field) => {
            assert_eq!(edit.remove(field), Ok(model.remove(field).is_some()));
        }
        Change::RemoveMany(fields) => {
            let removed = fields.iter().filter(|field| model.remove(*field).is_some());
            let removed = removed.count();
            let fields: Vec<_> = fields.iter().map(|field| &field[..]).collect();
            assert_eq!(edit.remove_many(&fields), Ok(removed));
        }
        Change::Increment(field, by) => {
            let old = model
                .get(field)
                .map_or(Some(0), |old| listpack::integer(old));
            let sum = match old.map(|old| old.checked_add(*by)) {
                None => Err(EditError::NotAnInteger),
                Some(None) => Err(EditError::Overflow),
                Some(Some(sum)) => {
                    model.insert(field.clone(), sum.to_string().into_bytes());
                    Ok(sum)
                }
            };
            assert_eq!(edit.increment(field, *by), sum);
        }
    }
}

proptest! {
    #[test]
    fn a_hash_holds_what_a_map_holds(changes in vec(change(), 1..60)) {
        let (mut edit, mut model) = (HashEdit::new(), BTreeMap::new());
        for change in &changes {
            apply(change, &mut edit, &mut model);
            let hash = edit.read().unwrap();
            prop_assert_eq!(hash.check(), Ok(()));
            prop_assert_eq!(hash.len(), Ok(model.len()));
            prop_assert_eq!(hash.is_empty(), model.is_empty());
        }
        let hash = edit.read().unwrap();
        let pairs = hash.pairs().map(|pair| pair.unwrap());
        let pairs: BTreeMap<_, _> = pairs.map(|p| (p.field.to_vec(), p.value.to_vec())).collect();
        prop_assert_eq!(&pairs, &model);
        let fields: Vec<&[u8]> = model.keys().map(|field| &field[..]).chain([&b"none"[..]]).collect();
        let values = hash.get_many(&fields).unwrap();
        for (field, value) in fields.iter().zip(values) {
            let expected = model.get(*field);
            prop_assert_eq!(value.map(|value| value.to_vec()), expected.cloned());
            prop_assert_eq!(hash.get(field).unwrap(), value);
        }
    }

    #[test]
    fn a_scan_finds_every_field_that_stays(
        fields in vec(value(), 0..80), others in vec(value(), 0..40), count in 1usize..12,
    ) {
        let mut edit = HashEdit::new();
        let stays: std::collections::BTreeSet<_> = fields.into_iter().collect();
        for field in &stays {
            edit.set(field, b"").unwrap();
        }
        let (mut found, mut cursor) = (std::collections::BTreeSet::new(), 0);
        for change in 0.. {
            let step = edit.read().unwrap().scan(cursor, count).unwrap();
            prop_assert!(step.next == 0 || step.pairs.len() >= count);
            prop_assert!(step.next == 0 || step.next > cursor);
            found.extend(step.pairs.iter().map(|pair| pair.field.to_vec()));
            cursor = step.next;
            if cursor == 0 {
                break;
            }
            if let Some(other) = others.get(change % others.len().max(1))
                && !stays.contains(other)
                && !edit.set(other, b"").unwrap()
            {
                edit.remove(other).unwrap();
            }
        }
        prop_assert!(stays.is_subset(&found));
    }

    /// Whatever the bytes are, they are either read to an end within them or refused.
    #[test]
    fn damage_is_an_error_and_never_a_panic(
        fields in vec((value(), value()), 0..8),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<Option<prop::sample::Index>>(),
    ) {
        let mut edit = HashEdit::new();
        for (field, value) in &fields {
            edit.set(field, value).unwrap();
        }
        let mut image = edit.into_image();
        for (at, byte) in damage {
            let at = at.index(image.len());
            image[at] = byte;
        }
        if let Some(cut) = cut {
            image.truncate(cut.index(image.len()));
        }
        read_all(&image);
    }
}

/// Everything that can be done with an image.
fn read_all(image: &[u8]) {
    let Ok(hash) = PackedHash::read(image) else {
        return;
    };
    let _ = (
        hash.len(),
        hash.check(),
        hash.get(b"a"),
        hash.scan(0, 3),
        hash.nth(2),
    );
    let _ = hash.get_many(&[&b"a"[..]; 9]);
    let of = || HashEdit::of(image).unwrap();
    let _ = (
        of().set(b"a", b"b"),
        of().remove(b"a"),
        of().increment(b"a", 1),
    );
    let pairs: Vec<(&[u8], &[u8])> = vec![(b"a", b"b"); 9];
    let before = of();
    let mut edit = of();
    if edit.set_many(&pairs).is_err() {
        assert_eq!(edit, before);
    }
    let _ = (
        of().remove_many(&[&b"a"[..]; 9]),
        of().convert(Limits::default()),
    );
}

#[test]
fn a_hash_becomes_a_table_at_one_field_too_many_or_one_too_long() {
    let is_table = |edit: &HashEdit| edit.read().unwrap().is_table();
    let limits = Limits {
        entries: 2,
        value: 3,
    };
    let mut edit = HashEdit::new();
    for (field, table) in [(&b"a"[..], false), (b"b", false), (b"c", true)] {
        edit.set(field, b"v").unwrap();
        edit.convert(limits).unwrap();
        assert_eq!(is_table(&edit), table);
    }
    // It stays one.
    edit.remove(b"a").unwrap();
    edit.convert(Limits::default()).unwrap();
    assert!(is_table(&edit));
    let mut edit = HashEdit::new();
    edit.set(b"long", b"").unwrap();
    edit.convert(limits).unwrap();
    assert!(is_table(&edit));
}

#[test]
fn a_hash_of_more_fields_than_its_head_counts_is_counted() {
    let names: Vec<String> = (0..40_000).map(|number| format!("f{number}")).collect();
    let pairs: Vec<_> = names
        .iter()
        .map(|name| (name.as_bytes(), &b"v"[..]))
        .collect();
    let mut edit = HashEdit::new();
    assert_eq!(edit.set_many(&pairs), Ok(40_000));
    assert_eq!(edit.read().unwrap().len(), Ok(40_000));
    edit.set(b"one more", b"").unwrap();
    edit.remove(b"f7").unwrap();
    assert_eq!(edit.read().unwrap().len(), Ok(40_000));
    let fields: Vec<_> = names.iter().map(String::as_bytes).collect();
    assert_eq!(edit.remove_many(&fields), Ok(39_999));
    assert_eq!(edit.remove(b"one more"), Ok(true));
    assert_eq!(edit.is_empty(), Ok(true));
    assert_eq!(edit.read().unwrap().check(), Ok(()));
}
