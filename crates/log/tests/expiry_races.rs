//! Races between expiry and threads that give a key another expiry, change it, evict it or read it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod memory;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use memory::stopped::Stopped;
use memory::{Memory, POLICIES};
use mneme_log::{Cursor, Decision, Evict, Expiry, LogStore, Patch, UpdatePolicy, Updated};
use mneme_sys::{Clock, SystemClock};

const START: u64 = 1_000_000;

/// A calendar that the test advances. A thread can be stopped before and after it reads it.
struct Calendar(AtomicU64);

impl Clock for Calendar {
    fn now_ns(&self) -> u64 {
        SystemClock.now_ns()
    }

    fn wall_ms(&self) -> u64 {
        mneme_sys::fault!("calendar.before");
        let now = self.0.load(SeqCst);
        mneme_sys::fault!("calendar.behind");
        now
    }
}

fn made(policy: UpdatePolicy) -> (Memory, LogStore, Arc<Calendar>) {
    let clock = Arc::new(Calendar(AtomicU64::new(START)));
    let builder = LogStore::builder()
        .update_policy(policy)
        .clock(clock.clone());
    let (memory, store) = Memory::built(memory::CAPACITY, memory::CAPACITY, builder);
    (memory, store, clock)
}

/// A writer that evicts records with an expiry has chosen one, which then loses its expiry.
fn is_kept(policy: UpdatePolicy, loses_its_expiry: fn(&LogStore)) {
    let (memory, store, _) = made(policy);
    let far = Expiry::At(START + 1_000_000_000);
    store.put_until(b"precious", b"value", far).unwrap();
    store.set_eviction(Evict::ExpiringSoonest).unwrap();
    let others = memory.open(2);
    let stopped = Stopped::at("evict.chosen", 1, move || {
        // Nothing else may be evicted: in the end the writer is refused.
        (0u32..)
            .find(|i| store.put(&i.to_le_bytes(), &[7; 90_000]).is_err())
            .unwrap()
    });
    loses_its_expiry(&others);
    let before = others.get(b"precious").unwrap().unwrap().to_vec();
    assert_eq!(others.expiry(b"precious").unwrap(), Some(Expiry::Never));
    stopped.finish();
    let now = others.get(b"precious").unwrap().map(|v| v.to_vec());
    assert_eq!(now, Some(before), "{policy:?}");
}

#[test]
fn a_record_that_lost_its_expiry_after_it_was_chosen_is_not_evicted() {
    for policy in POLICIES {
        is_kept(policy, |others| {
            assert!(others.set_expiry(b"precious", Expiry::Never).unwrap());
        });
        is_kept(policy, |others| others.put(b"precious", b"other").unwrap());
    }
}

fn retimes(store: &LogStore) {
    store.set_expiry(b"k", Expiry::Never).unwrap();
}

fn updates(store: &LogStore) {
    let changed = store.update(b"k", |old| match old {
        Some(_) => Decision::ReplaceUntil(vec![2; 100], Expiry::Never),
        None => Decision::Keep,
    });
    changed.unwrap();
}

