//! [`StoreOptions`]: the properties of a new store, and how a store is attached.

use std::sync::Arc;

use mneme_log::lent::LendingOptions;
use mneme_log::{Builder, Evict, LocalPrograms, LogStore, UpdatePolicy, control_bytes};
use mneme_space::{
    Access, Backing, ContentsInfo, MapError, PagePolicy, Parts, Registry, Segment, SegmentBuilder,
};
use mneme_sys::Clock;

use crate::error::{AttachError, CreateError};
use crate::store::{CONTENTS, CONTENTS_LENDING, SharedStore};
use crate::upgrade::is_halfway;

/// Options of a store in a segment. Those for its creation have no effect if the store exists; its
/// own header counts then.
#[derive(Clone)]
#[must_use = "nothing happens before `create`, `attach` or `open_or_create`"]
pub struct StoreOptions {
    capacity: u64,
    max_capacity: Option<u64>,
    policy: UpdatePolicy,
    pub(crate) evict: Evict,
    maintainer: bool,
    lending: bool,
    idle: Option<LendingOptions>,
    change_feed: Option<bool>,
    pages: PagePolicy,
    mode: u32,
    backing: Backing,
    clock: Option<Arc<dyn Clock>>,
    administers: bool,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            capacity: 1 << 30,
            max_capacity: None,
            policy: UpdatePolicy::default(),
            evict: Evict::None,
            maintainer: true,
            lending: false,
            idle: None,
            change_feed: None,
            pages: PagePolicy::Huge,
            mode: 0o600,
            backing: Backing::default(),
            clock: None,
            administers: false,
        }
    }
}

impl StoreOptions {
    /// A store of 1 GiB on tmpfs, accessible only to its owner, that appends and does not evict.
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of bytes that a new store may take, everything included; see
    /// [`Builder::capacity`]. Memory is allocated as it is used.
    pub fn capacity(mut self, bytes: u64) -> Self {
        self.capacity = bytes;
        self
    }

    /// The number of bytes to which a new store may [grow](LogStore::grow). The default is four
    /// times its capacity, but at most the machine's memory, and at least its capacity. The store's
    /// tables and its index are laid out for that size, so a small store that may become very large
    /// wastes memory; to go beyond, use [`upgrade`](Self::upgrade).
    pub fn max_capacity(mut self, bytes: u64) -> Self {
        self.max_capacity = Some(bytes);
        self
    }

    /// How records of a new store are updated.
    pub fn update_policy(mut self, policy: UpdatePolicy) -> Self {
        self.policy = policy;
        self
    }

    /// What a new store evicts when it is full.
    pub fn evict(mut self, evict: Evict) -> Self {
        self.evict = evict;
        self
    }

    /// The permissions of a new store, as a file mode; the default is 0600.
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// Where a new store is kept; the default is memory ([`Backing::Shared`]).
    pub fn backing(mut self, backing: Backing) -> Self {
        self.backing = backing;
        self
    }

    /// The kind of pages that a new store prefers; the default is huge pages.
    pub fn pages(mut self, pages: PagePolicy) -> Self {
        self.pages = pages;
        self
    }

    /// Whether this process is ready to maintain the store if no other process does. The default is
    /// true for stores attached for writing. See [`Builder::maintainer`].
    pub fn maintainer(mut self, ready: bool) -> Self {
        self.maintainer = ready;
        self
    }

    /// Whether a store that appends returns references to values in place instead of copies. Faster
    /// for large values, but a thread that stops while it has a reference keeps everybody from
    /// reusing memory. For processes that are trusted not to do that.
    pub fn lending(mut self, lending: bool) -> Self {
        self.lending = lending;
        self
    }

    /// Makes a new store lend its unused frames to a cache that all its openings share
    /// ([`LogStore::discardable`]). By default it lends nothing. [`upgrade`](Self::upgrade) keeps
    /// the setting. See [`Builder::lend_idle`].
    pub fn lend_idle(mut self, lending: LendingOptions) -> Self {
        self.idle = Some(lending);
        self
    }

