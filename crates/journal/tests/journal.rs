//! What a journal does when nothing crashes, and what it says of damaged files.
#![allow(clippy::unwrap_used)]

mod bases;
mod common;
mod golden;
mod kills;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use common::blocks::Blocks;
use common::{FILE, content, open, options, read_from, shared};
use mneme_journal::{
    BaseName, BaseWriter, Flaw, Journal, JournalError, Position, Reader, check, repair,
};
use mneme_sys::crc32c;
use mneme_sys::medium::{Directory, FileDirectory, MediumError, RecordingDirectory, Storage};
use mneme_testkit::{Random, TestDir, retry_within};

type Files = BTreeMap<String, Vec<u8>>;

/// A journal of three files that was closed, and what it holds.
fn closed() -> (Files, Vec<u8>) {
    let directory = RecordingDirectory::new();
    let mut journal = open(&directory, 0);
    let stream = content(1, 0, 27_500);
    for part in stream.chunks(2500) {
        journal.append(journal.position(), part).unwrap();
        journal.sync().unwrap();
    }
    journal.close().unwrap();
    let files = directory.files();
    assert_eq!(
        files
            .keys()
            .filter(|name| name.ends_with(".journal"))
            .count(),
        3
    );
    (files, stream)
}

fn directory_of(files: &Files) -> RecordingDirectory {
    RecordingDirectory::with_files(files.clone())
}

/// The error of reading everything, if there is one; otherwise everything is there.
fn damage(files: &Files, stream: &[u8]) -> Option<JournalError> {
    match read_from(&directory_of(files), 0) {
        Ok(bytes) => {
            assert!(
                bytes == stream,
                "{} wrong bytes without an error",
                bytes.len()
            );
            None
        }
        Err(error) => Some(error),
    }
}

#[test]
fn what_was_appended_is_read_back_from_anywhere() {
    let (files, stream) = closed();
    let directory = directory_of(&files);
    for from in [0, 1, 2499, 2500, 14_999, 27_499, 27_500] {
        assert_eq!(
            read_from(&directory, from).unwrap(),
            stream[from as usize..],
            "{from}"
        );
    }
    let beyond = read_from(&directory, 27_501);
    assert!(
        matches!(beyond, Err(JournalError::Ended { .. })),
        "{beyond:?}"
    );
    assert_eq!(read_from(&RecordingDirectory::new(), 7).unwrap(), b"");
}

#[test]
fn a_run_begins_anywhere_before_the_end_and_cuts_what_is_behind() {
    let (files, mut stream) = closed();
    let directory = directory_of(&files);
    for at in [27_500, 27_490, 27_490, 7_000, 7_001, 2500, 0] {
        let mut journal = open(&directory, at);
        stream.truncate(at as usize);
        assert_eq!(read_from(&directory, 0).unwrap(), stream);
        let more = content(2, at, 9_000);
        let again = journal.append(Position::new(at + 1), &more);
        assert!(
            matches!(again, Err(JournalError::OutOfPlace { .. })),
            "{again:?}"
        );
        journal.append(Position::new(at), &more).unwrap();
        assert_eq!(journal.durable().get(), at);
        assert_eq!(journal.sync().unwrap().get(), at + 9000);
        stream.extend(more);
        assert_eq!(read_from(&directory, 0).unwrap(), stream);
        let runs = journal.runs();
        assert_eq!(runs.last().unwrap().first.get(), at);
    }
    let reader = Reader::open(&directory, Position::new(0)).unwrap();
    assert_eq!(reader.runs().number(), 8);
    assert_eq!(reader.identity(), Some(options().identity));
}

