//! Applies the entries of a feed to a store that is being rebuilt.
//!
//! **The result is the state after the last entry, even if the store already holds a newer state at
//! the first one**, because entries are absolute. Records belong to roots. Until the end a root
//! occupies any database of the store; then every database gets the root to which it was bound
//! last.

use std::collections::{HashMap, HashSet};

use mneme_collections::CollectionError;
use mneme_log::feed::{Assembly, COLLECTIONS, Entry, Item, bound, entries};
use mneme_log::{
    Cursor, DATABASES, Database, Decision, Expiry, LogStore, Stored, ValueKind, WriteError,
    element_of,
};

use crate::DurableError;

/// A replay under way. Nothing else uses the store, and its clock stands at zero.
pub(crate) struct Replay<'s> {
    store: &'s LogStore,
    /// The database that holds a root for now.
    places: HashMap<u64, usize>,
    /// The root to which each database was bound last; 0: none.
    bindings: [u64; DATABASES],
    /// Roots to which any database was bound.
    bound: HashSet<u64>,
    /// Roots that are dropped and never come back.
    dead: HashSet<u64>,
    pub highest: u64,
    /// The bytes of the open group, and where they begin.
    open: Option<(u64, Vec<u8>)>,
    value: Vec<u8>,
    /// Values that arrive in pieces.
    pieces: Assembly,
    /// Records of a base file that arrive in pieces.
    pieces_of_records: Assembly,
    /// Bytes by which the store may exceed its capacity.
    extension: u64,
    /// Changes applied so far.
    pub loaded: u64,
}

/// Records stored at once.
const BATCH: usize = 128;

/// A key and its value.
pub(crate) type ReplayPair<'b> = (&'b [u8], &'b [u8]);

/// Records of one root to be stored at once, which overlaps their cache misses.
#[derive(Default)]
pub(crate) struct ReplayBatch<'b> {
    root: u64,
    /// The position of the entry with the first of them.
    position: u64,
    pairs: Vec<ReplayPair<'b>>,
}

/// The root and the record of an entry that contains only that, if the record does not expire.
fn plain_put<'e>(entry: &Entry<'e>) -> Result<Option<(u64, ReplayPair<'e>)>, DurableError> {
    let mut items = entry.items();
    Ok(match (items.next().transpose()?, items.next()) {
        (
            Some(Item::Put {
                root,
                key,
                kind: 0,
                expiry: Expiry::Never,
                bytes,
            }),
            None,
        ) => Some((root, (key, bytes))),
        _ => None,
    })
}

/// The least number of bytes by which a store is enlarged.
const EXTENSION: u64 = 4 << 20;

/// Changes a part of a value, which has `length` bytes afterwards.
pub(crate) fn patch(value: &mut Vec<u8>, offset: usize, length: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    value.resize(length.max(end), 0);
    value[offset..end].copy_from_slice(bytes);
    value.truncate(length);
}

impl<'s> Replay<'s> {
    /// `evicts`: whether an excess at the end is evicted. Otherwise it is refused, and need not be
    /// loaded first.
    pub fn new(store: &'s LogStore, dead: HashSet<u64>, evicts: bool) -> Self {
        store.spare_collections(true);
        Self {
            extension: match evicts {
                true => u64::MAX,
                false => store.capacity() / 4 + 4 * EXTENSION,
            },
            store,
            places: HashMap::new(),
            bindings: [0; DATABASES],
            bound: HashSet::new(),
            highest: dead.iter().copied().max().unwrap_or(0),
            dead,
            open: None,
            value: Vec::new(),
            pieces: Assembly::default(),
            pieces_of_records: Assembly::default(),
            loaded: 0,
        }
    }

    /// Notes roots that are dropped later: entries about them need not be applied.
    pub fn know_dead(&mut self, dead: &HashSet<u64>) {
        self.highest = dead.iter().copied().max().unwrap_or(0).max(self.highest);
        self.dead.extend(dead);
    }

