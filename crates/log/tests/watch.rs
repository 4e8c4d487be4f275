//! A watch misses no change by any process, and a transaction that it guards loses no update.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod memory;

use std::borrow::Cow;
use std::collections::HashMap;

use memory::{Memory, NOW, POLICIES, two};
use mneme_log::{
    Decision, Evict, Expiry, LogStore, Patch, ReadError, UpdatePolicy, Watch, WriteError,
};
use proptest::prelude::*;

fn watch(store: &LogStore, key: &[u8]) -> Watch {
    let mut watch = store.watch().unwrap();
    watch.add(0, key).unwrap();
    watch
}

/// A change, and whether it counts as a change of the key "k", which is present.
type Change = (&'static str, bool, fn(&LogStore));

const CHANGES: [Change; 22] = [
    ("put", true, |s| s.put(b"k", b"w").unwrap()),
    ("put the same", true, |s| s.put(b"k", b"v").unwrap()),
    ("put longer", true, |s| s.put(b"k", &[7; 6000]).unwrap()),
    ("remove", true, |s| assert!(s.remove(b"k").unwrap())),
    ("remove and put back", true, |s| {
        assert!(s.remove(b"k").unwrap());
        s.put(b"k", b"v").unwrap();
    }),
    ("update", true, |s| {
        s.update(b"k", |_| Decision::Replace(b"w".to_vec()))
            .map(drop)
            .unwrap()
    }),
    ("update away", true, |s| {
        s.update(b"k", |_| Decision::Remove).map(drop).unwrap()
    }),
    ("update until", true, |s| {
        let at = Expiry::At(NOW + 5);
        let until = |_: Option<&[u8]>| Decision::ReplaceUntil(b"v".to_vec(), at);
        s.update(b"k", until).map(drop).unwrap();
    }),
    ("put many", true, |s| {
        s.put_many(&[(b"j", b"1"), (b"k", b"2")]).unwrap()
    }),
    ("remove many", true, |s| {
        assert_eq!(s.remove_many(&[b"k"]).unwrap(), 1)
    }),
    ("put until", true, |s| {
        s.put_until(b"k", b"v", Expiry::At(NOW + 5)).unwrap()
    }),
    ("set an expiry", true, |s| {
        assert!(s.set_expiry(b"k", Expiry::At(NOW + 5)).unwrap())
    }),
    ("transact", true, |s| {
        s.transaction(|t| t.put(b"j", b"1").and_then(|()| t.put(b"k", b"w")))
            .unwrap()
    }),
    ("transact away", true, |s| {
        s.transaction(|t| t.remove(b"k")).map(drop).unwrap()
    }),
    ("clear", true, |s| s.clear().unwrap()),
    ("clear and put back", true, |s| {
        s.clear().unwrap();
        s.put(b"k", b"v").unwrap();
    }),
    ("swap", true, |s| s.swap_databases(0, 3).unwrap()),
    ("swap and swap back", true, |s| {
        s.swap_databases(0, 3).unwrap();
        s.swap_databases(3, 0).unwrap();
    }),
    ("read", false, |s| {
        s.get(b"k").map(drop).unwrap();
        s.transaction(|t| t.get(b"k")).map(drop).unwrap();
    }),
    ("decide to keep", false, |s| {
        s.update(b"k", |_| Decision::Keep).map(drop).unwrap()
    }),
    ("change another key", false, |s| {
        s.put(b"other", b"w").unwrap();
        s.remove(b"other").map(drop).unwrap();
        s.database(1).unwrap().put(b"k", b"w").unwrap();
        s.database(1).unwrap().clear().unwrap();
    }),
    ("compact", false, |s| s.compact().map(drop).unwrap()),
];

#[test]
fn a_watch_reports_every_change_by_any_process() {
    for policy in POLICIES {
        for (what, changes, change) in CHANGES {
            for by_other in [false, true] {
                let (_memory, one, other, _clock) = two(policy);
                one.put_until(b"k", b"v", Expiry::At(NOW + 1_000)).unwrap();
                if what == "put longer" || what == "set an expiry" {
                    one.put(b"k", b"v").unwrap();
                }
                let watch = watch(&one, b"k");
                assert!(watch.is_unchanged(), "{policy:?}, {what}");
                change(if by_other { &other } else { &one });
                let context = format!("{policy:?}, {what}, by the other: {by_other}");
                assert_eq!(watch.is_unchanged(), !changes, "{context}");
                let done = watch.transaction(|t| t.put(b"mark", b"x")).unwrap();
                assert_eq!(done.is_none(), changes, "{context}");
                assert_eq!(one.contains(b"mark").unwrap(), !changes, "{context}");
                let read = watch.transaction(|t| t.get(b"k")).unwrap();
                assert_eq!(read.is_none(), changes, "{context}, reading");
                assert_eq!(one.check().unwrap().problems, Vec::<String>::new());
            }
        }
    }
}

/// A value changed in place has changed, and so has one that a reader seals.
#[test]
fn a_watch_reports_every_patch() {
    for policy in POLICIES {
        let (_memory, one, other, _clock) = two(policy);
        one.put(b"k", &[7; 6000]).unwrap();
        let change = |store: &LogStore, patch: &Patch<'static>| {
            (store.update_part(b"k", |_| 0..9, |_| patch.clone())).unwrap()
        };
        let write = Patch::Write {
            at: 5,
            bytes: Cow::Borrowed(b"x"),
        };
        change(&one, &write);
        for round in 0..4 {
            let watching = watch(&one, b"k");
            change(&other, &Patch::Keep);
            if round == 3 {
                other.get(b"k").unwrap().unwrap();
            }
            assert!(watching.is_unchanged(), "{policy:?}");
            let done = watching.transaction(|t| t.put(b"mark", b"x")).unwrap();
            assert!(done.is_some());
            change(&other, &write);
            assert!(!watching.is_unchanged(), "{policy:?}");
            let done = watching.transaction(|t| t.get(b"k")).unwrap();
            assert!(done.is_none());
        }
    }
}

