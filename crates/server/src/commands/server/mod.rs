//! The server itself.

mod command;
mod config;
mod dbsize;
mod flush;
mod info;
mod shutdown;
mod time;

use super::definition::Command;

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