#[test]
fn a_backup_reads_beside_the_writer_up_to_what_is_durable() {
    let directory = RecordingDirectory::new();
    let mut journal = open(&directory, 0);
    let stream = content(1, 0, 20_000);
    for part in stream[..15_000].chunks(2500) {
        journal.append(journal.position(), part).unwrap();
    }
    let durable = journal.sync().unwrap();
    journal.append(durable, &stream[15_000..]).unwrap();
    let operations = directory.trace().operations.len();
    let mut reader = Reader::between(&directory, Position::new(3000), durable).unwrap();
    let mut bytes = Vec::new();
    while let Some(chunk) = reader.next().unwrap() {
        bytes.extend_from_slice(chunk.bytes);
    }
    assert_eq!(bytes, stream[3000..15_000]);
    assert_eq!(
        directory.trace().operations.len(),
        operations,
        "nothing is synced"
    );
    // More than there is.
    let mut reader = Reader::between(&directory, Position::new(19_000), Position::new(30_000));
    let reader = reader.as_mut().unwrap();
    assert_eq!(reader.next().unwrap().unwrap().bytes, &stream[19_000..]);
    assert!(matches!(reader.next(), Err(JournalError::Damaged(_))));
}

#[test]
fn more_runs_than_a_header_lists_are_read() {
    let directory = RecordingDirectory::new();
    let mut stream = Vec::new();
    for at in 0..260 {
        let mut journal = open(&directory, at);
        journal
            .append(Position::new(at), &content(3, at, 1))
            .unwrap();
        journal.sync().unwrap();
        stream.extend(content(3, at, 1));
    }
    assert_eq!(read_from(&directory, 0).unwrap(), stream);
}

#[test]
fn long_appends_are_split_and_long_files_read_in_pieces() {
    let directory = RecordingDirectory::new();
    let mut long = options();
    long.file_bytes = 5 << 20;
    let mut journal = Journal::open(shared(&directory), long, Position::new(0)).unwrap();
    let stream = content(4, 0, 7_000_000);
    journal
        .append(Position::new(0), &stream[..6_999_000])
        .unwrap();
    journal
        .append(Position::new(6_999_000), &stream[6_999_000..])
        .unwrap();
    journal.sync().unwrap();
    assert_eq!(read_from(&directory, 0).unwrap(), stream);
    assert_eq!(
        read_from(&directory, 6_000_001).unwrap(),
        stream[6_000_001..]
    );
    let stats = journal.stats();
    assert_eq!((stats.appended, stats.files), (7_000_000, 2));
    assert!(stats.written < 7_100_000, "{stats:?}");
}

/// In a journal that was closed, everything is known to have been durable: whatever is changed, it
/// is an error, or it changes nothing.
#[test]
fn a_flipped_bit_is_an_error_or_changes_nothing() {
    let (files, stream) = closed();
    let mut random = Random::new(1);
    let (mut errors, mut harmless) = (0, 0);
    for name in files.keys().filter(|name| name.ends_with(".journal")) {
        for at in 0..FILE as usize {
            // All bits where lengths and positions are, one elsewhere, few in what is padding.
            let every = at % 4096 < 96;
            if !every && at % 4096 > 2600 && at % 16 != 0 {
                continue;
            }
            let bits = if every {
                0..8
            } else {
                let bit = random.below(8);
                bit..bit + 1
            };
            for bit in bits {
                let mut flipped = files.clone();
                flipped.get_mut(name).unwrap()[at] ^= 1 << bit;
                match damage(&flipped, &stream) {
                    Some(JournalError::Damaged(found)) => {
                        assert!(found.file.ends_with(".journal") && found.offset <= at as u64);
                        errors += 1;
                    }
                    None => harmless += 1,
                    Some(other) => panic!("{other:?}"),
                }
            }
        }
    }
    assert!(errors > 20_000 && harmless > 500, "{errors} {harmless}");
}

/// Nothing names the last frame's end: damage there is taken for a power cut, and nowhere else.
#[test]
fn a_flipped_bit_in_the_last_frame_is_the_end() {
    let directory = RecordingDirectory::new();
    let mut journal = open(&directory, 0);
    for part in 0..3 {
        journal
            .append(journal.position(), &content(1, part * 1000, 1000))
            .unwrap();
        journal.sync().unwrap();
    }
    let files = directory.files();
    let name = files.keys().next().unwrap();
    for (at, end) in [
        (4096, None),
        (4096 + 900, None),
        (8192 + 41, None),
        (12_288 + 41, Some(2000)),
    ] {
        let mut flipped = files.clone();
        flipped.get_mut(name).unwrap()[at] ^= 4;
        let read = read_from(&directory_of(&flipped), 0);
        match end {
            None => assert!(
                matches!(read, Err(JournalError::Damaged(_))),
                "{at}: {read:?}"
            ),
            Some(end) => assert_eq!(read.unwrap(), content(1, 0, end)),
        }
    }
}

