//! Waiting for a stopped thread: once, and for as long as it makes no progress.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use mneme_log::{
    ChangeFeed, Evict, Holding, LogStore, ReadError, Transaction, UpdatePolicy, WriteError,
};
use mneme_sys::fault::{self, Action, Outcome};
use mneme_sys::{Clock, ManualClock};

use crate::memory::stopped::{Looked, Stopped};
use crate::memory::{self, Memory};
use crate::{key, sound};

/// A reaper that is stopped in the middle of its work delays a thread that needs the dead one's
/// bucket for a bounded time.
#[test]
fn a_stopped_reaper_is_not_waited_for_without_end() {
    let (memory, store) = Memory::new();
    let outcome = fault::run("log.bucket.locked", Action::Abandon, 1, move || {
        store.put(b"k", b"v").unwrap();
    });
    assert_eq!(outcome, Outcome::Abandoned);
    memory.script.kill(1);
    let second = memory.open(2);
    let stopped = Stopped::at("log.reap.begin", 1, move || second.reap());
    let third = memory.open(3);
    let refused = third.put(b"k", b"w").unwrap_err();
    assert!(matches!(refused, WriteError::Reap(_)), "{refused}");
    stopped.finish().unwrap();
    third.put(b"k", b"w").unwrap();
    sound(&third, "");
}

/// A transaction that has some of its locks and waits for others delays no reader: nothing has
/// changed yet.
#[test]
fn a_transaction_that_waits_for_a_lock_delays_no_reader() {
    // Keys that do not share a bucket.
    let builder = LogStore::builder().entropy([7; 24]);
    let (memory, store) = Memory::built(memory::CAPACITY, memory::CAPACITY, builder);
    for key in [b"outer", b"inner"] {
        store.put(key, b"0").unwrap();
    }
    let theirs = memory.open(2);
    let stopped = Stopped::at("txn.home.locked", 1, move || {
        theirs.transaction(|t| {
            t.put(b"outer", b"1")?;
            t.put(b"inner", b"1")
        })
    });
    for key in [b"outer", b"inner"] {
        assert_eq!(store.get(key).unwrap().as_deref(), Some(&b"0"[..]));
    }
    stopped.finish().unwrap();
    for key in [b"outer", b"inner"] {
        assert_eq!(store.get(key).unwrap().as_deref(), Some(&b"1"[..]));
    }
    sound(&store, "");
}

/// One writer waits its second for a stopped holder; later ones fail at once, until the lock is
/// released.
#[test]
fn only_the_first_waits_for_a_holder_that_is_stopped() {
    let clock = Arc::new(Looked::default());
    let builder = LogStore::builder().clock(clock.clone());
    let (memory, store) = Memory::built(memory::CAPACITY, memory::CAPACITY, builder);
    let theirs = memory.open(2);
    for round in 0..2u8 {
        let holder = memory.open(3 + u32::from(round));
        let stopped = Stopped::at("log.bucket.locked", 1, move || holder.put(b"k", &[round]));
        let looks = || {
            let before = clock.0.load(Relaxed);
            let refused = theirs.put(b"k", b"theirs").unwrap_err();
            assert!(matches!(refused, WriteError::Stalled(_)), "{refused}");
            let refused = theirs.transaction(|t| t.put(b"k", b"theirs")).unwrap_err();
            assert!(matches!(refused, WriteError::Stalled(_)), "{refused}");
            clock.0.load(Relaxed) - before
        };
        let first = looks();
        assert!(first >= 1000, "{first} ms");
        let later = looks();
        assert!(later < 100, "{later} ms");
        stopped.finish().unwrap();
        theirs.put(b"k", b"theirs").unwrap();
    }
    sound(&store, "");
}

