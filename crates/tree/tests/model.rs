//! The store against a `BTreeMap`, over puts, removals, batches, transactions, snapshots, ranges,
//! reopening and crashes of the process, in any order.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use common::cached::{open_with, small};
use common::trees::{World, world};
use common::{MAX, Model, copy_of};
use mneme_sys::medium::RecordingMedium;
use mneme_tree::{Batch, MAX_KEY, RecordCache, Snapshot, Store, StoreError, Tree};
use proptest::prelude::*;

/// Trees, keys, values.
type Changes = Vec<(u8, u16, Option<u16>)>;

#[derive(Debug, Clone)]
enum Step {
    Put(u8, u16, u16),
    Remove(u8, u16),
    Batch(Changes),
    Transaction(Changes, bool),
    DropTree(u8),
    Snapshot,
    DropSnapshot,
    Range(u16, u16, bool),
    Reopen,
    Kill,
    Check,
    Keep(u8),
    DropVersion(u8),
    Rollback(u8),
}

/// Keys of many lengths, some of which share long beginnings, and some of which are too long for a
/// leaf.
fn key(n: u16) -> Vec<u8> {
    match n % 6 {
        0 => n.to_be_bytes().to_vec(),
        1 => format!("user{n:020}").into_bytes(),
        2 => [vec![b'x'; 300], n.to_be_bytes().to_vec()].concat(),
        3 => [b"user".to_vec(), vec![0; usize::from(n) % 40]].concat(),
        4 if n % 60 == 4 => [vec![b'z'; MAX_KEY - 2], n.to_be_bytes().to_vec()].concat(),
        4 => {
            let len = [1022, 1023, 1024, 1500, 5000][usize::from(n / 6) % 5];
            [vec![b'x'; len], n.to_be_bytes().to_vec()].concat()
        }
        _ => vec![n as u8; usize::from(n) % 9],
    }
}

fn value(n: u16) -> Vec<u8> {
    let len = match n % 11 {
        0 => usize::from(n) % 1921,
        1 => 1900 + usize::from(n) % 9000,
        2 if n.is_multiple_of(97) => 2_100_000 + usize::from(n),
        _ => usize::from(n) % 200,
    };
    vec![n as u8; len]
}

/// Mostly the tree that has no name.
fn tree() -> impl Strategy<Value = u8> {
    prop_oneof![3 => Just(0u8), 2 => 1..4u8]
}

/// The name of a tree that has one.
fn name(tree: u8) -> String {
    match tree {
        0 => String::new(),
        _ => format!("tree{tree}"),
    }
}

/// The name of a version.
fn version(n: u8) -> String {
    format!("v{n}")
}

fn changes() -> impl Strategy<Value = Changes> {
    let change = (
        tree(),
        0..900u16,
        proptest::option::weighted(0.7, any::<u16>()),
    );
    proptest::collection::vec(change, 0..60)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (tree(), 0..900u16, any::<u16>()).prop_map(|(t, k, v)| Step::Put(t, k, v)),
        4 => (tree(), 0..900u16).prop_map(|(t, k)| Step::Remove(t, k)),
        1 => (1..4u8).prop_map(Step::DropTree),
        4 => changes().prop_map(Step::Batch),
        2 => (changes(), any::<bool>()).prop_map(|(c, commit)| Step::Transaction(c, commit)),
        1 => Just(Step::Snapshot),
        1 => Just(Step::DropSnapshot),
        2 => (0..900u16, 0..900u16, any::<bool>()).prop_map(|(a, b, r)| Step::Range(a, b, r)),
        1 => Just(Step::Reopen),
        1 => Just(Step::Kill),
        1 => Just(Step::Check),
        2 => (0..4u8).prop_map(Step::Keep),
        1 => (0..4u8).prop_map(Step::DropVersion),
        1 => (0..4u8).prop_map(Step::Rollback),
    ]
}

fn apply(world: &mut World, changes: &Changes) {
    for (t, k, v) in changes {
        let model = world.entry(name(*t)).or_default();
        match v {
            Some(v) => model.insert(key(*k), value(*v)),
            None => model.remove(&key(*k)),
        };
    }
}

/// The trees of the changes, created if they do not exist, except the one without a name.
fn trees(db: &Store, changes: &Changes) -> Result<BTreeMap<u8, Tree>, StoreError> {
    let named = changes.iter().filter(|(t, ..)| *t > 0);
    named.map(|(t, ..)| Ok((*t, db.tree(&name(*t))?))).collect()
}

