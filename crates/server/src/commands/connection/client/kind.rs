//! Kinds of clients, as `CLIENT LIST` and `CLIENT KILL` distinguish them.

use crate::command::*;

/// A kind of client. So far all are normal ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientKind {
    Normal,
    /// A replica, its master, or a subscriber.
    Other,
}

/// The kind with this name, in any case.
pub(super) fn kind(name: &[u8]) -> Result<ClientKind, Failure> {
    let is = |word: &str| name.eq_ignore_ascii_case(word.as_bytes());
    if is("normal") {
        Ok(ClientKind::Normal)
    } else if ["master", "replica", "slave", "pubsub"].into_iter().any(is) {
        Ok(ClientKind::Other)
    } else {
        Err(Failure::quoting("ERR Unknown client type '", name, "'"))
    }
}
