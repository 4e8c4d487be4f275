//! Deaths that show only after more than one operation.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod memory;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use memory::stopped::Stopped;
use memory::{Memory, sound};
use mneme_log::{
    Anchor, BRANCH, Decision, Expiry, LogStore, Patch, ReadError, TREE_NUMBERS, Transaction,
    UpdatePolicy, Updated, ValueKind, WriteError, collection_of, leaf_numbers, main_of,
};
use mneme_sys::fault::{self, Action, Outcome};
use mneme_sys::{Clock, CpuId, SyntheticTopology, SystemClock};

fn key(i: u32) -> [u8; 4] {
    i.to_le_bytes()
}

/// The reap releases a head that a dead thread held: its segment is free again once nothing in it
/// is live.
#[test]
fn the_head_of_the_dead_is_given_back() {
    let free_bytes = |dies: bool| {
        let topology = Arc::new(SyntheticTopology::new(1, 2));
        let builder = LogStore::builder().topology(topology.clone());
        // Large enough for two heads.
        let capacity = 4 * memory::CAPACITY;
        let (memory, store) = Memory::built(capacity, capacity, builder);
        // The head continues after it.
        store.put(b"large", &vec![7; 17 << 20]).unwrap();
        let work = move || store.put(&key(0), b"v").unwrap();
        match dies {
            true => memory.abandon(1, "log.reserve.bump", work),
            false => work(),
        }
        let second = memory.open(2);
        topology.run_on(CpuId(1));
        second.reap().unwrap();
        second.remove(b"large").unwrap();
        second.remove(&key(0)).unwrap();
        // Two grace periods.
        for _ in 0..4 {
            second.compact().unwrap();
        }
        second.stats().free_bytes
    };
    assert_eq!(free_bytes(true), free_bytes(false));
}

/// If a dead thread had listed a root for its sweep, it is not swept twice.
#[test]
fn a_database_that_is_cleared_again_after_a_death_is_swept_once() {
    let (memory, store) = Memory::new();
    for i in 0..5000 {
        store.put(&key(i), b"v").unwrap();
    }
    memory.abandon(1, "index.root.listed", move || store.clear().unwrap());
    let store = memory.open(2);
    store.reap().unwrap();
    store.clear().unwrap();
    let sweeper = memory.open(3);
    // An index has 64 partitions here: this would be in the middle of the second sweep.
    let stopped = Stopped::try_at("index.sweep.partition", 70, move || sweeper.compact());
    let one = store.database(1).unwrap();
    for i in 0..5000 {
        one.put(&key(i), b"v").unwrap();
    }
    if let Some(stopped) = stopped {
        stopped.finish().unwrap();
    }
    for i in 0..5000 {
        assert!(one.get(&key(i)).unwrap().is_some(), "{i} is lost");
    }
    sound(&store, "swept");
}

/// A segment is not freed while a dropped index still names its records.
#[test]
fn records_of_a_cleared_database_stay_until_it_is_swept() {
    let (memory, store) = Memory::new();
    for i in 0..20_000 {
        store.put(&key(i), &[1; 1000]).unwrap();
    }
    store.clear().unwrap();
    let theirs = memory.open(2);
    let stopped = Stopped::at("index.sweep.partition", 10, move || theirs.compact());
    let one = store.database(1).unwrap();
    store.compact().unwrap();
    for i in 0..30_000 {
        one.put(&key(i), &[1; 1200]).unwrap();
    }
    stopped.finish().unwrap();
    store.compact().unwrap();
    sound(&store, "cleared");
}

/// The end of a sweep does not free records of an index that was dropped meanwhile, either.
#[test]
fn records_of_a_database_cleared_during_a_sweep_stay() {
    let (memory, store) = Memory::new();
    for i in (0..20_000).chain((0..20_000).step_by(2)) {
        store.put(&key(i), &[1; 1000]).unwrap();
    }
    let other = store.database(1).unwrap();
    other.put(b"k", b"v").unwrap();
    other.clear().unwrap();
    let by_others = |work: fn(&LogStore)| {
        let theirs = memory.open(2);
        Action::Call(Arc::new(move || {
            std::thread::scope(|scope| scope.spawn(|| work(&theirs)).join().unwrap());
        }))
    };
    let clear = by_others(|theirs| {
        theirs.clear().unwrap();
        theirs.compact().unwrap();
    });
    fault::arm("index.sweep.partition", clear, 64);
    let fill = by_others(|theirs| {
        for i in 0..10_000 {
            let two = theirs.database(2).unwrap();
            two.put(&key(i), &[2; 1200]).unwrap();
        }
    });
    fault::arm("log.free.released", fill, 8);
    let before = fault::reached();
    store.compact().unwrap();
    assert_eq!(fault::reached(), before + 2);
    let live = store.stats().live_bytes;
    assert!(live >= 10_000 * 1_200, "{live}");
    sound(&store, "cleared");
}

/// A writer that needs a change of shape finds a dead thread's bucket in the way and repairs it.
#[test]
fn a_bucket_of_the_dead_does_not_stop_the_growth_of_its_segment() {
    let (memory, store) = Memory::new();
    for i in 0..3000 {
        store.put(&key(i), b"v").unwrap();
    }
    memory.abandon(1, "log.bucket.locked", move || {
        store.put(&key(7), b"w").unwrap()
    });
    let store = memory.open(2);
    for i in 3000..200_000 {
        store
            .put(&key(i), b"v")
            .unwrap_or_else(|e| panic!("{i}: {e}"));
    }
    sound(&store, "grown");
}

