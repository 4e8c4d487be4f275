//! Hashes of a store: answers equal a map's, and changes by several threads are atomic.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use mneme_collections::{
    CollectionError, EditError, HASH, Hash, HashEdit, HashType, LARGE_HASH, Limits, MAX_ELEMENT,
    PackedHash, apply, check_while, edit, look_at_large, put,
};
use mneme_log::{Expiry, LogStore, Transaction, UpdatePolicy, ValueKind, collection_of};
use proptest::collection::vec;
use proptest::prelude::*;

const POLICIES: [UpdatePolicy; 2] = [UpdatePolicy::Append, UpdatePolicy::InPlace];

fn store(policy: UpdatePolicy) -> LogStore {
    let builder = LogStore::builder().capacity(64 << 20).update_policy(policy);
    builder.open_private().unwrap()
}

#[derive(Clone, Debug)]
enum Step {
    Set(Vec<u8>, Vec<u8>),
    SetMany(Vec<(Vec<u8>, Vec<u8>)>),
    InsertNew(Vec<u8>, Vec<u8>),
    Remove(Vec<u8>),
    RemoveMany(Vec<Vec<u8>>),
    Increment(Vec<u8>, i64),
}

fn field() -> impl Strategy<Value = Vec<u8>> {
    (0..12u8).prop_map(|i| format!("f{i}").into_bytes())
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => any::<i16>().prop_map(|n| n.to_string().into_bytes()),
        2 => vec(any::<u8>(), 0..40),
        1 => vec(any::<u8>(), 3000..5000),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (field(), value()).prop_map(|(f, v)| Step::Set(f, v)),
        2 => vec((field(), value()), 0..12).prop_map(Step::SetMany),
        1 => (field(), value()).prop_map(|(f, v)| Step::InsertNew(f, v)),
        3 => field().prop_map(Step::Remove),
        1 => vec(field(), 0..12).prop_map(Step::RemoveMany),
        2 => (field(), any::<i64>()).prop_map(|(f, by)| Step::Increment(f, by)),
    ]
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Takes the step in both, and compares the results.
fn take(step: Step, hash: Hash<'_, '_>, model: &mut Model) {
    match step {
        Step::Set(field, value) => {
            let is_new = hash.set(&field, &value).unwrap();
            assert_eq!(is_new, model.insert(field, value).is_none());
        }
        Step::SetMany(pairs) => {
            let set: Vec<_> = pairs.iter().map(|(f, v)| (&f[..], &v[..])).collect();
            let before = model.len();
            let new = hash.set_many(&set).unwrap();
            model.extend(pairs);
            assert_eq!(new, model.len() - before);
        }
        Step::InsertNew(field, value) => {
            let is_new = hash.insert_new(&field, &value).unwrap();
            assert_eq!(is_new, !model.contains_key(&field));
            model.entry(field).or_insert(value);
        }
        Step::Remove(field) => {
            let removed = hash.remove(&field).unwrap();
            assert_eq!(removed, model.remove(&field).is_some());
        }
        Step::RemoveMany(fields) => {
            let removed = hash.remove_many(&fields.iter().map(|f| &f[..]).collect::<Vec<_>>());
            let before = model.len();
            model.retain(|field, _| !fields.contains(field));
            assert_eq!(removed.unwrap(), before - model.len());
        }
        Step::Increment(field, by) => {
            let old = model.get(&field).map_or(Some(0), |old| {
                let text = std::str::from_utf8(old).ok()?;
                let number: i64 = text.parse().ok()?;
                (number.to_string() == text).then_some(number)
            });
            match (hash.increment(&field, by), old) {
                (Err(CollectionError::Edit(EditError::NotAnInteger)), None) => {}
                (Err(CollectionError::Edit(EditError::Overflow)), Some(old)) => {
                    assert_eq!(old.checked_add(by), None);
                }
                (sum, old) => {
                    let sum = sum.unwrap();
                    assert_eq!(Some(sum), old.unwrap().checked_add(by));
                    model.insert(field, sum.to_string().into_bytes());
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn answers_equal_a_map(steps in vec(step(), 1..60)) {
        for policy in POLICIES {
            let (store, mut model) = (store(policy), Model::new());
            let hash = Hash::of(&store, b"hash").unwrap();
            for step in steps.clone() {
                take(step, hash, &mut model);
                assert_eq!(hash.len().unwrap(), model.len());
                assert_eq!(hash.is_empty().unwrap(), model.is_empty());
                assert_eq!(store.contains(b"hash").unwrap(), !model.is_empty());
            }
            let pairs: Model = hash.pairs().unwrap().into_iter().collect();
            assert_eq!(pairs, model);
            let fields: Vec<Vec<u8>> = (0..14).map(|i| format!("f{i}").into_bytes()).collect();
            let fields: Vec<&[u8]> = fields.iter().map(|field| &field[..]).collect();
            let values: Vec<_> = fields.iter().map(|f| model.get(*f).cloned()).collect();
            assert_eq!(hash.get_many(&fields).unwrap(), values);
            for (field, value) in fields.iter().zip(values) {
                assert_eq!(hash.contains(field).unwrap(), value.is_some());
                assert_eq!(hash.get(field).unwrap(), value);
            }
            let (mut scanned, mut cursor) = (Model::new(), 0);
            loop {
                let (pairs, next) = hash.scan(cursor, 3).unwrap();
                scanned.extend(pairs);
                cursor = next;
                if next == 0 {
                    break;
                }
            }
            assert_eq!(scanned, model);
            assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
        }
    }
}

#[test]
fn a_hash_refuses_a_value_of_another_kind_and_a_string_refuses_a_hash() {
    let store = store(UpdatePolicy::Append);
    store.put(b"k", b"text").unwrap();
    let hash = Hash::of(&store, b"k").unwrap();
    let is_wrong =
        |error| matches!(error, CollectionError::WrongKind(of) if of.found.number() == 0);
    assert!(is_wrong(hash.get(b"f").unwrap_err()));
    assert!(is_wrong(hash.set(b"f", b"v").unwrap_err()));
    assert!(is_wrong(hash.remove(b"f").unwrap_err()));
    assert_eq!(*store.get(b"k").unwrap().unwrap(), *b"text");
    assert!(store.remove(b"k").unwrap());
    hash.set(b"f", b"v").unwrap();
    assert_eq!(store.kind(b"k").unwrap(), Some(HASH));
    assert!(store.get(b"k").is_err());
    store.put(b"k", b"text").unwrap();
    assert_eq!(store.kind(b"k").unwrap(), Some(ValueKind::STRING));
}

#[test]
fn a_change_keeps_the_expiry_and_one_that_changes_nothing_stores_nothing() {
    for policy in POLICIES {
        let store = store(policy);
        let hash = Hash::of(&store, b"k").unwrap();
        hash.set(b"f", b"v").unwrap();
        let later = Expiry::At(1 << 50);
        assert!(store.set_expiry(b"k", later).unwrap());
        hash.set(b"g", b"w").unwrap();
        assert_eq!(store.expiry(b"k").unwrap(), Some(later));
        let mut watch = store.watch().unwrap();
        watch.add(0, b"k").unwrap();
        assert!(!hash.set(b"g", b"w").unwrap());
        assert!(!hash.remove(b"none").unwrap());
        let refused = hash.change(|edit| {
            edit.set(b"h", b"x")?;
            edit.increment(b"f", 1)
                .map(drop)
                .map_err(CollectionError::from)
        });
        assert!(matches!(
            refused,
            Err(CollectionError::Edit(EditError::NotAnInteger))
        ));
        assert_eq!(hash.len().unwrap(), 2);
        assert!(watch.is_unchanged());
    }
}

#[test]
fn changes_by_several_threads_are_atomic() {
    for policy in POLICIES {
        let store = store(policy);
        std::thread::scope(|scope| {
            for own in [&b"a"[..], b"b", b"c"] {
                let store = &store;
                scope.spawn(move || {
                    let hash = Hash::of(store, b"k").unwrap();
                    for i in 0..400i64 {
                        hash.increment(b"sum", 1).unwrap();
                        hash.set(own, &vec![b'x'; i as usize % 90]).unwrap();
                        // Both fields are always changed together.
                        hash.change(|edit| {
                            edit.increment(b"left", 1)?;
                            edit.increment(b"right", -1)?;
                            Ok(())
                        })
                        .unwrap();
                        let both = hash.get_many(&[b"left", b"right"]).unwrap();
                        let number = |i: usize| {
                            let text = String::from_utf8(both[i].clone().unwrap()).unwrap();
                            text.parse::<i64>().unwrap()
                        };
                        assert_eq!(number(0), -number(1));
                    }
                });
            }
        });
        let hash = Hash::of(&store, b"k").unwrap();
        assert_eq!(hash.get(b"sum").unwrap().as_deref(), Some(&b"1200"[..]));
        assert_eq!(hash.len().unwrap(), 6);
    }
}

#[test]
fn a_hash_beyond_its_limits_becomes_a_table_for_good() {
    let store = store(UpdatePolicy::Append);
    let limits = Limits {
        entries: 2,
        value: 9,
    };
    let hash = Hash::of(&store, b"k").unwrap().limits(limits);
    let is_table = || hash.read(|hash| Ok(hash.unwrap().is_table())).unwrap();
    hash.set_many(&[(b"a", b"1"), (b"b", b"2")]).unwrap();
    assert!(!is_table());
    hash.set(b"c", b"3").unwrap();
    assert!(is_table());
    hash.remove_many(&[b"a", b"b"]).unwrap();
    assert!(is_table());
}

/// As in Redis, by any change.
#[test]
fn a_hash_that_is_beyond_a_lowered_limit_becomes_a_table_with_its_next_change() {
    for value in [b"9".as_slice(), b"longer", b"0"] {
        let store = store(UpdatePolicy::Append);
        let hash = Hash::of(&store, b"k").unwrap();
        hash.set_many(&[(b"a", b"1"), (b"b", b"2"), (b"c", b"3")])
            .unwrap();
        let entries = 2;
        let limits = Limits {
            entries,
            ..Limits::default()
        };
        hash.limits(limits).set(b"b", value).unwrap();
        assert!(hash.read(|hash| Ok(hash.unwrap().is_table())).unwrap());
    }
}

#[test]
fn a_check_names_the_hashes_that_are_none() {
    let store = store(UpdatePolicy::Append);
    Hash::of(&store, b"sound").unwrap().set(b"f", b"v").unwrap();
    store.put(b"string", b"no hash").unwrap();
    let check = || check_while(&store, &|| true).unwrap();
    assert_eq!(check(), Vec::<String>::new());
    let twice = [&b"\0"[..], &two_fields_of_one_name()].concat();
    let database = store.database(7).unwrap();
    database
        .put_kind(b"twice", &twice, HASH, Expiry::Never)
        .unwrap();
    store
        .put_kind(b"garbage", b"garbage", HASH, Expiry::Never)
        .unwrap();
    let problems = check();
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems[0].starts_with("database 0, hash \"garbage\": "));
    assert!(problems[1].starts_with("database 7, hash \"twice\": "));
    assert_eq!(
        check_while(&store, &|| false).unwrap(),
        Vec::<String>::new()
    );
}

/// A listpack of the integers 1, 2, 1, 3.
fn two_fields_of_one_name() -> Vec<u8> {
    vec![15, 0, 0, 0, 4, 0, 1, 1, 2, 1, 1, 1, 3, 1, 0xff]
}

#[test]
fn a_hash_of_many_fields_is_made_at_once_and_leaves_nothing_behind() {
    for policy in POLICIES {
        let store = store(policy);
        let hash = Hash::of(&store, b"many").unwrap();
        let fields: Vec<String> = (0..50_000).map(|i| format!("field {i}")).collect();
        let pairs: Vec<(&[u8], &[u8])> = fields
            .iter()
            .map(|f| (f.as_bytes(), &b"value"[..]))
            .collect();
        assert_eq!(hash.set_many(&pairs).unwrap(), 50_000);
        assert_eq!(store.kind(b"many").unwrap(), Some(LARGE_HASH));
        assert_eq!((store.len(), hash.len().unwrap()), (1, 50_000));
        assert_eq!(
            hash.get(b"field 49999").unwrap().as_deref(),
            Some(&b"value"[..])
        );
        assert!(!hash.set(b"field 7", b"other").unwrap());
        assert_eq!(hash.increment(b"sum", 5).unwrap(), 5);
        assert_eq!(check_while(&store, &|| true).unwrap(), Vec::<String>::new());
        let report = store.check().unwrap();
        assert!(
            report.is_sound() && report.inner_records > 500,
            "{report:?}"
        );
        assert!(store.remove(b"many").unwrap());
        assert!(hash.is_empty().unwrap());
        store.sweep_collections().unwrap();
        let report = store.check().unwrap();
        assert_eq!((report.collections, report.inner_records), (0, 0));
    }
}

#[test]
fn changes_of_a_large_hash_by_several_threads_are_atomic() {
    for policy in POLICIES {
        let store = store(policy);
        let hash = Hash::of(&store, b"hash").unwrap();
        for i in 0..100 {
            hash.set(format!("f{i}").as_bytes(), &[b'v'; 80]).unwrap();
        }
        assert_eq!(store.kind(b"hash").unwrap(), Some(LARGE_HASH));
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let hash = &hash;
                scope.spawn(move || {
                    for i in 0..100 {
                        hash.increment(b"sum", 1).unwrap();
                        let own = format!("{thread} {i}");
                        assert!(hash.set(own.as_bytes(), &[b'w'; 100]).unwrap());
                        assert_eq!(
                            hash.get(own.as_bytes()).unwrap().as_deref(),
                            Some(&[b'w'; 100][..])
                        );
                        if i % 3 == 0 {
                            assert!(hash.remove(own.as_bytes()).unwrap());
                        }
                    }
                });
            }
        });
        assert_eq!(hash.get(b"sum").unwrap().as_deref(), Some(&b"300"[..]));
        assert_eq!(hash.len().unwrap(), 100 + 1 + 3 * 66);
        assert_eq!(check_while(&store, &|| true).unwrap(), Vec::<String>::new());
        assert!(store.check().unwrap().is_sound());
    }
}

