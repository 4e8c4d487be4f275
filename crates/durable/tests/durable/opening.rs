//! The content after a restart, and which process may open a directory in which form.

use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use mneme_durable::stepped::Stepped;
use mneme_durable::{DurabilityMode, DurableError, DurableOptions};
use mneme_log::{Evict, UpdatePolicy};
use mneme_sys::ManualClock;
use mneme_sys::medium::RecordingDirectory;
use mneme_testkit::{Random, TestDir};

use crate::{BOTH, Records, builder, change, contents, journals, open, options};

#[test]
fn writes_are_there_after_a_restart() {
    let cases = [
        (UpdatePolicy::Append, DurabilityMode::Journal),
        (UpdatePolicy::InPlace, DurabilityMode::Journal),
        (UpdatePolicy::InPlace, DurabilityMode::Tree),
    ];
    for (policy, mode) in cases {
        let dir = TestDir::new("durable-restart");
        let mut random = Random::new(7);
        let clock = Arc::new(ManualClock::new(0, 1000));
        let open = || {
            let options = options(&dir).mode(mode).clock(clock.clone());
            options
                .open_private(builder().update_policy(policy))
                .unwrap()
        };
        let mut before = Records::new();
        for round in 0..6 {
            let store = open();
            assert_eq!(contents(&store), before, "round {round}");
            change(&store, &mut random, 400);
            // More than the ring holds, in files that are smaller than a quarter of it.
            for i in 0..60u8 {
                store.put(&[i % 9], &[i; 100_000]).unwrap();
            }
            before = contents(&store);
            if round % 2 == 0 {
                store.close().unwrap();
            }
        }
    }
}

/// A load can be cancelled even while it first scans the journal, before everything else.
#[test]
fn a_load_is_ended_before_it_has_seen_the_whole_journal() {
    let dir = TestDir::new("durable-ended");
    let store = open(&dir);
    for key in 0..100u32 {
        store.put(&key.to_le_bytes(), &[7; 1000]).unwrap();
        store.sync().unwrap();
    }
    store.close().unwrap();
    // The scan would end with this damage.
    let journals = journals(&dir);
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::options().write(true).open(&journals[0]);
    file.unwrap().write_all_at(&[1; 64], 40 << 10).unwrap();
    let load = |flow: ControlFlow<()>| {
        let options = options(&dir).progress(Arc::new(move |_| flow));
        options.open_private(builder()).map(drop)
    };
    let whole = load(ControlFlow::Continue(()));
    assert!(
        whole.as_ref().is_err_and(DurableError::is_damage),
        "{whole:?}"
    );
    let ended = load(ControlFlow::Break(()));
    assert!(matches!(ended, Err(DurableError::Stopped)), "{ended:?}");
}

/// Other users of the machine can read no record, in whichever form it is kept.
#[test]
fn files_are_kept_from_others() {
    for mode in BOTH {
        let dir = TestDir::new("durable-modes");
        let store = options(&dir).mode(mode).open_private(builder()).unwrap();
        store.put(b"key", b"value").unwrap();
        store.durability().backup("kept").unwrap();
        store.durability().checkpoint_and_wait().unwrap();
        store.close().unwrap();
        let restored = TestDir::new("durable-modes-restored");
        let to = restored.path().join("there");
        let restore = DurableOptions::new(&to).mode(mode);
        restore.restore_from(dir.path(), "kept").unwrap();
        for directory in [dir.path(), &to] {
            let mut files = std::fs::read_dir(directory).unwrap().peekable();
            assert!(files.peek().is_some());
            for file in files.map(Result::unwrap) {
                let found = file.metadata().unwrap().permissions().mode();
                assert_eq!(found & 0o077, 0, "{mode}: {}", file.path().display());
            }
        }
    }
}

#[test]
fn two_processes_do_not_write_one_directory() {
    let dir = TestDir::new("durable-two");
    let first = open(&dir);
    let refused = options(&dir).open_private(builder()).unwrap_err();
    let own = std::process::id();
    assert!(matches!(refused, DurableError::InUse { pid, .. } if pid == own));
    drop(first);
    open(&dir);
}

