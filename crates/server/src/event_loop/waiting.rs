//! Connections whose commands wait for keys ([`crate::blocking`]): **one that was woken is served
//! before the next command of this thread**, and not visited before.

use super::{EventLoop, Turn};
use crate::blocking::Sleeper;

impl EventLoop {
    /// Serves the connections that have waited for a key which may be ready.
    #[inline]
    pub(super) fn serve_woken(&mut self) {
        if self.side().woken.is_filled() {
            self.serve_all_woken();
        }
    }

    #[cold]
    fn serve_all_woken(&mut self) {
        loop {
            // A connection that is served twice in a round must not overtake its earlier replies.
            self.answer();
            let woken = self.side().take_woken();
            if woken.is_empty() {
                return;
            }
            let now_ns = self.shared.now_ns();
            for Sleeper { key, client, .. } in woken {
                let Some(connection) = self.connections.get_mut(key) else {
                    continue;
                };
                if connection.client.entry.id != client {
                    continue;
                }
                if let Some(wait) = &mut connection.client.wait {
                    wait.is_asleep = !wait.is_over && self.shared.falls_asleep(client);
                    if wait.is_asleep {
                        continue;
                    }
                }
                if !connection.queued {
                    self.serve(Turn { key, client }, now_ns);
                }
            }
        }
    }

    /// Records until when a connection's command waits.
    pub(super) fn note_wait(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let wait = connection.client.wait.as_ref();
        let until_ms = wait
            .filter(|wait| !wait.is_over)
            .and_then(|wait| wait.ends_ms);
        let before = std::mem::replace(&mut connection.waits_until_ms, until_ms);
        if before == until_ms {
            return;
        }
        if let Some(until_ms) = before {
            self.waiting.remove(&(until_ms, key));
        }
        if let Some(until_ms) = until_ms {
            self.waiting.insert((until_ms, key));
        }
    }

    /// Serves the connections whose commands have waited long enough.
    pub(super) fn end_waits(&mut self) {
        while let Some(&(until_ms, key)) = self.waiting.first()
            && until_ms <= self.shared.now_ms()
        {
            self.waiting.pop_first();
            let Some(connection) = self.connections.get_mut(key) else {
                continue;
            };
            connection.waits_until_ms = None;
            if let Some(wait) = &mut connection.client.wait {
                (wait.is_over, wait.is_asleep) = (true, false);
            }
            self.enqueue(key);
        }
    }
}
