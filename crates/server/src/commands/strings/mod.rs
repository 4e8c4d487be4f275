//! Strings: bytes under a key.

mod append;
mod arithmetic;
mod decr;
mod decrby;
mod get;
mod getdel;
mod getex;
mod getrange;
mod getset;
mod incr;
mod incrby;
mod incrbyfloat;
mod lcs;
mod mget;
mod mset;
mod set;
mod setex;
mod setnx;
mod setrange;
mod strlen;
mod subsequence;

use crate::command::Command;

/// This folder's commands.
pub(super) const ALL: &[&Command] = &[
    &append::APPEND,
    &decr::DECR,
    &decrby::DECRBY,
    &get::GET,
    &getdel::GETDEL,
    &getex::GETEX,
    &getrange::GETRANGE,
    &getrange::SUBSTR,
    &getset::GETSET,
    &incr::INCR,
    &incrby::INCRBY,
    &incrbyfloat::INCRBYFLOAT,
    &lcs::LCS,
    &mget::MGET,
    &mset::MSET,
    &mset::MSETNX,
    &set::SET,
    &setex::PSETEX,
    &setex::SETEX,
    &setnx::SETNX,
    &setrange::SETRANGE,
    &strlen::STRLEN,
];
