//! Syncs that fail, and disks that are full.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use mneme_journal::{Journal, JournalError, Position};
use mneme_sys::medium::{Directory, MediumError, RecordingDirectory, Storage};
use mneme_testkit::Random;

use crate::common::blocks::Blocks;
use crate::common::{FILE, content, open, options, read_from, shared};

#[test]
fn a_failed_sync_asks_for_what_was_not_durable_and_a_second_one_is_final() {
    let directory = RecordingDirectory::new();
    let mut journal = open(&directory, 0);
    let stream = content(1, 0, 5000);
    journal.append(Position::new(0), &stream[..1000]).unwrap();
    journal.sync().unwrap();
    for failures in [0, 1] {
        journal.append(journal.position(), &stream[1000..]).unwrap();
        directory.fail_sync(1, 0, 0);
        let failed = journal.sync();
        let Err(JournalError::Restarted { from, .. }) = failed else {
            panic!("{failed:?}");
        };
        assert_eq!(from.get(), 1000);
        assert_eq!((journal.position(), journal.durable()), (from, from));
        journal.append(from, &stream[1000..]).unwrap();
        if failures == 0 {
            journal.sync().unwrap();
            assert_eq!(read_from(&directory, 0).unwrap(), stream);
            // Back to position 1000 for the second round.
            journal = open(&directory, 1000);
            continue;
        }
        directory.fail_sync(1, 0, 0);
        let failed = journal.sync();
        assert!(
            matches!(failed, Err(JournalError::Failed { .. })),
            "{failed:?}"
        );
    }
    for refused in [
        journal.append(journal.position(), b"x"),
        journal.rotate(),
        journal.idle(),
    ] {
        assert!(
            matches!(refused, Err(JournalError::Failed { .. })),
            "{refused:?}"
        );
    }
    assert_eq!(journal.durable().get(), 1000);
}

/// A disk may notice only at a sync that it has no space for a file.
#[test]
fn a_spare_follows_a_sparse_file_whose_begin_cannot_be_synced() {
    let directory = RecordingDirectory::new();
    let mut options = options();
    options.reserve = 20_000;
    let mut journal =
        Journal::open(Arc::new(directory.clone()), options, Position::new(0)).unwrap();
    journal.set_preallocates(false);
    while !journal.prepare(u64::MAX).unwrap() {}
    let spares = journal.stats().spares;
    let stream = content(1, 0, 3000);
    for (part, left) in stream.chunks(1000).zip([spares, spares - 1, spares - 1]) {
        journal.append(journal.position(), part).unwrap();
        journal.sync().unwrap();
        if left < journal.stats().spares {
            directory.fail_sync(1, 0, 0);
        }
        journal.rotate().unwrap();
        assert_eq!(journal.stats().spares, left);
    }
    journal.close().unwrap();
    assert_eq!(read_from(&directory, 0).unwrap(), stream);
}

/// A file that holds nothing yet is given up without loss; a second one is not.
#[test]
fn only_one_other_file_follows_a_new_file_that_cannot_be_synced() {
    for (prepares, fails_more) in [(true, 0), (false, 0), (true, 1), (false, 1)] {
        let directory = RecordingDirectory::new();
        let mut journal = open(&directory, 0);
        let stream = content(1, 0, 2000);
        journal.append(Position::new(0), &stream[..1000]).unwrap();
        journal.sync().unwrap();
        while prepares && !journal.prepare(u64::MAX).unwrap() {}
        directory.fail_sync(1, 0, fails_more);
        let rotated = journal.rotate();
        if fails_more > 0 {
            assert!(
                matches!(rotated, Err(JournalError::Failed { .. })),
                "{rotated:?}"
            );
            assert_eq!(read_from(&directory, 0).unwrap(), stream[..1000]);
            continue;
        }
        rotated.unwrap();
        journal.append(journal.position(), &stream[1000..]).unwrap();
        journal.close().unwrap();
        assert_eq!(read_from(&directory, 0).unwrap(), stream);
    }
}

