//! Stores that are written, closed, killed and opened again.
#![allow(clippy::unwrap_used)]

mod histories;
mod kills;
mod served;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use mneme_durable::stepped::Stepped;
use mneme_durable::{
    DurabilityMode, DurableError, DurableOptions, DurableStore, GateState, LogStore, Refusal,
    SyncPolicy,
};
use mneme_log::{Builder, Cursor, Evict, Expiry, Patch, UpdatePolicy};
use mneme_sys::ManualClock;
use mneme_sys::medium::RecordingDirectory;
use mneme_testkit::{Random, TestDir, wait_until};

fn builder() -> Builder {
    LogStore::builder().capacity(64 << 20).maintainer(false)
}

fn options(dir: &TestDir) -> DurableOptions {
    DurableOptions::new(dir.path()).file_bytes(1 << 20)
}

/// Both forms of a store, which promise the same.
pub const BOTH: [DurabilityMode; 2] = [DurabilityMode::Journal, DurabilityMode::Tree];

fn open(dir: &TestDir) -> DurableStore {
    options(dir).open_private(builder()).unwrap()
}

type Records = BTreeMap<(usize, Vec<u8>), (Vec<u8>, Expiry)>;

/// Everything that a store holds.
fn contents(store: &LogStore) -> Records {
    let mut all = BTreeMap::new();
    for number in 0..64 {
        let database = store.database(number).unwrap();
        let mut cursor = Cursor::START;
        while cursor != Cursor::END {
            let visit = |key: &[u8], value: &[u8]| {
                let expiry = database.expiry(key).unwrap().unwrap();
                all.insert((number, key.to_vec()), (value.to_vec(), expiry));
            };
            cursor = database.scan_copied(cursor, 100, visit).unwrap();
        }
    }
    all
}

/// Random changes of every kind.
fn change(store: &LogStore, random: &mut Random, many: usize) {
    for _ in 0..many {
        let number = random.below(4) as usize;
        let database = store.database(number).unwrap();
        let key = format!("key-{}", random.below(200)).into_bytes();
        let value = vec![random.next() as u8; random.below(300) as usize];
        match random.below(20) {
            0 => database.clear().unwrap(),
            1 => store
                .swap_databases(number, random.below(4) as usize)
                .unwrap(),
            2..6 => drop(database.remove(&key).unwrap()),
            6..9 => drop(
                database
                    .set_expiry(&key, Expiry::At(random.below(1 << 40)))
                    .unwrap(),
            ),
            9 => database
                .put_until(&key, &value, Expiry::At(1 << 50))
                .unwrap(),
            10 => {
                // The second does not fit an entry of the feed.
                let len = [20_000, 70_000][random.below(2) as usize];
                database.put(&key, &vec![7; len]).unwrap();
            }
            11 | 12 => {
                // Long enough to be changed where it lies.
                database.put(&key, &[9; 6000]).unwrap();
                for at in [100, 6000] {
                    let bytes = std::borrow::Cow::Borrowed(&value[..]);
                    let patch = || Patch::Write {
                        at,
                        bytes: bytes.clone(),
                    };
                    let changed = database.update_part(&key, |_| 0..0, |_| patch());
                    changed.unwrap();
                }
            }
            13 => store
                .transaction(|t| {
                    t.put(&key, &value)?;
                    t.put(
                        b"other",
                        &value.repeat([1, 1, 1, 1, 400][random.below(5) as usize]),
                    )?;
                    Ok::<_, mneme_log::WriteError>(())
                })
                .unwrap(),
            _ => database.put(&key, &value).unwrap(),
        }
    }
}

/// Otherwise writers would wait during every sync: they fill the ring while it is drained.
#[test]
fn a_step_makes_a_quarter_of_a_full_feed_durable_and_leaves_the_rest_to_the_next() {
    let dir = TestDir::on_disk("quarters");
    let options = options(&dir).sync(SyncPolicy::No);
    let mut store = options.open_stepped(builder()).unwrap();
    let value = [7; 1000];
    for key in 0u32..2500 {
        store.put(&key.to_le_bytes(), &value).unwrap();
    }
    let gate = store.gate();
    let (tail, quarter) = (gate.tail(), (4 << 20) / 4);
    assert!(tail > 2 * quarter && tail < 4 * quarter, "{tail}");
    let mut durable = gate.durable();
    while durable < tail - quarter {
        store.step();
        let freed = gate.durable() - durable;
        // And at most a group more.
        assert!((1..2 * quarter).contains(&freed), "{freed} of {tail}");
        durable += freed;
    }
    store.sync();
    assert_eq!(gate.durable(), tail);
}

#[test]
fn what_was_written_is_there_after_a_restart() {
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

/// The journal's files, the oldest first.
fn journals(dir: &TestDir) -> Vec<PathBuf> {
    let files = std::fs::read_dir(dir.path()).unwrap();
    let mut files: Vec<_> = files
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "journal"))
        .collect();
    files.sort();
    files
}

