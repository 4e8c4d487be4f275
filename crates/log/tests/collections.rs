//! Collections: a main, an anchor and leaves, changed by transactions and freed by a sweep.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod memory;
#[path = "collections/twins.rs"]
mod twins;

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, mpsc};

use memory::{CAPACITY, NOW, POLICIES, sound, two, two_of};
use mneme_log::feed::{COLLECTIONS, Item, entries};
use mneme_log::{
    Anchor, ChangeKind, Cursor, Evict, Expiry, LogStore, Notification, Transaction, ValueKind,
    WriteError, collection_of, element_of, leaf_numbers, main_of,
};
use mneme_sys::fault::{Action, Outcome, run};

const PACKED: ValueKind = ValueKind::new(1).unwrap();
const LARGE: ValueKind = PACKED.large();

/// Leaves of the tests' collections.
const LEAVES: u64 = 5;

/// Stores `round` in every leaf of the collection under `key`, which is created if necessary.
fn set(
    t: &mut Transaction<'_>,
    database: usize,
    key: &[u8],
    (round, expiry): (u8, Expiry),
) -> Result<(), WriteError> {
    let found = t.database(database)?.read(key, |stored| {
        stored.filter(|s| s.kind == LARGE).map(|s| s.value.to_vec())
    })?;
    let id = match &found {
        Some(main) => collection_of(main).unwrap(),
        None => t.new_collection(),
    };
    let mut anchor = t.anchor(id)?.unwrap_or(Anchor::new(PACKED));
    (anchor.count, anchor.leaves) = (u64::from(round), LEAVES);
    anchor.bytes = LEAVES * 300;
    t.set_anchor(id, &anchor)?;
    for number in leaf_numbers(LEAVES) {
        t.put_inner(id, number, &[round; 300])?;
    }
    t.say(id, PACKED, b"element", Some(&[round]));
    match found {
        Some(_) => t.database(database)?.touch(key),
        None => t
            .database(database)?
            .put_kind(key, &main_of(id), LARGE, expiry),
    }
}

/// The round in all leaves of the collection under `key`. `None`: there is none.
fn get(store: &LogStore, database: usize, key: &[u8]) -> Option<u8> {
    let read = |t: &mut Transaction<'_>| -> Result<Option<u8>, WriteError> {
        let main = t
            .database(database)?
            .read(key, |stored| stored.map(|s| s.value.to_vec()))?;
        let Some(id) = main.as_deref().and_then(collection_of) else {
            return Ok(None);
        };
        let anchor = t.anchor(id)?.unwrap();
        for number in leaf_numbers(LEAVES) {
            let is_whole = |leaf: Option<&[u8]>| leaf == Some(&[anchor.count as u8; 300][..]);
            assert!(t.read_inner(id, number, is_whole)?, "leaf {number}");
        }
        Ok(Some(anchor.count as u8))
    };
    store.transaction(read).unwrap()
}

fn put(store: &LogStore, database: usize, key: &[u8], round: u8) {
    store
        .transaction(|t| set(t, database, key, (round, Expiry::Never)))
        .unwrap();
}

/// The numbers of collections and inner records of a sound store.
fn counts(store: &LogStore) -> (u64, u64) {
    let report = store.check().unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
    (report.collections, report.inner_records)
}

#[test]
fn a_collection_is_one_record_of_its_database_and_survives_compaction() {
    for policy in POLICIES {
        let (_memory, store, other, _clock) = two(policy);
        for i in 0..50u8 {
            put(&store, 3, &[i], i);
        }
        assert_eq!((store.len(), store.records()), (0, 50));
        let database = store.database(3).unwrap();
        let mut kinds = Vec::new();
        let visit = |_: &[u8], kind| kinds.push(kind);
        assert_eq!(
            database.scan_kinds(Cursor::START, 1000, visit).unwrap(),
            Cursor::END
        );
        assert_eq!(kinds, [LARGE; 50]);
        for round in 0..20u8 {
            (0..2000u32).for_each(|i| store.put(&i.to_le_bytes(), &[round; 600]).unwrap());
            put(&other, 3, &[round], round + 100);
        }
        while store.compact().unwrap() > 0 {}
        for i in 0..50u8 {
            assert_eq!(get(&other, 3, &[i]), Some(if i < 20 { i + 100 } else { i }));
        }
        assert_eq!(counts(&store), (50, 50 * LEAVES));
        let mut ids = Vec::new();
        let end = store.scan_collections(Cursor::START, 1000, |id, _| ids.push(id));
        assert_eq!(end.unwrap(), Cursor::END);
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 50);
    }
}

