//! The handle of a store.

use std::path::Path;
use std::sync::Arc;

use crate::batch::Batch;
use crate::layout::MAIN;
use crate::open::Builder;
use crate::open_store::Core;
use crate::plan::PlannedChange;
use crate::scrub::Scrub;
use crate::snapshot::Snapshot;
use crate::stats::Stats;
use crate::transaction::Transaction;
use crate::{Holder, StoreError, Version, lookup};

/// Bytes requested at once when a file is read ahead.
const AHEAD: u64 = 2 << 20;

/// A durable, ordered, versioned store of byte strings.
///
/// A clone is another handle to the same store. `Send` and `Sync`; readers never wait. The store is
/// closed when its last handle and snapshot are dropped.
///
/// ```
/// use mneme_tree::{Batch, Store};
/// # let path = std::env::temp_dir().join(format!("mneme-doc-store-{}", std::process::id()));
/// let db = Store::builder().open(&path)?;
/// db.put(b"apple", b"red")?;
/// let before = db.snapshot()?;
///
/// let mut batch = Batch::new();
/// batch.put(b"apple", b"green").put(b"banana", b"yellow");
/// db.apply(&batch)?;
///
/// assert_eq!(db.get(b"apple")?.as_deref(), Some(&b"green"[..]));
/// assert_eq!(before.get(b"apple")?, Some(&b"red"[..]));
/// # drop((before, db));
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Store {
    pub(crate) core: Arc<Core>,
}

