//! Base files: written, published, read, replaced, damaged.

use mneme_journal::{
    BaseName, BasePart, BaseReader, BaseWriter, JournalError, Position, bases, remove_bases_before,
};
use mneme_sys::medium::{Directory, RecordingDirectory};
use mneme_testkit::Random;

use crate::common::{content, open, read_from, shared};

/// A base file with records and a suffix.
fn based() -> (RecordingDirectory, Vec<u8>, Vec<u8>) {
    let directory = RecordingDirectory::new();
    let mut journal = open(&directory, 0);
    let (records, stream) = (content(5, 0, 20_000), content(1, 0, 9000));
    journal.append(Position::new(0), &stream[..4000]).unwrap();
    let begin = journal.sync().unwrap();
    let kept = BaseName::Kept("monday".to_owned());
    let mut writer = BaseWriter::begin(&journal, shared(&directory), &kept, begin).unwrap();
    writer.append(begin, &records[..15_000]).unwrap();
    writer.sync().unwrap();
    writer.append(begin, &records[15_000..]).unwrap();
    journal.append(begin, &stream[4000..]).unwrap();
    let early = writer.append_suffix(Position::new(4001), &stream[4001..]);
    assert!(matches!(early, Err(JournalError::OutOfPlace { .. })));
    writer.append_suffix(begin, &stream[4000..]).unwrap();
    assert!(matches!(
        writer.append(begin, b"late"),
        Err(JournalError::Invalid { .. })
    ));
    let durable = journal.sync().unwrap();
    writer.publish(durable, durable).unwrap();
    (directory, records, stream)
}

/// The content of a base file: records, suffix, last read position.
pub fn read_base(
    directory: &dyn Directory,
    file: &str,
) -> Result<(Vec<u8>, Vec<u8>, u64), JournalError> {
    let mut reader = BaseReader::open(directory, file)?;
    let (mut records, mut suffix) = (Vec::new(), Vec::new());
    while let Some(part) = reader.next()? {
        match part {
            BasePart::Records { bytes, .. } => records.extend_from_slice(bytes),
            BasePart::Suffix { bytes, .. } => suffix.extend_from_slice(bytes),
        }
    }
    Ok((records, suffix, reader.read().unwrap().get()))
}

#[test]
fn a_base_file_is_read_completely_or_is_an_error() {
    let (directory, records, stream) = based();
    let found = bases(&directory).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].kept.as_deref(), Some("monday"));
    let file = &found[0].file;
    let whole = (records, stream[4000..].to_vec(), 9000);
    assert_eq!(read_base(&directory, file).unwrap(), whole);
    let bytes = directory.files()[file].clone();
    let reading = |bytes: Vec<u8>| {
        let directory = RecordingDirectory::with_files([(file.clone(), bytes)]);
        read_base(&directory, file)
    };
    for len in (0..bytes.len()).step_by(61) {
        let read = reading(bytes[..len].to_vec());
        assert!(
            matches!(read, Err(JournalError::Damaged(_))),
            "{len}: {read:?}"
        );
    }
    let mut random = Random::new(2);
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << random.below(8);
        match reading(flipped) {
            Err(JournalError::Damaged(_)) => {}
            Ok(read) => assert!(read == whole, "{at}"),
            Err(other) => panic!("{other:?}"),
        }
    }
    let mut longer = bytes.clone();
    longer.extend([0; 4096]);
    assert!(matches!(reading(longer), Err(JournalError::Damaged(_))));
}

#[test]
fn checkpoints_replace_each_other_and_backups_stay() {
    let (directory, ..) = based();
    let mut journal = open(&directory, 9000);
    for round in 0..3_u64 {
        let begin = journal.sync().unwrap();
        let name = BaseName::Checkpoint;
        let mut writer = BaseWriter::begin(&journal, shared(&directory), &name, begin).unwrap();
        writer.append(begin, &content(6, round, 100)).unwrap();
        journal
            .append(journal.position(), &content(1, 0, 8000))
            .unwrap();
        let (read, durable) = (journal.position(), journal.durable());
        let early = BaseWriter::begin(&journal, shared(&directory), &name, begin).unwrap();
        let early = early.publish(read, durable);
        assert!(
            matches!(early, Err(JournalError::NotDurable { .. })),
            "{early:?}"
        );
        // The other writer has replaced the file: this one starts again.
        drop(writer);
        let mut writer = BaseWriter::begin(&journal, shared(&directory), &name, begin).unwrap();
        writer.append(begin, &content(6, round, 100)).unwrap();
        writer.publish(read, journal.sync().unwrap()).unwrap();
        remove_bases_before(&directory, begin).unwrap();
        journal.remove_before(begin).unwrap();
        let found = bases(&directory).unwrap();
        assert_eq!(found.len(), 2, "{found:?}");
        let reader = BaseReader::open(&directory, &found[0].file).unwrap();
        assert_eq!(reader.begin(), begin);
        read_from(&directory, begin.get()).unwrap();
    }
    let bad = BaseName::Kept("../x".to_owned());
    let refused = BaseWriter::begin(&journal, shared(&directory), &bad, Position::new(0));
    assert!(matches!(refused, Err(JournalError::Invalid { .. })));
    let unfinished = BaseName::Kept("gone".to_owned());
    let writer = BaseWriter::begin(&journal, shared(&directory), &unfinished, Position::new(0));
    writer.unwrap().discard().unwrap();
    assert!(directory.files().keys().all(|name| !name.ends_with(".new")));
}
