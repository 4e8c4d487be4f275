//! Commands about the server itself.

mod command;
mod config;
mod dbsize;
mod debug;
mod enabled;
mod flush;
mod info;
mod latency;
mod lolwut;
mod memory;
mod mneme_command;
mod monitor;
mod save;
mod shutdown;
mod slowlog;
mod swapdb;
mod time;

use crate::command::Command;

/// This folder's commands.
pub(super) const ALL: &[&Command] = &[
    &command::COMMAND,
    &config::CONFIG,
    &dbsize::DBSIZE,
    &debug::DEBUG,
    &flush::FLUSHALL,
    &flush::FLUSHDB,
    &info::INFO,
    &latency::LATENCY,
    &lolwut::LOLWUT,
    &memory::MEMORY,
    &mneme_command::MNEME,
    &monitor::MONITOR,
    &save::BGREWRITEAOF,
    &save::BGSAVE,
    &save::LASTSAVE,
    &save::SAVE,
    &shutdown::SHUTDOWN,
    &slowlog::SLOWLOG,
    &swapdb::SWAPDB,
    &time::TIME,
];
