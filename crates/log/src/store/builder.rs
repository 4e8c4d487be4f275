//! How a store is created or opened: its options, and the regions in which it lies.

use std::sync::Arc;

use mneme_arena::{Arena, ArenaOptions, FRAME_BYTES, LendingOptions};
use mneme_sync::{ControlOptions, Participants};
use mneme_sys::{
    Access, Clock, Liveness, PagePolicy, Region, RegionError, ScriptedLiveness, SysfsTopology,
    SystemClock, Topology,
};

use super::{LogStore, MIN_CAPACITY};
use crate::error::{Corrupt, OpenError};
use crate::feed::area::FeedArea;
use crate::feed::bell;
use crate::index::Index;
use crate::log::Log;
use crate::reclaim::Reclaim;
use crate::reclaim::evict::Evict;
use crate::reclaim::fill::{FillPolicy, MAX_FILL};
use crate::records::Records;
use crate::region::layout::{FeedKind, Geometry, Tables};
use crate::region::mem::Mem;
use crate::region::policy::UpdatePolicy;
use crate::session::Session;
use crate::store::components::Store;
use crate::store::maintainer::Maintainer;

/// Options of a store, see [`LogStore::builder`].
#[derive(Clone)]
pub struct Builder {
    capacity: u64,
    max_capacity: Option<u64>,
    policy: UpdatePolicy,
    maintainer: bool,
    lending: bool,
    idle: Option<LendingOptions>,
    pages: PagePolicy,
    topology: Option<Arc<dyn Topology>>,
    clock: Arc<dyn Clock>,
    evict: Evict,
    identity: Option<[u8; 16]>,
    entropy: Option<[u8; 24]>,
    feed: bool,
    loading: bool,
    fill: FillPolicy,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder {
            capacity: 1 << 30,
            max_capacity: None,
            policy: UpdatePolicy::Append,
            maintainer: true,
            lending: true,
            idle: None,
            pages: PagePolicy::Huge,
            topology: None,
            clock: Arc::new(SystemClock),
            evict: Evict::None,
            identity: None,
            entropy: None,
            feed: false,
            loading: false,
            fill: FillPolicy::default(),
        }
    }
}

impl Builder {
    /// Bytes of memory that the store may take, everything included: records, index, tables,
    /// reserve. At least [`MIN_CAPACITY`]; 1 GiB by default. Rounded up to 2 MiB. Memory is taken
    /// from the system as it is first used.
    pub fn capacity(mut self, bytes: u64) -> Builder {
        self.capacity = bytes;
        self
    }

    /// Bytes that the store may [`grow`](LogStore::grow) to; its capacity by default. It costs
    /// address space, and tables of some hundred bytes for every 2 MiB.
    pub fn max_capacity(mut self, bytes: u64) -> Builder {
        self.max_capacity = Some(bytes);
        self
    }

    /// How records are updated.
    pub fn update_policy(mut self, policy: UpdatePolicy) -> Builder {
        self.policy = policy;
        self
    }

    /// Which records the store may evict when it is full; none by default. See
    /// [`LogStore::set_eviction`].
    pub fn evict(mut self, evict: Evict) -> Builder {
        self.evict = evict;
        self
    }

    /// Whether the store has threads of its own, one for each NUMA node; true by default. They
    /// compact the store ahead of need, remove what has expired and reap dead participants. Without
    /// them, writers compact when they need the space, and the rest is done by
    /// [`LogStore::remove_expired`] and [`LogStore::reap`]. Of several openings of one store, in
    /// any processes, one [maintains](LogStore::maintains) it; the others are on standby. Dropping
    /// the store stops its threads, and another opening takes over within 100 ms. The same happens
    /// when the process dies.
    pub fn maintainer(mut self, start: bool) -> Builder {
        self.maintainer = start;
        self
    }

    /// Whether reads of this opening lend values in place; true by default, in a store that
    /// appends. If not, [`LogStore::get`] and the others return and visit copies. A thread that is
    /// stopped or swapped out in the middle of a copy then blocks no other: after half a second the
    /// others revoke its pin, and it reads again. This suits clients that cannot be trusted to keep
    /// running.
    pub fn lending(mut self, lend: bool) -> Builder {
        self.lending = lend;
        self
    }

