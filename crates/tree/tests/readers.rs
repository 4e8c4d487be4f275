//! Readers beside a writer in another process: in this process, by openings of their own, if the
//! order of events must be known; in processes of their own, if something is killed. Such a process
//! is this test, started again.
#![allow(clippy::unwrap_used)]

mod common;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::beside::builder;
use common::{Model, contents, trees};
use mneme_testkit::{NOBODY, Process, Random, TestDir, runs_as_nobody, wait_until};
use mneme_tree::{Batch, Holder, Snapshot, Store, StoreError};

fn write(path: &Path) -> Store {
    builder().open(path).unwrap()
}

fn read(path: &Path) -> Store {
    builder().read_only(true).open(path).unwrap()
}

fn files_of(path: &Path) -> Vec<PathBuf> {
    let found = path.metadata().unwrap();
    let name = format!("mneme-tree-{:x}-{:x}-", found.dev(), found.ino());
    let files = std::fs::read_dir("/dev/shm").unwrap().flatten();
    let files = files.filter(|file| file.file_name().to_str().unwrap().starts_with(&name));
    files.map(|file| file.path()).collect()
}

#[test]
fn a_reader_sees_each_version_once_it_is_durable() {
    let here = TestDir::new("tree-readers-see");
    let path = here.path().join("db");
    let db = write(&path);
    let reader = read(&path);
    let mut model = Model::new();
    let mut random = Random::new(1);
    for n in 0..600_u32 {
        let mut batch = Batch::new();
        for _ in 0..1 + random.below(8) {
            let key = format!("key{:05}", random.below(2000)).into_bytes();
            if random.below(5) == 0 {
                batch.remove(&key);
                model.remove(&key);
            } else {
                let len = [20, 200, 900, 5000][random.below(4) as usize];
                let value = vec![n as u8; len];
                batch.put(&key, &value);
                model.insert(key, value);
            }
        }
        let version = db.apply(&batch).unwrap();
        if random.below(3) == 0 {
            let key = format!("key{:05}", random.below(2000)).into_bytes();
            assert_eq!(reader.get(&key).unwrap(), model.get(&key).cloned());
            assert_eq!(reader.version().unwrap(), version);
        }
        if n % 60 == 0 {
            assert_eq!(contents(&reader.snapshot().unwrap()), model);
            reader.check().unwrap();
        }
    }
    assert_eq!(contents(&reader.snapshot().unwrap()), model);
    let keys: Vec<_> = model.keys().take(40).collect();
    let mut found = Vec::new();
    reader
        .get_many(&keys, |_, value| found.push(value.unwrap().to_vec()))
        .unwrap();
    assert!(found.iter().eq(keys.iter().map(|key| &model[*key])));
    let (seen, known) = (reader.stats().unwrap(), db.stats().unwrap());
    assert_eq!((seen.entries, seen.leaves), (known.entries, known.leaves));
}

/// The only leaf of a named tree has lost its header: it is not an empty tree, for a reader either.
#[test]
fn a_tree_whose_leaf_is_lost_is_damaged_and_not_empty() {
    let here = TestDir::new("tree-readers-lost");
    let path = here.path().join("db");
    let db = write(&path);
    db.put(b"key", b"value").unwrap();
    let tree = db.tree("tree").unwrap();
    tree.put(b"key", b"value").unwrap();
    let number = tree.number();
    drop(tree);
    db.close().unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let tables = (2 << 20..bytes.len()).step_by(2 << 20);
    let headers = tables.flat_map(|table| (1..128).map(move |slot| table + slot * 128));
    let is_of_tree = |at: &usize| bytes[at + 28..at + 32] == number.to_le_bytes();
    let found: Vec<usize> = headers.filter(is_of_tree).collect();
    assert_eq!(found.len(), 1);
    bytes[found[0] + 8] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let reader = builder().read_only(true).open(&path);
    let named = reader.and_then(|reader| reader.open_tree("tree")?.get(b"key"));
    assert!(
        matches!(named, Err(StoreError::Damaged { .. })),
        "{named:?}"
    );
}

