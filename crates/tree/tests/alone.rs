//! A small store in memory: rewritten leaves, long values, snapshots, ranges from both ends, and
//! readers beside a writer. Under Miri it is as small as possible with each of these.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use mneme_sys::medium::MemoryMedium;
use mneme_tree::{Batch, Durability, Snapshot, Store};

fn store() -> Store {
    let medium = MemoryMedium::new(16 << 20).unwrap();
    let builder = Store::builder().durability(Durability::Process);
    builder.open_on(Box::new(medium)).unwrap()
}

/// A key and its value.
type Pair = (Vec<u8>, Vec<u8>);

fn forwards(snapshot: &Snapshot) -> Vec<Pair> {
    let pairs = snapshot.range(..).map(Result::unwrap);
    pairs.map(|(k, v)| (k.to_vec(), v.to_vec())).collect()
}

fn backwards(snapshot: &Snapshot) -> Vec<Pair> {
    let pairs = snapshot.range(..).rev().map(Result::unwrap);
    pairs.map(|(k, v)| (k.to_vec(), v.to_vec())).collect()
}

#[test]
fn a_store_holds_what_was_put_and_a_snapshot_what_it_showed() {
    let db = store();
    let mut model = BTreeMap::new();
    // Under Miri two leaves are filled, and rewritten.
    let (puts, keys) = if cfg!(miri) {
        (30, 14)
    } else {
        (90_u32, 40_u32)
    };
    for n in 0..puts {
        let key = (n * 7919 % keys).to_be_bytes();
        let value = vec![n as u8; if n % 10 == 0 { 3000 } else { 900 }];
        db.put(&key, &value).unwrap();
        model.insert(key.to_vec(), value);
    }
    let before = db.snapshot().unwrap();
    let mut batch = Batch::new();
    for n in (0..keys).step_by(2) {
        batch.remove(&n.to_be_bytes());
    }
    db.apply(&batch).unwrap();
    assert!(forwards(&before).into_iter().eq(model.clone()));
    assert!(backwards(&before).into_iter().rev().eq(model.clone()));
    model.retain(|key, _| key[3] % 2 == 1);
    let after = db.snapshot().unwrap();
    assert!(forwards(&after).into_iter().eq(model.clone()));
    assert!(backwards(&after).into_iter().rev().eq(model));
    drop((before, after));
    db.gc().unwrap();
    assert_eq!(db.stats().unwrap().retained_leaves, 0);
    db.check().unwrap();
}

#[test]
fn readers_see_whole_batches_beside_a_writer() {
    const LAST: u8 = if cfg!(miri) { 6 } else { 30 };
    const KEYS: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];
    let db = store();
    let commit = |n: u8| {
        let mut batch = Batch::new();
        for key in KEYS {
            batch.put(key, &[n; 700]);
        }
        db.apply(&batch).unwrap();
    };
    commit(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut seen = 0;
                while seen < LAST {
                    let mut found = Vec::new();
                    db.get_many(&KEYS, |_, value| found.push(value.unwrap()[699]))
                        .unwrap();
                    assert!(found.iter().all(|n| *n == found[0]), "{found:?}");
                    assert!(found[0] >= seen, "{} after {seen}", found[0]);
                    seen = found[0];
                    let snapshot = db.snapshot().unwrap();
                    let shown: Vec<u8> = forwards(&snapshot).iter().map(|(_, v)| v[0]).collect();
                    assert!(shown.len() == KEYS.len() && shown.iter().all(|n| *n == shown[0]));
                    assert!(shown[0] >= seen);
                    std::thread::yield_now();
                }
            });
        }
        (1..=LAST).for_each(commit);
    });
}
