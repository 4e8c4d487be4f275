//! Hashes: fields with values under one key.
//!
//! A small hash is one record: a command reads all of it, and a change rewrites it. A large one has
//! its fields in leaves.

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
