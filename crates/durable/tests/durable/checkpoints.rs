//! When checkpoints begin, and what they replace.

use std::sync::Arc;

use mneme_durable::stepped::Stepped;
use mneme_durable::{DurabilityMode, DurableOptions, SyncPolicy};
use mneme_log::Expiry;
use mneme_sys::ManualClock;
use mneme_sys::medium::{DirectoryOperation, Operation, RecordingDirectory};
use mneme_testkit::{Random, TestDir, wait_until};

use crate::{Records, builder, change, contents, open, options};

/// The journal before a checkpoint is removed, and its content is still there.
#[test]
fn checkpoints_stand_for_what_goes() {
    let dir = TestDir::new("durable-checkpoints");
    let mut random = Random::new(11);
    let clock = Arc::new(ManualClock::new(0, 1000));
    let open = || {
        let options = options(&dir).clock(clock.clone()).recycled(0);
        options.open_private(builder()).unwrap()
    };
    let mut before = Records::new();
    for round in 0..5 {
        let store = open();
        assert_eq!(contents(&store), before, "round {round}");
        change(&store, &mut random, 200);
        let expired = store.put_until(b"expired", b"value", Expiry::At(5));
        expired.unwrap();
        let report = match round {
            3 => store.backup("kept").unwrap(),
            _ => store.durability().checkpoint_and_wait().unwrap(),
        };
        assert!(report.records > 0 && report.read >= report.begin);
        if round == 3 {
            let kept = std::fs::metadata(dir.path().join("kept.backup")).unwrap();
            assert_eq!(report.bytes, kept.len());
        }
        change(&store, &mut random, 100);
        before = contents(&store);
        let stats = store.durability().stats().checkpoints;
        assert_eq!(
            (stats.published, stats.failed, stats.last),
            (1, 0, Some(report))
        );
        store.close().unwrap();
        let names = std::fs::read_dir(dir.path()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let bases = names.filter(|name| name.ends_with(".base")).count();
        assert_eq!(bases, 1, "older ones are gone");
    }
    assert!(dir.path().join("kept.backup").exists());
}

/// A caller that requests a checkpoint, and waits until none runs, has one: it counts as running
/// before the thread that writes it has woken.
#[test]
fn a_checkpoint_runs_from_when_it_is_asked_for() {
    let dir = TestDir::new("durable-asked");
    let store = open(&dir);
    store.put(b"key", b"value").unwrap();
    let stats = || store.durability().stats().checkpoints;
    for number in 1..=10 {
        store.durability().checkpoint().unwrap();
        wait_until("no checkpoint runs", || stats().running.is_none());
        assert_eq!(stats().published, number);
    }
    store.close().unwrap();
}

/// Writers continue while checkpoints begin because of the journal's length.
#[test]
fn checkpoints_begin_by_themselves_beside_writers() {
    let dir = TestDir::new("durable-automatic");
    let store = options(&dir)
        .checkpoint_after(1 << 20)
        .recycled(0)
        .open_private(builder())
        .unwrap();
    let stats = || store.durability().stats();
    let mut i = 0u64;
    wait_until("two checkpoints", || {
        for _ in 0..200 {
            let value = i.to_le_bytes().repeat(125);
            store.put(&(i % 300).to_le_bytes(), &value).unwrap();
            i += 1;
        }
        stats().checkpoints.published >= 2
    });
    let before = contents(&store);
    assert_eq!(stats().checkpoints.failed, 0);
    assert!(stats().journal_first > 0, "older files are gone");
    store.close().unwrap();
    assert_eq!(contents(&open(&dir)), before);
}

/// Files that a checkpoint replaces are removed while a backup reads the journal.
#[test]
fn a_backup_behind_a_checkpoint_misses_no_file() {
    let dir = TestDir::new("durable-behind");
    let options = options(&dir).file_bytes(256 << 10).recycled(0);
    let store = options.open_private(builder()).unwrap();
    for round in 0..20 {
        for i in 0..60_u32 {
            store.put(&i.to_le_bytes(), &[7; 100_000]).unwrap();
        }
        for i in 0..60_u32 {
            store.remove(&i.to_le_bytes()).unwrap();
        }
        store.sync().unwrap();
        store.durability().checkpoint_and_wait().unwrap();
        let kept = store.backup("kept");
        assert!(kept.is_ok(), "round {round}: {kept:?}");
    }
}

/// Changes after the clearing of a large database wait no longer than those after that of a small
/// one.
#[test]
fn a_tree_that_goes_keeps_nothing_waiting() {
    let directory = RecordingDirectory::new();
    let options = DurableOptions::on(directory.clone()).mode(DurabilityMode::Tree);
    let open = || options.open_stepped(builder()).unwrap();
    let mut store = open();
    for i in 0..3000_u32 {
        store.put(&i.to_le_bytes(), &[7; 1000]).unwrap();
    }
    store.sync();
    let syncs = || {
        let trace = directory.trace();
        let is_sync = |operation: &DirectoryOperation| {
            matches!(
                operation,
                DirectoryOperation::File {
                    operation: Operation::Sync,
                    ..
                }
            )
        };
        trace.positions(is_sync).len()
    };
    let before = syncs();
    store.database(0).unwrap().clear().unwrap();
    store.put(b"key", b"value").unwrap();
    store.sync();
    let made = syncs() - before;
    assert!(made <= 10, "{made} syncs");
    drop(store);
    assert_eq!(open().records(), 1);
}

/// While a change is entered in pieces a base file would begin where the last one did, and no part
/// of the journal could be removed for it: none is begun because of the journal's length.
#[test]
fn no_checkpoint_is_begun_again_where_the_last_one_began() {
    use mneme_sys::fault::{Action, arm};
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    let dir = TestDir::new("durable-again");
    let options = options(&dir).checkpoint_after(1 << 20).recycled(0);
    let store = options.open_private(builder()).unwrap();
    store.put(b"before", b"1").unwrap();
    let durability = store.durability();
    durability.checkpoint_and_wait().unwrap();
    let published = || durability.stats().checkpoints.published;
    let (sends, goes_on) = (AtomicBool::new(false), AtomicBool::new(false));
    let (sends, goes_on) = (Arc::new(sends), Arc::new(goes_on));
    std::thread::scope(|scope| {
        let (tells, waits) = (Arc::clone(&sends), Arc::clone(&goes_on));
        let long = &store;
        scope.spawn(move || {
            let hold = move || {
                tells.store(true, SeqCst);
                wait_until("it goes on", || waits.load(SeqCst));
            };
            arm("log.feed.piece", Action::Call(Arc::new(hold)), 1);
            long.put(b"long", &[3; 200_000]).unwrap();
        });
        wait_until("a piece is sent", || sends.load(SeqCst));
        for i in 0..3000_u32 {
            store.put(&(i % 300).to_le_bytes(), &[7; 1000]).unwrap();
        }
        store.sync().unwrap();
        // Without the rule it would write as many in between.
        for number in 2..=20 {
            durability.checkpoint_and_wait().unwrap();
            assert_eq!(published(), number);
        }
        goes_on.store(true, SeqCst);
        wait_until("one begins behind that", || published() > 20);
    });
    let before = contents(&store);
    store.close().unwrap();
    assert_eq!(contents(&open(&dir)), before);
}

/// A thread that stops in the middle of changes that belong together does not block another that
/// has requested a base file.
#[test]
fn a_base_file_does_not_wait_for_ever_for_changes_that_belong_together() {
    let dir = TestDir::new("durable-endless");
    let store = options(&dir).open_private(builder()).unwrap();
    store.put(b"before", b"1").unwrap();
    let durability = store.durability();
    // After this it is known where a base file may begin.
    durability.checkpoint_and_wait().unwrap();
    std::thread::scope(|scope| {
        let (begin, begun) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let (store, gate) = (&store, durability.gate());
        scope.spawn(move || {
            let made = store.feed_together(|| {
                store.put(b"within", b"2").unwrap();
                begin.send(()).unwrap();
                // Until the other end is dropped.
                let _ = ended.recv();
            });
            made.unwrap();
        });
        begun.recv().unwrap();
        let refused = durability.checkpoint_and_wait().unwrap_err();
        assert!(refused.to_string().contains("have not ended"), "{refused}");
        drop(end);
        wait_until("they have ended", || gate.durable() == gate.tail());
    });
    durability.checkpoint_and_wait().unwrap();
}

/// However many groups of changes follow one another: a base file ends with one of them, and does
/// not wait until there are none.
#[test]
fn a_base_file_is_published_beside_groups_without_end() {
    for kept in [None, Some("kept")] {
        let options = DurableOptions::on(RecordingDirectory::new());
        let options = options.file_bytes(4 << 20).reserve(0).recycled(0);
        let mut store = options.open_stepped(builder()).unwrap();
        let mut written = 0u64;
        let mut group = |store: &Stepped| {
            written += 1;
            let both = store.feed_together(|| {
                for key in [b"one", b"two"] {
                    store.put(key, &written.to_le_bytes()).unwrap();
                }
            });
            both.unwrap();
        };
        group(&store);
        store.sync();
        store.begin_base(kept).unwrap();
        let published = (0..50).find_map(|_| {
            group(&store);
            store.sync();
            // Not drained at the time of the check.
            group(&store);
            store.step_base().unwrap()
        });
        let report = published.expect("it waits for ever");
        assert!(report.read > report.begin);
        store.sync();
        let before = contents(&store);
        drop(store);
        let again = options.open_stepped(builder()).unwrap();
        assert_eq!(contents(&again), before);
        drop(again);
        if let Some(name) = kept {
            options.restore(name).unwrap();
            let restored = contents(&options.open_stepped(builder()).unwrap());
            let mut values = restored.values();
            assert_eq!(values.next(), values.next());
            assert_eq!(restored.len(), 2);
        }
    }
}

/// A checkpoint of a tree is complete once what was written is durable, and writes no file.
#[test]
fn a_checkpoint_of_a_tree_is_a_commit() {
    let dir = TestDir::new("durable-tree-checkpoint");
    let store = options(&dir)
        .mode(DurabilityMode::Tree)
        .sync(SyncPolicy::No)
        .open_private(builder())
        .unwrap();
    store.put(b"key", b"value").unwrap();
    let report = store.durability().checkpoint_and_wait().unwrap();
    let stats = store.durability().stats();
    assert_eq!((stats.pending, stats.mode), (0, DurabilityMode::Tree));
    assert_eq!((report.records, report.read), (1, stats.durable));
    store.durability().checkpoint().unwrap();
    wait_until("it is published", || {
        store.durability().stats().checkpoints.published == 2
    });
    let mut names: Vec<_> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["lock", "store.tree"]);
}

