//! [`LogStore`]: the operations on a store as a whole.

pub(crate) mod batch;
mod builder;
pub(crate) mod check;
mod check_collections;
pub(crate) mod components;
mod database;
mod expiries;
pub(crate) mod feed;
pub(crate) mod listener;
pub(crate) mod look;
mod maintainer;
pub(crate) mod ops;
pub(crate) mod part;
pub(crate) mod processes;
mod reap;
mod recover;
mod restore;
pub(crate) mod role;
pub(crate) mod stats;
pub(crate) mod sweep;
mod sweep_state;
pub(crate) mod transaction;
pub(crate) mod watch;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use mneme_arena::{Discardable, LendingOptions};
use mneme_sync::SlotError;
use mneme_sys::PageReport;

use crate::error::{GrowError, ReadError, WriteError};
use crate::feed::area::FeedArea;
use crate::reclaim::evict::Evict;
use crate::reclaim::fill::FillPolicy;
use crate::region::layout::LogHeader;
use crate::region::policy::UpdatePolicy;
use crate::region::space::DATABASES;
use crate::store::check::Report;
use crate::store::components::Store;
use crate::store::feed::{ChangeFeed, FeedError};
use crate::store::listener::ChangeListener;
use crate::store::maintainer::Maintainer;
use crate::store::processes::Process;
use crate::store::role::{LocalPrograms, RoleError, ServerRole};
use crate::store::stats::Stats;
use crate::store::transaction::Transaction;
use crate::store::watch::Watch;

pub use crate::region::layout::MIN_CAPACITY;
pub use builder::{Builder, control_bytes};
pub use database::Database;

/// A concurrent log-structured key-value store.
///
/// Share it by reference or in an `Arc`: every operation takes `&self`, any number of threads may
/// call any of them at once, and each is atomic. The operations here work on database 0; see
/// [`LogStore::database`] for the others.
///
/// ```
/// use mneme_log::{Decision, LogStore};
///
/// let store = LogStore::builder().capacity(64 << 20).open_private()?;
/// store.put(b"muse", b"Calliope")?;
/// assert_eq!(store.get(b"muse")?.as_deref(), Some(&b"Calliope"[..]));
/// store.update(b"muse", |old| match old {
///     Some(name) => Decision::Replace(name.to_ascii_uppercase()),
///     None => Decision::Keep,
/// })?;
/// assert_eq!(store.get(b"muse")?.unwrap().to_vec(), b"CALLIOPE");
/// assert!(store.remove(b"muse")?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct LogStore {
    // Dropped first: its thread uses the store.
    maintainer: Option<Maintainer>,
    store: Arc<Store>,
}

/// The header of a region, which describes its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionKind {
    /// Its first bytes.
    pub magic: [u8; 8],
    /// The version of its layout.
    pub format: u32,
    /// A hash of the layout's sizes.
    pub layout_hash: u64,
}

impl LogStore {
    /// The header of the data region of a store that does not lend.
    pub const REGION: RegionKind = RegionKind {
        magic: mneme_arena::MAGIC,
        format: mneme_arena::FORMAT,
        layout_hash: mneme_arena::LAYOUT_HASH,
    };

    /// The header of the data region of a store that [lends](Builder::lend_idle).
    pub const REGION_LENDING: RegionKind = RegionKind {
        magic: mneme_arena::MAGIC,
        format: mneme_arena::FORMAT_LENDING,
        layout_hash: mneme_arena::LAYOUT_HASH_LENDING,
    };

    /// How this store's records are updated.
    #[must_use]
    pub fn update_policy(&self) -> UpdatePolicy {
        self.store.session().tables.policy
    }

    /// Options for opening a store.
    pub fn builder() -> Builder {
        Builder::default()
    }

    #[cfg(any(test, feature = "fault"))]
    pub(crate) fn inner(&self) -> &Arc<Store> {
        &self.store
    }

