//! The writing process is killed (`kill -9`) at any time, on real files: everything that it had
//! acknowledged is there, and the next process gets the lock and continues. The process is this
//! test, started again.

use std::path::Path;
use std::sync::Arc;

use mneme_journal::{
    BaseName, BaseReader, BaseWriter, Journal, Position, bases, check, remove_bases_before,
};
use mneme_sys::medium::{Directory, FileDirectory};
use mneme_testkit::{Process, Random, TestDir};

use crate::common::{content, options, read_from};

const TEST: &str = "kills::everything_a_killed_writer_acknowledged_is_kept";
const CHILD: &str = "MNEME_JOURNAL_KILLS";

/// The begin of the newest base file.
fn begin(directory: &dyn Directory) -> u64 {
    let newest = bases(directory).unwrap().into_iter().next();
    newest.map_or(0, |base| {
        let mut reader = BaseReader::open(directory, &base.file).unwrap();
        while reader.next().unwrap().is_some() {}
        reader.begin().get()
    })
}

/// Reads everything and checks that it is what was appended; returns its end.
fn verify(directory: &dyn Directory) -> u64 {
    let from = begin(directory);
    let bytes = read_from(directory, from).unwrap();
    assert!(
        bytes == content(1, from, bytes.len()),
        "wrong bytes behind {from}"
    );
    from + bytes.len() as u64
}

/// Appends, syncs and prints the durable position until it is killed.
fn live(path: &Path) -> ! {
    let directory: Arc<dyn Directory> = Arc::new(FileDirectory::open(path).unwrap());
    let at = verify(&*directory);
    let mut journal = Journal::open(directory.clone(), options(), Position::new(at)).unwrap();
    let mut random = Random::new(at);
    loop {
        let at = journal.position();
        let bytes = content(1, at.get(), 1 + random.below(5000) as usize);
        journal.append(at, &bytes).unwrap();
        let durable = journal.sync().unwrap();
        println!("{}", durable.get());
        match random.below(12) {
            0 => {
                let name = BaseName::Checkpoint;
                let base = BaseWriter::begin(&journal, directory.clone(), &name, durable);
                let mut base = base.unwrap();
                base.append(durable, &[1; 3000]).unwrap();
                base.publish(durable, durable).unwrap();
                journal.remove_before(durable).unwrap();
                remove_bases_before(&*directory, durable).unwrap();
            }
            1..4 => drop(journal.prepare(4096).unwrap()),
            4 => journal.idle().unwrap(),
            _ => {}
        }
    }
}

#[test]
fn everything_a_killed_writer_acknowledged_is_kept() {
    if let Ok(path) = std::env::var(CHILD) {
        live(path.as_ref());
    }
    for path in [
        TestDir::new("journal-kills"),
        TestDir::on_disk("journal-kills"),
    ] {
        let mut random = Random::new(3);
        let mut end = 0;
        for _ in 0..6 {
            let target = end + 10_000 + random.below(60_000);
            let mut child = Process::start_talking(TEST, [(CHILD, path.path())]);
            while child.number() < target {}
            let acknowledged = child.last_number().unwrap();
            let directory = FileDirectory::open(&path).unwrap();
            end = verify(&directory);
            assert!(end >= acknowledged, "acknowledged bytes are gone");
            let report = check(&directory, Some(Position::new(begin(&directory)))).unwrap();
            assert!(report.damage.is_none(), "{report:?}");
        }
    }
}
