//! The server itself.

mod command;
mod config;
mod dbsize;
mod flush;
mod info;
mod shutdown;
mod time;

use mneme_log::Evict;

use super::definition::Command;
use crate::shared::Shared;

/// This folder's commands.
pub(super) const ALL: &[&Command] = &[
    &command::COMMAND,
    &config::CONFIG,
    &dbsize::DBSIZE,
    &flush::FLUSHALL,
    &flush::FLUSHDB,
    &info::INFO,
    &shutdown::SHUTDOWN,
    &time::TIME,
];

/// What the store may forget when it is full, as Redis names it. Programs that have attached it may change it.
fn eviction(server: &Shared) -> &'static str {
    match server.store.eviction() {
        Evict::None => "noeviction",
        Evict::Lru => "allkeys-lru",
        Evict::Lfu => "allkeys-lfu",
        Evict::Random => "allkeys-random",
        Evict::ExpiringLru => "volatile-lru",
        Evict::ExpiringLfu => "volatile-lfu",
        Evict::ExpiringRandom => "volatile-random",
        Evict::ExpiringSoonest => "volatile-ttl",
        _ => "unknown",
    }
}