/// A directory keeps the form with which it was created; a backup can be restored in the other
/// form.
#[test]
fn a_directory_is_opened_in_the_form_that_it_was_begun_with() {
    let mut random = Random::new(17);
    for mode in BOTH {
        let other = BOTH.into_iter().find(|other| *other != mode).unwrap();
        let dir = TestDir::new("durable-forms");
        let clock = Arc::new(ManualClock::new(0, 1000));
        let at = |mode| options(&dir).mode(mode).clock(clock.clone());
        let store = at(mode).open_private(builder()).unwrap();
        change(&store, &mut random, 300);
        let before = contents(&store);
        store.backup("kept").unwrap();
        store.close().unwrap();
        let refused = at(other).open_private(builder()).unwrap_err();
        assert!(
            matches!(refused, DurableError::OtherMode { found } if found == mode),
            "{refused:?}"
        );
        assert!(
            refused
                .to_string()
                .contains(&format!("--durability {mode}"))
        );
        assert_eq!(DurabilityMode::found_in(dir.path()), Some(mode));
        let moved = TestDir::new("durable-forms-moved");
        let to = options(&moved).mode(other).clock(clock.clone());
        to.restore_from(dir.path(), "kept").unwrap();
        assert_eq!(DurabilityMode::found_in(moved.path()), Some(other));
        for _ in 0..2 {
            let store = to.open_private(builder()).unwrap();
            assert_eq!(contents(&store), before, "{mode} to {other}");
        }
    }
}

/// A store full of records of many sizes, which may not evict, has space for all of them when it is
/// rebuilt, although their places differ.
#[test]
fn a_store_full_of_mixed_records_is_rebuilt_at_its_own_size() {
    for evict in [Evict::None, Evict::ExpiringLru] {
        let directory = RecordingDirectory::new();
        let options = DurableOptions::on(directory.clone());
        let options = options.file_bytes(4 << 20).reserve(0).recycled(0);
        let open = || options.open_stepped(builder().evict(evict));
        let mut store = open().unwrap();
        let mut random = Random::new(23);
        let mut full = 0;
        for written in 0..3000u64 {
            if written == 2000 {
                store.sync();
                store.begin_base(None).unwrap();
            }
            let key = random.below(1200).to_le_bytes();
            let value = [300, 3000, 50_000, 150_000][random.below(4) as usize];
            if store.put(&key, &vec![written as u8; value]).is_err() {
                full += 1;
                store.remove(&random.below(1200).to_le_bytes()).unwrap();
            }
            if written.is_multiple_of(8) {
                store.sync();
                store.step_base().unwrap();
            }
        }
        assert!(full > 0, "it was never full");
        store.sync();
        let before = contents(&store);
        drop(store);
        assert_eq!(contents(&open().unwrap()), before);
    }
}

/// A store that is always full: its files contain both what a checkpoint has seen and what replaced
/// it, twice as much as fits.
#[test]
fn a_store_that_is_full_is_rebuilt_at_its_own_size() {
    for (evict, kept) in [(Evict::Random, None), (Evict::None, Some("kept"))] {
        let directory = RecordingDirectory::new();
        let options = DurableOptions::on(directory.clone());
        let options = options.file_bytes(4 << 20).reserve(0).recycled(0);
        let open = || options.open_stepped(builder().evict(evict)).unwrap();
        let mut store = open();
        let mut written = 0u64;
        let mut churn = |store: &mut Stepped, many: u64| {
            for _ in 0..many {
                written += 1;
                if evict == Evict::None && written > 500 {
                    assert!(store.remove(&(written - 500).to_le_bytes()).unwrap());
                }
                let value = vec![written as u8; 100_000];
                store.put(&written.to_le_bytes(), &value).unwrap();
                if written.is_multiple_of(10) {
                    store.sync();
                }
            }
        };
        churn(&mut store, 600);
        assert!(store.records() < 560, "{} are there", store.records());
        store.begin_base(kept).unwrap();
        while store.step_base().unwrap().is_none() {
            churn(&mut store, 10);
        }
        store.sync();
        let before = contents(&store);
        drop(store);
        if let Some(name) = kept {
            options.restore(name).unwrap();
        }
        let mut again = open();
        assert_eq!((again.eviction(), again.capacity()), (evict, 64 << 20));
        let found = contents(&again);
        if kept.is_none() {
            assert!(
                found
                    .iter()
                    .all(|(key, value)| before.get(key) == Some(value))
            );
        }
        let evicted = again.evicted();
        assert!(
            evicted < 100,
            "{evicted} are gone, and {} are there",
            found.len()
        );
        assert!(found.len() as u64 + evicted >= before.len() as u64);
        again.check().unwrap();
        // Evictions were entered: the evicted records do not come back.
        again.sync();
        drop(again);
        let third = contents(&open());
        assert!(
            third
                .iter()
                .all(|(key, value)| found.get(key) == Some(value))
        );
    }
}