/// A stopped swap is waited for only once, wherever it is stopped.
#[test]
fn only_the_first_waits_for_a_swap_that_is_stopped() {
    for place in ["log.swap.marked", "log.swap.alone", "log.swap.storing"] {
        let clock = Arc::new(Looked::default());
        let builder = LogStore::builder().clock(clock.clone());
        let (memory, store) = Memory::built(memory::CAPACITY, memory::CAPACITY, builder);
        store.put(b"k", b"v").unwrap();
        let (theirs, swapper) = (memory.open(2), memory.open(3));
        let stopped = Stopped::at(
            place,
            2 - u64::from(place != "log.swap.marked"),
            move || swapper.swap_databases(0, 9),
        );
        let looks = || {
            let before = clock.0.load(Relaxed);
            let refused = theirs.put(b"k", b"theirs").unwrap_err();
            assert!(matches!(refused, WriteError::Stalled(_)), "{refused}");
            let refused = theirs.get(b"k").map(drop).unwrap_err();
            assert!(matches!(refused, ReadError::Stalled(_)), "{refused}");
            clock.0.load(Relaxed) - before
        };
        let first = looks();
        assert!(first >= 1000, "{place}: {first} ms");
        let later = looks();
        assert!(later < 100, "{place}: {later} ms");
        stopped.finish().unwrap();
        theirs.put(b"k", b"theirs").unwrap();
        sound(&store, "");
    }
}

/// A clock that leaps ahead at its 20th look, as if all threads had been paused. Then the holder
/// continues.
#[derive(Default)]
struct Paused {
    looks: AtomicU64,
    holder: Mutex<Option<Stopped<Result<(), WriteError>>>>,
}

impl Clock for Paused {
    fn now_ns(&self) -> u64 {
        let holder = self.holder.try_lock().ok();
        let holder = holder.and_then(|mut holder| {
            let looks = holder.as_ref().map(|_| self.looks.fetch_add(1, Relaxed));
            looks.and_then(|looks| (looks == 20).then(|| holder.take()).flatten())
        });
        if let Some(holder) = holder {
            holder.finish().unwrap();
        }
        match self.looks.load(Relaxed) > 20 {
            true => 3_600 * 1_000_000_000,
            false => 1,
        }
    }

    fn wall_ms(&self) -> u64 {
        1 << 30
    }
}

/// A pause of the machine, or of the waiter's process, does not count as time that the holder has
/// had.
#[test]
fn a_pause_of_all_is_not_waited_out() {
    for transacts in [false, true] {
        let clock = Arc::new(Paused::default());
        let builder = LogStore::builder().clock(clock.clone());
        let (memory, store) = Memory::built(memory::CAPACITY, memory::CAPACITY, builder);
        let theirs = memory.open(2);
        let stopped = Stopped::at("log.bucket.locked", 1, move || theirs.put(b"k", b"w"));
        *clock.holder.lock().unwrap() = Some(stopped);
        let stored = match transacts {
            true => store.transaction(|t| t.put(b"k", b"v")),
            false => store.put(b"k", b"v"),
        };
        stored.unwrap();
        assert!(clock.holder.lock().unwrap().is_none(), "nobody waited");
        assert_eq!(store.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
    }
}

/// A clock that leaps ahead once it has been given a feed, which it drains some looks later.
struct Leaping {
    looks: AtomicU64,
    feed: Mutex<Option<ChangeFeed>>,
    /// How far it leaps.
    seconds: u64,
    /// The look at which the feed is drained.
    drained: u64,
}

impl Clock for Leaping {
    fn now_ns(&self) -> u64 {
        let mut feed = self.feed.try_lock().ok();
        let Some(feed) = feed.as_mut().and_then(|feed| feed.as_mut()) else {
            return 1;
        };
        let look = self.looks.fetch_add(1, Relaxed);
        if look == self.drained {
            let drained = feed.drain(1 << 30, &mut Vec::new()).unwrap();
            feed.set_durable(drained.end).unwrap();
        }
        // The first look is the one at which a wait begins.
        if look == 0 {
            1
        } else {
            self.seconds * 1_000_000_000
        }
    }

    fn wall_ms(&self) -> u64 {
        1 << 30
    }
}

/// It does not count as time in which nothing of a feed became durable, either. A sync may take
/// some seconds.
#[test]
fn a_pause_of_all_or_a_slow_sync_does_not_end_the_wait_for_a_feed() {
    for (seconds, drained) in [(3_600, 8), (5, 200)] {
        let clock = Arc::new(Leaping {
            looks: AtomicU64::new(0),
            feed: Mutex::new(None),
            seconds,
            drained,
        });
        let builder = LogStore::builder().clock(clock.clone()).change_feed(true);
        let builder = builder.capacity(64 << 20).maintainer(false);
        let store = builder.open_private().unwrap();
        let feed = store.change_feed().unwrap();
        let value = vec![7; 60_000];
        // Too little of the ring is left for three more.
        for _ in 0..(feed.capacity() - (64 << 10)) / 61_000 {
            store.put(b"k", &value).unwrap();
        }
        *clock.feed.lock().unwrap() = Some(feed);
        for _ in 0..3 {
            store.put(b"k", &value).unwrap();
        }
        assert!(clock.looks.load(Relaxed) > drained, "nobody waited");
        drop(clock.feed.lock().unwrap().take());
    }
}

/// The clock is stopped until the test continues: no wait fails before.
fn timed(policy: UpdatePolicy) -> (Memory, LogStore, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(1_000, 1_000_000));
    let builder = LogStore::builder()
        .update_policy(policy)
        .clock(clock.clone());
    let (memory, store) = Memory::built(memory::CAPACITY, memory::CAPACITY, builder);
    store.put(b"k", b"v").unwrap();
    (memory, store, clock)
}