    /// Whether a new store has a [change feed](mneme_log::ChangeFeed); by default it has none.
    /// [`upgrade`](Self::upgrade) keeps the setting. Every change by any process is entered there,
    /// and writers wait unless somebody drains it.
    pub fn change_feed(mut self, feed: bool) -> Self {
        self.change_feed = Some(feed);
        self
    }

    /// The clock; by default the system's.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Attaches the store even if the server's setting `local-programs` forbids it. For tools that
    /// show, check or repair a store.
    pub fn administers(mut self, yes: bool) -> Self {
        self.administers = yes;
        self
    }

    /// Creates the store, completely or not at all, and attaches it for writing.
    ///
    /// # Errors
    /// The name is taken, the capacity is out of range, or the system refuses: one variant each.
    pub fn create(&self, registry: &Registry, name: &str) -> Result<SharedStore, CreateError> {
        let segment = self.make(registry, name)?;
        Ok(self.attach_segment(segment, Access::ReadWrite)?)
    }

    /// As [`create`](Self::create), for a store that is filled from elsewhere before anybody else
    /// uses it, and which may have a [reserved name](mneme_space::Name::beside). Its changes do not
    /// enter its change feed before [`LogStore::end_loading`].
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_loading(
        &self,
        registry: &Registry,
        name: &str,
    ) -> Result<SharedStore, CreateError> {
        let segment = self.make_as(registry, name, SegmentBuilder::beside)?;
        let builder = self.builder().loading(true);
        Ok(self.attach_with(builder, segment, Access::ReadWrite)?)
    }

