//! A store in regions that survive the machine's restart: what the next boot does with it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod memory;

use memory::{Memory, sound};
use mneme_log::{Expiry, LogStore, OpenError};
use mneme_sys::Access;

fn key(i: u32) -> [u8; 4] {
    i.to_le_bytes()
}

/// Records of several lengths in two databases, some of which were removed, replaced, or will
/// expire.
fn fill(store: &LogStore) {
    let other = store.database(1).unwrap();
    for i in 0..3_000 {
        store.put(&key(i), &key(i)).unwrap();
        other.put(&key(i), &[7; 300]).unwrap();
    }
    for i in 0..1_000 {
        store.put(&key(i), &key(i + 1)).unwrap();
        assert!(other.remove(&key(i)).unwrap());
    }
    store.put(b"large", &vec![9; 5 << 20]).unwrap();
    let late = Expiry::At(1 << 50);
    store.put_until(b"late", b"v", late).unwrap();
}

fn filled(store: &LogStore, context: &str) {
    let other = store.database(1).unwrap();
    assert_eq!((store.len(), other.len()), (3_002, 2_000), "{context}");
    for i in 0..3_000 {
        let value = if i < 1_000 { i + 1 } else { i };
        let found = store.get(&key(i)).unwrap();
        assert_eq!(found.as_deref(), Some(&key(value)[..]), "{context}: {i}");
        let found = other.get(&key(i)).unwrap();
        assert_eq!(found.is_some(), i >= 1_000, "{context}: {i}");
    }
    let large = store.get(b"large").unwrap().unwrap();
    assert!(large.len() == 5 << 20 && large.iter().all(|b| *b == 9));
    assert!(store.expiry(b"late").unwrap().is_some());
}

#[test]
fn a_store_that_all_have_left_is_whole_after_a_reboot() {
    let (memory, store) = Memory::new();
    fill(&store);
    drop((memory.open(2), store));
    for boot in ["one", "another"] {
        memory.reboot();
        let store = memory.open(3);
        filled(&store, boot);
        sound(&store, boot);
        store.put(b"late", boot.as_bytes()).unwrap();
        store.put_until(b"late", b"v", Expiry::At(1 << 50)).unwrap();
        store.compact().unwrap();
        filled(&memory.open_to_read(4), boot);
        filled(&memory.open(5), boot);
        sound(&store, boot);
    }
}

/// It must not store to the data, so it cannot recover the store. The error says which openings
/// can.
#[test]
fn an_opening_that_may_only_read_asks_for_one_that_may_write() {
    let (memory, store) = Memory::new();
    fill(&store);
    drop(store);
    memory.reboot();
    for _ in 0..2 {
        let refused = memory.try_open_for(2, Access::ReadOnly).err().unwrap();
        assert!(matches!(refused, OpenError::NotRecovered), "{refused}");
    }
    drop(memory.open(3));
    filled(&memory.open_to_read(2), "opened once for writing");
}

mod deaths {
    use super::*;

    /// Places whose operation only the lost intent could finish.
    const REFUSED: [&str; 5] = [
        "log.bucket.locked",
        "log.published",
        "log.counted",
        "log.open.begun",
        "log.open.adopted",
    ];

    /// Places at which the state itself shows how to finish, or at which the operation has not
    /// begun, or is done.
    const ENDED: [&str; 7] = [
        "log.intent",
        "log.head.locked",
        "log.reserve.header",
        "log.reserve.bump",
        "log.body.after",
        "log.open.claimed",
        "log.bucket.unlocked",
    ];

    /// A store in which process 1 died at `name`, while storing.
    fn died_storing(name: &'static str) -> Memory {
        let (memory, store) = Memory::new();
        fill(&store);
        // A record that fills the rest of the head's segment, so that it needs a new log segment.
        let large = name.starts_with("log.open");
        let value = vec![1; if large { 400 << 10 } else { 8 }];
        memory.abandon(1, name, move || {
            for i in 0..20 {
                store.put(&key(1 << 20 | i), &value).unwrap();
            }
        });
        memory
    }

    fn stays_refused(memory: &Memory, name: &str) {
        let before = memory.bytes();
        for process in [2, 3] {
            let refused = memory.try_open(process).err();
            let refused = refused.unwrap_or_else(|| panic!("{name}: opened"));
            assert!(
                matches!(refused, OpenError::NotClean(_)),
                "{name}: {refused}"
            );
            assert!(!refused.is_damage());
        }
        let refused = memory.try_open_for(4, Access::ReadOnly).err().unwrap();
        assert!(matches!(refused, OpenError::NotRecovered), "{refused}");
        assert!(before == memory.bytes(), "{name}: changed");
    }

    #[test]
    fn a_store_that_only_an_intent_could_complete_is_refused_untouched() {
        for name in REFUSED {
            let memory = died_storing(name);
            memory.reboot();
            stays_refused(&memory, name);
            memory.reboot();
            stays_refused(&memory, name);
        }
    }

    #[test]
    fn a_change_that_records_how_it_ends_is_completed() {
        for name in ENDED {
            let memory = died_storing(name);
            memory.reboot();
            let store = memory.open(2);
            sound(&store, name);
            for i in 0..20 {
                store.remove(&key(1 << 20 | i)).unwrap();
            }
            filled(&store, name);
            store.compact().unwrap();
            sound(&store, name);
        }
    }

