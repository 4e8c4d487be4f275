//! Transactions: commands that are executed together or not at all.

mod discard;
mod exec;
mod multi;
mod unwatch;
mod watch;

use crate::command::Command;

/// This folder's commands.
pub(super) const ALL: &[&Command] = &[
    &discard::DISCARD,
    &exec::EXEC,
    &multi::MULTI,
    &unwatch::UNWATCH,
    &watch::WATCH,
];
