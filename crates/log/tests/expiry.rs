//! Records that expire are absent from that time on, for every reader, whatever was done to them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use mneme_log::{Cursor, Decision, Expiry, LogStore, UpdatePolicy, Updated};
use mneme_sys::ManualClock;

fn open(maintainer: bool) -> (LogStore, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(1, 1_000));
    let store = LogStore::builder()
        .capacity(64 << 20)
        .clock(clock.clone())
        .maintainer(maintainer)
        .open_private()
        .unwrap();
    (store, clock)
}

#[test]
fn an_expired_record_is_absent_to_every_operation() {
    let (store, clock) = open(false);
    let keys: Vec<Vec<u8>> = (0..40u8).map(|i| vec![i]).collect();
    for key in &keys {
        store.put_until(key, b"v", Expiry::At(2_000)).unwrap();
    }
    clock.set_wall_ms(1_999);
    assert!(store.get(&keys[0]).unwrap().is_some());
    clock.set_wall_ms(2_000);
    assert!(store.get(&keys[0]).unwrap().is_none());
    assert_eq!(store.expiry(&keys[0]).unwrap(), None);
    assert!(!store.set_expiry(&keys[0], Expiry::Never).unwrap());
    store
        .get_many(&keys, |_, value| assert!(value.is_none()))
        .unwrap();
    let seen = |_: &[u8], _: &[u8]| panic!("an expired record was scanned");
    assert_eq!(store.scan(Cursor::START, 100, seen).unwrap(), Cursor::END);
    assert!(!store.remove(&keys[1]).unwrap());
    assert_eq!(store.remove_many(&keys[2..4]).unwrap(), 0);
    let updated = store.update(&keys[4], |old| {
        assert!(old.is_none());
        Decision::Replace(b"new".to_vec())
    });
    assert_eq!(updated.unwrap(), Updated::Inserted);
    // It did not inherit the old record's expiry.
    assert_eq!(store.expiry(&keys[4]).unwrap(), Some(Expiry::Never));
    store.put(&keys[5], b"new").unwrap();
    assert_eq!(store.get(&keys[5]).unwrap().unwrap(), b"new");
    store.remove_expired().unwrap();
    assert_eq!(store.len(), 2);
}

#[test]
fn an_idle_stores_expired_records_go_away_by_themselves() {
    let (store, clock) = open(true);
    for database in [0, 7] {
        let database = store.database(database).unwrap();
        for i in 0..20_000u32 {
            let expiry = Expiry::At(2_000 + u64::from(i % 3));
            database.put_until(&i.to_le_bytes(), b"v", expiry).unwrap();
        }
        database.put(b"stays", b"v").unwrap();
    }
    clock.set_wall_ms(3_000);
    let begin = Instant::now();
    while store.len() + store.database(7).unwrap().len() > 2 {
        assert!(begin.elapsed() < Duration::from_secs(60), "{}", store.len());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(store.check().unwrap().problems.is_empty());
}

#[test]
fn setting_the_expiry_of_a_long_value_copies_nothing() {
    let (store, clock) = open(false);
    let long = vec![7; 100_000];
    store.put(b"long", &long).unwrap();
    let address = store.get(b"long").unwrap().unwrap().as_ptr();
    assert!(store.set_expiry(b"long", Expiry::At(5_000)).unwrap());
    let value = store.get(b"long").unwrap().unwrap();
    assert_eq!(value.as_ptr(), address);
    drop(value);
    assert_eq!(store.expiry(b"long").unwrap(), Some(Expiry::At(5_000)));
    assert!(store.set_expiry(b"long", Expiry::Never).unwrap());
    clock.set_wall_ms(6_000);
    assert_eq!(store.get(b"long").unwrap().unwrap(), long);
}

#[test]
fn compaction_keeps_the_expiry_and_drops_what_has_expired() {
    let (store, clock) = open(false);
    let value = vec![1; 1000];
    for round in 0..3u64 {
        for i in 0..10_000u32 {
            let expiry = if i % 2 == 0 { 2_000 } else { 9_000 };
            let expiry = Expiry::At(expiry + round);
            store.put_until(&i.to_le_bytes(), &value, expiry).unwrap();
        }
    }
    clock.set_wall_ms(4_000);
    assert!(store.compact().unwrap() > 0);
    for i in 0..10_000u32 {
        let expected = (i % 2 == 1).then_some(Expiry::At(9_002));
        assert_eq!(store.expiry(&i.to_le_bytes()).unwrap(), expected);
    }
    store.remove_expired().unwrap();
    assert_eq!(store.len(), 5_000);
    assert!(store.check().unwrap().problems.is_empty());
}

/// A change of the expiry while compaction is copying the record is not lost.
#[test]
fn an_expiry_set_while_records_move_stays() {
    let (store, _clock) = open(false);
    let value = vec![1; 500];
    let keys = 8_000u32;
    for i in 0..keys {
        store
            .put_until(&i.to_le_bytes(), &value, Expiry::At(5_000))
            .unwrap();
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..4u32 {
                // Every other record dies, so that the others are worth moving.
                for i in 0..keys {
                    store.put(&(keys + i).to_le_bytes(), &value).unwrap();
                    if i % 4 == round {
                        store.remove(&(keys + i).to_le_bytes()).unwrap();
                    }
                }
                store.compact().unwrap();
            }
        });
        for round in 0..20u64 {
            for i in 0..keys {
                let at = Expiry::At(10_000 + round);
                assert!(store.set_expiry(&i.to_le_bytes(), at).unwrap());
            }
            for i in 0..keys {
                let at = Some(Expiry::At(10_000 + round));
                assert_eq!(store.expiry(&i.to_le_bytes()).unwrap(), at);
            }
        }
    });
}

