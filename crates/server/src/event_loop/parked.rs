//! Connections whose replies wait at the [gate](crate::gate): **served again once the position that
//! the first of them waits for is durable**, and not before. And those whose next command waits for
//! space in the change feed, which returns when what it holds is durable.

use std::sync::Arc;

use super::{EventLoop, RETRY, Turn};
use crate::gate::Admission;

impl EventLoop {
    /// Notes that a connection's replies wait at the gate, if they do.
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

    /// Has the connections served whose first replies may leave, or never will.
    pub(super) fn release_parked(&mut self) {
        if self.parked.is_empty() {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let Some(gate) = shared.gate() else {
            return;
        };
        // Before a wake-up is asked for, which it may spare.
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

    /// Has a connection wait until the change feed has space for its next command.
    pub(super) fn starve(&mut self, key: usize) {
        if let Some(connection) = self.connections.get(key) {
            if self.starved.is_empty() {
                self.starved_ms = self.shared.now_ms();
            }
            let client = connection.client.entry.id;
            self.starved.push(Turn { key, client });
        }
    }

    /// Has the connections served that wait for space in the change feed: if there is some, or if
    /// they have waited for a while, by which they may be refused.
    pub(super) fn release_starved(&mut self) {
        if self.starved.is_empty() {
            return;
        }
        // Before the look at the feed, whose space returns with the gate's opening.
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
