//! `CLIENT`: lists, names, pauses and disconnects clients.

mod identity;
mod kill;
mod kind;
mod list;
mod pause;
mod reply;
mod tracking;
mod unblock;

pub(super) use identity::check_name;

use crate::command::*;
use crate::commands::help;

pub(super) static CLIENT: Command = Command {
    name: "client",
    summary: "A container for commands about connections",
    since: "2.4.0",
    group: Group::Connection,
    subcommands: &[
        &tracking::CACHING,
        &identity::GETNAME,
        &tracking::GETREDIR,
        &HELP,
        &identity::ID,
        &list::INFO,
        &kill::KILL,
        &list::LIST,
        &reply::NO_EVICT,
        &pause::PAUSE,
        &reply::REPLY,
        &identity::SETINFO,
        &identity::SETNAME,
        &tracking::TRACKING,
        &tracking::TRACKINGINFO,
        &unblock::UNBLOCK,
        &pause::UNPAUSE,
    ],
    ..help::CONTAINER
};

/// The common fields of the subcommands that concern only the client itself.
const PLAIN: Command = Command {
    group: Group::Connection,
    flags: &[Flag::NoScript, Flag::Loading, Flag::Stale],
    categories: &[Category::Connection],
    ..Command::BLANK
};

/// The common fields of the subcommands that also concern others.
const ADMIN: Command = Command {
    flags: &[Flag::Admin, Flag::NoScript, Flag::Loading, Flag::Stale],
    ..PLAIN
};

static HELP: Command = Command {
    name: "client|help",
    group: Group::Connection,
    categories: &[Category::Connection],
    run: |call| help::of(call, &CLIENT),
    ..help::HELP
};