/// In a transaction that continues after the error, as in one of `MULTI`.
#[test]
fn a_change_that_fails_within_a_transaction_leaves_a_large_hash_as_it_was() {
    let store = store(UpdatePolicy::Append);
    let hash = Hash::of(&store, b"hash").unwrap();
    let fields: Vec<String> = (0..600).map(|i| format!("field {i}")).collect();
    let pairs: Vec<(&[u8], &[u8])> = (fields.iter().map(|f| (f.as_bytes(), &b"v"[..]))).collect();
    hash.set_many(&pairs).unwrap();
    assert_eq!(store.kind(b"hash").unwrap(), Some(LARGE_HASH));
    let long = vec![b'f'; 65_530];
    store
        .transaction(|t| {
            let named: [&[u8]; 3] = [b"field 7", b"new", &long];
            let changed =
                edit::<HashType, (), CollectionError>(t, (0, b"hash"), Some(&named), |hash| {
                    hash.set(b"new", b"1")?;
                    hash.remove(b"field 7")?;
                    hash.set(&long, b"1")?;
                    Ok(((), true))
                });
            let is_refused =
                |error| matches!(error, CollectionError::Edit(EditError::TooLong(65_530)));
            assert!(changed.is_err_and(is_refused));
            t.put(b"other", b"1")
        })
        .unwrap();
    assert_eq!(hash.get(b"new").unwrap(), None);
    assert_eq!(hash.len().unwrap(), 600);
    assert_eq!(check_while(&store, &|| true).unwrap(), Vec::<String>::new());
    assert!(store.check().unwrap().is_sound());
}

