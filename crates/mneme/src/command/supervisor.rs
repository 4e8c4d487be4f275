//! Notifications to a service manager (`sd_notify`): that the server serves, the number of its
//! process, and that it ends.
//!
//! Without a service manager that asks for them, nothing is sent.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use sd_notify::NotifyState;

/// Reports that the server serves. After a take-over this also makes this process the service's
/// main one, for which the unit needs `NotifyAccess=all`.
pub fn serving() {
    notify(&[
        NotifyState::Ready,
        NotifyState::MainPid(std::process::id()),
        NotifyState::Status("serving"),
    ]);
}

/// Reports that the data is being loaded, which extends the start's time limit by a minute. Called
/// repeatedly while loading.
pub fn loading() {
    notify(&[
        NotifyState::Status("loading"),
        NotifyState::ExtendTimeoutUsec(60_000_000),
    ]);
}

/// Reports that the server is ending. Not for a server that has handed over, since its successor
/// continues the service.
pub fn stopping() {
    notify(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
}

fn notify(states: &[NotifyState<'_>]) {
    let socket = std::env::var_os("NOTIFY_SOCKET").unwrap_or_default();
    let sent = match socket.as_bytes() {
        [b'@', name @ ..] => notify_abstract(name, states),
        _ => sd_notify::notify(states),
    };
    if let Err(error) = sent {
        tracing::warn!(%error, "the service manager does not accept the status of the server");
    }
}

/// Notifies a socket in the abstract namespace, which the library does not support.
fn notify_abstract(name: &[u8], states: &[NotifyState<'_>]) -> io::Result<()> {
    let lines: String = states.iter().map(|state| format!("{state}\n")).collect();
    let address = SocketAddr::from_abstract_name(name)?;
    UnixDatagram::unbound()?.send_to_addr(lines.as_bytes(), &address)?;
    Ok(())
}
