//! Connections whose replies wait at the [gate](crate::gate): **served again once the position that
//! the first reply waits for is durable**, and not before. Also connections whose next command
//! waits for space in the change feed, which becomes free when its content is durable.

use std::sync::Arc;

use super::{EventLoop, RETRY, Turn};
use crate::gate::Admission;

impl EventLoop {
    /// Records that a connection's replies wait at the gate, if they do.
    pub(super) fn park(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let awaited = connection.parked.awaited();
        let before = std::mem::replace(&mut connection.parked_at, awaited);
        if before == awaited {
            return;
        }
        if let Some(position) = before {
            self.parked.remove(&(position, key));
        }
        if let Some(position) = awaited {
            self.parked.insert((position, key));
        }
    }

    /// Serves the connections whose first replies may be sent, or never will be.
    pub(super) fn release_parked(&mut self) {
        if self.parked.is_empty() {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let Some(gate) = shared.gate() else {
            return;
        };
        // Before a wake-up is requested, which this may make unnecessary.
        if let Some(durability) = shared.store.durability() {
            durability.try_sync();
        }
        self.side().awaits_gate.set();
        let admission = gate.admission();
        while let Some(&(position, key)) = self.parked.first() {
            if admission != Admission::Never && !admission.admits(position) {
                gate.ask();
                break;
            }
            self.parked.pop_first();
            if let Some(connection) = self.connections.get_mut(key) {
                connection.parked_at = None;
            }
            self.enqueue(key);
        }
    }

    /// Makes a connection wait until the change feed has space for its next command.
    pub(super) fn starve(&mut self, key: usize) {
        if let Some(connection) = self.connections.get(key) {
            if self.starved.is_empty() {
                self.starved_ms = self.shared.now_ms();
            }
            let client = connection.client.entry.id;
            self.starved.push(Turn { key, client });
        }
    }

    /// Serves the connections that wait for space in the change feed, if there is space, or if they
    /// have waited so long that they may be refused.
    pub(super) fn release_starved(&mut self) {
        if self.starved.is_empty() {
            return;
        }
        // Before the feed is checked, whose space becomes free when the gate opens.
        self.side().awaits_gate.set();
        let waited_ms = self.shared.now_ms().saturating_sub(self.starved_ms);
        if let Some(gate) = self.shared.gate()
            && !self.shared.store.has_feed_space()
            && gate.refusal().is_none()
            && u128::from(waited_ms) < RETRY.as_millis()
        {
            gate.ask();
            return;
        }
        for Turn { key, client } in std::mem::take(&mut self.starved) {
            if let Some(connection) = self.connections.get_mut(key)
                && connection.client.entry.id == client
            {
                connection.awaits_space = false;
                self.enqueue(key);
            }
        }
    }
}
