//! The files are compared with the store.

use std::sync::{Arc, Mutex};

use mneme_collections::{SET, Set, SetEdit};
use mneme_durable::{DurabilityMode, DurableError};
use mneme_log::{Evict, Expiry, collection_of, leaf_numbers};
use mneme_sys::ManualClock;
use mneme_sys::fault::{Action, arm};
use mneme_testkit::{Random, TestDir};

use crate::collections::fill_collections;
use crate::{BOTH, builder, change, journals, open, options};

/// The content of the files is compared with that of the store, and a difference is found.
#[test]
fn files_are_compared_with_the_store() {
    for mode in BOTH {
        let dir = TestDir::new("durable-compared");
        let clock = Arc::new(ManualClock::new(0, 1000));
        let options = options(&dir).mode(mode).clock(clock.clone());
        let store = options.open_private(builder()).unwrap();
        let mut random = Random::new(21);
        fill_collections(store.database(0).unwrap(), &mut random);
        change(&store, &mut random, 1000);
        store.put_until(b"old", b"value", Expiry::At(5000)).unwrap();
        let compare = || store.durability().compare_files();
        assert_eq!(compare().unwrap(), store.records());
        if mode == DurabilityMode::Journal {
            store.durability().checkpoint_and_wait().unwrap();
        }
        change(&store, &mut Random::new(22), 1000);
        store.put_until(b"old", b"value", Expiry::At(5000)).unwrap();
        // Records that have expired are still in both.
        clock.set_wall_ms(6000);
        assert_eq!(compare().unwrap(), store.records());
        assert_eq!(store.eviction(), Evict::None);
    }
}

/// Just after a checkpoint the journal's thread removes files.
#[test]
fn files_are_compared_while_the_journal_lets_some_go() {
    let dir = TestDir::new("durable-compared-removed");
    let options = options(&dir).file_bytes(256 << 10);
    let store = options.open_private(builder()).unwrap();
    for round in 0..100u32 {
        for key in 0..32u32 {
            let value = vec![round as u8; 50_000];
            store.put(&key.to_le_bytes(), &value).unwrap();
        }
        store.durability().checkpoint_and_wait().unwrap();
        assert_eq!(store.durability().compare_files().unwrap(), 32);
    }
}

/// Closing a store does not wait for a comparison, which may take as long as a load.
#[test]
fn a_comparison_ends_when_the_store_is_to_be_closed() {
    for mode in BOTH {
        let dir = TestDir::new("durable-compared-ended");
        let store = options(&dir).mode(mode).open_private(builder()).unwrap();
        store.put(b"key", b"value").unwrap();
        assert_eq!(store.durability().compare_files().unwrap(), 1);
        store.durability().end_checkpoints();
        let ended = store.durability().compare_files();
        assert!(matches!(ended, Err(DurableError::Closing)), "{ended:?}");
    }
}

/// If a process dies in the middle, for lack of memory for instance, the segment still evicts as
/// before.
#[test]
fn a_comparison_leaves_the_eviction_policy_as_it_is() {
    let dir = TestDir::new("durable-compared-evicts");
    let store = options(&dir).open_private(builder().evict(Evict::Lru));
    let store = Arc::new(store.unwrap());
    store.put(b"key", b"value").unwrap();
    let (seen, of) = (Arc::new(Mutex::new(None)), Arc::clone(&store));
    let noted = Arc::clone(&seen);
    let look = move || *noted.lock().unwrap() = Some(of.eviction());
    arm("durable.recover.chunk", Action::Call(Arc::new(look)), 1);
    store.durability().compare_files().unwrap();
    assert_eq!(*seen.lock().unwrap(), Some(Evict::Lru));
}

