//! Transactions happen at one instant, whatever others do meanwhile, or not at all.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use mneme_log::{
    Cursor, Decision, Expiry, Holding, LogStore, Stored, Transaction, UpdatePolicy, WriteError,
};
use mneme_sys::ManualClock;

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
/// compaction that moves every record: a look at all accounts at once always finds one sum.
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
/// finds the second older. Plain reads and scans see no half, even of a transaction that is taken
/// back because a segment is full.
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
    // What it had taken is free again.
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
    // So is one that found nothing where there is something now, in a database without an index.
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
    // An expiry that was changed counts as a change of the key.
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

/// Keys of many buckets in ever other orders, by several threads: nobody waits for ever.
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

/// An index segment that is replaced begins to count versions anew: a bucket with as many changes
/// as the old one had is not taken for it.
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
                    // Every segment of the index is replaced.
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
fn what_moves_to_and_fro_is_never_seen_to_be_nowhere() {
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
                    // Long enough to look at everything.
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
                    // Time enough, between two looks at the same place, for several moves.
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

/// A body that panics leaves nothing behind, as one that fails does.
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

/// A transaction makes the index grow further than may wait for its own pin.
#[test]
fn a_transaction_fills_an_empty_index() {
    let store = open();
    const MANY: u32 = 200_000;
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
    let refused = put(200_000);
    assert!(matches!(refused, Err(WriteError::Stalled(s)) if s.what == Holding::OwnPin));
    drop(kept);
    put(200_000).unwrap();
}

/// What a transaction stores with an expiry that is over is absent to itself too.
#[test]
fn what_it_stores_with_an_expiry_that_is_over_it_does_not_see() {
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

const HOT: u64 = 64;
/// Runs of a body whose keys others change all the time: sixteen that conflict, and one under
/// locks, if the index keeps its shape meanwhile.
const RUNS: u32 = 20;

/// Adds one to each of the numbers under `HOT` keys, in one transaction, and says how often its
/// body ran.
fn add_to_all(store: &LogStore, mut between: impl FnMut(u32)) -> u32 {
    let mut runs = 0;
    let added = store.transaction(|t| {
        runs += 1;
        if runs > 10 * RUNS {
            return Err(WriteError::NoSuchDatabase(usize::MAX));
        }
        for i in 0..HOT {
            let number = t.read(&i.to_be_bytes(), number)?;
            t.put(&i.to_be_bytes(), &(number + 1).to_le_bytes())?;
        }
        between(runs);
        Ok(())
    });
    assert!(added.is_ok(), "{runs} runs");
    runs
}

/// A store whose writers find free space, so that bodies run anew only because of what others
/// change. Its time stands still: a body that runs for long on a busy machine keeps its locks, and
/// no wait for one fails.
fn hot(policy: UpdatePolicy) -> LogStore {
    let store = LogStore::builder()
        .update_policy(policy)
        .capacity(512 << 20)
        .clock(Arc::new(ManualClock::new(1, 1_000_000)))
        .open_private()
        .unwrap();
    for i in 0..HOT {
        store.put(&i.to_be_bytes(), &0u64.to_le_bytes()).unwrap();
    }
    store
}

/// In each run of its body another thread changes what it has read, if it can.
#[test]
fn a_transaction_that_is_overtaken_each_time_commits_in_the_end() {
    for policy in [UpdatePolicy::Append, UpdatePolicy::InPlace] {
        let store = &hot(policy);
        let (ask, asked) = std::sync::mpsc::channel::<u32>();
        let (say, said) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for run in asked {
                    let key = (u64::from(run) % HOT).to_be_bytes();
                    store
                        .update(&key, |old| Decision::Replace(old.unwrap().to_vec()))
                        .unwrap();
                    store.put(&key, &7u64.to_le_bytes()).unwrap();
                    let _ = say.send(run);
                }
            });
            let runs = add_to_all(store, |run| {
                ask.send(run).unwrap();
                // While it holds locks the other cannot, and reports late. The first runs hold
                // none.
                let limit = Duration::from_millis(if run <= 2 { 60_000 } else { 100 });
                while matches!(said.recv_timeout(limit), Ok(done) if done != run) {}
            });
            assert!(runs > 2 && runs <= RUNS, "{policy:?}: {runs} runs");
            // One that only reads.
            let mut runs = 0;
            let sum = store.transaction(|t| {
                runs += 1;
                assert!(runs <= RUNS, "{runs} runs");
                let mut sum = 0;
                for i in 0..HOT {
                    sum += t.read(&i.to_be_bytes(), number)?;
                }
                ask.send(runs).unwrap();
                while matches!(said.recv_timeout(Duration::from_millis(100)), Ok(done) if done != runs) {}
                Ok::<_, WriteError>(sum)
            });
            assert!(sum.unwrap() > 0);
            drop(ask);
        });
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    }
}

