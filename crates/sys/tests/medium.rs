//! Media: one conformance suite for all, and the crash harness on a protocol small enough to be
//! crashed in every way: one word, committed through a ring of two records.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use mneme_sys::medium::{
    CrashStates, Directory, DirectoryStates, FailureModel, Medium, MediumError, MemoryMedium,
    Operation, RecordingDirectory, RecordingMedium, Trace,
};

fn word(medium: &dyn Medium, at: u64) -> u64 {
    assert!(at + 8 <= medium.len());
    // SAFETY: inside the medium, by the assertion; no other thread stores to it in these tests.
    unsafe {
        let place = medium.base().as_ptr().add(at as usize);
        place.cast::<u64>().read_unaligned()
    }
}

fn conforms(medium: &dyn Medium) {
    assert!(medium.is_empty());
    medium.grow(8192).unwrap();
    assert!(medium.len() >= 8192);
    assert_eq!(word(medium, 8184), 0, "what is new is zero");
    let base = medium.base();
    medium.store(13, &[1, 2, 3]);
    medium.store_word(64, 7);
    medium.write(4096, &9u64.to_ne_bytes()).unwrap();
    medium.flush(0..128);
    medium.fence();
    medium.sync().unwrap();
    medium.grow(4 << 20).unwrap();
    assert_eq!(medium.base(), base, "growth moves nothing");
    assert_eq!(word(medium, 13) & 0xff_ffff, 0x03_0201);
    assert_eq!((word(medium, 64), word(medium, 4096)), (7, 9));
    let beyond = medium.write(medium.len() - 4, &[0; 8]);
    assert!(
        matches!(beyond, Err(MediumError::Bounds { .. })),
        "{beyond:?}"
    );
    let too_long = medium.grow(medium.max() + 1);
    assert!(
        matches!(too_long, Err(MediumError::NoSpace { .. })),
        "{too_long:?}"
    );
    assert!(medium.len() <= medium.max());
}

#[test]
fn memory_and_the_recording_conform() {
    conforms(&MemoryMedium::new(8 << 20).unwrap());
    conforms(&RecordingMedium::new(8 << 20).unwrap());
}

#[cfg(not(miri))]
#[test]
fn a_file_conforms_and_keeps_its_bytes() {
    use mneme_sys::Access;
    use mneme_sys::medium::FileMedium;
    let path = std::env::temp_dir().join(format!("mneme-medium-{}", std::process::id()));
    let open = || {
        let mut options = std::fs::OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        options.open(&path).unwrap()
    };
    conforms(&FileMedium::open(open(), Access::ReadWrite, 8 << 20).unwrap());
    FileMedium::drop_cached_pages(&open()).unwrap();
    let again = FileMedium::open(open(), Access::ReadWrite, 8 << 20).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!((word(&again, 64), word(&again, 4096)), (7, 9));
}

/// The page faults of this thread that waited for a disk.
#[cfg(not(miri))]
fn waited() -> i64 {
    // SAFETY: integers, for which zeros are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: a place for one `rusage`.
    let failed = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut usage) };
    assert_eq!(failed, 0);
    usage.ru_majflt
}

#[cfg(not(miri))]
#[test]
fn pages_that_were_read_ahead_are_not_waited_for() {
    use mneme_sys::Access;
    use mneme_sys::medium::FileMedium;
    const PAGES: usize = 1024;
    // Beside the test's own program: there is a disk.
    let path = std::env::current_exe().unwrap().with_extension("ahead");
    std::fs::write(&path, vec![1; PAGES * 4096]).unwrap();
    let open = || std::fs::File::open(&path).unwrap();
    let faults = |ahead: bool| {
        FileMedium::drop_cached_pages(&open()).unwrap();
        let medium = FileMedium::open(open(), Access::ReadOnly, 8 << 20).unwrap();
        if ahead {
            medium.read_ahead(0..medium.len());
        }
        let before = waited();
        for page in 0..PAGES as u64 {
            assert_eq!(word(&medium, page * 4096), 0x0101_0101_0101_0101);
        }
        waited() - before
    };
    let (alone, ahead) = (faults(false), faults(true));
    std::fs::remove_file(&path).unwrap();
    if alone < PAGES as i64 / 2 {
        eprintln!("skipped: the test's program is not on a disk");
        return;
    }
    assert!(ahead < alone / 8, "{ahead} of {alone}");
}

