//! Why a server does not start.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::settings::{MOST_THREADS, Refused};
use mneme_durable::DurableError;
use mneme_log::{DATABASES, OpenError, WriteError};
use mneme_shared::ServeError as SegmentError;

/// Why a server did not start. Nothing of it is left behind.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Another process listens there already.
    #[error("{address} is in use by another server; stop it, or choose another port")]
    AddressInUse {
        /// Where.
        address: SocketAddr,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// Where.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The unix socket cannot be listened on.
    #[error("cannot listen on the unix socket {}: {source}", path.display())]
    UnixSocket {
        /// Where.
        path: PathBuf,
        /// What the system says.
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
        /// How large it was to be.
        bytes: u64,
        /// Why not.
        source: OpenError,
    },
    /// The store does not take what it is to forget.
    #[error("cannot set what the store forgets when it is full: {0}")]
    Eviction(WriteError),
    /// TLS cannot be spoken as the settings say.
    #[error("{0}")]
    Tls(String),
    /// The file of users cannot be read, or something in it makes no sense.
    #[error("{0}")]
    Users(String),
    /// What is said about data on disk does not go together.
    #[error("invalid value for '{name}': {reason}")]
    Data {
        /// The setting.
        name: &'static str,
        /// What is wrong with it.
        reason: Refused,
    },
    /// A store that the embedding program has opened is kept on disk by that program, or not at
    /// all.
    #[error(
        "a store that the program has opened itself cannot be kept in a directory by the server"
    )]
    OwnStore,
    /// The store could not be loaded from its directory, or cannot be kept there.
    #[error("cannot serve from {}: {source}{}", directory.display(), advice(directory, source))]
    Durable {
        /// The directory.
        directory: PathBuf,
        /// What is wrong.
        source: DurableError,
    },
    /// The segment is kept in a directory, which was not named.
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
        /// What it was asked for.
        what: &'static str,
        /// What it says.
        source: io::Error,
    },
}

/// What to do about a directory that is damaged.
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
    /// Whether the server was [stopped](super::Stopper::stop) while it loaded what it was to serve.
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

    /// Whether another process serves what was to be served.
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
