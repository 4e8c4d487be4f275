//! Transactions of very many keys, for which the index has to grow.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use mneme_log::{Evict, Expiry, LogStore, UpdatePolicy, WriteError};
use mneme_sys::ManualClock;

/// More index blocks are retired than may wait for readers, one of which is the transaction. It is
/// abandoned once or twice for that, not once for each few blocks, and does not leave as many
/// copies of what it stores.
#[test]
fn a_long_transaction_runs_few_times() {
    const KEYS: u32 = 400_000;
    let builder = LogStore::builder().capacity(512 << 20).maintainer(false);
    let store = builder.open_private().unwrap();
    for round in 0..2u32 {
        let mut runs = 0;
        store
            .transaction(|t| {
                runs += 1;
                (0..KEYS).try_for_each(|i| t.put(&(i + round * KEYS).to_le_bytes(), b"value"))?;
                Ok::<_, WriteError>(())
            })
            .unwrap();
        assert!(runs <= 3, "round {round}: it ran {runs} times");
    }
    assert_eq!(store.len(), 2 * u64::from(KEYS));
    for i in (0..2 * KEYS).step_by(1000) {
        assert_eq!(&*store.get(&i.to_le_bytes()).unwrap().unwrap(), b"value");
    }
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

/// Present keys need no new space in the index, however many they are.
#[test]
fn a_long_transaction_over_present_keys_leaves_the_index_as_it_is() {
    const KEYS: u32 = 100_000;
    let builder = LogStore::builder().capacity(256 << 20).maintainer(false);
    let store = builder.open_private().unwrap();
    let put_all = |value: &[u8]| {
        store.transaction(|t| (0..KEYS).try_for_each(|i| t.put(&i.to_le_bytes(), value)))
    };
    put_all(b"first").unwrap();
    let before = store.stats().index_bytes;
    put_all(b"second").unwrap();
    assert_eq!(store.stats().index_bytes, before);
    assert_eq!(store.len(), u64::from(KEYS));
}

/// Removals by other threads do not shrink the index again that has just grown for it.
#[test]
fn a_long_transaction_commits_beside_removals() {
    const KEYS: u32 = 50_000;
    let builder = LogStore::builder().capacity(256 << 20).maintainer(false);
    let store = builder.open_private().unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for i in 0..2000u16 {
                    store.put(&i.to_le_bytes(), b"v").unwrap();
                    store.remove(&i.to_le_bytes()).unwrap();
                }
            }
        });
        let mut runs = 0;
        let result = store.transaction(|t| {
            runs += 1;
            (0..KEYS).try_for_each(|i| t.put(&i.to_le_bytes(), b"value"))?;
            Ok::<_, WriteError>(())
        });
        done.store(true, Ordering::Relaxed);
        result.unwrap();
        // It was some hundreds, and was refused then.
        assert!(runs <= 20, "it ran {runs} times");
    });
    assert_eq!(store.len(), u64::from(KEYS));
}

/// The space that it needs is freed before it begins again. If it were freed bit by bit, each run
/// would leave as much behind as it had found.
#[test]
fn a_long_transaction_finds_space_in_a_store_that_has_dead_records() {
    for (share, keys) in [(4, 50_000), (2, 100_000)] {
        let builder = LogStore::builder().capacity(64 << 20).maintainer(false);
        let store = builder.open_private().unwrap();
        let put = |i: u32| store.put(&i.to_le_bytes(), &[7; 1000]);
        let stored = (0..).take_while(|i| put(*i).is_ok()).count() as u32;
        for i in (0..stored).step_by(share) {
            assert!(store.remove(&i.to_le_bytes()).unwrap());
        }
        let mut runs = 0;
        let result = store.transaction(|t| {
            runs += 1;
            let mut all = 1 << 30..(1 << 30) + keys;
            all.try_for_each(|i: u32| t.put(&i.to_le_bytes(), b"value"))?;
            Ok::<_, WriteError>(())
        });
        assert!(result.is_ok(), "{keys} keys, 1/{share} removed: {result:?}");
        assert!(runs <= 8, "{keys} keys, 1/{share} removed: {runs} runs");
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    }
}

