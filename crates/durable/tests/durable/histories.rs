//! Directories that were copied, restored or cut, beside segments that have changed since.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use mneme_durable::{DurabilityMode, DurableError, LogStore, SyncPolicy, Unpaired};
use mneme_journal::{Identity, Journal, Options, Position};
use mneme_log::feed::{Item, append_entry, binding};
use mneme_shared::{Access, SharedStore, StoreOptions};
use mneme_sys::medium::FileDirectory;
use mneme_testkit::TestDir;

use super::served::Place;
use super::{BOTH, builder, contents, open, options};

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// A directory to which a backup was copied is a store like any other.
#[test]
fn a_backup_alone_is_a_store() {
    let dir = TestDir::new("durable-backup-alone");
    let store = open(&dir);
    store.put(b"key", b"value").unwrap();
    store.sync().unwrap();
    // So that the backup does not belong to the first run.
    drop(store);
    let store = open(&dir);
    let report = store.backup("kept").unwrap();
    drop(store);
    let other = TestDir::new("durable-backup-alone-2");
    let name = format!("{:020}.base", report.begin);
    fs::copy(dir.path().join("kept.backup"), other.path().join(name)).unwrap();
    for round in 0..4u8 {
        let store = open(&other);
        assert_eq!(store.records(), 1 + u64::from(round), "round {round}");
        store.put(&[round], b"value").unwrap();
        store.close().unwrap();
    }
}

/// A restore that dies when its run has begun leaves base files of the runs before, which no longer
/// count. A check of the journal does not begin at one of them.
#[test]
fn a_check_begins_at_the_base_file_that_counts() {
    let dir = TestDir::new("durable-restore-check");
    let store = open(&dir);
    store.put(b"key", b"kept").unwrap();
    store.backup("kept").unwrap();
    for i in 0..100_u8 {
        store.put(&[i], &[i; 1000]).unwrap();
    }
    store.sync().unwrap();
    let later = store.durability().checkpoint_and_wait().unwrap();
    store.close().unwrap();
    let file = dir.path().join(format!("{:020}.base", later.begin));
    let of_the_run_before = fs::read(&file).unwrap();
    options(&dir).restore("kept").unwrap();
    fs::write(&file, of_the_run_before).unwrap();
    let directory = FileDirectory::open(dir.path()).unwrap();
    let report = mneme_journal::check(&directory, None).unwrap();
    assert!(report.damage.is_none(), "{report:?}");
    drop(directory);
    let store = open(&dir);
    assert_eq!(store.get(b"key").unwrap().unwrap(), b"kept");
    assert_eq!(store.records(), 1);
}

/// A backup that was copied to its own directory is not accepted as the directory of a segment that
/// has changed since.
#[test]
fn a_backup_alone_is_refused_beside_a_segment_that_has_lived_on() {
    let place = Place::new("durable-backup-beside");
    let (served, durability) = place.open("s", "data").unwrap();
    served.put(b"key", b"kept").unwrap();
    durability.sync().unwrap();
    let report = durability.backup("kept").unwrap();
    served.put(b"key", b"later").unwrap();
    durability.close().unwrap();
    drop(served);
    let restored = place.dir.path().join("restored");
    fs::create_dir(&restored).unwrap();
    let name = format!("{:020}.base", report.begin);
    let kept = place.dir.path().join("data").join("kept.backup");
    fs::copy(kept, restored.join(name)).unwrap();
    let refused = place
        .open("s", "restored")
        .map(|(_, durability)| durability.origin());
    assert!(
        matches!(refused, Err(DurableError::Unpaired(Unpaired::Behind))),
        "{refused:?}"
    );
    for round in 0..3 {
        let (served, durability) = place.open("t", "restored").unwrap();
        assert_eq!(served.get(b"key").unwrap().as_deref(), Some(&b"kept"[..]));
        served.put(b"new", b"value").unwrap();
        durability.close().unwrap();
        drop(served);
        if round == 1 {
            place.registry.remove_segment("t").unwrap();
        }
    }
}

/// A copy of the directory from earlier in the same run is not accepted as the directory.
#[test]
fn an_older_copy_of_the_run_is_refused_beside_the_segment() {
    BOTH.into_iter().for_each(older_copy_refused);
}