/// Lets a put of a key whose bucket is held wait until it fails.
fn waits_in_vain(store: &LogStore, clock: &ManualClock) {
    std::thread::scope(|scope| {
        let put = scope.spawn(|| store.put(b"k", b"w"));
        while !put.is_finished() {
            clock.advance_ms(100);
            std::thread::yield_now();
        }
        let refused = put.join().unwrap().unwrap_err();
        assert!(matches!(refused, WriteError::Stalled(_)), "{refused}");
    });
}

/// Another opening puts a value while its bucket is held. It waits, and is not refused, until
/// `goes_on` ends that.
fn waits_until(store: &LogStore, goes_on: impl FnOnce()) {
    waits_to_put(store, b"k", goes_on);
}

/// As [`waits_until`], for a key.
fn waits_to_put(store: &LogStore, key: &[u8], goes_on: impl FnOnce()) {
    std::thread::scope(|scope| {
        let (tell, ended) = std::sync::mpsc::channel();
        scope.spawn(move || tell.send(store.put(key, b"x")).unwrap());
        // It has failed by now if it fails at once.
        let early = ended.recv_timeout(Duration::from_millis(100));
        goes_on();
        early.unwrap_or_else(|_| ended.recv().unwrap()).unwrap();
    });
}

/// A thread that held a bucket for too long and then released it unchanged gets a new timeout when
/// it holds it again.
#[test]
fn a_holder_that_released_a_bucket_unchanged_is_waited_for_anew() {
    let (memory, store, clock) = timed(UpdatePolicy::Append);
    let theirs = memory.open(2);
    let (tell, held) = std::sync::mpsc::channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let holder = std::thread::spawn(move || {
        for _ in 0..2 {
            let read = theirs.transaction_on(&[(0, b"k")], |t| {
                t.get(b"k")?;
                tell.send(()).unwrap();
                released.recv().unwrap();
                Ok::<_, WriteError>(())
            });
            read.unwrap();
        }
    });
    held.recv().unwrap();
    waits_in_vain(&store, &clock);
    release.send(()).unwrap();
    held.recv().unwrap();
    waits_until(&store, || release.send(()).unwrap());
    holder.join().unwrap();
}

