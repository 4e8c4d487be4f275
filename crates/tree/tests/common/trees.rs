//! Histories of several trees: what each version holds of all of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use mneme_sys::medium::{RecordingMedium, Trace};
use mneme_testkit::TestDir;
use mneme_tree::{Batch, Durability, Snapshot, Store, StoreError};

use super::beside::builder;
use super::crashes::{BOTH, Choice, Recorder, crash_with, expect_none, random};
use super::{Model, contents, open_on};

/// The content of a version, by the names of trees; the tree without a name is "".
pub type World = BTreeMap<String, Model>;

/// The whole content of a snapshot.
pub fn world(snapshot: &Snapshot) -> World {
    let names = snapshot.trees().unwrap().into_iter();
    let trees = names.map(|name| {
        let pairs = snapshot.tree(&name).unwrap().range(..);
        let pairs = pairs.map(|pair| pair.map(|(key, value)| (key.to_vec(), value.to_vec())));
        (name, pairs.collect::<Result<Model, _>>().unwrap())
    });
    let main = std::iter::once((String::new(), contents(snapshot)));
    main.chain(trees).collect()
}

/// A tree's name, a key, a value.
type Change<'n> = (&'n str, Vec<u8>, Option<Vec<u8>>);

/// Puts or removes keys of several trees in one batch; the tree "" is the one without a name.
pub fn apply(db: &Store, world: &mut World, changes: &[Change<'_>]) -> Result<(), StoreError> {
    let mut batch = Batch::new();
    for (name, key, value) in changes {
        let tree = match *name {
            "" => None,
            name => Some(db.open_tree(name)?),
        };
        match (&tree, value) {
            (None, Some(value)) => batch.put(key, value),
            (None, None) => batch.remove(key),
            (Some(tree), Some(value)) => batch.put_in(tree, key, value),
            (Some(tree), None) => batch.remove_in(tree, key),
        };
        let model = world.entry((*name).to_owned()).or_default();
        match value {
            Some(value) => drop(model.insert(key.clone(), value.clone())),
            None => drop(model.remove(key)),
        }
    }
    db.apply(&batch).map(drop)
}

/// The content of a store and its named versions, after each step.
type History = Vec<(World, BTreeMap<String, World>)>;

/// Trees are created, changed together, kept, dropped, created again under the same name, and
/// rolled back to.
fn history(durability: Durability) -> (Trace, History) {
    let recorder = Recorder::new(durability);
    let (db, mut random) = (recorder.db, random(9));
    let mut world = World::from([(String::new(), Model::new())]);
    let mut names = BTreeMap::new();
    let mut history = vec![(world.clone(), names.clone())];
    let key = |n: u64| match n % 9 {
        0 => [vec![b'l'; 3000], n.to_be_bytes().to_vec()].concat(),
        _ => format!("key{n:04}").into_bytes(),
    };
    let value = |n: u64| vec![n as u8; [40, 700, 2500][n as usize % 3]];
    for step in 0..30u64 {
        match step {
            0 | 1 | 14 => {
                let name = if step == 1 { "b" } else { "a" };
                db.tree(name).unwrap();
                world.insert(name.to_owned(), Model::new());
            }
            8 => {
                db.keep("then").unwrap();
                names.insert("then".to_owned(), world.clone());
            }
            11 => {
                db.drop_tree("a").unwrap();
                world.remove("a");
            }
            20 | 25 => {
                db.rollback("then").unwrap();
                world = names["then"].clone();
            }
            23 => {
                db.drop_tree("b").unwrap();
                world.remove("b");
            }
            27 => {
                db.drop_version("then").unwrap();
                names.clear();
            }
            _ => {
                let trees: Vec<String> = world.keys().cloned().collect();
                let count = if step < 6 { 60 } else { 12 };
                let changes: Vec<_> = (0..count)
                    .map(|_| {
                        let tree = &trees[random() as usize % trees.len()];
                        let (n, put) = (random() % 150, random() % 5 > 0);
                        (&tree[..], key(n), put.then(|| value(n + step)))
                    })
                    .collect();
                apply(&db, &mut world, &changes).unwrap();
            }
        }
        history.push((world.clone(), names.clone()));
        recorder.medium.mark(history.len() as u64 - 1);
    }
    db.check().unwrap();
    std::mem::forget(db);
    (recorder.medium.trace(), history)
}

fn look(db: &Store) -> Result<(World, BTreeMap<String, World>), StoreError> {
    let names = db.versions().into_iter().map(|(name, _)| {
        let shown = world(&db.version_named(&name)?);
        Ok((name, shown))
    });
    let names = names.collect::<Result<_, StoreError>>()?;
    Ok((world(&db.snapshot()?), names))
}

/// Everything of several trees survives, all or nothing of each commit; later commits remove what a
/// crash left of a dropped tree.
pub fn trees_survive() {
    for (model, durability) in BOTH {
        let (trace, history) = history(durability);
        let verify = |medium: &Arc<RecordingMedium>, mark: u64| {
            let error = |error: StoreError| error.to_string();
            let db = open_on(medium, durability).map_err(error)?;
            db.check().map_err(error)?;
            let found = look(&db).map_err(error)?;
            let mark = mark as usize;
            let mut allowed = [mark, mark + 1].into_iter().filter_map(|n| history.get(n));
            if !allowed.any(|state| *state == found) {
                return Err(format!("acknowledged {mark}"));
            }
            // Nothing that exists is reused, and nothing remains of what does not.
            let other = db.tree("other").map_err(error)?;
            for n in 0..6u8 {
                other.put(&[n], &[n; 3000]).map_err(error)?;
            }
            db.drop_tree("other").map_err(error)?;
            db.check().map_err(error)?;
            let again = look(&db).map_err(error)?;
            medium.fail_sync(1, 1);
            match again == found {
                true => Ok(()),
                false => Err("what is there has changed".to_owned()),
            }
        };
        let outcome = crash_with(&trace, model, &Choice::Some(1, 6), true, verify);
        expect_none(&outcome, 50);
    }
}

/// The process dies between the drop of a tree and the end of its leaves; the tree stays dropped,
/// its places are finally free, and meanwhile another tree has its name.
pub fn drops_are_finished_later() {
    let medium = Arc::new(RecordingMedium::new(super::MAX).unwrap());
    let db = open_on(&medium, Durability::File).unwrap();
    let tree = db.tree("large").unwrap();
    let fill = |tree: &mneme_tree::Tree| {
        let mut batch = Batch::new();
        for n in 0..3000_u32 {
            batch.put_in(tree, &n.to_be_bytes(), &[n as u8; 500]);
        }
        tree.store().apply(&batch).unwrap();
    };
    fill(&tree);
    let leaves = tree.stats().unwrap().leaves;
    assert!(leaves > 64);
    let before = medium.trace().operations.len();
    db.drop_tree("large").unwrap();
    assert!(matches!(
        tree.get(b"x"),
        Err(StoreError::TreeDropped { .. })
    ));
    assert!(matches!(
        tree.put(b"x", b""),
        Err(StoreError::TreeDropped { .. })
    ));
    assert_eq!(db.stats().unwrap().entries, 0);
    db.check().unwrap();
    let trace = medium.trace();
    drop((tree, db));
    // After each of the syncs of the drop and of what followed.
    let mut states =
        mneme_sys::medium::CrashStates::new(&trace, mneme_sys::medium::FailureModel::File);
    let mut tried = 0;
    let scratch = Arc::new(RecordingMedium::new(super::MAX).unwrap());
    while states.advance() {
        let at = states.at();
        if at < before + 8 || trace.operations[at - 1] != mneme_sys::medium::Operation::Sync {
            continue;
        }
        let state = states.sample(&mut random(at as u64));
        scratch.become_crashed(&states, &state).unwrap();
        let db = open_on(&scratch, Durability::File).unwrap();
        db.check().unwrap();
        assert!(matches!(
            db.open_tree("large"),
            Err(StoreError::NoSuchTree { .. })
        ));
        let again = db.tree("large").unwrap();
        assert_eq!(again.get(&7_u32.to_be_bytes()).unwrap(), None);
        for n in 0..leaves / 8 {
            again.put(&n.to_be_bytes(), b"new").unwrap();
        }
        db.check().unwrap();
        drop((again, db));
        let db = open_on(&scratch, Durability::File).unwrap();
        let stats = db.stats().unwrap();
        // Two in the catalogue.
        assert_eq!(stats.entries, leaves / 8 + 2, "{stats:?}");
        assert_eq!((stats.leaves, stats.retained_leaves), (3, 0), "{stats:?}");
        drop(db);
        tried += 1;
    }
    assert!(tried > 4, "{tried}");
}

/// Snapshots, names and readers beside the writer keep a dropped tree, and none mistakes another
/// tree of the same name for it.
pub fn a_dropped_tree_stays_where_it_is_shown() {
    let here = TestDir::new("tree-dropped");
    let path = here.path().join("db");
    let db = builder().open(&path).unwrap();
    let reader = builder().read_only(true).open(&path).unwrap();
    assert!(matches!(
        reader.tree("t"),
        Err(StoreError::NoSuchTree { .. })
    ));
    let mut shown = Vec::new();
    let mut kept = Vec::new();
    for round in 0..6_u8 {
        let mut expected = World::from([(String::new(), Model::new())]);
        let tree = db.tree("t").unwrap();
        let seen = reader.tree("t").unwrap();
        assert_eq!(seen.get(b"key").unwrap(), None, "a tree without leaves");
        expected.insert("t".to_owned(), Model::new());
        for part in 0..4_u32 {
            let changes: Vec<_> = (0..100)
                .map(|n| {
                    let key = format!("key{:04}", n * 4 + part).into_bytes();
                    (
                        "t",
                        key,
                        Some(vec![round; if n % 10 == 0 { 4000 } else { 300 }]),
                    )
                })
                .collect();
            apply(&db, &mut expected, &changes).unwrap();
            assert_eq!(world(&reader.snapshot().unwrap()), expected);
            let found = seen.get(&changes[5].1).unwrap();
            assert_eq!(found.as_ref(), changes[5].2.as_ref());
        }
        reader.check().unwrap();
        shown.push((db.snapshot().unwrap(), expected.clone()));
        shown.push((reader.snapshot().unwrap(), expected.clone()));
        db.keep(&format!("v{round}")).unwrap();
        kept.push(expected);
        db.drop_tree("t").unwrap();
        assert!(matches!(
            seen.get(b"key"),
            Err(StoreError::TreeDropped { .. })
        ));
        assert!(matches!(
            tree.get(b"key"),
            Err(StoreError::TreeDropped { .. })
        ));
        assert!(matches!(
            tree.remove(b"key"),
            Err(StoreError::TreeDropped { .. })
        ));
        assert!(reader.trees().unwrap().is_empty());
        for (snapshot, expected) in &shown {
            assert_eq!(world(snapshot), *expected);
        }
        reader.check().unwrap();
        if round % 2 == 1 {
            shown.drain(..2);
        }
    }
    for (round, expected) in kept.iter().enumerate() {
        let name = format!("v{round}");
        assert_eq!(world(&reader.version_named(&name).unwrap()), *expected);
        db.rollback(&name).unwrap();
        assert_eq!(world(&reader.snapshot().unwrap()), *expected);
        db.check().unwrap();
        reader.check().unwrap();
    }
    for round in 0..kept.len() {
        db.drop_version(&format!("v{round}")).unwrap();
    }
    drop(shown);
    db.drop_tree("t").unwrap();
    drop((db, reader));
    let db = builder().open(&path).unwrap();
    db.check().unwrap();
    let stats = db.stats().unwrap();
    assert_eq!(
        (stats.entries, stats.extents, stats.leaves),
        (0, 0, 2),
        "{stats:?}"
    );
}

/// A backup has all trees, under their names and numbers, and what is put into the copy is its own.
pub fn a_backup_has_all_trees() {
    let here = TestDir::new("tree-backup");
    let path = |name: &str| here.path().join(name);
    let db = builder().open(path("db")).unwrap();
    let mut expected = World::new();
    for name in ["one", "two", "three"] {
        db.tree(name).unwrap();
    }
    let changes: Vec<_> = (0..900_u32)
        .map(|n| {
            let name = ["", "one", "two"][n as usize % 3];
            (name, n.to_be_bytes().to_vec(), Some(vec![1; 300]))
        })
        .collect();
    apply(&db, &mut expected, &changes).unwrap();
    expected.insert("three".to_owned(), Model::new());
    let number = db.tree("two").unwrap().number();
    db.backup(path("copy")).unwrap();
    let copy = builder().open(path("copy")).unwrap();
    assert_eq!(world(&copy.snapshot().unwrap()), expected);
    assert_eq!(copy.tree("two").unwrap().number(), number);
    let (before, after) = (copy.tree("three").unwrap(), copy.tree("four").unwrap());
    assert!(after.number() > before.number());
    copy.check().unwrap();
    let stats = copy.tree("two").unwrap().stats().unwrap();
    assert_eq!(stats.entries, 300);
    copy.tree("two").unwrap().check().unwrap();
}