fn older_copy_refused(mode: DurabilityMode) {
    let place = Place::of("durable-older-copy", mode);
    let data = place.dir.path().join("data");
    let copied = place.dir.path().join("copied");
    let (served, durability) = place.open("s", "data").unwrap();
    served.put(b"key", b"before").unwrap();
    durability.sync().unwrap();
    copy(&data, &copied);
    served.put(b"key", b"after").unwrap();
    durability.sync().unwrap();
    durability.close().unwrap();
    drop(served);
    let refused = place
        .open("s", "copied")
        .map(|(_, durability)| durability.origin());
    assert!(
        matches!(refused, Err(DurableError::Unpaired(Unpaired::Behind))),
        "{refused:?}"
    );
    let (served, durability) = place.open("s", "data").unwrap();
    assert_eq!(served.get(b"key").unwrap().as_deref(), Some(&b"after"[..]));
    durability.close().unwrap();
}

/// A group that was not closed is cut with everything in it, including its dead indexes.
#[test]
fn a_group_that_is_cut_drops_nothing() {
    let dir = TestDir::new("durable-cut-group");
    let store = open(&dir);
    store.put(b"key", b"value").unwrap();
    store.sync().unwrap();
    let root = store.roots().unwrap()[0];
    let before = contents(&store);
    let at = store.durability().stats().durable;
    store.close().unwrap();
    let directory = Arc::new(FileDirectory::open(dir.path()).unwrap());
    let mut bytes = Vec::new();
    append_entry(&[Item::Open], &mut bytes).unwrap();
    let cleared = Item::Bind {
        databases: &[binding(0, 0)],
        dead: &[root.to_le_bytes()],
    };
    append_entry(&[cleared], &mut bytes).unwrap();
    let nowhere = Position::new(0);
    let identity = mneme_journal::Reader::between(&*directory, nowhere, nowhere)
        .unwrap()
        .identity()
        .unwrap();
    let of = Options {
        file_bytes: 1 << 20,
        ..Options::new(identity)
    };
    let mut journal = Journal::open(directory, of, Position::new(at)).unwrap();
    journal.append(Position::new(at), &bytes).unwrap();
    journal.close().unwrap();
    let store = open(&dir);
    assert_eq!(contents(&store), before);
}

/// A checkpoint begins while the ring still holds the end of a change whose first pieces are
/// durable already.
#[test]
fn a_checkpoint_behind_a_restart_begins_between_no_changes_pieces() {
    let place = Place::new("durable-pieces-restart");
    let (served, durability) = place.open("s", "data").unwrap();
    served.put(b"key", b"value").unwrap();
    durability.close().unwrap();
    drop(served);
    let writes = StoreOptions::new().maintainer(false);
    let store = writes
        .attach(&place.registry, "s", Access::ReadWrite)
        .unwrap();
    let mut feed = store.change_feed().unwrap();
    store.put(b"long", &[7; 200_000]).unwrap();
    let before = contents(&store);
    let [low, high, ..] = feed.note().unwrap();
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&low.to_le_bytes());
    uuid[8..].copy_from_slice(&high.to_le_bytes());
    let of = Options {
        file_bytes: 1 << 20,
        run: Some(77),
        ..Options::new(Identity { uuid })
    };
    let data = place.dir.path().join("data");
    let directory = Arc::new(FileDirectory::open(&data).unwrap());
    let at = feed.durable();
    let mut journal = Journal::open(directory, of, Position::new(at)).unwrap();
    feed.set_note(2, 77).unwrap();
    let mut bytes = Vec::new();
    let drained = feed.drain(1, &mut bytes).unwrap();
    journal
        .append(Position::new(drained.start), &bytes)
        .unwrap();
    journal.sync().unwrap();
    feed.set_durable(drained.end).unwrap();
    assert!(
        feed.tail() > drained.end + 100_000,
        "only its first piece is durable"
    );
    drop((journal, feed, store));
    let options = place.options("data").sync(SyncPolicy::No);
    let (served, durability) = place.open_with(options, "s").unwrap();
    durability.checkpoint_and_wait().unwrap();
    assert_eq!(contents(&served), before);
    durability.close().unwrap();
    drop(served);
    place.registry.remove_segment("s").unwrap();
    let (served, _durability) = place.open("s", "data").unwrap();
    assert_eq!(contents(&served), before);
}

/// A restore of a backup that is newer than the one restored before.
#[test]
fn a_backup_is_restored_whatever_was_restored_before() {
    BOTH.into_iter().for_each(restored_again);
}

