//! The content of a change feed, replayed into maps, equals that of the store.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use mneme_log::feed::{Assembly, entries};
use mneme_log::{
    Decision, Evict, Expiry, FeedError, LogStore, MIN_CAPACITY, Part, Patch, UpdatePolicy,
    ValueKind, WriteError,
};
use mneme_sys::{Clock, ManualClock};
use mneme_testkit::Random;

use super::memory::{Memory, two_of};
use super::replayed::{Reader, Replayed};
use super::{NOW, POLICIES, key, patch};

/// Two openings of one store with a feed.
pub fn two(policy: UpdatePolicy) -> (Memory, LogStore, LogStore, Arc<ManualClock>) {
    let builder = LogStore::builder().update_policy(policy);
    two_of(builder.change_feed(true))
}

#[test]
fn every_kind_of_change_is_fed() {
    for policy in POLICIES {
        let (_memory, ours, theirs, clock) = two(policy);
        let mut reader = Reader::of(&ours);
        let mut check = |what: &str, work: &dyn Fn(&LogStore)| {
            let before = ours.feed_tail();
            work(&theirs);
            assert!(ours.feed_tail() > before, "{policy:?}: {what}");
            reader.drain();
            reader.replayed.shows(&ours, &format!("{policy:?}: {what}"));
            reader.keep();
            assert_eq!(ours.feed_tail(), Some(reader.feed.durable()));
        };
        check("put", &|s| s.put(b"k", b"v").unwrap());
        check("put again", &|s| s.put(b"k", b"w").unwrap());
        check("put longer", &|s| s.put(b"k", &[7; 6000]).unwrap());
        // The first stores it again, the second changes it in place, the third grows it.
        check("make it patchable", &|s| patch(s, b"k", 5));
        check("patch", &|s| patch(s, b"k", 9));
        check("append", &|s| patch(s, b"k", 6010));
        check("update", &|s| {
            s.update(b"k", |_| Decision::Replace(b"u".to_vec()))
                .map(drop)
                .unwrap();
        });
        check("put until", &|s| {
            s.put_until(b"k", b"v", Expiry::At(NOW + 50)).unwrap();
        });
        check("retime", &|s| {
            assert!(s.set_expiry(b"k", Expiry::At(NOW + 60)).unwrap());
        });
        check("persist", &|s| {
            assert!(s.set_expiry(b"k", Expiry::Never).unwrap());
        });
        check("remove", &|s| assert!(s.remove(b"k").unwrap()));
        let soon = Expiry::At(NOW + 5);
        check("put for a while", &|s| {
            s.put_until(b"t", b"v", soon).unwrap();
        });
        clock.advance_ms(10);
        check("expire", &|s| assert_eq!(s.remove_expired().unwrap(), 1));
        let pairs = [(b"a", b"1"), (b"b", b"2"), (b"a", b"3")];
        check("batch", &|s| s.put_many(&pairs).unwrap());
        check("batch of removals", &|s| {
            assert_eq!(s.remove_many(&[b"a", b"x"]).unwrap(), 1);
        });
        check("transaction", &|s| {
            s.transaction(|t| {
                t.put(b"one", b"1")?;
                t.database(7)?.put(b"two", b"2")?;
                t.remove(b"b")?;
                t.remove(b"absent").map(drop)
            })
            .map_err(|e: WriteError| e)
            .unwrap();
        });
        check("another database", &|s| {
            s.database(5).unwrap().put(b"five", b"5").unwrap();
        });
        check("swap", &|s| s.swap_databases(0, 5).unwrap());
        check("swap with an empty one", &|s| {
            s.database(0).unwrap().clear().unwrap();
            s.swap_databases(0, 7).unwrap();
        });
        let kind = ValueKind::new(1).unwrap();
        let typed = |s: &LogStore, key: &[u8], len, expiry| {
            s.put_kind(key, &vec![3; len], kind, expiry).unwrap();
        };
        check("a typed value", &|s| typed(s, b"k", 40, Expiry::Never));
        check("over a typed value", &|s| typed(s, b"k", 38, Expiry::Never));
        check("a long typed value", &|s| {
            typed(s, b"long", 90_000, Expiry::Never)
        });
        check("update of a typed value", &|s| {
            let longer = Decision::Replace(vec![4; 90]);
            s.update_kind(b"k", kind, |_| longer.clone())
                .map(drop)
                .unwrap();
        });
        check("retiming of a typed value", &|s| {
            assert!(s.set_expiry(b"k", Expiry::At(NOW + 1000)).unwrap());
        });
        check("transaction of a typed value", &|s| {
            s.transaction(|t| {
                t.database(5)?
                    .put_kind(b"typed", &[1; 9], kind, Expiry::Never)
            })
            .map_err(|e: WriteError| e)
            .unwrap();
        });
        check("a string over a typed value", &|s| {
            s.put(b"k", b"v").unwrap()
        });
        check("a typed value over a string", &|s| {
            typed(s, b"k", 1, Expiry::Never)
        });
        check("clear", &|s| s.database(5).unwrap().clear().unwrap());
        check("begin again", &|s| {
            s.database(5).unwrap().put(b"again", b"5").unwrap();
        });
    }
}

