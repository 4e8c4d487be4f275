//! Sets: distinct members under one key.
//!
//! A small set is one record, all of which every command reads. A large one has its members in
//! leaves.

mod combine;
mod sadd;
mod sismember;
mod smembers;
mod smove;
mod spop;
mod srandmember;
mod srem;
mod sscan;
mod store;

use crate::command::Command;

/// This folder's commands.
pub(super) const ALL: &[&Command] = &[
    &combine::SDIFF,
    &combine::SINTER,
    &combine::SINTERCARD,
    &combine::SUNION,
    &sadd::SADD,
    &sismember::SCARD,
    &sismember::SISMEMBER,
    &sismember::SMISMEMBER,
    &smembers::SMEMBERS,
    &smove::SMOVE,
    &spop::SPOP,
    &srandmember::SRANDMEMBER,
    &srem::SREM,
    &sscan::SSCAN,
    &store::SDIFFSTORE,
    &store::SINTERSTORE,
    &store::SUNIONSTORE,
];