/// A closure that panics, or that uses the store, blocks no other thread.
#[test]
fn a_closure_that_panics_leaves_nothing_locked() {
    let (store, _clock) = open(false);
    store.put_until(b"k", b"v", Expiry::At(5_000)).unwrap();
    let decide = |_| -> Option<Expiry> { panic!("on purpose") };
    let run = std::panic::AssertUnwindSafe(|| store.update_expiry(b"k", decide));
    assert!(std::panic::catch_unwind(run).is_err());
    store.put_until(b"k", b"w", Expiry::At(6_000)).unwrap();
    let updated = store.update_expiry(b"k", |now| {
        assert_eq!(now, store.expiry(b"k").unwrap().unwrap());
        Some(Expiry::At(7_000))
    });
    assert_eq!(updated.unwrap(), Updated::Replaced);
    assert_eq!(store.expiry(b"k").unwrap(), Some(Expiry::At(7_000)));
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

/// Records with an expiry are counted exactly, whatever becomes of them, and the sweep finds their
/// mean time.
#[test]
fn records_with_an_expiry_are_counted_through_every_kind_of_change() {
    for policy in [UpdatePolicy::Append, UpdatePolicy::InPlace] {
        let clock = Arc::new(ManualClock::new(1, 1_000));
        let store = LogStore::builder()
            .capacity(64 << 20)
            .clock(clock.clone())
            .update_policy(policy)
            .maintainer(false)
            .open_private()
            .unwrap();
        let check = |what: &str, records: u64, expiring: u64| {
            let seen = store.keyspace().unwrap();
            let seen = (seen.records, seen.expiring);
            assert_eq!(seen, (records, expiring), "{policy:?}: {what}");
            let problems = store.check().unwrap().problems;
            assert_eq!(problems, Vec::<String>::new(), "{policy:?}: {what}");
        };
        let soon = Expiry::At(5_000);
        store.put(b"a", b"1").unwrap();
        check("stored", 1, 0);
        store.put_until(b"b", b"1", soon).unwrap();
        check("stored with an expiry", 2, 1);
        store.put_until(b"b", b"2", Expiry::At(7_000)).unwrap();
        check("stored with another", 2, 1);
        store.put(b"b", b"3").unwrap();
        check("stored without one", 2, 0);
        assert!(store.set_expiry(b"b", soon).unwrap());
        check("given one", 2, 1);
        assert!(store.set_expiry(b"b", Expiry::Never).unwrap());
        check("persistent", 2, 0);
        assert!(store.set_expiry(b"b", soon).unwrap());
        let until = |expiry| move |_: Option<&[u8]>| Decision::ReplaceUntil(b"4".to_vec(), expiry);
        store.update(b"c", until(soon)).unwrap();
        check("updated to be new", 3, 2);
        let replace = |_: Option<&[u8]>| Decision::Replace(b"5".to_vec());
        store.update(b"c", replace).unwrap();
        check("updated, with what it had", 3, 2);
        store.update(b"c", until(Expiry::Never)).unwrap();
        check("updated to stay", 3, 1);
        store.put_many(&[(b"b", b"x"), (b"d", b"x")]).unwrap();
        check("stored in a batch", 4, 0);
        store
            .transaction(|t| {
                t.put_until(b"a", b"2", soon)?;
                t.put_until(b"b", b"2", soon)?;
                t.put_until(b"e", b"2", soon)?;
                t.put(b"b", b"3")?;
                t.remove(b"d").map(drop)
            })
            .unwrap();
        check("changed at once", 4, 2);
        assert!(store.remove(b"a").unwrap());
        check("removed", 3, 1);
        store.swap_databases(0, 3).unwrap();
        check("swapped", 0, 0);
        store.swap_databases(0, 3).unwrap();
        check("swapped again", 3, 1);
        clock.set_wall_ms(5_000);
        check("expired", 3, 1);
        store.remove_expired().unwrap();
        check("swept", 2, 0);
        store.put_until(b"f", b"2", Expiry::At(9_000)).unwrap();
        store.clear().unwrap();
        check("cleared", 0, 0);
    }
}

#[test]
fn the_mean_time_to_live_is_sampled_and_goes_by() {
    let (store, clock) = open(false);
    let ttl = || {
        store
            .keyspace()
            .unwrap()
            .mean_ttl
            .map(|ttl| ttl.as_millis())
    };
    for i in 0..1_000u32 {
        let at = 101_000 + 1_000 * u64::from(i % 2);
        store
            .put_until(&i.to_le_bytes(), b"v", Expiry::At(at))
            .unwrap();
        store.put(&(i + 5_000).to_le_bytes(), b"v").unwrap();
    }
    assert_eq!(ttl(), None);
    store.remove_expired().unwrap();
    let seen = ttl().unwrap();
    assert!((100_400..=100_600).contains(&seen), "{seen}");
    clock.set_wall_ms(51_000);
    assert_eq!(ttl(), Some(seen - 50_000));
    // Changes are seen within a few rounds.
    for i in 0..1_000u32 {
        store
            .set_expiry(&i.to_le_bytes(), Expiry::At(351_000))
            .unwrap();
    }
    for _ in 0..6 {
        store.remove_expired().unwrap();
    }
    let seen = ttl().unwrap();
    assert!((285_000..=300_000).contains(&seen), "{seen}");
    clock.set_wall_ms(351_000);
    store.remove_expired().unwrap();
    assert_eq!((store.len(), ttl()), (1_000, None));
}
