//! Kinds of values: **an operation for one kind neither changes nor returns a value of another**,
//! and whatever moves, copies or retimes a value keeps its kind.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod memory;

use std::borrow::Cow;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use memory::{CAPACITY, Memory, NOW, POLICIES, sound, two_of};
use mneme_log::feed::{Item, entries};
use mneme_log::{
    ChangeFeed, Cursor, Decision, Expiry, LogStore, Part, Patch, ReadError, Stored, Updated,
    ValueKind, WriteError,
};

/// The other kind of value in these tests, beside strings.
fn typed() -> ValueKind {
    ValueKind::new(1).unwrap()
}

/// Lengths of values that are stored in different ways: with slack, without, and in an extent.
const LENGTHS: [usize; 4] = [3, 3000, 9000, 700_000];

/// Stores that lend values and that copy them, of both policies.
fn stores(check: impl Fn(&LogStore, &str)) {
    for policy in POLICIES {
        for lending in [true, false] {
            let builder = LogStore::builder().update_policy(policy).lending(lending);
            let (_memory, store, other, _clock) = two_of(builder);
            drop(other);
            check(&store, &format!("{policy:?}, lending: {lending}"));
            sound(&store, "at the end");
        }
    }
}

fn is(store: &LogStore, key: &[u8], kind: ValueKind, value: &[u8], expiry: Expiry) -> bool {
    store.kind(key).unwrap() == Some(kind)
        && store.expiry(key).unwrap() == Some(expiry)
        && store
            .get_kind(key, kind)
            .unwrap()
            .is_some_and(|v| *v == *value)
}

#[test]
fn operations_on_strings_refuse_a_value_of_another_kind_and_change_nothing() {
    stores(|store, context| {
        for len in LENGTHS {
            let value = vec![7; len];
            store
                .put_kind(b"k", &value, typed(), Expiry::Never)
                .unwrap();
            let wrong = |result: Result<(), ReadError>| match result {
                Err(ReadError::WrongKind(wrong)) => assert_eq!(wrong.found, typed()),
                other => panic!("{context}, {len}: {other:?}"),
            };
            wrong(store.get(b"k").map(drop));
            wrong(store.get_into(b"k", &mut Vec::new()).map(drop));
            wrong(store.get_many(&[b"k"], |_, _| panic!("visited")));
            wrong(store.copy_many(&[b"k"], |_, _| panic!("visited")));
            wrong(store.read_part(b"k", |_| 0..1, |_| panic!("visited")));
            let wrong = |result: Result<Updated, WriteError>| match result {
                Err(WriteError::WrongKind(wrong)) => assert_eq!(wrong.found, typed()),
                other => panic!("{context}, {len}: {other:?}"),
            };
            wrong(store.update(b"k", |_| panic!("asked")));
            let patch = |_: Option<Part<'_>>| -> Patch<'static> { panic!("asked") };
            wrong(store.update_part(b"k", |_| 0..1, patch));
            wrong(store.read_and_update_expiry(b"k", |_| panic!("asked")));
            let in_transaction = store.transaction(|t| {
                let patch = |_: Option<Part<'_>>| -> Patch<'static> { panic!("asked") };
                let refused = t.database(0)?.update_part(b"k", |_| 0..1, patch);
                assert!(
                    matches!(refused, Err(WriteError::WrongKind(_))),
                    "{context}"
                );
                assert_eq!(t.kind(b"k")?, Some(typed()));
                t.get(b"k")
            });
            assert!(
                matches!(in_transaction, Err(WriteError::WrongKind(_))),
                "{context}"
            );
            assert!(
                is(store, b"k", typed(), &value, Expiry::Never),
                "{context}, {len}"
            );
            // And vice versa.
            store.put(b"s", &value).unwrap();
            let refused = store.get_kind(b"s", typed()).map(drop);
            assert!(matches!(refused, Err(ReadError::WrongKind(_))), "{context}");
            wrong_string(store.update_kind(b"s", typed(), |_| panic!("asked")));
            assert!(is(store, b"s", ValueKind::STRING, &value, Expiry::Never));
        }
    });
}