#[test]
#[should_panic(expected = "lie beyond")]
fn a_store_beyond_the_end_panics() {
    MemoryMedium::new(8 << 20).unwrap().store(0, &[1]);
}

#[test]
fn a_failed_sync_is_never_forgotten() {
    let medium = RecordingMedium::new(1 << 20).unwrap();
    medium.grow(4096).unwrap();
    medium.fail_sync(2, 0);
    medium.sync().unwrap();
    assert!(matches!(medium.sync(), Err(MediumError::Sync(_))));
    assert!(matches!(medium.sync(), Err(MediumError::Poisoned)));
}

/// Where the data word lies, and the two records `(number, check)`.
const DATA: [u64; 2] = [4096, 8192];
const RECORDS: [u64; 2] = [0, 512];

fn commit(medium: &RecordingMedium, number: u64, dax: bool) {
    let barrier = |range: std::ops::Range<u64>| {
        if dax {
            medium.flush(range);
            medium.fence();
        } else {
            medium.sync().unwrap();
        }
    };
    let slot = (number % 2) as usize;
    medium.store_word(DATA[slot], number * 10);
    barrier(DATA[slot]..DATA[slot] + 8);
    let mut record = number.to_le_bytes().to_vec();
    record.extend((!number).to_le_bytes());
    medium.store(RECORDS[slot], &record);
    barrier(RECORDS[slot]..RECORDS[slot] + 16);
    medium.mark(number);
}

/// The newest record with a right check, and the data word that it stands for.
fn recover(medium: &dyn Medium) -> (u64, u64) {
    let valid = (0..2).filter(|slot| {
        let at = RECORDS[*slot];
        word(medium, at) == !word(medium, at + 8)
    });
    let newest = valid.map(|slot| (word(medium, RECORDS[slot]), slot)).max();
    newest.map_or((0, 0), |(number, slot)| (number, word(medium, DATA[slot])))
}

fn three_commits(dax: bool) -> Trace {
    let medium = RecordingMedium::new(1 << 20).unwrap();
    medium.grow(12288).unwrap();
    medium.sync().unwrap();
    for number in 1..=3 {
        commit(&medium, number, dax);
    }
    medium.trace()
}

/// Crashes `trace` everywhere and says how many states were seen and how many of them lost
/// something that had been acknowledged, or showed something half done.
fn crash(trace: &Trace, model: FailureModel) -> (usize, usize) {
    let medium = RecordingMedium::new(1 << 20).unwrap();
    let mut states = CrashStates::new(trace, model);
    let (mut seen, mut wrong) = (0, 0);
    loop {
        for state in states.all(10_000).unwrap() {
            medium.become_crashed(&states, &state).unwrap();
            seen += 1;
            if medium.len() < 12288 {
                wrong += usize::from(states.mark() > 0);
                continue;
            }
            let (number, data) = recover(&medium);
            wrong += usize::from(data != number * 10 || number < states.mark());
        }
        if !states.advance() {
            return (seen, wrong);
        }
    }
}

