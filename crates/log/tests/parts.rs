//! Parts of long values are changed in place: nothing is appended for that, and no reader, of a
//! part or of the whole, in whatever way it reads, ever sees half a change.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod memory;

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use std::sync::{Arc, Mutex};

use memory::stopped::Stopped;
use memory::{CAPACITY, Memory, POLICIES};
use mneme_log::{Cursor, Evict, Expiry, LogStore, Part, Patch, ReadError, Updated, WriteError};
use mneme_sys::Access;
use mneme_sys::fault::{self, Action};

/// The size of a block, whose bytes are all equal.
const BLOCK: usize = 512;
const BLOCKS: usize = 48;

fn write(store: &LogStore, key: &[u8], at: usize, bytes: &[u8]) -> Updated {
    let bytes = Cow::Borrowed(bytes);
    store
        .update_part(
            key,
            |_| 0..0,
            |_| Patch::Write {
                at,
                bytes: bytes.clone(),
            },
        )
        .unwrap()
}

/// Appends `bytes`; returns the length afterwards.
fn append(store: &LogStore, key: &[u8], bytes: &[u8]) -> usize {
    let mut len = 0;
    let patch = |part: Option<Part<'_>>| {
        let at = part.map_or(0, |part| part.len);
        len = at + bytes.len();
        Patch::Write {
            at,
            bytes: Cow::Borrowed(bytes),
        }
    };
    store.update_part(key, |_| 0..0, patch).unwrap();
    len
}

fn len_of(store: &LogStore, key: &[u8]) -> Option<usize> {
    let len = |part: Option<Part<'_>>| part.map(|part| part.len);
    store.read_part(key, |_| 0..0, len).unwrap()
}

/// Bytes in use, including everything written to the log that no compaction has freed.
fn used(store: &LogStore) -> u64 {
    let stats = store.stats();
    stats.live_bytes + stats.stale_bytes
}

#[test]
fn many_changes_of_a_long_value_append_nothing() {
    for policy in POLICIES {
        let (_memory, store) = Memory::with_policy(CAPACITY, policy);
        store.put(b"k", &vec![0; 1 << 20]).unwrap();
        write(&store, b"k", 7, b"first");
        let before = used(&store);
        for i in 0..20_000 {
            write(&store, b"k", i * 50, &[i as u8]);
            store
                .read_part(
                    b"k",
                    |_| i..i + 8,
                    |part| assert_eq!(part.unwrap().bytes.len(), 8),
                )
                .unwrap();
        }
        assert_eq!(used(&store), before, "{policy:?}");
        let value = store.get(b"k").unwrap().unwrap().to_vec();
        assert!((0..20_000).all(|i| value[i * 50] == i as u8));
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    }
}

#[test]
fn a_value_that_grows_is_copied_as_often_as_it_doubles() {
    for policy in POLICIES {
        let (_memory, store) = Memory::with_policy(CAPACITY, policy);
        store.put(b"k", &[1; 5000]).unwrap();
        let before = used(&store);
        let mut len = 5000;
        while len < 1 << 20 {
            len += 16;
            assert_eq!(append(&store, b"k", &[1; 16]), len);
        }
        assert_eq!(len_of(&store, b"k"), Some(len));
        assert!(
            store
                .get(b"k")
                .unwrap()
                .unwrap()
                .iter()
                .all(|byte| *byte == 1)
        );
        // All copies together: less than twice the last one, which has slack of its own length.
        assert!(
            used(&store) - before < 5 << 20,
            "{policy:?}: {}",
            used(&store) - before
        );
    }
}