/// A load is ended also while it looks at the journal for the first time, before all else.
#[test]
fn a_load_is_ended_before_it_has_seen_the_whole_journal() {
    let dir = TestDir::new("durable-ended");
    let store = open(&dir);
    for key in 0..100u32 {
        store.put(&key.to_le_bytes(), &[7; 1000]).unwrap();
        store.sync().unwrap();
    }
    store.close().unwrap();
    // The look would end with this damage.
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

/// Other users of the machine read no record, in whichever form it is kept.
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

#[test]
fn the_gate_opens_when_it_is_asked() {
    BOTH.into_iter().for_each(gate_opens);
}

fn gate_opens(mode: DurabilityMode) {
    let dir = TestDir::new("durable-gate");
    let store = options(&dir)
        .mode(mode)
        .sync(SyncPolicy::Always)
        .open_private(builder())
        .unwrap();
    let gate = store.durability().gate();
    let (sent, woken) = std::sync::mpsc::channel();
    let subscription = gate.subscribe(Arc::new(move || {
        let _ = sent.send(());
    }));
    for i in 0..20u32 {
        store.put(b"key", &i.to_le_bytes()).unwrap();
        let tail = gate.tail();
        gate.ask();
        while gate.durable() < tail {
            woken.recv().unwrap();
        }
    }
    drop(subscription);
    assert!(gate.holds());
    store.durability().set_policy(SyncPolicy::No);
    assert!(!gate.holds());
    store.put(b"key", b"last").unwrap();
    store.sync().unwrap();
    let stats = store.durability().stats();
    assert_eq!((stats.pending, stats.durable), (0, gate.tail()));
    assert!(stats.groups >= 20 && stats.journal.syncs >= 20);
}

/// Everything the journal holds before a checkpoint goes, and what it holds is there.
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

/// A caller that asks for a checkpoint, and waits until none runs, has one: it is running before
/// the thread that writes it has woken.
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

/// Writers go on while checkpoints are begun by the journal's length.
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

/// What a thread writes beside changes of another that belong together is durable with them, and
/// no sync says so before.
#[test]
fn a_sync_waits_for_the_end_of_changes_that_belong_together() {
    BOTH.into_iter().for_each(waits_for_groups);
}

fn waits_for_groups(mode: DurabilityMode) {
    let dir = TestDir::new("durable-together");
    let store = options(&dir).mode(mode).open_private(builder()).unwrap();
    store.put(b"before", b"1").unwrap();
    store.sync().unwrap();
    let (gate, durable) = (
        store.durability().gate(),
        store.durability().gate().durable(),
    );
    let together = store.feed_together().unwrap();
    store.put(b"within", b"2").unwrap();
    let durability = store.durability();
    for own in [
        store.sync(),
        durability.checkpoint_and_wait().map(drop),
        durability.backup("own").map(drop),
        durability.compare_files().map(drop),
    ] {
        assert!(matches!(own, Err(DurableError::Together)), "{own:?}");
    }
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            store.put(b"beside", b"3").unwrap();
            store.sync().unwrap();
            gate.durable()
        });
        wait_until("the files have it", || {
            gate.ask();
            store.records() == 3 && store.feed_durable() == store.feed_tail()
        });
        assert_eq!(gate.durable(), durable);
        drop(together);
        assert_eq!(other.join().unwrap(), gate.tail());
    });
    drop(store);
    let again = options(&dir).mode(mode).open_private(builder()).unwrap();
    assert_eq!(again.records(), 3);
}

/// A thread that stops in the middle of changes that belong together keeps no other from going on
/// that has asked for a base file.
#[test]
fn a_base_file_does_not_wait_for_ever_for_changes_that_belong_together() {
    let dir = TestDir::new("durable-endless");
    let store = options(&dir).open_private(builder()).unwrap();
    store.put(b"before", b"1").unwrap();
    let durability = store.durability();
    // From here on it is known where a base file may begin.
    durability.checkpoint_and_wait().unwrap();
    std::thread::scope(|scope| {
        let (begin, begun) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let (store, gate) = (&store, durability.gate());
        scope.spawn(move || {
            let _together = store.feed_together().unwrap();
            store.put(b"within", b"2").unwrap();
            begin.send(()).unwrap();
            // Until the other end is dropped.
            let _ = ended.recv();
        });
        begun.recv().unwrap();
        let refused = durability.checkpoint_and_wait().unwrap_err();
        assert!(refused.to_string().contains("have not ended"), "{refused}");
        drop(end);
        wait_until("they have ended", || gate.durable() == gate.tail());
    });
    durability.checkpoint_and_wait().unwrap();
}

