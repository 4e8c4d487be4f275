//! Strings: bytes under a key.

mod append;
mod arithmetic;
mod decr;
mod decrby;
mod get;
mod getset;
mod incr;
mod incrby;
mod mget;
mod mset;
mod set;
mod setnx;
mod strlen;

use super::definition::Command;

/// This folder's commands.
pub(super) const ALL: &[&Command] = &[
    &append::APPEND,
    &decr::DECR,
    &decrby::DECRBY,
    &get::GET,
    &getset::GETSET,
    &incr::INCR,
    &incrby::INCRBY,
    &mget::MGET,
    &mset::MSET,
    &set::SET,
    &setnx::SETNX,
    &strlen::STRLEN,
];
