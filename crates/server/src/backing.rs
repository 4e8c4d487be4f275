//! The store that a server serves: its own, one given by the embedding program, or one in a
//! segment.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use mneme_durable::{Durability, DurableStore};
use mneme_log::{LocalPrograms, LogStore, Notification, Sleep, SlotError};
use mneme_shared::{Found, Opening, Registry, ServeError, Served};

use crate::server::StartError;

/// The store behind the clients.
pub(crate) enum ServedStore {
    /// Memory of this process, or a store given by the embedding program.
    Process(Arc<LogStore>),
    /// A segment, which outlives the server and which local programs attach.
    Segment(Box<Served>),
    /// Memory of this process, kept in a directory.
    Kept(Box<DurableStore>),
    /// A segment, kept in a directory.
    KeptSegment(Durability, Arc<Served>),
}

impl ServedStore {
    /// The segment that contains it, if local programs can attach it.
    fn served(&self) -> Option<&Served> {
        match self {
            ServedStore::Process(_) | ServedStore::Kept(_) => None,
            ServedStore::Segment(served) => Some(served),
            ServedStore::KeptSegment(_, served) => Some(served),
        }
    }

    /// The segment's name, if it is in one.
    pub fn segment(&self) -> Option<&str> {
        Some(self.served()?.segment().name().as_str())
    }

    /// The durability of a store that is kept in a directory.
    pub fn durability(&self) -> Option<&Durability> {
        match self {
            ServedStore::Process(_) | ServedStore::Segment(_) => None,
            ServedStore::Kept(store) => Some(store.durability()),
            ServedStore::KeptSegment(durability, _) => Some(durability),
        }
    }

    /// As [`Served::drain_changes`]; does nothing for a store that no local program can attach.
    pub fn drain_changes(
        &self,
        most: usize,
        receive: impl FnMut(Notification<'_>),
    ) -> Result<usize, SlotError> {
        let served = self.served();
        served.map_or(Ok(0), |served| served.drain_changes(most, receive))
    }

    /// As [`Served::sleep_for_changes`].
    pub fn sleep_for_changes(&self) -> Option<Sleep> {
        self.served()?.sleep_for_changes()
    }

    /// As [`Served::set_local_programs`].
    pub fn set_local_programs(&self, may: LocalPrograms) {
        if let Some(served) = self.served() {
            served.set_local_programs(may);
        }
    }

    /// As [`Served::settle`].
    pub fn settle(&self) -> Result<(), ServeError> {
        self.served().map_or(Ok(()), Served::settle)
    }
}

impl Deref for ServedStore {
    type Target = LogStore;

    #[inline]
    fn deref(&self) -> &LogStore {
        match self {
            ServedStore::Process(store) => store,
            ServedStore::Segment(served) => served,
            ServedStore::Kept(store) => store,
            ServedStore::KeptSegment(_, served) => served,
        }
    }
}

/// The store as the server's threads see it. While it is being loaded, it is empty until it is
/// [opened](Self::open), and no command reads or writes it.
pub(crate) struct LateStore {
    opened: OnceLock<ServedStore>,
    /// An empty store, used until then.
    empty: Option<ServedStore>,
}

impl LateStore {
    /// A store that is already open.
    pub fn opened(store: ServedStore) -> Self {
        Self {
            opened: OnceLock::from(store),
            empty: None,
        }
    }

    /// A store that is to be loaded while clients connect.
    ///
    /// # Errors
    /// There is no memory for the empty store.
    pub fn loading() -> Result<Self, StartError> {
        let bytes = mneme_log::MIN_CAPACITY;
        let empty = LogStore::builder().capacity(bytes).open_private();
        let empty = empty.map_err(|source| StartError::Store { bytes, source })?;
        Ok(Self {
            opened: OnceLock::new(),
            empty: Some(ServedStore::Process(Arc::new(empty))),
        })
    }

    /// Replaces the empty store by `store`.
    pub fn open(&self, store: ServedStore) {
        // The store is opened only here, and only once.
        let _ = self.opened.set(store);
    }

    /// Whether it is still being loaded.
    #[inline]
    pub fn is_loading(&self) -> bool {
        self.opened.get().is_none()
    }
}

impl Deref for LateStore {
    type Target = ServedStore;

    #[inline]
    fn deref(&self) -> &ServedStore {
        match (self.opened.get(), &self.empty) {
            (Some(store), _) | (None, Some(store)) => store,
            (None, None) => unreachable!("it is made with one of the two"),
        }
    }
}

/// The segment that a server is to serve.
#[derive(Clone)]
pub(crate) struct Wanted {
    pub registry: Registry,
    pub name: String,
    pub opening: Opening,
}

/// Where a server's records are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreOrigin {
    /// In memory of this process: lost when it ends.
    Process,
    /// In a segment.
    Segment {
        /// Its name.
        name: String,
        /// Its registry's directory.
        registry: PathBuf,
        /// The state in which it was found.
        found: Found,
        /// The number of records that it had then, in all databases.
        records: u64,
        /// Whether it is lost at a reboot.
        volatile: bool,
    },
}

impl Wanted {
    /// Opens it for serving.
    pub fn open(self) -> Result<(ServedStore, StoreOrigin), StartError> {
        // Replies are sent directly from the values in the store. A server that is stopped cannot
        // serve anyway, so its pins harm nobody else.
        let opening = self.opening.lending(true);
        let served = match opening.open(&self.registry, &self.name) {
            Err(ServeError::Fed { name }) => return Err(StartError::KeptElsewhere(name)),
            opened => opened?,
        };
        let origin = StoreOrigin::of(&served);
        Ok((ServedStore::Segment(Box::new(served)), origin))
    }
}

impl StoreOrigin {
    /// The segment of a store that was just opened.
    pub(crate) fn of(served: &Served) -> Self {
        let segment = served.segment();
        StoreOrigin::Segment {
            name: segment.name().as_str().to_owned(),
            registry: segment.registry().root().to_owned(),
            found: served.found().clone(),
            records: served.records(),
            volatile: served.is_volatile(),
        }
    }
}