struct Run {
    db: Option<Store>,
    medium: Arc<RecordingMedium>,
    /// Shared by all openings.
    cache: RecordCache,
    world: World,
    snapshots: Vec<(Snapshot, World)>,
    names: BTreeMap<String, World>,
}

impl Run {
    fn step(&mut self, step: &Step) -> Result<(), StoreError> {
        let db = self.db.clone().unwrap();
        match step {
            Step::Put(t, k, v) => self.put(&db, *t, *k, *v)?,
            Step::Remove(t, k) => self.remove(&db, *t, *k)?,
            Step::Batch(changes) => self.batch(&db, changes)?,
            Step::Transaction(changes, commit) => self.transaction(&db, changes, *commit)?,
            Step::DropTree(t) => match (db.drop_tree(&name(*t)), self.world.remove(&name(*t))) {
                (Ok(_), Some(_)) | (Err(StoreError::NoSuchTree { .. }), None) => {}
                other => panic!("{other:?}"),
            },
            Step::Snapshot => self.snapshots.push((db.snapshot()?, self.world.clone())),
            Step::DropSnapshot => drop(self.snapshots.pop()),
            Step::Range(a, b, both) => self.range(&db, &key(*a), &key(*b), *both)?,
            Step::Reopen => self.reopen(drop, db)?,
            Step::Kill => self.reopen(std::mem::forget, db)?,
            Step::Check => {
                db.check()?;
                self.named(&db)?;
            }
            Step::Keep(n) => self.keep(&db, *n)?,
            Step::DropVersion(n) => self.drop_version(&db, &version(*n)),
            Step::Rollback(n) => self.roll_back(&db, &version(*n)),
        }
        for (snapshot, model) in &self.snapshots {
            assert_eq!(world(snapshot), *model);
        }
        // Repeatedly, so that copies are found.
        let db = self.db.as_ref().unwrap();
        for n in (0..900).step_by(36) {
            assert_eq!(db.get(&key(n))?, self.world[""].get(&key(n)).cloned());
        }
        Ok(())
    }

    fn put(&mut self, db: &Store, t: u8, k: u16, v: u16) -> Result<(), StoreError> {
        let changes = vec![(t, k, Some(v))];
        match trees(db, &changes)?.get(&t) {
            Some(tree) => tree.put(&key(k), &value(v))?,
            None => db.put(&key(k), &value(v))?,
        };
        apply(&mut self.world, &changes);
        Ok(())
    }

    fn remove(&mut self, db: &Store, t: u8, k: u16) -> Result<(), StoreError> {
        let changes = vec![(t, k, None)];
        match trees(db, &changes)?.get(&t) {
            Some(tree) => tree.remove(&key(k))?,
            None => db.remove(&key(k))?,
        };
        apply(&mut self.world, &changes);
        Ok(())
    }

    fn batch(&mut self, db: &Store, changes: &Changes) -> Result<(), StoreError> {
        let trees = trees(db, changes)?;
        let mut batch = Batch::new();
        for (t, k, v) in changes {
            match (trees.get(t), v) {
                (None, Some(v)) => batch.put(&key(*k), &value(*v)),
                (None, None) => batch.remove(&key(*k)),
                (Some(tree), Some(v)) => batch.put_in(tree, &key(*k), &value(*v)),
                (Some(tree), None) => batch.remove_in(tree, &key(*k)),
            };
        }
        db.apply(&batch)?;
        apply(&mut self.world, changes);
        Ok(())
    }

    fn transaction(
        &mut self,
        db: &Store,
        changes: &Changes,
        commit: bool,
    ) -> Result<(), StoreError> {
        let trees = trees(db, changes)?;
        let names = trees.keys().map(|t| (name(*t), Model::new()));
        for (name, empty) in names {
            self.world.entry(name).or_insert(empty);
        }
        let mut tx = db.write();
        let mut after = self.world.clone();
        for (t, k, v) in changes {
            let (key, value) = (key(*k), v.map(value));
            match (trees.get(t), &value) {
                (None, Some(value)) => tx.put(&key, value)?,
                (None, None) => tx.remove(&key)?,
                (Some(tree), Some(value)) => tx.put_in(tree, &key, value)?,
                (Some(tree), None) => tx.remove_in(tree, &key)?,
            }
            apply(&mut after, &vec![(*t, *k, *v)]);
            let found = match trees.get(t) {
                Some(tree) => tx.get_in(tree, &key)?,
                None => tx.get(&key)?,
            };
            assert_eq!(found.as_ref(), after[&name(*t)].get(&key));
        }
        if commit {
            tx.commit()?;
            self.world = after;
        }
        Ok(())
    }

