//! The store that a server serves: its own, one that the embedding program gave it, or one in a
//! segment.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use mneme_log::{LogStore, Notification, SlotError};
use mneme_shared::{Found, Opening, Registry, ServeError, Served};

use crate::server::StartError;

/// The store behind the clients.
pub(crate) enum Backing {
    /// Memory of this process, or what the embedding program gave.
    Process(Arc<LogStore>),
    /// A segment, which outlives the server and which local programs attach.
    Segment(Box<Served>),
}

impl Backing {
    /// The segment's name, if it is in one.
    pub fn segment(&self) -> Option<&str> {
        match self {
            Backing::Process(_) => None,
            Backing::Segment(served) => Some(served.segment().name().as_str()),
        }
    }

    /// See [`Served::drain_changes`]; nothing, of a store that no local program can attach.
    pub fn drain_changes(
        &self,
        most: usize,
        receive: impl FnMut(Notification<'_>),
    ) -> Result<usize, SlotError> {
        match self {
            Backing::Process(_) => Ok(0),
            Backing::Segment(served) => served.drain_changes(most, receive),
        }
    }

    /// See [`Served::settle`].
    pub fn settle(&self) -> Result<(), ServeError> {
        match self {
            Backing::Process(_) => Ok(()),
            Backing::Segment(served) => served.settle(),
        }
    }
}

impl Deref for Backing {
    type Target = LogStore;

    #[inline]
    fn deref(&self) -> &LogStore {
        match self {
            Backing::Process(store) => store,
            Backing::Segment(served) => served,
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

/// Where a server's records are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// In memory of this process: gone when it ends.
    Process,
    /// In a segment.
    Segment {
        /// Its name.
        name: String,
        /// Its registry's directory.
        registry: PathBuf,
        /// How it was found.
        found: Found,
        /// Records that it held then, in all databases.
        records: u64,
        /// Whether it is gone with the machine's boot.
        volatile: bool,
    },
}

impl Wanted {
    /// Opens it for serving.
    pub fn open(self) -> Result<(Backing, Origin), StartError> {
        // Replies are sent from where values lie. A server that is stopped cannot serve anyway, so
        // its pins harm nobody else.
        let opening = self.opening.lending(true);
        let served = opening.open(&self.registry, &self.name)?;
        let records = served.records();
        let origin = Origin::Segment {
            name: self.name,
            registry: self.registry.root().to_owned(),
            found: served.found().clone(),
            records,
            volatile: served.is_volatile(),
        };
        Ok((Backing::Segment(Box::new(served)), origin))
    }
}
