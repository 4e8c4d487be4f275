//! The log of denied calls for `ACL LOG`: the latest events, with equal ones counted together.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The number of latest events that are compared with a new one.
const LOOKED_AT: usize = 10;

/// Milliseconds for which equal events count as one.
const TOGETHER_MS: u64 = 60_000;

/// Why something was denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DenialReason {
    Command,
    Key,
    Channel,
    Auth,
}

/// Where the call came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Context {
    TopLevel,
    Multi,
}

/// A call that was denied.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub reason: DenialReason,
    pub context: Context,
    /// The command, or the key.
    pub object: Vec<u8>,
    pub user: Vec<u8>,
    /// The client's line in `CLIENT LIST`.
    pub client: String,
    /// When it last happened, in milliseconds since 1970.
    pub at_ms: u64,
    /// How often it has happened lately.
    pub count: u64,
}

/// The log.
#[derive(Debug, Default)]
pub(crate) struct DenialLog(Mutex<VecDeque<Event>>);

impl DenialLog {
    fn events(&self) -> MutexGuard<'_, VecDeque<Event>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event, or counts it as a repetition of an equal one of the last minute. At most
    /// `most` events are kept.
    pub fn enter(&self, mut event: Event, most: usize) {
        let mut events = self.events();
        let is_equal = |other: &Event| {
            other.reason == event.reason
                && other.context == event.context
                && other.at_ms.abs_diff(event.at_ms) <= TOGETHER_MS
                && other.object == event.object
                && other.user == event.user
        };
        let known = events.iter().take(LOOKED_AT).position(is_equal);
        if let Some(known) = known.and_then(|place| events.remove(place)) {
            event.count += known.count;
        }
        events.push_front(event);
        events.truncate(most);
    }

    /// Removes all events except the newest `most`.
    pub fn trim(&self, most: usize) {
        self.events().truncate(most);
    }

    /// The newest `most` events, newest first.
    pub fn newest(&self, most: usize) -> Vec<Event> {
        self.events().iter().take(most).cloned().collect()
    }
}

impl DenialReason {
    /// The name that Redis uses.
    pub fn name(self) -> &'static str {
        match self {
            DenialReason::Command => "command",
            DenialReason::Key => "key",
            DenialReason::Channel => "channel",
            DenialReason::Auth => "auth",
        }
    }
}

impl Context {
    /// The name that Redis uses.
    pub fn name(self) -> &'static str {
        match self {
            Context::TopLevel => "toplevel",
            Context::Multi => "multi",
        }
    }
}