/// A step of a random history.
fn step(store: &LogStore, random: &mut Random, clock: &ManualClock) {
    let database = store
        .database([0, 0, 0, 5, 7][random.below(5) as usize])
        .unwrap();
    let k = key(random.below(12) as usize);
    let len = [3, 40, 5000, 3, 40, 5000, 90_000][random.below(7) as usize];
    let value = vec![random.below(250) as u8; len];
    let later = Expiry::At(NOW + 1_000_000 + random.below(9));
    match random.below(14) {
        0..=2 => database.put(&k, &value).unwrap(),
        3 => database.put_until(&k, &value, later).unwrap(),
        4 => _ = database.remove(&k).unwrap(),
        5 => _ = database.set_expiry(&k, later).unwrap(),
        6 => _ = database.set_expiry(&k, Expiry::Never).unwrap(),
        7 | 8 => {
            let at = random.below(5100) as usize;
            let bytes = Cow::Owned(value[..3].to_vec());
            let write = Patch::Write { at, bytes };
            let made = database.update_part(&k, |_| 0..0, |_| write.clone());
            made.unwrap();
        }
        9 => {
            let long = Decision::Replace(value);
            database.update(&k, |_| long.clone()).unwrap();
        }
        10 => {
            let (a, b) = (
                key(random.below(12) as usize),
                key(random.below(12) as usize),
            );
            let moved = store.transaction(|t| {
                let value = t.get(&a)?;
                t.remove(&a)?;
                match value {
                    Some(value) => t.database(5)?.put(&b, &value),
                    None => t.put(&b, b"none"),
                }
            });
            moved.map_err(|e: WriteError| e).unwrap();
        }
        11 if random.below(4) == 0 => database.clear().unwrap(),
        12 if random.below(4) == 0 => store.swap_databases(0, 5).unwrap(),
        _ => clock.advance_ms(1),
    }
}

/// Replaying any suffix onto any newer state ends in the same state.
#[test]
fn any_suffix_onto_any_newer_state_ends_in_the_same_state() {
    for policy in POLICIES {
        let (_memory, ours, theirs, clock) = two(policy);
        let mut reader = Reader::of(&ours);
        for seed in 1..4 {
            let mut random = Random::new(seed);
            for i in 0..150 {
                step([&ours, &theirs][i % 2], &mut random, &clock);
            }
            reader.drain();
            reader.replayed.shows(&ours, "in order");
        }
        let bytes = &reader.bytes;
        let positions = entries(0, bytes).map(|entry| entry.unwrap().position);
        let positions: Vec<u64> = positions.collect();
        let (mut state, mut at) = (Replayed::default(), 0);
        // Occasionally a newer state, and some suffixes from before it.
        let mut random = Random::new(7);
        let mut newer = positions.iter().step_by(41).copied().collect::<Vec<u64>>();
        newer.push(bytes.len() as u64);
        for until in newer {
            state.replay(at, &bytes[at as usize..until as usize]);
            at = until;
            for _ in 0..3 {
                let from = positions[random.below(positions.len() as u64) as usize].min(until);
                let mut again = state.clone();
                // It may begin in the middle of pieces.
                again.pieces = Assembly::default();
                for entry in entries(0, &bytes[..from as usize]) {
                    again.pieces.collect(&entry.unwrap()).unwrap();
                }
                again.replay(from, &bytes[from as usize..]);
                let context = format!("{policy:?}: from {from} onto the state of {until}");
                assert!(
                    again.databases() == reader.replayed.databases(),
                    "{context}"
                );
            }
        }
    }
}