#[test]
fn the_removal_of_a_main_frees_its_collection_and_no_other() {
    type Way = (&'static str, fn(&LogStore));
    const WAYS: [Way; 6] = [
        ("remove", |s| assert!(s.remove(b"k").unwrap())),
        ("put", |s| s.put(b"k", b"string").unwrap()),
        ("transaction", |s| {
            assert!(s.transaction(|t| t.remove(b"k")).unwrap());
        }),
        ("put in a transaction", |s| {
            s.transaction(|t| t.put(b"k", b"string")).unwrap();
        }),
        ("clear", |s| {
            s.database(0).unwrap().clear().unwrap();
            s.compact().unwrap();
        }),
        ("expiry", |s| {
            s.set_expiry(b"k", Expiry::At(NOW - 1)).unwrap();
            assert_eq!(s.remove_expired().unwrap(), 1);
        }),
    ];
    for policy in POLICIES {
        for (name, way) in WAYS {
            let (_memory, store, other, _clock) = two(policy);
            put(&store, 0, b"k", 1);
            put(&store, 1, b"k", 2);
            assert!(!other.sweep_collections().unwrap(), "nothing is dead");
            way(&store);
            assert!(other.sweep_collections().unwrap(), "{name}");
            assert_eq!(counts(&store), (1, LEAVES), "{name}");
            assert_eq!(get(&store, 1, b"k"), Some(2));
            put(&store, 0, b"other", 3);
            assert_eq!(get(&store, 0, b"other"), Some(3));
            assert!(!other.sweep_collections().unwrap());
        }
    }
}

/// The sweep of a cleared database frees parts of a collection before a look reaches them.
#[test]
fn a_look_at_a_collection_of_a_cleared_database_shows_no_part_of_it() {
    for finds_all in [false, true] {
        let (_memory, store, other, _clock) = two(POLICIES[0]);
        put(&store, 0, b"k", 7);
        let mut looks = 0;
        let looked = store.database(0).unwrap().look(b"k", LARGE, |look| {
            looks += 1;
            if looks == 1 {
                let id = look.id();
                let clear_and_sweep = || {
                    other.database(0).unwrap().clear().unwrap();
                    let first = leaf_numbers(LEAVES).next().unwrap();
                    assert!(other.transaction(|t| t.remove_inner(id, first)).unwrap());
                };
                std::thread::scope(|scope| scope.spawn(clear_and_sweep).join().unwrap());
            }
            if finds_all {
                let _ = look.find_all();
            }
            let leaves = leaf_numbers(LEAVES).map(|number| look.inner(number).unwrap());
            leaves.flatten().count()
        });
        assert_eq!(looked.unwrap(), None, "the database is empty");
        assert_eq!(looks, 1);
    }
}

#[test]
fn a_collection_follows_its_main_to_another_key_and_database() {
    for policy in POLICIES {
        let (_memory, store, other, _clock) = two(policy);
        put(&store, 0, b"from", 1);
        let moved = |from: (usize, &[u8]), to: (usize, &[u8])| {
            let work = |t: &mut Transaction<'_>| {
                let main = t
                    .database(from.0)?
                    .read(from.1, |s| s.map(|s| s.value.to_vec()))?;
                let main = main.unwrap();
                assert!(t.database(from.0)?.remove(from.1)?);
                t.database(to.0)?
                    .put_kind(to.1, &main, LARGE, Expiry::Never)
            };
            store.transaction(work).unwrap();
            other.sweep_collections().unwrap();
            assert_eq!(get(&other, to.0, to.1), Some(1));
            assert_eq!(get(&other, from.0, from.1), None);
        };
        moved((0, b"from"), (0, b"to"));
        moved((0, b"to"), (5, b"to"));
        store.swap_databases(5, 6).unwrap();
        store.database(5).unwrap().clear().unwrap();
        other.sweep_collections().unwrap();
        assert_eq!(get(&other, 6, b"to"), Some(1));
        moved((6, b"to"), (5, b"from"));
        assert_eq!(counts(&store), (1, LEAVES));
        assert!(store.database(5).unwrap().remove(b"from").unwrap());
        assert!(store.sweep_collections().unwrap());
        assert_eq!(counts(&store), (0, 0));
    }
}

