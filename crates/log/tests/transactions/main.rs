//! Transactions happen at one instant, whatever others do meanwhile, or not at all.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod ahead;
mod own_records;

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use mneme_log::{Cursor, Expiry, Holding, LogStore, Stored, Transaction, UpdatePolicy, WriteError};

fn open() -> LogStore {
    open_with(UpdatePolicy::Append)
}

fn open_with(policy: UpdatePolicy) -> LogStore {
    LogStore::builder()
        .update_policy(policy)
        .capacity(64 << 20)
        .maintainer(false)
        .open_private()
        .unwrap()
}

fn number(stored: Option<Stored<'_>>) -> u64 {
    stored.map_or(0, |s| u64::from_le_bytes(s.value.try_into().unwrap()))
}

fn account(i: u64) -> [u8; 8] {
    (i % ACCOUNTS).to_be_bytes()
}

const ACCOUNTS: u64 = 37;

/// Transfers between accounts by several threads, beside inserts that make the index grow and
/// compaction that moves every record: a read of all accounts at once always finds the same sum.
#[test]
fn the_sum_of_all_accounts_never_changes() {
    transfers(UpdatePolicy::Append);
}

#[test]
fn nor_does_it_where_values_are_overwritten() {
    transfers(UpdatePolicy::InPlace);
}

fn transfers(policy: UpdatePolicy) {
    let store = open_with(policy);
    for i in 0..ACCOUNTS {
        store.put(&account(i), &1_000u64.to_le_bytes()).unwrap();
    }
    let stop = AtomicBool::new(false);
    let sum = |t: &mut Transaction<'_>| {
        (0..ACCOUNTS).try_fold(0, |sum, i| {
            Ok::<_, WriteError>(sum + t.read(&account(i), number)?)
        })
    };
    std::thread::scope(|scope| {
        let movers: Vec<_> = (1..=3u64)
            .map(|seed| {
                let store = &store;
                scope.spawn(move || {
                    let mut random = seed;
                    for _ in 0..1_500 {
                        random = random.wrapping_mul(6364136223846793005).wrapping_add(seed);
                        let (from, to) = (account(random >> 33), account(random >> 45));
                        store
                            .transaction(|t| {
                                let have = t.read(&from, number)?;
                                let amount = have.min(random >> 60);
                                t.put(&from, &(have - amount).to_le_bytes())?;
                                let other = t.read(&to, number)?;
                                t.put(&to, &(other + amount).to_le_bytes())
                            })
                            .unwrap();
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            for i in (0..u64::MAX).take_while(|_| !stop.load(Relaxed)) {
                store
                    .put(&(1_000_000 + i % 20_000).to_be_bytes(), &[0; 300])
                    .unwrap();
                if i % 20_000 == 19_999 {
                    store.compact().unwrap();
                }
            }
        });
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                assert_eq!(store.transaction(sum).unwrap(), ACCOUNTS * 1_000);
            }
        });
        for mover in movers {
            mover.join().unwrap();
        }
        stop.store(true, Relaxed);
    });
    assert_eq!(store.transaction(sum).unwrap(), ACCOUNTS * 1_000);
    assert!(store.check().unwrap().problems.is_empty());
}

/// Two keys are always written together. A thread that reads the first and then the second never
/// finds the second older. Plain reads and scans see no half, even of a transaction that is undone
/// because a page is full.
#[test]
fn plain_readers_see_no_half() {
    let store = open();
    let stop = AtomicBool::new(false);
    let write = |round: u64, extra: u64| {
        store
            .transaction(|t| {
                t.put(b"first", &round.to_le_bytes())?;
                for i in 0..extra {
                    t.put(&(round * 100 + i).to_be_bytes(), b"")?;
                }
                t.put(b"second", &round.to_le_bytes())
            })
            .unwrap();
    };
    write(1, 0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let read = |key| {
                    u64::from_le_bytes(store.get(key).unwrap().unwrap()[..].try_into().unwrap())
                };
                while !stop.load(Relaxed) {
                    let second = read(b"second");
                    let first = read(b"first");
                    assert!(first >= second, "{first} {second}");
                    let first = read(b"first");
                    let second = read(b"second");
                    assert!(second >= first, "{first} {second}");
                }
            });
        }
        for round in 2..2_000 {
            write(round, round % 7 * 5);
            if round % 500 == 0 {
                store
                    .remove_many(&(0..50_000u64).map(u64::to_be_bytes).collect::<Vec<_>>())
                    .unwrap();
            }
        }
        stop.store(true, Relaxed);
    });
    assert!(store.check().unwrap().problems.is_empty());
}