    /// Stores records of a base file. They are at least as new as everything that was applied; an
    /// open group is applied after them.
    pub fn records(&mut self, bytes: &[u8]) -> Result<(), DurableError> {
        let mut pieces = std::mem::take(&mut self.pieces_of_records);
        let mut batch = ReplayBatch::default();
        for entry in entries(0, bytes) {
            let entry = entry?;
            match plain_put(&entry)? {
                Some((root, pair)) => {
                    self.gather(&mut batch, entry.position, root, pair)?;
                }
                None => {
                    self.store_batch(&mut batch)?;
                    pieces.apply(&entry, |item| self.item(entry.position, item))?;
                }
            }
        }
        self.store_batch(&mut batch)?;
        self.pieces_of_records = pieces;
        Ok(())
    }

    /// Adds a record that does not expire to a batch. If the batch is full or of another root, it
    /// is stored first. `position`: of the record's entry.
    pub fn gather<'b>(
        &mut self,
        batch: &mut ReplayBatch<'b>,
        position: u64,
        root: u64,
        pair: ReplayPair<'b>,
    ) -> Result<(), DurableError> {
        if batch.root != root || batch.pairs.len() == BATCH {
            self.store_batch(batch)?;
            (batch.root, batch.position) = (root, position);
        }
        batch.pairs.push(pair);
        Ok(())
    }

    /// Stores the records of a batch in order.
    pub fn store_batch(&mut self, batch: &mut ReplayBatch<'_>) -> Result<(), DurableError> {
        let stored = self.store_pairs(batch);
        batch.pairs.clear();
        stored
    }

    fn store_pairs(&mut self, batch: &ReplayBatch<'_>) -> Result<(), DurableError> {
        let pairs = &batch.pairs;
        if pairs.is_empty() {
            return Ok(());
        }
        self.loaded += pairs.len() as u64;
        let Some(database) = self.place(batch.position, batch.root)? else {
            return Ok(());
        };
        let mut done = 0;
        self.with_space(|| {
            let stored = database.put_many(&pairs[done..]);
            stored.map_err(|stopped| {
                done += stopped.done;
                stopped.source
            })
        })
    }

    /// Applies whole entries; `position` is that of the first.
    pub fn bytes(&mut self, position: u64, bytes: &[u8]) -> Result<(), DurableError> {
        let mut group = self.open.take();
        let mut batch = ReplayBatch::default();
        for entry in entries(position, bytes) {
            let entry = entry?;
            if let (None, Some((root, pair))) = (&group, plain_put(&entry)?) {
                self.gather(&mut batch, entry.position, root, pair)?;
                continue;
            }
            self.store_batch(&mut batch)?;
            let raw = || {
                let begin = (entry.position - position) as usize;
                &bytes[begin..begin + entry.stride()]
            };
            let first = entry.items().next().transpose()?;
            match (&mut group, first) {
                (None, Some(Item::Open)) => group = Some((entry.position, Vec::new())),
                (Some((at, open)), Some(Item::Close)) => {
                    let (at, open) = (*at, std::mem::take(open));
                    group = None;
                    for entry in entries(at, &open) {
                        self.entry(&entry?)?;
                    }
                }
                (Some((_, open)), _) => open.extend_from_slice(raw()),
                (None, _) => self.entry(&entry)?,
            }
        }
        self.store_batch(&mut batch)?;
        self.open = group;
        Ok(())
    }

    /// Where the applied entries end if the stream was read up to `end`: an open group is not
    /// applied.
    pub fn end(&self, end: u64) -> u64 {
        self.open.as_ref().map_or(end, |(at, _)| *at)
    }

    fn entry(&mut self, entry: &Entry<'_>) -> Result<(), DurableError> {
        let mut pieces = std::mem::take(&mut self.pieces);
        let applied = pieces.apply(entry, |item| self.item(entry.position, item));
        self.pieces = pieces;
        applied
    }

    pub fn item(&mut self, position: u64, item: Item<'_>) -> Result<(), DurableError> {
        let unknown = |what| DurableError::Unknown { what, position };
        self.loaded += 1;
        match item {
            Item::Put {
                root,
                key,
                kind,
                expiry,
                bytes,
            } => {
                let kind = ValueKind::new(kind).ok_or(unknown("a value of an unknown kind"))?;
                if root == COLLECTIONS {
                    return self.element(position, key, Some((kind, bytes)));
                }
                if let Some(database) = self.place(position, root)? {
                    let store = self.store;
                    self.with_space(|| match kind.is_large() {
                        // The collection records where its main record is, for which a transaction
                        // is needed.
                        true => store.transaction(|t| {
                            let mut records = t.database(database.number())?;
                            records.put_kind(key, bytes, kind, expiry)
                        }),
                        false => database.put_kind(key, bytes, kind, expiry),
                    })?;
                }
            }
            Item::Patch {
                root,
                key,
                offset,
                length,
                bytes,
            } => {
                let Some(database) = self.place(position, root)? else {
                    return Ok(());
                };
                let mut value = std::mem::take(&mut self.value);
                // Strings alone are patched. A value of another kind is newer than this entry, and
                // a later one stores it.
                if database.kind(key)? == Some(ValueKind::STRING)
                    && database.get_into(key, &mut value)?
                {
                    let expiry = database.expiry(key)?.unwrap_or(Expiry::Never);
                    patch(&mut value, offset as usize, length as usize, bytes);
                    self.with_space(|| database.put_until(key, &value, expiry))?;
                }
                self.value = value;
            }
            Item::Edit {
                root,
                key,
                kind,
                element,
                value,
            } => self.edit(position, (root, key, kind), element, Some(value))?,
            Item::Unedit {
                root,
                key,
                kind,
                element,
            } => self.edit(position, (root, key, kind), element, None)?,
            Item::Expire { root, key, expiry } => {
                if let Some(database) = self.place(position, root)? {
                    self.with_space(|| database.set_expiry(key, expiry))?;
                }
            }
            Item::Remove {
                root: COLLECTIONS,
                key,
                ..
            } => self.element(position, key, None)?,
            Item::Drop {
                root: COLLECTIONS,
                prefix,
            } => {
                let id = prefix.try_into().map(u64::from_be_bytes);
                let id = id.map_err(|_| unknown("the sweep of no collection"))?;
                let store = self.store;
                self.with_space(|| store.drop_collection(id))?;
            }
            Item::Remove { root, key, .. } => {
                if let Some(database) = self.place(position, root)? {
                    database.remove(key)?;
                }
            }
            Item::Drop { root, prefix } => {
                if let Some(database) = self.place(position, root)? {
                    remove_prefix(database, prefix)?;
                }
            }
            Item::Bind { databases, dead } => {
                for root in dead {
                    self.bury(u64::from_le_bytes(*root))?;
                }
                for (database, root) in databases.iter().map(|word| bound(*word)) {
                    self.bindings[usize::from(database)] = root;
                    self.bound.insert(root);
                    self.place(position, root)?;
                }
            }
            // For listeners.
            Item::Touch { .. } => {}
            // A group's entries were applied when it was closed.
            Item::Open | Item::Close => {}
            Item::Piece { .. } | Item::Pieces { .. } => {
                return Err(unknown("pieces within pieces"));
            }
        }
        Ok(())
    }

    /// Gives an element of a collection a value, or removes it.
    fn element(
        &mut self,
        position: u64,
        key: &[u8],
        value: Option<(ValueKind, &[u8])>,
    ) -> Result<(), DurableError> {
        let what = "an element of no collection";
        let unknown = DurableError::Unknown { what, position };
        let (id, element) = element_of(key).ok_or(unknown)?;
        let store = self.store;
        self.with_space(|| {
            let replayed = mneme_collections::replay(store, id, element, value);
            replayed.map_err(|error| match error {
                CollectionError::Store(error) => error,
                // A collection that did not exist begins empty, and everything stored here is
                // valid.
                error => WriteError::Reap(error.to_string()),
            })
        })
    }

    /// Gives an element of the packed value under `key` a value, or removes it. If the key is
    /// absent or has a value of another kind, the store is newer than this entry, and a later entry
    /// sets the value. The entry is also skipped if the key has a large value: either the entry
    /// that made it large reports all its elements, or the large value was moved here from another
    /// key and never had this element.
    fn edit(
        &mut self,
        position: u64,
        (root, key, kind): (u64, &[u8], u8),
        element: &[u8],
        value: Option<&[u8]>,
    ) -> Result<(), DurableError> {
        let unknown = |what| DurableError::Unknown { what, position };
        let kind = ValueKind::new(kind).ok_or(unknown("a value of an unknown kind"))?;
        let Some(database) = self.place(position, root)? else {
            return Ok(());
        };
        let mut is_damaged = false;
        let mut decide = |stored: Option<Stored<'_>>| {
            let Some(stored) = stored else {
                return Decision::Keep;
            };
            match mneme_collections::apply(kind, stored.value, element, value) {
                Ok(image) => Decision::Replace(image),
                Err(_) => {
                    is_damaged = true;
                    Decision::Keep
                }
            }
        };
        self.with_space(|| match database.update_kind(key, kind, &mut decide) {
            Err(WriteError::WrongKind(_)) => Ok(()),
            updated => updated.map(drop),
        })?;
        match is_damaged {
            true => Err(unknown("a change of an element of what has none")),
            false => Ok(()),
        }
    }

    /// Stores something. If there is no space, the store may exceed its capacity until everything
    /// has been applied.
    fn with_space<T>(
        &mut self,
        mut change: impl FnMut() -> Result<T, WriteError>,
    ) -> Result<T, DurableError> {
        loop {
            match change() {
                Err(full @ WriteError::OutOfMemory { .. }) => {
                    let step = (self.store.capacity() / 64).max(EXTENSION);
                    self.extension = self.extension.saturating_sub(step);
                    if self.extension == 0 || self.store.extend(step).is_err() {
                        return Err(full.into());
                    }
                }
                done => return Ok(done?),
            }
        }
    }

    /// The database that holds a root, assigned if necessary; `None`: the root is dead or unknown.
    fn place(&mut self, position: u64, root: u64) -> Result<Option<Database<'s>>, DurableError> {
        if let Some(place) = self.places.get(&root) {
            return Ok(Some(self.store.database(*place)?));
        }
        if root == 0 || self.dead.contains(&root) {
            return Ok(None);
        }
        let is_free = |place: &usize| !self.places.values().any(|other| other == place);
        let place = match (0..DATABASES).find(is_free) {
            Some(place) => place,
            // A root is bound before any entry about it. So this one was dropped before the base
            // file began, or results from damage to a ring.
            None if !self.bound.contains(&root) => return Ok(None),
            None => {
                let unbound = self.places.keys().find(|other| !self.bound.contains(other));
                let Some(unbound) = unbound.copied() else {
                    let what = "more indexes than a store has databases";
                    return Err(DurableError::Unknown { what, position });
                };
                self.give_up(unbound)?
            }
        };
        self.store.restore_root(place, root)?;
        self.places.insert(root, place);
        self.highest = self.highest.max(root);
        Ok(Some(self.store.database(place)?))
    }

    fn bury(&mut self, root: u64) -> Result<(), DurableError> {
        self.highest = self.highest.max(root);
        self.dead.insert(root);
        if self.places.contains_key(&root) {
            self.give_up(root)?;
        }
        Ok(())
    }

    /// Clears the database that holds a root, and returns it.
    fn give_up(&mut self, root: u64) -> Result<usize, DurableError> {
        let place = self.places.remove(&root).unwrap_or_default();
        self.store.database(place)?.clear()?;
        Ok(place)
    }

    /// Gives every database its root.
    pub fn finish(mut self) -> Result<(), DurableError> {
        self.store.spare_collections(false);
        for database in 0..DATABASES {
            let root = self.bindings[database];
            let Some(place) = self.places.get(&root).copied() else {
                continue;
            };
            if place == database {
                continue;
            }
            self.store.swap_databases(place, database)?;
            for other in self.places.values_mut() {
                match *other {
                    other_place if other_place == database => *other = place,
                    other_place if other_place == place => *other = database,
                    _ => {}
                }
            }
        }
        for (root, place) in &self.places {
            if self.bindings[*place] != *root {
                self.store.database(*place)?.clear()?;
            }
        }
        Ok(self.store.reserve_roots(self.highest)?)
    }
}