/// A thread that changes a key only if it is present is stopped at the `nth` passage of `place`.
/// The key expires meanwhile. If others then find it absent, it stays absent, whether the thread
/// continues or dies. Returns false if the thread does not pass `place` that often.
fn stays_absent(
    policy: UpdatePolicy,
    (place, nth): (&'static str, u64),
    dies: bool,
    changes: fn(&LogStore),
) -> bool {
    let (memory, store, clock) = made(policy);
    let soon = Expiry::At(START + 10);
    store.put_until(b"k", &[1; 100], soon).unwrap();
    let others = memory.open(2);
    let Some(stopped) = Stopped::try_at(place, nth, move || changes(&store)) else {
        return false;
    };
    clock.0.store(START + 20, SeqCst);
    // The calls of others may also fail because the thread stalls.
    let there = others.get(b"k").map(|v| v.is_some());
    let contained = others.contains(b"k");
    if dies {
        memory.script.kill(1);
        std::mem::forget(stopped);
        others.reap().unwrap();
    } else {
        stopped.finish();
    }
    let now = others.get(b"k").unwrap().is_some();
    for seen in [there, contained] {
        assert!(
            !now || !matches!(seen, Ok(false)),
            "{policy:?}, passage {nth} of {place}, dies: {dies}: it lives again"
        );
    }
    assert_eq!(others.check().unwrap().problems, Vec::<String>::new());
    true
}

#[test]
fn a_record_found_expired_does_not_live_again() {
    for policy in POLICIES {
        for changes in [retimes, updates] {
            let looks = (1..)
                .take_while(|nth| stays_absent(policy, ("calendar.behind", *nth), false, changes))
                .count();
            assert!(looks >= 2, "before and under the lock: {looks}");
        }
    }
}

#[test]
fn a_record_found_expired_stays_absent_after_a_death() {
    use UpdatePolicy::{Append, InPlace};
    let (expected, announced) = (("log.expected", 1), ("log.change.announced", 1));
    for dies in [false, true] {
        assert!(stays_absent(Append, announced, dies, retimes));
        assert!(stays_absent(InPlace, announced, dies, retimes));
        assert!(stays_absent(InPlace, announced, dies, updates));
        assert!(stays_absent(Append, expected, dies, updates));
    }
}

/// A way to read a key: returns whether it finds it.
type Finds = fn(&LogStore) -> bool;

/// A reader is stopped at its `nth` look at the calendar. Meanwhile the key loses its expiry, and
/// then the time of the old expiry comes. Returns false if the reader does not look that often.
fn is_found(policy: UpdatePolicy, len: usize, nth: u64, (name, reads): (&str, Finds)) -> bool {
    let (memory, store, clock) = made(policy);
    let soon = Expiry::At(START + 10);
    store.put_until(b"k", &vec![1; len], soon).unwrap();
    let others = memory.open(2);
    let Some(stopped) = Stopped::try_at("calendar.before", nth, move || reads(&store)) else {
        return false;
    };
    assert!(others.set_expiry(b"k", Expiry::Never).unwrap());
    clock.0.store(START + 20, SeqCst);
    assert!(
        stopped.finish(),
        "{policy:?}, {len} bytes: {name}, look {nth}"
    );
    true
}

#[test]
fn a_key_that_was_never_absent_is_not_said_to_be() {
    let reads: [(&str, Finds); 12] = [
        ("get", |store| store.get(b"k").unwrap().is_some()),
        ("contains", |store| store.contains(b"k").unwrap()),
        ("expiry", |store| store.expiry(b"k").unwrap().is_some()),
        ("get_into", |store| {
            store.get_into(b"k", &mut Vec::new()).unwrap()
        }),
        ("read_part", |store| {
            store
                .read_part(b"k", |_| 0..8, |part| part.is_some())
                .unwrap()
        }),
        ("update_expiry", |store| {
            store.update_expiry(b"k", |_| None).unwrap() != Updated::Absent
        }),
        ("scan", |store| {
            let mut found = false;
            let visit = |key: &[u8], value: &[u8]| found |= key == b"k" && value[0] == 1;
            store.scan(Cursor::START, 10, visit).unwrap();
            found
        }),
        ("scan_keys", |store| {
            let mut found = false;
            let visit = |key: &[u8]| found |= key == b"k";
            store.scan_keys(Cursor::START, 10, visit).unwrap();
            found
        }),
        ("update that keeps", |store| {
            let mut found = false;
            let kept = store.update(b"k", |old| {
                found = old.is_some();
                Decision::Keep
            });
            kept.unwrap() == Updated::Kept && found
        }),
        ("update that removes", |store| {
            store.update(b"k", |_| Decision::Remove).unwrap() == Updated::Removed
        }),
        ("update_part", |store| {
            let mut found = false;
            let kept = store.update_part(
                b"k",
                |_| 0..8,
                |part| {
                    found = part.is_some();
                    Patch::Keep
                },
            );
            kept.unwrap() == Updated::Kept && found
        }),
        ("transaction", |store| {
            store.transaction(|t| t.get(b"k")).unwrap().is_some()
        }),
    ];
    for policy in POLICIES {
        // The second is long: a part of it is read and changed in place.
        for len in [100, 20_000] {
            for reads in reads {
                // Its next look is under the lock of the key's bucket, so that no other thread can
                // change it.
                let most = if reads.0 == "update that removes" {
                    1
                } else {
                    u64::MAX
                };
                let looks = (1..=most)
                    .take_while(|nth| is_found(policy, len, *nth, reads))
                    .count();
                assert!(looks >= 1, "{}", reads.0);
            }
        }
    }
}