#[test]
fn evictions_are_published_in_the_feed() {
    let builder = LogStore::builder().maintainer(false).change_feed(true);
    let store = builder.capacity(MIN_CAPACITY).open_private().unwrap();
    store.set_eviction(Evict::Lru).unwrap();
    let mut reader = Reader::of(&store);
    let mut i = 0;
    while store.evicted() == 0 {
        store.put(&key(i), &[7; 30_000]).unwrap();
        i += 1;
        if i % 64 == 0 {
            reader.drain();
            reader.keep_nothing();
        }
    }
    reader.drain();
    reader.replayed.shows(&store, "evicted");
}

/// A full store that evicts waits for space in the feed, in which evictions are entered, as any
/// other change does.
#[test]
fn a_full_store_that_evicts_waits_for_the_feed() {
    for evict in [Evict::Lru, Evict::ExpiringSoonest] {
        let (store, clock) = timed();
        store.set_eviction(evict).unwrap();
        let mut reader = Reader::of(&store);
        let put = |i: usize| store.put_until(&key(i), &[7; 600_000], Expiry::At(u64::MAX >> 1));
        // The next one needs the space of another.
        let mut i = 0;
        while store.evicted() == 0 || store.stats().free_bytes > store.stats().reserve_bytes {
            put(i).unwrap();
            reader.drain();
            reader.keep();
            i += 1;
        }
        let retimed = |at| store.set_expiry(&key(i - 1), Expiry::At(at));
        let is_full = hurried(&clock, || {
            (1 << 60..1 << 61).find_map(|at| retimed(at).err())
        });
        assert!(matches!(is_full, Some(WriteError::FeedFull)), "{is_full:?}");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(300));
                for _ in 0..100 {
                    reader.drain();
                    reader.keep();
                    std::thread::sleep(Duration::from_millis(10));
                }
            });
            let stored = put(i);
            assert!(stored.is_ok(), "{evict:?}: {stored:?}");
        });
    }
}

#[test]
fn a_value_too_long_for_an_entry_is_fed_in_pieces() {
    for policy in POLICIES {
        let (_memory, ours, theirs, clock) = two(policy);
        let mut reader = Reader::of(&ours);
        let mut check = |what: &str, work: &dyn Fn(&LogStore)| {
            work(&theirs);
            reader.drain();
            reader.replayed.shows(&ours, &format!("{policy:?}: {what}"));
            assert_eq!(reader.replayed.pieces.bytes(), 0, "{what}");
            reader.keep();
            assert_eq!(reader.feed.clean_position(), ours.feed_tail(), "{what}");
        };
        // Besides the value, which is just short enough, there are a header, the item's head and
        // the key.
        let longest = 65_536 - 8 - 12 - 1;
        for len in [longest, longest + 1, 65_535, 65_536, 150_000, 600_000] {
            check("put", &|s| s.put(b"k", &vec![6; len]).unwrap());
        }
        check("update", &|s| {
            let double = |old: Option<&[u8]>| Decision::Replace(old.unwrap().repeat(2));
            s.update(b"k", double).map(drop).unwrap();
        });
        check("make it patchable", &|s| patch(s, b"k", 5));
        let behind = |s: &LogStore| {
            let write = |old: Option<Part<'_>>| Patch::Write {
                at: old.unwrap().len,
                bytes: Cow::Owned(vec![3; 300_000]),
            };
            s.update_part(b"k", |_| 0..0, write).map(drop).unwrap();
        };
        check("append", &behind);
        let key = vec![8; 65_535];
        let later = |i| Expiry::At(NOW + i);
        check("long key", &|s| s.put(&key, b"v").unwrap());
        check("again", &|s| s.put_until(&key, b"w", later(1_000)).unwrap());
        check("retime", &|s| {
            assert!(s.set_expiry(&key, later(9)).unwrap());
        });
        clock.advance_ms(10);
        check("expire", &|s| assert_eq!(s.remove_expired().unwrap(), 1));
        check("long key", &|s| s.put(&key, b"v").unwrap());
        check("remove", &|s| assert!(s.remove(&key).unwrap()));
        let value = vec![4; 40_000];
        let pairs: Vec<_> = (0..9u8).map(|i| ([i], &value)).collect();
        check("batch", &|s| s.put_many(&pairs).unwrap());
        let values = [7, 5].map(|i| vec![i; 100_000]);
        check("transaction", &|s| {
            let done = s.transaction(|t| {
                t.put(b"a", &values[0])?;
                t.database(5)?.put(b"b", &values[1])?;
                t.remove(b"absent")?;
                t.remove(b"k")
            });
            assert!(done.map_err(|e: WriteError| e).unwrap());
        });
        check("transaction under locks", &|s| {
            let done = s.transaction_on(&[(0, b"a"), (5, b"b")], |t| {
                let value = t.get(b"a")?.unwrap();
                t.database(5)?.put(b"b", &value)?;
                t.put(b"a", &values[1])
            });
            done.map_err(|e: WriteError| e).unwrap();
        });
        assert_eq!(ours.check().unwrap().problems, Vec::<String>::new());
    }
}