#[test]
fn a_key_that_is_absent_is_watched_too() {
    for policy in POLICIES {
        let (_memory, one, other, _clock) = two(policy);
        // In a store, and in a database, that was never written to.
        let watching = watch(&one, b"k");
        assert!(!other.remove(b"k").unwrap());
        other.put(b"j", b"v").unwrap();
        assert!(watching.is_unchanged());
        other.put(b"k", b"v").unwrap();
        assert!(!watching.is_unchanged());
        // Absent again, but nevertheless changed.
        other.remove(b"k").unwrap();
        assert!(!watching.is_unchanged());
        let again = watch(&one, b"k");
        other.transaction(|t| t.put(b"k", b"w")).unwrap();
        assert!(!again.is_unchanged());
    }
}

#[test]
fn a_record_that_expires_while_watched_has_changed() {
    for policy in POLICIES {
        let (_memory, one, other, clock) = two(policy);
        let end = Expiry::At(NOW + 10);
        one.put_until(b"k", b"v", end).unwrap();
        let watching = watch(&one, b"k");
        clock.set_wall_ms(NOW + 9);
        assert!(watching.is_unchanged());
        clock.set_wall_ms(NOW + 10);
        assert!(!watching.is_unchanged());
        let put = |watch: &Watch| watch.transaction(|t| t.put(b"mark", b"x")).unwrap();
        assert!(put(&watching).is_none());
        // A record that had expired before was absent, and still is.
        let late = watch(&one, b"k");
        assert!(put(&late).is_some());
        drop(late);
        assert_eq!(other.remove_expired().unwrap(), 1);
        assert!(!watching.is_unchanged());
        clock.set_wall_ms(NOW);
        assert!(!watching.is_unchanged(), "it was removed");
    }
}

#[test]
fn an_evicted_key_has_changed() {
    let builder = LogStore::builder().evict(Evict::Random);
    let (memory, store) = Memory::built(memory::CAPACITY, memory::CAPACITY, builder);
    let other = memory.open(2);
    let key = |i: u32| i.to_le_bytes();
    let watches: Vec<Watch> = (0..200u32)
        .map(|i| {
            store.put(&key(i), &[1; 1000]).unwrap();
            watch(&store, &key(i))
        })
        .collect();
    // Evictions are random: more is stored until some of the watched records are gone.
    let is_gone = |i: u32| !store.contains(&key(i)).unwrap();
    for round in 1..200u32 {
        for i in 0..10_000 {
            other.put(&key(round * 10_000 + i), &[1; 1000]).unwrap();
        }
        if (0..200).any(is_gone) {
            break;
        }
    }
    let mut forgotten = 0;
    for (i, watch) in (0..).zip(&watches) {
        if is_gone(i) {
            assert!(!watch.is_unchanged(), "{i} was forgotten");
            forgotten += 1;
        }
    }
    assert!(forgotten > 0);
}