    /// The lock for freeing space in the feed has an owner from the last boot, whose slot another
    /// thread has now.
    #[test]
    fn a_feed_is_freed_after_a_reboot_whoever_died_freeing_it() {
        let (memory, store) = Memory::new();
        let others: Vec<_> = (2..6).map(|process| memory.open(process)).collect();
        let listener = store.listen().unwrap();
        let dying = memory.open(9);
        // The first change creates an index, which is entered while no bucket is locked.
        memory.abandon(9, "log.feed.blanked", move || dying.put(b"first", b"v"));
        drop((listener, store, others));
        memory.reboot();
        let stores: Vec<_> = (10..20).map(|process| memory.open(process)).collect();
        stores.iter().for_each(|s| s.put(b"second", b"v").unwrap());
        let mut listener = stores[0].listen().unwrap();
        listener.drain(10, |_| {}).unwrap();
        let mut received = Vec::new();
        stores[1].put(b"third", b"v").unwrap();
        let receive = |n: mneme_log::Notification<'_>| received.push(format!("{n:?}"));
        listener.drain(10, receive).unwrap();
        assert!(
            received.len() == 1 && received[0].contains("Stored"),
            "{received:?}"
        );
    }

    /// Also in segments whose grace period only the dead thread blocked: after the reboot it is not
    /// known that it was pinned.
    #[test]
    fn records_not_published_before_a_reboot_are_freed() {
        let (memory, store) = Memory::new();
        drop(store);
        let value = vec![7; 400 << 10];
        for round in 0..6 {
            let (dying, other) = (memory.open(10 + round), memory.open(20 + round));
            let written = value.clone();
            memory.abandon(10 + round, "txn.intent", move || {
                dying.transaction(|t| (0..40).try_for_each(|i| t.put(&key(i), &written)))
            });
            // It gives the segments of the transaction their grace period, and repairs nothing.
            other.compact().unwrap();
            drop(other);
            memory.reboot();
        }
        let store = memory.open(2);
        for i in 0..100 {
            store.put(&key(i), &value).unwrap();
        }
        sound(&store, "after the reboots");
    }

    /// A process that was repaired in the same boot has left nothing.
    #[test]
    fn a_process_reaped_before_the_last_one_left_leaves_nothing() {
        for name in REFUSED {
            let memory = died_storing(name);
            memory.open(2).reap().unwrap();
            memory.reboot();
            let store = memory.open(3);
            sound(&store, name);
            assert_eq!(store.database(1).unwrap().len(), 2_000);
        }
    }

    /// Three processes died while they held a head, a swap and a shard. None was repaired.
    fn died_in_locks() -> Memory {
        let (memory, one) = Memory::new();
        fill(&one);
        let (two, three) = (memory.open(2), memory.open(3));
        three.database(2).unwrap().put(b"k", b"v").unwrap();
        memory.abandon(3, "index.root.listed", move || {
            three.database(2).unwrap().clear()
        });
        memory.abandon(1, "log.head.locked", move || one.put(b"k", b"v"));
        memory.abandon(2, "log.swap.marked", move || two.swap_databases(0, 1));
        memory
    }

    #[test]
    fn the_locks_of_an_earlier_boot_are_nobodys() {
        let memory = died_in_locks();
        memory.reboot();
        let store = memory.open(4);
        filled(&store, "locks");
        store.swap_databases(0, 1).unwrap();
        store.swap_databases(0, 1).unwrap();
        store.put(b"k", b"v").unwrap();
        store.database(2).unwrap().clear().unwrap();
        store.compact().unwrap();
        sound(&store, "locks");
    }

    /// If an opening dies while it recovers the store, the next one starts again, in this boot or
    /// in the next.
    #[test]
    fn an_interrupted_recovery_is_repeated() {
        let points = [
            "sync.rebuild.cleared",
            "sync.attach.claimed",
            "log.recover.begin",
            "arena.restore.summary",
            "arena.recover.reset",
            "log.recover.locks",
            "log.swap.unmarked",
            "log.recover.swap",
            "log.recover.shard",
            "log.recover.heads",
            "log.recover.segments",
            "log.recover.end",
            "arena.recover.derived",
            "arena.recover.marked",
        ];
        for name in points {
            for reboots in [false, true] {
                let memory = died_in_locks();
                memory.reboot();
                memory.abandon(4, name, memory.opener(4));
                if reboots {
                    memory.reboot();
                }
                let store = memory.open(5);
                filled(&store, name);
                store.reap().unwrap();
                sound(&store, name);
            }
        }
    }

    /// A log segment that was about to be given back is given back.
    #[test]
    fn frames_that_were_being_freed_are_freed() {
        for name in ["log.free.marked", "log.free.released"] {
            let (memory, store) = Memory::new();
            fill(&store);
            let free = store.stats().free_bytes;
            store.put(b"gone", &vec![1; 8 << 20]).unwrap();
            store.remove(b"gone").unwrap();
            memory.abandon(1, name, move || {
                for _ in 0..4 {
                    store.compact().unwrap();
                }
            });
            memory.reboot();
            let store = memory.open(2);
            sound(&store, name);
            filled(&store, name);
            store.compact().unwrap();
            store.compact().unwrap();
            // A compactor now has a log segment of its own, if it had none.
            assert!(store.stats().free_bytes + (4 << 20) >= free, "{name}");
            sound(&store, name);
        }
    }
}