#[test]
fn a_transaction_sees_its_own_writes_and_nobody_else_does() {
    let store = open();
    store.put(b"old", b"1").unwrap();
    store
        .transaction(|t| {
            assert_eq!(t.get(b"new")?, None);
            t.put(b"new", b"a")?;
            t.put(b"new", b"bb")?;
            assert_eq!(t.get(b"new")?.as_deref(), Some(&b"bb"[..]));
            assert!(t.remove(b"old")?);
            assert!(!t.remove(b"old")?);
            assert_eq!(t.get(b"old")?, None);
            t.put_until(b"mortal", b"x", Expiry::At(u64::MAX >> 1))?;
            let expiry = t.read(b"mortal", |s| s.unwrap().expiry)?;
            assert_eq!(expiry, Expiry::At(u64::MAX >> 1));
            let mut other = t.database(9)?;
            assert_eq!(other.get(b"old")?, None);
            other.put(b"old", b"9")?;
            t.put(b"gone", b"")?;
            assert!(t.remove(b"gone")?);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    assert!(store.get(b"new").unwrap().is_none());
                    assert!(store.get(b"old").unwrap().is_some());
                });
            });
            Ok::<_, WriteError>(())
        })
        .unwrap();
    assert_eq!(store.get(b"new").unwrap().unwrap(), b"bb");
    assert!(store.get(b"old").unwrap().is_none());
    assert!(store.get(b"gone").unwrap().is_none());
    assert_eq!(
        store.database(9).unwrap().get(b"old").unwrap().unwrap(),
        b"9"
    );
    assert_eq!((store.len(), store.database(9).unwrap().len()), (2, 1));
}

#[test]
fn one_that_fails_leaves_nothing() {
    let store = open();
    store.put(b"a", b"1").unwrap();
    let failed = store.transaction(|t| {
        t.put(b"a", b"2")?;
        t.put(b"b", &[7; 5 << 20])?;
        t.database(64)?.put(b"c", b"3")
    });
    assert!(matches!(failed, Err(WriteError::NoSuchDatabase(64))));
    let failed = store.transaction(|t| {
        t.put(b"a", b"2")?;
        t.put(&[0; 65_536], b"3")
    });
    assert!(matches!(failed, Err(WriteError::KeyTooLong(65_536))));
    // More than the store holds, though each value would fit.
    let failed =
        store.transaction(|t| (0..200u32).try_for_each(|i| t.put(&i.to_le_bytes(), &[1; 400_000])));
    assert!(
        matches!(failed, Err(WriteError::OutOfMemory { .. })),
        "{failed:?}"
    );
    assert_eq!(store.get(b"a").unwrap().unwrap(), b"1");
    assert_eq!(store.len(), 1);
    store.compact().unwrap();
    let stats = store.stats();
    assert!(stats.live_bytes < 1_000, "{stats:?}");
    // The space that it had taken is free again.
    for i in 0..80u32 {
        store.put(&i.to_le_bytes(), &[1; 500_000]).unwrap();
    }
}

#[test]
fn an_overtaken_transaction_runs_again() {
    let store = open();
    store.put(b"n", &1u64.to_le_bytes()).unwrap();
    let mut runs = 0;
    store
        .transaction(|t| {
            runs += 1;
            let n = t.read(b"n", number)?;
            if runs == 1 {
                store.put(b"n", &10u64.to_le_bytes())?;
            }
            t.put(b"n", &(n + 1).to_le_bytes())
        })
        .unwrap();
    assert_eq!((runs, number_of(&store, b"n")), (2, 11));
    // So does one that found nothing in a database without an index, if there is something now.
    let mut runs = 0;
    store
        .transaction(|t| {
            runs += 1;
            let absent = t.database(5)?.get(b"x")?.is_none();
            if runs == 1 {
                store.database(5).unwrap().put(b"x", b"")?;
            }
            t.put(b"absent", &[u8::from(absent)])
        })
        .unwrap();
    assert_eq!(runs, 2);
    assert_eq!(store.get(b"absent").unwrap().unwrap(), [0]);
    // A change of the expiry counts as a change of the key.
    store
        .put_until(b"e", b"", Expiry::At(u64::MAX >> 1))
        .unwrap();
    let mut runs = 0;
    store
        .transaction(|t| {
            runs += 1;
            t.get(b"e")?;
            if runs == 1 {
                store.set_expiry(b"e", Expiry::At(u64::MAX >> 2))?;
            }
            t.put(b"after", b"")
        })
        .unwrap();
    assert_eq!(runs, 2);
}

