//! Limits the memory of all clients together: **beyond `maxmemory-clients`, the clients that use
//! most are disconnected, largest first**. Clients that have called `CLIENT NO-EVICT` are neither
//! disconnected nor counted: otherwise their memory alone could cost all others their connections,
//! permanently and without effect. Clients that have not authenticated are disconnected before all
//! others, so that strangers cannot make the server disconnect its users.
//!
//! At the end of a turn each connection adds its memory to its thread's sum: buffers, the queue of
//! a transaction, watched keys. If a connection has grown in a turn, the sums are compared with the
//! limit. So the limit is exceeded only briefly, by what one connection of each thread adds in one
//! turn. That is limited too: a command whose keys would take more is refused, and those of a
//! transaction count while it waits.

use crate::settings::Key;
use crate::shared::Shared;

/// The limit in bytes for all clients together; `None` for no limit.
pub(crate) fn limit(server: &Shared) -> Option<usize> {
    match server.settings.number(Key::MaxMemoryClients) {
        0 => None,
        percent if percent < 0 => {
            let bytes =
                u128::from(server.store.capacity()) * u128::from(percent.unsigned_abs()) / 100;
            Some(usize::try_from(bytes).unwrap_or(usize::MAX))
        }
        bytes => usize::try_from(bytes).ok(),
    }
}

/// Whether a command may use that many bytes while it is executed.
pub(crate) fn admits(server: &Shared, bytes: usize) -> bool {
    limit(server).is_none_or(|limit| bytes <= limit)
}

/// The number of bytes that all clients use.
pub(crate) fn used(server: &Shared) -> usize {
    let sums = (server.threads.iter()).map(|thread| thread.client_memory.get());
    sums.sum()
}

/// Disconnects the largest clients if all together use too much. Clients that have not
/// authenticated come first.
pub(crate) fn evict(server: &Shared) {
    if let Some(limit) = limit(server)
        && used(server) > limit
    {
        let evict = || evict_down_to(server, limit);
        server.evictions.attempt(|| server.now_ms(), evict);
    }
}

/// Returns whether the remaining clients that may be evicted are within the limit.
fn evict_down_to(server: &Shared, limit: usize) -> bool {
    // Evicted clients are no longer listed, although their connections may not be closed yet.
    let mut clients: Vec<_> = (server.clients.list().into_iter())
        .filter_map(|entry| {
            let state = entry.state();
            let (authenticated, spared) = (state.authenticated, state.no_evict_on);
            drop(state);
            (!spared).then(|| (authenticated, entry.memory.get(), entry))
        })
        .collect();
    let mut total: usize = clients.iter().map(|(_, bytes, _)| bytes).sum();
    clients.sort_unstable_by_key(|(authenticated, bytes, _)| {
        (*authenticated, std::cmp::Reverse(*bytes))
    });
    for (_, bytes, entry) in clients {
        if total <= limit {
            return true;
        }
        total -= bytes;
        server.evictions.add();
        tracing::warn!(
            client = entry.id,
            bytes,
            limit,
            "all clients together exceed maxmemory-clients; closing the connection of one"
        );
        server.kill(&entry);
    }
    total <= limit
}