#[test]
fn a_file_cut_anywhere_is_an_error() {
    let (files, stream) = closed();
    for name in files.keys().filter(|name| name.ends_with(".journal")) {
        for len in (0..FILE as usize)
            .step_by(97)
            .chain([4095, 4096, 4097, FILE as usize - 1])
        {
            let mut cut = files.clone();
            cut.get_mut(name).unwrap().truncate(len);
            let found = damage(&cut, &stream);
            assert!(
                matches!(found, Some(JournalError::Damaged(_))),
                "{name} {len}: {found:?}"
            );
        }
    }
}

#[test]
fn zeroed_sectors_and_exchanged_blocks_are_errors() {
    let (files, stream) = closed();
    for name in files.keys().filter(|name| name.ends_with(".journal")) {
        for at in (0..FILE as usize).step_by(512) {
            let mut zeroed = files.clone();
            zeroed.get_mut(name).unwrap()[at..at + 512].fill(0);
            let changed = zeroed[name] != files[name];
            // Nobody misses padding, and the empty frame at the end.
            let idle = name.starts_with("00000000000000020000") && at == 16_384;
            let found = damage(&zeroed, &stream);
            assert!(
                found.is_some() == changed || at % 4096 >= 2540 || idle,
                "{name} {at}"
            );
        }
        let mut exchanged = files.clone();
        exchanged
            .get_mut(name)
            .unwrap()
            .copy_within(4096..8192, 8192);
        assert!(damage(&exchanged, &stream).is_some());
    }
}

#[test]
fn files_that_are_missing_or_of_another_journal_are_errors() {
    let (files, stream) = closed();
    let names: Vec<String> = files
        .keys()
        .filter(|n| n.ends_with(".journal"))
        .cloned()
        .collect();
    let mut without = files.clone();
    without.remove(&names[1]);
    let found = damage(&without, &stream);
    assert!(
        matches!(&found, Some(JournalError::Damaged(d)) if matches!(d.flaw, Flaw::Gap { .. })),
        "{found:?}"
    );
    let mut without = files.clone();
    without.remove(&names[0]);
    let found = damage(&without, &stream);
    assert!(
        matches!(found, Some(JournalError::Missing { .. })),
        "{found:?}"
    );
    // Another history of the same store, and another store.
    let (others, _) = closed();
    let mut mixed = files.clone();
    mixed.insert(names[1].clone(), others[&names[1]].clone());
    let found = damage(&mixed, &stream);
    assert!(
        matches!(&found, Some(JournalError::Damaged(d)) if matches!(d.flaw, Flaw::Run { .. })),
        "{found:?}"
    );
    let mut renamed = files.clone();
    let file = renamed.remove(&names[1]).unwrap();
    renamed.insert("00000000000000000007.journal".to_owned(), file);
    assert!(matches!(
        damage(&renamed, &stream),
        Some(JournalError::Damaged(_))
    ));
    let mut foreign = options();
    foreign.identity.uuid = [8; 16];
    let directory = directory_of(&files);
    let refused = Journal::open(shared(&directory), foreign, Position::new(27_500));
    assert!(
        matches!(refused, Err(JournalError::Foreign { .. })),
        "{refused:?}"
    );
    let early = directory_of(&without);
    let refused = Journal::open(shared(&early), options(), Position::new(3));
    assert!(
        matches!(refused, Err(JournalError::Missing { .. })),
        "{refused:?}"
    );
}

