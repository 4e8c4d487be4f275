//! Why a server does not start.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::settings::{MOST_THREADS, Refused};
use mneme_durable::DurableError;
use mneme_log::{DATABASES, OpenError, WriteError};
use mneme_shared::ServeError as SegmentError;

/// Why a server did not start. A failed start leaves nothing behind.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Another process already listens at the address.
    #[error("{address} is in use by another server; stop it, or choose another port")]
    AddressInUse {
        /// The address.
        address: SocketAddr,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The unix socket cannot be listened on.
    #[error("cannot listen on the unix socket {}: {source}", path.display())]
    UnixSocket {
        /// The socket's path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// There is nothing to listen on: no address, and no unix socket.
    #[error("there is nothing to listen on: give an address or a unix socket")]
    NothingToListenOn,
    /// The number of threads is out of range.
    #[error("{0} threads: the number must be from 1 to {MOST_THREADS}")]
    Threads(usize),
    /// The number of databases is out of range.
    #[error("{0} databases: the number must be from 1 to {DATABASES}")]
    Databases(usize),
    /// The store could not be opened.
    #[error("cannot open a store of {bytes} bytes: {source}")]
    Store {
        /// The store's size in bytes.
        bytes: u64,
        /// The error.
        source: OpenError,
    },
    /// The store refuses the eviction policy.
    #[error("cannot set what the store forgets when it is full: {0}")]
    Eviction(WriteError),
    /// The TLS settings are not usable.
    #[error("{0}")]
    Tls(String),
    /// The file of users cannot be read, or has an error in it.
    #[error("{0}")]
    Users(String),
    /// The settings for data on disk contradict each other.
    #[error("invalid value for '{name}': {reason}")]
    Data {
        /// The setting.
        name: &'static str,
        /// The reason.
        reason: Refused,
    },
    /// A store opened by the embedding program cannot be kept in a directory by the server: keeping
    /// it on disk is up to that program.
    #[error(
        "a store that the program has opened itself cannot be kept in a directory by the server"
    )]
    OwnStore,
    /// The store could not be loaded from its directory, or cannot be kept there.
    #[error("cannot serve from {}: {source}{}", directory.display(), advice(directory, source))]
    Durable {
        /// The directory.
        directory: PathBuf,
        /// The error.
        source: DurableError,
    },
    /// The segment is kept in a directory, but the settings name none.
    #[error(
        "segment `{0}` is kept in a directory, and would lose what is not written there yet: start with --data and that \
         directory"
    )]
    KeptElsewhere(String),
    /// The segment could not be opened for serving.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// The operating system refuses a thread, an event queue or randomness.
    #[error("the operating system refuses {what}: {source}")]
    System {
        /// What the server needed.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// Advice on how to handle a damaged directory.
fn advice(directory: &Path, error: &DurableError) -> String {
    match error {
        DurableError::DamagedValue { .. } => String::new(),
        DurableError::Tree(error) if error.is_damage() => format!(
            "; `mneme tree check {}` reads all of it",
            directory.join("store.tree").display()
        ),
        error if error.is_damage() => format!(
            "; `mneme journal check {}` says what a repair would lose",
            directory.display()
        ),
        _ => String::new(),
    }
}

impl StartError {
    /// Whether the server was [stopped](super::Stopper::stop) while it loaded its data.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        matches!(
            self,
            StartError::Durable {
                source: DurableError::Stopped,
                ..
            }
        )
    }

    /// Whether another process already serves the store or segment.
    #[must_use]
    pub fn is_served(&self) -> bool {
        match self {
            StartError::Segment(SegmentError::Role { .. }) => true,
            StartError::Durable { source, .. } => matches!(
                source,
                DurableError::Serve(SegmentError::Role { .. }) | DurableError::InUse { .. }
            ),
            _ => false,
        }
    }
}
