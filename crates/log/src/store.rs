//! [`LogStore`] and how one is opened.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use mneme_arena::{Arena, ArenaOptions, FRAME_BYTES};
use mneme_sync::{ControlOptions, Participants};
use mneme_sys::{
    Access, Clock, Liveness, PagePolicy, PageReport, Region, RegionError, ScriptedLiveness,
    SysfsTopology, SystemClock, Topology,
};
use rapidhash::v3::RapidSecrets;

use crate::check::Report;
use crate::core::Core;
use crate::counts::Keyspace;
use crate::effects::{self, Area};
use crate::error::{BatchError, Corrupt, GrowError, OpenError, ReadError, WriteError};
use crate::evict::Evict;
use crate::expiry::{Expiry, Stored};
use crate::fresh::Claimed;
use crate::layout::{DATABASES, Geometry, Tables};
use crate::maintainer::Maintainer;
use crate::mem::Mem;
use crate::ops::{Decision, Updated};
use crate::processes::Process;
use crate::role::{RoleError, ServerRole};
use crate::scan::Cursor;
use crate::stats::Stats;
use crate::transaction::Transaction;
use crate::value::Value;
use crate::watch::Watch;

/// The least capacity of a store, in bytes.
pub const MIN_CAPACITY: u64 = 64 << 20;

/// How records are updated; fixed when a store is created.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum UpdatePolicy {
    /// Every change appends a record; records are immutable and are read where they lie.
    #[default]
    Append = 0,
    /// A value of up to 4 KiB is overwritten where it lies if the new one fits there, other changes
    /// append. Reads copy. For stores that are nearly full of values that often change: nothing needs
    /// to be compacted then.
    InPlace = 1,
}

/// Options of a store, see [`LogStore::builder`].
#[derive(Clone)]
pub struct Builder {
    capacity: u64,
    max_capacity: Option<u64>,
    policy: UpdatePolicy,
    maintainer: bool,
    lending: bool,
    pages: PagePolicy,
    topology: Option<Arc<dyn Topology>>,
    clock: Arc<dyn Clock>,
    evict: Evict,
    identity: Option<[u8; 16]>,
    entropy: Option<[u8; 24]>,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder {
            capacity: 1 << 30,
            max_capacity: None,
            policy: UpdatePolicy::Append,
            maintainer: true,
            lending: true,
            pages: PagePolicy::Huge,
            topology: None,
            clock: Arc::new(SystemClock),
            evict: Evict::None,
            identity: None,
            entropy: None,
        }
    }
}

impl Builder {
    /// Bytes of memory that the store may take, everything included: records, index, tables, reserve.
    /// At least [`MIN_CAPACITY`]; 1 GiB unless said otherwise. Rounded up to 2 MiB. Memory is taken
    /// from the system as it is first used.
    pub fn capacity(mut self, bytes: u64) -> Builder {
        self.capacity = bytes;
        self
    }

    /// Bytes that the store may [`grow`](LogStore::grow) to; no more than its capacity unless said
    /// otherwise. It costs addresses, and tables of some hundred bytes for every 2 MiB.
    pub fn max_capacity(mut self, bytes: u64) -> Builder {
        self.max_capacity = Some(bytes);
        self
    }

    /// How records are updated.
    pub fn update_policy(mut self, policy: UpdatePolicy) -> Builder {
        self.policy = policy;
        self
    }

    /// Which records the store may forget when it is full; none unless said otherwise. See
    /// [`LogStore::set_eviction`].
    pub fn evict(mut self, evict: Evict) -> Builder {
        self.evict = evict;
        self
    }

    /// Whether threads of its own, one a NUMA node, compact the store ahead of need, remove what has
    /// expired and reap the dead (they do unless told not to). Without them, writers compact when they
    /// need the space, and the rest is done by [`LogStore::remove_expired`] and [`LogStore::reap`].
    /// Of several openings of one store, in any processes, one [maintains](LogStore::maintains) it; the
    /// others stand by. Dropping the store stops them, and another opening takes over within 100 ms, as it
    /// does when the process dies.
    pub fn maintainer(mut self, start: bool) -> Builder {
        self.maintainer = start;
        self
    }