/// A store with a small feed, whose clock does not advance.
fn timed() -> (LogStore, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(1_000, NOW));
    let builder = LogStore::builder().maintainer(false).change_feed(true);
    let builder = builder.clock(clock.clone()).capacity(MIN_CAPACITY);
    (builder.open_private().unwrap(), clock)
}

/// Runs `work` while the clock advances quickly: it waits for nothing.
fn hurried<T: Send>(clock: &ManualClock, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let work = scope.spawn(work);
        while !work.is_finished() {
            clock.advance_ms(100);
            std::thread::yield_now();
        }
        work.join().unwrap()
    })
}

/// Changes of several times the ring's size pass through it while it is drained, two at once.
#[test]
fn a_value_longer_than_the_ring_passes_through_it() {
    let (ours, clock) = timed();
    let mut reader = Reader::of(&ours);
    std::thread::scope(|scope| {
        let value = scope.spawn(|| ours.put(b"long", &vec![7; 9 << 20]).unwrap());
        let many = scope.spawn(|| {
            let done = ours.transaction(|t| {
                (0..30_000u32).try_for_each(|i| t.put(&i.to_le_bytes(), &[i as u8; 200]))
            });
            done.map_err(|e: WriteError| e).unwrap();
        });
        while !value.is_finished() || !many.is_finished() {
            reader.drain();
            reader.keep_nothing();
        }
        value.join().unwrap();
        many.join().unwrap();
    });
    reader.drain();
    reader.replayed.shows(&ours, "longer than the ring");
    assert_eq!(ours.len(), 30_001);
    // Without draining, the first pieces fill the ring, and the change fails as a whole.
    let refused = hurried(&clock, || ours.put(b"long", &vec![8; 9 << 20]));
    assert!(matches!(refused, Err(WriteError::FeedFull)), "{refused:?}");
    reader.drain();
    reader.replayed.shows(&ours, "refused");
    assert_eq!(reader.replayed.pieces.bytes(), 0);
    reader.keep_nothing();
    ours.put(b"long", &vec![9; 2 << 20]).unwrap();
    reader.drain();
    reader.replayed.shows(&ours, "once there is space");
}

/// A group of changes is bracketed, even if there is no space for anything else.
#[test]
fn a_full_feed_has_space_for_what_ends_something() {
    let (_memory, ours, theirs, clock) = two(UpdatePolicy::Append);
    let mut reader = Reader::of(&ours);
    let made = ours.feed_together(|| {
        ours.put(b"first", b"v").unwrap();
        reader.drain();
        assert!(reader.replayed.open);
        hurried(&clock, || while theirs.put(b"k", &[7; 60_000]).is_ok() {});
        assert!(!ours.has_feed_space());
        // A change without space for its first piece takes none for the end of its pieces.
        let tails = [(); 2].map(|()| {
            let refused = hurried(&clock, || theirs.put(b"long", &vec![8; 5 << 20]));
            assert!(matches!(refused, Err(WriteError::FeedFull)), "{refused:?}");
            ours.feed_tail()
        });
        assert_eq!(tails[0], tails[1]);
    });
    made.unwrap();
    reader.drain();
    assert!(!reader.replayed.open);
    reader.replayed.shows(&ours, "full");
}

