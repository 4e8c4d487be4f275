//! A transaction's repeated writes take the memory of their result, not of every step.

use std::collections::BTreeMap;

use mneme_log::{Expiry, LogStore, Patch, Transaction, UpdatePolicy, WriteError};

use super::{open, open_with};

const MIB: usize = 1 << 20;
/// A time that no test reaches.
const LATER: u64 = u64::MAX >> 8;

/// Bytes that were appended to the log since the store was empty.
fn appended(store: &LogStore) -> u64 {
    let stats = store.stats();
    stats.live_bytes + stats.stale_bytes
}

/// Runs a transaction that succeeds at its first attempt, and returns how much it has appended.
fn appended_by(
    store: &LogStore,
    mut body: impl FnMut(&mut Transaction<'_>) -> Result<(), WriteError>,
) -> u64 {
    let (before, mut runs) = (appended(store), 0);
    let done = store.transaction(|t| {
        runs += 1;
        body(t)
    });
    done.unwrap();
    assert_eq!(runs, 1);
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    appended(store) - before
}

fn write_at<'b>(at: usize, bytes: &'b [u8]) -> Patch<'b> {
    Patch::Write {
        at,
        bytes: bytes.into(),
    }
}

fn append(t: &mut Transaction<'_>, key: &[u8], bytes: &[u8]) -> Result<(), WriteError> {
    let mut database = t.database(0)?;
    database.update_part(
        key,
        |_| 0..0,
        |part| write_at(part.map_or(0, |part| part.len), bytes),
    )?;
    Ok(())
}

/// Each of these once took as many copies as it has steps, 64 MiB and more of them.
#[test]
fn a_long_value_that_a_transaction_changes_often_is_copied_a_few_times() {
    for policy in [UpdatePolicy::Append, UpdatePolicy::InPlace] {
        let store = open_with(policy);
        store.put(b"long", &vec![b'.'; MIB]).unwrap();
        let most = 4 * MIB as u64;

        let bits = appended_by(&store, |t| {
            (0..2_000).try_for_each(|i| {
                let mut database = t.database(0)?;
                let at = i * 524;
                database.update_part(b"long", |_| at..at + 1, |_| write_at(at, b"x"))?;
                Ok(())
            })
        });
        assert!(bits <= most, "parts: {bits}");
        let value = store.get(b"long").unwrap().unwrap().to_vec();
        assert!((0..MIB).all(|i| value[i]
            == if i % 524 == 0 && i < 524 * 2_000 {
                b'x'
            } else {
                b'.'
            }));

        let appends = appended_by(&store, |t| {
            (0..500).try_for_each(|_| append(t, b"long", b"y"))
        });
        assert!(appends <= most, "appends: {appends}");

        let expiries = appended_by(&store, |t| {
            (0..500).try_for_each(|i| {
                let mut database = t.database(0)?;
                let expiry = [Expiry::At(LATER + i), Expiry::Never][i as usize % 2];
                database.update_expiry(b"long", |_| Some(expiry))?;
                Ok(())
            })
        });
        assert!(expiries <= most, "expiries: {expiries}");

        let puts = appended_by(&store, |t| {
            (0..500).try_for_each(|i| t.put(b"long", &vec![i as u8; MIB - i % 3]))
        });
        assert!(puts <= most, "puts: {puts}");
        assert_eq!(
            store.get(b"long").unwrap().unwrap().to_vec(),
            vec![243; MIB - 1]
        );
    }
}

#[test]
fn a_value_that_goes_from_key_to_key_in_a_transaction_takes_two_records() {
    let store = open();
    store.put(b"a", &vec![7; MIB]).unwrap();
    let moved = appended_by(&store, |t| {
        (0..300).try_for_each(|i| {
            let (from, to) = [(b"a", b"b"), (b"b", b"a")][i % 2];
            let value = t.get(from)?.unwrap();
            t.put(to, &value)?;
            assert!(t.remove(from)?);
            Ok(())
        })
    });
    assert!(moved <= 5 * MIB as u64, "{moved}");
    let copied = appended_by(&store, |t| {
        (0..250u8).try_for_each(|i| {
            let value = t.get(b"a")?.unwrap();
            t.remove(b"copy")?;
            t.put(b"copy", &value[usize::from(i)..])
        })
    });
    assert!(copied <= 5 * MIB as u64, "{copied}");
    assert_eq!(store.get(b"copy").unwrap().unwrap().len(), MIB - 249);
}