fn wrong_string(result: Result<Updated, WriteError>) {
    match result {
        Err(WriteError::WrongKind(wrong)) => assert_eq!(wrong.found, ValueKind::STRING),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_keys_before_one_of_another_kind_are_visited() {
    stores(|store, context| {
        for key in [b"a", b"b", b"c"] {
            store.put(key, key).unwrap();
        }
        store
            .put_kind(b"x", b"value", typed(), Expiry::Never)
            .unwrap();
        let keys = [b"a", b"b", b"x", b"c"];
        let mut visited = 0;
        let result = store.get_many(&keys, |_, _| visited += 1);
        assert!(matches!(result, Err(ReadError::WrongKind(_))), "{context}");
        assert_eq!(visited, 2, "{context}");
    });
}

#[test]
fn operations_on_keys_take_every_kind_and_keep_it() {
    stores(|store, context| {
        for len in LENGTHS {
            let (value, soon) = (vec![7; len], Expiry::At(NOW + 5000));
            store
                .put_kind(b"k", &value, typed(), Expiry::Never)
                .unwrap();
            assert!(store.contains(b"k").unwrap());
            assert!(store.record_bytes(b"k").unwrap() >= Some(len as u64));
            assert_eq!(store.random_key().unwrap().as_deref(), Some(&b"k"[..]));
            assert!(store.set_expiry(b"k", soon).unwrap());
            assert!(is(store, b"k", typed(), &value, soon), "{context}, {len}");
            assert!(store.set_expiry(b"k", Expiry::Never).unwrap());
            assert!(
                is(store, b"k", typed(), &value, Expiry::Never),
                "{context}, {len}"
            );
            let (mut kinds, mut strings) = (Vec::new(), 0);
            store
                .scan_kinds(Cursor::START, 9, |_, kind| kinds.push(kind))
                .unwrap();
            store.scan(Cursor::START, 9, |_, _| strings += 1).unwrap();
            store
                .scan_copied(Cursor::START, 9, |_, _| strings += 1)
                .unwrap();
            assert_eq!((kinds, strings), (vec![typed()], 0), "{context}");
            assert!(store.remove(b"k").unwrap());
            assert_eq!(store.kind(b"k").unwrap(), None);
        }
    });
}

#[test]
fn a_put_and_an_update_of_any_kind_store_a_string_over_a_value_of_another_kind() {
    stores(|store, context| {
        for len in LENGTHS {
            let (long, short) = (vec![7; len], &b"s"[..]);
            // A value that fits in place of the old one must not leave the old kind there.
            for value in [&long[..], short] {
                for stored in 0..3 {
                    store.put_kind(b"k", &long, typed(), Expiry::Never).unwrap();
                    match stored {
                        0 => store.put(b"k", value).unwrap(),
                        1 => store.put_many(&[(b"k", value)]).unwrap(),
                        _ => {
                            let decide = |old: Option<Stored<'_>>| {
                                assert_eq!(old.map(|old| old.kind), Some(typed()));
                                Decision::Replace(value.to_vec())
                            };
                            store.update_any(b"k", decide).map(drop).unwrap();
                        }
                    }
                    let is = is(store, b"k", ValueKind::STRING, value, Expiry::Never);
                    assert!(is, "{context}, {len}, {stored}");
                }
                store.put_kind(b"k", value, typed(), Expiry::Never).unwrap();
                assert!(is(store, b"k", typed(), value, Expiry::Never), "{context}");
            }
        }
    });
}

#[test]
fn an_update_of_a_kind_makes_changes_and_removes_values_of_that_kind() {
    stores(|store, context| {
        let soon = Expiry::At(NOW + 5000);
        let update = |value: Option<Vec<u8>>| {
            let decide = |_: Option<Stored<'_>>| match &value {
                Some(value) => Decision::Replace(value.clone()),
                None => Decision::Remove,
            };
            store.update_kind(b"k", typed(), decide).unwrap()
        };
        assert_eq!(update(Some(vec![1; 9])), Updated::Inserted);
        assert!(store.set_expiry(b"k", soon).unwrap());
        for len in [10, 5, 500, 9000, 90_000, 2] {
            assert_eq!(update(Some(vec![2; len])), Updated::Replaced);
            assert!(
                is(store, b"k", typed(), &vec![2; len], soon),
                "{context}, {len}"
            );
        }
        assert_eq!(update(None), Updated::Removed);
        assert!(!store.contains(b"k").unwrap());
    });
}