/// The reported size of a record is the amount by which the store's counts grow. It includes the
/// slack of a growing value. Reading it does not seal the value.
#[test]
fn a_record_takes_the_bytes_that_the_store_counts_for_it() {
    for policy in POLICIES {
        let (_memory, store) = Memory::with_policy(CAPACITY, policy);
        let takes = |key: &[u8]| store.record_bytes(key).unwrap();
        let live = || store.stats().live_bytes;
        assert_eq!(takes(b"k"), None);
        for len in [0, 10, 5000, 100_000, 5 << 20] {
            let before = live();
            store.put(b"k", &vec![1; len]).unwrap();
            assert_eq!(takes(b"k"), Some(live() - before), "{policy:?}, {len}");
            append(&store, b"k", b"2");
            assert_eq!(takes(b"k"), Some(live() - before), "{policy:?}, {len} + 1");
            let later = Expiry::At(u64::MAX >> 2);
            assert!(store.set_expiry(b"k", later).unwrap());
            assert_eq!(
                takes(b"k"),
                Some(live() - before),
                "{policy:?}, {len}, timed"
            );
            if len >= 5000 {
                let (taken, used) = (takes(b"k").unwrap(), used(&store));
                assert!(taken >= len as u64 + (len as u64).min(1 << 20), "{taken}");
                append(&store, b"k", b"3");
                assert_eq!((takes(b"k"), self::used(&store)), (Some(taken), used));
            }
            let within = store.transaction(|t| {
                let there = t.record_bytes(b"k")?;
                t.put(b"new", &vec![1; len])?;
                let new = t.record_bytes(b"new")?;
                t.remove(b"new")?;
                Ok::<_, WriteError>((there, new.is_some(), t.record_bytes(b"new")?))
            });
            assert_eq!(within.unwrap(), (takes(b"k"), true, None));
            assert!(store.remove(b"k").unwrap());
            assert_eq!((takes(b"k"), live()), (None, before), "{policy:?}, {len}");
        }
        store.put_until(b"k", b"over", Expiry::At(1)).unwrap();
        assert_eq!(takes(b"k"), None);
        assert_eq!(takes(&vec![0; mneme_log::MAX_KEY + 1]), None);
    }
}

/// A transaction that asks whether a key is present, when it expires or how large it is copies and
/// seals nothing. One that reads the value seals it, so that the next change copies it.
#[test]
fn a_transaction_that_asks_for_an_expiry_looks_at_no_value() {
    for policy in POLICIES {
        let (_memory, store) = Memory::with_policy(CAPACITY, policy);
        store.put(b"k", &vec![1; 100_000]).unwrap();
        append(&store, b"k", b"2");
        let before = used(&store);
        let at = Expiry::At(u64::MAX >> 2);
        let seen = store.transaction(|t| {
            t.put_until(b"new", b"v", at)?;
            let all = [t.expiry(b"k")?, t.expiry(b"new")?, t.expiry(b"none")?];
            assert!(t.record_bytes(b"k")?.is_some() && !t.remove(b"none")?);
            assert!(t.remove(b"new")?);
            assert_eq!(t.expiry(b"new")?, None);
            Ok::<_, WriteError>(all)
        });
        assert_eq!(seen.unwrap(), [Some(Expiry::Never), Some(at), None]);
        append(&store, b"k", b"3");
        assert!(used(&store) < before + 1_000, "{policy:?}: it was copied");
        store.transaction(|t| t.get(b"k")).unwrap();
        append(&store, b"k", b"4");
        assert!(
            used(&store) > before + 100_000,
            "{policy:?}: it was not read"
        );
    }
}

/// A value that is read as a whole does not change while it is read, and changes further
/// afterwards.
#[test]
fn a_lent_value_does_not_change() {
    let (_memory, store) = Memory::new();
    store.put(b"k", &[1; 8000]).unwrap();
    write(&store, b"k", 0, b"2");
    let lent = store.get(b"k").unwrap().unwrap();
    assert_eq!(write(&store, b"k", 5, b"3"), Updated::Replaced);
    append(&store, b"k", b"4");
    assert_eq!(lent[..8], [b'2', 1, 1, 1, 1, 1, 1, 1]);
    assert_eq!(lent.len(), 8000);
    drop(lent);
    let now = store.get(b"k").unwrap().unwrap();
    assert_eq!(now[..8], [b'2', 1, 1, 1, 1, b'3', 1, 1]);
    assert_eq!(now[8000..], *b"4");
}