#[test]
fn a_directory_that_fails_to_sync_is_final() {
    let directory = RecordingDirectory::new();
    let mut journal = open(&directory, 0);
    journal
        .append(Position::new(0), &content(1, 0, 1000))
        .unwrap();
    directory.fail_names(1);
    let failed = journal.rotate();
    assert!(
        matches!(failed, Err(JournalError::Failed { .. })),
        "{failed:?}"
    );
    assert_eq!(journal.durable().get(), 1000);
    assert_eq!(read_from(&directory, 0).unwrap(), content(1, 0, 1000));
}

/// The disk becomes full: the journal reports that while everything that a ring holds still fits,
/// and accepts it.
#[test]
fn a_full_disk_is_announced_while_the_reserve_still_fits() {
    let directory = RecordingDirectory::new();
    let mut options = options();
    options.reserve = 40_000;
    let mut journal = Journal::open(shared(&directory), options, Position::new(0)).unwrap();
    while !journal.prepare(4096).unwrap() {}
    assert!(!journal.is_nearly_full());
    let used: usize = directory.files().values().map(Vec::len).sum();
    directory.limit(Some(used as u64 + 3 * FILE));
    let mut stream = Vec::new();
    while !journal.is_nearly_full() {
        let more = content(1, stream.len() as u64, 3000);
        journal.append(journal.position(), &more).unwrap();
        stream.extend(more);
        journal.sync().unwrap();
        let prepared = journal.prepare(8192);
        assert!(
            matches!(prepared, Ok(_) | Err(JournalError::NoSpace { .. })),
            "{prepared:?}"
        );
    }
    // One group took the space below the reserve. The ring holds as much as the reserve, less that
    // group.
    assert!(journal.free_space() > 40_000 - 16_384);
    let ring = journal.free_space();
    let more = content(1, stream.len() as u64, ring as usize);
    for part in more.chunks(8000) {
        journal.append(journal.position(), part).unwrap();
    }
    stream.extend(more);
    journal.sync().unwrap();
    let full = loop {
        let more = content(1, stream.len() as u64, 8000);
        match journal.append(journal.position(), &more) {
            Ok(()) => stream.extend(more),
            Err(error) => break error,
        }
    };
    assert!(matches!(full, JournalError::NoSpace { .. }), "{full:?}");
    // It resumes by itself.
    directory.limit(None);
    while !journal.prepare(u64::MAX).unwrap() {}
    assert!(!journal.is_nearly_full());
    journal.append(journal.position(), b"on").unwrap();
    stream.extend(b"on");
    journal.sync().unwrap();
    assert_eq!(read_from(&directory, 0).unwrap(), stream);
}

/// Besides the reserve, files are sparse. When the disk becomes full, everything that a ring holds
/// still fits.
#[test]
fn sparse_files_leave_the_reserve_for_a_full_disk() {
    for round in 0..12 {
        let mut random = Random::new(round as u64);
        let directory = Blocks::default();
        let mut options = options();
        options.reserve = 20_000;
        options.recycled = 20 * FILE;
        let shared = Arc::new(directory.clone());
        let opened = Journal::open(shared, options.clone(), Position::new(0));
        let mut journal = opened.unwrap();
        journal.set_preallocates(false);
        let mut stream = Vec::new();
        let append = |journal: &mut Journal, stream: &mut Vec<u8>, bytes| {
            let more = content(1, stream.len() as u64, bytes);
            let appended = journal.append(journal.position(), &more);
            if appended.is_ok() {
                stream.extend(more);
            }
            appended
        };
        while !journal.prepare(u64::MAX).unwrap() {}
        let reserved = journal.stats().spares;
        for _ in 0..40 {
            append(&mut journal, &mut stream, 3000).unwrap();
            let durable = journal.sync().unwrap();
            match random.below(8) {
                // A file with holes is removed, and one without is reused.
                0 | 1 => journal.rotate().unwrap(),
                2 => drop(journal.remove_before(durable).unwrap()),
                _ => {}
            }
            // The files that count have their blocks.
            let with_holes = directory.with_holes();
            let is_spare = |name: &&String| name.starts_with("spare-");
            assert_eq!(with_holes.iter().find(is_spare), None);
            let begun = directory.inner.files();
            let mut files = begun.keys().filter(|name| name.ends_with(".journal"));
            if files
                .next_back()
                .is_some_and(|file| with_holes.contains(file))
            {
                assert_eq!(journal.free_space(), 4096 * journal.stats().spares);
            }
        }
        assert!(!journal.is_nearly_full());
        assert!(journal.stats().spares >= reserved, "none was taken");
        directory.leave(Some(round));
        // As the end of a ring is written: in large groups, some of which are lost again.
        let ring = journal.free_space();
        assert!(ring >= 20_000);
        for _ in 0..ring / 4000 {
            append(&mut journal, &mut stream, 4000).unwrap();
        }
        journal.sync().unwrap();
        let full = loop {
            match append(&mut journal, &mut stream, 8000) {
                Ok(()) => {}
                Err(error) => break error,
            }
        };
        assert!(matches!(full, JournalError::NoSpace { .. }), "{full:?}");
        assert!(journal.is_nearly_full());
        directory.leave(None);
        while !journal.prepare(u64::MAX).unwrap() {}
        assert!(!journal.is_nearly_full());
        append(&mut journal, &mut stream, 2000).unwrap();
        journal.close().unwrap();
        let first = stream.len() - 6000;
        let read = read_from(&directory, first as u64).unwrap();
        assert_eq!(read, stream[first..], "round {round}");
    }
}