/// If one reader of a stopped transaction's key has timed out, the next ones do not wait.
#[test]
fn readers_of_a_stopped_transaction_do_not_each_wait_a_second() {
    let (memory, store, clock) = timed(UpdatePolicy::Append);
    let theirs = memory.open(2);
    let stopped = Stopped::at("txn.locked", 1, move || {
        theirs.transaction(|t| t.put(b"k", b"w")).unwrap()
    });
    std::thread::scope(|scope| {
        let first = scope.spawn(|| store.get(b"k").is_err());
        while !first.is_finished() {
            clock.advance_ms(100);
            std::thread::yield_now();
        }
        assert!(first.join().unwrap());
    });
    // The clock is stopped: they would wait for ever.
    for _ in 0..100 {
        assert!(matches!(store.get(b"k"), Err(ReadError::Stalled(_))));
    }
    stopped.finish();
    assert_eq!(store.get(b"k").unwrap().as_deref(), Some(&b"w"[..]));
}

/// If one waiter has timed out on a stopped transaction, that holds for each of its keys, also for
/// readers of a store that overwrites.
#[test]
fn a_stopped_transaction_of_many_keys_is_waited_for_once() {
    for policy in [UpdatePolicy::Append, UpdatePolicy::InPlace] {
        let (memory, store, clock) = timed(policy);
        let theirs = memory.open(2);
        let change = move |value: &'static [u8]| {
            let keys: Vec<[u8; 4]> = (0..64).map(key).collect();
            theirs.transaction(|t| {
                t.put(b"k", value)?;
                keys.iter().try_for_each(|key| t.put(key, value))
            })
        };
        let stopped = Stopped::at("txn.locked", 1, move || {
            change(b"one").unwrap();
            change
        });
        waits_in_vain(&store, &clock);
        // The clock is stopped: they would wait for ever.
        for i in 0..64 {
            let refused = store.put(&key(i), b"v").unwrap_err();
            assert!(matches!(refused, WriteError::Stalled(_)), "{refused}");
            assert!(matches!(store.get(&key(i)), Err(ReadError::Stalled(_))));
            let refused = store.transaction(|t| t.put(&key(i), b"v")).unwrap_err();
            assert!(matches!(refused, WriteError::Stalled(_)), "{refused}");
        }
        // It continues, and gets a new timeout when it is stopped in its next transaction.
        let change = stopped.finish();
        let again = Stopped::at("txn.locked", 1, move || change(b"two").unwrap());
        waits_until(&store, || again.finish());
        for i in 0..64 {
            assert_eq!(store.get(&key(i)).unwrap().as_deref(), Some(&b"two"[..]));
        }
        sound(&store, "");
    }
}

/// If a bucket's stopped holder was killed, waiters wait while another process repairs what it
/// left.
#[test]
fn a_stalled_holder_that_was_killed_is_waited_for_anew() {
    let (memory, store, clock) = timed(UpdatePolicy::Append);
    let dying = memory.open(2);
    let outcome = fault::run("log.bucket.locked", Action::Abandon, 1, move || {
        dying.put(b"k", b"w").unwrap();
    });
    assert_eq!(outcome, Outcome::Abandoned);
    waits_in_vain(&store, &clock);
    memory.script.kill(2);
    let third = memory.open(3);
    let reaper = Stopped::at("log.reap.begin", 1, move || third.reap().unwrap());
    waits_until(&store, || assert_eq!(reaper.finish(), 1));
}

/// A transaction that continues gets a new timeout, even in the phase in which one waiter has timed
/// out.
#[test]
fn a_transaction_that_makes_progress_is_waited_for_anew() {
    for place in ["txn.home.locked", "txn.applied", "txn.unlocked"] {
        let (memory, store, clock) = timed(UpdatePolicy::Append);
        let theirs = memory.open(2);
        let (arrived, at_place) = mpsc::channel();
        let (go_on, released) = mpsc::channel::<()>();
        let released = Mutex::new(released);
        let changing = std::thread::spawn(move || {
            let stop: Arc<dyn Fn() + Send + Sync> = Arc::new(move || {
                arrived.send(()).unwrap();
                let _ = released.lock().unwrap().recv();
            });
            let change = |value: &[u8]| {
                let all = |t: &mut Transaction<'_>| (0..8).try_for_each(|i| t.put(&key(i), value));
                theirs.transaction(all).unwrap();
            };
            change(b"one");
            for nth in [1, 2] {
                fault::arm(place, Action::Call(stop.clone()), nth);
            }
            change(b"two");
            fault::disarm();
        });
        at_place.recv().unwrap();
        let held: Vec<u32> = std::thread::scope(|scope| {
            let puts = scope.spawn(|| {
                let refused = (0..8).filter(|i| store.put(&key(*i), b"x").is_err());
                refused.collect()
            });
            while !puts.is_finished() {
                clock.advance_ms(100);
                std::thread::yield_now();
            }
            puts.join().unwrap()
        });
        // The clock is stopped from here on: it would wait for ever.
        let last = key(*held.last().unwrap());
        store.put(&last, b"x").unwrap_err();
        go_on.send(()).unwrap();
        at_place.recv().unwrap();
        waits_to_put(&store, &last, || go_on.send(()).unwrap());
        changing.join().unwrap();
        sound(&store, place);
    }
}

