//! The commands: one file each, in a folder for each chapter of the manual.
//!
//! To add one, copy a neighbour (`strings/get.rs` is the shortest), adapt it, and name it in its
//! folder's `mod.rs`. There is no other place to register it.

mod acl;
mod bits;
mod connection;
mod describe;
mod expiration;
mod generic;
mod geo;
mod hashes;
mod help;
#[cfg(test)]
mod listing;
mod lists;
mod pubsub;
mod range;
mod scripting;
mod server;
mod sets;
mod sorted_sets;
mod strings;
mod transactions;

use std::sync::LazyLock;

use crate::command::{Command, CommandTable};

/// The table of all commands, built on first use.
pub(crate) static TABLE: LazyLock<CommandTable> = LazyLock::new(|| CommandTable::new(all()));

/// All commands, in alphabetical order.
fn all() -> Vec<&'static Command> {
    let mut commands = [
        acl::ALL,
        strings::ALL,
        bits::ALL,
        hashes::ALL,
        lists::ALL,
        sets::ALL,
        sorted_sets::ALL,
        geo::ALL,
        generic::ALL,
        connection::ALL,
        pubsub::ALL,
        scripting::ALL,
        server::ALL,
        transactions::ALL,
    ]
    .concat();
    commands.sort_by_key(|command| command.name);
    commands
}