/// Large records that can no longer be found do not stay for ever, wherever their writer died.
#[test]
fn large_records_of_the_dead_are_given_back() {
    for name in [
        "log.open.claimed",
        "log.open.begun",
        "log.open.adopted",
        "log.large.header",
        "log.large.closed",
        "log.body.during",
        "log.body.after",
        "log.intent",
        "log.bucket.locked",
        "log.expected",
        "log.published",
        "log.counted",
        "log.bucket.unlocked",
    ] {
        let (memory, store) = Memory::new();
        store.put(b"small", b"v").unwrap();
        store.put(b"large", &vec![1; 8 << 20]).unwrap();
        let before = store.stats().free_bytes;
        memory.abandon(1, name, move || {
            store.put(b"large", &vec![2; 8 << 20]).unwrap()
        });
        let store = memory.open(2);
        store.reap().unwrap();
        store.compact().unwrap();
        store.compact().unwrap();
        assert_eq!(store.stats().free_bytes, before, "{name}");
        sound(&store, name);
    }
}

/// A head may have continued after one of them.
#[test]
fn large_records_of_the_dead_are_given_back_though_a_head_goes_on_behind_them() {
    for name in [
        "log.large.closed",
        "log.body.during",
        "log.intent",
        "log.bucket.locked",
    ] {
        let (memory, store) = Memory::new();
        // More is left of its last frame than is free at a head without a segment.
        let value = vec![2; 7_200_000];
        // The first frame of its index is included.
        let free = |store: &LogStore| store.stats().free_bytes + store.stats().index_bytes;
        let (live, before) = (store.stats().live_bytes, free(&store));
        memory.abandon(1, name, move || store.put(b"large", &value).unwrap());
        let store = memory.open(2);
        store.reap().unwrap();
        store.compact().unwrap();
        store.compact().unwrap();
        assert_eq!(store.stats().live_bytes, live, "{name}");
        assert_eq!(free(&store), before, "{name}");
        sound(&store, name);
    }
}

/// A writer that needs their space waits for pins that are older than they are.
#[test]
fn space_that_only_a_dead_threads_large_record_takes_is_not_refused() {
    let (memory, store) = Memory::new();
    store.put(b"read", &vec![1; 1 << 20]).unwrap();
    let theirs = memory.open_to_read(3);
    let reader = Stopped::at("log.copy.during", 1, move || {
        theirs.get_into(b"read", &mut Vec::new()).map(drop)
    });
    memory.abandon(1, "log.large.closed", move || {
        store.put(b"large", &vec![1; 40 << 20]).unwrap()
    });
    let store = memory.open(2);
    store.reap().unwrap();
    for _ in 0..4 {
        store.compact().unwrap();
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Longer than a search that finds nothing to wait for.
            std::thread::sleep(Duration::from_millis(100));
            reader.finish().unwrap();
        });
        store.put(b"large", &vec![2; 40 << 20]).unwrap();
    });
    sound(&store, "in its place");
}

/// A frame being moved out of the index' pool by a dead thread comes back, and only once.
#[test]
fn a_frame_that_leaves_the_pool_is_given_back_once() {
    const UNLINKED: &str = "index.pool.frame-unlinked";
    let fill = |store: &LogStore| {
        let pairs: Vec<_> = (0..250_000).map(|i| (key(i), b"")).collect();
        pairs
            .chunks(1000)
            .for_each(|some| store.put_many(some).unwrap());
        store.clear().unwrap();
    };
    let left = {
        let (_memory, store) = Memory::new();
        fill(&store);
        store.compact().unwrap();
        store.stats()
    };
    for name in [
        UNLINKED,
        "arena.release.intent",
        "arena.release.descriptor",
        "arena.release.unlocked",
        "arena.release.cleared",
    ] {
        let (memory, store) = Memory::new();
        fill(&store);
        let free = store.stats().free_bytes;
        // The names after the first are passed on other occasions too.
        let action = match name {
            UNLINKED => Action::Abandon,
            _ => Action::Call(Arc::new(|| fault::arm(name, Action::Abandon, 1))),
        };
        let outcome = fault::run(UNLINKED, action, 1, move || store.compact());
        assert!(matches!(outcome, Outcome::Abandoned), "{name}");
        memory.script.kill(1);
        let store = memory.open(2);
        store.reap().unwrap();
        store.compact().unwrap();
        sound(&store, name);
        let stats = store.stats();
        assert!(stats.free_bytes > free, "{name}: {free}, then {stats:?}");
        assert_eq!(stats.index_bytes, left.index_bytes, "{name}");
    }
}

/// The repairer of a dead thread's pool dies in the middle: the block is freed once.
#[test]
fn a_block_that_two_dead_were_freeing_is_freed_once() {
    for name in ["index.limbo.noted", "index.limbo.struck"] {
        let (memory, store) = Memory::new();
        memory.abandon(1, name, move || {
            (0..20_000).for_each(|i| store.put(&key(i), b"v").unwrap());
        });
        let second = memory.open(2);
        memory.abandon(2, "index.repair.struck", move || {
            second.reap().unwrap();
        });
        let store = memory.open(3);
        store.reap().unwrap();
        sound(&store, name);
        // If it had been given out twice, the buckets of two pages would be the same.
        (0..60_000).for_each(|i| store.put(&key(i), b"w").unwrap());
        for i in 0..60_000 {
            assert_eq!(store.get(&key(i)).unwrap().unwrap(), b"w", "{name}: {i}");
        }
        sound(&store, name);
    }
}