    /// Whether reads of this opening lend values where they lie; they do unless told not to, in a store that
    /// appends. If not, [`LogStore::get`] and the others return and visit copies, and a thread that is stopped or
    /// swapped out in the middle of one holds up nobody: after half a second the others go on without it, and it
    /// reads again. For clients that nobody vouches for.
    pub fn lending(mut self, lend: bool) -> Builder {
        self.lending = lend;
        self
    }

    /// What pages to ask the kernel for; huge ones unless said otherwise.
    pub fn page_policy(mut self, pages: PagePolicy) -> Builder {
        self.pages = pages;
        self
    }

    /// The machine's nodes and CPUs; as the system describes them unless said otherwise.
    pub fn topology(mut self, topology: Arc<dyn Topology>) -> Builder {
        self.topology = Some(topology);
        self
    }

    /// The clock; the system's unless said otherwise.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Builder {
        self.clock = clock;
        self
    }

    /// The identity of the store that is created; a random one unless said otherwise. For who keeps its regions under an
    /// identity of their own.
    pub fn identity(mut self, uuid: [u8; 16]) -> Builder {
        self.identity = Some(uuid);
        self
    }

    /// Identity and hash seed of the store that is created, so that a test gets the same bytes
    /// every time. Whoever can guess the seed can choose keys that all fall into one bucket.
    #[doc(hidden)]
    pub fn entropy(mut self, bytes: [u8; 24]) -> Builder {
        self.entropy = Some(bytes);
        self
    }

    /// Opens a store in memory that this process alone uses and that ends with it.
    ///
    /// # Errors
    /// The capacity is below the minimum or beyond the machine's memory, or the kernel refuses it.
    pub fn open_private(self) -> Result<LogStore, OpenError> {
        let bytes = self.checked_capacity()?;
        let machine = mneme_sys::total_memory();
        if bytes > machine {
            return Err(OpenError::CapacityTooLarge {
                asked: bytes,
                machine,
            });
        }
        let max = self.max_capacity.unwrap_or(bytes);
        let max = whole_frames(max.max(self.capacity));
        let data = Region::private(bytes as usize, max as usize, self.pages)?;
        let control = Region::private(control_bytes(), control_bytes(), PagePolicy::Small)?;
        self.create_in(data, control, Arc::new(ScriptedLiveness::new().process(0)))
    }

    fn checked_capacity(&self) -> Result<u64, OpenError> {
        if self.capacity < MIN_CAPACITY {
            return Err(OpenError::CapacityTooSmall(self.capacity));
        }
        if let Some(max) = self.max_capacity.filter(|max| *max < self.capacity) {
            return Err(OpenError::MaxBelowCapacity {
                capacity: self.capacity,
                max,
            });
        }
        Ok(whole_frames(self.capacity))
    }

    /// Creates a store in two regions that are wholly its own: `data`, whose size is its capacity,
    /// and `control`, of at least [`control_bytes`]. Others may [`open_in`](Builder::open_in) them
    /// afterwards, at any addresses. `liveness` says who of them lives: a participant that it calls
    /// dead is repaired after, and must never touch the regions again.
    ///
    /// # Errors
    /// A region is too small or read-only.
    pub fn create_in(
        self,
        data: Region,
        control: Region,
        liveness: Arc<dyn Liveness>,
    ) -> Result<LogStore, OpenError> {
        if data.access() == Access::ReadOnly {
            return Err(RegionError::ReadOnly.into());
        }
        let (len, max) = (data.len() as u64, data.max() as u64);
        if len < MIN_CAPACITY {
            return Err(OpenError::CapacityTooSmall(len));
        }
        let topology = self
            .topology
            .clone()
            .unwrap_or_else(|| Arc::new(SysfsTopology::detect()));
        let geometry = Geometry::new(len, max, topology.cpus(), topology.nodes());
        let random = match self.entropy {
            Some(bytes) => bytes,
            None => {
                let mut bytes = [0u8; 24];
                mneme_sys::random_bytes(&mut bytes).map_err(OpenError::Random)?;
                bytes
            }
        };
        let uuid = self.identity.unwrap_or(std::array::from_fn(|i| random[i]));
        let seed = u64::from_le_bytes(std::array::from_fn(|i| random[16 + i]));
        let participants = Participants::create(control, ControlOptions::new(uuid), liveness)?;
        // Whatever the control region held before.
        Area::of(&participants)?.clear();
        let data = Arc::new(data);
        let options = ArenaOptions {
            uuid,
            client_bytes: geometry.client_bytes() as usize,
            nodes: topology.nodes() as u16,
            topology: Arc::clone(&topology),
            reserve_frames: geometry.reserve_frames as u32,
        };
        let arena = Arena::create(Arc::clone(&data), participants.clone(), options)?;
        let mem = Mem::new(data);
        let tables = Tables::create(&mem, arena.client().start, geometry, seed, self.policy)?;
        let evict = self.evict;
        let store = self.start(mem, tables, arena, participants, topology)?;
        store.core.set_eviction(evict);
        Ok(store)
    }

    /// Opens the store that another participant created in these regions.
    ///
    /// **A `data` region that is mapped read-only** ([`Region::access`]) makes an opening that may only
    /// read: nothing is ever stored there, only to `control`, which must be writable. Whatever would
    /// change the store fails with [`WriteError::ReadOnly`] before it has touched anything, `check`,
    /// `compact`, `reap` and a transaction's writes included; it has no maintainer. Where a read finds
    /// what a dead participant left in its way, it waits a second at most for somebody who may write to
    /// repair it, and then says so ([`ReadError::Reap`]).
    ///
    /// **After a reboot** of the machine that kept the regions, the first opening that may write puts the store in order:
    /// every bucket of the index is looked at once, and others who open it wait for that two seconds at most. That the
    /// bytes are those that were there before is the caller's to know.
    ///
    /// # Errors
    /// The regions hold no store, one of another version, or a damaged one. After a reboot: [`OpenError::NotClean`] if
    /// somebody had died in the store and nobody had repaired it, [`OpenError::NotRecovered`] to who may only read.
    pub fn open_in(
        self,
        data: Region,
        control: Region,
        liveness: Arc<dyn Liveness>,
    ) -> Result<LogStore, OpenError> {
        let topology = self
            .topology
            .clone()
            .unwrap_or_else(|| Arc::new(SysfsTopology::detect()));
        let uuid = Arena::identity(&data)?;
        let data = Arc::new(data);
        let opened = match data.access() {
            Access::ReadWrite => Participants::open_and(control, uuid, liveness, |alone| {
                if Arena::incarnation_of(&data)? == alone.incarnation() {
                    return Ok(());
                }
                let arena =
                    Arena::open_alone(Arc::clone(&data), alone.clone(), Arc::clone(&topology))?;
                let tables = open_tables(&data, &arena)?;
                let mem = Mem::new(Arc::clone(&data));
                let topology = Arc::clone(&topology);
                let core = self.core(mem, tables, arena, alone.clone(), topology)?;
                core.recover()
            }),
            Access::ReadOnly => {
                let is_known = |control| {
                    Arena::incarnation_of(&data).is_ok_and(|incarnation| incarnation == control)
                };
                Participants::open_to_read(control, uuid, liveness, is_known).map_err(Into::into)
            }
        };
        let participants = opened.map_err(|error| match error {
            OpenError::Control(mneme_sync::OpenError::Stale) => OpenError::NotRecovered,
            other => other,
        })?;
        let arena = Arena::open(
            Arc::clone(&data),
            participants.clone(),
            Arc::clone(&topology),
        )?;
        let tables = open_tables(&data, &arena)?;
        let mem = Mem::new(data);
        self.start(mem, tables, arena, participants, topology)
    }

    fn start(
        self,
        mem: Mem,
        tables: Tables,
        arena: Arena,
        participants: Participants,
        topology: Arc<dyn Topology>,
    ) -> Result<LogStore, OpenError> {
        let core = Arc::new(self.core(mem, tables, arena, participants, topology)?);
        core.look_at_roots()?;
        let maintainer = match self.maintainer && !core.read_only {
            true => Some(Maintainer::start(Arc::clone(&core)).map_err(OpenError::Maintainer)?),
            false => None,
        };
        Ok(LogStore { maintainer, core })
    }

    fn core(
        &self,
        mem: Mem,
        tables: Tables,
        arena: Arena,
        participants: Participants,
        topology: Arc<dyn Topology>,
    ) -> Result<Core, OpenError> {
        Ok(Core {
            effects: Area::of(&participants)?,
            secrets: RapidSecrets::seed(tables.seed),
            read_only: mem.region().access() == Access::ReadOnly,
            lends: self.lending && tables.policy == UpdatePolicy::Append,
            candidates: (0..arena.nodes()).map(|_| Mutex::default()).collect(),
            claimed: Claimed::new(arena.nodes()),
            clock: Arc::clone(&self.clock),
            mem,
            tables,
            arena,
            participants,
            topology,
            still: Mutex::default(),
        })
    }
}