#[test]
fn a_gap_before_a_patch_is_zero_and_an_excessive_length_is_refused() {
    for policy in POLICIES {
        let (memory, store) = Memory::with_policy(CAPACITY, policy);
        // Memory is not fresh: slack has other bytes than zeros before it is used.
        for round in 0..2 {
            for i in 0..24u64 {
                store.put(&i.to_le_bytes(), &[0xff; 1 << 20]).unwrap();
            }
            (0..24u64).for_each(|i| assert!(store.remove(&i.to_le_bytes()).unwrap()));
            for i in 0..4000u64 {
                store.put(&i.to_le_bytes(), &[0xff; 10_000]).unwrap();
            }
            (0..4000u64).for_each(|i| assert!(store.remove(&i.to_le_bytes()).unwrap()));
            while store.compact().unwrap() > round {}
        }
        for len in [0, 10, 6000] {
            store.put(b"k", &vec![9; len]).unwrap();
            // Slack with other bytes in it, which no reader has requested.
            append(&store, b"k", &[8; 100]);
            write(&store, b"k", len + 90, &[7; 4]);
            write(&store, b"k", len + 5000, b"end");
            let value = store.get(b"k").unwrap().unwrap().to_vec();
            assert_eq!(value.len(), len + 5003);
            assert!(value[len + 100..len + 5000].iter().all(|byte| *byte == 0));
            for at in [mneme_log::MAX_VALUE, usize::MAX] {
                let refused = store.update_part(
                    b"k",
                    |_| 0..0,
                    |_| Patch::Write {
                        at,
                        bytes: Cow::Borrowed(b"x"),
                    },
                );
                let refused = refused.unwrap_err();
                assert!(matches!(refused, WriteError::ValueTooLong(_)), "{refused}");
            }
            assert_eq!(store.get(b"k").unwrap().unwrap(), value);
        }
        let reader = memory.open_to_copy(2, Access::ReadOnly);
        let refused = reader.update_part(b"k", |_| 0..0, |_| Patch::Keep);
        assert!(matches!(refused, Err(WriteError::ReadOnly)));
    }
}

/// A store has free space for the value, but not for its slack.
#[test]
fn a_value_grows_without_slack_to_spare() {
    let (_memory, store) = Memory::new();
    let mut filled = 0u64;
    while store.put(&filled.to_le_bytes(), &[5; 1 << 20]).is_ok() {
        filled += 1;
    }
    for i in 0..3u64 {
        store.remove(&i.to_le_bytes()).unwrap();
    }
    store.put(b"k", &vec![1; 1_200_000]).unwrap();
    assert_eq!(append(&store, b"k", b"x"), 1_200_001);
}

/// Asking whether a key is present, when it expires, which keys there are, or how long a value is,
/// seals nothing: the value can still be patched.
#[test]
fn questions_about_a_value_do_not_seal_it() {
    for policy in POLICIES {
        let (memory, store) = Memory::with_policy(CAPACITY, policy);
        let copying = memory.open_to_copy(2, Access::ReadWrite);
        store.put(b"k", &vec![0; 1 << 20]).unwrap();
        write(&store, b"k", 7, b"first");
        let before = used(&store);
        for store in [&store, &copying] {
            for i in 0..4 {
                match i {
                    0 => assert!(store.contains(b"k").unwrap()),
                    1 => assert!(store.expiry(b"k").unwrap().is_some()),
                    2 => drop(store.scan_keys(Cursor::START, 10, |_| {}).unwrap()),
                    _ => assert_eq!(len_of(store, b"k"), Some(1 << 20)),
                }
                write(store, b"k", i, b"x");
                assert_eq!(used(store), before, "{policy:?}, {i}");
            }
        }
    }
}