fn restored_again(mode: DurabilityMode) {
    let dir = TestDir::new("durable-restores");
    let options = |dir: &TestDir| options(dir).mode(mode);
    let open = |dir: &TestDir| options(dir).open_private(builder()).unwrap();
    let at = |store: &LogStore| store.get(b"key").unwrap().unwrap().to_vec();
    let store = open(&dir);
    for name in ["first", "second"] {
        store.put(b"key", name.as_bytes()).unwrap();
        store.put(name.as_bytes(), &[5; 3000]).unwrap();
        store.sync().unwrap();
        store.backup(name).unwrap();
    }
    store.put(b"key", b"last").unwrap();
    store.close().unwrap();
    for (round, name) in ["first", "second", "first", "first", "second"]
        .into_iter()
        .enumerate()
    {
        options(&dir).restore(name).unwrap();
        for _ in 0..2 {
            let store = open(&dir);
            assert_eq!(at(&store), name.as_bytes(), "round {round}");
            assert_eq!(store.contains(b"second").unwrap(), name == "second");
            store.put(b"other", &[round as u8; 100]).unwrap();
            store.close().unwrap();
        }
    }
    // In a directory of its own.
    let other = TestDir::new("durable-restores-2");
    fs::copy(
        dir.path().join("second.backup"),
        other.path().join("second.backup"),
    )
    .unwrap();
    options(&other).restore("second").unwrap();
    for _ in 0..3 {
        let store = open(&other);
        assert_eq!(at(&store), b"second");
        store.put(b"other", b"value").unwrap();
        store.close().unwrap();
    }
}

/// A segment that does not belong to the restored directory is left alone, whether it holds the
/// only records of a server without a directory, or belongs to another directory.
#[test]
fn a_restore_leaves_segments_of_others_alone() {
    BOTH.into_iter().for_each(others_left_alone);
}

fn others_left_alone(mode: DurabilityMode) {
    let place = Place::of("durable-restore-others", mode);
    let (served, durability) = place.open("own", "data").unwrap();
    served.put(b"key", b"kept").unwrap();
    durability.backup("kept").unwrap();
    served.put(b"key", b"later").unwrap();
    durability.close().unwrap();
    drop(served);
    let memory = StoreOptions::new().capacity(64 << 20).maintainer(false);
    let memory = memory.create(&place.registry, "memory").unwrap();
    memory.put(b"only", b"copy").unwrap();
    drop(memory);
    let (other, durability) = place.open("other", "data-2").unwrap();
    other.put(b"only", b"copy").unwrap();
    drop((other, durability));
    let heap = place.registry.segment("heap").size(1 << 20);
    heap.create().unwrap();
    let restore = |name| {
        let options = place.options("data");
        options.restore_segment(&place.registry, name, "kept")
    };
    for (name, whose) in [("memory", Unpaired::Stranger), ("other", Unpaired::Stores)] {
        let refused = restore(name).unwrap_err();
        assert!(
            matches!(&refused, DurableError::OtherSegment { name: named, whose: found }
                if named == name && *found == whose),
            "{refused:?}"
        );
        let store = SharedStore::attach(&place.registry, name).unwrap();
        assert_eq!(store.get(b"only").unwrap().as_deref(), Some(&b"copy"[..]));
    }
    let refused = restore("heap").unwrap_err();
    assert!(
        matches!(refused, DurableError::UnknownSegment { .. }),
        "{refused:?}"
    );
    let mut names = place.registry.segments().unwrap();
    names.retain(|name| name.as_str().starts_with("heap"));
    assert_eq!(names.len(), 1);
    // The directory is unchanged, too.
    let (served, durability) = place.open("own", "data").unwrap();
    assert_eq!(served.get(b"key").unwrap().as_deref(), Some(&b"later"[..]));
    durability.close().unwrap();
}

/// What was written since the backup is still in the segment, which has another name; an empty
/// directory accepts it.
#[test]
fn a_restore_sets_the_segment_aside() {
    BOTH.into_iter().for_each(set_aside);
}

fn set_aside(mode: DurabilityMode) {
    let place = Place::of("durable-restore-aside", mode);
    let (served, durability) = place.open("s", "data").unwrap();
    served.put(b"key", b"kept").unwrap();
    durability.backup("kept").unwrap();
    drop((served, durability));
    for round in 1..3u8 {
        let (served, durability) = place.open("s", "data").unwrap();
        assert_eq!(served.get(b"key").unwrap().as_deref(), Some(&b"kept"[..]));
        served.put(b"key", &[round]).unwrap();
        durability.close().unwrap();
        drop(served);
        let options = place.options("data");
        let aside = options.restore_segment(&place.registry, "s", "kept");
        let expected = format!("s~replaced-{round}");
        assert_eq!(aside.unwrap().as_ref(), Some(&expected));
        let missing = options.restore_segment(&place.registry, "s", "kept");
        assert_eq!(missing.unwrap(), None);
    }
    let (served, _durability) = place.open("s~replaced-2", "empty").unwrap();
    assert_eq!(served.get(b"key").unwrap().as_deref(), Some(&[2][..]));
}