/// A thread looks for a large record that a dead one has lost. It dies too, before it has reported
/// anything.
#[test]
fn large_records_of_the_dead_are_looked_for_again() {
    let (memory, store) = Memory::new();
    store.put(b"small", b"v").unwrap();
    let before = store.stats().free_bytes;
    memory.abandon(1, "log.large.closed", move || {
        store.put(b"large", &vec![2; 8 << 20]).unwrap()
    });
    let second = memory.open(2);
    memory.abandon(2, "log.lost.taken", move || {
        second.reap().unwrap();
        second.compact().unwrap();
    });
    let store = memory.open(3);
    store.reap().unwrap();
    store.compact().unwrap();
    store.compact().unwrap();
    assert_eq!(store.stats().free_bytes, before);
    sound(&store, "");
}

/// A record with an expiry whose writer died before it noted that is found by the sweep.
#[test]
fn expired_records_of_the_dead_are_swept() {
    for policy in [UpdatePolicy::Append, UpdatePolicy::InPlace] {
        let (memory, store) = Memory::with_policy(memory::CAPACITY, policy);
        memory.abandon(1, "log.published", move || {
            store.put_until(b"k", b"v", Expiry::At(1)).unwrap()
        });
        let store = memory.open(2);
        store.reap().unwrap();
        assert_eq!(store.len(), 1);
        assert_eq!(store.remove_expired().unwrap(), 1);
        assert_eq!(store.len(), 0);
    }
}

/// A repair overwrites a value again. Readers did not wait for the dead thread, and still see no
/// half of the value, even if the repairer dies too.
#[test]
fn a_value_that_is_overwritten_again_is_never_seen_torn() {
    for name in [
        "log.change.announced",
        "log.change.excluded",
        "log.change.half",
        "log.change.stored",
    ] {
        let (memory, store) = Memory::with_policy(memory::CAPACITY, UpdatePolicy::InPlace);
        store.put(b"k", &[1; 272]).unwrap();
        memory.abandon(1, name, move || store.put(b"k", &[2; 263]).unwrap());
        let second = memory.open(2);
        memory.abandon(2, "log.redo.stored", move || {
            second.reap().unwrap();
        });
        let store = memory.open(3);
        let seen = store.get(b"k").unwrap().unwrap().to_vec();
        assert!(seen == [1; 272] || seen == [2; 263], "{name}: {seen:?}");
        sound(&store, name);
    }
}

/// If the thread of a sweep dies, others repeat the sweep.
#[test]
fn a_sweep_of_the_dead_is_begun_anew() {
    let (memory, store) = Memory::new();
    store.put_until(b"k", b"v", Expiry::At(1)).unwrap();
    memory.abandon(1, "expiry.sweep.begun", move || {
        store.remove_expired().unwrap();
    });
    let store = memory.open(2);
    store.reap().unwrap();
    assert_eq!(store.remove_expired().unwrap(), 1);
}

/// A transaction that only reads finds that the holder of what it reads is dead.
#[test]
fn a_reading_transaction_passes_the_dead() {
    let (memory, store) = Memory::new();
    store.put_until(b"k", b"v", Expiry::At(u64::MAX)).unwrap();
    memory.abandon(1, "log.bucket.locked", move || {
        store.put(b"k", b"w").unwrap()
    });
    let store = memory.open(2);
    let read = store.transaction(|t| t.get(b"k")).unwrap();
    assert_eq!(read.as_deref(), Some(&b"v"[..]));
    sound(&store, "read");
}

/// A reader that dies while it copies, or before it has left, blocks nothing: after the reap the
/// others overwrite what it was reading.
#[test]
fn a_reader_that_dies_leaves_nothing_behind() {
    type Read = fn(&LogStore);
    let reads: [(&str, Read); 2] = [
        ("log.copy.during", |store| {
            store.get_into(b"k", &mut Vec::new()).map(drop).unwrap()
        }),
        ("log.copy.seen", |store| {
            store.expiry(b"k").map(drop).unwrap()
        }),
    ];
    for (name, read) in reads {
        let (memory, store) = Memory::new();
        let value = vec![1; 1 << 20];
        store.put(b"k", &value).unwrap();
        let theirs = memory.open_to_read(2);
        memory.abandon(2, name, move || read(&theirs));
        for _ in 0..200 {
            store.put(b"k", &value).unwrap();
        }
        assert!(store.get(b"k").unwrap().unwrap() == value, "{name}");
        sound(&store, name);
    }
}

/// A thread that dies while it compacts leaves copies to which no entry leads. They cost no space
/// for long.
#[test]
fn deaths_while_compacting_lose_no_space() {
    let short = (60 << 10, 400);
    let bulk = (400 << 10, 60);
    for (point, (length, records)) in [
        ("compact.written", short),
        ("compact.copied", short),
        ("compact.swapped", short),
        ("compact.bulk.copied", bulk),
        ("compact.bulk.swapped", bulk),
    ] {
        let (memory, store) = Memory::new();
        let value = vec![7; length];
        for i in 0..records {
            store.put(&key(i), &value).unwrap();
        }
        // One of every four stays: fewer than would make bulk records stay in place.
        for i in (0..records).filter(|i| i % 4 > 0) {
            store.remove(&key(i)).unwrap();
        }
        for process in 2..10 {
            let other = memory.open(process);
            memory.abandon(process, point, move || {
                let _ = other.compact();
            });
            store.reap().unwrap();
        }
        for _ in 0..5 {
            store.compact().unwrap();
        }
        let live: u64 = (0..records)
            .filter_map(|i| store.record_bytes(&key(i)).unwrap())
            .sum();
        let counted = store.stats().live_bytes;
        // Bytes that were led to and not discounted before the death count as dead as long as they
        // are there.
        assert!(counted <= live, "{point}: {counted} of {live}");
        assert!(
            point.ends_with(".swapped") || counted == live,
            "{point}: {counted} of {live}"
        );
        sound(&store, point);
        let more = (1000..)
            .take_while(|i| store.put(&key(*i), &value).is_ok())
            .count();
        assert!(more * length > 40 << 20, "{point}: {more}");
    }
}