#[test]
fn several_keys_are_watched_from_when_they_were_added() {
    let (_memory, one, other, _clock) = two(UpdatePolicy::Append);
    let mut watch = one.watch().unwrap();
    assert!(watch.is_empty() && watch.is_unchanged());
    watch.add(0, b"a").unwrap();
    other.put(b"b", b"before").unwrap();
    watch.add(0, b"b").unwrap();
    watch.add(5, b"a").unwrap();
    assert!(watch.is_unchanged() && watch.len() == 3);
    // A change counts from the first time on.
    other.put(b"a", b"after").unwrap();
    watch.add(0, b"a").unwrap();
    assert!(!watch.is_unchanged() && watch.len() == 3);
    let none = watch.add(64, b"a");
    assert!(matches!(none, Err(ReadError::NoSuchDatabase(64))));
    watch.add(0, &vec![0; 1 << 17]).unwrap();
}

#[test]
fn nothing_is_counted_when_nobody_watches_and_the_dead_watch_no_more() {
    let (memory, one, other, _clock) = two(UpdatePolicy::Append);
    let noted = watch(&one, b"k");
    let theirs = watch(&other, b"k");
    drop(noted);
    memory.script.kill(2);
    one.reap().unwrap();
    // The dead watcher's note is unchanged, because no thread counts: a dead watcher learns
    // nothing.
    one.put(b"k", b"v").unwrap();
    assert_eq!(theirs.len(), 1);
    std::mem::forget((theirs, other));
    let again = watch(&one, b"k");
    one.put(b"k", b"w").unwrap();
    assert!(!again.is_unchanged());
}

#[test]
fn no_update_is_lost_between_a_watch_and_its_transaction() {
    for policy in POLICIES {
        let (_memory, one, other, _clock) = two(policy);
        const EACH: u64 = 400;
        const THREADS: u64 = 4;
        let number = |value: Option<&[u8]>| {
            value.map_or(0, |v| u64::from_le_bytes(v.try_into().unwrap_or_default()))
        };
        let add = |store: &LogStore| {
            loop {
                let mut watch = store.watch().unwrap();
                watch.add(0, b"sum").unwrap();
                // Read separately, as a client does before MULTI.
                let sum = number(store.get(b"sum").unwrap().as_deref());
                let stored = watch.transaction(|t| t.put(b"sum", &(sum + 1).to_le_bytes()));
                if stored.unwrap().is_some() {
                    return;
                }
            }
        };
        std::thread::scope(|scope| {
            for i in 0..THREADS {
                let store = if i % 2 == 0 { &one } else { &other };
                scope.spawn(move || (0..EACH).for_each(|_| add(store)));
            }
            // Plain writers, of the same key and of others, while the index grows.
            scope.spawn(|| {
                for i in 0..20_000u32 {
                    one.put(&i.to_le_bytes(), b"v").unwrap();
                    if i % 50 == 0 {
                        let more = |v: Option<&[u8]>| {
                            Decision::Replace((number(v) + 1).to_le_bytes().to_vec())
                        };
                        other.update(b"sum", more).unwrap();
                    }
                }
            });
        });
        let sum = number(one.get(b"sum").unwrap().as_deref());
        assert_eq!(sum, THREADS * EACH + 400, "{policy:?}");
        assert_eq!(one.check().unwrap().problems, Vec::<String>::new());
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u8, Option<u8>),
    Remove(u8, u8),
    Expire(u8, u8, u8),
    Transact(u8, Vec<(u8, bool)>),
    Clear(u8),
    Swap(u8, u8),
    Pass(u8),
    Sweep,
    Watch(u8, u8),
    Commit,
}

fn steps() -> impl Strategy<Value = Vec<(bool, Step)>> {
    let (db, key) = (0u8..2, 0u8..4);
    let step = prop_oneof![
        4 => (db.clone(), key.clone(), prop::option::of(1u8..20))
            .prop_map(|(d, k, e)| Step::Put(d, k, e)),
        2 => (db.clone(), key.clone()).prop_map(|(d, k)| Step::Remove(d, k)),
        1 => (db.clone(), key.clone(), 1u8..20).prop_map(|(d, k, e)| Step::Expire(d, k, e)),
        1 => (db.clone(), prop::collection::vec((key.clone(), any::<bool>()), 1..4))
            .prop_map(|(d, w)| Step::Transact(d, w)),
        1 => db.clone().prop_map(Step::Clear),
        1 => (db.clone(), db.clone()).prop_map(|(a, b)| Step::Swap(a, b)),
        1 => (1u8..8).prop_map(Step::Pass),
        1 => Just(Step::Sweep),
        4 => (db, key).prop_map(|(d, k)| Step::Watch(d, k)),
        2 => Just(Step::Commit),
    ];
    prop::collection::vec((any::<bool>(), step), 1..60)
}