#[test]
fn a_dropped_tree_stays_where_it_is_shown() {
    trees::a_dropped_tree_stays_where_it_is_shown();
}

#[test]
fn a_backup_has_all_trees() {
    trees::a_backup_has_all_trees();
}

#[test]
fn a_reader_is_refused_what_would_change_the_store() {
    let here = TestDir::new("tree-readers-refused");
    let path = here.path().join("db");
    assert!(builder().read_only(true).open(&path).is_err(), "no store");
    let db = write(&path);
    db.put(b"a", b"1").unwrap();
    db.keep("first").unwrap();
    let reader = read(&path);
    let mut tx = reader.write();
    tx.put(b"b", b"2").unwrap();
    let refused = [
        reader.put(b"a", b"2").map(drop),
        reader.remove(b"a").map(drop),
        tx.commit().map(drop),
        reader.keep("second").map(drop),
        reader.rollback("first").map(drop),
        reader.drop_version("first"),
    ];
    for refused in refused {
        assert!(matches!(refused, Err(StoreError::ReadOnly)), "{refused:?}");
    }
    assert!(reader.is_read_only() && !db.is_read_only());
    assert_eq!(reader.get(b"a").unwrap(), Some(b"1".to_vec()));
}

/// A snapshot of a reader keeps what it shows, and a reader that does not read keeps nothing.
#[test]
fn only_what_a_reader_holds_is_kept() {
    let here = TestDir::new("tree-readers-hold");
    let path = here.path().join("db");
    let db = write(&path);
    let (reader, idle) = (read(&path), read(&path));
    let key = |n: u32| format!("key{n:04}").into_bytes();
    let churn = |turns: u32, seed: u32| {
        for turn in 0..turns {
            for n in 0..300_u32 {
                let len = if n.is_multiple_of(20) { 5000 } else { 300 };
                let value = vec![(seed + turn) as u8; len];
                db.put(&key(n), &value).unwrap();
            }
        }
    };
    churn(1, 0);
    assert_eq!(idle.get(&key(7)).unwrap(), Some(vec![0; 300]));
    let snapshot = reader.snapshot().unwrap();
    let before = contents(&snapshot);
    churn(20, 1);
    assert_eq!(contents(&snapshot), before);
    let held = db.holders().unwrap();
    let [
        (
            version,
            Holder::Snapshot {
                process, thread, ..
            },
        ),
    ] = &held[..]
    else {
        panic!("{held:?}");
    };
    assert_eq!(*version, snapshot.version());
    assert_eq!(*process, std::process::id());
    assert_eq!(thread, std::thread::current().name().unwrap());
    let size = db.stats().unwrap().file_bytes;
    churn(40, 21);
    assert_eq!(contents(&snapshot), before);
    assert_eq!(db.stats().unwrap().file_bytes, size, "it keeps no more");
    drop(snapshot);
    assert_eq!(db.holders().unwrap(), []);
    churn(100, 61);
    assert_eq!(db.stats().unwrap().file_bytes, size);
    // The writer is far ahead of it.
    assert_eq!(idle.get(&key(7)).unwrap(), Some(vec![160; 300]));
    let (now, seen) = (db.snapshot().unwrap(), idle.snapshot().unwrap());
    assert_eq!(contents(&seen), contents(&now));
    idle.check().unwrap();
}