/// The records of threads that died before publishing them become free space.
#[test]
fn unpublished_records_of_the_dead_are_freed() {
    let value = vec![7; 400 << 10];
    for (point, passage) in [
        ("log.body.after", 40),
        ("txn.intent", 1),
        ("txn.inserted", 40),
    ] {
        let (memory, store) = Memory::new();
        for process in 2..12 {
            let (other, value) = (memory.open(process), value.clone());
            let put_all = move |t: &mut mneme_log::Transaction<'_>| {
                (0..40).try_for_each(|i| t.put(&key(i), &value))
            };
            let work = move || other.transaction(put_all);
            if let Outcome::Finished(ended) = fault::run(point, Action::Abandon, passage, work) {
                panic!("{point}: process {process} ends with {ended:?}");
            }
            memory.script.kill(process);
            store.reap().unwrap();
        }
        for i in 0..100 {
            store.put(&key(i), &value).unwrap();
        }
        sound(&store, point);
    }
}

/// Also if they lie behind large records of living threads.
#[test]
fn unpublished_records_of_the_dead_behind_large_ones_are_freed() {
    let (memory, store) = Memory::new();
    let (dying, beside) = (memory.open(2), memory.open(3));
    let (small, large) = (vec![7; 400 << 10], vec![9; 600 << 10]);
    let work = move || {
        dying.transaction(|t| {
            for i in 0..15 {
                beside.put(&key(1000 + i), &large).unwrap();
                for j in 0..3 {
                    t.put(&key(3 * i + j), &small)?;
                }
            }
            Ok::<_, mneme_log::WriteError>(())
        })
    };
    let outcome = fault::run("txn.intent", Action::Abandon, 1, work);
    assert!(matches!(outcome, Outcome::Abandoned));
    memory.script.kill(2);
    store.reap().unwrap();
    let value = vec![1; 400 << 10];
    for i in 0..100 {
        store.put(&key(i % 70), &value).unwrap();
    }
    sound(&store, "behind large records");
}

/// A large record is removed while the repair of a dead compactor examines its segment.
#[test]
fn no_segment_stays_with_the_dead_whose_large_record_dies_during_the_repair() {
    let builder = LogStore::builder().evict(mneme_log::Evict::Lru);
    let (memory, store) = Memory::built(memory::CAPACITY, memory::CAPACITY, builder);
    let value = vec![7; 700 << 10];
    let dying = memory.open(2);
    let written = value.clone();
    memory.abandon(2, "evict.claimed", move || {
        (0..).try_for_each(|i| dying.put(&key(i), &written))
    });
    let beside = memory.open(3);
    let remove_all = move || {
        std::thread::scope(|scope| {
            scope.spawn(|| (0..200).try_for_each(|i| beside.remove(&key(i)).map(|_| ())));
        });
    };
    fault::arm("log.repair.seen", Action::Call(Arc::new(remove_all)), 1);
    store.reap().unwrap();
    drop(store);
    memory.script.kill(3);
    memory.reboot();
    sound(&memory.open(4), "the repair has ended");
}

/// A clock by which waits end earlier.
struct Hasty;

impl Clock for Hasty {
    fn now_ns(&self) -> u64 {
        SystemClock.now_ns() * 64
    }

    fn wall_ms(&self) -> u64 {
        SystemClock.wall_ms()
    }
}

/// A thread that panics in the middle of a change is repaired as if it had died: at once if its
/// process continues, and by others.
#[test]
fn a_panicking_threads_changes_are_repaired() {
    let work = |store: &LogStore| {
        store.put(b"k", b"w").unwrap();
        store.put(b"new", b"w").unwrap();
        let both = |t: &mut mneme_log::Transaction<'_>| {
            t.put(b"k", b"x")?;
            t.put(b"other", b"x")
        };
        store.transaction(both).unwrap();
    };
    let builder = LogStore::builder().clock(Arc::new(Hasty));
    let (memory, store) = Memory::built(memory::CAPACITY, memory::CAPACITY, builder);
    store.put(b"k", b"v").unwrap();
    let before: Vec<_> = fault::passed();
    work(&memory.open(2));
    let passed = fault::passed()
        .into_iter()
        .filter(|place| !before.contains(place));
    let places: Vec<_> = passed.map(|(name, _)| name).collect();
    assert!(places.contains(&"log.bucket.locked") && places.contains(&"txn.locked"));
    for (place, process) in places.into_iter().zip(3..) {
        store.remove(b"new").unwrap();
        store.put(b"held", b"v").unwrap();
        let theirs = Arc::new(memory.open(process));
        // Either its slot ends with the thread, or the thread continues, or it keeps what it had
        // before.
        for (goes_on, holds) in [(false, false), (true, false), (true, true)] {
            let theirs = Arc::clone(&theirs);
            let thread = std::thread::spawn(move || {
                let panics = Action::Call(Arc::new(|| panic!("a bug")));
                let value = holds.then(|| theirs.get(b"held").unwrap().unwrap());
                fault::arm(place, panics, 1);
                let work_here = || work(&theirs);
                let ended = catch_unwind(AssertUnwindSafe(work_here));
                fault::disarm();
                if let Some(value) = value {
                    // Its work meanwhile does not disturb what the panic has left to the repair.
                    for i in 0..4 {
                        let _ = theirs.put(&key(i), b"v");
                    }
                    assert_eq!(&*value, b"v", "{place}");
                    drop(value);
                }
                match goes_on {
                    true => work(&theirs),
                    false => ended.unwrap(),
                }
            });
            let joined = thread.join();
            assert!(joined.is_ok() || !goes_on, "{place}");
            store.reap().unwrap();
            work(&store);
            sound(&store, place);
        }
    }
}

