//! The connection itself.

mod auth;
mod client;
mod echo;
mod hello;
mod ping;
mod quit;
mod reset;
mod select;

use crate::command::Command;

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