#[test]
fn the_feed_says_elements_and_mains_and_nothing_of_what_holds_them() {
    let builder = LogStore::builder().change_feed(true);
    let (_memory, store, _other, _clock) = two_of(builder);
    let mut feed = store.change_feed().unwrap();
    let mut said = || {
        let (mut bytes, mut said) = (Vec::new(), Vec::new());
        let drained = feed.drain(usize::MAX, &mut bytes).unwrap();
        for entry in entries(drained.start, &bytes) {
            let items = entry
                .unwrap()
                .items()
                .map(Result::unwrap)
                .map(|item| match item {
                    Item::Put {
                        root: COLLECTIONS,
                        key,
                        bytes,
                        ..
                    } => {
                        format!("{:?} is {bytes:?}", element_of(key).unwrap())
                    }
                    Item::Put { kind, bytes, .. } => format!("put {kind} of {bytes:?}"),
                    Item::Drop {
                        root: COLLECTIONS,
                        prefix,
                    } => format!("drop {prefix:?}"),
                    Item::Remove { .. } => "remove".into(),
                    _ => String::new(),
                });
            said.push(
                items
                    .filter(|item| !item.is_empty())
                    .collect::<Vec<_>>()
                    .join(", "),
            );
        }
        feed.set_durable(drained.end).unwrap();
        said.retain(|entry| !entry.is_empty());
        said
    };
    put(&store, 0, b"k", 7);
    let element = format!("{:?}", (1, b"element".as_slice()));
    let main = "put 9 of [1, 0, 0, 0, 0, 0, 0, 0]";
    assert_eq!(said(), [format!("{main}, {element} is [7]")]);
    put(&store, 0, b"k", 8);
    assert_eq!(said(), [format!("{element} is [8]")]);
    store.remove(b"k").unwrap();
    assert_eq!(said(), ["remove"]);
    assert!(store.sweep_collections().unwrap());
    assert_eq!(said(), ["drop [0, 0, 0, 0, 0, 0, 0, 1]"]);
}

#[test]
fn a_change_of_a_collection_is_one_of_its_key() {
    let (_memory, store, other, _clock) = two(POLICIES[0]);
    put(&store, 0, b"k", 1);
    let mut watch = store.watch().unwrap();
    watch.add(0, b"k").unwrap();
    put(&other, 0, b"k", 2);
    let refused = watch.transaction(|t| t.put(b"other", b"v")).unwrap();
    assert_eq!(refused, None);
}

/// Moves a collection as RENAME does.
fn rename(t: &mut Transaction<'_>, from: &[u8], to: &[u8]) -> Result<(), WriteError> {
    let main = t.read(from, |stored| stored.map(|s| s.value.to_vec()))?;
    t.remove(from)?;
    t.database(0)?
        .put_kind(to, &main.unwrap(), LARGE, Expiry::Never)
}

#[test]
fn a_listener_receives_the_key_of_a_collection_that_changes() {
    for is_kept in [false, true] {
        let builder = LogStore::builder().change_feed(is_kept);
        let (_memory, store, other, _clock) = two_of(builder);
        let mut listener = other.listen().unwrap();
        let mut received = |of: &str, expected: &[&str]| {
            let mut names = Vec::new();
            let receive = |notification: Notification<'_>| match notification {
                Notification::Lost => names.push("lost".to_owned()),
                Notification::Change(change) => {
                    let (kind, key) = match change.kind {
                        ChangeKind::Stored(key) => ("stored", key),
                        ChangeKind::Removed(key) => ("removed", key),
                        other => panic!("{other:?}"),
                    };
                    let key = key.escape_ascii();
                    names.push(format!("{} {kind} {key}", change.database));
                }
            };
            listener.drain(usize::MAX, receive).unwrap();
            assert_eq!(names, expected, "{of}, kept: {is_kept}");
        };
        received("the beginning", &["lost"]);
        put(&store, 0, b"k", 1);
        received("a new collection", &["0 stored k"]);
        put(&store, 0, b"k", 2);
        received("a change of an element", &["0 stored k"]);
        store.transaction(|t| rename(t, b"k", b"n")).unwrap();
        received("RENAME", &["0 removed k", "0 stored n"]);
        put(&store, 0, b"n", 3);
        received("a change after RENAME", &["0 stored n"]);
        put(&store, 7, b"n", 4);
        put(&store, 7, b"n", 5);
        received("another database", &["7 stored n", "7 stored n"]);
        let change_and_rename = |t: &mut Transaction<'_>| {
            set(t, 0, b"n", (6, Expiry::Never))?;
            set(t, 7, b"n", (6, Expiry::Never))?;
            rename(t, b"n", b"m")
        };
        store.transaction(change_and_rename).unwrap();
        let renamed = ["0 removed n", "0 stored m", "7 stored n"];
        received("a change and RENAME at once", &renamed);
        let change_and_remove = |t: &mut Transaction<'_>| {
            set(t, 0, b"m", (7, Expiry::Never))?;
            t.remove(b"m")
        };
        assert!(store.transaction(change_and_remove).unwrap());
        received("a change and a removal at once", &["0 removed m"]);
        assert!(store.sweep_collections().unwrap());
        received("a sweep", &[]);
        // Longer than an entry, if values are kept.
        let set_long = |t: &mut Transaction<'_>| {
            set(t, 7, b"n", (8, Expiry::Never))?;
            let main = t
                .database(7)?
                .read(b"n", |stored| collection_of(stored.unwrap().value))?;
            t.say(main.unwrap(), PACKED, b"long", Some(&[8; 100_000]));
            Ok::<_, WriteError>(())
        };
        store.transaction(set_long).unwrap();
        received(
            "a long element",
            &[["7 stored n", "lost"][usize::from(is_kept)]],
        );
        assert!(store.database(7).unwrap().remove(b"n").unwrap());
        received("a removal", &["7 removed n"]);
        put(&other, 0, b"own", 1);
        put(&other, 0, b"own", 2);
        received("what its own opening changes", &[]);
    }
}

