//! The end of an I/O thread, when the server stops or is taken over.

use std::io;
use std::time::Duration;

use mio::Events;

use super::EventLoop;

/// How long a stopping server waits for clients to read their last replies.
const DRAIN_MS: u64 = 5_000;

impl EventLoop {
    /// Stops accepting and reading, sends pending replies, and closes every connection.
    pub(super) fn drain_connections(mut self, events: &mut Events) -> io::Result<()> {
        for mut listener in std::mem::take(&mut self.listeners) {
            listener.deregister(self.poll.registry())?;
        }
        self.take_mail();
        self.take_messages();
        self.serve_ready();
        for (_, key) in std::mem::take(&mut self.handshakes.ends) {
            self.close(key);
        }
        for (_, connection) in &mut self.connections {
            connection.finish();
        }
        let deadline_ms = self.shared.now_ms() + DRAIN_MS;
        loop {
            let keys: Vec<usize> = self.connections.iter().map(|(key, _)| key).collect();
            keys.into_iter().for_each(|key| self.enqueue(key));
            self.serve_ready();
            self.ready.clear();
            self.unfinished.clear();
            let now_ms = self.shared.now_ms();
            if self.connections.is_empty() || now_ms >= deadline_ms {
                break;
            }
            // Before the wait, which the gate's next opening must end.
            self.release_parked();
            let timeout_ms = match self.ready.is_empty() {
                true => deadline_ms - now_ms,
                false => 0,
            };
            self.connections
                .iter_mut()
                .for_each(|(_, connection)| connection.queued = false);
            self.ready.clear();
            match self
                .poll
                .poll(events, Some(Duration::from_millis(timeout_ms)))
            {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                polled => polled?,
            }
            for event in events.iter() {
                if let Some(connection) = self.connections.get_mut(event.token().0) {
                    connection.writable |=
                        event.is_writable() || event.is_write_closed() || event.is_error();
                }
            }
        }
        let rest: Vec<usize> = self.connections.iter().map(|(key, _)| key).collect();
        if !rest.is_empty() {
            tracing::warn!(
                clients = rest.len(),
                "closing connections whose clients have not read their replies"
            );
        }
        rest.into_iter().for_each(|key| self.close(key));
        Ok(())
    }
}