/// Between two reads of a reader so many leaves are created that the feed no longer has the first
/// ones.
#[test]
fn a_reader_that_fell_behind_catches_up() {
    let here = TestDir::new("tree-readers-behind");
    let path = here.path().join("db");
    let db = write(&path);
    let reader = read(&path);
    let key = |n: u64| n.to_be_bytes();
    let big = vec![1; 3000];
    let mut births = 0;
    while births < 3 * mneme_sync::FEED_ENTRIES as u64 / 2 {
        let mut batch = Batch::new();
        for n in 0..4000 {
            batch.put(&key(n), &big);
        }
        db.apply(&batch).unwrap();
        births += 1000;
    }
    db.put(&key(3), b"last").unwrap();
    assert_eq!(reader.get(&key(3)).unwrap(), Some(b"last".to_vec()));
    reader.check().unwrap();
    db.put(&key(4), b"more").unwrap();
    assert_eq!(reader.get(&key(4)).unwrap(), Some(b"more".to_vec()));
}

#[test]
fn named_versions_are_read_beside_the_writer() {
    let here = TestDir::new("tree-readers-names");
    let path = here.path().join("db");
    let db = write(&path);
    let fill = |with: u8| {
        for n in 0..500_u32 {
            db.put(&n.to_be_bytes(), &[with; 400]).unwrap();
        }
    };
    fill(1);
    let kept = db.keep("first").unwrap();
    let reader = read(&path);
    fill(2);
    let before = contents(&db.version_named("first").unwrap());
    assert_eq!(reader.versions(), [("first".to_owned(), kept)]);
    let first = reader.version_named("first").unwrap();
    assert_eq!(contents(&first), before);
    db.drop_version("first").unwrap();
    fill(3);
    assert_eq!(contents(&first), before, "the snapshot holds it");
    assert_eq!(reader.versions(), []);
    let gone = reader.version_named("first");
    assert!(matches!(gone, Err(StoreError::NoSuchVersion { .. })));
    let copy = here.path().join("copy");
    let version = reader.backup(&copy).unwrap();
    assert_eq!(version, db.version().unwrap());
    let expected = contents(&db.snapshot().unwrap());
    assert_eq!(contents(&write(&copy).snapshot().unwrap()), expected);
}

#[test]
fn openings_meet_in_one_control_region_or_are_refused() {
    let here = TestDir::new("tree-readers-meet");
    let path = here.path().join("db");
    write(&path).close().unwrap();
    assert_eq!(
        files_of(&path),
        Vec::<PathBuf>::new(),
        "the last removes it"
    );
    // Only readers at first; then a writer comes and goes.
    let reader = read(&path);
    let other = read(&path);
    for n in 1..4_u8 {
        let db = write(&path);
        db.put(b"n", &[n]).unwrap();
        let Err(StoreError::Locked { pid, .. }) = builder().open(&path) else {
            panic!("two writers");
        };
        assert_eq!(pid, Some(std::process::id()));
        assert_eq!(reader.get(b"n").unwrap(), Some(vec![n]));
        drop(db);
        assert_eq!(other.get(b"n").unwrap(), Some(vec![n]));
    }
    // A second writer waits if its orders say so.
    let db = write(&path);
    let waiting = {
        let path = path.clone();
        std::thread::spawn(move || {
            let builder = builder().wait_for_writer(Duration::from_secs(600));
            builder.open(path).unwrap().put(b"n", &[9]).unwrap()
        })
    };
    db.put(b"n", &[8]).unwrap();
    drop(db);
    waiting.join().unwrap();
    assert_eq!(reader.get(b"n").unwrap(), Some(vec![9]));
    // Another container sees the locks, but not the control region.
    let [control] = &files_of(&path)[..] else {
        panic!("one control region");
    };
    let hidden = here.path().join("hidden");
    std::fs::rename(control, &hidden)
        .or_else(|_| std::fs::copy(control, &hidden).and_then(|_| std::fs::remove_file(control)))
        .unwrap();
    for opened in [builder().open(&path), builder().read_only(true).open(&path)] {
        assert!(
            matches!(opened, Err(StoreError::Elsewhere { .. })),
            "{opened:?}"
        );
    }
    drop((reader, other));
    assert_eq!(write(&path).get(b"n").unwrap(), Some(vec![9]));
    assert_eq!(files_of(&path), Vec::<PathBuf>::new());
}