#[test]
fn a_word_committed_through_a_ring_survives_every_crash() {
    for (model, dax) in [(FailureModel::File, false), (FailureModel::Dax, true)] {
        let trace = three_commits(dax);
        let (seen, wrong) = crash(&trace, model);
        assert!(seen > 30, "{model:?}: only {seen} states");
        assert_eq!(wrong, 0, "{model:?}");
        // The broken twins: each barrier left out must be caught. The sync of the first growth is
        // not needed on a file, where the first commit syncs before anything is acknowledged.
        let barrier =
            |op: &Operation| matches!(op, Operation::Sync | Operation::Fence | Operation::Flush(_));
        let needless = usize::from(!dax);
        for position in trace.positions(barrier).into_iter().skip(needless) {
            let (_, wrong) = crash(&trace.without(position), model);
            assert_ne!(
                (position, wrong),
                (position, 0),
                "{model:?}: {:?}",
                trace.operations[position]
            );
        }
    }
}

#[test]
fn a_reordered_record_is_caught() {
    let mut trace = three_commits(false);
    // The record of the second commit goes before its data's sync.
    let syncs = trace.positions(|op| *op == Operation::Sync);
    trace.operations.swap(syncs[3], syncs[3] + 1);
    assert_ne!(crash(&trace, FailureModel::File).1, 0);
}

#[test]
fn pages_that_a_failed_sync_lost_stay_lost() {
    let medium = RecordingMedium::new(1 << 20).unwrap();
    medium.grow(8192).unwrap();
    medium.sync().unwrap();
    medium.store_word(0, 1);
    medium.store_word(4096, 2);
    medium.fail_sync(1, 2);
    medium.sync().unwrap_err();
    let mut trace = medium.trace();
    // A program that goes on as if nothing had happened.
    trace.operations.push(Operation::Sync);
    let mut states = CrashStates::new(&trace, FailureModel::File);
    while states.advance() {}
    let found: BTreeSet<_> = states
        .all(10)
        .unwrap()
        .into_iter()
        .map(|s| s.words)
        .collect();
    assert_eq!(found, BTreeSet::from([vec![]]), "only what is durable");
    medium
        .become_crashed(&states, &states.all(10).unwrap()[0])
        .unwrap();
    assert_eq!((word(&medium, 0), word(&medium, 4096)), (0, 2));
}

#[test]
fn samples_are_among_the_possible_states() {
    let medium = RecordingMedium::new(1 << 20).unwrap();
    medium.grow(4096).unwrap();
    medium.sync().unwrap();
    for n in 1..=2u64 {
        medium.store(0, &[n as u8; 16]);
        medium.store(600, &[n as u8; 8]);
    }
    let trace = medium.trace();
    let mut states = CrashStates::new(&trace, FailureModel::File);
    while states.advance() {}
    let mut seed = 1u64;
    let mut random = || {
        seed = seed
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        seed >> 20
    };
    let all: BTreeSet<_> = (0..2000).map(|_| states.sample(&mut random)).collect();
    // Two words of three contents each in one sector, one in the other.
    assert_eq!(
        all.len(),
        27,
        "all mixtures of whole words, and nothing else"
    );
}

/// What both directories do.
fn directory_conforms(directory: &dyn Directory) {
    let names = || {
        let mut names = directory.names().unwrap();
        names.retain(|name| name != "lock");
        names.sort();
        names
    };
    let file = directory.create("a").unwrap();
    assert!(file.is_empty().unwrap());
    file.write(0, b"some").unwrap();
    file.write(1000, b"more").unwrap();
    assert_eq!(file.len().unwrap(), 1004);
    let mut read = [1; 8];
    file.read(998, &mut read[..6]).unwrap();
    assert_eq!(&read[..6], b"\0\0more", "what was skipped is zero");
    let beyond = file.read(1000, &mut read);
    assert!(
        matches!(beyond, Err(MediumError::Bounds { .. })),
        "{beyond:?}"
    );
    file.sync().unwrap();
    file.drop_cached().unwrap();
    let again = directory.create("a");
    assert!(matches!(again, Err(MediumError::Os { .. })), "{again:?}");
    directory.create("b").unwrap().write(0, b"other").unwrap();
    assert_eq!(names(), ["a", "b"]);
    directory.rename("a", "b").unwrap();
    directory.sync().unwrap();
    assert_eq!(names(), ["b"]);
    let mut read = [0; 4];
    directory.open("b").unwrap().read(0, &mut read).unwrap();
    assert_eq!(&read, b"some");
    directory.remove("b").unwrap();
    assert!(matches!(directory.open("b"), Err(MediumError::Os { .. })));
    assert!(matches!(directory.remove("b"), Err(MediumError::Os { .. })));
    assert!(matches!(
        directory.rename("b", "c"),
        Err(MediumError::Os { .. })
    ));
    file.read(0, &mut read).unwrap();
    assert_eq!(&read, b"some", "an open file outlives its name");
    assert_eq!(names(), [""; 0]);
}