#[test]
fn a_value_of_another_kind_that_has_expired_is_absent() {
    for policy in POLICIES {
        let (_memory, store, _other, clock) = two_of(LogStore::builder().update_policy(policy));
        let soon = Expiry::At(NOW + 5);
        store.put_kind(b"k", b"value", typed(), soon).unwrap();
        clock.advance_ms(10);
        assert!(store.get(b"k").unwrap().is_none());
        assert_eq!(store.kind(b"k").unwrap(), None);
        let new = |old: Option<&[u8]>| {
            assert_eq!(old, None);
            Decision::Replace(b"string".to_vec())
        };
        assert_eq!(store.update(b"k", new).unwrap(), Updated::Inserted);
        assert!(is(
            &store,
            b"k",
            ValueKind::STRING,
            b"string",
            Expiry::Never
        ));
        sound(&store, "after an expiry");
    }
}

#[test]
fn a_transaction_keeps_kinds_however_often_it_writes_a_key() {
    for policy in POLICIES {
        let (_memory, store) = Memory::with_policy(CAPACITY, policy);
        let soon = Expiry::At(u64::MAX / 2);
        store
            .put_kind(b"old", &[1; 50], typed(), Expiry::Never)
            .unwrap();
        let committed = store.transaction(|t| {
            let mut zero = t.database(0)?;
            assert_eq!(zero.kind(b"old")?, Some(typed()));
            zero.update_expiry(b"old", |old| {
                assert_eq!(old.kind, typed());
                Some(soon)
            })?;
            // After it was outgrown repeatedly, it gets a record with space for growth.
            for len in [10, 100, 5000, 20_000, 30_000] {
                zero.put_kind(b"new", &vec![2; len], typed(), Expiry::Never)?;
                assert_eq!(zero.kind(b"new")?, Some(typed()));
            }
            zero.update_expiry(b"new", |_| Some(soon))?;
            zero.put_kind(b"string", b"typed at first", typed(), Expiry::Never)?;
            zero.put(b"string", b"s")?;
            assert_eq!(zero.get(b"string")?.as_deref(), Some(&b"s"[..]));
            zero.put(b"typed", b"a string at first")?;
            zero.put_kind(b"typed", b"t", typed(), Expiry::Never)
        });
        committed.map_err(|e: WriteError| e).unwrap();
        assert!(is(&store, b"old", typed(), &[1; 50], soon));
        assert!(is(&store, b"new", typed(), &[2; 30_000], soon));
        assert!(is(
            &store,
            b"string",
            ValueKind::STRING,
            b"s",
            Expiry::Never
        ));
        assert!(is(&store, b"typed", typed(), b"t", Expiry::Never));
        sound(&store, "after a transaction");
    }
}

#[test]
fn compaction_keeps_kinds() {
    for policy in POLICIES {
        let (_memory, store) = Memory::with_policy(CAPACITY, policy);
        let key = |i: u32| i.to_le_bytes();
        for i in 0..20_000u32 {
            match i % 3 {
                0 => store.put(&key(i), &[1; 200]).unwrap(),
                1 => {
                    let put = store.put_kind(&key(i), &[2; 200], typed(), Expiry::Never);
                    put.unwrap();
                }
                _ => {
                    store.put(&key(i), &[3; 2000]).unwrap();
                }
            }
        }
        for i in (2..20_000).step_by(3) {
            assert!(store.remove(&key(i)).unwrap());
        }
        while store.compact().unwrap() > 0 {}
        for i in 0..20_000u32 {
            let expected = [Some(ValueKind::STRING), Some(typed()), None][i as usize % 3];
            assert_eq!(store.kind(&key(i)).unwrap(), expected);
        }
        sound(&store, "after compaction");
    }
}

