//! Connections whose replies wait at the [gate](crate::gate): **served again once the position that
//! the first of them waits for is durable**, and not before.

use std::sync::Arc;

use super::EventLoop;
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
        self.side().awaits_gate.set();
        let shared = Arc::clone(&self.shared);
        let Some(gate) = shared.gate() else {
            return;
        };
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
}
