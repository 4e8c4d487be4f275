//! What a service manager is told (`sd_notify`): that the server serves, who it is, and that it ends.
//!
//! Without a manager that wants to know, nothing happens.

use sd_notify::NotifyState;

/// The server serves. After a take-over this process is the service's main one from here on, for which the unit needs
/// `NotifyAccess=all`.
pub fn serving() {
    tell(&[
        NotifyState::Ready,
        NotifyState::MainPid(std::process::id()),
        NotifyState::Status("serving"),
    ]);
}

/// The server finishes what it has begun and ends. Not for one that has handed over: its successor is the service.
pub fn stopping() {
    tell(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the service manager cannot be told how the server fares");
    }
}