/// A value that is patched whenever all of it is read can still be changed depending on all of it.
#[test]
fn a_long_part_is_decided_on_beside_patches() {
    for policy in POLICIES {
        let (memory, store) = Memory::with_policy(CAPACITY, policy);
        let other = memory.open(2);
        store.put(b"k", &[0; 6000]).unwrap();
        write(&store, b"k", 0, b"x");
        let looks = AtomicU64::new(0);
        // Called between reading the record's word and the copying.
        let range = |len| {
            let look = looks.fetch_add(1, Relaxed);
            if look < 700 {
                write(&other, b"k", 1, &look.to_le_bytes());
            }
            0..len
        };
        let decide = |part: Option<Part<'_>>| {
            let last = &part.unwrap().bytes[1..9];
            Patch::Write {
                at: 100,
                bytes: Cow::Owned(last.to_vec()),
            }
        };
        let updated = store.update_part(b"k", range, decide).unwrap();
        assert_eq!(updated, Updated::Replaced);
        let value = store.get(b"k").unwrap().unwrap();
        assert_eq!(value[100..108], 699u64.to_le_bytes());
    }
}

/// A value that is changed all the time counts as used all the time, although it stays in place.
#[test]
fn a_value_that_is_patched_is_not_forgotten() {
    for policy in POLICIES {
        let (_memory, store) = Memory::with_policy(CAPACITY, policy);
        store.set_eviction(Evict::Lru).unwrap();
        store.put(b"k", &vec![0; 100_000]).unwrap();
        write(&store, b"k", 0, b"x");
        for i in 0..20_000u64 {
            store.put(&i.to_le_bytes(), &[9; 10_000]).unwrap();
            write(&store, b"k", i as usize, b"x");
            assert!(store.expiry(b"k").unwrap().is_some(), "{policy:?}, {i}");
        }
        assert!(store.evicted() > 10_000);
        assert!(len_of(&store, b"k") >= Some(100_000));
    }
}

/// An opening that lends and may only read copies values that may be patched.
#[test]
fn one_that_may_only_read_sees_no_half_change_either() {
    for policy in POLICIES {
        let (memory, store) = Memory::with_policy(CAPACITY, policy);
        store.put(b"k", &vec![1; BLOCKS * BLOCK]).unwrap();
        let reader = memory.open_to_read(3);
        let done = AtomicBool::new(false);
        std::thread::scope(|s| {
            let (writer, done) = (memory.open(2), &done);
            s.spawn(move || change(&writer, b"k", done, 1));
            let reader = s.spawn(move || (0..60).map(|i| read_all(&reader, b"k", i, false)).sum());
            let seen: u64 = reader.join().unwrap_or_else(|e| {
                done.store(true, Relaxed);
                std::panic::resume_unwind(e)
            });
            done.store(true, Relaxed);
            assert!(seen > 60 * 10);
        });
    }
}

/// Both outside and within a store.
#[test]
fn a_patch_that_makes_a_value_too_long_is_refused() {
    for at in [mneme_log::MAX_VALUE, usize::MAX] {
        let patch = Patch::Write {
            at,
            bytes: Cow::Borrowed(b"x"),
        };
        let refused = patch.apply(b"value").unwrap_err();
        assert!(matches!(refused, WriteError::ValueTooLong(_)), "{refused}");
    }
}

/// Whether each block of a value has equal bytes.
fn whole(value: &[u8]) -> bool {
    value
        .chunks(BLOCK)
        .all(|block| block.iter().all(|byte| *byte == block[0]))
}

/// What was read; `None`: the value changed all the time. Only openings that may not write may get
/// that.
fn unless_overtaken<T>(read: Result<T, ReadError>, may_write: bool) -> Option<T> {
    match read {
        Err(ReadError::Overtaken(_)) if !may_write => None,
        read => Some(read.unwrap()),
    }
}

