//! Notifications to a service manager (`sd_notify`): that the server serves, which process it is,
//! and that it ends.
//!
//! Without a manager that wants to know, nothing happens.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use sd_notify::NotifyState;

/// The server serves. After a take-over this process is the service's main one from here on, for
/// which the unit needs `NotifyAccess=all`.
pub fn serving() {
    notify(&[
        NotifyState::Ready,
        NotifyState::MainPid(std::process::id()),
        NotifyState::Status("serving"),
    ]);
}

/// The data is being loaded, for a minute more at least. Called again and again meanwhile.
pub fn loading() {
    notify(&[
        NotifyState::Status("loading"),
        NotifyState::ExtendTimeoutUsec(60_000_000),
    ]);
}

/// The server finishes what it has begun and ends. Not for one that has handed over: its successor
/// is the service.
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

/// Notifies a socket in the abstract namespace, of which the library knows nothing.
fn notify_abstract(name: &[u8], states: &[NotifyState<'_>]) -> io::Result<()> {
    let lines: String = states.iter().map(|state| format!("{state}\n")).collect();
    let address = SocketAddr::from_abstract_name(name)?;
    UnixDatagram::unbound()?.send_to_addr(lines.as_bytes(), &address)?;
    Ok(())
}