/// What was replaced is kept while a read runs, and the reading process is named.
#[test]
fn a_reader_that_stands_still_is_named() {
    let here = TestDir::new("tree-readers-still");
    let path = here.path().join("db");
    let db = write(&path);
    db.put(b"a", b"1").unwrap();
    let reader = read(&path);
    let oldest = || db.stats().unwrap().oldest_reader;
    let meanwhile = reader.get_with(b"a", |_| oldest()).unwrap();
    assert_eq!(meanwhile, Some(Some(std::process::id())));
    assert_eq!(oldest(), None);
}

/// Another container has, in its `/dev/shm`, the region that a killed process has left there.
#[test]
fn a_region_in_which_nobody_takes_part_is_not_joined() {
    let here = TestDir::new("tree-readers-stale");
    let path = here.path().join("db");
    let only_file = || {
        let files = files_of(&path);
        assert_eq!(files.len(), 1, "{files:?}");
        files[0].clone()
    };
    let stale = here.path().join("stale");
    let db = write(&path);
    std::fs::copy(only_file(), &stale).unwrap();
    db.close().unwrap();
    let db = write(&path);
    let control = only_file();
    let found = control.metadata().unwrap();
    assert!(found.blocks() * 512 >= found.len(), "its space is reserved");
    std::fs::hard_link(&control, control.with_extension("own")).unwrap();
    std::fs::remove_file(&control).unwrap();
    std::fs::copy(&stale, &control).unwrap();
    let opened = builder().read_only(true).open(&path);
    std::fs::rename(control.with_extension("own"), &control).unwrap();
    assert!(
        matches!(opened, Err(StoreError::Elsewhere { .. })),
        "{opened:?}"
    );
    db.put(b"a", b"1").unwrap();
    assert_eq!(read(&path).get(b"a").unwrap(), Some(b"1".to_vec()));
}

/// An opening beside a closing either finds the others' region, or is alone.
#[test]
fn openings_meet_closings() {
    let here = TestDir::new("tree-readers-closings");
    let path = here.path().join("db");
    write(&path).close().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| (0..100).for_each(|_| drop(read(&path))));
        }
    });
}

/// While an opening waits for its writer the file is renamed, and another file gets its name.
#[test]
fn an_opening_that_waited_writes_the_file_of_its_name() {
    let here = TestDir::new("tree-readers-renamed");
    let (path, other) = (here.path().join("db"), here.path().join("copy"));
    let db = write(&path);
    db.backup(&other).unwrap();
    let descriptors = || {
        let found = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let found = found.filter_map(|file| std::fs::read_link(file.path()).ok());
        found.filter(|file| *file == path).count()
    };
    let before = descriptors();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let builder = builder().wait_for_writer(Duration::from_secs(600));
            builder.open(&path).unwrap().put(b"b", b"2").unwrap();
        });
        // Its own, and that of its locks.
        wait_until("the opening waits", || descriptors() >= before + 2);
        std::fs::rename(&other, &path).unwrap();
        drop(db);
        waiting.join().unwrap();
    });
    assert_eq!(write(&path).get(b"b").unwrap(), Some(b"2".to_vec()));
}

/// A continuing writer reuses what dead readers held.
#[test]
fn killed_readers_keep_nothing_from_a_living_writer() {
    let here = TestDir::new("tree-readers-dead");
    let path = here.path().join("db");
    let db = write(&path);
    let churn = |turns: u8| {
        for turn in 0..turns {
            for n in 0..1000_u32 {
                db.put(&n.to_be_bytes(), &[turn; 1000]).unwrap();
            }
        }
        path.metadata().unwrap().len()
    };
    churn(3);
    let mut sizes = Vec::new();
    for _ in 0..6 {
        let mut reader = start("read", &path);
        reader.number();
        reader.kill();
        sizes.push(churn(4));
    }
    // Each kept two MiB for itself.
    assert!(sizes[5] <= sizes[0] + (4 << 20), "{sizes:?}");
}