/// Reads `key` in every way; returns the numbers of blocks and values that it saw.
fn read_all(store: &LogStore, key: &[u8], round: usize, may_write: bool) -> u64 {
    let (keys, mut seen) = ([key], 0);
    let mut see = |value: &[u8]| {
        seen += 1;
        assert!(value.len() >= BLOCK && whole(value));
    };
    for i in 0..20 {
        let at = (round + i) % BLOCKS * BLOCK;
        let part = store.read_part(key, |_| at..at + BLOCK, |part| see(part.unwrap().bytes));
        unless_overtaken(part, may_write);
    }
    match round % 6 {
        0 => {
            if let Some(value) = unless_overtaken(store.get(key), may_write) {
                // A lent value does not change.
                let value = value.unwrap();
                let then = value.to_vec();
                std::thread::yield_now();
                see(&value);
                assert!(then == *value);
            }
        }
        1 => {
            let mut value = Vec::new();
            if unless_overtaken(store.get_into(key, &mut value), may_write) == Some(true) {
                see(&value);
            }
        }
        2 => drop(unless_overtaken(
            store.get_many(&keys, |_, value| see(value.unwrap())),
            may_write,
        )),
        3 => drop(unless_overtaken(
            store.copy_many(&keys, |_, value| see(value.unwrap())),
            may_write,
        )),
        4 => match store.transaction(|t| t.get(key)) {
            Err(WriteError::Overtaken(_)) if !may_write => {}
            value => see(&value.unwrap().unwrap()),
        },
        _ => {
            let mut cursor = Some(Cursor::START);
            while let Some(at) = cursor.filter(|at| *at != Cursor::END) {
                cursor = unless_overtaken(store.scan(at, 100, |_, value| see(value)), may_write);
            }
        }
    }
    seen
}

/// Changes blocks, adds some, and occasionally puts the value again.
fn change(store: &LogStore, key: &[u8], until: &AtomicBool, seed: usize) {
    let mut i = seed;
    while !until.load(Relaxed) {
        i = i.wrapping_add(1);
        let byte = (i * 7) as u8;
        match i % 1000 {
            0 => store.put(key, &vec![byte; BLOCKS * BLOCK]).unwrap(),
            n if n % 30 == 0 => {
                append(store, key, &[byte; BLOCK]);
            }
            n => {
                let at = n % BLOCKS * BLOCK;
                let decide = |part: Option<Part<'_>>| {
                    assert!(whole(part.unwrap().bytes));
                    Patch::Write {
                        at,
                        bytes: Cow::Owned(vec![byte; BLOCK]),
                    }
                };
                store.update_part(key, |_| at..at + BLOCK, decide).unwrap();
            }
        }
    }
}

/// Readers that may seal, that copy, and that may only read, beside two writers and compaction.
#[test]
fn no_reader_sees_half_a_change() {
    for policy in POLICIES {
        let (memory, store) = Memory::with_policy(CAPACITY, policy);
        store.put(b"k", &vec![1; BLOCKS * BLOCK]).unwrap();
        let (done, seen) = (AtomicBool::new(false), AtomicU64::new(0));
        let copying = memory.open_to_copy(4, Access::ReadWrite);
        let reading = memory.open_to_copy(5, Access::ReadOnly);
        std::thread::scope(|s| {
            for process in [2, 3] {
                let writer = memory.open(process);
                let done = &done;
                s.spawn(move || change(&writer, b"k", done, process as usize * 500));
            }
            let readers = [(&store, true), (&copying, true), (&reading, false)];
            let readers = readers.map(|(reader, may_write)| {
                let (seen, memory) = (&seen, &memory);
                s.spawn(move || {
                    for round in 0..if may_write { 3000 } else { 60 } {
                        seen.fetch_add(read_all(reader, b"k", round, may_write), Relaxed);
                        if round % 500 == 0 {
                            memory.open(9).compact().unwrap();
                        }
                    }
                })
            });
            for reader in readers {
                let _ = reader.join().map_err(|e| {
                    done.store(true, Relaxed);
                    std::panic::resume_unwind(e)
                });
            }
            done.store(true, Relaxed);
        });
        assert!(seen.into_inner() >= 2 * 3000 * 20);
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    }
}

