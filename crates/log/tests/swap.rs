//! Swapping two databases: at one instant, for all threads, whatever happens in them meanwhile.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use mneme_log::{
    Cursor, DATABASES, Database, Decision, Expiry, LogStore, UpdatePolicy, Updated, WriteError,
};

fn open(policy: UpdatePolicy) -> LogStore {
    LogStore::builder()
        .capacity(64 << 20)
        .update_policy(policy)
        .open_private()
        .unwrap()
}

fn sound(store: &LogStore) {
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

#[test]
fn all_that_a_database_holds_moves() {
    for policy in [UpdatePolicy::Append, UpdatePolicy::InPlace] {
        let store = open(policy);
        let db = |i| store.database(i).unwrap();
        let end = Expiry::At(u64::MAX >> 8);
        for i in 0..1000u32 {
            db(3).put_until(&i.to_le_bytes(), b"three", end).unwrap();
        }
        db(63).put(b"key", b"sixty-three").unwrap();
        store.swap_databases(3, 63).unwrap();
        assert_eq!((db(3).len(), db(63).len()), (1, 1000));
        assert_eq!(db(3).get(b"key").unwrap().unwrap(), b"sixty-three");
        assert_eq!(db(63).expiry(&7u32.to_le_bytes()).unwrap(), Some(end));
        assert!(db(63).remove(&7u32.to_le_bytes()).unwrap());
        // With itself; with one that was never used; three in a circle.
        store.swap_databases(63, 63).unwrap();
        store.swap_databases(3, 0).unwrap();
        store.swap_databases(0, 63).unwrap();
        assert_eq!((db(0).len(), db(3).len(), db(63).len()), (999, 0, 1));
        // Clearing applies to the database, wherever its content came from.
        db(0).clear().unwrap();
        store.compact().unwrap();
        assert_eq!(db(63).get(b"key").unwrap().unwrap(), b"sixty-three");
        assert_eq!((db(0).len(), store.stats().records), (0, 1));
        assert!(matches!(
            store.swap_databases(0, DATABASES),
            Err(WriteError::NoSuchDatabase(DATABASES))
        ));
        sound(&store);
    }
}

#[test]
fn a_value_that_is_kept_holds_it_up_and_nothing_happens() {
    let store = &open(UpdatePolicy::Append);
    store.put(b"key", b"zero").unwrap();
    store.database(5).unwrap().put(b"key", b"five").unwrap();
    let kept = store.database(5).unwrap().get(b"key").unwrap();
    // The thread itself, and another one.
    let own = store.swap_databases(0, 1);
    assert!(matches!(own, Err(WriteError::Stalled(_))), "{own:?}");
    std::thread::scope(|s| {
        let other = s.spawn(move || store.swap_databases(0, 1));
        // The thread that keeps the value does not wait for the swappers that wait for its pin,
        // whatever it does.
        while !other.is_finished() {
            assert_eq!(store.get(b"key").unwrap().unwrap(), b"zero");
            store.transaction(|t| t.put(b"other", b"zero")).unwrap();
        }
        let refused = other.join().unwrap();
        assert!(
            matches!(refused, Err(WriteError::Stalled(_))),
            "{refused:?}"
        );
    });
    assert_eq!(store.len(), 2);
    assert_eq!(kept.as_deref(), Some(&b"five"[..]));
    drop(kept);
    store.swap_databases(0, 1).unwrap();
    assert!(store.is_empty());
    sound(store);
}

const KEYS: u64 = 200;

fn key(i: u64) -> [u8; 8] {
    (i % KEYS).to_le_bytes()
}

/// A value names the space in which it was stored, and how often it was incremented.
fn value(space: u64, raised: u64) -> Vec<u8> {
    [space.to_le_bytes(), raised.to_le_bytes()].concat()
}

fn read(value: &[u8]) -> (u64, u64) {
    let word = |i: usize| u64::from_le_bytes(value[i..i + 8].try_into().unwrap());
    (word(0), word(8))
}

fn raise(value: &[u8]) -> Vec<u8> {
    let (space, raised) = read(value);
    self::value(space, raised + 1)
}

/// The single space that all values of the database name.
fn space_of_all(db: Database<'_>) -> u64 {
    let mut spaces = Vec::new();
    let mut cursor = Cursor::START;
    while cursor != Cursor::END {
        let visit = |_: &[u8], v: &[u8]| spaces.push(read(v).0);
        cursor = db.scan(cursor, 50, visit).unwrap();
    }
    spaces.dedup();
    assert_eq!(spaces.len(), 1, "one space in a database");
    spaces[0]
}

/// Increments values one by one, in both databases at once, and by setting an expiry; reads them
/// one by one, in batches and in steps of a scan.
fn work(store: &LogStore, seed: u64, done: &AtomicBool, raised: &AtomicU64) {
    let mut i = seed;
    while !done.load(Relaxed) {
        i = i.wrapping_mul(6364136223846793005).wrapping_add(seed | 1);
        let n = i >> 33;
        let db = store.database((n % 2) as usize).unwrap();
        match n / 2 % 6 {
            0 | 1 => {
                let decide = |old: Option<&[u8]>| Decision::Replace(raise(old.unwrap()));
                assert_eq!(db.update(&key(n), decide).unwrap(), Updated::Replaced);
                raised.fetch_add(1, Relaxed);
            }
            2 => {
                let body = |t: &mut mneme_log::Transaction<'_>| {
                    let [zero, one] = [0, 1].map(|db| {
                        std::thread::yield_now();
                        let mut t = t.database(db)?;
                        let old = t.get(&key(n))?.unwrap();
                        t.put(&key(n), &raise(&old))?;
                        Ok::<_, WriteError>(read(&old).0)
                    });
                    assert_ne!(zero?, one?, "two databases, two spaces");
                    Ok::<_, WriteError>(())
                };
                store.transaction(body).unwrap();
                raised.fetch_add(2, Relaxed);
            }
            3 => {
                let end = Expiry::At((u64::MAX >> 8) + n);
                assert!(db.set_expiry(&key(n), end).unwrap());
            }
            4 => {
                let keys: Vec<_> = (n..n + 20).map(key).collect();
                let mut spaces = Vec::new();
                db.get_many(&keys, |_, v| spaces.push(read(v.unwrap()).0))
                    .unwrap();
                spaces.dedup();
                assert_eq!(spaces.len(), 1, "a batch of one instant's database");
            }
            _ => {
                let mut spaces = Vec::new();
                let visit = |_: &[u8], v: &[u8]| spaces.push(read(v).0);
                db.scan(Cursor::START, 50, visit).unwrap();
                spaces.dedup();
                assert_eq!(spaces.len(), 1, "a step of one instant's database");
                assert_eq!(db.len(), KEYS);
            }
        }
    }
}