/// The time of its body does not count as time of a vain search for space. In a store that may
/// evict, all of the space is freed at once.
#[test]
fn a_long_transaction_with_a_slow_body_finds_space_in_a_store_that_evicts() {
    const KEYS: u32 = 100_000;
    let clock = Arc::new(ManualClock::new(1, 1_000_000));
    let builder = LogStore::builder().capacity(64 << 20).maintainer(false);
    let builder = builder.evict(Evict::Lru).clock(clock.clone());
    let store = builder.open_private().unwrap();
    for i in 0..70_000u32 {
        store.put(&i.to_le_bytes(), &[7; 1000]).unwrap();
    }
    let mut runs = 0;
    let result = store.transaction(|t| {
        runs += 1;
        clock.advance_ms(11_000);
        let mut all = 1 << 30..(1 << 30) + KEYS;
        all.try_for_each(|i: u32| t.put(&i.to_le_bytes(), b"value"))?;
        Ok::<_, WriteError>(())
    });
    assert!(result.is_ok(), "{runs} runs: {result:?}");
    assert!(runs <= 8, "it ran {runs} times");
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

/// The index grew for a transaction that does not commit: it shrinks again.
#[test]
fn a_long_transaction_that_does_not_happen_leaves_the_index_small() {
    const KEYS: u32 = 200_000;
    let builder = LogStore::builder().capacity(256 << 20).maintainer(false);
    let store = builder.open_private().unwrap();
    for i in 0..1000u32 {
        store.put(&i.to_le_bytes(), b"there").unwrap();
    }
    let before = store.stats();
    let mut runs = 0;
    let result = store.transaction(|t| {
        runs += 1;
        (1000..KEYS).try_for_each(|i| t.put(&i.to_le_bytes(), b"value"))?;
        match runs {
            1 => Ok(()),
            _ => Err(WriteError::ReadOnly),
        }
    });
    assert!(matches!(result, Err(WriteError::ReadOnly)), "{result:?}");
    assert_eq!(runs, 2);
    let after = store.stats();
    assert!(
        after.index_used_bytes <= 4 * before.index_used_bytes,
        "{} bytes, {} afterwards",
        before.index_used_bytes,
        after.index_used_bytes
    );
    assert_eq!(store.len(), 1000);
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

/// A long-running reader delays that shrinking, and makes no thread wait.
#[test]
fn a_long_transaction_that_does_not_happen_waits_for_no_reader() {
    const KEYS: u32 = 200_000;
    let builder = LogStore::builder().capacity(256 << 20).maintainer(false);
    let store = builder.open_private().unwrap();
    store.put(b"read", b"value").unwrap();
    let (begin, begins) = mpsc::channel();
    let (begun, has_begun) = mpsc::channel();
    let (end, ends) = mpsc::channel();
    let store = &store;
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            begins.recv().unwrap();
            let _value = store.get(b"read").unwrap().unwrap();
            begun.send(()).unwrap();
            // At most a minute, if the end is not signalled.
            ends.recv_timeout(Duration::from_secs(60)).is_ok()
        });
        let mut runs = 0;
        let result = store.transaction(|t| {
            runs += 1;
            (0..KEYS).try_for_each(|i| t.put(&i.to_le_bytes(), b"value"))?;
            if runs == 1 {
                return Ok(());
            }
            begin.send(()).unwrap();
            has_begun.recv().unwrap();
            Err(WriteError::ReadOnly)
        });
        assert!(matches!(result, Err(WriteError::ReadOnly)), "{result:?}");
        end.send(()).unwrap();
        assert!(reader.join().unwrap(), "it waited for the reader");
    });
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

/// A long-running reader delays a transaction that needs space no longer than any other change,
/// however large the transaction is and however long its body takes. The error names the reader.
#[test]
fn a_transaction_that_a_reader_keeps_from_space_names_the_reader() {
    for (values, bytes, takes, most) in [
        (1, 1 << 20, 0, 100),
        (400, 1000, 50, 100),
        (1, 100_000, 0, u32::MAX),
    ] {
        let builder = LogStore::builder().capacity(64 << 20).maintainer(false);
        let store = builder.evict(Evict::Lru).open_private().unwrap();
        let fill = |i: u32| store.put(&i.to_le_bytes(), &[7; 1000]);
        (0..70_000).try_for_each(fill).unwrap();
        let (begun, has_begun) = mpsc::channel();
        let (end, ends) = mpsc::channel::<()>();
        let store = &store;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let _value = store.get(&69_999u32.to_le_bytes()).unwrap().unwrap();
                begun.send(()).unwrap();
                // Until the other has ended, successfully or not.
                let _ = ends.recv();
            });
            has_begun.recv().unwrap();
            let refused = (70_000..).try_for_each(fill);
            assert!(
                matches!(refused, Err(WriteError::Stalled(_))),
                "{refused:?}"
            );
            let mut runs = 0;
            let result = store.transaction(|t| {
                runs += 1;
                std::thread::sleep(Duration::from_millis(takes));
                (0..values).try_for_each(|i: u32| t.put(&i.to_le_bytes(), &vec![8; bytes]))
            });
            drop(end);
            assert!(matches!(result, Err(WriteError::Stalled(_))), "{result:?}");
            assert!(runs <= most, "{values} values: it ran {runs} times");
        });
    }
}