/// A file system's root has a directory `lost+found` from the start; this and other foreign files
/// do not prevent a store.
#[test]
fn a_restore_goes_beside_files_that_belong_to_no_store() {
    BOTH.into_iter().for_each(beside_strange_files);
}

fn beside_strange_files(mode: DurabilityMode) {
    let dir = TestDir::new("durable-restore-from");
    let store = open(&dir);
    store.put(b"key", b"kept").unwrap();
    store.backup("kept").unwrap();
    drop(store);
    let mount = TestDir::new("durable-restore-mount");
    fs::create_dir(mount.path().join("lost+found")).unwrap();
    fs::write(mount.path().join("readme"), "a disk for data").unwrap();
    fs::write(
        mount.path().join("spare-000000"),
        "of a start that found no space",
    )
    .unwrap();
    let to = options(&mount).mode(mode);
    to.restore_from(dir.path(), "kept").unwrap();
    let store = to.open_private(builder()).unwrap();
    assert_eq!(store.get(b"key").unwrap().as_deref(), Some(&b"kept"[..]));
    store.close().unwrap();
    assert!(mount.path().join("lost+found").is_dir());
    // Each kind of file that a store has prevents it.
    let files = [
        "kept.backup",
        "1.lost",
        "store.tree",
        "00000000000000000000.base",
    ];
    for file in files.into_iter().chain(["00000000000000000000.journal"]) {
        let there = TestDir::new("durable-restore-there");
        fs::write(there.path().join(file), "").unwrap();
        let refused = options(&there).mode(mode).restore_from(dir.path(), "kept");
        assert!(
            matches!(&refused, Err(DurableError::NotEmpty { file: named, .. }) if named == file),
            "{refused:?}"
        );
    }
}

/// The next backup would replace what may be the last copy of a store by an empty one.
#[test]
fn no_store_begins_empty_beside_backups() {
    BOTH.into_iter().for_each(not_beside_backups);
}

fn not_beside_backups(mode: DurabilityMode) {
    let dir = TestDir::new("durable-beside-backups");
    let store = open(&dir);
    store.put(b"key", b"older").unwrap();
    store.backup("z-older").unwrap();
    store.put(b"key", b"kept").unwrap();
    store.backup("kept").unwrap();
    drop(store);
    let place = Place::of("durable-backups-alone", mode);
    let data = place.dir.path().join("data");
    fs::create_dir(&data).unwrap();
    for name in ["kept.backup", "z-older.backup"] {
        fs::copy(dir.path().join(name), data.join(name)).unwrap();
    }
    let is_refused = |refused: Result<(), DurableError>| {
        let refused = refused.unwrap_err();
        assert!(
            matches!(&refused, DurableError::BackupsAlone { backup, .. } if backup == "kept"),
            "{refused:?}"
        );
        let says = format!("mneme restore {0}/kept.backup {0}", data.display());
        assert!(refused.to_string().contains(&says), "{refused}");
        let names = fs::read_dir(&data).unwrap().count();
        assert_eq!(names, 3, "two backups and the lock");
    };
    is_refused(place.open("s", "data").map(drop));
    assert!(place.registry.segments().unwrap().is_empty());
    is_refused(place.options("data").open_private(builder()).map(drop));
    // An empty segment is an empty store, too.
    let empty = StoreOptions::new().capacity(64 << 20).change_feed(true);
    drop(
        empty
            .maintainer(false)
            .create(&place.registry, "s")
            .unwrap(),
    );
    is_refused(place.open("s", "data").map(drop));
    // A segment with records starts the directory, as usual.
    let store = SharedStore::attach_writable(&place.registry, "s").unwrap();
    store.put(b"key", b"lives").unwrap();
    drop(store);
    let (served, durability) = place.open("s", "data").unwrap();
    assert_eq!(served.get(b"key").unwrap().as_deref(), Some(&b"lives"[..]));
    durability.close().unwrap();
    drop(served);
    // That is another store than the one in the backup.
    let other = place.options("data").restore("kept");
    assert!(
        matches!(other, Err(DurableError::OtherBackup { .. })),
        "{other:?}"
    );
    let (served, durability) = place.open("s", "data").unwrap();
    assert_eq!(served.get(b"key").unwrap().as_deref(), Some(&b"lives"[..]));
    durability.close().unwrap();
    // A restore uses the name in the message.
    for entry in fs::read_dir(&data).unwrap().map(Result::unwrap) {
        if !entry.file_name().to_string_lossy().ends_with(".backup") {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    place.options("data").restore("kept").unwrap();
    let store = place.options("data").open_private(builder()).unwrap();
    assert_eq!(store.get(b"key").unwrap().as_deref(), Some(&b"kept"[..]));
}