fn number_of(store: &LogStore, key: &[u8]) -> u64 {
    store.transaction(|t| t.read(key, number)).unwrap()
}

/// Keys of many buckets in ever different orders, by several threads: no thread waits for ever.
#[test]
fn crossing_transactions_do_not_deadlock() {
    let store = open();
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let store = &store;
            scope.spawn(move || {
                for round in 0..200u32 {
                    let mut keys: Vec<u32> = (0..40).map(|i| (i * 7 + round * 3) % 100).collect();
                    keys.rotate_left((thread * 11) as usize);
                    if thread % 2 == 0 {
                        keys.reverse();
                    }
                    store
                        .transaction(|t| {
                            keys.iter()
                                .try_for_each(|k| t.put(&k.to_le_bytes(), &thread.to_le_bytes()))
                        })
                        .unwrap();
                }
            });
        }
    });
    assert_eq!(store.len(), 100);
}

/// A database is cleared beside transactions that fill it: each is wholly there or wholly gone.
#[test]
fn clearing_is_before_or_after() {
    let store = open();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 0..1_000u32 {
                store
                    .transaction(|t| (0..5u8).try_for_each(|i| t.put(&[i], &round.to_le_bytes())))
                    .unwrap();
            }
        });
        while !writer.is_finished() {
            store.clear().unwrap();
            let (mut seen, mut cursor) = (0, Cursor::START);
            while cursor != Cursor::END {
                cursor = store.scan(cursor, 100, |_, _| seen += 1).unwrap();
            }
            assert!(seen <= 5);
            let all = store.transaction(|t| {
                (0..5u8).try_fold(0, |n, i| {
                    Ok::<_, WriteError>(n + usize::from(t.get(&[i])?.is_some()))
                })
            });
            let all = all.unwrap();
            assert!(all == 0 || all == 5, "{all} of 5");
        }
    });
}

/// The successor of a replaced index page counts versions from the start: a bucket with as many
/// changes as the old one had is not mistaken for it.
#[test]
fn a_bucket_that_was_replaced_is_not_taken_for_the_old_one() {
    for changes in 1..40u32 {
        let store = open_with(UpdatePolicy::InPlace);
        for _ in 0..20 {
            store.put(b"key", &0u64.to_le_bytes()).unwrap();
        }
        let mut runs = 0;
        store
            .transaction(|t| {
                runs += 1;
                let seen = t.read(b"key", number)?;
                if runs == 1 {
                    // Every page of the index is replaced.
                    for i in 0..2_500u32 {
                        store.put(&i.to_be_bytes(), b"")?;
                    }
                    for n in 1..=u64::from(changes) {
                        store.put(b"key", &n.to_le_bytes())?;
                    }
                }
                t.put(b"copy", &seen.to_le_bytes())
            })
            .unwrap();
        assert_eq!(number_of(&store, b"copy"), u64::from(changes));
    }
}

/// What is read as absent was absent at the instant of all other reads, even if other threads added
/// and removed it meanwhile.
#[test]
fn a_record_that_moves_to_and_fro_is_always_found() {
    let store = open();
    store.put(b"here", b"v").unwrap();
    for i in 0..ACCOUNTS {
        store.put(&account(i), b"v").unwrap();
    }
    let stop = AtomicBool::new(false);
    let nowhere = std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0u64.. {
                let places = if n % 2 == 0 {
                    [b"here", b"over"]
                } else {
                    [b"over", b"here"]
                };
                store
                    .transaction(|t| {
                        t.remove(places[0])?;
                        t.put(places[1], b"v")
                    })
                    .unwrap();
                if n % 256 == 0 {
                    // Long enough to read everything.
                    std::thread::sleep(std::time::Duration::from_micros(500));
                }
                if stop.load(Relaxed) {
                    break;
                }
            }
        });
        let look = || {
            let look = |t: &mut Transaction<'_>| {
                let mut found = 0;
                for place in [b"here", b"over"] {
                    found += u32::from(t.get(place)?.is_some());
                    // Enough time, between two reads of the same place, for several moves.
                    for i in 0..8 {
                        t.get(&account(i))?;
                    }
                }
                Ok::<_, WriteError>(found)
            };
            store.transaction(look).unwrap()
        };
        let nowhere = (0..3_000).filter(|_| look() != 1).count();
        stop.store(true, Relaxed);
        nowhere
    });
    assert_eq!(nowhere, 0);
}