/// Another thread changes the hash in the middle of every attempt to read it.
#[test]
fn a_large_hash_is_read_as_a_whole_however_often_it_is_changed() {
    let store = store(UpdatePolicy::Append);
    let hash = Hash::of(&store, b"hash").unwrap();
    let fields: Vec<String> = (0..600).map(|i| format!("field {i}")).collect();
    let set_all = |value: &[u8]| {
        let pairs: Vec<(&[u8], &[u8])> = fields.iter().map(|f| (f.as_bytes(), value)).collect();
        hash.set_many(&pairs).unwrap();
    };
    set_all(b"0");
    let mut runs = 0;
    let seen = look_at_large::<HashType, _>(&store.database(0).unwrap(), b"hash", |mut hash| {
        runs += 1;
        let before = hash.get(b"field 7")?;
        let value = runs.to_string();
        std::thread::scope(|scope| scope.spawn(|| set_all(value.as_bytes())).join().unwrap());
        Ok((before, hash.view(None)?))
    });
    let (before, image) = seen.unwrap().expect("an attempt that counts");
    let seen = PackedHash::read(&image).unwrap();
    assert_eq!(seen.len().unwrap(), 600);
    for pair in seen.pairs() {
        assert_eq!(Some(pair.unwrap().value.to_vec()), before);
    }
    assert!(runs <= 3, "{runs} attempts");
}

