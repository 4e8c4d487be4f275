//! What a check reports and a repair does.

use mneme_journal::{
    BaseName, BaseReader, BaseWriter, Flaw, JournalError, Position, Reader, bases, check, repair,
};
use mneme_sys::crc32c;
use mneme_sys::medium::RecordingDirectory;

use crate::common::{open, options, read_from, shared};
use crate::{Files, closed, directory_of};

#[test]
fn check_reports_what_repair_loses() {
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
        // Damaged once more: files that were renamed are kept.
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
    // A base file replaces everything before it.
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

/// A power loss during a removal leaves only some of the files before the checkpoint.
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

/// The journal's only file has no header left. A checkpoint names the store and the runs, if it
/// shows nothing that is complete only with that file.
#[test]
fn a_journal_without_a_header_continues_from_its_checkpoint() {
    for reads_ahead in [false, true] {
        let directory = RecordingDirectory::new();
        let mut journal = open(&directory, 0);
        journal.append(Position::new(0), &[1; 5000]).unwrap();
        let begin = journal.sync().unwrap();
        let name = BaseName::Checkpoint;
        let base = BaseWriter::begin(&journal, shared(&directory), &name, begin).unwrap();
        journal.append(begin, b"more").unwrap();
        let end = journal.close().unwrap();
        let read = if reads_ahead { end } else { begin };
        base.publish(read, end).unwrap();
        let mut files = directory.files();
        files.get_mut("00000000000000000000.journal").unwrap()[20] ^= 1;
        let directory = directory_of(&files);

        let report = check(&directory, None).unwrap();
        assert!(report.damage.is_some());
        assert_eq!((report.end, report.lost), (begin, end.since(begin)));
        assert_eq!(report.identity.is_none(), reads_ahead, "{report:?}");
        if reads_ahead {
            continue;
        }
        repair(&shared(&directory), options(), None).unwrap();
        let after = check(&directory, None).unwrap();
        assert!(after.damage.is_none() && after.from == begin, "{after:?}");
        let base = bases(&directory).unwrap().remove(0).file;
        let base = BaseReader::open(&directory, &base).unwrap();
        let journal = Reader::open(&directory, begin).unwrap();
        let run = base.runs().last().unwrap();
        assert!(journal.runs().may_contain(base.runs().number(), run.id));
        assert_eq!(journal.runs().number(), base.runs().number() + 1);
    }
}

/// The damaged file belongs to a run that no other file names.
#[test]
fn the_content_of_a_file_without_a_header_is_counted_as_lost() {
    let (files, _) = closed();
    let directory = directory_of(&files);
    let mut journal = open(&directory, 27_500);
    journal.append(Position::new(27_500), b"more").unwrap();
    journal.close().unwrap();
    let mut files = directory.files();
    files.get_mut("00000000000000027500.journal").unwrap()[20] ^= 1;
    let report = check(&directory_of(&files), None).unwrap();
    assert_eq!((report.end.get(), report.lost), (27_500, 4));
}

/// A file that another version wrote is not damaged: a repair leaves it alone.
#[test]
fn a_file_of_another_version_is_not_repaired() {
    let (mut files, _) = closed();
    let newest = files.get_mut("00000000000000020000.journal").unwrap();
    newest[8] = 99;
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

/// A refused repair has moved no file: otherwise nothing would show what it cut off.
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