    /// One of the 64 databases: each has its own keys, and all share the log and the capacity.
    ///
    /// # Errors
    /// [`ReadError::NoSuchDatabase`] from 64 on.
    pub fn database(&self, number: usize) -> Result<Database<'_>, ReadError> {
        if number >= DATABASES {
            return Err(ReadError::NoSuchDatabase(number));
        }
        Ok(Database {
            store: &self.store,
            number: number as u8,
        })
    }

    fn zero(&self) -> Database<'_> {
        Database {
            store: &self.store,
            number: 0,
        }
    }

    /// The use of the store's memory. Reads a cache line for each log segment and a bitmap for each
    /// index frame, and takes no locks. Zeros in a forked child.
    pub fn stats(&self) -> Stats {
        self.with_policy(Stats::of(self.store.index(), || {
            self.store.session().mem.region().pages()
        }))
    }

    /// As [`stats`](Self::stats), but with this earlier report of the [pages](Self::pages) instead
    /// of a new one from the system.
    pub fn stats_with(&self, pages: PageReport) -> Stats {
        self.with_policy(Stats::of(self.store.index(), || pages))
    }

    fn with_policy(&self, stats: Stats) -> Stats {
        let policy = self.fill_policy();
        Stats {
            target_fill: if policy.active {
                policy.target_fill
            } else {
                0.0
            },
            below_target: self.store.reclaim().is_below_target(),
            compaction_wait: self.store.reclaim().compaction_wait(),
            ..stats
        }
    }

    /// The cache in the frames that the store does not use, if it was [created to lend
    /// them](Builder::lend_idle): for copies of data that can be obtained again from elsewhere. All
    /// openings share it, and its `arena` serves a durable tree's `RecordCache::lent`. A lookup may
    /// miss at any time. The store's maintainer sweeps it.
    ///
    /// Only the store may claim frames of its arena.
    ///
    /// ```
    /// use mneme_arena::{LendingOptions, CacheLookup};
    /// use mneme_log::LogStore;
    ///
    /// let lending = LendingOptions { records: 50_000, max_frames: u32::MAX };
    /// let store = LogStore::builder().capacity(128 << 20).lend_idle(lending).open_private()?;
    /// store.put(b"large", &vec![7; 40 << 20])?;
    /// store.remove(b"large")?; // What it had is idle once it is compacted.
    /// # let _ = store.compact()?;
    ///
    /// let cache = store.discardable().expect("it lends");
    /// let slot = cache.arena().participants().slot()?;
    /// let mut value = Vec::new();
    /// if let CacheLookup::Miss(ticket) = cache.get(b"page", &mut value) {
    ///     let node = mneme_sys::NodeId(0);
    ///     let _ = cache.fill(&slot, node, ticket, b"page", b"what the disk says")?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn discardable(&self) -> Option<&Discardable> {
        self.store.log().lent.as_ref()
    }

    /// How the store was configured to [lend](Builder::lend_idle).
    #[must_use]
    pub fn lending(&self) -> Option<LendingOptions> {
        self.discardable()?.options().ok()
    }

    /// Bytes of the region, as [`Stats::capacity`], without the other statistics. Costs a few
    /// loads.
    pub fn capacity(&self) -> u64 {
        match self.store.session().participants.is_forked() {
            true => 0,
            false => self.store.log().capacity(),
        }
    }

    /// Records in all databases, as [`Stats::records`], without the other statistics. Reads each
    /// thread's counters, whatever the store's size.
    pub fn records(&self) -> u64 {
        self.store.index().count_records()
    }

    /// Records that were evicted to free space, as [`Stats::evicted`], without the other
    /// statistics.
    pub fn evicted(&self) -> u64 {
        self.counted(|header| &header.evicted)
    }

    /// Records that were removed because they had expired, as [`Stats::expired`], without the other
    /// statistics.
    pub fn expired(&self) -> u64 {
        self.counted(|header| &header.expired)
    }

    /// The pages behind the region in this process, as [`Stats::pages`], without the other
    /// statistics. The system counts them, which takes a millisecond a GiB of small pages.
    pub fn pages(&self) -> PageReport {
        match self.store.session().participants.is_forked() {
            true => Stats::unseen().pages,
            false => self.store.session().mem.region().pages(),
        }
    }

    /// Whether this opening maintains the store, see [`Builder::maintainer`].
    pub fn maintains(&self) -> bool {
        self.maintainer.as_ref().is_some_and(Maintainer::is_at_work)
    }

    /// A counter of the store's header; 0 in a forked child.
    fn counted(&self, counter: impl FnOnce(&LogHeader) -> &AtomicU64) -> u64 {
        match self.store.session().participants.is_forked() {
            true => 0,
            // Relaxed: a statistic.
            false => counter(self.store.session().tables.header()).load(Relaxed),
        }
    }

    /// The processes that are attached to the store, including dead ones whose state is not yet
    /// repaired. It shows which process blocks the others. An opening counts as a process. Takes no
    /// lock and stores nothing. Costs some system calls for each process. Empty in a forked child.
    pub fn processes(&self) -> Vec<Process> {
        processes::attached(self.store.session())
    }

    /// A number that changes whenever a process attaches the store, for reading or for writing. As
    /// long as it is unchanged, all writes since came from processes that were attached before.
    /// Takes no lock and stores nothing.
    pub fn arrivals(&self) -> u64 {
        self.store.session().participants.arrivals()
    }

    /// Makes this opening the store's server. Of all openings in all processes one at a time has
    /// the [role](ServerRole), until it drops the role or dies. Costs a system call and never
    /// waits.
    ///
    /// # Errors
    /// [`RoleError::Taken`] names the process that has it.
    pub fn take_server_role(&self) -> Result<ServerRole, RoleError> {
        ServerRole::take(&self.store)
    }

    /// The process that serves the store, 0 if it is not known, and what it lets other processes do
    /// that attach the store. `None`: no process serves it, so its files' modes alone decide. Costs
    /// a system call or two.
    ///
    /// # Errors
    /// It cannot be determined.
    pub fn local_programs(&self) -> Result<Option<(u32, LocalPrograms)>, mneme_sync::LeaseError> {
        role::local_programs(&self.store)
    }

    /// Starts to listen to changes by other openings of the store. Costs a barrier between
    /// processes, up to 10 us, and waits for no thread. From now on, until the listener is dropped
    /// or its process is dead and reaped, others enter each change into the change feed.
    ///
    /// The first [`drain`](ChangeListener::drain) reports a [loss](crate::Notification::Lost), for
    /// changes made before; every later change is reported, or a loss is.
    ///
    /// # Errors
    /// This is a forked child, or the barrier is refused.
    pub fn listen(&self) -> Result<ChangeListener, SlotError> {
        ChangeListener::of(&self.store)
    }

    /// Ends the sleep of all listeners to this store, in all processes.
    pub fn wake_listeners(&self) {
        self.store.session().feed.bell().ring();
    }

    /// Starts to drain the store's change feed. Of all openings in all processes one at a time
    /// does, until it drops the [`ChangeFeed`] or dies. Costs a system call and never waits.
    ///
    /// # Errors
    /// The store was created without one, another opening drains it, or this one may only read.
    pub fn change_feed(&self) -> Result<ChangeFeed, FeedError> {
        ChangeFeed::take(&self.store)
    }

    /// Whether the store has a change feed: it was created with one ([`Builder::change_feed`]).
    /// Does not access the store.
    #[must_use]
    pub fn has_change_feed(&self) -> bool {
        self.store.session().feed.kept().is_some()
    }

    /// From now on the changes of this opening are entered into the change feed. Does nothing
    /// unless it was opened for [loading](Builder::loading). No other thread uses the store
    /// meanwhile. No entry has the loaded data, or the roots of the databases.
    pub fn end_loading(&self) {
        self.store.session().feed.set_enters(true);
    }

    /// Brackets the changes that `changes` makes, for readers of the change feed: if the machine
    /// stops between them, a recovery has none of them. Other threads may see them one by one, and
    /// may change something themselves. Such changes then belong to the bracket: none of them is
    /// durable before `changes` returns or panics. So it must return soon. If the process dies
    /// between the changes, its reaper closes the bracket, and what was changed stays.
    ///
    /// Only one thread of all processes does this at a time. Within another call of the same
    /// thread, the changes belong to the outer one. Without a feed, `changes` just runs.
    ///
    /// # Errors
    /// As for [`put`](Self::put); `changes` has not run then.
    pub fn feed_together<R>(&self, changes: impl FnOnce() -> R) -> Result<R, WriteError> {
        feed::feed_together(&self.store, changes)
    }

    /// The time by which records expire, in milliseconds since 1970, from the store's clock.
    #[must_use]
    pub fn wall_ms(&self) -> u64 {
        self.store.session().clock.wall_ms()
    }

    /// Whether this thread can take part in the store.
    ///
    /// # Errors
    /// Too many threads take part; this is a forked child; the thread runs its last destructors.
    pub fn may_take_part(&self) -> Result<(), SlotError> {
        self.store.session().participants.slot().map(drop)
    }

    /// Whether this thread has changes [bracketed](Self::feed_together), which do not become
    /// durable before the bracket ends.
    #[must_use]
    pub fn is_feeding_together(&self) -> bool {
        let slot = self.store.session().writer();
        slot.is_ok_and(|slot| self.store.session().feed.has_opened(slot.id()))
    }

    /// Sets whether the maintainer of this opening leaves expired records in place, and evicts
    /// none: each removal takes space in the change feed, and in whatever keeps the feed. Expired
    /// records are absent all the same.
    pub fn rest_expiry(&self, rests: bool) {
        self.store.session().feed.set_rests(rests);
    }

    /// Whether a quarter of the change feed is free; true without a feed. A change that begins then
    /// finds space there, whatever other threads enter beside it, unless it takes about a quarter
    /// itself. So a thread that must not wait checks this before it begins. Costs a few loads.
    #[must_use]
    pub fn has_feed_space(&self) -> bool {
        let feed = self.store.session().mapped_feed();
        feed.is_none_or(FeedArea::has_ample_space)
    }

    /// The position of the change feed before which everything is kept elsewhere; `None`: the store
    /// has no feed. While it moves, a thread that waits for space there has reason to continue.
    #[must_use]
    pub fn feed_durable(&self) -> Option<u64> {
        self.store.session().mapped_feed().map(FeedArea::durable)
    }

    /// The first position of the change feed after everything that has been entered; `None`: the
    /// store has no feed. Whatever a thread has seen in the store before it calls this lies before
    /// it. Costs a load.
    #[must_use]
    pub fn feed_tail(&self) -> Option<u64> {
        self.store
            .session()
            .mapped_feed()
            .map(|feed| feed.ring().tail())
    }

    /// Walks the whole store and reports what is wrong. Readers and writers may continue meanwhile.
    /// A change of the index' shape waits while a part of its shard is being checked.
    ///
    /// Takes as long as reading all headers and keys.
    ///
    /// # Errors
    /// A stopped thread holds a lock that the check needs; or a number of records is wrong and a
    /// stopped thread may not have counted a change that it made; or this thread cannot take part.
    /// Damage is not an error: the [`Report`] describes it.
    pub fn check(&self) -> Result<Report, WriteError> {
        self.check_while(&|| true).map(Option::unwrap_or_default)
    }

    /// [`check`](Self::check), cancelled with `None` once `goes_on` returns false; after that it
    /// must return false each time. `goes_on` is called at least once for each log segment and each
    /// part of an index, which is some hundred thousand records.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn check_while(&self, goes_on: &dyn Fn() -> bool) -> Result<Option<Report>, WriteError> {
        let slot = self.store.session().writer()?;
        let report = self.store.check(&slot, goes_on)?;
        Ok(goes_on().then_some(report))
    }

    /// [`check`](Self::check) of only the index: that what it refers to exists, that all its memory
    /// is referred to, and that each database holds as many records as it counts. Costs almost
    /// nothing if there are no records, however full the log may be of removed ones.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn check_index(&self) -> Result<Report, WriteError> {
        let slot = self.store.session().writer()?;
        self.store.check_index(&slot, &|| true)
    }

    /// Repairs what killed participants left and frees their slots. Returns the number of slots.
    /// The maintainer does this twice a second.
    ///
    /// # Errors
    /// A stopped thread holds a lock that the repair needs.
    pub fn reap(&self) -> Result<usize, WriteError> {
        let slot = self.store.session().writer()?;
        self.store.reap(&slot)
    }

    /// Runs `body` so that all its reads and changes happen at one instant. That holds for readers,
    /// and for the repair after a killed participant: all or nothing.
    ///
    /// If another thread changes a key that `body` has read before the transaction commits, `body`
    /// runs again. So it must have no effects except on the transaction. Nor may it panic at
    /// combinations of values that never existed: a run that is going to be repeated may see such.
    /// It holds a pin meanwhile, so keep it short. An error that it returns ends the transaction
    /// without effect. After 16 such conflicts the buckets of the keys that it used before are
    /// locked while it runs, so that it commits in the end. Writers of those keys wait meanwhile.
    ///
    /// ```
    /// # use mneme_log::{LogStore, WriteError};
    /// # let store = LogStore::builder().capacity(64 << 20).open_private()?;
    /// store.put(b"alice", b"70")?;
    /// store.put(b"bob", b"30")?;
    /// store.transaction(|t| {
    ///     let (a, b) = (t.get(b"alice")?, t.get(b"bob")?);
    ///     t.put(b"alice", &b.unwrap_or_default())?;
    ///     t.put(b"bob", &a.unwrap_or_default())?;
    ///     Ok::<_, WriteError>(())
    /// })?;
    /// assert_eq!(store.get(b"bob")?.unwrap(), b"70");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of `body`; those of [`LogStore::put`]. Nothing was changed.
    pub fn transaction<T, E: From<WriteError>>(
        &self,
        mut body: impl FnMut(&mut Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        loop {
            // The first attempt returns: only a watching transaction is cancelled with `None`.
            if let Some(value) = self.store.transaction(None, &[], &mut body)? {
                return Ok(value);
            }
        }
    }

    /// [`transaction`](Self::transaction) of keys that are known, each with its database. They are
    /// locked before `body` runs. `body` runs once as long as it reads no other keys, their
    /// databases are not empty, and neither the store nor the index has to free space. Writers of
    /// these keys wait meanwhile; readers do not. A `body` that has run for 200 ms, or copies tens
    /// of megabytes, unlocks the keys at its next call, and runs again if one of them is then
    /// changed. One that makes no call for a second makes the waiting writers fail with `Stalled`.
    /// `body` may use other keys at the cost that they have in any transaction. It need not use
    /// these.
    ///
    /// ```
    /// # use mneme_log::{LogStore, WriteError};
    /// # let store = LogStore::builder().capacity(64 << 20).open_private()?;
    /// store.put(b"draft", &[7; 100_000])?;
    /// let keys = [(0, b"draft".as_slice()), (3, b"final")];
    /// store.transaction_on(&keys, |t| {
    ///     let draft = t.get(b"draft")?.unwrap_or_default();
    ///     t.database(3)?.put(b"final", &draft)
    /// })?;
    /// assert_eq!(store.database(3)?.get(b"final")?.unwrap().len(), 100_000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As for [`transaction`](Self::transaction), or there is no such database. Nothing was
    /// changed.
    pub fn transaction_on<K: AsRef<[u8]>, T, E: From<WriteError>>(
        &self,
        keys: &[(usize, K)],
        mut body: impl FnMut(&mut Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let places = self.store.places_of(keys)?;
        loop {
            // The first attempt returns, as above.
            if let Some(value) = self.store.transaction(None, &places, &mut body)? {
                return Ok(value);
            }
        }
    }

    /// Starts to watch for changes of the keys that are then [added](Watch::add), of any databases,
    /// by any process. It serves a transaction that is to take place only if its keys are
    /// unchanged.
    ///
    /// ```
    /// # use mneme_log::{LogStore, WriteError};
    /// # let store = LogStore::builder().capacity(64 << 20).open_private()?;
    /// store.put(b"muse", b"Clio")?;
    /// let mut watch = store.watch()?;
    /// watch.add(0, b"muse")?;
    /// let longer = [&*store.get(b"muse")?.unwrap(), b" of history"].concat();
    /// let stored = watch.transaction(|t| t.put(b"muse", &longer))?;
    /// assert!(stored.is_some());
    /// // By now it has changed.
    /// assert!(watch.transaction(|t| t.put(b"muse", b""))?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// While any process watches, all writers count their changes, which costs each change some
    /// nanoseconds more. To start costs a barrier, up to 10 us between processes, unless this
    /// opening watches already. A server may keep an empty watch as long as it has others.
    ///
    /// # Errors
    /// This thread cannot take part.
    pub fn watch(&self) -> Result<Watch, ReadError> {
        Watch::new(Arc::clone(&self.store))
    }

    /// Which records the store evicts when it is full. None in a forked child, which does not see
    /// the store.
    pub fn eviction(&self) -> Evict {
        if self.store.session().participants.is_forked() {
            return Evict::None;
        }
        self.store.reclaim().eviction()
    }

    /// Changes the eviction policy, at once and for all participants. Earlier reads count only if
    /// the previous policy depended on reads too.
    ///
    /// # Errors
    /// [`WriteError::ReadOnly`], if this opening may only read; this thread cannot take part.
    pub fn set_eviction(&self, evict: Evict) -> Result<(), WriteError> {
        self.store.session().may_write()?;
        self.store.session().participants.slot()?;
        self.store.reclaim().set_eviction(evict);
        Ok(())
    }

    /// Removes all expired records of all databases now, and returns their number. The maintainer
    /// does this all the time, so this call is for a store without one.
    ///
    /// # Errors
    /// As for [`LogStore::remove`].
    pub fn remove_expired(&self) -> Result<usize, WriteError> {
        self.store.reclaim().remove_all_expired()
    }

    /// Enlarges the store to `bytes`, rounded up to 2 MiB, while others use it. Returns its present
    /// capacity. Does nothing if the store is that large already. It may never be larger than the
    /// [`max_capacity`](Builder::max_capacity), or the region's maximum, with which it was created.
    ///
    /// # Errors
    /// `bytes` is beyond that maximum or the machine's memory, or the system refuses. Nothing has
    /// changed.
    pub fn grow(&self, bytes: u64) -> Result<u64, GrowError> {
        if self.store.session().read_only {
            return Err(GrowError::ReadOnly);
        }
        let slot = self.store.session().participants.slot()?;
        self.store.log().grow(&slot, bytes)
    }

    /// Exchanges the contents of two databases, at one instant for all threads of all processes.
    /// Each operation takes place wholly before the swap or wholly after it.
    ///
    /// The cost does not depend on the content of the databases. The swap waits until every
    /// operation that is under way anywhere in the store is over, and until every
    /// [`Value`](crate::Value) that any thread keeps is dropped. First it waits for those that
    /// exist, and blocks nothing meanwhile. Then it waits for those that began in the meantime,
    /// while operations on the two databases, and transactions, wait for the swap.
    ///
    /// ```
    /// # use mneme_log::LogStore;
    /// # let store = LogStore::builder().capacity(64 << 20).open_private()?;
    /// store.put(b"muse", b"Clio")?;
    /// store.swap_databases(0, 9)?;
    /// assert!(store.is_empty());
    /// assert_eq!(store.database(9)?.get(b"muse")?.unwrap(), b"Clio");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// There is no such database, or the wait took longer than half a second.
    /// [`WriteError::Stalled`] then names the thread that blocked the swap, which is the calling
    /// thread if that keeps a value itself. Nothing was changed. An operation waits a second at
    /// most for a swap.
    pub fn swap_databases(&self, a: usize, b: usize) -> Result<(), WriteError> {
        self.swap_databases_within(a, b, crate::records::swap::TIMEOUT)
    }

    /// As [`swap_databases`](Self::swap_databases), but waits for operations under way no longer
    /// than `timeout`, and no longer than half a second. Operations do not wait longer than that
    /// for the swap either, so it may be retried again and again.
    ///
    /// # Errors
    /// As for [`swap_databases`](Self::swap_databases).
    pub fn swap_databases_within(
        &self,
        a: usize,
        b: usize,
        timeout: Duration,
    ) -> Result<(), WriteError> {
        let [a, b] = [self.database(a)?, self.database(b)?];
        (self.store)
            .session()
            .with_feed(|| (self.store.records()).swap_databases(a.number, b.number, timeout))
    }

    /// Compacts until no log segment is worth it, frees the segments that no reader uses any more,
    /// and returns how many segments it moved. That is at most the number of log segments when it
    /// begins: a segment that becomes worth compacting because of concurrent writers is left to the
    /// next call.
    ///
    /// # Errors
    /// As for [`LogStore::put`].
    pub fn compact(&self) -> Result<usize, WriteError> {
        self.compact_while(|| true)
    }

    /// How full this opening keeps the log segments while it [maintains](Self::maintains).
    #[must_use]
    pub fn fill_policy(&self) -> FillPolicy {
        self.store.reclaim().fill_policy()
    }

    /// Sets how full this opening keeps the log segments while it [maintains](Self::maintains), and
    /// what that may cost; only for this opening, from now on. Fills are limited to 0.95; a number
    /// that is not finite means the default.
    pub fn set_fill_policy(&self, policy: FillPolicy) {
        self.store.reclaim().set_fill_policy(policy);
    }

    /// Compacts for at most `budget` of this thread's time, until the log segments are as full as
    /// the [policy](Self::fill_policy) wants, for stores without a maintainer. Returns whether they
    /// are.
    ///
    /// # Errors
    /// As for [`LogStore::put`].
    pub fn compact_for(&self, budget: Duration) -> Result<bool, WriteError> {
        let slot = self.store.session().writer()?;
        self.store.reclaim().fill_for(&slot, budget)
    }

    /// Gives the memory of all free frames that were in use back to the machine, and returns the
    /// number of bytes. The store can use the frames as before; the kernel clears them again. The
    /// maintainer does this by itself with frames that are not needed for a while. Not given back
    /// are: memory from the pool of huge pages; memory of a file on a disk, or of one whose space
    /// was allocated at once; and frames that may be [lent](Builder::lend_idle). Nothing is given
    /// back while a reader whose pin was revoked has not continued.
    ///
    /// # Errors
    /// [`WriteError::Stalled`]: a stopped thread holds the arena's lock.
    pub fn give_back_memory(&self) -> Result<u64, WriteError> {
        let slot = self.store.session().writer()?;
        self.store.log().give_all_back(&slot)
    }

    /// [`compact`](Self::compact) that ends once `goes_on`, called before each segment, returns
    /// false.
    ///
    /// # Errors
    /// As for [`LogStore::put`].
    pub fn compact_while(&self, mut goes_on: impl FnMut() -> bool) -> Result<usize, WriteError> {
        let slot = self.store.session().writer()?;
        self.store.reclaim().maintain(&slot)?;
        let (mut moved, most) = (0, self.store.log().segments().count());
        // Bounded: while writers continue without a pause, some segment is always worth it.
        let mut goes_on = || {
            let goes_on = goes_on();
            self.store.session().may_go_on(&slot).map(|()| goes_on)
        };
        while moved < most && goes_on()? && self.store.reclaim().compact(&slot)? {
            moved += 1;
            self.store.reclaim().maintain(&slot)?;
        }
        self.store.reclaim().maintain(&slot)?;
        if goes_on()? {
            self.store.index().trim_index(&slot)?;
        }
        Ok(moved)
    }
}