/// The tables of the store in an arena, if they are made for it.
fn open_tables(data: &Arc<Region>, arena: &Arena) -> Result<Tables, OpenError> {
    let tables = Tables::open(&Mem::new(Arc::clone(data)), arena.client())?;
    let frames = arena.stats();
    let most = u64::from(frames.own) + u64::from(frames.frames) + u64::from(frames.growable);
    if most > tables.geometry.max_frames {
        return Err(Corrupt::at(
            arena.client().start,
            format!(
                "the log's tables are for {} frames, and the arena has {most}",
                tables.geometry.max_frames
            ),
        )
        .into());
    }
    Ok(tables)
}

/// So many bytes in whole frames; the greatest numbers, which no memory has, become smaller.
fn whole_frames(bytes: u64) -> u64 {
    let frames = bytes.checked_next_multiple_of(FRAME_BYTES);
    frames.unwrap_or(u64::MAX - (FRAME_BYTES - 1))
}

/// Bytes that a store's control region needs.
pub fn control_bytes() -> usize {
    ControlOptions::new([0; 16]).region_len() + effects::BYTES
}

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
    // Dropped first: its thread uses the core.
    maintainer: Option<Maintainer>,
    core: Arc<Core>,
}

/// What the header of a region says about its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionKind {
    /// Its first bytes.
    pub magic: [u8; 8],
    /// The version of its layout.
    pub format: u32,
    /// What the layout's sizes come to.
    pub layout_hash: u64,
}