/// A change that is missing in the files is found, whatever became of it.
#[test]
fn files_that_lack_a_change_are_found() {
    let dir = TestDir::new("durable-differs");
    let store = open(&dir);
    change(&store, &mut Random::new(23), 300);
    store.put(b"last", b"value").unwrap();
    store.sync().unwrap();
    // The last frame is not the written one.
    let journals = journals(&dir);
    let last = journals.last().unwrap();
    let bytes = std::fs::read(last).unwrap();
    let at = bytes.windows(4).rposition(|word| word == b"last").unwrap();
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::options().write(true).open(last).unwrap();
    file.write_all_at(b"lost", at as u64).unwrap();
    let compared = store.durability().compare_files();
    let is_found = match &compared {
        Err(DurableError::Differs { .. }) => true,
        Err(error) => error.is_damage(),
        Ok(_) => false,
    };
    assert!(is_found, "{compared:?}");
}

/// Also one that only the files have.
#[test]
fn an_element_of_a_large_value_that_differs_is_found() {
    for mode in BOTH {
        for is_gone in [false, true] {
            let dir = TestDir::new("durable-compared-elements");
            let store = options(&dir).mode(mode).open_private(builder()).unwrap();
            let members: Vec<String> = (0..600).map(|i| format!("member {i}")).collect();
            let named: Vec<&[u8]> = members.iter().map(String::as_bytes).collect();
            Set::of(&store, b"set").unwrap().add_many(&named).unwrap();
            assert_eq!(store.kind(b"set").unwrap(), Some(SET.large()));
            let compare = || store.durability().compare_files();
            assert_eq!(compare().unwrap(), 1);
            // A change made in this way is not in the feed.
            store
                .transaction(|t| {
                    let main = t.read(b"set", |stored| collection_of(stored.unwrap().value))?;
                    let id = main.unwrap();
                    let mut anchor = t.anchor(id)?.unwrap();
                    let number = leaf_numbers(anchor.leaves).next().unwrap();
                    let leaf = t.read_inner(id, number, |leaf| leaf.unwrap().to_vec())?;
                    let mut leaf = SetEdit::of(&leaf).unwrap();
                    let first = leaf.read().unwrap().members().next().unwrap();
                    let first = first.unwrap().to_vec();
                    assert!(leaf.remove(&first).unwrap());
                    if is_gone {
                        anchor.count -= 1;
                    } else {
                        assert!(leaf.add(b"another").unwrap());
                    }
                    t.put_inner(id, number, &leaf.into_image())?;
                    t.set_anchor(id, &anchor)
                })
                .unwrap();
            let compared = compare();
            let is_found = matches!(&compared, Err(DurableError::Differs { what }) if what.contains("\"set\""));
            assert!(is_found, "{compared:?}");
        }
    }
}

/// The store frees its elements one after the other, the files all at once.
#[test]
fn a_large_value_that_is_being_freed_is_no_difference() {
    for mode in BOTH {
        let dir = TestDir::new("durable-compared-freed");
        let store = options(&dir).mode(mode).open_private(builder()).unwrap();
        let store = Arc::new(store);
        let members: Vec<String> = (0..9_000).map(|i| format!("member {i}")).collect();
        let named: Vec<&[u8]> = members.iter().map(String::as_bytes).collect();
        for key in [&b"set"[..], b"other"] {
            Set::of(&store, key).unwrap().add_many(&named).unwrap();
        }
        assert!(store.remove(b"set").unwrap());
        let (compared, of) = (Arc::new(Mutex::new(None)), Arc::clone(&store));
        let noted = Arc::clone(&compared);
        let compare = move || {
            let durability = of.durability();
            let compare = std::thread::scope(|scope| {
                let compare = scope.spawn(|| durability.compare_files());
                compare.join().unwrap()
            });
            *noted.lock().unwrap() = Some(compare);
        };
        arm(
            "sweep.collections.slice",
            Action::Call(Arc::new(compare)),
            1,
        );
        assert!(store.sweep_collections().unwrap());
        let compared = compared.lock().unwrap().take().unwrap();
        assert_eq!(compared.unwrap(), 1);
        assert_eq!(store.durability().compare_files().unwrap(), 1);
    }
}
