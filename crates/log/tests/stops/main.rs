//! A participant that is stopped but not dead: the others get a bounded and explained wait, and
//! nothing is lost when it continues.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../memory/mod.rs"]
mod memory;
mod waits;

use memory::stopped::Stopped;
use memory::{Memory, sound};
use std::collections::HashSet;
use std::sync::Arc;

use mneme_log::{Cursor, Expiry, LogStore, ReadError, Stored, UpdatePolicy, Updated, WriteError};
use mneme_sys::Access;
use mneme_sys::fault::{self, Action, Outcome};

fn key(i: u32) -> [u8; 4] {
    i.to_le_bytes()
}

/// A change of shape that fails half-way, because a stopped thread holds the arena, is undone.
#[test]
fn a_split_that_finds_the_arena_held_up_gives_its_buckets_back() {
    let (memory, store) = Memory::new();
    let mut n = 60_000;
    for i in 0..n {
        store.put(&key(i), b"v").unwrap();
    }
    for round in 0..3 {
        let theirs = memory.open(2 + round);
        // Holds the arena's lock.
        let stopped = Stopped::at("arena.claim.refreshed", 1, move || {
            theirs.put(b"large", &vec![1; 5 << 20])
        });
        // The index grows until it needs a frame.
        let refused = loop {
            match store.put(&key(n), b"v") {
                Ok(()) => n += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(refused, WriteError::Stalled(_)), "{refused}");
        stopped.finish().unwrap();
        sound(&store, "afterwards");
        for i in 0..n {
            store
                .put(&key(i), b"w")
                .unwrap_or_else(|e| panic!("{i}: {e}"));
        }
        store.put(&key(n), b"w").unwrap();
        n += 1;
    }
    sound(&store, "");
}

/// A segment whose extent could not be given back is given back later.
#[test]
fn frames_that_could_not_be_freed_are_freed_later() {
    let (memory, store) = Memory::new();
    let (reader, holder) = (memory.open(2), memory.open(3));
    store.put(b"small", b"v").unwrap();
    let all = store.stats().free_bytes;
    store.put(b"large", &vec![1; 8 << 20]).unwrap();
    let pinned = reader.get(b"small").unwrap();
    store.remove(b"large").unwrap();
    // Its grace period begins, and is not over.
    store.compact().unwrap();
    drop(pinned);
    let stopped = Stopped::at("arena.claim.refreshed", 1, move || {
        holder.put(b"other", &vec![1; 5 << 20])
    });
    let refused = store.compact().unwrap_err();
    assert!(matches!(refused, WriteError::Stalled(_)), "{refused}");
    stopped.finish().unwrap();
    store.remove(b"other").unwrap();
    store.compact().unwrap();
    store.compact().unwrap();
    assert_eq!(store.stats().free_bytes, all);
    sound(&store, "");
}

/// Blocks that wait for a reader do not keep a writer in an endless loop.
#[test]
fn a_reader_that_stays_stalls_the_growth_of_the_index_and_says_so() {
    let (memory, store) = Memory::new();
    let theirs = memory.open(2);
    store.put(b"kept", b"v").unwrap();
    let kept = store.get(b"kept").unwrap().unwrap();
    std::thread::scope(|s| {
        s.spawn(|| {
            let mut refused = None;
            for i in 0..1_000_000 {
                if let Err(e) = theirs.put(&key(i), b"v") {
                    refused = Some((i, e));
                    break;
                }
            }
            assert!(
                matches!(refused, Some((_, WriteError::Stalled(_)))),
                "{refused:?}"
            );
            for i in 0..200 {
                // The first ones: a new index needs no block that waits.
                theirs.database(1).unwrap().put(&key(i), b"v").unwrap();
            }
        });
    });
    drop(kept);
    sound(&store, "");
}

/// A change that has taken place is not reported as refused because the index could not be tidied
/// after it.
#[test]
fn a_change_that_took_place_is_not_reported_as_refused() {
    let (memory, store) = Memory::new();
    for i in 0..2000 {
        store.put(&key(i), b"v").unwrap();
    }
    let theirs = memory.open(2);
    // Is stopped while it holds the lock of the only shard.
    let stopped = Stopped::at("index.resize.prepared", 1, move || {
        for i in 2000..10_000 {
            theirs.put(&key(i), b"v").unwrap();
        }
    });
    let mut refused = 0;
    for k in (1_000_000..).map(key) {
        if let Err(error) = store.put(&k, b"v") {
            assert!(
                store.get(&k).unwrap().is_none(),
                "{error}, and yet it is there"
            );
            refused += 1;
            if refused == 2 {
                break;
            }
        }
    }
    for i in (0..2000).map(key) {
        assert!(store.remove(&i).unwrap());
    }
    stopped.finish();
    sound(&store, "");
}

/// A large record that could not be published gives its memory back.
#[test]
fn a_large_record_that_was_refused_leaves_nothing() {
    let (memory, store) = Memory::new();
    store.put(b"k", b"v").unwrap();
    let before = store.stats().free_bytes;
    let theirs = memory.open(2);
    let stopped = Stopped::at("log.bucket.locked", 1, move || theirs.put(b"k", b"w"));
    let refused = store.put(b"k", &vec![1; 8 << 20]).unwrap_err();
    assert!(matches!(refused, WriteError::Stalled(_)), "{refused}");
    stopped.finish().unwrap();
    store.compact().unwrap();
    store.compact().unwrap();
    assert_eq!(store.stats().free_bytes, before);
    sound(&store, "");
}

/// A scan that begins after a half-done change of shape sees no record as it was before.
#[test]
fn a_scan_visits_nothing_from_before_a_change_of_shape_that_stands_still() {
    let (memory, store) = Memory::new();
    for i in 0..200_000 {
        store.put(&key(i), b"old").unwrap();
    }
    // Long directories now lead to short pages, several words to each.
    let kept = 1500;
    for i in kept..200_000 {
        store.remove(&key(i)).unwrap();
    }
    let theirs = memory.open(2);
    // One of those words names the new page, the others the old one.
    let stopped = Stopped::at("index.resize.word", 1, move || {
        for i in 200_000..220_000 {
            theirs.put(&key(i), b"old").unwrap();
        }
    });
    let updated: Vec<u32> = std::thread::scope(|s| {
        let store = &store;
        let threads: Vec<_> = (0..100)
            .map(|t| {
                s.spawn(move || {
                    (0..kept)
                        .filter(|i| i % 100 == t && store.put(&key(*i), b"new").is_ok())
                        .collect::<Vec<u32>>()
                })
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|t| t.join().unwrap())
            .collect()
    });
    assert!(updated.len() > 1000, "{} are not held up", updated.len());
    let updated: HashSet<_> = updated.into_iter().map(key).collect();
    for partition in 0..64u64 {
        for tag in (0..1 << 22).step_by(1 << 15) {
            let cursor = Cursor::from_u64(partition << 22 | tag);
            store
                .scan(cursor, 1, |k, v| {
                    if updated.contains(k) {
                        assert_eq!(
                            v, b"new",
                            "{k:?} from partition {partition}, tag {tag:#x} on"
                        );
                    }
                })
                .unwrap();
        }
    }
    stopped.finish();
    sound(&store, "");
}

/// A stopped swapper blocks only its two databases and transactions; refused operations had no
/// effect, and the swap takes place when it continues.
#[test]
fn a_swap_that_stands_still_holds_up_its_databases_alone() {
    for (name, nth) in [
        ("log.swap.marked", 2),
        ("log.swap.alone", 1),
        ("log.swap.storing", 1),
    ] {
        let (memory, store) = Memory::new();
        let db = |i| store.database(i).unwrap();
        for i in 0..3 {
            db(i).put(b"key", &[i as u8]).unwrap();
        }
        let theirs = memory.open(2);
        let stopped = Stopped::at(name, nth, move || theirs.swap_databases(0, 1));
        std::thread::scope(|s| {
            // Each waits for a second.
            let read = s.spawn(|| db(0).get(b"key").map(|v| v.map(|v| v.to_vec())));
            let write = s.spawn(|| db(1).put(b"key", b"refused"));
            // If it began, it would find both databases in one space, or each in the other's.
            let several = s.spawn(|| store.transaction(|t| t.put(b"key", b"refused")));
            let swap = s.spawn(|| store.swap_databases(1, 2));
            db(2).put(b"key", &[2]).unwrap();
            assert_eq!(db(2).get(b"key").unwrap().unwrap(), [2], "{name}");
            for seconds in [1000, 2000, 2000] {
                let until = Expiry::At(seconds << 32);
                let read_and_expire = |stored: Stored<'_>| {
                    assert_eq!(stored.value, [2], "{name}");
                    Some(until)
                };
                let updated = db(2).read_and_update_expiry(b"key", read_and_expire);
                assert_ne!(updated.unwrap(), Updated::Absent, "{name}");
                assert_eq!(db(2).expiry(b"key").unwrap(), Some(until), "{name}");
            }
            let read = read.join().unwrap();
            assert!(matches!(read, Err(ReadError::Stalled(_))), "{name}");
            for refused in [write, several, swap].map(|thread| thread.join().unwrap()) {
                assert!(matches!(refused, Err(WriteError::Stalled(_))), "{name}");
            }
        });
        stopped.finish().unwrap();
        let now = [0, 1, 2].map(|i| db(i).get(b"key").unwrap().unwrap()[0]);
        assert_eq!(now, [1, 0, 2], "{name}");
        sound(&store, name);
    }
}

/// A reader that keeps a value delays the swapper. The swapper marks nothing meanwhile, so it
/// delays no other thread.
#[test]
fn a_swap_that_waits_for_a_value_to_be_dropped_touches_no_database() {
    let (memory, store) = Memory::new();
    store.put(b"key", b"value").unwrap();
    let kept = store.get(b"key").unwrap();
    let theirs = memory.open(2);
    let swapper = std::thread::spawn(move || {
        // After this they are counted.
        fault::passed();
        let refused = theirs.swap_databases(0, 1);
        (refused, fault::passed(), theirs)
    });
    let (refused, passed, theirs) = swapper.join().unwrap();
    assert!(
        matches!(refused, Err(WriteError::Stalled(_))),
        "{refused:?}"
    );
    let touched = |passed: &[(&str, u64)]| passed.iter().any(|(name, _)| *name == "log.swap.noted");
    assert!(!touched(&passed), "{passed:?}");
    drop(kept);
    fault::passed();
    theirs.swap_databases(0, 1).unwrap();
    assert!(touched(&fault::passed()));
    assert!(store.is_empty());
}

/// A committed transaction is not reported as failed because its notes cannot be given back.
#[test]
fn a_committed_change_stays_although_the_arena_is_blocked() {
    let (memory, store) = Memory::new();
    let (theirs, holder) = (memory.open(2), memory.open(3));
    store.put(b"long", &[1; 1 << 20]).unwrap();
    // So many that their notes need an extent.
    const MANY: u32 = 500;
    let committed = Stopped::at("txn.committed", 1, move || {
        theirs.transaction(|t| {
            t.put(b"long", &[2; 1 << 20])?;
            (0..MANY).try_for_each(|i| t.put(&key(i), b"v"))
        })
    });
    let stopped = Stopped::at("arena.claim.refreshed", 1, move || {
        holder.put(b"other", &vec![1; 5 << 20])
    });
    committed.finish().unwrap();
    stopped.finish().unwrap();
    for _ in 0..3 {
        store.compact().unwrap();
    }
    store.put(b"third", &[3; 1 << 20]).unwrap();
    assert_eq!(*store.get(b"long").unwrap().unwrap(), [2; 1 << 20]);
    assert_eq!(store.len(), u64::from(MANY) + 3);
    sound(&store, "");
}

/// A transaction that only reads waits a bounded time for a stopped holder.
#[test]
fn a_reading_transaction_names_the_stopped_holder() {
    let (memory, store) = Memory::new();
    store.put_until(b"k", b"v", Expiry::At(u64::MAX)).unwrap();
    let theirs = memory.open(2);
    let stopped = Stopped::at("log.bucket.locked", 1, move || theirs.put(b"k", b"w"));
    let refused = store.transaction(|t| t.get(b"k")).unwrap_err();
    assert!(matches!(refused, WriteError::Stalled(_)), "{refused}");
    stopped.finish().unwrap();
    assert_eq!(store.transaction(|t| t.get(b"k")).unwrap().unwrap(), b"w");
}

/// A transaction of many new keys locks them a few times, not once for every index page that grows.
#[test]
fn a_transaction_grows_the_index_for_all_its_keys_at_once() {
    let (_memory, store) = Memory::new();
    let many = Stopped::try_at("txn.locked", 40, move || {
        let keys = || (0..5_000).map(key);
        store
            .transaction(|t| keys().try_for_each(|key| t.put(&key, b"v")))
            .unwrap();
        assert_eq!(store.len(), 5_000);
        sound(&store, "");
    });
    assert!(many.is_none(), "it is locked more than 40 times");
}

/// An opening that may only read cannot repair what the dead left. One that may write does.
#[test]
fn openings_that_may_only_read_report_what_the_dead_left() {
    for name in ["txn.locked", "log.swap.marked"] {
        let (memory, store) = Memory::new();
        store.put(b"k", b"v").unwrap();
        let outcome = fault::run(name, Action::Abandon, 1, move || {
            if name.starts_with("txn") {
                store.transaction(|t| t.put(b"k", b"w")).unwrap();
            } else {
                store.swap_databases(0, 1).unwrap();
            }
        });
        assert_eq!(outcome, Outcome::Abandoned);
        memory.script.kill(1);
        let reader = memory.open_to_read(2);
        let refused = |read: Result<(), ReadError>| {
            assert!(matches!(read, Err(ReadError::Reap(_))), "{name}: {read:?}");
        };
        refused(reader.get(b"k").map(|_| ()));
        refused(reader.get_many(&[b"k"], |_, _| ()));
        refused(reader.scan(Cursor::START, 10, |_, _| ()).map(|_| ()));
        let writer = memory.open(3);
        assert!(writer.reap().unwrap() > 0);
        assert_eq!(reader.get(b"k").unwrap().unwrap(), b"v");
        sound(&writer, name);
    }
}

/// A reader that copies and is stopped in the middle blocks no other thread: meanwhile the memory
/// that it reads is reused again and again, and when it continues it returns what is stored then,
/// and no torn bytes.
#[test]
fn a_reader_that_copies_and_stands_still_holds_up_nobody() {
    type Read = fn(&LogStore) -> Vec<u8>;
    let reads: [Read; 6] = [
        |store| {
            let mut value = Vec::new();
            assert!(store.get_into(b"k", &mut value).unwrap());
            value
        },
        |store| {
            let mut found = Vec::new();
            store
                .copy_many(&[b"k"], |_, value| found = value.unwrap().to_vec())
                .unwrap();
            found
        },
        |store| {
            let mut found = Vec::new();
            store
                .scan_copied(Cursor::START, usize::MAX, |_, value| found = value.to_vec())
                .unwrap();
            found
        },
        // The copies that an opening which does not lend makes for its other reads.
        |store| store.get(b"k").unwrap().unwrap().to_vec(),
        |store| {
            let mut found = Vec::new();
            store
                .get_many(&[b"k"], |_, value| found = value.unwrap().to_vec())
                .unwrap();
            found
        },
        |store| {
            let mut found = Vec::new();
            store
                .scan(Cursor::START, usize::MAX, |_, value| found = value.to_vec())
                .unwrap();
            found
        },
    ];
    for read in reads {
        for bytes in [100, 3 << 20] {
            let (memory, store) = Memory::new();
            let value = |round: u32| vec![round as u8; bytes];
            store.put(b"k", &value(1)).unwrap();
            let theirs = memory.open_to_copy(2, Access::ReadOnly);
            let stopped = Stopped::at("log.copy.during", 1, move || read(&theirs));
            // Several times the capacity: it needs the memory that the reader is reading.
            let rounds = (200 << 20) / (bytes + 16) as u32;
            for round in 2..=rounds {
                store.put(b"k", &value(round)).unwrap();
            }
            store.swap_databases(0, 1).unwrap();
            store.swap_databases(0, 1).unwrap();
            assert!(stopped.finish() == value(rounds), "{bytes} bytes");
            sound(&store, "");
        }
    }
}

/// A reader that asks for no value blocks no other thread, either: whether a key is present, when
/// it expires, how many there are.
#[test]
fn a_reader_that_looks_and_stands_still_holds_up_nobody() {
    type Look = fn(&LogStore) -> u64;
    let looks: [Look; 3] = [
        |store| u64::from(store.contains(b"k").unwrap()),
        |store| u64::from(store.expiry(b"k").unwrap() == Some(Expiry::Never)),
        |store| store.try_len().unwrap(),
    ];
    for look in looks {
        let (memory, store) = Memory::new();
        let theirs = memory.open_to_copy(2, Access::ReadWrite);
        // At first it sees that there is no such key, which is no longer true when it continues.
        let stopped = Stopped::at("log.copy.seen", 1, move || look(&theirs));
        let value = vec![1; 1 << 20];
        for _ in 0..200 {
            store.put(b"k", &value).unwrap();
        }
        assert_eq!(stopped.finish(), 1);
        sound(&store, "");
    }
}

/// A batch of removals that fails half-way says how many it has removed.
#[test]
fn removals_of_a_batch_before_its_failure_are_counted() {
    let (memory, store) = Memory::new();
    let keys: Vec<[u8; 4]> = (0..10_000).map(key).collect();
    for some in keys.iter().step_by(2) {
        store.put(some, b"v").unwrap();
    }
    let theirs = memory.open(2);
    let stopped = Stopped::at("log.bucket.locked", 1, move || {
        theirs.put(&key(9_999), b"v")
    });
    let refused = store.remove_many(&keys).unwrap_err();
    assert!(
        matches!(refused.source, WriteError::Stalled(_)),
        "{refused}"
    );
    assert!(refused.done > 0 && refused.done < keys.len(), "{refused}");
    assert_eq!(refused.removed, refused.done.div_ceil(2));
    stopped.finish().unwrap();
    assert_eq!(store.try_len().unwrap(), 5_001 - refused.removed as u64);
    sound(&store, "");
}

/// A nested transaction that dies does not overwrite the outer one's notes of its locks.
#[test]
fn a_transaction_in_the_body_of_one_that_locks_ahead_leaves_its_notes_alone() {
    // Keys that do not share a bucket: otherwise the inner one would wait for the outer.
    let builder = LogStore::builder().entropy([7; 24]);
    let (memory, store) = Memory::built(memory::CAPACITY, memory::CAPACITY, builder);
    for key in [b"outer", b"inner"] {
        store.put(key, b"0").unwrap();
    }
    let outcome = fault::run("txn.noted", Action::Abandon, 1, move || {
        let mut runs = 0;
        let outer = store.transaction(|t| {
            runs += 1;
            t.get(b"outer")?;
            t.put(b"outer", b"2")?;
            if runs <= 16 {
                return store.put(b"outer", b"1");
            }
            let mut runs = 0;
            store.transaction(|t| {
                runs += 1;
                t.get(b"inner")?;
                match runs {
                    1..=16 => store.put(b"inner", b"1"),
                    _ => Ok(()),
                }
            })
        });
        outer.unwrap();
    });
    assert_eq!(outcome, Outcome::Abandoned);
    memory.script.kill(1);
    let second = memory.open(2);
    assert_eq!(second.get(b"outer").unwrap().as_deref(), Some(&b"1"[..]));
    second.put(b"outer", b"3").unwrap();
    sound(&second, "");
}

/// In the body of a transaction that keeps readers out of its own keys, a batch that begins with
/// one of these waits for other threads at the other keys.
#[test]
fn a_batch_read_beside_a_transactions_own_keys_sees_no_torn_value() {
    let builder = LogStore::builder().update_policy(UpdatePolicy::InPlace);
    let builder = builder.entropy([7; 24]);
    let (memory, store) = Memory::built(memory::CAPACITY, memory::CAPACITY, builder);
    let expiry = Expiry::At(u64::MAX >> 1);
    let overtake = || store.put_until(b"own", b"1", expiry);
    overtake().unwrap();
    store.put(b"other", &[b'a'; 100]).unwrap();
    let (mut runs, mut seen, mut waited) = (0, Vec::new(), None);
    let done = store.transaction(|t| {
        runs += 1;
        t.get(b"own")?;
        t.put(b"own", b"2")?;
        if runs <= 16 {
            return overtake();
        }
        let theirs = memory.open(2);
        let overwrites = move || theirs.put(b"other", &[b'b'; 100]);
        let stopped = Stopped::at("log.change.half", 1, overwrites);
        let visit = |_, value: Option<&[u8]>| seen.push(value.map(<[u8]>::to_vec));
        waited = store.copy_many(&[&b"own"[..], b"other"], visit).err();
        stopped.finish()
    });
    done.unwrap();
    assert_eq!(
        seen,
        [Some(b"1".to_vec())],
        "what was overwritten was not waited for"
    );
    assert!(matches!(waited, Some(ReadError::Stalled(_))), "{waited:?}");
    sound(&store, "");
}

/// The check does not report a stopped thread's change that is not yet counted as damage: it names
/// that thread.
#[test]
fn a_thread_stopped_between_a_change_and_its_count_is_named_and_is_no_damage() {
    type Work = fn(&LogStore);
    let put: Work = |store| store.put(b"new", b"v").unwrap();
    let remove: Work = |store| assert!(store.remove(b"k").unwrap());
    let transact: Work = |store| {
        let done = store.transaction(|t| t.put(b"new", b"v"));
        done.unwrap();
    };
    for (name, work) in [
        ("log.published", put),
        ("log.published", remove),
        ("txn.inserted", transact),
    ] {
        let (memory, store) = Memory::new();
        store.put(b"k", b"v").unwrap();
        let theirs = memory.open(2);
        let stopped = Stopped::at(name, 1, move || work(&theirs));
        for checked in [store.check(), store.check_index()] {
            assert!(
                matches!(checked, Err(WriteError::Stalled(_))),
                "{name}: {checked:?}"
            );
        }
        stopped.finish();
        sound(&store, name);
    }
}

/// Copies that compaction has made, and cannot make the index lead to because of a stopped thread,
/// are dead, and counted so.
#[test]
fn vain_copies_of_compaction_do_not_count_as_live() {
    let (memory, store) = Memory::new();
    let value = [7; 4000];
    for i in 0..4000 {
        store.put(&key(i), &value).unwrap();
    }
    // Their grace periods are over before a thread is stopped.
    for _ in 0..3 {
        store.compact().unwrap();
    }
    for i in (1..4000).step_by(2) {
        store.remove(&key(i)).unwrap();
    }
    let theirs = memory.open(2);
    let stopped = Stopped::at("log.bucket.locked", 1, move || {
        theirs.put(&key(0), &[8; 4000])
    });
    let refused = store.compact();
    assert!(
        matches!(refused, Err(WriteError::Stalled(_))),
        "{refused:?}"
    );
    stopped.finish().unwrap();
    store.compact().unwrap();
    let live = (0..4000).filter_map(|i| store.record_bytes(&key(i)).unwrap());
    assert_eq!(store.stats().live_bytes, live.sum());
    sound(&store, "in vain");
}

/// A thread is stopped with the lock of the index' shard. A process of two threads is killed, one
/// of which waited for that lock, and the other was committing. It is repaired.
#[test]
fn the_dead_are_repaired_beside_a_stopped_change_of_shape() {
    let (memory, store) = Memory::new();
    for i in 0..2_000u32 {
        store.put(&i.to_le_bytes(), b"v").unwrap();
    }
    store.put(b"k", b"v").unwrap();
    let theirs = memory.open(3);
    let stopped = Stopped::at("index.resize.prepared", 1, move || {
        (2_000..10_000u32).for_each(|i| theirs.put(&i.to_le_bytes(), b"v").unwrap());
    });
    let dying = Arc::new(memory.open(2));
    let waiting = dying.clone();
    let outcome = fault::run("index.shard.intent", Action::Abandon, 1, move || {
        for i in 20_000..60_000u32 {
            let _ = waiting.put(&i.to_le_bytes(), b"v");
        }
    });
    assert_eq!(outcome, Outcome::Abandoned);
    let committing = dying.clone();
    let outcome = fault::run("txn.locked", Action::Abandon, 1, move || {
        committing.transaction(|t| t.put(b"k", b"w")).unwrap();
    });
    assert_eq!(outcome, Outcome::Abandoned);
    std::mem::forget(dying);
    memory.script.kill(2);
    let observer = memory.open(4);
    assert_eq!(observer.reap().unwrap(), 2);
    assert_eq!(observer.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
    observer.put(b"k", b"x").unwrap();
    stopped.finish();
    assert_eq!(observer.check().unwrap().problems, Vec::<String>::new());
}

/// A thread is stopped with the arena's lock. Two processes are killed that left nothing in the
/// arena. Both are repaired.
#[test]
fn the_dead_are_repaired_beside_a_stopped_claim() {
    // So that the two keys have homes of their own.
    let builder = LogStore::builder().entropy([7; 24]);
    let (memory, store) = Memory::built(memory::CAPACITY, memory::CAPACITY, builder);
    for (process, key) in [(2, b"k"), (3, b"l")] {
        store.put(key, b"v").unwrap();
        let dying = memory.open(process);
        let outcome = fault::run("log.bucket.locked", Action::Abandon, 1, move || {
            dying.put(key, b"w").unwrap();
        });
        assert_eq!(outcome, Outcome::Abandoned);
    }
    let holder = memory.open(4);
    let stopped = Stopped::at("arena.claim.refreshed", 1, move || {
        holder.put(b"large", &[1; 1 << 20])
    });
    memory.script.kill(2);
    memory.script.kill(3);
    let observer = memory.open(5);
    for key in [b"k", b"l"] {
        observer.put(key, b"x").unwrap();
    }
    stopped.finish().unwrap();
    assert_eq!(observer.check().unwrap().problems, Vec::<String>::new());
}
