//! The files are compared with the store.

use std::sync::Arc;

use mneme_durable::{DurabilityMode, DurableError};
use mneme_log::{Evict, Expiry};
use mneme_sys::ManualClock;
use mneme_testkit::{Random, TestDir};

use crate::{BOTH, builder, change, journals, open, options};

/// What the files hold is compared with what the store holds, and a difference is found.
#[test]
fn files_are_compared_with_the_store() {
    for mode in BOTH {
        let dir = TestDir::new("durable-compared");
        let clock = Arc::new(ManualClock::new(0, 1000));
        let options = options(&dir).mode(mode).clock(clock.clone());
        let store = options.open_private(builder()).unwrap();
        change(&store, &mut Random::new(21), 1000);
        store.put_until(b"old", b"value", Expiry::At(5000)).unwrap();
        let compare = || store.durability().compare_files();
        assert_eq!(compare().unwrap(), store.records());
        if mode == DurabilityMode::Journal {
            store.durability().checkpoint_and_wait().unwrap();
        }
        change(&store, &mut Random::new(22), 1000);
        store.put_until(b"old", b"value", Expiry::At(5000)).unwrap();
        // Records that have expired lie there still, in both.
        clock.set_wall_ms(6000);
        assert_eq!(compare().unwrap(), store.records());
        assert_eq!(store.eviction(), Evict::None);
    }
}

/// Right behind a checkpoint the journal's thread removes files.
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

/// A store that is to be closed waits for no comparison, which may take as long as a load.
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

/// A process that dies in the middle, for want of memory say, leaves a segment that evicts as
/// before.
#[test]
fn a_comparison_leaves_the_eviction_policy_as_it_is() {
    use mneme_sys::fault::{Action, arm};
    use std::sync::Mutex;

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

/// A change that the files have not is found, whatever became of it.
#[test]
fn files_that_lack_a_change_are_found() {
    let dir = TestDir::new("durable-differs");
    let store = open(&dir);
    change(&store, &mut Random::new(23), 300);
    store.put(b"last", b"value").unwrap();
    store.sync().unwrap();
    // The last frame is not what was written.
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

/// A large value that is gone is freed in slices. Between two of them the files are as the store.
#[test]
fn files_are_compared_while_a_large_value_is_freed() {
    use mneme_collections::Hash;
    use mneme_sys::fault::{Action, arm};
    use std::sync::Mutex;

    for mode in BOTH {
        let dir = TestDir::new("durable-compared-swept");
        let store = Arc::new(options(&dir).mode(mode).open_private(builder()).unwrap());
        let names: Vec<_> = (0..2000).map(|i| format!("field:{i}")).collect();
        let pairs: Vec<_> = names.iter().map(|n| (n.as_bytes(), &[7; 100][..])).collect();
        Hash::of(&store, b"h").unwrap().set_many(&pairs).unwrap();
        assert_eq!(store.durability().compare_files().unwrap(), 1);
        store.remove(b"h").unwrap();
        let (seen, of) = (Arc::new(Mutex::new(None)), Arc::clone(&store));
        let noted = Arc::clone(&seen);
        let compare = move || {
            let of = Arc::clone(&of);
            let compared = std::thread::spawn(move || of.durability().compare_files());
            *noted.lock().unwrap() = Some(compared.join().unwrap());
        };
        arm("sweep.collections.slice", Action::Call(Arc::new(compare)), 1);
        assert!(store.sweep_collections().unwrap());
        let compared = seen.lock().unwrap().take().unwrap();
        assert!(compared.is_ok(), "{mode:?}: {compared:?}");
    }
}

/// The same, end to end, as the unit test of the replay: while a base file is written, large hashes
/// are renamed to keys of small ones that were changed before.
#[test]
fn nothing_of_a_small_hash_is_in_the_large_one_that_took_its_key_beside_a_base_file() {
    use mneme_collections::Hash;
    use mneme_log::{Stored, WriteError};

    let dir = TestDir::new("durable-base-renamed");
    let store = options(&dir)
        .checkpoint_rate(4 << 20)
        .open_private(builder())
        .unwrap();
    let names: Vec<_> = (0..600).map(|i| format!("field:{i}")).collect();
    let pairs: Vec<_> = names.iter().map(|n| (n.as_bytes(), &[7; 100][..])).collect();
    const KEYS: usize = 10;
    let (large, small) = (|i| format!("large:{i}"), |i| format!("small:{i}"));
    for i in 0..KEYS {
        let many: [(&[u8], &[u8]); 3] = [(b"a", b"1"), (b"b", &[2; 50]), (b"c", &[3; 50])];
        (Hash::of(&store, large(i).as_bytes()).unwrap().set_many(&pairs)).unwrap();
        (Hash::of(&store, small(i).as_bytes()).unwrap().set_many(&many)).unwrap();
    }
    for i in 0..200u32 {
        store.put(&i.to_le_bytes(), &[5; 50_000]).unwrap();
    }
    store.durability().checkpoint().unwrap();
    for i in 0..KEYS {
        let (large, small) = (large(i), small(i));
        let (large, small) = (large.as_bytes(), small.as_bytes());
        Hash::of(&store, small).unwrap().set(b"old", b"v").unwrap();
        store
            .transaction(|t| {
                let copy = |s: Stored<'_>| (s.value.to_vec(), s.kind, s.expiry);
                let (value, kind, expiry) = t.read(large, |s| s.map(copy))?.unwrap();
                t.remove(large)?;
                t.database(0)?.put_kind(small, &value, kind, expiry)?;
                Ok::<_, WriteError>(())
            })
            .unwrap();
    }
    let running = store.durability().stats().checkpoints.running.is_some();
    mneme_testkit::wait_until("the checkpoint", || {
        store.durability().stats().checkpoints.running.is_none()
    });
    let lens = |store: &mneme_log::LogStore| -> Vec<usize> {
        (0..KEYS)
            .map(|i| Hash::of(store, small(i).as_bytes()).unwrap().len().unwrap())
            .collect()
    };
    let before = lens(&store);
    let compared = store.durability().compare_files();
    eprintln!("running {running}; compared: {compared:?}");
    drop(store);
    let store = open(&dir);
    assert_eq!(lens(&store), before);
}
