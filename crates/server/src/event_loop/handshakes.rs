//! The TLS handshakes of a thread: **performed after all ready clients were served, a few in a
//! round, and aborted when they take too long or are too many**.

use std::collections::{BTreeSet, VecDeque};

use super::{EventLoop, SLICE_NS, Turn};
use crate::tls::{HANDSHAKE_MS, HANDSHAKES};

/// The maximum number of handshake steps in a round. One takes up to a millisecond, for the
/// signature.
const STEPS: usize = 4;

/// Handshakes in progress.
#[derive(Debug, Default)]
pub(super) struct Handshakes {
    /// Handshakes whose peers have sent data.
    pub steps: VecDeque<Turn>,
    /// The deadline of each, with its connection's index in the slab.
    pub ends: BTreeSet<(u64, usize)>,
}

impl EventLoop {
    pub(super) fn is_shaking_hands(&self, key: usize) -> bool {
        let is_it = |key| {
            let connection = self.connections.get(key);
            connection.is_some_and(|one| one.handshake_ends_ms.is_some())
        };
        // Usually there are none.
        !self.handshakes.ends.is_empty() && is_it(key)
    }

    /// Records a new connection whose peer must speak TLS. If there are too many, the oldest is
    /// closed.
    pub(super) fn expect_handshake(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if !connection.is_shaking_hands() {
            return;
        }
        let ends_ms = self.shared.now_ms() + HANDSHAKE_MS;
        connection.handshake_ends_ms = Some(ends_ms);
        self.handshakes.ends.insert((ends_ms, key));
        if self.handshakes.ends.len() > HANDSHAKES
            && let Some((_, oldest)) = self.handshakes.ends.pop_first()
        {
            self.fail_handshake(oldest, "there are too many handshakes");
        }
    }

    /// Records the end of a handshake, if it has ended.
    pub(super) fn note_handshake(&mut self, key: usize) {
        if let Some(connection) = self.connections.get_mut(key)
            && !connection.is_shaking_hands()
            && let Some(ends_ms) = connection.handshake_ends_ms.take()
        {
            self.handshakes.ends.remove(&(ends_ms, key));
        }
    }

    /// Continues a handshake in a later round.
    pub(super) fn step_later(&mut self, key: usize) {
        if let Some(connection) = self.connections.get_mut(key)
            && !std::mem::replace(&mut connection.queued, true)
        {
            let client = connection.client.entry.id;
            self.handshakes.steps.push_back(Turn { key, client });
        }
    }

    /// Continues a few handshakes, as long as the round that began at `begun_ns` is short.
    pub(super) fn shake_hands(&mut self, begun_ns: u64) {
        for _ in 0..STEPS {
            let Some(turn) = self.handshakes.steps.pop_front() else {
                return;
            };
            self.serve(turn, self.shared.now_ns());
            if self.shared.now_ns().saturating_sub(begun_ns) >= SLICE_NS {
                return;
            }
        }
    }

    /// Closes the connections whose handshakes have taken too long.
    pub(super) fn close_late_handshakes(&mut self) {
        while let Some(&(ends_ms, key)) = self.handshakes.ends.first()
            && ends_ms <= self.shared.now_ms()
        {
            self.handshakes.ends.pop_first();
            self.fail_handshake(key, "the handshake has taken too long");
        }
    }

    fn fail_handshake(&mut self, key: usize, reason: &str) {
        if let Some(connection) = self.connections.get(key) {
            connection.warn_of_tls(&self.shared, &reason);
        }
        self.close(key);
    }
}