#[test]
fn no_operation_is_half_in_one_space_and_half_in_the_other() {
    for policy in [UpdatePolicy::Append, UpdatePolicy::InPlace] {
        let store = &open(policy);
        for space in 0..2 {
            let db = store.database(space as usize).unwrap();
            (0..KEYS).for_each(|i| db.put(&key(i), &value(space, 0)).unwrap());
        }
        let (done, raised) = (&AtomicBool::new(false), &AtomicU64::new(0));
        let swaps = std::thread::scope(|s| {
            for seed in 1..4 {
                s.spawn(move || work(store, seed, done, raised));
            }
            let mut swaps = 0;
            for i in 0..200 {
                // Back and forth, and records move meanwhile.
                match i % 8 {
                    7 => store.compact().map(|_| ()).unwrap(),
                    _ => store.swap_databases(i % 2, 1 - i % 2).unwrap(),
                }
                swaps += u64::from(i % 8 != 7);
            }
            done.store(true, Relaxed);
            swaps
        });
        let db = |i| store.database(i).unwrap();
        assert_eq!(space_of_all(db(0)), swaps % 2);
        assert_eq!(space_of_all(db(1)), 1 - swaps % 2);
        let mut sum = 0;
        for i in 0..KEYS {
            sum += read(&db(0).get(&key(i)).unwrap().unwrap()).1;
            sum += read(&db(1).get(&key(i)).unwrap().unwrap()).1;
        }
        assert_eq!(sum, raised.load(Relaxed), "none is lost");
        assert_eq!((db(0).len(), db(1).len()), (KEYS, KEYS));
        sound(store);
    }
}

