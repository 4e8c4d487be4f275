//! Stores that are written, closed, killed and opened again.
#![allow(clippy::unwrap_used)]

mod checkpoints;
#[path = "../common/collections.rs"]
mod collections;
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

use collections::{change_collection, held};
use mneme_durable::{DurabilityMode, DurableOptions, DurableStore, LogStore};
use mneme_log::{Builder, Cursor, Expiry, Patch, ValueKind};
use mneme_testkit::{Random, TestDir};

fn builder() -> Builder {
    LogStore::builder().capacity(64 << 20).maintainer(false)
}

fn options(dir: &TestDir) -> DurableOptions {
    DurableOptions::new(dir.path()).file_bytes(1 << 20)
}

/// Both forms of a store, which give the same guarantees.
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
            let value = held(database, &key, kind);
            let kind = kind.packed();
            let expiry = database.expiry(&key).unwrap().unwrap();
            all.insert((number, key), (value, expiry, kind.number()));
        }
    }
    all
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
            20.. => change_collection(database, random),
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
                // Long enough to be changed in place.
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