/// If a value is patched while compaction copies it, the index does not lead to that copy.
#[test]
fn a_copy_that_was_overtaken_is_made_again() {
    for policy in POLICIES {
        let (memory, store) = Memory::with_policy(CAPACITY, policy);
        store.put(b"k", &[1; 8000]).unwrap();
        write(&store, b"k", 0, &[1; 8]);
        // Enough dead records beside it that compaction moves it.
        (0..300).for_each(|_| store.put(b"dead", &[9; 9000]).unwrap());
        // Begun once its segment is a victim, and ended once it is copied.
        let patching = Arc::new(Mutex::new(None));
        let (begun, writer) = (Arc::clone(&patching), Mutex::new(Some(memory.open(2))));
        let begin = move || {
            let writer = writer.lock().unwrap().take().unwrap();
            let patch = move || write(&writer, b"k", 100, &[2; 4000]);
            *begun.lock().unwrap() = Some(Stopped::at("log.change.half", 1, patch));
        };
        let ended = Arc::clone(&patching);
        let end = move || {
            let patching = ended.lock().unwrap().take().unwrap();
            assert_eq!(patching.finish(), Updated::Replaced);
        };
        fault::arm("compact.claimed", Action::Call(Arc::new(begin)), 1);
        fault::arm("compact.copied", Action::Call(Arc::new(end)), 1);
        assert!(store.compact().unwrap() > 0);
        fault::disarm();
        assert!(patching.lock().unwrap().is_none());
        let value = store.get(b"k").unwrap().unwrap().to_vec();
        assert!(value[100..4100].iter().all(|byte| *byte == 2));
        assert!(value[4100..].iter().all(|byte| *byte == 1));
    }
}

/// If a record is damaged after it was copied, its new length is not used for the copy.
#[test]
fn a_record_that_is_damaged_while_it_moves_is_written_nowhere_else() {
    for policy in POLICIES {
        let (memory, store) = Memory::with_policy(CAPACITY, policy);
        store.put(b"k", &[1; 8000]).unwrap();
        write(&store, b"k", 0, b"A MARK!!");
        (0..300).for_each(|_| store.put(b"dead", &[9; 9000]).unwrap());
        let words = memory.data.slice_at::<AtomicU64>(0, memory.data.len() / 8);
        let mark = u64::from_le_bytes(*b"A MARK!!");
        let at = words.unwrap().iter().position(|w| w.load(Relaxed) == mark);
        // Header, expiry, key, patch word, value.
        let header = (at.unwrap() - 4) * 8;
        let patching = Arc::new(Mutex::new(None));
        let (begun, writer) = (Arc::clone(&patching), Mutex::new(Some(memory.open(2))));
        let begin = move || {
            let writer = writer.lock().unwrap().take().unwrap();
            let patch = move || write(&writer, b"k", 100, &[2; 4000]);
            *begun.lock().unwrap() = Some(Stopped::at("log.change.half", 1, patch));
        };
        let fd = memory.data.duplicate_fd().unwrap().unwrap();
        let max = memory.data.max();
        let data = mneme_sys::Region::map(fd, Access::ReadWrite, max, mneme_sys::PagePolicy::Small);
        let (ended, data) = (Arc::clone(&patching), data.unwrap());
        let end = move || {
            ended.lock().unwrap().take().unwrap().finish();
            let words = data.slice_at::<AtomicU64>(header as u64, 4).unwrap();
            // Capacity and value length, each larger by a MiB.
            words[0].fetch_or(1 << 36, Relaxed);
            words[3].fetch_or(1 << 20, Relaxed);
        };
        fault::arm("compact.claimed", Action::Call(Arc::new(begin)), 1);
        fault::arm("compact.copied", Action::Call(Arc::new(end)), 1);
        let compacted = store.compact();
        fault::disarm();
        assert!(
            matches!(compacted, Err(WriteError::Corrupt(_))),
            "{policy:?}"
        );
    }
}

/// An opening that may only read gets an error for a value that never stops changing. The error
/// advises reading it in parts.
#[test]
fn an_overtaken_reader_gets_an_error_that_advises_parts() {
    let error = ReadError::Overtaken(std::time::Duration::from_secs(1)).to_string();
    assert!(error.contains("in parts"), "{error}");
}
