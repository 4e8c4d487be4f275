//! Kinds of clients, as `CLIENT LIST` and `CLIENT KILL` distinguish them.

use crate::client::Entry;
use crate::command::*;

/// A kind of client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientKind {
    Normal,
    /// A subscriber.
    PubSub,
    /// A replica, or its master. There are none.
    Other,
}

impl ClientKind {
    /// Whether a client is of this kind.
    pub fn is_of(self, entry: &Entry) -> bool {
        match (self, entry.state().subscriptions.any()) {
            (ClientKind::Normal, is_subscriber) => !is_subscriber,
            (ClientKind::PubSub, is_subscriber) => is_subscriber,
            (ClientKind::Other, _) => false,
        }
    }
}

/// The kind with this name, in any case.
pub(super) fn kind(name: &[u8]) -> Result<ClientKind, Failure> {
    let is = |word: &str| name.eq_ignore_ascii_case(word.as_bytes());
    if is("normal") {
        Ok(ClientKind::Normal)
    } else if is("pubsub") {
        Ok(ClientKind::PubSub)
    } else if ["master", "replica", "slave"].into_iter().any(is) {
        Ok(ClientKind::Other)
    } else {
        Err(Failure::quoting("ERR Unknown client type '", name, "'"))
    }
}
