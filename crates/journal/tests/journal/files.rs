//! The files of a journal: which are created, reused and locked.

use std::sync::Arc;
use std::time::Duration;

use mneme_journal::{Journal, JournalError, Position, check};
use mneme_sys::medium::{Directory, FileDirectory, RecordingDirectory};
use mneme_testkit::{TestDir, retry_within};

use crate::common::{FILE, content, open, options, read_from, shared};

#[test]
fn files_of_another_length_are_read_and_not_recycled() {
    let directory = RecordingDirectory::new();
    let mut stream = Vec::new();
    for blocks in [5, 8, 4, 5] {
        let mut options = options();
        options.file_bytes = blocks * 4096;
        let at = Position::new(stream.len() as u64);
        let mut journal = Journal::open(shared(&directory), options, at).unwrap();
        for _ in 0..12 {
            let more = content(1, stream.len() as u64, 3000);
            journal.append(journal.position(), &more).unwrap();
            stream.extend(more);
        }
        journal.prepare(u64::MAX).unwrap();
        let durable = journal.close().unwrap();
        assert_eq!(read_from(&directory, 0).unwrap(), stream);
        assert_eq!(durable.get(), stream.len() as u64);
    }
    let mut journal = open(&directory, stream.len() as u64);
    journal.remove_before(journal.durable()).unwrap();
    let files = directory.files();
    let spares: Vec<_> = files
        .iter()
        .filter(|(name, _)| name.starts_with("spare-"))
        .collect();
    assert!(!spares.is_empty());
    assert!(spares.iter().all(|(_, bytes)| bytes.len() as u64 == FILE));
}

#[test]
fn removed_files_are_reused() {
    let directory = RecordingDirectory::new();
    let mut journal = open(&directory, 0);
    for round in 0..20 {
        for _ in 0..3 {
            let at = journal.position();
            journal.append(at, &content(1, at.get(), 5000)).unwrap();
        }
        let durable = journal.sync().unwrap();
        journal.remove_before(durable).unwrap();
        let first = journal.first().get();
        assert_eq!(
            read_from(&directory, first).unwrap(),
            content(1, first, (durable.get() - first) as usize)
        );
        assert!(directory.files().len() <= 4, "round {round}");
    }
    let trace = directory.trace();
    let made =
        trace.positions(|op| matches!(op, mneme_sys::medium::DirectoryOperation::Create { .. }));
    assert!(made.len() <= 5, "{} files were made", made.len());
}

#[test]
fn impossible_settings_are_refused() {
    for bytes in [0, 4096, 12_288, 20_481] {
        let mut options = options();
        options.file_bytes = bytes;
        let refused = Journal::open(
            shared(&RecordingDirectory::new()),
            options,
            Position::new(0),
        );
        assert!(
            matches!(refused, Err(JournalError::Invalid { .. })),
            "{refused:?}"
        );
    }
}

#[test]
fn real_files_are_written_read_and_locked() {
    let path = TestDir::on_disk("journal");
    let directory: Arc<dyn Directory> = Arc::new(FileDirectory::open(&path).unwrap());
    let mut journal = Journal::open(directory.clone(), options(), Position::new(0)).unwrap();
    let stream = content(1, 0, 50_000);
    for part in stream.chunks(3000) {
        journal.append(journal.position(), part).unwrap();
        journal.prepare(1 << 20).unwrap();
    }
    assert_eq!(journal.close().unwrap().get(), 50_000);
    // Another process reads it without the lock, and may not write.
    let looking = FileDirectory::open_unlocked(&path).unwrap();
    assert_eq!(check(&looking, None).unwrap().end.get(), 50_000);
    let refused = Journal::open(Arc::new(looking), options(), Position::new(50_000));
    assert!(
        matches!(refused, Err(JournalError::Medium { .. })),
        "{refused:?}"
    );
    assert!(FileDirectory::open(&path).is_err());
    assert_eq!(read_from(&*directory, 0).unwrap(), stream);
    drop(directory);
    // A child that another test is starting at this moment holds a copy of the lock's descriptor
    // until it calls `exec`.
    let again = retry_within(Duration::from_secs(60), || FileDirectory::open(&path));
    let directory: Arc<dyn Directory> = Arc::new(again);
    let journal = Journal::open(directory, options(), Position::new(50_000)).unwrap();
    assert_eq!(journal.runs().number(), 2);
}