impl LogStore {
    /// What the data region of every store says in its header.
    pub const REGION: RegionKind = RegionKind {
        magic: mneme_arena::MAGIC,
        format: mneme_arena::FORMAT,
        layout_hash: mneme_arena::LAYOUT_HASH,
    };

    /// How this store's records are updated.
    #[must_use]
    pub fn update_policy(&self) -> UpdatePolicy {
        self.core.tables.policy
    }

    /// Options for opening a store.
    pub fn builder() -> Builder {
        Builder::default()
    }

    #[cfg(test)]
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// One of the 64 databases: each has keys of its own, all share the log and the capacity.
    ///
    /// # Errors
    /// [`ReadError::NoSuchDatabase`] from 64 on.
    pub fn database(&self, number: usize) -> Result<Database<'_>, ReadError> {
        if number >= DATABASES {
            return Err(ReadError::NoSuchDatabase(number));
        }
        Ok(Database {
            core: &self.core,
            number: number as u8,
        })
    }

    fn zero(&self) -> Database<'_> {
        Database {
            core: &self.core,
            number: 0,
        }
    }

    /// Where the memory is. Costs a look at every log segment's line and every index frame's bitmap,
    /// takes no locks. Zeros in a forked child.
    pub fn stats(&self) -> Stats {
        self.core.stats()
    }

    /// Bytes of the region, as [`Stats::capacity`], without the rest of it. Some loads.
    pub fn capacity(&self) -> u64 {
        match self.core.participants.is_forked() {
            true => 0,
            false => self.core.capacity(),
        }
    }

    /// Records in all databases, as [`Stats::records`], without the rest of it: a look at what each thread has counted,
    /// whatever the store's size.
    pub fn records(&self) -> u64 {
        self.core.records()
    }

    /// Records that were forgotten for want of room, as [`Stats::evicted`], without the rest of it.
    pub fn evicted(&self) -> u64 {
        self.core.forgotten().0
    }

    /// Records that were removed because they had expired, as [`Stats::expired`], without the rest of it.
    pub fn expired(&self) -> u64 {
        self.core.forgotten().1
    }

    /// The pages behind the region in this process, as [`Stats::pages`], without the rest of it. The system counts
    /// them: a millisecond a GiB in small pages.
    pub fn pages(&self) -> PageReport {
        match self.core.participants.is_forked() {
            true => Stats::unseen().pages,
            false => self.core.mem.region().pages(),
        }
    }

    /// Whether it is this opening that maintains the store, see [`Builder::maintainer`].
    pub fn maintains(&self) -> bool {
        self.maintainer.as_ref().is_some_and(Maintainer::is_at_work)
    }

    /// The processes that are attached to the store, dead ones included that nobody has repaired after:
    /// to say who holds the others up. An opening counts as a process. Takes no lock and stores nothing;
    /// costs some system calls for each process. Nothing in a forked child.
    pub fn processes(&self) -> Vec<Process> {
        self.core.processes()
    }

    /// A number that changes whenever a process attaches the store, for reading or for writing: who finds it the same later
    /// knows that all that was written since was written by those who were there. Takes no lock and stores nothing.
    pub fn arrivals(&self) -> u64 {
        self.core.participants.arrivals()
    }

    /// Makes this opening the store's server: of all openings in all processes one at a time has the
    /// [role](ServerRole), until it drops it, or dies. A system call; waits for nobody.
    ///
    /// # Errors
    /// [`RoleError::Taken`] names the process that has it.
    pub fn take_server_role(&self) -> Result<ServerRole, RoleError> {
        self.core.take_server_role()
    }

    /// Walks everything and says what is wrong. Readers and writers may go on meanwhile; changes of
    /// the index' shape wait for the shard that is being checked.
    ///
    /// Takes as long as reading all headers and keys does.
    ///
    /// # Errors
    /// A lock that the check needs is held by somebody who is stopped, or a number of records is wrong and
    /// somebody is stopped who may not have counted a change of his; or this thread cannot take part.
    /// Damage is no error: the [`Report`] says what it is.
    pub fn check(&self) -> Result<Report, WriteError> {
        let slot = self.core.writer()?;
        self.core.check(&slot)
    }

    /// [`check`](Self::check) of the index alone: that what it refers to is there, that all its memory is referred to, and that
    /// each database holds as many records as it counts. Costs next to nothing where there are no records, however full
    /// the log may be of what was removed.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn check_index(&self) -> Result<Report, WriteError> {
        let slot = self.core.writer()?;
        self.core.check_index(&slot)
    }

    /// Repairs what participants left that were killed, and takes their slots back; how many slots.
    /// The maintainer does this twice a second.
    ///
    /// # Errors
    /// A lock that the repair needs is held by somebody who is stopped.
    pub fn reap(&self) -> Result<usize, WriteError> {
        let slot = self.core.writer()?;
        self.core.reap(&slot)
    }

    /// Runs `body` so that all it reads and changes happens at one instant, for readers and for
    /// whoever repairs what a killed participant left: all or nothing.
    ///
    /// If somebody else changes a key that it has read before it is done, `body` runs again: it must
    /// have no effect but those on the transaction. It holds a pin meanwhile, so keep it short. An
    /// error that it returns ends the transaction without effect.
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
            // At once: it is refused only where something is watched.
            if let Some(value) = self.core.transaction(None, &mut body)? {
                return Ok(value);
            }
        }
    }

    /// Begins to watch for changes of the keys that are then [added](Watch::add), of any databases, made
    /// by anybody: for a transaction that is to take place only if they are as they were.
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
    /// While anybody watches, in any process, all writers count their changes, which costs each some
    /// nanoseconds more. To begin costs a barrier, up to 10 us between processes, unless this opening
    /// watches already: a server may keep an empty watch as long as there are others.
    ///
    /// # Errors
    /// This thread cannot take part.
    pub fn watch(&self) -> Result<Watch, ReadError> {
        Watch::new(Arc::clone(&self.core))
    }

    /// Which records the store forgets when it is full. None in a forked child, which sees no store.
    pub fn eviction(&self) -> Evict {
        if self.core.participants.is_forked() {
            return Evict::None;
        }
        self.core.eviction()
    }

    /// Changes it, for all participants and at once. What was read before counts only if the policy
    /// before was one that goes by reads too.
    ///
    /// # Errors
    /// [`WriteError::ReadOnly`], where this opening may only read; this thread cannot take part.
    pub fn set_eviction(&self, evict: Evict) -> Result<(), WriteError> {
        self.core.may_write()?;
        self.core.participants.slot()?;
        self.core.set_eviction(evict);
        Ok(())
    }

    /// Removes all expired records of all databases now; how many there were. The maintainer does
    /// it steadily, so this is for a store without one.
    ///
    /// # Errors
    /// As for [`LogStore::remove`].
    pub fn remove_expired(&self) -> Result<usize, WriteError> {
        self.core.remove_all_expired()
    }

    /// Makes the store `bytes` large, rounded up to 2 MiB, while others use it; how large it is now.
    /// Does nothing if it is that large. It may never be larger than the
    /// [`max_capacity`](Builder::max_capacity), or the region's maximum, that it was created with.
    ///
    /// # Errors
    /// Beyond that maximum or the machine's memory, or the system refuses: nothing has changed.
    pub fn grow(&self, bytes: u64) -> Result<u64, GrowError> {
        if self.core.read_only {
            return Err(GrowError::ReadOnly);
        }
        let slot = self.core.participants.slot()?;
        self.core.grow(&slot, bytes)
    }

    /// Exchanges two databases: what one held the other holds, at one instant for all threads of all
    /// processes. An operation takes place wholly before it or wholly after it.
    ///
    /// Costs the same whatever the databases hold. It waits until every operation that is under way
    /// anywhere in the store is over, and until every [`Value`] that anybody keeps is dropped;
    /// meanwhile operations on the two databases, and transactions, wait for it.
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
    /// Nothing was changed: there is no such database, or the wait took longer than half a second
    /// ([`WriteError::Stalled`] names whom it waited for; the calling thread, if that keeps a value
    /// itself). Who waits for a swap waits a second at most.
    pub fn swap_databases(&self, a: usize, b: usize) -> Result<(), WriteError> {
        self.swap_databases_within(a, b, crate::spaces::PATIENCE)
    }

    /// As [`swap_databases`](Self::swap_databases), but waits for those who use the store no longer than `patience`, or
    /// half a second: nor does anybody wait for it longer than that, so that it may be tried again and again.
    ///
    /// # Errors
    /// As there.
    pub fn swap_databases_within(
        &self,
        a: usize,
        b: usize,
        patience: Duration,
    ) -> Result<(), WriteError> {
        let [a, b] = [self.database(a)?, self.database(b)?];
        self.core.swap_databases(a.number, b.number, patience)
    }

    /// Compacts until no log segment is worth it, and frees what readers have left; segments moved.
    ///
    /// # Errors
    /// As for [`LogStore::put`].
    pub fn compact(&self) -> Result<usize, WriteError> {
        let slot = self.core.writer()?;
        let mut moved = 0;
        self.core.maintain(&slot)?;
        while self.core.compact(&slot)? {
            moved += 1;
            self.core.maintain(&slot)?;
        }
        self.core.maintain(&slot)?;
        self.core.trim_index(&slot)?;
        Ok(moved)
    }
}