#[test]
fn a_full_feed_says_so_and_goes_on_once_it_is_durable() {
    let (store, clock) = timed();
    let mut reader = Reader::of(&store);
    let mut stored = 0;
    let refused = hurried(&clock, || {
        loop {
            match store.put(&key(stored), &[7; 60_000]) {
                Ok(()) => stored += 1,
                Err(error) => break error,
            }
        }
    });
    assert!(matches!(refused, WriteError::FeedFull), "{refused}");
    assert!(stored as u64 * 60_000 > reader.feed.capacity() / 2);
    assert_eq!(store.get(&key(stored)).unwrap().as_deref(), None);
    reader.drain();
    reader.replayed.shows(&store, "full");
    // A waiting writer continues.
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| store.put(b"waits", &[8; 60_000]).unwrap());
        reader.keep();
        writer.join().unwrap();
    });
    reader.drain();
    reader.replayed.shows(&store, "it goes on");
}

#[test]
fn one_opening_drains_at_a_time_and_the_next_begins_at_the_durable_position() {
    let (memory, ours, theirs, _) = two(UpdatePolicy::Append);
    let mut reader = Reader::of(&ours);
    assert!(matches!(theirs.change_feed(), Err(FeedError::Taken { .. })));
    ours.put(b"kept", b"1").unwrap();
    reader.drain();
    reader.keep();
    theirs.put(b"drained", b"2").unwrap();
    reader.drain();
    let tail = reader.feed.tail();
    let beyond = reader.feed.set_durable(tail + 8);
    assert!(
        matches!(beyond, Err(FeedError::NotDrained { .. })),
        "{beyond:?}"
    );
    let durable = reader.feed.durable();
    let back = reader.feed.set_durable(durable - 8);
    assert!(
        matches!(back, Err(FeedError::NotDrained { .. })),
        "{back:?}"
    );
    let Reader { feed, replayed, .. } = reader;
    drop(feed);
    let mut next = Reader::of(&theirs);
    assert_eq!(next.first, durable);
    next.replayed = replayed;
    next.drain();
    next.replayed.shows(&ours, "drained again");
    let reading = memory.open_to_read(3);
    assert!(matches!(
        reading.change_feed(),
        Err(FeedError::Write(WriteError::ReadOnly))
    ));
    let without = LogStore::builder().maintainer(false).capacity(MIN_CAPACITY);
    let without = without.open_private().unwrap();
    assert!(matches!(without.change_feed(), Err(FeedError::NoFeed)));
    assert_eq!(without.feed_tail(), None);
}

/// Two processes write, lap after lap, while a third drains.
#[test]
fn changes_of_two_processes_come_out_lap_after_lap() {
    let (_memory, ours, theirs, _) = two(UpdatePolicy::InPlace);
    let mut reader = Reader::of(&ours);
    let laps = 3;
    std::thread::scope(|scope| {
        let writers = [(1, &ours), (2, &theirs)].map(|(seed, store)| {
            scope.spawn(move || {
                let mut random = Random::new(seed);
                let capacity = 4 << 20;
                while store.feed_tail().unwrap() < laps * capacity {
                    let value = vec![random.below(250) as u8; random.below(9_000) as usize];
                    // The clock does not advance for a waiting writer, so it never gives up.
                    store.put(&key(random.below(40) as usize), &value).unwrap();
                }
            })
        });
        while writers.iter().any(|writer| !writer.is_finished()) {
            reader.drain();
            reader.keep_nothing();
        }
        writers
            .into_iter()
            .for_each(|writer| writer.join().unwrap());
    });
    reader.drain();
    reader.replayed.shows(&ours, "lap after lap");
}

/// A clock by which every look comes seconds later: waits end at once.
struct Hasty(AtomicU64);

impl Clock for Hasty {
    fn now_ns(&self) -> u64 {
        self.0.fetch_add(2_000_000_000, Relaxed)
    }

    fn wall_ms(&self) -> u64 {
        NOW
    }
}