/// Now and then a reader's attempt fails because of a change, and most readers finally read under
/// the lock.
#[test]
fn a_large_hash_that_is_changed_all_the_time_is_read_as_a_whole() {
    let store = store(UpdatePolicy::Append);
    let fields: Vec<String> = (0..3000).map(|i| format!("field {i}")).collect();
    let pairs: Vec<(&[u8], &[u8])> = (fields.iter().map(|f| (f.as_bytes(), &b"v"[..]))).collect();
    Hash::of(&store, b"k").unwrap().set_many(&pairs).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let hash = Hash::of(&store, b"k").unwrap();
            for round in 0u32.. {
                let value = round.to_string();
                let both = [b"left", &b"right"[..]].map(|field| (field, value.as_bytes()));
                hash.set_many(&both).unwrap();
                let more = format!("more {}", round / 2 % 500);
                match round % 2 {
                    0 => drop(hash.set(more.as_bytes(), &[7; 100]).unwrap()),
                    _ => drop(hash.remove(more.as_bytes()).unwrap()),
                }
                if is_over.load(Relaxed) {
                    break;
                }
            }
        });
        let hash = Hash::of(&store, b"k").unwrap();
        for _ in 0..60 {
            let pairs: BTreeMap<_, _> = hash.pairs().unwrap().into_iter().collect();
            assert!(
                fields
                    .iter()
                    .all(|field| pairs.contains_key(field.as_bytes()))
            );
            assert_eq!(pairs.get(&b"left"[..]), pairs.get(&b"right"[..]));
            assert_eq!(check_while(&store, &|| true).unwrap(), Vec::<String>::new());
        }
        is_over.store(true, Relaxed);
    });
}

