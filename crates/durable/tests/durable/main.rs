//! Stores that are written, closed, killed and opened again.
#![allow(clippy::unwrap_used)]

mod checkpoints;
mod comparing;
mod damage;
mod disks;
mod histories;
mod kills;
mod opening;
mod served;
mod syncing;

use std::collections::BTreeMap;
use std::path::PathBuf;

use mneme_collections::Hash;
use mneme_durable::{DurabilityMode, DurableOptions, DurableStore, LogStore};
use mneme_log::{Builder, Cursor, Database, Expiry, Patch, Stored, ValueKind, WriteError};
use mneme_testkit::{Random, TestDir};

fn builder() -> Builder {
    LogStore::builder().capacity(64 << 20).maintainer(false)
}

fn options(dir: &TestDir) -> DurableOptions {
    DurableOptions::new(dir.path()).file_bytes(1 << 20)
}

/// Both forms of a store, which promise the same.
pub const BOTH: [DurabilityMode; 2] = [DurabilityMode::Journal, DurabilityMode::Tree];

fn open(dir: &TestDir) -> DurableStore {
    options(dir).open_private(builder()).unwrap()
}

/// Value, expiry, and the number of the value's kind.
type Held = (Vec<u8>, Expiry, u8);
type Records = BTreeMap<(usize, Vec<u8>), Held>;

/// Everything that a store holds.
fn contents(store: &LogStore) -> Records {
    let mut all = BTreeMap::new();
    for number in 0..64 {
        let database = store.database(number).unwrap();
        let mut keys = Vec::new();
        let mut cursor = Cursor::START;
        while cursor != Cursor::END {
            let visit = |key: &[u8]| keys.push(key.to_vec());
            cursor = database.scan_keys(cursor, 100, visit).unwrap();
        }
        for key in keys {
            let kind = database.kind(&key).unwrap().unwrap();
            // The order of a hash's fields may be another one where they were replayed.
            let value = match key.starts_with(b"hash") {
                true => in_order(Hash::new(database, &key)),
                false => database.get_kind(&key, kind).unwrap().unwrap().to_vec(),
            };
            let kind = kind.packed();
            let expiry = database.expiry(&key).unwrap().unwrap();
            all.insert((number, key), (value, expiry, kind.number()));
        }
    }
    all
}

/// The pairs of a hash in the order of their fields.
fn in_order(hash: Hash<'_, '_>) -> Vec<u8> {
    let mut pairs = hash.pairs().unwrap();
    pairs.sort();
    format!("{pairs:?}").into_bytes()
}

/// Gives what is under a key to another one.
fn rename(database: Database<'_>, from: &[u8], to: &[u8]) {
    let number = database.number();
    let renamed = database.transaction_on(&[(number, from), (number, to)], |t| {
        let mut records = t.database(number)?;
        let copy = |stored: Stored<'_>| (stored.value.to_vec(), stored.kind, stored.expiry);
        let Some((value, kind, expiry)) = records.read(from, |stored| stored.map(copy))? else {
            return Ok::<_, WriteError>(());
        };
        records.remove(from)?;
        records.put_kind(to, &value, kind, expiry)
    });
    renamed.unwrap();
}

/// Changes some fields of a hash.
fn change_hash(database: Database<'_>, random: &mut Random) {
    let key = format!("hash-{}", random.below(4)).into_bytes();
    let hash = Hash::new(database, &key);
    let names: Vec<_> = (0..6).map(|_| format!("f{}", random.below(12))).collect();
    // Some of the hashes become large ones, and are removed, renamed, or become empty then.
    let longest = if random.below(2) == 0 { 70 } else { 700 };
    let value = vec![b'v'; random.below(longest) as usize];
    match random.below(24) {
        0 => {
            database.remove(&key).unwrap();
            return;
        }
        1 => {
            let fields: Vec<_> = (0..12).map(|i| format!("f{i}")).collect();
            let fields: Vec<&[u8]> = fields.iter().map(String::as_bytes).collect();
            hash.remove_many(&fields).unwrap();
            return;
        }
        2 => {
            return rename(
                database,
                &key,
                &format!("hash-{}", random.below(4)).into_bytes(),
            );
        }
        _ => {}
    }
    let changed = match random.below(8) {
        0 => hash.remove_many(&[names[0].as_bytes(), names[1].as_bytes()]),
        1 | 2 => hash.remove(names[0].as_bytes()).map(usize::from),
        3 => {
            let pairs: Vec<_> = names
                .iter()
                .map(|name| (name.as_bytes(), &value[..]))
                .collect();
            hash.set_many(&pairs)
        }
        4 => hash.increment(b"sum", 1).map(|sum| sum as usize),
        _ => hash.set(names[0].as_bytes(), &value).map(usize::from),
    };
    changed.unwrap();
}

/// Random changes of every kind.
fn change(store: &LogStore, random: &mut Random, many: usize) {
    for _ in 0..many {
        let number = random.below(4) as usize;
        let database = store.database(number).unwrap();
        let key = format!("key-{}", random.below(200)).into_bytes();
        let value = vec![random.next() as u8; random.below(300) as usize];
        let kind = ValueKind::new(random.below(2) as u8).unwrap();
        match random.below(24) {
            20.. => change_hash(database, random),
            0 => database.clear().unwrap(),
            1 => store
                .swap_databases(number, random.below(4) as usize)
                .unwrap(),
            2..6 => drop(database.remove(&key).unwrap()),
            6..9 => drop(
                database
                    .set_expiry(&key, Expiry::At(random.below(1 << 40)))
                    .unwrap(),
            ),
            9 => database
                .put_kind(&key, &value, kind, Expiry::At(1 << 50))
                .unwrap(),
            10 => {
                // The second does not fit an entry of the feed.
                let len = [20_000, 70_000][random.below(2) as usize];
                let value = vec![7; len];
                database
                    .put_kind(&key, &value, kind, Expiry::Never)
                    .unwrap();
            }
            11 | 12 => {
                // Long enough to be changed where it lies.
                database.put(&key, &[9; 6000]).unwrap();
                for at in [100, 6000] {
                    let bytes = std::borrow::Cow::Borrowed(&value[..]);
                    let patch = || Patch::Write {
                        at,
                        bytes: bytes.clone(),
                    };
                    let changed = database.update_part(&key, |_| 0..0, |_| patch());
                    changed.unwrap();
                }
            }
            13 => store
                .transaction(|t| {
                    t.database(0)?.put_kind(&key, &value, kind, Expiry::Never)?;
                    t.put(
                        b"other",
                        &value.repeat([1, 1, 1, 1, 400][random.below(5) as usize]),
                    )?;
                    Ok::<_, mneme_log::WriteError>(())
                })
                .unwrap(),
            _ => database
                .put_kind(&key, &value, kind, Expiry::Never)
                .unwrap(),
        }
    }
}

/// The journal's files, the oldest first.
fn journals(dir: &TestDir) -> Vec<PathBuf> {
    let files = std::fs::read_dir(dir.path()).unwrap();
    let mut files: Vec<_> = files
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "journal"))
        .collect();
    files.sort();
    files
}
