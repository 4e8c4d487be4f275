//! A store on a file system that is full before the store is: writes are refused with an error, no
//! process gets a signal, and stored records stay.
#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use mneme_log::{Evict, LogStore, WriteError, control_bytes};
use mneme_sys::{Access, OfdLiveness, PagePolicy, Region, Reserve};
use mneme_testkit::{Mount, TestDir};

/// A tmpfs over a directory of its own.
struct Place {
    mount: Mount,
    _directory: TestDir,
}

impl Place {
    /// One of that size; `None` if mounting is not permitted, so that the test is skipped.
    fn new(size: &str) -> Option<Self> {
        let directory = TestDir::new("full-disk");
        Some(Self {
            mount: Mount::tmpfs(&directory, size)?,
            _directory: directory,
        })
    }

    /// A store of `bytes` bytes in files below it, which take only the space that is used.
    fn open(&self, bytes: usize) -> LogStore {
        let (access, lazy, small) = (Access::ReadWrite, Reserve::Lazy, PagePolicy::Small);
        let [data, control] = ["data", "control"].map(|name| self.mount.path().join(name));
        let region = Region::map_with(file(&data).into(), access, bytes, small, lazy).unwrap();
        region.grow(bytes).unwrap();
        let locks = Region::map(file(&control).into(), access, control_bytes(), small).unwrap();
        locks.grow(control_bytes()).unwrap();
        let liveness = Arc::new(OfdLiveness::open(&control, 0).unwrap());
        let builder = LogStore::builder().maintainer(false);
        builder.create_in(region, locks, liveness).unwrap()
    }
}

fn file(path: &Path) -> File {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    options.open(path).unwrap()
}

#[test]
fn a_full_file_system_refuses_writes_and_loses_nothing() {
    let Some(place) = Place::new("48m") else {
        return;
    };
    let store = place.open(256 << 20);

    let value = [7; 10_000];
    let mut stored = 0u32;
    let refused = loop {
        match store.put(&stored.to_le_bytes(), &value) {
            Ok(()) => stored += 1,
            Err(refused) => break refused,
        }
    };
    assert!(
        matches!(refused, WriteError::OutOfMemory { .. }),
        "{refused}"
    );
    assert!(stored > 1000, "{stored}");
    for i in 0..stored {
        assert_eq!(store.get(&i.to_le_bytes()).unwrap().unwrap(), value);
    }
    // The space of removed records is used for others.
    for i in 0..stored / 2 {
        assert!(store.remove(&i.to_le_bytes()).unwrap());
    }
    for i in 0..stored / 4 {
        store.put(&i.to_le_bytes(), &value).unwrap();
    }
    let report = store.check().unwrap();
    assert!(report.is_sound(), "{report:?}");
}

/// Compaction wins back the space of scattered removed records; some space is reserved for it from
/// the beginning.
#[test]
fn a_full_file_system_leaves_compaction_space() {
    let Some(place) = Place::new("64m") else {
        return;
    };
    let store = place.open(256 << 20);
    for size in [100_000, 1_000, 200_000] {
        let value = vec![7; size];
        let fill = |from: u32| {
            (from..)
                .take_while(|i| store.put(&i.to_le_bytes(), &value).is_ok())
                .count() as u32
        };
        let stored = fill(0);
        assert!(
            u64::from(stored) * size as u64 > 30 << 20,
            "{size}: {stored}"
        );
        for i in (0..stored).step_by(2) {
            assert!(store.remove(&i.to_le_bytes()).unwrap());
        }
        let again = fill(1 << 30);
        assert!(again > stored / 3, "{size}: {again} of {stored}");
        for i in (0..stored).chain(1 << 30..(1 << 30) + again) {
            let there = store.remove(&i.to_le_bytes()).unwrap();
            assert_eq!(there, i >= 1 << 30 || i % 2 == 1, "{size}: {i}");
        }
        let report = store.check().unwrap();
        assert!(report.is_sound(), "{size}: {report:?}");
    }
}