    /// Makes the new store lend its unused frames, its reserve included, to a
    /// [cache](LogStore::discardable) of copies; by default it lends nothing. The store takes
    /// frames back at once, as it needs them. The cache's index is part of the store's capacity: 11
    /// bytes for each of [`LendingOptions::records`], at most an eighth of it. The frames being
    /// filled, one for each NUMA node, return to the store only when they are full.
    ///
    /// Lent memory is resident, and the store lends only memory that it has used before. So a store
    /// that has been full, or that compacts, lends much of it, and a new one none.
    pub fn lend_idle(mut self, lending: LendingOptions) -> Builder {
        self.idle = Some(lending);
        self
    }

    /// Whether the new store has a [change feed](crate::ChangeFeed); false by default. The feed
    /// takes a sixteenth of the capacity, at most 64 MiB. It fills up unless it is drained and its
    /// content made durable. When it is full writes wait, and fail after a second, or after ten
    /// while a process drains it ([`WriteError::FeedFull`](crate::WriteError::FeedFull)). A change
    /// that takes more than a quarter of the feed (for a transaction, all its changes together)
    /// passes through it while it is drained. Its thread keeps its pin meanwhile.
    pub fn change_feed(mut self, feed: bool) -> Builder {
        self.feed = feed;
        self
    }

    /// Whether this opening's changes stay out of the store's change feed until
    /// [`LogStore::end_loading`]; false by default. For a store that no other opening uses and that
    /// is being filled from elsewhere.
    pub fn loading(mut self, loading: bool) -> Builder {
        self.loading = loading;
        self
    }

    /// The live share of the log segments' bytes that the maintainer keeps up, from 0 to 0.95; 0.8
    /// by default. Below it segments are emptied however much is free, within the processor time
    /// that [`FillPolicy`] allows, so that the memory in use follows the live bytes. With 0,
    /// compaction begins only when free frames run short. See [`LogStore::set_fill_policy`].
    pub fn target_fill(mut self, fill: f64) -> Builder {
        self.fill.active = fill > 0.0;
        self.fill.target_fill = fill.clamp(0.0, MAX_FILL);
        self
    }

    /// Whether a store to which nothing was written for a second is made as compact as possible;
    /// true by default. See [`Builder::target_fill`].
    pub fn compact_when_idle(mut self, compact: bool) -> Builder {
        self.fill.when_idle = compact;
        self
    }

    /// The page size to request from the kernel; huge pages by default.
    pub fn page_policy(mut self, pages: PagePolicy) -> Builder {
        self.pages = pages;
        self
    }

    /// The machine's nodes and CPUs; by default as the system describes them.
    pub fn topology(mut self, topology: Arc<dyn Topology>) -> Builder {
        self.topology = Some(topology);
        self
    }

