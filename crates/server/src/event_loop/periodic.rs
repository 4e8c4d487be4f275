//! A thread's periodic checks: for clients that do not read, that wait for the end of a pause, or
//! that are idle for too long.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::connection::Connection;
use crate::settings::Key;

use super::{EventLoop, RETRY, Turn};

/// How often idle clients are checked for.
const IDLE_INTERVAL: Duration = Duration::from_secs(1);

/// How soon a command is checked again that waits for other threads' sections.
const DELAY: Duration = Duration::from_millis(1);

impl EventLoop {
    /// The maximum time to wait for events.
    pub(super) fn poll_timeout(&self) -> Option<Duration> {
        if !self.ready.is_empty()
            || !self.unfinished.is_empty()
            || !self.killed.is_empty()
            || !self.handshakes.steps.is_empty()
            || self.accepting.more
            || self.side().woken.is_filled()
        {
            return Some(Duration::ZERO);
        }
        let retry = self.accepting.waits()
            || !self.paused.is_empty()
            || !self.starved.is_empty()
            || !self.shared.is_settled();
        let pause = match self.held.is_empty() {
            true => None,
            false => Some(match self.shared.pauses.left(self.shared.now_ms()) {
                // The wait is limited, so that a change of the wall clock does no harm.
                Some((_, left_ms)) => Duration::from_millis(left_ms).min(RETRY),
                None => Duration::ZERO,
            }),
        };
        let until = |(at_ms, _): &(u64, usize)| {
            Duration::from_millis(at_ms.saturating_sub(self.shared.now_ms())).min(RETRY)
        };
        let leaving = self.leaving.first().map(until);
        let waiting = self.waiting.first().map(until);
        let slow_readers = self.slow_readers.first().map(until);
        let handshakes = self.handshakes.ends.first().map(until);
        let delayed = (!self.delayed.is_empty()).then_some(DELAY);
        let idle = self.shared.settings.is(Key::Timeout) && !self.connections.is_empty();
        let idle = idle.then_some(IDLE_INTERVAL);
        [
            retry.then_some(RETRY),
            pause,
            leaving,
            waiting,
            slow_readers,
            handshakes,
            delayed,
            idle,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Reads again from paused clients that seem to wait for this server while it waits for them.
    /// They are not checked in each round, because there may be many unknown clients.
    pub(super) fn resume_stalled(&mut self) {
        if self.paused.is_empty() {
            return;
        }
        let now_ms = self.shared.now_ms();
        if now_ms.saturating_sub(self.stalled_checked_ms) < RETRY.as_millis() as u64 {
            return;
        }
        self.stalled_checked_ms = now_ms;
        let mut paused = std::mem::take(&mut self.paused);
        paused.retain(|&key| {
            let Some(connection) = self.connections.get_mut(key) else {
                return false;
            };
            let resumed = connection.resume_if_stalled(now_ms);
            if resumed {
                self.enqueue(key);
            }
            !resumed && self.connections.get(key).is_some_and(Connection::is_paused)
        });
        self.paused = paused;
    }

    /// Records when to close a connection whose peer has closed its side, if its next command
    /// waits.
    pub(super) fn note_leaving(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        match (connection.half_closed_ms(), connection.leaves_ms) {
            (Some(bound_ms), None) => {
                let leaves_ms = self.shared.now_ms() + bound_ms;
                connection.leaves_ms = Some(leaves_ms);
                self.leaving.insert((leaves_ms, key));
            }
            (None, Some(leaves_ms)) => {
                connection.leaves_ms = None;
                self.leaving.remove(&(leaves_ms, key));
            }
            _ => {}
        }
    }

    /// Closes the connections whose peers have closed their side and whose next command has waited
    /// too long since.
    pub(super) fn close_leaving(&mut self) {
        while let Some(&(leaves_ms, key)) = self.leaving.first()
            && leaves_ms <= self.shared.now_ms()
        {
            tracing::debug!("closing a connection: its client has left before its command began");
            self.leaving.pop_first();
            self.close(key);
        }
    }

    /// Records when to close a connection whose unsent output exceeds the soft limit of its class.
    pub(super) fn note_slow_reader(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        match (
            connection.soft_limit_ms(&self.shared),
            connection.slow_ends_ms,
        ) {
            (Some(bound_ms), None) => {
                let ends_ms = self.shared.now_ms().saturating_add(bound_ms);
                connection.slow_ends_ms = Some(ends_ms);
                self.slow_readers.insert((ends_ms, key));
            }
            (None, Some(ends_ms)) => {
                connection.slow_ends_ms = None;
                self.slow_readers.remove(&(ends_ms, key));
            }
            _ => {}
        }
    }

    /// Closes the connections whose unsent output has exceeded the soft limit for too long.
    pub(super) fn close_slow_readers(&mut self) {
        while let Some(&(ends_ms, key)) = self.slow_readers.first()
            && ends_ms <= self.shared.now_ms()
        {
            tracing::warn!("a client's unsent output exceeds the soft limit; cutting it off");
            self.slow_readers.pop_first();
            self.close(key);
        }
    }

    /// Records that a connection's next command waits for the end of a pause.
    pub(super) fn hold(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let Some(holds) = connection.client.held else {
            return;
        };
        match connection.held_at {
            // It was held already.
            Some((before, _)) if before == holds => return,
            Some(place) => self.held.remove(place),
            None => {}
        }
        let has_waited = connection.client.wait.is_some();
        connection.held_at = Some(self.held.add(key, holds, has_waited));
        self.show_held();
    }

    /// Records that a connection is no longer held although the pause continues: its command's wait
    /// for a key has ended.
    pub(super) fn note_unheld(&mut self, key: usize) {
        if let Some(connection) = self.connections.get_mut(key)
            && connection.client.held.is_none()
            && let Some(place) = connection.held_at.take()
        {
            self.held.remove(place);
            self.show_held();
        }
    }

    /// Continues the connections whose pause is over.
    pub(super) fn release_held(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let pause = self.shared.pauses.now(|| self.shared.now_ms());
        let released = self.held.release(pause);
        if released.is_empty() {
            return;
        }
        for key in released {
            if let Some(connection) = self.connections.get_mut(key) {
                connection.held_at = None;
            }
            self.enqueue(key);
        }
        self.show_held();
    }

    /// Records that a connection's next command waits for other threads' sections.
    pub(super) fn delay(&mut self, key: usize) {
        if let Some(connection) = self.connections.get(key) {
            if self.delayed.is_empty() {
                self.delayed_ns = self.shared.now_ns();
            }
            let client = connection.client.entry.id;
            self.delayed.push(Turn { key, client });
        }
    }

    /// Serves the connections whose next commands have waited for a moment.
    pub(super) fn release_delayed(&mut self) {
        if self.delayed.is_empty() {
            return;
        }
        let waited_ns = self.shared.now_ns().saturating_sub(self.delayed_ns);
        if u128::from(waited_ns) < DELAY.as_nanos() {
            return;
        }
        for Turn { key, client } in std::mem::take(&mut self.delayed) {
            if let Some(connection) = self.connections.get_mut(key)
                && connection.client.entry.id == client
            {
                connection.awaits_sections = false;
                self.enqueue(key);
            }
        }
    }

    pub(super) fn show_held(&self) {
        let held = self.held.waiting_for_nothing_else();
        // SYNC: pairs with nothing; a statistic.
        self.side().held.store(held, Ordering::Relaxed);
    }

    /// Closes the connections of clients that have neither sent nor read anything for too long,
    /// except those that wait for the server.
    pub(super) fn close_idle(&mut self) {
        let timeout_ms = (self.shared.settings.count(Key::Timeout) as u64).saturating_mul(1000);
        if timeout_ms == 0 {
            return;
        }
        let now_ms = self.shared.now_ms();
        if now_ms.saturating_sub(self.idle_checked_ms) < IDLE_INTERVAL.as_millis() as u64 {
            return;
        }
        self.idle_checked_ms = now_ms;
        let is_idle = |connection: &Connection| {
            let client = &connection.client;
            client.held.is_none()
                && client.wait.is_none()
                && !client.is_subscriber()
                && !client.is_monitor
                && connection.parked_at.is_none()
                && !connection.awaits_space
                && !connection.awaits_sections
                && now_ms.saturating_sub(client.active_ms) > timeout_ms
        };
        let idle: Vec<usize> = self
            .connections
            .iter()
            .filter_map(|(key, connection)| is_idle(connection).then_some(key))
            .collect();
        for key in idle {
            tracing::debug!("closing a connection: its client has said nothing for too long");
            self.close(key);
        }
    }
}
