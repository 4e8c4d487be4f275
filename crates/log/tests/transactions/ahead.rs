//! Transactions whose keys are locked before the body runs: those whose attempts have failed
//! because of other changes, and those whose keys the caller names.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use mneme_log::{Decision, Expiry, LogStore, Transaction, UpdatePolicy, WriteError};
use mneme_sys::ManualClock;

use crate::{number, open};

const HOT: u64 = 64;
/// The number of runs of a body whose keys others change all the time: sixteen that conflict, and
/// one under locks, if the index keeps its shape meanwhile.
const RUNS: u32 = 20;

/// Adds one to each of the numbers under `HOT` keys, in one transaction, and returns how often its
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

/// A store whose writers find free space, so that bodies run again only because of changes by
/// others. Its clock does not advance: a body that runs for long on a busy machine keeps its locks,
/// and no wait for one fails.
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
                // While it holds locks the other cannot do so, and reports late. The first runs
                // hold none.
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
                    // Two that lock ahead block each other at most as often as they begin again.
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

/// Keys that are not locked ahead are read without locks, so no two transactions wait for each
/// other.
#[test]
fn a_body_that_reads_other_keys_than_before_gives_its_locks_up() {
    for policy in [UpdatePolicy::Append, UpdatePolicy::InPlace] {
        let store = &hot(policy);
        let crossing = |first: u64| {
            let mut runs = 0;
            store
                .transaction(|t| {
                    runs += 1;
                    // Others each time, some of which the other transaction has locked.
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

/// Its own locks are gone by then: having had them is no reason to begin again, which would never
/// end.
#[test]
fn reads_under_locks_that_were_released_count() {
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

/// Runs `body` in a transaction that has locked `key` ahead, because its first runs have failed.
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
    // The clock is stopped until it is locked: it would unlock after 200 ms.
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

/// A call that the body makes after it has run for this number of milliseconds.
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
        // Copying a large value takes long too.
        (150, |t| t.get(b"large").map(|_| ())),
        (150, |t| t.put(b"other", &vec![7; 20 << 20])),
    ];
    for policy in [UpdatePolicy::Append, UpdatePolicy::InPlace] {
        calls.into_iter().for_each(|call| unlocks(policy, call));
    }
}

/// Otherwise it would wait for itself.
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
        // The clock is stopped: however long a run takes on this machine, it does not count as
        // long.
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
                    // Long enough for the writer to run.
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

/// A transaction that creates a bucket for a key that it has read as absent does not conflict with
/// itself.
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
        // By then the index is as large as it must be.
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
