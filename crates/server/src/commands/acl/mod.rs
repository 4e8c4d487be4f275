//! `ACL`: users and their permissions.

mod cat;
mod dryrun;
mod file;
mod genpass;
mod log;
mod show;
mod users;

use super::help;
use crate::command::*;

/// This folder's commands.
pub(super) const ALL: &[&Command] = &[&ACL];

static ACL: Command = Command {
    name: "acl",
    summary: "A container for commands about users and what they may do",
    since: "6.0.0",
    subcommands: &[
        &cat::CAT,
        &users::DELUSER,
        &dryrun::DRYRUN,
        &genpass::GENPASS,
        &show::GETUSER,
        &HELP,
        &show::LIST,
        &file::LOAD,
        &log::LOG,
        &file::SAVE,
        &users::SETUSER,
        &show::USERS,
        &users::WHOAMI,
    ],
    ..help::CONTAINER
};

/// The common fields of the subcommands that any user may call.
const PLAIN: Command = Command {
    since: "6.0.0",
    group: Group::Server,
    flags: &[Flag::NoScript, Flag::Loading, Flag::Stale],
    ..Command::BLANK
};

/// The common fields of the other subcommands.
const ADMIN: Command = Command {
    flags: &[Flag::Admin, Flag::NoScript, Flag::Loading, Flag::Stale],
    ..PLAIN
};

static HELP: Command = Command {
    name: "acl|help",
    since: "6.0.0",
    run: |call| help::of(call, &ACL),
    ..help::HELP
};

/// The name of a user, the first argument of a subcommand.
const USER_NAME: Argument = Argument::new("username", Kind::String);
