//! [`Replica`]: the store as a tree.
//!
//! **Each commit of the tree is the store at one position of the feed**: it contains every change
//! before the position, and none after. Changes are gathered in memory until a commit makes all of
//! them durable at once.

use std::collections::BTreeMap;
use std::ops::Bound;

use mneme_journal::Identity;
use mneme_log::ValueKind;
use mneme_log::feed::{COLLECTIONS, Entry, Item, bound, entries};
use mneme_sys::fault::without;
use mneme_tree::{Batch, Store, StoreError, Tree};

use super::layout::{self, BINDINGS, Bindings, CommitStamp, HEAD, PENDING, UUID};
use super::pending::{Pending, Turn, each};
use crate::DurableError;
use crate::replay::patch;

/// A record in a tree's form; `None`: it is removed.
type TreeRecord = Option<Vec<u8>>;

/// The tree of a root, and the changes that the next commit makes to it.
struct Root {
    tree: Tree,
    changes: BTreeMap<Vec<u8>, TreeRecord>,
}

pub(crate) struct Replica {
    store: Store,
    /// The stamp of the last commit.
    stamp: CommitStamp,
    identity: Identity,
    /// The live roots.
    roots: BTreeMap<u64, Root>,
    bindings: Bindings,
    /// The next commit changes the bindings.
    is_bound_anew: bool,
    /// Trees of roots that the next commit records as dead. Until then they hold durable records.
    dying: Vec<String>,
    /// Trees of roots that a commit records as dead.
    dead: Vec<String>,
    pending: Pending,
}

impl Replica {
    /// Begins the tree of a store in an empty tree.
    pub fn begin(store: Store, identity: Identity) -> Result<Self, DurableError> {
        store.put(UUID, &identity.uuid)?;
        Ok(Self {
            store,
            stamp: CommitStamp::default(),
            identity,
            roots: BTreeMap::new(),
            bindings: Bindings::default(),
            is_bound_anew: true,
            dying: Vec::new(),
            dead: Vec::new(),
            pending: Pending::default(),
        })
    }

    /// Finds the last commit.
    pub fn open(store: Store) -> Result<Self, DurableError> {
        let stamp = CommitStamp::decode(store.caller()).ok_or(DurableError::ForeignTree)?;
        let uuid = store.get(UUID)?.and_then(|uuid| uuid.try_into().ok());
        let bindings = store.get_with(BINDINGS, Bindings::decode)?;
        let (Some(uuid), Some(bindings)) = (uuid, bindings) else {
            return Err(DurableError::ForeignTree);
        };
        let (mut roots, mut dead) = (BTreeMap::new(), Vec::new());
        for name in store.trees()? {
            let Some(root) = layout::root_of(&name) else {
                continue;
            };
            if root == COLLECTIONS || bindings.bound().any(|bound| bound == root) {
                let tree = store.open_tree(&name)?;
                let changes = BTreeMap::new();
                roots.insert(root, Root { tree, changes });
            } else {
                dead.push(name);
            }
        }
        let mut pending = Pending::default();
        let snapshot = store.snapshot()?;
        for pair in snapshot.range(PENDING..) {
            let (key, bytes) = pair?;
            let Some(position) = layout::pending_position(key) else {
                break;
            };
            pending.restore(position, bytes)?;
        }
        drop(snapshot);
        Ok(Self {
            store,
            stamp,
            identity: Identity { uuid },
            roots,
            bindings,
            is_bound_anew: false,
            dying: Vec::new(),
            dead,
            pending,
        })
    }

