//! The expected content of a store: records by database and key, and the effect of each step on
//! them.

use std::collections::BTreeMap;
use std::sync::Arc;

use mneme_log::Evict;

/// A database and a key in it.
pub type Key = (usize, Vec<u8>);

/// A record: its value, and when it expires; 0: never.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kept {
    pub value: Arc<Vec<u8>>,
    pub expires: u64,
}

/// All records, expired ones included. [`Model::live`] selects the present ones.
#[derive(Clone, Default)]
pub struct Model {
    pub records: BTreeMap<Key, Kept>,
    /// The time, in milliseconds since the Unix epoch.
    pub now: u64,
}

/// A step of an action: one operation of the store, and its effect on a model.
#[derive(Clone, Debug)]
pub enum Step {
    Put(Key, Kept),
    PutMany(usize, Vec<(Vec<u8>, Vec<u8>)>),
    Remove(Key),
    RemoveMany(usize, Vec<Vec<u8>>),
    /// Stores another value, with this expiry, where the key is present.
    Update(Key, Kept),
    /// Sets the expiry of a key that is present.
    Retime(Key, u64),
    /// Writes these bytes over a part of a value that is present.
    Patch(Key, usize, Vec<u8>),
    Transact(Vec<(Key, Option<Kept>)>),
    /// A transaction whose attempts fail because of other changes until it locks its keys before
    /// its body runs.
    Overtaken(Vec<(Key, Option<Kept>)>),
    /// A transaction with a watch of its first key.
    Guarded(Vec<(Key, Option<Kept>)>),
    /// Moves a key that is present to another database.
    Move(Key, usize),
    /// A transaction whose keys are locked before its body runs.
    Named(Vec<(Key, Option<Kept>)>),
    /// A transaction that only reads these.
    Look(Vec<Key>),
    Read,
    Clear(usize),
    Swap(usize, usize),
    Compact,
    /// Free memory is given back to the machine.
    GiveBack,
    /// Empties segments that are less full than the target.
    KeepFilled,
    /// Writes more than the store holds, while it may evict by these policies in turn.
    Evict(&'static [Evict]),
    /// Until the store is full.
    Fill,
    /// Expired records are removed.
    Sweep,
    Grow,
    Check,
    Reap,
    /// A reap dies at this place, if it gets there.
    ReapTo(&'static str),
    /// This number of milliseconds passes.
    Pass(u64),
    /// Change notifications are requested, read and given up.
    Follow,
    /// A tenant looks copies up in the lent frames, fills in missing ones, changes the originals of
    /// some, and puts others.
    Lend,
}

/// The database that is filled for evictions, whose content is not compared.
pub const FILLED: usize = 7;

impl Model {
    fn is_live(&self, kept: &Kept) -> bool {
        kept.expires == 0 || kept.expires > self.now
    }

    /// What a reader finds under `key`.
    pub fn live(&self, key: &Key) -> Option<&Kept> {
        self.records.get(key).filter(|kept| self.is_live(kept))
    }

    fn set(&mut self, key: &Key, kept: Option<Kept>) {
        match kept {
            Some(kept) => self.records.insert(key.clone(), kept),
            None => self.records.remove(key),
        };
    }

    pub fn apply(&mut self, step: &Step) {
        match step {
            Step::Put(key, kept) => self.set(key, Some(kept.clone())),
            Step::PutMany(db, pairs) => {
                for (key, value) in pairs {
                    let kept = Kept {
                        value: Arc::new(value.clone()),
                        expires: 0,
                    };
                    self.set(&(*db, key.clone()), Some(kept));
                }
            }
            Step::Remove(key) => self.set(key, None),
            Step::RemoveMany(db, keys) => {
                for key in keys {
                    self.set(&(*db, key.clone()), None);
                }
            }
            Step::Update(key, kept) => {
                if self.live(key).is_some() {
                    self.set(key, Some(kept.clone()));
                }
            }
            Step::Retime(key, expires) => {
                if let Some(kept) = self.live(key).cloned() {
                    self.set(
                        key,
                        Some(Kept {
                            expires: *expires,
                            ..kept
                        }),
                    );
                }
            }
            Step::Patch(key, at, bytes) => {
                if let Some(mut kept) = self.live(key).cloned() {
                    let value = Arc::make_mut(&mut kept.value);
                    value.resize(value.len().max(at + bytes.len()), 0);
                    value[*at..at + bytes.len()].copy_from_slice(bytes);
                    self.set(key, Some(kept));
                }
            }
            Step::Move(key, db) => {
                if let Some(kept) = self.live(key).cloned() {
                    self.set(&(*db, key.1.clone()), Some(Kept { expires: 0, ..kept }));
                    self.set(key, None);
                }
            }
            Step::Transact(changes)
            | Step::Overtaken(changes)
            | Step::Guarded(changes)
            | Step::Named(changes) => {
                for (key, kept) in changes {
                    self.set(key, kept.clone());
                }
            }
            Step::Clear(db) => self.records.retain(|(of, _), _| of != db),
            Step::Swap(a, b) => {
                let records = std::mem::take(&mut self.records).into_iter();
                let swapped = records.map(|((db, key), kept)| match db {
                    _ if db == *a => ((*b, key), kept),
                    _ if db == *b => ((*a, key), kept),
                    _ => ((db, key), kept),
                });
                self.records = swapped.collect();
            }
            Step::Pass(ms) => self.now += ms,
            Step::Look(_)
            | Step::Read
            | Step::Compact
            | Step::GiveBack
            | Step::KeepFilled
            | Step::Evict(_)
            | Step::Fill => {}
            Step::Sweep | Step::Grow | Step::Check | Step::Reap | Step::ReapTo(_) => {}
            Step::Follow | Step::Lend => {}
        }
    }
}

impl Step {
    /// The keys that it changes together.
    pub fn at_once(&self) -> Vec<Key> {
        match self {
            Step::Move(key, db) => vec![key.clone(), (*db, key.1.clone())],
            Step::Transact(changes)
            | Step::Overtaken(changes)
            | Step::Guarded(changes)
            | Step::Named(changes) => changes.iter().map(|(key, _)| key.clone()).collect(),
            _ => Vec::new(),
        }
    }

    /// The keys of a step that may be refused in the middle.
    pub fn one_by_one(&self) -> Vec<Key> {
        match self {
            Step::PutMany(db, pairs) => pairs.iter().map(|(k, _)| (*db, k.clone())).collect(),
            Step::RemoveMany(db, keys) => keys.iter().map(|k| (*db, k.clone())).collect(),
            _ => Vec::new(),
        }
    }
}