#[test]
fn a_patch_of_a_string_leaves_a_typed_value_that_came_meanwhile_alone() {
    for policy in POLICIES {
        let (_memory, store) = Memory::with_policy(CAPACITY, policy);
        store.put(b"k", &[0; 6000]).unwrap();
        let patch = |at| Patch::Write {
            at,
            bytes: Cow::Borrowed(b"patched"),
        };
        store.update_part(b"k", |_| 0..0, |_| patch(5)).unwrap();
        let mut asked = 0;
        let updated = store.update_part(
            b"k",
            |_| 0..0,
            |_| {
                asked += 1;
                store
                    .put_kind(b"k", &[9; 6000], typed(), Expiry::Never)
                    .unwrap();
                patch(8)
            },
        );
        assert!(
            matches!(updated, Err(WriteError::WrongKind(_))),
            "{updated:?}"
        );
        assert_eq!(asked, 1);
        assert!(is(&store, b"k", typed(), &[9; 6000], Expiry::Never));
    }
}

/// The items of the feed, each in short form.
fn fed(store: &LogStore, feed: &mut ChangeFeed) -> Vec<String> {
    let (mut bytes, mut said) = (Vec::new(), Vec::new());
    let positions = feed.drain(usize::MAX, &mut bytes).unwrap();
    for entry in entries(positions.start, &bytes) {
        for item in entry.unwrap().items() {
            let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
            said.push(match item.unwrap() {
                Item::Put { kind, bytes, .. } => format!("put {kind} of {}", bytes.len()),
                Item::Edit {
                    kind,
                    element,
                    value,
                    ..
                } => format!("edit {kind} {}={}", text(element), text(value)),
                Item::Unedit { kind, element, .. } => format!("unedit {kind} {}", text(element)),
                Item::Remove { .. } => "remove".to_owned(),
                _ => continue,
            });
        }
    }
    feed.set_durable(positions.end).unwrap();
    assert_eq!(store.feed_durable(), store.feed_tail());
    said
}

#[test]
fn the_feed_says_the_elements_that_an_update_changes_instead_of_the_whole_value() {
    for policy in POLICIES {
        let builder = LogStore::builder().update_policy(policy).change_feed(true);
        let (_memory, store, other, _clock) = two_of(builder);
        drop(other);
        let mut feed = store.change_feed().unwrap();
        let update = |value: Option<Vec<u8>>, said: &[(&[u8], Option<&[u8]>)]| {
            let updated = store.update_elements(b"k", typed(), |_, elements| {
                for (element, value) in said {
                    match value {
                        Some(value) => elements.set(element, value),
                        None => elements.remove(element),
                    }
                }
                value.clone().map_or(Decision::Remove, Decision::Replace)
            });
            updated.unwrap();
        };
        let set: &[(&[u8], Option<&[u8]>)] = &[(b"a", Some(b"1"))];
        update(Some(vec![1; 500]), set);
        assert_eq!(fed(&store, &mut feed), ["put 1 of 500"], "it is new");
        update(Some(vec![2; 500]), set);
        assert_eq!(fed(&store, &mut feed), ["edit 1 a=1"]);
        update(Some(vec![3; 700]), &[(b"a", None), (b"b", Some(b""))]);
        assert_eq!(fed(&store, &mut feed), ["unedit 1 a", "edit 1 b="]);
        update(Some(vec![3; 9000]), &[(b"b", Some(&[b'x'; 20]))]);
        let long = format!("edit 1 b={}", "x".repeat(20));
        assert_eq!(fed(&store, &mut feed), [long]);
        update(Some(vec![4; 900]), &[]);
        assert_eq!(fed(&store, &mut feed), ["put 1 of 900"], "none was said");
        update(Some(vec![4; 20]), set);
        assert_eq!(fed(&store, &mut feed), ["put 1 of 20"], "it is shorter");
        update(None, set);
        assert_eq!(fed(&store, &mut feed), ["remove"]);
        // A value that is stored again after its expiry is entered whole.
        store
            .put_kind(b"k", &[5; 500], typed(), Expiry::At(1))
            .unwrap();
        update(Some(vec![6; 500]), set);
        let said = fed(&store, &mut feed);
        assert_eq!(said.last().map(String::as_str), Some("put 1 of 500"));
        sound(&store, "after updates of elements");
    }
}