/// Removes all keys that begin with `prefix`.
fn remove_prefix(database: Database<'_>, prefix: &[u8]) -> Result<(), DurableError> {
    let (mut cursor, mut found) = (Cursor::START, Vec::new());
    while cursor != Cursor::END {
        cursor = database.scan_keys(cursor, 1024, |key| {
            if key.starts_with(prefix) {
                found.push(key.to_vec());
            }
        })?;
        for key in found.drain(..) {
            database.remove(&key)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use mneme_log::feed::{append_change, binding};

    use super::*;

    /// Entries about unknown roots, which damage to a ring can produce, do not prevent a load, no
    /// matter how many there are.
    #[test]
    fn roots_that_no_database_has_take_no_place_that_others_need() {
        let store = LogStore::builder()
            .capacity(64 << 20)
            .open_private()
            .unwrap();
        let mut replay = Replay::new(&store, HashSet::new(), false);
        let put = |root, key| Item::Put {
            root,
            key,
            kind: 0,
            expiry: Expiry::Never,
            bytes: b"value",
        };
        let mut stream = Vec::new();
        let mut enter = |item: Item<'_>| append_change(&[item], 0, &mut stream);
        for root in 1..=DATABASES as u64 {
            enter(put(1000 + root, b"damaged"));
        }
        for database in 0..DATABASES as u8 {
            let root = u64::from(database) + 1;
            let databases = &[binding(database, root)];
            enter(Item::Bind {
                databases,
                dead: &[],
            });
            enter(put(2000 + root, b"damaged"));
            enter(put(root, b"kept"));
        }
        replay.bytes(0, &stream).unwrap();
        replay.finish().unwrap();
        for database in 0..DATABASES {
            let database = store.database(database).unwrap();
            assert!(database.contains(b"kept").unwrap());
        }
        assert_eq!(store.records(), DATABASES as u64);
    }

    /// The base file has a newer state of a key, a large hash. The journal begins with an older
    /// state of the key, a small hash.
    #[test]
    fn a_change_of_a_former_life_leaves_the_large_hash_of_a_newer_one_as_it_is() {
        use mneme_collections::{HASH, Hash};
        use mneme_log::feed::RemovalCause;
        use mneme_log::{element_key, main_of};
        let store = LogStore::builder()
            .capacity(64 << 20)
            .open_private()
            .unwrap();
        let mut replay = Replay::new(&store, HashSet::new(), false);
        let main = main_of(7);
        let field = element_key(7, b"field");
        let put_main = Item::Put {
            root: 1,
            key: b"h",
            kind: HASH.large().number(),
            expiry: Expiry::Never,
            bytes: &main,
        };
        let put_field = Item::Put {
            root: COLLECTIONS,
            key: &field,
            kind: HASH.number(),
            expiry: Expiry::Never,
            bytes: b"new",
        };
        let databases = &[binding(0, 1)];
        let bind = Item::Bind {
            databases,
            dead: &[],
        };
        let mut base = Vec::new();
        append_change(&[bind], 0, &mut base);
        append_change(&[put_main], 0, &mut base);
        append_change(&[put_field], 0, &mut base);
        replay.records(&base).unwrap();
        let mut stream = Vec::new();
        let edit = Item::Edit {
            root: 1,
            key: b"h",
            kind: HASH.number(),
            element: b"old",
            value: b"of the former life",
        };
        append_change(&[edit], 0, &mut stream);
        let remove = Item::Remove {
            root: 1,
            key: b"h",
            cause: RemovalCause::Asked,
        };
        append_change(&[remove], 0, &mut stream);
        append_change(&[put_main, put_field], 0, &mut stream);
        replay.bytes(0, &stream).unwrap();
        replay.finish().unwrap();
        let pairs = Hash::of(&store, b"h").unwrap().pairs().unwrap();
        assert_eq!(pairs, [(b"field".to_vec(), b"new".to_vec())]);
    }
}
