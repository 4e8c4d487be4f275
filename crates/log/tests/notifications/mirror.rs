//! What a listener knows about a store.

use std::collections::BTreeMap;

use mneme_log::{ChangeKind, ChangeListener, Cursor, Expiry, LogStore, Notification};

/// The databases that the tests use.
const DATABASES: [usize; 3] = [0, 5, 7];

/// Something that the listener received.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Received {
    Lost,
    /// A key, and what happened to it.
    Key(usize, &'static str, Vec<u8>),
    /// One by its hash.
    Cleared(usize),
    Swapped(usize, usize),
}

impl Received {
    pub fn of(report: Notification<'_>) -> Received {
        let change = match report {
            Notification::Lost => return Received::Lost,
            Notification::Change(change) => change,
        };
        let (kind, key) = match change.kind {
            ChangeKind::Stored(key) => ("stored", key),
            ChangeKind::Retimed(key) => ("retimed", key),
            ChangeKind::Removed(key) => ("removed", key),
            ChangeKind::Expired(key) => ("expired", key),
            ChangeKind::Evicted(key) => ("evicted", key),
            ChangeKind::Cleared => return Received::Cleared(change.database),
            ChangeKind::Swapped(with) => return Received::Swapped(change.database, with),
            other => panic!("{other:?}"),
        };
        Received::Key(change.database, kind, key.to_vec())
    }

    pub fn name(&self) -> String {
        match self {
            Received::Lost => "lost".to_owned(),
            Received::Key(db, kind, key) => format!("{db} {kind} {}", key.escape_ascii()),
            Received::Cleared(db) => format!("{db} cleared"),
            Received::Swapped(db, with) => format!("{db} swapped {with}"),
        }
    }
}

type Content = BTreeMap<Vec<u8>, (Vec<u8>, Expiry)>;

/// A copy of a store that is updated only by what its listener receives.
pub struct Mirror<'s> {
    store: &'s LogStore,
    listener: ChangeListener,
    content: BTreeMap<usize, Content>,
}

impl<'s> Mirror<'s> {
    pub fn listen(store: &'s LogStore) -> Mirror<'s> {
        Mirror::of(store, store.listen().unwrap())
    }

    pub fn of(store: &'s LogStore, listener: ChangeListener) -> Mirror<'s> {
        Mirror {
            store,
            listener,
            content: BTreeMap::new(),
        }
    }

    /// Receives everything that is there.
    pub fn drain(&mut self) -> Vec<Received> {
        let mut received = Vec::new();
        while self
            .listener
            .drain(100, |report| received.push(Received::of(report)))
            .unwrap()
            >= 100
        {}
        for report in &received {
            self.take_in(report);
        }
        received
    }

    fn take_in(&mut self, report: &Received) {
        match report {
            Received::Lost => DATABASES.iter().for_each(|db| self.look_at(*db)),
            Received::Key(db, _, key) => {
                let now = entry(self.store, *db, key);
                let content = self.content.entry(*db).or_default();
                match now {
                    Some(entry) => drop(content.insert(key.clone(), entry)),
                    None => drop(content.remove(key)),
                }
            }
            Received::Cleared(db) => self.look_at(*db),
            Received::Swapped(one, other) => {
                [one, other].into_iter().for_each(|db| self.look_at(*db))
            }
        }
    }

    fn look_at(&mut self, db: usize) {
        self.content.insert(db, content(self.store, db));
    }

    pub fn shows_the_store(&self, context: &str) {
        for db in DATABASES {
            let shown = self.content.get(&db).cloned().unwrap_or_default();
            assert!(
                shown == content(self.store, db),
                "{context}: database {db} differs from what was reported"
            );
        }
    }

    /// Whether it may sleep, because it has received everything.
    pub fn may_sleep(&self) -> bool {
        self.listener.sleep().is_some()
    }
}

fn entry(store: &LogStore, db: usize, key: &[u8]) -> Option<(Vec<u8>, Expiry)> {
    let db = store.database(db).unwrap();
    let value = db.get(key).unwrap()?.to_vec();
    Some((value, db.expiry(key).unwrap()?))
}

fn content(store: &LogStore, db: usize) -> Content {
    let database = store.database(db).unwrap();
    let (mut keys, mut cursor) = (Vec::new(), Cursor::START);
    while cursor != Cursor::END {
        cursor = database
            .scan(cursor, 64, |key, _| keys.push(key.to_vec()))
            .unwrap();
    }
    let found = keys
        .into_iter()
        .map(|key| (entry(store, db, &key), key))
        .filter_map(|(entry, key)| Some((key, entry?)));
    found.collect()
}