/// Another file is removed, and the store uses its space, although there is no maintainer.
#[test]
fn space_that_comes_back_is_used() {
    let Some(place) = Place::new("64m") else {
        return;
    };
    let ballast = place.mount.path().join("ballast");
    std::fs::write(&ballast, vec![0; 24 << 20]).unwrap();
    let store = place.open(256 << 20);
    let value = [7; 50_000];
    let mut keys = 0u32..;
    let mut put = || store.put(&keys.next().unwrap().to_le_bytes(), &value);
    while put().is_ok() {}
    std::fs::remove_file(&ballast).unwrap();
    // The store asks for space again only after a while.
    while put().is_err() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    for _ in 0..100 {
        put().unwrap();
    }
    assert!(store.check().unwrap().is_sound());
}

/// The reserve for compaction is measured by the available space, not by the nominal capacity.
#[test]
fn a_store_much_larger_than_the_file_system_uses_what_there_is() {
    let Some(place) = Place::new("128m") else {
        return;
    };
    let store = place.open(4 << 30);
    let value = [7; 10_000];
    let fill = |from: u32| (from..).take_while(|i| store.put(&i.to_le_bytes(), &value).is_ok());
    for round in 0..3 {
        let stored = fill(round << 24).count();
        assert!(stored > 3000, "round {round}: {stored}");
        store.clear().unwrap();
    }
    assert!(store.check().unwrap().is_sound());
}

/// A value for which the store would have space, but not the file system.
#[test]
fn nothing_is_forgotten_for_what_the_file_system_cannot_hold() {
    let Some(place) = Place::new("128m") else {
        return;
    };
    let store = place.open(1 << 30);
    store.set_eviction(Evict::Lru).unwrap();
    for i in 0..200_000u32 {
        store.put(&i.to_le_bytes(), &[7; 1000]).unwrap();
    }
    let before = store.len();
    let refused = store.put(b"large", &vec![1; 200 << 20]);
    assert!(matches!(refused, Err(WriteError::OutOfMemory { .. })));
    assert!(store.len() > before / 2, "{} of {before}", store.len());
    assert!(store.check().unwrap().is_sound());
}

/// A full store refuses nothing because memory was given back. If another file has taken the space
/// meanwhile, it reports that, and uses the rest.
#[test]
fn returned_frames_are_claimed_again_while_the_disk_has_space() {
    let Some(place) = Place::new("64m") else {
        return;
    };
    let store = place.open(256 << 20);
    let value = [7; 10_000];
    let fill = || {
        (0u32..)
            .take_while(|i| store.put(&i.to_le_bytes(), &value).is_ok())
            .count() as u32
    };
    let empty = |stored: u32| {
        for i in 0..stored {
            assert!(store.remove(&i.to_le_bytes()).unwrap());
        }
        store.compact().unwrap();
        let given = store.give_back_memory().unwrap();
        assert!(given > 30 << 20, "{given}");
        assert_eq!(store.stats().spare_bytes, 0);
    };
    let stored = fill();
    empty(stored);
    let again = fill();
    // Half of the store was given back. What heads leave unused of their last log segments varies
    // by less than an eighth.
    assert!(again >= stored - stored / 8, "{again} of {stored}");
    empty(again);
    let ballast = place.mount.path().join("ballast");
    std::fs::write(&ballast, vec![0; 16 << 20]).unwrap();
    let fewer = fill();
    let taken = stored - (20 << 20) / 10_000;
    assert!(
        fewer >= taken - stored / 8 && fewer < stored,
        "{fewer} of {stored}"
    );
    // Free frames with space are before and after those without.
    for i in (0..fewer).filter(|i| i % 4 > 0) {
        assert!(store.remove(&i.to_le_bytes()).unwrap());
    }
    store.compact().unwrap();
    let last = fill();
    assert!(last >= fewer * 3 / 4, "{last} of {fewer}");
    let report = store.check().unwrap();
    assert!(report.is_sound(), "{report:?}");
}