/// The space of other threads' removals beside it is freed after it has committed.
#[test]
fn removals_beside_a_long_transaction_leave_the_index_small() {
    const KEYS: u32 = 200_000;
    let used = |beside: bool| {
        let builder = LogStore::builder().capacity(256 << 20).maintainer(false);
        let store = builder.open_private().unwrap();
        for i in 0..KEYS {
            store.put(&i.to_le_bytes(), b"v").unwrap();
        }
        let remove_all = || (0..KEYS).all(|i| store.remove(&i.to_le_bytes()).unwrap());
        let mut runs = 0;
        store
            .transaction(|t| {
                runs += 1;
                (KEYS..KEYS + KEYS / 4).try_for_each(|i| t.put(&i.to_le_bytes(), b"value"))?;
                if beside && runs == 2 {
                    std::thread::scope(|scope| assert!(scope.spawn(remove_all).join().unwrap()));
                }
                Ok::<_, WriteError>(())
            })
            .unwrap();
        assert!(runs >= 2, "the index did not grow for it");
        assert!(beside || remove_all());
        assert_eq!(store.len(), u64::from(KEYS / 4));
        store.stats().index_used_bytes
    };
    let (beside, alone) = (used(true), used(false));
    assert!(beside <= alone * 5 / 4, "{beside} bytes, alone {alone}");
}

/// A record that it reads expires in each attempt. Others find it absent, and none of these
/// attempts commits. In the end readers wait for it.
#[test]
fn a_transaction_revives_nothing_that_others_have_found_expired() {
    for policy in [UpdatePolicy::Append, UpdatePolicy::InPlace] {
        let clock = Arc::new(ManualClock::new(1, 1_000));
        let builder = LogStore::builder().capacity(64 << 20).maintainer(false);
        let builder = builder.update_policy(policy).clock(clock.clone());
        let store = builder.open_private().unwrap();
        for i in 0..100u32 {
            let expiry = Expiry::At(1_001 + u64::from(i));
            store.put_until(&i.to_le_bytes(), b"v", expiry).unwrap();
        }
        let (mut runs, mut revived, mut found) = (0, 0u32, None);
        std::thread::scope(|scope| {
            let mut waiting = None;
            let done = store.transaction(|t| {
                runs += 1;
                let mut live = Vec::new();
                for i in 0..100u32 {
                    if t.get(&i.to_le_bytes())?.is_some() {
                        live.push(i);
                    }
                }
                // A read before the transaction's own sees what it would see without the
                // transaction.
                revived = live[0];
                assert!(store.get(&revived.to_le_bytes()).unwrap().is_some());
                assert!(store.contains(&revived.to_le_bytes()).unwrap());
                t.put(&revived.to_le_bytes(), b"revived")?;
                clock.advance_ms(1);
                let (store, key) = (&store, revived.to_le_bytes());
                let read = move || store.get(&key).unwrap().map(|v| v.to_vec());
                let reader = scope.spawn(read);
                match runs {
                    // While readers do not wait, they find that.
                    ..=16 => found = reader.join().unwrap(),
                    _ => waiting = Some(reader),
                }
                Ok::<_, WriteError>(())
            });
            done.unwrap();
            if let Some(waiting) = waiting {
                found = waiting.join().unwrap();
            }
        });
        assert_eq!(
            found.as_deref(),
            Some(&b"revived"[..]),
            "{policy:?}, {runs} runs"
        );
        assert_eq!(runs, 17, "{policy:?}");
        assert_eq!(
            &*store.get(&revived.to_le_bytes()).unwrap().unwrap(),
            b"revived"
        );
        assert!(store.check().unwrap().is_sound());
    }
}

/// Nothing expires in the middle of an attempt: neither what it has stored, nor what it has read,
/// which would differ between two reads.
#[test]
fn time_stands_still_within_a_transaction() {
    for policy in [UpdatePolicy::Append, UpdatePolicy::InPlace] {
        let clock = Arc::new(ManualClock::new(1, 1_000_000));
        let builder = LogStore::builder().capacity(64 << 20).maintainer(false);
        let builder = builder.update_policy(policy).clock(clock.clone());
        let store = builder.open_private().unwrap();
        store
            .put_until(b"old", b"v", Expiry::At(1_000_005))
            .unwrap();
        let mut looks = Vec::new();
        store
            .transaction(|t| {
                let now = t.wall_ms();
                t.put_until(b"new", b"v", Expiry::At(now + 5))?;
                let before = t.get(b"old")?;
                clock.advance_ms(10);
                looks.push([before, t.get(b"old")?].map(|value| value.is_some()));
                assert!(t.get(b"new")?.is_some());
                assert_eq!(t.wall_ms(), now);
                Ok::<_, WriteError>(())
            })
            .unwrap();
        // It had expired when the first attempt was to commit.
        assert_eq!(looks, [[true; 2], [false; 2]], "{policy:?}");
        assert_eq!(store.get(b"new").unwrap(), None);
        // One that only reads behaves in the same way.
        store
            .put_until(b"old", b"v", Expiry::At(1_000_025))
            .unwrap();
        looks.clear();
        store
            .transaction(|t| {
                let before = t.get(b"old")?;
                clock.advance_ms(10);
                looks.push([before, t.get(b"old")?].map(|value| value.is_some()));
                Ok::<_, WriteError>(())
            })
            .unwrap();
        assert_eq!(looks, [[true; 2], [false; 2]], "{policy:?}, reading");
    }
}
