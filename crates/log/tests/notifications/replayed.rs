//! The content of a change feed's entries, in maps.

use std::collections::{BTreeMap, BTreeSet};

use mneme_log::feed::{Assembly, FeedDamage, Item, bound, entries};
use mneme_log::{ChangeFeed, Cursor, Expiry, LogStore};

/// The databases that the tests use.
const DATABASES: [usize; 6] = [0, 5, 7, 9, 11, 12];

/// Value, expiry, and the number of the value's kind.
type Held = (Vec<u8>, Expiry, u8);
type Content = BTreeMap<Vec<u8>, Held>;

/// What is known about a store from its feed alone.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Replayed {
    databases: BTreeMap<u8, u64>,
    roots: BTreeMap<u64, Content>,
    dead: BTreeSet<u64>,
    /// Pieces received so far.
    pub pieces: Assembly,
    /// Whether a group is open.
    pub open: bool,
    /// Records that expire by this time are absent, although no entry says so yet.
    pub now: u64,
}

impl Replayed {
    fn content(&mut self, root: u64) -> &mut Content {
        self.roots.entry(root).or_default()
    }

    fn apply(&mut self, item: Item<'_>) {
        match item {
            Item::Put {
                root,
                key,
                kind,
                expiry,
                bytes,
            } => {
                let entry = (bytes.to_vec(), expiry, kind);
                self.content(root).insert(key.to_vec(), entry);
            }
            Item::Patch {
                root,
                key,
                offset,
                length,
                bytes,
            } => {
                if let Some((value, _, 0)) = self.content(root).get_mut(key) {
                    value.resize(length as usize, 0);
                    value[offset as usize..][..bytes.len()].copy_from_slice(bytes);
                }
            }
            // The store knows nothing about elements: the crates that do enter them.
            Item::Edit { .. } | Item::Unedit { .. } | Item::Touch { .. } => {
                panic!("nothing changes elements")
            }
            Item::Expire { root, key, expiry } => {
                if let Some((_, present, _)) = self.content(root).get_mut(key) {
                    *present = expiry;
                }
            }
            Item::Remove { root, key, .. } => drop(self.content(root).remove(key)),
            Item::Bind { databases, dead } => {
                for (database, root) in databases.iter().copied().map(bound) {
                    self.databases.insert(database, root);
                }
                self.dead
                    .extend(dead.iter().map(|id| u64::from_le_bytes(*id)));
            }
            Item::Open => assert!(!std::mem::replace(&mut self.open, true)),
            // The reaper of a thread that died in the middle of an `Open` enters this.
            Item::Close => self.open = false,
            other => panic!("nobody enters {other:?}"),
        }
        let dead = &self.dead;
        self.roots.retain(|root, _| !dead.contains(root));
    }

    /// Applies all that was drained, from `position` on.
    pub fn replay(&mut self, position: u64, bytes: &[u8]) {
        let mut pieces = std::mem::take(&mut self.pieces);
        for entry in entries(position, bytes) {
            let applied = pieces.apply(&entry.unwrap(), |item| {
                self.apply(item);
                Ok::<(), FeedDamage>(())
            });
            applied.unwrap();
        }
        self.pieces = pieces;
    }

    /// The content of a database.
    fn held(&self, database: usize) -> impl Iterator<Item = (&Vec<u8>, &Held)> {
        let root = self.databases.get(&(database as u8));
        let content = root.and_then(|root| self.roots.get(root));
        let all = content.into_iter().flatten();
        all.filter(|(_, (_, expiry, _))| match expiry {
            Expiry::Never => true,
            Expiry::At(ms) => *ms > self.now,
        })
    }

    /// The content of the databases.
    pub fn databases(&self) -> BTreeMap<usize, Content> {
        let of = |database: usize| {
            let held = self.held(database);
            let content = held.map(|(key, value)| (key.clone(), value.clone()));
            (database, content.collect())
        };
        DATABASES.map(of).into()
    }

    /// Fails unless it equals the content of the store.
    pub fn shows(&self, store: &LogStore, context: &str) {
        let is_so = DATABASES
            .into_iter()
            .all(|db| self.shows_database(store, db));
        assert!(
            is_so,
            "{context}: the feed says {:?}, the store {:?}",
            outline(&self.databases()),
            outline(&DATABASES.map(|db| (db, content(store, db))).into())
        );
    }

    fn shows_database(&self, store: &LogStore, db: usize) -> bool {
        let database = store.database(db).unwrap();
        let mut held = self.held(db);
        let keys = keys(store, db);
        let mut present = keys.iter().filter_map(|key| {
            let kind = database.kind(key).unwrap()?;
            let value = database.get_kind(key, kind).unwrap()?;
            Some((key, value, database.expiry(key).unwrap()?, kind.number()))
        });
        present.all(|(key, value, expiry, kind)| {
            let next = held.next();
            next.is_some_and(|(k, (v, e, number))| {
                k == key && *v == *value && *e == expiry && *number == kind
            })
        }) && held.next().is_none()
    }
}

/// Keys and lengths.
fn outline(databases: &BTreeMap<usize, Content>) -> Vec<String> {
    let all = databases.iter().flat_map(|(db, content)| {
        let all = content.iter();
        all.map(move |(key, (value, expiry, kind))| {
            format!(
                "{db} {} kind {kind} {} {expiry:?}",
                key.escape_ascii(),
                value.len()
            )
        })
    });
    all.collect()
}

/// A reader of a feed, and all that it has drained.
pub struct Reader {
    pub feed: ChangeFeed,
    pub replayed: Replayed,
    /// All bytes so far, from this position on.
    pub bytes: Vec<u8>,
    pub first: u64,
}

impl Reader {
    pub fn of(store: &LogStore) -> Reader {
        let feed = store.change_feed().unwrap();
        Reader {
            first: feed.durable(),
            feed,
            replayed: Replayed::default(),
            bytes: Vec::new(),
        }
    }

    /// Drains and replays what is there.
    pub fn drain(&mut self) {
        let before = self.bytes.len();
        let drained = self.feed.drain(usize::MAX, &mut self.bytes).unwrap();
        assert_eq!(drained.start, self.first + before as u64);
        self.replayed.replay(drained.start, &self.bytes[before..]);
    }

    /// Marks everything as kept.
    pub fn keep(&mut self) {
        let position = self.first + self.bytes.len() as u64;
        self.feed.set_durable(position).unwrap();
    }

    /// As [`Reader::keep`]; the drained bytes are discarded.
    pub fn keep_nothing(&mut self) {
        self.keep();
        self.bytes.clear();
        self.first = self.feed.durable();
    }
}

/// The keys of a database.
fn keys(store: &LogStore, db: usize) -> BTreeSet<Vec<u8>> {
    let database = store.database(db).unwrap();
    let (mut keys, mut cursor) = (BTreeSet::new(), Cursor::START);
    while cursor != Cursor::END {
        let visit = |key: &[u8]| {
            keys.insert(key.to_vec());
        };
        cursor = database.scan_keys(cursor, 64, visit).unwrap();
    }
    keys
}

fn content(store: &LogStore, db: usize) -> Content {
    let database = store.database(db).unwrap();
    let found = keys(store, db).into_iter().filter_map(|key| {
        let kind = database.kind(&key).unwrap()?;
        let value = database.get_kind(&key, kind).unwrap()?.to_vec();
        let expiry = database.expiry(&key).unwrap()?;
        Some((key, (value, expiry, kind.number())))
    });
    found.collect()
}
