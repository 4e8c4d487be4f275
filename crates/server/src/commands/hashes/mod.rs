//! Hashes: fields with values under one key.
//!
//! A hash is one record. A command reads all of it, and one that changes it stores it anew: the
//! cost of every command grows with the whole hash.

mod hdel;
mod hget;
mod hgetall;
mod hincrby;
mod hrandfield;
mod hscan;
mod hset;

use crate::command::Command;
pub(in crate::commands) use hscan::scan_elements;

/// This folder's commands.
pub(super) const ALL: &[&Command] = &[
    &hdel::HDEL,
    &hget::HEXISTS,
    &hget::HGET,
    &hget::HLEN,
    &hget::HMGET,
    &hget::HSTRLEN,
    &hgetall::HGETALL,
    &hgetall::HKEYS,
    &hgetall::HVALS,
    &hincrby::HINCRBY,
    &hincrby::HINCRBYFLOAT,
    &hrandfield::HRANDFIELD,
    &hscan::HSCAN,
    &hset::HMSET,
    &hset::HSET,
    &hset::HSETNX,
];