/// Sets the byte at `at` of the value of `key`, and the first one, in place.
fn edit(store: &LogStore, key: &[u8], at: usize, byte: u8) -> Option<Updated> {
    let edited = store.edit_in_place(key, typed(), |_, edit| {
        let written = edit.write(0, |to| to.push(byte)) && edit.write(at, |to| to.push(byte));
        edit.elements().set(b"at", &[byte]);
        written.then_some(true)
    });
    edited.unwrap()
}

#[test]
fn a_value_with_elements_is_edited_where_it_lies_under_both_policies() {
    for policy in POLICIES {
        let (_memory, store, other, _clock) = two_of(LogStore::builder().update_policy(policy));
        drop(other);
        let mut expected = vec![0; 3000];
        let put = |value: &[u8], kind| store.put_kind(b"k", value, kind, Expiry::At(NOW + 1000));
        put(&expected, typed()).unwrap();
        let written = store.stats().written_bytes;
        for round in 0..5000 {
            let (at, byte) = (round * 7 % 3000, round as u8);
            assert_eq!(edit(&store, b"k", at, byte), Some(Updated::Replaced));
            (expected[0], expected[at]) = (byte, byte);
        }
        let expiry = Expiry::At(NOW + 1000);
        assert!(is(&store, b"k", typed(), &expected, expiry));
        assert_eq!(store.stats().written_bytes, written, "nothing is appended");
        // As long as the record has space: after an update has made it longer it has some.
        let updated = store.update_kind(b"k", typed(), |stored| {
            Decision::Replace([stored.unwrap().value, &[1][..]].concat())
        });
        assert_eq!(updated.unwrap(), Updated::Replaced);
        let grow = |by: usize| {
            let edited = store.edit_in_place(b"k", typed(), |value, edit| {
                edit.set_len(value.len() + by);
                edit.write(value.len(), |to| to.resize(to.len() + by, 9))
                    .then_some(true)
            });
            edited.unwrap()
        };
        assert_eq!(grow(300), Some(Updated::Replaced));
        expected.extend([1]);
        expected.extend([9; 300]);
        assert!(is(&store, b"k", typed(), &expected, expiry));
        assert_eq!(grow(5000), None);
        let kept = store.edit_in_place(b"k", typed(), |value, _| Some(value.is_empty()));
        assert_eq!(kept.unwrap(), Some(Updated::Kept));
        // Unsuitable uses: after the end, absent, of another kind, expired.
        assert_eq!(edit(&store, b"k", expected.len(), 1), None);
        assert_eq!(edit(&store, b"absent", 1, 1), None);
        assert!(is(&store, b"k", typed(), &expected, expiry));
        put(b"text", ValueKind::STRING).unwrap();
        wrong_string(
            store
                .edit_in_place(b"k", typed(), |_, _| None)
                .map(|_| Updated::Kept),
        );
        assert_eq!(store.get(b"k").unwrap().as_deref(), Some(&b"text"[..]));
        store
            .put_kind(b"k", b"old", typed(), Expiry::At(1))
            .unwrap();
        assert_eq!(edit(&store, b"k", 1, 1), None);
        // Within a transaction's body the thread has no place to write the change down.
        put(b"value", typed()).unwrap();
        let keys: [(usize, &[u8]); 1] = [(0, b"other")];
        let within = store.transaction_on(&keys, |t| {
            t.put(b"other", b"v")?;
            Ok::<_, WriteError>(edit(&store, b"k", 1, 1))
        });
        assert_eq!(within.unwrap(), None);
        assert!(is(&store, b"k", typed(), b"value", expiry));
        sound(&store, "after edits");
    }
}

#[test]
fn the_feed_has_the_elements_of_an_edit() {
    for policy in POLICIES {
        let builder = LogStore::builder().update_policy(policy).change_feed(true);
        let (_memory, store, other, _clock) = two_of(builder);
        drop(other);
        let mut feed = store.change_feed().unwrap();
        let put = |len| store.put_kind(b"k", &vec![1; len], typed(), Expiry::Never);
        put(500).unwrap();
        assert_eq!(edit(&store, b"k", 77, b'x'), Some(Updated::Replaced));
        assert_eq!(fed(&store, &mut feed), ["put 1 of 500", "edit 1 at=x"]);
        // A short value is entered whole, for which an edit does not have the bytes.
        put(5).unwrap();
        assert_eq!(edit(&store, b"k", 1, b'x'), None);
        assert_eq!(fed(&store, &mut feed), ["put 1 of 5"]);
    }
}