/// The content of a database: when each key expires, and which of its changes was the last.
type Records = HashMap<u8, (Option<u64>, u64)>;

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// A watch never reports "unchanged" for a key that was touched since, nor lets a transaction
    /// commit then; and if nothing at all was touched it reports "unchanged".
    #[test]
    fn watches_equal_a_model(in_place in any::<bool>(), steps in steps()) {
        let policy = if in_place { UpdatePolicy::InPlace } else { UpdatePolicy::Append };
        let (_memory, one, other, clock) = two(policy);
        let mut now = NOW;
        let mut model: [Records; 2] = Default::default();
        let (mut version, mut swaps) = (0, 0);
        let mut watch = one.watch().unwrap();
        // Each watched key as it was found at first, and the swaps until then.
        let mut seen: HashMap<(u8, u8), (Option<u64>, u64)> = HashMap::new();
        let mut touched = false;
        for (by_other, step) in steps {
            let store = if by_other { &other } else { &one };
            let db = |d: u8| store.database(usize::from(d)).unwrap();
            version += 1;
            match step {
                Step::Put(d, k, expiry) => {
                    let at = expiry.map(|e| now + u64::from(e));
                    db(d).put_until(&[k], &[d], at.map_or(Expiry::Never, Expiry::At)).unwrap();
                    model[usize::from(d)].insert(k, (at, version));
                    touched = true;
                }
                Step::Remove(d, k) => {
                    db(d).remove(&[k]).unwrap();
                    model[usize::from(d)].remove(&k);
                    touched = true;
                }
                Step::Expire(d, k, e) => {
                    let at = now + u64::from(e);
                    let had = model[usize::from(d)].get(&k).copied();
                    // Setting the present expiry is no change.
                    if db(d).set_expiry(&[k], Expiry::At(at)).unwrap()
                        && had.is_none_or(|(had, _)| had != Some(at))
                    {
                        model[usize::from(d)].insert(k, (Some(at), version));
                    }
                    touched = true;
                }
                Step::Transact(d, writes) => {
                    store.transaction(|t| {
                        let mut on = t.database(usize::from(d))?;
                        for (k, put) in &writes {
                            if *put { on.put(&[*k], b"t")? } else { on.remove(&[*k]).map(drop)? }
                        }
                        Ok::<_, WriteError>(())
                    }).unwrap();
                    for (k, put) in writes {
                        if put {
                            model[usize::from(d)].insert(k, (None, version));
                        } else {
                            model[usize::from(d)].remove(&k);
                        }
                    }
                    touched = true;
                }
                Step::Clear(d) => {
                    db(d).clear().unwrap();
                    model[usize::from(d)].clear();
                    touched = true;
                }
                Step::Swap(a, b) => {
                    store.swap_databases(usize::from(a), usize::from(b)).unwrap();
                    if a != b {
                        model.swap(0, 1);
                        swaps += 1;
                        touched = true;
                    }
                }
                Step::Pass(ms) => {
                    now += u64::from(ms);
                    clock.set_wall_ms(now);
                    for records in &mut model {
                        let before = records.len();
                        records.retain(|_, (at, _)| at.is_none_or(|at| at > now));
                        touched |= records.len() < before;
                    }
                }
                Step::Sweep => touched |= store.remove_expired().unwrap() > 0,
                Step::Watch(d, k) => {
                    watch.add(usize::from(d), &[k]).unwrap();
                    let record = model[usize::from(d)].get(&k).map(|r| r.1);
                    touched &= !seen.is_empty();
                    seen.entry((d, k)).or_insert((record, swaps));
                }
                Step::Commit => {
                    let same = seen.iter().all(|((d, k), noted)| {
                        *noted == (model[usize::from(*d)].get(k).map(|r| r.1), swaps)
                    });
                    let done = watch.transaction(|t| t.put(b"mark", b"x")).unwrap().is_some();
                    prop_assert_eq!(done, store.remove(b"mark").unwrap());
                    prop_assert!(same || !done, "a change was missed");
                    prop_assert!(done || touched, "nothing was touched");
                    watch = one.watch().unwrap();
                    seen.clear();
                }
            }
        }
    }
}
