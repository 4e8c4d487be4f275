//! A full store that may evict does so, and keeps what is worth keeping.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use mneme_log::{Decision, Evict, Expiry, LogStore, UpdatePolicy, WriteError};
use mneme_sys::Clock;

const CAPACITY: u64 = 64 << 20;

fn open(evict: Evict) -> LogStore {
    open_with(evict, UpdatePolicy::Append, false)
}

fn open_with(evict: Evict, policy: UpdatePolicy, maintainer: bool) -> LogStore {
    LogStore::builder()
        .capacity(CAPACITY)
        .evict(evict)
        .update_policy(policy)
        .maintainer(maintainer)
        .open_private()
        .unwrap()
}

fn key(i: u32) -> [u8; 8] {
    u64::from(i).to_be_bytes()
}

const VALUE: [u8; 1000] = [7; 1000];
/// Three times as many as fit.
const MANY: u32 = 180_000;
const HOT: u32 = 2_000;

/// Fills the store three times over; between two writes `read` reads some keys. Returns the
/// remaining numbers of hot keys and of the others.
fn flood(store: &LogStore, read: impl Fn(u32)) -> (u32, u32) {
    for i in 0..HOT {
        store.put(&key(i), &VALUE).unwrap();
    }
    for i in HOT..MANY {
        store.put(&key(i), &VALUE).unwrap();
        read(i);
    }
    assert!(store.check().unwrap().problems.is_empty());
    let left = |keys: std::ops::Range<u32>| {
        keys.filter(|i| store.get(&key(*i)).unwrap().is_some())
            .count() as u32
    };
    let (hot, others) = loop {
        let before = store.stats().evicted;
        let counted = (left(0..HOT), left(HOT..MANY));
        // A maintainer may still be evicting.
        if store.stats().evicted == before {
            break counted;
        }
    };
    assert_eq!(u64::from(hot + others), store.len());
    assert_eq!(u64::from(MANY) - store.len(), store.stats().evicted);
    // It uses its whole capacity.
    assert!(others > 40_000, "only {others} of the others are left");
    (hot, others)
}

#[test]
fn records_that_are_read_are_kept() {
    for (evict, policy, maintainer) in [
        (Evict::Lru, UpdatePolicy::Append, false),
        (Evict::Lru, UpdatePolicy::InPlace, true),
        (Evict::Lfu, UpdatePolicy::Append, true),
    ] {
        let store = open_with(evict, policy, maintainer);
        let (hot, _) = flood(&store, |i| {
            store.get(&key(i * 7 % HOT)).unwrap();
        });
        assert!(
            hot > HOT * 9 / 10,
            "{evict:?}: only {hot} of {HOT} are left"
        );
    }
}

#[test]
fn records_read_in_batches_are_kept_too() {
    let store = open(Evict::Lru);
    let (hot, _) = flood(&store, |i| {
        if i % 32 == 0 {
            let keys: Vec<_> = (0..32).map(|k| key((i + k) % HOT)).collect();
            store.get_many(&keys, |_, _| ()).unwrap();
        }
    });
    assert!(hot > HOT * 9 / 10, "only {hot} of {HOT} are left");
}

#[test]
fn records_read_in_transactions_are_kept_too() {
    for policy in [UpdatePolicy::Append, UpdatePolicy::InPlace] {
        let store = open_with(Evict::Lru, policy, false);
        let (hot, _) = flood(&store, |i| {
            store.transaction(|t| t.get(&key(i * 7 % HOT))).unwrap();
        });
        assert!(
            hot > HOT * 9 / 10,
            "{policy:?}: only {hot} of {HOT} are left"
        );
    }
}

/// The reads are an update that changes nothing, and setting an expiry.
#[test]
fn records_read_to_be_changed_are_kept_too() {
    for update in [false, true] {
        let name = if update { "update" } else { "set_expiry" };
        let store = open(Evict::Lru);
        let (hot, _) = flood(&store, |i| {
            let key = key(i * 7 % HOT);
            if update {
                store.update(&key, |_| Decision::Keep).unwrap();
            } else {
                store.set_expiry(&key, Expiry::Never).unwrap();
            }
        });
        assert!(hot > HOT * 9 / 10, "{name}: only {hot} of {HOT} are left");
    }
}