/// Three writers at full speed on the same keys, and two transactions that cross.
#[test]
fn writers_without_pause_starve_no_transaction() {
    for policy in [UpdatePolicy::Append, UpdatePolicy::InPlace] {
        let store = &hot(policy);
        let done = &AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                scope.spawn(move || {
                    let mut i = thread;
                    while !done.load(Relaxed) {
                        i += 7;
                        store
                            .put(&(i % HOT).to_be_bytes(), &i.to_le_bytes())
                            .unwrap();
                    }
                });
            }
            let many = |_| {
                for _ in 0..10 {
                    // Two that lock ahead stand in each other's way at most as often as they begin
                    // anew.
                    let runs = add_to_all(store, |_| std::thread::yield_now());
                    assert!(runs <= 2 * RUNS, "{policy:?}: {runs} runs");
                }
            };
            let others: Vec<_> = (0..2).map(|i| scope.spawn(move || many(i))).collect();
            others.into_iter().for_each(|other| {
                let ended = other.join();
                if ended.is_err() {
                    done.store(true, Relaxed);
                }
                ended.unwrap();
            });
            done.store(true, Relaxed);
        });
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    }
}

/// What is not locked ahead is read without locks: no two transactions wait for each other.
#[test]
fn a_body_that_reads_other_keys_than_before_gives_its_locks_up() {
    for policy in [UpdatePolicy::Append, UpdatePolicy::InPlace] {
        let store = &hot(policy);
        let crossing = |first: u64| {
            let mut runs = 0;
            store
                .transaction(|t| {
                    runs += 1;
                    // Others each time, of which the other transaction has locked some.
                    for i in 0..HOT {
                        let key = ((first + i * 7 + runs * 5) % HOT).to_be_bytes();
                        let number = t.read(&key, number)?;
                        if i < 8 {
                            t.put(&key, &(number + 1).to_le_bytes())?;
                        }
                    }
                    std::thread::yield_now();
                    Ok::<_, WriteError>(())
                })
                .unwrap();
        };
        std::thread::scope(|scope| {
            for thread in 0..3 {
                scope.spawn(move || (0..200).for_each(|i| crossing(thread * 20 + i)));
            }
        });
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    }
}

/// Its locks are gone by then, which were its own: that it had them is no reason to begin anew, or
/// it would for ever.
#[test]
fn what_was_read_under_locks_that_were_given_up_counts() {
    for policy in [UpdatePolicy::Append, UpdatePolicy::InPlace] {
        let store = &hot(policy);
        let expiry = Expiry::At(u64::MAX >> 1);
        store.put_until(b"first", b"0", expiry).unwrap();
        let mut runs = 0;
        let read = store.transaction(|t| {
            runs += 1;
            if runs > 2 * RUNS {
                return Err(WriteError::NoSuchDatabase(usize::MAX));
            }
            t.get(b"first")?;
            // Another each time.
            t.get(&u64::from(runs).to_be_bytes())?;
            match runs {
                1..=16 => store.put_until(b"first", &runs.to_le_bytes(), expiry),
                _ => Ok(()),
            }
        });
        assert!(read.is_ok() && runs <= RUNS, "{policy:?}: {runs} runs");
    }
}