/// With a field that no large hash can have, a hash would stay one record however long it became,
/// and each change would store all of it.
#[test]
fn a_field_that_is_too_long_for_a_large_hash_is_refused_by_a_small_one() {
    let store = store(UpdatePolicy::Append);
    let hash = Hash::of(&store, b"hash").unwrap();
    let longest = vec![b'f'; MAX_ELEMENT];
    let long = vec![b'f'; MAX_ELEMENT + 1];
    let is_refused = |error| matches!(error, CollectionError::Edit(EditError::TooLong(65_528)));
    assert!(hash.set(&long, b"1").is_err_and(is_refused));
    assert!(
        hash.set_many(&[(b"f", b"1"), (&long, b"1")])
            .is_err_and(is_refused)
    );
    assert!(!store.contains(b"hash").unwrap());
    assert!(hash.set(&longest, b"1").unwrap());
    assert_eq!(store.kind(b"hash").unwrap(), Some(LARGE_HASH));
    assert!(hash.set(&long, b"1").is_err_and(is_refused));
    // Such a field, accepted by an earlier version, is still replayed.
    let image = apply(HASH, &HashEdit::new().into_image(), &long, Some(b"1")).unwrap();
    assert_eq!(PackedHash::read(&image).unwrap().len().unwrap(), 1);
}

#[test]
fn a_forged_number_of_leaves_is_an_error_of_all_that_reads_the_hash() {
    // More than the hash has fields, than the store has space for, and than there can be.
    for leaves in [601, 1 << 20, 1 << 40, u64::MAX] {
        let builder = LogStore::builder().capacity(64 << 20).maintainer(false);
        let store = builder.open_private().unwrap();
        let forge = |t: &mut Transaction<'_>| {
            put::<HashType>(t, (0, b"hash"), &image(), Expiry::Never)?;
            let main = t.read(b"hash", |stored| collection_of(stored.unwrap().value))?;
            let mut anchor = t.anchor(main.unwrap())?.unwrap();
            anchor.leaves = leaves;
            Ok::<_, CollectionError>(t.set_anchor(main.unwrap(), &anchor)?)
        };
        store.transaction(forge).unwrap();
        let hash = Hash::of(&store, b"hash").unwrap();
        assert!(hash.pairs().is_err() && hash.get(b"field 7").is_err());
        assert!(hash.len().is_err() && hash.scan(0, 10).is_err());
        assert!(hash.set(b"field 7", b"1").is_err());
        assert_eq!(check_while(&store, &|| true).unwrap().len(), 1);
        // Such a hash is not freed, and the sweep ends.
        assert!(store.remove(b"hash").unwrap());
        let _ = store.sweep_collections();
    }
}

