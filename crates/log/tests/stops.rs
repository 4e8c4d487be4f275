//! A participant that is stopped and not dead: the others get a bounded and explained wait, and
//! nothing is lost when it goes on.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod memory;

use memory::{Memory, Stopped};
use mneme_log::{LogStore, WriteError};

fn key(i: u32) -> [u8; 4] {
    i.to_le_bytes()
}

fn sound(store: &LogStore, context: &str) {
    assert_eq!(
        store.check().unwrap().problems,
        Vec::<String>::new(),
        "{context}"
    );
}

/// A change of shape that fails half-way, because somebody stands in the arena, is undone.
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
            theirs.put(b"large", &[1; 1 << 20])
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
fn what_could_not_be_freed_is_freed_later() {
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
        holder.put(b"other", &[1; 1 << 20])
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