/// Copies of a value that grows from nothing to `n` bytes take a few times `n`, not its square, and
/// the committed value has no more slack than any other.
#[test]
fn a_value_that_grows_in_a_transaction_is_copied_as_often_as_it_doubles() {
    let store = open();
    let grown = appended_by(&store, |t| {
        (0..100_000u32).try_for_each(|i| append(t, b"grows", &i.to_le_bytes()))
    });
    assert!(grown <= 8 * 400_000, "{grown}");
    assert!(store.record_bytes(b"grows").unwrap().unwrap() <= 2 * 400_000 + 64);
    let set = appended_by(&store, |t| {
        (0..4_000).try_for_each(|len| t.put(b"short", &vec![b's'; len]))
    });
    assert!(set <= 50_000, "{set}");
    // Short values are stored as if they had been stored at once.
    assert_eq!(
        store.record_bytes(b"short").unwrap(),
        Some((8 + 5 + 3_999u64).next_multiple_of(8))
    );
}

/// A random step of a transaction.
fn step(
    t: &mut Transaction<'_>,
    model: &mut BTreeMap<Vec<u8>, (Vec<u8>, Expiry)>,
    random: &mut impl FnMut(usize) -> usize,
) -> Result<(), WriteError> {
    let key = [b'k', random(6) as u8].repeat(1 + random(2) * 20);
    let lengths = [0, 1, 9, 100, 1_000, 4_096, 4_097, 20_000, 300_000];
    let len = lengths[random(lengths.len())] + random(8);
    let fill = random(256) as u8;
    let expiry = [Expiry::Never, Expiry::At(LATER + random(9) as u64)][random(2)];
    match random(10) {
        0..3 => {
            t.database(0)?.put_until(&key, &vec![fill; len], expiry)?;
            model.insert(key, (vec![fill; len], expiry));
        }
        3 => assert_eq!(t.remove(&key)?, model.remove(&key).is_some()),
        4 => {
            t.database(0)?.update_expiry(&key, |stored| {
                assert_eq!(stored.value, model[&key].0);
                Some(expiry)
            })?;
            if let Some(there) = model.get_mut(&key) {
                there.1 = expiry;
            }
        }
        _ => {
            let old = model.get(&key).map_or(0, |(value, _)| value.len());
            let at = [random(old + 1), old, old + random(5_000)][random(3)];
            let bytes = vec![fill; [random(20), len][usize::from(random(8) == 0)]];
            let patch = write_at(at, &bytes);
            t.database(0)?.update_part(
                &key,
                |_| at..at + 3,
                |part| {
                    let there = model.get(&key);
                    assert_eq!(
                        part.map(|part| part.len),
                        there.map(|(value, _)| value.len())
                    );
                    let some = |value: &[u8]| value[at.min(old)..(at + 3).min(old)].to_vec();
                    let bytes = part.map(|part| part.bytes.to_vec());
                    assert_eq!(bytes, there.map(|(value, _)| some(value)));
                    patch.clone()
                },
            )?;
            let there = model.entry(key).or_default();
            if let Some(patched) = patch.apply(&there.0)? {
                there.0 = patched;
            }
        }
    }
    for (key, (value, expiry)) in &*model {
        let same = t.read(key, |stored| {
            stored.is_some_and(|stored| stored.value == value && stored.expiry == *expiry)
        })?;
        assert!(same, "{key:?}");
    }
    Ok(())
}

/// Whatever a transaction does to its records, the result is the stated one, and every byte is
/// counted.
#[test]
fn records_written_again_and_again_hold_what_was_written_last() {
    let mut state = 1u64;
    let mut random = |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(7);
        (state >> 33) as usize % below
    };
    for policy in [UpdatePolicy::Append, UpdatePolicy::InPlace] {
        let store = open_with(policy);
        let mut kept = BTreeMap::new();
        for round in 0..40 {
            let mut model = kept.clone();
            let fails = round % 4 == 3;
            let done = store.transaction(|t| {
                model = kept.clone();
                for _ in 0..30 {
                    step(t, &mut model, &mut random)?;
                }
                match fails {
                    true => Err(WriteError::ReadOnly),
                    false => Ok(()),
                }
            });
            assert_eq!(done.is_err(), fails);
            if !fails {
                kept = model;
            }
            let mut records = 0;
            for (key, (value, expiry)) in &kept {
                assert_eq!(store.expiry(key).unwrap(), Some(*expiry));
                records += store.record_bytes(key).unwrap().unwrap();
                // The first change of a part of a long value seals nothing.
                if round % 3 == 0 {
                    assert_eq!(&store.get(key).unwrap().unwrap().to_vec(), value);
                }
            }
            assert_eq!(store.len(), kept.len() as u64);
            assert_eq!(store.stats().live_bytes, records, "round {round}");
            assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
            store.compact().unwrap();
        }
        for (key, (value, _)) in &kept {
            assert_eq!(&store.get(key).unwrap().unwrap().to_vec(), value);
        }
    }
}
