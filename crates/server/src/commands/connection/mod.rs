//! Commands about the connection itself.

mod auth;
mod client;
mod echo;
mod hello;
mod ping;
mod quit;
mod reset;
mod select;

use crate::command::{Category, Command, Flag, Group};

/// This folder's commands.
pub(super) const ALL: &[&Command] = &[
    &auth::AUTH,
    &client::CLIENT,
    &echo::ECHO,
    &hello::HELLO,
    &ping::PING,
    &quit::QUIT,
    &reset::RESET,
    &select::SELECT,
];

/// The common fields of commands that any client may send, in any state of the server.
const ALWAYS: Command = Command {
    group: Group::Connection,
    flags: &[
        Flag::NoScript,
        Flag::Loading,
        Flag::Stale,
        Flag::Fast,
        Flag::NoAuth,
        Flag::AllowBusy,
    ],
    categories: &[Category::Connection],
    ..Command::BLANK
};
