//! The commands: one file each, in a folder for each chapter of the manual.
//!
//! To add one, copy a neighbour (`strings/get.rs` is the shortest), change what it says, and name
//! it in its folder's `mod.rs`. There is no other place to register it.

mod bits;
mod call;
mod connection;
mod definition;
mod describe;
mod expiration;
mod generic;
mod help;
mod keys;
#[cfg(test)]
mod listing;
mod lookup;
mod range;
mod scripting;
mod server;
mod strings;
mod transactions;

pub(crate) use call::{Call, Failure};
pub(crate) use definition::{Batching, Command, Flag, Reach};
pub(crate) use lookup::TABLE;

/// What a command's file needs.
pub(crate) mod prelude {
    pub(crate) use super::call::{Call, Failure, Outcome};
    pub(crate) use super::definition::{
        Argument, Batching, Category, Command, Flag, Group, Kind, PART, Reach,
    };
    pub(crate) use super::keys::{KeyFlag, KeySpec};
}

/// All commands, in alphabetical order.
fn all() -> Vec<&'static Command> {
    let mut commands = [
        strings::ALL,
        bits::ALL,
        generic::ALL,
        connection::ALL,
        scripting::ALL,
        server::ALL,
        transactions::ALL,
    ]
    .concat();
    commands.sort_by_key(|command| command.name);
    commands
}