#[test]
fn a_snapshot_outlives_writers() {
    common::beside::snapshots_outlive_writers();
}

const CHILD: &str = "MNEME_TREE_READERS";
/// Keys that every commit of a writing process writes, all with its number.
const GROUP: u32 = 5;
const KEYS: u32 = 1500;

fn keys(n: u64) -> impl Iterator<Item = [u8; 4]> {
    (0..GROUP)
        .map(move |i| ((n as u32).wrapping_mul(7919) + i * 601) % KEYS)
        .map(u32::to_be_bytes)
}

fn value(n: u64) -> Vec<u8> {
    let len = if n.is_multiple_of(9) { 4000 } else { 90 };
    [n.to_be_bytes().as_slice(), &vec![n as u8; len]].concat()
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes[..8].try_into().unwrap())
}

/// The content of a snapshot is the result of the first commits, whole; returns their number.
fn verify(snapshot: &Snapshot, least: u64) -> u64 {
    let n = snapshot.get(b"last").unwrap().map_or(0, number);
    assert!(n >= least, "{n} of {least} commits are seen");
    for commit in n.saturating_sub(40).max(1)..=n {
        for key in keys(commit) {
            let found = snapshot.get(&key).unwrap().unwrap();
            let wrote = number(found);
            assert!((commit..=n).contains(&wrote), "{commit} of {n}: {wrote}");
            assert!(found == value(wrote), "a torn value");
        }
    }
    n
}

fn commit(db: &Store, n: u64) {
    let mut batch = Batch::new();
    for key in keys(n) {
        batch.put(&key, &value(n));
    }
    batch.put(b"last", &n.to_be_bytes());
    db.apply(&batch).unwrap();
}

/// Commits until it is killed.
fn child_writes(path: &Path) -> ! {
    let db = builder()
        .wait_for_writer(Duration::from_secs(600))
        .open(path)
        .unwrap();
    let mut n = db.get(b"last").unwrap().map_or(0, |bytes| number(&bytes));
    loop {
        n += 1;
        commit(&db, n);
        println!("{n}");
    }
}

/// Reads until it is killed, with an old snapshot at hand.
fn child_reads(path: &Path) -> ! {
    let db = read(path);
    let mut old = db.snapshot().unwrap();
    let (mut seen, mut held) = (0, contents(&old));
    loop {
        let snapshot = db.snapshot().unwrap();
        seen = verify(&snapshot, seen);
        if seen.is_multiple_of(7) {
            assert_eq!(contents(&old), held, "the old snapshot has changed");
            held = contents(&snapshot);
            old = snapshot;
        }
        println!("{seen}");
    }
}

fn start(role: &str, path: &Path) -> Process {
    let orders = format!("{role}:{}", path.display());
    Process::start_talking("writers_and_readers_are_killed", [(CHILD, orders)])
}