    /// Creates the store without attaching it.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn make(&self, registry: &Registry, name: &str) -> Result<Segment, CreateError> {
        self.make_as(registry, name, |segment| segment)
    }

    fn make_as<'a>(
        &self,
        registry: &'a Registry,
        name: &str,
        kind: impl FnOnce(SegmentBuilder<'a>) -> SegmentBuilder<'a>,
    ) -> Result<Segment, CreateError> {
        if is_halfway(registry, name) {
            return Err(CreateError::Halfway {
                name: name.to_owned(),
            });
        }
        let four_times = self.capacity.saturating_mul(4);
        let max = self
            .max_capacity
            .unwrap_or(four_times.min(mneme_sys::total_memory()));
        let max = max.max(self.capacity);
        let (size, max) = (bytes(self.capacity)?, bytes(max)?);
        if self.capacity < mneme_log::MIN_CAPACITY {
            return Err(CreateError::Store(mneme_log::OpenError::CapacityTooSmall(
                self.capacity,
            )));
        }
        if let Some(max) = self.max_capacity.filter(|max| *max < self.capacity) {
            return Err(CreateError::Store(mneme_log::OpenError::MaxBelowCapacity {
                capacity: self.capacity,
                max,
            }));
        }
        let segment = kind(registry.segment(name))
            .size(size)
            .max_size(max)
            .mode(self.mode);
        let segment = segment.backing(self.backing.clone()).pages(self.pages);
        let contents = match self.idle {
            Some(_) => &CONTENTS_LENDING,
            None => &CONTENTS,
        };
        segment.create_with(contents, control_bytes(), |parts: Parts| {
            let builder = self.builder().maintainer(false);
            let builder = builder.identity(parts.uuid.to_bytes());
            let store = builder.create_in(parts.data, parts.control, parts.liveness);
            // Detached again before the name exists.
            let store = store.map_err(CreateError::Store)?;
            drop((store, parts.presence));
            Ok(())
        })
    }

    /// Attaches the store of that name. The first attachment of a process takes 0.3 ms, later ones
    /// 0.06 ms, for any size.
    ///
    /// If another process serves the store, its setting `local-programs` may forbid this. That is
    /// checked here only: a program that is already attached stays.
    ///
    /// # Errors
    /// One variant of [`AttachError`] for each part that may be missing, different than expected,
    /// or damaged, or for what forbids it.
    pub fn attach(
        &self,
        registry: &Registry,
        name: &str,
        access: Access,
    ) -> Result<SharedStore, AttachError> {
        let segment = Segment::open(registry, name)?;
        self.attach_if(self.builder(), segment, access, |store| {
            let served = match self.administers {
                true => None,
                // If it cannot be determined, no process is known to forbid it.
                false => store.local_programs().ok().flatten(),
            };
            match served {
                Some((pid, may)) if pid != std::process::id() && !permits(may, access) => {
                    let name = name.to_owned();
                    Err(AttachError::LocalPrograms { name, pid, may })
                }
                _ => Ok(()),
            }
        })
    }

    /// Attaches the store of that name for writing, or creates it if there is none. If several
    /// processes do so at once, one creates it and all attach it.
    ///
    /// # Errors
    /// As [`create`](Self::create) and [`attach`](Self::attach).
    pub fn open_or_create(
        &self,
        registry: &Registry,
        name: &str,
    ) -> Result<SharedStore, CreateError> {
        let attached = self.attach(registry, name, Access::ReadWrite);
        if !matches!(&attached, Err(refused) if refused.is_not_found()) {
            return Ok(attached?);
        }
        match self.create(registry, name) {
            Err(taken) if taken.is_taken() => Ok(self.attach(registry, name, Access::ReadWrite)?),
            created => created,
        }
    }

    /// These options, with the settings for the change feed and for lending taken from `present`
    /// where they are not given.
    pub(crate) fn with_parts_of(&self, present: &LogStore) -> Self {
        let feed = self.change_feed.unwrap_or(present.has_change_feed());
        Self {
            idle: self.idle.or(present.lending()),
            ..self.clone().change_feed(feed)
        }
    }

    pub(crate) fn attach_segment(
        &self,
        segment: Segment,
        access: Access,
    ) -> Result<SharedStore, AttachError> {
        self.attach_with(self.builder(), segment, access)
    }

    fn attach_with(
        &self,
        builder: Builder,
        segment: Segment,
        access: Access,
    ) -> Result<SharedStore, AttachError> {
        self.attach_if(builder, segment, access, |_| Ok(()))
    }

    /// Attaches the store if `permit` agrees, which is asked once this process is listed among the
    /// store's processes: a server that forbids it later finds it there.
    fn attach_if(
        &self,
        builder: Builder,
        segment: Segment,
        access: Access,
        permit: impl FnOnce(&LogStore) -> Result<(), AttachError>,
    ) -> Result<SharedStore, AttachError> {
        let parts = match segment.parts(&CONTENTS, access) {
            Err(MapError::OtherContents {
                holds: Some(holds), ..
            }) if *holds == ContentsInfo::from(&CONTENTS_LENDING) => {
                segment.parts(&CONTENTS_LENDING, access)?
            }
            parts => parts?,
        };
        let writes = access == Access::ReadWrite;
        let builder = builder.maintainer(self.maintainer && writes);
        let store = builder.open_in(parts.data, parts.control, parts.liveness)?;
        permit(&store)?;
        if writes {
            // What dead processes left is repaired before it is relied on. If that is not possible
            // yet, the first operation that needs it fails.
            let _ = store.reap();
        }
        Ok(SharedStore::new(store, parts.presence, segment, access))
    }

    fn builder(&self) -> Builder {
        let builder = LogStore::builder()
            .update_policy(self.policy)
            .evict(self.evict)
            .lending(self.lending)
            .change_feed(self.change_feed == Some(true))
            .page_policy(self.pages);
        let builder = match self.idle {
            Some(lending) => builder.lend_idle(lending),
            None => builder,
        };
        match &self.clock {
            Some(clock) => builder.clock(Arc::clone(clock)),
            None => builder,
        }
    }
}

fn permits(may: LocalPrograms, access: Access) -> bool {
    match may {
        LocalPrograms::Write => true,
        LocalPrograms::Read => access == Access::ReadOnly,
        _ => false,
    }
}

fn bytes(bytes: u64) -> Result<usize, CreateError> {
    usize::try_from(bytes).map_err(|_| {
        let machine = mneme_sys::total_memory();
        CreateError::Store(mneme_log::OpenError::CapacityTooLarge {
            asked: bytes,
            machine,
        })
    })
}