/// Runs `body` in a transaction that has locked `key` ahead: whose first runs were all overtaken.
fn locked_ahead(store: &LogStore, key: &[u8], mut body: impl FnMut() -> Result<(), WriteError>) {
    let mut runs = 0;
    let done = store.transaction(|t| {
        runs += 1;
        t.get(key)?;
        t.put(key, b"mine")?;
        match runs {
            1..=16 => store.put_until(key, b"another's", Expiry::At(u64::MAX >> 1)),
            _ => body(),
        }
    });
    done.unwrap();
    assert!(runs > 16);
}

/// A thread that adds and removes keys also changes the index' shape, in the body of a transaction
/// too. The transaction keeps its locks.
#[test]
fn a_change_of_shape_in_the_body_of_one_that_locks_ahead_leaves_its_locks() {
    // Time stands still until it is locked: it would unlock after 200 ms.
    let clock = &Arc::new(ManualClock::new(1, 1_000_000));
    let builder = LogStore::builder().capacity(64 << 20).maintainer(false);
    let store = &builder.clock(clock.clone()).open_private().unwrap();
    let others = 0..6_000u32;
    for i in others.clone() {
        store.put(&i.to_le_bytes(), b"").unwrap();
    }
    let ended = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        locked_ahead(store, b"key", || {
            scope.spawn(move || {
                while !ended.load(Relaxed) {
                    clock.advance_ms(10);
                    std::thread::yield_now();
                }
            });
            for i in others.clone() {
                match store.remove(&i.to_le_bytes()) {
                    // Of the same bucket.
                    Ok(_) | Err(WriteError::Stalled(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            let put = || store.put(b"key", b"lost");
            let refused = std::thread::scope(|s| s.spawn(put).join().unwrap());
            assert!(
                matches!(refused, Err(WriteError::Stalled(_))),
                "{refused:?}"
            );
            Ok(())
        });
        ended.store(true, Relaxed);
    });
    assert_eq!(store.get(b"key").unwrap().as_deref(), Some(&b"mine"[..]));
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

/// A call that the body makes after it has run for so many milliseconds.
type Call = (u64, fn(&mut Transaction<'_>) -> Result<(), WriteError>);

/// After `call` a writer of a key that the transaction has named does not wait for its body. What
/// the body has read by then counts as read without locks.
fn unlocks(policy: UpdatePolicy, (after_ms, call): Call) {
    let clock = Arc::new(ManualClock::new(1, 1_000_000));
    let builder = LogStore::builder().capacity(256 << 20).maintainer(false);
    let store = builder.update_policy(policy).clock(clock.clone());
    let store = &store.open_private().unwrap();
    store.put(b"key", b"before").unwrap();
    store.put(b"large", &vec![7; 20 << 20]).unwrap();
    let mut seen = Vec::new();
    std::thread::scope(|scope| {
        let keys = ["key", "other", "large"].map(|key| (0, key.as_bytes()));
        let done = store.transaction_on(&keys, |t| {
            seen.push(t.get(b"key")?.unwrap());
            if seen.len() == 1 {
                clock.advance_ms(after_ms);
                call(t)?;
                let (written, is_written) = std::sync::mpsc::channel();
                scope.spawn(move || {
                    store.put(b"key", b"neighbour's").unwrap();
                    let _ = written.send(());
                });
                let waited = is_written.recv_timeout(Duration::from_secs(60));
                assert!(
                    waited.is_ok(),
                    "{policy:?}: the neighbour waits for the body"
                );
            }
            t.put(b"other", seen.last().unwrap())
        });
        done.unwrap();
    });
    assert_eq!(seen, [&b"before"[..], b"neighbour's"], "{policy:?}");
    let other = store.get(b"other").unwrap();
    assert_eq!(other.as_deref(), Some(&b"neighbour's"[..]), "{policy:?}");
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_long_body_does_not_hold_up_the_writers_of_its_keys() {
    let calls: [Call; 6] = [
        (200, |t| t.get(b"key").map(|_| ())),
        (200, |t| t.put(b"other", b"v")),
        (200, |t| t.remove(b"absent").map(|_| ())),
        (200, |t| t.database(3)?.get(b"elsewhere").map(|_| ())),
        // To copy a large value takes long too.
        (150, |t| t.get(b"large").map(|_| ())),
        (150, |t| t.put(b"other", &vec![7; 20 << 20])),
    ];
    for policy in [UpdatePolicy::Append, UpdatePolicy::InPlace] {
        calls.into_iter().for_each(|call| unlocks(policy, call));
    }
}

/// It would wait for itself.
#[test]
fn one_that_only_reads_in_the_body_of_one_that_locks_ahead_is_answered() {
    let store = open();
    locked_ahead(&store, b"key", || {
        let read = store.transaction(|t| t.get(b"key"))?;
        assert_eq!(read.as_deref(), Some(&b"another's"[..]));
        Ok(())
    });
}

/// A transaction whose keys the caller names runs once, however often others change them.
#[test]
fn one_whose_keys_are_named_runs_once_beside_writers_without_pause() {
    for policy in [UpdatePolicy::Append, UpdatePolicy::InPlace] {
        // Time stands still: however long a run takes on this machine, it is no long one.
        let clock = Arc::new(ManualClock::new(1, 1_000_000));
        let builder = LogStore::builder().capacity(64 << 20).update_policy(policy);
        let store = builder.clock(clock).open_private().unwrap();
        store.put(b"from", &[0; 100]).unwrap();
        store.database(5).unwrap().put(b"there", b"v").unwrap();
        let ended = AtomicBool::new(false);
        std::thread::scope(|s| {
            s.spawn(|| {
                for i in (0..=u8::MAX).cycle() {
                    if ended.load(Relaxed) {
                        break;
                    }
                    store.put(b"from", &[i; 100]).unwrap();
                    store.put(b"to", &[i; 10]).unwrap();
                }
            });
            for _ in 0..100 {
                let keys = [(0, b"from".as_slice()), (0, b"to"), (5, b"elsewhere")];
                let mut runs = 0;
                let moved = store.transaction_on(&keys, |t| {
                    runs += 1;
                    let value = t.get(b"from")?.unwrap();
                    // Long enough for the writer to come by.
                    (0..50).for_each(|_| std::thread::yield_now());
                    t.put(b"to", &value)?;
                    let mut other = t.database(5)?;
                    other.get(b"elsewhere")?;
                    other.put(b"elsewhere", &value)
                });
                moved.unwrap();
                assert_eq!(runs, 1);
            }
            ended.store(true, Relaxed);
        });
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    }
}

/// That a key was absent is no less true once the transaction has made a bucket for it.
#[test]
fn one_that_makes_the_first_bucket_of_what_it_has_read_runs_once() {
    let store = LogStore::builder().capacity(64 << 20).open_private();
    let store = store.unwrap();
    for i in 0..50u32 {
        let mut runs = 0;
        let done = store.transaction(|t| {
            runs += 1;
            let mut t = t.database(i as usize % 4)?;
            assert_eq!(t.get(&i.to_le_bytes())?, None);
            t.put(&i.to_le_bytes(), b"v")
        });
        done.unwrap();
        assert_eq!(runs, 1, "{i}");
    }
}

/// The notes on a hundred keys of one database fit the thread's own space: no frame is claimed.
#[cfg(feature = "fault")]
#[test]
fn one_of_a_hundred_named_keys_claims_no_frame_for_its_notes() {
    let store = open();
    let claims = || {
        let passed = mneme_sys::fault::passed().into_iter();
        let claims = passed.filter(|(place, _)| place.starts_with("arena.claim"));
        claims.map(|(_, times)| times).sum::<u64>()
    };
    let claimed_by = |keys: u32, more: u32| {
        let keys: Vec<_> = (0..keys + more).map(u32::to_le_bytes).collect();
        let named = &keys[..keys.len() - more as usize];
        let named: Vec<_> = named.iter().map(|key| (0, key.as_slice())).collect();
        let all = |t: &mut Transaction<'_>| keys.iter().try_for_each(|key| t.put(key, b"w"));
        // The index is as large as it must be then.
        store.transaction_on(&named, all).unwrap();
        let before = claims();
        store.transaction_on(&named, all).unwrap();
        claims() - before
    };
    assert_eq!(claimed_by(100, 0), 0);
    assert_eq!(claimed_by(100, 5), 0);
    assert_ne!(claimed_by(1000, 0), 0);
    assert_ne!(claimed_by(100, 1000), 0);
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}