/// An operation, and its name.
type Operation = (&'static str, fn(&LogStore) -> Result<(), WriteError>);

const OPERATIONS: [Operation; 14] = [
    ("put", |s| s.put(b"k", b"w")),
    ("insert", |s| s.put(b"new", b"v")),
    ("put many", |s| {
        s.put_many(&[(b"k", b"w")]).map_err(|e| e.source)
    }),
    ("put in a new database", |s| {
        s.database(7)?.put(b"first", b"v")
    }),
    ("update", |s| {
        s.update(b"k", |_| Decision::Replace(b"u".to_vec()))
            .map(drop)
    }),
    ("remove", |s| s.remove(b"k").map(drop)),
    ("remove many", |s| {
        s.remove_many(&[b"k"]).map(drop).map_err(|e| e.source)
    }),
    ("retime", |s| {
        s.set_expiry(b"timed", Expiry::At(NOW + 900)).map(drop)
    }),
    ("retime a record without a word for it", |s| {
        s.set_expiry(b"k", Expiry::At(NOW + 900)).map(drop)
    }),
    ("patch", |s| {
        let write = |_: Option<Part<'_>>| Patch::Write {
            at: 9,
            bytes: Cow::Borrowed(b"x"),
        };
        s.update_part(b"long", |_| 0..0, write).map(drop)
    }),
    ("transaction", |s| {
        s.transaction(|t| {
            t.put(b"one", b"1")?;
            t.remove(b"k").map(drop)
        })
    }),
    ("transaction in a new database", |s| {
        s.transaction(|t| t.database(7)?.put(b"first", b"v"))
    }),
    ("clear", |s| s.database(5)?.clear()),
    ("swap", |s| s.swap_databases(0, 5)),
];

#[test]
fn a_full_feed_refuses_every_kind_of_change_and_loses_none() {
    for policy in POLICIES {
        for (what, operation) in OPERATIONS {
            let builder = LogStore::builder().maintainer(false).change_feed(true);
            let builder = builder.clock(Arc::new(Hasty(AtomicU64::new(1))));
            let builder = builder.update_policy(policy).capacity(MIN_CAPACITY);
            let store = builder.open_private().unwrap();
            store.put(b"k", b"v").unwrap();
            let timed = Expiry::At(NOW + 500);
            store.put_until(b"timed", b"v", timed).unwrap();
            store.put(b"long", &[7; 6000]).unwrap();
            patch(&store, b"long", 5);
            store.database(5).unwrap().put(b"five", b"v").unwrap();
            // The last of them takes as little as any entry.
            for bytes in [60_000, 5_000, 400, 40, 0] {
                while store.put(b"", &vec![1; bytes]).is_ok() {}
            }
            let context = format!("{policy:?}: {what}");
            let mut reader = Reader::of(&store);
            reader.drain();
            reader.replayed.shows(&store, &context);
            let tail = store.feed_tail();
            let refused = operation(&store);
            assert!(
                matches!(refused, Err(WriteError::FeedFull)),
                "{context}: {refused:?}"
            );
            reader.drain();
            assert_eq!(store.feed_tail(), tail, "{context}");
            reader.replayed.shows(&store, &context);
            assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
            reader.keep();
            operation(&store).unwrap();
            assert!(store.feed_tail() > tail, "{context}");
            reader.drain();
            reader.replayed.shows(&store, &context);
        }
    }
}

/// Expired records stay until the feed has space, and compaction continues meanwhile.
#[test]
fn compaction_does_not_wait_for_a_full_feed() {
    let clock = Arc::new(Hasty(AtomicU64::new(1)));
    let builder = LogStore::builder().maintainer(false).change_feed(true);
    let store = builder.clock(clock).capacity(MIN_CAPACITY).open_private();
    let store = store.unwrap();
    let mut reader = Reader::of(&store);
    let expired = Expiry::At(NOW - 1);
    for i in 0..120 {
        store
            .put_until(&key(i), &[i as u8; 30_000], expired)
            .unwrap();
        store.put(b"again", &[i as u8; 30_000]).unwrap();
        if i % 40 == 0 {
            reader.drain();
            reader.keep();
        }
    }
    for bytes in [60_000, 5_000, 400, 40, 0] {
        while store.put(b"", &vec![1; bytes]).is_ok() {}
    }
    let tail = store.feed_tail();
    store.compact().unwrap();
    assert_eq!(
        store.remove_expired().unwrap(),
        0,
        "there is no space to say so"
    );
    assert_eq!(store.feed_tail(), tail);
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    reader.drain();
    reader.keep();
    assert_eq!(store.remove_expired().unwrap(), 120);
    reader.drain();
    reader.replayed.now = NOW;
    reader.replayed.shows(&store, "in the end");
}