/// Readers that may not repair what a dead thread has left do not each wait a second for it.
#[test]
fn readers_that_may_only_read_wait_once_for_the_dead() {
    let (memory, store, clock) = timed(UpdatePolicy::Append);
    for i in 0..4 {
        store.put(&key(i), b"v").unwrap();
    }
    let theirs = memory.open(2);
    let outcome = fault::run("txn.locked", Action::Abandon, 1, move || {
        let all = |t: &mut Transaction<'_>| (0..4).try_for_each(|i| t.put(&key(i), b"w"));
        theirs.transaction(all).unwrap();
    });
    assert_eq!(outcome, Outcome::Abandoned);
    memory.script.kill(2);
    let reader = memory.open_to_read(3);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| reader.get(&key(0)).map(drop));
        while !first.is_finished() {
            clock.advance_ms(100);
            std::thread::yield_now();
        }
        let refused = first.join().unwrap();
        assert!(matches!(refused, Err(ReadError::Reap(_))), "{refused:?}");
    });
    // The clock is stopped: they would wait for ever.
    for i in 0..4 {
        assert!(matches!(reader.get(&key(i)), Err(ReadError::Reap(_))));
    }
    assert_eq!(store.reap().unwrap(), 1);
    for i in 0..4 {
        assert_eq!(reader.get(&key(i)).unwrap().as_deref(), Some(&b"v"[..]));
    }
    sound(&store, "");
}

/// A compactor that is stopped without a pin is named by the writers that find no free space: space
/// can be gained, but only with its heads.
#[test]
fn a_stopped_compactor_is_named_by_writers_that_find_no_space() {
    for evict in [Evict::None, Evict::Lru] {
        let clock = Arc::new(Looked::default());
        let builder = LogStore::builder().clock(clock.clone()).evict(evict);
        let (memory, store) = Memory::built(memory::CAPACITY, memory::CAPACITY, builder);
        let theirs = memory.open(2);
        let put = |store: &LogStore, i: u32| store.put(&key(i), &[7; 16_000]);
        let stopped = match evict {
            Evict::None => {
                (0..2400).for_each(|i| put(&store, i).unwrap());
                (0..1200).for_each(|i| assert!(store.remove(&key(2 * i)).unwrap()));
                Stopped::at("compact.claimed", 1, move || {
                    theirs.compact().unwrap();
                })
            }
            _ => Stopped::at("evict.claimed", 1, move || {
                (0..8000).for_each(|i| put(&theirs, i).unwrap());
            }),
        };
        let before = clock.0.load(Relaxed);
        let refused = (10_000..).find_map(|i| put(&store, i).err()).unwrap();
        let took = clock.0.load(Relaxed) - before;
        match refused {
            WriteError::Stalled(stalled) => {
                assert_eq!(stalled.what, Holding::Lock, "{evict:?}: {stalled}");
                assert_eq!(stalled.pid, std::process::id(), "{evict:?}: {stalled}");
            }
            other => panic!("{evict:?}: {other}, after {took} ms"),
        }
        stopped.finish();
        put(&store, 9_000).unwrap();
        sound(&store, "");
    }
}