#[test]
fn the_recorded_directory_conforms() {
    directory_conforms(&RecordingDirectory::new());
}

#[cfg(not(miri))]
#[test]
fn a_directory_of_files_conforms_and_is_opened_once() {
    use mneme_sys::medium::{DirectoryError, FileDirectory};
    let path = std::env::temp_dir().join(format!("mneme-directory-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    let directory = FileDirectory::open(&path).unwrap();
    directory_conforms(&directory);
    let second = FileDirectory::open(&path);
    assert!(
        matches!(second, Err(DirectoryError::Locked { .. })),
        "{second:?}"
    );
    // A lock file that is gone, or another one of that name, lets nobody in.
    let aside = path.join("aside");
    std::fs::rename(path.join("lock"), &aside).unwrap();
    let second = FileDirectory::open(&path);
    assert!(
        matches!(second, Err(DirectoryError::Locked { .. })),
        "{second:?}"
    );
    std::fs::rename(&aside, path.join("lock")).unwrap();
    // A descriptor that was handed over holds the lock when the first owner has gone.
    let handed = directory.lock().unwrap().try_clone_to_owned().unwrap();
    drop(directory);
    let second = FileDirectory::open(&path);
    assert!(
        matches!(second, Err(DirectoryError::Locked { .. })),
        "{second:?}"
    );
    let taken = FileDirectory::open_with(&path, handed).unwrap();
    let second = FileDirectory::open(&path);
    assert!(
        matches!(second, Err(DirectoryError::Locked { .. })),
        "{second:?}"
    );
    let other = std::fs::File::open("/dev/null").unwrap().into();
    let wrong = FileDirectory::open_with(&path, other);
    assert!(matches!(wrong, Err(DirectoryError::Os { .. })), "{wrong:?}");
    let unlocked = std::fs::OpenOptions::new()
        .write(true)
        .open(path.join("lock"));
    let wrong = FileDirectory::open_with(&path, unlocked.unwrap().into());
    assert!(
        matches!(wrong, Err(DirectoryError::Locked { .. })),
        "{wrong:?}"
    );
    taken.create("c").unwrap();
    drop(taken);
    let names = FileDirectory::open(&path).unwrap().names().unwrap();
    assert!(names.contains(&"c".to_owned()));
    std::fs::remove_dir_all(&path).unwrap();
}

/// A user who may read a directory, and not write it, cannot keep its owner out: `flock` needs no
/// more than reading.
#[cfg(not(miri))]
#[test]
fn a_reader_of_a_directory_cannot_hold_its_lock() {
    use mneme_sys::medium::{DirectoryError, FileDirectory};
    use std::fs::{File, Permissions};
    use std::os::unix::fs::PermissionsExt;
    let root = std::env::temp_dir().join(format!("mneme-readers-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&root);
    let path = root.join("data");
    drop(FileDirectory::open(&path).unwrap());
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&path) & 0o077, 0, "one that is made is its owner's");
    assert_eq!(mode(&root) & 0o700, 0o700);
    for mode in [0o755, 0o750, 0o704] {
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let reader = File::open(&path).unwrap();
        reader.try_lock().unwrap();
        let directory = FileDirectory::open(&path).unwrap();
        let handed = directory.lock().unwrap().try_clone_to_owned().unwrap();
        let second = FileDirectory::open(&path);
        assert!(
            matches!(second, Err(DirectoryError::Locked { .. })),
            "{second:?}"
        );
        drop(directory);
        drop(FileDirectory::open_with(&path, handed).unwrap());
    }
    std::fs::remove_dir_all(&root).unwrap();
}

#[cfg(not(miri))]
#[test]
fn a_directory_that_cannot_be_written_is_named() {
    use mneme_sys::medium::{DirectoryError, FileDirectory};
    // The kernel's own directory: nobody makes files there, the superuser included.
    for path in ["/proc/sys", "/proc/mneme", "/dev/null"] {
        let opened = FileDirectory::open(path.as_ref());
        assert!(
            matches!(opened, Err(DirectoryError::Os { .. })),
            "{opened:?}"
        );
        assert!(opened.unwrap_err().to_string().contains(path));
    }
}

/// A file is replaced by another of its name: written beside it, synced, renamed, the directory
/// synced. The steps are numbered so that a twin can leave one out.
fn replaced(without: usize) -> RecordingDirectory {
    let directory = RecordingDirectory::with_files([("word".to_owned(), b"old.....".to_vec())]);
    let file = directory.create("new").unwrap();
    file.write(0, b"new.....").unwrap();
    if without != 1 {
        file.sync().unwrap();
    }
    directory.rename("new", "word").unwrap();
    if without != 2 {
        directory.sync().unwrap();
    }
    directory.mark(1);
    directory
}

/// What is wrong after some crash; the number of states.
fn crash_replaced(directory: &RecordingDirectory) -> (Vec<String>, usize) {
    let (mut wrong, mut count) = (Vec::new(), 0);
    let trace = directory.trace();
    let mut states = DirectoryStates::new(&trace);
    loop {
        for state in states.all(1000).unwrap() {
            count += 1;
            let files = RecordingDirectory::crashed(&states, &state).files();
            match files.get("word").map(Vec::as_slice) {
                Some(b"new.....") => {}
                Some(b"old.....") if states.mark() == 0 => {}
                other => wrong.push(format!("{other:?} after {}", states.at())),
            }
        }
        if !states.advance() {
            return (wrong, count);
        }
    }
}

#[test]
fn a_file_is_replaced_whole_and_every_sync_is_needed() {
    let (wrong, count) = crash_replaced(&replaced(0));
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(count > 10, "only {count}");
    for without in [1, 2] {
        assert!(
            !crash_replaced(&replaced(without)).0.is_empty(),
            "step {without}"
        );
    }
}

#[test]
fn pages_lost_by_a_failed_sync_are_gone_when_the_cache_is_dropped() {
    let directory = RecordingDirectory::with_files([("a".to_owned(), vec![1; 8192])]);
    let file = directory.open("a").unwrap();
    file.write(0, &[2; 8]).unwrap();
    file.write(4096, &[2; 8]).unwrap();
    directory.fail_sync(1, 2, 0);
    assert!(matches!(file.sync(), Err(MediumError::Sync(_))));
    assert!(matches!(file.sync(), Err(MediumError::Poisoned)));
    // The cache still shows both; a new opening syncs without an error.
    let file = directory.open("a").unwrap();
    let word = |at| {
        let mut word = [0; 2];
        file.read(at, &mut word).unwrap();
        word
    };
    assert_eq!((word(0), word(4096)), ([2; 2], [2; 2]));
    file.drop_cached().unwrap();
    assert_eq!((word(0), word(4096)), ([1; 2], [2; 2]));
    let trace = directory.trace();
    let mut states = DirectoryStates::new(&trace);
    while states.advance() {}
    let after = states.all(10).unwrap();
    assert_eq!(after.len(), 1, "nothing is in doubt any more");
    assert_eq!(
        RecordingDirectory::crashed(&states, &after[0]).files(),
        directory.files()
    );
}
