//! Damaged, missing and foreign files cause errors or have no effect.

use mneme_journal::{Flaw, Journal, JournalError, Position};
use mneme_sys::medium::RecordingDirectory;
use mneme_testkit::Random;

use crate::common::{FILE, content, open, options, read_from, shared};
use crate::{Files, closed, directory_of};

/// The error of reading everything; without an error, checks that everything is there.
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

/// In a journal that was closed, everything is known to have been durable: any changed bit causes
/// an error or has no effect.
#[test]
fn a_flipped_bit_is_an_error_or_changes_nothing() {
    let (files, stream) = closed();
    let mut random = Random::new(1);
    let (mut errors, mut harmless) = (0, 0);
    for name in files.keys().filter(|name| name.ends_with(".journal")) {
        for at in 0..FILE as usize {
            // All bits where lengths and positions are, one elsewhere, few in padding.
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

/// Nothing names the last frame's end: there, and nowhere else, damage is taken for a power loss.
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
            // Padding is not missed, nor is the empty frame at the end.
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
    // Nothing is read after the last frame of a full file.
    let directory = directory_of(&files);
    directory.make_unreadable(names[0], FILE - 1);
    let read = read_from(&directory, 0);
    assert!(read.is_err() || read.unwrap() == stream);
}