#[test]
fn a_block_that_cannot_be_read_is_an_error_where_it_is_needed() {
    let (files, stream) = closed();
    let names: Vec<&String> = files.keys().filter(|n| n.ends_with(".journal")).collect();
    for at in [0, 4096, 8000, 12_288] {
        let directory = directory_of(&files);
        directory.make_unreadable(names[2], at);
        let found = read_from(&directory, 0);
        assert!(
            matches!(&found, Err(JournalError::Damaged(d)) if matches!(d.flaw, Flaw::Read(_))),
            "{at}: {found:?}"
        );
    }
    // Behind the last frame of a full file nothing is read.
    let directory = directory_of(&files);
    directory.make_unreadable(names[0], FILE - 1);
    let read = read_from(&directory, 0);
    assert!(read.is_err() || read.unwrap() == stream);
}

#[test]
fn check_says_what_repair_loses() {
    let (files, stream) = closed();
    let whole = check(&directory_of(&files), None).unwrap();
    assert!(whole.damage.is_none() && whole.lost == 0);
    assert_eq!((whole.files, whole.end.get()), (3, 27_500));
    let names: Vec<String> = files
        .keys()
        .filter(|n| n.ends_with(".journal"))
        .cloned()
        .collect();
    // A frame in the middle of a file; a header; a whole file; the last header.
    type Break = fn(&mut Files, &[String]);
    let breaks: [(Break, u64); 5] = [
        (
            |files, names| files.get_mut(&names[0]).unwrap()[8192 + 100] ^= 1,
            2500,
        ),
        (
            |files, names| files.get_mut(&names[1]).unwrap()[60] ^= 1,
            10_000,
        ),
        (|files, names| drop(files.remove(&names[1])), 10_000),
        (
            |files, names| files.get_mut(&names[2]).unwrap()[9] ^= 1,
            20_000,
        ),
        (|files, names| files.get_mut(&names[0]).unwrap()[9] ^= 1, 0),
    ];
    for (breaking, end) in breaks {
        let mut broken = files.clone();
        breaking(&mut broken, &names);
        let directory = directory_of(&broken);
        let report = check(&directory, Some(Position::new(0))).unwrap();
        assert!(report.damage.is_some());
        assert_eq!(report.end.get(), end, "{report:?}");
        assert!(
            report.lost > 0 && report.end.get() + report.lost <= 27_500,
            "{report:?}"
        );
        assert_eq!(directory.files(), broken, "a check changes nothing");
        let repaired = repair(&shared(&directory), options(), Some(Position::new(0))).unwrap();
        assert_eq!((repaired.end, repaired.lost), (report.end, report.lost));
        assert_eq!(read_from(&directory, 0).unwrap(), stream[..end as usize]);
        let after = check(&directory, Some(Position::new(0))).unwrap();
        assert!(after.damage.is_none(), "{after:?}");
        // No byte is gone for good.
        let kept = directory.files();
        for (name, bytes) in broken.iter().filter(|(name, _)| name.ends_with(".journal")) {
            let lost = format!("{name}.lost");
            let same = [name, &lost]
                .into_iter()
                .any(|name| kept.get(name) == Some(bytes));
            assert!(same, "{name}");
        }
        // Broken once more: what was put aside stays.
        let aside = |files: &Files| files.keys().filter(|name| name.ends_with(".lost")).count();
        let mut twice = broken.clone();
        twice.extend(
            kept.clone()
                .into_iter()
                .filter(|(name, _)| name.ends_with(".lost")),
        );
        let twice = directory_of(&twice);
        repair(&shared(&twice), options(), Some(Position::new(0))).unwrap();
        assert_eq!(aside(&twice.files()), 2 * aside(&kept));
        // The next run.
        let mut journal = open(&directory, end);
        journal.append(Position::new(end), b"more").unwrap();
        journal.sync().unwrap();
        assert_eq!(read_from(&directory, end).unwrap(), b"more");
    }
}

#[test]
fn a_damaged_file_that_is_not_needed_costs_nothing_to_repair() {
    let (mut files, stream) = closed();
    let name = files
        .keys()
        .find(|name| name.ends_with(".journal"))
        .unwrap()
        .clone();
    files.get_mut(&name).unwrap()[100] ^= 1;
    let directory = directory_of(&files);
    // A base file stands for what was before.
    let from = Some(Position::new(12_000));
    assert!(matches!(
        read_from(&directory, 12_000),
        Err(JournalError::Damaged(_))
    ));
    let report = check(&directory, from).unwrap();
    assert!(report.damage.is_some());
    assert_eq!((report.end.get(), report.lost), (27_500, 0));
    repair(&shared(&directory), options(), from).unwrap();
    assert_eq!(read_from(&directory, 12_000).unwrap(), stream[12_000..]);
    assert!(check(&directory, from).unwrap().damage.is_none());
}

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