/// The image of a hash that is to become large.
fn image() -> Vec<u8> {
    let fields: Vec<String> = (0..600).map(|i| format!("field {i}")).collect();
    let pairs: Vec<(&[u8], &[u8])> = (fields.iter().map(|f| (f.as_bytes(), &b"v"[..]))).collect();
    let mut hash = HashEdit::new();
    hash.set_many(&pairs).unwrap();
    hash.convert(Limits::default()).unwrap();
    hash.into_image()
}

#[test]
fn a_large_hash_that_its_own_transaction_removes_or_replaces_is_freed() {
    let store = store(UpdatePolicy::Append);
    let stored =
        |t: &mut Transaction<'_>| put::<HashType>(t, (0, b"hash"), &image(), Expiry::Never);
    for _ in 0..3 {
        store
            .transaction(|t| {
                stored(t)?;
                stored(t)?;
                t.remove(b"hash").map_err(CollectionError::from)
            })
            .unwrap();
        store
            .transaction(|t| stored(t).and_then(|()| stored(t)))
            .unwrap();
        store.sweep_collections().unwrap();
        assert_eq!(store.check().unwrap().collections, 1);
    }
}

#[test]
fn a_damaged_anchor_keeps_no_other_collection_from_being_freed() {
    let builder = LogStore::builder().capacity(64 << 20).maintainer(false);
    let store = builder.open_private().unwrap();
    for i in 0..20u8 {
        store
            .transaction(|t| {
                put::<HashType>(t, (0, &[i]), &image(), Expiry::Never)?;
                let main = t.read(&[i], |stored| collection_of(stored.unwrap().value))?;
                let mut anchor = t.anchor(main.unwrap())?.unwrap();
                if i == 10 {
                    anchor.kind = ValueKind::STRING;
                    t.set_anchor(main.unwrap(), &anchor)?;
                }
                Ok::<_, CollectionError>(())
            })
            .unwrap();
    }
    // This process does not know the ids of the cleared collections, only that some are gone.
    store.database(0).unwrap().clear().unwrap();
    store
        .transaction(|t| put::<HashType>(t, (0, b"last"), &image(), Expiry::Never))
        .unwrap();
    assert!(store.remove(b"last").unwrap());
    assert!(store.sweep_collections().unwrap());
    assert_eq!(store.check().unwrap().collections, 1);
}

/// Readers beside changes of several leaves, splits, and the removal and new creation of the hash.
#[test]
fn a_look_at_a_large_hash_sees_all_of_a_change_or_nothing() {
    for policy in POLICIES {
        let store = store(policy);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let (hash, mut seen) = (Hash::of(&store, b"k").unwrap(), 0);
                    while seen < 100 || !is_over.load(Relaxed) {
                        let both = hash.get_many(&[b"left", b"right"]).unwrap();
                        assert_eq!(both[0], both[1]);
                        let whole = hash.get(b"field 7").unwrap();
                        assert!(whole.is_none_or(|value| value.len() == 70));
                        seen += 1;
                    }
                });
            }
            let hash = Hash::of(&store, b"k").unwrap();
            for round in 0..400u32 {
                let mut pairs: Vec<_> = (0..100 + round % 50)
                    .map(|i| (format!("field {i}"), vec![round as u8; 70]))
                    .collect();
                for name in ["left", "right"] {
                    pairs.push((name.to_owned(), round.to_string().into_bytes()));
                }
                let of = |pair: &(String, Vec<u8>)| (pair.0.clone().into_bytes(), pair.1.clone());
                let pairs: Vec<_> = pairs.iter().map(of).collect();
                let each = pairs.iter().map(|(field, value)| (&field[..], &value[..]));
                hash.set_many(&each.collect::<Vec<_>>()).unwrap();
                assert_eq!(store.kind(b"k").unwrap(), Some(LARGE_HASH));
                if round % 20 == 19 {
                    assert!(store.remove(b"k").unwrap());
                }
            }
            is_over.store(true, Relaxed);
        });
    }
}