impl Store {
    /// Options for opening a store.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Sets a key. Durable on return.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<Version, StoreError> {
        self.change(PlannedChange {
            tree: MAIN,
            key,
            value: Some(value),
        })
    }

    /// Removes a key; nothing happens if it is absent. Durable on return.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub fn remove(&self, key: &[u8]) -> Result<Version, StoreError> {
        self.change(PlannedChange {
            tree: MAIN,
            key,
            value: None,
        })
    }

    pub(crate) fn change(&self, change: PlannedChange<'_>) -> Result<Version, StoreError> {
        self.core.may_write()?;
        change.admit()?;
        match self.core.try_writer() {
            Some(mut writer) if self.core.group.is_empty() => {
                writer.commit(&self.core, &[change], None)
            }
            guard => {
                drop(guard);
                let mut batch = Batch::new();
                batch.add(change);
                self.core.group.apply(&self.core, &batch)
            }
        }
    }

    /// Applies a batch: completely or not at all. Durable on return. Batches of several threads
    /// become durable together as one version.
    ///
    /// # Errors
    /// [`StoreError::KeyTooLong`], [`StoreError::ValueTooLong`], [`StoreError::OtherStore`],
    /// [`StoreError::TreeDropped`], [`StoreError::NoSpace`]: nothing was stored.
    /// [`StoreError::OutcomeUnknown`], [`StoreError::Poisoned`].
    pub fn apply(&self, batch: &Batch) -> Result<Version, StoreError> {
        self.core.may_write()?;
        batch.admit(self.core.seed)?;
        match self.core.try_writer() {
            Some(mut writer) if self.core.group.is_empty() => {
                writer.commit(&self.core, &batch.sorted(), batch.caller())
            }
            guard => {
                drop(guard);
                self.core.group.apply(&self.core, batch)
            }
        }
    }

    /// Begins a transaction, which is the only writer until it ends. Waits for other writers. If a
    /// thread writes to the store in another way during its own transaction, it deadlocks.
    #[must_use]
    pub fn write(&self) -> Transaction<'_> {
        Transaction::new(&self.core)
    }

    /// A copy of the value of a key.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], [`StoreError::Slot`].
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.get_with(key, <[u8]>::to_vec)
    }

    /// Calls `f` with the value of a key in place. No space that readers can see is reused
    /// meanwhile, so keep `f` short.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    #[inline]
    pub fn get_with<R>(
        &self,
        key: &[u8],
        f: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, StoreError> {
        self.core.read(|roots, version| {
            let leaf = roots.main.find(key);
            leaf.load(&self.core.pages, &self.core.committed)?;
            if let Some(copies) = &self.core.copies {
                return copies.get_with(&self.core.pages, leaf, key, version, f);
            }
            let pages = &self.core.pages;
            match leaf.find(pages, key, version) {
                Some(entry) => Ok(leaf.value_of(pages, &entry)?.map(f)),
                None => Ok(None),
            }
        })?
    }

    /// Calls `f` with the index of each key in `keys` and its value, in order, all in one version.
    /// The memory accesses overlap, so this is faster than separate gets.
    ///
    /// # Errors
    /// As [`get`](Self::get); `f` may have been called for some keys.
    ///
    /// ```
    /// # use mneme_tree::Store;
    /// # let path = std::env::temp_dir().join(format!("mneme-doc-many-{}", std::process::id()));
    /// # let db = Store::builder().open(&path)?;
    /// db.put(b"a", b"1")?;
    /// let mut found = Vec::new();
    /// db.get_many(&["a", "b"], |_, value| found.push(value.map(<[u8]>::to_vec)))?;
    /// assert_eq!(found, [Some(b"1".to_vec()), None]);
    /// # drop(db);
    /// # std::fs::remove_file(&path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get_many<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        f: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<(), StoreError> {
        let core = &*self.core;
        core.read(|roots, version| match &core.copies {
            Some(copies) => copies.many(
                (&core.pages, &core.committed),
                &roots.main,
                version,
                keys,
                f,
            ),
            None => lookup::many(core, &roots.main, version, keys, f),
        })?
    }

    /// Frees everything that no version and no reader uses any more, and lets the remaining leaves
    /// of dropped trees die. Commits do both gradually, and free what they can before the file
    /// grows, so this call is never necessary: it is for an idle moment, or for
    /// [`stats`](Self::stats) that show the free space. Commits of other threads can run in
    /// between.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    ///
    /// ```
    /// # use mneme_tree::Store;
    /// # let path = std::env::temp_dir().join(format!("mneme-doc-gc-{}", std::process::id()));
    /// # let db = Store::builder().open(&path)?;
    /// db.put(b"key", b"old")?;
    /// let snapshot = db.snapshot()?;
    /// for n in 0..30 {
    ///     db.put(b"key", &[n; 1500])?;
    /// }
    /// assert!(db.stats()?.retained_leaves > 0);
    /// drop(snapshot);
    /// db.gc()?;
    /// assert_eq!(db.stats()?.retained_leaves, 0);
    /// # drop(db);
    /// # std::fs::remove_file(&path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn gc(&self) -> Result<(), StoreError> {
        self.core.may_write()?;
        while self.bury_some()? {}
        self.core.writer().reclaim(&self.core, true);
        Ok(())
    }

    /// Continues a walk through the newest version that compares all checksums, by about `bytes`
    /// bytes. Returns the number of bytes read. Call it in idle moments, so that damage is found
    /// while a copy exists elsewhere.
    ///
    /// # Errors
    /// As for [`check`](Self::check). The next call continues after the damage.
    pub fn scrub(&self, walk: &mut Scrub, bytes: u64) -> Result<u64, StoreError> {
        walk.go_on(&self.core, bytes)
    }

    /// Writes the newest version to a new file, which gets its name when it is complete and
    /// durable. The copy is a store with the same UUID and without named versions. Readers and
    /// writers continue meanwhile.
    ///
    /// # Errors
    /// [`StoreError::Exists`] if the file exists; [`StoreError::Damaged`] instead of a copy of data
    /// with a wrong checksum; otherwise as for [`Builder::open`] and [`apply`](Self::apply).
    pub fn backup(&self, path: impl AsRef<Path>) -> Result<Version, StoreError> {
        self.backup_with(path, |_, _| {})
    }

    /// As [`backup`](Self::backup). After each leaf calls `progress` with the bytes read so far and
    /// in total.
    ///
    /// # Errors
    /// As [`backup`](Self::backup).
    pub fn backup_with(
        &self,
        path: impl AsRef<Path>,
        progress: impl FnMut(u64, u64),
    ) -> Result<Version, StoreError> {
        crate::backup::backup(&self.core, path.as_ref(), progress)
    }

    /// A snapshot of the newest version.
    ///
    /// # Errors
    /// [`StoreError::Slot`].
    pub fn snapshot(&self) -> Result<Snapshot, StoreError> {
        Snapshot::new(&self.core)
    }

    /// As [`snapshot`](Self::snapshot), together with the [caller's bytes](Self::caller) of its
    /// version. Waits for a running commit.
    ///
    /// # Errors
    /// [`StoreError::Slot`].
    pub fn snapshot_and_caller(&self) -> Result<(Snapshot, [u8; 32]), StoreError> {
        let (snapshot, record) = Snapshot::with_record(&self.core)?;
        Ok((snapshot, record.caller))
    }

    /// Keeps the newest version under a name until [`drop_version`](Self::drop_version), even when
    /// the store is reopened. It takes the space of the data that it does not share with newer
    /// versions.
    /// # Errors
    /// [`StoreError::VersionExists`], [`StoreError::TooManyVersions`], [`StoreError::KeyTooLong`]
    /// for a name above [`MAX_NAME`](crate::MAX_NAME) bytes; otherwise as [`apply`](Self::apply).
    ///
    /// ```
    /// # use mneme_tree::Store;
    /// # let path = std::env::temp_dir().join(format!("mneme-doc-keep-{}", std::process::id()));
    /// # let db = Store::builder().open(&path)?;
    /// db.put(b"price", b"10")?;
    /// db.keep("before-import")?;
    /// db.put(b"price", b"oops")?;
    /// assert_eq!(db.version_named("before-import")?.get(b"price")?, Some(&b"10"[..]));
    /// db.rollback("before-import")?;
    /// assert_eq!(db.get(b"price")?, Some(b"10".to_vec()));
    /// db.drop_version("before-import")?;
    /// # drop(db);
    /// # std::fs::remove_file(&path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn keep(&self, name: &str) -> Result<Version, StoreError> {
        crate::names::keep(&self.core, name)
    }

    /// The named versions in the order of their names.
    #[must_use]
    pub fn versions(&self) -> Vec<(String, Version)> {
        self.core.all_names().unwrap_or_default()
    }

    /// All held versions, ascending, with their holders: names, and snapshots of all processes.
    ///
    /// # Errors
    /// [`StoreError::Slot`], [`StoreError::Damaged`].
    pub fn holders(&self) -> Result<Vec<(Version, Holder)>, StoreError> {
        crate::registered::holders(&self.core)
    }

    /// Whether this process has opened the store for reading only.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.core.follower.is_some()
    }

    /// A snapshot of the version with this name.
    ///
    /// # Errors
    /// [`StoreError::NoSuchVersion`].
    pub fn version_named(&self, name: &str) -> Result<Snapshot, StoreError> {
        Snapshot::named(&self.core, name)
    }

    /// Commits a new version with the content of the named one. Nothing is lost: snapshots and
    /// names are unaffected, and a name given before can undo the rollback. Leaves that have not
    /// changed since are not read.
    ///
    /// # Errors
    /// [`StoreError::NoSuchVersion`]; otherwise as [`apply`](Self::apply).
    pub fn rollback(&self, name: &str) -> Result<Version, StoreError> {
        crate::rollback::rollback(&self.core, name)
    }

    /// Drops a name, and frees what only its version used.
    ///
    /// # Errors
    /// [`StoreError::NoSuchVersion`]; otherwise as [`apply`](Self::apply).
    pub fn drop_version(&self, name: &str) -> Result<(), StoreError> {
        crate::names::drop_name(&self.core, name)
    }

    /// The durable version.
    ///
    /// # Errors
    /// [`StoreError::Slot`].
    pub fn version(&self) -> Result<Version, StoreError> {
        self.core.read(|_, version| Version(version))
    }

    /// The 32 bytes that the last batch with such bytes committed; zeros before the first.
    #[must_use]
    pub fn caller(&self) -> [u8; 32] {
        self.core.record().map_or([0; 32], |record| record.caller)
    }

    /// Statistics that are cheap to gather. Waits for a running commit.
    ///
    /// # Errors
    /// [`StoreError::Slot`].
    pub fn stats(&self) -> Result<Stats, StoreError> {
        Stats::of(&self.core)
    }

    /// Reads the file into the page cache from beginning to end until `stopped` returns true; it is
    /// called after each 2 MiB. Use it in a thread beside one that reads everything: that one would
    /// wait for each page separately, because the mapping is advised against readahead.
    pub fn read_ahead(&self, stopped: impl Fn() -> bool) {
        let pages = &self.core.pages;
        let mut at = 0;
        while at < pages.len() && !stopped() {
            let end = (at + AHEAD).min(pages.len());
            pages.read_ahead(at..end);
            at = end;
        }
    }

    /// Reads everything in the newest version and compares checksums, order and counts.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] names the first contradiction; [`StoreError::Slot`].
    pub fn check(&self) -> Result<(), StoreError> {
        self.check_with(|_, _| {})
    }

    /// As [`check`](Self::check). After each leaf calls `progress` with the bytes read so far and
    /// in total.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn check_with(&self, progress: impl FnMut(u64, u64)) -> Result<(), StoreError> {
        crate::check::check(&self.core, progress)
    }

    /// Closes the store if this is its last handle and there is no snapshot, and reports whether
    /// that succeeded. Dropping the handle does the same silently.
    ///
    /// # Errors
    /// [`StoreError::OutcomeUnknown`], [`StoreError::Poisoned`].
    pub fn close(self) -> Result<(), StoreError> {
        match Arc::try_unwrap(self.core) {
            Ok(core) if core.follower.is_some() => Ok(()),
            Ok(core) => core.writer().close(&core),
            Err(_) => Ok(()),
        }
    }
}