/// A power cut in a removal leaves some of the files before the checkpoint and not others.
#[test]
fn a_hole_before_the_checkpoint_is_no_damage() {
    let directory = directory_of(&closed().0);
    let journal = open(&directory, 27_500);
    let begin = journal.position();
    let name = BaseName::Checkpoint;
    let base = BaseWriter::begin(&journal, shared(&directory), &name, begin).unwrap();
    base.publish(begin, begin).unwrap();
    let mut files = directory.files();
    files.remove("00000000000000010000.journal").unwrap();
    let directory = directory_of(&files);
    let report = check(&directory, None).unwrap();
    assert!(report.damage.is_none(), "{report:?}");
    assert_eq!((report.from, report.end), (begin, begin));
    repair(&shared(&directory), options(), None).unwrap();
    assert_eq!(directory.files(), files);
}

/// What another program wrote is not broken: a repair leaves it alone.
#[test]
fn a_file_of_another_version_is_not_repaired() {
    let (mut files, _) = closed();
    let newest = files.get_mut("00000000000000020000.journal").unwrap();
    newest[8] = 2;
    let crc = crc32c(crc32c(0, &newest[..12]), &newest[16..4096]);
    newest[12..16].copy_from_slice(&crc.to_le_bytes());
    let directory = directory_of(&files);
    let refused = repair(&shared(&directory), options(), None);
    assert!(
        matches!(&refused, Err(JournalError::Damaged(d)) if matches!(d.flaw, Flaw::Version { .. })),
        "{refused:?}"
    );
    assert_eq!(directory.files(), files);
    assert!(check(&directory, None).is_err());
}

/// A repair that is refused has moved no file: nothing would tell afterwards what it cut off.
#[test]
fn a_repair_with_settings_of_another_journal_changes_nothing() {
    let (mut files, _) = closed();
    files.get_mut("00000000000000010000.journal").unwrap()[60] ^= 1;
    let directory = directory_of(&files);
    let (mut foreign, mut impossible) = (options(), options());
    foreign.identity.uuid = [8; 16];
    impossible.file_bytes = 20_481;
    let refused = repair(&shared(&directory), foreign, None);
    assert!(
        matches!(refused, Err(JournalError::Foreign { .. })),
        "{refused:?}"
    );
    assert_eq!(directory.files(), files);
    let refused = repair(&shared(&directory), impossible, None);
    assert!(
        matches!(refused, Err(JournalError::Invalid { .. })),
        "{refused:?}"
    );
    assert_eq!(directory.files(), files);
}

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
            // Back to 1000 for the second round.
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

/// A disk may notice at a sync only that it has no space for a file.
#[test]
fn a_sparse_file_whose_begin_cannot_be_synced_is_followed_by_a_spare() {
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

/// The disk is full at some instant: the journal says so while everything that a ring holds still
/// fits, and takes it.
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
    // One group took it below the reserve. The ring holds as much as the reserve, less that group.
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

/// Beside the reserve files are sparse. The disk is full at some instant: what a ring holds fits.
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
                // A file with holes goes, and one without any is used again.
                0 | 1 => journal.rotate().unwrap(),
                2 => drop(journal.remove_before(durable).unwrap()),
                _ => {}
            }
            // What counts has its blocks.
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
        // As the ring's end is written: by large groups, and those that are lost again.
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

/// A directory whose own block has no place for another name.
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
        if self.1.load(Relaxed) && to.ends_with(".journal") {
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

/// Trying again on a full disk uses up no spares.
#[test]
fn a_file_that_finds_no_space_for_its_name_keeps_its_spare() {
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

#[test]
fn removed_files_are_used_again() {
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
    // Another process looks at it without the lock, and may not write.
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
