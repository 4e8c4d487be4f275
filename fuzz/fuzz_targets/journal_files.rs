//! A journal's and a base file's bytes, overwritten, cut off or exchanged: reading, checking and
//! repairing end in an error or in what was appended, and never in other bytes.
#![no_main]

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use mneme_journal::{
    BaseName, BasePart, BaseReader, BaseWriter, Identity, Journal, Options, Position, Reader,
    check, repair,
};
use mneme_sys::medium::{Directory, RecordingDirectory};

#[derive(Debug, Arbitrary)]
enum Damage {
    Set {
        file: u8,
        at: u16,
        byte: u8,
    },
    Word {
        file: u8,
        word: u16,
        value: u64,
    },
    Copy {
        file: u8,
        from: u8,
        other: u8,
        to: u8,
    },
    Cut {
        file: u8,
        len: u16,
    },
    Remove {
        file: u8,
    },
    Rename {
        file: u8,
        position: u16,
    },
}

type Files = BTreeMap<String, Vec<u8>>;

fn byte(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u8
}

fn options() -> Options {
    let mut options = Options::new(Identity { uuid: [7; 16] });
    options.file_bytes = 5 * 4096;
    options
}

/// Two runs in four files, and a base file.
fn image() -> &'static Files {
    static IMAGE: OnceLock<Files> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let directory = RecordingDirectory::new();
        let stream: Vec<u8> = (0..30_000).map(byte).collect();
        for (from, to) in [(0, 15_000), (12_000, 30_000)] {
            let at = Position::new(from as u64);
            let shared = Arc::new(directory.clone());
            let mut journal = Journal::open(shared.clone(), options(), at).unwrap();
            for part in stream[from..to].chunks(3000) {
                journal.append(journal.position(), part).unwrap();
                journal.sync().unwrap();
            }
            let begin = journal.durable();
            let name = BaseName::Checkpoint;
            let mut writer = BaseWriter::begin(&journal, shared, &name, begin).unwrap();
            writer.append(begin, &stream[..9000]).unwrap();
            writer.publish(begin, begin).unwrap();
            journal.close().unwrap();
        }
        directory.files()
    })
}

fn damaged(damages: &[Damage]) -> Files {
    let mut files = image().clone();
    let name = |files: &Files, file: u8| {
        let nth = usize::from(file) % files.len().max(1);
        files.keys().nth(nth).cloned().unwrap_or_default()
    };
    let block = |files: &Files, name: &str, at: u8| {
        let blocks = files.get(name).map_or(0, |bytes| bytes.len() / 4096);
        (blocks > 0).then(|| usize::from(at) % blocks * 4096)
    };
    for damage in damages {
        match *damage {
            Damage::Set { file, at, byte } => {
                let name = name(&files, file);
                if let Some(place) = files
                    .get_mut(&name)
                    .and_then(|f| f.get_mut(usize::from(at)))
                {
                    *place = byte;
                }
            }
            Damage::Word { file, word, value } => {
                let name = name(&files, file);
                let at = usize::from(word) * 8;
                if let Some(place) = files.get_mut(&name).and_then(|f| f.get_mut(at..at + 8)) {
                    place.copy_from_slice(&value.to_le_bytes());
                }
            }
            Damage::Copy {
                file,
                from,
                other,
                to,
            } => {
                let (name, other) = (name(&files, file), name(&files, other));
                if let (Some(from), Some(to)) =
                    (block(&files, &name, from), block(&files, &other, to))
                {
                    let bytes = files[&name][from..from + 4096].to_vec();
                    if let Some(file) = files.get_mut(&other) {
                        file[to..to + 4096].copy_from_slice(&bytes);
                    }
                }
            }
            Damage::Cut { file, len } => {
                let name = name(&files, file);
                if let Some(file) = files.get_mut(&name) {
                    file.truncate(usize::from(len));
                }
            }
            Damage::Remove { file } => {
                let name = name(&files, file);
                files.remove(&name);
            }
            Damage::Rename { file, position } => {
                let name = name(&files, file);
                if let Some(bytes) = files.remove(&name) {
                    files.insert(format!("{position:020}.journal"), bytes);
                }
            }
        }
    }
    files
}

/// Reads from `from`; what is read is what was appended.
fn read(directory: &dyn Directory, from: u64) -> Option<u64> {
    let mut reader = Reader::open(directory, Position::new(from)).ok()?;
    let mut at = from;
    while let Ok(Some(chunk)) = reader.next() {
        assert_eq!(chunk.position.get(), at);
        let appended = |(i, b): (usize, &u8)| *b == byte(at + i as u64);
        assert!(
            chunk.bytes.iter().enumerate().all(appended),
            "wrong bytes behind {at}"
        );
        at += chunk.bytes.len() as u64;
    }
    Some(at)
}

fuzz_target!(|damages: Vec<Damage>| {
    let directory = RecordingDirectory::with_files(damaged(&damages));
    for from in [0, 13_000, 29_999] {
        read(&directory, from);
    }
    for name in directory.names().unwrap() {
        let Ok(mut reader) = BaseReader::open(&directory, &name) else {
            continue;
        };
        let mut at = 0;
        while let Ok(Some(part)) = reader.next() {
            let BasePart::Records { bytes, .. } = part else {
                panic!("a suffix appeared");
            };
            let stored = |(i, b): (usize, &u8)| *b == byte(at + i as u64);
            assert!(bytes.iter().enumerate().all(stored));
            at += bytes.len() as u64;
        }
        assert!(reader.read().is_none() || at == 9000);
    }
    let Ok(report) = check(&directory, None) else {
        return;
    };
    let from = Some(report.from);
    let shared: Arc<dyn Directory> = Arc::new(directory.clone());
    if repair(&shared, options(), from).is_ok() {
        let end = read(&directory, report.from.get());
        assert_eq!(
            end,
            Some(report.end.get()),
            "a repair cuts where the check said"
        );
        assert!(check(&directory, from).unwrap().damage.is_none());
    }
});