/// The operations of a database, written once for both of its faces.
macro_rules! operations {
    ([$($life:lifetime)?] $name:ty, $value:lifetime, $self:ident => $db:expr) => {
        impl $(<$life>)? $name {
            /// The value of `key`: where it lies in a store that appends, a copy in one that
            /// overwrites or does not [lend](Builder::lending). Waits for no writer, but for a transaction that is committing the key, or
            /// for an overwriting of its value, a second at most.
            ///
            /// # Errors
            /// This thread cannot take part, the region is damaged, or a transaction stalls.
            #[inline]
            pub fn get(&$self, key: &[u8]) -> Result<Option<Value<$value>>, ReadError> {
                let db = $db;
                db.core.get(db.number, key)
            }

            /// Calls `visit(i, value)` for each of `keys`, in order. Several times as fast as
            /// single calls: the keys' cache misses overlap. Where values are lent, `visit` runs pinned, as
            /// if it held a [`Value`]; where they are copied, this is `copy_many`.
            ///
            /// # Errors
            /// As for `get`; keys before the failing one have been visited.
            pub fn get_many<K: AsRef<[u8]>>(
                &$self,
                keys: &[K],
                visit: impl FnMut(usize, Option<&[u8]>),
            ) -> Result<(), ReadError> {
                let db = $db;
                db.core.get_many(db.number, keys, visit)
            }

            /// Copies the value of `key` to `value`, in place of what is there; whether it is there. If
            /// it is not, `value` is empty afterwards.
            ///
            /// As good as `get` and `to_vec`, but that a thread which is stopped or swapped out in the
            /// middle holds up nobody: after half a second the others go on without it, and it reads
            /// again. For clients that nobody vouches for.
            ///
            /// # Errors
            /// As for `get`; `value` may have anything in it then.
            #[inline]
            pub fn get_into(&$self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, ReadError> {
                let db = $db;
                db.core.get_into(db.number, key, value)
            }

            /// Calls `visit(i, value)` with a copy of the value of each of `keys`, in order. It is to
            /// `get_into` what `get_many` is to `get`. `visit` is not run pinned: it may take its time.
            /// Copies of about a MiB are taken at once.
            ///
            /// # Errors
            /// As for `get`; keys before the failing one have been visited.
            pub fn copy_many<K: AsRef<[u8]>>(
                &$self,
                keys: &[K],
                visit: impl FnMut(usize, Option<&[u8]>),
            ) -> Result<(), ReadError> {
                let db = $db;
                db.core.copy_many(db.number, keys, visit)
            }

            /// Whether `key` is there.
            ///
            /// # Errors
            /// As for `get`.
            pub fn contains(&$self, key: &[u8]) -> Result<bool, ReadError> {
                let db = $db;
                db.core.contains(db.number, key)
            }

            /// Stores `value` under `key`, in place of an older one and its expiry. Keys have up to
            /// [`MAX_KEY`](crate::MAX_KEY) bytes, values up to [`MAX_VALUE`](crate::MAX_VALUE). May
            /// compact, and waits for room a bounded time (see [`WriteError`]).
            ///
            /// # Errors
            /// Nothing was stored: key or value too long, the store full, or somebody stalls.
            pub fn put(&$self, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
                let db = $db;
                db.core.put(db.number, key, value, Expiry::Never)
            }

            /// Stores `value` under `key` until its expiry. One that is over already makes the key
            /// absent.
            ///
            /// # Errors
            /// As for `put`.
            pub fn put_until(&$self, key: &[u8], value: &[u8], expiry: Expiry) -> Result<(), WriteError> {
                let db = $db;
                db.core.put(db.number, key, value, expiry)
            }

            /// When `key` expires; `None` if it is not there.
            ///
            /// # Errors
            /// As for `get`.
            pub fn expiry(&$self, key: &[u8]) -> Result<Option<Expiry>, ReadError> {
                let db = $db;
                db.core.expiry(db.number, key)
            }

            /// Sets when `key` expires; whether it is there. Seldom copies the value: never if it is
            /// longer than 64 KiB or was stored with an expiry.
            ///
            /// # Errors
            /// As for `put`; nothing was changed.
            pub fn set_expiry(&$self, key: &[u8], expiry: Expiry) -> Result<bool, WriteError> {
                Ok($self.update_expiry(key, |_| Some(expiry))? != Updated::Absent)
            }

            /// Sets when `key` expires by when it does now, atomically; `None` leaves it. `decide` may be
            /// called more than once, so it must have no effect of its own.
            ///
            /// # Errors
            /// As for `put`; nothing was changed.
            pub fn update_expiry(
                &$self,
                key: &[u8],
                decide: impl FnMut(Expiry) -> Option<Expiry>,
            ) -> Result<Updated, WriteError> {
                let db = $db;
                db.core.update_expiry(db.number, key, decide)
            }

            /// Stores each pair, in order; later pairs win. Not atomic as a whole.
            ///
            /// # Errors
            /// The first `done` pairs are stored, the others are not.
            pub fn put_many<K: AsRef<[u8]>, V: AsRef<[u8]>>(&$self, pairs: &[(K, V)]) -> Result<(), BatchError> {
                let db = $db;
                db.core.put_many(db.number, pairs)
            }

            /// Removes `key`; whether it was there.
            ///
            /// # Errors
            /// Nothing was removed: somebody stalls, or the region is damaged.
            pub fn remove(&$self, key: &[u8]) -> Result<bool, WriteError> {
                let db = $db;
                db.core.remove(db.number, key)
            }

            /// Removes each key; how many there were.
            ///
            /// # Errors
            /// The first `done` keys are removed, the others are not.
            pub fn remove_many<K: AsRef<[u8]>>(&$self, keys: &[K]) -> Result<usize, BatchError> {
                let db = $db;
                db.core.remove_many(db.number, keys)
            }

            /// Changes `key` by its present value, atomically. `decide` is called again if somebody
            /// else changed the key meanwhile, so it must have no effect of its own. It runs pinned, and
            /// nothing is locked. A value that is replaced keeps its expiry.
            ///
            /// # Errors
            /// As for `put`; nothing was changed.
            pub fn update(
                &$self,
                key: &[u8],
                mut decide: impl FnMut(Option<&[u8]>) -> Decision,
            ) -> Result<Updated, WriteError> {
                $self.update_stored(key, |stored| decide(stored.map(|s| s.value)))
            }

            /// As `update`, with the present expiry.
            ///
            /// # Errors
            /// As for `put`; nothing was changed.
            pub fn update_stored(
                &$self,
                key: &[u8],
                decide: impl FnMut(Option<Stored<'_>>) -> Decision,
            ) -> Result<Updated, WriteError> {
                let db = $db;
                db.core.update(db.number, key, decide)
            }

            /// Visits about `count` records (key, value), of 0 as of 1, from `cursor` on and says where to go on. From
            /// [`Cursor::START`] to [`Cursor::END`] every record that is there all the time is
            /// visited at least once. The order is that of the keys' hashes. Where values are lent, `visit`
            /// runs pinned, as if it held a [`Value`]; where they are copied, this is `scan_copied`.
            ///
            /// # Errors
            /// As for `get`.
            pub fn scan(
                &$self,
                cursor: Cursor,
                count: usize,
                visit: impl FnMut(&[u8], &[u8]),
            ) -> Result<Cursor, ReadError> {
                let db = $db;
                db.core.scan(db.number, cursor, count, visit)
            }

            /// As `scan`, with copies of keys and values, as `copy_many` makes them. `visit` is not run
            /// pinned.
            ///
            /// # Errors
            /// As for `get`; the records before have been visited.
            pub fn scan_copied(
                &$self,
                cursor: Cursor,
                count: usize,
                visit: impl FnMut(&[u8], &[u8]),
            ) -> Result<Cursor, ReadError> {
                let db = $db;
                db.core.scan_copied(db.number, cursor, count, visit)
            }

            /// A key drawn by lot, each as likely as any other; `None`: the database holds no record. Looks at a
            /// few dozen records, or, where hardly any of those counted are alive, at all.
            ///
            /// # Errors
            /// As for `get`.
            pub fn random_key(&$self) -> Result<Option<Vec<u8>>, ReadError> {
                let db = $db;
                db.core.random_key(db.number)
            }

            /// Records in the database, those included that have expired and are not yet removed. The sum
            /// of what all threads have counted; 0 if it cannot be said (see `try_len`).
            pub fn len(&$self) -> u64 {
                $self.try_len().unwrap_or(0)
            }

            /// As `len`, and says why if it cannot be said.
            ///
            /// # Errors
            /// As for `get`.
            pub fn try_len(&$self) -> Result<u64, ReadError> {
                let db = $db;
                db.core.len(db.number)
            }

            /// The database's records, how many of them are to expire, and an estimate of when. As cheap as `len`.
            ///
            /// # Errors
            /// As for `get`.
            pub fn keyspace(&$self) -> Result<Keyspace, ReadError> {
                let db = $db;
                db.core.keyspace(db.number)
            }

            /// Whether the database holds no record.
            pub fn is_empty(&$self) -> bool {
                $self.len() == 0
            }

            /// Empties the database, at once whatever its size; memory is given back in the background.
            ///
            /// # Errors
            /// Somebody stalls, or 64 earlier clearings still wait for readers to leave.
            pub fn clear(&$self) -> Result<(), WriteError> {
                let db = $db;
                db.core.clear(db.number)
            }
        }
    };
}

/// One database of a store.
#[derive(Clone, Copy)]
pub struct Database<'s> {
    core: &'s Core,
    number: u8,
}

impl Database<'_> {
    /// Its number, 0 to 63.
    pub fn number(&self) -> usize {
        usize::from(self.number)
    }
}

operations!([] LogStore, '_, self => self.zero());
operations!(['s] Database<'s>, 's, self => *self);