/// A head that names a new log segment before the segment's state says so is not damage for the
/// next writer.
#[test]
fn a_panic_in_the_middle_of_opening_a_log_segment_is_repaired_by_the_next_writer() {
    for place in ["log.open.linked", "log.open.head"] {
        let (memory, store) = Memory::new();
        let value = vec![7; 100_000];
        let fill = |store: &LogStore, from: u32| {
            (from..from + 40).for_each(|i| store.put(&key(i), &value).unwrap());
        };
        let panics = Action::Call(Arc::new(|| panic!("a bug")));
        fault::arm(place, panics, 2);
        let ended = catch_unwind(AssertUnwindSafe(|| fill(&store, 0)));
        fault::disarm();
        assert!(ended.is_err(), "{place}");
        fill(&store, 0);
        fill(&memory.open(2), 40);
        store.reap().unwrap();
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    }
}

/// A large record has frames of its own, which are freed when it is counted as dead.
#[test]
fn a_large_record_that_a_panicking_thread_had_committed_stays() {
    let (memory, store) = Memory::new();
    // Nothing of its last frame is left for other records.
    let (value, empty) = (vec![5; (4 << 20) - 100], store.stats().live_bytes);
    for (place, process) in ["txn.committed", "txn.unlocked", "txn.cleared"]
        .into_iter()
        .zip(2..)
    {
        let theirs = memory.open(process);
        let large = value.clone();
        let thread = std::thread::spawn(move || {
            let panics = Action::Call(Arc::new(|| panic!("a bug")));
            fault::arm(place, panics, 1);
            let put = || theirs.transaction(|t| t.put(b"large", &large));
            let ended = catch_unwind(AssertUnwindSafe(put));
            fault::disarm();
            assert!(ended.is_err(), "{place} was not passed");
        });
        thread.join().unwrap();
        store.reap().unwrap();
        // A value that takes its frames, if they are free.
        let other = vec![6; value.len()];
        let more = (0..).take_while(|i| store.put(&key(*i), &other).is_ok());
        for i in 0..more.count() as u32 {
            store.remove(&key(i)).unwrap();
        }
        assert!(
            store.get(b"large").unwrap().as_deref() == Some(&value[..]),
            "{place}"
        );
        sound(&store, place);
        store.remove(b"large").unwrap();
        for _ in 0..3 {
            store.compact().unwrap();
        }
        assert_eq!(store.stats().live_bytes, empty, "{place}");
    }
}

/// If a thread panics in a change of the index' shape, the change is undone or finished.
#[test]
fn a_change_of_shape_that_panics_is_repaired() {
    let grow = |store: &LogStore| (0..2000).try_for_each(|i| store.put(&key(i), b"v"));
    let before = fault::passed();
    let (_memory, store) = Memory::new();
    grow(&store).unwrap();
    let passed = fault::passed()
        .into_iter()
        .filter(|place| !before.contains(place));
    let places = passed
        .map(|(name, _)| name)
        .filter(|name| name.starts_with("index."));
    let places: Vec<_> = places.collect();
    assert!(places.contains(&"index.resize.prepared"));
    for place in places {
        let (memory, store) = Memory::new();
        let theirs = memory.open(2);
        let thread = std::thread::spawn(move || {
            fault::arm(place, Action::Call(Arc::new(|| panic!("a bug"))), 1);
            grow(&theirs)
        });
        thread.join().unwrap_err();
        store.reap().unwrap();
        grow(&store).unwrap();
        sound(&store, place);
    }
}

/// Calls `work`, which panics when it passes `place`. Returns false if it does not pass it.
fn panics_at(place: &'static str, work: impl FnOnce()) -> bool {
    fault::arm(place, Action::Call(Arc::new(|| panic!("a bug"))), 1);
    let ended = catch_unwind(AssertUnwindSafe(work));
    fault::disarm();
    ended.is_err()
}

