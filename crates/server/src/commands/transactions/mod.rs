//! Transactions: commands that are executed together or not at all.

mod discard;
mod exec;
mod multi;
mod unwatch;
mod watch;

use crate::command::{Category, Command, Flag, Group};

/// This folder's commands.
pub(super) const ALL: &[&Command] = &[
    &discard::DISCARD,
    &exec::EXEC,
    &multi::MULTI,
    &unwatch::UNWATCH,
    &watch::WATCH,
];

/// The common fields of the commands for transactions.
const PLAIN: Command = Command {
    group: Group::Transactions,
    arity: 1,
    flags: &[
        Flag::NoScript,
        Flag::Loading,
        Flag::Stale,
        Flag::Fast,
        Flag::AllowBusy,
    ],
    categories: &[Category::Transaction],
    ..Command::BLANK
};