/// A body that panics leaves nothing behind, like one that fails.
#[test]
fn a_body_that_panics_gives_back_what_it_has_written() {
    let store = open();
    store.put(b"key", b"v").unwrap();
    let before = store.stats();
    for _ in 0..40 {
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            store.transaction(|t| {
                t.put(b"long", &vec![1; 8 << 20])?;
                t.put(b"key", &[2; 100_000])?;
                panic!("on purpose");
                #[allow(unreachable_code)]
                Ok::<(), WriteError>(())
            })
        }));
        assert!(panicked.is_err());
    }
    store.compact().unwrap();
    store.compact().unwrap();
    assert_eq!(store.stats().live_bytes, before.live_bytes);
    assert!(store.check().unwrap().problems.is_empty());
}

/// A transaction makes the index grow by more blocks than may wait for its own pin.
#[test]
fn a_transaction_fills_an_empty_index() {
    let store = open();
    const MANY: u32 = 600_000;
    store
        .transaction(|t| (0..MANY).try_for_each(|i| t.put(&i.to_be_bytes(), b"v")))
        .unwrap();
    assert_eq!(store.len(), u64::from(MANY));
    assert!(store.check().unwrap().problems.is_empty());
}

/// Unless the thread itself keeps a value: the error says so.
#[test]
fn a_value_that_is_kept_is_in_the_way_of_a_long_transaction() {
    let store = open();
    store.put(b"kept", b"v").unwrap();
    let kept = store.get(b"kept").unwrap();
    let put = |n: u32| store.transaction(|t| (0..n).try_for_each(|i| t.put(&i.to_be_bytes(), b"")));
    let refused = put(600_000);
    assert!(matches!(refused, Err(WriteError::Stalled(s)) if s.what == Holding::OwnPin));
    drop(kept);
    put(600_000).unwrap();
}

/// A record that a transaction stores with an expiry in the past is absent for the transaction,
/// too.
#[test]
fn a_transaction_does_not_see_a_record_that_it_stores_expired() {
    let store = open();
    store.put(b"k", b"old").unwrap();
    let removed = store.transaction(|t| {
        t.put_until(b"k", b"new", Expiry::At(1))?;
        assert_eq!(t.get(b"k")?, None);
        t.remove(b"k")
    });
    assert!(!removed.unwrap());
    assert!(store.get(b"k").unwrap().is_none());
}

#[test]
fn a_body_that_fails_by_what_others_have_changed_meanwhile_runs_again() {
    let store = open();
    let set_both = |value: &[u8]| {
        store.put(b"one", value).unwrap();
        store.put(b"two", value).unwrap();
    };
    set_both(b"old");
    let torn = || WriteError::Reap("the values differ".into());
    for writes in [false, true] {
        set_both(b"old");
        let mut attempts = 0;
        let read = store.transaction(|t| {
            attempts += 1;
            let one = t.get(b"one")?;
            if writes {
                t.put(b"three", b"written")?;
            }
            if attempts == 1 {
                std::thread::scope(|scope| drop(scope.spawn(|| set_both(b"new"))));
            }
            match one == t.get(b"two")? {
                true => Ok(one),
                false => Err(torn()),
            }
        });
        assert_eq!(read.unwrap().as_deref(), Some(&b"new"[..]));
        assert_eq!(attempts, 2);
    }
    // Its own errors are returned at once.
    let mut attempts = 0;
    let failed = store.transaction(|t| {
        attempts += 1;
        t.get(b"one").and_then(|_| Err::<(), _>(torn()))
    });
    assert!(failed.is_err());
    assert_eq!(attempts, 1);
}