/// Overwriting a record in place does not make it younger.
#[test]
fn overwritten_records_are_kept_too() {
    for evict in [Evict::Lru, Evict::Lfu] {
        let store = open_with(evict, UpdatePolicy::InPlace, false);
        let (hot, _) = flood(&store, |i| {
            let key = key(i * 7 % HOT);
            // Reading its expiry does not count as a read.
            if store.expiry(&key).unwrap().is_some() {
                store.put(&key, &[i as u8; 1000]).unwrap();
            }
        });
        assert!(
            hot > HOT * 9 / 10,
            "{evict:?}: only {hot} of {HOT} are left"
        );
    }
}

/// A large value is evicted for another, though a head continues after it.
#[test]
fn a_large_value_makes_way_for_another() {
    let store = open(Evict::Lru);
    for (i, mib) in [30, 28, 30, 25, 40].into_iter().enumerate() {
        store.put(&key(i as u32), &vec![1; mib << 20]).unwrap();
    }
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

/// The twin: without reads the oldest are evicted first.
#[test]
fn unread_records_are_evicted_oldest_first() {
    let store = open(Evict::Lru);
    let (hot, _) = flood(&store, |_| ());
    assert_eq!(hot, 0);
    let newest = MANY - 20_000..MANY;
    assert!(
        newest
            .into_iter()
            .all(|i| store.get(&key(i)).unwrap().is_some())
    );
}

#[test]
fn a_burst_of_once_read_keys_does_not_evict_keys_read_often() {
    let store = open(Evict::Lfu);
    let (hot, _) = flood(&store, |i| {
        // Each key is read once when it is new; the hot ones hundreds of times.
        store.get(&key(i)).unwrap();
        for k in 0..4 {
            store.get(&key((i * 4 + k) % HOT)).unwrap();
        }
    });
    assert!(hot > HOT * 8 / 10, "only {hot} of {HOT} are left");
}

#[test]
fn any_may_go_if_chosen_at_random() {
    let store = open(Evict::Random);
    flood(&store, |_| ());
}

/// However few records have an expiry, all of them are evicted before a write is refused.
#[test]
fn the_last_that_expires_makes_way() {
    for evict in [Evict::ExpiringLru, Evict::ExpiringSoonest] {
        let store = open(evict);
        for database in [0, 7] {
            let db = store.database(database).unwrap();
            for i in 0..100 {
                let far = Expiry::At(u64::MAX / 4 + u64::from(i));
                db.put_until(&key(i), &[7; 20_000], far).unwrap();
            }
        }
        let fit = (1000..).take_while(|i| store.put(&key(*i), &VALUE).is_ok());
        assert!(fit.count() > 40_000);
        let left = [0, 7].map(|database| {
            store
                .database(database)
                .unwrap()
                .keyspace()
                .unwrap()
                .expiring
        });
        assert_eq!(left, [0, 0], "{evict:?}");
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    }
}

/// A clock by which every step of a search for free space takes a while, as for a thread that
/// seldom gets a processor.
struct Starved(AtomicU64);

impl Clock for Starved {
    fn now_ns(&self) -> u64 {
        self.0.fetch_add(300_000_000, Relaxed)
    }

    fn wall_ms(&self) -> u64 {
        1
    }
}

/// No write fails for lack of time while there are records that may be evicted.
#[test]
fn a_thread_that_seldom_runs_evicts_before_it_gives_up() {
    let store = LogStore::builder()
        .capacity(CAPACITY)
        .evict(Evict::ExpiringSoonest)
        .clock(Arc::new(Starved(AtomicU64::new(1))))
        .maintainer(false)
        .open_private()
        .unwrap();
    let far = |i: u32| Expiry::At(u64::MAX / 4 + u64::from(i));
    for i in 0..60_000 {
        let put = store.put_until(&key(i), &VALUE, far(i));
        put.unwrap_or_else(|error| panic!("put {i}: {error}"));
    }
    assert!(store.stats().evicted > 0);
}

/// Only records with an expiry may be evicted: the others stay, and then the store is full.
#[test]
fn records_that_do_not_expire_are_kept() {
    for evict in [
        Evict::ExpiringLru,
        Evict::ExpiringLfu,
        Evict::ExpiringRandom,
        Evict::ExpiringSoonest,
    ] {
        let store = open(evict);
        let far = |i: u32| Expiry::At(u64::MAX / 4 + u64::from(i));
        for i in 0..20_000 {
            store.put(&key(i), &VALUE).unwrap();
        }
        for i in 20_000..100_000 {
            store.put_until(&key(i), &VALUE, far(i)).unwrap();
        }
        for i in 0..20_000 {
            assert!(store.get(&key(i)).unwrap().is_some(), "{evict:?}");
        }
        assert!(store.stats().evicted > 0);
        if evict == Evict::ExpiringSoonest {
            let left = |keys: std::ops::Range<u32>| {
                keys.filter(|i| store.get(&key(*i)).unwrap().is_some())
                    .count()
            };
            let (soon, late) = (left(20_000..40_000), left(80_000..100_000));
            assert!(
                soon * 2 < late,
                "{soon} of the soonest, {late} of the latest"
            );
        }
        // After this only records without an expiry are added, until there is no free space.
        let full = (100_000..MANY).find_map(|i| store.put(&key(i), &VALUE).err());
        assert!(
            matches!(full, Some(WriteError::OutOfMemory { .. })),
            "{evict:?}: {full:?}"
        );
        let expiring = (20_000..100_000).filter(|i| store.get(&key(*i)).unwrap().is_some());
        let expiring = expiring.count();
        assert!(expiring < 100, "{evict:?}: {expiring} that may go are left");
    }
}

#[test]
fn the_policy_can_be_changed_at_any_time() {
    let store = open(Evict::None);
    assert_eq!(store.eviction(), Evict::None);
    let full = (0..MANY).find(|i| store.put(&key(*i), &VALUE).is_err());
    let full = full.expect("the store is full");
    store.set_eviction(Evict::Lru).unwrap();
    for i in full..full + 10_000 {
        store.put(&key(i), &VALUE).unwrap();
    }
    store.set_eviction(Evict::None).unwrap();
    let full = (0..MANY).find_map(|i| store.put(&key(MANY + i), &VALUE).err());
    assert!(matches!(full, Some(WriteError::OutOfMemory { .. })));
}

/// Large values are evicted like others, and their space serves others.
#[test]
fn large_values_are_evicted() {
    let store = open(Evict::Lru);
    for i in 0..100u32 {
        store.put(&key(i), &vec![i as u8; 3 << 20]).unwrap();
    }
    assert!(store.get(&key(99)).unwrap().is_some());
    let oldest = (0..50).filter(|i| store.get(&key(*i)).unwrap().is_some());
    // One of them may have left the rest of its extent to the head.
    assert!(oldest.count() <= 1);
    for i in 0..MANY / 2 {
        store.put(&key(i), &VALUE).unwrap();
    }
    assert!(store.len() > 30_000);
}

/// A value that even an empty store cannot hold makes a full one evict nothing.
#[test]
fn nothing_is_forgotten_for_a_value_that_cannot_fit() {
    let store = open(Evict::Lru);
    for i in 0..MANY / 3 {
        store.put(&key(i), &VALUE).unwrap();
    }
    let (left, evicted) = (store.len(), store.stats().evicted);
    let value = vec![1; CAPACITY as usize];
    let refused = store.put(b"huge", &value);
    assert!(matches!(refused, Err(WriteError::OutOfMemory { .. })));
    let refused = store.transaction(|t| t.put(b"huge", &value));
    assert!(matches!(refused, Err(WriteError::OutOfMemory { .. })));
    assert_eq!((store.len(), store.stats().evicted), (left, evicted));
}

/// A transaction makes a full store evict as any other write does.
#[test]
fn transactions_find_space_as_other_writes_do() {
    for policy in [UpdatePolicy::Append, UpdatePolicy::InPlace] {
        let store = open_with(Evict::Lru, policy, false);
        for i in 0..MANY / 3 {
            store.put(&key(i), &VALUE).unwrap();
        }
        for i in MANY / 3..MANY / 2 {
            store.transaction(|t| t.put(&key(i), &VALUE)).unwrap();
        }
        assert!(store.stats().evicted > 0);
        assert!(store.check().unwrap().problems.is_empty());
    }
}

/// A writer finds nothing to evict at the moment, because other threads are evicting or still
/// reading. It waits for them instead of refusing.
#[test]
fn several_writers_are_never_refused() {
    for (policy, maintainer) in [(UpdatePolicy::Append, false), (UpdatePolicy::InPlace, true)] {
        let store = open_with(Evict::Lfu, policy, maintainer);
        let value = vec![7; 128 << 10];
        std::thread::scope(|scope| {
            for writer in 0..4u32 {
                let (store, value) = (&store, &value);
                scope.spawn(move || {
                    for i in 0..3_000 {
                        let len = value.len() >> (i % 8);
                        store.put(&key(i * 4 + writer), &value[..len]).unwrap();
                    }
                });
            }
        });
        assert!(store.stats().evicted > 0);
        assert!(store.check().unwrap().problems.is_empty());
    }
}