#[test]
fn no_reader_sees_a_collection_half_changed() {
    for policy in POLICIES {
        let (_memory, store, other, _clock) = two(policy);
        put(&store, 0, b"k", 0);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut seen = 0;
                while !is_over.load(Relaxed) {
                    let read = other.transaction(|t| {
                        let main = t.read(b"k", |s| s.map(|s| s.value.to_vec()))?;
                        let id = collection_of(&main.unwrap()).unwrap();
                        let mut rounds = vec![t.anchor(id)?.unwrap().count as u8];
                        for number in leaf_numbers(LEAVES) {
                            rounds.push(t.read_inner(id, number, |leaf| leaf.unwrap()[299])?);
                        }
                        Ok::<_, WriteError>(rounds)
                    });
                    let rounds = read.unwrap();
                    assert!(rounds.iter().all(|round| *round == rounds[0]), "{rounds:?}");
                    assert!(rounds[0] >= seen);
                    seen = rounds[0];
                }
            });
            for round in 1..=250 {
                put(&store, 0, b"k", round);
            }
            is_over.store(true, Relaxed);
        });
        assert_eq!(counts(&store), (1, LEAVES));
    }
}

#[test]
fn a_full_store_evicts_mains_and_takes_back_what_they_led_to() {
    for evict in [Evict::Lru, Evict::Random, Evict::ExpiringLru] {
        let builder = LogStore::builder().capacity(CAPACITY as u64).evict(evict);
        let store = builder.maintainer(false).open_private().unwrap();
        // Twice the capacity.
        let many = 2 * CAPACITY as u32 / (LEAVES as u32 * 330);
        for i in 0..many {
            let stored = store
                .transaction(|t| set(t, 0, &i.to_le_bytes(), (i as u8, Expiry::At(u64::MAX >> 1))));
            stored.unwrap_or_else(|error| panic!("{evict:?}, {i} of {many}: {error}"));
        }
        let last = many - 1;
        assert_eq!(get(&store, 0, &last.to_le_bytes()), Some(last as u8));
        store.sweep_collections().unwrap();
        let records = store.len();
        assert_eq!(counts(&store), (records, records * LEAVES), "{evict:?}");
        assert!(records < u64::from(many) * 2 / 3, "{evict:?}: {records}");
    }
}