    fn keep(&mut self, db: &Store, n: u8) -> Result<(), StoreError> {
        let name = version(n);
        match db.keep(&name) {
            Ok(_) => assert!(self.names.insert(name, self.world.clone()).is_none()),
            Err(StoreError::VersionExists { .. }) => {
                assert!(self.names.contains_key(&name));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Opens what is left after the store has ended.
    fn reopen(&mut self, end: fn(Store), db: Store) -> Result<(), StoreError> {
        self.snapshots.clear();
        self.db = None;
        end(db);
        let medium = copy_of(&self.medium);
        let reopened = open_with(&medium, &self.cache);
        self.named(&reopened)?;
        (self.db, self.medium) = (Some(reopened), medium);
        Ok(())
    }

    fn drop_version(&mut self, db: &Store, name: &str) {
        match (db.drop_version(name), self.names.remove(name)) {
            (Ok(()), Some(_)) | (Err(StoreError::NoSuchVersion { .. }), None) => {}
            other => panic!("{other:?}"),
        }
    }

    fn roll_back(&mut self, db: &Store, name: &str) {
        match (db.rollback(name), self.names.get(name)) {
            (Ok(_), Some(model)) => self.world = model.clone(),
            (Err(StoreError::NoSuchVersion { .. }), None) => {}
            other => panic!("{other:?}"),
        }
    }

    /// Named versions have not changed.
    fn named(&self, db: &Store) -> Result<(), StoreError> {
        let names: Vec<_> = db.versions().into_iter().map(|(name, _)| name).collect();
        assert!(names.iter().eq(self.names.keys()));
        for (name, model) in &self.names {
            assert_eq!(world(&db.version_named(name)?), *model, "{name}");
        }
        Ok(())
    }

    fn range(&self, db: &Store, a: &[u8], b: &[u8], both: bool) -> Result<(), StoreError> {
        let (low, high) = (a.min(b), a.max(b));
        let bounds = (Bound::Excluded(low), Bound::Included(high));
        let snapshot = db.snapshot()?;
        let mut expected: Vec<_> = if low == high {
            Vec::new()
        } else {
            let range = self.world[""].range::<[u8], _>(bounds);
            range.map(|(k, v)| (k.clone(), v.clone())).collect()
        };
        let mut range = snapshot.range(bounds);
        let mut found = Vec::new();
        let mut last = Vec::new();
        while let Some(pair) = range.next() {
            let (k, v) = pair?;
            found.push((k.to_vec(), v.to_vec()));
            if both {
                let Some(pair) = range.next_back() else { break };
                let (k, v) = pair?;
                last.push((k.to_vec(), v.to_vec()));
            }
        }
        found.extend(last.into_iter().rev());
        assert_eq!(found, expected);
        expected.reverse();
        let reversed: Result<Vec<_>, _> = snapshot.range(bounds).rev().collect();
        let reversed: Vec<_> = reversed?
            .into_iter()
            .map(|(k, v)| (k.to_vec(), v.to_vec()))
            .collect();
        assert_eq!(reversed, expected);
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_store_is_a_map_with_versions(steps in proptest::collection::vec(step(), 1..120)) {
        let cache = small();
        let medium = Arc::new(RecordingMedium::new(MAX).unwrap());
        let db = open_with(&medium, &cache);
        let mut run = Run { db: Some(db), medium, cache, world: World::from([(String::new(), Model::new())]), snapshots: Vec::new(), names: BTreeMap::new() };
        for step in &steps {
            run.step(step).unwrap();
        }
        let db = run.db.take().unwrap();
        let keys: Vec<_> = (0..900).map(key).collect();
        for key in &keys {
            prop_assert_eq!(db.get(key).unwrap(), run.world[""].get(key).cloned());
        }
        let mut found = Vec::new();
        db.get_many(&keys, |_, value| found.push(value.map(<[u8]>::to_vec))).unwrap();
        prop_assert!(found.iter().map(Option::as_ref).eq(keys.iter().map(|key| run.world[""].get(key))));
        prop_assert_eq!(&world(&db.snapshot().unwrap()), &run.world);
        db.check().unwrap();
        run.named(&db).unwrap();
        let stats = db.stats().unwrap();
        // A tree has two entries in the catalogue.
        let named = run.world.len() - 1;
        let entries = run.world.values().map(|model| model.len()).sum::<usize>() + 2 * named;
        prop_assert_eq!(stats.entries, entries as u64);
    }
}