/// An operation fails if the closure that it calls has caught a panic of another operation. So the
/// intent for the repair of the other one is not overwritten.
#[test]
fn a_closure_that_has_caught_a_panic_ends_its_operation() {
    type Work = fn(&LogStore, &mut dyn FnMut());
    let works: [(&str, Work); 3] = [
        ("update", |store, panics| {
            let _ = store.database(1).unwrap().update(b"x", |_| {
                panics();
                Decision::Replace(b"y".to_vec())
            });
        }),
        ("update_part", |store, panics| {
            let change = Patch::Write {
                at: 0,
                bytes: Cow::Borrowed(b"12345678"),
            };
            let _ = store.update_part(
                &key(0),
                |_| 0..8,
                |_| {
                    panics();
                    change.clone()
                },
            );
        }),
        ("compact_while", |store, panics| {
            let moved = store.compact_while(|| {
                panics();
                true
            });
            assert!(moved.is_err());
        }),
    ];
    for (name, work) in works {
        let (memory, store) = Memory::new();
        store.put(b"k", b"v").unwrap();
        let value = vec![7; 400 << 10];
        for i in 0..60 {
            store.put(&key(i), &value).unwrap();
        }
        for i in (1..60).step_by(2) {
            store.remove(&key(i)).unwrap();
        }
        let theirs = memory.open(2);
        let thread = std::thread::spawn(move || {
            let mut has_panicked = false;
            work(&theirs, &mut || {
                if !std::mem::replace(&mut has_panicked, true) {
                    let put = || theirs.put(b"k", b"w").unwrap();
                    assert!(panics_at("log.bucket.locked", put));
                }
            });
        });
        thread.join().unwrap();
        assert_eq!(store.reap().unwrap(), 1, "{name}");
        store.put(b"k", b"x").unwrap();
        sound(&store, name);
    }
}

fn compact(store: &LogStore) {
    for _ in 0..3 {
        store.compact().unwrap();
    }
}

/// The frames that a thread had claimed are freed, although none of its intents names them any
/// more.
#[test]
fn a_large_put_that_panics_leaves_no_frames_claimed() {
    let large = vec![3; 9 << 20];
    for place in [
        "log.open.begun",
        "log.open.claimed",
        "log.open.adopted",
        "log.large.header",
        "log.large.closed",
    ] {
        let (memory, store) = Memory::new();
        let theirs = memory.open(2);
        // The store's own memory is not freed.
        store.put(b"large", &large).unwrap();
        store.remove(b"large").unwrap();
        compact(&store);
        let free = store.stats().free_bytes;
        let value = large.clone();
        let thread = std::thread::spawn(move || {
            let put = || theirs.put(b"large", &value).unwrap();
            assert!(panics_at(place, put), "{place}");
        });
        thread.join().unwrap();
        store.reap().unwrap();
        compact(&store);
        assert_eq!(store.stats().free_bytes, free, "{place}");
        sound(&store, place);
    }
}

/// The work of a destructor while its thread unwinds does not take one slot after another.
#[test]
fn a_destructor_works_while_its_thread_unwinds() {
    struct Late(LogStore);
    impl Drop for Late {
        fn drop(&mut self) {
            for i in 0..600 {
                self.0.put(&key(i), b"v").unwrap();
                let again = |t: &mut mneme_log::Transaction<'_>| t.put(&key(i), b"w");
                self.0.transaction_on(&[(0, key(i))], again).unwrap();
            }
        }
    }
    let (memory, store) = Memory::new();
    let late = Late(memory.open(2));
    let ended = catch_unwind(AssertUnwindSafe(|| {
        let _late = late;
        panic!("elsewhere");
    }));
    assert!(ended.is_err());
    assert_eq!(store.len(), 600);
    sound(&store, "");
}

/// A destructor that runs because of a panic catches another panic, which has ended an operation.
#[test]
fn changes_left_by_a_second_panic_are_repaired_while_the_thread_lives() {
    struct Late<'a>(&'a LogStore);
    impl Drop for Late<'_> {
        fn drop(&mut self) {
            self.0.put(b"other", b"w").unwrap();
            let put = || self.0.put(b"k", b"w").unwrap();
            assert!(panics_at("log.bucket.locked", put));
        }
    }
    for keeps in [false, true] {
        let (memory, store) = Memory::new();
        store.put(b"k", b"v").unwrap();
        let theirs = memory.open(2);
        let kept = keeps.then(|| theirs.get(b"k").unwrap());
        let ended = catch_unwind(AssertUnwindSafe(|| {
            let _late = Late(&theirs);
            panic!("elsewhere");
        }));
        assert!(ended.is_err());
        drop(kept);
        theirs.put(b"more", b"v").unwrap();
        // Unless the put has found the lock: its key may have the same home.
        assert!(store.reap().unwrap() <= 1, "keeps a value: {keeps}");
        store.put(b"k", b"x").unwrap();
        assert_eq!(store.reap().unwrap(), 0, "keeps a value: {keeps}");
        sound(&store, "");
    }
}

/// A transaction that has locked ahead continues after its body has caught a panic of a closure.
#[test]
fn a_decision_that_panics_harms_no_transaction() {
    let (_memory, store) = Memory::new();
    store.put(b"a", b"1").unwrap();
    store.put(b"b", b"1").unwrap();
    let seen = store.transaction_on(&[(0, b"a")], |t| {
        t.get(b"a")?;
        let decide = || store.update(b"b", |_| panic!("by decide"));
        assert!(catch_unwind(AssertUnwindSafe(decide)).is_err());
        store.transaction(|t| t.get(b"a"))?;
        t.put(b"a", b"2")?;
        t.get(b"a")
    });
    assert_eq!(seen.unwrap().as_deref(), Some(&b"2"[..]));
    assert_eq!(store.get(b"a").unwrap().as_deref(), Some(&b"2"[..]));
    assert_eq!(store.reap().unwrap(), 0);
    sound(&store, "");
}

#[test]
fn a_change_set_over_several_records_is_made_whole_or_not_at_all() {
    mneme_log::within::a_change_set_over_several_records_is_made_whole_or_not_at_all();
}

