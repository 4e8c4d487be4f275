//! Reading back what was appended, from any position, also while it is being written.

use mneme_journal::{Journal, JournalError, Position, Reader};
use mneme_sys::medium::RecordingDirectory;

use crate::common::{content, open, options, read_from, shared};
use crate::{closed, directory_of};

#[test]
fn appended_bytes_are_read_back_from_any_position() {
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
fn a_run_may_begin_at_any_earlier_position_and_cuts_the_rest() {
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
fn a_backup_reads_beside_the_writer_up_to_the_durable_position() {
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
    // Further than the journal reaches.
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