/// The sum over the database that is out of service.
fn sum(db: Database<'_>) -> u64 {
    let keys: Vec<_> = (0..KEYS).map(key).collect();
    let mut sum = 0;
    db.get_many(&keys, |_, v| sum += read(v.unwrap()).1)
        .unwrap();
    sum
}

/// One database is in use, the other is prepared to replace it: no operation that began on the
/// first before a swap ends in it after the swap, when it is the other.
#[test]
fn a_database_taken_out_of_service_does_not_change() {
    let store = &open(UpdatePolicy::Append);
    for space in 0..2 {
        let db = store.database(space as usize).unwrap();
        (0..KEYS).for_each(|i| db.put(&key(i), &value(space, 0)).unwrap());
    }
    let (done, spare) = (&AtomicBool::new(false), store.database(1).unwrap());
    std::thread::scope(|s| {
        for seed in 0..3 {
            s.spawn(move || {
                for n in seed.. {
                    let raise = |old: Option<&[u8]>| {
                        if n % 16 == 0 {
                            std::thread::yield_now();
                        }
                        Decision::Replace(raise(old.unwrap()))
                    };
                    store.update(&key(n), raise).unwrap();
                    if done.load(Relaxed) {
                        break;
                    }
                }
            });
        }
        let mut changed = 0;
        for _ in 0..60 {
            store.swap_databases(0, 1).unwrap();
            let before = sum(spare);
            std::thread::yield_now();
            changed += u64::from(sum(spare) != before);
        }
        done.store(true, Relaxed);
        assert_eq!(changed, 0, "times that it changed after it was taken out");
    });
    sound(store);
}

/// A prefetch is a hint: it neither waits nor keeps anything, whatever happens to the database, its
/// index pages and its records meanwhile.
#[test]
fn prefetching_goes_on_beside_swaps_clearings_and_growth() {
    for policy in [UpdatePolicy::Append, UpdatePolicy::InPlace] {
        let store = &open(policy);
        let all: Vec<_> = (0..2000).map(u64::to_le_bytes).collect();
        let done = &AtomicBool::new(false);
        std::thread::scope(|s| {
            for from in 0..2 {
                let all = &all;
                s.spawn(move || {
                    let mut databases = (from..3).cycle();
                    while !done.load(Relaxed) {
                        let database = databases.next().unwrap();
                        store.database(database).unwrap().prefetch_many(all);
                    }
                });
            }
            for round in 0..60 {
                let db = store.database(round % 2).unwrap();
                all.iter().for_each(|key| db.put(key, &[7; 300]).unwrap());
                store.swap_databases(0, 1).unwrap();
                for key in &all[..all.len() / 2] {
                    store.remove(key).unwrap();
                }
                store.database(1).unwrap().clear().unwrap();
            }
            done.store(true, Relaxed);
        });
        sound(store);
    }
}

/// A lookup after a prefetch looks everything up again: a page that was replaced, a record that was
/// replaced or removed since, and another index make no difference.
#[test]
fn changes_after_a_prefetch_are_seen() {
    let store = &open(UpdatePolicy::Append);
    let all: Vec<_> = (0..4000).map(u64::to_le_bytes).collect();
    let (old, new) = all.split_at(all.len() / 2);
    store.prefetch_many(&all);
    for round in 0..3u8 {
        old.iter().for_each(|key| store.put(key, &[round]).unwrap());
        store.prefetch_many(&all);
        // The index grows, and every page with it.
        new.iter().for_each(|key| store.put(key, &[round]).unwrap());
        old[..32].iter().for_each(|key| {
            store.put(key, b"newer").unwrap();
        });
        assert!(store.remove(&old[32]).unwrap());
        let seen = |key: &[u8]| store.get(key).unwrap().map(|value| value.to_vec());
        assert_eq!(seen(&old[0]), Some(b"newer".to_vec()));
        assert_eq!(seen(&old[32]), None);
        assert_eq!(seen(&old[33]), Some(vec![round]));
        assert_eq!(seen(&new[0]), Some(vec![round]));
        store.prefetch_many(&all);
        store.swap_databases(0, 9).unwrap();
        assert_eq!(seen(&old[0]), None);
        store.database(9).unwrap().clear().unwrap();
    }
    sound(store);
}