/// Mains that are stored side by side, apart from their collections.
#[test]
fn no_more_mains_are_evicted_than_needed() {
    const MANY: u32 = 12_000;
    for evict in [Evict::Lru, Evict::Random] {
        let builder = LogStore::builder().capacity(CAPACITY as u64).evict(evict);
        let store = builder.maintainer(false).open_private().unwrap();
        for i in 0..MANY {
            let begin = |t: &mut Transaction<'_>| {
                let id = t.new_collection();
                t.set_anchor(id, &Anchor::new(PACKED))?;
                t.database(0)?
                    .put_kind(&i.to_le_bytes(), &main_of(id), LARGE, Expiry::Never)
            };
            store.transaction(begin).unwrap();
        }
        (0..MANY).for_each(|i| put(&store, 0, &i.to_le_bytes(), 1));
        let mut others = 0u32;
        // Checked occasionally, because statistics take a while.
        while !others.is_multiple_of(500) || store.stats().evicted == 0 {
            let key = [&b"other"[..], &others.to_le_bytes()].concat();
            store.put(&key, &[7; 1000]).unwrap();
            others += 1;
        }
        let left = store.len() - u64::from(others);
        assert!(left > u64::from(MANY) / 2, "{evict:?}: {left} are left");
        sound(&store, "after evictions");
    }
}

#[test]
fn a_full_store_takes_back_what_is_dead_before_it_refuses_a_write() {
    let builder = LogStore::builder().capacity(CAPACITY as u64);
    let store = builder.maintainer(false).open_private().unwrap();
    for round in 0..3u8 {
        let mut stored = 0u32;
        while store
            .transaction(|t| set(t, 0, &stored.to_le_bytes(), (round, Expiry::Never)))
            .is_ok()
        {
            stored += 1;
        }
        assert!(stored > 20_000, "{stored} in round {round}");
        (0..stored).for_each(|i| assert!(store.remove(&i.to_le_bytes()).unwrap()));
    }
    store.sweep_collections().unwrap();
    assert_eq!(counts(&store), (0, 0));
}

#[test]
fn a_large_value_that_is_no_id_is_refused() {
    let (_memory, store, _other, _clock) = two(POLICIES[0]);
    for value in [&b""[..], b"1234567", &[0; 8], b"123456789"] {
        let put =
            |t: &mut Transaction<'_>| t.database(0)?.put_kind(b"k", value, LARGE, Expiry::Never);
        assert!(matches!(
            store.transaction(put),
            Err(WriteError::Corrupt(_))
        ));
    }
    assert_eq!(store.len(), 0);
    sound(&store, "after values that are no ids");
}

/// A writer waits for the sweep of another thread.
#[test]
fn a_store_that_is_being_swept_refuses_no_write() {
    let (_memory, one, other, _) = two_of(LogStore::builder().maintainer(false));
    let mut stored = 0u32;
    while one
        .transaction(|t| set(t, 0, &stored.to_le_bytes(), (1, Expiry::Never)))
        .is_ok()
    {
        stored += 1;
    }
    // Another process removes all: this one does not know the ids.
    (0..stored).for_each(|i| assert!(other.remove(&i.to_le_bytes()).unwrap()));
    let one = Arc::new(one);
    let (begun, begins) = mpsc::channel();
    let begins = Mutex::new(begins);
    std::thread::scope(|scope| {
        let put = scope.spawn(|| {
            let () = begins.lock().unwrap().recv().unwrap();
            one.put(b"key", &[1; 100_000])
        });
        let sweeper = Arc::clone(&one);
        let begin = Action::Call(Arc::new(move || begun.send(()).unwrap()));
        let sweep = move || sweeper.sweep_collections().unwrap();
        let outcome = run("sweep.collections.begun", begin, 1, sweep);
        assert!(matches!(outcome, Outcome::Finished(true)));
        put.join().unwrap().unwrap();
    });
}

#[test]
fn a_check_names_inner_records_that_no_anchor_leads_to() {
    let (_memory, store, _other, _clock) = two(POLICIES[0]);
    let mut id = 0;
    let change = |t: &mut Transaction<'_>| {
        set(t, 0, b"k", (1, Expiry::Never))?;
        id = t.read(b"k", |stored| collection_of(stored.unwrap().value).unwrap())?;
        // A leaf beyond the number of leaves, and one of a collection that does not exist.
        t.put_inner(id, LEAVES << 1, b"leaf")?;
        t.put_inner(id, mneme_log::TREE_NUMBERS + 7, b"of a tree")?;
        t.put_inner(id + 100, 1, b"leaf")
    };
    store.transaction(change).unwrap();
    let problems = store.check().unwrap().problems;
    let strays = [(id, 10), (id, mneme_log::TREE_NUMBERS + 7), (id + 100, 1)];
    for (id, number) in strays {
        let what = format!("no anchor leads to inner record {number} of collection {id}");
        assert!(problems.contains(&what), "{what}: {problems:?}");
    }
    assert_eq!(problems.len(), strays.len(), "{problems:?}");
}