/// Writers die at any time, and others take over; readers die with snapshots; the living ones see
/// each acknowledged commit, and never half of one.
#[test]
fn writers_and_readers_are_killed() {
    if let Ok(orders) = std::env::var(CHILD) {
        let (role, path) = orders.split_once(':').unwrap();
        match role {
            "write" => child_writes(Path::new(path)),
            _ => child_reads(Path::new(path)),
        }
    }
    let here = TestDir::new("tree-readers-killed");
    let path = here.path().join("db");
    write(&path).close().unwrap();
    let reader = read(&path);
    let mut readers: Vec<_> = (0..2).map(|_| start("read", &path)).collect();
    let mut acknowledged = 0;
    for round in 0..8_u64 {
        let mut writer = start("write", &path);
        let first = writer.number();
        assert!(first > acknowledged);
        while writer.number() < first + 30 + round * 13 {}
        verify(&reader.snapshot().unwrap(), acknowledged);
        acknowledged = writer.last_number().unwrap();
        // The readers continue while there is no writer.
        acknowledged = verify(&reader.snapshot().unwrap(), acknowledged);
        for process in &mut readers {
            process.number();
        }
        if round % 3 == 1 {
            readers.remove(0).kill();
            readers.push(start("read", &path));
        }
    }
    for process in &mut readers {
        while process.number() < acknowledged {}
    }
    drop(readers);
    // Dead readers keep nothing.
    let db = write(&path);
    assert_eq!(db.holders().unwrap(), []);
    db.check().unwrap();
    reader.check().unwrap();
    // The last killed writer may have written one commit more than it reported.
    let kept = verify(&db.snapshot().unwrap(), acknowledged);
    assert!(kept <= acknowledged + 1);
    assert_eq!(verify(&reader.snapshot().unwrap(), kept), kept);
    // How much it grew depends on how long readers were stopped meanwhile; it grows no further.
    let mut last = kept;
    let mut churn = || {
        for _ in 0..300 {
            last += 1;
            commit(&db, last);
        }
        db.stats().unwrap().file_bytes
    };
    let size = churn();
    assert!(churn() <= size + (2 << 20));
}

/// The directory of a tree whose name in memory another user has taken, and what has taken it.
const TAKEN: &str = "MNEME_TREE_TAKEN";

/// A user who may read a tree's file knows the name of its region in memory, and can take that name
/// with a file that nobody else may remove. The owner and others that may write the file can open
/// it all the same, and find each other.
#[test]
fn a_name_that_another_user_has_taken_keeps_nobody_out() {
    use std::os::unix::fs::{PermissionsExt, chown};
    const OTHER: u32 = 1;
    let open = |directory: &Path| {
        let path = directory.join("db");
        let db = write(&path);
        db.put(b"a", b"1").unwrap();
        let reader = read(&path);
        assert_eq!(reader.get(b"a").unwrap(), Some(b"1".to_vec()));
        let pid = std::process::id();
        let second = builder().open(&path);
        assert!(
            matches!(second, Err(StoreError::Locked { pid: Some(of), .. }) if of == pid),
            "{second:?}"
        );
        path
    };
    if let Some(directory) = std::env::var_os(TAKEN) {
        let path = open(directory.as_ref());
        assert_eq!(files_of(&path).len(), 1, "what was made is gone");
        return;
    }
    if mneme_sys::files::user() != 0 {
        eprintln!("skipped: only root can become another user");
        return;
    }
    for what in ["directory", "file", "link", "pipe"] {
        let here = TestDir::new("tree-readers-taken");
        let path = here.path().join("db");
        let db = builder().mode(0o644).open(&path).unwrap();
        let region = files_of(&path)[0].clone();
        let mode = region.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "who reads the file has no access");
        db.close().unwrap();
        match what {
            "directory" => std::fs::create_dir(&region).unwrap(),
            "file" => std::fs::write(&region, "").unwrap(),
            "link" => std::os::unix::fs::symlink(&path, &region).unwrap(),
            _ => {
                let made = std::process::Command::new("mkfifo").arg(&region).status();
                assert!(made.unwrap().success());
            }
        }
        std::os::unix::fs::lchown(&region, Some(OTHER), Some(OTHER)).unwrap();
        for file in [here.path(), &path] {
            chown(file, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let test = "a_name_that_another_user_has_taken_keeps_nobody_out";
        let has_run = runs_as_nobody(test, [(TAKEN, here.path())]);
        assert!(region.symlink_metadata().is_ok(), "{what}");
        let removed = std::fs::remove_dir(&region).or_else(|_| std::fs::remove_file(&region));
        removed.unwrap();
        if !has_run {
            return;
        }
        // One that was killed there leaves a longer name, which the next opening removes.
        let left = region.with_file_name(format!("{}-1", region.file_name().unwrap().display()));
        std::fs::write(&left, "").unwrap();
        open(here.path());
        assert_eq!(files_of(&path), Vec::<PathBuf>::new());
    }
}