/// As [`edit`], by an update, which stores what differs.
fn update(store: &LogStore, key: &[u8], at: usize, byte: u8) -> Updated {
    let updated = store.update_elements(key, typed(), |stored, elements| {
        let mut value = stored.unwrap().value.to_vec();
        (value[0], value[at]) = (byte, byte);
        elements.set(b"at", &[byte]);
        Decision::Replace(value)
    });
    updated.unwrap()
}

/// A change between the look of an update and its lock, of the same value and of another one, which
/// may be in the same bucket.
#[test]
fn an_update_of_what_was_changed_meanwhile_begins_again() {
    for policy in POLICIES {
        let (_memory, store) = Memory::with_policy(CAPACITY, policy);
        let keys: Vec<_> = (0..200u32).map(u32::to_le_bytes).collect();
        for key in &keys {
            let put = store.put_kind(key, &[0; 500], typed(), Expiry::Never);
            put.unwrap();
        }
        for (n, key) in (0..).zip(&keys) {
            let mut runs = 0;
            let updated = store.update_kind(key, typed(), |stored| {
                runs += 1;
                if runs == 1 {
                    assert_eq!(edit(&store, key, 400, 1), Some(Updated::Replaced));
                    for other in keys.iter().filter(|other| *other != key) {
                        edit(&store, other, 300, n).unwrap();
                    }
                }
                let mut value = stored.unwrap().value.to_vec();
                value[450] += 1;
                Decision::Replace(value)
            });
            assert_eq!((updated.unwrap(), runs), (Updated::Replaced, 2));
            let found = store.get_kind(key, typed()).unwrap().unwrap().to_vec();
            assert_eq!((found[400], found[450]), (1, 1));
        }
        sound(&store, "after updates beside edits");
    }
}

/// Readers of every kind, and compaction, beside edits of two places that belong together.
#[test]
fn no_reader_sees_a_half_of_an_edit() {
    for policy in POLICIES {
        let (_memory, store) = Memory::with_policy(CAPACITY, policy);
        let keys: Vec<_> = (0..20u32).map(u32::to_le_bytes).collect();
        for key in &keys {
            store
                .put_kind(key, &[0; 2000], typed(), Expiry::Never)
                .unwrap();
        }
        let root = store.roots().unwrap()[0];
        let is_whole = |value: &[u8]| value.len() == 2000 && value[0] == value[1999];
        let stop = AtomicBool::new(false);
        let going = || !stop.load(Relaxed);
        std::thread::scope(|scope| {
            for first in 0..2u32 {
                let (keys, store, going) = (&keys, &store, &going);
                scope.spawn(move || {
                    for n in (first..).step_by(2).take_while(|_| going()) {
                        let key = &keys[n as usize % 20];
                        match n % 3 {
                            0 => drop(update(store, key, 1999, n as u8)),
                            _ => drop(edit(store, key, 1999, n as u8)),
                        }
                        let other = u64::from(n % 250) << 40 | 1;
                        store.put(&other.to_be_bytes(), &[0; 5_000]).unwrap();
                    }
                });
            }
            scope.spawn(|| {
                while going() {
                    store.compact().unwrap();
                }
            });
            for round in 0..300 {
                let key = &keys[round % 20];
                assert!(is_whole(&store.get_kind(key, typed()).unwrap().unwrap()));
                let read = store
                    .transaction(|t| t.read(key, |stored| Ok(is_whole(stored.unwrap().value)))?);
                assert!(read.unwrap_or_else(|error: WriteError| panic!("{error}")));
                let updated = store.update_kind(key, typed(), |stored| {
                    assert!(is_whole(stored.unwrap().value));
                    Decision::Keep
                });
                updated.unwrap();
                let mut cursor = Cursor::START;
                while cursor != Cursor::END {
                    let visit = |_: &[u8], stored: Stored<'_>| {
                        assert!(stored.kind != typed() || is_whole(stored.value));
                    };
                    cursor = store.scan_root(root, cursor, 20, visit).unwrap().unwrap();
                }
            }
            stop.store(true, Relaxed);
        });
        sound(&store, "after edits by several");
    }
}
