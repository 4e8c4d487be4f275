//! Why a server does not start.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::settings::MOST_THREADS;
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