#[test]
fn the_repairer_of_a_change_set_dies_too() {
    mneme_log::within::its_repairer_dies_too();
}

#[test]
fn a_redo_that_fits_no_record_is_damage() {
    mneme_log::within::a_redo_that_fits_no_record_is_damage();
}

#[test]
fn a_frame_that_another_shard_owns_by_now_is_left_to_it() {
    mneme_log::within::a_frame_that_another_shard_owns_by_now_is_left_to_it();
}

const LARGE: ValueKind = ValueKind::new(1).unwrap().large();
/// The number of leaves of the collections below, more than a sweep frees at once.
const LEAVES: u64 = 100;

/// The number of records of their trees, of three levels: 7 branches of 10 leaves each below the
/// root.
const TREE: u64 = 78;

/// The records to which record `number` of the tree leads.
fn below_in_tree(number: u64) -> std::ops::Range<u64> {
    match number - TREE_NUMBERS {
        0 => number + 1..number + 8,
        branch @ 1..8 => TREE_NUMBERS + 10 * branch - 2..TREE_NUMBERS + 10 * branch + 8,
        _ => 0..0,
    }
}

/// Creates the collection `c` if it does not exist, and stores `round` in all its leaves.
fn set_collection(store: &LogStore, round: u8) {
    let set = |t: &mut Transaction<'_>| {
        let main = t.read(b"c", |s| s.map(|s| s.value.to_vec()))?;
        let id = main.as_deref().and_then(collection_of);
        let id = id.unwrap_or_else(|| t.new_collection());
        let packed = ValueKind::new(1).unwrap();
        let mut anchor = t.anchor(id)?.unwrap_or(Anchor::new(packed));
        (anchor.count, anchor.leaves) = (u64::from(round), LEAVES);
        (anchor.tree.root, anchor.tree.numbers) = (TREE_NUMBERS, TREE);
        t.set_anchor(id, &anchor)?;
        for number in TREE_NUMBERS..TREE_NUMBERS + TREE {
            if main.is_none() {
                let below = below_in_tree(number);
                let head = [if below.is_empty() { 0 } else { BRANCH }, 0];
                let count = (below.end - below.start) as u16;
                let mut image = [&head[..], &count.to_le_bytes()].concat();
                below.for_each(|number| image.extend(number.to_le_bytes()));
                t.put_inner(id, number, &image)?;
            }
        }
        for number in leaf_numbers(LEAVES).filter(|number| number % 10 == 0 || main.is_none()) {
            t.put_inner(id, number, &[round])?;
        }
        match main {
            Some(_) => t.database(0)?.touch(b"c"),
            None => t
                .database(0)?
                .put_kind(b"c", &main_of(id), LARGE, Expiry::Never),
        }
    };
    store.transaction(set).unwrap();
}

/// The round of a whole collection.
fn round_of_collection(store: &LogStore) -> Option<u8> {
    let read = |t: &mut Transaction<'_>| {
        let main = t.read(b"c", |s| s.map(|s| s.value.to_vec()))?;
        let Some(id) = main.as_deref().and_then(collection_of) else {
            return Ok::<_, WriteError>(None);
        };
        let round = t.anchor(id)?.unwrap().count as u8;
        for number in leaf_numbers(LEAVES) {
            let expected = if number % 10 == 0 { round } else { 1 };
            let is_so = t.read_inner(id, number, |leaf| leaf == Some(&[expected][..]))?;
            assert!(is_so, "leaf {number} in round {round}");
        }
        Ok(Some(round))
    };
    store.transaction(read).unwrap()
}

/// Looks at all of the collection `c`. A change makes the first attempt fail.
fn look_at_all_of_collection(store: &LogStore) {
    let mut looks = 0;
    let looked = store.look(b"c", LARGE, |look| {
        looks += 1;
        let first = look.inner(leaf_numbers(LEAVES).next().unwrap())?;
        if looks == 1 {
            set_collection(store, 2);
        }
        look.find_all()?;
        Ok::<_, ReadError>(first.map(<[u8]>::to_vec))
    });
    let first = looked.unwrap().unwrap().unwrap();
    assert_eq!((looks, first), (2, Some(vec![1])));
}