/// Openings, and groups that fill little of the files, use up files without growing the stream.
#[test]
fn files_that_hold_little_bring_a_checkpoint_about() {
    let dir = TestDir::new("durable-sparse");
    let open = || {
        let options = options(&dir).file_bytes(256 << 10).reserve(0).recycled(0);
        options
            .checkpoint_after(1 << 20)
            .open_private(builder())
            .unwrap()
    };
    for i in 0..30u8 {
        let store = open();
        store.put(&[i], b"value").unwrap();
        store.close().unwrap();
    }
    let files = || {
        let names = std::fs::read_dir(dir.path()).unwrap();
        names
            .filter(|name| {
                name.as_ref()
                    .unwrap()
                    .file_name()
                    .to_string_lossy()
                    .ends_with(".journal")
            })
            .count()
    };
    let store = open();
    wait_until("older files are gone", || files() < 10);
    assert_eq!(store.records(), 30);
}

/// Without a bound none is due, and a requested one is written.
#[test]
fn a_store_whose_journal_has_no_bound_writes_a_checkpoint_when_asked() {
    let dir = TestDir::new("durable-no-bound");
    let options = options(&dir)
        .checkpoint_after(u64::MAX)
        .checkpoint_rate(1 << 20);
    let store = options.open_private(builder()).unwrap();
    store.put(b"key", b"value").unwrap();
    store.durability().checkpoint_and_wait().unwrap();
    store.close().unwrap();
}
