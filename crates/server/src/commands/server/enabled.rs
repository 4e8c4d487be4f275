//! Commands that a setting enables only for some connections.

use std::net::SocketAddr;

use crate::command::*;
use crate::settings::Key;

/// Refuses `command` unless the setting enables it for this connection: no, yes, or local. A
/// connection is local if it uses a unix socket or comes from a loopback address.
pub(super) fn check(call: &Call<'_>, key: Key, command: &str) -> Outcome {
    let is_enabled = match call.server.settings.number(key) {
        0 => false,
        1 => true,
        _ => is_local(&call.client.entry.peer),
    };
    if is_enabled {
        return Ok(());
    }
    let name = key.setting().name;
    Err(Failure::other(format!(
        "ERR {command} command not allowed. If the {name} option is set to \"local\", you can run it from a \
         local connection, otherwise you need to set this option in the configuration file, and then restart the server."
    )))
}

fn is_local(peer: &str) -> bool {
    let ip = peer.parse().map(|peer: SocketAddr| peer.ip());
    peer.starts_with('/') || ip.is_ok_and(|ip| ip.to_canonical().is_loopback())
}