/// A writer of a collection, a thread that removes its key, a sweep, and a reader of all of it die
/// at every place that they pass: the collection is in one round, or gone and all of it free.
#[test]
fn a_collection_of_the_dead_is_whole_or_gone() {
    // The work of each, and the places at which a death must be possible.
    type Work = (&'static str, fn(&LogStore), &'static [&'static str]);
    const WORKS: [Work; 4] = [
        (
            "change",
            |store| set_collection(store, 2),
            &["txn.committed", "txn.applied"],
        ),
        (
            "remove",
            |store| assert!(store.remove(b"c").unwrap()),
            &["log.published"],
        ),
        (
            "sweep",
            |store| {
                // Any collection may be dead.
                store.spare_collections(false);
                assert!(!store.sweep_collections().unwrap());
                store.remove(b"c").unwrap();
                // Like another process, which does not know what this one has removed.
                while store.sweep_collections().unwrap() {}
            },
            &[
                "sweep.collections.anchor",
                "sweep.collections.begun",
                "sweep.collections.slice",
                "txn.applied",
            ],
        ),
        (
            "look",
            look_at_all_of_collection,
            &["look.locked", "txn.ahead.cleared"],
        ),
    ];
    for (name, work, places) in WORKS {
        let passed = std::thread::spawn(move || {
            let (_memory, store) = Memory::new();
            set_collection(&store, 1);
            let before: BTreeMap<_, _> = fault::passed().into_iter().collect();
            work(&store);
            let passed = fault::passed().into_iter();
            let passed = passed.map(|(at, n)| (at, n - before.get(at).copied().unwrap_or(0)));
            passed.filter(|(_, n)| *n > 0).collect::<BTreeMap<_, _>>()
        });
        let passed = passed.join().unwrap();
        for place in places {
            assert!(
                passed.contains_key(place),
                "{name} does not lead through {place}"
            );
        }
        for (place, times) in passed {
            let mut nths = vec![1, times.div_ceil(2), times];
            nths.dedup();
            for nth in nths {
                let context = format!("{name} dead at {place}, passage {nth} of {times}");
                let (memory, store) = Memory::new();
                set_collection(&store, 1);
                let outcome = fault::run("none", Action::Abandon, 1, move || {
                    fault::arm(place, Action::Abandon, nth);
                    work(&store);
                });
                if outcome != Outcome::Abandoned {
                    continue;
                }
                memory.script.kill(1);
                let store = memory.open(2);
                // Compaction may come before the repair.
                if nth == 1 {
                    while store.compact().unwrap() > 0 {}
                }
                store.reap().unwrap();
                let round = round_of_collection(&store);
                match name {
                    "change" | "look" => {
                        assert!(matches!(round, Some(1 | 2)), "{context}: {round:?}")
                    }
                    _ => assert!(matches!(round, None | Some(1)), "{context}: {round:?}"),
                }
                while store.sweep_collections().unwrap() {}
                sound(&store, &context);
                let report = store.check().unwrap();
                let left = round.map_or((0, 0), |_| (1, LEAVES + TREE));
                assert_eq!(
                    (report.collections, report.inner_records),
                    left,
                    "{context}"
                );
                set_collection(&store, 1);
                assert_eq!(round_of_collection(&store), Some(1), "{context}");
            }
        }
    }
}

/// A change in place of two parts of a value with elements, and of its length: by an edit, and by
/// an update, which finds what differs.
#[test]
fn an_edit_of_the_dead_is_whole_or_has_not_begun() {
    let typed = ValueKind::new(1).unwrap();
    let edit = move |store: &LogStore| {
        let edited = store.edit_in_place(b"k", typed, move |value, edit| {
            edit.set_len(value.len() - 100);
            let written = edit.write(0, |to| to.extend([2; 100]));
            (written && edit.write(1700, |to| to.extend([2; 200]))).then_some(true)
        });
        assert!(edited.unwrap().is_some());
    };
    let update = move |store: &LogStore| {
        let updated = store.update_kind(b"k", typed, |stored| {
            let mut value = stored.unwrap().value[..1900].to_vec();
            value[..100].fill(2);
            value[1700..].fill(2);
            Decision::Replace(value)
        });
        assert_eq!(updated.unwrap(), Updated::Replaced);
    };
    an_edit_is_whole_or_has_not_begun(typed, edit);
    an_edit_is_whole_or_has_not_begun(typed, update);
}

fn an_edit_is_whole_or_has_not_begun(
    typed: ValueKind,
    work: impl Fn(&LogStore) + Copy + Send + 'static,
) {
    let before = vec![1; 2000];
    let mut after = vec![1; 1900];
    after[..100].fill(2);
    after[1700..].fill(2);
    let filled = move |policy| {
        let (memory, store) = Memory::with_policy(memory::CAPACITY, policy);
        (store.put_kind(b"k", &vec![1; 2000], typed, Expiry::Never)).unwrap();
        (memory, store)
    };
    for policy in [UpdatePolicy::Append, UpdatePolicy::InPlace] {
        let passed = std::thread::spawn(move || {
            let (_memory, store) = filled(policy);
            let before: BTreeMap<_, _> = fault::passed().into_iter().collect();
            work(&store);
            let passed = fault::passed().into_iter();
            let passed = passed.map(|(at, n)| (at, n - before.get(at).copied().unwrap_or(0)));
            passed.filter(|(_, n)| *n > 0).collect::<BTreeMap<_, _>>()
        });
        let passed = passed.join().unwrap();
        for place in [
            "log.change.announced",
            "log.change.half",
            "log.change.stored",
        ] {
            assert!(
                passed.contains_key(place),
                "an edit does not lead through {place}"
            );
        }
        for (place, times) in passed {
            for nth in 1..=times {
                let context = format!("{policy:?}, dead at {place}, passage {nth} of {times}");
                let (memory, store) = filled(policy);
                let outcome = fault::run("none", Action::Abandon, 1, move || {
                    fault::arm(place, Action::Abandon, nth);
                    work(&store);
                });
                assert_eq!(outcome, Outcome::Abandoned, "{context}");
                memory.script.kill(1);
                let store = memory.open(2);
                store.reap().unwrap();
                let found = store.get_kind(b"k", typed).unwrap().unwrap().to_vec();
                assert!(found == before || found == after, "{context}");
                let is_made = found == after;
                let expected = match place {
                    "log.intent" | "log.bucket.locked" => Some(false),
                    _ if place.starts_with("log.change") => Some(true),
                    _ => None,
                };
                assert!(expected.is_none_or(|made| made == is_made), "{context}");
                sound(&store, &context);
                if !is_made {
                    work(&store);
                    let found = store.get_kind(b"k", typed).unwrap().unwrap().to_vec();
                    assert!(found == after, "{context}");
                }
            }
        }
    }
}