/// However many changes that belong together are made one after the other: a base file ends with
/// one of them, and does not wait until there are none.
#[test]
fn a_base_file_is_published_beside_groups_without_end() {
    for kept in [None, Some("kept")] {
        let options = DurableOptions::on(RecordingDirectory::new());
        let options = options.file_bytes(4 << 20).reserve(0).recycled(0);
        let mut store = options.open_stepped(builder()).unwrap();
        let mut written = 0u64;
        let mut group = |store: &Stepped| {
            written += 1;
            let _together = store.feed_together().unwrap();
            for key in [b"one", b"two"] {
                store.put(key, &written.to_le_bytes()).unwrap();
            }
        };
        group(&store);
        store.sync();
        store.begin_base(kept).unwrap();
        let published = (0..50).find_map(|_| {
            group(&store);
            store.sync();
            // Not drained when the file is looked at.
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

/// A directory that is moved is still the store's; one that is removed fails, and says so.
#[test]
fn a_directory_that_goes_away_is_noticed() {
    BOTH.into_iter().for_each(goes_away);
}

fn goes_away(mode: DurabilityMode) {
    let dir = TestDir::new("durable-moved");
    let (path, moved) = (dir.path().join("here"), dir.path().join("there"));
    let at = |path: &std::path::Path| DurableOptions::new(path).mode(mode).file_bytes(1 << 20);
    let store = at(&path).open_private(builder()).unwrap();
    std::fs::rename(&path, &moved).unwrap();
    std::fs::create_dir(&path).unwrap();
    // More than a file holds.
    for i in 0..40u8 {
        store.put(&[i], &[i; 50_000]).unwrap();
    }
    store.durability().checkpoint_and_wait().unwrap();
    store.put(b"key", b"value").unwrap();
    store.close().unwrap();
    assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0);
    let store = at(&moved).open_private(builder()).unwrap();
    assert_eq!(store.records(), 41);
    std::fs::remove_dir_all(&moved).unwrap();
    store.put(b"key", b"gone").unwrap();
    let refused = store.sync().unwrap_err().to_string();
    assert!(refused.contains("was removed"), "{refused}");
    assert_eq!(store.durability().stats().state, GateState::Failed);
    store.close().unwrap_err();
}

/// A checkpoint of a tree is there once what was written is durable, and writes no file.
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

/// A directory keeps the form that it was begun with; a backup leads to the other one.
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

/// A start that finds no space takes no writes, and answers reads; it goes on by itself.
#[test]
fn a_store_is_opened_on_a_full_disk() {
    let directory = RecordingDirectory::new();
    let options = DurableOptions::on(directory.clone()).file_bytes(256 << 10);
    let options = options.reserve(0).recycled(0);
    let open = || options.open_private(builder());
    let used = || directory.files().values().map(Vec::len).sum::<usize>() as u64;
    directory.limit(Some(0));
    assert!(open().is_err(), "there is no store");
    directory.limit(None);
    let store = open().unwrap();
    store.put(b"key", b"value").unwrap();
    store.close().unwrap();
    directory.limit(Some(used()));
    for _ in 0..2 {
        let store = open().unwrap();
        assert_eq!(store.get(b"key").unwrap().unwrap(), b"value");
        let stats = store.durability().stats();
        assert_eq!(stats.state, GateState::RefusesWrites(Refusal::DiskFull));
        assert!(store.backup("kept").is_err());
        store.close().unwrap();
    }
    let store = open().unwrap();
    // A put that is made all the same does not become durable.
    store.put(b"other", b"value").unwrap();
    store.sync().unwrap_err();
    directory.limit(None);
    wait_until("there is space", || {
        store.durability().stats().state == GateState::Open
    });
    store.sync().unwrap();
    store.backup("kept").unwrap();
    store.close().unwrap();
    assert_eq!(open().unwrap().records(), 2);
}

/// What a full disk keeps from becoming durable is said, by a sync and by the end.
#[test]
fn what_a_full_disk_does_not_take_is_not_called_durable() {
    let directory = RecordingDirectory::new();
    let store = DurableOptions::on(directory.clone())
        .file_bytes(256 << 10)
        .reserve(0)
        .recycled(0)
        .open_private(builder())
        .unwrap();
    store.put(b"key", b"value").unwrap();
    store.sync().unwrap();
    let used: usize = directory.files().values().map(Vec::len).sum();
    directory.limit(Some(used as u64));
    for i in 0..16u8 {
        store.put(&[i], &[9; 40_000]).unwrap();
    }
    let refused = store.sync();
    assert!(
        matches!(refused, Err(DurableError::NotDurable { .. })),
        "{refused:?}"
    );
    let closed = store.close();
    assert!(
        matches!(closed, Err(DurableError::NotDurable { .. })),
        "{closed:?}"
    );
    directory.limit(None);
}

/// A store that is full of records of many sizes, and may evict none, finds space for all of them
/// when it is rebuilt, though they come to lie otherwise.
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

/// Openings, and groups that fill little of the files, take files without growing the stream.
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

/// A store that is full all the time: all that a checkpoint has seen, and what took its place,
/// stands in its files, and twice as much as fits.
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
        // What had to go was entered: it does not come back.
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
