//! Keys, whatever their values are.

mod del;
mod exists;
mod expire;
mod keys;
mod persist;
mod scan;
mod transfer;
mod ttl;
mod unlink;

use super::definition::Command;

/// This folder's commands.
pub(super) const ALL: &[&Command] = &[
    &del::DEL,
    &exists::EXISTS,
    &expire::EXPIRE,
    &expire::EXPIREAT,
    &expire::PEXPIRE,
    &expire::PEXPIREAT,
    &keys::KEYS,
    &persist::PERSIST,
    &scan::SCAN,
    &transfer::COPY,
    &transfer::MOVE,
    &transfer::RENAME,
    &transfer::RENAMENX,
    &ttl::EXPIRETIME,
    &ttl::PEXPIRETIME,
    &ttl::PTTL,
    &ttl::TTL,
    &unlink::UNLINK,
];