    /// Returns to the last commit.
    pub fn reset(&mut self) -> Result<(), DurableError> {
        *self = Self::open(self.store.clone())?;
        Ok(())
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    pub fn into_store(self) -> Store {
        self.store
    }

    pub fn stamp(&self) -> CommitStamp {
        self.stamp
    }

    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Discards incomplete changes, which will not be completed. Returns whether that needs a
    /// commit.
    pub fn give_up_pending(&mut self) -> bool {
        self.pending.give_up()
    }

    /// Applies whole entries; `position` is that of the first.
    pub fn bytes(&mut self, position: u64, bytes: &[u8]) -> Result<(), DurableError> {
        for entry in entries(position, bytes) {
            let entry = entry?;
            let begin = (entry.position - position) as usize;
            let raw = &bytes[begin..begin + entry.stride()];
            match self.pending.turn(&entry, raw)? {
                Turn::Now => self.entry(&entry, raw)?,
                Turn::Later if without("tree.group") => self.entry(&entry, raw)?,
                Turn::Later => {}
                Turn::Group(group) => {
                    for entry in each(&group) {
                        let (entry, raw) = entry?;
                        self.entry(&entry, raw)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn entry(&mut self, entry: &Entry<'_>, raw: &[u8]) -> Result<(), DurableError> {
        self.pending.note(entry, raw)?;
        let mut assembly = std::mem::take(&mut self.pending.assembly);
        let applied = assembly.apply(entry, |item| self.item(entry.position, item));
        self.pending.assembly = assembly;
        applied
    }

    /// Applies an item of the entry at `position`.
    pub fn item(&mut self, position: u64, item: Item<'_>) -> Result<(), DurableError> {
        match item {
            Item::Put {
                root,
                key,
                kind,
                expiry,
                bytes,
            } => {
                let record = layout::encode(kind, expiry, bytes);
                self.set(root, key, Some(record))
            }
            Item::Patch {
                root,
                key,
                offset,
                length,
                bytes,
            } => {
                let Some(mut record) = self.get(root, key)? else {
                    return Ok(());
                };
                // Strings alone are patched. A value of another kind is newer than this entry, and
                // a later one stores it.
                if layout::decode(&record).is_none_or(|(kind, ..)| kind != 0) {
                    return Ok(());
                }
                let (offset, length) = (HEAD + offset as usize, HEAD + length as usize);
                patch(&mut record, offset, length, bytes);
                self.set(root, key, Some(record))
            }
            Item::Edit {
                root,
                key,
                kind,
                element,
                value,
            } => self.edit(position, (root, key, kind), element, Some(value)),
            Item::Unedit {
                root,
                key,
                kind,
                element,
            } => self.edit(position, (root, key, kind), element, None),
            Item::Expire { root, key, expiry } => {
                let Some(mut record) = self.get(root, key)? else {
                    return Ok(());
                };
                layout::set_expiry(&mut record, expiry);
                self.set(root, key, Some(record))
            }
            Item::Remove { root, key, .. } => self.set(root, key, None),
            Item::Drop { root, prefix } => self.remove_prefix(root, prefix),
            Item::Bind { databases, dead } => {
                for root in dead {
                    self.bury(u64::from_le_bytes(*root));
                }
                for (database, root) in databases.iter().map(|word| bound(*word)) {
                    if root != 0 {
                        self.bear(root)?;
                    }
                    if let Some(place) = self.bindings.roots.get_mut(usize::from(database)) {
                        *place = root;
                    }
                }
                self.is_bound_anew = true;
                Ok(())
            }
            // For listeners.
            Item::Touch { .. } => Ok(()),
            // A group's entries take effect when it is closed.
            Item::Open | Item::Close => Ok(()),
            Item::Piece { .. } | Item::Pieces { .. } => Err(DurableError::Unknown {
                what: "pieces within pieces",
                position,
            }),
        }
    }

    /// Gives an element of the packed value under `key` a value, or removes it. If the key is
    /// absent or has a value of another kind, the tree is newer than this entry, and a later entry
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
        let Some(record) = self.get(root, key)? else {
            return Ok(());
        };
        let unknown = |what| DurableError::Unknown { what, position };
        let of = ValueKind::new(kind).ok_or(unknown("a value of an unknown kind"))?;
        let Some((found, expiry, old)) = layout::decode(&record) else {
            return Ok(());
        };
        if found != kind {
            return Ok(());
        }
        let new = mneme_collections::apply(of, old, element, value)
            .map_err(|_| unknown("a change of an element of what has none"))?;
        let record = layout::encode(kind, expiry, &new);
        self.set(root, key, Some(record))
    }

    /// The root, if it is alive. A root that no entry has mentioned yet comes to life.
    fn root(&mut self, root: u64) -> Result<Option<&mut Root>, DurableError> {
        let is_old = root <= self.bindings.highest && root != COLLECTIONS;
        let is_known = self.roots.contains_key(&root) || is_old;
        if !is_known {
            self.bear(root)?;
        }
        Ok(self.roots.get_mut(&root))
    }

    fn bear(&mut self, root: u64) -> Result<(), DurableError> {
        if !self.roots.contains_key(&root) {
            let name = layout::name(root);
            if self.dead.contains(&name) {
                // A tree of that name belongs to a commit that did not succeed.
                self.drop_dead();
                if self.dead.contains(&name) {
                    return Err(StoreError::NoSpace { wanted: 0 }.into());
                }
            }
            // In a commit of its own: if no database gets the tree, the next opening drops it.
            let tree = self.store.tree(&name)?;
            let changes = BTreeMap::new();
            self.roots.insert(root, Root { tree, changes });
            self.bindings.highest = self.bindings.highest.max(root);
            self.is_bound_anew = true;
        }
        Ok(())
    }

    fn bury(&mut self, root: u64) {
        self.bindings.highest = self.bindings.highest.max(root);
        self.is_bound_anew = true;
        if self.roots.remove(&root).is_some() {
            self.dying.push(layout::name(root));
        }
        if without("tree.dead") {
            self.dead.append(&mut self.dying);
            self.drop_dead();
        }
    }

    fn get(&mut self, root: u64, key: &[u8]) -> Result<TreeRecord, DurableError> {
        let Some(root) = self.root(root)? else {
            return Ok(None);
        };
        match root.changes.get(key) {
            Some(record) => Ok(record.clone()),
            // A value that is stored again gets a new checksum, which would make damage look valid.
            None => Ok(root.tree.get_verified(key)?),
        }
    }

    fn set(&mut self, root: u64, key: &[u8], record: TreeRecord) -> Result<(), DurableError> {
        if let Some(root) = self.root(root)? {
            match root.changes.get_mut(key) {
                Some(place) => *place = record,
                None => drop(root.changes.insert(key.to_vec(), record)),
            }
        }
        Ok(())
    }

    fn remove_prefix(&mut self, root: u64, prefix: &[u8]) -> Result<(), DurableError> {
        let store = self.store.clone();
        let Some(root) = self.root(root)? else {
            return Ok(());
        };
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let gathered = root.changes.range_mut::<[u8], _>(from);
        for (_, record) in gathered.take_while(|(key, _)| key.starts_with(prefix)) {
            *record = None;
        }
        let snapshot = store.snapshot()?;
        for key in snapshot.tree(root.tree.name())?.keys(prefix..) {
            let key = key?;
            if !key.starts_with(prefix) {
                break;
            }
            root.changes.insert(key.to_vec(), None);
        }
        Ok(())
    }

    /// Makes everything that was applied durable.
    pub fn commit(&mut self, stamp: CommitStamp) -> Result<(), StoreError> {
        let mut batch = Batch::new();
        if !without("tree.pending") {
            self.pending.enter(&mut batch);
        }
        if self.is_bound_anew && !without("tree.bind") {
            batch.put(BINDINGS, &self.bindings.encode());
        }
        for root in self.roots.values() {
            for (key, record) in &root.changes {
                match record {
                    Some(record) => batch.put_in(&root.tree, key, record),
                    None => batch.remove_in(&root.tree, key),
                };
            }
        }
        batch.with_caller(stamp.encode());
        self.store.apply(&batch)?;
        mneme_sys::fault!("durable.tree.committed");
        self.stamp = stamp;
        self.is_bound_anew = false;
        self.dead.append(&mut self.dying);
        self.pending.entered();
        for root in self.roots.values_mut() {
            root.changes.clear();
        }
        self.drop_dead();
        Ok(())
    }

    /// Drops the trees of dead roots. Their leaves are freed with later commits, so that entries
    /// after the death of a large one need not wait. A tree that cannot be dropped now is dropped
    /// by a later commit or the next opening.
    fn drop_dead(&mut self) {
        let store = &self.store;
        self.dead
            .retain(|name| match store.begin_to_drop_tree(name) {
                Ok(_) | Err(StoreError::NoSuchTree { .. }) => false,
                Err(_) => true,
            });
    }
}