/// A directory whose own block has no space for another name.
#[derive(Debug)]
struct WithoutNames(RecordingDirectory, AtomicBool);

impl Directory for WithoutNames {
    fn names(&self) -> Result<Vec<String>, MediumError> {
        self.0.names()
    }
    fn create(&self, name: &str) -> Result<Box<dyn Storage>, MediumError> {
        self.0.create(name)
    }
    fn open(&self, name: &str) -> Result<Box<dyn Storage>, MediumError> {
        self.0.open(name)
    }
    fn rename(&self, from: &str, to: &str) -> Result<(), MediumError> {
        if self.1.load(Relaxed) {
            return Err(MediumError::NoSpace { wanted: 0 });
        }
        self.0.rename(from, to)
    }
    fn remove(&self, name: &str) -> Result<(), MediumError> {
        self.0.remove(name)
    }
    fn sync(&self) -> Result<(), MediumError> {
        self.0.sync()
    }
}

/// Retrying on a full disk uses up no spares.
#[test]
fn a_file_without_space_for_its_name_keeps_its_spare() {
    let directory = RecordingDirectory::new();
    let shared = Arc::new(WithoutNames(directory.clone(), AtomicBool::new(false)));
    let mut options = options();
    options.reserve = 3 * FILE;
    let mut journal = Journal::open(shared.clone(), options, Position::new(0)).unwrap();
    while !journal.prepare(u64::MAX).unwrap() {}
    let stream = content(1, 0, 1000);
    journal.append(Position::new(0), &stream).unwrap();
    let before = journal.stats();
    shared.1.store(true, Relaxed);
    for _ in 0..3 {
        let refused = journal.rotate();
        assert!(
            matches!(refused, Err(JournalError::NoSpace { .. })),
            "{refused:?}"
        );
        assert_eq!(journal.stats().spares, before.spares);
    }
    shared.1.store(false, Relaxed);
    journal.rotate().unwrap();
    assert_eq!(journal.stats().spares, before.spares - 1);
    assert_eq!(read_from(&directory, 0).unwrap(), stream);
}

/// A full disk does not prevent removing a file: that needs no other name.
#[test]
fn a_file_without_space_for_another_name_is_removed() {
    let directory = RecordingDirectory::new();
    let shared = Arc::new(WithoutNames(directory.clone(), AtomicBool::new(false)));
    let mut options = options();
    options.reserve = 3 * FILE;
    let mut journal = Journal::open(shared.clone(), options, Position::new(0)).unwrap();
    let stream = content(1, 0, 2000);
    for part in stream.chunks(1000) {
        journal.append(journal.position(), part).unwrap();
        journal.rotate().unwrap();
    }
    let before = journal.stats();
    shared.1.store(true, Relaxed);
    assert_eq!(journal.remove_before(Position::new(1000)).unwrap(), 1);
    shared.1.store(false, Relaxed);
    let after = journal.stats();
    assert_eq!(
        (after.files, after.spares),
        (before.files - 1, before.spares)
    );
    journal.close().unwrap();
    assert_eq!(read_from(&directory, 1000).unwrap(), stream[1000..]);
}