    /// The clock; the system's by default.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Builder {
        self.clock = clock;
        self
    }

    /// The identity of the new store; a random one by default. It is for a caller that names its
    /// regions itself.
    pub fn identity(mut self, uuid: [u8; 16]) -> Builder {
        self.identity = Some(uuid);
        self
    }

    /// Identity and hash seed of the new store, so that a test gets the same bytes every time. A
    /// client that can guess the seed can choose keys that all fall into one bucket.
    #[doc(hidden)]
    pub fn entropy(mut self, bytes: [u8; 24]) -> Builder {
        self.entropy = Some(bytes);
        self
    }

    /// Opens a store in memory that only this process uses. The store ends with the process.
    ///
    /// # Errors
    /// The capacity is below the minimum or beyond the machine's memory, or the kernel refuses it.
    #[doc(alias = "in_memory")]
    pub fn open_private(self) -> Result<LogStore, OpenError> {
        let bytes = self.checked_capacity()?;
        let machine = mneme_sys::total_memory();
        if bytes > machine {
            return Err(OpenError::CapacityTooLarge {
                asked: bytes,
                machine,
            });
        }
        let mut max = self.max_capacity.unwrap_or(bytes).max(self.capacity);
        if self.loading {
            // It may be extended: see `LogStore::extend`.
            max = max.max(bytes + bytes / 4 + (16 << 20));
        }
        let max = whole_frames(max);
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

    /// The given topology, or the machine's own.
    fn topology_or_detected(&self) -> Arc<dyn Topology> {
        self.topology
            .clone()
            .unwrap_or_else(|| Arc::new(SysfsTopology::detect()))
    }

    /// Creates a store in two regions that nothing else uses: `data`, whose size is its capacity,
    /// and `control`, of at least [`control_bytes`]. Others may [`open_in`](Builder::open_in) them
    /// afterwards, at any addresses. `liveness` decides which participants are alive. The store
    /// repairs what a participant left that it declares dead, and such a participant must never
    /// touch the regions again.
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
        let index = self.idle.as_ref().map_or(0, LendingOptions::index_bytes);
        if index > len / 8 {
            return Err(OpenError::LentIndex {
                bytes: index,
                capacity: len,
            });
        }
        let topology = self.topology_or_detected();
        let feed = FeedKind::new(len, self.feed);
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
        let data = Arc::new(data);
        let options = ArenaOptions {
            uuid,
            client_bytes: geometry.client_bytes(feed) as usize,
            nodes: topology.nodes() as u16,
            topology: Arc::clone(&topology),
            reserve_frames: geometry.reserve_frames as u32,
            lending: self.idle,
        };
        let arena = Arena::create(Arc::clone(&data), participants.clone(), options)?;
        let arena = Arc::new(arena);
        let mem = Mem::new(data);
        let at = arena.client().start;
        let tables = Tables::create(&mem, at, geometry, seed, self.policy, feed)?;
        FeedArea::of(&mem, &tables, &participants)?.clear();
        let evict = self.evict;
        let store = self.start(mem, tables, arena, participants, topology)?;
        store.store.reclaim().set_eviction(evict);
        Ok(store)
    }

    /// Opens the store that another participant created in these regions.
    ///
    /// **A `data` region that is mapped read-only** ([`Region::access`]) makes an opening that may
    /// only read: it stores nothing there, only in `control`, which must be writable. Every call
    /// that would change the store fails with [`WriteError::ReadOnly`](crate::WriteError::ReadOnly)
    /// before it has touched anything, `check`, `compact`, `reap` and a transaction's writes
    /// included; there is no maintainer. If something that a dead participant left blocks a read,
    /// the read waits a second at most for an opening that may write to repair it, and then fails
    /// ([`ReadError::Reap`](crate::ReadError::Reap)).
    ///
    /// **After a reboot** of the machine that kept the regions, the first opening that may write
    /// puts the store in order: it examines every bucket of the index once. Other openings wait two
    /// seconds at most for that. The caller must know that the bytes are those from before the
    /// reboot.
    ///
    /// # Errors
    /// The regions hold no store, one of another version, or a damaged one. After a reboot:
    /// [`OpenError::NotClean`] if a participant had died in the store and nothing had repaired what
    /// it left, [`OpenError::NotRecovered`] for an opening that may only read.
    pub fn open_in(
        self,
        data: Region,
        control: Region,
        liveness: Arc<dyn Liveness>,
    ) -> Result<LogStore, OpenError> {
        let topology = self.topology_or_detected();
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
                let store =
                    self.open_store(mem, tables, Arc::new(arena), alone.clone(), topology)?;
                store.recover()
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
        self.start(mem, tables, Arc::new(arena), participants, topology)
    }

    fn start(
        self,
        mem: Mem,
        tables: Tables,
        arena: Arc<Arena>,
        participants: Participants,
        topology: Arc<dyn Topology>,
    ) -> Result<LogStore, OpenError> {
        let store = self.open_store(mem, tables, arena, participants, topology)?;
        store.index().look_at_roots()?;
        store.reclaim().set_fill_policy(self.fill);
        let maintainer = match self.maintainer && !store.session().read_only {
            true => Some(Maintainer::start(Arc::clone(&store)).map_err(OpenError::Maintainer)?),
            false => None,
        };
        Ok(LogStore { maintainer, store })
    }

    fn open_store(
        &self,
        mem: Mem,
        tables: Tables,
        arena: Arc<Arena>,
        participants: Participants,
        topology: Arc<dyn Topology>,
    ) -> Result<Arc<Store>, OpenError> {
        let lends = self.lending && tables.policy == UpdatePolicy::Append;
        let clock = Arc::clone(&self.clock);
        let session = Session::new(mem, tables, participants, topology, clock)?;
        session.feed.set_enters(!self.loading);
        let index = Index::new(Log::new(session, arena)?);
        let records = Records::new(index, lends);
        Ok(Store::new(Reclaim::new(records)))
    }
}

/// The tables of the store in an arena, if they fit it.
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

/// `bytes` rounded up to whole frames. Numbers beyond any memory are rounded down.
fn whole_frames(bytes: u64) -> u64 {
    let frames = bytes.checked_next_multiple_of(FRAME_BYTES);
    frames.unwrap_or(u64::MAX - (FRAME_BYTES - 1))
}

/// Bytes that a store's control region needs.
pub fn control_bytes() -> usize {
    ControlOptions::new([0; 16]).region_len() + bell::BYTES
}
