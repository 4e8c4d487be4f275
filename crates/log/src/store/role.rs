//! The server's role: **one opening at a time serves a store**, even after the previous one died.
//!
//! It is a [lease](mneme_sync::Lease) of the store's control region, which the kernel takes from
//! dead processes. The maintainer has another lease, see [`crate::store::maintainer`].

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};

use mneme_sync::{Lease, LeaseError};
use thiserror::Error;

use crate::session::SERVER_LEASE;
use crate::store::components::Store;

/// The right to serve a store, see
/// [`LogStore::take_server_role`](crate::LogStore::take_server_role).
///
/// Dropping it releases the role at once, and so does the death of the process. Until then the
/// opening stays attached. `Send` and `Sync`. A forked child does not have it.
#[must_use = "dropping it gives the role back at once"]
pub struct ServerRole {
    lease: Lease,
    /// Keeps the opening attached.
    store: Arc<Store>,
}

impl std::fmt::Debug for ServerRole {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ServerRole").field(&self.lease).finish()
    }
}

/// What a store's server lets other processes do that attach the store. Libraries of this version
/// keep to it; nothing enforces it against a process that can map the store's files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum LocalPrograms {
    /// Read and write, as far as the files' modes allow it.
    #[default]
    Write,
    /// Read.
    Read,
    /// Nothing: no other process may attach.
    None,
}

impl LocalPrograms {
    /// The word of the store's header. An unknown word means the strictest value.
    fn of_word(word: u64) -> Self {
        match word {
            0 => Self::Write,
            1 => Self::Read,
            _ => Self::None,
        }
    }
}

impl std::fmt::Display for LocalPrograms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::None => "none",
        })
    }
}

/// Why an opening does not serve its store.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RoleError {
    /// Another opening does, perhaps in this process.
    #[error("the store is being served by {}; stop that server, or be a client of it", named(*pid))]
    Taken {
        /// Its process. 0 if it is just beginning or ending, or is not visible from here.
        pid: u32,
    },
    /// The holder cannot be determined.
    #[error(transparent)]
    Lease(#[from] LeaseError),
}

fn named(pid: u32) -> String {
    match pid {
        0 => "a process that begins or ends this very moment, or is not to be seen from here"
            .to_owned(),
        pid => format!("process {pid}"),
    }
}

impl ServerRole {
    /// See [`LogStore::take_server_role`](crate::LogStore::take_server_role).
    pub(crate) fn take(store: &Arc<Store>) -> Result<ServerRole, RoleError> {
        let participants = &store.session().participants;
        // The holder may release the role before it is identified.
        for _ in 0..8 {
            if let Some(lease) = participants.try_lease(SERVER_LEASE)? {
                let store = Arc::clone(store);
                return Ok(ServerRole { lease, store });
            }
            if let Some(pid) = participants.lease_holder(SERVER_LEASE)? {
                return Err(RoleError::Taken { pid });
            }
        }
        Err(RoleError::Taken { pid: 0 })
    }

    /// Says what other processes may do that attach the store from here on. It counts as long as
    /// some process has the role: the next one keeps it until it says otherwise.
    pub fn set_local_programs(&self, may: LocalPrograms) {
        let header = self.store.session().tables.header();
        // SYNC: pairs with the load in `local_programs`.
        header.local_programs.store(may as u64, Release);
    }
}

/// The process that serves the store, and what it lets others do. `None`: no process serves it.
pub(crate) fn local_programs(store: &Store) -> Result<Option<(u32, LocalPrograms)>, LeaseError> {
    let session = store.session();
    let Some(pid) = session.participants.lease_holder(SERVER_LEASE)? else {
        return Ok(None);
    };
    // SYNC: pairs with the store in `set_local_programs`.
    let word = session.tables.header().local_programs.load(Acquire);
    Ok(Some((pid, LocalPrograms::of_word(word))))
}
